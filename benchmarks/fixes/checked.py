"""Check modules: python checked.py MODULE.py... prints of each {item: "" or what is wrong, or "not here: …"}, as JSON.

Without modules their paths come from standard input. `--item NAME`: asks that alone. `--launch`: prints instead what a
call takes of the host, microseconds, and how many kernels it launches; for a machine where nothing else runs.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
RANK_S = 120.0
ROUNDS, CALLS = 120, 50
if not GPU:
    os.environ["TRITON_INTERPRET"] = "1"


class Wrong(Exception):
    """What an item found."""


class NotHere(Exception):
    """Why an item cannot be asked here."""


def loaded(path: str) -> Any:
    """Import a module by its file while tracemine cannot be imported."""
    before = sys.modules.get("tracemine")
    sys.modules["tracemine"] = None  # type: ignore[assignment]  # an import of it raises
    spec = importlib.util.spec_from_file_location("drop_in", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["drop_in"] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["tracemine"]
        if before is not None:
            sys.modules["tracemine"] = before
    return module


class Checked:
    """A module, its function, and inputs."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.name = module.OPERATOR.name().partition("::")[2].partition(".")[0]
        self.call = getattr(module, self.name)
        self.numbers = dict(module._eager.__kwdefaults__ or {})

    def inputs(self, seed: int = 0) -> list[Tensor]:
        return list(self.module.inputs(DEVICE, seed))

    def ran(self, work: Callable[..., Any], given: list[Any], **named: Any) -> list[Tensor]:
        """Return what a function gives, and what it wrote."""
        named = {**self.numbers, **named}
        found = work(*given, **named)
        results = [] if found is None else [found] if isinstance(found, Tensor) else list(found)
        return [*results, *(given[k] for k in self.module.WRITES)]

    def both(self, given: list[Any]) -> tuple[list[Tensor], list[Tensor]]:
        return self.ran(self.call, cloned(given)), self.ran(self.module._eager, cloned(given))

    def operator(self, *given: Any, **named: Any) -> Any:
        return self.module.OPERATOR(*given, *(named[n] for n in self.module.NUMBERS))

    def floats(self) -> list[int]:
        return [k for k, t in enumerate(self.inputs()) if t.is_floating_point()]


def cloned(given: list[Any]) -> list[Any]:
    """Return copies that lie as they do."""
    return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t) for t in given]


def near(found: list[Tensor], wanted: list[Tensor], ulps: float = 64) -> None:
    """Raise where results differ by more than rounding, or lie otherwise."""
    if len(found) != len(wanted):
        raise Wrong(f"{len(found)} results, not {len(wanted)}")
    for one, other in zip(found, wanted, strict=True):
        if (one.dtype, one.shape, one.stride()) != (other.dtype, other.shape, other.stride()):
            found_, wanted_ = [(t.dtype, tuple(t.shape), t.stride()) for t in (one, other)]
            raise Wrong(f"{found_}, not {wanted_}")
        a, b = one.detach().double().nan_to_num(), other.detach().double().nan_to_num()
        most = ulps * torch.finfo(other.dtype).eps if other.is_floating_point() else 0
        if other.numel() and float((a - b).abs().max()) > most * max(float(b.abs().max()), 1e-30):
            raise Wrong(f"off by {float((a - b).abs().max()):.2g} of {float(b.abs().max()):.2g}")


def same(found: list[Tensor], wanted: list[Tensor]) -> None:
    """Raise where results differ at all."""
    near(found, wanted, 0)


def takes_kernel(one: Checked, given: list[Any]) -> bool:
    """Whether a call takes the kernel."""
    launched, taken = one.module.launched, []
    one.module.launched = lambda *given, **named: taken.append(1) or launched(*given, **named)
    try:
        one.ran(one.call, cloned(given))
    finally:
        one.module.launched = launched
    return bool(taken)


def right(one: Checked) -> None:
    for seed in range(3):
        if not takes_kernel(one, one.inputs(seed)):
            raise Wrong("the kernel is not taken for the recorded inputs")
    if not one.module.tested(DEVICE):
        raise Wrong("further from float64 than the calls")


