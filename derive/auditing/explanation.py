"""Explain wrong gradients: trace the forward, and compare derived and given gradients.

Sizes are chosen such that a size, a number and another index have different values. The verdict
does not depend on this.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from itertools import product
from typing import Any

import torch

from derive.algebra.expr import Expr, Index
from derive.api import source
from derive.auditing.conditions import runs
from derive.auditing.error_regions import where
from derive.auditing.evidence import EXACT, Evidence, has_other_name
from derive.auditing.examples import CallGroup
from derive.auditing.explain import explain, explain_further
from derive.auditing.forward import Context, Subject, by_autograd
from derive.auditing.gradients import Outcome, near, outcome, random_cotangents, with_raw
from derive.auditing.isolation import limited, none_if_raises
from derive.auditing.model import Model, give_names, model_of, renamed_tensors, unshared
from derive.auditing.points import Classes, by_size, classes, inverses, is_float, is_tensor, resized
from derive.auditing.repair import mended
from derive.auditing.structure import Structure
from derive.notation.operation import Equation
from derive.show.formula import equation
from derive.tracing.read import reading

# ----------------------------------------------------------------------------------------- backward
# Trace a hand-written backward into equations.


def written(
    subject: Subject, made: Outcome, wanted: Sequence[int], model: Model | None
) -> tuple[str, ...]:
    """Return the gradients of these arguments as equations, as backward computes them.

    Names are those of its code. Equations of the forward that backward reads are included, except
    those that the operation already has.
    """
    args, cotangents = made.args, made.cotangents
    names = subject.plain_names(len(args))
    given = [n for n, g in enumerate(cotangents) if g is not None]
    every = [*names, *_distinct_cotangent_names(subject.cotangents(len(cotangents)), names)]
    every = every[: len(names)] + [every[len(names) + n] for n in given]
    returned: list[int] = []

    def backward(*values: Any) -> tuple[Any, ...]:
        inputs, cots = values[: len(args)], dict(zip(given, values[len(args) :], strict=True))
        own = [cots.get(n) for n in range(len(cotangents))]
        raw = _run_unwrapped(subject, unshared(inputs, made), own)
        returned[:] = [n for n in wanted if n < len(raw) and is_tensor(raw[n])]
        return tuple(raw[n] for n in returned)

    give_names(backward, every)
    own = every[len(args) :]
    letters = {} if model is None else _tracer_letters(model, args, names, own, given)
    inputs = (*args, *(cotangents[n] for n in given))
    op = reading(backward, *inputs, name="backward", letters=letters).operation
    targets = {o: f"grad_{names[n]}" for o, n in zip(op.outputs, returned, strict=True)}
    taken = {t.name for t in op.inputs} | {e.name for e in op.equations}
    targets = {o: t for o, t in targets.items() if t not in taken}
    forward = () if model is None else model.operation.equations
    known = {_renamed_equation(e, {}) for e in forward}
    return tuple(
        _renamed_equation(e, targets) for e in op.equations if _renamed_equation(e, {}) not in known
    )


def _run_unwrapped(
    subject: Subject, args: Sequence[Any], cotangents: Sequence[Any]
) -> tuple[Any, ...]:
    """Run forward and backward without autograd; return what backward returns."""
    function = subject.function
    context = Context([is_float(a) for a in args])
    if subject.has_setup:
        result = function.forward(*args)
        subject.set_up(context, args, result)
    else:
        function.forward(context, *args)
    # Skip the wrapper of once_differentiable, which detaches its arguments.
    raw = inspect.unwrap(function.backward)(context, *cotangents)
    return raw if isinstance(raw, tuple) else (raw,)


def _distinct_cotangent_names(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """Return the names of cotangents, with "_" appended where an argument has the same name."""
    made: list[str] = []
    for name in (n.replace("[", "").replace("]", "") for n in names):
        while name in taken or name in made:
            name += "_"
        made.append(name)
    return made


def _tracer_letters(
    model: Model,
    args: Sequence[Any],
    names: Sequence[str],
    cotangents: Sequence[str],
    given: Sequence[int],
) -> dict[str, Any]:
    """Return the operation's index letters for each axis of the arguments and cotangents."""
    op = model.operation
    axes = {t.name: t.axes for t in op.inputs}
    found = {
        names[n]: _of_axes(axes[name])
        for n, name in model.inputs(args).items()
        if len(axes[name]) == args[n].ndim
    }
    known = {e.name: e for e in op.equations}
    outputs = [known[name] for name in op.outputs if name in known]
    numbers = model.results or range(len(outputs))
    of = dict(zip(numbers, outputs, strict=False))
    return found | {
        name: _of_axes(of[n].axes) for name, n in zip(cotangents, given, strict=True) if n in of
    }


