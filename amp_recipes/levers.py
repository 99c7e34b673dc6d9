"""The vocabulary: every lever and run setting, its flag, its limits. No torch.

`Levers` is one *lever set*: what a plan ranks, a sweep varies and a record keeps. `RunArguments` and `TextArguments` are what
else a recipe asks: how long to train, where to write, which model and data. Flag names are those of the well-known GLUE
scripts where these have one.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

from amp_recipes.arguments import argument

__all__ = ["CheckpointingPolicy", "Levers", "RunArguments", "TextArguments", "parse_checkpointing"]

LARGEST_SCALE = 2.0**127
SCALER_FIELDS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval")


@dataclasses.dataclass(frozen=True)
class CheckpointingPolicy:
    """Which transformer blocks are recomputed in the backward pass instead of keeping their activations.

    Attributes
    ----------
    kind : {"none", "full", "every", "first"}
        No block, all blocks, every `k`-th block starting with the first, or the first `k` blocks.
    k : int
        1 or more; meaningless for "none" and "full".
    """

    kind: Literal["none", "full", "every", "first"]
    k: int = 1

    def covers(self, block: int) -> bool:
        """Whether the block with this index (from 0, in forward order) is checkpointed."""
        return {"none": False, "full": True, "every": block % self.k == 0, "first": block < self.k}[self.kind]


def parse_checkpointing(text: str) -> CheckpointingPolicy:
    """Read `none`, `full`, `every-K` or `first-K`.

    Raises
    ------
    ValueError
        If `text` is none of these, or K is 0.
    """
    if text == "none":
        return CheckpointingPolicy("none")
    if text == "full":
        return CheckpointingPolicy("full")
    match = re.fullmatch(r"(every|first)-([1-9]\d*)", text)
    if match is None:
        raise ValueError(f"--activation_checkpointing {text}: expected none, full, every-K or first-K with K at least 1")
    return CheckpointingPolicy("every" if match[1] == "every" else "first", int(match[2]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Levers:
    """Levers: what trades memory against time and numerics."""

    mixed_precision: str | None = argument(
        None, "no, fp16 or bf16; left out, the accelerate config decides, then the hardware", metavar="no|fp16|bf16"
    )
    dtype: Literal["float32", "bfloat16"] = argument(
        "float32",
        "dtype of the weights and so of gradients and optimizer state; bfloat16 is 'pure bf16', without autocast",
    )
    init_scale: float | None = argument(None, "fp16 loss scale at the start; left out, torch's 65536")
    growth_factor: float | None = argument(None, "fp16 loss scale grows by this; above 1; left out, torch's 2")
    backoff_factor: float | None = argument(
        None, "fp16 loss scale shrinks by this after an overflow; in (0, 1); left out, torch's 0.5"
    )
    growth_interval: int | None = argument(
        None, "steps without overflow before the loss scale grows; at least 1; left out, torch's 2000"
    )
    activation_checkpointing: str = argument(
        "none", "which blocks are recomputed in the backward pass", metavar="none|full|every-K|first-K"
    )
    global_batch_size: int = argument(32, "examples per optimizer step, over all devices and micro-batches")
    micro_batch_size: int | None = argument(
        None, "examples in one forward/backward on one device; left out, the device's share of the global batch"
    )
    attn_implementation: Literal["eager", "sdpa", "flash_attention_2"] | None = argument(
        None, "attention kernel; left out, transformers' choice for the model"
    )
    group_by_length: bool = argument(True, "fill windows with examples of similar length: less padding, same examples")
    pad_to_multiple_of: int = argument(8, "pad each micro-batch to its longest example, rounded up to this")

    def scaler_settings(self) -> dict[str, float]:
        """Return the scaler kwargs that somebody asked for; the others stay torch's."""
        return {name: getattr(self, name) for name in SCALER_FIELDS if getattr(self, name) is not None}

    def problems(self) -> list[str]:
        """Check single values and those that contradict each other; see `amp_recipes.precision` for what hardware can do."""
        found = []
        if self.mixed_precision == "fp8":
            found.append("--mixed_precision fp8: not supported by these recipes; choose bf16 (Ampere or later) or fp16")
        elif self.mixed_precision not in (None, "no", "fp16", "bf16"):
            found.append(f"--mixed_precision {self.mixed_precision}: expected no, fp16 or bf16")
        if self.init_scale is not None and not 0 < self.init_scale <= LARGEST_SCALE:
            found.append(f"--init_scale {self.init_scale:g}: must be above 0 and at most 2^127, what fp32 holds")
        if self.growth_factor is not None and self.growth_factor <= 1:
            found.append(f"--growth_factor {self.growth_factor:g}: must be above 1, or the scale would never grow")
        if self.backoff_factor is not None and not 0 < self.backoff_factor < 1:
            found.append(f"--backoff_factor {self.backoff_factor:g}: must lie between 0 and 1, both excluded")
        if self.growth_interval is not None and self.growth_interval < 1:
            found.append(f"--growth_interval {self.growth_interval}: must be at least 1")
        if self.scaler_settings() and self.mixed_precision in ("no", "bf16"):
            found.append(scaler_without_fp16(self, self.mixed_precision))
        if self.dtype == "bfloat16" and self.mixed_precision in ("fp16", "bf16"):
            found.append(
                f"--dtype bfloat16 with --mixed_precision {self.mixed_precision}: pure bf16 weights leave nothing to "
                "autocast; drop one of the two"
            )
        try:
            parse_checkpointing(self.activation_checkpointing)
        except ValueError as error:
            found.append(str(error))
        for name in ("global_batch_size", "micro_batch_size", "pad_to_multiple_of"):
            value = getattr(self, name)
            if value is not None and value < 1:
                found.append(f"--{name} {value}: must be at least 1")
        if self.micro_batch_size is not None and self.micro_batch_size > self.global_batch_size >= 1:
            found.append(
                f"--micro_batch_size {self.micro_batch_size} is larger than --global_batch_size {self.global_batch_size}: "
                "a micro-batch is a part of the global batch; lower one or raise the other"
            )
        return found


