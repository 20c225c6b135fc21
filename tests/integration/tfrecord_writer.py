"""TFRecord files, written from the format's description alone: what another program would write."""
import random
import struct

_TABLE = []
for _byte in range(256):
    _crc = _byte
    for _ in range(8):
        _crc = _crc >> 1 ^ (0x82F63B78 if _crc & 1 else 0)
    _TABLE.append(_crc)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data):
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def varint(value):
    value &= (1 << 64) - 1
    text = b""
    while value >= 128:
        text += bytes([value & 127 | 128])
        value >>= 7
    return text + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(value, packed):
    if isinstance(value, bytes):
        return field(1, field(1, value))
    if isinstance(value, float):
        number = struct.pack("<f", value)
        return field(2, field(1, number) if packed else varint(1 << 3 | 5) + number)
    return field(3, field(1, varint(value)) if packed else varint(1 << 3) + varint(value))


def example(features, seed):
    """In any order, lists packed or not, a field that nobody knows: all of it is allowed."""
    draw = random.Random(seed)
    entries = [field(1, field(1, key.encode()) + field(2, feature(value, draw.random() < 0.5)))
               for key, value in features.items()]
    draw.shuffle(entries)
    return field(1, b"".join(entries)) + field(9, b"what a later version may add")
