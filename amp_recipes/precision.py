"""Every dtype decision: which mixed precision, who decided it, the Accelerator that carries it, and the loss scale.

Two traps of accelerate 1.15 are closed here. It trains fp32 without a word when fp16 is asked for on a CPU, so the scaler and
autocast are set before `prepare`. And `accelerate launch` without a config tells the script `no`, just as if the user had
said it, so the launcher's own command line is asked whether anybody did.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import psutil
import torch
from accelerate import Accelerator, PartialState
from accelerate.commands.config.config_args import (
    default_json_config_file,
    default_yaml_config_file,
    load_config_from_file,
)
from accelerate.utils import GradientAccumulationPlugin, GradScalerKwargs

from amp_recipes.errors import InputError
from amp_recipes.levers import Levers, scaler_without_fp16

__all__ = [
    "MixedPrecision",
    "build_accelerator",
    "choose_mixed_precision",
    "cpu_has_native_bf16",
    "describe_hardware",
    "loss_scale",
    "resolve_mixed_precision",
    "start_state",
    "stated_by_accelerate",
]

ACCELERATE_VARIABLE = "ACCELERATE_MIXED_PRECISION"


@dataclasses.dataclass(frozen=True)
class MixedPrecision:
    """The precision in force, who decided it, and what the user should know about it.

    Attributes
    ----------
    value : {"no", "fp16", "bf16"}
        What autocast computes in.
    source : str
        flag, file, preset, accelerate config, accelerate environment or hardware.
    note : str or None
        A warning in one line, such as "emulated, so slow".
    """

    value: str
    source: str
    note: str | None = None


def cpu_has_native_bf16(capabilities: Mapping[str, Any] | None = None) -> bool:
    """Whether this CPU multiplies bf16 itself (AVX512-BF16, AMX, Arm BF16); elsewhere torch emulates it, many times slower."""
    found = torch.cpu.get_capabilities() if capabilities is None else capabilities
    return any(found.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16", "arm_bf16", "sve_bf16"))


def stated_by_accelerate(environ: Mapping[str, str], launcher: Sequence[str]) -> tuple[str, str] | None:
    """Return what the accelerate config or environment says about mixed precision, and which of them; None if neither does.

    `accelerate launch` always sets ACCELERATE_MIXED_PRECISION, to "no" when nobody said anything. So a "no" counts only
    if the launch command has the flag, a config file is in force, or no `accelerate launch` stands above this process.

    Parameters
    ----------
    environ : mapping
        The environment variables.
    launcher : sequence of str
        The command line of the parent process, empty if it can't be read.
    """
    value = environ.get(ACCELERATE_VARIABLE)
    if not value:
        return None
    position = _launch_position(launcher)
    if position is None:
        return value, "accelerate environment"
    flags = _launch_flags(launcher[position:])
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
    """Join the processes of this run, on CPUs where there is no accelerator.

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
    if state.num_processes != started:
        raise InputError(
            f"{started} processes were started and accelerate joined {state.num_processes}: they would train apart and write "
            "over each other; launch with a config of configs/accelerate, or on CPUs with ACCELERATE_USE_CPU=true torchrun"
        )
    return state


def launcher_command() -> list[str]:
    """Return the command line of the process that started this one; empty where the system does not show it."""
    try:
        return psutil.Process(os.getppid()).cmdline()
    except psutil.Error:
        return []


def choose_mixed_precision(device: torch.device) -> str:
    """Choose by hardware: real bf16, else fp16 on a GPU; on a CPU bf16 only if it is native."""
    if device.type == "cuda":
        # the default also counts emulation, which Turing cards answer with yes (pytorch PR 115924)
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    if device.type == "cpu":
        return "bf16" if cpu_has_native_bf16() else "no"
    return {"mps": "fp16", "xpu": "bf16"}.get(device.type, "no")


