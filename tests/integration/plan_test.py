"""`ringctl plan` and what a worker does: its word is the worker's, for this host, a profile and a cluster."""
import json

import cluster

# A batch of mlp is small beside its state; this one is not.
WIDE = {"model": {"name": "mlp", "hidden": [16]}, "shards": 2}


class PlanTest(cluster.ClusterTest):
    def plan(self, spec, *options, expect=cluster.OK):
        done = self.cluster.ringctl("plan", self.cluster.write_job(spec), *options, "-o", "json", expect=expect)
        return json.loads(done.stdout)

    def test_a_job_that_does_not_fit_is_refused_with_the_plan_and_the_batch_that_it_names_trains(self):
        self.cluster.make_data(train=6000, test=16)
        self.cluster.start_coordinator()
        self.cluster.start_worker("a", memory="64MiB")

        def spec(batch):
            return cluster.job_spec(**WIDE, epochs=1, batch=batch, data={
                "format": "cifar10", "path": "cifar10", "take": batch, "take_test": 16})
        plan = self.plan(spec(100), "--cores", 1, "--memory-per-core", "64MiB", "--data-root", self.cluster.data_root)
        largest = plan["largest_batch"]
        self.assertTrue(100 < largest < 6000, plan)
        self.cluster.run_job(spec(largest))
        job = self.cluster.submit(spec(largest + 2))
        status = self.cluster.wait(job)
        self.assertEqual(status["failure"]["word"], "MEMORY")
        why = self.cluster.ringctl("why", job).stdout.splitlines()
        self.assertIn(" of 64.0 MiB memory per core (exceeded by ", why[0])
        self.assertTrue(any(line.startswith("largest batch   ") for line in why), why)
        self.assertTrue(any(line.startswith("a core's largest buffers while ") for line in why), why)

    def test_the_classes_of_a_cluster(self):
        self.cluster.make_data()
        self.cluster.start_coordinator()
        spec = cluster.job_spec(**WIDE)
        self.plan_fails(spec, "no worker is attached")
        self.cluster.start_worker("a", memory="1GiB")
        self.cluster.start_worker("b", memory="1GiB")
        self.cluster.start_worker("c", cores=2, memory="1MiB")
        plan = self.plan(spec, "--cluster")
        self.assertTrue(plan["fits"])
        classes = {entry["profile"]["cores"]: entry for entry in plan["classes"]}
        self.assertEqual(classes[1]["profile"]["workers"], 2)
        self.assertTrue(classes[1]["plan"]["fits"])
        self.assertEqual(classes[2]["profile"]["workers"], 1)
        self.assertFalse(classes[2]["plan"]["fits"])
        text = self.cluster.ringctl("plan", self.cluster.write_job(spec), "--cluster").stdout
        self.assertIn("2 workers of 1 core, 1.0 GiB a core: fits", text)
        self.assertIn("a worker of 2 cores, 1.0 MiB a core: does not fit", text)
        self.assertIn("speed, by cores, as no job measured these workers:", text)
        # What a job took on a and b tells whom the next one would be faster without.
        job = self.cluster.run_job(spec)["job_id"]
        took = {entry["name"]: entry["shard_ms"] for entry in self.cluster.status(job)["workers"]}
        self.assertEqual(set(took), {"a", "b"})
        speed = self.plan(spec, "--cluster")["speed"]
        self.assertEqual((speed["measured_in"], speed["same_model"]), ([job], True))
        [group] = speed["groups"]
        self.assertEqual((group["workers"], group["unmeasured"]), (["a", "b"], []))
        self.assertGreater(group["shards_ms"], 0)
        self.cluster.stop()

    def plan_fails(self, spec, words):
        done = self.cluster.ringctl("plan", self.cluster.write_job(spec), "--cluster", expect=cluster.OTHER)
        self.assertIn(words, done.stderr)

    def test_measured_steps_are_kept_in_a_profile(self):
        profile = self.cluster.folder / "host.json"
        spec = cluster.job_spec(**WIDE)
        measured = self.plan(spec, "--measure", "--profile", profile, "--cores", 1)
        self.assertGreater(measured["seconds_per_step"], 0)
        again = self.plan(spec, "--profile", profile)
        self.assertEqual(again["seconds_per_step"], measured["seconds_per_step"])
        # Nothing is known of another model, and little of shards of another size.
        other = self.plan({**spec, "model": {"name": "mlp", "hidden": [8]}}, "--profile", profile)
        self.assertIsNone(other["seconds_per_step"])
        self.assertIsNone(self.plan({**spec, "batch": 240}, "--profile", profile)["seconds_per_step"])
        self.assertGreater(self.plan({**spec, "batch": 48}, "--profile", profile)["seconds_per_step"], 0)
        entries = json.loads(profile.read_text())["measured"]
        self.assertEqual([entry["samples"] for entry in entries], [6, 12])


if __name__ == "__main__":
    cluster.main()
