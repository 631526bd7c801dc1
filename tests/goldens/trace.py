"""A golden trace: table writes and frames that go into a switch, and what comes out, as lines of JSON.

The first line names the program and the switch; each other line is one step:

    {"write" | "modify" | "delete": [entries]}
    {"port": number, "frames": [hex], "outputs": {port: [hex]}}
    {"causes": [[stream, cause, packets, bytes]], "delivered": [[stream, rank, packets]]}

The order of the frames out of one port is part of the trace; that of different ports is not. No multicast
group in a trace has two replicas for one port, whose order BMv2 leaves to a hash table.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netreduce.p4 import artifacts
from packets.entries import Entry, from_json, to_json
from packets.targets import Target
from packets.twin import describe

DATA = Path(__file__).resolve().parent / "data"


@dataclass(frozen=True)
class Write:
    """Entries to write, modify or delete."""

    entries: tuple[Entry, ...]
    operation: str = "write"


@dataclass(frozen=True)
class Send:
    """Frames into one port, back to back."""

    port: int
    frames: tuple[bytes, ...]


@dataclass(frozen=True)
class ReadCounters:
    """All counters of the program."""


Step = Write | Send | ReadCounters


def program_digest() -> str:
    """Digest of the compiled program without its references to source lines: of what it does."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key != "source_info"}
        return [strip(item) for item in value] if isinstance(value, list) else value

    program = strip(json.loads(artifacts.bmv2_json().read_text()))
    return hashlib.sha256(json.dumps(program, sort_keys=True).encode()).hexdigest()


def record(path: Path, steps: Iterable[Step], target: Target, switch: str) -> None:
    """Runs the steps on a target and writes them down with what they gave."""
    target.restart_program()
    lines = [{"program": program_digest(), "recorded_on": switch}, *(_run(step, target) for step in steps)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def replay(path: Path, target: Target) -> None:
    """Runs a recorded trace on a target.

    Raises:
        AssertionError: the target does something else than what was recorded.
    """
    target.restart_program()
    for number, line in lines(path):
        recorded = json.loads(json.dumps(line))
        actual = json.loads(json.dumps(_run(_step(line), target)))
        if "outputs" in recorded:
            assert _readable(actual) == _readable(recorded), f"{path.name}, line {number}"
        assert actual == recorded, f"{path.name}, line {number}"


def header(path: Path) -> dict[str, str]:
    """The first line: the program's digest and the switch that the trace was recorded on."""
    with path.open() as file:
        return json.loads(file.readline())


def lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The steps with their line numbers."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if number > 1:
            yield number, json.loads(line)


def _step(line: dict[str, Any]) -> Step:
    if "frames" in line:
        return Send(line["port"], tuple(bytes.fromhex(frame) for frame in line["frames"]))
    if "causes" in line:
        return ReadCounters()
    ((operation, entries),) = line.items()
    return Write(tuple(from_json(entry) for entry in entries), operation)


def _run(step: Step, target: Target) -> dict[str, Any]:
    """Does one step; returns the line that records it."""
    match step:
        case Write(entries=entries, operation=operation):
            {"write": target.write, "modify": target.modify, "delete": target.delete}[operation](*entries)
            return {operation: [to_json(entry) for entry in entries]}
        case Send(port=port, frames=frames):
            outputs = target.exchange(port, frames)
            return {
                "port": port,
                "frames": [frame.hex() for frame in frames],
                "outputs": {str(to): [frame.hex() for frame in outputs[to]] for to in sorted(outputs)},
            }
        case ReadCounters():
            causes, delivered = target.causes(), target.delivered()
            return {
                "causes": [[stream, cause.value, *causes[stream, cause]] for stream, cause in sorted(causes)],
                "delivered": [[*key, delivered[key]] for key in sorted(delivered)],
            }


def _readable(line: dict[str, Any]) -> dict[int, list[str]]:
    outputs = line["outputs"].items()
    return describe({int(port): [bytes.fromhex(frame) for frame in frames] for port, frames in outputs})
