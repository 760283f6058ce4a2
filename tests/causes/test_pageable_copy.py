"""Copies from pageable memory."""

from __future__ import annotations

from tracemine.causes.pageable_copy.estimate import pinned
from tracemine.devices import find_device
from tracemine.perfmodel import Abstained


def test_a_copy_of_unknown_size_or_on_an_unknown_gpu_abstains() -> None:
    assert pinned(None, find_device("NVIDIA H200")) == Abstained("bytes_unknown")
    assert pinned(1, None) == Abstained("device_unknown")
