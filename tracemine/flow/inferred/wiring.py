"""What goes where inside one operator: once for each distinct operator with all that is inside it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tracemine.flow.inferred.calls import Calls, CallTensors, Lists, Result
from tracemine.flow.inferred.keys import Keys, key_of, loose_key_of
from tracemine.flow.inferred.rules import rules
from tracemine.flow.inferred.subtrees import Subtrees
from tracemine.flow.inferred.wiring_record import Give, InnerCall, Local, Need, Wiring, WiringRow, doubt, is_like
from tracemine.flow.record import IntArray
from tracemine.ops.infer import TensorSpec
from tracemine.ops.infer.tensor import contiguous

# What an operator launched itself.
KERNEL, TO_DEVICE, TO_HOST = 1, 2, 4
ANYWHERE, GPU, HOST = 0, 1, 2  # where a tensor lies
_DEEPEST = 64
_VIEWS_OR_COPIES = ("aten::reshape", "aten::flatten")
_NO_WORK = frozenset({"view", "allocate", "metadata", "sync", None})


class Builder:
    """Makes the wiring of operators by their position."""

    def __init__(self, calls: Calls, subtrees: Subtrees, launches: IntArray) -> None:
        self._calls = calls
        self.keys = Keys()
        self._built = 0
        self._of = calls.of_op.tolist()
        self._children = subtrees.children.tolist()
        self._begin = subtrees.begin.tolist()
        self._place = subtrees.place.tolist()
        self._launches = launches.tolist()

    def call(self, position: int) -> CallTensors:
        """Return the operator there."""
        return self._calls.get(self._of[position])

    def build(self, position: int, lists: Lists) -> Wiring:
        """Return the wiring of the operator there."""
        call = self._calls.get(self._of[position], lists)
        wiring = Wiring(call, has_list=any(slot.list_index >= 0 for slot in call.slots))
        self._root = self._place[position]
        self._wiring = wiring
        self._list_dtype = lists.dtype
        self._next = len(call.slots)
        self._launched = 0
        self._inside: dict[int, tuple[CallTensors, list[Local | None], list[Local | None]]] = {}
        bound: list[Local | None] = [self._slot(number, call) for number in range(len(call.slots))]
        results = [local for local in self._visit(position, call, bound, False, 0, set()) if local is not None]
        wiring.gives = [self._give(local, call) for local in results]
        for op, (inner, *sides) in self._inside.items():
            took, made = ([None if local is None else self._give(local, call) for local in side] for side in sides)
            wiring.inside[op] = InnerCall(inner, took, made)
        wiring.needs = self._needs(call, wiring)
        wiring.mutated = sorted(call.mutated)
        wiring.copies = len(wiring.mutated) == 1 and len(wiring.needs) == 2 and bool(call.overwritten)
        wiring.fills = len(wiring.mutated) == len(wiring.needs) == len(call.overwritten)
        wiring.numbers = [self.keys(spec) for spec in call.numbers]
        wiring.new = self._next - len(call.slots)
        wiring.number = self._built = self._built + 1
        wiring.parameters = rules().parameters.get(call.name, frozenset())
        wiring.commutes = call.name in rules().commutes
        wiring.beside = call.op_class in rules().side_by_side
        wiring.partner = rules().partners.get(call.name)
        return wiring

    def _give(self, local: Local, call: CallTensors) -> Give:
        slots = len(call.slots)
        shared = local.storage < slots
        return Give(
            slot=local.storage if shared else -1,
            new=-1 if shared else local.storage - slots,
            offset=local.offset,
            key=self.keys(local.spec),
            sure=local.sure,
            place=self._wiring.place.get(local.storage, ANYWHERE),
        )

    def _needs(self, call: CallTensors, wiring: Wiring) -> list[Need]:
        keys = [self.keys(slot.spec) for slot in call.slots]
        parameters = rules().parameters.get(call.name, frozenset())
        looks = [-1 if slot.position in parameters else key for slot, key in zip(call.slots, keys, strict=True)]
        return [
            Need(
                key=key,
                loose=self.keys.loose_of[key],
                listed=slot.spec.dtype is None,
                place=wiring.place.get(number, ANYWHERE),
                position=slot.position,
                index=slot.list_index,
                name=call.argument(number),
                left=looks[number:].count(key),
                twins=looks.count(key),
            )
            for number, (slot, key) in enumerate(zip(call.slots, keys, strict=True))
        ]

    def _slot(self, number: int, call: CallTensors) -> Local:
        spec = call.slots[number].spec
        if spec.dtype is None and self._list_dtype is not None:
            spec = TensorSpec(spec.shape, self._list_dtype, spec.strides)
        return Local(number, 0, spec, key_of(spec))

    def _take(self, position: int, call: CallTensors, bound: Sequence[Local | None], written: set[int]) -> None:
        """Enter what a node reads, and what it writes where its schema does not say."""
        if call.schema is not None:
            self._wiring.nodes.append((self._place[position] - self._root, call.schema))
        for slot, local in zip(call.slots, bound, strict=True):
            if local is not None:
                self._row(position, False, slot.position, slot.list_index, local)
                if call.schema is None and local.storage in written:  # so it is this one that does
                    self._row(position, True, slot.position, slot.list_index, local)

    def _visit(
        self,
        position: int,
        call: CallTensors,
        bound: list[Local | None],
        inside_node: bool,
        depth: int,
        written: set[int],
    ) -> list[Local | None]:
        """written: storages that the operator around writes."""
        launched = self._launches[position]
        node = bool(launched) and not inside_node
        if launched:
            self._placed(call, bound, launched)
        if node:
            self._take(position, call, bound, written)
        before, launches = self._next, self._launched
        self._launched += bool(launched)
        made = self._children_of(position, bound, inside_node or node, depth)
        self._at = position
        works = self._launched > launches
        known = self._results(call, bound, made, before, works)
        results, where = _given(call, known, made, before)
        self._inside[self._place[position] - self._root] = call, bound, results
        allocates = call.op_class == "allocate" and not inside_node and not made
        if (node and call.known) or (allocates and not launched):
            self._give_rows(position, where, results, before, node=node)
        elif not works and not made:
            self._stays_on_host(call, bound, results)
        if launched:
            self._note_launch(call, results, launched, known=known is not None)
        return results

    def _give_rows(
        self, position: int, where: list[tuple[int, int]], results: list[Local | None], before: int, *, node: bool
    ) -> None:
        """Enter what a node gives; of an allocation that is none, what is new from `before` on."""
        for (place, index), result in zip(where, results, strict=True):
            if result is not None and (node or result.storage >= before):
                self._row(position, True, place, index, result)

    def _stays_on_host(self, call: CallTensors, bound: list[Local | None], results: list[Local | None]) -> None:
        """Note that an operator that computes, and launches nothing, works in host memory."""
        if call.results and call.op_class not in _NO_WORK and call.name not in rules().hands_on_idle:
            for worked in filter(None, (*results, *bound)):
                self._wiring.place.setdefault(worked.storage, HOST)

    def _note_launch(self, call: CallTensors, results: list[Local | None], launched: int, *, known: bool) -> None:
        """Note where results lie, and whether something unknown may have been made, written or read."""
        wiring = self._wiring
        if launched & KERNEL:
            wiring.place |= {given.storage: GPU for given in results if given is not None}
        wiring.barrier |= not known
        wiring.wrote_unknown |= call.writes_unknown
        wiring.reads_unknown |= call.reads_unknown

    def _children_of(self, position: int, bound: Sequence[Local | None], inside: bool, depth: int) -> list[Local]:
        scope = [local for local in bound if local is not None]
        # What an operator says that it does not write, nothing inside it writes.
        around = self._calls.get(self._of[position], Lists(self._list_dtype))
        written = {local.storage for slot, local in enumerate(bound) if local is not None and slot in around.mutated}
        fixed = {local.storage for local in scope} - written if around.known else set()
        made: list[Local] = []
        read: set[int] = set()
        if depth >= _DEEPEST:
            return made
        for child in self._children[self._begin[position] : self._begin[position + 1]]:
            call = self._calls.get(self._of[child], Lists(self._list_dtype))
            taken = self._bound(call, scope, made, read, fixed)
            read.update(id(local) for local in taken)
            for local in self._visit(child, call, taken, inside, depth + 1, written):
                if local is not None and local not in made and local not in scope:
                    made.append(local)
        for local in made:
            local.read = id(local) in read
        return made

    def _bound(
        self, call: CallTensors, given: list[Local], made: list[Local], read: set[int], fixed: set[int]
    ) -> list[Local | None]:
        """Return what a call inside takes: of its parent's inputs and of what elder siblings gave. fixed: storages that
        nothing writes."""
        taken: list[Local | None] = [None] * len(call.slots)
        # What is overwritten was made for it; so it is looked for first, and nothing else is taken for that.
        first = sorted(range(len(taken)), key=lambda number: number not in call.overwritten)
        keys = [self._slot(number, call).key for number in first]
        surely: set[int] = set()  # storages that are spoken for
        for at, (number, key) in enumerate(zip(first, keys, strict=True)):
            fitting = [local for local in (*given, *made) if local.key == key or _same_but_dtype(local, call, number)]
            fitting = _writable(fitting, call, number, fixed, given, made, read)
            newest = list({local.storage: local for local in fitting if local.storage not in surely}.values())
            if not newest:
                taken[number] = self._unknown(call, number)
                continue
            used = {local.storage for local in taken if local is not None}
            unused = [local for local in newest if local.storage not in used] or newest
            local, sure = _picked(call, number, newest, unused, keys[at:].count(key), given, read)
            taken[number] = local if sure else replace(local, sure=False)
            if sure:
                surely.add(local.storage)
            elif number in call.mutated:
                doubt(newest, (*given, *made))
        return taken

    def _unknown(self, call: CallTensors, number: int) -> Local:
        """Return one that nothing recorded gave; what is overwritten was allocated for it."""
        spec = call.slots[number].spec
        self._next += 1
        return Local(self._next - 1, 0, spec, key_of(spec), sure=number in call.overwritten)

    def _results(
        self, call: CallTensors, bound: list[Local | None], made: list[Local], before: int, launched: bool
    ) -> list[Local | None] | None:
        if call.results is None:
            return self._as_viewed_inside(call, bound, made)
        if call.name in rules().hands_on_idle and not made and not launched:
            return bound[:1]
        found: list[Local | None] = []
        given: set[int] = set()
        for result in call.results:
            source = bound[result.alias] if result.alias >= 0 else None
            if result.spec is None:
                found.append(None)
                continue
            key = key_of(result.spec)
            if source is not None and result.alias in call.mutated:
                same = key == source.key or result.spec.dtype is None
                found.append(source if same else Local(source.storage, source.offset, result.spec, key, source.sure))
                continue
            local = self._result(call, result, source, made, given, before, launched)
            given.add(id(local))
            found.append(local)
        return found

    def _result(
        self,
        call: CallTensors,
        result: Result,
        source: Local | None,
        made: list[Local],
        given: set[int],
        before: int,
        launched: bool,
    ) -> Local:
        """Return what a result is: one that was made inside, a view of its source, or new."""
        assert result.spec is not None  # noqa: S101
        spec, key = result.spec, key_of(result.spec)
        fitting = [m for m in made if id(m) not in given and (m.key == key or is_like(m.spec, spec))]
        looks = [key_of(other.spec) for other in call.results or () if other.spec is not None]
        which = -1 if looks.count(key) == 1 else 0  # of several results that look the same the first comes first
        copies = source is None or call.op_class != "view" or call.name.startswith(_VIEWS_OR_COPIES)
        inside = self._made_anew(spec, fitting, made, before, which, launched) if copies else None
        if inside is not None:
            return inside
        if source is not None:
            return Local(source.storage, source.offset + result.offset, spec, key, source.sure)
        if fitting and not launched:
            return fitting[which]
        self._next += 1
        return Local(self._next - 1, 0, spec, key, allocated=call.op_class == "allocate")

    def _made_anew(
        self, spec: TensorSpec, fitting: list[Local], made: list[Local], before: int, which: int, launched: bool
    ) -> Local | None:
        """Return what was made inside, in a storage from `before` on, that is a result."""
        fresh = [local for local in fitting if local.storage >= before]
        if fresh:
            return fresh[which]
        if not launched or self._launches[self._at]:
            return None
        # Where what is inside has other strides or, under autocast, another dtype than the rule says, it is right.
        alike = [local for local in made if local.storage >= before and local.spec.shape == spec.shape]
        if not alike:
            return None
        return replace(alike[-1], sure=alike[-1].sure and len({local.storage for local in alike}) == 1)

    def _as_viewed_inside(
        self, call: CallTensors, bound: list[Local | None], made: list[Local]
    ) -> list[Local | None] | None:
        """What an operator gives that views its source as its result before it fills that: indexing by tensors, of
        which nothing else is recorded."""
        source = bound[0] if bound and call.name in rules().shaped_inside else None
        view = next((local for local in made if source is not None and local.storage == source.storage), None)
        if view is None or view.spec.strides is None:
            return None
        steps = [step for step in view.spec.strides if step]
        strides = contiguous(view.spec.shape) if steps == sorted(steps, reverse=True) else None
        spec = TensorSpec(view.spec.shape, view.spec.dtype, strides)
        self._next += 1
        return [Local(self._next - 1, 0, spec, key_of(spec))]

    def _placed(self, call: CallTensors, bound: list[Local | None], launched: int) -> None:
        """A kernel's tensors are on the GPU; of a copy between host and device, one of the two is."""
        place = self._wiring.place
        for number, local in enumerate(bound):
            if local is None:
                continue
            where = GPU
            if not launched & KERNEL and call.name == "aten::copy_":
                host = 1 if launched & TO_DEVICE else 0 if launched & TO_HOST else -1
                where = HOST if number == host else GPU
            place[local.storage] = where

    def _row(self, position: int, is_output: bool, place: int, index: int, local: Local) -> None:
        if not local.spec.elements:
            return
        op = self._place[position] - self._root
        self._wiring.rows.append(
            WiringRow(op, is_output, place, index, local.storage, local.offset, local.spec, local.sure)
        )