def gradients(one: Checked) -> None:
    def of(work: Callable[..., Any]) -> list[Tensor]:
        given = [t.requires_grad_(t.is_floating_point()) for t in one.inputs()]
        found = [t for t in one.ran(work, given) if t.requires_grad]
        taken = [t for t in given if t.requires_grad]
        if not found or not taken:
            raise NotHere("nothing that it gives has a gradient")
        grads = torch.autograd.grad(found, taken, [torch.ones_like(t) for t in found], allow_unused=True)
        return [torch.zeros_like(t) if g is None else g for g, t in zip(grads, taken, strict=True)]

    if one.module.WRITES:
        raise NotHere("it writes in place")
    try:
        wanted = of(one.module._eager)
    except (RuntimeError, NotImplementedError) as error:
        raise NotHere(f"the calls have no gradient: {str(error)[:60]}") from None
    same(of(one.call), wanted)
    near(of(one.operator), wanted)


def opcheck(one: Checked) -> None:
    numbers = [one.numbers[n] for n in one.module.NUMBERS]
    tests = ["test_schema", "test_faketensor", *([] if one.module.WRITES else ["test_autograd_registration"])]
    torch.library.opcheck(
        one.module.OPERATOR, (*one.inputs(), *numbers), test_utils=(*tests, "test_aot_dispatch_static")
    )


def without_memory(one: Checked) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    _, wanted = one.both(one.inputs())
    with FakeTensorMode() as mode:
        for work in (one.call, one.operator):
            if looks(one.ran(work, [mode.from_tensor(t) for t in one.inputs()])) != looks(wanted):
                raise Wrong("fake tensors look otherwise")
    if looks(one.ran(one.call, [t.to("meta") for t in one.inputs()])) != looks([t.to("meta") for t in wanted]):
        raise Wrong("tensors of meta look otherwise")


def compiled(one: Checked) -> None:
    _, wanted = one.both(one.inputs())
    for kept in (False, True):
        one.module.COMPILED = kept
        for backend in ("eager", "aot_eager", *(["inductor"] if GPU else [])):
            torch._dynamo.reset()
            near(one.ran(torch.compile(one.call, backend=backend, fullgraph=True), one.inputs()), wanted)
    one.module.COMPILED = False


class Holder(nn.Module):
    """A module whose forward calls the function on its own parameter and what it is given."""

    def __init__(self, one: Checked, work: Callable[..., Any]) -> None:
        super().__init__()
        given = one.inputs()
        self.place = next((k for k in reversed(one.floats()) if k not in one.module.WRITES), None)
        if self.place is None:
            raise NotHere("no input can be a parameter")
        self.weight, self.work, self.numbers = nn.Parameter(given[self.place]), work, one.numbers

    def forward(self, *given: Tensor) -> Any:
        every = [*given[: self.place], self.weight, *given[self.place + 1 :]]  # type: ignore[index,operator]
        return self.work(*every, **self.numbers)


def modules(one: Checked) -> None:
    before, after = Holder(one, one.module._eager), Holder(one, one.call)
    after.load_state_dict(before.state_dict(), strict=True)
    before.load_state_dict(after.state_dict(), strict=True)
    with torch.no_grad():
        wanted = one.ran(lambda *given, **named: before(*given), one.inputs())
        for each in (after, copy.deepcopy(after), pickle.loads(pickle.dumps(after))):  # noqa: S301
            near(one.ran(lambda *given, work=each, **named: work(*given), one.inputs()), wanted)


def autocast(one: Checked) -> None:
    with torch.no_grad():
        wanted = one.ran(one.call, one.inputs())
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            same(one.ran(one.call, one.inputs()), wanted)


def strides(one: Checked) -> None:
    def apart(t: Tensor) -> Tensor:
        wide = torch.zeros(*t.shape, 2, dtype=t.dtype, device=t.device)[..., 0]
        return wide.copy_(t)

    def turned(t: Tensor) -> Tensor:
        return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() > 1 else apart(t)

    for change in (apart, turned):
        one.ran(one.call, one.inputs())  # what is kept of these is not for others
        given = [change(t) for t in one.inputs()]
        near(one.ran(one.call, [change(t) for t in one.inputs()]), one.ran(one.module._eager, given))


def alike(one: Checked, given: list[Any]) -> None:
    """Raise where a call does not give what the calls give, or does not raise as they do."""
    wanted, found = [], []
    one.ran(one.call, one.inputs())  # what is kept of these is not for others
    for work, said in ((one.module._eager, wanted), (one.call, found)):
        try:
            memory = copy.deepcopy(given)  # what shares memory does so still
            said.append(one.ran(work, memory))
        except Exception as error:  # whatever the calls raise
            said.append(type(error))
    if isinstance(wanted[0], list) and isinstance(found[0], list):
        same(found[0], wanted[0])
    elif found != wanted:
        raise Wrong(f"{found[0]}, not {wanted[0]}")


