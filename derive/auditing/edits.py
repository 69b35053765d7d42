"""Single edits of code: expressions that differ from those of a backward in one thing.

A mistake is one wrong name, sign, factor, term, index or function in most cases, so one edit mends
it. Each edit has a sentence that says what is wrong if the edited code is right.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from derive.auditing.points import is_tensor


@dataclass(frozen=True)
class Edit:
    """A node in place of another one: ``where[key] = after``, or the attribute of that name."""

    where: Any
    key: str | int
    after: ast.AST
    text: str
    line: int

    def swapped(self) -> ast.AST:
        """Puts the node in its place; returns the node that stood there."""
        if isinstance(self.key, int):
            before = self.where[self.key]
            self.where[self.key] = self.after
        else:
            before = getattr(self.where, self.key)
            setattr(self.where, self.key, self.after)
        if "lineno" in before._attributes and "lineno" in self.after._attributes:
            ast.copy_location(self.after, before)
        ast.fix_missing_locations(self.after)
        return before  # type: ignore[no-any-return]

    def undone(self, before: ast.AST) -> None:
        """Puts back the node that stood there."""
        if isinstance(self.key, int):
            self.where[self.key] = before
        else:
            setattr(self.where, self.key, before)


@dataclass(frozen=True)
class Scope:
    """What code may read: the value of each name at its end, and of other expressions."""

    values: Mapping[str, Any]
    functions: Sequence[str] = ()
    """Functions of the same file."""

    def like(self, text: str) -> Iterator[str]:
        """Expressions with a value of the same kind and shape."""
        own = self.values.get(text)
        for other, value in self.values.items():
            if other != text and _kind(value) is not None and _kind(value) == _kind(own):
                yield other

    def factors(self) -> Iterator[str]:
        """Expressions that an element may be multiplied by."""
        yield from self.tensors
        yield from (n for n, v in self.values.items() if _is_number(v) and v not in (0, 1))

    @property
    def tensors(self) -> list[str]:
        """Names of tensors."""
        return [n for n, v in self.values.items() if is_tensor(v)]

    @property
    def floats(self) -> list[str]:
        """Names of tensors that are no masks and no places."""
        return [n for n in self.tensors if self.values[n].is_floating_point()]

    @property
    def rank(self) -> int:
        """Of the tensor with the most axes."""
        return max((self.values[n].ndim for n in self.tensors), default=0)

    def spread(self, name: str) -> Iterator[str]:
        """The tensor, and the same with an axis more for a larger one."""
        yield name
        if 0 < self.values[name].ndim < self.rank:
            yield f"{name}[..., None]"

    def masks(self) -> Iterator[str]:
        """Conditions on an element."""
        for name in self.floats:
            if self.values[name].ndim:
                yield from (f"({name} {op} 0)" for op in (">", ">=", "<", "!="))
                yield f"({name}.abs() <= 1)"
        for name in self.tensors:
            if not self.values[name].is_floating_point() and self.values[name].ndim:
                for text, value in self.values.items():
                    if isinstance(value, int) and not isinstance(value, bool):
                        yield f"({name} != {text})"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kind(value: Any) -> object:
    if is_tensor(value):
        return tuple(value.shape), value.is_floating_point()
    return float if isinstance(value, float) else None


def sites(tree: ast.AST) -> Iterator[tuple[Any, str | int, ast.expr]]:
    """Each expression that is read, and where it stands; larger ones first."""
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if isinstance(value, ast.expr) and not _is_target(value):
                if not (isinstance(parent, ast.Call) and name == "func"):
                    yield parent, name, value
            elif isinstance(value, list):
                for n, part in enumerate(value):
                    if isinstance(part, ast.expr) and not _is_target(part):
                        yield value, n, part


def _is_target(node: ast.expr) -> bool:
    context = getattr(node, "ctx", None)
    return isinstance(context, ast.Store | ast.Del)


def edits(trees: Sequence[ast.AST], scope: Scope) -> Iterator[Edit]:
    """Edits of one thing, the likely ones first."""
    bodies = [part for tree in trees for part in _bodies(tree)]
    every = [site for part in bodies for site in sites(part)]
    for make in (_removed, _replaced, _turned, _exchanged_for):
        for where, key, node in every:
            for after, text in make(node, scope):
                yield Edit(where, key, after, text, node.lineno)
    for part in bodies:
        yield from _statements(part)
    for tree in trees:
        yield from _throughout(tree, scope)
    values = [s for s in every if _is_arithmetic(s[2])]
    for make in (_with_factor, _with_term, _with_product):
        for where, key, node in values:
            for after, text in make(node, scope):
                yield Edit(where, key, after, text, node.lineno)


def saved(tree: ast.AST, scope: Scope) -> Iterator[Edit]:
    """Edits of what a forward keeps for its backward, and of nothing else that it does."""
    for statement in ast.walk(tree):
        if not isinstance(statement, ast.Expr | ast.Assign):
            continue
        if "ctx." not in ast.unparse(statement):
            continue
        for where, key, node in sites(statement):
            if isinstance(node, ast.Name):
                for after, text in _named(node, scope):
                    yield Edit(where, key, after, text, node.lineno)


def _bodies(tree: ast.AST) -> list[ast.stmt]:
    return list(tree.body) if isinstance(tree, ast.FunctionDef) else []


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _stands(before: ast.AST, after: ast.AST) -> tuple[ast.AST, str]:
    return after, f"{ast.unparse(before)} stands where {ast.unparse(after)} should"


Made = Iterator[tuple[ast.AST, str]]

# ------------------------------------------------------------ one for another

_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
_SIGNS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_OTHERS = {
    "sum": ("mean",),
    "mean": ("sum",),
    "scatter": ("scatter_add",),
    "scatter_add": ("scatter",),
    "index_copy": ("index_add",),
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


def _named(node: ast.Name, scope: Scope) -> Made:
    for other in scope.like(node.id):
        yield _stands(node, _parsed(other))
    if node.id in scope.functions:
        for other in scope.functions:
            if other != node.id:
                yield _stands(node, _parsed(other))


def _replaced(node: ast.expr, scope: Scope) -> Made:
    """Another name, sign, number or function."""
    match node:
        case ast.Name():
            yield from _named(node, scope)
        case ast.Attribute(value=ast.Name()):
            for other in scope.like(ast.unparse(node)):
                yield _stands(node, _parsed(other))
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            yield inner, f"the sign of {ast.unparse(inner)} is wrong"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SIGNS:
            after = ast.BinOp(left, _SIGNS[type(op)](), right)
            yield after, f"the sign of {ast.unparse(right)} is wrong"
            if isinstance(op, ast.Sub):
                after = ast.BinOp(right, op, left)
                yield after, f"the sign is wrong: {ast.unparse(left)} and {ast.unparse(right)} are swapped"
            else:
                after = ast.BinOp(right, ast.Sub(), left)
                yield after, f"the sign of {ast.unparse(left)} is wrong"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            after = ast.BinOp(left, _OPERATORS[type(op)](), right)
            how = ("divided", "multiplied")[:: 1 if isinstance(op, ast.Div) else -1]
            yield after, f"it is {how[0]} by {ast.unparse(right)} where it should be {how[1]} by it"
        case ast.Constant(value=value) if _is_number(value):
            for other in dict.fromkeys((2 * value, value / 2, -value, value + 1, value - 1, 1, 0)):
                number = int(other) if isinstance(value, int) and other == int(other) else other
                if number != value:
                    yield _stands(node, ast.Constant(number))
        case ast.Constant(value=bool() as value):
            yield _stands(node, ast.Constant(not value))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for kind in (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq):
                if not isinstance(op, kind):
                    yield _stands(node, ast.Compare(left, [kind()], [right]))
        case ast.Call(func=function, args=args, keywords=keywords):
            yield from _called(node, function, args, keywords, scope)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            yield from _exchanged(node, elements, lambda made: type(node)(made, ast.Load()))


def _called(
    node: ast.Call, function: ast.expr, args: list[Any], keywords: list[Any], scope: Scope
) -> Made:
    if isinstance(function, ast.Attribute):
        for other in _OTHERS.get(function.attr, ()):
            made = ast.Attribute(function.value, other, ast.Load())
            yield _stands(node, ast.Call(made, args, keywords))
        if function.attr in ("index_put", "index_put_"):
            every = [k for k in keywords if k.arg != "accumulate"]
            every.append(ast.keyword("accumulate", ast.Constant(True)))
            after = ast.Call(function, args[:2], every)
            yield after, f"{ast.unparse(node)} keeps one value of each place; it should sum them"
    if isinstance(function, ast.Name) and function.id in scope.functions:
        for other in scope.functions:
            if other != function.id:
                yield _stands(node, ast.Call(_parsed(other), args, keywords))
    yield from _exchanged(node, args, lambda made: ast.Call(function, made, keywords))
    if isinstance(function, ast.Attribute) and args and not isinstance(args[0], ast.Constant):
        first = function.value
        if ast.unparse(first) not in ("torch", "F", "math", "np"):
            made = ast.Call(ast.Attribute(args[0], function.attr, ast.Load()), [first, *args[1:]])
            made.keywords = keywords
            yield _stands(node, made)


def _exchanged(node: ast.expr, parts: list[Any], make: Any) -> Made:
    """Two parts in each other's place, and all in reverse order."""
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


