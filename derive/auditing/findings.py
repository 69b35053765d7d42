"""The findings of an audit, by level and argument without duplicates, and how far off each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from derive.auditing.gradients import Outcome, near

_EXACT = 1e-6
WRONG, FRAGILE, REMARK = "wrong", "fragile", "remark"


@dataclass(frozen=True)
class AuditFinding:
    """One finding: about a gradient, or about the call as a whole (``n`` None)."""

    n: int | None
    text: str
    level: str = WRONG


ByLevel = dict[str, dict[int | None, list[str]]]
"""The texts of findings by level and argument."""


def by_level(found: Sequence[AuditFinding], constant: dict[int, str]) -> ByLevel:
    """Group the findings, each kind once: a second subset, layout or scale is dropped."""
    levels: ByLevel = {WRONG: {}, FRAGILE: {}, REMARK: {}}
    met: set[tuple[int | None, str, str]] = set()
    for f in found:
        if f.n in constant:
            continue
        kind = f.text.split(":")[0].split("(")[0]
        kind = "subset" if "where only" in kind else "layout" if "contiguous" in kind else kind
        kind = "scale" if "times as" in kind else kind
        if (f.n, f.level, kind) in met:
            continue
        met.add((f.n, f.level, kind))
        levels[f.level].setdefault(f.n, []).append(f.text)
    return levels


SECOND_ORDER = {
    "constant": (
        "the second backward is silently 0: the gradients are constants for autograd; mark "
        "backward with torch.autograd.function.once_differentiable, or derive it"
    ),
    "nan": "the second backward has nan or inf where that of the forward is finite",
    "wrong": (
        "the second backward is silently wrong: autograd takes for constants what forward "
        "computed and saved, or what backward rounds; mark backward with "
        "torch.autograd.function.once_differentiable, or compute it from the inputs"
    ),
}
"""The remarks on a second backward."""


def by_how_much(made: Outcome, n: int) -> str:
    """Describe the error of a gradient: its largest difference, a wrong shape, or nan."""
    given, right = made.given.get(n), made.right[n]
    if given is None:
        return ": there is none"
    if given.shape != right.shape:
        return f": it has the shape {list(given.shape)}, not {list(right.shape)}"
    if not bool(given.isfinite().all()):
        kind = "nan" if bool(given.isnan().any()) else "inf"
        return f": it has {kind} where autograd's is finite"
    square = float(right.double().square().sum())
    ratio = float((given.double() * right.double()).sum()) / square if square else 0.0
    if right.numel() > 1 and ratio and near(given, ratio * right, _EXACT):
        return f": it is {ratio:.4g} times what it should be"
    far = (given.double() - right.double()).nan_to_num(0).abs().max()
    largest = right.nan_to_num(0).abs().max()
    return f": it is off by {float(far):.3g}, where the largest is {float(largest):.3g}"
