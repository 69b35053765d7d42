"""Compare a reading with the function that it was read from, at several sizes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

import sympy
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from derive.algebra.expr import Access, Num, Rel, walk
from derive.api import load
from derive.errors import DeriveError
from derive.notation.operation import Operation
from derive.tracing.cost_report import Counting, cost_of
from derive.tracing.refusals import SizesUnread
from derive.tracing.sizes import SymbolicSizes, other_branches
from derive.tracing.values import TracedValue
from derive.tracing.writes import ComputedInputs

_TOLERANCE = 1e-7
"""Some of torch's own kernels have a constant in single precision, such as 1/6."""
_BITS = 1e-13
"""Part of a value by which inputs are changed to see whether an output is rounding noise."""
_ENOUGH = 3
_DRAWS = 8
"""Maximum number of draws, until the function has no nan, as in a row that is all masked, and no
infinity, as in a quotient by an empty box."""
_LIKE = 4
"""Number of draws that are independent of the example's values."""
_HELD = (0.6, 0.85, 0.15, 0.95, 0.05)
"""Fractions of a mask that hold, one for each draw."""
_FEW = 100_000
"""Maximum number of elements of an example at whose values gradients are compared."""
_MANY = 8192
"""With fewer elements than this, no tensor is too large."""
_ROOM = 2**30
_BEYOND = 8
"""Maximum number of sets of sizes at which a part is longer than its axis."""
AT_ONE, BEYOND = "at an axis of size 1", "where a part is longer than its axis"
LARGE = "where tensors are too large for a check"
_FAR = (10, 30, 100)
"""Factors of the examples at which gradients of Functions are compared too."""
_MARKED = 0.25
"""Fraction of drawn integers that are a marker, such as -100."""


Way = tuple[Mapping[Any, int], Callable[[int], dict[str, Any]]]
"""Sizes, and a draw of inputs that have them."""


class Differs(DeriveError):
    """What was read has other values or gradients than the function."""

    kind = "reading-differs"


class OtherBranch(Differs):
    """The function takes another branch at other sizes."""

    def __init__(self, asked: str, differs: str) -> None:
        super().__init__(
            f"the function takes another branch where {asked}: {differs}; read each branch as a "
            "function of its own"
        )


def check(
    op: Operation,
    functions: Sequence[tuple[Callable[..., Any], Mapping[str, float]]],
    tensors: Mapping[str, Any],
    sizes: SymbolicSizes,
    inputs: Mapping[str, TracedValue],
    computed: ComputedInputs,
    ascending: Mapping[str, int],
    applied: Sequence[str] = (),
) -> dict[str, str]:
    """Raise a DeriveError if the function generated for ``op`` differs from a function.

    Each function is given with the values of the parameters at which ``op`` should equal it. The
    result says where ``op`` differs at an axis of size 1, or where a part is longer than its axis:
    the function is traced for other sizes.
    """
    f = load(op)
    functions = [(partial(_with_tensors, g, len(op.outputs)), own) for g, own in functions]
    for a in (a for value in inputs.values() for a in value.atoms):
        sizes.at_least(a.size - 1)
    samples = Samples(tensors, sizes, inputs, _marks(op, tensors), computed, ascending)
    known = {p.name for p in op.parameters}
    asked = (AT_ONE, samples.ones()), (BEYOND, samples.beyond())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of the variance of a single number
        for function, parameters in functions:
            own = {k: v for k, v in parameters.items() if k in known}
            try:
                _held(op, partial(f, **own), function, samples)
                if applied:
                    _held_far(op, partial(f, **own), function, samples)
            except Differs as error:
                if not applied or isinstance(error, OtherBranch):
                    raise
                raise _because_of(applied, error) from None
        found = {where: _differs_at(op, f, functions[0][0], samples, ways) for where, ways in asked}
    if sizes.unreached:
        found[LARGE] = f"the function takes another branch where {sizes.unreached[0]}"
    return {where: differs for where, differs in found.items() if differs}


