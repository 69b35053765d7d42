"""The axes of each tensor, and which of them are groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from derive.algebra import expr as ex
from derive.algebra.affine import Affine, affine
from derive.algebra.substitution import replace
from derive.notation import syntax
from derive.notation.resource_limits import AXES
from derive.notation.smart_constructors import product
from derive.notation.symbols import Declared
from derive.notation.syntax import AccessSite, fail


@dataclass(frozen=True)
class Shapes:
    """``declared`` has the axes from the op line and left sides, ``axes`` those of every tensor."""

    declared: Mapping[str, tuple[ex.Expr, ...]]
    axes: Mapping[str, tuple[ex.Expr, ...]]

    @staticmethod
    def of(
        declared: Declared, left: Mapping[str, tuple[ex.Expr, ...]], readings: Sequence[AccessSite]
    ) -> Shapes:
        """Return all axes; raise an error if two accesses disagree."""
        known: dict[str, tuple[ex.Expr, ...]] = {}
        for tensor in declared.tensors.values():
            if tensor.axes is not None:
                known[tensor.name] = tuple(filter(None, map(axis_of, tensor.axes)))
        known.update(left)
        axes = dict(known)
        for reading in readings:
            first = axes.setdefault(reading.tensor, reading.positions)
            if len(first) != len(reading.positions):
                fail(
                    reading.at,
                    "axis-count",
                    f"{reading.tensor} has {_axes_count_text(first)} but is read here with "
                    f"{len(reading.positions)}",
                )
            for n, (a, b) in enumerate(zip(first, reading.positions, strict=True)):
                if _is_group_axis(a) != _is_group_axis(b):
                    kinds = ("a group", "no group")
                    one, other = kinds if _is_group_axis(a) else kinds[::-1]
                    fail(
                        reading.at,
                        "axis-count",
                        f"axis {n} of {reading.tensor} is {one} of axes but is read here as "
                        f"{other}",
                    )
        for tensor in declared.tensors.values():
            axes.setdefault(tensor.name, ())
        for name, own in axes.items():
            if sum(len(e.args) if isinstance(e, ex.Composite) else 1 for e in own) > AXES:
                at = (declared.tensors.get(name) or declared.equations[name]).at
                message = f"{name} has more than {AXES} axes, the limit of torch tensors"
                fail(at, "spec-too-large", message)
        return Shapes(known, axes)

    def letters(self, equation: str) -> set[str]:
        """Return the letters on the left of an equation."""
        return {
            i.extent for e in self.axes[equation] for i in ex.walk(e) if isinstance(i, ex.Index)
        }


def axis_of(axis: syntax.Raw) -> ex.Expr | None:
    """Return the axis of an op line or left side, or None if it is not a valid axis."""
    match axis:
        case syntax.NameSyntax(name):
            return ex.Index(name, name)
        case syntax.Star(name):
            return ex.Index(name, name, True)
        case syntax.NumberSyntax(value) if value == 0:
            return ex.num(0)
        case syntax.CompositeSyntax(args):
            parts = tuple(p for p in map(axis_of, args) if isinstance(p, ex.Index))
            return ex.Composite(parts) if len(parts) > 1 else parts[0] if parts else ex.num(0)
    return None


def _is_group_axis(e: ex.Expr) -> bool:
    return isinstance(e, ex.Index) and e.group


def _axes_count_text(axes: tuple[ex.Expr, ...]) -> str:
    groups = sum(map(_is_group_axis, axes))
    n = len(axes) - groups
    text = f"{n} {'axis' if n == 1 else 'axes'}"
    return text if not groups else f"{text} and {groups} group{'s' if groups > 1 else ''}"


# --------------------------------------------------------------------------------- size expressions
# Sizes as expressions: their dependencies, their equality, and their text.


def atoms(position: Affine) -> Iterable[ex.Size]:
    """Yield the sizes that the range of an affine position depends on."""
    for part in (position.constant, *position.coefficients.values()):
        for key in part.terms:
            yield from (atom for atom in key if isinstance(atom, ex.Size))
    for index in position.coefficients:
        yield ex.Size(index.extent)


def compared_letters(e: ex.Expr) -> Iterator[str]:
    """Yield the letters of e outside accesses and reductions."""
    if isinstance(e, ex.Index):
        yield e.extent
    elif isinstance(e, ex.Add | ex.Mul):
        for part in e.args:
            yield from compared_letters(part)


def letters(composite: ex.Composite) -> list[str]:
    """Return the letters of the parts, without constants."""
    return [p.extent for p in composite.args if isinstance(p, ex.Index)]


def composite_size(composite: ex.Composite) -> ex.Expr:
    return product(map(ex.Size, letters(composite)))


def composition(composite: ex.Composite) -> str:
    """Return the text (t d), for messages."""
    parts = (p.name if isinstance(p, ex.Index) else shown(p) for p in composite.args)
    return f"({' '.join(parts)})"


def places(axes: Iterable[str]) -> str:
    """Return ``axis 0 of x and axis 1 of y`` for x@0 and y@1, at most four of them."""
    split = (axis.rpartition("@") for axis in dict.fromkeys(axes))
    said = [f"axis {n} of {tensor}" for tensor, _, n in split]
    if len(said) > _SAID:
        said = [*said[: _SAID - 1], f"{len(said) - _SAID + 1} others"]
    return " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))


_SAID = 4


def factors(size: ex.Expr, known: Callable[[str], ex.Expr | None]) -> list[ex.Expr]:
    """Return the sorted factors, with known sizes folded into one number.

    Like terms are merged: size(n) + size(n) is 2*size(n).
    """

    def number(part: ex.Expr) -> ex.Expr | None:
        found = known(part.extent) if isinstance(part, ex.Size) else None
        return found if isinstance(found, ex.Num) else None

    whole = replace(size, number)
    known_sum = affine(whole) if any(isinstance(x, ex.Add) for x in ex.walk(whole)) else None
    if known_sum is not None:
        whole = known_sum.constant.expr()
    if isinstance(whole, ex.Mul):
        whole = product(whole.args)
    return sorted(whole.args if isinstance(whole, ex.Mul) else (whole,), key=ex.sort_key)


def shown(size: ex.Expr, display_name: Callable[[str], str] = str) -> str:
    """Return the text of a size, of a number or of a constant."""
    return syntax.show(_size_syntax(size, display_name))


def _size_syntax(size: ex.Expr, display_name: Callable[[str], str]) -> syntax.Raw:
    def each(args: Iterable[ex.Expr]) -> list[syntax.Raw]:
        return [_size_syntax(arg, display_name) for arg in args]

    match size:
        case ex.Num(value) if value < 0:
            return syntax.Negative(_size_syntax(ex.Num(-value), display_name))
        case ex.Num(value):
            return syntax.NumberSyntax(value, value.denominator == 1)
        case ex.Size(extent):
            return syntax.ApplySyntax("size", (syntax.NameSyntax(display_name(extent)),))
        case ex.Mul((ex.Num(value), *_)) if value < 0:
            return syntax.Negative(_size_syntax(product((ex.num(-1), size)), display_name))
        case ex.Mul(args):
            return syntax.Product(tuple((False, arg) for arg in each(args)))
        case ex.Add(args):
            return syntax.Sum(tuple(map(_sign_and_rest, each(args))))
        case ex.Call("floordiv", args):
            above, below = each(args)
            return syntax.ApplySyntax("floor", (syntax.Product(((False, above), (True, below))),))
        case ex.Call(name, args):
            return syntax.ApplySyntax(name, tuple(each(args)))
    assert isinstance(size, ex.Param | ex.Const)
    return syntax.NameSyntax(size.name)


def _sign_and_rest(e: syntax.Raw) -> tuple[bool, syntax.Raw]:
    return (True, e.arg) if isinstance(e, syntax.Negative) else (False, e)


def pinned(d: Declared, shapes: Shapes, given: Sequence[str]) -> dict[str, ex.Expr | None]:
    """Return the letters with a declared axis or size, with the size if a parameter sets it."""
    found: dict[str, ex.Expr | None] = {}
    for tensor in d.tensors:
        for axis in shapes.declared.get(tensor, ()):
            found.update({i.name: None for i in ex.walk(axis) if isinstance(i, ex.Index)})
    for name, parameter in d.parameters.items():
        letter = parameter.sized
        if letter is None:
            continue
        other = found.get(letter)
        if other is not None or letter in d.fixed:
            one = f"size({letter})=..." if other is None else shown(other)
            syntax.fail(
                parameter.at,
                "two-sizes",
                f"index {letter} has two sizes, {one} and {name}; remove one",
            )
        found[letter] = ex.Param(name)
    for letter in given:
        found.setdefault(letter, None)
    return found
