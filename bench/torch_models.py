"""Every model of the zoo (common/zoo) as a PyTorch module, layer by layer, in the zoo's order.

For vs_pytorch.py; tests/parity/zoo_models_parity.py holds them against the zoo's graphs. A family is a
function here, as it is a file there; a row of MODELS is a row of the zoo's table. What they are made of
is in torch_layers.py. Where a model flattens an image, its features stand in another order than ours
(C,H,W against H,W,C) unless height and width are 1.
"""

import functools

import torch
from torch import nn

from torch_layers import DropSamples, GroupNorm, OffsetNorm, Relu6, Residual, SqueezeExcite, ZeroShortcut, norms, start

VGG_CONVOLUTIONS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
VGG_FILTERS = (64, 128, 256, 512, 512)
# Filters, stride.
MOBILENET_BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1),
                    (512, 1), (512, 1), (1024, 2), (1024, 1))
# Expansion, filters, repeats, stride.
MOBILENETV2_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                      (6, 320, 1, 1))
# Kernel, repeats, filters, expansion, stride.
EFFICIENTNET_STAGES = ((3, 1, 16, 1, 1), (3, 2, 24, 6, 2), (5, 2, 40, 6, 2), (3, 3, 80, 6, 2), (5, 3, 112, 6, 1),
                       (5, 4, 192, 6, 2), (3, 1, 320, 6, 1))


def alexnet(image, classes, batch_norm=False, dropout=0.0):
    layers = start(image)
    for number, filters in enumerate((96, 256, 384, 384, 256), start=1):
        _vgg_convolution(layers, f"{number}", filters, batch_norm)
        if number <= 2:
            layers.max_pool(f"pool{number}")
    layers.average()
    layers.dropout("dropout", dropout)
    layers.dense("fc", classes)
    return layers.module()


def mlp(image, classes, hidden=(2048, 2048), dropout=0.0):
    layers = start(image)
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
        layers.normalize(f"bn{number}")
    layers.add(f"relu{number}", nn.ReLU(inplace=True))


def _vgg_stages(layers, depth, batch_norm):
    for stage, count in enumerate(VGG_CONVOLUTIONS[depth], start=1):
        for number in range(1, count + 1):
            _vgg_convolution(layers, f"{stage}_{number}", VGG_FILTERS[stage - 1], batch_norm)
        layers.max_pool(f"pool{stage}")


def vgg(image, classes, batch_norm=True, dropout=0.5, depth=16):
    layers = start(image)
    _vgg_stages(layers, depth, batch_norm)
    layers.flatten()
    layers.dropout("dropout1", dropout)
    layers.dense("dense1", 512, bias=not batch_norm)
    if batch_norm:
        layers.add("bn", norms(nn.BatchNorm1d)(512))
    layers.add("relu", nn.ReLU(inplace=True))
    layers.dropout("dropout2", dropout)
    layers.dense("fc", classes)
    return layers.module()


def keras_vgg(depth, image, classes, head="own", head_dropout=0.0):
    layers = start(image)
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
            shortcut = ZeroShortcut(outputs - layers.channels)
        else:
            project = layers.like()
            project.unit("shortcut", outputs, 1, stride, 0, bias=bias)
            shortcut = project.module()
    layers.channels, layers.size = outputs, body.size
    return Residual(body.module(), shortcut, nn.ReLU(inplace=True))


def resnet(blocks, image, classes, head="own", head_dropout=0.0, filters=64, expansion=4, stride_first=False,
           bias=False, zeros=False, imagenet=True, norm=norms(epsilon=1e-5, momentum=0.9)):
    layers = start(image, norm=norm)
    if imagenet:
        layers.unit("stem", 64, 7, 2, 3, activation=nn.ReLU, bias=bias)
        layers.max_pool("stem_pool", 3, 2, 1)
    else:
        layers.unit("stem", filters, 3, 1, 1, activation=nn.ReLU, bias=bias)
    for stage, count in enumerate(blocks):
        for number in range(count):
            stride = 2 if stage > 0 and number == 0 else 1
            block = _resnet_block(layers, filters << stage, stride, expansion, stride_first, bias, zeros)
            layers.add(f"stage{stage + 1}_block{number + 1}", block)
    return layers.top(classes, head, head_dropout)


