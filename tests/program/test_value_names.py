"""Names of values: what is computed, in words; the same values, no name twice."""

import pytest
from kit.each import each_row
from kit.torch_code import torch_code

from derive import parse
from derive.api import source
from derive.module.pretty_printer import assigned
from derive.program.cse import VALUE, Line
from derive.program.torch_ir import Code, Name, text
from derive.program.value_names import Names


def named(code: str | Code, *taken: str, numbers: tuple[str, ...] = ("eps", "gamma")) -> str:
    """Return the name of the value of the code."""
    code = torch_code(code) if isinstance(code, str) else code
    (line,) = Names(taken=taken).in_lines([Line(VALUE, code, kept=False)], numbers=numbers)
    return line.name


@each_row(
    "code, name",
    [
        ("x.exp()", "exp_x"),
        ("(x - mu).exp()", "exp_x_minus_mu"),
        ("1 - x", "one_minus_x"),
        ("x - mu", "x_minus_mu"),
        ("2 * G", "twice_G"),
        ("gamma * G", "gamma_G"),
        ("G * weight", "G_weight"),
        ("x * x", "x_squared"),
        ("x ** (p - 1)", "x_power"),
        ("x @ w.mT", "x_w"),
        ("x.square().sum(1)", "sum_of_x_squared"),
        ("x.sum(1) / x.shape[1]", "mean_of_x"),
        ("(var + eps).rsqrt().unsqueeze(1)", "rsqrt_var"),
        ("x.unsqueeze(1)", "spread_x"),
        ("x.to(low)", "low_x"),
        ("x > 0", "x_positive"),
        ("0 < x", "x_positive"),
        ("(x > 0) & (2 < 3)", "x_positive_and_two_below"),
        ("x != y", "x_is_not_y"),
        ("(i >= 0) & (i < gamma)", "valid_i"),
        ("torch.where(mask, x, 0)", "masked_x"),
        ("torch.where(mask, x, 1)", "safe_x"),
        ("F.gather(1, target.unsqueeze(1)).squeeze(1)", "F_at_target"),
        ("x.new_zeros(F.shape).index_add(0, source, G)", "G_by_source"),
        ("x.new_zeros((2, x.shape[0]))", "zeros"),
        ("x.new_zeros(y.shape)", "zeros_like_y"),
        ("(window - 1) // 2", "half_window"),
        ("x.mul_(y)", "x_y"),
        ("x.exp_().add_(y)", "exp_x_plus_y"),
        ("x if w is None else w * x", "w_x"),
        ("x.exp() if gamma != 0 else None", "exp_x"),
        ("math.prod(s_shape)", "s_size"),
        ("x.shape[0] * x.shape[1]", "count"),
        ("1 / math.sqrt(x.shape[1])", "scale"),
        ("(x @ y) / math.sqrt(x.shape[1])", "scaled_x_y"),
        ("gamma * x", "gamma_x"),
        ("(1 - gamma) * x", "scaled_x"),
        ("-(1 - gamma) * x * y", "x_y"),
        ("torch.addcmul(x, y, z)", "x_plus_y_z"),
        ("torch.addcmul(x, y, z, value=-1)", "x_minus_y_z"),
        ("x - (y * z).sum(1).square().log()", "x_difference"),
        ("x.exp() if gamma != 0 else x.new_zeros(())", "exp_x"),
        ("rt.positions(j, x) <= rt.positions(i, x).unsqueeze(1)", "j_at_or_before"),
        ("2 * rt.positions(2, x) - 1", "twice_positions_minus_one"),
        ("torch.where(mask, x, torch.finfo(wide).min)", "masked_x"),
        ("grad_images.square().sum(1)", "grad_images_squared_norm"),
        ("(grad_images * images).sum(1)", "grad_images_dot_images"),
    ],
)
def test_a_value_is_named_after_what_it_is(code, name):
    assert named(code) == name


