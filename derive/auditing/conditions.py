"""The conditions under which a gradient that is right at ordinary points may be wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from derive.auditing.forward import Subject
from derive.auditing.gradients import Outcome, near, outcome, right_gradients, slope
from derive.auditing.points import Point, broadcasts, edges, flags, is_float, is_tensor, layouts
from derive.errors import DeriveError

_FAR = 1e-3


@dataclass(frozen=True)
class Found:
    """One thing that is wrong: with a gradient, or with the call as a whole (``n`` None)."""

    n: int | None
    text: str
    is_remark: bool = False


def wrong_inputs(made: Outcome, tolerance: float) -> list[int]:
    """The arguments whose gradient is not the right one."""
    return [n for n, r in made.right.items() if not near(made.given.get(n), r, tolerance)]


def runs(subject: Subject, args: Sequence[Any]) -> bool:
    """Whether the forward takes these arguments and gives finite numbers."""
    try:
        for outputs in (subject.plain(args), subject.own(args)):
            for o in outputs:
                if is_float(o) and not bool(o.detach().isfinite().all()):
                    return False
        return True
    except Exception:
        return False


@dataclass(frozen=True)
class Judge:
    """A Function at one base point, where its gradients may or may not be right."""

    subject: Subject
    args: tuple[Any, ...]
    names: tuple[str, ...]
    tolerance: float
    copied: bool
    cotangents: Callable[[Subject, Sequence[Any]], tuple[Any, ...]]
    skipped: frozenset[int]
    """The arguments that are known to be wrong."""

    def all(self) -> Iterator[Found]:
        """What is wrong under each condition in turn."""
        base = Point(self.args)
        yield from self.subsets()
        yield from self.of_cotangents()
        if not self.copied:
            for point in layouts(base, self.names):
                yield from self.at(point, copied=False)
        for point in flags(base, self.names):
            yield from self.at(point)
        for point in broadcasts(base, self.names):
            yield from self.at(point, is_remark=True)
        for point in edges(base, self.names):
            yield from self.at_edge(point)
        yield from self.in_dtypes()

    def at(self, point: Point, copied: bool = True, is_remark: bool = False) -> Iterator[Found]:
        """The gradients at one point."""
        if not runs(self.subject, point.args):
            return
        try:
            cotangents = self.cotangents(self.subject, point.args)
            made = outcome(self.subject, point.args, cotangents, copied=copied or self.copied)
        except Exception:
            return
        yield from self._told(made, point.condition, is_remark)

    def _told(
        self, made: Outcome, condition: str, is_remark: bool = False, tolerance: float | None = None
    ) -> Iterator[Found]:
        if made.error:
            if not self.skipped and not is_remark:
                yield Found(None, f"backward fails {condition}: {made.error}")
            return
        for n in wrong_inputs(made, tolerance or self.tolerance):
            if n not in self.skipped:
                yield Found(n, f"{condition}{_by_how_much(made, n)}", is_remark)
        for text in made.changed:
            yield Found(None, f"{text} {condition}".strip(), is_remark)

    def subsets(self) -> Iterator[Found]:
        """Gradients asked of one input alone, and of all others."""
        every = [n for n, a in enumerate(self.args) if is_float(a)]
        if len(every) < 2:
            return
        cotangents = self.cotangents(self.subject, self.args)
        right = right_gradients(self.subject, self.args, cotangents)
        for n in every:
            for wanted in dict.fromkeys(((n,), tuple(o for o in every if o != n))):
                asked = ", ".join(self.names[m] for m in wanted)
                made = outcome(
                    self.subject, self.args, cotangents, wanted, self.copied, dict(right)
                )
                yield from self._told(made, f"where only {asked} needs a gradient")

    def of_cotangents(self) -> Iterator[Found]:
        """Cotangents that are expanded, and outputs that nothing reads."""
        cotangents = self.cotangents(self.subject, self.args)
        held = [n for n, g in enumerate(cotangents) if g is not None]
        ways = [("where the cotangent is expanded, as sum() gives it", _expanded)]
        if any(g is not None and g.ndim > 1 for g in cotangents):
            ways.append(("where the cotangent is not contiguous", _turned))
        for condition, change in ways:
            given = tuple(g if g is None else change(g) for g in cotangents)
            made = outcome(self.subject, self.args, given, copied=self.copied)
            yield from self._told(made, condition)
        for n in held if len(held) > 1 else ():
            only = tuple(g if m == n else None for m, g in enumerate(cotangents))
            made = outcome(self.subject, self.args, only, copied=self.copied)
            yield from self._told(made, f"where only output {n} is used")

    def at_edge(self, point: Point) -> Iterator[Found]:
        """Zeros, ties and large values; torch's convention at a kink is only remarked."""
        if not runs(self.subject, point.args):
            return
        try:
            cotangents = self.cotangents(self.subject, point.args)
            made = outcome(self.subject, point.args, cotangents, copied=True)
        except Exception:
            return
        if made.error:
            yield from self._told(made, point.condition)
            return
        for n in wrong_inputs(made, max(_FAR, self.tolerance)):
            if n in self.skipped:
                continue
            if self._is_kink(made, n):
                text = f"{self.names[n]}: {point.condition} the slope jumps, and backward takes"
                yield Found(n, f"{text} another one than torch", True)
            else:
                yield Found(n, f"{point.condition}{_by_how_much(made, n)}")

    def _is_kink(self, made: Outcome, n: int) -> bool:
        """Whether the slopes to both sides differ where the gradient is most wrong."""
        import torch

        given, right = made.given.get(n), made.right[n]
        given = torch.zeros_like(right) if given is None else given
        if not bool(given.isfinite().all()):
            return False
        unit = torch.zeros_like(right).reshape(-1)
        unit[int((given - right).abs().reshape(-1).argmax())] = 1
        step = 1e-4
        sides = []
        for sign in (1, -1):
            there = [
                a + sign * step * unit.reshape(right.shape) if m == n else a
                for m, a in enumerate(made.args)
            ]
            direction = {n: unit.reshape(right.shape)}
            sides.append(slope(self.subject, there, made.cotangents, direction, step / 4))
        return abs(sides[0] - sides[1]) > 1e-2 * max(1e-2, *map(abs, sides))

    def in_dtypes(self) -> Iterator[Found]:
        """float32 and bfloat16, where the forward takes them."""
        import torch

        if self.subject.dtype is not None:
            return
        for dtype, tolerance in ((torch.float32, 1e-3), (torch.bfloat16, 0.1)):
            args = tuple(a.to(dtype) if is_float(a) else a for a in self.args)
            wide = tuple(a.double() if is_float(a) else a for a in args)
            if not runs(self.subject, args) or not runs(self.subject, wide):
                continue
            try:
                cotangents = self.cotangents(self.subject, args)
                exact = tuple(None if g is None else g.double() for g in cotangents)
                right = right_gradients(self.subject, wide, exact)
                plain = right_gradients(self.subject, args, cotangents)
            except Exception:
                continue
            if not all(near(plain[n], right[n], tolerance / 3) for n in right):
                continue
            made = outcome(self.subject, args, cotangents, copied=self.copied, right=right)
            name = str(dtype).removeprefix("torch.")
            yield from self._told(made, f"in {name}", tolerance=tolerance)


