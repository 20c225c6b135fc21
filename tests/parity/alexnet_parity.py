#!/usr/bin/python3
"""Repeats one training step of alexnet in PyTorch and compares loss, statistics and gradients.

    alexnet_parity.py PROGRAM cpu|reference plain|batch_norm SAMPLES

PROGRAM is alexnet_step, which makes the step and writes it to a folder. The CPU backend is held
against PyTorch in float32, the reference executor in float64. PyTorch gets images as N,C,H,W and
kernels as O,I,h,w; dense kernels are (in, out) here and (out, in) there. Dropout is off.

A gradient tensor passes when |ours - theirs| <= limit |theirs| in the L2 norm. A tensor whose norm
is under 1e-6 of the norm of all gradients together is zero but for rounding: it passes when the
difference is under 1e-6 of that total. (With alexnet's parameters none is; the report says so.)
"""

import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

EPSILON = 1e-3  # of alexnet's batch normalizations
ZERO_SHARE = 1e-6

# By engine: PyTorch's type, and the limits on loss, statistics and gradients.
ENGINES = {
    "cpu": (torch.float32, 1e-5, 1e-4, 1e-4),
    "reference": (torch.float64, 1e-12, 1e-11, 1e-10),
}


def read_step(folder):
    """The tensors that alexnet_step wrote, by name, in float64."""
    tensors = {}
    with open(os.path.join(folder, "manifest"), encoding="utf-8") as manifest:
        for line in manifest:
            name, file, *extents = line.split()
            values = np.fromfile(os.path.join(folder, file), dtype="<f8")
            tensors[name] = values.reshape([int(extent) for extent in extents])
    return tensors


class TorchAlexnet:
    """The same step; `statistics` collects each normalization's batch mean and biased variance."""

    def __init__(self, step, dtype):
        self.statistics = []
        self.parameters = {
            name.split(":", 1)[1]: torch.tensor(values, dtype=dtype, requires_grad=True)
            for name, values in step.items()
            if name.startswith("parameter:")
        }

    def convolution_block(self, x, number):
        kernel = self.parameters[f"conv{number}/kernel"].permute(0, 3, 1, 2)  # O,h,w,I
        x = F.conv2d(x, kernel, self.parameters.get(f"conv{number}/bias"), padding=1)
        gamma = self.parameters.get(f"bn{number}/gamma")
        if gamma is not None:
            beta = self.parameters[f"bn{number}/beta"]
            mean = x.detach().mean(dim=(0, 2, 3))
            variance = x.detach().var(dim=(0, 2, 3), unbiased=False)
            self.statistics.append((mean.double().numpy(), variance.double().numpy()))
            x = F.batch_norm(x, None, None, gamma, beta, training=True, eps=EPSILON)
        return F.relu(x)

    def logits(self, images):
        x = images.permute(0, 3, 1, 2)  # N,H,W,C
        x = F.max_pool2d(self.convolution_block(x, 1), 2)
        x = F.max_pool2d(self.convolution_block(x, 2), 2)
        for number in (3, 4, 5):
            x = self.convolution_block(x, number)
        x = x.mean(dim=(2, 3))
        return x @ self.parameters["fc/kernel"] + self.parameters["fc/bias"]


def relative(ours, theirs):
    return np.linalg.norm(ours - theirs) / max(np.linalg.norm(theirs), 1e-300)


class Report:
    """Prints one line a comparison and remembers whether any was over its limit."""

    def __init__(self):
        self.failed = False

    def line(self, name, error, limit, remark=""):
        over = not error <= limit  # NaN is over
        self.failed = self.failed or over
        print(f"{'FAIL' if over else 'ok  '} {name:28} {error:.3e} (limit {limit:.0e}){remark}")


def compare_gradients(report, step, model, limit):
    theirs = {name: p.grad.double().numpy() for name, p in model.parameters.items()}
    total = np.sqrt(sum(np.linalg.norm(gradient) ** 2 for gradient in theirs.values()))
    for name, gradient in theirs.items():
        ours = step["gradient:" + name]
        if np.linalg.norm(gradient) >= ZERO_SHARE * total:
            report.line("gradient " + name, relative(ours, gradient), limit)
        else:
            error = np.linalg.norm(ours - gradient) / total
            report.line("gradient " + name, error, ZERO_SHARE, " of all gradients: it is zero")


def compare(step, engine):
    dtype, loss_limit, statistics_limit, gradient_limit = ENGINES[engine]
    model = TorchAlexnet(step, dtype)
    logits = model.logits(torch.tensor(step["images"], dtype=dtype))
    labels = torch.tensor(step["labels"], dtype=torch.int64)
    loss = F.cross_entropy(logits, labels, reduction="sum")
    (loss * float(step["loss_seed"])).backward()

    report = Report()
    report.line("loss", relative(step["loss_sum"], loss.double().detach().numpy()), loss_limit)
    correct = int((logits.argmax(dim=1) == labels).sum())
    report.line("correct", abs(correct - int(step["correct"])), 0)
    if model.statistics:
        means, variances = (np.concatenate(part) for part in zip(*model.statistics))
        report.line("batch means", relative(step["batch_means"], means), statistics_limit)
        report.line("batch variances", relative(step["batch_variances"], variances),
                    statistics_limit)
    compare_gradients(report, step, model, gradient_limit)
    return not report.failed


def main():
    program, engine, variant, samples = sys.argv[1:]
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, engine, variant, samples, folder], check=True, timeout=300)
        step = read_step(folder)
    normalized = any("/gamma" in name for name in step)
    if normalized != (variant == "batch_norm"):
        sys.exit(f"alexnet_step made another variant than {variant}")
    sys.exit(0 if compare(step, engine) else 1)


if __name__ == "__main__":
    main()
