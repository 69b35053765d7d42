"""Shape checks of the public function: numbers of axes, groups and sizes agree.

An axis is known if another tensor, a parameter or a number determines its size. A tensor of known
axes alone is compared by its whole shape: ``bias.shape != weight.shape[:1]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, takewhile

from derive.algebra.expr import Call, Composite, Expr, Index, Num, Param, Size, walk
from derive.lowering.ground.runtime_sizes import ShapeSource, ShapeSources, axes_of
from derive.lowering.ground.value import Frame, NeedsFlatGroups, is_group
from derive.lowering.groups import groups_of
from derive.module.arguments import ArgumentCheck, checks_if_given, required_of, spelled_check
from derive.module.positions import Positions, input_frame, written
from derive.module.signature import Clauses, Rules, axis_notation, divisors
from derive.notation.operation import Extent, Operation, SizeOf, Tensor
from derive.notation.split import lettered
from derive.program.torch_ir import Attribute, Binary, Code, Name, Subscript, joined, text
from derive.program.torch_printer import broken

SHORT = 60
"""Maximum columns of a size inside a check and its message."""


@dataclass(frozen=True)
class _Piece:
    """What a known axis is compared with: axes of a tensor from start to stop, or a size."""

    tensor: Tensor | None = None
    start: int = 0
    stop: int = 0
    size: str = ""

    def followed_by(self, other: _Piece) -> bool:
        """True if the axes of both are neighbors."""
        return self.tensor is not None and (self.tensor, self.stop) == (other.tensor, other.start)


@dataclass(frozen=True)
class ShapeChecks:
    """The checks of shapes; each method's may rely on those of the methods above it."""

    op: Operation
    frame: Frame

    def ranks(self) -> list[ArgumentCheck]:
        """Return the checks of numbers of axes that no other tensor determines."""
        tests = (self._rank_test(t) for t in required_of(self.op) if not self._is_known(t))
        return [ArgumentCheck(test) for test, fixed in tests if test and fixed]

    def sizes(self) -> list[ArgumentCheck]:
        """Return the checks of the shapes of required tensors, after those of parameters."""
        unknown = (t for t in required_of(self.op) if not self._is_known(t))
        ranks = ((t, *self._rank_test(t)) for t in unknown)
        ranks = (rank for rank in ranks if rank[1] and not rank[2])
        found = [ArgumentCheck(test) for t, test, _ in ranks if not self._has_rank_by_shape(t)]
        found += (check for e in self._single for check in self._divisibility_checks(e))
        clauses = tuple(c for _, own in self._defined.values() for c in own)
        for t in required_of(self.op):
            tests = [self._shape_test(t)] if self._is_known(t) else self._part_tests(t)
            found += (ArgumentCheck(test, clauses) for test in tests)
        return found + [check for e in self._single for check in self._spelled_checks(e)]

    def of_optional(self, t: Tensor) -> list[ArgumentCheck]:
        """Return the checks of the shape of an optional tensor."""
        clauses = tuple(c for _, own in self._defined.values() for c in own)
        if all(self._pieces(t)) and t.axes:
            return [ArgumentCheck(self._shape_test(t), clauses)]
        test, _ = self._rank_test(t)
        return [ArgumentCheck(test, clauses) for test in [test, *self._part_tests(t)] if test]

    @property
    def _single(self) -> list[Extent]:
        return [e for e in self.op.extents if not e.group]

    @cached_property
    def _positions(self) -> Positions:
        return Positions(self.op, self.frame)

    @cached_property
    def _tensors(self) -> Mapping[str, Tensor]:
        return {t.name: t for t in self.op.inputs}

    @cached_property
    def _defined(self) -> Mapping[str, tuple[str, Clauses]]:
        """Extent -> (its size, clauses), for the axes whose size a signature defines."""
        rules, found = Rules(self.op), dict[str, tuple[str, Clauses]]()
        for extent in self._single:
            if extent.size is None or not extent.sources or divisors(self.op, extent.name):
                continue
            name, n = extent.sources[0]
            axis = self._tensors[name].axes[n]
            clauses = rules.definition_clauses(extent.name)
            if isinstance(axis, Composite):
                clauses = rules.composite_clauses(axis, extent)
            code = text(_size_by_definition(self.op, self.frame, extent.name))
            if clauses is not None and len(code) <= SHORT:
                found[extent.name] = code, clauses
        return found

    @cached_property
    def _read(self) -> set[str]:
        """The tensors whose axes the sizes of others read."""
        codes = [code for code, _ in self._defined.values()]
        codes += (check.test for e in self._single for check in self._divisibility_checks(e))
        return set(re.findall(r"(\w+)\.(?:shape|dim)", " ".join(codes)))

    def _is_known(self, t: Tensor) -> bool:
        """True if other tensors and sizes determine the whole shape, which nothing else reads."""
        return bool(t.axes) and all(self._pieces(t)) and t.name not in self._read

    def _pieces(self, t: Tensor) -> list[_Piece | None]:
        """Return what each axis is compared with; None if nothing else determines it.

        Neighbors are compared with one tensor if an earlier one has them all.
        """
        pieces = [self._piece(t, n) for n in range(len(t.axes))]
        earlier = takewhile(lambda other: other is not t, required_of(self.op))
        runs = [run for other in earlier for run in self._runs(t, other, pieces)]
        for start, run in sorted(runs, key=lambda found: -len(found[1])):
            stop = start + len(run)
            if len(_merged(pieces[start:stop])) > 1:
                pieces[start:stop] = run
        return pieces

    def _runs(
        self, t: Tensor, other: Tensor, pieces: Sequence[_Piece | None]
    ) -> Iterator[tuple[int, list[_Piece | None]]]:
        """Yield the longest runs of neighbors that both tensors have: where it starts, the run."""
        alike = {
            (n, k)
            for n, axis in enumerate(t.axes)
            for k, own in enumerate(other.axes)
            if (piece := pieces[n]) is not None and piece.tensor and _is_same_index(axis, own)
        }
        for n, k in sorted(alike):
            if (n - 1, k - 1) not in alike:
                size = next(m for m in count(1) if (n + m, k + m) not in alike)
                yield n, [_Piece(other, k + m, k + m + 1) for m in range(size)]

    def _has_rank_by_shape(self, t: Tensor) -> bool:
        """True if the first check of parts fails for any other number of axes.

        It compares a group and a single axis with those of another tensor.
        """
        pieces = self._pieces(t)
        first = [*takewhile(lambda piece: piece is not None, pieces)]
        axes = t.axes[: len(first)]
        both = {is_group(i) for i in axes} == {True, False}
        return t.name not in self._read and len(_merged(first)) == 1 and both

    def _piece(self, t: Tensor, n: int) -> _Piece | None:
        axis = t.axes[n]
        if is_group(axis):
            home = self._tensors[self._positions.home(axis)]
            k = next(k for k, i in enumerate(home.axes) if _same(i, axis))
            return None if (home.name, k) == (t.name, n) else _Piece(home, k, k + 1)
        extent = next((e for e in self._single if (t.name, n) in e.sources), None)
        if extent is None:
            return None
        if extent.name in self._defined:
            return _Piece(size=self._defined[extent.name][0])
        if extent.size is not None and not divisors(self.op, extent.name):
            return None
        # By the axis of a required tensor if there is one.
        name, k = min(extent.sources, key=lambda at: self._tensors[at[0]].default is not None)
        return None if (name, k) == (t.name, n) else _Piece(self._tensors[name], k, k + 1)

    def _rank_test(self, t: Tensor) -> tuple[str, bool]:
        """Return (test of the number of axes or "", whether it is known without another tensor)."""
        own = [i for i in groups_of(t) if self._positions.home(i) == t.name]
        rest = [i for i in t.axes if not (is_group(i) and i in own)]
        count = self._positions.count(rest)
        fixed = set(count) <= {""}
        if own and fixed and not count:
            return "", True
        return f"{t.name}.dim() {'<' if own else '!='} {written(count)}", fixed

    def _shape_test(self, t: Tensor) -> str:
        pieces = _merged(self._pieces(t))
        single = [self._is_single(p) for p in pieces]
        sizes = any(p.tensor is None for p in pieces)
        if sizes or (len(pieces) > 1 and all(single)):
            stars = ("" if one else "*" for one in single)
            items = [f"{star}{self._text(p)}" for star, p in zip(stars, pieces, strict=True)]
            return f"{t.name}.shape != ({', '.join(items)}{',' * (len(items) == 1)})"
        parts = (self._positions.part(p.tensor, p.start, p.stop) for p in pieces if p.tensor)
        return f"{t.name}.shape != {' + '.join(parts)}"

    def _part_tests(self, t: Tensor) -> list[str]:
        """Return the tests of the known axes, neighbors together."""
        tests: list[str] = []
        start, pieces = 0, self._pieces(t)
        while start < len(pieces):
            stop = start + 1
            while stop < len(pieces) and _follows(pieces[stop - 1], pieces[stop]):
                stop += 1
            if pieces[start] is not None:
                (piece,) = _merged(pieces[start:stop])
                tests.append(f"{self._text(_Piece(t, start, stop))} != {self._text(piece)}")
            start = stop
        return tests

    def _is_single(self, piece: _Piece) -> bool:
        """True if a piece is the size of one axis."""
        if piece.tensor is None:
            return True
        axis = piece.tensor.axes[piece.start]
        return piece.stop - piece.start == 1 and not is_group(axis)

    def _text(self, piece: _Piece) -> str:
        if piece.tensor is None:
            return piece.size
        if self._is_single(piece):
            return self._positions.item(piece.tensor, piece.start)
        return self._positions.part(piece.tensor, piece.start, piece.stop)

    def _divisibility_checks(self, extent: Extent) -> list[ArgumentCheck]:
        """Return the checks that the divisors of an extent are nonzero and divide its size."""
        found = divisors(self.op, extent.name)
        if not found:
            return []
        sizes = {e.name: e.size for e in self.op.extents}
        shapes = shapes_from(self.op, input_frame(self.op, self.frame), required_of(self.op))
        places = _axis_places(self.op, self.frame, extent)
        result: list[ArgumentCheck] = []
        for part, parts in found:
            code = joined("*", map(shapes.size, parts))
            if places:
                name, place, axis = places[0]
                whole: Code = _shape_item(name, place)
                what = f"axis {_position_in_message(place)}{axis} of {name}"
            else:
                whole, what = shapes.size(extent.name), self._named(extent)
            known = [sizes[part] for part in parts]
            words = "*".join(
                size.name if isinstance(size, Param) else f"size({part})"
                for size, part in zip(known, parts, strict=True)
            )
            test = f"{text(Binary('%', whole, code))} != 0"
            if not all(isinstance(size, Num | Param) for size in known):
                test = f"{text(code)} == 0 or {test}"
            clauses = Rules(self.op).quotient_clauses(extent.name, part, parts) if places else None
            check = ArgumentCheck(test, clauses or ())
            if clauses is None:
                fact = f"{what} has size {{{text(whole)}}}"
                wanted = f"which is not divisible by {words} = {{{text(code)}}}"
                check = spelled_check(self.op, test, f"{fact}, {wanted}")
            result += checks_if_given(self._tensors[places[0][0]], [check]) if places else [check]
        return result

    def _named(self, extent: Extent) -> str:
        """Return what a message calls an extent: its index, or the axis of an equation."""
        if extent.name in lettered(self.op) or extent.size is None:
            return f"index {extent.name}"
        return f"axis ({' '.join(s.extent for s in walk(extent.size) if isinstance(s, Size))})"

    def _spelled_checks(self, extent: Extent) -> list[ArgumentCheck]:
        """Return the checks of a size that no signature defines; these have their own message."""
        if extent.size is None or extent.name in self._defined or divisors(self.op, extent.name):
            return []
        if not extent.sources:
            return _not_negative(self.op, self.frame, extent.name, extent.size)
        return _defined_size_checks(self.op, self.frame, extent)


