"""The page that derives in the browser: what the engine answers, and a person's way through it."""

import io
import json
import os
import random
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import html5lib
import pytest
import torch
from kit.browser import MISSING, browser
from kit.command import ROOT, derive

from derive.algebra.functions import FUNCTIONS, POWERS, WRITTEN
from derive.errors import KINDS, DeriveError
from derive.site import bundle, documents, live
from derive.site.documents import document
from derive.site.live import answer

PYODIDE = Path(os.environ.get("DERIVE_PYODIDE", ROOT / ".node/node_modules/pyodide"))
NO_PYODIDE = "" if (PYODIDE / "pyodide.mjs").is_file() else f"{PYODIDE} is missing"

SOFTMAX = "op soft(A[n,k]) -> S\nS[n,k] = exp(A[n,k])/sum[k](exp(A[n,k]))\n"
NORM = (
    "op norm(x[n,k], w[k]; eps=1e-5) -> y\n"
    "m[n] = mean[k](x[n,k]**2)\ny[n,k] = x[n,k]*rsqrt(m[n] + eps)*w[k]\n"
)
ATTEMPT = "grad_A[n,k] = S[n,k]*(G[n,k] - sum[j](G[n,j]*S[n,j]))"


def asked(text: str, **more: Any) -> Any:
    return json.loads(answer(json.dumps({"text": text, **more})))


def test_an_answer_has_formulas_and_steps_then_the_rest():
    found = asked(SOFTMAX)
    assert found["ok"]
    assert found["formulas"].count("<math") > 3
    assert "contract delta" in found["formulas"]
    found = asked(SOFTMAX, rest=True)
    assert found["ok"]
    assert found["text"].splitlines()[5].strip().startswith("grad_A[n,k] = S[n,k]·(G[n,k]")
    assert found["latex"].startswith(r"\paragraph{soft}")
    assert found["markdown"].startswith("## soft\n")
    assert "bytes kept for the backward" in found["cost"]
    for style in ("plain", "production"):
        compile(found[style]["text"], style, "exec")
        assert "import _runtime" not in found[style]["text"]
        assert len(found[style]["lines"]) == found[style]["text"].rstrip("\n").count("\n") + 1


def test_an_answer_is_of_the_option_and_the_names_that_are_asked_for():
    text = (
        "op f(x[n], z[n]; way=sum|none) -> sum: s | none: y\ny[n] = x[n]*z[n]\ns = sum[n](y[n])\n"
    )
    found = asked(text, option="none", wrt=["z"])
    assert (found["options"], found["option"]) == (["sum", "none"], "none")
    assert "grad_x" not in found["formulas"]
    assert asked(text, option="missing")["option"] == "sum"
    said = asked(text, option="none", wrt=["z"], rest=True)["text"]
    assert "grad_z[n] = G[n]·x[n]" in said
    assert "grad_x" not in said
    assert "d_y[n] =" in asked(text, option="none", tangent=True, rest=True)["text"]


@pytest.mark.parametrize(
    ("text", "place", "said", "code"),
    [
        ("y[i] = x[i]\nz[i] = sgmoid(y[i])", (2, 8), "unknown function sgmoid", "D009"),
        ("", (None, None), "the text has no operation", "D003"),
        ("y[i] = x[i", (1, 9), "[ is never closed", "D001"),
        ("op f(T[n]: int) -> y\ny[n] = 2*T[n]", (None, None), "f: the operation has no", "D046"),
    ],
)
def test_an_error_has_its_place_and_its_code(text, place, said, code):
    found = asked(text, rest=True)
    assert not found["ok"]
    assert (found["line"], found["column"]) == place
    assert found["message"].startswith(said)
    assert "[D" not in found["message"]
    assert found["code"] == code


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_an_error_has_a_place_for_its_code(kind):
    """The guide makes the anchor from the heading, and the answer from the kind."""
    page = live._refused(DeriveError("wrong", kind=kind))["page"]
    address, _, anchor = page.partition("#")
    headings = document(documents.pages()[address], address).headings
    assert anchor in {own for _, own, _ in headings}


def test_a_defect_is_an_answer(monkeypatch):
    def broken(*_):
        raise KeyError("k")

    monkeypatch.setattr(live, "parse", broken)
    found = asked("y[i] = x[i]")
    assert not found["ok"]
    assert found["message"] == "KeyError: 'k'; please report this text"


def arity(function: str) -> int:
    """The number of arguments of a function of the notation."""
    return 1 if function in POWERS else FUNCTIONS[function].arity


