"""Two real processes (gloo) do what one does: same global batch, same weights, same metrics, each example counted once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import RECIPE, ROOT, write_reviews

PROCESSES = int(os.environ.get("WORLD_SIZE_UNDER_TEST", "2"))


def launch(processes: int, output_dir: Path, *flags: object) -> dict:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
    if processes == 1:
        command = [sys.executable]
    command += [str(RECIPE), "--output_dir", str(output_dir), *map(str, flags)]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the ranks too: a hang is a failed test, not a process left behind
            raise
    assert process.returncode == 0, output[-3000:]
    return json.loads((output_dir / "record.json").read_text())


@pytest.mark.launch
@pytest.mark.parametrize("precision", ["no", "fp16"])
def test_ranks_together_do_what_one_process_does(tiny_bert, tmp_path, precision):
    """21 examples in windows of 4: ranks differ in their shares, and the last window leaves a rank without an example."""
    train, dev = write_reviews(tmp_path / "train.csv", 21, 0), write_reviews(tmp_path / "dev.csv", 7, 1)
    flags = ["--model_name_or_path", tiny_bert, "--train_file", train, "--validation_file", dev, "--dropout", 0]
    flags += ["--global_batch_size", 4, "--micro_batch_size", 1, "--num_train_epochs", 2, "--max_length", 32]
    flags += ["--mixed_precision", precision, "--per_device_eval_batch_size", 2, "--learning_rate", "1e-3"]
    if precision == "fp16":  # a scale that no rank overflows at: before the ranks are averaged their gradients are larger
        flags += ["--init_scale", 1024]
    one = launch(1, tmp_path / "one", *flags)
    many = launch(PROCESSES, tmp_path / "many", *flags)
    assert many["resolved"]["world_size"] == PROCESSES
    assert many["resolved"]["windows"] == one["resolved"]["windows"] == 12
    losses = [[epoch["train_loss"] for epoch in record["epochs"]] for record in (one, many)]
    if precision == "no":
        left, right = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "many"))
        assert max(float((left[name] - right[name]).abs().max()) for name in left) < 1e-5
        assert many["result"]["metrics"] == one["result"]["metrics"]
    # fp16 rounds each rank's part on its own, and Adam makes much of a little at the start: there the losses are compared
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-5 if precision == "no" else 1e-2, atol=1e-6)
    assert many["result"]["skipped_steps"] == one["result"]["skipped_steps"] == 0
