"""Flops of calls that are not one for each element."""

from derive.algebra.poly import ONE, constant, mul, scale
from derive.program import flop_rules
from derive.program.torch_ops import TORCH_OPS

THREE, FIVE, SEVEN, TWO, FOUR = (constant(n) for n in (3, 5, 7, 2, 4))


def test_a_product_of_matrices_multiplies_and_adds():
    assert flop_rules.matmul((THREE, FIVE), (THREE, SEVEN), (SEVEN, FIVE)) is constant(
        2 * 3 * 5 * 7
    )


def test_a_reduction_takes_in_its_argument():
    assert flop_rules.per_argument_element(0)((), (THREE, FIVE)) is constant(15)
    assert flop_rules.none((THREE,)) is not ONE and flop_rules.per_result_element((THREE,)) is THREE


def test_an_attention_multiplies_with_keys_and_with_values():
    q, k, v = (TWO, THREE, FIVE), (TWO, SEVEN, FIVE), (TWO, SEVEN, FOUR)
    pairs = 2 * 3 * 7
    call, pulled = TORCH_OPS["rt.attention"], TORCH_OPS["rt.attention_backward"]
    assert call.flops((), q, k, v) is constant(2 * pairs * (5 + 4))
    assert pulled.flops((), (TWO, THREE, FOUR), q, k, v) is scale(
        mul(constant(pairs), constant(3 * 5 + 2 * 4)), 2
    )
    assert call.shape(q, k, v) == ((TWO, THREE, FOUR), (TWO, THREE))
