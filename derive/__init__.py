"""Derive the backward of a tensor operation from its index notation.

``parse`` and ``Operation`` make an operation, ``derivation`` shows its gradients and the steps
that lead to them, ``source`` is its torch module and ``load`` the function in it.
"""

from __future__ import annotations

from pathlib import Path

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
from derive.notation.heads import (
    AllOf,
    AnyOf,
    ArgMax,
    ArgMin,
    Composite,
    Concat,
    Holds,
    Iverson,
    LogSoftmax,
    LogSumExp,
    Mean,
    Prod,
    ReduceAmax,
    ReduceAmin,
    ReduceMax,
    ReduceMin,
    Softmax,
    Total,
    axis,
    boolean,
    choice,
    clamp,
    detach,
    exp2,
    expm1,
    group,
    hypot,
    integer,
    keep,
    lgamma,
    log1p,
    log2,
    log10,
    logaddexp,
    logsigmoid,
    maximum,
    minimum,
    optional,
    relu,
    sigmoid,
    size,
    softplus,
    to_int,
)
from derive.notation.limits import whole_range as _whole_range  # noqa: F401 - Sum(f, k) is taught
from derive.notation.operation import Operation
from derive.notation.read import read
from derive.notation.text_form import parse
from derive.pipeline import derivation, load, source, value_and_grad, value_and_grad_source

__version__ = "0.1.0"

__all__ = [
    "AllOf",
    "AnyOf",
    "ArgMax",
    "ArgMin",
    "Comparison",
    "Composite",
    "Concat",
    "DeriveError",
    "DeriveWarning",
    "Holds",
    "Iverson",
    "LimitError",
    "LogSoftmax",
    "LogSumExp",
    "LoweringError",
    "Mean",
    "Operation",
    "Prod",
    "ReduceAmax",
    "ReduceAmin",
    "ReduceMax",
    "ReduceMin",
    "Softmax",
    "SpecError",
    "Total",
    "VerificationError",
    "axis",
    "boolean",
    "choice",
    "clamp",
    "compare",
    "compare_gradients",
    "derivation",
    "detach",
    "exp2",
    "expm1",
    "group",
    "hypot",
    "integer",
    "keep",
    "lgamma",
    "limits",
    "load",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logsigmoid",
    "maximum",
    "minimum",
    "optional",
    "parse",
    "read",
    "relu",
    "sigmoid",
    "size",
    "softplus",
    "source",
    "to_int",
    "value_and_grad",
    "value_and_grad_source",
]

# The wheel has the modules of the catalog as derive.generated; in a checkout they stand beside
# the package, and are found there.
_beside = Path(__file__).resolve().parent.parent
if (_beside / "generated").is_dir() and (_beside / "pyproject.toml").is_file():
    __path__.append(str(_beside))
