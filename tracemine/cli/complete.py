"""What a shell completes: names of rules, GPUs and reports. A value that cannot be listed completes to nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tracemine.report import PERFETTO, REPORTS


def complete_report(incomplete: str) -> list[str]:
    """List the reports whose names begin so."""
    return _beginning((*REPORTS, PERFETTO), incomplete)


def complete_rule(incomplete: str) -> list[str]:
    """List the rules that come with tracemine and whose names begin so: folders, of which none is read."""
    from tracemine.matching.load import rules_directory

    return _beginning(sorted(path.parent.name for path in rules_directory().glob("*/rule.toml")), incomplete)


def complete_gpu(incomplete: str) -> list[str]:
    """List the GPUs of the device table that begin so, as words without spaces that --gpu takes: h100-sxm."""
    from tracemine.devices import devices

    return _beginning([_plain(device.title) for device in devices()], incomplete)


def _plain(title: str) -> str:
    """Return a GPU's title without its vendor, in one word.

    >>> _plain("NVIDIA A100 80 GB SXM"), _plain("AMD Instinct MI250X (one of its two dies)")
    ('a100-80-gb-sxm', 'mi250x')
    """
    product = re.sub(r"^(NVIDIA|AMD Instinct) | \(.*\)$", "", title)
    return re.sub(r"[^a-z0-9]+", "-", product.casefold())


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
