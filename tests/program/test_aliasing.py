"""Outputs that share memory with nothing: what is a view becomes a tensor of its own."""

import warnings

import pytest
import torch
from kit.each import each_row
from kit.texts import source

from derive import catalog, load, parse
from derive.program.aliasing import gradients_apart, is_rearrangement, unalias_outputs
from derive.program.cse import Line
from derive.program.program import Program
from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    Conditional,
    Literal,
    MethodCall,
    Name,
    literal,
    text,
)

x, made, flag = Name("x"), Name("made"), Name("flag")
FRESH = Line("made", Binary("*", x, x), kept=False)


def wide(code: Code) -> Code:
    return MethodCall(code, "unsqueeze", (literal(0),))


CODES = {
    "computed": (made, "made"),
    "a view of what is computed": (wide(made), "rt.no_view(made.unsqueeze(0))"),
    "an input": (x, "x.clone()"),
    "a view of an input": (wide(x), "x.unsqueeze(0).clone()"),
    "windows": (MethodCall(made, "unfold"), "made.unfold().clone()"),
    "expanded": (MethodCall(made, "expand"), "made.expand().clone()"),
    "a choice": (
        Conditional(flag, wide(made), made),
        "rt.no_view(made.unsqueeze(0)) if flag else made",
    ),
}


@each_row("kind", CODES)
def test_an_output_is_no_view(kind):
    code, wanted = CODES[kind]
    *_, last = unalias_outputs([FRESH, Line("y", code)], ["y"], ["x"])
    assert text(last.code) == wanted


def test_of_two_outputs_of_one_memory_the_second_is_a_copy():
    lines = [FRESH, Line("y", wide(made)), Line("z", wide(Name("y")))]
    _, y, z = unalias_outputs(lines, ["y", "z"], ["x"])
    assert text(y.code) == "rt.no_view(made.unsqueeze(0))"
    assert text(z.code) == "y.unsqueeze(0).clone()"


def test_what_is_views_of_inputs_alone_is_a_rearrangement():
    assert is_rearrangement([Line("y", wide(x))], ["y"], ["x"])
    assert not is_rearrangement([Line("y", x)], ["y"], ["x"])
    assert not is_rearrangement([FRESH, Line("y", wide(made))], ["y"], ["x"])


OPERATIONS = (
    "op f(x[*b,i], W[j,i]) -> y\ny[*b,j] = sum[i](x[*b,i]*W[j,i])",
    "op f(x[n,c,*q]) -> y\ny[n,c,*q] = x[n,c,*q] - mean[*q](x[n,c,*q])",
    "op f(x[n,k]; keepdim=keep(k)) -> y\ny[n] = sum[k](x[n,k]**2)",
    "op f(x[t]; size(k)=3) -> y\ny[u,k] = 2*x[u+k]",
    "op f(x[i,j]) -> y, z\ny[i,j] = x[i,j]\nz[j,i] = 3*y[i,j]",
)


@pytest.mark.parametrize("spec", OPERATIONS)
def test_outputs_may_be_changed_in_place(spec):
    f = load(parse(spec))
    shapes = {"x": (4, 5, 3), "W": (2, 3)}
    op = parse(spec)
    inputs = [
        torch.randn(
            shapes[t.name][3 - len(t.axes) :] if t.name == "x" else shapes["W"], dtype=torch.float64
        ).requires_grad_()
        for t in op.inputs
    ]
    found = f(*inputs)
    outputs = found if isinstance(found, tuple) else (found,)
    before = [y.detach().clone() for y in outputs]
    for y in outputs:
        y += 1
        torch.relu_(y)
    sum(y.sum() for y in outputs).backward()
    for y, was in zip(outputs, before, strict=True):
        torch.testing.assert_close(y.detach(), (was + 1).relu())
    assert all(t.grad is not None for t in inputs)


def test_a_rearrangement_is_a_view_as_torchs_are():
    op = parse("op f(x[i,j]) -> y\ny[j,i] = x[i,j]")
    assert "Function" not in source(op)
    x = torch.randn(3, 4, requires_grad=True)
    y = load(op)(x)
    assert y.data_ptr() == x.data_ptr()
    (gradient,) = torch.autograd.grad(y, x, torch.arange(12.0).reshape(4, 3))
    assert torch.equal(gradient, torch.arange(12.0).reshape(4, 3).mT)


