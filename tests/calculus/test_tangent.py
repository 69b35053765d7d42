"""Tangents against differences of the outputs, by loops over the formulas, at every stage."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from kit.each import each_operation, each_row, some_now
from kit.equations import numbers, with_lets
from kit.once import sample
from kit.tangents import INVENTED

import derive
from derive import api, parse
from derive.algebra.expr import Reduce, walk
from derive.algebra.factor import to_tree
from derive.algebra.interpret import array
from derive.calculus.adjoint import Backward
from derive.calculus.build_lets import flatten_operation
from derive.calculus.finalize import safe_forward
from derive.calculus.inline import inline_adjoints
from derive.calculus.rematerialize import operation_costs
from derive.calculus.tangent import differentiate_forward
from derive.check import oracle
from derive.check.samples import cases
from derive.notation.operation import without_choice
from derive.notation.split import is_plain

CHOSEN = ("typical", "no axes in groups")


def stages(op: derive.Operation) -> list[Backward]:
    """The tangents as they are first found, and as they are lowered."""
    first = differentiate_forward(op, flatten_operation(op))
    # The second is made of lets of its own: both add to them.
    other = inline_adjoints(differentiate_forward(op, flatten_operation(op)), operation_costs)
    return [first, safe_forward(other)]


def evaluated(op, tangents, tensors, parameters, moved) -> dict[str, Any]:
    """d_y for each output y, by loops over the tangents in order."""
    sizes = oracle.sizes(op, tensors, parameters)
    values = numbers(op, parameters, sizes)
    known = with_lets(tangents.lets, tensors, sizes, values)
    known |= {own: moved[name] for name, own in tangents.cotangents}
    for a in tangents.adjoints:
        known[a.name] = array(a.formals, to_tree(a.body), known, sizes, values)
    return {a.tensor: known[a.name] for a in tangents.adjoints if a.tensor in op.outputs}


def assert_differences(op, tensors, parameters):
    floats = [t.name for t in op.inputs if t.kind == "float"]
    rng = np.random.default_rng(3)
    ways = {n: rng.uniform(0.5, 1.5, np.shape(tensors[n])) for n in floats}
    expected = oracle.outputs(op, tensors, parameters)
    weights = {n: rng.uniform(0.5, 1.5, v.shape) for n, v in expected.items()}
    kinds = {e.name: e.kind for e in op.equations}
    weights = {n: w for n, w in weights.items() if kinds[n] == "float"}
    # A quotient near a pole asks for short steps.
    slope = sum(
        oracle.slopes(op, tensors, weights, parameters, n, [ways[n]], 0.1)[0] for n in floats
    )
    for tangents in stages(op):
        found = evaluated(op, tangents, tensors, parameters, ways)
        terms = [weights[n] * d.reshape(weights[n].shape) for n, d in found.items()]
        size = 1 + sum(float(np.abs(t).sum()) for t in terms)
        assert sum(float(t.sum()) for t in terms) == pytest.approx(slope, rel=1e-6, abs=1e-7 * size)


PLAIN = [
    name
    for name, one in INVENTED.items()
    if is_plain(one.op) and not any(v is None for v in one.tensors.values())
]


@pytest.mark.parametrize("name", some_now(PLAIN, 4))
def test_tangents_of_invented_operations(name):
    one = INVENTED[name]
    parameters = dict(one.parameters)
    option = parameters.pop("reduction", None)
    assert_differences(without_choice(one.op, option), one.tensors, parameters)


def each_case(op):
    # The position of an extremum over a group is one number, whatever axes the group has.
    extrema = (e for q in op.equations for e in walk(q.body) if isinstance(e, Reduce))
    joined = any(e.kind in ("max", "min") and any(i.group for i in e.indices) for e in extrema)
    chosen = CHOSEN[: 1 if joined else 2]
    return [(case,) for case in cases(op) if is_plain(op) and case.label in chosen]


@each_operation(each_case, share=70)
def test_tangents_of_the_catalog(op, case):
    made = sample(op, case)
    parameters = {n: v for n, v in made.parameters.items() if v != case.option}
    assert_differences(without_choice(op, case.option), made.tensors, parameters)


OP = parse("op f(x[i], w[j,i], T[j]: int) -> y\nh[j] = sum[i](w[j,i]*x[i])*T[j]\ny[j] = h[j]**2")
TWO = parse("op f(x[i], w[i]) -> y, z\ny[i] = x[i]**2\nz[i] = y[i]*w[i]")


def test_tangents_come_in_the_order_of_equations_and_inputs_are_given_theirs():
    found = differentiate_forward(OP, flatten_operation(OP))
    assert [a.tensor for a in found.adjoints] == ["h", "y"]
    assert [name for name, _ in found.cotangents] == ["x", "w"]
    assert found.wanted == {"y"}
    assert not found.gradients


def test_an_output_that_another_reads_is_a_tangent_like_any():
    found = api.tangents(TWO)
    assert list(found) == ["y", "z"]
    assert str(found["z"]) == "d_z[i] = d_w[i]·y[i] + d_y[i]·w[i]"


def test_what_does_not_move_has_no_tangent():
    found = differentiate_forward(TWO, flatten_operation(TWO), wrt=["w"])
    assert [a.tensor for a in found.adjoints] == ["z"]
    assert [name for name, _ in found.cotangents] == ["w"]


def test_equations_that_are_asked_for_are_results():
    found = differentiate_forward(OP, flatten_operation(OP), of=["h"])
    assert [a.tensor for a in found.adjoints] == ["h"]
    assert list(api.tangents(OP, of=["h", "y"])) == ["h", "y"]


@pytest.mark.parametrize("op", [OP, TWO], ids=["one", "two"])
def test_each_step_starts_from_the_one_before(op):
    for formula in api.tangents(op).values():
        steps = [s for s in formula.steps if s.name == formula.name]
        assert steps[0].rule == "tangent"
        assert all(two.before == one.after for one, two in pairwise(steps))


EDGES = {
    "max[k](x[k])": "d_y = d_x[winner]",
    "amax[k](x[k])": "d_y = 1/(Σₖ [x[k] = y])·Σ[k | x[k] = y] d_x[k]",
    "prod[k](x[k])": "d_y = Σₖ d_x[k]·others[k]",
    "logsumexp[k](x[k])": "d_y = Σₖ d_x[k]·exp(x[k] − y)",
    "norm2[k](x[k])": "d_y = [y ≠ 0]/y·Σₖ d_x[k]·x[k]",
    "sum[k](relu(x[k]))": "d_y = Σ[k | x[k] > 0] d_x[k]",
    "sum[k](detach(x[k])*x[k])": "d_y = Σₖ d_x[k]·detach(x[k])",
}


@each_row("text", EDGES)
def test_each_reduction_has_the_convention_of_its_gradient(text):
    assert str(api.tangents(parse(f"op f(x[k]) -> y\ny = {text}"))["y"]) == EDGES[text]
