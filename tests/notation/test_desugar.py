"""Axes composed of parts, (t d), read by the parts and by one index for all of them."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import texts
from kit.each import each_row, told
from kit.plain import plain

import derive
from derive.algebra.expr import Composite, Index, accesses, walk
from derive.api import derivation, load
from derive.check import oracle
from derive.check.checks import VALUES, checks_of
from derive.check.samples import cases, sample
from derive.errors import DeriveError
from derive.joint import value_and_grad
from derive.lowering.ground.views import flattened, substitute_views, unflattened
from derive.lowering.groups import flat_operation
from derive.notation.specification import parse
from derive.notation.split import split_axes, splits
from derive.pipeline import program_of
from derive.program.cse import VALUE
from derive.program.torch_ir import Code, MethodCall, Name, Tuple, literal, text

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")

f64 = torch.float64
VIEW = "e[n,(t d)] = tanh(a[n,t,d])\n"
READ = {
    "by a matrix": "op f(a[n,t,d], w[k,j], b[j]) -> y\n"
    f"{VIEW}y[n,j] = sum[k](e[n,k]*w[k,j]) + b[j]",
    "on the left": f"op f(a[n,t,d], b[k]) -> y\n{VIEW}y[n,k] = e[n,k]*b[k]",
    "of an input": "op f(x[n,(t d)], a[t], w[k]) -> y\n"
    "y[n] = sum[k](x[n,k]*w[k]) + sum[t,d](x[n,(t d)]*a[t])",
    "of an input alone": "op f(x[(t d)], a[t], b[d]) -> y\ny[k] = x[k]**2*sum[t](a[t])*b[0]",
    "of an input that is one index": "op f(x[n,k], a[t], b[d]) -> y\n"
    "y[n,t] = sum[d](x[n,(t d)]*b[d])*a[t] + x[n,0]",
    "of three parts": "op f(a[n,t,d,h], w[k,j]) -> y\n"
    "e[n,(t d h)] = a[n,t,d,h]**2\ny[n,j] = sum[k](e[n,k]*w[k,j])",
    "of two in one tensor": "op f(a[t,d], b[h,i], w[k,l]) -> y\n"
    "e[(t d),(h i)] = a[t,d]*b[h,i]\ny[k] = sum[l](e[k,l]*w[k,l])",
    "in several equations": f"op f(a[n,t,d], w[k]) -> y\n{VIEW}"
    "g[n,k] = exp(e[n,k])*w[k]\ny[n] = sum[l](g[n,l]*e[n,l])",
    "of two tensors with the same parts": f"op f(a[n,t,d], b[m,t,d]) -> y\n{VIEW}"
    "g[m,(t d)] = b[m,t,d]**2\ny[n,m] = sum[k](e[n,k]*g[m,k])",
    "of two tensors in another order": f"op f(a[n,t,d], b[m,d,t]) -> y\n{VIEW}"
    "g[m,(d t)] = b[m,d,t]**2\ny[n,m] = sum[k](e[n,k]*g[m,k])",
    "of parts that are composed": "op f(a[t,d,m], w[l]) -> y\n"
    "e[(t d),m] = a[t,d,m]**2\ng[(k m)] = e[k,m]*exp(e[k,m])\ny = sum[l](g[l]*w[l])",
    "as a number": f"op f(a[n,t,d], w[k]) -> y\n{VIEW}y[n] = sum[k](e[n,k]*w[k]*k)/size(k)",
    "under a condition": f"op f(a[n,t,d], w[k]) -> y\n{VIEW}y[n] = sum[k | k < 4](e[n,k]*w[k])",
    "beside another": f"op f(a[n,t,d]) -> y\n{VIEW}y[n,l] = sum[k | k <= l](e[n,k]*e[n,l])",
    "through integers": f"op f(a[n,t,d], T[n]: int) -> y\n{VIEW}y[n] = e[n,T[n]]",
    "shifted": f"op f(a[n,t,d]) -> y\n{VIEW}y[n,k] = e[n,k+1] - e[n,k]",
    "shifted under a guard": f"op f(a[n,t,d], w[k]) -> y\n{VIEW}"
    "y[n,k] = where(k >= 1, e[n,k-1], 0)*w[k]",
    "backwards": f"op f(a[n,t,d], w[k]) -> y\n{VIEW}y[n,k] = e[n,size(k)-1-k]*w[k]",
    "at a number": f"op f(a[n,t,d]) -> y\n{VIEW}y[n] = e[n,0]*e[n,5]",
    "at a number between fixed sizes": "op f(a[n,t,d]; size(t)=2, size(d)=3) -> y\n"
    f"{VIEW}y[n] = e[n,1]*e[n,5]",
    "in the other order": "op f(w[(t d)], a[t], b[d]) -> y\ny[t,d] = w[(d t)]*a[t]*b[d]",
    "by constants and parts": "op f(x[n,k], a[t], b[d]) -> y\n"
    "y[n] = sum[t,d](x[n,(t d)]*a[t]*b[d])*sum[d](x[n,(0 d)])",
    "at the constants of parts in front": "op f(x[n,(s d)]; size(s)=2) -> y\n"
    "y[n,d] = x[n,(0 d)]*sigmoid(x[n,(1 d)])",
    "at the constants of parts behind": "op f(x[n,(d s)]; size(s)=3) -> y\n"
    "y[n,d] = x[n,(d 2)] + sum[s](x[n,(d s)]**2)",
    "at a constant and elsewhere": "op f(x[n,(s d)]; size(s)=2) -> y\n"
    "y[n,d] = x[n,(1 d)]**2*x[n,d+1]",
    "in a softmax": f"op f(a[n,t,d], w[k]) -> y\n{VIEW}y[n,k] = softmax[k](e[n,k]*w[k])",
    "in a logsumexp": f"op f(a[n,t,d]) -> y\n{VIEW}y[n] = logsumexp[k](e[n,k])",
    "in a maximum": f"op f(a[n,t,d], w[k]) -> y\n{VIEW}y[n] = max[k](e[n,k]*w[k])",
    "in a product": f"op f(a[n,t,d]) -> y\n{VIEW}y[n] = prod[k](e[n,k])",
    "by its winner": f"op f(a[n,t,d]) -> y\n{VIEW}"
    "m[n] = argmax[k](e[n,k])\ny[n] = e[n,m[n]]*(1 + argmin[k | k > 1](e[n,k]))",
    "in a join": f"op f(a[n,t,d], b[n,m]) -> y\n{VIEW}y[n,k] = concat[k](e[n,k], b[n,k])",
    "beside a group": "op f(a[*p,t,d], w[k]) -> y\n"
    "e[*p,(t d)] = a[*p,t,d]**2\ny[*p,k] = e[*p,k]*w[k]",
    "before a group": "op f(a[t,d,*p], w[k]) -> y\n"
    "e[(t d),*p] = a[t,d,*p]**2\ny[*p] = sum[k](e[k,*p]*w[k])",
    "between groups": "op f(a[*p,t,d,*q]; dim=axis(t)) -> y\ny[*p,(t d),*q] = a[*p,t,d,*q]**2",
    "beside an axis of size 1": "op f(a[n,t,d], w[k]) -> y\n"
    "e[0,(t d)] = sum[n](a[n,t,d])\ny[k] = e[0,k]*w[k]",
    "with a flag": f"op f(a[n,t,d]; keepdim=keep(n)) -> y\n{VIEW}y[k] = sum[n](e[n,k]**2)",
    "with a size as a parameter": "op f(x[n,(h d)], w[k]; heads=size(h,2)) -> y\n"
    "y[n,h] = sum[d](x[n,(h d)]**2) + sum[k](x[n,k]*w[k])",
    "of an optional input": f"op f(a[n,t,d], b[(t d)]=0) -> y\n{VIEW}y[n,k] = e[n,k]*(1 + b[k])",
    "with bool and int tensors": "op f(a[n,t,d], m[k]: bool, T[n,k]: int, z[v]) -> y\n"
    f"{VIEW}y[n] = sum[k | m[k]](e[n,k]*z[T[n,k]])",
    "in attention": "op f(x[n,s,k], W[k,j], V[j,m]; heads=size(h,2)) -> y\n"
    "q[n,s,j] = mean[k](x[n,s,k]*W[k,j])\n"
    "p[n,h,s,t] = softmax[t](sum[d](q[n,s,(h d)]*q[n,t,(h d)]))\n"
    "z[n,s,(h d)] = sum[t](p[n,h,s,t]*q[n,t,(h d)])\n"
    "y[n,s,m] = sum[j](z[n,s,j]*V[j,m])/9",
}


def parsed(spec: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parse(spec)


@each_row("name", READ, turns=3)
def test_values_and_gradients(name):
    op = parsed(READ[name])
    for check in checks_of(op, load(op), columns=VALUES):
        assert check.ok, f"{check.check}, {check.case}: {check.detail}"


@each_row("name", READ)
def test_the_split_operation_computes_the_same(name):
    """The oracle knows nothing of parts: it reads a composite axis at a row-major number."""
    op = parsed(READ[name])
    case = next(c for c in cases(op) if c.label == "typical")
    made = sample(op, case)
    parameters = {n: v for n, v in made.parameters.items() if n not in ("keepdim", "dim")}
    tensors = {n: None if v is None else np.asarray(v) for n, v in made.tensors.items()}
    outer = oracle.outputs(op, tensors, made.parameters)
    sizes = oracle.sizes(op, tensors, made.parameters)
    inner = flat_operation(split_axes(op).operation)
    flat = {n: size if isinstance(size, int) else int(np.prod(size)) for n, size in sizes.items()}
    given = {
        t.name: None
        if tensors[t.name] is None
        else tensors[t.name].reshape([flat[i.extent] for i in t.axes])
        for t in inner.inputs
    }
    known = {p.name: parameters[p.name] for p in inner.parameters if p.name in parameters}
    for output, array in oracle.outputs(inner, given, known).items():
        np.testing.assert_allclose(array.ravel(), outer[output].ravel(), rtol=1e-12)


@each_row("name", READ, turns=3)
def test_gradients_of_equations_have_their_axes(name):
    """Without autograd the same gradients, and each in the shape of what it is the gradient of."""
    op = parsed(READ[name])
    made = sample(op, next(c for c in cases(op) if c.label == "typical"))
    tensors = {n: None if v is None else torch.tensor(v) for n, v in made.tensors.items()}
    leaves = {n: t.requires_grad_() if t.is_floating_point() else t for n, t in tensors.items()}
    y = load(op)(*leaves.values(), **made.parameters)
    cotangent = torch.rand(y.shape, dtype=y.dtype) if y.dim() else torch.ones((), dtype=y.dtype)
    given = {"G": cotangent} if y.dim() else {}
    equations = {e.name: e for e in op.equations if e.kind == "float"}
    floats = [t.name for t in op.inputs if t.kind == "float"]
    values, gradients = value_and_grad(op, (*floats, *equations))(
        *(t.detach() for t in leaves.values()), **made.parameters, **given
    )
    torch.testing.assert_close(values, y)
    found = torch.autograd.grad(y, [leaves[n] for n in floats], cotangent, allow_unused=True)
    for n, gradient in zip(floats, found, strict=True):
        expected = torch.zeros_like(leaves[n]) if gradient is None else gradient
        torch.testing.assert_close(gradients[n], expected)
    arrays = oracle.run(op, made.tensors, made.parameters)
    for n in equations:
        assert gradients[n].shape == arrays[n].shape, n


@pytest.mark.parametrize("shape", [(2, 0, 4), (2, 3, 0), (0, 3, 4)])
def test_parts_of_no_values(shape):
    function = load(parsed(READ["by a matrix"]))
    a = torch.rand(shape, dtype=f64, requires_grad=True)
    w = torch.rand(shape[1] * shape[2], 5, dtype=f64, requires_grad=True)
    b = torch.rand(5, dtype=f64, requires_grad=True)
    y = function(a, w, b)
    torch.testing.assert_close(y, a.tanh().flatten(1) @ w + b)
    y.sum().backward()
    assert a.grad.shape == a.shape and w.grad.shape == w.shape
    torch.testing.assert_close(b.grad, torch.full((5,), float(shape[0]), dtype=f64))


def test_only_what_is_read_by_its_parts_is_split():
    assert splits(parsed(READ["by a matrix"])) == {"k": ("t", "d")}
    assert splits(parsed(READ["of an input alone"])) == {}
    assert splits(parsed("op f(x[(t d)], a[t], b[d]) -> y\ny[t,d] = x[(t d)]*a[t]*b[d]")) == {
        "x0": ("t", "d")
    }
    assert splits(parsed(READ["of parts that are composed"]))["l"] == ("t", "d", "m")
    assert splits(parsed(READ["at the constants of parts in front"])) == {"x1": ("s", "d")}
    assert splits(parsed(READ["at a constant and elsewhere"])) == {}


def test_an_index_becomes_its_parts_and_a_number():
    op = split_axes(parsed(READ["as a number"])).operation
    body = op.equations[1].body
    assert all(p.extent in ("n", "t", "d") for a in accesses(body) for p in a.positions)
    assert not any(isinstance(e, Composite) for e in walk(body))
    names = {str(f) for f in derivation(parsed(READ["as a number"])).gradients.values()}
    assert any("size(d)" in name for name in names)


def test_parts_do_not_capture_letters_of_the_equation():
    op = parsed("op f(a[n,t,d], c[t]) -> y\ne[n,(t d)] = a[n,t,d]\ny[n,t] = c[t]*sum[k](e[n,k])")
    (equation,) = (e for e in split_axes(op).operation.equations if e.name == "y")
    assert equation.axes == (Index("n", "n"), Index("t", "t"))
    (read,) = accesses(equation.body, "e")
    assert read.positions[1] is Index("t'", "t")


def test_formulas_are_in_the_letters_of_the_person():
    d = derivation(parsed(READ["by a matrix"]))
    assert [str(f) for f in (*d.adjoints, *d.gradients.values())] == [
        "grad_a[n,t,d] = (1 − e[n,(t d)]²)·Σⱼ G[n,j]·w[(t d),j]",
        "grad_w[k,j] = Σₙ G[n,j]·e[n,k]",
        "grad_b[j] = Σₙ G[n,j]",
    ]


def test_formulas_have_the_constant_parts():
    d = derivation(parsed(READ["at the constants of parts in front"]))
    assert str(d.equations[0]) == "y[n,d] = x[n,(0 d)]·sigmoid(x[n,(1 d)])"
    assert str(d.gradients["x"]).startswith("grad_x[n,(s d)] = δ[s,0]·G[n,d]·sigmoid(x[n,(1 d)])")


def test_a_part_that_is_computed_is_fenced():
    spec = "op f(x[n,(s d)]; size(s)=2) -> y\np[n,s,d] = x[n,(s d)]\ny[n,(s d)] = p[n,1-s,d]**2"
    gradient = derivation(parsed(spec)).gradients["x"]
    assert str(gradient) == "grad_x[n,(s d)] = 2·G[n,((1 − s) d)]·p[n,s,d]"


def code_of(spec: str) -> tuple[list[str], list[str]]:
    """The lines of the forward and of the backward."""
    program = program_of(parsed(spec), None)
    both = (
        [plain(f"{x.name} = {text(x.code)}").replace("'", '"') for x in lines]
        for lines in (program.forward, program.backward)
    )
    forward, backward_lines = both
    return forward, backward_lines


def test_a_view_is_a_matrix_where_it_is_read_as_one():
    forward, backward = code_of(
        "op f(C[v,d], W[k,j], b[j], X[n,t]: int) -> y\n"
        "emb[n,t,d] = C[X[n,t],d]\nembcat[n,(t d)] = emb[n,t,d]\n"
        "h[n,j] = sum[k](embcat[n,k]*W[k,j]) + b[j]\ny[n,j] = tanh(h[n,j])"
    )
    assert forward == [
        "emb = rt.index_select(C, 0, X)",
        "embcat = emb.flatten(1, 2)",
        "h = embcat @ W + b",
        "y = h.tanh()",
    ]
    assert "grad_W = rt.index_select(C, 0, X).flatten(1, 2).mT @ generated_value2" in backward
    assert "grad_embcat = generated_value2 @ W.mT" in backward
    assert not any("einsum" in line or "permute" in line for line in backward)


def test_the_parts_and_the_whole_give_the_same_code():
    head = "op f(a[n,t,d], {}, b[j]) -> y\ne[n,(t d)] = exp(a[n,t,d])\n"
    whole = head.format("w[k,j]") + "y[n,j] = sum[k](e[n,k]*w[k,j]) + b[j]"
    parts = head.format("w[(t d),j]") + "y[n,j] = sum[t,d](e[n,(t d)]*w[(t d),j]) + b[j]"
    assert code_of(whole) == code_of(parts)


def test_flatten_and_unflatten_are_what_they_say():
    flatten = "op f(x[*p,t,d]) -> y\ny[*p,(t d)] = x[*p,t,d]"
    assert code_of(flatten)[0] == ["y = x.flatten(-2, -1)"]
    unflatten = "op f(x[*p,(t d)]; inner=size(d)) -> y\ny[*p,t,d] = x[*p,(t d)]"
    forward, _ = code_of(unflatten)
    assert forward == ["y = x.unflatten(-1, (x.shape[-1] // inner, inner))"]


def test_heads_are_views():
    forward, backward = code_of(READ["in attention"].replace("mean", "sum").replace("/9", ""))
    heads = f"{VALUE} = q.unflatten(2, (heads, W.shape[1] // heads))"
    assert forward[:2] == ["q = x @ W", heads]
    assert any(f"{VALUE}.transpose(1, 2)" in line for line in forward)
    assert "y = z @ V" in forward
    assert "grad_x = grad_q @ W.mT" in backward
    assert "grad_W = x.flatten(0, 1).mT @ grad_q.flatten(0, 1)" in backward


CONTRACTIONS = {
    "y[n,j] = sum[t,d](a[n,t,d]*w[t,d,j])": "a.flatten(1, 2) @ w.flatten(0, 1)",
    "y[n,j] = sum[t,d,h](a[n,t,d,h]*w[t,d,h,j])": "a.flatten(1, 3) @ w.flatten(0, 2)",
    "y[d,j] = sum[n,t](a[n,t,d]*w[n,t,j])": "a.flatten(0, 1).mT @ w.flatten(0, 1)",
    # Rounded in pairs: a vector in a product with a matrix is summed one after the other.
    "y[n] = sum[t,d](a[n,t,d]*w[t,d])": "(a * w).sum((1, 2))",
    "y[n,t,d] = sum[j](a[n,j]*w[t,d,j])": "(a @ w.flatten(0, 1).mT).unflatten(1, (",
    "y[m,n,j] = sum[t,d](a[m,n,t,d]*w[m,t,d,j])": "a.flatten(2, 3) @ w.flatten(1, 2)",
    "op f(a[*p,t,d], w[t,d,j]) -> y\ny[*p,j] = sum[t,d](a[*p,t,d]*w[t,d,j])": (
        "a.flatten(-2, -1) @ w.flatten(0, 1)"
    ),
    # No run is merged that is not needed: a matrix product takes any number of axes on its left.
    "y[n,t,j] = sum[k](a[n,t,k]*w[k,j])": "a @ w",
    "y[m,n,j] = sum[d](a[m,n,d]*w[m,d,j])": "a @ w",
    # In another order, or where one stands without the other, two are no one index.
    "y[n,j] = sum[t,d](a[n,t,d]*w[d,t,j])": 'torch.einsum("',
    "y[n,j] = sum[t,d](a[n,d,m,t]*w[t,d,m,j])": 'torch.einsum("',
    "y[n,t,j] = sum[d](a[n,t,d]*w[t,d,j])": "einsum",
}


@pytest.mark.parametrize("spec", CONTRACTIONS)
def test_contractions_merge_what_stays_together(spec):
    if "m,t" in spec and "[n,j]" in spec:
        spec, want = "y[n,m,j] = sum[t,d](a[n,d,m,t]*w[t,d,m,j])", CONTRACTIONS[spec]
    else:
        want = CONTRACTIONS[spec]
    forward, _ = code_of(spec)
    assert want in forward[-1]
    op = parsed(spec)
    for check in checks_of(op, load(op), columns=VALUES):
        assert check.ok, f"{check.check}, {check.case}: {check.detail}"


X = Name("x")


def made(code: Code, x: Any) -> Any:
    """The tensor that a chain of views of x is."""
    if code is X:
        return x
    assert isinstance(code, MethodCall)
    inner = made(code.obj, x)
    if code.name == "flatten":
        return inner.flatten(*(int(text(a)) for a in code.args))
    at, sizes = code.args
    return inner.unflatten(int(text(at)), [int(text(size)) for size in sizes.parts()])


def sizes(*numbers: int) -> Tuple:
    return Tuple(tuple(map(literal, numbers)))


@each_row(
    "code, expected",
    [
        (flattened(unflattened(X, 1, sizes(2, 3)), 1, 2), "x"),
        (flattened(unflattened(X, -1, sizes(2, 3)), -2, -1), "x"),
        (flattened(unflattened(X, 1, sizes(2, 3, 4)), 1, 3), "x"),
        (flattened(unflattened(X, 1, sizes(2, 3)), 0, 2), "x.flatten(0, 1)"),
        (flattened(unflattened(X, -1, sizes(2, 3)), -3, -1), "x.flatten(-2, -1)"),
        (flattened(unflattened(X, 0, sizes(2, 3)), 2, 3), "x.flatten(1, 2).unflatten(0, (2, 3))"),
        (flattened(unflattened(X, 2, sizes(2, 3)), 0, 1), "x.flatten(0, 1).unflatten(1, (2, 3))"),
        (flattened(unflattened(X, 1, sizes(2, 3)), 0, 1), "x.unflatten(1, (2, 3)).flatten(0, 1)"),
        (
            flattened(unflattened(X, 1, sizes(2, 3)), -2, -1),
            "x.unflatten(1, (2, 3)).flatten(-2, -1)",
        ),
        (flattened(flattened(X, 1, 2), 0, 1), "x.flatten(0, 2)"),
        (flattened(flattened(X, -2, -1), -2, -1), "x.flatten(-3, -1)"),
        (flattened(flattened(X, 0, 1), 1, 2), "x.flatten(0, 1).flatten(1, 2)"),
        (flattened(X, 1, 1), "x"),
    ],
)
def test_what_a_view_takes_back_is_not_made(code, expected):
    assert text(code) == expected


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_chains_of_views_stay_what_they_are(data):
    x = torch.arange(2 * 6 * 4 * 15).reshape(2, 6, 4, 15)
    plain: Code = X
    short: Code = X
    value = x
    for _ in range(data.draw(st.integers(1, 5))):
        negative = data.draw(st.booleans())
        n = value.dim()
        if data.draw(st.booleans()) and n > 1:
            start = data.draw(st.integers(0, n - 2))
            end = data.draw(st.integers(start + 1, n - 1))
            ends = (start - n, end - n) if negative else (start, end)
            plain = MethodCall(plain, "flatten", (literal(ends[0]), literal(ends[1])))
            short = flattened(short, *ends)
            value = value.flatten(*ends)
        else:
            at = data.draw(st.integers(0, n - 1))
            first = data.draw(
                st.sampled_from([d for d in (1, 2, 3, 5) if value.shape[at] % d == 0])
            )
            parts = sizes(first, value.shape[at] // first)
            at = at - n if negative else at
            plain = MethodCall(plain, "unflatten", (literal(at), parts))
            short = unflattened(short, at, parts)
            value = made(plain, x)
    assert torch.equal(made(plain, x), value)
    assert made(short, x).shape == value.shape and torch.equal(made(short, x), value)
    assert torch.equal(made(substitute_views(plain, {X: X}), x), value)
    assert len(text(short)) <= len(text(plain))


def zeros(*shape: int, dtype: Any = f64) -> Any:
    return torch.zeros(shape, dtype=dtype)


WRONG = told(
    """\
