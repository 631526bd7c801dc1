"""Log lines say which switch and task they are about."""

import asyncio
import logging

from netreduce.controller.log import edit_finsy, logger


def test_lines_carry_subject_and_task(run, caplog):
    async def speak(subject: str) -> None:
        logger("netreduce.test", subject).warning("hello %d", 1)

    async def test():
        await asyncio.create_task(speak("s1"), name="fy:s1|synchronise")
        await asyncio.create_task(speak("s1"), name="job 3|admit")
        await asyncio.create_task(speak(""), name="job 3|admit")
        await asyncio.create_task(speak("s1"))
        await asyncio.create_task(speak(""))

    run(test())
    logger("netreduce.test", "s2").warning("outside")
    assert caplog.messages == [
        "[s1|synchronise] hello 1",
        "[s1|job 3|admit] hello 1",
        "[job 3|admit] hello 1",
        "[s1] hello 1",
        "hello 1",
        "[s2] outside",
    ]


def record(name: str, message: str, error: Exception | None = None) -> logging.LogRecord:
    """A critical record."""
    exc_info = (type(error), error, None) if error else None
    return logging.LogRecord(name, logging.CRITICAL, "file.py", 1, message, (), exc_info)


def test_ordinary_events_of_finsy_are_not_alarming():
    assert not edit_finsy(record("finsy", "[s1] gNMI is not implemented"))
    ended = record("finsy", "Switch task 's1' failed", RuntimeError("P4Client.receive got EOF!"))
    assert edit_finsy(ended) and ended.exc_info is None and ended.levelno == logging.WARNING
    assert ended.getMessage() == "the switch ended the P4Runtime stream (Switch task 's1' failed)"


def test_real_failures_keep_their_traceback():
    failed = record("finsy", "failed", RuntimeError("invariant"))
    assert edit_finsy(failed) and failed.exc_info and failed.levelno == logging.CRITICAL
    ours = record("netreduce.x", "gNMI is not implemented", RuntimeError("got EOF"))
    assert edit_finsy(ours) and ours.exc_info
