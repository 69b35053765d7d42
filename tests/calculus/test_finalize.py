"""Shifted deltas and lookups are solved last, each with its step."""

from derive import derivation, parse


def test_a_shift_is_solved_where_the_range_lets_it():
    d = derivation(parse("op f(x[t]) -> y\ny[u] = x[u+1] - x[u]"))
    (gradient,) = d.gradients.values()
    assert str(gradient) == "grad_x[t] = [t ≥ 1]·G[t − 1] − [t < size(u)]·G[t]"
    assert "Delta" not in repr(gradient.body)


def test_what_is_solved_is_a_step_of_its_own_subject():
    d = derivation(parse("op f(x[t], w[k]) -> y\ny[t] = sum[k | k <= t](x[t-k]*w[k])"))
    steps = [s for s in d.gradients["x"].steps if s.name == "grad_x"]
    assert [s.rule for s in steps] == ["chain rule", "solve delta in part", "known condition"]
    assert steps[-1].text() == "grad_x[t] = Σ[k | k + t < size(t)] G[k + t]·w[k]"


def test_what_has_nothing_to_solve_has_no_more_steps():
    d = derivation(parse("op f(x[i]) -> y\ny[i] = 3*x[i]"))
    assert not {s.rule for s in d.gradients["x"].steps} & {"lookup", "witness"}
