"""What a launcher says of its own accord does not count; what somebody said does."""

from __future__ import annotations

import pytest
import torch

import amp_recipes.launcher as launcher
from amp_recipes.errors import InputError
from amp_recipes.launcher import Launcher, find_launcher, start_state, stated_by_accelerate, wanted_cpu_threads
from tests.conftest import reset_accelerate

LAUNCH = ["python", "/venv/bin/accelerate", "launch"]
TORCHRUN = ("python", "-m", "torch.distributed.run", "--nproc_per_node", "2", "train.py")


@pytest.fixture(autouse=True)
def no_default_config(monkeypatch, tmp_path):
    monkeypatch.setattr(launcher, "default_yaml_config_file", str(tmp_path / "none.yaml"))
    monkeypatch.setattr(launcher, "default_json_config_file", str(tmp_path / "none.json"))


@pytest.mark.parametrize(
    ("value", "command", "expected"),
    [
        (None, [], None),
        ("bf16", [], ("bf16", "accelerate environment")),
        ("no", ["bash"], ("no", "accelerate environment")),
        ("no", [*LAUNCH, "recipes/bert_glue.py"], None),  # the launcher's own default, which nobody said
        ("no", [*LAUNCH, "recipes/bert_glue.py", "--mixed_precision", "no"], None),  # the script's flag, not the launcher's
        ("no", [*LAUNCH, "--mixed_precision", "no", "train.py"], ("no", "accelerate launch")),
        ("fp16", [*LAUNCH, "--mixed-precision=fp16", "train.py"], ("fp16", "accelerate launch")),
        ("no", ["python", "-m", "accelerate.commands.launch", "train.py"], None),
        ("no", ["/venv/bin/accelerate-launch", "--mixed_precision=no", "train.py"], ("no", "accelerate launch")),
        ("no", ["python", "-m", "accelerate.commands.accelerate_cli", "launch", "train.py"], None),
    ],
)
def test_what_accelerate_says(value, command, expected):
    environ = {} if value is None else {"ACCELERATE_MIXED_PRECISION": value}
    assert stated_by_accelerate(environ, Launcher(tuple(command))) == expected


@pytest.mark.parametrize(("line", "expected"), [('mixed_precision: "no"\n', ("no", "accelerate config")), ("", None)])
@pytest.mark.parametrize("how", ["flag", "default"])
def test_a_config_file_counts_if_it_says_something(tmp_path, monkeypatch, line, expected, how):
    path = tmp_path / "config.yaml"
    path.write_text(f'compute_environment: LOCAL_MACHINE\ndistributed_type: "NO"\nnum_processes: 1\nuse_cpu: true\n{line}')
    monkeypatch.setattr(launcher, "default_yaml_config_file", str(path) if how == "default" else str(tmp_path / "none"))
    flags = ["--config_file", str(path)] if how == "flag" else []
    assert stated_by_accelerate({"ACCELERATE_MIXED_PRECISION": "no"}, Launcher((*LAUNCH, *flags, "train.py"))) == expected


def test_the_parent_of_this_process_can_be_seen():
    assert find_launcher().command


@pytest.mark.parametrize(
    ("ours", "command", "theirs", "expected"),
    [
        ({"OMP_NUM_THREADS": "1"}, (*LAUNCH, "train.py"), {}, 8),  # the launcher's own default
        ({"OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": "2"}, TORCHRUN, {}, 4),
        ({"OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": "64"}, ("torchrun", "train.py"), {}, 1),
        ({"OMP_NUM_THREADS": "1"}, (*LAUNCH, "train.py"), {"OMP_NUM_THREADS": "1"}, None),  # said before the launcher
        ({"OMP_NUM_THREADS": "1"}, (*LAUNCH, "--num_cpu_threads_per_process", "1", "train.py"), {}, None),
        ({"OMP_NUM_THREADS": "1"}, ("bash",), {}, None),  # OMP_NUM_THREADS=1 python train.py
        ({"OMP_NUM_THREADS": "3"}, (*LAUNCH, "train.py"), {}, None),
        ({}, (*LAUNCH, "train.py"), {}, None),
    ],
)
def test_threads(ours, command, theirs, expected):
    assert wanted_cpu_threads(ours, Launcher(tuple(command), theirs), physical_cores=8) == expected


def test_processes_that_accelerate_would_leave_apart_are_refused(monkeypatch):
    """Two processes were started; here only one can be joined, as on a machine whose accelerator torchrun does not use."""
    reset_accelerate()
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    with pytest.raises(InputError, match="2 processes were started and accelerate joined 1"):
        start_state({"WORLD_SIZE": "2"})
    reset_accelerate()


def test_one_process_needs_nothing(monkeypatch):
    reset_accelerate()
    assert start_state({}).num_processes == 1
    reset_accelerate()
