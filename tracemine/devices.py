"""What each GPU can do: a table with its sources, and the one function that finds a trace's GPU in it.

Of a GPU that is not in the table rates are guessed where the trace records of what generation it is and how large, and
said to be a guess; else it gets no estimate rather than a stranger's numbers. Whatever needs none still works.
"""

from __future__ import annotations

import fnmatch
import glob
import math
import re
from functools import cache
from itertools import takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tracemine.errors import UsageError
from tracemine.patterns import deferred
from tracemine.tables import table_beside

_GIB = 1 << 30
_MIB = 1 << 20
_BUS_VERSION = deferred(r"(sxm)\d(?!\d)")  # SXM4, SXM5: the product's name says which
_NO_LETTER_OR_DIGIT = deferred(r"[^a-z0-9]+")
_FORM_FACTORS = frozenset({"sxm", "pcie", "nvl", "dgxs"})

UNESTIMATED = "savings of GPU time are not estimated"  # in what `unknown_device_text` says
_LARGEST_PARTITION = 2 / 3  # of a product's multiprocessors; what has more is another product
_MIG = deferred(r" mig \d.*")  # a slice's name says of what it is one
_TELLING = 3  # characters of a GPU's name that tell which it may be


class Device(Struct, frozen=True, kw_only=True):
    """One GPU model, as one device of a trace sees it. Null: no data sheet states it beyond doubt."""

    title: str
    names: tuple[str, ...]  # lower case, `*` for anything
    meant_by: tuple[str, ...]  # what a person calls this one, though others fit as well
    sm_count: int
    memory_bytes: tuple[int, int] | None  # least and most that the driver reports, where the name is not enough
    bandwidth_bytes_per_s: int
    achieved: float  # share of the bandwidth that a large copy reaches
    achieved_measured: bool  # False: an assumption
    l2_bytes: int | None
    host_link_bytes_per_s: int  # raw rate one way
    host_link_share: float  # of it, from pinned memory; an assumption
    peer_link_bytes_per_s: int | None  # raw rate one way to other devices of its kind, over all their links
    launch_floor_ns: tuple[int, int]  # the smallest pointwise kernel, the smallest row reduction
    launch_floor_measured: bool
    flops_per_s: dict[str, int]  # dense peak by dtype; a missing dtype is unsupported or not known
    sources: tuple[str, ...]
    capability: str | None = None  # compute capability as the driver reports it
    memory_gb: int | None = None  # of the data sheet; None: sold with several sizes
    guessed_from: str | None = None  # title of the row that a GPU's rates are guessed by; None: they are its own
    # Where they are guessed: the least and the most bandwidth that it may have, as factors.
    guess_spread: tuple[float, float] = (1.0, 1.0)

    @property
    def achieved_bytes_per_s(self) -> int:
        """Bandwidth that a large copy reaches.

        >>> find_device("NVIDIA H200").achieved_bytes_per_s
        4300800000000
        """
        return round(self.bandwidth_bytes_per_s * self.achieved)

    def ridge(self, dtype: str | None = None) -> float | None:
        """Return the FLOP per byte from which arithmetic, not memory, limits a pointwise or reducing kernel.

        Such kernels compute in float32, of float64 tensors in float64, and use no tensor cores. Peak ÷ bandwidth, both
        of the data sheet: S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52 (2009). None: no peak is stated.

        >>> round(find_device("NVIDIA H200").ridge("bfloat16"), 1)
        14.0
        """
        peak = self.flops_per_s.get("fp64" if dtype == "float64" else "fp32")
        return None if peak is None else peak / self.bandwidth_bytes_per_s


@cache
def devices() -> tuple[Device, ...]:
    """Return every row of devices.toml, in its order."""
    table = table_beside(__file__, "devices.toml")
    return tuple(_device(row, table["assumed"], table["links"]) for row in table["device"])


def find_device(name: str | None, sm_count: int | None = None, memory_bytes: int | None = None) -> Device | None:
    """Return the row for a GPU as a profiler or the table names it, the longest name that fits first; else None.

    A row is passed over when the recorded multiprocessor count or memory contradicts it, so a MIG slice or a partition
    is never taken for the whole product. Generic names ("AMD Radeon Graphics") fit nothing.

    >>> find_device("NVIDIA H100 80GB HBM3").title, find_device("NVIDIA H100 PCIe", sm_count=114).title
    ('NVIDIA H100 SXM', 'NVIDIA H100 PCIe')
    >>> find_device("NVIDIA H200", sm_count=16) is None
    True
    """
    if not name:
        return None
    name = " ".join(name.casefold().split())
    fitting = [
        (len(pattern.replace("*", "")), device)
        for device in devices()
        for pattern in (*device.names, glob.escape(device.title.casefold()))
        if fnmatch.fnmatchcase(name, pattern) and _agrees(device, sm_count, memory_bytes)
    ]
    return max(fitting, key=lambda pair: pair[0])[1] if fitting else None


