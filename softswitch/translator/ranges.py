"""The exact range of values that an expression can take.

BMv2 evaluates expressions with unlimited precision.  Knowing each node's range tells how many bits are
enough to hold its value exactly, so that generated code can use fixed-width integers.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_BITS = 1 << 16
"""Values that may need more bits than this are treated as unbounded."""


@dataclass(frozen=True)
class Range:
    """All values lie in [low, high]; both None: unbounded (a left shift by an unknown amount)."""

    low: int | None
    high: int | None

    @property
    def bounded(self) -> bool:
        return self.low is not None

    @property
    def signed(self) -> bool:
        return self.low is None or self.low < 0

    @property
    def bits(self) -> int:
        """Bits of two's complement, with a sign bit only if there are negative values; at least 1."""
        if not self.signed:
            return max(self.high.bit_length(), 1)
        return 1 + max((-self.low - 1).bit_length(), max(self.high, 0).bit_length())

    @property
    def limbs(self) -> int:
        return (self.bits + 63) // 64


UNBOUNDED = Range(None, None)


def of_width(width: int, signed: bool = False) -> Range:
    return Range(-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else Range(0, (1 << width) - 1)


def _limited(result: Range) -> Range:
    return result if result.bits <= MAX_BITS else UNBOUNDED


def _corners(values: list[int]) -> Range:
    return _limited(Range(min(values), max(values)))


def add(a: Range, b: Range) -> Range:
    if not (a.bounded and b.bounded):
        return UNBOUNDED
    return _limited(Range(a.low + b.low, a.high + b.high))


def sub(a: Range, b: Range) -> Range:
    if not (a.bounded and b.bounded):
        return UNBOUNDED
    return _limited(Range(a.low - b.high, a.high - b.low))


def mul(a: Range, b: Range) -> Range:
    if not (a.bounded and b.bounded):
        return UNBOUNDED
    return _corners([x * y for x in (a.low, a.high) for y in (b.low, b.high)])


def shift_left(a: Range, amount: Range) -> Range:
    if not a.bounded or not amount.bounded or amount.high > MAX_BITS:
        return UNBOUNDED
    shifts = (max(amount.low, 0), max(amount.high, 0))
    return _corners([x << s for x in (a.low, a.high) for s in shifts])


def shift_right(a: Range, amount: Range) -> Range:
    if not a.bounded:
        return UNBOUNDED
    low = max(amount.low or 0, 0)
    high = MAX_BITS if not amount.bounded else min(max(amount.high, 0), MAX_BITS)
    shifts = (min(low, MAX_BITS), high)
    return _corners([x >> s for x in (a.low, a.high) for s in shifts])


def bit_and(a: Range, b: Range) -> Range:
    bounds = [r.high for r in (a, b) if not r.signed]
    if bounds:
        return Range(0, min(bounds))
    return bit_or(a, b)


def bit_or(a: Range, b: Range) -> Range:
    if not (a.bounded and b.bounded):
        return UNBOUNDED
    if not (a.signed or b.signed):
        return Range(0, (1 << max(a.bits, b.bits)) - 1)
    width = max(r.bits + (not r.signed) for r in (a, b))
    return of_width(width, signed=True)


bit_xor = bit_or


def invert(a: Range) -> Range:
    return Range(-a.high - 1, -a.low - 1) if a.bounded else UNBOUNDED


def divide(a: Range, b: Range) -> Range:
    del b  # operands are never negative, and a divisor is at least 1
    return Range(0, max(a.high, 0)) if a.bounded else UNBOUNDED


def modulo(a: Range, b: Range) -> Range:
    bounds = [max(r.high, 0) for r in (a, b) if r.bounded]
    return Range(0, min(bounds)) if bounds else UNBOUNDED


def hull(a: Range, b: Range) -> Range:
    if not (a.bounded and b.bounded):
        return UNBOUNDED
    return Range(min(a.low, b.low), max(a.high, b.high))


def clamp(a: Range, to: Range) -> Range:
    if not a.bounded:
        return to
    return Range(min(max(a.low, to.low), to.high), max(min(a.high, to.high), to.low))
