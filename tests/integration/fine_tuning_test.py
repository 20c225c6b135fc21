"""A job that begins with another one's weights, and keeps some of them: the same bytes on every cluster,
and quick to learn what is like what it knows."""
import json
import pathlib
import struct
import unittest

import cluster
import exactness

ALEXNET = {"name": "alexnet", "batch_norm": True}
FREEZE = ["conv1/*", "bn1/*", "conv2/*", "bn2/*"]


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

    def run_two(self, workers, disturb=False):
        """Source and fine-tuned job on these workers; (status, folder of the checkpoint) of the latter."""
        for name in workers:
            self.cluster.start_worker(name)
        source = self.cluster.run_job(self.source())
        self.cluster.ringctl("checkpoint", "get", source["job_id"], self.cluster.folder / "source")
        job = self.cluster.submit(self.tuned({"job": source["job_id"], "fresh": ["fc*"]},
                                             workers={"min": len(workers)}))
        if disturb:
            self.cluster.watch_until(job, lambda status: status["step"] > 0, "a step")
            self.cluster.workers[workers[-1]].kill()
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
        folder = self.cluster.folder / "tuned"
        self.verify_checkpoint(self.cluster, status, folder)
        return status, folder

    def clusters(self, *gangs):
        results = []
        for workers in gangs:
            self.cluster = cluster.Cluster()
            self.addCleanup(lambda one=self.cluster: one.destroy(self._failed()))
            self.cluster.make_data()
            self.cluster.start_coordinator()
            results.append(self.run_two(workers))
            before, after = tensors(self.cluster.folder / "source" / "model.safetensors"), tensors(
                results[-1][1] / "model.safetensors")
            changed = {name for name in before if before[name] != after[name]}
            for name in before:
                frozen = any(name.startswith(pattern[:-1]) for pattern in FREEZE)
                self.assertEqual(name not in changed, frozen, name)
            self.cluster.stop()
        return results

    def test_one_worker_and_three_give_the_same_bytes(self):
        (one, _), (three, _) = self.clusters(["a"], ["a", "b", "c"])
        self.assertEqual(one["checkpoint"]["sha256"], three["checkpoint"]["sha256"])
        self.assertEqual(one["init"]["source"], f"the checkpoint of step 3 of {one['spec']['init']['job']}")
        self.assertEqual(one["init"]["matched"] + one["init"]["fresh"],
                         len(one["init"]["matched_names"]) + len(one["init"]["fresh_names"]))
        self.assertIn("fc/kernel", one["init"]["fresh_names"])

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


if __name__ == "__main__":
    cluster.main()
