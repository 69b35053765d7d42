"""Verification passes right code and catches code that is wrong in one place."""

import ast
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from kit.each import each_row, in_turns, some_now
from kit.unwritten import of_order, source_without_reuse

import derive
from derive.algebra.functions import FUNCTIONS
from derive.check import oracle
from derive.check.checks import QUICK, checks_of, gradients_of, load_source, verify_source
from derive.check.rounding_adjudication import ExactDifferences, Unknown
from derive.check.samples import cases, sample

# Wrong backwards made from right ones: one change each, of a sign, a factor or a term.

SCALE = 1.001


class _Change(ast.NodeTransformer):
    """Makes the n-th of all changes within backward methods."""

    def __init__(self, n: int) -> None:
        self.left = n
        self.made = ""
        self.inside = False

    def turn(self, what: str, node: ast.AST) -> bool:
        self.left -= 1
        if self.left == -1:
            self.made = f"{what}: {ast.unparse(node)}"
        return self.left == -1

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.inside = node.name == "backward"
        found = self.generic_visit(node)
        self.inside = False
        return found

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not self.inside:
            return node
        if isinstance(node.op, ast.Add | ast.Sub):
            if self.turn("other sign", node):
                other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
                return ast.BinOp(node.left, other, node.right)
            if self.turn("first term alone", node):
                return node.left
            if self.turn("second term alone", node):
                return node.right
        if isinstance(node.op, ast.Mult | ast.Div):
            if self.turn("inverse factor", node):
                other = ast.Div() if isinstance(node.op, ast.Mult) else ast.Mult()
                return ast.BinOp(node.left, other, node.right)
            if self.turn("scaled", node):
                return ast.BinOp(ast.Constant(SCALE), ast.Mult(), node)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        negative = isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant)
        return node.operand if self.inside and negative and self.turn("sign lost", node) else node


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """What is changed, and the source with it."""
    n = 0
    while True:
        change = _Change(n)
        tree = change.visit(ast.parse(source))
        if not change.made:
            return
        yield change.made, ast.unparse(ast.fix_missing_locations(tree))
        n += 1


def wrong_at_second_order(source: str) -> Iterator[tuple[str, str]]:
    """Each gradient with a term that is 0, whose derivative is not, where it has a graph."""
    n = 0
    while True:
        tree = ast.parse(source)
        backwards = (f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef))
        lines = [
            line
            for f in backwards
            if f.name == "backward"
            for part in of_order(f.body, first=False)
            for line in ast.walk(part)
            if isinstance(line, ast.Assign)
            and ast.unparse(line.targets[0]).startswith("grad_")
            and not isinstance(line.value, ast.Constant)
            and len(line.targets) == 1
        ]
        if n == len(lines):
            return
        text = f"(lambda g: g + 0.01*(g*g - (g*g).detach()))({ast.unparse(lines[n].value)})"
        lines[n].value = ast.parse(text, mode="eval").body
        yield ast.unparse(lines[n].targets[0]), ast.unparse(tree)
        n += 1


# Right operations whose derivatives are hard to judge by differences: they are ill-conditioned.

