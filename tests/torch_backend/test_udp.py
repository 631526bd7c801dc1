"""The same checks over kernel sockets, each rank in a network namespace of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from launch import WORKERS


def documents(text: str) -> Iterator[dict]:
    """JSON objects in ``text``; the ranks share one output, so that two may be on one line."""
    decoder = json.JSONDecoder()
    position = 0
    while (position := text.find('{"', position)) >= 0:
        document, position = decoder.raw_decode(text, position)
        yield document


@pytest.mark.root
def test_all_checks_over_udp() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "netreduce.controller.cli.main", "run", "--workers", "3", "--transport", "udp",
         str(WORKERS / "conformance.py")],
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    lines = list(documents(ran.stdout))
    attached = [line["attached"] for line in lines if "attached" in line]
    assert ran.returncode == 0 and attached == [True] * 3, ran.stdout + ran.stderr
    checks = [line for line in lines if "check" in line]
    assert len(checks) > 60
    assert [line for line in checks if line["error"]] == []
