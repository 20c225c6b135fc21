#!/usr/bin/python3
"""What a script may do in its loop and what is refused there; its samples; its callbacks."""
import os
import select
import signal
import sys
import unittest

sys.dont_write_bytecode = True

import fake_worker

HEAD = """
import torch
from torch import nn
import ringmaster.torch
torch.manual_seed(3)
"""

LINE = HEAD + """
model = nn.Linear(2, 1)
x = torch.ones(4, 2)
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
for shard in job.shards():
%s
    shard.backward(model(x).mean())
"""


class Loop(fake_worker.ScriptTest):
    def test_what_has_no_effect_is_refused(self):
        for line, said in (("model(x).mean().backward()", "weight.grad was written in the loop|bias.grad was written in the loop"),
                           ("shard.backward(model(x).mean())", "rows that had one"),
                           ("shard.backward(model(x))", "a tensor of one number"),
                           ("shard.backward(model(x).mean(), top5=1)", r"metrics \['top5'\], attach has \[\]"),
                           ("shard.batch", "attach has no dataset"),
                           ("torch.set_num_threads(2); continue", "had a backward for 0 of its 4 rows"),
                           ("next(iter(shard.parts(2))).backward(model(x).mean()); continue", "for 2 of its 4 rows")):
            child, _, _ = self.start(LINE % f"    {line}")
            with self.assertRaisesRegex(fake_worker.Raised, said):
                child.shard(0, 0)

    def test_clipping_behind_backward_is_refused_and_zero_grad_is_not(self):
        text = LINE % "    pass" + "    %s\n"
        for line in ("torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)", "model(x).mean().backward()"):
            child, _, _ = self.start(text % line)
            with self.assertRaisesRegex(fake_worker.Raised, "clip_norm or clip_value of attach"):
                child.shard(0, 0)
        for line in ("model.zero_grad(set_to_none=False)", "model.zero_grad(set_to_none=True)"):
            child, _, _ = self.start(text % line)
            child.shard(0, 0)
            child.shard(0, 1)

    def test_a_loop_that_is_left_and_entered_again(self):
        before, loop = (LINE % "    pass" + "    if shard.step % 2: break\n").split("for shard")
        text = before + "while True:\n  for shard" + loop.replace("\n", "\n  ")
        child, _, _ = self.start(text)
        for step in range(4):
            child.shard(step, 0)

    def test_threads_and_flags_stay(self):
        for line, said in (("torch.set_num_threads(2)", r"torch.set_num_threads\(2\) was called after attach"),
                           ("torch.use_deterministic_algorithms(False)", "leave it out")):
            child, _, _ = self.start(LINE % f"    {line}")
            child.shard(0, 0)
            with self.assertRaisesRegex(fake_worker.Raised, said):
                child.shard(0, 1)
        child, facts, _ = self.start(LINE % "    print(torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())",
                                     threads=2, deterministic=False)
        child.shard(0, 0)
        self.assertEqual(child.said(), "2 False\n")
        self.assertEqual(facts["libraries"]["threads"], "2")

    def test_an_op_whose_bits_do_not_repeat_says_what_to_do(self):
        line = "    torch.zeros(3).put_(torch.tensor([0]), torch.ones(1), accumulate=False)"
        child, _, _ = self.start(LINE % line)
        with self.assertRaisesRegex(fake_worker.Raised, "RuntimeError: put_.* -- ringmaster: .* use another one"):
            child.shard(0, 0)

    def test_a_script_s_own_gradients_are_its_own(self):
        child, _, _ = self.start(LINE % "    pass")
        plain = child.shard(0, 0).gradients["weight"]
        child, _, _ = self.start(LINE % """
    y = x.clone().requires_grad_()
    torch.autograd.grad(model(y).square().mean(), [y, model.weight])""")
        self.assertEqual(plain.tobytes(), child.shard(0, 0).gradients["weight"].tobytes())


DATASET = HEAD + """
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler
class Numbers(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, number):
        return torch.tensor([float(number), torch.rand(()).item()]), number
model = nn.Linear(2, 1)
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), dataset=%s, metrics=("number", "rand", "own"))
for shard in job.shards():
    %s
    x, number = shard.batch
    assert shard.batch[0] is x and number.tolist() == shard.samples and shard.rows == len(x)
    shard.backward(model(x).mean(), number=x[:, 0], rand=x[:, 1], own=torch.rand(()) if %s else own)
"""


