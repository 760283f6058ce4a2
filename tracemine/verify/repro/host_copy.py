"""A copy between host and device as a short file: pageable and pinned memory, where it is run."""

from __future__ import annotations

from collections.abc import Sequence

from tracemine.columns import string_ids
from tracemine.findings.record import PINNED, Finding
from tracemine.flow.record import Flow
from tracemine.verdicts.candidate import Candidate
from tracemine.verify.gpu.marks import INTERFACE
from tracemine.verify.repro.standalone import comment
from tracemine.verify.repro.text import NEEDS, folded, one_line, recorded_rows, title_text

NOT_VALIDATED = "a copy has no kernel that could be validated on a CPU"
LARGEST_BYTES = 2 << 30  # three times on the host, once on the device; larger ones move at the same rate
_LONGEST_NAME = 200


Copy = tuple[str, int, bool]  # name and bytes, as recorded; whether it goes to the device


def pinned_copy(finding: Finding, flow: Flow, fingerprint: str, says: Sequence[str] = ()) -> Candidate | None:
    """Return a finding's copy through pinned memory; None where there is none. says: facts about it, a line each."""
    copy = host_copy(finding, flow)
    if copy is None:
        return None
    text = copy_reproduction(finding, copy, fingerprint, says)
    return Candidate(by=PINNED, source=text, calls=1, evidence="proven", check=NOT_VALIDATED)


def host_copy(finding: Finding, flow: Flow) -> Copy | None:
    """Return the copy of a finding's first occurrence, from or to pageable memory; None where there is none."""
    if len(finding.activities[0]) != 1 or not finding.on_gpu:  # of a gap it is what follows
        return None
    activities = flow.timeline.activities
    row = finding.activities[0][0]
    source, target, nbytes = (activities.column(n)[row].as_py() for n in ("source_memory", "target_memory", "bytes"))
    if {source, target} != {"pageable", "device"} or not nbytes:
        return None
    codes, names = string_ids(activities.column("name"))
    return names[codes[row]][:_LONGEST_NAME], nbytes, target == "device"


def copy_reproduction(finding: Finding, copy: Copy, fingerprint: str, says: Sequence[str] = ()) -> str:
    """Return the file that times a copy from or to pageable memory next to the same from or to pinned memory.

    says: what is known of the finding, a line each.
    """
    name, nbytes, to_device = copy
    (row,) = recorded_rows([(name, None)])
    nbytes = min(nbytes, LARGEST_BYTES)
    way = "to" if to_device else "from"
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
    nbytes={nbytes}, to_device={to_device},
    trace=[  # short name, digest of the whole name, no grid
        {row},
    ],
)
if __name__ == "__main__":
    CHECK.main()
'''