def _exchanged_for(node: ast.expr, scope: Scope) -> Made:
    """A name, or a number, for a part of the code."""
    if isinstance(node, ast.Subscript | ast.Call | ast.Constant | ast.Attribute):
        if isinstance(node, ast.Constant) and not _is_number(node.value):
            return
        for other in scope.tensors:
            for text in scope.spread(other):
                yield _stands(node, _parsed(text))
        for other, value in scope.values.items():
            if _is_number(value):
                yield _stands(node, _parsed(other))
    if isinstance(node, ast.Constant) and node.value in (1, 1.0):
        for name in scope.floats:
            for axis in range(scope.values[name].ndim):
                yield _stands(node, _parsed(f"{name}.sum({axis}, keepdim=True)"))
    if isinstance(node, ast.Name) and is_tensor(scope.values.get(node.id)):
        own = _kind(scope.values[node.id])
        for other in scope.tensors:
            if other != node.id and _kind(scope.values[other]) != own:
                yield _stands(node, _parsed(other))
    if isinstance(node, ast.Call):
        for option in ("adjoint", "accumulate", "upper"):
            if all(k.arg != option for k in node.keywords):
                more = [*node.keywords, ast.keyword(option, ast.Constant(True))]
                after = ast.Call(node.func, node.args, more)
                yield after, f"{option}=True is missing in {ast.unparse(node)}"


