"""What the recipe's loop costs and buys: against a bare loop doing the same work, and against the stock loop.

    make bench-loop

Each measurement is a process; the two sides of a pair run one after the other, in alternating order, so that a machine whose
speed drifts drifts for both. The headline is the median of the pairs' ratios. Writes results/bench/loop.json.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from amp_recipes.precision import describe_hardware
from amp_recipes.records import environment, write_json

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "results" / "bench" / "loop.json"
COMPARISONS = {"step_time_over_bare_loop": "bare", "stock_epoch_time_over_recipe": "stock"}


def train_seconds(what: str, examples: int, size: int) -> float:
    """Run one side in a process and return the wall time of its training loop, start-up and evaluation excluded."""
    sizes = ["--global_batch_size", str(size)]
    if what != "recipe":
        command = [sys.executable, str(ROOT / "benchmarks" / "bare_loop.py"), what, "--examples", str(examples), *sizes]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        return json.loads(done.stdout.splitlines()[-1])["train_seconds"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "recipes" / "bert_glue.py"), "--output_dir", folder, *sizes]
        command += ["--model_name_or_path", "embedded", "--task_name", "reviews", "--max_train_samples", str(examples)]
        command += ["--max_eval_samples", "1", "--num_train_epochs", "1", "--max_length", "48", "--pad_to_multiple_of", "1"]
        subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        return json.loads((Path(folder) / "record.json").read_text())["seconds"]["train"]


def compare(other: str, pairs: int, examples: int, size: int) -> dict:
    """Time `pairs` pairs and return their seconds and ratios: recipe over bare loop, or stock loop over recipe."""
    rows = []
    for pair in range(pairs):
        order = ("recipe", other) if pair % 2 == 0 else (other, "recipe")
        seconds = {what: train_seconds(what, examples, size) for what in order}
        ratio = seconds["recipe"] / seconds["bare"] if other == "bare" else seconds["stock"] / seconds["recipe"]
        rows.append({**seconds, "ratio": ratio})
        print(f"  {other} pair {pair + 1} of {pairs}: {seconds}, ratio {ratio:.3f}", flush=True)
    return {"other": other, "examples": examples, "global_batch_size": size, "pairs": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--examples", type=int, default=320)
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    rows = [{"name": name, **compare(other, arguments.pairs, arguments.examples, 16)} for name, other in COMPARISONS.items()]
    headline = {row["name"]: statistics.median(pair["ratio"] for pair in row["pairs"]) for row in rows}
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    write_json(arguments.output, {"headline": headline, "rows": rows, "environment": environment(describe_hardware(device))})
    print(f"\n{'what':<32}{'median':>8}{'lowest':>8}{'highest':>9}{'pairs':>7}")
    for row in rows:
        ratios = [pair["ratio"] for pair in row["pairs"]]
        print(f"{row['name']:<32}{headline[row['name']]:>8.3f}{min(ratios):>8.3f}{max(ratios):>9.3f}{len(ratios):>7}")
    print(f"written to {arguments.output}")


if __name__ == "__main__":
    main()