TEXTS = (
    "op kalman(P[b,i,j], h[i], r) -> K; Ph[b,i] = sum[j](P[b,i,j]*h[j]); "
    "S[b] = sum[i](h[i]*Ph[b,i]) + r; K[b,i] = Ph[b,i]/S[b]",
    "op kalman_update(m[i], P[i,j], h[i], z, r) -> M, V; Ph[i] = sum[j](P[i,j]*h[j]); "
    "S = sum[i](h[i]*Ph[i]) + r; K[i] = Ph[i]/S; M[i] = m[i] + K[i]*(z - sum[j](h[j]*m[j])); "
    "V[i,j] = P[i,j] - K[i]*Ph[j]",
    "op small_sum(x[n,k]) -> y; y[n,k] = x[n,k]/sum[l](x[n,l])",
    "op small_square(x[n,k], m[k]) -> y; d[n] = sum[k](x[n,k]*m[k]); y[n,k] = x[n,k]/d[n]**2",
    "op ratio(a[n], b[n], c[n]) -> y; y[n] = a[n]/(b[n] - c[n])",
    "op log_of_difference(a[n], b[n]) -> y; y[n] = log((a[n] - b[n])**2)",
    "op log_odds(p[n,k]) -> y; y[n,k] = log(p[n,k]/(1 - p[n,k]))",
    "op angle(x[n], y[n]) -> a; a[n] = atan2(y[n], x[n])*atan2(x[n], y[n])",
    "op beta(a[n], b[n]) -> y; y[n] = lgamma(a[n]) + lgamma(b[n]) - lgamma(a[n] + b[n])",
    "op student(x[n,d], v) -> y; y[n] = lgamma((v + size(d))/2) - lgamma(v/2) "
    "- (v + size(d))/2*log(1 + sum[d](x[n,d]**2)/v)",
    "op dirichlet(a[k], x[n,k]) -> y; "
    "y[n] = lgamma(sum[k](a[k])) - sum[k](lgamma(a[k])) + sum[k]((a[k] - 1)*log(x[n,k]))",
    "op long_product(x[n,k]) -> y; y[n] = prod[k](x[n,k]*3)/(1 + prod[k](x[n,k]))",
    "op others(x[i]) -> y; y[i] = prod[j | j != i](x[i] - x[j])",
    "op barycentric(x[i], f[i], t) -> y; w[i] = 1/prod[j | j != i](x[i] - x[j]); "
    "y = sum[i](w[i]*f[i]/(t - x[i]))/sum[i](w[i]/(t - x[i]))",
    "op cholesky(a, b, c, d, e, f) -> r, t, l; p = sqrt(a**2 + 1); q = b/p; "
    "r = sqrt(c**2 + 2 - q**2); s = d/p; t = (e - s*q)/r; l = sqrt(f**2 + 3 - s**2 - t**2)",
    "op inverse(a[n], b[n], c[n], d[n]) -> y, z; D[n] = a[n]*d[n] - b[n]*c[n]; y[n] = d[n]/D[n]; "
    "z[n] = -b[n]/D[n]",
    "op continued(a[n], b[n]) -> y; y[n] = 1/(a[n] + 1/(b[n] + 1/(a[n] + 1/b[n])))",
    "op sharp(x[n,k]) -> y; y[n,k] = exp(30*x[n,k])/sum[l](exp(30*x[n,l]))",
    "op oscillating(x[n], w[n]) -> y; y[n] = sin(200*x[n])*w[n]",
    "op power(x[n], y[n]) -> z; z[n] = (x[n]**2)**(5*y[n])",
    "op norm_gradient(x[n,d]) -> y; y[n,d] = x[n,d]/sqrt(sum[e](x[n,e]**2))**3",
    "op variance_ratio(x[n,k], y[n,k]) -> F; "
    "F[n] = sum[k]((x[n,k] - mean[l](x[n,l]))**2)/sum[k]((y[n,k] - mean[l](y[n,l]))**2)",
    "op correlation(x[n], y[n]) -> r; a[n] = x[n] - mean[m](x[m]); b[n] = y[n] - mean[m](y[m]); "
    "r = sum[n](a[n]*b[n])/sqrt(sum[n](a[n]**2)*sum[n](b[n]**2))",
    "op softmax(A[*p,k,*q]; dim=axis(k)) -> S; "
    "S[*p,k,*q] = exp(A[*p,k,*q])/sum[l](exp(A[*p,l,*q]))",
    "op mahalanobis(x[i], m[i], P[i,j]) -> y; "
    "y = sqrt(sum[i,j]((x[i] - m[i])*P[i,j]*(x[j] - m[j]))**2)",
    "op tangent(x[n], y[n]) -> z; z[n] = tan(x[n]*y[n])/(x[n] - y[n])",
)


