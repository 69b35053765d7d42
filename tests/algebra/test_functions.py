"""The table of scalar functions, held against torch and against finite differences."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import sympy
import torch
from kit.each import each_row
from sympy.codegen import cfunctions

import derive
from derive.algebra.expr import Access, Add, Call, Expr, Guard, Mul, Num, Pow, num, walk
from derive.algebra.functions import FUNCTIONS, POWERS, derivative_copies, partial
from derive.algebra.interpret import evaluate
from derive.errors import DeriveError

INF, NAN = math.inf, math.nan
ARGUMENTS = tuple(Access(name, ()) for name in "abc")

SMOOTH = {
    "exp": (-1.5, 0.0, 2.25),
    "log": (0.3, 1.0, 4.5),
    "log1p": (-0.5, 0.0, 3.0),
    "exp2": (-1.5, 0.0, 2.25),
    "log2": (0.3, 1.0, 4.5),
    "log10": (0.3, 1.0, 4.5),
    "erfinv": (-0.7, -1e-3, 0.0, 0.3, 0.5, 0.8),
    "expm1": (-2.0, 0.0, 1.5),
    "sin": (-1.0, 0.0, 2.0),
    "cos": (-1.0, 0.0, 2.0),
    "tan": (-1.0, 0.0, 1.2),
    "asin": (-0.5, 0.0, 0.7),
    "acos": (-0.5, 0.0, 0.7),
    "atan": (-2.0, 0.0, 0.7),
    "sinh": (-2.0, 0.0, 0.7),
    "cosh": (-2.0, 0.0, 0.7),
    "tanh": (-2.0, 0.0, 0.7),
    "asinh": (-2.0, 0.0, 0.7),
    "acosh": (1.2, 3.0),
    "atanh": (-0.7, 0.0, 0.4),
    "sigmoid": (-30.0, -2.0, 0.0, 0.7),
    "softplus": (-30.0, -2.0, 0.0, 0.7, 19.0),
    "logsigmoid": (-30.0, -2.0, 0.0, 0.7, 19.0),
    "erf": (-1.0, 0.0, 0.6),
    "erfc": (-1.0, 0.0, 0.6),
    "lgamma": (-1.5, 0.4, 3.2),
    "digamma": (-1.5, 0.4, 3.2),
    "relu": (-1.5, 2.0),
    "abs": (-1.5, 2.0),
    "sign": (-1.5, 2.0),
    "floor": (-1.5, 2.4),
}
KINKS = {
    "relu": (0.0, -0.0, INF, -INF),
    "abs": (0.0, -0.0, INF, -INF),
    "sign": (0.0, -0.0, INF),
    "floor": (0.0, 1.0, -2.0),
    "softplus": (20.0, 25.0, 800.0, -800.0, INF, -INF),
    "logsigmoid": (25.0, -800.0, 800.0, INF, -INF),
    "sigmoid": (800.0, -800.0, INF, -INF),
    "exp": (800.0, -INF),
    "exp2": (2000.0, -INF),
    "log2": (0.0, INF),
    "log10": (0.0, INF),
    "erfinv": (1.0, -1.0, 2.0, NAN),
    "expm1": (-800.0, INF),
    "log": (0.0, INF),
    "log1p": (-1.0,),
    "asin": (1.0, -1.0),
    "acos": (1.0, -1.0),
    "tanh": (INF, -800.0),
    "asinh": (1e200, INF, -INF),
    "acosh": (1.0, INF),
    "atanh": (1.0, -1.0),
    "erf": (800.0, INF),
    "lgamma": (0.0,),
    "digamma": (0.0, INF),
    "ceil": (0.0, 1.0, -2.5),
    "trunc": (0.0, 1.7, -1.7),
    "round": (0.5, 1.5, -2.5, 1.7),
    "frac": (0.0, 1.7, -1.7),
}
SEVERAL = {
    "maximum": [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0), (0.0, -0.0), (INF, INF)],
    "minimum": [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0), (0.0, -0.0)],
    "hypot": [(3.0, 4.0), (-0.3, 0.7), (-1.0, 0.0), (0.0, 0.0), (INF, 1.0)],
    "logaddexp": [
        *[(0.3, 0.7), (-800.0, 2.0), (1000.0, 1001.0), (-INF, 1.0), (INF, 1.0), (-INF, -INF)],
        *[(INF, INF), (INF, -INF)],
    ],
    "atan2": [(0.3, 0.7), (-1.0, -2.0), (1.0, 0.0), (0.0, 1.0), (0.0, -1.0), (0.0, 0.0)],
    "remainder": [(7.5, 2.0), (-7.5, 2.0), (7.5, -2.0), (6.0, 2.0)],
    "fmod": [(7.5, 2.0), (-7.5, 2.0), (7.5, -2.0), (6.0, 2.0)],
    "pow": [
        *[(2.0, 3.0), (0.5, -1.5), (2.0, 0.0), (0.0, 0.0), (0.0, 1.0), (0.0, 2.0), (0.0, 0.5)],
        *[(0.0, -1.0), (-2.0, 2.0), (-2.0, 3.0), (-2.0, 0.5)],
    ],
    "clamp": [
        *[(x, -1.0, 2.0) for x in (-3.0, -1.0, 0.0, 2.0, 3.0)],
        *[(x, 2.0, 1.0) for x in (0.0, 1.0, 1.5, 2.0, 3.0)],
        *[(x, 1.0, 1.0) for x in (0.0, 1.0, 2.0)],
    ],
}
ROWS = [
    *((name, (x,)) for table in (SMOOTH, KINKS) for name, xs in table.items() for x in xs),
    *((name, xs) for name, rows in SEVERAL.items() for xs in rows),
]

TOLERANCE = {
    "digamma": 1e-8,  # torch's own trigamma is a series cut at that accuracy
    "softplus": 1e-10,  # torch takes 1 for sigmoid(x) above 20
}


def torch_function(name: str):
    found = torch
    for part in FUNCTIONS[name].torch.split("."):
        found = getattr(found, part)
    return found


def value(e: Expr, arguments: tuple[float, ...]) -> float:
    tensors = {a.tensor: np.array(x) for a, x in zip(ARGUMENTS, arguments, strict=False)}
    return float(evaluate(e, tensors, {}, {}, {}))


def call(name: str) -> Call:
    return Call(name, ARGUMENTS[: FUNCTIONS[name].arity])


@each_row("name, arguments", ROWS)
def test_value_and_gradient_are_those_of_torch(name, arguments):
    leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in arguments]
    expected = torch_function(name)(*leaves)
    assert value(call(name), arguments) == pytest.approx(expected.item(), nan_ok=True, abs=1e-14)
    gradients = torch.autograd.grad(expected, leaves)
    for n, gradient in enumerate(gradients):
        ours = value(partial(call(name), n), arguments)
        assert ours == pytest.approx(
            gradient.item(), rel=TOLERANCE.get(name, 1e-12), nan_ok=True, abs=1e-300
        )


def test_every_function_is_compared_with_torch():
    """At arguments in `SMOOTH`, `KINKS` or `SEVERAL`."""
    elsewhere = {"detach", "floordiv", "int", "polygamma"}
    missing = FUNCTIONS.keys() - {name for name, _ in ROWS} - elsewhere
    assert not missing, "add arguments to SMOOTH, KINKS or SEVERAL"


@each_row("name", SMOOTH)
@each_row("order", [1, 2])
def test_partials_are_differences(name, order):
    for x in SMOOTH[name]:
        f, derived = call(name), partial(call(name), 0)
        if order == 2:
            f, derived = derived, derivative(derived, 0)
        h = 1e-3 * min(1.0, abs(x) or 1.0)
        coarse, fine = ((value(f, (x + d,)) - value(f, (x - d,))) / (2 * d) for d in (h, h / 2))
        difference = (4 * fine - coarse) / 3
        assert value(derived, (x,)) == pytest.approx(difference, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("arguments", [(0.3, 0.7), (-1.0, -2.0), (2.0, 0.5)])
@pytest.mark.parametrize("name", ["atan2", "pow"])
def test_second_partials_of_two_arguments(name, arguments):
    if name == "pow" and arguments[0] < 0:
        arguments = (1.5, -2.0)
    for n, m in ((0, 0), (0, 1), (1, 0), (1, 1)):
        first = partial(call(name), n)
        h = 1e-3
        moved = [[*arguments], [*arguments]]
        moved[0][m] += h
        moved[1][m] -= h
        above, below = (value(first, tuple(x)) for x in moved)
        ours = value(derivative(first, m), arguments)
        assert ours == pytest.approx((above - below) / (2 * h), rel=1e-4, abs=1e-5)


def derivative(e: Expr, n: int) -> Expr:
    """d e/d argument n by the plain rules, with `partial` for the functions."""
    match e:
        case Access():
            return num(1 if e is ARGUMENTS[n] else 0)
        case Guard(_, position):
            return derivative(position, n)
        case Add(args):
            return Add(tuple(derivative(a, n) for a in args))
        case Mul(args):
            rows = (Mul((*args[:k], derivative(a, n), *args[k + 1 :])) for k, a in enumerate(args))
            return Add(tuple(rows))
        case Pow(base, Num() as exponent):
            return Mul((exponent, Pow(base, exponent + num(-1)), derivative(base, n)))
        case Call(_, args):
            rows = (Mul((partial(e, k), derivative(a, n))) for k, a in enumerate(args))
            return Add(tuple(rows))
    return num(0)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_polygamma_closes_at_every_order(n):
    for x in (-1.5, 0.4, 3.2):
        leaf = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        expected = torch.polygamma(n, leaf)
        e = Call("polygamma", (num(n), ARGUMENTS[0]))
        assert value(e, (x,)) == pytest.approx(expected.item(), rel=TOLERANCE["digamma"])
        (gradient,) = torch.autograd.grad(expected, leaf)
        assert value(partial(e, 1), (x,)) == pytest.approx(
            gradient.item(), rel=TOLERANCE["digamma"]
        )
    assert partial(Call("digamma", ARGUMENTS[:1]), 0) is Call("polygamma", (num(1), ARGUMENTS[0]))


@each_row("name", FUNCTIONS)
def test_derivatives_are_closed(name):
    row = FUNCTIONS[name]
    assert len(row.partials) == row.arity
    todo = [call(name)]
    for _ in range(3):
        following = []
        for one in todo:
            for n in range(FUNCTIONS[one.function].arity):
                following += [e for e in walk(partial(one, n)) if isinstance(e, Call)]
        assert {e.function for e in following} <= FUNCTIONS.keys()
        todo = following


@each_row("name", [n for n, f in FUNCTIONS.items() if f.torch_method])
def test_tensor_methods_exist(name):
    assert hasattr(torch.Tensor, FUNCTIONS[name].torch_method)
    assert callable(torch_function(name)) or name == "detach"


@each_row("name", [*SMOOTH, "detach"])
def test_numpy_takes_arrays(name):
    xs = SMOOTH.get(name, (1.0, 2.0))
    array = FUNCTIONS[name].numpy(np.array(xs))
    assert array.dtype == np.float64
    assert array.tolist() == [FUNCTIONS[name].numpy(x) for x in xs]


def test_own_values_and_powers():
    (x,) = ARGUMENTS[:1]
    y = Call("tanh", (x,))
    assert partial(Call("exp", (x,)), 0) is Call("exp", (x,))
    assert partial(y, 0) is 1 - y**2
    s = Call("sigmoid", (x,))
    assert partial(s, 0) is s * (1 - s)
    assert POWERS["rsqrt"] == Fraction(-1, 2)


def test_steps_and_integers_have_no_slope():
    a, b = ARGUMENTS[:2]
    assert partial(Call("detach", (a,)), 0) is num(0)
    assert partial(Call("floordiv", (a, b)), 0) is num(0)
    assert [FUNCTIONS["floordiv"].numpy(x, 2) for x in (7, -7)] == [3, -4]


def test_nan_stays_nan_but_has_no_sign():
    for name in ("relu", "abs", "exp", "softplus", "lgamma", "digamma"):
        assert math.isnan(FUNCTIONS[name].numpy(NAN))
    assert FUNCTIONS["sign"].numpy(NAN) == torch.sign(torch.tensor(NAN)).item() == 0
    assert math.isnan(FUNCTIONS["maximum"].numpy(NAN, 1.0))


def test_an_unknown_function_is_an_error():
    with pytest.raises(
        DeriveError, match=r"^sinc is not a known function; the functions are abs, "
    ):
        partial(Call("sinc", ARGUMENTS[:1]), 0)


def test_what_torch_has_and_sympy_lacks_is_a_function_of_both_notations():
    n = sympy.symbols("n", integer=True)
    x, z, y = map(sympy.IndexedBase, "xzy")
    form = derive.log2(1 + x[n] ** 2) * derive.exp2(z[n]) + derive.log10(2 + z[n] ** 2)
    form += derive.hypot(x[n], z[n]) + derive.logaddexp(x[n], 1) + cfunctions.log2(3 + x[n])
    form += sympy.erfinv(sympy.tanh(x[n]) / 2) + derive.sigmoid(z[n])
    text = (
        "y[n] = log2(1 + x[n]**2)*exp2(z[n]) + log10(2 + z[n]**2) + hypot(x[n], z[n]) "
        "+ logaddexp(x[n], 1) + log2(3 + x[n]) + erfinv(tanh(x[n])/2) + expit(z[n])"
    )
    for op in (derive.Operation("f", sympy.Eq(y[n], form), inputs=[x, z]), derive.parse(text)):
        given = [torch.randn(5, dtype=torch.float64, requires_grad=True) for _ in "xz"]
        a, b = given
        right = torch.log2(1 + a**2) * torch.exp2(b) + torch.log10(2 + b**2) + torch.hypot(a, b)
        right = right + torch.logaddexp(a, torch.ones_like(a)) + torch.log2(3 + a)
        right = right + torch.erfinv(a.tanh() / 2) + torch.special.expit(b)
        found = derive.load(op)(*given)
        torch.testing.assert_close(found, right)
        for one, other in zip(
            torch.autograd.grad(found.sum(), given),
            torch.autograd.grad(right.sum(), given),
            strict=True,
        ):
            torch.testing.assert_close(one, other)


def test_what_a_condition_excludes_reaches_no_gradient_of_theirs():
    op = derive.parse(
        "y[n] = where(x[n] > 1, log2(x[n] - 1), hypot(x[n] - 1, 0)) + [x[n] < 1]*erfinv(x[n])"
    )
    x = torch.tensor([-0.5, 0.3, 1.5, 4.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(derive.load(op)(x).sum(), x)
    y = x.detach().numpy()
    right = np.where(y > 1, 1 / ((y - 1) * math.log(2)), -1.0)
    inside = np.sqrt(np.pi) / 2 * np.exp(torch.erfinv(x.detach()).numpy() ** 2)
    np.testing.assert_allclose(slope.numpy(), right + np.where(y < 1, inside, 0), rtol=1e-12)


# What the table says of values, at these arguments and, of two, at each pair of them.

_RIGHT = math.pi / 2
POINTS = (
    -2000.0,
    -3.0,
    -2.0,
    -_RIGHT,
    -1.0,
    -0.5,
    0.0,
    0.3,
    0.5,
    1.0,
    _RIGHT,
    2.0,
    math.pi,
    2000.0,
)
OF_FLOATS = sorted(set(FUNCTIONS) - {"floordiv", "int", "polygamma"})


def places(name: str, points: tuple[float, ...] = POINTS) -> list[tuple[float, ...]]:
    return list(itertools.product(points, repeat=FUNCTIONS[name].arity))


def is_regular(name: str, arguments: tuple[float, ...]) -> bool:
    """Whether torch has a finite value and finite derivatives there."""
    xs = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in arguments]
    y = torch_function(name)(*xs)
    slopes = torch.autograd.grad(y, xs, allow_unused=True) if y.requires_grad else ()
    return all(g is None or math.isfinite(g.detach()) for g in (y, *slopes))


@each_row("name", OF_FLOATS)
def test_values_lie_where_the_table_says(name):
    row = FUNCTIONS[name]
    values = [float(row.numpy(*at)) for at in places(name)]
    values = [v for v in values if not math.isnan(v)]
    assert row.least <= min(values)
    assert max(values) <= row.most
    ends = [e for e in (row.least, row.most) if math.isfinite(e)]
    assert all(any(abs(v - e) < 0.01 for v in values) for e in ends)


@each_row("name", OF_FLOATS)
def test_what_is_even_and_what_is_odd(name):
    row = FUNCTIONS[name]
    if row.arity == 1:
        at = [0.3, 0.5, 0.9] if row.domain else [0.3, 0.5, 1.5, 2.75]
        ends = [tuple(float(row.numpy(sign * x)) for sign in (1, -1)) for x in at]
        signs = [s for s in (1, -1) if all(a == pytest.approx(s * b, rel=1e-12) for a, b in ends)]
        assert signs == ([row.parity] if row.parity else [])


@each_row("name", OF_FLOATS)
def test_what_is_total_and_what_overflows(name):
    row = FUNCTIONS[name]
    moderate = tuple(x for x in POINTS if abs(x) < 4)
    overflows = any(math.isinf(row.numpy(*at)) for at in places(name, (-2000.0, 2000.0)))
    if row.total:
        assert all(is_regular(name, at) for at in places(name, moderate))
        assert row.overflows == overflows
    else:
        assert not row.overflows
        assert not all(is_regular(name, at) for at in places(name, (*moderate, -INF)))


@each_row("name", OF_FLOATS)
def test_what_grows_no_faster_than_its_arguments(name):
    row = FUNCTIONS[name]
    grows = any(not abs(row.numpy(*at)) <= 2 + sum(map(abs, at)) for at in places(name))
    if row.linear:
        assert not grows
    elif math.isinf(row.least) or math.isinf(row.most):
        assert grows


@each_row("name", OF_FLOATS)
def test_what_is_whole_and_what_the_math_module_has(name):
    row = FUNCTIONS[name]
    whole = tuple(x for x in POINTS if x == int(x))
    values = [float(row.numpy(*at)) for at in places(name, whole)]
    is_whole = all(v == int(v) if math.isfinite(v) else False for v in values)
    # Of integers torch has no frac, which is 0.
    assert row.whole == (is_whole and name != "frac")
    if row.in_math:
        at = (0.5 if row.domain is None else max(0.5, row.domain[0]),) * row.arity
        assert getattr(math, name)(*at) == pytest.approx(float(row.numpy(*at)))


def test_how_often_a_derivative_has_an_argument():
    found = {name: derivative_copies(name) for name in FUNCTIONS}
    assert found["exp"] == found["tanh"] == found["log"] == 1  # 1 - y^2 has y, not x
    assert found["maximum"] == found["minimum"] == 2  # [a > b] + [a = b]/2
    assert found["pow"] == 3  # [y != 0]*y*x^(y - 1)


POINTS_PARTIALS = {
    "maximum(x[n], y[n])": (torch.maximum, [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)]),
    "minimum(x[n], y[n])": (torch.minimum, [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)]),
    "clamp(x[n], y[n], y[n] + 1)": (
        lambda x, y: torch.clamp(x, y, y + 1),
        [(0.0, 0.0), (1.0, 0.0), (2.0, 0.0), (-1.0, 0.0)],
    ),
    "atan2(x[n], y[n])": (torch.atan2, [(0.0, 1.0), (1.0, -1.0)]),
    "x[n]**y[n]": (torch.pow, [(0.0, 0.0), (0.0, 2.0), (2.0, 0.0)]),
    "relu(x[n]*y[n])": (lambda x, y: torch.relu(x * y), [(0.0, 1.0), (1.0, 1.0), (-1.0, 1.0)]),
    "logaddexp(x[n], y[n])": (torch.logaddexp, [(1.0, 1.0), (80.0, -80.0)]),
    "hypot(x[n], y[n])": (torch.hypot, [(3.0, 4.0), (0.0, 1.0)]),
}


@pytest.mark.parametrize("body", POINTS_PARTIALS)
def test_the_slope_is_that_of_torch(body):
    own, points = POINTS_PARTIALS[body]
    f = derive.load(derive.parse(f"op f(x[n], y[n]) -> z\nz[n] = {body}"))
    columns = zip(*points, strict=True)
    given = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in columns]
    found = torch.autograd.grad(f(*given).sum(), given)
    wanted = torch.autograd.grad(own(*given).sum(), given)
    for a, b in zip(found, wanted, strict=True):
        assert all(
            math.isclose(p, q, abs_tol=1e-12) or (math.isnan(p) and math.isnan(q))
            for p, q in zip(a.tolist(), b.tolist(), strict=True)
        )
