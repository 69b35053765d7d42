"""Dtypes inside a body: products of matrices in that of autocast, all else in float32 at least."""

import pytest
import torch
from kit.each import each_row
from kit.torch_code import torch_code

from derive import load, parse
from derive.program.cse import Line
from derive.program.mixed_precision import all_wide, cast_where_made, in_precision, rounded
from derive.program.torch_ir import Binary, Name, text

a, b, c, w = map(Name, "abcw")
PRODUCT = torch_code("a @ b")


def made(code, outputs=("y",), given=("a", "b", "c"), vectors=(), statistics=()):
    known = {"vectors": vectors, "statistics": statistics}
    lines, precision = in_precision([Line("y", code)], given, outputs, **known)
    (line,) = rounded(lines, precision.returned)
    return text(line.code), precision


def test_a_product_and_what_is_added_to_it_are_in_the_dtype_of_the_product():
    assert made(PRODUCT)[0] == "a @ b"
    code, precision = made(torch_code("a @ b + c"))
    assert code == "a @ b + c"
    assert (precision.narrow, precision.broad) == (("a", "b", "c"), ())


def test_a_statistic_is_subtracted_from_a_product_in_the_wide_dtype():
    code, precision = made(torch_code("a @ b - c.unsqueeze(1)"), statistics=("c",))
    assert code == "((a @ b).to(wide) - c.unsqueeze(1)).to(dtype)"
    assert (precision.narrow, precision.broad) == (("a", "b"), ("c",))


def test_what_else_is_read_is_wide_and_what_is_returned_is_rounded_once():
    code, precision = made(torch_code("c * (a @ b)"))
    assert code == "(c * (a @ b).to(wide)).to(dtype)"
    assert (precision.narrow, precision.broad) == (("a", "b"), ("c",))
    code, precision = made(torch_code("torch.relu(a @ b)"))
    assert code == "torch.relu((a @ b).to(wide)).to(low)"
    code, precision = made(torch_code("(a @ b).softmax(-1) @ c"))
    assert code == "(a @ b).to(wide).softmax(-1).to(low) @ c"
    assert precision.narrow == ("a", "b", "c")


def test_a_tensor_read_both_ways_comes_wide():
    code, precision = made(torch_code("a * (a @ b)"))
    assert code == "(a * (a.to(low) @ b).to(wide)).to(dtype)"
    assert (precision.narrow, precision.broad) == (("b",), ("a",))


def test_without_products_of_matrices_all_is_wide():
    code, precision = made(torch_code("a @ w"), given=("a", "w"), vectors=("w",))
    assert code == "(a @ w).to(dtype)"
    assert (precision.narrow, precision.broad) == ((), ("a", "w"))
    lines, precision = all_wide([Line("y", PRODUCT)], ("a", "b", "c"))
    assert (text(lines[0].code), precision.broad) == ("a @ b", ("a", "b"))


@each_row(
    "before, after",
    [
        # All readers widen it, one or more.
        ("h = a @ b; y = c*h.to(wide)", "h = (a @ b).to(wide); y = c*h"),
        ("h = a @ b; y = h.to(wide).exp() - h.to(wide)", "h = (a @ b).to(wide); y = h.exp() - h"),
        (
            "h = c.exp(); y = h.to(low) @ a + h.to(low) @ b",
            "h = c.exp().to(low); y = h @ a + h @ b",
        ),
        # One reader narrows it, readers differ, it is a result, or it is computed twice.
        ("h = c.exp(); y = h.to(low) @ a", None),
        ("h = a @ b; y = h.to(wide).exp() @ h", None),
        ("y = a @ b; h = y.to(wide).exp()", None),
        ("h = a @ b; y = h.to(wide).exp() + (a @ b).sum()", None),
    ],
)
def test_a_value_that_all_readers_cast_is_cast_once(before, after):
    pairs = (line.split(" = ") for line in before.split("; "))
    lines = [Line(name, torch_code(code)) for name, code in pairs]
    made = [f"{line.name} = {text(line.code)}" for line in cast_where_made(lines, {"y"})]
    wanted = (line.split(" = ") for line in (after or before).split("; "))
    assert made == [f"{name} = {text(torch_code(code))}" for name, code in wanted]


def test_what_is_new_is_wide():
    zeros = torch_code("a.new_zeros(3)")
    code, _ = made(Binary("+", zeros, torch_code("(a @ b).exp()")))
    assert code == "(a.new_zeros(3, dtype=wide) + (a @ b).to(wide).exp()).to(dtype)"


@each_row(
    "code, listed",
    [
        (torch_code("c.exp()"), True),
        (torch_code("c.mean()"), True),
        (torch_code("c.mean(0)"), False),
        (torch_code("(a @ b).exp()"), True),
        (torch_code("c.exp() @ b"), False),
        (torch_code("math.prod(c)"), False),
    ],
)
def test_what_autocast_computes_in_float32_is_known(code, listed):
    assert made(code)[1].listed is listed


