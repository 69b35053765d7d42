"""What a program says of itself."""

import torch

import derive
from derive import parse
from derive.pipeline import program_of


def test_a_program_says_what_it_takes_saves_and_gives():
    spec = "op f(x[n,k], W[k,m], b[m]) -> y\ny[n,m] = b[m] + sum[k](x[n,k]*W[k,m])"
    program = program_of(parse(spec), None)
    assert (program.inputs, program.outputs) == (("x", "W", "b"), ("y",))
    assert [(s.name, s.needs) for s in program.saved] == [("x", ("W",)), ("W", ("x",))]
    assert dict(program.gradients) == {"x": "grad_x", "W": "grad_W", "b": "grad_b"}
    assert program.forward_precision.narrow == ("x", "W", "b")
    assert program.backward_precision.has_products
    assert not program.rearranges
    assert program_of(parse("op f(x[i,j]) -> y\ny[j,i] = x[i,j]"), None).rearranges


def test_what_both_read_is_saved_once_and_no_more():
    op = derive.parse("y[i] = w[i]*x[i]*sigmoid(x[i])")
    made = program_of(op, None)
    assert made.first_order
    assert [s.name for s in made.saved] == ["w", "x"]


def test_one_body_serves_where_no_kernel_stands():
    assert not program_of(derive.parse("y[i] = sin(x[i])*w[i]"), None).first_order


def test_the_body_is_chosen_by_whether_a_graph_is_wanted():
    function = derive.load(derive.parse("op f(x[i]) -> y\ny[i] = x[i]*(1 + erf(x[i]/sqrt(2)))/2"))
    x = torch.linspace(-2, 2, 5, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(function(x).sum(), x)
    assert first.grad_fn is None
    (again,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    torch.testing.assert_close(first, again, rtol=1e-12, atol=1e-12)
    (second,) = torch.autograd.grad(again.sum(), x, create_graph=True)
    (third,) = torch.autograd.grad(second.sum(), x)
    plain = [torch.nn.functional.gelu(x)]
    for _ in range(3):
        plain += torch.autograd.grad(plain[-1].sum(), x, create_graph=True)
    torch.testing.assert_close(second, plain[2], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(third, plain[3], rtol=1e-10, atol=1e-10)
