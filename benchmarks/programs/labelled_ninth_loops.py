"""Loops over frames, qubits and weights, and an optimizer for each tensor: of `labelled_ninth.py`.

Labels: `labels.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from programs.labels import Built, Expected, Labelled
from programs.program import unchanged

HALF = torch.bfloat16
APART = "AdamW was not made to be captured"


def targets_followed(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 32, channels: int = 256
) -> Built:
    """Visual tracking: each pair's template is slid over its search window, a pair at a time, for three levels."""
    num_levels, num_anchors, search_size, template_size = 3, 5, 29, 5

    def xcorr_each(search: Tensor, kernel: Tensor) -> Tensor:
        out = []
        for i in range(search.size(0)):  # cause: python_loop, main
            weight = kernel[i].unsqueeze(1)
            out.append(F.conv2d(search[i : i + 1], weight, groups=channels))
        return torch.cat(out, dim=0)

    def xcorr_depthwise(search: Tensor, kernel: Tensor) -> Tensor:
        batch = search.size(0)
        weight = kernel.reshape(batch * channels, 1, *kernel.shape[-2:])
        out = F.conv2d(search.reshape(1, batch * channels, *search.shape[-2:]), weight, groups=batch * channels)
        return out.reshape(batch, channels, *out.shape[-2:])

    xcorr = xcorr_depthwise if fixed else xcorr_each

    class DepthwiseHead(nn.Module):
        def __init__(self, out_channels: int) -> None:
            super().__init__()
            self.conv_kernel, self.conv_search = (nn.Conv2d(channels, channels, 3) for _ in range(2))
            layers = [nn.Conv2d(channels, channels, 1), nn.ReLU(), nn.Conv2d(channels, out_channels, 1)]
            self.head = nn.Sequential(*layers)

        def forward(self, template: Tensor, search: Tensor) -> Tensor:
            feature = xcorr(self.conv_search(search), self.conv_kernel(template))  # same: python_loop
            return self.head(feature)

    class MultiRPN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cls = nn.ModuleList(DepthwiseHead(2 * num_anchors) for _ in range(num_levels))
            self.loc = nn.ModuleList(DepthwiseHead(4 * num_anchors) for _ in range(num_levels))
            self.weight = nn.Parameter(torch.zeros(2, num_levels))

        def forward(self, templates: Tensor, searches: Tensor) -> Tensor:
            weight, outputs = self.weight.softmax(dim=1), []
            for heads, shares in zip((self.cls, self.loc), weight, strict=True):  # may: python_loop
                levels = zip(heads, templates, searches, shares, strict=True)
                outputs.append(sum(share * head(z, x) for head, z, x, share in levels))  # same: python_loop
            return torch.cat(outputs, dim=1)

    rpn = wrap(MultiRPN().to(dtype))
    templates = torch.randn(num_levels, batch_size, channels, template_size + 2, template_size + 2, dtype=dtype)
    searches = torch.randn(num_levels, batch_size, channels, search_size + 2, search_size + 2, dtype=dtype)
    return Built(lambda: rpn(templates, searches)[:, :, ::4, ::4].float())  # same: python_loop


