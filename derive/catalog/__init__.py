"""The operations we ship, as SymPy equations: one file a family, nothing but data.

A family is imported when one of its operations is asked for.
"""

from __future__ import annotations

from importlib import import_module

from derive.spec.operation import Operation

__all__ = ["FAMILIES", "find", "names", "operations"]

FAMILIES = {
    "elementwise": (
        *("exp log log1p expm1 sqrt rsqrt square sin cos tan asin acos atan".split()),
        *("sinh cosh tanh sigmoid softplus logsigmoid relu erf erfc lgamma digamma".split()),
        *("abs sign floor maximum minimum clamp atan2 pow".split()),
    ),
    "matrix": ("transpose", "matmul", "linear"),
    "indexing": ("embedding", "flatten", "unflatten", "concat"),
    "reductions": ("sum", "mean", "prod", "max", "min", "amax", "amin", "logsumexp"),
    "normalizations": (
        *("softmax", "log_softmax"),
        *("batch_norm", "batch_norm_inference", "layer_norm", "rms_norm"),
    ),
    "losses": (
        *("nll_loss", "cross_entropy", "cross_entropy_probabilities"),
        *("linear_cross_entropy", "softmax_regression"),
    ),
    "networks": ("character_model",),
}
"""The file of each operation."""


def names() -> tuple[str, ...]:
    """The names of all operations, in order; nothing is imported."""
    return tuple(name for members in FAMILIES.values() for name in members)


def operations() -> tuple[Operation, ...]:
    """All operations, in order."""
    return tuple(op for family in FAMILIES for op in _family(family))


def find(name: str) -> Operation | None:
    """The operation of this name; only its family is imported."""
    for family, members in FAMILIES.items():
        if name in members:
            return next(op for op in _family(family) if op.name == name)
    return None


def _family(family: str) -> tuple[Operation, ...]:
    found: tuple[Operation, ...] = import_module(f"{__name__}.{family}").OPERATIONS
    return found
