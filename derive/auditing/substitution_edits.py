"""Edits of code that replace a name, sign, number or function, or remove an operand or a call."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from derive.auditing.points import is_tensor

# -------------------------------------------------------------------------------------------- scope
# An edit of code, and the names and values that edited code may read.

Made = Iterator[tuple[ast.AST, str]]
"""Candidate nodes to replace one, each with the mistake that it implies."""

_LARGER = 1.0078125


@dataclass(frozen=True)
class Edit:
    """A replacement of a node: ``where[key] = after``, or the attribute of that name."""

    where: Any
    key: str | int
    after: ast.AST
    text: str
    line: int
    stem: str = ""
    """The inserted part, to find the same insertion at other nodes."""

    @property
    def before(self) -> ast.AST:
        """The current node at that position."""
        if isinstance(self.key, int):
            return self.where[self.key]  # type: ignore[no-any-return]
        return getattr(self.where, self.key)  # type: ignore[no-any-return]

    def scaled(self) -> Edit:
        """Return the edit with its value scaled slightly."""
        assert isinstance(self.after, ast.expr)
        after = ast.BinOp(self.after, ast.Mult(), ast.Constant(_LARGER))
        return replace(self, after=after)

    def swapped(self) -> ast.AST:
        """Apply the edit; return the old node."""
        before = self.before
        self.undone(self.after)
        if "lineno" in before._attributes and "lineno" in self.after._attributes:
            ast.copy_location(self.after, before)
        ast.fix_missing_locations(self.after)
        return before

    def undone(self, before: ast.AST) -> None:
        """Restore the old node."""
        if isinstance(self.key, int):
            self.where[self.key] = before
        else:
            setattr(self.where, self.key, before)


@dataclass(frozen=True)
class CodeScope:
    """The values of names and other expressions at the end of the code."""

    values: Mapping[str, Any]
    functions: Sequence[str] = ()
    """Names of functions of the same module."""
    loops: Sequence[str] = ()
    """Names of loop variables."""

    def like(self, text: str) -> Iterator[str]:
        """Yield expressions whose values have the same kind and shape."""
        own = kind_of_value(self.values.get(text))
        for other, value in self.values.items():
            if other != text and own is not None and kind_of_value(value) == own:
                yield other

    def factors(self) -> Iterator[str]:
        """Yield expressions to multiply an element by; those with one element last.

        Numbers come last: a number may equal a size, but no tensor equals a number everywhere.
        """
        one = [n for n in self.tensors if self.values[n].numel() == 1]
        yield from (n for n in self.tensors if n not in one)
        yield from ("2", "3", *one)
        yield from (n for n, v in self.values.items() if is_number(v) and v not in (0, 1))

    def also(self, number: float) -> str:
        """Return " (NAME is NUMBER)" if an argument or saved value equals the number, else ''."""
        own = (n for n, v in self.values.items() if is_number(v) and v == number)
        name = next((n for n in own if ".shape[" not in n), "")
        return f" ({name} is {number})" if name else ""

    @property
    def tensors(self) -> list[str]:
        """Names of tensors."""
        return [n for n, v in self.values.items() if is_tensor(v)]

    @property
    def floats(self) -> list[str]:
        """Names of float tensors."""
        return [n for n in self.tensors if self.values[n].is_floating_point()]

    def is_mask(self, name: str) -> bool:
        """True if it is a tensor of bools."""
        value = self.values[name]
        return is_tensor(value) and "bool" in str(value.dtype)

    def is_whole(self, name: str) -> bool:
        """True if it is a tensor of integers."""
        value = self.values[name]
        return is_tensor(value) and not value.is_floating_point() and not self.is_mask(name)

    @property
    def rank(self) -> int:
        """The largest rank among the tensors."""
        return max((self.values[n].ndim for n in self.tensors), default=0)

    def spread(self, name: str) -> Iterator[str]:
        """Yield the tensor, and variants of it that broadcast over a larger one."""
        yield name
        yield from self.along_rows(name)
        if self.values[name].ndim > 1:
            yield from (f"{name}[:, {t}]" for t in self.loops)

    def along_rows(self, name: str) -> Iterator[str]:
        """Yield the tensor with a trailing axis, to broadcast over rows instead of columns."""
        if 0 < self.values[name].ndim < self.rank:
            yield f"{name}[..., None]"

    def masks(self) -> Iterator[str]:
        """Yield boolean conditions on elements."""
        for name in self.tensors:
            if self.is_mask(name):
                yield from (f"(~{text})" for text in self.spread(name))
        for name in self.floats:
            if self.values[name].ndim:
                yield from (f"({name} {op} 0)" for op in (">", ">=", "<", "!="))
                yield f"({name}.abs() <= 1)"
        for name in self.tensors:
            if self.is_whole(name) and self.values[name].ndim:
                for text, value in self.values.items():
                    if isinstance(value, int) and not isinstance(value, bool):
                        yield f"({name} != {text})"


def is_number(value: Any) -> bool:
    """True for an int or float, not for a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def kind_of_value(value: Any) -> object:
    """Return the key of interchangeable values: shape and dtype class; None if not comparable."""
    if is_tensor(value):
        return tuple(value.shape), value.is_floating_point()
    return float if isinstance(value, float) else None


