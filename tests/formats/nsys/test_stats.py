"""Tables of `nsys stats`, for who has nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracemine.errors import InputError
from tracemine.formats import open_trace

_GPU = (
    "Start ({u}),Duration ({u}),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name\n"
)
_GPU_ROWS = (
    '1100,50,9,4,1,1,128,1,1,18,0.000,0.000,,,,,NVIDIA H200 (0),1,,7,"void f<(int)4, float>(int, T2)"\n'
    "1200,40,10,,,,,,,,,,0.008,,Pageable,Device,NVIDIA H200 (0),1,,7,[CUDA memcpy Host-to-Device]\n"
    "1300,30,11,,,,,,,,,,0.008,,,Device,NVIDIA H200 (0),1,,7,[CUDA memset]\n"
)
_LAUNCHES = (
    "API Start (ns),API Dur (ns),Queue Start (ns),Queue Dur (ns),Kernel Start (ns),Kernel Dur (ns),Total Dur (ns),PID,"
    "TID,DevId,API Function,GridXYZ,BlockXYZ,Kernel Name\n"
    '1000,20,,,1100,50,150,548,549,0,cudaLaunchKernel,   4    1    1, 128    1    1,"void f<(int)4, float>(int, T2)"\n'
)
_RANGES = (
    "Name,Projected Start (ns),Projected Duration (ns),Orig Start (ns),Orig Duration (ns),Style,PID,TID,NumGPUOps,Lvl,"
    "NumChild,RangeId,ParentId,RangeStack\n"
    ":step 2,1100,50,900,500,PushPop,548,549,1,0,1,2,,:2\n"
    '":aten::relu, op_id = 1, sizes = [[8, 2]], input_op_ids = [(0,-1)]",1100,50,990,60,PushPop,548,549,1,1,0,3,2,\n'
    "CCCL:reduce,1100,50,995,20,PushPop,548,549,1,1,0,3,2,:2:3\n"
)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_kernels_copies_and_sets_of_a_gpu_trace(tmp_path: Path) -> None:
    preamble = "Processing [x.sqlite] with [cuda_gpu_trace.py]...\n\n ** CUDA GPU Trace (cuda_gpu_trace):\n\n"
    t = open_trace(written(tmp_path, "a.csv", preamble + _GPU.format(u="ns") + _GPU_ROWS))
    rows = t.activities.to_pylist()
    assert [(r["kind"], r["start_ns"], r["dur_ns"], r["stream"]) for r in rows] == [
        ("kernel", 1100, 50, 7),
        ("memcpy", 1200, 40, 7),
        ("memset", 1300, 30, 7),
    ]
    assert (rows[0]["grid"], rows[0]["block"], rows[0]["registers_per_thread"]) == ([4, 1, 1], [128, 1, 1], 18)
    assert (rows[1]["copy_kind"], rows[1]["source_memory"], rows[1]["target_memory"]) == ("HtoD", "pageable", "device")
    assert [r["bytes"] for r in rows] == [None] * 3  # rounded to thousandths of a megabyte, so not recorded
    assert [r["shared_memory_bytes"] for r in rows] == [None] * 3
    assert [d.name for d in t.meta.devices] == ["NVIDIA H200"]


@pytest.mark.parametrize(("unit", "scale"), [("us", 1e3), ("ms", 1e6), ("s", 1e9)])
def test_the_unit_stands_in_the_header(tmp_path: Path, unit: str, scale: float) -> None:
    row = f'{1100 / scale:.9f},{50 / scale:.9f},9,4,1,1,128,1,1,18,,,,,,,NVIDIA H200 (0),1,,7,"f"\n'
    (found,) = open_trace(written(tmp_path, "a.csv", _GPU.format(u=unit) + row)).activities.to_pylist()
    assert (found["start_ns"], found["dur_ns"]) == (1100, 50)


def test_kernels_know_their_launch_and_operator_where_tables_lie_together(tmp_path: Path) -> None:
    written(tmp_path, "run_cuda_gpu_trace.csv", _GPU.format(u="ns") + _GPU_ROWS)
    written(tmp_path, "run_nvtx_gpu_proj_trace.csv", _RANGES)
    written(tmp_path, "other_nvtx_gpu_proj_trace.csv", _RANGES * 2)
    t = open_trace(written(tmp_path, "run_cuda_kern_exec_trace.csv", _LAUNCHES))
    kernel = t.activities.to_pylist()[0]
    assert t.activities.num_rows == 3
    assert t.ops["name"][kernel["op_row"]].as_py() == "aten::relu"
    assert t.api.to_pylist()[kernel["launch_row"]]["name"] == "cudaLaunchKernel"
    assert (kernel["stream"], kernel["step_row"]) == (7, 0)
    assert t.ops["kind"].to_pylist() == ["annotation", "op", "annotation"]
    assert t.api["pid"].to_pylist() == [548]
    assert "lack sizes" in t.meta.ingest.warnings[0]


def test_launches_alone_are_kernels_and_calls(tmp_path: Path) -> None:
    replay = _LAUNCHES.splitlines()[1].replace("cudaLaunchKernel", "cudaGraphLaunch")
    again = replay.replace("1100,50", "1200,50")
    text = _LAUNCHES.splitlines()[0] + f"\n{replay}\n{again}\n"
    t = open_trace(written(tmp_path, "a.csv", text))
    assert (t.activities.num_rows, t.api.num_rows) == (2, 1)
    assert t.activities["launch_row"].to_pylist() == [0, 0]


def test_lines_that_cannot_be_read_are_dropped_and_counted(tmp_path: Path) -> None:
    broken = "x,50,9,4,1,1,128,1,1,18,,,,,,,NVIDIA H200 (0),1,,7,f\n1e30,5\n" + "9" * 400 + ",1,9,,,,,,,,,,,,,,,,,7,f\n"
    t = open_trace(written(tmp_path, "a.csv", _GPU.format(u="ns") + _GPU_ROWS + broken))
    assert t.activities.num_rows == 3
    assert t.meta.ingest.dropped == {"cuda_gpu_trace: line that cannot be read": 3}


def test_sums_are_no_timeline(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "Time (%),Total Time (ns),Instances,Name\n1,2,3,f\n")
    with pytest.raises(InputError, match=r"is a table \(CSV\) of nsys stats that is no timeline"):
        open_trace(path)
    with pytest.raises(InputError, match="holds no row of a timeline"):
        open_trace(written(tmp_path, "b.csv", _GPU.format(u="ns")))
