"""Peak memory, and which kind: *allocated* (live tensors), *reserved* (held by the caching allocator), *process*."""

from __future__ import annotations

import dataclasses
import sys

import torch

__all__ = ["GIB", "PeakMemory", "peak_memory", "reset_peak_memory"]

GIB = 1024**3  # GiB everywhere in this project; a GB is 10**9 bytes and never meant


@dataclasses.dataclass(frozen=True)
class PeakMemory:
    """Peaks in bytes since the last reset; None where the device does not tell.

    Attributes
    ----------
    allocated : int or None
        Live tensors, from the caching allocator of CUDA.
    reserved : int or None
        What that allocator held, fragmentation included.
    process : int or None
        The resident set of this process on the host, since its start: model and activations on a CPU, only the host's
        part of a GPU run.
    """

    allocated: int | None
    reserved: int | None
    process: int | None


def _resident_peak() -> int | None:
    try:
        import resource
    except ImportError:  # Windows has no getrusage
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, KiB elsewhere


def reset_peak_memory(device: torch.device) -> None:
    """Start a new measurement of allocated and reserved peaks; the process peak cannot be reset."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> PeakMemory:
    """Read the peaks since the last reset. MPS tells only current bytes, which are not a peak and so not reported."""
    if device.type == "cuda":
        allocated = torch.cuda.max_memory_allocated(device)
        return PeakMemory(allocated, torch.cuda.max_memory_reserved(device), _resident_peak())
    return PeakMemory(None, None, _resident_peak())
