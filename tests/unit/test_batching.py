"""Whatever the sizes: every example once, every example with one weight, and a learning rate that ends at 0."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from amp_recipes.batching import (
    epoch_windows,
    learning_rate_factor,
    piece_weight,
    rank_share,
    split_evenly,
    total_windows,
    warmup_steps,
)

KINDS = ("linear", "cosine", "constant")
SMALL = st.integers(1, 70)


def for_all(**strategies):
    """`given` without a time limit per example, which a busy machine would miss."""
    return lambda test: settings(deadline=None)(given(**strategies)(test))


def windows_of(lengths, size, *, seed=1, epoch=0, grouped=False):
    return epoch_windows(lengths, size, seed=seed, epoch=epoch, group_by_length=grouped)


# Windows


@for_all(lengths=st.lists(st.integers(1, 512), max_size=300), size=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("grouped", [False, True])
def test_every_example_once_in_windows_of_the_global_batch(grouped, lengths, size, seed):
    windows = windows_of(lengths, size, seed=seed, grouped=grouped)
    assert sorted(itertools.chain(*windows)) == list(range(len(lengths)))
    assert len(windows) == total_windows(len(lengths), size, epochs=1)
    sizes = [len(window) for window in windows]
    if not grouped:
        assert all(count == size for count in sizes[:-1])  # the short one comes last
    remainder = [len(lengths) % size] if len(lengths) % size else []
    assert sorted(sizes) == sorted([size] * (len(lengths) // size) + remainder)


@for_all(lengths=st.lists(st.integers(1, 512), min_size=1, max_size=300), size=st.integers(1, 8))
def test_grouped_windows_begin_with_their_longest_example(lengths, size):
    for window in windows_of(lengths, size, grouped=True):
        found = [lengths[index] for index in window]
        assert found == sorted(found, reverse=True)


@pytest.mark.parametrize("grouped", [False, True])
def test_the_order_follows_from_seed_and_epoch_alone(grouped):
    lengths = [1 + index * 7 % 50 for index in range(500)]
    state = (random.getstate(), np.random.get_state())
    try:
        random.seed(1)
        np.random.seed(1)
        first = windows_of(lengths, 16, seed=3, epoch=2, grouped=grouped)
        assert (random.getstate(), np.random.get_state()[1].tolist()) == (
            random.Random(1).getstate(),
            np.random.RandomState(1).get_state()[1].tolist(),
        )  # nor does it move the process's random state
        random.seed(2)
        np.random.seed(2)
        assert windows_of(lengths, 16, seed=3, epoch=2, grouped=grouped) == first
    finally:
        random.setstate(state[0])
        np.random.set_state(state[1])
    orders = [windows_of(lengths, 16, seed=seed, epoch=epoch, grouped=grouped) for seed in range(4) for epoch in range(4)]
    assert len({str(order) for order in orders}) == len(orders)


def padding_share(lengths, windows):
    padded = sum(max(lengths[index] for index in window) * len(window) for window in windows)
    return 1 - sum(lengths) / padded


def test_grouping_by_length_saves_padding_and_still_mixes():
    lengths = np.random.default_rng(0).integers(5, 128, size=3000).tolist()
    plain, grouped = (padding_share(lengths, windows_of(lengths, 16, grouped=grouped)) for grouped in (False, True))
    assert plain > 0.3
    assert grouped < 0.05
    longest = [lengths[window[0]] for window in windows_of(lengths, 16, grouped=True)]
    assert longest != sorted(longest, reverse=True)


@pytest.mark.parametrize(
    ("examples", "size", "epochs", "limit", "total"),
    [(100, 10, 3, None, 30), (101, 10, 3, None, 33), (5, 10, 2, None, 2), (100, 10, 3, 7, 7), (100, 10, 3, 99, 30)],
)
def test_windows_of_a_run_are_counted(examples, size, epochs, limit, total):
    assert total_windows(examples, size, epochs, limit) == total


# Shares, splits, weights


@for_all(count=st.integers(0, 200), world_size=st.integers(1, 17))
def test_rank_shares_are_disjoint_cover_and_are_even(count, world_size):
    window = list(range(1000, 1000 + count))
    shares = [rank_share(window, rank, world_size) for rank in range(world_size)]
    assert sorted(itertools.chain(*shares)) == window
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_ranks_get_alike_lengths_from_a_sorted_window():
    window = list(range(64))  # sorted by length
    means = [sum(share) / len(share) for share in (rank_share(window, rank, 4) for rank in range(4))]
    assert max(means) - min(means) <= 3


@for_all(count=st.integers(0, 500), largest=SMALL)
def test_a_split_is_in_order_even_and_as_small_as_can_be(count, largest):
    pieces = split_evenly(count, largest)
    assert list(itertools.chain(*pieces)) == list(range(count))
    sizes = [len(piece) for piece in pieces]
    assert len(pieces) == math.ceil(count / largest)
    assert all(1 <= size <= largest for size in sizes)
    assert not sizes or max(sizes) - min(sizes) <= 1


def example_weights(window_examples, world_size, micro_batch_size, weight_of):
    """What each example of a window weighs in the gradient: mean over ranks of the sum of `weight * mean` over pieces."""
    found = []
    for rank in range(world_size):
        pieces = split_evenly(len(rank_share(range(window_examples), rank, world_size)), micro_batch_size)
        for piece in pieces:
            found += [weight_of(len(piece), len(pieces)) / len(piece) / world_size] * len(piece)
    return found


@for_all(window_examples=st.integers(1, 300), world_size=st.integers(1, 9), micro_batch_size=SMALL)
def test_every_example_of_a_window_weighs_the_same_however_it_is_split(window_examples, world_size, micro_batch_size):
    weights = example_weights(
        window_examples,
        world_size,
        micro_batch_size,
        lambda examples, pieces: piece_weight(examples, window_examples, world_size),
    )
    assert len(weights) == window_examples
    assert max(abs(weight - 1 / window_examples) for weight in weights) < 1e-12
    assert abs(math.fsum(weights) - 1) < 1e-12


@for_all(sizes=st.lists(st.lists(SMALL, min_size=1, max_size=6), min_size=1, max_size=5))
def test_weights_sum_to_1_for_any_split_even_or_not(sizes):
    world_size, window = len(sizes), sum(map(sum, sizes))
    weights = [piece_weight(piece, window, world_size) for rank in sizes for piece in rank]
    assert abs(math.fsum(weights) / world_size - 1) < 1e-12


def test_a_rank_without_an_example_weighs_nothing():
    assert piece_weight(0, 3, 4) == 0.0


@for_all(window_examples=st.integers(2, 300), world_size=st.integers(1, 9), micro_batch_size=SMALL)
def test_negative_control_a_mean_of_means_weighs_examples_unequally(window_examples, world_size, micro_batch_size):
    shares = [len(rank_share(range(window_examples), rank, world_size)) for rank in range(world_size)]
    sizes = {len(piece) for share in shares for piece in split_evenly(share, micro_batch_size)}
    assume(len(set(shares)) > 1 or len(sizes) > 1)  # ragged somewhere
    weights = example_weights(window_examples, world_size, micro_batch_size, lambda examples, pieces: 1 / pieces)
    assert max(abs(weight * window_examples - 1) for weight in weights) > 1e-3


# Learning rate


@for_all(total=st.integers(1, 300), data=st.data(), kind=st.sampled_from(KINDS))
def test_the_learning_rate_rises_falls_and_ends(total, data, kind):
    warmup = data.draw(st.integers(0, total - 1))
    factors = [learning_rate_factor(kind, step, total=total, warmup=warmup) for step in range(total + 1)]
    rising, falling = factors[: warmup + 1], factors[warmup:]
    assert factors[0] > 0
    assert rising == sorted(set(rising))
    assert factors[warmup] == max(factors) == 1.0  # reached with the first step after warm-up
    assert falling == sorted(falling, reverse=True)
    assert min(factors[:total]) > 0  # every step trains
    assert factors[total] == (1.0 if kind == "constant" else 0.0)


def test_shapes_in_between():
    assert [learning_rate_factor("linear", step, total=10, warmup=2) for step in (0, 1, 2, 6, 10)] == [1 / 3, 2 / 3, 1, 0.5, 0]
    assert learning_rate_factor("cosine", 6, total=10, warmup=2) == pytest.approx(0.5)
    assert learning_rate_factor("cosine", 4, total=10, warmup=2) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert learning_rate_factor("linear", 12, total=10, warmup=2) == 0.0  # never below


@for_all(skips=st.lists(st.booleans(), min_size=1, max_size=200), ratio=st.floats(0, 0.5), kind=st.sampled_from(KINDS[:2]))
def test_skipped_steps_shorten_the_schedule_and_it_still_ends_at_0(skips, ratio, kind):
    windows, warmup = len(skips), warmup_steps(len(skips), ratio, None)
    assume(skips.count(False) > warmup)  # a run that got past its warm-up
    applied = skipped = 0
    for skip in skips:
        assert learning_rate_factor(kind, applied, total=windows - skipped, warmup=warmup) > 0
        applied, skipped = applied + (not skip), skipped + skip
    assert learning_rate_factor(kind, applied, total=windows - skipped, warmup=warmup) == 0.0


@pytest.mark.parametrize(
    ("total", "ratio", "said", "steps"),
    [(100, 0.1, None, 10), (101, 0.1, None, 11), (100, 0.0, None, 0), (100, 0.1, 3, 3), (10, 0.1, 99, 9), (1, 0.5, None, 0)],
)
def test_warm_up_is_what_was_said_or_the_ratio_rounded_up_and_never_the_whole_run(total, ratio, said, steps):
    assert warmup_steps(total, ratio, said) == steps
