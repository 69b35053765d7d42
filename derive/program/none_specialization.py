"""Specializes code to an optional tensor that is None and represents a number.

    weight.unsqueeze(1) * x  ->  x          for 1
    x + bias                 ->  x          for 0
    A @ weight               ->  A.sum(-1)  for 1

The number replaces the constant tensor if the result keeps its shape and dtype without it. A value
with fewer axes can replace a tensor too: G / n for G / n * weight, where G has no axes. Code that
needs the tensor itself, such as its mean, has no such form.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from derive.algebra.poly import ONE
from derive.program.constant_folding import ARITHMETIC
from derive.program.torch_ir import (
    DTYPES,
    Attribute,
    Binary,
    Code,
    Conditional,
    FunctionCall,
    Keyword,
    MethodCall,
    Name,
    Subscript,
    Tuple,
    Unary,
    joined,
    literal,
    names_in,
    operands,
    subexpressions,
    values_in,
)
from derive.program.torch_ops import torch_op
from derive.program.types import Types

Number = Fraction | Code
"""A number, the code of a number, or the code of a tensor with fewer axes than it replaces."""


class TensorNeeded(Exception):
    """The code reads the tensor itself."""


@dataclass(frozen=True)
class Uniform:
    """A tensor with this value everywhere."""

    value: Number


_PLACED_ALIKE = frozenset(("index_select", "gather", "flip", "clone", "to"))
"""Methods that only move or select elements of their tensor."""


@dataclass(frozen=True)
class Absence:
    """The facts if an optional tensor is None.

    ``numbers`` are the names of constant values, and ``like`` is a tensor with the dtype of the
    body. ``there`` and ``given`` have the types of values if the tensor is None, and if it is
    given. ``dtype`` is that of the body if it has a name, and ``tensors`` are the names of the
    available tensors.
    """

    numbers: Mapping[str, Number]
    like: Code
    there: Types
    given: Types
    dtype: Code | None = None
    tensors: Collection[str] = ()

    def reads(self, code: Code) -> bool:
        """True if the code reads a constant value."""
        return any(name in self.numbers for name in names_in(code))

    def without(self, code: Code) -> Code | Uniform:
        """Return the specialized code; raise `TensorNeeded` if it needs a tensor."""
        found = self._by_rule(code) if self.reads(code) else code
        return code.map(self._tensor) if found is None else found

    def of_line(self, code: Code) -> Code | Uniform:
        """Return the specialized code of a line; the result of ``expand`` stays a tensor."""
        if self.reads(code) and isinstance(code, MethodCall) and code.name == "expand":
            return self._tensor(code)
        return self.without(code)

    def sites(self, code: Code) -> Iterator[tuple[Code, Code]]:
        """Yield the smallest parts of the code that differ if specialized, with their new form."""
        if not self.reads(code):
            return
        ruled = self._by_rule(code) is not None
        found = [(part, self._tried(part)) for part in code.parts() if self.reads(part)]
        if ruled and any(not isinstance(x, Code) for _, x in found):
            yield code, self._tensor(code)
            return
        for part, x in found:
            if isinstance(x, Code):
                yield from self.sites(part)
            else:
                yield part, self._tensor(part)

    def _tried(self, code: Code) -> Code | Uniform | None:
        """Return the specialized code, or None if it needs a tensor."""
        try:
            return self.without(code)
        except TensorNeeded:
            return None

    def _by_rule(self, code: Code) -> Code | Uniform | None:
        """Return a form without the tensor by the rule of the node, else None."""
        match code:
            case Name(name):
                return Uniform(self.numbers[name])
            case Binary("@", left, right):
                return self._product(code, left, right)
            case FunctionCall("torch.tensordot", (left, right, dims)):
                return self._total(code, left, right, dims)
            case Binary(_, left, right):
                return self._combined(code, self.without(left), self.without(right))
            case MethodCall(FunctionCall("torch.where", args) as chosen, "sum", dims):
                return self._counted(chosen, args, dims)
            case FunctionCall(_, args) if torch_op(code).absent:
                return self._of_kernel(code, args)
            case Conditional(test, then, other) if not self.reads(test):
                one, two = self.without(then), self.without(other)
                return one if isinstance(one, Uniform) and one == two else None
            case FunctionCall("torch.where", (test, then, other)):
                return self._chosen(code, test, self.without(then), self.without(other))
        return self._shown(code) if _only_moves_elements(code) else None

    def _of_kernel(self, code: FunctionCall, args: tuple[Code, ...]) -> Code | None:
        """Return a call that accepts None in place of the number, else None."""
        takes = dict(torch_op(code).absent)

        def stays(n: int, argument: Code) -> bool:
            known = isinstance(argument, Name) and self.numbers.get(argument.id) == takes.get(n)
            return n in takes and known

        needed = any(self.reads(a) and not stays(n, a) for n, a in enumerate(args))
        return None if needed else code

    def _shown(self, code: Code) -> Uniform | None:
        """Return the number for a view, a selection or a negative of it."""
        first, *others = code.parts()
        inner = self.without(first)
        if isinstance(inner, Code) or any(map(self.reads, others)):
            return None
        if isinstance(code, Unary):
            return Uniform(_negative(inner.value))
        if isinstance(inner.value, Code) and self.there.shape(inner.value):
            raise TensorNeeded
        return inner

    def _tensor(self, code: Code) -> Code:
        """Return the specialized code as a tensor of its shape."""
        found = self.without(code)
        if isinstance(found, Code):
            return found
        shape = self._shape(code)
        if shape is None:
            raise TensorNeeded
        if isinstance(found.value, Code) and self.there.shape(found.value) is not None:
            return MethodCall(found.value, "expand", (shape,))
        kind = getattr(self.given.of(code), "kind", None)
        dtype = DTYPES.get(kind, self.dtype)
        return expanded(self.like, _number_code(found.value), shape, dtype)

    def _shape(self, code: Code) -> Code | None:
        """Return the shape of a code: of its own ``expand``, or of another tensor."""
        match code:
            case MethodCall(_, "expand" | "reshape", (shape,)) if not self.reads(shape):
                return shape
        if flattens(code):
            return None
        whole = self.given.shape(code)
        same = (name for name in self.tensors if self.there.shape(Name(name)) == whole)
        found = None if whole is None else next(same, None)
        return None if found is None else Attribute(Name(found), "shape")

    def _combined(
        self, code: Binary, left: Code | Uniform, right: Code | Uniform
    ) -> Code | Uniform:
        """Return left op right, one or both of which may be numbers."""
        if isinstance(left, Uniform) and isinstance(right, Uniform):
            return Uniform(self._number(code.op, left.value, right.value))
        if isinstance(left, Code) and isinstance(right, Code):
            return self._of_shape(Binary(code.op, left, right), code)
        one, two = (x.value if isinstance(x, Uniform) else x for x in (left, right))
        numbers = [isinstance(x, Fraction) or self.there.is_number(x) for x in (one, two)]
        if all(numbers):
            return Uniform(self._number(code.op, one, two))
        if not all(n or self._is_float(x) for n, x in zip(numbers, (one, two), strict=True)):
            raise TensorNeeded
        made = _combine_numbers(code.op, one, two)
        assert isinstance(made, Code)
        return self._of_shape(made, code)

    def _number(self, op: str, left: Number, right: Number) -> Number:
        """Return left op right; a quotient of numbers is that of IEEE 754, as of tensors."""
        if op == "/" and isinstance(right, Code) and self.there.is_number(right):
            if isinstance(left, Fraction) or self.there.is_number(left):
                return FunctionCall("rt.ieee_divide", (_number_code(left), right))
        return _combine_numbers(op, left, right)

    def _product(self, code: Code, left: Code, right: Code) -> Code | Uniform | None:
        """Return a matrix product with ones as a sum over the axis that the product contracts."""
        for ones, matrix, place in ((right, left, -1), (left, right, -2)):
            if self.reads(matrix) or not self.reads(ones):
                continue
            if self.without(ones) == Uniform(Fraction(1)) and self._is_float(matrix):
                shape = self.given.shape(matrix)
                axis = place if shape is None else max(place, -len(shape))
                return self._of_shape(MethodCall(matrix, "sum", (literal(axis),)), code)
        return None

    def _total(self, code: Code, x: Code, ones: Code, dims: Code) -> Code | Uniform | None:
        """Return a product with ones as a sum over the axes of x at these places."""
        match dims:
            case Tuple((Tuple((place,)), _)) if not self.reads(x) and self._is_float(x):
                if self.without(ones) == Uniform(Fraction(1)):
                    return self._of_shape(MethodCall(x, "sum", (place,)), code)
        return None

    def _chosen(
        self, code: Code, test: Code, then: Code | Uniform, other: Code | Uniform
    ) -> Code | Uniform:
        """Return a ``where`` between a number and a tensor."""
        if self.reads(test) or then == other:
            raise TensorNeeded
        branches = [_number_code(x.value) if isinstance(x, Uniform) else x for x in (then, other)]
        if not any(self._is_float(x) for x in branches):
            raise TensorNeeded
        return self._of_shape(FunctionCall("torch.where", (test, *branches)), code)

    def _counted(self, chosen: Code, args: tuple[Code, ...], dims: tuple[Code, ...]) -> Code | None:
        """Return the sum of a mask of ones and zeros as the sum of the mask."""
        mask, then, other = args
        if self.reads(mask) or not self.reads(then) or other is not literal(0):
            return None
        if self.without(then) != Uniform(Fraction(1)):
            return None
        if self.there.shape(mask) != self.given.shape(chosen):
            return None
        dtype = self.dtype or Attribute(self.like, "dtype")
        return MethodCall(mask, "sum", (*dims, Keyword("dtype", dtype)))

    def _of_shape(self, made: Code, code: Code) -> Code | Uniform:
        """Return the new code if its shape equals or broadcasts to that of the old one."""
        shape, whole = self.there.shape(made), self.given.shape(code)
        if shape is None or whole is None:
            raise TensorNeeded
        if shape == whole:
            return made
        fits = all(n in (ONE, m) for n, m in zip(shape[::-1], whole[::-1], strict=False))
        if len(shape) > len(whole) or not fits:
            raise TensorNeeded
        return Uniform(made)

    def _is_float(self, code: Number) -> bool:
        """True if the code certainly is a float tensor."""
        return isinstance(code, Code) and self.there.is_float(code)


def _only_moves_elements(code: Code) -> bool:
    """True if the code has only elements of its first operand, or only their negatives."""
    match code:
        case Unary("-") | Attribute(_, "mT" | "T") | Subscript():
            return True
        case MethodCall(_, name) | FunctionCall(name):
            return name.removeprefix("rt.") in _PLACED_ALIKE or torch_op(code).view
    return torch_op(code).view


def _combine_numbers(op: str, left: Number, right: Number) -> Number:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        if op not in ARITHMETIC:
            raise TensorNeeded
        value: Fraction = ARITHMETIC[op](left, right)
        return value
    match op, left, right:
        case ("+", 0, x) | ("*", 1, x) | ("+" | "-", x, 0) | ("*" | "/", x, 1):
            return x
        case ("-", 0, x) | ("*", -1, x) | ("*" | "/", x, -1):
            return _negative(x)
        case "+" | "-" | "*" | "/", _, _:
            return Binary(op, _number_code(left), _number_code(right))
    raise TensorNeeded


def _negative(number: Number) -> Number:
    return Unary("-", number) if isinstance(number, Code) else -number


def _number_code(value: Number) -> Code:
    if isinstance(value, Code):
        return value
    return literal(int(value) if value == int(value) else float(value))


def flattens(code: Code) -> bool:
    """True if a group becomes one axis, as which its types take it anyway."""
    match code:
        case MethodCall(_, "reshape" | "unflatten"):
            return False
        case MethodCall(_, "flatten"):
            return True
    return any(map(flattens, code.parts()))


def expanded(like: Code, number: Code, shape: Code, dtype: Code | None = None) -> Code:
    """Return an expanded tensor of one number, which takes no memory."""
    keywords = () if dtype is None else (Keyword("dtype", dtype),)
    one = MethodCall(like, "new_full", (Tuple(()), number, *keywords))
    return MethodCall(one, "expand", (shape,))


def optional_operands_last(code: Code, optional: Collection[str]) -> Code:
    """Return the code with addends and factors of optional tensors alone after all others.

    Adjacent ones vanish together if both are None.
    """

    def comes(part: Code) -> bool:
        return comes_of(part, optional)

    code = code.map(lambda part: optional_operands_last(part, optional))
    for op in "+*":
        parts = list(operands(code, op))
        if sum(map(comes, parts)) > 1:
            return joined(op, sorted(parts, key=comes))
    return code


def comes_of(code: Code, optional: Collection[str]) -> bool:
    """True if the code reads elements of some of these tensors, and of no other."""
    names = set(values_in(code))
    return bool(names) and names <= set(optional)


def has_choice(code: Code) -> bool:
    """True if the code contains a Python conditional."""
    return any(isinstance(part, Conditional) for part in subexpressions(code))
