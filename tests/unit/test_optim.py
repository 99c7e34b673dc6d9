"""The schedule counts real steps and ends at 0; biases and norms do not decay."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from amp_recipes.levers import RunArguments
from amp_recipes.optim import build_optimizer, build_scheduler, parameter_groups
from amp_recipes.resume import Progress


def test_biases_and_norms_do_not_decay_and_every_trainable_parameter_is_there_once():
    model = nn.Sequential(nn.Embedding(5, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    model[0].weight.requires_grad_(False)
    decayed, plain = parameter_groups(model, 0.1)
    assert [p.shape for p in decayed["params"]] == [(2, 4)]
    assert {tuple(p.shape) for p in plain["params"]} == {(4,), (2,)}
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.1, 0.0)
    ids = {id(p) for group in (decayed, plain) for p in group["params"]}
    assert ids == {id(p) for p in model.parameters() if p.requires_grad}


@pytest.mark.parametrize("kind", ["linear", "cosine"])
@pytest.mark.parametrize("skipped_at", [(), (0,), (0, 1, 5), (3, 9)])
def test_lr_does_not_move_on_a_skip_and_ends_at_zero(kind, skipped_at):
    run, total = RunArguments(learning_rate=0.5, lr_scheduler_type=kind), 12
    model, progress = nn.Linear(2, 1), Progress()
    optimizer = build_optimizer(model, run)
    scheduler = build_scheduler(optimizer, run, total=total, warmup=2, progress=progress)
    rates = [scheduler.get_last_lr()[0]]
    for window in range(total):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        skipped = window in skipped_at
        if not skipped:
            progress.window_done(torch.zeros(()), skipped=False)
            scheduler.step()
            rates.append(scheduler.get_last_lr()[0])
        else:
            progress.window_done(torch.zeros(()), skipped=True)
            assert scheduler.get_last_lr()[0] == rates[-1]
    assert len(rates) == total - len(skipped_at) + 1
    assert rates[-1] == pytest.approx(0.0, abs=1e-12)
    assert max(rates) == 0.5
    assert all(rate > 0 for rate in rates[:-1])


def test_the_state_of_the_schedule_survives_a_checkpoint():
    run, progress = RunArguments(), Progress()
    optimizer = build_optimizer(nn.Linear(2, 1), run)
    scheduler = build_scheduler(optimizer, run, total=10, warmup=0, progress=progress)
    for _ in range(4):
        optimizer.step()
        scheduler.step()
    other = build_scheduler(build_optimizer(nn.Linear(2, 1), run), run, total=10, warmup=0, progress=Progress())
    other.load_state_dict(scheduler.state_dict())
    assert other.last_epoch == 4
    assert other.get_last_lr() == scheduler.get_last_lr()
