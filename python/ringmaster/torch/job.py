"""attach, and the job that it makes of a model: the loop that computes what the worker asks for."""
import faulthandler
import hashlib
import os
import sys
import traceback

import torch

from ringmaster import core, solo
from ringmaster.torch import determinism, random
from ringmaster.torch.buffers import Buffers, Constants, Counters, data_of
from ringmaster.torch.data import Data
from ringmaster.torch.gradients import Gradients, plan
from ringmaster.torch.optimizers import Rule
from ringmaster.torch.parameters import Parameters, aliases, refuse
from ringmaster.torch.shard import Shard, Sums

_attached = False


def attach(model, optimizer=None, *, batch=None, shards=None, steps=None, epochs=None, dataset=None, collate_fn=None,
           clip_norm=None, clip_value=None, ema=None, metrics=(), scheduler=None, seed=0, weight="mean"):
    """The Job of this script: ringworker updates `model` by the rule of `optimizer`. Once, in front of the loop.

    The parameters become views of memory that the worker writes and this process cannot: whatever writes to them from
    here on ends it. `batch`: samples of a step; `shards`: the parts that it is computed in; `steps` or, with a dataset,
    `epochs`; `clip_norm`: of all gradients together, `clip_value`: of each number; `ema`: decay of an average of the
    weights; `metrics`: names of numbers that each backward gives; `scheduler`: of the optimizer, of which a step is
    made for each update; `weight`: "mean" where a loss is the mean over its rows, "sum" where it is their sum. What
    the job file says comes before all of these. Raises core.Refused.
    """
    global _attached
    if _attached:
        raise core.Refused("attach was called twice: a script is one job, of one module")
    _refuse_scaler(sys._getframe(1))
    _refuse_options(steps, epochs, dataset, clip_norm, clip_value, weight, metrics)
    refuse(model)
    rule = Rule(optimizer, scheduler)
    data = None if dataset is None else Data(dataset, collate_fn)
    told = {"metrics": list(metrics), "samples": data.samples if data else 0, "ahead": data.ahead if data else 0,
            "batch": batch or 0, "shards": shards or 0, "steps": steps or 0, "epochs": epochs or 0, "seed": seed,
            "groups": rule.groups, "optimizer": rule.facts()}
    if clip_norm is not None:
        told["optimizer"]["clip"] = {"global_norm": float(clip_norm)}
    if clip_value is not None:
        told["optimizer"]["clip"] = {"value": float(clip_value)}
    if ema is not None:
        told["optimizer"]["ema"] = {"decay": float(ema)}
    child = core.current()
    worker = solo.start(told) if child is None else None
    _attached = True
    return Job(child or worker.child, worker, model, rule, data, told, weight)


def _refuse_scaler(frame):
    """`frame`: of the caller."""
    for name, value in (*frame.f_globals.items(), *frame.f_locals.items()):
        if any(kind.__name__ == "GradScaler" for kind in type(value).__mro__) and getattr(value, "is_enabled", bool)():
            raise core.Refused(f"{name} is a GradScaler, which is not supported, because gradients are scaled and checked where "
                               "they are added: remove it, and say precision: {policy: mixed_float16} in the job file")


def _refuse_options(steps, epochs, dataset, clip_norm, clip_value, weight, metrics):
    if steps is not None and epochs is not None:
        raise core.Refused("attach has steps and epochs: give one of them")
    if epochs is not None and dataset is None:
        raise core.Refused("attach has epochs and no dataset, whose length they would be of: give steps")
    if clip_norm is not None and clip_value is not None:
        raise core.Refused("attach has clip_norm and clip_value: give one of them")
    if weight not in ("mean", "sum"):
        raise core.Refused(f"weight={weight!r}: \"mean\" where a loss is the mean over its rows, or \"sum\"")
    if isinstance(metrics, str) or len(set(metrics)) != len(metrics):
        raise core.Refused(f"metrics={metrics!r}: a tuple of names, each once")


