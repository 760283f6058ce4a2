"""What `ncu --csv` prints is read whole, on every page and in every locale; what is damaged is counted."""

from __future__ import annotations

import codecs
import gzip
from pathlib import Path

import pytest

from tests.counters.tables import DETAILS, RAW, READ, RULES, SM, TIME, WRITTEN, Launch, details, raw, row
from tracemine.counters import CounterReport
from tracemine.errors import InputError
from tracemine.formats.ncu import read_counters

METRICS = {TIME: "us", READ: "Mbyte", WRITTEN: "Kbyte", SM: "%"}
ADD: Launch = ("void add<4>(int)", (8, 1, 1), (128, 1, 1), ("12.50", "31.346688", "1,024.00", "68.56"))
MUL: Launch = ("void mul<4>(int)", (9, 2, 1), (256, 1, 1), ("3.25", "1.5", "0", "n/a"))


def read(tmp_path: Path, text: str | bytes, name: str = "report.csv") -> CounterReport:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_counters(path)


def refused(tmp_path: Path, text: str | bytes, name: str = "report.csv") -> str:
    with pytest.raises(InputError) as error:
        read(tmp_path, text, name)
    assert str(error.value).count("\n") == 1  # one line, and a hint
    return str(error.value).removeprefix(f"{tmp_path}/")


# --- pages -----------------------------------------------------------------------------------------------------------


def test_the_raw_page_converts_each_column_by_its_unit(tmp_path: Path) -> None:
    report = read(tmp_path, raw(METRICS, [ADD, MUL]))
    add, mul = report.kernels
    assert (report.source, report.page, report.dropped, report.warnings) == ("report.csv", "raw", {}, ())
    assert (add.name, add.grid, add.block, add.order) == ("void add<4>(int)", (8, 1, 1), (128, 1, 1), 0)
    assert (add.dur_ns, add.dram_read_bytes, add.dram_written_bytes) == (12_500, 31_346_688, 1_024_000)
    assert (add.dram_bytes, add.dram_bytes_from, add.compute_percent) == (32_370_688, "counters", 68.56)
    assert (mul.compute_percent, mul.memory_percent, mul.flops, mul.total_flops) == (None, None, {}, None)


def test_the_row_of_units_is_told_by_its_empty_id_not_by_its_place(tmp_path: Path) -> None:
    header, units, *launches = raw(METRICS, [ADD]).splitlines(keepends=True)
    assert read(tmp_path, header + "".join(launches).replace("12.50", "12,500")).kernels[0].dur_ns is None  # no unit
    assert read(tmp_path, header + units + "".join(launches)).kernels[0].dur_ns == 12_500


def test_the_details_page_tells_equal_labels_by_their_unit(tmp_path: Path) -> None:
    text = details(
        [
            (0, "k", "GPU Speed Of Light Throughput", "Duration", "us", "10.00"),
            (0, "k", "GPU Speed Of Light Throughput", "Memory Throughput", "%", "61.84"),
            (0, "k", "Memory Workload Analysis", "Memory Throughput", "Gbyte/s", "200.00"),
            (0, "k", "GPU Speed Of Light Throughput", "Compute (SM) Throughput", "%", "1.30"),
        ]
    )
    (kernel,) = read(tmp_path, text).kernels
    assert (kernel.memory_percent, kernel.dram_bytes, kernel.dram_bytes_from) == (61.84, 2_000_000, "rate")
    assert kernel.bound() == "memory"


def test_old_units_and_labels_are_known(tmp_path: Path) -> None:
    text = details(
        [
            (0, "k", "GPU Speed Of Light", "Duration", "usecond", "10.00"),
            (0, "k", "GPU Speed Of Light", "SOL SM", "%", "12.34"),
            (0, "k", "GPU Speed Of Light", "SOL Memory", "%", "80.00"),
            (0, "k", "Memory Workload Analysis", "Memory Throughput", "Gbyte/second", "200.00"),
        ],
        header=[name for name in DETAILS if name not in ("Block Size", "Grid Size", "Device", "CC")],
    )
    old = [name for name in DETAILS if name not in ("Block Size", "Grid Size", "Device", "CC")]
    lines = [row(*old)]
    for metric, unit, value in (
        ("Duration", "usecond", "10.00"),
        ("SOL SM", "%", "12.34"),
        ("SOL Memory", "%", "80.00"),
    ):
        lines.append(row(0, 7, "a", "h", "k", 1, 7, "GPU Speed Of Light", metric, unit, value))
    (kernel,) = read(tmp_path, "".join(lines)).kernels
    assert text
    assert (kernel.dur_ns, kernel.grid, kernel.compute_percent, kernel.bound()) == (10_000, None, 12.34, "memory")


def test_rules_of_the_details_page_are_no_metrics(tmp_path: Path) -> None:
    text = details([(0, "k", "S", "Duration", "ns", "10")], header=RULES)
    rule = row(
        0, 7, "a", "h", "k", 1, 7, "(1, 1, 1)", "(1, 1, 1)", 0, "9.0", "SpeedOfLight", "", "", "", "R", "OPT", "do, so"
    )
    report = read(tmp_path, text + rule)
    assert (len(report.kernels), report.dropped) == (1, {})


