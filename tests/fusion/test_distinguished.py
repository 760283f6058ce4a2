"""What is only guessed to be one tensor counts as two."""

from __future__ import annotations

import numpy as np

from tracemine.flow import Evidence
from tracemine.flow.record import Reads
from tracemine.fusion.traffic import distinguished


def test_a_guessed_read_has_a_buffer_of_its_own_and_a_known_one_has_the_recorded() -> None:
    nothing = np.zeros(4, np.int64)
    evidence = np.array([Evidence.PROVEN, Evidence.ADJACENT, Evidence.CONSISTENT, Evidence.ADJACENT], np.int8)
    reads = Reads(
        node=nothing,
        tensor_row=nothing,
        buffer=np.array([0, 0, 3, 0]),
        begin_byte=nothing,
        end_byte=nothing,
        bytes=nothing,
        source=nothing.astype(np.int8),
        evidence=evidence,
    )
    buffer = distinguished(reads)
    assert buffer[[0, 2]].tolist() == [0, 3]
    assert buffer[1] == buffer[3]
    assert buffer[1] not in reads.buffer
