"""Maxima over axes that may have no positions: their values, and what their gradients are.

torch refuses a maximum of nothing. Its value comes from one position of what wins over nothing,
and no gradient goes to what would have won: where an axis is empty, terms of a gradient that read
a winner along it are left out, and so are shares of a tie among nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from fractions import Fraction

from derive.algebra.expr import (
    Access,
    Delta,
    Expr,
    Guard,
    Index,
    Iverson,
    Rel,
    Size,
    accesses,
    free_indices,
    num,
    walk,
)
from derive.algebra.poly import Poly, Term, as_atom, base_and_power, poly
from derive.algebra.reductions import POSITIONS
from derive.algebra.sizes import Bounds
from derive.calculus.lets import Let
from derive.lowering.ground.scope import Scope
from derive.lowering.ground.value import Frame, Value
from derive.program.code import (
    Binary,
    Code,
    Conditional,
    Dim,
    Function,
    Literal,
    Method,
    literal,
)


def never_empty(frame: Frame, value: Value, which: Sequence[int], sign: int) -> Value:
    """value, or one position of what wins over nothing where it has no elements."""
    if all((i := value.axes[n]) is None or has_positions(frame, i.extent) for n in which):
        return value
    args = (frame.positions(value.axes, which), Literal("True"))
    op = "-" if sign > 0 else "+"
    nothing = Binary(op, Method(value.code, "sum", args), Literal("math.inf"))
    return replace(value, code=Conditional(Method(value.code, "numel"), value.code, nothing))


def has_positions(frame: Frame, extent: str) -> bool:
    """Whether every axis of this extent is certain to have a position."""
    known: Bounds = frame.bounds
    if any(known.size(extent) == known.size(given) for given in frame.given):
        return True
    return known.holds(Rel("<", num(0), Size(extent))) is True


def never_zero(frame: Frame, divisor: Code) -> Code:
    """A number, nan where it is 0: Python has no quotient by 0.

    The size of an axis that has positions is none, nor is a literal.
    """
    for factor in _factors(divisor):
        if isinstance(factor, Dim) and has_positions(frame, factor.extent):
            continue
        if not isinstance(factor, Literal):
            return Binary("or", divisor, _NAN)
    return divisor


_NAN = Literal("math.nan")


def _factors(code: Code) -> Iterator[Code]:
    match code:
        case Binary("*", left, right):
            yield from _factors(left)
            yield from _factors(right)
        case Function("math.sqrt", (square,)):
            yield from _factors(square)
        case _:
            yield code


def over_positions(code: Code, extents: AbstractSet[str]) -> Code:
    """The code of an adjoint that is the same along these axes, whose sizes divide as 1 if 0.

    Where such an axis is empty so is the adjoint; but G/0 has a derivative by G, which is nan.
    """
    if isinstance(code, Binary) and code.op == "/":
        below = code.right
        if isinstance(below, Binary) and below.op == "or" and below.right is _NAN:
            below = below.left
        if any(isinstance(f, Dim) and f.extent in extents for f in _factors(below)):
            above = over_positions(code.left, extents)
            return Binary("/", above, Binary("or", below, literal(1)))
    return code.map(lambda part: over_positions(part, extents)) if extents else code


def with_errors(code: Code) -> Code:
    """The code in which a quotient by a parameter that is 0 is Python's error.

    But not in a branch: what is not taken may be computed all the same.
    """
    match code:
        case Conditional(test, then, other):
            return Conditional(with_errors(test), then, other)
        case Binary("/", above, Binary("or", below, right)) if right is _NAN:
            if not _reads_size(below):
                return Binary("/", with_errors(above), with_errors(below))
    return code.map(with_errors)  # type: ignore[no-any-return]


def _reads_size(code: Code) -> bool:
    return isinstance(code, Dim) or any(map(_reads_size, code.parts()))


def split_by_winners(scope: Scope, let: Let) -> list[tuple[tuple[str, ...], Poly]]:
    """The terms of an adjoint, with the extents that must have positions for them."""
    groups: dict[tuple[str, ...], list[Term]] = {}
    for t in let.body.terms:
        found = dict.fromkeys(_won_along(scope, t, let.formals))
        needed = tuple(sorted(e for e in found if not has_positions(scope.frame, e)))
        groups.setdefault(needed, []).append(t)
    return [(needed, poly(terms)) for needed, terms in groups.items()]


def may_be_nowhere(scope: Scope, position: Expr, extent: str) -> bool:
    """Whether the position is guarded by what never holds where the axis is empty.

    What a tensor gives as a position is taken to be one unless it is compared with the size. An
    axis on which another tensor certainly gives positions, for the same indices, has some.
    """
    if not isinstance(position, Guard):
        return False
    bounds = scope.frame.bounds
    size, extents = bounds.size(extent), {i.extent for i in free_indices(position)}
    for tensor, along in bounds.positions.items():
        own = (axis is not None and axis.extent in extents for axis in _axes(scope, tensor))
        if bounds.size(along) == size and all(own):
            return False
    compared = (
        isinstance(part, Size) and bounds.size(part.extent) == size
        for part in walk(position.condition)
    )
    return not any(accesses(position.position)) or any(compared)


def only_where_there_is(
    scope: Scope, value: Value, needed: Sequence[str], order: Sequence[Index]
) -> Value:
    """value, or zeros where one of the extents has no positions."""
    needed = [e for e in dict.fromkeys(needed) if not has_positions(scope.frame, e)]
    if not needed:
        return value
    value = scope.frame.expand(value, order, scope.like)
    nothing = Value(Literal("0"), kind=value.kind, scalar=True)
    zero = scope.frame.expand(nothing, order, scope.like)
    test: Code = Dim(needed[0])
    for extent in needed[1:]:
        test = Binary("and", test, Dim(extent))
    return replace(value, code=Conditional(test, value.code, zero.code))


def _won_along(scope: Scope, t: Term, formals: Sequence[Index]) -> Iterator[str]:
    """The extents of the axes along which the term reads winners or shares a tie."""
    for e in walk(t):
        match e:
            case Access(tensor, positions):
                let = scope.find(tensor)
                if let is not None and let.kind in POSITIONS and let.internal:
                    yield from (i.extent for i in let.binders)
                homes = [i.extent if isinstance(i, Index) else None for i in _axes(scope, tensor)]
                for home, position in zip(homes, positions, strict=True):
                    yield from _read_by_winner(scope, home, position)
            case Delta(Index(_, extent), position):
                yield from _read_by_winner(scope, extent, position)
    around = {i.extent for i in formals}
    for f in t.factors:
        base, exponent = base_and_power(f)
        if exponent < Fraction(0):
            yield from (e for e in _tied_along(scope, base) if e not in around)


def _axes(scope: Scope, tensor: str) -> Sequence[Index | None]:
    let = scope.find(tensor)
    return scope.tensor(tensor).indices if let is None else let.formals


def _read_by_winner(scope: Scope, home: str | None, position: Expr) -> Iterator[str]:
    """The extent of an axis, if the position on it is that of a winner along such an axis.

    Of axes that were joined each must have a position for what is read of it where it won.
    """
    if isinstance(position, Guard) and home is not None:
        read = (scope.find(a.tensor) for a in accesses(position.position))
        if any(let is not None and let.kind in POSITIONS and let.internal for let in read):
            yield home
    if isinstance(position, Access):
        let = scope.find(position.tensor)
        if let is not None and let.kind in POSITIONS:
            yield from (i.extent for i in let.binders if i.extent == home)


def _tied_along(scope: Scope, count: Expr) -> Iterator[str]:
    """The extents of the axes along which the number of those equal to an extremum is counted."""
    for t in walk(count):
        if isinstance(t, Term):
            for f in t.factors:
                match f:
                    case Iverson(Rel("==", _, Poly() as extremum)):
                        top = as_atom(extremum)
                        let = scope.find(top.tensor) if isinstance(top, Access) else None
                        if let is not None and let.reduction.gradient == "shared":
                            yield from (i.extent for i in t.binders if i in free_indices(f))
