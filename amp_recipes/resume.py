"""Stopping and going on: what a checkpoint says of itself, which one to take, and whether it fits this run. No torch.

The training state itself (weights, optimizer, scaler, random states) is written by `Accelerator.save_state`. Beside it lies
`run.json`, because that state does not say under which precision, world size or global batch it was made, and loading it
under another one fails late or, worse, passes.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from amp_recipes.errors import InputError
from amp_recipes.records import read_record, write_json

__all__ = [
    "Progress",
    "check_checkpoint",
    "clear_output_dir",
    "find_checkpoint",
    "is_due",
    "prepare_output_dir",
    "read_facts",
    "save_checkpoint",
]

FACTS_NAME = "run.json"
CHECKPOINT_PATTERN = re.compile(r"(step|epoch)_\d+")


@dataclasses.dataclass
class Progress:
    """Where a run stands; saved with every checkpoint through `Accelerator.register_for_checkpointing`.

    Attributes
    ----------
    epoch, window : int
        The next window to train: its epoch, and its index in that epoch.
    windows_done : int
        Windows consumed, skipped steps included.
    skipped_steps : int
        Windows whose optimizer step the scaler skipped. They moved neither weights nor LR.
    loss_sum, loss_windows : float or 0-d tensor, int
        Sum of the losses of the current epoch's applied windows, for its mean. A tensor while it grows, so that no
        window waits for the device.
    """

    epoch: int = 0
    window: int = 0
    windows_done: int = 0
    skipped_steps: int = 0
    loss_sum: Any = 0.0
    loss_windows: int = 0

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, so that `torch.load(weights_only=True)` takes them."""
        return {**dataclasses.asdict(self), "loss_sum": float(self.loss_sum)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set every field; a missing or unknown one raises."""
        names = {field.name for field in dataclasses.fields(self)}
        if set(state) != names:
            raise ValueError(f"progress with the fields {sorted(state)}, expected {sorted(names)}")
        for name, value in state.items():
            setattr(self, name, value)

    def window_done(self, loss: Any, *, skipped: bool) -> None:
        """Move past a window; a skipped one's loss may be infinite and is left out of the mean."""
        self.window += 1
        self.windows_done += 1
        if skipped:
            self.skipped_steps += 1
        else:
            self.loss_sum = self.loss_sum + loss
            self.loss_windows += 1

    def mean_loss(self, accelerator: Any) -> float | None:
        """Return the mean loss of the epoch so far over its windows and all ranks, None if none was applied."""
        if not self.loss_windows:
            return None
        loss = self.loss_sum / self.loss_windows
        return float(accelerator.reduce(loss, "mean")) if hasattr(loss, "device") else float(loss)

    def epoch_done(self) -> None:
        """Move to the first window of the next epoch."""
        self.epoch += 1
        self.window = self.loss_windows = 0
        self.loss_sum = 0.0


def checkpoints(output_dir: Path) -> list[Path]:
    """Return the whole checkpoints in a folder, oldest first by windows done; one without `run.json` was cut off."""
    found = [
        path for path in output_dir.glob("*_*") if CHECKPOINT_PATTERN.fullmatch(path.name) and (path / FACTS_NAME).is_file()
    ]
    return sorted(found, key=lambda path: read_facts(path)["windows_done"])


def read_facts(path: Path) -> dict[str, Any]:
    """Read what a checkpoint says of itself: the facts of its run, `windows_done`, and the record's `epochs` so far."""
    try:
        facts = json.loads((path / FACTS_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        facts = None
    if not isinstance(facts, dict) or "windows_done" not in facts:
        raise InputError(f"{path}: its {FACTS_NAME} is not that of a checkpoint of these recipes; remove or rename the folder")
    return facts


def find_checkpoint(output_dir: str, asked: str | None) -> Path | None:
    """Find the folder to resume from, or None if nobody asked.

    Raises
    ------
    InputError
        If there is none, or the folder is not a checkpoint.
    """
    if asked is None:
        return None
    if asked == "latest":
        found = checkpoints(Path(output_dir))
        if not found:
            raise InputError(
                f"--resume_from_checkpoint latest: no checkpoint in {output_dir}; it is written with "
                "--checkpointing_steps N|epoch"
            )
        return found[-1]
    path = Path(asked)
    if not (path / FACTS_NAME).is_file():
        problem = "is not a checkpoint of these recipes (it has no run.json)" if path.exists() else "does not exist"
        raise InputError(f"--resume_from_checkpoint {asked}: {problem}")
    return path


def check_checkpoint(path: Path, facts: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose run differs from this one in anything that the numbers depend on.

    Raises
    ------
    InputError
        One line for each fact that differs.
    """
    saved = read_facts(path)
    raise_on = [
        f"{path}: made with {name} {saved.get(name)!r}, this run has {value!r}; "
        f"start again without --resume_from_checkpoint, or give the same {name}"
        for name, value in facts.items()
        if saved.get(name) != value
    ]
    if raise_on:
        raise InputError(*raise_on)


def prepare_output_dir(output_dir: str, *, recipe: str, overwrite: bool, resuming: bool) -> str | None:
    """Check that a run may write here. Nothing is touched.

    Returns
    -------
    str or None
        A line to print if an earlier result will be replaced.

    Raises
    ------
    InputError
        If the folder holds what this recipe did not write, or checkpoints that a fresh run would mix with its own.
    """
    path = Path(output_dir)
    if path.exists() and not path.is_dir():
        raise InputError(f"--output_dir {output_dir}: is a file; name a folder")
    if not path.exists() or not any(path.iterdir()) or overwrite or resuming:
        return None
    record = read_record(path)
    if record is None or record["recipe"] != recipe:
        raise InputError(
            f"--output_dir {output_dir}: holds files that this recipe did not write; name another folder, or say "
            "--overwrite_output_dir"
        )
    kept = checkpoints(path)
    if kept:
        raise InputError(
            f"--output_dir {output_dir}: holds checkpoints of an earlier run ({kept[-1].name} the latest); go on with "
            "--resume_from_checkpoint latest, or drop them with --overwrite_output_dir"
        )
    return f"{output_dir} holds an earlier run of this recipe ({record['started']}); it will be replaced at the end"


def clear_output_dir(output_dir: str, *, resuming: bool) -> None:
    """Make the folder, and remove checkpoints of an earlier run unless this one goes on from them."""
    path = Path(output_dir)
    path.mkdir(parents=True, exist_ok=True)
    for found in path.glob("*_*"):
        leftover = found.name.endswith(".tmp")  # of a run that was killed while it wrote
        is_ours = leftover or (not resuming and (found / FACTS_NAME).is_file())  # another's folder may have the name
        if found.is_dir() and CHECKPOINT_PATTERN.fullmatch(found.name.removesuffix(".tmp")) and is_ours:
            shutil.rmtree(found)


def is_due(checkpointing_steps: str | None, windows_done: int) -> bool:
    """Whether `--checkpointing_steps N` asks for a checkpoint after this window; `epoch` and None never do."""
    return checkpointing_steps not in (None, "epoch") and windows_done % int(str(checkpointing_steps)) == 0


def save_checkpoint(
    accelerator: Any, output_dir: str, name: str, facts: Mapping[str, Any], progress: Progress, epochs: Sequence[Any]
) -> Path:
    """Save the whole training state as `output_dir/name`, written aside and renamed: what has the name is whole."""
    target = Path(output_dir) / name
    aside = target.with_name(target.name + ".tmp")
    accelerator.save_state(str(aside), safe_serialization=True)
    accelerator.wait_for_everyone()  # each rank writes its random state into the folder; none may do so after the rename
    if accelerator.is_main_process:
        write_json(aside / FACTS_NAME, {**facts, "windows_done": progress.windows_done, "epochs": epochs})
        if target.exists():
            shutil.rmtree(target)
        aside.replace(target)
    accelerator.wait_for_everyone()
    return target
