"""Comments that excuse findings, the pages of rules, and files."""

import re

import pytest
from kit.command import ROOT
from kit.each import each_row

from derive.linting.lint import RULES, lint, page, python_files

CHANGED = """\
import torch
class A(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x
    @staticmethod
    def backward(ctx, g):
        return g.mul_(2){}
"""
EXCUSED = (
    "# noqa",
    "# noqa: DRV303",
    "#NOQA:drv303",
    "# noqa: E501, DRV303",
    "# x # noqa : DRV303",
)
SAID = ("", "# noqa: DRV304", "# noqa: E501", "# no", "# noqa: DRV30")


@pytest.mark.parametrize("comment", EXCUSED)
def test_a_comment_excuses_a_line(comment):
    assert not lint(CHANGED.format(f"  {comment}")).findings


@pytest.mark.parametrize("comment", SAID)
def test_another_comment_does_not(comment):
    (finding,) = lint(CHANGED.format(f"  {comment}")).findings
    assert finding == (8, 16, "DRV303", finding.message, "A")


def test_chosen_codes():
    assert lint(CHANGED.format(""), ["DRV303"]).findings
    assert not lint(CHANGED.format(""), ["DRV304"]).findings


def test_strings_with_invalid_escapes_are_no_warning():
    assert lint(CHANGED.format("") + '"\\d"\n').findings


@each_row("code", RULES)
def test_the_examples_of_a_page(code):
    """The first is wrong, as the console shows; the last says what mends it."""
    wrong, console, mend = re.findall(r"```\w+\n(.*?)```", page(code), re.DOTALL)
    name = wrong.split("\n")[0].removeprefix("# ")
    found = [f"{name}:{f.line}:{f.column}: {f.code} {f.message}" for f in lint(wrong).findings]
    assert found == console.splitlines()[1:-1]
    assert [f.split()[1] for f in found] == [code]
    assert not lint(patched(wrong, mend)).findings


def patched(text: str, mend: str) -> str:
    """The text with the changes of a diff, whose hunks begin behind the first and at each @@."""
    for hunk in mend.split("@@\n"):
        lines = [(line[:1], line[1:]) for line in hunk.splitlines(keepends=True)]
        old, new = ("".join(rest for sign, rest in lines if sign != gone) for gone in "+-")
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


@each_row("code", RULES)
def test_the_guide_lists_the_rule(code):
    guide = (ROOT / "derive" / "docs" / "lint.md").read_text(encoding="utf-8")
    title = page(code).split("\n")[0].removeprefix(f"{code}: ")
    assert title == RULES[code].__doc__
    assert f"| [`{code}`](#{code.lower()}) | {title} |" in guide


def test_no_rule_is_missing_from_the_guide():
    guide = (ROOT / "derive" / "docs" / "lint.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (DRV\d+)$", guide, re.MULTILINE) == list(RULES)


def test_the_files_of_a_folder(tmp_path):
    for name in ("b.py", "a.py", "in/c.py", "in/d.txt", ".venv/e.py", "build/f.py", "old/g.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = python_files([tmp_path / "b.py", tmp_path], ["old"])
    assert [str(f.relative_to(tmp_path)) for f in found] == ["b.py", "a.py", "in/c.py"]


def test_patterns_exclude_files(tmp_path):
    for name in ("a.py", "a_test.py", "in/b.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [f.name for f in python_files([tmp_path], ["*_test.py", "*/in/*"])] == ["a.py"]


def test_derive_itself_has_no_finding():
    for file in python_files([ROOT / "generated" / "softmax.py", ROOT / "derive" / "examples"]):
        if file.parent.name == "found":
            continue  # mistakes on purpose
        assert not lint(file.read_text(encoding="utf-8")).findings
