"""Small models with random weights, a `Model` a line of MODELS: what stand_in.py records.

Transformers by their configuration (`TRANSFORMERS`; one or two layers, inference), each for what others have not; and
steps of plain torch (stand_in_steps.py). transformers is imported where one of its models is built.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.recordings.stand_in_steps import INFERENCE, TRAINING

B, H, S = torch.bfloat16, torch.float16, torch.float32
VOCABULARY = 4096

Step = Callable[[], Any]
Inputs = Callable[[torch.dtype], Mapping[str, Any]]


@dataclass(frozen=True)
class Model:
    name: str
    make: Callable[[], Step]
    training: bool = False


@dataclass(frozen=True)
class Transformer:
    kind: str  # as its configuration is called
    dtype: torch.dtype
    inputs: Inputs
    config: Mapping[str, Any]
    attention: str | None = None  # None: the only one there is
    name: str = ""  # where it is not the kind
    head: str = "AutoModel"
    decodes: bool = False  # a step gives one more token


# -- what they are given -----------------------------------------------------------------------------------------------


def tokens(length: int = 128) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (2, length))


def text(_: torch.dtype, length: int = 128) -> Mapping[str, Any]:
    return {"input_ids": tokens(length), "use_cache": False}


def padded(_: torch.dtype) -> Mapping[str, Any]:
    """Two texts, the second half as long."""
    ids = tokens()
    mask = torch.ones_like(ids)
    mask[1, 64:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def translated(dtype: torch.dtype) -> Mapping[str, Any]:
    return {**padded(dtype), "decoder_input_ids": tokens(32), "use_cache": False}


def image(dtype: torch.dtype, size: int = 224) -> Mapping[str, Any]:
    return {"pixel_values": torch.randn(2, 3, size, size, dtype=dtype)}


def captioned(dtype: torch.dtype) -> Mapping[str, Any]:
    return {**image(dtype), "input_ids": tokens(16)}


def wave(dtype: torch.dtype) -> Mapping[str, Any]:
    return {"input_values": torch.randn(2, 16000, dtype=dtype)}


def spectrum(dtype: torch.dtype) -> Mapping[str, Any]:
    return {"input_features": torch.randn(2, 80, 800, dtype=dtype), "decoder_input_ids": tokens(32)}


def series(dtype: torch.dtype) -> Mapping[str, Any]:
    return {"past_values": torch.randn(8, 512, 7, dtype=dtype)}


# -- how large they are ------------------------------------------------------------------------------------------------

IDS = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
PLAIN = {
    "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 1, "num_attention_heads": 8,
    "max_position_embeddings": 512, **IDS,
}  # fmt: skip
GROUPED = {**PLAIN, "num_key_value_heads": 4}
WIDE = {**GROUPED, "head_dim": 64}
GPT = {"n_embd": 512, "n_layer": 1, "n_head": 8, **IDS}
MIXTURE = {"num_local_experts": 4, "num_experts_per_tok": 2}
LATENT = {
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "kv_lora_rank": 128,
    "q_lora_rank": 128, "qk_rope_head_dim": 32, "v_head_dim": 64, "qk_nope_head_dim": 32, "first_k_dense_replace": 0,
    "n_group": 2, "topk_group": 1, "num_key_value_heads": 8,
}  # fmt: skip
T5 = {
    "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 8,
    "vocab_size": VOCABULARY, "decoder_start_token_id": 0,
}  # fmt: skip
BART = {
    "d_model": 512, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 8,
    "decoder_attention_heads": 8, "encoder_ffn_dim": 1024, "decoder_ffn_dim": 1024, "max_position_embeddings": 512,
    **IDS,
}  # fmt: skip
WHISPER = {**BART, "max_source_positions": 400}
VIT = {"hidden_size": 384, "num_hidden_layers": 1, "num_attention_heads": 6, "intermediate_size": 768}
SWIN = {"depths": [2, 1], "num_heads": [3, 6], "embed_dim": 96}
STAGES = {"depths": [1, 1, 1, 1]}
TOWER = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 1, "num_attention_heads": 4}
TOWERS = {
    "text_config": {**TOWER, "vocab_size": VOCABULARY},
    "vision_config": {**TOWER, "image_size": 224, "patch_size": 16},
}
WAVE = {**TOWER, "vocab_size": 32}
BETWEEN = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 64}
PATCHES = {
    "num_input_channels": 7, "context_length": 512, "patch_length": 16, "patch_stride": 8, "d_model": 256,
    "num_hidden_layers": 1, "num_attention_heads": 4, "ffn_dim": 512, "prediction_length": 96,
}  # fmt: skip

decoder = partial(Transformer, inputs=text, head="AutoModelForCausalLM")

TRANSFORMERS = (
    decoder("llama", B, config=GROUPED, attention="eager"),
    decoder("llama", B, config=GROUPED, attention="sdpa", name="llama_decode", decodes=True),
    decoder("mistral", H, config=GROUPED | {"sliding_window": 64}, attention="eager"),
    decoder("qwen3", B, config=WIDE, attention="eager"),
    decoder("gemma2", B, config=WIDE | {"sliding_window": 64}, attention="eager"),
    decoder("phi3", B, config=GROUPED, attention="sdpa"),
    decoder("gpt_neox", H, config=PLAIN, attention="eager"),
    decoder("gpt2", S, config=GPT, attention="eager"),
    decoder("opt", H, config=PLAIN | {"ffn_dim": 1024, "word_embed_proj_dim": 512}, attention="eager"),
    decoder("bloom", B, config={"hidden_size": 512, "n_layer": 1, "n_head": 8, **IDS}),
    decoder("falcon", B, config=PLAIN | {"alibi": True}, attention="eager"),
    decoder("cohere", B, config=GROUPED, attention="eager"),
    decoder("olmo2", B, config=GROUPED, attention="eager"),
    decoder("mixtral", B, config=GROUPED | MIXTURE, attention="sdpa"),
    decoder("deepseek_v3", B, config=PLAIN | LATENT, attention="eager"),
    decoder("gpt_oss", B, config=WIDE | MIXTURE | {"sliding_window": 64}, attention="eager"),
    decoder(
        "mamba", S, inputs=partial(text, length=16),
        config={"hidden_size": 256, "num_hidden_layers": 1, "state_size": 16, **IDS},
    ),
    Transformer("bert", H, padded, PLAIN, "eager"),
    Transformer("roberta", S, padded, PLAIN, "sdpa"),
    Transformer("deberta-v2", H, padded, PLAIN | BETWEEN),
    Transformer("modernbert", B, padded, PLAIN | {"num_hidden_layers": 2, "local_attention": 32}, "sdpa"),
    Transformer("esm", H, padded, PLAIN | {"position_embedding_type": "rotary", "mask_token_id": 5}, "eager"),
    Transformer("t5", B, translated, T5),
    Transformer("bart", H, translated, BART, "eager"),
    Transformer("vit", H, image, VIT, "sdpa"),
    Transformer("beit", S, image, VIT | {"use_relative_position_bias": True}, "eager"),
    Transformer("swin", H, image, SWIN),
    Transformer("convnext", S, image, STAGES),
    Transformer("segformer", S, image, STAGES | {"hidden_sizes": [32, 64, 160, 256]}),
    Transformer("clip", H, captioned, TOWERS, "eager"),
    Transformer("wav2vec2", S, wave, WAVE, "eager"),
    Transformer("whisper", H, spectrum, WHISPER, "eager"),
    Transformer("patchtst", S, series, PATCHES),
)  # fmt: skip


# -- steps -------------------------------------------------------------------------------------------------------------


def step_of(what: Transformer) -> Step:
    """Builds the model; a step is its forward pass, where it decodes of one token and what was kept of those before."""
    import transformers

    transformers.logging.set_verbosity_error()
    config = transformers.AutoConfig.for_model(what.kind, **what.config)
    chosen = {"attn_implementation": what.attention} if what.attention else {}
    model = getattr(transformers, what.head).from_config(config, **chosen).to(what.dtype).eval()
    given = what.inputs(what.dtype)
    if not what.decodes:
        return lambda: model(**given)
    cache = model(given["input_ids"], use_cache=True).past_key_values
    return lambda: model(given["input_ids"][:, :1], use_cache=True, past_key_values=cache)


MODELS = (
    *(Model(what.name or what.kind, partial(step_of, what)) for what in TRANSFORMERS),
    *(Model(make.__name__, make, training=True) for make in TRAINING),
    *(Model(make.__name__, make) for make in INFERENCE),
)
