"""The compile cache: hits, changes, damage, races, killed compilers, and what is missing."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from netreduce.softswitch import native_cache
from netreduce.softswitch.native_cache import (
    CompilationFailed,
    CompilerNotFound,
    build_shared_object,
    cache_folder,
    is_intact,
    load_shared_object,
)

ANSWER = "int answer(void) { return %d; }\n"
VISIBLE = ("-fvisibility=default",)


def answer(path: Path) -> int:
    return ctypes.CDLL(str(path)).answer()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "netreduce"


@pytest.fixture
def compiler_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """$CC is a wrapper that writes a line for every run that compiles or links."""
    log, wrapper = tmp_path / "compilations", tmp_path / "cc wrapper"
    log.touch()
    wrapper.write_text(f'#!/bin/sh\n[ "$1" = --version ] || echo "$@" >> "{log}"\nexec cc "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", f"'{wrapper}'")
    return log


def runs(log: Path) -> int:
    return len(log.read_text().splitlines())


def test_second_build_comes_from_the_cache(cache, compiler_log):
    first = build_shared_object([ANSWER % 1], "a", VISIBLE)
    assert first.parent == cache
    assert answer(first) == 1
    count = runs(compiler_log)
    assert count == 2  # compile and link
    assert build_shared_object([ANSWER % 1], "a", VISIBLE) == first
    assert runs(compiler_log) == count


def test_every_input_makes_an_object_of_its_own(cache, tmp_path):
    include = tmp_path / "include"
    include.mkdir()
    header = include / "value.h"
    header.write_text("#define VALUE 3\n")
    file = tmp_path / "file.c"
    file.write_text('#include "value.h"\nint answer(void) { return VALUE; }\n')
    built = [build_shared_object([ANSWER % 1], "a", VISIBLE), build_shared_object([ANSWER % 2], "a", VISIBLE)]
    built.append(build_shared_object([file], "a", VISIBLE, [include]))
    header.write_text("#define VALUE 4\n")
    built.append(build_shared_object([file], "a", VISIBLE, [include]))
    built.append(build_shared_object([file], "a", (*VISIBLE, "-O0"), [include]))
    assert len(set(built)) == len(built)
    assert [answer(path) for path in built] == [1, 2, 3, 4, 4]


def test_files_share_their_objects(cache, compiler_log, tmp_path):
    shared = tmp_path / "shared.c"
    shared.write_text("int shared(void) { return 7; }\n")
    build_shared_object([ANSWER % 1, shared], "a", VISIBLE)
    assert runs(compiler_log) == 3
    build_shared_object([ANSWER % 2, shared], "a", VISIBLE)
    assert runs(compiler_log) == 5  # the other text, and linking


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "replace"])
def test_damaged_object_is_built_again(cache, damage):
    path = build_shared_object([ANSWER % 1], "a", VISIBLE)
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "truncate":
        del data[-100:]
    elif damage == "empty":
        data.clear()
    else:
        data[:] = b"not an object"
    path.write_bytes(data)
    assert not is_intact(path)
    assert build_shared_object([ANSWER % 1], "a", VISIBLE) == path
    assert is_intact(path)
    assert answer(path) == 1


def test_intact_file_that_does_not_load_is_built_again(cache):
    path = build_shared_object([ANSWER % 1], "a", VISIBLE)
    path.write_bytes(b"\x7fELF and then nothing")
    native_cache.seal(path)
    assert is_intact(path)
    assert load_shared_object([ANSWER % 1], "a", VISIBLE).answer() == 1


def build_in_process(value: int, environment: dict[str, str]) -> subprocess.Popen:
    code = textwrap.dedent(f"""
        from netreduce.softswitch.native_cache import build_shared_object
        print(build_shared_object([{ANSWER % value!r}], "a", {VISIBLE!r}))
    """)
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)


def test_processes_at_once_compile_once(cache, compiler_log):
    processes = [build_in_process(1, dict(os.environ)) for _ in range(6)]
    paths = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert all(process.returncode == 0 for process in processes)
    assert len(paths) == 1
    assert answer(Path(paths.pop())) == 1
    assert runs(compiler_log) == 2


def test_killed_compilation_leaves_nothing_in_the_way(cache, tmp_path):
    """SIGKILL while the compiler has written half of its output."""
    started, slow = tmp_path / "started", tmp_path / "slow-cc"
    slow.write_text(
        "#!/bin/sh\n"
        '[ "$1" = --version ] && exec cc "$@"\n'
        'for last; do :; done; echo garbage > "$last"\n'
        f'echo $$ > "{started}.new"; mv "{started}.new" "{started}"\n'
        "exec sleep 600\n"
    )
    slow.chmod(0o755)
    process = build_in_process(1, os.environ | {"CC": str(slow)})
    deadline = time.monotonic() + 60
    while not started.exists():
        assert time.monotonic() < deadline, "the compiler was not started"
        time.sleep(0.01)
    process.kill()
    process.wait()
    os.kill(int(started.read_text()), signal.SIGKILL)
    process.stdout.close()
    # The same key as the killed process had: the same command, which now works.
    slow.write_text('#!/bin/sh\nexec cc "$@"\n')
    again = build_in_process(1, os.environ | {"CC": str(slow)})
    path = Path(again.communicate(timeout=60)[0].strip())
    assert again.returncode == 0
    assert answer(path) == 1
    assert not list(cache.glob("*.work-*"))


def test_missing_compiler_says_what_to_install(cache, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CompilerNotFound, match="apt-get install gcc"):
        build_shared_object([ANSWER % 1], "a")


def test_unusable_cc_is_named(cache, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler --fast")
    with pytest.raises(CompilerNotFound, match="no-such-compiler"):
        build_shared_object([ANSWER % 1], "a")


def test_failed_compilation_shows_the_reason_and_is_not_kept(cache):
    for _ in range(2):
        with pytest.raises(CompilationFailed, match="undeclared"):
            build_shared_object(["int f(void) { return nothing; }\n"], "broken")
    assert not list(cache.glob("*.so"))


def test_falls_back_when_the_home_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/dev/null/home")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cache_folder() == tmp_path / f"netreduce-{os.getuid()}"


def test_folder_that_others_can_write_is_not_used(tmp_path, monkeypatch):
    """Whoever can write there could have us run their code."""
    shared = tmp_path / "shared" / "netreduce"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "netreduce"


def test_compiler_that_never_ends_is_ended(cache, tmp_path, monkeypatch):
    wrapper = tmp_path / "sleepy-cc"
    wrapper.write_text('#!/bin/sh\n[ "$1" = --version ] && exec cc "$@"\nexec sleep 600\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CC", str(wrapper))
    monkeypatch.setattr(native_cache, "COMPILE_TIMEOUT_S", 0.3)
    with pytest.raises(CompilationFailed, match=r"sleepy-cc did not finish .* within 0\.3 s"):
        build_shared_object([ANSWER % 1], "sleepy", VISIBLE)


def test_lock_of_a_stuck_process_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(native_cache, "LOCK_TIMEOUT_S", 0.3)
    path = tmp_path / "a.lock"
    with (
        native_cache._locked(path),
        pytest.raises(CompilationFailed, match=r"another process has held .*a\.lock"),
        native_cache._locked(path),
    ):
        pytest.fail("the lock was given twice")
