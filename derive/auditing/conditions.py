"""The conditions under which gradients are checked, and the level of each finding.

With the structure of the examples (sizes, layouts, dtypes, flags), other numbers are *wrong* and an
error is *fragile*. At sizes and values that no example has, other numbers are fragile too. Where
torch's convention decides, as for the slope at a kink, the finding is a *remark*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import torch

from derive.auditing.findings import FRAGILE, REMARK, WRONG, AuditFinding, by_how_much
from derive.auditing.forward import (
    TOLERANCES,
    Subject,
    by_autograd,
    check_reference,
    right_gradients,
    slope,
)
from derive.auditing.gradients import (
    Outcome,
    error_line,
    narrowest,
    near,
    outcome,
    products,
    random_cotangents,
    tangents,
)
from derive.auditing.points import (
    Point,
    broadcasts,
    cast,
    expanded,
    flags,
    is_float,
    is_tensor,
    layouts,
    made_up,
    random_like,
    scaled,
    special,
    turned,
    wide_of,
)
from derive.auditing.structure import (
    Structure,
    other_proportions,
    other_sizes,
    rare,
    rectangles,
    reordered,
    shapes_of,
)

_FAR = 1e-3
"""The tolerance at large values and at ties, where rounding errors are larger."""
_KINKS = 4
_OVERFLOWS = 1000
"""Values scaled by at most this factor may overflow; larger ones will."""
_FACTORS, _HALVINGS = (3, 10, 30, 100, 1000, 10_000), 8
_BELOW = 1.2, 1.02
"""The steps down by which an error that grows slowly with the scale is told from a jump."""
_NEAR = 30
"""Values scaled by at most this factor are near: an error at one of them alone is fragile."""
_NEAR_BY = 8
_SUBSETS = 12
_PLACES = 64


def runs(subject: Subject, args: Sequence[Any]) -> bool:
    """True if the forward accepts these arguments, is finite, and matches its reference."""
    try:
        check_reference(subject, args)
        for outputs in (subject.plain(args), subject.own(args)):
            for o in outputs:
                if is_float(o) and not bool(o.detach().isfinite().all()):
                    return False
        return True
    except Exception:
        return False


@dataclass(frozen=True)
class Judge:
    """Checks a Function at its examples and at points derived from them."""

    subject: Subject
    structure: Structure
    examples: Sequence[tuple[Any, ...]]
    """The examples as given, not cast."""
    names: tuple[str, ...]
    skipped: frozenset[int]
    """The arguments whose gradients are already known to be wrong."""
    without: frozenset[int]
    """The arguments for which backward returns None at the examples."""
    enter: Callable[[str], bool]
    """Called with each condition before it runs; False if that condition ended the process before.
    """

    @property
    def args(self) -> tuple[Any, ...]:
        """The first example in float64."""
        return self.structure.exact(self.examples[0])

    def all(self) -> Iterator[AuditFinding]:
        """Check every condition in turn, and yield the findings."""
        base = Point(self.args)
        if self.subject.dtype is None:
            for example in self.examples:
                yield from self.as_given(example)
        yield from self.subsets()
        yield from self.of_cotangents()
        if not self.subject.copied:
            for point in layouts(base, self.names):
                yield from self.at(point, copied=False)
        for point in flags(base, self.names, self.subject.words()):
            yield from self.at(point)
        left_out = self.subject.defaults(len(base.args)) if self.subject.reference is None else ()
        whole = Point((*base.args, *left_out))
        if left_out:
            added = " and ".join(self.subject.names(len(whole.args))[len(base.args) :])
            yield from self.at(replace(whole, condition=f"where {added} is given"))
        for point in flags(whole, self.subject.names(len(whole.args)), self.subject.words()):
            if all(a is b for a, b in zip(point.args, base.args, strict=False)):
                yield from self.at(point, WRONG, loud=None)
        for point in made_up(whole, self.subject.names(len(whole.args))):
            yield from self.at(point, FRAGILE, loud=None)
        for point in reordered(self.structure):
            yield from self.at(point, WRONG, loud=None)
        yield from self.at_large_values(base)
        # At a tie, the reference's gradient is a convention.
        level = FRAGILE if self.subject.reference is None else REMARK
        for point in special(base, self.names, self._may_vanish):
            found = [*self.at(point, level, loud=None, tolerance=_FAR)]
            yield from found or self.at_a_kink(point)
        told: set[str] = set()
        for point in rare(self.structure, self.names, whole.args):
            if point.condition not in told:
                found = [*self.at(point, FRAGILE, loud=None, certain=True)]
                told |= {point.condition for _ in found}
                yield from found
        for kind in (other_sizes, rectangles):
            for point in kind(self.structure, self.names):
                yield from self.at(point, FRAGILE)
        for point in other_proportions(self.structure, self.names):
            yield from self.at(point, FRAGILE, loud=None)
        for point in broadcasts(base, self.names):
            yield from self.at(point, REMARK, loud=None)
        yield from self.in_half()
        yield from self.under_autocast()

    def _may_scale(self, n: int) -> bool:
        kind = self.structure.kinds.get((n,))
        free = kind is None or kind.name in ("sorted", "positive")
        return n not in self.subject.owned and free

    def _may_vanish(self, n: int) -> bool:
        return n not in self.subject.owned and (n,) not in self.structure.kinds

    def at_large_values(self, base: Point) -> Iterator[AuditFinding]:
        """Report a gradient as wrong if it is at two near or two far scales.

        At one far scale, the forward itself may fail. At one near scale alone it is fragile: a mask
        may have another bound than the forward.
        Where the error grows slowly with the scale, the forward only approximates: it is fragile.
        So is one that autograd does not follow, and is constant there: a root beyond its bounds.
        """
        met: dict[tuple[int | None, str, bool], AuditFinding] = {}
        ended = set()
        for who, factor, point in scaled(base, self.names, self._may_scale, _FACTORS):
            if who in ended or not self.enter(point.condition):
                ended.add(who)  # larger ones would not end either
                continue
            for found in self.at(point, WRONG, tolerance=_FAR, overflow=FRAGILE):
                key = found.n, who, factor <= _NEAR
                if found.level != WRONG:
                    if factor <= _OVERFLOWS:
                        yield found
                elif key in met:
                    slow = found.n is not None and _is_slow(self, base, who, found.n, factor)
                    yield replace(met.pop(key), level=FRAGILE if slow else WRONG)
                else:
                    met[key] = found
        yield from (replace(f, level=FRAGILE) for (_, _, is_near), f in met.items() if is_near)

    # ------------------------------------------------------------ at a point

    def at(
        self,
        point: Point,
        silent: str = WRONG,
        loud: str | None = FRAGILE,
        tolerance: float = 0.0,
        overflow: str | None = None,
        copied: bool = True,
        certain: bool = False,
    ) -> Iterator[AuditFinding]:
        """Check the gradients at one point.

        ``silent`` is the level of other numbers, ``loud`` that of an error; with None, errors are
        ignored. If ``certain``, autograd must be right there, as not where one write hides another.
        """
        owned = self.subject.owned
        args = tuple(self.args[n] if n in owned else a for n, a in enumerate(point.args))
        if not self.enter(point.condition) or not runs(self.subject, args):
            return
        try:
            cotangents = random_cotangents(self.subject, args, 3)
            made = outcome(self.subject, args, cotangents, copied=copied)
        except Exception:
            return
        if certain and made.doubt:
            return
        if made.wrong(max(self.subject.tolerance, tolerance)):
            # A flag may select a narrower dtype.
            bits = narrowest(self.subject, args, cotangents)
            tolerance = max(tolerance, TOLERANCES[bits])
        yield from self.told(made, point.condition, silent, loud, tolerance, overflow)

    def at_a_kink(self, point: Point) -> Iterator[AuditFinding]:
        """Yield a remark where the slope jumps and autograd takes another slope."""
        try:
            cotangents = random_cotangents(self.subject, point.args, 3)
            right = by_autograd(self.subject, point.args, cotangents)
            made = outcome(self.subject, point.args, cotangents, right=(right or {}, 0.0))
        except Exception:
            return
        found = self.told(made, point.condition, REMARK, None, _FAR)
        yield from (f for f in found if "the slope jumps" in f.text)

    def told(
        self,
        made: Outcome,
        condition: str,
        silent: str = WRONG,
        loud: str | None = FRAGILE,
        tolerance: float = 0.0,
        overflow: str | None = None,
    ) -> Iterator[AuditFinding]:
        """Yield the findings about one outcome."""
        if made.error:
            if loud is not None:
                shapes = f"({shapes_of(self.names, made.args)})"
                where = condition if shapes in condition else f"{condition} {shapes}"
                yield AuditFinding(None, f"backward fails {where}: {made.error}", loud)
            return
        is_wrong = False
        for n in made.wrong(max(self.subject.tolerance, tolerance)):
            if n in self.skipped:
                continue
            if self.is_kept(made, n, max(self.subject.tolerance, tolerance)):
                continue
            if self.is_kink(made, n, max(self.subject.tolerance, tolerance)):
                text = self.which_slope(made, n, max(self.subject.tolerance, tolerance))
                if text:
                    yield AuditFinding(n, f"{condition} {text}".strip(), REMARK)
                continue
            level, given = silent, made.given.get(n)
            if given is None and n in self.without:
                level = REMARK  # backward declares it a constant
            if overflow is not None and given is not None:
                flat = not self.subject.believed and _is_flat(made, n)
                if flat or not bool(given.isfinite().all()):
                    level = overflow
            is_wrong = True
            yield AuditFinding(n, f"{condition}{by_how_much(made, n)}", level)
        for text in () if is_wrong else made.changed:
            yield AuditFinding(None, f"{text} {condition}".strip(), silent)

    def is_kept(self, made: Outcome, n: int, tolerance: float) -> bool:
        """True if a gradient agrees with autograd's along the tangent space of its argument's kind.

        For a symmetric matrix, a symmetric gradient is accepted where autograd's is that of one
        triangle.
        """
        kind, given, right = self.structure.kinds.get((n,)), made.given.get(n), made.right[n]
        if kind is None or kind.tangent is None or given is None or given.shape != right.shape:
            return False
        try:
            at = made.args[n].detach().double()
            ours, theirs = given.detach().double(), right.detach().double()
            sides = [ours if kind.closed else kind.tangent(ours, at), kind.tangent(theirs, at)]
        except Exception:
            return False
        return near(sides[0], sides[1], tolerance + 3 * made.doubt)

    def is_kink(self, made: Outcome, n: int, tolerance: float) -> bool:
        """True if the one-sided slopes differ at the elements where the gradient is most wrong."""
        given, right = made.given.get(n), made.right[n]
        given = torch.zeros_like(right) if given is None else given
        if given.shape != right.shape or not bool(given.isfinite().all()):
            return False
        far = (given.double() - right.double()).abs().nan_to_num(0).reshape(-1)
        most = max(float(right.nan_to_num(0).abs().max()), 1e-2)
        places = [
            int(p) for p in far.argsort(descending=True)[:_KINKS] if far[p] > tolerance * most
        ]
        if not places:
            return False
        near_by = _near_by(self.subject, made, n)
        return all(
            any(
                abs(float(given.reshape(-1)[p] - r.reshape(-1)[p])) <= tolerance * most
                for r in near_by
            )
            or self._jumps(made, {n: _unit(made.args[n], p)})
            for p in places
        )

    def which_slope(self, made: Outcome, n: int, tolerance: float) -> str:
        """Return a remark on the slope that backward takes at a kink, "" if it is torch's.

        Where values that tie grow alike, the slope does not jump: it is the sum of their gradients.
        """
        with suppress(Exception):
            found = by_autograd(self.subject, made.args, made.cotangents) or {}
            if near(made.given[n], found[n], tolerance):
                return ""
            # The values of a reference may jump where its gradient does not.
            known = found if self.subject.reference is None else {}
            ones = {m: torch.ones_like(made.args[m]) for m in known if m not in self.skipped}
            for along in ({n: ones[n]}, ones) if ones else ():
                if any(one.dtype != torch.float64 for one in along.values()):
                    continue
                right = slope(self.subject, made.args, made.cotangents, along)[0]
                ours = sum(float(made.given[m].sum()) for m in along)
                far = abs(ours - right) > 1e-2 * max(1e-2, abs(ours), abs(right))
                if far and not self._jumps(made, along):
                    every = " and ".join(self.names[m] for m in along)
                    return (
                        "the slope jumps, and backward takes none between: where all of "
                        f"{every} grows alike, it is {right:.4g}, and backward adds up to "
                        f"{ours:.4g}"
                    )
        return "the slope jumps, and backward takes another one than torch"

    def is_smooth(self, made: Outcome, n: int) -> bool:
        """True if the right gradient is the same at neighboring points: no kink, no tie."""
        return all(near(r, made.right[n], 1e-5) for r in _near_by(self.subject, made, n))

    def _jumps(self, made: Outcome, along: Mapping[int, Any]) -> bool:
        step = 1e-4
        sides = []
        for sign in (1, -1):
            there = [
                a + sign * step * along[m] if m in along else a for m, a in enumerate(made.args)
            ]
            with self.subject.moved(made.args, there):
                try:
                    sides.append(slope(self.subject, there, made.cotangents, along, step / 8)[0])
                except Exception:
                    return True
        return not abs(sides[0] - sides[1]) <= 1e-2 * max(1e-2, *map(abs, sides))

    # --------------------------------------------------- at the examples' own

    def as_given(self, example: tuple[Any, ...]) -> Iterator[AuditFinding]:
        """Check the example unchanged, with its own strides and dtypes."""
        dtypes = {a.dtype for n, a in enumerate(example) if is_float(a)}
        given = tuple(
            a.detach() if is_float(a) and n not in self.subject.owned else a
            for n, a in enumerate(example)
        )
        if dtypes == {torch.float64} or not self.enter("in the dtypes of the examples"):
            return
        name = ", ".join(sorted(str(d).removeprefix("torch.") for d in dtypes))
        yield from self._narrow(given, f"in {name}", WRONG)

    def _narrow(self, args: tuple[Any, ...], condition: str, silent: str) -> Iterator[AuditFinding]:
        """Check in a narrower dtype, if autograd of the forward is accurate enough there."""
        bits = min(torch.finfo(a.dtype).bits for a in args if is_float(a))
        tolerance = max(5 * TOLERANCES[max(bits, 16)], self.subject.tolerance)
        wide = widened(args)
        if not runs(self.subject, args) or not runs(self.subject, wide):
            return
        try:
            cotangents = random_cotangents(self.subject, args, 3)
            exact = tuple(None if g is None else wide_of(g) for g in cotangents)
            right, doubt = right_gradients(self.subject, wide, exact)
            plain, _ = right_gradients(replace(self.subject, bits=max(bits, 16)), args, cotangents)
        except Exception:
            return
        if not all(near(plain[n], right[n], tolerance / 3) for n in right):
            return
        made = outcome(self.subject, args, cotangents, right=(right, doubt), copied=True)
        yield from self.told(made, condition, silent, tolerance=tolerance)

    def subsets(self) -> Iterator[AuditFinding]:
        """Check with requires_grad on one input alone, and on all others."""
        every = self.subject.wanted(self.args)
        if len(every) < 2:
            return
        cotangents = random_cotangents(self.subject, self.args, 3)
        right = right_gradients(self.subject, self.args, cotangents)
        for n in every[:_SUBSETS]:
            for wanted in dict.fromkeys(((n,), tuple(o for o in every if o != n))):
                asked = ", ".join(self.names[m] for m in wanted)
                condition = f"where only the gradient of {asked} is wanted"
                if self.enter(condition):
                    made = outcome(self.subject, self.args, cotangents, wanted, False, right)
                    yield from self.told(made, condition)

    def of_cotangents(self) -> Iterator[AuditFinding]:
        """Check expanded and non-contiguous cotangents, and one output used at a time."""
        cotangents = random_cotangents(self.subject, self.args, 3)
        held = [n for n, g in enumerate(cotangents) if g is not None]
        ways = [("where the cotangent is expanded, as sum() gives it", expanded)]
        if any(g is not None and g.ndim > 1 for g in cotangents):
            ways.append(("where the cotangent is not contiguous", turned))
        for condition, change in ways:
            given = tuple(g if g is None else change(g) for g in cotangents)
            if self.enter(condition):
                yield from self.told(outcome(self.subject, self.args, given), condition)
        for n in held if len(held) > 1 else ():
            only = tuple(g if m == n else None for m, g in enumerate(cotangents))
            condition = f"where only output {n} is used"
            if self.enter(condition):
                yield from self.told(outcome(self.subject, self.args, only), condition)

    # ---------------------------------------------------------- forward mode

    def wrong_jvp(self, made: Outcome) -> str | None:
        """Describe where the Function's jvp is wrong at a point; None if nothing is certain there.

        Its tangents are compared with the right gradients: G·(J·v) = (Jᵀ·G)·v.
        """
        alone = {}
        for n, right in made.right.items():
            arg, kind = made.args[n].detach(), self.structure.kinds.get((n,))
            # Many kinks are at 0.
            v = random_like(arg, 17 + n) * ((arg != 0) & right.isfinite())
            if kind is not None and kind.tangent is not None:
                with suppress(Exception):
                    v = kind.tangent(v, arg)
            if n not in self.subject.owned | self.skipped and bool(v.any()):
                alone[n] = v
        for along in [*({n: v} for n, v in alone.items()), *([alone] if len(alone) > 1 else ())]:
            given = tangents(self.subject, made.args, along)
            if _is_right(self.subject, made, given, along):
                continue
            if not any(self._jumps(made, {n: v}) for n, v in along.items()):
                names = ", ".join(self.names[n] for n in along)
                return f"along {names}, {_place(self.subject, made, given, along)}"
        return "" if alone else None

    def of_other_sizes(self) -> Iterator[tuple[Outcome, str]]:
        """Yield the outcomes at other sizes than the examples', where backward runs."""
        for kind in (other_sizes, other_proportions):
            for point in kind(self.structure, self.names):
                if runs(self.subject, point.args):
                    cotangents = random_cotangents(self.subject, point.args, 3)
                    made = outcome(self.subject, point.args, cotangents)
                    if not made.error:
                        yield made, point.condition

    # ---------------------------------------------------------------- dtypes

    def in_half(self) -> Iterator[AuditFinding]:
        """Check in bfloat16, if the forward supports it and no example has that dtype."""
        given = {a.dtype for e in self.examples for a in e if is_float(a)}
        if self.subject.dtype is not None or torch.bfloat16 in given:
            return
        if self.subject.owned or not self.enter("in bfloat16"):
            return
        args = cast(self.args, torch.bfloat16)
        for found in self._narrow(args, "in bfloat16", FRAGILE):
            yield replace(found, level=REMARK) if found.n is None else found

    def under_autocast(self) -> Iterator[AuditFinding]:
        """Run forward under autocast, backward outside, as a training loop does: a remark."""
        condition = "under autocast"
        if self.subject.dtype is not None or self.subject.owned or not self.enter(condition):
            return
        args = cast(self.args, torch.float32)
        leaves = {n: args[n].clone().requires_grad_() for n in self.subject.wanted(args)}
        call = [leaves.get(n, a) for n, a in enumerate(args)]
        try:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                outputs = self.subject.applied([c.clone() if is_float(c) else c for c in call])
        except Exception:
            return
        used = [o for o in outputs if is_tensor(o) and o.requires_grad]
        try:
            torch.autograd.grad(
                used, list(leaves.values()), [torch.ones_like(o) for o in used], allow_unused=True
            )
        except Exception as error:
            text = f"backward fails where forward ran under autocast: {error_line(error)}"
            yield AuditFinding(
                None, f"{text}; decorate with torch.amp.custom_fwd and custom_bwd", REMARK
            )


