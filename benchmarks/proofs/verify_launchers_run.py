"""Host microseconds of launchers, of one chain after another.

    python run.py FOLDER -o launchers.json [--seconds N]

Needs torch and triton only. A time is that of many calls in a row, no more than the queue of a stream holds, until the
host is free again; the median of ten. Before that, results of the first and the second call are compared, bit for bit.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CALLS, _TIMES = 200, 10


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs(module: Any) -> list[Any]:
    import torch

    found = []
    generator = torch.Generator("cuda").manual_seed(0)
    for _, shape, dtype, strides, _ in module.INPUTS:
        reach = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1 if all(shape) else 0
        if dtype.is_floating_point:
            flat = torch.rand(reach, generator=generator, device="cuda") + 0.5
        else:
            flat = torch.randint(0, 2, (reach,), generator=generator, device="cuda")
        found.append(flat.to(dtype).as_strided(shape, strides))
    return found


def same_again(module: Any) -> bool:
    """Whether the second call, which launches what the first compiled, gives the same bits."""
    import torch

    first, again = ([*(module.fused(*mine) or ()), *mine] for mine in (inputs(module), inputs(module)))
    return all(torch.equal(_bits(a), _bits(b)) for a, b in zip(first, again, strict=True))


def _bits(tensor: Any) -> Any:
    import torch

    return tensor.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def host_us(work: Callable[[], object], calls: int = _CALLS, times: int = _TIMES) -> float:
    import torch

    for _ in range(3):
        work()
    torch.cuda.synchronize()
    found = []
    for _ in range(times):
        begin = time.perf_counter_ns()
        for _ in range(calls):
            work()
        found.append((time.perf_counter_ns() - begin) / calls / 1000)
        torch.cuda.synchronize()
    return round(statistics.median(found), 2)


def timed(module: Any) -> dict[str, Any]:
    """One chain: eager, its launcher, and the same where Triton looks at all arguments of each launch."""
    if not same_again(module):
        return {"error": "the second call gives other results"}
    given = inputs(module)
    one: dict[str, Any] = {"inputs": len(given), "outputs": len(module.fused(*given) or ())}
    one["launches"] = len(module.BLOCKS)
    one["eager_us"] = host_us(lambda: module.eager(*given), 40, 5)
    one["fused_us"] = host_us(lambda: module.fused(*given))
    module.PLANS.clear()
    module._Launch.launcher = property(lambda _: None, lambda *_: None)
    one["triton_us"] = host_us(lambda: module.fused(*given))
    return one


def calls_us() -> dict[str, float]:
    """ATen calls, on tensors so small that the host sets the pace."""
    import torch

    x, y = (torch.randn(64, 64, device="cuda") for _ in range(2))
    aten = torch.ops.aten
    work: dict[str, Callable[[], object]] = {
        "mul": lambda: aten.mul.Tensor(x, y),
        "add_": lambda: aten.add_.Tensor(x, y),
        "silu": lambda: aten.silu.default(x),
        "_softmax": lambda: aten._softmax.default(x, -1, False),
        "_to_copy": lambda: aten._to_copy.default(x, dtype=torch.bfloat16),
    }
    return {name: host_us(each) for name, each in work.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("launchers.json"))
    parser.add_argument("--seconds", type=float, default=60.0, help="no chain is begun after this")
    asked = parser.parse_args()
    until = time.time() + asked.seconds
    paths = sorted(asked.folder.glob("chain_*.py"))
    import torch
    import triton

    torch.set_grad_enabled(False)
    where = {"gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "triton": triton.__version__}
    chains: dict[str, Any] = {}
    found = {"where": where, "calls_us": calls_us(), "chains": chains}
    for path in paths:
        name = path.stem.removeprefix("chain_")
        try:
            chains[name] = timed(load(path)) if time.time() < until else {"error": "out of time"}
        except Exception as error:
            chains[name] = {"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}
        torch.cuda.empty_cache()
    asked.output.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
