"""Reading specs: whatever a file does, it is an error of the spec that names file and line."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kit.command import derive, run

from derive import DeriveError, Operation, SpecError, parse, read
from derive.command.objects import examples_of

GOOD = 'import derive\nx = derive.parse("op h(x[n]) -> y; y[n] = x[n]")\n'

RAISED = {
    "SystemExit": (
        "a = 1\nraise SystemExit(0)",
        "bad.py:2: the module raises an error: SystemExit: 0",
    ),
    "sys.exit": ("import sys\n\nsys.exit()", "bad.py:3: the module raises an error: SystemExit"),
    "KeyboardInterrupt": (
        "raise KeyboardInterrupt",
        "bad.py:1: the module raises an error: Keyboard",
    ),
    "GeneratorExit": (
        "def f():\n    raise GeneratorExit\nf()",
        "bad.py:2: the module raises an error",
    ),
    "no words": (
        "class E(BaseException):\n    def __str__(self):\n        raise SystemExit(0)\nraise E",
        "bad.py:4: the module raises an error: E",
    ),
    "syntax": ("x = 1\ndef f(:\n", "bad.py:2: the module raises an error: SyntaxError: "),
    "a wrong spec": (
        'import derive\n\nx = derive.parse("y[n] = x[k]")',
        "bad.py:3: line 1, column 10: index k",
    ),
    "no end of calls": ("def f():\n    f()\nf()", "the module raises an error: RecursionError"),
    "no operation": ("x = 1", "bad.py: the module defines no Operation"),
}


@pytest.mark.parametrize("case", RAISED)
def test_whatever_a_module_raises_is_an_error_of_the_spec(case, tmp_path):
    text, says = RAISED[case]
    path = tmp_path / "bad.py"
    path.write_text(text)
    with pytest.raises(SpecError) as raised:
        read(path)
    assert says in str(raised.value)
    for command in ("check", "generate", "list"):
        (tmp_path / "pyproject.toml").write_text('[tool.derive]\nspecs = ["bad.py"]\nout = "o"\n')
        done = derive(command, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("derive: ")
        assert says in done.stderr
        assert not (tmp_path / "o").exists()


ENDED = {
    "exits at once": ("import os\nos._exit(0)", "with exit code 0"),
    "kills itself": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "by signal 9"),
    "closes what it finds": ("import os\nos.closerange(3, 300)", "with exit code 1"),
}


@pytest.mark.parametrize("case", ENDED)
def test_a_module_that_ends_its_process_is_an_error_of_the_spec(case, tmp_path):
    text, says = ENDED[case]
    (tmp_path / "bad.py").write_text(text)
    done = derive("check", "bad.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "bad.py: the spec ended the process that reads it, " + says in done.stderr


ENDLESS = (
    "while True:\n    pass",
    "while True:\n  try:\n    while True:\n      pass\n  except BaseException:\n    pass",
    "sum(range(10**18))",
)


@pytest.mark.parametrize("text", ENDLESS)
def test_a_module_without_end_is_stopped(text, tmp_path):
    (tmp_path / "bad.py").write_text(text)
    done = derive("check", "bad.py", "--spec-timeout", "0.2", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "bad.py: the spec was stopped after 0.2 s" in done.stderr
    assert "--spec-timeout" in done.stderr


@pytest.mark.parametrize("limit", ["0", "-1", "nan", "soon"])
def test_the_limit_is_a_time(limit, tmp_path):
    done = derive("list", "--spec-timeout", limit, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")


def test_what_a_module_does_beside_reaches_nobody(tmp_path):
    """A thread and a handler that outlive it, another process that reads on, and its words."""
    (tmp_path / "odd.py").write_text(
        "import atexit, os, sys, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        f"atexit.register(time.sleep, 60)\nprint('words')\nsys.stdout = None\nos.fork()\n{GOOD}"
    )
    began = time.monotonic()
    done = derive("show", "odd.py:h", "--spec-timeout", "inf", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("h\n")
    assert "words" not in done.stdout
    assert time.monotonic() - began < 30


def test_ctrl_c_of_a_person_ends_the_program(tmp_path):
    """Also where the module would have none of it."""
    (tmp_path / "bad.py").write_text(
        "import time\nprint('begun', flush=True)\n"
        "try:\n    time.sleep(60)\nexcept BaseException:\n    pass\n" + GOOD
    )
    # A process in the background of a shell may have been told to ignore Ctrl-C.
    code = (
        "import derive, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "try: derive.read('bad.py')\nexcept KeyboardInterrupt: print('stopped')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=60)[0] == "stopped\n"


def test_warnings_of_a_spec_are_told(tmp_path):
    (tmp_path / "odd.derive").write_text("op f(x[n], w[n]) -> y\ny[n] = x[n]\n")
    done = derive("show", "odd.derive:f", cwd=tmp_path)
    assert done.stderr.startswith("derive: warning: ")
    assert derive("show", "odd.derive:f", "-q", cwd=tmp_path).stderr == ""


def test_a_mark_of_byte_order_is_no_part_of_a_text(tmp_path):
    (tmp_path / "pyproject.toml").write_text('\ufeff[tool.derive]\nspecs = ["a.derive"]\n')
    (tmp_path / "a.derive").write_text("\ufeffop f(x[n]) -> y\ny[n] = 2*x[n]\n")
    (tmp_path / "b.py").write_text("\ufeff" + GOOD)
    assert derive("show", "f", cwd=tmp_path).returncode == 0
    assert derive("show", "b.py:h", cwd=tmp_path).returncode == 0


def made(kind: str, path: Path) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path.name if kind == "circle" else "nothing.derive")


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("fifo", "a spec must be a file, and this is not a regular file"),
        ("folder", "a spec must be a file, and this is a folder"),
        ("circle", "its symbolic links form a cycle"),
        ("nowhere", "the path is a broken symbolic link"),
    ],
)
def test_what_is_no_file_is_no_spec(kind, says, tmp_path):
    (tmp_path / "specs").mkdir()
    made(kind, tmp_path / "specs/odd.derive")
    (tmp_path / "pyproject.toml").write_text('[tool.derive]\nspecs = ["specs"]\n')
    for args in (["check"], ["generate"], ["list"], ["show", "specs/odd.derive:f"]):
        done = derive(*args, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"specs/odd.derive: {says}" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pyproject.toml", "specs"]


def test_a_path_that_is_none_is_a_message():
    for path in ("a\0.derive", "a\0.py"):
        with pytest.raises(DeriveError, match="not a path"):
            read(path)
    done = run(
        sys.executable, "-m", "derive", "show", b"\xff.derive:f".decode(errors="surrogateescape")
    )
    assert done.returncode == 2
    assert "the file does not exist" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_operation_is_passed_on_however_deep_it_is():
    op = parse("op f(x[i]) -> y; y[i] = x[i]")
    (equation,) = op.equations
    body = equation.body
    for _ in range(3000):
        body = body + 1
    deep = (replace(equation, body=body),)
    op = Operation.resolved("f", op.inputs, op.parameters, deep, op.outputs, op.extents)
    assert pickle.loads(pickle.dumps(op)) == op


def test_a_file_that_is_named_twice_is_read_once(tmp_path):
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/a.derive").write_text("op f(x[n]) -> y; y[n] = x[n]")
    (tmp_path / "link.derive").symlink_to("specs/a.derive")
    specs = '["specs/a.derive", "specs", "./specs/a.derive", "link.derive"]'
    (tmp_path / "pyproject.toml").write_text(f"[tool.derive]\nspecs = {specs}\n")
    done = derive("list", "f", "--json", cwd=tmp_path)
    assert [entry["from"] for entry in json.loads(done.stdout) if entry["name"] == "f"] == [
        "specs/a.derive"
    ]
    done = derive("check", "specs/a.derive", "link.derive", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["operations"] == ["f"]
    (tmp_path / "b.derive").write_text("op f(x[n]) -> y; y[n] = x[n]")
    done = derive("check", "specs/a.derive", "b.derive", cwd=tmp_path)
    assert (done.returncode, "f is also defined in specs/a.derive" in done.stderr) == (2, True)


def test_examples_are_those_of_the_file_as_it_stands_now(monkeypatch, tmp_path):
    """Of the same length and the same second as it was before, it has other examples."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_examples", raising=False)
    file = tmp_path / "own_examples.py"
    found = []
    for number in (2, 3):
        file.write_text(f"def examples():\n    return [[{number}]]\n")
        os.utime(file, (1e9, 1e9))
        found += examples_of(file)
    assert found == [[2], [3]]
    del sys.modules["own_examples"]
