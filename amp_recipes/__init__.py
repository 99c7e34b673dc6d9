"""amp-recipes: mixed precision, activation checkpointing and exact batches for training loops on Hugging Face Accelerate.

The public names, for a loop of your own (see `docs/your_own_loop.md`), load what they need when they are first used, so
that `import amp_recipes` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amp_recipes.batching import epoch_windows, learning_rate_factor, piece_weight, split_evenly, total_windows
    from amp_recipes.checkpointing import apply_checkpointing
    from amp_recipes.errors import InputError
    from amp_recipes.levers import Levers, parse_checkpointing
    from amp_recipes.memory import peak_memory, reset_peak_memory
    from amp_recipes.precision import build_accelerator, choose_mixed_precision, loss_scale
    from amp_recipes.windows import PadToLongest, WindowDataset, split_batch, window_loader

_HOME = {
    "batching": ("epoch_windows", "learning_rate_factor", "piece_weight", "split_evenly", "total_windows"),
    "checkpointing": ("apply_checkpointing",),
    "errors": ("InputError",),
    "levers": ("Levers", "parse_checkpointing"),
    "memory": ("peak_memory", "reset_peak_memory"),
    "precision": ("build_accelerator", "choose_mixed_precision", "loss_scale"),
    "windows": ("PadToLongest", "WindowDataset", "split_batch", "window_loader"),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [  # noqa: RUF022 in the order of the modules
    "epoch_windows", "learning_rate_factor", "piece_weight", "split_evenly", "total_windows",
    "apply_checkpointing",
    "InputError",
    "Levers", "parse_checkpointing",
    "peak_memory", "reset_peak_memory",
    "build_accelerator", "choose_mixed_precision", "loss_scale",
    "PadToLongest", "WindowDataset", "split_batch", "window_loader",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'amp_recipes' has no attribute {name!r}; its public names are {', '.join(__all__)}")
    return getattr(importlib.import_module(f"amp_recipes.{_MODULE_OF[name]}"), name)
