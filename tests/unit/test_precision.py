"""Who decides the precision, and that what was decided reaches autocast and the scaler."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from amp_recipes.errors import InputError
from amp_recipes.levers import Levers
from amp_recipes.precision import (
    build_accelerator,
    choose_mixed_precision,
    cpu_has_native_bf16,
    loss_scale,
    resolve_mixed_precision,
)
from tests.conftest import reset_accelerate

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def fresh_accelerate():
    reset_accelerate()
    yield
    reset_accelerate()


def test_a_flag_beats_accelerate_and_accelerate_beats_the_hardware():
    stated = ("bf16", "accelerate config")
    said = resolve_mixed_precision(Levers(mixed_precision="no"), "flag", CPU, stated=stated)
    assert (said.value, said.source) == ("no", "flag")
    silent = resolve_mixed_precision(Levers(), "default", CPU, stated=stated)
    assert (silent.value, silent.source) == ("bf16", "accelerate config")
    alone = resolve_mixed_precision(Levers(), "default", CPU, stated=None)
    assert (alone.value, alone.source) == ("bf16" if cpu_has_native_bf16() else "no", "hardware")


@pytest.mark.parametrize(("native", "expected"), [(True, "bf16"), (False, "fp16")])
def test_a_gpu_takes_bf16_only_if_it_is_real(monkeypatch, native, expected):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or native)
    assert choose_mixed_precision(CUDA) == expected


def test_emulated_bf16_on_a_gpu_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    answer = resolve_mixed_precision(Levers(mixed_precision="bf16"), "flag", CUDA, stated=None)
    assert "emulates" in str(answer.note)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: False)
    with pytest.raises(InputError, match="fp16"):
        resolve_mixed_precision(Levers(mixed_precision="bf16"), "flag", CUDA, stated=None)


@pytest.mark.parametrize(
    ("capabilities", "native"),
    [({"avx512_bf16": True}, True), ({"amx_bf16": True}, True), ({"avx512_f": True, "avx2": True}, False), ({}, False)],
)
def test_a_cpu_takes_bf16_only_if_it_is_native(capabilities, native):
    assert cpu_has_native_bf16(capabilities) is native


def test_the_capability_names_are_still_torch_s():
    """On x86 the two names that decide must be known to torch; another spelling would read as "no bf16" for ever."""
    capabilities = torch.cpu.get_capabilities()
    if capabilities.get("architecture") != "x86_64":
        pytest.skip("the names are checked on x86_64")
    assert {"avx512_bf16", "amx_bf16", "avx512_fp16"} <= set(capabilities)


def test_scaler_flags_without_fp16_are_refused_whoever_decided():
    levers = Levers(init_scale=1024.0)
    with pytest.raises(InputError, match=r"--init_scale.*bf16 \(from accelerate config\)"):
        resolve_mixed_precision(levers, "default", CPU, stated=("bf16", "accelerate config"))
    assert resolve_mixed_precision(levers, "default", CPU, stated=("fp16", "accelerate config")).value == "fp16"


def test_fp8_from_the_config_is_refused():
    with pytest.raises(InputError, match="fp8"):
        resolve_mixed_precision(Levers(), "default", CPU, stated=("fp8", "accelerate config"))


def test_pure_bf16_needs_no_autocast():
    answer = resolve_mixed_precision(Levers(dtype="bfloat16"), "default", CPU, stated=("fp16", "accelerate config"))
    assert answer.value == "no"


def test_scaler_settings_reach_the_real_scaler():
    levers = Levers(mixed_precision="fp16", init_scale=512.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7)
    scaler = build_accelerator(levers, "fp16").scaler
    assert scaler.is_enabled()
    assert scaler.get_scale() == 512.0
    assert scaler.get_growth_factor() == 3.0
    assert scaler.get_backoff_factor() == 0.25
    assert scaler.get_growth_interval() == 7


@pytest.mark.parametrize("value", ["no", "bf16"])
def test_no_scaler_without_fp16(value):
    accelerator = build_accelerator(Levers(), value)
    assert accelerator.scaler is None
    assert loss_scale(accelerator) is None


@pytest.mark.parametrize(("value", "dtype"), [("no", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_the_forward_really_computes_in_that_dtype_and_weights_stay_fp32(value, dtype):
    """accelerate 1.15 alone computes fp32 when asked for fp16 on a CPU."""
    accelerator = build_accelerator(Levers(), value)
    seen = []
    inner = nn.Linear(4, 4)
    inner.register_forward_hook(lambda module, args, output: seen.append(output.dtype))
    model = nn.Sequential(inner, nn.Linear(4, 2))
    model = accelerator.prepare(model)
    output = model(torch.randn(3, 4))
    assert seen == [dtype]
    assert output.dtype == torch.float32  # accelerate casts what leaves the model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("fused", [True, False])
def test_a_skipped_step_shows_in_the_scale_and_changes_nothing(fused):
    accelerator = build_accelerator(Levers(init_scale=2.0**16, growth_interval=1), "fp16")
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
    model, optimizer = accelerator.prepare(model, optimizer)
    start = model.weight.detach().clone()

    def step(factor: float) -> bool:
        accelerator.backward(model(torch.ones(2, 4)).sum() * factor)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        before = loss_scale(accelerator)
        optimizer.step()
        optimizer.zero_grad()
        return loss_scale(accelerator) < before

    assert step(float("inf")) is True
    assert torch.equal(model.weight, start)
    assert loss_scale(accelerator) == 2.0**15
    assert step(1e-3) is False
    assert not torch.equal(model.weight, start)
    assert loss_scale(accelerator) == 2.0**16  # growth_interval 1


def test_accumulation_from_the_environment_cannot_divide_the_loss_again(monkeypatch):
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "8")
    accelerator = build_accelerator(Levers(), "no")
    weight = torch.ones((), requires_grad=True)
    accelerator.backward(weight * 3.0)
    assert weight.grad.item() == 3.0
