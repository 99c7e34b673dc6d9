"""Every dtype decision: which mixed precision, who decided it, the Accelerator that carries it, and the loss scale.

accelerate 1.15 trains fp32 without a word when fp16 is asked for on a CPU; here the scaler and autocast are set before
`prepare`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import psutil
import torch
from accelerate import Accelerator
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
]


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
        See `amp_recipes.launcher.stated_by_accelerate`.

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
