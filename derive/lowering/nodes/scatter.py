"""Products with deltas that no sum eliminated: values scattered along new axes."""

from __future__ import annotations

from derive.algebra.expr import Expr
from derive.lowering.ground.context import Scope
from derive.lowering.ground.pattern import first_match
from derive.lowering.ground.summation import Summation
from derive.lowering.patterns import PLACED, PLACEMENTS
from derive.lowering.patterns.scatter_elements import Placed, placement
from derive.program.torch_ir import Code


def lower_placed(scope: Scope, s: Summation, base: Code | None = None) -> Placed:
    """Scatter the values to their positions; return also whether ``base`` was added.

    ``base`` has all axes of the order.
    """
    made = first_match(PLACED, scope, s)
    if made is not None:
        return made, False
    p = placement(scope, s, base)
    if isinstance(p, Expr):
        return scope.lower(p, s.order), False
    found = first_match(PLACEMENTS, scope, p)
    assert found is not None
    return found
