"""MAC and IPv4 addresses as the topology file writes them, and those derived for shm ports."""

import ipaddress
import re

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def canonical_mac(text: str) -> str:
    """Lower-case colon form of a unicast MAC address.

    Raises ValueError for anything else (multicast and all-zero addresses included).
    """
    mac = text.strip().lower().replace("-", ":")
    if not _MAC.fullmatch(mac):
        raise ValueError(f"{text!r} is not a MAC address; write it as 02:00:00:00:00:01")
    if int(mac[:2], 16) & 1 or mac == "00:00:00:00:00:00":
        raise ValueError(f"{text!r} is not the address of one interface; the first byte must be even")
    return mac


def canonical_ip(text: str) -> str:
    """Dotted quad of an IPv4 address a host can have.  Raises ValueError for anything else."""
    try:
        address = ipaddress.IPv4Address(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is not an IPv4 address; write it as 10.0.0.1") from None
    no_host = address.is_multicast or address.is_unspecified or address.is_loopback
    if no_host or address == ipaddress.IPv4Address("255.255.255.255"):
        raise ValueError(f"{text!r} is not the address of one host")
    return str(address)


def ip_number(ip: str) -> int:
    """IPv4 address as the 32-bit number that table entries carry."""
    return int(ipaddress.IPv4Address(ip))


def mac_number(mac: str) -> int:
    """MAC address as the 48-bit number that table entries carry."""
    return int(mac.replace(":", ""), 16)


def derived_mac(device_id: int, port: int) -> str:
    """Locally administered MAC address of an shm port: ``02:4e:52`` ("NR"), device, port."""
    return f"02:4e:52:{device_id % 256:02x}:{port >> 8:02x}:{port & 255:02x}"


def derived_ip(device_id: int, port: int) -> str:
    """IPv4 address of an shm port in 10.0.0.0/8; last byte 1 to 250, so never a broadcast address."""
    return f"10.{device_id % 256}.{1 + port // 250}.{1 + port % 250}"
