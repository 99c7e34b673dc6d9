"""Activation checkpointing of transformers models: full, every k-th block, the first k blocks.

Always non-reentrant (the reentrant variant breaks under DDP with unused parameters and ignores autocast changes), always with
the random state preserved, so that dropout draws the same mask in the recomputation: losses and gradients are those of the
run without checkpointing.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, PretrainedConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from amp_recipes.errors import InputError
from amp_recipes.levers import CheckpointingPolicy

__all__ = ["CheckpointingReport", "apply_checkpointing", "require_checkpointing"]


@dataclasses.dataclass(frozen=True)
class CheckpointingReport:
    """What was done: the number of blocks and the indices of those that are recomputed."""

    blocks: int
    checkpointed: tuple[int, ...]


def require_checkpointing(config: PretrainedConfig, policy: CheckpointingPolicy) -> None:
    """Refuse, from the config alone, a model family that can't checkpoint.

    Raises
    ------
    InputError
        If transformers' class for this config says that it does not support it, or `first-K` asks for more blocks than
        there are. Remote code is looked at after loading.
    """
    if policy.kind == "none" or type(config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        return
    family: Any = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)]
    if not family.supports_gradient_checkpointing:
        raise InputError(
            f"--activation_checkpointing: transformers' {family.__name__} does not support it; say "
            "--activation_checkpointing none and lower --micro_batch_size instead"
        )
    blocks = getattr(config, "num_hidden_layers", None)
    if policy.kind == "first" and blocks is not None and policy.k > blocks:
        raise InputError(_too_many(policy, blocks))


def _too_many(policy: CheckpointingPolicy, blocks: int) -> str:
    return f"--activation_checkpointing first-{policy.k}: this model has {blocks} blocks; say full, or a smaller K"


def apply_checkpointing(model: PreTrainedModel, policy: CheckpointingPolicy) -> CheckpointingReport:
    """Turn checkpointing on for the blocks that `policy` covers, in forward order.

    Raises
    ------
    InputError
        If the model does not support checkpointing, has no blocks to choose from, or has fewer than `first-K` asks for.
    """
    blocks = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if policy.kind == "none":
        return CheckpointingReport(len(blocks), ())
    if not blocks:
        raise InputError(f"--activation_checkpointing: {type(model).__name__} has no blocks that transformers can checkpoint")
    if policy.kind == "first" and policy.k > len(blocks):
        raise InputError(_too_many(policy, len(blocks)))
    try:
        # a kwargs dict without use_reentrant would drop transformers' own default of False
        model.activation_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": True})
    except ValueError as error:
        raise InputError(f"--activation_checkpointing: {error}") from None
    for index, block in enumerate(blocks):
        block.gradient_checkpointing = policy.covers(index)
    if getattr(model.config, "use_cache", False):
        model.config.use_cache = False  # transformers warns about it at every step otherwise, and training has no use for it
    return CheckpointingReport(len(blocks), tuple(index for index in range(len(blocks)) if policy.covers(index)))
