"""Solve for sizes: which indices share an extent, and where each size is read.

A letter that is a whole position is unified with its axis. A letter in affine positions takes the
largest range from 0 that keeps them in bounds: for x[s*t + d*k] on an axis of n values, t has
floor((n - 1 - d*(size(k) - 1))/s) + 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from derive.algebra.affine import Affine, Polynomial, affine
from derive.algebra.expr import Call, Composite, Expr, Index, Num, Size, num, walk
from derive.algebra.substitution import replace
from derive.notation import union_find
from derive.notation.operation import Extent
from derive.notation.ranges import AffineReading, Readings, SizeBound, bound, ordered, smallest
from derive.notation.shapes import (
    Shapes,
    atoms,
    compared_letters,
    composite_size,
    composition,
    factors,
    letters,
    pinned,
    places,
    shown,
)
from derive.notation.smart_constructors import product
from derive.notation.symbols import Declared
from derive.notation.syntax import AccessSite, SourcePlace, fail
from derive.notation.union_find import SizeClasses


@dataclass
class SizeSolver:
    """Solves for the extents of one operation. Keys are letters, and ``x@0`` for an axis of x."""

    declared: Declared
    shapes: Shapes
    readings: Sequence[AccessSite]
    comparisons: Sequence[tuple[Expr, Expr]]
    definitions: Sequence[tuple[str, Expr, SourcePlace | None]]
    _known: SizeClasses = field(default_factory=SizeClasses)
    _names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for letter in self.declared.letters:
            self._known.add(letter)
        for tensor, axes in self.shapes.axes.items():
            for n in range(len(axes)):
                self._known.add(f"{tensor}@{n}")
        for a, b in self.declared.written.same:
            self._known.join(a, b)
        self.compared: dict[str, str] = {}
        """Letters with the sizes of letters that they are compared with."""
        self._ones: set[str] = set()
        self._guarded: list[tuple[str, str]] = []
        """Indices with the axes that they read under a condition."""
        self._quotients: set[str] = set()
        """Letters whose size is the quotient of an axis by its other parts."""
        self._composites: list[tuple[str, Composite, SourcePlace | None]] = []
        given = pinned(self.declared, self.shapes, [letter for letter, *_ in self.definitions])
        derived = Readings(self.declared, self.shapes, self.readings).derived(given)
        self._unify(derived)
        self._give(given)
        self._unify_guarded(derived)
        self._solve(derived)
        self._name()

    # what is known

    def _unify(self, derived: dict[str, list[AffineReading]]) -> None:
        d = self.declared
        for tensor in (*d.tensors, *d.equations):
            for n, axis in enumerate(self.shapes.declared.get(tensor, ())):
                key = f"{tensor}@{n}"
                if isinstance(axis, Index):
                    self._known.join(axis.extent, key)
                elif isinstance(axis, Composite):
                    at = d.equations[tensor].at if tensor in d.equations else d.tensors[tensor].at
                    self._composites.append((key, axis, at))
                    self._known.products[key] = composite_size(axis)
                elif axis is num(0):
                    self._ones.add(key)
        sized = union_find.made_of_others(self.definitions, d.fixed)
        apart: list[tuple[str, str]] = []
        for reading in self.readings:
            for n, position in enumerate(reading.positions):
                key = f"{reading.tensor}@{n}"
                if isinstance(position, Composite):
                    if len(letters(position)) == len(position.args):
                        self._composites.append((key, position, reading.at))
                elif isinstance(position, Index):
                    letter = position.extent
                    if reading.guarded and (letter in sized or letter not in derived):
                        self._guarded.append((letter, key))
                    elif letter in sized:
                        apart.append((letter, key))
                    elif letter not in derived:
                        self._known.join(letter, key)
                    elif not reading.guarded:
                        alone = Affine({position: Polynomial.of(1)}, Polynomial({}))
                        derived[letter].append(AffineReading(alone, key, (letter,), reading))
        for letter, key in (a for a in apart if not union_find.is_made_of(self._known, *a, sized)):
            self._known.join(letter, key)

    def _unify_guarded(self, derived: Mapping[str, Sequence[AffineReading]]) -> None:
        """Unify an index with an axis that it reads under a condition, if both may have one size.

        The index may also run past the end of a shorter axis, where the condition does not hold.
        """
        sized = union_find.made_of_others(self.definitions, self.declared.fixed)
        elsewhere = {self._known.root(letter) for letter in derived}
        composites = {key: composite_size(c) for key, c, _ in self._composites}
        for letter, key in self._guarded:
            if letter in sized and self._known.root(key) in elsewhere:
                continue
            pair = (letter, key), (key, letter)
            if any(union_find.is_made_of(self._known, a, b, sized) for a, b in pair):
                continue
            own, axis = (self._known.given.get(self._known.root(x)) for x in (letter, key))
            axis = composites.get(key, axis)
            if axis is None:
                wholes = [c for whole, c, _ in self._composites if self._sized(whole)]
                apart = own is not None and union_find.is_quotient(self._known, key, wholes)
            else:
                apart = own is not None and not self._known.is_same(own, axis)
            if not apart:
                self._known.join(letter, key)

    def _give(self, pinned: Mapping[str, Expr | None]) -> None:
        for letter, size in pinned.items():
            if size is not None:
                why = f"by {shown(size, self._known.display_name)}=size({letter})"
                self._known.set(letter, size, self.declared.letters[letter].at, why)
        for key in sorted(self._ones, key=self._known.place):
            self._known.set(key, num(1), None, f"{places([key])}, which is 0 on the left")
        for letter, size, at in self.definitions:
            fixed = letter in self.declared.fixed
            if isinstance(size, Size) and fixed:
                self._known.join(letter, size.extent)
            else:
                why = f"by size({letter})=..." if fixed else "joined by concat"
                self._known.set(letter, size, at, why)

    def _sized(self, key: str, always: bool = False) -> bool:
        """True if a size or an input gives this size; ``always`` leaves out what may be None."""
        root = self._known.root(key)
        inputs = [n for n, t in self.declared.tensors.items() if not always or t.default is None]
        read = (key.rpartition("@")[0] in inputs for key in self._known.members(root))
        return root in self._known.given or any(read)

    def _sources(self, root: str) -> list[tuple[str, int]]:
        keys = (key.partition("@") for key in self._known.members(root))
        return [
            (tensor, int(n)) for tensor, at, n in keys if at and tensor in self.declared.tensors
        ]

    # solving

    def _solve(self, derived: dict[str, list[AffineReading]]) -> None:
        waiting = dict(derived)
        ways = self._solve_composite, self._solve_derived, self._solve_compared
        while any(solve(waiting) for solve in ways):
            pass
        self._no_circles()
        whole = [c for c in self._composites if all(map(self._sized, letters(c[1])))]
        for key, composite, _ in whole:
            self._of_its_parts(key, composite)
        for key, composite, at in whole:
            self._compose(key, composite, at)
        for name in self.declared.letters:
            if not self._sized(name):
                self._unsized(name)
        self._known_already()
        for root, size in self._known.given.items():
            if not self._sources(root) or isinstance(size, Call | Size):
                self._acyclic(root, [root])
        for letter, _, at in self.definitions:
            own = self._known.root(letter)
            found = self._known.given.get(own)
            if found and any(part is Size(own) for part in walk(self._known.canonical(found))):
                fail(
                    at,
                    "two-sizes",
                    f"index {letter} has two sizes, its own and the total of the joined parts; "
                    "declare the arguments of concat with other indices",
                )

    def _known_already(self) -> None:
        """Drop a size that refers to its own axis.

        Joining a slice of an axis and its remainder yields the axis itself.
        """
        for letter, _, at in self.definitions:
            own = self._known.root(letter)
            size = self._known.given.get(own)
            if size is None or Size(own) in walk(size):
                continue
            size = self._known.expanded(size, own)
            if not self._sources(own) or Size(own) not in walk(size):
                continue
            found = affine(size)
            if found is None or found.constant != Polynomial.of(Size(own)):
                show = self._known.display_name
                first, mend = "the joined size", "declare the parts with other indices"
                if letter in self.declared.fixed:
                    first, mend = "it", "leave it out"
                fail(
                    at,
                    "circular-size",
                    f"the size of {show(own)} depends on itself: {first} is {shown(size, show)}; "
                    f"{mend}",
                )
            del self._known.given[own]

    def _no_circles(self) -> None:
        """Refuse an axis composed of itself, and a size given by itself."""
        union_find.refuse_self_composites(self._known, self._composites)
        fixed = [entry for entry in self.definitions if entry[0] in self.declared.fixed]
        union_find.refuse_cyclic_sizes(self._known, fixed)

    def _of_its_parts(self, key: str, composite: Composite) -> None:
        """Define the size of a part that is a composite itself by its parts, not as a quotient.

        The axis that contains it is checked against the product.
        """
        root = self._known.root(key)
        size = self._known.canonical(composite_size(composite))
        left = root in map(self._known.root, self._quotients) and not self._sources(root)
        if left and len(letters(composite)) == len(composite.args):
            if not union_find.leads_to(self._known, size, root, self._sources):
                self._known.given[root] = size

    def _compose(self, key: str, composite: Composite, at: SourcePlace | None) -> None:
        """Define the size of an axis as the product of its parts, or check it."""
        root = self._known.root(key)
        size = self._known.canonical(composite_size(composite))
        known = self._known.given.get(root)
        if known is None:
            if Size(root) not in walk(size):
                self._known.given[root] = size
            return
        parts = [self._known.given.get(self._known.root(x)) for x in letters(composite)]
        quotient = any(
            isinstance(p, Call) and Size(root) in walk(self._known.canonical(p)) for p in parts
        )
        if len(parts) < len(composite.args) or quotient:
            return
        known = self._known.expanded(known, root)
        size = self._known.expanded(size, root)
        if factors(known, self._known.given.get) != factors(size, self._known.given.get):
            tensor, _, n = key.partition("@")
            one, other = (shown(e, self._known.display_name) for e in (known, size))
            fail(
                at,
                "two-sizes",
                f"index {self._known.display_name(root)} has two sizes: {one} and, on axis {n} of "
                f"{tensor}, {other}; read a composite of other parts with its own index",
            )

    def _unsized(self, name: str) -> None:
        letter = self.declared.letters[name]
        shown = name.partition("#")[0]
        if letter.group:
            message = f"group *{shown} is on no axis of an input, so its shape is unknown"
            fail(letter.at, "unknown-size", message)
        fail(
            letter.at,
            "unknown-size",
            f"index {shown} has no size: it is not a whole axis of any input; declare it "
            f"{self.declared.how.axes}, or give {self.declared.how.size(shown)}",
        )

    def _acyclic(self, root: str, path: list[str]) -> None:
        for part in walk(self._known.canonical(self._known.given[root])):
            if isinstance(part, Size):
                inner = self._known.root(part.extent)
                if inner in path:
                    circle = path[path.index(inner) :]
                    fail(
                        self._read_of(circle),
                        "circular-size",
                        f"the size of {self._known.display_name(inner)} depends on itself: "
                        f"{'; '.join(map(self._known.defined, circle))}; declare the index "
                        f"{self.declared.how.axes}",
                    )
                if inner in self._known.given and not self._sources(inner):
                    self._acyclic(inner, [*path, inner])

    def _read_of(self, circle: Sequence[str]) -> SourcePlace | None:
        """Return the composite that gives one of these sizes as a quotient, else its letter."""
        divided = {root for root in map(self._known.root, self._quotients) if root in circle}
        for _, composite, at in self._composites:
            if at is not None and not divided.isdisjoint(map(self._known.root, letters(composite))):
                return at
        return next((self.declared.letters[x].at for x in circle if "@" not in x), None)

    def _solve_derived(self, waiting: dict[str, list[AffineReading]]) -> bool:
        for letter, found in waiting.items():
            own = self._known.root(letter)
            needed = {r.axis for r in found} | {s.extent for r in found for s in atoms(r.position)}
            if not all(self._sized(key) for key in needed if self._known.root(key) != own):
                continue
            bounds: list[SizeBound] = []
            for reading in found:
                position, axis = reading.position, self._known.root(reading.axis)
                alone = len(position.coefficients) == 1 and not position.constant.terms
                if alone and axis == own:
                    continue
                where = f"axis {reading.axis.rpartition('@')[2]} of {reading.reading.tensor}"
                at = reading.reading.at
                bounds += bound(position, own, axis, self._known.root, at, where)
            del waiting[letter]
            size = smallest(bounds)
            if size is None:
                return True
            if isinstance(size, Size):
                self._known.join(letter, size.extent)
            else:
                axes = places([r.axis for r in found])
                self._known.set(letter, size, self.declared.letters[letter].at, f"from {axes}")
            return True
        return False

    def _solve_composite(self, waiting: dict[str, list[AffineReading]]) -> bool:
        """Solve a composite axis for the size of its only unsized part, or for its own size."""
        for key, composite, _ in self._composites:
            parts = letters(composite)
            unsized = [x for x in parts if not self._sized(x)]
            if not self._sized(key):
                if not unsized:
                    why = f"as {composition(composite)}"
                    self._known.set(key, composite_size(composite), None, why)
                    return True
                continue
            read = bool(self._sources(self._known.root(key)))
            unsized = [x for x in parts if not self._sized(x, always=read)]
            if len(unsized) == 1 and parts.count(unsized[0]) == 1:
                others = [x for x in parts if x != unsized[0]]
                if len(parts) == len(composite.args):
                    waiting.pop(unsized[0], None)
                    if not others:
                        self._known.join(unsized[0], key)
                    else:
                        rest = product(Size(x) for x in others)
                        size = Call("floordiv", (Size(key), rest))
                        self._known.set(unsized[0], size, None, f"from {places([key])}")
                        self._quotients.add(unsized[0])
                    return True
        return False

    def _solve_compared(self, waiting: Mapping[str, object]) -> bool:
        """Give a letter on no axis the size of the letter that it is compared with."""
        for sides in self.comparisons:
            letters = dict.fromkeys(x for side in sides for x in compared_letters(side))
            unsized = [x for x in letters if not self._sized(x)]
            sized = [x for x in letters if self._sized(x)]
            if len(unsized) == len(sized) == 1 and unsized[0] not in waiting:
                self._known.join(unsized[0], sized[0])
                self.compared[unsized[0]] = sized[0]
                return True
        return False

    # names

    def _name(self) -> None:
        d = self.declared
        taken = {*d.letters, *d.tensors, *d.equations, *d.parameters}
        for root in self._known.roots():
            members = self._known.members(root)
            letters = [m for m in members if m in d.letters and d.letters[m].own]
            if letters:
                self._names[root] = letters[0]
                continue
            tensor, _, n = next((m for m in members if "@" in m), members[0]).partition("@")
            name = f"{tensor.partition('#')[0]}{n}"
            while name in taken:
                name += "_"
            taken.add(name)
            self._names[root] = name

    def letter(self, letter: str) -> str:
        """Return the extent of a letter."""
        return self._names[self._known.root(letter)]

    def axis(self, tensor: str, n: int) -> str:
        """Return the extent of an axis."""
        return self._names[self._known.root(f"{tensor}@{n}")]

    def same(self, letter: str, tensor: str, n: int) -> bool:
        """True if the axis has the size of the letter."""
        return self._known.root(letter) == self._known.root(f"{tensor}@{n}")

    def number(self, extent: str) -> int | None:
        """Return the size of an extent if it is a number, else None."""
        roots = (root for root, name in self._names.items() if name == extent)
        found = map(self._known.given.get, roots)
        return next((int(size.value) for size in found if isinstance(size, Num)), None)

    def parts(self, tensor: str, n: int) -> tuple[Expr, ...]:
        """Return the parts of an axis, as any tensor with that axis has them, else ()."""
        root = self._known.root(f"{tensor}@{n}")
        own = (c for key, c, _ in self._composites if self._known.root(key) == root)
        return next((c.args for c in own), ())

    def named(self, e: Expr) -> Expr:
        """Replace letters by extents, and the size of an axis without a letter by its number."""

        def extent(part: Expr) -> Expr | None:
            match part:
                case Index(name, letter, group):
                    return Index(name, self.letter(letter), group)
                case Size(key):
                    root = self._known.root(key)
                    name, size = self._names[root], self._known.given.get(root)
                    known = isinstance(size, Num) and name not in self.declared.letters
                    return size if known else Size(name)
            return None

        return replace(e, extent)

    def extents(self) -> tuple[Extent, ...]:
        """Return all extents: those read from axes, in order, then the others by dependency."""
        d = self.declared
        result = []
        order = {name: n for n, name in enumerate(d.tensors)}
        for root in self._known.roots():
            sources = tuple(self._sources(root))
            size = self._known.given.get(root)
            group = any(m in d.letters and d.letters[m].group for m in self._known.members(root))
            if sources or size is not None:
                named = None if size is None else self.named(self._known.canonical(size))
                result.append(Extent(self._names[root], group, sources, named))
        result.sort(key=lambda e: min([(0, order[t], n) for t, n in e.sources], default=(1, 0, 0)))
        return tuple(ordered(result))
