"""The audit itself: ordinary points, an explanation of what is wrong there, then conditions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from derive.auditing.backward import written
from derive.auditing.conditions import Found, Judge, runs, second_order, wrong_inputs
from derive.auditing.evidence import EXACT, Evidence
from derive.auditing.explain import explain
from derive.auditing.forward import Subject
from derive.auditing.gradients import (
    TOLERANCES,
    Outcome,
    check_forward,
    cotangents_of,
    narrowest,
    near,
    outcome,
    raw_of,
)
from derive.auditing.model import Model
from derive.auditing.operation import model_of, torch_function
from derive.auditing.points import Classes, by_size, classes, inverses, is_float, is_tensor, resized
from derive.auditing.report import Report, Row
from derive.auditing.smallest import counterexample
from derive.errors import DeriveError
from derive.notation.operation import Operation

_PRIMES = (2, 3, 5, 4, 7, 6)
_ROUNDS = 3


def audit(
    function: Any, *examples: Any, reference: Operation | str | Callable[..., Any] | None = None
) -> Report:
    """Check the backward of a hand-written torch.autograd.Function against its forward.

        grad_x = Sum_outputs G * d output/dx

    Args:
        function: the subclass of ``torch.autograd.Function``.
        examples: the arguments of one call of its forward.
        reference: the intended forward, if autograd cannot run the forward (a CUDA or Triton
            kernel): a torch function of the same arguments, an `Operation`, or its text.

    Returns:
        A `Report`: ``right``, ``rows`` (``input``, ``right``, ``wrong``), and ``str(report)``. The
        gradients are checked at other values, sizes, memory layouts, dtypes and flags than those of
        the examples too. For a wrong gradient, the row names the wrong term, factor, sign or size
        if one explanation is exact.

    Raises:
        DeriveError: the Function cannot be judged.

    The reference is autograd of the forward, in float64.

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
    return audit_all(function, [examples], reference)


def audit_all(
    function: Any,
    examples: Sequence[Sequence[Any]],
    reference: Operation | str | Callable[..., Any] | None = None,
) -> Report:
    """As `audit`, for several calls."""
    if not examples or not any(is_float(a) for a in examples[0]):
        raise DeriveError(
            "an audit needs example inputs, and at least one of them must be a float tensor"
        )
    first = tuple(examples[0])
    names = Subject(function).names(len(first))
    subject = Subject(function, torch_function(reference, names))
    subject = _in_its_dtype(subject, first)
    found = model_of(subject, first, names, reference)
    model, unread = (None, found) if isinstance(found, str) else (found, "")
    points = list(_points(subject, [tuple(e) for e in examples], model))
    if not points:
        raise DeriveError(
            f"{subject.name} cannot be judged: its forward gives no finite numbers for the "
            "example inputs, in float64 or in their own dtype; give inputs from its domain"
        )
    made = _Audit(subject, names, model, points).report()
    if made.right or not unread:
        return made
    remark = f"no term is named: {unread}; give the operation of the forward as reference="
    return replace(made, remarks=(*made.remarks, remark))


def _in_its_dtype(subject: Subject, args: Sequence[Any]) -> Subject:
    """The subject, with the dtype of its examples where it does not take float64."""
    wide = tuple(a.detach().double() if is_float(a) else a for a in args)
    try:
        subject.own(wide)
        return subject
    except Exception as error:
        given = next(a.dtype for a in args if is_float(a))
        narrow = replace(subject, dtype=given)
        try:
            narrow.own(wide)
        except Exception:
            raise DeriveError(
                f"{subject.name} cannot be judged: its forward fails on the example inputs: "
                f"{type(error).__name__}: {error}"
            ) from error
        return narrow


def _points(
    subject: Subject, examples: Sequence[tuple[Any, ...]], model: Model | None
) -> Iterator[tuple[Any, ...]]:
    """Ordinary points in float64: small distinct sizes in several orders, or those given."""
    found = 0
    args = examples[0]
    for of in _classes(args, model):
        known = sorted(classes(args, of).items(), key=lambda item: item[1])
        for turn in range(max(1, min(len(known), _ROUNDS))):
            sizes = {c: _PRIMES[(n + turn) % len(_PRIMES)] for n, (c, _) in enumerate(known)}
            if len(known) > len(_PRIMES):
                break
            if len(known) == 1:
                sizes = {known[0][0]: 3}
            made = resized(args, of, sizes, found)
            if runs(subject, made):
                found += 1
                yield made
        if found:
            break
    if found and len(classes(args, of)) == 1:
        (only,) = classes(args, of)
        for size in (4, 7):
            made = resized(args, of, {only: size}, found)
            if runs(subject, made):
                found += 1
                yield made
    for at, given in enumerate(examples):
        if sum(a.numel() for a in given if is_tensor(a)) < 20_000:
            for seed in range(1 if found else _ROUNDS):
                made = resized(given, by_size, {}, 50 + at + seed)
                if runs(subject, made):
                    yield made


