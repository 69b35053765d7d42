"""Replace the parts of sums that a kernel computes by the kernel.

Names are expanded only as far as an equation needs it. A kernel replaces whole terms only: other
occurrences of an expanded name keep the name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, lru_cache, partial
from itertools import count, islice

from derive.algebra.expr import (
    Access,
    Expr,
    Index,
    Rel,
    Where,
    free_indices,
    indices_of,
    num,
    tensors,
    walk,
)
from derive.algebra.poly import ZERO, Poly, Term, add, as_poly, make_term, mul, poly
from derive.algebra.substitution import substitute
from derive.calculus.lets import Find, Let, scaled_call
from derive.calculus.softmax import split_log_shares
from derive.kernels.attention import Attentions
from derive.kernels.axis_patterns import AxisPattern, ReductionPattern, Short, StackPattern
from derive.kernels.expansion import UnfoldedBody, expandable_let
from derive.kernels.kernel_spec import Kernel, KernelSpec, most_terms
from derive.kernels.normalization import NormalizationPattern
from derive.kernels.pointwise_pattern import PointwisePattern, kinds_of
from derive.kernels.table import BACKWARD, FORWARD, KERNELS

# -------------------------------------------------------------------------------------------- merge
# Merge kernels that are linear in a cotangent over two cotangents.
#
# c*K(g, x) + c*K(h, x)  =  c*K(g + h, x)


def merge_kernels(p: Poly) -> Poly:
    """The sum with kernels merged that differ only in their cotangents.

    Their cofactors and the indices that they sum over must be equal too.
    """
    found: dict[Hashable, list[tuple[Term, Kernel]]] = {}
    rest: list[Term] = []
    for t in p.terms:
        kernel = _only_kernel(t)
        if kernel is None:
            rest.append(t)
            continue
        beside = tuple(f for f in t.factors if f is not kernel)
        key = (t.binders, beside, kernel.name, _other_arguments(kernel), kernel.along)
        found.setdefault(key, []).append((t, kernel))
    if all(len(same) == 1 for same in found.values()):
        return p
    return add(poly(rest), *map(_merge_cotangents, found.values()))


def _only_kernel(t: Term) -> Kernel | None:
    """The only kernel factor with a cotangent, if no index occurs in the cotangent alone."""
    kernels = [f for f in t.factors if isinstance(f, Kernel)]
    if len(kernels) != 1 or not KERNELS[kernels[0].name].cotangent:
        return None
    (kernel,) = kernels
    cotangent = kernel.args[_cotangent_slot(kernel)]
    covered = free_indices(cotangent) <= indices_of(_other_arguments(kernel))
    return kernel if covered else None


def _cotangent_slot(kernel: Kernel) -> int:
    row = KERNELS[kernel.name]
    return row.arguments.index(row.cotangent)


def _other_arguments(kernel: Kernel) -> tuple[Expr, ...]:
    at = _cotangent_slot(kernel)
    return (*kernel.args[:at], *kernel.args[at + 1 :])


def _merge_cotangents(same: list[tuple[Term, Kernel]]) -> Poly:
    """Merge terms that differ in the cotangent into one; a single term stays unchanged."""
    (first, kernel), *others = same
    if not others:
        return poly([first])
    at = _cotangent_slot(kernel)
    parts = (mul(poly([make_term(t.coef, (), ())]), as_poly(k.args[at])) for t, k in same)
    args = (*kernel.args[:at], add(*parts), *kernel.args[at + 1 :])
    beside = [f for f in first.factors if f is not kernel]
    made = Kernel(kernel.name, args, kernel.along)
    return poly([make_term(Fraction(1), first.binders, [*beside, made])])


# ---------------------------------------------------------------------------------------- recognise

_MOST_TERMS = 48
"""Expansion stops at sums with more terms: each name may double the products."""

_MOST_OPENED = 5
"""The most rounds of expanding names."""


_MADE = frozenset((num(2), num(3), num(4)))
"""The exponents that may result from expanding equal names."""

Plain = PointwisePattern | AxisPattern | StackPattern
"""The pattern of a kernel that needs no saved values."""


@dataclass
class SingleKernels:
    """The kernels with one result as patterns, in the bodies of one program.

    ``rows`` are their patterns, in order of preference.
    """

    rows: Sequence[Plain | ReductionPattern]
    _known: dict[Poly, Poly | None] = field(default_factory=dict)
    """Memoized by body: bodies are lowered twice, with and without statistics."""

    def replaced(self, body: Poly, find: Find) -> Poly | None:
        """The body with one part of it by a kernel."""
        if body not in self._known:
            self._known[body] = self._tried(body, find)
        return self._known[body]

    def _tried(self, body: Poly, find: Find) -> Poly | None:
        kinds = _reachable_kinds(body, find)
        rows = [row for row in self.rows if row.may_be_in(kinds)]
        if not rows:
            return None
        levels = [*islice(_levels(body, find), _MOST_OPENED)]
        for row in rows:
            for level, may in levels:
                if not (row.may_be_in(may) and row.may_be_in(level.kinds)):
                    continue
                for found in row.instances(level.whole):
                    left = level.without(found.whole)
                    if left is not None:
                        return add(ZERO, left, found.made)
        return None


Pattern = SingleKernels | NormalizationPattern | Attentions


def forward_rows(short: Short) -> tuple[Plain, ...]:
    """The patterns of the kernels that a forward may call."""
    return tuple(_pattern(row, short) for row in FORWARD)


def backward_rows(short: Short) -> tuple[Plain, ...]:
    """The patterns of the kernels that a backward may call, backward kernels first."""
    return tuple(_pattern(row, short) for row in (*BACKWARD, *FORWARD))


def smooth_rows(short: Short) -> tuple[Plain, ...]:
    """The patterns of the kernels that a backward of any order may call."""
    return tuple(_pattern(row, short) for row in BACKWARD if row.smooth)


def _pattern(row: KernelSpec, short: Short) -> Plain:
    return StackPattern(row, short) if row.lengths else _of_any(row)


@cache
def _of_any(row: KernelSpec) -> PointwisePattern | AxisPattern:
    """The pattern of a kernel for tensors of any shape, memoized."""
    return AxisPattern(row) if row.along else PointwisePattern(row)


def summed_rows(held: Collection[str]) -> tuple[ReductionPattern, ...]:
    """The patterns of backward kernels for which a sum is known and ``held`` tensors are saved."""
    return tuple(ReductionPattern(row, held) for row in _sloped_rows()) if held else ()


@cache
def _sloped_rows() -> tuple[KernelSpec, ...]:
    rows = (row for row in BACKWARD if row.along and not row.lengths)
    return tuple(row for row in rows if AxisPattern(row).has_slope)


def with_kernels(body: Poly, patterns: Sequence[Pattern], find: Find) -> Poly:
    """The body with kernels, outermost first.

    Log-shares f - logsumexp f are left unchanged, so that both of their terms keep the same form.
    """
    shares, body = split_log_shares(body, find)
    while made := next(filter(None, (p.replaced(body, find) for p in patterns)), None):
        body = made
    body = merge_kernels(body)
    inside = partial(_kernels_inside, patterns=patterns, find=find)
    return add(shares, *(_term(t, inside) for t in body.terms))


def _term(t: Term, inside: Callable[[Expr], Expr]) -> Poly:
    """The term with kernels in its factors, where its binders are free indices.

    These have names there that no index has which a factor binds.
    """
    taken = {i.name for f in t.factors for i in free_indices(f)}
    apart: dict[Index, Index] = {}
    for b in t.binders:
        name = next(n for k in count(1) if (n := b.name + "'" * k) not in taken)
        taken.add(name)
        apart[b] = Index(name, b.extent, b.group)
    factors = [substitute(f, apart) for f in t.factors]
    made = [inside(f) for f in factors]
    if all(a is b for a, b in zip(made, factors, strict=True)):
        return poly([t])
    return poly([make_term(t.coef, tuple(apart.values()), made)])


def _kernels_inside(e: Expr, patterns: Sequence[Pattern], find: Find) -> Expr:
    """The factor with kernels inside it; the fallback equation of a kernel stays unchanged."""
    inside = partial(_kernels_inside, patterns=patterns, find=find)
    if isinstance(e, Poly):
        return with_kernels(e, patterns, find)
    if isinstance(e, Access):
        return e
    if isinstance(e, Where) and isinstance(e.then, Kernel):
        return Where(e.condition, inside(e.then), e.other)
    whole: Expr = e.map(inside)
    return whole


def _levels(body: Poly, find: Find) -> Iterator[tuple[UnfoldedBody, frozenset[object]]]:
    """Expansions of the body: no names, then engine-named parts, then other names one by one.

    Each comes with the node kinds that it may contain, before anything is multiplied out. A name
    that is compared stays: an extremum equals exactly what was read for it, not its formula.
    """
    names: dict[str, Let] = {}
    kinds, there = kinds_of(body), set(tensors(body)) - _compared_names(body)
    while most_terms(body, names.get) <= _MOST_TERMS:
        yield UnfoldedBody(body, names.get), kinds
        reads = {name: let for name in there if (let := _elementwise(find, name)) is not None}
        parts = {name: let for name, let in reads.items() if let.internal}
        if not reads:
            return
        last = max(reads)
        names = {**names, **(parts or {last: reads[last]})}
        while opened := there & set(names):
            there -= opened
            for name in opened:
                there |= tensors(names[name].body) - _compared_names(names[name].body)
                kinds |= kinds_of(names[name].body) | _MADE


@lru_cache(maxsize=4096)
def _compared_names(body: Poly) -> frozenset[str]:
    equalities = (e for e in walk(body) if isinstance(e, Rel) and e.op in ("==", "!="))
    return frozenset[str]().union(*map(tensors, equalities))


def _reachable_kinds(body: Poly, find: Find) -> frozenset[object]:
    """The node kinds in the body and in all names that may be expanded in it."""
    kinds = kinds_of(body)
    seen: set[str] = set()
    pending = list(tensors(body))
    while pending:
        name = pending.pop()
        if name not in seen and (let := _elementwise(find, name)) is not None:
            kinds |= kinds_of(let.body) | _MADE
            pending += tensors(let.body)
        seen.add(name)
    return kinds


def _elementwise(find: Find, name: str) -> Let | None:
    """The definition of a name, if it is elementwise, without sums.

    A number times a function is not expanded, as its name replaces the function.
    """
    let = expandable_let(find, name)
    return let if let is not None and _is_elementwise(let.body) else None


@lru_cache(maxsize=4096)
def _is_elementwise(body: Poly) -> bool:
    scaled = scaled_call(body)
    if scaled is not None and (scaled[1].coef != 1 or scaled[1].factors):
        return False
    return not any(t.binders for t in body.terms)
