"""The syntax tree, with unresolved names: the common form of text and SymPy specs.

It has no sizes, no kinds and no roles of names; `derive.notation.resolve` finds these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Context, Decimal
from fractions import Fraction
from math import log10
from typing import Any, ClassVar, NoReturn, Self, TypeVar

from derive.algebra.expr import Expr, Index
from derive.errors import ErrorKind, SpecError


@dataclass(frozen=True)
class SourcePlace:
    """A 1-based line and column of the text; a SymPy spec has ``equation`` instead."""

    line: int
    column: int
    equation: Callable[[], str] | None = None


@dataclass(frozen=True)
class Raw:
    """Base class of syntax nodes; ``at`` is None without text."""

    __match_args__: ClassVar[tuple[str, ...]]
    at: SourcePlace | None = field(default=None, kw_only=True, compare=False)

    def parts(self) -> Iterator[Raw]:
        """Yield the children in source order."""
        for name in self.__match_args__:
            yield from _nested_syntax(getattr(self, name))

    def map(self, change: Callable[[Raw], Raw]) -> Self:
        """Return the node with each child changed."""

        def inside(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(inside, value))
            return change(value) if isinstance(value, Raw) else value

        return replace(self, **{name: inside(getattr(self, name)) for name in self.__match_args__})


def with_place(e: _Kind, at: SourcePlace) -> _Kind:
    """Return the node with one place for all its parts."""
    return replace(e.map(lambda part: with_place(part, at)), at=at)


_Kind = TypeVar("_Kind", bound=Raw)


def _nested_syntax(value: object) -> Iterator[Raw]:
    if isinstance(value, Raw):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _nested_syntax(item)


@dataclass(frozen=True)
class NumberSyntax(Raw):
    """An exact number; ``integral`` if it was written as an integer (1, not 1.0)."""

    value: Fraction
    integral: bool = True


@dataclass(frozen=True)
class NameSyntax(Raw):
    """A name alone: an index, a parameter, a constant or a tensor without axes."""

    name: str


@dataclass(frozen=True)
class Star(Raw):
    """A group of axes, ``*p``."""

    name: str


@dataclass(frozen=True)
class CompositeSyntax(Raw):
    """A composite axis, ``(t d)``."""

    args: tuple[Raw, ...]


@dataclass(frozen=True)
class Item(Raw):
    """``name[positions]``."""

    name: str
    positions: tuple[Raw, ...]


@dataclass(frozen=True)
class Negative(Raw):
    """-arg."""

    arg: Raw


@dataclass(frozen=True)
class Sum(Raw):
    """Terms added, or subtracted if the flag is set."""

    terms: tuple[tuple[bool, Raw], ...]


@dataclass(frozen=True)
class Product(Raw):
    """Factors multiplied, or divided by if the flag is set."""

    factors: tuple[tuple[bool, Raw], ...]


@dataclass(frozen=True)
class Power(Raw):
    """base ** exponent."""

    base: Raw
    exponent: Raw


@dataclass(frozen=True)
class Compare(Raw):
    """first op second op third ..., as in Python."""

    first: Raw
    rest: tuple[tuple[str, Raw], ...]


@dataclass(frozen=True)
class Both(Raw):
    """a and b and ..."""

    args: tuple[Raw, ...]


@dataclass(frozen=True)
class Either(Raw):
    """a or b or ..."""

    args: tuple[Raw, ...]


@dataclass(frozen=True)
class Negation(Raw):
    """not arg."""

    arg: Raw


@dataclass(frozen=True)
class Bracket(Raw):
    """[condition]."""

    condition: Raw


@dataclass(frozen=True)
class ApplySyntax(Raw):
    """function(args)."""

    function: str
    args: tuple[Raw, ...]


@dataclass(frozen=True)
class Bind(Raw):
    """kind[indices | condition](args)."""

    kind: str
    indices: tuple[Raw, ...]
    condition: Raw | None
    args: tuple[Raw, ...]


@dataclass(frozen=True)
class TensorSyntax(Raw):
    """A declared input; ``axes`` is None if the equations determine them."""

    name: str
    axes: tuple[Raw, ...] | None = None
    kind: str | None = None
    default: Raw | None = None


@dataclass(frozen=True)
class ParameterSyntax(Raw):
    """``name=value``; ``options`` for a choice; ``size(name)=value`` if ``fixes``."""

    name: str
    value: Raw | None = None
    options: tuple[str, ...] = ()
    fixes: bool = False

    @property
    def sized(self) -> str | None:
        """The index whose size the parameter sets."""
        match self.value:
            case ApplySyntax("size", (NameSyntax(letter) | Star(letter), *_)):
                return letter
        return None


@dataclass(frozen=True)
class Bound(Raw):
    """``name >= value``: a condition on a parameter."""

    name: str
    relation: str
    value: Raw


@dataclass(frozen=True)
class EquationSyntax(Raw):
    """``name[axes] = body``."""

    name: str
    axes: tuple[Raw, ...]
    body: Raw


@dataclass(frozen=True)
class OperationSyntax(Raw):
    """One operation; if ``inputs`` is None, they are in order of first use.

    ``outputs`` pairs an option (None without a choice) with the name of an output; ``same``
    lists pairs of indices with equal size. ``text`` is True for a text spec, in which an unknown
    bare name may be an input without axes. With ``stable``, differences are not expanded.
    """

    name: str
    inputs: tuple[TensorSyntax, ...] | None
    parameters: tuple[ParameterSyntax, ...]
    outputs: tuple[tuple[str | None, str], ...] | None
    equations: tuple[EquationSyntax, ...]
    same: tuple[tuple[str, str], ...] = ()
    text: bool = True
    stable: bool = False
    bounds: tuple[Bound, ...] = ()


def quotient(a: Raw, b: Raw) -> Raw:
    """a // b: int(floor(a/b))."""
    floor = ApplySyntax("floor", (Product(((False, a), (True, b)), at=a.at),), at=a.at)
    return ApplySyntax("int", (floor,), at=a.at)


