"""The code of an operation: what runs forward, what is kept, and what runs backward."""

from derive import parse
from derive.lowering.lowering_input import integers_of
from derive.pipeline import program_of

OP = parse("op f(x[i], w[i]) -> y\nh[i] = tanh(x[i])\ny[i] = h[i]*w[i]")


def test_lines_come_in_the_order_of_the_equations():
    made = program_of(OP, None)
    assert [line.name for line in made.forward] == ["h", "y"]
    assert made.outputs == ("y",)
    assert made.differentiable == ("x", "w")


def test_inputs_and_outputs_alone_are_kept_and_only_for_who_needs_them():
    made = program_of(OP, None)
    assert {s.name: s.needs for s in made.saved} == {"x": ("x", "w"), "w": ("x",)}


def test_a_line_of_the_backward_knows_the_gradients_that_need_it():
    made = program_of(OP, None)
    needs = {line.name: set(line.needs) for line in made.backward}
    assert needs["grad_x"] == {"x"} and needs["grad_w"] == {"w"}
    assert needs["h"] == {"x", "w"}


def test_parameters_that_are_positions_are_integers():
    op = parse("op f(x[n]; a=1, s=2.5, m=size(n)) -> y\ny[n] = where(n >= a, x[n-a], s)")
    assert integers_of(op) == {"a", "m"}


def test_what_no_gradient_reads_is_not_computed_backward():
    """An extremum of nothing is infinite wherever its elements are."""
    op = parse("op f(x[k], w[k]) -> y\ny = amin[k | not (3 > 1)](x[k]*w[k]) - sum[k](x[k]*w[k]**2)")
    read = [name for entry in program_of(op, None).backward for name in entry.needs]
    assert set(read) == {"x", "w"}
    assert all(entry.needs for entry in program_of(op, None).backward)
