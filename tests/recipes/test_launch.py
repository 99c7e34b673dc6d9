"""`accelerate launch` for real: the config decides, silence leaves it to the hardware, a mistake is one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from amp_recipes.precision import cpu_has_native_bf16
from tests.conftest import RECIPE, ROOT

pytestmark = pytest.mark.launch


def accelerate_launch(*arguments: object, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HOME": str(home)}  # no default_config.yaml of whoever runs the tests
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.parametrize("config", [None, "bf16", "no"])
def test_the_accelerate_config_decides_and_silence_does_not(tiny_bert, review_files, tmp_path, config):
    launcher = ["--cpu"]
    if config is not None:
        path = tmp_path / "config.yaml"
        text = (ROOT / "configs" / "accelerate" / "cpu.yaml").read_text()
        path.write_text(f'{text}mixed_precision: "{config}"\n')
        launcher = ["--config_file", path]
    flags = ["--model_name_or_path", tiny_bert, *review_files, "--max_train_steps", 1, "--output_dir", tmp_path / "out"]
    result = accelerate_launch(*launcher, RECIPE, *flags, home=tmp_path / "home")
    assert result.returncode == 0, result.stderr
    record = json.loads((tmp_path / "out" / "record.json").read_text())
    found = (record["resolved"]["mixed_precision"], record["sources"]["mixed_precision"])
    assert found == ((config, "accelerate config") if config else ("bf16" if cpu_has_native_bf16() else "no", "hardware"))


def test_a_mistake_is_one_line_with_exit_code_2_and_costs_no_torch(tmp_path):
    result = subprocess.run(
        [sys.executable, "-X", "importtime", str(RECIPE), "--task_name", "mprc"],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert [line for line in lines if not line.startswith("import time:")] == [
        line for line in lines if line.startswith("error: --task_name mprc")
    ]
    imported = {line.rsplit("|", 1)[1].strip() for line in lines if line.startswith("import time:") and "|" in line}
    assert not imported & {"torch", "transformers", "datasets", "accelerate"}
