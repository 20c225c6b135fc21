"""Samples of a map-style dataset, each drawn with generators of its own, so that it is the same wherever it is read."""
import torch
from torch.utils import data
from torch.utils.data.dataloader import default_collate

from ringmaster import core
from ringmaster.torch import determinism, random
from ringmaster.torch.loaders import Loaders
from ringmaster.torch.shard import cut

_MOST_AHEAD = 64


class Data:
    """A dataset and how samples become a batch. `dataset`: map-style, or a DataLoader over one, of which the dataset,
    collate_fn, num_workers and prefetch_factor are taken, and not the order: so many processes read what comes next."""

    def __init__(self, dataset, collate_fn=None):
        loaders = self.ahead = 0  # shards that are to be known before they are wanted
        if isinstance(dataset, data.DataLoader):
            _refuse_order(dataset)
            collate_fn = collate_fn or dataset.collate_fn
            loaders = min(dataset.num_workers, _MOST_AHEAD)
            self.ahead = min(loaders * (dataset.prefetch_factor or 0), _MOST_AHEAD)
            dataset = dataset.dataset
        if isinstance(dataset, data.IterableDataset) or not hasattr(dataset, "__getitem__"):
            raise core.Refused(f"the dataset is a {type(dataset).__name__}, which has no sample of a number: a shard is a list "
                               "of numbers; give a map-style dataset (__getitem__ and __len__)")
        self._dataset = dataset
        self._collate = collate_fn or default_collate
        self.samples = len(dataset)
        if self.samples == 0:
            raise core.Refused("the dataset is empty")
        self._loaders = Loaders(loaders, self._load)
        self._pieces = 1  # of a shard as it was read last: shard.parts(4) are four

    def expect(self, coming):
        """A core.Coming: read in as many pieces as a shard was read in last."""
        for samples in cut(coming.samples, self._pieces):
            self._loaders.expect(coming.step, coming.seed, samples)

    def batch(self, samples, seed, step):
        """These samples, collated. Nothing that is drawn changes what the shard draws."""
        for batch in self._loaders.take(step, samples):
            return batch
        with random.kept(), determinism.one_thread():
            return self._load(samples, seed, step)

    def read_in(self, pieces, rows):
        """A shard of so many rows has been read in so many pieces; none: it was not read. A short one may have too few rows
        for those that others have."""
        if pieces and not pieces == rows < self._pieces:
            self._pieces = pieces

    def close(self):
        self._loaders.close()

    def _load(self, samples, seed, step):
        # Whatever modes the loop is in where it asks.
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast("cpu", enabled=False):
            return self._collate([self._sample(number, seed, step) for number in samples])

    def _sample(self, number, seed, step):
        random.seed(core.digest("sample", seed, step, number))
        return self._dataset[number]


def _refuse_order(loader):
    if isinstance(loader.dataset, data.IterableDataset):
        return  # refused for what it is
    if not isinstance(loader.sampler, (data.RandomSampler, data.SequentialSampler, data.DistributedSampler)):
        raise core.Refused(f"the DataLoader has a {type(loader.sampler).__name__}, which is not supported, because ringworker "
                           "draws the order of samples: give the dataset alone")
    if type(loader.batch_sampler) is not data.BatchSampler:
        what = "no batch_size" if loader.batch_sampler is None else f"a {type(loader.batch_sampler).__name__}"
        raise core.Refused(f"the DataLoader has {what}, which is not supported, because ringworker draws which samples a shard "
                           "has: give the dataset alone, or a DataLoader with a batch_size")
