#!/usr/bin/python3
"""Repeats one training step of alexnet in PyTorch and compares loss, statistics and gradients.

    alexnet_parity.py PROGRAM cpu|reference plain|batch_norm SAMPLES

PROGRAM is alexnet_step, which makes the step and writes it to a folder. The CPU backend is held
against PyTorch in float32, the reference executor in float64. Dropout is off.

A gradient tensor passes when |ours - theirs| <= limit |theirs| in the L2 norm. A tensor whose norm
is under 1e-6 of the norm of all gradients together is zero but for rounding: it passes when the
difference is under 1e-6 of that total. (With alexnet's parameters none is; the report says so.)
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))
import torch_models  # noqa: E402

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


def watch_statistics(model):
    """The list to which each normalization adds its batch's mean and biased variance."""
    statistics = []

    def watch(_, inputs):
        x = inputs[0].detach()
        variance = x.var(dim=(0, 2, 3), unbiased=False)
        statistics.append((x.mean(dim=(0, 2, 3)).double().numpy(), variance.double().numpy()))

    for layer in model.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.register_forward_pre_hook(watch)
    return statistics


def make_model(step, dtype):
    parameters = {name.split(":", 1)[1]: values for name, values in step.items()
                  if name.startswith("parameter:")}
    model = torch_models.build("alexnet", batch_norm="bn1/gamma" in parameters).to(dtype)
    torch_models.load(model, parameters)
    return model.train()


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
    theirs = {torch_models.our_name(model, name): torch_models.to_ours(p.grad).double().numpy()
              for name, p in model.named_parameters()}
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
    model = make_model(step, dtype)
    statistics = watch_statistics(model)
    logits = model(torch.tensor(step["images"], dtype=dtype).permute(0, 3, 1, 2))  # N,C,H,W
    labels = torch.tensor(step["labels"], dtype=torch.int64)
    loss = F.cross_entropy(logits, labels, reduction="sum")
    (loss * float(step["loss_seed"])).backward()

    report = Report()
    report.line("loss", relative(step["loss_sum"], loss.double().detach().numpy()), loss_limit)
    correct = int((logits.argmax(dim=1) == labels).sum())
    report.line("correct", abs(correct - int(step["correct"])), 0)
    if statistics:
        means, variances = (np.concatenate(part) for part in zip(*statistics))
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
