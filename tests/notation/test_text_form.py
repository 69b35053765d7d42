"""The text notation: what it means, and the exact text of its errors."""

import warnings
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.each import each_row, told

import derive
from derive.algebra.expr import (
    Access,
    Add,
    And,
    Call,
    Expr,
    Index,
    Iverson,
    Mul,
    Not,
    Num,
    Or,
    Pow,
    Reduce,
    Rel,
    Size,
    Where,
    free_indices,
    num,
    walk,
)
from derive.errors import DeriveWarning, SpecError
from derive.notation import text_form
from derive.notation.advice import INFINITE
from derive.notation.operation import Operation
from derive.notation.specification import parse, parse_all

I = Index("i", "i")  # noqa: E741
X = Access("x", (I,))


def body(text: str) -> Expr:
    """The right side of y[i] = text, with x[i] around to size i."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeriveWarning)
        return parse(f"op f(x[i], z[i], m[i]: bool; s) -> y; y[i] = {text}").equations[0].body


Z = Access("z", (I,))
M = Access("m", (I,))


@each_row(
    "text, expected",
    [
        ("x[i] + z[i]*x[i]", Add((X, Mul((Z, X))))),
        ("x[i] - z[i] - 1", Add((X, Mul((num(-1), Z)), num(-1)))),
        ("x[i]/z[i]/2", Mul((num(Fraction(1, 2)), X, Pow(Z, num(-1))))),
        ("-x[i]**2", Mul((num(-1), Pow(X, num(2))))),
        ("x[i]**-1", Pow(X, num(-1))),
        ("x[i]^2", Pow(X, num(2))),
        ("x[i]**(-1/2)", Pow(X, num(Fraction(-1, 2)))),
        ("x[i]**z[i]", Call("pow", (X, Z))),
        ("x[i]**3**2", Pow(X, num(9))),
        ("2**3*x[i]", Mul((num(8), X))),
        ("1e-5*x[i]", Mul((num(Fraction(1, 100000)), X))),
        (".5*x[i] + 1.", Add((Mul((num(Fraction(1, 2)), X)), num(1)))),
        ("0.1*x[i]", Mul((num(Fraction(1, 10)), X))),
        ("sqrt(x[i])", Pow(X, num(Fraction(1, 2)))),
        ("rsqrt(x[i])", Pow(X, num(Fraction(-1, 2)))),
        ("square(x[i])", Pow(X, num(2))),
        ("clamp(x[i], 0, 6)", Call("clamp", (X, num(0), num(6)))),
        ("detach(x[i])", Call("detach", (X,))),
        ("i*x[i]", Mul((I, X))),
        ("x[i]/size(i)", Mul((X, Pow(Size("i"), num(-1))))),
        ("m[i]*x[i]", Mul((Iverson(M), X))),
        ("[m[i]]*x[i]", Mul((Iverson(M), X))),
        ("where(m[i], x[i], z[i])", Where(M, X, Z)),
        ("where(m[i] == 0, x[i], z[i])", Where(Not(M), X, Z)),
        ("[0 <= i < 3]*x[i]", None),
        (
            "[not x[i] > 0 and z[i] < 1 or m[i]]*1",
            Iverson(Or((And((Not(Rel(">", X, num(0))), Rel("<", Z, num(1)))), M))),
        ),
        (
            "sum[j | x[j] > 0](x[j])",
            Reduce(
                "sum",
                (Index("j", "i"),),
                Access("x", (Index("j", "i"),)),
                Rel(">", Access("x", (Index("j", "i"),)), num(0)),
            ),
        ),
        # A reduction over an index that is free outside binds another one.
        (
            "x[i]/sum[i](x[i])",
            Mul(
                (
                    X,
                    Pow(
                        Reduce("sum", (Index("i'", "i"),), Access("x", (Index("i'", "i"),))),
                        num(-1),
                    ),
                )
            ),
        ),
    ],
)
def test_expression(text: str, expected: Expr | None) -> None:
    found = body(text)
    if expected is None:
        expected = Mul((Iverson(And((Rel("<=", num(0), I), Rel("<", I, num(3))))), X))
    assert found is expected


def test_softmax_is_desugared() -> None:
    inner = Access("x", (Index("i'", "i"),))
    log = Reduce("logsumexp", (Index("i'", "i"),), inner)
    shifted = Add((X, Mul((num(-1), log))))
    assert body("softmax[i](x[i])") is Call("exp", (shifted,))
    assert body("log_softmax[i](x[i])") is shifted


def test_masked_softmax_is_zero_where_excluded() -> None:
    j = Index("i'", "i")
    log = Reduce("logsumexp", (j,), Access("x", (j,)), Access("m", (j,)))
    shifted = Add((X, Mul((num(-1), log))))
    assert body("softmax[i | m[i]](x[i])") is Mul((Iverson(M), Call("exp", (shifted,))))
    masked = body("log_softmax[i | m[i]](x[i])")
    assert isinstance(masked, Where)
    assert masked.condition is M


def test_nested_reductions_over_one_letter() -> None:
    found = parse("y = sum[i](x[i]*sum[i](x[i]*sum[i](x[i])))").equations[0].body
    bound = [part.indices[0].name for part in walk(found) if isinstance(part, Reduce)]
    assert bound == ["i", "i'", "i''"]


def test_statements_end_at_line_ends_and_semicolons_outside_brackets() -> None:
    op = parse(
        "# a comment; with a semicolon\n"
        "op f(x[i,\n     j]; eps=1, # another\n  size(j)=3) -> z, w\n\n;"
        "y[i] = sum[j](\n  x[i,j]\n) + eps; w[i] = y[i]*2\n z[i] = y[i]\n"
    )
    assert op.name == "f"
    assert [e.name for e in op.equations] == ["y", "w", "z"]
    assert op.outputs == ("z", "w")
    assert (op.equations[2].line, op.equations[2].column) == (9, 2)


def test_without_op_line() -> None:
    op = parse("h[i] = sum[j](x[i,j]*w[j])\ny = a*sum[i](h[i])")
    assert op.name == "op"
    assert [t.name for t in op.inputs] == ["x", "w", "a"]
    assert op.outputs == ("y",)
    assert op.inputs[2].axes == ()


def test_many_operations() -> None:
    ops = parse_all("op f(x[i]) -> y\ny[i] = x[i]\n\nop g(x[i]) -> z\nz[i] = -x[i]")
    assert [op.name for op in ops] == ["f", "g"]
    with pytest.raises(SpecError, match="expected one operation, got 2"):
        parse("op f(x[i]) -> y\ny[i] = x[i]\nop g(x[i]) -> z\nz[i] = -x[i]")


def test_op_is_a_name_but_at_the_start_of_an_op_line() -> None:
    op = parse("op f(op[i]) -> y; y[i] = op[i]")
    assert op.inputs[0].name == "op"


def test_names_are_normalised() -> None:
    assert parse("y[i] = \ufb01[i]") == parse("y[i] = fi[i]")  # the ligature fi


def test_nothing_is_evaluated() -> None:
    with pytest.raises(SpecError, match="unknown function eval"):
        parse("y[i] = eval(x[i])")
    with pytest.raises(SpecError, match="unexpected character"):
        parse("y[i] = x.__class__[i]")


@each_row(
    "text",
    [
        "op f(mean[n]) -> y; y = mean[n](mean[n])",
        "mean[j] = sum[i](x[i,j]); y[i,j] = x[i,j] - mean[j]",
        "op f(sum[n], exp, log[n]) -> y; y[n] = sum[n]*exp + exp(log[n]) + sum[n](sum[n])",
        "softmax[n] = softmax[n](x[n]); y[n] = 2*softmax[n]",
        "where[n] = x[n] > 0; y[n] = where(where[n], x[n], 0)",
        "op f(size[n]) -> y; y[n] = size[n]*size(n)",
    ],
)
def test_a_tensor_may_have_the_name_of_a_function(text: str) -> None:
    """A parenthesis follows the function and the reduction, and no tensor."""
    op = parse(text)
    assert op.equations and {t.kind for t in op.inputs} == {"float"}


def test_large_numbers_stay_small_nodes() -> None:
    assert any(isinstance(e, Pow) for e in walk(parse("y = x*7**300").equations[0].body))


TOLD = """\
C[i,j] = A[i,l]*B[l,j]*sum[l](A[i,l])
    line 1, column 14: index l of A[i, l] is neither summed over nor on the left; sum over it,
    sum[l](...), or add it to C [D011]