op f(a[n,t,d], W[(t d),j]) -> y; y[n,j] = sum[t,d](a[n,t,d]*W[(t d),j])
    2x3x4 13x5: f: axis 0 (t d) of W has size 13, but size(t)*size(d) is 12
op f(a[n,t,d], w[k]) -> y; e[n,(t d)] = a[n,t,d]; y[n] = sum[k](e[n,k]*w[k])
    2x3x4 13: f: axis 0 of w has size 13, but size(t)*size(d) is 12
op f(a[n,t,d], W[(t d),j]) -> y; y[n,j] = sum[t,d](a[n,t,d]*W[(t d),j])
    2x3x4 12: f: W must have 2 axes [(t d), j], not 1
op f(x[n,(t d)], w[d]) -> y; y[n,t] = sum[d](x[n,(t d)]*w[d])
    2x13 5: f: axis 1 (t d) of x has size 13, which is not divisible by size(d) = 5
op f(x[n,(t d)], w[d]) -> y; y[n,t] = sum[d](x[n,(t d)]*w[d])
    2x13 0: f: axis 1 (t d) of x has size 13, which is not divisible by size(d) = 0
op f(x[*p,(t d)]; inner=size(d,5)) -> y; y[*p,t,d] = x[*p,(t d)]
    2x3x13: f: axis -1 (t d) of x has size 13, which is not divisible by inner = 5
