"""The judge of gradients that a person writes: right in any form, and what is wrong else."""

import json
import random
import re
from graphlib import TopologicalSorter

import html5lib
import numpy as np
import pytest
from kit.each import each_operation, each_row, told

from derive import parse
from derive.algebra.expr import tensors
from derive.api import derivation
from derive.check import oracle
from derive.errors import DeriveError, SpecError
from derive.notation.operation import options
from derive.site.exercise import exercises, judge
from derive.site.live import answer
from derive.site.points import Table, points

RIGHT = {
    "softmax": [
        "grad_A[n,k] = S[n,k]*(G[n,k] - sum[j](G[n,j]*S[n,j]))",
        "grad_A[a,b] = S[a,b]*G[a,b] - S[a,b]*sum[z](S[a,z]*G[a,z])",
        "D[n] = sum[k](G[n,k]*S[n,k])\ngrad_A[n,k] = (G[n,k] - D[n])*S[n,k]",
        "grad_A[n,k] = sum[j](G[n,j]*(S[n,j]*δ[j,k] - S[n,j]*S[n,k]))",
        "grad_A[n,k] = exp(A[n,k])/sum[j](exp(A[n,j]))*(G[n,k] − Σⱼ G[n,j]·S[n,j])",
    ],
    "layer_norm": [
        "g[n,k] = G[n,k]*w[k]\ngrad_x[n,k] = rsqrt(var[n] + eps)"
        "*(g[n,k] - mean[j](g[n,j]) - xhat[n,k]*mean[j](g[n,j]*xhat[n,j]))",
        "grad_w[k] = sum[n](G[n,k]*xhat[n,k])\ngrad_b[k] = sum[n](G[n,k])",
        "grad_x[n,k] = ((G[n,k]*w[k] - sum[j](G[n,j]*w[j])/size(k))*(var[n] + eps)"
        " - (x[n,k] - mu[n])*mean[j](G[n,j]*w[j]*(x[n,j] - mu[n])))*(var[n] + eps)**-1.5",
    ],
    "cross_entropy": [
        "grad_x[n,c] = G*(exp(F[n,c]) - δ[c,target[n]])/size(n)",
        "grad_x[n,c] = G/size(n)*(softmax[c](x[n,c]) - [c = target[n]])",
        "grad_x[n,c] = (exp(F[n,c]) - where(c == target[n], 1, 0))*G/size(n)",
    ],
    "batch_norm": [
        "grad_w[c] = sum[n](G[n,c]*xhat[n,c])\ngrad_x[n,c] = w[c]*rsqrt(var[c] + eps)/size(n)"
        "*(size(n)*G[n,c] - sum[m](G[m,c]) - xhat[n,c]*grad_w[c])"
    ],
    "attention": [
        "grad_P[i,j] = sum[e](G[i,e]*value[j,e])\n"
        "grad_S[i,j] = P[i,j]*(grad_P[i,j] - sum[l](grad_P[i,l]*P[i,l]))\n"
        "grad_query[i,d] = rsqrt(size(d))*sum[j](grad_S[i,j]*key[j,d])\n"
        "grad_key[j,d] = rsqrt(size(d))*sum[i](grad_S[i,j]*query[i,d])\n"
        "grad_value[j,e] = sum[i](P[i,j]*G[i,e])",
        "D[i] = sum[e](G[i,e]*output[i,e])\ngrad_query[i,d] = rsqrt(size(d))"
        "*sum[j](P[i,j]*(sum[e](G[i,e]*value[j,e]) - D[i])*key[j,d])",
    ],
}