def _same(axis: Expr, group: Index) -> bool:
    return is_group(axis) and axis.extent == group.extent


def _is_same_index(axis: Expr, other: Expr) -> bool:
    """True if both axes are read by an index over one extent, or over one group."""
    if not isinstance(axis, Index) or not isinstance(other, Index):
        return False
    return (axis.extent, axis.group) == (other.extent, other.group)


def _follows(one: _Piece | None, two: _Piece | None) -> bool:
    return one is not None and two is not None and one.followed_by(two)


def _merged(pieces: Iterable[_Piece | None]) -> list[_Piece]:
    """Return the pieces, neighbors as one."""
    found: list[_Piece] = []
    for piece in pieces:
        assert piece is not None
        if found and found[-1].followed_by(piece):
            found[-1] = replace(found[-1], stop=piece.stop)
        else:
            found.append(piece)
    return found


def shapes_from(op: Operation, frame: Frame, tensors: Sequence[Tensor]) -> ShapeSources:
    sources = [
        ShapeSource(t.name, Attribute(Name(t.name), "shape"), axes_of(op, t)) for t in tensors
    ]
    return ShapeSources({e.name: e for e in op.extents}, frame, sources)


def _axis_places(op: Operation, frame: Frame, extent: Extent) -> list[tuple[str, Code, str]]:
    """Return (tensor, position, axis text if composite) for each axis with this extent."""
    tensors = {t.name: t for t in op.inputs}
    places: list[tuple[str, Code, str]] = []
    for name, n in sorted(extent.sources, key=lambda place: tensors[place[0]].default is not None):
        axis = tensors[name].axes[n]
        words = f" {axis_notation(axis)}" if isinstance(axis, Composite) else ""
        try:
            places.append((name, frame.position(axes_of(op, tensors[name]), n), words))
        except NeedsFlatGroups:
            # The shape of the whole tensor is compared instead.
            continue
    return places


