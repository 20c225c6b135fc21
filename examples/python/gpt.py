#!/usr/bin/python3
"""A small GPT that learns the letters of a text, which it makes up first."""
import argparse
import math
import random

import ringmaster.torch
import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--context", type=int, default=64)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--rate", type=float, default=1e-3)
options = parser.parse_args()


def made_up_text(sentences):
    draw = random.Random(1)
    who = ["the cat", "a dog", "my neighbour", "the old king", "nobody", "the ring"]
    does = ["sees", "likes", "carries", "forgets", "waits for", "runs around"]
    what = ["the house", "a wheel", "the sea", "every letter", "the night", "a small bird"]
    return "".join(f"{draw.choice(who)} {draw.choice(does)} {draw.choice(what)}.\n" for _ in range(sentences))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1 = nn.LayerNorm(options.width)
        self.attention = nn.Linear(options.width, 3 * options.width)
        self.projection = nn.Linear(options.width, options.width)
        self.norm_2 = nn.LayerNorm(options.width)
        self.perceptron = nn.Sequential(
            nn.Linear(options.width, 4 * options.width), nn.GELU(),
            nn.Linear(4 * options.width, options.width), nn.Dropout(options.dropout))
        self.dropout = nn.Dropout(options.dropout)
        mask = torch.ones(options.context, options.context, dtype=torch.bool).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        rows, length, width = x.shape
        parts = self.attention(self.norm_1(x)).view(rows, length, 3, options.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        weights = query @ key.transpose(2, 3) / math.sqrt(key.shape[-1])
        weights = weights.masked_fill(self.mask[:length, :length], -math.inf).softmax(-1)
        mixed = (self.dropout(weights) @ value).transpose(1, 2).reshape(rows, length, width)
        x = x + self.dropout(self.projection(mixed))
        return x + self.perceptron(self.norm_2(x))


class GPT(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.letters = nn.Embedding(letters, options.width)
        self.places = nn.Embedding(options.context, options.width)
        self.blocks = nn.Sequential(*(Block() for _ in range(options.layers)))
        self.norm = nn.LayerNorm(options.width)
        self.head = nn.Linear(options.width, letters, bias=False)
        self.head.weight = self.letters.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, x, y):
        x = self.letters(x) + self.places(torch.arange(x.shape[1]))
        return functional.cross_entropy(self.head(self.norm(self.blocks(x))).flatten(0, 1), y.flatten())


torch.manual_seed(1337)
text = made_up_text(2000)
letters = sorted(set(text))
data = torch.tensor([letters.index(letter) for letter in text])
model = GPT(len(letters))
matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
vectors = [parameter for parameter in model.parameters() if parameter.dim() == 1]
optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                              lr=options.rate, betas=(0.9, 0.95))


def get_batch(rows):
    begin = torch.randint(len(data) - options.context, (rows,))
    x = torch.stack([data[i:i + options.context] for i in begin])
    y = torch.stack([data[i + 1:i + 1 + options.context] for i in begin])
    return x, y


def rate(step, warm=20):
    if step < warm:
        return options.rate * (step + 1) / warm
    return options.rate * (0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm) / max(1, options.steps - warm))))


job = ringmaster.torch.attach(model, optimizer, batch=options.batch, steps=options.steps, clip_norm=1.0)
for shard in job.shards():
    step = shard.step
    for group in optimizer.param_groups:
        group["lr"] = rate(step)
    x, y = get_batch(shard.rows)
    loss = model(x, y)
    shard.backward(loss)
    if step % 10 == 0 and shard.shard == 0:
        print(f"step {step}: loss {loss.item():.4f}")
