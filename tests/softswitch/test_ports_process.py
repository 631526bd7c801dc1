"""``netreduce switch`` as a process: readiness, sentences for its user, and a clean end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import psutil
import pytest
from click.testing import CliRunner
from finsy.proto import p4r, p4r_grpc
from hub import socket_name
from p4rt_client import COMMIT, Controller, pipeline_config

from netreduce.softswitch.cli import switch
from netreduce.softswitch.shm_client import ShmPort, unix_address

SOON = 30.0
PROGRAMS = Path(__file__).parent / "programs"
PROGRAM = ["--json", f"{PROGRAMS}/control_plane.json", "--p4info", f"{PROGRAMS}/control_plane.p4info.txtpb"]
COMMAND = [sys.executable, "-c", "from netreduce.softswitch.cli import switch; switch()"]


def wait_for(condition, what: str) -> None:
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {SOON} s: {what}"
        time.sleep(0.01)


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen, str]]:
    """A ready switch and its P4Runtime address."""
    read, write = os.pipe()
    command = [*COMMAND, "--grpc-server-addr", "127.0.0.1:0", "--ready-fd", str(write), *arguments]
    process = subprocess.Popen(command, pass_fds=[write], stderr=subprocess.PIPE, text=True)
    os.close(write)
    try:
        with open(read) as ready:
            address = ready.read()
        assert address.endswith("\n"), f"it did not start: {process.stderr.read()}"
        yield process, address.strip()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()


def refused(*arguments: str) -> str:
    """What a switch that does not start says."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=SOON)
    assert done.returncode not in (0, None)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


def listening(name: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        return probe.connect_ex(unix_address(name)) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_cleanly(number: int, tmp_path) -> None:
    path = tmp_path / "ports"
    with running("--shm-socket", str(path)) as (process, address), ShmPort(str(path), 1) as port:
        channel = grpc.insecure_channel(address)
        stub = p4r_grpc.P4RuntimeStub(channel)
        assert stub.Capabilities(p4r.CapabilitiesRequest(), timeout=SOON).p4runtime_api_version == "1.4.1"
        opening = p4r.StreamMessageRequest()
        opening.arbitration.device_id = 1
        stream = stub.StreamChannel(iter([opening]))
        assert next(stream).WhichOneof("update") == "arbitration"  # an open stream does not hold it up
        process.send_signal(number)
        assert process.wait(SOON) == 0
        assert process.stderr.read() == ""
        assert not path.exists()
        with pytest.raises(ConnectionError):
            port.receive(SOON)
        channel.close()


def test_signals_at_any_moment_are_heard() -> None:
    """Also those that come while the switch begins to wait for the next, or writes its statistics."""
    with running() as (process, _):
        for _ in range(300):
            process.send_signal(signal.SIGUSR1)
        process.send_signal(signal.SIGTERM)
        _, statistics = process.communicate(timeout=SOON)
        assert process.returncode == 0
        assert all("switch" in json.loads(line) for line in statistics.splitlines())


def test_kill_leaves_nothing() -> None:
    name = socket_name()
    with running("--shm-socket", name) as (process, address), ShmPort(name, 1) as port:
        process.kill()
        process.wait()
        with pytest.raises(ConnectionError):
            port.receive(SOON)
        assert not listening(name)
    host, number = address.rsplit(":", 1)
    with running("--shm-socket", name, "--grpc-server-addr", f"{host}:{number}") as (_, again):
        assert again == address


LAUNCHER = """
import os, subprocess, sys
read, write = os.pipe()
child = subprocess.Popen([*sys.argv[1:], "--ready-fd", str(write), "--exit-with-parent"], pass_fds=[write])
os.close(write)
print(child.pid, os.read(read, 100).decode(), flush=True)
child.wait()
"""


def test_it_ends_with_its_killed_launcher() -> None:
    name = socket_name()
    command = [*COMMAND, "--grpc-server-addr", "127.0.0.1:0", "--shm-socket", name]
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, *command], stdout=subprocess.PIPE, text=True
    )
    try:
        pid = int(launcher.stdout.readline().split()[0])
        child = psutil.Process(pid)
        assert listening(name)
    finally:
        launcher.kill()
        launcher.wait()
        launcher.stdout.close()
    wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "the switch ended")
    assert not listening(name)


def test_program_from_the_command_line() -> None:
    name = socket_name()
    with running(*PROGRAM, "--shm-socket", name, "--shm-ports", "2,5-6", "--device-id", "0") as (_, address):
        with grpc.insecure_channel(address) as channel:
            stub = p4r_grpc.P4RuntimeStub(channel)
            reply = stub.GetForwardingPipelineConfig(p4r.GetForwardingPipelineConfigRequest(), timeout=SOON)
            assert reply.config.p4_device_config == (PROGRAMS / "control_plane.json").read_bytes()
            assert not reply.config.HasField("cookie")
        for port in (2, 5, 6):
            ShmPort(name, port).close()
        with pytest.raises(OSError, match="port 3 is not"):
            ShmPort(name, 3)


