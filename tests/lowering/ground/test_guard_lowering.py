"""What a condition excludes reaches nothing: no value, no gradient, no second derivative."""

import math

import numpy as np
import pytest
import torch
from kit.each import each_row, told
from kit.lines import defined, made
from kit.plain import plain
from kit.texts import source
from kit.unwritten import source_without_reuse

import derive
from derive import catalog
from derive.check import oracle, reference
from derive.check.checks import checks_of

CHOICES = {
    "y[n] = where(x[n] > 0, sqrt(x[n]), x[n]**2)": (-1.0, 1.0, -2.0),
    "y[n] = where(x[n] > 0, x[n], expm1(x[n]))": (800.0, 800.0, 1.0),
    "y[n] = where(x[n] > 0, x[n], exp(x[n]) - 1)": (800.0, 800.0, 1.0),
    "y[n] = where(x[n] > 1, 1/x[n], x[n])": (0.0, 0.0, 1.0),
    "y[n] = where(x[n] > 0, log(x[n])*x[n], 0)": (-1.0, 0.0, 0.0),
    "y[n] = [x[n] < 5]*sinh(x[n])": (800.0, 0.0, 0.0),
}


@pytest.mark.parametrize("text", CHOICES)
def test_the_branch_not_taken_leaves_no_trace(text):
    f = derive.load(made(text))
    at, value, slope = CHOICES[text]
    x = torch.tensor([at], dtype=torch.float64, requires_grad=True)
    y = f(x)
    (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, materialize_grads=True)
    assert (y.item(), first.item()) == (value, slope)
    assert second.isfinite()


