"""Generated gradients go over the full tensor no more often than lines optimised by hand.

On tensors that do not fit in a cache, elementwise code is as slow as the number of times it goes
over them. One pass is one operation, seen by a TorchDispatchMode, of which an argument or a result
has as many elements as the full tensor (the logits, or the input of the batch norm); a view costs
nothing, and an operation on rows or columns alone is not counted. The rule is the same for both
sides: reading one element of each row is a pass for the hand's ``dlogits[rows, Y]`` as for our
``gather``, and so is writing there, in place or not.

The lines of the hand start from what its forward has kept (``logits``; ``bnraw``, ``bnvar_inv``).
So do the gradient lines of ``value_and_grad``: what it does beyond the forward is counted. The
backward of a Function keeps inputs and outputs only, and computes the rest again; it may make the
passes that the hand's forward made for what it kept, and no others.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import derive
from derive import catalog

n, classes, hidden = 32, 27, 64
IGNORED = -100


class Passes(TorchDispatchMode):
    """The operations that touch a tensor of at least ``full`` elements, by name."""

    def __init__(self, full: int) -> None:
        super().__init__()
        self.full = full
        self.found: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        touched = [t for t in tree_leaves((args, kwargs, result)) if isinstance(t, torch.Tensor)]
        if not func.is_view and any(t.numel() >= self.full for t in touched):
            self.found.append(str(func))
        return result


def passes(full: int, function: Callable[..., Any], *args: Any, **given: Any) -> list[str]:
    with torch.no_grad(), Passes(full) as counted:
        function(*args, **given)
    return counted.found


def in_backward(full: int, outputs: Any, inputs: list[Any], cotangent: Any) -> list[str]:
    with Passes(full) as counted:
        torch.autograd.grad(outputs, inputs, cotangent)
    return counted.found


def gradient_lines(
    full: int, op: derive.Operation, wrt: list[str], *args: Any, **given: Any
) -> int:
    """The passes of ``value_and_grad`` beyond those of the forward, neither having kernels."""
    forward = {name: value for name, value in given.items() if name != "G"}
    whole = passes(full, derive.value_and_grad(op, wrt), *args, **given)
    with torch.autograd.forward_ad.dual_level():
        alone = passes(full, derive.load(op), *args, **forward)
    return len(whole) - len(alone)


def cross_entropy_by_hand(logits: Any, Y: Any) -> Any:
    dlogits = F.softmax(logits, 1)
    dlogits[range(n), Y] -= 1
    dlogits /= n
    return dlogits


def cross_entropy_with_options_by_hand(
    logits: Any, Y: Any, weight: Any, label_smoothing: float
) -> Any:
    """The same lines for ``weight``, ``ignore_index`` and ``label_smoothing``."""
    counted = Y != IGNORED
    Y = torch.where(counted, Y, 0)
    mine = torch.where(counted, weight[Y], 0)
    scale = counted / mine.sum()
    certain = (1 - label_smoothing) * mine / mine.sum()
    spread = label_smoothing / classes * scale
    dlogits = F.softmax(logits, 1)
    dlogits *= (certain + spread * weight.sum())[:, None]
    dlogits -= spread[:, None] * weight
    dlogits[range(n), Y] -= certain
    return dlogits


def batch_norm_forward_by_hand(hprebn: Any, eps: float = 1e-5) -> tuple[Any, Any]:
    bnmeani = 1 / n * hprebn.sum(0, keepdim=True)
    bndiff = hprebn - bnmeani
    bnvar = 1 / (n - 1) * (bndiff**2).sum(0, keepdim=True)
    bnvar_inv = (bnvar + eps) ** -0.5
    return bndiff * bnvar_inv, bnvar_inv


def batch_norm_by_hand(bnraw: Any, bnvar_inv: Any, bngain: Any, dhpreact: Any) -> tuple[Any, ...]:
    dhprebn = (
        bngain
        * bnvar_inv
        / n
        * (n * dhpreact - dhpreact.sum(0) - n / (n - 1) * bnraw * (dhpreact * bnraw).sum(0))
    )
    dbngain = (bnraw * dhpreact).sum(0)
    dbnbias = dhpreact.sum(0)
    return dhprebn, dbngain, dbnbias


@pytest.fixture(name="scores")
def _scores() -> tuple[Any, Any]:
    """Logits and the classes that are right."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn((n, classes), generator=generator, dtype=torch.float64)
    return logits, torch.randint(classes, (n,), generator=generator)


@pytest.fixture(name="hidden_layer")
def _hidden_layer() -> tuple[Any, Any, Any, Any]:
    """The input, gain, bias and cotangent of a batch norm."""
    generator = torch.Generator().manual_seed(1)
    shapes = ((n, hidden), (hidden,), (hidden,), (n, hidden))
    x, gain, bias, G = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    return x, gain, bias, G


CROSS_ENTROPIES = {
    "log_softmax": """op f(logits[n,c], Y[n]: int) -> loss
logprobs[n,c] = log_softmax[c](logits[n,c])
loss = -mean[n](logprobs[n,Y[n]])""",
    "spelled out": """op f(logits[n,c], Y[n]: int) -> loss
logit_maxes[n,0] = max[c](logits[n,c])
norm_logits[n,c] = logits[n,c] - logit_maxes[n,0]
counts[n,c] = exp(norm_logits[n,c])
counts_sum[n,0] = sum[c](counts[n,c])
counts_sum_inv[n,0] = counts_sum[n,0]**(-1)
probs[n,c] = counts[n,c]*counts_sum_inv[n,0]
logprobs[n,c] = log(probs[n,c])
loss = -mean[n](logprobs[n,Y[n]])""",
}