y = x[*p]
    line 1, column 7: index *p of x[*p] is neither summed over nor on the left; sum over it,
    sum[*p](...), or add it to y [D011]
y[i] = y[i] + x[i]
    line 1, column 8: y is used in its own definition; an equation cannot be a recurrence: write one
    step as an operation and loop in Python, or write a sum over the earlier positions, sum[s |
    s<=t](..) [D008]
y[i,i] = x[i]
    line 1, column 5: index i appears twice on the left of y [D012]
y[i] = sgmoid(x[i])
    line 1, column 8: unknown function sgmoid; did you mean sigmoid? [D009]
y[i] = exp(x[i], 2)
    line 1, column 8: exp takes 1 argument, not 2 [D010]
y[i] = max(x[i], z[i])
    line 1, column 8: max reduces over an index, max[k](...); for two numbers, write maximum(a, b)
    [D010]
y[i] = sum(x[i])
    line 1, column 8: sum needs its index: sum[k](...) [D010]
y = sum[i]
    line 1, column 5: sum needs an argument: sum[i](...) [D010]
y = exp[i](x[i])
    line 1, column 5: exp takes no indices: exp(...) [D010]
y = nanmean[i](x[i])
    line 1, column 5: unknown reduction nanmean; did you mean mean? [D009]
