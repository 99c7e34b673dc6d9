"""From arguments and data to one run's settled facts; whatever can be refused is refused here, before weights are loaded."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import PretrainedConfig

from amp_recipes.batching import total_windows, warmup_steps
from amp_recipes.checkpointing import require_checkpointing
from amp_recipes.errors import InputError
from amp_recipes.launcher import find_launcher, stated_by_accelerate
from amp_recipes.levers import CheckpointingPolicy, Levers, RunArguments, TextArguments, parse_checkpointing
from amp_recipes.models import load_config, load_tokenizer, position_limit, require_room_for_text, resolve_max_length
from amp_recipes.precision import MixedPrecision, resolve_mixed_precision
from amp_recipes.resume import check_checkpoint
from amp_recipes.startup import Startup
from amp_recipes.tasks import TextData
from amp_recipes.trackers import resolve_trackers

__all__ = ["TextRun", "resolve_text_run"]

GPU_WORKERS = 2  # padding is cheap; two keep any GPU fed, and on a CPU they would take cores from the model


@dataclasses.dataclass(frozen=True)
class TextRun:
    """What one run of a text recipe will do.

    Attributes
    ----------
    precision : MixedPrecision
    checkpointing : CheckpointingPolicy
    trackers : list of str
    config : PretrainedConfig
        With the task's labels.
    tokenizer : PreTrainedTokenizerBase
    max_length, position_limit : int, int or None
        In tokens.
    micro_batch_size : int
        Most examples in one forward/backward on one device.
    micro_batches : int
        Of a full window, on the device with the largest share.
    windows, warmup : int
        Of the whole run; a window is one optimizer step.
    workers, pin_memory : int, bool
        For the data loaders.
    hub : str
        What asking the Hub gave; see `Startup`.
    resumed_from : str or None
        A checkpoint folder.
    facts : dict
        What a checkpoint must share with the run that resumes from it.
    """

    precision: MixedPrecision
    checkpointing: CheckpointingPolicy
    trackers: list[str]
    config: PretrainedConfig
    tokenizer: Any
    max_length: int
    position_limit: int | None
    micro_batch_size: int
    micro_batches: int
    windows: int
    warmup: int
    workers: int
    pin_memory: bool
    hub: str
    resumed_from: str | None
    facts: dict[str, Any]

    def describe(self) -> dict[str, Any]:
        """Return the plain values among these, for the record."""
        return {
            "mixed_precision": self.precision.value,
            "model_type": self.config.model_type,
            "max_length": self.max_length,
            "world_size": self.facts["world size"],
            "global_batch_size": self.facts["global batch size"],
            "micro_batch_size": self.micro_batch_size,
            "micro_batches_per_window": self.micro_batches,
            "windows": self.windows,
            "warmup_steps": self.warmup,
            "dataloader_num_workers": self.workers,
            "trackers": self.trackers,
            "hub": self.hub,
            "resumed_from": self.resumed_from,
        }


def require_agreement(facts: dict[str, Any]) -> None:
    """Refuse ranks that are about to train different things, say because one of them reached the Hub and another did not.

    Raises
    ------
    InputError
        Naming what they differ in.
    """
    by_rank = gather_object([facts])
    differing = [name for name in facts if any(other[name] != by_rank[0][name] for other in by_rank)]
    if differing:
        raise InputError(
            f"the processes of this run differ in {', '.join(differing)}; give them the same files and flags, and name model "
            "and data instead of leaving them to what each finds"
        )


def resolve_text_run(startup: Startup, data: TextData, state: PartialState) -> TextRun:
    """Settle precision, lengths, batches and steps.

    Raises
    ------
    InputError
        If hardware, model, data, checkpoint and arguments can't go together.
    """
    levers: Levers
    run: RunArguments
    text: TextArguments
    levers, run, text = startup.arguments.groups
    policy = parse_checkpointing(levers.activation_checkpointing)
    precision = resolve_mixed_precision(
        levers,
        startup.arguments.sources["mixed_precision"],
        state.device,
        stated=stated_by_accelerate(os.environ, find_launcher()),
    )
    trackers = resolve_trackers(run)
    config = load_config(text, data)
    require_checkpointing(config, policy)
    max_length = resolve_max_length(text, config)
    tokenizer = load_tokenizer(text, config)
    require_room_for_text(max_length, tokenizer, pair=data.train.text_pairs is not None)
    share = math.ceil(levers.global_batch_size / state.num_processes)
    micro_batch_size = min(levers.micro_batch_size or share, share)
    windows = total_windows(len(data.train), levers.global_batch_size, run.num_train_epochs, run.max_train_steps)
    warmup = warmup_steps(windows, run.warmup_ratio, run.num_warmup_steps)
    on_gpu = state.device.type not in ("cpu", "mps")
    facts = {
        "mixed precision": precision.value,
        "dtype": levers.dtype,
        "world size": state.num_processes,
        "model type": config.model_type,
        "training data": data.train.fingerprint,
        "max length": max_length,
        "global batch size": levers.global_batch_size,
        "grouping by length": levers.group_by_length,
        "seed": run.seed,
        "windows (train_file, num_train_epochs, max_train_steps)": windows,
        "learning_rate": run.learning_rate,
        "weight_decay": run.weight_decay,
        "lr_scheduler_type": run.lr_scheduler_type,
        "warm-up": warmup,
        "max_grad_norm": run.max_grad_norm,
        "dropout": text.dropout,
        "scaler settings": levers.scaler_settings(),
    }
    require_agreement({**facts, "model": text.model_name_or_path, "micro-batch size": micro_batch_size})
    if startup.resume_from is not None:
        check_checkpoint(startup.resume_from, facts)
    return TextRun(
        precision=precision,
        checkpointing=policy,
        trackers=trackers,
        config=config,
        tokenizer=tokenizer,
        max_length=max_length,
        position_limit=position_limit(config),
        micro_batch_size=micro_batch_size,
        micro_batches=math.ceil(share / micro_batch_size),
        windows=windows,
        warmup=warmup,
        workers=(GPU_WORKERS if on_gpu else 0) if run.dataloader_num_workers is None else run.dataloader_num_workers,
        pin_memory=state.device.type == "cuda",
        hub=startup.hub,
        resumed_from=None if startup.resume_from is None else str(startup.resume_from),
        facts=facts,
    )
