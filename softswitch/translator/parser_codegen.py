"""The parser: one C function, one label for each state.

Never reads outside the frame: an extraction, lookahead or advance beyond its end is the error
PacketTooShort, also where the target leaves it undefined (lookahead in a select expression).
States that can repeat are bounded by a budget; exceeding it is ParserTimeout.
"""

from __future__ import annotations

from .actions import ActionCodegen
from .errors import SourceInfo, UnsupportedConstruct
from .expressions import Expressions
from .header_codegen import HeaderCodegen
from .program import (
    Field,
    FieldRef,
    HeaderRef,
    Lookahead,
    ParserOp,
    ParseState,
    Primitive,
    Program,
    StackRef,
    Transition,
)
from .writer import Writer, comment, identifier, limbs_of, literal

REPEATED_STATE_BUDGET = 65536
"""Visits of states on a cycle per packet; more than any frame has bytes."""


class ParserCodegen:
    def __init__(self, program: Program, headers: HeaderCodegen, actions: ActionCodegen):
        self.program = program
        self.layout = headers.layout
        self.headers = headers
        self.actions = actions
        self.states = program.parser.states
        self.labels = {name: identifier("s", i, name) for i, name in enumerate(self.states)}
        self.out = Writer()

    def write(self, out: Writer) -> None:
        self.out = out
        reachable = self._reachable_from(self.program.parser.init_state)
        repeated = {name for name in reachable if name in self._reachable_from(*self._successors(name))}
        with out.block("static void parse(ssw_pipeline *pl, ssw_packet *pk, headers *p)"):
            out.line("const uint8_t *data = pk->data;")
            out.line("uint32_t left = pk->left;")
            out.line(f"uint32_t error = {self.program.errors['NoError']};")
            if repeated:
                out.line(f"uint32_t budget = {REPEATED_STATE_BUDGET};")
            out.line("(void)pl; (void)p;")
            out.line(f"goto {self.labels[self.program.parser.init_state]};")
            for name in reachable:
                with out.label_block(self.labels[name]):
                    if name in repeated:
                        self._fail_if("budget-- == 0", "ParserTimeout")
                    self._state(self.states[name])
            with out.label_block("done"):
                out.line("pk->data = data;")
                out.line("pk->left = left;")
                out.line("pk->parser_error = error;")
        out.line()

    def _successors(self, name: str) -> list[str]:
        return [t.next_state for t in self.states[name].transitions if t.next_state is not None]

    def _reachable_from(self, *names: str) -> list[str]:
        found = list(dict.fromkeys(names))
        for name in found:
            found.extend(s for s in dict.fromkeys(self._successors(name)) if s not in found)
        return found

    def _fail_if(self, condition: str, error: str) -> None:
        self.out.line(f"if ({condition}) {{ error = {self.program.errors[error]}; goto done; }}")

    def _expressions(self, where: str, source: SourceInfo | None) -> Expressions:
        return self.actions.expressions(self.out, (), where, source)

    # --- States --------------------------------------------------------------------------------

    def _state(self, state: ParseState) -> None:
        where = f"parser state {state.name}"
        for op in state.ops:
            if op.source:
                self.out.line(comment(f"{op.source} {op.source.fragment}"))
            with self.out.block():
                if isinstance(op, Primitive):
                    self.actions.primitive(self.out, op, (), where)
                else:
                    self._operation(op, where)
        self._select(state, where)

    def _operation(self, op: ParserOp, where: str) -> None:
        expressions = self._expressions(where, op.source)
        match op.op:
            case "extract":
                self._extract(op, where)
            case "set":
                self._set(op, expressions, where)
            case "verify":
                condition, error = op.parameters
                failed = f"!{expressions.boolean(condition)}"
                with self.out.block(f"if ({failed})"):
                    self.out.line(f"error = (uint32_t)({expressions.scalar(error)});")
                    self.out.line("goto done;")
            case "advance":
                bits = expressions.hoist(expressions.saturated(op.parameters[0]))
                self._fail_if(f"{bits} % 8 != 0", "ParserInvalidArgument")
                self._advance(f"{bits} / 8")
            case "shift":
                self._advance(expressions.scalar(op.parameters[0]))

    def _advance(self, count: str) -> None:
        self._fail_if(f"left < {count}", "PacketTooShort")
        self.out.line(f"data += {count};")
        self.out.line(f"left -= (uint32_t)({count});")

    def _extract(self, op: ParserOp, where: str) -> None:
        match op.parameters[0]:
            case HeaderRef(name):
                place, kind = self.layout.place(name), self.program.headers[name].type
                position = None
            case StackRef(name):
                kind = self.program.stacks[name].type
                position = self.layout.stack_next(name)
                size = len(self.program.stacks[name].headers)
                self._fail_if(f"{position} >= {size}", "StackOutOfBounds")
                place = self.layout.stack_element(name, position)
            case other:
                raise UnsupportedConstruct(f"extraction to {type(other).__name__}", op.source, where)
        size = kind.width // 8
        self._fail_if(f"left < {size}", "PacketTooShort")
        if size:
            self.out.line(self.headers.call("extract", place.narrow, place.wide, kind, "data"))
        self.out.line(f"{place.valid} = 1;")
        self.out.line(f"data += {size};")
        self.out.line(f"left -= {size};")
        if position:
            self.out.line(f"++{position};")

    def _set(self, op: ParserOp, expressions: Expressions, where: str) -> None:
        target, value = op.parameters
        if not isinstance(value, Lookahead):
            expressions.store(target, value)
            return
        if not isinstance(target, FieldRef):
            raise UnsupportedConstruct(f"lookahead into {type(target).__name__}", op.source, where)
        source = self._lookahead(value)
        expressions.store_value(target, source, Field("", value.width))

    def _lookahead(self, ahead: Lookahead) -> str:
        """Hoists the bits: a scalar or a limb array."""
        self._fail_if(f"(uint64_t)left * 8 < {ahead.offset + ahead.width}", "PacketTooShort")
        name = self.out.temporary()
        if ahead.width <= 64:
            self.out.line(f"const uint64_t {name} = ssw_get_bits(data, {ahead.offset}, {ahead.width});")
        else:
            self.out.line(f"uint64_t {name}[{limbs_of(ahead.width)}];")
            self.out.line(f"ssw_wide_get_bits({name}, data, {ahead.offset}, {ahead.width});")
        return name

    # --- Transitions ---------------------------------------------------------------------------

    def _goto(self, state: str | None) -> str:
        return f"goto {self.labels[state] if state is not None else 'done'};"

    def _select(self, state: ParseState, where: str) -> None:
        default = None
        for transition in state.transitions:
            if transition.values is None:
                default = transition.next_state
        if state.key:
            parts = [self._key_part(part.node, where) for part in state.key]
            for transition in state.transitions:
                if transition.values is not None:
                    condition = self._condition(state, parts, transition)
                    self.out.line(f"if ({condition}) {self._goto(transition.next_state)}")
        self.out.line(self._goto(default))

    def _key_part(self, node, where: str) -> str:
        if isinstance(node, Lookahead):
            return self._lookahead(node)
        lvalue, item = self._expressions(where, None).location(node)
        if item.width > 64:
            return lvalue
        name = self.out.temporary()
        self.out.line(f"const uint64_t {name} = {lvalue};")
        self.out.line(f"(void){name};")  # masks may leave nothing to compare
        return name

    def _condition(self, state: ParseState, parts: list[str], transition: Transition) -> str:
        terms = []
        for part, name, value, mask in zip(
            state.key, parts, transition.values or (), transition.masks or (), strict=True
        ):
            for limb in range(limbs_of(part.width)):
                bits = min(part.width - 64 * limb, 64)
                ones = (1 << bits) - 1
                m, v = mask >> 64 * limb & ones, (value & mask) >> 64 * limb & ((1 << 64) - 1)
                operand = f"{name}[{limb}]" if part.width > 64 else name
                if m == ones:
                    terms.append(f"{operand} == {literal(v)}")
                elif m:
                    terms.append(f"({operand} & {literal(m)}) == {literal(v)}")
            if value & mask & ~((1 << part.width) - 1):
                terms.append("false")
        return " && ".join(terms) or "true"
