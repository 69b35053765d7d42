"""A product of matrices added to a tensor: one call in place of three passes.

    C + A @ B           torch.addmm(C, A, B)                 two axes each, three: baddbmm
    b*C + a*(A @ B)     _added_product(C, A, B, b, a)        numbers, which may be 0

torch reads no tensor whose factor is 0, so that a nan in it is lost: 0*nan is nan. Nor does it add
tensors of different dtypes. The second is one call where neither is so.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from derive.program.cse import Line
from derive.program.shape_rules import Shape
from derive.program.torch_ir import (
    Binary,
    Code,
    FunctionCall,
    Literal,
    MethodCall,
    Name,
    Tuple,
    Unary,
    names_in,
)
from derive.program.torch_ops import ADDED_PRODUCTS

_ONE = Literal("1")


@dataclass(frozen=True)
class ProductAdded:
    """scale*addend + factor*(left @ right); ``cast`` is the dtype that the product is in."""

    addend: Code
    scale: Code
    left: Code
    right: Code
    factor: Code
    cast: tuple[Code, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether it has no factors and one dtype."""
        return self.factor is self.scale is _ONE and not self.cast

    @property
    def product(self) -> Code:
        """The product of matrices."""
        return Binary("@", self.left, self.right)

    def fits(self, left: Shape | None, right: Shape | None) -> bool:
        """Whether torch has one call for matrices of these shapes."""
        if left is None or right is None or len(left) != len(right):
            return False
        return len(left) in ADDED_PRODUCTS and left[:-2] == right[:-2]

    def call(self, total: Code, left: Code, right: Code, axes: int) -> Code:
        """The one call, of these operands."""
        if self.is_plain:
            return FunctionCall(ADDED_PRODUCTS[axes], (total, left, right))
        return FunctionCall("_added_product", (total, left, right, self.scale, self.factor))

    def over(self, total: Code, left: Code, right: Code, axes: int) -> Code | None:
        """That over the total, which is one of no more axes."""
        if not self.is_plain:
            return None
        return MethodCall(total, f"{ADDED_PRODUCTS[axes].removeprefix('torch.')}_", (left, right))


def product_added(
    code: Code, numbers: Collection[str], grouped: Collection[str] = ()
) -> ProductAdded | None:
    """The code as one; ``numbers`` are the names of what is no tensor.

    The number of axes decides the call, and is not known of what is ``grouped``.
    """
    if not isinstance(code, Binary) or code.op != "+":
        return None
    for total, part in ((code.left, code.right), (code.right, code.left)):
        factor, product = _scaled(part, numbers)
        scale, addend = _scaled(total, numbers)
        match product:
            case Binary("@", left, right):
                cast: tuple[Code, ...] = ()
            case MethodCall(Binary("@", left, right), "to", (Name(),) as cast):
                pass
            case _:
                continue
        if has_groups(product, grouped):
            continue
        # A cast makes a choice of it at run time, which factors alone are worth.
        if not cast or factor is not _ONE or scale is not _ONE:
            return ProductAdded(addend, scale, left, right, factor, cast)
    return None


def _scaled(code: Code, numbers: Collection[str]) -> tuple[Code, Code]:
    """The number before a tensor, and the tensor."""
    match code:
        case Binary("*", Literal() | Name() as factor, rest):
            if isinstance(factor, Literal) or factor.id in numbers:
                return factor, rest
    return _ONE, code


def has_groups(code: Code, grouped: Collection[str]) -> bool:
    """Whether the value may have a group of axes, as these names have."""
    match code:
        case MethodCall(_, "reshape", (Tuple(sizes),)):
            # x.reshape((*p_shape, n)) has one, x.reshape((math.prod(p_shape), n)) has none.
            return any(isinstance(size, Unary) and size.op == "*" for size in sizes)
    return not set(grouped).isdisjoint(names_in(code))


def note_groups(line: Line, grouped: set[str]) -> None:
    """Adds the name of a line to those of what may have a group of axes, or takes it out."""
    has = has_groups(line.code, grouped)
    grouped.discard(line.name)
    grouped |= {line.name} if has else set()
