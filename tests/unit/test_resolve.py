"""Arguments, data and device become the facts of one run."""

from __future__ import annotations

import pytest
import torch

from amp_recipes import resolve as resolve_module
from amp_recipes.arguments import read_arguments
from amp_recipes.errors import InputError
from amp_recipes.levers import Levers, RunArguments, TextArguments
from amp_recipes.resolve import require_agreement, resolve_text_run
from amp_recipes.startup import Startup
from amp_recipes.tasks import TextData, TextSplit

SPLIT = TextSplit(["good film", "bad film"] * 25, None, [1, 0] * 25)
DATA = TextData("files", "classification", ("bad", "good"), SPLIT, {"validation": SPLIT}, "here")


class FakeState:
    """What `PartialState` tells of a machine that is not this one."""

    def __init__(self, processes: int = 1, device: str = "cpu"):
        self.num_processes, self.device = processes, torch.device(device)


def resolve(folder, *flags: str, processes: int = 1, device: str = "cpu"):
    argv = ["--model_name_or_path", str(folder), "--mixed_precision", "no", *flags]
    arguments = read_arguments((Levers, RunArguments, TextArguments), argv)
    return resolve_text_run(Startup(arguments, (), None, False, "not asked"), DATA, FakeState(processes, device))


@pytest.mark.parametrize(
    ("flags", "processes", "micro", "pieces"),
    [
        ([], 1, 32, 1),
        (["--micro_batch_size", "5"], 1, 5, 7),
        (["--micro_batch_size", "32"], 4, 8, 1),
        (["--micro_batch_size", "3"], 3, 3, 4),  # the largest share of 32 over 3 ranks is 11
        (["--global_batch_size", "1"], 4, 1, 1),
    ],
)
def test_micro_batch_and_accumulation_follow_from_the_global_batch(tiny_bert, flags, processes, micro, pieces):
    resolved = resolve(tiny_bert, *flags, processes=processes)
    assert (resolved.micro_batch_size, resolved.micro_batches) == (micro, pieces)


def test_steps_do_not_depend_on_how_a_window_is_cut(tiny_bert):
    for flags, processes in (([], 1), (["--micro_batch_size", "3"], 1), ([], 4)):
        resolved = resolve(tiny_bert, "--global_batch_size", "16", *flags, processes=processes)
        assert (resolved.windows, resolved.warmup) == (4 * 3, 2)


def test_loaders_suit_the_device(tiny_bert):
    cpu, gpu = resolve(tiny_bert), resolve(tiny_bert, device="cuda")
    assert (cpu.workers, cpu.pin_memory) == (0, False)
    assert (gpu.workers, gpu.pin_memory) == (2, True)
    assert resolve(tiny_bert, "--dataloader_num_workers", "1").workers == 1


def test_the_checkpoint_facts_tell_runs_apart(tiny_bert):
    base = resolve(tiny_bert).facts
    for flags in (["--seed", "1"], ["--global_batch_size", "8"], ["--max_length", "9"], ["--group_by_length", "false"]):
        assert resolve(tiny_bert, *flags).facts != base
    assert resolve(tiny_bert, "--micro_batch_size", "3").facts == base  # cut otherwise, the same run
    assert resolve(tiny_bert, processes=2).facts != base


def test_refusals_come_through(tiny_bert):
    with pytest.raises(InputError, match="positions"):
        resolve(tiny_bert, "--max_length", "1000")


def test_ranks_that_differ_are_refused(monkeypatch):
    monkeypatch.setattr(resolve_module, "gather_object", lambda mine: [*mine, {"seed": 1, "model": "other"}])
    with pytest.raises(InputError, match="differ in model;"):
        require_agreement({"seed": 1, "model": "this"})
    require_agreement({"seed": 1, "model": "other"})
