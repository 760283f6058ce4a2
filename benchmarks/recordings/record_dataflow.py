"""Record what dataflow is scored on where allocations were recorded too.

    python -m benchmarks record_dataflow OUT [CASE...]
    python -m benchmarks record_dataflow OUT CASE... --keep fixtures/memory     of recordings that are there, what is kept

Per case, in OUT/CASE what tracemine.capture writes with `memory=True`: a trace with `[memory]` events, and the
execution trace of the same two steps. Cases are those of models.py that AGAIN names, which are recorded without
allocations too, and more training steps, which no rule was made with. Needs what record_models.py needs.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import sys
import time
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.recordings.models import (
    CASES,
    SMALL,
    B,
    H,
    S,
    adamw,
    classify,
    distilbert,
    encoder,
    language,
    mixer,
    next_token,
    sgd,
    stepped,
    t5,
    vision,
    whisper_encoder,
)
from benchmarks.recordings.record_models import RECORDED, unchanged, warmed

sys.path.insert(0, str(Path(__file__).parents[2] / "fixtures"))

from record import KEPT_HEADER, scrub, write_gz

from tracemine.recording import capture

AGAIN = ("tiny_mlp_train", "llama_train", "gpt2_train", "vit_train", "bert", "decoder")
MORE = (
    stepped("gemma2_train", B, lambda: next_token(partial(language, "Gemma2Config", "Gemma2ForCausalLM", attention="eager", head_dim=64, **SMALL)), adamw, "Gemma 2, 2 layers of 1024, AdamW"),
    stepped("opt_train", S, lambda: next_token(partial(language, "OPTConfig", "OPTForCausalLM", hidden_size=768, ffn_dim=3072, num_hidden_layers=2, num_attention_heads=12)), partial(adamw, fused=True), "OPT, 2 layers of 768, AdamW fused", H),
    stepped("distilbert_train", H, distilbert, sgd, "DistilBERT, 3 layers of 768, SGD"),
    stepped("convnext_train", S, lambda: classify(partial(vision, "convnext_tiny", 8)), partial(adamw, foreach=True), "ConvNeXt tiny, 8 images, AdamW foreach", B),
    stepped("whisper_train", B, whisper_encoder, partial(adamw, fused=True), "Whisper's encoder, AdamW fused"),
    stepped("electra_train", B, partial(encoder, "ElectraConfig", "ElectraModel", attention="eager"), sgd, "ELECTRA with attention spelled out, SGD"),
    stepped("t5_train", B, t5, partial(adamw, fused=True), "T5, 2 + 2 layers, AdamW fused"),
    stepped("mobilenet_train", S, lambda: classify(partial(vision, "mobilenet_v3_large", 16)), sgd, "MobileNet V3 large, 16 images, SGD"),
    stepped("mixer_wide_train", S, mixer, partial(adamw, foreach=False), "MLP-Mixer, 3 blocks, AdamW a parameter at a time", B),
)  # fmt: skip


def keep(capture_folder: Path, into: Path) -> None:
    """Write what is kept of a recording: nothing that names a host, a user or a path, and no Python frames."""
    for name in ("trace.json.gz", "et.json.gz"):
        document = json.loads(gzip.decompress((capture_folder / name).read_bytes()), strict=False)
        if "traceEvents" in document:
            events = [event for event in document["traceEvents"] if event.get("cat") != "python_function"]
            document = {key: value for key, value in document.items() if key in KEPT_HEADER} | {"traceEvents": events}
        write_gz(into / name, scrub(document))


def main() -> None:
    """Record the cases that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", help="cases (all of them)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="record nothing: write fixtures of what is there")
    chosen = parser.parse_args()
    if chosen.keep:
        for name in chosen.names:
            keep(chosen.out / name, chosen.keep / name)
        return
    for case in (*MORE, *(case for case in CASES if case.name in AGAIN)):
        if chosen.names and case.name not in chosen.names:
            continue
        begin = time.perf_counter()
        torch.manual_seed(0)
        try:
            with torch.set_grad_enabled(case.training):
                step = warmed(case.make(unchanged), 2)
                with capture(chosen.out / case.name, steps=RECORDED, warmup=1, timed=1, memory=True) as recording:
                    for _ in recording.steps():
                        step()
        except Exception as error:
            print(f"{case.name} failed: {type(error).__name__}: {error}".split("\n")[0], flush=True)
        print(f"{case.name} took {time.perf_counter() - begin:.1f} s", flush=True)
        step = None
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
