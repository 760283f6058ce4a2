"""tracemine calibrate: what this machine's GPU does with the patterns that fused kernels are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tracemine.cli.console import write
from tracemine.cli.described import option
from tracemine.cli.options import QuietOption
from tracemine.cli.progress import reading
from tracemine.errors import UsageError
from tracemine.extras import install
from tracemine.files import make_folder, write_file, writing
from tracemine.report.escape import line


def calibrate(output: Annotated[Path | None, option("calibrate.output")] = None, quiet: QuietOption = False) -> int:
    """Measure this machine's GPU: bandwidth by pattern, size and cache state, arithmetic, and what launching costs.

    From then on scan reads the fused times of this GPU's traces off it.

    Needs a CUDA device, torch and Triton; takes a minute or two, most of it to compile. Run it on an idle GPU.

    \b
    Example:
      tracemine calibrate
      tracemine calibrate -o h200.json   # for another machine: tracemine scan --calibration h200.json
    """
    try:
        from tracemine.calibrate.measure import measure
    except ImportError as error:
        hint = install("verify")
        raise UsageError(f"calibrating needs torch and Triton: {error}", hint=hint) from error

    with reading(output or Path("calibration"), quiet=quiet) as progress:
        calibration = measure(progress)
    if output is None:
        from tracemine.perfmodel.user_calibrations import data_folder, file_name

        output = data_folder() / file_name(calibration.gpu)
        with writing(output.parent):
            make_folder(output.parent)
    write_file(output, calibration.to_json())
    if not quiet:
        sizes = f"{len(calibration.points)} points"
        write(line(f"{calibration.gpu}: {sizes} → {output}") + "\n")
    return 0
