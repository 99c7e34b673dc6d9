"""The recipe, run whole on tiny models: what it trains, what it writes, what it refuses."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import datasets
import pytest
import torch

from tests.conftest import FAMILIES, POSITIVE, write_reviews

FAST = ["--max_length", "32", "--global_batch_size", "10", "--learning_rate", "5e-3", "--dropout", "0"]


def largest_difference(left: dict, right: dict) -> float:
    assert left.keys() == right.keys()
    return max(float((left[name] - right[name]).abs().max()) for name in left)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_and_loads_again(run_recipe, tiny_models, review_files, family):
    outcome = run_recipe("--model_name_or_path", tiny_models(family), *review_files, *FAST, "--num_train_epochs", 1)
    assert outcome.exit_code == 0, outcome.err
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(outcome.output_dir)
    assert model.config.id2label == {0: "0", 1: "1"}
    assert outcome.record["result"]["optimizer_steps"] == 5


def test_a_learnable_task_is_learned_and_recorded(run_recipe, tiny_bert, review_files):
    outcome = run_recipe("--model_name_or_path", tiny_bert, *review_files, *FAST, "--num_train_epochs", 8)
    assert outcome.exit_code == 0, outcome.err
    record = outcome.record
    assert record["status"] == "finished"
    assert record["result"]["metrics"]["validation"]["accuracy"] >= 0.9
    assert [epoch["epoch"] for epoch in record["epochs"]] == list(range(8))
    assert record["epochs"][-1]["learning_rate"] == pytest.approx(0, abs=1e-12)
    assert record["result"]["optimizer_steps"] == record["resolved"]["windows"] == 40
    assert record["result"]["peak_memory"]["process"] > 0
    assert record["result"]["examples_per_second"] > 0
    assert set(record["seconds"]) == {"tokenize", "load model", "train", "evaluate", "save"}
    assert record["data"]["splits"]["train"]["examples"] == 50
    assert len(record["data"]["splits"]["train"]["sha256"]) == 64
    assert record["sources"]["learning_rate"] == "flag"
    assert record["sources"]["mixed_precision"] == "hardware"
    assert record["sources"]["weight_decay"] == "default"
    assert record["environment"]["versions"]["torch"] == torch.__version__.split("+")[0]
    arguments = {name: value for group in record["arguments"].values() for name, value in group.items()}
    assert set(arguments) == set(record["sources"])
    assert "accuracy" in outcome.out
    assert "optimizer steps" in outcome.out


def test_the_saved_folder_works_in_a_pipeline(run_recipe, tiny_bert, tmp_path):
    from transformers import pipeline

    files = []
    for flag, count, seed in (("--train_file", 60, 0), ("--validation_file", 20, 1)):
        rows = (write_reviews(tmp_path / f"{seed}.csv", count, seed)).read_text().splitlines()
        words = [row.rsplit(",", 1)[0] + (",pos" if row.endswith("1") else ",neg") for row in rows[1:]]
        (tmp_path / f"{seed}.csv").write_text("\n".join(["sentence,label", *words]) + "\n")
        files += [flag, tmp_path / f"{seed}.csv"]
    outcome = run_recipe("--model_name_or_path", tiny_bert, *files, *FAST, "--num_train_epochs", 8)
    assert outcome.exit_code == 0, outcome.err
    classify = pipeline("text-classification", model=str(outcome.output_dir), device="cpu")
    assert [answer["label"] for answer in classify(["the film was superb great", "the film was awful bad"])] == ["pos", "neg"]


@pytest.mark.parametrize("micro_batch_size", [1, 3, 7])
def test_the_micro_batch_does_not_change_the_result(run_recipe, tiny_bert, review_files, tmp_path, micro_batch_size):
    """Global batch 16 of 50 examples: windows of 16, 16, 16 and 2, none of which 3 or 7 divides."""
    common = ["--model_name_or_path", tiny_bert, *review_files, "--dropout", 0, "--global_batch_size", 16, "--max_length", 32]
    common += ["--num_train_epochs", 2, "--mixed_precision", "no"]
    whole = run_recipe(*common, output_dir=tmp_path / "whole")
    split = run_recipe(*common, "--micro_batch_size", micro_batch_size, output_dir=tmp_path / "split")
    assert (whole.exit_code, split.exit_code) == (0, 0), split.err
    assert largest_difference(whole.weights(), split.weights()) < 1e-6
    assert split.record["resolved"]["micro_batches_per_window"] == math.ceil(16 / micro_batch_size)


@pytest.mark.parametrize("policy", ["full", "every-2", "first-1"])
def test_checkpointing_does_not_change_the_result_even_with_dropout(run_recipe, tiny_bert, review_files, tmp_path, policy):
    common = ["--model_name_or_path", tiny_bert, *review_files, "--num_train_epochs", 1, "--mixed_precision", "no"]
    plain = run_recipe(*common, output_dir=tmp_path / "plain")
    checkpointed = run_recipe(*common, "--activation_checkpointing", policy, output_dir=tmp_path / "checkpointed")
    assert checkpointed.exit_code == 0, checkpointed.err
    assert largest_difference(plain.weights(), checkpointed.weights()) == 0
    assert checkpointed.record["resolved"]["checkpointed_blocks"] != []


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_each_precision_trains(run_recipe, tiny_bert, review_files, precision):
    outcome = run_recipe(
        "--model_name_or_path", tiny_bert, *review_files, *FAST, "--num_train_epochs", 6, "--mixed_precision", precision
    )
    assert outcome.exit_code == 0, outcome.err
    record = outcome.record
    assert record["resolved"]["mixed_precision"] == precision
    assert (record["resolved"]["scaler"] is not None) == (precision == "fp16")
    assert record["result"]["metrics"]["validation"]["accuracy"] >= 0.85
    assert {tensor.dtype for tensor in outcome.weights().values()} == {torch.float32}


def test_skipped_steps_are_counted_and_move_nothing(run_recipe, tiny_bert, review_files):
    """A loss scale of 2^40 overflows fp16 for a while: those windows are skipped, and the LR still ends at 0."""
    outcome = run_recipe(
        "--model_name_or_path", tiny_bert, *review_files, *FAST, "--num_train_epochs", 8,
        "--mixed_precision", "fp16", "--init_scale", 2**34, "--backoff_factor", 0.25, "--growth_interval", 1000,
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.err
    result, resolved = outcome.record["result"], outcome.record["resolved"]
    assert resolved["scaler"]["scale"] == 2**34
    assert result["skipped_steps"] > 0
    assert result["optimizer_steps"] + result["skipped_steps"] == resolved["windows"] == 40
    assert outcome.record["epochs"][-1]["learning_rate"] == pytest.approx(0, abs=1e-12)
    assert f"{result['skipped_steps']} skipped" in outcome.out


def test_pure_bf16(run_recipe, tiny_bert, review_files):
    outcome = run_recipe("--model_name_or_path", tiny_bert, *review_files, "--dtype", "bfloat16", "--max_train_steps", 2)
    assert outcome.exit_code == 0, outcome.err
    assert {tensor.dtype for tensor in outcome.weights().values()} == {torch.bfloat16}


@pytest.mark.parametrize("precision", ["no", "fp16"])
@pytest.mark.parametrize("stop_at", [3, 5, 8])  # in the middle of an epoch, at its end, in the middle of the second
def test_a_resumed_run_ends_with_the_very_same_weights(run_recipe, tiny_bert, review_files, tmp_path, stop_at, precision):
    common = ["--model_name_or_path", tiny_bert, *review_files, "--global_batch_size", 10, "--micro_batch_size", 4]
    common += ["--num_train_epochs", 2, "--mixed_precision", precision, "--max_length", 32]
    whole = run_recipe(*common, output_dir=tmp_path / "whole")
    stopped = run_recipe(*common, "--checkpointing_steps", stop_at, output_dir=tmp_path / "stopped")
    assert (whole.exit_code, stopped.exit_code) == (0, 0), stopped.err
    resumed = run_recipe(
        *common, "--resume_from_checkpoint", tmp_path / "stopped" / f"step_{stop_at}", output_dir=tmp_path / "resumed"
    )
    assert resumed.exit_code == 0, resumed.err
    assert largest_difference(whole.weights(), resumed.weights()) == 0
    assert whole.record["result"]["metrics"] == resumed.record["result"]["metrics"]
    assert [epoch["epoch"] for epoch in resumed.record["epochs"]] == [0, 1]
    assert whole.record["result"]["optimizer_steps"] == resumed.record["result"]["optimizer_steps"]


def test_latest_and_epoch_checkpoints(run_recipe, tiny_bert, review_files, tmp_path):
    common = ["--model_name_or_path", tiny_bert, *review_files, "--num_train_epochs", 2, "--checkpointing_steps", "epoch"]
    first = run_recipe(*common)
    assert {path.name for path in first.output_dir.glob("epoch_*")} == {"epoch_0", "epoch_1"}
    weights = first.weights()
    again = run_recipe(*common, "--resume_from_checkpoint", "latest")
    assert again.exit_code == 0, again.err
    assert again.record["resolved"]["resumed_from"].endswith("epoch_1")
    assert largest_difference(weights, again.weights()) == 0  # nothing was left to train
    assert again.record["result"]["metrics"]["validation"].keys() == {"accuracy", "f1"}
    refused = run_recipe(*common)
    assert refused.exit_code == 2
    assert "--resume_from_checkpoint latest" in refused.err
    fresh = run_recipe(*common, "--overwrite_output_dir")
    assert fresh.exit_code == 0
    assert largest_difference(weights, fresh.weights()) == 0


def test_max_train_steps_ends_the_run_and_its_schedule_also_when_resumed(run_recipe, tiny_bert, review_files):
    common = ["--model_name_or_path", tiny_bert, *review_files, "--global_batch_size", 10, "--num_train_epochs", 5]
    common += ["--max_train_steps", 7, "--checkpointing_steps", "epoch"]
    outcome = run_recipe(*common)
    assert outcome.record["result"]["optimizer_steps"] == 7
    assert [epoch["epoch"] for epoch in outcome.record["epochs"]] == [0, 1]
    assert outcome.record["epochs"][-1]["learning_rate"] == pytest.approx(0, abs=1e-12)
    again = run_recipe(*common, "--resume_from_checkpoint", "latest")
    assert [epoch["epoch"] for epoch in again.record["epochs"]] == [0, 1]


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (["--mixed_precision", "bf16"], "mixed precision"),
        (["--global_batch_size", "20"], "global batch size"),
        (["--num_train_epochs", "3"], "windows"),
        (["--seed", "1"], "seed"),
        (["--learning_rate", "1e-3"], "learning_rate"),
        (["--weight_decay", "0.5"], "weight_decay"),
        (["--dropout", "0"], "dropout"),
        (["--lr_scheduler_type", "cosine"], "lr_scheduler_type"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(run_recipe, tiny_bert, review_files, tmp_path, change, fact):
    common = ["--model_name_or_path", tiny_bert, *review_files, "--mixed_precision", "no"]
    made = run_recipe(*common, "--checkpointing_steps", 1, "--max_train_steps", 1, output_dir=tmp_path / "made")
    assert made.exit_code == 0, made.err
    flags = [flag for flag in common if change[0] != "--mixed_precision" or flag not in ("--mixed_precision", "no")]
    refused = run_recipe(
        *flags, "--max_train_steps", 1 if fact != "windows" else 2, *change,
        "--resume_from_checkpoint", tmp_path / "made" / "step_1", output_dir=tmp_path / "new",
    )  # fmt: skip
    assert refused.exit_code == 2
    assert fact in refused.err
    assert not (tmp_path / "new").exists()


def test_a_second_run_replaces_the_first_and_a_stranger_s_folder_is_left_alone(run_recipe, tiny_bert, review_files, tmp_path):
    common = ["--model_name_or_path", tiny_bert, *review_files, "--max_train_steps", 1]
    assert run_recipe(*common).exit_code == 0
    again = run_recipe(*common)
    assert again.exit_code == 0
    assert "will be replaced" in again.out
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "thesis.txt").write_text("years of work")
    refused = run_recipe(*common, output_dir=stranger)
    assert refused.exit_code == 2
    assert "--overwrite_output_dir" in refused.err
    assert [path.name for path in stranger.iterdir()] == ["thesis.txt"]
    allowed = run_recipe(*common, "--overwrite_output_dir", output_dir=stranger)
    assert allowed.exit_code == 0
    assert (stranger / "thesis.txt").read_text() == "years of work"


def test_tensorboard(run_recipe, tiny_bert, review_files):
    outcome = run_recipe(
        "--model_name_or_path", tiny_bert, *review_files, *FAST, "--num_train_epochs", 2, "--report_to", "tensorboard",
        "--logging_steps", 2, "--mixed_precision", "fp16",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.err
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(outcome.output_dir / "bert_glue")).Reload()
    assert {"train_loss", "learning_rate", "loss_scale", "validation/accuracy"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("train_loss")] == [2, 4, 6, 8, 10]


def test_regression(run_recipe, tiny_bert, tmp_path):
    for name, count in (("train", 40), ("dev", 20)):
        rows = [{"sentence1": POSITIVE[i % 5], "sentence2": "film", "score": i % 5 + 0.5} for i in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    files = ["--train_file", tmp_path / "train.jsonl", "--validation_file", tmp_path / "dev.jsonl"]
    outcome = run_recipe(
        "--model_name_or_path", tiny_bert, "--ignore_mismatched_sizes", *files, *FAST, "--num_train_epochs", 30,
        "--learning_rate", "1e-2",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.err
    metrics = outcome.record["result"]["metrics"]["validation"]
    assert metrics["pearson"] > 0.9
    assert {"pearson", "spearmanr", "mse"} <= set(metrics)


def test_mnli_from_the_hub_scores_both_validation_sets(run_recipe, tiny_bert, monkeypatch):
    def rows(count):
        return datasets.Dataset.from_dict(
            {
                "premise": ["the film was good"] * count,
                "hypothesis": ["it was " + ("good", "a film", "bad")[i % 3] for i in range(count)],
                "label": [i % 3 for i in range(count)],
            }
        )

    asked = []

    def load_dataset(*names):
        asked.append(names)
        return {"train": rows(30), "validation_matched": rows(9), "validation_mismatched": rows(12)}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    outcome = run_recipe("--model_name_or_path", tiny_bert, "--task_name", "mnli", *FAST, "--ignore_mismatched_sizes")
    assert outcome.exit_code == 0, outcome.err
    assert asked == [("nyu-mll/glue", "mnli")]
    assert set(outcome.record["result"]["metrics"]) == {"validation_matched", "validation_mismatched"}


@pytest.mark.parametrize(
    ("task", "train", "dev", "metric"),
    [
        ("mrpc", "mrpc/msr_paraphrase_train.txt", "mrpc/msr_paraphrase_test.txt", "f1"),
        ("cola", "glue/CoLA/train.tsv", "glue/CoLA/dev.tsv", "matthews_correlation"),
        ("stsb", "glue/STS-B/train.tsv", "glue/STS-B/dev.tsv", "spearmanr"),
        ("rte", "glue/RTE/train.tsv", "glue/RTE/dev.tsv", "accuracy"),
    ],
)
def test_glue_in_its_distribution_formats(run_recipe, tiny_bert, shared_data: Path, task, train, dev, metric):
    outcome = run_recipe(
        "--model_name_or_path", tiny_bert, "--task_name", task, "--train_file", shared_data / train,
        "--validation_file", shared_data / dev, "--max_train_samples", 64, "--max_eval_samples", 40,
        "--num_train_epochs", 1, "--learning_rate", "1e-3", "--ignore_mismatched_sizes",
    )  # fmt: skip
    assert outcome.exit_code == 0, outcome.err
    assert metric in outcome.record["result"]["metrics"]["validation"]
    assert outcome.record["data"]["splits"]["train"]["examples"] == 64


def test_the_embedded_default_is_announced(run_recipe):
    """The main job in small: real weights, real sentences, no network."""
    outcome = run_recipe("--max_train_samples", 16, "--max_eval_samples", 8, "--max_train_steps", 1)
    assert outcome.exit_code == 0, outcome.err
    assert "embedded default" in outcome.out.splitlines()[0]
    assert "--model_name_or_path" in outcome.out.splitlines()[0]
    assert outcome.record["sources"]["learning_rate"] == "preset"
    assert outcome.record["resolved"]["hub"] == "unreachable"


def test_weights_that_do_not_load_leave_an_earlier_result_alone(run_recipe, tiny_bert, review_files, tmp_path):
    common = ["--model_name_or_path", tiny_bert, *review_files, "--max_train_steps", 1, "--checkpointing_steps", 1]
    first = run_recipe(*common)
    assert first.exit_code == 0, first.err
    before = {path: path.read_bytes() for path in first.output_dir.rglob("*") if path.is_file()}
    broken = tmp_path / "broken"
    shutil.copytree(tiny_bert, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    refused = run_recipe("--model_name_or_path", broken, *common[2:], "--overwrite_output_dir")
    assert refused.exit_code == 2
    (line,) = refused.err.strip().splitlines()
    assert str(broken) in line
    assert {path: path.read_bytes() for path in first.output_dir.rglob("*") if path.is_file()} == before


BAD_FLAGS = [
    (["--task_name", "mprc"], "did you mean 'mrpc'"),
    (["--lerning_rate", "1"], "did you mean '--learning_rate'"),
    (["--growth_factor", "1", "--mixed_precision", "fp16"], "--growth_factor"),
    (["--backoff_factor", "1", "--mixed_precision", "fp16"], "--backoff_factor"),
    (["--growth_interval", "0", "--mixed_precision", "fp16"], "--growth_interval"),
    (["--init_scale", "0", "--mixed_precision", "fp16"], "--init_scale"),
    (["--init_scale", "8", "--mixed_precision", "bf16"], "only under fp16"),
    (["--mixed_precision", "fp8"], "fp8"),
    (["--micro_batch_size", "64", "--global_batch_size", "32"], "larger than"),
    (["--max_length", "65"], "positions for 64"),
    (["--activation_checkpointing", "some"], "every-K"),
    (["--activation_checkpointing", "first-99"], "99"),
    (["--report_to", "tensorbord"], "did you mean 'tensorboard'"),
    (["--resume_from_checkpoint", "nowhere"], "does not exist"),
    (["--resume_from_checkpoint", "latest"], "no checkpoint"),
    (["--config", "nowhere.yaml"], "no such file"),
]


@pytest.mark.parametrize(("flags", "words"), BAD_FLAGS, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_bad_flags_are_one_line_and_write_nothing(run_recipe, tiny_bert, review_files, monkeypatch, flags, words):
    from transformers import AutoModelForSequenceClassification

    def never(*args, **kwargs):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(AutoModelForSequenceClassification, "from_pretrained", never)
    outcome = run_recipe("--model_name_or_path", tiny_bert, *review_files, *flags)
    assert outcome.exit_code == 2
    (line,) = outcome.err.strip().splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert not outcome.output_dir.exists()


BAD_FILES = {
    "empty": ("", "empty"),
    "no label": ("sentence,stars_given\nfine film,x\nbad film,y\n", "label"),
    "no sentence": ("label,id\n0,1\n1,2\n", "column"),
    "one class": ("sentence,label\nfine film,1\ngood film,1\n", "class"),
    "empty text": ("sentence,label\nfine film,1\n,0\n", "text"),
    "new label": ("sentence,label\nfine film,5\nbad film,6\n", "label"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_files_are_one_line_and_write_nothing(run_recipe, tiny_bert, tmp_path, kind):
    content, words = BAD_FILES[kind]
    bad, good = tmp_path / "bad.csv", write_reviews(tmp_path / "good.csv", 10, 0)
    bad.write_text(content)
    order = ("--validation_file", "--train_file") if kind == "new label" else ("--train_file", "--validation_file")
    outcome = run_recipe("--model_name_or_path", tiny_bert, order[0], bad, order[1], good)
    assert outcome.exit_code == 2
    (line,) = outcome.err.strip().splitlines()
    assert line.startswith("error: ")
    assert words in line
    assert not outcome.output_dir.exists()