@cache
def recorded_device(name: str | None, sm_count: int | None = None, memory_bytes: int | None = None) -> Device | None:
    """Return the row for a GPU as a trace records it: of a partition (MIG, CPX) with that part of the whole's rates.

    >>> part = recorded_device("AMD Instinct MI300X", sm_count=38)
    >>> part.title, part.bandwidth_bytes_per_s, recorded_device("AMD Instinct MI300X", sm_count=400)
    ('AMD Instinct MI300X, 38 of 304 multiprocessors', 662500000000, None)
    """
    whole = find_device(name, sm_count, memory_bytes)
    if whole is not None or name is None or sm_count is None:
        return whole
    product = find_device(_MIG.sub("", name.casefold()))
    if product is None or sm_count > _LARGEST_PARTITION * product.sm_count:
        return None
    part = sm_count / product.sm_count
    return replace(
        product,
        title=f"{product.title}, {sm_count} of {product.sm_count} multiprocessors",
        names=(),
        meant_by=(),
        sm_count=sm_count,
        memory_bytes=None,
        bandwidth_bytes_per_s=round(product.bandwidth_bytes_per_s * part),
        l2_bytes=None if product.l2_bytes is None else round(product.l2_bytes * part),
        flops_per_s={dtype: round(peak * part) for dtype, peak in product.flops_per_s.items()},
    )


def is_partition(device: Device) -> bool:
    """Return whether a row is of a part of a product, as `recorded_device` makes it."""
    return not device.names and device.guessed_from is None


_VENDORS = {"nvidia": ("nvidia", "tesla", "geforce", "quadro"), "amd": ("amd",)}  # first words of GPUs' names
_LIKE_MEMORY = 0.1  # of a data sheet's memory: a driver reports that much less or more
_LEAST_SPREAD = 1.3  # of a guess, either way: boards of one chip differ in their memory's clock by that


@cache
def guessed_device(
    name: str | None, sm_count: int | None, memory_bytes: int | None, capability: str | None
) -> Device | None:
    """Return rates guessed for a GPU that is not in the table; None where too little of it is recorded, or it is there.

    They are those of the row of its vendor and compute capability whose multiprocessors and memory are most like its
    own, by its multiprocessors. The spread holds what any such row would give.

    >>> guess = guessed_device("NVIDIA L40", 142, 48 << 30, "8.9")
    >>> guess.title, guess.guessed_from, guess.bandwidth_bytes_per_s
    ('NVIDIA L40', 'NVIDIA L40S', 864000000000)
    >>> guessed_device("NVIDIA L40", 142, 48 << 30, "99.0") is None
    True
    """
    if not name or not sm_count or not capability or find_device(_MIG.sub("", name.casefold())) is not None:
        return None
    vendor = _vendor(name)
    alike = [
        each
        for each in devices()
        if each.capability == capability and vendor is not None and _vendor(each.title) == vendor
    ]
    if not alike:
        return None
    nearest = min(alike, key=lambda each: _unlike(each, sm_count, memory_bytes))
    part = sm_count / nearest.sm_count
    bandwidths = [each.achieved_bytes_per_s * sm_count / each.sm_count for each in alike]
    own = nearest.achieved_bytes_per_s * part
    return replace(
        nearest,
        title=" ".join(name.split()),
        names=(),
        meant_by=(),
        sm_count=sm_count,
        memory_bytes=None,
        bandwidth_bytes_per_s=round(nearest.bandwidth_bytes_per_s * part),
        achieved_measured=False,
        l2_bytes=None if nearest.l2_bytes is None else round(nearest.l2_bytes * part),
        peer_link_bytes_per_s=None,
        launch_floor_measured=False,
        flops_per_s={dtype: round(peak * part) for dtype, peak in nearest.flops_per_s.items()},
        memory_gb=None,
        guessed_from=nearest.title,
        guess_spread=(min(min(bandwidths) / own, 1 / _LEAST_SPREAD), max(max(bandwidths) / own, _LEAST_SPREAD)),
    )


