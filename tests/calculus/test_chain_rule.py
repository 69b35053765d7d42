"""The chain rule with its deltas standing, unsimplified, against differences of the outputs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from kit.each import each_operation
from kit.equations import checked, marks, numbers, operations, samples, with_lets
from kit.once import sample
from kit.slopes import along

import derive
from derive.algebra.expr import Access, Call, Delta, Index, Mul, Reduce, walk
from derive.algebra.factor import to_tree
from derive.algebra.interpret import array
from derive.algebra.substitution import rename_apart
from derive.calculus.build_lets import flatten_operation
from derive.calculus.chain_rule import partial_of_let, reads
from derive.check import oracle
from derive.check.checks import checks_of
from derive.check.samples import cases
from derive.notation.operation import options
from derive.notation.split import is_plain

CHOSEN = ("typical", "without optional tensors", "no axes in groups")


def each_case(op: derive.Operation) -> list[tuple[Any]]:
    return [(case,) for case in cases(op) if is_plain(op) and case.label in CHOSEN]


def unsimplified(
    op: derive.Operation, tensors: dict[str, Any], parameters: dict[str, Any], cotangents: Any
) -> dict[str, Any]:
    """grad_X[i] = Sum_j grad_v[j] * dv[j]/dX[i] over the equations v that read X, as it stands."""
    lets = flatten_operation(op)
    sizes = oracle.sizes(op, tensors, parameters)
    values = numbers(op, parameters, sizes)
    axes_of = {t.name: t.axes for t in op.inputs} | {e.name: e.axes for e in op.equations}
    axes_of |= {let.name: let.formals for let in lets if let.variable}
    adjoints: dict[str, Any] = dict(cotangents)
    known = with_lets(lets, tensors, sizes, values)
    for let in reversed([x for x in lets if not x.is_through]):
        if let.name not in adjoints:
            continue
        for name in reads(lets, let):
            axes = axes_of[name]
            j = rename_apart(let.formals, axes)
            partial = partial_of_let(lets, let, j, name, axes)
            # A partial may name a winner or a product of the others.
            known = with_lets(lets, known, sizes, values)
            known["adjoint"] = adjoints[let.name]
            product = Mul((Access("adjoint", j), to_tree(partial)))
            body = Reduce("sum", j, product) if j else product
            part = array(axes, body, known, sizes, values)
            adjoints[name] = adjoints.get(name, 0) + part
    return adjoints


def filled(op: derive.Operation, tensors: dict[str, Any], parameters: dict[str, Any]) -> Any:
    """The tensors with the constants that None stands for."""
    sizes = oracle.sizes(op, tensors, parameters)
    found = dict(tensors)
    for t in op.inputs:
        if found[t.name] is None:
            value = oracle.evaluate(derive.algebra.expr.as_expr(t.default), {}, {}, {}, {})
            shape = [n for a in t.axes for n in np.atleast_1d(sizes[a.extent])]
            found[t.name] = np.full(shape, float(value))
    return found


def each_element(op, tensors, weights, parameters, name):
    """A way of ones, and the derivative along each element alone."""
    want = oracle.gradient(op, tensors, weights, parameters, name)
    return np.ones_like(want), want


def parts_of(op):
    return (part for e in op.equations for part in walk(e.body))


def assert_gradients(op, plain, tensors, parameters, made, seed=1):
    """The unsimplified gradients of plain are the differences of op's outputs."""
    rng = np.random.default_rng(seed)
    kinds = {e.name: e.kind for e in op.equations}
    cotangents = {
        name: rng.uniform(0.5, 1.5, value.shape)
        for name, value in made.items()
        if kinds[name] == "float"
    }
    whole = filled(op, tensors, parameters)
    adjoints = unsimplified(plain, whole, parameters, cotangents)
    detached = any(isinstance(e, Call) and e.function == "detach" for e in parts_of(op))
    for t in op.inputs:
        if t.kind == "float":
            # What is detached counts as constant for the oracle's own differences.
            numeric = each_element if detached else along
            way, want = numeric(op, whole, cotangents, parameters, t.name)
            found = adjoints.get(t.name, np.zeros_like(whole[t.name]))
            assert np.shape(found) == np.shape(way)
            scale = max(1.0, float(np.abs(found).sum()))
            np.testing.assert_allclose(
                found * way if detached else (found * way).sum(),
                want,
                rtol=1e-6,
                atol=1e-8 * scale,
                err_msg=t.name,
            )


@each_operation(each_case, marks, share=3, turns=2)
def test_unsimplified_gradients_of_the_catalog(op, case):
    made = sample(op, case)
    plain = dict(options(op))[case.option]
    assert_gradients(op, plain, made.tensors, made.parameters, made.outputs)


