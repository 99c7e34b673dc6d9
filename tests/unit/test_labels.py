"""Labels as people write them become class ids or targets, or are refused in one line."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amp_recipes.errors import InputError
from amp_recipes.labels import encode_labels, faults, is_missing, some
from tests.conftest import problems_of

word = st.text(st.characters(categories=["L"]), min_size=1, max_size=8).filter(
    lambda w: w.lower() not in ("nan", "inf", "infinity")
)
whole_number = st.integers(-(10**15) + 1, 10**15 - 1)


@pytest.mark.parametrize(
    ("train", "names", "ids"),
    [
        (["pos", "neg", "pos"], ("neg", "pos"), [1, 0, 1]),
        ([10, 9, 2, 2], ("2", "9", "10"), [2, 1, 0, 0]),
        (["10", "9", "2"], ("2", "9", "10"), [2, 1, 0]),
        ([1.0, 0.0], ("0", "1"), [1, 0]),
        ([True, False], ("False", "True"), [1, 0]),
        (["True", "False"], ("False", "True"), [1, 0]),
        (["a ", "a", "b"], ("a", "b"), [0, 0, 1]),
        ([-1, 1, "1.0"], ("-1", "1"), [0, 1, 1]),
    ],
)
def test_classes(train, names, ids):
    assert encode_labels(train, {"dev": train[::-1]}) == (names, ids, {"dev": ids[::-1]})


@pytest.mark.parametrize(
    ("train", "ids"),
    [
        (["No", "YES", "maybe"], [2, 0, 1]),
        ([2, 0], [2, 0]),
        ([2.0, 0.0], [2, 0]),
        (["2", "0"], [2, 0]),
    ],
)
def test_known_names_set_the_order(train, ids):
    names = ("yes", "maybe", "no")
    assert encode_labels(train, {"dev": train}, known_names=names) == (names, ids, {"dev": ids})


@pytest.mark.parametrize("train", [[True, False], ["True", "False"], ["true", "FALSE"]])
def test_known_names_of_two_take_booleans(train):
    names = ("not_duplicate", "duplicate")
    assert encode_labels(train, {"dev": [0, 1]}, known_names=names) == (names, [1, 0], {"dev": [0, 1]})


def test_labels_outside_the_known_names_make_their_own():
    assert encode_labels([1, 2], {}, known_names=("no", "yes"))[:2] == (("1", "2"), [0, 1])
    assert encode_labels(["b", "a"], {}, known_names=("no", "yes"))[:2] == (("a", "b"), [1, 0])


def test_regression_if_any_number_is_not_whole():
    assert encode_labels([1, 2.5], {"dev": [3]}) == ((), [1.0, 2.5], {"dev": [3.0]})
    assert encode_labels([1, 2], {"dev": [1.5]}) == ((), [1.0, 2.0], {"dev": [1.5]})
    assert encode_labels(["1", "2.5"], {}) == ((), [1.0, 2.5], {})
    assert all(isinstance(target, float) for target in encode_labels([1, 2], {}, problem_type="regression")[1])


def test_the_problem_type_wins():
    assert encode_labels([1, 1], {"dev": [2]}, problem_type="regression") == ((), [1.0, 1.0], {"dev": [2.0]})
    assert encode_labels([0.5, 1], {}, problem_type="single_label_classification")[0] == ("0.5", "1")


def test_regression_with_words():
    problems = problems_of(encode_labels, ["good", 1], {"dev": ["bad"]}, problem_type="regression")
    assert ["'good'" in problems[0], "dev" in problems[1], "'bad'" in problems[1]] == [True] * 3
    (problem,) = problems_of(encode_labels, [0.5, 1], {"dev": ["N/A", 2]})
    assert "dev" in problem


@pytest.mark.parametrize("train", [["1", "0", "N/A"], [1, 0, "N/A"], ["3.5", "N/A"]])
def test_words_among_numbers(train):
    (problem,) = problems_of(encode_labels, train, {})
    assert "N/A" in problem
    assert "--problem_type single_label_classification" in problem
    names, _, _ = encode_labels(train, {}, problem_type="single_label_classification")
    assert set(names) == {str(label) for label in train}
    problems_of(encode_labels, train, {}, problem_type="single_label_classification", known_names=("no", "yes"))


@pytest.mark.parametrize("train", [["a", "a"], [1, 1.0, "1"], [0], []])
def test_one_class_only(train):
    (problem,) = problems_of(encode_labels, train, {})
    assert "one class only" in problem


def test_evaluation_labels_that_training_lacks():
    train = ["a", "b"]
    problems = problems_of(encode_labels, train, {"matched": ["a", "c", "d"], "fine": ["a"], "mismatched": [1]})
    assert ["matched" in problems[0], "'c', 'd'" in problems[0], "a, b" in problems[0]] == [True] * 3
    assert ["mismatched" in problems[1], "include 1" in problems[1]] == [True] * 2
    (problem,) = problems_of(encode_labels, [0, 1], {"dev": ["maybe"]}, known_names=("no", "yes", "maybe"))
    assert "'maybe'" in problem


@pytest.mark.parametrize("label", [None, math.nan, math.inf, [1], {"a": 1}, "", "1e999"])
def test_labels_that_cannot_be_encoded(label):
    (problem,) = problems_of(encode_labels, [0.5, 1], {"dev": [0.5, label]})
    assert "the dev labels, example 2" in problem


def test_another_problem_type():
    (problem,) = problems_of(encode_labels, [0, 1], {}, problem_type="multi_label_classification")
    assert "--problem_type multi_label_classification" in problem


@settings(max_examples=100, deadline=None)
@given(labels=st.lists(st.one_of(word, whole_number.map(str), st.floats(), st.booleans(), whole_number), max_size=6))
def test_labels_are_encoded_or_refused(labels):
    try:
        names, ids, evaluations = encode_labels(labels, {"dev": labels})
    except InputError:
        return
    assert evaluations["dev"] == ids
    assert all(isinstance(i, int) and 0 <= i < len(names) for i in ids) if names else all(isinstance(i, float) for i in ids)


def test_a_few_are_named_and_the_rest_counted():
    assert some([1, 2]) == "1, 2"
    assert some(range(9)) == "0, 1, 2, 3, 4, ... (9 in all)"


def test_missing_is_null_or_empty_and_not_a_word():
    assert [is_missing(value) for value in (None, "", math.nan, "NA", 0, False)] == [True, True, True, False, False, False]


def test_faults_name_their_places():
    (problem,) = faults("dev.csv column 'text'", ["fine", None, None], "text", [2, 3, 4], "line")
    assert problem.startswith("dev.csv column 'text', line 3, 4: no text")
