"""Print the signature by which the error of a call is found; ``helpers/explained.py`` reads it.

A signature is "x[n,(g c)], w[c]=None; groups=size(g); c=(g c)/g": the tensors with their axes, and
clauses that say what parameters and sizes must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from derive.algebra.expr import Call, Composite, Expr, Index, Mul, Num, Param, Size
from derive.notation.operation import Extent, Operation, SizeOf, Tensor
from derive.notation.shapes import factors
from derive.notation.smart_constructors import product
from derive.notation.split import composed

Clauses = tuple[str, ...]


def signature(op: Operation, clauses: Sequence[str]) -> str:
    """Return the signature of an operation, with each clause once."""
    return "; ".join(dict.fromkeys((", ".join(map(_tensor, op.inputs)), *clauses)))


def _tensor(t: Tensor) -> str:
    axes = f"[{','.join(map(signature_axis, t.axes))}]" if t.axes else ""
    dtype = {"float": "", "int": ": int64", "bool": ": bool"}[t.kind]
    return f"{t.name}{axes}{dtype}{'' if t.default is None else '=None'}"


def axis_notation(e: Expr) -> str:
    """Return an axis as a spec has it: n, *p, (g c) or 1."""
    if isinstance(e, Index):
        return f"*{e.name}" if e.group else e.name
    if isinstance(e, Composite):
        return f"({' '.join(map(axis_notation, e.args))})"
    assert isinstance(e, Num)
    return str(e.value)


def signature_axis(axis: Expr) -> str:
    """Return an axis, with the index of its size after a "=" if that has another name."""
    if isinstance(axis, Composite):
        return f"({' '.join(map(signature_axis, axis.args))})"
    assert isinstance(axis, Index)
    star = "*" if axis.group else ""
    return star + (axis.name if axis.name == axis.extent else f"{axis.name}={star}{axis.extent}")


def divisors(op: Operation, extent: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return (part, other parts) of each way to compose an extent whose quotient is the part.

    The product of the sizes of the other parts must divide the size of the extent.
    """
    sizes = {e.name: e.size for e in op.extents}
    forms = list(composed(op).get(extent, ()))
    for name, n in next(e.sources for e in op.extents if e.name == extent):
        axis = next(t.axes[n] for t in op.inputs if t.name == name)
        if isinstance(axis, Composite):
            forms.append(tuple(p.extent for p in axis.args if isinstance(p, Index)))
    found: dict[Expr, tuple[str, tuple[str, ...]]] = {}
    for parts in forms:
        for n, part in enumerate(parts):
            others = (*parts[:n], *parts[n + 1 :])
            rest = product(map(Size, others))
            match sizes.get(part):
                case Call("floordiv", (Size(whole), below)) if whole == extent:
                    if factors(below, sizes.get) == factors(rest, sizes.get):
                        found.setdefault(rest, (part, others))
    return list(found.values())


@dataclass(frozen=True)
class Rules:
    """The clauses that give the sizes of indices, where these are products and quotients."""

    op: Operation

    def size_clauses(self, extent: str) -> Clauses | None:
        """Return the clauses from which the size of an extent is known; None if there are none."""
        for p in self.op.parameters:
            if isinstance(p, SizeOf) and p.extent == extent:
                return (f"{p.name}=size({extent})",)
        size = next(e.size for e in self.op.extents if e.name == extent)
        if not isinstance(size, Num | Param) and self._on_an_axis(extent):
            return ()
        return self.definition_clauses(extent)

    def definition_clauses(self, extent: str) -> Clauses | None:
        """Return the clause of the definition of an extent, and those of the sizes in it."""
        size = next(e.size for e in self.op.extents if e.name == extent)
        match size:
            case Call("floordiv", (Size(whole), _)):
                found = next((d for d in divisors(self.op, whole) if d[0] == extent), None)
                return None if found is None else self.quotient_clauses(whole, *found)
            case None:
                return None
        parts = size.args if isinstance(size, Mul) else (size,)
        names = list(map(_part, parts))
        more = [self.size_clauses(p.extent) if isinstance(p, Size) else () for p in parts]
        if not all(names) or None in more:
            return None
        own = f"{extent}={'*'.join(map(str, names))}"
        return (own, *(clause for clauses in more for clause in clauses or ()))

    def quotient_clauses(self, whole: str, part: str, others: Sequence[str]) -> Clauses | None:
        """Return the clauses of an extent that is the quotient of an axis by other extents."""
        axis = self._axis(whole)
        more = [self.size_clauses(other) for other in others]
        if axis is None or None in more:
            return None
        own = f"{part}={axis}/{'*'.join(others)}"
        return (own, *(clause for clauses in more for clause in clauses or ()))

    def composite_clauses(self, axis: Composite, extent: Extent) -> Clauses | None:
        """Return the clauses from which the sizes of the parts of a composite axis are known."""
        if extent.size is not product(Size(p.extent) for p in axis.args if isinstance(p, Index)):
            return None
        more = [self.size_clauses(p.extent) for p in axis.args if isinstance(p, Index)]
        if None in more or len(more) < len(axis.args):
            return None
        return tuple(clause for clauses in more for clause in clauses or ())

    def _on_an_axis(self, extent: str) -> bool:
        """True if the size is read from a required tensor, by the name of the extent."""
        required = (t for t in self.op.inputs if t.default is None)
        return any(isinstance(i, Index) and i.extent == extent for t in required for i in t.axes)

    def _axis(self, extent: str) -> str | None:
        """Return how a signature has the axis of an extent, if the first of these is its own."""
        if self._on_an_axis(extent):
            return extent
        sources = next(e.sources for e in self.op.extents if e.name == extent)
        required = [t for t in self.op.inputs if t.default is None]
        own = [(t, n) for t in required for n in range(len(t.axes)) if (t.name, n) in sources]
        if not own:
            return None
        text = signature_axis(own[0][0].axes[own[0][1]])
        first = next(
            (t.name, n) for t in required for n, i in enumerate(t.axes) if signature_axis(i) == text
        )
        return text if first in sources else None


def _part(e: Expr) -> str | None:
    """Return a factor of a size; None if a signature has no word for it."""
    if isinstance(e, Size):
        return e.extent
    if isinstance(e, Param):
        return e.name
    whole = isinstance(e, Num) and e.value.denominator == 1 and e.value >= 0
    return str(e.value) if whole and isinstance(e, Num) else None
