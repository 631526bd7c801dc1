"""Table ``forward``: packets that are not aggregated go to the port of their destination address."""

from collections.abc import Iterable, Iterator

import finsy as fy

from netreduce.controller.tables import groups
from netreduce.controller.topology import SwitchPort
from netreduce.controller.topology.addresses import mac_number

TABLE = "forward"


def entries(ports: Iterable[SwitchPort]) -> Iterator[fy.P4TableEntry]:
    """One entry per address."""
    for port in ports:
        yield fy.P4TableEntry(
            TABLE,
            match=fy.P4TableMatch(destination=mac_number(port.mac)),
            action=fy.P4TableAction("to_port", port=port.number),
        )


def default_entry() -> fy.P4TableEntry:
    """Broadcast and unknown destinations are flooded."""
    action = fy.P4TableAction("flood", group=groups.FLOOD)
    return fy.P4TableEntry(TABLE, action=action, is_default_action=True)
