"""`netreduce run` as a person uses it: results, exit codes, and what is left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from netreduce.topologies.launcher import _Interrupted, _SignalForwarder

HERE = Path(__file__).parent
NETREDUCE = [sys.executable, "-m", "netreduce.controller.cli.main"]
TIMEOUT = 110


def start(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.Popen:
    return subprocess.Popen(
        [*NETREDUCE, "run", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | (environment or {}),
    )


def run(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    process = start(*arguments, environment=environment)
    try:
        output, _ = process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.terminate()
        output, _ = process.communicate(timeout=30)
        pytest.fail(f"netreduce run did not end within {TIMEOUT} s:\n{output}")
    return process.returncode, output


def reduce_many(folder: Path, workers: int, *options: str) -> tuple[list[dict], list[dict]]:
    """Runs reduce_many.py; returns the ranks' records and the controller's jobs."""
    folder.mkdir()
    summary = folder / "summary.json"
    code, output = run(
        "--workers", str(workers), "--summary", str(summary), *options,
        str(HERE / "reduce_many.py"), str(folder),
    )  # fmt: skip
    assert code == 0, output
    ranks = [json.loads((folder / f"rank{r}.json").read_text()) for r in range(workers)]
    return ranks, json.loads(summary.read_text())


def packets(jobs: list[dict], cause: str) -> int:
    return sum(job["switch_counters"][cause] for job in jobs)


@pytest.fixture(scope="module")
def three_over_shm(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict], list[dict]]:
    """The records of three ranks without faults, and the jobs."""
    return reduce_many(tmp_path_factory.mktemp("three") / "run", 3)


def test_every_rank_of_three_gets_the_same_right_sums(
    three_over_shm: tuple[list[dict], list[dict]],
) -> None:
    assert_same_and_right(*three_over_shm)


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_every_rank_gets_the_same_right_sums(tmp_path: Path, workers: int) -> None:
    assert_same_and_right(*reduce_many(tmp_path / "run", workers))


def assert_same_and_right(ranks: list[dict], jobs: list[dict]) -> None:
    assert all(rank["wrong"] == [] for rank in ranks)
    assert all(rank["digests"] == ranks[0]["digests"] for rank in ranks)
    assert packets(jobs, "completed") > 0


def test_one_worker_needs_no_switch(tmp_path: Path) -> None:
    ranks, jobs = reduce_many(tmp_path / "run", 1)
    assert ranks[0]["wrong"] == []
    assert packets(jobs, "completed") == 0


@pytest.mark.parametrize(
    "fault",
    [
        "drop=0.01,duplicate=0.01,reorder=0.01,seed=1",
        "drop=0.1,duplicate=0.1,reorder=0.1,seed=2",
    ],
)
def test_faults_change_no_bit(
    tmp_path: Path, three_over_shm: tuple[list[dict], list[dict]], fault: str
) -> None:
    clean, _ = three_over_shm
    faulty, jobs = reduce_many(tmp_path / "faulty", 3, "--fault", fault)
    assert [rank["digests"] for rank in faulty] == [rank["digests"] for rank in clean]
    assert packets(jobs, "duplicate_absorbed") + packets(jobs, "duplicate_answered") > 0


@pytest.mark.root
def test_udp_through_namespaces_gives_the_same_bits(
    tmp_path: Path, three_over_shm: tuple[list[dict], list[dict]]
) -> None:
    over_shm, _ = three_over_shm
    over_udp, jobs = reduce_many(tmp_path / "udp", 3, "--transport", "udp")
    assert [rank["digests"] for rank in over_udp] == [rank["digests"] for rank in over_shm]
    assert packets(jobs, "completed") > 0


TINY_SCRIPT = """
import sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((100_000,), 0.5)
dist.all_reduce(x)
assert torch.equal(x, torch.full((100_000,), 0.5 * dist.get_world_size())), x
dist.destroy_process_group()
print("words", sys.argv[1:], flush=True)
"""


def test_the_environment_of_another_run_does_not_matter(tmp_path: Path) -> None:
    script, summary = tmp_path / "script.py", tmp_path / "summary.json"
    script.write_text(TINY_SCRIPT)
    elsewhere = {
        "NETREDUCE_CONTROLLER": "192.0.2.1:1", "NETREDUCE_TRANSPORT": "udp", "NETREDUCE_PRECISION": "7",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PET_NNODES": "3", "RANK": "5", "WORLD_SIZE": "9",
        "MASTER_ADDR": "192.0.2.1", "MASTER_PORT": "1", "LOCAL_RANK": "4",
    }  # fmt: skip
    code, output = run("--summary", str(summary), str(script), environment=elsewhere)
    assert code == 0, output
    assert packets(json.loads(summary.read_text()), "completed") > 0


@pytest.mark.root
def test_two_udp_runs_at_once_do_not_meet_and_say_nothing_else(tmp_path: Path) -> None:
    script = tmp_path / "a script.py"
    script.write_text(TINY_SCRIPT)
    summaries = [tmp_path / f"{i}.json" for i in range(2)]
    runs = [
        start(
            "--workers", "2", "--transport", "udp", "--quiet", "--summary", str(summary),
            str(script), "--workers", "3", "-x", "two words",
        )
        for summary in summaries
    ]  # fmt: skip
    outputs = [run.communicate(timeout=TIMEOUT)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    for output, summary in zip(outputs, summaries, strict=True):
        lines = [line for line in output.splitlines() if "hostname of the client socket" not in line]
        assert lines == ["words ['--workers', '3', '-x', 'two words']"] * 2
        jobs = json.loads(summary.read_text())
        assert [job["state"] for job in jobs] == ["finished"]
        assert packets(jobs, "completed") > 0


@pytest.mark.parametrize("precision", ["16", "64"])
def test_precisions_run(tmp_path: Path, precision: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.full((1000,), 0.5)\n"
        "dist.all_reduce(x)\n"
        "assert torch.equal(x, torch.full((1000,), 1.0)), x\n"
        "dist.destroy_process_group()\n"
    )
    summary = tmp_path / "summary.json"
    code, output = run("--workers", "2", "--precision", precision, "--summary", str(summary), str(script))
    assert code == 0, output
    lanes = {s["lane_bits"] for job in json.loads(summary.read_text()) for s in job["streams"]}
    assert int(precision) in lanes


# --- Bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workers", "2", "no-such-script.py"], "no-such-script.py"),
        (["--workers", "0", __file__], "1 to 64"),
        (["--workers", "65", __file__], "1 to 64"),
        (["--precision", "31", __file__], "'16', '32', '64'"),
        (["--fault", "drop=2", "--workers", "2", __file__], "Error: --fault drop=2"),
        (["--bogus", "--workers", "2", __file__], "No such option"),
        (["--workers", "2", str(HERE)], "is not a file"),
        (["--summary", "no-such-folder/jobs.json", __file__], "there is no folder no-such-folder"),
        (["--summary", str(HERE), __file__], "is a directory"),
    ],
)
def test_bad_arguments_are_explained(arguments: list[str], words: str) -> None:
    code, output = run(*arguments)
    assert code != 0
    assert words in output
    assert "Traceback" not in output


def test_missing_compiler_is_explained(tmp_path: Path) -> None:
    code, output = run(
        "--workers", "2", str(HERE / "reduce_many.py"), str(tmp_path),
        environment={"CC": "no-such-compiler", "XDG_CACHE_HOME": str(tmp_path / "cache")},
    )  # fmt: skip
    assert code != 0
    assert "no-such-compiler" in output
    assert "build-essential" in output or "install" in output


# --- However it ends ---------------------------------------------------------------------------

WAITING_SCRIPT = """
import os, sys, time
from pathlib import Path
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(100_000)
dist.all_reduce(x)
x.fill_(1.0)
Path(sys.argv[1], f"pid{dist.get_rank()}").write_text(str(os.getpid()))
deadline = time.monotonic() + 100
if len(sys.argv) > 2 and sys.argv[2] == "raise" and dist.get_rank() == 1:
    raise ValueError("rank 1 gives up")
