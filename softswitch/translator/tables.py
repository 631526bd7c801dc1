"""Match-action tables: their descriptions for the runtime, and what applying one does."""

from __future__ import annotations

from .actions import ActionCodegen
from .errors import UnsupportedConstruct
from .program import Action, FieldRef, Key, Program, Table
from .writer import Writer, c_string, comment, limbs_of, literal

MATCH_KINDS = {
    "exact": "SSW_MATCH_EXACT",
    "lpm": "SSW_MATCH_LPM",
    "ternary": "SSW_MATCH_TERNARY",
    "range": "SSW_MATCH_RANGE",
}


def data_words(action: Action) -> int:
    return sum(limbs_of(param.width) for param in action.params)


def words(values: tuple[int, ...], widths: list[int]) -> str:
    """An initialiser of key or data words."""
    flat = [
        value >> (64 * i) for value, width in zip(values, widths, strict=True) for i in range(limbs_of(width))
    ]
    return "{" + ", ".join(literal(word) for word in flat or [0]) + "}"


class TableCodegen:
    def __init__(self, program: Program, actions: ActionCodegen):
        self.program = program
        self.layout = actions.layout
        self.actions = actions
        self.tables = list(program.tables.values())
        self._index = {table.id: i for i, table in enumerate(self.tables)}

    # --- Descriptions --------------------------------------------------------------------------

    def declare(self, out: Writer) -> None:
        for action in self.program.actions.values():
            bits = ", ".join(str(param.width) for param in action.params) or "0"
            out.line(f"static const uint32_t action_bits_{action.id}[] = {{{bits}}};")
            out.line(
                f"static const ssw_action_spec action_spec_{action.id} = "
                f"{{{action.id}u, {len(action.params)}, action_bits_{action.id}, {data_words(action)}}};"
            )
        for table in self.tables:
            self._describe(out, table)
        names = [f"&table_spec_{table.id}" for table in self.tables]
        out.line(f"static const ssw_table_spec *const table_specs[] = {{{', '.join([*names, 'NULL'])}}};")
        out.line()

    def _describe(self, out: Writer, table: Table) -> None:
        if table.match_type not in MATCH_KINDS:
            raise UnsupportedConstruct(f"tables of match type {table.match_type!r}", table.source)
        ident = table.id
        word, rows = 0, []
        for key in table.keys:
            rows.append(f"{{{key.width}, {MATCH_KINDS[key.match_type]}, {word}}}")
            word += limbs_of(key.width)
        out.line(comment(f"{table.name} {table.source or ''}"))
        out.line(f"static const ssw_key_spec table_keys_{ident}[] = {{{', '.join(rows) or '{0}'}}};")
        actions = [self.program.actions[i] for i in table.action_ids]
        names = ", ".join([*(f"&action_spec_{a.id}" for a in actions), "NULL"])
        out.line(f"static const ssw_action_spec *const table_actions_{ident}[] = {{{names}}};")
        default_index, default_data = "UINT32_MAX", words((), [])
        if table.default_action_id is not None:
            default_index = f"{table.action_ids.index(table.default_action_id)}u"
            action = self.program.actions[table.default_action_id]
            default_data = words(table.default_data, [param.width for param in action.params])
        out.line(f"static const uint64_t table_default_{ident}[] = {default_data};")
        self._describe_entries(out, table)
        with out.block(f"static const ssw_table_spec table_spec_{ident} =", ";"):
            out.line(
                f".id = {ident}u, .name = {c_string(table.name)}, .match = {MATCH_KINDS[table.match_type]},"
            )
            out.line(f".key_count = {len(table.keys)}, .keys = table_keys_{ident}, .key_words = {word},")
            out.line(f".action_count = {len(actions)}, .actions = table_actions_{ident},")
            out.line(
                f".data_words = {max(map(data_words, actions), default=0)}, .max_size = {table.max_size}u,"
            )
            out.line(f".const_entries = {str(table.const_entries).lower()},")
            out.line(f".const_default_action = {str(table.const_default_action).lower()},")
            out.line(f".default_action = {default_index}, .default_data = table_default_{ident},")
            out.line(f".entry_count = {len(table.entries)}, .entries = table_entries_{ident},")

    def _describe_entries(self, out: Writer, table: Table) -> None:
        widths = [key.width for key in table.keys]
        rows = []
        for entry in table.entries:
            action = self.program.actions[entry.action_id]
            data = words(entry.data, [param.width for param in action.params])
            arrays = [
                f"(const uint64_t[]){w}" for w in (words(entry.values, widths), words(entry.masks, widths))
            ]
            index = table.action_ids.index(entry.action_id)
            rows.append(f"{{{', '.join(arrays)}, {entry.priority}, {index}u, (const uint64_t[]){data}}}")
        with out.block(f"static const ssw_const_entry table_entries_{table.id}[] =", ";"):
            for row in rows:
                out.line(f"{row},")
            out.line("{0},")

    # --- Application ---------------------------------------------------------------------------

    def apply(self, out: Writer, table: Table, go: dict[str | None, str]) -> None:
        """Looks up, runs the action and goes on; ``go`` maps the names of nodes to goto statements."""
        runtime = f"pl->tables[{self._index[table.id]}]"
        if not table.keys and table.const_default_action and not table.with_counters:
            self._always(out, table, go)
            return
        if table.keys:
            self._key(out, table)
            out.line(f"ssw_row *row = {self._lookup(table, runtime)};")
            out.line("const bool hit = row != NULL;")
            out.line(f"if (!hit) row = {runtime}.fallback;")
        else:
            out.line(f"ssw_row *row = {runtime}.fallback;")
            out.line("const bool hit = false;")
        out.line("(void)hit;")
        if table.with_counters:
            out.line("ssw_count(&row->counter, pk->ingress_length);")
        with out.block("switch (row->action)"):
            for index, action_id in enumerate(table.action_ids):
                action = self.program.actions[action_id]
                call = f"{self.actions.function(action)}(pl, pk, p, row->data);"
                leave = " if (pk->exit) return;" if self.actions.may_exit(action) else ""
                following = "break;" if table.by_hit else go[table.next_by_action[action_id]]
                out.line(f"case {index}: {call}{leave} {following}")
            out.line("default: break;")
        if table.by_hit:
            out.line(f"if (hit) {go[table.next_hit]}")
            out.line(go[table.next_miss])
        else:
            out.line(go[table.base_default_next])

    def _always(self, out: Writer, table: Table, go: dict[str | None, str]) -> None:
        """No key and a constant default action: a call."""
        following = table.next_miss if table.by_hit else table.base_default_next
        if table.default_action_id is not None:
            action = self.program.actions[table.default_action_id]
            out.line(f"{self.actions.function(action)}(pl, pk, p, table_default_{table.id});")
            if self.actions.may_exit(action):
                out.line("if (pk->exit) return;")
            if not table.by_hit:
                following = table.next_by_action[action.id]
        out.line(go[following])

    def _lookup(self, table: Table, runtime: str) -> str:
        if table.match_type == "exact":
            return f"ssw_lookup_exact(&{runtime}, key, {sum(limbs_of(k.width) for k in table.keys)})"
        return f"ssw_lookup_{table.match_type}(&{runtime}, key)"

    def _key(self, out: Writer, table: Table) -> None:
        out.line(f"uint64_t key[{sum(limbs_of(key.width) for key in table.keys)}];")
        word = 0
        for key in table.keys:
            self._key_field(out, key, word)
            word += limbs_of(key.width)

    def _key_field(self, out: Writer, key: Key, word: int) -> None:
        """Fields of invalid headers match as zero."""
        ref = key.target
        assert isinstance(ref, FieldRef)
        lvalue = self.layout.field(ref)
        valid = "" if ref.field == "$valid$" else self.layout.place(ref.header).valid
        mask = "" if key.mask is None else f" & {literal(key.mask)}"
        if key.width <= 64:
            value = f"{valid} ? {lvalue} : 0" if valid else lvalue
            out.line(f"key[{word}] = (uint64_t)({value}){mask};")
            return
        limbs = limbs_of(key.width)
        out.line(f"ssw_wide_copy(key + {word}, {lvalue}, {limbs});")
        if valid:
            out.line(f"if (!{valid}) memset(key + {word}, 0, {8 * limbs});")
        for limb in range(limbs) if key.mask is not None else ():
            out.line(f"key[{word + limb}] &= {literal(key.mask >> 64 * limb)};")
