"""Differentiate tensor operations that are written in index notation.

An operation is a list of equations, as text or as SymPy:

    S[*p,k,*q] = exp(A[*p,k,*q]) / sum[l](exp(A[*p,l,*q]))

The chain rule gives the gradient of each input ``A`` from the cotangents ``G`` of the outputs
``Y``, summed over all outputs and their indices:

    grad_A[i] = Sum_Y Sum_n G[n] * dY[n]/dA[i]

- `parse`, `read` and `Operation` make an operation from text, a file or SymPy equations.
- `derivation` returns its gradients as formulas, with every step, tangents and cost.
- `graph` returns a picture of an operation and its gradients, as a graph in DOT.
- `source` returns the code of a ``torch.autograd.Function``; `load` imports the function.
- `value_and_grad` makes one function that returns outputs and gradients without autograd.
- `read_torch`, `differentiate` and `replace` start from ordinary PyTorch code.
- `audit` and `compare` check hand-written gradients.

>>> import derive
>>> op = derive.parse("C[i,j] = sum[k](A[i,k]*B[k,j])")
>>> print(derive.derivation(op).gradients["A"])
grad_A[i,k] = Σⱼ G[i,j]·B[k,j]
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from derive.notation.sympy_hooks import teach

if TYPE_CHECKING:
    from derive.api import derivation, graph, load, source
    from derive.auditing.audit import audit
    from derive.budget import limits
    from derive.check.comparison import Comparison, compare, compare_gradients
    from derive.errors import (
        DeriveError,
        DeriveWarning,
        LimitError,
        LoweringError,
        SpecError,
        VerificationError,
    )
    from derive.joint import value_and_grad, value_and_grad_source
    from derive.notation.heads import (
        Composite,
        Concat,
        Holds,
        Iverson,
        LogSoftmax,
        Softmax,
        axis,
        boolean,
        choice,
        group,
        integer,
        keep,
        optional,
        size,
    )
    from derive.notation.specification import Operation, parse, read
    from derive.tracing.cost_report import report
    from derive.tracing.differentiate import differentiate, replace
    from derive.tracing.read import read_torch

    __all__ = [
        "Comparison",
        "Composite",
        "Concat",
        "DeriveError",
        "DeriveWarning",
        "Holds",
        "Iverson",
        "LimitError",
        "LogSoftmax",
        "LoweringError",
        "Operation",
        "Softmax",
        "SpecError",
        "VerificationError",
        "audit",
        "axis",
        "boolean",
        "choice",
        "compare",
        "compare_gradients",
        "derivation",
        "differentiate",
        "graph",
        "group",
        "integer",
        "keep",
        "limits",
        "load",
        "optional",
        "parse",
        "read",
        "read_torch",
        "replace",
        "report",
        "size",
        "source",
        "value_and_grad",
        "value_and_grad_source",
    ]

__version__ = "0.1.0"


_HOMES = {
    "derive.notation.heads": (
        "Composite Concat Holds Iverson LogSoftmax Softmax "
        "axis boolean choice group integer keep optional size"
    ),
    "derive.auditing.audit": "audit",
    "derive.budget": "limits",
    "derive.check.comparison": "Comparison compare compare_gradients",
    "derive.errors": "DeriveError DeriveWarning LimitError LoweringError SpecError"
    " VerificationError",
    "derive.notation.specification": "Operation parse read",
    "derive.tracing.differentiate": "differentiate replace",
    "derive.tracing.read": "read_torch",
    "derive.tracing.cost_report": "report",
    "derive.joint": "value_and_grad value_and_grad_source",
    "derive.api": "derivation graph load source",
}
"""Module to its public names; SymPy heads that come from table rows are not listed."""

_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a public name on first access; SymPy heads are created from table rows."""
    if name == "__all__":
        return [*_heads().MADE, *_HOME]
    if name in _HOME:
        found = getattr(import_module(_HOME[name]), name)
    elif not name.startswith("_") and find_spec(f"derive.{name}") is None and name in _heads().MADE:
        found = getattr(_heads(), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def _heads() -> Any:
    return import_module("derive.notation.heads")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})


teach()

# The wheel has the modules of the catalog as derive.generated; in a checkout they are in a folder
# beside the package.
_beside = Path(__file__).resolve().parent.parent
if (_beside / "generated").is_dir() and (_beside / "pyproject.toml").is_file():
    __path__.append(str(_beside))