def test_a_branch_that_stays_below_a_number_is_guarded_inside():
    """exp(-|log x|) is finite wherever log x is; its derivative by x is not."""
    f = derive.load(made("y[n] = where(x[n] > 0, z[n]*exp(-abs(log(x[n]))), 0)"))
    x = torch.tensor([-1.0, 0.5], dtype=torch.float64, requires_grad=True)
    z = torch.tensor([3.0, 3.0], dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(f(x, z).sum(), z, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert (first.tolist(), second.tolist()) == ([0.0, 0.5], [0.0, 1.0])


OF_NUMBERS = (
    "e[i] = where(y[i] > 0 and p > 0, x[i]*log(p), 0)",
    "e[i] = where(y[i] <= 0 or p <= 0, x[i], y[i]*x[i]*log(p))",
    "e[i] = [y[i] > 0]*[p > 0]*x[i]*sqrt(p) + [y[i] <= 0]*x[i]",
    "e[i] = where(y[i] > 0 and p > 0, exp(x[i]*log(p)), 0)",
    "e[i] = where(not (y[i] > 0 and p > 0), x[i], exp(x[i]*log(p)))",
    "e = logsumexp[i | y[i] > 0 and p > 0](x[i]*sqrt(p))",
    "e = prod[i | y[i] > 0 and p > 0](x[i]*sqrt(p))",
    "e[i] = where(y[i] > 0 and p > 0, [not (x[i] > 2.5)]*x[i]*log(p), 0)",
    # Such a condition read at another index, by its name.
    "c[i] = y[i] > 0 and p > 0\ne[i,t] = where(c[t], x[i]*log(p*p), 0)",
)


@each_row("equation", OF_NUMBERS)
@each_row("p", [-1.0, 2.0])
def test_numbers_without_a_value_are_computed_where_both_numbers_and_data_ask(equation, p):
    op = made(f"op f(x[i], y[i]; p) -> e\n{equation}")
    x, y = (
        torch.tensor(values, dtype=torch.float64, requires_grad=True)
        for values in ([0.5, 2.0, 3.0], [1.0, -1.0, 2.0])
    )
    e = derive.load(op)(x, y, p=p)
    expected = reference.values(op, {"x": x, "y": y}, {"p": p})["e"]
    assert torch.equal(e.isinf(), expected.isinf())
    torch.testing.assert_close(e, expected)
    if e.isfinite().all():
        # The reference is differentiated beside what reads both, whatever p lets it read.
        found, wanted = (
            torch.autograd.grad(t.sum() + (x * y).sum(), (x, y)) for t in (e, expected)
        )
        torch.testing.assert_close(found, wanted)


ENTROPIES = {
    # log(1) is 0: nothing is selected away twice.
    "op f(x[n]) -> y\ny[n] = where(x[n] > 0, log(x[n]), 0)": "torch.where(x > 0, x, 1).log()",
    "op f(x[n]) -> y\ny[n] = where(x[n] == 0, 0, x[n]*log(x[n]))": (
        "x * torch.where(x != 0, x, 1).log()"
    ),
    "op f(x[n], q[n]) -> y\ny[n] = where(0 != x[n], x[n]*log(q[n]), 0)": (
        "x * torch.where(x != 0, q, 1).log()"
    ),
    "op f(x[n], q[n]) -> y\ny[n] = where(x[n] == 0, 0, -2*x[n]*log(q[n]/x[n]))": None,
    # Where the condition fails x is no 0, or what stands beside may be a nan.
    "op f(x[n]) -> y\ny[n] = where(x[n] > 0, x[n]*log(x[n]), 0)": None,
    "op f(x[n], q[n]) -> y\ny[n] = where(x[n] == 0, 0, q[n]*log(x[n]))": None,
    "op f(x[n], q[n]) -> y\ny[n] = where(x[n] == 0, 0, x[n]*q[n]*log(q[n]))": None,
}


@pytest.mark.parametrize("text", ENTROPIES)
def test_entropies(text):
    """Values, gradients and tangents at zeros, even with a nan beside them, are 0."""
    op = made(text)
    f = derive.load(op)
    code = plain(source_without_reuse(op))
    assert ENTROPIES[text] is None or f"return {ENTROPIES[text]}" in code
    assert not [c for c in checks_of(op, f) if not c.ok]
    zeros = torch.zeros(3, dtype=torch.float64)
    beside = torch.tensor([0.0, -1.0, torch.nan], dtype=torch.float64)
    given = [zeros, beside][: len(op.inputs)]
    assert f(*given).tolist() == [0.0] * 3
    _, tangents = torch.func.jvp(f, tuple(given), tuple(torch.ones_like(t) for t in given))
    assert tangents.tolist() == [0.0] * 3
    leaves = [t.clone().requires_grad_() for t in given]
    G = torch.ones_like(zeros).requires_grad_()
    first = torch.autograd.grad(f(*leaves), leaves, G, create_graph=True)
    assert all(g.tolist() == [0.0] * 3 for g in first)
    if ENTROPIES[text] is None:
        return
    second = torch.autograd.grad([g.sum() for g in first], [*leaves, G], materialize_grads=True)
    assert all(g.tolist() == [0.0] * 3 for g in second)


@pytest.mark.parametrize(
    "text",
    [
        "op f(x[n], a[n], b[n]) -> y\ny[n] = [a[n] > 0]*x[n]*a[n] + [b[n] > 0]*x[n]*b[n]",
        "op f(x[n], a[n], b[n]) -> y\ny[n] = [a[n] > 0]*x[n]*a[n] + [b[n] > 0]*x[n]**2*b[n]",
    ],
)
def test_a_nan_under_false_conditions_is_not_read(text):
    x = torch.tensor([torch.nan, 2.0], requires_grad=True)
    a, b = torch.tensor([-1.0, 1.0]), torch.tensor([-1.0, -1.0])
    y = derive.load(made(text))(x, a, b)
    y.sum().backward()
    assert y.tolist() == [0.0, 2.0]
    assert x.grad.tolist() == [0.0, 1.0]


def test_a_constant_branch_has_the_dtype_of_the_tensors():
    op = made("op f(x[n]; s=0.01) -> y\ny[n] = where(x[n] > 1, x[n], s*x[n])")
    assert "grad_x = rt.where(x > 1, G, ctx.s * G)" in source(op)
    for dtype in (torch.float64, torch.bfloat16):
        x = torch.tensor([-1.0, 2.0], dtype=dtype, requires_grad=True)
        y = derive.load(op)(x)
        (g,) = torch.autograd.grad(y.sum(), x)
        assert y.dtype == g.dtype == dtype
        assert y[0].item() == (
            -0.01 if dtype == torch.float64 else torch.tensor(-0.01, dtype=dtype).item()
        )


NOTHING = {
    "op f(x[i], w[k]) -> y\ny[k] = mean[i | k >= 1](x[i])*w[k]": [0],
    "op f(x[i], w[k]) -> y\ny[k] = max[i | k >= 1](x[i]) + w[k]": [0],
    "op f(x[k], w[k]) -> y\ny[k] = exp(max[i | i < k](x[i]))*w[k]": [],
    "op f(x[i], w[j]) -> y\ny[j] = sum[i](w[j]*softmax[i | i > j](x[i]))": [],
    "op f(x[i], w[k]) -> y\ny[k] = w[k]*sum[i | i < k](log_softmax[i | i < k](x[i]))": [],
    "op f(x, w[e], v[j]) -> y\ny[j] = logsumexp[e | e > j](x + w[e]) + v[j]": [2, 3],
}


@pytest.mark.parametrize("text", NOTHING)
def test_a_reduction_of_nothing(text):
    """Value and gradient are those of the loops, where these are finite."""
    op = made(text)
    rng = np.random.default_rng(0)
    sizes = iter((3, 4))
    extents: dict[str, int] = {}
    tensors = {}
    for t in op.inputs:
        shape = []
        for i in t.axes:
            if i.extent not in extents:
                extents[i.extent] = next(sizes)
            shape.append(extents[i.extent])
        tensors[t.name] = rng.uniform(0.5, 1.5, shape)
    given = {n: torch.tensor(v, requires_grad=True) for n, v in tensors.items()}
    y = derive.load(op)(*given.values())
    expected = oracle.outputs(op, tensors, {})["y"]
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-12)
    G = np.where(np.isfinite(expected), rng.uniform(0.5, 1.5, expected.shape), 0)
    assert sorted(np.flatnonzero(~np.isfinite(expected))) == NOTHING[text]
    finite = torch.tensor(np.isfinite(expected))
    found = torch.autograd.grad(y[finite], list(given.values()), torch.tensor(G)[finite])
    for name, g in zip(given, found, strict=True):
        want = oracle.gradient(op, tensors, {"y": G}, {}, name)
        # A nan that is not differentiated has no difference either.
        known = np.isfinite(want)
        np.testing.assert_allclose(g.numpy()[known], want[known], rtol=1e-6, atol=1e-8)


EXTREMA = (
    "op f(x[i], v[h], w[l]) -> y\ny[l] = w[l]*max[i, h | h <= l](x[i]*v[h])",
    "op f(x[i], v[h]) -> y\nz = argmax[i,h](x[i]*v[h])\ny = x[0]*z",
    "op f(x[i,h,k], v[k]) -> y\nz[k] = argmin[i,h](x[i,h,k]*v[k])\ny[k] = z[k]*v[k]",
)


@pytest.mark.parametrize("text", EXTREMA)
def test_extrema_over_several_indices(text):
    op = made(text)
    assert not [c for c in checks_of(op, derive.load(op)) if not c.ok]


def test_a_position_is_placed_by_a_function_that_differentiates_right_under_two_vmaps():
    """torch 2.13's select_scatter does not."""
    op = made("op f(x[n]) -> y\ny[n] = x[1]*x[n]**2")
    assert "select_scatter" not in source(op)
    f = derive.load(op)
    x = torch.tensor([0.5, 1.5, 2.0], dtype=torch.float64)
    plain = lambda x: x[1] * x**2  # noqa: E731
    ours = torch.func.jacrev(torch.func.jacrev(f))(x)
    torch.testing.assert_close(ours, torch.func.jacrev(torch.func.jacrev(plain))(x))


def test_axes_that_are_composed_behind_a_group():
    x = torch.randn(2, 7, 3, 5, 4, 2, dtype=torch.float64, requires_grad=True)
    y = derive.load(made("op f(x[*p,h,a,w,b]) -> y\ny[*p,(h a),(w b)] = x[*p,h,a,w,b]"))(x)
    assert torch.equal(y, x.reshape(2, 7, 15, 8))
    G = torch.randn_like(y)
    y.backward(G)
    assert torch.equal(x.grad, G.reshape(x.shape))
    text = (
        "op f(x[*p,(h a),(w b)]; r=size(a), s=size(b)) -> y\ny[*p,h,w,a,b] = x[*p,(h a),(w b)]**2"
    )
    z = torch.randn(2, 7, 6, 12, dtype=torch.float64, requires_grad=True)
    y = derive.load(made(text))(z, r=2, s=3)
    want = (z.reshape(2, 7, 3, 2, 4, 3) ** 2).permute(0, 1, 2, 4, 3, 5)
    G = torch.randn_like(y)
    assert torch.equal(y, want)
    ours, theirs = torch.autograd.grad(y, z, G), torch.autograd.grad(want, z, G)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 5)], ids=str)
