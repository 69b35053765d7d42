"""Train softmax regression on scikit-learn's digits through ``loss.backward()``.

The linear layer and the cross-entropy are generated functions. The program shows how they stand
in autograd's graph, how gradients accumulate in ``.grad``, and that values and gradients are those
of torch's own functions; so are those of softmax_regression, which is both in one operation.

    python -m derive.examples.softmax_regression
    python -m derive.examples.softmax_regression --epochs 50

Exit code 0; 1 if the cost becomes nan or infinite; 2 for a wrong argument.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

from derive.examples.program import ExampleError, extra, positive, run

with extra():
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F

    from derive.generated.cross_entropy import cross_entropy
    from derive.generated.linear import linear
    from derive.generated.softmax import softmax
    from derive.generated.softmax_regression import softmax_regression

Function = Callable[..., Any]

SEED = 123
BATCH_SIZE = 64


class SoftmaxRegression(nn.Module):
    """Logits x @ weight.T + bias and their softmax; weight and bias are zero at first."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(num_features, num_classes)
        self.linear.weight.detach().zero_()
        self.linear.bias.detach().zero_()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x[n, num_features] to logits and probabilities [n, num_classes]."""
        logits = linear(x, self.linear.weight, self.linear.bias)
        return logits, softmax(logits, dim=1)


def main(arguments: Sequence[str] | None = None) -> int:
    """The program with these arguments, or those of the process. Returns the exit code."""
    return run("softmax_regression", lambda: _regression(_parser().parse_args(arguments)))


def _regression(given: argparse.Namespace) -> None:
    (X, Y), (X_test, Y_test) = digits()
    model = SoftmaxRegression(X.shape[1], 10)
    print(f"{len(X)} digits to train on, {len(X_test)} to test, {X.shape[1]} pixels each")
    show_graph(model, X[:BATCH_SIZE], Y[:BATCH_SIZE])
    show_accumulation(model, X[:BATCH_SIZE], Y[:BATCH_SIZE])
    train(model, X, Y, epochs=given.epochs, rate=given.rate)
    show_equality(model, X_test, Y_test)
    print(f"train accuracy {accuracy(model, X, Y):.2f} %")
    print(f"test accuracy {accuracy(model, X_test, Y_test):.2f} %")


def digits() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """X[n, 64] from 0 to 1 and Y[n], four fifths of them to train on, each digit in proportion."""
    with extra():
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    X, X_test, Y, Y_test = (
        torch.tensor(part)
        for part in train_test_split(
            images, labels, test_size=0.2, stratify=labels, random_state=SEED
        )
    )
    return (X.float() / 16, Y.long()), (X_test.float() / 16, Y_test.long())


def train(model: SoftmaxRegression, X: Tensor, Y: Tensor, *, epochs: int, rate: float) -> None:
    """Stochastic gradient descent over all of X in every epoch, and a line for each."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(SEED)
    for epoch in range(1, epochs + 1):
        costs = []
        order = torch.randperm(len(X), generator=generator)
        for at in range(0, len(X), BATCH_SIZE):
            batch = order[at : at + BATCH_SIZE]
            logits, _ = model(X[batch])
            cost = cross_entropy(logits, Y[batch])
            optimizer.zero_grad()
            cost.backward()
            optimizer.step()
            costs.append(cost.item())
            if not isfinite(costs[-1]):
                raise ExampleError(
                    f"the cost is {costs[-1]} in epoch {epoch}, where training stopped: "
                    f"try --rate {rate / 10:g}",
                    code=1,
                )
        print(f"epoch {epoch:3d}/{epochs}: cost {sum(costs) / len(costs):.4f}", flush=True)


@torch.no_grad()
def accuracy(model: SoftmaxRegression, X: Tensor, Y: Tensor) -> float:
    """How many of the most probable classes are right, in per cent."""
    _, probas = model(X)
    return float(100 * (probas.argmax(1) == Y).float().mean())


def show_graph(model: SoftmaxRegression, X: Tensor, Y: Tensor) -> None:
    """The nodes that ``cost.backward()`` walks, from the cost to the leaves."""
    logits, _ = model(X)
    cost = cross_entropy(logits, Y)
    print(f"\nlogits.grad_fn {logits.grad_fn.name()}")
    print(f"cost.grad_fn   {cost.grad_fn.name()}")
    print("cost.backward() walks")
    edges = [(cost.grad_fn, 1)]
    while edges:
        node, depth = edges.pop()
        leaf = f" {tuple(node.variable.shape)}" if hasattr(node, "variable") else ""
        print(f"{'  ' * depth}{node.name()}{leaf}")
        edges += [(below, depth + 1) for below, _ in reversed(node.next_functions) if below]


def show_accumulation(model: SoftmaxRegression, X: Tensor, Y: Tensor) -> None:
    """``backward`` adds to ``.grad``: twice is double, until ``zero_grad`` takes it away."""
    weight = model.linear.weight
    print("\nweight.grad")
    seen = []
    for times in ("one backward", "two backwards"):
        cross_entropy(model(X)[0], Y).backward()
        assert weight.grad is not None
        seen.append(weight.grad.clone())
        print(f"  after {times}: norm {weight.grad.norm().item():.6f}")
    print(f"  two backwards are twice one: {torch.equal(seen[1], 2 * seen[0])}")
    model.zero_grad()
    print(f"  after zero_grad: {weight.grad}\n")


def show_equality(model: SoftmaxRegression, X: Tensor, Y: Tensor) -> None:
    """Values and gradients against those of F.linear and F.cross_entropy."""
    expected = values_and_gradients(model, X, Y, composed(F.linear, F.cross_entropy))
    generated = {
        "linear and cross_entropy": composed(linear, cross_entropy),
        "softmax_regression": softmax_regression,
    }
    for name, function in generated.items():
        print(f"\n{name} against F.linear and F.cross_entropy")
        for tensor, ours in values_and_gradients(model, X, Y, function).items():
            theirs = expected[tensor]
            exact, approximate = torch.equal(ours, theirs), torch.allclose(ours, theirs)
            print(
                f"  {tensor:11s} | exact: {exact!s:5s} | approximate: {approximate!s:5s} "
                f"| maxdiff: {(ours - theirs).abs().max().item():.3g}"
            )
    print()


def composed(linear: Function, cross_entropy: Function) -> Function:
    """(x, weight, bias, targets) to the cost and the logits."""

    def regression(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> Any:
        logits = linear(x, weight, bias)
        return cross_entropy(logits, targets), logits

    return regression


def values_and_gradients(
    model: SoftmaxRegression, X: Tensor, Y: Tensor, regression: Function
) -> dict[str, Tensor]:
    """Logits, cost and gradients at the parameters of the model, which stays as it is."""
    weight, bias = (p.detach().clone().requires_grad_() for p in model.parameters())
    cost, logits = regression(X, weight, bias, Y)
    cost.backward()
    assert weight.grad is not None and bias.grad is not None
    return {"logits": logits, "cost": cost, "weight.grad": weight.grad, "bias.grad": bias.grad}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m derive.examples.softmax_regression",
        description="Train softmax regression on digits, through generated autograd functions.",
    )
    parser.add_argument(
        "--epochs", type=positive, metavar="N", default=30, help="training epochs: %(default)s"
    )
    parser.add_argument(
        "--rate", type=float, metavar="R", default=0.5, help="learning rate: %(default)s"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
