"""What parts of a program touch: which fields it reads, which wide fields the egress pipeline changes."""

from __future__ import annotations

from collections.abc import Iterator

from .control_flow import successors
from .layout import Layout
from .program import (
    ActionCall,
    Conditional,
    FieldRef,
    HeaderRef,
    HeaderType,
    LastRef,
    Node,
    Op,
    PipelineControl,
    Primitive,
    Program,
    StackRef,
    Table,
    walk,
)


def _nodes(program: Program) -> Iterator[Node]:
    for state in program.parser.states.values():
        for op in state.ops:
            yield from op.parameters
        yield from (part.node for part in state.key)
    for action in program.actions.values():
        for primitive in action.primitives:
            yield from primitive.parameters
    for control in (program.ingress, program.egress):
        for node in control.nodes.values():
            if isinstance(node, Table):
                yield from (key.target for key in node.keys)
            elif isinstance(node, Conditional):
                yield node.expression
    for calculation in program.calculations.values():
        yield from (part.node for part in calculation.inputs if part.node is not None)
    for checksum in program.checksums:
        yield checksum.target
        if checksum.condition is not None:
            yield checksum.condition
    for field_list in (*program.field_lists.values(), *program.learn_lists.values()):
        yield from (node for node, _ in field_list.items)


def mentioned_fields(program: Program) -> set[FieldRef]:
    """Fields that the program reads or writes, one by one or as part of a whole header."""
    found: set[FieldRef] = set()
    for root in _nodes(program):
        for node in walk(root):
            if isinstance(node, FieldRef):
                found.add(node)
            elif isinstance(node, HeaderRef) and not _is_drop_target(node):
                found.update(FieldRef(node.header, f.name) for f in program.headers[node.header].type.fields)
    return found


def _is_drop_target(node: HeaderRef) -> bool:
    """mark_to_drop takes the whole of standard_metadata but touches egress_spec and mcast_grp only."""
    return node.header == "standard_metadata"


def primitives_of(program: Program, control: PipelineControl) -> list[Primitive]:
    """Primitives of the actions that a pipeline can run."""
    found: list[Primitive] = []
    pending = [control.init_node] if control.init_node is not None else []
    seen = set(pending)
    while pending:
        node = control.nodes[pending.pop()]
        ids = (
            node.action_ids
            if isinstance(node, Table)
            else (node.action_id,)
            if isinstance(node, ActionCall)
            else ()
        )
        for action_id in ids:
            found.extend(program.actions[action_id].primitives)
        for following in successors(node):
            if following is not None and following not in seen:
                seen.add(following)
                pending.append(following)
    return found


TARGETS = {
    "assign": 0,
    "modify_field": 0,
    "register_read": 0,
    "modify_field_with_hash_based_offset": 0,
    "add_header": 0,
    "assign_header": 0,
    "copy_header": 0,
    "assign_header_stack": 0,
    "push": 0,
    "pop": 0,
}
"""Which parameter of a primitive it changes."""


def wide_writes(program: Program, layout: Layout, control: PipelineControl) -> list[str]:
    """C lvalues that cover every wide field that a pipeline, or a checksum update after it, can change."""
    found: dict[str, None] = {}
    targets = [p.parameters[TARGETS[p.op]] for p in primitives_of(program, control) if p.op in TARGETS]
    targets += [checksum.target for checksum in program.checksums if checksum.update]
    for target in targets:
        for lvalue in _wide_of(program, layout, target):
            found[lvalue] = None
    return list(found)


def _wide_of(program: Program, layout: Layout, target: Node) -> list[str]:
    def whole(kind: HeaderType, lvalue: str) -> list[str]:
        return [lvalue] if layout.has_wide(kind) else []

    match target:
        case FieldRef() if program.field(target).width > 64:
            return [layout.field(target)]
        case HeaderRef(name):
            return whole(program.headers[name].type, layout.place(name).wide)
        case StackRef(name) | LastRef(name, _):
            return whole(program.stacks[name].type, layout.stack_arrays(name)[1])
        case Op(_, args):
            return [lvalue for arg in args[:1] for lvalue in _wide_of(program, layout, arg)]
    return []