op f(x[i], weight[i]) -> y; y[i] = x[i]*wieght[i]
    line 1, column 41: unknown tensor wieght; did you mean weight? [D005]
y[i] = lambda[i]
    line 1, column 8: lambda is a Python keyword and cannot name a tensor; choose another name
    [D002]
y[i] = _x[i]
    line 1, column 8: _x cannot name a tensor: names that begin with _ are reserved for generated
    code [D002]
pi[i] = x[i]
    line 1, column 1: pi cannot name a tensor: it is a word of the notation; choose another name
    [D002]
y[i] = pi[i]
    line 1, column 8: pi is a constant and has no axes [D014]
y[i] = (i <= 3)*x[i]
    line 1, column 9: i <= 3 is a condition, not a number; write [i <= 3] [D021]
op f(x[i], T[i]: int) -> y; y[i] = where(T[i], x[i], 0)
    line 1, column 42: T[i] is a number, not a condition; compare it, T[i] != 0 [D021]
y[i] = x[i]/0
    line 1, column 8: division by zero in x[i]/0 [D022]
y[i] = x[i]/sin(0)
    line 1, column 8: division by zero in x[i]/sin(0) [D022]
y[i] = sqrt(-1)*x[i]
    line 1, column 8: sqrt(-1) is not a real number [D022]
y[i] = x[i] + asin(1 + 1)
    line 1, column 15: asin(1 + 1) is not a real number [D022]
y[i] = where(x[i] > 0, x[i], log(0))
    line 1, column 30: log(0) is infinite or out of the range of float64 [D022]
y[i] = exp(2*500)*x[i]
    line 1, column 8: exp(2*500) is infinite or out of the range of float64 [D022]
y[i] = x[i
    line 1, column 9: [ is never closed [D001]
y[i] = x[i]]
    line 1, column 12: ] closes nothing [D001]
