"""What a topology file may say, and what is said about one that says something else."""

import pytest

from netreduce.controller.topology import Attachment, TopologyError, load_topology, parse_topology

GOOD = """
switches:
  - {name: s1, address: "127.0.0.1:9559", device_id: 3, ports: [1, 2, "8-11"]}
hosts:
  - {name: h1, mac: "02-00-00-00-00-0A", ip: 192.168.0.1, switch: s1, port: 1, veth: s1-eth1}
  - {name: h2, mac: "02:00:00:00:00:0b", ip: 192.168.0.2, switch: s1, port: 2}
shm_pools:
  - {switch: s1, socket: "@netreduce-s1", first_port: 8, count: 4}
"""


def test_a_good_file():
    inventory = parse_topology(GOOD)
    h1, h2, *pool = inventory.ports_of("s1")
    assert (h1.host, h1.mac, h1.ip, h1.number) == ("h1", "02:00:00:00:00:0a", "192.168.0.1", 1)
    assert h1.describe_attachment() == "veth s1-eth1" and h2.describe_attachment() == ""
    assert [port.number for port in pool] == [8, 9, 10, 11]
    assert all(p.attachment is Attachment.SHM and p.socket == "@netreduce-s1" for p in pool)
    assert [(p.mac, p.ip) for p in pool[:2]] == [
        ("02:4e:52:03:00:08", "10.3.1.9"),
        ("02:4e:52:03:00:09", "10.3.1.10"),
    ]
    assert inventory.host_by_ip("192.168.0.2") == h2
    assert inventory.host_by_ip("10.3.1.9") is None, "shm ports are not hosts"


def test_derived_addresses_are_all_different():
    inventory = parse_topology(
        "switches: [{name: a, address: 'h:1', device_id: 1}, {name: b, address: 'h:2', device_id: 2}]\n"
        "shm_pools: [{switch: a, socket: '@a', first_port: 0, count: 511},"
        " {switch: b, socket: '@b', first_port: 0, count: 511}]"
    )
    ports = inventory.ports
    assert len({p.mac for p in ports}) == len({p.ip for p in ports}) == 1022
    assert not any(p.ip.endswith((".0", ".255")) for p in ports)


def test_addresses_of_a_pool_can_be_given():
    inventory = parse_topology(
        "switches: [{name: a, address: 'h:1'}]\n"
        "shm_pools: [{switch: a, socket: '@a', first_port: 5, count: 1,"
        " addresses: [{mac: '02:00:00:00:00:01', ip: 10.9.9.9}]}]"
    )
    assert [(p.mac, p.ip) for p in inventory.ports] == [("02:00:00:00:00:01", "10.9.9.9")]


S1 = "switches: [{name: s1, address: 'h:1', ports: '1-4'}]\n"
HOST = "name: h{n}, mac: '02:00:00:00:00:0{n}', ip: 10.0.0.{n}, switch: s1, port: {n}"


def hosts(*changes: str) -> str:
    """Two good hosts; a change like ``1: port: 1`` replaces a key of the second."""
    items = []
    for n, change in zip((1, 2), changes or ("", ""), strict=True):
        fields = dict(part.split(": ", 1) for part in HOST.format(n=n).split(", "))
        fields.update(dict(part.split(": ", 1) for part in change.split(", ")) if change else {})
        items.append("{" + ", ".join(f"{key}: {value}" for key, value in fields.items()) + "}")
    return f"{S1}hosts: [{', '.join(items)}]"


