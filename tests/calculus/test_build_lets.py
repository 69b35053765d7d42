"""The equations of an operation as lets: in order, with those that the engine makes."""

import warnings

import pytest
import torch
from kit.each import some_now
from kit.equations import SIZES, index, samples

import derive
from derive import derivation, load, parse
from derive.algebra.expr import Access, Add, Call, Mul, num
from derive.algebra.interpret import array
from derive.calculus.build_lets import flatten_operation, with_named_parts
from derive.check.checks import checks_of


def lets(text):
    return [(let.name, let.kind, let.internal) for let in flatten_operation(parse(text))]


def test_each_equation_is_a_let_in_its_order():
    found = lets("op f(x[i], w[i]) -> y\nh[i] = x[i]*w[i]\ny = sum[i](h[i])")
    assert found == [("h", "sum", False), ("y", "sum", False)]


def test_an_equation_that_is_a_logsumexp_is_one():
    found = lets("op f(x[i,j]) -> y\ny[i] = log(sum[j](exp(x[i,j])))")
    assert found == [("y", "logsumexp", False)]


def test_what_the_engine_names_stands_before_what_reads_it():
    found = lets("op f(x[i,j], z[i]) -> y\ny[i] = z[i]*max[j](x[i,j])")
    assert found == [("top", "max", True), ("y", "sum", False)]


def test_a_rewritten_equation_has_a_step_that_names_the_identity():
    made = flatten_operation(parse("op f(x[i,j]) -> y\ny[i,j] = exp(x[i,j])/sum[k](exp(x[i,k]))"))
    assert [step.rule for step in made.steps] == ["stable form"]
    assert made.steps[0].subject[0] == "y"


@pytest.mark.parametrize("text", ["op f(x[(t d)]; size(t)=2) -> y\ny[(t d)] = x[(t d)]**2"])
def test_composite_axes_are_split_before(text):
    with pytest.raises(Exception, match="an axis that is not a plain index"):
        flatten_operation(parse(text))


i = index("i")
x = Access("x", (i,))
LONG = Add(tuple(Call("sin", (num(k) * x,)) for k in range(2, 14)))


def named(e):
    made = {}

    def name(part):
        made[f"u{len(made)}"] = part
        return Access(f"u{len(made) - 1}", (i,))

    return with_named_parts(e, {"x"}, name), made


def test_a_large_argument_has_a_name_and_the_value_stays():
    e, made = named(Call("exp", (LONG,)))
    assert e is Call("exp", (Access("u0", (i,)),)) and made == {"u0": LONG}
    tensors = samples()
    known = tensors | {n: array((i,), part, tensors, SIZES, {}) for n, part in made.items()}
    want = array((i,), Call("exp", (LONG,)), tensors, SIZES, {})
    assert array((i,), e, known, SIZES, {}) == pytest.approx(want)


def test_what_is_small_stays_as_it_is():
    e = Mul((x, Call("exp", (x + num(1),))))
    assert named(e) == (e, {})


def test_a_long_product_is_one_of_products():
    op = parse(
        "op f(" + ", ".join(f"a{n}[i]" for n in range(20)) + ") -> y\n"
        "y[i] = " + "*".join(f"a{n}[i]" for n in range(20))
    )
    longest = max(len(str(f)) for f in derivation(op).gradients.values())
    assert longest < 20 * len("a19[i]·")


@pytest.mark.parametrize(
    "loss",
    (
        "sum[i,j](where(m[i,j], (X[i,j] - sum[r](A[i,r]*B[j,r]))**2, 0))",
        "sum[i,j | m[i,j]]((X[i,j] - sum[r](A[i,r]*B[j,r]))**2)",
        "mean[i,j](X[i,j]*(sum[r](A[i,r]*B[j,r]) + X[i,j] - 1)**2 + where(m[i,j], X[i,j], 0))",
    ),
)
def test_a_residual_is_not_multiplied_out(loss):
    op = parse(f"op f(X[i,j], A[i,r], B[j,r], m[i,j]: bool) -> L\nL = {loss}")
    assert "r′" not in str(derivation(op).gradients["A"])
    assert all(c.ok for c in checks_of(op, load(op)))


CONTRACTIONS = {
    "y[n,v] = a[v]*tanh(sum[d](x[n,d]*w[d,v]))": ["u"],
    "y[n,v] = sin(sum[d](x[n,d]*w[d,v]) + a[v])": ["u"],
    "y[n,v] = sigmoid(sum[d](x[n,d]*w[d,v]))*sum[d](x[n,d]*z[d,v]) + a[v]": ["u", "u2"],
    "y[n] = sum[v](a[v]*relu(sum[d](x[n,d]*w[d,v])))": ["u"],
    "y[n,v] = c*tanh(sum[d](x[n,d]*w[d,v]))": ["u"],
    # The value of the equation tells the derivative.
    "y[n,v] = tanh(sum[d](x[n,d]*w[d,v]))": [],
    "y[n,v] = 30*tanh(sum[d](x[n,d]*w[d,v])/30)": [],
    "y[n,v] = c*tanh(sum[d](x[n,d]*w[d,v])/c)": [],
    "y[n,v] = relu(sum[d](x[n,d]*w[d,v]) + a[v])": [],
    "y[n,v] = sqrt(sum[d](x[n,d]**2*w[d,v]**2))": [],
    # A sum of products of elements is cheap.
    "y[n] = sin(sum[d](x[n,d]**2*z[d,n]))": [],
    "y[n] = sum[v](a[v]*sum[d](x[n,d]*w[d,v]))": [],
}


