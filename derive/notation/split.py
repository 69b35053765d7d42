"""Split composite axes: rewrite an operation to one index per axis.

A composite axis (t d) becomes two axes, t and d. An index k over the whole axis, with
size(t)*size(d) values, becomes t, d as positions and t*size(d) + d as a number. An axis of size 1
disappears.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain

from derive.algebra.expr import (
    Access,
    Add,
    Call,
    Composite,
    Expr,
    Guard,
    Index,
    Mul,
    Num,
    Reduce,
    Size,
    accesses,
    num,
    walk,
)
from derive.algebra.reductions import POSITIONS
from derive.algebra.substitution import fresh, replace_inside_out
from derive.errors import LoweringError
from derive.notation.operation import AxisOf, Equation, Extent, KeepDim, Operation, declared_axes
from derive.notation.ranges import ordered
from derive.notation.shapes import factors
from derive.notation.smart_constructors import product, total

Parts = Mapping[str, tuple[str, ...]]


def is_plain(op: Operation) -> bool:
    """True if each axis is a single index and is read by a single index."""
    axes = [t.axes for t in op.inputs] + [e.axes for e in op.equations]
    plain = all(isinstance(i, Index) for own in axes for i in own)
    return plain and not any(isinstance(e, Composite) for x in op.equations for e in walk(x.body))


@dataclass(frozen=True)
class Inside:
    """The rewritten operation, with one index for each axis."""

    operation: Operation
    axes: Mapping[str, tuple[tuple[Index, ...], ...]]
    """The new indices of each original axis."""


def split_axes(op: Operation) -> Inside:
    """Return the operation with one index or one group for each axis."""
    return _Split(op).inside()


@lru_cache(maxsize=32)
def composites(op: Operation) -> dict[str, list[tuple[str, ...]]]:
    """Return extent of an axis -> tuples of part extents by which it is composed anywhere."""
    read = {source: e.name for e in op.extents for source in e.sources}
    sizes = {e.name: e.size for e in op.extents}
    inputs = {t.name: t.axes for t in op.inputs}
    axes = {e.name: e.axes for e in op.equations}
    found: dict[str, list[tuple[str, ...]]] = {}

    def note(extent: str | None, composite: Expr) -> None:
        if extent is None or not isinstance(composite, Composite):
            return
        parts = tuple(p.extent for p in composite.args if isinstance(p, Index))
        if len(parts) == len(composite.args) and parts not in found.setdefault(extent, []):
            found[extent].append(parts)

    every = [a for e in op.equations for a in accesses(e.body)]
    for access in every:
        for position, axis in zip(access.positions, axes.get(access.tensor, ()), strict=False):
            if isinstance(position, Index):
                note(position.extent, axis)
    for access in every:
        owner = (inputs | axes)[access.tensor]
        for n, (position, axis) in enumerate(zip(access.positions, owner, strict=True)):
            own = axis.extent if isinstance(axis, Index) else read.get((access.tensor, n))
            note(own, position)
    for (tensor, n), extent in read.items():
        axis = inputs[tensor][n]
        here = [a.positions[n] for a in every if a.tensor == tensor]
        if isinstance(axis, Composite):
            computed = [in_parts(p, axis, sizes) for p in here if not isinstance(p, Index)]
            if computed and all(isinstance(p, Composite) for p in computed):
                note(extent, axis)
    return found


def composed(op: Operation) -> dict[str, list[tuple[str, ...]]]:
    """Return extent -> part extents, also where only the sizes tell of the composite.

    A piece of a concat reads the parts of its composites apart. An axis (t c) of an equation has
    no index, but a size, which a read at (k m) divides.
    """
    found = {extent: [*forms] for extent, forms in composites(op).items()}
    sizes = {e.name: e.size for e in op.extents}
    for part, size in sizes.items():
        match size:
            case Call("floordiv", (Size(whole), below)) if isinstance(own := sizes[whole], Mul):
                parts = tuple(p.extent for p in own.args if isinstance(p, Size))
                found.setdefault(whole, [parts])
                if whole not in lettered(op):
                    others = below.args if isinstance(below, Mul) else (below,)
                    read = (*(p.extent for p in others if isinstance(p, Size)), part)
                    found[whole].append(read)
    return found


@lru_cache(maxsize=32)
def lettered(op: Operation) -> frozenset[str]:
    """Return the extents that an index has."""
    axes = chain(*(t.axes for t in op.inputs), *(e.axes for e in op.equations))
    inside = chain(*map(walk, [*axes, *(e.body for e in op.equations)]))
    return frozenset(i.extent for i in inside if isinstance(i, Index))


def in_parts(position: Expr, axis: Composite, sizes: Mapping[str, Expr | None]) -> Expr:
    """Return 0*size(d) + d on an axis (t d) as (0 d), if each part is an index or a constant.

    ``sizes`` has the known sizes of extents.
    """
    parts = [p.extent for p in axis.args if isinstance(p, Index)]
    exact = None if isinstance(position, Composite) else _exact_digits(position, parts, sizes)
    if exact is None or len(parts) < 2:
        return position
    for digit, part in zip(exact, parts, strict=True):
        size = sizes.get(part)
        if isinstance(digit, Num):
            if not isinstance(size, Num) or not 0 <= digit.value < size.value:
                return position
        elif not (isinstance(digit, Index) and digit.extent == part):
            return position
    return Composite(tuple(exact))


def splits(op: Operation) -> dict[str, tuple[str, ...]]:
    """Return extent -> part extents for each extent that is split.

    These are the extents of axes that are a composite in one place and have a single index in
    another. An axis that is never read by its parts stays whole.
    """
    sizes = {e.name: e.size for e in op.extents}
    found: dict[str, tuple[str, ...]] = {}
    for extent, forms in composites(op).items():
        size = sizes.get(extent)
        for parts in forms:
            whole = product(map(Size, parts))
            same = size is not None and factors(size, sizes.get) == factors(whole, sizes.get)
            # A nested part may be the axis itself, if all other parts have size 1.
            if same and all(extent not in _leaves(part, found) for part in parts):
                found.setdefault(extent, parts)
    return {extent: tuple(_leaves(extent, found)) for extent in found}


def _leaves(extent: str, found: Parts) -> Iterator[str]:
    for part in found.get(extent, (extent,)):
        yield from (part,) if part == extent else _leaves(part, found)


@dataclass
class _Split:
    """The rewriting of one operation."""

    op: Operation
    parts: Parts = field(init=False)

    def __post_init__(self) -> None:
        self.parts = splits(self.op)
        self.owners = declared_axes(self.op)
        self.extents = {e.name: e for e in self.op.extents}
        self.inputs = {t.name for t in self.op.inputs}
        self.read = {source: e.name for e in self.op.extents for source in e.sources}

    def inside(self) -> Inside:
        op = self.op
        axes = {t.name: _SplitBody(self, t.axes).inputs(t.name, t.axes) for t in op.inputs}
        inputs = tuple(replace(t, axes=tuple(chain(*axes[t.name]))) for t in op.inputs)
        axes |= {e.name: _SplitBody(self, (*e.axes, e.body)).axes(e.axes) for e in op.equations}
        equations = tuple(map(self._equation, op.equations))
        extents = []
        for extent in op.extents:
            sources = tuple(
                (t.name, n)
                for t in inputs
                for n, i in enumerate(t.axes)
                if isinstance(i, Index) and i.extent == extent.name
            )
            size = extent.size if not sources or isinstance(extent.size, Num) else None
            extents.append(Extent(extent.name, extent.group, sources, size))
        parameters = tuple(p for p in op.parameters if not isinstance(p, AxisOf | KeepDim))
        parts = (inputs, parameters, equations, op.outputs, tuple(ordered(extents)))
        return Inside(Operation.resolved(op.name, *parts, stable=op.stable), axes)

    def _equation(self, e: Equation) -> Equation:
        body = _SplitBody(self, (*e.axes, e.body))
        try:
            return replace(e, axes=tuple(chain(*body.axes(e.axes))), body=body.value(e.body))
        except LoweringError as error:
            line = f", on line {e.line}" if e.line else ""
            text = f"{self.op.name}: {error.text}\nin {e.name}{line}"
            raise LoweringError(text, kind=error.kind) from None


class _SplitBody:
    """Splits one equation, or the axes of one input; each split index has names for its parts."""

    def __init__(self, split: _Split, expressions: Iterable[Expr]) -> None:
        self.split = split
        self.sizes = {name: extent.size for name, extent in split.extents.items()}
        indices = [i for e in expressions for i in walk(e) if isinstance(i, Index)]
        taken = list(dict.fromkeys(indices))
        self.values: dict[Expr, Expr] = {}
        self.names: dict[Index, tuple[Index, ...]] = {}
        for i in list(taken):
            made = []
            for extent in split.parts.get(i.extent, ()):
                part = Index(extent, extent, split.extents[extent].group)
                made.append(fresh(part, taken))
                taken.append(made[-1])
            if made:
                self.names[i] = tuple(made)

    # axes

    def axes(self, axes: Sequence[Expr]) -> tuple[tuple[Index, ...], ...]:
        """Return the new indices of each axis of an equation."""
        result: list[tuple[Index, ...]] = []
        for axis in axes:
            if isinstance(axis, Index | Composite):
                result.append(tuple(self.whole(axis)))
            elif isinstance(axis, Num):
                result.append(())
            else:
                raise LoweringError(f"an axis is given by {axis!r}, not by indices")
        return tuple(result)

    def inputs(self, tensor: str, axes: Sequence[Expr]) -> tuple[tuple[Index, ...], ...]:
        """Return the same for an input; a composite axis never read by its parts stays whole."""
        result: list[tuple[Index, ...]] = []
        taken = [i for i in axes if isinstance(i, Index)]
        for n, axis in enumerate(axes):
            extent = self.split.read.get((tensor, n))
            if isinstance(axis, Composite) and extent is not None:
                if extent not in self.split.parts:
                    axis = fresh(Index(extent, extent), taken)
                    taken.append(axis)
            result += self.axes((axis,))
        return tuple(result)

    def whole(self, e: Expr) -> list[Index]:
        """Return the new indices of an index or of a composite."""
        if isinstance(e, Index):
            return list(self.names.get(e, (e,)))
        assert isinstance(e, Composite)
        return [i for part in e.args if isinstance(part, Index) for i in self.whole(part)]

    # expressions

    def value(self, e: Expr) -> Expr:
        """Rewrite e as a number or a condition."""
        if e not in self.values:
            self.values[e] = self._value(e)
        return self.values[e]

    def _value(self, e: Expr) -> Expr:
        match e:
            case Index():
                return self._number(self.whole(e))
            case Access(tensor, positions):
                made: list[Expr] = []
                for n, position in enumerate(positions):
                    made += self._position(e, n, position)
                return Access(tensor, tuple(made))
            case Reduce(kind, indices, body, condition):
                condition = None if condition is None else self.value(condition)
                every = tuple(i for index in indices for i in self.whole(index))
                return Reduce(kind, every, self.value(body), condition)
        mapped: Expr = e.map(self.value)
        return mapped

    def _number(self, parts: Sequence[Index]) -> Expr:
        """Return t*size(d) + d for the two indices t and d."""
        if len(parts) == 1:
            return parts[0]
        sizes = [Size(p.extent) for p in parts]
        return total(product((part, *sizes[n + 1 :])) for n, part in enumerate(parts))

    def _position(self, access: Access, n: int, position: Expr) -> list[Expr]:
        """Return the new positions for one position on an original axis."""
        axis = self.split.owners[access.tensor][n]
        if isinstance(axis, Num):
            return []
        if isinstance(position, Index) and position.group:
            return [position]
        extent = axis.extent if isinstance(axis, Index) else self.split.read.get((access.tensor, n))
        leaves = [] if extent is None else [extent]
        if extent is None and isinstance(axis, Composite):
            leaves = [p.extent for p in axis.args if isinstance(p, Index)]
        return self._digits(position, [x for p in leaves for x in self.split.parts.get(p, (p,))])

    def _digits(self, position: Expr, parts: Sequence[str]) -> list[Expr]:
        """Return the positions on axes ``parts`` for one position on their composite."""
        if isinstance(position, Guard):
            condition = self.value(position.condition)
            digits = self._digits(position.position, parts)
            if len(parts) == 1:
                return [Guard(condition, digits[0])]
            # An index of the axis is always in range and needs no guard.
            return [
                d if isinstance(d, Index) and d.extent == part else Guard(condition, d)
                for d, part in zip(digits, parts, strict=True)
            ]
        if isinstance(position, Index | Composite):
            indices = self.whole(position)
            if [i.extent for i in indices] == list(parts):
                return list(indices)
            if len(parts) == 1:
                group = next((i.name for i in indices if i.group), None)
                if group is not None and len(indices) > 1:
                    raise LoweringError(
                        f"a composite with the group *{group} is read on an axis that has other "
                        "parts; read the axis with one index"
                    )
                return [self._number(indices)]
        if len(parts) == 1:
            return [self.value(position)]
        exact = _exact_digits(position, parts, self.sizes, self.whole)
        if exact is not None:
            pairs = zip(exact, parts, strict=True)
            return [digit for d, part in pairs for digit in self._digits(d, (part,))]
        is_composite = isinstance(position, Composite)
        rest = self._number(self.whole(position)) if is_composite else self.value(position)
        result: list[Expr] = []
        for part in reversed(parts[1:]):
            above = Call("floordiv", (rest, Size(part)))
            result.insert(0, total((rest, product((num(-1), Size(part), above)))))
            rest = above
        return [rest, *result]


def _exact_digits(
    position: Expr,
    parts: Sequence[str],
    sizes: Mapping[str, Expr | None],
    whole: Callable[[Index], Sequence[Index]] = lambda i: (i,),
) -> list[Expr] | None:
    """Split a*size(b) + b to (a, b), if b is certainly in [0, size(b)); else return None.

    ``whole`` returns the parts of an index.
    """
    *front, last = parts
    if not front:
        return [position]
    if isinstance(position, Index):
        indices = whole(position)
        if [i.extent for i in indices] == list(parts):
            return list(indices)
    above: list[Expr] = []
    below: list[Expr] = []
    for term in position.args if isinstance(position, Add) else (position,):
        multiplied = list(term.args) if isinstance(term, Mul) else [term]
        if Size(last) in multiplied:
            multiplied.remove(Size(last))
            above.append(product(multiplied))
        else:
            below.append(term)
    digit: Expr = below[0] if len(below) == 1 else num(0)
    if len(below) > 1:
        return None
    if isinstance(digit, Num):
        size = sizes.get(last)
        base = int(size.value) if isinstance(size, Num) else 0
        if digit.value != 0:
            if not base or digit.value < 0:
                return None
            above.append(num(int(digit.value) // base))
            digit = num(int(digit.value) % base)
    elif not (isinstance(digit, Index) and digit.extent == last):
        return None
    rest = _exact_digits(total(above) if above else num(0), front, sizes, whole)
    return None if rest is None else [*rest, digit]


# ------------------------------------------------------------------------------------ original axes
# Translate formulas with one index per axis back to the user's axes.
#
# If C has the axes ``[(t d), 0]``, then ``C[t, d]`` becomes ``C[(t d), 0]``. It becomes ``C[k, 0]``
# if t and d occur only side by side and the operation has the letter k for both.

Given = tuple[tuple[Expr, int], ...]
"""Each of the user's axes, and the number of indices that it became."""


