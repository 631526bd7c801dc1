"""Actions: one C function each, ``action_<id>(pl, pk, p, a)`` with the arguments' words at ``a``."""

from __future__ import annotations

from .errors import SourceInfo, UnsupportedConstruct
from .expressions import ConstantPool, Expressions
from .externs import Externs
from .layout import Layout
from .primitives import PRIMITIVES, PrimitiveContext
from .program import Action, Const, Param, Primitive, Program
from .writer import Writer, comment

JUMPS = ("_jump", "_jump_if_zero")


class ActionCodegen:
    def __init__(self, program: Program, layout: Layout, pool: ConstantPool, externs: Externs):
        self.program = program
        self.layout = layout
        self.pool = pool
        self.externs = externs

    def expressions(
        self, out: Writer, params: tuple[Param, ...], where: str, source: SourceInfo | None
    ) -> Expressions:
        return Expressions(self.program, self.layout, self.pool, out, params, where, source)

    def function(self, action: Action) -> str:
        return f"action_{action.id}"

    def write(self, out: Writer) -> None:
        for action in self.program.actions.values():
            self._action(out, action)

    def may_exit(self, action: Action) -> bool:
        return any(primitive.op == "exit" for primitive in action.primitives)

    def _action(self, out: Writer, action: Action) -> None:
        out.line(comment(f"{action.name} {action.source or ''}"))
        head = (
            f"static inline void {self.function(action)}"
            "(ssw_pipeline *pl, ssw_packet *pk, headers *p, const uint64_t *a)"
        )
        with out.block(head):
            out.line("(void)pl; (void)pk; (void)p; (void)a;")
            where = f"action {action.name}"
            targets = {self._jump_target(p, where) for p in action.primitives if p.op in JUMPS}
            for index, primitive in enumerate(action.primitives):
                if index in targets:
                    out.line(f"j{index}:;")
                if primitive.source:
                    out.line(comment(f"{primitive.source} {primitive.source.fragment}"))
                with out.block():
                    self.primitive(out, primitive, action.params, where)
            for target in sorted(t for t in targets if t >= len(action.primitives)):
                out.line(f"j{target}:;")
        out.line()

    def _jump_target(self, primitive: Primitive, where: str) -> int:
        target = primitive.parameters[-1]
        if not isinstance(target, Const):
            raise UnsupportedConstruct(f"{primitive.op} to a computed offset", primitive.source, where)
        return target.value

    def primitive(self, out: Writer, primitive: Primitive, params: tuple[Param, ...], where: str) -> None:
        """Writes one primitive call."""
        expressions = self.expressions(out, params, where, primitive.source)
        if primitive.op == "_jump":
            out.line(f"goto j{self._jump_target(primitive, where)};")
            return
        if primitive.op == "_jump_if_zero":
            taken = f"{expressions.scalar(primitive.parameters[0])} == 0"
            out.line(f"if ({taken}) goto j{self._jump_target(primitive, where)};")
            return
        write = PRIMITIVES.get(primitive.op)
        if write is None:
            raise UnsupportedConstruct(f"primitive {primitive.op!r}", primitive.source, where)
        write(
            PrimitiveContext(self.program, self.layout, out, expressions, self.externs), *primitive.parameters
        )