WRONG = told(
    """\
# the sign of a term
softmax: grad_A[n,k] = S[n,k]*(G[n,k] + sum[j](G[n,j]*S[n,j]))
    the sign is wrong
# a missing term
softmax: grad_A[n,k] = S[n,k]*G[n,k]
    the term −S[n,k]·Σₖ′ G[n,k′]·S[n,k′] is missing
# a term too many
softmax: grad_A[n,k] = S[n,k]*(G[n,k] - sum[j](G[n,j]*S[n,j])) + G[n,k]
    the term G[n,k] is too many
# a transposed index
softmax: grad_A[n,k] = S[n,k]*(G[n,k] - sum[j](G[j,n]*S[n,j]))
    the index j has size(n) in G[j,n], and size(k) in S[n,j]
softmax: grad_A[k,n] = S[n,k]*(G[n,k] - sum[j](G[n,j]*S[n,j]))
    the index k has size(n) in grad_A[k,n], and size(k) in S[n,k]
# a missing sum
softmax: grad_A[n,k] = S[n,k]*(G[n,k] - G[n,k]*S[n,k])
    the sum is missing: only one term of
# a wrong index
softmax: grad_A[n,k] = S[n,k]*(G[n,k] - sum[j](G[n,j]*S[n,k]))
    S[n,k] stands where S[n,k′] should
# a mean for a sum, and a sum for a mean
softmax: grad_A[n,k] = S[n,k]*(G[n,k] - mean[j](G[n,j]*S[n,j]))
    the factor 1/size(k) is too many
layer_norm: grad_b[k] = mean[n](G[n,k])
    the factor 1/size(n) is too many
# another tensor, a factor, a number
layer_norm: grad_w[k] = sum[n](G[n,k]*x[n,k])
    x[n,k] stands where xhat[n,k] should
layer_norm: grad_x[n,k] = rsqrt(var[n] + eps)*w[k]*(G[n,k] - mean[j](G[n,j]) - \
  xhat[n,k]*mean[j](G[n,j]*xhat[n,j]))
    w[k] stands where w[k′] should
softmax: grad_A[n,k] = 2*S[n,k]*(G[n,k] - sum[j](G[n,j]*S[n,j]))
    the factor 2 is too many
cross_entropy: grad_x[n,c] = G*exp(F[n,c])/size(n)
    the term −G·δ[c,target[n]]/size(n)
cross_entropy: grad_x[n,c] = G*(F[n,c] - δ[c,target[n]])/size(n)
    F[n,c] stands where exp(F[n,c]) should
attention: D[i] = sum[e](G[i,e]*output[i,e]); \
  grad_query[i,d] = sum[j](P[i,j]*(sum[e](G[i,e]*value[j,e]) - D[i])*key[j,d])
    the factor 1/√(size(d)) is missing
attention: grad_value[j,e] = sum[i](P[j,i]*G[i,e])
    the index i has size(j) in P[j,i], and size(i) in G[i,e]
"""
)
"""What is wrong with a line, and how that is said."""


def words(markup: str) -> str:
    return re.sub("<[^>]*>|&#x206[12];", "", markup)


def test_the_first_five_exercises_can_be_judged():
    assert list(exercises()) == list(RIGHT)
    for name, text in exercises().items():
        assert parse(text).name == name


@each_row("name, attempt", [(name, one) for name, every in RIGHT.items() for one in every])
def test_a_right_gradient_is_right_in_every_form(name, attempt):
    verdicts = judge(parse(exercises()[name]), attempt)
    assert verdicts
    assert [v for v in verdicts if not v.right] == []
    assert {v.name for v in verdicts} == set(re.findall(r"^grad_\w+", attempt, re.MULTILINE))


NOT_READ = {
    **{"digamma": "polygamma is no function of the notation"},
    **{"rotary_embedding": "a position is composite", "global_max_pool": "a position is a group"},
    **{"concat": "a size follows from others twice", "im2col": "a size follows from others twice"},
    **dict.fromkeys(("conv2d", "depthwise_conv2d"), "ten sums take long"),
}
"""Operations whose printed gradients are not judged, with the reason."""