y[i] = sum[k](x[i,k*w[k])
    line 1, column 16: [ is never closed [D001]
y[i] = x[i][k]
    line 1, column 12: unexpected '['; all positions of a tensor stand in one bracket, x[i,j] [D001]
op f(x[i]) -> y[i]
    line 1, column 16: unexpected '['; an output is a name alone, and its equation has its axes
    [D001]
op f(x[i]) => y
    line 1, column 12: unexpected '='; expected '->' or the end of the statement [D001]
y[i] = EXP(x[i])
    line 1, column 8: unknown function EXP; did you mean exp? [D009]
op my-loss(x[i]) -> y
    line 1, column 6: unexpected '-'; a name has letters, digits and _ [D001]
y[i] = {{x}}[i]
    line 1, column 8: unexpected character '{' [D001]
y[i] = x["i"]
    line 1, column 10: unexpected character '"'; names and options have no quotes:
    reduction=mean|sum [D001]
y[i] = 2x[i]
    line 1, column 9: unexpected 'x'; expected the end of the statement; a product is written a*b
    [D001]
y[i] =
    line 1, column 7: the text ends in the middle of a statement; expected a name, a number, '(' or
    '[' [D001]
y=i=3
    line 1, column 4: unexpected '='; a comparison is ==, arguments are unnamed [D001]
x²[i] = y[i]
    line 1, column 2: unexpected '²'; expected '[' or '=' [D001]
y = x*1e999
    line 1, column 7: the number is too long or too large [D022]
op f(x[i]) -> y
    line 1, column 1: operation f has no equation; write one for its output, y[i] = ... [D003]
op f() -> y; y = 1
    line 1, column 1: operation f has no input; add one, op f(x[i]) -> y [D003]
z[i] = x[i]; op f(x[i]) -> y; y[i] = x[i]
    line 1, column 1: z is defined before the first op line; move it below an op line [D003]
op f(x[i]) -> y; y[i] = x[i]; op f(x[i]) -> y; y[i] = x[i]
    operation f is defined twice; rename one [D006]
y = sum[i,i](x[i])
    line 1, column 11: index i appears twice in sum[...] [D012]
y = sum[0](x[i])
    line 1, column 9: sum reduces over indices and groups, not over 0 [D013]
y[i] = softmax[j](x[i,j])
    line 1, column 16: softmax[j] keeps its index, and j is neither summed over nor on the left; add
    it to y [D011]
y[i+1] = x[i]
    line 1, column 3: axis i + 1 of y: an axis on the left must be an index, a group *p, a composite
    (a b) or 0 [D013]
op f(x[i+1]) -> y; y[i] = x[i]
    line 1, column 8: axis i + 1 of x: an axis must be an index, a group *p, a composite (a b) or 0,
    which has size 1; size(k)=3 after a ';' fixes a size [D013]
op f(x[i]: complex) -> y; y[i] = x[i]
    line 1, column 12: complex is not a kind of tensor; use float, int or bool [D001]
op f(x[i]; eps=foo) -> y; y[i] = x[i] + eps
    line 1, column 16: the default of eps must be a number, not foo [D023]
y[i] = softplsu(x[i])
    line 1, column 8: unknown function softplsu; did you mean softplus? [D009]
y[i] = exp[k](x[k])
    line 1, column 8: exp takes no indices: exp(...) [D010]
y[i] = smu[k](x[k])
    line 1, column 8: unknown reduction smu; did you mean sum? [D009]
"""
"""Each text, and what is said of it."""
WRONG = [
    *told(TOLD),
    (
        "y[i] = z[i]\nz[i] = x[i]",
        "line 1, column 8: z is used before it is defined, on line 2; move its equation up [D008]",
    ),
    ("y[i] = x[i] - (inf - inf)", f"line 1, column 16: {INFINITE} [D022]"),
    ("y[i] = exp(-inf)*x[i]", f"line 1, column 13: {INFINITE} [D022]"),
    ("y[i] = maximum(x[i], -inf)", f"line 1, column 23: {INFINITE} [D022]"),
    ("y[i] = clamp(inf, x[i], inf)", f"line 1, column 14: {INFINITE} [D022]"),
    ("y = sum[i](where(x[i] > 1, x[i], inf))", f"line 1, column 34: {INFINITE} [D022]"),
    ("y = max[i](where(x[i] > 1, x[i], inf))", f"line 1, column 34: {INFINITE} [D022]"),
    ("y = max[i](x[i] + where(x[i] > 1, 0, -inf))", f"line 1, column 39: {INFINITE} [D022]"),
    (
        "m[i] = where(x[i] > 1, x[i], -inf); y = max[i](m[i])",
        f"line 1, column 31: {INFINITE} [D022]",
    ),
    ("y = x[inf]", f"line 1, column 7: {INFINITE} [D022]"),
    (
        "y[i] = \n x[i]",
        "line 1, column 8: the statement ends too early; expected a name, a number, '(' or '[' "
        "[D001]",
    ),
    ("", "the text has no operation; write one, C[i] = A[i] [D003]"),
    (
        "y[i] = " + "exp(" * 3000 + "x[i]" + ")" * 3000,
        "line 1, column 1: the expression is nested too deeply (3002 levels; the limit is "
        "64): give a part its own equation [D030]",
    ),
]


@pytest.mark.parametrize("factor", ["tanh(9)", "exp(700)", "sqrt(p)"])
def test_finite_functions_of_numbers(factor: str) -> None:
    """Whether a function of a parameter is a number is Python's to say at the call."""
    assert parse(f"op f(x[i]; p=-1) -> y; y[i] = {factor}*x[i] + p").parameters


@each_row(
    "written, condition",
    [
        ("max[i](where(x[i] > 1, z[i], -inf))", "max[i | x[i] > 1](z[i])"),
        ("argmin[i](where(x[i] > 1, inf, z[i]))", "argmin[i | not x[i] > 1](z[i])"),
        (
            "amin[i](where(x[i] > 1, where(x[i] > 2, z[i], inf), inf))",
            "amin[i | x[i] > 1 and x[i] > 2](z[i])",
        ),
        (
            "max[i](where(x[i] > 1, where(x[i] > 2, -inf, z[i]), x[i]))",
            "max[i | not x[i] > 1 or not x[i] > 2](where(x[i] > 1, z[i], x[i]))",
        ),
        (
            "max[i](where(x[i] > 1, x[i], where(x[i] > 2, z[i], -inf)))",
            "max[i | x[i] > 1 or x[i] > 2](where(x[i] > 1, x[i], z[i]))",
        ),
        (
            "logsumexp[i | i > 1](where(x[i] > 1, z[i], -inf))",
            "logsumexp[i | i > 1 and x[i] > 1](z[i])",
        ),
        (
            "sum[i](softmax[i](where(x[i] > 1, z[i], -inf))*x[i])",
            "sum[i](softmax[i | x[i] > 1](z[i])*x[i])",
        ),
        (
            "max[i](log_softmax[i](where(x[i] > 1, z[i], -inf)))",
            "max[i](log_softmax[i | x[i] > 1](z[i]))",
        ),
    ],
)
def test_a_branch_that_a_reduction_leaves_out_is_its_condition(
    written: str, condition: str
) -> None:
    op = parse(f"op f(x[i], z[i]) -> y; y = {written}")
    assert op == parse(f"op f(x[i], z[i]) -> y; y = {condition}")
    assert parse(str(op)) == op


def test_an_infinity_bounds_and_is_compared() -> None:
    op = parse("op f(x[i]) -> y; y[i] = [-inf < x[i]]*clamp(x[i], -inf, inf)")
    assert parse(str(op)) == op


@each_row("text, message", WRONG)
def test_wrong_text(text: str, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert str(caught.value).splitlines()[0] == message
    if message.startswith("line"):
        place = f"line {caught.value.line}, column {caught.value.column}: "
        assert message.startswith(place)


# Mutated text

SEEDS = [
    "C[i,j] = sum[k](A[i,k]*B[k,j])",
    "y[i] = x[i]*sum[i](x[i]*sum[i](x[i]*softmax[i](x[i])))",
    "op softmax(A[*p,k,*q]; dim=axis(k, -1)) -> S\nS[*p,k,*q] = softmax[k](A[*p,k,*q])",
    "y[n,o,t] = sum[c,k](x[n,c,2*t+3*k]*w[o,c,k])",
    "op conv(x[n,c,l], w[o,c,k]; s=1, p=0, size(t)=floor((size(l)+2*p-size(k))/s)+1) -> y\n"
    "y[n,o,t] = sum[c,k]([0 <= s*t+k-p < size(l)]*x[n,c,s*t+k-p]*w[o,c,k])",
    "op nll(L[n,c], T[n], W[c]=1; ig=-100, r=mean|sum|none) -> mean: m | sum: s | none: l\n"
    "l[n] = where(T[n] != ig, -W[T[n]]*L[n,T[n]], 0)\ns = sum[n](l[n])\n"
    "m = s/sum[n | T[n] != ig](W[T[n]])",
    "y[n,k] = concat[k](a[n,k], sum[k](b[k])*b[k])",
    "op h(E[n,(h d)]; heads=size(h, 4)) -> y; y[n,(d h)] = E[n,(h d)]",
    "p[n,k] = off[n] + k; y[n,k] = x[p[n,k]]*w[k]*[m[n] and not any[j](v[j] > 0)]",
    "y[t] = x[size(t)-1-t]; z[i] = y[i+1] - y[i]",
    "op f(x[i,j]; eps=1e-5, keepdim=keep(j)) -> y; y[i] = mean[j](x[i,j])/(eps + size(j))",
]
PIECES = [
    *"[](){}*+-/^,;|=<>:#'\"\n 0129.eikxyTp\\\x00²é",
    *("**", "==", "->", "op ", "*p", "sum[k](", "where(", "concat[k](", "softmax[k](", "inf"),
    *("size(k)", "axis(k)", " and ", " not ", "1e-3", "k+1", "T[i]", "(t d)", "any[k](", "int"),
]


def well_formed(op: Operation) -> None:
    """Later stages infer nothing: every index is bound, sized and bound once."""
    extents = {extent.name for extent in op.extents}
    for extent in op.extents:
        assert extent.sources or extent.size is not None
    defined = {tensor.name for tensor in op.inputs}
    for equation in op.equations:
        left = {i for axis in equation.axes for i in walk(axis) if isinstance(i, Index)}
        assert free_indices(equation.body) <= left
        for part in walk(equation.body):
            if isinstance(part, Index | Size):
                assert part.extent in extents
            if isinstance(part, Access):
                assert part.tensor in defined
            if isinstance(part, Reduce):
                assert not set(part.indices) & left
        defined.add(equation.name)
        _unshadowed(equation.body, frozenset(left))
    assert set(op.outputs) <= defined


def _unshadowed(e: Expr, scope: frozenset[Index]) -> None:
    if isinstance(e, Reduce):
        assert not set(e.indices) & scope
        scope |= set(e.indices)
    for part in e.parts():
        _unshadowed(part, scope)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(SEEDS))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 0, 1, 1, 2, 6])))
        text = text[:start] + draw(st.sampled_from(["", *PIECES])) + text[end:]
    return text


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated())
def test_mutated_text_is_an_operation_or_a_spec_error(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeriveWarning)
        try:
            operations = parse_all(text)
        except SpecError as error:
            assert str(error)
            return
    for op in operations:
        well_formed(op)


