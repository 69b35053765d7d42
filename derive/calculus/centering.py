"""Differences X[i,d] - Y[j,d] with more axes than any tensor: centered, or formed as written.

    Sum_d (X - Y)^2        =  Sum_d X'^2 + Sum_d Y'^2 - 2*Sum_d X'*Y'
    Sum_j G[i,j]*(X - Y)   =  X'*Sum_j G - Sum_j G*Y'               X' = X - c, Y' = Y - c

Both hold for every c[d]. Far from the origin the right sides lose the digits that X and Y share. So
c is the mean of one side if most of that side lies about it. The center has no gradient, since no
derivative of any order depends on it. If a factor beside the square may be infinite, inf - inf
would be nan: there the difference is formed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain
from math import inf

from derive.algebra import expr as ex
from derive.algebra.functions import FUNCTIONS
from derive.algebra.poly import (
    ZERO,
    Poly,
    Term,
    add,
    as_atom,
    atom,
    make_term,
    mul,
    poly,
    power,
    scale,
    sum_over,
)
from derive.algebra.rules import Rules, simplify
from derive.algebra.squares import RobustCenter, Square, square_to_open
from derive.calculus.adjoint import Adjoint, Backward
from derive.calculus.fold import Multiple, fold_rules, multiples
from derive.calculus.lets import Let, Lets
from derive.calculus.softmax import recognise_under
from derive.calculus.value_analysis import Facts, ValueFacts
from derive.notation.operation import Operation


def with_centres(op: Operation, lets: Lets, backward: Backward) -> tuple[Lets, Backward]:
    """Return the definitions and gradients with every difference centered or formed.

    The arguments are left unchanged, for the formulas that are shown.
    """
    work = _Differences.of(op, lets.apart())
    work.under_roots = _under_roots(lets)
    for let in lets:
        for e in (let.body, let.condition):
            work.look(e)
    made: dict[str, Let] = {}
    rules = fold_rules(work.lets, made)

    def rewritten(a: Adjoint) -> Adjoint:
        body = work.body(a.body, rules)
        if a.tensor not in backward.added:
            made[a.name] = a.as_let()
        return replace(a, body=body)

    new = {}
    for let in lets:
        condition = None if let.condition is None else work.nested(let.condition)
        new[let.name] = replace(let, body=work.body(let.body, ()), condition=condition)
    backward = backward.each(rewritten)
    work.lets.by_name.update(new)
    return work.lets, replace(backward, lets=work.lets)


@dataclass
class _Differences:
    """The pass over one operation.

    ``formed`` names the lets of differences that are formed: beside them a factor may be infinite.
    """

    lets: Lets
    integers: frozenset[str]
    values: ValueFacts
    formed: set[str] = field(default_factory=set)
    under_roots: set[ex.Expr] = field(default_factory=set)
    _known: dict[ex.Expr, ex.Expr] = field(default_factory=dict)
    _centred: dict[Poly, Poly | None] = field(default_factory=dict)

    @classmethod
    def of(cls, op: Operation, lets: Lets) -> _Differences:
        """The pass for this operation; it adds lets to ``lets``."""
        kinds = {t.name: t.kind for t in op.inputs} | {let.name: let.dtype for let in lets}
        integers = frozenset(name for name, kind in kinds.items() if kind != "float")
        return cls(lets, integers, ValueFacts(lets.get))

    # ---------------------------------------------------------------- squares

    def look(self, body: ex.Expr | None) -> None:
        """Record the differences of an equation that must be formed."""
        for t in () if body is None else ex.walk(body):
            square = square_to_open(t) if isinstance(t, Term) else None
            if square is not None and not (
                self._is_safe(square) and (t not in self.under_roots or self._is_above_0(square))
            ):
                self.formed.add(self._as_let(square.base).tensor)

    def _is_safe(self, square: Square) -> bool:
        """True if no part of the expanded square is infinite where the square is not.

        A factor that has only the common axes scales all differences alike. Sides that are centered
        are no larger than the differences.
        """
        base = square.base
        factors = [f for t in base.terms for f in t.factors if not isinstance(f, ex.Access)]
        own = ex.free_indices(base) if self.centred(base) is None else _unshared_axes(base)
        inside = (f for f in (*square.inside, *factors) if ex.free_indices(f) & own)
        return all(self._facts(f).moderate for f in inside)

    def _facts(self, e: ex.Expr) -> Facts:
        return self.values.facts(recognise_under(e, self.lets.get, ()))

    def _as_let(self, base: Poly) -> ex.Access:
        found = as_atom(self.lets.reduction("sum", (), base))
        assert isinstance(found, ex.Access)
        return found

    def _is_formed(self, base: Poly) -> bool:
        # In k - x[s], the values of x are about one position each, with no center for all.
        read = [[a.tensor for a in ex.accesses(side)] for side in _sides_by_axes(base)]
        if len(read) > 1 and not all(read) and not self.integers.issuperset(chain(*read)):
            return True
        return bool(self.formed) and self._as_let(base).tensor in self.formed

    def body(self, body: Poly, rules: Rules) -> Poly:
        """A body with every difference in it centered or formed.

        ``rules`` are those by which the body was simplified.
        """
        for base in self._bases:
            body = self._recombined(body, base, lambda p: simplify(p, rules, []))
        new = self.nested(body)
        assert isinstance(new, Poly)
        return new

    def nested(self, e: ex.Expr) -> ex.Expr:
        """e, flat, with every difference in it centered or formed."""
        found = self._known.get(e)
        if found is None:
            found = e
            if isinstance(found, Poly):
                for base in self._bases:
                    found = self._recombined(found, base, lambda p: p)
            if not isinstance(found, ex.Access):
                found = found.map(self.nested)
            if isinstance(found, Poly):
                found = add(ZERO, *map(self._opened, found.terms))
            self._known[e] = found
        return found

    def _opened(self, t: Term) -> Poly:
        square = square_to_open(t)
        if square is None:
            return poly([t])
        if self._is_formed(square.base):
            return square.with_base(atom(self._as_let(square.base)))
        centred = self.centred(square.base) or square.base
        return square.opened(centred, self._is_above_0(square))

    def _is_above_0(self, square: Square) -> bool:
        return all(self._facts(f).low >= 0 for f in square.inside)

    # ---------------------------------------------------------------- centres

    def centred(self, base: Poly) -> Poly | None:
        """The sum of its centered sides; None if they have no common center."""
        if base not in self._centred:
            scale_of_all, rest = _common_factor(base)
            inner = self._centred_sides(rest)
            self._centred[base] = None if inner is None else mul(scale_of_all, inner)
        return self._centred[base]

    def _centred_sides(self, base: Poly) -> Poly | None:
        sides = _sides_by_axes(base)
        read = [[a.tensor for a in ex.accesses(side)] for side in sides]
        if len(sides) < 2 or not all(read) or self.integers.issuperset(chain(*read)):
            return None
        if not all(
            _is_plain_position(position) for a in ex.accesses(base) for position in a.positions
        ):
            return None
        common = frozenset.intersection(*map(ex.free_indices, sides))
        first, *others = sorted(sides, key=_simplicity)
        moves, whole = ZERO, ZERO
        for side in others:
            sign = _sign(side)
            centre = scale(self._centre(scale(side, sign), common), sign)
            moves = add(moves, centre)
            whole = add(whole, self._named(add(side, scale(centre, -1)), side))
        if len(others) > 1:
            # Means are added to one another first: they may be larger than their sum.
            moves = self._let(moves, first, "centre", "centre")
        return add(self._named(add(first, moves), first), whole)

    def _centre(self, side: Poly, common: frozenset[ex.Index]) -> Poly:
        """The mean over all axes but the common ones, if most of the side lies about it."""
        over = sorted(ex.free_indices(side) - common, key=lambda i: i.name)
        sizes = [power(atom(ex.Size(i.extent)), Fraction(-1)) for i in over]
        still = ex.Call("detach", (side,))
        mean, square = (mul(sum_over(atom(still, n), over), *sizes) for n in (1, 2))
        mean = self._let(mean, side, "mean", "mean")
        return self._let(atom(RobustCenter(mean, square)), side, "centre", "centre")

    def _named(self, centred: Poly, side: Poly) -> Poly:
        """A let for a centered side, with the sign of the side."""
        sign = _sign(side)
        said = f"{self.lets.display_name(next(ex.accesses(side)).tensor)}_centred"
        return scale(self._let(scale(centred, sign), side, "centred", said), sign)

    def _let(self, e: Poly, side: Poly, stem: str, display_names: str) -> Poly:
        stem = f"{next(ex.accesses(side)).tensor}~{stem}"
        return self.lets.reduction("sum", (), e, stem=stem, display_names=display_names)

    # ---------------------------------------------------------------- products

    @cached_property
    def _bases(self) -> list[Poly]:
        """The sums that products were distributed over, the outermost first."""
        every = reversed(self.lets.distributed)
        return sorted(every, key=lambda base: not self._is_formed(base))

    def _recombined(self, p: Poly, base: Poly, said: Callable[[Poly], Poly]) -> Poly:
        """Redistribute products of the base over its centered sides."""
        while True:
            found = multiples(p, base, said)
            which = next(((m, rest) for m, rest in found if self._is_recombined(m)), None)
            if which is None:
                return p
            new = atom(self._as_let(base)) if self._is_formed(base) else self.centred(base)
            if new is None:
                return p
            multiple, rest = which
            p = add(rest, said(multiple.of(new)))

    def _is_recombined(self, m: Multiple) -> bool:
        return _loses_digits(m) and all(self.lets.has_value(*pair) for pair in m.mapping.items())


def _under_roots(lets: Lets) -> set[ex.Expr]:
    """Return what the operands of roots and logarithms read, which are nan below 0."""

    def read(e: ex.Expr) -> tuple[ex.Expr, ...]:
        let = lets.get(e.tensor) if isinstance(e, ex.Access) else None
        return e.parts() if let is None else (*e.parts(), let.body)

    every = (e for let in lets for e in ex.walk(let.body) if _is_nan_below_0(e))
    return set(ex.inside_out((e.parts()[0] for e in every), read))


def _is_nan_below_0(e: ex.Expr) -> bool:
    if isinstance(e, ex.Pow):
        return not (isinstance(e.exponent, ex.Num) and e.exponent.value.denominator == 1)
    return isinstance(e, ex.Call) and (FUNCTIONS[e.function].domain or (-inf,))[0] in (0, -1)


def _loses_digits(multiple: Multiple) -> bool:
    """True if the sides of a difference are summed separately.

    They are recombined if nothing is summed, or if a tensor of all their axes stands beside them.
    """
    if len({t.coef > 0 for t in multiple.base.terms}) < 2:
        return False
    sides = [ex.free_indices(multiple.at(side)) for side in _sides_by_axes(multiple.base)]
    axes = frozenset().union(*sides)
    bound = axes & set(multiple.outer.binders)
    covered = any(axes <= ex.free_indices(f) for f in multiple.outer.factors)
    return bool(bound - frozenset.intersection(*sides)) or (bool(bound) and not covered)


def _common_factor(base: Poly) -> tuple[Poly, Poly]:
    """Factor a*X - a*Y as a*(X - Y): the center is that of X and Y."""
    first, *others = base.terms
    shared = [f for f in first.factors if all(f in t.factors for t in others)]
    if any(t.binders for t in base.terms):
        shared = []
    rest = (
        make_term(t.coef, t.binders, [f for f in t.factors if f not in shared]) for t in base.terms
    )
    return poly([make_term(Fraction(1), (), shared)]), poly(rest)


def _sides_by_axes(base: Poly) -> list[Poly]:
    """Group the terms by axes: each joins the first maximal set of axes that contains its own."""
    free = [ex.free_indices(t) for t in base.terms]
    most = [axes for n, axes in enumerate(free) if not any(axes < other for other in free)]
    groups: dict[frozenset[ex.Index], list[Term]] = {axes: [] for axes in most}
    for t, axes in zip(base.terms, free, strict=True):
        groups[next(g for g in groups if axes <= g)].append(t)
    return [poly(terms) for terms in groups.values()]


def _unshared_axes(base: Poly) -> frozenset[ex.Index]:
    """The axes that some side lacks."""
    sides = [ex.free_indices(side) for side in _sides_by_axes(base)]
    return ex.free_indices(base) - frozenset.intersection(*sides)


def _simplicity(side: Poly) -> tuple[int, int]:
    """A sort key that puts the simplest side last: its mean is the cheapest."""
    read = [a for t in side.terms for f in t.factors for a in ex.accesses(f)]
    return -len(side.terms), -len(read)


def _sign(side: Poly) -> int:
    return -1 if all(t.coef < 0 for t in side.terms) else 1


def _is_plain_position(position: ex.Expr) -> bool:
    """True if each index value is read once, or the position is read from a tensor."""
    if isinstance(position, ex.Composite):
        return all(map(_is_plain_position, position.args))
    return isinstance(position, ex.Index | ex.Access) or not ex.free_indices(position)
