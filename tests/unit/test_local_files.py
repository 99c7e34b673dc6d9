"""Users' own files: every format read as written, every fault refused in one line that says where it is."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amp_recipes.labels import encode_labels
from amp_recipes.local_files import Columns, Examples, read_examples
from tests.conftest import problems_of

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_real_data = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the real data sets are not at {SHARED}")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write_file(name: str, content: str | bytes, encoding: str = "utf-8") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        return path

    return write_file


def write_parquet(path: Path, columns: dict[str, Any]) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def write_rows(path: Path, columns: dict[str, list[Any]]) -> Path:
    """Write columns in the format that the suffix says, by means other than those that read."""
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    if path.suffix == ".parquet":
        return write_parquet(path, columns)
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(columns))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".tsv":
        lines = ["\t".join(columns), *("\t".join(map(str, row.values())) for row in rows)]
        path.write_bytes(("\n".join(lines) + "\n").encode())
    elif path.suffix == ".jsonl":
        path.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
    else:
        path.write_bytes(json.dumps(rows, ensure_ascii=False).encode())
    return path


def refusal(path: Path, **options: Any) -> str:
    """The one problem of a file, which names the file."""
    (problem,) = problems_of(read_examples, path, **options)
    assert str(path) in problem
    return problem


# Real data


@needs_real_data
@pytest.mark.parametrize(("part", "distributed", "added"), [("train", 4076, 4), ("test", 1725, 0)])
def test_mrpc(part, distributed, added):
    # this copy of the training file ends in four pairs with the ids -1, which the distribution does not have
    examples, columns = read_examples(SHARED / f"mrpc/msr_paraphrase_{part}.txt", expect_pair=True)
    assert columns == Columns("#1 String", "#2 String", "Quality")
    assert len(examples.texts) == len(examples.text_pairs) == len(examples.labels) == distributed + added
    assert set(examples.labels) == {0, 1}
    assert sum('"' in text for text in examples.texts) > 100
    assert not any("\r" in text for text in examples.text_pairs)


@needs_real_data
@pytest.mark.parametrize(("part", "rows"), [("train", 8551), ("dev", 1043)])
@pytest.mark.parametrize("expect_pair", [None, False])
def test_cola_has_no_header(part, rows, expect_pair):
    examples, columns = read_examples(SHARED / f"glue/CoLA/{part}.tsv", expect_pair=expect_pair)
    assert columns == Columns("3", None, "1")
    assert len(examples.texts) == len(examples.labels) == rows
    assert examples.text_pairs is None
    assert set(examples.labels) == {0, 1}
    assert examples.texts[0].endswith(".")


@needs_real_data
@pytest.mark.parametrize(("part", "rows"), [("train", 5749), ("dev", 1500)])
def test_stsb_is_regression(part, rows):
    examples, columns = read_examples(SHARED / f"glue/STS-B/{part}.tsv", expect_pair=True)
    assert columns == Columns("sentence1", "sentence2", "score")
    assert len(examples.texts) == len(examples.text_pairs) == len(examples.labels) == rows
    assert all(isinstance(label, float) and 0 <= label <= 5 for label in examples.labels)
    names, targets, _ = encode_labels(examples.labels, {})
    assert names == ()
    assert targets == examples.labels


@needs_real_data
@pytest.mark.parametrize(("part", "rows"), [("train", 2490), ("dev", 277)])
def test_rte_has_words_as_labels(part, rows):
    examples, columns = read_examples(SHARED / f"glue/RTE/{part}.tsv")
    assert columns == Columns("sentence1", "sentence2", "label")
    assert len(examples.texts) == len(examples.text_pairs) == rows
    assert set(examples.labels) == {"entailment", "not_entailment"}
    names, ids, _ = encode_labels(examples.labels, {}, known_names=("entailment", "not_entailment"))
    assert names == ("entailment", "not_entailment")
    assert Counter(ids)[1] == Counter(examples.labels)["not_entailment"]


# Formats

TEXTS, LABELS = ["one, two", 'a "quoted" film', "NA", "null"], [0, 1, 1, 0]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "json", "parquet"])
def test_formats_give_the_same(tmp_path, suffix):
    path = write_rows(tmp_path / f"data.{suffix}", {"sentence": TEXTS, "label": LABELS})
    assert read_examples(path) == (Examples(TEXTS, None, LABELS), Columns("sentence", None, "label"))


@pytest.mark.parametrize(
    "content",
    [
        [{"sentence": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)],
        {"data": [{"sentence": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)], "version": 1},
        {"sentence": TEXTS, "label": LABELS},
        {"sentence": dict(enumerate(TEXTS)), "label": dict(enumerate(LABELS))},  # as pandas' to_json writes
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_shapes_of_json(write, content, indent):
    path = write("data.json", json.dumps(content, indent=indent))
    assert read_examples(path)[0] == Examples(TEXTS, None, LABELS)


@pytest.mark.parametrize("name", ["data.json", "data.jsonl", "data.ndjson", "DATA.JSONL"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\n\n"])
def test_an_object_a_line(write, name, newline):
    lines = [json.dumps({"sentence": text, "label": label}) for text, label in zip(TEXTS, LABELS, strict=True)]
    assert read_examples(write(name, newline.join(lines) + newline))[0] == Examples(TEXTS, None, LABELS)


def test_json_of_one_line_and_one_object(write):
    assert read_examples(write("data.json", '{"text": "a", "label": 1}\n'))[0] == Examples(["a"], None, [1])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("suffix", ["csv", "tsv", "txt"])
def test_encodings_and_line_ends(write, encoding, newline, suffix):
    separator = "," if suffix == "csv" else "\t"
    lines = [separator.join(row) for row in (("text", "label"), ("naïve 日本", "1"), ("b", "0"))]
    examples, columns = read_examples(write(f"data.{suffix}", newline.join(lines), encoding))
    assert examples == Examples(["naïve 日本", "b"], None, [1, 0])
    assert columns.text == "text"


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_delimiters(write, delimiter):
    path = write("data.csv", f'id{delimiter}text{delimiter}label\n7{delimiter}"a, b; c\td"{delimiter}x\n')
    assert read_examples(path)[0] == Examples(["a, b; c\td"], None, ["x"])


def test_csv_keeps_line_breaks_in_quotes_and_skips_blank_lines(write):
    path = write("data.csv", '\n\ntext,label\n"two\nlines",1\n\n"a ""b""",0\n')
    assert read_examples(path)[0] == Examples(["two\nlines", 'a "b"'], None, [1, 0])