def rest(a: Raw, b: Raw) -> Raw:
    """a % b, which has the sign of b: a - b*int(floor(a/b))."""
    multiple = Product(((False, b), (False, quotient(a, b))), at=b.at)
    return Sum(((False, a), (True, multiple)), at=a.at)


def whole_quotients(e: Raw) -> Raw:
    """Return a position in which each floor(a/b) without tensors is an integer."""
    match e:
        case Item() | ApplySyntax("int"):
            return e
        case ApplySyntax("floor") if not any(isinstance(part, Item) for part in walk(e)):
            return ApplySyntax("int", (e,), at=e.at)
    return e.map(whole_quotients)


def walk(e: Raw) -> Iterator[Raw]:
    """Yield e and its parts."""
    yield e
    for part in e.parts():
        yield from walk(part)


def fail(at: SourcePlace | None, kind: ErrorKind, message: str) -> NoReturn:
    """Raise a SpecError of that kind at that place."""
    if at is None:
        raise SpecError(message, kind=kind)
    if at.equation is not None:
        raise SpecError(f"{message}\n  in {at.equation()}", kind=kind)
    raise SpecError(message, kind=kind, line=at.line, column=at.column)


def factors(e: Raw, inverse: bool = False) -> Iterator[tuple[bool, Raw]]:
    """Yield the factors of nested products, the flag set for divisors."""
    if isinstance(e, Product):
        for divided, factor in e.factors:
            if divided:
                yield (True, factor)
            else:
                yield from factors(factor)
    elif isinstance(e, Negative):
        yield (False, NumberSyntax(Fraction(-1)))
        yield from factors(e.arg)
    else:
        yield (inverse, e)


_DIGITS = 1000
"""More digits than any number in a spec may have."""

_LEVEL = {Either: 1, Both: 2, Negation: 3, Compare: 4, Sum: 5, Product: 6, Negative: 7, Power: 8}


def show(e: Raw, level: int = 0) -> str:
    """Return the text of e, for messages."""
    own = _LEVEL.get(type(e), 9)
    text = _syntax_text(e, own)
    if isinstance(e, NumberSyntax):
        own = 6 if "/" in text else 7 if text[0] == "-" else own
    return f"({text})" if own < level else text


def _syntax_text(e: Raw, own: int) -> str:
    match e:
        case NumberSyntax(value):
            return decimal(value) or _digits(value)
        case NameSyntax(name):
            return name
        case Star(name):
            return f"*{name}"
        case CompositeSyntax(args):
            return f"({' '.join(show(a) for a in args)})"
        case Item(name, positions):
            return f"{name}[{_list(positions)}]"
        case Negative(arg):
            return f"-{show(arg, own)}"
        case Sum(terms):
            return _operator_chain(terms, own, " + ", " - ")
        case Product(factors):
            return _operator_chain(factors, own, "*", "/")
        case Power(base, exponent):
            return f"{show(base, own + 1)}**{show(exponent, own)}"
        case Compare(first, rest):
            tail = "".join(f" {op} {show(side, own + 1)}" for op, side in rest)
            return show(first, own + 1) + tail
        case Both(args):
            return " and ".join(show(a, own + 1) for a in args)
        case Either(args):
            return " or ".join(show(a, own + 1) for a in args)
        case Negation(arg):
            return f"not {show(arg, own)}"
        case Bracket(condition):
            return f"[{show(condition)}]"
        case ApplySyntax(function, args):
            return f"{function}({_list(args)})"
        case Bind(kind, indices, condition, args):
            where = "" if condition is None else f" | {show(condition)}"
            return f"{kind}[{_list(indices)}{where}]({_list(args)})"
        case EquationSyntax(name, axes, body):
            return f"{name}[{_list(axes)}] = {show(body)}" if axes else f"{name} = {show(body)}"
    return type(e).__name__.lower()