def test_the_lines_by_hand_are_right(scores, hidden_layer):
    """And make this many passes, which the tests below compare with."""
    logits, Y = scores
    leaf = logits.clone().requires_grad_()
    F.cross_entropy(leaf, Y).backward()
    torch.testing.assert_close(cross_entropy_by_hand(logits, Y), leaf.grad)
    assert len(passes(n * classes, cross_entropy_by_hand, logits, Y)) == 4

    weight = torch.linspace(0.5, 2, classes, dtype=torch.float64)
    Y[3] = IGNORED
    leaf = logits.clone().requires_grad_()
    F.cross_entropy(leaf, Y, weight, label_smoothing=0.2).backward()
    ours = cross_entropy_with_options_by_hand(logits, Y, weight, 0.2)
    torch.testing.assert_close(ours, leaf.grad)
    counted = passes(n * classes, cross_entropy_with_options_by_hand, logits, Y, weight, 0.2)
    assert len(counted) == 6

    x, gain, bias, G = hidden_layer
    leaves = [t.clone().requires_grad_() for t in (x, gain, bias)]
    bnraw, _ = batch_norm_forward_by_hand(leaves[0])
    (leaves[1] * bnraw + leaves[2]).backward(G)
    kept = batch_norm_forward_by_hand(x)
    for ours, leaf in zip(batch_norm_by_hand(*kept, gain, G), leaves, strict=True):
        torch.testing.assert_close(ours, leaf.grad)
    assert len(passes(n * hidden, batch_norm_by_hand, *kept, gain, G)) == 12
    assert len(passes(n * hidden, batch_norm_forward_by_hand, x)) == 5


@pytest.mark.parametrize("text", CROSS_ENTROPIES.values(), ids=CROSS_ENTROPIES)
def test_gradient_lines_of_cross_entropy(text, scores):
    by_hand = passes(n * classes, cross_entropy_by_hand, *scores)
    op = derive.parse(text)
    assert gradient_lines(n * classes, op, ["logits"], *scores) <= len(by_hand)


@pytest.mark.parametrize("text", CROSS_ENTROPIES.values(), ids=CROSS_ENTROPIES)
def test_backward_of_cross_entropy(text, scores):
    by_hand = passes(n * classes, cross_entropy_by_hand, *scores)
    logits, Y = scores
    logits.requires_grad_()
    loss = derive.load(derive.parse(text))(logits, Y)
    assert len(in_backward(n * classes, loss, [logits], None)) <= len(by_hand)


@pytest.fixture(name="weighted")
def _weighted(scores) -> tuple[Any, Any, Any, float]:
    """Logits, classes of which one is ignored, weights, and how much is spread."""
    logits, Y = scores
    Y[3] = IGNORED
    return logits, Y, torch.linspace(0.5, 2, classes, dtype=torch.float64), 0.2


def test_gradient_lines_of_cross_entropy_with_options(weighted):
    by_hand = passes(n * classes, cross_entropy_with_options_by_hand, *weighted)
    op = catalog.find("cross_entropy")
    *given, smoothing = weighted
    count = gradient_lines(n * classes, op, ["input"], *given, label_smoothing=smoothing)
    assert count <= len(by_hand)


def test_backward_of_cross_entropy_with_options(weighted):
    by_hand = passes(n * classes, cross_entropy_with_options_by_hand, *weighted)
    logits, Y, weight, smoothing = weighted
    logits.requires_grad_()
    loss = derive.load(catalog.find("cross_entropy"))(logits, Y, weight, label_smoothing=smoothing)
    assert len(in_backward(n * classes, loss, [logits], None)) <= len(by_hand)


SPELLED_OUT = """op f(hprebn[n,j], bngain[j], bnbias[j]; eps=1e-5) -> hpreact
bnmeani[0,j] = sum[n](hprebn[n,j])/size(n)
bndiff[n,j] = hprebn[n,j] - bnmeani[0,j]
bndiff2[n,j] = bndiff[n,j]**2
bnvar[0,j] = sum[n](bndiff2[n,j])/(size(n) - 1)
bnvar_inv[0,j] = (bnvar[0,j] + eps)**(-1/2)
bnraw[n,j] = bndiff[n,j]*bnvar_inv[0,j]
hpreact[n,j] = bngain[j]*bnraw[n,j] + bnbias[j]"""


BATCH_NORMS = {
    "catalog": (catalog.find("batch_norm"), {"correction": 1}),
    "spelled out": (derive.parse(SPELLED_OUT), {}),
}


@pytest.mark.parametrize(("op", "given"), BATCH_NORMS.values(), ids=BATCH_NORMS)
def test_gradient_lines_of_batch_norm(op, given, hidden_layer):
    x, gain, bias, G = hidden_layer
    kept = batch_norm_forward_by_hand(x)
    by_hand = passes(n * hidden, batch_norm_by_hand, *kept, gain, G)
    wanted = [t.name for t in op.inputs]
    count = gradient_lines(n * hidden, op, wanted, x, gain, bias, G=G, **given)
    assert count <= len(by_hand)


@pytest.mark.parametrize(("op", "given"), BATCH_NORMS.values(), ids=BATCH_NORMS)
def test_backward_of_batch_norm(op, given, hidden_layer):
    """It computes again what the hand has kept."""
    x, gain, bias, G = hidden_layer
    kept = batch_norm_forward_by_hand(x)
    by_hand = len(passes(n * hidden, batch_norm_by_hand, *kept, gain, G))
    by_hand += len(passes(n * hidden, batch_norm_forward_by_hand, x))
    leaves = [t.requires_grad_() for t in (x, gain, bias)]
    output = derive.load(op)(*leaves, **given)
    assert len(in_backward(n * hidden, output, leaves, G)) <= by_hand
