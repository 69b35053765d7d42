"""The oracle, held against independent NumPy formulas."""

import math
from fractions import Fraction

import numpy as np
import pytest
from kit.each import each_row

from derive import parse
from derive.algebra import interpret
from derive.algebra.expr import (
    Access,
    Add,
    And,
    Call,
    Composite,
    Const,
    Delta,
    Guard,
    Index,
    Iverson,
    Mul,
    Not,
    Num,
    Or,
    Param,
    Pow,
    Reduce,
    Rel,
    Size,
    Where,
    num,
)
from derive.check import oracle
from derive.errors import DeriveError
from derive.notation.operation import (
    AxisOf,
    Choice,
    Equation,
    Extent,
    KeepDim,
    Number,
    Operation,
    SizeOf,
    Tensor,
)

INF, NAN = math.inf, math.nan
i, j, k, n = (Index(name, name) for name in "ijkn")
p, q = Index("p", "p", True), Index("q", "q", True)
SIZES = {"i": 2, "j": 3, "k": 5, "n": 4}


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def x(*positions):
    return Access("x", positions)


def array(axes, body, sizes=SIZES, parameters=None, kind="float", **tensors):
    return interpret.array(axes, body, tensors, sizes, parameters or {}, kind)


def scalar(body, sizes=SIZES, indices=None, parameters=None, **tensors):
    return oracle.evaluate(body, tensors, sizes, indices or {}, parameters or {})


def over(kind, *indices, body, condition=None):
    return Reduce(kind, indices, body, condition)


def test_numbers_constants_parameters_and_positions():
    assert scalar(num(3)) == 3 and isinstance(scalar(num(3)), int)
    assert scalar(Num(Fraction(1, 4))) == 0.25
    assert scalar(Const("pi")) == math.pi and scalar(Const("inf")) == INF
    assert scalar(Param("eps"), parameters={"eps": 0.5}) == 0.5
    assert scalar(Size("k")) == 5 and scalar(i + j, indices={i: 1, j: 2}) == 3


def test_arithmetic_has_ieee_results():
    assert scalar(Pow(num(0), num(-1))) == INF
    assert math.isnan(scalar(Pow(num(-2), Num(Fraction(1, 2)))))
    assert scalar(Pow(num(2), num(10))) == 1024
    assert scalar(Size("k") / Size("i")) == 2.5
    assert math.isnan(scalar(Add((Const("inf"), -Const("inf")))))


def test_matmul(rng):
    a, b = rng.normal(size=(2, 5)), rng.normal(size=(5, 3))
    body = over("sum", k, body=Access("a", (i, k)) * Access("b", (k, j)))
    np.testing.assert_allclose(array((i, j), body, a=a, b=b), a @ b, rtol=1e-14)


@each_row(
    "kind, expected",
    [
        ("sum", lambda a: a.sum(1)),
        ("mean", lambda a: a.mean(1)),
        ("prod", lambda a: a.prod(1)),
        ("max", lambda a: a.max(1)),
        ("amax", lambda a: a.max(1)),
        ("min", lambda a: a.min(1)),
        ("amin", lambda a: a.min(1)),
        ("argmax", lambda a: a.argmax(1)),
        ("argmin", lambda a: a.argmin(1)),
        ("logsumexp", lambda a: np.log(np.exp(a).sum(1))),
    ],
)
@each_row("size", [1, 5])
def test_reductions(rng, kind, expected, size):
    a = rng.normal(size=(3, size))
    found = array((j,), over(kind, k, body=x(j, k)), {"j": 3, "k": size}, x=a)
    np.testing.assert_allclose(found, expected(a), rtol=1e-13)


def test_any_and_all():
    a = np.array([[True, False, True], [True, True, True], [False, False, False]])
    sizes = {"j": 3, "k": 3}
    assert array((j,), over("any", k, body=x(j, k)), sizes, kind="bool", x=a).tolist() == [
        True,
        True,
        False,
    ]
    assert array((j,), over("all", k, body=x(j, k)), sizes, kind="bool", x=a).tolist() == [
        False,
        True,
        False,
    ]


