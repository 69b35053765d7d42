"""Softmax and concatenation by their definitions, so that nothing later has to know them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from derive.algebra.expr import (
    Add,
    Call,
    Composite,
    Const,
    Expr,
    Index,
    Iverson,
    Mul,
    Reduce,
    Rel,
    Size,
    Where,
    num,
    walk,
)
from derive.algebra.substitution import fresh, substitute
from derive.notation.smart_constructors import difference, product, total
from derive.notation.syntax import SourcePlace, fail


def desugar_softmax(
    x: Expr, outer: Sequence[Index], condition: Expr | None, scope: Iterable[Index], *, log: bool
) -> Expr:
    """Return softmax_k(x) = exp(x - logsumexp_k'(x')), 0 where the condition excludes k.

    With ``log``, return x - logsumexp_k'(x'), -inf where the condition excludes k.
    """
    parts = [x] if condition is None else [x, condition]
    taken = [*scope, *(i for part in parts for i in walk(part) if isinstance(i, Index))]
    renaming: dict[Index, Expr] = {}
    for index in outer:
        renamed = fresh(index, taken)
        taken.append(renamed)
        renaming[index] = renamed
    moved = [substitute(part, renaming) for part in parts]
    difference_ = difference(x, Reduce("logsumexp", tuple(taken[-len(outer) :]), *moved))
    if log:
        if condition is None:
            return difference_
        return Where(condition, difference_, product((num(-1), Const("inf"))))
    result = Call("exp", (difference_,))
    return result if condition is None else Mul((Iverson(condition), result))


def desugar_concat(k: Index, pieces: Sequence[tuple[Index, Expr]], at: SourcePlace | None) -> Expr:
    """Return where(k < s1, a(k), where(k < s1 + s2, b(k - s1), ...)), si the size of each piece.

    Raise an error if a composite has the index of a piece before a constant of unknown size.
    """
    cases: list[tuple[Expr, Expr]] = []
    offset: Expr = num(0)
    for own, piece in pieces:
        moved = _tidy(substitute(_row_major_parts(piece, own, at), {own: difference(k, offset)}))
        offset = total((offset, Size(own.extent)))
        cases.append((Rel("<", k, offset), moved))
    result = cases[-1][1]
    for condition, piece in reversed(cases[:-1]):
        result = Where(condition, piece, result)
    return result


def _row_major_parts(e: Expr, own: Index, at: SourcePlace | None) -> Expr:
    """Replace each composite (a b) that contains the index by a*size(b) + b."""
    e = e.map(lambda part: _row_major_parts(part, own, at))
    if not isinstance(e, Composite) or not any(part is own for part in e.args):
        return e
    number, *rest = e.args
    for part in rest:
        if not isinstance(part, Index):
            fail(
                at,
                "concat joins along an index that precedes a constant in a composite axis; give "
                "the value read there its own equation",
            )
        number = total((product((Size(part.extent), number)), part))
    return number


def _tidy(e: Expr) -> Expr:
    """Flatten nested sums and products again."""
    e = e.map(_tidy)
    if isinstance(e, Add):
        return total(e.args)
    return product(e.args) if isinstance(e, Mul) else e
