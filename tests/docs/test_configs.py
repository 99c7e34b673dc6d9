"""Every preset and every accelerate config is read by what will read it; the numbers found are asserted."""

from __future__ import annotations

import pytest

from amp_recipes.arguments import read_arguments, read_yaml
from amp_recipes.levers import Levers, RunArguments, TextArguments
from tests.conftest import ROOT

PRESETS = sorted((ROOT / "configs" / "presets").rglob("*.yaml"))
ACCELERATE = sorted((ROOT / "configs" / "accelerate").rglob("*.yaml"))


def test_none_was_overlooked():
    assert len(PRESETS) == 3
    assert [path.stem for path in ACCELERATE] == ["cpu", "multi_gpu", "single_gpu"]


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_a_preset_parses_and_holds_only_differences(path):
    arguments = read_arguments((Levers, RunArguments, TextArguments), ["--config", str(path)])
    defaults = read_arguments((Levers, RunArguments, TextArguments), [])
    values = {name: value for group in arguments.groups for name, value in vars(group).items()}
    plain = {name: value for group in defaults.groups for name, value in vars(group).items()}
    given = set(read_yaml(path))
    assert given
    same = {name for name in given if values[name] == plain[name]}
    assert not same - {"max_length", "num_train_epochs", "warmup_ratio"}, f"{same} repeat the default"
    header = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    text = " ".join(header)
    assert f"--config configs/presets/{path.name}" in text
    assert "Hardware:" in text
    assert "Expect" in text


@pytest.mark.parametrize("path", ACCELERATE, ids=lambda path: path.stem)
def test_an_accelerate_config_loads_and_leaves_precision_to_the_hardware(path):
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(path))
    assert config.mixed_precision is None
    assert config.num_processes == (2 if path.stem == "multi_gpu" else 1)
    assert config.use_cpu is (path.stem == "cpu")
    assert f"--config_file configs/accelerate/{path.name}" in path.read_text(encoding="utf-8")
