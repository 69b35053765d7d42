"""Classify the symbols of SymPy equations as indices or sizes.

A symbol is an index if it is a whole position, is summed over, or labels an `Idx`. N is the size
of k if k has the limits (k, 0, N - 1), if `Idx(k, N)` occurs, or if k indexes a tensor of shape
(..., N, ...).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import sympy
from sympy import Idx, Indexed, Integer, Product, Sum, Symbol, preorder_traversal

from derive.errors import SpecError
from derive.notation import heads, syntax


def label(index: Any) -> Any:
    """Return the symbol of an index."""
    return index.label if isinstance(index, Idx) else index


def text_of(symbol: Any) -> str:
    """Return SymPy's text of a symbol, without its slow printer."""
    return symbol.name if type(symbol) in _NAMED else str(symbol)


_NAMED = (Symbol, heads.Group, heads.SizeSymbol)


@dataclass
class Names:
    """``sizes`` maps N to an index with that size, ``same`` pairs indices of equal size."""

    indices: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    sizes: dict[str, str] = field(default_factory=dict)
    same: list[tuple[str, str]] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(equations: Iterable[Any], others: set[str]) -> Names:
        """Classify the names of equations; ``others`` are parameters and tensors without axes."""
        names = Names(others=others)
        nodes = [node for e in equations for node in preorder_traversal(e)]
        for node in nodes:
            for index in _certain_indices(node):
                if isinstance(index, Symbol) and index.name not in others:
                    names.indices.add(index.name)
        for node in nodes:
            for index, extent in _ranges(node):
                names._sized(label(index), extent)
        return names

    def is_size(self, e: Any) -> bool:
        return isinstance(e, Symbol) and e.name in self.sizes

    def whole(self, upper: Any) -> bool:
        """True if 0..upper is the whole range of the index."""
        extent = upper + 1
        return isinstance(extent, heads.SizeSymbol | Integer) or self.is_size(extent)

    def _sized(self, index: Any, extent: Any) -> None:
        if not isinstance(index, Symbol):
            return
        if isinstance(extent, heads.SizeSymbol):
            if extent.letter != index.name:
                self.same.append((index.name, extent.letter))
        elif isinstance(extent, Integer):
            if extent < 0:
                raise SpecError(f"index {index} has {extent} values", kind="sympy-expression")
            known = self.numbers.setdefault(index.name, int(extent))
            if known != int(extent):
                text = f"index {index} has two sizes, {known} and {extent}; rename one"
                raise SpecError(text, kind="two-sizes")
        elif isinstance(extent, Symbol):
            if extent.name in self.indices or extent.name in self.others:
                return
            first = self.sizes.setdefault(extent.name, index.name)
            if first != index.name:
                self.same.append((first, index.name))

    def fixed(self) -> tuple[syntax.ParameterSyntax, ...]:
        """Return the sizes that are numbers."""
        numbers = ((n, syntax.NumberSyntax(Fraction(value))) for n, value in self.numbers.items())
        return tuple(syntax.ParameterSyntax(*each, fixes=True) for each in numbers)


def _certain_indices(node: Any) -> Iterator[Any]:
    """Yield the symbols that are certainly indices."""
    if isinstance(node, Indexed):
        yield from map(label, node.indices)
    elif isinstance(node, Sum | Product):
        yield from (label(limit[0]) for limit in node.limits)
    elif isinstance(node, heads.Head):
        yield from map(label, node.args[1])
    elif isinstance(node, heads.Concat):
        yield label(node.args[0])
    elif isinstance(node, heads.Composite):
        yield from map(label, node.args)
    elif isinstance(node, Idx):
        yield node.label


