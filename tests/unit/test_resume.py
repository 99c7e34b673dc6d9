"""Which checkpoint is taken, whether it fits, and what of an output folder may be replaced."""

from __future__ import annotations

import json

import pytest

from amp_recipes.errors import InputError
from amp_recipes.records import Record
from amp_recipes.resume import (
    Progress,
    check_checkpoint,
    clear_output_dir,
    find_checkpoint,
    is_due,
    prepare_output_dir,
    save_checkpoint,
)

FACTS = {"precision": "bf16", "world size": 2, "seed": 42}


def make_checkpoint(folder, windows_done, **facts):
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({**FACTS, **facts, "windows_done": windows_done}))
    return folder


def refused(function, *arguments, **options) -> tuple[str, ...]:
    with pytest.raises(InputError) as error:
        function(*arguments, **options)
    return error.value.problems


# Finding and checking


def test_nobody_asked(tmp_path):
    make_checkpoint(tmp_path / "step_1", 1)
    assert find_checkpoint(str(tmp_path), None) is None


def test_latest_is_by_windows_done_and_not_by_name_or_age(tmp_path):
    for name, done in (("step_10", 10), ("epoch_0", 12), ("step_9", 9), ("step_2", 2)):
        make_checkpoint(tmp_path / name, done)
    assert find_checkpoint(str(tmp_path), "latest") == tmp_path / "epoch_0"


def test_what_was_cut_off_or_is_something_else_is_not_latest(tmp_path):
    make_checkpoint(tmp_path / "step_1", 1)
    make_checkpoint(tmp_path / "step_2.tmp", 2)
    make_checkpoint(tmp_path / "step_best", 3)
    make_checkpoint(tmp_path / "my_step_4", 4)
    (tmp_path / "step_5").mkdir()  # without run.json
    (tmp_path / "step_6").write_text("a file")
    assert find_checkpoint(str(tmp_path), "latest") == tmp_path / "step_1"


@pytest.mark.parametrize("folder", ["", "not_there"])
def test_no_checkpoint_to_go_on_from(tmp_path, folder):
    (problem,) = refused(find_checkpoint, str(tmp_path / folder), "latest")
    assert str(tmp_path / folder) in problem
    assert "--checkpointing_steps" in problem  # the remedy


def test_a_named_folder_is_taken_wherever_it_lies(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "elsewhere" / "kept", 5)
    assert find_checkpoint(str(tmp_path / "out"), str(checkpoint)) == checkpoint


def test_a_named_folder_that_is_no_checkpoint(tmp_path):
    (tmp_path / "model").mkdir()
    assert "run.json" in refused(find_checkpoint, "out", str(tmp_path / "model"))[0]
    assert "does not exist" in refused(find_checkpoint, "out", str(tmp_path / "nowhere"))[0]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"seed": 42}'])
def test_a_broken_run_json_is_refused_by_name(tmp_path, text):
    make_checkpoint(tmp_path / "step_1", 1)
    make_checkpoint(tmp_path / "step_2", 2)
    (tmp_path / "step_2" / "run.json").write_text(text)
    for problems in (refused(find_checkpoint, str(tmp_path), "latest"), refused(check_checkpoint, tmp_path / "step_2", FACTS)):
        assert len(problems) == 1
        assert str(tmp_path / "step_2") in problems[0]
        assert "run.json" in problems[0]


def test_a_checkpoint_of_the_same_run_fits(tmp_path):
    check_checkpoint(make_checkpoint(tmp_path / "step_1", 1), FACTS)


def test_each_fact_that_differs_is_named_with_both_values(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "step_1", 1)
    problems = refused(check_checkpoint, checkpoint, {**FACTS, "precision": "no", "world size": 4, "dropout": 0.1})
    assert len(problems) == 3
    for problem, parts in zip(problems, [("'bf16'", "'no'"), ("2", "4"), ("dropout", "None", "0.1")], strict=True):
        assert str(checkpoint) in problem
        assert [part for part in parts if part not in problem] == []