op f(x[n,(t d h)], a[t], b[h]) -> y; y[n,d] = sum[t,h](x[n,(t d h)]*a[t]*b[h])
    2x13 3 4: f: axis 1 (t d h) of x has size 13, which is not divisible by size(t)*size(h) = 12
op f(x[n,(t d)], z[k], w[d]) -> y; y[n,t] = sum[d](x[n,(t d)]*w[d])*sum[k](x[n,k]*z[k])
    2x12 13 4: f: axis 0 of z has size 13, which is not divisible by size(d) = 4
op f(x[l], a[t], b[m]) -> y; z[k] = concat[k](x[k], b[k]); y[d] = sum[t](z[(t d)]*a[t])
    4 5 2: f: index k has size 6, which is not divisible by size(t) = 5
op f(x[n,t,c]; size(k)=2) -> y; u[n,(t c)] = x[n,t,c]; y[n,k] = sum[m](u[n,(k m)])
    2x3x5: f: axis (t c) has size 15, which is not divisible by size(k) = 2
op f(x[*p,t,d,*q]; dim=axis(t)) -> y; y[*p,(t d),*q] = x[*p,t,d,*q]
    2x3x4: f: dim must be the position of axis t in x[*p, t, d, *q], not -1
"""
)
"""An operation, sizes of its inputs, and what is said of them."""


@pytest.mark.parametrize(("spec", "said"), WRONG)
def test_a_wrong_size_is_told_with_its_axis(spec, said):
    sizes, _, message = said.partition(": ")
    tensors = [zeros(*map(int, size.split("x"))) for size in sizes.split()]
    parameters = {"dim": -1} if "dim=" in spec else {}
    with pytest.raises(ValueError) as caught:
        load(parsed(spec))(*tensors, **parameters)
    assert str(caught.value).splitlines()[0] == message


def test_no_check_compares_a_size_with_itself():
    for spec in READ.values():
        for line in texts.source(parsed(spec)).splitlines():
            left, found, right = line.strip().removeprefix("if ").partition(" != ")
            assert not found or left != right.rstrip(":"), line
            assert "( )" not in line


REFUSED = {
    "op f(a[n,t,d], b[m,r,s]) -> y\ne[n,(t d)] = a[n,t,d]\ng[m,(r s)] = b[m,r,s]\n"
    "y[n,m] = sum[k](e[n,k]*g[m,k])": (
        "line 3, column 1: index k has two sizes: size(t)*size(d) and, on axis 1 of g, "
        "size(r)*size(s); read a composite of other parts with its own index [D016]"
    ),
    "op f(a[n,t,d]; size(k)=7) -> y\ne[n,(t d)] = a[n,t,d]\ny[n,k] = e[n,k]": (
        "line 2, column 1: index k has two sizes: 7 and, on axis 1 of e, size(t)*size(d); "
        "read a composite of other parts with its own index [D016]"
    ),
    "op f(x[n,k], w[d]) -> y\ny[n,d] = x[n,(1 d)]*x[n,(0 1)]*w[d]": (
        "line 2, column 1: axis 1 of x: the size of part 1 is unknown; declare the axis as a "
        "composite on the op line [D015]"
    ),
    "op f(x[n,(r c)]; size(r)=3) -> y\ny[n] = sum[c](x[n,(3 c)])": (
        "line 2, column 1: axis 1 of x: part 0 is 3, but r has only values 0 to 2 [D018]"
    ),
}


@pytest.mark.parametrize("spec", REFUSED)
def test_what_cannot_be_is_an_error_with_its_line(spec):
    with pytest.raises(DeriveError) as caught:
        parsed(spec)
    assert str(caught.value).splitlines()[0] == REFUSED[spec]


def test_the_size_of_a_joined_axis_is_divided_as_a_whole():
    spec = "op f(x[n,a], y[n,b]; r=size(d)) -> o\nz[n,k] = concat[k](x[n,k], y[n,k])\n"
    f = load(parsed(spec + "o[n,c,d] = z[n,(c d)]"))
    x, y = torch.rand(2, 3), torch.rand(2, 5)
    assert torch.equal(f(x, y, r=4), torch.cat((x, y), 1).unflatten(1, (2, 4)))
    with pytest.raises(ValueError, match="index k has size 8, which is not divisible by r = 3"):
        f(x, y, r=3)


BLOCKS = {
    "op f(x[n,k], w[e]) -> y\ny[n,e] = x[n,(0 e)]*w[e] + x[n,(1 e)]": lambda x, w: (
        x[:, :2] * w + x[:, 2:4]
    ),
    "op f(x[n,(c e)], w[e]; size(c)=3) -> y\ny[n,e] = x[n,(0 e)]*w[e] + x[n,(2 e)]": lambda x, w: (
        x[:, :2] * w + x[:, 4:]
    ),
    "op f(x[n,(c e)], w[e]; h=size(c)) -> y\ny[n,e] = x[n,(0 e)]*w[e] + x[n,(1 e)]": lambda x, w: (
        x[:, :2] * w + x[:, 2:4]
    ),
}


@pytest.mark.parametrize("text", BLOCKS)
def test_blocks_of_an_axis_are_shown_and_read_as_they_are_written(text):
    op = derive.parse(text)
    shown = str(derive.derivation(op).equations[0])
    assert "(0 e)" in shown
    assert "size(e)" not in shown
    code = texts.source(op)
    for sign in ("index_select", "gather", "index_add", "scatter_add"):
        assert sign not in code
    torch.manual_seed(2)
    x, w = torch.rand(5, 6, dtype=torch.float64), torch.rand(2, dtype=torch.float64)
    parameters = {p.name: 3 for p in op.parameters}
    found = []
    for function in (BLOCKS[text], lambda x, w: derive.load(op)(x, w, **parameters)):
        leaves = x.clone().requires_grad_(), w.clone().requires_grad_()
        function(*leaves).square().sum().backward()
        found.append([leaf.grad for leaf in leaves])
    assert all(map(torch.allclose, *found))
    with pytest.raises((RuntimeError, ValueError, IndexError)):
        derive.load(op)(x[:, :3], w, **parameters)
