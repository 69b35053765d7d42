"""Each rule on two or three tiny terms, on one where it must not fire, and against the oracle."""

from fractions import Fraction

import numpy as np
import pytest
from kit.each import each_row
from kit.equations import evaluated, flat, index, with_lets

import derive
from derive.algebra.expr import (
    Access,
    Call,
    Delta,
    Guard,
    Index,
    Iverson,
    Pow,
    Rel,
    Size,
    accesses,
    free_indices,
    num,
    sort_key,
)
from derive.algebra.factor import to_tree
from derive.algebra.interpret import array
from derive.algebra.poly import ONE, ZERO, add, as_atom, atom, constant, make_term, mul, poly, scale
from derive.algebra.rules import (
    CONTRACT,
    DELTA_RULES,
    FUNCTION_RULES,
    SumRule,
    eliminate_deltas,
    simplify,
)
from derive.algebra.substitution import substitute
from derive.calculus.build_lets import flatten_operation
from derive.calculus.fold import fold_rules
from derive.calculus.lets import Lets
from derive.check import oracle
from derive.show.formula import unicode

i, i1, i2, j, j1, k, k1 = map(index, ("i", "i'", "i''", "j", "j'", "k", "k'"))
DELTA = {rule.name: rule for rule in DELTA_RULES}


def x(position):
    return Access("x", (position,))


def z(position):
    return Access("z", (position,))


def D(*positions):
    return Access("D", positions)


def T(position):
    return Access("T", (position,))


def less(a, b):
    return Iverson(Rel("<", atom(a), b))


def term(binders, *factors, coef=1):
    return make_term(Fraction(coef), binders, factors)


def arrays(sizes, seed=0):
    """x[i], D[i,i], z[k] and T[j], which holds positions in k."""
    rng = np.random.default_rng(seed)
    n = sizes["i"]
    return {
        "x": rng.uniform(0.5, 1.5, n),
        "D": rng.uniform(0.5, 1.5, (n, n)),
        "z": rng.uniform(0.5, 1.5, sizes["k"]),
        "T": rng.integers(0, sizes["k"], sizes["j"]),
    }


EXTENTS = [{"i": n, "j": n + 1, "k": n + 2} for n in (1, 2, 3)]


def assert_equal(before, after, sizes, tensors, lets=None):
    axes = tuple(sorted(free_indices(before), key=sort_key))
    one = evaluated(axes, before, tensors, lets, sizes)
    other = evaluated(axes, after, tensors, lets, sizes)
    np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-14)


def logsigmoid(e, coef=1):
    return Call("logsigmoid", (scale(atom(e), coef),))


@pytest.mark.parametrize("sizes", EXTENTS, ids=lambda s: f"i={s['i']}")
def test_the_logarithms_of_two_odds_are_what_they_are_of(sizes):
    a, b = (term((i,), D(i, i1), logsigmoid(x(i), c), coef=c * 3) for c in (1, -1))
    p = add(poly([a, b]), atom(x(i1)))
    made = simplify(p, FUNCTION_RULES, [])
    assert made is add(poly([term((i,), D(i, i1), x(i), coef=3)]), atom(x(i1)))
    assert_equal(p, made, sizes, arrays(sizes))


def test_odds_of_others_or_by_another_factor_are_not():
    a = term((), logsigmoid(x(i)))
    for b in (
        term((), logsigmoid(x(i), -1)),
        term((), logsigmoid(x(i), -1), coef=-2),
        term((), logsigmoid(x(i1), -1), coef=-1),
        term((), z(k), logsigmoid(x(i), -1), coef=-1),
    ):
        assert simplify(poly([a, b]), FUNCTION_RULES, []) is poly([a, b])


def of(text):
    """An operation with this right side over x and w."""
    return derive.parse(f"op f(x[n], w[n]) -> y, z\ny[n] = {text}\nz[n] = x[n] + w[n]")


def flattened(text):
    return flatten_operation(of(text))["y"].body


