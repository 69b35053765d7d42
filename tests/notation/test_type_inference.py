"""Which tensors hold numbers, integers or truths: declared, or found by their use."""

import warnings

import pytest

from derive import SpecError, parse


def kinds(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        op = parse(text)
    return {t.name: t.kind for t in op.inputs} | {e.name: e.kind for e in op.equations}


def test_a_position_is_an_integer_and_a_condition_a_truth():
    found = kinds("y[n] = where(m[n], x[T[n]], 0)")
    assert found == {"m": "bool", "x": "float", "T": "int", "y": "float"}


def test_an_equation_is_what_it_is_made_of():
    found = kinds(
        "op f(x[n,k], T[n]: int) -> y; i[n] = argmax[k](x[n,k]); j[n] = 2*T[n] + i[n]\n"
        "b[n] = x[n,0] > 0; y[n] = where(b[n], x[n,i[n]], 1)*j[n]"
    )
    assert {k: found[k] for k in "ijby"} == {"i": "int", "j": "int", "b": "bool", "y": "float"}


def test_an_extremum_of_integers_is_an_integer():
    bounds = (
        "min(max(T[n] - 1, 0), size(m) - 1)",
        "max(min(T[n], p), 0)",
        "int(min(T[n], size(m)))",
    )
    for bounded in bounds:
        given = "; p=1" if "p" in bounded else ""
        op = parse(f"op f(T[n]: int, x[m]{given}) -> y\nj[n] = {bounded}\ny[n] = x[j[n]]*2")
        assert {e.name: e.kind for e in op.equations}["j"] == "int"
        assert parse(str(op)) == op


def test_a_function_of_what_is_clamped_on_one_side_is_of_its_kind():
    for body in ("detach(max({}, 0))", "abs(max({}, 0))", "min(max({}, 0), 3)"):
        assert kinds(f"op f(x[n]) -> h; h[n] = {body.format('x[n]')}")["h"] == "float"
        assert kinds(f"op f(T[n]: int) -> h; h[n] = {body.format('T[n]')}")["h"] == "int"


def test_what_is_divided_is_no_integer():
    assert kinds("op f(T[n]: int) -> y; y[n] = T[n]/2")["y"] == "float"


def test_a_truth_counts_as_0_or_1_and_a_float_is_no_position():
    op = parse("op f(m[n]: bool, x[n]) -> y; y[n] = m[n]*x[n]")
    assert op == parse("op f(m[n]: bool, x[n]) -> y\ny[n] = [m[n]]*x[n]")
    with pytest.raises(SpecError, match="h"):
        parse("op f(x[n]) -> y; h[n] = x[n]/2; y[n] = x[h[n]]")


def test_a_parameter_of_a_position_is_an_integer_unless_it_is_rounded():
    text = "op f(x[n]; p=1) -> y; y[n] = x[int({})]"
    for position, integer in (("clamp(n + p, 0, size(n) - 1)", True), ("floor(n/p)", False)):
        assert parse(text.format(position)).parameters[0].integer is integer
