#!/usr/bin/python3
"""Gradients of scripts: what shards add up to, and that they depend on nothing but the state, the step and the shard."""
import os
import signal
import sys
import unittest

sys.dont_write_bytecode = True

import fake_worker
import numpy

NETWORK = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
import ringmaster.torch
torch.manual_seed(3)
"""

# Batch norm, dropout, rows that the script draws.
DRAWS = NETWORK + """
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
job = ringmaster.torch.attach(model, optimizer, batch=16, steps=4)
for shard in job.shards():
    x = torch.randn(shard.rows, 4)
    shard.backward(nn.functional.cross_entropy(model(x), x[:, 0].gt(0).long()))
"""

# Rows by their numbers, nothing that is drawn: %s is what a shard does.
ROWS = NETWORK + """
x = torch.randn(16, 4)
y = x.sum(1, keepdim=True).sin()
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1), nn.Linear(1, 1, bias=False))
model[3].weight.requires_grad_(False).fill_(1)
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), batch=16, steps=1 %s)
def loss(samples, reduction="mean"):
    return nn.functional.mse_loss(model(x[samples]), y[samples], reduction=reduction)
for shard in job.shards():
"""


def whole(results):
    """The sum of shards, in float64 in their order."""
    return {name: sum(result.gradients[name].astype(numpy.float64) for result in results) for name in results[0].gradients}


def bits(result):
    return result.loss, {name: gradient.tobytes() for name, gradient in result.gradients.items()}


class Sums(fake_worker.ScriptTest):
    def assert_near(self, some, others):
        self.assertEqual(list(some), list(others))
        for name, gradient in some.items():
            difference = numpy.abs(gradient - others[name]).max()
            self.assertLess(difference, 1e-6 * max(1, numpy.abs(gradient).max()), name)
            self.assertGreater(numpy.abs(gradient).max(), 0, name)

    def test_shards_add_up_to_the_batch(self):
        child, _, _ = self.start(ROWS % "" + "    shard.backward(loss(shard.samples))\n")
        one = child.shard(0, 0, shards=1)
        four = [child.shard(0, shard, shards=4) for shard in range(4)]
        seven = [child.shard(0, shard, shards=7) for shard in range(7)]  # of 2 and of 3 rows
        for results in (four, seven):
            self.assert_near(whole([one]), whole(results))
            self.assertAlmostEqual(one.loss, sum(result.loss for result in results), places=5)
        scaled = child.shard(0, 0, shards=1, scale=1024.0)
        self.assertEqual(scaled.loss, one.loss)
        for name, gradient in one.gradients.items():
            self.assertEqual((gradient * 1024).tobytes(), scaled.gradients[name].tobytes(), name)

    def test_a_sum_in_place_of_a_mean(self):
        child, _, _ = self.start(ROWS % "" + "    shard.backward(loss(shard.samples))\n")
        mean = [child.shard(0, shard) for shard in range(4)]
        child, _, _ = self.start(ROWS % ", weight='sum'" + "    shard.backward(loss(shard.samples, 'sum'))\n")
        total = [child.shard(0, shard) for shard in range(4)]
        self.assert_near(whole(mean), whole(total))
        self.assertAlmostEqual(sum(result.loss for result in mean), sum(result.loss for result in total), places=5)

    def test_parts_of_a_shard_are_added_in_it(self):
        text = ROWS % ", metrics=('rows',)" + """
    for part in shard.parts(3):
        part.backward(loss(part.samples), rows=part.rows)
"""
        child, _, _ = self.start(text)
        parts = [child.shard(0, shard) for shard in range(4)]
        again = [child.shard(0, shard) for shard in range(4)]
        child, _, _ = self.start(ROWS % "" + "    shard.backward(loss(shard.samples))\n")
        plain = [child.shard(0, shard) for shard in range(4)]
        self.assert_near(whole(plain), whole(parts))
        self.assertEqual(list(map(bits, parts)), list(map(bits, again)))
        self.assertEqual([result.metrics for result in parts], [(4.0,)] * 4)
        one_row = self.fork(text)
        one_row.start()
        self.assertEqual(one_row.shard(0, 3, shards=16).metrics, (1.0,))  # fewer parts than asked for

    def test_training_lowers_the_loss(self):
        child, _, state = self.start(ROWS % "" + "    shard.backward(loss(shard.samples))\n")
        losses = []
        for step in range(20):
            results = [child.shard(step, shard, samples=list(range(4 * shard, 4 * shard + 4))) for shard in range(4)]
            losses.append(sum(result.loss for result in results))
            state.apply([result.gradients for result in results], results[0].rates)
        self.assertLess(losses[-1], losses[0] / 2)


class Bits(fake_worker.ScriptTest):
    def test_no_order_no_child_and_no_death_changes_them(self):
        child, _, state = self.start(DRAWS)
        first = {(step, shard): bits(child.shard(step, shard)) for step in range(2) for shard in range(4)}
        self.assertEqual(len({str(value) for value in first.values()}), 8)
        other = self.fork()
        other.join(state)
        for step, shard in ((1, 3), (0, 2), (0, 0), (0, 2), (1, 0)):
            self.assertEqual(bits(other.shard(step, shard)), first[step, shard])
        other.ask(1, 1)
        os.kill(other.pid, signal.SIGKILL)
        self.assertEqual(self.zygote.exited(other.pid), -signal.SIGKILL)
        with self.assertRaises(fake_worker.Gone):
            other.answer(1, 1)
            other.answer(1, 1)
        third = self.fork()
        third.join(state)
        self.assertEqual(bits(third.shard(1, 1)), first[1, 1])
        self.assertEqual(bits(child.shard(1, 1)), first[1, 1])

    def test_the_seed_the_step_and_the_shard_do(self):
        child, _, _ = self.start(DRAWS)
        results = [bits(child.shard(*which, seed=seed, samples=[1, 2, 3]))
                   for which, seed in (((0, 0), 1), ((0, 1), 1), ((1, 0), 1), ((0, 0), 2))]
        self.assertEqual(len({str(result) for result in results}), 4)

    def test_a_state_that_was_updated_is_the_state(self):
        def run(kill):
            child, _, state = self.start(DRAWS)
            for step in range(4):
                if step == kill:
                    os.kill(child.pid, signal.SIGKILL)
                    self.zygote.exited(child.pid)
                    child = self.fork()
                    child.join(state)
                results = [child.shard(step, shard) for shard in range(4)]
                state.apply([result.gradients for result in results], results[0].rates)
            return state.sha256()
        undisturbed = run(None)
        self.assertEqual(undisturbed, run(2))

    def test_python_and_numpy_draw_of_the_shard_too(self):
        text = NETWORK + """