@each_row("text", SEEDS)
def test_seeds_are_well_formed(text: str) -> None:
    well_formed(parse(text))


def test_numbers_are_exact() -> None:
    op = parse("op f(x[i]; a=1e-5, b=-1/3, c=inf, d=-inf) -> y; y[i] = clamp(a*x[i] + b, d, c)")
    defaults = [p.default for p in op.parameters]  # type: ignore[union-attr]
    assert defaults[:2] == [Fraction(1, 100000), Fraction(-1, 3)]
    assert [isinstance(p, Num) for p in defaults[2:]] == [False, False]


@pytest.mark.parametrize("given", (None, 5, ["op"], b"y[i] = x[i]"))
def test_what_is_no_text_is_told(given):
    with pytest.raises(TypeError, match=f"derive.parse takes a string, not {type(given).__name__}"):
        parse(given)


@pytest.mark.parametrize(
    "f", (derive.derivation, derive.source, derive.load, derive.value_and_grad)
)
def test_what_is_no_operation_is_told(f):
    with pytest.raises(TypeError, match="op must be an Operation, not str"):
        f("y[i] = x[i]")


def test_an_index_that_is_meant_as_a_size_is_told_so():
    with pytest.raises(SpecError, match=r"; its number of values is size\(d\)"):
        parse("op f(Q[i,d], K[j,d]) -> S\nS[i,j] = sum[d](Q[i,d]*K[j,d])/sqrt(d)")


