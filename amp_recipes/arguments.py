"""Dataclasses to flags, and back with the source of every value. No torch.

A recipe's arguments are frozen dataclasses. Their fields become flags; `--config FILE.yaml` gives any of them through the very
same parser, so a type, a choice or an unknown name is checked once and in one way; the command line wins. A flag that nobody
gave keeps its default *and is known not to have been said*, which is what lets the accelerate config or the hardware decide.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import inspect
import os
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml

from amp_recipes.errors import InputError

__all__ = ["Arguments", "argument", "build_parser", "nearest", "read_arguments"]


def argument(default: Any, help: str, *, metavar: str | None = None) -> Any:
    """Make a dataclass field that is also a flag; `help` is its text in `--help`, in one sentence."""
    return dataclasses.field(default=default, metadata={"help": help, "metavar": metavar})


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `" (did you mean 'X'?)"` for the known name closest to `name`, or an empty string if none is close."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" (did you mean {found[0]!r}?)" if found else ""


@dataclasses.dataclass(frozen=True)
class Arguments:
    """Resolved argument groups and where each value came from.

    Attributes
    ----------
    groups : tuple
        One instance of each dataclass asked for, in that order.
    sources : dict of str to str
        Field name to `"flag"`, `"file"`, `"preset"` or `"default"`. A recipe adds what it resolves later (`"hardware"`, ...).
    config_file : str or None
        What `--config` said.
    """

    groups: tuple[Any, ...]
    sources: dict[str, str]
    config_file: str | None

    def said(self, name: str) -> bool:
        """Whether somebody gave this value; False means the default stands."""
        return self.sources[name] != "default"


class _Parser(argparse.ArgumentParser):
    """argparse that raises our error (one line, no usage dump) where it would print and exit."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}. See --help for what each flag takes")


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "yes", "1", "on"):
        return True
    if text.lower() in ("false", "no", "0", "off"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def _whole_number(text: str) -> int:
    try:
        return int(text.replace("_", ""))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if value != value or value in (float("inf"), float("-inf")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


_READERS: dict[type, Any] = {str: str, int: _whole_number, float: _number, bool: _boolean}


def _add_flag(group: argparse._ArgumentGroup, field: dataclasses.Field, annotation: Any) -> None:
    members = [a for a in typing.get_args(annotation) if a is not type(None)]
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        (annotation,) = members  # `X | None`: None is "not said" and has no spelling of its own
    default = "" if field.default in (None, "") or field.default is False else f" [default: {field.default}]"
    options: dict[str, Any] = {"help": (field.metadata["help"] + default).replace("%", "%%")}
    if typing.get_origin(annotation) is Literal:
        options |= {"choices": typing.get_args(annotation), "type": str}
    else:
        options |= {"type": _READERS[annotation], "metavar": field.metadata["metavar"] or annotation.__name__.upper()}
    if annotation is bool:
        options |= {"nargs": "?", "const": True, "metavar": "true|false"}
    group.add_argument(f"--{field.name}", **options)


def build_parser(group_types: Sequence[type], description: str | None = None) -> argparse.ArgumentParser:
    """Build the parser of a recipe: one section of `--help` a dataclass, its first docstring line as the title."""
    # abbreviations are off: `--max` must not become `--max_length` today and be ambiguous tomorrow
    parser = _Parser(
        description=description,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE.yaml", help="any of these flags as `name: value`; the command line wins")
    for group_type in group_types:
        title = (inspect.getdoc(group_type) or group_type.__name__).splitlines()[0].rstrip(".")
        section = parser.add_argument_group(title)
        annotations = typing.get_type_hints(group_type)
        for field in dataclasses.fields(group_type):
            _add_flag(section, field, annotations[field.name])
    return parser


class _AsWritten(yaml.BaseLoader):
    """Every scalar stays the text that was written: `2e-5` and `no` reach the flag's own parser, as from a shell."""


def _mapping_without_repeats(loader: yaml.BaseLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    where = f"--config {node.start_mark.name}"
    if not all(isinstance(key, yaml.ScalarNode) for key, _ in node.value):
        raise InputError(f"{where}: a list or mapping stands where a name should; every flag is one `name: value` line")
    keys = [loader.construct_object(key) for key, _ in node.value]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(f"{where}: key {key!r} is given twice; keep one")
    return {loader.construct_object(k): loader.construct_object(v, deep=True) for k, v in node.value}


_AsWritten.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping_without_repeats)


def read_yaml(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read `name: value` lines as text; lists become comma-separated, `null` and empty values are "not said".

    Raises
    ------
    InputError
        If the file is missing, is not YAML, is not a flat mapping, or gives a key twice.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"--config {path}: no such file")
    try:
        with path.open(encoding="utf-8") as file:
            content = yaml.load(file, Loader=_AsWritten)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"--config {path}: not YAML: {' '.join(str(error).split())}") from None
    if content in (None, ""):
        return {}
    if not isinstance(content, dict):
        raise InputError(f"--config {path}: expected lines of `name: value`, found a {type(content).__name__}")
    values = {}
    for key, value in content.items():
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str) for item in items):
            raise InputError(f"--config {path}: {key!r} holds a nested list or mapping; every flag is one `name: value` line")
        text = ",".join(items)
        if text not in ("", "null", "~"):
            values[key] = text
    return values


