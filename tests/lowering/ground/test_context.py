"""What lowering sees: numbers as Python writes them, and the kind of what is computed."""

from fractions import Fraction

import pytest

from derive.errors import LoweringError
from derive.lowering.ground.context import common_kind, fraction_value, whole
from derive.lowering.ground.value import Value
from derive.program.torch_ir import Name, text


@pytest.mark.parametrize(
    ("value", "code"), [(Fraction(3), "3"), (Fraction(-1, 2), "-0.5"), (Fraction(10**30), "1e30")]
)
def test_numbers(value, code):
    made = fraction_value(value)
    assert text(made.code) == code and made.scalar


def test_a_number_beyond_any_float_is_refused():
    with pytest.raises(LoweringError, match="401 digits"):
        whole(10**400)


def test_a_float_makes_all_floats():
    x, n, m = (Value(Name("x"), kind=kind) for kind in ("float", "int", "bool"))
    assert common_kind([m, n, x]) == "float"
    assert common_kind([m, n]) == "int"
    assert common_kind([m]) == "bool"