def test_a_constant_position_along_any_axis(shape):
    op = made("op f(x[*p,t,*q]; dim=axis(t), n=1) -> y\ny[*p,*q] = x[*p,n,*q]")
    f = derive.load(op)
    for dim in range(-len(shape), len(shape)):
        x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        y, want = f(x, dim=dim), x.select(dim, 1)
        G = torch.randn_like(y)
        assert torch.equal(y, want)
        assert torch.equal(torch.autograd.grad(y, x, G)[0], torch.autograd.grad(want, x, G)[0])


def test_axes_given_in_the_wrong_order_are_refused():
    op = made(
        "op f(A[*p,k,*q,j,*r]; d0=axis(k), d1=axis(j)) -> y\n"
        "y[*p,*q,*r] = sum[k,j](A[*p,k,*q,j,*r])"
    )
    f = derive.load(op)
    A = torch.randn(2, 3, 4)
    assert f(A, d0=0, d1=-1).shape == (3,)
    for d0, d1 in ((1, 1), (1, 0), (-1, 1)):
        with pytest.raises(ValueError, match=r"f: d\d"):
            f(A, d0=d0, d1=d1)


def test_positions_are_compared_exactly_in_half_precision():
    """bfloat16 holds no whole numbers beyond 256."""
    f = derive.load(made("op f(x[t]; s=2.0) -> y\ny[t] = where(t < s*t - 700, x[t], 0)"))
    x = torch.ones(1400, dtype=torch.bfloat16, requires_grad=True)
    y = f(x)
    y.sum().backward()
    expected = [float(t < 2 * t - 700) for t in range(1400)]
    assert y.tolist() == x.grad.tolist() == expected


