"""Defaults follow from what is at hand, the Hub is asked at most once, and files are looked at before anything heavy."""

from __future__ import annotations

import json
import os

import pytest

from amp_recipes import startup
from amp_recipes.errors import InputError
from amp_recipes.records import Record
from amp_recipes.startup import start_text_recipe
from tests.conftest import ROOT

FILES = ["--train_file", "train.csv", "--validation_file", "dev.csv"]  # not opened here
HERE = ["--model_name_or_path", "embedded", "--task_name", "reviews"]


class Hub:
    """Answers as told, and counts how often it was asked."""

    def __init__(self, answer: bool):
        self.answer, self.asked = answer, 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.answer


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "")  # put back afterwards
    monkeypatch.setattr(startup, "embedded_is_installed", lambda: True)


def start(*argv, hub: Hub):
    found = start_text_recipe(argv, recipe="bert_glue", description=None, presets=ROOT / "configs" / "presets", reachable=hub)
    return found, *found.arguments.groups


def is_offline() -> bool:
    return os.environ["HF_HUB_OFFLINE"] == "1"


def refused(*argv, hub: Hub | None = None) -> str:
    hub = hub or Hub(True)
    with pytest.raises(InputError) as error:
        start(*argv, hub=hub)
    assert hub.asked <= 1
    return str(error.value)


# Nothing named


def test_with_the_hub_the_default_is_bert_large_on_mrpc():
    hub = Hub(True)
    found, _, run, text = start(hub=hub)
    assert (text.model_name_or_path, text.task_name) == ("google-bert/bert-large-uncased", "mrpc")
    assert run.learning_rate == 2e-5  # of configs/presets/mrpc_bert_large.yaml
    assert found.hub == "reachable"
    assert hub.asked == 1
    assert not is_offline()


def test_without_the_hub_the_default_is_embedded():
    hub = Hub(False)
    found, levers, run, text = start(hub=hub)
    assert (text.model_name_or_path, text.task_name) == ("embedded", "reviews")
    assert (run.learning_rate, text.max_length, levers.pad_to_multiple_of) == (1e-4, 48, 1)  # of reviews_minilm.yaml
    assert found.hub == "unreachable"
    assert hub.asked == 1
    assert is_offline()


@pytest.mark.parametrize(
    ("answer", "named"), [(True, ["bert-large", "mrpc"]), (False, ["MiniLM", "review", "does not answer"])]
)
def test_a_default_is_announced_with_the_way_to_choose(answer, named):
    (notice,) = start(hub=Hub(answer))[0].notices
    for part in (*named, "--model_name_or_path", "--task_name", "--train_file"):
        assert part in notice


def test_sources_tell_the_preset_from_what_was_said(tmp_path):
    (tmp_path / "mine.yaml").write_text("num_train_epochs: 5\nweight_decay: 0.5\n")
    found, _, run, text = start("--learning_rate", "1", "--config", "mine.yaml", hub=Hub(False))
    assert (run.learning_rate, run.num_train_epochs, run.weight_decay, text.max_train_samples) == (1.0, 5, 0.5, 5000)
    names = ("learning_rate", "num_train_epochs", "weight_decay", "max_train_samples", "model_name_or_path", "seed")
    assert [found.arguments.sources[name] for name in names] == ["flag", "file", "file", "preset", "preset", "default"]


def test_nothing_at_hand_names_the_command_that_mends_it(monkeypatch):
    monkeypatch.setattr(startup, "embedded_is_installed", lambda: False)
    for argv in ([], FILES, ["--model_name_or_path", "a/model"]):
        message = refused(*argv, hub=Hub(False))
        assert "make install" in message
        assert "--model_name_or_path DIR" in message
    assert start(hub=Hub(True))[0].hub == "reachable"  # the Hub alone is enough


# One or both named


@pytest.mark.parametrize(
    ("argv", "answer", "model", "task"),
    [
        (FILES, True, "google-bert/bert-large-uncased", None),
        (FILES, False, "embedded", None),
        (["--task_name", "rte"], True, "google-bert/bert-large-uncased", "rte"),
        (["--task_name", "reviews"], False, "embedded", "reviews"),
        (["--model_name_or_path", "a/model"], True, "a/model", "mrpc"),
        (["--model_name_or_path", "a/model"], False, "a/model", "reviews"),
    ],
)
def test_the_other_half_is_taken_from_where_it_is_at_hand(argv, answer, model, task):
    hub = Hub(answer)
    found, _, run, text = start(*argv, hub=hub)
    assert (text.model_name_or_path, text.task_name) == (model, task)
    assert run.learning_rate == 5e-5  # no preset
    filled_in = "task_name" if argv[0] == "--model_name_or_path" else "model_name_or_path"
    assert [name for name, source in found.arguments.sources.items() if source == "preset"] == [filled_in]
    (notice,) = found.notices
    assert (model if argv[0] != "--model_name_or_path" else task) in notice
    assert hub.asked == 1
    assert is_offline() is not answer


