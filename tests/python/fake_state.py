"""S(k) for tests, and torch's formulas that change it: of SGD and Adam, in float64 over the sum of the shards."""
import hashlib
import json
import mmap
import os
import struct

import numpy


def mapped(size):
    """A memory file and its float32 array."""
    file = os.memfd_create("ringmaster-test")
    os.ftruncate(file, size)
    return file, numpy.frombuffer(mmap.mmap(file, size), numpy.float32)


class State:
    """`values`: an array a tensor, each a view of a memory file."""

    def __init__(self, facts, initial):
        self.facts = facts
        self.tensors, self.groups = facts["tensors"], facts["groups"]
        self.offsets, self.bytes = [], 0
        for tensor in self.tensors:
            self.offsets.append(self.bytes)
            self.bytes += -(-4 * int(numpy.prod(tensor["shape"])) // 1024) * 1024
        self.file, self._all = mapped(self.bytes)
        self.values = self.views(self._all)
        self.update = 0
        self._slots = {}
        at = 0
        for value in self.values.values():
            value[...] = initial[at:at + value.size].reshape(value.shape)
            at += value.size
        assert at == initial.size, (at, initial.size)

    def views(self, memory):
        """name -> array in a mapping laid out as the state."""
        return {tensor["name"]: memory[offset // 4:offset // 4 + int(numpy.prod(tensor["shape"]))].reshape(tensor["shape"])
                for tensor, offset in zip(self.tensors, self.offsets)}

    def apply(self, shards, rates):
        """`shards`: name -> gradient of each, in their order; `rates`: of each group."""
        sums = {name: sum(gradients[name].astype(numpy.float64) for gradients in shards) for name in self.values}
        optimizer = self.facts["optimizer"]
        trained = [tensor["name"] for tensor in self.tensors if tensor["role"] == "PARAMETER"]
        if "global_norm" in optimizer.get("clip", {}):
            norm = numpy.sqrt(sum(numpy.square(sums[name]).sum() for name in trained))
            for name in trained:
                sums[name] *= min(1.0, optimizer["clip"]["global_norm"] / (norm + 1e-6))
        self.update += 1
        for tensor in self.tensors:
            name = tensor["name"]
            if tensor["role"] == "BUFFER":
                self.values[name] += sums[name].astype(numpy.float32)
                continue
            decay, rate = self.groups[tensor["group"]]["weight_decay"], rates[tensor["group"]]
            rule = self._adam if "torch_adam" in optimizer else self._sgd
            change = rule(optimizer, name, sums[name], decay, rate)
            self.values[name] -= change.astype(numpy.float32)

    def _sgd(self, optimizer, name, gradient, decay, rate):
        rule = optimizer["torch_sgd"]
        gradient = gradient + decay * self.values[name]
        if rule["momentum"]:
            old = self._slots.get(name)
            velocity = gradient if old is None else rule["momentum"] * old + (1 - rule["dampening"]) * gradient
            self._slots[name] = velocity
            gradient = gradient + rule["momentum"] * velocity if rule["nesterov"] else velocity
        return rate * gradient

    def _adam(self, optimizer, name, gradient, decay, rate):
        rule = optimizer["torch_adam"]
        decoupled = optimizer["weight_decay"]["kind"] == "DECAY_KIND_DECOUPLED"
        shrink = rate * decay * self.values[name] if decoupled else 0
        gradient = gradient if decoupled else gradient + decay * self.values[name]
        mean, square = self._slots.get(name, (0, 0))
        mean = rule["beta_1"] * mean + (1 - rule["beta_1"]) * gradient
        square = rule["beta_2"] * square + (1 - rule["beta_2"]) * gradient ** 2
        self._slots[name] = mean, square
        root = numpy.sqrt(square / (1 - rule["beta_2"] ** self.update)) + rule["epsilon"]
        return shrink + rate * mean / (1 - rule["beta_1"] ** self.update) / root

    def sha256(self):
        return hashlib.sha256(self._all.tobytes()).hexdigest()

    def write(self, path):
        """The checkpoint in the module's names: what load_state_dict(strict=True) takes of a model without constants."""
        entries = {name: ("F32", value) for name, value in self.values.items()}
        entries.update((name, entries[first]) for name, first in self.facts["aliases"].items())
        entries.update((name, ("I64", numpy.array(start + self.update)))
                       for name, start in zip(self.facts["counters"], self.facts["counter_starts"]))
        header, data = {}, b""
        for name, (kind, value) in entries.items():
            header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": [len(data), len(data) + value.nbytes]}
            data += value.tobytes()
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)
