"""A Ray cluster that is joined for as long as it is needed. Ray is an extra, and loaded here alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tracemine.errors import UsageError
from tracemine.extras import install

LOST: Final = 8  # times that a task begins again because its node or worker is gone


def loaded_ray() -> Any:
    """Return Ray. Raises UsageError where it is not installed."""
    try:
        import ray
    except ImportError:
        raise UsageError("--ray: Ray is not installed here", hint=install("ray")) from None
    return ray


@contextmanager
def joined(address: str) -> Iterator[Any]:
    """Yield Ray on the cluster at an address (`auto`, `ray://head:10001`). Raises UsageError."""
    ray = loaded_ray()
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
    except (ConnectionError, ValueError, RuntimeError) as error:
        hint = "`ray start --head` begins a cluster on this machine"
        raise UsageError(f"--ray: no cluster at {address}: {str(error)[:200]}", hint=hint) from None
    try:
        yield ray
    finally:
        ray.shutdown()
