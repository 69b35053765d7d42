"""The `_runtime.py` beside modules: written with them, compared by ``check``, or not there."""

import json
import sys
from importlib import import_module, invalidate_caches
from pathlib import Path
from types import ModuleType

import pytest
import torch  # noqa: F401 (a module imported alone must not import it a second time)
from kit.command import derive

from derive import parse, source
from derive.module.runtime import IMPORT, runtime

SPEC = (
    "op scaled(x[n], w[n]) -> y\ny[n] = x[n]*exp(w[n])\n\n"
    "op total(x[n]) -> t\nt = sum[n](exp(x[n]))\n"
)
TABLE = '[tool.derive]\nspecs = ["ops.derive"]\nout = "gen"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(TABLE)
    (tmp_path / "ops.derive").write_text(SPEC)
    assert derive("generate", "--no-verify", cwd=tmp_path).returncode == 0
    return tmp_path


def held(project: Path) -> dict[str, str]:
    return {p.name: p.read_text(encoding="utf-8") for p in (project / "gen").iterdir()}


def differences(project: Path, *args: str) -> dict[str, str]:
    said = json.loads(derive("check", "--json", *args, cwd=project).stdout)
    return {Path(d["file"]).name: d["kind"] for d in said["differences"]}


def mended(project: Path, *args: str) -> bool:
    assert derive("generate", "--no-verify", *args, cwd=project).returncode == 0
    return derive("check", *args, cwd=project).returncode == 0


def imported(folder: Path, name: str) -> ModuleType:
    """A module as it is imported where nothing of the folder was imported before."""
    invalidate_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        before = set(sys.modules)
        try:
            return import_module(name)
        finally:
            for new in set(sys.modules) - before:
                del sys.modules[new]


def test_it_is_written_whole_beside_the_modules(project):
    files = held(project)
    assert files["_runtime.py"] == runtime()
    assert IMPORT in files["scaled.py"] and "def _apply" not in files["scaled.py"]
    assert callable(imported(project, "gen.scaled").scaled)
    assert callable(imported(project, "gen.total").total)


def test_one_operation_is_generated_with_all_of_it(project):
    (project / "gen/_runtime.py").unlink()
    assert differences(project) == {"_runtime.py": "missing"}
    assert derive("generate", "--no-verify", "scaled", cwd=project).returncode == 0
    assert derive("check", cwd=project).returncode == 0


def test_edited_by_hand(project):
    path = project / "gen/_runtime.py"
    path.write_text(runtime().replace("def apply(", "def applied("))
    assert differences(project) == {"_runtime.py": "differs"}
    assert mended(project)


def test_a_file_of_a_person_stays(project):
    path = project / "gen/_runtime.py"
    path.write_text("x = 1\n")
    assert differences(project) == {"_runtime.py": "foreign"}
    done = derive("generate", "--no-verify", cwd=project)
    assert done.returncode == 2 and "gen/_runtime.py is a file that derive did not" in done.stderr
    assert path.read_text() == "x = 1\n"


def test_a_project_of_modules_alone_is_mended_by_one_generate(project):
    """As derive wrote them before there was a runtime."""
    (project / "gen/_runtime.py").unlink()
    for op in SPEC.split("\n\n"):
        made = parse(op)
        (project / f"gen/{made.name}.py").write_text(source(made))
    done = derive("check", cwd=project)
    assert done.returncode == 1
    assert "missing: gen/_runtime.py" in done.stdout
    said = "it has copies of functions of _runtime.py, as before or with --standalone"
    assert f"differs: gen/scaled.py ({said})" in done.stdout
    assert "to fix: derive generate\n" in done.stdout
    assert mended(project) and imported(project, "gen.scaled")


def test_modules_that_stand_alone(project):
    assert mended(project, "--standalone")
    files = held(project)
    assert set(files) == {"__init__.py", "scaled.py", "total.py"}
    assert files["scaled.py"] == source(parse(SPEC.split("\n\n")[0]))
    done = derive("check", cwd=project)
    assert done.returncode == 1 and "to fix: derive generate\n" in done.stdout
    done = derive("check", "--shared", cwd=project)
    assert "to fix: derive generate --shared\n" in done.stdout
    assert derive("verify", "scaled", "-q", cwd=project).returncode == 0


def test_the_project_says_it_for_all_commands(project):
    (project / "pyproject.toml").write_text(TABLE + "standalone = true\n")
    found = {"_runtime.py": "stale", "scaled.py": "differs", "total.py": "differs"}
    assert differences(project) == found
    assert "it imports _runtime.py, as without --standalone" in derive("check", cwd=project).stdout
    assert mended(project) and "_runtime.py" not in held(project)
    assert mended(project, "--shared") and "_runtime.py" in held(project)
    (project / "pyproject.toml").write_text(TABLE + "standalone = 1\n")
    assert "standalone must be true or false" in derive("check", cwd=project).stderr


def test_no_module_is_left_that_calls_what_is_not_there(project):
    path = project / "gen/total.py"
    path.write_text(path.read_text().replace("rt.apply(", "rt.before("))
    old = held(project)
    (project / "ops.derive").write_text(SPEC.replace("exp(w", "sin(w"))
    done = derive("generate", "--no-verify", "scaled", cwd=project)
    assert done.returncode == 2 and held(project) == old
    assert "gen/total.py calls before, which _runtime.py would then lack" in done.stderr
    assert mended(project)


def changed_runtime(old, new):
    """The runtime with another text, which it has."""
    assert old in runtime()
    return runtime().replace(old, new)


APPLIED = "return super(torch.autograd.Function, function)"


def test_a_module_is_verified_with_the_runtime_beside_it(project):
    path = project / "gen/_runtime.py"
    for command in ("verify", "compare"):
        path.write_text(changed_runtime(APPLIED, "return function"))
        assert derive(command, "scaled", "-q", cwd=project).returncode == 0
        path.write_text(changed_runtime("def apply(", "def applied("))
        done = derive(command, "scaled", cwd=project)
        assert done.returncode == 2
        assert "_runtime.py, which scaled.py imports, lacks 'apply'; run `derive" in done.stderr
        path.unlink()
        done = derive(command, "scaled", cwd=project)
        assert done.returncode == 2
        assert "_runtime.py cannot be read: No such file or directory; run `derive" in done.stderr


def test_a_wrong_runtime_is_found(project):
    wrong = changed_runtime(f"{APPLIED}.apply(*args)", "return args[0]")
    (project / "gen/_runtime.py").write_text(wrong)
    assert derive("verify", "scaled", "-q", cwd=project).returncode == 1


def test_what_is_imported_without_it_says_so(project):
    (project / "gen/_runtime.py").unlink()
    with pytest.raises(ImportError, match="cannot import name '_runtime' from 'gen'"):
        imported(project, "gen.scaled")
    with pytest.raises(ImportError, match="relative import with no known parent package"):
        imported(project / "gen", "scaled")
