"""The command line: what it prints, its exit codes, and that it writes nothing on an error."""

import ast
import io
import json
import os
import sys
from pathlib import Path

import pytest
from kit.command import ROOT, derive, process, run

from derive import VerificationError, catalog, source
from derive.command.cli import list_
from derive.command.objects import examples_of
from derive.command.project import find_project, names_of
from derive.module.runtime import standalone

PACKAGE = ("__init__.py", "_runtime.py")
"""What is written beside modules."""
MATMUL = "C[i,j] = sum[k](A[i,k]*B[k,j])"
SCALED = "op scaled(x[n], w[n]) -> y\ny[n] = x[n]*w[n]**2\n"


def test_list_has_one_line_for_each_operation():
    done = derive("list")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        name for path in sorted((ROOT / "derive/catalog").glob("*.derive")) for name in names(path)
    ]
    assert any("(input; dim) -> S" in line for line in lines)


def names(path: Path) -> tuple[str, ...]:
    return catalog.FAMILIES[path.stem]


def test_list_as_json():
    found = {entry["name"]: entry for entry in json.loads(derive("list", "--json").stdout)}
    assert set(found) == set(catalog.names())
    assert found["softmax"]["parameters"] == ["dim"]


def test_list_says_what_an_operation_is():
    found = {entry["name"]: entry for entry in json.loads(derive("list", "--json").stdout)}
    assert all(entry["description"].endswith(".") for entry in found.values())
    assert max(len(entry["description"]) for entry in found.values()) <= 82
    (line,) = derive("list", "softmin").stdout.splitlines()
    assert line.startswith("softmin  Softmax of the negative values along dim.  (input; dim) -> S")


def test_a_terminal_shows_what_fits(monkeypatch):
    class Screen(io.StringIO):
        def isatty(self):
            return True

    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "60")
    list_(pattern="softmax")
    lines = screen.getvalue().splitlines()
    assert lines and all(len(line) <= 60 for line in lines)
    assert lines[0].endswith("…")


def test_list_shows_the_projects_own_operations(project):
    done = derive("list", cwd=project)
    assert done.stdout.splitlines()[0].split() == "scaled (x, w) -> y (mine.derive)".split()
    assert "softmax" in done.stdout


def test_show_prints_the_gradient_of_softmax():
    done = derive("show", "softmax")
    assert done.returncode == 0, done.stderr
    assert "S[*p,k,*q]·(G[*p,k,*q] − Σₖ′ G[*p,k′,*q]·S[*p,k′,*q])" in done.stdout
    assert done.stderr == ""


def test_show_steps_names_the_rules():
    done = derive("show", "softmax", "--steps")
    assert "δ" in done.stdout
    assert "contract delta" in done.stdout
    assert "factor" in done.stdout


def test_show_latex():
    done = derive("show", "softmax", "--format", "latex")
    assert r"\sum_{k'}" in done.stdout


def test_show_json_has_formulas_and_steps():
    (entry,) = json.loads(derive("show", "softmax", "--format", "json", "--steps").stdout)
    assert entry["name"] == "softmax"
    assert entry["saved"] == ["S"]
    steps = entry["gradients"]["input"]["steps"]
    assert all(set(s) >= {"rule", "states", "before", "after"} for s in steps)


def test_show_json_has_an_entry_for_each_option():
    entries = json.loads(derive("show", "nll_loss", "--format", "json").stdout)
    assert [e["option"] for e in entries] == ["mean", "sum", "none"]


def test_show_code_is_the_module_that_stands_alone():
    done = derive("show", "softmax", "--format", "code")
    committed = (ROOT / "generated/softmax.py").read_text(encoding="utf-8")
    assert done.stdout == standalone(committed) == source(catalog.find("softmax"))


