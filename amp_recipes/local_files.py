"""A user's own text files: read, find the columns, refuse what can't be trained on. No torch."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from amp_recipes.arguments import nearest
from amp_recipes.errors import InputError
from amp_recipes.labels import NOT_FINITE, NUMBER, SAY_TEXTS, faults, is_missing, some

__all__ = ["Columns", "Examples", "read_examples"]

TAB_SUFFIXES = (".tsv", ".txt")
SUFFIXES = (".csv", *TAB_SUFFIXES, ".json", ".jsonl", ".ndjson", ".parquet")
# names in order of preference, in lower case
LABEL_NAMES = ["label", "labels", "gold_label", "quality", "score", "similarity", "is_duplicate", "class", "category"]
LABEL_NAMES += ["sentiment", "target"]
TEXT_NAMES = ["sentence", "text", "review", "content", "comment", "phrase"]
PAIR_NAMES = {"sentence1": "sentence2", "premise": "hypothesis", "question": "sentence", "question1": "question2"}
PAIR_NAMES |= {"#1 string": "#2 string", "text": "text_pair", "text_a": "text_b"}
# id, idx, #1 ID, old_index, __index_level_0__, pairID; not "paid" or "covid"
ID_NAME = re.compile(r"(?i:(^|[^a-z])(id|ids|idx|index|guid|uuid|uid|qid)\d*($|[^a-z]))|[a-z]I[Dd]$")
NEAR_CONSTANT = 0.1  # fewer distinct values than this share of the rows: a genre, not a text (MNLI's premises: 0.3)
OBJECT_A_LINE = re.compile(r"\s*\{[^\n]*\}\s*\n\s*\{")
TextColumns = tuple[str, str | None]


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


class _Table(NamedTuple):
    """A file's rows; `places[i]` says where row i is, in `unit`s ("line" or "row") counted from 1."""

    path: Path
    names: list[str]
    rows: Sequence[Sequence[Any]]
    places: Sequence[int]
    unit: str
    has_header: bool | None = None  # in CSV and TSV

    def column(self, name: str) -> list[Any]:
        position = self.names.index(name)
        return [row[position] for row in self.rows]

    def listed(self) -> str:
        names = ", ".join(repr(name if len(name) <= 60 else name[:60] + "...") for name in self.names)
        return f"its columns are {names}{' (the first line, taken as header)' if self.has_header else ''}"


def _decode(data: bytes, path: Path) -> str:
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        place = f"line {data.count(10, 0, error.start) + 1}, byte offset {error.start}"  # 10: the line feed
        raise InputError(f"{path} {place}: not {encoding.upper()}; save the file as UTF-8") from None
    if not text.strip():
        raise InputError(f"{path}: the file is empty; give one with rows")
    return text


def _split_csv(text: str, path: Path) -> Iterator[tuple[int, list[str]]]:
    """Split with CSV's quoting, at whichever of comma, semicolon and tab gives the header most fields."""
    head = text.lstrip("\r\n")[:10_000]
    delimiter = max(",;\t", key=lambda mark: len(next(csv.reader(io.StringIO(head, newline=""), delimiter=mark))))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    line = 1
    csv.field_size_limit(2**31 - 1)  # its own limit is 131,072 characters
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        fault = "a quoted field is never closed" if "end of data" in str(error) else f"bad quoting ({error})"
        raise InputError(f"{path} line {line}: {fault} in the row that starts here; double each quote inside") from None


