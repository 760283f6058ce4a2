"""Ranks read by a Ray cluster: a task a file, whose summary alone comes back, as from processes of this machine."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tracemine.errors import InputError
from tracemine.ranks.reading import Outcome, unpacked
from tracemine.ranks.worker import answer
from tracemine.ray_cluster import LOST, joined


def read_on_ray(address: str, paths: Sequence[Path]) -> Iterator[Outcome]:
    """Yield what each file holds, or what is wrong with it, in order. A lost node's files are read elsewhere.

    Nodes need tracemine, and the files under the same paths. Raises UsageError without Ray or its cluster.
    """
    with joined(address) as ray:
        remote = ray.remote(num_cpus=1, max_retries=LOST, scheduling_strategy="SPREAD")(answer)
        for waiting in [remote.remote(base64.b64encode(os.fsencode(path.resolve()))) for path in paths]:
            try:
                said = unpacked(ray.get(waiting))
            except ray.exceptions.RayError as error:
                yield InputError(f"could not be read on the cluster: {str(error)[:200]}")
            else:
                yield said.ranks if said.error is None else InputError(said.error)
