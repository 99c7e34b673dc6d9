"""The optimizer and its learning-rate schedule, which counts real optimizer steps."""

from __future__ import annotations

import torch
from torch import nn

from amp_recipes.batching import learning_rate_factor
from amp_recipes.levers import RunArguments
from amp_recipes.resume import Progress

__all__ = ["build_optimizer", "build_scheduler", "parameter_groups"]


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Split the trainable parameters into decayed ones and those that decay would hurt: biases and norm weights (1-D)."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [
        {"params": [parameter for parameter in trainable if parameter.ndim > 1], "weight_decay": weight_decay},
        {"params": [parameter for parameter in trainable if parameter.ndim <= 1], "weight_decay": 0.0},
    ]


def build_optimizer(model: nn.Module, run: RunArguments) -> torch.optim.AdamW:
    """Build fused AdamW: one kernel instead of a chain of whole-model temporaries, so less time and a lower peak."""
    return torch.optim.AdamW(parameter_groups(model, run.weight_decay), lr=run.learning_rate, fused=True)


def build_scheduler(
    optimizer: torch.optim.Optimizer, run: RunArguments, *, total: int, warmup: int, progress: Progress
) -> torch.optim.lr_scheduler.LambdaLR:
    """Build the LR schedule; step it after each optimizer step that was applied, never after a skipped one.

    A skipped step shortens the rest of the schedule (`progress.skipped_steps` is read at each step), so the LR still ends
    at 0. It must not be handed to `Accelerator.prepare`, whose wrapper steps it once per process.

    Parameters
    ----------
    total, warmup : int
        In optimizer steps.
    """
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: learning_rate_factor(run.lr_scheduler_type, step, total=total - progress.skipped_steps, warmup=warmup),
    )
