"""Expressions of compiled programs against Python's integers.

Compiling costs seconds, so each program holds many expressions and every one is tried on many inputs.
"""

from __future__ import annotations

import json
import random

import pytest
from bmv2_json import ProgramBuilder, assign, const, field, op, param
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from reference_expressions import FIELDS, INPUT, evaluate, expressions

from netreduce.softswitch.pipeline import Pipeline
from netreduce.softswitch.translator import MalformedProgram, UnsupportedConstruct

RESULT_WIDTHS = (1, 8, 13, 32, 64, 65, 128, 190, 512)


def program(nodes: list[dict], widths: list[int]) -> dict:
    """Computes every expression from the header ``input`` into a field of its own."""
    builder = ProgramBuilder()
    builder.header(INPUT, [(name, *kind) for name, kind in FIELDS.items()])
    builder.header("result", [(f"r{i}", width) for i, width in enumerate(widths)])
    results = [assign(field("result", f"r{i}"), node) for i, node in enumerate(nodes)]
    return builder.parse(INPUT, "result").main(*results).json()


def pack_fields(values: list[int], widths: list[int]) -> bytes:
    """Fields without padding in between, then zeros up to a byte."""
    total = 0
    for value, width in zip(values, widths, strict=True):
        total = total << width | value
    bits = sum(widths)
    return (total << -bits % 8).to_bytes((bits + 7) // 8, "big")


def unpack_fields(data: bytes, widths: list[int]) -> list[int]:
    bits = int.from_bytes(data, "big") >> -sum(widths) % 8
    values = []
    for width in reversed(widths):
        values.append(bits & ((1 << width) - 1))
        bits >>= width
    return values[::-1]


def interesting(rng: random.Random, width: int) -> int:
    """Extremes, sparse and dense values: carries and sign bits rarely come up in uniform ones."""
    full = (1 << width) - 1
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice([0, 1, full, full >> 1, (full >> 1) + 1, full - 1])
    if kind == 1:
        return 1 << rng.randrange(width)
    if kind == 2:
        return full >> rng.randrange(width)
    if kind == 3:
        return full ^ (full >> rng.randrange(width))
    return rng.getrandbits(width)


def check(nodes: list[dict], widths: list[int], seed: int, rounds: int = 40) -> None:
    rng = random.Random(seed)
    input_widths = [width for width, _ in FIELDS.values()]
    with Pipeline(program(nodes, widths)) as pipeline:
        for _ in range(rounds):
            inputs = {name: interesting(rng, width) for name, (width, _) in FIELDS.items()}
            header = pack_fields(list(inputs.values()), input_widths)
            before = pack_fields([interesting(rng, w) for w in widths], widths)
            ((port, frame),) = pipeline.process(3, header + before + b"payload")
            assert port == 3
            assert frame[: len(header)] == header
            assert frame.endswith(b"payload")
            actual = unpack_fields(frame[len(header) : -len(b"payload")], widths)
            for node, width, result in zip(nodes, widths, actual, strict=True):
                expected = int(evaluate(node, inputs)) & ((1 << width) - 1)
                assert result == expected, f"{json.dumps(node)} into {width} bits with {inputs}"


@settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # shrinking would compile a program for every attempt
    suppress_health_check=list(HealthCheck),
)
@given(
    st.lists(st.tuples(expressions, st.sampled_from(RESULT_WIDTHS)), min_size=60, max_size=60),
    st.integers(0, 1 << 32),
)
def test_random_expressions(cases, seed):
    check([sized.node for sized, _ in cases], [width for _, width in cases], seed)


