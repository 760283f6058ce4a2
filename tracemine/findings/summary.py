"""Records of the whole trace: file, steps, what bounds them. Frozen; the JSON contract's own fields."""

from __future__ import annotations

import msgspec

from tracemine.perfmodel import Range
from tracemine.perfmodel.ranges import outwards
from tracemine.tables import table_beside

_TABLE = table_beside(__file__, "summary.toml")
# What each cause of idle time means for who waits for whom. A cause that is missing here explains nothing.
BOUND_BY = _TABLE["bound_by"]

SUMS = "sums"  # what bounds a step where a profile does not say when anything ran


class Share(msgspec.Struct, frozen=True):
    """A low, middle and high share."""

    low: float
    mid: float
    high: float

    def of(self, ns: int) -> Range:
        """Return this share of a time, nanoseconds, rounded outwards: between nothing and all of it.

        >>> Share(-0.1, 0.25, 0.5).of(1_001)
        Range(low=0, mid=250, high=501)
        """
        found = outwards(*(min(max(share, 0.0), 1.0) * ns for share in (self.low, self.mid, self.high)))
        return found.at_most(ns)


class UnprofiledTime(msgspec.Struct, frozen=True, kw_only=True):
    """A duration without a profiler, nanoseconds."""

    low: int
    mid: int
    high: int
    # `captured`: timed outside the recording; `estimated`; `recorded`: with the profiler, whose cost is not known
    source: str
    note: str | None = None  # what was guessed
    p10: int | None = None  # of steps timed alone: what a tenth of them did not exceed; null: not known
    p90: int | None = None

    @property
    def range_ns(self) -> Range:
        """Return its low end, middle and high end."""
        return Range(self.low, self.mid, self.high)


