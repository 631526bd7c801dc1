"""Match-action tables of compiled programs."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from bmv2_json import BOUNCE, ProgramBuilder, assign, const, field, key, param, primitive, table

from netreduce.softswitch.pipeline import Count, Pipeline
from netreduce.softswitch.pipeline_abi import ProgramError, ProgramStatus

FIELDS = {"a": 16, "b": 12, "c": 4, "d": 128, "e": 32}
"""Fields of the header ``h``, all of which a table may match on."""


def program(*keys: tuple[str, str], **options) -> dict:
    """One table on fields of ``h``; its action ``mark`` writes its argument into the header ``out``."""
    builder = ProgramBuilder()
    builder.header("h", list(FIELDS.items())).header("out", [("mark", 32), ("wide", 128)])
    builder.parse("h", "out")
    marks = [assign(field("out", "mark"), param(0)), assign(field("out", "wide"), param(1)), BOUNCE]
    builder.action("mark", marks, [("mark", 32), ("wide", 128)])
    builder.action("miss", [assign(field("out", "mark"), const(0xFFFF)), BOUNCE])
    options = {"default": "miss"} | options
    builder.ingress.append(table("t", [key(m, ("h", f)) for m, f in keys], ["mark", "miss"], **options))
    return builder.json()


def frame(**values: int) -> bytes:
    parts, bits = 0, 0
    for name, width in FIELDS.items():
        parts = parts << width | values.get(name, 0)
        bits += width
    return parts.to_bytes(bits // 8, "big") + bytes(20)


def mark(pipeline: Pipeline, **values: int) -> int:
    """What the table's action wrote; 0xFFFF for a miss."""
    ((_, out),) = pipeline.process(1, frame(**values))
    return int.from_bytes(out[-20:-16], "big")


def insert(pipeline: Pipeline, values, number: int, masks=None, priority: int = 0) -> int:
    return pipeline.insert("t", values, "mark", [number, number], masks, priority)


def status_of(call) -> int:
    with pytest.raises(ProgramError) as caught:
        call()
    return caught.value.status


# --- Exact -------------------------------------------------------------------------------------


def test_exact_table_of_many_entries():
    """Growth of the hash table, deletion from the middle of probe runs, and reuse."""
    count = 12_000
    with Pipeline(program(("exact", "a"), ("exact", "e"), max_size=count)) as pipeline:
        keys = [(i % 65536, i * 2654435761 % (1 << 32)) for i in range(count)]
        handles = [insert(pipeline, k, i) for i, k in enumerate(keys)]
        assert status_of(lambda: insert(pipeline, (1, 1), 0)) == ProgramStatus.FULL
        for i in range(0, count, 2):
            pipeline.delete("t", handles[i])
        for i in range(0, count, 7):
            assert mark(pipeline, a=keys[i][0], e=keys[i][1]) == (i if i % 2 else 0xFFFF)
        for i in range(0, count, 2):
            insert(pipeline, keys[i], i + 1)
        for i in range(0, count, 5):
            assert mark(pipeline, a=keys[i][0], e=keys[i][1]) == (i if i % 2 else i + 1)


def test_exact_table_on_a_wide_field_and_wide_action_data():
    with Pipeline(program(("exact", "d"), ("exact", "c"))) as pipeline:
        value = 0x0123456789ABCDEF_FEDCBA9876543210
        pipeline.insert("t", (value, 5), "mark", [9, value])
        ((_, out),) = pipeline.process(1, frame(d=value, c=5))
        assert out[-20:] == (9).to_bytes(4, "big") + value.to_bytes(16, "big")
        assert mark(pipeline, d=value ^ 1 << 100, c=5) == 0xFFFF
        assert mark(pipeline, d=value, c=4) == 0xFFFF


