#!/usr/bin/python3
"""Holds a model against PyTorch: one step, a curve of losses and an evaluation.

    model_parity.py RINGCTL GRAPH_STEP SAMPLES NAME [OPTION of `ringctl model show` ...]

PyTorch runs the graph that RINGCTL prints (torch_graph.py); GRAPH_STEP runs the same one on the
float64 reference and on the CPU backend. The reference is held against PyTorch in float64, the CPU
against the reference, and some steps of plain gradient descent on the CPU, with the moving
statistics and an evaluation by them, against PyTorch's in float32. Dropout is off.

A gradient passes when |ours - theirs| <= limit (|theirs| + 1e-3 |all of theirs|) in the L2 norm. One
that is under 1e-6 of all of them is zero but for rounding, as that of a bias in front of a
normalization: in float32 it passes when the difference is under that.

In float32 an element may come to lie on the other side of a relu's kink than in float64, or another
one be a pool's maximum, which changes gradients by more than rounding does. That is chance: what
float32 is held to has to hold for one of DRAWS draws of weights and samples. What float64 is held to
has to hold for each draw that is made.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch

import torch_graph

STEPS = 20
DRAWS = 3
SHARE = 1e-3  # of the norm of all gradients, added to a gradient's own

# (loss, statistics, gradients, share of all gradients under which one is zero)
REFERENCE_LIMITS = (1e-12, 1e-11, 1e-9, 0)
CPU_LIMITS = (1e-5, 1e-4, 1e-4, 1e-6)
CURVE_LIMIT = 1e-3
STRAY = 4


class Step:
    """What GRAPH_STEP wrote: tensors by name, read when they are asked for."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.files = {}
        for line in (self.folder / "manifest").read_text().splitlines():
            name, file, *extents = line.split()
            self.files[name] = (file, [int(extent) for extent in extents])

    def __getitem__(self, name):
        file, shape = self.files[name]
        return np.fromfile(self.folder / file, dtype="<f8").reshape(shape)


class Report:
    """The worst of each kind of comparison, and every one that was over its limit."""

    def __init__(self):
        self.failures = 0
        self.worst = {}

    def add(self, kind, name, error, limit):
        if not error <= limit:  # NaN is over
            self.failures += 1
            print(f"FAIL {kind} {name}: {error:.3e}, limit {limit:.0e}")
        if not error <= self.worst.get(kind, (-1,))[0]:
            self.worst[kind] = (error, limit, name)

    def print(self):
        for kind, (error, limit, name) in self.worst.items():
            print(f"{kind:32} {error:.3e} (limit {limit:.0e}) at {name}")


def relative(ours, theirs):
    return np.linalg.norm(ours - theirs) / max(np.linalg.norm(theirs), 1e-300)


def numbers(tensor):
    return tensor.detach().double().numpy()


def compare_outputs(report, graph, kind, limit, ours, theirs):
    """Counts must be equal. ours(name) and theirs(output) are sums over the samples."""
    for output in graph["outputs"]:
        name = output["name"]
        counts = "measure" in output and float(theirs(output)).is_integer()
        error = relative(ours(name), theirs(output))
        report.add(f"{kind} {'counts' if counts else 'losses'}", name, error, 0 if counts else limit)


def compare_statistics(report, graph, kind, limit, ours, theirs):
    """Means against the size of what they are means of, variances against its square. ours and
    theirs say them by node and by what they are, mean or variance."""
    for node in torch_graph.momenta(graph):
        mean, variance = theirs(node, "mean"), theirs(node, "variance")
        square = mean * mean + variance
        error = np.linalg.norm(ours(node, "mean") - mean) / np.linalg.norm(np.sqrt(square))
        report.add(f"{kind} means", node, error, limit)
        error = np.linalg.norm(ours(node, "variance") - variance) / np.linalg.norm(square)
        report.add(f"{kind} variances", node, error, limit)


def compare_gradients(report, graph, kind, limit, zero, ours, theirs):
    names = [parameter["name"] for parameter in graph["parameters"]]
    total = np.sqrt(sum(np.linalg.norm(theirs(name)) ** 2 for name in names))
    for name in names:
        gradient = theirs(name)
        norm, error = np.linalg.norm(gradient), np.linalg.norm(ours(name) - gradient)
        if norm < zero * total:
            report.add(f"{kind} gradients of zero", name, error / total, zero)
        else:
            report.add(f"{kind} gradients", name, error / (norm + SHARE * total), limit)


def feeds_of(graph, step, dtype):
    """Columns and statistics, and the parameters, by name."""
    fixed, parameters = {}, {}
    for column in graph["columns"]:
        kind = torch.int64 if column["type"] == "int32" else dtype
        fixed[column["name"]] = torch.tensor(step["column/" + column["name"]], dtype=kind)
    for statistic in graph["statistics"]:
        initial = torch.full(statistic["shape"], statistic["initial"], dtype=dtype)
        fixed[statistic["name"]] = initial
    for parameter in graph["parameters"]:
        name = parameter["name"]
        values = torch.tensor(step["parameter/" + name], dtype=dtype)
        parameters[name] = values.requires_grad_()
    return fixed, parameters


