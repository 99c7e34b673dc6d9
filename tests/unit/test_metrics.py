from __future__ import annotations

import math
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import evaluate
import huggingface_hub.constants
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from amp_recipes.errors import InputError
from amp_recipes.metrics import RESULT_KEYS, GlueMetric, glue, primary_metric

quick = settings(max_examples=40, deadline=None, database=None)

labels = st.integers(0, 1)
label_pairs = st.lists(st.tuples(labels, labels), min_size=1, max_size=30)
class_pairs = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)
scores = st.floats(-5, 5, width=16)  # few enough values for ties to occur, coarse enough for no cancellation to bite
score_pairs = st.lists(st.tuples(scores, scores), min_size=2, max_size=30)


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate.config, "HF_METRICS_CACHE", str(folder / "metrics"))
        patch.setattr(evaluate.config, "HF_MODULES_CACHE", str(folder / "modules"))
        yield folder


def compute(config_name: str, predictions: Any, references: Any, **arguments: Any) -> dict[str, float]:
    return GlueMetric(config_name).compute(predictions=predictions, references=references, **arguments)


def unzip(pairs: list[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


# Definitions written out from scratch


def f1_by_hand(predictions: list[int], references: list[int], label: int) -> float:
    p, r = np.array(predictions) == label, np.array(references) == label
    both, either = int((p & r).sum()), int(p.sum() + r.sum())
    return 2 * both / either if either else 0.0


def matthews_by_hand(predictions: list[int], references: list[int]) -> float:
    p, r = np.array(predictions), np.array(references)
    tp, tn = int((p & r).sum()), int(((1 - p) & (1 - r)).sum())
    fp, fn = int((p & (1 - r)).sum()), int(((1 - p) & r).sum())
    square = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return (tp * tn - fp * fn) / math.sqrt(square) if square else 0.0


def pearson_by_hand(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))


def ranks_by_hand(x: np.ndarray) -> np.ndarray:
    """Rank from 1, equal values sharing the mean of their ranks."""
    return (x[:, None] > x).sum(1) + ((x[:, None] == x).sum(1) + 1) / 2


# Worked values


def test_matthews_of_the_scikit_learn_example() -> None:
    # Documented there as -0.33 for the labels +1 and -1, written here as 1 and 0; by hand:
    # TP 2, TN 0, FP 1, FN 1: (2*0 - 1*1) / sqrt(3 * 3 * 1 * 1) = -1/3
    assert compute("cola", [1, 0, 1, 1], [1, 1, 1, 0]) == {"matthews_correlation": pytest.approx(-1 / 3)}


def test_matthews_of_a_confusion_matrix() -> None:
    # TP 6, FN 2, FP 1, TN 3: (6*3 - 1*2) / sqrt(7 * 8 * 4 * 5) = 16 / sqrt(1120)
    predictions = [1] * 6 + [0] * 2 + [1] * 1 + [0] * 3
    references = [1] * 8 + [0] * 4
    assert compute("cola", predictions, references)["matthews_correlation"] == pytest.approx(16 / math.sqrt(1120))


@pytest.mark.parametrize("task", ["mrpc", "qqp"])
def test_accuracy_and_f1_of_a_confusion_matrix(task: str) -> None:
    # TP 6, FN 2, FP 1, TN 3: accuracy 9/12; precision 6/7, recall 6/8, F1 2*6 / (2*6 + 1 + 2) = 12/15
    predictions = [1] * 6 + [0] * 2 + [1] * 1 + [0] * 3
    references = [1] * 8 + [0] * 4
    expected = {"accuracy": 0.75, "f1": pytest.approx(0.8)}
    assert compute(task, predictions, references) == expected
    assert compute("classification", predictions, references, num_labels=2) == expected


def test_macro_f1_of_the_scikit_learn_example() -> None:
    # F1 of label 0: 2*2 / (3 + 2), of 1 and 2: 0; the mean is 4/15, documented there as 0.26...
    result = compute("classification", [0, 2, 1, 0, 0, 1], [0, 1, 2, 0, 1, 2], num_labels=3)
    assert result == {"accuracy": pytest.approx(2 / 6), "f1_macro": pytest.approx(4 / 15)}


def test_correlations_of_the_scipy_examples() -> None:
    # The documented examples of pearsonr and spearmanr
    assert compute("stsb", [1, 2, 3, 4, 5, 6, 7], [10, 9, 2.5, 6, 4, 3, 2])["pearson"] == pytest.approx(-0.8285038835884)
    assert compute("stsb", [1, 2, 3, 4, 5], [5, 6, 7, 8, 7])["spearmanr"] == pytest.approx(0.82078268166812329)


def test_regression_by_hand() -> None:
    # Deviations from the means 2 and 3: (-1, 0, 1) and (-2, -1, 3): covariance sum 5, squares 2 and 14;
    # the order is the same; squared errors 0, 0, 9
    result = compute("regression", [1.0, 2.0, 3.0], [1.0, 2.0, 6.0])
    assert result == {"pearson": pytest.approx(5 / math.sqrt(28)), "spearmanr": pytest.approx(1.0), "mse": 3.0}


@pytest.mark.parametrize("task", ["sst2", "mnli", "mnli_matched", "mnli_mismatched", "qnli", "rte", "wnli", "hans"])
def test_accuracy_tasks(task: str) -> None:
    assert compute(task, [0, 1, 1, 0], [0, 1, 0, 0]) == {"accuracy": 0.75}


# Against the formulas


@quick
@given(label_pairs)
def test_binary_scores_match_their_formulas(pairs: list[tuple[int, int]]) -> None:
    p, r = unzip(pairs)
    accuracy = sum(a == b for a, b in pairs) / len(pairs)
    assert compute("mrpc", p, r) == pytest.approx({"accuracy": accuracy, "f1": f1_by_hand(p, r, 1)})
    assert compute("cola", p, r) == pytest.approx({"matthews_correlation": matthews_by_hand(p, r)})


@quick
@given(class_pairs)
def test_macro_f1_matches_its_formula(pairs: list[tuple[int, int]]) -> None:
    p, r = unzip(pairs)
    expected = np.mean([f1_by_hand(p, r, label) for label in sorted({*p, *r})])
    assert compute("classification", p, r, num_labels=4)["f1_macro"] == pytest.approx(expected)


@quick
@given(score_pairs)
def test_regression_matches_its_formulas(pairs: list[tuple[float, float]]) -> None:
    p, r = np.array(pairs).T
    assume(p.std() > 1e-3 and r.std() > 1e-3)
    expected = {
        "pearson": pearson_by_hand(p, r),
        "spearmanr": pearson_by_hand(ranks_by_hand(p), ranks_by_hand(r)),
        "mse": sum((a - b) ** 2 for a, b in pairs) / len(pairs),
    }
    assert compute("regression", p, r) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@quick
@given(score_pairs, st.integers(1, 7))
def test_batches_give_what_one_call_gives(pairs: list[tuple[float, float]], size: int) -> None:
    p, r = unzip(pairs)
    metric = GlueMetric("regression")
    for start in range(0, len(p), size):
        metric.add_batch(predictions=p[start : start + size], references=r[start : start + size])
    assert metric.compute() == pytest.approx(compute("regression", p, r), rel=0, abs=0, nan_ok=True)


# Degenerate inputs; warnings are errors in these tests


@pytest.mark.parametrize(("p", "r"), [([1, 1, 1], [0, 1, 1]), ([0, 1], [1, 1]), ([1, 1], [1, 1]), ([0], [1])])
def test_matthews_with_a_constant_side_is_zero(p: list[int], r: list[int]) -> None:
    assert compute("cola", p, r) == {"matthews_correlation": 0.0}


@pytest.mark.parametrize("r", [[0, 0, 0], [0, 1, 1]])
def test_f1_without_positive_predictions_is_zero(r: list[int]) -> None:
    assert compute("mrpc", [0, 0, 0], r)["f1"] == 0.0
    assert compute("classification", [0, 0, 0], r, num_labels=2)["f1"] == 0.0


@pytest.mark.parametrize(("p", "r"), [([2.0] * 3, [1.0, 2, 3]), ([1.0, 2, 3], [2.0] * 3), ([0.1] * 3, [0.1] * 3), ([1], [1])])
def test_correlation_without_spread_is_nan(p: list[float], r: list[float]) -> None:
    result = compute("regression", p, r)
    assert math.isnan(result["pearson"])
    assert math.isnan(result["spearmanr"])
    assert result["mse"] == pytest.approx(np.mean((np.array(p) - np.array(r)) ** 2))


def test_nearly_constant_predictions_do_not_warn() -> None:
    assert compute("stsb", [1.0, 1.0, 1.0 + 1e-15], [1.0, 2.0, 3.0]).keys() == {"pearson", "spearmanr"}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_diverged_prediction_makes_every_result_nan(bad: float) -> None:
    result = compute("regression", [1.0, bad, 3.0], [1.0, 2.0, 3.0])
    assert list(result) == ["pearson", "spearmanr", "mse"]
    assert all(math.isnan(value) for value in result.values())


def test_an_overflowing_squared_error_is_infinite() -> None:
    assert compute("regression", [1e300, 0.0], [0.0, 1.0])["mse"] == math.inf


# What is refused


@pytest.mark.parametrize("config_name", RESULT_KEYS)
def test_nothing_to_score(config_name: str) -> None:
    with pytest.raises(InputError, match=f"nothing to score for {config_name}"):
        GlueMetric(config_name).compute()
    with pytest.raises(InputError, match=f"nothing to score for {config_name}"):
        compute(config_name, [], [])


@pytest.mark.parametrize(
    ("config_name", "p", "r", "message"),
    [
        ("sst2", [0, 1, 1], [0, 1], "3 predictions for 2 references"),
        ("sst2", [0, 1], None, "references are missing"),
        ("sst2", None, [0, 1], "predictions are missing"),
        ("sst2", [0.7, 1.0], [0, 1], "predictions must be whole numbers"),
        ("sst2", ["yes", "no"], [0, 1], "predictions must be whole numbers"),
        ("sst2", [0, None], [0, 1], "predictions must be whole numbers"),
        ("stsb", ["a", "b"], [0, 1], "predictions must be numbers"),
        ("sst2", [0, 1], [-1, -1], "references hold the label -1: the GLUE test sets"),
        ("sst2", [[0.1, 0.9]], [1], r"predictions have shape \(1, 2\).*argmax"),
        ("stsb", np.float64(1.0), [1.0], r"predictions have shape \(\).*keep the batch dimension"),
        ("sst2", [[0], [0, 1]], [0, 1], "predictions are not one number per example"),
    ],
)
def test_bad_columns(config_name: str, p: Any, r: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        compute(config_name, p, r)


def test_a_refused_batch_leaves_the_others_alone() -> None:
    metric = GlueMetric("sst2")
    metric.add_batch(predictions=[0, 1], references=[0, 1])
    with pytest.raises(InputError):
        metric.add_batch(predictions=[0], references=[1, 1])
    with pytest.raises(InputError):
        metric.add(prediction=0.7, reference=1)
    metric.add_batch(predictions=[], references=[])
    metric.add(prediction=0, reference=1)
    assert metric.compute() == {"accuracy": pytest.approx(2 / 3)}
    assert metric.compute(predictions=[1], references=[1]) == {"accuracy": 1.0}  # the first three are forgotten


def test_num_labels() -> None:
    with pytest.raises(InputError, match="needs num_labels"):
        compute("classification", [0, 1], [0, 1])
    for num_labels in (1, 2):
        with pytest.raises(InputError, match=f"num_labels is {num_labels}, must be 2 or more and above the largest label, 2"):
            compute("classification", [0, 2], [0, 1], num_labels=num_labels)
    with pytest.raises(InputError, match="num_labels"):
        compute("classification", [0, 0], [0, 0], num_labels=1)
    # two of three labels occur: the name of the result follows the model, not the file
    assert compute("classification", [0, 1], [0, 1], num_labels=3) == {"accuracy": 1.0, "f1_macro": 1.0}
    assert compute("sst2", [0, 1], [0, 1], num_labels=2) == {"accuracy": 1.0}
    assert compute("stsb", [0, 1], [0, 1], num_labels=1)["pearson"] == pytest.approx(1.0)


def test_unknown_configurations() -> None:
    for make in (GlueMetric, primary_metric):
        with pytest.raises(InputError, match=r"no metric configuration 'sst-2': did you mean 'sst2'"):
            make("sst-2")
        with pytest.raises(InputError, match=r"'squad': choose one of cola, sst2, .*regression"):
            make("squad")
    with pytest.raises(InputError, match="choose one of cola"):
        GlueMetric()


def test_several_processes_are_refused() -> None:
    with pytest.raises(InputError, match="num_process is 2, must be 1"):
        GlueMetric("sst2", num_process=2, process_id=0)


# Names and types of results


def test_primary_metrics() -> None:
    others = {"cola": "matthews_correlation", "stsb": "pearson", "regression": "pearson"}
    assert {name: primary_metric(name) for name in RESULT_KEYS} == {**dict.fromkeys(RESULT_KEYS, "accuracy"), **others}


@pytest.mark.parametrize("config_name", RESULT_KEYS)
def test_results_are_python_floats_and_hold_the_primary_one(config_name: str) -> None:
    result = compute(config_name, [0, 1, 1], [0, 1, 0], num_labels=2)
    assert all(type(value) is float for value in result.values())
    assert next(iter(result)) == primary_metric(config_name)
    assert tuple(result)[: len(RESULT_KEYS[config_name])] == RESULT_KEYS[config_name]


@pytest.mark.parametrize("config_name", ["mrpc", "stsb"])
@pytest.mark.parametrize(
    "convert",
    [np.asarray, np.float64, torch.tensor, lambda v: torch.tensor(v, dtype=torch.bfloat16), tuple],
    ids=["int64", "float64", "tensor", "bfloat16", "tuple"],
)
def test_arrays_and_tensors(config_name: str, convert: Any) -> None:
    values, references = convert([0, 1, 1, 0]), [0, 1, 0, 0]
    if config_name == "mrpc" and "float" in str(getattr(values, "dtype", "")):
        with pytest.raises(InputError, match="whole numbers"):
            compute(config_name, values, references)
    else:
        assert compute(config_name, values, references) == compute(config_name, [0, 1, 1, 0], references)


def test_float64_is_kept() -> None:
    # in float32 the two sides would be equal
    assert compute("regression", [1.0 + 1e-9, 2.0], [1.0, 2.0])["mse"] == pytest.approx(5e-19, rel=1e-6)


# Instances beside each other, and `evaluate.load`


def test_instances_do_not_collide_nor_leave_files(cache: Path, tmp_path: Path) -> None:
    metrics = [GlueMetric("sst2", experiment_id="same", cache_dir=str(tmp_path)) for _ in range(3)]
    for _ in range(4):
        for right, metric in enumerate(metrics):
            metric.add_batch(predictions=[0, 0], references=[int(right < 2), int(right < 1)])
    assert [metric.compute()["accuracy"] for metric in metrics] == [0.0, 0.5, 1.0]
    assert not [path for path in (*tmp_path.rglob("*"), *(cache / "metrics").rglob("*")) if path.is_file()]


def test_scoring_leaves_the_random_state_alone() -> None:
    before = np.random.get_state()[1].copy()
    compute("mrpc", [0, 1], [1, 1])
    assert (np.random.get_state()[1] == before).all()


def test_evaluate_load_without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError(f"the network was asked for: {arguments}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(sys, "path", [*sys.path])  # `evaluate` adds the folder it copies modules to
    modules = set(sys.modules)
    try:
        for keep_in_memory in (False, True):
            metric = evaluate.load(
                glue.__file__, "mrpc", experiment_id="one", cache_dir=str(tmp_path), keep_in_memory=keep_in_memory
            )
            assert type(metric).__name__ == "GlueMetric"
            assert metric.compute(predictions=[1, 0, 1], references=[1, 0, 0]) == compute("mrpc", [1, 0, 1], [1, 0, 0])
            metric.add(prediction=1, reference=1)
            assert not [path for path in tmp_path.rglob("*") if path.is_file()]
        with pytest.raises(InputError, match="did you mean 'mrpc'"):
            evaluate.load(glue.__file__, "mprc", cache_dir=str(tmp_path))
    finally:
        for name in set(sys.modules) - modules:
            if name.startswith("evaluate_modules"):
                del sys.modules[name]
