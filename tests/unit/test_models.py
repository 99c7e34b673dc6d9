"""Models of every family by folder: lengths, labels, weights, dropout, tokenized data."""

from __future__ import annotations

import shutil

import pytest
import torch
from transformers import AutoConfig

import amp_recipes.models as models
from amp_recipes.errors import InputError
from amp_recipes.levers import Levers, TextArguments
from amp_recipes.models import (
    load_classifier,
    load_config,
    load_tokenizer,
    position_limit,
    require_room_for_text,
    resolve_max_length,
    tokenize,
)
from amp_recipes.tasks import TextData, TextSplit
from tests.conftest import FAMILIES, tiny_config

SPLIT = TextSplit(["good film", "bad film"], None, [1, 0])
DATA = TextData("files", "classification", ("bad", "good"), SPLIT, {"validation": SPLIT}, "here")
SCORES = TextData("files", "regression", (), TextSplit(["a"], None, [0.5]), {}, "here")


def arguments(folder, **changes) -> TextArguments:
    return TextArguments(model_name_or_path=str(folder), **changes)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_loads_with_the_task_s_labels_and_runs(tiny_models, family):
    text = arguments(tiny_models(family))
    config = load_config(text, DATA)
    tokenizer = load_tokenizer(text, config)
    model = load_classifier(text, Levers(), config)
    assert model.config.id2label == {0: "bad", 1: "good"}
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    encoded = tokenizer.pad([tokenizer("good film"), tokenizer("the bad bad film")], return_tensors="pt")
    assert model(**encoded).logits.shape == (2, 2)


def test_regression_has_one_output_and_says_so(tiny_bert):
    config = load_config(arguments(tiny_bert, ignore_mismatched_sizes=True), SCORES)
    assert (config.num_labels, config.problem_type) == (1, "regression")


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_attention_kernel_is_the_one_asked_for(tiny_bert, attention):
    text = arguments(tiny_bert)
    model = load_classifier(text, Levers(attn_implementation=attention), load_config(text, DATA))
    assert model.config._attn_implementation == attention


def test_weights_are_fp32_whatever_the_checkpoint_holds(tiny_bert, tmp_path):
    text = arguments(tiny_bert)
    config = load_config(text, DATA)
    load_classifier(text, Levers(dtype="bfloat16"), config).save_pretrained(tmp_path / "half")
    assert AutoConfig.from_pretrained(tmp_path / "half").dtype == torch.bfloat16
    half = arguments(tmp_path / "half")
    reloaded = load_classifier(half, Levers(), load_config(half, DATA))
    assert {parameter.dtype for parameter in reloaded.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        (tiny_config("bert"), 64),
        (tiny_config("roberta", pad_token_id=1), 62),
        (tiny_config("distilbert"), 64),
        (tiny_config("gpt2"), 64),
        (tiny_config("deberta-v2", position_biased_input=False), None),
        (tiny_config("deberta-v2"), 64),
        (AutoConfig.for_model("xlnet"), None),
    ],
)
def test_positions(config, limit):
    assert position_limit(config) == limit


def test_roberta_really_ends_at_its_limit():
    """The offset is not folklore: one token more than `position_limit` fails, the limit itself runs."""
    from transformers import AutoModelForSequenceClassification

    config = tiny_config("roberta", pad_token_id=1)
    model = AutoModelForSequenceClassification.from_config(config)
    limit = position_limit(config)
    model(torch.full((1, limit), 7))
    with pytest.raises((IndexError, RuntimeError)):
        model(torch.full((1, limit + 1), 7))


def test_max_length():
    config = tiny_config("bert")
    assert resolve_max_length(TextArguments(), config) == 64
    assert resolve_max_length(TextArguments(), tiny_config("bert", max_position_embeddings=512)) == 128
    assert resolve_max_length(TextArguments(max_length=10), config) == 10
    with pytest.raises(InputError, match=r"--max_length 65.*64 tokens"):
        resolve_max_length(TextArguments(max_length=65), config)


