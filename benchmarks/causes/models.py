"""Whole models with several causes at once, and with their fixes applied together: `record_causes.py --models`.

None of them is among the models of models.py, models_loops.py and stand_in_models.py. Weights are random, and nothing
is downloaded. Needs what each comes from: torchvision, timm, transformers, torchaudio, torch_geometric, or nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.causes import parts
from benchmarks.causes.parts import (
    LAST,
    B,
    H,
    Layers,
    S,
    adamw,
    grouped_as_products,
    over,
    precise,
    residuals,
    sdpa,
    square,
    trained,
)
from benchmarks.causes.program import TINY, Program, Step, size

MODELS: list[Program] = []
FIXES: dict[str, tuple[str, ...]] = {}  # what the step after is free of


def model(*fixes: str, training: bool = False) -> Callable[[Callable[[bool], Step]], Callable[[bool], Step]]:
    """Registers a function that builds the step of a model, as it is or with its fixes."""

    def registered(make: Callable[[bool], Step]) -> Callable[[bool], Step]:
        MODELS.append(Program(make.__name__, "models", make, training, fixable=True))
        FIXES[make.__name__] = fixes
        return make

    return registered


def ready(made: Any) -> Any:
    """The model, under torch.compile where steps are; for a step that holds its own backward pass."""
    if parts.COMPILED:
        made.compile(dynamic=False)
    return made


def layout(fixed: bool) -> torch.memory_format:
    return LAST if fixed else torch.contiguous_format


def pictures(batch: int, side: int = 224, dtype: torch.dtype = H, fixed: bool = False) -> Tensor:
    x = torch.randn(size(batch, 2), 3, side, side, dtype=dtype)
    return x.contiguous(memory_format=layout(fixed))


def shaken(made: nn.Module) -> nn.Module:
    """Norms whose statistics are no zeros and ones."""
    for norm in made.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm) and norm.running_mean is not None:
            nn.init.normal_(norm.running_mean, 0, 0.1)
            nn.init.uniform_(norm.running_var, 0.8, 1.2)
    return made


def folded(made: nn.Module, fixed: bool) -> nn.Module:
    """BatchNorms folded into the convolutions in front of them."""
    made = shaken(made).eval()
    if not fixed:
        return made
    from torch.fx.experimental.optimization import fuse

    return fuse(made)


# -- torchvision -------------------------------------------------------------------------------------------------------


@model("channels_last", "batch_norm")
def wide_resnet(fixed: bool) -> Step:
    """Inference in fp16, channels first."""
    from torchvision.models import wide_resnet50_2

    made = folded(wide_resnet50_2(weights=None), fixed).to(H).to(memory_format=layout(fixed))
    return over(made, pictures(32, size(224, 64), fixed=fixed))


@model("channels_last", "batch_norm")
def googlenet(fixed: bool) -> Step:
    """Inference in bfloat16, channels first."""
    from torchvision.models import googlenet as build

    made = build(weights=None, aux_logits=False, init_weights=False, transform_input=False)
    made = folded(made, fixed).to(B).to(memory_format=layout(fixed))
    return over(made, pictures(64, size(224, 64), B, fixed))


@model("channels_last", "batch_norm")
def deeplab(fixed: bool) -> Step:
    """Segmentation in fp16, channels first."""
    from torchvision.models.segmentation import deeplabv3_resnet50

    made = deeplabv3_resnet50(weights=None, weights_backbone=None)
    made.backbone, made.classifier = folded(made.backbone, fixed), folded(made.classifier, fixed)
    made = made.eval().to(H).to(memory_format=layout(fixed))
    return over(lambda x: made(x)["out"], pictures(8, size(384, 64), fixed=fixed))


@model("channels_last", "batch_norm")
def video(fixed: bool) -> Step:
    """A residual network over frames of videos, fp16, channels first."""
    from torchvision.models.video import r3d_18

    order = torch.channels_last_3d if fixed else torch.contiguous_format
    made = folded(r3d_18(weights=None), fixed).to(H).to(memory_format=order)
    side = size(112, 32)
    x = torch.randn(size(8, 2), 3, size(16, 4), side, side, dtype=H)
    return over(made, x.contiguous(memory_format=order))


@model("tf32", "optimizer", training=True)
def vision_transformer(fixed: bool) -> Step:
    """torchvision's ViT in float32 with the default precision, AdamW as it is made when nothing is said."""
    from torchvision.models import VisionTransformer

    made = VisionTransformer(32 if TINY else 224, 16, 4, 12, 768, 3072)
    updates = torch.optim.AdamW(made.parameters(), 1e-4, **({"fused": True} if fixed else {}))
    x = pictures(16, 32 if TINY else 224, S)
    return precise("high" if fixed else "highest", trained(made, x, optimizer=updates))


