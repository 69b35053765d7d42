"""Example calls: prepared, grouped by their flags, and shrunk to a small counterexample."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch

from derive.auditing.conditions import Judge, runs
from derive.auditing.forward import Subject
from derive.auditing.gradients import Outcome, outcome, random_cotangents
from derive.auditing.points import by_size, classes, is_float, is_tensor, resized
from derive.auditing.structure import Structure, structure_of

# ----------------------------------------------------------------------------------- example inputs
# Prepare example inputs: modules, constants, and tensors stored on ctx.


def with_wide_modules(
    examples: Sequence[tuple[Any, ...]],
) -> tuple[list[tuple[Any, ...]], frozenset[int]]:
    """Replace modules by float64 copies, and their parameters among the arguments with them.

    Also returns the numbers of those parameter arguments.
    """
    made, owned = [], set()
    for example in examples:
        copies: dict[int, Any] = {}
        args = [_with_copies(arg, copies) for arg in example]
        for n, arg in enumerate(args):
            if is_float(arg) and id(arg) in copies:
                args[n] = copies[id(arg)]
                owned.add(n)
        made.append(tuple(args))
    return made, frozenset(owned)


def _with_copies(value: Any, copies: dict[int, Any]) -> Any:
    """Copy modules, also in lists, tuples and dicts, and those whose methods are given.

    ``copies`` has the copies of modules and of their parameters by the ids of the originals.
    """
    if type(value) in (list, tuple):
        return type(value)(_with_copies(part, copies) for part in value)
    if type(value) is dict:
        return {key: _with_copies(part, copies) for key, part in value.items()}
    if isinstance(value, MethodType) and isinstance(value.__self__, torch.nn.Module):
        return MethodType(value.__func__, _with_copies(value.__self__, copies))
    if not isinstance(value, torch.nn.Module):
        return value
    if id(value) not in copies:
        try:
            other = copy.deepcopy(value).double()
        except Exception:
            return value
        copies[id(value)] = other
        for old, new in zip(value.parameters(), other.parameters(), strict=True):
            copies[id(old)] = new
    return copies[id(value)]


def told_constants(examples: Sequence[tuple[Any, ...]], owned: frozenset[int]) -> set[int] | None:
    """Return the float arguments that require no gradient; None if no argument requires one.

    Parameters of modules are ignored, since they always require one.
    """
    apart = {n: a for n, a in enumerate(examples[0]) if is_float(a) and n not in owned}
    several = ((n, e[n]) for n in apart for e in examples if n < len(e))
    wanted = {n for n, a in several if is_float(a) and a.requires_grad}
    return {n for n in apart if n not in wanted} if wanted else None


def kept_on_ctx(
    context: Any, inputs: Sequence[Any], outputs: Sequence[Any], names: Sequence[str]
) -> list[str]:
    """Warn of inputs and outputs stored as attributes of ctx.

    save_for_backward would detect in-place changes of them.
    """
    found = []
    own = {"needs_input_grad", "saved_tensors", "dirty", "kept_for_forward", "left_out"}
    for key, value in vars(context).items():
        if key in own or not is_tensor(value):
            continue
        for what, several in (("input", inputs), ("output", outputs)):
            for n, tensor in enumerate(several):
                if value is tensor and is_float(tensor):
                    name = names[n] if what == "input" and n < len(names) else f"output {n}"
                    found.append(
                        f"{name} is kept as ctx.{key}: save_for_backward would notice that it is "
                        "changed in place" + (", and frees it" if what == "output" else "")
                    )
    return found


# ----------------------------------------------------------------------------------- example groups
# Group example calls by their flags, choices and integers.
#
# A gradient may be wrong in one group alone; then it is explained there.

_MOST = 40
"""Values with a longer repr are not printed."""


@dataclass(frozen=True)
class CallGroup:
    """One group of calls: the gradients in ``wrong`` are first wrong here."""

    structure: Structure
    outcomes: tuple[Outcome, ...]
    wrong: tuple[int, ...]
    condition: str
    """The arguments that distinguish this group; '' if every group has a wrong gradient."""

    @property
    def count(self) -> int:
        """The number of arguments of a call."""
        return len(self.outcomes[0].args)


def call_groups(
    structure: Structure,
    examples: Sequence[tuple[Any, ...]],
    names: Sequence[str],
    calls: Sequence[tuple[Outcome, Sequence[int]]],
    wrong: Sequence[int],
) -> Iterator[CallGroup]:
    """Yield the groups with a wrong gradient; ``calls`` has the wrong arguments of each call."""
    kinds = list(dict.fromkeys(_group_key(o.args) for o, _ in calls))
    bad = {_group_key(o.args) for o, ns in calls if ns}
    left = list(wrong)
    for kind in kinds:
        own = [(o, ns) for o, ns in calls if _group_key(o.args) == kind]
        here = [n for n in left if any(n in ns for _, ns in own)]
        if not here and (wrong or kind != kinds[0]):
            continue
        left = [n for n in left if n not in here]
        others = tuple(o for o, _ in calls if _group_key(o.args) != kind)
        mine = [e for e in examples if _group_key(e) == kind]
        is_first = _group_key(structure.args) == kind or not mine
        yield CallGroup(
            structure if is_first else structure_of(mine, structure.kept),
            tuple(o for o, _ in own),
            tuple(here),
            _group_condition(names, own[0][0].args, [o.args for o in others])
            if bad < set(kinds)
            else "",
        )


def _group_key(args: Sequence[Any]) -> tuple[Any, ...]:
    """Return the key of a group: the arguments other than tensors and floats."""
    return tuple(_hashable_argument(a) for a in args)


def _hashable_argument(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_hashable_argument, value))
    if value is None or isinstance(value, bool | int | str):
        return type(value).__name__, value
    return "tensor" if is_tensor(value) else type(value).__name__


def _group_condition(
    names: Sequence[str], args: Sequence[Any], others: Sequence[Sequence[Any]]
) -> str:
    """Describe the values that no other group has, as a condition."""
    told = [
        f"{name}={value!r}"
        for n, (name, value) in enumerate(zip(names, args, strict=False))
        if isinstance(value, bool | int | str | None)
        and len(repr(value)) < _MOST
        and all(
            len(o) <= n or _hashable_argument(o[n]) != _hashable_argument(value) for o in others
        )
    ]
    if not told and any(len(o) != len(args) for o in others):
        return f"with {len(args)} arguments"
    return f"where {' and '.join(told)}" if told else ""


# ------------------------------------------------------------------------------------------- shrink
# Find a small counterexample that one can paste and check by hand.

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
                cotangents = random_cotangents(subject, args, seed, whole)
                made = outcome(subject, args, cotangents, None, True)
            except Exception:
                break
            exact = bool(made.right[n].isfinite().all())
            if made.error or n not in made.wrong(subject.tolerance) or not exact:
                continue
            if not judge.is_kept(made, n, subject.tolerance) and judge.is_smooth(made, n):
                yield made


def _is_clearly_wrong(made: Outcome, n: int) -> bool:
    """True if the error is too large to look like rounding."""
    given, right = made.given.get(n), made.right[n]
    if given is None or given.shape != right.shape:
        return True
    return bool((given - right).abs().max() > _SEEN)


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
            kind = g.dtype if g.is_complex() else text
            lines.append(f"{name} = torch.tensor({_format_tensor(g, 9)}, dtype={kind})")
    is_operator = hasattr(subject.function, "_custom_operator")
    call = subject.name if is_operator else f"{subject.name}.apply"
    outputs = f"{call}({', '.join(called)})"
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