def test_csv_fields_may_be_long(write):
    text = "word " * 40_000
    assert read_examples(write("data.csv", f"text,label\n{text},1\n"))[0].texts == [text]


def test_quotes_are_characters_in_tab_separated_files(write):
    path = write("data.tsv", 'text\tlabel\n"open\t1\nit""s 5" wide\t0\n\n')
    assert read_examples(path)[0].texts == ['"open', 'it""s 5" wide']


def test_trailing_fields_of_tab_separated_rows_are_ignored(write):
    path = write("data.tsv", "label\tsentence1\tsentence2\n1\ta\tb\n0\tc\td\thttp://source\t\n")
    assert read_examples(path)[0] == Examples(["a", "c"], ["b", "d"], [1, 0])


def test_parquet_from_pandas_with_index_and_categories(tmp_path):
    import pandas

    frame = pandas.DataFrame({"text": ["a", "b"], "label": pandas.Categorical(["x", "y"])}, index=["first", "second"])
    frame.to_parquet(tmp_path / "data.parquet")
    assert read_examples(tmp_path / "data.parquet")[0] == Examples(["a", "b"], None, ["x", "y"])


def test_parquet_under_a_folder_that_looks_like_a_partition(tmp_path):
    (tmp_path / "label=7").mkdir()
    path = write_parquet(tmp_path / "label=7" / "data.parquet", {"text": ["a", "b"], "label": [0, 1]})
    assert read_examples(path)[0].labels == [0, 1]


