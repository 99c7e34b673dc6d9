"""Flags and YAML go through one parser, every value knows its source, and refusals say what to mend."""

from __future__ import annotations

import dataclasses
from typing import Literal

import pytest

from amp_recipes.arguments import argument, build_parser, nearest, read_arguments
from amp_recipes.errors import InputError
from amp_recipes.levers import Levers, RunArguments, TextArguments

RECIPE_GROUPS = (Levers, RunArguments, TextArguments)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kitchen:
    """Kitchen: what is cooked.

    Not in the title.
    """

    dish: str = argument("soup", "what to cook", metavar="DISH")
    guests: int | None = argument(None, "how many eat")
    salt: float = argument(0.5, "share of 100% in the pot")
    heat: Literal["low", "high"] = argument("low", "of the stove")
    lid: bool = argument(False, "cook with the lid on")
    spoons: int = argument(0, "spoons on the table")

    def problems(self) -> list[str]:
        found = [f"--guests {self.guests}: must be at least 1"] if self.guests is not None and self.guests < 1 else []
        return found + ([f"--salt {self.salt:g}: too salty"] if self.salt > 1 else [])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cellar:
    """Cellar: what is drunk."""

    wine: str | None = argument(None, "which wine")

    def problems(self) -> list[str]:
        return ["--wine vinegar: is not a wine"] if self.wine == "vinegar" else []


def read(*argv: str, **options) -> Kitchen:
    return read_arguments((Kitchen, Cellar), argv, **options).groups[0]


def refused(*argv: str, **options) -> tuple[str, ...]:
    with pytest.raises(InputError) as error:
        read_arguments((Kitchen, Cellar), argv, **options)
    return error.value.problems


@pytest.fixture
def write(tmp_path):
    """Write a YAML file and return its path, as a flag takes it."""

    def to_file(text: str, name: str = "kitchen.yaml") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return to_file


# Flags


def test_defaults_stand_where_nobody_said_anything():
    arguments = read_arguments((Kitchen, Cellar), [])
    assert arguments.groups == (Kitchen(), Cellar())
    assert set(arguments.sources.values()) == {"default"}
    assert arguments.config_file is None
    assert not arguments.said("dish")


def test_saying_the_default_is_saying_something():
    arguments = read_arguments((Kitchen, Cellar), ["--dish", "soup"])
    assert arguments.said("dish")
    assert arguments.groups[0] == Kitchen()


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["--dish", "a stew"], "dish", "a stew"),
        (["--dish=--rare"], "dish", "--rare"),
        (["--guests", "1_000"], "guests", 1000),
        (["--salt", "2e-5"], "salt", 2e-5),
        (["--salt", "-1"], "salt", -1.0),
        (["--heat", "high"], "heat", "high"),
        (["--lid"], "lid", True),
        (["--lid", "true"], "lid", True),
        (["--lid=Yes"], "lid", True),
        (["--lid", "false"], "lid", False),
        (["--lid", "0"], "lid", False),
        (["--lid", "--dish", "pie"], "lid", True),
    ],
)
def test_a_flag_becomes_a_value_of_its_type(argv, name, value):
    found = getattr(read(*argv), name)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--guests", "1.5"], ["--guests", "'1.5'", "whole number"]),
        (["--guests", "many"], ["--guests", "'many'"]),
        (["--salt", "much"], ["--salt", "'much'"]),
        (["--salt", "nan"], ["--salt", "finite"]),
        (["--salt=-inf"], ["--salt", "finite"]),
        (["--heat", "medium"], ["--heat", "'medium'", "low", "high"]),
        (["--lid", "maybe"], ["--lid", "'maybe'"]),
        (["--lid="], ["--lid", "''"]),
        (["--dish"], ["--dish", "argument"]),
        (["--dihs", "pie"], ["--dihs", "'--dish'"]),
        (["-salt", "1"], ["-salt", "'--salt'"]),
        (["--xyzzy=1"], ["--xyzzy"]),
        (["pie"], ["'pie'", "no flag"]),
        (["--dish", "pie", "tart"], ["'tart'", "no flag"]),
        (["--gue", "1"], ["--gue", "'--guests'"]),  # an abbreviation is an unknown flag
        (["--"], ["--"]),
    ],
)
def test_a_wrong_flag_is_refused_in_one_line_with_the_near_one(argv, parts):
    problems = refused(*argv)
    assert len(problems) == 1
    assert [part for part in parts if part not in problems[0]] == []
    assert "\n" not in problems[0]


def test_dashes_for_underscores_are_understood_in_the_suggestion():
    with pytest.raises(InputError, match=r"--learning-rate .*'--learning_rate'"):
        read_arguments(RECIPE_GROUPS, ["--learning-rate", "1"])


def test_all_unknown_flags_are_named_at_once():
    problems = refused("--dihs", "pie", "--slat", "1", "--lid")
    assert [problem.split()[2] for problem in problems] == ["--dihs", "--slat"]


def test_problems_of_all_groups_are_named_at_once():
    problems = refused("--guests", "0", "--salt", "2", "--wine", "vinegar")
    assert [problem.split()[0] for problem in problems] == ["--guests", "--salt", "--wine"]


def test_nearest_suggests_what_is_near_and_nothing_else():
    assert "'salt'" in nearest("slat", ["salt", "pepper"])
    assert nearest("xyzzy", ["salt", "pepper"]) == ""


