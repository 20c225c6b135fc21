"""ringctl dataset make, stat, head, verify and pack: no cluster, outputs and exit codes as documented."""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

RINGCTL = pathlib.Path(os.environ["RINGMASTER_BIN"]) / "ringctl"


class DatasetToolsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-datasets-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def dataset(self, *arguments, code=0):
        done = subprocess.run([RINGCTL, "dataset", *map(str, arguments)], capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done)
        return done

    def make(self, form, *options):
        folder = self.folder / form
        made = self.dataset("make", form, folder, "--train", 30, "--test", 10, *options)
        self.assertEqual(made.stdout, "")
        return folder

    def sums(self, folder):
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted(folder.iterdir())}

    def test_every_format_is_made_looked_at_and_verified(self):
        shapes = {"cifar10": (32, 3, 10), "cifar100": (32, 3, 100), "mnist": (28, 1, 10)}
        for form, (size, channels, classes) in shapes.items():
            with self.subTest(form=form):
                folder = self.make(form, *(["--gzip"] if form == "mnist" else []))
                stat = json.loads(self.dataset("stat", folder, "-o", "json").stdout)
                self.assertEqual(stat["format"], form)
                image, label = stat["columns"]
                self.assertEqual(image["shape"], [size, size, channels])
                self.assertEqual(label["limit"], classes)
                self.assertEqual((stat["train"]["samples"], stat["test"]["samples"]), (30, 10))
                self.assertEqual(sum(label["train"]["class_samples"]), 30)
                self.assertEqual(len(image["test"]["standard_deviation"]), channels)
                self.assertEqual({file["name"]: file["sha256"] for file in stat["files"]},
                                 self.sums(folder))
                self.assertIn(form, self.dataset("stat", folder).stdout)
                verified = self.dataset("verify", folder)
                self.assertEqual(verified.stderr, "")
                expected = "".join(f"{sha256}  {name}\n" for name, sha256 in self.sums(folder).items())
                self.assertEqual(verified.stdout, expected)

    def test_the_first_samples_of_every_format_are_shown(self):
        for form, columns in (("cifar10", ["image", "label"]), ("mnist", ["image", "label"]), ("npy", 4), ("npz", 4),
                              ("image_folder", ["image", "label"]), ("tfrecord", ["image", "label"]),
                              ("webdataset", ["image", "label"]), ("tokens", ["tokens", "targets"]),
                              ("csv", ["x", "y", "y_price"])):
            with self.subTest(form=form):
                folder = self.make(form)
                more = ["--set", "window=8"] if form == "tokens" else []
                stat = json.loads(self.dataset("stat", folder, *more, "-o", "json").stdout)
                names = [column["name"] for column in stat["columns"]]
                self.assertEqual((stat["format"], names if isinstance(columns, list) else len(names)), (form, columns))
                self.assertEqual(self.dataset("verify", folder).stderr, "")
                head = json.loads(self.dataset("head", folder, "-n", 3, *more, "-o", "json").stdout)
                self.assertEqual((head["format"], head["split"], len(head["samples"])), (form, "train", 3))
                self.assertEqual([*head["samples"][0]], names)
                words = self.dataset("head", folder, "-n", 1, "--test", *more).stdout
                self.assertEqual(len(words.splitlines()), 4)
                if form == "image_folder":
                    self.assertIn("(checkerboard)", words)
                    self.assertIn("JPEG of", words)
                    self.assertEqual(head["samples"][0]["label"], {"class": "checkerboard", "label": 0})

    def test_columns_are_made_looked_at_and_verified(self):
        for form, files in (("npy", 8), ("npz", 2)):
            with self.subTest(form=form):
                folder = self.make(form)
                stat = json.loads(self.dataset("stat", folder, "-o", "json").stdout)
                self.assertEqual(stat["format"], form)
                self.assertEqual([(column["name"], column["use"], column["type"], column["shape"])
                                  for column in stat["columns"]],
                                 [("x", "input", "float32", [8]), ("z", "input", "float32", [4]),
                                  ("y", "target", "int32", []), ("y_price", "target", "float32", [])])
                self.assertEqual(sum(stat["columns"][2]["train"]["class_samples"]), 30)
                self.assertEqual(len(stat["files"]), files)
                listed = self.folder / f"{form}.sums"
                listed.write_text(self.dataset("verify", folder).stdout)
                self.dataset("verify", folder, "--sha256", listed)
                file = folder / stat["files"][0]["name"]
                content = bytearray(file.read_bytes())
                content[-200 if form == "npz" else 3] ^= 1
                file.write_bytes(content)
                done = self.dataset("verify", folder, "--sha256", listed, code=1)
                self.assertIn(stat["files"][0]["name"], done.stderr)

    def test_all_problems_are_told(self):
        folder = self.make("cifar10")
        listed = self.folder / "SHA256SUMS"
        listed.write_text(self.dataset("verify", folder).stdout)
        self.dataset("verify", folder, "--sha256", listed)
        first, second = folder / "data_batch_1.bin", folder / "data_batch_2.bin"
        first.write_bytes(first.read_bytes()[:-1])
        second.write_bytes(b"\x63" + second.read_bytes()[1:])
        (folder / "test_batch.bin").unlink()
        done = self.dataset("verify", folder, "--sha256", listed, "-o", "json", code=1)
        report = json.loads(done.stdout)
        self.assertFalse(report["ok"])
        self.assertEqual(len(report["files"]), 5)
        self.assertIsNone(report["files"][0]["samples"])
        self.assertEqual(report["files"][2]["samples"], 6)
        lines = [line.removeprefix("ringctl: ") for line in done.stderr.splitlines()]
        self.assertEqual(lines, report["problems"])
        for problem, words in zip(report["problems"], (
                ("test_batch.bin",), ("data_batch_1.bin", "3072 bytes left over"), ("data_batch_2.bin", "99"),
                ("data_batch_1.bin", "SHA-256"), ("data_batch_2.bin", "SHA-256"),
                ("test_batch.bin", "not there")), strict=True):
            for word in words:
                self.assertIn(word, problem)
        self.assertIn("test_batch.bin", self.dataset("stat", folder, code=1).stderr)

    def packed(self, source, name, *options):
        folder = self.folder / name
        said = json.loads(self.dataset("pack", source, folder, "-o", "json", *options).stdout)
        self.assertEqual(said["path"], str(folder))
        stat = json.loads(self.dataset("stat", folder, "-o", "json").stdout)
        self.assertEqual((stat["format"], stat["train"]["samples"], stat["test"]["samples"]),
                         (said["format"], said["train"], said["test"]))
        return said, {str(path.relative_to(folder)): path.read_bytes()
                      for path in folder.rglob("*") if path.is_file()}

    def test_packed_data_do_not_depend_on_threads(self):
        folder = self.folder / "cifar10"
        self.dataset("make", "cifar10", folder, "--train", 2500, "--test", 10)
        for form, files, options in (("tfrecord", 4, ["--short", 16, "--jpeg", 80]),
                                     ("npy", 4, ["--short", 16, "--raw"])):
            with self.subTest(form=form):
                said, one = self.packed(folder, f"{form}-1", "--threads", 1, *options)
                self.assertEqual(said["format"], form)
                self.assertEqual(len(one), files)
                _, many = self.packed(folder, f"{form}-5", "--threads", 5, *options)
                self.assertEqual(one, many)

    def test_what_cannot_be_packed_leaves_nothing(self):
        done = self.dataset("pack", self.make("image_folder"), self.folder / "raw", "--raw", code=2)
        self.assertIn("leave out --raw", done.stderr)
        folder = self.make("mnist")
        self.assertIn("not empty", self.dataset("pack", folder, folder, code=1).stderr)
        self.dataset("pack", folder, self.folder / "x", "--raw", "--jpeg", 80, code=2)
        self.dataset("pack", folder, self.folder / "x", "--jpeg", 101, code=2)
        self.dataset("pack", self.folder / "gone", self.folder / "x", code=1)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["image_folder", "mnist"])

    def test_exit_codes_of_wrong_use(self):
        folder = self.make("mnist")
        self.assertIn("already holds", self.dataset("make", "mnist", folder, code=1).stderr)
        self.assertIn("cifar100", self.dataset("make", "png", folder, code=2).stderr)
        self.assertIn("--gzip", self.dataset("make", "cifar10", self.folder / "x", "--gzip", code=2).stderr)
        file = self.folder / "file"
        file.write_text("")
        self.dataset("make", "cifar10", file / "below", code=1)  # no coordinator is missing
        self.dataset("stat", self.folder / "gone", code=1)
        self.assertIn("--format", self.dataset("verify", folder, "--form", "x", code=2).stderr)
        self.dataset("verify", folder, "--format", "png", code=2)
        self.assertIn("line 1", self.dataset("verify", folder, "--sha256", folder / "t10k-labels-idx1-ubyte",
                                             code=2).stderr)
        self.dataset("verify", folder, "--sha256", self.folder / "gone", code=2)
        self.assertIn("--decode", self.dataset("verify", folder, "--quarantine", file, code=2).stderr)
        self.assertIn("no images to decode", self.dataset("verify", folder, "--decode", code=2).stderr)
        self.assertIn("windw", self.dataset("head", folder, "--set", "windw=3", code=2).stderr)


if __name__ == "__main__":
    unittest.main()
