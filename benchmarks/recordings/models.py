"""Whole models with random weights: what record_models.py runs, one `Case` a line of CASES.

Sizes are of a few layers, so that a trace stays small, and wide enough that most cases keep an H200 busy; those whose
name says decode, tiny or small are bound by the host. Inference runs under no_grad; a training step is forward, loss,
backward, optimizer. `make(wrap)` gives the step; what torch.compile would be put around goes through `wrap`.

Needs torch; transformers and torchvision for the cases that come from there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from torch import Tensor, nn

from benchmarks.recordings.models_blocks import decoder, mixed, mixer, products, recommender, tiny_mlp, unet

DEVICE = "cuda"
B, H, S = torch.bfloat16, torch.float16, torch.float32

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
Step = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    name: str
    says: str
    make: Callable[[Wrap], Step]
    training: bool = False


# -- what a step is ----------------------------------------------------------------------------------------------------


def placed(model: nn.Module, dtype: torch.dtype, *, training: bool) -> nn.Module:
    return model.to(DEVICE, dtype).train(training)


def inference(
    build: Callable[[], tuple[nn.Module, Callable[..., Any], Iterable[Tensor]]], dtype: torch.dtype, wrap: Wrap
) -> Step:
    """A step that applies `call(model, *inputs)`."""
    model, call, inputs = build()
    model = placed(model, dtype, training=False)
    own = [one.to(DEVICE, dtype) if one.is_floating_point() else one.to(DEVICE) for one in inputs]
    run = wrap(lambda *given: call(model, *given))
    return lambda: run(*own)


def train(
    build: Callable[[], tuple[nn.Module, Callable[..., Any], Iterable[Tensor]]],
    dtype: torch.dtype,
    optimizer: Callable[..., torch.optim.Optimizer],
    autocast: torch.dtype | None,
    parts: int,
    keeps_gradients: bool,
    wrap: Wrap,
) -> Step:
    """A training step on the mean square of what `call` gives, or on the loss that it gives.

    parts: so many batches' gradients are summed. keeps_gradients: they are filled with zeros, not let go of.
    """
    model, call, inputs = build()
    model = placed(model, dtype, training=True)
    own = [one.to(DEVICE, dtype) if one.is_floating_point() else one.to(DEVICE) for one in inputs]
    updates = optimizer(model.parameters())

    def loss(*given: Tensor) -> Tensor:
        with torch.autocast(DEVICE, autocast, enabled=autocast is not None):
            out = call(model, *given)
        return out if out.dim() == 0 else out.float().pow(2).mean()

    run, update = wrap(loss), wrap(updates.step)

    def step() -> None:
        updates.zero_grad(set_to_none=not keeps_gradients)
        for _ in range(parts):
            run(*own).backward()
        update()

    return step


# -- transformers' own classes -----------------------------------------------------------------------------------------


def tokens(batch: int, length: int, vocabulary: int = 8192) -> Tensor:
    return torch.randint(0, vocabulary, (batch, length))


def from_config(config: str, model: str, attention: str | None = "sdpa", **settings: Any) -> nn.Module:
    import transformers

    made = getattr(transformers, config)(**settings)
    if attention:
        made._attn_implementation = attention
    return getattr(transformers, model)(made)


def language(
    config: str, model: str, shape: tuple[int, int] = (8, 512), attention: str = "sdpa", **settings: Any
) -> Any:
    """A decoder-only language model on one batch of token ids."""
    sizes = {"vocab_size": 8192, "use_cache": False, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2}
    made = from_config(config, model, attention, **{**sizes, **settings})
    return made, lambda m, ids: m(input_ids=ids).logits, [tokens(*shape)]


def next_token(build: Callable[[], Any]) -> Any:
    """The same model's loss: cross entropy of the next token."""
    model, call, inputs = build()

    def loss(m: nn.Module, ids: Tensor, *others: Tensor) -> Tensor:
        logits = call(m, ids, *others)
        return F.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())

    return model, loss, inputs


LLAMA = {
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
}
SMALL = {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
}
BERT = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 3,
    "num_attention_heads": 12,
    "vocab_size": 8192,
}
GPT2 = {"n_embd": 768, "n_layer": 3, "n_head": 12}

