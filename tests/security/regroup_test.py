"""After the loss of a worker the others need no handshake: their new neighbours are connected already, between
hosts with certificates and on one host without."""
import re
import unittest

import cluster  # noqa: I001  before grpc

import two_hosts
from two_hosts import INSIDE, OUTSIDE

setUpModule = two_hosts.set_up

WORKERS = ("a", "b", "c")
JOB = cluster.job_spec(name="regroup", workers={"min": 2, "max": 3}, shards=6)
ARE_READY = re.compile("next successors are connected already: (.*)$", re.MULTILINE)
CONNECTION = re.compile(r"connection to (\w+) at (\S+):\d+ for a (link|pulse): (was ready|is made)$", re.MULTILINE)


class RegroupTest(two_hosts.HostsTest):
    def lose_one(self, host_of):
        """The ring is held at a boundary until its members are connected to whom they may need; then the successor of
        one is killed. `host_of`: where a worker's connections go."""
        running = self.cluster
        logs = {name: running.workers[name].log for name in WORKERS}
        job = running.submit(JOB)
        for name in WORKERS:
            names = cluster.wait_until(lambda name=name: ARE_READY.search(logs[name]()), f"{name} is prepared")
            self.assertEqual(sorted(names[1].split()), sorted(set(WORKERS) - {name}))
        successor = {name: CONNECTION.search(logs[name]())[1] for name in WORKERS}
        before = {name: len(CONNECTION.findall(logs[name]())) for name in WORKERS}
        self.assertEqual(set(before.values()), {2})
        lost = successor["a"]
        other = successor[lost]
        running.workers[lost].kill()
        self.gate.open()
        self.check_end(job, JOB)
        for name, its in (("a", other), (other, "a")):
            made = CONNECTION.findall(logs[name]())[before[name]:][:2]
            self.assertEqual(sorted(made), sorted((its, host_of[its], use, "was ready") for use in ("link", "pulse")))

    def debugged(self):
        [self.gate] = self.cluster.gates(2)
        self.cluster.environment["RINGMASTER_LOG"] = "debug"

    def test_with_certificates(self):
        running = self.cluster
        self.debugged()
        running.start_coordinator()
        hosts = {"a": INSIDE, "b": OUTSIDE, "c": OUTSIDE}
        for name, host in hosts.items():
            running.start_certified(name, host, running.token("--name", name))
        self.lose_one({name: two_hosts.ADDRESSES[host] for name, host in hosts.items()})

    def test_in_plaintext_on_one_host(self):
        self.cluster.destroy(False)
        self.cluster = cluster.Cluster()
        self.cluster.make_data()
        self.debugged()
        self.cluster.start_coordinator()
        for name in WORKERS:
            self.cluster.start_worker(name)
        self.lose_one(dict.fromkeys(WORKERS, "127.0.0.1"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
