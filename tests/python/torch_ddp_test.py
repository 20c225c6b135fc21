#!/usr/bin/python3
"""An exact sum under DistributedDataParallel: processes over gloo, whose parameters are compared."""
import contextlib
import copy
import hashlib
import math
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import unittest

sys.dont_write_bytecode = True

import torch
from torch import distributed, nn

import ringmaster.torch

LIMIT_S = 60


def model():
    """Tensors under, over and at a whole number of blocks, one of them channels-last."""
    torch.manual_seed(5)
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1).to(memory_format=torch.channels_last), nn.BatchNorm2d(16), nn.ReLU(),
                         nn.Flatten(), nn.Linear(16 * 64, 40), nn.Tanh(), nn.Linear(40, 256, bias=False), nn.Linear(256, 5))


class Times(nn.Module):
    """Its gradient is what it is called with."""

    def __init__(self, kind):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(300, dtype=kind))

    def forward(self, x):
        return self.weight.float() * x


class Training:
    """What a rank has: a model of its own under DDP, with the hook."""

    def __init__(self, module=None, **options):
        self.module = module or model()
        self.ddp = nn.parallel.DistributedDataParallel(self.module, broadcast_buffers=False, **options)
        self.optimizer = torch.optim.SGD(self.module.parameters(), lr=0.05, momentum=0.9)
        self.sums = ringmaster.torch.ExactSum(self.ddp)
        self.ddp.register_comm_hook(self.sums, ringmaster.torch.ddp_hook)

    def gradients(self, part, step, scale=1.0):
        """name -> gradient, of a part of a step's batch."""
        torch.manual_seed(1000 * step + part)
        x, y = torch.randn(4, 3, 8, 8), torch.randint(5, (4,))
        self.optimizer.zero_grad(set_to_none=True)
        (scale * nn.functional.cross_entropy(self.ddp(x), y)).backward()
        return self.left()

    def left(self):
        return {name: parameter.grad.clone() for name, parameter in self.module.named_parameters()}

    def steps(self, first, last, part):
        for step in range(first, last):
            self.gradients(part, step)
            self.optimizer.step()

    def sha256(self):
        return hashlib.sha256(b"".join(parameter.detach().contiguous().numpy().tobytes()
                                       for parameter in self.module.parameters())).hexdigest()


def on_ranks(world, function):
    """What function(rank) gives on each of so many processes."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        fork = multiprocessing.get_context("fork")
        lanes = []
        for rank in range(world):
            ours, theirs = fork.Pipe()
            process = fork.Process(target=be_rank, args=(rank, world, f"{folder}/store", function, theirs))
            process.start()
            theirs.close()
            ends.callback(process.join, LIMIT_S)
            ends.callback(process.kill)
            lanes.append(ours)
        end = time.monotonic() + LIMIT_S
        results = []
        for rank, lane in enumerate(lanes):
            if not lane.poll(max(0, end - time.monotonic())):
                raise AssertionError(f"rank {rank} of {world} has not answered in {LIMIT_S} s")
            done, result = lane.recv()
            if not done:
                raise AssertionError(f"rank {rank} of {world}:\n{result}")
            results.append(result)
        return results


def be_rank(rank, world, store, function, lane):
    try:
        torch.set_num_threads(1)
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
        lane.send((True, function(rank)))
    except Exception:
        lane.send((False, traceback.format_exc()))
    lane.poll(LIMIT_S)  # the others may not be done: who has all answers ends us


def exponents_of(mean, precision_bits=21):
    """The rule, element by element: of each block floor(log2) of its largest, not under the tensor's minus 12."""
    largest = [max((abs(value) for value in block.tolist()), default=0.0) for block in mean.reshape(-1).split(256)]
    own = [math.frexp(value)[1] - 1 if value else -1000 for value in largest]
    return [min(max(each, max(own) - 12, precision_bits - 40), 127) for each in own]