@model("channels_last", "optimizer", "parameter_loop", training=True)
def scaled_convolutions(fixed: bool) -> Step:
    """EfficientNet V2 in bfloat16, channels first, SGD over lists, gradients clipped one by one."""
    from torchvision.models import efficientnet_v2_s

    made = efficientnet_v2_s(weights=None, dropout=0.0, stochastic_depth_prob=0.0)
    made = made.to(B).to(memory_format=layout(fixed))
    choice = {"fused": True} if fixed else {"foreach": True}
    updates = torch.optim.SGD(made.parameters(), 1e-3, momentum=0.9, **choice)

    @torch.no_grad()
    def between() -> None:
        if fixed:
            nn.utils.clip_grad_norm_(made.parameters(), 1.0, foreach=True)
            return
        gradients = [p.grad for p in made.parameters()]
        total = torch.stack([gradient.norm() for gradient in gradients]).norm()
        for gradient in gradients:
            gradient.mul_((1.0 / (total + 1e-6)).clamp(max=1.0))

    x = pictures(32, size(224, 64), B, fixed)
    wanted = torch.randint(0, 1000, x.shape[:1])
    step = trained(
        made,
        x,
        wanted,
        loss=lambda x, labels: F.cross_entropy(made(x).float(), labels),
        optimizer=updates,
        between=between,
    )
    return lambda: step()[0]


# -- timm --------------------------------------------------------------------------------------------------------------


def of_timm(name: str, attention: bool, **options: Any) -> nn.Module:
    """A model whose attention is one call, or spelled out."""
    import timm
    from timm.layers import set_fused_attn

    set_fused_attn(attention)
    try:
        return timm.create_model(name, pretrained=False, **options).eval()
    finally:
        set_fused_attn(True)


@model("loop_invariant")
def big_transfer(fixed: bool) -> Step:
    """A ResNet whose convolutions standardise their weights in each forward, fp16, channels first.

    It stays so: its group norms copy what is channels last, which took more than convolutions gained.
    """
    from timm.layers import StdConv2d

    made = of_timm("resnetv2_50x1_bit", True, num_classes=1000)
    for parent in list(made.modules()) if fixed else ():
        for name, layer in parent.named_children():
            if isinstance(layer, StdConv2d):
                weight = layer.weight.reshape(1, layer.out_channels, -1)
                weight = F.batch_norm(weight, None, None, training=True, momentum=0.0, eps=layer.eps)
                layer.weight = nn.Parameter(weight.reshape_as(layer.weight).detach())
                setattr(parent, name, plain(layer))
    return over(made.to(H), pictures(32, size(224, 64)))


def plain(layer: nn.Conv2d) -> nn.Conv2d:
    """The convolution as its class has it."""
    options = {"stride": layer.stride, "padding": layer.padding, "groups": layer.groups, "device": layer.weight.device}
    made = nn.utils.skip_init(
        nn.Conv2d, layer.in_channels, layer.out_channels, layer.kernel_size, bias=layer.bias is not None, **options
    )
    made.weight, made.bias = layer.weight, layer.bias
    return made


@model("attention")
def rotary_vision(fixed: bool) -> Step:
    """EVA-02 (rotated queries and keys, gated layers) in bfloat16, attention spelled out."""
    made = of_timm("eva02_small_patch14_224", fixed, depth=4, img_size=size(336, 56)).to(B)
    return over(made, pictures(32, size(336, 56), B))


@model("attention", "tf32")
def pyramid_vision(fixed: bool) -> Step:
    """PVT V2 in float32 with the default precision, attention spelled out."""
    made = of_timm("pvt_v2_b1", fixed)
    return precise("high" if fixed else "highest", over(made, pictures(16, size(224, 64), S)))


@model("attention", "channels_last")
def convolutions_and_attention(fixed: bool) -> Step:
    """CoAtNet in fp16, channels first, attention spelled out."""
    made = of_timm("coatnet_nano_rw_224", fixed, img_size=size(224, 64)).to(H).to(memory_format=layout(fixed))
    return over(made, pictures(32, size(224, 64), fixed=fixed))