def others(one: Checked) -> None:
    """Inputs of other ranks and types."""
    for change in (
        lambda t: t.unsqueeze(0).clone(),
        lambda t: t.double() if t.is_floating_point() else t,
        lambda t: t[:0].clone() if t.dim() else t,
    ):
        alike(one, [change(t) for t in one.inputs()])


def shared(one: Checked) -> None:
    """What is written lies in memory of another input, some elements further on."""
    pairs = [(k, j) for k in one.module.WRITES for j in range(len(one.inputs())) if j != k]
    pairs = [(k, j) for k, j in pairs if looks(one.inputs()[k : k + 1]) == looks(one.inputs()[j : j + 1])]
    if not pairs:
        raise NotHere("no input that is written looks as another does")
    for k, j in pairs:
        given = one.inputs()
        memory = torch.cat([given[j].flatten(), given[j].flatten()])
        given[k], given[j] = (memory[at : at + given[j].numel()].view(given[j].shape) for at in (16, 0))
        alike(one, given)


def looks(found: list[Tensor]) -> list[Any]:
    return [(t.dtype, t.shape, t.stride()) for t in found]


class Marked(Tensor):
    """A subclass, whose results are its own."""


def subclasses(one: Checked) -> None:
    wanted = one.ran(one.module._eager, [t.as_subclass(Marked) for t in one.inputs()])
    found = one.ran(one.call, [t.as_subclass(Marked) for t in one.inputs()])
    if list(map(type, found)) != list(map(type, wanted)):
        raise Wrong("a subclass is lost")


def transforms(one: Checked) -> None:
    if one.module.WRITES:
        raise NotHere("it writes in place")
    given = [t.unsqueeze(0) for t in one.inputs()]
    try:
        wanted = torch.func.vmap(lambda *each: one.ran(one.module._eager, list(each)))(*given)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        raise NotHere(f"the calls cannot: {str(error)[:60]}") from None
    same(list(torch.func.vmap(lambda *each: one.ran(one.call, list(each)))(*given)), list(wanted))


def distributed(one: Checked) -> None:
    """Two ranks, each with inputs of its own: gradients are the mean of both."""
    Holder(one, one.call)  # raises where there is no parameter
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store"
        command = [sys.executable, "-P", __file__, one.module.__file__, "--rank", store]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as other:
            try:
                ranked(one, store, 0)
                said = other.communicate(timeout=RANK_S)[0]
            finally:
                other.kill()
            if other.returncode:
                raise Wrong(f"the other rank: {(said.splitlines() or [''])[-1][:120]}")


def ranked(one: Checked, store: str, rank: int) -> None:
    """Hold a rank's gradient against the mean of what the calls give for both ranks' inputs."""
    import torch.distributed as dist

    def gradient(model: nn.Module, holder: Holder, seed: int) -> Tensor | None:
        found = [t for t in one.ran(lambda *g, **n: model(*g), one.inputs(seed)) if t.requires_grad]
        if not found:
            return None
        sum(t.double().sum() for t in found).backward()  # type: ignore[union-attr]
        return holder.weight.grad

    wanted = [gradient(holder, holder, seed) for seed in (0, 1) if (holder := Holder(one, one.module._eager))]
    dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
    try:
        alone = Holder(one, one.call)
        found = gradient(nn.parallel.DistributedDataParallel(alone), alone, rank)
        if (found is None) != (None in wanted):
            raise Wrong("no gradient")
        if found is not None:
            near([found], [(wanted[0] + wanted[1]) / 2])  # type: ignore[operator,list-item]
        dist.barrier()
    finally:
        dist.destroy_process_group()


def captured(one: Checked) -> None:
    if not GPU:
        raise NotHere("no GPU")
    given = one.inputs()
    _, wanted = one.both(given)
    with torch.no_grad():
        one.ran(one.call, cloned(given))
        torch.cuda.synchronize()
        taken, graph = cloned(given), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = one.ran(one.call, taken)
        for into, new in zip(taken, given, strict=True):
            into.copy_(new)
        graph.replay()
        torch.cuda.synchronize()
        near(found, wanted)


