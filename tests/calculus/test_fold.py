"""Simplified gradients: equal to the chain rule, at their fixed point, in the forward's names."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from kit.chains import CHAINS
from kit.each import each_operation, each_option, each_row
from kit.equations import checked, cost, flat, index, numbers, operations, samples, with_lets
from kit.lowered import assert_right
from kit.once import sample
from kit.slopes import along

import derive
from derive import catalog
from derive.algebra.expr import Access, Add, Call, Delta, Mul, accesses, num, tensors, walk
from derive.algebra.factor import to_tree
from derive.algebra.interpret import array
from derive.algebra.poly import ZERO, Term, add, mul
from derive.algebra.rules import DELTA_RULES, contraction, eliminate_deltas, simplify
from derive.calculus.adjoint import Backward, differentiate
from derive.calculus.build_lets import flatten_operation
from derive.calculus.fold import DefinitionIndex, fold_rules, multiples
from derive.calculus.inline import inline_adjoints
from derive.calculus.lets import Let, Lets, inline, is_named_sum
from derive.calculus.rematerialize import operation_costs
from derive.check import oracle
from derive.check.samples import cases
from derive.notation.operation import options
from derive.notation.split import is_plain
from derive.pipeline import derive_option


def each_plain_option(op: derive.Operation) -> list[tuple[str | None]]:
    """Those whose tensors have one index on each axis, as the calculus wants them."""
    return each_option(op) if is_plain(op) else []


CHECKED = checked(25)


def values(op: Any, backward: Backward, tensors: Any, parameters: Any, cotangents: Any) -> Any:
    """Every gradient of an input, the adjoints computed first."""
    sizes = oracle.sizes(op, tensors, parameters)
    given = numbers(op, parameters, sizes)
    known = with_lets(backward.lets, tensors, sizes, given)
    known |= cotangents
    for a in (*backward.adjoints, *backward.gradients):
        known[a.name] = array(a.formals, to_tree(a.body), known, sizes, given)
    return {a.tensor: known[a.name] for a in backward.gradients}


def cotangents_of(backward: Backward, made: Any) -> Any:
    rng = np.random.default_rng(2)
    return {g: rng.uniform(0.5, 1.5, made[name].shape) for name, g in backward.cotangents}


@CHECKED
@given(operations())
def test_simplified_gradients_of_random_equations_are_right_inlined_or_not(text):
    op = derive.parse(text)
    given = {t.name: samples()[t.name] for t in op.inputs}
    made = oracle.outputs(op, given, {})
    apart = differentiate(op, flatten_operation(op))
    joined = inline_adjoints(apart, operation_costs)
    G = cotangents_of(apart, made)
    one, other = (values(op, b, given, {}, G) for b in (apart, joined))
    outputs = {name: G[g] for name, g in apart.cotangents}
    for name in one:
        np.testing.assert_allclose(other[name], one[name], rtol=1e-9, atol=1e-12)
        way, slope = along(op, given, outputs, {}, name)
        scale = max(1.0, float(np.abs(one[name]).sum()))
        np.testing.assert_allclose((one[name] * way).sum(), slope, rtol=1e-6, atol=1e-8 * scale)


@CHECKED
@given(operations())
def test_simplifying_a_second_time_changes_nothing(text):
    op = derive.parse(text)
    backward = inline_adjoints(differentiate(op, flatten_operation(op)), operation_costs)
    rules = (*DELTA_RULES, *fold_rules(backward.lets, {}))
    for a in (*backward.adjoints, *backward.gradients):
        log = []
        assert eliminate_deltas(a.body, DELTA_RULES, log) is a.body
        assert simplify(a.body, rules, log) is a.body
        assert log == []


@each_operation(each_option, together=True)
def test_gradients_of_the_catalog_are_at_their_fixed_point(op, option):
    """But for the names of products that no gradient reads: those were opened."""
    backward = derive_option(op, option).backward
    formulas = (*backward.adjoints, *backward.gradients)
    read = {name for a in formulas for name in tensors(a.body)}
    rules = (*DELTA_RULES, *fold_rules(backward.lets, {}))
    for a in formulas:
        made = simplify(a.body, rules, [])
        assert made is a.body or not tensors(made) <= read


@each_operation(each_option, together=True)
def test_no_delta_of_a_summed_index_is_left_in_the_catalog(op, option):
    for a in derive_option(op, option).backward.gradients:
        for t in walk(a.body):
            if isinstance(t, Term):
                deltas = [f for f in t.factors if isinstance(f, Delta)]
                assert all(contraction(t, d) is None for d in deltas)


@each_operation(each_plain_option, share=3, turns=3)
def test_inlining_keeps_the_gradients_of_the_catalog(op, option):
    case = next(c for c in cases(op) if c.option == option)
    made = sample(op, case)
    plain = dict(options(op))[option]
    apart = differentiate(plain, flatten_operation(plain))
    joined = inline_adjoints(apart, operation_costs)
    G = cotangents_of(apart, made.outputs)
    one, other = (values(plain, b, made.tensors, made.parameters, G) for b in (apart, joined))
    for name in one:
        np.testing.assert_allclose(other[name], one[name], rtol=1e-10, atol=1e-12)
    assert cost_of(joined) <= cost_of(apart)


def cost_of(backward: Backward) -> float:
    """The cost of all formulas, and of the sums in them that the engine named."""
    formulas = [a.body for a in (*backward.adjoints, *backward.gradients)]
    sums = {let.name: let.body for let in backward.lets if is_named_sum(let)}
    read = set[str]()
    for body in formulas:
        new = (tensors(body) & set(sums)) - read
        read |= new
        formulas += (sums[name] for name in new)
    return cost(formulas) + 200 * len(backward.adjoints)


def test_a_forward_output_stands_for_its_expression():
    """The gradient of softmax reads S and no exponential."""
    derived = derive_option(catalog.find("softmax"), None)
    (gradient,) = derived.backward.gradients
    assert {derived.lets.display_name(a.tensor) for a in accesses(gradient.body)} == {"S", "G"}
    assert not any(isinstance(e, Call) for e in walk(gradient.body))


def names_read(lets, e):
    """The tensors that e reads; a name that the engine made is what it is short for."""
    for a in accesses(e):
        let = lets.get(a.tensor)
        if let is not None and let.internal:
            yield from names_read(lets, let.body)
        else:
            yield lets.display_name(a.tensor)


@each_row(
    "text, read",
    [
        ("op f(x[i]) -> y\ny[i] = tanh(x[i])", {"y", "G"}),
        ("op f(x[i]) -> y\ny[i] = exp(x[i])", {"y", "G"}),
        ("op f(x[i]) -> y\ny[i] = sigmoid(x[i])", {"y", "G"}),
        ("op f(x[i]) -> y\ny[i] = 1/x[i]", {"y", "G"}),
        ("op f(x[i]) -> y\ny[i] = sqrt(x[i])", {"y", "G"}),
        ("op f(x[i]) -> y\ny[i] = x[i]**2", {"x", "G"}),
        ("op f(x[i]) -> y\ny[i] = sin(x[i])", {"x", "G"}),
    ],
)
def test_which_names_a_gradient_reads(text, read):
    op = derive.parse(text)
    derived = derive_option(op, None)
    (gradient,) = derived.backward.gradients
    assert set(names_read(derived.lets, gradient.body)) == read


def test_inlining_a_let_puts_its_body_in_every_factor_and_power():
    op = derive.parse("op f(x[i], A[i,j]) -> y\nm[i] = sum[j](A[i,j])\ny[i] = x[i]*m[i]**2")
    lets = flatten_operation(op)
    opened = inline(lets["y"].body, lets["m"])
    assert not any(accesses(opened, "m"))
    rng = np.random.default_rng(0)
    tensors = {"x": rng.normal(size=2), "A": rng.normal(size=(2, 3))}
    sizes = oracle.sizes(op, tensors, {})
    found = array(lets["y"].formals, to_tree(opened), tensors, sizes, {})
    np.testing.assert_allclose(found, oracle.outputs(op, tensors, {})["y"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "op f(x[k]) -> H\nl[k] = log_softmax[k](x[k]); H = -sum[k](exp(l[k])*l[k])",
            "−exp(l[k])·G·(l[k] + H)",
        ),
        ("op f(x[k]) -> H\nl[k] = x[k] - 1; H = -sum[k](exp(l[k])*l[k])", "−G·x[k]·exp(l[k])"),
    ],
)
def test_the_exponentials_of_a_name_for_logarithms_add_up_to_one(text, expected):
    gradient = str(derive.derivation(derive.parse(text)).gradients["x"])
    assert gradient == f"grad_x[k] = {expected}"


SHARES = (
    "op f(x[j,k], m[j]) -> y\ny[j,k] = softmax[k | m[j] > 0](x[j,k])",
    "op f(x[k], m[j]) -> y\ny[j,k] = softmax[k | m[j] > 0](x[k])",
    "op f(x[j,k], m[j]) -> y\ny[j,k] = softmax[k | all[c](m[c] > 0)](x[j,k])",
)


@pytest.mark.parametrize("text", SHARES)
def test_a_bracket_goes_with_the_last_factor_that_it_guards(text):
    """exp(a - lse) is infinite where nothing is taken; one bracket makes two of them shares."""
    f = derive.load(derive.parse(text))
    x = torch.randn(4 if "x[k]" in text else (3, 4), dtype=torch.float64, requires_grad=True)
    for m in (torch.tensor([-1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0])):
        y = f(x, m.double())
        G = torch.randn_like(y)
        (found,) = torch.autograd.grad(y, x, G)
        wanted = (y * (G - (G * y).sum(-1, keepdim=True))).detach()
        torch.testing.assert_close(found, wanted if y.dim() == x.dim() else wanted.sum(0))


ROOTS = {
    "where(s[i] > 0, sqrt(s[i]), 0)": "[y[i] > 0]·G[i]·x[i,k]/y[i]",
    "where(s[i] == 0, 0, sqrt(s[i]))": "[y[i] ≠ 0]·G[i]·x[i,k]/y[i]",
    "where(s[i] > 0, s[i]**0.25, 0)": "[y[i] > 0]·G[i]·x[i,k]/(2·y[i]³)",
    "where(s[i] > 1, sqrt(s[i]), 0)": "[s[i] > 1]·G[i]·x[i,k]/y[i]",
    "where(s[i] > 0, s[i]**1.5, 0)": "3·[s[i] > 0]·G[i]·x[i,k]·√(s[i])",
}


@pytest.mark.parametrize(("root", "expected"), ROOTS.items())
def test_whether_there_is_a_root_is_asked_of_the_root(root, expected):
    """Of a power above 1 it is not: that is 0 of a small float too."""
    op = derive.parse(f"op f(x[i,k]) -> y\ns[i] = sum[k](x[i,k]**2); y[i] = {root}")
    assert str(derive.derivation(op).gradients["x"]) == f"grad_x[i,k] = {expected}"
    f = derive.load(op)
    x = torch.tensor([[0.0, 0.0, 0.0], [1e-5, 3e-5, -2e-5], [1.5, -2.0, 0.5]], dtype=torch.float64)
    assert torch.autograd.gradcheck(f, (x[1:].requires_grad_(),))
    (at_zero,) = torch.autograd.grad(f(x.requires_grad_())[0], x)
    assert not at_zero.any()


def lets_of(text: str) -> Lets:
    return flatten_operation(derive.parse(text))


def plain(let: Let) -> bool:
    return let.kind == "sum"


SMALL = """
op f(x[i], w[i], T[n]: int) -> y, z, c
u[i] = x[i]*w[i]
v[i] = exp(u[i])*x[i]
c = pi/3
y[n] = v[T[n]]*w[T[n]]
z[i] = v[i]*w[i]*exp(x[i])
"""


def test_what_reads_all_that_an_equation_reads_may_hold_it():
    lets = lets_of(SMALL)
    found = DefinitionIndex(lets, plain)
    assert [let.name for let in found.like(lets["u"].body)] == ["u", "c"]
    assert [let.name for let in found.like(lets["v"].body)] == ["v", "c"]
    assert [let.name for let in found.like(lets["z"].body)] == ["u", "c", "z"]
    assert [let.name for let in found.like(lets["c"].body)] == ["c"]


def test_the_tensors_of_an_expression_are_those_of_its_positions_too():
    assert tensors(lets_of(SMALL)["y"].body) == {"v", "T", "w"}


def test_equations_that_do_not_fit_and_those_of_the_engine_are_left_out():
    lets = lets_of("op f(x[i,k]) -> y\ny[i] = max[k](x[i,k]) + logsumexp[k](x[i,k])")
    assert {let.internal for let in lets} == {True, False}
    assert [let.name for let in DefinitionIndex(lets, plain).like(lets["y"].body)] == ["y"]
    assert DefinitionIndex(lets, lambda let: False).like(lets["y"].body) == []


def test_equations_that_come_later_are_found():
    lets, more = lets_of("op f(x[i]) -> q\nq[i] = x[i]*x[i]"), lets_of(SMALL)
    found = DefinitionIndex(lets, plain)
    assert [let.name for let in found.like(more["v"].body)] == ["q"]
    lets.define(more["v"])
    assert [let.name for let in found.like(more["v"].body)] == ["q", "v"]


@pytest.mark.parametrize("name", CHAINS)
def test_few_come_into_question_in_a_network_of_any_depth(name):
    lets = lets_of(CHAINS[name](20))
    found = DefinitionIndex(lets, plain)
    for let in lets.given.values():
        if plain(let):
            like = found.like(let.body)
            assert let in like and len(like) <= 3


@each_row(
    "equations",
    [
        "e[d] = exp(v[d])\nz[d] = e[d]*exp(v[d+1])",
        "e[d] = v[d]**3 + sin(v[d])\nz[d] = e[d]*cos(v[d+1]**3 + sin(v[d+1]))",
        "e[d] = exp(v[d])\nz[d] = e[d]*exp(v[size(k)-1])",
        "z[n,d] = (x[n] - v[d])*(x[n] - v[d+1])",
        "z[n] = sum[d]((x[n] - v[d])/(3 + v[d+1] - v[d]))",
        "z[n] = sum[d]((x[n] - v[d])**2 - (x[n] - v[d+1])**2)",
    ],
)
def test_an_equation_of_a_part_of_an_axis_is_read_on_that_part(equations):
    """v[d+1] runs to the end of the axis, and what is defined for d does not."""
    assert_right(f"op f(v[k], x[n]; size(d)=size(k) - 1) -> z\n{equations}")


i, j = index("i"), index("j")
x, z, y = Access("x", (i,)), Access("A", (i, j)), Access("y", (j,))
BASE = flat(Add((x, z)))[0]


def test_a_multiple_and_the_rest_make_the_whole():
    p = add(mul(flat(Mul((num(2), y)))[0], BASE), flat(Mul((num(3), x)))[0])
    found = list(multiples(p, BASE, lambda q: q))
    assert found
    for multiple, rest in found:
        assert add(multiple.of(BASE), rest) is p
        assert len(rest.terms) < len(p.terms)


def test_half_of_the_sum_is_no_multiple():
    p = flat(Mul((num(2), y, x)))[0]
    assert list(multiples(p, BASE, lambda q: q)) == []
    assert list(multiples(ZERO, BASE, lambda q: q)) == []