REJECTED = {
    "not a mapping": ("- a", "must be a mapping with the keys switches, hosts, shm_pools, links"),
    "not YAML": ("switches: [", "line 1, column 12: not YAML"),
    "empty": ("", "must be a mapping"),
    "key twice": (f"{S1}hosts: []\nswitches: []", "line 3, column 1: not YAML: the key 'switches' is"),
    "key twice inside": ("switches: [{name: a, name: b}]", "the key 'name' is there twice (first in line 1)"),
    "impossible date": (f"{S1}x: 2020-13-45", "has a value that does not exist: month must be in 1..12"),
    "number of 5000 digits": (f"{S1}x: {'9' * 5000}", "has a value that does not exist"),
    "deep": ("[" * 1500, "is nested too deeply"),
    "loopback IP": (hosts("", "ip: 127.0.0.1"), "is not the address of one host"),
    "long interface": (hosts("", "veth: aaaaaaaaaaaaaaaa"), "is not the name of a network interface"),
    "empty socket": (
        f"{S1}shm_pools: [{{switch: s1, socket: '@', first_port: 1, count: 1}}]",
        "'@' is not the name of a Unix socket",
    ),
    "socket with NUL": (
        f'{S1}shm_pools: [{{switch: s1, socket: "@a\\0b", first_port: 1, count: 1}}]',
        "is not the name of a Unix socket",
    ),
    "long socket": (
        f"{S1}shm_pools: [{{switch: s1, socket: '@{'é' * 60}', first_port: 1, count: 1}}]",
        "at most 107 bytes",
    ),
    "no switches": ("hosts: []", "switches: is missing"),
    "empty switches": ("switches: []", "switches: list should have at least 1 item"),
    "misspelt key": (
        "switches: [{name: s1, adress: 'h:1'}]",
        "switches[0].adress: unknown key; did you mean 'address'? Allowed here: name, address, device_id,",
    ),
    "unknown section": (f"{S1}host: []", "host: unknown key; did you mean 'hosts'?"),
    "bad address": (
        "switches: [{name: s1, address: localhost}]",
        "switches[0].address: 'localhost' is not an",
    ),
    "bad name": ("switches: [{name: 'a b', address: 'h:1'}]", "switches[0].name: 'a b' is not a name"),
    "device 0": (
        "switches: [{name: s1, address: 'h:1', device_id: 0}]",
        "switches[0].device_id: input should",
    ),
    "text for number": (
        hosts("", "port: one"),
        "hosts[1].port: input should be a valid integer, found 'one'",
    ),
    "bad port range": (
        "switches: [{name: s, address: 'h:1', ports: '4-1'}]",
        "switches[0].ports: ports are 0 to 510",
    ),
    "bad port": ("switches: [{name: s, address: 'h:1', ports: [x]}]", "'x' is not a port or range of ports"),
    "bad MAC": (hosts("", "mac: 02:00"), "hosts[1].mac: "),
    "multicast MAC": (hosts("", "mac: '01:00:5e:00:00:01'"), "the first byte must be even"),
    "bad IP": (hosts("", "ip: 10.0.0.300"), "hosts[1].ip: '10.0.0.300' is not an IPv4 address; write it as"),
    "multicast IP": (hosts("", "ip: 224.0.0.1"), "is not the address of one host"),
    "port out of range": (hosts("", "port: 511"), "hosts[1].port: input should be less than or equal to 510"),
    "unknown switch": (
        hosts("", "switch: s2"),
        "hosts[1].switch: no switch is named 's2'; switches lists: s1",
    ),
    "same port": (
        hosts("", "port: 1"),
        "hosts[1].port: port 1 of switch s1 is already used by hosts[0].port",
    ),
    "same MAC": (
        hosts("", "mac: '02:00:00:00:00:01'"),
        "hosts[1].mac: MAC 02:00:00:00:00:01 is already used by hosts[0].mac",
    ),
    "same IP": (hosts("", "ip: 10.0.0.1"), "hosts[1].ip: IP 10.0.0.1 is already used by hosts[0].ip"),
    "same host": (hosts("", "name: h1"), "hosts[1].name: host name h1 is already used by hosts[0].name"),
    "number for name": (hosts("", "name: 1"), "hosts[1].name: input should be a valid string, found 1"),
    "port not on the switch": (
        hosts("", "port: 9"),
        "hosts[1].port: switch s1 has no port 9; switches[0].ports lists its ports",
    ),
    "same switch name": (
        "switches: [{name: s, address: 'h:1'}, {name: s, address: 'h:2'}]",
        "switches[1].name: switch name s is already used by switches[0].name",
    ),
    "same device": (
        "switches: [{name: s, address: 'h:1'}, {name: t, address: 'h:1'}]",
        "switches[1].address: address h:1 device_id 1 is already used by switches[0].address",
    ),
    "pool over a host": (
        "switches: [{name: s1, address: 'h:1'}]\n"
        "hosts: [{name: a, mac: '02:00:00:00:00:01', ip: 10.0.0.1, switch: s1, port: 2}]\n"
        "shm_pools: [{switch: s1, socket: '@a', first_port: 1, count: 2}]",
        "shm_pools[0]: port 2: port 2 of switch s1 is already used by hosts[0].port",
    ),
    "derived address taken": (
        "switches: [{name: s1, address: 'h:1'}]\n"
        "hosts: [{name: a, mac: '02:00:00:00:00:01', ip: 10.1.1.2, switch: s1, port: 9}]\n"
        "shm_pools: [{switch: s1, socket: '@a', first_port: 1, count: 1}]",
        "IP 10.1.1.2 is already used by hosts[0].ip; give the pool's addresses yourself (key addresses)",
    ),
    "pool past the last port": (
        "switches: [{name: s1, address: 'h:1'}]\n"
        "shm_pools: [{switch: s1, socket: '@a', first_port: 510, count: 2}]",
        "shm_pools[0].count: ports 510 to 511 do not all exist; the last possible port is 510",
    ),
    "pool of an unknown switch": (
        f"{S1}shm_pools: [{{switch: s2, socket: '@a', first_port: 1, count: 2}}]",
        "shm_pools[0].switch: no switch is named 's2'",
    ),
    "too few addresses": (
        f"{S1}shm_pools: [{{switch: s1, socket: '@a', first_port: 1, count: 2, addresses: []}}]",
        "shm_pools[0].addresses: has 0 items, but shm_pools[0].count is 2",
    ),
    "misspelt pool address": (
        f"{S1}shm_pools: [{{switch: s1, socket: '@a', first_port: 1, count: 1,"
        " addresses: [{macc: '02:00:00:00:00:01', ip: 10.0.0.1}]}]",
        "shm_pools[0].addresses[0].macc: unknown key; did you mean 'mac'? Allowed here: mac, ip",
    ),
    "links": (f"{S1}links: [s1]", "links: links between switches are not supported yet"),
}


