"""Expressions in C.

The target evaluates with unlimited precision and truncates on assignment.  Here every node is computed
modulo 2^64 ("scalar") or modulo 2^(64 n) ("wide", n limbs).  For + - * << & | ^ ~ the low bits of the
result depend only on the low bits of the operands, so the number of limbs comes from above: from the
width of what the result is assigned to.  Comparisons, >>, /, % and saturating casts need the exact
operands; there the number of limbs comes from below, from the operand's range (:mod:`.ranges`).

Wide bitwise operators that are nested in each other become one loop over limbs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from . import ranges
from .errors import MalformedProgram, SourceInfo, UnsupportedConstruct
from .layout import Layout, Place, storage_bits
from .program import (
    BoolConst,
    Const,
    Field,
    FieldRef,
    HeaderRef,
    HeaderType,
    LastRef,
    Named,
    Node,
    Op,
    Param,
    ParamRef,
    Program,
    StackRef,
)
from .ranges import Range
from .writer import Writer, limb_array, limbs_of, literal

ARITHMETIC = {"+", "-", "*", "<<", ">>", "/", "%", "&", "|", "^", "~"}
CASTS = {"two_comp_mod", "usat_cast", "sat_cast"}
COMPARISONS = {"<", "<=", ">", ">="}
BOOLEAN = {"and", "or", "not", "d2b", "valid", *COMPARISONS}
EQUALITIES = {"==": ("==", None), "!=": ("!=", None)} | {
    f"{op}{suffix}": (op, kind) for op in ("==", "!=") for suffix, kind in (("h", "header"), ("b", "bool"))
}
BITWISE = {"&", "|", "^", "~"}


class ConstantPool:
    """Wide constants at file scope, each written once."""

    def __init__(self) -> None:
        self._names: dict[tuple[int, int], str] = {}

    def name(self, value: int, limbs: int) -> str:
        value &= (1 << 64 * limbs) - 1
        return self._names.setdefault((value, limbs), f"k{len(self._names)}")

    def declare(self, out: Writer) -> None:
        for (value, limbs), name in self._names.items():
            out.line(f"static const _Alignas(64) uint64_t {name}[{limbs}] = {limb_array(value, limbs)};")


def parameter_words(params: tuple[Param, ...]) -> list[int]:
    """The word at which each argument of an action starts in its row's data."""
    offsets, at = [], 0
    for param in params:
        offsets.append(at)
        at += limbs_of(param.width)
    return offsets


