"""What a terminal shows: progress bars where somebody looks, the libraries' chatter nowhere."""

from __future__ import annotations

import logging
import sys

import datasets
import transformers

__all__ = ["quiet_libraries"]


def quiet_libraries(is_main_process: bool) -> bool:
    """Set the libraries' bars and log levels; return whether this process should show progress bars.

    Bars are for a person at a terminal: one process, and only if stderr is a terminal. transformers' table of newly
    initialized head weights is what fine-tuning means, so its warnings are off; errors stay.
    """
    show_progress = is_main_process and sys.stderr.isatty()
    if not show_progress:
        datasets.disable_progress_bars()
        transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    return show_progress
