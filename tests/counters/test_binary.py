"""Binary reports go through NVIDIA's package, which may be missing, and finds nothing in what is no report."""

from __future__ import annotations

import builtins
import gzip
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tracemine.formats.ncu as report
from tracemine.errors import InputError
from tracemine.formats.ncu import answer, question, read_counters

METRICS: dict[str, tuple[Any, str]] = {
    "gpu__time_duration.sum": (8224.0, "ns"),
    "dram__bytes_read.sum": (4096, "byte"),
    "dram__bytes_write.sum": (32636.0, "byte"),
    "launch__grid_dim_x": (2, ""),
    "launch__grid_dim_y": (64, ""),
    "launch__grid_dim_z": (1, ""),
    "launch__block_dim_x": (384.0, "block"),
    "launch__block_dim_y": (1.0, "block"),
    "launch__block_dim_z": (1.0, "block"),
    "device__attribute_display_name": ("NVIDIA H200", ""),
    "something__else": ("/home/secret", ""),
}


class Metric:
    def __init__(self, value: Any, unit: str) -> None:
        self._value, self._unit = value, unit

    def has_value(self) -> bool:
        return True

    def value(self) -> Any:
        return self._value

    def unit(self) -> str:
        return self._unit


class Action:
    """A kernel as ncu_report hands it out."""

    NameBase_DEMANGLED = 1

    def __init__(self, kind: int = 0) -> None:
        self.kind = kind

    def name(self, base: int = 0) -> str:
        return "void f<4>(int)" if base == self.NameBase_DEMANGLED else "f"

    def workload_type(self) -> int:
        return self.kind

    def metric_names(self) -> tuple[str, ...]:
        return tuple(METRICS)

    def metric_by_name(self, name: str) -> Metric:
        return Metric(*METRICS[name])


def installed(monkeypatch: pytest.MonkeyPatch, *ranges: list[Action], seen: list[bytes] | None = None) -> None:
    def load_report(path: str) -> list[list[Action]]:
        if seen is not None:
            seen.append(Path(path).read_bytes())
        return list(ranges)

    monkeypatch.setitem(sys.modules, "ncu_report", SimpleNamespace(load_report=load_report))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are read in this process."""
    monkeypatch.setattr(report, "_asked", lambda file: answer(question(str(file))))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "r.ncu-rep"
    found.write_bytes(b"NVR\0 and the rest")
    return found


@pytest.mark.usefixtures("here")
def test_kernels_of_all_ranges_are_read_in_order(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    installed(monkeypatch, [Action(), Action(kind=3)], [Action()])
    found = read_counters(path)
    assert (len(found.kernels), found.dropped) == (2, {"not_a_kernel": 1})
    kernel = found.kernels[1]
    assert (kernel.name, kernel.grid, kernel.block, kernel.order) == ("void f<4>(int)", (2, 64, 1), (384, 1, 1), 1)
    assert (kernel.dur_ns, kernel.dram_bytes, kernel.gpu) == (8224, 36732, "NVIDIA H200")
    assert "secret" not in repr(found)


class Ruled(Action):
    """A kernel of a package that hands out results of rules, of which some have no message."""

    def rule_results_as_dicts(self) -> list[dict[str, Any]]:
        link = "See @url:the guide:https://docs.nvidia.com/x@, @source:/home/secret/a.py:7:line 7@ and\n@section:S:S@."
        return [
            {
                "rule_identifier": "CPIStall",
                "name": "",
                "rule_message": {"title": "Stalls", "message": link, "type": 2},
            },
            {"rule_identifier": "", "name": "Own", "rule_message": {"title": "", "message": "fine", "type": 1}},
            {"rule_identifier": "Silent", "name": "", "rule_message": None},
        ]


@pytest.mark.usefixtures("here")
def test_what_rules_say_is_kept_without_where_their_links_lead(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    installed(monkeypatch, [Ruled(), Action()])
    ruled, plain = read_counters(path).kernels
    assert ruled.rules == "OPT CPIStall: Stalls: See the guide, line 7 and S.\nINF Own: fine"
    assert plain.rules is None


@pytest.mark.usefixtures("here")
def test_a_packed_report_is_unpacked_for_the_package(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    seen: list[bytes] = []
    installed(monkeypatch, [Action()], seen=seen)
    packed = path.with_name("r.ncu-rep.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert len(read_counters(packed).kernels) == 1
    assert seen == [path.read_bytes()]


@pytest.mark.usefixtures("here")
def test_a_report_in_which_nothing_is_found_is_refused(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    installed(monkeypatch, [])
    with pytest.raises(InputError, match=r"r\.ncu-rep: has no kernels that can be read\n  hint: it may be damaged"):
        read_counters(path)


@pytest.mark.usefixtures("here")
def test_whatever_the_package_raises_is_one_line(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    def load_report(path: str) -> None:
        raise RuntimeError(f"cannot parse {path} of /home/secret")

    monkeypatch.setitem(sys.modules, "ncu_report", SimpleNamespace(load_report=load_report))
    with pytest.raises(InputError) as error:
        read_counters(path)
    assert "cannot be read by ncu-report (RuntimeError)" in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.usefixtures("here")
def test_without_the_package_the_ways_out_are_named(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)  # as if it were not installed
    with pytest.raises(InputError) as error:
        read_counters(path)
    assert "hint: pip install ncu-report, or print it: ncu --import FILE" in str(error.value)


def test_tables_do_not_need_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:
        assert name != "ncu_report"
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    table = tmp_path / "r.csv"
    table.write_text('"ID","Process ID","Kernel Name","Grid Size"\n"0","1","k","(1, 1, 1)"\n')
    assert read_counters(table).kernels[0].name == "k"


def test_garbage_after_the_magic_is_refused(path: Path) -> None:
    pytest.importorskip("ncu_report", reason="NVIDIA's package ncu-report is not installed")
    with pytest.raises(InputError, match="has no kernels that can be read"):
        read_counters(path)


@pytest.mark.parametrize(
    ("does", "says"),
    [
        ("os.abort()", "it was ended by SIGABRT"),
        ("os.kill(os.getpid(), 11)", "it was ended by SIGSEGV"),
        ("os._exit(7)", "it ended with 7"),
        ("time.sleep(99)", "it took too long"),
        ("os.write(int(os.readlink('/proc/self/fd/1') != '') and 3, b'x\\n')", "it answered with something else"),
        ("mmap.mmap(-1, 1 << 36)", "OSError"),
        ("print('Check failed'); return [[Action(), Action()]]", None),
    ],
)
def test_what_the_package_does_to_its_process_is_a_line(
    monkeypatch: pytest.MonkeyPatch, path: Path, tmp_path: Path, does: str, says: str | None
) -> None:
    """A package of the name stands in for NVIDIA's, in a child."""
    package = tmp_path / "package"
    package.mkdir()
    text = f"import mmap, os, time\nfrom tests.counters.test_binary import Action\ndef load_report(path):\n    {does}\n"
    (package / "ncu_report.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", f"{package}:{Path(__file__).parents[2]}")
    monkeypatch.setattr(report, "_LIMIT_S", 15.0)
    if says is None:
        assert len(read_counters(path).kernels) == 2
        return
    with pytest.raises(InputError) as error:
        read_counters(path)
    assert f"cannot be read by ncu-report ({says})" in str(error.value)
