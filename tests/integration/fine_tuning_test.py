"""A job that begins with another one's weights, and keeps some of them: the same bytes on every cluster,
and quick to learn what is like what it knows."""
import json
import pathlib
import re
import struct

import cluster
import exactness

ALEXNET = {"name": "alexnet", "batch_norm": True}
FREEZE = ["conv1/*", "bn1/*", "conv2/*", "bn2/*"]
# A layer of every kind that has a kernel, and normalizations of images and of a flattened one.
SMALL = {"optimizer": {"adam": {"learning_rate": 0.001}, "ema": {}}, "model": {"layers": [
    {"conv2d": {"name": "stem", "filters": 4, "bias": False}}, {"batch_norm": {"name": "bn"}}, "relu",
    {"depthwise_conv2d": {"name": "each", "multiplier": 2, "stride": 2}},
    {"separable_conv2d": {"name": "apart", "filters": 6, "stride": 2}}, {"max_pool": 2}, "flatten",
    {"batch_norm": {"name": "flat"}}, {"dense": {"name": "hidden", "units": 12}}, {"dense": {"name": "fc", "units": 10}}]}}


def tensors(path):
    """Name -> bytes of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    return {name: data[8 + length + tensor["data_offsets"][0]:8 + length + tensor["data_offsets"][1]]
            for name, tensor in header.items() if name != "__metadata__"}


def keep_classes(folder, first, count):
    """Leaves images of `count` classes from `first` on, which are called 0 to count - 1 then."""
    for path in sorted(pathlib.Path(folder).glob("*.bin")):
        data = path.read_bytes()
        records = [data[at:at + 3073] for at in range(0, len(data), 3073)]
        path.write_bytes(b"".join(bytes([record[0] - first]) + record[1:] for record in records
                                  if first <= record[0] < first + count))


class FineTuningTest(exactness.ExactnessCase):
    def source(self, **changes):
        return cluster.job_spec(**{"name": "source", "model": ALEXNET, "epochs": None, "steps": 3,
                                   "checkpoint": {"every_steps": 1}, **changes})

    def tuned(self, init, **changes):
        return cluster.job_spec(**{"name": "tuned", "model": ALEXNET, "epochs": 2, "seed": 7, "init": init,
                                   "freeze": FREEZE, "checkpoint": {"every_steps": 2}, **changes})

    def run_on_cluster(self, workers, killed=None):
        """The fine-tuned job's status, on these workers, of which one may die on the way."""
        running = self.cluster = cluster.Cluster()
        self.addCleanup(lambda: running.destroy(self._failed()))
        if killed:
            running.environment = {"RINGMASTER_FAILPOINTS": "boundary=delay:60"}
        running.make_data()
        running.start_coordinator()
        for name in workers:
            running.start_worker(name)
        source = running.run_job(self.source())
        running.ringctl("checkpoint", "get", source["job_id"], running.folder / "source")
        job = running.submit(self.tuned({"job": source["job_id"], "fresh": ["fc*"]}, epochs=8))
        if killed:
            running.watch_until(job, lambda status: status["step"] > 3 and len(status["workers"]) == len(workers),
                                "some steps of all workers")
            running.workers[killed].kill()
        status = running.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
        self.assertEqual(status["regroup_count"] > 0, bool(killed))
        self.verify_checkpoint(running, status, running.folder / "tuned")
        self.check_frozen(running.folder / "source", running.folder / "tuned")
        running.stop()
        return status

    def check_frozen(self, before, after):
        """Of all tensors, those that are frozen and only those have the bytes of the source."""
        before, after = (tensors(folder / "model.safetensors") for folder in (before, after))
        self.assertEqual(set(before), set(after))
        for name in before:
            frozen = any(name.startswith(pattern[:-1]) for pattern in FREEZE)
            self.assertEqual(before[name] == after[name], frozen, name)

    def test_one_worker_three_and_two_that_are_left_give_the_same_bytes(self):
        one = self.run_on_cluster(["a"])
        three = self.run_on_cluster(["a", "b", "c"])
        left = self.run_on_cluster(["a", "b", "c"], killed="b")
        self.assertEqual(one["checkpoint"]["sha256"], three["checkpoint"]["sha256"])
        self.assertEqual(one["checkpoint"]["sha256"], left["checkpoint"]["sha256"])
        self.assertEqual(one["init"]["source"], f"the checkpoint of step 3 of {one['spec']['init']['job']}")
        self.assertEqual(one["init"]["fresh_names"], ["fc/kernel", "fc/bias"])
        self.assertEqual(one["init"]["matched"], len(one["init"]["matched_names"]))

    def test_a_file_is_the_same_source_as_the_job_that_wrote_it(self):
        with self.running() as running:
            source = running.run_job(self.source())
            running.ringctl("checkpoint", "get", source["job_id"], running.folder / "source")
            weights = running.data_root / "weights.safetensors"
            weights.write_bytes((running.folder / "source" / "model.safetensors").read_bytes())
            init = {"fresh": ["fc*"]}
            of_job = running.run_job(self.tuned({**init, "job": source["job_id"]}))
            of_file = running.run_job(self.tuned({**init, "file": "weights.safetensors"}))
            self.assertEqual(of_job["checkpoint"]["sha256"], of_file["checkpoint"]["sha256"])
            drawn = running.run_job(self.tuned(None))
            self.assertNotEqual(drawn["checkpoint"]["sha256"], of_file["checkpoint"]["sha256"])
            self.assertIsNone(drawn["init"])
            again = running.json("submit", "--like", of_file["job_id"])["job_id"]
            self.assertEqual(running.wait(again)["checkpoint"]["sha256"], of_file["checkpoint"]["sha256"])

    def test_weights_in_another_layout_are_the_same_weights(self):
        with self.running() as running:
            source = running.run_job(self.source(**SMALL))["job_id"]
            running.ringctl("checkpoint", "get", source, running.folder / "whole")
            begun = {}
            for layout in ("ringmaster", "keras", "pytorch"):
                folder = running.data_root / layout
                got = running.json("checkpoint", "get", source, folder, "--layout", layout)
                self.assertEqual(got["layout"], layout)
                names = {file["name"] for file in got["files"]}
                if layout != "ringmaster":
                    self.assertEqual(names, {"model.safetensors", "ema.safetensors"})
                self.assertEqual(names, {path.name for path in folder.iterdir()})
                for file in ("model", "ema"):
                    job = running.run_job(self.tuned(
                        {"file": f"{layout}/{file}.safetensors", "layout": layout}, **SMALL, epochs=1,
                        freeze=["stem/*", "bn/*", "each/*", "apart/*", "flat/*", "hidden/*", "fc/kernel"]))
                    running.ringctl("checkpoint", "get", job["job_id"], running.folder / f"{layout}-{file}")
                    begun[layout, file] = tensors(running.folder / f"{layout}-{file}" / "model.safetensors")
                    whole = tensors(running.folder / "whole" / f"{file}.safetensors")
                    self.assertEqual({name for name in whole if whole[name] != begun[layout, file][name]},
                                     {"fc/bias"})
                    self.assertEqual(begun[layout, file], begun["ringmaster", file])
            self.assertEqual(running.json("model", "summary", job["job_id"])["trainable_parameters"], 10)
            unknown = running.ringctl("checkpoint", "get", source, running.folder / "no", "--layout", "keros",
                                      expect=cluster.USAGE)
            self.assertIn("expected ringmaster, pytorch, keras, got keros; did you mean keras?", unknown.stderr)

    def test_a_resumed_job_does_not_need_what_it_began_with(self):
        """The undisturbed run's checkpoint, though the file is gone; and --like says what it lacks."""
        with self.running() as running:
            source = running.run_job(self.source(**SMALL))["job_id"]
            running.ringctl("checkpoint", "get", source, running.data_root / "weights")
            spec = self.tuned({"file": "weights/model.safetensors"}, **SMALL, epochs=8, freeze=["stem/*", "bn/*"])
            whole = running.run_job(spec)
            running.workers["a"].stop()
            running.environment = {"RINGMASTER_FAILPOINTS": "boundary=delay:200"}
            running.start_worker("b")
            job = running.submit(spec)
            running.watch_until(job, lambda status: status["checkpoint"], "a checkpoint")
            running.ringctl("cancel", job)
            self.assertEqual(running.wait(job)["state"], "CANCELLED")
            (running.data_root / "weights" / "model.safetensors").unlink()
            running.environment = {}
            running.workers["b"].stop()
            running.start_worker("c")
            resumed = running.wait(running.json("submit", "--resume", job)["job_id"])
            self.assertEqual(resumed["state"], "SUCCEEDED", resumed["reason"])
            self.assertGreater(resumed["resumed_from"]["step"], 0)
            self.assertEqual(resumed["checkpoint"]["sha256"], whole["checkpoint"]["sha256"])
            again = running.wait(running.json("submit", "--like", job)["job_id"])
            self.assertEqual(again["failure"]["word"], "INIT")
            self.assertIn("weights/model.safetensors", again["reason"])

    def test_what_cannot_be_had_is_named(self):
        with self.running() as running:
            refused = running.ringctl("submit", running.write_job(self.tuned({"job": "j9999"})),
                                      expect=cluster.USAGE)
            self.assertIn("init.job: there is no job j9999", refused.stderr)
            missing = running.wait(running.submit(self.tuned({"file": "none.safetensors"})))
            self.assertEqual(missing["failure"]["word"], "INIT")
            self.assertIn("none.safetensors", missing["reason"])
            source = running.run_job(self.source(model={"name": "alexnet", "batch_norm": False}))
            other = running.wait(running.submit(self.tuned({"job": source["job_id"]})))
            self.assertEqual(other["failure"]["word"], "INVALID_JOB")
            self.assertIn("bn1/gamma is not in the source", other["reason"])
            self.assertIn('fresh: ["bn1/*"', other["reason"])
            nothing = running.ringctl("submit", running.write_job(self.tuned(None, freeze=["stem/*"])),
                                      expect=cluster.USAGE)
            self.assertIn('freeze: "stem/*" matches nothing', nothing.stderr)