OF_NOTHING = {
    "sum": 0,
    "prod": 1,
    "max": -INF,
    "amax": -INF,
    "min": INF,
    "amin": INF,
    "logsumexp": -INF,
    "mean": NAN,
    "any": False,
    "all": True,
}


@each_row("kind", OF_NOTHING)
def test_of_nothing(kind):
    empty = scalar(over(kind, k, body=x(k)), {"k": 0}, x=np.empty(0))
    never = scalar(over(kind, k, body=x(k), condition=Or(())), {"k": 2}, x=np.ones(2))
    assert empty == pytest.approx(OF_NOTHING[kind], nan_ok=True)
    assert never == pytest.approx(OF_NOTHING[kind], nan_ok=True)


def test_first_winner_and_row_major_positions():
    a = np.array([[1.0, 7.0, 2.0], [7.0, 0.0, 7.0]])
    sizes = {"i": 2, "j": 3}
    assert scalar(over("argmax", i, j, body=x(i, j)), sizes, x=a) == 1
    assert scalar(over("argmax", j, i, body=x(i, j)), sizes, x=a) == 1
    assert scalar(over("argmin", i, j, body=x(i, j)), sizes, x=a) == 4
    assert (
        scalar(over("argmin", i, j, body=x(i, j), condition=Rel("<", i, num(1))), sizes, x=a) == 0
    )


def test_nan_wins_as_in_torch():
    a = np.array([1.0, NAN, 3.0, NAN])
    sizes = {"k": 4}
    assert math.isnan(scalar(over("max", k, body=x(k)), sizes, x=a))
    assert math.isnan(scalar(over("logsumexp", k, body=x(k)), sizes, x=a))
    assert scalar(over("argmax", k, body=x(k)), sizes, x=a) == 1
    assert scalar(Rel("!=", x(num(1)), x(num(1))), sizes, x=a) is True
    assert scalar(Rel("<", x(num(1)), num(3)), sizes, x=a) is False


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1000.0, 1000.0), 1000 + math.log(2)),
        ((-1000.0, -1000.0), -1000 + math.log(2)),
        ((INF, 1.0), INF),
        ((-INF, -INF), -INF),
        ((-INF, 2.0), 2.0),
    ],
)
def test_logsumexp_is_stable(values, expected):
    assert scalar(over("logsumexp", k, body=x(k)), {"k": 2}, x=np.array(values)) == expected


def test_conditional_mean_divides_by_the_number_taken(rng):
    a = rng.normal(size=(4, 4))
    body = over("mean", k, body=x(n, k), condition=Rel("<=", k, n))
    found = array((n,), body, {"n": 4, "k": 4}, x=a)
    np.testing.assert_allclose(found, [a[m, : m + 1].mean() for m in range(4)])


def test_binders_shadow_and_return():
    body = x(k) / over("sum", k, body=x(k)) + x(k)
    a = np.array([1.0, 2.0, 5.0])
    np.testing.assert_allclose(array((k,), body, {"k": 3}, x=a), a / 8 + a)


def test_conditions_exclude_without_evaluating():
    a = np.array([NAN, 2.0])
    sizes = {"k": 2}
    off = Rel("==", k, num(5))
    beyond = x(k + 7)
    assert array((k,), Where(off, beyond, k), sizes, x=a).tolist() == [0, 1]
    assert array((k,), Where(Not(off), k, beyond), sizes, x=a).tolist() == [0, 1]
    assert array((k,), Mul((beyond, Iverson(off))), sizes, x=a).tolist() == [0, 0]
    assert array((k,), Mul((Mul((x(k), Iverson(off))), beyond)), sizes, x=a).tolist() == [0, 0]
    assert array((k,), Mul((beyond, Delta(k, num(3)))), sizes, x=a).tolist() == [0, 0]
    assert array(
        (k,),
        over("sum", n, body=x(n), condition=And((Rel(">", n, num(1)), beyond))),
        {"k": 2, "n": 2},
        x=a,
    ).tolist() == [0, 0]
    assert scalar(And((Rel("<", num(1), num(0)), x(num(9)))), sizes, x=a) is False
    assert scalar(Or((Rel("<", num(0), num(1)), x(num(9)))), sizes, x=a) is True
    # A bracket that holds leaves the product alone.
    assert scalar(Mul((Iverson(And(())), num(3)))) == 3