class Samples(fake_worker.ScriptTest):
    def test_each_is_the_same_in_whatever_shard_it_is(self):
        child, facts, _ = self.start(DATASET % ("Numbers()", "pass", "True"))
        self.assertEqual(facts["samples"], 64)
        both = child.shard(0, 0, samples=[5, 9]).metrics
        apart = [child.shard(0, shard, samples=[number]).metrics for shard, number in ((1, 5), (2, 9))]
        self.assertEqual(both[0], 14)
        self.assertEqual(both[1], apart[0][1] + apart[1][1])
        self.assertNotEqual(both[1], child.shard(1, 0, samples=[5, 9]).metrics[1])  # augmented anew in another step
        early, _, _ = self.start(DATASET % ("Numbers()", "own = torch.rand(())", "False"))
        self.assertEqual(early.shard(0, 0, samples=[5, 9]).metrics, both)  # reading draws nothing of the shard's

    def test_a_loader_gives_its_dataset_and_how_it_collates(self):
        collate = "lambda rows: (torch.stack([row[0] for row in rows]) * 2, torch.tensor([row[1] for row in rows]))"
        child, _, _ = self.start(DATASET % (f"DataLoader(Numbers(), batch_size=4, shuffle=True, collate_fn={collate})", "pass",
                                            "True"))
        self.assertEqual(child.shard(0, 0, samples=[5, 9]).metrics[0], 28)
        child, _, _ = self.start(DATASET % (f"Numbers(), collate_fn={collate}", "pass", "True"))
        self.assertEqual(child.shard(0, 0, samples=[5, 9]).metrics[0], 28)


# What reads a sample says so in its first number: 1000 and more are loaders. `trouble`: of sample 13 in a loader.
LOADED = HEAD + """
import os, signal, time
from torch.utils.data import DataLoader, Dataset
main = os.getpid()
class Numbers(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, number):
        if number == 13 and os.getpid() != main:
            {trouble}
        return {{"x": torch.rand(3, 5).t()[1:], "name": str(number), "where": int(os.getpid() != main), "half": torch.rand(2).half()}}
model = nn.Linear(3, 1)
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), metrics=("loaded", "rows"),
                              dataset=DataLoader(Numbers(), num_workers={loaders}))
for shard in job.shards():
    for part in shard.parts({parts}):
        batch = part.batch
        assert batch["name"] == [str(number) for number in part.samples] and batch["x"].data_ptr() % 64 == 0, batch
        batch["x"] += 1  # the script's own memory
        loss = (model(batch["x"]).mean((1, 2)) * torch.rand(part.rows) + batch["half"].float().sum(1)).mean()
        part.backward(loss, loaded=batch["where"], rows=torch.ones(part.rows))
"""


