"""Workers that lack a job's data fetch them from a peer or the coordinator, and the result is the same."""
import json
import re

import cluster
from object_server import ObjectServer

PIECE = 8 << 20
TRAIN = 9_000  # 27 MB in five files, and one of tests; 30,000: 92 MB, three pieces a file


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

    def test_data_that_only_the_coordinator_has(self):
        self.start(extra=("--data-root", self.cluster.data_root))
        running = self.cluster
        running.start_worker("a", data_root=self.empty)
        running.start_worker("b", data_root=self.empty)
        self.check_done(running.run_job(spec(workers={"min": 2})))
        for worker in "ab":
            self.check_copy(worker)
            self.assertIn("as the coordinator at", running.workers[worker].log())
        running.stop()

    def test_a_worker_that_is_killed_while_it_fetches_goes_on_where_it_was(self):
        self.start(train=30_000)
        running = self.cluster
        running.start_worker("a")
        token = running.folder / "killed"
        running.environment = {"RINGMASTER_FAILPOINTS": f"data_piece@5=kill!{token}"}
        killed = running.start_worker("b", data_root=self.empty)
        job = running.submit(spec(workers={"min": 2}))
        self.assertEqual(killed.wait(60), -9)
        whole, [partial] = self.entries("b")
        self.assertEqual(whole, [])
        self.assertTrue(partial.endswith(".partial"), partial)
        running.start_worker("b", data_root=self.empty)
        self.check_done(running.wait(job))
        self.check_copy("b")
        log = running.workers["b"].log()
        [there] = re.findall(r"(\d+) bytes are there already", log)
        self.assertGreaterEqual(int(there), 5 * PIECE)
        self.assertEqual(fetched(log), [size(self.data) - int(there)])
        running.stop()

    def test_when_a_source_is_gone_another_one_goes_on(self):
        self.start(train=30_000, extra=("--data-root", self.cluster.data_root))
        running = self.cluster
        running.start_worker("a")
        # A moment for each piece, so that the source is gone before all of them came.
        running.environment = {"RINGMASTER_FAILPOINTS": "data_piece=delay:1000"}
        running.start_worker("b", data_root=self.empty)
        job = running.submit(spec())
        running.watch_until(job, lambda status: any("fetching data: " in (worker["phase"] or "") and "MiB/s from" in
                                                    worker["phase"] for worker in status["workers"]), "it fetches")
        running.workers.pop("a").kill()
        self.check_done(running.wait(job))
        self.check_copy("b")
        self.assertRegex(running.workers["b"].log(), r"came from worker a at .*\n.*came from the coordinator")
        running.stop()

    def test_a_worker_that_comes_later_fetches_beside_the_ring_also_after_a_restart(self):
        self.start(train=30_000)
        running = self.cluster
        [gate] = running.gates("", milliseconds=100, hold="100-124")  # of 125 steps: it joins before the last
        running.environment["RINGMASTER_FAILPOINTS"] += ";data_piece=delay:1000"
        running.start_worker("a")
        job = running.submit(spec())
        running.watch_until(job, lambda status: status["step"] > 2, "the job runs")
        # Its members still know the ticket of the job's data.
        running.coordinator.kill()
        running.start_coordinator()
        running.start_worker("b", data_root=self.empty)
        seen = cluster.wait_until(lambda: running.attached()["b"]["data_fetch"], "it fetches")
        self.assertIn("worker a at ", seen["source"])
        self.assertIn("FETCHES DATA", running.ringctl("workers").stdout)
        joined = running.watch_until(job, lambda status: [worker for worker in status["workers"] if
                                                          worker["name"] == "b" and worker["shards"]], "it joined")
        self.assertLess(joined["step"], joined["total_steps"])
        gate.open()
        self.check_done(running.wait(job))
        self.check_copy("b")
        self.assertIsNone(running.attached()["b"]["data_fetch"])
        running.stop()

    def test_what_cannot_be_fetched_is_said_and_nothing_of_it_is_used(self):
        self.start()
        running = self.cluster
        running.start_worker("b", data_root=self.empty, extra=("--data-cache-bytes", "1MiB"))
        nobody = running.wait(running.submit(spec()), 30)
        self.assertEqual(nobody["state"], "FAILED")
        for words in ("dataset cifar10 does not exist under", str(self.empty), "the coordinator at ",
                      "it has no --data-root", "copy it there"):
            self.assertIn(words, nobody["reason"])
        running.start_worker("a")
        full = running.wait(running.submit(spec(workers={"min": 2})))
        self.assertEqual(full["state"], "FAILED")
        for words in ("it needs 26.4 MiB in --data-cache", "--data-cache-bytes allows 1.0 MiB"):
            self.assertIn(words, full["reason"])
        self.assertEqual(self.entries("b"), ([], []))
        # Alone it is not kept from working.
        running.workers.pop("b").stop()
        self.check_done(running.run_job(spec()))
        running.stop()

    def test_a_cancelled_job_ends_a_fetch_and_keeps_what_came(self):
        self.start(train=30_000)
        running = self.cluster
        running.start_worker("a")
        running.environment = {"RINGMASTER_FAILPOINTS": "data_piece@3-9=delay:1500"}
        running.start_worker("b", data_root=self.empty)
        job = running.submit(spec(workers={"min": 2}))
        cluster.wait_until(lambda: (running.attached()["b"]["data_fetch"] or {}).get("bytes", 0) >= 3 * PIECE, "some came")
        running.ringctl("cancel", job)
        running.wait_free("a", "b", timeout=10)
        self.assertEqual(fetched(running.workers["b"].log()), [])
        self.check_done(running.run_job(spec(workers={"min": 2})))
        there = [int(count) for count in re.findall(r"(\d+) bytes are there already", running.workers["b"].log())]
        self.assertEqual(there[0], 0)
        self.assertGreaterEqual(there[1], 3 * PIECE)
        running.stop()

    def test_data_at_an_address_are_those_of_a_folder(self):
        self.start(train=2_000)
        running, local = self.cluster, ("--data-http", "--data-private-addresses")
        running.ringctl("dataset", "manifest", self.data)
        web, store = ObjectServer(), ObjectServer(keys={"AKID": ("secret", None)})
        for server, prefix in ((web, "/d/"), (store, "/bucket/some data/")):
            self.addCleanup(server.stop)
            server.files.update({prefix + file.name: file.read_bytes() for file in self.data.iterdir()})
        (self.data / "ringmaster-data.json").unlink()
        store.files.pop("/bucket/some data/ringmaster-data.json")  # the store lists them
        running.environment = {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        paths = (web.url + "/d/", "s3://bucket/some data/")
        for path, names in zip(paths, ("ab", "cd")):
            for name in names:
                running.start_worker(name, data_root=self.empty, extra=(*local, "--s3-endpoint", store.url))
            self.check_done(running.run_job(spec(data={"path": path}, workers={"min": 2, "max": 2})))
            for name in names:
                self.check_copy(name)
                running.workers.pop(name).stop()
        # What is refused says so.
        running.environment["AWS_SECRET_ACCESS_KEY"] = "guessed"
        running.start_worker("e", data_root=self.empty, extra=(*local, "--s3-endpoint", store.url))
        failed = running.wait(running.submit(spec(data={"path": "s3://bucket/some data/"})))
        self.assertEqual(failed["state"], "FAILED")
        for words in ("403", "bucket"):
            self.assertIn(words, failed["reason"])
        self.assertNotIn("guessed", failed["reason"] + running.workers["e"].log())
        running.workers.pop("e").stop()
        running.start_worker("f", data_root=self.empty)
        for path, words in ((paths[0], "--data-http"), (web.url.replace("http", "ftp") + "/d/", "ftp")):
            done = running.ringctl("submit", running.write_job(spec(data={"path": path})), "-o", "json", expect=None)
            said = running.wait(json.loads(done.stdout)["job_id"])["reason"] if done.returncode == 0 else done.stderr
            self.assertIn(words, said)
        running.stop()


if __name__ == "__main__":
    cluster.main(at_once=2)
