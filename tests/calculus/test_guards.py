"""Conditions as conjunctions: what of them is certain, and what stands beside a factor."""

import math

import numpy as np
import pytest
import torch
from kit.each import each_row
from kit.lowered import assert_right

import derive
from derive import derivation, load, parse, read_torch, source
from derive.algebra.expr import Access, And, Delta, Guard, Index, Iverson, Rel, Size, num
from derive.algebra.inequalities import Bounds
from derive.algebra.logic import conditions_of, conjunction
from derive.algebra.poly import Term, add, atom, constant, make_term, scale
from derive.calculus import guards as c
from derive.calculus.guards import bounds_of, case_of, certain_positions, least_sizes, only_case
from derive.check import oracle
from derive.check.checks import checks_of

i, j = Index("i", "n"), Index("j", "n")
BOUNDS = Bounds({"n": None})
x = Access("x", (i,))
FIRST, SECOND = Rel("<", i, j), Rel("<", j, num(3))


def test_a_conjunction_is_taken_apart_and_made_again():
    both = And((FIRST, SECOND))
    assert conditions_of(And((both, FIRST))) == (FIRST, SECOND, FIRST)
    assert conjunction([FIRST, SECOND, FIRST]) is both
    assert conjunction([FIRST]) is FIRST


def test_conditions_of_other_indices_are_apart():
    alone = Rel("<", i, num(2))
    assert {
        frozenset(conditions_of(g)) for g in c.group_by_indices(And((FIRST, alone, SECOND)))
    } == {frozenset({FIRST}), frozenset({alone}), frozenset({SECOND})}


def test_a_guard_that_always_holds_is_gone():
    assert c.simplify_guards(BOUNDS, Access("x", (Guard(Rel("<", i, Size("n")), i),))) is x
    kept = Access("x", (Guard(FIRST, i),))
    assert c.simplify_guards(BOUNDS, kept) is kept
    assert c.without_guards(kept, frozenset({FIRST})) is x


def test_a_bracket_that_always_holds_is_1_and_one_that_never_does_0():
    def of(condition):
        t = make_term(1, (), (Iverson(condition), x))
        assert isinstance(t, Term)
        return c.known(BOUNDS, t)

    always = of(Rel("<=", num(0), i))
    assert always is not None and [t.factors for t in always.terms] == [(x,)]
    never = of(Rel("<", i, num(0)))
    assert never is not None and never.terms == ()
    assert of(FIRST) is None


def test_some_position_is_met_for_certain():
    assert c.has_a_member(BOUNDS, Rel("<=", j, i), j)
    assert not c.has_a_member(BOUNDS, Rel("<", j, i), j)


INPUTS = "op f(x[k,n], v[n], s[k]: int, t[k,l]: int, T: int, c[k]: bool, u[l]) -> y\n"
CERTAIN = {
    "y[k] = v[s[k]]*u[0]": {"s": ["n"]},
    "y[k] = sum[l](exp(v[t[k,l]])*u[l])": {"t": ["n"]},
    "y[k] = x[k,s[k]]/v[T]": {"s": ["n"], "T": ["n"]},
    "e[k] = v[s[k]]\ny[k] = where(c[k], e[k], 0)": {"s": ["n"]},
    "y[k,l] = u[l]*v[s[k]] + x[s[k],0]": {"s": ["n", "k"]},
    "y[l] = sum[k](x[k,t[k,l]])": {"t": ["n"]},
    "y[k] = detach(v[s[k]])**2": {"s": ["n"]},
    "y[k] = where(v[s[k]] > 0, u[0], 0)": {"s": ["n"]},
    "y[k] = [v[s[k]] > 0 and c[k]]": {"s": ["n"]},
    "y[k] = [v[s[k]] > 0]*u[0]": {"s": ["n"]},
    "y[k] = sum[l | v[t[k,l]] > 0](u[l])": {"t": ["n"]},
    # A guard, or a part of the tensor.
    "y[k] = [c[k] and v[s[k]] > 0]": {},
    "y[k] = where(c[k], v[s[k]], 0)": {},
    "y[k] = [c[k]]*v[s[k]]": {},
    "y[k] = [c[k]]*[v[s[k]] > 0]": {},
    "y[k] = sum[l | u[l] > 0](v[t[k,l]])": {},
    "y[k] = any[l](v[t[k,l]] > 0)": {},
    "y[k] = v[s[0]]*x[k,0]": {},
    "y[k] = v[t[k,k]]": {},
    "y[k] = v[s[k] + 1]": {},
}