SOFTMAX = """
op softmax(A[*p,k,*q]; dim=axis(k)) -> S
S[*p,k,*q] = exp(A[*p,k,*q]) / sum[l](exp(A[*p,l,*q]))
"""
NLL = """
op nll(x[n,c], t[n], w[c]=1; ignore_index=-100, reduction=mean|none) -> mean: m | none: l
l[n] = where(t[n]==ignore_index, 0, -w[t[n]]*x[n,t[n]])
m = sum[n](l[n]) / sum[n | t[n] != ignore_index](w[t[n]])
"""
PRODUCT = "op product(A[i,k], B[k,j]) -> C; C[i,j] = sum[k](A[i,k]*B[k,j])"
CUBE = "op cube(x[n]) -> y; y[n] = x[n]**3"
CONV = "op conv(x[n,u], w[k]; s=1) -> y; y[n,t] = sum[k](x[n,s*t+k]*w[k])"


def failed(text: str, source: str) -> set[str]:
    op = derive.parse(text)
    return {c.check for c in checks_of(op, load_source(op, source)) if not c.ok}


def edited(text: str, old: str, new: str) -> str:
    source = source_without_reuse(derive.parse(text), standalone=True)
    assert old in source, source
    return source.replace(old, new)


@pytest.mark.parametrize("text", [SOFTMAX, NLL, PRODUCT, CUBE, CONV])
def test_generated_code_passes(text):
    op = derive.parse(text)
    source = derive.source(op)
    assert failed(text, source) == set()
    verify_source(op, source)


DETACHED = "op through(x[n], w[n]) -> y; y[n] = x[n]*w[n] + detach(floor(x[n]) - x[n])**2*x[n]"


def test_what_is_detached_is_no_difference():
    op = derive.parse(DETACHED)
    source = derive.source(op)
    assert failed(DETACHED, source) == set()
    verify_source(op, source)
    wrong = edited(DETACHED, "grad_w = G * x", "grad_w = 2 * G * x")
    assert {"gradient", "reference"} <= failed(DETACHED, wrong)


@each_row(
    "text",
    [
        "op f(x[n]) -> y, s; y[n] = x[n]**3; s = detach(sum[n](x[n]))",
        "op f(x[n]) -> s; s = detach(sum[n](x[n]))",
        "op f(x[n], w[m]) -> y; y[n] = sigmoid(x[n] - detach(maximum(2*mean[m](w[m]), 0)))",
    ],
)
def test_outputs_and_values_that_are_detached(text):
    assert failed(text, derive.source(derive.parse(text))) == set()


def test_a_wrong_factor_is_caught():
    source = edited(CUBE, "3 *", "3.002 *")
    op = derive.parse(CUBE)
    assert {"gradient", "gradcheck"} <= failed(CUBE, source)
    with pytest.raises(derive.VerificationError, match="cube: gradient differs"):
        verify_source(op, source)


@pytest.mark.parametrize("axes", ["a,b", "a,b,c,d"], ids=["few elements", "many elements"])
def test_a_gradient_that_is_small_everywhere_is_held_to_its_own_measure(axes):
    text = f"op f(x[{axes}]) -> y; y = sum[{axes}](x[{axes}]**2)/1000000"
    source = derive.source(derive.parse(text))
    line = next(line for line in source.splitlines() if "grad_x = " in line and "None" not in line)
    assert failed(text, source) == set()
    assert "gradient" in failed(text, source.replace(line, line + " * 1.003"))


def test_a_wrong_value_is_caught():
    source = edited(PRODUCT, "return A @ B", "return 2 * (A @ B)")
    assert "value" in failed(PRODUCT, source)
    with pytest.raises(derive.VerificationError, match="value"):
        verify_source(derive.parse(PRODUCT), source)


def test_a_missing_term_is_caught():
    text = "op f(x[n]) -> y; y[n] = x[n]**3 + sin(x[n])"
    source = edited(text, " + x.cos()", "")
    assert "gradient" in failed(text, source)
    source = edited(SOFTMAX, "torch._softmax_backward_data(", "2 * torch._softmax_backward_data(")
    assert {"gradient", "gradcheck"} <= failed(SOFTMAX, source)


