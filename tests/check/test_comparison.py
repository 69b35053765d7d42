"""Gradients held against autograd: a person's own, and those of generated code; the command."""

import doctest
import json
import math
from dataclasses import replace
from functools import wraps

import numpy as np
import pytest
import torch
from kit.command import derive as command
from kit.each import each_operation, each_row

import derive
from derive import DeriveError, catalog, compare, compare_gradients, parse
from derive.check import comparison, inputs
from derive.check.comparison import (
    Comparison,
    GradientComparison,
    backwards,
    compare_generated,
    every_output,
)
from derive.check.inputs import random_inputs

MODEL = catalog.find("character_model")
INTERMEDIATES = (
    "logprobs probs counts_sum_inv counts_sum counts norm_logits logit_maxes logits h hpreact "
    "bnraw bnvar_inv bnvar bndiff2 bndiff bnmeani hprebn embcat emb"
).split()
PARAMETERS = "C W1 b1 W2 b2 bngain bnbias".split()


def model_inputs(dtype=torch.float64, **sizes):
    """Inputs of the character model, as tensors by name."""
    made = random_inputs(MODEL, sizes={k: [n] for k, n in sizes.items()})
    tensors = {name: torch.from_numpy(array) for name, array in made.tensors.items()}
    return {n: t.to(dtype) if t.is_floating_point() else t for n, t in tensors.items()}


def by_hand(C, W1, b1, W2, b2, bngain, bnbias, Xb, Yb):
    """Every gradient of the character model, written line by line."""
    n = Xb.shape[0]
    emb = C[Xb]
    embcat = emb.view(n, -1)
    hprebn = embcat @ W1 + b1
    bndiff = hprebn - hprebn.mean(0, keepdim=True)
    bnvar = (bndiff**2).sum(0, keepdim=True) / (n - 1)
    bnvar_inv = (bnvar + 1e-5) ** -0.5
    bnraw = bndiff * bnvar_inv
    h = torch.tanh(bngain * bnraw + bnbias)
    logits = h @ W2 + b2
    norm_logits = logits - logits.max(1, keepdim=True).values
    counts = norm_logits.exp()
    counts_sum = counts.sum(1, keepdim=True)
    counts_sum_inv = counts_sum**-1
    probs = counts * counts_sum_inv

    d = {"logprobs": torch.zeros_like(probs)}
    d["logprobs"][range(n), Yb] = -1.0 / n
    d["probs"] = d["logprobs"] / probs
    d["counts_sum_inv"] = (counts * d["probs"]).sum(1, keepdim=True)
    d["counts_sum"] = -(counts_sum**-2) * d["counts_sum_inv"]
    d["counts"] = counts_sum_inv * d["probs"] + d["counts_sum"]
    d["norm_logits"] = counts * d["counts"]
    d["logit_maxes"] = -d["norm_logits"].sum(1, keepdim=True)
    one_hot = torch.nn.functional.one_hot(logits.max(1).indices, logits.shape[1])
    d["logits"] = d["norm_logits"] + one_hot * d["logit_maxes"]
    d["h"], d["W2"], d["b2"] = d["logits"] @ W2.T, h.T @ d["logits"], d["logits"].sum(0)
    d["hpreact"] = (1 - h**2) * d["h"]
    d["bngain"] = (bnraw * d["hpreact"]).sum(0, keepdim=True)
    d["bnbias"] = d["hpreact"].sum(0, keepdim=True)
    d["bnraw"] = bngain * d["hpreact"]
    d["bnvar_inv"] = (bndiff * d["bnraw"]).sum(0, keepdim=True)
    d["bnvar"] = -0.5 * (bnvar + 1e-5) ** -1.5 * d["bnvar_inv"]
    d["bndiff2"] = torch.ones_like(bndiff) * d["bnvar"] / (n - 1)
    d["bndiff"] = bnvar_inv * d["bnraw"] + 2 * bndiff * d["bndiff2"]
    d["bnmeani"] = -d["bndiff"].sum(0, keepdim=True)
    d["hprebn"] = d["bndiff"] + d["bnmeani"] / n
    d["embcat"], d["W1"], d["b1"] = d["hprebn"] @ W1.T, embcat.T @ d["hprebn"], d["hprebn"].sum(0)
    d["emb"] = d["embcat"].view(emb.shape)
    d["C"] = torch.zeros_like(C).index_put((Xb,), d["emb"], accumulate=True)
    return d


