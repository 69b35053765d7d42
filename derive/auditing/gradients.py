"""Run a Function and its backward once, and compare with the right gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from derive.auditing.forward import (
    Subject,
    differentiated,
    leaves_of,
    right_gradients,
    unjudged,
    with_leaves,
)
from derive.auditing.isolation import none_if_raises
from derive.auditing.points import (
    clone_with_layout,
    inner,
    is_float,
    is_tensor,
    random_like,
    wide_of,
)


@dataclass
class Outcome:
    """The result of one call: gradients by argument number."""

    args: tuple[Any, ...]
    cotangents: tuple[Any, ...] = ()
    """One for each output; None if the output has no gradient."""
    right: dict[int, Any] = field(default_factory=dict)
    doubt: float = 0.0
    """The error bound of the right gradients, relative to the largest element."""
    given: dict[int, Any] = field(default_factory=dict)
    raw: tuple[Any, ...] | None = None
    """What backward returned, before the engine summed or rejected it."""
    error: str = ""
    changed: tuple[str, ...] = ()
    """Forbidden in-place changes: of a cotangent, or of an input that has a gradient."""
    refused: str = ""
    """The error of a second call of backward, if the first one ran."""
    state: tuple[str, ...] = ()
    """Inputs without a gradient that are changed in place, such as running statistics."""

    def returned(self, n: int) -> Any:
        """Return what backward returned for an argument; None if nothing."""
        return None if self.raw is None or n >= len(self.raw) else self.raw[n]

    def shape_error(self, n: int) -> str:
        """Describe why the engine rejects the shape of a gradient; '' if it accepts it."""
        raw = self.returned(n)
        if raw is not None and not is_tensor(raw):
            return f"backward returns {type(raw).__name__} for it, not a tensor"
        if raw is None or n not in self.right or _expands(self.right[n].shape, raw.shape):
            return ""
        return f"it has the shape {list(raw.shape)}, not {list(self.right[n].shape)}"

    def wrong(self, tolerance: float) -> list[int]:
        """Return the arguments with a wrong gradient."""
        most = tolerance + 3 * self.doubt
        return [n for n, r in self.right.items() if not near(self.given.get(n), r, most)]


def _expands(small: Sequence[int], large: Sequence[int]) -> bool:
    """True if the engine sums a gradient of the large shape to the small one."""
    if len(small) > len(large):
        return False
    tail = large[len(large) - len(small) :]
    return all(s in (1, t) for s, t in zip(small, tail, strict=True))


def random_cotangents(
    subject: Subject, args: Sequence[Any], seed: int, whole: bool = False
) -> tuple[Any, ...]:
    """Return random cotangents for the outputs that have a gradient."""
    outputs = subject.applied(with_leaves(args, leaves_of(subject, args), True))
    has = [is_tensor(o) and o.requires_grad for o in outputs]
    return tuple(
        random_like(o, seed + n, whole) if wanted and n not in subject.silent else None
        for n, (o, wanted) in enumerate(zip(subject.own(args), has, strict=True))
    )


def silent_outputs(subject: Subject, args: Sequence[Any]) -> frozenset[int]:
    """Return the outputs that forward alone detaches and whose cotangent backward does not use."""
    leaves = leaves_of(subject, args)
    plain = subject.plain(with_leaves(args, leaves, True))
    held = {n for n, y in enumerate(plain) if is_tensor(y) and y.requires_grad}
    cotangents = random_cotangents(subject, args, 1)

    def is_silent(n: int) -> bool:
        only = [g if k == n else None for k, g in enumerate(cotangents)]
        made = outcome(subject, args, only, right=({}, 0.0))
        given = [g for g in made.given.values() if g is not None]
        return not made.error and not any(bool(g.any()) for g in given)

    apart = [n for n, g in enumerate(cotangents) if g is not None and n not in held]
    return frozenset(filter(is_silent, apart)) if held else frozenset()


def outcome(
    subject: Subject,
    args: Sequence[Any],
    cotangents: Sequence[Any],
    wanted: Sequence[int] | None = None,
    copied: bool = False,
    right: tuple[Mapping[int, Any], float] | None = None,
) -> Outcome:
    """Run the Function and its backward once, with the right gradients."""
    made = Outcome(tuple(args), tuple(cotangents))
    every, made.doubt = right_gradients(subject, args, cotangents) if right is None else right
    made.right = {n: g for n, g in every.items() if wanted is None or n in wanted}
    try:
        with _restored(args) as before:
            _run_and_pull(subject, made, wanted, copied or subject.copied, before)
    except Exception as error:
        made.error = error_line(error)
    return made


def error_line(error: Exception) -> str:
    first = (str(error).strip() or "no message").split("\n")[0]
    return f"{type(error).__name__}: {first}"


def _run_and_pull(
    subject: Subject,
    made: Outcome,
    wanted: Sequence[int] | None,
    copied: bool,
    before: Mapping[int, Any],
) -> None:
    leaves = leaves_of(subject, made.args, wanted)
    outputs = subject.applied(with_leaves(made.args, leaves, copied))
    pairs = differentiated(outputs, made.cotangents)
    if not pairs:
        made.given = {n: None for n in leaves}
        return
    given = [clone_with_layout(g) for _, g in pairs]
    asked = _engine_gradients(leaves, [o for o, _ in pairs], given, not subject.once)
    # Clone: a second call of backward may overwrite tensors that it keeps.
    made.given = {n: None if g is None else _dense(g).detach().clone() for n, g in asked.items()}
    changed, state = [], []
    names = subject.cotangents(len(made.cotangents))
    numbers = [n for n, g in enumerate(made.cotangents) if g is not None]
    for n, (_, g), now in zip(numbers, pairs, given, strict=False):
        if not _equal_with_nan(g, now):
            changed.append(f"the cotangent {names[n]} is changed in place by backward")
    if not copied:
        arguments = subject.names(len(made.args))
        for n, old in before.items():
            if _equal_with_nan(old, made.args[n].detach()):
                continue
            if made.given.get(n) is None:
                state.append(arguments[n])
            else:
                changed.append(f"the input {arguments[n]} is changed in place")
    made.changed, made.state = tuple(changed), tuple(state)
    if not changed and not subject.once:
        made.changed = _compare_second_call(subject, made, outputs, pairs[0][0].grad_fn)


@contextmanager
def _restored(args: Sequence[Any]) -> Iterator[dict[int, Any]]:
    """Yield copies of the arguments, which have their values again at the end."""
    before = {n: a.detach().clone() for n, a in enumerate(args) if is_float(a)}
    try:
        yield before
    finally:
        for n, old in before.items():
            if not _equal_with_nan(old, args[n].detach()):
                args[n].detach().copy_(old)


def _engine_gradients(
    leaves: Mapping[int, Any], outputs: Sequence[Any], cotangents: Sequence[Any], retained: bool
) -> dict[int, Any]:
    """Return the gradients from the engine; some Functions support backward() only."""
    try:
        found = torch.autograd.grad(
            outputs, list(leaves.values()), cotangents, allow_unused=True, retain_graph=retained
        )
        return dict(zip(leaves, found, strict=True))
    except RuntimeError as error:
        if ".grad()" not in str(error):
            raise
    for leaf in leaves.values():
        leaf.grad = None
    torch.autograd.backward(outputs, cotangents, retain_graph=retained)
    return {n: leaf.grad for n, leaf in leaves.items()}


def _compare_second_call(
    subject: Subject, made: Outcome, outputs: Sequence[Any], node: Any
) -> tuple[str, ...]:
    """Call backward once more; store the raw result, and describe how it differs."""
    returned = _call_backward(subject, made, outputs, node)
    if isinstance(returned, str):
        if "through the graph a second time" in returned:
            # It holds a graph of its own, which torch runs only once.
            return ()
        made.refused = f"a second call of backward on what was saved fails: {returned}"
        return ()
    made.raw = returned
    for n, first in made.given.items():
        if returned is None or first is None or n >= len(returned):
            continue
        again = returned[n]
        if not is_tensor(again) or again.shape != first.shape:
            continue
        # The engine casts a gradient to the dtype of its input.
        if not near(again.to(first.dtype), first, 1e-3):
            names = subject.names(len(made.args))
            return (
                f"a second call of backward gives another gradient of {names[n]}: it changes what "
                "forward saved; --once judges the first call alone",
            )
    return ()


def _call_backward(subject: Subject, made: Outcome, outputs: Sequence[Any], node: Any) -> Any:
    """Call backward directly: its result, an error text, or None if it cannot be reached."""
    if getattr(node, "_forward_cls", None) is not subject.function:
        return None
    every = [g if g is None else clone_with_layout(g) for g in made.cotangents]
    full = [
        torch.zeros_like(o) if g is None and is_tensor(o) else g
        for o, g in zip(outputs, every, strict=False)
    ]
    try:
        with torch.no_grad():
            raw = node.apply(*full)
    except Exception as error:
        return error_line(error)
    return tuple(map(_dense, raw)) if isinstance(raw, tuple) else (_dense(raw),)


def _dense(gradient: Any) -> Any:
    """Return a sparse gradient, as that of an embedding, as a plain tensor; others as they are."""
    if is_tensor(gradient) and gradient.layout != torch.strided:
        return gradient.to_dense()
    return gradient


def _raw_of(subject: Subject, made: Outcome) -> tuple[Any, ...] | None:
    """Return what backward returns if the engine rejects it; None if backward itself fails."""
    leaves = leaves_of(subject, made.args)
    outputs = subject.applied(with_leaves(made.args, leaves, True))
    nodes = [o.grad_fn for o in outputs if is_tensor(o) and o.requires_grad]
    raw = _call_backward(subject, made, outputs, nodes[0]) if nodes else None
    return raw if isinstance(raw, tuple) else None


def with_raw(subject: Subject, made: Outcome) -> Outcome:
    """Return the outcome with the raw gradients, if the engine rejected them."""
    if made.error:
        made.raw = none_if_raises(_raw_of, subject, made)
        for n, right in made.right.items():
            raw = made.returned(n)
            if is_tensor(raw) and not made.shape_error(n):
                made.given[n] = raw.sum_to_size(right.shape)
    return made


def _equal_with_nan(a: Any, b: Any) -> bool:
    return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))


def near(given: Any, right: Any, tolerance: float) -> bool:
    """True if a gradient equals the right one up to tolerance.

    None means 0. Where the right one is nan, any value is accepted.
    """
    if given is None:
        given = torch.zeros_like(right)
    if given.shape != right.shape:
        return False
    given, right = wide_of(given.detach()), wide_of(right.detach())
    finite = right.isfinite()
    if not bool(finite.all()):
        given, right = torch.where(finite, given, 0), torch.where(finite, right, 0)
    if not bool(given.isfinite().all()):
        return False
    scale = max(float(right.abs().max()) if right.numel() else 0.0, 1e-2)
    return not right.numel() or float((given - right).abs().max()) <= tolerance * scale


def narrowest(subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]) -> int:
    """Return the bits of the narrowest float dtype in forward and backward."""
    met = {64}

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # nothing is compiled here, and skipping takes seconds of imports

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = function(*args, **(kwargs or {}))
            for value in tree_leaves(result):
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    met.add(torch.finfo(value.dtype).bits)
            return result

    with Watch():  # type: ignore[no-untyped-call]
        outcome(subject, args, cotangents, right=({}, 0.0))
    return max(8, min(met))


# ------------------------------------------------------------------------------------- forward mode
# The jvp of a Function: J·v, where a gradient is Jᵀ·G.


def tangents(subject: Subject, args: Sequence[Any], along: Mapping[int, Any]) -> list[Any]:
    """Return the tangents of the outputs along directions of arguments; None means 0."""
    import warnings

    dual: Any = forward_ad.make_dual
    unpacked: Any = forward_ad.unpack_dual
    with warnings.catch_warnings(), forward_ad.dual_level():
        # A warning of torch itself, on first use of forward mode.
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
        call = [
            a.detach().clone() if is_float(a) and n not in subject.owned else a
            for n, a in enumerate(args)
        ]
        call = [dual(a, along[n].clone()) if n in along else a for n, a in enumerate(call)]
        return [unpacked(o).tangent if is_tensor(o) else None for o in subject.applied(call)]


def products(made: Outcome, given: Sequence[Any], along: Mapping[int, Any]) -> tuple[float, ...]:
    """Return G·(J·v) of the given tangents, the right (Jᵀ·G)·v, and the scale of its error."""
    told = right = scale = 0.0
    for g, t in zip(made.cotangents, given, strict=False):
        told += 0.0 if g is None or t is None else inner(g, t)
    for n, v in along.items():
        gradient = made.right[n].double().nan_to_num(0)
        right += float((gradient * v.double()).sum())
        scale += max(float(gradient.abs().max()), 1e-2) * float(v.double().norm())
    return told, right, scale


# ---------------------------------------------------------------------------------- double backward
# The second derivative: whether a backward is itself differentiable.


def second_order(subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]) -> str:
    """Classify the double backward: ``right``, ``wrong``, ``nan``, ``constant`` or ``refused``.

    '' if the forward's own second derivative fails.
    """
    wanted = subject.wanted(args)

    def twice(run: Callable[[Sequence[Any]], tuple[Any, ...]]) -> Any:
        leaves = {n: args[n].detach().clone().requires_grad_() for n in wanted}
        given = [g if g is None else g.detach().clone().requires_grad_() for g in cotangents]
        call = [leaves[n].clone() if n in leaves else a for n, a in enumerate(args)]
        pairs = differentiated(run(call), given)
        if not pairs:
            raise unjudged("autograd records no operation of the forward")
        first = torch.autograd.grad(
            [o for o, _ in pairs],
            list(leaves.values()),
            [g for _, g in pairs],
            create_graph=True,
            allow_unused=True,
        )
        roots = [g for g in first if g is not None and g.requires_grad]
        wrt = [*leaves.values(), *(g for _, g in pairs)]
        if not roots:
            return [torch.zeros_like(w) for w in wrt]
        random = torch.Generator().manual_seed(5)
        total = torch.zeros((), dtype=torch.float64)
        for g in first:
            if g is not None:
                weight = torch.randn(g.shape, generator=random, dtype=torch.float64)
                total = total + (g * weight.to(g.device)).sum().cpu()
        # Run the whole graph, so that every node that refuses is reached.
        total.backward()  # type: ignore[no-untyped-call]
        return [torch.zeros_like(w) if w.grad is None else w.grad for w in wrt]

    if subject.owned:
        return ""
    try:
        right = twice(subject.plain)
    except Exception:
        return ""
    try:
        given = twice(subject.applied)
    except Exception:
        return "refused"
    if all(near(g, r, max(1e-6, subject.tolerance)) for g, r in zip(given, right, strict=True)):
        return "right"
    if not all(bool(g.isfinite().all()) for g in given):
        return "nan"
    if all(not bool(g.any()) for g in given[: len(wanted)]):
        return "constant"
    return "wrong"