def qubits_rotated(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 512, group: int = 4
) -> Built:
    """A quantum classifier, simulated: each layer turns one qubit after another, with a gate made for each."""
    num_qubits, num_layers, num_classes = 3 * group, 5, 4
    dim = 2**num_qubits

    def entangling_signs() -> Tensor:
        """Controlled phases between neighbours, which are signs of basis states."""
        bits = (torch.arange(dim)[:, None] >> torch.arange(num_qubits)) & 1
        return 1.0 - 2.0 * ((bits * bits.roll(1, dims=1)).sum(dim=1) % 2)

    def apply_gate(state: Tensor, gate: Tensor, first: int, width: int = 1) -> Tensor:
        """Multiply amplitudes by a gate on qubits that follow one another."""
        shaped = state.view(-1, 2**first, 2**width, 2 ** (num_qubits - first - width))
        turned = torch.einsum("ij,bljr->blir", gate, shaped)  # same: python_loop  # may: float32_batched_product
        return turned.reshape(state.shape)  # same: python_loop

    def rotation_y(angle: Tensor) -> Tensor:
        cos, sin = torch.cos(angle / 2), torch.sin(angle / 2)
        return torch.stack((torch.stack((cos, -sin)), torch.stack((sin, cos))))  # same: python_loop

    class Circuit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.angles = nn.Parameter(torch.randn(num_layers, num_qubits))
            self.readout = nn.Linear(num_qubits, num_classes)
            self.register_buffer("signs", entangling_signs())
            self.register_buffer("spins", 1.0 - 2.0 * ((torch.arange(dim)[:, None] >> torch.arange(num_qubits)) & 1))

        def rotate(self, state: Tensor, angles: Tensor) -> Tensor:
            for qubit in range(num_qubits):  # cause: python_loop, main  # may: recurrence_unfused
                state = apply_gate(state, rotation_y(angles[qubit]), qubit)
            return state

        def rotate_grouped(self, state: Tensor, angles: Tensor) -> Tensor:
            gates = rotation_y(angles).permute(2, 0, 1).unflatten(0, (-1, group))
            for index, gate in enumerate(self.products(gates)):  # may: python_loop  # may: recurrence_unfused
                state = apply_gate(state, gate, index * group, group)
            return state

        def products(self, gates: Tensor) -> Tensor:
            """(groups, qubits, 2, 2) -> (groups, 2**qubits, 2**qubits): gates side by side."""
            product = gates[:, 0]
            for qubit in range(1, group):  # may: python_loop
                pairs = product[:, :, None, :, None] * gates[:, qubit, None, :, None]
                product = pairs.flatten(3, 4).flatten(1, 2)
            return product

        def forward(self, state: Tensor) -> Tensor:
            rotate = self.rotate_grouped if fixed else self.rotate
            for angles in self.angles:  # may: recurrence_unfused  # may: python_loop
                state = rotate(state, angles) * self.signs  # same: python_loop
            return self.readout(state.square() @ self.spins)  # may: float32_batched_product

    circuit = Circuit()
    optimizer = torch.optim.SGD(circuit.parameters(), lr=0.1, foreach=True)
    forward = wrap(circuit)
    amplitudes = F.normalize(torch.randn(batch_size, dim), dim=1)
    labels = torch.randint(0, num_classes, (batch_size,))

    def train_circuit() -> Tensor:
        loss = F.cross_entropy(forward(amplitudes), labels)  # same: python_loop  # near: linear_cross_entropy
        optimizer.zero_grad(set_to_none=True)  # near: gradient_zeroing
        loss.backward()  # same: python_loop
        optimizer.step()  # near: optimizer_unfused
        return loss.detach()

    return Built(train_circuit, list(circuit.parameters()))


def minima_flattened(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 1024, width: int = 512
) -> Built:
    """Sharpness-aware minimisation, as its popular port has it: up the slope and back again, tensor by tensor."""
    depth, num_classes = 24, 100

    class SAM(torch.optim.Optimizer):
        def __init__(self, params: Iterable[Tensor], rho: float = 0.05, lr: float = 0.02) -> None:
            super().__init__(params, {"rho": rho, "lr": lr})
            self.base_optimizer = torch.optim.SGD(self.param_groups, lr=lr, momentum=0.9, foreach=True)

        @torch.no_grad()
        def first_step(self) -> None:
            grad_norm = self._grad_norm()  # same: parameter_loop
            for group in self.param_groups:  # same: parameter_loop
                scale = group["rho"] / (grad_norm + 1e-12)
                for p in group["params"]:  # cause: parameter_loop, main
                    self.state[p]["old_p"] = p.detach().clone()
                    e_w = p.grad * scale.to(p)
                    p.add_(e_w)

        @torch.no_grad()
        def second_step(self) -> None:
            for group in self.param_groups:  # same: parameter_loop
                for p in group["params"]:  # same: parameter_loop
                    p.copy_(self.state[p]["old_p"])
            self.base_optimizer.step()  # near: optimizer_unfused

        def _grad_norm(self) -> Tensor:
            params = [p for group in self.param_groups for p in group["params"]]
            return torch.stack([p.grad.norm(p=2) for p in params]).norm(p=2)  # same: parameter_loop

    class ListedSAM(SAM):
        """The same, over lists."""

        @torch.no_grad()
        def first_step(self) -> None:
            (group,) = self.param_groups
            params, grads = group["params"], [p.grad for p in group["params"]]
            scale = group["rho"] / (torch.stack(torch._foreach_norm(grads)).norm(p=2) + 1e-12)
            self.old = torch._foreach_add(params, 0.0)
            torch._foreach_add_(params, torch._foreach_mul(grads, scale.to(params[0].dtype)))

        @torch.no_grad()
        def second_step(self) -> None:
            torch._foreach_copy_(self.param_groups[0]["params"], self.old)
            self.base_optimizer.step()

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

        def forward(self, x: Tensor) -> Tensor:
            return x + F.gelu(self.linear(self.norm(x)))

    model = nn.Sequential(*(Layer() for _ in range(depth)), nn.Linear(width, num_classes)).to(dtype)
    optimizer = (ListedSAM if fixed else SAM)(model.parameters())
    forward = wrap(model)
    inputs, labels = torch.randn(batch_size, width, dtype=dtype), torch.randint(0, num_classes, (batch_size,))

    def compute_loss() -> Tensor:
        return F.cross_entropy(forward(inputs).float(), labels)  # near: linear_cross_entropy

    def training_step() -> Tensor:
        loss = compute_loss()
        loss.backward()
        optimizer.first_step()  # same: parameter_loop
        optimizer.zero_grad()  # near: gradient_zeroing
        compute_loss().backward()
        optimizer.second_step()  # same: parameter_loop
        optimizer.zero_grad()  # near: gradient_zeroing
        return loss.detach()

    return Built(training_step, list(model.parameters()))


