"""Group findings by level and argument, without duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from derive.auditing.conditions import FRAGILE, REMARK, WRONG, AuditFinding


@dataclass
class FindingsByLevel:
    """The texts of findings by level and argument."""

    wrong: dict[int | None, list[str]]
    fragile: dict[int | None, list[str]]
    remarks: dict[int | None, list[str]]


def by_level(found: Sequence[AuditFinding], constant: dict[int, str]) -> FindingsByLevel:
    """Group the findings, each kind once: a second subset, layout or scale is dropped."""
    levels: dict[str, dict[int | None, list[str]]] = {WRONG: {}, FRAGILE: {}, REMARK: {}}
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
    return FindingsByLevel(levels[WRONG], levels[FRAGILE], levels[REMARK])


def remarks_on_second_order(second: str) -> list[str]:
    if second == "constant":
        return [
            "the second backward is silently 0: the gradients are constants for autograd; mark "
            "backward with torch.autograd.function.once_differentiable, or derive it"
        ]
    if second == "nan":
        return ["the second backward has nan or inf where that of the forward is finite"]
    if second == "wrong":
        return [
            "the second backward is silently wrong: autograd takes for constants what forward "
            "computed and saved, and what backward rounds; mark backward with "
            "torch.autograd.function.once_differentiable, or compute it from the inputs"
        ]
    return []
