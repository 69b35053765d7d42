"""F[*p] = f(A[*p]): the scalar functions of the notation, applied to each element."""

from __future__ import annotations

from sympy import (
    Abs,
    IndexedBase,
    Symbol,
    acos,
    asin,
    atan,
    atan2,
    cos,
    cosh,
    digamma,
    erf,
    erfc,
    exp,
    floor,
    log,
    oo,
    sign,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)

from derive.notation.heads import (
    Eq,
    clamp,
    expm1,
    group,
    lgamma,
    log1p,
    logsigmoid,
    maximum,
    minimum,
    relu,
    sigmoid,
    softplus,
)
from derive.notation.specification import Operation

p = group("p")
A, B, F = IndexedBase("A"), IndexedBase("B"), IndexedBase("F")
lo, hi = Symbol("lo"), Symbol("hi")

OPERATIONS = (
    Operation("exp", Eq(F[p], exp(A[p]))),
    Operation("log", Eq(F[p], log(A[p]))),
    Operation("log1p", Eq(F[p], log1p(A[p]))),
    Operation("expm1", Eq(F[p], expm1(A[p]))),
    Operation("sqrt", Eq(F[p], sqrt(A[p]))),
    Operation("rsqrt", Eq(F[p], 1 / sqrt(A[p]))),
    Operation("square", Eq(F[p], A[p] ** 2)),
    Operation("sin", Eq(F[p], sin(A[p]))),
    Operation("cos", Eq(F[p], cos(A[p]))),
    Operation("tan", Eq(F[p], tan(A[p]))),
    Operation("asin", Eq(F[p], asin(A[p]))),
    Operation("acos", Eq(F[p], acos(A[p]))),
    Operation("atan", Eq(F[p], atan(A[p]))),
    Operation("sinh", Eq(F[p], sinh(A[p]))),
    Operation("cosh", Eq(F[p], cosh(A[p]))),
    Operation("tanh", Eq(F[p], tanh(A[p]))),
    Operation("sigmoid", Eq(F[p], sigmoid(A[p]))),
    Operation("softplus", Eq(F[p], softplus(A[p]))),
    Operation("logsigmoid", Eq(F[p], logsigmoid(A[p]))),
    # At the kink 0 the slope is 0, as torch.relu.
    Operation("relu", Eq(F[p], relu(A[p]))),
    Operation("erf", Eq(F[p], erf(A[p]))),
    Operation("erfc", Eq(F[p], erfc(A[p]))),
    Operation("lgamma", Eq(F[p], lgamma(A[p]))),
    Operation("digamma", Eq(F[p], digamma(A[p]))),
    # At the kink 0 the slope is 0, as torch.abs.
    Operation("abs", Eq(F[p], Abs(A[p]))),
    # Steps: the gradient is 0.
    Operation("sign", Eq(F[p], sign(A[p]))),
    Operation("floor", Eq(F[p], floor(A[p]))),
    # A tie shares the gradient evenly, as torch.maximum.
    Operation("maximum", Eq(F[p], maximum(A[p], B[p]))),
    Operation("minimum", Eq(F[p], minimum(A[p], B[p]))),
    # On a bound the gradient goes to A, as torch.clamp.
    Operation("clamp", Eq(F[p], clamp(A[p], lo, hi)), parameters={lo: -oo, hi: oo}),
    # The angle of the point (B, A).
    Operation("atan2", Eq(F[p], atan2(A[p], B[p]))),
    Operation("pow", Eq(F[p], A[p] ** B[p])),
)
