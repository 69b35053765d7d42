"""What a program says of itself."""

from __future__ import annotations

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