def test_the_engine_needs_neither_torch_nor_numpy_nor_sympy():
    calls = (
        f"{f}({', '.join(f'x{n}[i]' for n in range(arity(f)))})" for f in WRITTEN if f != "int"
    )
    every = [
        json.dumps({"text": f"y[i] = {call}", "rest": rest})
        for call in calls
        for rest in (False, True)
    ]
    code = (
        "import sys\n"
        "class Without:\n"
        "    def find_spec(self, name, *rest):\n"
        "        apart = 'torch numpy sympy typer rich markdown_it'.split()\n"
        "        if name.partition('.')[0] in apart: raise ImportError(name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "import time; del time.thread_time\n"
        "from derive.site.live import answer\n"
        f"print(answer({json.dumps(json.dumps({'text': SOFTMAX}))}))\n"
        f"print(answer({json.dumps(json.dumps({'text': SOFTMAX, 'attempt': ATTEMPT}))}))\n"
        f"for text in {every}: print(answer(text))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    derived, judged, *functions = map(json.loads, done.stdout.splitlines())
    assert derived["ok"]
    assert judged["right"]
    assert [found["ok"] for found in functions] == [True] * len(every)


def hostile(count: int, seed: int) -> Iterator[str]:
    """Texts that a person would not type."""
    rng = random.Random(seed)
    bits = [
        *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "&lt;", '"', "'", "</code>"),
        *"[]()|=Σδ′²√\n;#\0\ud800",
        "Σₖ",
        *(
            "op ",
            "where(",
            "sum[",
            "9" * 40,
            "a" * 60,
            "1e308",
            "**",
            "//",
            "*p",
            "->",
            "😀",
            "\u202e",
        ),
    ]
    texts = [SOFTMAX, NORM, "y[i] = x[i]"]
    for _ in range(count):
        text = rng.choice(texts)
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(bits) + text[at + rng.randrange(4) :]
        yield text
    yield "(" * 3000 + "x" + ")" * 3000
    yield "y[i] = " + "-" * 3000 + "x[i]"
    yield "y = " + "+".join(f"x{n}[i]" for n in range(400))
    # A name may be anything that Python takes; a comment may be anything.
    yield "op f(x[i]) -> y # <script>alert(1)</script>\ny[i] = x[i]"


@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.long)])
def test_no_text_breaks_the_page(count):
    parser = html5lib.HTMLParser(strict=True)
    for n, text in enumerate(hostile(count, count)):
        found = asked(text)
        assert found["ok"] in (True, False), text
        if found["ok"]:
            assert "<script" not in found["formulas"], text
            if n % 10 == 0:
                parser.parseFragment(found["formulas"])
            rest = asked(text, rest=True)
            assert rest["ok"] in (True, False), text
            codes = (rest["plain"], rest["production"]) if rest["ok"] else ()
            lines = "".join(line for code in codes for line in code["lines"])
            assert not any(tag in lines.lower() for tag in ("<script", "<img")), text
        else:
            assert isinstance(found["message"], str), text


def test_the_archive_is_the_engine_alone_and_always_the_same():
    first = bundle.engine()
    assert bundle.engine() == first
    assert len(first) < 2_500_000
    names = zipfile.ZipFile(io.BytesIO(first)).namelist()
    assert {"derive/site/live.py", "derive/templates/site/answer.html.jinja"} <= set(names)
    assert [n for n in names if n.startswith("derive/auditing")] == [
        "derive/auditing/__init__.py",
        "derive/auditing/terms.py",
    ]
    assert not [n for n in names if n.startswith(("derive/tracing", "derive/command", "torch"))]
    assert len(names) == len(set(names))


def test_a_folder_without_the_interpreter_is_refused_with_the_command_that_brings_it(tmp_path):
    with pytest.raises(DeriveError, match="run npm install pyodide"):
        list(bundle.interpreter(tmp_path))
    done = derive("site", tmp_path / "out", "--live", tmp_path, cwd=tmp_path)
    assert done.returncode == 2
    assert "npm install pyodide" in done.stderr


in_a_browser = pytest.mark.skipif(bool(MISSING or NO_PYODIDE), reason=MISSING or NO_PYODIDE)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: Any) -> Iterator[str]:
    """The address of a small site with a live page, on a server of this machine."""
    folder: Path = tmp_path_factory.mktemp("live")
    (folder / "own.derive").write_text(SOFTMAX + "\n" + NORM)
    done = derive(
        "site", folder / "out", "--specs", folder / "own.derive", "--live", PYODIDE, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    size = sum(p.stat().st_size for p in (folder / "out").rglob("*") if p.is_file())
    assert size < 20_000_000
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder / "out")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/live.html"
    server.shutdown()
    server.server_close()


