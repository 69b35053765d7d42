"""The comment above an operation: where it is found, and where it is said."""

import pytest

import derive
from derive.notation.comments import comments, first_sentence

TEXT = (
    "# A file of two.\n\n"
    "# Doubles x,\n# twice a number. More of it.\nop double(x[n]) -> y\ny[n] = 2*x[n]\n"
    "op bare(x[n]) -> y; y[n] = x[n]\n"
    "# marker\nop marked(x[n]) -> y; y[n] = x[n]\n"
)


def test_the_comment_right_above_is_that_of_the_operation():
    said = comments(TEXT)
    assert said == {"double": "Doubles x, twice a number. More of it."}
    assert first_sentence(said["double"]) == "Doubles x, twice a number."
    assert first_sentence("") == ""


@pytest.mark.parametrize("suffix", [".derive", ".py"])
def test_it_is_read_from_a_file(tmp_path, suffix):
    texts = {
        ".derive": TEXT,
        ".py": (
            "from derive import Operation\nfrom sympy import Eq, IndexedBase, symbols\n"
            "n = symbols('n', integer=True)\nx, y = map(IndexedBase, 'xy')\nops = (\n"
            "    # Doubles x,\n    # twice a number. More of it.\n"
            "    Operation('double', Eq(y[n], 2*x[n])),\n"
            "    Operation('bare', Eq(y[n], x[n])),\n)\n"
        ),
    }
    path = tmp_path / f"two{suffix}"
    path.write_text(texts[suffix])
    found = {op.name: op.comment for op in derive.read(path)}
    assert (found["double"], found["bare"]) == ("Doubles x, twice a number. More of it.", "")


@pytest.mark.parametrize("comment", ['Says """ and \\ and \x00\u202e."', "Ends in a backslash \\"])
@pytest.mark.parametrize("style", ["production", "plain"])
def test_a_docstring_holds_any_comment(comment, style):
    op = derive.parse(f"# {comment}\nop f(x[n]) -> y; y[n] = x[n]")
    compile(derive.source(op, style=style), "f", "exec")


def test_operations_that_differ_in_the_comment_are_equal():
    op = derive.parse("# Copies x.\nop f(x[n]) -> y; y[n] = x[n]")
    other = derive.parse("op f(x[n]) -> y; y[n] = x[n]")
    assert op == other
    assert "Copies x." in derive.source(op)
    assert "Copies x." not in derive.source(other)


def test_a_long_comment_takes_no_longer_a_line():
    """Every line is read once: nothing is tried again from the next one."""
    some, many = ("# a b\n" * n + "x\n" + "# It is the same.\n op f(" for n in (1, 80_000))
    assert comments(some) == comments(many) == {"f": "It is the same."}
    assert comments("# a b\n" + " " * 400_000 + "x") == {}