llama = partial(language, "LlamaConfig", "LlamaForCausalLM", **LLAMA)
gpt2 = partial(language, "GPT2Config", "GPT2LMHeadModel", **GPT2)


def encoder(
    config: str,
    model: str,
    shape: tuple[int, int] = (16, 384),
    attention: str = "sdpa",
    masked: bool = True,
    **settings: Any,
) -> Any:
    made = from_config(config, model, attention, **{**BERT, "pad_token_id": 0, **settings})
    inputs = [tokens(*shape), torch.ones(shape, dtype=torch.int64)]
    return made, lambda m, ids, mask=None: m(input_ids=ids, attention_mask=mask)[0], inputs[: 1 + masked]


def distilbert() -> Any:
    made = from_config(
        "DistilBertConfig", "DistilBertModel", dim=768, n_layers=3, n_heads=12, hidden_dim=3072, vocab_size=8192
    )
    return made, lambda m, ids: m(input_ids=ids)[0], [tokens(16, 384)]


def t5() -> Any:
    sizes = {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 12}
    made = from_config(
        "T5Config",
        "T5ForConditionalGeneration",
        "eager",
        vocab_size=8192,
        use_cache=False,
        feed_forward_proj="gated-gelu",
        decoder_start_token_id=0,
        **sizes,
    )
    return made, lambda m, ids, out: m(input_ids=ids, decoder_input_ids=out).logits, [tokens(8, 384), tokens(8, 128)]


def bart() -> Any:
    sizes = {"d_model": 768, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 8192, "use_cache": False}
    heads = {
        f"{part}_{what}": n
        for part in ("encoder", "decoder")
        for what, n in (("attention_heads", 12), ("ffn_dim", 3072))
    }
    made = from_config("BartConfig", "BartForConditionalGeneration", **sizes, **heads)
    return made, lambda m, ids, out: m(input_ids=ids, decoder_input_ids=out).logits, [tokens(8, 384), tokens(8, 128)]


def dinov2() -> Any:
    made = from_config("Dinov2Config", "Dinov2Model", hidden_size=768, num_hidden_layers=3, num_attention_heads=12)
    return made, lambda m, images: m(pixel_values=images)[0], [torch.randn(16, 3, 224, 224)]


def segformer() -> Any:
    made = from_config("SegformerConfig", "SegformerForSemanticSegmentation", None)
    return made, lambda m, images: m(pixel_values=images).logits, [torch.randn(8, 3, 512, 512)]


def beit() -> Any:
    made = from_config("BeitConfig", "BeitModel", num_hidden_layers=3, use_relative_position_bias=True)
    return made, lambda m, images: m(pixel_values=images)[0], [torch.randn(16, 3, 224, 224)]


def wav2vec2() -> Any:
    made = from_config("Wav2Vec2Config", "Wav2Vec2Model", num_hidden_layers=2)
    return made, lambda m, sound: m(input_values=sound)[0], [torch.randn(8, 80_000)]


def mobilevit() -> Any:
    made = from_config("MobileViTConfig", "MobileViTModel", None)
    return made, lambda m, images: m(pixel_values=images)[0], [torch.randn(32, 3, 256, 256)]


def vit(batch: int = 32) -> Any:
    made = from_config(
        "ViTConfig", "ViTModel", hidden_size=768, intermediate_size=3072, num_hidden_layers=3, num_attention_heads=12
    )
    return made, lambda m, images: m(pixel_values=images)[0], [torch.randn(batch, 3, 224, 224)]


def clip() -> Any:
    text = {
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "vocab_size": 8192,
    }
    vision = {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 2,
        "num_attention_heads": 12,
        "patch_size": 32,
    }
    made = from_config("CLIPConfig", "CLIPModel", text_config=text, vision_config=vision)
    call = lambda m, ids, images: m(input_ids=ids, pixel_values=images).logits_per_image  # noqa: E731
    return made, call, [tokens(64, 77), torch.randn(64, 3, 224, 224)]


def whisper_encoder() -> Any:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    made = WhisperEncoder(
        WhisperConfig(d_model=768, encoder_layers=2, encoder_attention_heads=12, encoder_ffn_dim=3072)
    )
    return made, lambda m, features: m(features)[0], [torch.randn(8, 80, 3000)]


