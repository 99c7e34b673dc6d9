"""Tracker names are checked before a run starts."""

from __future__ import annotations

import pytest

import amp_recipes.trackers as trackers
from amp_recipes.errors import InputError
from amp_recipes.levers import RunArguments
from amp_recipes.trackers import resolve_trackers


@pytest.fixture(autouse=True)
def only_tensorboard(monkeypatch):
    monkeypatch.setattr(trackers, "get_available_trackers", lambda: ["tensorboard"])


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (RunArguments(), []),
        (RunArguments(with_tracking=True), ["tensorboard"]),
        (RunArguments(report_to="all"), ["tensorboard"]),
        (RunArguments(report_to="tensorboard"), ["tensorboard"]),
    ],
)
def test_trackers(run, expected):
    assert resolve_trackers(run) == expected


@pytest.mark.parametrize(("name", "words"), [("tensorbord", "did you mean 'tensorboard'"), ("wandb", "not installed")])
def test_refusals(name, words):
    with pytest.raises(InputError, match=words):
        resolve_trackers(RunArguments(report_to=name))


def test_nothing_installed(monkeypatch):
    monkeypatch.setattr(trackers, "get_available_trackers", list)
    with pytest.raises(InputError, match="pip install tensorboard"):
        resolve_trackers(RunArguments(with_tracking=True))
