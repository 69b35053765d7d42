"""What a forward computes and a backward reads: statistics of rows, and matrix products.

A statistic (a mean, a norm, the logarithm of a sum) has fewer axes than what it is a reduction of,
so that keeping it costs little memory and saves a pass over what is large. A contraction of two
tensors takes more work than memory. Neither has a gradient of its own: where the backward is
itself differentiated, it is computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from derive.algebra.expr import Access, Index, accesses, free_indices, tensors, walk
from derive.algebra.poly import Poly, Term, as_atom
from derive.algebra.substitution import numbered
from derive.calculus.lets import Let, Lets
from derive.lowering.ground.scope import Scope
from derive.lowering.ground.value import Value
from derive.lowering.lines import Given
from derive.program.code import Name


@dataclass
class Statistics:
    """What the results of kernels are called beside their first."""

    lets: Lets
    made: dict[str, tuple[str, Let]] = field(default_factory=dict)

    def named(self, p: Poly, stem: str, axes: Sequence[Index], kernel: str) -> Access:
        """The name of p with these axes, the same each time."""
        own = tuple(axes)
        for of, let in self.made.values():
            alike = of == kernel and [(i.extent, i.group) for i in let.formals] == [
                (i.extent, i.group) for i in own
            ]
            if alike and let.body_at(own) is p:
                return Access(let.name, own)
        name = numbered(f"{min(tensors(p))}~{stem}", self.lets.by_name)
        self.lets.spoken[name] = self.lets.fresh_name(stem)
        self.lets.reserved.add(self.lets.spoken[name])
        self.lets.by_name[name] = Let(name, own, p, internal=True)
        self.made[name] = kernel, self.lets.by_name[name]
        return Access(name, own)


def offered(given: Given, scope: Scope) -> dict[str, Value]:
    """The statistics and contractions among what a forward has computed, by name."""
    found = dict(scope.results)
    whole = {as_atom(given.lets[name].body) for name in given.op.outputs}
    for s in scope.statements:
        let = given.lets.get(s.name)
        if let is not None and s.name not in given.op.outputs and _is_kept(let):
            if let.access in whole:
                # It is an output.
                continue
            border = given.border
            if not border.changes(s.name) or border.reshapes(s.name):
                found[s.name] = scope.tensors[s.name]
    return {name: replace(value, code=Name(name)) for name, value in found.items()}


def _is_kept(let: Let) -> bool:
    """Whether to compute it again costs more than to keep it."""
    if let.dtype != "float" or let.compared:
        return False
    return _is_statistic(let) or _is_contraction(let)


def _is_statistic(let: Let) -> bool:
    """Whether the definition reduces what has more axes."""
    reduces = let.kind != "sum" or any(isinstance(t, Term) and t.binders for t in walk(let.body))
    most = max((len(free_indices(a)) for a in accesses(let.body)), default=0)
    return reduces and len(let.formals) < most


def _is_contraction(let: Let) -> bool:
    """Whether the definition sums what reads two tensors at each position."""
    if let.kind != "sum":
        return False
    sums = (t for t in walk(let.body) if isinstance(t, Term) and t.binders)
    return any(
        len({a for a in accesses(t) if not free_indices(a).isdisjoint(t.binders)}) > 1 for t in sums
    )
