"""Every target reproduces, byte for byte, what BMv2 did."""

import json
from pathlib import Path

import pytest

from goldens.scripts import SCRIPTS
from goldens.trace import DATA, header, lines, program_digest, replay
from netreduce.p4.wire import Cause
from packets.targets import Target

TRACES = sorted(DATA.glob("*.jsonl"))


def test_there_is_a_trace_for_every_script() -> None:
    assert {path.stem for path in TRACES} == SCRIPTS.keys()


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_trace_is_of_this_program(path: Path) -> None:
    """Changes of the program need new goldens: `python -m goldens.record --refresh` where BMv2 is."""
    assert header(path)["program"] == program_digest()
    assert header(path)["recorded_on"].startswith("BMv2 ")


def test_traces_reach_every_cause() -> None:
    seen = {cause for path in TRACES for _, line in lines(path) for _, cause, *_ in line.get("causes", [])}
    assert seen == {cause.value for cause in Cause}


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_replay(target: Target, path: Path) -> None:
    replay(path, target)


def test_a_different_output_is_noticed(target: Target, tmp_path: Path) -> None:
    """One bit of one recorded frame, a missing frame and a wrong count each fail the replay."""
    original = (DATA / "eight_ranks.jsonl").read_text().splitlines()
    position = next(i for i, line in enumerate(original) if json.loads(line).get("outputs"))
    step = json.loads(original[position])
    flipped, missing = json.loads(original[position]), json.loads(original[position])
    frame = bytearray.fromhex(step["outputs"]["3"][0])
    frame[-1] ^= 1
    flipped["outputs"]["3"][0] = frame.hex()
    del missing["outputs"]["3"]
    counters = json.loads(original[-1])
    counters["causes"][0][2] += 1
    for index, changed in ((position, flipped), (position, missing), (len(original) - 1, counters)):
        path = tmp_path / "changed.jsonl"
        path.write_text("\n".join([*original[:index], json.dumps(changed), *original[index + 1 :]]) + "\n")
        with pytest.raises(AssertionError, match=f"line {index + 1}"):
            replay(path, target)
