"""Which calibration a trace's fused times are read off: the most specific one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tracemine.devices import find_device
from tracemine.errors import InputError
from tracemine.perfmodel import GPU, Calibration, calibration_of, chosen, data_folder, of_this_user, read_measured

H200 = calibration_of("NVIDIA H200 SXM")
TRACE_GPU = GPU("NVIDIA H200", 132, find_device("NVIDIA H200"))


def written(folder: Path, name: str, **more: object) -> Path:
    assert isinstance(H200, Calibration)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(msgspec.structs.replace(H200, **more).to_json())
    return path


def test_the_data_folder_is_where_xdg_says_and_a_relative_one_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/srv/data")
    assert data_folder() == Path("/srv/data/tracemine/calibration")
    monkeypatch.setenv("HOME", "/home/me")
    for nowhere in ("", "data"):
        monkeypatch.setenv("XDG_DATA_HOME", nowhere)
        assert data_folder() == Path("/home/me/.local/share/tracemine/calibration")


def test_of_the_users_own_the_one_of_the_same_name_counts_before_one_of_the_same_kind(tmp_path: Path) -> None:
    written(tmp_path, "a.json", gpu="NVIDIA H200 SXM5")
    same = written(tmp_path, "b.json")
    written(tmp_path, "c.json", gpu="NVIDIA A100-SXM4-80GB", sm_count=108)
    own, notes = of_this_user(tmp_path)
    assert (len(own), notes) == (3, ())
    assert chosen(TRACE_GPU, own).path == str(same)
    assert chosen(TRACE_GPU, own[:1]).path == own[0].path
    assert chosen(TRACE_GPU, own[2:]).path is None


def test_a_named_file_counts_before_the_users_own_and_for_a_gpu_that_is_not_known(tmp_path: Path) -> None:
    own, _ = of_this_user(written(tmp_path / "own", "b.json").parent)
    named = read_measured(written(tmp_path, "named.json"))
    assert chosen(TRACE_GPU, (*own, named)).path == named.path
    assert chosen(GPU(None), own).curves is None
    assert chosen(GPU(None), (named, *own)).path == named.path


def test_a_named_file_of_another_gpu_is_not_used_and_that_is_said(tmp_path: Path) -> None:
    named = read_measured(written(tmp_path, "a100.json", gpu="NVIDIA A100-SXM4-80GB", sm_count=108))
    found = chosen(TRACE_GPU, [named])
    assert found.path is None
    assert found.curves is not None
    assert found.curves.calibration.gpu == "NVIDIA H200"
    assert found.notes == (
        f"{named.path} was measured on NVIDIA A100-SXM4-80GB and not used: this trace is of NVIDIA H200.",
    )


def test_a_slice_of_a_gpu_is_not_estimated_with_the_whole_ones_file(tmp_path: Path) -> None:
    own, _ = of_this_user(written(tmp_path, "whole.json").parent)
    part = GPU("NVIDIA H200", 16, find_device("NVIDIA H200", sm_count=16))
    assert chosen(part, own).curves is None
    own, _ = of_this_user(written(tmp_path, "part.json", sm_count=16).parent)
    assert chosen(part, own).path == str(tmp_path / "part.json")


def test_what_is_no_calibration_in_the_users_folder_is_noted_and_the_others_are_used(tmp_path: Path) -> None:
    written(tmp_path, "good.json")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "folder.json").mkdir()
    own, notes = of_this_user(tmp_path)
    assert [one.path for one in own] == [str(tmp_path / "good.json")]
    assert len(notes) == 2
    assert all(note.startswith("A calibration was not used: ") and "\n" not in note for note in notes)
    assert of_this_user(tmp_path / "nowhere") == ((), ())


def test_a_file_without_a_pattern_that_is_needed_is_refused_with_its_path(tmp_path: Path) -> None:
    assert H200 is not None
    path = written(tmp_path, "few.json", points=tuple(p for p in H200.points if p.pattern != "copy"))
    with pytest.raises(InputError, match=r"few\.json: the calibration of NVIDIA H200 lacks copy"):
        read_measured(path)
