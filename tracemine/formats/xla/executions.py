"""Which instruction each activity carries out: one row for each execution of an instruction of a compiled module."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from msgspec import Struct

from tracemine.columns import Array, codes, examples
from tracemine.formats.arrow import MISSING
from tracemine.formats.kineto.stacks import CallPaths
from tracemine.formats.xla.hlo_executions import rows_of
from tracemine.formats.xla.join import HloProgram
from tracemine.formats.xla.recording import Columns, Recording

EVIDENCE = ("compiler", "consistent")

# Texts that a row may have, as columns of the table `ops` call them.
TEXTS = ("name", "module", "input_shapes", "input_dtypes", "input_strides", "concrete_inputs", "op_schema")


class Executions(Struct, frozen=True, kw_only=True):
    """Executions of instructions, in any order; the timeline's `ops` are these and the host's annotations.

    `rows`: launch (row of `host`, −1: not recorded); number, where order is known: it grows as they were executed; and
    of TEXTS those that are known, as ids in `texts` (-1: none); stack, if there are `paths`, a row of these whose
    frames are ids in `texts`.
    """

    rows: Columns
    texts: list[str]
    of_activity: Array  # for each activity a row, -1: its instruction is not known
    evidence: Array  # int8, of EVIDENCE, -1
    copied_bytes: Array  # of activities that are copies though they are recorded as kernels; MISSING: it is none
    paths: CallPaths | None = None
    tensors: pa.Table | None = None  # as TABLES["tensors"], op_row being a row here
    instructions: pa.Table | None = None  # likewise
    warnings: tuple[str, ...] = ()


def executions_of(recording: Recording) -> Executions:
    """Return executions as far as it is known which instruction each activity is of.

    Where the modules are recorded, what command buffers replayed too. Else that says the buffer's name, and has no row.
    """
    if recording.modules:
        return _of_programs(recording)
    gpu = recording.gpu
    known = (gpu["hlo_op"] >= 0) & (gpu["launch"] >= 0) & (gpu["graph_id"] <= 0)
    rows = np.flatnonzero(known)
    code = codes(gpu["launch"][rows], gpu["hlo_op"][rows]) if len(rows) else rows
    example = rows[examples(code)] if len(rows) else rows
    of_activity = np.full(len(known), -1, np.int64)
    of_activity[rows] = code
    texts = [f"xla::{text}" for text in recording.strings]
    return Executions(
        rows={"launch": gpu["launch"][example], "name": gpu["hlo_op"][example]},
        texts=texts,
        of_activity=of_activity,
        evidence=np.where(known, 0, -1).astype(np.int8),
        copied_bytes=np.full(len(known), MISSING),
    )


def _of_programs(recording: Recording) -> Executions:
    found = rows_of(recording, {number: HloProgram(module) for number, module in recording.modules.items()})
    return Executions(
        rows={"launch": found.launch, "number": found.number, "stack": found.stack, **found.columns},
        texts=found.texts,
        of_activity=found.of_activity,
        evidence=np.where(found.of_activity >= 0, 0, -1).astype(np.int8),
        copied_bytes=found.copied_bytes,
        paths=found.paths,
        tensors=found.tensors,
        instructions=found.instructions,
        warnings=found.warnings,
    )
