"""Sizes as expressions: their dependencies, their equality, and their text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from derive.algebra.affine import Affine, affine
from derive.algebra.expr import (
    Add,
    Call,
    Composite,
    Const,
    Expr,
    Index,
    Mul,
    Num,
    Param,
    Size,
    num,
    sort_key,
    walk,
)
from derive.algebra.substitution import replace
from derive.notation import syntax
from derive.notation.shapes import Shapes
from derive.notation.smart_constructors import product
from derive.notation.symbols import Declared


def atoms(position: Affine) -> Iterable[Size]:
    """Yield the sizes that the range of an affine position depends on."""
    for part in (position.constant, *position.coefficients.values()):
        for key in part.terms:
            yield from (atom for atom in key if isinstance(atom, Size))
    for index in position.coefficients:
        yield Size(index.extent)


def compared_letters(e: Expr) -> Iterator[str]:
    """Yield the letters of e outside accesses and reductions."""
    if isinstance(e, Index):
        yield e.extent
    elif isinstance(e, Add | Mul):
        for part in e.args:
            yield from compared_letters(part)


def letters(composite: Composite) -> list[str]:
    """Return the letters of the parts, without constants."""
    return [p.extent for p in composite.args if isinstance(p, Index)]


def composite_size(composite: Composite) -> Expr:
    """Return the size of a composite axis."""
    return product(map(Size, letters(composite)))


def composition(composite: Composite) -> str:
    """Return the text (t d), for messages."""
    parts = (p.name if isinstance(p, Index) else shown(p) for p in composite.args)
    return f"({' '.join(parts)})"


def places(axes: Iterable[str]) -> str:
    """Return ``axis 0 of x and axis 1 of y`` for x@0 and y@1, at most four of them."""
    split = (axis.rpartition("@") for axis in dict.fromkeys(axes))
    said = [f"axis {n} of {tensor}" for tensor, _, n in split]
    if len(said) > _SAID:
        said = [*said[: _SAID - 1], f"{len(said) - _SAID + 1} others"]
    return " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))


_SAID = 4


def factors(size: Expr, known: Callable[[str], Expr | None]) -> list[Expr]:
    """Return the sorted factors, with known sizes folded into one number.

    Like terms are merged: size(n) + size(n) is 2*size(n).
    """

    def number(part: Expr) -> Expr | None:
        found = known(part.extent) if isinstance(part, Size) else None
        return found if isinstance(found, Num) else None

    whole = replace(size, number)
    known_sum = affine(whole) if any(isinstance(x, Add) for x in walk(whole)) else None
    if known_sum is not None:
        whole = known_sum.constant.expr()
    if isinstance(whole, Mul):
        whole = product(whole.args)
    return sorted(whole.args if isinstance(whole, Mul) else (whole,), key=sort_key)


def shown(size: Expr, display_name: Callable[[str], str] = str) -> str:
    """Return the text of a size, of a number or of a constant."""
    return syntax.show(_size_syntax(size, display_name))


def _size_syntax(size: Expr, display_name: Callable[[str], str]) -> syntax.Raw:
    def each(args: Iterable[Expr]) -> list[syntax.Raw]:
        return [_size_syntax(arg, display_name) for arg in args]

    match size:
        case Num(value) if value < 0:
            return syntax.Negative(_size_syntax(Num(-value), display_name))
        case Num(value):
            return syntax.NumberSyntax(value, value.denominator == 1)
        case Size(extent):
            return syntax.ApplySyntax("size", (syntax.NameSyntax(display_name(extent)),))
        case Mul((Num(value), *_)) if value < 0:
            return syntax.Negative(_size_syntax(product((num(-1), size)), display_name))
        case Mul(args):
            return syntax.Product(tuple((False, arg) for arg in each(args)))
        case Add(args):
            return syntax.Sum(tuple(map(_sign_and_rest, each(args))))
        case Call("floordiv", args):
            above, below = each(args)
            return syntax.ApplySyntax("floor", (syntax.Product(((False, above), (True, below))),))
        case Call(name, args):
            return syntax.ApplySyntax(name, tuple(each(args)))
    assert isinstance(size, Param | Const)
    return syntax.NameSyntax(size.name)


def _sign_and_rest(e: syntax.Raw) -> tuple[bool, syntax.Raw]:
    return (True, e.arg) if isinstance(e, syntax.Negative) else (False, e)


def pinned(d: Declared, shapes: Shapes, given: Sequence[str]) -> dict[str, Expr | None]:
    """Return the letters with a declared axis or size, with the size if a parameter sets it."""
    found: dict[str, Expr | None] = {}
    for tensor in d.tensors:
        for axis in shapes.declared.get(tensor, ()):
            found.update({i.name: None for i in walk(axis) if isinstance(i, Index)})
    for name, parameter in d.parameters.items():
        letter = parameter.sized
        if letter is None:
            continue
        other = found.get(letter)
        if other is not None or letter in d.fixed:
            one = f"size({letter})=..." if other is None else shown(other)
            syntax.fail(parameter.at, f"index {letter} has two sizes, {one} and {name}; remove one")
        found[letter] = Param(name)
    for letter in given:
        found.setdefault(letter, None)
    return found
