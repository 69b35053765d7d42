"""Every error of derive has a kind, every kind a code, and every code a section of the guide.

`test_documents` runs the examples of the sections; here they are held against their code.
"""

import ast
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from kit.command import ROOT
from kit.documents import Fence, fences
from kit.each import each_row

import derive
from derive.errors import KINDS, DeriveError, LoweringError, SpecError, code_of

PAGE = ROOT / "derive" / "docs" / "error-codes.md"
RAISING = sorted(p for p in (ROOT / "derive").rglob("*.py") if "examples" not in p.parts)
MAKERS = {"fail": 1, "_token_error": 2}
"""Functions that raise or return a SpecError, and the place of the kind among their arguments."""


def sections() -> dict[str, tuple[str, list[Fence]]]:
    """Code -> title and fences, in the order of the page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    heads = [
        (n, m[1], m[2])
        for n, line in enumerate(lines, 1)
        if (m := re.match(r"## (D\d+): (.+)", line))
    ]
    ends = [n for n, _, _ in heads[1:]] + [len(lines) + 1]
    every = list(fences(PAGE))
    return {
        code: (title, [f for f in every if start < f.line < end])
        for (start, code, title), end in zip(heads, ends, strict=True)
    }


def codes_in(fence: Fence) -> set[str]:
    """The codes of the errors that an output shows, a page that `derive explain` prints aside."""
    return set(re.findall(r"^\S.* \[(D\d+)\]$", fence.text, flags=re.MULTILINE))


def test_the_page_has_a_section_for_each_kind_in_order():
    words = [f"{code_of(kind)}: {kind.replace('-', ' ')}" for kind in KINDS]
    heads = [f"{code}: {title.lower()}" for code, (title, _) in sections().items()]
    assert heads == words
    assert [code_of(kind) for kind in KINDS] == [f"D{n:03}" for n in range(1, len(KINDS) + 1)]


@each_row("code", sections() if PAGE.exists() else ())
def test_the_example_has_this_code_and_the_mended_one_has_none(code):
    _, own = sections()[code]
    if code == code_of("internal-error"):
        assert not own  # a known one would be mended
        return
    wrong = [n for n, fence in enumerate(own) if codes_in(fence)]
    assert wrong, "no example shows the code"
    assert set().union(*map(codes_in, own)) == {code}
    assert wrong[-1] < len(own) - 1, "the mended example is missing"


@cache
def nodes(path: Path) -> Sequence[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def kinds_of_classes() -> Mapping[str, ast.expr | None]:
    """Each class of errors of derive with the kind that all of its errors have, or None."""
    found: dict[str, ast.expr | None] = {"DeriveError": None}
    for node in (n for path in RAISING for n in nodes(path) if isinstance(n, ast.ClassDef)):
        bases = [b.id for b in node.bases if isinstance(b, ast.Name) and b.id in found]
        if bases:
            own = [
                s
                for s in node.body
                if isinstance(s, ast.Assign) and ast.unparse(s).startswith("kind = ")
            ]
            found[node.name] = own[0].value if own else found[bases[0]]
    return found


def made(path: Path) -> Iterator[tuple[str, ast.expr | None]]:
    """The place of each call that makes an error of derive, with its kind."""
    for node in nodes(path):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        if name in MAKERS and "notation" in path.parts and len(node.args) > MAKERS[name]:
            kind = node.args[MAKERS[name]]
        elif name in kinds_of_classes():
            own = next((k.value for k in node.keywords if k.arg == "kind"), None)
            kind = own or kinds_of_classes()[name]
        else:
            continue
        yield f"{path.relative_to(ROOT)}:{node.lineno}", kind


def test_every_error_has_a_kind_where_it_is_made():
    """A word of the list, or that of the error that it tells more of."""
    found = [pair for path in RAISING for pair in made(path)]
    assert len(found) > 300
    without = [
        place
        for place, kind in found
        if not (isinstance(kind, ast.Constant) and kind.value in KINDS)
        and (kind is None or ast.unparse(kind) not in ("kind", "error.kind"))
    ]
    assert not without


def test_every_kind_is_the_one_of_some_error():
    used = {kind.value for p in RAISING for _, kind in made(p) if isinstance(kind, ast.Constant)}
    assert used == set(KINDS)


def test_the_code_ends_the_first_line():
    error = LoweringError("f: no torch code\nin\n  y = x")
    assert str(error) == "f: no torch code [D047]\nin\n  y = x"
    assert (error.text, error.code) == ("f: no torch code\nin\n  y = x", "D047")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_error_of_others_has_no_code():
    error = DeriveError("the file is empty")
    assert (str(error), error.code, error.kind) == ("the file is empty", None, None)


def test_an_error_that_is_told_with_its_place_has_one_code(tmp_path):
    path = tmp_path / "one.derive"
    path.write_text("y[i] = exq(x[i])")
    with pytest.raises(SpecError) as caught:
        derive.read(path)
    assert str(caught.value).count("[D") == 1
    assert (caught.value.code, caught.value.line) == ("D009", 1)
    assert "[D" not in caught.value.message
