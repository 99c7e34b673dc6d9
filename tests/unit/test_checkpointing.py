"""Checkpointing keeps losses and gradients, dropout included, and recomputes the blocks it says; twice in one process."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForSequenceClassification, ResNetConfig

from amp_recipes.checkpointing import apply_checkpointing, require_checkpointing
from amp_recipes.errors import InputError
from amp_recipes.levers import CheckpointingPolicy, parse_checkpointing
from tests.conftest import tiny_config

FAMILIES = ("bert", "roberta", "distilbert", "electra", "deberta-v2", "modernbert", "gpt2")
POLICIES = ("none", "full", "every-2", "first-3")


def build(family: str, policy: str = "none"):
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(tiny_config(family, num_labels=2)).train()
    return model, apply_checkpointing(model, parse_checkpointing(policy))


def inputs():
    ids = torch.randint(5, 90, (3, 12), generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.tensor([0, 1, 1])}


def step(model, autocast: torch.dtype | None = None):
    torch.manual_seed(5)  # the same dropout masks in each compared run
    with torch.autocast("cpu", dtype=autocast, enabled=autocast is not None):
        loss = model(**inputs()).loss
    loss.backward()
    return loss.detach(), [p.grad for p in model.parameters() if p.grad is not None]


class CountMatrixProducts(TorchDispatchMode):
    """Counts the matrix products that really run, recomputed ones included."""

    def __init__(self):
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        if name.startswith(("aten.addmm", "aten.mm", "aten.bmm", "aten.linear")):
            self.counts["products"] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("policy", POLICIES[1:])
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradients_are_those_without_checkpointing(family, policy):
    plain_loss, plain_gradients = step(build(family)[0])
    loss, gradients = step(build(family, policy)[0])
    assert torch.equal(plain_loss, loss)
    assert len(plain_gradients) == len(gradients) > 0
    for left, right in zip(plain_gradients, gradients, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_same_under_autocast(dtype):
    plain_loss, plain_gradients = step(build("bert")[0], dtype)
    loss, gradients = step(build("bert", "full")[0], dtype)
    assert torch.equal(plain_loss, loss)
    for left, right in zip(plain_gradients, gradients, strict=True):
        assert torch.equal(left, right)


def test_without_the_random_state_dropout_would_differ():
    """Negative control: the comparison above does see a wrong dropout mask."""
    model, _ = build("bert", "full")
    plain_loss, plain_gradients = step(build("bert")[0])
    model.activation_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
    loss, gradients = step(model)
    assert torch.equal(plain_loss, loss)  # the forward pass is the same ...
    differences = [float((a - b).abs().max()) for a, b in zip(plain_gradients, gradients, strict=True)]
    assert max(differences) > 1e-4  # ... the recomputation is not


@pytest.mark.parametrize(
    ("policy", "covered"),
    [("none", ()), ("full", (0, 1, 2, 3)), ("every-2", (0, 2)), ("every-3", (0, 3)), ("first-3", (0, 1, 2))],
)
def test_the_blocks_that_are_said_are_recomputed(policy, covered):
    model, report = build("bert", policy)
    assert (report.blocks, report.checkpointed) == (4, covered)
    with CountMatrixProducts() as plain:
        step(build("bert")[0])
    with CountMatrixProducts() as counter:
        step(model)
    recomputed = counter.counts["products"] - plain.counts["products"]
    with CountMatrixProducts() as one:
        step(build("bert", "first-1")[0])
    in_one_block = one.counts["products"] - plain.counts["products"]
    assert in_one_block >= 4  # query, key, value, output at least
    assert recomputed == in_one_block * len(covered)


def test_a_second_model_in_the_same_process_gets_the_same_pattern():
    assert build("bert", "every-3")[1] == build("bert", "every-3")[1]


def test_evaluation_recomputes_nothing():
    model, _ = build("bert", "full")
    model.eval()
    with torch.no_grad(), CountMatrixProducts() as counter:
        model(**inputs())
    with torch.no_grad(), CountMatrixProducts() as plain:
        build("bert")[0].eval()(**inputs())
    assert counter.counts == plain.counts


def test_more_blocks_than_there_are():
    with pytest.raises(InputError, match=r"first-9.*4 blocks"):
        build("bert", "first-9")


def test_families_without_support_are_refused_from_the_config():
    require_checkpointing(tiny_config("bert"), CheckpointingPolicy("full"))
    require_checkpointing(ResNetConfig(), CheckpointingPolicy("full"))  # not a text family: nothing known about it here
    albert = tiny_config("albert")
    require_checkpointing(albert, CheckpointingPolicy("none"))
    with pytest.raises(InputError, match="Albert"):
        require_checkpointing(albert, CheckpointingPolicy("full"))