def test_a_part_of_a_size_is_a_share_of_it():
    codes = ["x.shape[0] * x.shape[1]", f"({VALUE} - gamma) / {VALUE}"]
    lines = [Line(f"{VALUE}{n or ''}", torch_code(c), kept=False) for n, c in enumerate(codes)]
    made = Names().in_lines(lines, numbers=("gamma",))
    assert [line.name for line in made] == ["count", "share"]


def test_a_long_name_is_made_of_the_first_tensors():
    made = named("((x_first - x_second) * (y_first + y_second)).exp() + (z_first * z_second).log()")
    assert made == "x_first_sum"


@pytest.mark.parametrize("result", ["y", "grad_x1"])
def test_a_value_of_which_the_result_is_a_view_has_its_name(result):
    lines = [
        Line(VALUE, torch_code("a * b"), kept=False),
        Line(result, torch_code(f"{VALUE}.permute(1, 0).to(low)")),
    ]
    made = Names().in_lines(lines, [result])
    assert [f"{line.name} = {text(line.code)}" for line in made] == [
        f"{result} = a * b",
        f"{result} = {result}.permute(1, 0).to(low)",
    ]


def test_a_long_chain_is_named_in_time():
    total = " + ".join(f"x{n}.square().sum(1).exp() * {'y' * n}" for n in range(1, 40))
    assert named(f"({total}).exp()") == "exp_exp_x1_y_sum"


def test_another_word_comes_before_a_number():
    lines = [Line(f"{VALUE}{n}", torch_code(c), kept=False) for n, c in enumerate(["x - mu"] * 3)]
    made = [line.name for line in Names().in_lines(lines)]
    assert made == ["x_minus_mu", "x_minus_mu2", "x_minus_mu3"]
    assert named("x.sum(1, keepdim=flag)", "sum_of_x") == "sum_of_x_with_flag"


def test_what_the_formulas_show_keeps_its_name():
    line = Line("u", torch_code("1 - x"), kept=False)
    assert Names().in_lines([line])[0].name == "one_minus_x"
    assert Names(shown=["u"]).in_lines([line]) == (line,)
    kept = Line("u", torch_code("1 - x"))
    assert Names().in_lines([kept]) == (kept,)


def test_readers_read_the_new_name_and_a_copy_has_none():
    lines = [
        Line(VALUE, torch_code("x.exp()"), kept=False),
        Line(f"{VALUE}2", Name(VALUE), kept=False),
        Line("y", torch_code(f"{VALUE} + {VALUE}2")),
    ]
    made = Names().in_lines(lines)
    every = [f"{line.name} = {text(line.code)}" for line in made]
    assert every == ["exp_x = x.exp()", "y = exp_x + exp_x"]


def test_a_copy_of_what_changes_stays():
    lines = [
        Line(VALUE, Name("x"), kept=False),
        Line("x", torch_code("x.exp()")),
        Line("y", torch_code(f"{VALUE} + x")),
    ]
    copy, _, last = Names().in_lines(lines)
    assert copy.code is Name("x") and copy.name != "x"
    assert text(last.code) == f"{copy.name} + x"


def test_a_line_of_an_equation_has_its_left_side_beside_it():
    line = Line("grad_S", torch_code("P * grad_P"))
    (made,) = Names(remarks={"grad_S": "grad_S[i,j]"}).in_lines([line])
    assert assigned(made, 8) == ["grad_S = P * grad_P  # grad_S[i,j]"]
    assert assigned(made, 60) == ["grad_S = P * grad_P"]
    assert assigned(line, 8) == ["grad_S = P * grad_P"]


def test_a_module_says_which_adjoint_a_line_is():
    text = source(parse("op f(x[i,j]) -> y\nS[i,j] = sin(x[i,j])\ny[i] = sum[j](S[i,j]**3)"))
    assert "S = x.sin()  # S[i,j]" in text
    assert "# y[" not in text