# -- transformers ------------------------------------------------------------------------------------------------------


def of_transformers(config: str, kind: str, fixed: bool, **settings: Any) -> nn.Module:
    """A model from its configuration, attention in one call or spelled out."""
    import transformers

    made = getattr(transformers, config)(**settings)
    made._attn_implementation = "sdpa" if fixed else "eager"
    return getattr(transformers, kind)(made).eval()


def ids(batch: int, length: int, words: int = 8192) -> Tensor:
    return torch.randint(3, min(words, 1000), (size(batch, 2), size(length)))


@model("attention", "grouped_convolution", "loop_invariant")
def hubert(fixed: bool) -> Step:
    """HuBERT in fp16: attention spelled out, a grouped convolution whose weight is normalised in each forward."""
    from torch.nn.utils import parametrize

    made = of_transformers("HubertConfig", "HubertModel", fixed, num_hidden_layers=3).to(H)
    if fixed:
        layer = made.encoder.pos_conv_embed.conv
        parametrize.remove_parametrizations(layer, "weight")
        layer.forward = partial(grouped_as_products, layer)
    return over(lambda x: made(x)[0], torch.randn(size(8, 2), size(80_000, 4000), dtype=H))


@model("attention", "tf32")
def siglip(fixed: bool) -> Step:
    """SigLIP's images in float32 with the default precision, attention spelled out."""
    made = of_transformers(
        "SiglipVisionConfig", "SiglipVisionModel", fixed, num_hidden_layers=3, image_size=size(224, 32)
    )
    step = over(lambda x: made(x)[0], pictures(16, size(224, 32), S))
    return precise("high" if fixed else "highest", step)


@model("attention", "misaligned")
def big_code(fixed: bool) -> Step:
    """GPT-BigCode (one head of keys) in bfloat16 with 49,153 words, attention spelled out."""
    words = size(49153, 1025)
    made = of_transformers(
        "GPTBigCodeConfig",
        "GPTBigCodeForCausalLM",
        fixed,
        vocab_size=words,
        n_embd=1024,
        n_layer=3,
        n_head=16,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    x = ids(8, 512)
    if fixed:
        made.resize_token_embeddings(words, pad_to_multiple_of=64, mean_resizing=False)
    made = made.to(B)
    return over(lambda x: made(input_ids=x).logits[..., :words], x)


@model("attention", "optimizer", training=True)
def glm(fixed: bool) -> Step:
    """GLM in bfloat16, attention spelled out, AdamW as it is made when nothing is said."""
    made = of_transformers(
        "GlmConfig",
        "GlmForCausalLM",
        fixed,
        hidden_size=size(1024, 64),
        intermediate_size=size(2816, 128),
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=size(128, 16),
        vocab_size=8192,
        attention_dropout=0.0,
        pad_token_id=0,
        eos_token_id=1,
        use_cache=False,
    )
    made = made.to(B)
    updates = torch.optim.AdamW(made.parameters(), 1e-4, **({"fused": True} if fixed else {}))

    def loss(x: Tensor) -> Tensor:
        logits = made(input_ids=x).logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), x[:, 1:].flatten())

    step = trained(made, ids(4, 512), loss=loss, optimizer=updates)
    return lambda: step()[0]


@model("attention", "weights_cast")
def xlm_roberta(fixed: bool) -> Step:
    """XLM-RoBERTa under autocast with float32 weights, attention spelled out."""
    made = of_transformers(
        "XLMRobertaConfig", "XLMRobertaModel", fixed, num_hidden_layers=3, vocab_size=8192, pad_token_id=1
    )
    for layer in made.modules() if fixed else ():
        if isinstance(layer, nn.Linear):
            layer.to(B)

    def call(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, B):
            return made(input_ids=x)[0]

    return over(call, ids(16, 384))


