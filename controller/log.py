"""Log lines that carry the switch and the task they belong to: ``[leaf1|synchronise] …``.

A task's name is ``<subject>|<what it does>`` (finsy's own tasks: ``fy:<switch>|<function>``).
"""

import asyncio
import logging
import sys
from collections.abc import MutableMapping
from typing import Any


def _task_name() -> str:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return ""
    name = task.get_name() if task else ""
    if name.startswith(("Task-", "HandleExceptions[")):  # named by asyncio, by gRPC: says nothing
        return ""
    return name.removeprefix("fy:")


class TaskLogger(logging.LoggerAdapter):
    """Puts the subject given, or the current task's name, in front of each message."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        subject, task = self.extra.get("subject", ""), _task_name()
        if subject and not task.startswith(subject):
            task = f"{subject}|{task}" if task else subject
        return (f"[{task}] {msg}" if task else msg), kwargs


def logger(module: str, subject: str = "") -> TaskLogger:
    """The logger of a module, for one subject (a switch, a job) if given."""
    return TaskLogger(logging.getLogger(module), {"subject": subject})


def edit_finsy(record: logging.LogRecord) -> bool:
    """Log filter: what finsy says about ordinary events, as ordinary events."""
    if not record.name.startswith("finsy"):
        return True
    if "gNMI is not implemented" in record.getMessage():
        return False  # neither of our targets has it, and finsy says so at every connection
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, RuntimeError) and "got EOF" in str(error):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg, record.args = "the switch ended the P4Runtime stream (%s)", (record.getMessage(),)
        record.exc_info = None
    return True


def set_up(level: str) -> None:
    """Log to standard error from ``level`` on; finsy's routine messages only at ``debug``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s %(message)s"))
    handler.addFilter(edit_finsy)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    if level.lower() != "debug":
        logging.getLogger("finsy").setLevel(logging.WARNING)
        logging.getLogger("asyncio").setLevel(logging.WARNING)