def test_a_detached_backward_is_caught_by_the_second_derivative():
    source = edited(
        CUBE, "(*ctx.saved_tensors, G)", "(*(x.detach() for x in ctx.saved_tensors), G)"
    )
    assert "gradient" not in failed(CUBE, source)
    assert "gradgradcheck" in failed(CUBE, source)
    with pytest.raises(derive.VerificationError, match="gradgradcheck"):
        verify_source(derive.parse(CUBE), source)


def test_code_that_fails_is_a_finding():
    source = edited(CUBE, "grad_x = ", "grad_x = missing + ")
    op = derive.parse(CUBE)
    found = [c for c in gradients_of(op, load_source(op, source)) if not c.ok]
    assert any("NameError" in c.detail for c in found)


def test_samples_have_different_extents_and_hit_the_guard():
    op = derive.parse(NLL)
    for case in cases(op):
        made = sample(op, case)
        x, t = made.tensors["x"], made.tensors["t"]
        assert x.shape[0] != x.shape[1]
        assert (t == made.parameters["ignore_index"]).any()
        assert (made.tensors["w"] is None) == (not case.given)


def test_a_steep_gradient_is_not_checked_one_element_after_another(monkeypatch):
    op = derive.parse("""
    op steep(x[i,j,k,l]) -> y
    y = sum[i,j,k,l](1/(x[i,j,k,l]**2 + 0.0005))
    """)

    def alone(*given):
        raise AssertionError("one element after another")

    monkeypatch.setattr(oracle, "gradient", alone)
    columns = [c for c in QUICK if c.name == "gradient"]
    (check,) = checks_of(op, load_source(op, derive.source(op)), columns=columns)
    assert check.ok, check.detail


def test_samples_of_many_indices_stay_small():
    # With eight different extents, x alone has 5,040 elements, and a Jacobian 25 million.
    op = derive.parse("""
    op heads(x[*b,g,r,i,d], y[*b,g,j,d], z[*b,g,j,e]) -> s
    s[*b,g,r,i,e] = sum[j,d](x[*b,g,r,i,d]*y[*b,g,j,d]*z[*b,g,j,e])
    """)
    *_, two = (sample(op, case).tensors["x"].shape for case in cases(op))
    assert len(two) == 6
    assert np.prod(two) < 1000
    assert all(len(set(two[n : n + 3])) == 3 for n in range(4))
    turned = derive.parse("y[g,f,e,d,c,b,a] = x[a,b,c,d,e,f,g]")
    assert all(sample(turned, case).tensors["x"].size < 2000 for case in cases(turned))


def test_samples_reach_each_range():
    """log wants positive values, asin values below 1, floor none at its steps."""
    for text in ("y[n] = log(x[n])", "y[n] = asin(x[n])", "y[n] = lgamma(x[n])"):
        op = derive.parse(text)
        made = sample(op, next(cases(op)))
        assert np.isfinite(made.outputs["y"]).all()


def test_samples_of_offsets_stay_in_bounds():
    op = derive.parse("y[n,d] = sum[k](x[off[n]+k,d]*w[k])")
    made = sample(op, next(cases(op)))
    x, off, w = (made.tensors[name] for name in ("x", "off", "w"))
    assert (off + len(w) <= len(x)).all()
    want = oracle.outputs(op, made.tensors, made.parameters)["y"]
    assert np.array_equal(made.outputs["y"], want)


def test_cases_vary_everything():
    op = derive.parse("op f(A[*p,k,*q]; dim=axis(k), keepdim=keep(k), c=2.0) -> y; "
                      "y[*p,*q] = c*sum[k](A[*p,k,*q])")  # fmt: skip
    assert {c.label for c in cases(op)} == {
        "typical",
        "no axes in groups",
        "two axes in the first group",
        "two axes in the other groups",
        "default parameters",
        "axes from the end",
        "axes kept",
    }


def wrong(op: derive.Operation, source: str, seed: int = 0) -> list[str]:
    """What `verify_source` would raise of."""
    checks = gradients_of(op, load_source(op, source), seed)
    return [f"{c.check}, {c.case}: {c.detail}" for c in checks if not c.ok]


