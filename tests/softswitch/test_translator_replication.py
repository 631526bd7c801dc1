"""Multicast, clones, resubmission, recirculation, digests: what egress and a second ingress see."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from netreduce.softswitch.pipeline import Pipeline
from netreduce.softswitch.pipeline_abi import ProgramError, ProgramStatus

PROGRAM = Path(__file__).parent / "programs" / "replicating.json"

(UNICAST, MULTICAST, CLONE, CLONE_FIELDS, EGRESS_CLONE, RESUBMIT, RECIRCULATE, DROP_AFTER_MULTICAST,
 CLONE_AND_MULTICAST, DROP_IN_EGRESS, DIGEST, LOOP) = range(12)  # fmt: skip
NORMAL, INGRESS_CLONE, EGRESS_CLONED, RECIRCULATED, REPLICATED, RESUBMITTED = 0, 1, 2, 4, 5, 6
LAYOUT = struct.Struct(">BBHHBBHHHHHB64s")


@dataclass(frozen=True)
class Command:
    command: int
    session: int = 0
    group: int = 0
    value: int = 0x1111
    ingress_passes: int = 0
    instance_type: int = 0
    egress_rid: int = 0
    kept: int = 0
    forgotten: int = 0
    ingress_port: int = 0
    length: int = 0
    egress_passes: int = 0
    block: int = 100

    def pack(self) -> bytes:
        *fields, block = vars(self).values()
        return LAYOUT.pack(*fields, block.to_bytes(64, "big")) + b"payload"


def unpack(frame: bytes) -> Command:
    *fields, block = LAYOUT.unpack(frame[: LAYOUT.size])
    return Command(*fields, int.from_bytes(block, "big"))


LENGTH = LAYOUT.size + len(b"payload")


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    with Pipeline(PROGRAM) as running:
        running.set_multicast(1, [(1, 10), (2, 20), (2, 21), (3, 30)])
        running.set_clone_session(5, [(3, 7), (4, 8)])
        yield running


def send(pipeline: Pipeline, command: int, port: int = 9, **fields: int) -> list[tuple[int, Command]]:
    outputs = pipeline.process(port, Command(command, **fields).pack())
    assert all(frame[LAYOUT.size :] == b"payload" for _, frame in outputs)
    return [(to, unpack(frame)) for to, frame in outputs]


def test_unicast(pipeline):
    ((port, out),) = send(pipeline, UNICAST)
    assert port == 2
    assert (out.instance_type, out.egress_rid, out.group) == (NORMAL, 0, 2)
    assert (out.value, out.ingress_port, out.length, out.block) == (0x1112, 9, LENGTH, 101)


def test_every_replica_starts_from_the_same_headers(pipeline):
    outputs = send(pipeline, MULTICAST, group=1)
    assert [port for port, _ in outputs] == [1, 2, 2, 3]
    assert [out.egress_rid for _, out in outputs] == [10, 20, 21, 30]
    for port, out in outputs:
        assert (out.egress_passes, out.block, out.instance_type) == (1, 101, REPLICATED)
        assert (out.group, out.value) == (port, 0x1112)


def test_multicast_to_no_group_drops(pipeline):
    assert send(pipeline, MULTICAST, group=44) == []
    assert send(pipeline, DROP_AFTER_MULTICAST, group=1) == [], "mark_to_drop cancels multicast"


def test_groups_change_and_go(pipeline):
    pipeline.set_multicast(1, [(4, 1)])
    assert [port for port, _ in send(pipeline, MULTICAST, group=1)] == [4]
    pipeline.set_multicast(1, [])
    assert send(pipeline, MULTICAST, group=1) == []
    refusals = {1: ProgramStatus.NOT_FOUND, 0: ProgramStatus.INVALID, 65536: ProgramStatus.INVALID}
    for group, status in refusals.items():
        with pytest.raises(ProgramError) as caught:
            pipeline.set_multicast(group, [])
        assert caught.value.status == status


def test_drop_in_egress(pipeline):
    assert send(pipeline, DROP_IN_EGRESS) == []
    assert len(send(pipeline, UNICAST)) == 1


def test_ingress_clone_is_the_frame_as_it_came(pipeline):
    outputs = send(pipeline, CLONE, session=5)
    assert [port for port, _ in outputs] == [3, 4, 2]
    for (port, out), rid in zip(outputs[:2], (7, 8), strict=True):
        assert (out.instance_type, out.egress_rid, out.group) == (INGRESS_CLONE, rid, port)
        assert out.ingress_passes == 0, "what ingress wrote is not in the clone"
        assert out.value == 0, "nor its metadata"
    assert outputs[2][1].value == 0x1112


def test_ingress_clone_with_a_field_list(pipeline):
    outputs = send(pipeline, CLONE_FIELDS, session=5)
    assert [out.value for _, out in outputs] == [0x1112, 0x1112, 0x1112]


def test_clone_to_an_unknown_session_is_no_clone(pipeline):
    assert [port for port, _ in send(pipeline, CLONE, session=9)] == [2]


def test_clone_and_multicast(pipeline):
    outputs = send(pipeline, CLONE_AND_MULTICAST, session=5, group=1)
    assert [port for port, _ in outputs] == [3, 4, 1, 2, 2, 3]
    assert all(out.block == 101 for _, out in outputs)


def test_truncated_clone(pipeline):
    pipeline.set_clone_session(5, [(3, 0)], truncate_bytes=20)
    lengths = {port: len(frame) for port, frame in pipeline.process(1, Command(CLONE, session=5).pack())}
    assert lengths == {3: 20, 2: LENGTH}


def test_egress_clone_has_the_headers_of_the_end_of_egress(pipeline):
    outputs = send(pipeline, EGRESS_CLONE, session=5)
    clones = [out for port, out in outputs if port in (3, 4)]
    (original,) = [out for port, out in outputs if port == 2]
    assert (original.egress_passes, original.block, original.instance_type) == (1, 101, NORMAL)
    for out, rid in zip(clones, (7, 8), strict=True):
        assert (out.egress_passes, out.block, out.instance_type) == (2, 102, EGRESS_CLONED)
        assert (out.value, out.egress_rid, out.ingress_port) == (0x1112, rid, 9)


def test_resubmission_keeps_the_frame_and_the_field_list(pipeline):
    ((port, out),) = send(pipeline, RESUBMIT, value=0x2222, block=500)
    assert port == 2
    assert out.ingress_passes == 1, "the frame is the original one"
    assert (out.kept, out.forgotten) == (0x2222, 0)
    assert out.block == (501 >> 8) + 1, "wide metadata is kept too"


def test_recirculation_takes_the_deparsed_frame(pipeline):
    ((port, out),) = send(pipeline, RECIRCULATE, block=7)
    assert port == 2
    assert (out.ingress_passes, out.egress_passes, out.block) == (3, 3, 10)
    assert out.kept == 0x1111 + 2


def test_endless_resubmission_ends(pipeline):
    assert send(pipeline, LOOP) == []
    assert any("without end" in text for _, text in pipeline.log)
    assert len(send(pipeline, UNICAST)) == 1


def test_digest(pipeline):
    send(pipeline, DIGEST, port=0x101, value=0xABCD, block=5)
    ((_, data),) = pipeline.digests
    assert data == bytes.fromhex("abcd 0101") + (5).to_bytes(64, "big")
