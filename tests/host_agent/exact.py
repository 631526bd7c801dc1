"""Exact arithmetic that the datapath's rounding is checked against: Fractions and IEEE 754 formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from netreduce.host_agent._datapath import DType


@dataclass(frozen=True)
class Format:
    """A binary floating-point format, and how its values lie in a numpy array."""

    precision: int
    exponent_bits: int
    storage: np.dtype

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def max_finite(self) -> Fraction:
        return (2 - Fraction(2) ** (1 - self.precision)) * Fraction(2) ** self.bias

    def spacing(self, value: Fraction) -> Fraction:
        """The distance between the format's numbers around `value`."""
        smallest = Fraction(2) ** (2 - self.bias - self.precision)
        if value == 0:
            return smallest
        return max(Fraction(2) ** (floor_log2(abs(value)) - self.precision + 1), smallest)

    def round(self, value: Fraction) -> Fraction | float:
        """To nearest, ties to even; infinity when that overflows."""
        spacing = self.spacing(value)
        rounded = round(value / spacing) * spacing  # Fraction.__round__ breaks ties to even
        if abs(rounded) > self.max_finite:
            return float("inf") if value > 0 else float("-inf")
        return rounded

    def decode(self, bits: int) -> Fraction | float:
        """The value of a bit pattern; infinities and NaN as floats."""
        mantissa_bits = self.precision - 1
        mantissa, rest = bits & ((1 << mantissa_bits) - 1), bits >> mantissa_bits
        exponent, negative = rest & ((1 << self.exponent_bits) - 1), rest >> self.exponent_bits
        sign = -1 if negative else 1
        if exponent == (1 << self.exponent_bits) - 1:
            return float("nan") if mantissa else sign * float("inf")
        if exponent == 0:
            return sign * mantissa * Fraction(2) ** (1 - self.bias - mantissa_bits)
        return (
            sign * (mantissa + (1 << mantissa_bits)) * Fraction(2) ** (exponent - self.bias - mantissa_bits)
        )


FORMATS = {
    DType.float32: Format(24, 8, np.dtype(np.float32)),
    DType.float16: Format(11, 5, np.dtype(np.float16)),
    DType.bfloat16: Format(8, 8, np.dtype(np.uint16)),
    DType.float64: Format(53, 11, np.dtype(np.float64)),
}


def floor_log2(value: Fraction) -> int:
    """Of a positive value."""
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1


def values(array: np.ndarray, dtype: DType) -> list[Fraction | float]:
    """The exact values of a float array (bfloat16 as uint16)."""
    bits = array.view(f"u{array.itemsize}")
    return [FORMATS[dtype].decode(int(b)) for b in bits]


def array_of(bits: Sequence[int], dtype: DType) -> np.ndarray:
    storage = FORMATS[dtype].storage
    return np.array(bits, f"u{storage.itemsize}").view(storage)