@pytest.mark.filterwarnings("ignore")
@each_row("equations", CERTAIN)
def test_only_what_is_always_read_is_certain(equations):
    assert certain_positions(parse(INPUTS + equations)) == CERTAIN[equations]


def test_bounds_know_of_every_element():
    bounds = Bounds(positions={"s": ["n"]})
    for position in (Access("s", (Index("k", "k"),)), Access("s", (num(0),))):
        assert bounds.holds(Rel("<=", num(0), position)) is True
        assert bounds.holds(Rel("<", position, Size("n"))) is True
        assert bounds.holds(Rel("<", position, num(3))) is None
    bounds = Bounds(positions={"s": ["n", "m"]})
    assert bounds.holds(Rel("<", Access("s", (num(0),)), Size("m"))) is True
    other = Access("t", (Index("k", "k"),))
    assert bounds.holds(Rel("<", other, Size("n"))) is None


TEXTS = {
    "a softmax over segments": (
        "op f(u[k], s[k]: int, v[n]) -> y\nt[n] = sum[k | s[k] == n](exp(u[k]))\n"
        "y[k] = exp(u[k])/t[s[k]]*v[s[k]]"
    ),
    "deviations from the mean of a segment": (
        "op f(x[k,d], s[k]: int, w[n]) -> y\nm[n,d] = mean[k | s[k] == n](x[k,d])\n"
        "y[k,d] = (x[k,d] - m[s[k],d])*w[s[k]]"
    ),
    "distances from the greatest": (
        "op f(x[k,d], s[k]: int, w[n]) -> y\nm[n,d] = amax[k | s[k] == n](x[k,d])\n"
        "y[k,d] = (m[s[k],d] - x[k,d])*w[s[k]]"
    ),
    "a sum of one": (
        "op f(x[k], s[k]: int, w[n]) -> y\ny[k] = w[s[k]] + sum[n | n == s[k]](exp(w[n])*x[k])"
    ),
    "attention over the edges of a graph": (
        "op f(h[n,d], a[d], b[d], src[k]: int, dst[k]: int; slope=0.2) -> y\n"
        "r[k] = sum[d](a[d]*h[src[k],d] + b[d]*h[dst[k],d])\n"
        "u[k] = where(r[k] > 0, r[k], slope*r[k])\n"
        "t[n] = sum[k | dst[k] == n](exp(u[k]))\n"
        "y[n,d] = sum[k | dst[k] == n](exp(u[k])/t[n]*h[src[k],d])"
    ),
    "messages between nodes": (
        "op f(h[n,d], a[k], src[k]: int, dst[k]: int) -> y\n"
        "y[n,d] = h[n,d]**2 + sum[k | dst[k] == n](a[k]*h[src[k],d]*h[dst[k],d])"
    ),
}


ALONE = {name: text for name, text in TEXTS.items() if "s[k]" in text}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_all_checks_pass(text):
    op = parse(text)
    assert not [c for c in checks_of(op, load(op)) if not c.ok]


@pytest.mark.parametrize("text", ALONE.values(), ids=ALONE)
def test_no_code_asks_whether_a_position_is_one(text):
    code = source(parse(text))
    assert "s >= 0" not in code
    assert "narrow" not in code
    assert "arange" not in code


@pytest.mark.parametrize("text", ALONE.values(), ids=ALONE)
@pytest.mark.parametrize("wrong", [-1, 2])
def test_a_position_out_of_range_is_an_error(text, wrong):
    op = parse(text)
    sizes = {"k": 3, "d": 4, "n": 2}
    given = [
        torch.tensor([0, wrong, 1])
        if t.kind == "int"
        else torch.ones([sizes[i.extent] for i in t.axes])
        for t in op.inputs
    ]
    with pytest.raises((IndexError, RuntimeError), match=r"index|range|bounds"):
        load(op)(*given)


def test_a_guarded_position_may_be_none():
    text = (
        "op f(x[k], s[k]: int, w[n]) -> y\nt[n] = sum[k | s[k] == n](x[k])\n"
        "y[k] = where(s[k] >= 0, w[s[k]]*t[s[k]], 0)"
    )
    x = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)
    w = torch.tensor([3.0, 5.0], requires_grad=True)
    y = load(parse(text))(x, torch.tensor([1, -1, 1]), w)
    assert y.tolist() == [25.0, 0.0, 25.0]
    made = torch.autograd.grad(y.sum(), (x, w))
    assert [g.tolist() for g in made] == [[10.0, 0.0, 10.0], [0.0, 10.0]]