def notes_predicted(
    wrap: Any = unchanged, fixed: bool = False, dtype: torch.dtype = HALF, batch_size: int = 24, dim: int = 512
) -> Built:
    """Music, fine-tuned with little memory: each tensor has an optimizer, which a hook steps within backward."""
    depth, seq_len, vocab_size, lr = 8, 256, 512, 1e-4

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.heads, self.norm1, self.norm2 = max(1, dim // 64), nn.LayerNorm(dim), nn.LayerNorm(dim)
            self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
            self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).flatten(2))
            return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))

    class MusicLM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Embedding(vocab_size, dim), nn.Linear(dim, vocab_size, bias=False)
            self.blocks = nn.Sequential(*(Block() for _ in range(depth)))

        def forward(self, notes: Tensor) -> Tensor:
            return self.head(self.blocks(self.embed(notes)))  # near: embedding_gradient_dense

    model = MusicLM().to(dtype)

    def step_in_backward(params: Sequence[nn.Parameter]) -> None:
        """Give each parameter an optimizer of its own, so that no gradient outlives its layer's backward."""
        optimizers = {p: torch.optim.AdamW([p], lr=lr, foreach=False) for p in params}

        def optimizer_hook(parameter: nn.Parameter) -> None:
            optimizers[parameter].step()  # cause: optimizer_unfused, main
            optimizers[parameter].zero_grad()  # near: gradient_zeroing

        for p in params:
            p.register_post_accumulate_grad_hook(optimizer_hook)

    params = list(model.parameters())
    fused = torch.optim.AdamW(params, lr=lr, fused=True) if fixed else None
    if fused is None:
        step_in_backward(params)
    forward = wrap(model)
    notes = torch.randint(0, vocab_size, (batch_size, seq_len + 1))

    def training_step() -> Tensor:
        logits = forward(notes[:, :-1]).flatten(0, 1).float()
        loss = F.cross_entropy(logits, notes[:, 1:].flatten())  # near: linear_cross_entropy
        loss.backward()  # same: optimizer_unfused
        if fused is not None:
            fused.step()  # near: optimizer_unfused
            fused.zero_grad(set_to_none=True)  # near: gradient_zeroing
        return loss.detach()

    return Built(training_step, params)


LOOPS = (
    Labelled(targets_followed, "ninth", {"batch_size": 3, "channels": 4}, tolerance=5e-2),
    Labelled(qubits_rotated, "ninth", {"batch_size": 3, "group": 2}, training=True, tolerance=5e-2),
    Labelled(minima_flattened, "ninth", {"batch_size": 4, "width": 16}, training=True, tolerance=5e-2),
    Labelled(notes_predicted, "ninth", {"batch_size": 2, "dim": 16}, Expected(APART), training=True, tolerance=5e-2),
)
