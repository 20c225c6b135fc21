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
  jitter brightness|contrast|saturation|hue FACTOR CHANNELS PIXEL...
      what color_jitter makes of 0 to 255 (common/graph/augment/color_jitter.h): every operation
      rounded to float64, clipped, rounded to float32. The hue by colorsys' form of the formulas.
  rotate SINE COSINE FILL HEIGHT WIDTH PIXEL...
      one channel: the middle of each output pixel turned back about the image's, then bilinear.

DELTA, FACTOR, SINE and COSINE are float64 bits as 16 hex digits.
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


def clipped(x):
    return float32(min(max(x, Fraction(0)), Fraction(255)))


def stretched(x, middle, factor):
    return clipped(float64(float64(float64(x - middle) * factor) + middle))


def grey(pixel):
    if len(pixel) == 1:
        return pixel[0]
    return sum(weight * x for weight, x in zip((19595, 38470, 7471), pixel)) / 65536


def turned(pixel, shift):
    red, green, blue = pixel
    least, most = min(pixel), max(pixel)
    if least == most:
        return pixel
    away = [float64((most - x) / (most - least)) for x in pixel]
    if red == most:
        hue = away[2] - away[1]
    elif green == most:
        hue = 2 + away[0] - away[2]
    else:
        hue = 4 + away[1] - away[0]
    sector, rest = divmod((hue + 6 * shift) % 6, 1)
    falls = most - (most - least) * rest
    rises = least + (most - least) * rest
    return [(most, rises, least), (falls, most, least), (least, most, rises),
            (least, falls, most), (rises, least, most), (most, least, falls)][int(sector)]


def jitter(words):
    kind, factor, channels = words[0], number(words[1]), int(words[2])
    values = [Fraction(word) for word in words[3:]]
    pixels = [values[i:i + channels] for i in range(0, len(values), channels)]
    middle = float64(sum(map(grey, pixels)) / len(pixels))
    for pixel in pixels:
        if kind == "brightness":
            yield from (clipped(float64(x * factor)) for x in pixel)
        elif kind == "contrast":
            yield from (stretched(x, middle, factor) for x in pixel)
        elif channels == 1:
            yield from pixel
        elif kind == "saturation":
            yield from (stretched(x, grey(pixel), factor) for x in pixel)
        else:
            yield from (clipped(x) for x in turned(pixel, factor))


def rotate(words):
    sine, cosine = number(words[0]), number(words[1])
    fill, height, width = (int(word) for word in words[2:5])
    pixels = [Fraction(word) for word in words[5:]]
    inside = lambda i, size: min(max(i, 0), size - 1)
    for row in range(height):
        for column in range(width):
            down, across = row + Fraction(1 - height, 2), column + Fraction(1 - width, 2)
            x = float64(float64(float64(cosine * across) - float64(sine * down)) + Fraction(width, 2))
            y = float64(float64(float64(sine * across) + float64(cosine * down)) + Fraction(height, 2))
            if not (0 <= x < width and 0 <= y < height):
                yield Fraction(fill)
                continue
            x, y = float64(x - Fraction(1, 2)), float64(y - Fraction(1, 2))
            left, top = x.numerator // x.denominator, y.numerator // y.denominator

            def along(y):
                a, b = (pixels[inside(y, height) * width + inside(i, width)] for i in (left, left + 1))
                return float64(a + float64((b - a) * (x - left)))

            upper, lower = along(top), along(top + 1)
            yield float32(float64(upper + float64(float64(lower - upper) * (y - top))))


OPERATIONS = {"resize": resize, "brighten": brighten, "contrast": contrast, "jitter": jitter,
              "rotate": rotate}

for line in sys.stdin:
    name, *rest = line.split()
    print(*(f"{bits32(x):08x}" for x in OPERATIONS[name](rest)))
