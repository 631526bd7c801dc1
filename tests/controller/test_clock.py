"""The clock that leases are measured by."""

from controller_fakes import FakeClock

from netreduce.controller.clock import LONGEST_ROUND, AttentiveClock


def test_it_goes_while_somebody_looks():
    base = FakeClock()
    clock = AttentiveClock(base)
    begin = clock.monotonic()
    for _ in range(100):
        base.advance(LONGEST_ROUND)
        assert clock.look() == 0.0
    assert clock.monotonic() - begin == 100 * LONGEST_ROUND


def test_it_stands_still_while_nobody_looks():
    base = FakeClock()
    clock = AttentiveClock(base)
    base.advance(1.0)
    clock.look()
    begin = clock.monotonic()
    readings = [begin]
    for _ in range(36):
        base.advance(100.0)
        readings.append(clock.monotonic())
    assert readings[-1] - begin == LONGEST_ROUND, "what is read before the first look is hardly older"
    assert clock.look() == 3600.0 - LONGEST_ROUND
    readings.append(clock.monotonic())
    assert readings == sorted(readings)
    assert readings[-1] - begin == LONGEST_ROUND
    base.advance(2.0)
    assert clock.monotonic() == readings[-1] + 2.0
    assert clock.time() == base.time(), "people's time goes on"
