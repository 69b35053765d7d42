"""Errors for unknown functions and reductions, with suggestions."""

from __future__ import annotations

from typing import NoReturn

from derive.algebra.reductions import REDUCTIONS
from derive.notation import syntax
from derive.notation.names import FORMS, KEEPING, SCALAR, nearest
from derive.notation.symbols import Declared
from derive.notation.syntax import fail


def no_function(e: syntax.ApplySyntax, declared: Declared) -> NoReturn:
    """Refuse name(...)."""
    name = e.function
    if name in ("max", "min"):
        full = name + "imum"
        how = f"{name} reduces over an index, {name}[k](...)"
        fail(e.at, f"{how}; for two numbers, write {full}(a, b)")
    if name in REDUCTIONS or name in KEEPING or name == "concat":
        fail(e.at, f"{name} needs its index: {name}[k](...)")
    if name in FORMS:
        fail(e.at, f"{name}(...) is allowed only among the parameters of an op line")
    if name in declared.tensors or name in declared.equations:
        fail(e.at, f"{name} is a tensor; write {name}[...]")
    fail(e.at, f"unknown function {name}{nearest(name, (*SCALAR, *REDUCTIONS, *FORMS))}")


def no_reduction(e: syntax.Bind, declared: Declared) -> NoReturn:
    """Refuse name[...](...)."""
    if e.kind in SCALAR:
        fail(e.at, f"{e.kind} takes no indices: {e.kind}(...)")
    if e.kind in declared.tensors or e.kind in declared.equations:
        fail(e.at, f"{e.kind} is a tensor and cannot be called")
    fail(e.at, f"unknown reduction {e.kind}{nearest(e.kind, (*REDUCTIONS, *KEEPING))}")