def test_a_backward_pass_by_hand():
    """That of the character model, all 26 intermediates and parameters of it."""
    tensors = model_inputs(n=11, t=3, d=5, j=7, v=6, c=9)
    found = compare(MODEL, by_hand(**tensors), *tensors.values())
    assert {row.name for row in found.rows} == {*INTERMEDIATES, *PARAMETERS}
    assert found.approximate
    assert found.maxdiff < 1e-12


def test_a_backward_pass_by_hand_in_float32_at_full_size():
    tensors = model_inputs(torch.float32, n=32, t=3, d=10, j=64, v=27, c=27)
    found = compare(MODEL, by_hand(**tensors), *tensors.values())
    assert found.approximate, f"\n{found}"
    assert not found.exact


def test_closed_forms_by_hand():
    tensors = model_inputs(n=11, t=3, d=5, j=7, v=6, c=9)
    made = derive.check.reference.values(MODEL, tensors)
    d, n = by_hand(**tensors), 11
    logits = made["logits"].softmax(1)
    logits[range(n), tensors["Yb"]] -= 1
    g, x = d["hpreact"], made["bnraw"]
    hprebn = (n * g - g.sum(0) - n / (n - 1) * x * (g * x).sum(0)) * tensors["bngain"]
    hprebn = hprebn * made["bnvar_inv"] / n
    found = compare(MODEL, {"hprebn": hprebn, "logits": logits / n}, *tensors.values())
    assert [row.name for row in found.rows] == ["logits", "hprebn"]
    assert found.approximate and found.maxdiff < 1e-13


@each_row("wrong", [*INTERMEDIATES, *PARAMETERS], turns=3)
@each_row("dtype", [torch.float32, torch.float64])
def test_one_wrong_gradient_is_found_and_no_other(wrong, dtype):
    tensors = model_inputs(dtype, n=11, t=3, d=5, j=7, v=6, c=9)
    gradients = by_hand(**tensors)
    gradients[wrong] = gradients[wrong].clone()
    gradients[wrong].flatten()[-1] += 1e-4 * gradients[wrong].abs().max() + 1e-5
    found = compare(MODEL, gradients, *tensors.values())
    assert [row.name for row in found.rows if not row.approximate] == [wrong]
    assert not found.approximate


def test_the_rows_are_in_the_order_of_backpropagation():
    text = (
        "op f(x[n], u[n], w[n], a[n]) -> y\nz[n] = x[n]*w[n]\n"
        "q[n] = exp(z[n])*x[n]*a[n]\ny = sum[n](q[n]*a[n]*z[n])"
    )
    with pytest.warns(derive.DeriveWarning, match="input u is not used"):
        op = parse(text)
    assert backwards(op) == ["y", "q", "z", "a", "x", "w", "u"]
    assert backwards(MODEL)[:9] == ["loss", *INTERMEDIATES[:8]]
    order = [name for name in backwards(MODEL) if name in INTERMEDIATES]
    assert order == INTERMEDIATES


def test_what_the_output_does_not_depend_on_has_the_gradient_0():
    op = parse("op f(x[n], w[n]) -> y, s\nz[n] = x[n]*w[n]\ny[n] = z[n]*2\ns = sum[n](w[n])")
    x, w = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])
    zero, one = torch.zeros(2), torch.ones(2)
    assert compare(op, {"x": zero, "z": zero, "y": zero, "w": one, "s": one[0]}, x, w).exact
    assert not compare(op, {"x": one}, x, w).approximate


def test_what_detach_alone_reads_has_the_gradient_of_a_change_of_it():
    op = parse("op f(x[n]) -> y\nm = detach(sum[n](x[n]))\ny = sum[n](x[n]*m)")
    x = torch.tensor([1.0, 2.0])
    assert compare(op, {"m": torch.tensor(3.0), "x": torch.tensor([3.0, 3.0])}, x).exact


def test_cotangents():
    op = parse("op f(x[n]) -> y; y[n] = x[n]**2")
    x, G = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 0.0, 1.0])
    assert compare(op, {"x": 2 * x}, x).exact
    assert compare(op, {"x": 2 * x * G, "y": G}, x, G=G).exact
    with pytest.raises(
        DeriveError, match=("f: G has shape \\(2,\\), but its output has shape \\(3,\\)")
    ):
        compare(op, {"x": x}, x, G=G[:2])


