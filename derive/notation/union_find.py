"""Union-find over letters and axes of equal size, with the known size of each class.

Keys are letters, and ``x@0`` for an axis of x.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from derive.algebra.expr import Call, Composite, Expr, Num, Size, inside_out, num, walk
from derive.algebra.substitution import replace
from derive.notation.shapes import composite_size, composition, factors, letters, places, shown
from derive.notation.syntax import SourcePlace, fail


class Classes:
    """Disjoint classes; the root of each is its first key, in order of insertion."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}
        self._order: dict[str, int] = {}
        self._members: dict[str, list[str]] = {}
        self._unordered: set[str] = set()

    def add(self, key: str) -> None:
        """Add a class of one key, if the key is new."""
        if key not in self._parent:
            self._parent[key] = key
            self._order[key] = len(self._order)
            self._members[key] = [key]

    def root(self, key: str) -> str:
        """Return the first key of its class."""
        parent = self._parent
        top = key
        while parent[top] != top:
            top = parent[top]
        while parent[key] != top:
            parent[key], key = top, parent[key]
        return top

    def union(self, a: str, b: str) -> tuple[str, str] | None:
        """Join two classes; return (kept root, removed root), or None if they are one."""
        a, b = sorted((self.root(a), self.root(b)), key=self.place)
        if a == b:
            return None
        self._parent[b] = a
        more = self._members.pop(b)
        if self.place(self._members[a][-1]) > self.place(more[0]) or b in self._unordered:
            self._unordered.add(a)
        self._members[a] += more
        return a, b

    def members(self, root: str) -> list[str]:
        """Return the keys of a class, in order of insertion."""
        if root in self._unordered:
            self._unordered.remove(root)
            self._members[root].sort(key=self.place)
        return self._members[root]

    def roots(self) -> list[str]:
        """Return the first keys of all classes, in order."""
        return list(self._members)

    def place(self, key: str) -> int:
        """Return the number of keys added before this one."""
        return self._order[key]


class SizeClasses(Classes):
    """Classes with sizes: ``given`` maps a root to a size that is not read from an axis."""

    def __init__(self) -> None:
        super().__init__()
        self.given: dict[str, Expr] = {}
        self.products: dict[str, Expr] = {}
        """The sizes of axes that are declared as composites, before they are given."""
        self._why: dict[str, str] = {}

    def join(self, a: str, b: str) -> None:
        """Give the two the same size."""
        joined = self.union(a, b)
        if joined is not None and joined[1] in self.given:
            self.set(joined[0], self.given.pop(joined[1]), None, self._why.pop(joined[1]))

    def set(self, key: str, size: Expr, at: SourcePlace | None, why: str) -> None:
        """Set the size of a class; ``why`` is its origin, for the error about two sizes."""
        root = self.root(key)
        size = self.canonical(size)
        known = self.given.setdefault(root, size)
        first = self._why.setdefault(root, why)
        if known is not size and not self.is_same(self.canonical(known), size):
            one, other = shown(known, self.display_name), shown(size, self.display_name)
            name = self.display_name(root)
            fail(
                at,
                "two-sizes",
                f"index {name} has two sizes: {one} ({first}) and {other} ({why})"
                f"{self.axes(root)}; rename one of the two indices, or read a part of the longer "
                f"axis at {name} + start, with a parameter start=0",
            )

    def is_same(self, a: Expr, b: Expr) -> bool:
        """True if both are equal after known sizes are substituted.

        The smallest of several sizes is another one if all of them are.
        """
        for one, other in ((a, b), (b, a)):
            if isinstance(one, Call) and one.function == "minimum":
                return all(self.is_same(part, other) for part in one.args)
        products: dict[Expr, Expr] = {
            Size(self.root(key)): size for key, size in self.products.items()
        }
        one, other = (self.expanded(replace(self.canonical(e), products.get)) for e in (a, b))
        return factors(one, self.given.get) == factors(other, self.given.get)

    def roots_in(self, size: Expr) -> list[str]:
        return [self.root(part.extent) for part in walk(size) if isinstance(part, Size)]

    def canonical(self, e: Expr) -> Expr:
        """Return e with one key for each class."""

        def root(part: Expr) -> Expr | None:
            return Size(self.root(part.extent)) if isinstance(part, Size) else None

        return replace(e, root)

    def expanded(self, e: Expr, *above: str) -> Expr:
        """Substitute known sizes in e, except those in ``above``, and except quotients.

        A part of an axis is a quotient of the axis, and the axis is the product of its parts.
        """

        def found(part: Expr) -> Expr | None:
            if isinstance(part, Call):
                return part
            root = self.root(part.extent) if isinstance(part, Size) else ""
            size = self.given.get(root)
            if size is None or root in above or isinstance(size, Call):
                return None
            return self.expanded(size, *above, root)

        return replace(self.canonical(e), found)

    def display_name(self, key: str) -> str:
        """Return a letter with this size, or the axis itself."""
        root = self.root(key)
        letters = (m for m in self.members(root) if "@" not in m and "#" not in m)
        return next(letters, root.partition("#")[0].replace("@", ""))

    def defined(self, root: str) -> str:
        """Return the size of a class and its origin, as a clause of a message."""
        size = shown(self.given[root], self.display_name)
        return f"size({self.display_name(root)}) is {size} {self._why.get(root, '')}".rstrip()

    def axes(self, root: str) -> str:
        """Return the axes with this size, as a clause of a message."""
        axes = [m for m in self.members(root) if "@" in m]
        return f", the size of {places(axes)}" if axes else ""