def _digits(value: Fraction) -> str:
    """Return the text of a number; a long part is abbreviated to its count of digits."""
    parts = []
    for whole in (value.numerator, value.denominator)[: 1 if value.denominator == 1 else 2]:
        digits = int(whole.bit_length() * log10(2)) + 1
        parts.append(str(whole) if digits <= _LONGEST else f"({digits} digits)")
    return "/".join(parts)


_LONGEST = 40


def decimal(value: Fraction) -> str | None:
    """Return the decimal text of a number with finitely many digits, else None."""
    exact = Context(prec=_DIGITS)
    digits = exact.divide(Decimal(value.numerator), Decimal(value.denominator))
    return str(digits).lower() if Fraction(digits) == value else None


def _list(items: tuple[Raw, ...]) -> str:
    return ", ".join(show(item) for item in items)


def _operator_chain(items: tuple[tuple[bool, Raw], ...], own: int, plus: str, minus: str) -> str:
    (inverse, first), *rest = items
    text = show(first, own + (1 if inverse else 0))
    text = text if not inverse else ("-" + text if plus == " + " else "1/" + text)
    return text + "".join((minus if flag else plus) + show(e, own + 1) for flag, e in rest)


# -------------------------------------------------------------------------------------------- scope
# Scopes of letters, and the accesses of equations.

Env = Mapping[str, Index]


@dataclass(frozen=True)
class AccessSite:
    """One access tensor[positions] in an equation; ``guarded`` if it is under a condition."""

    tensor: str
    positions: tuple[Expr, ...]
    guarded: bool
    equation: str
    at: SourcePlace | None


def in_either(then: Sequence[AccessSite], other: Sequence[AccessSite]) -> list[AccessSite]:
    """Return the accesses of both branches; one is unguarded only if both branches make it."""
    one, two = ({(r.tensor, r.positions) for r in b if not r.guarded} for b in (then, other))
    return [
        replace(r, guarded=r.guarded or (r.tensor, r.positions) not in one & two)
        for r in (*then, *other)
    ]


def enter(scope: dict[str, Index], name: str, index: Index) -> None:
    """Bind name to index; a shadowed index stays in the scope, to prevent capture."""
    if name in scope:
        scope[f"{name} outside {len(scope)}"] = scope[name]
    scope[name] = index


def letter_of(name: str, env: Env) -> str:
    """Return the letter of a name; in an argument of concat, that of the piece."""
    return env[name].extent if name in env else name


# ---------------------------------------------------------------------------------------- unit axes
# Desugar axes of size 1 on an op line, x[n, 0], to generated indices of size 1.
#
#     op f(x[n,0]) -> y      is     op f(x[n,one]; size(one)=1) -> y
#
# The equations read such an axis at its only position, 0.

STEM = "one"


def with_unit_axes(written: OperationSyntax) -> OperationSyntax:
    """Add an index of size 1 for each axis that is written 0."""
    if not any(_is_unit_axis(axis) for t in written.inputs or () for axis in t.axes or ()):
        return written
    named = (NameSyntax, Star, TensorSyntax, ParameterSyntax, EquationSyntax)
    whole = [*(written.inputs or ()), *written.parameters, *written.equations]
    taken = {part.name for e in whole for part in walk(e) if isinstance(part, named)}
    letters: list[str] = []
    inputs = tuple(_with_unit_letters(t, letters, taken) for t in written.inputs or ())
    sizes = (ParameterSyntax(letter, NumberSyntax(Fraction(1)), fixes=True) for letter in letters)
    return replace(written, inputs=inputs, parameters=(*written.parameters, *sizes))


def _is_unit_axis(axis: Raw) -> bool:
    return isinstance(axis, NumberSyntax) and axis.value == 0


def _with_unit_letters(t: TensorSyntax, letters: list[str], taken: set[str]) -> TensorSyntax:
    """Replace the unit axes of the tensor by the letters, in order; new letters are added."""
    axes: list[Raw] = []
    count = 0
    for axis in t.axes or ():
        if _is_unit_axis(axis):
            if count == len(letters):
                number = len(letters) + 1
                while (letter := f"{STEM}{number}" if number > 1 else STEM) in taken:
                    number += 1
                letters.append(letter)
                taken.add(letter)
            axis = NameSyntax(letters[count], at=axis.at)
            count += 1
        axes.append(axis)
    return replace(t, axes=tuple(axes) if t.axes is not None else None)