def _of_axes(axes: Sequence[Expr]) -> list[str | None]:
    return [a.name if isinstance(a, Index) and not a.group else None for a in axes]


def _renamed_equation(e: Equation, targets: Mapping[str, str]) -> str:
    """Print an equation, with outputs renamed by ``targets``."""
    return equation(targets.get(e.name, e.name), e.axes, renamed_tensors(e.body, targets))


# -------------------------------------------------------------------------------------- explanation

_PRIMES = (2, 3, 5, 4, 7, 6)
_ROUNDS = 3
_POINTS = 7
_READING = 8.0
_EXPLAINING = 6.0
_WRITING = 4.0
"""CPU seconds to trace the forward, to explain its gradients, and to print equations."""
_SHARP = 1e-4
_MORE = 1.03125
"""No sizes or numbers in a formula have this ratio."""
_TINY = 1e-2
"""Smaller numbers are not scaled: they are epsilons of divisions."""


@dataclass(frozen=True)
class Explanation:
    """The explanation of the wrong gradients."""

    why: dict[int, str] = field(default_factory=dict)
    formulas: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    fixed: str = ""
    unread: str = ""
    """Why the forward could not be traced."""

    def where(self, condition: str) -> Explanation:
        """Prefix each explanation with the condition of its calls."""
        if not condition:
            return self
        said = {n: f"{condition}: {text}" for n, text in self.why.items() if text}
        return changed(self, why=said)


def explanation(
    subject: Subject, names: tuple[str, ...], calls: CallGroup, reference: Any
) -> Explanation:
    """Return the first exact explanation for each wrong gradient, and both formulas."""
    structure, outcomes, wrong = calls.structure, calls.outcomes, calls.wrong
    first = outcomes[0]
    # Some mistakes show in the numbers alone, without an operation.
    detached = {n: told for n in wrong if (told := _explain_detached(subject, outcomes, n))}
    dropped = {n: _explain_dropped_cotangents(subject, outcomes, n) for n in wrong}
    why = dropped | detached
    model: Model | None = None
    unread = f"it takes more than {_READING:g} s to read"
    with limited(_READING):
        found = model_of(subject, structure.args, names, reference, first)
        model, unread = (None, found) if isinstance(found, str) else (found, "")
    own = _structured(subject, structure, outcomes)
    several = [*_resized_outcomes(subject, structure.args, model), *own]
    sharp = [o.doubt for o in several if o.doubt < _SHARP]
    tolerance = max(EXACT, subject.tolerance * 3, *(5 * doubt for doubt in sharp))
    cotangents = subject.cotangents(len(first.cotangents))

    def evidence(n: int, points: Sequence[Outcome], model: Model | None) -> Evidence:
        return Evidence(n, names, cotangents, tuple(points), model, tolerance)

    doubted: dict[int, str] = {}

    def by_formula(explained: Callable[[Evidence], str], of: Sequence[int]) -> None:
        with limited(_EXPLAINING):
            for n in of:
                told = ""
                for points, are_all in _explanation_points(n, several, own, bool(first.error)):
                    known = changed(evidence(n, points, model), are_all=are_all)
                    told = told or none_if_raises(explained, known) or ""
                    if told and has_other_name(told, known):
                        doubted[n], told = told, ""
                why[n] = told or why[n]

    refused = {n: first.shape_error(n) for n in wrong}
    by_formula(explain, [n for n in wrong if n not in detached])
    _add_edit_explanations(subject, calls, own, several, why, tolerance)
    by_formula(explain_further, [n for n in wrong if not why[n]])
    for n in (n for n in wrong if not why[n] and not _is_flat(several, n)):
        ran = [o for o in several if not o.error and _has_reliable_gradient(o, n)]
        why[n] = doubted.get(n) or _explain_ignored_cotangents(subject, outcomes, n)
        why[n] = why[n] or none_if_raises(where, evidence(n, ran, None)) or ""
    for n, told in refused.items():
        why[n] = f"{told}: {why[n]}" if told and why[n] else told or why[n]
    formulas: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    fixed = ""
    with limited(_WRITING):
        formulas = () if model is None else tuple(none_if_raises(model.formulas) or ())
        lines = none_if_raises(written, subject, first, wrong, model) or ()
        fixed = "" if model is None else none_if_raises(source, model.operation) or ""
    return Explanation(why, formulas, lines, fixed, unread)


