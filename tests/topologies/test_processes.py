"""Services: ready lines, failures with their log, and no survivors."""

import subprocess
import sys
import textwrap
from datetime import timedelta

import psutil
import pytest

from netreduce.topologies.processes import Service, ServiceError

READY = "import os, sys; os.write(int(sys.argv[2]), b'serving at 127.0.0.1:5\\n');"
PATIENCE = timedelta(seconds=20)


def service(code: str) -> Service:
    return Service("thing", [sys.executable, "-c", code])


def test_ready_line_is_returned_and_stop_ends_it() -> None:
    thing = service(READY + "import time; time.sleep(600)")
    assert thing.wait_ready(PATIENCE) == "serving at 127.0.0.1:5"
    assert thing.running()
    assert thing.stop() == -15
    assert not thing.running()


def test_early_exit_shows_code_and_log() -> None:
    thing = service("import sys; print('port 5 is taken'); sys.exit(3)")
    with pytest.raises(ServiceError, match=r"(?s)thing ended with exit code 3.*port 5 is taken"):
        thing.wait_ready(PATIENCE)
    thing.stop()


def test_silence_is_a_timeout() -> None:
    thing = service("import time; time.sleep(600)")
    with pytest.raises(ServiceError, match=r"thing did not become ready within 0\.2 s"):
        thing.wait_ready(timedelta(seconds=0.2))
    thing.stop()


def test_deaf_service_is_killed() -> None:
    thing = service(
        "import signal; signal.signal(15, signal.SIG_IGN);" + READY + "import time; time.sleep(600)"
    )
    thing.wait_ready(PATIENCE)
    assert thing.stop(timedelta(seconds=0.2)) == -9


def test_service_dies_with_a_killed_parent() -> None:
    parent_code = textwrap.dedent(
        f"""
        import sys, time
        from datetime import timedelta
        from netreduce.topologies.processes import Service
        thing = Service("thing", [sys.executable, "-c", {READY + "import time; time.sleep(600)"!r}])
        thing.wait_ready(timedelta(seconds=20))
        print(thing.pid, flush=True)
        time.sleep(600)
        """
    )
    parent = subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    psutil.wait_procs([child], timeout=20)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
