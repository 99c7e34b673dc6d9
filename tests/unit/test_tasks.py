"""Each task gives the right columns, labels and splits, and what can be wrong with data is said in one line."""

from __future__ import annotations

import dataclasses
import json

import pytest

from amp_recipes import tasks
from amp_recipes.errors import InputError
from amp_recipes.levers import TextArguments
from amp_recipes.tasks import GLUE, TextSplit, check_task_name, embedded_is_installed, load_reviews, load_text_data

# name: (first sentence, second sentence, label names as on the data set card of nyu-mll/glue, held-out splits)
CARD = {
    "cola": ("sentence", None, ["unacceptable", "acceptable"], ["validation"]),
    "mnli": (
        "premise",
        "hypothesis",
        ["entailment", "neutral", "contradiction"],
        ["validation_matched", "validation_mismatched"],
    ),
    "mrpc": ("sentence1", "sentence2", ["not_equivalent", "equivalent"], ["validation"]),
    "qnli": ("question", "sentence", ["entailment", "not_entailment"], ["validation"]),
    "qqp": ("question1", "question2", ["not_duplicate", "duplicate"], ["validation"]),
    "rte": ("sentence1", "sentence2", ["entailment", "not_entailment"], ["validation"]),
    "sst2": ("sentence", None, ["negative", "positive"], ["validation"]),
    "stsb": ("sentence1", "sentence2", [], ["validation"]),
    "wnli": ("sentence1", "sentence2", ["not_entailment", "entailment"], ["validation"]),
}


def refused(function, *arguments) -> str:
    with pytest.raises(InputError) as error:
        function(*arguments)
    (problem,) = error.value.problems
    assert "\n" not in problem
    return problem


def fake_hub(task: str, *, rows: int = 40):
    """`datasets.load_dataset` for one task: its columns, and as on the Hub an index and a test split without labels."""
    first, second, names, held_out = CARD[task]

    def split(name: str, count: int) -> dict[str, list]:
        labels = [row % len(names) if names else row % 6 for row in range(count)]  # STS-B has whole scores, too
        columns = {first: [f"{name} {row}" for row in range(count)], "idx": list(range(count))}
        if second:
            columns[second] = [f"{name} {row} pair" for row in range(count)]
        return columns | {"label": [-1] * count if name == "test" else labels}

    def load_dataset(path, name):
        assert (path, name) == ("nyu-mll/glue", task)
        return {"train": split("train", rows), **{name: split(name, 10) for name in held_out}, "test": split("test", 10)}

    return load_dataset


# GLUE


def test_the_table_holds_the_nine_tasks():
    assert GLUE.keys() == CARD.keys()


@pytest.mark.parametrize("task", CARD)
def test_a_glue_task_is_read_by_its_row(task):
    _, second, names, held_out = CARD[task]
    data = load_text_data(TextArguments(task_name=task), 0, fake_hub(task))
    assert (data.task_name, data.metric, list(data.label_names)) == (task, task, names)
    assert list(data.evaluations) == held_out
    assert (len(data.train), [len(split) for split in data.evaluations.values()]) == (40, [10] * len(held_out))
    for name, split in {"train": data.train, **data.evaluations}.items():
        assert split.texts[3] == f"{name} 3"
        assert split.text_pairs is None if second is None else split.text_pairs[3] == f"{name} 3 pair"
        assert {type(label) for label in split.labels} == {int if names else float}
    assert "nyu-mll/glue" in data.origin


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionError("Couldn't reach\n the Hub"), "Couldn't reach the Hub"),
        (ValueError("Couldn't find cache"), "Couldn't find cache"),
        (FileNotFoundError(), "FileNotFoundError"),
        (OSError("x" * 5000), "xxx"),
    ],
)
def test_neither_hub_nor_cache(error, said):
    def load_dataset(path, name):
        raise error

    problem = refused(load_text_data, TextArguments(task_name="mrpc"), 0, load_dataset)
    for part in ("--task_name mrpc", said, "--train_file", "--task_name reviews"):
        assert part in problem
    assert len(problem) < 500


def test_another_error_of_the_library_is_not_taken_for_a_missing_hub():
    def load_dataset(path, name):
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        load_text_data(TextArguments(task_name="mrpc"), 0, load_dataset)


@pytest.mark.parametrize(("name", "near"), [("mrcp", "'mrpc'"), ("MNLI", "'mnli'"), ("review", "'reviews'"), ("xyzzy", "wnli")])
def test_an_unknown_task_is_refused_with_the_near_one_and_all_there_are(name, near):
    problem = refused(load_text_data, TextArguments(task_name=name), 0)
    assert problem == refused(check_task_name, name)
    for part in (f"--task_name {name}", near, *CARD, "reviews"):
        assert part in problem


@pytest.mark.parametrize("name", [None, "reviews", *CARD])
def test_known_tasks_and_none_pass(name):
    check_task_name(name)


# Subsamples and fingerprints


