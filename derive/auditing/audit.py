"""The entry points of `derive.audit` and ``derive audit``.

The verdict needs numbers alone. Only where a gradient is wrong, the forward is traced into an
operation, and the hand-written gradient is compared with the derived one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from derive.api import source
from derive.auditing.forward import Subject, function_class, unjudged
from derive.auditing.isolation import SECONDS, EndedError, isolated
from derive.auditing.model import Reference, torch_function
from derive.auditing.points import is_float
from derive.auditing.report import Report
from derive.auditing.verdict import AuditRequest
from derive.tracing.read import read_torch


def audit(
    function: Any,
    *examples: Any,
    reference: Reference = None,
    constants: Iterable[str] = (),
    once: bool = False,
    explain: bool = False,
    seconds: float = SECONDS,
) -> Report:
    """Check the backward of a hand-written torch.autograd.Function against its forward.

        grad_x = Sum_outputs G * d output/dx

    Args:
        function: the subclass of ``torch.autograd.Function``, or a ``torch.library.custom_op`` with
            a backward from ``register_autograd``.
        examples: the arguments of one call of its forward. If some float tensor among them
            requires a gradient, those that require none are constants.
        reference: the intended forward: a torch function of the same arguments, an `Operation`, or
            its text. Give it where autograd cannot run the forward (a CUDA or Triton kernel), and
            where the backward is another function's on purpose. A straight-through, surrogate,
            reversed or truncated gradient is that of
            ``value.detach() + smooth - smooth.detach()``.
        constants: names of float arguments whose gradient is not judged.
        once: backward is called once alone, since it reuses memory on purpose.
        explain: read the forward even if every gradient is right; ``report.formulas`` and
            ``report.fixed`` have what is derived.
        seconds: the longest time that the Function may take. It runs in a process of its own.

    Returns:
        A `Report`. ``right`` is False if some gradient is *wrong*: silently other numbers at the
        structure of the examples, which are their sizes and kinds, layouts, dtypes and flags.
        ``verdict`` is "fragile" if backward raises, or is wrong at sizes or values that no example
        has and the forward accepts. For a wrong gradient, the row names the wrong term, factor,
        sign or size if one explanation is exact.

    Raises:
        DeriveError: the Function cannot be judged.

    The reference is autograd of the forward in float64, where finite differences agree with it;
    else the differences.

    >>> import derive, torch
    >>> class Scale(torch.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x, w):
    ...         ctx.save_for_backward(x, w)
    ...         return x * w
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         x, w = ctx.saved_tensors
    ...         return g * w, -g * x
    >>> report = derive.audit(Scale, torch.randn(3), torch.randn(3))
    >>> [(row.input, row.right, row.wrong) for row in report.rows]
    [('x', True, ''), ('w', False, 'the sign is wrong')]
    """
    return audit_all(function, [examples], reference, constants, once, explain, seconds)


def audit_all(
    function: Any,
    examples: Sequence[Sequence[Any]],
    reference: Reference = None,
    constants: Iterable[str] = (),
    once: bool = False,
    explain: bool = False,
    seconds: float = SECONDS,
) -> Report:
    """Audit a Function at several example calls; see `audit`."""
    if not examples or not any(is_float(a) for a in examples[0]):
        raise unjudged(
            "an audit needs example inputs, and at least one of them must be a float tensor"
        )
    function = function_class(function)
    names = Subject(function).names(max(map(len, examples)))
    unknown = [name for name in constants if name not in names]
    if unknown:
        raise unjudged(f"forward has no argument {unknown[0]}; it has {', '.join(names)}")
    given = AuditRequest(
        Subject(function, torch_function(reference, names), once=once),
        [tuple(e) for e in examples],
        names,
        reference,
        frozenset(n for n, name in enumerate(names) if name in set(constants)),
        explain,
    )
    _prepare_gradients()
    if _wrong:
        _prepare_explanations()
    try:
        report, ended = isolated(given.report, seconds)
    except EndedError as error:
        raise unjudged(
            f"{given.subject.name} cannot be judged: the process {error} at the example inputs"
        ) from None
    if not report.right:
        _wrong.append(given.subject.name)
    lines = tuple(f"the process {how} {part}".strip() for part, how in ended.items())
    return replace(report, fragile=(*report.fragile, *lines))


_wrong: list[str] = []
"""The Functions that this process found wrong: where one is, more are likely to be."""


@cache
def _prepare_gradients() -> None:
    """Import what torch imports at the first gradient, so that forked processes inherit it."""
    with suppress(Exception):
        import torch.fx.experimental.symbolic_shapes  # noqa: F401


@cache
def _prepare_explanations() -> None:
    """Read and derive one line, so that forked processes inherit what torch and derive import.

    An explanation imports hundreds of modules, which takes longer than the explanation itself.
    """
    # An audit goes on without what this prepares.
    with suppress(Exception), torch.random.fork_rng(devices=[]):
        source(read_torch(lambda x: x * x, torch.ones(2, 3)))
