"""The common structure of example inputs, and other inputs that preserve it.

Axes that are equally long in every example form a class, and are resized together. A class keeps
its relations to others (twice as long, one less, a product), its parity, and stays short if it is.
A tensor keeps its kind: symmetric, one-hot, sorted, positive .. Rows are sampled jointly, and
integers remain valid positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import torch

from derive.auditing.points import (
    Point,
    cast,
    is_float,
    is_integer,
    is_plain,
    is_strided,
    is_tensor,
    permutes,
)

Sizes = tuple[int, ...]
"""The sizes of an axis in all examples, which name its class."""
Path = tuple[Any, ...]
"""The path to a tensor: the argument number, then keys of lists, tuples and dicts."""

_SHORT = 4
"""Axes up to this size, such as quaternion components, may be indexed by constants."""
_PARTS = 12
"""Rows are searched for a part of a kind up to this size."""
_EXACT = 1e-5


def tensors_in(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the tensors of an argument, also in lists, tuples and dicts."""
    if is_tensor(value):
        if is_strided(value) and (is_float(value) or is_plain(value)):
            yield path, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from tensors_in(part, (*path, key))
    elif isinstance(value, list | tuple):
        for key, part in enumerate(value):
            yield from tensors_in(part, (*path, key))


def rebuilt(value: Any, made: Mapping[Path, Any], path: Path = ()) -> Any:
    """Return the arguments with some tensors replaced."""
    if path in made:
        return made[path]
    if isinstance(value, Mapping) and type(value) is dict:
        return {key: rebuilt(part, made, (*path, key)) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(rebuilt(part, made, (*path, key)) for key, part in enumerate(value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(rebuilt(part, made, (*path, key)) for key, part in enumerate(value)))
    return value


def whole_numbers(value: Any) -> Iterator[int]:
    """Yield the integers among the arguments: many are sizes or divisors of one."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from whole_numbers(part)


@dataclass(frozen=True)
class Kind:
    """A kind of float tensor; ``keep`` projects perturbed values back onto it.

    ``tangent`` projects a gradient onto the tangent space: two gradients with equal projections
    differ only in directions that leave the kind. None if every direction stays in the kind.
    """

    name: str
    keep: Callable[[Any], Any]
    tangent: Callable[[Any, Any], Any] | None = None
    closed: bool = False
    """True if the gradient itself has to lie in the tangent space, as for a triangular matrix."""
    moves: bool = True
    """True if values may be perturbed."""
    exact: Callable[[Any], Any] | None = None
    """The nearest values of the kind in float64; None if ``keep`` gives them."""


def kind_of(tensors: Sequence[Any]) -> Kind | None:
    """Return the most specific kind that all tensors have.

    Equal elements, as those of ``torch.ones``, do not say that values are whole numbers.
    """
    double = [t.detach().double() for t in tensors if t.numel()]
    if not double:
        return None
    varies = any(bool((t != t.reshape(-1)[0]).any()) for t in double)
    kinds = (own for own in _KINDS if varies or own[1].moves)
    found = next((kind for test, kind in kinds if all(test(t) for t in double)), None)
    return found or _kind_of_part(double)


def _kind_of_part(tensors: Sequence[Any]) -> Kind | None:
    """Return the kind of rows of which a part has length 1, as a pose has a unit quaternion."""
    size = min(t.shape[-1] if t.ndim else 0 for t in tensors)
    for length, start in product(range(2, min(size, _PARTS)), range(min(size, _PARTS))):
        if start + length > size or not all(_is_unit(_part(t, start, length)) for t in tensors):
            continue

        def keep(t: Any, at: tuple[int, int] = (start, length)) -> Any:
            new, part = t.clone(), _part(t, *at)
            _part(new, *at).copy_(part / part.norm(dim=-1, keepdim=True))
            return new

        def tangent(g: Any, t: Any, at: tuple[int, int] = (start, length)) -> Any:
            new, part, along = g.clone(), _part(t, *at), _part(g, *at)
            _part(new, *at).sub_(part * (along * part).sum(-1, keepdim=True))
            return new

        return Kind("rows of which a part has length 1", keep, tangent)
    return None


def _part(t: Any, start: int, length: int) -> Any:
    return t[..., start : start + length]


def _square(t: Any) -> bool:
    return bool(t.ndim >= 2 and t.shape[-1] == t.shape[-2] > 1)


def _nearly_equal(a: Any, b: Any) -> bool:
    return bool((a - b).abs().max() <= _EXACT * max(1.0, float(b.abs().max())))


def _eye(t: Any) -> Any:
    return torch.eye(t.shape[-1], dtype=t.dtype, device=t.device).expand(t.shape)


def _is_orthogonal(t: Any) -> bool:
    return _square(t) and _nearly_equal(t @ t.mT, _eye(t))


def _is_positive_definite(t: Any) -> bool:
    return _is_symmetric(t) and bool((torch.linalg.eigvalsh(t) > 0).all())


def _is_symmetric(t: Any) -> bool:
    return _square(t) and _nearly_equal(t, t.mT) and not _nearly_equal(t * (1 - _eye(t)), t * 0)


def _is_lower(t: Any) -> bool:
    return _square(t) and not bool(t.triu(1).any()) and bool(t.tril(-1).any())


def _is_upper(t: Any) -> bool:
    return _square(t) and not bool(t.tril(-1).any()) and bool(t.triu(1).any())


def _is_one_hot(t: Any) -> bool:
    return t.ndim > 0 and t.shape[-1] > 1 and _is_binary(t) and bool((t.sum(-1) == 1).all())


def _is_binary(t: Any) -> bool:
    return bool(((t == 0) | (t == 1)).all()) and t.numel() > 1 and bool(t.any())


def _is_whole(t: Any) -> bool:
    return bool((t == t.round()).all()) and bool(t.any()) and t.ndim > 0


def _is_stochastic(t: Any) -> bool:
    return (
        t.ndim > 0
        and t.shape[-1] > 1
        and bool((t >= 0).all())
        and _nearly_equal(t.sum(-1), t.sum(-1) * 0 + 1)
    )


def _is_unit(t: Any) -> bool:
    return t.ndim > 0 and t.shape[-1] > 1 and _nearly_equal(t.norm(dim=-1), t.norm(dim=-1) * 0 + 1)


def _is_sorted(t: Any) -> bool:
    return t.ndim > 0 and t.shape[-1] > 3 and bool((t[..., 1:] >= t[..., :-1]).all())


def _is_in_unit_interval(t: Any) -> bool:
    return bool(((t >= 0) & (t <= 1)).all()) and t.numel() > 1


def _nearest_orthogonal(t: Any) -> Any:
    q, r = torch.linalg.qr(t)
    return q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)


def _made_definite(t: Any) -> Any:
    t = (t + t.mT) / 2
    least = torch.linalg.eigvalsh(t).amin(-1)[..., None, None]
    usual = t.diagonal(dim1=-2, dim2=-1).abs().mean(-1)[..., None, None]
    return t + torch.clamp(0.2 * usual - least, min=0) * _eye(t)


def _hot(t: Any) -> Any:
    return torch.nn.functional.one_hot(t.argmax(-1), t.shape[-1]).to(t.dtype)


def _unchanged_tensor(t: Any) -> Any:
    return t


def _repeating(name: str, sizes: tuple[int, int]) -> tuple[Callable[[Any], bool], Kind]:
    """Return a kind whose last axis has each element twice, as the tables of rotary positions."""
    copies = sizes.index(2) - 2

    def is_repeating(t: Any) -> bool:
        if not t.ndim or t.shape[-1] % 2 or t.shape[-1] < 4:
            return False
        first, second = t.unflatten(-1, sizes).unbind(copies)
        return bool((first == second).all()) and bool((first != first.mean()).any())

    def repeated(t: Any) -> Any:
        parts = t.unflatten(-1, sizes)
        return parts.narrow(copies, 0, 1).expand(parts.shape).flatten(-2)

    def summed(g: Any, t: Any) -> Any:
        parts = g.unflatten(-1, sizes)
        return parts.sum(copies, keepdim=True).expand(parts.shape).flatten(-2)

    return is_repeating, Kind(name, repeated, summed)


_KINDS: tuple[tuple[Callable[[Any], bool], Kind], ...] = (
    (_is_one_hot, Kind("one-hot", _hot, moves=False)),
    (_is_binary, Kind("0 and 1", _unchanged_tensor, moves=False)),
    (_is_whole, Kind("whole numbers", _unchanged_tensor, moves=False)),
    (
        _is_orthogonal,
        Kind("orthogonal", _nearest_orthogonal, lambda g, t: t.mT @ g - (t.mT @ g).mT),
    ),
    (
        _is_positive_definite,
        Kind(
            "positive definite",
            _made_definite,
            lambda g, t: g + g.mT,
            exact=lambda t: (t + t.mT) / 2,
        ),
    ),
    (_is_symmetric, Kind("symmetric", lambda t: (t + t.mT) / 2, lambda g, t: g + g.mT)),
    (_is_lower, Kind("lower triangular", lambda t: t.tril(), lambda g, t: g.tril(), True)),
    (_is_upper, Kind("upper triangular", lambda t: t.triu(), lambda g, t: g.triu(), True)),
    _repeating("equal halves", (2, -1)),
    _repeating("equal pairs", (-1, 2)),
    (
        _is_stochastic,
        Kind(
            "rows that sum to 1",
            lambda t: t / t.sum(-1, keepdim=True),
            lambda g, t: g - g.mean(-1, keepdim=True),
        ),
    ),
    (
        _is_unit,
        Kind(
            "rows of length 1",
            lambda t: t / t.norm(dim=-1, keepdim=True),
            lambda g, t: g - t * (g * t).sum(-1, keepdim=True),
        ),
    ),
    (_is_sorted, Kind("sorted", lambda t: t.sort(-1).values)),
    (_is_in_unit_interval, Kind("between 0 and 1", lambda t: t.clamp(0, 1))),
    (lambda t: bool((t > 0).all()), Kind("positive", _unchanged_tensor)),
)


_OF_ANY_ORDER = {
    *("one-hot", "0 and 1", "whole numbers", "orthogonal", "positive definite", "symmetric"),
    *("rows that sum to 1", "rows of length 1", "between 0 and 1", "positive"),
}
"""The kinds that remain if the positions of an axis change places."""


@dataclass(frozen=True)
class Structure:
    """The common structure of all examples; new inputs are derived from the first one."""

    args: tuple[Any, ...]
    classes: Mapping[tuple[Path, int], Sizes]
    """Maps (path, axis) to the class of the axis."""
    kinds: Mapping[Path, Kind]
    fixed: frozenset[Sizes]
    """The classes whose size must not change."""
    factors: Mapping[Sizes, int]
    """The divisor of each class, which new sizes keep."""
    kept: frozenset[Path]
    """The tensors that are never changed: parameters of module arguments."""

    @property
    def sizes(self) -> dict[Sizes, int]:
        """The size of every class in the first example."""
        return {c: c[0] for c in dict.fromkeys(self.classes.values()) if c[0] > 1}

    def step(self, c: Sizes) -> int:
        """Return the divisor that new sizes keep: an integer argument, 2 if even, or 1."""
        factor = self.factors.get(c, 1)
        return 2 if factor == 1 and all(s % 2 == 0 for s in c) else factor

    def lengthened(self) -> Iterator[dict[Sizes, int]]:
        """Yield the sizes with one class of short axes, which stay as they are else, longer."""
        for c, size in self.sizes.items():
            if size <= _SHORT and c not in self.fixed:
                yield {**self.sizes, c: size + self.step(c)}

    def varied(self, turn: int) -> dict[Sizes, int]:
        """Return other sizes with the same structure, alternately larger and smaller."""
        new: dict[Sizes, int] = {}
        order = sorted(self.sizes, key=lambda c: (c[0], c))
        for at, c in enumerate(order):
            new[c] = self._varied(c, new, (-1) ** (turn + at * (turn // 2)), turn)
        return new

    def _varied(self, c: Sizes, new: Mapping[Sizes, int], sign: int, turn: int) -> int:
        size = c[0]
        varies = len(set(c)) > 1
        if c in self.fixed:
            return size
        for d in sorted(new, key=lambda d: -d[0]):
            if d in self.fixed or new[d] == d[0]:
                continue
            ratio = size // d[0]
            if ratio > 1 and all(a == ratio * b for a, b in zip(c, d, strict=True)):
                return ratio * new[d]
            step = size - d[0]
            if step == 1 and all(a == b + 1 for a, b in zip(c, d, strict=True)):
                return new[d] + 1
        for d, e in combinations_with_replacement([d for d in new if d[0] > 1], 2):
            if all(a == b * k for a, b, k in zip(c, d, e, strict=True)):
                return new[d] * new[e]
        if size <= _SHORT and not varies:
            return size
        factor = self.step(c)
        made = size + sign * factor * (1 + turn // 4)
        return made if made > 1 and made >= factor else size + factor

    def resized(self, sizes: Mapping[Sizes, int], seed: int) -> tuple[Any, ...]:
        """Return float64 arguments of these sizes, with perturbed elements of the first example."""
        random = torch.Generator().manual_seed(seed)
        made: dict[Path, Any] = {}
        for path, old in tensors_in(self.args):
            if path in self.kept:
                continue
            new = old.detach().cpu()
            for axis in range(old.ndim):
                size = sizes.get(self.classes[path, axis], old.shape[axis])
                if size != old.shape[axis] and old.shape[axis] > 1:
                    new = new.index_select(axis, torch.arange(size) % old.shape[axis])
            if is_float(old):
                new = self.moved(path, new, random, bool(seed % 2))
            elif is_integer(new):
                new = self._positions(old.detach().cpu(), new, sizes)
            made[path] = new.to(old.device)
        self._ordered(made, random)
        return tuple(rebuilt(self.args, made))

    def reordered(self, order: Callable[[int, Any], Any]) -> tuple[Any, ...] | None:
        """Return the first example with the positions of each class in the order of its size.

        None if the order of a tensor means something: it is sorted, triangular, or has copies.
        """
        random = torch.Generator().manual_seed(0)
        orders = {c: order(size, random) for c, size in self.sizes.items()}
        made: dict[Path, Any] = {}
        for path, old in tensors_in(self.args):
            kind = self.kinds.get(path)
            ordered = kind is not None and kind.name not in _OF_ANY_ORDER
            ascends = is_integer(old) and old.ndim and bool((old[..., 1:] >= old[..., :-1]).all())
            if path in self.kept or ordered or ascends:
                return None
            made[path] = old.detach()
            for axis in range(old.ndim):
                if old.shape[axis] > 1:
                    order = orders[self.classes[path, axis]].to(old.device)
                    made[path] = made[path].index_select(axis, order)
        self._ordered(made, random, fresh=True)
        return self.exact(rebuilt(self.args, made))

    def exact(self, args: Sequence[Any]) -> tuple[Any, ...]:
        """Cast an example to float64, projected onto the kinds of its tensors."""
        made = {}
        for path, t in tensors_in(tuple(args)):
            if is_float(t) and path not in self.kept:
                kind, values = self.kinds.get(path), t.detach().double()
                made[path] = values if kind is None else (kind.exact or kind.keep)(values)
        return tuple(rebuilt(cast(tuple(args), torch.float64), made))

    def moved(self, path: Path, values: Any, random: Any, larger: bool = False) -> Any:
        """Scale each element by a random factor, below 1 or above, and project onto the kind."""
        values, kind = values.double(), self.kinds.get(path)
        if kind is not None and not kind.moves:
            return kind.keep(values)
        factor = 0.25 * torch.rand(values.shape, generator=random, dtype=torch.float64)
        if larger and (kind is None or kind.name != "between 0 and 1"):
            factor = -factor
        values = values * (1 - factor)
        if values.numel() and not bool(values.any()) and kind is None:
            values = torch.randn(values.shape, generator=random, dtype=torch.float64) / 4
        return values if kind is None else kind.keep(values)

    def _positions(self, old: Any, new: Any, sizes: Mapping[Sizes, int]) -> Any:
        """Wrap integers below the smallest class size that bounded them before."""
        if not old.numel():
            return new
        largest = int(old.max())
        within = [c for c in self.sizes if c[0] > largest]
        if largest < 0 or not within:
            return new
        bound = min(sizes.get(c, c[0]) for c in within)
        return torch.where(new >= 0, new % max(bound, 1), new)

    def _ordered(self, made: dict[Path, Any], random: Any, fresh: bool = False) -> None:
        """Make permutations of permutations again, and keep pairs of inverse ones inverse.

        Ascending integers, as the numbers of segments, ascend again. Permutations of the same size
        are kept, unless ``fresh`` ones are wanted.
        """
        whole = {p: t for p, t in tensors_in(self.args) if is_integer(t) and p in made}
        done: dict[Path, tuple[Path, int]] = {}
        for path, old in whole.items():
            axis = permuted_axis(old)
            if axis is None:
                if _is_sorted(old):
                    made[path] = made[path].sort(-1).values
                continue
            if made[path].shape == old.shape and not fresh:
                made[path] = old
                continue
            for other, (_, at) in done.items():
                if at == axis and old.shape == whole[other].shape:
                    if bool((whole[other].argsort(axis) == old).all()):
                        made[path] = made[other].argsort(axis).to(old)
                        break
            else:
                order = torch.rand(made[path].shape, generator=random)
                made[path] = order.argsort(axis).to(old)
            done[path] = (path, axis)


def permuted_axis(tensor: Any) -> int | None:
    """Return the axis along which an integer tensor permutes all positions."""
    if tensor.dtype is torch.bool or not tensor.ndim:
        return None
    axes = (axis for axis, size in enumerate(tensor.shape) if size > 1)
    return next((axis for axis in axes if permutes(tensor, axis)), None)


def structure_of(examples: Sequence[Sequence[Any]], kept: frozenset[Path]) -> Structure:
    """Return the common structure of the examples whose ranks equal those of the first."""
    first = tuple(examples[0])
    mine = dict(tensors_in(first))
    alike = [dict(tensors_in(tuple(e))) for e in examples]
    alike = [
        e for e in alike if e.keys() == mine.keys() and all(e[p].ndim == mine[p].ndim for p in mine)
    ]
    classes = {
        (path, axis): tuple(e[path].shape[axis] for e in alike)
        for path, t in mine.items()
        for axis in range(t.ndim)
    }
    kinds = {
        path: kind
        for path, t in mine.items()
        if is_float(t) and (kind := kind_of([e[path] for e in alike])) is not None
    }
    numbers = [n for n in whole_numbers(first) if n > 1]
    ends = {int(t.max()) for t in mine.values() if is_integer(t) and t.numel()}
    fixed = {c for (path, _), c in classes.items() if path in kept}
    fixed |= {c for c in classes.values() if c[0] in numbers or (c[0] in ends and c[0] > 1)}
    factors = {}
    for c in classes.values():
        for n in sorted(numbers):
            if c[0] > n and all(s % n == 0 for s in c):
                factors[c] = n
    return Structure(first, classes, kinds, frozenset(fixed), factors, kept)


# -------------------------------------------------------------------------------------------- sizes
# Example inputs at other sizes: with the same structure, and with other proportions.

_MOST = 12
"""The most ways to split a class of axes in two."""


def other_sizes(structure: Structure, names: Sequence[str]) -> Iterator[Point]:
    """Yield larger and smaller sizes with the same structure."""
    met = {tuple(structure.sizes.items())}
    for turn in range(6):
        sizes = structure.varied(turn)
        if tuple(sizes.items()) not in met:
            met.add(tuple(sizes.items()))
            args = structure.resized(sizes, turn)
            yield Point(args, f"at other sizes than the examples' ({shapes_of(names, args)})")


def _rotated(size: int, random: Any) -> Any:
    return torch.arange(size).roll(1)


def _swapped_ends(size: int, random: Any) -> Any:
    return torch.tensor([size - 1, *range(1, size - 1), 0])


def _swapped_pair(size: int, random: Any) -> Any:
    return torch.cat([torch.arange(2).flip(0), torch.arange(2, size)])


def _drawn(size: int, random: Any) -> Any:
    return torch.randperm(size, generator=random)


def reordered(structure: Structure) -> Iterator[Point]:
    """Yield the example with the positions of its axes in other orders.

    Some have a parity of their own, as the order of a short axis is often its own inverse.
    """
    for order in (_rotated, _swapped_ends, _swapped_pair, _drawn):
        args = structure.reordered(order)
        if args is not None:
            yield Point(args, "where the elements of the example are in another order")


def other_proportions(structure: Structure, names: Sequence[str]) -> Iterator[Point]:
    """Yield square matrices for rectangular ones, and rows and columns exchanged."""
    changes = []
    for path, (rows, columns) in _matrices(structure):
        if rows != columns:
            one, other = (structure.classes[path, axis] for axis in (0, 1))
            more = columns + 2 * structure.step(one)
            wanted = ({one: columns, other: rows}, {one: columns, other: columns}, {one: more})
            changes += [
                structure.resized({**structure.sizes, **sizes}, 5)
                for sizes in wanted
                if _keeps_multiples(structure, sizes)
            ]
    return _points_by_shapes(changes, names)


def rare(
    structure: Structure, names: Sequence[str], numbers: Sequence[Any] = ()
) -> Iterator[Point]:
    """Yield the example with integers and masks that are valid, but rare.

    ``numbers`` are arguments; one below 0 may mark positions that are ignored.
    """
    yield from _with_repeats(structure, names)
    yield from _emptied(structure, names)
    for marker in dict.fromkeys(n for n in whole_numbers(list(numbers)) if n < 0):
        yield from _marked(structure, names, marker)


def _with_repeats(structure: Structure, names: Sequence[str]) -> Iterator[Point]:
    """Yield the example with a repeated integer, for each tensor of distinct ones.

    Permutations stay permutations, and integers that ascend do not descend.
    """
    for path, old in tensors_in(structure.args):
        if is_integer(old) and old.ndim and old.shape[-1] > 1 and path not in structure.kept:
            if permuted_axis(old) is None and old.unique().numel() == old.numel():
                # Every other one; where forward refuses that, or it is harmless, one alone.
                for places in (slice(1, None, 2), slice(1, 2)):
                    new = old.clone()
                    new[..., places] = new[..., 0:-1:2][..., : new[..., places].shape[-1]]
                    args = structure.exact(rebuilt(structure.args, {path: new}))
                    yield Point(args, f"where {names[int(path[0])]} repeats a number")


def _marked(structure: Structure, names: Sequence[str], marker: int) -> Iterator[Point]:
    """Yield the example with a marker at every other position of an integer tensor."""
    for path, old in tensors_in(structure.args):
        if is_integer(old) and old.ndim and path not in structure.kept and bool((old >= 0).all()):
            new = old.clone()
            new[..., ::2] = marker
            where = f"where {names[int(path[0])]} has {marker}"
            yield Point(structure.exact(rebuilt(structure.args, {path: new})), where)


def _emptied(structure: Structure, names: Sequence[str]) -> Iterator[Point]:
    """Yield the example with a mask that holds nowhere in a row, and with markers alone.

    A marker is a number below 0, as of positions that are ignored.
    """
    for path, old in tensors_in(structure.args):
        if path in structure.kept or not old.ndim or is_float(old):
            continue
        name, new = names[int(path[0])], old.clone()
        if "bool" in str(old.dtype) and bool(old.any(-1).all()):
            new[(0,) * (old.ndim - 1)] = False
            where = f"where a row of {name} holds nowhere"
        elif is_integer(old) and bool((old < 0).any()) and bool((old >= 0).any()):
            new.fill_(old.min())
            where = f"where {name} is {int(old.min())} everywhere"
        else:
            continue
        yield Point(structure.exact(rebuilt(structure.args, {path: new})), where)


def rectangles(structure: Structure, names: Sequence[str]) -> Iterator[Point]:
    """Yield rectangular matrices for square ones."""
    squares = [(path, rows) for path, (rows, columns) in _matrices(structure) if rows == columns]
    return _points_by_shapes(
        [c for path, size in squares for c in _split_square_classes(structure, path, size)], names
    )


def _matrices(structure: Structure) -> list[tuple[Path, tuple[int, int]]]:
    """Return (path, shape) of the matrices whose sizes may change."""
    return [
        (path, tuple(t.shape))
        for path, t in tensors_in(structure.args)
        if is_float(t) and t.ndim == 2 and min(t.shape) > 1
        if path not in structure.kept and path not in structure.kinds
    ]


def _points_by_shapes(changes: Sequence[tuple[Any, ...]], names: Sequence[str]) -> Iterator[Point]:
    """Yield each set of arguments once by its shapes."""
    for shapes, args in {shapes_of(names, args): args for args in changes}.items():
        yield Point(args, f"at other proportions than the examples' ({shapes})")


def _keeps_multiples(structure: Structure, sizes: Mapping[Sizes, int]) -> bool:
    """True if the sizes keep their multiples, and no fixed class changes."""
    return all(
        size % structure.step(c) == 0 and c not in structure.fixed for c, size in sizes.items()
    )


def _split_square_classes(structure: Structure, path: Path, size: int) -> Iterator[tuple[Any, ...]]:
    """Yield arguments where some axes of a square's class have another size."""
    of = structure.classes[path, 0]
    axes = [key for key, c in structure.classes.items() if c == of]
    step, tried = structure.step(of), 0
    for count in range(1, len(axes)):
        for chosen in combinations(axes, count):
            if ((path, 0) in chosen) == ((path, 1) in chosen) or tried >= _MOST:
                continue
            tried += 1
            for other in (size + 2 * step, size - step):
                apart = {
                    key: (*c, -1) if key in chosen else c for key, c in structure.classes.items()
                }
                # The split-off class is named by its sizes and a marker.
                if other > 1:
                    yield replace(structure, classes=apart).resized({(*of, -1): other}, 5)


def shapes_of(names: Sequence[str], args: Sequence[Any]) -> str:
    return ", ".join(
        f"{n}: {list(a.shape)}" for n, a in zip(names, args, strict=False) if is_tensor(a)
    )