@pytest.mark.parametrize("rule", FUNCTION_RULES, ids=lambda rule: rule.name)
def test_a_function_rule_does_what_its_examples_show(rule):
    assert any(before != after for before, after in rule.examples)
    assert any(before == after for before, after in rule.examples)
    if isinstance(rule, SumRule):
        assert all(f"{name}(" in rule.states for name in rule.functions)
    ends = [np.inf, -np.inf, 800.0, -800.0]
    given = {
        "x": np.array([-1.5, 0.0, 0.7, *ends]),
        "w": np.array([2.0, 0.3, -0.9, 2.0, 0.3, 2.0, -2.0]),
    }
    for before, after in rule.examples:
        made = simplify(flattened(before), (rule,), [])
        text = f"{before} became {unicode(to_tree(made))}, not {after}"
        assert made is flattened(after), text
        one, other = (oracle.outputs(of(t), given, {})["y"] for t in (before, after))
        np.testing.assert_allclose(one, other, rtol=1e-12, err_msg=f"{before} = {after}")


FIRES = {
    "equal positions": [
        (term((), Delta(i, i), x(i)), atom(x(i))),
        (term((i,), Delta(i, i), x(i)), poly([term((i,), x(i))])),
        (term((i,), Delta(T(j), T(j)), x(i)), poly([term((i,), x(i))])),
    ],
    "contract delta": [
        (term((i1,), Delta(i1, i), x(i1)), atom(x(i))),
        (term((i1,), Delta(i, i1), D(i1, i1), coef=3), scale(atom(D(i, i)), 3)),
        (term((k,), Delta(k, T(j)), z(k)), atom(z(T(j)))),
        (term((i1, i2), Delta(i, i1), D(i1, i2)), poly([term((i2,), D(i, i2))])),
    ],
}

STANDS = {
    "equal positions": [term((), Delta(i, i1), x(i)), term((), Delta(i, T(j)), x(i))],
    "contract delta": [term((), Delta(i, i1), x(i)), term((i2,), Delta(i, i1), x(i2))],
}


def test_every_delta_rule_has_cases():
    assert set(FIRES) == set(STANDS) == set(DELTA)


@pytest.mark.parametrize("sizes", EXTENTS, ids=lambda s: f"i={s['i']}")
@pytest.mark.parametrize("name", FIRES)
def test_a_delta_rule_keeps_the_value(name, sizes):
    for before, after in FIRES[name]:
        made = DELTA[name].apply(before)
        assert made is after
        assert_equal(before, made, sizes, arrays(sizes))


@pytest.mark.parametrize("name", STANDS)
def test_a_delta_rule_does_not_fire_elsewhere(name):
    for t in STANDS[name]:
        assert DELTA[name].apply(t) is None


@pytest.mark.parametrize("rule", DELTA_RULES, ids=lambda r: r.name)
def test_a_rule_says_what_it_uses_and_why_it_ends(rule):
    assert rule.name and rule.states and rule.shrinks


def eliminated(*terms):
    return eliminate_deltas(poly(terms), DELTA_RULES, [])


@pytest.mark.parametrize("sizes", EXTENTS, ids=lambda s: f"i={s['i']}")
def test_a_summed_axis_becomes_any_position(sizes):
    """A position that is read lies in its axis, so no range is asked."""
    tensors = arrays(sizes)
    for position in (i1, num(0), T(j)):
        axis = k if position is T(j) else i
        read = z(k) if position is T(j) else x(i)
        t = term((axis,), Delta(axis, position), read)
        after = eliminated(t)
        assert not any(isinstance(f, Delta) for s in after.terms for f in s.factors)
        assert_equal(t, after, sizes, tensors)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_summed_axis_becomes_an_affine_position(n):
    """Sum_k delta(k, j+2) z[k] = z[j+2], as every j+2 is in k."""
    sizes = {"i": n, "j": n, "k": n + 2}
    t = term((k,), Delta(k, add(atom(j), constant(2))), z(k))
    after = eliminated(t)
    assert after is atom(z(add(atom(j), constant(2))))
    assert_equal(t, after, sizes, arrays(sizes))


def test_a_summed_position_of_the_same_class_becomes_the_axis():
    t = term((i1,), Delta(i, i1), D(i1, i))
    assert eliminated(t) is atom(D(i, i))


