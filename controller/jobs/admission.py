"""Which switch a complete group gets, and what of it."""

from netreduce.controller.api import job_service_pb2 as pb
from netreduce.controller.errors import Refusal
from netreduce.controller.identifiers import Generations
from netreduce.controller.jobs.job import Job, Member
from netreduce.controller.jobs.plan import JobPlan, RankPlan
from netreduce.controller.jobs.resources import SwitchResources
from netreduce.controller.jobs.validation import check_endpoints, max_blocks
from netreduce.controller.session import SwitchSession
from netreduce.controller.topology import Inventory, SwitchPort
from netreduce.controller.topology.addresses import canonical_ip
from netreduce.p4.wire import UDP_PORT_FIRST


class Admission:
    """Turns groups of requests into plans.  Nothing here talks to a switch."""

    def __init__(
        self,
        inventory: Inventory,
        sessions: dict[str, SwitchSession],
        resources: dict[str, SwitchResources],
        generations: Generations,
        window: int,
    ):
        self._inventory = inventory
        self._sessions = sessions
        self._resources = resources
        self._generations = generations
        self._window = window

    def plan(self, job: Job) -> None:
        """Set the job's plan and holding.  Raises Refusal and holds nothing."""
        members = [job.members[rank] for rank in range(job.world_size)]
        check_endpoints(members)
        blocks = max_blocks(members)
        if job.first.transport == pb.TRANSPORT_UDP:
            ports = [self._host_port(member) for member in members]
            switch = _common_switch(members, ports)
            self._check_ready(switch)
            holding = self._resources[switch].hold(list(job.first.lane_bits), self._window, 0)
            udp_ports = [member.request.udp_port for member in members]
        else:
            switch, holding = self._shm_switch(job)
            ports = holding.shm_ports
            udp_ports = [UDP_PORT_FIRST] * job.world_size
        ranks = zip(range(job.world_size), ports, udp_ports, strict=True)
        job.holding = holding
        job.plan = JobPlan(
            switch=switch,
            generation=self._generations.take(),
            window=self._window,
            max_blocks=blocks,
            ranks=tuple(RankPlan(*rank) for rank in ranks),
            streams=holding.streams,
        )

    def _host_port(self, member: Member) -> SwitchPort:
        ip = canonical_ip(member.request.ip)
        port = self._inventory.host_by_ip(ip)
        if port is None:
            name = member.request.hostname or "NAME"
            switch = next(iter(self._inventory.switches))
            raise Refusal(
                f"the address {ip} of {member.describe()} is not in the topology file"
                f" {self._inventory.source}; add under hosts: {{name: {name}, mac: <its MAC address>,"
                f" ip: {ip}, switch: {switch}, port: <the switch port it is on>}}"
            )
        return port

    def _check_ready(self, switch: str) -> None:
        session = self._sessions[switch]
        if not session.ready:
            raise Refusal(f"switch {switch} is not ready ({session.state})")

    def _shm_switch(self, job: Job):
        """The first switch with room; its objection if there is none."""
        candidates = [name for name, r in self._resources.items() if r.shm_ports]
        if not candidates:
            raise Refusal(
                f"no switch has shm ports; add shm_pools to the topology file {self._inventory.source}"
            )
        objections = []
        for name in candidates:
            try:
                self._check_ready(name)
                holding = self._resources[name].hold(list(job.first.lane_bits), self._window, job.world_size)
                return name, holding
            except Refusal as refusal:
                objections.append(str(refusal))
        raise Refusal("; ".join(objections))


def _common_switch(members: list[Member], ports: list[SwitchPort]) -> str:
    for member, port in zip(members, ports, strict=True):
        if port.switch != ports[0].switch:
            raise Refusal(
                f"{members[0].describe()} is on switch {ports[0].switch} and {member.describe()} on switch"
                f" {port.switch}; the ranks of a job must be on one switch"
            )
    return ports[0].switch
