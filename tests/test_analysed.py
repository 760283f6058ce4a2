"""What stands in for the analysis in tests of what is said tells apart whatever makes an analysis or a scan another."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.analysed import FIXTURES, MOST, Kept
from tracemine import pipeline
from tracemine.perfmodel.user_calibrations import data_folder
from tracemine.pipeline import ScanOptions

CHAIN = FIXTURES / "kineto" / "chain.json.gz"


def test_a_recording_is_analysed_once_and_anew_where_anything_is_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = Kept(pipeline)
    first = kept.analyse(CHAIN)
    assert kept.analyse(CHAIN) is first
    assert kept.analyse(str(CHAIN)) is not first  # which a scan repeats
    copy = shutil.copy(CHAIN, tmp_path / "copy.json.gz")
    assert kept.analyse(copy) is not kept.analyse(copy)  # what a test wrote it may write again
    told = list[int]()
    assert kept.analyse(CHAIN, progress=lambda done, _: told.append(done)) is not first
    assert told
    stock = vars(pipeline)["open_trace"]
    monkeypatch.setattr(pipeline, "open_trace", lambda *given, **named: stock(*given, **named))
    assert kept.analyse(CHAIN) is not first


def test_a_scan_is_made_once_and_anew_where_anything_is_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept = Kept(pipeline)
    analysis = kept.analyse(CHAIN)
    scan = kept.mined(analysis)
    assert kept.mined(analysis) is scan
    assert kept.mined(analysis, ScanOptions(rules=())).findings == ()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    data_folder().mkdir(parents=True)
    (data_folder() / "own.json").write_text("{}")
    assert any("calibration was not used" in each for each in kept.mined(analysis).warnings)
    monkeypatch.undo()
    assert kept.mined(analysis) is scan
    assert kept.mined(pipeline.analyse(CHAIN)) is not scan


def test_those_last_asked_for_are_kept() -> None:
    kept = Kept(pipeline)
    texts = [f"{CHAIN.parent}{'/.' * n}/{CHAIN.name}" for n in range(MOST + 1)]
    found = [kept.analyse(text) for text in texts]
    assert kept.analyse(texts[-1]) is found[-1]
    assert kept.analyse(texts[0]) is not found[0]