def scaler_without_fp16(levers: Levers, mixed_precision: str) -> str:
    """Say that scaler flags have no scaler to go to."""
    names = ", ".join(f"--{name}" for name in levers.scaler_settings())
    return (
        f"{names}: the gradient scaler exists only under fp16, and mixed precision is {mixed_precision} here; "
        "drop the flag or say --mixed_precision fp16"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunArguments:
    """Run: how long to train, what to write, how to go on."""

    output_dir: str = argument("outputs/bert_glue", "folder for the model, the record and checkpoints", metavar="DIR")
    overwrite_output_dir: bool = argument(False, "write into output_dir whatever it holds")
    seed: int = argument(42, "decides weights of new layers, order of examples and dropout")
    learning_rate: float = argument(5e-5, "peak learning rate of AdamW")
    weight_decay: float = argument(0.01, "AdamW's decay, not applied to biases and LayerNorm weights")
    num_train_epochs: int = argument(3, "passes over the training examples")
    max_train_steps: int | None = argument(None, "stop after this many windows (optimizer steps); shortens the LR schedule too")
    lr_scheduler_type: Literal["linear", "cosine", "constant"] = argument(
        "linear", "what the LR does after warm-up: falls to 0, or stays"
    )
    warmup_ratio: float = argument(0.1, "share of the optimizer steps that raise the LR from 0")
    num_warmup_steps: int | None = argument(None, "warm-up in optimizer steps, instead of warmup_ratio")
    max_grad_norm: float = argument(1.0, "clip the gradient of each window to this norm; 0 turns clipping off")
    per_device_eval_batch_size: int = argument(64, "examples in one forward pass of evaluation")
    dataloader_num_workers: int | None = argument(None, "worker processes for padding; left out, 2 on a GPU and 0 on a CPU")
    checkpointing_steps: str | None = argument(
        None, "save the whole training state every N steps or each epoch", metavar="N|epoch"
    )
    resume_from_checkpoint: str | None = argument(
        None, "go on from this checkpoint folder, or the latest", metavar="DIR|latest"
    )
    logging_steps: int = argument(10, "log loss, LR and loss scale to the trackers every this many windows")
    with_tracking: bool = argument(False, "log to the trackers of report_to")
    report_to: str | None = argument(
        None, "tensorboard, wandb, ... as accelerate knows them; implies with_tracking; left out, all installed"
    )

    def problems(self) -> list[str]:
        """Check single values; folders are looked at by `amp_recipes.resume`."""
        found = []
        for name in ("num_train_epochs", "max_train_steps", "per_device_eval_batch_size", "logging_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                found.append(f"--{name} {value}: must be at least 1")
        for name in ("weight_decay", "max_grad_norm", "num_warmup_steps", "dataloader_num_workers", "seed"):
            value = getattr(self, name)
            if value is not None and value < 0:
                found.append(f"--{name} {value}: must not be negative")
        if self.seed >= 2**32:  # numpy's limit
            found.append(f"--seed {self.seed}: must be below 2**32")
        if self.learning_rate <= 0:
            found.append(f"--learning_rate {self.learning_rate:g}: must be above 0")
        if not 0 <= self.warmup_ratio < 1:
            found.append(f"--warmup_ratio {self.warmup_ratio:g}: a share of the steps, from 0 up to but not including 1")
        if self.checkpointing_steps not in (None, "epoch") and not re.fullmatch(r"[1-9]\d*", self.checkpointing_steps or ""):
            found.append(f"--checkpointing_steps {self.checkpointing_steps}: expected a whole number of steps, or epoch")
        return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextArguments:
    """Model and data: a Hub id or a local folder; a GLUE task, your own files, or the embedded reviews."""

    model_name_or_path: str | None = argument(
        None, "Hub id, local folder, or embedded (the 6-layer MiniLM)", metavar="NAME|DIR"
    )
    task_name: str | None = argument(None, "a GLUE task from the Hub, or reviews (embedded)", metavar="TASK")
    train_file: str | None = argument(None, "your training examples: CSV, TSV, TXT, JSON, JSONL or Parquet", metavar="FILE")
    validation_file: str | None = argument(None, "your held-out examples, same columns", metavar="FILE")
    text_column: str | None = argument(None, "column of the (first) sentence; left out, detected", metavar="NAME")
    text_pair_column: str | None = argument(None, "column of the second sentence, for pairs", metavar="NAME")
    label_column: str | None = argument(None, "column of the label; left out, detected", metavar="NAME")
    problem_type: Literal["regression", "single_label_classification"] | None = argument(
        None, "left out, labels with fractions mean regression"
    )
    max_length: int | None = argument(None, "cut longer examples to this many tokens; left out, 128 or what the model can hold")
    max_train_samples: int | None = argument(None, "use only this many training examples, drawn by the seed")
    max_eval_samples: int | None = argument(None, "use only this many held-out examples, drawn by the seed")
    dropout: float | None = argument(None, "every dropout probability of the model; left out, its config's own")
    ignore_mismatched_sizes: bool = argument(False, "replace a classification head of another size")
    trust_remote_code: bool = argument(False, "run model code from the Hub; off, such models are refused")

    def problems(self) -> list[str]:
        """Check single values; names and files are looked at by `amp_recipes.tasks`."""
        found = []
        for name in ("max_length", "max_train_samples", "max_eval_samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                found.append(f"--{name} {value}: must be at least 1")
        if self.dropout is not None and not 0 <= self.dropout < 1:
            found.append(f"--dropout {self.dropout:g}: a probability, from 0 up to but not including 1")
        if (self.train_file is None) != (self.validation_file is None):
            names = ("train_file", "validation_file")
            given, missing = names if self.validation_file is None else reversed(names)
            found.append(f"--{given} without --{missing}: training needs both; give --{missing} FILE too")
        if self.train_file is None:
            found += [
                f"--{name} {getattr(self, name)}: says something about your own file; give --train_file and --validation_file"
                for name in ("text_column", "text_pair_column", "label_column", "problem_type")
                if getattr(self, name) is not None
            ]
        return found
