"""Forward mode of modules where torch's own slips: right at every level, under every transform."""

import ast
from functools import cache

import pytest
import torch
from kit.tangents import loaded
from kit.texts import source
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import hessian, jacfwd, jacrev, jvp, vmap

import derive
from derive import catalog, parse
from derive.pipeline import own_tangent, program_of

FAR = torch.tensor([0.0, 200.0], dtype=torch.float64)
WITH_ZEROS = torch.tensor([0.0, 1.5, 0.0, -2.0], dtype=torch.float64)
SCORES = torch.tensor([[0.3, -1.2, 0.7], [2.0, 0.5, 0.1]], dtype=torch.float64)
TARGET = torch.tensor([1, 0])


@pytest.fixture(scope="module")
def functions():
    return cache(lambda name: derive.load(catalog.find(name)))


CASES = {
    "logcumsumexp": (FAR, lambda f: lambda x: f(x, dim=0)),
    "cumprod": (WITH_ZEROS, lambda f: lambda x: f(x, dim=0)),
    "multi_margin_loss": (SCORES, lambda f: lambda x: f(x, TARGET, p=1.25)),
    "focal_loss": (SCORES, lambda f: lambda x: f(x, TARGET, gamma=1.5)),
    "atan2": (torch.zeros(2, dtype=torch.float64), lambda f: lambda x: f(x, x)),
}
NESTED = {
    "jacfwd": (jacfwd, jacrev),
    "jacfwd of jacfwd": (lambda f: jacfwd(jacfwd(f)), lambda f: jacrev(jacrev(f))),
    "jacrev of jacfwd": (lambda f: jacrev(jacfwd(f)), lambda f: jacrev(jacrev(f))),
    "hessian": (hessian, lambda f: jacrev(jacrev(f))),
    "three times": (lambda f: jacfwd(hessian(f)), lambda f: jacrev(jacrev(jacrev(f)))),
}


LED_THROUGH = {
    "a group beside": (
        "op f(x[n,c,*q], T[n,*q]: int; g=1.3) -> y\nF[n,c,*q] = log_softmax[c](x[n,c,*q])\n"
        "l[n,*q] = (1 - exp(F[n,T[n,*q],*q]))**g*F[n,T[n,*q],*q]\ny = sum[n,*q](l[n,*q])",
        ((4, 5, 2, 3),),
        {},
    ),
    "an axis in a place that is given": (
        "op f(x[*p,k,*q], w[*p,k,*q]; dim=axis(k), g=1.3) -> y\n"
        "F[*p,k,*q] = log_softmax[k](x[*p,k,*q])\n"
        "y[*p,*q] = sum[k](w[*p,k,*q]*(1.1 - exp(F[*p,k,*q]))**g*F[*p,k,*q])",
        ((4, 5, 2), (4, 5, 2)),
        {"dim": 1},
    ),
}


@pytest.mark.parametrize(("text", "shapes", "given"), LED_THROUGH.values(), ids=LED_THROUGH)
def test_a_statistic_that_a_graph_leads_through_has_a_tangent(text, shapes, given):
    op = parse(text)
    program = program_of(op, None)
    assert program.pulled and "x" not in {s.name for s in program.saved}
    f, T = derive.load(op), torch.arange(24).reshape(4, 2, 3) % 5
    xs = [torch.randn(s, dtype=torch.float64).requires_grad_() for s in shapes]

    def call(*xs):
        return f(*xs, *([T] if "T" in text else []), **given)

    assert gradcheck(call, xs, check_forward_ad=True)
    assert gradgradcheck(call, xs, check_fwd_over_rev=True)
    at = [x.detach() for x in xs]
    forward, reverse = (m(lambda *x: call(*x).sin().sum())(*at) for m in (hessian, twice_back))
    assert torch.allclose(forward, reverse, 1e-10, 1e-12)


def twice_back(f):
    return jacrev(jacrev(f))


THROUGH_TORCH = ("cumprod", "three times")
"""The product of the others is made by running products, whose third derivative is torch's."""
QUICK = ("logcumsumexp", "multi_margin_loss")
AT_LEVELS = [
    pytest.param(n, way, marks=() if n in QUICK and "of" in way else pytest.mark.long)
    for n in CASES
    for way in NESTED
    if (n, way) != THROUGH_TORCH
]


@pytest.mark.parametrize(("name", "way"), AT_LEVELS)
def test_levels_in_levels_are_those_of_reverse_mode(functions, name, way):
    x, at = CASES[name]
    forward, reverse = NESTED[way]
    found, wanted = forward(at(functions(name)))(x), reverse(at(functions(name)))(x)
    finite = wanted.isfinite()
    assert torch.allclose(found[finite], wanted[finite], 1e-10, 1e-12)


def test_batches_of_points_and_of_tangents(functions):
    f = CASES["logcumsumexp"][1](functions("logcumsumexp"))
    points = torch.stack([FAR, FAR / 2, -FAR])
    rows = torch.stack([jacrev(f)(x) for x in points])
    assert torch.allclose(vmap(jacfwd(f))(points), rows)
    assert torch.allclose(
        vmap(hessian(lambda x: f(x).sum()))(points)[0], torch.zeros(2, 2).double()
    )
    near = torch.tensor([[0.3, -1.2], [0.7, 0.1]], dtype=torch.float64)
    inside = jvp(vmap(f), (near,), (torch.ones_like(near),))[1]
    assert torch.allclose(inside, vmap(lambda x: jvp(f, (x,), (torch.ones_like(x),))[1])(near))


