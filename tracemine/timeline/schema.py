"""Describe the tables of a timeline: columns, Arrow types, what each says, and what null means."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
from msgspec import Struct

_TEXT = pa.dictionary(pa.int32(), pa.string())


class ColumnSchema(Struct, frozen=True, cache_hash=True):
    """One column: its Arrow type, whether it may be null, what it says, and what null means."""

    name: str
    type: pa.DataType
    says: str
    null: str | None = None  # what an absent value means; None: the column is never null


class TableSchema(Struct, frozen=True):
    """One table of the timeline: what a row is, in which order the rows stand, and its columns."""

    name: str
    row: str
    order: str
    columns: tuple[ColumnSchema, ...]
    derived: tuple[ColumnSchema, ...] = ()  # in the files, before the others; never in memory

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema that every table of this name has.

        >>> TABLES["steps"].schema.names
        ['name', 'number', 'start_ns', 'dur_ns', 'pid', 'tid']
        """
        return _schema_of(self.columns)


@cache
def _schema_of(columns: tuple[ColumnSchema, ...]) -> pa.Schema:
    return pa.schema([pa.field(c.name, c.type, nullable=c.null is not None) for c in columns])


_NOT_IN_THIS_FORMAT = "the export does not record it"
_NO_SHAPES = "shapes were not recorded (record_shapes was off), or an older profiler did not write them"

_INFERRED = "the tensors are inferred, not recorded"
_NO_EXECUTION_TRACE = "no execution trace was given, or it lacks the operator"

ROW = ColumnSchema("row", pa.int64(), "this row's own number, which other tables' columns named `…row` hold")
_SHORT_NAME = ColumnSchema(
    "short_name",
    _TEXT,
    "`name` in few words, as `tracemine top --ncu` prints it: the function, and the operation that its template arguments show; of copies and sets the title",
)

