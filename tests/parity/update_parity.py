#!/usr/bin/python3
"""Holds optimizers and schedules against torch.optim over 50 updates of a thousand weights.

    update_parity.py PROGRAM

PROGRAM is update_steps. Where the two differ by design the case is written so that they do not: our
Adam adds epsilon to the uncorrected root (Keras), so both epsilons are tiny; our momentum has the
rate in it, so schedules are held against plain descent; our schedules look at the number of the
update, from 1, so some of PyTorch's are one step ahead.
"""

import subprocess
import sys

import numpy as np
import torch

STEPS = 50
LIMIT = 1e-5  # of the change of the weights, L2
SGD = torch.optim.SGD


def ahead(make):
    """A schedule that has made one step before the first update."""
    def made(optimizer):
        schedule = make(optimizer)
        optimizer.step()  # there are no gradients yet: PyTorch wants to see it first
        schedule.step()
        return schedule
    return made


def warm_cosine(update):
    if update <= 10:
        return update / 10
    return 0.1 + 0.9 * (1 + np.cos(np.pi * (update - 10) / (STEPS - 10))) / 2


def lr(name, **options):
    return lambda optimizer: getattr(torch.optim.lr_scheduler, name)(optimizer, **options)


# Ours, PyTorch's, its schedule, what is done to gradients.
CASES = [
    ("{sgd: {learning_rate: 0.1}}", SGD, dict(lr=0.1), None, None),
    ("{sgd: {learning_rate: 0.1, momentum: 0.9}}", SGD, dict(lr=0.1, momentum=0.9), None, None),
    ("{sgd: {learning_rate: 0.1, momentum: 0.9, nesterov: true}}", SGD,
     dict(lr=0.1, momentum=0.9, nesterov=True), None, None),
    ("{sgd: {learning_rate: 0.1, momentum: 0.9}, weight_decay: {rate: 0.05, kind: l2}}", SGD,
     dict(lr=0.1, momentum=0.9, weight_decay=0.05), None, None),
    ("{adam: {learning_rate: 0.01, epsilon: 1e-12}}", torch.optim.Adam,
     dict(lr=0.01, eps=1e-12), None, None),
    ("{adam: {learning_rate: 0.01, epsilon: 1e-12}, weight_decay: {rate: 0.1, kind: l2}}",
     torch.optim.Adam, dict(lr=0.01, eps=1e-12, weight_decay=0.1), None, None),
    ("{adam: {learning_rate: 0.01, epsilon: 1e-12}, weight_decay: {rate: 0.1}}",
     torch.optim.AdamW, dict(lr=0.01, eps=1e-12, weight_decay=0.1), None, None),
    ("{rmsprop: {learning_rate: 0.01, epsilon: 1e-16}}", torch.optim.RMSprop,
     dict(lr=0.01, alpha=0.9, eps=1e-16), None, None),
    ("{rmsprop: {learning_rate: 0.01, epsilon: 1e-16, momentum: 0.9}}", torch.optim.RMSprop,
     dict(lr=0.01, alpha=0.9, eps=1e-16, momentum=0.9), None, None),
    ("{rmsprop: {learning_rate: 0.01, epsilon: 1e-16, momentum: 0.9, centered: true}}", torch.optim.RMSprop,
     dict(lr=0.01, alpha=0.9, eps=1e-16, momentum=0.9, centered=True), None, None),
    ("{torch_sgd: {learning_rate: 0.1, momentum: 0.9, dampening: 0.3}}", SGD,
     dict(lr=0.1, momentum=0.9, dampening=0.3), None, None),
    ("{torch_sgd: {learning_rate: 0.1, momentum: 0.9, nesterov: true}, schedule: {polynomial: {power: 2.5}}}", SGD,
     dict(lr=0.1, momentum=0.9, nesterov=True), ahead(lr("LambdaLR", lr_lambda=lambda u: (1 - u / STEPS) ** 2.5)), None),
    ("{torch_sgd: {learning_rate: 0.1}, weight_decay: {rate: 0.05, kind: l2}}", SGD,
     dict(lr=0.1, weight_decay=0.05), None, None),
    ("{torch_adam: {learning_rate: 0.01, epsilon: 1e-3}}", torch.optim.Adam, dict(lr=0.01, eps=1e-3), None, None),
    ("{torch_adam: {learning_rate: 0.01}, weight_decay: {rate: 0.1, kind: l2}}", torch.optim.Adam,
     dict(lr=0.01, weight_decay=0.1), None, None),
    ("{torch_adam: {learning_rate: 0.01, beta_1: 0.8, beta_2: 0.95}, weight_decay: {rate: 0.1}}",
     torch.optim.AdamW, dict(lr=0.01, betas=(0.8, 0.95), weight_decay=0.1), None, None),
    ("{torch_rmsprop: {learning_rate: 0.01, epsilon: 1e-2}}", torch.optim.RMSprop, dict(lr=0.01, eps=1e-2), None, None),
    ("{torch_rmsprop: {learning_rate: 0.01, alpha: 0.9, momentum: 0.9}}", torch.optim.RMSprop,
     dict(lr=0.01, alpha=0.9, momentum=0.9), None, None),
    ("{torch_rmsprop: {learning_rate: 0.01, epsilon: 1e-2, centered: true}}", torch.optim.RMSprop,
     dict(lr=0.01, eps=1e-2, centered=True), None, None),
    ("{torch_rmsprop: {learning_rate: 0.01, alpha: 0.9, momentum: 0.9, centered: true}}", torch.optim.RMSprop,
     dict(lr=0.01, alpha=0.9, momentum=0.9, centered=True), None, None),
    ("{sgd: {learning_rate: 0.1}, clip: {global_norm: 5}}", SGD, dict(lr=0.1), None,
     lambda w: torch.nn.utils.clip_grad_norm_([w], 5)),
    ("{sgd: {learning_rate: 0.1}, clip: {tensor_norm: 5}}", SGD, dict(lr=0.1), None,
     lambda w: torch.nn.utils.clip_grad_norm_([w], 5)),
    ("{sgd: {learning_rate: 0.1}, clip: {value: 0.5}}", SGD, dict(lr=0.1), None,
     lambda w: torch.nn.utils.clip_grad_value_([w], 0.5)),
    ("{sgd: {learning_rate: 0.1}, schedule: {cosine: {}}}", SGD, dict(lr=0.1),
     ahead(lr("CosineAnnealingLR", T_max=STEPS)), None),
    ("{sgd: {learning_rate: 0.1}, schedule: {polynomial: {power: 2.5}}}", SGD, dict(lr=0.1),
     ahead(lr("LambdaLR", lr_lambda=lambda u: (1 - u / STEPS) ** 2.5)), None),
    ("{sgd: {learning_rate: 0.1}, schedule: {steps: {every: {updates: 15}, factor: 0.5}}}", SGD,
     dict(lr=0.1), lr("StepLR", step_size=15, gamma=0.5), None),
    ("{sgd: {learning_rate: 0.1}, schedule: {steps: {at: [{updates: 20}, {updates: 30}]}}}", SGD,
     dict(lr=0.1), lr("MultiStepLR", milestones=[20, 30], gamma=0.1), None),
    ("{sgd: {learning_rate: 0.1}, schedule: {exponential: {every: {updates: 1}, factor: 0.95}}}",
     SGD, dict(lr=0.1), ahead(lr("ExponentialLR", gamma=0.95)), None),
    ("{sgd: {learning_rate: 0.1}, schedule: {warmup: {over: {updates: 10}}, cosine: {final: 0.1}}}",
     SGD, dict(lr=0.1), ahead(lr("LambdaLR", lr_lambda=warm_cosine)), None),
    ("{sgd: {learning_rate: 0.1}, ema: {decay: 0.9}}", SGD, dict(lr=0.1), None, None),
]