def test_a_cotangent_with_an_axis_that_is_kept():
    op = parse("op f(x[n,k]; keepdim=keep(k)) -> y; y[n] = sum[k](x[n,k]**2)")
    x, G = torch.arange(6.0).reshape(2, 3), torch.tensor([[2.0], [5.0]])
    assert compare(op, {"x": 2 * x * G, "y": G[:, 0]}, x, G=G, keepdim=True).exact
    with pytest.raises(DeriveError, match="G has shape"):
        compare(op, {"x": 2 * x * G}, x, G=G)


def test_of_several_outputs():
    op = parse("op f(x[n]) -> y, z\ny[n] = x[n]**2\nz[n] = 3*y[n]")
    x = torch.tensor([1.0, 2.0])
    assert compare(op, {"x": 2 * x}, x, of="y").exact
    assert compare(op, {"x": 6 * x, "y": torch.full((2,), 3.0)}, x, of="z").exact
    with pytest.raises(DeriveError, match="f has several outputs; choose one with of=: y, z"):
        compare(op, {"x": x}, x)
    with pytest.raises(DeriveError, match="no differentiable output 'q'; it has y, z"):
        compare(op, {"x": x}, x, of="q")


def test_options_and_optional_tensors():
    op = parse(
        "op f(x[n], w[n]=1; a=2, reduction=mean|sum) -> mean: m | sum: s\n"
        "s = sum[n](w[n]*x[n]**a)\nm = s/size(n)"
    )
    x, w = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])
    assert compare(op, {"x": x}, x).exact
    assert compare(op, {"x": 2 * x * w, "w": x**2}, x, w, option="sum").exact
    assert compare(op, {"x": 2 * x * w, "w": x**2}, x, w=w, reduction="sum").exact
    assert compare(op, {"x": w}, x, w, a=1.0, option="sum").exact
    for name in ("m", "w"):
        with pytest.raises(
            DeriveError, match=rf"no gradient of {name}; it has gradients of s, x \[D037\]$"
        ):
            compare(op, {name: x}, x, option="sum")


def test_wrong_gradients():
    op = parse("op f(x[n,c], T[n]) -> y\nz[n] = x[n,T[n]]\ny = sum[n](z[n])")
    x, T = torch.ones(2, 3), torch.tensor([1, 2])
    for wrong in ("q", "T"):
        with pytest.raises(
            DeriveError, match=rf"f has no gradient of {wrong}; .* of y, z, x \[D037\]$"
        ):
            compare(op, {wrong: x}, x, T)
    with pytest.raises(DeriveError, match=r"of x has shape \(3, 2\), but x has shape \(2, 3\)"):
        compare(op, {"x": x.T}, x, T)
    with pytest.raises(DeriveError, match="the gradient of x is None, not a tensor"):
        compare(op, {"x": None}, x, T)
    with pytest.raises(DeriveError, match="no differentiable output"):
        compare(parse("op g(x[k]) -> i; i = argmax[k](x[k])"), {"x": x[0]}, x[0])


def test_wrong_calls():
    op = parse("op f(x[n,c], T[n]; a=1) -> y; y = sum[n](a*x[n,T[n]])")
    x, T = torch.ones(2, 3), torch.tensor([1, 2])
    with pytest.raises(TypeError, match="f needs the tensor T"):
        compare(op, {}, x)
    with pytest.raises(TypeError, match="f takes 2 tensors, x, T, not 3"):
        compare(op, {}, x, T, T)
    with pytest.raises(TypeError, match="takes no keyword b; the keywords are T, a, option, of, G"):
        compare(op, {}, x, b=2)
    with pytest.raises(TypeError, match=r"T must be a tensor of int, not torch\.float32"):
        compare(op, {}, x, x[:, 0])
    with pytest.raises(TypeError, match=r"one dtype, not x torch\.float32, w torch\.float64"):
        compare(parse("op g(x[n], w[n]) -> y; y[n] = x[n]*w[n]"), {}, x[0], torch.ones(3).double())


def test_inputs_are_left_as_they_are():
    op = parse("op f(x[n]) -> y; y = sum[n](x[n]**2)")
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with torch.no_grad():
        assert compare(op, {"x": (2 * x).requires_grad_()}, x).exact
    assert x.grad is None and x.requires_grad


