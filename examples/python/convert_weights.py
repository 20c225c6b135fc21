#!/usr/bin/python3
"""Turns weights of Keras (.h5) or PyTorch (.pt, .pth) into a safetensors file that `init: {file}` of a job reads.

    convert_weights.py SOURCE TARGET.safetensors
    convert_weights.py SOURCE --list

Names and axes stay those of the source: the job says `layout: keras` or `layout: pytorch`, and `rename` where
its layers have other names. Every number becomes a float32; integers, such as num_batches_tracked, are left out.
No code of the source is run: of a PyTorch file tensors alone are read.
"""
import argparse
import json
import os
import struct
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    sys.exit("convert_weights.py: needs numpy: apt install python3-numpy")

HDF5 = b"\x89HDF\r\n\x1a\n"
ZIP, PICKLE = b"PK\x03\x04", b"\x80"
WRAPPERS = ("state_dict", "model_state_dict", "model")  # of a state dict in a training checkpoint
MOST_HEADER = 16 << 20  # that ringworker reads


class Unusable(Exception):
    """What is wrong with the source, and what to do."""


# ---- Keras --------------------------------------------------------------------------------------------


def words(attributes, name):
    """A list of strings; Keras cuts one that is too long for an attribute into NAME0, NAME1 ..."""
    if name in attributes:
        found = list(attributes[name])
    else:
        found, part = [], 0
        while f"{name}{part}" in attributes:
            found.extend(attributes[f"{name}{part}"])
            part += 1
    return [word.decode() if isinstance(word, bytes) else str(word) for word in found]


def name_of(layer, weight):
    """LAYER/ROLE for every way in which versions of Keras wrote it."""
    parts = weight.split(":")[0].split("/")
    if len(parts) == 1:
        return f"{layer}/{parts[0]}"
    if layer in parts[:-1]:  # behind names of models around it
        parts = parts[parts.index(layer):]
    return "/".join(parts)


def keras_weights(path):
    """(name, array) of each weight of a whole model's file or of one of weights alone."""
    try:
        import h5py
    except ImportError:
        raise Unusable("needs h5py: apt install python3-h5py") from None
    with h5py.File(path, "r") as file:
        root = file["model_weights"] if "model_weights" in file else file
        layers = words(root.attrs, "layer_names")
        if not layers:
            raise Unusable("no layer_names: not a file of Keras' model.save(\"x.h5\") or save_weights(\"x.h5\"). "
                           "A file x.weights.h5 of Keras 3 has no names of weights: load it into its model and "
                           "save that as x.h5")
        found = []
        for layer in layers:
            group = root[layer]
            for weight in words(group.attrs, "weight_names"):
                found.append((layer, name_of(layer, weight), group[weight][()]))
    names = [name for _, name, _ in found]
    pointwise = {name.rpartition("/")[0] for name in names if name.endswith("/pointwise_kernel")}
    result = []
    for layer, name, array in found:
        if names.count(name) > 1:  # of two nested models with layers of one name
            name = f"{layer}/{name}"
        owner, _, role = name.rpartition("/")
        if role == "depthwise_kernel" and owner not in pointwise:  # of DepthwiseConv2D
            name = f"{owner}/kernel"
        result.append((name, array))
    return result


# ---- PyTorch ------------------------------------------------------------------------------------------


def pytorch_weights(path):
    """(name, tensor) of each entry of a state dict, however it is wrapped."""
    try:
        import torch
    except ImportError:
        raise Unusable("needs PyTorch: apt install python3-torch") from None
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # it raises whatever its reader met
        raise Unusable("not a file of tensors alone, and nothing else is read, because it would run code of the "
                       f"file: save model.state_dict() instead ({str(error).splitlines()[0]})") from None
    while isinstance(loaded, dict):
        inner = [loaded[key] for key in WRAPPERS if isinstance(loaded.get(key), dict)]
        if not inner:
            break
        loaded = inner[0]
    if not isinstance(loaded, dict) or not any(isinstance(value, torch.Tensor) for value in loaded.values()):
        raise Unusable(f"no state dict, and none in {', '.join(WRAPPERS)}: save model.state_dict()")
    names = [str(name) for name in loaded]
    prefix = "module." if all(name.startswith("module.") for name in names) else ""
    return [(name[len(prefix):], value) for name, value in zip(names, loaded.values())]


def as_array(value):
    """Of numpy or PyTorch, as float32; None for what is no array of real numbers."""
    if not isinstance(value, np.ndarray) and hasattr(value, "detach"):
        if value.is_complex() or value.is_quantized or not value.is_floating_point():
            return None
        value = value.detach().float().numpy()
    value = np.asarray(value)
    return np.ascontiguousarray(value, dtype="<f4").reshape(value.shape) if value.dtype.kind == "f" else None


# ---- safetensors --------------------------------------------------------------------------------------


def write_safetensors(path, arrays):
    """The file appears whole or not at all."""
    header, at = {}, 0
    for name in sorted(arrays):
        header[name] = {"dtype": "F32", "shape": list(arrays[name].shape),
                        "data_offsets": [at, at + arrays[name].nbytes]}
        at += arrays[name].nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MOST_HEADER:
        raise Unusable(f"names and shapes take {len(text)} bytes, {MOST_HEADER} are allowed")
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".convert-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name in sorted(arrays):
                file.write(arrays[name].tobytes())
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def read(path):
    """The layout, (name, value) of each weight."""
    with open(path, "rb") as file:
        start = file.read(8)
    if start == HDF5:
        return "keras", keras_weights(path)
    if start.startswith((ZIP, PICKLE)) or path.endswith((".pt", ".pth")):
        if path.endswith(".keras"):
            raise Unusable("an archive of Keras 3: load it and save the model as x.h5")
        return "pytorch", pytorch_weights(path)
    raise Unusable("neither HDF5 (Keras' .h5) nor a file of torch.save (.pt, .pth)")


def convert(source, target):
    layout, weights = read(source)
    arrays, left_out = {}, []
    for name, value in weights:
        array = as_array(value)
        if array is None:
            left_out.append(name)
        elif name in arrays:
            raise Unusable(f"two weights are called {name}")
        else:
            arrays[name] = array
    if not arrays:
        raise Unusable("it has no weights")
    if target is None:
        for name, array in arrays.items():
            print(name, list(array.shape))
    else:
        write_safetensors(target, arrays)
    for name in left_out:
        print(f"left out: {name}", file=sys.stderr)
    numbers = sum(array.size for array in arrays.values())
    print(f"{len(arrays)} tensors, {numbers} numbers; a job reads them with layout: {layout}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help=".h5 of Keras, or .pt or .pth of PyTorch")
    parser.add_argument("target", nargs="?", help="safetensors file that is written, or replaced")
    parser.add_argument("--list", action="store_true", help="print names and shapes, and write nothing")
    arguments = parser.parse_args()
    if arguments.list == (arguments.target is not None):
        parser.error("give TARGET or --list")
    try:
        convert(arguments.source, arguments.target)
    except (Unusable, OSError) as error:
        print(f"convert_weights.py: {arguments.source}: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
