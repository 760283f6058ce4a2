"""Steps of one rank of a job that communicates, for tests of its causes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.timelines import Trace
from tracemine.findings.record import Finding
from tracemine.pipeline import analysed, mined
from tracemine.timeline import RecordedDevice

US = 1_000
FORWARD, COPIED_BACK = "DistributedDataParallel.forward", "torch.distributed.ddp.reducer::copy_bucket_to_grad"
NCCL = "ncclDevKernel_{}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Rank:
    """A host that launches far ahead: kernels run one after another from `at` on."""

    def __init__(self, steps: int = 2, dur_us: int = 20_000) -> None:
        self.trace = Trace(devices=(RecordedDevice(ordinal=0, name="NVIDIA H100 80GB HBM3", sm_count=132),))
        self.steps = [self.trace.step(1_000_000 + n * dur_us * US, dur_us * US, n) for n in range(steps)]
        self.host = self.at = 1_000_000

    def begin(self, step: int) -> None:
        """Go on in a step."""
        self.host = self.steps[step]["start_ns"] + US
        self.at = self.host + 50 * US
        self.step = self.steps[step]

    def compute(self, op: str = "aten::mm", took_us: int = 100, around: Sequence[str] = (), **columns: Any) -> None:
        """Launch a kernel of an operator within others, the outermost first."""
        launch, parent = (self.host + US, US), None
        for name in around:
            parent = self.trace.op(name, self.host, 4 * US, parent_row=parent)
        shapes = columns.pop("shapes", [[64, 64], [64, 64]])
        op_row = self.trace.op(op, self.host, 4 * US, shapes, ["float"] * len(shapes), parent_row=parent)
        values = {"name": "sm90_xmma_gemm_f32" if op == "aten::mm" else f"kernel of {op}", "grid": [64, 1, 1]} | columns
        start = values.pop("start", self.at)
        self.trace.kernel(
            values.pop("name"), start, took_us * US, launch=launch, op=op_row, step_row=self.step, **values
        )
        self.host += 5 * US
        self.at = max(self.at, start + took_us * US)

    def send(
        self,
        name: str = "allreduce",
        elements: int = 1024,
        took_us: int = 20,
        around: Sequence[str] = (),
        **columns: Any,
    ) -> None:
        """Send a message of float32, on the stream of its own."""
        size = columns.pop("ranks", 4)
        kernel = NCCL.format({"allreduce": "AllReduce_Sum_f32", "broadcast": "Broadcast"}.get(name, "AllGather"))
        own = {"stream": 19, "collective": name, "group_size": size, "name": kernel, "start": self.at} | columns
        self.compute("record_param_comms", took_us, around, **own)
        self.trace.add(
            "collectives", activity_row=self.trace.rows["activities"][-1], op_row=self.trace.rows["ops"][-1], name=name,
            group_size=size, elements_in=elements, elements_out=elements, dtype="Float",
        )  # fmt: skip

    def findings(self, rule: str) -> list[Finding]:
        """What a scan finds by one rule."""
        return [one for one in mined(analysed(self.trace.timeline())).findings if one.rule == rule]
