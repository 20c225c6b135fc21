"""Jobs that end before their length, and jobs that evaluate or predict: the same on every cluster, whatever dies."""
import csv
import json
import statistics
import struct

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
        [gate] = self.cluster.gates(0)
        gate.open()
        with self.running([("a", 1), ("b", 1)], test=4000) as running:
            status = running.run_job(cluster.job_spec())
            gate.close()
            job = running.json("evaluate", status["job_id"], "--detach")["job_id"]
            running.watch_until(job, lambda now: now["state"] == "RUNNING", "it runs")
            running.workers["b"].kill()
            gate.open()
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
            done = running.ringctl("evaluate", running.json("evaluate", job)["job_id"], expect=None)
            self.assertIn(f"has no weights of its own; name {job}, whose weights it has", done.stderr)


def tensors_of(path):
    """Name -> (shape, floats) of a safetensors file of float32."""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    tensors = {}
    for name, entry in json.loads(content[8:8 + length]).items():
        assert entry["dtype"] == "F32", entry
        begin, end = entry["data_offsets"]
        data = content[8 + length + begin:8 + length + end]
        tensors[name] = (entry["shape"], struct.unpack(f"<{len(data) // 4}f", data))
    return tensors


def labels_of(path):
    content = path.read_bytes()
    return [content[at] for at in range(0, len(content), 3073)]


class PredictTest(exactness.ExactnessCase):
    def predict(self, running, job, name, *arguments):
        out = running.data_root.parent / name
        theirs = out.with_name(out.name + ".partial")  # somebody's, of that name
        theirs.mkdir(exist_ok=True)
        (theirs / "keep").touch()
        running.json("predict", job, "--out", out, *arguments)
        self.assertTrue((theirs / "keep").exists())
        self.assertEqual(list(out.parent.glob(f"{out.name}.partial-*")), [])
        return out

    def test_rows_stand_in_the_order_of_samples_and_are_what_was_evaluated(self):
        with self.running([("a", 2), ("b", 1)], train=480, test=61) as running:
            job = running.run_job(cluster.job_spec(epochs=3))["job_id"]
            held = running.json("evaluate", job)["metrics"]["test"]
            rows = list(csv.DictReader(self.predict(running, job, "rows.csv").read_text().splitlines()))
            labels = labels_of(running.data_root / "cifar10" / "test_batch.bin")
            self.assertEqual([row["sample"] for row in rows], [str(i) for i in range(61)])
            hits = sum(int(row["class"]) == label for row, label in zip(rows, labels))
            self.assertAlmostEqual(hits / 61, held["accuracy"])
            self.assertGreater(len({row["class"] for row in rows}), 1)
            shape, values = tensors_of(self.predict(running, job, "rows.safetensors"))["probabilities"]
            self.assertEqual(shape, [61, 10])
            for i, row in enumerate(rows):
                of_row = [float(row[f"probabilities_{k}"]) for k in range(10)]
                self.assertAlmostEqual(sum(of_row), 1, places=5)
                self.assertEqual(int(row["class"]), of_row.index(max(of_row)))
                self.assertEqual([struct.unpack("<f", struct.pack("<f", x))[0] for x in of_row], list(values[10 * i:10 * i + 10]))
            array = self.predict(running, job, "rows.npy").read_bytes()
            self.assertTrue(array.startswith(b"\x93NUMPY"))
            self.assertIn(b"'shape': (61, 10)", array[:128])
            self.assertEqual(array[-61 * 40:], struct.pack("<610f", *values))
            # A job of predictions is fetched again as it is.
            newest = running.json("ps")["jobs"][0]["job_id"]
            self.assertEqual(self.predict(running, newest, "again.npy").read_bytes(), array)

    def test_the_same_bytes_on_one_two_and_three_workers_and_through_a_kill(self):
        with self.running([("a", 1), ("b", 1), ("c", 1)], test=300) as running:
            job = running.run_job(cluster.job_spec())["job_id"]
            three = self.predict(running, job, "three.safetensors").read_bytes()
            running.workers["c"].stop()
            self.assertEqual(self.predict(running, job, "two.safetensors").read_bytes(), three)
            running.workers["b"].stop()
            self.assertEqual(self.predict(running, job, "one.safetensors").read_bytes(), three)
            # All are slow: a job that begins without one of them is not over before that one joins.
            running.workers["a"].stop()
            running.environment = {"RINGMASTER_FAILPOINTS": "boundary=delay:150"}
            for name in ("a", "b", "c"):
                running.start_worker(name)
            submitted = running.json("predict", job, "--detach")["job_id"]
            running.watch_until(submitted, lambda now: now["step"] >= 4 and len(now["workers"]) == 3, "it is in the middle")
            running.workers["b"].kill()
            self.assertEqual(self.predict(running, submitted, "killed.safetensors").read_bytes(), three)
            self.assertEqual(running.status(submitted)["total_steps"], 13)
            # Who joins late gets the rows that are there.
            submitted = running.json("predict", job, "--detach")["job_id"]
            running.watch_until(submitted, lambda now: now["step"] >= 3, "it is in the middle")
            running.start_worker("b")
            running.watch_until(submitted, lambda now: len(now["workers"]) == 3, "the third takes part")
            running.workers["a"].kill()
            self.assertEqual(self.predict(running, submitted, "joined.safetensors").read_bytes(), three)

    def test_layers_splits_and_data_without_targets(self):
        layers = ["flatten", {"dense": {"name": "features", "units": 24}}, "relu", {"dense": {"name": "head", "units": 10}}]
        with self.running([("a", 1), ("b", 1)]) as running:
            job = running.run_job(cluster.job_spec(model={"layers": layers},
                                                   validation={"split": 0.25}))["job_id"]
            held = tensors_of(self.predict(running, job, "held.safetensors", "--split", "validation"))
            self.assertEqual(held["probabilities"][0], [14, 10])
            inner = tensors_of(self.predict(running, job, "inner.safetensors", "--outputs", "features,head", "--split", "train"))
            self.assertEqual({name: shape for name, (shape, _) in inner.items()}, {"features": [56, 24], "head": [56, 10]})
            refused = running.ringctl("predict", job, "--out", "x.npy", "--outputs", "featurs", expect=None)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn('predict.outputs: the model has no layer "featurs"; did you mean "features"?',
                          refused.stdout + refused.stderr)
            refused = running.ringctl("predict", job, "--out", "x.txt", expect=None)
            self.assertIn("expected a name that ends in .safetensors, .npy or .csv", refused.stderr)


