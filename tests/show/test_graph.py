"""The graph of a derivation: every read an edge, and every value with what becomes of it."""

import html
import re
import sys
from dataclasses import dataclass

import pytest
from kit.command import run
from kit.each import each_operation, each_row

import derive
from derive.algebra.expr import Access, Expr
from derive.api import derivation, graph, graph_data
from derive.catalog import find
from derive.errors import DeriveError
from derive.notation.operation import options

LINE = re.compile(r'  "(?P<tail>[^"]+)"(?: -> "(?P<head>[^"]+)")? \[(?P<rest>.*)\];')


@dataclass
class Parsed:
    """The nodes of a text in DOT with their attributes, and its edges with theirs."""

    nodes: dict[str, dict[str, str]]
    edges: dict[tuple[str, str], dict[str, str]]


def parsed(text: str) -> Parsed:
    """Read the lines of nodes and edges; what is not drawn is left out."""
    found = Parsed({}, {})
    for line in text.splitlines():
        m = LINE.fullmatch(line.removeprefix("  ") if line.startswith("    ") else line)
        if m is None or "style=invis" in m["rest"]:
            continue
        given = re.findall(r'(\w+)=(?:<(.*?)>(?=, \w+=)|"([^"]*)"|([\w.]+))', m["rest"])
        attributes = {key: a or b or c for key, a, b, c in given}
        if m["head"]:
            assert (m["tail"], m["head"]) not in found.edges
            found.edges[m["tail"], m["head"]] = attributes
        else:
            assert m["tail"] not in found.nodes
            found.nodes[m["tail"]] = attributes
    return found


def formula(node: dict[str, str]) -> str:
    """The formula of a node, its lines joined."""
    label = re.sub(r"<font.*", "", node["label"])
    lines = html.unescape(label.replace('<br align="left"/>', "\n")).splitlines()
    return "".join(line.replace("\u00a0", "") for line in lines).replace(" ", "")


def reads(e: Expr) -> set[str]:
    found = {e.tensor} if isinstance(e, Access) else set[str]()
    return found.union(*map(reads, e.parts()))


@each_operation(share=5, turns=2)
def test_every_formula_is_a_node_and_every_read_an_edge(op):
    for option, _ in options(op):
        d = derivation(op, option)
        found = parsed(graph(op, option))
        formulas = {f.name: f for f in (*d.equations, *d.definitions, *d.shown)}
        for name, f in formulas.items():
            assert formula(found.nodes[name]) == str(f).replace(" ", "")
            tails = {tail for tail, head in found.edges if head == name}
            assert tails == reads(f.body)
        given = {t.name for t in op.inputs} | {name for _, name in d.cotangents}
        assert given <= found.nodes.keys()
        assert not [head for _, head in found.edges if head in given]
        assert {name for edge in found.edges for name in edge} <= found.nodes.keys()


@each_operation(share=5, turns=2)
def test_what_the_code_saves_is_marked_and_nothing_else(op):
    for option, _ in options(op):
        d, g = derivation(op, option), graph_data(op, option)
        found = parsed(g.dot())
        marked = [g.nodes[n] for n, node in found.nodes.items() if "saved" in node["class"]]
        assert {node.alias or node.name for node in marked} == set(d.saved)
        again = {n for n, node in found.nodes.items() if "again" in node["class"]}
        assert not again & set(d.saved)
        assert again <= {e.name for e in d.equations}
        # What is computed again is read by the backward, or by what is computed again.
        late = {f.name for f in d.shown}
        for name in again:
            readers = {head for tail, head in found.edges if tail == name}
            assert readers & (again | late | {n.name for n in marked})


@each_row(
    "name, again, aliases",
    [
        ("softmax", set(), {}),
        ("layer_norm", {"xhat"}, {"mu": "mean", "var": "rstd"}),
        ("batch_norm", {"xhat"}, {"mu": "mean", "var": "rstd"}),
        ("group_norm", {"xhat"}, {"mu": "mean", "var": "rstd"}),
        ("scaled_dot_product_attention", {"P", "S"}, {"lse": "kept"}),
        ("lstm_cell", {"h"}, {}),
        ("cross_entropy", set(), {}),
    ],
)
def test_what_is_computed_again_is_what_the_backward_lacks(name, again, aliases):
    nodes = graph_data(find(name)).nodes.values()
    assert {n.name for n in nodes if n.mark == "again"} == again
    assert {n.name: n.alias for n in nodes if n.alias} == aliases


def test_an_edge_has_the_shape_and_its_width_the_size():
    op = derive.parse("op f(A[i,k], B[k,j], c) -> C; C[i,j] = c*sum[k](A[i,k]*B[k,j])")
    found = parsed(derive.graph(op))
    shapes = {edge: a["label"].strip("\u00a0 ") for edge, a in found.edges.items()}
    assert shapes["A", "C"] == "i × k"
    assert shapes["c", "C"] == "scalar"
    assert shapes["G", "grad_A"] == "i × j"
    wide, narrow = (float(found.edges[name, "C"]["penwidth"]) for name in ("A", "c"))
    assert wide > narrow
    # A product of matrices is more work than its result has elements.
    assert float(found.nodes["C"]["penwidth"]) > float(found.nodes["G"]["penwidth"])


def test_the_graph_is_of_one_option():
    op = find("mse_loss")
    assert '"average"' in graph(op, "mean")
    assert '"average"' not in graph(op, "none")
    with pytest.raises(DeriveError, match="most"):
        graph(op, "most")


def test_long_formulas_have_short_lines():
    text = graph(find("cross_entropy"))
    labels = [a["label"] for a in parsed(text).nodes.values()]
    lines = [line for label in labels for line in label.split('<br align="left"/>')]
    assert max(len(html.unescape(re.sub("<[^>]*>", "", line))) for line in lines) <= 60


def test_the_text_is_the_same_in_every_process():
    code = (
        "import derive; from derive.catalog import find as load\n"
        "for name in ('layer_norm', 'mmd', 'max_pool2d'): print(derive.graph(load(name)))"
    )
    texts = {run(sys.executable, "-c", code, PYTHONHASHSEED=str(n)).stdout for n in (1, 2)}
    assert len(texts) == 1
    assert len(texts.pop()) > 5000


def test_names_are_no_markup():
    spec = "op f(x[n]) -> y; y[n] = where(x[n] < 2, x[n], 3)"
    text = derive.graph(derive.parse(spec))
    assert "x[n] &lt; 2" in text