SPECS = {
    "op f(x[n,k]) -> y\ny[n,k] = x[n,k]/sqrt(sum[l](x[n,l]**2))": ((3, 5),),
    "op f(x[n,k], w[k]) -> y\ny[n,k] = x[n,k]*w[k]": ((3, 5), (5,)),
    "op f(x[n,k], W[m,k], b[m]) -> y\ny[n,m] = b[m] + sum[k](x[n,k]*W[m,k])": (
        (3, 5),
        (4, 5),
        (4,),
    ),
    "op f(x[n,k], W[m,k]) -> y\ny[n,m] = tanh(sum[k](x[n,k]*W[m,k]))": ((3, 5), (4, 5)),
    "op f(x[n,k], W[m,k]) -> y, z\ny[n,m] = sum[k](x[n,k]*W[m,k])\nz[n] = logsumexp[m](y[n,m])": (
        (3, 5),
        (4, 5),
    ),
}


@each_row("spec", SPECS)
@each_row("dtypes", ["half", "mixed", "double and half"])
def test_dtypes_of_results_and_gradients(spec, dtypes):
    f = load(parse(spec))
    kinds = {
        "half": [torch.bfloat16] * 3,
        "mixed": [torch.bfloat16, torch.float32, torch.bfloat16],
        "double and half": [torch.float64, torch.float16, torch.float32],
    }[dtypes]
    torch.manual_seed(0)
    exact = [torch.randn(shape, dtype=torch.float64) for shape in SPECS[spec]]
    given = [x.to(d).requires_grad_() for x, d in zip(exact, kinds, strict=False)]
    exact = [x.detach().double().requires_grad_() for x in given]
    found, wanted = (y if isinstance(y, tuple) else (y,) for y in (f(*given), f(*exact)))
    promoted = torch.float32 if len(given) > 1 else given[0].dtype
    promoted = given[0].dtype if dtypes != "mixed" else promoted
    assert {y.dtype for y in found} == {promoted}
    for y, z in zip(found, wanted, strict=True):
        torch.testing.assert_close(y.double(), z, rtol=0.05, atol=0.05)
    sum(y.float().sum() for y in found).backward()
    sum(y.sum() for y in wanted).backward()
    for x, z in zip(given, exact, strict=True):
        assert x.grad.dtype == x.dtype
        torch.testing.assert_close(x.grad.double(), z.grad, rtol=0.05, atol=0.05)


AUTOCAST = {
    "op f(x[n,k], W[m,k], b[m]) -> y\ny[n,m] = b[m] + sum[k](x[n,k]*W[m,k])": torch.bfloat16,
    "op f(x[n,k], W[m,k], b[m]) -> y\ny[n,m] = relu(b[m] + sum[k](x[n,k]*W[m,k]))": torch.bfloat16,
    "op f(x[n,k], W[m,k], b[m]) -> y\ny[n,m] = b[m]*sum[k](x[n,k]*W[m,k])": torch.float32,
    "op f(x[n,k], W[m,k], b[m]) -> y\ny[n] = logsumexp[m](b[m] + sum[k](x[n,k]*W[m,k]))": (
        torch.float32
    ),
}


@pytest.mark.parametrize("spec", AUTOCAST)
@pytest.mark.parametrize("inside", [True, False])
def test_autocast_forward_and_the_backward_inside_or_outside(spec, inside):
    f = load(parse(spec))
    torch.manual_seed(0)
    given = [torch.randn(*shape, requires_grad=True) for shape in ((3, 5), (4, 5), (4,))]
    exact = [x.detach().double().requires_grad_() for x in given]
    with torch.autocast("cpu", torch.bfloat16):
        y = f(*given)
        loss = y.float().sum()
        if inside:
            loss.backward()
    if not inside:
        loss.backward()
    assert y.dtype == AUTOCAST[spec]
    f(*exact).sum().backward()
    for x, z in zip(given, exact, strict=True):
        assert x.grad.dtype == torch.float32
        torch.testing.assert_close(x.grad.double(), z.grad, rtol=0.05, atol=0.05)


WIDE = {
    "x[n,k], v[k]": "y[n] = exp(sum[k](x[n,k]*v[k]))",
    "a[i,j], b[i]": "y[j] = norm2[i](maximum(a[i,j], softmax[i](b[i])))",
}
SHAPES = {"x": (5, 3), "v": (3,), "a": (5, 3), "b": (5,)}


@pytest.mark.filterwarnings("ignore")  # of torch.compile
@pytest.mark.parametrize("inputs", WIDE)
@pytest.mark.parametrize("graph", [False, True])
def test_autocast_chooses_no_dtype_of_a_product_in_float32(inputs, graph):
    """One with a vector would be in bfloat16 beside what is not."""
    f = load(parse(f"op f({inputs}) -> y\n{WIDE[inputs]}"))
    torch.manual_seed(0)
    shapes = [SHAPES[part.strip()[0]] for part in inputs.split("], ")]
    given = [torch.randn(s, requires_grad=True) for s in shapes]
    exact = [x.detach().double().requires_grad_() for x in given]
    wanted = torch.autograd.grad(f(*exact).sum(), exact)
    for function in (f, torch.compile(f, fullgraph=True, backend="aot_eager")):
        with torch.autocast("cpu", torch.bfloat16):
            y = function(*given)
            eager = function is f
            found = torch.autograd.grad(y.sum(), given, create_graph=graph and eager)
            if graph and eager:
                torch.autograd.grad(sum(x.square().sum() for x in found), given)
        torch.testing.assert_close(y.double(), f(*exact), rtol=1e-5, atol=1e-5)
        for x, z in zip(found, wanted, strict=True):
            torch.testing.assert_close(x.double(), z, rtol=1e-5, atol=1e-5)


