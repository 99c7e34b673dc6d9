"""What is read before torch stays light: a mistake in the arguments costs a second, not ten."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT

LIGHT = ["errors", "arguments", "levers", "batching", "records", "resume", "hub", "startup", "tasks", "labels", "local_files"]
HEAVY = ["torch", "transformers", "datasets", "accelerate", "evaluate", "pandas"]
PROGRAM = f"""
import importlib, sys
for name in {LIGHT}:
    importlib.import_module("amp_recipes." + name)
print("light:", *sorted(name for name in sys.modules if name.startswith("amp_recipes.")))
print("heavy:", *sorted(set({HEAVY}) & set(sys.modules)))
"""


def test_importing_the_light_modules_imports_nothing_heavy():
    result = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    light, heavy = result.stdout.splitlines()
    assert light.split()[1:] == sorted(f"amp_recipes.{name}" for name in LIGHT)
    assert heavy.split() == ["heavy:"]
