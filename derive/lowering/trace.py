"""The code of an operation followed with shapes in place of tensors.

A group of axes is one axis of as many elements; flags are False, and every optional tensor is
given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from derive.algebra.amount import degree, floor_divided
from derive.algebra.expr import Call
from derive.algebra.poly import ZERO, Poly, add, atom, constant, mul, scale
from derive.lowering.code import text
from derive.lowering.effects import KNOWN
from derive.lowering.steps import (
    Shaped,
    Steps,
    broadcast,
    cut,
    elements,
    kind_of,
    position,
)
from derive.lowering.tidy import Line

__all__ = ["Trace"]


@dataclass
class Trace(Steps):
    """Values by name, and the steps so far."""

    values: dict[str, Any] = field(default_factory=dict)

    def run(self, lines: Iterable[Line], known: Mapping[str, Shaped]) -> None:
        """Follow the lines; ``known`` has the shapes of names as they are declared.

        A name may hold a tensor with other axes: those of a composite axis apart.
        """
        for line in lines:
            self.line = line.name
            value = self.value(ast.parse(text(line.code), mode="eval").body)
            declared = known.get(line.name)
            if isinstance(value, Shaped) and declared is not None:
                if len(value.shape) == len(declared.shape):
                    value = replace(value, shape=declared.shape)
            self.values[line.name] = value

    def value(self, e: ast.expr) -> Any:
        """A `Shaped`, a `Poly` for a whole number, a tuple, or what else Python has."""
        match e:
            case ast.Constant(int() as n) if not isinstance(n, bool):
                return constant(n)
            case ast.Constant(value):
                return value
            case ast.Slice(lower, upper, step):
                return slice(*(None if x is None else self.value(x) for x in (lower, upper, step)))
            case ast.Name(name):
                return self.values.get(name)
            case ast.Tuple(items) | ast.List(items):
                return tuple(x for item in items for x in self._spread(item))
            case ast.Attribute(obj, name):
                return self._attribute(self.value(obj), name)
            case ast.Subscript(obj, item):
                return self._item(self.value(obj), item)
            case ast.UnaryOp(op, operand):
                return self._unary(type(op).__name__, self.value(operand))
            case ast.BinOp(left, op, right):
                return self._binary(type(op).__name__, self.value(left), self.value(right))
            case ast.Compare(left, [op], [right]):
                return self._binary(type(op).__name__, self.value(left), self.value(right))
            case ast.BoolOp(op, values):
                # One part decides, or all do; what is not known here is None and decides nothing.
                found = [self.value(x) for x in values]
                decides = isinstance(op, ast.Or)
                if any(x is decides for x in found):
                    return decides
                return not decides if all(x is (not decides) for x in found) else None
            case ast.IfExp(test, then, other):
                return self.value(other if self.value(test) is False else then)
            case ast.Call():
                return self._call(e)
        return None

    def _spread(self, item: ast.expr) -> tuple[Any, ...]:
        if not isinstance(item, ast.Starred):
            return (self.value(item),)
        value = self.value(item.value)
        return value if isinstance(value, tuple) else (value,)

    def _attribute(self, obj: Any, name: str) -> Any:
        if not isinstance(obj, Shaped):
            return None
        match name:
            case "shape":
                return obj.shape
            case "mT":
                return replace(obj, shape=(*obj.shape[:-2], obj.shape[-1], obj.shape[-2]))
            case "indices":
                return replace(obj, kind="int")
        return obj if name == "values" else None

    def _item(self, obj: Any, item: ast.expr) -> Any:
        """A part of a shape, or a tensor read at positions."""
        if isinstance(obj, tuple):
            if isinstance(item, ast.Slice):
                ends = [
                    None if x is None else position(self.value(x)) for x in (item.lower, item.upper)
                ]
                return obj[slice(*ends)]
            return obj[position(self.value(item))]
        if not isinstance(obj, Shaped):
            return None
        items = [self.value(x) for x in (item.elts if isinstance(item, ast.Tuple) else [item])]
        if Ellipsis in items:
            n = items.index(Ellipsis)
            items[n : n + 1] = [slice(None)] * (len(obj.shape) - len(items) + 1)
        placed = [x for x in items if isinstance(x, Shaped)]
        kept = [cut(n, x) for x, n in zip(items, obj.shape, strict=False) if isinstance(x, slice)]
        shape = (*broadcast(placed), *kept, *obj.shape[len(items) :])
        if not placed:
            return replace(obj, shape=tuple(self.letters.get(n, n) for n in shape))
        return self.did("index", (obj, *placed), shape, ZERO, obj.kind)

    def _unary(self, op: str, x: Any) -> Any:
        if isinstance(x, Poly):
            return scale(x, -1) if op == "USub" else None
        if not isinstance(x, Shaped):
            return not x if op == "Not" and isinstance(x, bool) else None
        return self.elementwise(op, (x,), x.kind)

    def _binary(self, op: str, a: Any, b: Any) -> Any:
        if not isinstance(a, Shaped) and not isinstance(b, Shaped):
            return _number(op, a, b)
        if op == "MatMult":
            return self.matmul(a, b)
        if op == "Div" and not isinstance(a, Shaped):
            # torch takes the reciprocal, then multiplies.
            b = self.elementwise("reciprocal", (b,), "float")
        return self.elementwise(op, (a, b), "bool" if op in _RELATIONS else kind_of((a, b)))

    def _call(self, e: ast.Call) -> Any:
        args = [x for item in e.args for x in self._spread(item)]
        given = {k.arg: self.value(k.value) for k in e.keywords if k.arg is not None}
        name = ast.unparse(e.func)
        if isinstance(e.func, ast.Attribute):
            obj = self.value(e.func.value)
            name = e.func.attr
            if isinstance(obj, Shaped):
                args = [obj, *args]
            elif name == "prod" and args and isinstance(args[0], tuple):
                return elements(args[0])
        first = next((x for x in args if isinstance(x, Shaped)), None)
        if first is None and name not in _MAKING:
            return self._tuple(name, args) or _of_numbers(name, args)
        if name == "dim" and first is not None:
            return constant(len(first.shape))
        if name == "numel" and first is not None:
            return elements(first.shape)
        if name in ("to", "new_full", "new_zeros", "arange", "tensor"):
            args += [ast.unparse(x) for x in (*e.args, *(k.value for k in e.keywords))]
        known = KNOWN.get(name)
        if known is not None:
            return known(self, args, given)
        return self.elementwise(name, (*args, *given.values()), kind_of(args))

    def _tuple(self, name: str, args: Sequence[Any]) -> Any:
        """A tuple of tensors among the arguments: they are joined."""
        if args and isinstance(args[0], tuple) and name in ("cat", "stack"):
            return KNOWN[name](self, args, {})
        return None


_RELATIONS = ("Eq", "NotEq", "Lt", "LtE", "Gt", "GtE")
_MAKING = ("arange", "tensor", "einsum", "where", "zeros", "full", "ones")


def _number(op: str, a: Any, b: Any) -> Any:
    """What whole numbers give; None where a number is not known."""
    if op in ("Is", "IsNot"):
        return (a is None and b is None) == (op == "Is")
    if not isinstance(a, Poly) or not isinstance(b, Poly):
        return None
    match op:
        case "Add":
            return add(a, b)
        case "Sub":
            return add(a, scale(b, -1))
        case "Mult":
            return mul(a, b)
        case "FloorDiv":
            return floor_divided(a, b)
        case "Mod" if not (degree(a) or degree(b)):
            return constant(position(a) % position(b))
    return None


def _of_numbers(name: str, args: Sequence[Any]) -> Any:
    if name == "slice":
        return slice(*args)
    if name == "len":
        return constant(len(args[0])) if isinstance(args[0], tuple) else None
    if name in ("min", "max") and all(isinstance(x, Poly) for x in args):
        if not any(degree(x) for x in args):
            return constant((min if name == "min" else max)(map(position, args)))
        return atom(Call("minimum" if name == "min" else "maximum", tuple(args)))
    return None