@each_operation(share=6, turns=4)
def test_the_printed_gradients_of_the_catalog_are_right(op):
    if op.name in NOT_READ:
        return
    for option, _ in options(op):
        d = derivation(op, option)
        left = {f.name: f for f in (*d.definitions, *d.shown)}
        reads = {name: set(tensors(f.body)) & left.keys() - {name} for name, f in left.items()}
        order = TopologicalSorter(reads).static_order()
        text = "\n".join(str(left[name]) for name in order)
        verdicts = judge(op, text, option)
        assert {v.name for v in verdicts} >= {f"grad_{name}" for name in d.gradients}
        assert [v for v in verdicts if not v.right] == []


@each_row("said, why", WRONG)
def test_a_wrong_gradient_is_told_what_is_wrong(said, why):
    name, _, attempt = said.partition(": ")
    (verdict,) = judge(parse(exercises()[name]), attempt.replace("; ", "\n"))
    assert not verdict.right
    assert verdict.why.startswith(why)
    if "the index" not in why:
        assert verdict.wrong or verdict.missing
        assert re.search(r"yours is -?[\d.e-]+ and the right one -?[\d.e-]+", verdict.example)


def test_terms_without_a_partner_are_named():
    op = parse(exercises()["softmax"])
    (verdict,) = judge(op, "grad_A[n,k] = S[n,k]*(G[n,k] - sum[j](G[n,j]))")
    assert [words(t) for t in verdict.wrong] == ["−Sn,k∑jGn,j"]
    assert [words(t) for t in verdict.missing] == ["−Sn,k∑k′Gn,k′Sn,k′"]


def test_a_letter_has_one_size_in_all_equations():
    op = parse(exercises()["attention"])
    attempt = (
        "D[a,b] = sum[z](G[a,z]*value[b,z])\n"
        "grad_query[a,b] = rsqrt(size(b))"
        "*sum[c](P[a,c]*(D[a,c] - sum[l](D[a,l]*P[a,l]))*key[c,b])"
    )
    (verdict,) = judge(op, attempt)
    assert verdict.why == (
        "the index b has size(j) in value[b,z], and size(d) in grad_query[a,b]; "
        "a letter has one size in all equations"
    )


@each_row(
    "attempt, line, column, said",
    [
        ("grad_A[n,k] = S[n,k]*(G[n,k] - ", 1, 22, "( is never closed"),
        ("D[n] = sum[k](S[n,k])\ngrad_A[n,k] = B[n,k]", 2, 15, "B"),
        ("grad_A[n,k] = S[n,k] - G[n,j]", 1, 28, "index j of G[n, j] is neither summed over"),
        ("y[n] = sum[k](A[n,k])", None, None, "write an equation for grad_A"),
        ("", None, None, "write an equation for grad_A"),
        ("grad_A[n,k] = S[n,k]\nop evil(x[n]) -> y\ny[n] = x[n]", None, None, "one operation"),
    ],
)
def test_a_text_that_is_no_gradient_has_its_place(attempt, line, column, said):
    with pytest.raises(SpecError) as found:
        judge(parse(exercises()["softmax"]), attempt)
    assert said in found.value.message
    assert (found.value.line, found.value.column) == (line, column)


def test_the_gradients_of_a_chosen_option_are_judged():
    op = parse(
        "op f(x[n], z[n]; way=sum|none) -> sum: s | none: y\ny[n] = x[n]*z[n]\ns = sum[n](y[n])"
    )
    assert judge(op, "grad_x[n] = G*z[n]", "sum")[0].right
    assert judge(op, "grad_x[n] = G[n]*z[n]", "none")[0].right


