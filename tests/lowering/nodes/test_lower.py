"""The code of a program against the equations it was lowered from, evaluated by the oracle."""

import ast
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from kit import texts
from kit.each import each_operation, each_option, each_row
from kit.equations import checked, numbers, operations, samples, with_lets
from kit.once import sample
from kit.shared import written

import derive
from derive.algebra.expr import Index, walk
from derive.algebra.factor import factor
from derive.algebra.interpret import array
from derive.api import derivation
from derive.check import oracle
from derive.check.samples import cases
from derive.notation.split import is_plain
from derive.pipeline import derive_option

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def by_equations(
    op: Any, option: str | None, tensors: Any, parameters: Any, cotangents: Any
) -> Any:
    """The gradients that the derived formulas give, element by element."""
    d = derivation(op, option)
    sizes = oracle.sizes(op, tensors, parameters)
    values = numbers(op, parameters, sizes)
    known = lets_of(op, option, tensors, parameters)
    for f in d.definitions:
        printed = array(f.axes, f.body, known, sizes, values)
        np.testing.assert_allclose(printed, known[f.name], **CLOSE, err_msg=str(f))
    known |= {name: cotangents[output] for output, name in d.cotangents}
    for f in (*d.adjoints, *d.gradients.values()):
        known[f.name] = array(f.axes, f.body, known, sizes, values)
    return {tensor: known[f.name] for tensor, f in d.gradients.items()}


def lets_of(op: Any, option: str | None, tensors: Any, parameters: Any) -> Any:
    """The values of all definitions by the names that a reader knows.

    They are computed from the definitions themselves, which have canonical names.
    """
    derived = derive_option(op, option)
    plain, display_name = derived.operation, derived.lets.display_name
    outer = oracle.sizes(op, tensors, parameters)
    own = {
        t.name: tensors[display_name(t.name)].reshape(
            shape(t.axes, lambda name: outer[display_name(name)])
        )
        for t in plain.inputs
    }
    given = {
        p.name: parameters[display_name(p.name)]
        for p in plain.parameters
        if display_name(p.name) in parameters
    }
    sizes = oracle.sizes(plain, own, given)
    known = with_lets(derived.lets, own, sizes, numbers(plain, given, sizes), factor)
    named = {display_name(name): value for name, value in known.items()}
    assert len(named) == len(known)
    for tensor in (*op.inputs, *op.equations):
        if tensor.name in named:
            named[tensor.name] = named[tensor.name].reshape(shape(tensor.axes, outer.__getitem__))
    return named


def shape(axes: Any, size: Any) -> tuple[int, ...]:
    """The shape of an array with these axes."""
    result: list[int] = []
    for axis in axes:
        if isinstance(axis, Index) and axis.group:
            result += size(axis.extent)
        else:
            parts = [i for i in walk(axis) if isinstance(i, Index)]
            result.append(math.prod(size(i.extent) for i in parts))
    return tuple(result)


def by_code(op: Any, tensors: Any, parameters: Any, cotangents: Any) -> Any:
    """The outputs and gradients of the generated function."""
    given = {
        name: torch.tensor(value, requires_grad=value.dtype == np.float64)
        for name, value in tensors.items()
    }
    result = derive.load(op)(*given.values(), **parameters)
    outputs = result if isinstance(result, tuple) else (result,)
    made = dict(zip(cotangents, outputs, strict=True))
    wanted = [n for n, x in given.items() if x.requires_grad]
    moving = {n: y for n, y in made.items() if y.requires_grad}
    G = [torch.tensor(cotangents[n]) for n in moving]
    found = torch.autograd.grad(
        list(moving.values()), [given[n] for n in wanted], G, allow_unused=True
    )
    gradients = {
        n: np.zeros_like(tensors[n]) if g is None else g.numpy()
        for n, g in zip(wanted, found, strict=True)
    }
    return {n: y.detach().numpy() for n, y in made.items()}, gradients


def assert_code_is_the_equations(op: Any, option: Any, tensors: Any, parameters: Any) -> None:
    outputs = oracle.outputs(op, tensors, parameters)
    rng = np.random.default_rng(6)
    G = {name: np.asarray(rng.uniform(0.5, 1.5, y.shape)) for name, y in outputs.items()}
    found, gradients = by_code(op, tensors, parameters, G)
    for name, y in outputs.items():
        np.testing.assert_allclose(found[name], y, **CLOSE, err_msg=name)
    for name, want in by_equations(op, option, tensors, parameters, G).items():
        assert gradients[name].shape == want.shape
        scale = max(1.0, float(np.abs(want).max(initial=0)))
        np.testing.assert_allclose(
            gradients[name], want, rtol=1e-9, atol=1e-12 * scale, err_msg=name
        )


