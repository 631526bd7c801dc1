"""``netreduce``, ``netreduce controller`` and ``netreduce ctl`` as people run them."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint

import grpc
import pytest
from click.testing import CliRunner
from rich.console import Console

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.cli import main as cli
from netreduce.controller.cli import tables

NETREDUCE = [sys.executable, "-m", "netreduce.controller.cli.main"]
PATIENCE = 60


@pytest.fixture
def topology(tmp_path):
    """A switch that is not there."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    path = tmp_path / "net.yaml"
    path.write_text(
        f"switches: [{{name: s1, address: '127.0.0.1:{port}'}}]\n"
        "hosts: [{name: h1, mac: '02:00:00:00:00:01', ip: 10.0.0.1, switch: s1, port: 9, veth: s1-eth9}]\n"
        "shm_pools: [{switch: s1, socket: '@s1', first_port: 1, count: 2}]\n"
    )
    return path


def start(topology, *arguments: str, **options) -> subprocess.Popen:
    """A controller that does not wait for its switch."""
    command = [*NETREDUCE, "controller", "--topology", topology, "--startup-wait", "0.1", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.fixture
def controller(topology):
    """A running controller and its address."""
    process = start(topology, "--listen", "127.0.0.1:0")
    address = process.stdout.readline().split()[-1]
    yield process, address
    process.kill()
    process.communicate()


def ctl(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Run ``netreduce ctl``."""
    return subprocess.run(
        [*NETREDUCE, "ctl", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stops_cleanly(controller, number):
    process, address = controller
    assert int(address.rpartition(":")[2]) > 0
    process.send_signal(number)
    _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and "Traceback" not in log
    assert "switch s1" in log and "jobs on it are refused until it is ready" in log


def test_stops_before_it_is_ready(topology):
    process = start(topology, "--listen", "127.0.0.1:0", "--startup-wait", "1000")
    try:
        while "listening on" not in process.stderr.readline():
            assert process.poll() is None
        process.terminate()
        out, log = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0 and out == "" and "Traceback" not in log
    finally:
        process.kill()


def test_ready_line_on_a_descriptor(topology):
    read_end, write_end = os.pipe()
    process = start(topology, "--listen", "127.0.0.1:0", "--ready-fd", str(write_end), pass_fds=[write_end])
    os.close(write_end)
    try:
        with os.fdopen(read_end) as ready:
            line = ready.read()
        assert line.startswith("netreduce controller is ready on 127.0.0.1:") and line.endswith("\n")
    finally:
        process.terminate()
        out, _ = process.communicate(timeout=PATIENCE)
    assert out == ""


def test_an_occupied_port_is_a_sentence(controller, topology):
    _, address = controller
    second = start(topology, "--listen", address)
    _, log = second.communicate(timeout=PATIENCE)
    assert second.returncode == 1
    last = log.strip().splitlines()[-1]
    assert last.startswith(f"Error: cannot listen on {address}: the port is in use")
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--listen", "50060"], "--listen '50060' is not an address; write it as 127.0.0.1:50060"),
        (["--window", "48"], "window 48 is not a power of two between 1 and 64"),
        (["--lease", "0"], "--lease must be more than 0 seconds, found 0"),
        (["--p4info", "/absent"], "absent cannot be read: No such file or directory"),
    ],
)
def test_bad_options_are_sentences(topology, arguments, message):
    process = start(topology, *arguments)
    _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and message in log and "Traceback" not in log


def test_a_bad_topology_file_is_explained(tmp_path):
    path = tmp_path / "net.yaml"
    path.write_text("switches: [{name: s1}]")
    process = start(path)
    _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1 and log == f"Error: {path}: switches[0].address: is missing\n"


def test_exit_with_parent(topology):
    """The controller ends when the process that started it is killed."""
    read_end, write_end = os.pipe()
    code = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen({[*NETREDUCE, 'controller', '--topology', str(topology)]!r}"
        " + ['--listen', '127.0.0.1:0', '--startup-wait', '0.1', '--exit-with-parent'],"
        f" stdout=subprocess.PIPE, pass_fds=[{write_end}])\n"
        "print(child.pid, child.stdout.readline().decode().strip(), flush=True)\n"
        "child.wait()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        pass_fds=[write_end],
    )
    os.close(write_end)
    try:
        assert "is ready" in parent.stdout.readline()
    finally:
        parent.kill()
        parent.communicate()
    with os.fdopen(read_end) as held:
        assert held.read() == "", "end of file: the child, which held the other end, is gone"


def test_ctl_shows_switches(controller):
    _, address = controller
    shown = ctl("switches", "--controller", address)
    assert shown.returncode == 0
    for part in ("s1", "connecting", "0 of 4096", "h1", "veth s1-eth9", "02:4e:52:01:00:02"):
        assert part in shown.stdout
    switches = json.loads(ctl("switches", "--json", NETREDUCE_CONTROLLER=address).stdout)["switches"]
    assert switches[0]["slots_total"] == 4096 and switches[0]["device_id"] == 1
    assert [port["port"] for port in switches[0]["ports"]] == [1, 2, 9]


def test_ctl_shows_jobs_and_counters(controller):
    _, address = controller
    assert ctl("jobs", "--controller", address).stdout == "No jobs.\n"
    assert json.loads(ctl("jobs", "--all", "--json", "--controller", address).stdout) == {"jobs": []}
    assert "cannot be read now" in ctl("counters", "--controller", address).stdout
    unknown = ctl("counters", "--switch", "s9", "--controller", address)
    assert (unknown.returncode, unknown.stderr) == (1, "Error: no switch is named 's9'; there are: s1\n")
    away = ctl("counters", "--switch", "s1", "--controller", address)
    assert away.returncode == 1 and "switch s1: reading failed: the connection is down" in away.stderr


def test_a_server_that_is_no_controller_is_a_sentence():
    other = grpc.server(ThreadPoolExecutor(1))
    address = f"127.0.0.1:{other.add_insecure_port('127.0.0.1:0')}"
    other.start()
    try:
        shown = ctl("jobs", "--controller", address)
    finally:
        other.stop(None).wait()
    assert shown.returncode == 1
    assert shown.stderr.startswith(f"Error: the controller at {address} failed to answer (UNIMPLEMENTED)")


@pytest.mark.parametrize("address", ["", "banana", ":50060", "host:0", "host:99999", "host:1x"])
def test_what_is_no_address_is_a_sentence(address):
    result = CliRunner().invoke(cli.main, ["ctl", "jobs", "--controller", address])
    assert result.exit_code == 2
    assert "is not host:port, for example 127.0.0.1:50060" in " ".join(result.output.split())


def test_an_unreachable_controller_is_a_sentence():
    shown = ctl("jobs", NETREDUCE_CONTROLLER="127.0.0.1:1")
    assert shown.returncode == 1
    assert shown.stderr.startswith("Error: no answer from a controller at 127.0.0.1:1 (UNAVAILABLE)")
    assert "NETREDUCE_CONTROLLER" in shown.stderr and "Traceback" not in shown.stderr


def rendered(parts) -> str:
    """Tables as text."""
    console = Console(width=300)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get()


def sample_job() -> pb.JobInfo:
    """A finished job with everything in it."""
    statistics = pb.HostStatistics(
        calls=11, packets_sent=2**40,
        fallbacks=[pb.Fallback(collective="broadcast", reason="not an all-reduce", calls=3, tensor_bytes=64)],
    )  # fmt: skip
    return pb.JobInfo(
        job_id=7, name="resnet", state="finished", switch="s1", world_size=2, transport=pb.TRANSPORT_UDP,
        max_blocks=4, slot_count=256, window=64, streams=[pb.Stream(wire_job=9, lane_bits=32)],
        members=[pb.MemberInfo(rank=rank, hostname="node", statistics=statistics) for rank in range(2)],
        switch_counters=pb.CauseCounters(completed=123, bytes=2**41), started_at=1.7e9,
    )  # fmt: skip


def test_tables_of_jobs():
    text = rendered(tables.jobs(pb.ListJobsReply(jobs=[sample_job()])))
    for part in ("resnet", "finished", "udp", "0 to 255", "1024 B", "123", str(2**41), str(2**40)):
        assert part in text
    assert "Not through the switch, job 7" in text
    assert "broadcast" in text and "128" in text, "fallbacks are summed over ranks"


def test_tables_of_counters():
    counters = pb.CauseCounters(first=1, duplicate_answered=2, unknown=3)
    streams = [pb.StreamCounters(counters=counters), pb.StreamCounters(job_id=7, wire_job=9, lane_bits=32)]
    reply = pb.ReadCountersReply(switches=[pb.SwitchCounters(switch="s1", streams=streams)])
    text = rendered(tables.counters(reply))
    assert "Packets at s1" in text and "duplicate answered" in text and "none" in text


def fitted(parts, width):
    console = Console(width=width, record=True, file=io.StringIO())
    for part in parts:
        for piece in part.fitted(console):
            console.print(piece)
    return console.export_text()


def test_tables_stay_readable_on_a_narrow_terminal():
    """Every heading and value in one piece."""
    job = sample_job()
    many = pb.ListJobsReply(jobs=[job] * 9)
    assert fitted(tables.jobs(many), 240).count("resnet") == 9 * 2
    text = fitted(tables.jobs(many), 80)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert text.count("resnet") == 9 * 2
    for words in ("unaggregated", "duplicates", "switch bytes", "0 to 255", str(2**41)):
        assert words in text


def test_members_words_are_shown_literally():
    """They chose them; neither rich nor the terminal is to obey."""
    member = pb.MemberInfo(hostname="\x1b[31m[/]", state="[bold]left")
    member.statistics.fallbacks.add(collective="[/nope]", reason="\a", calls=1)
    job = pb.JobInfo(job_id=1, name="[red]x[/red]", switch="s1", transport=99, members=[member])
    console = Console(width=240, record=True, force_terminal=True, color_system=None)
    for part in tables.jobs(pb.ListJobsReply(jobs=[job])):
        console.print(part)
    text = console.export_text(clear=False, styles=True)
    for words in ("[red]x[/red]", "[31m[/]", "[bold]left", "[/nope]", " 99 "):
        assert words in text
    assert "\a" not in text and "\x1b[31m" not in text
    assert tables.plain(job)["transport"] == "99"


def test_json_keeps_numbers_names_and_defaults():
    job = tables.plain(sample_job())
    assert job["switch_counters"]["bytes"] == 2**41 and job["switch_counters"]["first"] == 0
    assert job["transport"] == "TRANSPORT_UDP" and job["streams"] == [{"wire_job": 9, "lane_bits": 32}]
    assert job["members"][0]["statistics"]["packets_sent"] == 2**40


def test_a_part_that_cannot_be_imported(monkeypatch):
    points = {
        "good": EntryPoint("good", "netreduce.controller.cli.ctl:ctl", cli.GROUP),
        "broken": EntryPoint("broken", "netreduce.does_not_exist:command", cli.GROUP),
    }
    monkeypatch.setattr(cli, "_parts", lambda: points)
    shown = CliRunner().invoke(cli.main, ["--help"])
    assert shown.exit_code == 0
    assert "Show switches, jobs and counters" in shown.output and "Not available" in shown.output
    broken = CliRunner().invoke(cli.main, ["broken", "--any", "thing", "--help"])
    assert broken.exit_code == 1
    assert broken.output == (
        "Error: the command 'broken' is not available: ModuleNotFoundError: No module named"
        " 'netreduce.does_not_exist'\n"
    )
    assert CliRunner().invoke(cli.main, ["good", "--help"]).exit_code == 0
    assert CliRunner().invoke(cli.main, ["nothing"]).exit_code == 2
