"""Decide whether a difference is an error of the code or rounding at an ill-conditioned sample.

Central differences in float64 err by curvature and by rounding. Where a check fails, values and
derivatives at the same sample are compared with two references that have neither error:
torch.autograd of the equations (`derive.check.reference`), and differences in many digits
(`derive.check.rounding_adjudication`). The rounding of the code itself is measured by how far its
results move when the inputs change in the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from fractions import Fraction
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
from mpmath import mp, mpc, mpf

from derive.algebra.expr import Call, Const, Expr, Index, Num, Param, Pow
from derive.algebra.interpret import Array, Code, Scope
from derive.algebra.reference_values import EXACT
from derive.check import oracle
from derive.check.invoke import (
    Function,
    Results,
    array,
    cotangents_of,
    derivatives,
    differs,
    directions_of,
    plain,
    weights_of,
    with_floats,
)
from derive.check.samples import Case, Sample, indices_in, sample
from derive.errors import VerificationError
from derive.notation.operation import Operation

# ---------------------------------------------------------------------------- high precision oracle
# An oracle with 60 digits, whose differences have no visible rounding or curvature error.
#
# With a step of 1e-18 a central difference has some 30 correct digits wherever the operation is
# smooth, however ill-conditioned it is. It is slow, so it runs only to adjudicate.

_DIGITS = 60
_STEP = Fraction(1, 10**18)
_KINK = 1e-9
"""At smooth points the one-sided differences agree to 1e-18, whatever the curvature."""


class Unknown(Exception):
    """There is no exact value: the sample is at a kink, or a function is undefined there."""


class _Digits(oracle.LoopEvaluator):
    """Evaluates floating-point values with 60 digits."""

    dtypes: Mapping[str, Any] = {"float": object, "int": np.int64, "bool": np.bool_}

    def compile(self, e: Expr) -> Code:
        match e:
            case Num(value) if value.denominator != 1:
                number = mpf(value.numerator) / value.denominator
                return lambda s: number
            case Const(name):
                constant = {"pi": +mp.pi, "inf": mp.inf}[name]
                return lambda s: constant
            case Pow(base, exponent):
                below, above = self.code(base), self.code(exponent)
                return lambda s: _exact_power(below(s), above(s))
            case Param(name) if isinstance(self.parameters[name], float):
                given = mpf(self.parameters[name])
                return lambda s: given
        return super().compile(e)

    def call(self, name: str, args: Sequence[Expr]) -> Code:
        if name in ("detach", "floordiv", "int"):
            return super().call(name, args)
        if name == "pow":
            return self.compile(Pow(*args))
        parts = [self.code(a) for a in args]
        function = EXACT.get(name)
        if function is None:
            raise Unknown(f"{name} has no exact form")
        return lambda s: _require_real(function(*[mpf(part(s)) for part in parts]))

    def reduce(
        self, kind: str, indices: tuple[Index, ...], body: Expr, condition: Expr | None
    ) -> Code:
        if kind == "mean":
            total = super().reduce("sum", indices, body, condition)
            number = super().reduce("sum", indices, Num(Fraction(1)), condition)
            return lambda s: mpf(total(s)) / number(s)
        if kind == "logsumexp":
            # mpmath's exponents are unbounded, so exp cannot overflow.
            inside = super().reduce("sum", indices, Call("exp", (body,)), condition)
            return lambda s: mp.log(inside(s))
        return super().reduce(kind, indices, body, condition)

    def place(self, position: Expr, axis: Expr | None = None) -> Callable[[Scope], tuple[int, ...]]:
        found = super().place(position, axis)
        return lambda s: tuple([int(p) for p in found(s)])


def _exact_power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and exponent >= 0:
        return base**exponent
    return _require_real(mpf(base) ** exponent)


def _require_real(value: Any) -> Any:
    if isinstance(value, mpc) or mp.isnan(value):
        raise Unknown("a value is not a real number")
    return mpf(value)


class ExactDifferences:
    """Differences of Sum outputs*cotangents at a sample, along directions of its inputs."""

    def __init__(self, op: Operation, made: Sample, cotangents: Mapping[str, Array]) -> None:
        self.op = op
        self.made = made
        self.cotangents = cotangents
        with _unknown_on_error():
            # Convert first: a product of floats would be rounded.
            self.tensors = with_floats(made, _to_digits).tensors
            self.step = mpf(_STEP.numerator) / _STEP.denominator
            self.still = oracle.ran(op, self.tensors, made.parameters, None, _Digits)

    def outputs(self) -> dict[str, Array]:
        """Return the outputs, rounded to float64 at the end."""
        with _unknown_on_error():
            found = oracle.outputs(self.op, self.tensors, self.made.parameters, None, _Digits)
        return {n: v.astype(np.float64) if v.dtype == object else v for n, v in found.items()}

    def slope(self, direction: Mapping[str, Array]) -> float:
        """Return the derivative along one direction; raise Unknown at a kink."""
        with _unknown_on_error():
            above, here, below = (self._total([(direction, n * self.step)]) for n in (1, 0, -1))
            right, left = (above - here) / self.step, (here - below) / self.step
            if abs(right - left) > _KINK * (abs(right) + abs(left) + _KINK):
                raise Unknown("the sample is at a kink")
            return float((right + left) / 2)

    def curvature(self, one: Mapping[str, Array], other: Mapping[str, Array]) -> float:
        """Return the second derivative along two directions."""
        with _unknown_on_error():
            total = 0
            for a, b in product((1, -1), repeat=2):
                total += a * b * self._total([(one, a * self.step), (other, b * self.step)])
            return float(total / (4 * self.step**2))

    def _total(self, moves: Sequence[tuple[Mapping[str, Array], Any]]) -> Any:
        tensors = dict(self.tensors)
        for direction, step in moves:
            for name, part in direction.items():
                tensors[name] = tensors[name] + _to_digits(part) * step
        found = oracle.outputs(self.op, tensors, self.made.parameters, self.still, _Digits)
        return sum(
            value * mpf(weight)
            for name, cotangent in self.cotangents.items()
            for value, weight in zip(found[name].flat, cotangent.flat, strict=True)
            if weight
        )


def _to_digits(values: Any) -> Array:
    """Convert an array to 60-digit numbers."""
    made = np.empty(np.shape(values), object)
    for place in np.ndindex(made.shape):
        made[place] = mpf(values[place])
    return made


@contextmanager
def _unknown_on_error() -> Iterator[None]:
    """Set 60 digits, and turn arithmetic errors into Unknown."""
    try:
        with mp.workdps(_DIGITS):
            yield
    except (ArithmeticError, ValueError, TypeError) as error:
        raise Unknown(str(error)) from None


# ---------------------------------------------------------------------------- rounding adjudication

_RTOL, _ATOL = 1e-6, 1e-8
_MOST_LOOPS = 100_000
"""High-precision differences run only up to this many loop iterations."""
_LAST_BIT = 2.0**-52
_ROUNDING = 64
"""The allowed error, as a multiple of the effect of the last bits of the inputs."""
_SEEDS = range(1, 9)


class Verdict(Enum):
    """The result of adjudication at one sample."""

    RIGHT = "right"
    WRONG = "wrong"
    CONVENTIONAL = "equal to torch.autograd; finite differences are inconclusive"
    UNDECIDED = "undecided at this sample"


def verdict(op: Operation, function: Function, made: Sample, order: int) -> tuple[Verdict, str]:
    """Judge values (order 0), first or second derivatives; return verdict and difference."""
    got = derivatives(function, made, order)
    want = derivatives(plain(op, made), made, order)
    # A function may have no forward mode.
    want = {name: value for name, value in want.items() if name in got}
    noise = _noise(plain(op, made), made, order, want)
    unlike = _beyond_noise(got, want, noise)
    try:
        truth = _exact_results(op, made, order)
    except Unknown as reason:
        if unlike and _beyond_noise(got, want, _noise(function, made, order, got)):
            return Verdict.WRONG, f"autograd of the equations: {unlike}"
        return (Verdict.UNDECIDED if unlike else Verdict.CONVENTIONAL), unlike or str(reason)
    along = _contract_directions(got, made, order)
    truth = {name: value for name, value in truth.items() if name in along}
    untrue = _beyond_noise(along, truth, _contract_directions(noise, made, order, bound=True))
    if not unlike and not untrue:
        return Verdict.RIGHT, ""
    loose = _noise(function, made, order, got)
    bound = _contract_directions(loose, made, order, bound=True)
    if _beyond_noise(got, want, loose) or _beyond_noise(along, truth, bound):
        said = {"autograd of the equations": unlike, "differences in 60 digits": untrue}
        return Verdict.WRONG, "; ".join(f"{judge}: {text}" for judge, text in said.items() if text)
    return Verdict.UNDECIDED, unlike or untrue


def steadiest(op: Operation, case: Case) -> Iterator[Sample]:
    """Yield other samples of a case, the best conditioned first."""
    found: list[tuple[float, int, Sample]] = []
    for seed in _SEEDS:
        try:
            made = sample(op, case, seed)
        except VerificationError:
            continue
        found.append((_unsteadiness(op, made), seed, made))
    for _, _, made in sorted(found, key=lambda entry: entry[:2]):
        yield made


def _unsteadiness(op: Operation, made: Sample) -> float:
    """Return the largest relative change of derivatives when all inputs change by 0.1 %."""
    here = derivatives(plain(op, made), made, 1)
    moved = derivatives(plain(op, made), made, 1, shift=1e-3)
    largest = max((np.abs(v).max(initial=0.0) for v in here.values()), default=0.0)
    gaps = [np.abs(moved[name] - v).max(initial=0.0) for name, v in here.items()]
    worst = float(max(gaps, default=0.0)) / (float(largest) or 1.0)
    return worst if np.isfinite(worst) else np.inf


# --------------------------------------------------------------------- rounding


def rounding(function: Function, made: Sample) -> float:
    """Return the rounding error of the code's gradients, at the sample and near it."""
    largest = 0.0
    for shift in (0.0, -0.01):
        there = with_floats(made, partial(np.multiply, 1 + shift))
        found = _noise(function, there, 1, derivatives(function, there, 1))
        largest = max([largest, *(float(v.max(initial=0.0)) for v in found.values())])
    return largest


