"""The device table: right rows for the names that profilers write, none for what it does not know."""

from __future__ import annotations

import pytest

from docs.pages_devices import devices_page
from tracemine.devices import (
    devices,
    devices_meant,
    find_device,
    guessed_device,
    is_partition,
    recorded_device,
    unknown_device_text,
)

GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("NVIDIA H100 NVL", "NVIDIA H100 NVL"),
        ("NVIDIA H200", "NVIDIA H200 SXM"),
        ("NVIDIA H200 NVL", "NVIDIA H200 NVL"),
        ("Tesla V100-SXM2-16GB", "NVIDIA V100 SXM"),
        ("Tesla V100-SXM2-32GB", "NVIDIA V100 SXM"),
        ("Tesla V100-DGXS-32GB", "NVIDIA V100 SXM"),
        ("Tesla V100-PCIE-32GB", "NVIDIA V100 PCIe"),
        ("Tesla T4", "NVIDIA T4"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80 GB SXM"),
        ("A100-SXM4-40GB", "NVIDIA A100 40 GB"),
        ("NVIDIA A100-PG509-200", "NVIDIA A100 40 GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80 GB PCIe"),
        ("NVIDIA A10", "NVIDIA A10"),
        ("NVIDIA A10G", "NVIDIA A10G"),
        ("NVIDIA L4", "NVIDIA L4"),
        ("NVIDIA L40S", "NVIDIA L40S"),
        ("NVIDIA B200", "NVIDIA B200"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA B300 SXM6 AC", "NVIDIA B300"),
        ("NVIDIA GB200", "NVIDIA GB200"),
        ("NVIDIA GB300", "NVIDIA GB300"),
        ("NVIDIA H800", "NVIDIA H800 SXM"),
        ("NVIDIA H20", "NVIDIA H20"),
        ("NVIDIA A800-SXM4-80GB", "NVIDIA A800 80 GB SXM"),
        ("NVIDIA A800 80GB PCIe", "NVIDIA A800 80 GB PCIe"),
        ("NVIDIA L20", "NVIDIA L20"),
        ("NVIDIA RTX A6000", "NVIDIA RTX A6000"),
        *[(f"NVIDIA GeForce RTX {n}", f"NVIDIA GeForce RTX {n}") for n in ("3080", "3090", "4060", "4080", "5090")],
        ("NVIDIA GeForce RTX 4060 Ti", "NVIDIA GeForce RTX 4060 Ti"),
        *[(f"AMD Instinct MI{n}X", f"AMD Instinct MI{n}X") for n in ("325", "350", "355")],
        ("AMD Instinct MI300X", "AMD Instinct MI300X"),
        ("AMD Instinct MI300X VF", "AMD Instinct MI300X"),
        ("AMD Instinct MI308X", "AMD Instinct MI308X"),
    ],
)
def test_a_name_as_profilers_write_it_finds_its_row(name: str, title: str) -> None:
    device = find_device(name)
    assert device is not None
    assert device.title == title


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "AMD Radeon Graphics",
        "NVIDIA GH200 480GB",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA L40",
        "NVIDIA GeForce RTX 3080 Ti",
        "NVIDIA GeForce RTX 4080 SUPER",
        "NVIDIA GeForce RTX 5090 D",
        "NVIDIA H800 PCIe",
        "NVIDIA L2",
        "*",
        "cpu",
    ],
)
def test_a_generic_or_unknown_name_finds_nothing(name: str | None) -> None:
    assert find_device(name) is None


