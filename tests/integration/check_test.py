"""`ringctl check`: what it says of a cluster in order, beside a job, and of what is wrong."""
import shutil
import subprocess

import cluster

JOB = cluster.job_spec(epochs=None, steps=5000, workers={"min": 1, "max": 1})
SHIFTED_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec* time) {
  static int (*system_s)(clockid_t, struct timespec*);
  if (!system_s) system_s = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const int result = system_s(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += 90;
  return result;
}
"""


class CheckTest(cluster.ClusterTest):
    def begin(self, *workers):
        self.cluster.make_data()
        self.cluster.start_coordinator()
        for name in workers:
            self.cluster.start_worker(name)
        self.wait_reports(*workers)

    def wait_reports(self, *workers):
        """Until each has told its clock and its disks, which it does once it is attached."""
        def told():
            said = self.check("--no-links", expect=None)
            return all(said[("clock", name)]["verdict"] != "SKIPPED" for name in workers)
        cluster.wait_until(told, "the workers say what they are like")

    def check(self, *arguments, expect=cluster.OK):
        """(check, about) -> finding."""
        report = self.cluster.json("check", *arguments, expect=expect)
        self.assertEqual(report["ok"], all(one["verdict"] != "FAILED" for one in report["findings"]))
        return {(one["check"], one["about"]): one for one in report["findings"]}

    def test_a_cluster_in_order(self):
        self.begin("a", "b", "c")
        found = self.check()
        for check in ("coordinator", None), ("clock", "this host"), ("worker", "a"), ("clock", "c"), ("numerics", None):
            self.assertEqual(found[check]["verdict"], "OK", found[check])
        pairs = [f"{one} to {other}" for one in "abc" for other in "abc" if one != other]
        for pair in pairs:
            # A machine that others use, too, may have a slow moment.
            self.assertIn(found[("link", pair)]["verdict"], ("OK", "WARNING"))
        self.assertIn("on lo", found[("worker", "a")]["found"])
        self.cluster.wait_free("a", "b", "c", timeout=1)
        table = self.cluster.ringctl("check", "--no-links").stdout
        self.assertRegex(table, r"(?m)^ok      +worker +a: FREE on ")
        self.assertRegex(table, r"(?m)^0 failed, ")
        self.assertFalse([key for key in self.check("--no-links") if key[0] == "link"])

    def test_a_job_that_fits_and_one_that_does_not(self):
        self.begin("a")
        job = self.cluster.write_job(cluster.job_spec())
        fits = [one for key, one in self.check(job).items() if key[0] == "job"]
        self.assertEqual([one["verdict"] for one in fits], ["OK"])
        wide = ["--set", "model.hidden=[65536,65536]"]
        [large] = [one for key, one in self.check(job, *wide, expect=cluster.OTHER).items() if key[0] == "job"]
        self.assertEqual(large["verdict"], "FAILED")
        self.assertIn("does not fit into 4.0 GiB a core", large["found"])
        self.assertIn("ringctl plan", large["remedy"])

    def test_without_a_coordinator_or_a_worker(self):
        refused = self.check(expect=cluster.OTHER)
        self.assertIn("127.0.0.1:1", refused[("coordinator", "127.0.0.1:1")]["found"])
        self.begin()
        nobody = self.check(expect=cluster.OTHER)[("worker", None)]
        self.assertEqual(nobody["verdict"], "FAILED")
        self.assertIn("--join", nobody["remedy"])

    def test_beside_a_job_its_worker_is_left_alone(self):
        self.begin("a", "b", "c")
        job = self.cluster.submit(JOB)
        self.cluster.watch_until(job, lambda status: status["state"] == "RUNNING", "the job runs")
        server = self.cluster.status(job)["workers"][0]["name"]
        found = self.check()
        self.assertEqual(found[("link", server)]["verdict"], "SKIPPED")
        self.assertIn(f"serves {job}", found[("link", server)]["found"])
        first, second = sorted(set("abc") - {server})
        self.assertIn(("link", f"{first} to {second}"), found)
        self.assertEqual(self.cluster.status(job)["regroups"], [])

    def test_a_port_that_lets_nobody_in_is_named_and_the_other_links_are_measured(self):
        self.begin("a", "c")
        # It listens elsewhere than it says, as behind a port that was never opened.
        self.cluster.start_worker("b", listen="127.0.0.2:0", advertise="127.0.0.3")
        address = self.cluster.attached()["b"]["ring_address"]
        self.wait_reports("b")
        found = self.check(expect=cluster.OTHER)
        for other in "ac":
            port = found[("port", f"{other} to b")]
            self.assertEqual(port["verdict"], "FAILED")
            self.assertEqual(f"no connection to {address} within 5 s: 127.0.0.3: Connection refused", port["found"])
            self.assertIn(f"let {other} in at TCP port {address.rsplit(':')[-1]} on the host of b", port["remedy"])
            self.assertEqual(found[("link", f"b to {other}")]["verdict"], "SKIPPED")
        for pair in ("a to c", "c to a"):
            self.assertIn(found[("link", pair)]["verdict"], ("OK", "WARNING"))
        self.cluster.wait_free("a", "b", "c", timeout=1)

    def test_a_clock_that_is_wrong_is_named(self):
        if shutil.which("cc") is None:
            self.skipTest("there is no C compiler")
        source = self.cluster.folder / "clock.c"
        source.write_text(SHIFTED_CLOCK)
        library = source.with_suffix(".so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self.begin("a")
        self.cluster.start_worker("b", prefix=("env", f"LD_PRELOAD={library}"))
        self.wait_reports("b")
        found = self.check("--no-links", expect=cluster.OTHER)
        self.assertEqual(found[("clock", "a")]["verdict"], "OK")
        self.assertEqual(found[("clock", "b")]["verdict"], "FAILED")
        self.assertRegex(found[("clock", "b")]["found"], r"^1m(29|30)s ahead of")


if __name__ == "__main__":
    cluster.main()