@model("attention", "misaligned", "optimizer", "zero_grad", training=True)
def nemotron(fixed: bool) -> Step:
    """Nemotron in bfloat16 with 32,003 words, attention spelled out, Adam over lists, gradients zeroed."""
    words = size(32003, 1027)
    made = of_transformers(
        "NemotronConfig",
        "NemotronForCausalLM",
        fixed,
        vocab_size=words,
        hidden_size=size(1024, 64),
        intermediate_size=size(4096, 128),
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=size(128, 8),
        pad_token_id=0,
        use_cache=False,
    )
    x = ids(4, 512)
    if fixed:
        made.resize_token_embeddings(words, pad_to_multiple_of=64, mean_resizing=False)
    made = made.to(B)
    updates = torch.optim.Adam(made.parameters(), 1e-4, **({"fused": True} if fixed else {"foreach": True}))

    def loss(x: Tensor) -> Tensor:
        logits = made(input_ids=x).logits[..., :words]
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), x[:, 1:].flatten())

    clear = partial(updates.zero_grad, set_to_none=fixed)
    step = trained(made, x, loss=loss, optimizer=updates, clear=clear)
    return lambda: step()[0]


# -- torchaudio --------------------------------------------------------------------------------------------------------


@model("tf32", "optimizer", training=True)
def conformer(fixed: bool) -> Step:
    """A conformer in float32 with the default precision, AdamW over lists."""
    from torchaudio.models import Conformer

    made = Conformer(size(512, 64), 8, size(2048, 128), 3, 31, dropout=0.0)
    lengths = torch.full((size(16, 2),), size(400, 20))
    updates = adamw(made.parameters(), **({} if fixed else {"fused": False, "foreach": True}))
    x = torch.randn(size(16, 2), size(400, 20), size(512, 64))
    step = trained(made, x, loss=lambda x: square(made(x, lengths)[0]), optimizer=updates)
    return precise("high" if fixed else "highest", lambda: step()[0])


@model("tf32")
def deep_speech(fixed: bool) -> Step:
    """DeepSpeech in float32 with the default precision."""
    from torchaudio.models import DeepSpeech

    made = DeepSpeech(size(512), n_hidden=size(2048), n_class=40, dropout=0.0).eval()
    step = over(made, torch.randn(size(16, 2), 1, size(256, 8), size(512)))
    return precise("high" if fixed else "highest", step)


# -- torch_geometric ---------------------------------------------------------------------------------------------------


@model("loop_invariant", "optimizer", "tf32", training=True)
def graph_convolutions(fixed: bool) -> Step:
    """GCN whose normalised edges are computed anew in each layer and step, Adam one parameter at a time, float32."""
    from torch_geometric.nn import GCNConv

    nodes, width = size(32768, 64), size(512, 32)
    edges = torch.randint(0, nodes, (2, 4 * nodes))
    layers = nn.ModuleList(GCNConv(width, width, cached=fixed) for _ in range(3))

    def loss(x: Tensor) -> Tensor:
        for layer in layers:
            x = F.relu(layer(x, edges))
        return square(x)

    choice = {"fused": True} if fixed else {"foreach": False}
    updates = torch.optim.Adam(layers.parameters(), 1e-4, **choice)
    step = trained(layers, torch.randn(nodes, width), loss=loss, optimizer=updates)
    return precise("high" if fixed else "highest", lambda: step()[0])


@model("tf32")
def graph_samples(fixed: bool) -> Step:
    """GraphSAGE in float32 with the default precision."""
    from torch_geometric.nn import SAGEConv

    nodes, width = size(65536, 64), size(512, 32)
    edges = torch.randint(0, nodes, (2, 3 * nodes))
    layers = nn.ModuleList(SAGEConv(width, width) for _ in range(3))

    def call(x: Tensor) -> Tensor:
        for layer in layers:
            x = F.relu(layer(x, edges))
        return x

    return precise("high" if fixed else "highest", over(call, torch.randn(nodes, width)))


# -- written by hand ---------------------------------------------------------------------------------------------------


class Spelled(nn.Module):
    """Attention with rotary places and a gated layer; what `fixed` mends stands at each line."""

    def __init__(self, width: int, heads: int, fixed: bool) -> None:
        super().__init__()
        self.heads, self.head, self.fixed = heads, width // heads, fixed
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(2 * width, width, bias=False)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
        if self.fixed:
            return sdpa(q, k, v, is_causal=causal)
        scores = torch.matmul(q, k.transpose(-1, -2)) * self.head**-0.5
        if causal:
            ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
            scores = scores.masked_fill(ahead, -torch.inf)
        return torch.matmul(scores.softmax(-1), v)

    def parts(self, x: Tensor) -> tuple[Tensor, ...]:
        q, k, v = self.qkv(x).chunk(3, -1)
        return tuple(t.unflatten(-1, (self.heads, self.head)).transpose(1, 2) for t in (q, k, v))

    def gated(self, x: Tensor) -> Tensor:
        return x + self.down(F.silu(self.gate(self.norms[1](x))) * self.up(self.norms[1](x)))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.out(self.attend(*self.parts(self.norms[0](x))).transpose(1, 2).flatten(2))
        return self.gated(x)


