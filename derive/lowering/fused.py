"""A number times a matrix product, added to a tensor: one call in place of three passes.

    C + c*(A @ B)  =  torch.addmm(C, A, B, alpha=c)           two axes each
    C + c*(A @ B)  =  torch.baddbmm(C, A, B, alpha=c)         three axes each, the first shared

c is a number that stands in the equation. Where it is a parameter it may be 0, and then torch
reads neither A nor B, so that a nan in them is lost: 0*nan is nan. The same holds for a factor of
C. Without a number, ``A @ B + C`` is as fast but for one pass, and is what a person writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from derive.algebra.expr import Expr, Index, Mul, Num, Reduce, free_indices
from derive.lowering.code import Binary, Code, Function, Keyword, Literal
from derive.lowering.value import Value, broadcast

__all__ = ["added_product", "is_scaled_product", "plain_where_shared"]

_NAMES = {2: "torch.addmm", 3: "torch.baddbmm"}


def is_scaled_product(e: Expr, order: Sequence[Index]) -> bool:
    """Whether e is c * Sum_k a(.., i, k)*b(.., k, j), all of its axes being those of order."""
    match e:
        case Mul((Num(c), Reduce("sum", (k,), Mul((a, b))))) if c != 0:
            ends = free_indices(a) - {k}, free_indices(b) - {k}
            both = ends[0] & ends[1]
            alike = k in free_indices(a) and k in free_indices(b)
            sizes = {len(end - both) for end in ends}
            plain = not any(i.group for i in (k, *order))
            whole = ends[0] | ends[1] == set(order) and len(order) == 2 + len(both)
            return alike and plain and whole and sizes == {1} and len(order) in _NAMES
    return False


def added_product(total: Value, product: Value, sign: int) -> Value | None:
    """total + sign*product where the product, one of those above, came out as one."""
    match product.code:
        case Binary("*", Literal() as c, Binary("@", a, b)) if not total.scalar:
            alpha = c if sign > 0 else Literal(f"-{c.text}")
            name = _NAMES[len(product.axes)]
            code = Function(name, (total.code, a, b, Keyword("alpha", alpha)))
            return replace(product, code=code, axes=broadcast(total.axes, product.axes))
    return None


def plain_where_shared(codes: Sequence[Code]) -> list[Code]:
    """The codes with C + c*(A @ B) spelled out where A @ B is wanted elsewhere too."""
    count = Counter(p for code in codes for p in _products(code))
    if not any(n > 1 for n in count.values()):
        return list(codes)

    def spelled(code: Code) -> Code:
        new: Code = code.map(spelled)
        match code, new:
            case Function(_, (_, a, b, *_)), Function(name, (total, x, y, Keyword(_, Literal(c)))):
                if name in _NAMES.values() and count[Binary("@", a, b)] > 1:
                    op, size = ("-", Literal(c[1:])) if c.startswith("-") else ("+", Literal(c))
                    return Binary(op, total, Binary("*", size, Binary("@", x, y)))
        return new

    return [spelled(code) for code in codes]


def _products(code: Code) -> Iterator[Code]:
    """Every place where a matrix product stands, alone or added to something."""
    match code:
        case Binary("@"):
            yield code
        case Function(name, (_, a, b, _)) if name in _NAMES.values():
            yield Binary("@", a, b)
    for part in code.parts():
        yield from _products(part)
