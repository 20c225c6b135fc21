"""`ringctl check` of two hosts with TLS between them: what it says of certificates, interfaces and links, and of a port
behind a firewall."""
import unittest

import cluster
import private
import two_hosts

SECOND = "198.18.77.3"  # of the host inside

setUpModule = two_hosts.set_up


class CheckHostsTest(two_hosts.HostsTest):
    def start(self, name, host, *flags):
        token = self.cluster.token("--name", name)
        self.cluster.start_certified(name, host, join=["--join", token, *flags])

    def check(self, expect=cluster.OK):
        """(check, about) -> finding, once both workers have said what their hosts are like."""
        def find():
            findings = self.cluster.json("check", expect=None)["findings"]
            found = {(one["check"], one["about"]): one for one in findings}
            return found if all(found[("clock", name)]["verdict"] != "SKIPPED" for name in "ab") else None
        cluster.wait_until(find, "both say what their hosts are like")
        self.cluster.ringctl("check", expect=expect)
        return find()

    def test_two_hosts_in_order(self):
        self.cluster.start_coordinator()
        self.start("a", two_hosts.INSIDE)
        self.start("b", two_hosts.OUTSIDE)
        found = self.check()
        for name, interface in (("a", "eth0"), ("b", "switch")):
            self.assertIn(f"on {interface}", found[("worker", name)]["found"])
            self.assertIn(f", interface {interface}, as it reaches the coordinator", self.cluster.workers[name].log())
            self.assertIn("good until", found[("certificate", name)]["found"])
            self.assertEqual(found[("clock", name)]["verdict"], "OK")
        for pair in ("a to b", "b to a"):
            self.assertIn(found[("link", pair)]["verdict"], ("OK", "WARNING"))

    def test_a_port_behind_a_firewall(self):
        """What b sends to a's second address goes nowhere; to the coordinator, on the first, it goes."""
        private.run(*two_hosts.on(two_hosts.INSIDE), "ip", "address", "add", f"{SECOND}/24", "dev", "eth0")
        self.cluster.start_coordinator()
        self.start("a", two_hosts.INSIDE, "--listen", f"{SECOND}:0")
        self.start("b", two_hosts.OUTSIDE)
        private.run("ip", "route", "add", "blackhole", f"{SECOND}/32")
        self.addCleanup(private.run, "ip", "route", "delete", "blackhole", f"{SECOND}/32")
        found = self.check(expect=cluster.OTHER)
        address = self.cluster.attached()["a"]["ring_address"]
        port = found[("port", "b to a")]
        self.assertEqual(port["verdict"], "FAILED")
        self.assertRegex(port["found"], f"^no connection to {address} within 5 s: 198.18.77.[0-9]+: (Invalid argument|Network is unreach)")
        self.assertIn(f"let b in at TCP port {address.rsplit(':')[-1]} on the host of a", port["remedy"])
        self.assertEqual(found[("link", "a to b")]["verdict"], "SKIPPED")
        self.assertNotIn(("port", "a to b"), found)


if __name__ == "__main__":
    unittest.main(verbosity=2)
