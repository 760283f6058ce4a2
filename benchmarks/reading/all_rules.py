"""What all built-in rules take over one trace, and each of them: `python -m benchmarks all_rules TRACE [--each]`.

For a million activities repeat a recording first, for example

    python -m benchmarks trace_maker fixtures/kineto/decoder_prefill.json.gz large.json --megabytes 1200 --no-stacks

Prints activities, operators, CPU seconds of all rules together (`mine`, on rows that are there already), and beside it
what reading the trace, following its dataflow, making the rows and the whole of the rest take. Rows make their columns
when a rule first asks for them, so the rule that asks first pays for it; --each runs every rule once more by itself.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tracemine.causes import load_rules
from tracemine.matching import find, mine
from tracemine.pipeline import analyse, mined


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--each", action="store_true", help="every rule by itself too")
    chosen = parser.parse_args()
    times = [time.process_time()]
    analysis = analyse(chosen.trace)
    times.append(time.process_time())
    rows = analysis.rows
    times.append(time.process_time())
    rules = load_rules()
    found = mine(rows, rules)
    times.append(time.process_time())
    findings = mined(analysis).findings
    times.append(time.process_time())
    read, made, matched, rest = (after - before for before, after in pairwise(times))
    timeline = analysis.timeline
    print(f"{timeline.activities.num_rows:,} activities, {timeline.ops.num_rows:,} operators")
    print(f"{len(rules)} rules, {sum(map(len, found)):,} matches: {matched:.2f} CPU s")
    print(
        f"trace and dataflow {read:.2f}, rows {made:.2f}, all of mining once more {rest:.2f}: {len(findings)} findings"
    )
    for rule in rules if chosen.each else ():
        begin = time.process_time()
        matches = find(rule, rows[rule.rows])
        print(f"  {rule.id}: {len(matches):,} matches, {time.process_time() - begin:.2f} CPU s")


if __name__ == "__main__":
    main()