def mamba() -> Any:
    made = from_config(
        "MambaConfig", "MambaForCausalLM", None, hidden_size=768, num_hidden_layers=1, vocab_size=8192, use_cache=False
    )
    return made, lambda m, ids: m(input_ids=ids).logits, [tokens(8, 48)]


# -- torchvision -------------------------------------------------------------------------------------------------------


def vision(name: str, batch: int = 32, size: int = 224, channels_last: bool = False) -> Any:
    import torchvision

    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = getattr(torchvision.models, name)(weights=None).to(memory_format=layout)
    return model, lambda m, images: m(images), [torch.randn(batch, 3, size, size).to(memory_format=layout)]


def classify(build: Callable[[], Any]) -> Any:
    model, call, (images,) = build()
    return (
        model,
        lambda m, x, labels: F.cross_entropy(call(m, x), labels),
        [images, torch.randint(0, 1000, images.shape[:1])],
    )


# -- the cases ---------------------------------------------------------------------------------------------------------


def forward(name: str, dtype: torch.dtype, build: Callable[[], Any], says: str) -> Case:
    return Case(name, f"{says}; inference, {str(dtype)[6:]}", partial(inference, build, dtype))


def stepped(
    name: str,
    dtype: torch.dtype,
    build: Callable[[], Any],
    optimizer: Callable[..., torch.optim.Optimizer],
    says: str,
    autocast: torch.dtype | None = None,
    parts: int = 1,
    keeps_gradients: bool = False,
) -> Case:
    mixed = f" under autocast to {str(autocast)[6:]}" if autocast else ""
    make = partial(train, build, dtype, optimizer, autocast, parts, keeps_gradients)
    return Case(name, f"{says}; training step, {str(dtype)[6:]}{mixed}", make, True)


adamw, sgd = torch.optim.AdamW, partial(torch.optim.SGD, lr=0.01, momentum=0.9)