def theirs(numbers, kind, options, schedule, change):
    """The last weights, and their average of decay 0.9, in float64."""
    weights = torch.nn.Parameter(torch.tensor(numbers[0], dtype=torch.float64))
    average = weights.detach().clone()
    optimizer = kind([weights], **options)
    schedule = schedule(optimizer) if schedule else None
    for gradient in numbers[1:]:
        weights.grad = torch.tensor(gradient, dtype=torch.float64)
        if change:
            change(weights)
        optimizer.step()
        if schedule:
            schedule.step()
        average = 0.9 * average + 0.1 * weights.detach()
    return weights.detach().numpy(), average.numpy()


def main():
    program = sys.argv[1]
    numbers = np.random.RandomState(1).standard_normal((STEPS + 1, 1000)).astype(np.float32)
    failed = 0
    for ours, kind, options, schedule, change in CASES:
        out = subprocess.run([program, ours, str(STEPS)], input=numbers.tobytes(), check=True,
                             capture_output=True).stdout
        found = np.frombuffer(out, np.float32).reshape(-1, numbers.shape[1]).astype(np.float64)
        wanted = theirs(numbers, kind, options, schedule, change)
        for row, expected in zip(found, wanted):
            error = np.linalg.norm(row - expected) / np.linalg.norm(expected - numbers[0])
            failed += not error < LIMIT
            print(f"{'ok' if error < LIMIT else 'FAILED':6} {error:.1e} {ours}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