# YAML


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("salt: 2e-5", "salt", 2e-5),  # PyYAML's own reading is the text "2e-5"
        ("dish: no", "dish", "no"),  # and of this one False
        ("dish: 007", "dish", "007"),
        ("dish: --rare", "dish", "--rare"),
        ('dish: "a: b # c"', "dish", "a: b # c"),
        ("dish: [soup, pie]", "dish", "soup,pie"),
        ("guests: 3  # a comment", "guests", 3),
        ("lid: yes", "lid", True),
        ("lid: off", "lid", False),
    ],
)
def test_yaml_is_read_as_from_a_shell(write, line, name, value):
    arguments = read_arguments((Kitchen, Cellar), ["--config", write(line)])
    assert getattr(arguments.groups[0], name) == value
    assert arguments.sources[name] == "file"


@pytest.mark.parametrize("text", ["", "# nothing", "dish: null", "dish: ~", "dish:", "dish: []"])
def test_null_and_nothing_are_not_said(write, text):
    arguments = read_arguments((Kitchen, Cellar), ["--config", write(text)])
    assert arguments.groups[0] == Kitchen()
    assert not arguments.said("dish")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("guests: many", ["--guests", "'many'"]),
        ("lid: maybe", ["--lid", "'maybe'"]),
        ("heat: medium", ["--heat", "'medium'"]),
        ("gests: 1", ["'gests'", "'guests'"]),
        ("config: other.yaml", ["'config'"]),
        ("help: true", ["'help'"]),
        ("salt: 1\nsalt: 2", ["'salt'", "twice"]),
        ("dish: {name: soup}", ["'dish'", "nested"]),
        ("dish: [[soup]]", ["'dish'", "nested"]),
        ("dish: [{name: soup}]", ["'dish'", "nested"]),
        ("? [dish]\n: soup", ["list or mapping"]),
        ("{{ dish }}: soup", ["list or mapping"]),  # a template that nobody filled in
        ("- dish", ["`name: value`", "list"]),
        ("dish", ["`name: value`", "str"]),
        ("dish: [soup", ["not YAML"]),
        ("dish: soup: pie", ["not YAML", "line 1"]),
        ("a: 1\n---\nb: 2", ["not YAML", "single document"]),
        ("dish: *soup", ["not YAML", "alias"]),
        ("dish: \x00", ["not YAML"]),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_that_names_it(write, text, parts):
    path = write(text)
    problems = refused("--config", path)
    assert len(problems) == 1
    assert [part for part in (f"--config {path}", *parts) if part not in problems[0]] == []
    assert "\n" not in problems[0]


def test_all_unknown_keys_are_named_at_once(write):
    problems = refused("--config", write("dihs: pie\nslat: 1\nlid: true"))
    assert ["'dish'" in problems[0], "'salt'" in problems[1], len(problems)] == [True, True, 2]


def test_a_file_that_is_not_text_or_not_there_is_refused(tmp_path):
    (tmp_path / "latin.yaml").write_bytes(b"dish: p\xe2t\xe9")
    for path, part in ((tmp_path / "latin.yaml", "not YAML"), (tmp_path / "none.yaml", "no such file"), (tmp_path, "no such")):
        (problem,) = refused("--config", str(path))
        assert str(path) in problem
        assert part in problem


def test_a_byte_order_mark_does_no_harm(write):
    assert read("--config", write("\ufeffdish: pie")).dish == "pie"


# Which one wins


def test_command_line_over_file_over_preset_over_default(write):
    preset = write("dish: pie\nguests: 2\nsalt: 0.1\n", "preset.yaml")
    config = write("dish: tart\nguests: 3\n", "config.yaml")
    arguments = read_arguments((Kitchen, Cellar), ["--dish", "cake", "--config", config], preset=preset)
    kitchen = arguments.groups[0]
    assert (kitchen.dish, kitchen.guests, kitchen.salt, kitchen.heat) == ("cake", 3, 0.1, "low")
    sources = {name: arguments.sources[name] for name in ("dish", "guests", "salt", "heat")}
    assert sources == {"dish": "flag", "guests": "file", "salt": "preset", "heat": "default"}
    assert arguments.config_file == config


def test_what_a_file_says_wrongly_a_flag_cannot_hide(write):
    assert "'many'" in refused("--guests", "1", "--config", write("guests: many"))[0]


def test_a_value_out_of_range_is_refused_wherever_it_stands(write):
    assert refused(preset=write("guests: 0")) == refused("--config", write("guests: 0")) == refused("--guests", "0")
    assert read("--guests", "1", "--config", write("guests: 0")).guests == 1  # nobody will use the 0


# Help


def help_text(capsys, groups, description):
    with pytest.raises(SystemExit) as stop:
        read_arguments(groups, ["--help"], description)
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_help_names_every_field_of_the_recipes(capsys):
    description = "Train 100% of a model.\n\n    accelerate launch recipe.py %d %(x)s"
    text = help_text(capsys, RECIPE_GROUPS, description)
    assert description in text
    fields = [field for group in RECIPE_GROUPS for field in dataclasses.fields(group)]
    assert len(fields) > 40
    words = " ".join(text.split())
    for field in fields:
        assert f"--{field.name} " in text
        assert " ".join(field.metadata["help"].split()) in words


def test_help_shows_titles_metavars_choices_and_defaults(capsys):
    words = " ".join(help_text(capsys, (Kitchen, Cellar), None).split())
    for part in (
        "Kitchen: what is cooked:",
        "--dish DISH what to cook [default: soup]",
        "--guests INT how many eat --salt",  # no default to show
        "share of 100% in the pot [default: 0.5]",
        "--heat {low,high}",
        "--lid [true|false] cook with the lid on --spoons",
        "spoons on the table [default: 0]",
    ):
        assert part in words
    assert "Not in the title" not in words


def test_help_wins_over_a_wrong_value_after_it():
    with pytest.raises(SystemExit):
        build_parser((Kitchen,)).parse_args(["--help", "--salt", "much"])
