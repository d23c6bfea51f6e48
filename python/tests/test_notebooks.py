"""The notebooks run from top to bottom, and lie in the repository without what they put out."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs(file: Path) -> None:
    notebook = nbformat.read(file, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code), "clear its outputs before it is committed"
    nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(file.parent)}}
    ).execute()
    shown = [output for cell in code for output in cell.outputs]
    assert not any(output.output_type == "stream" and output.name == "stderr" for output in shown), "it warns"
    assert any("image/png" in output.get("data", {}) for output in shown), "it shows a figure"


def test_there_are_three() -> None:
    assert [file.stem for file in NOTEBOOKS] == ["first-link", "own-control", "papers-table"]
