"""Cases of a short axis, one value for each position, are one stack."""

from __future__ import annotations

from kit.lowered import assert_code, assert_right

STACKED = "op f(x[n], z[n]; size(k)=2) -> y\ny[n,k] = [k == 0]*x[n] + [k == 1]*z[n]**2"


def test_a_value_for_each_position_is_a_stack():
    assert_code(
        STACKED,
        ["y = torch.stack((x, z.square()), 1)"],
        ["grad_x = G.select(1, 0)", "grad_z = 2 * G.select(1, 1) * z"],
    )
    assert_right(STACKED)


def test_where_one_position_has_none_nothing_is_stacked():
    text = STACKED.replace("size(k)=2", "size(k)=3")
    assert_right(text)