@pytest.mark.parametrize(("text", "message"), REJECTED.values(), ids=REJECTED)
def test_rejected(text, message):
    with pytest.raises(TopologyError) as caught:
        parse_topology(text, "net.yaml")
    assert message in str(caught.value)
    assert all(line.startswith("net.yaml: ") for line in str(caught.value).splitlines())


def test_all_problems_are_reported_at_once():
    with pytest.raises(TopologyError) as caught:
        parse_topology(hosts("", "port: 1, ip: 10.0.0.1"))
    assert len(caught.value.problems) == 2


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(TopologyError, match=r"absent\.yaml: cannot be read: No such file or directory"):
        load_topology(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x81", "is not UTF-8 text"),
        (b"#" * ((1 << 20) + 1), "is longer than 1048576 bytes"),
        (b"switches: \0", "not YAML: unacceptable character"),
    ],
    ids=["binary", "too long", "NUL"],
)
def test_a_file_that_is_no_topology(tmp_path, content, message):
    file = tmp_path / "net.yaml"
    file.write_bytes(content)
    with pytest.raises(TopologyError, match=message) as caught:
        load_topology(file)
    assert len(str(caught.value).splitlines()) == 1


def test_a_directory_and_an_endless_file():
    with pytest.raises(TopologyError, match="cannot be read: Is a directory"):
        load_topology("/")
    with pytest.raises(TopologyError, match="is longer than"):
        load_topology("/dev/zero")


def test_aliases_cannot_blow_up_a_message():
    """Nine lists of nine lists …: two hundred bytes that stand for 3 * 10^9 values."""
    lists = ["a: &a [x,x,x,x,x,x,x,x,x]"]
    for name, inner in zip("bcdefghi", "abcdefgh", strict=True):
        lists.append(f"{name}: &{name} [{','.join([f'*{inner}'] * 9)}]")
    with pytest.raises(TopologyError) as caught:
        parse_topology("\n".join([*lists, "switches: *i", "hosts: *i"]))
    assert len(str(caught.value)) < 10_000
