"""A scan as one side of a comparison: its findings with what each costs a step."""

from __future__ import annotations

from pathlib import PurePath

from tracemine.comparison.record import ComparedSide, ComparedTrace, Item
from tracemine.findings.labels import class_of
from tracemine.findings.record import Finding, PerStep, Scan, Source, Variant

_MOST_SHAPES = 64  # of a finding; that two sides have none of so many in common is no accident


def side_of(scan: Scan) -> ComparedSide:
    """Return what comparing needs of a scan. Times are means over its steps, or over the trace where it has none."""
    summary, steps = scan.summary, scan.trace.steps
    step = summary.per_step if steps else None
    return ComparedSide(
        about=ComparedTrace(
            trace=_name(scan.trace.path),
            format=scan.trace.format,
            gpu=scan.trace.gpu,
            steps=0 if step is None else steps,
            span_ns=summary.span_ns if step is None else step.span_ns,
            gpu_busy_ns=summary.gpu_busy_ns if step is None else step.gpu_busy_ns,
            unprofiled_ns=summary.unprofiled_ns if step is None else step.unprofiled_ns,
            span_spread_ns=None if step is None else step.span_spread_ns,
            gpu_busy_spread_ns=None if step is None else step.gpu_busy_spread_ns,
            recorded=scan.recorded,
        ),
        spent=scan.spent,
        items=tuple(_item(finding, 0 if step is None else steps) for finding in scan.findings),
    )


def _name(path: str) -> str:
    """Return the file's name; of a folder, and of a file that is called as every capture's is, the one above as well.

    >>> _name("/home/me/runs/before.json.gz"), _name("/home/me/runs/before/trace.json.gz"), _name("/home/me/runs/both")
    ('before.json.gz', 'before/trace.json.gz', 'runs/both')
    >>> _name("/home/me/profile/2026_11_30/node7.xplane.pb")
    '2026_11_30/node7.xplane.pb'
    """
    parts = PurePath(path).parts
    named = parts and "." in parts[-1]
    alone = named and not (parts[-1].startswith("trace.json") or ".xplane.pb" in parts[-1])  # called as the host is
    return "/".join(parts[-1:] if alone else parts[-2:]).lstrip("/")


def _item(finding: Finding, steps: int) -> Item:
    each = _each(finding, steps)
    every: tuple[Finding | Variant, ...] = (finding, *finding.variants)
    return Item(
        fingerprint=finding.fingerprint,
        aliases=finding.identity.aliases,
        variants=tuple(
            dict.fromkeys(
                name for variant in finding.variants for name in (variant.identity.finding, *variant.identity.aliases)
            )
        ),
        rule=finding.rule,
        title=finding.title,
        on_gpu=finding.on_gpu,
        reported=finding.reported,
        dtype=finding.dtype,
        module=finding.module,
        source=_source(finding.source),
        ops=tuple(dict.fromkeys(op for one in every for op in one.ops)),
        shapes=tuple(dict.fromkeys(one.shapes for one in every if one.shapes is not None))[:_MOST_SHAPES],
        measured_ns=each.measured_ns,
        gpu_saving_ns=each.gpu_saving_ns,
        step_saving_ns=each.step_saving_ns,
    )


def _each(finding: Finding, steps: int) -> PerStep:
    """Return a finding's figures of a step; where none are stored or known, its totals over so many."""
    if finding.per_step is not None and steps:
        return finding.per_step
    count = max(steps, 1)
    return PerStep(
        measured_ns=finding.measured_ns // count,
        gpu_saving_ns=finding.gpu_saving_ns // count,
        step_saving_ns=finding.step_saving_ns // count,
        share_of_unprofiled=0.0,
    )


def _source(lines: tuple[Source, ...]) -> str | None:
    """Return the innermost line, by the file's name: where a checkout lies stays private."""
    if not lines:
        return None
    return f"{PurePath(lines[0].file).name}:{lines[0].line} {lines[0].function}"


def place(item: Item) -> str | None:
    """Return the class of its module, else its file and function; None where neither was recorded."""
    if item.module is not None:
        return class_of(item.module)
    if item.source is None:
        return None
    location, _, function = item.source.partition(" ")
    return f"{location.rpartition(':')[0]} {function}"
