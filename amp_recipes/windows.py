"""From tokenized examples to windows of padded micro-batches, ready for the loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset

from amp_recipes.batching import piece_weight, rank_share, split_evenly

__all__ = ["MicroBatch", "PadToLongest", "WindowDataset", "evaluation_loader", "split_batch", "window_loader"]


class MicroBatch(NamedTuple):
    """One forward/backward on one device.

    Attributes
    ----------
    inputs : dict of str to Tensor
        What the model takes; input_ids of shape (examples, length), int64.
    weight : float
        What the mean loss over these examples is multiplied by; see `amp_recipes.batching.piece_weight`.
    examples : int
        Examples of the window in it; 0 for the stand-in of a rank that has none.
    tokens : int
        Tokens that are not padding.
    padded_tokens : int
        Tokens with padding: what the device computes.
    """

    inputs: dict[str, torch.Tensor]
    weight: float
    examples: int
    tokens: int
    padded_tokens: int


@dataclasses.dataclass(frozen=True)
class PadToLongest:
    """Pad examples to the longest of them, rounded up to a multiple that tensor cores like, never past the model's limit.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
        Knows the padding values and side.
    multiple : int
        Lengths are rounded up to this.
    limit : int or None
        Most positions the model has.
    """

    tokenizer: Any
    multiple: int
    limit: int | None = None

    def __call__(self, features: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Return tensors of shape (len(features), padded length), and `labels` of shape (len(features),)."""
        longest = max(len(feature["input_ids"]) for feature in features)
        length = -(-longest // self.multiple) * self.multiple
        length = length if self.limit is None else max(longest, min(length, self.limit))
        columns = [{key: value for key, value in feature.items() if key != "labels"} for feature in features]
        inputs = dict(self.tokenizer.pad(columns, padding="max_length", max_length=length, return_tensors="pt"))
        labels = [feature["labels"] for feature in features]
        inputs["labels"] = torch.tensor(labels, dtype=torch.float32 if isinstance(labels[0], float) else torch.int64)
        return inputs


def split_batch(batch: Mapping[str, torch.Tensor], micro_batch_size: int) -> Iterator[tuple[dict[str, torch.Tensor], float]]:
    """Cut a batch that some other loader made into micro-batches, each with the weight of its mean loss.

    Parameters
    ----------
    batch : mapping of str to Tensor
        Every tensor has the examples along its first dimension.
    micro_batch_size : int
        Most examples in one piece; 1 or more.

    Yields
    ------
    piece, weight : dict of str to Tensor, float
        Views, not copies. The weights sum to 1, so that adding up `weight * mean loss` gives the batch's own mean loss.

    Raises
    ------
    ValueError
        If the tensors disagree about the number of examples.
    """
    sizes = {name: len(tensor) for name, tensor in batch.items()}
    if len(set(sizes.values())) != 1:
        raise ValueError(f"the batch's tensors disagree about the number of examples: {sizes}")
    examples = next(iter(sizes.values()))
    for piece in split_evenly(examples, micro_batch_size):
        rows = slice(piece.start, piece.stop)
        yield {name: tensor[rows] for name, tensor in batch.items()}, piece_weight(len(piece), examples, 1)


class WindowDataset(Dataset[list[MicroBatch]]):
    """Item i is this rank's part of window i, cut into micro-batches.

    Parameters
    ----------
    examples : datasets.Dataset
        Tokenized, with `labels`.
    windows : list of list of int
        Indices into `examples`; see `amp_recipes.batching.epoch_windows`.
    micro_batch_size : int
        Most examples in one micro-batch.
    pad : callable
        Makes tensors of a list of examples.
    rank, world_size : int
        Which share of each window to return.
    """

    def __init__(
        self,
        examples: Any,
        windows: Sequence[Sequence[int]],
        micro_batch_size: int,
        pad: Callable[[Sequence[dict[str, Any]]], dict[str, torch.Tensor]],
        rank: int = 0,
        world_size: int = 1,
    ):
        self.examples, self.windows, self.micro_batch_size, self.pad = examples, windows, micro_batch_size, pad
        self.rank, self.world_size = rank, world_size

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> list[MicroBatch]:
        window = self.windows[index]
        share = rank_share(window, self.rank, self.world_size)
        # a rank without a share still has to meet the others in the all-reduce: it runs one example with weight 0
        stands_in = not share
        share = share or list(window[:1])
        columns = self.examples[share]
        features = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        micro_batches = []
        for piece in split_evenly(len(features), self.micro_batch_size):
            members = [features[position] for position in piece]
            count = 0 if stands_in else len(members)
            tokens = 0 if stands_in else sum(len(member["input_ids"]) for member in members)
            weight = piece_weight(count, len(window), self.world_size)
            inputs = self.pad(members)
            micro_batches.append(MicroBatch(inputs, weight, count, tokens, inputs["input_ids"].numel()))
        return micro_batches


def _loader(dataset: Any, workers: int, pin_memory: bool, **options: Any) -> DataLoader:
    # a generator of its own: otherwise every new iterator draws from the default one, and a resumed run, which makes its
    # iterator after the random state was put back, would draw other dropout masks than the run that was not interrupted
    return DataLoader(
        dataset, num_workers=workers, pin_memory=pin_memory, generator=torch.Generator().manual_seed(0), **options
    )


def window_loader(dataset: WindowDataset, *, workers: int, pin_memory: bool) -> DataLoader:
    """Load windows in their order, each as a list of micro-batches on the CPU, pinned if the device gains by it."""
    return _loader(dataset, workers, pin_memory, batch_size=None)


def evaluation_loader(examples: Any, batch_size: int, pad: Callable[..., Any], *, workers: int, pin_memory: bool) -> DataLoader:
    """Load held-out examples, longest first: little padding, and a batch that is too large fails at once."""
    lengths = [len(ids) for ids in examples["input_ids"]]
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    return _loader(examples.select(order), workers, pin_memory, batch_size=batch_size, collate_fn=pad)