def sampled(seed, count=12):
    arguments = TextArguments(task_name="qnli", max_train_samples=count, max_eval_samples=4)
    return load_text_data(arguments, seed, fake_hub("qnli"))


def test_a_subsample_follows_from_the_seed():
    first, again, other = sampled(1), sampled(1), sampled(2)
    assert first == again
    assert first.train.texts != other.train.texts
    assert first.evaluations["validation"].texts != other.evaluations["validation"].texts
    assert (len(first.train), len(first.evaluations["validation"])) == (12, 4)


def test_a_subsample_holds_distinct_rows_whole_and_in_their_order():
    train = sampled(3).train
    rows = [int(text.removeprefix("train ")) for text in train.texts]
    assert rows == sorted(set(rows))
    assert rows != list(range(12))  # drawn, not cut off
    assert train.text_pairs == [f"train {row} pair" for row in rows]
    assert train.labels == [row % 2 for row in rows]


def test_more_than_there_is_takes_all():
    assert sampled(1, count=10_000).train == load_text_data(TextArguments(task_name="qnli"), 1, fake_hub("qnli")).train


SPLIT = TextSplit(["a", "b"], ["c", "d"], [0, 1])


@pytest.mark.parametrize(
    "changed",
    [
        TextSplit(["b", "a"], ["c", "d"], [0, 1]),
        TextSplit(["a", "b"], ["d", "c"], [0, 1]),
        TextSplit(["a", "b"], ["c", "d"], [1, 0]),
        TextSplit(["a", "b"], ["c", "d"], [0.0, 1.0]),
        TextSplit(["a", "b"], None, [0, 1]),
        TextSplit(["a", "b", "c"], ["d"], [0, 1]),  # the same texts, dealt differently
        TextSplit(["a\0b"], ["c", "d"], [0, 1]),
        SPLIT.take([1, 0]),
        SPLIT.take([0]),
    ],
)
def test_a_fingerprint_changes_with_content_and_order(changed):
    assert SPLIT.fingerprint != changed.fingerprint


def test_a_fingerprint_stays_with_the_content():
    assert SPLIT.fingerprint == SPLIT.take([0, 1]).fingerprint == TextSplit(["a", "b"], ["c", "d"], [0, 1]).fingerprint
    assert len(TextSplit(["ä\ud800"], None, [0]).fingerprint) == 64  # half a surrogate pair, as broken JSON gives


def test_a_description_is_for_the_record():
    found = json.loads(json.dumps(sampled(1).describe()))
    assert found["task_name"] == found["metric"] == "qnli"
    assert found["label_names"] == ["entailment", "not_entailment"]
    assert {name: split["examples"] for name, split in found["splits"].items()} == {"train": 12, "validation": 4}
    assert found["splits"]["train"]["sha256"] == sampled(1).train.fingerprint


def test_a_subsample_of_one_class_is_refused():
    problem = refused(load_text_data, TextArguments(task_name="sst2", max_train_samples=1), 0, fake_hub("sst2"))
    assert "one class" in problem


def test_a_regression_needs_no_classes():
    data = load_text_data(TextArguments(task_name="stsb", max_train_samples=1), 0, fake_hub("stsb"))
    assert len(data.train) == 1


# Files (how they are read is tested with local_files)


@pytest.fixture
def files(tmp_path):
    """Write rows of (label, text, second text if any) as two CSV files; returns the arguments that name them."""

    def write(train, validation, **values):
        for name, rows in (("train", train), ("dev", validation)):
            header = ["label", "sentence"] if len(rows[0]) == 2 else ["label", "sentence1", "sentence2"]
            (tmp_path / f"{name}.csv").write_text("\n".join(",".join(map(str, row)) for row in [header, *rows]) + "\n")
        names = {"train_file": str(tmp_path / "train.csv"), "validation_file": str(tmp_path / "dev.csv")}
        return TextArguments(**names, **values)

    return write


SINGLES = [("good", "a b"), ("bad", "c d"), ("good", "e f")]
PAIRS = [(1, "a b", "c"), (0, "d e", "f"), (1, "g h", "i")]
SCORES = [(1.5, "a b", "c"), (0, "d e", "f"), (4, "g h", "i")]


def test_files_become_classes_by_name(files):
    data = load_text_data(files(SINGLES, SINGLES[:2]), 0)
    assert (data.task_name, data.metric, data.label_names) == ("files", "classification", ("bad", "good"))
    assert data.train == TextSplit(["a b", "c d", "e f"], None, [1, 0, 1])
    assert data.evaluations == {"validation": data.train.take([0, 1])}
    assert "train.csv" in data.origin


def test_files_with_fractions_become_a_regression(files):
    data = load_text_data(files(SCORES, SCORES), 0)
    assert (data.metric, data.label_names, data.train.labels) == ("regression", (), [1.5, 0.0, 4.0])
    assert data.train.text_pairs == ["c", "f", "i"]


