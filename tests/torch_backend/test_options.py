"""Environment variables: defaults, legal values, and what is said about the others."""

from datetime import timedelta

import pytest

from netreduce.host_agent.options import OptionError, Options, Transport, read_options


def test_defaults() -> None:
    assert read_options({}) == Options(controller="")
    assert read_options({"NETREDUCE_TRANSPORT": "  ", "NETREDUCE_PRECISION": ""}) == Options(controller="")


def test_all_set() -> None:
    options = read_options(
        {
            "NETREDUCE_CONTROLLER": "switch.example:50100",
            "NETREDUCE_TRANSPORT": "UDP",
            "NETREDUCE_PRECISION": "16",
            "NETREDUCE_HOST_IP": "10.0.0.7",
            "NETREDUCE_HOST_INTERFACE": "eth1",
            "NETREDUCE_JOB_NAME": "digits",
            "NETREDUCE_JOIN_TIMEOUT": "2.5",
        }
    )
    assert options == Options(
        controller="switch.example:50100",
        transport=Transport.UDP,
        precision=16,
        host_ip="10.0.0.7",
        host_interface="eth1",
        job_name="digits",
        join_timeout=timedelta(seconds=2.5),
    )


@pytest.mark.parametrize(("precision", "lanes"), [("16", [16, 32, 64]), ("32", [32, 64]), ("64", [32, 64])])
def test_lane_widths(precision: str, lanes: list[int]) -> None:
    assert read_options({"NETREDUCE_PRECISION": precision}).lane_bits == lanes


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("NETREDUCE_CONTROLLER", "localhost", "host:port"),
        ("NETREDUCE_CONTROLLER", ":50100", "host:port"),
        ("NETREDUCE_CONTROLLER", "localhost:0", "host:port"),
        ("NETREDUCE_CONTROLLER", "localhost:70000", "host:port"),
        ("NETREDUCE_TRANSPORT", "tcp", "choose shm or udp"),
        ("NETREDUCE_PRECISION", "24", "choose 16, 32 or 64"),
        ("NETREDUCE_HOST_IP", "10.0.0", "IPv4"),
        ("NETREDUCE_HOST_IP", "fe80::1", "IPv4"),
        ("NETREDUCE_JOIN_TIMEOUT", "soon", "seconds"),
        ("NETREDUCE_JOIN_TIMEOUT", "-1", "seconds"),
        ("NETREDUCE_JOIN_TIMEOUT", "nan", "seconds"),
    ],
)
def test_rejections(variable: str, value: str, says: str) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        read_options({variable: value})
    assert variable in str(caught.value) and repr(value) in str(caught.value)