def test_overlapping_windows_are_compiled_right():
    op = parse("op f(x[t]; size(k)=3) -> y\ny[u,k] = 2*x[2*u+k]")
    f = load(op)
    x = torch.randn(9, requires_grad=True)
    for function in (f, torch.compile(f, fullgraph=True, backend="aot_eager")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = function(x)
        (found,) = torch.autograd.grad(y, x, torch.arange(float(y.numel())).reshape(y.shape))
        leaf = x.detach().requires_grad_()
        plain = 2 * leaf.unfold(0, 3, 2)
        (wanted,) = torch.autograd.grad(plain, leaf, torch.arange(12.0).reshape(4, 3))
        assert torch.equal(found, wanted)


SHARING = {
    "x[n,i,j], z[n,(i j)]": ("y[n,(i j)] = x[n,i,j]+z[n,(i j)]", [(2, 3, 5), (2, 15)]),
    "w[i,j], z[n,(i j)], x[n,i,j]": (
        "y[n,(i j)] = x[n,i,j]+z[n,(i j)]+tanh(w[i,j])",
        [(3, 5), (2, 15), (2, 3, 5)],
    ),
    "x[n,(h d)], r[n,h,d], s[(n h),d]": (
        "y[n,h,d] = x[n,(h d)]+r[n,h,d]+s[(n h),d]",
        [(2, 15), (2, 3, 5), (6, 5)],
    ),
    "a[n,c], b[c,n], e[n,c]=0": ("y[n] = sum[c](e[n,c]+a[n,c]+b[c,n])", [(2, 1), (1, 2), (2, 1)]),
}


def storage(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


@pytest.mark.parametrize("inputs", SHARING)
@pytest.mark.parametrize("blocks", [None, "n"])
def test_gradients_that_are_kept_share_no_memory(inputs, blocks):
    equation, shapes = SHARING[inputs]
    if blocks is not None and "(n h)" in inputs:
        pytest.skip("n is a part of an axis")
    f = load(parse(f"op f({inputs}) -> y\n{equation}"), blocks=blocks)
    tensors = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    (f(*tensors) ** 2).sum().backward()
    assert len({storage(x.grad) for x in tensors}) == len(tensors)
    assert torch.autograd.gradcheck(f, tensors, check_batched_grad=blocks is None)
    assert torch.autograd.gradgradcheck(f, tensors)


def test_one_gradient_that_is_a_view_is_no_copy():
    inputs, (equation, shapes) = next(iter(SHARING.items()))
    f = load(parse(f"op f({inputs}) -> y\n{equation}"))
    for wanted in (0, 1):
        tensors = [torch.randn(s, requires_grad=n == wanted) for n, s in enumerate(shapes)]
        y = f(*tensors)
        G = torch.randn_like(y)
        (gradient,) = torch.autograd.grad(y, tensors[wanted], G)
        assert storage(gradient) == storage(G)


@pytest.mark.parametrize("name", ["concat", "stack", "linear"])
def test_where_no_two_are_views_of_one_memory_nothing_is_copied(name):
    assert "grad_" in source(catalog.find(name))
    assert ".clone()" not in source(catalog.find(name))


def narrow(start: str, length: str) -> Code:
    return MethodCall(Name("G"), "narrow", tuple(map(Literal, ("0", start, length))))


@each_row(
    "one, two, copied",
    [
        (narrow("0", "2"), narrow("2", "3"), False),
        (narrow("2", "3"), narrow("0", "2"), False),
        (narrow("0", "3"), narrow("2", "3"), True),
        (narrow("0", "n"), narrow("m", "3"), True),
        (Attribute(Name("G"), "mT"), Name("G"), True),
        (Name("G"), Name("grad_x"), False),
    ],
)
def test_parts_beside_each_other_and_a_tensor_itself_are_no_copies(one, two, copied):
    lines = [Line("grad_x", one, needs=("x",)), Line("grad_z", two, needs=("z",))]
    program = Program(
        inputs=("x", "z"),
        parameters=(),
        outputs=("y",),
        forward=(),
        differentiable=("x", "z"),
        cotangents=(("y", "G"),),
        saved=(),
        kept_parameters=(),
        kept_shapes=(),
        backward=tuple(lines),
        gradients={"x": "grad_x", "z": "grad_z"},
    )
    assert len(gradients_apart(program, lines)) == 2 + copied


def test_one_tensor_is_not_the_gradient_of_two_inputs():
    f = load(parse("op f(a[n,c], b[c], d[c]) -> y\ny[n,c] = tanh(a[n,c] + b[c] + d[c])"))
    tensors = [torch.randn(s, requires_grad=True) for s in ((2, 3), (3,), (3,))]
    _, one, other = torch.autograd.grad(f(*tensors).sum(), tensors)
    assert torch.equal(one, other) and storage(one) != storage(other)
    one.zero_()
    assert other.any()


def test_a_sum_over_a_group_of_no_axes_is_no_second_name_of_the_cotangent():
    f = load(parse("op f(x[n], z[*p,n]) -> y\ny[*p,n] = x[n] + z[*p,n]"))
    x, z = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    y = f(x, z)
    one, other = torch.autograd.grad(y, (x, z), torch.randn_like(y))
    assert torch.equal(one, other) and storage(one) != storage(other)
