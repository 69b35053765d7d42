"""A sum cancels against the name that it defines, and against a power of itself."""

from fractions import Fraction

import pytest
import torch

from derive import derivation, load, parse
from derive.algebra.expr import Access, Iverson
from derive.algebra.poly import ONE, add, atom, mul, scale
from derive.calculus.ratio_rules import _other_share

PAIR = "op f(x[n], y[n]) -> L\n"


def gradient(text, name="x"):
    """The right side of a gradient."""
    return str(derivation(parse(text)).gradients[name]).partition(" = ")[2]


CANCELLED = {
    "a name": (
        PAIR + "M[n] = x[n] + y[n]; L[n] = x[n]*log(M[n]) + y[n]*log(M[n])",
        "G[n]·(1 + log(M[n]))",
        lambda x, y: (x + y) * torch.log(x + y),
    ),
    "one less a share": (
        PAIR + "L[n] = x[n]**2/(x[n]**2 + y[n]**2)",
        "2·G[n]·x[n]·y[n]²/(x[n]² + y[n]²)²",
        lambda x, y: x**2 / (x**2 + y**2),
    ),
    "in another order, with factors": (
        PAIR + "M[n] = y[n] + 2*x[n]; L[n] = 2*x[n]*log(M[n]) + y[n]*log(M[n])",
        "2·G[n]·(1 + log(M[n]))",
        lambda x, y: (2 * x + y) * torch.log(2 * x + y),
    ),
    "inline": (
        "op f(x[n], y[n]; b=0.3) -> L\nL[n] = (b*x[n] + (1 - b)*y[n])*log(b*x[n] + (1 - b)*y[n])",
        "b·G[n]·(1 + log(b·x[n] + (1 − b)·y[n]))",
        lambda x, y: (0.3 * x + 0.7 * y) * torch.log(0.3 * x + 0.7 * y),
    ),
    "inline, term by term": (
        PAIR + "L[n] = x[n]*log(x[n] + y[n]) + y[n]*log(y[n] + x[n])",
        "G[n]·(1 + log(x[n] + y[n]))",
        lambda x, y: (x + y) * torch.log(x + y),
    ),
    "through two names": (
        PAIR + "A[n] = x[n] + y[n]; M[n] = A[n] + 1; "
        "L[n] = x[n]*log(M[n]) + y[n]*log(M[n]) + log(M[n])",
        "G[n]·(1 + log(M[n]))",
        lambda x, y: (x + y + 1) * torch.log(x + y + 1),
    ),
    "a root": (
        PAIR + "M[n] = x[n]**2 + y[n]**2; L[n] = x[n]**2*sqrt(M[n]) + y[n]**2*sqrt(M[n])",
        "3·G[n]·x[n]·√(M[n])",
        lambda x, y: (x**2 + y**2) ** 1.5,
    ),
    "a power that is left": (
        "op f(x[n], y[n]; b=0.3) -> L\n"
        "L[n] = (b*x[n] + (1 - b)*y[n])**2*log(b*x[n] + (1 - b)*y[n])",
        "b·G[n]·(b·x[n] + (1 − b)·y[n])·(1 + 2·log(b·x[n] + (1 − b)·y[n]))",
        lambda x, y: (0.3 * x + 0.7 * y) ** 2 * torch.log(0.3 * x + 0.7 * y),
    ),
    "under a sum": (
        PAIR + "M[n] = x[n] + y[n]; L = sum[n](x[n]*log(M[n]) + y[n]*log(M[n]))",
        "G·(1 + log(M[n]))",
        lambda x, y: ((x + y) * torch.log(x + y)).sum(),
    ),
    "divisors of a divisor": (
        PAIR + "L[n] = log(1 + x[n]/y[n])",
        "G[n]/(x[n] + y[n])",
        lambda x, y: torch.log(1 + x / y),
    ),
    "divisors of a divisor, squared": (
        "op f(x[n], y[n]; s=2) -> L\nL[n] = y[n]*log(1 + ((x[n] - 1)/s)**2)",
        "2·G[n]·y[n]·(x[n] − 1)/((x[n] − 1)² + s²)",
        lambda x, y: y * torch.log(1 + ((x - 1) / 2) ** 2),
    ),
    "a part of a name": (
        PAIR + "M[n] = exp(x[n]) + y[n]; L[n] = x[n]*M[n] - exp(x[n])*x[n]",
        "G[n]·y[n]",
        lambda x, y: x * y,
    ),
    "a divergence": (
        PAIR + "m[n] = (x[n] + y[n])/2; L = sum[n](x[n]*log(x[n]/m[n]) + y[n]*log(y[n]/m[n]))",
        "G·log(x[n]/m[n])",
        lambda x, y: (x * torch.log(2 * x / (x + y)) + y * torch.log(2 * y / (x + y))).sum(),
    ),
}


