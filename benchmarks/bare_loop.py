"""Two loops to compare the recipe with, each a process of its own; prints the seconds of its training loop as JSON.

    python benchmarks/bare_loop.py bare  --examples 400 --global_batch_size 8
    python benchmarks/bare_loop.py stock --examples 400 --global_batch_size 8

`bare` does the recipe's very work (same windows, same padding, same optimizer, same precision) in plain PyTorch. `stock` is
what most scripts do: fp32, random batches, padded to the longest sentence of each, the default AdamW.
"""

import argparse
import json
import time

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding
from transformers.utils import logging

from amp_recipes.batching import epoch_windows, learning_rate_factor
from amp_recipes.levers import TextArguments
from amp_recipes.models import tokenize
from amp_recipes.precision import choose_mixed_precision
from amp_recipes.tasks import embedded_model, load_text_data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("style", choices=("bare", "stock"))
    parser.add_argument("--examples", type=int, required=True)
    parser.add_argument("--global_batch_size", type=int, required=True)
    arguments = parser.parse_args()
    size, seed = arguments.global_batch_size, 42
    logging.set_verbosity_error()
    logging.disable_progress_bar()

    text = TextArguments(task_name="reviews", max_train_samples=arguments.examples, max_eval_samples=1)
    tokenizer = AutoTokenizer.from_pretrained(embedded_model())
    tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True
    examples = tokenize(load_text_data(text, seed).train, tokenizer, 48, description="tokenize")
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_pretrained(embedded_model(), num_labels=2, dtype=torch.float32).train()
    pad = DataCollatorWithPadding(tokenizer)
    if arguments.style == "bare":
        lengths = [len(ids) for ids in examples["input_ids"]]
        windows = epoch_windows(lengths, size, seed=seed, epoch=0, group_by_length=True)
        loader = DataLoader(examples, batch_sampler=windows, collate_fn=pad)
        device_type = "cuda" if torch.cuda.is_available() else "cpu"
        bf16 = choose_mixed_precision(torch.device(device_type)) == "bf16"
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    else:
        loader = DataLoader(examples, batch_size=size, shuffle=True, collate_fn=pad)
        device_type, bf16 = "cpu", False
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    steps = len(loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate_factor("linear", step, total=steps, warmup=steps // 10)
    )

    start = time.perf_counter()
    for batch in loader:
        with torch.autocast(device_type, torch.bfloat16, enabled=bf16):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    print(json.dumps({"train_seconds": time.perf_counter() - start, "steps": steps}))


if __name__ == "__main__":
    main()
