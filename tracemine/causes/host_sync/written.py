"""What a wait is written as in a program, by what it calls."""

from __future__ import annotations

import re
from typing import Final

from tracemine.findings.context import ScanContext
from tracemine.host.waits import WAITS
from tracemine.rows.arrow import categories

# Operators that check what they gave, and raise an error.
_CHECKED: Final = (
    *("linalg_cholesky", "linalg_inv", "linalg_solve", "linalg_lu_factor", "linalg_ldl_factor", "linalg_eigh"),
    *("linalg_svd", "linalg_eig", "linalg_slogdet", "linalg_det", "cholesky", "inverse", "multinomial"),
)
# By kind of wait: what it calls, its outermost operator or, in none, its call; the first that fits.
_WRITTEN: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "print": (("", "print(tensor)"),),
    "number": (("", ".item()"),),
    "truth": ((r"^aten::equal", "torch.equal()"), (r"^aten::allclose", "torch.allclose()"), ("", "if tensor:")),
    "check": tuple((f"^aten::{name}$", f"torch.{name.replace('linalg_', 'linalg.')}()") for name in _CHECKED),
    "mask": (
        (r"^aten::index$", "x[mask]"),
        (r"^aten::_?index_put", "x[mask] = y"),
        (r"^aten::where", "torch.where(mask)"),
        (r"^aten::masked_select", "masked_select()"),
        (r"^aten::_?unique", "torch.unique()"),
        (r"^aten::repeat_interleave", "repeat_interleave()"),
        (r"^aten::bincount", "torch.bincount()"),
        ("", "nonzero()"),
    ),
    "to_host": (("", ".cpu()"),),
    "from_list": (("", "torch.tensor(list)"),),
    "made": (("", ".to(device)"),),
    "from_host": ((r"^aten::copy_", "x[i] = value"), ("", ".to(device)")),
    "synchronize": (
        (r"Event", "event.synchronize()"),
        (r"Stream", "stream.synchronize()"),
        ("", "torch.cuda.synchronize()"),
    ),
}
WRITTEN: Final = tuple(dict.fromkeys(text for each in _WRITTEN.values() for _, text in each))


def written(context: ScanContext, wait: int) -> str | None:
    """Return what a wait is written as; None: that is not known."""
    waits, timeline = context.waits, context.timeline
    op, call = int(waits.op_row[wait]), int(waits.api_row[wait])
    column, row = (timeline.ops["name"], op) if op >= 0 else (timeline.api["name"], call)
    names = categories(column)
    name = names.values[int(names.codes[row])] if names.codes[row] >= 0 else ""
    known = _WRITTEN.get(WAITS[int(waits.kind[wait])], ())
    return next((text for pattern, text in known if re.search(pattern, name)), None)