@model("attention", "cache_cat", "loop_invariant")
def chat_decode(fixed: bool) -> Step:
    """One token for each of 32 sequences: a cache that grows by `cat`, attention spelled out, weights in 8 bits."""
    width, heads, past, batch = size(2048, 64), 16, size(2048) - 1, size(32, 2)
    layers = nn.ModuleList(Spelled(width, heads, fixed) for _ in range(3)).to(B)
    head = width // heads
    kept = [torch.randn(2, batch, heads, past, head, dtype=B) for _ in layers]
    room = [F.pad(one, (0, 0, 0, 1)) for one in kept] if fixed else []
    at = torch.tensor([past])
    packed = torch.randint(-127, 128, (4 * width, width), dtype=torch.int8)
    scale = torch.rand(4 * width, 1).div(2000).to(B)
    full = packed.to(B) * scale

    def call(x: Tensor) -> Tensor:
        for number, layer in enumerate(layers):
            q, k, v = layer.parts(layer.norms[0](x))
            if fixed:
                k, v = room[number][0].index_copy_(2, at, k), room[number][1].index_copy_(2, at, v)
            else:
                k, v = torch.cat([kept[number][0], k], 2), torch.cat([kept[number][1], v], 2)
            x = x + layer.out(layer.attend(q, k, v, causal=False).transpose(1, 2).flatten(2))
            x = layer.gated(x)
        return F.linear(x, full if fixed else packed.to(B) * scale)

    return over(call, torch.randn(batch, 1, width, dtype=B))


@model("attention", "expert_sort")
def experts_decoder(fixed: bool) -> Step:
    """Attention spelled out, and experts to which tokens are sorted by 64-bit keys."""
    width, count, batch, length = size(1024, 64), 8, size(8, 2), size(1024, 32)
    first = Spelled(width, 16, fixed).to(B)
    router = nn.Linear(width, count, bias=False).to(B)
    ups = torch.randn(count, width, width, dtype=B) * width**-0.5
    room = 3 * batch * length // count

    def call(x: Tensor) -> Tensor:
        x = first(x).flatten(0, 1)
        best, expert = router(x).softmax(-1).max(-1)
        order = (expert.to(torch.uint8) if fixed else expert).sort(stable=True).indices
        sums, of = torch.bincount(expert, minlength=count), expert[order]
        place = (torch.arange(len(x), device=x.device) - (sums.cumsum(0) - sums)[of]).clamp(max=room - 1)
        bins = x.new_zeros(count, room, width)
        bins[of, place] = x[order]
        out = torch.empty_like(x)
        out[order] = torch.bmm(bins, ups)[of, place] * best[order, None]
        return x + out

    return over(call, torch.randn(batch, length, width, dtype=B))


@model("attention", "optimizer", "parameter_loop", "loop_invariant", training=True)
def image_diffusion(fixed: bool) -> Step:
    """A transformer that removes noise: attention spelled out, masks each time, AdamW over lists, a loop's average."""
    width, batch = size(1024, 64), size(8, 2)
    body = Layers([Spelled(width, 16, fixed) for _ in range(3)]).to(B)
    average = [p.detach().clone() for p in body.parameters()]
    updates = adamw(body.parameters(), **({} if fixed else {"fused": False, "foreach": True}))

    @torch.no_grad()
    def behind() -> None:
        if fixed:
            torch._foreach_lerp_(average, list(body.parameters()), 0.01)
        else:
            for kept, weight in zip(average, body.parameters(), strict=True):
                kept.lerp_(weight, 0.01)

    x = torch.randn(batch, size(512), width, dtype=B)
    step = trained(body, x, loss=lambda x: F.mse_loss(body(x).float(), x.float()), optimizer=updates, behind=behind)
    return lambda: step()[0]


