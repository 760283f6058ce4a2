"""Labelled programs of benchmarks/programs: their fixes compute the same, and their labels are where they say."""

from __future__ import annotations

import gzip
import importlib
import json
import re
import tarfile
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def labelled(monkeypatch: pytest.MonkeyPatch) -> Any:
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("programs.labelled")


@pytest.fixture
def thirty(labelled: Any) -> Any:
    return labelled.known()["thirty"]


NAMES = [
    *("user_histories", "dense_experts", "heads_apart", "overlapping_tiles", "rolling_features", "averaged_weights"),
    *("query_pairs", "rounded_weights", "padded_texts", "mixture_density"),
    *("loss_of_each_part", "guarded_loss", "masked_words", "pageable_features", "longest_text", "anchors_made"),
    *("decode_until", "features_on_host", "evaluated_each", "codebook"),
    *("lstm_tagger", "gru_classifier", "gated_scan", "vocabulary_loss", "item_embeddings", "encoder_in_float32"),
    *("late_interaction", "relative_positions", "adam_one_by_one", "grown_cache"),
    *("equal_layers", "library_lstm", "biased_by_library", "well_trained", "copied_ahead"),
    *("served_encoder", "served_pictures", "served_ranker"),
    *("state_returned", "state_in_buffer", "errors_watched", "hidden_between", "cache_fixed", "given_back"),
    *("class_prototypes", "padded_clips", "many_heads", "noisy_gradients"),
    *("accuracy_each_part", "distinct_items", "shown_boxes", "scheduled_noise", "mask_from_host"),
    *("minimal_cell", "both_directions", "answered_words", "read_by_queries", "user_table"),
    *("wide_training", "windows_at_once"),
    *("beam_search", "clipped_each", "bank_of_rows", "trees", "chosen_by_experts", "packed_texts"),
    *("soft_suppression", "simulated_on_host", "metrics_each_step", "unpinned_loader", "words_in_python"),
    *("answers_to_host", "batches_by_length", "hard_examples", "spiking_layers", "taught_in_float32"),
    *("pictures_in_training", "looped_but_wide"),
    *("masked_spectrograms", "chamfer_each", "frames_encoded", "molecules_read", "paged_cache", "lion_each"),
    *("edges_dropped", "noise_extracted", "tree_searched", "activations_watched", "nucleus_sampled"),
    *("advantages", "weights_widened", "catalogue_scored", "attention_of_pairs", "cloud_classified"),
    *("mixed_pictures", "long_filters", "schedule_on_host", "bags_by_library"),
    *("speakers_permuted", "harmonics_added", "clients_averaged", "tracks_assigned", "hypotheses_kept"),
    *("processes_fitted", "phonemes_stretched", "particles_resampled", "forces_checked", "bases_decoded"),
    *("flow_integrated", "map_remembered", "clicks_ranked", "weather_rolled", "windows_of_volumes"),
    *("nibbles_unpacked", "views_contrasted", "rays_in_chunks", "candidates_reranked", "weights_by_task"),
    *(
        "adapters_apart",
        "pictures_rendered",
        "gradients_private",
        "features_crossed",
        "clipped_by_units",
        "keys_queued",
    ),
    *("rollouts_fitted", "boxes_matched", "centroids_moved", "drafts_checked", "timestamps_ruled", "areas_counted"),
    *("flow_refined", "chains_normalised", "decomposed_positions"),
    *("patches_hidden", "flips_averaged", "followed_over_lists", "experts_by_capacity", "blocks_searched"),
    *("requests_batched", "stops_matched", "speech_translated", "worlds_imagined", "outputs_streamed"),
    *("frames_stabilised", "speech_collapsed", "columns_binned", "tiles_augmented", "neighbours_sampled"),
    *("rivers_routed", "preferences_fitted", "images_guided", "triples_embedded", "rates_by_depth"),
    *("ranges_calibrated", "parts_accumulated", "images_unmasked", "beams_propagated", "passages_reranked"),
    *("depths_routed", "voxels_made", "echoes_fitted", "forgeries_judged", "answers_rewarded", "layers_streamed"),
    *("replays_drawn", "adapters_merged", "positions_filtered", "tasks_reconciled", "forests_walked", "trusts_read"),
    *("codes_decoded", "texts_by_slopes", "pictures_permuted", "towers_by_hand", "words_ahead", "options_priced"),
    *("surfaces_traced", "critics_penalised", "latents_denoised", "speech_contrasted", "sounds_encoded"),
    *("drafts_verified",),
    *("positions_evaluated", "slices_windowed", "rectangles_erased", "keypoints_matched", "demand_forecast"),
    *("relations_passed", "joints_located", "regions_pooled", "images_registered", "matrices_orthogonalised"),
    *("tasks_continued", "dynamics_by_ensemble", "masks_rebuilt", "states_retained", "choices_scored"),
    *("walks_embedded", "queries_normalised", "movements_tagged", "captions_paired", "scans_reconstructed"),
    *("plans_by_sampling", "replies_decoded", "streets_segmented", "voices_synthesised"),
    *("quakes_picked", "payments_screened", "actors_informed", "likelihoods_bounded", "forecasts_calibrated"),
    *("adversaries_found", "targets_followed", "qubits_rotated", "minima_flattened", "notes_predicted"),
    *("crops_classified", "genomes_scanned", "papers_propagated", "scenes_sampled", "photos_jittered"),
    *("crystals_relaxed", "lessons_accumulated", "filters_rounded", "captions_searched", "returns_distributed"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_fixed_program_computes_the_same(labelled: Any, name: str) -> None:
    program = labelled.by_name()[name]
    original = _computed(program)
    assert len(original) >= 2
    for mine, theirs in zip(original, _computed(program, fixed=True), strict=True):
        assert mine.shape == theirs.shape
        assert float((mine - theirs).abs().max()) <= 2e-3 * max(float(mine.abs().max()), 1e-3)
    other = _computed(program, seed=1)
    assert any(a.shape != b.shape or not a.allclose(b, rtol=1e-2) for a, b in zip(original, other, strict=True))


def test_there_are_thirty_in_three_families_each_with_one_main_cause(labelled: Any, thirty: Any) -> None:
    families = [program.family for program in thirty]
    assert [families.count(name) for name in ("loops", "waits", "models")] == [10, 10, 10]
    for program in thirty:
        assert sum(label.main for label in labelled.labels_of(program)) == 1, program.name
    assert [program.name for group in labelled.known().values() for program in group] == NAMES


def test_each_family_has_some_that_are_held_out(labelled: Any, thirty: Any) -> None:
    apart = labelled.held_out(thirty)
    held = [program.family for program in thirty if program.name in apart]
    assert sorted(held.count(name) for name in ("loops", "waits", "models")) == [3, 3, 4]
    assert labelled.held_out(thirty[::-1]) == apart


def test_there_are_near_misses_and_graphs_that_work_and_that_do_not(labelled: Any, thirty: Any) -> None:
    near = [
        label
        for group in labelled.known().values()
        for p in group
        for label in labelled.labels_of(p)
        if label.sort == "near"
    ]
    assert len(near) >= 15
    for trial in labelled.TRIALS:
        works = [not labelled.expected(program, trial) for program in thirty]
        assert works.count(True) >= 12
    assert sum(bool(labelled.expected(program, "capture")) for program in thirty) >= 12


def test_a_label_stands_in_the_table_and_its_lines_are_its_statement(labelled: Any) -> None:
    kinds = tomllib.loads((ROOT / "benchmarks/programs/labelled.toml").read_text("utf-8"))["kinds"]
    program = labelled.by_name()["lstm_tagger"]
    source = (ROOT / "benchmarks/programs/labelled_models.py").read_text("utf-8").splitlines()
    for each in labelled.by_name().values():
        assert {label.kind for label in labelled.labels_of(each)} <= set(kinds)
    loop = next(label for label in labelled.labels_of(program) if label.main)
    assert source[loop.lines.start - 1].strip().startswith("for at in range(length):")
    assert source[loop.lines.stop - 2].strip() == "said.append(hidden)"
    inner = next(label for label in labelled.labels_of(program) if label.kind == "input_projection_in_loop")
    assert len(inner.lines) == 1
    assert inner.lines.start in loop.lines


def test_a_decorated_function_begins_at_its_decorator(labelled: Any) -> None:
    own = next(label for label in labelled.labels_of(labelled.by_name()["lion_each"]) if label.main)
    before = _line("labelled_third.py", "@torch.no_grad()")
    assert own.within == before


def test_what_is_handed_to_map_is_called(labelled: Any) -> None:
    own = next(label for label in labelled.labels_of(labelled.by_name()["molecules_read"]) if label.main)
    assert "pooled" in own.calls


def test_what_a_loop_goes_over_may_be_modules(labelled: Any) -> None:
    modules, boxes = (
        next(label for label in labelled.labels_of(labelled.by_name()[name]) if label.main)
        for name in ("dynamics_by_ensemble", "regions_pooled")
    )
    assert {"member", "forward"} <= modules.calls
    assert "forward" not in boxes.calls  # a method is called, which takes one


def _finding(rule: str, *frames: tuple[int, str | None], file: str = "labelled_models.py") -> Any:
    """Return a finding at lines, innermost first: with a name where the line is that of a function's beginning."""
    source = [
        SimpleNamespace(file=file, line=line, function=name or "", begins=name is not None) for line, name in frames
    ]
    return SimpleNamespace(rule=rule, source=source)


def _line(file: str, text: str) -> int:
    """Return the one line of a file of programs that begins so."""
    lines = (ROOT / "benchmarks/programs" / file).read_text("utf-8").splitlines()
    (found,) = (number for number, line in enumerate(lines, 1) if line.strip().startswith(text))
    return found


def test_findings_are_counted_as_found_missed_and_invented(labelled: Any) -> None:
    program = labelled.by_name()["lstm_tagger"]
    kinds = tomllib.loads((ROOT / "benchmarks/programs/labelled.toml").read_text("utf-8"))["kinds"]
    at = next(label for label in labelled.labels_of(program) if label.main).lines.start
    recurrence = _finding("recurrence_unfused", (at, None))
    said = labelled.judged(
        [_finding("launch_gap"), recurrence, _finding("host_sync", (at, None))], program, False, kinds
    )
    assert said["found"] == {"recurrence_unfused"}
    assert said["wanted"] - said["found"] == {"input_projection_in_loop"}
    assert said["invented"] == [("host_sync", [at])]
    assert said["rank"] == 2
    elsewhere = labelled.judged([_finding("recurrence_unfused", (at - 3, None))], program, False, kinds)
    assert (elsewhere["found"], len(elsewhere["invented"])) == (set(), 1)
    fixed = labelled.judged([_finding("recurrence_unfused")], program, True, kinds)
    assert (fixed["wanted"], fixed["invented"]) == (set(), [("recurrence_unfused", [])])


def test_what_follows_from_causes_is_right_where_a_label_means_it_and_never_invented(labelled: Any) -> None:
    program = labelled.by_name()["towers_by_hand"]
    kinds = tomllib.loads(labelled.TABLE.read_text("utf-8"))["kinds"]
    at = next(label for label in labelled.labels_of(program) if label.main).lines.start
    for line, found in ((at, {"chain_unfused"}), (at - 3, set())):
        chain = _finding("memory_bound_chain", (line, None), file="labelled_seventh.py")
        said = labelled.judged([chain], program, False, kinds)
        assert (said["found"], said["invented"]) == (found, [])
    wait = _finding("host_sync", (at, None), file="labelled_seventh.py")
    assert labelled.judged([wait], program, False, kinds)["invented"] == [("host_sync", [at])]


def test_a_frame_of_a_function_that_begins_there_means_its_own_statements(labelled: Any) -> None:
    program = labelled.by_name()["lstm_tagger"]
    kinds = tomllib.loads((ROOT / "benchmarks/programs/labelled.toml").read_text("utf-8"))["kinds"]
    written, library = (_line("labelled_models.py", f"def {name}(") for name in ("written_out", "by_library"))
    own = labelled.judged([_finding("recurrence_unfused", (written, "written_out"))], program, False, kinds)
    assert (own["found"], own["invented"]) == ({"recurrence_unfused"}, [])
    other = labelled.judged([_finding("recurrence_unfused", (library, "by_library"))], program, False, kinds)
    assert (other["found"], other["invented"]) == (set(), [("recurrence_unfused", [library])])


def test_outer_frames_mean_what_calls_the_next_inner_function(labelled: Any) -> None:
    file, kinds = (
        "labelled_waits.py",
        tomllib.loads((ROOT / "benchmarks/programs/labelled.toml").read_text("utf-8"))["kinds"],
    )
    program = labelled.by_name()["features_on_host"]
    labels = {label.kind: label for label in labelled.labels_of(program) if label.sort == "cause"}
    step, features = labels["pageable_copy"].within, _line(file, "def features(")
    called = _finding("first_launch_late", (features, "features"), (step, "step"), file=file)
    assert labelled.matches(called, labels["step_begins_late"], program, kinds)
    inside = _finding("pageable_copy", (features, "features"), (step, "step"), file=file)
    assert not labelled.matches(inside, labels["pageable_copy"], program, kinds)
    decoding = labelled.by_name()["decode_until"]  # its loop calls `one` by the name of what wraps it
    loop = next(label for label in labelled.labels_of(decoding) if label.kind == "recurrence_unfused")
    one = _finding("python_loop", (_line(file, "def one("), "one"), (loop.within, "step"), file=file)
    assert labelled.matches(one, loop, decoding, kinds)


def test_an_archive_keeps_what_findings_depend_on(labelled: Any, tmp_path: Path) -> None:
    kept = importlib.import_module("programs.kept")
    call = {"ph": "X", "cat": "cuda_runtime", "ts": 3.125, "args": {"correlation": 7, "cbid": 211}}
    arrow = {"ph": "s", "cat": "ac2g", "id": 7, "ts": 3.125}
    (tmp_path / "out/one.fixed").mkdir(parents=True)
    (tmp_path / "out/one.fixed/capture.json").write_text("{}")
    (tmp_path / "out/served.json").write_text('{"one": 1}')
    content = json.dumps({"baseTimeNanoseconds": 5, "traceEvents": [call, arrow]}).encode()
    (tmp_path / "out/one.fixed/trace.json.gz").write_bytes(gzip.compress(content))
    kept.keep(tmp_path / "out", tmp_path / "all.tar.xz")
    with kept.opened(tmp_path / "all.tar.xz") as folder:
        assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*json*")) == [
            *("one.fixed/capture.json", "one.fixed/trace.json.gz", "served.json")
        ]
        whole = json.loads(gzip.decompress((folder / "one.fixed/trace.json.gz").read_bytes()))
    assert whole == {"baseTimeNanoseconds": 5, "traceEvents": [{**call, "args": {"correlation": 7}}]}
    with kept.opened(tmp_path / "out") as folder:
        assert folder == tmp_path / "out"


def test_sources_are_as_they_were_recorded(labelled: Any) -> None:
    """A recording names the lines where functions of its program began."""
    sources = {
        path.name: path.read_text("utf-8").splitlines() for path in labelled.KEPT.parents[2].glob("programs/*.py")
    }
    named = re.compile(r'"(?:[^"]*/)?(labelled_\w+\.py)\((\d+)\): (?!<)(\w+)"')
    seen: set[tuple[str, str, str]] = set()
    with tarfile.open(labelled.KEPT) as archive:
        for member in archive:
            if not member.name.endswith("/trace.json") or len(seen) >= 40:
                break
            content = archive.extractfile(member)
            assert content is not None
            seen |= set(named.findall(content.read().decode()))
    assert len(seen) >= 40
    # What a thread was in when the recording began is named by the line that ran.
    others = [each for each in seen if f"def {each[2]}(" not in sources[each[0]][int(each[1]) - 1]]
    assert len(others) <= 1, others


def _computed(program: Any, fixed: bool = False, seed: int = 0) -> list[Any]:
    """Return what three steps give, and what they leave behind: tensors and their gradients."""
    import torch

    with torch.random.fork_rng(), torch.set_grad_enabled(program.training):
        torch.manual_seed(seed)
        with torch.device("cpu"):
            built = program.make(fixed=fixed, dtype=torch.float32, **program.small)
        outputs = [built.step().detach().clone() for _ in range(3)]
        left = [each.detach() for each in built.tensors]
        left += [each.grad for each in built.tensors if each.grad is not None]
    return [each.to_dense().double() if each.is_sparse else each.double() for each in (*outputs, *left)]