def test_rounding_is_no_difference_and_an_error_is():
    """A product of matrices in another order, where elements near 0 are far off relatively."""
    op = parse("op f(A[i,k], B[k,j]) -> C; C[i,j] = sum[k](A[i,k]*B[k,j])")
    generator = torch.Generator().manual_seed(1)
    A, B = torch.randn(30, 40, generator=generator), torch.randn(40, 50, generator=generator)
    G = torch.randn(30, 50, generator=generator)
    gradients = {"A": G @ B.T, "B": A.T @ G}
    reference = {"A": (G[:, None] * B).sum(2), "B": (A[..., None] * G[:, None]).sum(0)}
    assert not compare_gradients(gradients, reference).approximate
    assert compare(op, gradients, A, B, G=G).approximate
    gradients["A"] = gradients["A"] + 1e-4
    assert [row.approximate for row in compare(op, gradients, A, B, G=G).rows] == [False, True]


def test_a_zero_that_autograd_does_not_find_is_right():
    """A shift of all logits changes nothing: autograd's gradient of it is what rounding leaves."""
    op = parse(
        "op f(x[n,c], m[n], T[n]) -> y\n"
        "y = sum[n](log(sum[c](exp(x[n,c] - m[n]))) + m[n] - x[n,T[n]])"
    )
    generator = torch.Generator().manual_seed(3)
    x, m = torch.randn(40, 30, generator=generator), torch.randn(40, generator=generator)
    T = torch.zeros(40, dtype=torch.int64)
    found = compare(op, {"m": torch.zeros(40)}, x, m, T)
    assert found.maxdiff > 1e-8 and found.approximate
    assert not compare(op, {"m": torch.full((40,), 1e-4)}, x, m, T).approximate


def test_the_table():
    rows = (
        GradientComparison("a", True, True, 0.0),
        GradientComparison("a_name_of_twenty_le", False, True, 6.9e-09),
    )
    found = Comparison(rows)
    assert str(found) == (
        "a                   | exact: True  | approximate: True  | maxdiff: 0.0\n"
        "a_name_of_twenty_le | exact: False | approximate: True  | maxdiff: 6.9e-09"
    )
    assert (found.exact, found.approximate, found.maxdiff) == (False, True, 6.9e-09)
    assert str(Comparison(rows[:1])).startswith("a               | exact")
    assert (Comparison(()).exact, Comparison(()).maxdiff, str(Comparison(()))) == (True, 0.0, "")
    worse = Comparison((replace(rows[0], maxdiff=math.nan), rows[1]))
    assert math.isnan(worse.maxdiff)


def test_two_mappings_of_gradients():
    a = {"x": torch.tensor([1.0, math.inf]), "y": torch.zeros(2, 0), "z": torch.tensor(2.0)}
    same = compare_gradients(a, {**a, "unused": torch.ones(1)})
    assert [row.name for row in same.rows] == ["x", "y", "z"]
    assert same.exact and same.approximate and same.maxdiff == 0
    near = compare_gradients(a, {**a, "z": torch.tensor(2.0, dtype=torch.float64) + 1e-9})
    assert near.approximate and not near.exact and near.maxdiff == pytest.approx(1e-9)
    nothing = compare_gradients(a, {**a, "x": torch.tensor([1.0, math.nan])})
    assert math.isnan(nothing.maxdiff) and not nothing.approximate
    with pytest.raises(DeriveError, match=r"no reference gradient for x; .* are y \[D042\]$"):
        compare_gradients(a, {"y": a["y"]})


@each_operation(every_output, share=3, turns=8)
def test_generated_code_keeps_every_adjoint(op, option, of):
    made = random_inputs(op, option, seed=1)
    known = {}
    plainly = comparison.compare_gradients

    def noting(gradients, references):
        known.update(references)
        return plainly(gradients, references)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "compare_gradients", noting)
        double = compare_generated(op, made, option, of, "float64", 1)
    assert double.approximate, f"\n{double}"
    for row in double.rows:
        # A gradient of 1/eps^2 = 1e12 has no absolute bound to its rounding.
        largest = known[row.name].abs().max().item() if known[row.name].numel() else 0.0
        assert row.maxdiff < 1e-9 * max(1.0, largest), f"\n{double}"
    single = compare_generated(op, made, option, of, "float32", 1)
    assert single.approximate, f"\n{single}"