def test_entries_and_handles():
    with Pipeline(program(("exact", "a"))) as pipeline:
        handle = insert(pipeline, (1,), 1)
        assert status_of(lambda: insert(pipeline, (1,), 2)) == ProgramStatus.EXISTS
        pipeline.modify("t", handle, "mark", [7, 0])
        assert mark(pipeline, a=1) == 7
        pipeline.delete("t", handle)
        assert mark(pipeline, a=1) == 0xFFFF
        again = insert(pipeline, (1,), 3)
        assert again != handle, "a deleted entry's handle must not name its successor"
        assert status_of(lambda: pipeline.delete("t", handle)) == ProgramStatus.NOT_FOUND
        assert status_of(lambda: pipeline.modify("t", handle, "mark", [1, 1])) == ProgramStatus.NOT_FOUND
        assert mark(pipeline, a=1) == 3


def test_malformed_entries_are_refused():
    with Pipeline(program(("exact", "b"))) as pipeline:
        assert status_of(lambda: insert(pipeline, (0x1000,), 1)) == ProgramStatus.INVALID  # 13 bits
        entry_data = pipeline.ops  # too little data
        assert entry_data.table_set_default(pipeline.instance, 0, 0, b"\0" * 3, 3) == ProgramStatus.INVALID
        assert entry_data.table_set_default(pipeline.instance, 0, 77, None, 0) == ProgramStatus.INVALID
        assert entry_data.table_set_default(pipeline.instance, 55, 0, None, 0) == ProgramStatus.NOT_FOUND


def test_fields_of_invalid_headers_match_as_zero():
    builder = ProgramBuilder()
    builder.header("h", [("a", 16)]).header("absent", [("v", 16), ("w", 128)]).parse("h")
    builder.action("mark", [assign(field("h", "a"), param(0)), BOUNCE], [("mark", 16)])
    builder.action("stain", [primitive("add_header", {"type": "header", "value": "absent"}),
                             assign(field("absent", "v"), const(5)), assign(field("absent", "w"), const(5)),
                             primitive("remove_header", {"type": "header", "value": "absent"})])  # fmt: skip
    builder.ingress.append(table("tbl_stain", [], ["stain"], "stain", const=True, next_table="t"))
    keys = [key("exact", ("absent", "v")), key("exact", ("absent", "w")), key("exact", ("absent", "$valid$"))]
    builder.ingress.append(table("t", keys, ["mark"]))
    with Pipeline(builder.json()) as pipeline:
        pipeline.insert("t", (0, 0, 0), "mark", [0x1234])
        assert pipeline.process(1, b"\0\0") == [(1, b"\x12\x34")]


# --- LPM, ternary, range against a model --------------------------------------------------------


@dataclass
class ModelEntry:
    values: tuple[int, ...]
    masks: tuple[int, ...]
    priority: int
    number: int

    def matches(self, kinds: list[str], given: tuple[int, ...]) -> bool:
        return all(
            v <= g <= m if kind == "range" else g & m == v
            for kind, g, v, m in zip(kinds, given, self.values, self.masks, strict=True)
        )


def prefix_mask(width: int, length: int) -> int:
    full = (1 << width) - 1
    return full ^ (full >> length)


def random_entry(rng: random.Random, kinds: list[str], widths: list[int]) -> tuple[list[int], list[int]]:
    values, masks = [], []
    for kind, width in zip(kinds, widths, strict=True):
        full = (1 << width) - 1
        value = rng.choice([rng.getrandbits(width), rng.getrandbits(2) << (width - 2)])
        if kind == "lpm":
            mask = prefix_mask(width, rng.choice([0, 1, 2, 8 % width, width - 1, width]))
        elif kind == "ternary":
            mask = rng.choice([0, full, full ^ 1, 3 << (width - 2)])
        elif kind == "range":
            value, mask = sorted([value, rng.getrandbits(width)])
        else:
            mask = full
        values.append(value if kind == "range" else value & mask)
        masks.append(mask)
    return values, masks


