#!/usr/bin/python3
"""PyTorch's side of bench/vs_pytorch.py: it has every model of the zoo, and trains it.

    torch_models_test.py RINGCTL

That a model is the same as the zoo's, layer by layer, is for tests/parity/zoo_models_parity.py.
"""

import json
import pathlib
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))

import pytorch_training  # noqa: E402
import torch_models  # noqa: E402
import vs_pytorch  # noqa: E402

# Of those with a layer that no other has.
TRAINED = ("efficientnetb0", "inceptionv3", "mlp", "mobilenetv2", "nasnetmobile", "resnet20", "resnet50gn")


def ringctl(*words):
    done = subprocess.run([RINGCTL, "model", *words, "-o", "json"], check=True, timeout=60, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


class Models(unittest.TestCase):
    def test_the_zoo_s(self):
        names = [model["name"] for model in ringctl("ls")["models"]]
        self.assertEqual(sorted(torch_models.MODELS), names)
        self.assertEqual(sorted(vs_pytorch.MODELS), names)

    def test_as_many_parameters_for_images_of_the_usual_size(self):
        for name in torch_models.MODELS:
            image = (*vs_pytorch.arguments(["--model", name]).image, 3)
            summary = ringctl("summary", name, "--classes", "10", "--input", "x".join(map(str, image)))
            module = torch_models.build(name, image, 10)
            found = sum(parameter.numel() for parameter in module.parameters())
            self.assertEqual(found, summary["trainable_parameters"], name)

    def test_a_step_in_each_layout_and_precision(self):
        for name in TRAINED:
            image = [*vs_pytorch.arguments(["--model", name]).image, 3]
            for layout in vs_pytorch.layouts_of(name):
                for precision in ("float32", "bfloat16"):
                    with self.subTest(model=name, layout=layout, precision=precision):
                        training = pytorch_training.Training({
                            "model": name, "options": {}, "image": image, "batch": 2, "device": "cpu",
                            "threads": 1, "layout": layout, "precision": precision})
                        self.assertGreater(training.round(0, 1)["images_per_second"], 0)


if __name__ == "__main__":
    RINGCTL = sys.argv.pop(1)
    unittest.main()
