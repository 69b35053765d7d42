"""``derive check``: fresh, missing, stale and edited modules, and that ``generate`` mends them."""

import json
from pathlib import Path

import pytest
from kit.command import derive

SPEC = "op scaled(x[n], w[n]) -> y\ny[n] = x[n]*w[n]**2\n\nop total(x[n]) -> t\nt = sum[n](x[n])\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.derive]\nspecs = ["mine"]\nout = "gen"\n')
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/ops.derive").write_text(SPEC)
    done = derive("generate", "--no-verify", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return tmp_path


def kinds(project: Path) -> dict[str, str]:
    done = derive("check", "--json", cwd=project)
    said = json.loads(done.stdout)
    assert done.returncode == (0 if said["fresh"] else 1)
    return {Path(d["file"]).name: d["kind"] for d in said["differences"]}


def mended(project: Path) -> bool:
    assert derive("generate", "--no-verify", cwd=project).returncode == 0
    return derive("check", cwd=project).returncode == 0


def test_fresh(project):
    assert kinds(project) == {}
    assert "fresh" in derive("check", cwd=project).stdout
    assert sorted(path.name for path in (project / "gen").iterdir()) == [
        "__init__.py",
        "_runtime.py",
        "scaled.py",
        "total.py",
    ]


def test_a_folder_below_the_project_finds_it(project):
    assert derive("check", cwd=project / "mine").returncode == 0


def test_missing(project):
    (project / "gen/total.py").unlink()
    assert kinds(project) == {"total.py": "missing"}
    assert mended(project)


def test_edited_by_hand(project):
    path = project / "gen/scaled.py"
    path.write_text(path.read_text().replace("2 *", "3 *"))
    done = derive("check", cwd=project)
    assert done.returncode == 1
    assert "differs: gen/scaled.py" in done.stdout
    assert any(line.startswith("-") and "3 *" in line for line in done.stdout.splitlines())
    assert any(line.startswith("+") and "2 *" in line for line in done.stdout.splitlines())
    assert "to fix: derive generate\n" in done.stdout
    assert mended(project)


def test_a_changed_spec(project):
    spec = project / "mine/ops.derive"
    spec.write_text(SPEC.replace("**2", "**3"))
    assert kinds(project) == {"scaled.py": "differs"}
    assert mended(project)


def test_stale(project):
    (project / "mine/ops.derive").write_text(SPEC.split("\n\n")[0])
    assert kinds(project) == {"total.py": "stale"}
    assert mended(project)
    assert not (project / "gen/total.py").exists()


def test_what_is_said_of_a_runtime(project):
    runtime = project / "gen/_runtime.py"
    runtime.write_text(runtime.read_text() + "x = 1\n")
    done = derive("check", cwd=project)
    assert "(edited by hand, or it is of another version of derive)" in done.stdout
    assert "its spec" not in done.stdout
    done = derive("generate", "--standalone", "--no-verify", cwd=project)
    assert "removed gen/_runtime.py: no module imports it" in done.stdout


def test_without_a_spec_every_module_is_stale(project):
    (project / "pyproject.toml").write_text('[tool.derive]\nspecs = []\nout = "gen"\n')
    assert kinds(project) == {"scaled.py": "stale", "total.py": "stale"}
    assert mended(project)


def test_files_of_others_are_left_alone(project):
    own = project / "gen/own.py"
    own.write_text("x = 1\n")
    assert kinds(project) == {}
    assert mended(project)
    assert own.read_text() == "x = 1\n"


def test_a_file_that_derive_did_not_write_is_not_replaced(project):
    path = project / "gen/total.py"
    path.write_text("x = 1\n")
    (project / "gen/scaled.py").unlink()
    done = derive("generate", "--no-verify", cwd=project)
    assert done.returncode == 2
    assert "gen/total.py is a file that derive did not write" in done.stderr
    assert path.read_text() == "x = 1\n"
    assert not (project / "gen/scaled.py").exists()


def test_one_file_of_a_project_is_compared_alone(project):
    other = project / "mine/more.derive"
    other.write_text("op more(x[n]) -> y\ny[n] = 2*x[n]\n")
    assert derive("check", "mine/ops.derive", cwd=project).returncode == 0
    assert derive("check", "mine/more.derive", cwd=project).returncode == 1
    assert derive("generate", "mine/more.derive", "--no-verify", cwd=project).returncode == 0
    assert kinds(project) == {}


def test_given_files_and_a_folder_describe_it_whole(project):
    args = ("mine/ops.derive", "--out", "elsewhere")
    derive("generate", *args, "--no-verify", cwd=project)
    (project / "mine/ops.derive").write_text(SPEC.split("\n\n")[0])
    done = derive("check", *args, cwd=project)
    assert done.returncode == 1
    assert "stale: elsewhere/total.py" in done.stdout
    assert "rm elsewhere/total.py" in done.stdout


def test_a_wrong_spec_is_no_difference(project):
    (project / "mine/ops.derive").write_text("op f(x[i]) -> y\ny[i] = x[j]\n")
    done = derive("check", cwd=project)
    assert done.returncode == 2
    assert done.stdout == ""
    done = derive("generate", "--no-verify", cwd=project)
    assert done.returncode == 2
    assert (project / "gen/scaled.py").exists()


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("[tool.derive]\nspec = []\n", "has no key spec"),
        ('[tool.derive]\nspecs = "a"\n', "specs must be a list"),
        ("[tool.derive\n", "pyproject.toml"),
        ('[tool.derive]\nspecs = ["none.derive"]\n', "none.derive"),
        ('[tool.derive]\nspecs = ["empty"]\n', "no spec"),
    ],
)
def test_a_wrong_table(tmp_path, table, says):
    (tmp_path / "empty").mkdir()
    (tmp_path / "pyproject.toml").write_text(table)
    done = derive("check", cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_two_operations_of_one_name(project):
    (project / "mine/same.derive").write_text("op scaled(x[n]) -> y\ny[n] = x[n]\n")
    done = derive("check", cwd=project)
    assert done.returncode == 2
    assert "same.derive" in done.stderr
    assert "ops.derive" in done.stderr
