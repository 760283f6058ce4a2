"""All operators of a timeline as the simulation wants them, in the order in which they begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from tracemine.columns import codes, numbers, sorted_unique
from tracemine.flow.inferred.autograd import GradientNode, Gradients, is_record
from tracemine.flow.inferred.binding import Simulation
from tracemine.flow.inferred.calls import NOTHING, Calls, Lists
from tracemine.flow.inferred.hints import Hints
from tracemine.flow.inferred.memory import Lives
from tracemine.flow.inferred.optimizers import Update, updates
from tracemine.flow.inferred.pools import Ran
from tracemine.flow.inferred.subtrees import Subtrees, roots
from tracemine.flow.inferred.wiring import Builder
from tracemine.flow.inferred.wiring_record import Wiring
from tracemine.flow.order import Order
from tracemine.flow.record import BoolArray, IntArray
from tracemine.timeline import Timeline

_LEAST_SHARE = 0.5  # of a forward pass that has to be as the one before, for that one to tell something


class ForwardPasses(Struct, frozen=True):
    """Forward passes, each with the backward pass behind it, as entries of what is simulated.

    Iteration k has the entries end[k - 1]:end[k], and those before forward_end[k] are its forward pass. Forward passes
    are laid side by side by their ends: of the first one in a recording the beginning may be missing.

    >>> look, backward = np.array([1, 2, 9, 7, 1, 2, 9]), np.array([0, 0, 1, 0, 0, 0, 1], np.bool_)
    >>> iterations = ForwardPasses.of(np.arange(7) * 10, look, backward)
    >>> iterations.forward_end.tolist(), iterations.end.tolist(), iterations.first_alike()
    ([2, 6], [3, 7], 0)
    >>> hints = iterations.carried(Hints(reads={(10, 0): (0, 1)}, own=frozenset([10])), 0)
    >>> sorted(hints.reads.items()), sorted(hints.own)
    ([((10, 0), (0, 1)), ((50, 0), (40, 1))], [10, 50])
    """

    position: IntArray  # of each entry in the Order
    look: IntArray  # equal ones do the same
    forward_end: IntArray
    end: IntArray

    @staticmethod
    def of(position: IntArray, look: IntArray, backward: BoolArray) -> ForwardPasses:
        """Return those of all entries; backward: whether an entry belongs to a backward pass."""
        turns = np.flatnonzero(np.diff(backward.astype(np.int8), prepend=0, append=0))
        return ForwardPasses(position, look, turns[0::2], turns[1::2])

    def first_alike(self) -> int | None:
        """Return the first iteration whose forward pass is, from its end on, as the next one's, and that ends in the
        first half; None: there is none."""
        early = int(np.searchsorted(self.end[:-1], len(self.position) // 2, "right"))
        for one in range(early):
            length = self.forward_end[one + 1] - self.end[one]
            if self._alike(one, one + 1) > _LEAST_SHARE * length:
                return one
        return None

    def carried(self, hints: Hints, one: int) -> Hints:
        """Return hints and, for all other iterations, those of this one as far as their forward passes are equal."""
        told = np.array([(*read, *made) for read, made in hints.reads.items()], np.int64).reshape(-1, 4)
        own = np.array(sorted(hints.own), np.int64)
        read_back, made_back, own_back = (self._back(one, roots) for roots in (told[:, 0], told[:, 2], own))
        both = np.maximum(read_back, made_back)
        reads: dict[tuple[int, int], tuple[int, int]] = {}
        owners = set(hints.own)
        for other in (at for at in range(len(self.end)) if at != one):
            end, alike = self.forward_end[other], self._alike(one, other)
            here = both <= alike
            read, made = self.position[end - read_back[here]], self.position[end - made_back[here]]
            places = (column.tolist() for column in (read, told[here, 1], made, told[here, 3]))
            reads |= {(root, slot): (maker, which) for root, slot, maker, which in zip(*places, strict=True)}
            owners.update(self.position[end - own_back[own_back <= alike]].tolist())
        return Hints(reads | hints.reads, frozenset(owners))  # what an iteration tells itself counts more

    def _back(self, one: int, roots: IntArray) -> IntArray:
        """Return how far before the end of a forward pass each root lies; beyond all entries where not in it."""
        end = self.forward_end[one]
        at = np.searchsorted(self.position, roots)
        return np.where((at >= self._begin(one)) & (at < end), end - at, len(self.position) + 1)

    def _begin(self, one: int) -> int:
        return int(self.end[one - 1]) if one else 0

    def _alike(self, one: int, other: int) -> int:
        """Return how many entries are equal, from the ends of both forward passes back to the first that is not."""
        ends = self.forward_end[[one, other]]
        most = int(min(ends - [self._begin(one), self._begin(other)]))
        differs = self.look[ends[0] - most : ends[0]] != self.look[ends[1] - most : ends[1]]
        last = np.flatnonzero(differs)
        return most - int(last[-1]) - 1 if len(last) else most


# What a backward pass shows about its forward pass, a simulation of both takes into account; then it tells more.
_PASSES = 3

_Happening = tuple[int, bool, bool, bool, int, int, int, int, int, int]


class _Happenings(Struct, frozen=True):
    """What is simulated, in order: one entry a position."""

    position: IntArray
    root: BoolArray
    unknown: BoolArray
    begins: BoolArray  # a node of autograd begins there
    number: IntArray  # of its subtree
    place: IntArray
    node: IntArray  # the one around it, −1: none
    parent: IntArray
    step: IntArray
    part: IntArray

    def rows(self, count: int | None = None) -> Iterator[_Happening]:
        """Return the entries one by one, or so many of them."""
        return zip(*(getattr(self, name)[:count].tolist() for name in self.__struct_fields__), strict=True)

    def iterations(self) -> ForwardPasses:
        """Return the forward passes, each with its backward pass."""
        forward, backward = self.root & (self.node < 0), self.begins & ~self.root
        told = np.where(forward | backward, np.arange(len(forward)), 0)
        look = self.number * 8 + self.root * 4 + self.unknown * 2 + self.begins
        return ForwardPasses.of(self.position, look, backward[np.maximum.accumulate(told)])


class SimulatedProgram:
    """The operators of a timeline that are simulated. Positions are those of the Order."""

    def __init__(self, timeline: Timeline, order: Order, launches: IntArray) -> None:
        """launches: what each operator itself launched, as wiring.KERNEL and the others."""
        self.timeline, self.order = timeline, order
        calls = Calls(timeline, order.row)
        thread = codes(*(numbers(timeline.ops.column(name))[order.row] for name in ("pid", "tid")))
        self.subtrees = subtrees = Subtrees.of(calls, order, thread, launches)
        known = np.array([calls.get(number).known for number in range(len(calls))], np.bool_)[calls.of_op]
        self.builder = builder = Builder(calls, subtrees, launches)
        self.roots = at = _roots(timeline, order, known, launches)  # positions of what is run on its own
        first = at[np.unique(subtrees.number[at], return_index=True)[1]]
        stands = np.full(len(known), -1)
        stands[at] = at
        self.root_of = order.inherited(stands)  # for each position the root around it, −1: none
        # Of what launches work of its own around such: what that makes is unknown.
        self.around = np.flatnonzero((launches > 0) & (self.root_of < 0))
        self.gradients = Gradients.of(timeline, order, at, subtrees.place)
        noted = numbers(timeline.ops.column("sequence_number"))[order.row] >= 0
        self.recorded = frozenset(np.flatnonzero(noted).tolist())  # operators that autograd notes for a backward pass
        self.updates = updates(timeline, order, at, subtrees.sums(launches > 0)[at] > 0, builder.call)
        # By number, and where a list was cut by what it holds.
        self.wirings: dict[int | tuple[int, Lists], Wiring] = {
            int(subtrees.number[root]): builder.build(root, NOTHING) for root in first.tolist()
        }

    def simulated(self) -> tuple[Simulation, dict[int, str]]:
        """Return the simulation once it has run, and the schemas of nodes by their place."""
        lists = {need.loose for wiring in self.wirings.values() for need in wiring.needs if need.listed}
        recorded = Lives.of(self.timeline, self.order, self.roots)
        happenings = self._happenings()

        def begun(hints: Hints) -> Simulation:
            lives = None if recorded is None else recorded.again()
            return Simulation(self.builder.keys, lists, lives, hints, trains=bool(self.updates))

        hints = self._told_early(happenings, begun)
        for _ in range(_PASSES):
            simulation = begun(hints)
            schemas = self._run(simulation, happenings.rows())
            before, hints = hints, simulation.hints()
            if hints == before:
                break
        return simulation, schemas

    def _told_early(self, happenings: _Happenings, begun: Callable[[Hints], Simulation]) -> Hints:
        """Return what backward passes are likely to tell: one of many equal ones does, simulated up to its end."""
        iterations = happenings.iterations()
        one = iterations.first_alike()
        hints = Hints()
        for _ in range(_PASSES - 1 if one is not None else 0):
            simulation = begun(hints)
            self._run(simulation, happenings.rows(int(iterations.end[one])))
            before, hints = hints, simulation.hints()
            if hints == before:
                break
        return hints if one is None else iterations.carried(hints, one)

    def _run(self, simulation: Simulation, happenings: Iterator[_Happening]) -> dict[int, str]:
        """Run every root, and pass what is unknown around some."""
        schemas: dict[int, str] = {}
        last_step = last_part = None
        in_gradient = False
        for position, root, unknown, begins, number, place, node, parent, at_step, part in happenings:
            if part != last_part and last_part is not None:
                simulation.apart()
                in_gradient = False
            last_part = part
            if at_step != last_step:
                simulation.step()
                last_step = at_step
            if unknown:
                simulation.unknown()
            if begins and not root:
                self._backward(simulation, position)
                in_gradient = True
            if not root:
                continue
            if in_gradient and node < 0:
                simulation.forward()
                in_gradient = False
            update = self.updates.get(position)
            wiring = self._with_lists(simulation, number, position, update)
            ran = simulation.run(
                position, wiring, apart=parent == node, recorded=position in self.recorded, update=update
            )
            self._saved(simulation, position, ran)
            for op, schema in wiring.nodes:
                schemas[place + op] = schema
        return schemas

    def _with_lists(self, simulation: Simulation, number: int, position: int, update: Update | None) -> Wiring:
        """Return the wiring of an operator, with what is known of the members of its lists by now."""
        wiring = self._wiring(number, position)
        if update is not None and update.lists:
            return self._wiring(number, position, simulation.lists(update, wiring))
        return self._wiring(number, position, simulation.list_dtype(wiring)) if wiring.has_list else wiring

    def _happenings(self) -> _Happenings:
        order, subtrees, gradients = self.order, self.subtrees, self.gradients
        positions = sorted_unique(np.concatenate((self.roots, gradients.positions, self.around)))
        return _Happenings(
            position=positions,
            root=np.isin(positions, self.roots),
            unknown=np.isin(positions, self.around),
            begins=np.isin(positions, gradients.positions),
            number=subtrees.number[positions],
            place=subtrees.place[positions],
            node=gradients.around[positions],
            parent=order.parent[positions],
            step=_steps(self.timeline, order)[positions],
            part=order.part[positions],
        )

    def _backward(self, simulation: Simulation, position: int) -> None:
        gradient = self.gradients.node(position)
        record = None if gradient.record < 0 else self._wiring_at(gradient.record)
        simulation.backward(position, gradient, record, [self._wiring_at(at) for at in gradient.roots])

    def _saved(self, simulation: Simulation, position: int, ran: Ran) -> None:
        """Autograd saves what forward operators took and made."""
        for node in self.gradients.saves.get(position, ()):
            gradient: GradientNode = self.gradients.node(node)
            inside = ran.wiring.inside.get(gradient.forward_place - gradient.root_place)
            if inside is not None:
                simulation.saved(node, inside, ran)

    def _wiring_at(self, position: int) -> Wiring:
        return self._wiring(int(self.subtrees.number[position]), position)

    def _wiring(self, number: int, position: int, lists: Lists = NOTHING) -> Wiring:
        key = number if lists is NOTHING else (number, lists)
        found = self.wirings.get(key)
        if found is None:
            found = self.wirings[key] = self.builder.build(position, lists)
        return found


def _roots(timeline: Timeline, order: Order, known: BoolArray, launches: IntArray) -> IntArray:
    """Return positions of the operators that are run on their own with all that is inside them."""
    at = roots(order, known)
    return at[known[at] | (launches[at] > 0) | ~is_record(timeline, order)[at]]


def _steps(timeline: Timeline, order: Order) -> IntArray:
    """Return the step during which each operator begins, −1 before the first."""
    start, pid = (numbers(timeline.ops.column(name))[order.row] for name in ("start_ns", "pid"))
    begins, of = (numbers(timeline.steps.column(name)) for name in ("start_ns", "pid"))
    steps: IntArray = np.searchsorted(begins, start, "right") - 1
    if len(order.part) and order.part[0] != order.part[-1]:  # of several processes each has steps of its own
        for process in sorted_unique(of).tolist():
            here = pid == process
            steps[here] = np.searchsorted(begins[of == process], start[here], "right") - 1
    return steps
