"""The network of seed 004 as one operation: every gradient, the closed forms, second order.

What it is held against is the seed's own forward, written out in torch, and autograd.
"""

from functools import cache

import pytest
import torch
from kit.network import EQUATIONS, INPUTS, OP, SEED_SIZES, SMALL_SIZES, arguments, forward
from torch.autograd import gradcheck

import derive

value_and_grad = cache(derive.value_and_grad)
"""Each function is generated once."""


def autograd(args):
    """The loss, and its gradient in every intermediate and parameter."""
    leaves = [a.clone().requires_grad_() for a in args[:7]]
    made = forward(*leaves, *args[7:])
    for t in made.values():
        t.retain_grad()
    made["loss"].backward()
    named = dict(zip(INPUTS, leaves, strict=True)) | made
    return made["loss"].detach(), {name: t.grad for name, t in named.items()}


def test_the_operation_has_the_names_of_the_seed():
    assert set(forward(*arguments(SMALL_SIZES, torch.float64))) == set(EQUATIONS)
    assert tuple(t.name for t in OP.inputs) == (*INPUTS, "Xb", "Yb")


@pytest.mark.parametrize("wrt", [None, (*INPUTS, *EQUATIONS)], ids=["fused", "every"])
@pytest.mark.parametrize("sizes", [SMALL_SIZES, SEED_SIZES], ids=["small", "seed"])
@torch.no_grad()
def test_gradients_are_those_of_autograd(wrt, sizes):
    args = arguments(sizes, torch.float64)
    with torch.enable_grad():
        loss, want = autograd(args)
    made, gradients = value_and_grad(OP, wrt)(*args)
    torch.testing.assert_close(made, loss, rtol=1e-13, atol=0)
    assert tuple(gradients) == (wrt or INPUTS)
    for name, gradient in gradients.items():
        assert gradient.shape == want[name].shape, name
        # Where the true value is zero, the scale is that of the terms that cancel in autograd.
        scale = max(float(want[name].abs().max()), 1e-3)
        assert float((gradient - want[name]).abs().max()) <= 1e-12 * scale, name


@pytest.mark.parametrize("wrt", [None, (*INPUTS, *EQUATIONS)], ids=["fused", "every"])
@torch.no_grad()
def test_float32_is_within_the_differences_of_the_seed(wrt):
    args = arguments(SEED_SIZES, torch.float32)
    with torch.enable_grad():
        _, want = autograd(args)
    _, gradients = value_and_grad(OP, wrt)(*args)
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, want[name]), name
        difference = float((gradient - want[name]).abs().max())
        # 2e-8 is below the resolution of float32 for the few gradients that are far above 0.1.
        assert difference <= max(2e-8, 2**-22 * float(want[name].abs().max())), name
        if name in INPUTS:
            assert difference <= 2e-8, name


@torch.no_grad()
def test_the_gradient_through_the_maximum_is_exactly_zero():
    _, gradients = value_and_grad(OP, ("logit_maxes",))(*arguments(SEED_SIZES, torch.float32))
    assert gradients["logit_maxes"].shape == (32, 1)
    assert torch.count_nonzero(gradients["logit_maxes"]) == 0


def test_the_steps_say_why_the_gradient_through_the_maximum_is_zero():
    every = derive.derivation(OP, wrt=EQUATIONS)
    gradient = every.gradients["logit_maxes"]
    assert str(gradient) == "grad_logit_maxes[n,0] = 0"
    assert gradient.steps[-1].rule == "known sum"
    shown = [str(s) for s in gradient.steps if s.name == "Σ[c] grad_norm_logits"]
    first = "Σ[c] grad_norm_logits[n,c] = Σ[c′] grad_counts[n,c′]·counts[n,c′] "
    assert shown[0].startswith(first)
    assert shown[-1].startswith("Σ[c] grad_norm_logits[n,c] = 0 ")
    # From the fused derivation the maximum is gone before anything is differentiated.
    fused = [str(s) for s in derive.derivation(OP).rewritten]
    assert any("logsumexpₖ(f + g) = logsumexpₖ f + g" in line for line in fused)
    assert any(line.startswith("logprobs[n,c] = logits[n,c] − lse[n] ") for line in fused)


