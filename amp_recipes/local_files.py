"""A user's own text files: read, find the columns, refuse what can't be trained on, turn labels into ids. No torch.

`csv`, `json` and `pyarrow` read them: nothing takes the text `NA` for a missing one, and a complaint can name the line.
"""

from __future__ import annotations

import csv
import io
import json
import numbers
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amp_recipes.arguments import nearest
from amp_recipes.errors import InputError

__all__ = ["Columns", "Examples", "encode_labels", "read_examples"]

TAB_SUFFIXES, JSON_LINES_SUFFIXES = (".tsv", ".txt"), (".jsonl", ".ndjson")
SUFFIXES = (".csv", *TAB_SUFFIXES, ".json", *JSON_LINES_SUFFIXES, ".parquet")
# names in order of preference, in lower case
LABEL_NAMES = ["label", "labels", "gold_label", "quality", "score", "similarity", "is_duplicate", "class", "category"]
LABEL_NAMES += ["sentiment", "target"]
TEXT_NAMES = ["sentence", "text", "review", "content", "comment", "phrase"]
PAIR_NAMES = {"sentence1": "sentence2", "premise": "hypothesis", "question": "sentence", "question1": "question2"}
PAIR_NAMES |= {"#1 string": "#2 string", "text": "text_pair", "text_a": "text_b"}
# id, idx, #1 ID, old_index, __index_level_0__, pairID; not "paid" or "covid"
ID_NAME = re.compile(r"(?i:(^|[^a-z])(id|ids|idx|index|guid|uuid|uid|qid)\d*($|[^a-z]))|[a-z]I[Dd]$")
NEAR_CONSTANT = 0.1  # fewer distinct values than this share of the rows: a genre, not a text (MNLI's premises: 0.3)
NUMBER = re.compile(r"[+-]?(\d{1,18}(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
WHOLE_NUMBER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
OBJECT_A_LINE = re.compile(r"\s*\{[^\n]*\}\s*\n\s*\{")
PROBLEM_TYPES = ("regression", "single_label_classification")
SAY_TEXTS = "say --text_column NAME [--text_pair_column NAME]"
LONGEST_FIELD = 2**31 - 1  # csv's own limit is 131,072 characters
TextColumns = tuple[str, str | None]
FaultOf = Callable[[Any], str | None]
SHOWN = 5  # so many lines or labels are named in a problem, and the rest counted


@dataclass(frozen=True)
class Columns:
    """Which columns were read: their names, or 0-based positions as strings where a file has no header."""

    text: str
    text_pair: str | None
    label: str


@dataclass(frozen=True)
class Examples:
    """The rows of a file, in lists of one length; labels are as found, save that numbers in CSV and TSV become numbers."""

    texts: list[str]
    text_pairs: list[str] | None
    labels: list[str] | list[int] | list[float]


@dataclass(frozen=True)
class _Table:
    """A file's rows; `places[i]` says where row i is, in `unit`s ("line" or "row") counted from 1."""

    path: Path
    names: list[str]
    rows: Sequence[Sequence[Any]]
    places: Sequence[int]
    unit: str
    is_headed: bool = False  # by its first line

    def column(self, name: str) -> list[Any]:
        position = self.names.index(name)
        return [row[position] for row in self.rows]

    def listed(self) -> str:
        names = ", ".join(repr(name if len(name) <= 60 else name[:60] + "...") for name in self.names)
        return f"its columns are {names}{' (the first line, taken as header)' if self.is_headed else ''}"


def _some(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values[:SHOWN])) + (f", ... ({len(values)} in all)" if len(values) > SHOWN else "")


def _decode(path: Path) -> str:
    data = path.read_bytes()
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        place = f"line {data.count(10, 0, error.start) + 1}, byte offset {error.start}"  # 10: the line feed
        raise InputError(f"{path} {place}: not {encoding.upper()}; save the file as UTF-8") from None
    if not text.strip():
        raise InputError(f"{path}: the file is empty; give one with rows")
    return text


