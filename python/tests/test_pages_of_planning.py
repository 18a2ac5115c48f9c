"""Code of the package's README and notebook."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import deeppool

ROOT = Path(__file__).parents[1]


def test_readme_code_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, {})


def test_notebook_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    notebook = json.loads((ROOT / "examples" / "plan_for_64_gpus.ipynb").read_text())
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    plan = deeppool.Plan.load("plan.json")
    assert plan.gpus == 64
    assert plan.amplification <= 2.0
    assert {layer.gpus for layer in plan.layers} != {64}, "the plan is not data parallel"
    assert any(layer.kind == "opaque" for layer in names["traced"].network.layers)
    assert "background" in capsys.readouterr().out
