"""Rename tensors and parameters that collide with names of the generated code.

The public function keeps the user's names and forwards its arguments to a private function with
the new names. If the operation itself has such a name, each function of the module that needs
the shadowed import or builtin imports it locally.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from derive.calculus.alpha_renaming import under_names
from derive.module.arguments import ArgumentCheck
from derive.module.pretty_printer import call_lines, indented
from derive.module.runtime import IMPORT
from derive.notation.operation import Operation

_IMPORTED = {
    "torch": "",
    "contextlib": "",
    "math": "",
    "Literal": "typing",
    "forward_ad": "torch.autograd",
    "rt": ".",
}
"""Imported name -> its module, "" if it is a module itself."""

_BUILTIN = (
    "OverflowError TypeError ValueError all any bool float getattr hasattr int isinstance len list "
    "max min pow range setattr slice staticmethod str super tuple type zip"
).split()

_LOCAL = (
    "ctx inputs tangents arguments signature function dual forms composed given reuse size axis "
    "low wide dtype apply first_order boxed_grads_call clear_saved_tensors_on_access "
    "dirty_tensors mark_dirty mark_non_differentiable mark_shared_storage materialize_grads "
    "metadata maybe_clear_saved_tensors needs_input_grad next_functions non_differentiable "
    "register_hook register_prehook requires_grad save_for_backward save_for_forward "
    "saved_for_forward saved_tensors saved_variables set_materialize_grads to_save"
).split()
"""Arguments and variables of the functions, and attributes of their ``ctx``."""

OWN = frozenset((*_IMPORTED, *_BUILTIN, *_LOCAL))
"""The reserved names of generated code, beside those of shapes."""

_SHAPE = re.compile(r"(.*_)?shape")
"""The name of the shape of x is x_shape, and that of the gradient of shape would be grad_shape."""


@dataclass(frozen=True)
class Coded:
    """An operation under its names in code; ``given`` maps these to the user's names."""

    operation: Operation
    given: Mapping[str, str]

    def display_name(self, name: str) -> str:
        """Return the user's name."""
        return self.given.get(name, name)

    def said(self, check: ArgumentCheck) -> ArgumentCheck:
        """Return the check with the user's names in its messages; fields in braces stay code."""

        def display_names(text: str) -> str:
            return re.sub(r"\{[^{}]*\}|\w+", lambda m: self.display_name(m[0]), text)

        convert = (re.sub('"[^"]*"', lambda m: display_names(m[0]), line) for line in check.convert)
        return replace(check, message=display_names(check.message), convert=tuple(convert))

    def public(
        self, function: str, names: Sequence[str], body: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """Return (lines before, body) of a public function with these arguments and this body."""
        if not any(name in self.given for name in names):
            return [], list(body)
        private = f"_{function}_of"
        before = [*call_lines(f"def {private}(", names, "):", 0), *indented(body, 4), "", ""]
        return before, call_lines(f"return {private}(", list(map(self.display_name, names)), ")", 4)


def coded(op: Operation, more: Collection[str] = ()) -> Coded:
    """Rename tensors, parameters and equations that have a reserved name.

    ``more`` has further reserved names.
    """
    names = [x.name for x in (*op.inputs, *op.parameters, *op.equations)]
    taken = {op.name, *names, *(e.name for e in op.extents)}
    given: dict[str, str] = {}
    reserved = (n for n in names if n in OWN or n in more or _SHAPE.fullmatch(n))
    for name in reserved:
        new = f"{name}_"
        while new in taken:
            new += "_"
        taken.add(new)
        given[new] = name
    code = {name: new for new, name in given.items()}
    return Coded(under_names(op, code) if code else op, given)


def with_own_meanings(text: str, name: str) -> str:
    """Import names that the operation shadows inside the functions that need them."""
    if name not in {*_IMPORTED, *dir(builtins)}:
        return text
    source = _IMPORTED.get(name, "builtins")
    statement = f"from {source} import {name}" if source else f"import {name}"
    statement = IMPORT if name == "rt" else statement
    lines = text.split("\n")
    functions = [f for f in ast.walk(ast.parse(text)) if isinstance(f, ast.FunctionDef)]
    for f in sorted(functions, key=lambda f: f.lineno, reverse=True):
        read = {n.id for part in f.body for n in ast.walk(part) if isinstance(n, ast.Name)}
        if name in read:
            first = f.body[ast.get_docstring(f) is not None]
            lines[first.lineno - 1 : first.lineno - 1] = [" " * first.col_offset + statement, ""]
    return "\n".join(lines)