@checked(40)
@given(operations())
def test_random_equations(text):
    op = derive.parse(text)
    tensors = {t.name: samples()[t.name] for t in op.inputs}
    assert_code_is_the_equations(op, None, tensors, {})


TEXTS = {
    "matmul": "op f(A[*b,i,k], B[*b,k,j]) -> y\ny[*b,i,j] = sum[k](A[*b,i,k]*B[*b,k,j])",
    "a group in one of two": "op f(A[*b,k], w[k]) -> y\ny[*b] = sum[k](A[*b,k]*w[k])",
    "a sum over a group": "op f(A[*b,k]) -> y\ny[k] = sum[*b](A[*b,k]**2)",
    "a group in the middle": "op f(A[i,*b,k], v[*b]) -> y\ny[i,k] = sum[*b](A[i,*b,k]*v[*b])",
    "a group of its own": "op f(A[*b], v[*b]) -> y\ny[*b] = A[*b]*v[*b] + tanh(A[*b])",
    "one axis named": ("op f(A[*p,k,*q]; dim=axis(k)) -> y\ny[*p,*q] = sum[k](A[*p,k,*q]**2)"),
    "one axis kept": (
        "op f(A[*p,k,*q]; dim=axis(k)) -> y\ny[*p,k,*q] = A[*p,k,*q]/sum[l](A[*p,l,*q])"
    ),
    "one axis weighted": (
        "op f(A[*p,k,*q], w[k]; dim=axis(k)) -> y\ny[*p,*q] = sum[k](A[*p,k,*q]*w[k])"
    ),
    "the winner of an axis": (
        "op f(A[*p,k,*q]; dim=axis(k)) -> y\ny[*p,*q] = max[k](A[*p,k,*q]*A[*p,k,*q])"
    ),
}


@each_row("rank", ["(0, 0)", "(1, 1)", "(2, 0)", "(0, 2)", "(2, 2)"])
@each_row("name", TEXTS)
def test_groups_of_every_rank(name, rank):
    op = derive.parse(TEXTS[name])
    first, others = (int(r) for r in rank.strip("()").split(", "))
    sizes = {"p": (2, 3)[:first], "q": (4, 1)[:others], "b": (3, 2)[:first]}
    single = {"i": 2, "j": 3, "k": 5}
    rng = np.random.default_rng(0)

    def shape(t: Any) -> tuple[int, ...]:
        return tuple(
            n for a in t.axes for n in (sizes[a.extent] if a.group else (single[a.extent],))
        )

    tensors = {t.name: rng.uniform(0.5, 1.5, shape(t)) for t in op.inputs}
    if not op.parameters:
        assert_code_is_the_equations(op, None, tensors, {})
        return
    for dim in (first, -1 - others):
        assert_code_is_the_equations(op, None, tensors, {"dim": dim})


ACCESSES = {
    "rows": "op f(E[v,d], T[n]: int) -> y\ny[n,d] = E[T[n],d]**2",
    "an element of each row": "op f(A[n,v], T[n]: int) -> y\ny[n] = A[n,T[n]]*A[n,0]",
    "one position twice": "op f(z[v], T[n]: int) -> y\ny[n] = z[T[n]]*z[T[n]]",
    "a sum of what is picked": "op f(z[v], T[n]: int, w[n]) -> y\ny = sum[n](z[T[n]]*w[n])",
    "a comparison with an index": (
        "op f(A[n,v], T[n]: int) -> y\ny[n] = sum[v](A[n,v]*[T[n] == v]) + sum[v](A[n,v]**2)"
    ),
    "an ignored position": (
        "op f(A[n,v], T[n]: int; skip=3) -> y\ny[n] = where(T[n] != skip, A[n,T[n]], 0)"
    ),
    "a diagonal": "y[n] = A[n,n]*x[n]",
    "a trace": "y = sum[n](A[n,n])",
    "a triangle": "y[n] = sum[m | m <= n](A[n,m]*x[m])",
    "a causal softmax": "y[n,m] = softmax[m | m <= n](A[n,m])",
    "a lower branch": "y[n] = where(x[n] < 1, x[n]**2, 1/x[n])",
    "a condition on positions": "y[n,m] = A[n,m]*[n != m] + [n < m]*x[n]",
    "positions as numbers": "y[n,m] = A[n,m]*(m - n) + x[m]*n",
    "products with the others": "y[n] = prod[m](A[n,m])",
    "shared maxima": "y[n] = amax[m](A[n,m]*x[m])",
    "a maximum of a sum along its other axis": "y[m] = max[n](A[n,m]*sum[m](A[n,m]))",
    "a maximum of a diagonal": "y[m] = x[m]*max[n](A[n,m]*sum[m](A[n,m]*D[n,n]))",
    "a mean of those taken": "y[n] = mean[m | m >= n](A[n,m]*x[m])",
    "an outer product": "y[n,m] = x[n]*x[m]",
    "an expanded axis": "op f(x[n], w[m]) -> y, t\ny[n,m] = x[n]\nt = sum[m](w[m])",
    "a stopped gradient": "y[n] = detach(x[n])*sin(x[n])",
    "two outputs": "op f(A[n,m]) -> y, t\ny[n] = logsumexp[m](A[n,m])\nt = sum[n](y[n]**2)",
}