def test_both_named_on_the_hub_is_taken_as_said_also_without_it(monkeypatch):
    monkeypatch.setattr(startup, "embedded_is_installed", lambda: False)
    for answer in (True, False):  # unreachable: the cache may have them
        hub = Hub(answer)
        found, _, _, text = start("--model_name_or_path", "a/model", "--task_name", "sst2", hub=hub)
        assert (text.model_name_or_path, text.task_name, found.notices) == ("a/model", "sst2", ())
        assert hub.asked == 1
        assert is_offline() is not answer


@pytest.mark.parametrize("data", [FILES, ["--task_name", "reviews"]])
@pytest.mark.parametrize("model", ["embedded", "a_folder"])
def test_a_run_that_needs_nothing_from_the_hub_does_not_ask(tmp_path, model, data):
    (tmp_path / "a_folder").mkdir()
    hub = Hub(True)
    found, _, _, text = start("--model_name_or_path", model, *data, hub=hub)
    assert hub.asked == 0
    assert found.hub == "not asked"
    assert text.model_name_or_path == model
    assert is_offline()


def test_code_that_is_trusted_may_come_from_the_hub_if_that_answers(tmp_path):
    (tmp_path / "a_folder").mkdir()
    trusted = ["--model_name_or_path", "a_folder", "--trust_remote_code"]
    assert start(*trusted, *FILES, hub=Hub(True))[0].hub == "not asked"
    assert not is_offline()
    assert start(*trusted, "--task_name", "rte", hub=Hub(False))[0].hub == "unreachable"
    assert is_offline()


# Refusals and folders


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--task_name", "mrcp"], ["mrcp", "'mrpc'"]),
        (["--seed", "-1"], ["--seed -1"]),
        (["--train_file", "a.csv"], ["--validation_file"]),
        (["--resume_from_checkpoint", "latest"], ["latest", "--checkpointing_steps"]),
        (["--resume_from_checkpoint", "nowhere"], ["nowhere", "does not exist"]),
        (["--config", "nowhere.yaml"], ["nowhere.yaml"]),
    ],
)
def test_what_is_wrong_is_said_before_the_hub_is_asked(argv, parts):
    hub = Hub(True)
    message = refused(*argv, hub=hub)
    assert [part for part in parts if part not in message] == []
    assert hub.asked == 0


def test_a_folder_of_others_is_refused_and_one_of_ours_is_replaced_with_a_notice(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("")
    assert "--output_dir out" in refused(*HERE, "--output_dir", "out")
    assert start(*HERE, "--output_dir", "out", "--overwrite_output_dir", hub=Hub(True))[0].notices == ()
    Record("bert_glue", {}, {}).write(tmp_path / "out")
    (notice,) = start(*HERE, "--output_dir", "out", hub=Hub(True))[0].notices
    assert "replaced" in notice


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "run" / "step_3"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"windows_done": 3}))
    Record("bert_glue", {}, {}).write(folder.parent)
    return folder


@pytest.mark.parametrize("asked", ["latest", "run/step_3", "./run/../run/step_3/"])
def test_a_run_goes_on_in_its_own_folder(checkpoint, asked):
    found = start(*HERE, "--output_dir", "run", "--resume_from_checkpoint", asked, hub=Hub(True))[0]
    assert found.resume_from.resolve() == checkpoint.resolve()
    assert found.notices == ()


def test_a_run_that_goes_on_elsewhere_may_not_write_over_the_files_of_others(tmp_path, checkpoint):
    asked = ["--resume_from_checkpoint", str(checkpoint), "--output_dir"]
    assert start(*HERE, *asked, "new", hub=Hub(True))[0].resume_from == checkpoint
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    assert "--output_dir other" in refused(*HERE, *asked, "other")


def test_nothing_is_written(tmp_path):
    start(hub=Hub(False))
    assert list(tmp_path.iterdir()) == []
