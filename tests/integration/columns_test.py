"""Data of named columns: two inputs that a model joins, a target of numbers; npz and npy, as numpy writes them."""
import json
import pathlib
import zipfile

import numpy

import cluster
import exactness

JOINED = {"layers": [
    {"dense": {"name": "from_x", "inputs": ["x"], "units": 16, "activation": "relu"}},
    {"dense": {"name": "from_z", "inputs": ["z"], "units": 8, "activation": "relu"}},
    {"concat": {"name": "both", "inputs": ["from_x", "from_z"]}},
    {"dense": {"units": 16, "activation": "relu"}},
    {"dense": {"units": 1}},
]}
# One matrix for both layers, and a last one that is float32 under any policy.
SHARED = {"layers": [
    {"dense": {"name": "x16", "inputs": ["x"], "units": 16, "activation": {"leaky_relu": 0.1}}},
    {"dense": {"name": "z16", "inputs": ["z"], "units": 16, "activation": "tanh"}},
    {"dense": {"name": "first", "inputs": ["x16"], "units": 16}},
    {"dense": {"name": "second", "inputs": ["z16"], "units": 16, "kernel": "first/kernel"}},
    {"add": {"inputs": ["first", "second"]}},
    {"dense": {"units": 1, "float32": True}},
]}
PRICE = {"format": "npz", "path": "table", "inputs": ["x", "z"], "targets": ["y_price"]}


def spec(workers=1, **changes):
    return cluster.job_spec(**{
        "model": JOINED, "data": PRICE, "epochs": 3, "workers": {"min": workers, "max": workers}, **changes})


def make_table(running, form="npz", train=120, test=40):
    running.ringctl("dataset", "make", form, running.data_root / "table", "--train", train, "--test", test)