def _split_tabs(text: str) -> list[tuple[int, list[str]]]:
    """Split at tabs; a quote is a character like any other. (`splitlines` would also break at U+2028 and its like.)."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return [(number, line.split("\t")) for number, line in enumerate(lines, start=1) if line.strip(" ")]


def _split_csv(text: str, path: Path) -> list[tuple[int, list[str]]]:
    """Split with CSV's quoting, at whichever of comma, semicolon and tab gives the header most fields."""
    head = text.lstrip("\r\n")[:10_000]
    delimiter = max(",;\t", key=lambda mark: len(next(csv.reader(io.StringIO(head, newline=""), delimiter=mark))))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows, line = [], 1
    limit = csv.field_size_limit(LONGEST_FIELD)
    try:
        for row in reader:
            rows.append((line, row))
            line = reader.line_num + 1
    except csv.Error as error:
        fault = "a quoted field is never closed" if "end of data" in str(error) else f"bad quoting ({error})"
        advice = 'put a text in "..." and double each quote inside'
        raise InputError(f"{path} line {line}: {fault} in the row that starts here; {advice}") from None
    finally:
        csv.field_size_limit(limit)
    return [(line, row) for line, row in rows if row]


def _read_delimited(text: str, path: Path, has_tabs: bool) -> _Table:
    numbered = _split_tabs(text) if has_tabs else _split_csv(text, path)
    lines, rows = [line for line, _ in numbered], [row for _, row in numbered]
    width = len(rows[0])
    ragged = [line for line, row in numbered if len(row) < width or (len(row) > width and not has_tabs)]
    if ragged:
        fault = f"{'fewer fields than' if has_tabs else 'another number of fields than'} the first line's {width}"
        advice = "here a text holds no tab and no line break" if has_tabs else 'put a text with the separator in it in "..."'
        raise InputError(f"{path} line {_some(ragged)}: {fault}; {advice}")
    # CoLA as distributed has no header, but source, 0 or 1, its author's mark (*, ?, ?*, ...), sentence
    if all(len(row) == 4 and row[1] in ("0", "1") and not row[2].strip(" *?") for row in rows):
        return _Table(path, ["0", "1", "2", "3"], rows, lines, "line")
    names = [name.strip() or str(position) for position, name in enumerate(rows[0])]
    return _Table(path, names, rows[1:], lines[1:], "line", is_headed=True)