def _held(
    op: Operation, f: Callable[..., Any], function: Callable[..., Any], samples: Samples
) -> None:
    held, large, silent, answered = 0, 0, None, set()
    floats = (t.dtype for t in samples.tensors.values() if t.is_floating_point())
    dtype = next(floats, torch.float64)
    for way, drawn, asked, spare in samples.draws():
        if spare and (asked in answered if asked else held >= _ENOUGH):
            continue
        if silent is None:
            with exact(dtype):
                silent = without_gradient(function, drawn(0))
        # A position below 0 is none of a spec; torch counts it from the end.
        starts = (0,) if any(samples.marks.values()) else (0, 1)
        have: Any = None
        for start in starts:
            given, want = _defined(function, partial(_detached, drawn, silent), start, dtype)
            if want is None:
                break
            try:
                read = _read_inputs(op, given, samples, dtype)
                if _is_too_large(f, read):
                    break
                have = _values_and_gradients(f(*read.values()), given)
                break
            except NameError:
                raise  # the generated code itself is wrong
            except Exception as error:
                outside = "out of bounds" in str(error) or "out of range" in str(error)
                if start == starts[-1] or not outside:
                    # Most are of sizes that are no multiples, or not equal.
                    text = f"the spec fails on inputs that the function takes: {error}\n{op}"
                    raise SizesUnread(text) from error
        if have is None:
            large += want is not None
            continue
        if asked:
            answered.add(asked)
        differs = _differs(want, have, given)
        if differs and _is_noise(function, given, want, samples, dtype):
            continue
        if differs:
            if asked := asked or samples.sizes.false_at(way, samples.inputs):
                raise OtherBranch(asked, differs)
            raise Differs(f"the spec differs from the function: {differs}\n{op}")
        if not held:
            plain = have[0]
            # Without a graph, a gradient inside is an error.
            with suppress(RuntimeError), torch.no_grad(), exact(dtype):
                own = {n: t.detach() for n, t in given.items()}
                plain = _values_and_gradients(function(**own), own)[0]
            if differs := _differs((plain, []), (have[0], []), given):
                text = f"the function takes another branch under torch.no_grad(): {differs}"
                raise DeriveError(text, kind="reading-differs")
        held += 1
    _undivided_held(op, f, function, samples, silent or (), dtype)
    if held < _ENOUGH and large:
        raise DeriveError(
            f"derived code needs more than {_ROOM >> 30} GiB for one tensor at such sizes; read "
            "the function with smaller examples",
            kind="over-limit",
        )
    if held < _ENOUGH:
        raise DeriveError(
            f"the function runs at {held} of the sets of sizes of the check, too few to check the "
            f"spec\n{op}",
            kind="reading-differs",
        )


def _held_far(
    op: Operation, f: Callable[..., Any], function: Callable[..., Any], samples: Samples
) -> None:
    """Raise if ``op`` has another gradient at large values, as where a backward clips it."""
    dtype = next((t.dtype for t in samples.tensors.values() if t.is_floating_point()), None)
    for factor in _FAR:
        given = {
            n: (factor * t.detach()).requires_grad_() if t.requires_grad else t
            for n, t in samples.examples().items()
        }
        try:
            with exact(dtype):
                want = _values_and_gradients(function(**given), given)
            have = _values_and_gradients(
                f(*_read_inputs(op, given, samples, dtype).values()), given
            )
        except Exception:
            continue  # the function may reject such values
        if not _all(torch.isfinite, want):
            continue
        sizes = [1 + w.abs().amax() for w in want[1]]
        right, ours = (
            [g / size for g, size in zip(made[1], sizes, strict=True)] for made in (want, have)
        )
        if differs := _differs(([], right), ([], ours), given):
            text = f"the spec differs where inputs are {factor} times as large: {differs}\n{op}"
            raise Differs(text)


