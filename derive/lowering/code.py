"""Torch code as a tree, and its text.

Nodes are interned, so a subexpression that occurs twice is one object. The printer knows
precedence and writes what a formatter would leave alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache

from derive.algebra.expr import Node, node

__all__ = [
    "Attribute",
    "Binary",
    "Code",
    "Conditional",
    "Dim",
    "Function",
    "Keyword",
    "Literal",
    "Method",
    "Name",
    "Shape",
    "Subscript",
    "Tuple",
    "Unary",
    "count",
    "literal",
    "occurrences",
    "operands",
    "subexpressions",
    "text",
]


class Code(Node):
    """Base of torch code."""

    __slots__ = ()


@node
class Name(Code):
    """A Python name: a tensor, a parameter or a temporary."""

    id: str


@node
class Literal(Code):
    """A number or another constant, as Python text."""

    text: str


@node
class Dim(Code):
    """The run-time size of an extent; resolved when it is known which tensors are at hand."""

    extent: str


@node
class Shape(Code):
    """The shape of a tensor with these axes (names of indices); resolved as `Dim` is."""

    axes: tuple[Code, ...]


@node
class Attribute(Code):
    """obj.name"""

    obj: Code
    name: str


@node
class Keyword(Code):
    """name=value in a call."""

    name: str
    value: Code


@node
class Method(Code):
    """obj.name(args)"""

    obj: Code
    name: str
    args: tuple[Code, ...] = ()


@node
class Function(Code):
    """name(args)"""

    name: str
    args: tuple[Code, ...] = ()


@node
class Subscript(Code):
    """obj[items]; items are code, ``:`` being a literal."""

    obj: Code
    items: tuple[Code, ...]


@node
class Tuple(Code):
    """(items)"""

    items: tuple[Code, ...]


@node
class Unary(Code):
    """-x or ~x"""

    op: str
    operand: Code


@node
class Binary(Code):
    """left op right"""

    op: str
    left: Code
    right: Code


@node
class Conditional(Code):
    """then if test else other: a choice by a Python value."""

    test: Code
    then: Code
    other: Code


_PRECEDENCE = {
    "if": 0,
    "or": 1,
    "and": 2,
    "not": 3,
    "==": 4,
    "!=": 4,
    "<": 4,
    "<=": 4,
    ">": 4,
    ">=": 4,
    "|": 5,
    "^": 6,
    "&": 7,
    "+": 9,
    "-": 9,
    "*": 10,
    "/": 10,
    "//": 10,
    "%": 10,
    "@": 10,
    "neg": 11,
    "~": 11,
    "**": 12,
    "atom": 14,
}


def count(codes: Iterable[Code]) -> tuple[int, int]:
    """(elementwise operations and reductions, contractions) in the code."""
    operations = contractions = 0
    pending = list(codes)
    while pending:
        code = pending.pop()
        if isinstance(code, Dim | Shape):
            continue
        pending += code.parts()
        match code:
            case Binary("@") | Function("torch.einsum" | "torch.addmm" | "torch.baddbmm"):
                contractions += 1
            case Binary("or"):
                pass
            case Binary() | Function() | Unary("-" | "~"):
                operations += 1
            case Method(_, name) if name not in _FREE:
                operations += 1
    return operations, contractions


_FREE = (
    "unsqueeze", "squeeze", "expand", "select", "diagonal", "transpose", "permute", "movedim",
    "reshape", "flatten", "unflatten", "dim", "numel",
)  # fmt: skip


def operands(code: Code, op: str) -> Iterator[Code]:
    """The operands of a chain of one operator, from the left: a, b and c of a & b & c."""
    pending = [code]
    while pending:
        part = pending.pop()
        if isinstance(part, Binary) and part.op == op:
            pending += (part.right, part.left)
        else:
            yield part


def subexpressions(code: Code) -> Iterator[Code]:
    """code and everything inside it, each once, parents first."""
    met: set[Code] = set()
    pending = [code]
    while pending:
        current = pending.pop()
        if current not in met:
            met.add(current)
            yield current
            pending += reversed(_inside(current))


def occurrences(code: Code) -> Counter[Code]:
    """How often code and everything inside it stand there."""
    children_first: dict[Code, None] = {}
    pending = [(code, False)]
    while pending:
        current, seen_inside = pending.pop()
        if seen_inside:
            children_first[current] = None
        elif current not in children_first:
            pending.append((current, True))
            pending += ((part, False) for part in _inside(current))
    found = Counter({code: 1})
    for current in reversed(children_first):
        for part in _inside(current):
            found[part] += found[current]
    return found


def _inside(code: Code) -> tuple[Code, ...]:
    return () if isinstance(code, Dim | Shape) else code.parts()


def literal(value: int | float) -> Literal:
    """A Python number."""
    return Literal(repr(value))


def text(code: Code) -> str:
    """The code as Python text, on one line."""
    return _text(code)[0]


@lru_cache(maxsize=4096)
def _text(code: Code) -> tuple[str, int]:
    """Text and the precedence of its outermost operator."""
    atom = _PRECEDENCE["atom"]
    match code:
        case Name(name):
            return name, atom
        case Literal(value):
            return value, _PRECEDENCE["neg"] if value.startswith("-") else atom
        case Dim(extent):
            return f"<size {extent}>", atom
        case Shape(axes):
            return f"<shape {', '.join(map(text, axes))}>", atom
        case Attribute(obj, name):
            return f"{_at(obj, atom)}.{name}", atom
        case Keyword(name, value):
            return f"{name}={text(value)}", atom
        case Method(obj, name, args):
            return f"{_at(obj, atom)}.{name}({', '.join(map(text, args))})", atom
        case Function(name, args):
            return f"{name}({', '.join(map(text, args))})", atom
        case Subscript(obj, items):
            return f"{_at(obj, atom)}[{', '.join(map(_item, items))}]", atom
        case Tuple(items):
            inside = ", ".join(map(text, items))
            return f"({inside},)" if len(items) == 1 else f"({inside})", atom
        case Unary("*", operand):
            return f"*{_at(operand, atom)}", atom
        case Unary(op, operand):
            level = _PRECEDENCE["neg"] if op in "-~" else _PRECEDENCE["not"]
            space = "" if op in "-~" else " "
            inner = _PRECEDENCE["**"] + 1 if op == "-" and _is_power(operand) else level
            return f"{op}{space}{_at(operand, inner)}", level
        case Binary("**", left, right):
            level = _PRECEDENCE["**"]
            hugs = _is_simple(left) and _is_simple(right) and not isinstance(left, Unary)
            gap = "" if hugs else " "
            return f"{_at(left, level + 1)}{gap}**{gap}{_at(right, _PRECEDENCE['neg'])}", level
        case Binary(op, left, right):
            level = _PRECEDENCE[op]
            comparison = op in ("==", "!=", "<", "<=", ">", ">=")
            # A chain of operators of one precedence, a + b - c, is one level, however long.
            rest = [f" {op} {_at(right, level + 1)}"]
            while not comparison and isinstance(left, Binary) and _PRECEDENCE[left.op] == level:
                rest.append(f" {left.op} {_at(left.right, level + 1)}")
                left = left.left
            return _at(left, level + comparison) + "".join(reversed(rest)), level
        case Conditional(test, then, other):
            return f"{_at(then, 1)} if {_at(test, 1)} else {_at(other, 0)}", 0
    raise AssertionError(f"no text for {code!r}")


def _is_power(code: Code) -> bool:
    return isinstance(code, Binary) and code.op == "**"


def _is_simple(code: Code) -> bool:
    """Whether a formatter writes ** without spaces beside it."""
    if isinstance(code, Unary):
        return _is_simple(code.operand)
    if isinstance(code, Attribute):
        return _is_simple(code.obj)
    return isinstance(code, Name) or (isinstance(code, Literal) and code.text[:1] != "(")


def _item(code: Code) -> str:
    """What stands in brackets; every n-th position as ``::n``."""
    match code:
        case Function("slice", (Literal("None"), Literal("None"), Name(step))):
            return f"::{step}"
    return text(code)


def _at(code: Code, level: int) -> str:
    inner, own = _text(code)
    return f"({inner})" if own < level else inner