def _is_flat(made: Outcome, n: int) -> bool:
    """True if the right gradient is 0 wherever that of backward is not near it."""
    given, right = made.given[n].double(), made.right[n].double()
    if given.shape != right.shape:
        return False
    far = (given - right).abs() > _FAR * right.abs()
    return bool(far.any()) and not bool(right[far].any())


def _is_right(
    subject: Subject, made: Outcome, given: Sequence[Any], along: Mapping[int, Any]
) -> bool:
    told, right, scale = products(made, given, along)
    return abs(told - right) <= (subject.tolerance + 3 * made.doubt) * scale


def _place(subject: Subject, made: Outcome, given: Sequence[Any], along: Mapping[int, Any]) -> str:
    """Name the first element of the outputs with a wrong tangent."""
    for k, g in enumerate(made.cotangents):
        for place in range(0 if g is None else min(g.numel(), _PLACES)):
            one = (torch.arange(g.numel(), device=g.device) == place).reshape(g.shape).to(g)
            single = tuple(one if m == k else None for m in range(len(made.cotangents)))
            right = right_gradients(subject, made.args, single)
            there = Outcome(made.args, single, *right)
            if all(bool(r.isfinite().all()) for r in there.right.values()):
                if not _is_right(subject, there, given, along):
                    at = ", ".join(str(int(i)) for i in one.nonzero()[0])
                    output = f"output {k}" if len(made.cotangents) > 1 else "the output"
                    told, want, _ = products(there, given, along)
                    return f"{output}{f'[{at}]' if at else ''} is {told:.6g}, not {want:.6g}"
    told, want, _ = products(made, given, along)
    return f"the product with a cotangent is {told:.6g}, not {want:.6g}"


