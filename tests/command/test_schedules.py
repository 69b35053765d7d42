"""An index taken in blocks: asked for on the command line, and remembered by the module."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.command import derive

from derive import DeriveError
from derive.command.schedules import scheduled

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
        (["n"], "of which operation"),
        (["c=n"], "there is no operation c"),
        (["a=n,m"], "one index of a"),
        (["a=n", "a=m"], "one index of a"),
    ],
)
def test_what_is_no_schedule(given, said):
    with pytest.raises(DeriveError, match=said):
        scheduled(given, ["a", "b"])


def test_the_index_of_one_of_several():
    assert scheduled(["a=n", "b="], ["a", "b"]) == {"a": "n", "b": None}
    assert scheduled(["n"], ["a"]) == {"a": "n"}
