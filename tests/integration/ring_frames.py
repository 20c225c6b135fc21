"""Frames of the ring as docs/ring.md describes them, made without our code."""
import hashlib
import struct

_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = (_byte >> 1) ^ (0x82F63B78 if _byte & 1 else 0)
    _TABLE.append(_byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def frame(job_id, term, counter, step, payload):
    """A well-formed frame of phase reduce-scatter, bucket 0, chunk 0, segment 0."""
    job = hashlib.sha256(job_id.encode()).digest()[:8]
    header = struct.pack("<4sHBB8sQQQIIIII16x", b"RING", 1, 1, 1, job, term, counter, step, 0, 0, 0,
                         len(payload), crc32c(payload))
    assert len(header) == 76
    return header + struct.pack("<I", crc32c(header)) + payload
