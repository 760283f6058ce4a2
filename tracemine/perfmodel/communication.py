"""Time of communication that overlaps other work, as far as one rank shows."""

from __future__ import annotations

from tracemine.perfmodel.ranges import Estimate, outwards
from tracemine.units import percent_text, time_text

# Half of what is transfer hides where it runs in order with the work: cut into two halves, one half is sent while the
# other is computed. Of several calls a step the last, or the first, has nothing left to hide behind. Where nothing says
# how fast the link is, half of the shortest call is taken for waiting.
HALF = 0.5
_REDUCES, _GATHERS = ("allreduce", "all_reduce"), ("allgather", "all_gather")


def sent_bytes(collective: str, nbytes: int, group_size: int) -> int:
    """Return how many bytes a rank sends of an input, by the arithmetic of nccl-tests.

    >>> [sent_bytes(name, 400, 4) for name in ("allreduce", "_allgather_base", "_reduce_scatter_base")]
    [600, 1200, 300]
    """
    gathers, reduces = (any(part in collective.lower() for part in names) for names in (_GATHERS, _REDUCES))
    times = group_size if gathers else 2 if reduces else 1
    return nbytes * times * (group_size - 1) // max(group_size, 1)


def hidden(exposed_ns: float, transfer_ns: float, calls: float, room: float, *, computes: bool, how: str) -> Estimate:
    """Estimate a collective that other work hides.

    exposed_ns: how long nothing overlapped one. transfer_ns: what of it the link takes at least, and how that is
    known. calls: how many of all kinds a step has. room: which share of all that is exposed other work lasts for.
    computes: its stream runs other work as well.

    >>> hidden(900_000, 600_000, 4, 1.0, computes=False, how="").after_ns
    Range(low=0, mid=450000, high=900000)
    >>> hidden(900_000, 600_000, 4, 0.5, computes=True, how="").after_ns
    Range(low=0, mid=750000, high=900000)
    """
    share = HALF if computes else max(1 - 1 / max(calls, 1), HALF)
    which = "cut in two, one half of it hides" if computes else "but for one of a step's calls it hides"
    return Estimate(
        after_ns=outwards(0, exposed_ns - transfer_ns * room * share, exposed_ns),
        assumptions=(
            "one rank does not tell how long the link takes and how long other ranks are waited for: low end of the "
            f"saving: all of it is waiting, or what runs next needs it; middle: {how} ({time_text(transfer_ns)} a "
            f"call), {which} behind other work, which lasts for {percent_text(room, 1)} of all that nothing hides "
            "(assumed); high end: all of it hides",
        ),
    )
