"""Operator calls as two recorders saw them in the same run: Kineto the inputs, the execution trace the outputs."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tracemine.ops import dtype
from tracemine.ops.infer import TensorSpec

ROOT = Path(__file__).resolve().parents[2]


class RecordedCall(NamedTuple):
    """One operator: what Kineto says went in, what the execution trace says came out."""

    file: str
    operator: str
    inputs: tuple[Any, Any, Any, Any]  # shapes, types, strides, concrete
    outputs: tuple[TensorSpec | None, ...]


def pairs() -> list[tuple[Path, Path]]:
    """Every Kineto trace beside its execution trace: the fixtures', and where the environment says, others'."""
    captures = sorted((ROOT / "fixtures" / "captures").glob("*/et.json.gz"))
    found = [(path.with_name("trace.json.gz"), path) for path in captures]
    if folder := os.environ.get("TRACEMINE_COMPAT_TRACES"):
        more = Path(folder)
        found += [(p.with_name("eager.json.gz"), p) for p in sorted(more.glob("h200/*/et.json.gz"))]
        found += [(p.with_name(p.name.replace("_et_", "_")), p) for p in sorted(more.glob("dist/*_et_*.json.gz"))]
    return found


def load(path: Path) -> Any:
    """A JSON file, packed or not."""
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def events(path: Path) -> Iterator[tuple[str, tuple[Any, Any, Any, Any], int | None]]:
    """Name, recorded inputs and record function id of every operator of a Kineto trace that has recorded shapes."""
    document = load(path)
    for event in document["traceEvents"] if isinstance(document, dict) else document:
        arguments = event.get("args", {})
        if event.get("cat") == "cpu_op" and "Input Dims" in arguments:
            inputs = tuple(arguments.get(k) for k in ("Input Dims", "Input type", "Input Strides", "Concrete Inputs"))
            yield event["name"], inputs, arguments.get("Record function id")


def recorded_calls(kineto: Path, trace: Path) -> list[RecordedCall]:
    """The calls that both recorded."""
    made = {}
    for node in load(trace)["nodes"]:
        attributes = {attribute["name"]: attribute["value"] for attribute in node.get("attrs", [])}
        if attributes.get("op_schema"):
            made[attributes["rf_id"]] = _outputs(node["outputs"])
    return [
        RecordedCall(kineto.name, name, inputs, made[identity])
        for name, inputs, identity in events(kineto)
        if identity in made
    ]


def _outputs(side: dict[str, Any]) -> tuple[TensorSpec | None, ...]:
    found: list[TensorSpec | None] = []
    for shape, kind, strides in zip(side["shapes"], side["types"], side.get("strides", side["shapes"]), strict=True):
        if kind.startswith("GenericList["):
            for member, each, steps in zip(kind[12:-1].split(","), shape, strides, strict=False):
                found.append(_tensor(each, member, steps))
        elif kind.startswith("Tensor("):
            found.append(_tensor(shape, kind, strides))
    return tuple(found)


def _tensor(shape: Any, kind: str, strides: Any) -> TensorSpec | None:
    name = dtype(kind)
    return None if name is None else TensorSpec(tuple(shape), name, tuple(strides))


def same_layout(shape: tuple[int, ...], one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Strides agree where they matter: on axes longer than 1, of tensors that have elements."""
    if 0 in shape:
        return True
    return all(a == b for size, a, b in zip(shape, one, other, strict=True) if size > 1)


def disagreement(inferred: tuple[TensorSpec | None, ...], true: tuple[TensorSpec | None, ...]) -> str | None:
    """What is wrong with an inference; None where nothing is. What it does not claim is not wrong."""
    if len(inferred) != len(true):
        return f"{len(inferred)} outputs, not {len(true)}"
    for ours, theirs in zip(inferred, true, strict=True):
        if ours is None:
            continue
        if theirs is None:
            return f"{ours}, but there is none"
        if ours.shape != theirs.shape:
            return f"shape {ours.shape}, not {theirs.shape}"
        if ours.dtype is not None and ours.dtype != theirs.dtype:
            return f"dtype {ours.dtype}, not {theirs.dtype}"
        if ours.strides is not None and not same_layout(ours.shape, ours.strides, theirs.strides or ()):
            return f"strides {ours.strides}, not {theirs.strides}, of {ours.shape}"
    return None