class Loaders(fake_worker.ScriptTest):
    def shards(self, ahead=(), loaders=2, parts=1, trouble="pass", threads=1):
        """What shards of (step, samples) give, and how many of their samples came from loaders."""
        child, facts, _ = self.start(LOADED.format(loaders=loaders, parts=parts, trouble=trouble), threads=threads)
        self.assertEqual(int(facts["ahead"]), 2 * loaders)
        results = []
        for step, samples in enumerate(([1, 2, 3], [4, 13], [6, 7, 8, 9], [10])):
            for coming in (each for each in ahead if each[0] == step):
                child.ahead(coming[1], 0, coming[2])
            results.append(child.shard(step, 0, shards=1, samples=samples))
        self.child = child
        return ([(result.loss, result.metrics[1], {name: gradient.tobytes() for name, gradient in result.gradients.items()})
                 for result in results], [result.metrics[0] for result in results])

    def test_what_they_read_is_what_is_read_without_them(self):
        expected, counts = self.shards(loaders=0)
        self.assertEqual(counts, [0, 0, 0, 0])
        ahead = [(0, 1, [4, 13]), (0, 2, [6, 7, 8, 9]), (1, 3, [10])]
        self.assertEqual(self.shards(ahead), (expected, [0, 2, 4, 1]))
        self.assertEqual(self.shards(ahead, loaders=1), (expected, [0, 2, 4, 1]))
        self.assertEqual(self.shards(ahead, loaders=5, threads=2), (self.shards(threads=2)[0], [0, 2, 4, 1]))

    def test_parts_are_read_as_parts(self):
        ahead = [(0, 1, [4, 13]), (1, 2, [6, 7, 8, 9]), (2, 3, [10])]
        expected, _ = self.shards(loaders=0, parts=2)
        # Which parts there are the first shard shows.
        self.assertEqual(self.shards(ahead, parts=2), (expected, [0, 0, 4, 1]))

    def test_what_does_not_come_and_what_comes_unexpected(self):
        ahead = [(0, 1, [5, 6]), (0, 2, [6, 7, 8]), (0, 2, [6, 7, 8, 9]), (0, 2, [6, 7, 8, 9]), (0, 3, [9])]
        self.assertEqual(self.shards(ahead), (self.shards(loaders=0)[0], [0, 0, 4, 0]))

    def test_one_that_dies_costs_time_alone(self):
        expected, _ = self.shards(loaders=0)
        ahead = [(0, 1, [4, 13]), (0, 2, [6, 7, 8, 9]), (1, 3, [10])]
        for trouble, counts, said in (("os.kill(os.getpid(), signal.SIGKILL)", [0, 0, 4, 0], "was killed by signal 9"),
                                      ("os._exit(3)", [0, 0, 4, 0], "ended with status 3")):
            self.assertEqual(self.shards(ahead, trouble=trouble), (expected, counts))
            self.assertRegex(self.child.said(), f"^ringmaster: a process that reads samples ahead {said}; what it had is read here")

    def test_what_one_cannot_read_is_raised_where_it_is_wanted(self):
        ahead = [(0, 1, [4, 13]), (0, 2, [6, 7, 8, 9])]
        expected, _ = self.shards(loaders=0)
        self.assertEqual(self.shards(ahead, trouble="raise ValueError(number)"), (expected, [0, 0, 4, 0]))
        self.assertEqual(self.shards(ahead, trouble="return lambda: 1"), (expected, [0, 0, 4, 0]))

    def test_more_is_told_than_they_can_read(self):
        for loaders in (0, 1):
            child, _, _ = self.start(LOADED.format(loaders=loaders, parts=1, trouble="time.sleep(60)"))
            child.ahead(1, 0, [13] * 10000)
            for shard in range(700):
                child.ahead(1, shard, [14] * (10000 if shard < 20 else 2))
            self.assertEqual(child.shard(0, 0, shards=1, samples=[3]).metrics[0], 0)

    def test_whose_every_process_dies_is_left_alone(self):
        child, _, _ = self.start(LOADED.format(loaders=1, parts=1, trouble="os._exit(3)"))
        for step in range(8):
            child.ahead(step, 0, [13])
            self.assertEqual(child.shard(step, 0, shards=1, samples=[13]).metrics[0], 0)
        self.assertEqual(child.said().count("ended with status 3"), 5)
        self.assertRegex(child.said(), "\\nringmaster: 5 of them died: samples are read here from now on\\n$")

    def test_they_end_with_the_job(self):
        text = LOADED.format(loaders=2, parts=1, trouble="pass")
        child, _, _ = self.start("import signal\nsignal.signal(signal.SIGTERM, lambda *_: None)\n" + text)
        child.ahead(1, 0, [1])
        child.ahead(1, 0, [2])
        child.shard(0, 0, shards=1, samples=[3])
        child.end()
        self.assertEqual(self.zygote.exited(child.pid), 0)

    def test_they_end_with_their_process(self):
        child, _, _ = self.start(LOADED.format(loaders=2, parts=1, trouble="pass"))
        child.ahead(1, 0, [1])
        child.ahead(1, 0, [2])
        child.shard(0, 0, shards=1, samples=[3])
        with open(f"/proc/{child.pid}/task/{child.pid}/children", encoding="ascii") as file:
            loaders = [int(pid) for pid in file.read().split()]
        self.assertEqual(len(loaders), 2)
        handles = [os.pidfd_open(pid) for pid in loaders]
        os.kill(child.pid, signal.SIGKILL)
        for handle in handles:
            self.assertTrue(select.select([handle], [], [], fake_worker.PATIENCE)[0])
            os.close(handle)


