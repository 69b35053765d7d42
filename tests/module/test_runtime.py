"""The runtime of modules: its text, its names, and the copies in a module that stands alone."""

import ast
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from kit.command import ROOT

import derive
from derive import catalog
from derive.memory import imported
from derive.module.runtime import IMPORT, imports_of, missing, plain_runtime, runtime, standalone
from derive.module.templating import template

TREE = ast.parse(runtime())
FUNCTIONS = {n.name: n for n in TREE.body if isinstance(n, ast.FunctionDef)}
MODULE = f'''\
"""f"""

import math

import torch

{IMPORT}


def f(x):
    """Where rt.where is called."""
    return rt.where(x > 0, x, 0) * math.pi
'''


def test_every_file_of_functions_is_part_of_it_and_all_are_described():
    plain = {n.name for n in ast.parse(plain_runtime()).body if isinstance(n, ast.FunctionDef)}
    for path in (ROOT / "templates" / "helpers").glob("*.py"):
        known = plain if path.stem == "plain" else FUNCTIONS
        for n in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(n, ast.FunctionDef):
                assert n.name in known and ast.get_docstring(n), n.name


def test_it_is_as_a_formatter_leaves_it(tmp_path):
    (tmp_path / "_runtime.py").write_text(runtime(), encoding="utf-8")
    for command in (("format", "--check"), ("check",)):
        config = ["--isolated", "--no-cache", "--target-version", "py311"]
        ruff = [sys.executable, "-m", "ruff", *command, *config, str(tmp_path)]
        done = subprocess.run(ruff, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_private_name_of_torch_is_read_in_one_place():
    private = re.compile(r"torch\._C|forward_ad[.,] ?\"?_|_functorch\b")
    own = template("helpers/private_names.py")
    assert len(private.findall(runtime())) == len(private.findall(own)) > 0
    assert not any(private.search(derive.source(op, standalone=False)) for op in some())


def some():
    return map(catalog.find, ("softmax", "layer_norm", "huber_loss", "lp_pool1d"))


def test_no_name_within_a_function_is_that_of_another_definition():
    """Else a copy under another name would read something else."""
    known = {*FUNCTIONS, *(t.id for n in TREE.body if isinstance(n, ast.Assign) for t in n.targets)}
    for name, f in FUNCTIONS.items():
        own = {n.arg for n in ast.walk(f) if isinstance(n, ast.arg | ast.keyword)}
        own |= {
            n.id for n in ast.walk(f) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        assert not own & known, name
    private = {name for name in known if name.startswith("_")}
    assert not {f"_{name}" for name in known - private} & private


def test_a_module_that_stands_alone_has_what_it_calls_and_no_more():
    text = standalone(MODULE)
    defined = {n.name for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}
    assert defined == {"f", "_where", "_keep_positive", "_unrecorded", "_forward_mode"}
    assert "rt." not in text.replace("Where rt.where is called", "")
    assert "import math\n\nimport torch\nfrom torch.autograd import forward_ad\n\n" in text
    x = torch.randn(9)
    assert torch.equal(imported("f", text).f(x), torch.where(x > 0, x, 0) * torch.pi)
    assert standalone(text) == text


def test_an_import_at_the_end_of_a_module_stays_there():
    """It was taken for the last of those at the top, and what is between was lost."""
    text = standalone(MODULE + "\n\nimport os\n")
    assert text == standalone(MODULE) + "\n\nimport os\n"


@pytest.mark.parametrize("name", ["_where", "_keep_positive"])
def test_a_copy_takes_no_name_of_the_module(name):
    text = MODULE.replace("def f(x):", f"def {name}(x):\n    return x\n\n\ndef f(x):")
    text = standalone(text.replace("* math.pi", f"* {name}(2)"))
    assert f"def _rt{name}(" in text and f"def {name}(x):" in text
    assert imported("f", text).f(torch.ones(3)).tolist() == [2, 2, 2]


def test_what_a_runtime_lacks_is_told():
    text = MODULE.replace("rt.where(x > 0, x, 0)", "rt.there(x)")
    with pytest.raises(KeyError, match="there"):
        standalone(text)
    assert missing(text, runtime()) == ["there"] and missing(MODULE, runtime()) == []
    assert missing(MODULE, "") == ["where"]
    with pytest.raises(AttributeError, match="has no there: it is older than a module"):
        imported("_runtime", runtime()).there(1)


def test_the_runtime_beside_a_module_gives_the_copies():
    own = "def where(mask, x, y):\n    return x - 1\n\n\ndef other():\n    return 1\n"
    text = standalone(MODULE, own)
    assert "def _where(mask, x, y):\n    return x - 1\n" in text and "other" not in text


def test_an_operation_called_rt():
    op = derive.parse("op rt(a[n], x[n]) -> y\ny[n] = sigmoid(a[n])*x[n]")
    text = derive.source(op, standalone=False)
    assert text.count(IMPORT) > 1
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    for made in (standalone(text), derive.source(op)):
        assert IMPORT not in made
        assert torch.autograd.gradcheck(imported("rt", made).rt, (x, x.detach() + 1))


def test_a_tensor_called_rt():
    text = "op f(rt[n], x[n]) -> y\ny[n] = sigmoid(rt[n])*x[n]"
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(derive.load(derive.parse(text)), (x, x.detach() + 1))


@pytest.mark.parametrize("shape", [(), (4,), (2, 7), (0, 3)])
@pytest.mark.parametrize("dim", [1, -2])
def test_positions_may_have_any_number_of_axes(shape, dim):
    """Read and added at along the middle axis, against NumPy's take and add.at."""
    rt = imported("_runtime", runtime())
    x, index = torch.rand(2, 5, 3), torch.randint(5, shape)
    y = torch.rand(2, *shape, 3)
    assert np.array_equal(rt.index_select(x, dim, index), np.take(x.numpy(), index.numpy(), 1))
    want = x.numpy().copy()
    np.add.at(np.moveaxis(want, 1, 0), index.numpy(), np.moveaxis(2 * y.numpy(), 0, -2))
    assert np.allclose(rt.index_add(x, dim, index, y, alpha=2), want, atol=1e-6)
    with torch.no_grad():
        assert rt.index_add_(x, dim, index, y, alpha=2) is x
    assert np.allclose(x, want, atol=1e-6)


def test_imports_are_of_what_the_code_reads():
    assert imports_of(["x = math.pi"]) == ["import math"]
    assert imports_of(["with forward_ad.dual_level():", "rt.apply(A)", "torch.exp(x)"]) == [
        *("import torch", "from torch.autograd import forward_ad", "", IMPORT)
    ]
    assert imports_of(["def f(r: Literal[1]) -> int:"]) == ["from typing import Literal"]
    assert imports_of(["art.x, torched"]) == []


PRIVATE = (
    "_are_functorch_transforms_active",
    "_is_any_autocast_enabled",
    "_current_level",
    "is_legacy_batchedtensor",
    '"apply"',
)
GONE = {'"apply"': '"gone"'}


@pytest.mark.parametrize("name", PRIVATE)
def test_without_a_private_name_of_torch_all_is_right(name):
    assert runtime().count(name) == 1
    text = derive.source(catalog.find("layer_norm"), standalone=False)
    text = standalone(text, runtime().replace(name, GONE.get(name, "gone")))
    f = imported("layer_norm", text).layer_norm
    given = [torch.rand(n, dtype=torch.float64, requires_grad=True) for n in ((3, 4), (4,), (4,))]
    assert torch.autograd.gradcheck(f, given, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(f, given)
    x, w, b = (t.detach() for t in given)
    each = torch.func.vmap(torch.func.grad(lambda x: f(x, w, b).square().sum()))(x)
    whole = torch.func.grad(lambda x: f(x, w, b).square().sum())(x)
    torch.testing.assert_close(each, whole)


def test_without_nested_forward_mode_an_error_says_so():
    shared = runtime().replace("_set_fwd_grad_enabled", "_gone")
    with pytest.raises(NotImplementedError, match="no nested forward mode"):
        imported("_runtime", shared).in_forward_mode()


def test_before_torch_2_13_a_function_stays_outside_of_a_compiled_graph():
    # torch 2.11 gives zeros there: the forward ends with a conversion to the dtype it has.
    shared = runtime().replace('torch.__version__ < "2.13"', "True")
    text = derive.source(catalog.find("exp"), standalone=False)
    f = imported("exp", standalone(text, shared)).exp
    x = torch.randn(5, requires_grad=True)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(f, backend="eager", fullgraph=True)(x)
    torch.compiler.reset()
    (gradient,) = torch.autograd.grad(torch.compile(f, backend="eager")(x).sum(), x)
    torch.testing.assert_close(gradient, x.exp())
