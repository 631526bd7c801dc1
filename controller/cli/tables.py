"""Replies of the operators' API as tables for people and as plain values for machines."""

from collections import Counter
from datetime import datetime
from typing import Any

from google.protobuf.message import Message

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.cli.records import Records
from netreduce.controller.jobs.validation import transport_name
from netreduce.p4.wire import BLOCK_BYTES

CAUSES = [field.name for field in pb.CauseCounters.DESCRIPTOR.fields if field.name != "bytes"]


def plain(message: Message) -> dict[str, Any]:
    """All fields by their names in the .proto file.

    Unlike protobuf's JSON mapping, 64-bit integers stay numbers and defaults are present.
    """
    result: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            result[field.name] = [_value(field, item) for item in value]
        else:
            result[field.name] = _value(field, value)
    return result


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)  # members may have sent any number
        return known.name if known else str(value)
    return value


def switches(reply: pb.ListSwitchesReply) -> list[Records]:
    """The switches, and one table of ports for each."""
    overview = Records("Switches", "name", "address", "device", "state", "program", "#slots used", "#jobs")
    tables = [overview]
    for switch in reply.switches:
        used = f"{switch.slots_used} of {switch.slots_total}"
        overview.add_row(
            switch.name, switch.address, str(switch.device_id), switch.state, switch.program, used,
            str(switch.jobs),
        )  # fmt: skip
        ports = Records(f"Ports of {switch.name}", "#port", "host", "MAC", "IP", "attachment")
        for port in switch.ports:
            ports.add_row(str(port.port), port.host, port.mac, port.ip, port.attachment)
        if switch.ports:
            tables.append(ports)
    return tables


def jobs(reply: pb.ListJobsReply) -> list[Records | str]:
    """The jobs, and one table of ranks for each that was admitted."""
    if not reply.jobs:
        return ["No jobs."]
    overview = Records(
        "Jobs", "#job", "name", "state", "switch", "#ranks", "transport", "lanes", "#slots", "#window",
        "#packet", "#sums", "#switch bytes", "started",
    )  # fmt: skip
    parts: list[Records | str] = [overview]
    for job in reply.jobs:
        lanes = ", ".join(str(stream.lane_bits) for stream in job.streams if stream.lane_bits)
        slots = f"{job.first_slot} to {job.first_slot + job.slot_count - 1}" if job.slot_count else ""
        started = datetime.fromtimestamp(job.started_at).strftime("%F %T") if job.started_at else ""
        overview.add_row(
            str(job.job_id or ""), job.name, job.state, job.switch, str(job.world_size),
            transport_name(job.transport), lanes, slots,
            str(job.window or ""), f"{job.max_blocks * BLOCK_BYTES} B" if job.max_blocks else "",
            str(job.switch_counters.completed), str(job.switch_counters.bytes), started,
        )  # fmt: skip
        if job.members and job.switch:
            parts.append(_members(job))
        parts += _fallbacks(job)
    return parts


def _members(job: pb.JobInfo) -> Records:
    table = Records(
        f"Ranks of job {job.job_id} {job.name}".rstrip(), "#rank", "process", "state", "#port", "address",
        "#calls", "#sent", "#resent", "#results", "#delivered", "#duplicates", "#unaggregated",
    )  # fmt: skip
    for member in job.members:
        counted = member.statistics
        table.add_row(
            str(member.rank), f"{member.pid} on {member.hostname}", member.state, str(member.port),
            f"{member.endpoint.ip}:{member.endpoint.udp_port}", str(counted.calls),
            str(counted.packets_sent), str(counted.packets_resent), str(counted.results_received),
            str(member.results_delivered), str(counted.duplicates_received),
            str(counted.unaggregated_received),
        )  # fmt: skip
    return table


def _fallbacks(job: pb.JobInfo) -> list[Records]:
    """What the inner backend did, summed over ranks."""
    calls: Counter[tuple[str, str]] = Counter()
    octets: Counter[tuple[str, str]] = Counter()
    for member in job.members:
        for fallback in member.statistics.fallbacks:
            key = (fallback.collective, fallback.reason)
            calls[key] += fallback.calls
            octets[key] += fallback.tensor_bytes
    if not calls:
        return []
    title = f"Not through the switch, job {job.job_id} (all ranks)"
    table = Records(title, "collective", "reason", "#calls", "#bytes")
    for (collective, reason), count in sorted(calls.items()):
        table.add_row(collective, reason, str(count), str(octets[collective, reason]))
    return [table]


def counters(reply: pb.ReadCountersReply) -> list[Records]:
    """One table for each switch; the row without a job is for packets of no stream."""
    headings = [f"#{name.replace('_', ' ')}" for name in CAUSES]
    tables = []
    for switch in reply.switches:
        title = f"Packets at {switch.switch}"
        if not switch.streams:
            title += " (cannot be read now)"
        table = Records(title, "#job", "#wire job", "#lanes", *headings, "#bytes")
        for stream in switch.streams:
            table.add_row(
                str(stream.job_id or "none"), str(stream.wire_job or ""), str(stream.lane_bits or ""),
                *(str(getattr(stream.counters, name)) for name in CAUSES), str(stream.counters.bytes),
            )  # fmt: skip
        tables.append(table)
    return tables
