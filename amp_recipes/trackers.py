"""Experiment trackers through Accelerate: which ones, checked before anything is built."""

from __future__ import annotations

from accelerate.tracking import get_available_trackers
from accelerate.utils import LoggerType

from amp_recipes.arguments import nearest
from amp_recipes.errors import InputError
from amp_recipes.levers import RunArguments

__all__ = ["resolve_trackers"]


def resolve_trackers(run: RunArguments) -> list[str]:
    """Return the trackers to log to: those of `report_to`, or all installed ones under `with_tracking`, or none.

    Raises
    ------
    InputError
        If a name is unknown to accelerate or its package is not installed.
    """
    if run.report_to is None and not run.with_tracking:
        return []
    known = [kind.value for kind in LoggerType if kind.value != "all"]
    installed = [str(getattr(kind, "value", kind)) for kind in get_available_trackers()]
    if run.report_to in (None, "all"):
        if not installed:
            raise InputError("--with_tracking: no tracker is installed; `pip install tensorboard` gives one")
        return installed
    asked = [name.strip() for name in str(run.report_to).split(",")]
    problems = []
    for name in asked:
        if name not in known:
            problems.append(f"--report_to {name}: unknown{nearest(name, known)}; accelerate knows {', '.join(known)}")
        elif name not in installed:
            problems.append(f"--report_to {name}: not installed; `pip install {name}`, or choose another")
    if problems:
        raise InputError(*problems)
    return asked