class StepKind(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one kind: of a batch size, prefill or decode. Nanoseconds, as in `StepSummary`."""

    name: str
    count: int
    span_p50_ns: int
    span_p99_ns: int
    gpu_busy_p50_ns: int
    gpu_busy_p99_ns: int


class StepApart(msgspec.Struct, frozen=True, kw_only=True):
    """A step that does not tell what one takes, and is part of no figure a step. Nanoseconds, as in `StepSummary`."""

    number: int  # from 0, of all steps in the trace
    # `slow`: more than twice as long as is usual; `first`, `last`: of the recording, and longer by a fifth; `begin not
    # seen`: steps begin with idle time of the device, and nothing was recorded before this one's
    why: str
    span_ns: int
    gpu_busy_ns: int


class StepSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures over the steps, nanoseconds: their time on the host, and the device time of what they launched.

    Marked steps last as long as their marks, inferred ones until the next begins; the last one until its work is done.
    """

    span_ns: int  # median of a kind, the mean over kinds by how often they occur
    gpu_busy_ns: int  # as span_ns
    count: int = 0  # steps that figures are of
    span_p50_ns: int | None = None  # that half of the steps do not exceed
    span_p99_ns: int | None = None
    gpu_busy_p50_ns: int | None = None
    gpu_busy_p99_ns: int | None = None
    # `marked`; inferred from `annotation`, `nvtx`, `graph launches`, `repeating kernels`
    source: str = "marked"
    evidence: str = ""  # what tells the steps apart, in words
    confidence: float = 1.0  # share of GPU time that lies in steps × how similar those are; 1 where they are marked
    kinds: tuple[StepKind, ...] = ()  # similar steps, most GPU time first
    unprofiled_ns: UnprofiledTime | None = None  # null: stored by a version that did not estimate it
    # Half of the steps differ from the middle one of their kind by no more; null: fewer than three, or not stored.
    span_spread_ns: int | None = None
    gpu_busy_spread_ns: int | None = None
    fastest_ns: int | None = None  # step of each kind, on the host or at work: no step takes longer unprofiled
    apart: tuple[StepApart, ...] = ()  # steps beyond `count`
    step_saving_ns: Range | None = None  # of all findings together; null: of a version that did not say


class Transfers(msgspec.Struct, frozen=True, kw_only=True):
    """What moved between host and device: a step, over the trace where no steps are known."""

    alone_share: float  # of the unprofiled step: nothing but transfers was running
    bytes: int
    bytes_per_s: int  # while one ran, of one device
    memory: str | None  # kind of the host's memory of most bytes: `pinned`, `pageable` …; null: not recorded


class IdleCause(msgspec.Struct, frozen=True, kw_only=True):
    """Who is waited for in a part of the idle time: causes that mean the same are one."""

    name: str  # `host`, `data loading` …: a value of BOUND_BY
    cause: str  # of gaps, the one of most of it
    share: float  # of the idle time, 0 to 1


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """Bound of the unprofiled step, or of the whole where no steps are known. Shares are 0 to 1."""

    # What is waited for: `gpu`; `communication`; `transfer`, with the host; or, where the GPU idles for more than a
    # fifth of the step, what its idle time is mostly for (`host`, `data loading`, `synchronisation` …), `unknown` where
    # that is not known.
    # `unclear`: how long the unprofiled step is leaves open whether it is more than a fifth.
    by: str
    idle_share: float  # of busy and idle time, as recorded: in steps, where any are known
    cause: str | None  # of most of the idle time, as gaps have it; null: not known
    cause_share: float | None  # of the idle time: of all causes that mean the same
    bare_communication_share: float  # nothing but collectives was running: of busy and idle time, as recorded
    # Class of operators that most of the GPU's busy time is of, null: not classified; and its share. Where
    # communication bounds the trace, of what is no collective.
    work: str | None
    work_share: float
    unclassified_share: float  # of the GPU's busy time
    unprofiled_idle_share: Share | None = None  # of the unprofiled step; null: stored before it was known
    transfers: Transfers | None = None  # null: none, or stored before they were counted
    causes: tuple[IdleCause, ...] = ()  # that are known, most first; none where they are less than half of it
    # Their shares are of the idle time as recorded: unprofiled most of it lies at the edges of steps, where it is not
    # known what is waited for.
    causes_recorded: bool = False
    # The call in which the host waited through most of the idle time, with its operator, where no cause of that is
    # recorded; null: there is none, or it is not needed.
    held: str | None = None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of work of a step. Nanoseconds, mean of steps and devices."""

    # `products` (matrix products, convolutions), `attention` (fused calls), `memory_bound` (pointwise, norms,
    # reductions …), `optimizer`, `other`, `copies` (with fills and sets), `communication`, `idle`
    name: str
    ns: int  # of the step; where several run at once, the first of these names has the moment
    gpu_time_ns: int  # sum of durations, whatever overlaps it; 0 of `idle`
    # The least that this could be: what findings change as they say at most, all else at the device's rates for its
    # bytes and FLOPs, as it is where those are not known; null: they are known of none of it, or the GPU is not known.
    least_gpu_time_ns: int | None = None


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of an unprofiled step, or of the whole where no steps are known. Nanoseconds."""

    ns: int  # the sum of all parts: `unprofiled_ns`, or the GPU's work where that is longer
    parts: tuple[Part, ...]  # those that occur, and `idle`
    covered_communication_ns: int  # overlaps other work, and so of no part
    after_ns: Range  # how long it takes once all findings are fixed
    gpu_time_after_ns: Range | None = None  # GPU time then; null: savings of it were not estimated
    # The least that GPU time could be: the sum over the parts, as it is where nothing is known; null: known of less
    # than half of it.
    least_gpu_time_ns: int | None = None
    least_known_share: float = 0.0  # of GPU time, of which the least is known


class PeakMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The most that was allocated at one time in a step, on one device. Bytes, as the allocator rounds them."""

    before_bytes: int
    after_bytes: int  # without the tensors that findings do away with, each as long as it was there
    not_found: int  # of those tensors: no allocation of their size was recorded, so they count as if they stayed


class Communication(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one kind, group of ranks and line. Nanoseconds a step, over the trace where no steps are known."""

    kind: str  # `all_reduce`, `all_gather`, …, whatever torch, NCCL or an engine calls it
    group: str | None  # what its process group is for, as recorded
    group_size: int | None
    source: str | None  # line that calls it; null: no stacks were recorded
    count: float
    bytes: int | None  # of a full message, the median; null: not recorded
    ns: int
    exposed_ns: (
        int  # of it, how long nothing else ran: transfer, or waiting for other ranks, which one rank cannot tell
    )
    least_ns: int | None  # as long as the bytes take at the links' raw rate; null: either is not known
    # Of exposed_ns: `same_stream`, `last` of the step, `launched_first`, `waited_for` at once, `host` (it had launched
    # nothing else).
    because: dict[str, int]
    behind: dict[str, int]  # what ran meanwhile, by class of operator, most first


class DeviceTime(msgspec.Struct, frozen=True, kw_only=True):
    """One of several devices, as recorded."""

    ordinal: int  # -1: not recorded
    busy_ns: int  # mean of the steps in which it ran anything; over the span where no steps are known
    idle_share: float  # of such a step, 0 to 1


class Payback(msgspec.Struct, frozen=True, kw_only=True):
    """Steps after which compiling has paid for itself, by what the findings that it fixes save a step."""

    compile_low_ns: int
    compile_high_ns: int
    source: str  # of these two
    step_saving_ns: int  # of all findings whose fix is torch.compile, mid
    low_steps: int
    high_steps: int


class ReplayedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Iterations that replay graphs which were captured for one number of tokens."""

    rows: int | None  # tokens that the graphs were captured for; null: that takes the trace of the capture
    graphs: int  # replays an iteration, the most
    iterations: int
    tokens: tuple[int, ...]  # numbers of tokens that were served by it, as annotations tell them
    padded_share: float | None  # of the rows that were computed, those that no token needed; null: not known


class ServingKind(msgspec.Struct, frozen=True, kw_only=True):
    """Iterations of one phase, those that count. Medians; nanoseconds as recorded, with the profiler."""

    phase: str  # `prefill`, `decode`, `mixed`; `` where annotations tell no batch
    count: int
    sequences: int | None  # null: not known
    prompt_tokens: int | None
    tokens: int | None  # in all
    gpu_busy_ns: int
    step_ns: int | None  # from one iteration to the next; null: one alone was recorded, or no other followed
    # Time per output token of a sequence, where each iteration makes one; null: it does not, or that is not known.
    token_ns: int | None


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine that generates text did in a trace."""

    engine: str  # `vllm`, `sglang`, `transformers`
    title: str
    captures: int  # graphs that were captured, where the recording shows that and little else
    kinds: tuple[ServingKind, ...]  # most GPU time first
    replayed: tuple[ReplayedBatch, ...]  # none: no graph was replayed in an iteration


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What the trace measured, and the sums over findings. Nanoseconds."""

    span_ns: int  # first start of an activity to the last end, over all devices, whether steps are recorded or not
    gpu_time_ns: int  # sum of activity durations
    gpu_busy_ns: int  # their union over streams, a device at a time
    gpu_idle_ns: int  # the rest of the span, summed over devices that were active
    per_step: StepSummary | None
    gpu_saving_ns: Range
    step_saving_ns: Range
    unprofiled_ns: UnprofiledTime | None = None  # of the whole span, where no steps are known
    bound: Bound | None = None  # null: nothing ran
    parts: Parts | None = None  # null: nothing ran, or stored by a version that did not say
    # Null: allocations were not recorded (profile_memory), or dataflow is not known.
    peak_memory: PeakMemory | None = None
    devices: tuple[DeviceTime, ...] = ()  # each of several; of one there is no more to say
    payback: Payback | None = None  # null: no fix is torch.compile, it saves a step nothing, or no steps are known
    serving: Serving | None = None  # null: no engine is known, or it is trained
    communication: tuple[Communication, ...] = ()  # what runs alone for longest first


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """Scope of a recording: what it has of each thing that a finding may depend on."""

    tracemine: str  # version that made the scan
    torch: str | None
    world_size: int | None
    devices: int  # that were active
    shapes: bool
    stacks: bool  # or modules
    traced: bool  # an execution trace was written in the same window, which slows the host
    tensors: bool  # of an execution trace that was given
    operators: float  # share of GPU time whose operator is known
    idle: str = "estimated"  # unprofiled: `measured` in a light window, `estimated`; `recorded`: its cost is not known
    cut_off: bool = False  # the file ended before its content did: what came after is not known
    doubts: tuple[str, ...] = ()  # records that cannot be or are lost, a sentence each; said before all else
    unusable: bool = False  # they leave no time that can be believed: nothing is said of the program


class WorkOfClass(msgspec.Struct, frozen=True, kw_only=True):
    """The kernels of a step of one kind, over all devices; of the trace where no steps are known."""

    name: str  # as of `Part`
    kernels: float
    gpu_ns: int
    fused: float  # kernels of several operations that a compiler generated
    operations: tuple[str, ...]  # that these compute, those whose kernels take most first


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Time of each operator, nanoseconds a step (over the trace where no steps are known), whoever claims it.

    "" is what has no name. Of each the thousand that take most.
    """

    gpu_ns: dict[str, int]  # an operator, or a kernel's family where none is known: GPU time
    idle_ns: dict[str, int]  # what the device waited for, as a gap's finding names it: idle time
    made_by: str = ""  # `PyTorch`, `torch.compile`, `JAX 0.11.2` …; "": stored by a version that did not say
    work: tuple[WorkOfClass, ...] = ()


class TraceSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The trace that was read."""

    path: str
    format: str
    gpu: str | None
    steps: int
    activities: int
    unattributed: int
    # The device table's row that savings of GPU time are estimated for; left out where the GPU is not known: they are
    # not estimated then, which is not the same as none.
    estimated_for: str | None = None
    # The row that its rates are guessed by, as it is not in the table itself; left out where they are its own.
    estimate_guessed_from: str | None = None
    execution_trace: str | None = None  # the file that was given with the trace; left out where none was
    calibration: str | None = None  # the user's own that fused times are read off; left out where it is the package's