@pytest.mark.parametrize("case", CANCELLED)
def test_a_sum_cancels(case):
    text, expected, plain = CANCELLED[case]
    assert gradient(text) == expected
    torch.manual_seed(3)
    given = [torch.rand(4, dtype=torch.float64) + 0.5 for _ in range(2)]
    for found in (plain, load(parse(text))):
        x, y = (t.clone().requires_grad_() for t in given)
        value = found(x, y)
        value.backward(torch.linspace(1, 2, 4, dtype=torch.float64) if value.ndim else None)
        if found is plain:
            wanted = x.grad, y.grad
    assert all(map(torch.allclose, (x.grad, y.grad), wanted))


def test_the_quotient_of_a_sum_by_itself_is_one_where_it_is_zero():
    x = torch.tensor([1.0, 0.0], requires_grad=True)
    y = torch.tensor([-1.0, 2.0], requires_grad=True)
    f = load(parse(PAIR + "M[n] = x[n] + y[n]; L[n] = x[n]/M[n] + y[n]/M[n] + M[n]**2"))
    f(x, y).sum().backward()
    assert torch.equal(x.grad, torch.tensor([0.0, 4.0]))


KEPT = {
    "not all of it": "M[n] = x[n] + y[n]; L[n] = x[n]*log(M[n])",
    "other factors": "M[n] = x[n] + 2*y[n]; L[n] = x[n]*log(M[n]) + y[n]*log(M[n])",
    "another position": "M[n] = x[n] + y[0]; L[n] = x[n]*log(M[n]) + y[n]*log(M[n])",
    "a divisor of one term alone": "L[n] = log(x[n]*y[n] + 1/(2 + x[n]))",
    "a name of another sum": "v[n] = x[n] - y[n]; L[n] = v[n]*log(x[n] + y[n])",
}


@pytest.mark.parametrize("case", KEPT)
def test_another_sum_does_not(case):
    assert "/" in gradient(PAIR + KEPT[case])


def test_one_less_a_share_under_a_bracket_is_one_where_it_fails():
    """1 - [c]*x/M, M = [c]*x + [c]*y, is no [c]*y/M."""
    x, y, c = (Access(name, ()) for name in "xyc")
    M, bracket = Access("M", ()), Iverson(c)
    whole = add(mul(atom(bracket), atom(x)), mul(atom(bracket), atom(y)))
    share = mul(atom(bracket), atom(x), atom(M, Fraction(-1)))

    def sums(base):
        return (whole,) if base is M else ()

    assert _other_share(add(ONE, scale(share, -1)), sums) is None
    plain = add(atom(x), atom(y))
    rest = _other_share(
        add(ONE, scale(mul(atom(x), atom(M, Fraction(-1))), -1)), lambda base: (plain,)
    )
    assert rest is mul(atom(y), atom(M, Fraction(-1)))


def test_what_a_bracket_takes_stays_under_it():
    text = (
        "op f(x[n], y[n], m[n]: bool) -> L\nM[n] = where(m[n], x[n] + y[n], 0)\n"
        "L[n] = where(m[n], x[n]*log(M[n]) + y[n]*log(M[n]), 0)"
    )
    assert gradient(text) == "[m[n]]·G[n]·(1 + log(M[n]))"
    x, y = torch.tensor([0.5, 2.0], requires_grad=True), torch.tensor([0.25, 3.0])
    load(parse(text))(x, y, torch.tensor([True, False])).sum().backward()
    assert torch.allclose(x.grad, torch.tensor([1 + torch.log(torch.tensor(0.75)), 0.0]))


def test_a_power_of_a_sum_of_nothing_has_no_brackets():
    """e[0,1] is a mean of nothing: 0 times 1/0."""
    text = (
        "op f(r[k], v[i], q[p]) -> y\ne[i,k] = mean[p | i == k](v[i]*q[p])*r[k]\n"
        "y = e[0,0]*v[1] + e[0,1]**2"
    )
    assert load(parse(text))(torch.rand(3), torch.rand(4), torch.rand(2)).isnan()
