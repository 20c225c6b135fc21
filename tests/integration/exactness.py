"""Runs the same jobs on clusters of other shapes, and fetches and verifies what each one made."""
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



def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class ExactnessCase(cluster.ClusterTest):
    host = None  # as of cluster.Cluster

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

    def run_on(self, workers, jobs, make_data=None):
        """Starts the cluster, runs `jobs` (label -> spec) on it, and returns label -> status."""
        running = cluster.Cluster(host=self.host)
        statuses = {}
        failed = True
        try:
            (make_data or cluster.Cluster.make_data)(running)
            running.start_coordinator()
            for worker, cores in workers:
                running.start_worker(worker, cores)
            if self.host:
                running.check_tls()
            for label, job in jobs.items():
                status = running.run_job(job)
                self.check_work(status, workers)
                self.assertIn(status["model_sha256"],
                              running.ringctl("model", "show", status["job_id"]).stdout)
                status["files"] = self.verify_checkpoint(running, status,
                                                         running.folder / f"fetched-{label}")
                statuses[label] = status
            running.stop()
            failed = False
        finally:
            running.destroy(failed)
        return statuses

    def run_everywhere(self, jobs_for, make_data=None):
        """`jobs_for(workers)`: label -> spec. Returns cluster -> label -> status, all labels alike."""
        results = {name: self.run_on(workers, jobs_for(len(workers)), make_data)
                   for name, workers in CLUSTERS.items()}
        for label in results["1x4"]:
            self.check_equal(label, [statuses[label] for statuses in results.values()])
        return results

    def check_equal(self, label, statuses):
        """Files and metrics of one job are the same on every cluster."""
        shas = [status["checkpoint"]["sha256"] for status in statuses]
        self.assertEqual(len(set(shas)), 1, f"{label} differs: {shas}")
        for status in statuses:
            self.assertEqual(status["files"], statuses[0]["files"])
            self.assertEqual(status["metrics"], statuses[0]["metrics"])