def _noise(function: Function, made: Sample, order: int, here: Results) -> Results:
    """Return the change of each result with the last bits of the inputs, scaled to a bound."""
    noise = {name: np.abs(value) * _LAST_BIT for name, value in here.items()}
    for n in range(4):
        moved = derivatives(function, made, order, shift=_LAST_BIT, seed=n)
        for name, value in here.items():
            with np.errstate(invalid="ignore"):
                gap = np.nan_to_num(np.abs(moved[name] - value), nan=0.0, posinf=0.0)
            noise[name] = np.maximum(noise[name], gap)
    # Some elements may move little by chance, so the largest change bounds all elements.
    return {
        name: _ROUNDING * np.maximum(value, value.max(initial=0.0) / _ROUNDING)
        for name, value in noise.items()
    }


def _beyond_noise(got: Results, want: Results, noise: Results) -> str:
    """Describe where results differ by more than tolerance and noise."""
    found = []
    largest = max((float(np.abs(v).max(initial=0.0)) for v in want.values()), default=0.0)
    atol = _ATOL * min(1.0, max(1e-6, largest))
    for name, value in want.items():
        own = got.get(name, np.zeros_like(value))
        with np.errstate(invalid="ignore"):
            near = np.abs(own - value) <= atol + _RTOL * np.abs(value) + noise.get(name, 0)
        same = near | (own == value) | (np.isnan(own) & np.isnan(value))
        if not same.all():
            found.append(differs(name, own, value, 0, 0))
    return "; ".join(found)


