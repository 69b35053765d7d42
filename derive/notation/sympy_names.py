"""Classify the symbols of SymPy equations as indices or sizes.

A symbol is an index if it is a whole position, is summed over, or labels an `Idx`. N is the size
of k if k has the limits (k, 0, N - 1), if `Idx(k, N)` occurs, or if k indexes a tensor of shape
(..., N, ...).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

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
        """True if e is a symbol of a size."""
        return isinstance(e, Symbol) and e.name in self.sizes

    def whole(self, index: Any, upper: Any) -> bool:
        """True if 0..upper is the whole range of the index."""
        extent = upper + 1
        if isinstance(extent, heads.SizeSymbol | Integer):
            return True
        return self.is_size(extent)

    def _sized(self, index: Any, extent: Any) -> None:
        if not isinstance(index, Symbol):
            return
        if isinstance(extent, heads.SizeSymbol):
            if extent.letter != index.name:
                self.same.append((index.name, extent.letter))
        elif isinstance(extent, Integer):
            if extent < 0:
                raise SpecError(f"index {index} has {extent} values")
            known = self.numbers.setdefault(index.name, int(extent))
            if known != int(extent):
                raise SpecError(f"index {index} has two sizes, {known} and {extent}; rename one")
        elif isinstance(extent, Symbol):
            if extent.name in self.indices or extent.name in self.others:
                return
            first = self.sizes.setdefault(extent.name, index.name)
            if first != index.name:
                self.same.append((first, index.name))

    def fixed(self) -> Iterator[syntax.ParameterSyntax]:
        """Yield the sizes that are numbers."""
        for name, value in self.numbers.items():
            yield syntax.ParameterSyntax(name, syntax.NumberSyntax(Fraction(value)), fixes=True)


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