@in_a_browser
def test_a_mistake_is_shown_mended_and_the_code_is_copied_and_run(address):
    with browser() as page:
        page.execute_cdp_cmd(
            "Browser.grantPermissions",
            {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]},
        )
        page.get(address)
        waits_for(page, "Derived in")
        assert page.find_elements("css selector", "#formulas math")
        typed(page, "y[i] = sgmoid(x[i])*w[i]")
        waits_for(page, "The text has a mistake")
        error = page.find_element("id", "error").text.split("\n")
        assert error[0] == "line 1, column 8: unknown function sgmoid; did you mean sigmoid? [D009]"
        link = page.find_element("css selector", "#error a").get_attribute("href")
        assert link.endswith("/guide/error-codes.html#d009-unknown-function")
        assert error[-1] == " " * 7 + "^"
        typed(page, "y[i] = sigmoid(x[i])*w[i]")
        waits_for(page, "Derived in")
        assert not page.find_element("id", "error").is_displayed()
        copy = page.find_element("css selector", "[data-copy=plain]")
        waits_until(page, copy.is_enabled)
        copy.click()
        code = page.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
        runs(code)
        page.find_element("css selector", "#cost summary").click()
        assert "flops 2·i 4·i" in page.find_element("css selector", "#cost table").text
        link = page.current_url
        page.get("about:blank")
        page.get(link)
        waits_for(page, "Derived in")
        assert page.find_element("id", "spec").get_property("value") == "y[i] = sigmoid(x[i])*w[i]"
        hosts = page.execute_script(
            "return performance.getEntriesByType('resource').map((e) => new URL(e.name).host)"
        )
        assert set(hosts) <= {address.split("/")[2]}
        assert not [line for line in page.get_log("browser") if line["level"] == "SEVERE"]


@in_a_browser
def test_an_exercise_is_wrong_then_right_and_shows_its_answer(address):
    with browser() as page:
        page.get(address)
        waits_for(page, "Derived in")
        attempt = page.find_element("id", "attempt")
        assert not attempt.is_displayed()
        page.execute_script(
            "const list = document.getElementById('example');"
            "list.selectedIndex = [...list.options].findIndex((o) => 'exercise' in o.dataset);"
            "list.dispatchEvent(new Event('change'));"
        )
        waits_until(page, lambda: attempt.get_property("value") == "grad_A[n,k] = ")
        assert attempt.is_displayed()
        assert not page.find_element("id", "formulas").is_displayed()
        tries(page, "grad_A[n,k] = S[n,k]*(G[n,k] + sum[j](G[n,j]*S[n,j]))")
        waits_until(page, lambda: "Not right yet. the sign is wrong" in verdict(page))
        assert page.find_elements("css selector", "#verdict math")
        tries(page, "grad_A[n,k] = S[n,k]*(G[n,k] - <b>")
        waits_until(page, lambda: page.find_element("id", "attempt-error").is_displayed())
        assert page.find_element("id", "attempt-error").text.startswith("line 1, column ")
        assert verdict(page) == ""
        tries(page, ATTEMPT)
        waits_until(page, lambda: verdict(page).startswith("Right."))
        assert not page.find_element("id", "attempt-error").is_displayed()
        page.find_element("id", "reveal").click()
        assert page.find_element("id", "formulas").is_displayed()
        link = page.current_url
        assert "#e=" in link
        page.get("about:blank")
        page.get(link)
        waits_for(page, "Derived in")
        assert page.find_element("id", "attempt").is_displayed()
        assert not page.find_element("id", "formulas").is_displayed()
        assert not [line for line in page.get_log("browser") if line["level"] == "SEVERE"]


def tries(page: Any, text: str) -> None:
    """Replace the attempt by a text, as typing does."""
    page.execute_script(
        "const field = document.getElementById('attempt');"
        "field.value = arguments[0]; field.dispatchEvent(new Event('input'));",
        text,
    )


def verdict(page: Any) -> str:
    said: str = page.find_element("id", "verdict").text
    return said


def waits_until(page: Any, holds: Any) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end, page.find_element("id", "state").text
        time.sleep(0.05)


def runs(code: str) -> None:
    """The copied module has the gradient that finite differences have."""
    module: dict[str, Any] = {}
    exec(compile(code, "copied", "exec"), module)
    x, w = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    torch.testing.assert_close(module["op"](x, w), torch.sigmoid(x) * w)
    assert torch.autograd.gradcheck(module["op"], (x, w))


def typed(page: Any, text: str) -> None:
    """Replace the spec by a text, as typing does."""
    page.execute_script(
        "document.getElementById('state').textContent = '';"
        "const field = document.getElementById('spec');"
        "field.value = arguments[0]; field.dispatchEvent(new Event('input'));",
        text,
    )


def waits_for(page: Any, text: str) -> None:
    """Wait until the state of the page begins so."""
    end = time.monotonic() + 120
    while not page.find_element("id", "state").text.startswith(text):
        assert time.monotonic() < end, page.find_element("id", "state").text
        time.sleep(0.05)