_TABLES = (
    TableSchema(
        "activities",
        "one GPU kernel, copy or set, or one CUDA graph that was traced as a whole",
        "start_ns, then device, stream, and the order in the file",
        (
            ColumnSchema("kind", _TEXT, "`kernel`, `memcpy`, `memset`, or `graph` (the replay of a whole CUDA graph, where its nodes were not traced one by one)"),
            ColumnSchema("name", _TEXT, "kernel name as the profiler demangled it, or the copy's or set's title"),
            ColumnSchema("start_ns", pa.int64(), "start on the trace's clock, nanoseconds (since the Unix epoch where the export has it)"),
            ColumnSchema("dur_ns", pa.int64(), "duration in nanoseconds"),
            ColumnSchema("device", pa.int32(), "device ordinal as recorded", "the export does not say which device"),
            ColumnSchema("stream", pa.int64(), "stream id as recorded; 0 is the ordinary stream on ROCm", "the export does not say which stream"),
            ColumnSchema("context", pa.int64(), "context id", _NOT_IN_THIS_FORMAT),
            ColumnSchema("correlation", pa.int64(), "id shared with the host call that launched it; all kernels of one graph replay share one", _NOT_IN_THIS_FORMAT),
            ColumnSchema("external_id", pa.int64(), "the profiler's own link to an operator; kept as a fact, known to be wrong at times", _NOT_IN_THIS_FORMAT),
            ColumnSchema("grid", pa.list_(pa.int32(), 3), "blocks in x, y, z", "not a kernel, or not recorded (ROCm before 2024-08, ROCm graphs)"),
            ColumnSchema("block", pa.list_(pa.int32(), 3), "threads a block in x, y, z", "not a kernel, or not recorded"),
            ColumnSchema("registers_per_thread", pa.int32(), "registers a thread", "not a kernel, or not recorded"),
            ColumnSchema("shared_memory_bytes", pa.int64(), "static plus dynamic shared memory a block, bytes", "not a kernel, or not recorded"),
            ColumnSchema("occupancy_percent", pa.float32(), "the profiler's estimate of theoretical occupancy from the launch configuration (not measured)", "not a kernel, or not recorded"),
            ColumnSchema("bytes", pa.int64(), "bytes moved by a copy or written by a set", "a kernel, or not recorded"),
            ColumnSchema("copy_kind", _TEXT, "direction of a copy: `HtoD`, `DtoH`, `DtoD`, `PtoP`, `HtoH` …", "not a copy, or not recorded"),
            ColumnSchema("source_memory", _TEXT, "kind of memory copied from: `pageable`, `pinned`, `host` (ROCm: either of them), `device`, `managed`, `array`", "not a copy, or not recorded"),
            ColumnSchema("target_memory", _TEXT, "kind of memory copied to", "not a copy, or not recorded"),
            ColumnSchema("graph_id", pa.int64(), "CUDA graph the activity belongs to", "not launched by a graph, or not recorded (most exports)"),
            ColumnSchema("graph_node_id", pa.int64(), "node of that graph", "as graph_id"),
            ColumnSchema("collective", _TEXT, "name of the collective a communication kernel carries out", "not a collective, or not recorded"),
            ColumnSchema("group_size", pa.int64(), "ranks taking part in the collective", "as collective"),
            ColumnSchema("launch_row", pa.int64(), "row of `api`: the host call that launched it; a graph's replay is one call for all its activities", "no recorded call has its correlation id"),
            ColumnSchema("op_row", pa.int64(), "row of `ops`: the operator that owns it, the innermost one around its launch; an operator around a graph's replay owns none of the graph's activities", "see unowned_reason"),
            ColumnSchema("owner_evidence", _TEXT, "how op_row was found: `nesting` (in time, on the launching thread) or `external_id` (the profiler's id, believed only where that operator encloses the launch in time and the launching thread has no operators under its own number), `graph_capture` (the trace of the graph's capture, by the order of its kernels), `compiler` (the compiled module names the instruction), `consistent` (an instruction that fits)", "op_row is null"),
            ColumnSchema("unowned_reason", _TEXT, "why op_row is null: `before_window` (launched before recording began), `no_host_events` (no operators were recorded), `no_launch_call` (its call is not among the recorded ones), `graph_replay` (a graph was replayed: what its activities compute was said when it was captured), `outside_any_op` (the call lies in no operator of its thread)", "op_row is set"),
            ColumnSchema("step_row", pa.int64(), "row of `steps`: the step during whose host span it was launched", "launched outside every step, launch not recorded, or no steps recorded"),
            ColumnSchema("module", _TEXT, "names of the scopes around it, outermost first, joined by `.`, where the profiler says them of the activity itself (Proton)", "said of its operator or launch, if at all"),
            ColumnSchema("stack_row", pa.int64(), "row of `stacks`: the innermost line that led to it, where the profiler says that of the activity itself", "as module"),
            ColumnSchema("calls", pa.int64(), "how many runs of the kernel are in the row: its time is their sum, and when they ran was not recorded", "one run, at its own time"),
            ColumnSchema("stated_bytes", pa.int64(), "bytes that the kernel moves, as the program says to the profiler", "not stated"),
            ColumnSchema("stated_flops", pa.int64(), "operations that the kernel computes, as the program says to the profiler", "not stated"),
        ),
        derived=(ROW, _SHORT_NAME),
    ),
    TableSchema(
        "ops",
        "one host operator or annotation",
        "start_ns, longer first, then the profiler's own numbering where recorded, then the order in the file",
        (
            ColumnSchema("kind", _TEXT, "`op` (ATen, autograd, Triton …) or `annotation` (record_function, profiler steps)"),
            ColumnSchema("name", _TEXT, "operator name, such as `aten::mul`"),
            ColumnSchema("start_ns", pa.int64(), "start, nanoseconds on the trace's clock; of an operator of a graph's capture, when the call that replays the graph began"),
            ColumnSchema("dur_ns", pa.int64(), "duration in nanoseconds; 0 of an operator of a graph's capture"),
            ColumnSchema("pid", pa.int64(), "process id", "the export does not say"),
            ColumnSchema("tid", pa.int64(), "thread id", "the export does not say"),
            ColumnSchema("parent_row", pa.int64(), "row of `ops`: the innermost operator or annotation around it on its thread", "outermost"),
            ColumnSchema("external_id", pa.int64(), "id that activities and host calls repeat", _NOT_IN_THIS_FORMAT),
            ColumnSchema("record_function_id", pa.int64(), "id shared with a PyTorch execution trace; in NVTX texts `op_id`", "no execution trace was being recorded, or torch before 2.4; NVTX: torch before 1.12"),
            ColumnSchema("sequence_number", pa.int64(), "autograd sequence number; a backward operator repeats its forward's", "not part of autograd, or not recorded"),
            ColumnSchema("forward_thread_id", pa.int64(), "internal number of the thread of the forward operator; 0 on forward operators", "as sequence_number"),
            ColumnSchema("input_shapes", _TEXT, "JSON: a list of ints for each input; a list of such lists for a TensorList; `[]` for scalars, None and 0-dim tensors", _NO_SHAPES),
            ColumnSchema("input_dtypes", _TEXT, "JSON: the recorded type name of each input", _NO_SHAPES),
            ColumnSchema("input_strides", _TEXT, "JSON: as input_shapes, in elements", "not recorded (torch before 2.4, or record_shapes off)"),
            ColumnSchema("concrete_inputs", _TEXT, "JSON: text of each scalar input, `\"\"` for tensors", "not recorded (torch before 2.1, or record_shapes off)"),
            ColumnSchema("kernel_backend", _TEXT, "`triton` on Inductor's own kernels", "no generated kernel"),
            ColumnSchema("module", _TEXT, "names of the nn.Modules around it, outermost first, joined by `.`; each is its class and a counter. NVTX: the names of the ranges around it that are neither operators nor steps", "no stacks were recorded, or outside any module"),
            ColumnSchema("stack_row", pa.int64(), "row of `stacks`: the innermost Python frame around it", "no stacks were recorded"),
            ColumnSchema("execution_node_id", pa.int64(), "id of its node in the execution trace, or its `op_id` where NVTX texts tell who made all that it reads; ids grow in the order of starts, over all threads", _NO_EXECUTION_TRACE),
            ColumnSchema("op_schema", _TEXT, "the operator's schema with its overload, such as `aten::add.Tensor(Tensor self, …) -> Tensor`", _NO_EXECUTION_TRACE + ", or it has none (annotations, backward nodes)"),
            ColumnSchema("since_stack_row", pa.int64(), "row of `stacks`: the innermost Python frame that has run since the operator or annotation before it on its thread began, which tells two calls of one function from each other", "no such frame, or the export does not say when frames begin"),
        ),
        derived=(ROW,),
    ),
    TableSchema(
        "api",
        "one host call into the GPU runtime or driver, or one recorded synchronisation",
        "start_ns, longer first, then the order in the file",
        (
            ColumnSchema("kind", _TEXT, "`runtime`, `driver`, or `sync` (a synchronisation as the device reported it)"),
            ColumnSchema("name", _TEXT, "name of the call, such as `cudaLaunchKernel`; of a sync, its kind"),
            ColumnSchema("start_ns", pa.int64(), "start, nanoseconds on the trace's clock"),
            ColumnSchema("dur_ns", pa.int64(), "duration in nanoseconds"),
            ColumnSchema("pid", pa.int64(), "process id", "a sync, or not recorded"),
            ColumnSchema("tid", pa.int64(), "thread id", "a sync, or not recorded"),
            ColumnSchema("correlation", pa.int64(), "id that the launched activities repeat", _NOT_IN_THIS_FORMAT),
            ColumnSchema("external_id", pa.int64(), "the profiler's own link to an operator", _NOT_IN_THIS_FORMAT),
            ColumnSchema("device", pa.int32(), "device a sync waited for", "not a sync, or not recorded"),
            ColumnSchema("stream", pa.int64(), "stream a sync waited for", "not a sync, or it waited for a whole context or an event"),
            ColumnSchema("kernel", _TEXT, "name of the kernel that it launches, or puts into a graph", "it launches none, or not recorded (CUDA)"),
            ColumnSchema("op_row", pa.int64(), "row of `ops`: the innermost operator (not annotation) around it on its thread", "outside any operator"),
            ColumnSchema("module", _TEXT, "as in `ops`", "no stacks were recorded, or outside any module"),
            ColumnSchema("stack_row", pa.int64(), "row of `stacks`: the innermost Python frame around it", "no stacks were recorded"),
            ColumnSchema("before_stack_row", pa.int64(), "row of `stacks`: the innermost Python frame that lasted for four fifths of the time since the device of what it launches was idle and its thread made no other call", "less than 200 µs had passed, or no such frame was recorded"),
        ),
        derived=(ROW,),
    ),
    TableSchema(
        "steps",
        "one step as the profiler's schedule marked it (`ProfilerStep#N`)",
        "start_ns",
        (
            ColumnSchema("name", _TEXT, "name of the mark"),
            ColumnSchema("number", pa.int64(), "N of `ProfilerStep#N`", "the name carries no number"),
            ColumnSchema("start_ns", pa.int64(), "start on the host, nanoseconds on the trace's clock"),
            ColumnSchema("dur_ns", pa.int64(), "duration on the host in nanoseconds"),
            ColumnSchema("pid", pa.int64(), "process id", "the export does not say"),
            ColumnSchema("tid", pa.int64(), "thread id", "the export does not say"),
        ),
        derived=(ROW,),
    ),
    TableSchema(
        "stacks",
        "one distinct Python call path: a frame under its caller's path",
        "callers before callees",
        (
            ColumnSchema("parent_row", pa.int64(), "row of `stacks`: the caller's path", "outermost frame"),
            ColumnSchema("frame", _TEXT, "the frame as recorded: `file.py(line): function`, `nn.Module: Name_0`, or a built-in"),
            ColumnSchema("file", _TEXT, "source file", "a built-in or an nn.Module"),
            ColumnSchema("line", pa.int32(), "line the function begins at, 1-based", "as file"),
            ColumnSchema("function", _TEXT, "function name", "as file"),
            ColumnSchema("module", _TEXT, "names of the nn.Modules on this path, outermost first, joined by `.`", "outside any module"),
        ),
        derived=(ROW,),
    ),
    TableSchema(
        "memory",
        "one allocation or one free, as an allocator reported it (`profile_memory=True`); none where that was off",
        "start_ns, then the order in the file",
        (
            ColumnSchema("start_ns", pa.int64(), "when, nanoseconds on the trace's clock"),
            ColumnSchema("bytes", pa.int64(), "bytes allocated, as the allocator rounds them; negative: freed"),
            ColumnSchema("address", pa.int64(), "where; the same again once that is freed", "not recorded (torch 1.9)"),
            ColumnSchema("device", _TEXT, "`cuda:0`, `cpu` …, as in `tensors`", "not recorded"),
            ColumnSchema("pid", pa.int64(), "process id", "the export does not say"),
            ColumnSchema("tid", pa.int64(), "thread id", "the export does not say"),
            ColumnSchema("op_row", pa.int64(), "row of `ops`: the innermost operator (not annotation) around it on its thread", "outside any operator"),
            ColumnSchema("allocated_bytes", pa.int64(), "all that is allocated on the device from then on", _NOT_IN_THIS_FORMAT),
            ColumnSchema("reserved_bytes", pa.int64(), "all that the allocator has of the device from then on", _NOT_IN_THIS_FORMAT),
        ),
        derived=(ROW,),
    ),
    TableSchema(
        "tensors",
        "one tensor that an operator took or gave, as an execution trace says, NVTX texts with `input_op_ids`, or a compiled module; none where there is none of these",
        "op_row, inputs before outputs, position, list_index",
        (
            ColumnSchema("op_row", pa.int64(), "row of `ops`"),
            ColumnSchema("is_output", pa.bool_(), "whether the operator gave it"),
            ColumnSchema("position", pa.int32(), "which argument or result of the operator, counted from 0"),
            ColumnSchema("list_index", pa.int32(), "which member of a list, lists of lists laid out flat", "the argument is no list"),
            ColumnSchema("tensor_id", pa.int64(), "the same until something gives a tensor with this id anew"),
            ColumnSchema("storage_id", pa.int64(), "shared by views of one storage; used again for another storage once one is freed. NVTX: a number for each tensor that an operator made, and one for each tensor that none made at each read of it"),
            ColumnSchema("offset_elements", pa.int64(), "where in its storage it begins, in elements. NVTX: 0, and of a view of a part that is not known"),
            ColumnSchema("numel", pa.int64(), "number of elements; those that stride 0 repeats count each time"),
            ColumnSchema("itemsize_bytes", pa.int64(), "bytes an element", "dtypes were not recorded (NVTX)"),
            ColumnSchema("device", _TEXT, "`cuda:0`, `cpu` …; NVTX: the device of the kernels that take it"),
            ColumnSchema("dtype", _TEXT, "recorded type name, as in `ops.input_dtypes`", "not recorded (NVTX never does)"),
            ColumnSchema("shape", pa.list_(pa.int64()), "size of each dimension"),
            ColumnSchema("strides", pa.list_(pa.int64()), "stride of each dimension, in elements", "not recorded (torch before 2.2)"),
        ),
        derived=(ROW,),
    ),
    TableSchema(
        "collectives",
        "one collective, send or receive, as torch 2.2 and later or NCCL under Nsight Systems record it, with its kernel or its call",
        "activity_row, then op_row",
        (
            ColumnSchema("activity_row", pa.int64(), "row of `activities`: its kernel; several sends and receives may share one", "it launched none, or which is not known"),
            ColumnSchema("op_row", pa.int64(), "row of `ops`: the `record_param_comms`, or the call of NCCL, that launched it", "no operator of its own around the launch"),
            ColumnSchema("name", _TEXT, "name as recorded, such as `_allgather_base`"),
            ColumnSchema("group_name", _TEXT, "name of its process group: a number that each process counts for itself; of Nsight Systems the communicator, equal on all ranks", "torch before 2.4, or export without blobs"),
            ColumnSchema("group_description", _TEXT, "what its process group is for", "as group_name"),
            ColumnSchema("ranks", _TEXT, "JSON: the ranks of its process group", "torch before 2.3, or cut off and the header does not list them"),
            ColumnSchema("group_size", pa.int64(), "how many ranks take part", "not recorded"),
            ColumnSchema("peer", pa.int64(), "rank sent to or received from", "neither a send nor a receive, or not recorded"),
            ColumnSchema("sequence", pa.int64(), "number of the collective in its process group, the same on all ranks", "torch before 2.12"),
            ColumnSchema("elements_in", pa.int64(), "elements that the rank puts in", "not recorded"),
            ColumnSchema("elements_out", pa.int64(), "elements that the rank gets", "not recorded, or known of the call alone"),
            ColumnSchema("dtype", _TEXT, "type name of the elements, as recorded", "not recorded"),
            ColumnSchema("splits_in", _TEXT, "JSON: of an all-to-all the rows sent to each rank; `[]`: equal parts", "as elements_out"),
            ColumnSchema("splits_out", _TEXT, "JSON: of an all-to-all the rows received from each rank", "as elements_out"),
        ),
        derived=(ROW,),
    ),
    TableSchema(
        "instructions",
        "one execution of an instruction of a module that XLA compiled",
        "op_row",
        (
            ColumnSchema("op_row", pa.int64(), "row of `ops`"),
            ColumnSchema("program", pa.int64(), "the module's id"),
            ColumnSchema("program_name", _TEXT, "the module's name, such as `jit_step`"),
            ColumnSchema("execution", pa.int64(), "number of the module's execution, counted from 0 in the order of launches"),
            ColumnSchema("name", _TEXT, "the instruction's name"),
            ColumnSchema("opcode", _TEXT, "its opcode, such as `fusion`"),
            ColumnSchema("body", _TEXT, "opcodes that it computes, of a fusion those inside, in order of the alphabet, each once and joined by blanks"),
            ColumnSchema("library", _TEXT, "target of a custom call, or kind of the backend that wrote a fusion", "XLA's own emitter wrote its kernel"),
            ColumnSchema("precision", _TEXT, "of a library's product, how it is configured: `DEFAULT`, `HIGH`, `HIGHEST`", "no product, or not configured"),
            ColumnSchema("dtypes", _TEXT, "types of elements of the arrays in it, likewise", "written before it was kept"),
            ColumnSchema("multiplies", _TEXT, "type of the elements that a product multiplies, the wider where they differ", "no product, or not known"),
            ColumnSchema("flops", pa.int64(), "floating-point operations of its products", "none, or not known"),
            ColumnSchema("loop", _TEXT, "name of the innermost `while` around it", "in no loop"),
            ColumnSchema("trips", pa.int64(), "iterations that loop has", "in no loop, or not known when it was compiled"),
            ColumnSchema("turn", pa.int64(), "which iteration it is of, counted from 0", "in no loop"),
            ColumnSchema("needs_turn", pa.bool_(), "whether it needs what the iteration before made, other than its counter", "in no loop"),
            ColumnSchema("gives_result", pa.bool_(), "whether the module gives what it makes to its caller"),
        ),
        derived=(ROW,),
    ),
    TableSchema(
        "lock_waits",
        "one time for which a thread stood still in Python, in no operator and no call, while another thread of its process began and ended frames: it waited for Python's lock. Times of 20 µs and longer, of exports with frames of several threads",
        "start_ns",
        (
            ColumnSchema("start_ns", pa.int64(), "first of the other thread's moments, nanoseconds on the trace's clock"),
            ColumnSchema("dur_ns", pa.int64(), "up to the last one, nanoseconds"),
            ColumnSchema("pid", pa.int64(), "process id", "the export does not say"),
            ColumnSchema("tid", pa.int64(), "the thread that waits", "the export does not say"),
            ColumnSchema("stack_row", pa.int64(), "row of `stacks`: its innermost Python frame", "not known"),
            ColumnSchema("holder_tid", pa.int64(), "the thread that runs Python", "the export does not say"),
            ColumnSchema("holder_stack_row", pa.int64(), "row of `stacks`: its innermost frame in the middle of that time", "not known"),
        ),
        derived=(ROW,),
    ),
    TableSchema(
        "light",
        "one activity, call or step as it was in the light window of a capture, where the host was slowed down little; none where there is no such window, or its steps differ. Only launches and waits in steps have one",
        "start_ns",
        (
            ColumnSchema("activity_row", pa.int64(), "row of `activities`", "a call or a step"),
            ColumnSchema("api_row", pa.int64(), "row of `api`", "an activity or a step"),
            ColumnSchema("step_row", pa.int64(), "row of `steps`", "an activity or a call"),
            ColumnSchema("start_ns", pa.int64(), "start, nanoseconds on the trace's clock if the first step had begun there when it did in the trace"),
            ColumnSchema("dur_ns", pa.int64(), "duration in nanoseconds"),
        ),
        derived=(ROW,),
    ),
)  # fmt: skip

