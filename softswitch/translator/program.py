"""A P4 program as read from BMv2 JSON: what every part of the translator and the P4Runtime server see.

Names and ids are those of the JSON.  Widths are in bits.  Expressions are trees of :data:`Node`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from .errors import SourceInfo

# --- Expressions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Const:
    value: int


@dataclass(frozen=True)
class BoolConst:
    value: bool


@dataclass(frozen=True)
class FieldRef:
    """A field of a header or metadata instance; ``$valid$`` is the validity of a header."""

    header: str
    field: str


@dataclass(frozen=True)
class ParamRef:
    """An argument of the enclosing action."""

    index: int


@dataclass(frozen=True)
class LastRef:
    """A field of the last element that a header stack holds."""

    stack: str
    field: str


@dataclass(frozen=True)
class HeaderRef:
    header: str


@dataclass(frozen=True)
class StackRef:
    stack: str


@dataclass(frozen=True)
class Lookahead:
    """Bits of the frame that are not extracted: ``offset`` bits after the current position."""

    offset: int
    width: int


@dataclass(frozen=True)
class Named:
    """An object of another kind, by name: ``kind`` is the JSON type (register_array, calculation …)."""

    kind: str
    name: str


@dataclass(frozen=True)
class Text:
    value: str


@dataclass(frozen=True)
class Vector:
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Op:
    """``op`` as in JSON; operands left, right and, for ``?``, condition first."""

    op: str
    args: tuple[Node, ...]
    source: SourceInfo | None = field(default=None, compare=False)


Node = (
    Const
    | BoolConst
    | FieldRef
    | ParamRef
    | LastRef
    | HeaderRef
    | StackRef
    | Lookahead
    | Named
    | Text
    | Vector
    | Op
)


def walk(node: Node):
    """The node and everything below it."""
    yield node
    if isinstance(node, Op):
        for arg in node.args:
            yield from walk(arg)
    elif isinstance(node, Vector):
        for item in node.items:
            yield from walk(item)


# --- Headers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    name: str
    width: int
    signed: bool = False


@dataclass(frozen=True)
class HeaderType:
    name: str
    fields: tuple[Field, ...]

    @cached_property
    def by_name(self) -> dict[str, Field]:
        return {f.name: f for f in self.fields}

    @cached_property
    def width(self) -> int:
        return sum(f.width for f in self.fields)


@dataclass(frozen=True)
class Header:
    """An instance."""

    name: str
    id: int
    type: HeaderType
    metadata: bool


@dataclass(frozen=True)
class HeaderStack:
    name: str
    type: HeaderType
    headers: tuple[str, ...]


# --- Parser ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParserOp:
    op: str
    parameters: tuple[Node, ...]
    source: SourceInfo | None = None


@dataclass(frozen=True)
class Primitive:
    op: str
    parameters: tuple[Node, ...]
    source: SourceInfo | None = None


@dataclass(frozen=True)
class KeyPart:
    node: Node
    width: int


@dataclass(frozen=True)
class Transition:
    """``values`` and ``masks`` have one integer for each part of the key; None for the default."""

    values: tuple[int, ...] | None
    masks: tuple[int, ...] | None
    next_state: str | None


@dataclass(frozen=True)
class ParseState:
    name: str
    ops: tuple[ParserOp | Primitive, ...]
    key: tuple[KeyPart, ...]
    transitions: tuple[Transition, ...]
    source: SourceInfo | None = None


@dataclass(frozen=True)
class Parser:
    name: str
    init_state: str
    states: dict[str, ParseState]


# --- Match and action --------------------------------------------------------------------------


@dataclass(frozen=True)
class Param:
    name: str
    width: int


@dataclass(frozen=True)
class Action:
    name: str
    id: int
    params: tuple[Param, ...]
    primitives: tuple[Primitive, ...]
    source: SourceInfo | None = None


@dataclass(frozen=True)
class Key:
    """``match_type``: exact, lpm, ternary or range; ``mask``: static mask applied before the lookup."""

    name: str
    match_type: str
    target: Node
    width: int
    mask: int | None = None


@dataclass(frozen=True)
class Entry:
    """A constant entry; ``masks`` as in ``ssw_entry``, larger ``priority`` wins."""

    values: tuple[int, ...]
    masks: tuple[int, ...]
    priority: int
    action_id: int
    data: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    name: str
    id: int
    pipeline: str
    match_type: str
    keys: tuple[Key, ...]
    max_size: int
    with_counters: bool
    action_ids: tuple[int, ...]
    next_by_action: dict[int, str | None]
    """Empty when the next node depends on hit or miss."""
    next_hit: str | None
    next_miss: str | None
    by_hit: bool
    default_action_id: int | None
    default_data: tuple[int, ...]
    const_default_action: bool
    const_entries: bool
    entries: tuple[Entry, ...]
    base_default_next: str | None = None
    source: SourceInfo | None = None


@dataclass(frozen=True)
class Conditional:
    name: str
    expression: Node
    true_next: str | None
    false_next: str | None
    source: SourceInfo | None = None


@dataclass(frozen=True)
class ActionCall:
    name: str
    action_id: int
    next_node: str | None
    source: SourceInfo | None = None


@dataclass(frozen=True)
class PipelineControl:
    """Ingress or egress."""

    name: str
    init_node: str | None
    nodes: dict[str, Table | Conditional | ActionCall]


# --- Stateful and other objects ----------------------------------------------------------------


@dataclass(frozen=True)
class CounterArray:
    name: str
    id: int
    size: int
    direct_table: str | None
    source: SourceInfo | None = None


@dataclass(frozen=True)
class RegisterArray:
    name: str
    id: int
    size: int
    width: int
    source: SourceInfo | None = None


@dataclass(frozen=True)
class CalculationInput:
    """``kind``: field, hexstr, header or payload."""

    kind: str
    node: Node | None
    width: int


@dataclass(frozen=True)
class Calculation:
    name: str
    algorithm: str
    inputs: tuple[CalculationInput, ...]
    source: SourceInfo | None = None


@dataclass(frozen=True)
class Checksum:
    name: str
    target: FieldRef
    calculation: str
    condition: Node | None
    verify: bool
    update: bool
    source: SourceInfo | None = None


@dataclass(frozen=True)
class FieldList:
    """What a clone, resubmit, recirculate or digest takes along."""

    id: int
    name: str
    items: tuple[tuple[Node, int], ...]
    """Nodes with their widths."""


@dataclass(frozen=True)
class Program:
    """A whole program.

    ``tables``, ``actions``, ``counters`` and ``registers`` are by JSON id; the ``*_by_name`` views
    are what P4Info names resolve with (P4Info ``name`` equals the JSON name).
    """

    name: str
    headers: dict[str, Header]
    stacks: dict[str, HeaderStack]
    errors: dict[str, int]
    parser: Parser
    deparser_order: tuple[str, ...]
    actions: dict[int, Action]
    ingress: PipelineControl
    egress: PipelineControl
    counters: dict[int, CounterArray]
    registers: dict[int, RegisterArray]
    calculations: dict[str, Calculation]
    checksums: tuple[Checksum, ...]
    field_lists: dict[int, FieldList]
    learn_lists: dict[int, FieldList]
    field_aliases: dict[str, FieldRef]

    @cached_property
    def tables(self) -> dict[int, Table]:
        nodes = [*self.ingress.nodes.values(), *self.egress.nodes.values()]
        return {node.id: node for node in nodes if isinstance(node, Table)}

    @cached_property
    def tables_by_name(self) -> dict[str, Table]:
        return {table.name: table for table in self.tables.values()}

    @cached_property
    def counters_by_name(self) -> dict[str, CounterArray]:
        return {counter.name: counter for counter in self.counters.values()}

    @cached_property
    def registers_by_name(self) -> dict[str, RegisterArray]:
        return {register.name: register for register in self.registers.values()}

    def action_of(self, table: Table, name: str) -> Action:
        """The action of a table by name.

        The compiler may duplicate an action for several tables under one name; ids tell them apart.

        Raises:
            KeyError: the table has no such action.
        """
        for action_id in table.action_ids:
            if self.actions[action_id].name == name:
                return self.actions[action_id]
        raise KeyError(f"table {table.name} has no action {name}")

    def field(self, ref: FieldRef) -> Field:
        if ref.field == "$valid$":
            return Field("$valid$", 1)
        return self.headers[ref.header].type.by_name[ref.field]
