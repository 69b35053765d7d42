"""Restore a natural order of sums and products, which SymPy does not keep.

    x[i]*sigmoid(x[i]),  query[i,d]*key[j,d],  1 + erf(x[i]),  x[i] + c*x[i]**3

Numbers and parameters come before tensors, then sums in parentheses, functions and reductions.
Tensors come in order of declaration. Of two tensors, the one with the first index of the left
side comes first: y[i,k] = A[i,j]*B[j,k]. Powers ascend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from sympy import Indexed, Symbol

from derive.notation import heads
from derive.notation.sympy_names import text_of

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
        letters = (
            s for e in equations if isinstance(e.lhs, Indexed) for s in _access_symbols(e.lhs)
        )
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
    """True if f is a tensor, or a power of one."""
    base, exponent = f.as_base_exp()
    return isinstance(base, Indexed) and bool(exponent.is_Number)


def _access_symbols(access: Any) -> list[str]:
    symbols = (s for i in access.indices for s in sympy.preorder_traversal(i))
    return [s.name for s in symbols if isinstance(s, Symbol)]
