"""Models by Hub id or local folder: what their config allows, their tokenizer, tokenized data, and a classifier of the task."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, PretrainedConfig, PreTrainedModel

from amp_recipes.errors import InputError
from amp_recipes.levers import Levers, TextArguments
from amp_recipes.tasks import INSTALL_EMBEDDED, TextData, TextSplit, embedded_model

__all__ = [
    "load_classifier",
    "load_config",
    "load_tokenizer",
    "position_limit",
    "require_room_for_text",
    "resolve_max_length",
    "tokenize",
]

DEFAULT_MAX_LENGTH = 128
# these count positions from padding_idx + 1, so that many of the embedding's rows hold no token
OFFSET_FAMILIES = (
    *("roberta", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "camembert", "xmod", "ibert", "esm"),
    *("data2vec-text", "longformer", "mpnet", "luke", "mluke"),
)


def resolve_model_path(model_name_or_path: str) -> str:
    """Return the folder of `embedded`, any other name as it is.

    Raises
    ------
    InputError
        If the embedded model is not installed, or a path-like name does not exist or is no model.
    """
    if model_name_or_path == "embedded":
        folder = embedded_model()
        if folder is None:
            raise InputError(f"--model_name_or_path embedded: the model is not installed; run `{INSTALL_EMBEDDED}` once")
        return str(folder)
    path = Path(model_name_or_path)
    looks_like_path = model_name_or_path.startswith((".", "/", "~")) or model_name_or_path.count("/") > 1
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise InputError(f"--model_name_or_path {path}: the folder has no config.json, so it is not a saved model")
        if not list(path.glob("*.safetensors")):
            raise InputError(
                f"--model_name_or_path {path}: the folder has no *.safetensors; weights are loaded from safetensors only "
                "(pickled weights can run code): save it again with save_pretrained"
            )
    elif looks_like_path:
        raise InputError(f"--model_name_or_path {path}: no such folder")
    return model_name_or_path


def load_config(text: TextArguments, data: TextData) -> PretrainedConfig:
    """Load the config with the task's labels in it: names, number, regression or classification.

    Raises
    ------
    InputError
        If it can't be had, or asks for remote code that nobody allowed.
    """
    name = resolve_model_path(str(text.model_name_or_path))
    names = data.label_names or ("score",)
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=text.trust_remote_code)
    except (OSError, ValueError) as error:
        message = " ".join(str(error).split())
        if "trust_remote_code" in message:
            message = "the model brings its own code; read it, then say --trust_remote_code if you trust it"
        raise InputError(f"--model_name_or_path {text.model_name_or_path}: {message[:300]}") from None
    has_head = any("SequenceClassification" in architecture for architecture in config.architectures or ())
    if has_head and config.num_labels != len(names) and not text.ignore_mismatched_sizes:
        raise InputError(
            f"--model_name_or_path {text.model_name_or_path}: its classification head has {config.num_labels} outputs and the "
            f"task needs {len(names)}; say --ignore_mismatched_sizes to replace it"
        )
    config.num_labels = len(names)
    config.id2label = dict(enumerate(names))
    config.label2id = {label: index for index, label in enumerate(names)}
    if text.dropout is not None:
        _set_dropout(config, text.dropout)
    config.problem_type = "single_label_classification" if data.label_names else "regression"
    return config


def _set_dropout(config: PretrainedConfig, probability: float) -> None:
    """Set each dropout probability that the family's config has, under whatever name it has it."""
    names = [name for name in config.to_dict() if "dropout" in name or name.endswith("pdrop")]
    numbers = [name for name in names if isinstance(getattr(config, name), float | int)]
    if not numbers:
        raise InputError(f"--dropout: the config of {config.model_type} has no dropout probability to set")
    for name in numbers:
        setattr(config, name, probability)


def position_limit(config: PretrainedConfig) -> int | None:
    """Return the most tokens that the model has positions for; None if its positions are relative and unbounded."""
    positions = getattr(config, "max_position_embeddings", None)
    if not positions or positions < 0:  # -1 in some families means "no limit"
        return None
    if config.model_type in ("deberta", "deberta-v2") and not getattr(config, "position_biased_input", True):
        return None
    if config.model_type in OFFSET_FAMILIES:
        return positions - (config.pad_token_id or 0) - 1
    return positions


def resolve_max_length(text: TextArguments, config: PretrainedConfig) -> int:
    """Return the length to cut at.

    Raises
    ------
    InputError
        If more is asked for than the model has positions.
    """
    limit = position_limit(config)
    if text.max_length is None:
        return DEFAULT_MAX_LENGTH if limit is None else min(DEFAULT_MAX_LENGTH, limit)
    if limit is not None and text.max_length > limit:
        raise InputError(
            f"--max_length {text.max_length}: {text.model_name_or_path} has positions for {limit} tokens; say at most that"
        )
    return text.max_length


