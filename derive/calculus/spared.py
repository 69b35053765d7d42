"""Names of the forward that a gradient reads beside all that they are made of.

    y = g*x/n        Sum_k G*y = g/n * Sum_k G*x

What stands in y but in no index of the sum comes out of it, and where the gradient of g has
Sum_k G*x anyway, the sum is there, and y is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from derive.algebra.expr import Expr, tensors
from derive.algebra.poly import Poly
from derive.algebra.rules import Step
from derive.calculus.adjoint import Adjoint, Backward, said_of
from derive.calculus.lets import Let, inline

Pieces = Callable[[Poly], Mapping[Expr, float]]


def without_spare_reads(backward: Backward, pieces: Pieces) -> Backward:
    """The gradients with such names as what they are made of, where that costs less.

    ``pieces`` gives the distinct operations of a formula with their costs.
    """
    formulas: tuple[Adjoint, ...] = (*backward.adjoints, *backward.gradients)
    read = {name for a in formulas for name in tensors(a.body)}
    for let in backward.lets:
        if let.name not in read or not _is_product(let):
            continue
        opened = [_opened(a, let, backward.lets.say) for a in formulas]
        left = {name for a in opened for name in tensors(a.body)}
        if left < read and _cost(opened, pieces) < _cost(formulas, pieces):
            formulas, read = tuple(opened), left
    n = len(backward.adjoints)
    return replace(backward, adjoints=formulas[:n], gradients=formulas[n:])


def _is_product(let: Let) -> bool:
    """Whether the let is one product, which sums nothing."""
    if let.is_through or let.internal or let.kind != "sum" or let.dtype != "float":
        return False
    return len(let.body.terms) == 1 and not let.body.terms[0].binders


def _opened(a: Adjoint, let: Let, say: Callable[[str], str]) -> Adjoint:
    if let.name not in tensors(a.body):
        return a
    body = inline(a.body, let)
    step = Step("open", f"{say(let.name)} is what it is made of, and not read", a.body, body)
    return replace(a, body=body, steps=a.steps.then(said_of((a.name, a.formals), [step])))


def _cost(formulas: Sequence[Adjoint], pieces: Pieces) -> float:
    """The cost of all formulas; each distinct operation in them is paid once."""
    found: dict[Expr, float] = {}
    for a in formulas:
        found |= pieces(a.body)
    return sum(found.values())
