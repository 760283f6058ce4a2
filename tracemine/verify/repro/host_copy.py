"""A copy between host and device as a file that stands alone: pageable memory beside pinned, where it is run."""

from __future__ import annotations

from typing import NamedTuple

from tracemine.columns import string_ids
from tracemine.findings.record import Finding
from tracemine.flow.record import Flow
from tracemine.verify.repro.standalone import file_text
from tracemine.verify.repro.text import EMBEDDED, IMPORTS

NOT_PROVED = "a copy has no kernel that could be proved on a CPU"
LARGEST_BYTES = 2 << 30  # three times on the host, once on the device; larger ones move at the same rate
COPY_EMBEDDED = {**EMBEDDED, "How a copy is looked at": ("verify/gpu/host_copy.py",)}
_LONGEST_NAME = 200


class HostCopy(NamedTuple):
    """One copy of a finding, as recorded."""

    name: str
    nbytes: int
    to_device: bool


def host_copy(finding: Finding, flow: Flow) -> HostCopy | None:
    """The copy that a finding is of, in its first occurrence, from or to pageable memory; None where there is none."""
    if len(finding.activities[0]) != 1:
        return None
    activities = flow.timeline.activities
    row = finding.activities[0][0]
    source, target, nbytes = (activities.column(n)[row].as_py() for n in ("source_memory", "target_memory", "bytes"))
    if {source, target} != {"pageable", "device"} or not nbytes:
        return None
    codes, names = string_ids(activities.column("name"))
    return HostCopy(names[codes[row]][:_LONGEST_NAME], nbytes, target == "device")


def copy_reproduction(finding: Finding, copy: HostCopy, fingerprint: str) -> str:
    """The file that times a copy from or to pageable memory beside the same from or to pinned memory."""
    says = f"{finding.title} ({fingerprint})\n\nThe same bytes, copied from or to pinned memory of the host."
    parts = [
        f"# What the trace has: a copy of so many bytes, to the device or from it.\n"
        f"NBYTES, TO_DEVICE = {min(copy.nbytes, LARGEST_BYTES)}, {copy.to_device}\nTRACE = [({copy.name!a}, None)]",
    ]
    return file_text(says, parts, _MAIN.replace("FINGERPRINT", fingerprint), embeds=COPY_EMBEDDED, imports=IMPORTS)


_MAIN = """
def compile_only(compiles=(), compile_s=0.0, within=0.0):
    return {}


def results(compiles=(), compile_s=0.0, seconds=10.0, within=0.0):
    own = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    found = {"fingerprint": "FINGERPRINT", "kernel": True, "by": "pinned memory", "source_sha256": own}
    return found | examined_copy(NBYTES, TO_DEVICE, TRACE, seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--compile-only", action="store_true", help="nothing here is compiled: ends at once")
    parser.add_argument("--seconds", type=float, default=10.0, help="no block of samples is begun after this")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this needs a GPU, and torch finds none")
    if asked.compile_only:
        print(json.dumps(compile_only()))
        return
    found = results(seconds=asked.seconds)
    if asked.json:
        print(json.dumps(found))
        return
    print("the trace's own copy:", "yes" if found["replay"]["same_names"] else "no", found["replay"]["kernels"])
    print("right:", found["right"]["faults"] or "the bytes that were sent")
    for state, samples in found.get("times", {}).get("samples", {}).items():
        medians = {name: statistics.median(s["sum_ns"]) / 1000 for name, s in samples.items()}
        print(f"{state}: pageable {medians['eager']:.2f} us, pinned {medians['fused']:.2f} us")


if __name__ == "__main__":
    main()
"""
