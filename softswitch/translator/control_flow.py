"""The ingress and egress pipelines: one C function each, one label for each node of the graph."""

from __future__ import annotations

from .actions import ActionCodegen
from .errors import MalformedProgram
from .program import ActionCall, Conditional, PipelineControl, Table
from .tables import TableCodegen
from .writer import Writer, comment, identifier


class ControlCodegen:
    def __init__(self, actions: ActionCodegen, tables: TableCodegen):
        self.actions = actions
        self.tables = tables

    def write(self, out: Writer, control: PipelineControl) -> None:
        """Writes ``control_<name>(pl, pk, p)``."""
        labels = {name: identifier("n", i, name) for i, name in enumerate(control.nodes)}
        go: dict[str | None, str] = {name: f"goto {label};" for name, label in labels.items()}
        go[None] = "return;"
        reachable = self._reachable(control)
        with out.block(f"static void control_{control.name}(ssw_pipeline *pl, ssw_packet *pk, headers *p)"):
            out.line("(void)pl; (void)pk; (void)p;")
            out.line(go[control.init_node])
            for name in reachable:
                node = control.nodes[name]
                with out.label_block(labels[name]):
                    out.line(comment(f"{name} {node.source or ''}"))
                    self._node(out, node, go)
        out.line()

    def _node(self, out: Writer, node: Table | Conditional | ActionCall, go: dict[str | None, str]) -> None:
        match node:
            case Table():
                self.tables.apply(out, node, go)
            case Conditional():
                e = self.actions.expressions(out, (), f"condition {node.name}", node.source)
                condition = e.boolean(node.expression)
                out.line(f"if ({condition}) {go[node.true_next]}")
                out.line(go[node.false_next])
            case ActionCall():
                action = self.actions.program.actions[node.action_id]
                out.line(f"{self.actions.function(action)}(pl, pk, p, NULL);")
                if self.actions.may_exit(action):
                    out.line("if (pk->exit) return;")
                out.line(go[node.next_node])

    def _reachable(self, control: PipelineControl) -> list[str]:
        found = [control.init_node] if control.init_node is not None else []
        for name in found:
            if name not in control.nodes:
                raise MalformedProgram(f"pipeline {control.name}: no node {name}")
            for following in successors(control.nodes[name]):
                if following is not None and following not in found:
                    found.append(following)
        return found


def successors(node: Table | Conditional | ActionCall) -> list[str | None]:
    match node:
        case Table() if node.by_hit:
            return [node.next_hit, node.next_miss]
        case Table():
            return [*node.next_by_action.values(), node.base_default_next]
        case Conditional():
            return [node.true_next, node.false_next]
        case ActionCall():
            return [node.next_node]
