"""Whole models with random weights: what record_models.py runs, one `Case` a line of CASES.

Sizes are of a few layers, so that a trace stays small, and wide enough that most cases keep an H200 busy; those whose
name says decode, tiny or small are bound by the host. Inference runs under no_grad; a training step is forward, loss,
backward, optimizer. `make(wrap)` gives the step; what torch.compile would be put around goes through `wrap`.

Needs torch; transformers and torchvision for the cases that come from there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
    wrap: Wrap,
) -> Step:
    """A training step on the mean square of what `call` gives, or on the loss that it gives."""
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
        updates.zero_grad(set_to_none=True)
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


# -- our own blocks ----------------------------------------------------------------------------------------------------


class MixerBlock(nn.Module):
    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.tokens = nn.Sequential(nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.tokens(self.norms[0](x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norms[1](x))


def mixer(batch: int = 64, width: int = 512, depth: int = 3) -> Any:
    model = nn.Sequential(*(MixerBlock(196, width) for _ in range(depth)))
    return model, lambda m, x: m(x), [torch.randn(batch, 196, width)]


class Recommender(nn.Module):
    """Embedding bags, a bottom tower, dot products of all pairs, a top tower: the shape of DLRM."""

    def __init__(self, tables: int = 16, rows: int = 20000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + width, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 1)
        )
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1), persistent=False)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        low = self.bottom(dense)
        rows = torch.stack([low, *(table(ids[:, k]) for k, table in enumerate(self.tables))], 1)
        products = torch.bmm(rows, rows.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return torch.sigmoid(self.top(torch.cat((low, products), 1)))


def recommender(batch: int = 8192) -> Any:
    return (
        Recommender(),
        lambda m, dense, ids: m(dense, ids),
        [torch.rand(batch, 13), torch.randint(0, 20000, (batch, 16, 4))],
    )


class ResidualBlock(nn.Module):
    """A block of a diffusion U-Net: group norm, SiLU, convolution, the time step's scale and shift, attention."""

    def __init__(self, channels: int, time: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.time = nn.Linear(time, 2 * channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.time(F.silu(time))[:, :, None, None].chunk(2, 1)
        inner = self.convs[0](F.silu(self.norms[0](x)))
        x = x + self.convs[1](F.silu(self.norms[1](inner) * (1 + scale) + shift))
        batch, channels, height, width = x.shape
        q, k, v = self.qkv(self.norms[2](x)).view(batch, 3, 8, channels // 8, height * width).transpose(3, 4).unbind(1)
        seen = F.scaled_dot_product_attention(q, k, v).transpose(2, 3).reshape(x.shape)
        return x + self.out(seen)


class UNet(nn.Module):
    def __init__(self, channels: int = 256) -> None:
        super().__init__()
        self.into, self.down = (
            nn.Conv2d(4, channels, 3, padding=1),
            nn.Conv2d(channels, channels, 3, stride=2, padding=1),
        )
        self.blocks = nn.ModuleList(ResidualBlock(channels, 512) for _ in range(3))
        self.merge, self.outof = nn.Conv2d(2 * channels, channels, 1), nn.Conv2d(channels, 4, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        angles = time[:, None] * torch.exp(torch.arange(0, 256, device=x.device, dtype=x.dtype) * -0.036)
        embedded = torch.cat((angles.sin(), angles.cos()), 1)
        first = self.blocks[0](self.into(x), embedded)
        low = self.blocks[1](self.down(first), embedded)
        merged = self.merge(torch.cat((first, F.interpolate(low, scale_factor=2.0)), 1))
        return self.outof(F.silu(self.blocks[2](merged, embedded)))


def unet(batch: int = 4, size: int = 32) -> Any:
    return UNet(), lambda m, x, time: m(x, time), [torch.randn(batch, 4, size, size), torch.rand(batch)]


class RMSNorm(nn.Module):
    """As model code spells it out."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class DecoderLayer(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norms = heads, nn.ModuleList(RMSNorm(hidden) for _ in range(2))
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.gate, self.up = nn.Linear(hidden, 4 * hidden, bias=False), nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, past: tuple[Tensor, Tensor] | None) -> Tensor:
        shape = (*x.shape[:2], self.heads, x.shape[2] // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=past is None)
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        inner = self.norms[1](x)
        return x + self.down(F.silu(self.gate(inner)) * self.up(inner))


class Decoder(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(8192, hidden), RMSNorm(hidden)
        self.layers = nn.ModuleList(DecoderLayer(hidden, heads) for _ in range(layers))
        self.head = nn.Linear(hidden, 8192, bias=False)

    def forward(self, ids: Tensor, cos: Tensor, sin: Tensor, *past: Tensor) -> Tensor:
        x = self.embed(ids)
        for index, layer in enumerate(self.layers):
            x = layer(x, cos, sin, (past[2 * index], past[2 * index + 1]) if past else None)
        return self.head(self.norm(x))


def decoder(
    batch: int = 8, length: int = 512, cached: int = 0, layers: int = 2, hidden: int = 2048, heads: int = 16
) -> Any:
    size = hidden // heads
    past = [torch.randn(batch, heads, cached, size) for _ in range(2 * layers)] if cached else []
    angles = [torch.randn(length, size) for _ in range(2)]
    return Decoder(layers, hidden, heads), lambda m, *given: m(*given), [tokens(batch, length), *angles, *past]


def tiny_mlp(batch: int = 64) -> Any:
    parts = ((nn.Linear(128, 128), nn.LayerNorm(128), nn.GELU()) for _ in range(8))
    return nn.Sequential(*itertools.chain(*parts)), lambda m, x: m(x), [torch.randn(batch, 128)]


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
) -> Case:
    mixed = f" under autocast to {str(autocast)[6:]}" if autocast else ""
    return Case(
        name, f"{says}; training step, {str(dtype)[6:]}{mixed}", partial(train, build, dtype, optimizer, autocast), True
    )


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