def _parse_json(text: str, path: Path, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # not JSON; a number of thousands of digits; nested too deeply
        place = f"line {line or getattr(error, 'lineno', 1)} column {getattr(error, 'colno', 1)}"
        raise InputError(f"{path} {place}: not valid JSON ({getattr(error, 'msg', error)}); mend it there") from None


def _read_json(text: str, path: Path) -> _Table:
    """Read a list of objects, an object of columns (lists, or pandas' {index: value}), `{"data": [...]}`, or JSON lines."""
    if path.suffix.lower() in JSON_LINES_SUFFIXES or OBJECT_A_LINE.match(text):
        unit = "line"
        places = [number for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
        rows = [_parse_json(line, path, number) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    else:
        unit, rows = "row", _parse_json(text, path)
        if isinstance(rows, dict):
            columns = [list(column.values()) if isinstance(column, dict) else column for column in rows.values()]
            if isinstance(rows.get("data"), list) and all(isinstance(row, dict) for row in rows["data"]):
                rows = rows["data"]
            elif not all(isinstance(column, list) for column in columns):
                rows = [rows]  # JSON lines of one line
            elif len({len(column) for column in columns}) > 1:
                raise InputError(f"{path}: the columns have different lengths; give each one value a row")
            else:
                rows = [dict(zip(rows, values, strict=True)) for values in zip(*columns, strict=True)]
        elif not isinstance(rows, list):
            raise InputError(f"{path}: neither a list of objects nor an object of columns; give one of them")
        places = list(range(1, len(rows) + 1))
    wrong = [place for place, row in zip(places, rows, strict=True) if not isinstance(row, dict)]
    if wrong:
        raise InputError(f'{path} {unit} {_some(wrong)}: not an object; write each row as {{"text": "...", "label": ...}}')
    names = list(dict.fromkeys(name for row in rows for name in row))
    return _Table(path, names, [[row.get(name) for name in names] for row in rows], places, unit)


def _read_parquet(path: Path) -> _Table:
    import pyarrow.parquet  # imported late: only this format needs it

    try:
        with pyarrow.parquet.ParquetFile(path) as file:  # `read_table` would take folder names for columns
            table = file.read()
            rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not readable as Parquet ({' '.join(str(error).split())[:200]}); write it anew") from None
    return _Table(path, table.column_names, rows, range(1, len(rows) + 1), "row")


def _read_table(path: Path) -> _Table:
    suffix, advice = path.suffix.lower(), "give an existing file to --train_file and --validation_file"
    if path.is_dir():
        raise InputError(f"{path}: this is a folder; {advice}")
    if not path.exists():
        neighbours = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        raise InputError(f"{path}: no such file{nearest(path.name, neighbours)}; {advice}")
    if suffix not in SUFFIXES:
        raise InputError(f"{path}: unknown suffix {suffix!r}; the formats known are {', '.join(SUFFIXES)}")
    try:
        if suffix == ".parquet" and path.stat().st_size:
            table = _read_parquet(path)
        else:
            text = _decode(path)
            table = _read_json(text, path) if "json" in suffix else _read_delimited(text, path, suffix in TAB_SUFFIXES)
    except OSError as error:
        raise InputError(f"{path}: can't be read ({error.strerror}); check its permissions") from None
    repeated = sorted({name for name in table.names if table.names.count(name) > 1})
    if repeated:
        raise InputError(f"{path}: several columns are called {_some(repeated)}; give each its own name")
    if not table.rows:
        raise InputError(f"{path}: no rows{' after the header line' if table.is_headed else ''}; give some")
    return table


def _is_missing(value: Any) -> bool:
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def _may_be_text(name: str, values: Sequence[Any]) -> bool:
    """Whether a column of no known name looks like sentences: strings, not all numbers, no id, not near-constant."""
    present = [value for value in values if not _is_missing(value)]
    if ID_NAME.search(name) or name.lower() in LABEL_NAMES or not all(isinstance(value, str) for value in present):
        return False
    is_varied = len(set(present)) > max(1, NEAR_CONSTANT * len(present))
    return is_varied and not all(NUMBER.fullmatch(value.strip()) for value in present)


def _find_texts(table: _Table, label: str, text: str | None, pair: str | None, expect_pair: bool | None) -> TextColumns:
    """Return the sentence columns: those given, else by known names, else the only ones that look like sentences."""
    # a first sentence named alone means that there is no second, unless the task has two
    wants_pair = True if pair or expect_pair else expect_pair if text is None else False
    if text is not None and (pair is not None or not wants_pair):
        return text, pair
    names = {name.lower(): name for name in reversed(table.names) if name != label and not ID_NAME.search(name)}
    pairs: list[TextColumns] = [(names[a], names[b]) for a, b in PAIR_NAMES.items() if a in names and b in names]
    singles = [(names[name], pair) for name in TEXT_NAMES if name in names and names[name] != pair]
    if wants_pair is False:
        guesses = singles + [(first, None) for first, _ in pairs]
    else:
        guesses = pairs + (singles if wants_pair is None or pair else [])
    for guess in guesses:
        if text in (None, guess[0]) and pair in (None, guess[1]):
            return guess
    others = [name for name in table.names if name not in (label, text, pair) and _may_be_text(name, table.column(name))]
    if len(others) in ((1, 2) if wants_pair is None else (1,) if text or pair or not wants_pair else (2,)):
        rest = iter(others)
        return text or next(rest), pair or next(rest, None)
    which = "the second sentence" if wants_pair and not pair and (text or singles or len(others) == 1) else "the text"
    raise InputError(f"{table.path}: it is not clear which column holds {which}; {table.listed()}; {SAY_TEXTS}")


def _find_columns(table: _Table, text: str | None, pair: str | None, label: str | None, expect_pair: bool | None) -> Columns:
    flags = {"--text_column": text, "--text_pair_column": pair, "--label_column": label}
    given = {flag: name for flag, name in flags.items() if name is not None}
    absent = {flag: name for flag, name in given.items() if name not in table.names}
    about = f"{table.path}: no column"
    problems = [f"{about} {name!r} ({flag}){nearest(name, table.names)}; {table.listed()}" for flag, name in absent.items()]
    if len(set(given.values())) < len(given):
        problems.append(f"{table.path}: {', '.join(given)} name one column twice; give each its own")
    if label is None:
        lowered = {name.lower(): name for name in reversed(table.names) if name not in given.values()}
        label = next((lowered[name] for name in LABEL_NAMES if name in lowered), None)
    if label is None:
        problems.append(f"{table.path}: no label column; {table.listed()}; say --label_column NAME")
    if problems or label is None:
        raise InputError(*problems)
    return Columns(*_find_texts(table, label, text, pair, expect_pair), label)


def _text_fault(value: Any) -> str | None:
    if _is_missing(value):
        return "no text; fill it in or remove the row"
    return None if isinstance(value, str) else f"not a text but {type(value).__name__}; {SAY_TEXTS}"


def _label_fault(value: Any) -> str | None:
    if isinstance(value, (list, dict)):
        return "a list or object as label; give each row one word or number"
    if _is_missing(value):
        return "no label; fill it in or remove the row"
    if not isinstance(value, (str, numbers.Real)):
        return f"a label of type {type(value).__name__}; give a word or number"
    is_finite = abs(_number(value) or 0) <= sys.float_info.max  # False for a whole number of 400 digits, too
    return None if is_finite else "a label that is not finite; give a finite number"


def _faults(what: str, values: Sequence[Any], places: Sequence[int], unit: str, fault_of: FaultOf) -> list[str]:
    """Return one problem for each kind of fault, with its places."""
    found: dict[str, list[int]] = {}
    for value, place in zip(values, places, strict=True):
        if fault := fault_of(value):
            found.setdefault(fault, []).append(place)
    return [f"{what}, {unit} {_some(where)}: {fault}" for fault, where in found.items()]


def _numbers_if_all(cells: list[str]) -> list[Any]:
    """Turn the cells of a CSV or TSV column into numbers if each is one (or empty, nan, inf: for the caller to refuse)."""
    present = [cell.strip() for cell in cells if cell.strip()]
    finite = [cell for cell in present if NUMBER.fullmatch(cell)]
    if not finite or not all(NUMBER.fullmatch(cell) or NOT_FINITE.fullmatch(cell) for cell in present):
        return cells
    convert = int if all(WHOLE_NUMBER.fullmatch(cell) for cell in present) else float
    return [convert(cell) if cell.strip() else None for cell in cells]


def read_examples(
    path: str | Path,
    *,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    label_column: str | None = None,
    expect_pair: bool | None = None,
) -> tuple[Examples, Columns]:
    """Read a file of labelled texts or text pairs, in file order.

    The suffix tells the format. `.csv`: usual quoting; comma, semicolon or tab; a row with another number of fields than the
    header is refused. `.tsv`, `.txt`: tabs without quoting, as in GLUE; *fields beyond the header's last are ignored*.
    `.json`: a list of objects, an object of columns, `{"data": [...]}` or an object a line. `.jsonl`, `.ndjson`, `.parquet`.
    Text is UTF-8, or UTF-16 with a byte order mark. Blank lines are skipped. Only CoLA's files are read without header.
    Only an empty field or a real null is missing; `NA` is a text.

    Parameters
    ----------
    path : str or Path
    text_column, text_pair_column, label_column : str, optional
        Those not given are found by name, and sentences at last as the only columns that look like sentences. `text_column`
        alone means one sentence per example, unless `expect_pair` is True.
    expect_pair : bool, optional
        Whether the task has two sentences; None to see it from the file. With False the second of a known pair is ignored.

    Raises
    ------
    InputError
        If the file can't be read, a column is missing or not clear, or a row lacks a text or a usable label.
    """
    table = _read_table(Path(path).expanduser())
    columns = _find_columns(table, text_column, text_pair_column, label_column, expect_pair)
    texts, labels = table.column(columns.text), table.column(columns.label)
    pairs = None if columns.text_pair is None else table.column(columns.text_pair)
    if table.path.suffix.lower() in (".csv", *TAB_SUFFIXES):
        labels = _numbers_if_all(labels)
    checks = [(columns.text, texts, _text_fault), (columns.text_pair, pairs or [], _text_fault)]
    problems = []
    for name, values, fault_of in [*checks, (columns.label, labels, _label_fault)]:
        places = table.places[: len(values)]
        problems += _faults(f"{table.path} column {name!r}", values, places, table.unit, fault_of)
    if problems:
        raise InputError(*problems)
    return Examples(texts, pairs, labels), columns


def _number(label: Any) -> float | None:
    """Return the number that a label is or spells (a whole one as int, whatever its size), None for a word."""
    if isinstance(label, str):
        if not NUMBER.fullmatch(label.strip()):
            return None
        return int(label) if WHOLE_NUMBER.fullmatch(label.strip()) else float(label)
    return int(label) if isinstance(label, numbers.Integral) else float(label)


def _class_name(label: Any) -> str:
    number = _number(label)
    if number is None or isinstance(label, bool):
        return str(label).strip()
    return str(int(number)) if number == int(number) else repr(number)


def _classes(train: Sequence[Any], known_names: Sequence[str], may_mix: bool) -> tuple[tuple[str, ...], Callable[[Any], int]]:
    """Return the class names in order, and the function from a label to its id (-1 if it has none)."""
    known = {"false": 0, "true": 1} if len(known_names) == 2 else {}
    known |= {str(i): i for i in range(len(known_names))} | {name.lower(): i for i, name in enumerate(known_names)}
    if all(_class_name(label).lower() in known for label in train):
        return tuple(known_names), lambda label: known.get(_class_name(label).lower(), -1)
    found = {_class_name(label): _number(label) for label in train}
    words = sorted(name for name, number in found.items() if number is None)
    if words and len(words) < len(found) and not may_mix:
        raise InputError(
            f"the training labels (--train_file) mix numbers with words ({_some(words)}): mend them, or say --problem_type "
            "single_label_classification without --task_name to take each as the name of a class"
        )
    names = sorted(found) if words else sorted(found, key=lambda name: found[name] or 0)
    ids = {name: i for i, name in enumerate(names)}
    return tuple(names), lambda label: ids.get(_class_name(label), -1)


def encode_labels(
    train: Sequence[Any],
    evaluations: Mapping[str, Sequence[Any]],
    *,
    known_names: Sequence[str] = (),
    problem_type: str | None = None,
) -> tuple[tuple[str, ...], list[Any], dict[str, list[Any]]]:
    """Turn raw labels into class ids, or into floats for regression.

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

    Returns
    -------
    label_names, train_ids, evaluation_ids
        No names and floats for regression.

    Raises
    ------
    InputError
        One class only, a label that training lacks, a word in a regression, a label that is missing, nested or not finite.
    """
    if problem_type not in (None, *PROBLEM_TYPES):
        raise InputError(f"--problem_type {problem_type}: not supported; say {' or '.join(PROBLEM_TYPES)}")
    sets = {"the training labels (--train_file)": train, **{f"the {name} labels": ls for name, ls in evaluations.items()}}
    problems = []
    for what, labels in sets.items():
        problems += _faults(what, labels, range(1, len(labels) + 1), "example", _label_fault)
    if problems:
        raise InputError(*problems)
    is_fractional = any(number is not None and number != int(number) for ls in sets.values() for number in map(_number, ls))
    if problem_type is None and is_fractional and None not in map(_number, train):
        problem_type = "regression"
    if problem_type == "regression":
        for what, labels in sets.items():
            words = sorted({repr(label) for label in labels if _number(label) is None})
            problems += [f"{what} include {_some(words)}; regression needs numbers: mend them"] if words else []
        if problems:
            raise InputError(*problems)
        targets = {name: [float(_number(label) or 0) for label in labels] for name, labels in evaluations.items()}
        return (), [float(_number(label) or 0) for label in train], targets
    label_names, to_id = _classes(train, known_names, may_mix=problem_type is not None and not known_names)
    train_ids = [to_id(label) for label in train]
    classes = set(train_ids)
    trained = _some([label_names[i] for i in sorted(classes)])
    if len(classes) < 2:
        raise InputError(f"the training labels (--train_file) have one class only ({trained}); give two or more")
    evaluation_ids = {name: [to_id(label) for label in labels] for name, labels in evaluations.items()}
    for name, labels in evaluations.items():
        unknown = _some(sorted({repr(label) for label in labels if to_id(label) not in classes}))
        if unknown:
            problems.append(f"the {name} labels include {unknown}; training has only {trained}: mend them or train on them")
    if problems:
        raise InputError(*problems)
    return label_names, train_ids, evaluation_ids