def told_name(sm_count: int | None, memory_bytes: int | None, capability: str | None) -> str | None:
    """Return what a GPU is called that a trace describes and does not name; None where the table has none like it.

    >>> told_name(304, 206_141_652_992, "9.4"), told_name(256, 309_220_868_096, "9.5")
    ('AMD Instinct MI300X (by its size)', 'AMD Instinct MI350X or AMD Instinct MI355X (by its size)')
    >>> told_name(304, None, "9.4")
    """
    size_gib, fitting = (memory_bytes or 0) / _GIB, list[Device]()
    for each in devices() if size_gib else ():
        near = each.memory_gb is None or abs(size_gib / each.memory_gb - 1) <= _LIKE_MEMORY
        fitting += [each] if near and (each.capability, each.sm_count) == (capability, sm_count) else []
    name = f"{' or '.join(each.title for each in fitting)} (by its size)"
    rates = {each.bandwidth_bytes_per_s for each in fitting}
    return name if len(rates) == 1 and find_device(name, sm_count, memory_bytes) is not None else None


def guess_text(device: Device) -> str:
    """Return what to tell a person whose GPU's rates are guessed.

    >>> print(guess_text(guessed_device("NVIDIA L40", 142, 48 << 30, "8.9")))
    GPU 'NVIDIA L40' is not in the device table: its rates are a guess by the NVIDIA L40S, which has compute capability 8.9 too, and 142 multiprocessors; --gpu NAME estimates for another
    """  # noqa: E501
    return (
        f"GPU {device.title!r} is not in the device table: its rates are a guess by the {device.guessed_from}, which "
        f"has compute capability {device.capability} too, and {device.sm_count:,} multiprocessors; --gpu NAME "
        "estimates for another"
    )


def _vendor(name: str) -> str | None:
    first = name.casefold().split()[0].partition("-")[0]
    return next((vendor for vendor, words in _VENDORS.items() if first in words), None)


def _unlike(row: Device, sm_count: int, memory_bytes: int | None) -> tuple[float, str]:
    """Return how far a row is from what is recorded, in logarithms; its title decides between equals."""
    apart = abs(math.log(sm_count / row.sm_count))
    if memory_bytes and row.memory_gb:
        apart += abs(math.log(memory_bytes / (row.memory_gb * _GIB)))
    return apart, row.title


def devices_meant(name: str) -> tuple[Device, ...]:
    """Return the rows that a person may mean who types a GPU's name: one, several where that is ambiguous, or none.

    Letters and digits alone count, in any order and case; vendor, memory and form factor may be left out. Every word
    must be one of the row's, and the product's must be there: "80 GB" names nothing.

    >>> [device.title for name in ("h100", "MI300X", "a100 pcie 80gb") for device in devices_meant(name)]
    ['NVIDIA H100 SXM', 'AMD Instinct MI300X', 'NVIDIA A100 80 GB PCIe']
    >>> [device.title for device in devices_meant("a100-pcie")]
    ['NVIDIA A100 40 GB', 'NVIDIA A100 80 GB PCIe']
    >>> devices_meant("h1000"), devices_meant("80 GB")
    ((), ())
    """
    exact = find_device(name)
    if exact is not None:
        return (exact,)
    typed = _letters_and_digits(name)
    words = _words_in(typed)
    fitting = tuple(device for device in devices() if _product(device) in words <= _words(device))
    meant = tuple(
        device
        for device in fitting
        if words - _vendors() in [_words_in(_letters_and_digits(each)) for each in device.meant_by]
    )
    return meant or fitting


def device_named(name: str) -> Device:
    """Return the one row that a person means. Raises UsageError where it is none, or may be any of several.

    >>> device_named("h100 sxm").title
    'NVIDIA H100 SXM'
    """
    meant = devices_meant(name)
    if len(meant) == 1:
        return meant[0]
    wrong = "may be any of several GPUs" if meant else "is not in the device table"
    close = [] if meant else _begins_alike(name)
    asked = f"did you mean {' or '.join(close)}? " if close else ""
    titles = ", ".join(device.title for device in meant or devices())
    raise UsageError(f"{name!r} {wrong}", hint=f"{asked}there are: {titles}")


def _begins_alike(name: str) -> list[str]:
    """Return the titles of rows whose model begins most like a name.

    >>> _begins_alike("h2000"), _begins_alike("voodoo")
    (['NVIDIA H200 SXM', 'NVIDIA H200 NVL'], [])
    """
    asked = _letters_and_digits(name)
    shared = {}
    for device in devices():
        words = (_letters_and_digits(word) for word in device.title.split())
        model = "".join(word for word in words if word not in _vendors())
        same = takewhile(lambda pair: pair[0] == pair[1], zip(asked, model, strict=False))
        shared[device.title] = len(list(same))
    most = max(shared.values())
    return [title for title, count in shared.items() if count == most >= _TELLING]


