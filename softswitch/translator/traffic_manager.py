"""From the end of ingress to the wire: unicast, multicast, clones, resubmission, recirculation, digests.

The order of precedence is simple_switch's: clone, digest, resubmit, multicast, drop, unicast; after
egress: clone, drop, recirculate, transmit.  Only what the program uses is written.
"""

from __future__ import annotations

from .errors import UnsupportedConstruct
from .layout import Layout
from .program import FieldList, FieldRef, Program
from .usage import mentioned_fields, wide_writes
from .writer import Writer, limbs_of

ARGUMENTS = "ssw_pipeline *pl, ssw_packet *pk, headers *p"
MAX_PASSES = 64
"""Passes of one packet and its copies through resubmission, recirculation and egress clones of egress
clones; a program that exceeds it loops, which on the target would keep the switch busy for ever."""


class TrafficManagerCodegen:
    def __init__(self, program: Program, layout: Layout):
        self.program = program
        self.layout = layout
        self.mentioned = mentioned_fields(program)
        primitives = {p.op for action in program.actions.values() for p in action.primitives}
        self.clones_ingress = "clone_ingress_pkt_to_egress" in primitives
        self.clones_egress = "clone_egress_pkt_to_egress" in primitives
        self.resubmits = "resubmit" in primitives
        self.recirculates = "recirculate" in primitives
        self.digests = "generate_digest" in primitives
        self.out = Writer()

    # --- Intrinsic metadata --------------------------------------------------------------------

    def intrinsic(self, name: str) -> FieldRef | None:
        """A field of the architecture, as ``standard_metadata.x``, ``intrinsic_metadata.x`` …"""
        alias = self.program.field_aliases.get(name)
        if alias is not None:
            return alias
        header, item = name.split(".")
        known = self.program.headers.get(header)
        return FieldRef(header, item) if known and item in known.type.by_name else None

    def required(self, name: str) -> FieldRef:
        ref = self.intrinsic(name)
        if ref is None:
            raise UnsupportedConstruct(f"an architecture without {name} (only v1model)")
        return ref

    def used(self, name: str) -> FieldRef | None:
        ref = self.intrinsic(name)
        return ref if ref in self.mentioned else None

    def _set(self, ref: FieldRef | None, value: str) -> None:
        if ref is not None:
            width = self.program.field(ref).width
            lvalue = self.layout.field(ref)
            self.out.line(f"{lvalue} = (typeof({lvalue}))(({value}) & ssw_mask({width}));")

    # --- Functions -----------------------------------------------------------------------------

    def write(self, out: Writer) -> None:
        self.out = out
        self._helpers()
        if self.recirculates:
            self._recirculate()
        if self.clones_egress:
            out.line(f"static void clone_egress({ARGUMENTS});")
        self._egress()
        self._replicate()
        if self.clones_egress:
            self._clone_egress()
        if self.clones_ingress:
            self._clone_ingress()
        if self.digests:
            self._digest()
        self._ingress()
        self._process()

    def _helpers(self) -> None:
        """State at the start of a pass, and field lists."""
        out = self.out
        with out.block("static inline void clear_metadata(headers *p)"):
            first, last = "offsetof(headers, narrow_metadata)", "offsetof(headers, narrow_headers)"
            out.line(f"memset((char *)p + {first}, 0, {last} - {first});")
            out.line("memset((char *)p + NARROW_SIZE, 0, CLEARED_SIZE - NARROW_SIZE);")
        out.line()
        with out.block(
            "static inline void begin_packet(ssw_packet *pk, const uint8_t *frame, uint32_t length)"
        ):
            out.line("memset(pk, 0, sizeof *pk);")
            out.line("pk->data = frame;")
            out.line("pk->left = pk->ingress_length = pk->packet_length = length;")
            out.line("pk->truncated = UINT32_MAX;")
        out.line()
        if self.clones_ingress or self.clones_egress or self.resubmits or self.recirculates:
            with out.block("static void keep_fields(headers *p, const headers *of, uint32_t list)"):
                with out.block("switch (list)"):
                    for field_list in self.program.field_lists.values():
                        self._keep_list(field_list)
                    out.line("default: break;")
                out.line("(void)p; (void)of;")
            out.line()

    def _keep_list(self, field_list: FieldList) -> None:
        with self.out.block(f"case {field_list.id}:"):
            for node, width in field_list.items:
                if not isinstance(node, FieldRef) or node.field == "$valid$":
                    continue
                target = self.layout.field(node)
                source = "of->" + target.removeprefix("p->")
                if width > 64:
                    self.out.line(f"ssw_wide_copy({target}, {source}, {limbs_of(width)});")
                else:
                    self.out.line(f"{target} = {source};")
            self.out.line("break;")

    def _recirculate(self) -> None:
        out = self.out
        with out.block("struct pending"):
            out.line("struct pending *next;")
            out.line("uint32_t fields, length, ingress_port;")
            out.line("headers of;")
            out.line("uint8_t frame[];")
        out.lines[-1] += ";"
        with out.block(f"static void recirculate({ARGUMENTS}, uint32_t length)"):
            out.line("struct pending *again = NULL;")
            out.line("if (posix_memalign((void **)&again, 64, sizeof *again + length) != 0) return;")
            out.line("again->next = NULL;")
            out.line("again->fields = pk->recirculate_fields;")
            out.line("again->length = length;")
            out.line("again->ingress_port = pk->ingress_port;")
            out.line("again->of = *p;")
            out.line("memcpy(again->frame, pl->output, length);")
            out.line("struct pending **last = (struct pending **)&pl->pending;")
            out.line("while (*last) last = &(*last)->next;")
            out.line("*last = again;")
        out.line()

    def _egress(self) -> None:
        out = self.out
        with out.block(f"static void egress({ARGUMENTS}, uint32_t port)"):
            priority = self.used("intrinsic_metadata.priority")
            if priority is not None:
                # The target has one queue per port unless told otherwise, and drops other priorities.
                out.line(f"if ({self.layout.field(priority)} != 0) return;")
            self._timestamps()
            self._set(self.required("standard_metadata.egress_port"), "port")
            spec = self.required("standard_metadata.egress_spec")
            self._set(spec, "SSW_DROP_PORT + 1u")
            self._set(self.required("standard_metadata.packet_length"), "pk->packet_length")
            out.line("control_egress(pl, pk, p);")
            if self.clones_egress:
                out.line("if (pk->clone) clone_egress(pl, pk, p);")
            out.line(f"if ({self.layout.field(spec)} == SSW_DROP_PORT) return;")
            out.line("const int64_t length = deparse(pl, pk, p);")
            out.line("if (length < 0) return;")
            if self.recirculates:
                with out.block("if (pk->recirculate)"):
                    out.line("recirculate(pl, pk, p, (uint32_t)length);")
                    out.line("return;")
            out.line("pl->host.transmit(pl->host.context, port, pl->output, (uint32_t)length);")
        out.line()

    def _timestamps(self) -> None:
        egress = self.used("intrinsic_metadata.egress_global_timestamp")
        enqueued = self.used("queueing_metadata.enq_timestamp")
        if egress is not None or enqueued is not None:
            self.out.line("const uint64_t now = ssw_now(pl);")
        self._set(egress, "now")
        self._set(enqueued, "now")
        # There is no queue between ingress and egress: depths and waiting time are zero.
        for name in ("enq_qdepth", "deq_timedelta", "deq_qdepth"):
            self._set(self.used(f"queueing_metadata.{name}"), "0u")

    def _replicate(self) -> None:
        """Egress for every replica, each from the same headers and metadata."""
        out = self.out
        wide = wide_writes(self.program, self.layout, self.program.egress)
        with out.block(f"static void replicate({ARGUMENTS}, const ssw_group *group)"):
            out.line("headers saved;")
            out.line("const uint32_t count = group->count;")
            with out.block("if (count > 1)"):
                out.line("memcpy(&saved, p, NARROW_SIZE);")
                for lvalue in wide:
                    kept = f"saved.{lvalue.removeprefix('p->')}"
                    out.line(f"memcpy(&{kept}, &{lvalue}, sizeof {lvalue});")
            with out.block("for (uint32_t r = 0; r < count; ++r)"):
                with out.block("if (r > 0)"):
                    out.line("memcpy(p, &saved, NARROW_SIZE);")
                    for lvalue in wide:
                        kept = f"saved.{lvalue.removeprefix('p->')}"
                        out.line(f"memcpy(&{lvalue}, &{kept}, sizeof {lvalue});")
                out.line("ssw_packet replica = *pk;")
                # A copy takes neither a pending truncation nor pending requests along.
                out.line("replica.truncated = group->truncate_bytes ? group->truncate_bytes : UINT32_MAX;")
                out.line("replica.clone = replica.recirculate = replica.exit = false;")
                self._set(self.intrinsic("intrinsic_metadata.egress_rid"), "group->replicas[r].instance")
                out.line("egress(pl, &replica, p, group->replicas[r].port);")
        out.line()

    def _clone_egress(self) -> None:
        out = self.out
        with out.block(f"static __attribute__((noinline)) void clone_egress({ARGUMENTS})"):
            out.line("const ssw_group *group = ssw_clone_session(&pl->replication, pk->clone_session);")
            out.line("pk->clone = false;")
            out.line("if (!group) return;")
            self._bounded("return;")
            out.line("headers of = *p;")
            out.line("clear_metadata(p);")
            out.line("keep_fields(p, &of, pk->clone_fields);")
            self._set(self.required("standard_metadata.instance_type"), "SSW_INSTANCE_EGRESS_CLONE")
            out.line("ssw_packet copy = *pk;")
            out.line("replicate(pl, &copy, p, group);")
            out.line("*p = of;")
        out.line()

    def _clone_ingress(self) -> None:
        """The frame as it entered ingress, parsed again."""
        out = self.out
        head = f"static __attribute__((noinline)) void clone_ingress({ARGUMENTS}, const uint8_t *frame)"
        with out.block(head):
            out.line("const ssw_group *group = ssw_clone_session(&pl->replication, pk->clone_session);")
            out.line("pk->clone = false;")
            out.line("if (!group) return;")
            out.line("headers of = *p;")
            out.line("ssw_packet copy;")
            out.line("begin_packet(&copy, frame, (uint32_t)(pk->data - frame) + pk->left);")
            out.line("copy.ingress_port = pk->ingress_port;")
            out.line("copy.ingress_length = pk->ingress_length;")
            out.line("memset(p, 0, CLEARED_SIZE);")
            self._set(self.required("standard_metadata.ingress_port"), "pk->ingress_port")
            out.line("parse(pl, &copy, p);")
            out.line("clear_metadata(p);")
            out.line("keep_fields(p, &of, pk->clone_fields);")
            self._set(self.required("standard_metadata.instance_type"), "SSW_INSTANCE_INGRESS_CLONE")
            out.line("replicate(pl, &copy, p, group);")
            out.line("*p = of;")
        out.line()

    def _digest(self) -> None:
        """Fields follow each other, each padded on the left to whole bytes."""
        out = self.out
        with out.block(f"static __attribute__((noinline)) void send_digest({ARGUMENTS})"):
            out.line("if (!pl->host.digest) return;")
            with out.block("switch (pk->digest)"):
                for learn_list in self.program.learn_lists.values():
                    size = sum((width + 7) // 8 for _, width in learn_list.items)
                    with out.block(f"case {learn_list.id}:"):
                        out.line(f"uint8_t data[{max(size, 1)}] = {{0}};")
                        at = 0
                        for node, width in learn_list.items:
                            at = self._digest_field(node, width, at)
                        out.line(f"pl->host.digest(pl->host.context, {learn_list.id}u, data, {size});")
                        out.line("break;")
                out.line("default: break;")
        out.line()

    def _digest_field(self, node, width: int, at: int) -> int:
        size = (width + 7) // 8
        if isinstance(node, FieldRef):
            lvalue = self.layout.field(node)
            function = "ssw_store_be" if width <= 64 else "ssw_wide_put_bits"
            if width <= 64:
                self.out.line(f"{function}(data + {at}, {size}, {lvalue});")
            else:
                self.out.line(f"{function}(data, {8 * (at + size) - width}, {width}, {lvalue});")
        else:
            for i in range(size):
                self.out.line(f"data[{at + i}] = {node.value >> 8 * (size - 1 - i) & 0xFF};")
        return at + size

    def _ingress(self) -> None:
        """Parser, ingress and what follows; true when the packet is to be submitted again."""
        out = self.out
        with out.block(f"static bool ingress({ARGUMENTS})"):
            out.line("const uint8_t *const frame = pk->data;")
            out.line("(void)frame;")
            out.line("parse(pl, pk, p);")
            out.line("verify_checksums(pl, pk, p);")
            self._set(self.used("standard_metadata.parser_error"), "pk->parser_error")
            self._set(self.used("standard_metadata.checksum_error"), "pk->checksum_error")
            out.line("control_ingress(pl, pk, p);")
            out.line("pk->exit = false;")
            if self.clones_ingress:
                out.line("if (pk->clone) clone_ingress(pl, pk, p, frame);")
            if self.digests:
                out.line("if (pk->digest) send_digest(pl, pk, p);")
            if self.resubmits:
                out.line("if (pk->resubmit) return true;")
            instance = self.required("standard_metadata.instance_type")
            group = self.intrinsic("intrinsic_metadata.mcast_grp")
            if group is not None:
                lvalue = self.layout.field(group)
                with out.block(f"if ({lvalue} != 0)"):
                    out.line(f"const ssw_group *members = ssw_multicast_group(&pl->replication, {lvalue});")
                    self._set(instance, "SSW_INSTANCE_REPLICATED")
                    out.line("if (members) replicate(pl, pk, p, members);")
                    out.line("return false;")
            spec = self.layout.field(self.required("standard_metadata.egress_spec"))
            out.line(f"const uint32_t port = (uint32_t){spec};")
            out.line("if (port == SSW_DROP_PORT) return false;")
            self._set(instance, "SSW_INSTANCE_NORMAL")
            out.line("egress(pl, pk, p, port);")
            out.line("return false;")
        out.line()

    def _bounded(self, leave: str) -> None:
        message = '"a packet was resubmitted, recirculated or cloned without end and was dropped"'
        with self.out.block(f"if (pl->passes++ >= {MAX_PASSES})"):
            self.out.line(f"ssw_log(pl, SSW_LOG_ERROR, {message}, NULL, 0);")
            self.out.line(leave)

    def _process(self) -> None:
        out = self.out
        head = (
            "void ssw_program_process(ssw_pipeline *pl, uint32_t ingress_port, const uint8_t *frame, "
            "uint32_t length)"
        )
        with out.block(head):
            out.line("headers *const p = pl->headers;")
            out.line("ssw_packet pk;")
            out.line("begin_packet(&pk, frame, length);")
            out.line("pk.ingress_port = ingress_port;")
            out.line("pl->passes = 0;")
            out.line("memset(p, 0, CLEARED_SIZE);")
            self._set(self.required("standard_metadata.ingress_port"), "ingress_port")
            self._set(self.required("standard_metadata.packet_length"), "length")
            self._set(self.used("intrinsic_metadata.ingress_global_timestamp"), "ssw_now(pl)")
            self._submit("frame", "length")
            if self.recirculates:
                self._drain()

    def _submit(self, frame: str, length: str) -> None:
        out = self.out
        if not self.resubmits:
            out.line("ingress(pl, &pk, p);")
            return
        with out.block("while (ingress(pl, &pk, p))"):
            self._bounded("break;")
            out.line("const headers of = *p;")
            out.line("const uint32_t list = pk.resubmit_fields, port = pk.ingress_port;")
            out.line(f"begin_packet(&pk, {frame}, {length});")
            out.line("pk.ingress_port = port;")
            out.line("memset(p, 0, CLEARED_SIZE);")
            out.line("keep_fields(p, &of, list);")
            self._set(self.required("standard_metadata.instance_type"), "SSW_INSTANCE_RESUBMITTED")
            self._set(self.required("standard_metadata.packet_length"), length)

    def _drain(self) -> None:
        out = self.out
        with out.block("while (pl->pending)"):
            out.line("struct pending *again = pl->pending;")
            out.line("pl->pending = again->next;")
            with out.block(f"if (pl->passes++ < {MAX_PASSES})"):
                out.line("begin_packet(&pk, again->frame, again->length);")
                out.line("pk.ingress_port = again->ingress_port;")
                out.line("memset(p, 0, CLEARED_SIZE);")
                out.line("keep_fields(p, &again->of, again->fields);")
                self._set(self.required("standard_metadata.instance_type"), "SSW_INSTANCE_RECIRCULATED")
                self._set(self.required("standard_metadata.packet_length"), "again->length")
                self._submit("again->frame", "again->length")
            with out.block("else"):
                message = '"a packet was recirculated without end and was dropped"'
                out.line(f"ssw_log(pl, SSW_LOG_ERROR, {message}, NULL, 0);")
            out.line("free(again);")
