"""The zoo's models (common/zoo) as PyTorch modules, layer by layer with the same names.

For vs_pytorch.py. PyTorch gets images as N,C,H,W. Where a model flattens an image, its features
stand in another order than ours (C,H,W against H,W,C) unless height and width are 1.
"""

import collections

import torch
from torch import nn

EPSILON = 1e-3  # of every batch normalization
MOMENTUM = 1 - 0.99  # PyTorch's is the new value's share

VGG_CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
VGG_FILTERS = (64, 128, 256, 512, 512)


class _Layers:
    """Collects named layers; knows the channels, or features, of the last one."""

    def __init__(self, channels):
        self.named = collections.OrderedDict()
        self.channels = channels

    def add(self, name, layer):
        self.named[name] = layer

    def convolution_block(self, number, filters, batch_norm):
        self.add(f"conv{number}", nn.Conv2d(self.channels, filters, 3, padding=1, bias=not batch_norm))
        if batch_norm:
            self.add(f"bn{number}", nn.BatchNorm2d(filters, eps=EPSILON, momentum=MOMENTUM))
        self.add(f"relu{number}", nn.ReLU(inplace=True))
        self.channels = filters

    def dense(self, name, units, bias=True):
        self.add(name, nn.Linear(self.channels, units, bias=bias))
        self.channels = units

    def dropout(self, name, rate):
        if rate > 0:
            self.add(name, nn.Dropout(rate))

    def module(self):
        return nn.Sequential(self.named)


def alexnet(image, classes, batch_norm=False, dropout=0.0):
    layers = _Layers(image[2])
    for number, filters in enumerate((96, 256, 384, 384, 256), start=1):
        layers.convolution_block(number, filters, batch_norm)
        if number <= 2:
            layers.add(f"pool{number}", nn.MaxPool2d(2))
    layers.add("pool3", nn.AdaptiveAvgPool2d(1))
    layers.add("flatten", nn.Flatten())
    layers.dropout("dropout", dropout)
    layers.dense("fc", classes)
    return layers.module()


def mlp(image, classes, hidden=(2048, 2048), dropout=0.0):
    height, width, channels = image
    layers = _Layers(height * width * channels)
    layers.add("flatten", nn.Flatten())
    for number, units in enumerate(hidden, start=1):
        layers.dense(f"dense{number}", units)
        layers.add(f"relu{number}", nn.ReLU(inplace=True))
        layers.dropout(f"dropout{number}", dropout)
    layers.dense("fc", classes)
    return layers.module()


def vgg(image, classes, batch_norm=True, dropout=0.5, depth=16):
    height, width, channels = image
    layers = _Layers(channels)
    number = 0
    for stage, count in enumerate(VGG_CONVOLUTIONS[depth]):
        for _ in range(count):
            number += 1
            layers.convolution_block(number, VGG_FILTERS[stage], batch_norm)
        layers.add(f"pool{stage + 1}", nn.MaxPool2d(2))
    layers.add("flatten", nn.Flatten())
    layers.channels *= (height // 32) * (width // 32)
    layers.dropout("dropout1", dropout)
    layers.dense("dense1", 512, bias=not batch_norm)
    if batch_norm:
        layers.add(f"bn{number + 1}", nn.BatchNorm1d(512, eps=EPSILON, momentum=MOMENTUM))
    layers.add(f"relu{number + 1}", nn.ReLU(inplace=True))
    layers.dropout("dropout2", dropout)
    layers.dense("fc", classes)
    return layers.module()


MODELS = {"alexnet": alexnet, "mlp": mlp, "vgg": vgg}


def build(name, image=(32, 32, 3), classes=10, **options):
    """The model `name` with the zoo's options, for images (height, width, channels)."""
    if name not in MODELS:
        raise ValueError(f"there is no model named {name}; expected one of {', '.join(MODELS)}")
    return MODELS[name](image, classes, **options)