# Written next to the tables where dataflow is known, and derived anew on load: no fact, so no part of a Timeline.
EDGES = TableSchema(
    "edges",
    "one tensor that an activity read and another wrote",
    "consumer_row, then producer_row, then the order of the consumer's arguments",
    (
        ColumnSchema("producer_row", pa.int64(), "row of `activities`: the last one of the operator that wrote it"),
        ColumnSchema("consumer_row", pa.int64(), "row of `activities`: the first one of the operator that read it"),
        ColumnSchema("bytes", pa.int64(), "bytes of the tensor that was read which lie in what was written", "dtypes were not recorded (NVTX)"),
        ColumnSchema("evidence", _TEXT, "`proven`: it was recorded that both had the same storage; `consistent`: of the tensors alive only that one fits by shape, dtype, strides and order; `adjacent`: a guess, the likeliest of several"),
        ColumnSchema("buffer", pa.int64(), "number of the storage, of which each is counted anew when it is allocated"),
        ColumnSchema("written_row", pa.int64(), "row of `tensors`: what was written", _INFERRED),
        ColumnSchema("read_row", pa.int64(), "row of `tensors`: what was read", _INFERRED),
    ),
)  # fmt: skip

_FLOP_DTYPES = ("fp32", "fp64", "half", "bf16", "fp16", "tf32", "fp8", "int8")
_NOT_COUNTED = "the report does not have it"

