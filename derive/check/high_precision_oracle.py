"""An oracle with 60 digits, whose differences have no visible rounding or curvature error.

With a step of 1e-18 a central difference has some 30 correct digits wherever the operation is
smooth, however ill-conditioned it is. It is slow, so it runs only to adjudicate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

import numpy as np
from mpmath import mp, mpc, mpf

from derive.algebra.exact import EXACT
from derive.algebra.expr import Call, Const, Expr, Index, Num, Param, Pow
from derive.algebra.interpret import Array, Code, Scope
from derive.check import oracle
from derive.check.samples import Sample
from derive.notation.operation import Operation

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
            self.tensors = {n: _to_digits(v) if _is_real(v) else v for n, v in made.tensors.items()}
            self.still = oracle.ran(op, self.tensors, made.parameters, None, _Digits)

    def outputs(self) -> dict[str, Array]:
        """Return the outputs, rounded to float64 at the end."""
        with _unknown_on_error():
            found = oracle.outputs(self.op, self.tensors, self.made.parameters, None, _Digits)
        return {name: _round_to_float64(value) for name, value in found.items()}

    def slope(self, direction: Mapping[str, Array]) -> float:
        """Return the derivative along one direction; raise Unknown at a kink."""
        with _unknown_on_error():
            step = mpf(_STEP.numerator) / _STEP.denominator
            above, here, below = (self._total([(direction, n * step)]) for n in (1, 0, -1))
            right, left = (above - here) / step, (here - below) / step
            if abs(right - left) > _KINK * (abs(right) + abs(left) + _KINK):
                raise Unknown("the sample is at a kink")
            return float((right + left) / 2)

    def curvature(self, one: Mapping[str, Array], other: Mapping[str, Array]) -> float:
        """Return the second derivative along two directions."""
        with _unknown_on_error():
            step = mpf(_STEP.numerator) / _STEP.denominator
            total = 0
            for a in (1, -1):
                for b in (1, -1):
                    total += a * b * self._total([(one, a * step), (other, b * step)])
            return float(total / (4 * step**2))

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


def _is_real(values: Array | None) -> bool:
    return values is not None and values.dtype == np.float64


def _to_digits(values: Any) -> Array:
    """Convert an array to 60-digit numbers."""
    made = np.empty(np.shape(values), object)
    for place in np.ndindex(made.shape):
        made[place] = mpf(values[place])
    return made


def _round_to_float64(values: Array) -> Array:
    return values.astype(np.float64) if values.dtype == object else values


@contextmanager
def _unknown_on_error() -> Iterator[None]:
    """Set 60 digits, and turn arithmetic errors into Unknown."""
    try:
        with mp.workdps(_DIGITS):
            yield
    except (ArithmeticError, ValueError, TypeError) as error:
        raise Unknown(str(error)) from None