import random, numpy
model = nn.Linear(1, 1)
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), metrics=("a", "b", "c"))
for shard in job.shards():
    shard.backward(model(torch.ones(shard.rows, 1)).mean(), a=random.random(), b=numpy.random.rand(), c=torch.rand(()))
"""
        child, _, _ = self.start(text)
        drawn = [child.shard(0, shard).metrics for shard in (0, 1, 0)]
        self.assertEqual(drawn[0], drawn[2])
        self.assertEqual(len({*drawn[0], *drawn[1]}), 6)


class Buckets(fake_worker.ScriptTest):
    def test_small_tensors_share_one_and_large_ones_come_while_backward_runs(self):
        text = NETWORK + """
model = nn.Sequential(*(nn.Linear(1100, 1100) for _ in range(4)), nn.LayerNorm(1100))
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
for shard in job.shards():
    shard.backward(model(torch.ones(shard.rows, 1100)).mean())
"""
        child, facts, _ = self.start(text)
        self.assertEqual([tensor["name"] for tensor in facts["tensors"]],
                         ["4.bias", "4.weight", "3.bias", "3.weight", "2.bias", "2.weight", "1.bias", "1.weight", "0.bias", "0.weight"])
        first, second = child.shard(0, 0), child.shard(0, 0)
        self.assertEqual((first.buckets, second.buckets), (4, 4))
        self.assertEqual(second.early, list(range(10)))
        self.assertEqual(bits(first), bits(second))

    def test_what_a_shard_did_not_touch_is_zeros(self):
        text = NETWORK + """
model = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
for shard in job.shards():
    shard.backward(model[shard.shard % 3](torch.ones(shard.rows, 2)).mean())
"""
        child, _, _ = self.start(text)
        for shard in (0, 1, 2, 0):
            touched = {name for name, gradient in child.shard(0, shard).gradients.items() if gradient.any()}
            self.assertEqual(touched, {f"{shard}.weight", f"{shard}.bias"})

    def test_tied_weights_are_one_tensor_with_the_gradients_of_both_places(self):
        text = NETWORK + """
class Tied(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.table, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        nn.init.normal_(self.head.weight)
        if tied:
            self.table.weight = self.head.weight
        else:
            self.table.weight.data.copy_(self.head.weight.data)
    def forward(self, x):
        return self.head(self.table(x))
model = Tied(%s)
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
for shard in job.shards():
    x = torch.arange(shard.rows) %% 5
    shard.backward(nn.functional.cross_entropy(model(x), x))
"""
        child, facts, _ = self.start(text % "True")
        self.assertEqual([tensor["name"] for tensor in facts["tensors"]], ["table.weight"])
        self.assertEqual(facts["aliases"], {"head.weight": "table.weight"})
        tied = child.shard(0, 0).gradients["table.weight"]
        child, facts, _ = self.start(text % "False")
        self.assertEqual([tensor["name"] for tensor in facts["tensors"]], ["head.weight", "table.weight"])
        apart = child.shard(0, 0).gradients
        numpy.testing.assert_allclose(tied, apart["head.weight"] + apart["table.weight"], rtol=1e-5, atol=1e-7)

    def test_a_gradient_that_comes_twice_is_whole(self):
        text = NETWORK + """
model = nn.Linear(3, 3)
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
def run(x, again):
    return checkpoint(model, x) if again else model(x)
for shard in job.shards():
    x = torch.ones(shard.rows, 3, requires_grad=True)
    again = %s
    shard.backward((run(x, again) + run(2 * x, again)).square().mean())
"""
        plain, _, _ = self.start(text % "False")
        twice, _, _ = self.start(text % "True")
        results = [twice.shard(0, shard) for shard in (0, 1, 0)]
        self.assertEqual(bits(results[0]), bits(results[2]))
        for name, gradient in plain.shard(0, 0).gradients.items():
            numpy.testing.assert_allclose(gradient, results[0].gradients[name], rtol=1e-5)
        once, _, _ = self.start(text % "shard.shard > 0")
        once.shard(0, 0)
        with self.assertRaisesRegex(fake_worker.Raised, "Refused: the gradient of (weight|bias) came a second time"):
            once.shard(0, 1)


if __name__ == "__main__":
    unittest.main()
