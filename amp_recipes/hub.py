"""Is the Hub there? Asked once, briefly, before any Hub library is imported. No torch."""

from __future__ import annotations

import http.client
import os
import threading
import urllib.request
from collections.abc import MutableMapping

__all__ = ["hub_is_reachable", "work_offline"]

PROBED_FILE = "google-bert/bert-base-uncased/resolve/main/config.json"
TRUE = ("1", "true", "yes", "on")


def hub_is_reachable(environ: MutableMapping[str, str] | None = None, *, timeout: float = 3.0) -> bool:
    """Ask the Hub (or the mirror that HF_ENDPOINT names) for the head of one small file.

    Parameters
    ----------
    environ : mapping, optional
        Environment variables; HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE set to true answers False without asking.
    timeout : float
        Seconds for everything, name resolution included, which a socket's own time-out does not bound.
    """
    environ = os.environ if environ is None else environ
    if (environ.get("HF_HUB_OFFLINE") or environ.get("TRANSFORMERS_OFFLINE", "")).lower() in TRUE:  # as huggingface_hub does
        return False
    endpoint = environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    answers: list[bool] = []

    def ask() -> None:
        try:
            request = urllib.request.Request(f"{endpoint}/{PROBED_FILE}", method="HEAD")
            with urllib.request.urlopen(request, timeout=timeout) as response:
                answers.append(response.status < 400)
        except (OSError, ValueError, http.client.HTTPException):  # refused, no such host, 4xx, not HTTP, malformed endpoint
            answers.append(False)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(timeout)
    return answers == [True]


def work_offline(environ: MutableMapping[str, str] | None = None) -> None:
    """Make the Hub libraries of this process use files at hand and never retry for minutes; call before importing them."""
    environ = os.environ if environ is None else environ
    environ["HF_HUB_OFFLINE"] = "1"