@pytest.mark.parametrize(
    ("cells", "labels"),
    [
        (["1", "0", "-1"], [1, 0, -1]),
        (["3.8", "5", "1e-1"], [3.8, 5.0, 0.1]),
        (["1.0", "0.0"], [1.0, 0.0]),
        (["1", "many"], ["1", "many"]),
        (["True", "False"], ["True", "False"]),
        (["nan", "inf"], ["nan", "inf"]),  # words where nothing else is a number
        (["1_0", "٣"], ["1_0", "٣"]),
        (["1" * 16, "2"], ["1" * 16, "2"]),
        ([" 1", "2 "], [1, 2]),
    ],
)
def test_label_types_in_csv(write, cells, labels):
    found = read_examples(write("data.csv", "text,label\n" + "".join(f"a,{cell}\n" for cell in cells)))[0].labels
    assert found == labels
    assert [type(label) for label in found] == [type(label) for label in labels]


# Columns


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("sentence1 sentence2 label", ("sentence1", "sentence2", "label")),
        ("Premise Hypothesis gold_label", ("Premise", "Hypothesis", "gold_label")),
        ("index question sentence label", ("question", "sentence", "label")),
        ("id qid1 qid2 question1 question2 is_duplicate", ("question1", "question2", "is_duplicate")),
        ("text text_pair similarity", ("text", "text_pair", "similarity")),
        ("text_a text_b class", ("text_a", "text_b", "class")),
        ("text label label_text", ("text", None, "label")),
        ("review sentiment", ("review", None, "sentiment")),
        ("Phrase PhraseId Sentiment", ("Phrase", None, "Sentiment")),
        ("score LABEL comment", ("comment", None, "LABEL")),
        ("title content target", ("content", None, "target")),
        ("tweet category", ("tweet", None, "category")),  # by position from here on
        ("id tweet_id pairID guid tweet category", ("tweet", None, "category")),
        ("left right Quality", ("left", "right", "Quality")),
        ("left label right", ("left", "right", "label")),
    ],
)
def test_columns_are_found(tmp_path, names, expected):
    columns = {name: [f"{name} words {i}" for i in range(3)] for name in names.split()}
    assert read_examples(write_rows(tmp_path / "data.csv", columns))[1] == Columns(*expected)


def test_numbers_and_near_constant_columns_are_no_texts(tmp_path):
    columns = {
        "genre": ["news", "forum"] * 20,
        "year": [str(1990 + i) for i in range(40)],
        "body": [f"text {i}" for i in range(40)],
        "source": ["web"] * 40,
        "label": [i % 2 for i in range(40)],
    }
    for suffix in ("csv", "jsonl"):
        assert read_examples(write_rows(tmp_path / f"data.{suffix}", columns))[1] == Columns("body", None, "label")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("sentence1", "sentence2", "label")),
        ({"expect_pair": False}, ("sentence1", None, "label")),
        ({"text_column": "sentence2"}, ("sentence2", None, "label")),
        ({"text_column": "sentence1", "expect_pair": True}, ("sentence1", "sentence2", "label")),
        ({"text_pair_column": "sentence2"}, ("sentence1", "sentence2", "label")),
        ({"text_column": "note", "text_pair_column": "sentence1"}, ("note", "sentence1", "label")),
        ({"text_column": "note", "text_pair_column": "id", "expect_pair": False}, ("note", "id", "label")),
        ({"label_column": "note"}, ("sentence1", "sentence2", "note")),
        ({"text_column": "label", "label_column": "id"}, ("label", None, "id")),
    ],
)
def test_given_columns_win(tmp_path, options, expected):
    columns = {name: [f"{name} {i}" for i in range(3)] for name in ("id", "sentence1", "sentence2", "note", "label")}
    assert read_examples(write_rows(tmp_path / "data.csv", columns), **options)[1] == Columns(*expected)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"text_column": "here", "expect_pair": True}, ("here", "there", "label")),
        ({"text_pair_column": "here"}, ("there", "here", "label")),
        ({"expect_pair": True}, ("here", "there", "label")),
    ],
)
def test_the_other_text_is_the_only_one_left(tmp_path, options, expected):
    columns = {name: [f"{name} {i}" for i in range(3)] for name in ("here", "there", "label")}
    assert read_examples(write_rows(tmp_path / "data.csv", columns), **options)[1] == Columns(*expected)


