"""A copy between host and device as a short file: pageable and pinned memory, where it is run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tracemine.columns import string_ids
from tracemine.findings.record import Finding
from tracemine.flow.record import Flow
from tracemine.verify.gpu.marks import INTERFACE
from tracemine.verify.repro.standalone import comment
from tracemine.verify.repro.text import NEEDS, folded, one_line, recorded_rows, title_text

NOT_VALIDATED = "a copy has no kernel that could be validated on a CPU"
LARGEST_BYTES = 2 << 30  # three times on the host, once on the device; larger ones move at the same rate
_LONGEST_NAME = 200


class HostCopy(NamedTuple):
    """One copy of a finding, as recorded."""

    name: str
    nbytes: int
    to_device: bool


def host_copy(finding: Finding, flow: Flow) -> HostCopy | None:
    """Return the copy of a finding's first occurrence, from or to pageable memory; None where there is none."""
    if len(finding.activities[0]) != 1:
        return None
    activities = flow.timeline.activities
    row = finding.activities[0][0]
    source, target, nbytes = (activities.column(n)[row].as_py() for n in ("source_memory", "target_memory", "bytes"))
    if {source, target} != {"pageable", "device"} or not nbytes:
        return None
    codes, names = string_ids(activities.column("name"))
    return HostCopy(names[codes[row]][:_LONGEST_NAME], nbytes, target == "device")


def copy_reproduction(finding: Finding, copy: HostCopy, fingerprint: str, says: Sequence[str] = ()) -> str:
    """Return the file that times a copy from or to pageable memory against the same from or to pinned memory.

    says: what is known of the finding, a line each.
    """
    (row,) = recorded_rows([(copy.name, None)])
    nbytes = min(copy.nbytes, LARGEST_BYTES)
    way = "to" if copy.to_device else "from"
    told = [*says, f"Copy      {nbytes:,} bytes {way} the device"]
    about = [one_line(finding.title), "", *(line for text in told for line in folded(text))]
    about += [
        "",
        "Run it:   python FILE [--json]     times it, pageable against pinned memory of the host: needs a GPU",
        NEEDS,
    ]
    return f'''"""{comment(chr(10).join(about))}
"""

from tracemine_repro import CopyCheck

CHECK = CopyCheck(
    file=__file__, interface={INTERFACE}, fingerprint="{fingerprint}",
    title={title_text(finding.title)},
    nbytes={nbytes}, to_device={copy.to_device},
    trace=[  # short name, digest of the whole name, no grid
        {row},
    ],
)
if __name__ == "__main__":
    CHECK.main()
'''
