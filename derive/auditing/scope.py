"""What an edit of code is, and what edited code may read."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from derive.auditing.points import is_tensor

Made = Iterator[tuple[ast.AST, str]]
"""Nodes that may stand in place of one, each with what is wrong if it is right."""

_LARGER = 1.0078125


@dataclass(frozen=True)
class Edit:
    """A node in place of another one: ``where[key] = after``, or the attribute of that name."""

    where: Any
    key: str | int
    after: ast.AST
    text: str
    line: int
    stem: str = ""
    """What is put beside the node, where the same may stand in several places."""

    @property
    def before(self) -> ast.AST:
        """The node that stands there."""
        if isinstance(self.key, int):
            return self.where[self.key]  # type: ignore[no-any-return]
        return getattr(self.where, self.key)  # type: ignore[no-any-return]

    def scaled(self) -> Edit:
        """The same with a value that is a little larger."""
        assert isinstance(self.after, ast.expr)
        after = ast.BinOp(self.after, ast.Mult(), ast.Constant(_LARGER))
        return replace(self, after=after)

    def swapped(self) -> ast.AST:
        """Puts the node in its place; returns the node that stood there."""
        before = self.before
        self.undone(self.after)
        if "lineno" in before._attributes and "lineno" in self.after._attributes:
            ast.copy_location(self.after, before)
        ast.fix_missing_locations(self.after)
        return before

    def undone(self, before: ast.AST) -> None:
        """Puts this node there."""
        if isinstance(self.key, int):
            self.where[self.key] = before
        else:
            setattr(self.where, self.key, before)


@dataclass(frozen=True)
class CodeScope:
    """What code may read: the value of each name at its end, and of other expressions."""

    values: Mapping[str, Any]
    functions: Sequence[str] = ()
    """Functions of the same file."""
    loops: Sequence[str] = ()
    """Names that loops count with."""

    def like(self, text: str) -> Iterator[str]:
        """Expressions with a value of the same kind and shape."""
        own = kind_of_value(self.values.get(text))
        for other, value in self.values.items():
            if other != text and own is not None and kind_of_value(value) == own:
                yield other

    def factors(self) -> Iterator[str]:
        """Expressions that an element may be multiplied by; those of one element last.

        A number may be that of a size, but no tensor is that of a number at all its elements.
        """
        one = [n for n in self.tensors if self.values[n].numel() == 1]
        yield from (n for n in self.tensors if n not in one)
        yield from ("2", "3", *one)
        yield from (n for n, v in self.values.items() if is_number(v) and v not in (0, 1))

    def also(self, number: float) -> str:
        """What else is this number: an argument, or what forward kept."""
        own = (n for n, v in self.values.items() if is_number(v) and v == number)
        name = next((n for n in own if ".shape[" not in n), "")
        return f" ({name} is {number})" if name else ""

    @property
    def tensors(self) -> list[str]:
        """Names of tensors."""
        return [n for n, v in self.values.items() if is_tensor(v)]

    @property
    def floats(self) -> list[str]:
        """Names of tensors that are no masks and no places."""
        return [n for n in self.tensors if self.values[n].is_floating_point()]

    def is_mask(self, name: str) -> bool:
        """Whether it is a tensor of bools."""
        value = self.values[name]
        return is_tensor(value) and "bool" in str(value.dtype)

    def is_whole(self, name: str) -> bool:
        """Whether it is a tensor of whole numbers."""
        value = self.values[name]
        return is_tensor(value) and not value.is_floating_point() and not self.is_mask(name)

    @property
    def rank(self) -> int:
        """Of the tensor with the most axes."""
        return max((self.values[n].ndim for n in self.tensors), default=0)

    def spread(self, name: str) -> Iterator[str]:
        """The tensor, and the same with an axis more for a larger one."""
        yield name
        yield from self.along_rows(name)
        if self.values[name].ndim > 1:
            yield from (f"{name}[:, {t}]" for t in self.loops)

    def along_rows(self, name: str) -> Iterator[str]:
        """The tensor with one element for each row of a larger one, not for each column."""
        if 0 < self.values[name].ndim < self.rank:
            yield f"{name}[..., None]"

    def masks(self) -> Iterator[str]:
        """Conditions on an element."""
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
    """Whether it is a number that one may calculate with."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def kind_of_value(value: Any) -> object:
    """What values that may stand for each other have in common; None for no kind."""
    if is_tensor(value):
        return tuple(value.shape), value.is_floating_point()
    return float if isinstance(value, float) else None


def is_target(node: ast.expr) -> bool:
    """Whether it is assigned to or deleted."""
    context = getattr(node, "ctx", None)
    return isinstance(context, ast.Store | ast.Del)


def parsed(text: str) -> ast.expr:
    """The expression as a tree."""
    return ast.parse(text, mode="eval").body


def stands(before: ast.AST, after: ast.AST) -> tuple[ast.AST, str]:
    """One expression for another, and the sentence that says so."""
    return after, f"{ast.unparse(before)} stands where {ast.unparse(after)} should"
