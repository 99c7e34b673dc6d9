"""The page's two listings run as they stand, end with the same weights, and differ by at most 15 lines."""

from __future__ import annotations

import difflib
import re

import pytest
import torch

from tests.conftest import ROOT, make_tiny_model, reset_accelerate

LISTING = re.compile(r"```python\n# (before|after)\n(.*?)```", re.DOTALL)


def listings() -> dict[str, str]:
    found = dict(LISTING.findall((ROOT / "docs" / "your_own_loop.md").read_text(encoding="utf-8")))
    assert set(found) == {"before", "after"}
    return found


def test_at_most_fifteen_lines_change():
    before, after = (listings()[name].splitlines() for name in ("before", "after"))
    changed = [line for line in difflib.ndiff(before, after) if line.startswith("+ ") and line[2:].strip()]
    assert 5 <= len(changed) <= 15, changed


@pytest.mark.filterwarnings("ignore:You're using a")
def test_both_listings_train_to_the_same_weights(tmp_path, monkeypatch):
    """In fp32 and without dropout; 37 examples, so that the last batch is short and no piece size divides it."""
    folder = make_tiny_model(tmp_path / "model", "bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    import amp_recipes.precision

    monkeypatch.setattr(amp_recipes.precision, "choose_mixed_precision", lambda device: "no")
    examples = [
        {"input_ids": [2, *([5 + i % 20] * (i % 7 + 1)), 3], "attention_mask": [1] * (i % 7 + 3), "label": i % 2}
        for i in range(37)
    ]
    weights = {}
    for name, text in listings().items():
        reset_accelerate()
        torch.manual_seed(0)
        scope = {"model_folder": str(folder), "examples": examples}
        exec(compile(text, f"your_own_loop.md ({name})", "exec"), scope)
        weights[name] = {key.removeprefix("module."): value for key, value in scope["model"].state_dict().items()}
    reset_accelerate()
    assert weights["before"].keys() == weights["after"].keys()
    for key, value in weights["before"].items():
        torch.testing.assert_close(value, weights["after"][key], rtol=0, atol=1e-6)