class _Exchange(ast.NodeTransformer):
    """Two expressions in each other's place."""

    def __init__(self, one: str, other: str) -> None:
        self.texts, self.inside = {one: other, other: one}, 0

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Subscript):
            self.inside += 1
            node.slice = self.visit(node.slice)
            self.inside -= 1
            node.value = self.visit(node.value)
            return node
        if isinstance(node, ast.Name) or (isinstance(node, ast.Constant) and self.inside):
            if _is_target(node):
                return node
            other = self.texts.get(ast.unparse(node))
            return node if other is None else _parsed(other)
        return self.generic_visit(node)


class _Turning(ast.NodeTransformer):
    """Every read of a name transposed, or of another name."""

    def __init__(self, name: str, other: str = "") -> None:
        self.name, self.other = name, other

    def visit(self, node: ast.AST) -> Any:
        if not self.other and isinstance(node, ast.Attribute | ast.Call):
            if isinstance(node, ast.expr) and _is_transposed(node, self.name):
                return _transposed(node)
        if isinstance(node, ast.Name) and node.id == self.name and not _is_target(node):
            return _parsed(self.other) if self.other else _transposed(node)
        return self.generic_visit(node)


def _pairs(statement: ast.stmt, scope: Scope) -> Iterator[tuple[str, str]]:
    """Names of one kind, and whole numbers, that a statement reads."""
    parts = [p for p in ast.walk(statement) if isinstance(p, ast.Name | ast.Constant)]
    texts = dict.fromkeys(ast.unparse(p) for p in parts if not _is_target(p))
    for one, other in combinations(texts, 2):
        tensors = [_kind(scope.values.get(t)) for t in (one, other)]
        if (tensors[0] is not None and tensors[0] == tensors[1]) or (
            one.isdigit() and other.isdigit()
        ):
            yield one, other


def _is_transposed(node: ast.expr, name: str) -> bool:
    return ast.unparse(node) in (f"{name}.mT", f"{name}.T", f"{name}.t()")


