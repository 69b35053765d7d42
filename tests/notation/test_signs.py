"""A formula is read as it is printed: signs, subscripts, primes."""

import re

import pytest
from kit.each import each_operation, each_row

import derive
from derive import SpecError, catalog, parse
from derive.notation.operation import options
from derive.notation.signs import letters_below

X = "op f(x[i,k]) -> y; "


@each_row(
    "signs, words",
    [
        ("y[i] = Σₖ x[i,k]²", "y[i] = sum[k](x[i,k]**2)"),
        ("y[i] = Σ[k | k ≤ i] x[i,k]·2", "y[i] = sum[k | k <= i](x[i,k]*2)"),
        ("y[i] = Σ[k] (x[i,k] + 1)·x[i,k]", "y[i] = sum[k]((x[i,k] + 1)*x[i,k])"),
        ("y[i] = Πₖ x[i,k]/3", "y[i] = prod[k](x[i,k]/3)"),
        ("y[i] = 2·Σₖ x[i,k] − maxₖ(x[i,k])", "y[i] = 2*sum[k](x[i,k]) - max[k](x[i,k])"),
        ("y[i] = −Σₖ x[i,k]·x[i,k] + size(i)", "y[i] = -sum[k](x[i,k]*x[i,k]) + size(i)"),
        ("y = Σᵢₖ x[i,k]", "y = sum[i,k](x[i,k])"),
        ("y = Σᵢ′ₖ′′ x[i′,k′′]", "y = sum[i_,k__](x[i_,k__])"),
        ("y = Σᵢ Σₖ x[i,k]³", "y = sum[i](sum[k](x[i,k]**3))"),
        ("y[i] = meanₖ(|x[i,k]|)", "y[i] = mean[k](abs(x[i,k]))"),
        (
            "y[i] = Σ[k | |x[i,k]| > 1] |x[i,k] − 1|",
            "y[i] = sum[k | abs(x[i,k]) > 1](abs(x[i,k] - 1))",
        ),
        ("y[i] = Σ[k] |x[i,k]|^1.5", "y[i] = sum[k](abs(x[i,k])**1.5)"),
        ("y[i] = √(Σₖ x[i,k]²)", "y[i] = sqrt(sum[k](x[i,k]**2))"),
        ("y[i,k] = √2·x[i,k]/√π", "y[i,k] = sqrt(2)*x[i,k]/sqrt(pi)"),
        (
            "y[i,k] = where(i = k ∨ ¬(i ≠ 2), x[i,k], 0)",
            "y[i,k] = where(i == k or not i != 2, x[i,k], 0)",
        ),
        ("y[i,k] = [0 < i ≤ 3 ∧ k ≥ 1]·x[i,k]", "y[i,k] = [0 < i <= 3 and k >= 1]*x[i,k]"),
        ("y[i,k] = δ[i,k]·x[i,k]", "y[i,k] = [i == k]*x[i,k]"),
        ("y[i,k] = max(x[i,k], −1)", "y[i,k] = clamp(x[i,k], -1, inf)"),
        ("y[i,k] = min(x[i,k], 2)", "y[i,k] = clamp(x[i,k], -inf, 2)"),
        ("y[i] = max[k | x[i,k] < ∞](x[i,k])", "y[i] = max[k | x[i,k] < inf](x[i,k])"),
        ("y[i,k] = ⌊x[i,k]/2⌋×3", "y[i,k] = floor(x[i,k]/2)*3"),
        ("y[i,k] = x[i,⌊k/2⌋]", "y[i,k] = x[i,k//2]"),
        ("y[i,k] = x[i,(k − 1) mod size(k)]", "y[i,k] = x[i,(k - 1) % size(k)]"),
        ("y[i,k] = exp(x[i,k])/(Σₖ′ exp(x[i,k′]))", "y[i,k] = exp(x[i,k])/sum[k_](exp(x[i,k_]))"),
    ],
)
def test_a_sign_is_the_operator_or_the_function_that_it_stands_for(signs, words):
    assert parse(X + signs) == parse(X + words)


@pytest.mark.parametrize(
    "text",
    [
        "op f(Σ[i,j], x[j]) -> y; y[i] = sum[j](Σ[i,j]*x[j])",
        "op f(δ[i,j], x[j]) -> y; y[i] = sum[j](δ[i,j]*x[j])",
        "δ[i,j] = x[i] - z[j]; y[i] = sum[j](δ[i,j]**2)",
        "op f(x[n]; way=a|b) -> a: u | b: v; u[n] = x[n]; v[n] = abs(x[n])",
    ],
)
def test_a_name_and_a_choice_stay_what_they_are(text):
    op = parse(text)
    assert parse(str(op)) == op
    assert "[i == j]" not in str(op)


