"""Folders of images of any size: one checkpoint on every cluster, whatever is decoded where and when."""
import csv
import pathlib
import shutil

import cluster
import exactness
import tfrecord_writer

DISTORT = [{"random_resized_crop": {"size": 32, "scale": [0.3, 1]}}, {"random_flip": {}},
           {"random_brightness": {"max_delta": 20}}, {"normalize": "torch"}]


def make_images(running, train=56, test=20, path="images"):
    running.ringctl("dataset", "make", "image_folder", running.data_root / path, "--train", train, "--test", test)


def turn_image(path, orientation):
    """Writes an EXIF orientation behind the begin of a JPEG file."""
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0" + bytes([0x12, 1, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0, 0, 0, 0, 0])
    file = path.read_bytes()
    path.write_bytes(file[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + file[2:])


def spec(least=1, most=None, **changes):
    return cluster.job_spec(**{
        "model": {"name": "resnet20"}, "data": {"path": "images"}, "augment": DISTORT, "batch": 16, "epochs": 2,
        "checkpoint": {"every_steps": 4, "keep": 2}, "workers": {"min": least, "max": most or least}, **changes})


def model_of(status):
    return exactness.sha256(pathlib.Path(status["checkpoint"]["path"]) / "model.safetensors")


class ImagesTest(exactness.ExactnessCase):
    def test_images_of_any_size_have_one_checkpoint_on_every_cluster(self):
        results = [self.run_on(workers, {"images": spec(len(workers), validation={"split": 0.2})}, make_images)["images"]
                   for workers in ([("a", 1)], [("a", 2), ("b", 1), ("c", 1)])]
        self.check_equal("images", results)
        self.assertEqual(set(results[0]["metrics"]), {"train", "validation", "test"})

    def test_images_that_are_turned_changed_and_mixed_have_one_checkpoint_too(self):
        distort = [{"random_resized_crop": {"size": 32}}, {"color_jitter": {
            "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}}, {"random_rotation": {"degrees": 20}},
            {"normalize": "torch"}, {"random_erasing": {}}, {"mixup": {"alpha": 0.4}}, {"cutmix": {"probability": 0.5}}]

        def make(running):
            make_images(running)
            for number, path in enumerate(sorted((running.data_root / "images").rglob("*.jpg"))):
                turn_image(path, 1 + number % 8)

        jobs = {"ignored": {}, "applied": {"data": {"path": "images", "exif": "apply"}}}
        results = [self.run_on(workers, {name: spec(len(workers), augment=distort, epochs=1, **changes)
                                         for name, changes in jobs.items()}, make)
                   for workers in ([("a", 1)], [("a", 2), ("b", 1)])]
        for name in jobs:
            self.check_equal(name, [result[name] for result in results])
        self.assertNotEqual(*(results[0][name]["metrics"]["test"] for name in jobs))

    def test_a_worker_that_is_killed_and_an_index_that_is_cached_change_nothing(self):
        with self.running([]) as running:
            [gate] = running.gates(12)
            for name in "abc":
                running.start_worker(name)
            make_images(running)
            first = running.run_job(spec(3))
            running.wait_free("a", "b", "c")
            job = running.submit(spec(1, 3, epochs=6))
            running.wait_ring(job, "a", "b", "c")
            running.workers["b"].kill()
            gate.open()
            killed = running.wait(job)
            self.assertIn(["b"], [regroup["lost"] for regroup in killed["regroups"]], killed)
            running.start_worker("b")
            again = running.run_job(spec(3))
            self.assertEqual(model_of(first), model_of(again))
            whole = running.run_job(spec(2, epochs=6))
            self.assertEqual(model_of(killed), model_of(whole))

    def test_input_threads_and_memory_change_nothing(self):
        models = set()
        with self.running([]) as running:
            make_images(running)
            for name, threads, memory in (("a", "0", "1GiB"), ("b", "1", "1"), ("c", "5", "64KiB")):
                worker = running.start_worker(name, extra=("--input-threads", threads, "--input-memory", memory))
                status = running.run_job(spec(1))
                self.assertEqual(status["workers"][0]["step_times"]["input_threads"], int(threads))
                models.add(model_of(status))
                worker.stop()
        self.assertEqual(len(models), 1)

    def test_a_packed_folder_trains(self):
        with self.running() as running:
            make_images(running)
            running.ringctl("dataset", "pack", running.data_root / "images", running.data_root / "packed", "--short", 36)
            status = running.run_job(spec(1, data={"path": "packed"}))
            self.assertEqual(status["step"], status["total_steps"])

    def test_a_folder_without_test_images_trains_with_a_validation_set(self):
        with self.running() as running:
            make_images(running)
            shutil.move(running.data_root / "images/train", running.data_root / "classes")
            status = running.wait(running.submit(spec(data={"path": "classes"}, validation={"split": 0.25})))
            self.assertEqual(status["state"], "SUCCEEDED", status)
            self.assertEqual(set(status["metrics"]), {"train", "validation"})

    def write_records(self, running, folder, shards=3, keys=("image/encoded", "image/class/label"), first=1):
        """The images of data_root/images, in the order of its samples, as another program writes them."""
        folder.mkdir()
        for split, name in (("train", "train"), ("val", "validation")):
            classes = sorted((running.data_root / "images" / split).iterdir())
            samples = [(path, label) for label, one in enumerate(classes) for path in sorted(one.iterdir())]
            for shard in range(shards):
                part = samples[len(samples) * shard // shards:len(samples) * (shard + 1) // shards]
                (folder / f"{name}-{shard:05}-of-{shards:05}").write_bytes(b"".join(
                    tfrecord_writer.record(tfrecord_writer.example(
                        {keys[0]: path.read_bytes(), keys[1]: label + first, "image/filename": path.name.encode(),
                         "image/height": 32, "weight": 0.5}, seed=path.name))
                    for path, label in part))

    def test_records_of_another_program_train_what_the_folder_of_images_trains(self):
        with self.running([("a", 1), ("b", 1)]) as running:
            make_images(running)
            self.write_records(running, running.data_root / "records")
            self.write_records(running, running.data_root / "renamed", 1, ("image", "label"), 0)
            keys = {"path": "renamed", "columns": {"image": "image", "label": "label"}}
            models = {model_of(running.run_job(spec(2, data=data)))
                      for data in ({"path": "images"}, {"path": "records"}, keys)}
            self.assertEqual(len(models), 1)
            refused = running.wait(running.submit(spec(2, data={"path": "renamed"})))
            self.assertEqual(refused["state"], "FAILED")
            for words in ("train-00000-of-00001: record 0 at byte 0: it has no feature \"image/encoded\"",
                          "image, image/filename, image/height, label, weight", "data.columns"):
                self.assertIn(words, refused["reason"])

    def test_a_flipped_bit_of_a_record_is_named(self):
        with self.running() as running:
            make_images(running)
            folder = running.data_root / "records"
            self.write_records(running, folder)
            running.ringctl("dataset", "verify", folder)
            file = folder / "train-00001-of-00003"
            whole = file.read_bytes()
            first = 16 + int.from_bytes(whole[:8], "little")
            for place, words in ((3, "record 0 at byte 0: its length has another CRC-32C"),
                                 (400, "record 0 at byte 0: its bytes have another CRC-32C"),
                                 (first + 2, f"record 1 at byte {first}: its length has another CRC-32C")):
                file.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1:])
                said = running.ringctl("dataset", "verify", folder, expect=1).stderr
                self.assertIn(f"{file.name}: {words}", said)
            file.write_bytes(whole[:-3])
            self.assertIn("the file has", running.ringctl("dataset", "verify", folder, expect=1).stderr)
            file.unlink()
            self.assertIn("2 of 3 shards are there; shard 00001 is missing",
                          running.ringctl("dataset", "verify", folder, expect=1).stderr)

    def test_evaluation_is_what_the_job_says_or_what_training_is_without_chance(self):
        with self.running() as running:
            make_images(running)
            middle = [{"resize": {"short": 37}}, {"center_crop": {"size": 32}}, {"normalize": "torch"}]
            said = running.run_job(spec(evaluate={"augment": middle}))
            unsaid = running.run_job(spec())
            other = running.run_job(spec(evaluate={"augment": [{"resize": {"size": 32}}, {"normalize": "torch"}]}))
            self.assertEqual(said["metrics"], unsaid["metrics"])
            self.assertEqual(model_of(said), model_of(other))
            self.assertNotEqual(said["metrics"]["test"], other["metrics"]["test"])

    def test_what_does_not_fit_is_said_before_anything_starts(self):
        with self.running() as running:
            make_images(running)
            for changes, words in (
                    ({"augment": []}, ("augment: the images are of different sizes", "random_resized_crop")),
                    ({"augment": [{"center_crop": {"size": 64}}]}, ("augment: 0: a window of 64 x 64", "resize first")),
                    ({"augment": [{"random_flip": {}}, {"resize": {"size": 32}}]}, ("front of the list",)),
                    ({"augment": [{"resize": {"size": 32}}, {"resize": {"size": 16}}]}, ("resized twice",)),
                    ({"evaluate": {"augment": [{"resize": {"size": 40}}]}}, ("evaluate.augment", "40 x 40", "32 x 32")),
                    ({"model": {"name": "mlp"}, "augment": [{"resize": {"size": 32}}, {
                        "normalize": {"mean": [0.5], "std": [0.5]}}]}, ("augment: 1.normalize", "1 channels"))):
                job = running.submit(spec(**changes))
                status = running.wait(job)
                self.assertEqual(status["state"], "FAILED", status)
                for word in words:
                    self.assertIn(word, status["reason"])
            for changes, words in (
                    ({"augment": [{"preset": "imagenet_trian"}]}, ("augment.0.preset", "did you mean imagenet_train?")),
                    ({"augment": [{"resize": {"size": 32, "short": 32}}]}, ("size or short",)),
                    ({"evaluate": {"augment": [{"random_flip": {}}]}}, ("evaluate.augment.0.random_flip", "never random"))):
                refused = running.ringctl("submit", running.write_job(spec(**changes)), expect=2).stderr
                for word in words:
                    self.assertIn(word, refused)


class TransferTest(exactness.ExactnessCase):
    def test_weights_that_know_some_images_learn_others_stop_in_time_are_evaluated_and_predict(self):
        with self.running([("a", 1), ("b", 1)]) as running:
            make_images(running, train=160, test=40)
            running.ringctl("dataset", "make", "image_folder", running.data_root / "others", "--train", 120, "--test", 60,
                            "--seed", 7)
            known = running.run_job(spec(2, epochs=4))
            tuned = running.wait(running.submit(spec(
                1, 2, data={"path": "others"}, init={"job": known["job_id"], "fresh": ["fc/*"]}, freeze=["stem/*", "stage1/*"],
                validation={"split": 0.25}, stop={"metric": "validation/loss", "patience": 2}, epochs=100,
                checkpoint={"best": "validation/accuracy"}, optimizer={"adam": {"learning_rate": 0.01}})), timeout=240)
            self.assertEqual((tuned["state"], tuned["stopped_early"]), ("SUCCEEDED", True), tuned)
            best = tuned["best_checkpoint"]
            held = running.json("evaluate", tuned["job_id"])["metrics"]
            self.assertEqual(held["validation"]["accuracy"], best["metric"])
            self.assertGreater(held["test"]["accuracy"], 0.2)  # of ten classes
            test = running.data_root / "others" / "val"
            names = sorted(path.name for path in test.iterdir())
            labels = [label for label, name in enumerate(names) for _ in (test / name).iterdir()]
            said = self.predict(running, tuned["job_id"], "test.csv")
            hits = sum(int(row["class"]) == label for row, label in zip(csv.DictReader(said.decode().splitlines()), labels))
            self.assertAlmostEqual(hits / len(labels), held["test"]["accuracy"])
            # The same images without the folders of their classes, and without all classes.
            bare = running.data_root / "bare"
            bare.mkdir()
            for number, path in enumerate(sorted(test.glob("*/*.jpg"), key=lambda path: (path.parent.name, path.name))):
                shutil.copy(path, bare / f"{number:04}.jpg")
            shutil.copytree(test / names[-1], running.data_root / "few" / "unknown")
            self.assertEqual(self.predict(running, tuned["job_id"], "bare.csv", "--data", "bare"), said)
            # In other shards kernels round otherwise.
            few = self.predict(running, tuned["job_id"], "few.csv", "--data", "few").splitlines()[1:]
            last = said.splitlines()[-labels.count(len(names) - 1):]
            for one, other in zip(few, last, strict=True):
                for x, y in zip(map(float, one.split(b",")[2:]), map(float, other.split(b",")[2:]), strict=True):
                    self.assertAlmostEqual(x, y, places=4)
            refused = running.wait(running.submit(spec(data={"path": "bare"})))
            self.assertEqual(refused["state"], "FAILED")
            self.assertIn("no column of the data is a target", refused["reason"])
            running.workers["b"].kill()
            self.assertEqual(running.json("evaluate", tuned["job_id"])["metrics"], held)
            self.assertEqual(self.predict(running, tuned["job_id"], "again.csv"), said)

    def predict(self, running, job, name, *arguments):
        out = running.data_root.parent / name
        running.json("predict", job, "--out", out, *arguments)
        return out.read_bytes()


if __name__ == "__main__":
    cluster.main()