def _expanded(cotangent: Any) -> Any:
    return cotangent.reshape(-1)[:1].clone().reshape([1] * cotangent.ndim).expand(cotangent.shape)


def _turned(cotangent: Any) -> Any:
    axes = tuple(reversed(range(cotangent.ndim)))
    return cotangent.permute(axes).contiguous().permute(axes)


def _by_how_much(made: Outcome, n: int) -> str:
    """The largest difference, and where nan stands."""
    given, right = made.given.get(n), made.right[n]
    if given is None:
        return ": there is none"
    if given.shape != right.shape:
        return f": it has the shape {list(given.shape)}, not {list(right.shape)}"
    if not bool(given.isfinite().all()):
        return (
            f": it has {'nan' if bool(given.isnan().any()) else 'inf'} where autograd's is finite"
        )
    far = (given.double() - right.double()).abs().max()
    return f": it is off by {float(far):.3g}, where the largest is {float(right.abs().max()):.3g}"


def second_order(subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]) -> str:
    """``right``, ``wrong``, ``constant`` or ``refused``: the gradient of the gradients."""
    import torch

    def twice(run: Callable[[Sequence[Any]], tuple[Any, ...]], copied: bool) -> Any:
        leaves = {n: a.detach().clone().requires_grad_() for n, a in enumerate(args) if is_float(a)}
        given = [g if g is None else g.detach().clone().requires_grad_() for g in cotangents]
        call = [leaves[n].clone() if n in leaves else a for n, a in enumerate(args)]
        pairs = [
            (o, g)
            for o, g in zip(run(call), given, strict=False)
            if g is not None and is_tensor(o) and o.requires_grad
        ]
        if not pairs:
            raise DeriveError("autograd records no operation of the forward")
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
        # All of the graph is run, so that a node which refuses is met.
        total.backward()  # type: ignore[no-untyped-call]
        return [torch.zeros_like(w) if w.grad is None else w.grad for w in wrt]

    try:
        right = twice(subject.plain, True)
    except Exception:
        return ""
    try:
        given = twice(subject.applied, True)
    except Exception:
        return "refused"
    if all(near(g, r, 1e-6) for g, r in zip(given, right, strict=True)):
        return "right"
    inputs = len([a for a in args if is_float(a)])
    if all(not bool(g.any()) for g in given[:inputs]):
        return "constant"
    return "wrong"
