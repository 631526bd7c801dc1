"""What an expression means: BMv2 JSON expressions over Python's integers, and random ones to try.

Arithmetic has unlimited precision; results are truncated where they are assigned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bmv2_json import const, field, op
from hypothesis import strategies as st

Json = dict[str, Any]

FIELDS: dict[str, tuple[int, bool]] = {
    "bit": (1, False),
    "odd": (7, False),
    "byte": (8, False),
    "word": (33, False),
    "full": (64, False),
    "tiny_signed": (5, True),
    "int_signed": (32, True),
    "long_signed": (64, True),
    "over": (65, False),
    "double": (128, False),
    "odd_signed": (77, True),
    "even_signed": (128, True),
    "block": (512, False),
}
"""Name: (width, signed).  The widths are those where a representation changes."""

INPUT = "input"
WIDE_BITS = 700
"""Results up to this many bits are worth computing in a test."""


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def evaluate(node: Json, inputs: Mapping[str, int]) -> int | bool:
    """``inputs`` are raw field contents."""
    kind, value = node["type"], node["value"]
    if kind == "hexstr":
        return int(value, 16)
    if kind == "bool":
        return value
    if kind == "field":
        width, is_signed = FIELDS[value[1]]
        return signed(inputs[value[1]], width) if is_signed else inputs[value[1]]
    args = [evaluate(value[side], inputs) for side in ("left", "right") if value.get(side) is not None]
    return _apply(value, args, inputs)


def _apply(value: Json, args: list, inputs: Mapping[str, int]) -> int | bool:
    a, b = args[0], args[-1]
    match value["op"]:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "<<":
            return a << b
        case ">>":
            return a >> b
        case "/":
            return a // b if b else 0
        case "%":
            return a % b if b else 0
        case "&":
            return a & b
        case "|":
            return a | b
        case "^":
            return a ^ b
        case "~":
            return ~a
        case "==":
            return a == b
        case "!=":
            return a != b
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case ">=":
            return a >= b
        case "and":
            return a and b
        case "or":
            return a or b
        case "not":
            return not a
        case "d2b":
            return a != 0
        case "b2d":
            return int(a)
        case "two_comp_mod":
            return signed(a, b)
        case "usat_cast":
            return min(max(a, 0), (1 << b) - 1)
        case "sat_cast":
            return min(max(a, -(1 << (b - 1))), (1 << (b - 1)) - 1)
        case "?":
            return a if evaluate(value["cond"], inputs) else b
    raise AssertionError(value["op"])


@dataclass(frozen=True)
class Sized:
    """An expression with its bounds, by which the generator stays within sensible sizes."""

    node: Json
    low: int
    high: int

    @property
    def bits(self) -> int:
        return max(self.low.bit_length(), self.high.bit_length()) + 1


def _field(name: str) -> Sized:
    width, is_signed = FIELDS[name]
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if is_signed else (0, (1 << width) - 1)
    return Sized(field(INPUT, name), low, high)


def _constant(value: int) -> Sized:
    return Sized(const(value), value, value)


INTERESTING = sorted(
    {s * ((1 << n) + d) for n in (0, 1, 8, 31, 32, 63, 64, 65, 127, 128) for d in (-1, 0, 1) for s in (-1, 1)}
)

leaves = st.one_of(
    st.sampled_from(sorted(FIELDS)).map(_field),
    st.sampled_from(sorted(FIELDS)).map(_field),
    st.sampled_from(INTERESTING).map(_constant),
    st.integers(-(1 << 130), 1 << 130).map(_constant),
)


def _fits(result: Sized) -> bool:
    return result.bits <= WIDE_BITS


def _of_corners(node: Json, values: list[int]) -> Sized:
    return Sized(node, min(values), max(values))


def _grown(children: st.SearchStrategy[Sized]) -> st.SearchStrategy[Sized]:
    pairs = st.tuples(children, children)
    nonnegative = children.filter(lambda s: s.low >= 0)
    amounts = st.one_of(st.integers(0, 140).map(_constant), st.sampled_from(["bit", "odd"]).map(_field))

    def add(p: tuple[Sized, Sized]) -> Sized:
        return Sized(op("+", p[0].node, p[1].node), p[0].low + p[1].low, p[0].high + p[1].high)

    def subtract(p: tuple[Sized, Sized]) -> Sized:
        return Sized(op("-", p[0].node, p[1].node), p[0].low - p[1].high, p[0].high - p[1].low)

    def multiply(p: tuple[Sized, Sized]) -> Sized:
        corners = [x * y for x in (p[0].low, p[0].high) for y in (p[1].low, p[1].high)]
        return _of_corners(op("*", p[0].node, p[1].node), corners)

    def shift_left(p: tuple[Sized, Sized]) -> Sized:
        corners = [x << s for x in (p[0].low, p[0].high) for s in (p[1].low, p[1].high)]
        return _of_corners(op("<<", p[0].node, p[1].node), corners)

    def shift_right(p: tuple[Sized, Sized]) -> Sized:
        corners = [x >> s for x in (p[0].low, p[0].high) for s in (p[1].low, p[1].high)]
        return _of_corners(op(">>", p[0].node, p[1].node), corners)

    def bitwise(p: tuple[str, tuple[Sized, Sized]]) -> Sized:
        name, (a, b) = p
        width = max(a.bits, b.bits)
        return Sized(op(name, a.node, b.node), -(1 << width), (1 << width) - 1)

    def invert(s: Sized) -> Sized:
        return Sized(op("~", s.node), -s.high - 1, -s.low - 1)

    def divide(p: tuple[str, tuple[Sized, Sized]]) -> Sized:
        name, (a, b) = p
        return Sized(op(name, a.node, b.node), 0, a.high)

    def cast(p: tuple[str, Sized, int]) -> Sized:
        name, s, width = p
        low, high = (
            (0, (1 << width) - 1) if name == "usat_cast" else (-(1 << (width - 1)), (1 << (width - 1)) - 1)
        )
        return Sized(op(name, s.node, const(width)), low, high)

    def choose(p: tuple[Json, tuple[Sized, Sized]]) -> Sized:
        condition, (a, b) = p
        return Sized(op("?", a.node, b.node, cond=condition), min(a.low, b.low), max(a.high, b.high))

    conditions = booleans(children)
    widths = st.sampled_from([2, 8, 31, 32, 63, 64, 65, 77, 127, 128, 200])
    return st.one_of(
        pairs.map(add),
        pairs.map(subtract),
        pairs.map(multiply).filter(_fits),
        st.tuples(children, amounts).map(shift_left).filter(_fits),
        st.tuples(children, amounts).map(shift_right),
        st.tuples(st.sampled_from("&|^"), pairs).map(bitwise),
        children.map(invert),
        st.tuples(st.sampled_from("/%"), st.tuples(nonnegative, nonnegative)).map(divide),
        st.tuples(st.sampled_from(["two_comp_mod", "usat_cast", "sat_cast"]), children, widths).map(cast),
        st.tuples(conditions, pairs).map(choose),
        conditions.map(lambda c: Sized(op("b2d", c), 0, 1)),
    ).filter(_fits)


def booleans(numbers: st.SearchStrategy[Sized]) -> st.SearchStrategy[Json]:
    comparison = st.tuples(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), numbers, numbers).map(
        lambda p: op(p[0], p[1].node, p[2].node)
    )
    same = numbers.map(lambda s: op("==", s.node, s.node))
    base = st.one_of(comparison, same, numbers.map(lambda s: op("d2b", s.node)))
    return st.one_of(
        base,
        base.map(lambda c: op("not", c)),
        st.tuples(st.sampled_from(["and", "or"]), base, base).map(lambda p: op(*p)),
    )


expressions = st.recursive(leaves, _grown, max_leaves=12)
