"""Document each column that a rule may test."""

from __future__ import annotations

from tracemine.ops import CLASSES
from tracemine.rows.idle_causes import CAUSES
from tracemine.rows.library import CAUSES as LIBRARY_CAUSES
from tracemine.rows.library import LEAST_PERCENT
from tracemine.rows.table import ColumnDoc

_OUTSIDE_OPERATORS = "no operator owns it (launched before the window, by a graph, or outside any operator)"
_NO_SHAPES = "no operator owns it, or shapes were not recorded"
_NO_STACKS = "no stacks were recorded, or none of its frames has a file"
_NOT_ALONE = "its launch was not recorded, or one call launched a whole graph"
_NO_BYTES = (
    "shapes were not recorded, the operator's output does not follow from them, or the operator launched "
    "more than one kernel"
)
_NO_BREAK = "in no graph break"
NO_UPDATE = "in no optimizer's step, or no operators were recorded"
_A_KERNEL = "a kernel, or not recorded"

_NO_LOOP = "in no such loop, or dataflow is not known"
_NO_COUNTERS = "no report of Nsight Compute was given, none of its kernels is this one, or it lacks the metric"
_NO_CALL = "not a library's call (gemm, conv, attention)"
_NOT_COUNTED = _NO_CALL + ", or its inputs were not recorded"
_ACTIVITIES = (
    ColumnDoc("kind", "categories", "`kernel`, `memcpy` or `memset`"),
    ColumnDoc("name", "categories", "kernel name as recorded, or the copy's or set's title"),
    ColumnDoc("family", "categories", "who wrote the kernel and how, inferred from its name: `elementwise`, `cublas`, `inductor` …"),
    ColumnDoc("op", "categories", "operator that owns it, such as `aten::mul`", _OUTSIDE_OPERATORS),
    ColumnDoc("operation", "categories", "the operator's name without `aten::` and the `_` of in-place operators: `mul` of both `aten::mul` and `aten::mul_`", _OUTSIDE_OPERATORS),
    ColumnDoc("functor", "categories", "the operation that an elementwise kernel's own name shows, whoever launched it: `mul`, `pow`, `rsqrt`", "the name shows none"),
    ColumnDoc("op_class", "categories", "kind of work, one of " + ", ".join(f"`{name}`" for name in CLASSES) + "; the operator decides for its only kernel, each kernel's own name where there are several or none is known"),
    ColumnDoc("bound", "categories", "`memory` or `compute`: what limits a large kernel of this op_class; `compute` too where counters show that of this kernel (measured_bound)", "the class does not tell"),
    ColumnDoc("auxiliary", "flags", "launched by a library operator (gemm, convolution, attention …) next to its main kernel: a layout change, a split-K reduction. It cannot be fused from outside"),
    ColumnDoc("generated", "flags", "written by a compiler (Triton), so fused already as far as the compiler went"),
    ColumnDoc("start_ns", "numbers", "start, nanoseconds on the trace's clock"),
    ColumnDoc("dur_ns", "numbers", "duration in nanoseconds"),
    ColumnDoc("gap_ns", "numbers", "nanoseconds that its own stream was idle before it; 0 where it overlaps the one before", "the first on its stream"),
    ColumnDoc("bytes_read", "numbers", "device memory that it must read: each input element once; of a copy, what was recorded; where counters are known, what they counted", _NO_BYTES),
    ColumnDoc("bytes_written", "numbers", "device memory that it must write: each output element once; of a copy or set, what was recorded; where counters counted more, that (they miss what still lay in L2 at its end)", _NO_BYTES),
    ColumnDoc("bytes", "numbers", "bytes_read + bytes_written; of a kernel whose program states its bytes (Proton's `launch_metadata`), these", "one of them is null, and nothing is stated"),
    ColumnDoc("stated_bytes", "numbers", "bytes that a kernel moves, as its program states them (Proton's `launch_metadata`)", "not stated"),
    ColumnDoc("stated_flops", "numbers", "operations of a kernel, as its program states them (Proton's `launch_metadata`)", "not stated"),
    ColumnDoc("runs", "numbers", "how many runs the row is the sum of: 1, but in a profile that holds sums (Proton's tree)"),
    ColumnDoc("bytes_moved", "numbers", "bytes of a copy or set, as recorded", _A_KERNEL),
    ColumnDoc("shape", "categories", "shape of the operator's first tensor, such as `[16,559,1024]`; of a TensorList, its first member's", _NO_SHAPES),
    ColumnDoc("dtype", "categories", "dtype of the operator's first tensor, such as `bfloat16`", _NO_SHAPES + "; or it is a TensorList"),
    ColumnDoc("width", "numbers", "last extent of `shape`", _NO_SHAPES + "; or it has no axes"),
    ColumnDoc("module", "categories", "nn.Modules around the operator, outermost first, joined by `.`", "no stacks were recorded, or outside any module"),
    ColumnDoc("source", "categories", "`file:line function` of the innermost Python frame outside the framework; the line is where the function begins", _NO_STACKS),
    ColumnDoc("device", "numbers", "device ordinal", "the export does not say"),
    ColumnDoc("stream", "numbers", "stream id", "the export does not say"),
    ColumnDoc("step", "numbers", "row of `steps`", "outside every step, or no steps were recorded"),
    ColumnDoc("segment", "numbers", "1 + step, 0 outside steps: for partition_by, which leaves rows with nulls out"),
    ColumnDoc("chain", "numbers", "what one kernel may replace: equal where a fusion group is, each kernel on its own where it is in none, and where it is not known what it reads and writes, the stretch of its stream in its segment, up to the next kernel of which that is known"),
    ColumnDoc("grouped", "flags", "part of a fusion group: one kernel could do all of its chain"),
    ColumnDoc("call", "numbers", "number of the library's call that it is part of: one operator of op_class gemm, conv or attention with all that it launched; 0 outside: for partition_by, which leaves rows with nulls out"),
    ColumnDoc("call_dur_ns", "numbers", "duration of all that the call launched, nanoseconds", _NO_CALL),
    ColumnDoc("call_flops", "numbers", "floating-point operations that the call asks for, from its shapes: a multiply and an add are two", _NOT_COUNTED),
    ColumnDoc("call_bytes", "numbers", "least device memory that the call must move: each input once, each output once", _NOT_COUNTED),
    ColumnDoc("call_roofline_percent", "numbers", "the least time that the data sheet allows, of call_dur_ns: call_flops at the peak of its data type (of float32 that of TF32) or call_bytes at the peak bandwidth, whichever takes longer", _NOT_COUNTED + ", or the device table lacks the GPU or its peak"),
    ColumnDoc("call_percent", "numbers", "time of all identical calls, of GPU time: of the same call_cause, or where that is unknown of the same operator with the same inputs", _NO_CALL),
    ColumnDoc("call_cause", "categories", "why such a call may be slow, one of " + ", ".join(f"`{cause}`" for cause in LIBRARY_CAUSES) + "; it need not be: what the device reaches is not looked at here", _NOT_COUNTED),
    ColumnDoc("heavy_call", "flags", f"part of calls whose call_percent is {LEAST_PERCENT} or more and whose call_flops are known"),
    ColumnDoc("copy_kind", "categories", "direction of a copy: `HtoD`, `DtoH`, `DtoD`, `PtoP` …", "not a copy, or not recorded"),
    ColumnDoc("source_memory", "categories", "kind of memory copied from: `pageable`, `pinned`, `device` …", "not a copy, or not recorded"),
    ColumnDoc("target_memory", "categories", "kind of memory copied to", "not a copy, or not recorded"),
    ColumnDoc("exposed_ns", "numbers", "of a copy between host and device, or a collective of several ranks, how long neither an earlier one of its kind nor anything else ran on the device meanwhile, nanoseconds", "neither"),
    ColumnDoc("exposed_percent", "numbers", "sum of exposed_ns over all such copies of the device, or over all collectives, of the time that it was busy", "neither"),
    ColumnDoc("collective", "categories", "name of the collective that it carries out", "not a collective, or not recorded"),
    ColumnDoc("group_size", "numbers", "ranks taking part in the collective", "not a collective, or not recorded"),
    ColumnDoc("collective_kind", "categories", "what that collective is, whatever torch, NCCL or an engine calls it: `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `broadcast`, `reduce`, `gather`, `scatter`, `send`, `recv`, `send_recv`, `barrier`, `unknown`", "not a collective of several ranks"),
    ColumnDoc("message_bytes", "numbers", "bytes of that collective's full message: of an all-gather what comes out, else what goes in", "not a collective of several ranks, or not recorded"),
    ColumnDoc("exposed_because", "categories", "why half of a collective or more runs alone, the first of: `same_stream` (its stream runs other kernels as well, in order), `last` (it is its stream's last of the step), `launched_first` (what was launched behind it, and before it ended, begins right behind it, and between the two launches no stream was made to wait), `waited_for` (the same, and one was), `host` (nothing that could run meanwhile had been launched)", "not a collective of several ranks, or hidden"),
    ColumnDoc("communication_part", "categories", "what it is there for: `bucket_copy` (DistributedDataParallel copies a bucket of gradients back into them), `buffers` (it sends buffers before the forward pass), `buffer_copy` (copies directly in that forward call: of received buffers), `statistics` (a collective between the kernels of SyncBatchNorm that make statistics and that use them), `sliced` (an all-reduce of whose sum one slice is all that is read, as long as the rank's part)", "nothing of these"),
    ColumnDoc("unused_bytes", "numbers", "of a message in which gradients are summed as they are accumulated, the bytes of parameters that no optimizer step reads: all sums together less what the optimizer's operators take first, by recorded shapes, in equal shares of each", "not such a message, or all of it is read, or shapes are not recorded"),
    ColumnDoc("small_run", "numbers", "number of a run of ten or more messages of less than 1 MB, of one kind, stream and step, between which no product, norm or attention runs and no more than eight other activities", "in no such run"),
    ColumnDoc("contention_ns", "numbers", "by how much a kernel next to a collective takes longer than the median one of the same name, grid and shapes alone, nanoseconds: five or more of both, and a tenth or more slower", "not slower, or not known"),
    ColumnDoc("launch", "categories", "name of the host call that launched it, such as `cudaLaunchKernel`", "not recorded"),
    ColumnDoc("launch_dur_ns", "numbers", "duration of that host call, nanoseconds", _NOT_ALONE),
    ColumnDoc("launch_excess_ns", "numbers", "launch_dur_ns − dur_ns: above 0 the host took longer to launch it than the device to run it", _NOT_ALONE),
    ColumnDoc("queued_ns", "numbers", "its start − the end of its launch call; below 0 where it began before the call returned", _NOT_ALONE),
    ColumnDoc("graph", "flags", "launched by a graph replay"),
    ColumnDoc("region", "categories", "the run of a compiled function that it was launched in, the innermost of them: `0/0`, the frame and how often that was compiled", "outside every compiled function, or not recorded"),
    ColumnDoc("compiled", "flags", "launched by a graph that torch.compile's Inductor made of a function, whoever wrote the kernel"),
    ColumnDoc("handwritten", "flags", "written by hand for the purpose, so fused already: launched by an operator of another library (vLLM, FBGEMM …), or named as such a library's (Apex, Transformer Engine …); or with a plain C name, as Triton's have, and launched outside every operator that is known, although operators were recorded, or in a profile of Proton"),
    ColumnDoc("island", "numbers", "number of the graph break in which it was launched, eagerly, between two compiled graphs of one function; counted over the trace", "in no graph break"),
    ColumnDoc("loop", "numbers", "which loop of the program launched it: up to 64 operators that launch something, whose names repeat four times or more in a row on one thread, in a step, with 16 launches or more in all (eight of one operator), or eight times or more with parts left out; and what its backward pass launches. No backward pass runs between two iterations. Outside of steps something has to read the results of several iterations", _NO_LOOP),
    ColumnDoc("loop_turn", "numbers", "which iteration of that loop, counted from 0; of a backward pass the iteration that it differentiates", _NO_LOOP),
    ColumnDoc("loop_dependence", "categories", "how iterations of the loop depend on each other: `independent`, `accumulates` (each adds to a sum, in whatever order), `carried` (one reads what the one before wrote)", _NO_LOOP + ", or what its operators read and write is not known"),
    ColumnDoc("loop_differs", "categories", "what iterations read that was there before the loop and is another for each, the first of: `weights` (of a product, convolution, norm or embedding), `slices` of one tensor, `tensors`, `numbers` (slices of less than 64 bytes)", _NO_LOOP + ", or all iterations read the same"),
    ColumnDoc("loop_waits", "flags", "in half of the loop's iterations or more the host waits for the device"),
    ColumnDoc("loop_sizes", "flags", "shapes differ from iteration to iteration of the loop"),
    ColumnDoc("optimizer", "categories", "class of the optimizer in whose step it was launched, as PyTorch annotates it: `Optimizer.step#AdamW.step`", NO_UPDATE),
    ColumnDoc("update", "numbers", "which step of an optimizer that is: equal for all that one call of `step` launched", NO_UPDATE),
    ColumnDoc("counters", "categories", "how it was found in a report of Nsight Compute: `exact` (name, grid, block and the order of launches agree) or `name_and_grid`", "no report was given, or none of its kernels is this one"),
    ColumnDoc("measured_bound", "categories", "`memory` or `compute`: that unit is at 60% or more of what it can sustain and 10 points ahead; `neither`: both are, closer than that, or compute is below 80% and intensity below ridge; `latency`: neither reaches 60% (the thresholds of Nsight Compute's own rule)", _NO_COUNTERS),
    ColumnDoc("dram_bytes", "numbers", "bytes between DRAM and L2, both ways, as counted", _NO_COUNTERS),
    ColumnDoc("dram_bytes_from", "categories", "`counters`: counted; derived: `rate` × duration, or `throughput` × peak × duration", _NO_COUNTERS),
    ColumnDoc("dram_read_bytes", "numbers", "bytes read from DRAM, as counted", _NO_COUNTERS),
    ColumnDoc("dram_written_bytes", "numbers", "bytes written to DRAM before it ended, as counted; the rest still lay in L2", _NO_COUNTERS),
    ColumnDoc("flops", "numbers", "floating-point operations, as counted, of all data types and of the matrix units", _NO_COUNTERS + "; or some of its arithmetic was not counted"),
    ColumnDoc("intensity", "numbers", "arithmetic intensity: flops ÷ dram_bytes", "one of them is null, or no byte moved"),
    ColumnDoc("ridge", "numbers", "the roofline's ridge point, FLOP per byte: peak arithmetic of its data types ÷ peak bandwidth, both of the data sheet; below it memory is the limit", "flops is null, or the device table lacks the GPU or one of the types"),
    ColumnDoc("achieved_occupancy_percent", "numbers", "resident warps, of those that a multiprocessor can hold, on average", _NO_COUNTERS),
    ColumnDoc("spill_requests", "numbers", "loads and stores of spilled registers", _NO_COUNTERS),
    ColumnDoc("l2_hit_percent", "numbers", "sectors found in L2, of those looked for", _NO_COUNTERS),
    ColumnDoc("compute_percent", "numbers", "throughput of the multiprocessors, of what they can sustain", _NO_COUNTERS),
    ColumnDoc("memory_percent", "numbers", "throughput of the memory system (the busiest of DRAM, L2 and L1), likewise", _NO_COUNTERS),
)  # fmt: skip