def test_a_guard_reads_position_0_where_it_fails():
    a = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    t = np.array([2, -100])
    target = Access("t", (i,))
    body = x(i, Guard(Rel(">=", target, num(0)), target))
    assert array((i,), body, {"i": 2}, x=a, t=t).tolist() == [3, 4]


def test_gathers_and_affine_accesses(rng):
    a, w = rng.normal(size=(4, 5)), rng.normal(size=7)
    t = np.array([3, 0, 4, 1])
    found = array((n,), x(n, Access("t", (n,))), {"n": 4}, x=a, t=t)
    np.testing.assert_array_equal(found, a[np.arange(4), t])
    body = over("sum", k, body=Access("w", (num(2) * j + k,)))
    np.testing.assert_allclose(
        array((j,), body, {"j": 3, "k": 3}, w=w), [w[m : m + 3].sum() for m in (0, 2, 4)]
    )
    flipped = array((n,), Access("w", (Size("n") - 1 - n,)), {"n": 7}, w=w)
    np.testing.assert_array_equal(flipped, w[::-1])


@pytest.mark.parametrize("at", [-1, 5])
def test_a_position_out_of_range_is_an_index_error(at):
    with pytest.raises(IndexError, match=rf"^x: position {at} on axis 1 is not in \[0, 5\)$"):
        scalar(x(num(0), num(at)), x=np.zeros((2, 5)))
    with pytest.raises(IndexError, match="not an integer"):
        scalar(x(num(0), Num(Fraction(1, 2))), x=np.zeros((2, 5)))


def test_delta():
    np.testing.assert_array_equal(array((j, k), Delta(j, k)), np.eye(3, 5))
    sizes = {"p": (2, 3)}
    other = Index("o", "p", True)
    assert array((p, other), Delta(p, other), sizes).reshape(6, 6).tolist() == np.eye(6).tolist()


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 0, 3), (1,)])
def test_groups_of_any_number_of_axes(rng, shape):
    a = rng.normal(size=(*shape, 5))
    sizes = {"p": shape, "k": 5}
    np.testing.assert_allclose(array((p,), over("sum", k, body=x(p, k)), sizes, x=a), a.sum(-1))
    np.testing.assert_allclose(scalar(over("sum", p, k, body=x(p, k)), sizes, x=a), a.sum())
    assert scalar(Size("p"), sizes) == math.prod(shape)
    counted = array((p,), p, sizes)
    assert counted.tolist() == np.arange(math.prod(shape)).reshape(shape).tolist()


def test_composites_on_both_sides(rng):
    a = rng.normal(size=(2, 15))
    np.testing.assert_array_equal(
        array((i, j, k), x(i, Composite((j, k))), x=a), a.reshape(2, 3, 5)
    )
    b = rng.normal(size=(3, 5))
    np.testing.assert_array_equal(array((Composite((j, k)), i), x(j, k), x=b)[:, 1], b.reshape(15))
    assert array((num(0), j), j).shape == (1, 3)
    sizes = {"p": (2, 3), "k": 5}
    whole = array((p, k), x(Composite((p, k))), sizes, x=np.arange(30.0))
    np.testing.assert_array_equal(whole, np.arange(30.0).reshape(2, 3, 5))


def test_functions_of_integers_stay_integers():
    assert isinstance(scalar(Call("maximum", (num(2), num(3)))), int)
    assert scalar(Call("floordiv", (num(-7), num(2)))) == -4
    assert scalar(Call("exp", (num(1),))) == math.e