def test_every_intermediate_of_a_network_is_compared():
    made = random_inputs(MODEL, sizes={"n": [11], "j": [7]}, seed=2)
    found = compare_generated(MODEL, made, None, "loss")
    assert {row.name for row in found.rows} == {*INTERMEDIATES, *PARAMETERS}


def test_an_operation_with_a_g_of_its_own():
    op = parse("op f(G[n], x[n]) -> y; y[n] = G[n]*x[n]**2")
    assert compare_generated(op, random_inputs(op), None, "y", "float64").maxdiff < 1e-12


def test_the_outputs_that_are_compared():
    assert list(every_output(catalog.find("nll_loss"))) == [
        ("mean", "average"),
        ("sum", "total"),
        ("none", "loss"),
    ]
    op = parse("op f(x[n]) -> y, i, z\ny[n] = x[n]**2\ni = argmax[n](x[n])\nz[n] = x[n]")
    assert list(every_output(op)) == [(None, "y"), (None, "z")]
    op = parse("op f(x[n]) -> y, l\ny[n] = x[n]**2\nl = sum[n](y[n])")
    assert list(every_output(op)) == [(None, "l")]


def test_inputs_have_the_sizes_that_are_asked_for():
    made = random_inputs(MODEL, sizes={"n": [32], "d": [10], "v": [27], "c": [19], "j": [40]})
    t = made.sizes["t"]
    shapes = {name: a.shape for name, a in made.tensors.items()}
    assert shapes["C"] == (27, 10)
    assert shapes["W1"] == (10 * t, 40)
    assert shapes["Xb"] == (32, t)
    assert made.parameters["eps"] == 1e-5
    # All rows of C are read, and no other; the classes likewise.
    assert set(made.tensors["Xb"].flat) >= set(range(20, 27))
    assert made.tensors["Yb"].max() > 14
    assert made.tensors["Yb"].max() < 19


def test_inputs_smaller_than_the_sample():
    made = random_inputs(MODEL, sizes={"n": [64], "v": [3], "c": [2]})
    assert set(made.tensors["Xb"].flat) == {0, 1, 2}
    assert set(made.tensors["Yb"].flat) == {0, 1}


def test_a_random_network_is_not_saturated():
    tensors = model_inputs(n=64, t=3, d=10, j=200, v=27, c=27)
    made = derive.check.reference.values(MODEL, tensors)
    assert 0.5 < made["hprebn"].std() < 2.5
    assert made["h"].abs().mean() < 0.9
    assert made["loss"] < 6


def test_inputs_lie_in_the_domain():
    op = parse("op f(x[n], y[n]) -> z; z[n] = log(x[n]) + asin(y[n])")
    made = random_inputs(op, sizes={"n": [500]})
    assert (made.tensors["x"] > 0).all()
    assert (abs(made.tensors["y"]) < 1).all()
    op = parse("op f(T[n], x[v]; k=2) -> y; y[n] = x[T[n] + k]")
    made = random_inputs(op, sizes={"n": [50], "v": [20]})
    assert made.tensors["T"].max() <= 17


def test_sizes_of_groups_and_parameters():
    made = random_inputs(catalog.find("softmax"), sizes={"p": [2, 3], "q": [], "k": [7]})
    assert made.tensors["input"].shape == (2, 3, 7)
    op = parse("op f(x[(g c)]; groups=size(g)) -> y; y[g] = sum[c](x[(g c)])")
    made = random_inputs(op, sizes={"g": [5], "c": [4]})
    assert made.tensors["x"].shape == (20,)
    assert made.parameters["groups"] == 5


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"q": [3]}, "character_model has no index q; its indices are c, d, j, k, n, o, t, v"),
        ({"o": [3]}, r"size\(o\) is determined by the operation"),
        ({"n": [0]}, r"size\(n\) must be positive, not 0"),
        ({"n": [2, 3]}, "n is a single axis and takes one size, not 2"),
        ({"n": [1]}, "found no random inputs of these sizes with outputs free of nan"),
    ],
)
def test_wrong_sizes(sizes, says):
    with pytest.raises(DeriveError, match=says):
        random_inputs(MODEL, sizes=sizes)


def test_a_size_that_follows_from_others():
    op = parse("op f(x[v]) -> y; y[n] = x[n+1] - x[n]")
    with pytest.raises(DeriveError, match=r"size\(n\) is determined by size\(v\); set that size"):
        random_inputs(op, sizes={"n": [4]})
    assert random_inputs(op, sizes={"v": [4]}).sizes == {"n": 3, "v": 4}