@each_row("name", RIGHT)
def test_the_values_are_those_of_the_oracle(name):
    """The interpreter of tables agrees with NumPy's, and no two sizes are equal."""
    op = parse(exercises()[name])
    cotangents = dict(derivation(op).cotangents)
    for point in points(op, cotangents, 3):
        given = {t.name: point.tables[t.name] for t in op.inputs}
        arrays = {n: np.array(t.values).reshape(t.shape) for n, t in given.items()}
        made = oracle.run(op, arrays, {"eps": point.numbers["eps"]} if point.numbers else {})
        for equation, array in made.items():
            table: Table = point.tables[equation]
            assert table.shape == array.shape
            np.testing.assert_allclose(np.array(table.values).reshape(table.shape), array, 1e-12)
        sizes = [n for n in point.sizes.values()]
        assert len(set(sizes)) == len(sizes)


@each_row("name", RIGHT)
def test_what_is_called_right_is_the_derivative(name):
    """Central differences of the oracle, not the engine, give the gradient."""
    op = parse(exercises()[name])
    d = derivation(op)
    ((output, cotangent),) = d.cotangents
    point = points(op, {output: cotangent}, 1)[0]
    arrays = {n: np.array(t.values).reshape(t.shape) for n, t in point.tables.items()}
    inputs = {t.name: arrays[t.name] for t in op.inputs}
    numbers = dict(point.numbers)
    for f in (*d.definitions, *d.adjoints, *d.gradients.values()):
        point.tables[f.name] = point.table(f.axes, f.body, point.sizes)
    for wrt, f in d.gradients.items():
        wanted = oracle.gradient(op, inputs, {output: arrays[cotangent]}, numbers, wrt)
        np.testing.assert_allclose(point.tables[f.name].values, wanted.ravel(), 1e-6, 1e-8)


def test_an_operation_without_values_is_not_judged():
    with pytest.raises(DeriveError, match="no finite values"):
        judge(parse("y[n] = log(-exp(x[n]))"), "grad_x[n] = G[n]")


def asked(text: str, attempt: str):
    return json.loads(answer(json.dumps({"text": text, "attempt": attempt})))


@pytest.mark.parametrize("count", [60, pytest.param(600, marks=pytest.mark.long)])
def test_no_attempt_breaks_the_page(count):
    rng = random.Random(count)
    parser = html5lib.HTMLParser(strict=True)
    bits = [
        *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "&lt;", '"', "'", "\0"),
        *("[", "]", "(", ")", "|", "=", "Σ", "δ", "′", "²", "\n", ";", "#", "\ud800", "😀"),
        *("grad_A", "grad_", "where(", "sum[", "9" * 40, "a" * 60, "1e308", "**", "-1e999", "op "),
    ]
    spec = exercises()["softmax"]
    texts = [RIGHT["softmax"][n] for n in (0, 2, 3)]
    for _ in range(count):
        text = rng.choice(texts)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(bits) + text[at + rng.randrange(4) :]
        found = asked(spec, text)
        assert found["of"] == "attempt", text
        if found["ok"]:
            assert not re.search("<(script|img)", found["html"]), text
            parser.parseFragment(found["html"])
        else:
            assert isinstance(found["message"], str), text


def test_work_without_end_is_refused(monkeypatch):
    monkeypatch.setattr("derive.site.live._SECONDS", 1.0)
    sums = "sum[a,b,c,d,e,f,g,h](" + "*".join(f"A[n,{i}]" for i in "abcdefgh") + ")"
    found = asked(exercises()["softmax"], f"grad_A[n,k] = G[n,k]*{sums}**2*{sums}")
    assert not found["ok"]
    assert "1 s" in found["message"]


def test_a_verdict_is_markup_of_the_page():
    found = asked(exercises()["softmax"], RIGHT["softmax"][0])
    assert (found["ok"], found["right"]) == (True, True)
    assert "Right." in found["html"]
    found = asked(exercises()["softmax"], WRONG[0][0].removeprefix("softmax: "))
    assert (found["ok"], found["right"]) == (True, False)
    root = html5lib.parseFragment(found["html"])
    said = " ".join("".join(root.itertext()).split())
    assert "Not right yet. the sign is wrong" in said
    assert "in the derived one, without a partner" in said
