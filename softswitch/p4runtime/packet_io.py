"""Frames to and from the controller (Packet I/O): metadata messages ↔ the controller header's bits."""

from __future__ import annotations

from .errors import invalid_argument
from .protos import p4r
from .schema import PacketMetadata
from .values import decode, encode, ones


def packet_out_frame(header: PacketMetadata, message: p4r.PacketOut) -> bytes:
    """The frame as the program's parser expects it from the CPU port.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT or OUT_OF_RANGE if the metadata is not the P4Info's.
    """
    given: dict[int, bytes] = {}
    for metadata in message.metadata:
        if metadata.metadata_id in given:
            raise invalid_argument(f"packet-out metadata {metadata.metadata_id} is given twice")
        given[metadata.metadata_id] = metadata.value
    bits = 0
    for field in header.fields:
        if field.id not in given:
            raise invalid_argument(f"packet-out metadata {field.name} is missing")
        value = decode(given.pop(field.id), field.width, f"packet-out metadata {field.name}")
        bits = bits << field.width | value
    if given:
        raise invalid_argument(f"unknown packet-out metadata id {min(given)}")
    return bits.to_bytes(header.length, "big") + message.payload


def packet_in_message(header: PacketMetadata, frame: bytes) -> p4r.PacketIn | None:
    """The message for a frame that the program sent to the CPU port; None if it is too short."""
    if len(frame) < header.length:
        return None
    bits = int.from_bytes(frame[: header.length], "big")
    left = header.length * 8
    message = p4r.PacketIn(payload=frame[header.length :])
    for field in header.fields:
        left -= field.width
        message.metadata.add(metadata_id=field.id, value=encode(bits >> left & ones(field.width)))
    return message