def mobilenet(image, classes, head="own", head_dropout=0.0, dropout=1e-3):
    layers = start(image)
    layers.unit("stem", 32, 3, 2, activation=Relu6)
    for number, (filters, stride) in enumerate(MOBILENET_BLOCKS, start=1):
        layers.depthwise(f"block{number}_depthwise_conv", 3, stride, "same" if stride == 1 else (0, 1))
        layers.normalized(f"block{number}_depthwise", Relu6)
        layers.unit(f"block{number}_pointwise", filters, 1, activation=Relu6)

    def own():
        layers.average()
        layers.dropout("dropout", dropout)

    return layers.top(classes, head, head_dropout, own)


def _mobilenet_v2_block(layers, expansion, filters, stride):
    body, channels = layers.like(), layers.channels
    if expansion > 1:
        body.unit("expand", channels * expansion, 1, activation=Relu6)
    body.depthwise("depthwise_conv", 3, stride)
    body.normalized("depthwise", Relu6)
    body.unit("project", filters, 1)
    layers.channels, layers.size = filters, body.size
    return body.module() if stride != 1 or channels != filters else Residual(body.module())


def mobilenet_v2(image, classes, head="own", head_dropout=0.0):
    layers = start(image, norm=norms(momentum=0.999))
    layers.unit("stem", 32, 3, 2, activation=Relu6)
    for stage, (expansion, filters, repeats, stride) in enumerate(MOBILENETV2_STAGES, start=1):
        for repeat in range(repeats):
            block = _mobilenet_v2_block(layers, expansion, filters, stride if repeat == 0 else 1)
            layers.add(f"stage{stage}_block{repeat + 1}", block)
    layers.unit("top", 1280, 1, activation=Relu6)
    return layers.top(classes, head, head_dropout)