def load_tokenizer(text: TextArguments, config: PretrainedConfig) -> Any:
    """Load the model's tokenizer; a model without a padding token (GPT-2) pads with its end token, and its config says so."""
    name = resolve_model_path(str(text.model_name_or_path))
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, config=config, trust_remote_code=text.trust_remote_code)
    except (OSError, ValueError) as error:
        raise InputError(f"--model_name_or_path {name}: no tokenizer: {' '.join(str(error).split())[:300]}") from None
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):  # transformers 5 makes an empty one where the files are missing
        raise InputError(f"--model_name_or_path {name}: the folder has no tokenizer; save the model's own beside it")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = tokenizer.pad_token_id
    # padding in the collator is meant; the advice to pad while tokenizing is for those who pad everything alike
    tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True
    return tokenizer


def cache_directory() -> Path:
    """Return where tokenized data is kept: `$AMP_RECIPES_CACHE`, or `~/.cache/amp-recipes`."""
    return Path(os.environ.get("AMP_RECIPES_CACHE") or Path.home() / ".cache" / "amp-recipes")


def require_room_for_text(max_length: int, tokenizer: Any, *, pair: bool) -> None:
    """Refuse a length that the special tokens alone fill: below it tokenizers do not cut at all.

    Raises
    ------
    InputError
        Naming the smallest length that leaves a token for each sentence.
    """
    least = tokenizer.num_special_tokens_to_add(pair=pair) + (2 if pair else 1)
    if max_length < least:
        raise InputError(f"--max_length {max_length}: leaves no room for text beside the special tokens; say at least {least}")


def tokenize(split: TextSplit, tokenizer: Any, max_length: int, *, description: str) -> datasets.Dataset:
    """Tokenize a split, or read the result of an earlier run with the same texts, tokenizer, length and versions.

    Returns
    -------
    datasets.Dataset
        input_ids and what else the model takes, lists of int without padding, and `labels`.
    """
    columns: dict[str, Any] = {"text": split.texts, "labels": split.labels}
    if split.text_pairs is not None:
        columns["text_pair"] = split.text_pairs
    key = hashlib.sha256(
        json.dumps(
            [
                split.fingerprint,
                _tokenizer_identity(tokenizer),
                max_length,
                transformers.__version__,
                datasets.__version__,
            ]
        ).encode()
    ).hexdigest()
    folder = cache_directory() / "tokenized"
    folder.mkdir(parents=True, exist_ok=True)

    def encode(batch: dict[str, list[Any]]) -> Any:
        return tokenizer(batch["text"], batch.get("text_pair"), truncation=True, max_length=max_length)

    return datasets.Dataset.from_dict(columns).map(
        encode,
        batched=True,
        remove_columns=[name for name in columns if name != "labels"],
        cache_file_name=str(folder / f"{key}.arrow"),
        new_fingerprint=key[:32],
        desc=description,
    )


def _tokenizer_identity(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    content = json.loads(backend.to_str()) if backend is not None else sorted(tokenizer.get_vocab().items())
    if isinstance(content, dict):  # these two are what the last call asked for, not what the tokenizer is
        content = {key: value for key, value in content.items() if key not in ("truncation", "padding")}
    parts = [content, tokenizer.truncation_side, tokenizer.model_input_names, type(tokenizer).__name__]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def load_classifier(text: TextArguments, levers: Levers, config: PretrainedConfig) -> PreTrainedModel:
    """Load the pretrained weights, from safetensors, in the dtype asked for, with a head of the task's size.

    `dtype` is always given: transformers 5 otherwise takes the checkpoint's, and fp16 weights can't be trained under a scaler.

    Raises
    ------
    InputError
        If weights are missing or do not fit.
    """
    options: dict[str, Any] = {}
    if levers.attn_implementation is not None:
        options["attn_implementation"] = levers.attn_implementation
    try:
        return AutoModelForSequenceClassification.from_pretrained(
            resolve_model_path(str(text.model_name_or_path)),
            config=config,
            dtype=getattr(torch, levers.dtype),
            use_safetensors=True,
            trust_remote_code=text.trust_remote_code,
            ignore_mismatched_sizes=text.ignore_mismatched_sizes,
            **options,
        )
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        raise InputError(f"--model_name_or_path {text.model_name_or_path}: {' '.join(str(error).split())[:300]}") from None