def _defined_size_checks(op: Operation, frame: Frame, extent: Extent) -> list[ArgumentCheck]:
    """Return the checks that each axis has its defined size."""
    prepare, size = _sized(op, frame, extent.name)
    want = size if size.isdigit() else f"{{{size}}}"
    reason = f"but must have size {want}"
    result: list[ArgumentCheck] = []
    tensors = {t.name: t for t in op.inputs}
    for name, place, words in _axis_places(op, frame, extent):
        code = text(_shape_item(name, place))
        axis = f"axis {_position_in_message(place)}{words} of {name}"
        message = f"{axis} has size {{{code}}}, {reason}"
        check = spelled_check(op, f"{code} != {size}", message, prepare=prepare)
        result += checks_if_given(tensors[name], [check])
        prepare = ()
    return result


def _not_negative(op: Operation, frame: Frame, name: str, definition: Expr) -> list[ArgumentCheck]:
    """Return the check of an index size that no axis has, if the size may be negative.

    It is negative if it subtracts too much or adds a negative parameter.
    """
    sizes = {p.name for p in op.parameters if isinstance(p, SizeOf)}
    parts = list(walk(definition))
    signed = any(isinstance(e, Param) and e.name not in sizes for e in parts)
    if not signed and not any(isinstance(e, Num) and e.value < 0 for e in parts):
        return []
    prepare, size = _sized(op, frame, name)
    read = {e.extent for e in parts if isinstance(e, Size)}
    said = []
    for e in (e for e in op.extents if e.name in read):
        for t, place, words in _axis_places(op, frame, e)[:1]:
            axis = f"axis {_position_in_message(place)}{words} of {t}"
            said.append(f"{axis} has size {{{text(_shape_item(t, place))}}}")
    numbers = (p for p in op.parameters if isinstance(p, SizeOf) and p.extent in read)
    said += [f"{p.name} is {{{p.name}}}" for p in numbers]
    reason = ": " * bool(said) + " and ".join(said)
    message = f"no value of index {name} keeps every access in bounds{reason}"
    certain = not (prepare or signed or "-" in size)
    check = spelled_check(op, f"{size} < 0", message, prepare=prepare)
    return [] if certain else [check]


