"""Labelled programs whose kernels or recurrences set the pace: of decoders, harnesses, node embeddings and taggers.

With those of `labelled_eighth_*.py` they were labelled from their sources before anything looked at them. Labels:
`labels.py`; `labelled.py score` counts them apart.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labelled_eighth_hosts import HOSTS
from programs.labelled_eighth_loops import HALF, LOOPS
from programs.labelled_eighth_near import NEAR
from programs.labelled_eighth_waits import WAITING
from programs.labels import Built, Labelled
from programs.program import unchanged


def masks_rebuilt(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    batch_size: int = 8,
    dim: int = 1024,
    seq_len: int = 1024,
) -> Built:
    """A decoder in the manner of old toolkits: each layer makes its causal and padding mask anew, for every head."""
    num_layers, num_heads, vocab_size = 8, max(1, dim // 64), 8000
    tokens = torch.randint(0, vocab_size, (batch_size, seq_len))
    lengths = torch.randint(seq_len // 2, seq_len + 1, (batch_size,))
    attention_mask = (torch.arange(seq_len) < lengths[:, None]).long()

    def build_mask(attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
        length = attention_mask.shape[1]
        minimum = torch.finfo(dtype).min
        causal = torch.full((length, length), minimum, dtype=dtype, device=attention_mask.device)
        causal = causal.triu(diagonal=1)[None, None]
        padding = (1.0 - attention_mask[:, None, None].to(dtype)) * minimum
        combined = torch.maximum(causal + padding, torch.full_like(causal, minimum))  # same: loop_invariant
        return combined.repeat(1, num_heads, 1, 1)  # cause: loop_invariant, main

    class DecoderLayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.in_proj, self.out_proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x: Tensor, attention_mask: Tensor, mask: Tensor | None = None) -> Tensor:
            if mask is None:
                mask = build_mask(attention_mask, x.dtype)  # same: loop_invariant
            q, k, v = self.in_proj(self.norm1(x)).unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # near: attention_unfused
            x = x + self.out_proj(attended.transpose(1, 2).flatten(2))
            return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(vocab_size, dim)
            self.layers = nn.ModuleList(DecoderLayer() for _ in range(num_layers))

        def forward(self, tokens: Tensor, attention_mask: Tensor) -> Tensor:
            x = self.embed(tokens)
            mask = build_mask(attention_mask, x.dtype) if fixed else None
            for layer in self.layers:  # same: loop_invariant  # near: python_loop
                x = layer(x, attention_mask, mask)
            return x

    decoder = wrap(Decoder().to(dtype))

    def encode() -> Tensor:
        hidden = decoder(tokens, attention_mask)  # same: loop_invariant
        return (hidden * attention_mask[..., None]).float().sum(dim=1) / lengths[:, None]

    return Built(encode)


def states_retained(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    batch_size: int = 8,
    seq_len: int = 256,
    dim: int = 512,
) -> Built:
    """A retention network reads a prompt in its recurrent form, as it was written for decoding; a matrix would do."""
    num_layers, num_heads = 2, max(1, dim // 64)
    gamma = 1 - torch.exp2(-5.0 - torch.arange(num_heads))

    class Retention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.group_norm = nn.LayerNorm(dim), nn.LayerNorm(dim // num_heads)
            self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

        def recurrent(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            state = torch.zeros_like(k[:, :, 0, :, None] * v[:, :, 0, None, :])
            outputs = []
            for n in range(q.shape[2]):  # cause: recurrence_unfused, main  # may: python_loop
                state = gamma[:, None, None] * state + k[:, :, n, :, None] * v[:, :, n, None, :]
                outputs.append(torch.einsum("bhd,bhde->bhe", q[:, :, n], state))  # may: float32_batched_product
            return torch.stack(outputs, dim=2)

        def parallel(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            index = torch.arange(q.shape[2], device=q.device)
            distance = index[:, None] - index
            decay = torch.where(distance >= 0, gamma[:, None, None] ** distance.clamp(min=0), 0.0)
            return (torch.einsum("bhnd,bhmd->bhnm", q, k) * decay) @ v  # may: float32_batched_product

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4).float()
            k = k / math.sqrt(k.shape[-1])
            retained = self.parallel(q, k, v) if fixed else self.recurrent(q, k, v)  # same: recurrence_unfused
            retained = self.group_norm(retained.to(x.dtype)).transpose(1, 2).flatten(2)
            return x + self.out(retained)

    model = wrap(nn.Sequential(*(Retention() for _ in range(num_layers))).to(dtype))
    prompt = torch.randn(batch_size, seq_len, dim, dtype=dtype)
    return Built(lambda: model(prompt)[:, ::8].float())  # same: recurrence_unfused


def choices_scored(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    num_questions: int = 8,
    dim: int = 1024,
    vocab_size: int = 32000,
) -> Built:
    """An evaluation harness for multiple choice: all words of question and answer are scored, the answer's counted."""
    num_choices, context_len, answer_len, num_layers = 4, 368, 16, 4
    num_heads, seq_len = max(1, dim // 64), context_len + answer_len
    context = torch.randint(0, vocab_size, (num_questions, 1, context_len)).expand(-1, num_choices, -1)
    answers = torch.randint(0, vocab_size, (num_questions, num_choices, answer_len))
    requests = torch.cat((context, answers), dim=-1).flatten(0, 1)
    answer_lens = torch.randint(4, answer_len + 1, (num_questions * num_choices, 1))

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
            self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
            self.up, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, num_heads, -1)).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(attended.transpose(1, 2).flatten(2))
            return x + self.down(F.silu(self.up(self.norm2(x))))

    class CausalLM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed_tokens = nn.Embedding(vocab_size, dim)
            self.layers = nn.Sequential(*(Layer() for _ in range(num_layers)))
            self.norm, self.lm_head = nn.RMSNorm(dim), nn.Linear(dim, vocab_size, bias=False)

        def forward(self, tokens: Tensor, logits_to_keep: int) -> Tensor:
            hidden = self.norm(self.layers(self.embed_tokens(tokens)))
            return self.lm_head(hidden[:, -logits_to_keep:])  # same: linear_cross_entropy

    model = wrap(CausalLM().to(dtype))

    def loglikelihood() -> Tensor:
        kept = answer_len if fixed else seq_len - 1
        logits = model(requests[:, :-1], kept)  # same: linear_cross_entropy
        log_probs = F.log_softmax(logits.float(), dim=-1)  # cause: linear_cross_entropy, main
        targets = requests[:, seq_len - kept :]
        token_scores = log_probs.gather(-1, targets[..., None])[..., 0]  # same: linear_cross_entropy
        position = torch.arange(answer_len, device=requests.device)
        scores = (token_scores[:, -answer_len:] * (position < answer_lens)).sum(dim=1)
        return scores.view(num_questions, num_choices)

    return Built(loglikelihood)