@pytest.mark.parametrize(
    ("rows", "task", "metric", "names", "labels"),
    [
        (PAIRS, "mrpc", "mrpc", ("not_equivalent", "equivalent"), [1, 0, 1]),
        ([("entailment", "a b", "c"), ("not_entailment", "d", "e")], "rte", "rte", ("entailment", "not_entailment"), [0, 1]),
        (PAIRS, "stsb", "stsb", (), [1.0, 0.0, 1.0]),  # whole scores, and a regression all the same
    ],
)
def test_a_task_name_says_what_files_hold(files, rows, task, metric, names, labels):
    data = load_text_data(files(rows, rows, task_name=task), 0)
    assert (data.task_name, data.metric, data.label_names, data.train.labels) == (task, metric, names, labels)


def test_a_metric_follows_the_problem_type_that_was_said(files):
    data = load_text_data(files(PAIRS, PAIRS, task_name="stsb", problem_type="single_label_classification"), 0)
    assert (data.metric, data.label_names) == ("classification", ("0", "1"))
    data = load_text_data(files(PAIRS, PAIRS, task_name="mrpc", problem_type="regression"), 0)
    assert (data.metric, data.label_names) == ("regression", ())


def test_one_sentence_here_and_two_there_is_refused(files):
    problem = refused(load_text_data, files([(1, "a b"), (0, "c d")], PAIRS), 0)
    for part in ("train.csv", "one sentence", "dev.csv", "--text_column"):
        assert part in problem


def test_files_of_one_class_are_refused(files):
    assert "one class" in refused(load_text_data, files(SINGLES[:1], SINGLES[:1]), 0)


def test_the_embedded_data_and_files_exclude_each_other(files):
    assert "--train_file" in refused(load_text_data, files(SINGLES, SINGLES, task_name="reviews"), 0)


def test_files_are_sampled_too(files):
    arguments = files(SINGLES * 20, SINGLES, max_train_samples=30, max_eval_samples=2)
    data = load_text_data(arguments, 0)
    assert (len(data.train), len(data.evaluations["validation"])) == (30, 2)
    assert data == load_text_data(dataclasses.replace(arguments), 0)


# Embedded reviews


@pytest.fixture(scope="module")
def reviews():
    if not embedded_is_installed():
        pytest.skip("the embedded model and data are not installed")
    return load_reviews()


@pytest.fixture(scope="module")
def table(reviews):
    """The reviews as they lie in their package."""
    import pandas

    table = pandas.read_csv(tasks._embedded_reviews(), keep_default_na=False)
    return table[table["category"].isin(["rotten", "fresh"])]


def test_reviews_have_the_sizes_of_the_docs_and_both_classes(reviews):
    validation = reviews.evaluations["validation"]
    assert (len(reviews.train), len(validation)) == (11_357, 1_395)
    assert (reviews.metric, reviews.label_names, reviews.train.text_pairs) == ("sst2", ("rotten", "fresh"), None)
    for split in (reviews.train, validation):
        assert set(split.labels) == {0, 1}
        assert 0.5 < sum(split.labels) / len(split) < 0.65
        assert all(text.strip() for text in split.texts)
        assert len(set(split.texts)) == len(split)


def test_every_review_is_there_with_its_label(reviews, table):
    labels = {text: int(label == "fresh") for text, label in zip(table["text"][::-1], table["category"][::-1], strict=True)}
    held_out = reviews.evaluations["validation"]
    found = dict(zip(reviews.train.texts + held_out.texts, reviews.train.labels + held_out.labels, strict=True))
    assert found == {text: label for text, label in labels.items() if text.strip()}


def test_no_movie_and_no_text_is_on_both_sides(reviews, table):
    movie_of = dict(zip(table["text"][::-1], table["movie_name"][::-1], strict=True))
    train = reviews.train.texts
    held_out = reviews.evaluations["validation"].texts
    movies = [{movie_of[text] for text in texts} for texts in (train, held_out)]
    assert [len(found) for found in movies] == [453, 54]  # of 508; one has only a snippet that another movie has, too
    assert movies[0] & movies[1] == set()
    plain = [
        {" ".join("".join(c if c.isalnum() else " " for c in text.lower()).split()) for text in t} for t in (train, held_out)
    ]
    assert plain[0] & plain[1] == set()


def test_reviews_are_the_same_on_every_machine(reviews):
    assert reviews.train.fingerprint == "f61a1a4674a2362209f085c745a6b31d6eb95e5baf892cd888d8befc90c4fed6"


def test_missing_reviews_name_the_command_that_mends_it(monkeypatch):
    monkeypatch.setattr(tasks, "_package_file", lambda *parts: None)
    assert not embedded_is_installed()
    assert "make install" in refused(load_text_data, TextArguments(task_name="reviews"), 0)


def test_a_package_that_is_not_there_has_no_files():
    assert tasks._package_file("no_such_package_anywhere", "data") is None
    assert tasks._package_file("amp_recipes", "no_such_file") is None
    assert tasks._package_file("amp_recipes", "tasks.py").is_file()
