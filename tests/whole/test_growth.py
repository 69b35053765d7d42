"""What depth costs, of a network or an equation: work and code are counted here, no time."""

import ast
import re
import sys
from collections.abc import Iterator
from inspect import stack
from itertools import pairwise
from typing import Any

import pytest
import torch
from kit.chains import CHAINS
from kit.each import some_now
from kit.plain import plain
from kit.shared import kept

import derive
from derive import budget
from derive.api import derivation, load, source
from derive.calculus.build_lets import flatten_operation
from derive.reports.result import Derivation

GROWN = [name for name in CHAINS if name != "batch_norm"]
"""A chain to a loss has the layers of batch norm too."""
CHAINS_NOW = some_now(GROWN, len(GROWN), 3)
each_chain = pytest.mark.parametrize("name", CHAINS_NOW)
FEW, MANY = 6, 12
DEPTHS = {
    "elementwise": (16, 24, 32),
    "linear": (20, 24, 28),
    "shared": (20, 22, 24),
    "outputs": (16, 20, 24),
    "residual": (16, 20, 24),
    "loss": (9, MANY, 15),
    "attention": (9, MANY, 15),
}
"""Deep enough that each list of names is too long for two lines and has one for each name, and
where a layer has few lines, that one more of them, which a long list or name takes, does not count.
"""

SUMMED = {"shared": {"grad_W", "grad_b"}, "elementwise": {"grad_w"}}
"""Gradients of what every layer reads: sums of a term, or two, for each layer."""


def made(name: str, depth: int) -> Any:
    return derive.parse(CHAINS[name](depth))


def derived(name: str, depth: int) -> tuple[str, Derivation]:
    """The source and the derivation of a chain, which many tests ask for."""

    def derived_now() -> tuple[str, Derivation]:
        op = made(name, depth)
        return source(op), derivation(op)

    return kept(f"chain {name} {depth}", derived_now)


@each_chain
def test_lines_rise_by_the_same_for_each_layer(name):
    counts = [len(plain(derived(name, depth)[0]).splitlines()) for depth in DEPTHS[name]]
    first, second = (b - a for a, b in pairwise(counts))
    assert abs(second - first) <= 0.1 * first, counts


def formulas(d: Derivation) -> dict[str, str]:
    """The text of each formula without the numbers of layers."""
    every = (*d.definitions, *d.adjoints, *d.gradients.values())
    return {f.name: re.sub(r"\d+", "0", str(f)) for f in every}


@each_chain
def test_no_formula_grows_but_the_sum_over_all_layers(name):
    few, many = (formulas(derived(name, depth)[1]) for depth in (FEW, MANY))
    longest = max(len(text) for of, text in few.items() if of not in SUMMED.get(name, ()))
    # An elementwise chain is cut where a formula has become long, wherever that is.
    limit = max(longest, 250) if name == "elementwise" else longest
    assert all(len(t) <= limit for of, t in many.items() if of not in SUMMED.get(name, ()))
    for of in SUMMED.get(name, ()):
        assert len(many[of]) <= 2.2 * len(few[of])


@each_chain
def test_steps_rise_no_faster_than_layers(name):
    """Sums over all layers aside, which have steps for each layer."""
    few, many = (derived(name, depth)[1] for depth in (FEW, MANY))
    left_out = SUMMED.get(name, ())

    def steps(d: Derivation) -> int:
        every = (*d.adjoints, *d.gradients.values())
        return sum(len(f.steps) for f in every if f.name not in left_out)

    assert steps(many) <= 2.3 * steps(few)


