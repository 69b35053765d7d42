"""A forward and its backward as one body: that of a sum over blocks, in generated code."""

from derive import parse, source


def body(equations: str, inputs: str) -> str:
    text = source(parse(f"op f({inputs}) -> t\n{equations}"), "n")
    _, _, rest = text.partition("def _f_t_formed(")
    return rest.partition("\n\n\n")[0]


def test_what_both_compute_is_computed_once():
    equations = "h[n,c] = tanh(sum[i](x[n,i]*W[i,c]))\nt = sum[n,c](h[n,c]*v[c])"
    found = body(equations, "x[n,i], W[i,c], v[c]")
    assert found.count("x @ W") == 1
    assert found.count(".tanh_()") == 1  # what is left is its derivative, read from h


def test_a_softmax_is_the_exponential_of_its_logarithm():
    equations = "F[n,c] = log_softmax[c](x[n,c])\nt = sum[n,c](F[n,c]*v[n])"
    found = body(equations, "x[n,c], v[n]")
    assert found.count("softmax") == 1
    assert ".exp" in found


def test_what_the_forward_gives_other_axes_the_backward_has_as_it_was_given():
    equations = "F[n,c,*q] = log_softmax[c](x[n,c,*q])\nm[n] = max[*q,c](F[n,c,*q])\n"
    found = body(f"{equations}t = sum[n](m[n]*v[n])", "x[n,c,*q], v[n]")
    assert "    x = x.reshape" not in found
    assert found.count("reshape(x_shape") == 1
