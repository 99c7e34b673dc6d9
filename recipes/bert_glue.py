"""Fine-tune a BERT-family model on a GLUE task, on your own files, or on embedded reviews.

    accelerate launch recipes/bert_glue.py
    accelerate launch recipes/bert_glue.py --task_name mrpc --model_name_or_path google-bert/bert-large-uncased
    accelerate launch recipes/bert_glue.py --train_file train.csv --validation_file dev.csv --mixed_precision fp16
    accelerate launch recipes/bert_glue.py --config configs/presets/reviews_minilm.yaml --micro_batch_size 8

With no argument: BERT-large on MRPC if the Hub answers, else the embedded 6-layer MiniLM on embedded review sentences.

Levers: what they buy and cost
    --mixed_precision            half-size activations, fast matrix units; fp16 needs the loss scaler, bf16 does not
    --activation_checkpointing   keeps a block's input only; costs a second forward pass of that block
    --micro_batch_size           activations shrink with it; the global batch, and so the gradient, stays what it is
    --group_by_length            less padding; the order of examples is less random
    --attn_implementation        sdpa does not keep the attention matrix, eager does
    --dtype bfloat16             halves weights, gradients and optimizer state; costs accuracy

Refuses (exit code 2, before a model is loaded, nothing written): unknown flags, keys, tasks and files; data without labels,
sentences or a second class; settings out of range or at odds; an output folder with other files; a checkpoint of another run.

What this is not: a general trainer. A new task is a row in amp_recipes/tasks.py; another loss or loop is a copy of this file.
"""

import sys
from contextlib import nullcontext
from pathlib import Path

from amp_recipes.errors import exit_on_input_error
from amp_recipes.startup import start_text_recipe
from amp_recipes.tasks import load_text_data

RECIPE = "bert_glue"
PRESETS = Path(__file__).resolve().parent.parent / "configs" / "presets"

# Arguments and data are read before torch is imported: a mistake in them costs a second, not ten.
with exit_on_input_error():
    STARTUP = start_text_recipe(sys.argv[1:], recipe=RECIPE, description=__doc__, presets=PRESETS)
    LEVERS, RUN, TEXT = STARTUP.arguments.groups
    DATA = load_text_data(TEXT, RUN.seed)

import torch
from accelerate import Accelerator
from accelerate.utils import send_to_device, set_seed
from tqdm import tqdm

from amp_recipes.batching import epoch_windows
from amp_recipes.checkpointing import apply_checkpointing
from amp_recipes.console import quiet_libraries
from amp_recipes.launcher import start_state
from amp_recipes.memory import peak_memory, reset_peak_memory
from amp_recipes.metrics import GlueMetric, primary_metric
from amp_recipes.models import load_classifier, tokenize
from amp_recipes.optim import build_optimizer, build_scheduler
from amp_recipes.precision import build_accelerator, describe_hardware, loss_scale
from amp_recipes.records import Record, Throughput, environment
from amp_recipes.resolve import resolve_text_run
from amp_recipes.resume import Progress, clear_output_dir, is_due, read_facts, save_checkpoint
from amp_recipes.windows import PadToLongest, WindowDataset, evaluation_loader, window_loader