def walks_embedded(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = torch.float32,
    num_nodes: int = 2_000_000,
    batch_size: int = 4096,
) -> Built:
    """Node embeddings from random walks: skip-grams with negative samples, two tables of all nodes, plain SGD."""
    embedding_dim, window, num_negatives = 128, 8, 5

    class SkipGram(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.center = nn.Embedding(num_nodes, embedding_dim, sparse=fixed, dtype=dtype)
            self.context = nn.Embedding(num_nodes, embedding_dim, sparse=fixed, dtype=dtype)

        def forward(self, node: Tensor, neighbors: Tensor, negatives: Tensor) -> Tensor:
            center = self.center(node)  # cause: embedding_gradient_dense, main
            pos = torch.einsum("bd,bwd->bw", center, self.context(neighbors))  # same: embedding_gradient_dense
            neg = torch.einsum("bd,bnd->bn", center, self.context(negatives))  # same: embedding_gradient_dense
            return -(F.logsigmoid(pos).sum() + F.logsigmoid(-neg).sum()) / len(node)

    model = SkipGram()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.025)
    node = torch.randint(0, num_nodes, (batch_size,))
    neighbors = torch.randint(0, num_nodes, (batch_size, window))
    negatives = torch.randint(0, num_nodes, (batch_size, num_negatives * window))
    objective = wrap(model)

    def train_batch() -> Tensor:
        optimizer.zero_grad()
        loss = objective(node, neighbors, negatives)  # same: embedding_gradient_dense
        loss.backward()  # same: embedding_gradient_dense
        optimizer.step()  # same: embedding_gradient_dense  # may: host_sync
        return loss.detach()

    return Built(train_batch, list(model.parameters()))