@each_row(
    "text, said",
    [
        ("y[i] = |x[i]", "line 1, column 8: | is never closed"),
        ("y[i] = ⌊x[i]", "line 1, column 8: ⌊ is never closed"),
        ("y[i] = x[i]⌋", "line 1, column 12: ⌋ closes nothing"),
        ("y[i] = softmax(x, dim=1)", "line 1, column 22: unexpected '='"),
        ("y[i] = x[i]²³⁴⁵⁶⁷⁸⁹⁰" + "⁹" * 400, "line 1, column 12: the number is too long"),
        ("y[i] = max(x[i], z[i])", "for two numbers, write maximum(a, b)"),
        ("y[i] = x[i] = 1", "line 1, column 13: unexpected '='"),
        ("op f(x[i]; π=2) -> y; y[i] = π*x[i]", "pi"),
    ],
)
def test_an_error_names_the_sign_and_its_place(text, said):
    with pytest.raises(SpecError, match=re.escape(said)):
        parse(text)


def test_the_letters_below_a_reduction_are_its_indices():
    assert letters_below("Σₙ′ₖ") == ("Σ", ("n′", "k"))
    assert letters_below("softmaxⱼ") == ("softmax", ("j",))
    assert letters_below("tanhₖ") is None
    assert letters_below("mean") is None


def parts_of(line):
    """The inputs of an op line by name, and what stands after them without the choices."""
    given = line.partition("(")[2].rpartition(") -> ")[0]
    inputs, _, parameters = given.partition("; ")
    found = re.findall(r"(\w+)((?:\[(?:[^\[\]]|\([^()]*\))*\])?[^,\[\]]*)(?:, |$)", inputs)
    numbers = [p for p in re.split(r", (?![^(]*\))", parameters) if p and "|" not in p]
    return {name: f"{name}{rest}" for name, rest in found}, "; " * bool(numbers) + ", ".join(
        numbers
    )


def read_again(inputs, numbers, formulas):
    """The formulas, read as the equations of an operation with these inputs."""
    names = [str(f).partition("[")[0].partition(" = ")[0] for f in formulas]
    lines = [f"op again({', '.join(inputs)}{numbers}) -> {', '.join(names)}", *map(str, formulas)]
    again = derive.derivation(parse("\n".join(lines))).equations
    # Further letters of an extent are marked by _ once they are read, and cannot be a subscript.
    return [re.sub(r"(?<=[^\W_])_+(?!\w)", lambda _: "′" * len(_[0]), str(e)) for e in again]


def without_subscripts(formulas):
    """The formulas with the indices of each reduction in brackets: Σₖ is Σ[k]."""

    def bracketed(found):
        kind, letters = letters_below(found[0]) or (found[0], ())
        return f"{kind}[{','.join(letters)}]" if letters else found[0]

    return [re.sub(r"\w+[\w′]*", bracketed, str(f)) for f in formulas]


@each_operation(together=True, share=4)
def test_equations_are_read_as_they_are_printed(op):
    for option, chosen in options(op):
        inputs, numbers = parts_of(str(chosen).split("\n")[0])
        equations = derive.derivation(op, option).equations
        again = read_again(inputs.values(), numbers, equations)
        assert without_subscripts(again) == without_subscripts(equations)


def test_a_condition_that_the_engine_defines_is_read_as_it_is_printed():
    (some,) = derive.derivation(catalog.find("cox_loss")).definitions
    again = parse(f"op f(time[n]) -> some; {some}")
    assert again == parse("op f(time[n]) -> some; some[n_] = any[m](time[n_] <= time[m])")


@pytest.mark.filterwarnings("ignore:.* is not used in again")
@each_operation(together=True, share=4)
def test_gradients_are_read_as_they_are_printed(op):
    """A gradient is an equation of the inputs, of the values of equations, and of cotangents.

    Not those that read a value of the engine (the position of a maximum, the product of all other
    values), polygamma, an axis whose size only another equation or letter has, or (1 − r) of an
    axis (r d).
    """
    apart = {"avg_pool2d", "ensemble_crps", "group_norm", "im2col", "lp_pool1d", "rotary_embedding"}
    for option, chosen in () if op.name in apart else options(op):
        inputs, numbers = parts_of(str(chosen).split("\n")[0])
        given, result = {*inputs}, derive.derivation(op, option)
        for f in (*result.equations, *result.adjoints, *result.gradients.values()):
            inputs.setdefault(f.name, str(f).partition(" = ")[0])
        for f in result.definitions:
            name, _, body = str(f).partition(" = ")
            inputs.setdefault(f.name, name + ": bool" * body.startswith(("any", "all")))
        for output, cotangent in result.cotangents:
            inputs[cotangent] = inputs[output].replace(output, cotangent, 1)
        numbers = re.sub(r"(; |, )keepdim=keep\([^()]*\)", "", numbers)
        for formula in map(str, result.gradients.values()):
            read = {*re.findall(r"[^\W\d_]\w*", formula.partition(" = ")[2])}
            if any(name.startswith(("winner", "others", "polygamma")) for name in read):
                continue
            known = [s for n, s in inputs.items() if n in read or n in given]
            used = {*re.findall(r"\w+", " ".join((formula, *known)))}
            sizes = re.sub(
                r", size\((\w)\)=[^,]*", lambda m, used=used: m[0] if m[1] in used else "", numbers
            )
            again = read_again(known, sizes, [formula])
            # δ[i,j] is [i = j] once it is read.
            if "δ" not in formula:
                assert without_subscripts(again) == without_subscripts([formula])
