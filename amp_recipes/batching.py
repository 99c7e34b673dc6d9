"""Exact arithmetic of windows, splits, weights and learning-rate schedules. No torch.

A *window* is the examples of one optimizer step, over all ranks. One window gives the same gradient however it is split:
each micro-batch's mean loss is weighted by its share of the window, so that what is summed is the mean over the window's
examples. See `piece_weight` for the formula.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

__all__ = [
    "epoch_windows",
    "learning_rate_factor",
    "piece_weight",
    "rank_share",
    "split_evenly",
    "total_windows",
    "warmup_steps",
]

MEGABATCH_WINDOWS = 50  # examples are sorted by length within this many windows; wide enough to help, narrow enough to mix


def epoch_windows(
    lengths: Sequence[int], global_batch_size: int, *, seed: int, epoch: int, group_by_length: bool
) -> list[list[int]]:
    """Deal the examples of one epoch into windows: every example once, in an order fixed by `(seed, epoch)` alone.

    The order depends on no random state of the process, so a run resumed in the middle of an epoch sees the very windows
    that the interrupted run would have seen.

    Parameters
    ----------
    lengths : sequence of int, shape (n_examples,)
        Tokens of each example. Read only if `group_by_length`.
    global_batch_size : int
        Examples per window; one window of the epoch may be shorter, the last one unless `group_by_length`.
    seed, epoch : int
        Not negative.
    group_by_length : bool
        Sort by length within groups of 50 windows, then shuffle the windows: less padding, same examples.

    Returns
    -------
    list of list of int
        Indices into `lengths`. With `group_by_length` the longest example of a window comes first.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(lengths)).tolist()
    if not group_by_length:
        return [order[start : start + global_batch_size] for start in range(0, len(order), global_batch_size)]
    windows = []
    span = global_batch_size * MEGABATCH_WINDOWS
    for start in range(0, len(order), span):
        group = sorted(order[start : start + span], key=lambda index: -lengths[index])
        windows += [group[first : first + global_batch_size] for first in range(0, len(group), global_batch_size)]
    return [windows[position] for position in generator.permutation(len(windows))]


def total_windows(examples: int, global_batch_size: int, epochs: int, max_train_steps: int | None = None) -> int:
    """Count the windows of a whole run: the optimizer steps if none is skipped."""
    total = math.ceil(examples / global_batch_size) * epochs
    return total if max_train_steps is None else min(total, max_train_steps)


def rank_share(window: Sequence[int], rank: int, world_size: int) -> list[int]:
    """Return this rank's examples of a window; the shares are disjoint, cover it, and differ by one example at most.

    Every `world_size`-th example is taken, so that ranks get alike lengths from a window sorted by length. The share of a
    short last window can be empty; see `piece_weight`.
    """
    return list(window[rank::world_size])


def split_evenly(count: int, largest: int) -> list[range]:
    """Split `count` examples into the fewest pieces of at most `largest`, as equal as they can be.

    Examples
    --------
    >>> [len(piece) for piece in split_evenly(13, 6)]
    [5, 4, 4]
    """
    pieces = math.ceil(count / largest)
    if pieces == 0:
        return []
    small, larger = divmod(count, pieces)
    starts = [position * small + min(position, larger) for position in range(pieces + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(starts)]


def piece_weight(examples: int, window_examples: int, world_size: int) -> float:
    """Weight of a piece's *mean* loss, such that the window's gradient is the mean over its examples.

    The gradient of rank r is the sum of `weight * mean loss` over its pieces, and DistributedDataParallel averages over the
    ranks. With `weight = examples * world_size / window_examples` that is the sum of all examples' gradients divided by
    `window_examples`: exact for every split, short last windows and unequal ranks included. A rank without an example in
    the window runs one that belongs to another rank with weight 0, for the sake of the collective.
    """
    return examples * world_size / window_examples


def warmup_steps(total: int, warmup_ratio: float, num_warmup_steps: int | None) -> int:
    """Warm-up in optimizer steps: as said, or the ratio rounded up, and never the whole run."""
    wanted = math.ceil(round(total * warmup_ratio, 6)) if num_warmup_steps is None else num_warmup_steps
    return min(wanted, total - 1)


def learning_rate_factor(kind: str, step: int, *, total: int, warmup: int) -> float:
    """Return the share of the peak LR for the optimizer step after `step` real ones.

    Parameters
    ----------
    kind : {"linear", "cosine", "constant"}
        The shape after warm-up. Linear and cosine reach 0 at `step == total`.
    step : int
        Optimizer steps that were applied; skipped ones do not count.
    total : int
        Steps that this run will have applied at its end: the windows less the skips so far, so that the LR ends at 0
        even when some steps were skipped.
    warmup : int
        Steps of linear rise. The first step already trains, at `1 / (warmup + 1)` of the peak.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if kind == "constant":
        return 1.0
    if kind not in ("linear", "cosine"):
        raise ValueError(f"kind {kind!r}: expected linear, cosine or constant")
    progress = min(1.0, (step - warmup) / max(1, total - warmup))
    return 1.0 - progress if kind == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