def _throughout(tree: ast.AST, scope: Scope) -> Iterator[Edit]:
    """A statement with every read of one name transposed, or of another name."""
    for part in ast.walk(tree):
        for key, value in ast.iter_fields(part):
            for n, statement in enumerate(value) if isinstance(value, list) else ():
                if not isinstance(statement, ast.Assign | ast.AugAssign | ast.Return):
                    continue
                for one, other in _pairs(statement, scope):
                    after = _Exchange(one, other).visit(copy.deepcopy(statement))
                    yield Edit(value, n, after, f"{one} and {other} are swapped", statement.lineno)
                used = [p.id for p in ast.walk(statement) if isinstance(p, ast.Name)]
                for name in dict.fromkeys(used):
                    if not is_tensor(scope.values.get(name)) or used.count(name) < 2:
                        continue
                    ways = ["", *scope.like(name)] if scope.values[name].ndim > 1 else []
                    for way in ways:
                        after = _Turning(name, way).visit(copy.deepcopy(statement))
                        text = (
                            f"{name} stands where {way} should"
                            if way
                            else f"{name} and its transpose stand in each other's place"
                        )
                        yield Edit(value, n, after, text, statement.lineno)


# ------------------------------------------------------- places, order, axes


def _turned(node: ast.expr, scope: Scope) -> Made:
    """Transposed, in the other order, or one place on."""
    match node:
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            yield ast.BinOp(right, ast.MatMult(), left), _swapped(node)
            for a, b in ((True, False), (False, True), (True, True)):
                for x, y in ((left, right), (right, left)):
                    first, second = _transposed(x) if a else x, _transposed(y) if b else y
                    yield _stands(node, ast.BinOp(first, ast.MatMult(), second))
        case ast.Slice(lower=lower, upper=upper, step=None):
            yield from _slices(node, lower, upper)
        case ast.Name(id=name) if _is_number(scope.values.get(name)):
            for op in (ast.Sub(), ast.Add()):
                yield _stands(node, ast.BinOp(node, op, ast.Constant(1)))
    if isinstance(node, ast.Name) and is_tensor(scope.values.get(node.id)):
        value = scope.values[node.id]
        if value.ndim > 1:
            yield _stands(node, _transposed(node))
        if value.ndim:
            ways = ["flip(-1)", "flip(0)"] if value.ndim > 1 else ["flip(0)"]
            ways += ["flip(1)"] if value.ndim > 2 else []
            ways += ["conj()"] if value.is_complex() else []
            for way in ways:
                yield _stands(node, _parsed(f"{ast.unparse(node)}.{way}"))
        if not value.is_floating_point() and value.ndim and "bool" not in str(value.dtype):
            yield _stands(node, _parsed(f"{node.id}.argsort(-1)"))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in ("cumsum", "cumprod", "logcumsumexp") and node.args:
            whole, axis = node.func.value, ast.unparse(node.args[0])
            text = f"({ast.unparse(whole)}).flip({axis}).{node.func.attr}({axis}).flip({axis})"
            after = _parsed(text)
            yield after, f"{ast.unparse(node)} runs forward; it should run from the end"


def _slices(node: ast.Slice, lower: ast.expr | None, upper: ast.expr | None) -> Made:
    """The same length at another place."""
    if isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Add) and upper is not None:
        after = ast.Slice(lower.left, ast.BinOp(upper, ast.Sub(), lower.right))
        yield _stands(node, after)
    if isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Sub) and lower is not None:
        after = ast.Slice(ast.BinOp(lower, ast.Add(), upper.right), upper.left)
        yield _stands(node, after)
    if (lower is None) != (upper is None):
        yield _stands(node, ast.Slice(upper, lower))


def _transposed(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Attribute) and node.attr in ("mT", "T"):
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "t":
            return node.func.value
    return ast.Attribute(node, "mT", ast.Load())


def _swapped(node: ast.BinOp) -> str:
    after = ast.BinOp(node.right, node.op, node.left)
    return _stands(node, after)[1]


# ---------------------------------------------------------------- left out


def _removed(node: ast.expr, scope: Scope) -> Made:
    """Without one of its operands, or without a function around it."""
    match node:
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            yield right, f"the factor {ast.unparse(left)} is too many"
            yield left, f"the factor {ast.unparse(right)} is too many"
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            yield left, f"the factor 1/({ast.unparse(right)}) is too many"
        case ast.BinOp(left=left, op=ast.Pow()):
            yield _stands(node, left)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            yield left, f"the term {ast.unparse(right)} is too many"
            yield right, f"the term {ast.unparse(left)} is too many"
        case ast.IfExp(body=body, orelse=orelse):
            yield _stands(node, body)
            yield _stands(node, orelse)
        case ast.Call(func=function, args=args):
            if len(args) == 1 and not isinstance(args[0], ast.Starred):
                yield _stands(node, args[0])
            if isinstance(function, ast.Attribute):
                yield _stands(node, function.value)
            if isinstance(function, ast.Attribute) and "zeros" in function.attr:
                for other, value in scope.values.items():
                    if is_tensor(value) and value.is_floating_point() and value.ndim:
                        yield _stands(node, _parsed(other))
        case ast.Attribute(value=value) if node.attr in ("mT", "T"):
            yield _stands(node, value)