@pytest.mark.parametrize("sizes", EXTENTS, ids=lambda s: f"i={s['i']}")
def test_a_summed_position_of_another_class_stays(sizes):
    """i runs over fewer values than k: Sum_i delta(k, i) x[i] is 0 for the last k."""
    t = term((i,), Delta(k, i), x(i))
    assert CONTRACT.apply(t) is None
    assert eliminated(t) is poly([t])
    value = evaluated((k,), t, arrays(sizes), None, sizes)
    assert value[-1] == 0 and value[0] != 0


@each_row(
    "t",
    [
        term((j,), Delta(k, T(j)), Pow(x(num(0)), num(2))),
        term((), Delta(k, T(j)), z(k)),
        term((j,), Delta(k, add(atom(j), constant(1)))),
        term((j, j1), Delta(k, add(atom(j), atom(j1)))),
        term((), Delta(i, i1), x(i)),
        term((i2,), Delta(i, i1), x(i2)),
    ],
)
def test_a_delta_that_cannot_be_solved_stays(t):
    log = []
    assert eliminate_deltas(poly([t]), DELTA_RULES, log) is poly([t])
    assert log == []


def test_a_summed_index_that_nothing_uses_any_more_counts():
    """Sum_{i,i'} delta(i, i') = size(i)."""
    assert eliminated(term((i, i1), Delta(i, i1))) is atom(Size("i"))


@pytest.mark.parametrize("sizes", EXTENTS, ids=lambda s: f"i={s['i']}")
def test_a_written_comparison_is_a_delta_only_within_one_class(sizes):
    same, _ = flat(Iverson(Rel("==", i, i1)))
    assert same is atom(Delta(i, i1))
    other, _ = flat(Iverson(Rel("==", i, k)))
    assert [type(f) for t in other.terms for f in t.factors] == [Iverson]
    before = Iverson(Rel("==", i, k))
    assert_equal(before, other, sizes, arrays(sizes))


@pytest.mark.parametrize("sizes", EXTENTS, ids=lambda s: f"i={s['i']}")
def test_contraction_reaches_conditions_powers_and_functions(sizes):
    inside = add(atom(x(i1)), ONE)
    t = term(
        (i1,), Delta(i1, i), less(i1, constant(1)), Pow(inside, num(-1)), Call("exp", (inside,))
    )
    after = eliminated(t)
    assert free_indices(after) == {i}
    assert not after.terms[0].binders
    assert_equal(t, after, sizes, arrays(sizes))


@pytest.mark.parametrize("sizes", EXTENTS, ids=lambda s: f"i={s['i']}")
def test_deltas_in_a_chain_are_all_eliminated(sizes):
    t = term((i1, i2), Delta(i, i1), Delta(i1, i2), D(i1, i2))
    log = []
    after = eliminate_deltas(poly([t]), DELTA_RULES, log)
    assert after is atom(D(i, i))
    assert_equal(t, after, sizes, arrays(sizes))
    for step in log:
        assert_equal(step.before, step.after, sizes, arrays(sizes))


def test_two_deltas_on_one_summed_index_leave_one_between_their_positions():
    t = term((k,), Delta(k, T(j)), Delta(k, T(j1)), z(k))
    (made,) = eliminated(t).terms
    assert not made.binders
    sizes = EXTENTS[1]
    assert_equal(t, made, sizes, arrays(sizes))


SOFTMAX = "op f(B[j,k]) -> S\nS[j,k] = exp(B[j,k]) / sum[l](exp(B[j,l]))"
LOG_SOFTMAX = "op f(B[j,k]) -> F\nF[j,k] = B[j,k] - logsumexp[k](B[j,k])"
GUARDED = "op f(B[j,k]) -> F\nF[i,j,k] = B[j,k] - logsumexp[l | l {} i](B[j,l])"
CENTRED = "op f(B[j,k]) -> C\nm[j] = mean[k](B[j,k])\nC[j,k] = B[j,k] - m[j]"
SCALED = "op f(y[j]; eps=0.5) -> v\nv[j] = (y[j] + eps)**(-1/2)"


