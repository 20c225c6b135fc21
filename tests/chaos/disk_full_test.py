"""The disk of the coordinator, or of a worker's cache, is full for a while: on a small tmpfs in a mount namespace of
our own."""
import errno
import json
import re
import time
import unittest

import training  # noqa: I001  finds tests/integration
import cluster
import private

DISK_MIB = 96
STEPS = 60


def spec():
    """Checkpoints of some MiB, often."""
    return cluster.job_spec(name="disk-full", model={"name": "mlp", "hidden": [256]}, epochs=None, steps=STEPS,
                            checkpoint={"every_steps": 2, "keep": 2}, workers={"min": 2, "max": 4})


def fill(path):
    """Writes until there is no room."""
    with open(path, "ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


class SmallDisk(unittest.TestCase):
    """A cluster whose coordinator is on a small disk of its own."""

    def setUp(self):
        private.run("ip", "link", "set", "lo", "up")
        expected = training.References().sha256(spec())
        self.expected = expected
        self.train = training.Training(prepare=self.mount, environment=lambda folder: {
            "RINGMASTER_FAILPOINTS": "boundary=delay:150"})
        self.addCleanup(self.remove)

    def mount(self, running):
        training.make_data(running)
        self.disk = running.folder / "coordinator"
        self.disk.mkdir()
        private.run("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(self.disk))

    def remove(self):
        result = self._outcome.result
        failed = any(test is self for test, _ in [*result.failures, *result.errors])
        for process in self.train.cluster.processes:
            if process.running():
                process.kill()
        private.run("umount", "-l", str(self.disk))
        self.train.destroy(failed)

    def keep_coordinator(self):
        """What a supervisor does: one that ended because it cannot write is started again."""
        if not self.train.cluster.coordinator.running():
            self.train.restart_coordinator()

    def wait_end(self):
        def ended():
            self.keep_coordinator()
            return self.train.observer.state in cluster.FINAL
        cluster.wait_until(ended, "the job ends", timeout=120)


class DiskFullTest(SmallDisk):
    """For some seconds, while the job trains."""

    def test_a_job_outlives_a_full_disk(self):
        train = self.train
        train.submit(spec())
        train.wait_step(5)
        acknowledged, refused = [], []
        end = time.monotonic() + 5
        while time.monotonic() < end:
            fill(self.disk / "filler")  # again and again: what the coordinator gives up is taken, too
            done = train.cluster.ringctl("submit", train.cluster.write_job(
                cluster.job_spec(workers={"min": 8})), "-o", "json", expect=None, timeout=30)
            if done.returncode == cluster.OK:
                acknowledged.append(json.loads(done.stdout)["job_id"])
                train.cluster.ringctl("cancel", acknowledged[-1], expect=None)
            else:
                refused.append(done.stderr)
            self.keep_coordinator()
        (self.disk / "filler").unlink()

        self.wait_end()
        train.finish(self.expected, timeout=30)
        listed = {status["job_id"] for status in train.cluster.json("ps")["jobs"]}
        self.assertLessEqual(set(acknowledged), listed)
        self.assertTrue(any("cannot write its store" in text for text in refused), refused)
        train.stop()


class DiskFullAtTheEndTest(SmallDisk):
    """For a minute, from just before the last steps on."""

    LASTS = 60

    def test_a_trained_job_keeps_its_state_until_there_is_room(self):
        train = self.train
        train.submit(spec())
        train.wait_step(STEPS - 4)
        told = ""
        end = time.monotonic() + self.LASTS
        while time.monotonic() < end:
            fill(self.disk / "filler")
            self.keep_coordinator()
            self.assertNotIn(train.observer.state, cluster.FINAL)
            told += train.cluster.ringctl("why", train.job, expect=None, timeout=30).stdout
            time.sleep(0.5)
        self.assertRegex(told, "cannot write its store|the last checkpoint, of step 60, is not stored yet")
        (self.disk / "filler").unlink()
        self.wait_end()
        status = train.finish(self.expected, timeout=30)
        self.assertEqual([regroup for regroup in status.get("regroups", []) if regroup.get("rewound")], [])
        train.stop()


class CacheFullTest(cluster.ClusterTest):
    """Of a worker that fetches its data: the disk of its cache, in the middle of that."""

    def test_a_full_cache_is_said_and_what_came_is_kept(self):
        private.run("ip", "link", "set", "lo", "up")
        running = self.cluster
        running.make_data(train=30_000)  # 92 MB
        empty, disk = running.folder / "empty", running.folder / "cache"
        empty.mkdir()
        disk.mkdir()
        private.run("mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(disk))
        self.addCleanup(private.run, "umount", "-l", str(disk))
        running.start_coordinator()
        running.start_worker("a")
        running.environment = {"RINGMASTER_FAILPOINTS": "data_piece@4-20=delay:500"}
        running.start_worker("b", data_root=empty, extra=("--data-cache", disk))
        job = cluster.job_spec(epochs=1, batch=240, workers={"min": 2})
        first = running.submit(job)
        cluster.wait_until(lambda: (running.attached()["b"]["data_fetch"] or {}).get("bytes", 0) >= 4 << 23, "some came")
        fill(disk / "filler")
        failed = running.wait(first)
        self.assertEqual(failed["state"], "FAILED")
        for words in (f"the disk of --data-cache {disk} is full", "are still to come", "0 B are free", "is kept"):
            self.assertIn(words, failed["reason"])
        (disk / "filler").unlink()
        done = running.wait(running.submit(job))
        self.assertEqual(done["state"], "SUCCEEDED", done["reason"])
        there = re.findall(r"(\d+) bytes are there already", running.workers["b"].log())
        self.assertEqual(there[0], "0")
        self.assertGreaterEqual(int(there[1]), 4 << 23)
        running.stop()


if __name__ == "__main__":
    private.enter()
    cluster.main(at_once=2)
