"""Weights of PyTorch and Keras through examples/python/convert_weights.py: the job that begins with them computes
what PyTorch does."""
import collections
import importlib.util
import json
import pathlib
import struct
import subprocess
import sys
import unittest

import cluster

CONVERT = pathlib.Path(__file__).resolve().parents[2] / "examples/python/convert_weights.py"
MISSING = [name for name in ("numpy", "torch", "h5py") if importlib.util.find_spec(name) is None]
if not MISSING:
    import h5py
    import numpy as np
    import torch

EPSILON = 1e-5
LAYERS = [
    {"conv2d": {"name": "conv", "filters": 6, "bias": False}}, {"batch_norm": {"name": "bn", "epsilon": EPSILON}}, "relu",
    {"depthwise_conv2d": {"name": "depth", "multiplier": 2, "stride": 2, "padding": 1}},
    {"batch_norm": {"name": "bn2", "epsilon": EPSILON}}, "relu", {"max_pool": 4}, "flatten",
    {"batch_norm": {"name": "flat", "epsilon": EPSILON}},
    {"dense": {"name": "hidden", "units": 16, "activation": "relu"}}, {"dense": {"name": "out", "units": 10}}]
FROZEN = ["conv/*", "bn/*", "depth/*", "bn2/*", "flat/*", "hidden/*", "out/kernel"]


