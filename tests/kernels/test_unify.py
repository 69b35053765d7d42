"""What arguments have to be for an equation to be another."""

import pytest

from derive import parse
from derive.calculus.build_lets import flatten_operation
from derive.kernels.kernel_spec import as_poly, expand_names
from derive.kernels.unify import Arguments


def flat(text):
    lets = flatten_operation(parse(text))
    return expand_names(lets["y"].body, lets.definition)


def bound(pattern, target, numbers=()):
    """The first arguments found, each as a sum."""
    arguments = Arguments(frozenset("xz") - frozenset(numbers), frozenset(numbers))
    found = next(arguments.bind(flat(pattern), flat(target), {}), None)
    if found is not None:
        assert as_poly(arguments.instance(flat(pattern), found)) is flat(target)
    return found


@pytest.mark.parametrize(
    ("pattern", "target", "solution"),
    [
        ("y = erf(x/sqrt(2))", "y[i] = erf(a[i]/sqrt(2))", "y[i] = a[i]"),
        ("y = erf(x/sqrt(2))", "y[i] = erf(a[i])", "y[i] = sqrt(2)*a[i]"),
        ("y = exp(3*x - 1)", "y[i] = exp(6*a[i]*b[i] + 2)", "y[i] = 2*a[i]*b[i] + 1"),
        ("y = x**2", "y[i] = a[i]**2", "y[i] = a[i]"),
    ],
)
def test_an_argument_that_stands_alone_is_solved_for(pattern, target, solution):
    assert bound(pattern, target)["x"] is flat(solution)


def test_what_no_argument_makes_is_not_found():
    assert bound("y = erf(x)", "y[i] = exp(a[i])") is None
    assert bound("y = x**2", "y[i] = a[i]**3") is None
    assert bound("y = erf(x)", "y = erf(2) + 0*a") is None
