"""The page names every key of a real record, and the sources that a value can have."""

from __future__ import annotations

import json

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
RECORD = json.loads((ROOT / "results" / "published" / "demo.json").read_text(encoding="utf-8"))


def test_every_key_is_named():
    keys = {*RECORD, *RECORD["resolved"], *RECORD["result"], *RECORD["environment"], *RECORD["data"], *RECORD["seconds"]}
    keys |= {*RECORD["result"]["peak_memory"], *RECORD["epochs"][0]}
    assert len(keys) > 40
    assert [key for key in sorted(keys) if f"{key}`" not in PAGE and f"{key}`," not in PAGE] == []


def test_the_sources_found_are_named():
    assert {*RECORD["sources"].values()} >= {"default", "hardware"}
    assert [source for source in {*RECORD["sources"].values()} if f"`{source}`" not in PAGE] == []
