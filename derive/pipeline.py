"""The one place that knows all stages: an operation in, its derivation or its source out."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.abc import SourceLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

from derive.algebra.cost import cost
from derive.algebra.expr import accesses
from derive.calculus.adjoint import Backward, differentiate, inline_adjoints
from derive.calculus.flatten import flatten_operation
from derive.calculus.lets import Lets
from derive.emit import Variant, emit
from derive.lowering.checks import checks
from derive.lowering.program import frame_of, program
from derive.spec.operation import Choice, Operation

__all__ = ["Derived", "derive_option", "options", "source"]


@dataclass(frozen=True)
class Derived:
    """One option of an operation, differentiated."""

    operation: Operation
    option: str | None
    lets: Lets
    backward: Backward


def options(op: Operation) -> Iterator[tuple[str | None, Operation]]:
    """(option, the operation that computes it): one for each option of a choice."""
    choice = next((p for p in op.parameters if isinstance(p, Choice)), None)
    if choice is None:
        yield None, _pruned(op, op.outputs)
        return
    for option, output in choice.outputs:
        yield option, _pruned(op, (output,))


def _pruned(op: Operation, outputs: tuple[str, ...]) -> Operation:
    """op with these outputs and the equations that lead to them."""
    wanted = set(outputs)
    kept = []
    for equation in reversed(op.equations):
        if equation.name in wanted:
            kept.append(equation)
            wanted |= {a.tensor for a in accesses(equation.body)}
            if equation.axes:
                wanted |= {a.tensor for e in equation.axes for a in accesses(e)}
    equations = tuple(reversed(kept))
    return Operation.resolved(
        op.name, op.inputs, op.parameters, equations, outputs, op.extents
    )


@lru_cache(maxsize=256)
def derive_option(op: Operation, option: str | None) -> Derived:
    """The backward of one option: adjoints and gradients, deltas eliminated."""
    chosen = dict(options(op))[option]
    lets = flatten_operation(chosen)
    backward = inline_adjoints(differentiate(chosen, lets), cost)
    return Derived(chosen, option, lets, backward)


def source(op: Operation) -> str:
    """The Python source of the module of op."""
    variants = []
    for option, _ in options(op):
        derived = derive_option(op, option)
        code = program(derived.operation, derived.lets, derived.backward)
        variants.append(Variant(option, code))
    return emit(op, variants, checks(op, frame_of(op)), op.name)


def load(op: Operation) -> Any:
    """The generated function of op, imported from memory."""
    name = f"derive_generated_{op.name}"
    loader = _MemoryLoader(source(op))
    spec = spec_from_loader(name, loader, origin=f"<generated {op.name}>")
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return getattr(module, op.name)


class _MemoryLoader(SourceLoader):
    """Imports a module from its source; tracebacks show the lines."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_filename(self, fullname: str) -> str:
        path = f"<{fullname}>"
        lines = self._text.splitlines(keepends=True)
        linecache.cache[path] = (len(self._text), None, lines, path)
        return path

    def get_data(self, path: str | bytes) -> bytes:
        return self._text.encode()