# Written next to the tables where reports of Nsight Compute were given. Of other runs than the trace, so no part of a
# Timeline: `read_counters_table` reads it, and which activities its kernels are is found anew.
COUNTERS = TableSchema(
    "counters",
    "one kernel that Nsight Compute profiled",
    "report, then order",
    (
        ColumnSchema("report", pa.int32(), "which report it is of, counted from 0 in the order they were given"),
        ColumnSchema("source", _TEXT, "file name of that report, without its folder"),
        ColumnSchema("page", _TEXT, "what that report is: `raw`, `details`, both, or `report` (the binary one)"),
        ColumnSchema("order", pa.int64(), "position among that report's kernels, counted from 0"),
        ColumnSchema("name", _TEXT, "kernel name as the report prints it: demangled, mangled or the bare function's"),
        ColumnSchema("grid", pa.list_(pa.int64(), 3), "blocks in x, y, z", _NOT_COUNTED),
        ColumnSchema("block", pa.list_(pa.int64(), 3), "threads a block in x, y, z", _NOT_COUNTED),
        ColumnSchema("gpu", _TEXT, "product name of the GPU", _NOT_COUNTED),
        ColumnSchema("dur_ns", pa.int64(), "duration in nanoseconds; kernels are serialised and begin with empty caches, so it is not the timeline's", _NOT_COUNTED),
        ColumnSchema("dram_read_bytes", pa.int64(), "bytes read from DRAM", _NOT_COUNTED),
        ColumnSchema("dram_written_bytes", pa.int64(), "bytes that reached DRAM before the kernel ended: the rest still lay in L2", _NOT_COUNTED),
        ColumnSchema("dram_bytes", pa.int64(), "bytes between DRAM and L2, both ways", _NOT_COUNTED),
        ColumnSchema("dram_bytes_from", _TEXT, "how dram_bytes is known: `counters`, or derived: `rate` (× duration), `throughput` (× peak × duration)", "dram_bytes is null"),
        *(ColumnSchema(f"{dtype}_flops", pa.int64(), f"floating-point operations counted as {dtype}" if dtype != "int8" else "operations of the matrix units counted as int8", "none, or not counted: see flops_complete") for dtype in _FLOP_DTYPES),
        ColumnSchema("flops_complete", pa.bool_(), "whether these hold all arithmetic that is counted at all: matrix units have counters of their own"),
        ColumnSchema("occupancy_percent", pa.float64(), "resident warps, of those that a multiprocessor can hold, as achieved", _NOT_COUNTED),
        ColumnSchema("theoretical_occupancy_percent", pa.float64(), "the same as the launch configuration allows", _NOT_COUNTED),
        ColumnSchema("registers_per_thread", pa.int64(), "registers a thread", _NOT_COUNTED),
        ColumnSchema("spill_requests", pa.int64(), "loads and stores of local memory, warp instructions", _NOT_COUNTED),
        ColumnSchema("l2_hit_percent", pa.float64(), "requests that L2 could answer", _NOT_COUNTED),
        ColumnSchema("compute_percent", pa.float64(), "throughput of the multiprocessors, of what they can sustain", _NOT_COUNTED),
        ColumnSchema("memory_percent", pa.float64(), "throughput of the memory system (the busiest of DRAM, L2, L1), likewise", _NOT_COUNTED),
        ColumnSchema("dram_percent", pa.float64(), "throughput of DRAM alone, likewise", _NOT_COUNTED),
        ColumnSchema("waves", pa.float64(), "how often the grid fills the GPU", _NOT_COUNTED),
        ColumnSchema("rules", _TEXT, "what ncu's own rules say, a line each: `TYPE NAME: text`", "the report holds no results of rules"),
        ColumnSchema("activity_rows", pa.list_(pa.int64()), "rows of `activities` that have these counters: of a step that is repeated one each", "no activity has them: see evidence"),
        ColumnSchema("evidence", _TEXT, "how it was found among the activities: `exact` (name, grid, block and the order of launches agree), `name_and_grid` (name, grid and block alone; where one launch of these represents all, activity_rows is null)", "no trace was given, or see unmatched_reason"),
        ColumnSchema("unmatched_reason", _TEXT, "why it is none of the activities: `no_grid` (the report does not say its grid and block), `other_gpu`, `not_in_timeline` (no activity has its name), `other_grid` (none of its name has its grid and block), `several_names`, `several_inputs`, `several_counters` (the activities, their inputs or the profiled launches of its name and grid differ, and the order does not tell)", "it was found, or no trace was given"),
    ),
)  # fmt: skip


TABLES: dict[str, TableSchema] = {table.name: table for table in _TABLES}