FORMULAS = {
    "y[k,d] = x[k,d] - t[s[k],d]*w[s[k]]": "2·grad_t[s[k],d]·x[k,d] + G[k,d]",
    # A sum within is made once for every n.
    "y[k,d] = w[s[k]]*x[k,d] + sum[n | s[k] == n](t[n,d]*sum[l](z[l,n])*x[k,d])": None,
}


@pytest.mark.parametrize("equation", FORMULAS)
def test_the_gradient_is_read_where_the_position_says(equation):
    text = (
        "op f(x[k,d], s[k]: int, w[n], z[l,n]) -> y\n"
        "t[n,d] = z[0,n] + sum[k | s[k] == n](x[k,d]**2)\n"
    )
    found = str(derive.derivation(parse(text + equation)).gradients["x"])
    if FORMULAS[equation] is None:
        assert "Σ[n,l | s[k] = n] z[l,n]·t[n,d]" in found
    else:
        assert found == f"grad_x[k,d] = {FORMULAS[equation]}"


def test_what_is_asked_of_some_edge_is_known_of_one():
    """No [some edge leads to n] is left beside [dst[k] = n]."""
    derived = derive.derivation(parse(TEXTS["attention over the edges of a graph"]))
    (found,) = map(str, derived.adjoints)
    assert "Σ[d] G[dst[k],d]·(h[src[k],d] − y[dst[k],d])" in found
    assert "some" not in found
    code = source(parse(TEXTS["attention over the edges of a graph"]))
    assert "some" not in code
    assert "narrow" not in code


PADDED = {
    "edges to no node": "y[n] = sum[k | dst[k] == n](w[k]*x[src[k]]*x[dst[k]])",
    "the mean over them": "y[n] = sum[k | n == dst[k]](log(x[src[k]])/x[dst[k]])",
    "one more condition, which is read there": "y[n] = sum[k | dst[k] == n and m[n]](x[src[k]])",
    "a condition of the node that is read": (
        "y[n] = sum[k | dst[k] == n]([m[n]]*x[src[k]]*where(x[dst[k]] > 1, w[k], x[n]))"
    ),
    "a mask of pairs": "y[n] = sum[k | w[k] > x[n] + 0.65](x[src[k]]*w[k])",
    "a condition about none of its indices": "y[n] = where(x[n] > 9, sum[k](x[src[k]]*w[k]), x[n])",
    "what an or asks last": "y[k] = where(w[k] < 0.9 or x[src[k]] > 0, w[k]**2, 1)",
    "a composite axis": "y[j,l] = [t == j]*r[(l j)]*where(x[t] > 0 and r[(l j)] > 0, x[t], 1)",
    "a position of a position": "y[n] = sum[k | dst[k] == n](x[src[src[k]]]*w[k])",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", PADDED)
def test_what_a_condition_excludes_may_be_no_position(case):
    op = parse(
        "op f(x[n], m[n]: bool, src[k]: int, dst[k]: int, w[k], t: int, r[(l j)]; a=size(j))"
        f" -> y\n{PADDED[case]}"
    )
    arrays = {
        "x": np.array([0.7, 1.3, 1.1]),
        "m": np.array([True, False, True]),
        "src": np.array([0, 1, -5, 9, 1]),
        "dst": np.array([1, 0, -1, 3, 1]),
        "w": np.array([1.2, 1.7, 0.6, 0.5, 0.8]),
        "t": np.array(-7),
        "r": np.array([0.4, 0.9, 1.4, 0.6, 1.2, 0.2]),
    }
    given = {t.name: arrays[t.name] for t in op.inputs}
    leaves = {n: torch.from_numpy(a) for n, a in given.items()}
    smooth = [n for n, a in given.items() if a.dtype.kind == "f"]
    for name in smooth:
        leaves[name].requires_grad_()
    y = derive.load(op)(*leaves.values(), a=2)
    wanted = oracle.outputs(op, given, {"a": 2})["y"]
    np.testing.assert_allclose(y.detach().numpy(), wanted, 1e-12)
    G = np.arange(1.0, wanted.size + 1).reshape(wanted.shape)
    found = torch.autograd.grad(
        y, [leaves[n] for n in smooth], torch.from_numpy(G), materialize_grads=True
    )
    for name, gradient in zip(smooth, found, strict=True):
        slope = oracle.gradient(op, given, {"y": G}, {"a": 2}, name)
        np.testing.assert_allclose(gradient.numpy(), slope, 1e-6, 1e-8)


@pytest.mark.parametrize("kind", ["any", "all"])
def test_what_no_condition_excludes_is_read_though_the_answer_is_known(kind):
    op = parse(f"op f(m[n]: bool, s[k]: int, x) -> y\ny = x*[{kind}[k](m[s[k]])]")
    given = {"m": np.array([kind == "any"]), "s": np.array([0, 7]), "x": np.array(2.0)}
    with pytest.raises(IndexError):
        oracle.outputs(op, given, {})
    with pytest.raises(IndexError):
        load(op)(*(torch.as_tensor(given[t.name]) for t in op.inputs))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("equations", "sizes"),
    [
        ("y[k] = v[3]*x[k,0] + v[1]", {"n": 4}),
        ("y[k] = where(v[2] > 0, v[4], 0)*x[k,s[k]]", {"n": 3}),
        ("y[k] = where(c[k], v[2], 0)", {}),
        ("y[l] = sum[k | c[k]](x[k,2])*u[l]", {}),
    ],
)
def test_an_axis_that_is_read_at_a_number_has_that_many_positions(equations, sizes):
    op = parse(INPUTS + equations)
    assert least_sizes(op) == sizes
    bounds = bounds_of(op)
    for extent, least in sizes.items():
        assert bounds.holds(Rel("<=", num(least), Size(extent))) is True
        assert bounds.holds(Rel("<=", num(least + 1), Size(extent))) is None


