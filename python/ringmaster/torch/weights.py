"""Reads safetensors files, such as `ringctl checkpoint get` writes."""
import json
import math
import mmap
import os
import struct

import torch

_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
          "BOOL": torch.bool}
_MOST_HEADER = 100 << 20


class WrongFile(ValueError):
    """The file is no whole safetensors file: what was found."""


def load(path):
    """A state dict, name -> tensor with memory of its own, of a safetensors file or of model.safetensors in a folder."""
    if os.path.isdir(path):
        path = os.path.join(path, "model.safetensors")
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            raise WrongFile(f"{path}: {size} bytes are no safetensors file")
        header, = struct.unpack("<Q", file.read(8))
        if header > min(size - 8, _MOST_HEADER):
            raise WrongFile(f"{path}: no safetensors file: its header would have {header} bytes")
        try:
            entries = dict(json.loads(file.read(header)))
        except (TypeError, ValueError) as error:
            raise WrongFile(f"{path}: the header is no JSON of tensors: {error}") from None
        entries.pop("__metadata__", None)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapping:
            return {name: _tensor(f"{path}: {name}", entry, mapping, 8 + header) for name, entry in entries.items()}


def _tensor(where, entry, mapping, start):
    try:
        name, shape, (first, last) = entry["dtype"], [int(axis) for axis in entry["shape"]], entry["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise WrongFile(f"{where}: dtype, shape and data_offsets were expected, {entry} is there") from None
    kind = _TYPES.get(name)
    if kind is None:
        raise WrongFile(f"{where}: of type {name}, which is not read; {', '.join(_TYPES)} are")
    numbers = math.prod(shape)
    size = numbers * torch.empty(0, dtype=kind).element_size()
    if min(shape, default=0) < 0 or last - first != size or first < 0 or start + last > len(mapping):
        raise WrongFile(f"{where}: {size} bytes were expected, the header has {first} to {last} of {len(mapping) - start}")
    if size == 0:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(mapping, dtype=kind, count=numbers, offset=start + first).reshape(shape).clone()
