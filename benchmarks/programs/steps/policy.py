"""An update of proximal policy optimization: advantages backwards in time, epochs of small batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from sizes import DEVICE, size
from torch import Tensor, nn

STATE, ACTIONS, WIDTH = 32, 6, size(256, 16)
LENGTH, PLAYERS, EPOCHS, PARTS = size(32, 8), size(64, 4), 1, 4


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.policy, self.value = (
            nn.Sequential(nn.Linear(STATE, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, out))
            for out in (ACTIONS, 1)
        )

    def forward(self, states: Tensor) -> tuple[Tensor, Tensor]:
        return self.policy(states), self.value(states).squeeze(-1)


def advantages_of(rewards: Tensor, values: Tensor, ends: Tensor) -> Tensor:
    found = torch.zeros_like(rewards)
    last = torch.zeros(PLAYERS, device=rewards.device)
    for at in reversed(range(LENGTH)):
        after = values[at + 1] if at + 1 < LENGTH else torch.zeros(PLAYERS, device=rewards.device)
        delta = rewards[at] + 0.99 * after * (1 - ends[at]) - values[at]
        last = delta + 0.99 * 0.95 * (1 - ends[at]) * last
        found[at] = last
    return found


def build() -> Any:
    agent = Agent().to(DEVICE)
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5, foreach=False)
    batches, count = [], LENGTH * PLAYERS
    for _ in range(2):
        states, actions = torch.randn(count, STATE, device=DEVICE), torch.randint(0, ACTIONS, (count,), device=DEVICE)
        rewards, values = torch.randn(2, LENGTH, PLAYERS, device=DEVICE)
        ends, before = (
            (torch.rand(LENGTH, PLAYERS, device=DEVICE) < 0.02).float(),
            torch.randn(count, device=DEVICE) - 2,
        )
        batches.append((states, actions, rewards, values, ends, before))
    shown: list[Any] = []

    def learn(states: Tensor, actions: Tensor, before: Tensor, gains: Tensor, wanted: Tensor) -> Tensor:
        logits, value = agent(states)
        said = torch.log_softmax(logits, -1)
        after = said.gather(1, actions[:, None]).squeeze(1)
        ratio = (after - before).exp()
        gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        surrogate = torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean()
        entropy = -(said.exp() * said).sum(-1).mean()
        loss = -surrogate + 0.5 * (value - wanted).pow(2).mean() - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        shown.append(
            {"loss": loss.item(), "entropy": entropy.item(), "clipped": ((ratio - 1).abs() > 0.2).float().mean().item()}
        )
        return loss.detach()

    def run(batch: Any) -> Tensor:
        states, actions, rewards, values, ends, before = batch
        gains = advantages_of(rewards, values, ends)
        wanted, gains = (gains + values).flatten(), gains.flatten()
        for _ in range(EPOCHS):
            for part in torch.randperm(count, device=DEVICE).chunk(PARTS):
                loss = learn(states[part], actions[part], before[part], gains[part], wanted[part])
        return loss

    return SimpleNamespace(run=run, batches=batches, parameters=agent.named_parameters, modules=[agent])