class FoldsTest(exactness.ExactnessCase):
    FOLDS = {"validation": {"folds": 5}, "batch": 12, "shards": 2}

    def folds_of(self, running, parent):
        return [running.status(fold["job_id"]) for fold in parent["folds"]]

    def test_five_folds_are_one_job_that_a_killed_coordinator_does_not_lose(self):
        with self.running([("a", 1), ("b", 1)]) as running:
            alone = running.run_job(cluster.job_spec(**{**self.FOLDS, "validation": {"fold": "2/5"}}))
            job = running.submit(cluster.job_spec(**self.FOLDS, workers={"min": 1, "max": 1}))
            running.watch_until(job, lambda now: any(fold["state"] == "SUCCEEDED" for fold in now["folds"]), "one fold is done")
            running.coordinator.kill()
            running.start_coordinator()
            status = checked(running.wait(job))
            folds = self.folds_of(running, status)
            self.assertEqual([fold["spec"]["validation"]["fold"] for fold in folds], [f"{i}/5" for i in range(1, 6)])
            self.assertEqual({fold["state"] for fold in folds}, {"SUCCEEDED"})
            self.assertEqual({fold["fold_of"] for fold in folds}, {job})
            # A fold is the job that one would have written for it.
            self.assertEqual(folds[1]["checkpoint"]["sha256"], alone["checkpoint"]["sha256"])
            self.assertEqual(len({fold["checkpoint"]["sha256"] for fold in folds}), 5)
            for split in ("validation", "test"):
                losses = [fold["metrics"][split]["loss"] for fold in folds]
                spread = status["spread"][split]["loss"]
                self.assertEqual(spread["count"], 5)
                self.assertAlmostEqual(spread["mean"], statistics.mean(losses), places=12)
                self.assertAlmostEqual(spread["deviation"], statistics.stdev(losses), places=12)
            self.assertEqual(status["step"], sum(fold["step"] for fold in folds))
            self.assertIn("+-", running.ringctl("status", job).stdout)
            done = running.ringctl("evaluate", job, expect=None)
            self.assertIn(f"is a cross-validation; name one of its folds, as {folds[0]['job_id']}", done.stderr)

    def test_folds_are_cancelled_and_fail_as_one(self):
        with self.running() as running:
            job = running.submit(cluster.job_spec(**{**self.FOLDS, "epochs": 4000}))
            running.watch_until(job, lambda now: now["state"] == "RUNNING" and now["step"] > 0, "it runs")
            refused = running.ringctl("submit", "--like", job, expect=None)
            self.assertIn("is a cross-validation: name one of its folds, j0002", refused.stderr)
            running.ringctl("cancel", job)
            status = running.wait(job)
            self.assertEqual(status["state"], "CANCELLED")
            self.assertEqual({fold["state"] for fold in self.folds_of(running, status)}, {"CANCELLED"})
            failed = running.wait(running.submit(cluster.job_spec(**{**self.FOLDS, "data": {"path": "nowhere"}})))
            self.assertEqual(failed["state"], "FAILED")
            self.assertIn("0 of 5 folds succeeded: fold 1", failed["reason"])


if __name__ == "__main__":
    cluster.main()