class Sums(unittest.TestCase):
    def assert_one(self, results):
        self.assertEqual(len(set(results)), 1, results)
        return results[0]

    def test_the_order_of_ranks_and_the_size_of_buckets_move_no_bit(self):
        def train(turn, megabytes, **options):
            def rank_trains(rank):
                training = Training(bucket_cap_mb=megabytes, **options)
                training.steps(0, 4, (rank + turn) % 3)
                return training.sha256()
            return self.assert_one(on_ranks(3, rank_trains))
        expected = train(0, 25)
        self.assertEqual(train(1, 25), expected)
        self.assertEqual(train(2, 0.05), expected)
        self.assertEqual(train(1, 0.01, gradient_as_bucket_view=True), expected)

    def test_it_is_the_mean_of_what_the_ranks_have(self):
        def compare(rank):
            training = Training(bucket_cap_mb=0.01)
            training.gradients(rank, 0)  # nothing is learned: what follows has units of this step
            state, worst = training.sums.state_dict(), []
            for scale in (1.0, 2.0 ** 18):
                training.sums.load_state_dict(state)
                with training.ddp.no_sync():
                    own = training.gradients(rank, 1, scale)
                worst.append(max(self.error(own[name], mean, state["exponents"][name])
                                 for name, mean in training.gradients(rank, 1, scale).items()))
            return worst
        for worst in on_ranks(3, compare):
            self.assertLess(max(worst), 1, worst)

    def error(self, own, mean, exponents):
        """The largest, in parts of what the rule allows; collective."""
        exact = own.double()
        distributed.all_reduce(exact)
        unit = (2.0 ** (exponents.double() - 21)).repeat_interleave(256)[:own.numel()]
        # Each of 3 ranks rounds to half a unit of a sum that is 4/3 of the mean, which is rounded to float32.
        allowed = 3 / 2 * 4 / 3 * unit + 2 ** -24 * mean.abs().double().reshape(-1)
        return float(((mean.double() - exact / 3).abs().reshape(-1) / allowed).max())

    def test_units_follow_the_mean_of_the_step_before(self):
        def follow(rank):
            training = Training(bucket_cap_mb=0.01)
            before = training.sums.state_dict()["exponents"]
            mean = training.gradients(rank, 0)
            return before, mean, training.sums.state_dict()["exponents"]
        for before, mean, after in on_ranks(2, follow):
            self.assertEqual(list(after), list(mean))
            for name, gradient in mean.items():
                self.assertEqual(set(before[name].tolist()), {21 - 40}, name)
                self.assertEqual(after[name].tolist(), exponents_of(gradient), name)

    def test_what_is_not_finite_is_so_on_every_rank_and_over_with_its_step(self):
        def spoil(rank):
            training = Training()
            training.gradients(rank, 0)
            spoiled = training.gradients(rank, 1, math.inf if rank == 1 else 1.0)
            units = {exponent for each in training.sums.state_dict()["exponents"].values() for exponent in each.tolist()}
            return [bool(torch.isnan(gradient).all()) for gradient in spoiled.values()], units, training.gradients(rank, 2)
        (first, units, after), (second, _, _) = on_ranks(2, spoil)
        self.assertTrue(all(first) and all(second))
        self.assertEqual(units, {21 - 40})
        self.assertTrue(all(bool(torch.isfinite(gradient).all()) for gradient in after.values()))

    def test_a_parameter_that_a_rank_does_not_use(self):
        class Two(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(5)
                self.one, self.other, self.none = nn.Linear(4, 3), nn.Linear(4, 3), nn.Parameter(torch.zeros(0))

            def forward(self, x, both):
                return (self.one(x) + self.other(x) if both else self.one(x)) + self.none.sum()

        def use(rank):
            training = Training(Two(), find_unused_parameters=True)
            for _ in range(3):
                training.ddp(torch.full((2, 4), 1.0 + rank), rank == 1).sum().backward()
            return training.left()["other.weight"] if rank == 1 else None
        self.assertEqual(on_ranks(2, use)[1].tolist(), [[6.0] * 4] * 3)  # three steps of (0 + 4) / 2

    def test_numbers_of_every_size(self):
        # Three times 2^19 * 1400 does not fit into int32. The last one's mean is none, for the step behind it began anew.
        sizes = [1023.0, 1024.0, 1400.0, 2047.0, 4095.0, 4096.0, 2.0 ** 40, 2.0 ** 100]

        def grow(rank):
            training = Training(Times(torch.float32))
            means = []
            for size in sizes:
                for factor in (1.0, -size):
                    training.optimizer.zero_grad()
                    training.ddp(factor).sum().backward()
                means.append(training.left()["weight"][-1].item())
            return means
        for means in on_ranks(3, grow):
            self.assertEqual(means[:-1], [-size for size in sizes[:-1]])
            self.assertTrue(math.isnan(means[-1]))

    def test_half_precision(self):
        def train(rank):
            training = Training(Times(torch.float16))
            training.ddp(1.0 + rank).sum().backward()
            return training.left()["weight"]
        for gradient in on_ranks(2, train):
            self.assertEqual(gradient.dtype, torch.float16)
            self.assertEqual(set(gradient.tolist()), {1.5})

    def test_with_its_state_a_run_goes_on_as_if_it_had_not_ended(self):
        def train(rank):
            whole = Training()
            whole.steps(0, 3, rank)
            saved = {"model": copy.deepcopy(whole.module.state_dict()), "sums": whole.sums.state_dict(),
                     "optimizer": copy.deepcopy(whole.optimizer.state_dict())}
            whole.steps(3, 5, rank)
            resumed = Training()
            resumed.module.load_state_dict(saved["model"])
            resumed.optimizer.load_state_dict(saved["optimizer"])
            resumed.sums.load_state_dict(saved["sums"])
            resumed.steps(3, 5, rank)
            return whole.sha256(), resumed.sha256()
        self.assert_one([sha for both in on_ranks(2, train) for sha in both])


class Checks(unittest.TestCase):
    def test_ranks_that_differ_are_named_on_each(self):
        def differ(rank):
            training = Training()
            training.steps(0, 2, rank)
            same = training.sums.check()
            if rank == 1:
                with torch.no_grad():
                    training.module[7].bias[0] += 2 ** -20
            try:
                return same, training.sums.check()
            except RuntimeError as error:
                return same, str(error)
        results = on_ranks(3, differ)
        self.assertEqual(len({same for same, _ in results}), 1)
        for _, said in results:
            self.assertRegex(said, r"^parameters or exponents are not the same: \w{16} on rank 0, 2; \w{16} on rank 1$")

    def test_what_it_cannot_do_is_refused(self):
        def refuse(rank):
            said, sums = [], Training().sums
            own = sums.state_dict()["exponents"]

            def load(**parts):
                sums.load_state_dict({**sums.state_dict(), **parts})
            for attempt in (lambda: ringmaster.torch.ExactSum(nn.Linear(2, 2)),
                            lambda: ringmaster.torch.ExactSum(nn.parallel.DistributedDataParallel(nn.Linear(2, 2)), 25),
                            lambda: ringmaster.torch.ExactSum(nn.parallel.DistributedDataParallel(nn.Linear(2, 2).double())),
                            lambda: load(exponents={}), lambda: load(precision_bits=20),
                            lambda: load(exponents={**own, "7.bias": torch.zeros(2)}),
                            lambda: load(exponents={**own, "7.bias": torch.tensor([300])}),
                            lambda: ringmaster.torch.ddp_hook(None, None)):
                try:
                    attempt()
                except (TypeError, ValueError) as error:
                    said.append(str(error))
            return said
        [said] = on_ranks(1, refuse)
        for sentence, expected in zip(said, ("takes the DistributedDataParallel .* a Linear", "8 to 24, and 25", "weight is torch.float64",
                                             "0.bias there are some on one side", "precision_bits=20, and this one has 21",
                                             "7.bias has 1 blocks, and there are 2", "7.bias from 300 to 300, expected -19 to 127",
                                             "an ExactSum was expected, and there is a NoneType")):
            self.assertRegex(sentence, expected)
        self.assertEqual(len(said), 8)


if __name__ == "__main__":
    unittest.main()
