"""Equations of groups of axes, told of other axes."""

from derive.algebra.expr import Access, Call, Index, Iverson, Rel
from derive.algebra.poly import ONE, Poly, add, atom, mul, scale, sum_over
from derive.calculus.lets import Let
from derive.kernels.expansion import GroupExpansion, UnfoldedBody, matched, segments
from derive.kernels.kernel_spec import KernelSpec

N, C, T = (Index(name, f"e{name}") for name in "nct")
P, S = Index("p", "ep", True), Index("s", "es", True)


def told(equation: str, home: dict[str, tuple[Index, ...]], x: Poly) -> Poly:
    row = KernelSpec("", equation, "f(x)")
    said = {display_names: name for name, display_names in row.names.items()}
    given = {said[t.name]: x if t.name == "x" else ONE for t in row.operation.inputs}
    return GroupExpansion({said[name]: axes for name, axes in home.items()}, given)(row.body)


def test_a_group_stands_for_several_axes():
    x = atom(Access("X", (N, C, T)))
    groups = "op f(x[*p,*s], w[*s]) -> y; y[*p] = mean[*s](x[*p,*s]*w[*s])"
    axes = "op f(x[p,i,j]) -> y; y[p] = mean[i,j](x[p,i,j])"
    found = told(groups, {"p": (N,), "s": (C, T)}, x)
    wanted = told(axes, {"p": (N,), "i": (C,), "j": (T,)}, x)
    assert found is wanted


def test_what_an_argument_is_may_be_a_sum_with_other_axes():
    x = add(atom(Access("X", (N, C))), scale(sum_over(atom(Access("Z", (N, C))), (C,)), -1))
    found = told("op f(x[p,s]) -> y; y[p] = sum[s](x[p,s]**2)", {"p": (N,), "s": (C,)}, x)
    (term,) = found.terms
    assert len(term.binders) == 1 and found is sum_over(told_square(x), (C,))


def told_square(x: Poly) -> Poly:
    return told("op f(x[p,s]) -> y; y[p,s] = x[p,s]**2", {"p": (N,), "s": (C,)}, x)


def test_axes_are_parted_by_whether_they_are_summed_over():
    row = [(P, False), (S, True)]
    assert list(segments((N, C, T), frozenset((C, T)), row)) == [{"ep": (N,), "es": (C, T)}]
    assert list(segments((N, C, T), frozenset((N,)), row)) == []
    one = Index("c", "ec")
    assert list(segments((N, C), frozenset((N,)), [(N, True), (one, False), (S, True)])) == [
        {"en": (N,), "ec": (C,), "es": ()}
    ]
    # A group is no single axis.
    assert list(segments((P,), frozenset((P,)), [(N, True)])) == []


def test_indices_are_matched_by_their_extents():
    other = Index("m", "en")
    assert list(matched((N,), frozenset((other, C)))) == [{N: other}]
    assert list(matched((N,), frozenset((C,)))) == []


def test_a_condition_and_an_exponential_are_told_too():
    row = KernelSpec(
        "", "op f(x[p,s], m[p,s]: bool) -> y; y[p] = sum[s | m[p,s]](exp(x[p,s]))", "f(x)"
    )
    said = {display_names: name for name, display_names in row.names.items()}
    seen = atom(Iverson(Rel("<=", N, C)))
    given = {said["x"]: atom(Access("X", (N, C))), said["m"]: seen}
    found = GroupExpansion({said["p"]: (N,), said["s"]: (C,)}, given)(row.body)
    own = mul(atom(Call("exp", (atom(Access("X", (N, C))),))), seen)
    assert found is sum_over(own, (C,))


I = Index("i", "n")  # noqa: E741
A, B, U = (atom(Access(name, (I,))) for name in "ABU")
NAMES = {"U": Let("U", (I,), add(A, scale(B, 2)))}


def test_a_term_is_left_out_whole():
    level = UnfoldedBody(add(mul(U, A), B), NAMES.get)
    assert level.whole is add(mul(A, A), scale(mul(A, B), 2), B)
    assert level.without(add(mul(A, A), scale(mul(A, B), 2))) is B
    assert level.without(mul(A, A)) is None


def test_terms_may_have_another_form():
    level = UnfoldedBody(U, NAMES.get, lambda p: scale(p, 3))
    assert level.whole is add(scale(A, 3), scale(B, 6))