def unknown_device_text(name: str | None, example: str = "h100", sm_count: int | None = None) -> str:
    """Return what to tell a person whose GPU is not in the table; the example is what `--gpu` takes.

    >>> unknown_device_text("Brand New")
    "GPU 'Brand New' is not in the device table: savings of GPU time are not estimated; --gpu NAME estimates for another, such as --gpu h100"
    >>> unknown_device_text("NVIDIA H100", sm_count=304).partition(": ")[0]
    "GPU 'NVIDIA H100' is recorded with 304 multiprocessors, unlike the device table's 132"
    >>> unknown_device_text(None, "mi300x")
    'the trace does not name its GPU: savings of GPU time are not estimated; --gpu NAME says which it was, such as --gpu mi300x'
    """  # noqa: E501
    what, hint = "the trace does not name its GPU", "says which it was"
    if name:
        what, hint = f"GPU {name!r} is not in the device table", "estimates for another"
    product = find_device(name)
    if product is not None and sm_count is not None and sm_count != product.sm_count:
        differs = f"is recorded with {sm_count:,} multiprocessors, unlike the device table's {product.sm_count:,}"
        what = f"GPU {name!r} {differs}"
    return f"{what}: {UNESTIMATED}; --gpu NAME {hint}, such as --gpu {example}"


def _letters_and_digits(name: str) -> str:
    """Return a name as it is compared: no case, no separators, no generation of the form factor.

    >>> _letters_and_digits("A100-SXM4-80 GB")
    'a100sxm80gb'
    """
    return _NO_LETTER_OR_DIGIT.sub("", _BUS_VERSION.sub(r"\1", name.casefold()))


def _words(device: Device) -> frozenset[str]:
    """Return every word of a row's title and names, and of what it is meant by."""
    texts = (device.title.partition("(")[0].replace(" GB", "GB"), *device.names, *device.meant_by)
    words = (_letters_and_digits(word) for text in texts for word in _NO_LETTER_OR_DIGIT.split(text.casefold()))
    return frozenset(word for word in words if word)


@cache
def _vendors() -> frozenset[str]:
    """Return the words of titles that name a vendor or a family of products."""
    return frozenset(word for device in devices() for word in _words(device) if word.isalpha()) - _FORM_FACTORS


@cache
def _vocabulary() -> re.Pattern[str]:
    """Return a text that consists of nothing but words of the table."""
    words = sorted({word for device in devices() for word in _words(device)}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, words)))


def _words_in(text: str) -> frozenset[str]:
    """Return the table's words that a text consists of; what is none of them is one word that no row has.

    >>> sorted(_words_in("h100pcie")), sorted(_words_in("h1000"))
    (['h100', 'pcie'], ['0', 'h100'])
    """
    return frozenset([*_vocabulary().findall(text), *filter(None, _vocabulary().split(text))])


def _product(device: Device) -> str:
    """Return the word of a title that tells its product from the vendor's others.

    >>> [_product(device) for device in devices()[:4]]
    ['v100', 'v100', 't4', '2080']
    """
    return next(word.casefold() for word in device.title.split() if any(map(str.isdigit, word)))


def _agrees(device: Device, sm_count: int | None, memory_bytes: int | None) -> bool:
    if sm_count is not None and sm_count != device.sm_count:
        return False
    if memory_bytes is None or device.memory_bytes is None:
        return True
    least, most = device.memory_bytes
    return least <= memory_bytes <= most


def _device(row: dict[str, Any], assumed: dict[str, Any], links: dict[str, float]) -> Device:
    memory = row.get("memory_gib")
    l2_mib = row.get("l2_mib")
    pointwise, reduction = row.get("launch_floor_ns", assumed["launch_floor_ns"])
    return Device(
        title=row["title"],
        names=tuple(row["names"]),
        meant_by=tuple(row.get("meant_by", ())),
        sm_count=row["sm_count"],
        memory_bytes=None if memory is None else (memory[0] * _GIB, memory[1] * _GIB),
        bandwidth_bytes_per_s=row["bandwidth_gb_s"] * 10**9,
        achieved=row.get("achieved", row.get("achieved_elsewhere", assumed["achieved"])),
        achieved_measured="achieved" in row,
        l2_bytes=None if l2_mib is None else l2_mib * _MIB,
        host_link_bytes_per_s=round(links[row["host_link"]] * 1e9),
        host_link_share=assumed["host_link_share"],
        peer_link_bytes_per_s=None if "peer_link_gb_s" not in row else row["peer_link_gb_s"] * 10**9,
        launch_floor_ns=(pointwise, reduction),
        launch_floor_measured="launch_floor_ns" in row,
        flops_per_s={dtype: round(peak * 1e12) for dtype, peak in row["tflops"].items()},
        sources=tuple(row["sources"]),
        capability=row["capability"],
        memory_gb=row.get("memory_gb"),
    )