def _because_of(applied: Sequence[str], error: Differs) -> Differs:
    """Return the error with the Functions whose backward may be the reason."""
    one = len(applied) == 1
    return Differs(
        f"{error.text}\nThe function applies {' and '.join(applied)}, whose own "
        f"{'backward is' if one else 'backwards are'} not read: the spec has the derivative of "
        f"{'its forward' if one else 'their forwards'}. For a gradient that is another, write "
        "x + (y - x).detach(), where y is the value"
    )


def _with_tensors(function: Callable[..., Any], count: int, **given: Any) -> Any:
    """Return the results of a call, numbers as tensors if fewer than ``count`` are tensors.

    A branch may return 0.0 where the other returns a tensor.
    """
    made = function(**given)
    if sum(isinstance(t, torch.Tensor) for t in tree_leaves(made)) < count:
        made = tree_map_only((bool, int, float), torch.as_tensor, made)
    return made


def _is_noise(
    function: Callable[..., Any], given: Mapping[str, Any], want: Any, samples: Samples, dtype: Any
) -> bool:
    """True if the last bits of drawn inputs decide what the function is, as where all cancels.

    At the examples themselves it is False: their values may be at a kink.
    """
    if all(torch.equal(t.detach(), samples.tensors[n].to(t.dtype)) for n, t in given.items()):
        return False
    moved = {}
    for n, t in given.items():
        bits = 1 + _BITS * torch.linspace(-1, 1, t.numel(), dtype=torch.float64).reshape(t.shape)
        moved[n] = (t.detach() * bits).requires_grad_() if t.requires_grad else t
    with exact(dtype):
        again = _values_and_gradients(function(**moved), moved)
    return bool(_differs(want, again, given))


def _differs_at(
    op: Operation,
    f: Callable[..., Any],
    function: Callable[..., Any],
    samples: Samples,
    ways: Iterator[Way],
) -> str:
    """Describe where ``op`` silently differs at such sizes; '' if it does nowhere."""
    dtype = next((t.dtype for t in samples.tensors.values() if t.is_floating_point()), None)
    for way, drawn in ways:
        with suppress(Exception):
            # Values alone: the gradient of grid_sample at nan, as in a row of one, is a crash.
            silent = partial(_detached, drawn, [*samples.tensors])
            given, want = _defined(function, silent, 0, dtype)
            read = _read_inputs(op, given, samples, dtype)
            have = _values_and_gradients(f(*read.values()), given)
            differs = _differs((want[0], []), (have[0], []), given)
            if differs and _all(torch.isfinite, want[:1]):
                asked = samples.sizes.false_at(way, samples.inputs)
                return f"{differs}, where {asked}" if asked else differs
    return ""


def _undivided_held(
    op: Operation,
    f: Callable[..., Any],
    function: Callable[..., Any],
    samples: Samples,
    silent: Sequence[str],
    dtype: Any,
) -> None:
    """Raise if ``op`` differs at sizes that are no multiples; it may reject them."""
    for way, drawn in samples.undivided():
        given, want = _defined(function, partial(_detached, drawn, silent), 0, dtype)
        if want is None or _is_too_large(f, read := _read_inputs(op, given, samples, dtype)):
            continue
        try:
            differs = _differs(want, _values_and_gradients(f(*read.values()), given), given)
        except ValueError:
            continue
        except Exception as error:
            differs = f"{error}"
        if differs:
            if asked := samples.sizes.false_at(way, samples.inputs):
                raise OtherBranch(asked, differs)
            text = f"the spec differs where a size is no multiple of a part: {differs}\n{op}"
            raise SizesUnread(text)


def _read_inputs(
    op: Operation, given: Mapping[str, Any], samples: Samples, dtype: Any
) -> dict[str, Any]:
    """Return the inputs of an operation; integers as int64, which generated code takes."""
    with exact(dtype):
        every = samples.computed.added(given)
    return {t.name: every[t.name].long() if t.kind == "int" else every[t.name] for t in op.inputs}


def _detached(
    drawn: Callable[[int], dict[str, Any]], silent: Sequence[str], attempt: int
) -> dict[str, Any]:
    """Return a draw in which these inputs have no gradient."""
    return {name: t.detach() if name in silent else t for name, t in drawn(attempt).items()}


