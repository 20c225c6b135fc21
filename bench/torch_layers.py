"""What the nets of torch_models.py are made of: modules that PyTorch lacks, and chains of layers.

PyTorch gets images as N,C,H,W. A module's parameters stand in the order of the zoo's.
"""

import collections
import functools

import torch
from torch import nn


class Residual(nn.Module):
    """body(x) + shortcut(x), and what comes behind."""

    def __init__(self, body, shortcut=None, behind=None):
        super().__init__()
        self.body = body
        self.shortcut = shortcut or nn.Identity()
        self.behind = behind or nn.Identity()

    def forward(self, x):
        return self.behind(self.body(x) + self.shortcut(x))


class ZeroShortcut(nn.Module):
    """Every other pixel, between channels of zeros."""

    def __init__(self, channels):
        super().__init__()
        self.pads = (0, 0, 0, 0, channels // 2, channels - channels // 2)

    def forward(self, x):
        return nn.functional.pad(x[:, :, ::2, ::2], self.pads)


class Branches(nn.ModuleList):
    """Modules side by side, and the channels of all of them."""

    def forward(self, x):
        return torch.cat([branch(x) for branch in self], dim=1)


class Relu6(nn.ReLU6):
    """PyTorch 1.13 has no backward of its own in bfloat16 on CPUs."""

    def forward(self, x):
        return torch.clamp(x, 0, 6) if x.dtype == torch.bfloat16 else super().forward(x)


class GroupNorm(nn.GroupNorm):
    """PyTorch 1.13 has none on CPUs for images in bfloat16 with parameters in float32."""

    def forward(self, x):
        if x.dtype != torch.bfloat16 or x.is_cuda:
            return super().forward(x)
        return nn.functional.group_norm(x, self.num_groups, self.weight.bfloat16(), self.bias.bfloat16(), self.eps)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.weights = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, filters, 1), nn.SiLU(inplace=True),
                                     nn.Conv2d(filters, channels, 1), nn.Sigmoid())

    def forward(self, x):
        return x * self.weights(x)


class DropSamples(nn.Module):
    """Whole samples become zeros at this rate, the others grow."""

    def __init__(self, rate):
        super().__init__()
        self.keep = 1 - rate

    def forward(self, x):
        if not self.training:
            return x
        return x * x.new_empty((x.shape[0], 1, 1, 1)).bernoulli_(self.keep).div_(self.keep)


class OffsetNorm(nn.BatchNorm2d):
    """Without gamma. cuDNN wants one: it is 1 and no parameter."""

    def __init__(self, channels, **options):
        super().__init__(channels, **options)
        del self.weight
        self.register_buffer("weight", torch.ones(channels))


def norms(kind=nn.BatchNorm2d, epsilon=1e-3, momentum=0.99):
    """Makes batch normalizations of so many channels. PyTorch's momentum is the new value's share."""
    return functools.partial(kind, eps=epsilon, momentum=1 - momentum)


class Layers:
    """Layers one behind the other; knows the channels, or features, of the last one and an image's size."""

    def __init__(self, channels, size=(1, 1), norm=norms()):
        """norm(channels) makes a normalization."""
        self.named = collections.OrderedDict()
        self.channels = channels
        self.size = size
        self.norm = norm

    def like(self):
        """An empty chain behind the same layer."""
        return Layers(self.channels, self.size, self.norm)

    def add(self, name, layer):
        self.named[name] = layer

    def margins(self, kernel, stride, padding):
        """(low, high) of height and of width. `padding`: a margin all round, (low, high) of both axes, or Keras' same:
        the odd one below, to the right."""
        if padding == "same":
            both = [max(-extent % stride - stride + length, 0) for extent, length in zip(self.size, kernel)]
            return [(margin // 2, margin - margin // 2) for margin in both]
        return [padding if isinstance(padding, tuple) else (padding, padding)] * 2

    def slide(self, window, stride, margins):
        """The size is then what a window that slides over an image makes of it."""
        self.size = tuple((extent + low + high - length) // stride + 1
                          for extent, length, (low, high) in zip(self.size, window, margins))

    def convolution(self, name, filters, kernel, stride=1, padding="same", **options):
        """`kernel`: a length, or height and width; `padding`: see margins."""
        kernel = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        rows, columns = margins = self.margins(kernel, stride, padding)
        even = rows[0] == rows[1] and columns[0] == columns[1]
        if not even:
            self.add(f"{name}_pad", nn.ZeroPad2d((*columns, *rows)))
        own = (rows[0], columns[0]) if even else 0
        self.add(name, nn.Conv2d(self.channels, filters, kernel, stride, own, **options))
        self.channels = filters
        self.slide(kernel, stride, margins)

    def depthwise(self, name, kernel, stride=1, padding="same"):
        self.convolution(name, self.channels, kernel, stride, padding, groups=self.channels, bias=False)

    def normalize(self, name):
        self.add(name, self.norm(self.channels))

    def unit(self, name, *convolution, activation=None, bias=False, **options):
        """A convolution, its normalization, an activation."""
        self.convolution(f"{name}_conv", *convolution, bias=bias, **options)
        self.normalized(name, activation)

    def normalized(self, name, activation=None):
        self.normalize(f"{name}_norm")
        if activation is not None:
            self.add(f"{name}_act", activation(inplace=True))

    def max_pool(self, name, window=2, stride=2, padding=0):
        self.add(name, nn.MaxPool2d(window, stride, padding))
        self.slide((window, window), stride, [(padding, padding)] * 2)

    def average_pool(self, name):
        """Of 3x3 pixels, in the same size; those round the image do not count."""
        self.add(name, nn.AvgPool2d(3, 1, 1, count_include_pad=False))

    def branches(self, name, chains):
        """Chains that are all behind the last layer, side by side."""
        self.add(name, Branches(chain.module() for chain in chains))
        self.channels = sum(chain.channels for chain in chains)
        self.size = chains[0].size

    def flatten(self):
        self.add("flatten", nn.Flatten())
        self.channels *= self.size[0] * self.size[1]
        self.size = (1, 1)

    def average(self):
        self.add("pool", nn.AdaptiveAvgPool2d(1))
        self.size = (1, 1)
        self.flatten()

    def dense(self, name, units, bias=True):
        self.add(name, nn.Linear(self.channels, units, bias=bias))
        self.channels = units

    def dropout(self, name, rate):
        if rate > 0:
            self.add(name, nn.Dropout(rate))

    def top(self, classes, head, head_dropout, own=None):
        """The head that the options want; own() if it is the model's own, which is else an average."""
        if head == "own":
            (own or self.average)()
        elif head == "gap":
            self.average()
            self.dropout("dropout", head_dropout)
        else:
            raise ValueError(f"head {head}: expected own or gap")
        self.dense("fc", classes)
        return self.module()

    def module(self):
        return nn.Sequential(self.named)


def start(image, **options):
    """A chain behind images of (height, width, channels)."""
    height, width, channels = image
    return Layers(channels, (height, width), **options)
