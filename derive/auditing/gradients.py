"""The gradients at one point: those of autograd through the forward, and the hand-written ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from derive.auditing.forward import Subject
from derive.auditing.points import is_float, is_tensor, random_like
from derive.errors import DeriveError

TOLERANCES = {64: 1e-7, 32: 2e-4, 16: 4e-2}
"""What is equal, relative to the largest element, by the bits of the narrowest dtype used."""

_STEP = 1e-3


@dataclass
class Outcome:
    """What became of one call: gradients by the number of the argument."""

    args: tuple[Any, ...]
    cotangents: tuple[Any, ...] = ()
    """One for each output; None for an output without a gradient."""
    right: dict[int, Any] = field(default_factory=dict)
    given: dict[int, Any] = field(default_factory=dict)
    raw: tuple[Any, ...] | None = None
    """What backward returned, before the engine reduced or refused it."""
    error: str = ""
    changed: tuple[str, ...] = ()
    """What the call changed in place and may not: a cotangent, an input."""

    def shape_error(self, n: int) -> str:
        """Why the engine refuses the shape of a gradient; '' where it does not."""
        raw = None if self.raw is None or n >= len(self.raw) else self.raw[n]
        if raw is not None and not is_tensor(raw):
            return f"backward returns {type(raw).__name__} for it, not a tensor"
        if raw is None or n not in self.right or _expands(self.right[n].shape, raw.shape):
            return ""
        return f"it has the shape {list(raw.shape)}, not {list(self.right[n].shape)}"


def _expands(small: Sequence[int], large: Sequence[int]) -> bool:
    """Whether a gradient of the large shape is summed to the small one by the engine."""
    if len(small) > len(large):
        return False
    tail = large[len(large) - len(small) :]
    return all(s in (1, t) for s, t in zip(small, tail, strict=True))


def leaves_of(args: Sequence[Any], wanted: Sequence[int] | None = None) -> dict[int, Any]:
    """A leaf of autograd for each float tensor, laid out as it is."""
    return {
        n: a.detach().requires_grad_()
        for n, a in enumerate(args)
        if is_float(a) and (wanted is None or n in wanted)
    }


def with_leaves(args: Sequence[Any], leaves: Mapping[int, Any], copied: bool) -> list[Any]:
    """The arguments of a call; copies of the leaves where the forward may write into them."""
    return [
        (leaves[n].clone() if copied else leaves[n]) if n in leaves else a
        for n, a in enumerate(args)
    ]


def differentiable(subject: Subject, args: Sequence[Any]) -> tuple[bool, ...]:
    """For each output of the Function whether it has a gradient."""
    leaves = leaves_of(args)
    outputs = subject.applied(with_leaves(args, leaves, True))
    return tuple(is_tensor(o) and o.requires_grad for o in outputs)


def cotangents_of(
    subject: Subject, args: Sequence[Any], seed: int, whole: bool = False
) -> tuple[Any, ...]:
    """Random ones, for the outputs that have a gradient."""
    has = differentiable(subject, args)
    return tuple(
        random_like(o, seed + n, whole) if wanted else None
        for n, (o, wanted) in enumerate(zip(subject.own(args), has, strict=True))
    )


def right_gradients(
    subject: Subject, args: Sequence[Any], cotangents: Sequence[Any], copied: bool = True
) -> dict[int, Any]:
    """autograd's through the forward; differences where the forward is opaque to autograd.

    It is so where it writes over what autograd needs, which a Function may.
    """
    try:
        return _by_autograd(subject, args, cotangents, copied)
    except RuntimeError as error:
        if any(said in str(error) for said in _OPAQUE):
            return differences(subject, args, cotangents)
        raise DeriveError(
            f"{subject.name} cannot be judged: autograd fails on its forward: "
            f"{str(error).strip().splitlines()[0]}; give a torch function of the same operation "
            "as reference="
        ) from error


_OPAQUE = (
    "modified by an inplace operation",
    "don't support automatic differentiation",
    "is not implemented",
)


def _by_autograd(
    subject: Subject, args: Sequence[Any], cotangents: Sequence[Any], copied: bool
) -> dict[int, Any]:
    import torch

    leaves = leaves_of(args)
    outputs = subject.plain(with_leaves(args, leaves, copied))
    pairs = [
        (o, g)
        for o, g in zip(outputs, cotangents, strict=False)
        if g is not None and o.requires_grad
    ]
    if not pairs:
        if any(g is not None for g in cotangents) and leaves:
            return differences(subject, args, cotangents)
        return {n: torch.zeros_like(leaf) for n, leaf in leaves.items()}
    found = torch.autograd.grad(
        [o for o, _ in pairs], list(leaves.values()), [g for _, g in pairs], allow_unused=True
    )
    return {
        n: torch.zeros_like(leaf) if g is None else g
        for (n, leaf), g in zip(leaves.items(), found, strict=True)
    }


def _value(subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]) -> float:
    import torch

    with torch.no_grad():
        copies = [a.detach().clone() if is_float(a) else a for a in args]
        outputs = subject.plain(copies)
    parts = [
        float((o.detach().double() * g.double()).sum())
        for o, g in zip(outputs, cotangents, strict=False)
        if g is not None
    ]
    return sum(parts)


def slope(
    subject: Subject,
    args: Sequence[Any],
    cotangents: Sequence[Any],
    direction: Mapping[int, Any],
    step: float = _STEP,
) -> float:
    """d/ds of the outputs times cotangents along a direction, from four values."""

    def at(s: float) -> float:
        moved = [a + s * direction[n] if n in direction else a for n, a in enumerate(args)]
        return _value(subject, moved, cotangents)

    near = (at(step / 2) - at(-step / 2)) / step
    far = (at(step) - at(-step)) / (2 * step)
    return (4 * near - far) / 3


def differences(subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]) -> dict[int, Any]:
    """The gradients by finite differences of the forward."""
    import torch

    found = {}
    for n, arg in enumerate(args):
        if not is_float(arg):
            continue
        made = torch.zeros(arg.shape, dtype=arg.dtype)
        for place in range(arg.numel()):
            unit = torch.zeros(arg.numel(), dtype=arg.dtype)
            unit[place] = 1
            direction = {n: unit.reshape(arg.shape).to(arg.device)}
            made.reshape(-1)[place] = slope(subject, args, cotangents, direction)
        found[n] = made.to(arg.device)
    return found


def check_forward(subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]) -> None:
    """Autograd of the forward is its derivative, and the reference computes the same."""
    import torch

    if subject.reference is not None:
        own, said = subject.own(args), subject.plain(args)
        for n, (a, b) in enumerate(zip(own, said, strict=False)):
            if is_float(a) and not (
                a.shape == b.shape and torch.allclose(a.double(), b.double(), 1e-3, 1e-3)
            ):
                raise DeriveError(
                    f"{subject.name} cannot be judged: output {n} of its forward differs from "
                    "that of reference= for the same inputs; correct the wrong one"
                )
        return
    right = right_gradients(subject, args, cotangents)
    direction = {n: random_like(args[n], 11 + n) for n in right}
    along = sum(float((right[n] * v).sum()) for n, v in direction.items())
    size = sum(float((right[n] * v).abs().sum()) for n, v in direction.items())
    steps = [slope(subject, args, cotangents, direction, s) for s in (1e-3, 1e-4)]
    agree = abs(steps[0] - steps[1]) <= 1e-4 * max(size, abs(steps[0]), 1e-2)
    if agree and abs(along - steps[1]) > 1e-3 * max(size, abs(steps[1]), 1e-2):
        raise DeriveError(
            f"{subject.name} cannot be judged by its own forward: autograd of the forward gives "
            f"the slope {along:.6g} along a direction, and finite differences give "
            f"{steps[1]:.6g}, so the forward detaches or rounds a value; give the intended "
            "function as reference="
        )


def outcome(
    subject: Subject,
    args: Sequence[Any],
    cotangents: Sequence[Any],
    wanted: Sequence[int] | None = None,
    copied: bool = False,
    right: dict[int, Any] | None = None,
) -> Outcome:
    """One call of the Function and its backward, beside the right gradients."""
    made = Outcome(tuple(args), tuple(cotangents))
    every = right_gradients(subject, args, cotangents) if right is None else right
    made.right = {n: g for n, g in every.items() if wanted is None or n in wanted}
    try:
        _run(subject, made, wanted, copied)
    except Exception as error:
        first = str(error).strip().split("\n")[0]
        made.error = f"{type(error).__name__}: {first}"
    return made


def _run(subject: Subject, made: Outcome, wanted: Sequence[int] | None, copied: bool) -> None:
    leaves = leaves_of(made.args, wanted)
    before = {n: a.clone() for n, a in enumerate(made.args) if is_float(a)}
    outputs = subject.applied(with_leaves(made.args, leaves, copied))
    pairs = [
        (o, g)
        for o, g in zip(outputs, made.cotangents, strict=False)
        if g is not None and o.requires_grad
    ]
    if not pairs:
        made.given = {n: None for n in leaves}
        return
    given = [_as_given(g) for _, g in pairs]
    made.given = _asked(leaves, [o for o, _ in pairs], given)
    changed = []
    names = subject.cotangents(len(made.cotangents))
    numbers = [n for n, g in enumerate(made.cotangents) if g is not None]
    for n, (_, g), now in zip(numbers, pairs, given, strict=False):
        if not _same(g, now):
            changed.append(f"the cotangent {names[n]} is changed in place by backward")
    if not copied:
        arguments = subject.names(len(made.args))
        for n, old in before.items():
            if not _same(old, made.args[n]):
                changed.append(f"the input {arguments[n]} is changed in place")
    made.changed = tuple(changed)
    if not changed:
        made.changed = _again(subject, made, outputs, pairs[0][0].grad_fn)


def _asked(
    leaves: Mapping[int, Any], outputs: Sequence[Any], cotangents: Sequence[Any]
) -> dict[int, Any]:
    """The gradients by the engine, which some Functions let be called by backward() alone."""
    import torch

    try:
        found = torch.autograd.grad(
            outputs, list(leaves.values()), cotangents, allow_unused=True, retain_graph=True
        )
        return dict(zip(leaves, found, strict=True))
    except RuntimeError as error:
        if ".grad()" not in str(error):
            raise
    torch.autograd.backward(outputs, cotangents, retain_graph=True)
    return {n: leaf.grad for n, leaf in leaves.items()}


def _again(subject: Subject, made: Outcome, outputs: Sequence[Any], node: Any) -> tuple[str, ...]:
    """Calls backward itself once more: what it returns, and whether that is the same."""
    returned = _returned(subject, made, outputs, node)
    if isinstance(returned, str):
        if "through the graph a second time" in returned:
            # It holds a graph of its own, which torch lets be run once.
            return ()
        return (f"a second call of backward on what was saved fails: {returned}",)
    made.raw = returned
    for n, first in made.given.items():
        if returned is None or first is None or n >= len(returned):
            continue
        again = returned[n]
        if not is_tensor(again) or again.shape != first.shape:
            continue
        # The engine gives a gradient the dtype of its input.
        if not near(again.to(first.dtype), first, 1e-3):
            names = subject.names(len(made.args))
            return (
                f"a second call of backward gives another gradient of {names[n]}: it changes what "
                "forward saved",
            )
    return ()


def _returned(subject: Subject, made: Outcome, outputs: Sequence[Any], node: Any) -> Any:
    """What backward itself returns, a text if it fails, None where it is out of reach."""
    import torch

    if getattr(node, "_forward_cls", None) is not subject.function:
        return None
    every = [g if g is None else _as_given(g) for g in made.cotangents]
    full = [
        torch.zeros_like(o) if g is None and is_tensor(o) else g
        for o, g in zip(outputs, every, strict=False)
    ]
    try:
        with torch.no_grad():
            raw = node.apply(*full)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    return raw if isinstance(raw, tuple) else (raw,)


def raw_of(subject: Subject, made: Outcome) -> tuple[Any, ...] | None:
    """What backward returns where the engine refuses it; None where it fails itself."""
    leaves = leaves_of(made.args)
    outputs = subject.applied(with_leaves(made.args, leaves, True))
    nodes = [o.grad_fn for o in outputs if is_tensor(o) and o.requires_grad]
    raw = _returned(subject, made, outputs, nodes[0]) if nodes else None
    return raw if isinstance(raw, tuple) else None


def _as_given(cotangent: Any) -> Any:
    """A copy in the same layout, which backward may not change."""
    return cotangent.detach().clone()


def _same(a: Any, b: Any) -> bool:
    import torch

    return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))


def near(given: Any, right: Any, tolerance: float) -> bool:
    """Whether a gradient is the right one; None is 0."""
    import torch

    if given is None:
        given = torch.zeros_like(right)
    if given.shape != right.shape:
        return False
    given, right = given.detach().double(), right.detach().double()
    finite = right.isfinite()
    if not bool(finite.all()):
        given, right = torch.where(finite, given, 0), torch.where(finite, right, 0)
    if not bool(given.isfinite().all()):
        return False
    scale = max(float(right.abs().max()) if right.numel() else 0.0, 1e-2)
    return not right.numel() or float((given - right).abs().max()) <= tolerance * scale


def narrowest(subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]) -> int:
    """The bits of the narrowest float dtype that forward and backward compute in."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    met = {64}

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = function(*args, **(kwargs or {}))
            for value in tree_leaves(result):
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    met.add(torch.finfo(value.dtype).bits)
            return result

    with Watch():  # type: ignore[no-untyped-call]
        outcome(subject, args, cotangents, right={})
    return max(16, min(met))
