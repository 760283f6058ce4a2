"""Every finding of the rules for library calls over traces, a line each, to be judged by hand.

    python -m benchmarks library_findings TRACE... [-o results/library_findings.md]

A line has the trace, the rule, the share of GPU time that the calls take and that the fix is predicted to save (low,
mid, high), whether it is shown by default, the operator with the shapes, and the first kernel; the last column is
empty, for the verdict. Beside them, at the end, is how many calls of 3 % or more were left alone, and why.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tracemine.causes import load_rules
from tracemine.errors import InputError
from tracemine.ops.kernel_names import short_name
from tracemine.pipeline import scan

RULES = frozenset(rule.id for rule in load_rules() if rule.saving == "reach_rate")
LEFT_ALONE = ("at_its_rate", "rate_unknown")
HEAD = (
    "| trace | rule | calls | of GPU time | saves, of GPU time | shown | call | kernel | right |\n" + "|---" * 9 + "|"
)


def name_of(path: Path) -> str:
    """The recording's folder, or the file."""
    return path.parent.parent.name if path.name == "trace.json.gz" else path.name.removesuffix(".gz")[:40]


def lines_of(path: Path, left: Counter[str]) -> list[str]:
    """A line a finding."""
    found = scan(path)
    left.update({reason: found.dropped.get(reason, 0) for reason in LEFT_ALONE})
    total, lines = found.summary.gpu_time_ns, []
    for one in found.findings:
        if one.rule in RULES:
            ends = (one.gpu_saving_ns.low, one.gpu_saving_ns.mid, one.gpu_saving_ns.high)
            saves = " / ".join(f"{ns / total:.1%}" for ns in ends)
            call = f"{one.ops[0].removeprefix('aten::')} {one.shapes or ''} {one.dtype or ''}"
            kernel = short_name(one.kernels[0])[:48] if one.kernels else ""
            shown = "yes" if one.reported else ""
            lines.append(
                f"| {name_of(path)} | {one.rule} | {one.occurrences} | {one.measured_ns / total:.1%} | {saves} "
                f"| {shown} | {call} | {kernel} | |"
            )
    return lines


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path, nargs="+")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    left, lines, read = Counter[str](), [HEAD], 0
    for path in options.traces:
        try:
            lines += lines_of(path, left)
            read += 1
        except InputError as error:
            print(f"{path}: {error}", file=sys.stderr)
    found = len(lines) - 1
    lines += [
        "",
        f"{found} findings in {read} traces; left alone: {left['at_its_rate']} calls that are about as fast as",
    ]
    lines[-1] += f" the device reaches, {left['rate_unknown']} whose rate on their GPU is not known"
    print("\n".join(lines))
    if options.output is not None:
        options.output.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
