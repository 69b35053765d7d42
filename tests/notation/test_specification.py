"""The operations of a file, of text or of Python; an error names the file."""

import os
import sys

import pytest

import derive
from derive import SpecError


def test_a_text_and_a_module_are_read(tmp_path):
    text = tmp_path / "a.derive"
    text.write_text("op f(x[i]) -> y; y[i] = 2*x[i]\n\nop g(x[i]) -> y; y[i] = x[i]**2\n")
    assert [op.name for op in derive.read(text)] == ["f", "g"]
    module = tmp_path / "b.py"
    module.write_text("import derive\nh = derive.parse('op h(x[i]) -> y; y[i] = x[i]**3')\n")
    assert [op.name for op in derive.read(str(module))] == ["h"]


def test_a_module_is_read_as_it_stands_now(monkeypatch, tmp_path):
    """Of the same length and the same second as it was before, it is another text."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    module = tmp_path / "b.py"
    found = []
    for power in (2, 3):
        module.write_text(
            f"import derive\nh = derive.parse('op h(x[i]) -> y; y[i] = x[i]**{power}')\n"
        )
        os.utime(module, (1e9, 1e9))
        found += derive.read(module)
    assert found == [derive.parse(f"op h(x[i]) -> y; y[i] = x[i]**{n}") for n in (2, 3)]
    assert [p.name for p in tmp_path.iterdir()] == ["b.py"]


def test_an_error_names_the_file_and_the_line(tmp_path):
    text = tmp_path / "a.derive"
    text.write_text("op f(x[i]) -> y\ny[i] = x[j]\n")
    with pytest.raises(SpecError, match=r"a\.derive.*line 2"):
        derive.read(text)
    module = tmp_path / "b.py"
    module.write_text("x = 1\ny = 1/0\n")
    with pytest.raises(SpecError, match=r"(?s)b\.py.*ZeroDivisionError"):
        derive.read(module)


def test_a_file_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(SpecError, match=r"none\.derive"):
        derive.read(tmp_path / "none.derive")