def test_a_bracket_of_one_equation_guards_the_slope_of_another():
    op = made(
        "op f(X[i,d]) -> E\nr[i,j] = sqrt(sum[d]((X[i,d] - X[j,d])**2))\n"
        "E = sum[i,j | i < j](exp(-r[i,j])/r[i,j])"
    )
    X = torch.rand(5, 3, dtype=torch.float64, requires_grad=True)
    r = torch.nn.functional.pdist(X)
    (wanted,) = torch.autograd.grad(((-r).exp() / r).sum(), X)
    (found,) = torch.autograd.grad(derive.load(op)(X), X)
    torch.testing.assert_close(found, wanted)


def test_the_cosine_of_a_zero_vector_has_a_gradient():
    x, y = torch.zeros(3, requires_grad=True), torch.tensor([1.0, 2.0, 3.0])
    f = derive.load(catalog.find("cosine_similarity"))
    (found,) = torch.autograd.grad(f(x, y, dim=0), x)
    (wanted,) = torch.autograd.grad(torch.cosine_similarity(x, y, dim=0), x)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("condition", ["d[e] == n and m[e]", "m[e] and e <= n", "e <= n and m[e]"])
@pytest.mark.parametrize("value", ["x[e]**2", "exp(-x[e])", "log(x[e])"])
def test_what_a_part_of_a_condition_excludes_is_not_read(condition, value):
    op = made(
        f"op f(x[e], d[e]: int, m[e]: bool, w[n]) -> y\ny[n] = w[n]*sum[e | {condition}]({value})"
    )
    x = torch.tensor([2.0, torch.nan, 3.0, 1.5], dtype=torch.float64, requires_grad=True)
    m, d = torch.tensor([True, False, True, True]), torch.tensor([0, 1, 1, 4])
    w = torch.rand(5, dtype=torch.float64, requires_grad=True)
    y = derive.load(op)(x, d, m, w)
    first = torch.autograd.grad(y.sum(), (x, w))
    assert all(t.isfinite().all() for t in (y, *first))
    assert first[0][1] == 0


def test_the_norm_of_a_zero_vector_may_be_divided_by_under_its_bracket():
    op = made(
        "op f(x[n,d]) -> u\nq[n] = sum[d](x[n,d]**2)\nr[n] = where(q[n] > 0, sqrt(q[n]), 0)\n"
        "u[n,d] = where(q[n] > 0, x[n,d]/r[n], 0)"
    )
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    G = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    (found,) = torch.autograd.grad(derive.load(op)(x), x, G)
    (wanted,) = torch.autograd.grad(x[:1] / x[:1].norm(dim=1, keepdim=True), x, G[:1])
    torch.testing.assert_close(found, wanted)