def test_the_same_seed_gives_the_same_inputs():
    first, again, other = (random_inputs(MODEL, seed=s).tensors for s in (3, 3, 4))
    assert all((first[name] == again[name]).all() for name in first)
    assert (first["C"] != other["C"]).any()


def test_the_command_prints_the_table():
    done = command("compare", "character_model", "--size", "n=6", "--size", "j=5")
    assert done.returncode == 0, done.stdout + done.stderr
    title, *rows = done.stdout.splitlines()
    module = "generated/character_model.py"
    assert title.startswith(f"character_model: gradients of loss by {module}, float32, c=")
    sizes = dict(word.split("=") for word in title.split(", ")[-1].split())
    assert (sizes["j"], sizes["n"]) == ("5", "6")
    assert int(sizes["k"]) == int(sizes["t"]) * int(sizes["d"])
    names = [row.split(" | ")[0].strip() for row in rows]
    assert names == [n for n in backwards(MODEL) if n in (*INTERMEDIATES, *PARAMETERS)]
    assert all(" | approximate: True  | maxdiff: " in row for row in rows)
    assert done.stderr == ""


def test_the_command_compares_each_option_as_json():
    done = command("compare", "nll_loss", "--dtype", "float64", "--seed", "5", "--json")
    assert done.returncode == 0, done.stderr
    entries = json.loads(done.stdout)
    assert [(e["option"], e["output"]) for e in entries] == [
        ("mean", "average"),
        ("sum", "total"),
        ("none", "loss"),
    ]
    assert all(e["dtype"] == "float64" and e["approximate"] for e in entries)
    assert [row["name"] for row in entries[2]["rows"]] == ["input", "weight"]
    assert set(entries[0]["rows"][0]) == {"name", "exact", "approximate", "maxdiff"}


