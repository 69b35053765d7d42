"""Derivations as Markdown, as JSON by its schema, and as an article that TeX typesets."""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from itertools import pairwise
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from kit.command import derive
from kit.tex import needs_tex, typeset
from markdown_it import MarkdownIt

from derive import catalog, derivation, parse
from derive.api import formulas_of
from derive.notation.operation import options
from derive.reports.document import Document, as_article, titled
from derive.show.line_breaks import PAGE, equation_lines, width


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "mse_loss"])
def test_markdown_has_every_formula_and_step(name):
    done = derive("show", name, "--steps", "--format", "markdown")
    made = [derivation(catalog.find(name), option) for option, _ in options(catalog.find(name))]
    assert done.stdout == "\n\n".join(d.markdown(steps=True) for d in made) + "\n"
    tokens = MarkdownIt("commonmark").parse(done.stdout)
    text = "\n".join(token.content for token in tokens)
    every = [f for d in made for f in d.shown]
    steps = [s for d in made for s in d.rewritten] + [s for f in every for s in f.steps]
    blocks = re.findall(r"\$\$\n(.*?)\n\$\$", text, re.DOTALL)
    assert len(blocks) == len(steps) + sum(2 + bool(d.step_definitions) for d in made)
    assert sum(token.type == "list_item_open" for token in tokens) == len(steps)
    headings = [b.content for a, b in pairwise(tokens) if a.tag == "h3"]
    told = [f"steps of {f.name}".replace("_", r"\_") for f in every]
    assert [h for h in headings if h.startswith("steps")] == told


def test_text_in_markdown_is_no_markup():
    op = parse("op f_(x_a[n], x_b[n]) -> y\ny[n] = x_a[n]*exp(x_b[n])")
    text = derivation(op).markdown()
    assert r"saved for backward: x\_b" in text
    html = MarkdownIt("commonmark").render(re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL))
    assert "<em>" not in html


SHOWN = [
    ("softmax", "--steps"),
    ("nll_loss",),
    ("batch_norm", "--steps", "--every"),
    ("layer_norm", "--tangent", "--steps"),
    ("mse_loss", "--cost", "--size", "p=7"),
    ("embedding", "--wrt", "weight"),
    ("--spec", "op f(x[n,k]) -> y; y[n] = sum[i,j]((x[n,i] - x[n,j])**4)"),
    ("--spec", "op f(x[n,i], u[n,j]) -> y; y[n] = sum[i,j](tanh(x[n,i] - u[n,j]))"),
]


@pytest.fixture(scope="module")
def schema() -> Any:
    return json.loads((files("derive.command") / "show.schema.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    return [json.loads(derive("show", *args, "--format", "json").stdout) for args in SHOWN]


def test_the_schema_is_a_schema(schema):
    Draft202012Validator.check_schema(schema)


def test_what_show_prints_is_valid(schema, answers):
    validator = Draft202012Validator(schema)
    for args, found in zip(SHOWN, answers, strict=True):
        assert not [e.message for e in validator.iter_errors(found)], args


def test_the_schema_describes_nothing_that_is_not_printed(schema, answers):
    printed = {key for value in parts(answers) if isinstance(value, dict) for key in value}
    described = (part.get("properties", {}) for part in parts(schema) if isinstance(part, dict))
    assert {key for keys in described for key in keys} <= printed | {"properties"}


def parts(value: Any) -> Iterator[Any]:
    yield value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from parts(inner)


def test_another_answer_is_refused(schema, answers):
    """Without one of its keys, or with one more, at any depth of what has fixed keys."""
    validator = Draft202012Validator(schema)
    found = answers[0]
    fixed = [found[0], found[0]["equations"][0], found[0]["gradients"]["input"]["steps"][0]]
    fixed += [found[0]["cost"], found[0]["cost"]["forward"], found[0]["cost"]["saved_bytes"]]
    for entry in fixed:
        entry["more"] = "1"
        assert not validator.is_valid(found)
        del entry["more"]
        for key, value in list(entry.items()):
            if key == "steps":
                continue
            del entry[key]
            assert not validator.is_valid(found), key
            entry[key] = value
    assert validator.is_valid(found)


@needs_tex
def test_the_formulas_of_the_catalog_are_typeset_within_the_page(tmp_path):
    """In one article, and the steps of some."""
    documents = []
    for name in (line["name"] for line in catalog.lines()):
        for option, _ in options(catalog.find(name)):
            made = formulas_of(catalog.find(name), option)
            symbols = [(own, "=", f"∂L/∂{output}") for output, own in made.cotangents]
            parts = (made.equations, made.definitions, "gradients", symbols, made.shown)
            documents.append(Document(titled(name, option), *parts))
    for name in ("softmax", "cosine_embedding_loss", "conv2d", "gru_cell", "cumprod"):
        made = derivation(catalog.find(name))
        documents += [made.document(steps=True), made.tangents.document(steps=True)]
    log = typeset(as_article(documents), tmp_path)
    assert re.findall(r"Overfull.*", log) == []


@needs_tex
def test_widths_are_about_those_of_tex(tmp_path):
    """Too small an estimate would let lines run over the margin."""
    texts = []
    for name in ("cross_entropy", "conv2d", "gru_cell", "cumprod", "asin", "cosine_similarity"):
        op = catalog.find(name)
        made = formulas_of(op, next(options(op))[0])
        for f in (*made.equations, *made.shown):
            left, lines = equation_lines(*f.parts)
            texts += [left, *lines]
    boxes = [rf"\sbox0{{$\displaystyle {text}$}}\typeout{{WIDTH \the\wd0}}" for text in texts]
    article = as_article([]).replace(r"\end{document}", "\n".join([*boxes, r"\end{document}"]))
    found = re.findall(r"WIDTH ([\d.]+)pt", typeset(article, tmp_path))
    assert len(found) == len(texts)
    for text, points in zip(texts, found, strict=True):
        actual = float(points) / 10
        assert actual < PAGE
        assert abs(width(text) - actual) < 0.5 + 0.25 * actual, text


@needs_tex
def test_names_with_other_letters_are_typeset(tmp_path):
    text = "op größe_1(α[n], β_1[n], Σ[n], Ωx[é], lambda_[é], psi[n]; rate=1) -> y_é\n"
    text += "y_é[n] = α[n]*β_1[n]*Σ[n]*psi[n]**2 + rate*sum[é](Ωx[é]*lambda_[é])"
    (tmp_path / "own.derive").write_text(text, encoding="utf-8")
    done = derive("show", tmp_path / "own.derive:größe_1", "--format", "tex", "--steps")
    assert done.returncode == 0, done.stderr
    assert done.stdout == derivation(parse(text)).article(steps=True) + "\n"
    typeset(done.stdout, tmp_path)


def test_an_article_has_a_section_for_each_option():
    done = derive("show", "mse_loss", "--format", "tex")
    sections = re.findall(r"\\section\*\{(.*)\}", done.stdout)
    assert sections == [rf"mse\_loss ({option})" for option in ("mean", "sum", "none")]
    assert done.stdout.startswith("\\documentclass")
    assert done.stdout.endswith("\\end{document}\n")
