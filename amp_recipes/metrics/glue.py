"""The metrics of the GLUE tasks, and two for files of unknown origin, as an `evaluate` module that needs no network.

Definitions: Wang et al. 2019, "GLUE: A Multi-Task Benchmark and Analysis Platform", arXiv 1804.07461, section 3.
"""

# One file, not a folder: `evaluate.load` takes the path of a script ("amp_recipes/metrics/glue.py") as well as that of
# a folder holding a script of the folder's name, and the plain file is also an ordinary import. It copies the script
# elsewhere first, so imports here are absolute, and takes the first metric class it meets, so `evaluate.Metric` must
# not be imported by name.

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable
from typing import Any

import datasets
import evaluate
import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, mean_squared_error

from amp_recipes.errors import InputError

#: What each configuration returns, the one number to quote first. "classification" adds an F1, named by `num_labels`.
RESULT_KEYS: dict[str, tuple[str, ...]] = {
    "cola": ("matthews_correlation",),
    **dict.fromkeys(("sst2", "mnli", "mnli_matched", "mnli_mismatched", "qnli", "rte", "wnli", "hans"), ("accuracy",)),
    "mrpc": ("accuracy", "f1"),
    "qqp": ("accuracy", "f1"),
    "stsb": ("pearson", "spearmanr"),
    "classification": ("accuracy",),
    "regression": ("pearson", "spearmanr", "mse"),
}
_REGRESSION = ("stsb", "regression")


def primary_metric(config_name: str) -> str:
    """Name the one result to quote for a configuration; of each of them, higher is better.

    Raises
    ------
    InputError
        If there is no such configuration.
    """
    if config_name not in RESULT_KEYS:
        near = difflib.get_close_matches(config_name, RESULT_KEYS)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"choose one of {', '.join(RESULT_KEYS)}"
        raise InputError(f"there is no metric configuration {config_name!r}: {hint}")
    return RESULT_KEYS[config_name][0]


def _matthews(references: NDArray[np.int64], predictions: NDArray[np.int64]) -> float:
    # 0/0 when either side is constant; taken as 0, no better than chance. scikit-learn says the same, with a warning.
    if np.ptp(references) == 0 or np.ptp(predictions) == 0:
        return 0.0
    return matthews_corrcoef(references, predictions)


def _correlation(function: Callable[..., Any]) -> Callable[[NDArray[np.float64], NDArray[np.float64]], float]:
    def score(references: NDArray[np.float64], predictions: NDArray[np.float64]) -> float:
        if len(references) < 2:  # no spread to correlate; scipy's two functions differ in what they do then
            return float("nan")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stats.DegenerateDataWarning)  # a constant side: the nan says it
            return function(references, predictions).statistic

    return score


_SCORES: dict[str, Callable[[NDArray[Any], NDArray[Any]], float]] = {
    "accuracy": accuracy_score,
    # labels=[1]: the F1 of label 1 alone, also where a file holds more labels than two or lacks label 1
    "f1": lambda r, p: f1_score(r, p, labels=[1], average="macro", zero_division=0.0),
    "f1_macro": lambda r, p: f1_score(r, p, average="macro", zero_division=0.0),
    "matthews_correlation": _matthews,
    "pearson": _correlation(stats.pearsonr),
    "spearmanr": _correlation(stats.spearmanr),
    "mse": mean_squared_error,
}


def _column(values: Any, name: str, regression: bool) -> NDArray[Any]:
    """Check one column and return it as an array of int64 or float64, shape (examples,)."""
    if values is None:
        raise InputError(f"{name} are missing: give predictions and references together")
    try:
        # `tolist` reads a tensor on any device and of any dtype, bfloat16 too, which numpy can't
        array = np.asarray(values.tolist() if hasattr(values, "tolist") else values)
    except ValueError as error:
        raise InputError(f"{name} are not one number per example: {error}") from None
    if array.ndim != 1:
        advice = "keep the batch dimension" if array.ndim == 0 else "take the argmax, or the one column of a regression"
        raise InputError(f"{name} have shape {array.shape}, expected (examples,): {advice}")
    if array.size and array.dtype.kind not in ("biuf" if regression else "biu"):
        wanted = "numbers" if regression else "whole numbers, the indices of the labels"
        raise InputError(f"{name} must be {wanted}, not {array.dtype}")
    if not regression and (array < 0).any():
        raise InputError(
            f"{name} hold the label {array.min()}: the GLUE test sets have -1 for each label they hide; "
            "score a split that has its labels"
        )
    return array.astype(np.float64 if regression else np.int64)


