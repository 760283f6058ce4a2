"""Keep recordings small: one archive of what findings depend on.

Left out: flow arrows (calls and kernels have a correlation), names of processes and threads, occupancy and other
columns that no finding reads. Times stay as they are.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_TRACES = ("trace.json", "light.json", "et.json")  # as a recorder writes them: compressed one by one
_CATEGORIES = frozenset({"ac2g", None, "Trace"})
_ARGUMENTS = frozenset(
    {
        *("queued", "context", "blocks per SM", "warps per SM", "est. achieved occupancy %", "registers per thread"),
        *("shared memory", "Ev Idx", "Record function id", "cbid"),
    }
)
_ATTRIBUTES = frozenset({"kernel_backend", "kernel_file", "tensor_range", "scope", "fw_parent", "fw_tid"})


def event(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event of a trace without what no finding reads."""
    kept = dict(found)
    if "args" in kept:
        kept["args"] = {name: value for name, value in kept["args"].items() if name not in _ARGUMENTS}
    return kept


def slim(content: bytes) -> bytes:
    """Return a trace or an execution trace without what no finding reads."""
    whole = json.loads(content)
    if "traceEvents" in whole:
        whole["traceEvents"] = [event(each) for each in whole["traceEvents"] if each.get("cat") not in _CATEGORIES]
    for node in whole.get("nodes", ()):
        node["attrs"] = [each for each in node["attrs"] if each["name"] not in _ATTRIBUTES]
    return json.dumps(whole, separators=(",", ":")).encode()


def keep(out: Path, archive: Path) -> None:
    """Write a folder's recordings and results into one archive: like next to like, traces first."""
    files = [path for path in out.rglob("*") if path.name.endswith((".json", ".json.gz"))]
    with tarfile.open(archive, "w:xz", preset=6) as tar:
        for path in sorted(files, key=lambda path: (path.name < "trace", path.name, path.parent.name)):
            gz = path.suffix == ".gz"
            content = slim(gzip.decompress(path.read_bytes())) if gz else path.read_bytes()
            info = tarfile.TarInfo(str(path.relative_to(out)).removesuffix(".gz"))
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


@contextmanager
def opened(out: Path) -> Iterator[Path]:
    """Give a folder of recordings: the one that is named, or what an archive holds for as long as it is asked for."""
    if out.is_dir():
        yield out
        return
    with tempfile.TemporaryDirectory() as folder, tarfile.open(out) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None and member.isfile():
                path = Path(folder, *Path(member.name).parts[-2:])
                path.parent.mkdir(exist_ok=True)
                if path.name in _TRACES:
                    path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content.read(), 1))
                else:
                    path.write_bytes(content.read())
        yield Path(folder)
