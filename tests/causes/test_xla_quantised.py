"""A program on codes as JAX records it: products at full width of what a pass of their own dequantises."""

from __future__ import annotations

from pathlib import Path

from tests.formats.xla.make import H100, Event, Line, Plane, around, kernel, launch, of_module, write_xplane
from tests.formats.xla.make_hlo import Made, Op, array, blas, element, fused, parameter
from tracemine.findings import Finding
from tracemine.formats import open_trace
from tracemine.pipeline import scan

ROWS, WIDTH, STEPS = 4_096, 4_096, 3
X, W, Y = array("s8", ROWS, WIDTH), array("s8", WIDTH, WIDTH), array("bf16", ROWS, WIDTH)


def widening(name: str) -> list[Op]:
    codes = parameter(f"{name}.codes", X, 0)
    return [
        codes,
        Op(f"{name}.wide", "convert", Y, (codes.name,)),
        Op(f"{name}.out", "multiply", Y, (f"{name}.wide",) * 2),
    ]


def module(*, both: bool, narrow: bool = False) -> Made:
    """One product: of codes as they are, of a dequantised weight, or of two operands that are dequantised."""
    x = parameter("x", X if both or narrow else Y, 0)
    entry = [x, parameter("w", W, 1)]
    taken = ("x", "w")
    if not narrow:
        entry += [fused("wide_w", Y, "w", body="of_w")]
        entry += [fused("wide_x", Y, "x", body="of_x")] if both else []
        taken = ("wide_x" if both else "x", "wide_w")
    result = array("s32", ROWS, WIDTH) if narrow else Y
    entry += [blas("dot", result, *taken), element("sums", result, "dot", 0)]
    back = [parameter("back.sums", result, 0), Op("back.out", "tanh", Y, ("back.sums",))]
    entry += [fused("behind", Y, "sums", body="back")]
    return Made("jit_run", 10, {"main": entry, "of_w": widening("of_w"), "of_x": widening("of_x"), "back": back})


def findings(folder: Path, made: Made) -> dict[str, Finding]:
    names = [op.name for op in made.computations["main"] if op.opcode in ("fusion", "custom-call")]
    gpu, host = list[Event](), list[Event]()
    for step in range(STEPS):
        begin = 1_000_000 + step * 2_000_000
        host.append(Event("train", begin, 1_900_000, {"_r": 1, "step_num": step}))
        host.append(Event("[0] GpuExecutable::ExecuteThunks", begin + 20_000, 90_000, {"module_name": "jit_run"}))
        for place, name in enumerate(names):
            at, number = begin + 100_000 + place * 400_000, 1 + step * 10 + place
            host.append(launch(name, begin + 30_000 + place * 10_000, number))
            took = 350_000 if name == "dot" else 20_000
            gpu.append(kernel(name, at, took, number, **of_module("jit_run", 10, name)))
    planes = around({10: ("jit_run", made.proto())})
    planes += [
        Plane("/device:GPU:0", [Line("Stream #7(Compute)", gpu)], H100),
        Plane("/host:CPU", [Line("python3", host)]),
    ]
    path = write_xplane(folder / "host.xplane.pb", planes)
    kinds = open_trace(path).instructions
    assert ("int8" in kinds["multiplies"].to_pylist()) is (made.computations["main"][0].shape == X and len(names) == 2)
    return {one.rule: one for one in scan(path).findings}


def test_both_operands_dequantised(tmp_path: Path) -> None:
    found = findings(tmp_path, module(both=True))
    finding = found["xla_quantised_product"]
    assert finding.measured_ns == STEPS * (350_000 + 2 * 20_000)
    assert 0 < finding.gpu_saving_ns.mid < finding.gpu_saving_ns.high < finding.measured_ns
    assert "xla_weight_dequantised" not in found


def test_a_weight_dequantised(tmp_path: Path) -> None:
    finding = findings(tmp_path, module(both=False))["xla_weight_dequantised"]
    assert finding.measured_ns == STEPS * 20_000
    assert finding.gpu_saving_ns.high <= finding.measured_ns


def test_products_of_codes_are_left_alone(tmp_path: Path) -> None:
    assert not [rule for rule in findings(tmp_path, module(both=False, narrow=True)) if "quantised" in rule]