def test_a_window_of_a_given_size_holds_its_middle():
    op = parse(
        "op f(x[c]; window=size(w)) -> y\n"
        "y[c] = log(sum[d | c - size(w)/2 <= d and d <= c + size(w)/2 - 1/2](x[d]**2))"
    )
    assert least_sizes(op) == {"w": 1}
    assert ".any(" not in source(op)
    failed = [c for c in checks_of(op, load(op)) if not c.ok]
    assert not failed, failed


NEIGHBOURS = (
    "op f(x[n], s[k]: int, w[k]) -> y\n"
    "y[k] = (1 - w[k])*x[s[k]] + w[k]*where(s[k] + 1 < size(n), x[s[k]+1], 0)"
)
STARTS = "op f(x[n], s[k]: int, w[k]) -> y\ny[k] = x[0]*w[k] + where(w[k] > 1, x[0], x[s[k]])"


@pytest.mark.parametrize("text", [NEIGHBOURS, STARTS])
def test_an_axis_on_which_something_is_read_is_not_asked_whether_it_is_empty(text):
    op = parse(text)
    assert "if x.shape" not in source(op)
    failed = [c for c in checks_of(op, load(op)) if not c.ok]
    assert not failed, failed
    empty = torch.zeros(0, dtype=torch.float64, requires_grad=True)
    if text is NEIGHBOURS:
        y = load(op)(empty, torch.zeros(0, dtype=torch.int64), empty.detach())
        (grad,) = torch.autograd.grad(y.sum(), empty)
        assert y.shape == grad.shape == (0,)


def test_a_sum_that_no_position_has_is_made_before_what_is_placed():
    """Sum_{u,k,o} [p(u,k) on the axis]*delta(t, p(u,k))*G[o,u]*W[o,c,k] is no tensor of o*c*k*u."""
    op = parse(
        "op f(x[c,t], off[u,k]: int, W[o,c,k]) -> y\n"
        "y[o,u] = sum[c,k](W[o,c,k]*where(0 <= u + off[u,k] and u + off[u,k] < size(t), "
        "x[c,u+off[u,k]], 0))"
    )
    code = source(op)
    assert "_flatten(W, 1, 2).mT @ G" in code
    failed = [c for c in checks_of(op, load(op)) if not c.ok]
    assert not failed, failed


BOUNDS_POSITIONS = Bounds({"t": num(3), "u": num(4), "v": num(2), "n": None})
t, u, v, n = (Index(name, name) for name in "tuvn")


def rel(op, left, right):
    return Rel(op, *(e if hasattr(e, "terms") else constant(e) for e in (left, right)))


def row_major(*parts):
    return add(constant(0), *(scale(atom(i), c) for c, i in parts))


