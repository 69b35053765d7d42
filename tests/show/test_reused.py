"""Gradients that are made of others have their names, and stay what they were."""

import pytest
from kit.each import each_row

import derive
from derive import catalog
from derive.calculus.lets import inline
from derive.pipeline import derive_option
from derive.reports.derivation import reused, written_in

LOSS = "op f(a[n], b[n]) -> y\n"
TEXTS = {
    "a multiple": (LOSS + "y[n] = sin(a[n] - b[n])", {"b": "−grad_a[n]"}),
    "a number times it": (LOSS + "y[n] = sin(a[n]/2 + 3*b[n])", {"b": "6·grad_a[n]"}),
    "a name alone": (LOSS + "y[n] = a[n] + b[n]", {"a": "G[n]", "b": "G[n]"}),
    "a product that is no multiple": (LOSS + "y[n] = a[n]*b[n]", {"a": "G[n]·b[n]"}),
    "other indices": (
        "op f(a[i], b[j]) -> y\ny[i,j] = sin(a[i] + b[j])",
        {"b": "Σᵢ G[i,j]·cos(a[i] + b[j])"},
    ),
    "a sum": (
        "op f(x[n,c], w[c]) -> y\ns[c] = sqrt(sum[n](x[n,c]**2))\ny[n,c] = w[c]*x[n,c]/s[c]",
        {"w": "1/s[c]·Σₙ G[n,c]·x[n,c]", "x": "w[c]·(G[n,c] − grad_w[c]·x[n,c]/s[c])/s[c]"},
    ),
}


@each_row("case", TEXTS)
def test_a_gradient_is_named_where_that_is_shorter(case):
    text, expected = TEXTS[case]
    d = derive.derivation(derive.parse(text))
    found = {f.name: str(f).partition(" = ")[2] for f in d.shown}
    assert {name: found[f"grad_{name}"] for name in expected} == expected
    assert len(found) == len(d.gradients)
    assert "grad_" not in "".join(str(f).partition(" = ")[2] for f in d.gradients.values())


def test_what_is_asked_for_alone_names_no_other():
    op = derive.parse(TEXTS["a multiple"][0])
    assert str(derive.derivation(op, wrt=["b"]).shown[0]) == "grad_b[n] = −G[n]·cos(a[n] − b[n])"


def test_what_a_gradient_is_made_of_comes_before_it():
    d = derive.derivation(catalog.find("batch_norm"))
    assert [f.name for f in d.shown] == ["grad_weight", "grad_input", "grad_bias"]


def test_of_two_equal_gradients_the_later_one_names_the_earlier_one():
    d = derive.derivation(catalog.find("rnn_tanh_cell"))
    assert str(d.shown[-1]) == "grad_b_hh[j] = grad_b_ih[j]"


NAMES = ("batch_norm", "batch_norm_inference", "weight_norm", "mse_loss", "rnn_tanh_cell")


@pytest.mark.parametrize("name", NAMES)
def test_with_its_definition_in_its_place_a_name_changes_nothing(name):
    op = catalog.find(name)
    option = "mean" if name == "mse_loss" else None
    given = {a.name: a for a in derive_option(op, option).backward.gradients}
    made = reused(list(given.values()), lambda a: len(str(a.body)))
    changed = [a for a in made if a is not given[a.name]]
    assert changed
    for a in changed:
        body = a.body
        for other in given.values():
            body = inline(body, other.as_let())
        assert body is given[a.name].body


@pytest.mark.parametrize("name", ["cosine_embedding_loss", "cosine_similarity"])
def test_an_adjoint_that_one_gradient_reads_is_written_in_it(name):
    op = catalog.find(name)
    option = "mean" if name == "cosine_embedding_loss" else None
    backward = derive_option(op, option).backward
    given = {a.name: a for a in (*backward.adjoints, *backward.gradients)}
    left = written_in(backward.adjoints, backward.gradients, lambda a: len(str(a.body)))
    every = {a.name: a for a in (*left[0], *left[1])}
    gone = [a for n, a in given.items() if n not in every]
    assert len(gone) == 2
    for name_, a in every.items():
        body = given[name_].body
        for other in gone:
            body = inline(body, other.as_let())
        assert body is a.body


def test_an_adjoint_that_two_gradients_read_or_that_is_asked_for_is_said():
    d = derive.derivation(catalog.find("cdist"))
    assert [f.name for f in d.shown] == ["grad_squared", "grad_x1", "grad_x2"]
    d = derive.derivation(catalog.find("cosine_similarity"), wrt=["x1", "norm1"])
    assert [f.name for f in d.shown] == ["grad_x1", "grad_norm1"]
