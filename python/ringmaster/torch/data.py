"""Samples of a map-style dataset, each drawn with generators of its own, so that it is the same wherever it is read."""
from torch.utils import data
from torch.utils.data.dataloader import default_collate

from ringmaster import core
from ringmaster.torch import random


class Data:
    """A dataset and how samples become a batch. `dataset`: map-style, or a DataLoader over one, of which the dataset
    and collate_fn are taken, and neither order nor workers."""

    def __init__(self, dataset, collate_fn=None):
        if isinstance(dataset, data.DataLoader):
            _refuse_order(dataset)
            collate_fn = collate_fn or dataset.collate_fn
            dataset = dataset.dataset
        if isinstance(dataset, data.IterableDataset) or not hasattr(dataset, "__getitem__"):
            raise core.Refused(f"the dataset is a {type(dataset).__name__}, which has no sample of a number: a shard is a list "
                               "of numbers; give a map-style dataset (__getitem__ and __len__)")
        self._dataset = dataset
        self._collate = collate_fn or default_collate
        self.samples = len(dataset)
        if self.samples == 0:
            raise core.Refused("the dataset is empty")

    def batch(self, samples, seed, step):
        """These samples, collated. Nothing that is drawn changes what the shard draws."""
        with random.kept():
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
