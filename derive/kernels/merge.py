"""Merge kernels that are linear in a cotangent over two cotangents.

c*K(g, x) + c*K(h, x)  =  c*K(g + h, x)
"""

from __future__ import annotations

from collections.abc import Hashable
from fractions import Fraction

from derive.algebra.expr import Expr, free_indices
from derive.algebra.poly import Poly, Term, add, make_term, mul, poly
from derive.kernels.instantiate import as_poly
from derive.kernels.kernel_spec import Kernel
from derive.kernels.table import KERNELS


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
    larger = free_indices(cotangent) - {
        i for x in _other_arguments(kernel) for i in free_indices(x)
    }
    return None if larger else kernel


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
