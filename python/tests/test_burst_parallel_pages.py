"""Commands of docs/pytorch.md and the training example."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command import BIN

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/pytorch.md").read_text(encoding="utf-8")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


def run(command, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def commands():
    return re.findall(r"^    \$ (.*)$", PAGE, re.MULTILINE)


def test_page_has_commands_for_all_of_its_scripts():
    scripts = re.findall(r"<!-- (\S+) -->", PAGE)
    assert scripts == ["export.py", "record.py", "before.py", "after.py", "memory.py"]
    assert all(any(script in command for command in commands()) for script in scripts)


def import_requirements(arguments):
    """Skips the test if a package that the script imports is missing."""
    if arguments in (["export.py"], ["record.py"]):
        pytest.importorskip("torchvision")
    if arguments == ["export.py"]:
        pytest.importorskip("onnxscript")


@pytest.mark.parametrize("command", commands())
def test_command_of_page_runs(command, tmp_path):
    for name, script in re.findall(r"<!-- (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / name).write_text(script)
    program, *arguments = shlex.split(command)
    if program == "torchrun":
        output = run([*TORCHRUN, *arguments], tmp_path)
        losses = dict(re.findall(r"rank 0, epoch (\d): loss ([\d.]+)", output))
        assert float(losses["1"]) < 3
    elif program == "python":
        import_requirements(arguments)
        output = run([sys.executable, *arguments], tmp_path)
        if arguments == ["memory.py"]:
            assert re.findall(r"^rank (\d): [\d.]+ MB", output, re.MULTILINE) == list("0123")
        elif arguments == ["record.py"]:
            assert (tmp_path / "trace.json.gz").exists()
        else:
            assert "times one GPU" in output or (tmp_path / "net.onnx").exists()
    else:
        if not BIN.exists():
            pytest.skip(f"there is no {BIN.name}: cargo build -p deeppool-cli, or DEEPPOOL_BIN=PATH")
        scripts = {"--onnx": "python export.py", "--kineto": "python record.py"}
        wanted = next((scripts[option] for option in scripts if option in arguments), "python -c")
        (made_by,) = (other for other in commands() if other.startswith(wanted))
        import_requirements(shlex.split(made_by)[1:])
        run([sys.executable, *shlex.split(made_by)[1:]], tmp_path)
        output = run([str(BIN), *arguments], tmp_path)
        if "--onnx" in arguments:
            assert "data parallel on the same GPUs" in output
        elif "--kineto" in arguments:
            assert re.search(r"gz: [0-4]\.\d% of the time of all operators is not assigned", output)
        else:
            assert (tmp_path / "program.json").read_text().startswith('{"schema":"deeppool/program/v5"')


def test_destroy_process_group_ends_the_threads_of_the_groups(tmp_path):
    # A thread of gloo that releases a tensor while Python exits aborts the process.
    (script,) = re.findall(r"<!-- after.py -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    watch = "import weakref; group = weakref.ref(dist.group.WORLD)"
    (tmp_path / "after.py").write_text(
        script.replace("dist.destroy_process_group()", f"{watch}\ndist.destroy_process_group()")
        + "print(f'initialized {dist.is_initialized()}, group {group()}')\n"
    )
    output = run([*TORCHRUN, "--nproc-per-node", "2", "after.py"], tmp_path)
    assert output.count("initialized False, group None") == 2


def test_example_trains_with_a_background_job(tmp_path):
    pytest.importorskip("torchvision")
    example = ROOT / "python/examples/cifar_resnet.py"
    output = run(
        [*TORCHRUN, "--nproc-per-node", "2", str(example), "--iterations", "11", "--batch", "8"], tmp_path
    )
    assert "iteration 10: loss" in output
    assert output.count("background: ") == 2 and output.count("slowdown") == 2
    assert (tmp_path / "resnet18.pt").exists()
