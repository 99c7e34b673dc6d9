"""Every value that can't be is refused by its flag, and so are values that contradict each other."""

from __future__ import annotations

import pytest

from amp_recipes.levers import CheckpointingPolicy, Levers, RunArguments, TextArguments, parse_checkpointing

FILES = {"train_file": "train.csv", "validation_file": "dev.csv"}


@pytest.mark.parametrize("group", [Levers, RunArguments, TextArguments])
def test_defaults_have_no_problems(group):
    assert group().problems() == []


# Activation checkpointing


@pytest.mark.parametrize(
    ("text", "covered"),
    [
        ("none", []),
        ("full", [0, 1, 2, 3, 4, 5]),
        ("every-1", [0, 1, 2, 3, 4, 5]),
        ("every-2", [0, 2, 4]),
        ("every-4", [0, 4]),
        ("every-12", [0]),
        ("first-1", [0]),
        ("first-4", [0, 1, 2, 3]),
        ("first-12", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_policy_covers_blocks(text, covered):
    policy = parse_checkpointing(text)
    assert [block for block in range(6) if policy.covers(block)] == covered
    assert Levers(activation_checkpointing=text).problems() == []


def test_a_policy_keeps_what_was_said():
    assert parse_checkpointing("every-3") == CheckpointingPolicy("every", 3)
    assert parse_checkpointing("first-12") == CheckpointingPolicy("first", 12)


@pytest.mark.parametrize("text", ["", "Full", "every", "every-", "every-0", "first-00", "first--1", "last-2", "every-2 ", "2"])
def test_another_policy_is_refused(text):
    with pytest.raises(ValueError, match="every-K"):
        parse_checkpointing(text)
    (problem,) = Levers(activation_checkpointing=text).problems()
    assert problem.startswith(f"--activation_checkpointing {text}:")


# Levers


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"init_scale": 0.0}, ["--init_scale 0", "above 0"]),
        ({"init_scale": -2.0}, ["--init_scale -2", "above 0"]),
        ({"growth_factor": 1.0}, ["--growth_factor 1", "above 1"]),
        ({"growth_factor": 0.5}, ["--growth_factor 0.5", "above 1"]),
        ({"backoff_factor": 0.0}, ["--backoff_factor 0", "between 0 and 1"]),
        ({"backoff_factor": 1.0}, ["--backoff_factor 1", "between 0 and 1"]),
        ({"backoff_factor": -0.5}, ["--backoff_factor -0.5", "between 0 and 1"]),
        ({"growth_interval": 0}, ["--growth_interval 0", "at least 1"]),
        ({"mixed_precision": "fp8"}, ["--mixed_precision fp8", "not supported", "bf16", "fp16"]),
        ({"mixed_precision": "float16"}, ["--mixed_precision float16", "no, fp16 or bf16"]),
        ({"mixed_precision": "no", "init_scale": 1.0}, ["--init_scale", "fp16", "drop"]),
        ({"mixed_precision": "bf16", "growth_interval": 5}, ["--growth_interval", "bf16", "--mixed_precision fp16"]),
        ({"mixed_precision": "bf16", "dtype": "bfloat16"}, ["--dtype bfloat16", "--mixed_precision bf16", "drop"]),
        ({"mixed_precision": "fp16", "dtype": "bfloat16"}, ["--dtype bfloat16", "--mixed_precision fp16", "drop"]),
        ({"global_batch_size": 0}, ["--global_batch_size 0", "at least 1"]),
        ({"micro_batch_size": 0}, ["--micro_batch_size 0", "at least 1"]),
        ({"pad_to_multiple_of": 0}, ["--pad_to_multiple_of 0", "at least 1"]),
        ({"micro_batch_size": 9, "global_batch_size": 8}, ["--micro_batch_size 9", "--global_batch_size 8"]),
        ({"micro_batch_size": 8, "global_batch_size": 0}, ["--global_batch_size 0", "at least 1"]),
    ],
)
def test_levers_refuse_in_one_line_with_flag_value_and_remedy(values, parts):
    (problem,) = Levers(**values).problems()
    assert [part for part in parts if part not in problem] == []