def _classes(args: Sequence[Any], model: Model | None) -> Iterator[Classes]:
    """How axes hang together: by the letters of the operation, else by their sizes.

    What a permutation orders has its size, of which the operation does not know.
    """
    if model is not None and not any(inverses(args)):
        letters = model.axis_class(args)
        if letters:

            def by_letter(n: int, axis: int, size: int) -> Hashable:
                return letters.get((n, axis), size)

            yield by_letter
    yield by_size


class _Audit:
    """One Function at its ordinary points."""

    def __init__(
        self,
        subject: Subject,
        names: tuple[str, ...],
        model: Model | None,
        points: Sequence[tuple[Any, ...]],
    ) -> None:
        self.subject = subject
        self.names = names
        self.model = model
        self.points = points
        self.copied = _or(subject.changes_inputs, points[0])
        cotangents = [cotangents_of(subject, p, 7 * n + 1) for n, p in enumerate(points)]
        check_forward(subject, points[0], cotangents[0])
        bits = 32 if subject.dtype is not None else narrowest(subject, points[0], cotangents[0])
        self.bits = bits
        self.tolerance = TOLERANCES[bits]
        self.outcomes = [self._outcome(p, g) for p, g in zip(points, cotangents, strict=True)]

    def _outcome(self, args: tuple[Any, ...], cotangents: tuple[Any, ...]) -> Outcome:
        made = outcome(self.subject, args, cotangents, copied=self.copied)
        if made.error:
            made.raw = _or(lambda: raw_of(self.subject, made))
            for n in made.right:
                raw = None if made.raw is None or n >= len(made.raw) else made.raw[n]
                if raw is not None and is_tensor(raw) and not made.shape_error(n):
                    made.given[n] = raw.sum_to_size(made.right[n].shape)
        return made

    def report(self) -> Report:
        """The verdict."""
        wrong: dict[int, list[str]] = {n: [] for n in self.outcomes[0].right}
        remarks: list[str] = []
        at_all = [n for n in wrong if any(n in self._wrong(o) for o in self.outcomes)]
        for n in at_all:
            wrong[n].append(self.why(n))
        judge = Judge(
            self.subject,
            self.points[0],
            self.names,
            self.tolerance,
            self.copied,
            lambda subject, args: cotangents_of(subject, args, 3),
            frozenset(at_all),
        )
        judged = self._judged()
        if len(at_all) < len(wrong) and not self.outcomes[0].error:
            self._under_conditions(judge, wrong, remarks)
            judged += ["needs_input_grad", "layouts", "flags", "dtypes", "edge values"]
        second = ""
        if not at_all:
            second = second_order(self.subject, self.points[0], self.outcomes[0].cotangents)
            remarks += _of_second_order(second)
            judged += [f"second order: {second}"] if second else []
        for text in dict.fromkeys(t for o in self.outcomes for t in o.changed):
            for n in wrong:
                wrong[n] = [*_others(text, wrong[n]), text]
            remarks = _others(text, remarks)
        is_right = not any(wrong.values())
        found = "" if is_right or not at_all else _or(lambda: self._counterexample(at_all[0])) or ""
        return Report(
            self.subject.name,
            tuple(
                Row(self.names[n], not told, "; ".join(dict.fromkeys(told)))
                for n, told in wrong.items()
            ),
            tuple(dict.fromkeys(remarks)),
            tuple(_or(self.model.formulas) or ()) if self.model is not None else (),
            found,
            tuple(judged),
            second,
            self._fixed(),
            () if is_right or not at_all else _or(lambda: self._written(at_all)) or (),
        )

    def _wrong(self, made: Outcome) -> list[int]:
        if not made.error:
            return wrong_inputs(made, self.tolerance)
        if made.raw is None or len(made.raw) < len(made.args):
            return list(made.right)
        found = [n for n in made.right if made.shape_error(n)]
        found += [
            n
            for n in made.right
            if n not in found and not near(made.given.get(n), made.right[n], self.tolerance)
        ]
        return found or list(made.right)

    def why(self, n: int) -> str:
        """What is wrong with the gradient in argument n at ordinary points."""
        first = self.outcomes[0]
        if first.error:
            if first.raw is None:
                return f"backward fails: {first.error}"
            given, wanted = _count(first.raw, len(first.args)), len(first.args)
            if given != wanted:
                return f"backward returns {given} gradients where forward takes {wanted} arguments"
        small = [o for o in self.outcomes if bool(o.error) == bool(first.error)][:_ROUNDS]
        names = self.subject.cotangents(len(first.cotangents))
        evidence = Evidence(
            n, self.names, names, tuple(small), self.model, max(EXACT, self.tolerance * 3)
        )
        told = _or(lambda: explain(evidence)) or ""
        refused = first.shape_error(n)
        if refused:
            return f"{refused}: {told}" if told else refused
        return told or self._unexplained(n)

    def _unexplained(self, n: int) -> str:
        import torch

        if not any(bool(made.right[n].any()) for made in self.outcomes):
            return (
                "it is 0 everywhere, as forward does not change with it or only jumps, and backward"
                " gives another (a straight-through estimator does so on purpose)"
            )
        for made in self.outcomes:
            if n not in self._wrong(made):
                continue
            right, given = made.right[n], made.given.get(n)
            given = torch.zeros_like(right) if given is None else given.detach()
            if given.shape != right.shape:
                break
            shape = list(right.shape)
            if not bool(given.isfinite().all()):
                return f"it is not finite for {self.names[n]} of shape {shape}"
            far = float((given - right).abs().max())
            if made.error and near(given, right, self.tolerance):
                return f"backward fails: {made.error}"
            return f"it is off by {far:.3g} where the largest is {float(right.abs().max()):.3g}"
        return first if (first := self.outcomes[0].error) else "it is wrong"

    def _under_conditions(
        self, judge: Judge, wrong: dict[int, list[str]], remarks: list[str]
    ) -> None:
        met: set[tuple[int | None, str]] = set()
        for found in judge.all():
            key = (found.n, found.text.split(":")[0])
            if key in met:
                continue
            met.add(key)
            if found.is_remark:
                name = "" if found.n is None else f"{self.names[found.n]}: "
                told = found.text if found.text.startswith(name) else name + found.text
                remarks.append(told)
            else:
                self._note(found, wrong)

    def _note(self, found: Found, wrong: dict[int, list[str]]) -> None:
        numbers = list(wrong) if found.n is None else [found.n]
        for n in numbers:
            # One set of inputs that need a gradient says it for all sets.
            if not ("where only" in found.text and any("where only" in t for t in wrong[n])):
                wrong[n].append(found.text)

    def _judged(self) -> list[str]:
        shapes = {tuple(tuple(a.shape) for a in o.args if is_tensor(a)) for o in self.outcomes}
        return [f"{len(self.points)} points of {len(shapes)} shapes"]

    def _counterexample(self, n: int) -> str:
        return counterexample(self.subject, self.points[0], self.names, n, self.tolerance)

    def _written(self, wrong: Sequence[int]) -> tuple[str, ...]:
        cotangents = self.outcomes[0].cotangents
        return written(self.subject, self.points[0], cotangents, wrong, self.model)

    def _fixed(self) -> str:
        if self.model is None:
            return ""
        from derive.pipeline import source

        return _or(lambda: source(self.model.operation)) or ""  # type: ignore[union-attr]


def _others(text: str, told: Sequence[str]) -> list[str]:
    """What is told, but for the same under a condition."""
    return [t for t in told if not t.startswith(text)]


def _count(raw: Sequence[Any], wanted: int) -> int:
    """How many gradients backward returns; torch lets it return None for what there is not."""
    count = len(raw)
    while count > wanted and raw[count - 1] is None:
        count -= 1
    return count


def _of_second_order(second: str) -> list[str]:
    if second == "constant":
        return [
            "the second backward is silently 0: the gradients are constants for autograd; mark "
            "backward with torch.autograd.function.once_differentiable, or derive it"
        ]
    if second == "wrong":
        return [
            "the second backward is silently wrong: backward reads values that forward computed "
            "and saved, which autograd takes for constants; mark backward with "
            "torch.autograd.function.once_differentiable, or compute them from the inputs"
        ]
    return []


def _or(call: Callable[..., Any], *args: Any) -> Any:
    """What the call gives, None where it fails: an explanation is never the reason of an error."""
    try:
        return call(*args)
    except Exception:
        return None