@checked(25)
@given(operations())
def test_unsimplified_gradients_of_random_equations(text):
    op = derive.parse(text)
    tensors = samples()
    given = {t.name: tensors[t.name] for t in op.inputs}
    assert_gradients(op, op, given, {}, oracle.outputs(op, given, {}))


RULES = {
    "a sum": "y[i] = sum[j](A[i,j]*x[j])",
    "an index read twice": "y[i] = A[i,i]*x[i]",
    "a letter bound again": "y[k] = exp(A[k]) / sum[k](exp(A[k]))",
    "a gather": "op f(z[k], T[j]: int) -> y\ny[j] = z[T[j]]**2",
    "a shift": "y[u] = x[u+1] - x[u]",
    "a product with a zero": "y[i] = prod[j](A[i,j])",
    "a conditional product": "y[i] = prod[j | j <= i](A[i,j])",
    "a maximum": "y[i] = max[j](A[i,j]*x[j])",
    "a maximum under a condition": "y[i] = max[j | j >= i](A[i,j])",
    "equal maxima": "y[i] = amax[j](A[i,j])",
    "a logsumexp under a condition": "y[i] = logsumexp[j | j != 1](A[i,j])",
    "a stopped gradient": "y[i] = detach(x[i])*x[i]",
    "a branch": "y[i] = where(x[i] > 1, x[i]**2, 1/x[i])",
}


@pytest.mark.parametrize("name", RULES)
def test_unsimplified_gradients_of_each_rule(name):
    op = derive.parse(RULES[name])
    values = {"A": (2, 3), "x": (3,), "z": (5,)}
    if name in ("an index read twice",):
        values |= {"A": (3, 3)}
    if name == "a letter bound again":
        values |= {"A": (4,)}
    rng = np.random.default_rng(3)
    tensors = {
        t.name: np.array([0, 4, 4]) if t.kind == "int" else rng.uniform(0.5, 1.5, values[t.name])
        for t in op.inputs
    }
    if name == "a product with a zero":
        tensors["A"][0, 1] = 0.0
    assert_gradients(op, op, tensors, {}, oracle.outputs(op, tensors, {}))


def test_ties_send_all_to_the_first_of_max_and_share_it_in_amax():
    A = {"A": np.array([[2.0, 1.0, 2.0]])}
    G = {"y": np.array([6.0])}
    first, share = (
        unsimplified(derive.parse(f"y[i] = {kind}[j](A[i,j])"), A, {}, G)["A"]
        for kind in ("max", "amax")
    )
    np.testing.assert_array_equal(first, [[6, 0, 0]])
    np.testing.assert_array_equal(share, [[3, 0, 3]])


def test_deltas_stand_in_the_partial_one_for_each_axis():
    op = derive.parse("y[i] = sum[j](A[i,j]*x[j])")
    lets = flatten_operation(op)
    i, j = op.inputs[0].axes
    out = Index("i'", i.extent)
    partial = partial_of_let(lets, lets["y"], (out,), "A", (i, j))
    deltas = [e for e in walk(to_tree(partial)) if isinstance(e, Delta)]
    assert {(d.axis, d.position is out) for d in deltas} == {(i, True), (j, False)}


def test_conditions_integers_and_detached_parts_are_not_read_smoothly():
    text = "op f(x[i], w[i], v[i], T[i]: int) -> y\ny[i] = where(w[i] > 1, x[T[i]]*detach(v[i]), 0)"
    lets = flatten_operation(derive.parse(text))
    assert reads(lets, lets["y"]) == ("x",)


SCALED = {
    "y[n] = 3*tanh(x[n]*z[n])": "3·G[n]·z[n]·(1 − y[n]²/9)",
    "y[n] = c*tanh(x[n]*z[n]/c)": "G[n]·z[n]·(1 − y[n]²/c²)",
    "y[n] = size(n)*sigmoid(x[n]*z[n])": "G[n]·z[n]·y[n]·(1 − y[n]/size(n))",
    "y[n] = exp(x[n]*z[n])/c": "G[n]·z[n]·y[n]",
    # c may be 0.
    "y[n] = c*tanh(x[n]*z[n])": "c·G[n]·z[n]·(1 − tanh(x[n]·z[n])²)",
}


@pytest.mark.parametrize("equation", SCALED)
def test_a_function_is_read_from_a_number_times_it(equation):
    op = derive.parse(f"op f(x[n], z[n]{'; c=3.0' if 'c' in equation else ''}) -> y\n{equation}")
    assert str(derive.derivation(op).gradients["x"]) == f"grad_x[n] = {SCALED[equation]}"
    assert not [c for c in checks_of(op, derive.load(op)) if not c.ok]
