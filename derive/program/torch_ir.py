"""An IR for torch code: an expression tree, and its printer.

Nodes are interned, so a subexpression that occurs twice is one object. The printer handles
precedence and matches the style of a formatter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, reduce
from math import isinf

from derive.algebra import substitution
from derive.algebra.expr import Node, node


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
    """The run-time size of an extent; resolved once the available tensors are known."""

    extent: str


@node
class Shape(Code):
    """A shape with these sizes, a group as a starred `Dim`; resolved like `Dim`."""

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
class MethodCall(Code):
    """obj.name(args)"""

    obj: Code
    name: str
    args: tuple[Code, ...] = ()


@node
class FunctionCall(Code):
    """name(args)"""

    name: str
    args: tuple[Code, ...] = ()


@node
class Slice(Code):
    """start:stop:step in a subscript; None is omitted."""

    start: Code | None = None
    stop: Code | None = None
    step: Code | None = None


@node
class Subscript(Code):
    """obj[items]"""

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


NONE = Literal("None")

DTYPES: dict[str | None, Code] = {"int": Name("torch.int64"), "bool": Name("torch.bool")}
"""The dtypes of the kinds that are not floating-point."""


def is_none(tensor: str) -> Code:
    """Return the code of the test that a tensor is None."""
    return Binary("is", Name(tensor), NONE)


_LEVELS = (
    *("if", "or", "and", "not", "is == != < <= > >=", "|", "^", "&"),
    *("+ -", "* / // % @", "neg ~", "**", "atom"),
)
PRECEDENCE = {op: level for level, ops in enumerate(_LEVELS) for op in ops.split()}
ATOM = PRECEDENCE["atom"]
"""The precedence of what never needs parentheses."""


def operands(code: Code, op: str) -> Iterator[Code]:
    """Yield the operands of a chain of one operator, from the left: a, b and c of a & b & c."""
    pending = [code]
    while pending:
        part = pending.pop()
        if isinstance(part, Binary) and part.op == op:
            pending += (part.right, part.left)
        else:
            yield part


def joined(op: str, codes: Iterable[Code]) -> Code:
    """Return a chain of one operator, from the left: a & b & c of a, b and c."""
    return reduce(lambda a, b: Binary(op, a, b), codes)


@lru_cache(maxsize=2**13)
def subexpressions(code: Code) -> tuple[Code, ...]:
    """Return the code and everything inside it, each once, parents first."""
    met: dict[Code, None] = {}
    pending = [code]
    while pending:
        current = pending.pop()
        if current not in met:
            met[current] = None
            pending += reversed(_code_parts(current))
    return tuple(met)


@lru_cache(maxsize=2**12)
def occurrences(code: Code) -> Counter[Code]:
    """Count the occurrences of the code and of everything inside it."""
    children_first: dict[Code, tuple[Code, ...]] = {}
    pending: list[tuple[Code, tuple[Code, ...] | None]] = [(code, None)]
    while pending:
        current, parts = pending.pop()
        if parts is not None:
            children_first[current] = parts
        elif current not in children_first:
            parts = _code_parts(current)
            pending.append((current, parts))
            pending += [(part, None) for part in parts]
    found = Counter({code: 1})
    for current, parts in reversed(children_first.items()):
        for part in parts:
            found[part] += found[current]
    return found


@lru_cache(maxsize=2**13)
def _code_parts(code: Code) -> tuple[Code, ...]:
    return () if isinstance(code, Dim | Shape) else code.parts()


def replaced(code: Code, new: Mapping[Code, Code]) -> Code:
    """Return the code with the keys of ``new`` replaced, outermost first."""
    if not new or _nodes_in(code).isdisjoint(new):
        return code
    return substitution.replace(code, new.get)


@lru_cache(maxsize=2**13)
def _nodes_in(code: Code) -> frozenset[Code]:
    return frozenset((code,)).union(*map(_nodes_in, code.parts()))


@lru_cache(maxsize=2**13)
def names_in(code: Code) -> tuple[str, ...]:
    """Return every Python name that the code reads, once for each read."""
    found = []
    pending = [code]
    while pending:
        part = pending.pop()
        if isinstance(part, Name):
            found.append(part.id)
        pending += reversed(part.parts())
    return tuple(found)


def values_in(code: Code) -> Iterator[str]:
    """Yield the names from which the code reads more than a shape."""
    pending = [code]
    while pending:
        part = pending.pop()
        if isinstance(part, Name):
            yield part.id
        elif not isinstance(part, Attribute) or part.name != "shape":
            pending += part.parts()


def literal(value: int | float) -> Literal:
    """Return the literal of a Python number."""
    if isinf(value):
        return Literal("math.inf" if value > 0 else "-math.inf")
    return Literal(repr(value).replace("e+", "e"))


def text(code: Code) -> str:
    """Return the code as Python text, on one line."""
    return text_and_level(code)[0]


@lru_cache(maxsize=4096)
def text_and_level(code: Code) -> tuple[str, int]:
    """Return the text and the precedence of its outermost operator."""
    match code:
        case Unary(op, operand):
            inner = _text_at_level(operand, operand_level(code))
            level = ATOM if op == "*" else PRECEDENCE["neg" if op in "-~" else "not"]
            return f"{op}{'' if op in '-~*' else ' '}{inner}", level
        case Binary("**", left, right):
            levels = operand_levels(code)
            gap = "" if hugs_power(left, right) else " "
            base, power = _text_at_level(left, levels[0]), _text_at_level(right, levels[1])
            return f"{base}{gap}**{gap}{power}", PRECEDENCE["**"]
        case Binary():
            return _operator_chain_text(code), PRECEDENCE[code.op]
        case Conditional(test, then, other):
            parts = _text_at_level(then, 1), _text_at_level(test, 1), _text_at_level(other, 0)
            return "{} if {} else {}".format(*parts), 0
        case Literal(words) if words.startswith("-"):
            return words, PRECEDENCE["neg"]
    return _atom_text(code), ATOM


def _operator_chain_text(code: Binary) -> str:
    """Return a chain of operators of one precedence, a + b - c, without recursion."""
    level, left = PRECEDENCE[code.op], code.left
    comparison = level == PRECEDENCE["=="]
    rest = [f" {code.op} {_text_at_level(code.right, level + 1)}"]
    while not comparison and isinstance(left, Binary) and PRECEDENCE[left.op] == level:
        rest.append(f" {left.op} {_text_at_level(left.right, level + 1)}")
        left = left.left
    return _text_at_level(left, level + comparison) + "".join(reversed(rest))


def _atom_text(code: Code) -> str:
    """Return the text of a node that never needs parentheses."""
    match code:
        case Name(words) | Literal(words):
            return words
        case Dim(extent):
            return f"<size {extent}>"
        case Shape(axes):
            return f"<shape {_listed(axes)}>"
        case Attribute(obj, name):
            return f"{_text_at_level(obj, ATOM)}.{name}"
        case Keyword(name, value):
            return f"{name}={text(value)}"
        case MethodCall(obj, name, args):
            read = subscript(code)
            return text(read) if read else f"{_text_at_level(obj, ATOM)}.{name}({_listed(args)})"
        case FunctionCall("math.prod", (Attribute(x, "shape"),)):
            return f"{_text_at_level(x, ATOM)}.numel()"
        case FunctionCall(name, args):
            return f"{name}({_listed(args)})"
        case Subscript(obj, items):
            return f"{_text_at_level(obj, ATOM)}[{_listed(items)}]"
        case Slice():
            return _slice_text(code)
        case Tuple(items):
            return f"({_listed(items)},)" if len(items) == 1 else f"({_listed(items)})"
    raise AssertionError(f"no text for {code!r}")


def subscript(code: Code) -> Code | None:
    """Return x[:, i] for x.select(1, i), which is printed so; None for all other code."""
    match code:
        case MethodCall(x, "select", (Literal() | Unary("-", Literal()) as axis, at)):
            n, rest = int(text(axis)), Literal("...")
            return Subscript(x, (*[Slice()] * n, at) if n >= 0 else (rest, at, *[Slice()] * ~n))
    return None


def _listed(codes: Iterable[Code]) -> str:
    return ", ".join(map(text, codes))


def operand_level(code: Unary) -> int:
    """Return the least precedence of an operand that needs no parentheses."""
    if code.op == "*":
        return ATOM
    if isinstance(code.operand, Binary) and code.operand.op == "**":
        return PRECEDENCE["**"] + 1
    return PRECEDENCE["neg" if code.op in "-~" else "not"]


def operand_levels(code: Binary) -> tuple[int, int]:
    """Return the least precedences of both operands that need no parentheses."""
    level = PRECEDENCE[code.op]
    if code.op == "**":
        return level + 1, PRECEDENCE["neg"]
    return level + (level == PRECEDENCE["=="]), level + 1


def hugs_power(left: Code, right: Code) -> bool:
    """True if a formatter writes ** without spaces between these operands."""
    return _is_simple(left) and _is_simple(right) and text(left)[:1] not in "-~"


def _is_simple(code: Code) -> bool:
    """True if a formatter writes ** without spaces beside it."""
    if isinstance(code, Unary):
        return code.op != "not" and _is_simple(code.operand)
    if isinstance(code, Attribute):
        return _is_simple(code.obj)
    return isinstance(code, Name) or (isinstance(code, Literal) and code.text[:1] != "(")


def _slice_text(code: Slice) -> str:
    """Return a slice; spaces surround the colons unless each end is a name or a number."""
    ends = [code.start, code.stop] if code.step is None else [code.start, code.stop, code.step]
    words = ["" if end is None else text(end) for end in ends]
    bare = (word.lstrip("-~") for word in words if word)
    if all(word.isidentifier() or word.replace(".", "", 1).isdigit() for word in bare):
        return ":".join(words)
    return " : ".join(words).replace(":  :", "::").strip()


def _text_at_level(code: Code, level: int) -> str:
    inner, own = text_and_level(code)
    return f"({inner})" if own < level else inner
