"""An adjoint keeps a name where it pays: read once and cheap to write out, it is opened."""

from derive import derivation, parse
from derive.calculus.adjoint import differentiate
from derive.calculus.build_lets import flatten_operation
from derive.calculus.inline import inline_adjoints
from derive.calculus.rematerialize import operation_costs


def kept(text):
    return [f.name for f in derivation(parse(text)).adjoints]


def test_what_is_read_once_is_opened():
    assert kept("op f(x[i], w[i]) -> y\nh[i] = tanh(x[i])\ny[i] = h[i]*w[i]") == []


def test_what_two_contractions_read_is_kept():
    assert kept("op f(x[i], w[j,i]) -> y\nh[j] = sum[i](w[j,i]*x[i])\ny[j] = h[j]**2") == ["grad_h"]


def test_a_gradient_that_is_asked_for_is_never_opened():
    op = parse("op f(x[i], w[i]) -> y\nh[i] = tanh(x[i])\ny[i] = h[i]*w[i]")
    found = derivation(op, wrt=["h", "x"])
    assert [str(f).split(" = ")[0] for f in found.gradients.values()] == ["grad_h[i]", "grad_x[i]"]


def test_opening_changes_no_value_only_what_it_costs():
    def total(text, opened):
        op = parse(text)
        backward = differentiate(op, flatten_operation(op))
        made = inline_adjoints(backward, operation_costs) if opened else backward
        whole = {}
        for a in (*made.adjoints, *made.gradients):
            whole |= operation_costs(a.body)
        return sum(whole.values())

    chain = "op f(x[i]) -> y\na[i] = tanh(x[i])\nb[i] = exp(a[i])\ny[i] = b[i]*x[i]"
    assert total(chain, True) <= total(chain, False)
