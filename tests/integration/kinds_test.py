"""Jobs that end before their length, and jobs that evaluate: the same on every cluster, whatever dies."""
import cluster
import exactness

STOP = {"metric": "validation/loss", "patience": 2}
# Large steps on few images: what is held out soon gets worse.
RESTLESS = {"optimizer": {"adam": {"learning_rate": 0.01}}, "validation": {"split": 0.25}, "epochs": 200}


def stopping(least=1, most=None, **changes):
    return cluster.job_spec(**{**RESTLESS, "stop": STOP, "workers": {"min": least, "max": most or least}, **changes})


def checked(status):
    assert status["state"] == "SUCCEEDED", status
    return status


class EarlyStopTest(exactness.ExactnessCase):
    def test_a_job_stops_at_the_same_step_on_every_cluster(self):
        ends = []
        for workers in ([("a", 1)], [("a", 2), ("b", 1), ("c", 1)]):
            self.cluster = cluster.Cluster()
            self.addCleanup(lambda running=self.cluster: running.destroy(self._failed()))
            with self.running(workers) as running:
                status = checked(running.wait(running.submit(stopping(len(workers)))))
                self.assertTrue(status["stopped_early"])
                self.assertLess(status["step"], status["total_steps"])
                self.assertIn(f"stopped early after step {status['step']} of {status['total_steps']}: validation/loss was "
                              "not better in 2 evaluations", status["reason"])
                self.assertEqual(status["checkpoint"]["step"], status["step"])
                self.assertEqual(status["best_checkpoint"]["step"], status["step"] - 2 * status["steps_per_epoch"])
                ends.append((status["step"], status["checkpoint"]["sha256"], status["best_checkpoint"]["sha256"]))
                refused = running.ringctl("submit", "--resume", status["job_id"], expect=None)
                self.assertNotEqual(refused.returncode, 0)
                self.assertIn(f"stopped early after step {status['step']}: nothing is left to do", refused.stderr)
        self.assertEqual(ends[0], ends[1])

    def test_how_long_the_best_stood_survives_everyone(self):
        with self.running([("a", 1), ("b", 1)]) as running:
            whole = checked(running.wait(running.submit(stopping(2))))
            before = whole["step"] - whole["steps_per_epoch"]
            for name in ("a", "b"):
                running.workers[name].stop()
            running.environment = {"RINGMASTER_FAILPOINTS": "boundary=delay:200"}
            for name in ("a", "b"):
                running.start_worker(name)
            job = running.submit(stopping(2, checkpoint={"every_steps": 1}))
            running.watch_until(job, lambda now: (now["checkpoint"] or {"step": 0})["step"] >= before,
                                "the checkpoint one evaluation before the end")
            for name in ("a", "b"):
                running.workers[name].kill()
            running.coordinator.kill()
            running.environment = {}
            running.start_coordinator()
            for name in ("a", "b"):
                running.start_worker(name)
            again = checked(running.wait(job))
            self.assertEqual((again["step"], again["checkpoint"]["sha256"]), (whole["step"], whole["checkpoint"]["sha256"]))

    def test_evaluations_by_steps_count(self):
        with self.running() as running:
            status = checked(running.wait(running.submit(stopping(evaluate={"every_steps": 1}))))
            self.assertEqual(status["best_checkpoint"]["step"], status["step"] - 2)


class EvaluateTest(exactness.ExactnessCase):
    def evaluate(self, running, job, *arguments):
        return checked(running.json("evaluate", job, *arguments))["metrics"]

    def test_an_evaluation_gives_the_numbers_of_the_job_itself(self):
        with self.running([("a", 1), ("b", 1)]) as running:
            averaged = cluster.job_spec(validation={"split": 0.25}, checkpoint={"best": "test/loss"},
                                        optimizer={"adam": {"learning_rate": 0.01}, "ema": {}})
            for spec in (cluster.job_spec(validation={"split": 0.25}), averaged):
                status = running.run_job(spec)
                held = {split: status["metrics"][split] for split in ("validation", "test")}
                job, step = status["job_id"], status["step"]
                self.assertEqual(self.evaluate(running, job, "--step", step), held)
                self.assertEqual(self.evaluate(running, job, "--step", step, "--split", "test"), {"test": held["test"]})
                self.assertEqual(self.evaluate(running, job, "--step", step, "--split", "validation"),
                                 {"validation": held["validation"]})
            best = status["best_checkpoint"]
            self.assertEqual(self.evaluate(running, job, "--split", "test")["test"]["loss"], best["metric"])
            running.workers["b"].stop()
            self.assertEqual(self.evaluate(running, job, "--step", step), held)

    def test_a_worker_that_is_killed_changes_no_number(self):
        with self.running([("a", 1), ("b", 1)], test=4000) as running:
            status = running.run_job(cluster.job_spec())
            job = running.json("evaluate", status["job_id"], "--detach")["job_id"]
            running.watch_until(job, lambda now: now["state"] == "RUNNING", "it runs")
            running.workers["b"].kill()
            again = checked(running.wait(job))
            self.assertEqual(again["metrics"], {"test": status["metrics"]["test"]})

    def test_other_samples_and_other_data(self):
        with self.running() as running:
            running.make_data("other", train=40, test=24, seed=5)
            job = running.run_job(cluster.job_spec())["job_id"]
            own, train = self.evaluate(running, job), self.evaluate(running, job, "--split", "train")
            self.assertEqual((set(own), set(train)), ({"test"}, {"train"}))
            other = self.evaluate(running, job, "--data", "other")
            self.assertNotEqual(other["test"]["loss"], own["test"]["loss"])
            lines = dict(line.split() for line in running.ringctl("evaluate", job).stdout.splitlines())
            self.assertEqual({name: float(value) for name, value in lines.items()},
                             {f"test/{name}": value for name, value in own["test"].items()})

    def test_what_cannot_be_evaluated_is_named(self):
        with self.running() as running:
            job = running.run_job(cluster.job_spec())["job_id"]
            for arguments, words in ((("--split", "all"), "--split: expected train, validation or test, got all"),
                                     (("--split", "validation"), "there is no validation set"),
                                     (("--format", "mnist"), "give both"),
                                     (("--step", "1"), "has no checkpoint of step 1")):
                done = running.ringctl("evaluate", job, *arguments, expect=None)
                self.assertNotEqual(done.returncode, 0, arguments)
                self.assertIn(words, done.stdout + done.stderr)


if __name__ == "__main__":
    cluster.main()
