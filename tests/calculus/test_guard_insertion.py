"""A sum that takes nothing is 0, whatever multiplies it; a mean of nothing is nan."""

import warnings

import numpy as np
import pytest
import torch
from kit.each import each_row

import derive
from derive.algebra import expr as ex
from derive.calculus.build_lets import flatten_operation
from derive.calculus.guard_insertion import safe_where_read
from derive.check import oracle
from derive.notation.specification import parse

SIZES = {"i": 3, "j": 2, "h": 4, "k": 5, "z": 0}

EQUATIONS = {
    "a logarithm of nothing": "y[i] = sum[h | h > i + 1](log(x[i])*v[h])",
    "a reciprocal": "y[i] = sum[h | h > i + 2](v[h]/x[i])",
    "a mean of nothing": "y[i,k] = sum[h | h > k](mean[j | j < i](w[j]*v[h]))",
    "an equation that is a mean of nothing": (
        "e[i] = mean[j | j < i](w[j])\ny[i,k] = sum[h | h > k](e[i])"
    ),
    "a minimum of nothing": "y[i,j] = sum[h | h < i](amin[k | k < i](u[k]*w[j])*v[h])",
    "a bracket among the factors": (
        "e[i] = mean[h | h < i](v[h])\ny[i] = sum[h]([h == i + 2]*(v[h] - e[i]))"
    ),
    "a bracket out of a mean": "y[i,k] = mean[h | h > i](sum[j | k < 1](w[j])*v[h])",
    "two masks": "y[i,j] = sum[h,k | h > i + 1 and k > h](log(x[i])*u[k])",
    "branches": "y[i] = sum[h](where(h > i + 1, v[h]/x[i], v[h]))",
    "an adjoint of nothing": "y[i] = x[i]/(1 + logsumexp[h | h < i](v[h])**2)",
    "an adjoint of a maximum": "y[i] = x[i]/(1 + max[h | h < i](v[h])**2)",
    "a bracket beside a logsumexp of nothing": (
        "y[j,i] = [j == i]*x[i]*logsumexp[h | h > i + 1](v[h])"
    ),
    "a log_softmax that excludes, of nothing": (
        "y[j] = sum[h]([h == j + 3]*sum[k](log_softmax[k | k < h](u[k])))"
    ),
    "a mean under brackets, in a contraction": (
        "y[j,i,k] = minimum(where(k >= 1, mean[h | h >= i and k >= 1](w[j]*v[h]), u[k]), 2)"
    ),
    "a slope under a bracket": "y[k,i] = [k*i > 2]*log(i*w[1])*v[0]",
    "a mean under a bracket": "y[j,i] = where(j == i + 1, mean[h | h > j + 2](v[h]), 1)*x[i]",
    "a mean under two brackets, of which one is in a branch": (
        "y[i] = logsumexp[h]([h == i]*where(h >= 1, mean[j | j < i](w[0]), v[h]))"
    ),
    "a function of a mean of nothing": ("y[i] = sum[k | i >= k](erf(mean[l | k <= l](x[l]))*u[k])"),
    "a slope in a product of nothing": (
        "y[i] = prod[h | h < i - 1](1 + sin(mean[j | j > h](w[j]))*v[h])"
    ),
    "a slope that lost the index of the sum": (
        "y[i] = sum[k](where(k*x[i] > 2, log(k*x[i]), u[k]))"
    ),
    "a slope beside a sum of nothing": (
        "y[k] = [amin[j](w[j])/u[k] > 9]*log(amin[h](where(h > 0, 0, v[h])*v[h]))"
    ),
    "a softmax of what does not vary": "y[i,h] = softmax[h | h < i](x[i])*v[h]",
    "an infinite branch of a mean": (
        "y[k] = mean[h](log_softmax[k | k <= 1 or k >= 1](u[k])*v[h])"
    ),
    "a mean over an empty axis in a sum": "y[i] = x[i] + sum[j](mean[z](t[z]*w[j]))",
    "a condition within, about the sum outside": (
        "y[h,k] = sum[i]([i == h + 3]*sum[j | j + 1 >= i](w[j]*min[l | k == 1](x[l])))"
    ),
}
TENSORS = {"x": "i", "w": "j", "v": "h", "u": "k", "t": "z"}


