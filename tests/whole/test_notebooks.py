"""The notebooks among the examples: they run, and their stored outputs are those of a run."""

import json

import nbformat
import pytest
from notebooks import NOTEBOOKS, difference, outputs


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_the_outputs_of_a_run(path):
    found = difference(path)
    assert not found, f"{found}\nto store them on purpose: python tests/notebooks.py --write"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_was_run_from_its_start(path):
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert kinds <= {"execute_result", "stream"}
    assert json.loads(path.read_text("utf-8"))["metadata"].keys() == {"kernelspec", "language_info"}


def test_another_output_is_seen_and_rounding_is_not():
    """Of the table of a comparison, and of what was printed."""

    def text(printed: str, table: str) -> str:
        data = {"text/markdown": table}
        parts = [nbformat.v4.new_output("stream", text=printed)]
        parts += [nbformat.v4.new_output("execute_result", data=data)]
        return outputs(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(outputs=parts)]))

    stored = text("loss 1.31\n", "| W | False | True | 1.65e-17 |\n| b | False | False | 0.12 |")
    assert stored == text("loss 1.31\n", "| W | True | True | 0 |\n| b | False | False | 0.12 |")
    for other in (
        text("loss 1.32\n", "| W | False | True | 1.65e-17 |\n| b | False | False | 0.12 |"),
        text("loss 1.31\n", "| W | False | False | 1.65e-17 |\n| b | False | False | 0.12 |"),
        text("loss 1.31\n", "| W | False | True | 1.65e-17 |\n| b | False | True | 0.12 |"),
        text("loss 1.31\n", "| V | False | True | 1.65e-17 |\n| b | False | False | 0.12 |"),
    ):
        assert other != stored
