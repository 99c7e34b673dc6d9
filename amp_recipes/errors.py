"""The one exception for what a user can mend: wrong flags, files, folders. No torch here, nor anywhere below `records`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

__all__ = ["InputError", "exit_on_input_error"]

EXIT_CODE = 2  # what argparse, grep and most tools return for "you asked for something that can't be done"


class InputError(ValueError):
    """One or several problems in what the user gave.

    Parameters
    ----------
    *problems : str
        Each one line: what is wrong, where, and what to do.
    """

    def __init__(self, *problems: str):
        self.problems = problems
        super().__init__("\n".join(problems))


@contextlib.contextmanager
def exit_on_input_error() -> Iterator[None]:
    """Turn an `InputError` into one line a problem on stderr (once per machine) and exit code 2."""
    try:
        yield
    except InputError as error:
        if os.environ.get("LOCAL_RANK", "0") == "0":  # every rank meets the same problem; one says it
            for problem in error.problems:
                print(f"error: {problem}", file=sys.stderr)
        sys.exit(EXIT_CODE)
