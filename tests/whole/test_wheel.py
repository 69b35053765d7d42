"""The wheel: built, installed in an environment of its own, and used there."""

import site
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from kit.command import ROOT, run
from kit.pages import SPECS, broken, parsed

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _without_checkout(monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", out, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_carries_templates_grammar_and_generated_modules(wheel):
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for path in (*(ROOT / "templates").glob("**/*.*"), *(ROOT / "generated").glob("*.py")):
        assert f"derive/{path.relative_to(ROOT)}" in names
    data = ("notation/notation.lark", "catalog/contents.json", "py.typed")
    assert {f"derive/{name}" for name in data} <= names
    for path in (ROOT / "derive" / "examples").glob("*.*"):
        assert f"derive/examples/{path.name}" in names
    assert not [n for n in names if "__pycache__" in n or n.startswith(("tests/", "generated/"))]


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; dependencies are lent by this one, derive and torch not."""
    home = tmp_path_factory.mktemp("environment")
    assert run(sys.executable, "-m", "venv", home).returncode == 0
    found = home / "bin" / "python"
    done = run(found, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel)
    assert done.returncode == 0, done.stderr
    lent = home / "lent"
    lent.mkdir()
    for folder in site.getsitepackages():
        for path in Path(folder).iterdir():
            if not path.name.startswith(("derive", "torch", "_derive")) and path.suffix != ".pth":
                (lent / path.name).symlink_to(path)
    (packages,) = (home / "lib").glob("python*/site-packages")
    (packages / "lent.pth").write_text(f"{lent}\n")
    return found


def test_an_installed_wheel_shows_generates_and_checks(python, tmp_path):
    """In an empty folder, without torch."""
    assert run(python, "-c", "import torch", cwd=tmp_path).returncode == 1
    where = run(python, "-c", "import derive; print(derive.__file__)", cwd=tmp_path).stdout
    assert Path(where.strip()).is_relative_to(python.parent.parent)
    script = python.parent / "derive"
    shown = run(script, "show", "softmax", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "grad_input[*p,k,*q] = S[*p,k,*q]·(G[*p,k,*q]" in shown.stdout
    (tmp_path / "mine.derive").write_text("op scaled(x[n]) -> y\ny[n] = 2*x[n]**2\n")
    args = ("mine.derive", "--out", "gen")
    made = run(script, "generate", *args, "--no-verify", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "def scaled(x: torch.Tensor)" in (tmp_path / "gen/scaled.py").read_text()
    checked = run(script, "check", *args, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    listed = run(python, "-m", "derive", "list", cwd=tmp_path)
    assert "softmax" in listed.stdout


def test_verification_without_torch_says_what_to_install(python, tmp_path):
    (tmp_path / "mine.derive").write_text("op scaled(x[n]) -> y\ny[n] = 2*x[n]**2\n")
    made = run(python.parent / "derive", "generate", "mine.derive", cwd=tmp_path)
    assert made.returncode == 2
    assert "derive-backward[torch]" in made.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.derive"]


def test_an_example_without_torch_says_what_to_install(python, tmp_path):
    done = run(python, "-m", "derive.examples.makemore", cwd=tmp_path)
    assert done.returncode == 2
    assert "derive-backward[examples]" in done.stderr
    assert not [*tmp_path.iterdir()]


def test_the_generated_modules_are_importable(python, tmp_path):
    code = (
        "import importlib.util as u\n"
        "assert u.find_spec('derive.generated.softmax').origin.endswith('softmax.py')\n"
    )
    for interpreter in (python, Path(sys.executable)):
        done = run(interpreter, "-c", code, cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_an_installed_wheel_writes_a_site_and_the_guide(python, tmp_path):
    script = python.parent / "derive"
    (tmp_path / "own.derive").write_text(SPECS)
    done = run(script, "site", "out", "--specs", "own.derive", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    guide = run(script, "docs", "--print", cwd=tmp_path, DERIVE_CACHE=str(tmp_path / "cache"))
    assert Path(guide.stdout.strip()).is_relative_to(tmp_path / "cache")
    for out in (tmp_path / "out", tmp_path / "cache" / "docs"):
        files = {p.relative_to(out).as_posix(): p for p in out.rglob("*.html")}
        pages = {address: parsed(path.read_text("utf-8")) for address, path in files.items()}
        assert "guide/notation.html" in pages and broken(out, pages) == []