def hosts_us(works: dict[Any, Callable[[], Any]]) -> dict[Any, float]:
    """Return what a call of each takes of the host, microseconds: the least of many rounds.

    All in turns: a host is slower for seconds at a time, and each is to have seen it fast.
    """
    best = dict.fromkeys(works, float("inf"))
    with torch.no_grad():
        for _ in range(ROUNDS):
            for name, work in works.items():
                torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(CALLS):
                    work()
                best[name] = min(best[name], (time.perf_counter() - begin) * 1e6 / CALLS)
    return {name: round(us, 1) for name, us in best.items()}


def parts_of(one: Checked) -> dict[str, Callable[[], Any]]:
    """Return a call, what in it looks at inputs, makes new tensors, and does that and launches."""
    module, numbers, given = one.module, one.numbers, one.inputs()
    with torch.no_grad():
        plan = module._taken(*given, **numbers)
    allocate = getattr(module, "_allocate", lambda new, device: None)  # what writes in place alone has none
    return {
        "us": lambda: one.call(*given, **numbers),
        "look": lambda: module._taken(*given, **numbers),
        "allocate": lambda: allocate(plan[0], given[0].device),
        "launch": lambda: module.launched(plan, *given, **numbers),
    }


def launches(one: Checked) -> int:
    """Return how many kernels a call launches."""
    kind, seen = one.module._Launch, []
    call = kind.__call__
    kind.__call__ = lambda self, *given: seen.append(1) or call(self, *given)
    try:
        with torch.no_grad():
            one.ran(one.call, one.inputs())
    finally:
        kind.__call__ = call
    return len(seen)


ITEMS: dict[str, Callable[[Checked], None]] = {
    "right": right,
    "gradients": gradients,
    "opcheck": opcheck,
    "fake, meta": without_memory,
    "torch.compile": compiled,
    "deepcopy, pickle, state_dict": modules,
    "autocast": autocast,
    "other strides": strides,
    "other shapes, types": others,
    "shared memory": shared,
    "subclasses": subclasses,
    "vmap": transforms,
    "DDP": distributed,
    "CUDA graph": captured,
}


def said(work: Callable[[Checked], None], one: Checked) -> str:
    """Return what is wrong; "" where nothing is."""
    try:
        work(one)
    except NotHere as error:
        return f"not here: {error}"
    except Exception as error:  # whatever a module does wrong is a result
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
    return ""


def items(path: str, asked: Sequence[str] = ()) -> dict[str, str]:
    """Return what each item says of a module."""
    before = ours()
    try:
        one = Checked(loaded(path))
    except ImportError as error:
        return {"imports alone": str(error)}
    found = {"imports alone": "tracemine is loaded" if ours() > before else ""}
    interpreted()
    return found | {name: said(work, one) for name, work in ITEMS.items() if not asked or name in asked}


def ours() -> set[str]:
    """Return which modules of tracemine are loaded."""
    return {name for name in sys.modules if name.startswith("tracemine.")}


def interpreted() -> None:
    if not GPU:
        from tracemine.validate import interpreter  # rounds as a GPU does, and knows libdevice

        interpreter.install()  # type: ignore[no-untyped-call]


def main_rank(store: str, path: str) -> None:
    module = loaded(path)
    interpreted()
    ranked(Checked(module), store, 1)


def launched(paths: Sequence[str]) -> list[dict[str, Any]]:
    """Return of each module what a call takes of the host, and how many kernels it launches."""
    found, works = list[dict[str, Any]](), dict[Any, Callable[[], Any]]()
    for at, path in enumerate(paths):
        try:
            one = Checked(loaded(path))
            works |= {(at, name): work for name, work in parts_of(one).items()}
            found.append({"launches": max(launches(one), 1), "inputs": len(one.inputs())})
        except Exception as error:  # the others go on
            found.append({"error": f"{type(error).__name__}: {str(error)[:200]}"})
    for (at, name), us in hosts_us(works).items():
        found[at][name] = us
    return found


def works() -> bool:
    """Say whether the GPU still does: what one module did wrong there is not to be held against the next."""
    try:
        torch.cuda.synchronize() if GPU else None
    except RuntimeError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--item", action="append", default=[])
    parser.add_argument("--launch", action="store_true")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        main_rank(given.rank, given.modules[0])
        return
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what is printed on the way
        for found in launched(given.modules) if given.launch else ():
            print(json.dumps(found), file=answers, flush=True)
        for path in () if given.launch else given.modules or map(str.strip, sys.stdin):
            print(json.dumps(items(path, given.item)), file=answers, flush=True)
            if not works():
                os._exit(1)


if __name__ == "__main__":
    main()
