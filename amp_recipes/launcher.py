"""What started this process, and what it decided that nobody said.

Launchers fill gaps with values of their own and hand them on as if the user had said them. `accelerate launch` without a config
says mixed precision `no` and one CPU thread; torchrun says one CPU thread, and on a machine without GPUs leaves its processes
unjoined. So the launcher's own command line and environment are asked.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence

import psutil
import torch
from accelerate import PartialState
from accelerate.commands.config.config_args import (
    default_json_config_file,
    default_yaml_config_file,
    load_config_from_file,
)

from amp_recipes.errors import InputError

__all__ = ["Launcher", "find_launcher", "start_state", "stated_by_accelerate", "wanted_cpu_threads"]


@dataclasses.dataclass(frozen=True)
class Launcher:
    """The parent process.

    Attributes
    ----------
    command : tuple of str
        Its command line; empty where the system does not show it.
    environ : dict of str to str
        Its environment variables; empty where the system does not show them.
    """

    command: tuple[str, ...] = ()
    environ: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def accelerate_flags(self) -> dict[str, str] | None:
        """Return the flags of `accelerate launch` itself, dashes as underscores; None if the parent is not that."""
        position = _launch_position(self.command)
        return None if position is None else _launch_flags(self.command[position:])

    def is_torchrun(self) -> bool:
        """Whether the parent is torchrun under any of its names."""
        return any(
            os.path.basename(word) == "torchrun" or word in ("torch.distributed.run", "torch.distributed.launch")
            for word in self.command
        )


def find_launcher() -> Launcher:
    """Look at the parent process."""
    try:
        parent = psutil.Process(os.getppid())
        return Launcher(tuple(parent.cmdline()), parent.environ())
    except psutil.Error:  # another user's process, or one that has ended
        return Launcher()


def stated_by_accelerate(environ: Mapping[str, str], launcher: Launcher) -> tuple[str, str] | None:
    """Return what the accelerate config or environment says about mixed precision, and which of them; None if neither does.

    `accelerate launch` always sets ACCELERATE_MIXED_PRECISION, to "no" when nobody said anything. So a "no" counts only
    if the launch command has the flag, a config file is in force, or no `accelerate launch` stands above this process.

    Parameters
    ----------
    environ : mapping
        The environment variables.
    launcher : Launcher
        What started this process.
    """
    value = environ.get("ACCELERATE_MIXED_PRECISION")
    if not value:
        return None
    flags = launcher.accelerate_flags()
    if flags is None:
        return value, "accelerate environment"
    if "mixed_precision" in flags:
        return value, "accelerate launch"
    config_file = flags.get("config_file") or _default_config_file()
    if os.path.isfile(config_file) and load_config_from_file(config_file).mixed_precision is not None:
        return value, "accelerate config"
    return None if value == "no" else (value, "accelerate environment")


def _launch_position(command: Sequence[str]) -> int | None:
    """Return where in a command line `accelerate launch`, in any of its spellings, is followed by its flags."""
    for position, word in enumerate(command):
        name = os.path.basename(word)
        if name in ("accelerate-launch", "accelerate.commands.launch") or word.endswith("accelerate/commands/launch.py"):
            return position + 1
        if word == "launch" and any("accelerate" in os.path.basename(earlier) for earlier in command[:position]):
            return position + 1
    return None


def _launch_flags(options: Sequence[str]) -> dict[str, str]:
    """Return the flags of `accelerate launch` itself, those before the script, dashes as underscores."""
    own = list(itertools.takewhile(lambda word: not word.endswith(".py"), options))
    flags = {}
    for word, following in itertools.pairwise([*own, ""]):
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            flags[name.replace("-", "_")] = value or following
    return flags


def _default_config_file() -> str:
    return default_yaml_config_file if os.path.isfile(default_yaml_config_file) else default_json_config_file


def start_state(environ: Mapping[str, str] | None = None) -> PartialState:
    """Join the processes of this run, on CPUs where there is no accelerator, and let them use the cores.

    Without `cpu=True`, accelerate 1.15 leaves processes that torchrun started on a machine without GPUs unjoined: each trains
    alone, believes to be rank 0, and writes over the others' output.

    Raises
    ------
    InputError
        If this process still counts fewer processes than were started.
    """
    environ = os.environ if environ is None else environ
    asked_for_cpu = environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes", "y", "on", "t")
    started = int(environ.get("WORLD_SIZE", "1"))
    alone_on_cpu = started > 1 and not torch.accelerator.is_available()
    state = PartialState(cpu=asked_for_cpu or alone_on_cpu)
    if state.device.type == "cpu":
        threads = wanted_cpu_threads(environ, find_launcher(), psutil.cpu_count(logical=False) or 1)
        if threads is not None:
            torch.set_num_threads(threads)
    if state.num_processes != started:
        raise InputError(
            f"{started} processes were started and accelerate joined {state.num_processes}: they would train apart and write "
            "over each other; launch with a config of configs/accelerate, or on CPUs with ACCELERATE_USE_CPU=true torchrun"
        )
    return state


def wanted_cpu_threads(environ: Mapping[str, str], launcher: Launcher, physical_cores: int) -> int | None:
    """Return how many threads to compute with on a CPU, None to leave it as it is.

    The launcher's own single thread would leave all cores but one idle. It counts only if somebody said it: in the
    environment that the launcher itself was started with, or as its flag.
    """
    flags = launcher.accelerate_flags()
    said = "OMP_NUM_THREADS" in launcher.environ or "num_cpu_threads_per_process" in (flags or {})
    launched = flags is not None or launcher.is_torchrun()
    if not launched or said or environ.get("OMP_NUM_THREADS") != "1":
        return None
    return max(1, physical_cores // int(environ.get("LOCAL_WORLD_SIZE", "1")))
