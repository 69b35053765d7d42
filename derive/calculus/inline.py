"""Inline adjoints whose name does not pay for itself.

    grad_x = f'(x)*grad_y,  grad_y = ...     or     grad_x = f'(x)*(...)

An adjoint is inlined if the total cost does not rise. Common subexpressions of several gradients
count once, so that a sum that one gradient needs anyway is free for another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from derive.algebra import expr as ex
from derive.algebra.poly import Poly, Term, poly
from derive.algebra.rules import (
    DELTA_RULES,
    FUNCTION_RULES,
    PAIRED,
    Log,
    Rules,
    Step,
    eliminate_deltas,
    simplify,
)
from derive.budget import at
from derive.calculus.adjoint import Adjoint, Backward
from derive.calculus.bracket_rules import zero_rule
from derive.calculus.fold import fold_rules, naming_rules
from derive.calculus.lets import Lets, formula_size, inline, is_named_sum
from derive.calculus.ratio_rules import quotient_rules

_MOST_TERMS = 6
"""An adjoint with more terms than this is never inlined: products of sums multiply out."""

_LARGEST = 40
"""A formula with more factors and binders than this inlines nothing that makes it larger.

So in a chain of any length, the formula behind a name is bounded.
"""

_FAR = 10**30
"""A coefficient farther from 1 than this factor blocks inlining."""

_NAME = 200.0
"""The cost of a name, in cost units: less than one pass over a matrix."""

_MOST_COPIES = 3
"""A sum read in more terms than this keeps its name, unless inlining makes the code cheaper."""

Pieces = Callable[[Poly], Mapping[ex.Expr, float]]


class _Bill:
    """The cost of a set of formulas; each distinct operation in them is paid once."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._uses: Counter[ex.Expr] = Counter()

    def count(self, polys: Iterable[Poly], times: int) -> float:
        """Add formulas with 1, remove them with -1; return the rise, or the fall, of the cost."""
        change = 0.0
        for p in polys:
            for operation, price in self._pieces(p).items():
                before = self._uses[operation]
                self._uses[operation] += times
                change += price if 0 in (before, before + times) else 0.0
        return change


class _Formulas:
    """Adjoints and gradients by name, and which of them read which."""

    def __init__(self, formulas: Sequence[Adjoint]) -> None:
        self._by_name = {a.name: a for a in formulas}
        self._readers: dict[str, dict[str, None]] = {a.name: {} for a in formulas}
        for a in formulas:
            self._note(a)

    def _note(self, reader: Adjoint) -> None:
        for name in ex.tensors(reader.body):
            if name in self._readers:
                self._readers[name][reader.name] = None

    def __contains__(self, a: Adjoint) -> bool:
        return a.name in self._by_name

    def __getitem__(self, name: str) -> Adjoint:
        return self._by_name[name]

    def readers(self, name: str) -> list[Adjoint]:
        """The formulas that read this one."""
        found = (self._by_name[r] for r in self._readers[name] if r in self._by_name)
        return [a for a in found if name in ex.tensors(a.body)]

    def replace(self, gone: Adjoint, new: Sequence[Adjoint]) -> None:
        """Remove a formula, and replace its readers by these."""
        del self._by_name[gone.name]
        for a in new:
            self._by_name[a.name] = a
            self._note(a)


def _is_worse(adjoint: Adjoint, reader: Adjoint, opened: Adjoint) -> bool:
    """True if a reader must not inline the adjoint, whatever the cost."""
    grown = formula_size(opened.body) > max(formula_size(reader.body), _LARGEST)
    paired = _pairs_up(adjoint, reader, opened) or _moves_an_end(adjoint, reader)
    return paired or grown or _is_extreme(opened.body)


def _inline_if_cheaper(
    formulas: _Formulas, adjoint: Adjoint, bill: _Bill, opened_by: _InlinedReaders
) -> None:
    """Inline the adjoint in every reader, if that costs no more."""
    if len(adjoint.body.terms) > _MOST_TERMS:
        return
    readers = formulas.readers(adjoint.name)
    opened = [opened_by.of(r, adjoint) for r in readers]
    if any(_is_worse(adjoint, r, o) for r, o in zip(readers, opened, strict=True)):
        return
    old, new = [a.body for a in (adjoint, *readers)], [a.body for a in opened]
    fall = bill.count(old, -1)
    name = -_NAME if _is_repeated(adjoint, readers) else _NAME
    if bill.count(new, 1) <= fall + name:
        formulas.replace(adjoint, opened)
    else:
        bill.count(new, -1)
        bill.count(old, 1)


