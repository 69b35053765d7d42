"""The reference is the oracle's values with torch's gradients, and shares nothing with the code."""

import ast
import doctest
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from kit.command import ROOT
from kit.each import each_operation, each_row, some_now
from kit.once import sample
from kit.programs import random_program
from kit.slopes import along

from derive import parse
from derive.api import load
from derive.check import oracle, reference
from derive.check.samples import cases
from derive.errors import DeriveError


def given(tensors, dtype=None, grad=False):
    """The arrays as tensors; floats require a gradient if asked to."""
    found = {}
    for name, array in tensors.items():
        t = None if array is None else torch.tensor(array)
        if t is not None and t.is_floating_point():
            t = t.to(dtype or t.dtype).requires_grad_(grad)
        found[name] = t
    return found


def assert_values(op, tensors, parameters):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        want = oracle.run(op, tensors, parameters)
        got = reference.values(op, given(tensors), parameters)
    assert list(got) == list(want)
    for name, array in want.items():
        assert got[name].shape == array.shape, name
        assert got[name].numpy().dtype == array.dtype, name
        np.testing.assert_allclose(got[name].numpy(), array, 1e-9, 1e-11, err_msg=name)


def differences(op, tensors, weights, parameters, name):
    """Central differences, element by element, and what to compare with them as it is."""
    return oracle.gradient(op, tensors, weights, parameters, name), lambda gradient: gradient


def along_a_direction(op, tensors, weights, parameters, name):
    """Central differences along one random direction."""
    way, slope = along(op, tensors, weights, parameters, name)
    return np.asarray(slope), lambda gradient: (gradient * torch.as_tensor(way)).sum()


def assert_gradients(op, tensors, parameters, numeric=differences):
    """Those of a weighted sum of the outputs are central differences."""
    with np.errstate(all="ignore"):
        outputs = oracle.outputs(op, tensors, parameters)
        smooth = {n: a for n, a in outputs.items() if a.dtype == np.float64}
        if not smooth or any(
            (~np.isfinite(a)).any() or (abs(a) > 1e4).any() for a in smooth.values()
        ):
            return
        rng = np.random.default_rng(3)
        weights = {name: rng.uniform(0.5, 1.5, a.shape) for name, a in smooth.items()}
        leaves = given(tensors, grad=True)
        made = reference.values(op, leaves, parameters)
        names = [name for name, t in leaves.items() if t is not None and t.requires_grad]
        got = torch.autograd.grad(
            [made[name] for name in smooth],
            [leaves[name] for name in names],
            [torch.tensor(weights[name]).reshape(made[name].shape) for name in smooth],
            materialize_grads=True,
        )
        for name, gradient in zip(names, got, strict=True):
            want, comparable = numeric(op, tensors, weights, parameters, name)
            size = max(1.0, abs(want).max(initial=0))
            np.testing.assert_allclose(comparable(gradient), want, 1e-5, 1e-6 * size, err_msg=name)


@each_operation(share=3, turns=5)
def test_values_of_the_catalog_are_the_oracles(op):
    for case in cases(op):
        made = sample(op, case)
        assert_values(op, made.tensors, made.parameters)


@each_operation(share=3, turns=2)
def test_gradients_of_the_catalog_are_differences(op):
    for case in cases(op):
        if case.label in ("typical", "without optional tensors", "axes kept"):
            made = sample(op, case)
            try:
                assert_gradients(op, made.tensors, made.parameters, along_a_direction)
            except AssertionError:
                # A kink that one element meets hides the others.
                assert_gradients(op, made.tensors, made.parameters)