def test_the_command_reads_a_file(tmp_path):
    (tmp_path / "two.derive").write_text(
        "op f(x[*p,n]) -> y; y[*p] = sum[n](x[*p,n]**2)\nop g(x[n]) -> y; y[n] = x[n]"
    )
    done = command("compare", "two.derive:f", "--size", "p=2,3", "--size", "n=4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    title = done.stdout.splitlines()[0]
    assert title == "f: gradients of y by code derived now, float32, n=4 p=2,3"


def test_the_command_fails_where_a_gradient_is_wrong(tmp_path, monkeypatch):
    (tmp_path / "two.derive").write_text(
        "op product(A[i,k], B[k,j]) -> C; C[i,j] = sum[k](A[i,k]*B[k,j])\n"
        "op same(A[n]) -> y; y[n] = exp(A[n])"
    )
    made = comparison.value_and_grad

    def wrong(*args):
        function = made(*args)

        @wraps(function)
        def call(*tensors, **parameters):
            outputs, gradients = function(*tensors, **parameters)
            return outputs, {name: g * (1 + 1e-3) for name, g in gradients.items()}

        return call

    monkeypatch.setattr(comparison, "value_and_grad", wrong)
    done = command("compare", "two.derive:product", cwd=tmp_path)
    assert done.returncode == 1
    assert "A               | exact: False | approximate: False | maxdiff: 0.00" in done.stdout
    monkeypatch.setattr(
        comparison, "value_and_grad", lambda *_: lambda A, G: (A, {"A": A * math.nan})
    )
    done = command("compare", "two.derive:same", "--json", cwd=tmp_path)
    (entry,) = json.loads(done.stdout)
    assert (entry["approximate"], entry["maxdiff"]) == (False, None)


def test_the_command_compares_the_module_on_disk(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[tool.derive]\nspecs = ["two.derive"]\nout = "gen"\n')
    (tmp_path / "two.derive").write_text(
        "op cube(x[n]) -> y, k; z[n] = x[n]**2; y[n] = z[n]*x[n]; k = argmax[n](x[n])"
    )
    (tmp_path / "gen").mkdir()
    path = tmp_path / "gen/cube.py"
    text = derive.source(derive.parse((tmp_path / "two.derive").read_text()))
    path.write_text(text)
    done = command("compare", "cube", "--size", "n=7", cwd=tmp_path)
    title, *rows = done.stdout.splitlines()
    assert (done.returncode, title) == (0, "cube: gradients of y by gen/cube.py, float32, n=7")
    assert [row.split()[0] for row in rows] == ["z", "x"]
    wrong = text.replace("3 *", "3.01 *")
    assert wrong != text
    path.write_text(wrong)
    done = command("compare", "cube", "--json", "--size", "n=7", cwd=tmp_path)
    (entry,) = json.loads(done.stdout)
    assert (done.returncode, entry["module"]) == (1, "gen/cube.py")
    assert [row["approximate"] for row in entry["rows"]] == [True, False]
    path.write_text(text.replace("return grad_x", "return missing + grad_x"))
    done = command("compare", "cube", cwd=tmp_path)
    assert (done.returncode, "gen/cube.py fails: NameError" in done.stderr) == (2, True)
    path.write_text(text + "1/0\n")
    says = {"compare": "gen/cube.py fails: ", "verify": "gen/cube.py cannot be imported: "}
    for name, what in says.items():
        done = command(name, "cube", cwd=tmp_path)
        assert done.returncode == 2
        assert (
            f"{what}ZeroDivisionError: division by zero; run `derive check` to see how to fix it"
            in done.stderr
        )
    for data in (b"\xff" + text.encode(), text.encode() + b"\xff"):
        path.write_bytes(data)
        for name in says:
            done = command(name, "cube", cwd=tmp_path)
            assert (done.returncode, "run `derive check` to see how to fix it" in done.stderr) == (
                2,
                True,
            )
    path.write_text(text)
    # What fails beside the module is not put down to it.
    monkeypatch.setattr(comparison, "value_and_grad", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        command("compare", "cube", cwd=tmp_path)


@pytest.mark.parametrize(
    ("name", "sizes", "all_of_them"),
    [
        ("softmax", {"p": [2, 3], "k": [5]}, {"p": (2, 3), "k": 5}),
        ("softmax", {"q": [], "k": [6], "p": [3]}, {"q": (), "k": 6, "p": (3,)}),
        ("sum", {"p": [2, 4, 3], "q": [5, 6]}, {"p": (2, 4, 3), "q": (5, 6)}),
        ("cosine_similarity", {"p": [3, 2], "k": [4]}, {"p": (3, 2), "k": 4}),
        ("glu", {"p": [2, 5]}, {"p": (2, 5)}),
    ],
)
def test_the_sizes_asked_for_are_those_used(name, sizes, all_of_them):
    """Also where the run-time position of an axis depends on how many axes a group has."""
    found = random_inputs(derive.catalog.find(name), sizes=sizes).sizes
    assert {letter: found[letter] for letter in all_of_them} == all_of_them


def test_sizes_beyond_all_memory_are_refused():
    for size in ("n=99999999999999", f"n={10**40}", "n=-1", f"n={'9' * 5000}"):
        done = command("compare", "embedding_bag", "--size", size)
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr) < 300
    done = command(
        "compare", "matmul", "--size", "i=30000", "--size", "j=30001", "--size", "k=50000"
    )
    assert (done.returncode, "give smaller sizes" in done.stderr) == (2, True)
    done = command("compare", "matmul", "--size", "i=3", "--size", "i=4")
    assert (done.returncode, "size(i) is given twice" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sofmax"], "did you mean softmax?"),
        (["softmax", "--size", "z=3"], "softmax has no index z; its indices are k, p, q"),
        (["softmax", "--size", "k"], "--size k: write n=32, or p=2,3 for a group"),
        (["softmax", "--size", "k=a"], "--size k=a: write n=32"),
        (["softmax", "--dtype", "float16"], "float16"),
        ([], "NAME"),
    ],
)
def test_wrong_usage_of_the_command(arguments, says):
    done = command("compare", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stdout == ""


def test_a_wrong_spec(tmp_path):
    (tmp_path / "bad.derive").write_text("y[i] = x[j]")
    done = command("compare", "bad.derive", cwd=tmp_path)
    assert done.returncode == 2
    assert "index j" in done.stderr


def test_the_examples_run():
    assert doctest.testmod(comparison).failed == 0
    assert doctest.testmod(inputs).failed == 0
    assert np.isfinite(random_inputs(MODEL).tensors["C"]).all()


def test_inputs_without_axes_are_compared():
    op = parse("op f(a, b, m: bool) -> y\ny = where(m, a*tanh(b), a)")
    assert compare_generated(op, random_inputs(op, seed=1), None, "y", "float64", 1).approximate