class GlueMetric(evaluate.Metric):
    """Score predictions by the official metric of a GLUE task.

    Results are Python floats: those of `RESULT_KEYS`, where "f1" is that of label 1; for "classification" also "f1" if
    ``num_labels`` is 2, otherwise "f1_macro", the mean over the labels that occur on either side.

    Predictions and references are lists, arrays or tensors of shape (examples,), kept as float64 for "stsb" and
    "regression", otherwise as int64. "hans" has the references 0 and 1: merge the two labels of an MNLI model that are
    not entailment first.

    Where a definition is 0/0: the Matthews correlation of a constant side and the F1 of a label nobody predicted are
    0.0; a correlation with a constant side or of a single example is nan. If a number to score is nan or infinite, as
    after a diverged run, every result is nan.

    Parameters
    ----------
    config_name : str
        One of `RESULT_KEYS`.
    keep_in_memory : bool
        Taken because `evaluate.load` always passes it, but not followed: the examples stay in memory, so that runs on
        one machine share no cache file and no lock.
    num_process : int
        Must be 1: gather the predictions of all processes first, as `accelerate`'s ``gather_for_metrics`` does.
    **arguments : Any
        The rest of what `evaluate.Metric` takes, such as ``experiment_id`` and ``cache_dir``.

    Raises
    ------
    InputError
        If there is no such configuration, or `num_process` is not 1.
    """

    def __init__(self, config_name: str | None = None, keep_in_memory: bool = True, num_process: int = 1, **arguments: Any):
        if num_process != 1:
            raise InputError(f"num_process is {num_process}, must be 1: gather the predictions, then score them once")
        super().__init__(config_name=config_name, keep_in_memory=True, **arguments)

    def _info(self) -> evaluate.MetricInfo:
        primary_metric(self.config_name)  # raises if there is no such configuration
        value = datasets.Value("float64" if self.config_name in _REGRESSION else "int64")
        return evaluate.MetricInfo(
            description=f"The metric of {self.config_name}: {', '.join(RESULT_KEYS[self.config_name])}.",
            citation="Wang et al. 2019, GLUE: A Multi-Task Benchmark and Analysis Platform, arXiv 1804.07461",
            features=datasets.Features({"predictions": value, "references": value}),
        )

    def add_batch(self, *, predictions: Any = None, references: Any = None, **unknown: Any) -> None:
        """Add predictions and references, each of shape (examples,); see the class.

        Raises
        ------
        InputError
            If one is missing, the two differ in length, or either is not one label or number per example.
        """
        regression = self.config_name in _REGRESSION  # checked here, as `evaluate` would cut a label of 0.7 down to 0
        columns = {
            "predictions": _column(predictions, "predictions", regression),
            "references": _column(references, "references", regression),
        }
        lengths = [len(column) for column in columns.values()]
        if lengths[0] != lengths[1]:
            raise InputError(f"{lengths[0]} predictions for {lengths[1]} references: give one for each")
        super().add_batch(**columns, **unknown)

    def add(self, *, prediction: Any = None, reference: Any = None, **unknown: Any) -> None:
        """Add one prediction and its reference; see `add_batch`."""
        self.add_batch(predictions=[prediction], references=[reference], **unknown)

    def compute(self, *, predictions: Any = None, references: Any = None, **arguments: Any) -> dict[str, float]:
        """Score what was added, with `predictions` and `references` if given, and forget it.

        Parameters
        ----------
        predictions, references : list, array or tensor, optional
            As for `add_batch`.
        **arguments : Any
            ``num_labels`` (int): how many labels the model tells apart. "classification" needs it, so that the names of
            its results don't depend on the labels a file happens to hold; elsewhere it may be left out.

        Raises
        ------
        InputError
            As for `add_batch`, if there is nothing to score, or ``num_labels`` is missing or too small.
        """
        if predictions is None and references is None and len(self) == 0:
            raise InputError(f"nothing to score for {self.config_name}: no predictions and references were given")
        return super().compute(predictions=predictions, references=references, **arguments)

    def _compute(self, *, predictions: list[Any], references: list[Any], num_labels: int | None = None) -> dict[str, float]:
        if not predictions:
            raise InputError(f"nothing to score for {self.config_name}: predictions and references are empty")
        keys = RESULT_KEYS[self.config_name]
        sides = np.asarray(references), np.asarray(predictions)
        if self.config_name in _REGRESSION:
            if not np.isfinite(sides).all():
                return dict.fromkeys(keys, float("nan"))
        else:
            largest = int(np.max(sides))
            if num_labels is not None and num_labels < max(2, largest + 1):
                raise InputError(f"num_labels is {num_labels}, must be 2 or more and above the largest label, {largest}")
            if self.config_name == "classification":
                if num_labels is None:
                    raise InputError("compute needs num_labels for 'classification': pass the model's number of labels")
                keys += ("f1" if num_labels == 2 else "f1_macro",)
        with np.errstate(over="ignore"):  # a squared error too large for float64 is inf, and says so itself
            return {key: float(_SCORES[key](*sides)) for key in keys}