def _sized(op: Operation, frame: Frame, extent: str) -> tuple[tuple[str, ...], str]:
    """Return the lines that compute a size too long for a check, and its name."""
    code = _size_by_definition(op, frame, extent)
    if len(text(code)) <= SHORT:
        return (), text(code)
    # No input or parameter has this name in the code.
    return tuple(broken("size = ", code, indent=4)), "size"


def _size_by_definition(op: Operation, frame: Frame, extent: str) -> Code:
    """Return the size of an extent by its definition, without reading its own axes.

    They are read for a size in the definition that these axes themselves limit.
    """
    extents = {e.name: e for e in op.extents}
    given = extents[extent].size
    assert given is not None
    parts = [extents[p.extent].size for p in walk(given) if isinstance(p, Size)]
    limited = any(
        isinstance(p, Call) and p.function == "minimum" and Size(extent) in walk(p) for p in parts
    )
    sources = []
    for t in required_of(op):
        own = {} if limited else {extent}
        axes = tuple(None if i and i.extent in own else i for i in axes_of(op, t))
        sources.append(ShapeSource(t.name, Attribute(Name(t.name), "shape"), axes))
    shapes = ShapeSources(extents, input_frame(op, frame), sources)
    return shapes.number(given) if limited else shapes.size(extent)


def _position_in_message(code: Code) -> str:
    """Return a position for a message: a literal number, else its value in braces."""
    words = text(code)
    return words if words.lstrip("-").isdigit() else f"{{{words}}}"


def _shape_item(name: str, place: Code) -> Code:
    return Subscript(Attribute(Name(name), "shape"), (place,))
