"""Generators: all that draw numbers by themselves are set from (seed, step, shard) or (seed, step, sample)."""
import contextlib
import random

import numpy
import torch


def seed(digest):
    """torch's, Python's and numpy's own generators from 32 bytes of core.digest()."""
    number = int.from_bytes(digest[:8], "little") >> 1
    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(numpy.frombuffer(digest, "<u4"))


@contextlib.contextmanager
def kept():
    """Whatever draws numbers inside, what comes after it draws the same."""
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        numpy.random.set_state(states[2])