def inline_adjoints(backward: Backward, pieces: Pieces) -> Backward:
    """Inline every adjoint whose name does not pay for itself.

    Adjoints are visited in reverse program order and then in program order. ``pieces`` returns the
    distinct operations of a formula with their costs.
    """
    every = (*backward.adjoints, *backward.gradients)
    lets = backward.lets
    folds = fold_rules(lets, backward.opened())
    rules: Rules = (*folds, *FUNCTION_RULES, *quotient_rules(lets), zero_rule(lets))
    naming = (*naming_rules(lets), *FUNCTION_RULES)
    opened_by = _InlinedReaders(rules, lets.display_name)
    pieces = _with_named_sums(lets, pieces)
    formulas = _Formulas(every)
    bill = _Bill(pieces)
    bill.count((a.body for a in every), 1)
    candidates = [
        a for a in backward.adjoints if a.tensor not in backward.wanted and not _has_cases(a)
    ]
    for candidate in (*candidates[::-1], *candidates):
        if candidate in formulas:
            at(f"the gradient of {lets.display_name(candidate.tensor)}")
            _inline_if_cheaper(formulas, formulas[candidate.name], bill, opened_by)
    for a in (formulas[a.name] for a in every if a in formulas):
        at(f"the gradient of {lets.display_name(a.tensor)}")
        shorter = _collected(_without_names(a, lets, naming, pieces), lets, pieces)
        if shorter is not a:
            formulas.replace(a, [shorter])
    return replace(
        backward,
        adjoints=tuple(formulas[a.name] for a in backward.adjoints if a in formulas),
        gradients=tuple(formulas[a.name] for a in backward.gradients),
    )


def _is_repeated(adjoint: Adjoint, readers: Sequence[Adjoint]) -> bool:
    """True if inlining would copy a sum too many times."""
    reading = sum(adjoint.name in ex.tensors(t) for r in readers for t in r.body.terms)
    return len(adjoint.body.terms) > 1 and reading > _MOST_COPIES


def _with_named_sums(lets: Lets, pieces: Pieces) -> Pieces:
    """``pieces`` extended to the operations of the sums that the engine named."""

    def every(p: Poly) -> Mapping[ex.Expr, float]:
        found = dict(pieces(p))
        for name in sorted(ex.tensors(p)):
            let = lets.get(name)
            if let is not None and is_named_sum(let):
                found |= every(let.body)
        return found

    return cache(every)


def _has_cases(a: Adjoint) -> bool:
    """True if the adjoint has a separate value at each position of a short axis.

    The stack of these values is multiplied once; inlined, each case would be multiplied separately.
    """
    cases = {f for t in a.body.terms for f in t.factors if isinstance(f, ex.Delta)}
    return sum(isinstance(d.position, ex.Num) for d in cases) > 1


def _pairs_up(adjoint: Adjoint, reader: Adjoint, opened: Adjoint) -> bool:
    """True if inlining would compare integer positions of one formula with those of the other.

    Sum_n [a[e] = n]*Sum_e' [a[e'] = n]*x[e'] has n sums; inlined it is a tensor of all pairs e, e'.
    """
    return _looked_up(opened.body) > max(1, _looked_up(adjoint.body), _looked_up(reader.body))


def _moves_an_end(adjoint: Adjoint, reader: Adjoint) -> bool:
    """True if inlining would put shifted positions into a comparison of whole indices.

    Sum_j [i <= j]*grad_u[j], grad_u[j] = Sum_k delta(j, k + 1)*x[k], is a cumulative sum of a
    scattered tensor. Inlined, it is one over other positions, or is not recognized: Sum_k [i <= k +
    1]*x[k].
    """
    placed = (f.position for t in adjoint.body.terms for f in t.factors if isinstance(f, ex.Delta))
    if all(isinstance(p, ex.Index | ex.Num) for p in placed):
        return False
    for t in reader.body.terms:
        at = {
            p
            for f in t.factors
            if isinstance(f, ex.Access) and f.tensor == adjoint.name
            for p in f.positions
        }
        masks = (ex.free_indices(f) for f in t.factors if isinstance(f, ex.Iverson))
        if any(len(free) > 1 and free & at & {*t.binders} for free in masks):
            return True
    return False