@pytest.mark.parametrize(
    "values",
    [
        {"init_scale": 1e-3, "growth_factor": 1.001, "backoff_factor": 0.999, "growth_interval": 1},
        {"mixed_precision": "fp16", "init_scale": 128.0},
        {"mixed_precision": "no", "dtype": "bfloat16"},
        {"dtype": "bfloat16"},
        {"micro_batch_size": 8, "global_batch_size": 8},
        {"micro_batch_size": 1, "global_batch_size": 1, "pad_to_multiple_of": 1},
    ],
)
def test_levers_at_their_limits_are_taken(values):
    assert Levers(**values).problems() == []


def test_scaler_settings_are_those_that_somebody_asked_for():
    assert Levers().scaler_settings() == {}
    assert Levers(growth_interval=7, init_scale=2.0).scaler_settings() == {"init_scale": 2.0, "growth_interval": 7}


def test_every_problem_is_named_and_every_scaler_flag_that_has_no_scaler():
    problems = Levers(mixed_precision="bf16", init_scale=0.0, backoff_factor=2.0, micro_batch_size=0).problems()
    assert len(problems) == 4
    assert any("--init_scale, --backoff_factor:" in problem for problem in problems)


# Run


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_train_epochs", 0),
        ("max_train_steps", 0),
        ("per_device_eval_batch_size", 0),
        ("logging_steps", 0),
        ("weight_decay", -0.1),
        ("max_grad_norm", -1.0),
        ("num_warmup_steps", -1),
        ("dataloader_num_workers", -1),
        ("seed", -1_234_567),
        ("seed", 2**32),
        ("learning_rate", 0.0),
        ("warmup_ratio", 1.0),
        ("warmup_ratio", -0.1),
        ("checkpointing_steps", "0"),
        ("checkpointing_steps", "-5"),
        ("checkpointing_steps", "2.5"),
        ("checkpointing_steps", "epochs"),
        ("checkpointing_steps", ""),
    ],
)
def test_run_values_out_of_range_are_refused(name, value):
    (problem,) = RunArguments(**{name: value}).problems()
    said = f"{value:g}" if isinstance(value, float) and value == int(value) else value
    assert problem.startswith(f"--{name} {said}")


@pytest.mark.parametrize(
    "values",
    [
        {"max_grad_norm": 0.0, "weight_decay": 0.0, "warmup_ratio": 0.0, "num_warmup_steps": 0, "seed": 0},
        {"checkpointing_steps": "epoch"},
        {"checkpointing_steps": "12"},
        {"seed": 2**32 - 1, "max_train_steps": 1, "dataloader_num_workers": 0},
    ],
)
def test_run_values_at_their_limits_are_taken(values):
    assert RunArguments(**values).problems() == []


# Text


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ({"max_length": 0}, ["--max_length 0"]),
        ({"max_train_samples": 0}, ["--max_train_samples 0"]),
        ({"max_eval_samples": -1}, ["--max_eval_samples -1"]),
        ({"dropout": 1.0}, ["--dropout 1", "probability"]),
        ({"dropout": -0.1}, ["--dropout -0.1", "probability"]),
        ({"train_file": "a.csv"}, ["--train_file without --validation_file", "give --validation_file"]),
        ({"train_file": ""}, ["--train_file without --validation_file"]),
        ({"validation_file": "a.csv"}, ["--validation_file without --train_file", "give --train_file"]),
        ({"text_column": "a"}, ["--text_column a", "--train_file"]),
        ({"text_pair_column": "b"}, ["--text_pair_column b", "--train_file"]),
        ({"label_column": "y"}, ["--label_column y", "--train_file"]),
    ],
)
def test_text_arguments_refuse_in_one_line(values, parts):
    (problem,) = TextArguments(**values).problems()
    assert [part for part in parts if part not in problem] == []


def test_text_arguments_take_files_with_named_columns():
    values = {"text_column": "a", "text_pair_column": "b", "label_column": "y", "dropout": 0.0, "max_length": 1}
    assert TextArguments(**FILES, **values).problems() == []