def test_dual_tensors_and_gradients_through_them(functions):
    f = CASES["logcumsumexp"][1](functions("logcumsumexp"))
    x = FAR.clone().requires_grad_()
    way = torch.tensor([1.0, 2.0], dtype=torch.float64)
    with forward_ad.dual_level():
        moved = forward_ad.unpack_dual(f(forward_ad.make_dual(x, way))).tangent
        (through,) = torch.autograd.grad(moved[1], x)
    assert torch.allclose(moved, jacrev(f)(FAR) @ way)
    assert torch.allclose(through, jacrev(jacrev(f))(FAR)[1] @ way)
    with torch.no_grad():
        assert torch.allclose(jvp(f, (FAR,), (way,))[1], moved)
    near = torch.tensor([0.3, -1.2, 0.7], dtype=torch.float64, requires_grad=True)
    assert gradcheck(f, (near,), check_forward_ad=True, check_batched_forward_grad=True)
    whole = torch.autograd.functional.jacobian(f, FAR, vectorize=True, strategy="forward-mode")
    assert torch.allclose(whole, jacrev(f)(FAR))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_tangent_has_the_dtype_of_its_output(dtype):
    op = parse(
        "op f(x[n,k], w[k,j]) -> y, m\ny[n,j] = sum[k](x[n,k]*w[k,j])\nm[n] = mean[j](y[n,j]**2)"
    )
    f = loaded(op)
    x, w = torch.randn(3, 4, dtype=dtype), torch.randn(4, 2)
    values, moved = jvp(f, (x, w), (torch.ones_like(x), torch.ones_like(w)))
    assert [t.dtype for t in moved] == [v.dtype for v in values]


def test_what_is_none_or_an_integer_or_stands_still():
    op = parse(
        "op f(x[n], w[n]=1, b[n]=0, t[n]: int) -> y, k\n"
        "y[n] = w[n]*x[n]**3 + b[n]*t[n]\nk = argmax[n](x[n])"
    )
    f = loaded(op)
    x, t = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64), torch.tensor([1, 0, 3])
    ones = torch.ones_like(x)
    assert jvp(lambda x: f(x, None, None, t)[0], (x,), (ones,))[1].tolist() == [3.0, 12.0, 48.0]
    assert jvp(lambda w: f(x, w, None, t)[0], (x,), (ones,))[1].tolist() == [1.0, 8.0, 64.0]
    assert jvp(lambda b: f(x, None, b, t)[0], (x,), (ones,))[1].tolist() == [1.0, 0.0, 3.0]
    with forward_ad.dual_level():
        _, k = f(forward_ad.make_dual(x, ones), None, None, t)
        assert forward_ad.unpack_dual(k).tangent is None


@pytest.mark.long
def test_compiled_code_has_the_plain_forward(functions):
    f = functions("logcumsumexp")
    near = torch.tensor([0.3, -1.2, 0.7], dtype=torch.float64)
    moved = torch.compile(jacfwd(lambda x: f(x, dim=0)), backend="eager", fullgraph=True)
    assert torch.allclose(moved(near), jacrev(lambda x: f(x, dim=0))(near), 1e-6)


@pytest.mark.parametrize(
    ("text", "slips"),
    [
        ("op f(x[k]) -> y\ny[k] = logsumexp[l | l <= k](x[l])", True),
        ("op f(x[k], p[k]) -> y\ny[k] = sum[l | l <= k](x[l])*p[k]", False),
        ("op f(x[k]; p=1.5) -> y\ny[k] = relu(x[k])**p", True),
        ("op f(x[k]) -> y\ny[k] = relu(x[k])**3", False),
        ("op f(x[i,j]) -> y\ny[j,i] = x[i,j]", False),
    ],
)
def test_tangents_are_there_where_torchs_own_slip(text, slips):
    op = parse(text)
    assert (own_tangent(op, None) is not None) == slips
    names = [n.name for n in ast.walk(ast.parse(source(op))) if isinstance(n, ast.ClassDef)]
    assert ("_FDual" in names) == slips


@pytest.mark.parametrize(("name", "moves"), [("glu", False), ("huber_loss", True)])
def test_a_kernel_that_slips_gives_way_to_a_formula_without_a_choice(name, moves):
    op = catalog.find(name)
    option = "none" if name == "huber_loss" else None
    assert (own_tangent(op, option) is not None) == moves
    assert bool(program_of(op, option).composed) != moves


def test_an_output_may_have_the_name_of_an_argument_of_the_code():
    f = loaded(parse("op f(tangents[n]) -> inputs\ninputs[n] = tangents[n]**2.5"))
    x = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    assert torch.allclose(jvp(f, (x,), (torch.ones_like(x),))[1], 2.5 * x**1.5, 1e-12)


def test_all_options_have_them_or_none():
    op = catalog.find("multi_margin_loss")
    assert all(own_tangent(op, option) for option in ("mean", "sum", "none"))
    assert not program_of(op, "mean").rearranges
    assert "\nTangents, where d_input is" in source(op)


def test_names_that_the_code_has_for_itself():
    op = parse(
        "op still(dual[n], d_dual[n], ctx[n]; given=2, reduction=a|b) -> a: y | b: z\n"
        "y[n] = dual[n]**given*d_dual[n]*ctx[n]\nz = sum[n](y[n])"
    )
    f = loaded(op)
    x = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    for option in ("a", "b"):
        moved = jvp(lambda t, o=option: f(t, t, t, reduction=o), (x,), (torch.ones_like(x),))[1]
        wanted = 4 * x**3
        assert torch.equal(moved, wanted if option == "a" else wanted.sum())
