#!/usr/bin/python3
"""Fine-tunes a network whose first layers are somebody else's: they are loaded, kept as they are, and a head is trained.

Without --weights the weights that are loaded are made up first: a bank of edges, spots and colours.
"""
import argparse
import math

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--weights", help="of torch.save: a state dict that has first.weight and first.bias")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--rate", type=float, default=2e-3)
options = parser.parse_args()


def loaded():
    if options.weights:
        return torch.load(options.weights, map_location="cpu", weights_only=True)
    place = torch.arange(7) - 3.0
    rows, columns = torch.meshgrid(place, place, indexing="ij")
    window = torch.exp(-(rows ** 2 + columns ** 2) / 8)
    waves = [torch.cos(size * (math.cos(angle) * rows + math.sin(angle) * columns) + shift)
             for size in (0.5, 1.0, 1.5) for angle in (0, 0.8, 1.6, 2.4) for shift in (0, 1.57)]
    bank = torch.stack([wave * window for wave in waves])
    bank = (bank - bank.mean((1, 2), keepdim=True)).unsqueeze(1) / 7
    return {"first.weight": bank, "first.bias": torch.zeros(len(bank))}


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 24, 7, padding=3)
        self.second = nn.Sequential(nn.Conv2d(48, 32, 3, 2), nn.GroupNorm(4, 32), nn.ReLU())
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(32 * 49, 4))

    def forward(self, x):
        x = self.first(x)
        x = functional.max_pool2d(torch.cat([x, -x], 1).relu(), 2)
        return self.head(self.second(x))


def get_batch(rows):
    """Stripes of four directions under noise."""
    y = torch.randint(4, (rows,))
    place = torch.arange(32.0)
    angle = (y * math.pi / 4 + 0.3 * torch.randn(rows)).view(-1, 1, 1)
    wave = torch.cos(0.8 * (place.view(1, -1, 1) * angle.cos() + place * angle.sin()) + 6 * torch.rand(rows, 1, 1))
    return (wave + torch.randn(rows, 32, 32)).unsqueeze(1), y


torch.manual_seed(5)
model = Network()
model.load_state_dict(loaded(), strict=False)
model.first.requires_grad_(False)
optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad], lr=options.rate)

for step in range(options.steps):
    x, y = get_batch(options.batch)
    out = model(x)
    loss = functional.cross_entropy(out, y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