def _looked_up(p: Poly) -> int:
    """The largest number of tensors that one delta or bracket reads."""
    masks = (f for t in p.terms for f in t.factors if isinstance(f, ex.Delta | ex.Iverson))
    return max((len(set(ex.accesses(f))) for f in masks), default=0)


def _without_names(a: Adjoint, lets: Lets, rules: Rules, pieces: Pieces) -> Adjoint:
    """The formula with engine-named sums like 1 - t multiplied out, if that is cheaper.

    (1 - t)*sigmoid(x) - t*sigmoid(-x) = sigmoid(x) - t

    The rules omit sums known to be 0, which would cancel a part of the factor: 1 - y^2 would become
    -y^2.
    """
    # Expanding a product adds terms, so other terms must be present to cancel them.
    for name in sorted(ex.tensors(a.body)) if len(a.body.terms) > 1 else ():
        let = lets.get(name)
        if let is None or not is_named_sum(let):
            continue
        if len(let.body.terms) < 2 or sum(bool(ex.tensors(t)) for t in let.body.terms) > 1:
            continue
        body = inline(a.body, let)
        if len(body.terms) > len(a.body.terms) + _paired_terms(body):
            continue
        log: Log = [Step("multiply out", "(a + b)·c = a·c + b·c", a.body, body)]
        body = simplify(body, rules, log)
        cheaper = sum(pieces(body).values()) < sum(pieces(a.body).values())
        if cheaper and len(body.terms) <= len(a.body.terms):
            a = a.rewritten(body, log)
    return a


def _paired_terms(p: Poly) -> int:
    """The number of terms that may combine with another by an identity of their functions."""
    calls = ((f for f in t.factors if isinstance(f, ex.Call)) for t in p.terms)
    return sum(any(f.function in PAIRED for f in of) for of in calls)


def _collected(a: Adjoint, lets: Lets, pieces: Pieces) -> Adjoint:
    """The formula with the names of sums expanded where one of their terms stands beside them.

    With u = 1 - t, a*u - a*t = a - 2*a*t
    """
    for name in sorted(ex.tensors(a.body)):
        let = lets.get(name)
        if let is None or not is_named_sum(let) or any(t.binders for t in let.body.terms):
            continue
        terms: list[Term] = []
        there = {(t.binders, t.factors) for t in a.body.terms}
        for t in a.body.terms:
            opened = inline(poly([t]), let).terms if name in ex.tensors(t) else ()
            alike = any((o.binders, o.factors) in there for o in opened)
            terms += opened if alike else (t,)
        body = poly(terms)
        if body is a.body or len(body.terms) > len(a.body.terms):
            continue
        if sum(pieces(body).values()) <= sum(pieces(a.body).values()):
            a = a.rewritten(body, [Step("collect", "a + (a + b) = 2·a + b", a.body, body)])
    return a


def _is_extreme(p: Poly) -> bool:
    """True if a coefficient of p is close to the range limits of floats."""
    sizes = ((abs(t.coef.numerator), t.coef.denominator) for t in p.terms)
    return any(not (below < _FAR * above and above < _FAR * below) for above, below in sizes)


class _InlinedReaders:
    """Formulas with an adjoint's name inlined, memoized per pair."""

    def __init__(self, rules: Rules, display_name: Callable[[str], str]) -> None:
        self._rules = rules
        self._say = display_name
        self._made: dict[tuple[int, int], tuple[Adjoint, Adjoint, Adjoint]] = {}

    def of(self, reader: Adjoint, adjoint: Adjoint) -> Adjoint:
        """The reader with the name inlined; arguments are kept alive, so ids stay unique."""
        key = id(reader), id(adjoint)
        if key not in self._made:
            self._made[key] = reader, adjoint, self._make(reader, adjoint)
        return self._made[key][2]

    def _make(self, reader: Adjoint, adjoint: Adjoint) -> Adjoint:
        body = inline(reader.body, adjoint.as_let())
        name = self._say(adjoint.name)
        step = Step(f"substitute {name}", f"{name} by its definition", reader.body, body)
        log: Log = [step]
        body = simplify(eliminate_deltas(body, DELTA_RULES, log), self._rules, log)
        return reader.rewritten(body, log, adjoint.steps)
