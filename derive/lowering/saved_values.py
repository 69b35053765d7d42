"""Values that a forward computes and a backward reads: row statistics and matrix products.

A statistic (a mean, a norm, the logarithm of a sum, the position of the largest) is a reduction.
It has fewer axes than its operand, so saving it costs little memory and avoids a pass over a large
tensor. If a kernel computes a statistic together with the normalized rows (softmax), its result
holds the statistic. A contraction of two tensors costs more work than memory. If the backward reads
only a map of it, the map is saved instead. A backward that is itself differentiated recomputes
them, but for those with a cotangent of their own (`derive.lowering.pulled_statistics`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from derive.algebra.expr import Access, Iverson, accesses, free_indices, tensors, walk
from derive.algebra.poly import Poly, Term, as_atom
from derive.algebra.substitution import fresh_numbered
from derive.calculus.lets import Let, Lets
from derive.lowering.ground.context import Scope
from derive.lowering.ground.value import Indices, Value
from derive.lowering.layout_conversion import Border, own_shapes, replaced_in_lines
from derive.lowering.lowering_input import LoweringInput
from derive.program.cse import Line
from derive.program.program import Saved
from derive.program.torch_ir import Attribute, Code, FunctionCall, Name, names_in, values_in


@dataclass
class Statistics:
    """Names for the additional results of kernels."""

    lets: Lets
    made: dict[str, tuple[str, Let]] = field(default_factory=dict)

    def named(self, p: Poly, stem: str, axes: Indices, kernel: str) -> Access:
        """Return an access to p with these axes, under the same name each time."""
        own = tuple(axes)
        for of, let in self.made.values():
            alike = of == kernel and [(i.extent, i.group) for i in let.formals] == [
                (i.extent, i.group) for i in own
            ]
            if alike and let.body_at(own) is p:
                return Access(let.name, own)
        name = fresh_numbered(f"{min(tensors(p))}~{stem}", self.lets.by_name)
        self.lets.display_names[name] = self.lets.fresh_name(stem)
        self.lets.reserved.add(self.lets.display_names[name])
        self.lets.by_name[name] = Let(name, own, p, internal=True, result=True)
        self.made[name] = kernel, self.lets.by_name[name]
        return Access(name, own)


@dataclass(frozen=True)
class Offer:
    """The values of a forward that a backward may read.

    ``of`` has those that are as large as what they are computed from: each map with its sources,
    a softmax with none.
    """

    values: Mapping[str, Value] = field(default_factory=dict)
    of: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def without_maps_beside(self, kept: Collection[str]) -> Offer:
        """Return the offer without those maps in ``kept`` whose sources are in ``kept``."""
        doubled = {name for name in kept if not self.of.get(name, frozenset()).isdisjoint(kept)}
        values = {name: value for name, value in self.values.items() if name not in doubled}
        return Offer(values, {name: of for name, of in self.of.items() if name in values})

    def without_maps_of(self, sources: Collection[str]) -> Offer:
        """Return the offer without the other maps of these sources."""
        maps = {n for n, of in self.of.items() if n not in sources and of.intersection(sources)}
        return Offer({n: v for n, v in self.values.items() if n not in maps}, self.of)


def offered(given: LoweringInput, scope: Scope) -> Offer:
    """Return the statistics, contractions and maps of these among the computed values."""
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
        worth = _is_worth_saving(let)
        if worth or (not sources and _is_normalised(s.code)) or _is_map(let, sources):
            found[s.name] = scope.tensors[s.name]
            if not worth:
                of[s.name] = sources.union(*(of.get(name, ()) for name in sources))
    return Offer({name: replace(value, code=Name(name)) for name, value in found.items()}, of)


def _is_worth_saving(let: Let) -> bool:
    """True if recomputing the value costs more than saving it."""
    if let.dtype == "bool" or let.compared:
        return False
    costly = _contracts_two(let) if let.dtype == "float" else _counts_pairs(let)
    return costly or _is_statistic(let)


def _is_normalised(code: Code) -> bool:
    """True if the code is a softmax, whose result implies the statistic of its rows."""
    return isinstance(code, FunctionCall) and code.name in ("torch.softmax", "torch.log_softmax")


def _is_map(let: Let, sources: frozenset[str]) -> bool:
    """True if the let is an elementwise map of ``sources``, and reads nothing else as large."""
    if let.dtype == "bool" or let.kind != "sum" or not sources:
        return False
    return all(
        a.tensor in sources or len(free_indices(a)) < len(let.formals) for a in accesses(let.body)
    )


def _is_statistic(let: Let) -> bool:
    """True if the let reduces a value with more axes, or the elements of each segment."""
    reduces = let.kind != "sum" or any(isinstance(t, Term) and t.binders for t in walk(let.body))
    read = [free_indices(a) for a in accesses(let.body)]
    most = max(map(len, read), default=0)
    by_segment = let.condition is not None and not set(let.formals) <= set().union(*read)
    return reduces and (len(let.formals) < most or by_segment)


def _counts_pairs(let: Let) -> bool:
    """True if the let counts where a condition holds that has more indices, as a rank does."""
    brackets = (t for t in walk(let.body) if isinstance(t, Iverson))
    return any(len(free_indices(t)) > len(let.formals) for t in brackets)


def _contracts_two(let: Let) -> bool:
    """True if the let sums a product of two tensors."""
    if let.kind != "sum":
        return False
    sums = (t for t in walk(let.body) if isinstance(t, Term) and t.binders)
    return any(
        len({a for a in accesses(t) if not free_indices(a).isdisjoint(t.binders)}) > 1 for t in sums
    )


# --------------------------------------------------------------------
# The saved tensors of a backward: those whose elements it reads, with the gradients that do.
#
# A shape is read from a tensor saved for the same gradients, or is saved separately.


def with_saved_shapes(lines: Sequence[Line], available: Sequence[str]) -> list[Line]:
    """Return the lines with shapes read from tensors that the same gradients save anyway."""
    readers = readers_of(lines)
    saved = [
        n for n in available if n in readers and readers.get(f"{n}_shape", set()) <= readers[n]
    ]
    return own_shapes(lines, saved)


def with_kept_shapes(lines: Sequence[Line], inputs: Sequence[str], border: Border) -> list[Line]:
    """Return the lines with separate shapes for inputs whose elements fewer gradients read."""
    readers, values = readers_of(lines), readers_of(lines, values_in)
    kept = [n for n in inputs if n in values and values[n] < readers[n]]
    border.shapes.used.update(dict.fromkeys(kept))
    return replaced_in_lines(lines, {Attribute(Name(n), "shape"): Name(f"{n}_shape") for n in kept})


def saved_of(
    names: Sequence[str], gradients: Mapping[str, str], readers: Mapping[str, Collection[str]]
) -> tuple[Saved, ...]:
    """Return the names that are read, each with the gradients that read it."""
    read = [name for name in names if name in readers]
    return tuple(Saved(n, tuple(g for g in gradients if g in readers[n])) for n in read)


def readers_of(
    lines: Sequence[Line], read: Callable[[Code], Iterable[str]] = names_in
) -> dict[str, set[str]]:
    """Return the gradients whose lines read each name."""
    readers: dict[str, set[str]] = {}
    for line in lines:
        for name in read(line.code):
            readers.setdefault(name, set()).update(line.needs)
    return readers