def test_show_cost_has_formulas_in_the_sizes():
    done = derive("show", "--spec", MATMUL, "--cost")
    assert done.returncode == 0, done.stderr
    found = [line.split(maxsplit=1)[1] for line in done.stdout.splitlines() if "flops  " in line]
    assert [text.strip() for text in found] == ["2·i·j·k", "4·i·j·k"]
    assert "4·i·k + 4·j·k" in done.stdout
    assert done.stderr == ""


def test_show_cost_has_numbers_where_sizes_are_given():
    sizes = ("--size", "i=2", "--size", "j=3", "--size", "k=5")
    done = derive("show", "--spec", MATMUL, "--cost", *sizes)
    assert "2·i·j·k = 60" in done.stdout
    (entry,) = json.loads(
        derive("show", "--spec", MATMUL, "--cost", "--format", "json", *sizes).stdout
    )
    assert entry["cost"]["backward"]["flops"] == {"formula": "4·i·j·k", "value": 120}
    assert entry["cost"]["saved_bytes"] == {"formula": "4·i·k + 4·j·k", "value": 100}
    done = derive("show", "softmax", "--cost", "--size", "p=2,3", "--size", "k=4", "--size", "q=5")
    assert "4·p·k·q = 480" in done.stdout


def test_show_cost_says_what_it_can_where_sizes_are_missing():
    sizes = ("--size", "i=2", "--size", "k=5")
    done = derive("show", "--spec", MATMUL, "--cost", *sizes)
    assert done.returncode == 0, done.stderr
    assert "2·i·j·k = 20·j" in done.stdout
    assert "4·i·k + 4·j·k = 20·j + 40" in done.stdout
    assert "missing sizes: j\n" in done.stdout
    (entry,) = json.loads(
        derive("show", "--spec", MATMUL, "--cost", "--format", "json", *sizes).stdout
    )
    assert entry["cost"]["missing"] == ["j"]
    spec = "op f(x[t]; size(u)=floor((size(t)+3)/4)) -> y; y[u] = x[4*u]*2"
    done = derive("show", "--spec", spec, "--cost", "--size", "t=9")
    assert "missing sizes" not in done.stdout
    assert derive("show", "--spec", spec, "--cost").stdout.count("missing sizes") == 0


def test_show_cost_of_a_size_that_is_not_there_fails():
    done = derive("show", "--spec", MATMUL, "--cost", "--size", "z=3")
    assert (done.returncode, done.stdout) == (2, "")
    assert "op has no index z; its indices are i, j, k" in done.stderr


WIDE = "op l1(X[i,d], Y[j,d]{}) -> y; y[i,j] = sum[d](abs(X[i,d]-Y[j,d]))"