CASES = (
    forward("llama", B, llama, "transformers' Llama, 2 layers of 2048, 8 x 512 tokens"),
    forward("llama_eager_attention", B, partial(llama, attention="eager"), "the same with attention spelled out"),
    forward("qwen2", H, partial(language, "Qwen2Config", "Qwen2ForCausalLM", **LLAMA), "Qwen2, 2 layers of 2048, 8 x 512"),
    forward("qwen3", B, partial(language, "Qwen3Config", "Qwen3ForCausalLM", **LLAMA), "Qwen3 (norms of q and k), 2 layers of 2048, 8 x 512"),
    forward("gemma", B, partial(language, "GemmaConfig", "GemmaForCausalLM", head_dim=128, **LLAMA), "Gemma, 2 layers of 2048, 8 x 512"),
    forward("gemma2", B, partial(language, "Gemma2Config", "Gemma2ForCausalLM", attention="eager", head_dim=64, **SMALL), "Gemma 2 (capped logits), 2 layers of 1024, 8 x 512"),
    forward("mistral", H, partial(language, "MistralConfig", "MistralForCausalLM", sliding_window=256, **SMALL), "Mistral, sliding window, 2 layers of 1024, 8 x 512"),
    forward("phi", H, partial(language, "PhiConfig", "PhiForCausalLM", **{**SMALL, "num_key_value_heads": 16}), "Phi, 2 layers of 1024, 8 x 512"),
    forward("phi3", B, partial(language, "Phi3Config", "Phi3ForCausalLM", **SMALL), "Phi-3, 2 layers of 1024, 8 x 512"),
    forward("gpt2", H, gpt2, "GPT-2, 3 layers of 768, 8 x 512"),
    forward("gpt2_odd_vocabulary", B, partial(gpt2, vocab_size=50257, shape=(4, 512)), "GPT-2, 3 layers of 768, 4 x 512, vocabulary of 50257"),
    forward("gpt_neox", B, partial(language, "GPTNeoXConfig", "GPTNeoXForCausalLM", hidden_size=1024, intermediate_size=4096, num_hidden_layers=2, num_attention_heads=16), "GPT-NeoX, 2 layers of 1024, 8 x 512"),
    forward("opt", S, partial(language, "OPTConfig", "OPTForCausalLM", hidden_size=768, ffn_dim=3072, num_hidden_layers=2, num_attention_heads=12), "OPT, 2 layers of 768, 8 x 512"),
    forward("bloom", B, partial(language, "BloomConfig", "BloomForCausalLM", attention="eager", hidden_size=1024, n_layer=2, n_head=16), "BLOOM (ALiBi), 2 layers of 1024, 8 x 512"),
    forward("bert", H, partial(encoder, "BertConfig", "BertModel"), "BERT, 3 layers of 768, 16 x 384"),
    forward("roberta", S, partial(encoder, "RobertaConfig", "RobertaModel", masked=False), "RoBERTa, 3 layers of 768, 16 x 384"),
    forward("electra_eager_attention", B, partial(encoder, "ElectraConfig", "ElectraModel", attention="eager"), "ELECTRA, attention spelled out, 3 layers of 768, 16 x 384"),
    forward("distilbert", H, distilbert, "DistilBERT, 3 layers of 768, 16 x 384"),
    forward("t5", B, t5, "T5 encoder and decoder, 2 + 2 layers of 768, 8 x 384 to 8 x 128"),
    forward("vit", B, vit, "ViT, 3 layers of 768, 32 images"),
    forward("clip", H, clip, "CLIP, both towers of 2 layers, 64 pairs"),
    forward("whisper_encoder", H, whisper_encoder, "Whisper's encoder, 2 layers of 768, 8 x 30 s"),
    forward("mamba", S, mamba, "Mamba without its own kernels, 1 layer of 768, 8 x 48"),
    forward("resnet50", H, partial(vision, "resnet50"), "ResNet-50, 32 images"),
    forward("resnet50_channels_last", H, partial(vision, "resnet50", channels_last=True), "ResNet-50, 32 images, channels last"),
    forward("convnext_tiny", B, partial(vision, "convnext_tiny"), "ConvNeXt tiny, 32 images"),
    forward("swin_t", H, partial(vision, "swin_t"), "Swin tiny, 32 images"),
    forward("efficientnet_b0", S, partial(vision, "efficientnet_b0"), "EfficientNet B0, 32 images"),
    forward("mobilenet_v3", S, partial(vision, "mobilenet_v3_large"), "MobileNet V3 large, 32 images"),
    forward("mixer", B, mixer, "MLP-Mixer, 3 blocks of 196 x 512, batch 64"),
    forward("recommender", S, recommender, "16 embedding bags and pairwise products, batch 8192"),
    forward("unet", H, unet, "diffusion U-Net of 3 blocks, 256 channels, 4 latents of 32 x 32"),
    forward("decoder", B, decoder, "decoder spelled out, 2 layers of 2048, 8 x 512"),
    forward("decode_1", B, partial(decoder, 1, 1, 256, 4, 1024), "a token for batch 1 with 256 cached, 4 layers of 1024"),
    forward("decode_4", H, partial(decoder, 4, 1, 256, 4, 1024), "a token for batch 4 with 256 cached, 4 layers of 1024"),
    forward("bert_small_batch", H, partial(encoder, "BertConfig", "BertModel", shape=(1, 64), masked=False), "BERT, 3 layers of 768, 1 x 64"),
    forward("tiny_mlp", S, tiny_mlp, "eight layers of 128 with norm and GELU, batch 64"),
    stepped("llama_train", B, lambda: next_token(partial(llama, shape=(4, 512))), adamw, "Llama, 2 layers of 2048, 4 x 512, AdamW"),
    stepped("gpt2_train", S, lambda: next_token(gpt2), partial(adamw, fused=True), "GPT-2, 3 layers of 768, 8 x 512, AdamW fused", B),
    stepped("bert_train", S, partial(encoder, "BertConfig", "BertModel", shape=(8, 384)), partial(adamw, foreach=True), "BERT with dropout, 3 layers of 768, 8 x 384, AdamW foreach"),
    stepped("resnet50_train", S, lambda: classify(partial(vision, "resnet50")), sgd, "ResNet-50, 32 images, SGD", H),
    stepped("vit_train", B, partial(vit, 16), partial(adamw, foreach=False), "ViT, 3 layers of 768, 16 images, AdamW a parameter at a time"),
    stepped("mixer_train", B, mixer, partial(adamw, fused=True), "MLP-Mixer, 3 blocks, batch 64, AdamW fused"),
    stepped("decoder_train", B, lambda: next_token(partial(decoder, 4)), partial(adamw, foreach=True), "decoder spelled out, 2 layers of 2048, 4 x 512, AdamW foreach"),
    stepped("tiny_mlp_train", S, tiny_mlp, sgd, "eight layers of 128 with norm and GELU, batch 64, SGD"),
)  # fmt: skip