def tensors(path):
    """Name -> array of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    found = {}
    for name, tensor in header.items():
        begin, end = (8 + length + offset for offset in tensor["data_offsets"])
        found[name] = np.frombuffer(data[begin:end], dtype="<f4").reshape(tensor["shape"])
    return found


def make_net():
    """With weights, and statistics that moved."""
    torch.manual_seed(3)
    nn = torch.nn
    net = nn.Sequential(collections.OrderedDict(
        conv=nn.Conv2d(3, 6, 3, padding=1, bias=False), bn=nn.BatchNorm2d(6, EPSILON), relu=nn.ReLU(),
        depth=nn.Conv2d(6, 12, 3, stride=2, padding=1, groups=6), bn2=nn.BatchNorm2d(12, EPSILON), relu2=nn.ReLU(),
        pool=nn.MaxPool2d(4), flatten=nn.Flatten(), flat=nn.BatchNorm1d(192, EPSILON), hidden=nn.Linear(192, 16),
        relu3=nn.ReLU(), out=nn.Linear(16, 10)))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        for _ in range(20):
            net(torch.rand(32, 3, 32, 32))
    return net.eval()


def expected(net, folder):
    """Loss and accuracy on the test images."""
    records = np.frombuffer((folder / "test_batch.bin").read_bytes(), dtype=np.uint8).reshape(-1, 3073)
    images = torch.tensor(records[:, 1:].reshape(-1, 3, 32, 32)).float() / 255
    labels = torch.tensor(records[:, 0].astype(np.int64))
    with torch.no_grad():
        logits = net(images)
    accuracy = (logits.argmax(dim=1) == labels).double().mean()
    return float(torch.nn.functional.cross_entropy(logits.double(), labels)), float(accuracy)


def keras_weights(net):
    """LAYER -> [(role, array)] as Keras has them."""
    state = {name: value.numpy() for name, value in net.state_dict().items()}

    def image(rows):  # of C, H, W that was flattened, to H, W, C
        axes = (1, 2, 0, *range(3, rows.ndim + 2))
        return rows.reshape(12, 4, 4, *rows.shape[1:]).transpose(axes).reshape(rows.shape)

    def norm(layer, order=lambda vector: vector):
        roles = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean", "moving_variance": "running_var"}
        return [(role, order(state[f"{layer}.{theirs}"])) for role, theirs in roles.items()]

    return {
        "conv": [("kernel", state["conv.weight"].transpose(2, 3, 1, 0))],
        "bn": norm("bn"),
        "depth": [("depthwise_kernel", state["depth.weight"].reshape(6, 2, 3, 3).transpose(2, 3, 0, 1)),
                  ("bias", state["depth.bias"])],
        "bn2": norm("bn2"),
        "flat": norm("flat", image),
        "hidden": [("kernel", image(state["hidden.weight"].T)), ("bias", state["hidden.bias"])],
        "out": [("kernel", state["out.weight"].T), ("bias", state["out.bias"])]}


def write_layers(group, layers):
    """As Keras writes layers into a group: (layer, [(name of the weight, array)])."""
    names = np.array([layer.encode() for layer, _ in layers])
    group.attrs["layer_names0"], group.attrs["layer_names1"] = names[:2], names[2:]  # as if there were too many
    for layer, weights in layers:
        inner = group.create_group(layer)
        inner.attrs["weight_names"] = [name.encode() for name, _ in weights]
        for name, array in weights:
            inner[name] = array


class ConvertWeightsTest(cluster.ClusterTest):
    def setUp(self):
        if MISSING:
            raise unittest.SkipTest(f"SKIP: the example needs {', '.join(MISSING)}")
        super().setUp()

    def convert(self, *arguments, expect=0):
        done = subprocess.run([sys.executable, str(CONVERT), *map(str, arguments)], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120 * cluster.SLOW, check=False,
                              cwd=self.cluster.folder)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def evaluate(self, running, file, layout):
        """An epoch that changes nothing, and what the test images say then."""
        status = running.run_job(cluster.job_spec(
            name="begun", model={"layers": LAYERS}, init={"file": file, "layout": layout}, freeze=FROZEN, epochs=1,
            optimizer={"adam": {"learning_rate": 1e-30}}))
        self.assertEqual((status["init"]["unused"], status["init"]["fresh"]), (0, 0))
        return status

    def assert_as_expected(self, status, wanted):
        metrics = status["metrics"]["test"]
        self.assertAlmostEqual(metrics["loss"], wanted[0], delta=1e-5 * wanted[0])
        self.assertEqual(metrics["accuracy"], wanted[1])

    def test_a_state_dict_and_files_of_keras(self):
        net = make_net()
        state = net.state_dict()
        wrapped = {"module." + name: value for name, value in state.items()}
        wrapped["module.out.bias"] = wrapped["module.out.bias"].double()
        with self.running(test=200) as running:
            wanted = expected(net, running.data_root / "cifar10")
            torch.save({"epoch": 3, "state_dict": wrapped}, running.folder / "net.pt")
            done = self.convert("net.pt", running.data_root / "torch.safetensors")
            self.assertIn("left out: bn.num_batches_tracked", done.stderr)
            self.assertIn("layout: pytorch", done.stderr)
            of_torch = self.evaluate(running, "torch.safetensors", "pytorch")
            self.assert_as_expected(of_torch, wanted)

            self.write_keras(running.folder, keras_weights(net))
            for file in ("whole.h5", "weights.h5", "paths.h5"):
                done = self.convert(file, running.data_root / f"{file}.safetensors")
                self.assertIn("layout: keras", done.stderr)
            same = [(running.data_root / f"{file}.h5.safetensors").read_bytes() for file in ("whole", "weights", "paths")]
            self.assertEqual(same[0], same[1])
            self.assertEqual(same[0], same[2])
            of_keras = self.evaluate(running, "whole.h5.safetensors", "keras")
            self.assert_as_expected(of_keras, wanted)

            # And back, with the same bits.
            running.ringctl("checkpoint", "get", of_keras["job_id"], running.folder / "back", "--layout", "pytorch")
            back = tensors(running.folder / "back" / "model.safetensors")
            self.assertEqual(set(back), {name for name in state if not name.endswith("num_batches_tracked")})
            for name, array in back.items():
                self.assertTrue(np.array_equal(array, state[name].numpy()), name)
            running.ringctl("checkpoint", "get", of_torch["job_id"], running.folder / "keras", "--layout", "keras")
            there = tensors(running.folder / "keras" / "model.safetensors")
            for name, array in tensors(running.data_root / "whole.h5.safetensors").items():
                self.assertTrue(np.array_equal(array, there[name]), name)

    def write_keras(self, folder, weights):
        """A whole model whose middle is a model of its own; weights alone; weights by their whole paths."""
        def named(layer):
            return [(f"{layer}/{role}:0", array) for role, array in weights[layer]]

        nested = [("input", []), ("conv", named("conv")), ("bn", named("bn")), ("body", named("depth") + named("bn2")),
                  ("flat", named("flat")), ("hidden", named("hidden")), ("out", named("out"))]
        with h5py.File(folder / "whole.h5", "w") as file:
            write_layers(file.create_group("model_weights"), nested)
            file.create_group("optimizer_weights")["iterations"] = 3
        with h5py.File(folder / "weights.h5", "w") as file:
            write_layers(file, [(layer, [(role, array.astype(np.float64)) for role, array in weights[layer]])
                                for layer in weights])
        with h5py.File(folder / "paths.h5", "w") as file:
            write_layers(file, [(layer, [(f"sequential/{layer}/{role}", array) for role, array in weights[layer]])
                                for layer in weights])

    def test_what_cannot_be_read_is_said(self):
        folder = self.cluster.folder
        torch.save(make_net(), folder / "pickled.pt")  # code would run
        self.assertIn("save model.state_dict() instead", self.convert("pickled.pt", "x", expect=2).stderr)
        torch.save({"epoch": 3}, folder / "empty.pt")
        self.assertIn("no state dict", self.convert("empty.pt", "x", expect=2).stderr)
        with h5py.File(folder / "keras3.weights.h5", "w") as file:
            file["layers/conv/vars/0"] = np.zeros(3)
        self.assertIn("Keras 3", self.convert("keras3.weights.h5", "x", expect=2).stderr)
        (folder / "text.h5").write_text("no weights at all")
        self.assertIn("neither HDF5", self.convert("text.h5", "x", expect=2).stderr)
        self.assertIn("No such file", self.convert("none.h5", "x", expect=2).stderr)
        self.assertFalse((folder / "x").exists())
        torch.save(collections.OrderedDict(w=torch.ones(2, 3).half(), n=torch.tensor(3)), folder / "half.pt")
        self.assertEqual(self.convert("half.pt", "--list").stdout, "w [2, 3]\n")
        self.convert("half.pt", "half.safetensors")
        found = tensors(folder / "half.safetensors")
        self.assertEqual(list(found), ["w"])
        self.assertTrue(np.array_equal(found["w"], np.ones((2, 3), np.float32)))


if __name__ == "__main__":
    cluster.main()
