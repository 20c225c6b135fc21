#!/usr/bin/python3
"""What a script has beside gradients: buffers, counters, constants, and parameters that it cannot write."""
import signal
import sys
import unittest

sys.dont_write_bytecode = True

import fake_worker
import numpy

HEAD = """
import torch
from torch import nn
import ringmaster.torch
torch.manual_seed(3)
"""

NORM = HEAD + """
model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=0.25))
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), metrics=("mean", "tracked"))
for shard in job.shards():
    x = torch.tensor(shard.samples, dtype=torch.float32).reshape(-1, 1) * torch.ones(4)
    tracked = model[1].num_batches_tracked.clone()
    seen = model[0](x).mean(0)
    %s
    shard.backward(out.sin().mean(), mean=seen[0], tracked=tracked)
"""

LINE = HEAD + """
model = nn.Linear(2, 1)
x = torch.ones(4, 2)
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
for shard in job.shards():
%s
    shard.backward(model(x).mean())
"""


class Buffers(fake_worker.ScriptTest):
    def test_means_move_by_the_sample_weighted_mean_over_shards(self):
        child, facts, state = self.start(NORM % ("out = model(x)"))
        roles = {tensor["name"]: tensor["role"] for tensor in facts["tensors"]}
        self.assertEqual(roles["1.running_mean"], "BUFFER")
        self.assertEqual(list(roles.values()), ["PARAMETER"] * 4 + ["BUFFER"] * 2)
        self.assertEqual((facts["counters"], facts["counter_starts"]), (["1.num_batches_tracked"], [0]))
        state.values["1.running_mean"][...] = [7, -3, 0]
        rows = {0: 3, 1: 13}
        begin, mean = 0, 0
        changes = []
        for shard, count in rows.items():
            result = child.shard(0, shard, shards=2, samples=list(range(begin, begin + count)))
            begin += count
            mean += result.metrics[0] * count / 16
            changes.append(result.gradients["1.running_mean"].astype(numpy.float64))
        self.assertAlmostEqual(float(7 + sum(changes)[0]), 0.75 * 7 + 0.25 * mean, places=4)

    def test_each_shard_begins_with_those_of_the_state(self):
        child, _, _ = self.start(NORM % ("out = model(x)"))
        first = child.shard(0, 0).gradients
        child.shard(0, 1)
        self.assertEqual(first["1.running_var"].tobytes(), child.shard(0, 0).gradients["1.running_var"].tobytes())
        self.assertEqual([child.shard(0, 0, update=update).metrics[1] for update in (0, 7, 500, 7)], [0, 7, 500, 7])

    def test_a_module_that_does_not_run_changes_nothing(self):
        child, _, _ = self.start(NORM % ("out = model[0](x)"))
        result = child.shard(0, 0, update=3)
        self.assertFalse(result.gradients["1.running_mean"].any())
        self.assertFalse(result.gradients["1.weight"].any())
        self.assertTrue(result.gradients["0.weight"].any())

    def test_a_counter_that_counts_twice_is_named(self):
        child, _, _ = self.start(NORM % ("out = model[1](model(x))"))
        with self.assertRaisesRegex(fake_worker.Raised, r"Refused: counter 1\.num_batches_tracked was changed by 2 in a shard"):
            child.shard(0, 0)

    def test_a_count_goes_on_from_where_weights_had_it(self):
        text = NORM % ("out = model(x)")
        child, facts, _ = self.start(text.replace("job =", "model[1].num_batches_tracked.fill_(90)\njob ="))
        self.assertEqual(facts["counter_starts"], [90])
        self.assertEqual(child.shard(0, 0, update=5).metrics[1], 95)

    def test_a_buffer_that_the_module_replaces(self):
        text = HEAD + """
class Average(nn.Linear):
    def __init__(self):
        super().__init__(2, 1)
        self.register_buffer("seen", torch.zeros(2))
    def forward(self, x):
        self.seen = %s
        return super().forward(x)
model = Average()
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
for shard in job.shards():
    shard.backward(model(torch.ones(shard.rows, 2)).mean())
"""
        child, _, _ = self.start(text % "0.5 * self.seen + x.detach().mean(0)")
        for _ in range(2):
            self.assertEqual(child.shard(0, 0).gradients["seen"].tolist(), [0.25, 0.25])
        child, _, _ = self.start(text % "torch.zeros(3)")
        with self.assertRaisesRegex(fake_worker.Raised, r"buffer seen was float32 \[2\] at attach and is torch.float32 \[3\]"):
            child.shard(0, 0)


class Constants(fake_worker.ScriptTest):
    TEXT = HEAD + """
class Masked(nn.Linear):
    def __init__(self):
        super().__init__(2, 1)
        self.register_buffer("mask", torch.tensor([True, %s]))
        self.register_buffer("scale", torch.tensor([2.0]), persistent=False)
        self.base = nn.Linear(1, 1)
        self.base.weight.requires_grad_(False)
    def forward(self, x):
        %s
        return super().forward(x * self.mask) * self.scale
model = Masked()
job = ringmaster.torch.attach(model, torch.optim.SGD([model.weight, model.bias], lr=0.1))
for shard in job.shards():
    shard.backward(model(torch.ones(shard.rows, 2)).mean())
"""

    def test_what_is_not_trained_is_in_one_hash(self):
        hashes = []
        for second in ("True", "False", "True"):
            _, facts, _ = self.start(self.TEXT % (second, "pass"))
            self.assertEqual([tensor["name"] for tensor in facts["tensors"]], ["bias", "weight"])
            hashes.append(facts["frozen_sha256"])
        self.assertEqual(hashes[0], hashes[2])
        self.assertNotEqual(hashes[0], hashes[1])

    def test_whoever_changes_one_is_told(self):
        for change, name in (("self.mask[0] = True", "mask"), ("self.scale.mul_(1)", "scale"),
                             ("self.base.weight.requires_grad_(True)", "base.weight")):
            child, _, _ = self.start(self.TEXT % ("True", change))
            with self.assertRaisesRegex(fake_worker.Raised, f"Refused: {name} was changed after attach"):
                child.shard(0, 0)


class Parameters(fake_worker.ScriptTest):
    def test_writing_to_one_ends_the_process_and_names_the_line(self):
        for write in ("    with torch.no_grad(): model.weight.mul_(2)", "    model.weight.data[0] = 1",
                      "    model.load_state_dict({key: value.clone() for key, value in model.state_dict().items()})"):
            child, _, _ = self.start(LINE % write)
            child.ask(0, 0)
            with self.assertRaises(fake_worker.Gone):
                child.answer(0, 0)
            self.assertEqual(self.zygote.exited(child.pid), -signal.SIGSEGV)
            self.assertIn("Segmentation fault", child.said())
            self.assertIn(f'"{self.zygote.script}", line 11 in <module>', child.said())

    def test_one_that_is_replaced_is_named(self):
        child, _, _ = self.start(LINE % "    if shard.step == 1: model.weight.data = torch.ones(1, 2)")
        child.shard(0, 0)
        child.shard(1, 0)
        with self.assertRaisesRegex(fake_worker.Raised, "Refused: weight was replaced after attach"):
            child.shard(2, 0)

    def test_they_are_the_state(self):
        child, _, state = self.start(LINE % "    pass")
        first = child.shard(0, 0).loss
        state.values["bias"] += 1
        self.assertAlmostEqual(child.shard(1, 0).loss, first + 4, places=5)


if __name__ == "__main__":
    unittest.main()
