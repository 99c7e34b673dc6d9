"""Bars only where a person looks."""

from __future__ import annotations

import sys

import pytest

from amp_recipes.console import quiet_libraries


@pytest.mark.parametrize(("main", "terminal", "shown"), [(True, True, True), (True, False, False), (False, True, False)])
def test_progress_is_for_the_main_process_at_a_terminal(monkeypatch, main, terminal, shown):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    assert quiet_libraries(main) is shown
