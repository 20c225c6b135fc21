"""An exact sum under a DistributedDataParallel of the user's own: a communication hook, and no more.

    model = torch.nn.parallel.DistributedDataParallel(module)
    model.register_comm_hook(ringmaster.torch.ExactSum(model), ringmaster.torch.ddp_hook)

Gradients are added as integers, which add up to the same bits in any order: whatever the ring, the algorithm, the
buckets and the numbers of the ranks are. What one process adds up in float before that depends on how many processes
there are: for a result that does not, there is `ringmaster.torch.attach`. No daemon takes part here.
"""
import hashlib

import torch
from torch import distributed
from torch.futures import Future, collect_all

_BLOCK = 256           # elements that share a unit, 2^(E - precision_bits) with E the block's exponent
_SMALLEST_UNIT = -40   # the exponent of a unit, at least
_LARGEST_EXPONENT = 127
_TENSOR_RANGE = 12     # E is not lower than the tensor's largest minus this
_WIDE, _BROKEN = 0, 1  # flags of ranks whose numbers may not fit into int32 in sum; are not finite, or not fit for int64
_TYPES = (torch.float32, torch.float16, torch.bfloat16)


class RanksDiffer(RuntimeError):
    """The ranks do not hold the same: which ones."""


class ExactSum:
    """The state of `ddp_hook`: the exponents of each parameter's blocks, which follow the mean gradient of the step before.

    `ddp`: the DistributedDataParallel that the hook is registered with; its parameters are float32, float16 or bfloat16,
    their gradients dense. `precision_bits`, 8 to 24: a rank rounds its part of a sum to 2^-precision_bits of the block's
    largest mean.

    On the wire an element has 4 bytes, as without the hook, and 8 more where a gradient has grown by some hundreds since
    the step before; the first step's has. In memory it has 8 bytes more until its step's backward ends.
    """

    def __init__(self, ddp, precision_bits=21):
        if not isinstance(ddp, torch.nn.parallel.DistributedDataParallel):
            raise TypeError(f"ExactSum takes the DistributedDataParallel that the hook is for, and got a {type(ddp).__name__}")
        if not 8 <= precision_bits <= 24:
            raise ValueError(f"precision_bits is 8 to 24, and {precision_bits} was given")
        self.group = ddp.process_group
        self.ranks = distributed.get_world_size(self.group)
        self.precision_bits = precision_bits
        ignored = getattr(ddp, "parameters_to_ignore", ())
        self._names = {parameter: name for name, parameter in ddp.module.named_parameters()
                       if parameter.requires_grad and name not in ignored}
        for parameter, name in self._names.items():
            if parameter.dtype not in _TYPES:
                raise TypeError(f"{name} is {parameter.dtype}, and an exact sum is of float32, float16 or bfloat16")
        self._exponents = {parameter: self._first(parameter) for parameter in self._names}
        self._parts = []  # the buckets of the step that runs

    def state_dict(self):
        """precision_bits, and exponents: name of a parameter -> int16 tensor. The same on all ranks: with it a run that is
        resumed goes on as if it had not ended."""
        return {"precision_bits": self.precision_bits,
                "exponents": {name: self._exponents[parameter].to("cpu", torch.int16)
                              for parameter, name in self._names.items()}}

    def load_state_dict(self, state):
        """Raises ValueError where `state` is of other parameters."""
        exponents = state["exponents"]
        if state["precision_bits"] != self.precision_bits:
            raise ValueError(f"the state of an ExactSum of precision_bits={state['precision_bits']}, and this one has "
                             f"{self.precision_bits}")
        others = sorted(set(exponents) ^ set(self._names.values()))
        if others:
            raise ValueError(f"exponents of another model: of {others[0]} there are some on one side alone")
        lowest = self.precision_bits + _SMALLEST_UNIT
        for parameter, name in self._names.items():
            found = exponents[name]
            if found.shape != self._exponents[parameter].shape:
                raise ValueError(f"exponents of another model: {name} has {self._exponents[parameter].numel()} blocks, "
                                 f"and there are {found.numel()}")
            if found.numel() and not lowest <= int(found.min()) <= int(found.max()) <= _LARGEST_EXPONENT:
                raise ValueError(f"exponents of {name} from {int(found.min())} to {int(found.max())}, expected {lowest} to "
                                 f"{_LARGEST_EXPONENT}")
        for parameter, name in self._names.items():
            self._exponents[parameter] = exponents[name].to(parameter.device, torch.int32)

    def check(self):
        """Compares parameters and exponents of all ranks, which call this together between steps; their SHA-256, in hex.
        Raises RanksDiffer, on every rank."""
        own = hashlib.sha256()
        for parameter, name in self._names.items():
            for tensor in (parameter.detach(), self._exponents[parameter]):
                own.update(name.encode() + b"\0")
                own.update(tensor.cpu().reshape(-1).view(torch.uint8).numpy())
        digest = torch.tensor(list(own.digest()), dtype=torch.uint8, device=next(iter(self._names)).device)
        digests = [torch.empty_like(digest) for _ in range(self.ranks)]
        distributed.all_gather(digests, digest, group=self.group)
        ranks_of = {}
        for rank, each in enumerate(digests):
            ranks_of.setdefault(bytes(each.tolist()).hex(), []).append(str(rank))
        if len(ranks_of) > 1:
            raise RanksDiffer("parameters or exponents are not the same: " + "; ".join(
                f"{found[:16]} on rank {', '.join(ranks)}" for found, ranks in ranks_of.items()))
        return own.hexdigest()

    # ---- a step ------------------------------------------------------------------------------------

    def add(self, bucket):
        """A future of the bucket's buffer with the mean over the ranks. The futures of a step are set in its last bucket's
        hook: only then does each rank know what all have to add once more, and all do it in the same order."""
        if bucket.index() == 0:
            self._parts = []
        part = _Part(self, bucket)
        self._parts.append(part)
        if bucket.is_last():
            self._end()
        return part.mean

    def exponents(self, parameter):
        return self._exponents[parameter]

    def _end(self):
        collect_all([part.added for part in self._parts]).wait()
        for part in self._parts:
            part.added.value()  # or what went wrong in it
        flags = torch.stack([part.flags for part in self._parts]).tolist()
        for part, flag in zip(self._parts, flags):
            if flag[_WIDE] and not flag[_BROKEN]:
                part.add_wide()
        # Float32 has no mean of numbers at its end.
        means = torch.stack([part.largest for part in self._parts]).isfinite().tolist()
        broken = [bool(flag[_BROKEN]) or not finite for flag, finite in zip(flags, means)]
        for part, spoiled in zip(self._parts, broken):
            if spoiled:
                part.buffer.fill_(float("nan"))
        broken = any(broken)
        for part in self._parts:
            for parameter, exponents in part.next_exponents():
                self._exponents[parameter] = self._first(parameter) if broken else exponents
            part.mean.set_result(part.buffer)
        self._parts = []

    def _first(self, parameter):
        blocks = -(-parameter.numel() // _BLOCK)
        return torch.full((blocks,), self.precision_bits + _SMALLEST_UNIT, dtype=torch.int32, device=parameter.device)


class _Part:
    """A bucket of one step on its way: float gradients, integers, their sum, the mean."""

    def __init__(self, state, bucket):
        self._state = state
        self.buffer = bucket.buffer()
        self._parameters, self._gradients = bucket.parameters(), bucket.gradients()
        if self.buffer.layout != torch.strided:
            raise TypeError("a gradient is sparse, and an exact sum is of dense ones: use sparse=False")
        device = self.buffer.device
        self.mean = Future(devices=[device] if device.type == "cuda" else None)
        exponents = [state.exponents(parameter) for parameter in self._parameters]
        self._blocks = [len(each) for each in exponents]
        # A rank adds g / ranks, with ranks rounded up to a power of two, which loses nothing: so that the sum, whatever
        # the number of ranks, is as large as the mean, which the units are made for.
        self._shift = (state.ranks - 1).bit_length()
        self._unit = torch.cat(exponents) - state.precision_bits
        self._rounded = self._round()
        largest = _largest(self._rounded)  # NaN if one is
        broken = ~(largest < 2.0 ** (62 - self._shift))
        wide = ~(largest < 2.0 ** (31 - self._shift))
        self._narrow = torch.empty(self._rounded.numel() + 2, dtype=torch.int32, device=device)
        self._narrow[:-2] = self._rounded.view(-1)  # whatever that is, where it is to be added once more
        self._narrow[-2:] = torch.stack([wide, broken])
        self.flags = self._narrow[-2:]
        self._next, self.largest = None, None  # of the mean
        self.added = distributed.all_reduce(self._narrow, group=state.group, async_op=True).get_future().then(self._arrived)

    def _arrived(self, done):
        done.value()  # or what went wrong
        self._take(self._narrow[:-2])

    def add_wide(self):
        """Once more, as int64."""
        wide = self._rounded.to(torch.int64)
        distributed.all_reduce(wide, group=self._state.group)
        self._take(wide.view(-1))

    def next_exponents(self):
        return zip(self._parameters, self._next.split(self._blocks))

    def _round(self):
        """The rank's integers as float32 [blocks, 256]; a tensor begins a block of its own, in its logical order."""
        rounded = torch.empty(len(self._unit), _BLOCK, device=self.buffer.device)
        for rows, gradient in zip(rounded.split(self._blocks), self._gradients):
            flat = rows.view(-1)
            flat[:gradient.numel()] = gradient.reshape(-1)
            flat[gradient.numel():] = 0
        if self._shift <= 7:  # 2^-unit is 2^-119 or more
            return rounded.mul_(_power_of_two(-self._unit - self._shift).unsqueeze(1)).round_()
        return rounded.mul_(_power_of_two(-self._unit).unsqueeze(1)).mul_(2.0 ** -self._shift).round_()

    def _take(self, sums):
        """Sums -> the mean, in the buffer, and the exponents that follow from it."""
        state = self._state
        sums, unit = sums.view(-1, _BLOCK), _power_of_two(self._unit).unsqueeze(1)
        if 2 ** self._shift == state.ranks:
            mean = sums.float().mul_(unit)  # rounded once, as below
        else:
            mean = (sums.double() * (unit.double() * (2.0 ** self._shift / state.ranks))).float()
        least, most = torch.aminmax(mean, dim=1)
        largest = torch.maximum(most, -least)
        self.largest = _largest(largest)
        own = (largest.view(torch.int32) >> 23) - 127
        exponents = []
        for rows, blocks, gradient in zip(mean.split(self._blocks), own.split(self._blocks), self._gradients):
            gradient.copy_(rows.view(-1)[:gradient.numel()].view(gradient.shape))
            if len(blocks):
                lowest = (blocks.amax() - _TENSOR_RANGE).clamp(min=state.precision_bits + _SMALLEST_UNIT)
                blocks = torch.maximum(blocks, lowest).clamp(max=_LARGEST_EXPONENT)
            exponents.append(blocks)
        self._next = torch.cat(exponents)


def _largest(numbers):
    """The magnitude of one tensor's largest number; 0 where there are none."""
    return torch.stack(torch.aminmax(numbers)).abs().amax() if numbers.numel() else numbers.new_zeros(())


def _power_of_two(exponents):
    """2^e in float32, of int32 from -126 to 127: its bits."""
    return ((exponents + 127) << 23).view(torch.float32)


def ddp_hook(state, bucket):
    """The hook for `DistributedDataParallel.register_comm_hook`; `state`: an ExactSum. A gradient that is not finite, or is
    2^22 and more where the step before had none, makes its bucket NaN on all ranks, which is what GradScaler looks for."""
    if not isinstance(state, ExactSum):
        raise TypeError("register_comm_hook(ringmaster.torch.ExactSum(model), ringmaster.torch.ddp_hook): an ExactSum was "
                        f"expected, and there is a {type(state).__name__}")
    return state.add(bucket)