@pytest.mark.parametrize(
    "text", some_now(TEXTS, len(TEXTS), 3), ids=lambda text: text.split("(")[0]
)
def test_a_right_operation_is_right_however_badly_it_is_conditioned(text):
    op = derive.parse(text)
    source = derive.source(op)
    for seed in (0, 2):
        assert wrong(op, source, seed) == []


@pytest.mark.long
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.split("(")[0])
def test_fifty_samples_of_a_right_operation_give_no_alarm(text):
    op = derive.parse(text)
    source = derive.source(op)
    for seed in range(50):
        torch.manual_seed(seed)
        assert wrong(op, source, seed) == []


def passes(op: derive.Operation, source: str) -> bool:
    return all(c.ok for c in gradients_of(op, load_source(op, source)))


def assert_killed(text: str, least: int = 1) -> None:
    op = derive.parse(text)
    source = source_without_reuse(op, standalone=True)
    changed = [*mutants(source), *wrong_at_second_order(source)]
    assert len(changed) >= least
    assert [what for what, code in changed if passes(op, code)] == []


@pytest.mark.parametrize(
    ("text", "least"),
    in_turns([(TEXTS[0], 10), (TEXTS[4], 10), (TEXTS[5], 10), (TEXTS[15], 20), (CUBE, 3)], 3),
    ids=("kalman", "ratio", "log_of_difference", "inverse", "cube"),
)
def test_every_wrong_gradient_is_found(text, least):
    """Also of operations that are judged twice: their samples are ill-conditioned."""
    assert_killed(text, least)


@pytest.mark.long
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text.split("(")[0])
def test_every_wrong_gradient_of_what_is_ill_conditioned_is_found(text):
    assert_killed(text)


def test_verification_is_the_same_each_time_and_leaves_the_generator_alone():
    op = derive.parse(TEXTS[0])
    source = derive.source(op)
    wrong_source = next(code for _, code in mutants(source))
    seen = []
    for seed in (10, 11):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        seen.append([*wrong(op, source), *wrong(op, wrong_source)])
        assert torch.equal(torch.get_rng_state(), before)
    assert seen[0] == seen[1]


def test_a_failure_shows_the_sample():
    op = derive.parse(CONV)
    source = derive.source(op).replace("grad_w = ", "grad_w = 2 * ")
    (made,) = [sample(op, case) for case in cases(op) if case.label == "typical"]
    with pytest.raises(derive.VerificationError) as caught:
        verify_source(op, source)
    message = str(caught.value)
    assert "sample of seed 0:" in message
    assert f"w[{made.tensors['w'].size}] = {made.tensors['w'].tolist()}" in message
    assert f"s = {made.parameters['s']}" in message


def test_a_large_tensor_is_shown_by_its_range():
    op = derive.parse("op f(x[a,b,c,d]) -> y; y = sum[a,b,c,d](x[a,b,c,d]**2)")
    text = str(sample(op, next(cases(op)), 3))
    assert text.startswith("sample of seed 3:")
    assert "120 values in [" in text


def exactly(text: str, **tensors) -> ExactDifferences:
    op = derive.parse(text)
    made = sample(op, next(cases(op)))
    for name, value in tensors.items():
        made.tensors[name][...] = value
    return ExactDifferences(op, made, {name: np.ones_like(v) for name, v in made.outputs.items()})


def test_many_digits_judge_what_differences_cannot():
    """d/dx 1/(x - y) at 1e-6 from the pole, where a step of 1e-3 jumps over it."""
    exact = exactly("op f(x, y) -> z; z = 1/(x - y)", x=1 + 2.0**-20, y=1.0)
    one = {"x": np.ones(())}
    assert exact.slope(one) == -(2.0**40)
    assert exact.curvature(one, one) == 2.0**61
    assert exact.slope({"x": np.ones(()), "y": np.ones(())}) == 0


@pytest.mark.parametrize("body", ("abs(x - y)", "maximum(x, y)", "relu(y - x)"))
def test_many_digits_tell_a_kink(body):
    exact = exactly(f"op f(x, y) -> z; z = {body}", x=0.5, y=0.5)
    with pytest.raises(Unknown, match="kink"):
        exact.slope({"x": np.ones(())})