def _read_delimited(text: str, path: Path, has_tabs: bool) -> _Table:
    if has_tabs:  # a quote is a character like any other; `splitlines` would also break at U+2028 and its like
        lines_of_file = enumerate((line.removesuffix("\r") for line in text.split("\n")), start=1)
        numbered = [(number, line.split("\t")) for number, line in lines_of_file if line.strip(" ")]
    else:
        numbered = list(_split_csv(text, path))
    lines, rows = [line for line, _ in numbered], [row for _, row in numbered]
    width = len(rows[0])
    ragged = [line for line, row in numbered if len(row) < width or (len(row) > width and not has_tabs)]
    if ragged:
        advice = "here a text holds no tab and no line break" if has_tabs else 'put a text with the separator in it in "..."'
        raise InputError(f"{path} line {some(ragged)}: not the {width} fields that the first line has; {advice}")
    # CoLA as distributed has no header, but source, 0 or 1, its author's mark (*, ?, ?*, ...), sentence
    if all(len(row) == 4 and row[1] in ("0", "1") and not row[2].strip(" *?") for row in rows):
        return _Table(path, ["0", "1", "2", "3"], rows, lines, "line", has_header=False)
    names = [name.strip() or str(position) for position, name in enumerate(rows[0])]
    return _Table(path, names, rows[1:], lines[1:], "line", has_header=True)


def _parse_json(text: str, path: Path, line: int | None = None) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # not JSON; a number of thousands of digits; nested too deeply
        place = f"line {line or getattr(error, 'lineno', 1)} column {getattr(error, 'colno', 1)}"
        raise InputError(f"{path} {place}: not valid JSON ({getattr(error, 'msg', error)}); mend it there") from None


def _read_json(text: str, path: Path) -> _Table:
    """Read a list of objects, an object of columns (lists, or pandas' {index: value}), `{"data": [...]}`, or JSON lines."""
    if path.suffix.lower() != ".json" or OBJECT_A_LINE.match(text):
        lines = {number: line for number, line in enumerate(text.split("\n"), start=1) if line.strip()}
        rows, places, unit = [_parse_json(line, path, number) for number, line in lines.items()], list(lines), "line"
    else:
        unit, rows = "row", _parse_json(text, path)
        if isinstance(rows, dict):
            columns = [list(column.values()) if isinstance(column, dict) else column for column in rows.values()]
            if isinstance(rows.get("data"), list) and all(isinstance(row, dict) for row in rows["data"]):
                rows = rows["data"]
            elif all(isinstance(column, list) for column in columns):
                if len({len(column) for column in columns}) > 1:
                    raise InputError(f"{path}: the columns have different lengths; give each one value a row")
                rows = [dict(zip(rows, values, strict=True)) for values in zip(*columns, strict=True)]
        rows = rows if isinstance(rows, list) else [rows]
        places = list(range(1, len(rows) + 1))
    wrong = [place for place, row in zip(places, rows, strict=True) if not isinstance(row, dict)]
    if wrong:
        raise InputError(f'{path} {unit} {some(wrong)}: not an object; write each row as {{"text": "...", "label": ...}}')
    names = list(dict.fromkeys(name for row in rows for name in row))
    return _Table(path, names, [[row.get(name) for name in names] for row in rows], places, unit)


def _read_parquet(data: bytes, path: Path) -> _Table:
    import pyarrow.parquet  # imported late: only this format needs it

    try:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(data))
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not readable as Parquet ({' '.join(str(error).split())[:200]}); write it anew") from None
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return _Table(path, table.column_names, rows, range(1, len(rows) + 1), "row")


def _read_table(path: Path) -> _Table:
    suffix = path.suffix.lower()
    if path.is_file() and suffix not in SUFFIXES:
        raise InputError(f"{path}: unknown suffix {suffix!r}; the formats known are {', '.join(SUFFIXES)}")
    try:
        data = path.read_bytes()
    except OSError as error:  # not there, a folder, not permitted
        raise InputError(f"{path}: {error.strerror or error}; give --train_file and --validation_file readable files") from None
    if suffix == ".parquet":
        table = _read_parquet(data, path)
    else:
        text = _decode(data, path)
        table = _read_json(text, path) if "json" in suffix else _read_delimited(text, path, suffix in TAB_SUFFIXES)
    repeated = sorted({name for name in table.names if table.names.count(name) > 1})
    if repeated:
        raise InputError(f"{path}: several columns are called {some(repeated)}; give each its own name")
    if not table.rows:
        raise InputError(f"{path}: no rows{' after the header line' if table.has_header else ''}; give some")
    return table