class Job:
    """A model whose gradients this process computes, shard by shard, on the thread that runs the script.

    `lead`: this process is core 0 of its worker, for what is to be printed once; the numbers of a shard must not depend
    on it. `step`: that of the shard that is computed, None in front of the first.
    """

    def __init__(self, child, worker, model, rule, data, told, weight):
        self._child, self._worker, self._model, self._rule, self._data = child, worker, model, rule, data
        self._metrics, self._weight = told["metrics"], weight
        self._work, self._sums, self._rates, self._callbacks = None, None, [], []
        self._read = set()  # the first samples of what was read of this shard
        self._hello = child.hello()
        self.lead = self._hello.core == 0
        if not faulthandler.is_enabled():
            faulthandler.enable()  # names the line that writes to a parameter
        determinism.settle(self._hello)
        if self.lead and determinism.slow_kernels():
            print(f"ringmaster: {determinism.slow_kernels()}", file=sys.stderr, flush=True)
        self._parameters = Parameters(model, rule.group_of())
        self._buffers, self._counters = Buffers(model), Counters(model)
        self._constants = Constants(model, self._parameters, self._buffers, self._counters)
        self._gradients = Gradients(self._parameters, child)
        self._buffer_buckets = [[len(self._parameters.names) + number for number in bucket]
                                for bucket in plan([4 * buffer.numel() for buffer in self._buffers.tensors])]
        self._tell(told)
        self._lie_in_state()
        child.ready()

    @property
    def step(self):
        return None if self._work is None else self._work.step

    def shards(self):
        """Shards as they come, until the job has ended. In a worker's child the process ends with the loop."""
        while True:
            if self._sums is not None:
                self._finish()
            try:
                work = self._child.shard(self._data.expect if self._data else None)
            except core.Ended:
                if self._data:
                    self._data.close()
                if self._worker is None:
                    raise
                self._worker.ended()
                self._buffers.restore()
                return
            self._begin(work)
            yield Shard(self, work)

    __iter__ = shards

    def every(self, steps, function):
        """Has the lead call function() in front of its first shard of step 0, `steps`, 2 * `steps` and so on. What it draws,
        and does to the modes and buffers of the model, is undone; what it raises is printed and no more."""
        if int(steps) < 1:
            raise core.Refused(f"job.every({steps}): 1 step or more")
        self._callbacks.append((int(steps), function))

    # ---- What a shard asks of its job ----

    def read(self, work, samples):
        """These samples of the dataset, collated."""
        if self._data is None:
            raise core.Refused("shard.batch: attach has no dataset; give it one, or draw shard.rows rows in the loop")
        self._read.add(samples[0])
        return self._data.batch(samples, work.seed, work.step)

    def backward(self, work, rows, loss, metrics):
        """A pass over so many rows of a shard; with its last rows the gradients are whole."""
        sums = self._sums
        if work is not self._work or sums.rows + rows > work.rows:
            raise core.Refused("shard.backward was called for rows that had one: add the losses of a shard, or take its rows "
                               "in parts (for part in shard.parts(4): part.backward(...))")
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise core.Refused(f"shard.backward has a {type(loss).__name__}, and needs a tensor of one number: the loss of "
                               "its rows")
        mean = self._weight == "mean"
        sums.add(rows, float(loss.detach()) * (rows if mean else 1), metrics)
        whole = sums.rows == work.rows
        self._gradients.backward(loss.float().reshape(()) * (work.seed_scale * (rows if mean else 1)), last=whole)
        if whole:
            self._counters.check(sums.passes)
            self._buffers.write_changes(work.rows * work.seed_scale)
            for bucket in self._buffer_buckets:
                self._child.bucket(bucket)
            self._rates = self._rule.rates()

    # ---- What attach does ----

    def _tell(self, told):
        """FACTS: `told`, and what the module is."""
        tensors = [*self._parameters.tensors, *self._buffers.tensors]
        names = [*self._parameters.names, *self._buffers.names]
        roles = ["PARAMETER"] * len(self._parameters.names) + ["BUFFER"] * len(self._buffers.names)
        groups = [*self._parameters.groups, *[0] * len(self._buffers.names)]
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(data_of(tensor))
        initial = core.memory_file("initial", map(data_of, tensors))
        self._child.facts({
            "tensors": [{"name": name, "shape": list(tensor.shape), "role": role, "group": group}
                        for name, tensor, role, group in zip(names, tensors, roles, groups)],
            "initial_sha256": digest.hexdigest(),
            "frozen_sha256": self._constants.sha256(), "counters": self._counters.names,
            "counter_starts": self._counters.starts, "aliases": aliases(self._model),
            "libraries": determinism.libraries(self._hello.threads), **told}, initial)
        os.close(initial)

    def _lie_in_state(self):
        """LAYOUT."""
        own = len(self._parameters.tensors)
        layout = self._child.layout([4 * tensor.numel() for tensor in (*self._parameters.tensors, *self._buffers.tensors)])
        self._parameters.lie_at(layout.state, layout.offsets[:own])
        self._gradients.lie_at(layout.slot, layout.offsets[:own])
        self._buffers.lie_at(layout, layout.offsets[own:])

    # ---- The way of a shard ----

    def _begin(self, work):
        before = self.step
        self._work, self._sums, self._read = work, Sums(self._metrics), set()
        determinism.check(self._hello)
        self._parameters.check()
        self._rule.advance(work.update)
        self._restore()
        self._call_back(before)
        self._gradients.begin()
        random.seed(core.digest("shard", work.seed, work.step, work.shard))

    def _restore(self):
        self._buffers.restore()
        self._counters.restore(self._work.update)

    def _finish(self):
        work, sums = self._work, self._sums
        self._gradients.check()
        if sums.rows != work.rows:
            raise core.Refused(f"shard {work.shard} of step {work.step} had a backward for {sums.rows} of its {work.rows} rows: "
                               "call shard.backward(loss) once in the loop, or part.backward(loss) in each of its parts")
        self._constants.check()
        if self._data:
            self._data.read_in(len(self._read), work.rows)
        self._child.done(work, sums.loss, sums.metrics, self._rates)
        self._sums = None

    def _call_back(self, before):
        """What `every` has due, where the last shard here was of step `before`."""
        if not self.lead:
            return
        due = [function for steps, function in self._callbacks
               if (self.step % steps == 0 if before is None else self.step // steps > before // steps)]
        if not due:
            return
        modes = [(module, module.training) for module in self._model.modules()]
        with random.kept(), torch.set_grad_enabled(torch.is_grad_enabled()):
            for function in due:
                try:
                    function()
                except Exception:  # whatever it is, it is of no shard
                    traceback.print_exc()
        for module, training in modes:
            module.training = training
        self._restore()