# The output folder


def prepare(folder, *, overwrite=False, resuming=False):
    return prepare_output_dir(str(folder), recipe="bert_glue", overwrite=overwrite, resuming=resuming)


def write_record(folder, recipe="bert_glue"):
    Record(recipe, {}, {}).write(folder)
    return folder


def test_a_new_or_empty_folder_is_fine_and_nothing_is_made(tmp_path):
    assert prepare(tmp_path / "new") is None
    assert not (tmp_path / "new").exists()
    assert prepare(tmp_path) is None


def test_an_earlier_run_is_replaced_with_a_notice(tmp_path):
    write_record(tmp_path)
    notice = prepare(tmp_path)
    assert str(tmp_path) in notice
    assert "replaced" in notice


def test_files_of_others_are_refused_with_the_ways_out(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    (problem,) = refused(prepare, tmp_path)
    assert problem.startswith(f"--output_dir {tmp_path}")
    assert "--overwrite_output_dir" in problem
    write_record(tmp_path, recipe="another_recipe")
    assert refused(prepare, tmp_path) == (problem,)


def test_checkpoints_of_an_earlier_run_are_not_mixed_with_new_ones(tmp_path):
    write_record(tmp_path)
    make_checkpoint(tmp_path / "step_3", 3)
    make_checkpoint(tmp_path / "step_12", 12)
    (problem,) = refused(prepare, tmp_path)
    for part in ("step_12", "--resume_from_checkpoint latest", "--overwrite_output_dir"):
        assert part in problem
    assert prepare(tmp_path, overwrite=True) is None
    assert prepare(tmp_path, resuming=True) is None


def test_a_file_is_no_folder_whatever_was_said(tmp_path):
    (tmp_path / "out").write_text("")
    for flags in ({}, {"overwrite": True}, {"resuming": True}):
        (problem,) = refused(prepare, tmp_path / "out", **flags)
        assert f"--output_dir {tmp_path / 'out'}" in problem
        assert "file" in problem


def test_clearing_makes_the_folder(tmp_path):
    clear_output_dir(str(tmp_path / "a" / "b"), resuming=False)
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize(("resuming", "kept"), [(False, set()), (True, {"step_1", "epoch_0"})])
def test_clearing_removes_what_runs_left_and_nothing_else(tmp_path, resuming, kept):
    make_checkpoint(tmp_path / "step_1", 1)
    make_checkpoint(tmp_path / "epoch_0", 2)
    make_checkpoint(tmp_path / "step_2.tmp", 2)  # a run was killed while it wrote these
    (tmp_path / "epoch_1.tmp").mkdir()
    foreign = {"model.safetensors", "step_file_7", "step_7", "step_8.txt", "epoch_best", "my_step_9"}
    for name in ("model.safetensors", "step_file_7", "step_8.txt"):
        (tmp_path / name).write_text("a file")
    for name in ("step_7", "epoch_best", "my_step_9"):  # no run.json
        (tmp_path / name).mkdir()
    clear_output_dir(str(tmp_path), resuming=resuming)
    assert {path.name for path in tmp_path.iterdir()} == foreign | kept


# Saving


@pytest.mark.parametrize(("asked", "due"), [(None, []), ("epoch", []), ("1", [1, 2, 3, 4, 5, 6]), ("3", [3, 6]), ("9", [])])
def test_checkpoints_are_due_every_so_many_windows(asked, due):
    assert [done for done in range(1, 7) if is_due(asked, done)] == due


class FakeAccelerator:
    """Writes one file, and notes what was called and what lay there then."""

    def __init__(self, output_dir, main: bool = True):
        self.output_dir, self.is_main_process, self.calls = output_dir, main, []

    def save_state(self, folder, safe_serialization):
        assert safe_serialization
        self.note("save_state")
        (self.output_dir / folder).mkdir(exist_ok=True)
        (self.output_dir / folder / "model.safetensors").write_text("new")

    def wait_for_everyone(self):
        self.note("wait")

    def note(self, what):
        self.calls.append((what, sorted(path.name for path in self.output_dir.iterdir())))


def save(accelerator, folder, name="step_4"):
    return save_checkpoint(accelerator, str(folder), name, FACTS, Progress(windows_done=4, skipped_steps=1), [{"epoch": 0}])


def test_a_saved_checkpoint_is_found_and_fits(tmp_path):
    target = save(FakeAccelerator(tmp_path), tmp_path)
    assert target == tmp_path / "step_4" == find_checkpoint(str(tmp_path), "latest")
    check_checkpoint(target, FACTS)
    assert json.loads((target / "run.json").read_text()) == {**FACTS, "windows_done": 4, "epochs": [{"epoch": 0}]}
    assert {path.name for path in target.iterdir()} == {"model.safetensors", "run.json"}


def test_the_folder_gets_its_name_when_every_rank_has_written_and_none_goes_on_before(tmp_path):
    accelerator = FakeAccelerator(tmp_path)
    save(accelerator, tmp_path)
    assert accelerator.calls == [("save_state", []), ("wait", ["step_4.tmp"]), ("wait", ["step_4"])]


def test_an_older_checkpoint_of_the_name_is_replaced(tmp_path):
    make_checkpoint(tmp_path / "step_4", 4)
    (tmp_path / "step_4" / "old").write_text("")
    target = save(FakeAccelerator(tmp_path), tmp_path)
    assert not (target / "old").exists()
    assert (target / "model.safetensors").read_text() == "new"


def test_other_ranks_write_their_part_and_leave_the_naming(tmp_path):
    accelerator = FakeAccelerator(tmp_path, main=False)
    save(accelerator, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step_4.tmp"]
    assert [what for what, _ in accelerator.calls] == ["save_state", "wait", "wait"]  # as often as the main process


# Progress


def test_progress_counts_windows_skips_and_epochs():
    progress = Progress()
    for loss, skipped in ((1.0, False), (float("inf"), True), (2.0, False)):
        progress.window_done(loss, skipped=skipped)
    assert (progress.window, progress.windows_done, progress.skipped_steps) == (3, 3, 1)
    assert progress.mean_loss(None) == 1.5  # a skipped window's loss does not count
    progress.epoch_done()
    assert (progress.epoch, progress.window, progress.windows_done, progress.skipped_steps) == (1, 0, 3, 1)
    assert progress.mean_loss(None) is None


def test_a_loss_on_a_device_is_averaged_over_ranks():
    class Loss(float):
        device = "cuda:0"

        def __truediv__(self, count):
            return Loss(float(self) / count)

    class Accelerator:
        def reduce(self, value, how):
            assert how == "mean"
            return value + 1  # another rank had more

    assert Progress(loss_sum=Loss(6.0), loss_windows=3).mean_loss(Accelerator()) == 3.0


def test_progress_survives_saving_as_plain_numbers():
    class Scalar:
        def __float__(self):
            return 2.5

    progress = Progress(epoch=1, window=2, windows_done=12, skipped_steps=3, loss_sum=Scalar(), loss_windows=2)
    state = json.loads(json.dumps(progress.state_dict()))
    restored = Progress()
    restored.load_state_dict(state)
    assert restored == Progress(1, 2, 12, 3, 2.5, 2)


@pytest.mark.parametrize("change", ["missing", "unknown"])
def test_progress_of_another_make_is_refused_and_changes_nothing(change):
    state = Progress(epoch=5).state_dict()
    if change == "missing":
        del state["windows_done"]
    else:
        state["steps"] = 1
    progress = Progress()
    with pytest.raises(ValueError, match="windows_done"):
        progress.load_state_dict(state)
    assert progress == Progress()
