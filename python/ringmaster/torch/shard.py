"""A shard as the script's loop has it, and what its backward passes add up to."""
import torch

from ringmaster import core


def cut(samples, number):
    """A shard's samples in `number` runs, fewer where there are fewer samples: the parts that it is computed, and read, in."""
    number = min(number, len(samples))
    return [samples[len(samples) * index // number:len(samples) * (index + 1) // number] for index in range(number)]


class Part:
    """Rows that one backward pass is of: `step`, `rows`, `samples` (their numbers in the dataset), `batch`."""

    def __init__(self, job, work, samples):
        self._job, self._work = job, work
        self._batch = None
        self.step = work.step
        self.rows = len(samples)
        self.samples = samples

    @property
    def batch(self):
        """The samples, collated as attach's dataset and collate_fn say. Read when it is first asked for."""
        if self._batch is None:
            self._batch = self._job.read(self._work, self.samples)
        return self._batch

    def backward(self, loss, /, **metrics):
        """The gradients of `loss`, one number: the mean over these rows, or with weight="sum" their sum.

        `metrics`: of each name that attach was given its sum over these rows, a number or a tensor whose elements are
        added.
        """
        self._job.backward(self._work, self.rows, loss, metrics)


class Shard(Part):
    """`shard` of `shards` of step `step`, a part of the batch that is computed as one. It is a function of the weights,
    of these numbers, and of what is drawn behind them: whatever the script keeps from one shard to the next is not
    there on another core. `update`: how many updates the weights have had.
    """

    def __init__(self, job, work):
        super().__init__(job, work, work.samples)
        self.shard, self.shards, self.update = work.shard, work.shards, work.update

    def parts(self, number):
        """The shard in `number` Parts, fewer where it has fewer rows: `for part in shard.parts(4): part.backward(...)`.
        What a part keeps for its backward is freed before the next one. The number belongs to the result."""
        if int(number) < 1:
            raise core.Refused(f"shard.parts({number}): 1 part or more")
        for samples in cut(self.samples, int(number)):
            yield Part(self._job, self._work, samples)


class Sums:
    """The loss and metrics over the rows of a shard, in float64, of the `passes` that there were over `rows` so far."""

    def __init__(self, names):
        self._names = names
        self.rows = self.passes = 0
        self.loss = 0.0
        self.metrics = [0.0] * len(names)

    def add(self, rows, loss, metrics):
        if set(metrics) != set(self._names):
            raise core.Refused(f"shard.backward has the metrics {sorted(metrics)}, attach has {sorted(self._names)}: "
                               f"attach(..., metrics={tuple(metrics)}) names those that each backward gives")
        self.rows += rows
        self.passes += 1
        self.loss += loss
        for index, name in enumerate(self._names):
            self.metrics[index] += _total(metrics[name])


def _total(value):
    return float(value.detach().double().sum()) if isinstance(value, torch.Tensor) else float(value)
