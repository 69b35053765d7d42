"""A sum cancels against the name that it defines, and against a power of itself."""

from fractions import Fraction

import pytest
import torch
from kit.each import listed
from kit.lines import defined

from derive import derivation, load, parse
from derive.algebra.expr import Access, Iverson
from derive.algebra.poly import ONE, add, atom, mul, scale
from derive.calculus.ratio_rules import _other_share

PAIR = "op f(x[n], y[n]) -> L\n"


def gradient(text, name="x"):
    """The right side of a gradient."""
    return str(derivation(parse(text)).gradients[name]).partition(" = ")[2]


CANCELLED = listed(
    """\
a name
    op f(x[n], y[n]) -> L; M[n] = x[n] + y[n]; L[n] = x[n]*log(M[n]) + y[n]*log(M[n])
    G[n]·(1 + log(M[n]))
one less a share
    op f(x[n], y[n]) -> L; L[n] = x[n]**2/(x[n]**2 + y[n]**2)
    2·G[n]·x[n]·y[n]²/(x[n]² + y[n]²)²
in another order, with factors
    op f(x[n], y[n]) -> L; M[n] = y[n] + 2*x[n]; L[n] = 2*x[n]*log(M[n]) + y[n]*log(M[n])
    2·G[n]·(1 + log(M[n]))
inline
    op f(x[n], y[n]; b=0.3) -> L; L[n] = (b*x[n] + (1 - b)*y[n])*log(b*x[n] + (1 - b)*y[n])
    b·G[n]·(1 + log(b·x[n] + (1 − b)·y[n]))
inline, term by term
    op f(x[n], y[n]) -> L; L[n] = x[n]*log(x[n] + y[n]) + y[n]*log(y[n] + x[n])
    G[n]·(1 + log(x[n] + y[n]))
through two names
    op f(x[n], y[n]) -> L; A[n] = x[n] + y[n]; M[n] = A[n] + 1; \
      L[n] = x[n]*log(M[n]) + y[n]*log(M[n]) + log(M[n])
    G[n]·(1 + log(M[n]))
a root
    op f(x[n], y[n]) -> L; M[n] = x[n]**2 + y[n]**2; L[n] = x[n]**2*sqrt(M[n]) + y[n]**2*sqrt(M[n])
    3·G[n]·x[n]·√(M[n])
a power that is left
    op f(x[n], y[n]; b=0.3) -> L; L[n] = (b*x[n] + (1 - b)*y[n])**2*log(b*x[n] + (1 - b)*y[n])
    b·G[n]·(b·x[n] + (1 − b)·y[n])·(1 + 2·log(b·x[n] + (1 − b)·y[n]))
under a sum
    op f(x[n], y[n]) -> L; M[n] = x[n] + y[n]; L = sum[n](x[n]*log(M[n]) + y[n]*log(M[n]))
    G·(1 + log(M[n]))
divisors of a divisor
    op f(x[n], y[n]) -> L; L[n] = log(1 + x[n]/y[n])
    G[n]/(x[n] + y[n])
divisors of a divisor, squared
    op f(x[n], y[n]; s=2) -> L; L[n] = y[n]*log(1 + ((x[n] - 1)/s)**2)
    2·G[n]·y[n]·(x[n] − 1)/((x[n] − 1)² + s²)
a part of a name
    op f(x[n], y[n]) -> L; M[n] = exp(x[n]) + y[n]; L[n] = x[n]*M[n] - exp(x[n])*x[n]
    G[n]·y[n]
a divergence
    op f(x[n], y[n]) -> L; m[n] = (x[n] + y[n])/2; \
      L = sum[n](x[n]*log(x[n]/m[n]) + y[n]*log(y[n]/m[n]))
    G·log(x[n]/m[n])
"""
)


@pytest.mark.parametrize("text, expected", [lines for _, lines in CANCELLED], ids=dict(CANCELLED))
def test_a_sum_cancels(text, expected):
    assert gradient(text) == expected
    given = [(torch.rand(4, dtype=torch.float64) + 0.5).requires_grad_() for _ in range(2)]
    op, slopes = parse(text), []
    for f in (defined(op), load(op)):
        value = f(*given)
        G = torch.linspace(1, 2, 4, dtype=torch.float64) if value.ndim else None
        slopes.append(torch.autograd.grad(value, given, G))
    torch.testing.assert_close(*slopes)


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
