"""Make torch's profiler ready, without a word."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from tracemine.errors import UsageError
from tracemine.recording.files import RecordingOptions, everywhere


def prepared(torch: Any, options: RecordingOptions, folder: Path) -> Any:
    """Return a profiler that is ready to record a whole window; its execution trace goes to `et.json` in the folder.

    Raises UsageError where another profiler is recording.
    """
    if torch.autograd._profiler_enabled():
        raise UsageError("a profiler is recording already", hint="take this block out of the other one")
    torch_profiler = torch.profiler
    observer = torch_profiler.ExecutionTraceObserver() if options.execution_trace else None
    # Driven by hand instead of by a schedule: the clock has to stop between the last step's end and the profiler's.
    profiler = torch_profiler.profile(
        record_shapes=True,
        profile_memory=options.memory,
        with_stack=options.stacks,
        execution_trace_observer=observer,
        experimental_config=everywhere(torch_profiler) if options.all_threads else None,
    )
    ready(profiler)
    if observer is not None:  # last: one that is left behind makes torch crash later
        observer.register_callback(str(folder / "et.json"))
    return profiler


def ready(profiler: Any) -> None:
    """Make a profiler ready. Before torch 2.13 also the first and only cycle warns that it clears those before it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Profiler clears events", category=UserWarning)
        profiler.prepare_trace()