def _statements(body: ast.stmt) -> Iterator[Edit]:
    """A value that should be added where it is put, or put where it is added."""
    for parent in ast.walk(body):
        for name, value in ast.iter_fields(parent):
            if isinstance(value, list):
                for n, part in enumerate(value):
                    for after, text in _assigned(part):
                        yield Edit(value, n, after, text, part.lineno)
            elif isinstance(value, ast.stmt):
                for after, text in _assigned(value):
                    yield Edit(parent, name, after, text, value.lineno)


def _assigned(part: Any) -> Made:
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


# ------------------------------------------------------------ what is missing


def _is_arithmetic(node: ast.expr) -> bool:
    """Whether a factor or a term may stand beside it."""
    return isinstance(node, ast.BinOp | ast.UnaryOp | ast.Call | ast.Name | ast.Subscript)


def _with_factor(node: ast.expr, scope: Scope) -> Made:
    for number in (2, 3):
        value = ast.Constant(number)
        yield ast.BinOp(node, ast.Mult(), value), f"the factor {number} is missing"
        yield ast.BinOp(node, ast.Div(), value), f"the factor 1/{number} is missing"
    for text in (t for f in scope.factors() for t in _spread(f, scope)):
        factor = _parsed(text)
        yield ast.BinOp(node, ast.Mult(), factor), f"the factor {text} is missing"
        own = scope.values.get(text.removesuffix("[..., None]"))
        if is_tensor(own) and not own.is_floating_point():
            continue
        if text != ast.unparse(node):
            yield ast.BinOp(node, ast.Div(), factor), f"the factor 1/{text} is missing"
        other = ast.BinOp(ast.Constant(1), ast.Sub(), factor)
        yield ast.BinOp(node, ast.Mult(), other), f"the factor (1 - {text}) is missing"
    yield ast.UnaryOp(ast.USub(), node), f"the sign of {ast.unparse(node)} is wrong"
    for text in scope.masks():
        yield ast.BinOp(node, ast.Mult(), _parsed(text)), f"the mask {text} is missing"
    whole = ast.unparse(node)
    for text, number in scope.values.items():
        if isinstance(number, float):
            yield _stands(node, _parsed(f"({whole}).clamp(-{text}, {text})"))
    for name in scope.tensors:
        value = scope.values[name]
        if value.dtype.is_floating_point or not value.ndim:
            continue
        if "bool" in str(value.dtype):
            for text, number in scope.values.items():
                if isinstance(number, float):
                    for sides in (f"{whole}, {text} * ({whole})", f"{text} * ({whole}), {whole}"):
                        yield _stands(node, _parsed(f"torch.where({name}, {sides})"))
        else:
            yield _stands(node, _parsed(f"({whole}).gather(-1, {name})"))
            yield _stands(node, _parsed(f"({whole})[{name}]"))


def _spread(text: str, scope: Scope) -> Iterator[str]:
    return scope.spread(text) if is_tensor(scope.values[text]) else iter([text])


def _with_term(node: ast.expr, scope: Scope) -> Made:
    one = ast.Constant(1)
    yield ast.BinOp(one, ast.Add(), node), f"the term 1 is missing beside {ast.unparse(node)}"
    yield ast.BinOp(one, ast.Sub(), node), f"{ast.unparse(node)} stands where 1 - it should"
    sizes = [f"torch.eye({t})" for t, v in scope.values.items() if ".shape[" in t]
    for text in [*(t for f in scope.floats for t in scope.spread(f)), *sizes]:
        yield from _beside(node, text)


def _with_product(node: ast.expr, scope: Scope) -> Made:
    for a, b in combinations(scope.floats, 2):
        yield from _beside(node, f"{a} * {b}")
        yield from _beside(node, f"{a} * {b} * (1 - {b})")
        yield from _beside(node, f"{a} * (1 - {a}) * {b}")


def _beside(node: ast.expr, text: str) -> Made:
    term, beside = _parsed(text), f"is missing beside {ast.unparse(node)}"
    yield ast.BinOp(node, ast.Add(), term), f"the term {text} {beside}"
    yield ast.BinOp(node, ast.Sub(), term), f"the term -{text} {beside}"
