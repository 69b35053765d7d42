"""Parts of an equation that are too large to stand in its formulas become variables."""

from __future__ import annotations

import pytest
from kit.equations import SIZES, index, samples

from derive import derivation, load, parse
from derive.algebra.expr import Access, Add, Call, Mul, num
from derive.algebra.interpret import array
from derive.calculus.parts import with_named_parts
from derive.check.verify import checks_of

i = index("i")
x = Access("x", (i,))
LONG = Add(tuple(Call("sin", (num(k) * x,)) for k in range(2, 14)))


def named(e):
    made = {}

    def name(part):
        made[f"u{len(made)}"] = part
        return Access(f"u{len(made) - 1}", (i,))

    return with_named_parts(e, {"x"}, name), made


def test_a_large_argument_has_a_name_and_the_value_stays():
    e, made = named(Call("exp", (LONG,)))
    assert e is Call("exp", (Access("u0", (i,)),)) and made == {"u0": LONG}
    tensors = samples()
    known = tensors | {n: array((i,), part, tensors, SIZES, {}) for n, part in made.items()}
    want = array((i,), Call("exp", (LONG,)), tensors, SIZES, {})
    assert array((i,), e, known, SIZES, {}) == pytest.approx(want)


def test_what_is_small_stays_as_it_is():
    e = Mul((x, Call("exp", (x + num(1),))))
    assert named(e) == (e, {})


def test_a_long_product_is_one_of_products():
    op = parse(
        "op f(" + ", ".join(f"a{n}[i]" for n in range(20)) + ") -> y\n"
        "y[i] = " + "*".join(f"a{n}[i]" for n in range(20))
    )
    longest = max(len(str(f)) for f in derivation(op).gradients.values())
    assert longest < 20 * len("a19[i]·")


@pytest.mark.parametrize(
    "loss",
    (
        "sum[i,j](where(m[i,j], (X[i,j] - sum[r](A[i,r]*B[j,r]))**2, 0))",
        "sum[i,j | m[i,j]]((X[i,j] - sum[r](A[i,r]*B[j,r]))**2)",
        "mean[i,j](X[i,j]*(sum[r](A[i,r]*B[j,r]) + X[i,j] - 1)**2 + where(m[i,j], X[i,j], 0))",
    ),
)
def test_a_residual_is_not_multiplied_out(loss):
    op = parse(f"op f(X[i,j], A[i,r], B[j,r], m[i,j]: bool) -> L\nL = {loss}")
    assert "r′" not in str(derivation(op).gradients["A"])
    assert all(c.ok for c in checks_of(op, load(op)))
