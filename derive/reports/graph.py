"""A derivation as a graph in DOT, the language of Graphviz: a node a formula, an edge a read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from derive.algebra.expr import Expr, Index, free_indices, inside_out, tensors, walk
from derive.cost.size_formula import Amount
from derive.notation.advice import plural
from derive.notation.operation import Operation
from derive.program.argument_types import SizeFormulas
from derive.reports.document import titled
from derive.reports.formula import Formula
from derive.reports.result import Derivation
from derive.reports.reuse import Reuse

_SIZE = 64
"""The value of every size, where widths are chosen."""

_LINE = 46
"""The characters of a line of a formula."""

_INK, _SOFT, _PAPER = "#1d2326", "#667075", "#ffffff"
SAVED, AGAIN, BACKWARD = "#d8eee9", "#fdebc8", "#e6e9f7"
"""The colours of what is saved, of what is computed again, and of the backward."""

_LINES = {"saved": "#2f6f73", "again": "#a06a12"}
"""The colours of the reads of both."""


@dataclass(frozen=True)
class Node:
    """A tensor and how it is made.

    ``part`` is "forward" or "backward"; ``mark`` is "saved", "again" or "". ``text`` is the formula
    or, of what is given, the name with its axes. ``points`` is the number of points at which the
    formula is evaluated, with 64 for each size.
    """

    name: str
    text: str
    part: str
    shape: str
    elements: int
    points: int
    mark: str = ""
    alias: str = ""
    """The saved tensor that has its value, if that is another one."""
    given: bool = False


@dataclass(frozen=True)
class Graph:
    """The nodes of an operation and the reads between them: (what is read, who reads it)."""

    title: str
    nodes: Mapping[str, Node]
    reads: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    """(output, its cotangent)."""

    def dot(self) -> str:
        """Return the graph in DOT, the same text for the same graph."""
        return "\n".join(_dot(self)) + "\n"

    def summary(self) -> str:
        """Return what the graph shows, in words."""
        nodes = self.nodes.values()
        words = [
            f"{self.title}: {_count(nodes, 'forward', 'equation')}, "
            f"{_count(nodes, 'backward', 'formula')} of the backward",
            _listed("saved", (n.name for n in nodes if n.mark == "saved")),
            _listed("computed again", (n.name for n in nodes if n.mark == "again")),
        ]
        return "; ".join(words)


def _count(nodes: Iterable[Node], part: str, what: str) -> str:
    return plural(sum(n.part == part and not n.given for n in nodes), what)


def _listed(what: str, names: Iterable[str]) -> str:
    return f"{what}: {', '.join(names) or 'nothing'}"


def graph_of(op: Operation, d: Derivation, reuse: Reuse) -> Graph:
    """Return the graph of a derivation; ``op`` is the operation of its option."""
    sizes = _Sizes(op)
    forward, backward = _in_parts(d, reuse)
    nodes: dict[str, Node] = {}

    def add(name: str, axes: Sequence[Expr], text: str, part: str, body: Expr | None) -> None:
        shape, elements = sizes.of(axes)
        points = elements if body is None else max(elements, sizes.points(body))
        alias = reuse.saved.get(name, "")
        in_forward = part == "forward"
        mark = "saved" if in_forward and alias else "again" if name in reuse.again else ""
        alias = "" if alias == name else alias
        nodes[name] = Node(name, text, part, shape, elements, points, mark, alias, body is None)

    for t in op.inputs:
        add(t.name, t.axes, _access(t.name, t.axes), "forward", None)
    for f in forward:
        add(f.name, f.axes, str(f), "forward", f.body)
    axes = {f.name: f.axes for f in d.equations}
    for output, name in d.cotangents:
        add(name, axes[output], _access(name, axes[output]), "backward", None)
    for f in backward:
        add(f.name, f.axes, str(f), "backward", f.body)
    reads = [(name, f.name) for f in (*forward, *backward) for name in sorted(tensors(f.body))]
    return Graph(titled(d.name, d.option), nodes, tuple(reads), d.cotangents)


def _access(name: str, axes: Sequence[Expr]) -> str:
    """Return ``A[n,k]``, as formulas print it."""
    return str(Formula(name, tuple(axes), Index("_", "_"))).rpartition(" = ")[0]


def _in_parts(d: Derivation, reuse: Reuse) -> tuple[list[Formula], list[Formula]]:
    """Return the formulas of the forward and those of the backward, in order.

    A definition of the engine is of the forward if what it defines is saved, or if that reads it.
    """
    named = {f.name: f for f in (*reuse.kept, *d.definitions)}
    held = [name for name in named if name in reuse.saved]
    early = {*inside_out(held, lambda name: tensors(named[name].body) & {*named})}
    forward = [*d.equations, *(f for f in named.values() if f.name in early)]
    return forward, [*(f for f in named.values() if f.name not in early), *d.shown]


class _Sizes:
    """The sizes of tensors, as text and as numbers for their widths."""

    def __init__(self, op: Operation) -> None:
        self._formulas = SizeFormulas(op)

    def of(self, axes: Sequence[Expr]) -> tuple[str, int]:
        """Return the shape as text, and the number of elements."""
        shape = [Amount(p) for p in self._formulas.shape(axes)]
        return " × ".join(map(str, shape)) or "scalar", math.prod(map(self._number, shape))

    def points(self, e: Expr) -> int:
        """Return the number of values of the indices, in the part of e that has the most."""
        parts = map(free_indices, walk(e))
        return max(
            math.prod(map(self._number, map(Amount, self._formulas.shape(part)))) for part in parts
        )

    def _number(self, size: Amount) -> int:
        return max(1, size.at(dict.fromkeys(size.needs(), _SIZE)))


# ------------------------------------------------------------------------------------- the text


def _dot(g: Graph) -> Iterator[str]:
    yield f"digraph {_quoted(g.title)} {{"
    yield '  graph [rankdir=TB, nodesep=0.3, ranksep=0.45, fontname="monospace", fontsize=11,'
    yield f'    bgcolor="{_PAPER}", color="{_SOFT}", fontcolor="{_INK}", labelloc=b,'
    yield f"    label=<{_LEGEND}>];"
    yield '  node [shape=box, style="filled,rounded", fontname="monospace", fontsize=11,'
    yield f'    fillcolor="{_PAPER}", color="{_SOFT}", fontcolor="{_INK}", margin="0.12,0.07"];'
    yield f'  edge [fontname="monospace", fontsize=9, color="{_SOFT}", fontcolor="{_SOFT}",'
    yield "    arrowsize=0.6];"
    for part in ("forward", "backward"):
        yield f"  subgraph cluster_{part} {{"
        yield f'    graph [label="{part}", labelloc=t, labeljust=l, style=rounded];'
        for node in g.nodes.values():
            if node.part == part:
                yield f"    {_quoted(node.name)} [{_look(node)}];"
        yield "  }"
    for one, other in g.reads:
        tail = g.nodes[one]
        look = f'label="\u00a0 {tail.shape}", penwidth={_width(tail.elements)}'
        if tail.mark and tail.part != g.nodes[other].part:
            look += f', color="{_LINES[tail.mark]}", class={tail.mark}'
            look += ", style=dashed" if tail.mark == "again" else ""
        yield f"  {_quoted(one)} -> {_quoted(other)} [{look}];"
    for output, cotangent in g.outputs:
        # The backward stands below the forward; nothing is drawn.
        yield f"  {_quoted(output)} -> {_quoted(cotangent)} [style=invis];"
    yield "}"


def _look(node: Node) -> str:
    words = {"saved": "saved", "again": "computed again"}.get(node.mark, "")
    words += f" in {node.alias}" if node.alias else ""
    text = "".join(f'{escape(line)}<br align="left"/>' for line in _lines(node.text))
    text += f'<font point-size="9">{escape(words)}</font><br align="left"/>' if words else ""
    style = "filled" if node.given else "filled,rounded"
    style += ",dashed" if node.mark == "again" else ""
    fill = {"saved": SAVED, "again": AGAIN}.get(node.mark)
    fill = fill or (BACKWARD if node.part == "backward" and not node.given else _PAPER)
    return (
        f'label=<{text}>, style="{style}", fillcolor="{fill}", penwidth={_width(node.points)}, '
        f'class="{" ".join(filter(None, [node.part, node.mark]))}"'
    )


def _width(amount: int) -> str:
    """Return the width of a line: one step more for each factor of 64."""
    return f"{0.6 + 0.8 * math.log(amount, _SIZE):.2f}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _lines(text: str) -> Iterator[str]:
    """Yield a formula in lines of a bounded length, broken outside of brackets where it can be."""
    indent = ""
    while len(indent + text) > _LINE:
        end = _break(text, _LINE - len(indent))
        yield (indent + text[:end]).rstrip(" ")
        text, indent = text[end:].lstrip(), "\u00a0" * 4
    if text:
        yield indent + text


def _break(text: str, room: int) -> int:
    """Return the position at which a line ends: the last one of those in the fewest brackets."""
    depth, best, least = 0, 0, math.inf
    for n, sign in enumerate(text):
        depth += (sign in "([") - (sign in ")]")
        if n > room and best:
            break
        before = text[max(0, n - 2) : n]
        # Before a sign, or after a comma; after a bracket, if there is no better place.
        at = depth if sign in "+−·/" and n > room // 3 else math.inf
        at = depth if before in (", ", "= ") else at
        at = min(at, depth + 0.5) if before in ("] ", ") ") else at
        if at <= least and at < math.inf:
            best, least = n, at
    return best or len(text)


def _row(fill: str, style: str, words: str) -> str:
    sample = f'<td width="22" height="12" fixedsize="true" border="1" style="{style}" '
    return f'{sample}bgcolor="{fill}"></td><td align="left">{words}</td>'


_LEGEND = (
    '<table border="0" cellborder="0"><tr><td>'
    '<table border="0" cellborder="0" cellspacing="6"><tr>'
    + _row(SAVED, "rounded", "saved for the backward")
    + _row(AGAIN, "rounded,dashed", "computed again in the backward")
    + _row(BACKWARD, "rounded", "backward")
    + "</tr></table></td></tr><tr><td>arrow: a read, the wider the larger the tensor; "
    "border: the wider the more work</td></tr></table>"
)