def test_lane_addition_of_a_block():
    """The addition that keeps carries inside lanes, on 2048 bits at once."""
    width, lane = 2048, 32
    top = sum(1 << (i * lane + lane - 1) for i in range(width // lane))
    builder = ProgramBuilder().header("a", [("v", width)]).header("b", [("v", width)])
    a, b, mask = field("a", "v"), field("b", "v"), (1 << width) - 1
    rest = const(mask & ~top)
    total = op("&", op("+", op("&", a, rest), op("&", b, rest)), const(mask))
    builder.parse("a", "b").main(assign(a, op("^", total, op("&", op("^", a, b), const(top)))))
    rng = random.Random(7)
    with Pipeline(builder.json()) as pipeline:
        for _ in range(20):
            x, y = (interesting(rng, width).to_bytes(256, "big") for _ in range(2))
            ((_, frame),) = pipeline.process(1, x + y)
            for at in range(0, 256, 4):
                lanes = [int.from_bytes(v[at : at + 4], "big") for v in (x, y, frame)]
                assert lanes[2] == (lanes[0] + lanes[1]) % (1 << 32)
            assert frame[256:] == y


@pytest.mark.parametrize(
    "target, value",
    [
        ("double", op("+", op("<<", field(INPUT, "double"), const(3)), field(INPUT, "double"))),
        ("double", op("*", field(INPUT, "double"), field(INPUT, "double"))),
        ("double", op("-", field(INPUT, "byte"), field(INPUT, "double"))),
        ("double", op(">>", field(INPUT, "double"), const(65))),
        ("block", op("?", op("-", field(INPUT, "block"), const(1)), field(INPUT, "block"),
                     cond=op(">", field(INPUT, "block"), field(INPUT, "double")))),
        ("odd_signed", op("-", const(0), field(INPUT, "odd_signed"))),
        ("tiny_signed", op("two_comp_mod", op("*", field(INPUT, "tiny_signed"), const(3)), const(5))),
    ],
)  # fmt: skip
def test_assignment_to_an_operand(target, value):
    """The target is written only after everything that depends on it has been read."""
    builder = ProgramBuilder().header(INPUT, [(name, *kind) for name, kind in FIELDS.items()])
    builder.parse(INPUT).main(assign(field(INPUT, target), value))
    widths = [width for width, _ in FIELDS.values()]
    rng = random.Random(11)
    with Pipeline(builder.json()) as pipeline:
        for _ in range(50):
            inputs = {name: interesting(rng, width) for name, (width, _) in FIELDS.items()}
            ((_, frame),) = pipeline.process(1, pack_fields(list(inputs.values()), widths))
            width = FIELDS[target][0]
            expected = inputs | {target: int(evaluate(value, inputs)) & ((1 << width) - 1)}
            assert dict(zip(FIELDS, unpack_fields(frame, widths), strict=True)) == expected


@pytest.mark.parametrize("name", ["block", "double", "odd_signed", "long_signed"])
def test_slices(name):
    """As the compiler writes x[high:low]: the result may end anywhere in a limb."""
    width = FIELDS[name][0]
    nodes, widths = [], []
    for low in (0, 1, 13, 40, 63, 64, 65, 100, 127, 128, 190):
        for size in (1, 33, 64, 65, 128):
            if low + size <= width:
                mask = const((1 << size) - 1)
                nodes.append(op("&", op(">>", field(INPUT, name), const(low)), mask))
                widths.append(size)
    check(nodes, widths, seed=width, rounds=20)


def refused(node: dict) -> UnsupportedConstruct:
    with pytest.raises(UnsupportedConstruct) as caught:
        Pipeline(program([node], [64]))
    return caught.value


def test_unknown_operator_is_refused_by_name():
    assert "'popcount'" in refused(op("popcount", field(INPUT, "byte"), const(1))).construct


def test_exact_result_of_a_huge_shift_is_refused():
    shifted = op("<<", field(INPUT, "byte"), field(INPUT, "word"))
    assert "left shift" in refused(op(">>", shifted, const(1))).construct


def test_huge_shift_is_fine_where_it_is_truncated():
    node = op("<<", field(INPUT, "double"), field(INPUT, "word"))
    builder_widths = [64, 128]
    with Pipeline(program([node, node], builder_widths)) as pipeline:
        widths = [width for width, _ in FIELDS.values()]
        for shift in (0, 1, 63, 64, 100, 127, 128, 1 << 32):
            inputs = dict.fromkeys(FIELDS, 0) | {"double": (1 << 128) - 3, "word": shift}
            frame = pack_fields(list(inputs.values()), widths) + bytes(24)
            ((_, out),) = pipeline.process(1, frame)
            expected = ((1 << 128) - 3) << min(shift, 200)
            results = unpack_fields(out[-24:], builder_widths)
            assert results == [expected % (1 << 64), expected % (1 << 128)]


def test_argument_that_the_action_does_not_have_is_malformed():
    with pytest.raises(MalformedProgram, match="argument 3 of 0"):
        Pipeline(program([param(3)], [8]))
