"""Where the step's time goes: GPU time by kernel, operator, module, line, stream, device or phase.

Tops(asked).by("kernel")  → Top, whose rows add up to all GPU time that is looked at

Everything is summed over arrays that earlier stages give; only names, modules and call paths are looked at one by one.
"""

from tracemine.top.build import Asked, Tops
from tracemine.top.record import BY, By, Claim, LeftOut, Top, TopRow, Utilisation
from tracemine.top.table import top_table

__all__ = ["BY", "Asked", "By", "Claim", "LeftOut", "Top", "TopRow", "Tops", "Utilisation", "top_table"]