# Written when everything that is predicted stood: `prediction.py record -o DIR --set fresh` records these, into a
# folder of their own, and their first score is the one that counts.
FRESH = (
    forward("olmo2", B, partial(language, "Olmo2Config", "Olmo2ForCausalLM", **SMALL), "OLMo 2 (norms behind blocks), 2 layers of 1024, 8 x 512"),
    forward("stablelm", H, partial(language, "StableLmConfig", "StableLmForCausalLM", **SMALL), "StableLM (layer norms, a quarter rotated), 2 layers of 1024, 8 x 512"),
    forward("falcon", B, partial(language, "FalconConfig", "FalconForCausalLM", hidden_size=1024, num_hidden_layers=2, num_attention_heads=16), "Falcon (one head of keys, parallel blocks), 2 layers of 1024, 8 x 512"),
    forward("cohere", B, partial(language, "CohereConfig", "CohereForCausalLM", **SMALL), "Cohere (parallel blocks, scaled logits), 2 layers of 1024, 8 x 512"),
    forward("gptj", H, partial(language, "GPTJConfig", "GPTJForCausalLM", attention="eager", n_embd=1024, n_layer=2, n_head=16, rotary_dim=32), "GPT-J (pairs rotated, attention spelled out), 2 layers of 1024, 8 x 512"),
    forward("starcoder2", B, partial(language, "Starcoder2Config", "Starcoder2ForCausalLM", **SMALL), "StarCoder 2, 2 layers of 1024, 8 x 512"),
    forward("bart", H, bart, "BART, 2 + 2 layers of 768, 8 x 384 to 8 x 128"),
    forward("albert", S, partial(encoder, "AlbertConfig", "AlbertModel", num_attention_heads=12, embedding_size=128), "ALBERT (one layer three times), 3 layers of 768, 16 x 384"),
    forward("deberta", H, partial(encoder, "DebertaV2Config", "DebertaV2Model", attention=None, shape=(4, 256), position_buckets=64, relative_attention=True, pos_att_type=["p2c", "c2p"]), "DeBERTa V2 (places and contents apart), 3 layers of 768, 4 x 256"),
    forward("dinov2", B, dinov2, "DINOv2 (scaled layers), 3 layers of 768, 16 images"),
    forward("segformer", H, segformer, "SegFormer B0, 8 images of 512"),
    forward("densenet121", H, partial(vision, "densenet121"), "DenseNet-121, 32 images"),
    forward("regnet_y", S, partial(vision, "regnet_y_400mf"), "RegNet Y 400MF (squeeze and excitation), 32 images"),
    stepped("olmo2_train", B, lambda: next_token(partial(language, "Olmo2Config", "Olmo2ForCausalLM", shape=(4, 512), **SMALL)), partial(adamw, fused=True), "OLMo 2, 2 layers of 1024, 4 x 512, AdamW fused"),
    stepped("shufflenet_train", S, lambda: classify(partial(vision, "shufflenet_v2_x1_0")), sgd, "ShuffleNet V2, 32 images, SGD"),
    stepped("albert_train", S, partial(encoder, "AlbertConfig", "AlbertModel", shape=(8, 256), num_attention_heads=12, embedding_size=128), adamw, "ALBERT with dropout, 3 layers of 768, 8 x 256, AdamW", H),
)  # fmt: skip