@pytest.mark.parametrize("option", ["text_column", "text_pair_column", "label_column"])
def test_a_given_column_that_is_missing(write, option):
    problem = refusal(write("data.csv", "sentence1,sentence2,label\na,b,1\n"), **{option: "SENTENSE1"})
    assert f"--{option}" in problem
    assert "did you mean 'sentence1'" in problem
    assert "'sentence1', 'sentence2', 'label'" in problem


def test_several_column_problems_are_told_at_once(write):
    path = write("data.csv", "a,b\n1,2\n")
    problems = problems_of(read_examples, path, text_column="x", text_pair_column="y")
    assert ["--text_column" in problems[0], "--text_pair_column" in problems[1], "no label" in problems[2]] == [True] * 3


def test_one_column_named_twice(write):
    problem = refusal(write("data.csv", "a,label\nx,2\n"), text_column="a", label_column="a")
    assert "--text_column, --label_column" in problem


def test_no_label_column_shows_the_first_line(write):
    problem = refusal(write("data.csv", f"a good film,1\n{'b' * 300},0\n"))
    assert "no label column" in problem
    assert "'a good film', '1' (the first line, taken as header)" in problem
    assert "--label_column NAME" in problem
    problem = refusal(write("long.csv", f"{'b' * 300},1\na,0\n"))
    assert len(problem) < 400
    assert "taken as header" not in refusal(write("data.jsonl", '{"text": "a", "y": 1}'))


@pytest.mark.parametrize(
    ("header", "options"),
    [
        ("label,id", {}),  # none
        ("here,there,yonder,label", {}),  # too many
        ("here,there,label", {"expect_pair": False}),
        ("sentence,label", {"expect_pair": True}),
        ("here,label", {"expect_pair": True}),
        ("sentence,label", {"expect_pair": True, "text_column": "sentence"}),
        ("here,there,yonder,label", {"text_pair_column": "here"}),
    ],
)
def test_no_clear_text_column(write, header, options):
    names = header.split(",")
    rows = [",".join(f"{name} {i}" for name in names) for i in range(3)]
    problem = refusal(write("data.csv", "\n".join([header, *rows])), **options)
    assert "--text_column NAME [--text_pair_column NAME]" in problem
    assert ("no clear text pair" in problem) == bool(options.get("expect_pair") or "text_pair_column" in options)
    assert all(repr(name) in problem for name in names)


def test_only_colas_shape_has_no_header(write):
    assert read_examples(write("a.tsv", "x\t1\t\tGood.\nx\t0\t?*\tBad a.\n"))[1] == Columns("3", None, "1")
    assert "no label column" in refusal(write("b.tsv", "x\t1\t\tGood.\nx\t2\t*\tBad a.\n"))
    assert "no label column" in refusal(write("c.tsv", "x\t1\tsic\tGood.\nx\t0\t*\tBad a.\n"))


def test_columns_of_one_name(write):
    assert "text" in refusal(write("data.csv", "text,text,label\na,b,1\n"))
    assert read_examples(write("unnamed.csv", ",text,label,\n0,a,1,\n"))[0].texts == ["a"]


# Refusals: the file


def test_a_missing_file(tmp_path):
    problem = refusal(tmp_path / "tran.csv")
    assert "No such file" in problem
    assert "--train_file" in problem
    assert "--validation_file" in problem


def test_a_folder(tmp_path):
    assert "directory" in refusal(tmp_path).lower()


@pytest.mark.parametrize("name", ["data.xlsx", "data", "data.csv.gz"])
def test_an_unknown_suffix(write, name):
    problem = refusal(write(name, "text,label\na,1\n"))
    assert all(suffix in problem for suffix in (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".parquet"))


@pytest.mark.parametrize("suffix", ["csv", "tsv", "txt", "json", "jsonl"])
@pytest.mark.parametrize("content", ["", "\n\n", "\ufeff", "  \r\n"])
def test_an_empty_file(write, suffix, content):
    assert "empty" in refusal(write(f"data.{suffix}", content))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.csv", "text,label\n"),
        ("data.tsv", "text\tlabel"),
        ("data.json", "[]"),
        ("a.json", "{}"),
        ("b.json", '{"data": []}'),
    ],
)
def test_no_rows(write, name, content):
    problem = refusal(write(name, content))
    assert "no rows" in problem
    assert ("header" in problem) == (not name.endswith("json"))