def operation(inputs, equations, extents, parameters=(), outputs=None, name="op"):
    outputs = outputs or (equations[-1].name,)
    return Operation.resolved(name, inputs, parameters, equations, outputs, extents)


def softmax():
    lse = Equation("lse", (p, q), over("logsumexp", k, body=Access("A", (p, k, q))))
    body = Call("exp", (Access("A", (p, k, q)) - Access("lse", (p, q)),))
    s = Equation("S", (p, k, q), body)
    return operation(
        (Tensor("A", (p, k, q)),),
        (lse, s),
        (Extent("p", True, (("A", 0),)), Extent("k", False, (("A", 1),)), Extent("q", True)),
        (AxisOf("dim", k, -1), KeepDim("keepdim", k)),
        ("lse", "S"),
    )


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 3, 4), (2, 1, 3, 2)])
def test_softmax_at_every_dim(rng, shape):
    a = rng.normal(size=shape)
    for dim in range(-len(shape), len(shape)):
        made = oracle.outputs(softmax(), {"A": a}, {"dim": dim, "keepdim": True})
        expected = np.exp(a) / np.exp(a).sum(dim, keepdims=True)
        np.testing.assert_allclose(made["S"], expected, rtol=1e-13)
        np.testing.assert_allclose(made["lse"], np.log(np.exp(a).sum(dim, keepdims=True)))
        assert list(made) == ["lse", "S"]
    assert oracle.run(softmax(), {"A": a}, {})["lse"].shape == shape[:-1]
    assert oracle.sizes(softmax(), {"A": a}, {"dim": 0})["p"] == ()
    with pytest.raises(IndexError, match=r"^dim=7 is not an axis of A, rank"):
        oracle.run(softmax(), {"A": a}, {"dim": 7})


def test_gradient_of_softmax(rng):
    a, g = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 4))
    s = np.exp(a) / np.exp(a).sum(1, keepdims=True)
    expected = s * (g - (g * s).sum(1, keepdims=True))
    found = oracle.gradient(softmax(), {"A": a}, {"S": g}, {"dim": 1}, "A")
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-10)


def test_detach_stands_still_in_a_difference(rng):
    y = Equation("y", (j,), Access("x", (j,)) * Access("h", (j,)))
    h = Equation("h", (j,), Call("detach", (Call("exp", (x(j),)),)))
    op = operation((Tensor("x", (j,)),), (h, y), (Extent("j", False, (("x", 0),)),))
    a = rng.normal(size=3)
    found = oracle.gradient(op, {"x": a}, {"y": np.ones(3)}, {}, "x")
    np.testing.assert_allclose(found, np.exp(a), atol=1e-9)


def test_a_run_is_repeated_for_the_elements_as_they_are_now(rng):
    op = parse(
        "op f(x[i,j], s[i]: int) -> y\nu[i] = max[j](x[i,j])\ny[i] = u[s[i]]*sum[j](x[i,j]**2)"
    )
    x, s = rng.normal(size=(3, 4)), np.array([2, 0, 0])
    before = x.copy()
    found = oracle.ran(op, {"x": x, "s": s}, {})
    x[:] = rng.normal(size=x.shape)
    found.repeat()
    np.testing.assert_array_equal(found.made["y"], oracle.outputs(op, {"x": x, "s": s}, {})["y"])
    assert not np.array_equal(x, before)
    kept = x.copy()
    oracle.gradient(op, {"x": x, "s": s}, {"y": np.ones(3)}, {}, "x")
    np.testing.assert_array_equal(x, kept)


def test_infinite_outputs_that_stay_do_not_spoil_a_difference():
    body = Where(Rel("<", j, num(2)), x(j) ** 2, -Const("inf"))
    op = operation((Tensor("x", (j,)),), (Equation("y", (j,), body),), (Extent("j"),))
    a = np.array([1.0, 2.0, 3.0])
    found = oracle.gradient(op, {"x": a}, {"y": np.ones(3)}, {}, "x")
    np.testing.assert_allclose(found, [2, 4, 0], atol=1e-9)


