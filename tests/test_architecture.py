"""Guards of the shape of this project; each says how many things it looked at, so that none can rot to nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "amp_recipes"
MODULES = sorted(path for path in PACKAGE.glob("*.py") if path.name not in ("__init__.py", "__main__.py"))
RECIPES = sorted((ROOT / "recipes").glob("*.py"))
TORCH_FREE = {
    "errors",
    "arguments",
    "levers",
    "batching",
    "records",
    "resume",
    "hub",
    "startup",
    "tasks",
    "labels",
    "local_files",
}


def names_imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_imports_go_one_way():
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout
    assert "1 kept, 0 broken" in result.stdout


def test_what_is_read_before_torch_does_not_import_it():
    assert {path.stem for path in MODULES} >= TORCH_FREE
    heavy = ("torch", "transformers", "accelerate", "evaluate")
    for name in TORCH_FREE:
        top_level = ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8")).body
        imports = {a.name for node in top_level if isinstance(node, ast.Import) for a in node.names}
        imports |= {node.module or "" for node in top_level if isinstance(node, ast.ImportFrom)}
        assert not [module for module in imports if module.split(".")[0] in heavy], name


def test_recipes_are_run_and_never_imported():
    assert not (ROOT / "recipes" / "__init__.py").exists()
    importers = [
        path
        for folder in ("amp_recipes", "recipes", "benchmarks", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if any(name.split(".")[0] == "recipes" for name in names_imported(path))
    ]
    assert importers == []


def test_recipes_stay_short_and_their_loop_in_sight():
    assert len(RECIPES) >= 1
    for path in RECIPES:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= 250, f"{path.name} has {len(lines)} lines: move mechanism to the library, not the loop"
        start = next(index for index, line in enumerate(lines) if line.strip() == "# Loop")
        end = next(index for index, line in enumerate(lines) if line.strip() == "# Record")
        assert end - start <= 80
        assert any("optimizer.step()" in line for line in lines[start:end])
        assert any("accelerator.backward(" in line for line in lines[start:end])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_module_is_small_documented_and_tested(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    assert ast.get_docstring(ast.parse(text))
    assert "__all__" in text
    assert (ROOT / "tests" / "unit" / f"test_{path.stem}.py").is_file()


def test_every_module_was_looked_at():
    assert len(MODULES) >= 19


def test_private_names_of_torch_stay_out():
    """Private torch APIs live in one module, predict.py; until it exists, nowhere."""
    offenders = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                root = node
                while isinstance(root, ast.Attribute):
                    root = root.value
                if isinstance(root, ast.Name) and root.id == "torch":
                    offenders.append(f"{path.name}: {ast.unparse(node)}")
    assert offenders == []