_GAPS = (
    ColumnDoc("start_ns", "numbers", "start of the idle interval, nanoseconds on the trace's clock"),
    ColumnDoc("dur_ns", "numbers", "its length in nanoseconds"),
    ColumnDoc("device", "numbers", "device ordinal", "the export does not say"),
    ColumnDoc("step", "numbers", "row of `steps` that the host was in throughout", "it was in several or in none, or no steps were recorded"),
    ColumnDoc("segment", "numbers", "1 + step, 0 where step is null: for partition_by, which leaves rows with nulls out"),
    ColumnDoc("between_steps", "flags", "the activities on its two sides belong to different steps, or one of them to none, and the later one's had not begun on the host when the device went idle"),
    ColumnDoc("within_steps_ns", "numbers", "how much of it passed while the host was in a step: the next activity's, or still in that of the activity before", "it does not lie between two steps"),
    ColumnDoc("longest_in_step_ns", "numbers", "how much of it passed while the host was in one of the two, the longer stretch", "it does not lie between two steps"),
    ColumnDoc("opens_step", "flags", "the next activity is of a step that the one before is not of: what the device waits for lies at the step's start"),
    ColumnDoc("cause", "categories", "one of " + ", ".join(f"`{cause}`" for cause in CAUSES) + ", as decided above"),
    ColumnDoc("op", "categories", "operator that the device waited for: of a synchronisation or an allocation the one that makes the call, of compiling and loading data its own annotation, else the one that launches next", "outside any operator, or not recorded"),
    ColumnDoc("next_op", "categories", "operator that owns the next activity", _OUTSIDE_OPERATORS),
    ColumnDoc("next_kind", "categories", "`kernel`, `memcpy` or `memset`: what ends the gap"),
    ColumnDoc("module", "categories", "nn.Modules around that call", "no stacks were recorded, or outside any module"),
    ColumnDoc("source", "categories", "`file:line function` of the innermost Python frame outside the framework around that call", _NO_STACKS),
    ColumnDoc("launch", "categories", "name of the host call that launched the next activity", "not recorded"),
    ColumnDoc("sync", "categories", "name of the host call that was waiting for the device when it went idle, whether that is the cause or not", "the host was not waiting"),
    ColumnDoc("host_work", "categories", "name of the call or annotation that the cause rests on: `cudaMalloc`, `enumerate(DataLoader)#…`", "the cause is no such work"),
    ColumnDoc("host_work_ns", "numbers", "how much of the gap such calls or annotations took, nanoseconds", "the cause is no such work"),
    ColumnDoc("launch_late_ns", "numbers", "begin of the launch call − start of the gap; below 0 where the host was ahead", "the launch is not recorded"),
    ColumnDoc("launch_dur_ns", "numbers", "duration of the launch call", "the launch is not recorded"),
    ColumnDoc("launch_excess_ns", "numbers", "duration of the launch call − duration of the next activity: above 0 the host took longer to launch it than the device to run it", _NOT_ALONE),
    ColumnDoc("busy_before_ns", "numbers", "how long the device had been busy since the gap before, or since its first activity, nanoseconds"),
    ColumnDoc("blocked_ns", "numbers", "how long the host was blocked, in that call and the blocking ones before it, since its last launch that did not block: without them the gap shrinks by no more than this", "the host was not waiting"),
    ColumnDoc("previous_row", "numbers", "row of `activities`: the one that ended last before the gap"),
    ColumnDoc("next_row", "numbers", "row of `activities`: the one that ends the gap"),
    ColumnDoc("launch_row", "numbers", "row of `api`: the call that launched the next activity", "not recorded"),
    ColumnDoc("sync_row", "numbers", "row of `api`: the call that waited", "the cause is no wait"),
    ColumnDoc("stack_row", "numbers", "row of `stacks`: the call path of the call or annotation that the cause rests on, else of the function, or of the line's operators, that lasted through most of the wait for the host, else of the launch", "no stacks were recorded"),
    ColumnDoc("graph_break", "numbers", "number of the graph break that it came about in: the next activity was launched there, or is the first of the graph behind it, and part of the gap passed while the host was there. Counted over the trace", _NO_BREAK),
    ColumnDoc("break_reason", "categories", "what broke the graph, inferred from what ran there: `print` (a tensor as text), `numpy`, `disabled` (a function that torch.compile leaves alone), `size` (an operator whose result's size depends on data), `value` (a tensor's value taken to the host), `other`", _NO_BREAK),
    ColumnDoc("break_ns", "numbers", "how much of the gap passed between the two graphs, on the host's side: fixing the break closes no more", _NO_BREAK),
    ColumnDoc("break_source", "categories", "`file:line function`: the line that broke the graph", _NO_BREAK + ", or no stacks were recorded"),
    ColumnDoc("break_stack_row", "numbers", "row of `stacks`: the call path that goes on behind the break", _NO_BREAK + ", or no stacks were recorded"),
)  # fmt: skip