def _is_flat(several: Sequence[Outcome], n: int) -> bool:
    """True if the right gradient is 0 everywhere, so that a surrogate may be meant."""
    return not any(bool(o.right[n].nan_to_num(0).any()) for o in several if n in o.right)


def _explanation_points(
    n: int, several: Sequence[Outcome], own: Sequence[Outcome], fails: bool
) -> Iterator[tuple[list[Outcome], bool]]:
    """Yield the points used to explain a gradient: all, then those of the examples' structure.

    Beside them is whether these are all.
    """
    points = [o for o in several if bool(o.error) == fails and _has_reliable_gradient(o, n)][
        :_POINTS
    ]
    if points:
        yield points, True
    alone = [o for o in points if any(o is p for p in own)]
    if alone and len(alone) < len(points):
        yield alone, False


def _add_edit_explanations(
    subject: Subject,
    calls: CallGroup,
    own: Sequence[Outcome],
    several: Sequence[Outcome],
    why: dict[int, str],
    tolerance: float,
) -> None:
    """Add the explanations found by one edit of the code."""
    unnamed = [n for n, told in why.items() if not told and not _is_flat(several, n)]
    if not unnamed:
        return

    def known(some: Sequence[Outcome]) -> list[Outcome]:
        return [
            o for o in some if not o.error and all(_has_reliable_gradient(o, n) for n in unnamed)
        ]

    # Random values may lack the kind of an argument, such as symmetric.
    kinds = calls.structure.kinds
    others = [] if kinds else [o for o in several if all(o is not p for p in own)]
    others += _lengthened_outcomes(subject, calls.structure)
    others += [] if kinds else _scaled_outcomes(subject, own[:1])
    why |= mended(subject, known(own), known(others), unnamed, tolerance, kinds)


def _lengthened_outcomes(subject: Subject, structure: Structure) -> Iterator[Outcome]:
    """Yield outcomes at other sizes of short axes: there, a number may be told from a size."""
    for sizes in structure.lengthened():
        args = none_if_raises(structure.resized, sizes, 3)
        if args is not None and runs(subject, args):
            cotangents = none_if_raises(random_cotangents, subject, args, 5)
            if cotangents is not None:
                yield outcome(subject, args, cotangents)


def _scaled_outcomes(subject: Subject, outcomes: Sequence[Outcome]) -> Iterator[Outcome]:
    """Yield outcomes at larger values of both signs: there, a test of x may be told from |x|."""
    for made in outcomes:
        for factor in (3, -3):
            args = tuple(factor * a if is_float(a) else a for a in made.args)
            if runs(subject, args) and (
                found := none_if_raises(outcome, subject, args, made.cotangents)
            ):
                yield found


def _explain_detached(subject: Subject, outcomes: Sequence[Outcome], n: int) -> str:
    """Explain a gradient that is autograd's, whose forward detaches a part; '' if it is not."""
    if subject.reference is not None:
        return ""
    for made in outcomes:
        given = made.given.get(n)
        found = none_if_raises(by_autograd, subject, made.args, made.cotangents)
        if not found or made.error or given is None or not bool(given.any()):
            return ""
        if not near(given, found[n], subject.tolerance):
            return ""
    return (
        "it is autograd's gradient of forward, which detaches a part or calls another Function, "
        "not the slope of its values; if that is meant, give a copy of forward as reference="
    )


def _explain_ignored_cotangents(subject: Subject, outcomes: Sequence[Outcome], n: int) -> str:
    """Explain a gradient that does not depend on the cotangents; '' if it does."""
    for made in outcomes[:2]:
        other = tuple(None if g is None else 2 * g + 1 for g in made.cotangents)
        again = none_if_raises(outcome, subject, made.args, other, right=({}, 0.0))
        given = made.given.get(n)
        if again is None or again.error or given is None or not bool(given.any()):
            return ""
        if again.given.get(n) is None or not near(again.given[n], given, EXACT):
            return ""
    called = subject.cotangents(len(outcomes[0].cotangents))
    return f"backward does not read {' or '.join(called)}: another one gives the same gradient"


def _structured(
    subject: Subject, structure: Structure, outcomes: Sequence[Outcome]
) -> list[Outcome]:
    """Return points of the examples' structure: other sizes, other numbers, and the examples."""
    found = []
    for turn in range(2):
        found += _outcomes_at(subject, structure.resized(structure.varied(turn), turn), turn)
    found += _outcomes_at(subject, _with_other_numbers(structure.exact(structure.args)), 3)
    return [*found, *outcomes[:2]]