class Forward:
    """The lets of an operation, its rules by name, and arrays for everything they read."""

    def __init__(self, text):
        self.op = derive.parse(text)
        self.lets: Lets = flatten_operation(self.op)
        self.rules = {rule.name: rule for rule in fold_rules(self.lets, {})}

    def known(self, n):
        rng = np.random.default_rng(n)
        shapes = {"B": (n, n + 1), "z": (n + 1,), "y": (n,)}
        given = {t.name: rng.uniform(0.5, 1.5, shapes[t.name]) for t in self.op.inputs}
        sizes = oracle.sizes(self.op, given, {})
        return given, sizes

    def apply(self, name, t):
        rule = self.rules[name]
        return rule.apply(poly([t]) if isinstance(rule, SumRule) else t)

    def assert_equal(self, before, after):
        for n in (1, 2, 3):
            given, sizes = self.known(n)
            known = with_lets(self.lets, given, sizes, {"eps": 0.5})
            axes = tuple(sorted(free_indices(before), key=sort_key))
            one, other = (
                array(axes, to_tree(e), known, sizes, {"eps": 0.5}) for e in (before, after)
            )
            np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12)


def body(forward, name):
    return forward.lets[name].body


def lse_of(forward):
    return next(let for let in forward.lets if let.kind == "logsumexp")


def test_every_rule_of_the_forward_is_tested_here():
    names = {"normalised exponential", "known sum", "fold total", "fold", "fold sum"}
    names |= {"fold total through an adjoint", "no positions, no value"}
    names |= {"guard", "guarded product"}
    assert set(Forward(SOFTMAX).rules) == names


def taken(column):
    """[size(k) > 0], which is what a softmax over k sums to."""
    return atom(Iverson(Rel("<", ZERO, atom(Size(column.extent)))))


def test_normalised_exponentials_sum_to_one():
    f = Forward(SOFTMAX)
    (share,) = body(f, "S").terms
    alone = make_term(Fraction(1), (f.op.equations[0].axes[1],), share.factors)
    made = f.apply("normalised exponential", alone)
    column = f.op.equations[0].axes[1]
    assert made is taken(column)
    f.assert_equal(alone, made)
    # Another factor without the summed index stays.
    lse = lse_of(f)
    beside = make_term(Fraction(2), alone.binders, [*alone.factors, lse.access])
    made = f.apply("normalised exponential", beside)
    assert made is scale(mul(taken(column), atom(lse.access)), 2)
    f.assert_equal(beside, made)


def test_a_size_is_not_asked_for_where_nothing_is_left_without_it():
    f = Forward(SOFTMAX)
    row, column = f.op.equations[0].axes
    bracket, (value,) = taken(column).terms[0].factors, body(f, "S").terms[0].factors
    for binders in ((), (column,)):
        t = make_term(Fraction(2), binders, [*bracket, value])
        made = f.apply("no positions, no value", t)
        assert made is poly([make_term(Fraction(2), binders, [value])])
        f.assert_equal(t, made)
    # A number is not 0 then, and a position in range is what the bracket is for.
    for factors in ([lse_of(f).access], [value, Access("B", (row, num(0)))]):
        t = make_term(Fraction(2), (), [*bracket, *factors])
        assert f.apply("no positions, no value", t) is None


def test_exponentials_weighted_within_the_sum_do_not_sum_to_one():
    f = Forward(SOFTMAX)
    (share,) = body(f, "S").terms
    row, column = f.op.equations[0].axes
    weighted = [*share.factors, Access("B", (row, column))]
    assert f.apply("normalised exponential", make_term(Fraction(1), (column,), weighted)) is None
    # Nor does their sum over the other axis.
    assert f.apply("normalised exponential", make_term(Fraction(1), (row,), share.factors)) is None


