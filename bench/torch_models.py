"""The zoo's models (common/zoo) as PyTorch modules, layer by layer, in the zoo's order.

For vs_pytorch.py; tests/parity/zoo_models_parity.py holds them against the zoo's graphs. A family is a
function here, as it is a file there; a row of MODELS is a row of the zoo's table. PyTorch gets images as
N,C,H,W. Where a model flattens an image, its features stand in another order than ours (C,H,W against
H,W,C) unless height and width are 1.
"""

import collections
import functools

import torch
from torch import nn

VGG_CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
VGG_FILTERS = (64, 128, 256, 512, 512)
# Filters, stride.
MOBILENET_BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1),
                    (512, 1), (512, 1), (1024, 2), (1024, 1))
# Kernel, repeats, filters, expansion, stride.
EFFICIENTNET_STAGES = ((3, 1, 16, 1, 1), (3, 2, 24, 6, 2), (5, 2, 40, 6, 2), (3, 3, 80, 6, 2), (5, 3, 112, 6, 1),
                       (5, 4, 192, 6, 2), (3, 1, 320, 6, 1))


class _Residual(nn.Module):
    """body(x) + shortcut(x), and what comes behind."""

    def __init__(self, body, shortcut=None, behind=None):
        super().__init__()
        self.body = body
        self.shortcut = shortcut or nn.Identity()
        self.behind = behind or nn.Identity()

    def forward(self, x):
        return self.behind(self.body(x) + self.shortcut(x))


class _ZeroShortcut(nn.Module):
    """Every other pixel, between channels of zeros."""

    def __init__(self, channels):
        super().__init__()
        self.pads = (0, 0, 0, 0, channels // 2, channels - channels // 2)

    def forward(self, x):
        return nn.functional.pad(x[:, :, ::2, ::2], self.pads)


class _Relu6(nn.ReLU6):
    """PyTorch 1.13 has no backward of its own in bfloat16 on CPUs."""

    def forward(self, x):
        return torch.clamp(x, 0, 6) if x.dtype == torch.bfloat16 else super().forward(x)


class _SqueezeExcite(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.weights = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, filters, 1), nn.SiLU(inplace=True),
                                     nn.Conv2d(filters, channels, 1), nn.Sigmoid())

    def forward(self, x):
        return x * self.weights(x)


class _DropSamples(nn.Module):
    """Whole samples become zeros at this rate, the others grow."""

    def __init__(self, rate):
        super().__init__()
        self.keep = 1 - rate

    def forward(self, x):
        if not self.training:
            return x
        return x * x.new_empty((x.shape[0], 1, 1, 1)).bernoulli_(self.keep).div_(self.keep)


