"""The state that all rules share while findings are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
from msgspec import Struct

from tracemine.columns import sorted_unique
from tracemine.devices import Device
from tracemine.findings.accounting import Accounts, idle_of
from tracemine.findings.benchmark_loops import benchmark_loops
from tracemine.findings.class_estimate import ClassEstimate
from tracemine.findings.environment import environment_of
from tracemine.findings.facts import Facts, activity_facts, gap_facts
from tracemine.findings.forwards import Forwards
from tracemine.findings.graphs import GraphAnswer, Unrecorded, answer, graphs_of
from tracemine.findings.graphs.obstacles import Obstacles, find_obstacles
from tracemine.findings.inside import gaps_inside
from tracemine.findings.lists import Lists
from tracemine.findings.recorder import of_recorder
from tracemine.findings.steps import steps_of
from tracemine.findings.wait_gaps import WaitGaps, wait_gaps
from tracemine.flow import Evidence
from tracemine.fusion import Groups
from tracemine.host.uses import uses_of
from tracemine.host.waits import Waits, waits_of
from tracemine.matching.advice import Fact, FactDoc
from tracemine.matching.rule import Rule
from tracemine.perfmodel import Abstained, Curves, Unprofiled, rates_of
from tracemine.perfmodel.unprofiled import RECORDED
from tracemine.rows.arrow import categories
from tracemine.rows.host import HostCalls, host_calls
from tracemine.rows.table import BoolArray, IntArray, Rows, category, flags, number
from tracemine.timeline import Timeline

_ROUNDS = 8  # of a loop that is worth doing at once
# What a class of matches would save, as a rule's `saving` says.
Estimator = Callable[["ScanContext", Rule, IntArray], ClassEstimate | Abstained]


# Classes of rows that a cause finds beyond its rule's pattern; the last argument: rows that the pattern names.
MoreClasses = Callable[["ScanContext", Rule, BoolArray], Iterable[tuple[IntArray, Evidence]]]


class AdviceFacts(Struct, frozen=True):
    """Facts of a variant that advice may ask for: what each says, and how they are found.

    The last argument of `find`: activities that the rule's pattern names.
    """

    docs: Mapping[str, FactDoc]
    find: Callable[[ScanContext, Rule, Sequence[ClassEstimate], BoolArray], dict[str, Fact]]


class Cause(Protocol):
    """What making findings asks of a cause."""

    @property
    def rule(self) -> str: ...

    @property
    def estimate(self) -> Estimator | None: ...

    @property
    def savings(self) -> Mapping[str, Estimator]: ...

    @property
    def facts(self) -> AdviceFacts | None: ...

    @property
    def part(self) -> str | None: ...

    @property
    def more(self) -> MoreClasses | None: ...


class ScanContext:
    """State of a scan: the facts, what is claimed so far, what was left out and why.

    groups: where dataflow is known. curves: None: those that the package has for the device. savings: by kind of it;
    a cause may have one of its own.
    """

    @property
    def known_device(self) -> Device | None:
        """The GPU, where its rates are its own: peaks of libraries and of links are not guessed."""
        return None if self.device is None or self.device.guessed_from else self.device

    def __init__(
        self,
        timeline: Timeline,
        rows: dict[str, Rows],
        device: Device | None,
        accounts: Accounts,
        groups: Groups | None = None,
        curves: Curves | None = None,
        causes: Sequence[Cause] = (),
        savings: Mapping[str, Estimator] | None = None,
    ) -> None:
        self.timeline, self.rows, self.device, self.accounts = timeline, rows, device, accounts
        self.groups, self.curves, self.causes, self.savings = groups, curves, causes, savings or {}
        self.dropped: dict[str, int] = {}
        activities = activity_facts(self.timeline, self.rows["activities"])
        self.facts: dict[str, Facts] = {"activities": activities, "gaps": gap_facts(self.rows["gaps"], activities)}
        self.environment = environment_of(self.timeline, self.rows["activities"], self.obstacles)
        self.claimed: dict[str, BoolArray] = {
            name: np.zeros(rows.count, dtype=bool) for name, rows in self.rows.items()
        }
        self.claimed["gaps"] = of_recorder(self.timeline, self.rows["gaps"])  # no finding's: production has none
        self.drop("of_the_recorder", int(self.claimed["gaps"].sum()))
        if self.curves is None and self.device is not None:
            self.curves = Curves.of(self.device)
        calibration = None if self.curves is None or self.curves.scaled_from else self.curves.calibration
        # What libraries reach on the device.
        self.rates = None if self.known_device is None else rates_of(self.known_device, calibration)
        self.kernel_names = categories(self.timeline.activities["name"])
        # Kernels that arithmetic limits are part of the trace.
        bound = category(self.rows["activities"], "bound")
        self.has_products = "compute" in {bound.values[code] for code in sorted_unique(bound.codes) if code >= 0}
        # Fusion groups that are a benchmark's loop: no chain for one kernel.
        self.loops = benchmark_loops(self.timeline, self.rows["activities"].graph, self.groups)
        self.lists = Lists(self.timeline)  # sizes of the tensors that operators take
        self.forwards = Forwards(self.timeline)  # what backward passes belong to
        # A backward pass, or an optimizer's step, is part of the trace.
        self.training = bool(activities.backward.any() or (activities.optimizer.codes >= 0).any())
        # Of each gap, as recorded; all of it where no steps are known. Unprofiled: least, usual, most.
        self.in_steps_ns = gaps_inside(self.rows["gaps"], self.accounts.step_of, self.accounts.extents)
        self.steps = steps_of(self.timeline, self.rows["gaps"], self.accounts.step_of, self.in_steps_ns)
        self.unprofiled_gaps_ns = self.steps.gaps_ns()
        # Of a device in a step, mean, and the unprofiled step; in the whole span where no steps are known.
        step = self.accounts.per_step
        self.busy_ns = (self.accounts.gpu_busy_ns if step is None else step.gpu_busy_ns) // max(
            self.accounts.devices, 1
        )
        self.unprofiled = self._unprofiled()

    def _unprofiled(self) -> Unprofiled:
        step = self.accounts.per_step
        if step is None:
            return self.steps.unprofiled(self.timeline, self.accounts.span_ns, self.busy_ns, of_step=False)
        # A host that runs ahead has left a step long before the device has done it.
        recorded_ns = max(step.span_ns, self.busy_ns)
        alone = self.steps.unprofiled(self.timeline, recorded_ns, self.busy_ns, of_step=True)
        alone = alone.up_to(self.busy_ns + self._loading_ns // step.count)
        return alone if step.fastest_ns is None else alone.at_most(max(step.fastest_ns, self.busy_ns))

    @property
    def _loading_ns(self) -> int:
        """How long a device waited for data in steps, as recorded."""
        waits = category(self.rows["gaps"], "cause").among("data_loading")
        return int(self.in_steps_ns[waits].sum()) // max(self.accounts.devices, 1)

    @cached_property
    def alike(self) -> BoolArray:
        """Which activities lie in a loop on inputs of one shape, of which no iteration needs another's result."""
        rows = self.rows["activities"]
        apart = category(rows, "loop_dependence").among("independent") & ~flags(rows, "loop_waits")
        return self.asked_at_once & apart & ~flags(rows, "loop_sizes")

    @cached_property
    def asked_at_once(self) -> BoolArray:
        """Which activities lie in a loop of eight iterations or more on inputs of any shapes, of which none needs
        another's result.
        """
        rows = self.rows["activities"]
        loop, turn = number(rows, "loop", -1), number(rows, "loop_turn")
        many = np.isin(loop, loop[(loop >= 0) & (turn >= _ROUNDS - 1)])
        return many & category(rows, "loop_dependence").among("independent", "accumulates")

    @cached_property
    def _host(self) -> tuple[HostCalls, IntArray]:
        """The host's calls, and the thread of each operator."""
        return host_calls(self.timeline)

    @property
    def calls(self) -> HostCalls:
        """What the host called."""
        return self._host[0]

    @cached_property
    def waits(self) -> Waits:
        """Where the host waits for the device."""
        return waits_of(self.timeline, *self._host)

    @cached_property
    def obstacles(self) -> Obstacles:
        """What stands in the way of graphs."""
        return find_obstacles(self.timeline, self.rows["activities"], self.waits)

    @cached_property
    def wait_uses(self) -> IntArray:
        """What the value of each wait is used for: a position in USES; −1: not known."""
        steps = self.accounts.counted
        begin_ns = np.zeros(0, np.int64) if steps is None else np.sort(steps.begin_ns)
        _, of_ops = self._host
        return uses_of(self.timeline, self.waits, begin_ns, of_ops)

    @cached_property
    def wait_gaps(self) -> WaitGaps:
        """Which gaps go with waits for the device."""
        rows, graph = self.rows, self.rows["activities"].graph
        return wait_gaps(self.timeline, self.calls, self.waits, self.accounts.counted, rows["gaps"], self.steps, graph)

    @cached_property
    def would_graph(self) -> GraphAnswer:
        """Whether a CUDA graph of the step would work, and what to write."""
        count, idle = max(self.accounts.steps, 1), idle_of(self.accounts, self.unprofiled)
        alone = Unrecorded(self.steps, idle, self.busy_ns * count)
        graphs = graphs_of(self.timeline, self.rows["activities"], self.accounts, self.obstacles, alone)
        basis = "as recorded" if self.unprofiled.source == RECORDED else "unprofiled"
        return answer(graphs, self.unprofiled.mid_ns * count, basis)

    def estimate(self, rule: Rule, matrix: IntArray) -> ClassEstimate | Abstained:
        """Estimate a class of a rule's matches: as the rule's own cause does, else as its kind of saving says."""
        own = next((cause.estimate for cause in self.causes if cause.rule == rule.id), None)
        return (own or self.savings[rule.saving])(self, rule, matrix)

    def more_classes(self, rule: Rule, named: BoolArray) -> Iterable[tuple[IntArray, Evidence]]:
        """Yield the classes of rows that a rule's own cause finds beyond its pattern's, each with its evidence."""
        more = next((cause.more for cause in self.causes if cause.rule == rule.id), None)
        return () if more is None else more(self, rule, named)

    def drop(self, reason: str, occurrences: int) -> None:
        if occurrences:
            self.dropped[reason] = self.dropped.get(reason, 0) + occurrences
