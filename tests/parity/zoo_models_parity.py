#!/usr/bin/python3
"""Holds bench/torch_models.py, what ours is compared with, against the zoo's graphs.

    zoo_models_parity.py RINGCTL small|large

For each of its models, those of LARGE or the others, with images of even and of odd sizes: as many
parameters as the graph that RINGCTL prints, of the same shapes and in the same order; with the same values
in float64 the same loss, gradients and batch statistics; the same momenta, and the same rates of dropouts,
which are off otherwise.
"""

import json
import pathlib
import subprocess
import sys

import torch
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))

import torch_graph  # noqa: E402
import torch_layers  # noqa: E402
import torch_models  # noqa: E402

# What is flattened has one pixel there: elsewhere features stand in another order.
SIZES = {"linear": ((1, 1),), "mlp": ((1, 1),), "alexnet": ((32, 32), (9, 9)), "resnet20": ((32, 32), (21, 21)),
         "vgg": ((32, 32),), "vgg16": ((32, 32),), "vgg19": ((32, 32),), "inceptionv3": ((75, 75), (98, 81))}
OTHER_SIZES = ((64, 64), (45, 62))
OPTIONS = {"alexnet": ({}, {"batch_norm": True, "dropout": 0.3}), "vgg": ({}, {"batch_norm": False, "depth": 11}),
           "mlp": ({"hidden": [64, 32], "dropout": 0.25},), "vgg16": ({"head": "gap", "head_dropout": 0.2},),
           "vgg19": ({"head": "gap"},), "efficientnetb0": ({}, {"drop_connect": 0.5, "head": "gap"})}
# They take long; a smaller one of each family is among the others.
LARGE = {"efficientnetb1", "efficientnetb2", "efficientnetb3", "efficientnetb4", "efficientnetb5", "nasnetlarge"}
SAMPLES = 3
LIMIT = 1e-9


def graph_of(ringctl, name, size, options):
    words = [f"{key}={json.dumps(value)}" for key, value in options.items()]
    shown = subprocess.run(
        [ringctl, "model", "show", name, "-o", "json", "--classes", "10", "--input", f"{size[0]}x{size[1]}x3",
         *(word for option in words for word in ("--option", option))],
        check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    return json.loads(shown.stdout)


def as_theirs(values):
    """A parameter of ours as PyTorch has it: kernels O,h,w,I and I,O."""
    if values.dim() == 4:
        return values.permute(0, 3, 1, 2)
    return values.t() if values.dim() == 2 else values


def near(ours, theirs, all_of_them):
    return float((ours - theirs).norm()) <= LIMIT * (float(theirs.norm()) + 1e-3 * float(all_of_them) + 1e-9)


def rates_of_graph(graph):
    """Rate, and whether whole samples are dropped, in the order of the graph."""
    dropouts = [torch_graph.attributes_of(node) for node in graph["nodes"] if node["op"] == "dropout"]
    return [(dropout["rate"], bool(dropout["per_sample"])) for dropout in dropouts]


def rates_of_module(module):
    found = []
    for layer in module.modules():
        if isinstance(layer, nn.Dropout):
            found.append((layer.p, False))
        elif isinstance(layer, torch_layers.DropSamples):
            found.append((1 - layer.keep, True))
    return found


def close(ours, theirs):
    return len(ours) == len(theirs) and all(abs(a[0] - b[0]) < 1e-9 and a[1:] == b[1:] for a, b in zip(ours, theirs))


def differences(graph, module, size):
    """What is not the same, in words."""
    theirs = list(module.parameters())
    shapes = [parameter["shape"] for parameter in graph["parameters"]]
    expected = [list(as_theirs(torch.empty(shape)).shape) for shape in shapes]
    if expected != [list(parameter.shape) for parameter in theirs]:
        return [f"parameters: {len(expected)} of shapes {expected}, got {[list(p.shape) for p in theirs]}"]
    ours = {}
    for parameter, their in zip(graph["parameters"], theirs):
        values = torch.randn(parameter["shape"], dtype=torch.float64) * (0.3 if len(parameter["shape"]) == 1 else 0.1)
        values += 1 if parameter["name"].endswith("/gamma") else 0
        ours[parameter["name"]] = values.requires_grad_()
        their.data = as_theirs(values.detach()).clone()
    images = torch.randn(SAMPLES, *size, 3, dtype=torch.float64)
    labels = torch.randint(0, 10, (SAMPLES,))
    names = {column["type"]: column["name"] for column in graph["columns"]}
    statistics = {statistic["name"]: torch.full(statistic["shape"], statistic["initial"], dtype=torch.float64)
                  for statistic in graph["statistics"]}
    values = torch_graph.run(graph, {names["float32"]: images, names["int32"]: labels, **statistics, **ours})
    loss = torch_graph.minimized(graph, values)
    loss.backward()
    their_loss = nn.functional.cross_entropy(module(images.permute(0, 3, 1, 2)), labels, reduction="sum")
    their_loss.backward()

    found = [] if near(their_loss.detach(), loss.detach(), 0) else [f"loss: {float(loss)}, got {float(their_loss)}"]
    every = sum(float(parameter.grad.norm()) ** 2 for parameter in theirs) ** 0.5
    for (name, value), their in zip(ours.items(), theirs):
        if not near(their.grad, as_theirs(value.grad), every):
            found.append(f"gradient of {name}: {float(value.grad.norm())}, got {float(their.grad.norm())}")
    momenta = torch_graph.momenta(graph)
    norms = [layer for layer in module.modules() if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d))]
    if not close([(momentum,) for momentum in momenta.values()], [(1 - norm.momentum,) for norm in norms]):
        found.append(f"momenta: {list(momenta.values())}, got {[1 - norm.momentum for norm in norms]}")
    for name, norm in zip(momenta, norms):
        mean = values[f"{name}/mean"].detach() * norm.momentum
        if not near(norm.running_mean, mean, 1):
            found.append(f"moving mean of {name}")
    if not close(rates_of_graph(graph), rates_of_module(module)):
        found.append(f"dropouts: {rates_of_graph(graph)}, got {rates_of_module(module)}")
    return found


def main():
    ringctl, which = sys.argv[1:]
    torch.manual_seed(1)
    failed = False
    for name in (name for name in torch_models.MODELS if (name in LARGE) == (which == "large")):
        for size in SIZES.get(name, OTHER_SIZES):
            for options in OPTIONS.get(name, ({},)):
                module = torch_models.build(name, image=(*size, 3), **options).double().train()
                for layer in module.modules():
                    if isinstance(layer, (nn.Dropout, torch_layers.DropSamples)):
                        layer.eval()
                found = differences(graph_of(ringctl, name, size, options), module, size)
                failed = failed or bool(found)
                print(f"{name} {options} {size[0]}x{size[1]}: {'; '.join(found) or 'the same'}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
