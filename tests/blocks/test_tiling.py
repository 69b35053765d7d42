"""An operation as stages: what each is given, and what becomes of what it makes."""

from derive import parse
from derive.blocks.tiling import block_plan

NORM = """
op norm(x[n,d], g[d]) -> y
m[d]   = mean[n](x[n,d])
v[d]   = mean[n]((x[n,d] - m[d])**2)
y[n,d] = g[d]*(x[n,d] - m[d])/sqrt(v[d])
"""


def test_what_reads_a_sum_is_in_a_later_pass():
    stages = block_plan(parse(NORM), "n").stages
    assert [(s.looped, s.outputs) for s in stages] == [
        (True, ("m_sum",)),
        (False, ("m",)),
        (True, ("v_sum",)),
        (False, ("v",)),
        (True, ("y",)),
    ]
    assert stages[-1].rows == {"y": 0}
    assert stages[1].sizes == {"n_size": "n"}


def test_sums_that_share_an_equation_are_one_pass_and_others_are_not():
    op = parse("""
    op f(x[n,d], w[n]) -> a, b, c
    z[n,d] = exp(x[n,d])
    a = sum[n,d](z[n,d])
    b = sum[n,d](z[n,d]**2)
    c = sum[n](w[n])
    """)
    assert [s.outputs for s in block_plan(op, "n").stages] == [("a", "b"), ("c",)]


def test_a_tensor_is_given_by_its_rows_whole_or_both():
    op = parse("op f(x[n,d]) -> k\nk = sum[n,m](exp(-sum[d]((x[n,d] - x[m,d])**2)))")
    (stage,) = block_plan(op, "n").stages
    assert [(g.name, g.axis) for g in stage.given] == [("x", None), ("x_rows", 0)]


def test_a_position_is_counted_from_the_start_of_the_block():
    op = parse("op f(x[n,m]) -> t\nt = sum[n](x[n,n]*n)")
    (stage,) = block_plan(op, "n").stages
    assert "start" in [p.name for p in stage.operation.parameters]
    assert stage.start == "start"


def test_a_value_depends_on_inputs_through_stages():
    plan = block_plan(parse(NORM), "n")
    assert plan.leaves("v") == ("x",)
    assert plan.leaves("y") == ("x", "g")
