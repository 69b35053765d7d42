"""Find a small counterexample that one can paste and check by hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from derive.auditing.conditions import Judge, runs
from derive.auditing.forward import Subject
from derive.auditing.gradients import Outcome, outcome, random_cotangents
from derive.auditing.points import by_size, classes, is_float, is_tensor, resized
from derive.auditing.structure import Structure

_SEEN = 1e-2
_DIGITS = (4, 6, 9)
"""Printed digits: more if two numbers would look alike."""


def counterexample(subject: Subject, structure: Structure, names: tuple[str, ...], n: int) -> str:
    """Return the smallest call found where the gradient of argument n is wrong; '' if none is.

    Points at a kink or tie are skipped, where the right gradient is a convention.
    """
    if not all(is_tensor(a) or isinstance(a, int | float | str | None) for a in structure.args):
        return ""
    plain = ""
    for made in _wrong_ones(subject, structure, names, n):
        text = _pasteable(subject, names, made, n)
        if text and _is_clearly_wrong(made, n):
            return text
        plain = plain or text
    return plain


def _wrong_ones(
    subject: Subject, structure: Structure, names: tuple[str, ...], n: int
) -> Iterator[Outcome]:
    """Yield calls where the gradient of argument n is wrong, the smallest first."""
    nothing: frozenset[int] = frozenset()
    judge = Judge(subject, structure, [structure.args], names, nothing, nothing, lambda part: True)
    for args, whole in _small_arguments(structure):
        if not runs(subject, args):
            continue
        for seed in range(3):
            try:
                made = outcome(
                    subject, args, random_cotangents(subject, args, seed, whole), None, True
                )
            except Exception:
                break
            if made.error or n not in made.wrong(subject.tolerance) or not _is_exact(made, n):
                continue
            if not judge.is_kept(made, n, subject.tolerance) and judge.is_smooth(made, n):
                yield made


def _is_clearly_wrong(made: Outcome, n: int) -> bool:
    """True if the error is too large to look like rounding."""
    given, right = made.given.get(n), made.right[n]
    if given is None or given.shape != right.shape:
        return True
    return bool((given - right).abs().max() > _SEEN)


def _is_exact(made: Outcome, n: int) -> bool:
    return bool(made.right[n].isfinite().all())


def _small_arguments(structure: Structure) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Yield arguments, the smallest first, and whether their values are integers."""
    args = structure.args
    if not structure.kinds and not structure.kept:
        known = classes(args, by_size)
        ways: list[Mapping[Any, int]] = [{c: 1 for c in known}]
        ways += [{c: 2 if c == one else 1 for c in known} for one in known if len(known) > 1]
        ways += [{c: 2 for c in known}, known]
        for whole in (True, False):
            for sizes in ways:
                for seed in range(2):
                    yield resized(args, by_size, sizes, seed, whole), whole
    for seed in range(2):
        yield structure.resized({}, seed), False


def _pasteable(subject: Subject, names: Sequence[str], made: Outcome, n: int) -> str:
    """Return the call as runnable code with both gradients, with enough digits to differ."""
    called = [name.replace("[", "_").replace("]", "").replace(" ", "_") for name in names]
    dtype = subject.dtype or (made.right[n].dtype if is_tensor(made.right[n]) else None)
    text = str(dtype)
    lines = []
    for name, arg in zip(called, made.args, strict=True):
        if is_float(arg):
            wanted = ", requires_grad=True" if arg is made.args[n] else ""
            lines.append(f"{name} = torch.tensor({_format_tensor(arg, 9)}, dtype={text}{wanted})")
        elif is_tensor(arg):
            lines.append(f"{name} = torch.tensor({arg.tolist()})")
        else:
            lines.append(f"{name} = {arg!r}")
    cotangents = []
    for k, (name, g) in enumerate(
        zip(subject.cotangents(len(made.cotangents)), made.cotangents, strict=True)
    ):
        if g is not None:
            name = name if name.isidentifier() and name not in called else f"G_{k}"
            cotangents.append((k, name))
            lines.append(f"{name} = torch.tensor({_format_tensor(g, 9)}, dtype={text})")
    outputs = f"{subject.name}.apply({', '.join(called)})"
    if len(made.cotangents) > 1:
        lines.append(f"out = {outputs}")
        used = ", ".join(f"out[{k}]" for k, _ in cotangents)
        asked = f"[{used}], {called[n]}, [{', '.join(name for _, name in cotangents)}]"
    else:
        asked = f"{outputs}, {called[n]}, {cotangents[0][1]}"
    given, right = made.given.get(n), made.right[n]
    for digits in _DIGITS:
        is_given = "None" if given is None else _format_tensor(given, digits)
        is_right = _format_tensor(right, digits)
        if is_given != is_right:
            lines.append(f"torch.autograd.grad({asked})")
            lines.append(f"# gives {is_given}; it should be {is_right}")
            return "\n".join(lines)
    return ""


def _format_tensor(tensor: Any, digits: int) -> str:
    """Format a tensor as nested lists of short numbers."""

    def short(part: Any) -> str:
        if isinstance(part, list):
            return f"[{', '.join(map(short, part))}]"
        return f"{part:.{digits}g}" if isinstance(part, float) else str(part)

    return short(tensor.detach().tolist())
