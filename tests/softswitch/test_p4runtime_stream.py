"""What waits for a controller that reads slowly, or not at all, is bounded."""

import pytest

from netreduce.softswitch.p4runtime.errors import P4RuntimeError
from netreduce.softswitch.p4runtime.protos import p4r
from netreduce.softswitch.p4runtime.stream import MAX_WAITING, Stream


def message() -> p4r.StreamMessageResponse:
    return p4r.StreamMessageResponse()


def test_what_may_be_lost_is_dropped():
    stream = Stream()
    assert [stream.offer(message()) for _ in range(MAX_WAITING + 2)] == [True] * MAX_WAITING + [False] * 2
    stream.end()
    assert len(list(stream.messages())) == MAX_WAITING


def test_a_controller_that_never_reads_loses_its_stream():
    stream = Stream()
    for _ in range(10 * MAX_WAITING):
        stream.send(message())
    assert stream.ended
    received = 0
    with pytest.raises(P4RuntimeError, match="does not read what the switch sends it"):
        for _ in stream.messages():
            received += 1
    assert received == 2 * MAX_WAITING


def test_nothing_is_sent_after_the_end():
    stream = Stream()
    stream.end()
    stream.send(message())
    assert list(stream.messages()) == []
