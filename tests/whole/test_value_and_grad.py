"""Outputs and gradients in one function: equal to the generated Function, with fewer lines."""

import inspect
from functools import cache
from itertools import product

import numpy as np
import pytest
import torch
from kit.each import each_operation
from kit.once import sample

import derive
from derive import catalog
from derive.check import oracle
from derive.check.samples import cases
from derive.notation.operation import Choice, names_with_gradient, options

load = cache(derive.load)
value_and_grad = cache(derive.value_and_grad)


def tensor(array):
    return None if array is None else torch.as_tensor(np.asarray(array))


def outputs(result):
    return result if isinstance(result, tuple) else (result,)


def each_case(op):
    return [(case,) for case in cases(op)]


@each_operation(each_case, share=3, turns=5)
def test_the_catalog(op, case):
    """Values and gradients are those of the autograd Function, whichever names are asked for."""
    made = sample(op, case)
    tensors = {name: tensor(array) for name, array in made.tensors.items()}
    floats = [t.name for t in op.inputs if t.kind == "float" and tensors[t.name] is not None]
    for name in floats:
        tensors[name].requires_grad_()
    chosen = dict(options(op))[case.option]
    choices = {p.name for p in op.parameters if isinstance(p, Choice)}
    given = {k: v for k, v in made.parameters.items() if k not in choices}
    want = outputs(load(op)(*tensors.values(), **made.parameters))
    every = tuple(names_with_gradient(chosen))
    for wrt, output in product((None, every), choices_of(chosen)):
        function = value_and_grad(op, wrt, case.option, output)
        of, cotangent = target(chosen, function, want, output)
        arguments = dict(given)
        if "G" in new_arguments(op, function):
            arguments["G"] = cotangent
        elif new_arguments(op, function):
            (name,) = new_arguments(op, function)
            arguments[name] = cotangent
        with torch.no_grad():
            result, gradients = function(*tensors.values(), **arguments)
        for a, b in zip(outputs(result), want, strict=True):
            torch.testing.assert_close(a, b.detach(), rtol=1e-10, atol=1e-12, equal_nan=True)
        leaves = [tensors[name] for name in floats]
        reached = of.requires_grad and torch.autograd.grad(
            of, leaves, cotangent, allow_unused=True, retain_graph=True
        )
        for name, leaf, one in zip(floats, leaves, reached or [None] * len(leaves), strict=True):
            expected = torch.zeros_like(leaf) if one is None else one
            assert gradients[name].shape == leaf.shape
            torch.testing.assert_close(gradients[name], expected, rtol=1e-9, atol=1e-12)
        assert tuple(gradients) == (wrt or tuple(t.name for t in op.inputs if t.kind == "float"))


def new_arguments(op, function):
    known = {t.name for t in op.inputs} | {p.name for p in op.parameters}
    return [name for name in inspect.signature(function).parameters if name not in known]


def choices_of(chosen):
    """The outputs that may be differentiated; None is the only one, or the only number."""
    kinds = {e.name: e for e in chosen.equations}
    floats = [name for name in chosen.outputs if kinds[name].kind == "float"]
    numbers = [name for name in floats if not kinds[name].axes]
    return (None,) if 1 in (len(floats), len(numbers)) else floats


def target(chosen, function, want, output):
    """The output that is differentiated, and a cotangent for it."""
    kinds = {e.name: e for e in chosen.equations}
    named = dict(zip(chosen.outputs, want, strict=True))
    floats = [name for name in chosen.outputs if kinds[name].kind == "float"]
    numbers = [name for name in floats if not kinds[name].axes]
    of = named[output or (floats if len(floats) == 1 else numbers)[0]]
    if not new_arguments(chosen, function):
        return of, torch.ones_like(of)
    return of, torch.linspace(0.5, 1.5, of.numel(), dtype=of.dtype).reshape(of.shape)


ATTENTION = """op attention(Q[i,d], K[j,d], V[j,e]) -> O
s[i,j] = sum[d](Q[i,d]*K[j,d]) / 2
P[i,j] = exp(s[i,j]) / sum[l](exp(s[i,l]))
O[i,e] = sum[j](P[i,j]*V[j,e])"""