def test_parquet_without_rows_or_sense(tmp_path, write):
    assert "no rows" in refusal(write_parquet(tmp_path / "none.parquet", {"text": [], "label": []}))
    for content in (b"", b"PAR1 no, this is text"):
        assert "Parquet" in refusal(write("bad.parquet", content))


@pytest.mark.parametrize("name", ["data.csv", "data.tsv", "data.jsonl"])
def test_another_encoding(write, name):
    problem = refusal(write(name, b"text,label\nna\xefve,1\n"))
    assert "line 2, byte offset 13" in problem
    assert "UTF-8" in problem


def test_broken_utf_16(write):
    assert "UTF-16" in refusal(write("data.csv", "text,label\na,1\n".encode("utf-16")[:-1]))


def test_ragged_csv(write):
    problem = refusal(write("data.csv", 'text,label\n"two\nlines",1\na, b,1\nc\nd,0\n'))
    assert "line 4, 5: not the 2 fields" in problem


def test_ragged_tsv(write):
    problem = refusal(write("data.tsv", "text\tlabel\n" + "a\n" * 9 + "b\t1\n"))
    assert "line 2, 3, 4, 5, 6, ... (9 in all): not the 2 fields" in problem


def test_csv_with_bad_quotes(write):
    problem = refusal(write("data.csv", 'text,label\na,1\n"open,1\nb,0\n'))
    assert "line 3: a quoted field is never closed" in problem
    assert "line 2: bad quoting" in refusal(write("data.csv", 'text,label\n"a "b" c",1\n'))


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("data.json", '[\n {"text": "a", "label": 1},\n {"text": oops}\n]', "line 3 column 11"),
        ("data.json", '{"text": "a", "label": 1}\n{"text": "b" "label": 1}\n', "line 2 column 14"),
        ("data.jsonl", '{"text": "a", "label": 1}\n\n{"text": "b", "label": }\n', "line 3 column 24"),
        ("data.jsonl", "[" * 100_000, "line 1 column 1"),
        ("data.jsonl", '{"text": "a", "label": ' + "1" * 5000 + "}", "line 1 column 1"),
    ],
)
def test_malformed_json(write, name, content, place):
    problem = refusal(write(name, content))
    assert f"{place}: not valid JSON" in problem


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("data.json", '"text"', "row 1: not an object"),
        ("data.json", '[{"text": "a"}, 7]', "row 2: not an object"),
        ("data.jsonl", '{"text": "a"}\n\n[1]', "line 3: not an object"),
        ("data.json", '{"text": ["a", "b"], "label": [1]}', "different lengths"),
    ],
)
def test_json_of_another_shape(write, name, content, words):
    assert words in refusal(write(name, content))


# Refusals: the rows


def test_empty_texts_in_csv_and_tsv(write):
    lines = ["text,label", "a,1", ",0", '"  ",1', "NA,0"]
    assert "column 'text', line 3, 4: no text" in refusal(write("data.csv", "\n".join(lines)))
    many = "text\tlabel\n" + "\t1\n" * 30
    assert "line 2, 3, 4, 5, 6, ... (30 in all): no text" in refusal(write("data.tsv", many))


@pytest.mark.parametrize("value", ["null", "NaN", '""', '" \\n"'])
def test_empty_texts_in_json(write, value):
    path = write(
        "data.jsonl",
        f'{{"sentence1": "a", "sentence2": "b", "label": 1}}\n\n{{"sentence1": "a", "sentence2": {value}, "label": 0}}',
    )
    assert "column 'sentence2', line 3: no text" in refusal(path)


def test_a_key_that_a_row_lacks(write):
    path = write("data.json", '[{"text": "a", "label": 1}, {"label": 0}, {"text": "c"}]')
    problems = problems_of(read_examples, path)
    assert ["row 2: no text" in problems[0], "row 3: no label" in problems[1]] == [True, True]


