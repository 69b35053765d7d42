"""What all options of a choice reduce."""

from derive import parse
from derive.notation.common_output import common_output

HEAD = "op f(x[n,c], w[n]; reduction=mean|sum|none) -> mean: m | sum: s | none: l\n"


def test_mean_and_sum_of_the_output_of_none():
    found = common_output(parse(HEAD + "l[n] = sum[c](x[n,c]**2)\ns = sum[n](l[n])\n"
                                       "m = s/sum[n](w[n])"))  # fmt: skip
    assert found is not None
    assert found.common.outputs == ("l",) and [e.name for e in found.common.equations] == ["l"]
    assert (found.choice, found.option, found.equation.name) == ("reduction", "none", "l")
    assert list(found.others) == ["mean", "sum"]
    assert [e.name for e in found.others["mean"].equations] == ["s", "m"]
    assert [t.name for t in found.others["mean"].inputs] == ["l", "x", "w"]


def test_an_option_that_does_not_read_it():
    text = HEAD + "l[n] = sum[c](x[n,c]**2)\ns = sum[n](l[n])\nm = sum[n,c](w[n]*x[n,c])"
    assert common_output(parse(text)) is None


def test_an_option_as_large_as_it():
    text = HEAD + "l[n] = sum[c](x[n,c]**2)\ns[n] = w[n]*l[n]\nm = sum[n](l[n])"
    assert common_output(parse(text)) is None


def test_without_a_choice():
    assert common_output(parse("y[n] = x[n]**2")) is None