def test_an_intermediate_of_more_axes_than_anything_written_is_warned_of(tmp_path):
    done = derive("show", "--spec", WIDE.format(""), "--cost")
    assert done.returncode == 0
    warning = "derive: warning: l1: y is computed through a tensor of i·j·d elements"
    assert warning in done.stderr
    assert "stable" in done.stderr
    assert "i·j·d" in done.stdout
    done = derive("show", "--spec", WIDE.format("; stable"), "--cost")
    assert (done.returncode, done.stderr) == (0, "")

    spec = tmp_path / "l1.derive"
    spec.write_text(WIDE.format("").replace("; ", "\n"))
    done = derive("generate", str(spec), "--out", "made", "--no-verify", cwd=tmp_path)
    assert done.returncode == 0
    assert warning in done.stderr
    done = derive("check", str(spec), "--out", "made", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_show_wrt_prints_one_gradient():
    done = derive("show", "matmul", "--wrt", "other")
    assert "grad_other" in done.stdout
    assert "grad_input" not in done.stdout


def test_show_wrt_of_no_input_fails():
    done = derive("show", "matmul", "--wrt", "Z")
    assert done.returncode == 2
    assert "no gradient of Z" in done.stderr
    assert "input, other" in done.stderr


def test_show_an_operation_given_as_text():
    done = derive("show", "--spec", MATMUL)
    assert "grad_A[i,k] = Σⱼ G[i,j]·B[k,j]" in done.stdout


def test_show_tangents():
    done = derive("show", "--spec", MATMUL, "--tangent")
    assert "tangents, d_A the tangent of A, d_B the tangent of B" in done.stdout
    assert "d_C[i,j] = Σₖ d_A[i,k]·B[k,j] + Σₖ d_B[k,j]·A[i,k]" in done.stdout
    done = derive("show", "--spec", MATMUL, "--tangent", "--wrt", "B", "--steps")
    assert "d_C[i,j] = Σₖ d_B[k,j]·A[i,k]" in done.stdout
    assert "1. tangent: dF[j] = Σᵢ ∂F[j]/∂X[i]·dX[i]" in done.stdout
    done = derive("show", "layer_norm", "--tangent", "--every")
    assert "d_var[*p] = " in done.stdout
    (found,) = json.loads(derive("show", "softmax", "--tangent", "--format", "json").stdout)
    assert (found["given"], list(found["tangents"])) == ({"input": "d_input"}, ["S"])
    done = derive("show", "softmax", "--tangent", "--format", "latex")
    assert r"$\mathrm{d\_input}$ the tangent of $\mathrm{input}$" in done.stdout


def test_tangents_are_formulas_along_inputs():
    done = derive("show", "--spec", MATMUL, "--tangent", "--wrt", "C")
    assert (done.returncode, "it has tangents along A, B" in done.stderr) == (2, True)
    for option in (("--format", "code"), ("--cost",)):
        done = derive("show", "softmax", "--tangent", *option)
        assert (done.returncode, "--tangent shows formulas" in done.stderr) == (2, True)


def test_show_an_operation_of_a_file(tmp_path):
    (tmp_path / "two.derive").write_text(SCALED + "op other(x[n]) -> z\nz[n] = x[n]\n")
    done = derive("show", "two.derive:scaled", cwd=tmp_path)
    assert "grad_w[n]" in done.stdout
    done = derive("show", "two.derive:scale", cwd=tmp_path)
    assert (done.returncode, "did you mean scaled?" in done.stderr) == (2, True)
    done = derive("show", "two.derive", cwd=tmp_path)
    assert (done.returncode, "two.derive:scaled" in done.stderr) == (2, True)


@pytest.mark.parametrize("folder", ("", "specs/"))
def test_one_operation_of_a_file_is_generated_wherever_the_file_lies(tmp_path, folder):
    (tmp_path / "specs").mkdir()
    (tmp_path / folder / "two.derive").write_text(SCALED + "op other(x[n]) -> z\nz[n] = x[n]\n")
    done = derive("generate", f"{folder}two.derive:scaled", "--no-verify", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {p.name for p in (tmp_path / "generated").iterdir()} == {*PACKAGE, "scaled.py"}
    done = derive("generate", f"{folder}two.derive:scale", "--no-verify", cwd=tmp_path)
    assert (done.returncode, "did you mean scaled?" in done.stderr) == (2, True)


def test_an_unknown_name_suggests_the_nearest():
    done = derive("show", "sofmax")
    assert done.returncode == 2
    assert done.stderr == "derive: no operation is called sofmax; did you mean softmax? [D033]\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("pattern", "some", "none"),
    [
        ("soft*", "softmax", "log_softmax"),
        ("CONV1", "grouped_conv1d", "conv2d"),
        ("*_cell", "gru_cell", "softmax"),
        ("[st]an*", "tan", "atan"),
    ],
)
def test_list_takes_a_part_of_a_name_or_a_glob(pattern, some, none, tmp_path):
    found = [line.split()[0] for line in derive("list", pattern, cwd=tmp_path).stdout.splitlines()]
    assert some in found
    assert none not in found
    assert set(found) <= set(catalog.names())


def test_list_of_nothing_says_so(project):
    done = derive("list", "nosuch", cwd=project)
    assert (done.returncode, done.stdout) == (0, "")
    assert "no operation name matches nosuch" in done.stderr
    assert json.loads(derive("list", "nosuch", "--json", cwd=project).stdout) == []


def test_a_typo_reads_no_more_than_what_is_like_it(project, monkeypatch):
    """Neither the catalog nor specs in which nothing is named alike."""
    (project / "far.py").write_text("raise SystemExit('read')\nx = Operation('unlike')\n")
    table = '[tool.derive]\nspecs = ["mine.derive", "far.py"]\n'
    (project / "pyproject.toml").write_text(table)
    monkeypatch.setattr(catalog, "operations", None)
    monkeypatch.setattr(catalog, "_family", None)
    for typo, near in (("sofmax", "softmax"), ("scalde", "scaled")):
        done = derive("show", typo, cwd=project)
        assert (
            done.stderr == f"derive: no operation is called {typo}; did you mean {near}? [D033]\n"
        )


def test_names_are_known_without_reading_a_spec():
    """The names that are completed and suggested are those of the operations."""
    found = names_of(find_project(ROOT))
    assert set(found) == set(catalog.names()) == {op.name for op in catalog.operations()}


def test_names_are_completed(project):
    def completed(typed: str) -> set[str]:
        words = {"COMP_WORDS": f"derive show {typed}", "COMP_CWORD": "2"}
        done = process(cwd=project, _DERIVE_COMPLETE="complete_bash", **words)
        return set(done.stdout.split())

    assert completed("scal") == {"scaled", "scaled_dot_product_attention"}
    (project / "pyproject.toml").write_text("tool = 3\n")
    assert completed("log_so") == {"log_softmax"}


def test_codes_of_errors_are_completed(tmp_path):
    words = {"COMP_WORDS": "derive explain unknown-f", "COMP_CWORD": "2"}
    done = process(cwd=tmp_path, _DERIVE_COMPLETE="complete_bash", **words)
    assert done.stdout.split() == ["unknown-function"]


@pytest.mark.parametrize("command", [[], ["list"], ["show"], ["generate"], ["compare"]])
def test_help_has_a_short_name(command):
    short, long = derive(*command, "-h"), derive(*command, "--help")
    assert (short.returncode, short.stdout) == (0, long.stdout)


COMMANDS = (
    "list show graph new generate check verify compare read audit lint site docs explain".split()
)


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=str)
def test_no_line_of_the_help_is_cut(command, monkeypatch):
    """At 80 columns; each command is listed with the first line of its help."""
    monkeypatch.setenv("COLUMNS", "80")
    usage, *lines = derive(*command, "-h").stdout.splitlines()
    assert usage.startswith("Usage: derive")
    assert not [line for line in lines if line.endswith("...")]
    if not command:
        listed = lines[lines.index("Commands:") + 1 :]
        assert [line.split()[0] for line in listed] == list(COMMANDS)
        assert all(line.endswith(".") for line in listed)


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)], ids=str)
def test_every_option_has_a_line_of_help(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = derive(*command, "-h").stdout.splitlines()
    at = lines.index("Options:") + 1
    bare = [
        line
        for line, after in zip(lines[at:], [*lines[at + 1 :], ""], strict=True)
        if line.startswith("  -") and "  " not in line.strip() and not after.startswith(" " * 8)
    ]
    assert not bare


@pytest.mark.parametrize("command", ["read", "audit"])
def test_the_help_shows_a_file_of_examples(command, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = derive(command, "-h").stdout.splitlines()
    at = lines.index("    import torch")
    path = tmp_path / "inputs.py"
    path.write_text("\n".join(line[4:] for line in lines[at : at + 2]))
    (made,) = examples_of(path)
    assert [tuple(tensor.shape) for tensor in made] == [(3, 5), (5,)]


@pytest.mark.parametrize("args", [["check", "-q"], ["-q", "check"], ["check", "--quiet"]])
def test_quiet_says_only_what_is_wrong(args, project):
    done = derive(*args, cwd=project)
    assert done.returncode == 1
    assert done.stdout.splitlines()[0] == "missing: gen/__init__.py"
    done = derive("generate", "--no-verify", "-q", cwd=project)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (project / "gen/scaled.py").write_text(
        (project / "gen/scaled.py").read_text().replace("2 *", "3 *")
    )
    done = derive(*args, cwd=project)
    assert done.stdout.startswith("differs: gen/scaled.py (edited by hand")
    assert "3 *" not in done.stdout
    done = derive("-q", "compare", "scaled", cwd=project)
    assert done.returncode == 1
    assert "approximate: False" in done.stdout
    assert derive("generate", "--no-verify", "-q", cwd=project).returncode == 0
    for quiet in (args, ["compare", "scaled", "-q"]):
        done = derive(*quiet, cwd=project)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_verify_without_a_project_says_what_it_is_about_to_do(tmp_path, monkeypatch):
    exp = catalog.find("exp")
    monkeypatch.setattr(catalog, "operations", lambda: (exp,))
    done = derive("verify", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "derive: no project here: verifying the 1 operations of the catalog" in done.stderr
    assert derive("verify", "-q", cwd=tmp_path).stderr == ""


THREE = (
    "op one(x[n]) -> y\ny[n] = 2*x[n]\n"
    "op bad(x[n]) -> y\ny[n] = 3*x[n]\n"
    "op two(x[n]) -> y\ny[n] = 4*x[n]\n"
)


def fail_at(name: str, monkeypatch) -> None:
    """The gradients of one operation do not verify."""
    from derive.check import checks

    right = checks.verify_source

    def wrong(op, text):
        if op.name == name:
            raise VerificationError(f"{name}: gradient differs")
        right(op, text)

    monkeypatch.setattr(checks, "verify_source", wrong)


def test_what_fails_keeps_the_others_from_nothing_if_so_asked(project, monkeypatch):
    (project / "mine.derive").write_text(THREE)
    assert derive("generate", "--no-verify", cwd=project).returncode == 0
    old = {p.name: p.read_text() for p in (project / "gen").iterdir()}
    changed = THREE.replace("2*x", "5*x").replace("3*x", "6*x").replace("op two", "op three")
    (project / "mine.derive").write_text(changed)
    fail_at("bad", monkeypatch)
    done = derive("generate", cwd=project)
    assert done.returncode == 1
    assert "1 of 3 operations failed; nothing is written" in done.stdout
    assert {p.name: p.read_text() for p in (project / "gen").iterdir()} == old
    done = derive("generate", "--keep-going", cwd=project)
    assert done.returncode == 1
    assert "wrong: bad: gradient differs" in done.stdout
    assert "1 of 3 operations failed; their files are unchanged" in done.stdout
    new = {p.name: p.read_text() for p in (project / "gen").iterdir()}
    assert set(new) == {*PACKAGE, "one.py", "bad.py", "three.py"}
    assert new["bad.py"] == old["bad.py"]
    assert "5" in new["one.py"]
    assert derive("check", "-q", cwd=project).stdout.startswith("differs: gen/bad.py")


def test_one_that_cannot_be_derived_is_left_too(project, monkeypatch):
    def fails(op, *_, **options):
        if op.name == "bad":
            raise KeyError("within")
        return source(op, **options)

    monkeypatch.setattr("derive.command.build.source", fails)
    (project / "mine.derive").write_text(THREE)
    done = derive("generate", "--no-verify", cwd=project)
    assert (done.returncode, done.stdout) == (2, "")
    assert "bad: internal error of derive, please report it: KeyError: 'within'" in done.stderr
    assert not (project / "gen").exists()
    done = derive("generate", "--no-verify", "--keep-going", "--json", cwd=project)
    said = json.loads(done.stdout)
    assert done.returncode == 1
    assert [Path(path).name for path in said["written"]] == [*PACKAGE, "one.py", "two.py"]
    assert len(said["failures"]) == 1


@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"],
        ["show"],
        ["show", "softmax", "--spec", MATMUL],
        ["show", "softmax", "--format", "nonsense"],
        ["show", "softmax", "--format", "code", "--steps"],
        ["show", "softmax", "--cost", "--steps"],
        ["show", "softmax", "--cost", "--format", "code"],
        ["show", "softmax", "--cost", "--wrt", "A"],
        ["show", "softmax", "--size", "k=3"],
        ["check", "--nonsense"],
    ],
)
def test_wrong_usage_exits_with_2(args):
    done = derive(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr


def test_without_a_project_generate_and_check_say_what_to_do(tmp_path):
    for command in ("generate", "check"):
        done = derive(command, cwd=tmp_path)
        assert done.returncode == 2
        assert "[tool.derive]" in done.stderr
    assert not list(tmp_path.iterdir())


BAD = {
    "an unbound index": ("C[i,j] = A[i,k]*B[k,j]", "index k of"),
    "a rank mismatch": ("y[i] = A[i] + A[i,i]", "A"),
    "an index with two sizes": ("op f(x[i]; size(i)=3, size(i)=4) -> y; y[i] = x[i]", "size(i)"),
    "an unknown function": ("y[i] = softplsu(x[i])", "softplus"),
    "a cycle": ("op f(x[i]) -> y; y[i] = z[i]*x[i]; z[i] = y[i]", "z"),
    "a keyword": ("op lambda(x[i]) -> y; y[i] = x[i]", "lambda"),
    "a keyword as a tensor": ("op f(class[i]) -> y; y[i] = class[i]", "class"),
    "a clash with the code": ("op f(_torch[i]) -> y; y[i] = _torch[i]", "_torch"),
    "a quote in a name": ("op f'(x[i]) -> y; y[i] = x[i]", "line 1, column 5"),
    "braces in a name": ("op f(x{{7}}[i]) -> y; y[i] = x[i]", "line 1"),
    "an unclosed bracket": ("y[i] = exp(x[i]", "line 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_spec_exits_with_2_and_writes_nothing(case, tmp_path):
    text, says = BAD[case]
    (tmp_path / "bad.derive").write_text(text)
    shown = derive("show", "--spec", text, cwd=tmp_path)
    made = derive("generate", "bad.derive", "--out", "out", cwd=tmp_path)
    for done in (shown, made):
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith("derive: ")
        assert says in done.stderr
        assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bad.derive"]


def test_comments_do_not_reach_the_code(tmp_path):
    text = "# \"\"\" {{ 7*7 }} {% raw %}\ny[i] = x[i]  # ''' import os\n"
    done = derive("show", "--spec", text, "--format", "code", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ast.parse(done.stdout)
    assert "import os" not in done.stdout
    assert "49" not in done.stdout
    assert "{{" not in done.stdout


def test_a_bad_file_names_the_file(tmp_path):
    (tmp_path / "bad.derive").write_text("op f(x[i]) -> y\ny[i] = x[j]\n")
    done = derive("check", "bad.derive", cwd=tmp_path)
    assert done.returncode == 2
    assert "bad.derive" in done.stderr
    assert "line 2" in done.stderr
    assert derive("show", "none.derive:f", cwd=tmp_path).returncode == 2
    assert derive("generate", "none.derive", cwd=tmp_path).returncode == 2


def test_a_spec_module_that_fails_is_an_error_of_the_spec(tmp_path):
    (tmp_path / "bad.py").write_text("1/0\n")
    done = derive("generate", "bad.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_warning_stands_on_stderr():
    done = derive("show", "--spec", "op f(x[n], y[n]) -> z; z[n] = x[n]", "--format", "code")
    assert done.returncode == 0
    assert "warning" in done.stderr
    assert "y" in done.stderr
    ast.parse(done.stdout)


def test_an_operation_given_only_as_text_generates_and_verifies(tmp_path):
    text = (
        "op mix(x[b,i], A[i,j], c[j]) -> y\ny[b,j] = tanh(sum[i](x[b,i]*A[i,j]) + c[j]**2)*c[j]\n"
    )
    (tmp_path / "mix.derive").write_text(text)
    done = derive("generate", "mix.derive", "--out", "made", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 operation verified" in done.stdout
    assert derive("check", "mix.derive", "--out", "made", cwd=tmp_path).returncode == 0
    done = derive("verify", "mix.derive:mix", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "checks passed" in done.stdout


def test_generate_as_json(tmp_path):
    (tmp_path / "mine.derive").write_text(SCALED)
    done = derive("generate", "mine.derive", "--out", "o", "--no-verify", "--json", cwd=tmp_path)
    said = json.loads(done.stdout)
    assert said["operations"] == ["scaled"]
    assert said["verified"] is False
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == [*PACKAGE, "scaled.py"]


def test_verify_as_json():
    done = derive("verify", "transpose", "--json")
    rows = json.loads(done.stdout)
    assert {row["check"] for row in rows} >= {"value", "gradient", "gradcheck", "gradgradcheck"}
    assert all(row["ok"] for row in rows)


def test_verify_shows_an_operation_a_row_and_a_check_a_column(project):
    assert derive("generate", "--no-verify", "-q", cwd=project).returncode == 0
    asked = ("verify", "--check", "missing", "--check", "gradient", "--check", "value")
    done = derive(*asked, cwd=project)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines() == [
        "value",
        "│ gradient",
        "│ │ missing",
        "✓ ✓ -  scaled",
        "2 of 2 checks passed; 1 not applicable (--verbose)",
    ]
    said = derive(*asked, "--verbose", cwd=project).stdout
    assert "gradient  gradients equal finite differences of the equations" in said
    assert "- missing: one output has a gradient: scaled" in said
    rows = json.loads(derive(*asked, "--json", cwd=project).stdout)
    assert [row["reason"] for row in rows] == ["", "", "one output has a gradient"]
    module = project / "gen" / "scaled.py"
    lines = module.read_text().splitlines(keepends=True)
    wrong = [line.rstrip() + " * 1.5\n" if "grad_w = " in line else line for line in lines]
    module.write_text("".join(wrong).replace("None * 1.5", "None"))
    done = derive(*asked, cwd=project)
    assert done.returncode == 1
    assert "✓ ✗ -  scaled\nwrong: scaled: gradient, typical: grad_w" in done.stdout
    assert "1 of 2 checks passed" in done.stdout
    assert derive(*asked, "-q", cwd=project).stdout.startswith("wrong: scaled: gradient")


@pytest.mark.parametrize(
    "options", [("--check", "nothing"), ("--all", "--check", "value")], ids=" ".join
)
def test_wrong_checks_are_wrong_usage(options, project):
    done = derive("verify", *options, cwd=project)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--check" in done.stderr


def test_check_does_not_import_torch(project):
    assert derive("generate", "--no-verify", cwd=project).returncode == 0
    code = (
        "import sys; from derive.command.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = run(sys.executable, "-c", code, "check", cwd=project)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


@pytest.mark.long
@pytest.mark.parametrize(("command", "limit"), [(["show", "softmax"], 1.0), (["check"], 10.0)])
def test_a_whole_process_is_quick(command, limit):
    """In seconds of processor time, which other processes do not change."""

    def once() -> float:
        before = os.times()
        process(*command)
        after = os.times()
        return sum(after[2:4]) - sum(before[2:4])

    assert min(once() for _ in range(2)) < limit


def test_the_console_script_is_the_same_program():
    script = Path(sys.executable).parent / "derive"
    assert run(script, "show", "transpose").stdout == derive("show", "transpose").stdout
    assert process("show", "nothing").returncode == 2


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.derive]\nspecs = ["mine.derive"]\nout = "gen"\n'
    )
    (tmp_path / "mine.derive").write_text(SCALED)
    return tmp_path