def _outcomes_at(subject: Subject, args: tuple[Any, ...], seed: int) -> list[Outcome]:
    """Return the outcome at these arguments, if the forward accepts them."""
    made = None
    if runs(subject, args):
        made = none_if_raises(_outcome_at, subject, args, seed)
    return [] if made is None or made.doubt > _SHARP else [with_raw(subject, made)]


def _outcome_at(subject: Subject, args: tuple[Any, ...], seed: int) -> Outcome:
    return outcome(subject, args, random_cotangents(subject, args, seed))


def _with_other_numbers(args: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments with float numbers scaled by `_MORE`."""
    return tuple(a * _MORE if type(a) is float and abs(a) > _TINY else a for a in args)


def _has_reliable_gradient(made: Outcome, n: int) -> bool:
    """True if the right gradient is accurate enough to explain another one."""
    sharp = made.doubt < _SHARP
    return sharp and n in made.right and bool(made.right[n].isfinite().all())


def _explain_dropped_cotangents(subject: Subject, outcomes: Sequence[Outcome], n: int) -> str:
    """Explain a gradient that ignores the cotangent of some outputs, from numbers alone."""
    made = outcomes[0]
    held = [k for k, g in enumerate(made.cotangents) if g is not None]
    if made.error or not held or made.given.get(n) is None:
        return ""
    called = subject.cotangents(len(made.cotangents))
    if len(held) > 1:
        dropped = [k for k in held if _is_dropped(subject, made, n, k)]
        if dropped and len(dropped) < len(held):
            told = " and ".join(f"{called[k]} (of output {k})" for k in dropped)
            rest = tuple(None if k in dropped else g for k, g in enumerate(made.cotangents))
            alone = none_if_raises(outcome, subject, made.args, rest)
            if alone is not None and n not in alone.wrong(subject.tolerance):
                return f"the cotangent {told} is not read: that output sends no gradient"
    return ""


def _is_dropped(subject: Subject, made: Outcome, n: int, k: int) -> bool:
    """True if the cotangent of output k changes the right gradient, but not the given one."""
    other = tuple(
        g if g is None or m != k else torch.zeros_like(g) for m, g in enumerate(made.cotangents)
    )
    without = none_if_raises(outcome, subject, made.args, other)
    if without is None or without.error or without.given.get(n) is None:
        return False
    same = near(without.given[n], made.given[n], 1e-9)
    return same and not near(without.right[n], made.right[n], subject.tolerance)


def _resized_outcomes(
    subject: Subject, args: tuple[Any, ...], model: Model | None
) -> Iterator[Outcome]:
    for n, point in enumerate(_prime_sized_points(subject, args, model)):
        made = none_if_raises(_outcome_at, subject, point, 7 * n + 1)
        if made is not None:
            yield with_raw(subject, made)


def _prime_sized_points(
    subject: Subject, args: tuple[Any, ...], model: Model | None
) -> Iterator[tuple[Any, ...]]:
    """Yield arguments with small, distinct sizes in several orders, equal for axes of one class."""
    found = 0
    for of in _axis_classings(args, model):
        known = sorted(classes(args, of).items(), key=lambda item: item[1])
        if len(known) > len(_PRIMES):
            continue
        turns = range(max(1, min(len(known), _ROUNDS)))
        even = False
        for scale, turn in product((1, 2), turns):
            even = even or (scale > 1 and not found)
            if scale > 1 and found and not even:
                break  # larger even sizes only if no odd ones worked
            sizes = {
                c: scale * _PRIMES[(n + turn) % len(_PRIMES)] for n, (c, _) in enumerate(known)
            }
            if len(known) == 1 and scale == 1:
                sizes = {known[0][0]: 3}
            made = resized(args, of, sizes, found)
            if found % 2 and runs(subject, _with_other_numbers(made)):
                made = _with_other_numbers(made)
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


def _axis_classings(args: Sequence[Any], model: Model | None) -> Iterator[Classes]:
    """Yield the size classes of axes: by index letter if the operation is known, else by size.

    A pair of inverse permutations is classed by size, since the operation does not relate them.
    """
    if model is not None and not any(inverses(args)):
        letters = model.axis_class(args)
        if letters:

            def by_letter(n: int, axis: int, size: int) -> Hashable:
                return letters.get((n, axis), size)

            yield by_letter
    yield by_size