def test_dropout_is_set_under_every_name(tiny_models):
    for family, names in {
        "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
        "distilbert": ("dropout", "attention_dropout", "seq_classif_dropout"),
        "gpt2": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    }.items():
        config = load_config(arguments(tiny_models(family), dropout=0.0), DATA)
        assert {getattr(config, name) for name in names} == {0.0}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("./nowhere", "no such folder"),
        ("/tmp/no/such/model", "no such folder"),
        ("no-such-model-at-all", "--model_name_or_path"),
    ],
)
def test_missing_models_are_one_line(name, words):
    with pytest.raises(InputError, match=words) as caught:
        load_config(arguments(name), DATA)
    assert len(caught.value.problems) == 1
    assert "\n" not in caught.value.problems[0]


def test_a_folder_that_is_no_model(tmp_path):
    with pytest.raises(InputError, match=r"config\.json"):
        load_config(arguments(tmp_path), DATA)


def test_pickled_weights_are_refused(tiny_bert, tmp_path):
    folder = tmp_path / "pickled"
    shutil.copytree(tiny_bert, folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="safetensors"):
        load_config(arguments(folder), DATA)


def test_a_head_of_another_size_is_refused_unless_asked(tiny_bert):
    three = TextData("files", "classification", ("a", "b", "c"), SPLIT, {}, "here")
    with pytest.raises(InputError, match=r"2 outputs.*needs 3.*--ignore_mismatched_sizes"):
        load_config(arguments(tiny_bert), three)
    text = arguments(tiny_bert, ignore_mismatched_sizes=True)
    assert load_classifier(text, Levers(), load_config(text, three)).classifier.out_features == 3


def test_the_embedded_model_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(models, "embedded_model", lambda: None)
    with pytest.raises(InputError, match="make install"):
        load_config(arguments("embedded"), DATA)


def test_tokenized_data_is_cached_by_content(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setenv("AMP_RECIPES_CACHE", str(tmp_path))
    text = arguments(tiny_bert)
    tokenizer = load_tokenizer(text, load_config(text, DATA))

    def cached() -> int:
        return len(list(tmp_path.glob("tokenized/*.arrow")))

    first = tokenize(SPLIT, tokenizer, 16, description="train")
    assert (first["labels"], cached()) == ([1, 0], 1)
    again = tokenize(TextSplit(list(SPLIT.texts), None, list(SPLIT.labels)), tokenizer, 16, description="train")
    assert (again["input_ids"][:], cached()) == (first["input_ids"][:], 1)
    tokenize(SPLIT, tokenizer, 3, description="another length")
    assert cached() == 2
    tokenize(TextSplit(["good film", "bad plot"], None, [1, 0]), tokenizer, 16, description="other texts")
    assert cached() == 3


def test_pairs_and_truncation(tiny_bert):
    text = arguments(tiny_bert)
    tokenizer = load_tokenizer(text, load_config(text, DATA))
    split = TextSplit(["good good good good"], ["bad bad bad bad"], [0])
    row = tokenize(split, tokenizer, 7, description="pairs")[0]
    assert len(row["input_ids"]) == 7
    assert set(row["token_type_ids"]) == {0, 1}
    assert row["labels"] == 0


def test_a_model_without_a_padding_token_pads_with_its_end_token(tiny_models):
    text = arguments(tiny_models("gpt2"))
    config = load_config(text, DATA)
    config.pad_token_id = None
    assert load_tokenizer(text, config).pad_token is not None
    assert config.pad_token_id is not None


def test_a_folder_without_a_tokenizer_is_refused(tiny_bert, tmp_path):
    """transformers 5 makes an empty tokenizer there, under which every word is the same unknown one."""
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny_bert / name, tmp_path / name)
    text = arguments(tmp_path)
    with pytest.raises(InputError, match="no tokenizer"):
        load_tokenizer(text, load_config(text, DATA))


@pytest.mark.parametrize(("pair", "least"), [(False, 3), (True, 5)])
def test_a_length_that_special_tokens_fill_is_refused(tiny_bert, pair, least):
    text = arguments(tiny_bert)
    tokenizer = load_tokenizer(text, load_config(text, DATA))
    require_room_for_text(least, tokenizer, pair=pair)
    with pytest.raises(InputError, match=rf"--max_length {least - 1}.*at least {least}"):
        require_room_for_text(least - 1, tokenizer, pair=pair)