def linear():
    body = over("sum", k, body=Access("x", (i, k)) * Access("w", (k,)) * Access("b", (k,)))
    y = Equation("y", (i,), Param("scale") * body)
    return operation(
        (Tensor("x", (i, k)), Tensor("w", (k,)), Tensor("b", (k,), "float", Fraction(1))),
        (y,),
        (Extent("i", False, (("x", 0),)), Extent("k", False, (("x", 1), ("w", 0), ("b", 0)))),
        (Number("scale", Fraction(1, 2)),),
    )


def test_defaults_of_tensors_and_parameters(rng):
    a, w = rng.normal(size=(2, 5)), rng.normal(size=5)
    for b in ({}, {"b": None}):
        made = oracle.run(linear(), {"x": a, "w": w, **b}, {})
        np.testing.assert_allclose(made["y"], a @ w / 2)
    made = oracle.run(linear(), {"x": a, "w": w, "b": w}, {"scale": 3})
    np.testing.assert_allclose(made["y"], 3 * a @ (w * w))


def test_disagreeing_sizes_are_named(rng):
    a = np.zeros((2, 5))
    with pytest.raises(ValueError) as error:
        oracle.run(linear(), {"x": a, "w": np.zeros(4)}, {})
    assert str(error.value) == "w: axis 0 (k) has size 4, but x: axis 1 has size 5"
    with pytest.raises(ValueError, match=r"^w: 2 axes do not fit w\[k\]$"):
        oracle.run(linear(), {"x": a, "w": np.zeros((5, 1))}, {})
    with pytest.raises(TypeError, match=r"^op needs the tensor w$"):
        oracle.run(linear(), {"x": a}, {})
    with pytest.raises(TypeError, match=r"^op has no parameter alpha$"):
        oracle.run(linear(), {"x": a, "w": np.zeros(5)}, {"alpha": 1})


@pytest.mark.parametrize("shape", [(1, 1), (0, 5), (2, 0), (3, 1)])
def test_sizes_1_and_0(shape):
    a, w = np.ones(shape), np.ones(shape[1])
    np.testing.assert_array_equal(oracle.run(linear(), {"x": a, "w": w}, {})["y"], a @ w / 2)
    assert (
        oracle.gradient(linear(), {"x": a, "w": w}, {"y": np.ones(shape[0])}, {}, "x").shape
        == shape
    )


def test_groups_take_their_ranks_from_other_tensors(rng):
    y = Equation("y", (p, q), Access("a", (p, q)) * Access("b", (q,)))
    op = operation(
        (Tensor("a", (p, q)), Tensor("b", (q,))), (y,), (Extent("p", True), Extent("q", True))
    )
    for rank in range(4):
        a, b = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 4)[3 - rank :])
        np.testing.assert_allclose(oracle.run(op, {"a": a, "b": b}, {})["y"], a * b)
    with pytest.raises(ValueError, match=r"^a: 0 axes do not fit a\[\*p, \*q\]$"):
        oracle.run(op, {"a": np.array(1.0), "b": np.ones(2)}, {})
    alone = operation(
        (Tensor("a", (p, q)),), (Equation("y", (p, q), Access("a", (p, q))),), op.extents
    )
    with pytest.raises(ValueError, match=r"^op: the number of axes of \*p is unknown$"):
        oracle.run(alone, {"a": np.ones(2)}, {})


def test_derived_sizes_are_expressions(rng):
    u = Index("u", "u")
    body = over("sum", k, body=x(u + k) * Access("w", (k,)))
    op = operation(
        (Tensor("x", (n,)), Tensor("w", (k,))),
        (Equation("y", (u,), body),),
        (Extent("n"), Extent("k"), Extent("u", False, (), Size("n") - Size("k") + 1)),
    )
    a, w = rng.normal(size=7), rng.normal(size=3)
    made = oracle.run(op, {"x": a, "w": w}, {})["y"]
    np.testing.assert_allclose(made, np.correlate(a, w, "valid"))
    assert oracle.run(op, {"x": a[:2], "w": w}, {})["y"].shape == (0,)