@pytest.mark.parametrize(("relation", "holds"), [("<=", True), ("<", False)])
def test_guarded_exponentials_sum_to_one_where_some_are_taken(relation, holds):
    """l <= i has l = i; l < 0 has nothing, whose sum is 0."""
    f = Forward(GUARDED.format(relation))
    *_, column = f.op.equations[0].axes
    exponential = Call("exp", (body(f, "F"),))
    lse = lse_of(f)
    (read,) = (a for a in accesses(body(f, "F")) if a.tensor == lse.name)
    places = dict(zip(lse.formals, read.positions, strict=True))
    guard = Iverson(substitute(lse.condition, {**places, lse.binders[0]: column}))
    guarded = make_term(Fraction(1), (column,), [exponential, guard])
    made = f.apply("normalised exponential", guarded)
    assert made is (taken(column) if holds else None)
    if holds:
        f.assert_equal(guarded, made)
    # Under the guard only.
    alone = make_term(Fraction(1), (column,), [exponential])
    assert f.apply("normalised exponential", alone) is None


def test_a_guarded_quotient_cancels_beside_the_bracket_of_its_guard():
    f = Forward(SOFTMAX)
    row, column = f.op.equations[0].axes
    u, v = (Access(name, (row, column)) for name in "BS")
    test = Rel("<", num(1), u)
    ratio = Guard(test, as_atom(mul(atom(u), atom(v, -1))), num(1))
    held = make_term(Fraction(2), (), [Iverson(test), Pow(u, num(2)), Pow(ratio, num(-1))])
    made = f.apply("guarded product", held)
    f.assert_equal(held, made)
    (t,) = made.terms
    cancelled = f.apply("guard", t)
    f.assert_equal(held, cancelled)
    assert cancelled is poly(
        [make_term(Fraction(2), (), [Iverson(test), u, Guard(test, v, num(1))])]
    )
    bare = make_term(Fraction(2), (), [Pow(u, num(2)), Pow(ratio, num(-1))])
    assert f.apply("guarded product", bare) is None


@pytest.mark.parametrize(("text", "name", "total"), [(SOFTMAX, "S", 1), (CENTRED, "C", 0)])
def test_a_sum_that_the_definition_tells_is_taken(text, name, total):
    f = Forward(text)
    _, column = f.lets[name].formals
    t = make_term(Fraction(3), (column,), [f.lets[name].access])
    made = f.apply("known sum", t)
    assert made is scale(taken(column), 3 * total)
    f.assert_equal(t, made)


def test_a_sum_over_another_axis_is_not_known():
    f = Forward(SOFTMAX)
    row, column = f.lets["S"].formals
    other = Index("other", column.extent)
    access = f.lets["S"].access
    assert f.apply("known sum", make_term(Fraction(1), (row,), [access])) is None
    # Neither is one with a second factor that reads the index, nor a square.
    beside = [access, Access("B", (row, column))]
    assert f.apply("known sum", make_term(Fraction(1), (column,), beside)) is None
    assert f.apply("known sum", make_term(Fraction(1), (column,), [Pow(access, num(2))])) is None
    assert f.apply("known sum", make_term(Fraction(1), (other,), [access])) is None


def test_a_defining_expression_becomes_its_name():
    f = Forward(SOFTMAX)
    (share,) = body(f, "S").terms
    S = f.lets["S"]
    made = f.apply("fold", share)
    assert made is atom(S.access)
    f.assert_equal(share, made)
    # Elsewhere: other indices, and the name's power.
    new = {a: Index(a.name + "'", a.extent) for a in S.formals}
    (moved,) = S.body_at(tuple(new.values())).terms
    squared = make_term(Fraction(1), (), [Pow(f_, num(2)) for f_ in moved.factors])
    made = f.apply("fold", squared)
    assert made is atom(Access("S", tuple(new.values())), 2)


def test_a_whole_power_of_a_root_is_a_power_of_its_name():
    """(y + eps)^(-3/2) = v^3 where v = (y + eps)^(-1/2)."""
    f = Forward(SCALED)
    (root,) = body(f, "v").terms
    (factor,) = root.factors
    cube = make_term(Fraction(1), (), [Pow(factor.base, num(Fraction(-3, 2)))])
    made = f.apply("fold", cube)
    assert made is atom(f.lets["v"].access, 3)
    f.assert_equal(cube, made)
    fourth = make_term(Fraction(1), (), [Pow(factor.base, num(Fraction(-1, 4)))])
    assert f.apply("fold", fourth) is None


