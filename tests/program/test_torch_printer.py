"""The printer of expressions: the layout of ruff format, of which nothing is left to format."""

import random
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from derive.program.torch_ir import (
    Attribute,
    Binary,
    Code,
    Conditional,
    FunctionCall,
    Keyword,
    Literal,
    MethodCall,
    Name,
    Slice,
    Subscript,
    Tuple,
    Unary,
    text,
)
from derive.program.torch_printer import COLUMNS, broken, fits, is_long

NAMES = "x mu grad_input weight label_smoothing running_total target q".split()
APART = "\n# apart\n"


def code(r: random.Random, depth: int) -> Code:
    """Return a random expression."""
    if depth <= 0:
        leaves = [Name(r.choice(NAMES))] * 6
        leaves += [
            Literal("2.5"),
            Literal("-1"),
            Literal("math.nan"),
            Attribute(leaves[0], "shape"),
        ]
        return r.choice(leaves)

    def part() -> Code:
        return code(r, depth - r.randint(1, 2))

    def tensor() -> Code:
        made = part()
        return made if not isinstance(made, Literal) else Name("x")

    def parts(least: int, most: int) -> tuple[Code, ...]:
        return tuple(part() for _ in range(r.randint(least, most)))

    def call() -> Code:
        more = (Keyword("keepdim", part()),) if r.random() < 0.4 else ()
        return MethodCall(tensor(), r.choice(["sum", "reshape"]), (*parts(0, 2), *more))

    def item() -> Code:
        return r.choice([part, lambda: Slice(Name("q")), lambda: Slice(tensor(), tensor())])()

    kinds = {
        lambda: Binary(r.choice("+ - * / @ //".split()), part(), part()): 4,
        lambda: Binary("**", call(), Name(r.choice(NAMES))): 1,
        lambda: Binary(r.choice("== != < <= is".split()), part(), part()): 1,
        lambda: Binary(r.choice("& | and or".split()), part(), part()): 2,
        call: 3,
        lambda: FunctionCall(r.choice(["torch.where", "rt.cast"]), parts(1, 3)): 1,
        lambda: Conditional(part(), part(), part()): 1,
        lambda: Unary(r.choice("- ~ not".split()), part()): 1,
        lambda: Subscript(tensor(), tuple(item() for _ in range(r.randint(1, 2)))): 1,
        lambda: Tuple(parts(1, 3)): 1,
    }
    return r.choices(list(kinds), list(kinds.values()))[0]()


def statement(r: random.Random) -> list[str]:
    """Return a random statement in a body."""
    made, indent = code(r, r.randint(2, 5)), r.choice([0, 4, 8])
    lines = r.choice(
        [
            lambda: broken(f"{r.choice(NAMES)} = ", made, indent=indent),
            lambda: broken("return ", made, indent=indent),
            lambda: [*broken("if ", made, ":", indent), "    pass"],
        ]
    )()
    heads = [f"{' ' * n}if x:" for n in range(0, indent, 4)]
    return [*heads, *(" " * indent + line for line in lines)]


@settings(max_examples=12, deadline=None, derandomize=True, database=None)
@given(st.integers(0, 2**32))
def test_a_formatter_leaves_every_statement(seed):
    r = random.Random(seed)
    made = ["\n".join(statement(r)) for _ in range(60)]
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "-"]
    done = subprocess.run(
        command, input=APART.join(made) + "\n", capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    for ours, other in zip(made, done.stdout.strip("\n").split(APART), strict=True):
        assert ours == other.strip("\n")


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_a_break_changes_no_token(seed):
    made = code(random.Random(seed), 5)
    whole = "".join("".join(broken("x = ", made)).split())
    plain = "".join(f"x = {text(made)}".split())
    for bracket in "()":
        whole, plain = whole.replace(bracket, ""), plain.replace(bracket, "")
    assert whole.replace(",", "") == plain.replace(",", "")


def test_a_statement_that_fits_is_one_line():
    made = Binary("+", Name("a" * 40), Name("b" * 41))
    assert broken("x = ", made) == [f"x = {text(made)}"]
    assert broken("xy = ", made) == ["xy = (", f"    {text(made)}", ")"]
    assert all(len(line) <= COLUMNS for line in broken("xy = ", made))


@pytest.mark.parametrize(
    ("made", "long"),
    [
        (FunctionCall("f", (Name("a" * 60), Name("b" * 60))), False),
        (FunctionCall("f", tuple(Name(letter * 60) for letter in "abcd")), True),
        # A line of a short argument alone is hard to read.
        (MethodCall(Name("a" * 66), "sum", (Literal("2"),)), True),
    ],
)
def test_what_has_many_lines_is_long(made, long):
    assert not fits("x = ", made)
    assert is_long("x = ", made) is long
