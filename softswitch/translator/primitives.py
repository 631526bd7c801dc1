"""The primitives that actions and parser states call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import UnsupportedConstruct
from .expressions import Expressions
from .layout import Layout
from .program import Field, FieldRef, HeaderRef, HeaderType, Named, Node, Program, StackRef, Text, Vector
from .writer import Writer, c_string, literal

if TYPE_CHECKING:
    from .externs import Externs

DROP_PORT = "SSW_DROP_PORT"
HASH_RESULT = Field("", 64)
STANDARD_METADATA = HeaderRef("standard_metadata")
NO_ARGUMENTS = Vector(())


@dataclass(frozen=True)
class PrimitiveContext:
    program: Program
    layout: Layout
    out: Writer
    expressions: Expressions
    externs: Externs

    def unsupported(self, construct: str) -> UnsupportedConstruct:
        return self.expressions.unsupported(construct)


PRIMITIVES: dict[str, Callable[..., None]] = {}


def primitive(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(function: Callable[..., None]) -> Callable[..., None]:
        for name in names:
            PRIMITIVES[name] = function
        return function

    return register


# --- Fields and headers ------------------------------------------------------------------------


@primitive("assign", "modify_field")
def assign(c: PrimitiveContext, target: Node, value: Node) -> None:
    c.expressions.store(target, value)


def copy_fields(
    c: PrimitiveContext, kind: HeaderType, target: tuple[str, str], source: tuple[str, str]
) -> None:
    if c.layout.has_narrow(kind):
        c.out.line(f"{target[0]} = {source[0]};")
    if c.layout.has_wide(kind):
        c.out.line(f"{target[1]} = {source[1]};")


def clear_fields(c: PrimitiveContext, kind: HeaderType, target: tuple[str, str]) -> None:
    if c.layout.has_narrow(kind):
        c.out.line(f"memset(&{target[0]}, 0, sizeof {target[0]});")
    if c.layout.has_wide(kind):
        c.out.line(f"memset(&{target[1]}, 0, sizeof {target[1]});")


@primitive("add_header")
def add_header(c: PrimitiveContext, header: Node) -> None:
    place, kind = c.expressions.header(header)
    with c.out.block(f"if (!{place.valid})"):
        clear_fields(c, kind, (place.narrow, place.wide))
        c.out.line(f"{place.valid} = {_validity(c, header)};")
        c.out.line(f"pk->packet_length += {kind.width // 8};")


def _validity(c: PrimitiveContext, header: Node) -> str:
    """1, except for the element that stands for all indices outside a stack."""
    if isinstance(header, HeaderRef):
        return "1"
    stack = header.args[0].stack
    place, _ = c.expressions.header(header)
    base = c.layout.stack_valid_base(stack)
    size = len(c.program.stacks[stack].headers)
    return f"&{place.valid} != &p->valid[{base + size}]"


@primitive("remove_header")
def remove_header(c: PrimitiveContext, header: Node) -> None:
    place, kind = c.expressions.header(header)
    with c.out.block(f"if ({place.valid})"):
        c.out.line(f"{place.valid} = 0;")
        c.out.line(f"pk->packet_length -= {kind.width // 8};")


@primitive("assign_header", "copy_header")
def assign_header(c: PrimitiveContext, target: Node, source: Node) -> None:
    (to, kind), (of, other) = c.expressions.header(target), c.expressions.header(source)
    if kind != other:
        raise c.unsupported(f"assignment between header types {other.name} and {kind.name}")
    if not to.valid:
        copy_fields(c, kind, (to.narrow, to.wide), (of.narrow, of.wide))
        return
    with c.out.block(f"if ({of.valid})"):
        c.out.line(f"{to.valid} = {_validity(c, target)};")
        copy_fields(c, kind, (to.narrow, to.wide), (of.narrow, of.wide))
    with c.out.block("else"):
        c.out.line(f"{to.valid} = 0;")


@primitive("assign_header_stack")
def assign_header_stack(c: PrimitiveContext, target: Node, source: Node) -> None:
    to, of = _stack(c, target), _stack(c, source)
    size = len(c.program.stacks[to].headers)
    c.out.line(f"{c.layout.stack_next(to)} = {c.layout.stack_next(of)};")
    with c.out.block(f"for (unsigned i = 0; i < {size}; ++i)"):
        a, b = c.layout.stack_element(to, "i"), c.layout.stack_element(of, "i")
        c.out.line(f"{a.valid} = {b.valid};")
        copy_fields(c, c.program.stacks[to].type, (a.narrow, a.wide), (b.narrow, b.wide))


def _stack(c: PrimitiveContext, node: Node) -> str:
    if not isinstance(node, StackRef):
        raise c.unsupported(f"{type(node).__name__} as a header stack")
    return node.stack


def _move_elements(c: PrimitiveContext, stack: str, to: str, of: str, count: str) -> None:
    base = c.layout.stack_valid_base(stack)
    arrays = [f"(p->valid + {base})", *filter(None, c.layout.stack_arrays(stack))]
    for array in arrays:
        c.out.line(f"memmove({array} + {to}, {array} + {of}, {count} * sizeof *{array});")


@primitive("push")
def push(c: PrimitiveContext, stack: Node, count: Node) -> None:
    """Moves all elements up; the new first ones are invalid."""
    name = _stack(c, stack)
    size, base, next_ = (
        len(c.program.stacks[name].headers),
        c.layout.stack_valid_base(name),
        c.layout.stack_next(name),
    )
    n = c.expressions.hoist(f"ssw_min({c.expressions.saturated(count)}, {size})")
    _move_elements(c, name, n, "0", f"({size} - {n})")
    c.out.line(f"memset(p->valid + {base}, 0, {n});")
    c.out.line(f"{next_} = (uint16_t)ssw_min({next_} + {n}, {size});")


@primitive("pop")
def pop(c: PrimitiveContext, stack: Node, count: Node) -> None:
    """Moves all elements down; the last ones become invalid."""
    name = _stack(c, stack)
    size, base, next_ = (
        len(c.program.stacks[name].headers),
        c.layout.stack_valid_base(name),
        c.layout.stack_next(name),
    )
    n = c.expressions.hoist(f"ssw_min({c.expressions.saturated(count)}, {size})")
    _move_elements(c, name, "0", n, f"({size} - {n})")
    c.out.line(f"memset(p->valid + {base} + {size} - {n}, 0, {n});")
    c.out.line(f"{next_} = (uint16_t)({next_} > {n} ? {next_} - {n} : 0);")


# --- Forwarding --------------------------------------------------------------------------------


@primitive("mark_to_drop", "drop")
def mark_to_drop(c: PrimitiveContext, metadata: Node = STANDARD_METADATA) -> None:
    if not isinstance(metadata, HeaderRef):
        raise c.unsupported(f"mark_to_drop of {type(metadata).__name__}")
    fields = c.program.headers[metadata.header].type.by_name
    if "egress_spec" not in fields:
        raise c.unsupported(f"mark_to_drop of {metadata.header}, which has no egress_spec")
    spec = FieldRef(metadata.header, "egress_spec")
    c.expressions.store_scalar(c.layout.field(spec), fields["egress_spec"], DROP_PORT)
    if "mcast_grp" in fields:
        c.out.line(f"{c.layout.field(FieldRef(metadata.header, 'mcast_grp'))} = 0;")


@primitive("clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress")
def clone(c: PrimitiveContext, session: Node, fields: Node) -> None:
    c.out.line("pk->clone = true;")
    c.out.line(f"pk->clone_session = (uint32_t)({c.expressions.scalar(session)} & 0x7fff);")
    c.out.line(f"pk->clone_fields = (uint32_t)({c.expressions.scalar(fields)} & 0xffff);")


@primitive("resubmit")
def resubmit(c: PrimitiveContext, fields: Node) -> None:
    c.out.line(f"pk->resubmit_fields = (uint32_t)({c.expressions.scalar(fields)} & 0xffff);")
    c.out.line("pk->resubmit = pk->resubmit_fields != 0;")


@primitive("recirculate")
def recirculate(c: PrimitiveContext, fields: Node) -> None:
    c.out.line(f"pk->recirculate_fields = (uint32_t)({c.expressions.scalar(fields)} & 0xffff);")
    c.out.line("pk->recirculate = pk->recirculate_fields != 0;")


@primitive("generate_digest")
def generate_digest(c: PrimitiveContext, receiver: Node, learn_list: Node) -> None:
    del receiver  # there is one: the host
    c.out.line(f"pk->digest = (uint32_t)({c.expressions.scalar(learn_list)} & 0xffff);")


@primitive("truncate")
def truncate(c: PrimitiveContext, length: Node) -> None:
    c.out.line(f"pk->truncated = (uint32_t)ssw_min({c.expressions.saturated(length)}, pk->truncated);")


@primitive("exit")
def leave(c: PrimitiveContext) -> None:
    c.out.line("pk->exit = true;")


@primitive("no_op")
def no_op(c: PrimitiveContext) -> None:
    c.out.line(";")


# --- Stateful objects and hashes ---------------------------------------------------------------


def _named(c: PrimitiveContext, node: Node, kind: str) -> str:
    if not isinstance(node, Named) or node.kind != kind:
        raise c.unsupported(f"{type(node).__name__} as {kind}")
    return node.name


@primitive("count")
def count(c: PrimitiveContext, counter: Node, index: Node) -> None:
    c.externs.count(c.expressions, _named(c, counter, "counter_array"), index)


@primitive("register_read")
def register_read(c: PrimitiveContext, target: Node, register: Node, index: Node) -> None:
    c.externs.register_read(c.expressions, target, _named(c, register, "register_array"), index)


@primitive("register_write")
def register_write(c: PrimitiveContext, register: Node, index: Node, value: Node) -> None:
    c.externs.register_write(c.expressions, _named(c, register, "register_array"), index, value)


@primitive("modify_field_with_hash_based_offset")
def hash_field(c: PrimitiveContext, target: Node, base: Node, calculation: Node, size: Node) -> None:
    """target = hash % max(size, 1) + base"""
    name = _named(c, calculation, "calculation")
    e = c.expressions
    limit = e.hoist(e.scalar(size))
    value = f"{c.externs.calculation(name)}(pk, p) % ({limit} ? {limit} : 1) + {e.scalar(base)}"
    e.store_value(target, e.hoist(value), HASH_RESULT)


# --- Diagnostics -------------------------------------------------------------------------------


@primitive("log_msg")
def log_msg(c: PrimitiveContext, message: Node, arguments: Node = NO_ARGUMENTS) -> None:
    if not isinstance(message, Text) or not isinstance(arguments, Vector):
        raise c.unsupported("log_msg without a constant message")
    values = ", ".join(c.expressions.scalar(item) for item in arguments.items) or literal(0)
    count_ = len(arguments.items)
    c.out.line(
        f"ssw_log(pl, SSW_LOG_INFO, {c_string(message.value)}, (const uint64_t[]){{{values}}}, {count_});"
    )


@primitive("assert", "assume")
def check(c: PrimitiveContext, condition: Node) -> None:
    """Reports a violation and goes on: a switch that stopped would take its other users along."""
    e = c.expressions
    holds = e.boolean(condition) if e.kind(condition) == "bool" else f"{e.scalar(condition)} != 0"
    place = f"{e.source}: " if e.source else ""
    fragment = e.source.fragment if e.source else ""
    message = c_string(f"{place}assertion failed: {fragment}")
    c.out.line(f"if (!({holds})) ssw_log(pl, SSW_LOG_ERROR, {message}, NULL, 0);")