while time.monotonic() < deadline:
    dist.all_reduce(x)
    assert (x == dist.get_world_size()).all(), x
    x.fill_(1.0)
    stop = torch.tensor([float(dist.get_rank() == 0 and Path(sys.argv[1], "stop").exists())])
    dist.all_reduce(stop)
    if stop.item():
        print(f"rank {dist.get_rank()} stops", flush=True)
        break
dist.destroy_process_group()
"""


def waiting_run(tmp_path: Path, *script_arguments: str, options: tuple[str, ...] = ()) -> subprocess.Popen:
    script = tmp_path / "waiting.py"
    script.write_text(WAITING_SCRIPT)
    return start(
        "--workers", "2", *options, str(script), str(tmp_path), *script_arguments,
        environment={"TMPDIR": str(tmp_path)},  # a launcher that is killed leaves torchrun's files
    )  # fmt: skip


def worker_pids(tmp_path: Path, process: subprocess.Popen) -> list[int]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        files = [tmp_path / f"pid{rank}" for rank in range(2)]
        if all(f.exists() and f.read_text() for f in files):
            return [int(f.read_text()) for f in files]
        if process.poll() is not None:
            pytest.fail(process.communicate()[0])
        time.sleep(0.05)
    pytest.fail("the workers did not start")


def family(process: subprocess.Popen) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=20)
    alive = [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not alive, [p.cmdline() for p in alive]


def assert_no_sockets(process: subprocess.Popen) -> None:
    with open("/proc/net/unix") as table:
        assert not [line for line in table if f"@netreduce-{process.pid}-" in line]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_the_launcher_end_everything(tmp_path: Path, number: signal.Signals) -> None:
    process = waiting_run(tmp_path)
    worker_pids(tmp_path, process)
    members = family(process)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + number, output
    assert_gone(members)
    assert_no_sockets(process)


def test_a_signal_while_the_switch_starts_ends_everything(tmp_path: Path) -> None:
    process = waiting_run(tmp_path)
    deadline = time.monotonic() + 60
    while not (members := family(process)) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT, output
    assert "Traceback" not in output
    assert_gone(members)
    assert_no_sockets(process)


def test_a_signal_between_fork_and_exec_ends_the_child() -> None:
    with _SignalForwarder() as forwarder:
        child = os.fork()
        if child == 0:
            signal.raise_signal(signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 128 + signal.SIGTERM
        assert forwarder.received is None


def test_a_signal_while_torchrun_is_started_reaches_it() -> None:
    with _SignalForwarder() as forwarder:
        signal.raise_signal(signal.SIGTERM)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        forwarder.attach(child)
        assert child.wait(timeout=30) == -signal.SIGTERM


def test_signals_do_not_cut_the_end_short() -> None:
    with _SignalForwarder() as forwarder:
        forwarder.poll()
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(_Interrupted):
            forwarder.poll()
        signal.raise_signal(signal.SIGINT)
        assert forwarder.received == signal.SIGINT
    with _SignalForwarder() as forwarder:
        forwarder.end()
        signal.raise_signal(signal.SIGTERM)
        assert forwarder.received == signal.SIGTERM


def test_killed_worker_ends_the_run_with_its_name(tmp_path: Path) -> None:
    process = waiting_run(tmp_path)
    pids = worker_pids(tmp_path, process)
    members = family(process)
    os.kill(pids[1], signal.SIGKILL)
    output, _ = process.communicate(timeout=90)
    assert process.returncode != 0
    assert "rank 1" in output or "rank      : 1" in output, output
    assert_gone(members)
    assert_no_sockets(process)


def test_exception_in_one_rank_ends_the_run(tmp_path: Path) -> None:
    process = waiting_run(tmp_path, "raise")
    output, _ = process.communicate(timeout=90)
    assert process.returncode != 0
    assert "rank 1 gives up" in output
    assert_no_sockets(process)


@pytest.mark.parametrize("transport", ["shm", pytest.param("udp", marks=pytest.mark.root)])
def test_killed_launcher_leaves_no_process_and_no_interface(tmp_path: Path, transport: str) -> None:
    process = waiting_run(tmp_path, options=("--transport", transport))
    worker_pids(tmp_path, process)
    members = family(process)
    if transport == "udp":
        # Links go with the namespace of the switch's ends, which goes with the last process.
        ours = os.readlink("/proc/self/ns/net")
        assert ours not in {os.readlink(f"/proc/{p.pid}/ns/net") for p in members}
    process.kill()
    process.communicate(timeout=60)
    assert_gone(members)
    assert_no_sockets(process)


# --- Parts that die ----------------------------------------------------------------------------


def part(members: list[psutil.Process], *words: str) -> psutil.Process:
    """The process of the run whose command line has these words."""
    found = [p for p in members if all(word in p.cmdline() for word in words)]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("transport", ["shm", pytest.param("udp", marks=pytest.mark.root)])
def test_killed_switch_ends_the_run_and_is_named(tmp_path: Path, transport: str) -> None:
    process = waiting_run(tmp_path, options=("--transport", transport))
    worker_pids(tmp_path, process)
    members = family(process)
    part(members, "switch").kill()
    output, _ = process.communicate(timeout=90)
    assert process.returncode != 0
    assert "the embedded switch was ended by SIGKILL during the run" in output
    assert_gone(members)


def test_killed_controller_is_named_and_training_goes_on(tmp_path: Path) -> None:
    process = waiting_run(tmp_path)
    worker_pids(tmp_path, process)
    members = family(process)
    part(members, "controller").kill()
    (tmp_path / "stop").touch()
    output, _ = process.communicate(timeout=90)
    assert "the controller was ended by SIGKILL during the run; training goes on" in output
    assert "rank 0 stops" in output
    assert process.returncode == 1, output
    assert_gone(members)


def test_workers_do_not_outlive_a_killed_torchrun(tmp_path: Path) -> None:
    process = waiting_run(tmp_path)
    worker_pids(tmp_path, process)
    members = family(process)
    part(members, "torch.distributed.run").kill()
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 128 + signal.SIGKILL
    assert "Traceback" not in output, "the workers were ended before the switch was"
    assert_gone(members)


def test_stopped_switch_delays_the_run_only(tmp_path: Path) -> None:
    process = waiting_run(tmp_path)
    worker_pids(tmp_path, process)
    switch = part(family(process), "switch")
    switch.suspend()
    (tmp_path / "stop").touch()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=3)  # nothing is summed meanwhile
    switch.resume()
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 0, output
    assert "rank 0 stops" in output