@pytest.mark.parametrize(
    "seeds", some_now([range(n, n + 50) for n in range(0, 300, 50)], 2), ids=str
)
def test_values_of_random_programs_are_the_oracles(seeds):
    checked = 0
    for seed in seeds:
        program = random_program(seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                op = parse(program.text)
                # What is only compared with positions holds integers, and the program may not know.
                whole = {t.name for t in op.inputs if t.kind == "int"}
                tensors = {
                    name: x.astype(np.int64) if name in whole and x is not None else x
                    for name, x in program.tensors.items()
                }
                oracle.run(op, tensors, program.parameters)
        except (DeriveError, IndexError):
            continue
        assert_values(op, tensors, program.parameters)
        checked += 1
    assert checked > 40


@pytest.mark.parametrize("seed", some_now(range(400, 430), 15, 2))
def test_gradients_of_random_programs_are_differences(seed):
    """On other values once more where they differ: a kink is not hit twice."""
    program = random_program(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        op = parse(program.text)
    # What is detached counts as constant for the oracle's own differences.
    numeric = differences if program.detached else along_a_direction
    try:
        assert_gradients(op, program.tensors, program.parameters, numeric)
    except AssertionError:
        again = random_program(seed, sample=1)
        assert_gradients(op, again.tensors, again.parameters, numeric)


def gradient(text, **tensors):
    """(value, gradient of its sum in x) of the only output."""
    op = parse(text)
    leaves = {n: torch.tensor(v) for n, v in tensors.items()}
    leaves["x"] = leaves["x"].double().requires_grad_()
    made = reference.values(op, leaves)[op.outputs[0]]
    (found,) = torch.autograd.grad(made.sum(), leaves["x"])
    return made.tolist(), found.tolist()


@each_row(
    "body",
    [
        "where(x[n] > 0, log(x[n]), 0)",
        "[x[n] > 0]*log(x[n])",
        "where(x[n] <= 0, 0, log(x[n]))",
        "where(x[n] > 0 and log(x[n]) < 5, log(x[n]), 0)",
        "sum[m | m == n and x[m] > 0](log(x[m]))",
        "where(not (x[n] <= 0 or log(x[n]) > 5), log(x[n]), 0)",
    ],
)
def test_what_a_condition_excludes_reaches_neither_value_nor_gradient(body):
    text = f"op f(x[n]) -> y; y[n] = {body}"
    values, slopes = gradient(text, x=[-np.inf, 1.0, 0.0, -1.0, 2.0])
    assert values == pytest.approx([0, 0, 0, 0, np.log(2)])
    assert slopes == [0, 1, 0, 0, 0.5]


def test_an_excluded_constant_that_is_infinite_has_no_effect():
    text = "op f(x[n]) -> y; y[n] = where(n != 1, x[n]/(n - 1), x[n])"
    assert gradient(text, x=[2.0, 3.0, 4.0]) == ([-2, 3, 4], [-1, 1, 1])


def test_a_guarded_position_may_be_out_of_range_and_no_other():
    text = "op f(x[n]) -> y; y[n] = where(n >= 1, x[n-1], 0)"
    assert gradient(text, x=[2.0, 3.0, 4.0]) == ([0, 2, 3], [1, 1, 0])
    op = parse("op f(x[v], T[n]) -> y; y[n] = x[T[n]]")
    for wrong in (-1, 3):
        with pytest.raises(IndexError, match=r"x: axis 0: position .* is not in \[0, 3\)"):
            reference.values(op, {"x": torch.ones(3), "T": torch.tensor([0, wrong])})


@each_row(
    "kind, of_nothing",
    [
        *(("sum", 0), ("prod", 1), ("mean", np.nan), ("logsumexp", -np.inf)),
        *(("max", -np.inf), ("amax", -np.inf), ("min", np.inf), ("amin", np.inf)),
    ],
)
def test_a_reduction_of_nothing(kind, of_nothing):
    text = f"op f(x[n,k]) -> y; y[n] = {kind}[k | k < n](x[n,k])"
    values, slopes = gradient(text, x=[[5.0, 7.0, 2.0], [3.0, 1.0, 4.0]])
    assert values == pytest.approx([of_nothing, 3], nan_ok=True)
    assert slopes == [[0, 0, 0], [1, 0, 0]]
    op = parse(f"op f(x[n,k]) -> y; y[n] = {kind}[k](x[n,k])")
    made = reference.values(op, {"x": torch.zeros(2, 0)})["y"]
    np.testing.assert_equal(made.numpy(), np.full(2, of_nothing, np.float32))


@pytest.mark.parametrize(
    ("kind", "slopes"),
    [
        ("max", [0, 1, 0, 0, 0]),
        ("min", [1, 0, 0, 0, 0]),
        ("amax", [0, 0.5, 0.5, 0, 0]),
        ("amin", [0.5, 0, 0, 0.5, 0]),
    ],
)
def test_ties(kind, slopes):
    """The last element has the largest and the smallest value, and is not taken."""
    for last in (9.0, -9.0, float("nan")):
        x = [1.0, 3.0, 3.0, 1.0, last]
        text = f"op f(x[k]) -> y; y = {kind}[k | k < 4](x[k])"
        assert gradient(text, x=x)[1] == slopes
    assert gradient(f"op f(x[k]) -> y; y = {kind}[k](x[k])", x=x[:4])[1] == slopes[:4]


def test_infinite_values_are_told_from_values_that_are_not_taken():
    x = [0.0, -np.inf, -np.inf]
    for kind, slopes in (("max", [0, 1, 0]), ("amax", [0, 0.5, 0.5])):
        text = f"op f(x[k]) -> y; y = {kind}[k | k > 0](x[k])"
        assert gradient(text, x=x) == (-np.inf, slopes)
    op = parse("op f(x[k]) -> i; i = argmax[k | k > 0](x[k])")
    assert reference.values(op, {"x": torch.tensor(x)})["i"] == 1


def test_the_first_winner_over_two_indices_is_row_major():
    text = "op f(x[i,j]) -> y; y = max[j,i](x[i,j])"
    assert gradient(text, x=[[1.0, 5.0, 2.0], [5.0, 0.0, 5.0]])[1] == [[0, 0, 0], [1, 0, 0]]


def test_a_product_with_zeros():
    text = "op f(x[k]) -> y; y = prod[k](x[k])"
    assert gradient(text, x=[2.0, 0.0, 3.0]) == (0, [0, 6, 0])
    assert gradient(text, x=[0.0, 0.0, 3.0]) == (0, [0, 0, 0])


NETWORK = """
op f(x[n,(t d)], w[(t d),j], T[n]: int; size(t)=2) -> i, y
a[n,t,d] = x[n,(t d)]
b[n,(d t)] = a[n,t,d]**2
m[n,0] = mean[t,d](a[n,t,d])
i[n] = argmax[j](w[(0 0),j])
q[n] = w[(1 0),T[n]]
s = detach(sum[n](m[n,0]))
z[n,j] = sum[t,d](b[n,(d t)]*w[(t d),j]) - m[n,0] + q[n]*s
y = sum[n,j](z[n,j]**2)
"""


def network(**more):
    x = torch.arange(1.0, 19.0, dtype=torch.float64).reshape(3, 6) / 7
    w = torch.arange(1.0, 25.0, dtype=torch.float64).reshape(6, 4).sin()
    return {"x": x.requires_grad_(), "w": w.requires_grad_(), "T": torch.tensor([2, 0, 3])}


def test_each_equation_has_the_layout_of_its_left_side():
    made = reference.values(parse(NETWORK), network())
    shapes = {name: tuple(t.shape) for name, t in made.items()}
    assert shapes == {
        "a": (3, 2, 3),
        "b": (3, 6),
        "m": (3, 1),
        "i": (3,),
        "q": (3,),
        "s": (),
        "z": (3, 4),
        "y": (),
    }
    assert made["i"].dtype == torch.int64
    assert all(t.is_contiguous() for t in made.values())


def test_the_gradient_of_every_equation_is_that_of_a_change_of_it():
    """Each equation is replaced by an input of its name, whose gradient by differences it has."""
    op = parse(NETWORK)
    tensors = network()
    made = reference.values(op, tensors)
    names = [n for n, t in made.items() if t.is_floating_point()]
    found = dict(zip(names, torch.autograd.grad(made["y"], [made[n] for n in names]), strict=True))
    later = {
        "z": "y = sum[n,j](z[n,j]**2)",
        "m": "s = detach(sum[n](m[n,0]))\nz[n,j] = sum[t,d](b[n,(d t)]*w[(t d),j]) - m[n,0] + "
        "q[n]*s\ny = sum[n,j](z[n,j]**2)",
        "s": "z[n,j] = sum[t,d](b[n,(d t)]*w[(t d),j]) - m[n,0] + q[n]*s\ny = sum[n,j](z[n,j]**2)",
    }
    heads = {
        "z": "z[n,j]",
        "m": "b[n,(d t)], w[(t d),j], q[n], m[n,o]; size(o)=1, size(t)=2",
        "s": "b[n,(d t)], w[(t d),j], q[n], m[n,o], s; size(o)=1, size(t)=2",
    }
    for name, text in later.items():
        part = parse(f"op g({heads[name]}) -> y\n{text}")
        arrays = {t.name: {**tensors, **made}[t.name].detach().numpy().copy() for t in part.inputs}
        want = oracle.gradient(part, arrays, {"y": np.ones(())}, {}, name)
        np.testing.assert_allclose(found[name], want, 1e-8)


def test_a_copy_is_a_tensor_of_its_own():
    """The gradient of y is not all of that of x, which is read elsewhere too."""
    for axes in ("", "[n]"):
        op = parse(f"op f(x{axes}) -> z; y{axes} = x{axes}; z{axes} = 3*y{axes} + 4*x{axes}")
        x = torch.ones((2,) if axes else (), requires_grad=True)
        made = reference.values(op, {"x": x})
        dy, dx = torch.autograd.grad(made["z"].sum(), [made["y"], x])
        assert (dy == 3).all() and (dx == 7).all()


def test_without_gradients_nothing_requires_one():
    op = parse(NETWORK)
    plain = {name: t.detach() for name, t in network().items()}
    assert not any(t.requires_grad for t in reference.values(op, plain).values())
    with torch.no_grad():
        assert not any(t.requires_grad for t in reference.values(op, network()).values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_results_have_the_dtype_of_the_inputs(dtype):
    op = parse("op f(x[n,k], T[n]: int; a=0.5) -> y; y[n] = mean[k](x[n,k]/3)*T[n]/2*a + n/size(k)")
    made = reference.values(op, {"x": torch.ones(2, 3, dtype=dtype), "T": torch.tensor([1, 2])})
    assert made["y"].dtype == dtype
    assert made["y"].tolist() == pytest.approx([1 / 12, 2 / 12 + 1 / 3], rel=1e-2)


def test_options_and_optional_tensors():
    op = parse(
        "op f(x[n], w[n]=2; reduction=mean|sum) -> mean: m | sum: s\n"
        "s = sum[n](w[n]*x[n])\nm = s/size(n)"
    )
    x = torch.tensor([1.0, 2.0, 3.0])
    assert {n: float(t) for n, t in reference.values(op, {"x": x}).items()} == {"s": 12, "m": 4}
    for how in ({"option": "sum"}, {"parameters": {"reduction": "sum"}}):
        made = reference.values(op, {"x": x, "w": None}, **how)
        assert {n: float(t) for n, t in made.items()} == {"s": 12}
    with pytest.raises(DeriveError, match="reduction must be one of 'mean', 'sum', not 'no'"):
        reference.values(op, {"x": x}, option="no")
    with pytest.raises(
        DeriveError, match=("f has no option 'a', because it has no choice parameter")
    ):
        reference.values(parse("op f(x[n]) -> y; y[n] = x[n]"), {"x": x}, option="a")


def test_wrong_calls():
    op = parse("op f(x[i,j], y[j]; a) -> z; z[i] = sum[j](x[i,j]*y[j])*a")
    x, y = torch.ones(2, 3), torch.ones(4)
    with pytest.raises(ValueError, match=r"y: axis 0 .* has size 4, but x: axis 1 has size 3"):
        reference.values(op, {"x": x, "y": y}, {"a": 1})
    with pytest.raises(TypeError, match="needs the tensor y"):
        reference.values(op, {"x": x}, {"a": 1})
    with pytest.raises(TypeError, match="needs the parameter a"):
        reference.values(op, {"x": x, "y": y[:3]})
    with pytest.raises(TypeError, match="has no parameter b"):
        reference.values(op, {"x": x, "y": y[:3]}, {"a": 1, "b": 2})


def dotted(node):
    """The modules that an import names, those of algebra also as names of their folder."""
    within = "derive.algebra." if getattr(node, "module", "") == "derive.algebra" else ""
    own = getattr(node, "module", None) or node.names[0].name
    return {within + alias.name for alias in node.names} if within else {own}


@pytest.mark.parametrize("name", ["grid", "reference"])
def test_the_reference_shares_nothing_with_the_engine(name):
    tree = ast.parse(Path(ROOT / f"derive/check/{name}.py").read_text(encoding="utf-8"))
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    names = {name for n in imports for name in dotted(n)}
    ours = {n for n in names if n.split(".")[0] == "derive"}
    rooms = {".".join(n.split(".")[:2]) for n in ours if not n.startswith("derive.check")}
    assert rooms <= {"derive"} | {f"derive.{room}" for room in ("algebra", "errors", "notation")}
    own = {n for n in ours if n.startswith("derive.check")}
    assert own <= {"derive.check", "derive.check.grid", "derive.check.lazy"}
    known = {"expr", "functions", "interpret"}
    assert {n for n in names if n.startswith("derive.algebra.")} <= {
        f"derive.algebra.{module}" for module in known
    }


def test_the_examples_run():
    assert doctest.testmod(reference).failed == 0


@pytest.mark.filterwarnings("ignore")
def test_an_equation_that_no_output_needs_is_not_computed():
    """It may read out of range: generated code, loops and torch leave it out alike."""
    op = parse("op f(x[i]) -> y\nz[i] = where(i >= 0, x[2*i], 0)\ny[i] = 2*x[i]")
    x = torch.rand(3, dtype=torch.float64)
    for made in (
        load(op)(x),
        reference.values(op, {"x": x})["y"],
        torch.from_numpy(oracle.outputs(op, {"x": x.numpy()}, {})["y"]),
    ):
        torch.testing.assert_close(made, 2 * x)


def test_a_fixed_size_is_known_beside_an_empty_part():
    op = parse("op f(v[l], r[(l k)]; size(k)=3) -> y\ny[k] = sum[l](r[(l k)]*v[l])")
    for n in (0, 2):
        v, r = torch.rand(n, dtype=torch.float64), torch.rand(3 * n, dtype=torch.float64)
        expected = oracle.outputs(op, {"v": v.numpy(), "r": r.numpy()}, {})["y"]
        torch.testing.assert_close(load(op)(v, r), torch.from_numpy(expected))