# -------------------------------------------------------------------------------------- cycle check
# Detect cyclic size definitions.
#
# An axis e that is read as (h e) would have both size(h)*size(e) and size(e) values, which is
# impossible unless size(h) is 1. A cycle may go through several axes: a = (b c) and b = (a d).
# An index whose given size is computed from the size of an axis is not unified with that axis: x[u]
# with size(u)=size(t)-1 reads a part of the axis t.


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
        "circular-size",
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
    sizes = {root: known.roots_in(size) for root, _, size, _ in own}
    found = _circle(sizes)
    if found is None:
        return
    names = {root: letter for root, letter, _, _ in reversed(own)}
    first, *others = (names[root] for root in found)
    through = f" through the size of {', '.join(others)}" if others else ""
    place = next(at for root, _, _, at in own if root == found[0])
    fail(
        place,
        "circular-size",
        f"the size of {first} depends on itself{through}; define one by other sizes, or read a "
        "part of an axis at an index + start, with a parameter start=0",
    )


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


def is_quotient(known: SizeClasses, key: str, composites: Iterable[Composite]) -> bool:
    """True if the key is a part of a composite whose other parts have given sizes."""
    for composite in composites:
        parts = [known.root(letter) for letter in letters(composite)]
        others = [part for part in parts if part != known.root(key)]
        if len(others) + 1 == len(parts) and all(part in known.given for part in others):
            return True
    return False


def is_made_of(known: SizeClasses, letter: str, key: str, sized: Mapping[str, Expr]) -> bool:
    """True if the given size of the index is computed from the size of that other axis."""
    axis, own = known.root(key), known.root(letter)
    by_root = {known.root(other): size for other, size in sized.items()}

    def parts(root: str) -> list[str]:
        return known.roots_in(by_root[root]) if root in by_root else []

    return axis != own and axis in inside_out([own], parts)


def leads_to(
    known: SizeClasses, size: Expr, own: str, read: Callable[[str], Collection[object]]
) -> bool:
    """True if a size depends on the size of ``own``, not through axes of inputs."""

    def parts(root: str) -> list[str]:
        open_ = root in known.given and not read(root)
        return known.roots_in(known.given[root]) if open_ else []

    return own in inside_out(known.roots_in(size), parts)


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