def compare_reference(report, graph, step):
    """PyTorch in float64 against the reference."""
    fixed, parameters = feeds_of(graph, step, torch.float64)
    values = torch_graph.run(graph, {**fixed, **parameters})
    (torch_graph.minimized(graph, values) * float(step["loss_seed"])).backward()
    loss, statistics, gradients, zero = REFERENCE_LIMITS
    ours = "reference/"
    compare_outputs(report, graph, "reference", loss, lambda name: step[f"{ours}output/{name}"],
                    lambda output: numbers(values[output["value"]]))
    compare_statistics(report, graph, "reference batch", statistics,
                       lambda node, what: step[f"{ours}{node}/{what}"],
                       lambda node, what: numbers(values[f"{node}/{what}"]))
    compare_gradients(report, graph, "reference", gradients, zero,
                      lambda name: step[f"{ours}gradient/{name}"],
                      lambda name: parameters[name].grad.numpy())


def compare_cpu(report, graph, step):
    """The CPU backend against the reference."""
    loss, statistics, gradients, zero = CPU_LIMITS
    compare_outputs(report, graph, "cpu", loss, lambda name: step[f"cpu/output/{name}"],
                    lambda output: step[f"reference/output/{output['name']}"])
    compare_statistics(report, graph, "cpu batch", statistics,
                       lambda node, what: step[f"cpu/{node}/{what}"],
                       lambda node, what: step[f"reference/{node}/{what}"])
    compare_gradients(report, graph, "cpu", gradients, zero,
                      lambda name: step[f"cpu/gradient/{name}"],
                      lambda name: step[f"reference/gradient/{name}"])


def train(graph, step, dtype):
    """The losses of STEPS steps and of an evaluation after them; statistics by name, as they moved."""
    fixed, parameters = feeds_of(graph, step, dtype)
    seed, rate = float(step["loss_seed"]), float(step["learning_rate"])
    curve = []
    for _ in range(STEPS):
        values = torch_graph.run(graph, {**fixed, **parameters})
        loss = torch_graph.minimized(graph, values)
        curve.append(float(loss))
        gradients = torch.autograd.grad(loss * seed, list(parameters.values()))
        with torch.no_grad():
            for parameter, gradient in zip(parameters.values(), gradients):
                parameter -= rate * gradient
            for name, momentum in torch_graph.momenta(graph).items():
                for statistic in ("mean", "variance"):
                    moving, batch = fixed[f"{name}/moving_{statistic}"], values[f"{name}/{statistic}"]
                    moving.mul_(momentum).add_(batch, alpha=1 - momentum)
    with torch.no_grad():
        values = torch_graph.run(graph, {**fixed, **parameters}, torch_graph.INFERENCE)
    return np.array(curve + [float(torch_graph.minimized(graph, values))]), fixed


def compare_training(report, graph, step):
    """The CPU backend against PyTorch in float32. Where a model's curve is so sensitive that
    PyTorch's own two types part by more than the limit, ours may part by STRAY times as much."""
    evaluation = {output["value"]: step["cpu/evaluation/" + output["name"]]
                  for output in graph["outputs"]}
    ours = np.append(step["cpu/curve"], torch_graph.minimized(graph, evaluation))
    theirs, moved = train(graph, step, torch.float32)
    differences, kind = np.abs(ours - theirs), "losses of training"
    if not (differences <= CURVE_LIMIT * np.abs(theirs)).all():
        strayed = np.maximum.accumulate(np.abs(theirs - train(graph, step, torch.float64)[0]))
        differences, kind = np.maximum(differences - STRAY * strayed, 0), "losses of training that strays"
        print(f"PyTorch's float32 strays by {np.max(strayed / np.abs(theirs)):.1e}")
    else:
        compare_statistics(report, graph, "moving", CURVE_LIMIT,
                           lambda node, what: step[f"cpu/{node}/moving_{what}"],
                           lambda node, what: numbers(moved[f"{node}/moving_{what}"]))
    for number, error in enumerate(differences / np.abs(theirs)):
        report.add(kind, f"step {number}" if number < STEPS else "evaluation", error, CURVE_LIMIT)
    print(f"loss {theirs[0]:.6g} became {theirs[-2]:.6g}, {theirs[-1]:.6g} when evaluated")


def compare(graph, file, program, samples, seed):
    """Whether float64 and float32 passed on this draw."""
    exact, rounded = Report(), Report()
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        subprocess.run([program, file, samples, str(STEPS), str(seed), folder], check=True, timeout=1200)
        stepped = time.monotonic()
        step = Step(folder)
        compare_reference(exact, graph, step)
        compare_cpu(rounded, graph, step)
        compare_training(rounded, graph, step)
    exact.print()
    rounded.print()
    print(f"draw {seed}: {stepped - began:.1f} s for our steps, {time.monotonic() - stepped:.1f} s for PyTorch's")
    return exact.failures == 0, rounded.failures == 0


def check(text, program, samples):
    """Ends the process with 1 unless the graph of this canonical JSON passes."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        file.write(text)
        file.flush()
        for seed in range(1, DRAWS + 1):
            exact, rounded = compare(json.loads(text), file.name, program, samples, seed)
            if not exact:
                sys.exit("float64 differs")
            if rounded:
                return
    sys.exit(f"float32 differs on each of {DRAWS} draws")


def main():
    ringctl, program, samples, *model = sys.argv[1:]
    shown = subprocess.run([ringctl, "model", "show", *model, "-o", "json"], check=True, timeout=60,
                           stdout=subprocess.PIPE, text=True)
    check(shown.stdout, program, samples)


if __name__ == "__main__":
    main()