def is_target(node: ast.expr) -> bool:
    """True if the node is assigned or deleted."""
    context = getattr(node, "ctx", None)
    return isinstance(context, ast.Store | ast.Del)


def parsed(text: str) -> ast.expr:
    """Parse an expression."""
    return ast.parse(text, mode="eval").body


def stands(before: ast.AST, after: ast.AST) -> tuple[ast.AST, str]:
    """Return the new node, and the sentence that it should replace the old one."""
    return after, f"{ast.unparse(before)} stands where {ast.unparse(after)} should"


# ------------------------------------------------------------------------------- substitution edits


_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {ast.Mult: ast.Div, ast.Div: ast.Mult}
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
        is_cast = function.attr == "to" or function.attr.endswith("_as")
        if not is_cast and not _is_module(first):
            method = ast.Attribute(args[0], function.attr, ast.Load())
            yield stands(node, ast.Call(method, [first, *args[1:]], keywords))


def _is_module(node: ast.expr) -> bool:
    """True of the usual name of a module."""
    return ast.unparse(node) in ("torch", "F", "math", "np")


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


def removed(node: ast.expr, scope: CodeScope) -> Made:
    """Remove an operand, or the function around it."""
    match node:
        case (
            ast.BinOp(left=left, op=ast.Mult(), right=right)
            | ast.Call(func=ast.Attribute(attr="mul"), args=[left, right])
        ):
            yield right, f"the factor {ast.unparse(left)} is too many"
            yield left, f"the factor {ast.unparse(right)} is too many"
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr(), right=right):
            yield stands(node, left)
            yield stands(node, right)
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
            if isinstance(function, ast.Attribute) and not _is_module(function.value):
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


def left_out(body: ast.AST) -> Iterator[Edit]:
    """Leave out a statement that writes into a tensor."""
    for parent in ast.walk(body):
        for _, value in ast.iter_fields(parent):
            for n, part in enumerate(value) if isinstance(value, list) else ():
                match part:
                    case ast.Assign(targets=[ast.Subscript()]) | ast.Expr(value=ast.Call()):
                        text = f"{ast.unparse(part)} is too many"
                        yield Edit(value, n, ast.Pass(), text, part.lineno)


def statements(body: ast.AST) -> Iterator[Edit]:
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
        case ast.Assign(targets=[ast.Subscript(value=whole, slice=index)], value=value) | (
            ast.AugAssign(ast.Subscript(value=whole, slice=index), ast.Add(), value)
        ):
            # Of equal positions, an assignment keeps one value.
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            places = ", ".join(map(ast.unparse, parts))
            text = f"{ast.unparse(whole)}.index_put_([{places}], {ast.unparse(value)}, True)"
            what = f"{ast.unparse(part)} keeps one value of each place; it should sum them"
            cut = [n for n, p in enumerate(parts) if ast.unparse(p) != ":"]
            if not any(isinstance(x, ast.Slice) for x in ast.walk(index)):
                yield ast.Expr(parsed(text)), what
            elif len(cut) == 1 and not isinstance(parts[n := cut[0]], ast.Slice):
                text = f"{ast.unparse(whole)}.index_add_({n}, {ast.unparse(parts[n])}, "
                yield ast.Expr(parsed(f"{text}{ast.unparse(value)})")), what
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
