#!/usr/bin/env python3
"""Exact sums of dumped shard gradients, by Python integers alone.

Reads a dump from standard input and writes what every ring must come to, independently of the C++
code: no numpy, every value an int or a Fraction. The rule is that of the exact all-reduce:
q = round_half_even(g * scale / 2^(E - B)) for each shard, sums of q as integers, reduced value =
float32(sum), rounded once half to even, times 2^(E - B).

The dump is text, one record a line, words separated by blanks:

  precision B              precision_bits, 8 to 24
  scale N                  the gradient scale is 2^N (1 / loss scale)
  shards V
  exponents T E0 E1 ...    block exponents of tensor T; every tensor has one such line
  gradient S T H0 H1 ...   gradient of tensor T by shard S: float32 bits as 8 hex digits

The order of lines does not matter, and every shard has a gradient of every tensor. The answer:

  flag S C                 of each shard: 0, or kind + 4 * T of the first refused value of the first
                           such tensor; kind 1 not finite, 2 too large
  sum T Q0 Q1 ...          sums over the shards, decimal
  reduced T H0 H1 ...      float32 bits
  next T E0 E1 ...         block exponents of the next step

Where no flag is set it also checks |reduced - sum of g * scale| <= V u / 2 + half a unit in the
last place, over the reals, and exits 1 with a message where that fails.
"""

import struct
import sys
from fractions import Fraction

BLOCK = 256
NOT_FINITE, TOO_LARGE = 1, 2


def power(exponent):
    return Fraction(2) ** exponent


def value_of(bits):
    """The real number of float32 bits; None for NaN and infinities."""
    sign = -1 if bits >> 31 else 1
    exponent = bits >> 23 & 0xFF
    fraction = bits & 0x7FFFFF
    if exponent == 255:
        return None
    if exponent == 0:
        return sign * fraction * power(-149)
    return sign * (fraction | 0x800000) * power(exponent - 150)


def round_half_even(x):
    floor = x.numerator // x.denominator
    rest = x - floor
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and floor % 2 == 1):
        return floor + 1
    return floor


def rounded_to_24_bits(integer):
    """The float32 nearest to an integer, half to even, as an integer."""
    dropped = max(0, abs(integer).bit_length() - 24)
    return round_half_even(Fraction(integer, 1 << dropped)) << dropped


def float_bits(x):
    """Bits of a real that is a float32 exactly. +0 for zero."""
    packed = struct.pack("<f", float(x))
    assert Fraction(struct.unpack("<f", packed)[0]) == x, x
    return struct.unpack("<I", packed)[0]


def floor_log2(x):
    """Of a positive Fraction."""
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if power(guess) <= x else guess - 1


def ceil_log2(n):
    return (n - 1).bit_length()


class Case:
    def __init__(self, lines):
        self.exponents = {}
        self.gradients = {}
        for line in lines:
            word, *rest = line.split()
            if word == "precision":
                self.precision = int(rest[0])
            elif word == "scale":
                self.scale = power(int(rest[0]))
            elif word == "shards":
                self.shards = int(rest[0])
            elif word == "exponents":
                self.exponents[int(rest[0])] = [int(e) for e in rest[1:]]
            elif word == "gradient":
                key = int(rest[0]), int(rest[1])
                self.gradients[key] = [int(bits, 16) for bits in rest[2:]]
            else:
                raise SystemExit(f"unknown record: {word}")
        missing = [
            (shard, tensor)
            for shard in range(self.shards)
            for tensor in self.exponents
            if (shard, tensor) not in self.gradients
        ]
        if missing:
            raise SystemExit(f"no gradient of (shard, tensor) {missing}")

    def unit(self, tensor, element):
        return power(self.exponents[tensor][element // BLOCK] - self.precision)

    def quantize(self, bits, unit):
        """(q, kind) of one value."""
        value = value_of(bits)
        if value is None:
            return 0, NOT_FINITE
        log2_shards = ceil_log2(self.shards)
        q = round_half_even(value * self.scale / unit)
        if abs(value * self.scale) >= power(127 - log2_shards) or abs(q) >= 1 << 62 - log2_shards:
            return 0, TOO_LARGE
        return q, 0

    def next_exponents(self, reduced):
        smallest = self.precision - 40
        largest = max(abs(x) for x in reduced)
        blocks = []
        for start in range(0, len(reduced), BLOCK):
            of_block = max(abs(x) for x in reduced[start : start + BLOCK])
            candidates = [smallest]
            if largest > 0:
                candidates.append(floor_log2(largest) - 12)
            if of_block > 0:
                candidates.append(floor_log2(of_block))
            blocks.append(min(max(candidates), 127))
        return blocks

    def check_error(self, tensor, reduced):
        for i, got in enumerate(reduced):
            want = self.scale * sum(
                value_of(self.gradients[shard, tensor][i]) for shard in range(self.shards)
            )
            allowed = self.shards * self.unit(tensor, i) / 2
            if got != 0:
                # Half a unit in the last place of the result; a power of two has the neighbour
                # below at half the distance, so this is the larger of the two.
                allowed += power(floor_log2(abs(got)) - 24)
            if abs(got - want) > allowed:
                raise SystemExit(f"tensor {tensor}, element {i}: {got} is too far from {want}")

    def solve(self, out):
        flags = [0] * self.shards
        answers = []
        for tensor in sorted(self.exponents):
            sums = [0] * len(self.gradients[0, tensor])
            for shard in range(self.shards):
                for i, bits in enumerate(self.gradients[shard, tensor]):
                    q, kind = self.quantize(bits, self.unit(tensor, i))
                    sums[i] += q
                    if kind and not flags[shard]:
                        flags[shard] = kind + 4 * tensor
            reduced = [rounded_to_24_bits(q) * self.unit(tensor, i) for i, q in enumerate(sums)]
            answers.append((tensor, sums, reduced))
        for shard, code in enumerate(flags):
            print("flag", shard, code, file=out)
        for tensor, sums, reduced in answers:
            print("sum", tensor, *sums, file=out)
            print("reduced", tensor, *(f"{float_bits(x):08x}" for x in reduced), file=out)
            print("next", tensor, *self.next_exponents(reduced), file=out)
            if not any(flags):
                self.check_error(tensor, reduced)


if __name__ == "__main__":
    Case(sys.stdin.read().splitlines()).solve(sys.stdout)