def _defined(
    function: Callable[..., Any], drawn: Callable[[int], dict[str, Any]], start: int, dtype: Any
) -> tuple[dict[str, Any], Any]:
    """Return (inputs, values and gradients) of the first draw at which all are finite.

    If there is none, it is the first without nan, or the last; the second is None if the function
    rejects the inputs.
    """
    first: Any = None
    rejected = 0
    for attempt in range(start, _DRAWS):
        if rejected > 1 and attempt < _LIKE:
            # It may take only values like those of the example, as masks of 0 and 1.
            continue
        given = drawn(attempt)
        try:
            with exact(dtype):
                want = _values_and_gradients(function(**given), given)
        except Exception:
            # The function rejects these sizes, or values out of its range.
            want = None
        if _all(torch.isfinite, want):
            return given, want
        rejected += want is None
        if rejected > 2:
            break
        if first is None and _all(lambda t: ~t.isnan(), want):
            first = given, want
    return first or (given, want)


@dataclass(frozen=True)
class Samples:
    """Inputs of a function like the examples, at several sizes."""

    tensors: Mapping[str, Any]
    sizes: SymbolicSizes
    inputs: Mapping[str, TracedValue]
    marks: Mapping[str, Sequence[int]]
    """Marker values of each integer input, such as -100."""
    computed: ComputedInputs
    ascending: Mapping[str, int]
    """The inputs that ascend along an axis."""

    def draws(self) -> Iterator[tuple[Mapping[Any, int], Callable[..., dict[str, Any]], str, bool]]:
        """Yield (sizes, a draw of inputs, the guard that is false there or '', if it is spare).

        The sizes are those of the examples, odd ones, equal ones, and those of other branches.
        Spare draws change one size of the examples, because a function may restrict the others, or
        make the sizes of another branch equal. They are used only if the others are too few.
        """
        for seed, (way, asked, spare) in enumerate(self._ways):
            yield way, partial(self._draw, way, 100 * seed), asked, spare
        if self.sizes.takes(self._hints):
            yield self._hints, partial(self._example, self._hints), "", False

    @cached_property
    def _hints(self) -> dict[Any, int]:
        """The sizes of the examples."""
        symbols = {s for v in self.inputs.values() for a in v.atoms for s in a.size.free_symbols}
        return {s: self.sizes.hint(s) for s in sorted(symbols, key=str)}

    @cached_property
    def _ways(self) -> list[tuple[Mapping[Any, int], str, bool]]:
        """The sizes of each draw but the last, with what `draws` says of them."""
        sizes, hints = self.sizes, self._hints
        symbols = [*hints]
        odd = {s: 3 + 2 * n for n, s in enumerate(symbols)}
        even = {s: 2 * (n + 2) for n, s in enumerate(symbols)}
        plain = [hints, odd, dict.fromkeys(symbols, 4), even]
        plain += [{s: k * h for s, h in hints.items()} for k in (2, 3)]
        ways = [(way, "", False) for way in plain if sizes.takes(way)]
        ways += other_branches(sizes, self.inputs, hints, sizes.takes)
        near = ({**hints, s: 2 * h + 1} for s, h in hints.items())
        return ways + [(way, "", True) for way in near if sizes.takes(way)]

    def ones(self) -> Iterator[Way]:
        """Yield draws in which one size of the examples is 1."""
        ways = ({**self._hints, s: 1} for s in self._hints)
        for seed, way in enumerate(filter(self.sizes.takes, ways)):
            yield way, partial(self._draw, way, 9000 + 100 * seed)

    def beyond(self) -> Iterator[Way]:
        """Yield draws in which a part is longer than its axis: one size of the examples differs.

        The operation should reject these sizes; torch ends a part with its axis.
        """
        hints, sizes = self._hints, self.sizes
        near = ({**hints, s: n} for s, h in hints.items() for n in (h // 2, 2, 1, 2 * h) if n)
        equal = (
            {s: n if h == m else h for s, h in hints.items()}
            for m in dict.fromkeys(hints.values())
            for n in (2, 1, 2 * m)
        )
        ways = (w for w in (*near, *equal) if sizes.divides(w) and not sizes.takes(w))
        for seed, way in enumerate(islice(ways, _BEYOND)):
            yield way, partial(self._draw, way, 7000 + 100 * seed)

    def undivided(self) -> Iterator[Way]:
        """Yield (sizes that are no multiples of what they are assumed to be, a draw of inputs).

        The operation must reject these sizes, or agree with a function that takes them.
        """
        hints, sizes = self._hints, self.sizes
        ways = [{s: h + n for s, h in hints.items()} for n in (1, 2, 3, 5)]
        # A difference of two sizes stays a multiple when both grow alike.
        divided = {s for a, _ in sizes.divided for s in sizes.meant(a).free_symbols}
        ways += [{**hints, s: h + 1} for s, h in hints.items() if s in divided]
        if divided:
            other = other_branches(sizes, self.inputs, hints, sizes.leaves_rest)
            ways += [way for way, _, _ in other]
        for seed, way in enumerate(filter(sizes.leaves_rest, ways)):
            yield way, partial(self._draw, way, 5000 + 100 * seed)

    def _draw(self, way: Mapping[Any, int], seed: int, attempt: int) -> dict[str, Any]:
        """Draw inputs of these sizes, different at each attempt."""
        drawn = {
            name: self._drawn(name, way, seed + n, attempt) for n, name in enumerate(self.inputs)
        }
        for name, axis in self.ascending.items():
            x = drawn[name].detach().sort(axis).values
            drawn[name] = x.requires_grad_(drawn[name].requires_grad)
        return drawn

    def examples(self) -> dict[str, Any]:
        """Return the examples themselves, in float64."""
        return self._example(self._hints, 0)

    def _example(self, way: Mapping[Any, int], attempt: int) -> dict[str, Any]:
        """Return the examples; after the first attempt only their integers, with other floats.

        Integers of examples may have a pattern. Gradients are compared only if all elements are
        distinct and nonzero, so that none is at a kink.
        """
        tensors, inputs = self.tensors, self.inputs
        if attempt:
            made = replace(self, marks={})._draw(way, 7, attempt)
            return {n: tensors[n] if inputs[n].kind == "int" else t for n, t in made.items()}
        floats = [t for t in tensors.values() if t.is_floating_point()]
        smooth = all(t.numel() <= _FEW and bool(t.all()) for t in floats)
        smooth = smooth and all(t.unique().numel() == t.numel() for t in floats)
        return {
            n: t.detach().double().requires_grad_(smooth) if t.is_floating_point() else t
            for n, t in tensors.items()
        }

    def _drawn(self, name: str, way: Mapping[Any, int], seed: int, attempt: int) -> Any:
        """Draw values like those of the example.

        After the first attempt, values stay in [0, 1] or [-1, 1], or integers above 0, if those of
        the example do. Integers that differ along an axis of a fixed size, as the corners of a
        triangle, do so in each draw, and those that ascend from 0 to a size, as ``cu_seqlens``, in
        each second one.
        The last attempts repeat the example a little smaller, because its values may be ordered, as
        the corners of boxes. Integers have markers at the first attempt only, because not every
        function takes them.
        """
        example, value = self.tensors[name], self.inputs[name]
        marks, sizes = self.marks.get(name, ()), self.sizes
        shape = [
            int(sympy.prod([sizes.value(sizes.plain(a.size), way) for a in axis]))
            for axis in value.axes
        ]
        generator = torch.Generator().manual_seed(seed + 10007 * attempt)
        if value.kind == "bool":
            return torch.rand(shape, generator=generator) < _HELD[attempt % len(_HELD)]
        if value.kind == "int":
            top = int(example.max()) + 1 if example.numel() else 1
            least = 1 if attempt and example.numel() and int(example.min()) > 0 else 0
            most = max(least + 1, min(top, least + 3))
            ends = [s for s, n in self._hints.items() if n == top - 1]
            ascends = example.dim() == 1 and bool((example[1:] >= example[:-1]).all())
            if attempt % 2 and ends and ascends and shape[0] > 1 and int(example[0]) == 0:
                cuts = torch.randint(0, way[ends[0]] + 1, (shape[0] - 2,), generator=generator)
                return torch.tensor([0, *sorted(cuts.tolist()), way[ends[0]]])
            positions = torch.randint(least, most, shape, generator=generator)
            for n, axis in enumerate(value.axes):
                fixed = not any(sizes.plain(a.size).free_symbols for a in axis)
                ordered = example.sort(n).values.movedim(n, 0)
                if fixed and shape[n] > 1 and bool((ordered[1:] != ordered[:-1]).all()):
                    range_ = max(most - least, shape[n])
                    drawn = torch.rand([*shape[:n], range_, *shape[n + 1 :]], generator=generator)
                    positions = drawn.argsort(n).narrow(n, 0, shape[n]) + least
            if attempt or not marks:
                return positions
            marked = torch.rand(shape, generator=generator) < _MARKED
            which = torch.randint(0, len(marks), shape, generator=generator)
            return torch.where(marked, torch.tensor(marks)[which], positions)
        if attempt >= _LIKE and example.numel():
            x = example.detach().double()
            for n, size in enumerate(shape):
                x = x.index_select(n, torch.arange(size) % x.shape[n])
            near = 1 - 0.1 * torch.rand(shape, generator=generator, dtype=torch.float64)
            return (x * near).requires_grad_()
        positive = example.numel() > 0 and bool((example > 0).all())
        if attempt and example.numel() and bool((example.abs() <= 1).all()):
            x = 0.05 + 0.9 * torch.rand(shape, generator=generator, dtype=torch.float64)
            return (x if bool((example >= 0).all()) else 2 * x - 1).requires_grad_()
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        return (x.abs() + 0.3 if positive else x).requires_grad_()


def _marks(op: Operation, tensors: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the marker values of each integer input, such as -100.

    These are the numbers below 0 in the example, and those that the operation compares the input
    with.
    """
    found = {
        t.name: {int(n) for n in tensors[t.name].unique() if n < 0}
        for t in op.inputs
        if t.kind == "int" and t.name in tensors
    }
    for rel in (r for e in op.equations for r in walk(e.body) if isinstance(r, Rel)):
        for own, other in ((rel.left, rel.right), (rel.right, rel.left)):
            if isinstance(own, Access) and isinstance(other, Num) and own.tensor in found:
                found[own.tensor].add(int(other.value))
    return {name: sorted(numbers) for name, numbers in found.items()}


@contextmanager
def exact(dtype: Any) -> Iterator[None]:
    """Compute in float64: drop casts between floating-point dtypes.

    Tensors made without a dtype are float64 too. All tensors report ``dtype``, that of the
    examples, because ``torch.finfo(x.dtype).eps`` is a number of the function.
    """
    names = "float double half bfloat16 type_as to type"
    casts = {getattr(torch.Tensor, name) for name in names.split()}
    norms = {torch.rms_norm, torch.nn.functional.rms_norm}
    asked = torch.Tensor.dtype.__get__  # type: ignore[attr-defined]
    autocast: Any = torch.amp.autocast_mode._enter_autocast

    def wide(x: Any) -> Any:
        return torch.float64 if isinstance(x, torch.dtype) and x.is_floating_point else x

    class Exact(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is autocast:
                return func(*args, **kwargs or {})
            args = tuple(map(wide, args))
            kwargs = {k: wide(v) for k, v in (kwargs or {}).items()}
            eps = args[3] if len(args) > 3 else kwargs.get("eps")
            if func in norms and eps is None:
                args, kwargs["eps"] = args[:3], torch.finfo(dtype).eps
            try:
                made = func(*args, **kwargs)
            except RuntimeError:
                # A tensor that is no argument, as an attribute of a module, is float32 still.
                args, kwargs = tree_map_only(torch.Tensor, _as_double, (args, kwargs))
                made = func(*args, **kwargs)
            if made is torch.float64 and func == asked:
                return dtype
            if func in casts and isinstance(made, torch.Tensor) and made.is_floating_point():
                source = args[0]
                return source if source.is_floating_point() else made.double()
            return made

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Exact():
            yield
    finally:
        torch.set_default_dtype(before)


def _as_double(x: Any) -> Any:
    return x.double() if x.is_floating_point() else x


def _all(test: Callable[[Any], Any], made: Any) -> bool:
    """True if there are values and gradients, and a test holds for all their elements."""
    return made is not None and all(bool(test(t).all()) for own in made for t in own)


def _is_too_large(f: Callable[..., Any], given: Mapping[str, Any]) -> bool:
    """True if derived code needs a tensor that is too large for the memory."""
    if sum(t.numel() for t in given.values()) < _MANY:
        return False
    with torch.device("meta"), suppress(Exception), Counting() as counted:  # type: ignore[no-untyped-call]
        own = {n: torch.empty_like(t).requires_grad_(t.requires_grad) for n, t in given.items()}
        _values_and_gradients(f(*own.values()), own)
        return bool(counted.largest > _ROOM)
    # Some operations run without data on a fake device alone, which takes ten times as long.
    cost = cost_of(lambda **tensors: f(*tensors.values()), given)
    return cost is not None and cost.largest > _ROOM


def without_gradient(function: Callable[..., Any], given: Mapping[str, Any]) -> list[str]:
    """Return the inputs for which the function has no gradient."""

    def runs(silent: Sequence[str]) -> bool:
        try:
            own = {n: t.detach() if n in silent else t for n, t in given.items()}
            _values_and_gradients(function(**own), own)
        except Exception:
            return False
        return True

    floats = [n for n, t in given.items() if t.is_floating_point()]
    if runs(()):
        return []
    return [n for n in floats if not runs([m for m in floats if m != n])]


def _values_and_gradients(made: Any, given: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return (the outputs, the gradients of a weighted sum of them)."""
    outputs = [t for t in tree_leaves(made) if isinstance(t, torch.Tensor)]
    floats = [t for t in outputs if t.is_floating_point() and t.requires_grad]
    inputs = [t for t in given.values() if t.is_floating_point() and t.requires_grad]
    if not floats:
        return outputs, [torch.zeros_like(t) for t in inputs]
    total: Any = 0
    for n, t in enumerate(floats):
        weight = torch.linspace(-1, 2 + n, t.numel(), dtype=t.dtype).reshape(t.shape)
        total = total + (t * weight).sum()
    found = torch.autograd.grad(total, inputs, allow_unused=True)
    pairs = zip(found, inputs, strict=True)
    return outputs, [torch.zeros_like(t) if g is None else g for g, t in pairs]


def _differs(want: Any, have: Any, given: Mapping[str, Any]) -> str:
    """Describe the first difference, with the shapes of the inputs; '' if there is none."""
    parts = ("value of output", "gradient of input")
    is_inside = not any(t.is_floating_point() and bool(t.isnan().any()) for t in want[0])
    for what, ours, theirs in zip(parts, have, want, strict=True):
        if len(ours) != len(theirs):
            return f"the spec has {len(ours)} outputs, and the function has {len(theirs)}"
        for n, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            undefined = b.isnan()
            if what.startswith("gradient") and a.shape == b.shape:
                # Where the function's gradient is nan, as for a row divided by its zero norm, any
                # is right, and nan is right where a row of its value is nan.
                if not is_inside:
                    a = torch.where(undefined | a.isnan(), b, a)
                elif not undefined.all():
                    a = torch.where(undefined, b, a)
            if a.shape != b.shape or not torch.allclose(
                a.double(), b.double(), rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True
            ):
                shapes = ", ".join(f"{k}{tuple(t.shape)}" for k, t in given.items())
                return f"{what} {n + 1}, at {shapes}"
    return ""
