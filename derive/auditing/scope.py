"""An edit of code, and the names and values that edited code may read."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from derive.auditing.points import is_tensor

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