def queries_normalised(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    batch_size: int = 16,
    dim: int = 768,
    image_size: int = 512,
) -> Built:
    """A vision transformer with cosine attention: scores of unit queries and keys, a learned scale, all spelled out."""
    patch_size, depth, num_heads = 16, 6, max(1, dim // 64)

    class CosineAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.logit_scale = nn.Parameter(torch.log(10 * torch.ones(num_heads, 1, 1)))

        def forward(self, x: Tensor) -> Tensor:
            qkv = self.qkv(x).unflatten(-1, (3, num_heads, -1))
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
            scale = self.logit_scale.clamp(max=math.log(100.0)).exp()
            if fixed:
                x = F.scaled_dot_product_attention(q * scale, k, v, scale=1.0)  # near: attention_unfused
            else:
                attn = (q @ k.transpose(-2, -1)) * scale  # same: attention_unfused
                attn = attn.softmax(dim=-1)  # cause: attention_unfused, main
                x = attn @ v  # same: attention_unfused
            return self.proj(x.transpose(1, 2).flatten(2))

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.norm1, self.norm2 = CosineAttention(), nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.norm1(self.attn(x))  # same: attention_unfused
            return x + self.norm2(self.mlp(x))

    class VisionTransformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch_embed = nn.Conv2d(3, dim, patch_size, patch_size)
            self.blocks, self.head = nn.Sequential(*(Block() for _ in range(depth))), nn.Linear(dim, 100)

        def forward(self, images: Tensor) -> Tensor:
            x = self.patch_embed(images).flatten(2).transpose(1, 2)
            return self.head(self.blocks(x).mean(dim=1))  # same: attention_unfused

    model = wrap(VisionTransformer().to(dtype))
    images = torch.randn(batch_size, 3, image_size, image_size, dtype=dtype)
    return Built(lambda: model(images).float())  # same: attention_unfused


def movements_tagged(
    wrap: Any = unchanged,
    fixed: bool = False,
    dtype: torch.dtype = HALF,
    batch_size: int = 64,
    seq_len: int = 160,
    hidden_size: int = 512,
) -> Built:
    """Wearables: a simple recurrent unit tags sensor windows; its three products of the input are made step by step."""
    num_sensors, num_layers, num_classes = 9, 2, 12

    class SRULayer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(hidden_size, 3 * hidden_size)

        def cell(self, x_t: Tensor, u_t: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
            candidate, forget, reset = u_t.chunk(3, dim=-1)
            f, r = torch.sigmoid(forget), torch.sigmoid(reset)
            c = f * c + (1 - f) * candidate
            return r * torch.tanh(c) + (1 - r) * x_t, c

        def forward(self, x: Tensor) -> Tensor:
            c, outputs = torch.zeros_like(x[0]), []
            projected = self.linear(x) if fixed else None
            for t in range(x.shape[0]):  # cause: recurrence_unfused, stays  # may: python_loop
                u_t = self.linear(x[t]) if projected is None else projected[t]  # cause: input_projection_in_loop, main
                h, c = self.cell(x[t], u_t, c)
                outputs.append(h)
            return torch.stack(outputs)

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Linear(num_sensors, hidden_size), nn.Linear(hidden_size, num_classes)
            self.layers = nn.ModuleList(SRULayer() for _ in range(num_layers))

        def forward(self, windows: Tensor) -> Tensor:
            x = self.embed(windows).transpose(0, 1)
            for layer in self.layers:  # near: python_loop
                x = layer(x)  # same: recurrence_unfused  # same: input_projection_in_loop
            return self.head(x)

    tagger = wrap(Tagger().to(dtype))
    windows = torch.randn(batch_size, seq_len, num_sensors, dtype=dtype)
    return Built(lambda: tagger(windows).float())  # same: recurrence_unfused  # same: input_projection_in_loop


KERNELS = (
    Labelled(masks_rebuilt, "eighth", {"batch_size": 2, "dim": 16, "seq_len": 12}, tolerance=5e-2),
    Labelled(states_retained, "eighth", {"batch_size": 2, "seq_len": 12, "dim": 16}, tolerance=5e-2),
    Labelled(choices_scored, "eighth", {"num_questions": 2, "dim": 16, "vocab_size": 50}, tolerance=5e-2),
    Labelled(walks_embedded, "eighth", {"num_nodes": 80, "batch_size": 6}, training=True),
    Labelled(queries_normalised, "eighth", {"batch_size": 2, "dim": 16, "image_size": 64}, tolerance=5e-2),
    Labelled(movements_tagged, "eighth", {"batch_size": 3, "seq_len": 10, "hidden_size": 16}, tolerance=5e-2),
)
EIGHTH = (*HOSTS, *WAITING, *LOOPS, *KERNELS, *NEAR)