@pytest.mark.parametrize("size", [None, Param("groups")])
def test_composite_axes_are_divided(rng, size):
    g, d = Index("g", "g"), Index("d", "d")
    y = Equation("y", (i, g), over("sum", d, body=x(i, Composite((g, d)))))
    op = operation(
        (Tensor("x", (i, Composite((g, d)))),),
        (y,),
        (Extent("i"), Extent("g", False, (), size), Extent("d")),
        (SizeOf("groups", "g", 3),),
    )
    a = rng.normal(size=(2, 12))
    np.testing.assert_allclose(oracle.run(op, {"x": a}, {})["y"], a.reshape(2, 3, 4).sum(2))
    made = oracle.run(op, {"x": a}, {"groups": 4})["y"]
    np.testing.assert_allclose(made, a.reshape(2, 4, 3).sum(2))
    for groups, message in ((5, "which 5 does not divide"), (0, "groups must be positive, not 0")):
        with pytest.raises(ValueError, match=message):
            oracle.run(op, {"x": a}, {"groups": groups})


def test_constant_parts_of_a_composite(rng):
    r = Index("r", "r")
    y = Equation("y", (j,), x(Composite((j, num(1)))) - x(Composite((j, num(0)))))
    op = operation(
        (Tensor("x", (Composite((j, r)),)),), (y,), (Extent("j"), Extent("r", False, (), num(2)))
    )
    a = rng.normal(size=6)
    np.testing.assert_allclose(oracle.run(op, {"x": a}, {})["y"], a[1::2] - a[::2])


def test_a_choice_computes_only_what_it_needs(rng):
    loss = Equation("none", (i,), x(i) ** 2)
    mean = Equation("mean", (), over("mean", i, body=Access("none", (i,))))
    total = Equation("sum", (), over("sum", i, body=Access("none", (i,))))
    options = (("mean", "mean"), ("sum", "sum"), ("none", "none"))
    op = operation(
        (Tensor("x", (i,)),),
        (loss, mean, total),
        (Extent("i"),),
        (Choice("reduction", options),),
        ("mean", "sum", "none"),
    )
    a = rng.normal(size=3)
    assert list(oracle.run(op, {"x": a}, {})) == ["none", "mean"]
    assert list(oracle.outputs(op, {"x": a}, {})) == ["mean"]
    assert list(oracle.run(op, {"x": a}, {"reduction": "none"})) == ["none"]
    message = r"reduction must be one of 'mean', 'sum', 'none', not 0"
    with pytest.raises(DeriveError, match=message):
        oracle.run(op, {"x": a}, {"reduction": 0})


def test_integer_and_bool_equations(rng):
    t = Equation("t", (j,), over("argmax", k, body=x(j, k)), "int")
    m = Equation("m", (j,), Rel(">", Access("t", (j,)), num(1)), "bool")
    op = operation((Tensor("x", (j, k)),), (t, m), (Extent("j"), Extent("k")), (), ("t", "m"))
    a = rng.normal(size=(3, 5))
    made = oracle.run(op, {"x": a}, {})
    assert made["t"].dtype == np.int64 and made["m"].dtype == np.bool_
    np.testing.assert_array_equal(made["t"], a.argmax(1))
    np.testing.assert_array_equal(made["m"], a.argmax(1) > 1)


def test_errors_say_what_to_do():
    with pytest.raises(ValueError, match=r"^the tensor x is missing$"):
        scalar(x(i), indices={i: 0})
    with pytest.raises(ValueError, match=r"^x has 1 axes but 2 positions$"):
        scalar(x(i, j), indices={i: 0, j: 0}, x=np.ones(2))
    with pytest.raises(ValueError, match="an index appears twice"):
        array((i, i), num(0))