MIXED = """
op f(x[n,d], c[k,d]) -> z
p[n,k] = softmax[k](-sum[d]((x[n,d] - c[k,d])**2))
z[k,d] = sum[n](p[n,k]*x[n,d])
"""


@pytest.mark.parametrize("blocks", [None, "n"])
@pytest.mark.parametrize("forward", [False, True])
def test_a_backward_inside_autocast_has_its_own_dtypes(blocks, forward):
    f = load(parse(MIXED), blocks=blocks)
    torch.manual_seed(0)
    given = [torch.randn(s, requires_grad=True) for s in ((5, 3), (4, 3))]
    with torch.autocast("cpu", torch.bfloat16, enabled=forward):
        y = f(*given)
    cotangent = torch.randn(y.shape)
    outside = torch.autograd.grad(y, given, cotangent, retain_graph=True)
    with torch.autocast("cpu", torch.bfloat16):
        inside = torch.autograd.grad(y, given, cotangent)
    assert all(map(torch.equal, inside, outside))


def test_sums_of_half_precision_do_not_overflow():
    f = load(parse("op f(x[k]) -> y\ny = sqrt(sum[k](x[k]**2))"))
    x = torch.full((1024,), 16.0, dtype=torch.float16, requires_grad=True)
    y = f(x)
    y.backward()
    assert y.item() == 512.0
    assert torch.equal(x.grad, torch.full_like(x, 16 / 512))


def test_positions_are_exact_in_half_precision():
    f = load(parse("op f(x[t,k], W[k,m]) -> y\ny[t,m] = sin(t/8)*sum[k](x[t,k]*W[k,m])"))
    x = torch.ones(3000, 2, dtype=torch.bfloat16)
    y = f(x, torch.ones(2, 1, dtype=torch.bfloat16))
    wanted = 2 * torch.sin(torch.arange(3000) / 8)
    assert (y[:, 0].float() - wanted).abs().max() < 0.01


def test_a_shape_that_is_kept_is_no_factor():
    """The gradient of a convolution reads the shape of its input alone."""
    f = load(
        parse("op f(x[n,c,t], w[o,c,k]) -> y\ny[n,o,u] = sum[c,k](x[n,c,u+k]*detach(w[o,c,k]))")
    )
    x = torch.randn(2, 3, 7, requires_grad=True)
    w = torch.randn(4, 3, 2)
    (found,) = torch.autograd.grad(f(x, w).sum(), x)
    (wanted,) = torch.autograd.grad(torch.nn.functional.conv1d(x, w).sum(), x)
    torch.testing.assert_close(found, wanted)


def test_positions_are_told_apart_under_autocast():
    import derive

    op = derive.parse("op f(x[n,d]) -> y\np[n,d] = softmax[d](x[n,d])\ny[n] = sum[d](d*p[n,d])")
    x = torch.full((2, 1024), -50.0)
    x[0, 999] = x[1, 501] = 50.0
    f = derive.load(op)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = f(x.requires_grad_())
    assert y.tolist() == [999.0, 501.0] and y.dtype == torch.float32
    torch.testing.assert_close(*(torch.autograd.grad(v.sum(), x)[0] for v in (y, f(x))))


@pytest.mark.parametrize("grads", [True, False])
def test_a_product_added_to_a_product_is_one_in_the_dtype_of_autocast(grads):
    op = parse(
        "op f(a[i,j], b[j,k], c[i,l], d[l,k]) -> y\n"
        "y[i,k] = sum[j](a[i,j]*b[j,k]) + 0.5*sum[l](c[i,l]*d[l,k])"
    )
    shapes = (3, 4), (4, 5), (3, 6), (6, 5)
    tensors = [torch.randn(s, requires_grad=grads) for s in shapes]
    with torch.autocast("cpu", torch.bfloat16):
        y = load(op)(*tensors)
    a, b, c, d = tensors
    assert y.dtype is torch.bfloat16
    torch.testing.assert_close(y.float(), a @ b + 0.5 * c @ d, rtol=0.05, atol=0.05)


def test_a_tensor_without_memory_knows_no_autocast():
    f = load(parse("op f(a[i,j], b[j,k]) -> y\ny[i,k] = sum[j](a[i,j]*b[j,k])"))
    a, b = torch.empty(3, 4, device="meta"), torch.empty(4, 5, device="meta")
    assert f(a, b).shape == (3, 5)