@pytest.mark.parametrize(
    ("typed", "title"),
    [
        ("h100", "NVIDIA H100 SXM"),
        ("H100 SXM", "NVIDIA H100 SXM"),
        ("h100-sxm5", "NVIDIA H100 SXM"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM"),
        ("H100 SXM 80GB HBM3", "NVIDIA H100 SXM"),
        ("h100 pcie", "NVIDIA H100 PCIe"),
        ("H100NVL", "NVIDIA H100 NVL"),
        ("h200", "NVIDIA H200 SXM"),
        ("h200 nvl", "NVIDIA H200 NVL"),
        ("a100", "NVIDIA A100 80 GB SXM"),
        ("A100 40 GB", "NVIDIA A100 40 GB"),
        ("a100-pcie-80gb", "NVIDIA A100 80 GB PCIe"),
        ("Tesla V100", "NVIDIA V100 SXM"),
        ("rtx4090", "NVIDIA GeForce RTX 4090"),
        ("2080 ti", "NVIDIA GeForce RTX 2080 Ti"),
        ("b200", "NVIDIA B200"),
        ("b300", "NVIDIA B300"),
        ("gb200", "NVIDIA GB200"),
        ("h20", "NVIDIA H20"),
        ("h800", "NVIDIA H800 SXM"),
        ("a800", "NVIDIA A800 80 GB SXM"),
        ("rtx 4060", "NVIDIA GeForce RTX 4060"),
        ("4060 ti", "NVIDIA GeForce RTX 4060 Ti"),
        ("mi355x", "AMD Instinct MI355X"),
        ("mi300x", "AMD Instinct MI300X"),
        ("AMD MI300X", "AMD Instinct MI300X"),
        ("mi250", "AMD Instinct MI250 (one of its two dies)"),
    ],
)
def test_a_name_as_people_type_it_means_one_row(typed: str, title: str) -> None:
    assert [device.title for device in devices_meant(typed)] == [title]


@pytest.mark.parametrize(
    "typed", ["", "x", "h100 mig 1g.10gb", "l40", "gh200", "a1000", "AMD H100", "80gb", "sxm", "*"]
)
def test_what_only_resembles_a_name_means_nothing(typed: str) -> None:
    assert devices_meant(typed) == ()


def test_a_name_that_leaves_the_product_open_means_all_of_them() -> None:
    assert [device.title for device in devices_meant("A100 PCIe")] == ["NVIDIA A100 40 GB", "NVIDIA A100 80 GB PCIe"]


def test_every_title_and_name_of_the_table_means_its_row_and_no_other() -> None:
    for device in devices():
        assert devices_meant(device.title.partition(" (")[0]) == (device,)
        for name in device.names:
            meant = devices_meant(name.replace("*", ""))
            assert device in meant or "/" in name, name  # one name of two products: the processors' count tells


def test_the_example_of_the_hint_works() -> None:
    for example in ("h100", "mi300x"):
        assert unknown_device_text(None, example).endswith(f"--gpu {example}")
        assert len(devices_meant(example)) == 1


def test_a_slice_of_a_gpu_is_not_taken_for_the_whole() -> None:
    assert find_device("NVIDIA H100 80GB HBM3", sm_count=132) is not None
    assert find_device("NVIDIA H100 80GB HBM3", sm_count=16) is None
    assert find_device("AMD Instinct MI300X", sm_count=38) is None


def test_the_multiprocessor_count_decides_between_products_that_share_a_name() -> None:
    both = "AMD Instinct MI250X / MI250"
    found = [find_device(both, sm_count=n) for n in (110, 104)]
    assert [device and device.title[:20] for device in found] == ["AMD Instinct MI250X ", "AMD Instinct MI250 ("]


def test_recorded_memory_that_contradicts_the_row_rules_it_out() -> None:
    assert find_device("NVIDIA H100", memory_bytes=79 * GIB) is not None
    assert find_device("NVIDIA H100", memory_bytes=93 * GIB) is None


def test_every_row_is_plausible_and_has_a_source() -> None:
    for device in devices():
        assert device.sources, device.title
        assert all(name == name.casefold() for name in device.names), device.title
        assert 0 < device.achieved < 1
        assert 10**11 < device.bandwidth_bytes_per_s < 10**13
        assert device.launch_floor_ns[0] <= device.launch_floor_ns[1]
        assert device.flops_per_s.get("fp8", 0) >= 0


def test_the_page_names_every_gpu_and_marks_what_was_measured() -> None:
    page = devices_page()
    assert all(device.title in page for device in devices())
    assert "90% m" in page


def test_an_unknown_gpu_is_told_in_one_line() -> None:
    assert "\n" not in unknown_device_text("X")
    assert "'X' is not in the device table" in unknown_device_text("X")


@pytest.mark.parametrize(
    ("name", "sm_count", "title"),
    [
        ("AMD Instinct MI300X", 38, "AMD Instinct MI300X, 38 of 304 multiprocessors"),
        ("NVIDIA A100-SXM4-80GB", 42, "NVIDIA A100 80 GB SXM, 42 of 108 multiprocessors"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16, "NVIDIA H100 SXM, 16 of 132 multiprocessors"),
    ],
)
def test_a_partition_has_its_part_of_the_whole(name: str, sm_count: int, title: str) -> None:
    part, whole = recorded_device(name, sm_count), find_device(name.partition(" MIG")[0])
    assert part is not None
    assert whole is not None
    assert part.title == title
    assert part.bandwidth_bytes_per_s == round(whole.bandwidth_bytes_per_s * sm_count / whole.sm_count)
    assert part.flops_per_s["fp16"] == round(whole.flops_per_s["fp16"] * sm_count / whole.sm_count)


def test_a_whole_gpu_and_one_of_a_name_that_is_not_known_are_no_partition() -> None:
    assert recorded_device("NVIDIA H200", 132) is find_device("NVIDIA H200")
    assert recorded_device("Brand New", 16) is None
    assert recorded_device("NVIDIA H100", 114) is None  # another product's count


def test_a_count_above_the_tables_is_said() -> None:
    assert recorded_device("NVIDIA H100 80GB HBM3", 304) is None
    assert "is recorded with 304 multiprocessors, unlike the device table's 132: " in unknown_device_text(
        "NVIDIA H100 80GB HBM3", sm_count=304
    )


@pytest.mark.parametrize(
    ("name", "sm_count", "memory_gib", "capability", "like"),
    [
        ("NVIDIA L40", 142, 48, "8.9", "NVIDIA L40S"),
        ("NVIDIA GH200 480GB", 132, 96, "9.0", "NVIDIA H100 NVL"),  # by its memory, among all of 132
        ("NVIDIA A30", 56, 24, "8.0", "NVIDIA A100 40 GB"),
        ("AMD Instinct MI300A", 228, 128, "9.4", "AMD Instinct MI300X"),
        ("AMD Instinct MI210", 104, 64, "9.0", "AMD Instinct MI250 (one of its two dies)"),  # and no H100
    ],
)
def test_an_unknown_gpu_is_guessed_by_the_nearest_of_its_generation(
    name: str, sm_count: int, memory_gib: int, capability: str, like: str
) -> None:
    found = guessed_device(name, sm_count, memory_gib * GIB, capability)
    row = next(device for device in devices() if device.title == like)
    assert found is not None
    assert (found.title, found.guessed_from, found.sm_count) == (name, like, sm_count)
    assert found.bandwidth_bytes_per_s == pytest.approx(row.bandwidth_bytes_per_s * sm_count / row.sm_count, rel=1e-6)
    assert found.guess_spread[0] < 1 < found.guess_spread[1]
    assert not is_partition(found)


@pytest.mark.parametrize(
    ("name", "sm_count", "capability"),
    [
        (None, 142, "8.9"),
        ("NVIDIA L40", None, "8.9"),
        ("NVIDIA L40", 142, None),
        ("NVIDIA GTX 9090", 142, "13.0"),  # a generation of which the table has none
        ("AMD Radeon Pro", 60, "8.9"),  # another vendor's capability
        ("Intel Max 1550", 128, "9.0"),
        ("NVIDIA H100 80GB HBM3", 300, "9.0"),  # known, with another count: what is recorded is in doubt
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 16, "9.0"),  # a slice of what is known
    ],
)
def test_a_gpu_of_which_too_little_is_known_is_not_guessed(
    name: str | None, sm_count: int | None, capability: str | None
) -> None:
    assert guessed_device(name, sm_count, None, capability) is None


def test_a_guess_made_of_a_row_of_the_table_holds_the_rows_own_bandwidth() -> None:
    """Each row is guessed as if it were not there: of its generation's others, by another name."""
    for row in devices():
        vendor = row.title.split()[0]
        found = guessed_device(f"{vendor} of another name", row.sm_count, None, row.capability)
        assert found is not None
        low, high = (found.achieved_bytes_per_s * factor for factor in found.guess_spread)
        assert low * 0.999 <= row.achieved_bytes_per_s <= high * 1.001, row.title