def _given(
    call: CallTensors, known: list[Local | None] | None, made: list[Local], before: int
) -> tuple[list[Local | None], list[tuple[int, int]]]:
    """Return what an operator gives, and of each the output and its position in a list.

    Of results that are not known, what was made inside, in a storage from `before` on, and nothing there took.
    """
    if known is None:
        unread = [local for local in made if local.storage >= before and not local.read]
        return [replace(local, sure=False) for local in unread], [(number, -1) for number in range(len(unread))]
    if call.results is None:  # no rule says which output it is
        return known, [(0, -1)]
    return known, [(result.position, result.list_index) for result in call.results]


def _picked(
    call: CallTensors,
    number: int,
    newest: list[Local],
    unused: list[Local],
    left: int,
    given: list[Local],
    read: set[int],
) -> tuple[Local, bool]:
    """Return what an input takes of all that fit, and whether that is sure. left: so many inputs from here look so."""
    overwritten = number in call.overwritten
    # What is overwritten and was not allocated for it is perhaps an input too, overwritten in place.
    alone = len(newest) == 1 or (overwritten and newest[-1].allocated)
    if alone or overwritten:
        local = unused[-1]
    elif len(unused) == left:
        local = unused[0]
    else:
        unread = [local for local in unused if id(local) not in read] or unused
        local = unread[-min(left, len(unread))]
    # Handed on from outside they keep their order; not only by what was guessed to be another's.
    all_left = len(unused) == len(newest) == left
    return local, alone or (all_left and all(any(one is other for other in given) for one in unused))


def _writable(
    fitting: list[Local],
    call: CallTensors,
    number: int,
    fixed: set[int],
    given: list[Local],
    made: list[Local],
    read: set[int],
) -> list[Local]:
    """Leave out what a call may not write, where it writes this input."""
    if number in call.mutated:
        fitting = [local for local in fitting if local.storage not in fixed]
    if number in call.overwritten:
        fitting = [local for local in fitting if not local.waits(given, made, read)]
    return fitting


def _same_but_dtype(local: Local, call: CallTensors, number: int) -> bool:
    spec = call.slots[number].spec
    return spec.dtype is None and loose_key_of(local.spec) == loose_key_of(spec)