class ColumnsTest(exactness.ExactnessCase):
    def test_two_inputs_and_a_regression_have_one_checkpoint_on_every_cluster(self):
        results = [self.run_on(workers, {"price": spec(len(workers)), "shared": spec(
            len(workers), model=SHARED, precision={"policy": "mixed_bfloat16"})}, make_table)
                   for workers in ([("a", 1)], [("a", 1), ("b", 2), ("c", 1)])]
        for name in ("price", "shared"):
            self.check_equal(name, [result[name] for result in results])
            metrics = results[0][name]["metrics"]
            self.assertEqual(set(metrics["test"]), {"loss", "mae"})
            self.assertLess(metrics["train"]["loss"], 2)

    def test_a_model_is_shown_with_its_data_as_the_job_has_it(self):
        with self.running() as running:
            make_table(running)
            job = running.data_root / "job.yaml"
            frozen = spec(freeze=["from_x/*"])
            job.write_text(json.dumps(frozen))
            running.run_job(frozen)
            here = ("--data-root", running.data_root)
            for command in ("show", "summary"):
                shown = [json.loads(running.ringctl("model", command, *of, "-o", "json").stdout)
                         for of in (("last",), (job, *here))]
                for one in shown:
                    one.pop("name", None)
                self.assertEqual(*shown)
            self.assertEqual(shown[0]["total_parameters"] - shown[0]["trainable_parameters"], 8 * 16 + 16)
            written = running.data_root / "net.yaml"
            written.write_text(running.ringctl("model", "show", job, *here, "-o", "yaml").stdout)
            self.assertIn("inputs: [from_x, from_z]", written.read_text())
            no_file = running.ringctl("model", "show", "mlp", *here, expect=2).stderr
            self.assertIn("mlp is no job file", no_file)

    def test_it_learns_and_one_column_is_not_enough(self):
        with self.running() as running:
            make_table(running, train=4000, test=400)
            classes = {**PRICE, "targets": ["y"]}
            losses = {}
            for label, layers, data in (
                    ("price", JOINED["layers"], PRICE),
                    ("classes", [*JOINED["layers"][:-1], {"dense": {"units": 3}}], classes),
                    ("x alone", [{"dense": {"units": 16, "activation": "relu"}}, {"dense": {"units": 3}}],
                     {**classes, "inputs": ["x"]})):
                job = spec(model={"layers": layers}, data=data, batch=64, epochs=10,
                           optimizer={"adam": {"learning_rate": 0.01}})
                losses[label] = running.run_job(job)["metrics"]["test"]
            self.assertLess(losses["price"]["loss"], 0.1)
            self.assertGreater(losses["classes"]["accuracy"], 0.9)
            self.assertLess(losses["x alone"]["accuracy"], 0.85)

    def test_the_same_numbers_in_other_files_train_the_same_model(self):
        with self.running() as running:
            make_table(running)
            columns = {split: dict(numpy.load(running.data_root / f"table/{split}.npz"))
                       for split in ("train", "test")}
            for split, arrays in columns.items():
                self.assertEqual([*arrays], ["x", "z", "y", "y_price"])
                for folder in ("packed", "wide", f"files/{split}", "one"):
                    (running.data_root / folder).mkdir(parents=True, exist_ok=True)
                numpy.savez_compressed(running.data_root / f"packed/{split}.npz", **arrays)
                # float64 in the other byte order, of the same values; whole numbers of other types.
                numpy.savez(running.data_root / f"wide/{split}.npz", **{
                    name: array.astype(">f8" if array.dtype.kind == "f" else ">i8")
                    for name, array in arrays.items()}, note=numpy.array(["not looked at"]))
                for name, array in arrays.items():
                    numpy.save(running.data_root / f"files/{split}/{name}.npy", array)
            numpy.savez(running.data_root / "one/table.npz", **{
                f"{name}_{split}": array for split, arrays in columns.items() for name, array in arrays.items()})
            models = {}
            for path in ("table", "packed", "wide", "files", "one"):
                form = "npy" if path == "files" else "npz"
                status = running.run_job(spec(data={**PRICE, "path": path, "format": form}))
                models[path] = exactness.sha256(pathlib.Path(status["checkpoint"]["path"]) / "model.safetensors")
            self.assertEqual(len(set(models.values())), 1, models)

    def test_images_of_an_archive_are_those_of_cifar10(self):
        with self.running() as running:
            cifar = running.data_root / "cifar10"
            arrays = {}
            for split, files in (("train", sorted(cifar.glob("data_batch_*"))), ("test", [cifar / "test_batch.bin"])):
                records = numpy.frombuffer(b"".join(path.read_bytes() for path in files), numpy.uint8)
                records = records.reshape(-1, 3073)
                arrays[f"x_{split}"] = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy()
                # Ten classes, as cifar10 has whatever labels there are.
                arrays[f"y_{split}"] = records[:, :1]
            self.assertEqual(arrays["y_train"].max(), 9)
            (running.data_root / "keras").mkdir()
            numpy.savez_compressed(running.data_root / "keras/cifar10.npz", **arrays)
            shas = set()
            for data in ({"format": "cifar10", "path": "cifar10"}, {"path": "keras"}):
                status = running.run_job(cluster.job_spec(
                    data={**data, "resize": [16, 24]}, augment=[{"random_crop": {"padding": 4}}, {"random_flip": {}}],
                    validation={"split": 0.2}))
                shas.add(exactness.sha256(pathlib.Path(status["checkpoint"]["path"]) / "model.safetensors"))
            self.assertEqual(len(shas), 1, shas)

    def test_what_does_not_fit_is_said_when_the_job_starts(self):
        with self.running() as running:
            make_table(running)
            for changes, words in (
                    ({"model": {"name": "mlp"}}, ("model mlp reads images", "x (8) float32, z (4) float32")),
                    ({"augment": [{"random_flip": {}}]}, ("augment: the data have no images",)),
                    ({"data": {**PRICE, "targets": ["cost"]}}, ("data.targets", "cost", "x, z, y, y_price")),
                    ({"model": {"layers": [{"dense": {"inputs": ["w"], "units": 1}}]}},
                     ('reads "w"', "input columns are x, z")),
                    ({"model": {"layers": [{"dense": {"units": 2}}]}}, ("column y_price, which it is compared with",))):
                with self.subTest(changes=json.dumps(changes)):
                    status = running.wait(running.submit(spec(**changes)))
                    self.assertEqual(status["state"], "FAILED")
                    for word in words:
                        self.assertIn(word, status["reason"])
            path = running.data_root / "table/train.npz"
            with zipfile.ZipFile(path) as archive:
                members = {name: archive.read(name) for name in archive.namelist()}
            with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
                for name, content in members.items():
                    archive.writestr(name, content)
            status = running.wait(running.submit(spec()))
            self.assertIn("train.npz: member x.npy is compressed by method 12", status["reason"])


if __name__ == "__main__":
    cluster.main()