@each_row("position", range(12))
def test_a_row_major_position_has_a_digit_for_each_index(position):
    case = case_of(BOUNDS_POSITIONS, rel("==", row_major((4, t), (1, u)), position))
    assert not case.denied
    assert case.at(position) == (Delta(t, num(position // 4)), Delta(u, num(position % 4)))
    turned = case_of(BOUNDS_POSITIONS, rel("!=", position, row_major((4, t), (1, u))))
    assert turned.denied and turned.indices == case.indices and turned.position == position


@each_row(
    "condition",
    [
        rel("==", row_major((3, t), (1, u)), 5),
        rel("==", row_major((4, t)), 4),
        rel("==", row_major((4, t), (-1, u)), 4),
        rel("==", row_major((1, n)), 0),
        rel("==", row_major((1, t)), 3),
        rel("==", row_major((1, t)), -1),
        rel("<=", row_major((1, t)), 1),
        rel("==", row_major((1, t)), row_major((1, u))),
        rel("==", row_major((1, t)), atom(Size("n"))),
    ],
)
def test_others_are_no_cases(condition):
    assert case_of(BOUNDS_POSITIONS, condition) is None
    assert only_case(BOUNDS_POSITIONS, condition, ()) is None


def test_what_is_left_when_others_are_denied():
    first, second = (rel("!=", row_major((1, t)), m) for m in (0, 2))
    assert only_case(BOUNDS_POSITIONS, first, ()) is None
    assert only_case(BOUNDS_POSITIONS, first, (second,)) == (Delta(t, num(1)),)
    assert only_case(BOUNDS_POSITIONS, first, (rel("!=", row_major((1, u)), 2),)) is None
    assert only_case(BOUNDS_POSITIONS, rel("!=", row_major((1, v)), 0), ()) == (Delta(v, num(1)),)


def test_a_delta_elsewhere_is_excluded():
    case = case_of(BOUNDS_POSITIONS, rel("!=", row_major((4, t), (1, u)), 6))
    assert case.excludes(Delta(t, num(0))) and case.excludes(Delta(u, num(3)))
    assert not case.excludes(Delta(t, num(1))) and not case.excludes(Delta(v, num(0)))


CHOSEN = (
    "op f(x[n], z[n]; size(t)=3) -> y\n"
    "y[n,t] = where(t==0, x[n]*z[n], where(t==1, sin(x[n]), z[n]**2))",
    "op f(x[n], z[n]; size(t)=2, size(u)=3) -> y\n"
    "y[t,n,u] = where(3*t+u==0, x[n], where(3*t+u==1, z[n]**2, where(3*t+u==2, sin(x[n]), "
    "where(3*t+u==3, x[n]*z[n], where(3*t+u==4, exp(z[n]), 1)))))",
    "op f(x[n], z[n]; size(t)=3) -> y\n"
    "c[n,t] = where(t!=1, where(t==0, x[n], z[n]), x[n]*z[n])\n"
    "y[n] = c[n,2]*c[n,1] + c[n,0]",
)


@pytest.mark.parametrize("text", CHOSEN)
def test_chosen_values_are_stacked_without_masks(text):
    assert_right(text)
    code = source(parse(text))
    assert "mask" not in code and "rt.where" not in code


def test_some_cases_and_others():
    assert_right(
        "op f(x[n], w[t,n]; size(t)=4) -> y\ny[t,n] = where(t==0, x[n]**2, where(t==2, 1, w[t,n]))",
        x=np.array([0.5, 1.5, -0.5]),
        w=np.random.default_rng(0).uniform(0.5, 1.5, (4, 3)),
    )


def rotated(q):
    w, x, y, z = (q / q.norm(dim=-1, keepdim=True)).unbind(-1)
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]
    rows += [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]
    rows += [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]
    return torch.stack(rows, -1).view(-1, 3, 3)


def test_a_stack_that_is_viewed_as_a_matrix():
    q = torch.tensor(np.random.default_rng(0).normal(size=(5, 4)), requires_grad=True)
    op = read_torch(rotated, q.detach())
    y, expected = load(op)(q), rotated(q)
    torch.testing.assert_close(y, expected)
    G = torch.rand_like(y)
    found, right = (torch.autograd.grad(e, q, G, create_graph=True)[0] for e in (y, expected))
    torch.testing.assert_close(found, right)
    seconds = (torch.autograd.grad(g.square().sum(), q)[0] for g in (found, right))
    torch.testing.assert_close(*seconds)
    assert "Σₖ" not in "".join(map(str, derivation(op).gradients.values()))


def test_a_condition_that_others_imply_stays_where_it_alone_guards():
    """[1 <= i] is implied by [h < i], and guards what has no h; [i < k] by i < j < k."""
    bounds = Bounds({"n": None})
    h, i, j, k = (Index(n, "n") for n in "hijk")
    below, first = Rel("<", h, i), Rel("<=", num(1), i)

    def left(conditions, *factors):
        t = make_term(1, (), [*map(Iverson, conditions), *factors])
        found = c.known(bounds, t)
        (kept,) = [t] if found is None else found.terms
        return {
            x for f in kept.factors if isinstance(f, Iverson) for x in conditions_of(f.condition)
        }

    assert left([below, first], Access("x", (h, i))) == {below}
    assert left([below, first], Access("x", (h,)), Access("y", (i,))) == {below, first}
    chain = Rel("<", i, j), Rel("<", j, k)
    assert left([*chain, Rel("<", i, k)], Access("x", (i, j)), Access("y", (k,))) == {*chain}
    every = {*chain, Rel("<", i, k)}
    assert left([*chain, Rel("<", i, k)], Access("x", (i, k)), Access("y", (j,))) == every
    op = parse(
        "op f(x[i], v[h]; size(h)=size(i)) -> y\ny[i] = x[i]/(1 + logsumexp[h | h < i](v[h])**2)"
    )
    x, v = (torch.rand(4, dtype=torch.float64).requires_grad_() for _ in range(2))
    assert torch.autograd.grad(load(op)(x, v).sum(), v)[0].isfinite().all()


@pytest.mark.parametrize(
    ("equation", "gradients"),
    [
        (
            "y = sum[n,k | p[n,k] > 0](p[n,k]*log(p[n,k]/q[n,k]))",
            {
                "p": "grad_p[n,k] = [p[n,k] > 0]·G·(1 + log(p[n,k]/q[n,k]))",
                "q": "grad_q[n,k] = −[p[n,k] > 0]·G·p[n,k]/q[n,k]",
            },
        ),
        (
            "y[n] = sum[k | p[n,k] > 0](sin(p[n,k]*q[n,k])/(p[n,k]*q[n,k]))",
            {
                "p": "grad_p[n,k] = [p[n,k] > 0]·G[n]·(cos(p[n,k]·q[n,k]) − "
                "sin(p[n,k]·q[n,k])/(p[n,k]·q[n,k]))/p[n,k]"
            },
        ),
    ],
)
def test_what_is_guarded_cancels_as_it_does_without_a_condition(equation, gradients):
    op = parse(f"op f(p[n,k], q[n,k]) -> y\n{equation}")
    found = derive.derivation(op).gradients
    assert {name: str(found[name]) for name in gradients} == gradients


def test_a_bracket_that_a_name_has_still_guards_what_else_is_read_there():
    """y is 0 where m is false, and x**2 is nan or infinite there."""
    op = parse("op f(x[k], w, m[k]: bool) -> y\ny[k] = where(m[k], exp(-w*x[k]**2), 0)")
    for excluded in (1e200, math.nan, math.inf):
        x = torch.tensor([0.5, excluded], dtype=torch.float64, requires_grad=True)
        w = torch.ones((), dtype=torch.float64, requires_grad=True)
        y = load(op)(x, w, torch.tensor([True, False]))
        slope = -math.exp(-0.25)
        grad_x, grad_w = torch.autograd.grad(y.sum(), (x, w))
        torch.testing.assert_close(
            [*grad_x, grad_w], [*torch.tensor([slope, 0, slope / 4]).double()]
        )


def test_a_power_of_zero_has_a_slope_by_an_exponent_with_indices_of_its_own():
    x = torch.tensor([0, 0.5, 2], dtype=torch.float64)
    p = torch.tensor([2, 0.5], dtype=torch.float64, requires_grad=True)
    for body, plain in (
        ("y[n,q] = x[n]**p[q]", lambda: x[:, None] ** p),
        ("y[q] = prod[n](x[n]**p[q])", lambda: (x[:, None] ** p).prod(0)),
        ("y[n,q] = p[q]**x[n]*x[n]**p[q]", lambda: p ** x[:, None] * x[:, None] ** p),
    ):
        found = load(parse(f"op f(x[n], p[q]) -> y\n{body}"))(x, p)
        wanted = plain()
        torch.testing.assert_close(found, wanted)
        weights = torch.arange(found.numel(), dtype=torch.float64).reshape(found.shape).cos()
        grads = [torch.autograd.grad(y, p, weights)[0] for y in (found, wanted)]
        torch.testing.assert_close(*grads)