@each_row("name", ("leaky_relu", "elu", "mish", "relu6", "hardswish", "softsign"))
def test_an_activation_that_has_no_name_is_written_out(name):
    with pytest.raises(SpecError, match="write it as ") as found:
        parse(f"op f(x[n], a=0.1) -> y\ny[n] = {name}(x[n])".replace(", a=0.1", "; a=0.1"))
    body = found.value.text.partition("write it as ")[2].splitlines()[0].replace("x", "x[n]")
    body = body.replace("ex[n]p", "exp")
    parse(f"op f(x[n]; a=0.1) -> y\ny[n] = {body} + a")


def test_tables_of_the_parser_that_are_no_such_are_made_again(tmp_path, monkeypatch):
    text = "op f(x[n]) -> y\ny[n] = x[n]**2"
    made, kept = parse(text), tmp_path / "kept" / "notation.tables"
    monkeypatch.setattr(text_form, "folder", lambda: kept.parent)
    for broken in (None, b"", b"none\nof these", "half"):
        if broken is not None:
            tables = kept.read_bytes()
            kept.write_bytes(tables[: len(tables) // 2] if broken == "half" else broken)
        text_form._parser.cache_clear()
        assert parse(text) == made
    kept.parent.chmod(0o777)  # where others may write, their tables would be loaded
    assert text_form._tables() is False
    monkeypatch.setattr(text_form, "folder", lambda: kept / "in a file")
    text_form._parser.cache_clear()
    assert parse(text) == made
    text_form._parser.cache_clear()
