"""``derive new``, ``--watch`` and the pager."""

import signal
import subprocess
import sys
import time

import pytest
from kit.command import derive

import derive as package
from derive import read
from derive.command.console import print_pages

PLAIN = "op double(x[n]) -> y\ny[n] = 2*x[n]\n"


def test_a_new_spec_is_a_whole_operation_with_comments(tmp_path):
    done = derive("new", "my_norm", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("wrote my_norm.derive\n")
    (op,) = read(tmp_path / "my_norm.derive")
    assert op.name == "my_norm"
    assert "grad_weight[k]" in derive("show", "my_norm.derive", cwd=tmp_path).stdout


def test_a_new_spec_of_a_project_needs_no_entry(tmp_path):
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/double.derive").write_text(PLAIN)
    (tmp_path / "pyproject.toml").write_text('[tool.derive]\nspecs = ["specs"]\n')
    done = derive("new", "other", "--out", "specs/other.derive", cwd=tmp_path)
    assert "[tool.derive]" not in done.stdout
    assert [line.split()[0] for line in derive("list", cwd=tmp_path).stdout.splitlines()][:2] == [
        "double",
        "other",
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["double"], "double.derive exists"),
        (["class"], "'class' cannot name an operation"),
        (["two words"], "'two words' cannot name an operation"),
        (["ok", "--out", "ok.py"], "ends in .derive"),
        (["ok", "--out", "missing/ok.derive"], "the folder missing does not exist"),
    ],
)
def test_a_new_spec_overwrites_nothing_and_has_a_name_that_can_be_called(arguments, said, tmp_path):
    (tmp_path / "double.derive").write_text(PLAIN)
    done = derive("new", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["double.derive"]
    assert (tmp_path / "double.derive").read_text() == PLAIN


def test_watch_prints_again_after_each_change_until_it_is_interrupted(tmp_path):
    spec, printed = tmp_path / "double.derive", tmp_path / "printed"
    spec.write_text(PLAIN)
    command = [sys.executable, "-m", "derive", "show", "double.derive", "--watch"]
    root = str(package.__path__[0]).removesuffix("derive")
    with printed.open("w") as out:
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            stdout=out,
            stderr=out,
            env={"PYTHONPATH": root},
            # Where the tests run in the background, an interrupt is ignored and stays so.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        waits_for(printed, "Ctrl-C ends")
        assert "grad_x[n] = 2·G[n]" in printed.read_text()
        spec.write_text(PLAIN.replace("2*x[n]", "3*x["))
        waits_for(printed, "line 2, column 11: [ is never closed")
        spec.write_text(PLAIN.replace("2*x[n]", "3*x[n]"))
        waits_for(printed, "grad_x[n] = 3·G[n]")
        waits_for(printed, "Ctrl-C ends", 3)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert printed.read_text().count("double.derive changed") == 2


def waits_for(file, text, times=1):
    """Wait until a file has the text so many times."""
    end = time.monotonic() + 120
    while file.read_text().count(text) < times:
        assert time.monotonic() < end, file.read_text()
        time.sleep(0.05)


def test_watch_needs_a_file(tmp_path):
    done = derive("show", "--spec", PLAIN, "--watch", cwd=tmp_path)
    assert done.returncode == 2
    assert "--watch needs a spec file" in done.stderr
    done = derive("show", "softmax", "--watch", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no file to watch" in done.stderr


@pytest.mark.parametrize("rows", [4, 6])
def test_a_text_that_the_terminal_does_not_fit_is_shown_in_the_pager(rows, monkeypatch, capsys):
    text = "a line\nand a long one that takes three rows\n"
    shown = []
    monkeypatch.setattr("pydoc.pager", shown.append)
    monkeypatch.setenv("COLUMNS", "16")
    monkeypatch.setenv("LINES", str(rows))
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    print_pages(text)
    assert (shown, capsys.readouterr().out) == (([text], "") if rows == 4 else ([], text))