def _unit(arg: Any, place: int) -> Any:
    """Return a direction along one element, as long as it is."""
    unit = torch.zeros(arg.numel(), dtype=torch.float64)
    unit[place] = max(float(arg.detach().reshape(-1)[place].abs()), 1.0)
    return unit.reshape(arg.shape).to(arg.device)


def widened(args: Sequence[Any]) -> tuple[Any, ...]:
    """Cast float tensors to float64, except parameters of modules."""
    own = (torch.nn.Parameter,)
    return tuple(
        cast(a.detach() if is_float(a) and not isinstance(a, own) else a, torch.float64)
        for a in args
    )


def _is_slow(judge: Judge, base: Point, who: str, n: int, most: float) -> bool:
    """True if the error of a gradient is small at some scale, and smaller a little below.

    That of a series grows as a small power of the scale, that of a fixed point after k steps as
    its k-th: the first shows a fifth below, the second a fiftieth below.
    """
    low, high = 1.0, most
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        far = _error_at(judge, base, who, n, middle)
        if judge.subject.tolerance < far < 1e-2 and any(
            1.3 < far / _error_at(judge, base, who, n, middle / below) < 1e3 for below in _BELOW
        ):
            return True
        low, high = (low, middle) if far > judge.subject.tolerance else (middle, high)
    return False


