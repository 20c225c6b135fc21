"""Workers that lack a job's data fetch them from a peer or the coordinator, and the result is the same."""
import re

import cluster

SAMPLE = 3_073  # bytes, of cifar10
TRAIN = 9_000  # so that some of its files are larger than a piece of 8 MiB


def spec(**changes):
    return cluster.job_spec(**{"epochs": 1, "batch": 240, **changes})


def size(folder):
    return sum(file.stat().st_size for file in folder.iterdir())


def fetched(log):
    """How many bytes each fetch of that log brought."""
    return [int(count) for count in re.findall(r"is whole in .*: (\d+) bytes were fetched", log)]


class FetchTest(cluster.ClusterTest):
    def start(self, train=TRAIN, **coordinator):
        """A coordinator, an empty --data-root, and what a job's checkpoint is where everybody has the data."""
        self.empty = self.cluster.folder / "empty"
        self.empty.mkdir()
        self.data = self.cluster.make_data(train=train)
        self.cluster.start_coordinator(**coordinator)
        self.cluster.start_worker("whole")
        self.expected = self.cluster.run_job(spec())["checkpoint"]["sha256"]
        self.cluster.workers.pop("whole").stop()

    def entries(self, worker):
        """What a worker's cache has: whole entries, and others."""
        folder = self.cluster.folder / f"state-{worker}" / "data"
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.exists() else []
        return [name for name in names if len(name) == 64], [name for name in names if len(name) != 64]

    def check_copy(self, worker):
        [entry], others = self.entries(worker)
        self.assertEqual(others, [])
        files = self.cluster.folder / f"state-{worker}" / "data" / entry / "files"
        self.assertEqual(sorted(file.name for file in files.iterdir()), sorted(file.name for file in self.data.iterdir()))
        for file in self.data.iterdir():
            self.assertEqual((files / file.name).read_bytes(), file.read_bytes(), file.name)

    def check_done(self, status):
        self.assertEqual(status["checkpoint"]["sha256"], self.expected)

    def test_one_of_two_lacks_the_data(self):
        self.start()
        running = self.cluster
        running.start_worker("a")
        running.start_worker("b", data_root=self.empty)
        status = running.run_job(spec(workers={"min": 2}))
        self.check_done(status)
        shards = {worker["name"]: worker["shards"] for worker in status["workers"]}
        self.assertTrue(shards["a"] and shards["b"], shards)
        self.assertEqual(fetched(running.workers["b"].log()), [size(self.data)])
        self.assertEqual(list(self.empty.iterdir()), [])
        self.check_copy("b")
        # The next job finds it there.
        self.check_done(running.run_job(spec(workers={"min": 2})))
        self.assertEqual(len(fetched(running.workers["b"].log())), 1)
        self.assertIn("is in the cache", running.workers["b"].log())
        running.stop()


if __name__ == "__main__":
    cluster.main()
