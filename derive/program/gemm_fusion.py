"""Fuses the addition of a tensor into a matrix product: one call in place of three passes.

    C + A @ B          torch.addmm(C, A, B)             two axes each, three: baddbmm
    c + A @ W.mT       torch.nn.functional.linear(A, W, c)    A with a group of axes
    b*C + a*(A @ B)    rt.addmm(C, A, B, b, a)    numbers, which may be 0

torch does not read a tensor whose factor is 0, so that a nan in it is lost: 0*nan is nan. It also
cannot add tensors of different dtypes. The helper of the second form makes one call only if neither
case applies.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from derive.program.cse import Line
from derive.program.shape_rules import Shape
from derive.program.torch_ir import (
    NONE,
    Attribute,
    Binary,
    Code,
    Conditional,
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
    """scale*addend + factor*(left @ right); ``cast`` is the dtype of the product."""

    addend: Code
    scale: Code
    left: Code
    right: Code
    factor: Code
    cast: tuple[Code, ...] = ()
    grouped: bool = False
    """True if the left side has a group of axes."""

    @property
    def is_plain(self) -> bool:
        """True without factors and without a cast."""
        return self.factor is self.scale is _ONE and not self.cast

    @property
    def product(self) -> Code:
        """The matrix product."""
        return Binary("@", self.left, self.right)

    def fits(self, left: Shape | None, right: Shape | None) -> bool:
        """True if torch has one call for matrices of these shapes."""
        if left is None or right is None or len(left) != len(right):
            return False
        return len(left) in ADDED_PRODUCTS and left[:-2] == right[:-2]

    def call(self, total: Code, left: Code, right: Code, axes: int) -> Code:
        """Return the fused call on these operands."""
        if self.grouped:
            assert isinstance(right, Attribute), "not the transpose of a matrix"
            return FunctionCall("torch.nn.functional.linear", (left, right.obj, total))
        if self.is_plain:
            return FunctionCall(ADDED_PRODUCTS[axes], (total, left, right))
        return FunctionCall("rt.addmm", (total, left, right, self.scale, self.factor))

    def over(self, total: Code, left: Code, right: Code, axes: int) -> Code | None:
        """Return the call that overwrites the total, or None with factors or a cast."""
        if not self.is_plain or self.grouped:
            return None
        return MethodCall(total, f"{ADDED_PRODUCTS[axes].removeprefix('torch.')}_", (left, right))


def product_added(
    code: Code, numbers: Collection[str], grouped: Collection[str] = ()
) -> ProductAdded | None:
    """Return the code as a fused product, else None; ``numbers`` are names of non-tensors.

    The number of axes selects the call, so names in ``grouped``, of unknown rank, are excluded.
    """
    if not isinstance(code, Binary) or code.op != "+":
        return None
    for total, part in ((code.left, code.right), (code.right, code.left)):
        factor, product = _split_factor(part, numbers)
        scale, addend = _split_factor(total, numbers)
        match product:
            case Binary("@", left, right):
                cast: tuple[Code, ...] = ()
            case MethodCall(Binary("@", left, right), "to", (Name(),) as cast):
                pass
            case _:
                continue
        if has_groups(part, grouped):
            made = ProductAdded(addend, scale, left, right, factor, cast, grouped=True)
            transposed = isinstance(right, Attribute) and right.name == "mT"
            if transposed and made.is_plain and not has_groups(Binary("+", addend, right), grouped):
                return made
            continue
        # A cast needs a choice at run time, which pays off only with factors.
        if not cast or factor is not _ONE or scale is not _ONE:
            return ProductAdded(addend, scale, left, right, factor, cast)
    return None


def _split_factor(code: Code, numbers: Collection[str]) -> tuple[Code, Code]:
    """Return the numeric factor of a tensor, and the tensor."""
    match code:
        case Binary("*", Literal() | Name() as factor, rest):
            if isinstance(factor, Literal) or factor.id in numbers:
                return factor, rest
    return _ONE, code


def without_test(code: Code) -> Code:
    """Return linear(A, W, c) for A @ W.mT if c is None else linear(A, W, c)."""
    match code:
        case Conditional(
            Binary("is", c, none),
            Binary("@", x, Attribute(w, "mT")),
            FunctionCall("torch.nn.functional.linear", args) as call,
        ) if none is NONE and args == (x, w, c):
            return call
    return code


def has_groups(code: Code, grouped: Collection[str]) -> bool:
    """True if the value may have a group of axes, like these names."""
    match code:
        case MethodCall(_, "reshape", (Tuple(sizes),)):
            # x.reshape((*p_shape, n)) has one, x.reshape((math.prod(p_shape), n)) has none.
            return any(isinstance(size, Unary) and size.op == "*" for size in sizes)
    return not set(grouped).isdisjoint(names_in(code))


def note_groups(line: Line, grouped: set[str]) -> None:
    """Add the name of a line to ``grouped`` if it may have a group of axes, else remove it."""
    has = has_groups(line.code, grouped)
    grouped.discard(line.name)
    grouped |= {line.name} if has else set()