def main() -> None:
    """Resolve, build, loop, evaluate, record."""
    # Resolve: what can be refused is refused here, before weights are loaded and before anything is written
    with exit_on_input_error():
        state = start_state()
        show_progress = quiet_libraries(state.is_main_process)
        resolved = resolve_text_run(STARTUP, DATA, state)
    record = Record.begin(RECIPE, STARTUP.arguments, resolved.describe(), DATA.describe())
    record.sources["mixed_precision"] = resolved.precision.source
    record.environment = environment(describe_hardware(state.device))
    accelerator = build_accelerator(
        LEVERS, resolved.precision.value, log_with=resolved.trackers or None, project_dir=RUN.output_dir
    )
    for line in (*STARTUP.notices, record.announcement(), resolved.precision.note):
        if line:
            accelerator.print(line)

    # Build
    with record.phase("tokenize"), accelerator.main_process_first():
        train = tokenize(DATA.train, resolved.tokenizer, resolved.max_length, description="tokenize train")
        held_out = {
            name: tokenize(split, resolved.tokenizer, resolved.max_length, description=f"tokenize {name}")
            for name, split in DATA.evaluations.items()
        }
    with record.phase("load model"), exit_on_input_error():
        set_seed(RUN.seed)  # the new head is the same on every rank ...
        model = load_classifier(TEXT, LEVERS, resolved.config)
        checkpointed = apply_checkpointing(model, resolved.checkpointing)
        set_seed(RUN.seed, device_specific=True)  # ... and dropout is not
    # nothing is written before the weights are there: a model that does not load leaves an earlier result as it was
    if accelerator.is_main_process:
        clear_output_dir(RUN.output_dir, resuming=STARTUP.goes_on)
        record.write(RUN.output_dir)
    accelerator.wait_for_everyone()
    progress = Progress()
    optimizer = build_optimizer(model, RUN)
    scheduler = build_scheduler(optimizer, RUN, total=resolved.windows, warmup=resolved.warmup, progress=progress)
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.register_for_checkpointing(progress, scheduler)
    if STARTUP.resume_from is not None:
        accelerator.load_state(str(STARTUP.resume_from))
        record.epochs = read_facts(STARTUP.resume_from)["epochs"]
    if resolved.trackers:
        accelerator.init_trackers(RECIPE, config=record.flat_arguments())
    pad = PadToLongest(resolved.tokenizer, LEVERS.pad_to_multiple_of, resolved.position_limit)
    loading = {"workers": resolved.workers, "pin_memory": resolved.pin_memory}
    evaluations = {
        name: accelerator.prepare(evaluation_loader(split, RUN.per_device_eval_batch_size, pad, **loading))
        for name, split in held_out.items()
    }
    record.resolved |= {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "blocks": checkpointed.blocks,
        "checkpointed_blocks": list(checkpointed.checkpointed),
        "scaler": accelerator.scaler.state_dict() if accelerator.scaler is not None else None,
    }
    lengths = [len(ids) for ids in train["input_ids"]]
    throughput = Throughput()
    reset_peak_memory(accelerator.device)

    # Loop
    for epoch in range(progress.epoch, RUN.num_train_epochs):
        if progress.windows_done >= resolved.windows and progress.window == 0:
            break  # max_train_steps ended it with the epoch before
        windows = epoch_windows(
            lengths, LEVERS.global_batch_size, seed=RUN.seed, epoch=epoch, group_by_length=LEVERS.group_by_length
        )
        windows = windows[: progress.window + resolved.windows - progress.windows_done]  # max_train_steps may end it early
        dataset = WindowDataset(
            train, windows[progress.window :], resolved.micro_batch_size, pad, state.process_index, state.num_processes
        )
        model.train()
        with record.phase("train"):
            for window in tqdm(window_loader(dataset, **loading), f"epoch {epoch}", disable=not show_progress):
                window_loss = torch.zeros((), device=accelerator.device)
                for position, micro_batch in enumerate(window, start=1):
                    inputs = send_to_device(micro_batch.inputs, accelerator.device, non_blocking=True)
                    # ranks exchange gradients once a window, with its last micro-batch; DDP looks in the forward already
                    with nullcontext() if position == len(window) else accelerator.no_sync(model):
                        loss = model(**inputs).loss
                        accelerator.backward(loss * micro_batch.weight)
                    window_loss += loss.detach() * micro_batch.weight
                    throughput.add(micro_batch)

                if RUN.max_grad_norm > 0:
                    accelerator.clip_grad_norm_(model.parameters(), RUN.max_grad_norm)  # unscales first
                scale = loss_scale(accelerator)
                optimizer.step()
                optimizer.zero_grad()
                skipped = scale is not None and loss_scale(accelerator) < scale
                if not skipped:
                    scheduler.step()
                progress.window_done(window_loss, skipped=skipped)

                if resolved.trackers and progress.windows_done % RUN.logging_steps == 0:
                    values = {"train_loss": accelerator.reduce(window_loss, "mean").item(), "epoch": epoch}
                    values |= {"learning_rate": scheduler.get_last_lr()[0], "loss_scale": scale}
                    accelerator.log({k: v for k, v in values.items() if v is not None}, step=progress.windows_done)
                if is_due(RUN.checkpointing_steps, progress.windows_done):
                    name = f"step_{progress.windows_done}"
                    save_checkpoint(accelerator, RUN.output_dir, name, resolved.facts, progress, record.epochs)
            train_loss = progress.mean_loss(accelerator)

        # Evaluate
        with record.phase("evaluate"):
            metrics = {
                name: evaluate(accelerator, model, tqdm(loader, f"evaluate {name}", disable=not show_progress))
                for name, loader in evaluations.items()
            }
        record.add_epoch(epoch, metrics, train_loss=train_loss, learning_rate=scheduler.get_last_lr()[0])
        accelerator.print(record.epoch_line())
        if resolved.trackers:
            values = {f"{split}/{name}": value for split, found in metrics.items() for name, value in found.items()}
            accelerator.log(values, step=progress.windows_done)
        progress.epoch_done()
        if RUN.checkpointing_steps == "epoch":
            save_checkpoint(accelerator, RUN.output_dir, f"epoch_{epoch}", resolved.facts, progress, record.epochs)

    # Record
    with record.phase("save"):
        unwrapped = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
        if accelerator.is_main_process:
            unwrapped.save_pretrained(RUN.output_dir)
            resolved.tokenizer.save_pretrained(RUN.output_dir)
    totals = throughput.gather(record.seconds.get("train", 0.0))
    record.finish(progress, totals, peak_memory(accelerator.device), primary_metric(DATA.metric))
    if accelerator.is_main_process:
        record.write(RUN.output_dir)
    accelerator.print(record.table())
    accelerator.end_training()


@torch.no_grad()
def evaluate(accelerator: Accelerator, model: torch.nn.Module, batches: tqdm) -> dict[str, float]:
    """Score one held-out set; each example counts once, over however many ranks."""
    model.eval()
    metric = GlueMetric(config_name=DATA.metric)
    counted = 0
    for batch in batches:
        labels = batch.pop("labels")
        logits = model(**batch).logits.float()
        predictions = logits.argmax(dim=-1) if DATA.label_names else logits[:, 0]
        predictions, references = accelerator.gather_for_metrics((predictions, labels))
        metric.add_batch(predictions=predictions, references=references)
        counted += len(references)
    expected = len(batches.iterable.dataset)
    if counted != expected:  # gather_for_metrics keeps duplicates without a word when it fails
        raise RuntimeError(f"evaluated {counted} examples of {expected}: the metric would be wrong")
    return metric.compute(num_labels=len(DATA.label_names) or None)


if __name__ == "__main__":
    main()
