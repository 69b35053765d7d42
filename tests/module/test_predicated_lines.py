"""The lines of both orders under their predicates."""

from functools import partial

import pytest
from kit.each import each_row

from derive.module.predicated_lines import Fork, Item, fewest_lines, predicated, unpacked
from derive.module.pretty_printer import all_of, any_of
from derive.program.cse import Line
from derive.program.merged_bodies import Segment
from derive.program.torch_ir import FunctionCall, MethodCall, Name, Subscript, literal, text


def items(*lines: str) -> list[Item]:
    """``c: a`` is a under the condition c."""
    made = []
    for line in lines:
        condition, _, statement = line.rpartition(": ")
        alternatives = tuple(condition.split(" or ")) if condition else ()
        made.append(Item(alternatives, partial(lambda text, _: [text], statement)))
    return made


def printed(*forks: Fork) -> str:
    return "\n".join(predicated([item for fork in forks for item in fork.items()], 0))


FORKS = {
    "both": (["a"], ["b"], "if f:\n    a\nelse:\n    b"),
    "first": (["a"], [], "if f:\n    a"),
    "later": ([], ["b"], "if not f:\n    b"),
    "none": ([], [], ""),
    "one condition": (["p: a"], ["p: b"], "if p:\n    if f:\n        a\n    else:\n        b"),
    "one side": (["p: a"], [], "if f and p:\n    a"),
    "alternatives": ([], ["p or q: b"], "if not f and (p or q):\n    b"),
    "other side": (["a"], ["p: b", "p: c"], "if f:\n    a\nelif p:\n    b\n    c"),
    "two": (
        ["p: a", "q: b"],
        ["c"],
        "if f:\n    if p:\n        a\n    if q:\n        b\nelse:\n    c",
    ),
}


@each_row("case", FORKS.values())
def test_a_fork_is_one_test_under_the_condition_of_its_lines(case):
    first, later, text = case
    assert printed(Fork("f", items(*first), items(*later))) == text


def test_lines_in_a_row_with_one_condition_are_under_one_test():
    fork = Fork("f", items("p: b"), [])
    made = predicated([*items("p: a"), *fork.items(), *items("p: c", "d")], 0)
    assert made == ["if p:", "    a", "    if f:", "        b", "    c", "d"]


def test_a_long_disjunction_has_a_line_for_each_alternative():
    parts = [f"ctx.needs_input_grad[{n}]" for n in range(4)]
    made = any_of("if f and ", parts, ":", 0, factor=True)
    assert made == ["if f and (", f"    {parts[0]}", *(f"    or {p}" for p in parts[1:]), "):"]


def test_a_long_conjunction_has_a_line_for_each_condition():
    parts = [f"G_of_statistic{n} is None" for n in range(4)]
    made = all_of("if ", parts, ":", 0)
    assert made == ["if (", f"    {parts[0]}", *(f"    and {p}" for p in parts[1:]), "):"]


def line(name: str):
    return (Line(name, Name(name)),)


def test_a_shared_line_that_makes_the_text_longer_is_joined_with_its_forks():
    forks = Segment(line("a"), line("b")), Segment(line("c"), line("d"))
    segments = [forks[0], Segment(line("s"), line("s"), line("s")), forks[1]]

    def shown(given):
        return [
            x for s in given for x in (["s"] if s.shared else ["if", *s.first, "else", *s.later])
        ]

    assert len(fewest_lines(segments, shown)) == 8
    assert len(shown(segments)) == 9


def test_of_many_segments_few_texts_are_tried():
    """Each text is as long as the body, and so are the texts of all choices."""
    tried = []

    def shown(segments):
        tried.append(segments)
        return ["line"] * len(segments)

    parts = [Segment(line("a"), line("b")), Segment(line("s"), line("s"), line("s"))]
    fewest_lines(parts * 15, shown)
    assert 15 < len(tried) < 60
    tried.clear()
    assert len(fewest_lines(parts * 90, shown)) == 180 and len(tried) == 1


def results(*parts):
    """The lines that read the results of a kernel, a number is the position of one."""
    call = FunctionCall("rt.native_layer_norm", (Name("x"),))
    lines = [Line("normed", call)]
    for name, n, *cast in parts:
        code = Subscript(Name("normed"), (literal(n),))
        lines.append(Line(name, MethodCall(code, "to", (Name("dtype"),)) if cast else code))
    return tuple(lines)


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        ([("y", 0), ("m", 1), ("r", 2)], ["y, m, r = {}"]),
        ([("r", 2), ("y", 0, "cast")], ["y, _, r = {}", "y = y.to(dtype)"]),
        ([("y", 0), ("z", 0)], ["normed = {}", "y = normed[0]", "z = normed[0]"]),
    ],
    ids=["all", "some", "one twice"],
)
def test_results_are_named_in_the_statement_of_their_call(parts, lines):
    made = [f"{line.name} = {text(line.code)}" for line in unpacked(results(*parts))]
    assert made == [line.format("rt.native_layer_norm(x)") for line in lines]


def test_results_that_are_read_elsewhere_keep_their_name():
    body = results(("y", 0))
    assert unpacked(body, results(("z", 1))) == body
