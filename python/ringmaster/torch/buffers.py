"""What a model has beside its trained parameters: buffers that the forward pass changes, counters, and constants."""
import hashlib

import torch

from ringmaster import core
from ringmaster.torch.parameters import tensor_at, unwrapped


def _named(model):
    """(name, owner, key, buffer, persistent) of each buffer once, in the module's order."""
    seen = set()
    for prefix, module in unwrapped(model).named_modules():
        for key, buffer in module._buffers.items():
            if buffer is not None and id(buffer) not in seen:
                seen.add(id(buffer))
                yield (f"{prefix}.{key}" if prefix else key, module, key, buffer,
                       key not in module._non_persistent_buffers_set)


class Buffers:
    """Persistent float32 buffers: state that the forward pass may change, such as running means.

    Lists, one entry a buffer: `names`, `tensors`. A tensor keeps its own memory, which is set from the state before each
    shard; what the shard made of it is put into the slot as a change.
    """

    def __init__(self, model):
        self.names, self.tensors = [], []
        self._owners, self._old, self._slots = [], [], []
        for name, owner, key, buffer, persistent in _named(model):
            if persistent and buffer.dtype == torch.float32 and buffer.numel() > 0:
                if buffer.device.type != "cpu" or buffer.layout != torch.strided:
                    raise core.Refused(f"{name} is on {buffer.device}, {buffer.layout}: buffers are dense and on the CPU")
                self.names.append(name)
                self.tensors.append(buffer)
                self._owners.append((owner, key))

    def lie_at(self, layout, offsets):
        self._old = [tensor_at(layout.state, offset, buffer) for offset, buffer in zip(offsets, self.tensors)]
        self._slots = [tensor_at(layout.slot, offset, buffer) for offset, buffer in zip(offsets, self.tensors)]

    @torch.no_grad()
    def restore(self):
        """As S(k) has them, also where the module has put others in their place."""
        for (owner, key), buffer, old in zip(self._owners, self.tensors, self._old):
            owner._buffers[key] = buffer.copy_(old)

    @torch.no_grad()
    def write_changes(self, scale):
        """(new - old) * scale into the slot, float32."""
        for name, (owner, key), old, slot in zip(self.names, self._owners, self._old, self._slots):
            new = owner._buffers[key]
            if new is None or new.shape != old.shape or new.dtype != old.dtype:
                now = None if new is None else f"{new.dtype} {list(new.shape)}"
                raise core.Refused(f"buffer {name} was float32 {list(old.shape)} at attach and is {now} after a shard: its "
                                   "shape and type have to stay")
            torch.sub(new, old, out=slot).mul_(scale)


class Counters:
    """Persistent integers of one number each that begin at 0 or are called num_batches_tracked: start + updates."""

    def __init__(self, model):
        self.names, self.starts = [], []
        self._tensors, self._owners, self._set = [], [], 0
        for name, owner, key, buffer, persistent in _named(model):
            if persistent and is_counter(key, buffer):
                self.names.append(name)
                self.starts.append(int(buffer))
                self._tensors.append(buffer)
                self._owners.append((owner, key))

    @torch.no_grad()
    def restore(self, update):
        self._set = update
        for (owner, key), buffer, start in zip(self._owners, self._tensors, self.starts):
            owner._buffers[key] = buffer.fill_(start + update)

    def check(self, most):
        """Refuses what is not left as it was, or counted on by 1 to `most`, the number of backward passes."""
        for name, (owner, key), start in zip(self.names, self._owners, self.starts):
            change = int(owner._buffers[key]) - start - self._set
            if not 0 <= change <= most:
                raise core.Refused(f"counter {name} was changed by {change} in a shard, and may be by 0 or 1 for each "
                                   "backward: run its module once for each, outside of checkpointing")


def is_counter(key, buffer):
    return (buffer.dtype in (torch.int64, torch.int32) and buffer.numel() == 1
            and (key == "num_batches_tracked" or int(buffer) == 0))


class Constants:
    """What a job never changes: parameters that are not trained, and buffers that are neither state nor counters."""

    def __init__(self, model, parameters, buffers, counters):
        changed = {*parameters.names, *buffers.names, *counters.names}
        named = [*unwrapped(model).named_parameters(), *((name, buffer) for name, _, _, buffer, _ in _named(model))]
        self._tensors = [(name, tensor) for name, tensor in named if name not in changed]
        self._versions = [self._version(tensor) for _, tensor in self._tensors]

    def sha256(self):
        """Over name, type, shape and bytes of each, lower-case hex."""
        digest = hashlib.sha256()
        for name, tensor in self._tensors:
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
            digest.update(data_of(tensor))
        return digest.hexdigest()

    def check(self):
        """Refuses one that was written to since attach."""
        for (name, tensor), version in zip(self._tensors, self._versions):
            if self._version(tensor) != version:
                raise core.Refused(f"{name} was changed after attach, and is a constant of the job: a buffer that the forward "
                                   "pass changes is persistent and float32, and a parameter that is trained has requires_grad "
                                   "and is in the optimizer at attach")

    @staticmethod
    def _version(tensor):
        return tensor._version, tensor.requires_grad


def data_of(tensor):
    """The bytes of a tensor, contiguous in its axes' order, as a memoryview."""
    tensor = tensor.detach().cpu().contiguous().reshape(-1)
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.int16)  # numpy has none
    return memoryview(tensor.numpy()).cast("B")
