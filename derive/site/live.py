"""Answer what is typed on the live page; nothing here needs torch, NumPy or SymPy.

The page runs this in a browser, in an interpreter of its own: text in, JSON out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from derive.api import derivation, source, tangents
from derive.budget import limits
from derive.errors import DeriveError, LimitError, SpecError
from derive.module.templating import environment
from derive.notation.operation import Operation, names_with_gradient, options
from derive.notation.specification import parse
from derive.reports.result import Derivation, Tangents
from derive.show.mathml import aligned
from derive.site.code import highlighted
from derive.site.cost import cost_view
from derive.site.exercise import begin, judge
from derive.site.formulas import step, style_of, symbol

_SECONDS = 20.0
"""Processor time for one answer; the page has other work too."""


def answer(asked: str) -> str:
    """Return what the page shows for a text, as JSON.

    ``asked`` is JSON: ``text``; ``option``, the name of an option; ``wrt``, the names whose
    gradients are wanted; ``tangent``, true for forward mode; ``attempt``, a gradient that a person
    wrote, to be judged; ``rest``, true for the code, the cost and what is copied in place of the
    formulas, which are there sooner. Each may be missing.
    """
    given = json.loads(asked)
    try:
        with limits(seconds=_SECONDS):
            found = _answer(given)
    except DeriveError as error:
        found = _refused(error)
    except RecursionError:
        found = _refused(LimitError("the formula is nested too deeply for a browser"))
    except Exception as error:
        text = f"{type(error).__name__}: {error}; please report this text"
        found = _refused(DeriveError(text, kind="internal-error"))
    return json.dumps(found)


def _refused(error: DeriveError) -> dict[str, Any]:
    """Return an error with its place; lines after the first show where it is and what helps.

    ``page`` is the address of what its code means.
    """
    found = {"ok": False, "message": error.text, "line": None, "column": None}
    if isinstance(error, SpecError):
        found |= {"message": error.message, "line": error.line, "column": error.column}
    code, page = error.code, None
    if code is not None:
        page = f"guide/error-codes.html#{code.lower()}-{error.kind}"
    return {**found, "code": code, "page": page}


def _answer(given: Mapping[str, Any]) -> dict[str, Any]:
    op = parse(given["text"])
    names = [name for name, _ in options(op)]
    option = given.get("option") if given.get("option") in names else names[0]
    if given.get("attempt") is not None:
        return _judged(op, given["attempt"], option)
    chosen = dict(options(op))[option]
    known = names_with_gradient(chosen)
    wrt = [name for name in given.get("wrt") or () if name in known] or None
    d: Derivation | Tangents
    d = tangents(op, option, wrt) if given.get("tangent") else derivation(op, option, wrt)
    if given.get("rest"):
        return _rest(op, d)
    return {
        "ok": True,
        "of": "formulas",
        "name": op.name,
        "options": [name for name in names if name is not None],
        "option": option,
        "names": known,
        "begin": begin(d) if isinstance(d, Derivation) else "",
        "formulas": _formulas(op, d),
    }


def _rest(op: Operation, d: Derivation | Tangents) -> dict[str, Any]:
    """Return both modules, the cost as HTML, and the texts that are copied."""
    plain, production = source(op, style="plain"), source(op)
    cost = cost_view(op, (d if isinstance(d, Derivation) else derivation(op, d.option)).cost)
    html = environment(escapes=True).get_template("site/cost.html.jinja")
    return {
        "ok": True,
        "of": "rest",
        "text": d.text(),
        "latex": d.latex(),
        "markdown": d.markdown(),
        "plain": {"text": plain, "lines": highlighted(plain, "python")},
        "production": {"text": production, "lines": highlighted(production, "python")},
        "cost": html.render(cost=cost, charts=True),
    }


def _judged(op: Operation, attempt: str, option: str | None) -> dict[str, Any]:
    """Return the verdict on a person's gradient as HTML; an error has its place in the attempt."""
    try:
        verdicts = judge(op, attempt, option)
    except DeriveError as error:
        return {**_refused(error), "of": "attempt"}
    html = environment(escapes=True).get_template("site/verdict.html.jinja").render(view=verdicts)
    return {"ok": True, "of": "attempt", "right": all(v.right for v in verdicts), "html": html}


def _formulas(op: Operation, d: Derivation | Tangents) -> str:
    """Return the formulas and steps as HTML."""
    if isinstance(d, Derivation):
        style = style_of(op, d)
        symbols = [symbol(style, name, output) for output, name in d.cotangents]
        groups: Sequence[tuple[Sequence[str], Sequence[Any]]] = (
            ((), d.equations),
            (("where",), d.definitions),
            (("gradients", *symbols), d.shown),
        )
        derived = [f for f in (*d.adjoints, *d.gradients.values()) if f.steps]
        steps = [(f.name, [step(s, style, False) for s in f.steps]) for f in derived]
        math = [(words, aligned(f.sides(style) for f in rows)) for words, rows in groups if rows]
        view = {"math": math, "steps": steps, "html": ""}
    else:
        view = {"math": [], "steps": [], "html": d._repr_html_()}
    return environment(escapes=True).get_template("site/answer.html.jinja").render(view=view)