@pytest.mark.parametrize("equation", some_now(CONTRACTIONS, len(CONTRACTIONS), 3))
def test_a_contraction_inside_of_a_function_has_a_name(equation):
    given = "x[n,d], w[d,v], z[d,v], a[v]".replace(
        "z[d,v]", "z[d,n]" if "z[d,n]" in equation else "z[d,v]"
    )
    parameters = "; c=3.0" if "c*" in equation else ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        op = parse(f"op f({given}{parameters}) -> y\n{equation}")
    names = [f.name for f in derivation(op).definitions]
    assert [n for n in names if n.startswith("u")] == CONTRACTIONS[equation]
    assert not [c for c in checks_of(op, load(op)) if not c.ok]


def variables(line, head="Q[t,d], K[s,d]"):
    op = parse(f"op f({head}) -> Y\n{line}")
    return [let.name for let in flatten_operation(op) if let.variable]


def test_a_contraction_under_a_softmax_is_named():
    assert variables("Y[t,s] = softmax[s](sum[d](Q[t,d]*K[s,d]))") == ["scores"]
    assert variables("Y[t,s] = log_softmax[s](sum[d](Q[t,d]*K[s,d])/2)") == ["scores"]


@pytest.mark.parametrize(
    "scores", ["x[h,t,s] - b[t,s]", "(x[h,t,s] + b[t,s])/4", "x[h,t,s]*b[t,s]"]
)
def test_scores_with_a_bias_that_lacks_an_axis_are_named(scores):
    """The gradient of the bias is a sum of that of the scores: no tensor has h, t, s and e."""
    op = parse(
        f"op f(x[h,t,s], b[t,s], v[h,s,e]) -> y\ny[h,t,e] = sum[s](softmax[s]({scores})*v[h,s,e])"
    )
    assert [let.name for let in flatten_operation(op) if let.variable] == ["scores"]


def test_a_shift_of_a_row_is_no_part_of_its_scores():
    """The softmax is that of x + b, and the largest of a row is not computed."""
    scores, name = "x[n,k] + b[k]", "op f(x[n,k], b[k]) -> y"
    shifted = f"exp({scores} - m[n])/sum[k](exp({scores} - m[n]))"
    op = parse(f"{name}\nm[n] = max[k]({scores})\ny[n,k] = {shifted}")
    plain = parse(f"{name}\ny[n,k] = softmax[k]({scores})")
    of = [lets["scores"].body for lets in (flatten_operation(op), flatten_operation(plain))]
    assert of[0] is of[1]
    code = derive.source(op, standalone=False)
    assert "unsqueeze(3)" not in code and "permute" not in code
    assert not [c for c in checks_of(op, load(op)) if not c.ok]


def test_what_is_no_contraction_is_not():
    assert variables("Y[t,d] = softmax[d](Q[t,d])", "Q[t,d]") == []
    assert variables("Y[t] = exp(sum[d](Q[t,d]*K[t,d]))", "Q[t,d], K[t,d]") == []


def test_what_may_be_infinite_is_not():
    scores = "softmax[s](sum[d](Q[t,d]/K[s,d]))"
    assert "scores" not in variables(f"Y[t,s] = where(t < 2, {scores}, 0)")
    assert variables(f"Y[t,s] = {scores}") == ["scores"]


def test_a_mask_that_is_added_is_not_multiplied_out():
    """c*(1 - m) with a large c leaves no digit of what stands beside c*m."""
    for softmax in ("softmax", "log_softmax", "logsumexp"):
        for mask in ("- 1000000000*(1 - m[s])", "+ (m[s] - 1)*10000", "+ c*(1 - m[s])"):
            text = f"Y[t,s] = {softmax}[s](Q[t,s] {mask})"
            text = text.replace("Y[t,s]", "Y[t]") if softmax == "logsumexp" else text
            head = "Q[t,s], m[s]" + ("; c=-1e4" if "c*" in mask else "")
            assert variables(text, head) == ["scores"]
    assert variables("Y[t,s] = softmax[s](Q[t,s] - 2*(1 - m[t,s]))", "Q[t,s], m[t,s]") == []


@pytest.mark.parametrize("softmax", ["softmax", "log_softmax"])
def test_scores_beside_a_mask_keep_their_digits(softmax):
    x, m = torch.randn(3, 5), torch.tensor([1.0, 1, 0, 1, 1])
    text = f"op f(x[i,j], m[j]) -> y\ny[i,j] = {softmax}[j](x[i,j] + (1 - m[j])*(-1e9))"
    plain = getattr(torch, softmax)(x + (1 - m) * -1e9, -1)
    torch.testing.assert_close(load(parse(text))(x, m), plain)


def test_a_softmax_of_branches_is_one():
    """exp(x - logsumexp x) of a row that is -1e9 as a whole is 1 at each of its places."""
    text = """op f(e[i,j], m[i,j]: bool) -> y
y[i,j] = softmax[j](where(m[i,j], -1000000000, where(e[i,j] > 0, e[i,j], 0.01*e[i,j])))"""
    m = torch.zeros(3, 4, dtype=torch.bool)
    m[1] = True
    y = load(parse(text))(torch.randn(3, 4), m)
    torch.testing.assert_close(y.sum(1), torch.ones(3))
