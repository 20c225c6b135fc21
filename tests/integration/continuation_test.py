"""A job that goes on with the whole state of one that ended has the bytes of one that was that long from the start."""
import json
import pathlib

import cluster
import exactness

MLP = {"model": {"name": "mlp", "hidden": [32], "dropout": 0.2}, "optimizer": {"adam": {"learning_rate": 0.001}, "ema": {}},
       "augment": [{"random_flip": {}}]}
# Loss scales that grow, statistics that move.
ALEXNET = {"model": {"name": "alexnet", "batch_norm": True, "dropout": 0.2},
           "optimizer": {"sgd": {"learning_rate": 0.01, "momentum": 0.9},
                         "schedule": {"steps": {"every": {"updates": 4}, "factor": 0.9}}},
           "precision": {"policy": "mixed_float16", "growth_steps": 3}}
KILLED = {"min": 1, "max": 3}


class ContinuationTest(exactness.ExactnessCase):
    def spec(self, steps, **changes):
        """No whole number of epochs, which have three steps."""
        return cluster.job_spec(**{"epochs": None, "steps": steps, **changes})

    def of(self, job):
        """Its status, with the SHA-256 of every file of its last checkpoint."""
        running = self.cluster
        status = running.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
        status["files"] = self.verify_checkpoint(running, status, running.new_path("fetched"))
        return status

    def run_spec(self, steps, **changes):
        return self.of(self.cluster.submit(self.spec(steps, **changes)))

    def check_same_states(self, a, b):
        """All but the manifest, which says what the job was."""
        self.assertNotEqual(a["files"]["manifest.json"], b["files"]["manifest.json"])
        for status in (a, b):
            status["states"] = {name: sha for name, sha in status["files"].items() if name != "manifest.json"}
        self.assertEqual(a["states"], b["states"])
        digests = [json.loads((pathlib.Path(status["checkpoint"]["path"]) / "manifest.json").read_text())["digest"]
                   for status in (a, b)]
        self.assertEqual(*digests)

    def check_continued_on_clusters(self, half, **job):
        """Of half the steps, then all, on one to three workers, and on three of which one is killed there."""
        armed = self.cluster.folder / "killed"
        armed.touch()  # the failpoint does nothing while that is there
        at = half + half // 2
        self.cluster.environment = {"RINGMASTER_FAILPOINTS": f"boundary@{at}=kill!{armed}"}
        with self.running(workers=[("a", 1), ("b", 1), ("c", 1)]) as running:
            whole = self.run_spec(2 * half, workers={"max": 1}, **job)
            source = self.run_spec(half, **job)
            shas = set()
            for workers in ({"min": 1, "max": 1}, {"min": 2, "max": 2}, {"min": 3, "max": 3}, KILLED):
                if workers is KILLED:
                    armed.unlink()
                status = self.run_spec(2 * half, workers=workers, **{**job, "continue": source["job_id"]})
                self.check_same_states(whole, status)
                self.assertEqual(status["continues"], {"job_id": source["job_id"], "step": half,
                                                       "sha256": source["checkpoint"]["sha256"]})
                self.assertEqual(status["resumed_from"]["step"], half)
                self.assertEqual(status["regroup_count"] > 0, workers is KILLED)
                shas.add(status["checkpoint"]["sha256"])
            self.assertEqual(len(shas), 1, "the same continued job differs")
            self.assertTrue(armed.exists())
            return source, status

    def test_twenty_steps_and_twenty_more_are_forty(self):
        source, status = self.check_continued_on_clusters(20, **MLP)
        self.assertEqual(status["step"], 40)
        self.assertEqual(source["step"], 20)

    def test_loss_scale_statistics_and_momentum_go_on(self):
        self.check_continued_on_clusters(7, **ALEXNET)

    def test_a_cancelled_job_goes_on_and_what_goes_on_goes_on_again(self):
        with self.running(workers=[("a", 1), ("b", 1)]) as running:
            job = running.submit(self.spec(100000, checkpoint={"every_steps": 5, "keep": 1000}, **MLP))
            running.watch_until(job, lambda status: status["checkpoint"] and status["checkpoint"]["step"] > 5,
                                "two checkpoints")
            running.ringctl("cancel", job)
            running.ringctl("wait", job, expect=cluster.JOB_CANCELLED)
            at = running.status(job)["checkpoint"]["step"]
            older = self.run_spec(at + 4, **MLP, **{"continue": {"job": job, "step": 5}})
            self.assertEqual(older["continues"]["step"], 5)
            newest = self.run_spec(at + 4, **MLP, **{"continue": job})
            self.assertEqual(newest["continues"]["step"], at)
            self.check_same_states(older, newest)
            again = self.run_spec(at + 9, **MLP, **{"continue": "last"})
            self.assertEqual(again["continues"]["job_id"], newest["job_id"])
            self.check_same_states(again, self.run_spec(at + 9, **MLP))
            like = self.of(running.json("submit", "--like", again["job_id"])["job_id"])
            self.assertEqual(like["files"], again["files"])

    def test_learning_rates_of_steps_to_come_are_free(self):
        with self.running() as running:
            source = self.run_spec(10, **MLP)
            go = {"continue": source["job_id"]}
            same = self.run_spec(20, **MLP, **go)
            slower = {**MLP, "optimizer": {"adam": {"learning_rate": 0.0001}, "ema": {}}}
            self.assertNotEqual(self.run_spec(20, **slower, **go)["files"]["model.safetensors"],
                                same["files"]["model.safetensors"])
            self.assertIn(f"continues:           step 10 of {source['job_id']}",
                          running.ringctl("status", same["job_id"]).stdout)
            self.assertIn(f"to go on from step 10 of {source['job_id']} to step 20",
                          running.json("events", same["job_id"])["events"][0]["message"])

    def check_refused(self, job, *words, steps=20, **changes):
        path = self.cluster.write_job(self.spec(steps, **{**MLP, **changes, "continue": job}))
        refused = self.cluster.ringctl("submit", path, expect=cluster.USAGE)
        for word in words:
            self.assertIn(word, refused.stderr)

    def test_what_cannot_be_continued_is_refused_before_anything_starts(self):
        with self.running() as running:
            source = self.run_spec(10, **MLP)["job_id"]
            waits = running.submit(self.spec(20, workers={"min": 2}, **MLP))
            self.check_refused("j9999", "continue: there is no job j9999")
            self.check_refused(waits, f"continue: job {waits} is QUEUED")
            running.ringctl("cancel", waits)
            self.check_refused(waits, f"continue: job {waits} has no checkpoint")
            self.check_refused({"job": source, "step": 3}, f"job {source} has no checkpoint of step 3")
            self.check_refused(source, "steps: expected more than the 10 steps", "got 10", steps=10)
            self.check_refused(source, f"batch: 16 here, 24 in {source}", batch=16)
            self.check_refused(source, f"seed: 2 here, 1 in {source}", seed=2)
            self.check_refused(source, f"optimizer: sgd here, adam in {source}", optimizer={"sgd": {}})
            self.check_refused(source, "init, continue: ", init={"job": source})
            self.assertEqual(len(running.json("ps")["jobs"]), 2)


if __name__ == "__main__":
    cluster.main()
