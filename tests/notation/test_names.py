"""Names that can be used, and the nearest to one that is not known."""

from __future__ import annotations

import pytest

from derive import SpecError
from derive.notation.advice import arity, check_name, nearest, plural


def test_a_name_is_an_identifier_that_means_nothing_else():
    for name in ("x", "weight_2", "Ω"):
        check_name(name, "a tensor", None)
    for name in ("2x", "x'", "lambda", ""):
        with pytest.raises(SpecError, match="name"):
            check_name(name, "a tensor", None)


def test_the_nearest_name_is_meant():
    assert "softplus" in nearest("softplsu", ["softplus", "sum"])
    assert nearest("qqqq", ["softplus", "sum"]) == ""


def test_functions_take_so_many():
    assert (arity("exp"), arity("maximum"), arity("clamp"), arity("sqrt")) == (1, 2, 3, 1)
    assert (plural(1, "argument"), plural(3, "axis number")) == ("1 argument", "3 axis numbers")
