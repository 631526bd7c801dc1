"""Compiles C to shared objects once and keeps them.

A cached file's name is the hash of everything that decides its content: sources, headers, compiler,
flags and CPU.  Several processes may ask for the same object at once: one compiles under a file lock,
the others wait for it.  A process that is killed while it compiles leaves nothing that counts, since
the finished file appears by an atomic rename.  Every file ends with the hash of its own bytes (what
follows an ELF image is ignored by the loader), so that a damaged one is noticed and built again.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

CSRC = Path(__file__).resolve().parent / "csrc"
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-march=native",
    "-fno-semantic-interposition",
    "-fvisibility=hidden",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-pthread",
)
COMPILE_TIMEOUT_S = 600.0
"""For one file; ordinary programs take seconds."""
LOCK_TIMEOUT_S = 2 * COMPILE_TIMEOUT_S
"""Patience with another process that compiles the same file."""
LOCK_POLL_S = 0.05
TRAILER_MAGIC = b"netreduce-sha256"


class CompilerNotFound(RuntimeError):
    """There is no C compiler; the message says what to install."""


class CompilationFailed(RuntimeError):
    """The compiler rejected its input; the message has its last words."""


def build_shared_object(
    sources: Sequence[Path | str],
    name: str,
    extra_flags: Sequence[str] = (),
    include_folders: Sequence[Path] = (),
) -> Path:
    """Returns the path of a shared object, compiling it if it is not in the cache.

    Files are compiled one by one and their objects cached too, so that programs share the runtime's.

    Args:
        sources: C files as paths, or C text as strings.
        name: what the object is, for file names and messages.
        extra_flags: appended to the compiler's command line.
        include_folders: searched for headers after ``softswitch/csrc`` and ``softswitch/csrc/runtime``; a
            change of any header in these folders makes a new object.

    Raises:
        CompilerNotFound: neither ``$CC`` nor cc, gcc or clang is there.
        CompilationFailed: the compiler failed.
        OSError: a source cannot be read, or no cache folder can be written.
    """
    builder = _Builder(
        find_compiler(), cache_folder(), extra_flags, [CSRC, CSRC / "runtime", *include_folders]
    )
    return builder.shared_object(sources, name)


class _Builder:
    """One compiler with its flags, and a cache folder."""

    def __init__(
        self, compiler: list[str], folder: Path, extra_flags: Sequence[str], include_folders: Sequence[Path]
    ):
        self.compiler = compiler
        self.folder = folder
        self.flags = [*FLAGS, *(f"-I{f}" for f in include_folders), *extra_flags]
        self._environment = hashlib.sha256()
        self._environment.update(_compiler_version(tuple(compiler)).encode())
        self._environment.update("\0".join([*self.flags, _cpu()]).encode())
        for header in sorted({header for f in include_folders for header in f.rglob("*.h")}):
            self._environment.update(header.name.encode() + b"\0" + header.read_bytes())

    def shared_object(self, sources: Sequence[Path | str], name: str) -> Path:
        texts = [s if isinstance(s, str) else s.read_text() for s in sources]
        target = self._target(texts, name, ".so")

        def link(work: Path, output: Path) -> None:
            objects = [
                self._object(text, name if isinstance(source, str) else source.stem)
                for source, text in zip(sources, texts, strict=True)
            ]
            self._run([*objects, "-shared"], output, name)

        return self._built(target, link)

    def _object(self, text: str, name: str) -> Path:
        def compile_text(work: Path, output: Path) -> None:
            file = work / f"{name}.c"
            file.write_text(text)
            self._run(["-c", file], output, name)

        return self._built(self._target([text], name, ".o"), compile_text)

    def _target(self, texts: Sequence[str], name: str, suffix: str) -> Path:
        digest = self._environment.copy()
        for text in texts:
            digest.update(len(text).to_bytes(8, "big") + text.encode())
        return self.folder / f"{name}-{digest.hexdigest()[:32]}{suffix}"

    def _run(self, arguments: Sequence[Path | str], output: Path, name: str) -> None:
        command = [*self.compiler, *self.flags, *map(str, arguments), "-o", str(output)]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise CompilationFailed(
                f"{shlex.join(self.compiler)} did not finish {name} within {COMPILE_TIMEOUT_S:g} s; "
                "check the machine's load and memory, or set CC to another compiler"
            ) from error
        if result.returncode != 0:
            raise CompilationFailed(
                f"{shlex.join(self.compiler)} failed on {name} (exit status {result.returncode}):\n"
                + result.stderr[-4000:]
            )

    def _built(self, target: Path, make: Callable[[Path, Path], None]) -> Path:
        """The cached file, made by ``make(work folder, output)`` if it is missing or damaged."""
        if is_intact(target):
            return target
        with _locked(target.with_name(target.name + ".lock")):
            if is_intact(target):
                return target
            for stale in self.folder.glob(f"{target.name}.work-*"):
                shutil.rmtree(stale, ignore_errors=True)  # of a process that was killed; we hold the lock
            # A name of its own: the killed process's compiler may still be running and writing.
            work = Path(tempfile.mkdtemp(prefix=f"{target.name}.work-", dir=self.folder))
            try:
                output = work / "output"
                make(work, output)
                seal(output)
                os.replace(output, target)
            finally:
                shutil.rmtree(work, ignore_errors=True)
        return target


def load_shared_object(
    sources: Sequence[Path | str],
    name: str,
    extra_flags: Sequence[str] = (),
    include_folders: Sequence[Path] = (),
) -> ctypes.CDLL:
    """Builds and loads; an object that does not load is built again once.

    Raises:
        OSError: the new object does not load either.
    """
    path = build_shared_object(sources, name, extra_flags, include_folders)
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        path.unlink(missing_ok=True)
        return ctypes.CDLL(str(build_shared_object(sources, name, extra_flags, include_folders)))


def find_compiler() -> list[str]:
    """The command of the C compiler: ``$CC`` if set, else the first of cc, gcc and clang.

    Raises:
        CompilerNotFound
    """
    chosen = os.environ.get("CC", "").strip()
    candidates = [shlex.split(chosen)] if chosen else [["cc"], ["gcc"], ["clang"]]
    for command in candidates:
        if shutil.which(command[0]):
            return command
    looked = f"CC={chosen!r} is not an executable" if chosen else "no cc, gcc or clang on PATH"
    raise CompilerNotFound(
        f"the embedded switch compiles P4 programs and needs a C compiler, but {looked}; "
        "on Debian or Ubuntu: apt-get install gcc libc6-dev"
    )


def cache_folder() -> Path:
    """The first writable of ``$XDG_CACHE_HOME/netreduce``, ``~/.cache/netreduce`` and a folder of this user
    under the system's temporary one.

    Raises:
        OSError: none is writable.
    """
    candidates = []
    if os.environ.get("XDG_CACHE_HOME"):
        candidates.append(Path(os.environ["XDG_CACHE_HOME"]) / "netreduce")
    with contextlib.suppress(RuntimeError):
        candidates.append(Path.home() / ".cache" / "netreduce")
    candidates.append(Path(tempfile.gettempdir()) / f"netreduce-{os.getuid()}")
    for folder in candidates:
        if _usable(folder):
            return folder
    tried = ", ".join(map(str, candidates))
    raise OSError(f"no writable folder for compiled P4 programs (tried {tried}); set XDG_CACHE_HOME")


def _usable(folder: Path) -> bool:
    """Objects found in the folder are executed, so it must not be another user's or open to others."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = folder.stat()
        if info.st_uid != os.getuid() or info.st_mode & stat.S_IWOTH:
            return False
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def seal(path: Path) -> None:
    """Appends the hash of a file's content and makes it durable."""
    with open(path, "r+b") as file:
        image = file.read()
        file.write(TRAILER_MAGIC + hashlib.sha256(image).digest())
        file.flush()
        os.fsync(file.fileno())