def given_axes(op: Operation) -> dict[str, Given]:
    """Return the user's axes of each input and equation."""
    inside = split_axes(op).axes
    axes = declared_axes(op)
    return {
        name: tuple((a, len(inner)) for a, inner in zip(axes[name], inside[name], strict=True))
        for name in axes
    }


def letters_of(op: Operation) -> dict[tuple[str, ...], Index]:
    """Return extents of adjacent indices -> the user's single index for all of them."""
    written = [i for e in op.equations for i in walk(e.body) if isinstance(i, Index)]
    written += [i for e in op.equations for i in e.axes if isinstance(i, Index)]
    found: dict[tuple[str, ...], Index] = {}
    for extent, parts in splits(op).items():
        index = next((i for i in written if i.extent == extent and "'" not in i.name), None)
        if index is not None:
            found.setdefault(parts, index)
    return found


def alike(op: Operation) -> dict[tuple[str, bool], tuple[str, ...]]:
    """Return the user's letters of each extent and of groups of it, in order."""
    trees = [*(a for t in op.inputs for a in t.axes), *(a for e in op.equations for a in e.axes)]
    trees += [e.body for e in op.equations]
    found: dict[tuple[str, bool], dict[str, None]] = {}
    for i in (i for tree in trees for i in walk(tree) if isinstance(i, Index)):
        if i.name.isalpha():
            found.setdefault((i.extent, i.group), {})[i.name] = None
    return {key: tuple(letters) for key, letters in found.items()}