# ----------------------------------------------------------------- many digits


def _exact_results(op: Operation, made: Sample, order: int) -> Results:
    """Return outputs, slopes or curvatures along a few directions, in high precision."""
    sizes = oracle.sizes(op, made.tensors, made.parameters)
    extents = ({i.extent for i in indices_in((*e.axes, e.body))} for e in op.equations)
    loops = sum(prod(oracle.positions(sizes[e]) for e in own) for own in extents)
    if loops > _MOST_LOOPS:
        raise Unknown(f"{loops} loop iterations are too many for high-precision arithmetic")
    exact = ExactDifferences(op, made, cotangents_of(made))
    if order == 0:
        return exact.outputs()
    names = list(directions_of(made, 0))
    found: Results = {}
    if names and order == 1:
        found["slopes of the outputs"] = np.array(exact.slope(directions_of(made, 0)))
    for n in range(2):
        for name in names:
            part = directions_of(made, n)[name]
            found[f"grad_{name} along {n}"] = np.array(exact.slope({name: part}))
            if order == 2:
                value = exact.curvature(directions_of(made, 0), {name: part})
                found[f"second derivative, {name} along {n}"] = np.array(value)
    return found


def _contract_directions(found: Results, made: Sample, order: int, bound: bool = False) -> Results:
    """Contract elementwise derivatives (or their error bounds) with the same directions."""
    if order == 0:
        return found
    result: Results = {}
    slopes = [v for name, v in found.items() if name.endswith(", forward")]
    if slopes:
        pairs = zip(slopes, weights_of(made), strict=True)
        result["slopes of the outputs"] = sum(
            (_directional_sum(v, array(w)) for v, w in pairs), np.array(0.0)
        )
    for n in range(2):
        for name, part in directions_of(made, n).items():
            part = np.abs(part) if bound else part
            result[f"grad_{name} along {n}"] = _directional_sum(found[f"grad_{name}"], part)
            if order == 2:
                second = _directional_sum(found[f"second derivative, {name}"], part)
                result[f"second derivative, {name} along {n}"] = second
    return result


def _directional_sum(values: Array, direction: Array) -> Array:
    return np.array(np.sum(values * direction))
