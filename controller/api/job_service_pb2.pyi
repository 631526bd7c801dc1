from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Transport(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSPORT_UNSPECIFIED: _ClassVar[Transport]
    TRANSPORT_SHM: _ClassVar[Transport]
    TRANSPORT_UDP: _ClassVar[Transport]
TRANSPORT_UNSPECIFIED: Transport
TRANSPORT_SHM: Transport
TRANSPORT_UDP: Transport

class JoinRequest(_message.Message):
    __slots__ = ("group", "name", "world_size", "rank", "transport", "mtu", "lane_bits", "ip", "udp_port", "hostname", "pid", "timeout_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    MTU_FIELD_NUMBER: _ClassVar[int]
    LANE_BITS_FIELD_NUMBER: _ClassVar[int]
    IP_FIELD_NUMBER: _ClassVar[int]
    UDP_PORT_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    name: str
    world_size: int
    rank: int
    transport: Transport
    mtu: int
    lane_bits: _containers.RepeatedScalarFieldContainer[int]
    ip: str
    udp_port: int
    hostname: str
    pid: int
    timeout_ms: int
    def __init__(self, group: _Optional[str] = ..., name: _Optional[str] = ..., world_size: _Optional[int] = ..., rank: _Optional[int] = ..., transport: _Optional[_Union[Transport, str]] = ..., mtu: _Optional[int] = ..., lane_bits: _Optional[_Iterable[int]] = ..., ip: _Optional[str] = ..., udp_port: _Optional[int] = ..., hostname: _Optional[str] = ..., pid: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class Endpoint(_message.Message):
    __slots__ = ("mac", "ip", "udp_port")
    MAC_FIELD_NUMBER: _ClassVar[int]
    IP_FIELD_NUMBER: _ClassVar[int]
    UDP_PORT_FIELD_NUMBER: _ClassVar[int]
    mac: str
    ip: str
    udp_port: int
    def __init__(self, mac: _Optional[str] = ..., ip: _Optional[str] = ..., udp_port: _Optional[int] = ...) -> None: ...

class Stream(_message.Message):
    __slots__ = ("wire_job", "lane_bits")
    WIRE_JOB_FIELD_NUMBER: _ClassVar[int]
    LANE_BITS_FIELD_NUMBER: _ClassVar[int]
    wire_job: int
    lane_bits: int
    def __init__(self, wire_job: _Optional[int] = ..., lane_bits: _Optional[int] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("admitted", "reason", "job_id", "generation", "window", "max_blocks", "streams", "self", "successor", "predecessor", "shm_socket", "shm_port", "lease_ms", "member", "switch")
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    MAX_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    SELF_FIELD_NUMBER: _ClassVar[int]
    SUCCESSOR_FIELD_NUMBER: _ClassVar[int]
    PREDECESSOR_FIELD_NUMBER: _ClassVar[int]
    SHM_SOCKET_FIELD_NUMBER: _ClassVar[int]
    SHM_PORT_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    admitted: bool
    reason: str
    job_id: int
    generation: int
    window: int
    max_blocks: int
    streams: _containers.RepeatedCompositeFieldContainer[Stream]
    self: Endpoint
    successor: Endpoint
    predecessor: Endpoint
    shm_socket: str
    shm_port: int
    lease_ms: int
    member: str
    switch: str
    def __init__(self_, admitted: _Optional[bool] = ..., reason: _Optional[str] = ..., job_id: _Optional[int] = ..., generation: _Optional[int] = ..., window: _Optional[int] = ..., max_blocks: _Optional[int] = ..., streams: _Optional[_Iterable[_Union[Stream, _Mapping]]] = ..., self: _Optional[_Union[Endpoint, _Mapping]] = ..., successor: _Optional[_Union[Endpoint, _Mapping]] = ..., predecessor: _Optional[_Union[Endpoint, _Mapping]] = ..., shm_socket: _Optional[str] = ..., shm_port: _Optional[int] = ..., lease_ms: _Optional[int] = ..., member: _Optional[str] = ..., switch: _Optional[str] = ...) -> None: ...

class MemberReport(_message.Message):
    __slots__ = ("member", "statistics")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    member: str
    statistics: HostStatistics
    def __init__(self, member: _Optional[str] = ..., statistics: _Optional[_Union[HostStatistics, _Mapping]] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ("abort",)
    ABORT_FIELD_NUMBER: _ClassVar[int]
    abort: Abort
    def __init__(self, abort: _Optional[_Union[Abort, _Mapping]] = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("reason", "rank")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    reason: str
    rank: int
    def __init__(self, reason: _Optional[str] = ..., rank: _Optional[int] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("member", "statistics", "error")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    member: str
    statistics: HostStatistics
    error: str
    def __init__(self, member: _Optional[str] = ..., statistics: _Optional[_Union[HostStatistics, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class LeaveReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HostStatistics(_message.Message):
    __slots__ = ("calls", "tensor_bytes", "packets_sent", "packets_resent", "results_received", "duplicates_received", "unaggregated_received", "wire_bytes_sent", "fallbacks")
    CALLS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_BYTES_FIELD_NUMBER: _ClassVar[int]
    PACKETS_SENT_FIELD_NUMBER: _ClassVar[int]
    PACKETS_RESENT_FIELD_NUMBER: _ClassVar[int]
    RESULTS_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    UNAGGREGATED_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    WIRE_BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    FALLBACKS_FIELD_NUMBER: _ClassVar[int]
    calls: int
    tensor_bytes: int
    packets_sent: int
    packets_resent: int
    results_received: int
    duplicates_received: int
    unaggregated_received: int
    wire_bytes_sent: int
    fallbacks: _containers.RepeatedCompositeFieldContainer[Fallback]
    def __init__(self, calls: _Optional[int] = ..., tensor_bytes: _Optional[int] = ..., packets_sent: _Optional[int] = ..., packets_resent: _Optional[int] = ..., results_received: _Optional[int] = ..., duplicates_received: _Optional[int] = ..., unaggregated_received: _Optional[int] = ..., wire_bytes_sent: _Optional[int] = ..., fallbacks: _Optional[_Iterable[_Union[Fallback, _Mapping]]] = ...) -> None: ...

class Fallback(_message.Message):
    __slots__ = ("collective", "reason", "calls", "tensor_bytes")
    COLLECTIVE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    TENSOR_BYTES_FIELD_NUMBER: _ClassVar[int]
    collective: str
    reason: str
    calls: int
    tensor_bytes: int
    def __init__(self, collective: _Optional[str] = ..., reason: _Optional[str] = ..., calls: _Optional[int] = ..., tensor_bytes: _Optional[int] = ...) -> None: ...

class ListSwitchesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSwitchesReply(_message.Message):
    __slots__ = ("switches",)
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    switches: _containers.RepeatedCompositeFieldContainer[SwitchInfo]
    def __init__(self, switches: _Optional[_Iterable[_Union[SwitchInfo, _Mapping]]] = ...) -> None: ...

class SwitchInfo(_message.Message):
    __slots__ = ("name", "address", "device_id", "state", "program", "slots_total", "slots_used", "jobs", "ports")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    SLOTS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SLOTS_USED_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    device_id: int
    state: str
    program: str
    slots_total: int
    slots_used: int
    jobs: int
    ports: _containers.RepeatedCompositeFieldContainer[PortInfo]
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ..., device_id: _Optional[int] = ..., state: _Optional[str] = ..., program: _Optional[str] = ..., slots_total: _Optional[int] = ..., slots_used: _Optional[int] = ..., jobs: _Optional[int] = ..., ports: _Optional[_Iterable[_Union[PortInfo, _Mapping]]] = ...) -> None: ...

class PortInfo(_message.Message):
    __slots__ = ("port", "host", "mac", "ip", "attachment")
    PORT_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    MAC_FIELD_NUMBER: _ClassVar[int]
    IP_FIELD_NUMBER: _ClassVar[int]
    ATTACHMENT_FIELD_NUMBER: _ClassVar[int]
    port: int
    host: str
    mac: str
    ip: str
    attachment: str
    def __init__(self, port: _Optional[int] = ..., host: _Optional[str] = ..., mac: _Optional[str] = ..., ip: _Optional[str] = ..., attachment: _Optional[str] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("include_finished",)
    INCLUDE_FINISHED_FIELD_NUMBER: _ClassVar[int]
    include_finished: bool
    def __init__(self, include_finished: _Optional[bool] = ...) -> None: ...

class ListJobsReply(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobInfo]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobInfo, _Mapping]]] = ...) -> None: ...

class JobInfo(_message.Message):
    __slots__ = ("job_id", "name", "group", "state", "switch", "world_size", "transport", "generation", "window", "max_blocks", "streams", "first_slot", "slot_count", "members", "switch_counters", "started_at", "ended_at")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    TRANSPORT_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    MAX_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    FIRST_SLOT_FIELD_NUMBER: _ClassVar[int]
    SLOT_COUNT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_COUNTERS_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    name: str
    group: str
    state: str
    switch: str
    world_size: int
    transport: Transport
    generation: int
    window: int
    max_blocks: int
    streams: _containers.RepeatedCompositeFieldContainer[Stream]
    first_slot: int
    slot_count: int
    members: _containers.RepeatedCompositeFieldContainer[MemberInfo]
    switch_counters: CauseCounters
    started_at: float
    ended_at: float
    def __init__(self, job_id: _Optional[int] = ..., name: _Optional[str] = ..., group: _Optional[str] = ..., state: _Optional[str] = ..., switch: _Optional[str] = ..., world_size: _Optional[int] = ..., transport: _Optional[_Union[Transport, str]] = ..., generation: _Optional[int] = ..., window: _Optional[int] = ..., max_blocks: _Optional[int] = ..., streams: _Optional[_Iterable[_Union[Stream, _Mapping]]] = ..., first_slot: _Optional[int] = ..., slot_count: _Optional[int] = ..., members: _Optional[_Iterable[_Union[MemberInfo, _Mapping]]] = ..., switch_counters: _Optional[_Union[CauseCounters, _Mapping]] = ..., started_at: _Optional[float] = ..., ended_at: _Optional[float] = ...) -> None: ...

class MemberInfo(_message.Message):
    __slots__ = ("rank", "hostname", "pid", "port", "endpoint", "state", "statistics", "results_delivered")
    RANK_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_DELIVERED_FIELD_NUMBER: _ClassVar[int]
    rank: int
    hostname: str
    pid: int
    port: int
    endpoint: Endpoint
    state: str
    statistics: HostStatistics
    results_delivered: int
    def __init__(self, rank: _Optional[int] = ..., hostname: _Optional[str] = ..., pid: _Optional[int] = ..., port: _Optional[int] = ..., endpoint: _Optional[_Union[Endpoint, _Mapping]] = ..., state: _Optional[str] = ..., statistics: _Optional[_Union[HostStatistics, _Mapping]] = ..., results_delivered: _Optional[int] = ...) -> None: ...

class CauseCounters(_message.Message):
    __slots__ = ("first", "added", "completed", "duplicate_absorbed", "duplicate_answered", "stale", "spoofed", "malformed", "unknown", "bytes")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_ABSORBED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_ANSWERED_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    SPOOFED_FIELD_NUMBER: _ClassVar[int]
    MALFORMED_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    first: int
    added: int
    completed: int
    duplicate_absorbed: int
    duplicate_answered: int
    stale: int
    spoofed: int
    malformed: int
    unknown: int
    bytes: int
    def __init__(self, first: _Optional[int] = ..., added: _Optional[int] = ..., completed: _Optional[int] = ..., duplicate_absorbed: _Optional[int] = ..., duplicate_answered: _Optional[int] = ..., stale: _Optional[int] = ..., spoofed: _Optional[int] = ..., malformed: _Optional[int] = ..., unknown: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class ReadCountersRequest(_message.Message):
    __slots__ = ("switch",)
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    switch: str
    def __init__(self, switch: _Optional[str] = ...) -> None: ...

class ReadCountersReply(_message.Message):
    __slots__ = ("switches",)
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    switches: _containers.RepeatedCompositeFieldContainer[SwitchCounters]
    def __init__(self, switches: _Optional[_Iterable[_Union[SwitchCounters, _Mapping]]] = ...) -> None: ...

class SwitchCounters(_message.Message):
    __slots__ = ("switch", "streams")
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    switch: str
    streams: _containers.RepeatedCompositeFieldContainer[StreamCounters]
    def __init__(self, switch: _Optional[str] = ..., streams: _Optional[_Iterable[_Union[StreamCounters, _Mapping]]] = ...) -> None: ...

class StreamCounters(_message.Message):
    __slots__ = ("job_id", "wire_job", "lane_bits", "counters")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WIRE_JOB_FIELD_NUMBER: _ClassVar[int]
    LANE_BITS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    wire_job: int
    lane_bits: int
    counters: CauseCounters
    def __init__(self, job_id: _Optional[int] = ..., wire_job: _Optional[int] = ..., lane_bits: _Optional[int] = ..., counters: _Optional[_Union[CauseCounters, _Mapping]] = ...) -> None: ...
