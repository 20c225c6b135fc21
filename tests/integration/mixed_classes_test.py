"""Workers of different numerics classes share a job by its class map: the result belongs to the map, and to nothing
else. Classes that every host has are those of one and of two threads a core; where there is AVX-512, one without it
is a third."""
import json
import pathlib

import cluster

FIXED = {"min": 3, "max": 8, "mix": "fixed"}
FALLBACK = {"min": 1, "max": 8, "mix": "fallback"}
HELD = 4  # a step in the middle
# How workers of other classes are started.
TWO = {"threads": 2}
WITHOUT = {"prefix": ("env", "ONEDNN_MAX_CPU_ISA=AVX2")}


def job(workers, epochs=6, **changes):
    """With everything that has its own sums: normalization, dropout, clipping, averages, a step that is skipped as
    its gradients overflow, an early stop that does not come, and evaluations."""
    model = {"layers": [
        {"conv2d": {"filters": 4, "kernel": 3}}, "batch_norm", "relu", "flatten",
        {"dense": {"units": 32}}, "relu", {"dropout": {"rate": 0.25}}, {"dense": {"units": 10}}]}
    return cluster.job_spec(name="mixed", model=model, epochs=epochs, workers=workers, validation={"split": 0.2},
                            precision={"policy": "mixed_float16", "initial_loss_scale": 1 << 24},
                            optimizer={"adam": {"learning_rate": 0.001}, "clip": {"global_norm": 1.0}, "ema": {"decay": 0.9}},
                            stop={"metric": "validation/loss", "patience": 100}, **changes)


def has_avx512():
    return "avx512bw" in pathlib.Path("/proc/cpuinfo").read_text()


class MixedTest(cluster.ClusterTest):
    def setUp(self):
        super().setUp()
        self.cluster.make_data()
        self.cluster.start_coordinator()

    def one(self, name):
        self.cluster.start_worker(name)

    def two(self, name):
        self.cluster.start_worker(name, **TWO)

    def without(self, name):
        self.cluster.start_worker(name, **WITHOUT)

    def class_of(self, name):
        workers = {worker["name"]: worker for worker in self.cluster.json("workers")["workers"]}
        return workers[name]["class"]

    @staticmethod
    def map_of(status):
        [first] = status["class_maps"]
        return {each["class"]: each["shards"] for each in first["classes"]}

    def digest(self, spec):
        status = self.cluster.run_job(spec)
        return status["checkpoint"]["sha256"], status

    def test_the_map_is_the_result(self):
        running = self.cluster
        self.one("a")
        self.one("b")
        self.two("c")
        kinds = ["a", "c"]
        if has_avx512():
            self.without("d")
            kinds.append("d")
        names = [self.class_of(name) for name in kinds]
        self.assertEqual(len(set(names)), len(kinds), names)
        self.assertEqual(self.class_of("a"), self.class_of("b"))
        expected, status = self.digest(job({**FIXED, "min": len(kinds) + 1}))
        made = self.map_of(status)
        self.assertEqual(sum(made.values()), 8)
        self.assertLessEqual(set(made), set(names))
        for worker in status["workers"]:
            self.assertEqual(worker["class"], self.class_of(worker["name"]))
        # The same map on one worker of each class; and as it was asked for by name.
        running.workers["b"].kill()
        cluster.wait_until(lambda: "b" not in running.attached(), "b is gone")
        again, _ = self.digest(job({"min": 1, "mix": "fixed", "classes": made}))
        self.assertEqual(again, expected)
        # Another map is another result, and so is one class alone.
        other = {names[0]: 5, names[1]: 3} if made != {names[0]: 5, names[1]: 3} else {names[0]: 4, names[1]: 4}
        differs, status = self.digest(job({"min": 1, "mix": "fixed", "classes": other}))
        self.assertEqual(self.map_of(status), other)
        alone, status = self.digest(job({"min": 1, "max": 1}))
        self.assertEqual(len({expected, differs, alone}), 3)
        running.stop()

    def test_a_class_that_is_lost_is_waited_for(self):
        running = self.cluster
        self.one("a")
        self.one("b")
        self.two("before")
        classes = {self.class_of("a"): 6, self.class_of("before"): 2}
        spec = job({"min": 1, "mix": "fixed", "classes": classes})
        expected, status = self.digest(spec)
        self.assertGreater(status["skipped_steps"], 0)
        running.workers["before"].kill()
        cluster.wait_until(lambda: "before" not in running.attached(), "it is gone")
        [gate] = running.gates(HELD)
        self.two("c")
        identifier = running.submit(spec)
        running.wait_ring(identifier, "a", "b", "c")
        lost = self.class_of("c")
        running.workers["c"].kill()
        waits = running.watch_until(identifier, lambda status: status["state"] == "WAITING", "it waits for c's class")
        self.assertIn(f"of its class map {lost} has no worker", waits["reason"])
        why = running.ringctl("why", identifier).stdout
        self.assertIn(lost, why)
        running.start_worker("x", threads=3)  # of no class of the map
        gate.open()
        self.two("c2")
        status = running.wait(identifier)
        self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
        self.assertEqual(status["checkpoint"]["sha256"], expected)
        self.assertNotIn("x", {worker["name"] for worker in status["workers"]})
        running.stop()

    def test_others_take_over_where_they_may_and_it_is_repeated(self):
        running = self.cluster
        [gate] = running.gates(HELD)
        self.one("a")
        self.two("c")
        classes = {self.class_of("a"): 6, self.class_of("c"): 2}
        spec = job({**FALLBACK, "classes": classes})
        identifier = running.submit(spec)
        running.wait_ring(identifier, "a", "c")
        running.workers["c"].kill()
        fell = running.watch_until(identifier, lambda status: len(status["class_maps"]) == 2, "another map")
        gate.open()
        status = running.wait(identifier)
        self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
        later = status["class_maps"][1]
        self.assertEqual(later["classes"], [{"class": self.class_of("a"), "shards": 8}])
        self.assertEqual(later, fell["class_maps"][1])
        manifest = self.manifest(identifier)
        self.assertEqual([one["step"] for one in manifest["class_maps"]], [0, later["step"]])
        # Again: c is there all the time, and is let go where it was lost.
        self.two("c")
        again = running.json("submit", "--like", identifier)["job_id"]
        repeated = running.wait(again)
        self.assertEqual(repeated["state"], "SUCCEEDED", repeated["reason"])
        self.assertEqual(repeated["class_maps"], status["class_maps"])
        self.assertEqual(repeated["checkpoint"]["sha256"], status["checkpoint"]["sha256"])
        running.stop()

    def manifest(self, identifier):
        folder = self.cluster.new_path("download")
        self.cluster.ringctl("checkpoint", "get", identifier, folder)
        [path] = folder.rglob("manifest.json")
        return json.loads(path.read_text())


if __name__ == "__main__":
    cluster.main()