def first_accuracies(events, count):
    """The test accuracies of the first `count` evaluations."""
    found = (re.search(r"seen at step \d+: .*test accuracy ([\d.]+)", event["message"])
             for event in events if event["type"] == "Evaluated")
    return [float(match[1]) for match in found if match][:count]


class TransferTest(cluster.ClusterTest):
    def learn(self, running, **changes):
        """A job's status, and the mean of its test accuracies after 5, 10, ... 25 steps."""
        job = {"model": {"name": "resnet18"}, "batch": 32, "shards": 4, "seed": 3, "epochs": 5,
               "augment": [{"per_image_standardization": {}}], **changes}
        status = running.run_job(cluster.job_spec(**job), timeout=600)
        accuracies = first_accuracies(running.json("events", status["job_id"])["events"], 5)
        self.assertEqual(len(accuracies), 5)
        return status, sum(accuracies) / 5

    def test_what_is_known_of_half_the_classes_helps_with_the_other_half(self):
        """Evaluated every five steps, with 160 images: too few to learn the classes quickly. A single evaluation goes
        up and down, and with it the step at which one is good enough: their mean does not."""
        with self.running(workers=[("a", 2)], path="low", train=2000, test=600) as running:
            running.make_data(path="high", train=2000, test=600)
            keep_classes(running.data_root / "low", 0, 5)
            keep_classes(running.data_root / "high", 5, 5)
            few = {"format": "cifar10", "path": "high", "take": 160, "take_test": 200}
            source, _ = self.learn(running, data={"format": "cifar10", "path": "low", "take": 640, "take_test": 100})
            _, nothing = self.learn(running, data=few)
            tuned, transferred = self.learn(
                running, data=few, freeze=["stem/*", "stage1/*"],
                optimizer={"adam": {"learning_rate": 0.0003}}, init={"job": source["job_id"], "fresh": ["fc/*"]})
            self.assertEqual(tuned["init"]["fresh_names"], ["fc/kernel", "fc/bias"])
            self.assertGreater(transferred, nothing + 0.1)


if __name__ == "__main__":
    cluster.main()
