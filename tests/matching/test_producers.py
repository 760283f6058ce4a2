"""A rule is looked for in recordings of the producers that it names, and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tracemine.causes import load_rule, load_rules
from tracemine.errors import RuleError
from tracemine.findings.environment import environment_of
from tracemine.findings.graphs.obstacles import find_obstacles
from tracemine.host.waits import waits_of
from tracemine.matching.rule import of_producer
from tracemine.pipeline import ScanOptions, analyse, mined
from tracemine.rows.host import host_calls
from tracemine.timeline import PRODUCERS, producer_of

FIXTURE = Path(__file__).parents[2] / "fixtures" / "kineto" / "chain.json.gz"


def test_rules_of_another_producer_find_nothing() -> None:
    analysis = analyse(FIXTURE)
    rules = load_rules()
    assert mined(analysis, ScanOptions(rules=rules)).findings
    others = tuple(replace(rule, producers=("xla",)) for rule in rules)
    assert not mined(analysis, ScanOptions(rules=others)).findings
    both = tuple(replace(rule, producers=("xla", "torch")) for rule in rules)
    assert mined(analysis, ScanOptions(rules=both)).findings == mined(analysis, ScanOptions(rules=rules)).findings


@pytest.mark.parametrize(
    ("format", "producer"), [("kineto", "torch"), ("nsys", "torch"), ("xla", "xla"), ("tensorrt", "tensorrt")]
)
def test_producer_and_its_fact(format: str, producer: str) -> None:
    analysis = analyse(FIXTURE)
    timeline = replace(analysis.timeline, meta=replace(analysis.timeline.meta, format=format))
    assert producer_of(timeline.meta) == producer
    assert producer in PRODUCERS
    waits = waits_of(timeline, *host_calls(timeline))
    environment = environment_of(
        timeline, analysis.rows["activities"], find_obstacles(timeline, analysis.rows["activities"], waits)
    )
    assert environment.facts["producer"] == producer
    assert environment.facts["no_torch"] is (producer != "torch")


def test_an_unknown_producer_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "rule_of_mine"
    folder.mkdir()
    text = (Path(load_rules()[0].where.path)).read_text()
    (folder / "rule.toml").write_text(f'producers = ["tensorflow"]\n{text}')
    with pytest.raises(RuleError, match="'tensorflow' is none of its values"):
        load_rule(folder)


def test_rules_hold_for_torch_where_they_name_nothing() -> None:
    assert of_producer(load_rules(), "torch")
    assert all(rule.producers for rule in load_rules())
