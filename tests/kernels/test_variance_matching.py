"""What is normalised is found through the names that it is told in."""

from dataclasses import replace

from derive.algebra.expr import Access, Index, tensors
from derive.algebra.poly import add, atom, mul, power, scale, sum_over
from derive.calculus.lets import Let
from derive.kernels.expansion import (
    candidates,
    derived_lookup,
    expansion_levels,
    multiplied_out,
    squares,
)

N, I = Index("n", "en"), Index("i", "ei")  # noqa: E741
X, W, MU, U, Y = (
    atom(Access(name, axes))
    for name, axes in zip("XWMUY", [(N, I), (I,), (N,), (N, I), (N, I)], strict=True)
)
LETS = {
    "M": Let("M", (N,), sum_over(X, (I,))),
    "U": Let("U", (N, I), add(X, scale(MU, -1))),
    "V": Let("V", (N,), sum_over(power(U, 2), (I,))),
    "Y": Let("Y", (N, I), mul(U, W)),
    "@X": Let("@X", (N,), sum_over(mul(Y, atom(Access("G", (N, I)))), (I,))),
}
V = atom(Access("V", (N,)))


def test_a_square_that_is_summed_is_found_below_names():
    ((base, axes),) = squares(mul(Y, V), LETS.get)
    (own,) = candidates(base, axes, LETS.get)
    assert tensors(own) == {"X"} and [i.extent for i in axes] == ["ei"]


def test_what_is_made_of_x_alone_is_opened():
    find = derived_lookup(LETS.get, X)
    assert [name for name in (*LETS, "X", "W") if find(name)] == ["M", "U", "V"]


def test_what_a_name_is_made_of_does_not_depend_on_what_was_asked_before():
    """A name that is too deep below the first is not too deep by itself."""
    chain = {"C0": Let("C0", (N, I), scale(X, 2))}
    for n in range(1, 9):
        chain[f"C{n}"] = Let(f"C{n}", (N, I), scale(atom(Access(f"C{n - 1}", (N, I))), 2))
    alone = [name for name in chain if derived_lookup(chain.get, X)(name)]
    find = derived_lookup(chain.get, X)
    deepest_first = [name for name in reversed(chain) if find(name)]
    assert deepest_first[::-1] == alone == [f"C{n}" for n in range(6)]


def test_more_is_opened_step_by_step():
    steps = list(expansion_levels(LETS.get, X, add(atom(Access("@X", (N,))), Y)))
    assert [[name for name in LETS if find(name)] for find in steps] == [
        ["M", "U", "V"],
        ["M", "U", "V", "Y"],
        ["M", "U", "V", "Y", "@X"],
    ]


def test_what_a_kernel_gives_besides_stays_a_name():
    given = {**LETS, "M": replace(LETS["M"], result=True)}
    assert (
        derived_lookup(given.get, X)("M") is None and derived_lookup(LETS.get, X)("M") is not None
    )


def test_a_square_of_a_sum_is_multiplied_out():
    p = add(X, scale(sum_over(X, (I,)), -1))
    assert multiplied_out(mul(W, power(p, 2))) is mul(W, p, p)