def test_an_exponential_of_another_row_is_not_folded():
    """exp(B[j',k] - lse[j]) is no element of S."""
    f = Forward(SOFTMAX)
    lse = lse_of(f)
    row, column = f.lets["S"].formals
    other = Index("other", row.extent)
    inside = add(atom(Access("B", (other, column))), scale(atom(Access(lse.name, (row,))), -1))
    assert f.apply("fold", make_term(Fraction(1), (), [Call("exp", (inside,))])) is None


def test_a_defining_sum_inside_a_function_becomes_its_name():
    f = Forward(LOG_SOFTMAX)
    F = f.lets["F"]
    t = make_term(Fraction(1), (), [Call("exp", (F.body,))])
    made = f.apply("fold sum", t)
    assert made is atom(Call("exp", (atom(F.access),)))
    f.assert_equal(t, made)
    squared = make_term(Fraction(1), (), [Pow(F.body, num(2))])
    made = f.apply("fold sum", squared)
    assert made is atom(F.access, 2)
    f.assert_equal(squared, made)
    negative = make_term(Fraction(1), (), [Call("exp", (scale(F.body, -1),))])
    assert f.apply("fold sum", negative) is None


def test_rules_repeat_until_none_applies():
    f = Forward(SOFTMAX)
    (share,) = body(f, "S").terms
    _, column = f.lets["S"].formals
    t = make_term(Fraction(1), (column,), share.factors)
    log = []
    rules = [*DELTA_RULES, *f.rules.values()]
    after = simplify(poly([t]), rules, log)
    assert after is taken(column)
    assert simplify(after, rules, []) is after
    for step in log:
        f.assert_equal(step.before, step.after)


def test_a_sum_of_products_that_has_a_name_becomes_the_name():
    f = Forward("op f(B[j,k], z[k]) -> F\nd[j] = sum[k](B[j,k]*z[k])\nF[j] = d[j]*exp(d[j])")
    (product,) = body(f, "d").terms
    (row,) = f.op.equations[0].axes
    whole = make_term(Fraction(3), product.binders, [*product.factors, Access("y", (row,))])
    made = f.apply("fold total", whole)
    assert made is scale(mul(atom(Access("d", (row,))), atom(Access("y", (row,)))), 3)
    # A further factor in the sum makes it another sum.
    (k,) = product.binders
    assert f.apply("fold total", make_term(Fraction(1), (k,), [*product.factors, k])) is None
    assert f.apply("fold total", make_term(Fraction(1), (), product.factors)) is None


def test_the_mean_of_what_stands_beside_it_is_not_a_name():
    """P*(Y - Sum_j P*Y) for Y = Sum_e z[e]*v[j,e]: the mean is Sum_e z[e]*o[e] otherwise."""
    f = Forward(
        "op f(x[j], v[j,e], z[e]) -> y\nP[j] = softmax[j](x[j])\n"
        "o[e] = sum[j](P[j]*v[j,e])\ny = sum[e](z[e]*o[e])"
    )
    (j,), (e,) = (equation.axes for equation in f.op.equations[:2])
    share, z = Access("P", (j,)), Access("z", (e,))
    value = [Access("v", (j, e)), z]
    mean = make_term(Fraction(-1), (j, e), [share, *value])
    named = poly([make_term(Fraction(-1), (e,), [Access("o", (e,)), z])])
    assert f.apply("fold total", mean) is named
    beside = poly([mean, make_term(Fraction(1), (e,), [share, *value])])
    assert f.rules["fold total"].apply(beside) is None


def test_a_sum_over_two_axes_at_once_is_known():
    """Neither sum alone is a number, the sum over both is."""
    f = Forward("op f(B[j,k]) -> C\nm = mean[j,k](B[j,k])\nC[j,k] = B[j,k] - m")
    access = f.lets["C"].access
    made = f.apply("known sum", make_term(Fraction(1), access.positions, [access]))
    assert made is ZERO


def test_a_known_sum_shows_its_steps():
    f = Forward(CENTRED)
    access = f.lets["C"].access
    t = make_term(Fraction(1), (access.positions[1],), [access])
    steps = f.rules["known sum"].because(t)
    assert steps[-1].after is ZERO
    for step in steps:
        f.assert_equal(step.before, step.after)
        assert step.subject[1] == access.positions