@pytest.mark.parametrize("value", ["3", "[1]", "true", '"half \\ud83d"'])
def test_texts_that_are_none(write, value):
    problem = refusal(write("data.jsonl", f'{{"text": "a", "label": 1}}\n{{"text": {value}, "label": 0}}'))
    assert "line 2: not Unicode text" in problem
    assert "--text_column" in problem


def test_nulls_in_parquet(tmp_path):
    path = write_parquet(tmp_path / "data.parquet", {"text": ["a", None, "None"], "label": [1.0, 0.0, math.nan]})
    problems = problems_of(read_examples, path)
    assert "column 'text', row 2: no text" in problems[0]
    assert "column 'label', row 3: no label" in problems[1]


@pytest.mark.parametrize("cell", ["", "  ", "nan"])
@pytest.mark.parametrize("other", ["1", "2.5"])
def test_missing_labels_in_csv(write, cell, other):
    assert "column 'label', line 3: no label" in refusal(write("data.csv", f"text,label\na,{other}\nb,{cell}\nc,{other}\n"))


@pytest.mark.parametrize("value", ["null", "NaN", '""'])
def test_missing_labels_in_json(write, value):
    assert "row 1: no label" in refusal(write("data.json", f'[{{"text": "a", "label": {value}}}]'))


@pytest.mark.parametrize("value", ["[1, 2]", '{"id": 1}'])
def test_nested_labels(write, value):
    assert "row 1: a " in refusal(write("data.json", f'[{{"text": "a", "label": {value}}}]'))


def test_labels_of_another_type(tmp_path):
    import datetime

    path = write_parquet(tmp_path / "data.parquet", {"text": ["a"], "label": [datetime.date(2020, 1, 1)]})
    assert "row 1: a date as label" in refusal(path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.csv", "text,label\na,1.5\nb,inf\n"),
        ("data.csv", "text,label\na,1.5\nb,1e999\n"),
        ("data.jsonl", '{"text": "a", "label": 1.5}\n{"text": "b", "label": -Infinity}'),
        ("data.jsonl", '{"text": "a", "label": 1.5}\n{"text": "b", "label": ' + "9" * 400 + "}"),
    ],
)
def test_labels_that_are_not_finite(write, name, content):
    assert "not finite" in refusal(write(name, content))


# What is written is read

characters = st.characters(exclude_categories=["Cs"])  # half a surrogate pair has no UTF-8
any_text = st.text(characters, min_size=1, max_size=30).filter(str.strip)
tab_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), min_size=1).filter(str.strip)
word = st.text(st.characters(categories=["L"]), min_size=1, max_size=8).filter(
    lambda w: w.lower() not in ("nan", "inf", "infinity")
)
whole_number = st.integers(-(10**15) + 1, 10**15 - 1)


def rows_of(text: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.one_of(st.lists(st.tuples(text, text, label), min_size=1, max_size=6) for label in (word, whole_number))


def assert_round_trip(suffix: str, rows: list[tuple[Any, ...]]) -> None:
    texts, pairs, labels = (list(column) for column in zip(*rows, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        path = write_rows(Path(folder) / f"data{suffix}", {"sentence1": texts, "sentence2": pairs, "label": labels})
        examples, _ = read_examples(path)
    assert examples == Examples(texts, pairs, labels)
    assert {type(label) for label in examples.labels} == {type(label) for label in labels}


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl", ".parquet"])
@settings(max_examples=50, deadline=None)
@given(rows=rows_of(any_text))
def test_any_text_comes_back(suffix, rows):
    assert_round_trip(suffix, rows)


@settings(max_examples=100, deadline=None)
@given(rows=rows_of(tab_text))
def test_text_without_tabs_and_line_ends_comes_back_from_tsv(rows):
    assert_round_trip(".tsv", rows)


@settings(max_examples=100, deadline=None)
@given(content=st.one_of(st.binary(max_size=60), st.text(characters, max_size=60).map(str.encode)))
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".json", ".jsonl", ".parquet"])
def test_any_content_is_read_or_refused(suffix, content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"data{suffix}"
        path.write_bytes(content)
        problems_of(read_examples, path)  # so short and random, none has both columns


def test_starts_fast():
    heavy = ("torch", "transformers", "datasets", "pandas", "pyarrow")
    code = f"import sys, amp_recipes.local_files; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