class _Layers:
    """Layers one behind the other; knows the channels, or features, of the last one and an image's size."""

    def __init__(self, channels, size=(1, 1), epsilon=1e-3, momentum=0.99):
        self.named = collections.OrderedDict()
        self.channels = channels
        self.size = size
        self.statistics = {"eps": epsilon, "momentum": 1 - momentum}  # PyTorch's is the new value's share

    def like(self):
        """An empty chain behind the same layer."""
        return _Layers(self.channels, self.size, self.statistics["eps"], 1 - self.statistics["momentum"])

    def add(self, name, layer):
        self.named[name] = layer

    def convolution(self, name, filters, kernel, stride=1, padding="same", **options):
        """`padding`: a margin all round, (low, high) of both axes, or Keras' same: the odd one below, to the right."""
        extents = self.size
        if padding == "same":
            margins = [max(-extent % stride - stride + kernel, 0) for extent in extents]
            padding = (margins[0] // 2, margins[0] - margins[0] // 2)
            assert margins[0] == margins[1], f"{name}: images of {extents}: expected the same margins of both axes"
        low, high = padding if isinstance(padding, tuple) else (padding, padding)
        if low != high:
            self.add(f"{name}_pad", nn.ZeroPad2d((low, high, low, high)))
        self.add(name, nn.Conv2d(self.channels, filters, kernel, stride, low if low == high else 0, **options))
        self.channels = filters
        self.size = tuple((extent + low + high - kernel) // stride + 1 for extent in extents)

    def depthwise(self, name, kernel, stride=1, padding="same"):
        self.convolution(name, self.channels, kernel, stride, padding, groups=self.channels, bias=False)

    def batch_norm(self, name):
        self.add(name, nn.BatchNorm2d(self.channels, **self.statistics))

    def unit(self, name, *convolution, activation=None, bias=False, **options):
        """A convolution, its normalization, an activation."""
        self.convolution(f"{name}_conv", *convolution, bias=bias, **options)
        self.normalized(name, activation)

    def normalized(self, name, activation=None):
        self.batch_norm(f"{name}_bn")
        if activation is not None:
            self.add(f"{name}_act", activation(inplace=True))

    def pool(self, name, window=2, stride=2, padding=0):
        self.add(name, nn.MaxPool2d(window, stride, padding))
        self.size = tuple((extent + 2 * padding - window) // stride + 1 for extent in self.size)

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

    def top(self, classes, head, head_dropout, own):
        """The head that the options want, own() if it is the model's own."""
        if head == "own":
            own()
        elif head == "gap":
            self.average()
            self.dropout("dropout", head_dropout)
        else:
            raise ValueError(f"head {head}: expected own or gap")
        self.dense("fc", classes)
        return self.module()

    def module(self):
        return nn.Sequential(self.named)


def _start(image, **statistics):
    height, width, channels = image
    return _Layers(channels, (height, width), **statistics)


def alexnet(image, classes, batch_norm=False, dropout=0.0):
    layers = _start(image)
    for number, filters in enumerate((96, 256, 384, 384, 256), start=1):
        _vgg_convolution(layers, f"{number}", filters, batch_norm)
        if number <= 2:
            layers.pool(f"pool{number}")
    layers.average()
    layers.dropout("dropout", dropout)
    layers.dense("fc", classes)
    return layers.module()


def mlp(image, classes, hidden=(2048, 2048), dropout=0.0):
    layers = _start(image)
    layers.flatten()
    for number, units in enumerate(hidden, start=1):
        layers.dense(f"dense{number}", units)
        layers.add(f"relu{number}", nn.ReLU(inplace=True))
        layers.dropout(f"dropout{number}", dropout)
    layers.dense("fc", classes)
    return layers.module()


def _vgg_convolution(layers, number, filters, batch_norm):
    layers.convolution(f"conv{number}", filters, 3, padding=1, bias=not batch_norm)
    if batch_norm:
        layers.batch_norm(f"bn{number}")
    layers.add(f"relu{number}", nn.ReLU(inplace=True))


def _vgg_stages(layers, depth, batch_norm):
    for stage, count in enumerate(VGG_CONVOLUTIONS[depth], start=1):
        for number in range(1, count + 1):
            _vgg_convolution(layers, f"{stage}_{number}", VGG_FILTERS[stage - 1], batch_norm)
        layers.pool(f"pool{stage}")


def vgg(image, classes, batch_norm=True, dropout=0.5, depth=16):
    layers = _start(image)
    _vgg_stages(layers, depth, batch_norm)
    layers.flatten()
    layers.dropout("dropout1", dropout)
    layers.dense("dense1", 512, bias=not batch_norm)
    if batch_norm:
        layers.add("bn", nn.BatchNorm1d(512, **layers.statistics))
    layers.add("relu", nn.ReLU(inplace=True))
    layers.dropout("dropout2", dropout)
    layers.dense("fc", classes)
    return layers.module()


def keras_vgg(depth, image, classes, head="own", head_dropout=0.0):
    layers = _start(image)
    _vgg_stages(layers, depth, batch_norm=False)

    def own():
        layers.flatten()
        for name in ("fc1", "fc2"):
            layers.dense(name, 4096)
            layers.add(f"{name}_relu", nn.ReLU(inplace=True))

    return layers.top(classes, head, head_dropout, own)


def _resnet_block(layers, filters, stride, expansion, stride_first, bias, zeros):
    body, outputs = layers.like(), filters * expansion
    if expansion > 1:
        body.unit("a", filters, 1, stride if stride_first else 1, 0, activation=nn.ReLU, bias=bias)
        body.unit("b", filters, 3, 1 if stride_first else stride, 1, activation=nn.ReLU, bias=bias)
        body.unit("c", outputs, 1, 1, 0, bias=bias)
    else:
        body.unit("a", filters, 3, stride, 1, activation=nn.ReLU, bias=bias)
        body.unit("b", filters, 3, 1, 1, bias=bias)
    shortcut = None
    if stride != 1 or layers.channels != outputs:
        if zeros:
            shortcut = _ZeroShortcut(outputs - layers.channels)
        else:
            project = layers.like()
            project.unit("shortcut", outputs, 1, stride, 0, bias=bias)
            shortcut = project.module()
    layers.channels, layers.size = outputs, body.size
    return _Residual(body.module(), shortcut, nn.ReLU(inplace=True))


def resnet(blocks, image, classes, head="own", head_dropout=0.0, filters=64, expansion=4, stride_first=False,
           bias=False, zeros=False, imagenet=True, epsilon=1e-5, momentum=0.9):
    layers = _start(image, epsilon=epsilon, momentum=momentum)
    if imagenet:
        layers.unit("stem", 64, 7, 2, 3, activation=nn.ReLU, bias=bias)
        layers.pool("stem_pool", 3, 2, 1)
    else:
        layers.unit("stem", filters, 3, 1, 1, activation=nn.ReLU, bias=bias)
    for stage, count in enumerate(blocks):
        for number in range(count):
            stride = 2 if stage > 0 and number == 0 else 1
            block = _resnet_block(layers, filters << stage, stride, expansion, stride_first, bias, zeros)
            layers.add(f"stage{stage + 1}_block{number + 1}", block)
    return layers.top(classes, head, head_dropout, layers.average)


def mobilenet(image, classes, head="own", head_dropout=0.0, dropout=1e-3):
    layers = _start(image)
    layers.unit("stem", 32, 3, 2, activation=_Relu6)
    for number, (filters, stride) in enumerate(MOBILENET_BLOCKS, start=1):
        layers.depthwise(f"block{number}_depthwise_conv", 3, stride, "same" if stride == 1 else (0, 1))
        layers.normalized(f"block{number}_depthwise", _Relu6)
        layers.unit(f"block{number}_pointwise", filters, 1, activation=_Relu6)

    def own():
        layers.average()
        layers.dropout("dropout", dropout)

    return layers.top(classes, head, head_dropout, own)


def _efficientnet_block(layers, kernel, filters, expansion, stride, drop):
    body, channels = layers.like(), layers.channels
    if expansion > 1:
        body.unit("expand", channels * expansion, 1, activation=nn.SiLU)
    body.depthwise("depthwise_conv", kernel, stride)
    body.normalized("depthwise", nn.SiLU)
    body.add("excite", _SqueezeExcite(body.channels, max(1, channels // 4)))
    body.unit("project", filters, 1)
    layers.channels, layers.size = filters, body.size
    if stride != 1 or channels != filters:
        return body.module()
    if drop > 0:
        body.add("drop", _DropSamples(drop))
    return _Residual(body.module())


def efficientnet_b0(image, classes, head="own", head_dropout=0.0, dropout=0.2, drop_connect=0.2):
    layers = _start(image)
    layers.unit("stem", 32, 3, 2, activation=nn.SiLU)
    blocks = sum(stage[1] for stage in EFFICIENTNET_STAGES)
    number = 0
    for kernel, repeats, filters, expansion, stride in EFFICIENTNET_STAGES:
        for repeat in range(repeats):
            block = _efficientnet_block(layers, kernel, filters, expansion, stride if repeat == 0 else 1,
                                        drop_connect * number / blocks)
            number += 1
            layers.add(f"block{number}", block)
    layers.unit("top", 1280, 1, activation=nn.SiLU)

    def own():
        layers.average()
        layers.dropout("dropout", dropout)

    return layers.top(classes, head, head_dropout, own)


MODELS = {
    "alexnet": alexnet,
    "efficientnetb0": efficientnet_b0,
    "mlp": mlp,
    "mobilenet": mobilenet,
    "resnet18": functools.partial(resnet, (2, 2, 2, 2), expansion=1),
    "resnet20": functools.partial(resnet, (3, 3, 3), filters=16, expansion=1, zeros=True, imagenet=False),
    "resnet50": functools.partial(resnet, (3, 4, 6, 3), stride_first=True, bias=True, epsilon=1.001e-5, momentum=0.99),
    "resnet50v1.5": functools.partial(resnet, (3, 4, 6, 3)),
    "vgg": vgg,
    "vgg16": functools.partial(keras_vgg, 16),
    "vgg19": functools.partial(keras_vgg, 19),
}


def build(name, image=(32, 32, 3), classes=10, **options):
    """The model `name` with the zoo's options, for images (height, width, channels)."""
    if name not in MODELS:
        raise ValueError(f"there is no model named {name}; expected one of {', '.join(MODELS)}")
    return MODELS[name](image, classes, **options)
