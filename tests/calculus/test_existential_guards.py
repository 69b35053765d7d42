"""A bracket that asks for some position of which one is known is 1."""

from __future__ import annotations

from derive import derivation, parse


def test_a_maximum_read_at_the_place_of_what_it_takes_asks_for_nothing():
    op = parse("op f(x[k], s[k]: int) -> y\ny[k] = max[j | s[j] == s[k]](x[j])*x[k]")
    found = str(derivation(op))
    assert "some" not in found and "any" not in found
    assert "grad_x[k] = G[k]·top[k] + " in found


def test_elsewhere_it_is_asked():
    op = parse("op f(m[k]: bool, z[n]) -> y\ny[n] = where(any[k](m[k]), z[n], 0)")
    assert str(derivation(op).gradients["z"]) == "grad_z[n] = [some]·G[n]"
