"""Table ``rewrite``: makes a result the very packet that the receiver's predecessor would have sent."""

from collections.abc import Iterator

import finsy as fy

from netreduce.controller.jobs.plan import JobPlan, StreamPlan
from netreduce.controller.topology.addresses import ip_number, mac_number

TABLE = "rewrite"
DELIVERED = "delivered"
"""Direct counter of the table: results sent to one rank."""


def entries(plan: JobPlan, stream: StreamPlan) -> Iterator[fy.P4TableEntry]:
    """One entry per rank."""
    for rank in plan.ranks:
        source = plan.predecessor(rank.rank)
        yield fy.P4TableEntry(
            TABLE,
            match=fy.P4TableMatch(stream=stream.number, rank=rank.rank),
            action=fy.P4TableAction(
                "as_predecessor",
                source_mac=mac_number(source.port.mac),
                destination_mac=mac_number(rank.port.mac),
                source_ip=ip_number(source.port.ip),
                destination_ip=ip_number(rank.port.ip),
                source_port=source.udp_port,
                destination_port=rank.udp_port,
                predecessor=source.rank,
            ),
        )


def delivered_query(stream: int, rank: int) -> fy.P4DirectCounterEntry:
    """Reads how many results went to a rank."""
    match = fy.P4TableMatch(stream=stream, rank=rank)
    return fy.P4DirectCounterEntry(DELIVERED, table_entry=fy.P4TableEntry(TABLE, match=match))
