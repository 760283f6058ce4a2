"""What is asked of every scan, as one record of texts: the command line, Python, agents and fleets make it in one way.

It travels to other processes as JSON; the files that it names are read there.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from tracemine import verdicts
from tracemine.causes import load_rules
from tracemine.devices import Device, device_named
from tracemine.errors import UsageError
from tracemine.matching.rule import selected
from tracemine.perfmodel import of_this_user, read_measured
from tracemine.pipeline import ScanOptions
from tracemine.units import Threshold, parse_threshold


class ScanSettings(Struct, frozen=True, kw_only=True):
    """Settings of a scan, named like the options of the command line. Errors name the option.

    >>> ScanSettings(min_saving="much").options()
    Traceback (most recent call last):
    tracemine.errors.UsageError: --min-saving: 'much' is not a time
      hint: write a time or a share of the trace: 0.1ms, 50us, 1%
    """

    gpu: str | None = None
    rules: tuple[str, ...] = ()  # folders
    rule: tuple[str, ...] = ()  # names or patterns; none: all
    skip: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()  # files and folders of verdicts
    min_saving: str | None = None
    calibration: str | None = None
    why_not: bool = False

    def options(self, *, of_this_machine: bool = True) -> tuple[ScanOptions, tuple[str, ...]]:
        """Return what the pipeline is asked, and what was left out of the files that are named.

        of_this_machine: whether the user's own calibrations are used. Raises TracemineError for what cannot be used.
        """
        rules = selected(load_rules(*self.rules), self.rule, self.skip)
        device = None if self.gpu is None else _device(self.gpu)
        threshold = None if self.min_saving is None else _threshold(self.min_saving)
        evidence = verdicts.read_evidence([*map(Path, self.evidence)]) if self.evidence else None
        named = () if self.calibration is None else (read_measured(Path(self.calibration)),)
        own, unread = of_this_user() if of_this_machine else ((), ())
        asked = ScanOptions(
            rules=rules,
            device=device,
            threshold=threshold,
            evidence=evidence,
            why_not=self.why_not,
            calibrations=(*named, *own),
        )
        return asked, (*unread, *(() if evidence is None else evidence.notes))


def _device(name: str) -> Device:
    try:
        return device_named(name)
    except UsageError as error:
        raise UsageError(f"--gpu: {error.message}", hint=error.hint) from None


def _threshold(text: str) -> Threshold:
    try:
        return parse_threshold(text)
    except ValueError as error:
        hint = "write a time or a share of the trace: 0.1ms, 50us, 1%"
        raise UsageError(f"--min-saving: {error}", hint=hint) from None