@each_row("name", sorted(set(FUNCTIONS) - {"detach", "floordiv", "polygamma"}))
def test_every_function_has_many_digits(name):
    arguments = {1: "x", 2: "x, y", 3: "x, y, 2*y"}[FUNCTIONS[name].arity]
    within = {"pow": "x**y", "int": "int(floor(9*x))", "acosh": "acosh(x + y)"}
    call = within.get(name, f"{name}({arguments})")
    exact = exactly(f"op f(x, y) -> z; z = {call} + 0*y", x=0.7, y=0.4)
    found = exact.outputs()["z"]
    assert found == pytest.approx(exact.made.outputs["z"] * 0 + oracle_at(call), rel=1e-14)


def oracle_at(call: str) -> float:
    op = derive.parse(f"op f(x, y) -> z; z = {call} + 0*y")
    return float(oracle.outputs(op, {"x": np.array(0.7), "y": np.array(0.4)}, {})["z"])


DISTANCE = "op distance(x[i,d], y[j,d]; stable) -> D; D[i,j] = sum[d]((x[i,d] - y[j,d])**2)"
ADDITIVE = "op additive(q[i,h], k[j,h], w[h]) -> s; s[i,j] = sum[h](w[h]*tanh(q[i,h] + k[j,h]))"
RIGHT_IN_FLOAT32 = (SOFTMAX, NLL, PRODUCT, CUBE, CONV, DISTANCE, ADDITIVE, *TEXTS[:6])


@pytest.mark.parametrize("text", RIGHT_IN_FLOAT32, ids=lambda text: text.split("(")[0].strip())
def test_code_that_rounds_as_its_equations_is_not_blamed(text):
    found = failed(text, derive.source(derive.parse(text)))
    assert not [name for name in found if name.startswith("float32-")]


DIRECT = "(x.unsqueeze(2) - y.mT).square().sum(1)"
EXPANDED = "(x.square().sum(1, True) + y.square().sum(1) - 2 * x @ y.mT)"


def test_a_formula_that_loses_digits_off_the_origin_is_found():
    found = failed(DISTANCE, edited(DISTANCE, DIRECT, EXPANDED))
    assert found == {"float32-offset"}


@pytest.mark.parametrize(
    "text",
    [
        "op f(x[i,d], y[j,d]; stable) -> D, e; "
        "D[i,j] = sum[d]((x[i,d] - y[j,d])**2); e[i] = sum[d](exp(x[i,d]))",
        "op f(x[i,d], y[j,d]; stable) -> E; "
        "D[i,j] = sum[d]((x[i,d] - y[j,d])**2); E[i,j] = D[i,j]*log(1 + exp(x[i,0]))/x[i,0]",
    ],
    ids=["another output overflows", "all overflow, but not half as far off"],
)
def test_a_lost_digit_is_found_beside_what_overflows(text):
    assert failed(text, derive.source(derive.parse(text))) == set()
    loses = f"({DIRECT} + x.sum() ** 2 - x.sum() ** 2)"
    assert failed(text, edited(text, DIRECT, loses)) == {"float32-offset"}


def test_what_overflows_sooner_than_its_equations_is_found():
    text = "op f(x[n]) -> y; y[n] = softplus(x[n])*x[n]"
    source = edited(text, "torch.nn.functional.softplus(x)", "torch.log(1 + x.exp())")
    assert failed(text, source) == {"float32-offset"}


def test_sizes_hold_the_positions_that_are_numbers():
    """The steps of an unrolled loop are read at the same positions of several inputs."""
    text = "op f(q[n,c], k[n,d], v[n,e], w[n,g]; size(c)=9) -> y\n"
    op = derive.parse(f"{text}y[n] = q[n,8]*k[n,8]*v[n,7] + w[n,6]")
    shapes = {name: x.shape[1] for name, x in sample(op, next(cases(op))).tensors.items()}
    assert shapes["k"] >= 9 and shapes["v"] >= 8 and shapes["w"] >= 7