def conditions(text: str) -> Iterator[ast.expr]:
    """What is asked in a module, or given a name to be asked."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.If):
            yield node.test
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.BoolOp):
            yield node.value


@each_chain
def test_no_condition_lists_all_inputs(name):
    for e in conditions(derived(name, MANY)[0].rpartition("\ndef ")[0]):  # without its checks
        assert not isinstance(e, ast.BoolOp) or len(e.values) <= 4, ast.unparse(e)


@pytest.mark.parametrize(
    "name", [x for x in CHAINS_NOW if x.values[0] in ("linear", "residual", "loss")]
)
def test_no_line_grows(name):
    few, many = (re.sub(r"\d+", "0", derived(name, depth)[0]) for depth in (FEW, MANY))
    assert max(map(len, many.splitlines())) <= max(map(len, few.splitlines()))


def arrays(op: Any, requires_grad: Any = None) -> dict[str, Any]:
    """Inputs of different extents, some of which want their gradients."""
    sizes = {e.name: 2 + n for n, e in enumerate(op.extents)}
    generator = torch.Generator().manual_seed(3)
    result = {}
    for t in op.inputs:
        shape = [sizes[i.extent] for i in t.axes]
        if t.kind == "int":
            result[t.name] = torch.randint(2, shape, generator=generator)
        else:
            value = torch.randn(shape, generator=generator, dtype=torch.float64) / 2
            wanted = requires_grad is None or t.name in requires_grad
            result[t.name] = value.requires_grad_(wanted)
    return result


def gradients(results: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    results = results if isinstance(results, tuple) else (results,)
    generator = torch.Generator().manual_seed(5)
    total = sum(
        (r * torch.randn(r.shape, generator=generator, dtype=r.dtype)).sum() for r in results
    )
    wanted = [name for name, t in tensors.items() if t.requires_grad]
    found = torch.autograd.grad(total, [tensors[n] for n in wanted])
    return dict(zip(wanted, found, strict=True))


@pytest.mark.parametrize("name", some_now([*CHAINS], len(CHAINS), 2))
def test_any_of_the_gradients_are_those_of_all(name):
    """What is computed under a condition is there whenever something reads it."""
    op = made(name, 4)
    function = load(op)
    floats = [t.name for t in op.inputs if t.kind == "float"]
    tensors = arrays(op)
    every = gradients(function(*tensors.values()), tensors)
    assert list(every) == floats
    for n in range(len(floats)):
        for wanted in ({floats[n]}, {floats[n], floats[-1]}, {*floats} - {floats[n]}):
            some = arrays(op, wanted)
            for of, value in gradients(function(*some.values()), some).items():
                torch.testing.assert_close(value, every[of], rtol=1e-12, atol=1e-12)


def plainly(tensors: dict[str, Any], depth: int, norm: bool) -> Any:
    """The chain as one writes it for autograd."""
    h = tensors["x"]
    for n in range(1, depth + 1):
        h = h @ tensors[f"W{n}"] + tensors[f"b{n}"]
        if norm:
            h = (h - h.mean(0)) * (h.var(0) + 1e-5) ** -0.5
            h = h * tensors[f"g{n}"] + tensors[f"c{n}"]
        h = h.tanh()
    return h


STACK = 440
"""Calls that may stand in one another: 11 for each of 40 layers, as 1,000 were for 90."""


@pytest.mark.parametrize(("name", "depth"), [("linear", 40), ("batch_norm", 8)])
def test_a_deep_chain_has_the_gradients_of_autograd(name, depth):
    """Definitions are derived and lowered on a stack that has few calls for each of them."""
    op = made(name, depth)
    tensors = arrays(op)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(stack(0)) + STACK)
    try:
        function = load(op)
    finally:
        sys.setrecursionlimit(before)
    found = gradients(function(*tensors.values()), tensors)
    expected = gradients(plainly(tensors, depth, name == "batch_norm"), tensors)
    for of, value in expected.items():
        torch.testing.assert_close(found[of], value, rtol=1e-9, atol=1e-9)


def test_the_forward_is_flattened_in_one_pass():
    lets = flatten_operation(made("batch_norm", 6))
    internal = [let for let in lets if let.internal]
    assert len(internal) == 6, "one difference a - mu for each layer"


MASKED = "h{1}[i,j] = where(m[i], softmax[j](h{0}[i,j]*w[j] + sum[l](h{0}[i,l]*A[l,j])), h{0}[i,j])"


def test_masked_softmaxes_in_a_chain_are_asked_once_each():
    """Whether a row may be infinite is a question about all that the layers before it read."""

    def lines(depth: int) -> int:
        layers = (MASKED.format(n, n + 1) for n in range(depth))
        head = f"op f(h0[i,j], w[j], A[j,j], m[i]: bool) -> h{depth}"
        return len(source(derive.parse("\n".join((head, *layers)))).splitlines())

    assert lines(12) < 2.2 * lines(6)


def test_conditions_that_guard_the_reads_of_the_next_are_written_once_each():
    """x[s[i]] is read where s[i] is a position, y[x[..]] where that holds, and so on."""

    def of(depth: int) -> derive.Operation:
        asked = " and ".join(
            f"x[s[{n}]] > {n} and y[s[{n}],s[{n + 1}]] < {n}" for n in range(depth)
        )
        return derive.parse(f"op f(x[n], y[n,m], s[k]: int) -> z\nz = where({asked}, x[s[0]], 0)")

    few, many = (len(source(of(depth))) for depth in (6, 12))
    assert many < 2.5 * few


def nested(function: str, depth: int) -> str:
    return f"op f(x[i]) -> y\ny[i] = {f'{function}(' * depth}x[i]{')' * depth}"


def maxima(depth: int) -> str:
    body = "x[i]"
    for n in range(depth):
        body = f"maximum({body}, {n + 1}*x[i]/7)"
    return f"op f(x[i]) -> y\ny[i] = {body}"


def fractions(depth: int) -> str:
    body = "x[i]**2"
    for n in range(depth):
        body = f"1/({body} + {n + 1})"
    return f"op f(x[i]) -> y\ny[i] = {body}"


def guarded(depth: int) -> str:
    """Nothing is named that has a value only where the condition holds."""
    body = "x[i]"
    for _ in range(depth):
        body = f"log({body} + 2)"
    return f"op f(x[i]) -> y\ny[i] = where(x[i] > -1, {body}, 0)"


def factors(count: int) -> str:
    names = [f"x{n}" for n in range(count)]
    inputs, product = ", ".join(f"{x}[i]" for x in names), "*".join(f"{x}[i]" for x in names)
    return f"op f({inputs}) -> y\ny[i] = {product}"


def terms(count: int) -> str:
    names = [f"x{n}" for n in range(count)]
    inputs, total = ", ".join(f"{x}[i]" for x in names), " + ".join(f"{x}[i]" for x in names)
    return f"op f({inputs}) -> y\ny[i] = {total}"


def sums(count: int) -> str:
    """A product of sums, which multiplied out has 2^count terms."""
    inputs = ", ".join(f"a{n}[k], b{n}[i]" for n in range(count))
    product = "*".join(f"(a{n}[k] + b{n}[i])" for n in range(count))
    return f"op f({inputs}) -> y\ny[i] = sum[k]({product})"


def doubled(count: int) -> str:
    """Numbers that multiplied out no float can be."""
    body = "\n".join(f"x{n + 1}[i] = {2 if n < count / 2 else 1 / 2}*x{n}[i]" for n in range(count))
    return f"op f(x0[i]) -> x{count}\n{body}"


GROWING = {
    "tanh": lambda n: nested("tanh", n),
    "sigmoid": lambda n: nested("sigmoid", n),
    "abs": lambda n: nested("abs", n),
    "maxima": maxima,
    "fractions": fractions,
    "guarded": guarded,
    "factors": factors,
    "terms": terms,
    "sums": sums,
    "doubled": doubled,
}


def work_and_code(monkeypatch: pytest.MonkeyPatch, text: str) -> tuple[int, int]:
    """(how much is done to derive it, the characters of its code)."""
    counted = 0

    def look(clock: budget._Clock) -> None:
        nonlocal counted
        counted += 1
        clock.left = 16

    op = derive.parse(text)
    monkeypatch.setattr(budget, "_OFTEN", 16)
    monkeypatch.setattr(budget._Clock, "look", look)
    code = len(source(op))
    return counted, code


@pytest.mark.parametrize("name", some_now([*GROWING], len(GROWING), 2))
def test_work_and_code_rise_no_faster_than_an_equation(monkeypatch, name):
    size = {"sums": 7, "doubled": 40, "maxima": 8}.get(name, 12)
    few, many = (work_and_code(monkeypatch, GROWING[name](n)) for n in (size, 2 * size))
    # What is quadratic in a small part is not cut; what doubles with each level is a million.
    assert many[0] <= 5 * few[0], (few, many)
    assert many[1] <= 3.5 * few[1], (few, many)


@pytest.mark.parametrize("name", some_now([*GROWING], len(GROWING), 2))
def test_a_large_equation_has_the_gradients_of_autograd(name):
    size = {"sums": 6, "doubled": 220, "terms": 100, "factors": 30}.get(name, 16)
    op = derive.parse(GROWING[name](size))
    tensors = arrays(op)
    found = gradients(load(op)(*tensors.values()), tensors)
    expected = gradients(large(name, size, tensors), tensors)
    for of, value in expected.items():
        torch.testing.assert_close(found[of], value, rtol=1e-9, atol=1e-12)


def large(name: str, size: int, tensors: dict[str, Any]) -> Any:
    """The same as one writes it for autograd."""
    x, *others = tensors.values()
    if name == "factors":
        return torch.stack([x, *others]).prod(0)
    if name == "terms":
        return torch.stack([x, *others]).sum(0)
    if name == "sums":
        parts = [a[:, None] + b for a, b in zip([x, *others][::2], others[::2], strict=True)]
        return torch.stack(parts).prod(0).sum(0)
    y = x**2 if name == "fractions" else x
    for n in range(size):
        match name:
            case "maxima":
                y = torch.maximum(y, (n + 1) * x / 7)
            case "fractions":
                y = 1 / (y + n + 1)
            case "guarded":
                y = (y + 2).log()
            case "doubled":
                y = (2 if n < size / 2 else 1 / 2) * y
            case _:
                y = getattr(torch, name)(y)
    return torch.where(x > -1, y, 0) if name == "guarded" else y


def test_softmaxes_within_softmaxes_have_names_under_a_condition_too(monkeypatch):
    """A softmax is finite wherever its argument is, whatever exp and log are by themselves."""
    few, many = (work_and_code(monkeypatch, masked_softmaxes(n))[0] for n in (5, 10))
    assert many <= 5 * few, (few, many)


def test_softmaxes_within_softmaxes_have_the_gradients_of_autograd():
    op = derive.parse(masked_softmaxes(6))
    tensors = arrays(op)
    x, z = tensors.values()
    found = gradients(load(op)(x, z), tensors)
    y = torch.where(z > 0, x, 0)
    for _ in range(6):
        y = torch.softmax(y, 0)
    expected = gradients(torch.where(x > -1, (z - y) * x, 0), tensors)
    for of, value in expected.items():
        torch.testing.assert_close(found[of], value, rtol=1e-9, atol=1e-12)


def masked_softmaxes(depth: int) -> str:
    body = f"{'softmax[i](' * depth}where(z > 0, x[i], 0){')' * depth}"
    return f"op f(x[i], z) -> y\ny[i] = where(x[i] > -1, (z - {body})*x[i], 0)"
