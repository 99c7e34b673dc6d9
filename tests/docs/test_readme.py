"""Every command of the README and of the recipes' docstrings runs, cut to one step; every page it links to is there."""

from __future__ import annotations

import json
import re
import shlex

import datasets
import pytest

from amp_recipes.arguments import read_yaml
from amp_recipes.records import Record
from tests.conftest import RECIPE, ROOT, write_reviews

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```bash\n(.*?)```", README, re.DOTALL)
COMMANDS = [line for block in BLOCKS for line in block.splitlines() if line and not line.startswith("#")]
LAUNCHES = [line for line in COMMANDS if line.startswith("accelerate launch")]
MAKES = [line for line in COMMANDS if line.startswith("make ")]
DOCSTRING = re.findall(r"^    (accelerate launch .*)$", RECIPE.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_command_was_found():
    assert len(LAUNCHES) == 13
    assert len(MAKES) == 2
    assert len(DOCSTRING) == 4
    assert len(COMMANDS) == len(LAUNCHES) + len(MAKES)


def recipe_flags(command: str) -> list[str]:
    words = shlex.split(command)
    return words[words.index("recipes/bert_glue.py") + 1 :]


@pytest.mark.parametrize("command", sorted({*LAUNCHES, *DOCSTRING}))
def test_a_launch_command_runs(run_recipe, tiny_bert, tmp_path, monkeypatch, command):
    """In this process, for one step, with a tiny model where the command names one of the Hub."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    write_reviews(tmp_path / "train.csv", 12, 0), write_reviews(tmp_path / "dev.csv", 6, 1)
    monkeypatch.setattr(datasets, "load_dataset", fake_glue)
    flags = [str(tiny_bert) if "/" in word and not word.endswith(".yaml") else word for word in recipe_flags(command)]
    short = [
        "--max_train_samples",
        12,
        "--max_eval_samples",
        6,
        "--max_train_steps",
        1,
        "--max_length",
        16,
        "--ignore_mismatched_sizes",
    ]
    if "latest" in flags:  # the command goes on from what the one before it left
        prepared = [word for word in flags if word not in ("--resume_from_checkpoint", "latest")]
        assert run_recipe(*prepared, *short, "--checkpointing_steps", 1).exit_code == 0
    outcome = run_recipe(*flags, *short)
    assert outcome.exit_code == 0, outcome.err
    assert outcome.record["status"] == "finished"


def fake_glue(path: str, task: str) -> dict[str, datasets.Dataset]:
    from amp_recipes.tasks import GLUE

    assert path == "nyu-mll/glue"
    row = GLUE[task]
    count = 3 * len(row.label_names)
    columns = {name: ["a good film"] * count for name in (row.text, row.text_pair) if name}
    table = datasets.Dataset.from_dict({**columns, "label": [i % len(row.label_names) for i in range(count)]})
    return dict.fromkeys(("train", *row.evaluation_splits), table)


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    mentioned = set(re.findall(r"`?make ([a-z-]+)", README)) - {"install"}
    assert len(mentioned) >= 4
    for target in mentioned:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_linked_pages_exist():
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if not link.startswith("http")]
    assert len(links) >= 4
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_flags_named_in_prose_exist():
    from amp_recipes.arguments import build_parser
    from amp_recipes.levers import Levers, RunArguments, TextArguments

    known = build_parser((Levers, RunArguments, TextArguments)).format_help()
    launcher = {"--num_processes", "--config_file", "--quiet", "--help"}
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "recipes" / "README.md"]
    for page in pages:
        named = set(re.findall(r"--[a-z_]+", page.read_text(encoding="utf-8"))) - launcher
        assert [flag for flag in named if f"{flag} " not in known] == [], page.name


def test_the_configuration_files_named_exist():
    named = re.findall(r"configs/[a-z_/]+\.yaml", README)
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_demo_table_is_that_of_its_record():
    content = json.loads((ROOT / "results" / "published" / "demo.json").read_text(encoding="utf-8"))
    (table,) = re.findall(r"```text\n(.*?)\n```", README, re.DOTALL)
    assert table == Record(**content).table()
    assert content["status"] == "finished"
    preset = read_yaml(ROOT / "configs" / "presets" / "reviews_minilm.yaml")
    used = {name: value for group in content["arguments"].values() for name, value in group.items()}
    assert {
        name: float(value) if name != "model_name_or_path" and name != "task_name" else value for name, value in preset.items()
    } == {name: used[name] for name in preset}