def test_a_bracket_guards_what_is_looked_up_beside_it():
    op = made(
        "op f(v[i], x[j], u[l], T: int) -> y\n"
        "y[i,l] = [l >= 2]*u[l]*min[b](where(l >= 2, v[b]*v[i], inf))*sum[j | T == i](x[j])"
    )
    v, x = torch.tensor([2.0, 3.0, 5.0]), torch.tensor([1.0, 4.0], requires_grad=True)
    u = torch.tensor([7.0, 7.0, 1.0, 2.0])
    y = derive.load(op)(v, x, u, torch.tensor(1))
    (found,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(found, torch.tensor([18.0, 18.0]))


def test_a_parameter_is_an_integer_only_where_positions_are_compared_with_it():
    numbers = made("op f(x[n]; s, t=0.5) -> y\ny[n] = [s > 0 and t < 1]*x[n]")
    positions = made("op f(x[n]; last) -> y\ny[n] = [n <= last]*x[n]")
    assert [p.integer for p in (*numbers.parameters, *positions.parameters)] == [False, False, True]
    assert torch.equal(derive.load(numbers)(torch.ones(2), s=0.1), torch.ones(2))


BRANCHES = (
    # A part that both branches of a condition on numbers could share is computed before it.
    "op f(x[n]; s=0) -> y\ny[n] = where(s == 0, log(x[n]), (2/s)*exp(x[n]*(2/s))*sin(x[n]*(2/s)))",
    "op f(x[n]; a=0) -> y\n"
    "y[n] = where(a == 0, log(x[n]), abs(a - 2)/a*((x[n]**2/abs(a - 2) + 1)**(a/2) - 1))",
    "op f(x[n]; s=-1) -> y\n"
    "y[n] = where(s > 0, sqrt(s)*x[n] + x[n]**2*sin(sqrt(s))*sqrt(s), log(-s) + log(x[n]))",
    "y[n] = where(-size(n) > 0.1, rsqrt(-size(n)), log(x[n]))",
)


@pytest.mark.parametrize("text", BRANCHES)
def test_numbers_of_a_branch_that_is_not_taken_are_no_error(text):
    f = derive.load(made(text))
    x = torch.tensor([2.0, 4.0], requires_grad=True)
    (found,) = torch.autograd.grad(f(x).sum(), x)
    assert torch.equal(found, torch.tensor([0.5, 0.25]))


def test_a_quotient_by_a_number_that_is_0_is_infinite():
    f = derive.load(made("op f(x[n]; s=0) -> y\ny[n] = 2/s*x[n]"))
    assert torch.equal(f(torch.tensor([1.0, -1.0])), torch.tensor([torch.inf, -torch.inf]))


EXCLUDED = (
    # 1/c[1] stands beside a condition with one more index, which excludes it everywhere.
    "y[p] = sum[j](where(A[p,j] > 0.1, A[p,j]/c[j], 0))",
    "y[p] = sum[j](where(c[j]*A[p,j] > 0.1, log(c[j]*A[p,j]), 0))",
    "y[p,k] = sum[j](where(A[p,j] > 0.1, A[p,j]*B[j,k]/c[j], 0))",
    "y[p,k] = sum[j](where(A[p,j] > 0.1, B[j,k]*log(c[j]), 0))",
    "r[j] = 1/c[j]\ny[p] = sum[j](where(A[p,j] > 0.1, A[p,j]*r[j], 0))",
)


@pytest.mark.parametrize("equations", EXCLUDED)
def test_what_a_condition_with_more_indices_excludes_reaches_nothing(equations):
    op = made(f"op f(A[p,j], c[j], B[j,k]) -> y\n{equations}")
    A, B = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.ones(2, 3)
    c = torch.tensor([1.0, 0.0])
    inputs = [t.requires_grad_() for t in (A, c, B)]
    y = derive.load(op)(*inputs)
    first = torch.autograd.grad(y.sum(), inputs)
    assert all(t.isfinite().all() for t in (y, *first))
    assert first[1][1] == 0


def test_a_root_of_a_negative_number_is_no_complex_one():
    x = torch.ones(1)
    for text in ("y[n] = (-2*x[n])**(1/3)", "y[n] = sqrt(-exp(x[n]))"):
        assert derive.load(made(f"op f(x[n]) -> y\n{text}"))(x).isnan().all()
    root = derive.load(made("op f(x[n]; s=8) -> y\ny[n] = s**(1/3)*x[n]"))
    assert root(x).item() == pytest.approx(2)
    assert root(x, s=-8).isnan()


def test_a_bracket_that_does_not_keep_a_read_on_its_axis_is_not_verified():
    op = derive.parse("op f(x[k,k]) -> y; y[l,k] = x[l+1,k]*[l - k < 1]")
    with pytest.raises(IndexError, match="x is read out of range where its guard holds"):
        oracle.outputs(op, {"x": np.ones((2, 2))}, {})
    with pytest.raises(derive.VerificationError, match="finite outputs: x is read out of range"):
        list(checks_of(op, derive.load(op)))


def test_a_softmax_of_nothing_is_nothing():
    text = (
        "op f(S[i,j], m[i,j]: bool, V[j,d]) -> y\n"
        "P[i,j] = softmax[j](where(m[i,j], S[i,j], -inf))\ny[i,d] = sum[j](P[i,j]*V[j,d])"
    )
    S, V = torch.rand(2, 3, requires_grad=True), torch.rand(3, 4, requires_grad=True)
    y = derive.load(made(text))(S, torch.tensor([[True, False, True], [False] * 3]), V)
    assert y[0].isfinite().all()
    assert y[1].eq(0).all()
    found = torch.autograd.grad(y.sum(), (S, V))
    assert all(gradient.isfinite().all() for gradient in found)


@pytest.mark.parametrize("s", [0.5, 2.0])
def test_a_choice_by_a_parameter_has_one_dtype(s):
    text = "op f(v[j], t[i]: int; s=7/10) -> y\ny[j] = sum[i](where(s > 1, v[j], t[i]))"
    v, t = torch.rand(3), torch.tensor([2, 1])
    y = derive.load(made(text))(v, t, s=s)
    assert y.dtype is v.dtype
    torch.testing.assert_close(y, 2 * v if s > 1 else torch.full((3,), 3.0))


@pytest.mark.parametrize(
    "factor",
    ["(q[p]*sin({top}) - 1)", "log_softmax[p](q[p]*sin({top}))", "where(x >= 1, {top}*q[p], v[x])"],
)
def test_a_sum_of_what_takes_nothing_reaches_no_gradient(factor):
    top = "max[z | v[z] > 2](z + 1)"
    equation = f"y[x,p] = where(v[x] > 2, cos(v[0]*(x + 1)), 0)*{factor.format(top=top)}"
    f = derive.load(made(f"op f(v[x], q[p]) -> y\n{equation}"))
    v, q = torch.rand(3, requires_grad=True), torch.rand(2, requires_grad=True)
    y = f(v, q)
    assert all(not t.any() for t in (y, *torch.autograd.grad(y.sum(), (v, q))))


SECOND = dict(
    told(
        """\
a root, masked along the axis that is not summed
    y[n,k] = where(c[k] > 0, sqrt(x[n]*c[k]), 0)
a logarithm in a sum under a mask
    y[k] = sum[n | m[k]](x[n]*log(x[n]*c[k]))*c[k]
a quotient by what a mask keeps
    y[n] = sum[k | c[k] > 0](x[n]**2/c[k])
a softmax of roots
    y[n,k] = softmax[k | m[k]](sqrt(x[n]*c[k]))
a quotient by the sum of what a mask keeps, which may be none
    y[n,k] = [c[k] > x[n]]*x[n]*c[k]/sum[l | c[l] > x[n]](c[l]*x[n])
a quotient by the number of what a mask keeps, which may be 0
    y[n,k] = [c[k] > x[n]]*x[n]*c[k]/sum[l | c[l] > x[n]](1)
the weights of an interpolation
    y[n] = prod[l | l != n](1/(x[n] - x[l]))
a sum with a logarithm among the factors
    y[k] = where(c[k] > 0.5, x[0]*(log(c[k] - 0.5) + x[1])*(sqrt(c[k] - 0.5) + x[2]), 0)
a product of logarithms
    y[n] = prod[k | m[k]](log(x[n]*c[k]))
a root without an index of the mask
    p[n,k] = [x[n]*c[k] > 0.5]*sqrt(c[k] - 0.2)*x[n]; y[n,k] = p[n,k]**2
a mean of logarithms without an index of the mask
    p[n,k] = [x[n]*c[k] > 0.5]*mean[t](x[t]*log(c[k] - 0.2)); y[k] = prod[n](1 + p[n,k])
"""
    )
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", SECOND)
def test_what_a_mask_keeps_out_has_second_derivatives(case):
    op = made(f"op f(x[n], c[k], m[k]: bool) -> y\n{SECOND[case]}")
    x = torch.tensor([0.4, 1.3, 2.1], dtype=torch.float64, requires_grad=True)
    c = torch.tensor([0.0, 1.5, 0.0, 0.7], dtype=torch.float64, requires_grad=True)
    m = c > 0
    found = []
    for f in (derive.load(op), defined(op)):
        y = f(x, c, m)
        G = torch.linspace(0.3, 1.7, y.numel(), dtype=y.dtype).reshape(y.shape).requires_grad_()
        first = torch.autograd.grad(y, (x, c), G, create_graph=True, materialize_grads=True)
        total = sum((g * torch.linspace(-1, 2, g.numel(), dtype=g.dtype)).sum() for g in first)
        second = torch.autograd.grad(total, (x, c, G), materialize_grads=True)
        found.append((y, *first, *second))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(
    "equation",
    [
        "where(i > 0 and j > 0, x[i-1,j-1], 0)",
        "where(i > 0, where(j + 1 < size(j), x[i-1,j+1], 0), 0)",
        "where(1 <= i and not (j < 2), x[i-1,j-2], 0)",
    ],
)
def test_shifts_of_two_axes_under_one_condition_are_zeros_beside_them(equation):
    op = derive.parse(f"op f(x[i,j]) -> y\ny[i,j] = {equation}")
    code = source(op)
    assert "index_put" not in code
    assert "torch.where" not in code
    f = derive.load(op)
    failed = [c for c in checks_of(op, f) if not c.ok]
    assert not failed, failed
    for shape in ((0, 3), (3, 0), (1, 1), (1, 4)):
        x = torch.ones(shape, dtype=torch.float64, requires_grad=True)
        (grad,) = torch.autograd.grad(f(x).sum(), x)
        assert grad.sum() == f(x).sum()


BESIDE_AN_OUTPUT = (
    "f[i,t] = [b[i] < 0.5]*[a[t] == 0]*rsqrt(c[t])",
    "f[i,t] = [b[i] < 0.5]*[a[t] == 0]*b[t]*rsqrt(c[t])",
    "f[i,t] = where(b[i] < 0.5 and a[t] == 0, sin(b[i])/c[t], 0)",
    "f[i,t] = [b[i] < 0.5]*[a[t] == 0]*b[t]*log(c[t])/c[t]",
)


@pytest.mark.parametrize("equation", BESIDE_AN_OUTPUT)
def test_the_brackets_of_an_output_guard_nothing_beside_it(equation):
    op = made(f"op g(a[i], b[i], c[i]) -> f\n{equation}")
    a, b, c = (
        torch.tensor(values, dtype=torch.float64, requires_grad=True)
        for values in ([0.0, 1.0, 0.0], [0.25, 2.0, 0.125], [0.5, 0.0, 2.0])
    )
    expected = reference.values(op, {"a": a, "b": b, "c": c}, {})["f"]
    f = derive.load(op)(a, b, c)
    torch.testing.assert_close(f, expected)
    found, wanted = (
        torch.autograd.grad(t.sum(), (b, c), materialize_grads=True) for t in (f, expected)
    )
    assert all(w.isfinite().all() for w in wanted)
    torch.testing.assert_close(found, wanted)


def test_a_function_of_literals_without_a_value_is_no_error():
    x = torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
    f = derive.load(made("op g(x[i]) -> f\nf[i] = where(x[i] < 9, 0^x[i], log(x[i]-x[i]))"))(x)
    torch.testing.assert_close(f, torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))
    assert torch.autograd.grad(f.sum(), x)[0].eq(0).all()
    f = derive.load(made("op g(x[i]) -> f\nf[i] = x[i]/(x[i] - x[i])"))(x)
    assert f.isnan().tolist() == [True, False, False]
    assert f.isinf().tolist() == [False, True, True]


def test_a_branch_that_is_infinite_in_a_function_reaches_no_row_that_is_left_out():
    score = "sin(logsumexp[k](where(d[o] == n, x[o]*v[k], -inf)))*w[o]"
    op = made(f"op f(z[n], x[o], w[o], v[k], d[o]: int) -> y\n"
              f"y[n] = z[n]*sum[o]([d[o] == n]*softmax[o]({score}))")  # fmt: skip
    z, x, w, v = (torch.rand(n, dtype=torch.float64, requires_grad=True) for n in (5, 3, 3, 4))
    y = derive.load(op)(z, x, w, v, torch.ones(3, dtype=torch.int64))
    # All are read at 1, so the weights there are those of one softmax.
    torch.testing.assert_close(y, z * (torch.arange(5) == 1))
    found = torch.autograd.grad(y.sum(), (x, w, v))
    assert all(torch.allclose(g, torch.zeros_like(g)) for g in found)


def test_an_extremum_under_a_mask_equals_one_of_what_it_is_of():
    """What is computed twice, in other layouts, may round otherwise: no place would win."""
    ours = derive.load(made("op f(x[n,k], m[k]: bool) -> y\ny[n] = amax[k | m[k]](x[n,k]**2.3)"))
    torch.manual_seed(0)
    m = torch.arange(19) < 12
    for dtype in (torch.float32, torch.float64):
        for _ in range(20):
            x = (torch.rand(9, 38, dtype=dtype) + 0.3)[:, ::2].requires_grad_()
            (found,) = torch.autograd.grad(ours(x, m).sum(), x)
            wanted = torch.where(m, x**2.3, -torch.inf).amax(1).sum()
            torch.testing.assert_close(found, torch.autograd.grad(wanted, x)[0])


@pytest.mark.parametrize(
    "condition",
    [
        "x[i,j]**2.3 == amax[k | m[k]](x[i,k]**2.3)",
        "x[i,j]**2.3 == max[k | m[k]](x[i,k]**2.3)",
        "x[i,j]**2.3 == q[i]",
        "2*x[i,j]**2.3 + 1 == 2*q[i] + 1",
        "x[i,j]**2.3 - q[i] == 0",
        "x[i,j] + x[i,j]**2.3 == amax[k | m[k]](x[i,k]**2.3 + x[i,k])",
    ],
)
def test_a_comparison_with_an_extremum_under_a_mask_finds_the_winner(condition):
    """What is computed twice, in other layouts, may round otherwise: no place would win."""
    equation = "q[i] = amax[k | m[k]](x[i,k]**2.3)\n" if "q[i]" in condition else ""
    text = f"op f(x[i,j], m[j]: bool) -> y\n{equation}y[i] = sum[j]([m[j] and {condition}]*x[i,j])"
    ours = derive.load(made(text))
    torch.manual_seed(0)
    m = torch.arange(19) < 12
    for _ in range(20):
        x = (torch.rand(9, 38) + 0.3)[:, ::2].requires_grad_()
        wanted = torch.where(m, x, -torch.inf).amax(1)
        torch.testing.assert_close(ours(x, m), wanted)
        found = torch.autograd.grad(ours(x, m).sum(), x)[0]
        torch.testing.assert_close(found, torch.autograd.grad(wanted.sum(), x)[0])


def test_an_extremum_of_softmaxes_equals_one_of_them():
    op = derive.parse(
        "op f(x[i], a[k], c[j]) -> y\n"
        "y[k,i,j] = amin[t | t != j](softmax[i](sin(c[t] + a[k])*x[i]))"
    )
    code = source_without_reuse(op)
    bodies = code.count("def forward(") + code.count("    def backward(ctx")
    assert code.count("torch.softmax(") == bodies


MASKED_NUMBERS = (
    "[m[i]]*where(k >= 0 and k < size(n), x[k], 0)*z[i]",
    "where(m[i] and k >= 0 and k < size(n), z[i]*x[k]**2, 0)",
    "[m[i]]*z[i]*sum[n | n == k and n >= 0](2*sin(x[n]))",
)
"""A bracket of a number beside one of a tensor, one condition of both, and an equality."""


@each_row("body", MASKED_NUMBERS)
@each_row("size, k", [(0, 0), (1, 2), (4, 2), (3, 9), (4, -1)])
def test_a_position_that_a_number_guards_beside_a_mask_is_read_in_range_only(body, size, k):
    op = made(f"op f(x[n], z[i], m[i]: bool; k=0) -> y\ny[i] = {body}")
    x = torch.linspace(0.2, 0.9, size, dtype=torch.float64).requires_grad_()
    z = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    m = torch.tensor([True, False])
    both = derive.load(op)(x, z, m, k=k), defined(op, k=k)(x, z, m)
    torch.testing.assert_close(*both)
    slopes = (torch.autograd.grad(y.sum(), (x, z), materialize_grads=True) for y in both)
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("condition", ["l < 1", "x[l] > 0", "l < 1 and x[l] > 0"])
def test_a_logarithm_that_is_asked_in_more_places_than_it_is_read_is_selected(condition):
    """Outside of what guards its operand log(1) is 0; elsewhere its brackets are needed."""
    op = made(f"op f(x[l], s) -> y\ny[l] = where({condition}, log(s), 2*x[l])")
    guarded = made(f"op f(x[l], s) -> y\ny[l] = [{condition}]*[s > 0.1]*log(s)")
    for given in (op, guarded):
        for s in (0.7, -0.7):
            tensors = {"x": np.array([0.5, -2.0, 3.0]), "s": np.array(s)}
            with np.errstate(invalid="ignore"):
                (wanted,) = oracle.outputs(given, tensors, {}).values()
            found = derive.load(given)(*map(torch.from_numpy, tensors.values()))
            np.testing.assert_allclose(found.numpy(), wanted)


def test_an_operand_is_kept_below_the_bound_that_its_guard_has():
    """The bound itself is allowed; but log(1) is 0 where log(x) is selected away."""
    op = made("op f(x[n]; t=0) -> y\ny[n] = where(x[n] > t, x[n], exp(x[n]))")
    assert "x.clamp(max=t).exp()" in source_without_reuse(op)
    f = derive.load(op)
    x = torch.tensor([800.0, 0, -1, torch.nan, torch.inf], requires_grad=True)
    (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    assert first[:3].tolist() == pytest.approx([1, 1, math.exp(-1)]) and first[4] == 1
    (second,) = torch.autograd.grad(first[:3].sum(), x)
    assert second[:3].tolist() == pytest.approx([0, 1, math.exp(-1)]) and second[4] == 0
    masked = made("op f(x[n]) -> y\ny[n] = where(not x[n] > 3, log(x[n]), 0)")
    x = torch.tensor([1.0, 2, 4, 800])
    assert derive.load(masked)(x).tolist() == pytest.approx([0, math.log(2), 0, 0])
