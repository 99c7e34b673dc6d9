"""The record: one JSON object for one run: what was asked, what was resolved, where, and what came out. No torch.

The schema is described in `docs/records.md`; `SCHEMA_VERSION` rises when a key changes its meaning or goes away.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from amp_recipes.arguments import Arguments

__all__ = [
    "RECORD_NAME",
    "SCHEMA_VERSION",
    "Record",
    "Throughput",
    "environment",
    "read_record",
    "summary_table",
    "write_json",
]

SCHEMA_VERSION = 1
RECORD_NAME = "record.json"
PACKAGES = ("amp-recipes", "torch", "accelerate", "transformers", "datasets", "evaluate", "numpy")


def _git(*arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return None  # not a checkout, or no git: the record then says null
    return result.stdout.strip()


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def environment(hardware: Mapping[str, Any]) -> dict[str, Any]:
    """Describe where a run happens: versions, platform, the commit of this checkout, and `hardware` as the caller found it."""
    # an installed copy may lie inside somebody else's checkout, whose commit says nothing about this code
    is_checkout = _git("rev-parse", "--show-toplevel") == str(Path(__file__).resolve().parent.parent)
    status = _git("status", "--porcelain") if is_checkout else None
    return {
        "versions": _versions(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "hardware": dict(hardware),
        "commit": _git("rev-parse", "HEAD") if is_checkout else None,
        "uncommitted_changes": None if status is None else bool(status),
    }


def write_json(path: str | os.PathLike[str], content: Any) -> None:
    """Write JSON aside and rename, so that a reader never meets half a file. NaN becomes null, as JSON has none."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".tmp")
    aside.write_text(json.dumps(_without_nan(content), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    aside.replace(path)


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, Mapping):
        return {str(key): _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value


@dataclasses.dataclass
class Record:
    """A run's record while it grows; `write` may be called at any time.

    Attributes
    ----------
    recipe : str
        Name of the script.
    arguments : dict
        Every argument with the value in force.
    sources : dict
        Where each value came from: flag, file, preset, accelerate config, accelerate environment, hardware, default.
    resolved : dict
        What follows from the arguments: device, world size, micro-batch, accumulation, windows, warm-up, scaler.
    environment : dict
        See `environment`.
    data : dict
        Name, sizes and fingerprint of the examples.
    """

    recipe: str
    arguments: dict[str, Any]
    sources: dict[str, str]
    resolved: dict[str, Any] = dataclasses.field(default_factory=dict)
    environment: dict[str, Any] = dataclasses.field(default_factory=dict)
    data: dict[str, Any] = dataclasses.field(default_factory=dict)
    epochs: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    result: dict[str, Any] = dataclasses.field(default_factory=dict)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    status: str = "running"
    started: str = dataclasses.field(default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat("T", "seconds"))
    command: str = dataclasses.field(default_factory=lambda: shlex.join(sys.argv))
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def begin(cls, recipe: str, arguments: Arguments, resolved: dict[str, Any], data: dict[str, Any]) -> Record:
        """Start the record of a run from its arguments and what was resolved from them."""
        groups = {type(group).__name__: dataclasses.asdict(group) for group in arguments.groups}
        return cls(recipe, groups, dict(arguments.sources), resolved, data=data)

    def flat_arguments(self) -> dict[str, Any]:
        """Return every argument by its own name, without groups and without those left out, as trackers want it."""
        values = {name: value for group in self.arguments.values() for name, value in group.items()}
        return {name: value for name, value in values.items() if value is not None}

    def announcement(self) -> str:
        """Say what will run: what was asked for, what was resolved, each with its source."""
        said = [
            (name, value) for name, value in self.flat_arguments().items() if self.sources[name] not in ("default", "hardware")
        ]
        rows = [(name, f"{value}  ({self.sources[name]})") for name, value in said if name != "mixed_precision"]
        resolved = self.resolved
        hardware = self.environment.get("hardware", {})
        rows += [
            ("mixed_precision", f"{resolved['mixed_precision']}  ({self.sources['mixed_precision']})"),
            ("device", f"{hardware.get('name') or hardware.get('device')}"),
            ("examples", ", ".join(f"{split['examples']} {name}" for name, split in self.data["splits"].items())),
            (
                "window",
                f"{resolved['global_batch_size']} examples: {resolved['world_size']} device(s), each "
                f"{resolved['micro_batches_per_window']} micro-batch(es) of at most {resolved['micro_batch_size']}",
            ),
            ("optimizer steps", f"{resolved['windows']}, {resolved['warmup_steps']} of them warm-up"),
        ]
        return summary_table(rows)

    def add_epoch(self, epoch: int, metrics: Mapping[str, Mapping[str, float]], **values: float | None) -> None:
        """Add the metrics of an epoch, by evaluation set, and whatever else belongs to it."""
        self.epochs.append({"epoch": epoch, **values, "metrics": {name: dict(found) for name, found in metrics.items()}})

    def epoch_line(self) -> str:
        """Say the last epoch in one line."""
        last = self.epochs[-1]
        found = [f"{name} {_metrics_text(metrics)}" for name, metrics in last["metrics"].items()]
        loss = last["train_loss"]
        return f"epoch {last['epoch']}: train loss {'none' if loss is None else f'{loss:.4f}'}; {'; '.join(found)}"

    def finish(self, progress: Any, throughput: Mapping[str, float], peak: Any, primary_metric: str) -> None:
        """Fill in the result: metrics of the last epoch, steps, throughput, peak memory."""
        self.status = "finished"
        self.result = {
            "metrics": self.epochs[-1]["metrics"] if self.epochs else {},
            "primary_metric": primary_metric,
            "optimizer_steps": progress.windows_done - progress.skipped_steps,
            "skipped_steps": progress.skipped_steps,
            **throughput,
            "peak_memory": dataclasses.asdict(peak),
        }

    def table(self) -> str:
        """Lay out what a person wants to know at the end."""
        result = self.result
        rows = [(name, _metrics_text(metrics)) for name, metrics in result["metrics"].items()]
        rows.append(("optimizer steps", f"{result['optimizer_steps']}, and {result['skipped_steps']} skipped"))
        rows.append(
            ("throughput", f"{result['examples_per_second']:.1f} examples/s, {result['tokens_per_second']:.0f} tokens/s")
        )
        for kind, peak in result["peak_memory"].items():
            if peak is not None:
                rows.append((f"peak {kind}", f"{peak / 1024**3:.2f} GiB"))
        rows.append(("time", ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.seconds.items())))
        rows.append(("written to", str(self.flat_arguments()["output_dir"])))
        return summary_table(rows)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the wall time of the block to `seconds[name]`, also when it raises."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def write(self, output_dir: str | os.PathLike[str]) -> None:
        """Write `record.json` into `output_dir`."""
        write_json(Path(output_dir) / RECORD_NAME, dataclasses.asdict(self))


def _metrics_text(metrics: Mapping[str, float | None]) -> str:
    # None: not a number, as read back from JSON
    return ", ".join(f"{name} {'nan' if value is None else f'{value:.4f}'}" for name, value in metrics.items())


@dataclasses.dataclass
class Throughput:
    """Examples and tokens that this process trained on since it started.

    Attributes
    ----------
    examples, tokens : int
        Padding does not count.
    padded_tokens : int
        Padding counts.
    """

    examples: int = 0
    tokens: int = 0
    padded_tokens: int = 0

    def add(self, micro_batch: Any) -> None:
        """Count a micro-batch."""
        self.examples += micro_batch.examples
        self.tokens += micro_batch.tokens
        self.padded_tokens += micro_batch.padded_tokens

    def gather(self, train_seconds: float) -> dict[str, float]:
        """Sum over ranks and divide by the wall time of training on this one; rates of 0 if nothing was trained."""
        from accelerate.utils import gather_object

        counts = gather_object([dataclasses.astuple(self)])
        examples, tokens, padded = (sum(column) for column in zip(*counts, strict=True))
        return {
            "examples_per_second": examples / train_seconds if train_seconds else 0.0,
            "tokens_per_second": tokens / train_seconds if train_seconds else 0.0,
            "padding_share": 1 - tokens / padded if padded else 0.0,
        }


def read_record(output_dir: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Read the record of a folder; None if it holds none of ours."""
    try:
        content = json.loads((Path(output_dir) / RECORD_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and "schema_version" in content and "recipe" in content else None


def summary_table(rows: Sequence[tuple[str, str]]) -> str:
    """Lay out what a person wants to know at the end: two aligned columns."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)