# Written when the kernels, the proof and the timing stood: what the verifier makes of models that nobody has seen.
UNSEEN = (
    forward("granite", B, partial(language, "GraniteConfig", "GraniteForCausalLM", **SMALL), "Granite (scaled residuals), 2 layers of 1024, 8 x 512"),
    forward("mixtral", B, partial(language, "MixtralConfig", "MixtralForCausalLM", num_local_experts=4, **SMALL), "Mixtral (4 experts), 2 layers of 1024, 8 x 512"),
    forward("wav2vec2", H, wav2vec2, "wav2vec 2.0, 2 layers of 768, 8 x 5 s"),
    forward("beit", B, beit, "BEiT (relative places), 3 layers of 768, 16 images"),
    forward("mobilevit", H, mobilevit, "MobileViT, 32 images of 256"),
    forward("swin_v2_t", H, partial(vision, "swin_v2_t", size=256), "Swin V2 tiny, 32 images of 256"),
    forward("maxvit_t", B, partial(vision, "maxvit_t", 16), "MaxViT tiny, 16 images"),
    forward("vgg16_bn", S, partial(vision, "vgg16_bn"), "VGG 16 with batch norms, 32 images"),
    stepped("gemma2_train", B, lambda: next_token(partial(language, "Gemma2Config", "Gemma2ForCausalLM", shape=(4, 512), attention="eager", head_dim=64, **SMALL)), adamw, "Gemma 2, 2 layers of 1024, 4 x 512, AdamW"),
    stepped("t5_train", S, t5, partial(adamw, foreach=True), "T5 with dropout, 2 + 2 layers of 768, AdamW foreach", B),
    stepped("bart_train", S, bart, adamw, "BART with dropout, 2 + 2 layers of 768, AdamW", H),
    stepped("convnext_train", S, lambda: classify(partial(vision, "convnext_tiny", 16)), adamw, "ConvNeXt tiny, 16 images, AdamW", B),
    stepped("swin_train", S, lambda: classify(partial(vision, "swin_t", 16)), partial(adamw, fused=True), "Swin tiny, 16 images, AdamW fused", H),
    stepped("mobilenet_v3_train", S, lambda: classify(partial(vision, "mobilenet_v3_large", 32)), sgd, "MobileNet V3 large, 32 images, SGD"),
    stepped("unet_train", S, unet, partial(adamw, foreach=True), "diffusion U-Net of 3 blocks, 256 channels, AdamW foreach", H),
)  # fmt: skip

# What shapes alone do not tell: gradients that are summed over several batches, products of two tensors of one shape.
ALIKE = (
    stepped("gpt2_accumulate", S, lambda: next_token(partial(gpt2, shape=(2, 512))), partial(adamw, fused=True), "GPT-2, 3 layers of 768, four times 2 x 512, AdamW fused", parts=4),
    stepped("gpt2_eager_accumulate", S, lambda: next_token(partial(gpt2, shape=(2, 512), attention="eager")), adamw, "GPT-2 with attention spelled out, three times 2 x 512, AdamW", B, parts=3),
    stepped("llama_accumulate", B, lambda: next_token(partial(llama, shape=(2, 512))), adamw, "Llama, 2 layers of 2048, three times 2 x 512, AdamW", parts=3),
    stepped("bert_accumulate", S, partial(encoder, "BertConfig", "BertModel", shape=(4, 384)), partial(adamw, foreach=False), "BERT with dropout, twice 4 x 384, AdamW a parameter at a time", parts=2),
    stepped("resnet18_accumulate", S, lambda: classify(partial(vision, "resnet18", 16)), sgd, "ResNet-18, three times 16 images, SGD", parts=3),
    stepped("mixer_zeroed", S, mixer, partial(adamw, foreach=True), "MLP-Mixer, gradients filled with zeros, AdamW foreach", keeps_gradients=True),
    stepped("llama_zeroed_accumulate", B, lambda: next_token(partial(language, "LlamaConfig", "LlamaForCausalLM", shape=(2, 512), **SMALL)), adamw, "Llama, 2 layers of 1024, twice 2 x 512, gradients filled with zeros, AdamW", parts=2, keeps_gradients=True),
    stepped("products_train", S, products, adamw, "products of two tensors of one shape, two blocks of 512, AdamW"),
    stepped("products_accumulate", B, products, sgd, "the same in bfloat16, three batches, SGD", parts=3),
    stepped("mixed_accumulate", S, mixed, partial(adamw, foreach=True), "convolutions, products, a norm of our own, twice 8 images of 16, AdamW foreach", parts=2),
    stepped("mixed_zeroed", S, mixed, sgd, "the same, gradients filled with zeros, SGD", parts=2, keeps_gradients=True),
    forward("products", S, products, "products of two tensors of one shape, two blocks of 512"),
)  # fmt: skip