@pytest.mark.parametrize(
    "keys",
    [
        [("lpm", "e")],
        [("lpm", "d")],
        [("exact", "c"), ("lpm", "b")],
        [("ternary", "a"), ("ternary", "d")],
        [("lpm", "b"), ("ternary", "e"), ("exact", "c")],
        [("range", "a")],
        [("range", "d"), ("exact", "c"), ("ternary", "e"), ("lpm", "b")],
    ],
    ids=lambda keys: "-".join(f"{kind}_{name}" for kind, name in keys),
)
def test_random_entries_against_a_model(keys):
    """Inserted, deleted and inserted again; among equal priorities the lower row number wins."""
    rng = random.Random(str(keys))
    kinds, names = [k for k, _ in keys], [n for _, n in keys]
    widths = [FIELDS[n] for n in names]
    prioritised = any(kind in ("ternary", "range") for kind in kinds)
    rows: list[ModelEntry | None] = []  # by row number
    handles: dict[int, int] = {}
    with Pipeline(program(*keys)) as pipeline:
        for step in range(300):
            live = [e for e in rows if e]
            if live and rng.random() < 0.25:
                victim = rng.choice(live)
                pipeline.delete("t", handles.pop(victim.number))
                rows[rows.index(victim)] = None
                continue
            values, masks = random_entry(rng, kinds, widths)
            entry = ModelEntry(tuple(values), tuple(masks), rng.randrange(4) if prioritised else 0, step)
            same = [
                e
                for e in live
                if (e.values, e.masks, e.priority) == (entry.values, entry.masks, entry.priority)
            ]
            if same:
                refused = status_of(lambda e=entry: insert(pipeline, e.values, e.number, e.masks, e.priority))
                assert refused == ProgramStatus.EXISTS
                continue
            handles[step] = insert(pipeline, entry.values, step, entry.masks, entry.priority)
            if None in rows:
                rows[rows.index(None)] = entry
            else:
                rows.append(entry)
            for _ in range(4):
                near = rng.choice([e for e in rows if e])
                given = tuple(
                    rng.choice([v, m, rng.getrandbits(w), (v + 1) % (1 << w)])
                    for v, m, w in zip(near.values, near.masks, widths, strict=True)
                )
                matching = [e for e in rows if e and e.matches(kinds, given)]
                if prioritised:
                    best = max(matching, key=lambda e: (e.priority, -rows.index(e)), default=None)
                else:
                    best = max(matching, key=lambda e: sum(m.bit_count() for m in e.masks), default=None)
                expected = best.number if best else 0xFFFF
                assert mark(pipeline, **dict(zip(names, given, strict=True))) == expected


def test_malformed_masks_are_refused():
    with Pipeline(program(("lpm", "e"))) as pipeline:
        assert status_of(lambda: insert(pipeline, (0,), 1, masks=(0x00FF0000,))) == ProgramStatus.INVALID
    with Pipeline(program(("range", "a"))) as pipeline:
        assert status_of(lambda: insert(pipeline, (5,), 1, masks=(4,))) == ProgramStatus.INVALID


# --- Default actions and constant tables --------------------------------------------------------


def test_default_action_can_be_changed_and_reset():
    with Pipeline(program(("exact", "a"))) as pipeline:
        assert mark(pipeline) == 0xFFFF
        pipeline.set_default("t", "mark", [4, 4])
        assert mark(pipeline) == 4
        pipeline.reset_default("t")
        assert mark(pipeline) == 0xFFFF


def test_default_action_with_data_from_the_program():
    with Pipeline(program(("exact", "a"), default="mark", default_data=[0xABCDEF01, 1 << 127])) as pipeline:
        ((_, out),) = pipeline.process(1, frame())
        assert out[-20:] == bytes.fromhex("abcdef01 80000000 00000000 00000000 00000000")


