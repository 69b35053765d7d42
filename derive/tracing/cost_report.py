"""``derive.report``: which modules run derived code, why the others do not, and both costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from derive.errors import DeriveError
from derive.show.tables import Table, Tabular

# ---------------------------------------------------------------------------------------- call cost
# Estimate the cost of a call and its backward on tensors without data.
#
#     time = Σ flops/rate + bytes/bandwidth + elements/speed + call
#
# A function and its derived code are counted alike, operation by operation, so that they can be
# compared before either runs. Only the time per call differs: a derived backward calls its
# operations from Python, autograd from C++.
#
# The rates are fitted to 136 measured times of one core (tests/corpus/trained_costs.py), with a
# median error of 19 %. Ratios of two estimates depend less on the machine.

_FLOPS = 9e10
"""Per second of one core, as the rates below."""
_BYTES = 7.5e10
_CURVED = 5.3e9
"""Elements of a function that is computed by a series or a quotient of series."""
_SCATTERED = 4.4e9
"""Elements that are gathered or scattered one by one."""
_DERIVED_CALL = 1.5e-6
"""Seconds from one operation of derived code to the next."""
_PLAIN_CALL = 0.8e-6
_SMALL = 1e-4
"""A call of at most this many seconds is never too slow."""
_LITTLE = 1 << 22
"""A tensor of at most this many bytes is never too large."""


@dataclass(frozen=True)
class CallCost:
    """Cost of a call with its backward; ``largest`` and ``saved`` in bytes, None if not counted."""

    seconds: float
    largest: int
    saved: int | None
    dtypes: tuple[Any, ...] = ()
    """Dtypes of the outputs; None for what is no tensor."""


def cost_of(
    function: Callable[..., Any],
    tensors: Mapping[str, Any],
    derived: bool = False,
    with_data: bool = False,
    with_saved: bool = True,
) -> CallCost | None:
    """Return the cost of a call; None if it cannot run, without data unless ``with_data``."""
    kept: dict[int, int] = {}

    def pack(t: Any) -> Any:
        storage = t.untyped_storage()
        kept[storage._cdata] = storage.nbytes()
        return t

    try:
        mode: Any = nullcontext() if with_data else FakeTensorMode(allow_non_fake_inputs=True)
        hooks: Any = saved_tensors_hooks(pack, lambda t: t) if with_saved else nullcontext()
        taken = torch.Tensor.detach if with_data else mode.from_tensor
        given = {n: taken(t.detach()) for n, t in tensors.items()}
        with mode, torch.enable_grad():
            leaves = [t.requires_grad_() for t in given.values() if t.is_floating_point()]
            with hooks, Counting() as counted:  # type: ignore[no-untyped-call]
                made = function(**given)
                outputs = [t for t in _tensors_in(made) if t.requires_grad]
                if outputs:
                    ones = map(torch.ones_like, outputs)
                    torch.autograd.grad(outputs, leaves, [*ones], allow_unused=True)
    except Exception:  # torch.func takes no hooks.
        return cost_of(function, tensors, derived, with_data, False) if with_saved else None
    seconds = (
        counted.flops / _FLOPS
        + counted.moved / _BYTES
        + counted.curved / _CURVED
        + counted.scattered / _SCATTERED
        + counted.calls * (_DERIVED_CALL if derived else _PLAIN_CALL)
    )
    dtypes = tuple(t.dtype if isinstance(t, torch.Tensor) else None for t in tree_leaves(made))
    saved = sum(kept.values()) if with_saved else None
    return CallCost(seconds, counted.largest, saved, dtypes)


_CURVES = frozenset(
    "acos asin atan atan2 cos erf exp expm1 gelu gelu_backward log log1p log_sigmoid_backward"
    " log_sigmoid_forward logaddexp logsumexp pow sigmoid sigmoid_backward silu silu_backward sin"
    " softplus softplus_backward tanh tanh_backward _log_softmax _log_softmax_backward_data"
    " _softmax _softmax_backward_data".split()
)
"""Operations that compute a series or a quotient of series for each element."""
_GATHERS = frozenset("cumsum embedding gather index index_select take_along_dim where".split())
_SCATTERS = frozenset(
    "argsort embedding_dense_backward index_add index_put scatter scatter_add scatter_reduce"
    " sort".split()
)
"""Operations that access each element of their operands one by one."""


def dearer(ours: CallCost | None, plain: CallCost | None, time: float, memory: float) -> str:
    """Describe what derived code exceeds: time, largest tensor or saved bytes; '' if nothing.

    The limits are ``time`` and ``memory`` times the cost of the plain function.
    """
    found = []
    if ours is None or plain is None:
        return ""
    if ours.seconds > max(time * plain.seconds, _SMALL):
        found.append(f"{ours.seconds / max(plain.seconds, 1e-9):.3g} times the time")
    for what, a, b in (
        ("a tensor of", ours.largest, plain.largest),
        ("saved tensors of", ours.saved, plain.saved),
    ):
        if a is not None and b is not None and a > max(memory * b, _LITTLE):
            found.append(f"{what} {bytes_text(a)}, where the function has {bytes_text(b)}")
    return " and ".join(found)


def bytes_text(count: int) -> str:
    """Format a number of bytes with a unit."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count} bytes"


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts calls, flops, bytes and elements of operations."""

    calls = 0
    flops = 0
    moved = 0
    curved = 0
    scattered = 0
    largest = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and to skip it takes seconds of imports

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        made = function(*args, **(kwargs or {}))
        if function.namespace == "prim":
            return made  # a subscript of a tensor without data asks for its device
        self.calls += 1
        given, results = _tensors_in((args, kwargs)), _tensors_in(made)
        name = function._overloadpacket.__name__.removesuffix("_")
        if name in _CURVES:
            self.curved += sum(t.numel() for t in results)
        elif name in _GATHERS:
            self.scattered += sum(t.numel() for t in results)
        elif name in _SCATTERS:
            self.scattered += max((t.numel() for t in (*given, *results)), default=0)
        formula = flop_registry.get(function._overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=made)
        held = {t.untyped_storage()._cdata for t in given}
        new = [t for t in results if t.untyped_storage()._cdata not in held]
        if new or function._schema.is_mutable:
            self.moved += sum(t.numel() * t.element_size() for t in (*given, *results))
        for t in new:
            self.largest = max(self.largest, t.untyped_storage().nbytes())
        return made


def _tensors_in(x: Any) -> list[Any]:
    return [t for t in tree_leaves(x) if isinstance(t, torch.Tensor)]


# -------------------------------------------------------------------------------------- cost report


@dataclass(frozen=True)
class Fact:
    """Outcome of one reading; a cost is None if it depends on values."""

    refused: str = ""
    """Reason why the plain function runs; '' if derived code does."""
    plain: CallCost | None = None
    ours: CallCost | None = None


@dataclass(frozen=True)
class Row:
    """Line of a module for one kind of arguments."""

    name: str
    kind: str
    fact: Fact | None
    """None if the module was not called."""
    inside: int = 0
    """Number of submodules that its derived code covers."""

    @property
    def derived(self) -> bool:
        """True if derived code runs."""
        return self.fact is not None and not self.fact.refused

    @property
    def reason(self) -> str:
        """Reason for running the plain function, or what derived code covers."""
        if self.fact is None:
            return "not called yet"
        if self.fact.refused:
            return self.fact.refused
        return f"with the {self.inside} modules inside of it" if self.inside else ""


_HEAD = ("module", "kind", "runs", "time", "saved", "why")


@dataclass(frozen=True)
class Report(Tabular):
    """The rows of a table, which ``print`` shows."""

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        cells = [_HEAD, *map(_cells, self.rows)]
        widths = [max(len(row[n]) for row in cells) for n in range(len(_HEAD) - 1)]
        lines = []
        for row in cells:
            front = "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=False))
            lines.append(f"{front}  {row[-1]}".rstrip())
        return "\n".join(lines)

    def table(self) -> Table:
        """Return the rows as text."""
        return Table("", _HEAD, [*map(_cells, self.rows)])


def _cells(row: Row) -> tuple[str, ...]:
    fact = row.fact or Fact()
    runs = "-" if row.fact is None else "derived" if row.derived else "plain"
    time = saved = ""
    if fact.plain is not None and fact.ours is not None:
        time = f"{fact.ours.seconds / max(fact.plain.seconds, 1e-12):.2f}"
        counts = (fact.plain.saved, fact.ours.saved)
        saved = " -> ".join("?" if n is None else bytes_text(n) for n in counts)
    reason = row.reason.partition("\n")[0]
    return row.name, row.kind, runs, time, saved, reason


def report(target: Any, *args: Any, **named: Any) -> Report:
    """Return a table of what `replace` or `differentiate` did, a row for each reading.

    A row has the module, whether it runs derived code, and why not. ``time`` is the
    ratio of the estimated times of derived and plain code, with the backward. ``saved`` has the
    bytes that each saves for the backward, plain code first.

    Args:
        target: a model that `replace` returned, or a function that `differentiate` did.
        args: if there are any, ``target`` is called with these first.
        named: the same.

    Raises:
        DeriveError: ``target`` is neither.

    >>> import derive, torch
    >>> model = derive.replace(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh()))
    >>> [(row.name, row.derived) for row in derive.report(model, torch.ones(2, 3)).rows]
    [('model', True)]
    """
    if not (hasattr(target, "known") or hasattr(target, "_derived")):
        raise DeriveError(
            f"{type(target).__name__} is neither a model that derive.replace returned nor a "
            "function that derive.differentiate did",
            kind="torch-arguments",
        )
    if args or named:
        target(*args, **named)
    if not isinstance(target, torch.nn.Module):
        name = getattr(target, "__name__", "function")
        return Report(tuple(_rows_of(target.known, name, "function", 0)))
    return Report(tuple(_rows(target, "model")))


def _rows(module: Any, name: str) -> Iterator[Row]:
    """Yield the rows of a module, and of submodules that its derived code does not cover."""
    known = getattr(module, "_derived", None)
    inside = sum(1 for _ in module.modules()) - 1
    own = [] if known is None else list(_rows_of(known, name, type(module).__name__, inside))
    yield from own
    if own and all(row.derived for row in own):
        return
    for child, part in module.named_children():
        yield from _rows(part, f"{name}.{child}")


def _rows_of(known: Any, name: str, kind: str, inside: int) -> Iterator[Row]:
    if not known.facts:
        yield Row(name, kind, None)
    for fact in known.facts.values():
        yield Row(name, kind, fact, inside)
