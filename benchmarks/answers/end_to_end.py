"""From a recording to a closed ticket: `python -m benchmarks end_to_end DIR [PAIR...]`.

DIR: what record_fixes.py wrote: of each pair the captures of a real model `before/` and `after/` a fix that a finding
prints. Of each pair: the step before is scanned and its findings get tickets, on a server of this machine that answers
as GitHub's REST API does (tests/tickets/server.py); the step after is compared with the step before; tickets are
brought up to date by what `tracemine diff` says, and once more, which must change nothing. Printed: the tickets opened,
what diff says of the finding that the fix answers, the step as predicted beside measured, and what became of its
ticket. Exits with 1 where that finding is not fixed, or its ticket not closed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import msgspec

import tracemine
from tests.tickets.server import running
from tracemine.comparison import Difference
from tracemine.findings.record import Finding, Scan
from tracemine.tickets import Action, GitHub, sync

# The rules that each fix answers; of `optimizer` the findings of an optimizer's step.
ANSWERS = {
    "fused": ("optimizer_unfused", "memory_bound_chain"),
    "graph": ("launch_gap", "graph_launch_gap", "host_stall", "first_launch_late"),
    "rms_norm": ("rmsnorm_unfused",),
    "pinned": ("pageable_copy",),
}
MODELS = (
    "fused_llama_loop",
    "fused_vit_loop",
    "graph_llama_8_layers",
    "graph_gpt2_small",
    "rms_norm_llama",
    "pinned_64MB",
)
OPTIMIZERS = (": Adam", ": AdamW", ": SGD")


@dataclass(frozen=True)
class Outcome:
    """What came of one pair."""

    name: str
    opened: int
    answered: tuple[str, ...]  # fingerprints of the findings that the fix answers
    statuses: dict[str, int]  # of those
    difference: Difference
    closed: tuple[str, ...]  # fingerprints whose tickets were closed
    again: int  # what a second run would still do

    @property
    def holds(self) -> bool:
        return bool(self.answered) and set(self.answered) <= set(self.closed) and not self.again

    def lines(self) -> Iterator[str]:
        step, said = self.difference.step, self.difference.predicted
        before, after = step.before_ns.mid / 1e6, step.after_ns.mid / 1e6
        yield f"{self.name}: tickets opened: {self.opened}; step {before:.3f} → {after:.3f} ms"
        if said is not None:
            low, mid, high = (
                each / 1e6 for each in (said.step_saving_ns.low, said.step_saving_ns.mid, said.step_saving_ns.high)
            )
            measured = said.measured_step_ns.mid / 1e6
            inside = "within" if low <= measured <= high else "outside"
            yield f"    predicted {mid:.3f} ms ({low:.3f}–{high:.3f}), measured {measured:.3f} ms: {inside}"
        statuses = ", ".join(f"{count} {status}" for status, count in self.statuses.items()) or "no finding"
        closed = f"tickets closed: {len(self.closed)}; a second run changes {self.again}"
        yield f"    what the fix answers: {statuses}; {closed}"
        yield f"    {'holds' if self.holds else 'DOES NOT HOLD'}"


def answers(name: str, finding: Finding) -> bool:
    """Whether the fix of a pair is what this finding prints."""
    kind = next(kind for kind in ANSWERS if name.startswith(kind))
    of_optimizer = kind != "fused" or finding.title.endswith(OPTIMIZERS)
    return finding.rule in ANSWERS[kind] and of_optimizer and finding.reported


def changes(actions: list[Action]) -> Counter[str]:
    return Counter(action.kind for action in actions)


def outcome(name: str, folder: Path, locks: Path) -> Outcome:
    before, after = (tracemine.scan(folder / side).scan for side in ("before", "after"))
    answered = tuple(one.fingerprint for one in before.findings if answers(name, one))
    difference = tracemine.diff(tracemine.Report(before), tracemine.Report(after)).difference
    told = msgspec.to_builtins(difference)
    with running() as world, GitHub("you/model", url=world.address, token="none") as service:  # noqa: S106 - the server asks for none

        def synced(scan: Scan, said: object = None) -> list[Action]:
            return sync(scan, service, name, apply=True, after=said, most=50, locks=locks)

        opened = changes(synced(before))
        then = synced(after, told)
        again = changes(synced(after, told))
        assert not world.violations
    statuses = Counter(
        change.status for change in difference.changes if any(part.fingerprint in answered for part in change.before)
    )
    closed = tuple(action.key.rpartition("/")[2] for action in then if action.kind == "close")
    still = sum(count for kind, count in again.items() if kind not in ("leave", "unchanged", "keep"))
    return Outcome(name, opened["create"], answered, dict(statuses), difference, closed, still)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("pairs", nargs="*", default=MODELS)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as locks:
        found = [outcome(name, chosen.folder / name, Path(locks)) for name in chosen.pairs]
    for one in found:
        print("\n".join(one.lines()))
    held = sum(one.holds for one in found)
    print(f"{held} of {len(found)} pairs: fixed, and the ticket closed")
    return held != len(found)


if __name__ == "__main__":
    sys.exit(main())