def _may_be_text(name: str, values: Sequence[Any]) -> bool:
    """Whether a column of no known name looks like sentences: strings, not all numbers, no id, not near-constant."""
    present = [value for value in values if not is_missing(value)]
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
    firsts: list[TextColumns] = [(first, None) for first, _ in pairs]
    guesses = singles + firsts if wants_pair is False else pairs + (singles if wants_pair is None or pair else [])
    for guess in guesses:
        if text in (None, guess[0]) and pair in (None, guess[1]):
            return guess
    others = [name for name in table.names if name not in (label, text, pair) and _may_be_text(name, table.column(name))]
    if len(others) in ((1, 2) if wants_pair is None else (1,) if text or pair or not wants_pair else (2,)):
        rest = iter(others)
        return text or next(rest), pair or next(rest, None)
    raise InputError(f"{table.path}: no clear text {'pair' if wants_pair else 'column'}; {table.listed()}; {SAY_TEXTS}")


def _find_columns(table: _Table, text: str | None, pair: str | None, label: str | None, expect_pair: bool | None) -> Columns:
    if table.has_header is False:  # CoLA
        text, label = text or "3", label or "1"
    flags = {"--text_column": text, "--text_pair_column": pair, "--label_column": label}
    given = {flag: name for flag, name in flags.items() if name is not None}
    absent = [(flag, name, nearest(name.lower(), table.names)) for flag, name in given.items() if name not in table.names]
    problems = [f"{table.path}: no column {name!r} ({flag}){near}; {table.listed()}" for flag, name, near in absent]
    if len(set(given.values())) < len(given):
        problems.append(f"{table.path}: {', '.join(given)} name one column twice; give each its own")
    lowered = {name.lower(): name for name in reversed(table.names) if name not in given.values()}
    label = label or next((lowered[name] for name in LABEL_NAMES if name in lowered), None)
    if label is None:
        problems.append(f"{table.path}: no label column; {table.listed()}; say --label_column NAME")
    if problems or label is None:
        raise InputError(*problems)
    return Columns(*_find_texts(table, label, text, pair, expect_pair), label)


def _numbers_if_all(cells: list[str]) -> list[Any]:
    """Turn the cells of a CSV or TSV column into numbers if each is one (or empty, nan, inf: for the caller to refuse)."""
    present = [cell.strip() for cell in cells if cell.strip()]
    if not any(map(NUMBER.fullmatch, present)) or not all(NUMBER.fullmatch(c) or NOT_FINITE.fullmatch(c) for c in present):
        return cells
    convert = int if all(cell.lstrip("+-").isdigit() for cell in present) else float
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

    `.csv` has quoting and comma, semicolon or tab; a row with another number of fields than the header is refused. `.tsv` and
    `.txt` have tabs and no quoting, as GLUE's; *fields beyond the header's last are ignored*. `.json` is a list of objects, an
    object of columns, `{"data": [...]}` or an object a line; `.jsonl`, `.ndjson`, `.parquet` are what they say. Text is UTF-8,
    or UTF-16 with a byte order mark. Only CoLA's files may lack a header. Only an empty field or null is missing; `NA` is text.

    Parameters
    ----------
    path : str or Path
    text_column, text_pair_column, label_column : str, optional
        Those not given are found by name, texts at last as the only columns that look like sentences. `text_column` alone
        means one sentence per example, unless `expect_pair` is True.
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
    where, about = (table.places, table.unit), f"{table.path} column"
    problems = faults(f"{about} {columns.text!r}", texts, "text", *where)
    problems += faults(f"{about} {columns.text_pair!r}", pairs or [], "text", *where)
    problems += faults(f"{about} {columns.label!r}", labels, "label", *where)
    if problems:
        raise InputError(*problems)
    return Examples(texts, pairs, labels), columns
