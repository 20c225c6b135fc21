"""`ringctl bench allreduce`: what is measured of a real cluster, when it is refused, and how it ends early."""
import signal
import subprocess

import cluster

LONG = ("--sizes", "64MiB", "--rounds", "100")  # longer than anything here waits for
JOB = cluster.job_spec(epochs=None, steps=5000, workers={"min": 1, "max": 1})


class BenchTest(cluster.ClusterTest):
    def begin(self, *workers):
        self.cluster.make_data()
        self.cluster.start_coordinator()
        for name in workers:
            self.cluster.start_worker(name)

    def bench(self, *arguments, **options):
        return self.cluster.json("bench", "allreduce", *arguments, **options)

    def state(self, name):
        return self.cluster.attached().get(name, {}).get("state", "GONE")

    def begin_long(self, *workers):
        """A measurement that is on; its ringctl."""
        asked = subprocess.Popen(
            [cluster.BIN / "ringctl", "bench", "allreduce", *LONG, "--coordinator", self.cluster.address],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(asked.stdout.close)
        self.addCleanup(asked.stderr.close)
        self.addCleanup(asked.wait)
        self.addCleanup(asked.kill)
        cluster.wait_until(lambda: all(self.state(name) == "BENCH" for name in workers), "the ring is measured")
        return asked

    def wait_error(self, asked):
        self.assertEqual(asked.wait(30 * cluster.SLOW), cluster.OTHER)
        return asked.stderr.read()

    def test_every_size_every_sum_and_every_link(self):
        self.begin("a", "b", "c")
        report = self.bench("--sizes", "64KiB,1000004", "--rounds", "3", "--seed", "7")
        self.assertEqual(report["workers"], ["a", "b", "c"])
        self.assertEqual([(link["from"], link["to"]) for link in report["links"]],
                         [("a", "b"), ("b", "c"), ("c", "a")])
        for link in report["links"]:
            self.assertGreater(link["bytes_per_second"], 1e6)
            self.assertGreater(link["round_trip_seconds"], 1e-6)
            self.assertLess(link["round_trip_seconds"], 1)
        self.assertEqual([row["bytes"] for row in report["rows"]], [65536, 1000004])
        for row in report["rows"]:
            for sums in ("exact", "float32"):
                times = row[sums]
                self.assertEqual(len(times["seconds"]), 3)
                self.assertEqual(times["median_seconds"], sorted(times["seconds"])[1])
                self.assertAlmostEqual(times["algorithm_bytes_per_second"] * times["median_seconds"] / row["bytes"], 1)
                self.assertAlmostEqual(times["bus_bytes_per_second"] / times["algorithm_bytes_per_second"], 4 / 3)
            # Two trips of two thirds, of every member: all of it as floats, under 24 bits of each as integers.
            self.assertEqual(row["float32"]["sent_bytes"], 4 * row["bytes"])
            self.assertLess(row["exact"]["sent_bytes"], 0.75 * row["float32"]["sent_bytes"])
            ratios = [theirs / ours for ours, theirs in zip(row["exact"]["seconds"], row["float32"]["seconds"])]
            self.assertAlmostEqual(row["ratio"], sorted(ratios)[1])
        self.cluster.wait_free("a", "b", "c", timeout=1)
        # The same workers train afterwards.
        self.cluster.run_job(cluster.job_spec())

    def test_named_workers_in_their_order_and_one_kind_of_sum(self):
        self.begin("a", "b", "c")
        report = self.bench("--workers", "c,a", "--sizes", "1MiB", "--sums", "exact", "--rounds", "1")
        self.assertEqual([(link["from"], link["to"]) for link in report["links"]], [("c", "a"), ("a", "c")])
        self.assertIsNone(report["rows"][0]["float32"])
        self.assertIsNone(report["rows"][0]["ratio"])
        table = self.cluster.ringctl("bench", "allreduce", "--workers", "b,c", "--sizes", "64KiB", "--sums",
                                     "float32").stdout
        self.assertIn("float32", table)
        self.assertNotIn("exact  ", table)

    def test_beside_a_job_it_is_refused_and_the_others_can_be_measured(self):
        self.begin("a", "b", "c")
        job = self.cluster.submit(JOB)
        self.cluster.watch_until(job, lambda status: status["state"] == "RUNNING", "the job runs")
        server = self.cluster.status(job)["workers"][0]["name"]
        others = ",".join(name for name in "abc" if name != server)
        refused = self.cluster.ringctl("bench", "allreduce", expect=cluster.OTHER).stderr
        self.assertIn(f"worker {server} serves job {job}", refused)
        self.assertIn(f"--workers {others}", refused)
        self.bench("--workers", others, "--sizes", "64KiB", "--rounds", "1")
        self.assertEqual(self.cluster.status(job)["state"], "RUNNING")

    def test_a_killed_worker_is_named_and_the_others_are_free(self):
        self.begin("a", "b", "c")
        asked = self.begin_long("a", "b", "c")
        refused = self.cluster.ringctl("bench", "allreduce", expect=cluster.OTHER).stderr
        self.assertIn("another measurement of 3 workers is on", refused)
        self.cluster.workers["b"].kill()
        self.assertIn("worker b", self.wait_error(asked))
        self.cluster.wait_free("a", "c", timeout=10)
        self.bench("--sizes", "64KiB", "--rounds", "1")

    def test_a_worker_that_stands_still_is_named(self):
        self.begin("a", "b")
        asked = self.begin_long("a", "b")
        self.cluster.workers["b"].signal(signal.SIGSTOP)
        try:
            self.assertIn("worker b was lost", self.wait_error(asked))
            self.cluster.wait_free("a", timeout=10)
        finally:
            self.cluster.workers["b"].signal(signal.SIGCONT)

    def test_who_asked_goes_away_and_a_job_gets_the_workers(self):
        self.begin("a", "b")
        asked = self.begin_long("a", "b")
        job = self.cluster.submit(cluster.job_spec())
        reason = cluster.wait_until(lambda: self.cluster.json("why", job)["reason"], "there is a reason")
        self.assertIn("2 are measured by `ringctl bench`", reason)
        asked.kill()
        self.assertEqual(self.cluster.wait(job)["state"], "SUCCEEDED")

    def test_a_coordinator_that_ends_ends_the_measurement(self):
        self.begin("a", "b")
        for end in (cluster.Process.kill, cluster.Process.stop):
            asked = self.begin_long("a", "b")
            end(self.cluster.coordinator)
            self.assertEqual(asked.wait(20 * cluster.SLOW), cluster.UNREACHABLE)
            self.cluster.start_coordinator()
            self.cluster.wait_free("a", "b", timeout=20)
        self.bench("--sizes", "64KiB", "--rounds", "1")

    def test_a_worker_that_is_told_to_stop_ends_the_measurement_and_leaves(self):
        self.begin("a", "b")
        asked = self.begin_long("a", "b")
        self.assertEqual(self.cluster.workers["a"].stop(), cluster.OK)
        self.assertIn("worker a leaves", self.wait_error(asked))
        self.cluster.wait_free("b", timeout=10)


if __name__ == "__main__":
    cluster.main()
