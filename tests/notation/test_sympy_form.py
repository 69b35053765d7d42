"""Operations written as SymPy equations: the same as their text, and back.

SymPy orders sums and products itself; the texts here are written in that order.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sympy
import torch
from kit.each import each_row
from sympy import (
    Abs,
    Eq,
    Heaviside,
    Idx,
    IndexedBase,
    KroneckerDelta,
    Max,
    Ne,
    Piecewise,
    Product,
    Sum,
    Symbol,
    exp,
    floor,
    log,
    sqrt,
    symbols,
)

from derive.api import derivation, load
from derive.errors import SpecError
from derive.notation import heads as h
from derive.notation.specification import Operation, parse, read
from derive.notation.sympy_form import to_sympy

c, d, i, j, k, l, n, o, t = symbols("c d i j k l n o t", integer=True)  # noqa: E741
N, K = symbols("N K", integer=True)
eps = Symbol("eps")
A, B, C, S, T, W, m, w, x, y, z = map(IndexedBase, "A B C S T W m w x y z".split())
p, q = h.group("p"), h.group("q")


def _until_two() -> Any:
    return Piecewise((x[k], k <= i), (2, True))


def f(*equations: Any, **more: Any) -> Callable[[], Operation]:
    """The operation f of these, made when it is asked for."""
    return lambda: Operation("f", *equations, **more)


SAME = {
    "op f(A[*p,k,*q]; dim=axis(k)) -> S\nS[*p,k,*q] = exp(A[*p,k,*q])/sum[l](exp(A[*p,l,*q]))": f(
        Eq(S[*p, k, *q], exp(A[*p, k, *q]) / Sum(exp(A[*p, l, *q]), l)),
        parameters={"dim": h.axis(k)},
    ),
    "op f(A[*p,k,*q]; dim=axis(k, -1)) -> S; S[*p,k,*q] = softmax[k](A[*p,k,*q])": f(
        Eq(S[*p, k, *q], h.Softmax(A[*p, k, *q], k)), parameters={"dim": h.axis(k, -1)}
    ),
    "op f(x[*p,k]; dim=axis(k), keepdim=keep(k)) -> y; y[*p] = mean[k | x[*p,k]>0](x[*p,k])": f(
        Eq(y[p], h.Mean(x[*p, k], k, where=x[*p, k] > 0)),
        parameters={"dim": h.axis(k), "keepdim": h.keep(k)},
    ),
    "op f(x[i,j], w[j]; eps=1e-5) -> y\n"
    "m[j] = mean[i](x[i,j])\n"
    "z[j] = sum[i]((x[i,j] - m[j])**2)/size(i)\n"
    "y[i,j] = w[j]*(x[i,j] - m[j])*(z[j] + eps)**(-1/2)": f(
        Eq(m[j], h.Mean(x[i, j], i)),
        Eq(z[j], Sum((x[i, j] - m[j]) ** 2, (i, 0, N - 1)) / N),
        Eq(y[i, j], w[j] * (x[i, j] - m[j]) / sqrt(z[j] + eps)),
        inputs=[x, w],
        parameters={eps: 1e-5},
    ),
    "op f(x[i]) -> y; y[i] = log(x[i]) + 0.1*abs(x[i]) + maximum(x[i], 0)": f(
        Eq(y[i], Max(x[i], 0) + 0.1 * Abs(x[i]) + log(x[i]))
    ),
    "op f(x[i], w[i]) -> y; y[i] = exp(x[i])*w[i]": f(
        Eq(y[i], Abs(exp(x[i])) * sympy.conjugate(w[i])), inputs=[x[i], w[i]]
    ),
    "op f(x[i]) -> y; y[i] = exp(sin(x[i])*cosh(0))": f(
        Eq(y[i], Abs(exp(sympy.sin(x[i])))), inputs=[x[i]]
    ),
    "op f(x[k]) -> y; y[i] = prod[k | k <= i - 1](x[k])": f(
        Eq(y[i], Product(x[k], (k, 0, i - 1))), inputs=[x[k]]
    ),
    "op f(x[i,k]; size(k)=5) -> y; y[i] = sum[k](x[i,k])": f(Eq(y[i], Sum(x[i, k], (k, 0, 4)))),
    "op f(x[i]; eps=1, size(k)=floor((size(i)-eps)/2)+1) -> y; y[k] = x[2*k]": f(
        Eq(y[k], x[2 * k]),
        inputs=[x[i]],
        parameters={eps: 1, h.size(k): floor((h.size(i) - eps) / 2) + 1},
    ),
    "op f(x[i]; eps=1, size(k)=floor((size(i)-eps)/eps)+1) -> y; y[k] = x[2*k]": f(
        Eq(y[k], x[2 * k]),
        inputs=[x[i]],
        parameters={eps: 1, h.size(k): floor((h.size(i) - eps) / eps) + 1},
    ),
    "op f(A[k], B[k], C[k]) -> y; y[j] = sum[i](concat[i](A[i], where(i > j, B[i], C[i])))": f(
        Eq(y[j], Sum(h.Concat(i, A[i], Piecewise((B[i], j < i), (C[i], True))), i)),
        inputs=[A[k], B[k], C[k]],
    ),
    "op f(A[n,k], B[n,l]) -> y; y[n,i] = concat[i](A[n,i], B[n,i])": f(
        Eq(y[n, i], h.Concat(i, A[n, i], B[n, i])), inputs=[A[n, k], B[n, l]]
    ),
    "op f(W[c,d], T[n,t]) -> y; y[n,(t d)] = W[T[n,t],d]": f(
        Eq(y[n, (t, d)], W[T[n, t], d]), inputs=[W[c, d], T[n, t]]
    ),
    "op f(x[n,t,d], W[k,c]) -> y; z[n,(t d)] = x[n,t,d]; y[n,c] = sum[k](z[n,k]*W[k,c])": f(
        Eq(z[n, h.Composite(t, d)], x[n, t, d]),
        Eq(y[n, c], Sum(z[n, k] * W[k, c], k)),
        inputs=[x[n, t, d], W[k, c]],
    ),
    "op f(W[(t d),c], x[t,d]) -> y; y[c] = sum[k](k*W[k,c]) + sum[t,d](W[(t d),c]*x[t,d])": f(
        Eq(y[c], Sum(x[t, d] * W[h.Composite(t, d), c], t, d) + Sum(k * W[k, c], k)),
        inputs=[W[h.Composite(t, d), c], x[t, d]],
    ),
    "op f(x[n,(k d)]; groups=size(k, 4)) -> y; y[n,k,d] = x[n,(k d)]/groups": f(
        Eq(y[n, k, d], x[n, h.Composite(k, d)] / h.size(k)), parameters={"groups": h.size(k, 4)}
    ),
    "op f(x[n,c,l], w[o,c,k]; s=1) -> y; y[n,o,t] = sum[c,k](x[n,c,s*t+k]*w[o,c,k])": f(
        Eq(y[n, o, t], Sum(w[o, c, k] * x[n, c, Symbol("s") * t + k], c, k)),
        inputs=[x[n, c, l], w[o, c, k]],
        parameters={"s": 1},
    ),
    "op f(x[i], m[i]: bool) -> y; y[i] = where(m[i], x[i], [i == 2])": f(
        Eq(y[i], Piecewise((x[i], h.Holds(m[i])), (KroneckerDelta(i, 2), True))),
        inputs=[x[i], h.boolean(m[i])],
    ),
    "op f(x[i,j], a) -> y; y[i] = a*argmax[j](x[i,j])*logsumexp[j](x[i,j])": f(
        Eq(y[i], Symbol("a") * h.ArgMax(x[i, j], j) * h.LogSumExp(x[i, j], j)),
        inputs=[x[i, j], Symbol("a")],
    ),
    "op f(x[k], w[i]) -> y; y = sum[i](w[i]*sum[k](where(i >= k, x[k], 2)))": f(
        Eq(Symbol("y"), Sum(w[i] * Sum(Piecewise((x[k], k <= i), (2, True)), k), i)),
        inputs=[x[k], w[i]],
    ),
    "op f(x[k], w[i]) -> y; y = prod[i](w[i]*max[k](where(i >= k, x[k], 2)))": f(
        Eq(Symbol("y"), Product(w[i] * h.ReduceMax(_until_two(), k), i)), inputs=[x[k], w[i]]
    ),
    "op f(x[i], w[i]) -> y; y[i] = [i + 1 < size(i)]*x[i + 1]**2*w[i]**2": f(
        Eq(y[i], (h.Iverson(i + 1 < h.size(i)) * x[i + 1] * w[i]) ** 2), inputs=[x[i], w[i]]
    ),
    "op f(x[i]) -> y; y[i] = x[i] - digamma(1)": f(Eq(y[i], x[i] - sympy.digamma(1))),
    "op f(x[k]) -> y; y = sum[k | 1 <= k and k <= 3](x[k])": f(
        Eq(Symbol("y"), Sum(x[k], (k, 1, 3))), inputs=[x[k]]
    ),
    "op f(x[*p]) -> y; y = sum[*p](x[*p])/size(p)": f(Eq(Symbol("y"), Sum(x[p], p) / h.size(p))),
}


def test_declared_tensors_come_in_their_order():
    a, b = IndexedBase("a"), IndexedBase("b")
    for first, second in ((a, b), (b, a)):
        made = Operation("f", Eq(y[i], first[i] * second[i] + 1), inputs=[first[i], second[i]])
        body = f"y[i] = {first}[i]*{second}[i] + 1"
        assert made == parse(f"op f({first}[i], {second}[i]) -> y; {body}")


def test_a_number_stands_before_functions_and_powers_ascend():
    made = Operation("f", Eq(y[i], x[i] * (sympy.erf(x[i]) + 1) + x[i] ** 3 + x[i]), inputs=[x[i]])
    text = str(derivation(made).equations[0])
    assert text == "y[i] = x[i]·(1 + erf(x[i])) + x[i] + x[i]³"


@each_row(
    "equation",
    [
        Eq(C[i, j], Sum(A[i, k] * B[k, j], k)),
        Eq(C[i, j], Sum(A[i, k] * B[k, j], (k, 0, K - 1))),
        Eq(C[Idx("i", N), j], Sum(A[Idx("i", N), Idx("k")] * B[Idx("k"), j], Idx("k"))),
    ],
)
def test_a_whole_axis_has_limits_or_none(equation: Any) -> None:
    text = "op matmul(A[i,k], B[k,j]) -> C; C[i,j] = sum[k](A[i,k]*B[k,j])"
    assert Operation("matmul", equation) == parse(text)
    assert str(to_sympy(parse(text).equations[0].body))


@each_row("text, made", SAME.items())
def test_text_and_sympy_are_one_operation(text: str, made: Any) -> None:
    assert made() == parse(text)


def nll_loss() -> Operation:
    loss, total, average = IndexedBase("loss"), Symbol("total"), Symbol("average")
    ignore = Symbol("ignore_index")
    taken = Ne(T[n], ignore)
    return Operation(
        "nll_loss",
        Eq(loss[n], Piecewise((-A[n, T[n]] * W[T[n]], taken), (0, True))),
        Eq(total, Sum(loss[n], n)),
        Eq(average, total / h.Total(W[T[n]], n, where=taken)),
        inputs=[A[n, c], h.integer(T[n]), h.optional(W[c], 1)],
        parameters={ignore: -100, "reduction": h.choice("mean", "sum", "none")},
        outputs={"mean": average, "sum": total, "none": loss},
    )


def test_nll_loss() -> None:
    assert nll_loss() == parse(
        "op nll_loss(A[n,c], T[n]: int, W[c]=1; ignore_index=-100, reduction=mean|sum|none)"
        " -> mean: average | sum: total | none: loss\n"
        "loss[n] = where(T[n] != ignore_index, -A[n,T[n]]*W[T[n]], 0)\n"
        "total = sum[n](loss[n])\n"
        "average = total/sum[n | T[n] != ignore_index](W[T[n]])"
    )


def test_linear_cross_entropy_is_pleasant_to_write() -> None:
    input_, weight, bias, target = map(IndexedBase, ("input", "weight", "bias", "target"))
    loss, lse = IndexedBase("loss"), IndexedBase("lse")
    ignore, smooth = symbols("ignore_index label_smoothing")
    taken = Ne(target[n], ignore)
    op = Operation(
        "linear_cross_entropy",
        Eq(z[n, c], Sum(input_[n, d] * weight[c, d], d) + bias[c]),
        Eq(lse[n], h.LogSumExp(z[n, c], c)),
        Eq(
            loss[n],
            Piecewise(
                (
                    (1 - smooth) * (lse[n] - z[n, target[n]])
                    + smooth * (lse[n] - h.Mean(z[n, c], c)),
                    taken,
                ),
                (0, True),
            ),
        ),
        Eq(Symbol("average"), Sum(loss[n], n) / Sum(h.Iverson(taken), n)),
        inputs=[input_[n, d], weight[c, d], target[n], h.optional(bias[c], 0)],
        parameters={ignore: -100, smooth: 0},
    )
    kinds = [t.kind for t in op.inputs]
    assert kinds == ["float", "float", "int", "float"]
    assert [p.integer for p in op.parameters] == [True, False]  # type: ignore[union-attr]


def test_bare_indices_are_the_whole_axis() -> None:
    total = Sum(A[i, k], k)
    assert total.limits == ((k, 0, h.size(k) - 1),)
    assert Sum(A[i, k], (k, 0, N - 1)).limits == ((k, 0, N - 1),)
    assert Product(A[i, k], i, k).limits[1] == (k, 0, h.size(k) - 1)
    assert Sum(1 / k**2, (k, 1, sympy.oo)).doit() == sympy.pi**2 / 6  # SymPy's own use


def test_a_condition_that_sympy_decides() -> None:
    """As the right side of an equation too."""
    op = Operation("f", Eq(m[i], sympy.true, evaluate=False), Eq(y[i], x[i]), inputs=[x[i]],
                   outputs=["m", "y"])  # fmt: skip
    assert [e.kind for e in op.equations] == ["bool", "float"]


@pytest.mark.parametrize(
    ("name", "below"),
    [("cot", "tan"), ("sec", "cos"), ("csc", "sin"), ("coth", "tanh"), ("sech", "cosh")],
)
def test_reciprocals_of_functions(name: str, below: str) -> None:
    op = Operation("f", Eq(y[i], getattr(sympy, name)(x[i])))
    assert op == parse(f"op f(x[i]) -> y; y[i] = 1/{below}(x[i])")


def test_infinities() -> None:
    """A branch that a maximum leaves out is its condition; elsewhere there is none."""
    left_out = Piecewise((A[i, k], A[i, k] > 1), (-sympy.oo, True))
    op = Operation("f", Eq(C[i], h.ReduceMax(left_out, k)))
    assert op == parse("op f(A[i,k]) -> C; C[i] = max[k | A[i,k] > 1](A[i,k])")
    with pytest.raises(SpecError, match=r"inf is allowed only in(.|\n)*in f: C\[i\] ="):
        Operation("f", Eq(C[i], Sum(left_out, k)))


def test_sizes_by_shape() -> None:
    named = IndexedBase("x", shape=(N, K))
    op = Operation("f", Eq(y[i], Sum(named[i, j], j) / K))
    assert op == parse("op f(x[i,j]) -> y; y[i] = sum[j](x[i,j])/size(j)")


def test_triangular_limits_are_conditions() -> None:
    op = Operation("f", Eq(y[i], Sum(x[i, k, j], (k, 0, j), (j, 0, N - 1))))
    assert (
        op.equations[0]
        == (parse("op f(x[i,k,j]) -> y; y[i] = sum[k,j | k <= j](x[i,k,j])").equations[0])
    )


WRONG: list[tuple[Any, str]] = [
    (
        lambda: Operation("matmul", Eq(C[i, j], A[i, l] * B[k, j])),
        "index l of A[i, l] is neither summed over nor on the left; sum over it, sum[l](...), "
        "or add it to C [D011]\n  in matmul: C[i, j] = A[i, l]*B[k, j]",
    ),
    (
        f(Eq(C[i], A[i] * Symbol("a"))),
        "symbol a is neither an index, a parameter nor an input; declare it, "
        'parameters={"a": None} or inputs=[..., a] [D005]\n  in f: C[i] = a*A[i]',
    ),
    (
        f(Eq(C[i], Heaviside(A[i]))),
        "SymPy's Heaviside in Heaviside(A[i]) is not supported; write Iverson(x > 0), "
        "which defines the value at 0 [D029]\n  in f: C[i] = Heaviside(A[i])",
    ),
    (
        f(Eq(C[i], Ne(A[i], 0))),
        "f: SymPy evaluated an equation to False; one side may be nan, such as 0*oo; write it "
        "with Eq(..., evaluate=False), and a condition as Iverson(...) [D028]",
    ),
    (
        f(Eq(C[i], C[i])),
        "f: SymPy evaluated an equation to True; write it with Eq(..., evaluate=False), and a "
        "condition as Iverson(...) [D028]",
    ),
    (
        f(Eq(C[i], Sum(A[i, k], (k, 1, N)))),
        "limits (k, 1, N): indices start at 0; write (k, 0, N - 1) or k alone [D029]\n  in f: "
        "C[i] = "
        "Sum(A[i, k], (k, 1, N))",
    ),
    (
        f(Eq(C[i], Sum(A[i, k], (k, 0, sympy.oo)))),
        "limits (k, 0, oo): write k alone for the whole axis [D029]\n  in f: C[i] = Sum(A[i, "
        "k], (k, "
        "0, oo))",
    ),
    (
        f(Eq(C[i], Piecewise((A[i], i > 2)))),
        "Piecewise((A[i], i > 2)) has no last case; end it with (..., True) [D029]\n"
        "  in f: C[i] = Piecewise((A[i], i > 2))",
    ),
    (
        f(Eq(C[i], sympy.I * A[i])),
        "SymPy's ImaginaryUnit in I is not supported; write real numbers; SymPy evaluates "
        "sqrt(-1) to I [D029]\n  in f: C[i] = I*A[i]",
    ),
    (
        f(Eq(C[i], sympy.log(0) * A[i])),
        "SymPy's ComplexInfinity in zoo is not supported; write oo or -oo; SymPy evaluates "
        "1/0 and log(0) to zoo [D029]\n  in f: C[i] = zoo*A[i]",
    ),
    (
        f(Eq(C[i], sympy.nan, evaluate=False)),
        "SymPy's NaN in nan is not supported; write a number; SymPy evaluates 0*oo and oo "
        "- oo to nan [D029]\n  in f: C[i] = nan",
    ),
    (
        f(Eq(C[i], A * A[i])),
        "tensor A has no indices; write A[...], or use a Symbol for a number [D029]\n  in f: "
        "C[i] = "
        "A[i]*A",
    ),
    (f(A[i]), "f: A[i] is not an equation; write Eq(C[i, j], ...) [D028]"),
    (
        f([Eq(C[i], A[i])]),
        "f: [Eq(C[i], A[i])] is not an equation; pass the equations one by one, without a list "
        "[D028]",
    ),
    (
        lambda: Operation("f{{", Eq(C[i], A[i])),
        "'f{{' cannot name an operation; use letters, digits and _ [D002]",
    ),
    (
        f(Eq(C[i], IndexedBase("a'b")[i])),
        "\"a'b\" cannot name a tensor; use letters, digits and _ [D002]\n  in f: C[i] = a'b[i]",
    ),
    (
        lambda: Operation("f"),
        "operation f has no equation; write one for its output, y[i] = ... [D003]",
    ),
    (
        f(Eq(C[i], A[i]), parameters={"eps": "big"}),
        "'big' is not a number; give a number, pi or oo [D029]",
    ),
    (
        lambda: Operation(
            "f", Eq(y[k], x[2 * k]), inputs=[x[i]], parameters={h.size(k): h.size(i) / 2}
        ),
        "size(k) must be an integer, or an expression of sizes and integer parameters with + "
        "- * and floor(a/b), not size(i)/2 [D023]\n  in size(k) = size(i)/2",
    ),
    (
        f(Eq(C[i], A[i] * B[i]), inputs=[A]),
        "unknown tensor B; declare it in inputs=[x[i, j], ...], or define it above [D005]\n"
        "  in f: C[i] = A[i]*B[i]",
    ),
]


DECLARED = [
    (
        f(Eq(C[i, k], A[i])),
        "declare it in inputs=[x[i, j], ...], or give parameters={size(k): ...}",
    ),
    (
        f(Eq(C[j], Sum(A[j + k + l], k, l))),
        "declare one of them in inputs=[x[i, j], ...], or give parameters={size(j): ...}",
    ),
    (
        f(Eq(B[i], sympy.floor(T[i])), Eq(C[i], A[B[i]])),
        "an integer; otherwise declare inputs=[..., integer(T)]",
    ),
    (
        f(Eq(C[1], A[i])),
        "y[k] = where(k == 0, a, b), and parameters={size(k): 2} sets their number",
    ),
]


@pytest.mark.parametrize(("made", "advice"), DECLARED)
def test_what_to_declare_is_said_in_sympy(made: Any, advice: str) -> None:
    with pytest.raises(SpecError) as caught:
        made()
    assert advice in str(caught.value)
    assert "op line" not in str(caught.value)


@each_row("made, message", WRONG)
def test_wrong_equations(made: Any, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        made()
    assert str(caught.value) == message


BACK = [
    ("C[i,j] = sum[k](A[i,k]*B[k,j])", "Sum(A[i, k]*B[k, j], (k, 0, size(k) - 1))"),
    ("y[i] = mean[j](x[i,j])**2/size(j)", "Mean(x[i, j], j)**2/size(j)"),
    ("y[i] = [i == 2]*relu(x[i])", "relu(x[i])*Iverson(Eq(i, 2))"),
    ("y[i] = where(x[i] > 0, x[i], 0)", "Piecewise((x[i], x[i] > 0), (0, True))"),
    ("y[*p] = exp(x[*p]) + pi", "exp(x[p]) + pi"),
    ("y = logsumexp[i | x[i] > 0](x[i])", "LogSumExp(x[i], i, where=x[i] > 0)"),
]


@each_row("text, expected", BACK)
def test_to_sympy(text: str, expected: str) -> None:
    assert str(to_sympy(parse(text).equations[0].body)) == expected


@each_row("text, made", SAME.items())
def test_there_and_back(text: str, made: Any) -> None:
    """Every body has a SymPy form that prints."""
    for equation in parse(text).equations:
        assert str(to_sympy(equation.body))


# Files


def test_read(tmp_path: Path) -> None:
    text = tmp_path / "two.derive"
    text.write_text("op f(x[i]) -> y\ny[i] = x[i]\n\nop g(x[i]) -> y\ny[i] = -x[i]\n")
    assert [op.name for op in read(text)] == ["f", "g"]
    module = tmp_path / "spec.py"
    module.write_text(
        "from sympy import Eq, IndexedBase, Sum, symbols\n"
        "from derive import Operation\n"
        "import derive.notation.sum_limits\n"
        "i, k = symbols('i k', integer=True)\n"
        "x, y = map(IndexedBase, 'xy')\n"
        "second = Operation('b', Eq(y[i], Sum(x[i, k], k)))\n"
        "rest = [Operation('a', Eq(y[i], 2*x[i])), second]\n"
    )
    assert [op.name for op in read(str(module))] == ["b", "a"]


def test_read_errors(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="the file does not exist"):
        read(tmp_path / "none.derive")
    (tmp_path / "a.txt").write_text("y[i] = x[i]")
    with pytest.raises(SpecError, match=r"a spec must be a \.derive text or a \.py module"):
        read(tmp_path / "a.txt")
    bad = tmp_path / "bad.derive"
    bad.write_text("y[i] = x[i]\nz[i] = ")
    with pytest.raises(SpecError, match=r"bad\.derive: line 2, column 7: the text ends") as caught:
        read(bad)
    assert (caught.value.line, caught.value.column) == (2, 7)
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="not UTF-8 text"):
        read(bad)
    module = tmp_path / "bad.py"
    module.write_text("1/0")
    with pytest.raises(SpecError, match="the module raises an error: ZeroDivisionError"):
        read(module)
    module.write_text("x = 1")
    with pytest.raises(SpecError, match="the module defines no Operation"):
        read(module)


def test_an_absolute_value_that_sympy_multiplies_out() -> None:
    """It is one again: with a gradient where it is 0, and no root of a rounded square."""
    a = sympy.IndexedBase("a")
    away = Abs(a[h.size(i) - 1 - i] - w[i])
    assert not away.has(Abs)
    f = load(Operation("f", Eq(y[i], away**3 + 3 * away), inputs=[a[i], w[i]]))
    one = torch.tensor([2.0, 1e-30, 5.0], requires_grad=True)
    value = f(one, torch.tensor([5.0, 0.0, 1.0]))
    (slope,) = torch.autograd.grad(value.sum(), one)
    assert value.tolist() == pytest.approx([0.0, 3e-30, 4.0])
    assert slope.tolist() == [6.0, 3.0, 0.0]