def _error_at(judge: Judge, base: Point, who: str, n: int, factor: float) -> float:
    """Return the relative error of a gradient where these inputs are scaled; inf if unknown."""
    for chosen, _, point in scaled(base, judge.names, judge._may_scale, (factor,)):
        if chosen == who and runs(judge.subject, point.args):
            cotangents = random_cotangents(judge.subject, point.args, 3)
            made = outcome(judge.subject, point.args, cotangents)
            given, right = made.given.get(n), made.right[n].double()
            if given is not None and given.shape == right.shape:
                far = (given.double() - right).abs().nan_to_num(0).max()
                return float(far / right.abs().nan_to_num(0).max().clamp(min=1e-2)) + 1e-13
    return inf


def _near_by(subject: Subject, made: Outcome, n: int) -> list[Any]:
    """Return the right gradient at randomly perturbed points, to compare with at a kink."""
    found = []
    random = torch.Generator().manual_seed(1)
    for _ in range(_NEAR_BY):
        moved = [
            a
            if m not in made.right or m in subject.owned
            else a * (1 + 1e-9 * torch.randn(a.shape, generator=random, dtype=a.dtype))
            for m, a in enumerate(made.args)
        ]
        try:
            found.append(right_gradients(subject, moved, made.cotangents)[0][n])
        except Exception:
            continue
    return found
