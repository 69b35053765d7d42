"""Blocks and what is saved: asked for on the command line, and remembered by the module."""

from pathlib import Path

import pytest
from kit.command import derive

from derive import DeriveError, parse, source
from derive.command.module_options import scheduled
from derive.module.docstrings import LEAST, module_style

SPEC = "op total(x[n,d], w[d]) -> t\nt = sum[n,d](tanh(x[n,d]*w[d]))\n"


def test_a_module_remembers_its_index_until_another_is_asked_for(tmp_path: Path):
    (tmp_path / "a.derive").write_text(SPEC)

    def run(*arguments: str) -> str:
        done = derive(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return (tmp_path / "generated/total.py").read_text()

    made = run("generate", "a.derive", "--no-verify", "--blocks", "n")
    assert "\nComputed in blocks of index n.\n" in made
    run("check", "a.derive")
    assert run("generate", "a.derive", "--no-verify") == made
    plain = run("generate", "a.derive", "--no-verify", "--blocks", "total=")
    assert "blocks" not in plain


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["n"], "several operations are selected"),
        (["c=n"], "c is not one of the selected operations"),
        (["a=n,m"], "give exactly one index for a"),
        (["a=n", "a=m"], "give exactly one index for a"),
    ],
)
def test_what_is_no_schedule(given, said):
    with pytest.raises(DeriveError, match=said):
        scheduled(given, ["a", "b"])


def test_the_index_of_one_of_several():
    assert scheduled(["a=n", "b="], ["a", "b"]) == {"a": "n", "b": None}
    assert scheduled(["n"], ["a"]) == {"a": "n"}


def test_a_module_remembers_what_it_saves(tmp_path: Path):
    text = (
        "op f(x[n,k], w[k,m]) -> y\nh[n,m] = sum[k](x[n,k]*w[k,m])\ny[n,m] = tanh(h[n,m])*h[n,m]\n"
    )
    (tmp_path / "a.derive").write_text(text)

    def run(*arguments: str) -> str:
        done = derive(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return (tmp_path / "generated/f.py").read_text()

    plain = run("generate", "a.derive", "--no-verify")
    assert "h = ctx.saved_tensors" in plain
    least = run("generate", "a.derive", "--no-verify", "--save", "least")
    assert "h = ctx.saved_tensors" not in least and f"\n{LEAST}\n" in least
    run("check", "a.derive")
    assert run("generate", "a.derive", "--no-verify") == least
    assert run("generate", "a.derive", "--no-verify", "--save", "balanced") == plain
    run("generate", "a.derive", "--no-verify", "--save", "least")
    assert LEAST not in run("generate", "a.derive", "--no-verify", "--blocks", "n")


def test_a_module_remembers_its_style(tmp_path: Path):
    (tmp_path / "a.derive").write_text("op f(x[n]) -> y; y[n] = tanh(x[n])\n")

    def run(*arguments: str) -> str:
        done = derive(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return (tmp_path / "generated/f.py").read_text()

    plain = run("generate", "a.derive", "--style", "plain")
    assert module_style(plain) == "plain"
    run("check", "a.derive")
    assert run("generate", "a.derive", "--no-verify") == plain
    changed = run("generate", "a.derive", "--no-verify", "--style", "production")
    assert module_style(changed) == "production"


def test_what_is_saved_is_one_of_two():
    op = parse(SPEC)
    with pytest.raises(DeriveError, match="one of 'balanced', 'least'"):
        source(op, save="most")
    with pytest.raises(DeriveError, match="omit save="):
        source(op, "n", "least")
