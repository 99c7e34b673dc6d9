"""What a recipe settles before torch is imported: defaults by what is at hand, the output folder, the checkpoint. No torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from amp_recipes.arguments import Arguments, read_arguments
from amp_recipes.errors import InputError
from amp_recipes.hub import hub_is_reachable, work_offline
from amp_recipes.levers import Levers, RunArguments, TextArguments
from amp_recipes.resume import find_checkpoint, prepare_output_dir
from amp_recipes.tasks import INSTALL_EMBEDDED, REVIEWS, check_task_name, embedded_is_installed

__all__ = ["Startup", "start_text_recipe"]

HUB_MODEL, HUB_TASK = "google-bert/bert-large-uncased", "mrpc"
HUB_PRESET, EMBEDDED_PRESET = "mrpc_bert_large.yaml", "reviews_minilm.yaml"


@dataclasses.dataclass(frozen=True)
class Startup:
    """A run's arguments with the gaps filled.

    Attributes
    ----------
    arguments : Arguments
        Groups are `Levers`, `RunArguments`, `TextArguments`; model and data are named.
    notices : tuple of str
        Lines to print: which defaults were taken and how to choose otherwise, what will be replaced.
    resume_from : Path or None
        The checkpoint folder to go on from.
    goes_on : bool
        Whether that checkpoint lies in the output folder, whose other checkpoints then belong to the same run.
    hub : {"reachable", "unreachable", "not asked"}
        What the one question gave.
    """

    arguments: Arguments
    notices: tuple[str, ...]
    resume_from: Path | None
    goes_on: bool
    hub: str


def start_text_recipe(
    argv: Sequence[str],
    *,
    recipe: str,
    description: str | None,
    presets: Path,
    reachable: Callable[[], bool] = hub_is_reachable,
) -> Startup:
    """Read the arguments of a text recipe and fill in what nobody said.

    Neither model nor data named: a preset, for BERT-large on MRPC if the Hub answers, else for the embedded parts. One of
    them named: the other is taken from where it is at hand. The Hub is asked at most once, and not at all for a run that
    needs nothing from it; where it does not answer, its libraries are told to work offline.

    Raises
    ------
    InputError
        Whatever is wrong with the arguments and folders.
    """

    def read(preset: Path | None) -> Arguments:
        return read_arguments((Levers, RunArguments, TextArguments), argv, description, preset=preset)

    arguments = read(None)
    text: TextArguments = arguments.groups[2]
    run: RunArguments = arguments.groups[1]
    check_task_name(text.task_name)
    resume_from = find_checkpoint(run.output_dir, run.resume_from_checkpoint)
    goes_on = resume_from is not None and resume_from.absolute().parent.resolve() == Path(run.output_dir).resolve()
    replaced = prepare_output_dir(run.output_dir, recipe=recipe, overwrite=run.overwrite_output_dir, resuming=goes_on)
    hub = "not asked"
    if _needs_hub(text):
        hub = "reachable" if reachable() else "unreachable"
    if hub == "unreachable" or (hub == "not asked" and not text.trust_remote_code):  # code of a local model may lie there
        work_offline()
    arguments, choice = _fill_defaults(arguments, read, presets, hub == "reachable")
    return Startup(arguments, tuple(line for line in (choice, replaced) if line), resume_from, goes_on, hub)


def _needs_hub(text: TextArguments) -> bool:
    model_is_local = text.model_name_or_path == "embedded" or Path(text.model_name_or_path or "").is_dir()
    data_is_local = text.train_file is not None or text.task_name == REVIEWS
    return not (text.model_name_or_path and model_is_local and data_is_local)


def _fill_defaults(
    arguments: Arguments, read: Callable[[Path | None], Arguments], presets: Path, hub: bool
) -> tuple[Arguments, str | None]:
    text: TextArguments = arguments.groups[2]
    has_model, has_data = text.model_name_or_path is not None, bool(text.task_name or text.train_file)
    if has_model and has_data:
        return arguments, None
    if not hub and not embedded_is_installed():
        raise InputError(
            f"the Hub does not answer and the embedded model and data are not installed; run `{INSTALL_EMBEDDED}` once, or "
            "give --model_name_or_path DIR with --train_file and --validation_file"
        )
    if not has_model and not has_data:
        filled = read(presets / (HUB_PRESET if hub else EMBEDDED_PRESET))
        what = (
            f"the Hub default, {HUB_MODEL} on {HUB_TASK}"
            if hub
            else "the embedded default, a 6-layer MiniLM on review sentences (the Hub does not answer)"
        )
        return filled, f"Using {what}; choose with --model_name_or_path and --task_name, or --train_file"
    if not has_model:
        text = dataclasses.replace(text, model_name_or_path=HUB_MODEL if hub else "embedded")
        line = f"Using model {text.model_name_or_path}; choose with --model_name_or_path"
    else:
        text = dataclasses.replace(text, task_name=HUB_TASK if hub else REVIEWS)
        line = f"Using task {text.task_name}; choose with --task_name or --train_file"
    filled_in = "task_name" if has_model else "model_name_or_path"
    return dataclasses.replace(
        arguments, groups=(*arguments.groups[:2], text), sources=arguments.sources | {filled_in: "preset"}
    ), line