def _parse(parser: argparse.ArgumentParser, argv: Sequence[str], where: str) -> dict[str, Any]:
    known = [name for action in parser._actions for name in action.option_strings]
    try:
        values, unknown = parser.parse_known_args(list(argv))
    except InputError as error:
        raise InputError(*(f"{where}{problem}" for problem in error.problems)) from None
    problems = []
    for text in unknown:
        if text.startswith("-"):
            flag = text.split("=")[0]
            problems.append(f"{where}unknown flag {flag}{nearest(flag.replace('-', '_').replace('__', '--', 1), known)}")
        elif not problems:
            problems.append(f"{where}{text!r} belongs to no flag; values follow their flag, as in --seed 1")
    if problems:
        raise InputError(*problems)
    return vars(values)


def _file_values(parser: argparse.ArgumentParser, path: str | os.PathLike[str]) -> dict[str, Any]:
    known = [action.dest for action in parser._actions if action.dest not in ("help", "config")]
    values = read_yaml(path)
    strangers = [key for key in values if key not in known]
    if strangers:
        raise InputError(*(f"--config {path}: unknown key {key!r}{nearest(key, known)}" for key in strangers))
    return _parse(parser, [f"--{key}={value}" for key, value in values.items()], f"--config {path}: ")


def read_arguments(
    group_types: Sequence[type],
    argv: Sequence[str],
    description: str | None = None,
    *,
    preset: str | os.PathLike[str] | None = None,
) -> Arguments:
    """Read the command line and the files it names into the dataclasses `group_types`.

    Later wins: default, then `preset` (a file that the recipe chose), then `--config`, then the command line.

    Parameters
    ----------
    group_types : sequence of dataclass types
        Field names must be distinct over all of them.
    argv : sequence of str
        Without the program's name.
    preset : path, optional
        Values that stand where neither file nor command line says anything.

    Raises
    ------
    InputError
        Unknown flags and keys (with the near one), then the first wrong type, then all values that can't be at once.
    """
    parser = build_parser(group_types, description)
    flags = _parse(parser, argv, "")
    config_file = flags.pop("config", None)
    layers: list[tuple[str, Mapping[str, Any]]] = []
    if preset is not None:
        layers.append(("preset", _file_values(parser, preset)))
    if config_file is not None:
        layers.append(("file", _file_values(parser, config_file)))
    layers.append(("flag", flags))
    fields = {field.name: field.default for group in group_types for field in dataclasses.fields(group)}
    values, sources = dict(fields), dict.fromkeys(fields, "default")
    for source, layer in layers:
        values.update(layer)
        sources.update(dict.fromkeys(layer, source))
    groups = tuple(group(**{field.name: values[field.name] for field in dataclasses.fields(group)}) for group in group_types)
    problems = [problem for group in groups for problem in group.problems()]
    if problems:
        raise InputError(*problems)
    return Arguments(groups, sources, config_file)
