#!/usr/bin/python3
"""ringmaster.torch.load: what a safetensors file holds, and files that are none."""
import json
import pathlib
import struct
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True

import torch
import ringmaster.torch
from ringmaster.torch.weights import WrongFile


def write(path, header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Load(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ringmaster-python-test-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "model.safetensors"

    def test_a_state_dict(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
        header, data = {"__metadata__": {"step": "7"}}, b""
        for name, tensor in model.state_dict().items():
            kind = {torch.float32: "F32", torch.int64: "I64"}[tensor.dtype]
            bytes_of = tensor.numpy().tobytes()
            header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(bytes_of)]}
            data += bytes_of
        write(self.path, header, data)
        for path in (self.path, str(self.path), self.path.parent):
            loaded = ringmaster.torch.load(path)
            other = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
            other.load_state_dict(loaded, strict=True)
            for name, tensor in model.state_dict().items():
                self.assertTrue(torch.equal(tensor, other.state_dict()[name]), name)
        loaded["0.weight"][...] = 0  # memory of its own
        self.assertTrue(torch.equal(ringmaster.torch.load(self.path)["0.weight"], model[0].weight))

    def test_types_and_empty_tensors(self):
        write(self.path, {"b": {"dtype": "BF16", "shape": [2], "data_offsets": [1, 5]}, "e": {"dtype": "F32", "shape": [0, 4],
                                                                                         "data_offsets": [0, 0]},
                          "t": {"dtype": "BOOL", "shape": [], "data_offsets": [0, 1]}}, b"\x01\x80\x3f\x00\xc0")
        loaded = ringmaster.torch.load(self.path)
        self.assertEqual((loaded["b"].tolist(), loaded["e"].shape, loaded["t"].item()), ([1.0, -2.0], (0, 4), True))

    def test_what_is_no_such_file(self):
        entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        for header, data, said in (({"a": entry}, b"1234", "0 to 8 of 4"), ({"a": {**entry, "dtype": "F8"}}, b"", "of type F8"),
                                   ({"a": {**entry, "data_offsets": [0, 4]}}, b"12345678", "8 bytes were expected"),
                                   ({"a": {**entry, "data_offsets": [-8, 0]}}, b"12345678", "-8 to 0"),
                                   (b"{", b"", "no JSON"), ([3], b"", "no JSON"), ({"a": 3}, b"", "dtype, shape and"),
                                   ({"a": {**entry, "shape": [-2]}}, b"12345678", "-8 bytes"),
                                   ({"a": {**entry, "shape": [1 << 60]}}, b"12345678", "bytes were expected")):
            write(self.path, header, data)
            with self.assertRaisesRegex(WrongFile, said):
                ringmaster.torch.load(self.path)
        for text in (b"", b"\xff" * 20):
            self.path.write_bytes(text)
            with self.assertRaisesRegex(WrongFile, "no safetensors file"):
                ringmaster.torch.load(self.path)


if __name__ == "__main__":
    unittest.main()
