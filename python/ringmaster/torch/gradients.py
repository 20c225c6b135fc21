"""Gradients on their way into the slot: hooks that copy them during backward, and buckets that say so."""
import torch

from ringmaster import core
from ringmaster.torch.parameters import tensor_at

_BUCKET = 4 << 20  # bytes from which on a bucket is full: about the ring's, so that each wakes the worker once


def plan(sizes):
    """Tensors 0, 1, ... of so many bytes -> lists of neighbours, of 4 MiB at least but the last."""
    buckets, held = [[]], 0
    for number, size in enumerate(sizes):
        if held >= _BUCKET or len(buckets[-1]) == core.MOST_TENSORS:
            buckets.append([])
            held = 0
        buckets[-1].append(number)
        held += size
    return [bucket for bucket in buckets if bucket]


class Gradients:
    """The gradients of one shard, of one or more backward passes.

    The last pass sends a bucket as soon as it has the gradients of all its tensors. A tensor that comes more than once
    in one pass, as under reentrant checkpointing, is late: its bucket waits for the end. Which ones are late the first
    shard shows, whose buckets all wait.
    """

    def __init__(self, parameters, child):
        self._parameters, self._child = parameters, child
        self._slots = []
        self._buckets = plan([4 * tensor.numel() for tensor in parameters.tensors])
        self._bucket_of = [number for number, bucket in enumerate(self._buckets) for _ in bucket]
        self._late = None  # tensors that come more than once; None until a shard has shown them
        self._late_now = set()
        self._written = []  # of each tensor: its gradient in the slot is this shard's
        self._came = []     # of each tensor: in the pass that runs
        self._waits = []    # of each bucket: tensors that have not come; less than 0 once it is sent
        self._left = []     # of each tensor: what the last pass left in .grad
        self._running = self._last = False
        for number, parameter in enumerate(parameters.tensors):
            parameter.register_hook(lambda gradient, number=number: self._take(number, gradient))

    def lie_at(self, slot, offsets):
        self._slots = [tensor_at(slot, offset, tensor) for offset, tensor in zip(offsets, self._parameters.tensors)]

    def begin(self):
        """A shard."""
        self._forget()
        self._written = [False] * len(self._slots)

    def backward(self, loss, last):
        """A pass from `loss`, as it is scaled. After the last one all buckets are sent."""
        self.check()
        self._forget()
        self._came = [False] * len(self._slots)
        self._waits = [len(bucket) for bucket in self._buckets]
        self._last = last
        self._running = True
        try:
            loss.backward()
        finally:
            self._running = False
        self._left = [_mark(tensor.grad) for tensor in self._parameters.tensors]
        if last:
            self._finish()

    def check(self):
        """Refuses a gradient in .grad that no pass of ours left there: it would be lost."""
        for name, tensor, left in zip(self._parameters.names, self._parameters.tensors, self._left):
            if tensor.grad is not None and _mark(tensor.grad) != left and bool(tensor.grad.any()):
                raise core.Refused(f"{name}.grad was written in the loop, where it has no effect: loss.backward() is "
                                   "shard.backward(loss), and clipping is clip_norm or clip_value of attach")

    def _forget(self):
        for tensor in self._parameters.tensors:
            tensor.grad = None
        self._left = [None] * len(self._slots)

    def _take(self, number, gradient):
        """The hook of a parameter."""
        if not self._running:
            return  # the script's own: no gradient of the job
        if gradient.layout != torch.strided:
            raise core.Refused(f"the gradient of {self._parameters.names[number]} is sparse, which is not supported: use "
                               "sparse=False")
        if self._written[number]:
            self._again(number)
            self._slots[number].add_(gradient)
        else:
            self._slots[number].copy_(gradient)
            self._written[number] = True
        if not self._came[number]:
            self._came[number] = True
            if self._last and self._late is not None and number not in self._late:
                self._arrived(self._bucket_of[number])

    def _again(self, number):
        if not self._came[number]:
            return  # of a pass before
        self._late_now.add(number)
        if self._last and self._waits[self._bucket_of[number]] < 0:
            raise core.Refused(f"the gradient of {self._parameters.names[number]} came a second time in a shard, and not in "
                               "the first shard of this process: modules are checkpointed in every shard or in none "
                               "(or use_reentrant=False)")

    def _arrived(self, bucket):
        self._waits[bucket] -= 1
        if self._waits[bucket] == 0:
            self._send(bucket)

    def _send(self, bucket):
        self._waits[bucket] = -1
        self._child.bucket(self._buckets[bucket])

    def _finish(self):
        for slot, written in zip(self._slots, self._written):
            if not written:
                slot.zero_()
        for bucket, waits in enumerate(self._waits):
            if waits >= 0:
                self._send(bucket)
        self._late = self._late_now


def _mark(gradient):
    """What tells a gradient from what it was, or from another one."""
    return None if gradient is None else (id(gradient), gradient._version)
