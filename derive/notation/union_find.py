"""Union-find over letters and axes of equal size, with the known size of each class.

Keys are letters, and ``x@0`` for an axis of x.
"""

from __future__ import annotations

from derive.algebra.expr import Call, Expr, Size
from derive.algebra.substitution import replace
from derive.notation.size_expressions import factors, places, shown
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
        if known is not size and not self._is_same(self.canonical(known), size):
            one, other = shown(known, self.display_name), shown(size, self.display_name)
            name = self.display_name(root)
            fail(
                at,
                f"index {name} has two sizes: {one} ({first}) and {other} ({why})"
                f"{self.axes(root)}; rename one of the two indices",
            )

    def _is_same(self, a: Expr, b: Expr) -> bool:
        """True if both are equal after known sizes are substituted."""
        one, other = self.expanded(a), self.expanded(b)
        return factors(one, self.given.get) == factors(other, self.given.get)

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

    def axes(self, root: str) -> str:
        """Return the axes with this size, as a clause of a message."""
        axes = [m for m in self.members(root) if "@" in m]
        return f", the size of {places(axes)}" if axes else ""