@each_row("name", ACCESSES)
def test_accesses_conditions_and_reductions(name):
    op = derive.parse(ACCESSES[name])
    square = name not in ("an element of each row", "a sum of what is picked")
    rng = np.random.default_rng(1)
    shapes = {"E": (4, 3), "A": (5, 5) if square else (5, 4), "x": (5,), "z": (4,), "w": (5,)}
    shapes["D"] = (5, 5)
    if name in ("a comparison with an index", "an ignored position"):
        shapes["A"] = (5, 4)
    if name in ("products with the others", "shared maxima", "two outputs"):
        shapes |= {"A": (3, 5)}
    tensors = {
        t.name: np.array([3, 0, 2, 0, 3])
        if t.kind == "int"
        else rng.uniform(0.5, 1.5, shapes[t.name])
        for t in op.inputs
    }
    parameters = {"skip": 3} if op.parameters else {}
    assert_code_is_the_equations(op, None, tensors, parameters)


def each_plain_option(op):
    """Those whose tensors have one index on each axis: no border is crossed."""
    return each_option(op) if is_plain(op) else []


@each_operation(each_plain_option, share=3, turns=2)
def test_the_catalog(op, option):
    case = next(c for c in cases(op) if c.option == option)
    made = sample(op, case)
    assert_code_is_the_equations(op, option, made.tensors, made.parameters)


@pytest.mark.parametrize("position", [-1, 4])
@pytest.mark.parametrize("name", ["rows", "an element of each row", "one position twice"])
def test_a_position_out_of_range_is_an_error(name, position):
    op = derive.parse(ACCESSES[name])
    shapes = {"E": (4, 3), "A": (5, 4), "z": (4,)}
    given = [
        torch.tensor([0, 1, position, 2, 3]) if t.kind == "int" else torch.rand(shapes[t.name])
        for t in op.inputs
    ]
    with pytest.raises((IndexError, RuntimeError), match=r"index|range|bounds"):
        derive.load(op)(*given)


@each_row("name", TEXTS | ACCESSES)
def test_no_tensor_is_subscripted_by_a_tensor(name):
    assert_no_subscript(texts.source(derive.parse((TEXTS | ACCESSES)[name])))


@each_operation(together=True)
def test_no_tensor_of_the_catalog_is_subscripted_by_a_tensor(op):
    assert_no_subscript(written(op), {p.name for p in op.parameters})


def assert_no_subscript(source, numbers=()):
    """x[T] wraps where T is negative; gather, index_select and rt.read_at do not."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Subscript):
            of = ast.unparse(node.value)
            plain = of.endswith(
                ("shape", "needs_input_grad", "_OPTIONS", "inputs", "output", "tuple", "Literal")
            )
            # x[..., ::step] is a slice, whose step is a number.
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            read = [n for i in items if not isinstance(i, ast.Slice) for n in ast.walk(i)]
            # rt.nonnegative(x.shape[1] + index) is a number too.
            bases = [n.value for n in read if isinstance(n, ast.Attribute)]
            names = [n for n in read if isinstance(n, ast.Name) and n not in bases]
            names = [n for n in names if n.id not in numbers]
            assert plain or not names, ast.unparse(node)