def test_full_metric_names_on_the_details_page_are_read(tmp_path: Path) -> None:
    text = details([(0, "k", "Command line profiler metrics", READ, "byte", "4,096")])
    text += details([(0, "k", "Command line profiler metrics", WRITTEN, "byte", "1,048,576")]).split("\n", 1)[1]
    (kernel,) = read(tmp_path, text).kernels
    assert (kernel.dram_read_bytes, kernel.dram_bytes) == (4096, 1_052_672)


def test_names_of_nvprof_are_read(tmp_path: Path) -> None:
    launch: Launch = ("k", (1, 1, 1), (1, 1, 1), ("1000", "500.25"))
    (kernel,) = read(tmp_path, raw({"dram_read_bytes": "byte", "dram_write_bytes": "byte"}, [launch])).kernels
    assert kernel.dram_bytes == 1500


def test_lines_of_ncu_and_of_the_program_are_passed_over(tmp_path: Path) -> None:
    header, units, *launches = raw(METRICS, [ADD, MUL]).splitlines(keepends=True)
    noise = ["==PROF== Connected to process 7\n", "epoch 1, loss 0.5\n", "0,1,2\n", "\n", "==PROF== Disconnected\n"]
    text = "".join([*noise, header, noise[1], units, launches[0], *noise, launches[1], *noise])
    report = read(tmp_path, text)
    assert (len(report.kernels), report.dropped) == (2, {})
    assert report == read(tmp_path, raw(METRICS, [ADD, MUL]))


def test_a_second_header_begins_a_second_table(tmp_path: Path) -> None:
    report = read(tmp_path, raw(METRICS, [ADD]) + raw({TIME: "ms"}, [("k", (1, 1, 1), (1, 1, 1), ("1.50",))]))
    assert [(kernel.name, kernel.order, kernel.dur_ns) for kernel in report.kernels] == [
        ("void add<4>(int)", 0, 12_500),
        ("k", 1, 1_500_000),
    ]


def test_columns_of_nvtx_ranges_change_nothing(tmp_path: Path) -> None:
    text = row(*RAW[:4], "thread Domain:Push/Pop_Range", *RAW[4:], TIME) + row(*[""] * 10, "us")
    text += row(0, 7, "p", "h", '5723  "step 0, ""x"":none"', "k", 1, 7, "(1, 1, 1)", "(2, 1, 1)", "1.50")
    (kernel,) = read(tmp_path, text).kernels
    assert (kernel.name, kernel.grid, kernel.dur_ns) == ("k", (2, 1, 1), 1500)


@pytest.mark.parametrize("pack", ["gzip", "utf-16", "bom", "crlf", "unquoted"])
def test_packing_encoding_and_line_ends_change_nothing(tmp_path: Path, pack: str) -> None:
    text = raw(METRICS, [("k", (1, 1, 1), (1, 1, 1), ADD[3])])
    forms = {
        "gzip": gzip.compress(text.encode()),
        "utf-16": codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
        "bom": codecs.BOM_UTF8 + text.encode(),
        "crlf": text.replace("\n", "\r\n").encode(),
        "unquoted": text.replace('"(1, 1, 1)"', "@").replace('"1,024.00"', "#").replace('"', "").encode(),
    }
    forms["unquoted"] = forms["unquoted"].replace(b"@", b'"(1, 1, 1)"').replace(b"#", b'"1,024.00"')
    assert read(tmp_path, forms[pack]).kernels == read(tmp_path, text).kernels


# --- locales ---------------------------------------------------------------------------------------------------------


def test_a_european_locale_is_told_by_its_numbers(tmp_path: Path) -> None:
    launch: Launch = ("k", (1, 1, 1), (1, 1, 1), ("117.344", "31,346688", "1.024,00", "65,77"))
    (kernel,) = read(tmp_path, raw(METRICS, [launch])).kernels
    assert (kernel.dur_ns, kernel.dram_read_bytes, kernel.compute_percent) == (117_344_000, 31_346_688, 65.77)


def test_two_locales_in_one_table_are_refused(tmp_path: Path) -> None:
    other: Launch = ("k", (1, 1, 1), (1, 1, 1), ("12,50", "1,5", "1.024,00", "65,77"))
    text = refused(tmp_path, "noise\n" + raw(METRICS, [ADD, other]))
    assert text.startswith("report.csv:2: mixes numbers of two locales, 12.50 and 12,50, in one table\n  hint: ")


def test_two_tables_may_be_of_two_locales(tmp_path: Path) -> None:
    other: Launch = ("k", (1, 1, 1), (1, 1, 1), ("12,50", "1,5", "1.024,00", "65,77"))
    report = read(tmp_path, raw(METRICS, [ADD]) + raw(METRICS, [other]))
    assert [kernel.dur_ns for kernel in report.kernels] == [12_500, 12_500]


