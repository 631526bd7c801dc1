"""The same checks over kernel sockets, each rank in a network namespace of its own."""

import json
import subprocess
import sys

import pytest
from launch import WORKERS


@pytest.mark.root
def test_all_checks_over_udp() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "netreduce.controller.cli.main", "run", "--workers", "3", "--transport", "udp",
         str(WORKERS / "conformance.py")],
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    lines = [json.loads(line[line.index("{") :]) for line in ran.stdout.splitlines() if '{"' in line]
    attached = [line["attached"] for line in lines if "attached" in line]
    assert ran.returncode == 0 and attached == [True] * 3, ran.stdout + ran.stderr
    checks = [line for line in lines if "check" in line]
    assert len(checks) > 60
    assert [line for line in checks if line["error"]] == []
