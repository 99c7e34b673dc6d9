"""Peaks are of the kind that they say."""

from __future__ import annotations

import pytest
import torch

from amp_recipes.memory import GIB, peak_memory, reset_peak_memory


def test_the_cpu_tells_the_process_peak_in_bytes_and_nothing_else():
    reset_peak_memory(torch.device("cpu"))
    before = peak_memory(torch.device("cpu"))
    assert (before.allocated, before.reserved) == (None, None)
    size = int(0.25 * GIB)
    block = torch.ones(before.process + size, dtype=torch.uint8)  # larger than all that was there at once
    after = peak_memory(torch.device("cpu"))
    assert block.numel() <= after.process <= block.numel() + before.process + size


@pytest.mark.gpu
def test_cuda_tells_allocated_and_reserved():
    device = torch.device("cuda")
    reset_peak_memory(device)
    block = torch.ones(GIB // 4, device=device)
    peak = peak_memory(device)
    assert peak.allocated >= block.numel() * 4
    assert peak.reserved >= peak.allocated