def test_const_default_action_and_const_entries():
    entries = [
        {"match_key": [{"match_type": "ternary", "key": "0x0100", "mask": "0xff00"}], "priority": 1,
         "action_entry": {"action": "mark", "action_data": ["0x1", "0x0"]}},
        {"match_key": [{"match_type": "ternary", "key": "0x0001", "mask": "0x00ff"}], "priority": 2,
         "action_entry": {"action": "mark", "action_data": ["0x2", "0x0"]}},
    ]  # fmt: skip
    with Pipeline(program(("ternary", "a"), entries=entries, const=True)) as pipeline:
        assert [mark(pipeline, a=a) for a in (0x0101, 0x0201, 0x0202)] == [1, 2, 0xFFFF]
        assert status_of(lambda: insert(pipeline, (9,), 9, masks=(0xFFFF,))) == ProgramStatus.CONST
        assert status_of(lambda: pipeline.delete("t", 1)) == ProgramStatus.CONST
        assert status_of(lambda: pipeline.set_default("t", "mark", [1, 1])) == ProgramStatus.CONST


def test_const_entries_of_every_kind():
    entries = [
        {"match_key": [{"match_type": "range", "start": "0x0010", "end": "0x0020"},
                       {"match_type": "lpm", "key": "0x0a000000", "prefix_length": 8},
                       {"match_type": "exact", "key": "0x03"}],
         "priority": 1, "action_entry": {"action": "mark", "action_data": ["0x5", "0x0"]}},
    ]  # fmt: skip
    with Pipeline(program(("range", "a"), ("lpm", "e"), ("exact", "c"), entries=entries)) as pipeline:
        assert mark(pipeline, a=0x20, e=0x0A010203, c=3) == 5
        assert mark(pipeline, a=0x21, e=0x0A010203, c=3) == 0xFFFF
        assert mark(pipeline, a=0x10, e=0x0B010203, c=3) == 0xFFFF
        assert mark(pipeline, a=0x10, e=0x0A010203, c=2) == 0xFFFF


# --- Counters and control flow ------------------------------------------------------------------


def test_direct_counters_count_packets_and_ingress_bytes():
    with Pipeline(program(("exact", "a"), with_counters=True)) as pipeline:
        first, second = insert(pipeline, (1,), 1), insert(pipeline, (2,), 2)
        length = len(frame())
        for a in (1, 1, 2, 9):
            mark(pipeline, a=a)
        assert pipeline.table_counter("t", first) == Count(2, 2 * length)
        assert pipeline.table_counter("t", second) == Count(1, length)
        assert pipeline.table_counter("t", 0) == Count(1, length)
        pipeline.set_table_counter("t", first, Count(100, 5))
        mark(pipeline, a=1)
        assert pipeline.table_counter("t", first) == Count(101, 5 + length)


@pytest.mark.parametrize("branch", ["hit", "action"])
def test_next_table_by_hit_or_by_action(branch):
    builder = ProgramBuilder().header("h", [("a", 16), ("b", 16)]).parse("h")
    for name, value in (("one", 1), ("two", 2), ("three", 3)):
        builder.action(name, [assign(field("h", "b"), const(value)), BOUNCE])
    builder.action("nothing", [])
    following = {"__HIT__": "after_hit", "__MISS__": "after_miss"}
    if branch == "action":
        following = {"nothing": "after_hit", "three": "after_miss"}
    builder.ingress += [
        table("t", [key("exact", ("h", "a"))], ["nothing", "three"], "three", next_tables=following),
        table("after_hit", [], ["one"], "one", const=True),
        table("after_miss", [], ["two"], "two", const=True),
    ]
    with Pipeline(builder.json()) as pipeline:
        pipeline.insert("t", (7,), "nothing")
        assert pipeline.process(1, b"\0\x07\0\0") == [(1, b"\0\x07\0\x01")]
        assert pipeline.process(1, b"\0\x08\0\0") == [(1, b"\0\x08\0\x02")]
