"""What a forward computes and a backward reads: statistics of rows, and matrix products.

A statistic (a mean, a norm, the logarithm of a sum, the position of the largest) has fewer axes
than what it is a reduction of, so that keeping it costs little memory and saves a pass over what is
large. Where a kernel computes a statistic and the rows normalised by it (softmax) in one go, its
result is what holds the statistic. A contraction of two tensors takes more work than memory; a map
of it is kept in its stead where that is all that the backward reads. None has a gradient of its
own: where the backward is itself differentiated, it is computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from derive.algebra.expr import Access, Index, accesses, free_indices, tensors, walk
from derive.algebra.poly import Poly, Term, as_atom
from derive.algebra.substitution import numbered
from derive.calculus.lets import Let, Lets
from derive.lowering.assembly import LoweringInput
from derive.lowering.ground.context import Scope
from derive.lowering.ground.value import Value
from derive.program.torch_ir import Code, FunctionCall, Name


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
        self.lets.display_names[name] = self.lets.fresh_name(stem)
        self.lets.reserved.add(self.lets.display_names[name])
        self.lets.by_name[name] = Let(name, own, p, internal=True, result=True)
        self.made[name] = kernel, self.lets.by_name[name]
        return Access(name, own)


@dataclass(frozen=True)
class Offer:
    """What a backward may read of a forward, by name; ``of`` has what each map is made of."""

    values: Mapping[str, Value] = field(default_factory=dict)
    of: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def without_maps_beside(self, kept: Collection[str]) -> Offer:
        """The offer without the maps among ``kept`` that are made of others among them."""
        doubled = {name for name in kept if not self.of.get(name, frozenset()).isdisjoint(kept)}
        values = {name: value for name, value in self.values.items() if name not in doubled}
        return Offer(values, {name: of for name, of in self.of.items() if name in values})


def offered(given: LoweringInput, scope: Scope) -> Offer:
    """The statistics, contractions and maps of these among what a forward has computed."""
    found, of = dict(scope.results), dict[str, frozenset[str]]()
    whole = {as_atom(given.lets[name].body) for name in given.op.outputs}
    for s in list(scope.statements):
        let = given.lets.get(s.name)
        winner = None if let is None else given.lets.winner_of(let)
        if winner is not None and winner not in given.op.outputs:
            found[winner] = scope.tensor(winner)
        if let is None or s.name in given.op.outputs or let.access in whole:
            continue
        sources = let.reads().intersection(found)
        kept = _is_kept(let) or (not sources and _is_normalised(s.code))
        if kept or _is_map(let, sources):
            found[s.name] = scope.tensors[s.name]
            if not kept:
                of[s.name] = sources.union(*(of.get(name, ()) for name in sources))
    return Offer({name: replace(value, code=Name(name)) for name, value in found.items()}, of)


def _is_kept(let: Let) -> bool:
    """Whether to compute it again costs more than to keep it."""
    if let.dtype == "bool" or let.compared:
        return False
    return _is_statistic(let) or (let.dtype == "float" and _is_contraction(let))


def _is_normalised(code: Code) -> bool:
    """Whether it holds the one statistic of its rows that its kernel does not give apart."""
    return isinstance(code, FunctionCall) and code.name in ("torch.softmax", "torch.log_softmax")


def _is_map(let: Let, sources: frozenset[str]) -> bool:
    """Whether the definition has as many axes as what is kept, and reads nothing else as large."""
    if let.dtype == "bool" or let.kind != "sum" or not sources:
        return False
    return all(
        a.tensor in sources or len(free_indices(a)) < len(let.formals) for a in accesses(let.body)
    )


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
