"""One window gives one gradient, however it is split: the property that batch sizing and OOM recovery stand on."""

from __future__ import annotations

import datasets
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from amp_recipes.batching import piece_weight, rank_share, split_evenly
from amp_recipes.windows import PadToLongest, WindowDataset, evaluation_loader, split_batch, window_loader
from tests.conftest import make_tokenizer


class TinyRegressor(nn.Module):
    """Embeds, averages over tokens that are not padding, and predicts one number; mean squared error over examples."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(100, 8, dtype=torch.float64), nn.Linear(8, 1, dtype=torch.float64)

    def loss(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        mask = inputs["attention_mask"].unsqueeze(-1).double()
        pooled = (self.embedding(inputs["input_ids"]) * mask).sum(1) / mask.sum(1)
        return ((self.head(pooled).squeeze(-1) - inputs["labels"]) ** 2).mean()


@pytest.fixture(scope="module")
def tokenizer():
    tokenizer = make_tokenizer()
    tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True
    return tokenizer


def make_examples(count: int) -> datasets.Dataset:
    rows = [[5 + (7 * i + j) % 80 for j in range(1 + (5 * i) % 11)] for i in range(count)]
    return datasets.Dataset.from_dict(
        {"input_ids": rows, "attention_mask": [[1] * len(r) for r in rows], "labels": [float(i % 5) for i in range(count)]}
    )


def window_gradient(examples, window, micro_batch_size, pad, world_size=1, weight=None) -> list[torch.Tensor]:
    """The mean over ranks, as DistributedDataParallel makes it, of each rank's summed gradient."""
    model = TinyRegressor()
    for rank in range(world_size):
        dataset = WindowDataset(examples, [window], micro_batch_size, pad, rank, world_size)
        pieces = dataset[0]
        for micro_batch in pieces:
            used = micro_batch.weight if weight is None else weight(pieces)
            (model.loss(micro_batch.inputs) * used / world_size).backward()
    return [parameter.grad for parameter in model.parameters()]


def largest_difference(left, right) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(left, right, strict=True))


@settings(deadline=None, max_examples=60)
@given(size=st.integers(1, 13), micro=st.integers(1, 13), world=st.integers(1, 4))
def test_gradient_does_not_depend_on_the_split(tokenizer, size, micro, world):
    examples, pad = make_examples(13), PadToLongest(tokenizer, 8)
    whole = window_gradient(examples, list(range(size)), size, pad)
    split = window_gradient(examples, list(range(size)), micro, pad, world)
    assert largest_difference(whole, split) < 1e-12


def test_mean_of_means_is_caught(tokenizer):
    """Negative control: weighting the pieces alike, as most loops do, gives another gradient on a ragged window."""
    examples, pad = make_examples(13), PadToLongest(tokenizer, 8)
    whole = window_gradient(examples, list(range(13)), 13, pad)
    wrong = window_gradient(examples, list(range(13)), 5, pad, weight=lambda pieces: 1 / len(pieces))
    right = window_gradient(examples, list(range(13)), 5, pad)
    assert largest_difference(whole, right) < 1e-12
    assert largest_difference(whole, wrong) > 1e-3


def test_a_rank_without_examples_runs_one_with_weight_zero(tokenizer):
    dataset = WindowDataset(make_examples(4), [[2]], 4, PadToLongest(tokenizer, 8), rank=1, world_size=2)
    (stand_in,) = dataset[0]
    assert (stand_in.weight, stand_in.examples, stand_in.tokens) == (0.0, 0, 0)
    assert stand_in.inputs["input_ids"].shape[0] == 1


def test_micro_batches_are_as_equal_as_they_can_be(tokenizer):
    dataset = WindowDataset(make_examples(13), [list(range(13))], 6, PadToLongest(tokenizer, 8))
    assert [micro_batch.examples for micro_batch in dataset[0]] == [5, 4, 4]


def test_padding_is_to_the_longest_rounded_up_and_never_past_the_limit(tokenizer):
    features = [{"input_ids": [7] * n, "attention_mask": [1] * n, "labels": 1} for n in (3, 11)]
    assert PadToLongest(tokenizer, 8)(features)["input_ids"].shape == (2, 16)
    assert PadToLongest(tokenizer, 1)(features)["input_ids"].shape == (2, 11)
    limited = PadToLongest(tokenizer, 8, limit=13)(features)
    assert limited["input_ids"].shape == (2, 13)
    assert limited["attention_mask"].sum().item() == 14
    assert limited["labels"].dtype == torch.int64


def test_float_labels_stay_float(tokenizer):
    features = [{"input_ids": [7], "attention_mask": [1], "labels": 2.5}]
    assert PadToLongest(tokenizer, 8)(features)["labels"].dtype == torch.float32


@pytest.mark.parametrize("workers", [0, 1])
def test_loaders_leave_the_random_state_alone(tokenizer, workers):
    """An iterator that drew from it would give a resumed run other dropout masks."""
    examples, pad = make_examples(8), PadToLongest(tokenizer, 8)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    windows = list(window_loader(WindowDataset(examples, [[0, 1], [2]], 2, pad), workers=workers, pin_memory=False))
    batches = list(evaluation_loader(examples, 3, pad, workers=workers, pin_memory=False))
    assert torch.equal(before, torch.get_rng_state())
    assert [[m.examples for m in window] for window in windows] == [[2], [1]]
    assert sum(len(batch["labels"]) for batch in batches) == 8


def test_evaluation_runs_the_longest_first(tokenizer):
    batches = list(evaluation_loader(make_examples(13), 4, PadToLongest(tokenizer, 1), workers=0, pin_memory=False))
    lengths = [batch["input_ids"].shape[1] for batch in batches]
    assert lengths == sorted(lengths, reverse=True)


def test_tokens_are_counted_without_padding(tokenizer):
    examples = make_examples(5)
    (micro_batch,) = WindowDataset(examples, [[0, 1, 2]], 3, PadToLongest(tokenizer, 8))[0]
    assert micro_batch.tokens == sum(len(examples[i]["input_ids"]) for i in range(3))
    assert micro_batch.padded_tokens == micro_batch.inputs["input_ids"].numel() > micro_batch.tokens


def test_the_arithmetic_used_is_the_library_s():
    """Weights of all pieces of all ranks sum to the number of ranks."""
    window = list(range(11))
    weights = [
        piece_weight(len(piece), len(window), 3)
        for rank in range(3)
        for piece in split_evenly(len(rank_share(window, rank, 3)), 2)
    ]
    assert sum(weights) == pytest.approx(3)


@given(examples=st.integers(1, 20), micro=st.integers(1, 25))
def test_a_batch_of_another_loader_is_split_without_loss(examples, micro):
    batch = {"input_ids": torch.arange(examples * 2).reshape(examples, 2), "labels": torch.arange(examples)}
    pieces = list(split_batch(batch, micro))
    assert torch.equal(torch.cat([piece["labels"] for piece, _ in pieces]), batch["labels"])
    assert all(len(piece["labels"]) == len(piece["input_ids"]) <= micro for piece, _ in pieces)
    assert sum(weight for _, weight in pieces) == pytest.approx(1)
    mean = sum(float(piece["labels"].double().mean()) * weight for piece, weight in pieces)
    assert mean == pytest.approx(float(batch["labels"].double().mean()))


def test_tensors_of_different_length_are_refused():
    with pytest.raises(ValueError, match="disagree"):
        list(split_batch({"a": torch.zeros(3), "b": torch.zeros(2)}, 1))