def as_given(op: Operation, e: Expr) -> Expr:
    """Return the right side with the constant parts of composite axes in the user's notation.

    Internally, they are positions on the whole axis.
    """
    axes = declared_axes(op)
    sizes = {extent.name: extent.size for extent in op.extents}

    def written(part: Expr) -> Expr:
        if not isinstance(part, Access):
            return part
        pairs = zip(part.positions, axes[part.tensor], strict=True)
        return Access(part.tensor, tuple(_in_blocks(p, axis, sizes) for p, axis in pairs))

    return replace_inside_out(e, written)


def _in_blocks(position: Expr, axis: Expr, sizes: Mapping[str, Expr | None]) -> Expr:
    """Write n*size(e) + e as (n e), also on an axis that is not known to have these parts."""
    position = in_parts(position, axis, sizes) if isinstance(axis, Composite) else position
    if not isinstance(position, Add) or len(position.args) != 2:
        return position
    if isinstance(axis, Composite) and len(axis.args) != 2:
        return position
    first, e = position.args
    scale = first.args if isinstance(first, Mul) else (num(1), first)
    if isinstance(e, Index) and len(scale) == 2 and scale[1] is Size(e.extent):
        return Composite((scale[0], e)) if isinstance(scale[0], Num) else position
    return position


def on_given_axes(e: Expr, owners: Mapping[str, Given]) -> Expr:
    """Return e with each tensor read on the user's axes."""

    def given(part: Expr) -> Expr:
        if not isinstance(part, Access) or part.tensor not in owners:
            return part
        left = iter(part.positions)
        on_axes = (_on_axis(axis, n, left) for axis, n in owners[part.tensor])
        return Access(part.tensor, tuple(on_axes))

    return replace_inside_out(e, given)


