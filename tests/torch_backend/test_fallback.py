"""When the switch cannot be used, all ranks use Gloo and the reason is said once."""

import pytest
from launch import run

from netreduce.topologies.embedded import EmbeddedOptions, EmbeddedStack

UNREACHABLE = {"NETREDUCE_CONTROLLER": "127.0.0.1:1"}


def attached(world_size, environment):
    results = run(["faults.py", "attached"], world_size, environment, seconds=80)
    for result in results:
        assert result.code == 0, result
        assert result.out.endswith(f"{[float(world_size)] * 3}\n"), result
    return results


def said(results) -> int:
    return sum(result.err.count("netreduce:") for result in results)


def test_a_controller_that_is_not_there() -> None:
    results = attached(3, UNREACHABLE)
    assert said(results) == 1
    assert "127.0.0.1:1 did not answer" in results[0].err


def test_one_rank(stack) -> None:
    results = attached(1, {"NETREDUCE_CONTROLLER": stack.controller})
    assert results[0].out.startswith("False single rank") and said(results) == 0


@pytest.mark.parametrize(
    ("variable", "values"),
    [("NETREDUCE_PRECISION", ("32", "64")), ("NETREDUCE_TRANSPORT", ("shm", "udp"))],
)
def test_settings_that_differ(stack, variable: str, values: tuple[str, str]) -> None:
    environments = [{"NETREDUCE_CONTROLLER": stack.controller, variable: v} for v in values]
    results = attached(2, environments)
    assert said(results) == 1
    assert f"rank 1 has {variable}={values[1]} and rank 0 has {values[0]}" in results[0].err


def test_a_rank_without_netreduce(stack) -> None:
    environments = [{"NETREDUCE_CONTROLLER": stack.controller, "NETREDUCE_JOIN_TIMEOUT": "3"}, {}]
    results = run(["plain.py"], 2, environments, seconds=80)
    assert [r.code for r in results] == [0, 0], results
    assert said(results) == 1 and "rank 1 did not take part" in results[0].err


def test_rank_zero_without_netreduce(stack) -> None:
    environments = [{}, {"NETREDUCE_CONTROLLER": stack.controller, "NETREDUCE_JOIN_TIMEOUT": "3"}]
    results = run(["plain.py"], 2, environments, seconds=80)
    assert [r.code for r in results] == [0, 0], results


def test_a_refusals_reason_reaches_the_user(stack) -> None:
    """The topology of this stack has no hosts to reach over UDP."""
    environment = {"NETREDUCE_CONTROLLER": stack.controller, "NETREDUCE_TRANSPORT": "udp"}
    results = attached(2, environment)
    assert said(results) == 1 and "2 ranks use plain Gloo: " in results[0].err, results
    assert all(result.out.startswith("False") for result in results), results


class OnePortTooMany(EmbeddedStack):
    """The topology has a port more than the switch opens."""

    def _topology(self, grpc_address: str, socket_name: str) -> dict:
        document = super()._topology(grpc_address, socket_name)
        document["shm_pools"][0]["count"] += 1
        return document


def test_the_rank_that_cannot_plug_in_is_named_not_those_that_wait_for_it() -> None:
    with OnePortTooMany(EmbeddedOptions(shm_ports=1)) as stack:
        results = attached(2, {"NETREDUCE_CONTROLLER": stack.controller})
    assert said(results) == 1
    assert "2 ranks use plain Gloo: rank 1: " in results[0].err and "port 2" in results[0].err, results


def test_a_wrong_setting_stops_the_script(stack) -> None:
    environment = {"NETREDUCE_CONTROLLER": stack.controller, "NETREDUCE_PRECISION": "24"}
    for result in run(["faults.py", "attached"], 2, environment, seconds=60):
        assert result.code == 1 and "choose 16, 32 or 64" in result.err, result


def test_explicit_use_without_a_controller() -> None:
    (result,) = run(["plain.py", "netreduce"], 1, {})
    assert result.code == 1 and "NETREDUCE_CONTROLLER" in result.err and "netreduce run" in result.err
