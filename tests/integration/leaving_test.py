"""How a ringworker leaves when the coordinator does not answer, when it is told twice, and who it may be."""
import shutil
import signal
import time

import cluster

SPEC = cluster.job_spec(epochs=None, steps=2000)


class LeavingTest(cluster.ClusterTest):
    def begin(self, *workers, **options):
        """A job that runs slowly on these workers; its id."""
        self.cluster.environment = {"RINGMASTER_FAILPOINTS": "boundary=delay:20"}
        self.cluster.make_data()
        self.cluster.start_coordinator()
        for name in workers:
            self.cluster.start_worker(name, **options)
        job = self.cluster.submit(SPEC)
        self.cluster.watch_until(job, lambda status: status["step"] > 2 and
                                 len(status["workers"]) == len(workers), "the job runs")
        return job

    def test_while_the_coordinator_is_away_the_ring_goes_on_and_then_the_worker_is_released(self):
        job = self.begin("a", "b")
        step = self.cluster.status(job)["step"]
        self.cluster.coordinator.kill()
        leaves = self.cluster.workers.pop("b")
        leaves.signal(signal.SIGTERM)
        time.sleep(0.5)  # long enough to end, if it did not wait
        self.assertTrue(leaves.running())
        self.cluster.start_coordinator()
        self.assertEqual(leaves.wait(), cluster.OK)
        self.cluster.wait_ring(job, "a")
        status = self.cluster.status(job)
        self.assertGreater(status["step"], step)
        self.assertEqual([(gone["lost"], gone["shards_recomputed"]) for gone in cluster.regroups_of_members(status)],
                         [(["b"], 0)])

    def test_a_second_signal_ends_it_at_once(self):
        self.begin("a", "b")
        self.cluster.coordinator.kill()
        for number in (signal.SIGTERM, signal.SIGINT):
            self.assertTrue(self.cluster.workers["b"].running())
            self.cluster.workers["b"].signal(number)
            time.sleep(0.2)  # signals of one kind are not counted
        self.assertEqual(self.cluster.workers["b"].wait(10), cluster.OK)

    def test_nobody_answers_within_the_drain(self):
        self.begin("a", "b", extra=("--drain", "1s"))
        self.cluster.coordinator.kill()
        self.assertEqual(self.cluster.workers["b"].stop(), cluster.OK)
        self.assertIn("not released within 1s", self.cluster.workers["b"].log())

    def test_without_a_drain_it_is_lost_and_the_job_goes_on(self):
        job = self.begin("a", "b", extra=("--drain", "0"))
        self.assertEqual(self.cluster.workers.pop("b").stop(), cluster.OK)
        self.cluster.wait_ring(job, "a")
        self.assertEqual(self.cluster.status(job)["state"], "RUNNING")

    def test_a_second_worker_of_a_living_name_says_so_once_and_takes_over_later(self):
        self.begin("a")
        first = self.cluster.workers["a"]
        shutil.copytree(self.cluster.folder / "state-a", self.cluster.folder / "state-copy")
        second = self.cluster.start_worker("a", state="copy", wait=False)
        refused = "a living worker is called a"
        cluster.wait_until(lambda: refused in second.log(), "it is refused")
        time.sleep(1.5)  # it asks twice a second
        self.assertEqual(second.log().count(refused), 1)
        first.kill()
        cluster.wait_until(lambda: "attached in term" in second.log(), "it takes over")

    def test_a_copy_of_a_state_folder_with_another_name_is_a_worker_of_its_own(self):
        job = self.begin("a")
        shutil.copytree(self.cluster.folder / "state-a", self.cluster.folder / "state-b")
        self.cluster.start_worker("b")
        self.cluster.wait_ring(job, "a", "b")
        self.cluster.watch_until(job, lambda status: "b" in self.cluster.ringctl("logs", job).stdout,
                                 "lines of b")
        self.assertNotIn("lost", self.cluster.ringctl("logs", job).stdout)


if __name__ == "__main__":
    cluster.main()