def _on_axis(axis: Expr, n: int, positions: Iterator[Expr]) -> Expr:
    if isinstance(axis, Num):
        return axis
    parts = tuple(next(positions) for _ in range(n))
    return parts[0] if n == 1 else Composite(parts)


def with_letters(
    expressions: Sequence[Expr], letters: Mapping[tuple[str, ...], Index]
) -> tuple[Expr, ...]:
    """Replace indices that occur only side by side by the single index for them."""
    if not letters:
        return tuple(expressions)
    every = [e for expression in expressions for e in walk(expression)]
    taken = [e for e in every if isinstance(e, Index)]
    whole: dict[Expr, Index] = {}
    for e in dict.fromkeys(e for e in every if isinstance(e, Composite)):
        parts = [i for i in e.args if isinstance(i, Index)]
        letter = letters.get(tuple(i.extent for i in parts))
        if letter is None or len(set(parts)) < len(e.args):
            continue
        if all(i not in expressions and _only_within(i, e, every) for i in parts):
            whole[e] = fresh(letter, taken)
            taken.append(whole[e])
    return tuple(_composites_replaced(e, whole) for e in expressions)


def _only_within(index: Index, composite: Composite, every: Sequence[Expr]) -> bool:
    """True if the index occurs only in this composite, or is bound with its other parts."""
    count: Counter[bool] = Counter()
    for e in every:
        own = sum(part is index for part in e.parts())
        if isinstance(e, Reduce) and index in e.indices:
            order = e.kind in POSITIONS
            if order or not set(composite.args) <= set(e.indices):
                return False
            own -= 1
        count[e is composite] += own
    return not count[False]


def _composites_replaced(e: Expr, whole: Mapping[Expr, Index]) -> Expr:
    if e in whole:
        return whole[e]
    mapped: Expr = e.map(lambda part: _composites_replaced(part, whole))
    if isinstance(mapped, Reduce):
        indices = list(mapped.indices)
        for composite, index in whole.items():
            if set(composite.parts()) <= set(indices):
                first = min(indices.index(part) for part in composite.parts())
                indices[first] = index
                indices = [i for i in indices if i not in set(composite.parts())]
        return Reduce(mapped.kind, tuple(indices), mapped.body, mapped.condition)
    return mapped
