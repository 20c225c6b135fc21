#!/usr/bin/env python3
"""Augmented images by exact fractions, rounded where the formulas say so.

Independent of the C++ code: no numpy, every value a Fraction or an int. Reads cases from standard
input and writes for each the float32 bits of the image as hex digits, one line a case. A case is
one line of words:

  resize FROM_H FROM_W CHANNELS TO_H TO_W PIXEL...
      output place x lies at (x + 1/2) in / out - 1/2; weights are rounded to float32 once, then
      a + (b - a) w with every operation rounded to float32, along x and then along y.
  brighten DELTA PIXEL...
      float32(x + delta), the sum rounded to float64 before.
  contrast FACTOR CHANNELS PIXEL...
      float32((x - mean) * factor + mean), every operation rounded to float64; the mean of each
      channel is its sum, which is exact, divided once.

DELTA and FACTOR are float64 bits as 16 hex digits.
"""

import struct
import sys
from fractions import Fraction


def rounded(x, digits, smallest):
    """The float of `digits` binary digits nearest to the fraction x, half to even."""
    if x == 0:
        return Fraction(0)
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    if Fraction(2) ** exponent > abs(x):
        exponent -= 1
    unit = Fraction(2) ** max(exponent - digits + 1, smallest)
    return round(x / unit) * unit  # Python's round of a Fraction is half to even


def float32(x):
    return rounded(x, 24, -149)


def float64(x):
    return rounded(x, 53, -1074)


def bits32(x):
    packed = struct.pack("<f", float(x))
    assert Fraction(struct.unpack("<f", packed)[0]) == x, x
    return struct.unpack("<I", packed)[0]


def number(digits):
    return Fraction(struct.unpack(">d", bytes.fromhex(digits))[0])


def taps(size, to):
    for x in range(to):
        place = Fraction(2 * x + 1, 2) * size / to - Fraction(1, 2)
        floor = place.numerator // place.denominator
        inside = [min(max(i, 0), size - 1) for i in (floor, floor + 1)]
        yield *inside, float32(place - floor)


def between(a, b, weight):
    return float32(a + float32(float32(b - a) * weight))


def resize(words):
    height, width, channels, to_height, to_width = (int(word) for word in words[:5])
    pixels = [Fraction(word) for word in words[5:]]
    at = lambda y, x, c: pixels[(y * width + x) * channels + c]
    for top, bottom, down in taps(height, to_height):
        for left, right, across in taps(width, to_width):
            for c in range(channels):
                upper = between(at(top, left, c), at(top, right, c), across)
                lower = between(at(bottom, left, c), at(bottom, right, c), across)
                yield between(upper, lower, down)


def brighten(words):
    delta = number(words[0])
    for word in words[1:]:
        yield float32(float64(Fraction(word) + delta))


def contrast(words):
    factor, channels = number(words[0]), int(words[1])
    pixels = [Fraction(word) for word in words[2:]]
    count = len(pixels) // channels
    means = [float64(sum(pixels[c::channels]) / count) for c in range(channels)]
    for i, x in enumerate(pixels):
        mean = means[i % channels]
        yield float32(float64(float64(float64(x - mean) * factor) + mean))


OPERATIONS = {"resize": resize, "brighten": brighten, "contrast": contrast}

for line in sys.stdin:
    name, *rest = line.split()
    print(*(f"{bits32(x):08x}" for x in OPERATIONS[name](rest)))
