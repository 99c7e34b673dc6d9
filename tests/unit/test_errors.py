"""What a user can mend ends in one line a problem and exit code 2; anything else stays an error."""

from __future__ import annotations

import pickle

import pytest

from amp_recipes.errors import InputError, exit_on_input_error


def test_problems_are_kept_apart_and_survive_pickling():
    error = InputError("--seed x: not a number", "--task_name mrcp: unknown")
    assert error.problems == ("--seed x: not a number", "--task_name mrcp: unknown")
    assert str(error).splitlines() == list(error.problems)
    assert isinstance(error, ValueError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # worker processes hand errors over so


def test_one_line_a_problem_and_exit_code_2(capsys):
    with pytest.raises(SystemExit) as stop, exit_on_input_error():
        raise InputError("first", "second")
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.err == "error: first\nerror: second\n"
    assert captured.out == ""


@pytest.mark.parametrize(("local_rank", "lines"), [("0", 1), ("1", 0), ("7", 0)])
def test_one_process_a_machine_says_it_and_all_stop(monkeypatch, capsys, local_rank, lines):
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    with pytest.raises(SystemExit) as stop, exit_on_input_error():
        raise InputError("wrong")
    assert stop.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == lines


@pytest.mark.parametrize("error", [ValueError("ours is a ValueError, too"), KeyError("k"), KeyboardInterrupt()])
def test_other_errors_pass_through(error):
    with pytest.raises(type(error)) as raised, exit_on_input_error():
        raise error
    assert raised.value is error


def test_nothing_happens_without_an_error(capsys):
    with exit_on_input_error():
        value = 1
    assert value == 1
    assert capsys.readouterr().err == ""