@dataclass
class Expressions:
    """Writes expressions into ``out``; ``params`` are those of the enclosing action, in words at ``a``."""

    program: Program
    layout: Layout
    pool: ConstantPool
    out: Writer
    params: tuple[Param, ...] = ()
    where: str = ""
    source: SourceInfo | None = None
    _ranges: dict[int, tuple[Node, Range]] = field(default_factory=dict)

    def unsupported(self, construct: str, node: Node | None = None) -> UnsupportedConstruct:
        source = node.source if isinstance(node, Op) and node.source else self.source
        return UnsupportedConstruct(construct, source, self.where)

    # --- Types and ranges ----------------------------------------------------------------------

    def kind(self, node: Node) -> str:
        """``data``, ``bool``, ``header`` or ``stack``."""
        match node:
            case BoolConst():
                return "bool"
            case HeaderRef():
                return "header"
            case StackRef():
                return "stack"
            case Const() | FieldRef() | ParamRef() | LastRef():
                return "data"
            case Op(op, args):
                if op in BOOLEAN or op in EQUALITIES:
                    return "bool"
                if op in ("dereference_header_stack", "dereference_stack"):
                    return "header"
                if op == "?":
                    return self.kind(args[1])
                if op in ARITHMETIC or op in CASTS or op in (
                    "b2d", "last_stack_index", "size_stack", "access_field",
                ):  # fmt: skip
                    return "data"
                raise self.unsupported(f"operator {op!r}", node)
        what = node.kind if isinstance(node, Named) else type(node).__name__
        raise self.unsupported(f"{what} in an expression", node)

    def range(self, node: Node) -> Range:
        known = self._ranges.get(id(node))
        if known is None:
            known = self._ranges[id(node)] = (node, self._range(node))
        return known[1]

    def _range(self, node: Node) -> Range:
        match node:
            case Const(value):
                return Range(value, value)
            case FieldRef():
                item = self.program.field(node)
                return ranges.of_width(item.width, item.signed)
            case LastRef(stack, name):
                item = self.program.stacks[stack].type.by_name[name]
                return ranges.of_width(item.width, item.signed)
            case ParamRef(index):
                return ranges.of_width(self._param(index).width)
            case Op():
                return self._op_range(node)
        self.kind(node)  # raises with the construct's name
        raise self.unsupported(f"{type(node).__name__} as a number", node)

    def _param(self, index: int) -> Param:
        if not 0 <= index < len(self.params):
            raise MalformedProgram(f"{self.where}: argument {index} of {len(self.params)}")
        return self.params[index]

    def _op_range(self, node: Op) -> Range:
        op, args = node.op, node.args
        match op:
            case "b2d":
                return Range(0, 1)
            case "last_stack_index" | "size_stack":
                return ranges.of_width(64)
            case "access_field":
                _, item = self._accessed(node)
                return ranges.of_width(item.width, item.signed)
            case "?":
                return ranges.hull(self.range(args[1]), self.range(args[2]))
            case "~":
                return ranges.invert(self.range(args[0]))
            case "two_comp_mod" | "sat_cast" | "usat_cast":
                to = ranges.of_width(self._cast_width(node), signed=op != "usat_cast")
                source = self.range(args[0])
                if op != "two_comp_mod":
                    return ranges.clamp(source, to)
                fits = source.bounded and to.low <= source.low and source.high <= to.high
                return source if fits else to
        if len(args) == 1 and op == "-":
            return ranges.sub(Range(0, 0), self.range(args[0]))
        if op in ARITHMETIC and len(args) == 2:
            a, b = (self.range(arg) for arg in args)
            if op in ("<<", ">>") and b.signed and b.bounded:
                raise self.unsupported("shifts by a signed amount", node)
            if op in ("/", "%") and ((a.signed and a.bounded) or (b.signed and b.bounded)):
                raise self.unsupported("division of signed values", node)
            combine = {
                "+": ranges.add,
                "-": ranges.sub,
                "*": ranges.mul,
                "<<": ranges.shift_left,
                ">>": ranges.shift_right,
                "&": ranges.bit_and,
                "|": ranges.bit_or,
                "^": ranges.bit_xor,
                "/": ranges.divide,
                "%": ranges.modulo,
            }
            return combine[op](a, b)
        raise self.unsupported(f"operator {op!r}", node)

    def _cast_width(self, node: Op) -> int:
        width = node.args[1]
        if not isinstance(width, Const):
            raise self.unsupported(f"{node.op} to a width that is not constant", node)
        return width.value

    def _exact(self, node: Node, *others: Node) -> Range:
        """The hull of exact operands' ranges."""
        result = self.range(node)
        for other in others:
            result = ranges.hull(result, self.range(other))
        if not result.bounded:
            raise self.unsupported("exact results of a left shift by an amount of unknown size", node)
        return result

    # --- Headers and fields --------------------------------------------------------------------

    def header(self, node: Node) -> tuple[Place, HeaderType]:
        match node:
            case HeaderRef(name):
                return self.layout.place(name), self.program.headers[name].type
            case Op("dereference_header_stack" | "dereference_stack", (StackRef(stack), index)):
                size = len(self.program.stacks[stack].headers)
                if isinstance(index, Const):
                    element = str(index.value if 0 <= index.value < size else size)
                else:
                    element = self.hoist(f"ssw_element({self.saturated(index)}, {size})")
                return self.layout.stack_element(stack, element), self.program.stacks[stack].type
        raise self.unsupported(f"{self._name(node)} as a header", node)

    def _name(self, node: Node) -> str:
        if isinstance(node, Op):
            return f"operator {node.op!r}"
        return node.kind if isinstance(node, Named) else type(node).__name__

    def _accessed(self, node: Op) -> tuple[HeaderType, Field]:
        match node.args[0]:
            case HeaderRef(name):
                kind = self.program.headers[name].type
            case Op("dereference_header_stack" | "dereference_stack", (StackRef(stack), _)):
                kind = self.program.stacks[stack].type
            case other:
                raise self.unsupported(f"fields of {self._name(other)}", node)
        offset = node.args[1].value
        return kind, (kind.fields[offset] if offset < len(kind.fields) else Field("$valid$", 1))

    def location(self, node: Node) -> tuple[str, Field]:
        """The C lvalue of a field and its description."""
        match node:
            case FieldRef():
                return self.layout.field(node), self.program.field(node)
            case LastRef(stack, name):
                position = self.layout.stack_next(stack)
                kind = self.program.stacks[stack].type
                place = self.layout.stack_element(stack, self.hoist(f"{position} ? {position} - 1u : 0u"))
                return self.layout.member(place, kind, kind.by_name[name]), kind.by_name[name]
            case Op("access_field", (header, _)):
                _, item = self._accessed(node)
                place, kind = self.header(header)
                lvalue = place.valid if item.name == "$valid$" else self.layout.member(place, kind, item)
                return lvalue, item
        raise self.unsupported(f"assignment to {self._name(node)}", node)

    def hoist(self, value: str) -> str:
        name = self.out.temporary()
        self.out.line(f"const uint64_t {name} = {value};")
        return name

    def array(self, limbs: int) -> str:
        name = self.out.temporary()
        align = "_Alignas(64) " if limbs >= 8 else ""
        self.out.line(f"{align}uint64_t {name}[{limbs}];")
        return name

    # --- Scalars -------------------------------------------------------------------------------

    def scalar(self, node: Node) -> str:
        """The value modulo 2^64, as a C expression of type uint64_t."""
        match node:
            case Const(value):
                return literal(value)
            case FieldRef() | LastRef():
                return self._load(*self.location(node))
            case ParamRef(index):
                self._param(index)
                return f"a[{parameter_words(self.params)[index]}]"
            case Op():
                return self._scalar_op(node)
        self.kind(node)
        raise self.unsupported(f"{self._name(node)} as a number", node)

    def _load(self, lvalue: str, item: Field) -> str:
        if item.width > 64:
            return f"{lvalue}[0]"
        if item.signed:
            return f"ssw_sign_extend({lvalue}, {item.width})"
        return f"(uint64_t){lvalue}"

    def _scalar_op(self, node: Op) -> str:
        op, args = node.op, node.args
        match op:
            case "+" | "-" | "*" | "&" | "|" | "^" if len(args) == 2:
                return f"({self.scalar(args[0])} {op} {self.scalar(args[1])})"
            case "-":
                return f"(0 - {self.scalar(args[0])})"
            case "~":
                return f"(~{self.scalar(args[0])})"
            case "<<":
                self.range(node)
                return f"ssw_shl({self.scalar(args[0])}, {self.saturated(args[1])})"
            case ">>":
                return self._scalar_shift_right(node)
            case "/" | "%":
                self.range(node)
                if self._exact(*args).bits > 64:
                    return f"{self._wide_apart(node, 1)}[0]"
                function = "ssw_div" if op == "/" else "ssw_mod"
                return f"{function}({self.scalar(args[0])}, {self.scalar(args[1])})"
            case "?":
                return f"({self.boolean(args[0])} ? {self.scalar(args[1])} : {self.scalar(args[2])})"
            case "b2d":
                return f"(uint64_t)({self.boolean(args[0])})"
            case "last_stack_index":
                return f"((uint64_t){self._stack_next(node)} - 1)"
            case "size_stack":
                return f"(uint64_t){self._stack_next(node)}"
            case "access_field":
                return self._load(*self.location(node))
            case "two_comp_mod":
                width = self._cast_width(node)
                inner = self.scalar(args[0])
                return inner if width >= 64 else f"ssw_sign_extend({inner}, {width})"
            case "usat_cast" | "sat_cast":
                return self._scalar_saturate(node)
        self.kind(node)
        raise self.unsupported(f"operator {op!r} as a number", node)

    def _stack_next(self, node: Op) -> str:
        match node.args[0]:
            case StackRef(stack):
                return self.layout.stack_next(stack)
        raise self.unsupported(f"{node.op} of {self._name(node.args[0])}", node)

    def _scalar_shift_right(self, node: Op) -> str:
        value, amount = node.args
        self.range(node)
        exact = self._exact(value)
        if exact.bits <= 64:
            function = "ssw_sar" if exact.signed else "ssw_shr"
            return f"{function}({self.scalar(value)}, {self.saturated(amount)})"
        return f"{self._wide_apart(node, 1)}[0]"

    def _scalar_saturate(self, node: Op) -> str:
        source = self._exact(node.args[0])
        to = ranges.of_width(self._cast_width(node), signed=node.op == "sat_cast")
        if ranges.clamp(source, to) == source:
            return self.scalar(node.args[0])
        both = ranges.hull(source, to)
        if both.bits > 64:
            return f"{self._wide_apart(node, 1)}[0]"
        if not both.signed:
            return f"ssw_min({self.scalar(node.args[0])}, {literal(to.high)})"
        return f"ssw_clamp_signed({self.scalar(node.args[0])}, {literal(to.low)}, {literal(to.high)})"

    def saturated(self, node: Node) -> str:
        """A non-negative value, or at least 2^64 - 1 if it is larger: for shift amounts and indices."""
        exact = self._exact(node)
        if exact.bits <= 64:
            return self.scalar(node)
        limbs = exact.limbs
        return f"ssw_wide_amount({self.pointer(node, limbs)}, {limbs})"

    # --- Wide values ---------------------------------------------------------------------------

    def pointer(self, node: Node, limbs: int) -> str:
        """A read-only array of at least ``limbs`` limbs: the value modulo 2^(64 limbs)."""
        match node:
            case Const(value):
                return self.pool.name(value, limbs)
            case ParamRef(index) if self._param(index).width > 64 * (limbs - 1):
                return f"(a + {parameter_words(self.params)[index]})"
            case FieldRef() | LastRef() | Op("access_field"):
                lvalue, item = self.location(node)
                if item.width > 64 and limbs_of(item.width) >= limbs:
                    exact = not item.signed or item.width >= 64 * limbs
                    if exact:
                        return lvalue
        result = self.array(limbs)
        self.into(node, limbs, result)
        return result

    def into(self, node: Node, limbs: int, target: str) -> None:
        """Writes the value modulo 2^(64 limbs); ``target`` may be a field that the value depends on."""
        if limbs == 1:
            self.out.line(f"{target}[0] = {self.scalar(node)};")
            return
        if not isinstance(node, Const) and self.range(node).bounded and self.range(node).bits <= 64:
            sign = "true" if self.range(node).signed else "false"
            self.out.line(f"ssw_wide_from_scalar({target}, {limbs}, {self.scalar(node)}, {sign});")
            return
        match node:
            case Const(value):
                self.out.line(f"ssw_wide_copy({target}, {self.pool.name(value, limbs)}, {limbs});")
            case ParamRef() | FieldRef() | LastRef() | Op("access_field"):
                self._wide_leaf(node, limbs, target)
            case Op(op) if op in BITWISE:
                element = self._element(node, limbs)
                self.out.line(f"SSW_LIMBS(i, {limbs}) {target}[i] = {element};")
            case Op("+" | "-" as op, (left, right)):
                function = "ssw_wide_add" if op == "+" else "ssw_wide_sub"
                a, b = self.pointer(left, limbs), self.pointer(right, limbs)
                self.out.line(f"{function}({target}, {a}, {b}, {limbs});")
            case Op("-", (operand,)):
                zero, b = self.pool.name(0, limbs), self.pointer(operand, limbs)
                self.out.line(f"ssw_wide_sub({target}, {zero}, {b}, {limbs});")
            case Op("?", (condition, left, right)):
                with self.out.block(f"if ({self.boolean(condition)})"):
                    self.into(left, limbs, target)
                with self.out.block("else"):
                    self.into(right, limbs, target)
            case Op("two_comp_mod"):
                self._wide_two_complement(node, limbs, target)
            case _:
                temporary = self._wide_apart(node, limbs)
                self.out.line(f"ssw_wide_copy({target}, {temporary}, {limbs});")

    def _wide_leaf(self, node: Node, limbs: int, target: str) -> None:
        if isinstance(node, ParamRef):
            source, item = (
                f"(a + {parameter_words(self.params)[node.index]})",
                Field("", self.params[node.index].width),
            )
        else:
            source, item = self.location(node)
        available = limbs_of(item.width)
        if available >= limbs:
            if source != target:
                self.out.line(f"ssw_wide_copy({target}, {source}, {limbs});")
            available = limbs
        if item.signed and item.width % 64 and item.width < 64 * limbs:
            top = available - 1
            if available < limbs:
                self.out.line(f"ssw_wide_copy({target}, {source}, {available});")
                source = target
            self.out.line(f"{target}[{top}] = ssw_sign_extend({target}[{top}], {item.width % 64});")
        if available < limbs:
            sign = "true" if item.signed else "false"
            self.out.line(f"ssw_wide_extend({target}, {limbs}, {source}, {available}, {sign});")

    def _wide_two_complement(self, node: Op, limbs: int, target: str) -> None:
        width = self._cast_width(node)
        if width >= 64 * limbs:
            self.into(node.args[0], limbs, target)
            return
        inner = limbs_of(width)
        self.into(node.args[0], inner, target)
        if width % 64:
            self.out.line(f"{target}[{inner - 1}] = ssw_sign_extend({target}[{inner - 1}], {width % 64});")
        if inner < limbs:
            self.out.line(f"ssw_wide_extend({target}, {limbs}, {target}, {inner}, true);")

    def _wide_apart(self, node: Node, limbs: int) -> str:
        """Operations that cannot write over their operands: a temporary of at least ``limbs`` limbs."""
        match node:
            case Op("*", (left, right)):
                a, b = self.pointer(left, limbs), self.pointer(right, limbs)
                result = self.array(limbs)
                self.out.line(f"ssw_wide_mul({result}, {a}, {b}, {limbs});")
                return result
            case Op("<<", (value, amount)):
                self.range(node)
                shift, source = self.saturated(amount), self.pointer(value, limbs)
                result = self.array(limbs)
                self.out.line(f"ssw_wide_shl({result}, {source}, {shift}, {limbs});")
                return result
            case Op(">>", (value, amount)):
                return self._wide_shift_right(node, value, amount, limbs)
            case Op("/" | "%" as op, (left, right)):
                self.range(node)
                exact = max(self._exact(left, right).limbs, limbs)
                a, b = self.pointer(left, exact), self.pointer(right, exact)
                quotient, remainder = self.array(exact), self.array(exact)
                self.out.line(f"ssw_wide_divide({quotient}, {remainder}, {a}, {b}, {exact});")
                return quotient if op == "/" else remainder
            case Op("usat_cast" | "sat_cast", (value, _)):
                to = ranges.of_width(self._cast_width(node), signed=node.op == "sat_cast")
                both = ranges.hull(self._exact(value), to)
                exact = max(limbs_of(both.bits + (not both.signed)), limbs)
                source = self.pointer(value, exact)
                low, high = self.pool.name(to.low, exact), self.pool.name(to.high, exact)
                result = self.array(exact)
                self.out.line(f"ssw_wide_clamp({result}, {source}, {low}, {high}, {exact});")
                return result
        self.kind(node)
        raise self.unsupported(f"{self._name(node)} on more than 64 bits", node)

    def _wide_shift_right(self, node: Op, value: Node, amount: Node, limbs: int) -> str:
        self.range(node)
        exact = self._exact(value)
        needed = exact.limbs
        if isinstance(amount, Const):
            needed = min(needed, limbs + amount.value // 64 + 1)
        shift, source = self.saturated(amount), self.pointer(value, needed)
        result = self.array(limbs)
        sign = "true" if exact.signed else "false"
        self.out.line(f"ssw_wide_shr({result}, {limbs}, {source}, {needed}, {shift}, {sign});")
        return result

    def _element(self, node: Node, limbs: int) -> str:
        """Limb ``i`` of the value, inside a loop over ``limbs`` limbs."""
        ones = (1 << 64) - 1
        match node:
            case Const(value):
                words = {value >> (64 * i) & ones for i in range(limbs)}
                return literal(value) if len(words) == 1 else f"{self.pool.name(value, limbs)}[i]"
            case Op("~", (operand,)):
                return f"~{self._element(operand, limbs)}"
            case Op("&" | "|" | "^" as op, (left, right)):
                if self.range(node).bounded and self.range(node).bits <= 64:
                    return f"{self.pointer(node, limbs)}[i]"
                if op == "&":
                    for mask, other in ((left, right), (right, left)):
                        # A mask of exactly the computed width: truncation that happens anyway.
                        if (
                            isinstance(mask, Const)
                            and mask.value % (1 << 64 * limbs) == (1 << 64 * limbs) - 1
                        ):
                            return self._element(other, limbs)
                return f"({self._element(left, limbs)} {op} {self._element(right, limbs)})"
        return f"{self.pointer(node, limbs)}[i]"

    # --- Booleans ------------------------------------------------------------------------------

    def boolean(self, node: Node) -> str:
        match node:
            case BoolConst(value):
                return "true" if value else "false"
            case Op("and", (left, right)):
                return f"({self.boolean(left)} && {self.boolean(right)})"
            case Op("or", (left, right)):
                return f"({self.boolean(left)} || {self.boolean(right)})"
            case Op("not", (operand,)):
                return f"(!{self.boolean(operand)})"
            case Op("valid", (header,)):
                place, _ = self.header(header)
                return f"({place.valid or '1'} != 0)"
            case Op("d2b", (operand,)):
                return self._nonzero(operand)
            case Op("?", (condition, left, right)):
                return f"({self.boolean(condition)} ? {self.boolean(left)} : {self.boolean(right)})"
            case Op(op, (left, right)) if op in EQUALITIES:
                return self._equality(node, left, right)
            case Op(op, (left, right)) if op in COMPARISONS:
                return self._comparison(op, left, right)
        self.kind(node)
        raise self.unsupported(f"{self._name(node)} as a boolean", node)

    def _nonzero(self, node: Node) -> str:
        exact = self._exact(node)
        if exact.bits <= 64:
            return f"({self.scalar(node)} != 0)"
        return f"(!ssw_wide_is_zero({self.pointer(node, exact.limbs)}, {exact.limbs}))"

    def _equality(self, node: Op, left: Node, right: Node) -> str:
        op, kind = EQUALITIES[node.op]
        kind = kind or self.kind(left)
        if kind == "bool":
            return f"({self.boolean(left)} {op} {self.boolean(right)})"
        if kind == "header":
            equal = self._equal_headers(left, right)
        elif kind == "data":
            exact = self._exact(left, right)
            if exact.bits <= 64:
                return f"({self.scalar(left)} {op} {self.scalar(right)})"
            a, b = self.pointer(left, exact.limbs), self.pointer(right, exact.limbs)
            equal = f"ssw_wide_equal({a}, {b}, {exact.limbs})"
        else:
            raise self.unsupported("comparison of header stacks", node)
        return equal if op == "==" else f"(!{equal})"

    def _equal_headers(self, left: Node, right: Node) -> str:
        (a, kind), (b, other) = self.header(left), self.header(right)
        if kind != other:
            return "false"
        terms = [place.valid for place in (a, b) if place.valid]
        for item in kind.fields:
            x, y = (self.layout.member(place, kind, item) for place in (a, b))
            if item.width > 64:
                terms.append(f"ssw_wide_equal({x}, {y}, {limbs_of(item.width)})")
            else:
                terms.append(f"{x} == {y}")
        return "(" + " && ".join(terms or ["true"]) + ")"

    def _comparison(self, op: str, left: Node, right: Node) -> str:
        exact = self._exact(left, right)
        if exact.bits <= 64:
            cast = "(int64_t)" if exact.signed else ""
            return f"({cast}{self.scalar(left)} {op} {cast}{self.scalar(right)})"
        limbs = exact.limbs
        a, b = self.pointer(left, limbs), self.pointer(right, limbs)
        if op in (">", "<="):
            a, b = b, a
        less = f"ssw_wide_less({a}, {b}, {limbs}, {'true' if exact.signed else 'false'})"
        return less if op in ("<", ">") else f"(!{less})"

    # --- Assignment ----------------------------------------------------------------------------

    def store(self, target: Node, value: Node) -> None:
        """``target = value``, truncated to the target's width."""
        lvalue, item = self.location(target)
        if item.name == "$valid$":
            raise self.unsupported("assignment to the validity of a header", target)
        self.store_at(lvalue, item, value)

    def store_at(self, lvalue: str, item: Field, value: Node) -> None:
        if item.width <= 64:
            fits = (
                self.range(value).bounded
                and not self.range(value).signed
                and self.range(value).bits <= item.width
            )
            self.store_scalar(lvalue, item, self.scalar(value), fits)
            return
        limbs = limbs_of(item.width)
        self.into(value, limbs, lvalue)
        held = self.range(value)
        if item.width % 64 and not (held.bounded and not held.signed and held.bits <= item.width):
            self.out.line(f"{lvalue}[{limbs - 1}] &= ssw_mask({item.width % 64});")

    def store_scalar(self, lvalue: str, item: Field, value: str, fits: bool = False) -> None:
        """Assigns a C expression to a field of up to 64 bits."""
        bits = storage_bits(item.width)
        if not fits and item.width != bits:
            value = f"{value} & ssw_mask({item.width})"
        self.out.line(f"{lvalue} = (uint{bits}_t)({value});")

    def store_value(self, target: Node, value: str, source: Field) -> None:
        """Assigns what is at hand in C: an unsigned integer (a uint64_t, or a limb array if wide)."""
        lvalue, item = self.location(target)
        if item.name == "$valid$":
            raise self.unsupported("assignment to the validity of a header", target)
        if item.width <= 64:
            scalar = f"{value}[0]" if source.width > 64 else value
            self.store_scalar(lvalue, item, scalar, source.width <= item.width)
            return
        limbs = limbs_of(item.width)
        if source.width <= 64:
            self.out.line(f"ssw_wide_from_scalar({lvalue}, {limbs}, {value}, false);")
        elif limbs_of(source.width) >= limbs:
            self.out.line(f"ssw_wide_copy({lvalue}, {value}, {limbs});")
        else:
            self.out.line(f"ssw_wide_extend({lvalue}, {limbs}, {value}, {limbs_of(source.width)}, false);")
        if item.width % 64 and source.width > item.width:
            self.out.line(f"{lvalue}[{limbs - 1}] &= ssw_mask({item.width % 64});")