# What stands in a batch, and what is seen of it.
ODD = HEAD + """
import collections, numpy, os
from torch.utils.data import DataLoader
Pair = collections.namedtuple("Pair", "x y")
class Named(torch.Tensor):
    pass
def tagged(tensor):
    tensor.note = "seven"
    return tensor
main = os.getpid()
base = torch.arange(40.0).reshape(5, 8)
def collate(rows):
    whole, wide = torch.rand(6, 8), numpy.random.rand(6, 8).astype("f")
    value = {value}
    return value, os.getpid() != main
def look(value):
    if isinstance(value, torch.Tensor):
        memory = value.data_ptr() % 64
        return (type(value).__name__, str(value.dtype), tuple(value.shape), value.stride(), memory, value.requires_grad,
                dict(value.__dict__), value.detach().contiguous().int_repr().tolist() if value.is_quantized else value.tolist())
    if isinstance(value, numpy.ndarray):
        return type(value).__name__, str(value.dtype), value.shape, value.strides, value.flags.writeable, value.tolist()
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [look(each) for each in value]
    return value
model = nn.Linear(8, 1)
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), metrics=("loaded",),
                              dataset=DataLoader(range(64), num_workers={loaders}, collate_fn=collate))
for shard in job.shards():
    with torch.autocast("cpu"), torch.no_grad():
        value, loaded = shard.batch
    print(look(value))
    shard.backward(model(torch.ones(1, 8)).mean(), loaded=float(loaded))
"""


class Batches(fake_worker.ScriptTest):
    def seen(self, value, loaders):
        child, _, _ = self.start(ODD.format(value=value, loaders=loaders))
        child.ahead(1, 0, [3, 5])
        child.shard(0, 0, shards=1, samples=[1, 2])
        loaded = child.shard(1, 0, shards=1, samples=[3, 5]).metrics[0]
        return child.said(), loaded

    def test_come_out_as_they_went_in_or_are_read_here(self):
        for value, ahead in (
                ("whole[1:, 2:]", 1), ("whole.t()", 1), ("whole[:, ::2]", 1), ("whole[0, 0]", 1), ("whole[:0]", 1),
                ("whole[:1].expand(4, 8)", 1), ("(whole > 0.5, whole.bfloat16(), whole.half(), whole.to(torch.complex64))", 1),
                ("Pair(whole, [None, 'text', 7])", 1), ("[whole] * 2", 1), ("whole.requires_grad_()", 1), ("whole @ whole.t()", 1),
                ("torch.is_grad_enabled()", 1), ("(wide[1:], wide.T.copy(), wide.astype(bool), wide[:0])", 1),
                ("numpy.array(['a', None])", 1),
                ("wide[:, 2:]", 1), ("numpy.asfortranarray(wide)", 1),
                ("(whole[:, :-1], whole[:, 1:])", 0), ("(whole, whole.numpy())", 0), ("whole[:, ::5]", 0),
                ("model(whole)", 0), ("tagged(whole)", 0), ("whole.as_subclass(Named)", 0), ("nn.Parameter(whole)", 0),
                ("torch.quantize_per_tensor(whole, 0.1, 0, torch.quint8)", 0), ("whole.to_sparse().coalesce().indices()", 1),
                ("numpy.broadcast_to(wide[0], (3, 8))", 0), ("wide[::-1]", 0), ("lambda: 1", 0)):
            with self.subTest(value):
                here, none = self.seen(value, 0)
                self.assertEqual(none, 0)
                got, loaded = self.seen(value, 2)
                self.assertEqual(loaded, ahead)
                if "lambda" not in value:
                    self.assertEqual(got, here)


class Callbacks(fake_worker.ScriptTest):
    TEXT = HEAD + """
model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 1))
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
def look():
    print("look", job.step, model[1].num_batches_tracked.item())
    model(torch.rand(5, 2)).mean().backward()
    model.eval()
    torch.set_grad_enabled(False)
    1 / 0
%s
for shard in job.shards():
    shard.backward(model(torch.rand(shard.rows, 2)).mean())
"""

    def test_what_one_does_is_undone(self):
        without, _, state = self.start(self.TEXT % "")
        child = self.fork(self.TEXT % "job.every(2, look)")
        child.join(state)
        for step, shard in ((0, 0), (0, 1), (1, 0), (3, 2), (4, 0)):
            expected, got = without.shard(step, shard), child.shard(step, shard)
            self.assertEqual({name: gradient.tobytes() for name, gradient in expected.gradients.items()},
                             {name: gradient.tobytes() for name, gradient in got.gradients.items()}, (step, shard))
        self.assertEqual([line for line in child.said().splitlines() if line.startswith("look")], ["look 0 0", "look 3 0", "look 4 0"])
        self.assertEqual(child.said().count("ZeroDivisionError"), 3)

    def test_the_lead_alone_is_called(self):
        child = self.fork(self.TEXT % "job.every(1, look); print(job.lead)", core_number=3)
        child.start()
        child.shard(0, 0)
        self.assertEqual(child.said(), "False\n")


if __name__ == "__main__":
    unittest.main()