def test_an_intermediate_gradient_is_that_of_finite_differences():
    """s is an input of the operation that starts after it."""
    op = derive.parse(ATTENTION)
    after = derive.parse(
        "op after(s[i,j], V[j,e]) -> O\nP[i,j] = exp(s[i,j]) / sum[l](exp(s[i,l]))\n"
        "O[i,e] = sum[j](P[i,j]*V[j,e])"
    )
    rng = np.random.default_rng(0)
    Q, K, V = (rng.normal(size=shape) for shape in ((2, 3), (4, 3), (4, 5)))
    G = rng.normal(size=(2, 5))
    (made,), gradients = split(value_and_grad(op, ("s", "P"))(*map(tensor, (Q, K, V)), G=tensor(G)))
    given = {"s": Q @ K.T / 2, "V": V}
    np.testing.assert_allclose(made, oracle.outputs(after, given, {})["O"], rtol=1e-12)
    want = oracle.gradient(after, given, {"O": G}, {}, "s")
    np.testing.assert_allclose(gradients["s"], want, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(gradients["P"], G @ V.T, rtol=1e-12)


def split(result):
    return outputs(result[0]), result[1]


def test_nothing_is_computed_twice():
    text = derive.value_and_grad_source(derive.parse(ATTENTION))
    assert text.count("torch.softmax(") == 1
    assert text.count("Q @ K.mT") == 1


def test_only_what_is_asked_for_is_computed():
    text = derive.value_and_grad_source(derive.parse(ATTENTION), wrt=["V"])
    assert "grad_Q" not in text and "grad_K" not in text and "grad_V" in text


def test_large_masks_and_products_are_computed_by_helpers_that_ask_who_calls():
    op = derive.parse(
        "op f(x[n,k], m[n,k]: bool) -> L\nL = sum[n](prod[k](where(m[n,k], x[n,k], 1)))"
    )
    x, m = torch.rand(64, 80, dtype=torch.float64) + 0.5, torch.rand(64, 80) < 0.5
    found = derive.value_and_grad(op)(x, m)[1]["x"]
    leaf = x.clone().requires_grad_()
    torch.where(m, leaf, 1).prod(1).sum().backward()
    torch.testing.assert_close(found, leaf.grad)


def test_a_loss_has_the_cotangent_one():
    op = derive.parse("L = mean[n]((x[n] - y[n])**2)")
    x, y = torch.randn(3), torch.randn(3)
    loss, gradients = derive.value_and_grad(op, wrt=["x"])(x, y)
    torch.testing.assert_close(loss, ((x - y) ** 2).mean())
    torch.testing.assert_close(gradients, {"x": 2 * (x - y) / 3})


def test_one_output_of_several_is_differentiated():
    op = derive.parse("op f(x[n]) -> y, L\ny[n] = exp(x[n])\nL = sum[n](y[n]**2)")
    x = torch.randn(4)
    (y, loss), gradients = derive.value_and_grad(op)(x)
    torch.testing.assert_close(loss, (y**2).sum())
    torch.testing.assert_close(gradients["x"], 2 * y**2)
    _, gradients = derive.value_and_grad(op, of="y")(x, G=torch.ones(4))
    torch.testing.assert_close(gradients["x"], y)


def test_a_cotangent_of_another_shape_is_refused():
    f = derive.value_and_grad(derive.parse("y[n] = x[n]*x[n]"))
    with pytest.raises(ValueError, match=r"G must have the shape of y, not \(1,\)"):
        f(torch.ones(3), G=torch.ones(1))
    with pytest.raises(TypeError, match="G"):
        f(torch.ones(3))


@pytest.mark.parametrize("keepdim", [False, True])
def test_a_cotangent_has_the_axes_that_a_flag_keeps(keepdim):
    op = catalog.find("logsumexp")
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    want = x.clone().requires_grad_()
    y = torch.logsumexp(want, 1, keepdim=keepdim)
    G = torch.randn_like(y)
    (expected,) = torch.autograd.grad(y, want, G)
    made, gradients = value_and_grad(op)(x, dim=1, keepdim=keepdim, G=G)
    torch.testing.assert_close(made, y.detach())
    torch.testing.assert_close(next(iter(gradients.values())), expected)
    with pytest.raises(ValueError, match="shape"):
        value_and_grad(op)(x, dim=1, keepdim=not keepdim, G=G)


@pytest.mark.parametrize(
    ("text", "arguments", "words"),
    [
        ("y[n] = x[n]*x[n]", {"wrt": ["z"]}, "no gradient of z"),
        ("y[n] = x[n]*x[n]", {"of": "x"}, "no differentiable output 'x'"),
        ("y[n] = x[n]*x[n]", {"option": "mean"}, "no option 'mean'"),
        ("op f(x[n]) -> y, z\ny[n] = x[n]**2\nz[n] = x[n]**3", {}, "several outputs"),
        ("y[n] = argmax[k](x[n,k])", {}, "no differentiable output"),
    ],
)
def test_a_wrong_request_says_what_there_is(text, arguments, words):
    with pytest.raises(derive.DeriveError, match=words):
        derive.value_and_grad_source(derive.parse(text), **arguments)


def test_a_gradient_that_is_zero_has_the_shape_of_its_tensor():
    op = derive.parse("op f(x[n], z[m]) -> L\nd = sum[m](detach(z[m]))\nL = sum[n](x[n]) + d")
    _, gradients = derive.value_and_grad(op, wrt=["z", "x"])(torch.ones(2), torch.ones(3))
    torch.testing.assert_close(gradients, {"z": torch.zeros(3), "x": torch.ones(2)})


def test_the_function_is_differentiable_by_autograd():
    """It is made of plain operations: outside of no_grad its gradients have gradients."""
    f = derive.value_and_grad(derive.parse("L = sum[n](exp(x[n])*x[n])"))
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: f(x)[1]["x"], (x,))


@pytest.mark.parametrize("body", ["detach(sum[n](x[n]))", "1/3", "sum[n](x[n] - x[n])"])
def test_an_equation_that_is_asked_for_is_a_variable_even_where_it_is_constant(body):
    op = derive.parse(f"op f(x[n]) -> y\nm = {body}\ny = sum[n](x[n]*m)")
    x = torch.arange(3.0)
    _, gradients = derive.value_and_grad(op, wrt=["m", "y"])(x)
    torch.testing.assert_close(gradients, {"m": torch.tensor(3.0), "y": torch.tensor(1.0)})
