"""Edits that replace a name, sign, number or function, or remove an operand or a call."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from derive.auditing.points import is_tensor
from derive.auditing.scope import CodeScope, Edit, Made, is_number, kind_of_value, parsed, stands

# ------------------------------------------------------------ one for another

_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
_SIGNS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_OTHERS = {
    "sum": ("mean",),
    "mean": ("sum",),
    "numel": ("sum",),
    "sin": ("cos",),
    "cos": ("sin",),
    "tril": ("triu",),
    "triu": ("tril",),
    "sinh": ("cosh",),
    "cosh": ("sinh",),
    "maximum": ("minimum",),
    "minimum": ("maximum",),
    "zeros_like": ("ones_like",),
    "ones_like": ("zeros_like",),
}

_SUMMED = {
    "scatter": "scatter_add",
    "scatter_": "scatter_add_",
    "index_copy": "index_add",
    "index_copy_": "index_add_",
}


def named(node: ast.Name, scope: CodeScope) -> Made:
    """Yield other names of the same kind."""
    for other in scope.like(node.id):
        yield stands(node, parsed(other))
    if node.id in scope.functions:
        for other in scope.functions:
            if other != node.id:
                yield stands(node, parsed(other))


def replaced(node: ast.expr, scope: CodeScope) -> Made:
    """Replace a name, sign, number or function."""
    match node:
        case ast.Name():
            yield from named(node, scope)
        case ast.Attribute(value=ast.Name()):
            for other in scope.like(ast.unparse(node)):
                yield stands(node, parsed(other))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            yield inner, f"the sign of {ast.unparse(inner)} is wrong"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
            after = ast.BinOp(left, _SIGNS[type(op)](), right)
            yield after, f"the sign of {ast.unparse(right)} is wrong"
            if isinstance(op, ast.Sub):
                after = ast.BinOp(right, op, left)
                yield (
                    after,
                    f"the sign is wrong: {ast.unparse(left)} and {ast.unparse(right)} are swapped",
                )
            else:
                after = ast.BinOp(right, ast.Sub(), left)
                yield after, f"the sign of {ast.unparse(left)} is wrong"
        case ast.Constant(value=bool() as truth):
            yield stands(node, ast.Constant(not truth))
        case ast.Constant(value=int() | float() as value):
            near = [-value, value + 1, value - 1, 1, 0]
            # A constant instead of 1 would be a missing factor, which is another edit.
            near += [] if value in (0, 1) else [2 * value, value / 2]
            for number in dict.fromkeys(near):
                if number != value and (isinstance(value, float) or number == int(number)):
                    near_by = int(number) if isinstance(value, int) else number
                    made, text = stands(node, ast.Constant(near_by))
                    yield made, text + scope.also(near_by)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for kind in (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq):
                if not isinstance(op, kind):
                    yield stands(node, ast.Compare(left, [kind()], [right]))
        case ast.Call(func=function, args=args, keywords=keywords):
            yield from _changed_calls(node, function, args, keywords, scope)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            yield from _exchanged_parts(node, elements, lambda made: type(node)(made, ast.Load()))


def _changed_calls(
    node: ast.Call, function: ast.expr, args: list[Any], keywords: list[Any], scope: CodeScope
) -> Made:
    if isinstance(function, ast.Attribute):
        for other in _OTHERS.get(function.attr, ()):
            made = ast.Attribute(function.value, other, ast.Load())
            yield stands(node, ast.Call(made, args, keywords))
        if function.attr in _SUMMED:
            after = ast.Call(
                ast.Attribute(function.value, _SUMMED[function.attr], ast.Load()), args, keywords
            )
            yield after, f"{ast.unparse(node)} keeps one value of each place; it should sum them"
        if function.attr in ("index_put", "index_put_"):
            every = [k for k in keywords if k.arg != "accumulate"]
            every.append(ast.keyword("accumulate", ast.Constant(True)))
            after = ast.Call(function, args[:2], every)
            yield after, f"{ast.unparse(node)} keeps one value of each place; it should sum them"
    if isinstance(function, ast.Name) and function.id in scope.functions:
        for other in scope.functions:
            if other != function.id:
                yield stands(node, ast.Call(parsed(other), args, keywords))
    yield from _exchanged_parts(node, args, lambda made: ast.Call(function, made, keywords))
    if isinstance(function, ast.Attribute) and args and not isinstance(args[0], ast.Constant):
        first = function.value
        if ast.unparse(first) not in ("torch", "F", "math", "np"):
            method = ast.Attribute(args[0], function.attr, ast.Load())
            yield stands(node, ast.Call(method, [first, *args[1:]], keywords))


def _exchanged_parts(node: ast.expr, parts: list[Any], make: Any) -> Made:
    """Exchange two parts, or undo reversed()."""
    for a, b in combinations(range(len(parts)), 2):
        made = list(parts)
        made[a], made[b] = made[b], made[a]
        if not any(isinstance(parts[k], ast.Starred) for k in (a, b)):
            yield make(made), f"{ast.unparse(parts[a])} and {ast.unparse(parts[b])} are swapped"
    if len(parts) == 1 and isinstance(parts[0], ast.Starred):
        inside = parts[0].value
        if isinstance(inside, ast.Call) and ast.unparse(inside.func) == "reversed":
            rest = ast.Starred(inside.args[0], ast.Load())
            yield make([rest]), f"{ast.unparse(inside.args[0])} is in reverse order"


def inverted(node: ast.expr, scope: CodeScope) -> Made:
    """Exchange multiplication and division."""
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            after = ast.BinOp(left, _OPERATORS[type(op)](), right)
            how = ("divided", "multiplied")[:: 1 if isinstance(op, ast.Div) else -1]
            yield after, f"it is {how[0]} by {ast.unparse(right)} where it should be {how[1]} by it"


def exchanged_for(node: ast.expr, scope: CodeScope) -> Made:
    """Replace a part of the code by a name or a number."""
    if isinstance(node, ast.Subscript | ast.Call | ast.Constant | ast.Attribute):
        if isinstance(node, ast.Constant) and not is_number(node.value):
            return
        for other in scope.tensors:
            for text in scope.spread(other):
                yield stands(node, parsed(text))
        for other, value in scope.values.items():
            if is_number(value):
                yield stands(node, parsed(other))
        for name in scope.floats if isinstance(node, ast.Call) else ():
            for places in scope.tensors:
                if scope.is_whole(places) and scope.values[name].ndim:
                    yield stands(node, parsed(f"{name}[{places}]"))
    if isinstance(node, ast.Constant) and node.value in (1, 1.0):
        for name in scope.floats:
            for axis in range(scope.values[name].ndim):
                yield stands(node, parsed(f"{name}.sum({axis}, keepdim=True)"))
    if isinstance(node, ast.Name) and is_tensor(scope.values.get(node.id)):
        own = kind_of_value(scope.values[node.id])
        for other in scope.tensors:
            if other != node.id and kind_of_value(scope.values[other]) != own:
                yield stands(node, parsed(other))
    if isinstance(node, ast.Call):
        for option in ("adjoint", "accumulate", "upper"):
            if all(k.arg != option for k in node.keywords):
                more = [*node.keywords, ast.keyword(option, ast.Constant(True))]
                after = ast.Call(node.func, node.args, more)
                yield after, f"{option}=True is missing in {ast.unparse(node)}"


# ---------------------------------------------------------------- left out


def removed(node: ast.expr, scope: CodeScope) -> Made:
    """Remove an operand, or the function around it."""
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            yield right, f"the factor {ast.unparse(left)} is too many"
            yield left, f"the factor {ast.unparse(right)} is too many"
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            below = ast.unparse(right)
            below = f"({below})" if isinstance(right, ast.BinOp) else below
            yield left, f"the factor 1/{below} is too many"
        case ast.BinOp(left=left, op=ast.Pow()):
            yield stands(node, left)
        case ast.BinOp(left=ast.Name(id=name) as left, op=ast.Add() | ast.Sub()) if (
            name in scope.loops
        ):
            yield stands(node, left)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            yield left, f"the term {ast.unparse(right)} is too many"
            yield right, f"the term {ast.unparse(left)} is too many"
        case ast.IfExp(body=body, orelse=orelse):
            yield stands(node, body)
            yield stands(node, orelse)
        case ast.Call(func=function, args=args):
            if len(args) == 1 and not isinstance(args[0], ast.Starred):
                yield stands(node, args[0])
            if isinstance(function, ast.Attribute):
                yield stands(node, function.value)
            if isinstance(function, ast.Attribute) and "zeros" in function.attr:
                for other, value in scope.values.items():
                    if is_tensor(value) and value.is_floating_point() and value.ndim:
                        yield stands(node, parsed(other))
        case ast.Attribute(value=value) if node.attr in ("mT", "T"):
            yield stands(node, value)
        case ast.Subscript(value=value) if _has_new_axis(node):
            yield stands(node, value)


def _has_new_axis(node: ast.Subscript) -> bool:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return any(isinstance(part, ast.Constant) and part.value is None for part in parts)


def statements(body: ast.stmt) -> Iterator[Edit]:
    """Exchange assignment and accumulation (= and +=), or += and -=."""
    for parent in ast.walk(body):
        for name, value in ast.iter_fields(parent):
            if isinstance(value, list):
                for n, part in enumerate(value):
                    for after, text in _changed_assignments(part):
                        yield Edit(value, n, after, text, part.lineno)
            elif isinstance(value, ast.stmt):
                for after, text in _changed_assignments(value):
                    yield Edit(parent, name, after, text, value.lineno)


def _changed_assignments(part: Any) -> Made:
    match part:
        case ast.Assign(targets=[ast.Subscript() | ast.Name() as target], value=value):
            after: ast.stmt = ast.AugAssign(target, ast.Add(), value)
            text = f"{ast.unparse(target)} keeps the last value alone; the values should be summed"
            yield after, text
        case ast.AugAssign(target=target, op=ast.Add() | ast.Sub() as op, value=value):
            other = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
            yield ast.AugAssign(target, other, value), f"the sign of {ast.unparse(value)} is wrong"
            text = f"{ast.unparse(value)} is added to {ast.unparse(target)}; it should replace it"
            yield ast.Assign([target], value), text
