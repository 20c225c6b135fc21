"""Formats as other programs write them: tar files by tarfile, CSV by csv, tokens by numpy; samples left out."""
import csv
import io
import json
import pathlib
import shutil
import tarfile

import numpy

import cluster
import exactness
import images_test

TABLE = {"path": "table", "targets": ["y_price"]}


def model_of(status):
    return exactness.sha256(pathlib.Path(status["checkpoint"]["path"]) / "model.safetensors")


def regression(**changes):
    return cluster.job_spec(**{
        "model": {"layers": [{"dense": {"units": 16, "activation": "relu"}}, {"dense": {"units": 1}}]},
        "data": TABLE, "epochs": 2, **changes})


def write_tar(path, samples, form, folder=""):
    """`samples`: (image file, label) each, as WebDataset's writers put them."""
    with tarfile.open(path, "w", format=form) as archive:
        for number, (image, label) in enumerate(samples):
            for suffix, content in (("jpg", image.read_bytes()), ("cls", str(label).encode()), ("json", b"{}")):
                member = tarfile.TarInfo(f"{folder}{number:06}.{suffix}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


class FormatsTest(exactness.ExactnessCase):
    def test_tar_files_of_another_program_train_what_the_folder_of_images_trains(self):
        with self.running([("a", 1), ("b", 1)]) as running:
            images_test.make_images(running)
            long = "a" * 70 + "/" + "b" * 70 + "/"
            for path, form, folder in (("pax", tarfile.PAX_FORMAT, long), ("gnu", tarfile.GNU_FORMAT, long),
                                       ("ustar", tarfile.USTAR_FORMAT, "a/")):
                for split in ("train", "val"):
                    classes = sorted((running.data_root / "images" / split).iterdir())
                    samples = [(file, label) for label, one in enumerate(classes) for file in sorted(one.iterdir())]
                    (running.data_root / path / split).mkdir(parents=True)
                    for shard in range(2):
                        write_tar(running.data_root / path / split / f"part-{shard:06}.tar",
                                  samples[len(samples) * shard // 2:len(samples) * (shard + 1) // 2], form, folder)
            models = {path: model_of(running.run_job(images_test.spec(2, data={"path": path})))
                      for path in ("images", "pax", "gnu", "ustar")}
            self.assertEqual(len(set(models.values())), 1, models)

    def test_a_csv_trains_what_the_same_numbers_in_an_archive_train(self):
        with self.running([("a", 1), ("b", 1)]) as running:
            places = numpy.random.default_rng(3)
            arrays = {}
            (running.data_root / "table").mkdir()
            (running.data_root / "arrays").mkdir()
            for split, count in (("train", 120), ("test", 40)):
                x = places.normal(size=(count, 5)).astype(numpy.float32)
                arrays[split] = {"x": x, "y_price": (x @ numpy.arange(1, 6, dtype=numpy.float32)).astype(numpy.float32)}
                numpy.savez(running.data_root / f"arrays/{split}.npz", **arrays[split])
                with (running.data_root / f"table/{split}.csv").open("w", newline="") as file:
                    writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
                    writer.writerow(["A (cm)", "b", "c", "d", "e", "y_price"])
                    for row, price in zip(x, arrays[split]["y_price"], strict=True):
                        writer.writerow([*map(float, row), float(price)])
            models = {path: model_of(running.run_job(regression(data={**TABLE, "path": path})))
                      for path in ("table", "arrays")}
            self.assertEqual(len(set(models.values())), 1, models)
            # What it was converted to is found again, and made again when it is damaged.
            rows = [*running.folder.glob("**/csv-*.rows")]
            self.assertEqual(len(rows), 4)
            rows[0].write_bytes(rows[0].read_bytes()[:-1])
            self.assertEqual(model_of(running.run_job(regression())), models["table"])
            bad = running.data_root / "table/test.csv"
            bad.write_text(bad.read_text() + "1,2,3,4,five,6\n")
            status = running.wait(running.submit(regression()))
            self.assertEqual(status["state"], "FAILED")
            self.assertIn('test.csv: line 42: column 5 (e): "five" is no number', status["reason"])

    def test_tokens_are_found_and_shown(self):
        with self.running() as running:
            for path, kind in (("raw", "<u2"), ("wide", "<u4"), ("array", "npy")):
                folder = running.data_root / path
                folder.mkdir()
                for split, count in (("train", 1000), ("val", 100)):
                    tokens = (numpy.arange(count) * 7919 % 50257).astype(numpy.uint32)
                    if kind == "npy":
                        numpy.save(folder / f"{split}.npy", tokens.astype(numpy.uint16))
                    else:
                        tokens.astype(kind).tofile(folder / f"{split}.bin")
            heads = []
            for path, more in (("raw", ()), ("wide", ("--set", "token_type=uint32")), ("array", ())):
                shown = running.ringctl("dataset", "head", running.data_root / path, "-n", 2, "--set", "window=8",
                                        *more, "-o", "json")
                heads.append(json.loads(shown.stdout)["samples"])
                self.assertIn("0 7919 15838", running.ringctl(
                    "dataset", "head", running.data_root / path, *more).stdout)
            expected = [int(value) for value in numpy.arange(17) * 7919 % 50257]
            self.assertEqual(heads[0], [{"tokens": expected[:8], "targets": expected[1:9]},
                                        {"tokens": expected[8:16], "targets": expected[9:17]}])
            self.assertEqual(heads[1:], heads[:1] * 2)
            said = running.ringctl("dataset", "verify", running.data_root / "wide", expect=1).stderr
            self.assertIn("train.bin: every second token is 0, read as uint16", said)
            said = running.ringctl("dataset", "verify", running.data_root / "raw", "--set", "token_type=uint32",
                                   expect=1).stderr
            self.assertIn("are they uint16 (data.token_type)?", said)

    def test_samples_that_cannot_be_decoded_are_left_out(self):
        with self.running([("a", 1), ("b", 1)]) as running:
            images_test.make_images(running)
            folder = running.data_root / "images"
            whole = running.data_root / "whole"
            cut, empty = sorted(folder.glob("train/*/*.jpg"))[3:5]
            shutil.copytree(folder, whole)
            for path in (cut, empty):
                (whole / path.relative_to(folder)).unlink()
            cut.write_bytes(cut.read_bytes()[:-200])
            empty.write_bytes(b"")
            said = running.ringctl("dataset", "verify", folder, "--decode", expect=1).stderr
            for path in (cut, empty):
                self.assertIn(str(path.relative_to(folder)), said)
            running.ringctl("dataset", "verify", folder, "--decode", "--quarantine", folder / "quarantine.txt")
            lines = (folder / "quarantine.txt").read_text().splitlines()
            self.assertEqual([line.split("\t")[:2] for line in lines],
                             [[str(path.relative_to(folder)), "0"] for path in (cut, empty)])
            running.ringctl("dataset", "verify", folder, "--decode")
            changes = {"validation": {"split": 0.2}}
            models = {path: model_of(running.run_job(images_test.spec(2, data={"path": path}, **changes)))
                      for path in ("images", "whole")}
            self.assertEqual(len(set(models.values())), 1, models)
            with (folder / "quarantine.txt").open("a") as file:
                file.write("train/none.jpg\t0\n")
            status = running.wait(running.submit(images_test.spec(2)))
            self.assertEqual(status["state"], "FAILED")
            self.assertIn("quarantine.txt lists a sample of train/none.jpg", status["reason"])


if __name__ == "__main__":
    cluster.main()