def test_statistics_on_request() -> None:
    name = socket_name()
    fault = ["--fault", "drop=1,port=4,direction=in"]
    with running("--shm-socket", name, "--cpu-port", "500", *fault) as (process, _), ShmPort(name, 4) as port:
        for _ in range(3):
            assert port.send(bytes(60))
        wait_for(lambda: port.layout.to_switch.tail == 3, "the frames are taken")
        process.send_signal(signal.SIGUSR1)
        seen = json.loads(process.stderr.readline())
        assert set(seen["ports"]) == {"4", "500"}
        four = seen["ports"]["4"]
        assert (four["kind"], four["up"], four["rx_frames"], four["rx_bytes"]) == ("shm", True, 3, 180)
        assert four["fault_in"] == {"dropped": 3, "duplicated": 0, "reordered": 0}
        assert seen["switch"]["no_program"] == 0  # dropped before the program
        process.terminate()
        assert process.wait(SOON) == 0


def test_address_on_standard_output_without_ready_fd() -> None:
    command = [*COMMAND, "--grpc-server-addr", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        host, port = process.stdout.readline().strip().split(":")
        assert host == "127.0.0.1"
        assert int(port) > 0
    finally:
        process.terminate()
        assert process.wait(SOON) == 0
        process.stdout.close()


def test_occupied_grpc_port() -> None:
    with running() as (_, address):
        said = refused("--grpc-server-addr", address)
        assert f"cannot serve P4Runtime at {address}: the address is in use" in said


def test_occupied_shm_socket() -> None:
    name = socket_name()
    with running("--shm-socket", name):
        assert f"the socket {name} is in use" in refused(
            "--shm-socket", name, "--grpc-server-addr", "127.0.0.1:0"
        )


def test_gone_launcher() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [*COMMAND, "--grpc-server-addr", "127.0.0.1:0", "--ready-fd", str(write)],
            pass_fds=[write], capture_output=True, text=True, timeout=SOON,
        )  # fmt: skip
    finally:
        os.close(write)
    assert done.returncode == 1
    assert "is the launcher gone?" in done.stderr


SLOW_COMPILER = """#!/bin/sh
case "$*" in
  *--version*|*csrc/core*) exec gcc "$@" ;;
esac
touch {marker}
sleep 600 &
wait
"""


@pytest.mark.parametrize("when", ["at the start", "for a controller"])
def test_signal_during_a_compilation(tmp_path, monkeypatch, when: str) -> None:
    """The compiler goes with the switch, at once."""
    compiler, marker = tmp_path / "slow-cc", tmp_path / "compiling"
    compiler.write_text(SLOW_COMPILER.format(marker=marker))
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if when == "at the start":
        command = [*COMMAND, *PROGRAM, "--grpc-server-addr", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        wait_for(marker.exists, "the compiler runs")
        family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        assert process.wait(SOON) == 0
        process.stdout.close()
    else:
        with running() as (process, address):
            client = Controller(address)
            client.arbitrate(device_id=1)
            request = p4r.SetForwardingPipelineConfigRequest(
                device_id=1, action=COMMIT, config=pipeline_config()
            )
            pending = client.stub.SetForwardingPipelineConfig.future(client.complete(request))
            wait_for(marker.exists, "the compiler runs")
            family = psutil.Process(process.pid).children(recursive=True)
            process.terminate()
            assert process.wait(SOON) == 0
            assert pending.exception(SOON) is not None
            client.close()
    assert family
    for child in family:
        wait_for(
            lambda child=child: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE,
            "the compiler has ended",
        )


def test_missing_compiler(tmp_path) -> None:
    environment = {**os.environ, "PATH": "/nonexistent", "XDG_CACHE_HOME": str(tmp_path)}
    environment.pop("CC", None)
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=SOON, env=environment)
    assert done.returncode == 1
    assert "apt-get install gcc" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-i", "veth0"], "expected PORT@INTERFACE"),
        (["-i", "511@veth0"], "port 0 to 510"),
        (["--shm-ports", "5-2"], "expected ports from 0 to 510"),
        (["--shm-ports", "1-600"], "expected ports from 0 to 510"),
        (["--shm-ports", "x"], "expected ports from 0 to 510"),
        (["--fault", "drop=2"], "a probability is between 0 and 1"),
        (["--fault", "loss=0.1"], "'loss=0.1': expected each of drop"),
        (["--cpu-port", "0"], "1<=x<=510"),
        (["--cpu-port", "9", "--drop-port", "9"], "not the CPU port"),
        (["--grpc-server-addr", "localhost"], "expected HOST:PORT"),
        (["--grpc-server-addr", "127.0.0.1:99999"], "port 0 to 65535"),
        (["--json", __file__], "--json and --p4info belong together"),
        ([*PROGRAM, "--no-p4"], "exclude each other"),
        (["--json", __file__, *PROGRAM[2:]], "is not BMv2 JSON"),
        ([*PROGRAM[:2], "--p4info", __file__], "is not a P4Info"),
        (["-i", "1@absent0"], "there is no interface absent0"),
    ],
)
def test_bad_options_are_explained(arguments: list[str], sentence: str) -> None:
    result = CliRunner().invoke(switch, [*arguments])
    assert result.exit_code in (1, 2), result.output
    assert sentence in " ".join(result.output.split())


def test_help_says_what_bmv2_users_ask() -> None:
    text = CliRunner().invoke(switch, ["--help"]).output
    for option in ("--device-id", "--grpc-server-addr", "--cpu-port", "--drop-port", "-i, --interface"):
        assert option in text
    assert "0 is legal here" in " ".join(text.split())
