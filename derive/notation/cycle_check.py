"""Detect cyclic size definitions.

An axis e that is read as (h e) would have both size(h)*size(e) and size(e) values, which is
impossible unless size(h) is 1. A cycle may go through several axes: a = (b c) and b = (a d).
An index whose given size is computed from the size of an axis is not unified with that axis: x[u]
with size(u)=size(t)-1 reads a part of the axis t.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from derive.algebra.expr import Composite, Expr, Num, Size, num, walk
from derive.notation.size_expressions import composite_size, composition, letters, places, shown
from derive.notation.syntax import SourcePlace, fail
from derive.notation.union_find import SizeClasses


def refuse_self_composites(
    known: SizeClasses, composites: Sequence[tuple[str, Composite, SourcePlace | None]]
) -> None:
    """Refuse an axis that is a composite of itself."""
    parts: dict[str, list[str]] = {}
    axes: dict[tuple[str, str], tuple[str, Composite, SourcePlace | None]] = {}
    for key, composite, at in composites:
        root = known.root(key)
        for part in _strict_parts([known.root(x) for x in letters(composite)], known.given.get):
            parts.setdefault(root, []).append(part)
            axes.setdefault((root, part), (key, composite, at))
    found = _circle(parts)
    if found is None:
        return
    said = []
    steps = [axes[pair] for pair in zip(found, [*found[1:], found[0]], strict=True)]
    for root, (key, composite, _) in zip(found, steps, strict=True):
        size = shown(composite_size(composite), known.display_name)
        axis = f"{places([key])} is {composition(composite)}"
        said.append(f"{axis}, and size({known.display_name(root)}) would be {size}")
    first = known.display_name(found[0])
    fail(
        steps[0][2],
        f"the size of {first} depends on itself: {'; '.join(said)}; read the "
        "composite with an index of its own",
    )


def refuse_cyclic_sizes(
    known: SizeClasses, definitions: Sequence[tuple[str, Expr, SourcePlace | None]]
) -> None:
    """Refuse a size that is defined by itself; size(j)=size(i) only unifies the two."""
    own = [
        (known.root(letter), letter, size, at)
        for letter, size, at in definitions
        if not (isinstance(size, Size) and known.root(size.extent) == known.root(letter))
    ]
    sizes = {
        root: [known.root(p.extent) for p in walk(size) if isinstance(p, Size)]
        for root, _, size, _ in own
    }
    found = _circle(sizes)
    if found is None:
        return
    names = {root: letter for root, letter, _, _ in reversed(own)}
    first, *others = (names[root] for root in found)
    through = f" through the size of {', '.join(others)}" if others else ""
    place = next(at for root, _, _, at in own if root == found[0])
    fail(place, f"the size of {first} depends on itself{through}; define one by other sizes")


def made_of_others(
    definitions: Sequence[tuple[str, Expr, SourcePlace | None]], fixed: Collection[str]
) -> dict[str, Expr]:
    """Return the indices whose given size is an expression in other sizes, aliases resolved."""
    given = {a: e for a, e, _ in definitions if a in fixed}

    def followed(e: Expr, seen: tuple[str, ...] = ()) -> Expr:
        if isinstance(e, Size) and e.extent in given and e.extent not in seen:
            return followed(given[e.extent], (*seen, e.extent))
        return e

    found = {a: followed(e) for a, e in given.items()}
    return {a: e for a, e in found.items() if not isinstance(e, Num | Size)}


def is_made_of(known: SizeClasses, letter: str, key: str, sized: Mapping[str, Expr]) -> bool:
    """True if the given size of the index is computed from the size of that other axis."""
    axis, own = known.root(key), known.root(letter)
    by_root = {known.root(other): size for other, size in sized.items()}
    pending, seen = [own], set[str]()
    while pending:
        size = by_root.get(pending.pop())
        parts = () if size is None else walk(size)
        roots = {known.root(p.extent) for p in parts if isinstance(p, Size)}
        pending += sorted(roots - seen, key=known.place)
        seen |= roots
    return axis != own and axis in seen


def leads_to(
    known: SizeClasses, size: Expr, own: str, read: Callable[[str], Collection[object]]
) -> bool:
    """True if a size depends on the size of ``own``, not through axes of inputs."""
    pending, seen = [size], set[str]()
    while pending:
        roots = {known.root(p.extent) for p in walk(pending.pop()) if isinstance(p, Size)}
        if own in roots:
            return True
        new = [r for r in sorted(roots - seen, key=known.place) if not read(r)]
        pending += [known.given[r] for r in new if r in known.given]
        seen |= roots
    return False


def _strict_parts(parts: Sequence[str], known: Callable[[str], Expr | None]) -> list[str]:
    """Return the parts that are strictly smaller than the composite: another part is not 1."""
    ones = [known(part) is num(1) for part in parts]
    return [part for n, part in enumerate(parts) if not all(ones[:n] + ones[n + 1 :])]


def _circle(edges: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Return a cycle of the graph, or None."""
    done: set[str] = set()
    for start in edges:
        path: list[str] = []
        pending: list[tuple[str, Iterator[str]]] = [(start, iter(edges.get(start, ())))]
        while pending:
            key, following = pending[-1]
            if len(path) < len(pending):
                path.append(key)
            step = next((k for k in following if k not in done), None)
            if step is None:
                done.add(key)
                pending.pop()
                path.pop()
            elif step in path:
                return path[path.index(step) :]
            else:
                pending.append((step, iter(edges.get(step, ()))))
    return None