@model("embedding_bags", "tf32", "optimizer", training=True)
def click_model(fixed: bool) -> Step:
    """24 embedding bags of one width that are not trained, and a network in float32 with the default precision."""
    count, entries, width, batch = 24, size(50_000, 100), size(64, 8), size(8192, 64)
    tables = [torch.randn(entries, width) for _ in range(count)]
    table, shift = torch.cat(tables), (torch.arange(count) * entries)[:, None, None]
    inner = size(2048, 64)
    top = nn.Sequential(nn.Linear(count * width, inner), nn.ReLU(), nn.Linear(inner, inner), nn.ReLU())
    top = nn.Sequential(top, nn.Linear(inner, 8))
    choice = {"fused": True} if fixed else {"foreach": False}
    updates = torch.optim.SGD(top.parameters(), 0.01, momentum=0.9, **choice)

    def loss(found: Tensor) -> Tensor:
        if fixed:
            rows = F.embedding_bag((found + shift).flatten(0, 1), table, mode="sum").view(count, -1, width)
            return square(top(rows.transpose(0, 1).flatten(1)))
        return square(
            top(torch.cat([F.embedding_bag(one, each, mode="sum") for one, each in zip(found, tables, strict=True)], 1))
        )

    step = trained(top, torch.randint(0, entries, (count, batch, 4)), loss=loss, optimizer=updates)
    return precise("high" if fixed else "highest", lambda: step()[0])


@model("optimizer", "parameter_loop", "zero_grad", training=True)
def actor_critic(fixed: bool) -> Step:
    """Two critics that follow slowly, a parameter at a time; Adam one parameter at a time; gradients zeroed."""
    width = size(1024, 32)
    critics = nn.ModuleList(residuals(width, 3) for _ in range(2))
    slow = copy.deepcopy(critics).requires_grad_(False)
    updates = torch.optim.Adam(critics.parameters(), 1e-4, **({"fused": True} if fixed else {"foreach": False}))

    def loss(x: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = torch.minimum(slow[0](x), slow[1](x))
        return sum(F.mse_loss(critic(x), wanted * 0.99 + 0.1) for critic in critics)

    @torch.no_grad()
    def behind() -> None:
        if fixed:
            torch._foreach_lerp_(list(slow.parameters()), list(critics.parameters()), 0.005)
        else:
            for one, two in zip(slow.parameters(), critics.parameters(), strict=True):
                one.mul_(0.995).add_(two, alpha=0.005)

    clear = partial(updates.zero_grad, set_to_none=fixed)
    step = trained(critics, torch.randn(size(1024), width), loss=loss, optimizer=updates, behind=behind, clear=clear)
    return lambda: step()[0]


@model("grad_scaler", training=True)
def speech_masks(fixed: bool) -> Step:
    """Convolutions over spectra under autocast to bfloat16, channels first, with a scaler, unscaling and clipping.

    It stays so: its group norms copy what is channels last, which took more than convolutions gained.
    """
    channels = size(128, 8)
    layers: list[nn.Module] = [nn.Conv2d(8, channels, 3, padding=1), nn.SiLU()]
    for _ in range(4):
        layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.GroupNorm(8, channels), nn.SiLU()]
    body = ready(nn.Sequential(*layers, nn.Conv2d(channels, 8, 3, padding=1)))
    updates = adamw(body.parameters())
    x = torch.randn(size(16, 2), 8, size(128, 16), size(128, 16))
    scaler = torch.amp.GradScaler(x.device.type, enabled=not fixed)

    def step(x: Tensor) -> Tensor:
        updates.zero_grad(set_to_none=True)
        with torch.autocast(x.device.type, B):
            mask = torch.sigmoid(body(x))
        value = F.mse_loss(mask.float() * x, x)
        scaler.scale(value).backward()
        scaler.unscale_(updates)
        nn.utils.clip_grad_norm_(body.parameters(), 1.0, foreach=True)
        scaler.step(updates)
        scaler.update()
        return value.detach()

    return over(step, x, compiles=False)


@model("permuted_stream", "attention")
def video_tokens(fixed: bool) -> Step:
    """Frames' features seen as tokens by a permutation, attention spelled out."""
    width = size(1024, 64)
    body = Layers([Spelled(width, 16, fixed) for _ in range(3)]).to(B).eval()

    def call(x: Tensor) -> Tensor:
        x = x.flatten(2).transpose(1, 2)
        return body(x.contiguous() if fixed else x)

    return over(call, torch.randn(size(16, 2), width, 8, size(64, 4), dtype=B))
