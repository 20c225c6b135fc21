"""The promise: the same job gives the same checkpoint, byte for byte, on every cluster."""
import hashlib
import json
import pathlib

import cluster

CLUSTERS = {
    "1x4": [("a", 4)],
    "2x2": [("a", 2), ("b", 2)],
    "2+1+1": [("a", 2), ("b", 1), ("c", 1)],
    "4x1": [("a", 1), ("b", 1), ("c", 1), ("d", 1)],
}


def spec(workers, **changes):
    """Augmentation, dropout, batch normalization, and a last batch of 8 after two of 24."""
    return cluster.job_spec(
        model={"name": "alexnet", "batch_norm": True, "dropout": 0.2},
        augment=[{"random_crop": {"padding": 4}}, {"random_flip": {}},
                 {"per_image_standardization": {}}],
        checkpoint={"every_steps": 4, "keep": 2},
        workers={"min": workers, "max": workers}, **changes)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class ExactnessTest(cluster.ClusterTest):
    def verify_checkpoint(self, running, status, folder):
        """Fetches it and recomputes every SHA-256; returns the bytes of all files."""
        running.ringctl("checkpoint", "get", status["job_id"], folder)
        self.assertEqual(sha256(folder / "manifest.json"), status["checkpoint"]["sha256"])
        manifest = json.loads((folder / "manifest.json").read_text())
        for entry in manifest["files"]:
            self.assertEqual(sha256(folder / entry["name"]), entry["sha256"])
            self.assertEqual((folder / entry["name"]).stat().st_size, entry["bytes"])
        self.assertEqual({entry["name"] for entry in manifest["files"]} | {"manifest.json"},
                         {path.name for path in folder.iterdir()})
        self.assertEqual(sha256(pathlib.Path(status["checkpoint"]["path"]) / "manifest.json"),
                         status["checkpoint"]["sha256"])
        return {path.name: sha256(path) for path in folder.iterdir()}

    def check_work(self, status, workers):
        """Every worker had shards, all eight once, and sent bytes where there is a ring."""
        self.assertEqual({worker["name"] for worker in status["workers"]},
                         {name for name, _ in workers})
        shards = [shard for worker in status["workers"] for shard in worker["shards"]]
        self.assertEqual(shards, list(range(8)))
        for worker in status["workers"]:
            self.assertTrue(worker["shards"], worker)
            self.assertEqual(worker["ring_bytes"] > 0, len(workers) > 1, worker)

    def run_on(self, workers, jobs):
        """Starts the cluster, runs `jobs` (label -> spec) on it, and returns label -> status."""
        running = cluster.Cluster()
        statuses = {}
        failed = True
        try:
            running.make_data()
            running.start_coordinator()
            for worker, cores in workers:
                running.start_worker(worker, cores)
            for label, job in jobs.items():
                status = running.run_job(job)
                self.check_work(status, workers)
                status["files"] = self.verify_checkpoint(running, status,
                                                         running.folder / f"fetched-{label}")
                statuses[label] = status
            running.stop()
            failed = False
        finally:
            running.destroy(failed)
        return statuses

    def test_one_job_has_one_checkpoint_on_every_cluster(self):
        results = {}
        for name, workers in CLUSTERS.items():
            count = len(workers)
            jobs = {
                "float32": spec(count, precision={"policy": "float32"}),
                "mixed_bfloat16": spec(count, precision={"policy": "mixed_bfloat16"}),
                "plain": spec(count, reduction="float32"),
            }
            if name == "1x4":
                jobs["other seed"] = spec(count, seed=2)
            results[name] = self.run_on(workers, jobs)

        def shas(label):
            return {name: statuses[label]["checkpoint"]["sha256"] for name, statuses in results.items()}

        for label in ("float32", "mixed_bfloat16"):
            self.assertEqual(len(set(shas(label).values())), 1, f"{label} differs: {shas(label)}")
            files = [statuses[label]["files"] for statuses in results.values()]
            self.assertTrue(all(other == files[0] for other in files), files)
            quality = {(statuses[label]["loss"], statuses[label]["test_accuracy"])
                       for statuses in results.values()}
            self.assertEqual(len(quality), 1, quality)
        one = results["1x4"]
        self.assertNotEqual(one["other seed"]["checkpoint"]["sha256"],
                            one["float32"]["checkpoint"]["sha256"])
        self.assertNotEqual(one["mixed_bfloat16"]["checkpoint"]["sha256"],
                            one["float32"]["checkpoint"]["sha256"])
        # The negative control: a plain float32 ring does depend on the cluster.
        self.assertGreater(len(set(shas("plain").values())), 1, "the plain ring did not differ")


if __name__ == "__main__":
    cluster.main()