def operation(equations):
    inputs = ", ".join(f"{name}[{axes}]" for name, axes in TENSORS.items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parse(f"op f({inputs}) -> y\n{equations}")


def tensors():
    rng = np.random.default_rng(0)
    made = {n: rng.uniform(0.5, 1.5, [SIZES[a] for a in axes]) for n, axes in TENSORS.items()}
    made["x"][-1] = 0
    return made


@each_row("case", EQUATIONS, turns=3)
def test_values_and_gradients_are_those_of_the_loops(case):
    op, given = operation(EQUATIONS[case]), tensors()
    leaves = [torch.from_numpy(a).requires_grad_() for a in given.values()]
    y = derive.load(op)(*leaves)
    with np.errstate(all="ignore"):
        want = oracle.outputs(op, given, {})["y"]
        np.testing.assert_allclose(y.detach().numpy(), want, 1e-12)
        cotangent = np.where(
            np.isfinite(want), np.arange(1.0, want.size + 1).reshape(want.shape), 0
        )
        found = torch.autograd.grad(y, leaves, torch.from_numpy(cotangent), materialize_grads=True)
        for name, got in zip(given, found, strict=True):
            slope = oracle.gradient(op, given, {"y": cotangent}, {}, name)
            known = np.isfinite(slope)
            np.testing.assert_allclose(got.numpy()[known], slope[known], 1e-6, 1e-8)


def test_a_joined_axis_that_is_empty_is_not_written():
    op = parse("op f(v[z], w[i]) -> y\ne[a] = concat[a](v[a], w[a])\ny = e[0]**2")
    v, w = (torch.ones(n, dtype=torch.float64, requires_grad=True) for n in (0, 3))
    y = derive.load(op)(v, w)
    made = torch.autograd.grad(y, (v, w))
    assert [g.tolist() for g in made] == [[], [2.0, 0.0, 0.0]]


@pytest.mark.parametrize(("least", "brackets"), [("1e-6", 0), ("0", 1)])
def test_only_a_slope_that_may_be_infinite_gets_the_bracket_of_its_adjoint(least, brackets):
    op = parse(
        "op f(u[x,y], s[x,y], m[x,y]: bool) -> L\n"
        "a[x,y] = where(x + 1 < size(x), u[x+1,y] - u[x,y], 0)\n"
        "b[x,y] = where(y + 1 < size(y), u[x,y+1] - u[x,y], 0)\n"
        f"r[x,y] = sqrt(a[x,y]**2 + b[x,y]**2 + {least}) - s[x,y]\n"
        "L = sum[x,y | m[x,y]](r[x,y]**2)"
    )
    slopes = [str(f) for f in derive.derivation(op).adjoints if f.name in ("grad_a", "grad_b")]
    assert [text.count("[m[x,y]]") for text in slopes] == [brackets, brackets]


@pytest.mark.parametrize("size", [0, 2])
def test_a_diagonal_that_is_joined_may_be_empty(size):
    op = parse("op f(a[j], X[k,h,k]) -> y\ny[x] = concat[x](a[x], sum[h](X[x,h,x]**2))")
    a = torch.rand(3, dtype=torch.float64, requires_grad=True)
    X = torch.rand(size, 4, size, dtype=torch.float64, requires_grad=True)
    y = derive.load(op)(a, X)
    wanted = torch.cat((a, X.diagonal(0, 0, 2).square().sum(0)))
    torch.testing.assert_close(y, wanted)
    made, expected = (torch.autograd.grad(z.square().sum(), (a, X)) for z in (y, wanted))
    torch.testing.assert_close(made, expected)


@pytest.mark.parametrize("size", [0, 2])
def test_positions_that_are_joined_are_integers(size):
    op = parse("op f(v[j], X[j,j], T[l,l]: int) -> y\ny[x] = concat[x](X[T[x,x],1], v[x])")
    v, X = torch.rand(3), torch.rand(3, 3)
    T = torch.randint(3, (size, size))
    wanted = torch.cat((X[T.diagonal(), 1], v))
    torch.testing.assert_close(derive.load(op)(v, X, T), wanted)


def test_a_group_without_axes_is_read_at_positions():
    op = parse("op f(v[l], T[*p]: int) -> y\ny[*p] = v[T[*p]]")
    for T in (torch.tensor(1), torch.tensor([2, 0]), torch.tensor([[2], [0]])):
        v = torch.rand(3)
        assert torch.equal(derive.load(op)(v, T), v[T])


def test_integers_beside_numbers_have_the_type_of_the_tensors():
    op = operation("y[k,j] = sum[h]([h == k]*where(h == j, 0.1, j))*x[0]/x[0]")
    made = derive.load(op)(*(torch.from_numpy(a) for a in tensors().values()))
    assert made.dtype == torch.float64


@pytest.mark.parametrize(
    "equations",
    [
        "y[i] = sum[h | h >= 0](log(x[i])*v[h])",
        "y[i,k] = sum[h | h > i](u[k]*v[h])",
        "y[i] = mean[h | h > i](v[h])/x[i]",
        "y[i] = sum[h](v[h]/x[i])",
        "y[i] = sum[h | h > i](v[h])*log(x[i])",
    ],
)
def test_what_is_finite_or_outside_gets_no_guard(equations):
    assert all(let.kind != "any" for let in flatten_operation(operation(equations)))


SPLIT = (
    "[j != u and y[i,j] > 0.8]*sqrt(y[i,j] - 0.8)*w[u]",
    "[(j != u or c[i]) and y[i,j] > 0.8]*maximum(log(y[i,j] - 0.8), y[i,j])*w[u]",
    "where(j != u and y[i,j] > 0.8, (y[i,j] - 0.8)**1.5, 0)",
)


@pytest.mark.parametrize("body", SPLIT)
def test_each_part_of_a_condition_guards_what_has_its_indices(body):
    """A part about the summed index is asked where the sum is made, the others where they stand."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        op = parse(f"op f(y[i,j], w[j], c[i]: bool) -> p\np[i,j] = sum[u]({body})")
    rng = np.random.default_rng(0)
    tensors = {
        "y": rng.uniform(0, 1.5, (3, 4)),
        "w": rng.normal(size=4),
        "c": np.array([True, False, True]),
    }
    y, w = (torch.tensor(tensors[name], requires_grad=True) for name in "yw")
    given = [{"y": y, "w": w}[t.name] if t.name in "yw" else torch.tensor(tensors["c"])
             for t in op.inputs]  # fmt: skip
    with np.errstate(invalid="ignore"):
        (wanted,) = oracle.outputs(op, {t.name: tensors[t.name] for t in op.inputs}, {}).values()
    value = derive.load(op)(*given)
    np.testing.assert_allclose(value.detach().numpy(), wanted)
    assert all(g.isfinite().all() for g in torch.autograd.grad(value.sum(), y))


@pytest.mark.parametrize(
    ("factor", "at"), [("log(h - 0.8)", 0), ("1/(h - 0.8)", 1), ("sqrt(h - 0.8)", 1)]
)
def test_a_number_beside_tensors_is_asked_where_the_conditions_on_numbers_hold(factor, at):
    """The derivative in the cotangent multiplies 0 by the number, which is nan where it is not."""
    op = parse(f"op f(b[i], x[i]; h) -> y\ny[i] = where(b[i] < 0.8 and h > 0.8, {factor}*x[i], 0)")
    b, x, cotangent = (torch.rand(3, dtype=torch.float64, requires_grad=True) for _ in "bxG")
    function = derive.load(op)
    for h, expected in (0.8, 0), (0.5, 0), (1.8, at):
        value = function(b.clamp(max=0.7), x, h=h)
        (slope,) = torch.autograd.grad(value, x, cotangent, create_graph=True)
        (second,) = torch.autograd.grad(slope.sum(), cotangent)
        np.testing.assert_allclose(second.numpy(), [expected] * 3, atol=1e-12)


def test_what_is_read_for_one_piece_does_not_fail_beside_the_other():
    """The adjoint of the piece is 0 elsewhere, and the root of what is read there may be 0."""
    op = parse(
        "op f(a[k], v[i], w[j]) -> y\n"
        "e[i,j,k] = sqrt(w[j]*a[k])\n"
        "y[x,i] = concat[x](a[x]*v[i], softmax[i](e[i,x,2]*v[i]))"
    )
    a, v, w = own = [torch.rand(n, dtype=torch.float64, requires_grad=True) for n in (3, 5, 2)]
    plain = torch.cat((a[:, None] * v, torch.softmax((w * a[2]).sqrt()[:, None] * v, 1)))
    pairs = zip(
        *(torch.autograd.grad(y.sin().sum(), own) for y in (derive.load(op)(*own), plain)),
        strict=True,
    )
    for have, want in pairs:
        np.testing.assert_allclose(have.numpy(), want.numpy())


@pytest.mark.parametrize(
    "body", ["1/where(n < 2, v[n+1], w[n])", "log(w[n] + where(n > 2, v[n-1], 1))"]
)
def test_a_branch_guards_its_own_read_alone(body):
    op = parse(f"op f(v[n], w[n]) -> y\ny[n] = {body}")
    v, w = (1 + torch.rand(5, dtype=torch.float64) for _ in "vw")
    assert torch.autograd.gradcheck(derive.load(op), (v.requires_grad_(), w.requires_grad_()))


PAIRS = {
    "one condition implies the other": "sum[i,j | i != j](1/r[i,j]) + sum[i,j | i < j](r[i,j])",
    "both imply another": "sum[i,j | i < j](1/r[i,j]) + sum[i,j | j < i](r[i,j]*w[i])",
    "of two pairs": "sum[i,j,k | i != j and k != j](w[j]*r[i,j]*r[k,j])",
    "of all pairs of three": "sum[i,j,k | i < j and j < k](r[i,j]*r[j,k]*r[i,k])",
    "of the outer two": "sum[i,j,k | i < j and j < k](w[j]/r[i,k])",
    "in a condition": "sum[i,j | i != j and r[i,j] < 2](1/r[i,j]) + sum[i,j | i > j](r[i,j])",
}


@each_row("case", PAIRS)
def test_what_all_reads_of_an_equation_have_in_common_guards_it(case):
    """The distance to itself is 0, where a root has no slope."""
    distances = "op f(x[i,d], w[i]) -> y\nr[i,j] = sqrt(sum[d]((x[i,d] - x[j,d])**2))\ny = "
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f = derive.load(parse(distances + PAIRS[case]))
    x = torch.linspace(0, 3, 8, dtype=torch.float64).sin().reshape(4, 2).requires_grad_()
    w = torch.arange(1, 5, dtype=torch.float64)
    assert torch.autograd.gradcheck(f, (x, w))
    assert torch.autograd.gradgradcheck(f, (x, w))


def test_the_order_of_a_polygamma_stays_a_number():
    """The slope of digamma(u) under a mask is polygamma(1, u), of a safe u alone."""
    x = ex.Access("x", (ex.Guard(MASK, ex.Index("i", "i", False)),))
    made = safe_where_read(ex.Call("polygamma", (ex.num(1), x)), [MASK])
    assert made.args[0] is ex.num(1)
    assert isinstance(made.args[1], ex.Guard)


MASK = ex.Rel("<", ex.Index("i", "i", False), ex.Param("p"))