def test_every_adjoint_is_the_line_of_the_seed():
    gradients = derive.derivation(OP, wrt=EQUATIONS).gradients
    assert [str(gradients[name]) for name in reversed(EQUATIONS)] == [
        "grad_loss = G",
        "grad_logprobs[n,c] = −δ[c,Yb[n]]·G/size(n)",
        "grad_probs[n,c] = grad_logprobs[n,c]/probs[n,c]",
        "grad_counts_sum_inv[n,0] = Σ[c] grad_probs[n,c]·counts[n,c]",
        "grad_counts_sum[n,0] = −grad_counts_sum_inv[n,0]·counts_sum_inv[n,0]²",
        "grad_counts[n,c] = grad_counts_sum[n,0] + grad_probs[n,c]·counts_sum_inv[n,0]",
        "grad_norm_logits[n,c] = grad_counts[n,c]·counts[n,c]",
        "grad_logit_maxes[n,0] = 0",
        "grad_logits[n,c] = grad_norm_logits[n,c]",
        "grad_h[n,j] = Σ[c] grad_norm_logits[n,c]·W2[j,c]",
        "grad_hpreact[n,j] = grad_h[n,j]·(1 − h[n,j]²)",
        "grad_bnraw[n,j] = grad_hpreact[n,j]·bngain[0,j]",
        "grad_bnvar_inv[0,j] = Σₙ grad_bnraw[n,j]·bndiff[n,j]",
        "grad_bnvar[0,j] = −grad_bnvar_inv[0,j]·bnvar_inv[0,j]³/2",
        "grad_bndiff2[n,j] = grad_bnvar[0,j]/(size(n) − 1)",
        "grad_bndiff[n,j] = 2·grad_bndiff2[n,j]·bndiff[n,j] + grad_bnraw[n,j]·bnvar_inv[0,j]",
        "grad_bnmeani[0,j] = −Σₙ grad_bndiff[n,j]",
        "grad_hprebn[n,j] = grad_bnmeani[0,j]/size(n) + grad_bndiff[n,j]",
        "grad_embcat[n,k] = Σⱼ grad_hprebn[n,j]·W1[k,j]",
        "grad_emb[n,t,d] = grad_embcat[n,(t d)]",
    ]


def test_the_fused_gradients_are_the_closed_forms_of_the_seed():
    d = derive.derivation(OP)
    assert [str(f) for f in (*d.adjoints, *d.gradients.values())] == [
        "grad_logits[n,c] = G·(probs[n,c] − δ[c,Yb[n]])/size(n)",
        "grad_hpreact[n,j] = (1 − h[n,j]²)·Σ[c] grad_logits[n,c]·W2[j,c]",
        "grad_hprebn[n,j] = bngain[0,j]·bnvar_inv[0,j]·(grad_hpreact[n,j] "
        "− bnraw[n,j]/(size(n) − 1)·Σₙ′ grad_hpreact[n′,j]·bnraw[n′,j] "
        "− 1/size(n)·Σₙ′ grad_hpreact[n′,j])",
        "grad_embcat[n,k] = Σⱼ grad_hprebn[n,j]·W1[k,j]",
        "grad_C[v,d] = Σₙₜ δ[v,Xb[n,t]]·grad_embcat[n,(t d)]",
        "grad_W1[k,j] = Σₙ grad_hprebn[n,j]·embcat[n,k]",
        # Batch norm takes any constant away: the seed's "it's useless because of BN".
        "grad_b1[j] = 0",
        "grad_W2[j,c] = Σₙ grad_logits[n,c]·h[n,j]",
        "grad_b2[c] = Σₙ grad_logits[n,c]",
        "grad_bngain[o,j] = Σₙ grad_hpreact[n,j]·bnraw[n,j]",
        "grad_bnbias[o,j] = Σₙ grad_hpreact[n,j]",
    ]


@pytest.mark.parametrize("wrt", [None, ("logits", "bnraw", "embcat", "W1")], ids=["fused", "some"])
def test_second_order(wrt):
    """The gradients, as functions of the parameters, have the derivatives of finite differences."""
    args = arguments({"n": 3, "t": 2, "v": 4, "d": 2, "j": 3, "c": 5}, torch.float64)
    leaves = [a.requires_grad_() for a in args[:7]]

    def gradients(*leaves):
        return tuple(value_and_grad(OP, wrt)(*leaves, *args[7:])[1].values())

    assert gradcheck(gradients, leaves, atol=1e-6, rtol=1e-6)


SPEC = "op net(x[n,i], W[i,j]) -> loss\nh[n,j] = sum[i](x[n,i]*W[i,j])\n{}\nloss = mean[n](y[n])\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("y[n] = sum[j](h[n,j]*missing[j])", ("missing",)),
        ("y[n] = h[n,j]", ("j",)),
        ("y[n] = sum[j](h[n])", ("h",)),
        ("y[n] = sum[j](h[n,j]", ()),
    ],
)
def test_an_error_inside_a_network_names_the_equation_and_the_line(line, words):
    with pytest.raises(derive.SpecError) as caught:
        derive.parse(SPEC.format(line))
    first, *rest = str(caught.value).splitlines()
    assert first.startswith("line 3, column ")
    assert all(word in first for word in words)
    # An equation that cannot be read has no name yet.
    assert rest == [f"  in net, equation of y: {line}" if words else f"  in {line}"]
