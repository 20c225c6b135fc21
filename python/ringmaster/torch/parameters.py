"""The parameters that a job trains: which they are, what they begin with, and that they lie in the worker's state."""
import warnings

import torch
from torch import nn

from ringmaster import core

_WRAPPERS = ("DistributedDataParallel", "DataParallel", "FullyShardedDataParallel", "FSDPModule")


def refuse(model):
    """Refuses a model whose gradients are no function of a shard alone, or are no dense float32 numbers."""
    for name, module in model.named_modules():
        where = f"{name or 'the model'} is a {type(module).__name__}"
        if type(module).__name__ in _WRAPPERS:
            raise core.Refused(f"{where}: give attach the module inside of it, because ringworker is what adds gradients")
        if isinstance(module, nn.SyncBatchNorm):
            raise core.Refused(f"{where}, which is not supported, because a shard is computed without the others: use "
                               "BatchNorm, whose statistics are each shard's")
        if getattr(module, "sparse", False) and isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            raise core.Refused(f"{where} with sparse gradients, which are not supported: use sparse=False")


def unwrapped(model):
    """The module that torch.compile was given, whose names are the model's own."""
    return getattr(model, "_orig_mod", model)


def aliases(model):
    """name -> first name, of every further name that a state dict has for a tensor: tied weights."""
    first, found = {}, {}
    for prefix, module in unwrapped(model).named_modules(remove_duplicate=False):
        buffers = {key: buffer for key, buffer in module._buffers.items() if key not in module._non_persistent_buffers_set}
        for key, tensor in (*module._parameters.items(), *buffers.items()):
            name = f"{prefix}.{key}" if prefix else key
            if tensor is not None and first.setdefault(id(tensor), name) != name:
                found[name] = first[id(tensor)]
    return found


def tensor_at(mapping, offset, like):
    """A view of a mapping with the shape of `like`, float32, contiguous."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the state cannot be written is what it is for
        flat = torch.frombuffer(mapping, dtype=torch.float32, count=like.numel(), offset=offset)
    return flat.view(like.shape)


class Parameters:
    """Parameters with a gradient that are in a group, in reverse order of named_parameters: about that of backward.

    Fields are lists, one entry a parameter: `names`, `tensors`, `groups`.
    """

    def __init__(self, model, group_of):
        self.names, self.tensors, self.groups = [], [], []
        self._addresses = []
        named = [(name, parameter) for name, parameter in unwrapped(model).named_parameters()
                 if parameter.requires_grad and (group_of is None or id(parameter) in group_of)]
        for name, parameter in reversed(named):
            _refuse_parameter(name, parameter)
            self.names.append(name)
            self.tensors.append(parameter)
            self.groups.append(0 if group_of is None else group_of[id(parameter)])
        _refuse_overlap(self.names, self.tensors)
        if not named:
            raise core.Refused("the model has no parameter that needs a gradient and that the optimizer has")
        if group_of is not None:
            _refuse_missing(model, group_of)

    def lie_at(self, state, offsets):
        """Makes them views of the state; their own memory goes. Nobody writes to them any more but the worker."""
        for parameter, offset in zip(self.tensors, offsets):
            parameter.data = tensor_at(state, offset, parameter)
        self._addresses = [parameter.data_ptr() for parameter in self.tensors]

    def check(self):
        """Refuses parameters that are elsewhere since."""
        for name, parameter, address in zip(self.names, self.tensors, self._addresses):
            if parameter.data_ptr() != address:
                raise core.Refused(f"{name} was replaced after attach (model.to(), load_state_dict(assign=True) or .data): do "
                                   "that before it")


def _refuse_parameter(name, parameter):
    if isinstance(parameter, nn.parameter.UninitializedParameter):
        raise core.Refused(f"{name} has no shape yet: run the lazy module once before attach")
    if parameter.dtype != torch.float32 or parameter.layout != torch.strided:
        raise core.Refused(f"{name} is {parameter.dtype}, {parameter.layout}: parameters are dense torch.float32 "
                           "(model.float()); torch.autocast in the loop computes in less")
    if parameter.device.type != "cpu":
        raise core.Refused(f"{name} is on {parameter.device}: this version computes scripts on CPUs; leave .to(device) out")
    if parameter.numel() == 0:
        raise core.Refused(f"{name} has no elements: give it requires_grad=False")


def _refuse_overlap(names, tensors):
    """Two parameters in one memory would be two once they lie in the state."""
    ends = sorted((tensor.data_ptr(), tensor.data_ptr() + 4 * tensor.numel(), name)
                  for name, tensor in zip(names, tensors))
    for (_, end, first), (begin, _, second) in zip(ends, ends[1:]):
        if begin < end:
            raise core.Refused(f"{first} and {second} share memory, and are two parameters: tie weights by one Parameter in "
                               "both places (a.weight = b.weight)")


def _refuse_missing(model, group_of):
    known = {id(parameter) for parameter in unwrapped(model).parameters()}
    for number, group in sorted((group, key) for key, group in group_of.items() if key not in known):
        raise core.Refused(f"group {number} of the optimizer has a parameter that the model does not: attach one module that "
                           "holds all that is trained, and make the optimizer after model.to()")
