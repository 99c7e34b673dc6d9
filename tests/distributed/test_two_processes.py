"""Two real processes (gloo) do what one does: same global batch, same weights, same metrics, each example counted once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import RECIPE, ROOT, write_reviews

PROCESSES = int(os.environ.get("WORLD_SIZE_UNDER_TEST", "2"))


def launch(processes: int, output_dir: Path, *flags: object) -> dict:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--master_port", "0"]
    if processes == 1:
        command = [sys.executable]
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [*command, str(RECIPE), "--output_dir", str(output_dir), *map(str, flags)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads((output_dir / "record.json").read_text())


@pytest.mark.launch
@pytest.mark.parametrize("precision", ["no", "fp16"])
def test_ranks_together_do_what_one_process_does(tiny_bert, tmp_path, precision):
    """21 examples in windows of 4: ranks differ in their shares, and the last window leaves a rank without an example."""
    train, dev = write_reviews(tmp_path / "train.csv", 21, 0), write_reviews(tmp_path / "dev.csv", 7, 1)
    flags = ["--model_name_or_path", tiny_bert, "--train_file", train, "--validation_file", dev, "--dropout", 0]
    flags += ["--global_batch_size", 4, "--micro_batch_size", 1, "--num_train_epochs", 2, "--max_length", 32]
    flags += ["--mixed_precision", precision, "--per_device_eval_batch_size", 2, "--learning_rate", "1e-3"]
    one = launch(1, tmp_path / "one", *flags)
    many = launch(PROCESSES, tmp_path / "many", *flags)
    assert many["resolved"]["world_size"] == PROCESSES
    assert many["resolved"]["windows"] == one["resolved"]["windows"] == 12
    left, right = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "many"))
    tolerance = 1e-5 if precision == "no" else 2e-3  # fp16 rounds each rank's part on its own
    assert max(float((left[name] - right[name]).abs().max()) for name in left) < tolerance
    if precision == "no":
        assert many["result"]["metrics"] == one["result"]["metrics"]
        losses = [record["epochs"][-1]["train_loss"] for record in (one, many)]
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-5, atol=1e-6)
    assert many["result"]["skipped_steps"] == one["result"]["skipped_steps"]
