"""The catalog is data, and each of its operations is derived in no time."""

import subprocess
import sys
import warnings
from cProfile import Profile
from pathlib import Path

import pytest
from golden import contents
from kit.each import each_operation, each_row
from kit.shared import anew

import derive.catalog
from derive import catalog
from derive.api import costs, derivation, source
from derive.command.lines import warnings_of
from derive.notation.operation import options
from derive.pipeline import derive_option

FOLDER = Path(derive.catalog.__file__).parent
FAMILIES = sorted(FOLDER.glob("*.derive"))


def test_the_table_names_every_file_and_every_operation_in_order():
    assert sorted(catalog.FAMILIES) == [path.stem for path in FAMILIES]
    assert [op.name for op in catalog.operations()] == list(catalog.names())


def test_the_readme_counts_the_operations():
    text = (FOLDER.parents[1] / "README.md").read_text(encoding="utf-8")
    assert f"checks the {len(catalog.names())} operations of the catalog" in text


def test_the_contents_are_what_is_made_of_the_files():
    renew = "to renew them: python tests/golden.py --write"
    assert catalog.CONTENTS.read_text(encoding="utf-8") == contents(), renew


@pytest.mark.parametrize("path", FAMILIES, ids=lambda path: path.stem)
def test_a_family_that_is_as_it_was_need_not_be_read(path, tmp_path):
    assert [line["name"] for line in catalog.lines_of(path)] == list(catalog.FAMILIES[path.stem])
    changed = tmp_path / path.name
    changed.write_text(path.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    assert catalog.lines_of(changed) is None
    assert catalog.lines_of(tmp_path / "missing.py") is None


def test_names_are_unique():
    assert len(set(catalog.names())) == len(catalog.names())


def test_an_operation_is_found_by_name():
    assert [catalog.find(name).name for name in catalog.names()] == list(catalog.names())


def test_an_unknown_name_is_not_found():
    assert catalog.find("no_such_operation") is None


def test_only_the_family_of_the_operation_is_read():
    code = (
        "import pathlib, sys; read = []\n"
        "class Watched(type(pathlib.Path())):\n"
        "    def read_text(self, *args, **kwargs):\n"
        "        read.append(self.name)\n"
        "        return super().read_text(*args, **kwargs)\n"
        "from derive.notation import specification; specification.Path = Watched\n"
        "from derive import catalog; catalog.find('matmul')\n"
        "print(read)\n"
        "assert not {'torch', 'sympy', 'numpy'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['matrix.derive']"


@each_row("path", FAMILIES)
def test_a_family_is_laid_out(path):
    """Each file starts with its subject; operations stand apart; no line is longer than a page."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert all(len(line) <= 104 and line == line.rstrip() for line in text.split("\n"))
    for paragraph in text.rstrip("\n").split("\n\n")[1:]:
        lines = [line for line in paragraph.split("\n") if not line.startswith("#")]
        assert not lines or lines[0].startswith("op "), paragraph
        assert sum(line.startswith("op ") for line in lines) == bool(lines), paragraph


@each_operation(together=True)
def test_every_floating_input_has_a_gradient(op):
    floating = [tensor.name for tensor in op.inputs if tensor.kind == "float"]
    for option, _ in options(op):
        derived = derive_option(op, option)
        assert [derived.lets.display_name(a.tensor) for a in derived.backward.gradients] == floating
        assert list(derivation(op, option).gradients) == floating


FORMULAS = {
    "tanh": {"input": "G[*p]·(1 − F[*p]²)"},
    "linear": {
        "input": "Σⱼ G[*b,j]·weight[j,k]",
        "weight": "Σ[*b] G[*b,j]·input[*b,k]",
        "bias": "Σ[*b] G[*b,j]",
    },
    "embedding": {"weight": "Σ[*p] δ[v,input[*p]]·G[*p,d]"},
    "flatten": {"input": "G[*p,(t d)]"},
    "unflatten": {"input": "G[*p,t,d]"},
    "concat": {"A": "G[*p,k,*q]", "B": "G[*p,l + size(k),*q]"},
    "batch_norm": {
        "input": "weight[c]·(G[n,c,*q] − xhat[n,c,*q]/(size(n)·size(q) − correction)"
        "·Σ[n′,*q′] G[n′,c,*q′]·xhat[n′,c,*q′] − 1/(size(n)·size(q))·Σ[n′,*q′] G[n′,c,*q′])"
        "/√(var[c] + eps)",
        "weight": "Σ[n,*q] G[n,c,*q]·xhat[n,c,*q]",
        "bias": "Σ[n,*q] G[n,c,*q]",
    },
    "layer_norm": {
        "input": "(G[*p,*s]·weight[*s] − xhat[*p,*s]/size(s)"
        "·Σ[*s′] G[*p,*s′]·weight[*s′]·xhat[*p,*s′] − 1/size(s)·Σ[*s′] G[*p,*s′]·weight[*s′])"
        "/√(var[*p] + eps)",
        "weight": "Σ[*p] G[*p,*s]·xhat[*p,*s]",
        "bias": "Σ[*p] G[*p,*s]",
    },
    "rms_norm": {
        "input": "rstd[*p]·(G[*p,*s]·weight[*s] − input[*p,*s]·rstd[*p]²/size(s)"
        "·Σ[*s′] G[*p,*s′]·input[*p,*s′]·weight[*s′])",
        "weight": "Σ[*p] G[*p,*s]·input[*p,*s]·rstd[*p]",
    },
    "cross_entropy": {
        "input": "[target[n,*q] ≠ ignore_index]·G·(exp(F[n,c,*q])·((1 − label_smoothing)"
        "·weight[target[n,*q]] + label_smoothing/size(c)·Σ[c′] weight[c′])"
        " − δ[c,target[n,*q]]·(1 − label_smoothing)·weight[c]"
        " − label_smoothing·weight[c]/size(c))"
        "/count",
        "weight": "−G·(average·Σ[n,*q | target[n,*q] ≠ ignore_index] δ[c,target[n,*q]]"
        " + (1 − label_smoothing)·Σ[n,*q | target[n,*q] ≠ ignore_index] δ[c,target[n,*q]]"
        "·F[n,c,*q]"
        " + label_smoothing/size(c)·Σ[n,*q | target[n,*q] ≠ ignore_index] F[n,c,*q])"
        "/count",
    },
    "lora_linear": {
        "low": "alpha/size(r)·Σⱼ G[*b,j]·lora_B[j,r]",
        "input": "Σⱼ G[*b,j]·weight[j,k] + Σᵣ grad_low[*b,r]·lora_A[r,k]",
        "weight": "Σ[*b] G[*b,j]·input[*b,k]",
        "lora_A": "Σ[*b] grad_low[*b,r]·input[*b,k]",
        "lora_B": "alpha/size(r)·Σ[*b] G[*b,j]·low[*b,r]",
        "bias": "Σ[*b] G[*b,j]",
    },
    "lsq_quantize": {
        "input": "[qmin ≤ input[*p]/s ≤ qmax]·G[*p]",
        "step": "gradient_scale·(Σ[*p] G[*p]·round(v[*p])"
        " − 1/s·Σ[*p | qmin ≤ input[*p]/s ≤ qmax] G[*p]·input[*p])",
    },
    "barlow_twins_loss": {
        "c": "2·G·(weight·[i ≠ j]·c[i,j] + δ[i,j]·(c[i,i] − 1))",
        "first": "(Σᵢ′ grad_c[i,i′]·y[n,i′] − x[n,i]·Σᵢ′ grad_c[i,i′]·c[i,i′])"
        "/(size(n)·√(eps + 1/size(n)·Σₙ′ a[n′,i]²))",
        "second": "(Σᵢ′ grad_c[i′,i]·x[n,i′] − y[n,i]·Σᵢ′ grad_c[i′,i]·c[i′,i])"
        "/(size(n)·√(eps + 1/size(n)·Σₙ′ b[n′,i]²))",
    },
    "gaussian_crps": {
        "loc": "−G·erf(z[*p]/√2)/size(p)",
        "scale": "G·(√2·exp(−z[*p]²/2) − 1)/(√π·size(p))",
        "target": "G·erf(z[*p]/√2)/size(p)",
    },
    "softmax_regression": {
        "logits": "G_cost·(exp(F[n,c]) − δ[c,targets[n]])/size(n) + G_logits[n,c]",
        "features": "Σ[c] grad_logits[n,c]·weight[c,d]",
        "weight": "Σₙ grad_logits[n,c]·features[n,d]",
        "bias": "Σₙ grad_logits[n,c]",
    },
}
"""What an expert would write: all that is kept on the way, and the gradient of each input."""


@each_row("name", FORMULAS)
def test_the_gradients_are_those_of_an_expert(name):
    derived = derivation(catalog.find(name))
    formulas = [*derived.adjoints, *derived.gradients.values()]
    found = dict(str(formula).split(" = ", 1) for formula in formulas)
    assert {left.split("[")[0]: right for left, right in found.items()} == {
        f"grad_{tensor}": right for tensor, right in FORMULAS[name].items()
    }


@each_operation(share=15, turns=3)
def test_an_operation_is_derived_and_emitted_in_so_many_calls(op):
    """Calls, which are as many on any machine; a million take about 0.3 s on a slow one.

    What a process does once, such as reading kernels and templates, is not counted: where it is in
    the first count, the second is without it.
    """
    most = 2_500_000
    assert calls(op) < most or calls(op) < most


def calls(op):
    profile = Profile()
    with anew():
        profile.runcall(source, op)
    return sum(entry.callcount for entry in profile.getstats())


@each_operation(together=True)
def test_an_operation_is_derived_without_warnings(op):
    """Neither of what stands in the equations nor of the axes of what is computed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [text for option, cost in costs(op) for text in warnings_of(op, option, cost)]
    assert found == []
