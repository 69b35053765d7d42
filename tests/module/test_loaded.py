"""Functions of modules that any process may import: compiled, pickled, shown in tracebacks."""

import inspect
import os
import pickle
import subprocess
import sys
import traceback
import warnings

import pytest
import torch

import derive
from derive import loaded

SPEC = "op swish(x[n], a) -> y\ny[n] = x[n]/(1 + exp(-a*x[n]))"


@pytest.fixture
def swish():
    return derive.load(derive.parse(SPEC))


def test_what_is_loaded_twice_is_one_function(swish):
    assert derive.load(derive.parse(SPEC)) is swish
    assert inspect.getsource(swish).startswith("def swish(")


def test_it_is_pickled_and_another_process_unpickles_it(swish, tmp_path):
    both = derive.value_and_grad(derive.parse("op total(x[n]) -> y\ny = sum[n](x[n]**2)"))
    assert pickle.loads(pickle.dumps(swish)) is swish
    path = tmp_path / "functions.pickle"
    path.write_bytes(pickle.dumps((swish, both)))
    code = (
        "import pickle, sys, torch; f, g = pickle.load(open(sys.argv[1], 'rb'));"
        "print(f(torch.zeros(3), torch.ones(())).tolist(), g(torch.ones(2))[0].item())"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout == "[0.0, 0.0, 0.0] 2.0\n"


def test_it_is_compiled(swish):
    x, a = torch.randn(5, requires_grad=True), torch.randn((), requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(swish, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x, a), swish(x, a))
        square = derive.load(derive.parse("op f(x[n], z[n]) -> y\ny[n] = x[n]*z[n]"))
        both = torch.compile(lambda x: square(x, x), fullgraph=True, backend="aot_eager")
        (gradient,) = torch.autograd.grad(both(x).sum(), x)
    torch.testing.assert_close(gradient, 2 * x.detach())


def test_a_traceback_shows_its_lines(swish):
    with pytest.raises(TypeError) as caught:
        swish([1.0], torch.ones(()))
    shown = "".join(traceback.format_exception(caught.value))
    assert 'raise rt.explained("swish", ' in shown


def test_where_nothing_can_be_written_it_is_there_for_this_process(monkeypatch):
    def refused(path, text):
        raise PermissionError(path)

    monkeypatch.setattr(loaded, "_written", refused)
    f = derive.load(derive.parse("op f(x[n]) -> y\ny[n] = 17*x[n]"))
    assert f(torch.ones(2)).tolist() == [17.0, 17.0]
    assert pickle.loads(pickle.dumps(f)) is f


@pytest.mark.parametrize(
    ("platform", "variables", "end"),
    [
        ("linux", {}, ".cache/derive"),
        ("linux", {"XDG_CACHE_HOME": "/elsewhere"}, "/elsewhere/derive"),
        ("darwin", {}, "Library/Caches/derive"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/derive"),
        ("linux", {"DERIVE_CACHE": "/given"}, "/given"),
    ],
)
def test_the_folder_is_that_of_a_persons_caches(monkeypatch, platform, variables, end):
    for name in ("DERIVE_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert loaded.folder().as_posix().endswith(end)


def test_a_folder_that_is_named_from_here_is_so_from_everywhere(monkeypatch):
    monkeypatch.setenv("DERIVE_CACHE", "modules")
    assert loaded.folder().is_absolute()


def test_where_nobody_has_a_home_it_is_a_temporary_folder(monkeypatch):
    for name in ("DERIVE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.setattr(sys, "platform", "linux")
    assert loaded.folder().is_absolute()