def _efficientnet_block(layers, kernel, filters, expansion, stride, drop):
    body, channels = layers.like(), layers.channels
    if expansion > 1:
        body.unit("expand", channels * expansion, 1, activation=nn.SiLU)
    body.depthwise("depthwise_conv", kernel, stride)
    body.normalized("depthwise", nn.SiLU)
    body.add("excite", SqueezeExcite(body.channels, max(1, channels // 4)))
    body.unit("project", filters, 1)
    layers.channels, layers.size = filters, body.size
    if stride != 1 or channels != filters:
        return body.module()
    if drop > 0:
        body.add("drop", DropSamples(drop))
    return Residual(body.module())


def _round_filters(filters, width):
    """The nearest multiple of 8 that is not under 90 % of `filters` times `width` tenths."""
    rounded = max(8, (filters * width + 40) // 80 * 8)
    return rounded + 8 if rounded * 100 < filters * width * 9 else rounded


def efficientnet(width, depth, image, classes, head="own", head_dropout=0.0, dropout=0.2, drop_connect=0.2):
    """`width` and `depth` in tenths."""
    layers = start(image)
    layers.unit("stem", _round_filters(32, width), 3, 2, activation=nn.SiLU)
    repeats_of = [-(-stage[1] * depth // 10) for stage in EFFICIENTNET_STAGES]
    number = 0
    for repeats, (kernel, _, filters, expansion, stride) in zip(repeats_of, EFFICIENTNET_STAGES):
        for repeat in range(repeats):
            block = _efficientnet_block(layers, kernel, _round_filters(filters, width), expansion,
                                        stride if repeat == 0 else 1, drop_connect * number / sum(repeats_of))
            number += 1
            layers.add(f"block{number}", block)
    layers.unit("top", _round_filters(1280, width), 1, activation=nn.SiLU)

    def own():
        layers.average()
        layers.dropout("dropout", dropout)

    return layers.top(classes, head, head_dropout, own)


def _inception_mixed35(pooled):
    return [((64,),), ((48,), (64, 5)), ((64,), (96, 3), (96, 3)), ("average", (pooled,))]


def _inception_mixed17(filters):
    wide, high = (filters, (1, 7)), (filters, (7, 1))
    return [((192,),), ((filters,), wide, (192, (7, 1))), ((filters,), high, wide, high, (192, (1, 7))),
            ("average", (192,))]


def _inception_mixed8x8():
    both = [((384, (1, 3)),), ((384, (3, 1)),)]
    return [((320,),), ((384,), both), ((448,), (384, 3), both), ("average", (192,))]


# Each step a unit's filters, kernel (1), stride (1) and padding (same), a pool, or branches, each of them steps.
INCEPTION = ((32, 3, 2, 0), (32, 3, 1, 0), (64, 3), "max", (80,), (192, 3, 1, 0), "max",
             _inception_mixed35(32), _inception_mixed35(64), _inception_mixed35(64),
             [((384, 3, 2, 0),), ((64,), (96, 3), (96, 3, 2, 0)), ("max",)],
             _inception_mixed17(128), _inception_mixed17(160), _inception_mixed17(160), _inception_mixed17(192),
             [((192,), (320, 3, 2, 0)), ((192,), (192, (1, 7)), (192, (7, 1)), (192, 3, 2, 0)), ("max",)],
             _inception_mixed8x8(), _inception_mixed8x8())


def _inception_steps(layers, steps):
    for number, step in enumerate(steps, start=1):
        if step == "max":
            layers.max_pool(f"pool{number}", 3, 2)
        elif step == "average":
            layers.average_pool(f"pool{number}")
        elif isinstance(step, list):
            layers.branches(f"mixed{number}", [_inception_steps(layers.like(), branch) for branch in step])
        else:
            filters, *convolution = step
            layers.unit(f"unit{number}", filters, *(convolution or (1,)), activation=nn.ReLU)
    return layers


def inception(image, classes, head="own", head_dropout=0.0):
    layers = _inception_steps(start(image, norm=norms(OffsetNorm)), INCEPTION)
    return layers.top(classes, head, head_dropout)


def _nasnet_fit(layers, filters):
    layers.add("relu", nn.ReLU())
    layers.unit("fit", filters, 1)
    return layers


def _nasnet_halve(layers, filters):
    """Half the size: of every second pixel, and of every second one a pixel further on."""
    layers.add("relu", nn.ReLU())
    near, far = layers.like(), layers.like()
    far.add("shift", nn.ZeroPad2d((-1, 1, -1, 1)))
    for half in (near, far):
        half.convolution("conv", filters // 2, 1, 2, 0, bias=False)
    layers.branches("halves", [near, far])
    layers.normalize("norm")
    return layers


def _nasnet_adjust(x, previous, filters):
    """Behind `previous`, in the size of x and with so many channels; x where nothing is previous."""
    if previous is None:
        return x.like()
    if previous.size != x.size:
        return _nasnet_halve(previous.like(), filters)
    return previous.like() if previous.channels == filters else _nasnet_fit(previous.like(), filters)


def _nasnet_separable(layers, filters, kernel, stride=1):
    """Twice relu, separable convolution and normalization, the first time with the stride."""
    for number, stride_of_it in ((1, stride), (2, 1)):
        layers.add(f"relu{number}", nn.ReLU(inplace=number == 2))
        layers.depthwise(f"depthwise{number}", kernel, stride_of_it)
        layers.unit(f"pointwise{number}", filters, 1)
    return layers


class _NasnetCell(nn.Module):
    """What both kinds of cell begin with, of chains `x`, what the cell before made, and `previous`, what that one read.
    `made` is then the chain behind this one."""

    def __init__(self, x, previous, filters):
        super().__init__()
        self.p, self.h = _nasnet_adjust(x, previous, filters), _nasnet_fit(x.like(), filters)
        self.adjust, self.fit = self.p.module(), self.h.module()
        self.average = nn.AvgPool2d(3, 1, 1, count_include_pad=False)

    def separable(self, name, layers, *options):
        chain = _nasnet_separable(layers.like(), *options)
        self.add_module(name, chain.module())
        return chain


class _NasnetNormal(_NasnetCell):
    def __init__(self, x, previous, filters):
        super().__init__(x, previous, filters)
        self.separable("left1", self.h, filters, 5)
        self.separable("right1", self.p, filters, 3)
        self.separable("left2", self.p, filters, 5)
        self.separable("right2", self.p, filters, 3)
        self.separable("left5", self.h, filters, 3)
        self.made = self.h.like()
        self.made.channels = self.p.channels + 5 * filters

    def forward(self, x, previous):
        p, h = self.adjust(previous), self.fit(x)
        return torch.cat([p, self.left1(h) + self.right1(p), self.left2(p) + self.right2(p), self.average(h) + p,
                          self.average(p) + self.average(p), self.left5(h) + h], dim=1)


class _NasnetReduction(_NasnetCell):
    def __init__(self, x, previous, filters):
        super().__init__(x, previous, filters)
        rows, columns = self.h.margins((3, 3), 2, "same")
        self.pad = nn.ZeroPad2d((*columns, *rows))  # of zeros, which its pools see
        self.maximum, self.mean = nn.MaxPool2d(3, 2), nn.AvgPool2d(3, 2)
        x1 = self.separable("left1", self.h, filters, 5, 2)
        self.separable("right1", self.p, filters, 7, 2)
        self.separable("right2", self.p, filters, 7, 2)
        self.separable("right3", self.p, filters, 5, 2)
        self.separable("left5", x1, filters, 3)
        self.made = x1.like()
        self.made.channels = 4 * filters

    def forward(self, x, previous):
        p, h = self.adjust(previous), self.fit(x)
        padded = self.pad(h)
        x1 = self.left1(h) + self.right1(p)
        x2 = self.maximum(padded) + self.right2(p)
        return torch.cat([x2, self.mean(padded) + self.right3(p), x2 + self.average(x1),
                          self.left5(x1) + self.maximum(padded)], dim=1)


class _NasnetCells(nn.ModuleList):
    """Each reads what the two before it made; behind one that skips, what that one read beside."""

    def forward(self, x):
        previous = x
        for cell in self:
            x, previous = cell(x, previous), previous if cell.skips else x
        return x


def nasnet(filters, stem, cells, image, classes, skip=False, head="own", head_dropout=0.0):
    layers = start(image, norm=norms(momentum=0.9997))
    layers.unit("stem", stem, 3, 2, 0)
    plan = [(_NasnetReduction, filters // 4, False), (_NasnetReduction, filters // 2, False)]
    for row in range(3):
        plan += [(_NasnetReduction, filters << row, skip)] if row > 0 else []
        plan += [(_NasnetNormal, filters << row, False)] * cells
    x, previous, every = layers.like(), None, _NasnetCells()
    for kind, width, skips in plan:
        cell = kind(x, previous, width)
        cell.skips = skips
        every.append(cell)
        x, previous = cell.made, previous if skips else x
    layers.add("cells", every)
    layers.channels, layers.size = x.channels, x.size
    layers.add("relu", nn.ReLU(inplace=True))
    return layers.top(classes, head, head_dropout)


MODELS = {
    "alexnet": alexnet,
    "efficientnetb0": functools.partial(efficientnet, 10, 10),
    "efficientnetb1": functools.partial(efficientnet, 10, 11),
    "efficientnetb2": functools.partial(efficientnet, 11, 12, dropout=0.3),
    "efficientnetb3": functools.partial(efficientnet, 12, 14, dropout=0.3),
    "efficientnetb4": functools.partial(efficientnet, 14, 18, dropout=0.4),
    "efficientnetb5": functools.partial(efficientnet, 16, 22, dropout=0.4),
    "inceptionv3": inception,
    "linear": functools.partial(mlp, hidden=()),
    "mlp": mlp,
    "mobilenet": mobilenet,
    "mobilenetv2": mobilenet_v2,
    "nasnetlarge": functools.partial(nasnet, 168, 96, 6, skip=True),
    "nasnetmobile": functools.partial(nasnet, 44, 32, 4),
    "resnet18": functools.partial(resnet, (2, 2, 2, 2), expansion=1),
    "resnet20": functools.partial(resnet, (3, 3, 3), filters=16, expansion=1, zeros=True, imagenet=False),
    "resnet50": functools.partial(resnet, (3, 4, 6, 3), stride_first=True, bias=True, norm=norms(epsilon=1.001e-5)),
    "resnet50gn": functools.partial(resnet, (3, 4, 6, 3), norm=functools.partial(GroupNorm, 32, eps=1e-5)),
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
