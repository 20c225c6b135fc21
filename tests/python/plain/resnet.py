#!/usr/bin/python3
"""A small residual network with batch normalization that tells apart ten kinds of pictures, which it makes up first."""
import argparse

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--pictures", type=int, default=2560)
parser.add_argument("--size", type=int, default=32)
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--rate", type=float, default=0.1)
options = parser.parse_args()


class Pictures(Dataset):
    """Noise around a picture of each class; flipped at random where they are to be trained with."""

    def __init__(self, number, seed, flips):
        draw = torch.Generator().manual_seed(0)
        classes = torch.randn(10, 3, 8, 8, generator=draw)
        classes = functional.interpolate(classes, size=options.size, mode="bilinear", align_corners=False)
        draw.manual_seed(seed)
        self.labels = torch.randint(10, (number,), generator=draw)
        self.pictures = classes[self.labels] + torch.randn(number, 3, options.size, options.size, generator=draw)
        self.flips = flips

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, number):
        picture = self.pictures[number]
        if self.flips and torch.rand(()) < 0.5:
            picture = picture.flip(-1)
        return picture, self.labels[number]


def convolution(before, behind, stride=1):
    return nn.Sequential(nn.Conv2d(before, behind, 3, stride, 1, bias=False), nn.BatchNorm2d(behind))


class Block(nn.Module):
    def __init__(self, before, behind, stride):
        super().__init__()
        self.first = convolution(before, behind, stride)
        self.second = convolution(behind, behind)
        self.shortcut = nn.Conv2d(before, behind, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        return functional.relu(self.second(functional.relu(self.first(x))) + self.shortcut(x))


torch.manual_seed(1)
train, test = Pictures(options.pictures, 1, flips=True), Pictures(500, 2, flips=False)
width = options.width
model = nn.Sequential(
    convolution(3, width), nn.ReLU(), Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))
steps = options.epochs * (len(train) // options.batch)
optimizer = torch.optim.SGD(model.parameters(), lr=options.rate, momentum=0.9, nesterov=True, weight_decay=5e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)


def evaluate():
    model.eval()
    with torch.no_grad():
        correct = sum(int((model(x).argmax(1) == y).sum()) for x, y in DataLoader(test, batch_size=100))
    model.train()
    print(f"test accuracy {correct / len(test):.3f}")


def batches():
    loader = DataLoader(train, batch_size=options.batch, shuffle=True, drop_last=True)
    for _ in range(options.epochs):
        yield from loader


for step, (x, y) in enumerate(batches()):
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
    if step % 20 == 0:
        evaluate()