def _ranges(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (index, number of its values) for each explicit range."""
    if isinstance(node, Sum | Product):
        for index, lower, upper in node.limits:
            # 0 to a number is the whole range; any other start to a number is a part of it.
            if isinstance(lower, Integer) and (lower == 0 or not isinstance(upper, Integer)):
                yield index, upper + 1
    elif isinstance(node, Indexed) and node.base.shape is not None:
        yield from zip(node.indices, node.base.shape, strict=False)
    elif isinstance(node, Idx) and node.upper is not None and node.lower == 0:
        yield node, node.upper + 1


# -------------------------------------------------------------------------------------- sympy order
# Restore a natural order of sums and products, which SymPy does not keep.
#
#     x[i]*sigmoid(x[i]),  query[i,d]*key[j,d],  1 + erf(x[i]),  x[i] + c*x[i]**3
#
# Numbers and parameters come before tensors, then sums in parentheses, functions and reductions.
# Tensors come in order of declaration. Of two tensors, the one with the first index of the left
# side comes first: y[i,k] = A[i,j]*B[j,k]. Powers ascend.

_LAST = 10**6


@dataclass(frozen=True)
class Order:
    """The names of tensors in order of declaration, and of the indices on the left.

    Without declared inputs, SymPy's order is kept: it defines the order of the inputs.
    """

    tensors: tuple[str, ...] = ()
    indices: tuple[str, ...] = ()

    @classmethod
    def of(cls, inputs: Sequence[Any], equations: Sequence[Any]) -> Order:
        """Collect inputs, then defined tensors, and the indices of left sides."""
        if not inputs:
            return cls()
        heads_of = [*inputs, *(e.lhs for e in equations)]
        tensors = (text_of(h.base.label if isinstance(h, Indexed) else h) for h in heads_of)
        indices = (i for e in equations if isinstance(e.lhs, Indexed) for i in e.lhs.indices)
        parts = (part for i in indices for part in preorder_traversal(i))
        letters = (part.name for part in parts if isinstance(part, Symbol))
        return cls(tuple(dict.fromkeys(tensors)), tuple(dict.fromkeys(letters)))

    def factors(self, e: Any) -> list[Any]:
        """Return the factors of a product, those of the denominator last."""
        found = e.as_ordered_factors()
        if not self.tensors:
            return sorted(found, key=_is_divisor_factor)
        pair = sum(map(_is_tensor_power, found)) == 2
        return sorted(found, key=lambda f: self._of_factor(f, pair))

    def terms(self, e: Any) -> list[Any]:
        """Return the terms of a sum in order."""
        found = e.as_ordered_terms()
        if not self.tensors:
            return sorted(found, key=lambda t: not t.has(Indexed))
        reading = [t for t in found if t.has(Indexed)]
        bent = bool(reading) and all(self._degree(t) == 0 for t in reading)
        return sorted(found, key=lambda t: self._of_term(t, bent))

    def _of_factor(self, f: Any, pair: bool) -> tuple[int, ...]:
        if _is_divisor_factor(f):
            return (9,)
        if f.is_number:
            return (0,)
        if isinstance(f.as_base_exp()[0], heads.Iverson | sympy.KroneckerDelta):
            return (2,)
        if _is_tensor_power(f):
            letters = (*self._letters_in(f), _LAST) if pair else ()
            return (3, *letters, self._place(f))
        if isinstance(f, sympy.Add):
            return (4 if f.has(Indexed) or self._letters_in(f) else 1,)
        if isinstance(f, sympy.Sum | sympy.Product):
            return (6,)
        return (1,) if f.is_Atom else (5,)

    def _of_term(self, t: Any, bent: bool) -> tuple[int, ...]:
        if not t.has(Indexed):
            first = bent and t.is_number
            return (0 if first else 2, min(self._letters_in(t), default=_LAST))
        return (1, self._place(t), self._degree(t))

    def _place(self, e: Any) -> int:
        """Return the rank of the first tensor that e reads."""
        names = (text_of(a.base.label) for a in e.atoms(Indexed))
        return min((self.tensors.index(n) for n in names if n in self.tensors), default=_LAST)

    def _degree(self, t: Any) -> int:
        """Return the degree of a term in tensors."""
        powers = [f.as_base_exp() for f in sympy.Mul.make_args(t) if _is_tensor_power(f)]
        return sum(int(n) if n.is_Integer else 1 for _, n in powers)

    def _letters_in(self, e: Any) -> list[int]:
        found = {s.name for s in e.free_symbols if isinstance(s, Symbol)}
        return [n for n, letter in enumerate(self.indices) if letter in found]


def _is_divisor_factor(f: Any) -> bool:
    """True if f is a factor of the denominator."""
    return isinstance(f, sympy.Pow) and bool(f.exp.is_Number and f.exp < 0)


def _is_tensor_power(f: Any) -> bool:
    base, exponent = f.as_base_exp()
    return isinstance(base, Indexed) and bool(exponent.is_Number)
