"""A record says what was asked, resolved and found, and whoever reads it never meets half of it."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from amp_recipes import records
from amp_recipes.arguments import read_arguments
from amp_recipes.levers import Levers, RunArguments, TextArguments
from amp_recipes.records import (
    RECORD_NAME,
    SCHEMA_VERSION,
    Record,
    Throughput,
    environment,
    read_record,
    summary_table,
    write_json,
)
from amp_recipes.resume import Progress

RESOLVED = {
    "mixed_precision": "bf16",
    "global_batch_size": 32,
    "world_size": 2,
    "micro_batches_per_window": 4,
    "micro_batch_size": 5,
    "windows": 77,
    "warmup_steps": 8,
}
DATA = {"splits": {"train": {"examples": 50}, "validation": {"examples": 20}}}


@dataclasses.dataclass
class Peak:
    allocated: int | None = None
    process: int | None = 3 * 1024**3


@pytest.fixture
def record():
    argv = ["--seed", "7", "--task_name", "reviews", "--mixed_precision", "bf16"]
    started = Record.begin("bert_glue", read_arguments((Levers, RunArguments, TextArguments), argv), dict(RESOLVED), DATA)
    started.environment = {"hardware": {"name": "A Fine GPU", "device": "cuda"}}
    return started


def finished(record: Record) -> Record:
    record.add_epoch(0, {"validation": {"accuracy": 0.5}}, train_loss=0.7)
    record.add_epoch(1, {"validation": {"accuracy": 0.75, "f1": 0.8}}, train_loss=0.3)
    rates = {"examples_per_second": 12.5, "tokens_per_second": 345.0, "padding_share": 0.1}
    record.finish(Progress(windows_done=77, skipped_steps=2), rates, Peak(), "accuracy")
    return record


# Writing and reading


def test_json_has_no_nan_and_keeps_the_rest(tmp_path):
    content = {"nan": math.nan, "deep": [{"inf": -math.inf, "tuple": (1, 2.5)}], 3: "key", "none": None, "text": "ä"}
    write_json(tmp_path / "new" / "file.json", content)
    text = (tmp_path / "new" / "file.json").read_text(encoding="utf-8")
    assert json.loads(text, parse_constant=pytest.fail) == {
        "nan": None,
        "deep": [{"inf": None, "tuple": [1, 2.5]}],
        "3": "key",
        "none": None,
        "text": "ä",
    }
    assert text.endswith("}\n")


def test_what_cannot_be_written_leaves_the_old_file_whole(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, {"version": 1})
    with pytest.raises(TypeError):
        write_json(path, {"version": object()})
    assert json.loads(path.read_text()) == {"version": 1}
    write_json(path, {"version": 2})
    assert json.loads(path.read_text()) == {"version": 2}
    assert [file.name for file in tmp_path.iterdir()] == ["file.json"]  # nothing stays aside


def test_a_record_can_be_written_at_any_time_and_read_back(tmp_path, record):
    record.write(tmp_path)
    assert read_record(tmp_path)["status"] == "running"
    finished(record).write(tmp_path)
    found = read_record(tmp_path)
    assert found == json.loads(json.dumps(dataclasses.asdict(record)))
    assert found["status"] == "finished"
    assert found["schema_version"] == SCHEMA_VERSION
    assert found["started"].endswith("+00:00")


@pytest.mark.parametrize("text", [None, "", "{", "[]", '"text"', '{"recipe": "x"}', '{"schema_version": 1}', b"\xff\xfe{}"])
def test_what_is_no_record_of_ours_is_none(tmp_path, text):
    if text is not None:
        (tmp_path / RECORD_NAME).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert read_record(tmp_path) is None


def test_a_folder_that_is_not_there_holds_no_record(tmp_path):
    assert read_record(tmp_path / "nowhere") is None


# Environment


def test_environment_knows_versions_machine_and_commit():
    hardware = {"device": "cpu"}
    found = environment(hardware)
    assert found["hardware"] == hardware
    assert found["hardware"] is not hardware
    assert found["versions"]["python"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert found["versions"].keys() >= {"torch", "accelerate", "transformers", "datasets", "amp-recipes"}
    assert found["cpu_count"] >= 1
    assert (found["commit"] is None) == (found["uncommitted_changes"] is None)
    json.dumps(found)


def test_neither_git_nor_a_package_is_required(monkeypatch):
    def no_git(*arguments, **options):
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", no_git)
    monkeypatch.setattr(records, "PACKAGES", ("no-such-package-anywhere",))
    found = environment({})
    assert found["commit"] is None
    assert found["uncommitted_changes"] is None
    assert found["versions"]["no-such-package-anywhere"] is None


@pytest.mark.parametrize(("status", "uncommitted"), [("", False), (" M file.py", True)])
def test_uncommitted_changes_are_told(monkeypatch, status, uncommitted):
    root = str(Path(records.__file__).resolve().parent.parent)
    answers = {("status", "--porcelain"): status, ("rev-parse", "HEAD"): "abc123", ("rev-parse", "--show-toplevel"): root}
    monkeypatch.setattr(records, "_git", lambda *arguments: answers[arguments])
    found = environment({})
    assert (found["commit"], found["uncommitted_changes"]) == ("abc123", uncommitted)


def test_the_commit_of_somebody_else_s_checkout_is_not_ours(monkeypatch):
    monkeypatch.setattr(records, "_git", lambda *arguments: "/home/of/another/project")
    found = environment({})
    assert (found["commit"], found["uncommitted_changes"]) == (None, None)


# The record


def test_a_record_keeps_arguments_by_group_with_their_sources(record):
    assert record.arguments["RunArguments"]["seed"] == 7
    assert record.arguments["TextArguments"]["max_length"] is None
    assert record.sources["seed"] == "flag"
    assert record.sources["max_length"] == "default"
    flat = record.flat_arguments()
    assert flat["seed"] == 7
    assert "max_length" not in flat  # left out, nothing for a tracker
    assert flat["overwrite_output_dir"] is False


def test_the_announcement_says_what_was_asked_and_what_follows(record):
    lines = dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in record.announcement().splitlines())
    assert lines["seed"] == "7  (flag)"
    assert lines["task_name"] == "reviews  (flag)"
    assert lines["mixed_precision"] == "bf16  (flag)"
    assert lines["device"] == "A Fine GPU"
    assert lines["examples"] == "50 train, 20 validation"
    assert "32 examples: 2 device(s), each 4 micro-batch(es) of at most 5" in lines["window"]
    assert lines["optimizer steps"] == "77, 8 of them warm-up"
    assert "learning_rate" not in lines  # a default is not announced


def test_a_device_without_a_name_is_called_by_its_kind(record):
    record.environment = {"hardware": {"device": "cpu", "name": None}}
    assert any(line.split() == ["device", "cpu"] for line in record.announcement().splitlines())


def test_epochs_are_kept_and_said_in_one_line(record):
    metrics = {"matched": {"accuracy": 0.51234}, "mismatched": {"accuracy": 0.4}}
    record.add_epoch(2, metrics, train_loss=0.66666, learning_rate=1e-5)
    metrics["matched"]["accuracy"] = 0.0  # a copy was kept
    assert record.epochs[0]["metrics"]["matched"] == {"accuracy": 0.51234}
    assert record.epochs[0]["learning_rate"] == 1e-5
    assert record.epoch_line() == "epoch 2: train loss 0.6667; matched accuracy 0.5123; mismatched accuracy 0.4000"


def test_an_epoch_without_an_applied_step_has_no_loss(record):
    record.add_epoch(0, {"validation": {"accuracy": math.nan}}, train_loss=None)
    assert record.epoch_line() == "epoch 0: train loss none; validation accuracy nan"


def test_the_result_is_that_of_the_last_epoch(record):
    result = finished(record).result
    assert record.status == "finished"
    assert result["metrics"] == {"validation": {"accuracy": 0.75, "f1": 0.8}}
    assert result["primary_metric"] == "accuracy"
    assert (result["optimizer_steps"], result["skipped_steps"]) == (75, 2)
    assert result["peak_memory"] == {"allocated": None, "process": 3 * 1024**3}
    assert result["padding_share"] == 0.1


def test_a_run_that_had_nothing_left_to_do_has_no_metrics(record):
    record.finish(Progress(windows_done=3), {}, Peak(), "accuracy")
    assert record.result["metrics"] == {}


def test_the_table_tells_the_end(record):
    finished(record).seconds = {"train": 61.6, "save": 0.2}
    lines = record.table().splitlines()
    for part in (
        "accuracy 0.7500, f1 0.8000",
        "75, and 2 skipped",
        "12.5 examples/s, 345 tokens/s",
        "peak process",
        "3.00 GiB",
        "train 62 s, save 0 s",
        "outputs/bert_glue",
    ):
        assert any(part in line for line in lines), part
    assert not any("peak allocated" in line for line in lines)  # this device did not tell


def test_phases_add_up_also_when_one_fails(record, monkeypatch):
    clock = iter([10.0, 12.0, 20.0, 25.0])
    monkeypatch.setattr(records.time, "perf_counter", lambda: next(clock))
    with record.phase("train"):
        pass
    with pytest.raises(RuntimeError), record.phase("train"):
        raise RuntimeError
    assert record.seconds == {"train": 7.0}


def test_tables_are_aligned():
    assert summary_table([("a", "1"), ("long name", "2")]) == "  a          1\n  long name  2"


# Throughput


def gathered(monkeypatch, throughput, others, seconds):
    """What `gather` gives where the other ranks counted `others`."""
    utils = types.ModuleType("accelerate.utils")
    utils.gather_object = lambda mine: mine + others
    monkeypatch.setitem(sys.modules, "accelerate", types.ModuleType("accelerate"))
    monkeypatch.setitem(sys.modules, "accelerate.utils", utils)
    return throughput.gather(seconds)


def test_throughput_counts_micro_batches_and_sums_over_ranks(monkeypatch):
    throughput = Throughput()
    for tokens in (10, 20):
        throughput.add(types.SimpleNamespace(examples=4, tokens=tokens, padded_tokens=25))
    assert (throughput.examples, throughput.tokens, throughput.padded_tokens) == (8, 30, 50)
    found = gathered(monkeypatch, throughput, [(2, 10, 30)], 2.0)
    assert found == {"examples_per_second": 5.0, "tokens_per_second": 20.0, "padding_share": 0.5}


def test_a_run_that_trained_on_nothing_has_rates_of_0(monkeypatch):
    found = gathered(monkeypatch, Throughput(), [(0, 0, 0)], 0.0)
    assert found == {"examples_per_second": 0.0, "tokens_per_second": 0.0, "padding_share": 0.0}