def test_numbers_that_tell_no_locale_are_read_with_a_warning(tmp_path: Path) -> None:
    report = read(tmp_path, raw({READ: "byte"}, [("k", (1, 1, 1), (1, 1, 1), ("1,234",))]))
    assert report.kernels[0].dram_read_bytes == 1234
    assert report.warnings[0].startswith("numbers such as 1,234 may be read 1000 times too large")


# --- damage ----------------------------------------------------------------------------------------------------------


def test_rows_that_are_cut_off_are_counted_and_left_out(tmp_path: Path) -> None:
    text = raw(METRICS, [ADD, MUL, ADD])
    report = read(tmp_path, text[:-20])
    assert (len(report.kernels), report.dropped) == (2, {"ragged_row": 1})
    whole = text.splitlines(keepends=True)
    longer = whole[3].rstrip() + ',"7"\n'
    report = read(tmp_path, "".join([*whole[:3], longer, whole[4]]))
    assert ([kernel.order for kernel in report.kernels], report.dropped) == ([0, 1], {"ragged_row": 1})


def test_a_cut_anywhere_invents_nothing(tmp_path: Path) -> None:
    text = raw(METRICS, [ADD, MUL])
    whole = read(tmp_path, text).kernels
    header = len(text.splitlines(keepends=True)[0])
    for end in range(header, len(text), 7):
        try:
            report = read(tmp_path, text[:end])
        except InputError as error:
            assert "no kernels" in error.message
            continue
        assert all(kernel in whole for kernel in report.kernels)
        assert len(report.kernels) + sum(report.dropped.values()) <= 2


def test_a_repeated_id_of_another_kernel_is_counted(tmp_path: Path) -> None:
    lines = raw(METRICS, [ADD, MUL]).replace('"1","7"', '"0","7"')
    report = read(tmp_path, lines)
    assert (len(report.kernels), report.dropped) == (1, {"second_kernel_of_one_id": 1})


def test_a_value_in_an_unknown_unit_is_counted_and_null(tmp_path: Path) -> None:
    report = read(tmp_path, raw({TIME: "fortnight"}, [("k", (1, 1, 1), (1, 1, 1), ("1.50",))]))
    assert (report.kernels[0].dur_ns, report.dropped) == (None, {"value_of_unknown_unit": 1})


def test_a_launch_that_failed_has_no_grid(tmp_path: Path) -> None:
    assert read(tmp_path, raw({TIME: "us"}, [("k", (0, 0, 0), (0, 0, 0), ("1.50",))])).kernels[0].grid is None


def test_a_table_without_kernels_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, raw(METRICS, [])).startswith("report.csv:1: has no kernels in its table\n  hint: ")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - see /home/me\n", "ncu was not allowed to read the counters (ERR_NVGPUCTRPERM)"),
        ("==WARNING== No kernels were profiled.\n", "ncu says that no kernels were profiled"),
        ("==ERROR== LaunchFailed /home/me\n", "ncu says that the kernel's launch failed"),
        ("==ERROR== /home/me/secret went wrong\n", "ncu printed an error instead"),
    ],
)
def test_what_ncu_complained_of_is_said_in_our_words(tmp_path: Path, text: str, what: str) -> None:
    said = refused(tmp_path, text)
    assert said.startswith(f"report.csv: has no table: {what}\n  hint: ")
    assert "/home/me" not in said


@pytest.mark.parametrize(
    ("content", "name", "what"),
    [
        (b"", "report.csv", "is empty"),
        (b"hello\n", "report.csv", "has no table of Nsight Compute in it"),
        (b"\0\1\2\3", "report.csv", "is no report of Nsight Compute"),
        (b"", "report.ncu-rep", "is empty"),
        (b"garbage", "report.ncu-rep", "is no report of Nsight Compute"),
        (gzip.compress(b"garbage", mtime=0), "report.ncu-rep.gz", "is no report of Nsight Compute"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, content: bytes, name: str, what: str) -> None:
    assert refused(tmp_path, content, name).startswith(f"{name}: {what}\n  hint: ")


def test_a_quote_that_never_closes_costs_one_row(tmp_path: Path) -> None:
    lines = raw(METRICS, [ADD, MUL, ADD]).splitlines(keepends=True)
    lines[3] = lines[3].replace('"3.25"', '"3.25')
    report = read(tmp_path, "".join(lines))
    assert (len(report.kernels), sum(report.dropped.values())) == (2, 1)


def test_of_gzip_data_what_is_lost_and_what_stands_behind_it_is_said(tmp_path: Path) -> None:
    packed = gzip.compress(raw(METRICS, [ADD, MUL]).encode(), mtime=0)
    cut = read(tmp_path, packed[:-8], "report.csv.gz")
    assert cut.warnings == ("its gzip data is cut off or damaged: what could be inflated was read",)
    more = read(tmp_path, packed + b"junk", "report.csv.gz")
    assert more.warnings == ("behind its gzip data stand 4 bytes that are none",)
    assert len(cut.kernels) == len(more.kernels) == 2
