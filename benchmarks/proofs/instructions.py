"""What bounds a generated kernel: its instructions an element, by kind, told without a GPU.

    python -m benchmarks instructions FILE... [--all] [--listing]    # reproductions; each cut; each opcode

Each kernel is compiled for sm_90 and taken apart by cuobjdump, which comes with triton. An element is one lane of a
block of rows × columns: `straight` are the instructions outside of loops, and each loop has a line of its own. What
stands behind a program's end (divisions' slow paths) is left out. The bound is the unit that is busy longest: `issue`
takes an instruction of each kind, the others those of their row; how long a million elements keep an H200's busy
stands beside it. Where several walks share a
launch, instructions are those of all, and elements the largest block's.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import triton

from tracemine.codegen.triton.resources_worker import compiling

_LINE = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+ )?\s*([A-Z][\w.]*)([^;]*);")
# Lanes a cycle of a multiprocessor: CUDA C++ Programming Guide, arithmetic instructions, compute capability 9.0.
_UNITS = {"special": 16, "logic": 64, "multiply": 64}
_MULTIPROCESSORS, _LANES, _GHZ = 132, 128, 1.98
_KINDS = (
    ("special", r"MUFU|F2F\b|I2F\b|F2I|FRND|F2F\."),  # functions, and conversions that are no pack
    ("memory", r"LD|ST|ATOM|RED\b"),
    ("float", r"FADD|FMUL|FFMA|HADD|HMUL|HFMA|HSET"),
    ("multiply", r"IMAD"),  # of whole numbers; moves too, where the other units are busy
    ("logic", r"FMNMX|HMNMX|FSE|ISETP|SEL|PLOP|P2R|R2P|FCHK|F2FP|I2FP|IADD|LOP|SHF|LEA|PRMT|SGXT|VIADD|V?IMNMX|MOV"),
    ("uniform", r"U[A-Z]|R2UR|S2R|CS2R|LDC"),
    ("exchange", r"SHFL|REDUX|BAR|WARPSYNC|BSYNC|BSSY|CALL|RET|BRA|EXIT|BREAK|YIELD|NOP|VOTE"),
)


def kind(opcode: str) -> str:
    """The row of the table that an opcode belongs to.

    >>> kind("MUFU.EX2"), kind("F2FP.BF16.F32.PACK_AB"), kind("FFMA.FTZ")
    ('special', 'logic', 'float')
    """
    return next((name for name, pattern in _KINDS if re.match(pattern, opcode)), "other")


def regions(cubin: bytes) -> Iterator[tuple[str, list[tuple[int, str, str]]]]:
    """The instructions outside of loops, then of each loop: address, opcode, the rest."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([tool, "-sass", file.name], capture_output=True, text=True, check=True).stdout
    found = [(int(m[1], 16), m[3], (m[2] or "") + m[4]) for m in map(_LINE.search, text.splitlines()) if m]
    ends = [k for k, (_, opcode, guard) in enumerate(found) if opcode == "EXIT" and "@" not in guard]
    found = found[: ends[0] + 1] if ends else found
    loops: list[tuple[int, int]] = []
    for address, opcode, rest in found:
        target = re.search(r"0x([0-9a-f]+)\s*$", rest)
        if opcode.startswith("BRA") and target and int(target[1], 16) < address:
            loops.append((int(target[1], 16), address))
    loops = [one for one in loops if not any(o != one and o[0] <= one[0] and one[1] <= o[1] for o in loops)]
    inside = [[i for i in found if low <= i[0] <= high] for low, high in loops]
    yield "straight", [i for i in found if not any(low <= i[0] <= high for low, high in loops)]
    for place, loop in enumerate(inside):
        yield f"loop {place}", loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--all", action="store_true", help="every cut, not only the first")
    parser.add_argument("--listing", action="store_true", help="also each opcode")
    arguments = parser.parse_args()
    names = [name for name, _ in _KINDS] + ["other"]
    print(
        f"{'kernel':36} {'cut':>10} {'regs':>4} {'region':9} {'all':>6}" + "".join(f"{n:>9}" for n in names) + "  bound"
    )
    for file in arguments.files:
        for name, cut, kernel, used in compiling(str(file), None if arguments.all else 1):  # type: ignore[no-untyped-call]
            blocks: dict[str, int] = {}  # of each part of a launch
            for place, size in kernel.src.constants.items():
                if known := re.fullmatch(r"[XR]BLOCK(_\d+)?", kernel.src.fn.arg_names[place[0]]):
                    blocks[known[1] or ""] = blocks.get(known[1] or "", 1) * size
            elements = max(blocks.values())
            each = elements / (32 * kernel.metadata.num_warps)
            for region, lines in regions(kernel.asm["cubin"]):
                count = Counter(kind(opcode) for _, opcode, _ in lines)
                costs = {"issue": len(lines) / _LANES} | {unit: count[unit] / lanes for unit, lanes in _UNITS.items()}
                bound = max(costs, key=costs.__getitem__)
                us = costs[bound] / each * 1e6 / _MULTIPROCESSORS / _GHZ / 1e3
                row = "".join(f"{count[n] / each:9.2f}" for n in names)
                head = f"{name[-36:]:36} {cut!s:>10} {used[0]:4} {region:9} {len(lines) / each:6.1f}"
                print(f"{head}{row}  {us:.3f} µs/M {bound}")
                if arguments.listing:
                    for opcode, n in Counter(op for _, op, _ in lines).most_common():
                        print(f"      {n / each:7.2f} {opcode}")


if __name__ == "__main__":
    main()