def resolve_mixed_precision(
    levers: Levers, source: str, device: torch.device, *, stated: tuple[str, str] | None
) -> MixedPrecision:
    """Decide: what was said (flag or file), else accelerate's config or environment, else the hardware.

    Parameters
    ----------
    levers : Levers
        `mixed_precision` None means that nobody said it; `dtype` bfloat16 means no autocast at all.
    source : str
        Who said `levers.mixed_precision`.
    device : torch.device
        Where training will run.
    stated : tuple of str or None
        See `stated_by_accelerate`.

    Raises
    ------
    InputError
        If the device can't do it, or scaler flags are given and the answer is not fp16.
    """
    if levers.mixed_precision is not None:
        value = levers.mixed_precision
    elif levers.dtype == "bfloat16":
        value, source = "no", "--dtype bfloat16"
    elif stated is not None:
        value, source = stated
    else:
        value, source = choose_mixed_precision(device), "hardware"
    if value not in ("no", "fp16", "bf16"):
        raise InputError(f"mixed precision {value} (from {source}): these recipes do no, fp16 and bf16; choose one of them")
    if levers.scaler_settings() and value != "fp16":
        raise InputError(scaler_without_fp16(levers, f"{value} (from {source})"))
    return MixedPrecision(value, source, _check_device(value if levers.dtype == "float32" else "bf16", device))


def _check_device(value: str, device: torch.device) -> str | None:
    if device.type == "cuda" and value == "bf16":
        if not torch.cuda.is_bf16_supported():
            raise InputError("bf16: this GPU can't compute it; say --mixed_precision fp16")
        if not torch.cuda.is_bf16_supported(including_emulation=False):
            return "this GPU emulates bf16 and is slow at it; --mixed_precision fp16 uses its tensor cores"
    if device.type == "cpu" and value == "bf16" and not cpu_has_native_bf16():
        return "this CPU emulates bf16, many times slower than fp32; --mixed_precision no is the fast choice here"
    if device.type == "cpu" and value == "fp16" and not torch.cpu.get_capabilities().get("avx512_fp16", False):
        return "this CPU emulates fp16, many times slower than fp32; good for rehearsing a GPU run, not for training"
    return None


def build_accelerator(levers: Levers, mixed_precision: str, **options: Any) -> Accelerator:
    """Build the Accelerator with the scaler that the levers ask for; accumulation stays ours (see `amp_recipes.batching`).

    Parameters
    ----------
    levers : Levers
        Their scaler settings reach the real GradScaler.
    mixed_precision : {"no", "fp16", "bf16"}
        As resolved.
    **options
        Passed on, such as `log_with` and `project_dir`.
    """
    settings: dict[str, Any] = levers.scaler_settings()
    accelerator = Accelerator(
        mixed_precision=mixed_precision,
        kwargs_handlers=[GradScalerKwargs(**settings)] if settings else None,
        # a plugin, because ACCELERATE_GRADIENT_ACCUMULATION_STEPS overrides the plain argument and would divide the loss again
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
        step_scheduler_with_optimizer=False,
        **options,
    )
    if mixed_precision == "fp16" and accelerator.device.type == "cpu":
        # accelerate 1.15 leaves both unset on a CPU and trains fp32; must come before prepare()
        accelerator.native_amp = True
        accelerator.scaler = torch.amp.GradScaler("cpu", **settings)
    return accelerator


def loss_scale(accelerator: Accelerator) -> float | None:
    """Return the scaler's current scale, None without a scaler. A step that lowers it was skipped.

    (`accelerator.optimizer_step_was_skipped` can't tell under a fused optimizer, which looks at the overflow itself.)
    """
    return None if accelerator.scaler is None else accelerator.scaler.get_scale()


def describe_hardware(device: torch.device) -> dict[str, Any]:
    """Describe the device for the record: name, total memory in bytes, compute capability, native bf16."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return {
            "device": "cuda",
            "name": properties.name,
            "total_memory": properties.total_memory,
            "compute_capability": f"{properties.major}.{properties.minor}",
            "native_bf16": torch.cuda.is_bf16_supported(including_emulation=False),
        }
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities()
        return {
            "device": "cpu",
            "name": capabilities.get("cpu_name"),
            "total_memory": psutil.virtual_memory().total,
            "threads": torch.get_num_threads(),
            "vector_extension": torch.backends.cpu.get_cpu_capability(),
            "native_bf16": cpu_has_native_bf16(capabilities),
        }
    return {"device": device.type, "name": device.type}
