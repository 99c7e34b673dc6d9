"""Shared fixtures: tiny models with a real tokenizer, small data files, and the recipe run in this very process."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import random
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# before any library reads them: nothing here may reach the network, and tiny tensors gain nothing from threads
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["OMP_NUM_THREADS"] = "1"
for variable in ("ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_CPU", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
    os.environ.pop(variable, None)

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"
RECIPE = ROOT / "recipes" / "bert_glue.py"
FAMILIES = ("bert", "roberta", "distilbert", "electra", "deberta-v2", "modernbert", "gpt2")
POSITIVE = ["good", "great", "fine", "lovely", "superb"]
NEGATIVE = ["bad", "awful", "poor", "dull", "dreadful"]
NEUTRAL = ["the", "a", "film", "movie", "plot", "actor", "scene", "it", "was", "is", "and", "of", "story", "very"]


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")


@pytest.fixture(scope="session", autouse=True)
def tokenized_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["AMP_RECIPES_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    if not SHARED.is_dir():
        pytest.skip(f"the real data sets are not at {SHARED}")
    return SHARED


def make_tokenizer() -> Any:
    """A WordPiece tokenizer over the words of these tests, with BERT's special tokens."""
    from transformers import BertTokenizerFast

    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *POSITIVE, *NEGATIVE, *NEUTRAL]
    vocabulary += [word for word in (*letters, *(f"##{letter}" for letter in letters)) if word not in vocabulary]
    return BertTokenizerFast(vocab={word: index for index, word in enumerate(vocabulary)})


def tiny_config(family: str, **changes: Any) -> Any:
    """The config of a 4-layer model of a family, small enough for a step in milliseconds."""
    from transformers import AutoConfig

    sizes = {"vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
    sizes |= {"max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    if family == "distilbert":
        sizes |= {"dim": 16, "hidden_dim": 32, "n_layers": 4, "n_heads": 2}
    if family == "electra":
        sizes |= {"embedding_size": 16}
    if family == "modernbert":
        sizes |= {"cls_token_id": 2, "sep_token_id": 3, "global_attn_every_n_layers": 2}
    if family == "gpt2":
        sizes |= {"n_embd": 16, "n_layer": 4, "n_head": 2, "n_positions": 64}
    return AutoConfig.for_model(family, **sizes | changes)


def make_tiny_model(folder: Path, family: str, **changes: Any) -> Path:
    """Save a randomly initialized model of a family with a tokenizer, as a Hub model lies in a local folder."""
    import torch
    from transformers import AutoModelForSequenceClassification

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_config(tiny_config(family, **changes)).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function from a family's name to the folder of its tiny model, made on first use."""
    root, made = tmp_path_factory.mktemp("models"), {}

    def get(family: str) -> Path:
        if family not in made:
            made[family] = make_tiny_model(root / family, family)
        return made[family]

    return get


@pytest.fixture(scope="session")
def tiny_bert(tiny_models: Any) -> Path:
    return tiny_models("bert")


def write_reviews(path: Path, count: int, seed: int, *, header: tuple[str, ...] = ("sentence", "label")) -> Path:
    """Sentences whose label shows in their words, of very different lengths."""
    rng = random.Random(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        for index in range(count):
            label = index % 2
            words = rng.choices(NEUTRAL, k=rng.randint(2, 20)) + rng.choices((NEGATIVE, POSITIVE)[label], k=2)
            rng.shuffle(words)
            writer.writerow([" ".join(words), label])
    return path


@pytest.fixture(scope="session")
def review_files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Flags naming 50 training and 20 held-out sentences."""
    folder = tmp_path_factory.mktemp("reviews")
    train, validation = write_reviews(folder / "train.csv", 50, 0), write_reviews(folder / "dev.csv", 20, 1)
    return ["--train_file", str(train), "--validation_file", str(validation)]


def problems_of(call: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[str, ...]:
    """The problems of the `InputError` that a call raises, each one line."""
    from amp_recipes.errors import InputError

    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    problems = caught.value.problems
    assert all("\n" not in problem for problem in problems)
    return problems


@dataclasses.dataclass
class Outcome:
    """What running a recipe gave."""

    exit_code: int
    out: str
    err: str
    output_dir: Path

    @property
    def record(self) -> dict[str, Any]:
        return json.loads((self.output_dir / "record.json").read_text())

    def weights(self, name: str = "model.safetensors") -> dict[str, Any]:
        from safetensors.torch import load_file

        return load_file(self.output_dir / name)


def reset_accelerate() -> None:
    """accelerate keeps its state in the class; another precision in the same process needs a fresh one."""
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.fixture
def run_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `recipes/bert_glue.py` in this process, as a shell would, and return an `Outcome`."""

    def run(*flags: Any, output_dir: Path | None = None) -> Outcome:
        output_dir = output_dir or tmp_path / "out"
        argv = [str(RECIPE), "--output_dir", str(output_dir), *map(str, flags)]
        monkeypatch.setattr(sys, "argv", argv)
        reset_accelerate()
        exit_code = 0
        try:
            runpy.run_path(str(RECIPE), run_name="__main__")
        except SystemExit as stop:
            exit_code = int(stop.code or 0)
        finally:
            reset_accelerate()
        captured = capsys.readouterr()
        return Outcome(exit_code, captured.out, captured.err, output_dir)

    return run