def is_intact(path: Path) -> bool:
    """Whether a cached object is there with the bytes that the compiler wrote."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    trailer = len(TRAILER_MAGIC) + hashlib.sha256().digest_size
    image, end = data[:-trailer], data[-trailer:]
    return len(data) > trailer and end == TRAILER_MAGIC + hashlib.sha256(image).digest()


@functools.lru_cache(maxsize=8)
def _compiler_version(command: tuple[str, ...]) -> str:
    try:
        result = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CompilerNotFound(f"the C compiler {shlex.join(command)} does not run: {error}") from error
    return result.stdout


@functools.lru_cache(maxsize=1)
def _cpu() -> str:
    """What ``-march=native`` depends on."""
    lines = set()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith(("model name", "flags", "Features", "CPU part")):
                lines.add(line)
    return "\n".join(sorted(lines)) or os.uname().machine


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock; the kernel drops it when the process dies, however it dies.

    Raises:
        CompilationFailed: another process (one that is stopped, say) held it for LOCK_TIMEOUT_S.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise CompilationFailed(
                        f"another process has held {path} for {LOCK_TIMEOUT_S:g} s; end it, or set "
                        "XDG_CACHE_HOME to use another cache"
                    ) from None
                time.sleep(LOCK_POLL_S)  # flock has no timeout of its own
        yield
    finally:
        os.close(descriptor)
