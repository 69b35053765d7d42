"""Explain why a gradient is wrong: the first explanation that is exact at every point.

With right = Sum_k T_k, the hand-written gradient is fitted by

    a*right,  Sum_k a_k*T_k,  right with one factor, term, sign, number or function changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, permutations

import numpy as np

from derive.algebra.expr import Expr, Index, Mul, Num, Reduce, Size, free_indices, walk
from derive.algebra.interpret import Array
from derive.auditing.evidence import Evidence, as_number, as_product
from derive.auditing.model import Model
from derive.auditing.points import is_tensor
from derive.auditing.terms import (
    Change,
    changes,
    described,
    divisors,
    everywhere,
    factors_left_out,
    multiples,
    replacements,
    scaled,
    terms,
)
from derive.reports.formula import Formula, inlined

_MOST_TERMS = 10
_MOST_CHANGES = 3000
_SEVERAL = range(2, 5)


def explain(evidence: Evidence) -> str:
    """Explain a gradient with one mistake; '' if no explanation is exact."""
    found = _explain_none(evidence) or _explain_scaled(evidence) or _explain_permuted(evidence)
    if not found and evidence.formula is not None:
        found = (
            _explain_wrong_sum(evidence)
            or _explain_scaled_terms(evidence, (1,))
            # A changed factor in one term that cancels another would explain these too.
            or _explain_scaled_terms(evidence, (2,), "the term ")
            or _explain_one_change(evidence)
        )
    return found or _explain_other_input(evidence, True)


def explain_further(evidence: Evidence) -> str:
    """Try several terms and unlikely changes, which may also fit by chance."""
    if evidence.formula is None:
        return ""
    return _explain_scaled_terms(evidence, _SEVERAL) or _by_further_changes(evidence)


def _raws(evidence: Evidence) -> list[Array | None]:
    """Return what backward returns at each point; None where that is no tensor."""
    raws = [o.returned(evidence.n) for o in evidence.outcomes]
    return [np.asarray(r.detach().cpu().double()) if is_tensor(r) else None for r in raws]


def _explain_none(evidence: Evidence) -> str:
    """Explain a gradient that is None at every point."""
    if any(o.raw is None for o in evidence.outcomes):
        return ""
    n = evidence.n
    nothing = all(o.raw[n : n + 1] == (None,) for o in evidence.outcomes if o.raw is not None)
    return "there is none: backward returns None for it" if nothing else ""


def _explain_permuted(evidence: Evidence) -> str:
    """Explain a gradient that is 0, transposed, or that of another input."""
    made = _raws(evidence)
    if any(r is None for r in made):
        return ""
    given = [r for r in made if r is not None]
    if all(not g.any() for g in given):
        return "it is 0"
    for axes in permutations(range(given[0].ndim)) if evidence.are_all else ():
        if axes != tuple(range(given[0].ndim)) and all(
            g.ndim == len(axes) and evidence.same(g.transpose(axes), r)
            for g, r in zip(given, evidence.right, strict=True)
        ):
            return f"it is transposed: its axes come in another order, permute{axes} mends it"
    return _explain_other_input(evidence, False)


def _explain_other_input(evidence: Evidence, is_right: bool) -> str:
    """Explain a gradient equal to that of another input, whose own gradient is right (or not)."""
    n = evidence.n
    for other in evidence.outcomes[0].right:
        mine = Evidence(other, evidence.names, evidence.cotangents, evidence.outcomes)
        if other == n or not all(map(evidence.same, evidence.given, mine.right)):
            continue
        if all(map(evidence.same, mine.given, mine.right)) == is_right:
            return f"it is the gradient of {evidence.names[other]}"
    return ""


def _explain_scaled(evidence: Evidence) -> str:
    """Explain a gradient that is the right one times a number, a size or a scalar argument."""
    if not evidence.has_right_shapes:
        return ""
    ratios = []
    for given, right in zip(evidence.given, evidence.right, strict=True):
        square = float((right * right).sum())
        if not square:
            return ""
        ratio = float((given * right).sum()) / square
        if not evidence.same(ratio * right, given):
            return ""
        ratios.append(ratio)
    body = None if evidence.formula is None else evidence.formula.body
    return _describe_ratio(evidence, ratios, body, "")


def _describe_ratio(
    evidence: Evidence, ratios: Sequence[float], body: Expr | None, where: str
) -> str:
    """Describe a ratio; '' if it is no product of known symbols."""
    number = as_number(ratios)
    if number == 1:
        return ""
    text = None if number is not None else as_product(ratios, evidence.symbols)
    if number is None and text is None:
        return ""
    if body is None:
        return scaled(number, text, None, where)
    factors = (f for part in walk(body) if isinstance(part, Mul) for f in part.args)
    sizes = {evidence.shown(f) for f in factors if isinstance(f, Size)}
    return scaled(number, text, _divisors(evidence, body), where, sizes)


def _divisors(evidence: Evidence, body: Expr) -> set[str]:
    """Return the symbols and numbers that a part of a derived gradient is divided by."""
    assert evidence.model is not None
    body = evidence.model.opened(body)
    found = {evidence.shown(p) for d in divisors(body) for p in walk(d) if not isinstance(p, Num)}
    if any(isinstance(d, Size) for d in divisors(body)):
        # A mean over several indices is divided by the size of each, or of all.
        found |= evidence.sizes.keys()
    return found | {str(p.value.denominator) for p in walk(body) if isinstance(p, Num)}


def _explain_wrong_sum(evidence: Evidence) -> str:
    """Explain a gradient summed over the wrong indices."""
    formula, model = evidence.formula, evidence.model
    assert formula is not None and model is not None
    made = [r for r in _raws(evidence) if r is not None]
    if len(made) < len(evidence.outcomes):
        return ""
    if all(m.shape == r.shape for m, r in zip(made, evidence.right, strict=True)):
        return ""
    body = model.opened(formula.body)
    free = [a for a in formula.axes if isinstance(a, Index)]
    factors = body.args if isinstance(body, Mul) else (body,)
    for at, part in enumerate(factors):
        if not (isinstance(part, Reduce) and part.kind == "sum" and part.condition is None):
            continue
        rest = (*factors[:at], part.body, *factors[at + 1 :])
        whole = Mul(rest) if len(rest) > 1 else rest[0]
        every = [*free, *part.indices]
        for axes in permutations(every, made[0].ndim):
            summed = tuple(i for i in every if i not in axes)
            for left in {summed, ()}:
                inside = Reduce("sum", left, whole) if left else whole
                if not free_indices(inside) <= set(axes):
                    continue
                filled = (v.filled(axes, inside) for v in evidence.values)
                if all(map(evidence.same, filled, made)):
                    return _summed(model, part.indices, left)
    return ""


def _summed(model: Model, right: Sequence[Index], given: Sequence[Index]) -> str:
    def letters(indices: Sequence[Index]) -> str:
        return ", ".join(model.letters.get(i.extent, i.name) for i in indices)

    if not given:
        return f"the sum over {letters(right)} is missing"
    return f"the sum is over {letters(given)}; it should be over {letters(right)}"


def _explain_scaled_terms(evidence: Evidence, counts: Sequence[int], start: str = "") -> str:
    """Explain a gradient as the sum of right terms, ``counts`` of them scaled and told so."""
    formula, model = evidence.formula, evidence.model
    assert formula is not None and model is not None
    if not evidence.has_right_shapes:
        return ""
    for body in dict.fromkeys((formula.body, model.opened(formula.body))):
        parts = terms(body)
        if not 2 <= len(parts) <= _MOST_TERMS:
            continue
        arrays = [[v.filled(formula.axes, t) for t in parts] for v in evidence.values]
        for many in counts:
            for chosen in combinations(range(len(parts)), many):
                found = _fit_term_coefficients(evidence, parts, arrays, chosen)
                if found and all(told.startswith(start) for told in found.split("; ")):
                    return found
    return ""


def _fit_term_coefficients(
    evidence: Evidence, parts: Sequence[Expr], arrays: list[list[Array]], chosen: Sequence[int]
) -> str:
    """Explain these terms by their fitted coefficients, if the others are right."""
    model = evidence.model
    assert model is not None
    every = []
    for given, right, values in zip(evidence.given, evidence.right, arrays, strict=True):
        matrix = np.stack([values[k].ravel() for k in chosen], axis=1)
        if matrix.shape[0] < len(chosen) + (len(chosen) > 1):
            return ""
        found, _, rank, _ = np.linalg.lstsq(matrix, (given - right).ravel(), rcond=1e-9)
        if rank < len(chosen) or not evidence.same(
            (matrix @ found).reshape(right.shape) + right, given
        ):
            return ""
        every.append(found + 1)
    told = []
    for at, k in enumerate(chosen):
        ratios = [float(coefficients[at]) for coefficients in every]
        text = _describe_ratio(
            evidence, ratios, parts[k], f" in the term {evidence.shown(parts[k])}"
        )
        if as_number(ratios) == 0:
            text = f"the term {evidence.shown(parts[k])} is missing"
        elif as_number(ratios) == -1:
            text = f"the sign of the term {evidence.shown(parts[k])} is wrong"
        if not text:
            return ""
        told.append(text)
    return "; ".join(told)


_Maker = Callable[[Expr], Iterator[Change]]


def _explain_one_change(evidence: Evidence) -> str:
    """Explain by one change of the formula or of one of its terms."""
    formula, bodies = _formula_and_bodies(evidence)
    changed = partial(changes, free=free_indices_of(formula.axes))
    return _first_fitting_stage(
        evidence,
        (factors_left_out, bodies, False),
        (everywhere, bodies, False),
        (changed, bodies, True),
        (changed, bodies, False),
    )


def _by_further_changes(evidence: Evidence) -> str:
    """Explain by one more factor, another tensor, or a changed definition of a name."""
    formula, bodies = _formula_and_bodies(evidence)
    model = evidence.model
    assert model is not None
    free = free_indices_of(formula.axes)
    near = [b for b in map(model.outputs_opened, bodies) if b not in bodies]
    once = list(map(model.written_out, bodies))
    every = (*near, *once, *map(model.written_out, once))
    deep = list(dict.fromkeys(b for b in every if b not in bodies))
    axes = evidence.values[0].axes
    adjoints = {f.name for f in model.derived.adjoints}
    names = [n for n in axes if n in evidence.values[0].known and n not in adjoints]
    multiplied = partial(multiples, free=free, axes=axes, names=names)
    changed = partial(changes, free=free)
    kinds = {n: array.dtype.kind for n, array in evidence.values[0].known.items()}
    replaced = partial(replacements, axes=axes, names=names, kinds=kinds)
    return _first_fitting_stage(
        evidence,
        (multiplied, bodies, False),
        (multiplied, bodies, True),
        (replaced, bodies, False),
        (replaced, bodies, True),
        (changed, deep, True),
        (changed, deep, False),
        (replaced, deep, False),
        (everywhere, deep, False),
    ) or _explain_redefined_name(evidence, [*bodies, *near])


def _formula_and_bodies(evidence: Evidence) -> tuple[Formula, list[Expr]]:
    """Return the formula, and its body with and without adjoints inlined."""
    formula, model = evidence.formula, evidence.model
    assert formula is not None and model is not None
    return formula, list(dict.fromkeys((formula.body, model.opened(formula.body))))


def _first_fitting_stage(evidence: Evidence, *stages: tuple[_Maker, list[Expr], bool]) -> str:
    """Explain by the first change that fits; each stage rewrites whole bodies or single terms."""
    if not evidence.has_right_shapes:
        return ""
    tried: set[Expr] = set()
    for make, of, apart in stages:
        for body in of:
            found = _first_fitting_change(evidence, make, body, apart, tried)
            if found:
                return found
    return ""


def _explain_redefined_name(evidence: Evidence, bodies: Sequence[Expr]) -> str:
    """Explain by a name that backward recomputes in another way than forward."""
    if not evidence.has_right_shapes:
        return ""
    formula, model = evidence.formula, evidence.model
    assert formula is not None and model is not None
    every = (*model.derived.equations, *model.derived.definitions)
    for definition in every:
        if definition.name in model.operation.outputs:
            continue
        if not all(isinstance(a, Index) for a in definition.axes):
            continue
        free = free_indices_of(definition.axes)
        for change in changes(definition.body, free):
            other = Formula(definition.name, definition.axes, change.after)
            for body in bodies:
                after = inlined(body, {other.name: other}, deep=False)
                if after is not body and evidence.fits(formula.axes, after, evidence.given):
                    shown = partial(model.shown, axes=definition.axes)
                    where = f" in {definition.name}"
                    return described(change, definition.body, shown, where)
    return ""


def _first_fitting_change(
    evidence: Evidence,
    make: Callable[[Expr], Iterator[Change]],
    body: Expr,
    apart: bool,
    tried: set[Expr],
) -> str:
    """Explain by the first change of the body that fits, or with ``apart`` of one of its terms."""
    formula, model = evidence.formula, evidence.model
    assert formula is not None and model is not None
    parts = terms(body) if apart else (body,)
    if apart and len(parts) < 2 and parts[0] is body:
        return ""
    for part in parts:
        wanted = evidence.given
        if apart:
            own = [v.filled(formula.axes, part) for v in evidence.values]
            wanted = [
                g - r + t for g, r, t in zip(evidence.given, evidence.right, own, strict=True)
            ]
        for count, change in enumerate(make(part)):
            if count > _MOST_CHANGES:
                break
            if not apart:
                if change.after in tried:
                    continue
                tried.add(change.after)
            if evidence.fits(formula.axes, change.after, wanted):
                where = f" in the term {evidence.shown(part)}" if len(parts) > 1 else ""
                return described(change, part, evidence.shown, where)
    return ""


def free_indices_of(axes: Sequence[Expr]) -> frozenset[Index]:
    """Return the indices of the axes on the left side."""
    return frozenset().union(*map(free_indices, axes))