# In the order in which they are decided; docs/guide/gaps.md tells what to do about each.
CAUSE_SAYS = (
    ("unknown", "it is not longer than the clock's resolution"),
    ("graph_not_recorded", "a CUDA graph of which the trace lacks kernels may have been running: none of its replay were recorded, or fewer than of another replay of it, or nothing for more than 50 µs where within a graph nothing waits. The device may have been busy, so nothing is claimed"),
    ("graph_capture", "for at least half of it CUDA graphs were captured (`cudaStreamBeginCapture` to `cudaStreamEndCapture`) or made (`cudaGraphInstantiate`): launches went into the graph, and nothing was meant to run"),
    ("graph_replay", "both activities are of one graph replay: the graph's own order"),
    ("unknown", "the call that launched the next activity is not recorded"),
    ("event_wait", "most of it, and more than 50 µs, passed after the launch call had returned, and before that call the host had made a stream wait for an event: another device, another rank, a copy"),
    ("unknown", "the same without such a wait: what the activity waited for is not recorded"),
    ("launch_latency", "the launch call had returned before the device went idle: the work was queued"),
    ("allocator", "the host was blocked in a call that frees memory"),
    ("synchronisation", "the host was blocked on the device when it went idle, launched nothing between that call and the next launch, and was blocked for at least half the time by which that launch came late"),
    ("graph_launch", "the next activity is a graph's, and from the begin of the call that replays it at least half of the gap passed"),
    ("allocator", "at least half of it went into `cudaMalloc`, `cudaFree`, `cudaHostAlloc` and the like"),
    ("module_load", "at least half of it went into loading modules or libraries"),
    ("compilation", "at least half of it went into phases of `torch.compile`, as torch names them (`… (dynamo_timed)`), or into JAX's (`backend_compile_and_load`)"),
    ("data_loading", "at least half of it went into a DataLoader's `__next__`"),
    ("module_load", "at least half of it, and 100 µs or more, passed within the launch call, and no kernel of that name was launched before: its module is loaded at the first launch"),
    ("after_wait", "its thread waits for the device ten times or more in the step, at most 32 launches apart, and since the last wait no kernel has stood in the queue for 50 µs: the queue has not filled up again; or a copy to the host that another thread launches while its thread waits for it, as JAX fetches a value"),
    ("host_bound", "the launch call was not made, or not done, when the device went idle"),
)  # fmt: skip

ROW_DOCS: dict[str, tuple[ColumnDoc, ...]] = {"activities": _ACTIVITIES, "gaps": _GAPS}
