"""What may be a text or a label, and labels turned into class ids or regression targets. No torch."""

from __future__ import annotations

import numbers
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from amp_recipes.errors import InputError

__all__ = ["PROBLEM_TYPES", "encode_labels", "faults", "is_missing", "some"]

NUMBER = re.compile(r"[+-]?(\d{1,15}(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)  # 15 digits: what a float holds exactly
NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
HALF_PAIR = re.compile(r"[\ud800-\udfff]")  # of surrogates, as JSON may spell them; tokenizers fail on one
PROBLEM_TYPES = ("regression", "single_label_classification")
SAY_TEXTS = "say --text_column NAME [--text_pair_column NAME]"
SHOWN = 5  # so many lines or labels are named in a problem, and the rest counted
Labels = Sequence[Any]


def some(values: Sequence[Any]) -> str:
    """List a few of the values, and count them if there are more."""
    return ", ".join(map(str, values[:SHOWN])) + (f", ... ({len(values)} in all)" if len(values) > SHOWN else "")


def is_missing(value: Any) -> bool:
    """Whether a value is null or an empty string; `NA` and `nan` as text are not."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def _fault(value: Any, kind: str) -> str | None:
    """Return what is wrong with a value as a "text" or a "label"."""
    if is_missing(value):
        return f"no {kind}; fill it in or remove the row"
    if kind == "text":
        is_text = isinstance(value, str) and not HALF_PAIR.search(value)
        return None if is_text else f"not Unicode text; mend it, or {SAY_TEXTS}"
    if not isinstance(value, (str, numbers.Real)):
        return f"a {type(value).__name__} as label; give each row one word or number"
    is_finite = abs(_number(value) or 0) <= sys.float_info.max  # false for a whole number of 400 digits, too
    return None if is_finite else "a label that is not finite; give a finite number"


def faults(what: str, values: Sequence[Any], kind: str, places: Sequence[int], unit: str) -> list[str]:
    """Return one problem for each kind of fault, with its places."""
    found: dict[str, list[int]] = {}
    for value, place in zip(values, places, strict=False):  # no values: no second sentence
        if fault := _fault(value, kind):
            found.setdefault(fault, []).append(place)
    return [f"{what}, {unit} {some(where)}: {fault}" for fault, where in found.items()]


def _number(label: Any) -> float | None:
    """Return the number that a label is or spells, None for a word."""
    if isinstance(label, str):
        return float(label) if NUMBER.fullmatch(label.strip()) else None
    return int(label) if isinstance(label, numbers.Integral) else float(label)


def _class_name(label: Any) -> str:
    number = _number(label)
    if number is None or isinstance(label, bool):
        return str(label).strip()
    return str(int(number)) if number == int(number) else repr(number)


def _classes(train: Labels, known_names: Sequence[str], may_mix: bool) -> tuple[tuple[str, ...], Callable[[Any], int]]:
    """Return the class names in order, and the function from a label to its id (-1 if it has none)."""
    known = {"false": 0, "true": 1} if len(known_names) == 2 else {}
    known |= {str(i): i for i in range(len(known_names))} | {name.lower(): i for i, name in enumerate(known_names)}
    if all(_class_name(label).lower() in known for label in train):
        return tuple(known_names), lambda label: known.get(_class_name(label).lower(), -1)
    found = {_class_name(label): _number(label) for label in train}
    words = sorted(name for name, number in found.items() if number is None)
    if words and len(words) < len(found) and not may_mix:
        advice = "mend them, or say --problem_type single_label_classification without --task_name to train on both"
        raise InputError(f"the training labels (--train_file) mix numbers with words ({some(words)}): {advice}")
    names = sorted(found) if words else sorted(found, key=lambda name: found[name] or 0)
    ids = {name: i for i, name in enumerate(names)}
    return tuple(names), lambda label: ids.get(_class_name(label), -1)


def encode_labels(
    train: Labels, evaluations: Mapping[str, Labels], *, known_names: Sequence[str] = (), problem_type: str | None = None
) -> tuple[tuple[str, ...], list[Any], dict[str, list[Any]]]:
    """Turn raw labels into (names, training ids, ids of each evaluation), or for regression into ((), floats, floats).

    The classes are `known_names` if the training labels are all among them, by name regardless of case or by index; else
    numbers in their order, or words sorted. 1, 1.0 and "1" are one class; True and False are words in that order. Words among
    numbers, which a stray "N/A" in a column of scores would be, are refused unless `problem_type` says that they are classes.

    Parameters
    ----------
    train, evaluations : sequence of str, int, float or bool
    known_names : sequence of str
        In the order of their ids, where the task defines them.
    problem_type : str, optional
        One of `PROBLEM_TYPES`; None: regression if all training labels are numbers and any label of any set is not whole.

    Raises
    ------
    InputError
        One class only, a label that training lacks, a word in a regression, a label that is missing, nested or not finite.
    """
    if problem_type not in (None, *PROBLEM_TYPES):
        raise InputError(f"--problem_type {problem_type}: not supported; say {' or '.join(PROBLEM_TYPES)}")
    sets = {"the training labels (--train_file)": train, **{f"the {name} labels": ls for name, ls in evaluations.items()}}
    problems = [p for what, ls in sets.items() for p in faults(what, ls, "label", range(1, len(ls) + 1), "example")]
    if problems:
        raise InputError(*problems)
    is_fractional = any(number is not None and number != int(number) for ls in sets.values() for number in map(_number, ls))
    if problem_type == "regression" or (problem_type is None and is_fractional and None not in map(_number, train)):
        words = {what: sorted({repr(label) for label in ls if _number(label) is None}) for what, ls in sets.items()}
        problems = [f"{what} include {some(ws)}; regression needs numbers: mend them" for what, ws in words.items() if ws]
        if problems:
            raise InputError(*problems)
        targets = {name: [float(_number(label) or 0) for label in labels] for name, labels in evaluations.items()}
        return (), [float(_number(label) or 0) for label in train], targets
    label_names, to_id = _classes(train, known_names, may_mix=problem_type is not None and not known_names)
    train_ids = [to_id(label) for label in train]
    classes = set(train_ids)
    trained = some([label_names[i] for i in sorted(classes)])
    if len(classes) < 2:
        raise InputError(f"the training labels (--train_file) have one class only ({trained}); give two or more")
    evaluation_ids = {name: [to_id(label) for label in labels] for name, labels in evaluations.items()}
    unknown = {name: sorted({repr(label) for label in ls if to_id(label) not in classes}) for name, ls in evaluations.items()}
    problems = [f"the {n} labels include {some(ls)}, training only {trained}; mend them" for n, ls in unknown.items() if ls]
    if problems:
        raise InputError(*problems)
    return label_names, train_ids, evaluation_ids
