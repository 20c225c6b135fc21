"""Runs a canonical graph, as `ringctl model show NAME -o json` prints it, with PyTorch's functions.

It knows no model and no layer: an op is a function of its attributes and operands, a row of
OPERATIONS. What it returns is what the node's name stands for, or all results by what follows the
node's name. Images are N,H,W,C, convolution kernels O,h,w,I and dense kernels I,O, as in the graph.
Gradients are autograd's; dropout is off.
"""

import torch
import torch.nn.functional as F


class UnknownOp(Exception):
    """The graph has an op, or a version of one, that no function here stands for."""


def to_channels_first(x):
    return x.permute(0, 3, 1, 2)


def to_channels_last(x):
    return x.permute(0, 2, 3, 1)


def padded(x, pads, value=0.0):
    """Of N,C,H,W; pads are top, left, bottom, right."""
    top, left, bottom, right = pads
    return F.pad(x, (left, right, top, bottom), value=value)


def average_pool(a, x):
    """Padding is not counted."""
    def sums(images):
        return F.avg_pool2d(padded(images, a["pads"]), a["window"], a["strides"], divisor_override=1)

    x = to_channels_first(x)
    return to_channels_last(sums(x) / sums(torch.ones_like(x)))


def max_pool(a, x):
    """Padding is never the maximum."""
    x = padded(to_channels_first(x), a["pads"], value=float("-inf"))
    return to_channels_last(F.max_pool2d(x, a["window"], a["strides"]))


def scale_and_offset(a, operands):
    """gamma and beta, either of which may be absent."""
    operands = list(operands)
    return [operands.pop(0) if a[there] else None for there in ("scale", "center")]


def batch_norm(a, x, *operands):
    """By the batch's own statistics, unless it is frozen; the variance is biased."""
    if a["inference"]:
        return batch_norm_inference(a, x, *operands)
    rows = x.reshape(-1, x.shape[-1])
    y = F.batch_norm(rows, None, None, *scale_and_offset(a, operands), training=True,
                     eps=a["epsilon"])
    mean, variance = rows.mean(dim=0), rows.var(dim=0, unbiased=False)
    return {"": y.reshape(x.shape), "/mean": mean, "/variance": variance}


def batch_norm_inference(a, x, *operands):
    *scales, mean, variance = operands
    rows = x.reshape(-1, x.shape[-1])
    return F.batch_norm(rows, mean, variance, *scale_and_offset(a, scales),
                        eps=a["epsilon"]).reshape(x.shape)


def group_norm(a, x, *operands):
    y = F.group_norm(x.movedim(-1, 1), a["groups"], *scale_and_offset(a, operands), eps=a["epsilon"])
    return y.movedim(1, -1)


def layer_norm(a, x, *operands):
    return F.layer_norm(x, x.shape[-1:], *scale_and_offset(a, operands), eps=a["epsilon"])


def conv2d(a, x, kernel, bias=None):
    """A correlation; each group of filters reads its group of channels."""
    y = F.conv2d(padded(to_channels_first(x), a["pads"]), to_channels_first(kernel), bias,
                 a["strides"], 0, a["dilations"], a["groups"])
    return to_channels_last(y)


def dense(_, x, kernel, bias=None):
    return F.linear(x, kernel.t(), bias)


def pad(a, x):
    """Pads are those before each axis but the samples', then those behind each."""
    axes = len(a["pads"]) // 2
    pairs = [(a["pads"][axis], a["pads"][axes + axis]) for axis in reversed(range(axes))]
    return F.pad(x, [extent for pair in pairs for extent in pair])


def cut(a, x):
    ranges = [slice(begin, end) for begin, end in zip(a["begin"], a["end"])]
    return x[(slice(None), *ranges)]


def split(a, x):
    parts = torch.split(x, a["sizes"], dim=a["axis"])
    return {f"/{number}": part for number, part in enumerate(parts)}


def softmax_cross_entropy(a, logits, labels):
    return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=a["label_smoothing"])


def top_k(a, logits, labels):
    """Of equal logits the lower class is in front."""
    own = logits.gather(1, labels[:, None])
    lower = torch.arange(logits.shape[1]) < labels[:, None]
    in_front = (logits > own) | (lower & (logits == own))
    return (in_front.sum(dim=1) < a["k"]).sum()


def sample_means(values):
    """The sum over samples of each one's mean."""
    return values.reshape(values.shape[0], -1).mean(dim=1).sum()


def sigmoid_cross_entropy(a, logits, targets):
    targets = targets * (1 - a["label_smoothing"]) + a["label_smoothing"] / 2
    return sample_means(F.binary_cross_entropy_with_logits(logits, targets, reduction="none"))


OPERATIONS = {
    "add": lambda _, x, y: x + y,
    "average_pool": average_pool,
    "batch_norm": batch_norm,
    "binary_accuracy": lambda a, p, t: sample_means(((p > a["threshold"]) == (t > 0.5)).to(p.dtype)),
    "concat": lambda a, *parts: torch.cat(parts, dim=a["axis"]),
    "conv2d": conv2d,
    "dense": dense,
    "dropout": lambda _, x: x,
    "elu": lambda a, x: F.elu(x, a["alpha"]),
    "gelu": lambda a, x: F.gelu(x, approximate=a["approximate"]),
    "global_average_pool": lambda a, x: x.mean(dim=(1, 2), keepdim=a["keep_dims"]),
    "global_max_pool": lambda a, x: x.amax(dim=(1, 2), keepdim=a["keep_dims"]),
    "group_norm": group_norm,
    "hard_sigmoid": lambda _, x: F.relu6(x + 3) / 6,  # F.hardsigmoid's gradient has a float32 1/6
    "hard_swish": lambda _, x: x * F.relu6(x + 3) / 6,
    "huber": lambda a, p, t: sample_means(F.huber_loss(p, t, reduction="none", delta=a["delta"])),
    "layer_norm": layer_norm,
    "leaky_relu": lambda a, x: F.leaky_relu(x, a["slope"]),
    "max_pool": max_pool,
    "mean_absolute_error": lambda _, p, t: sample_means((p - t).abs()),
    "mean_squared_error": lambda _, p, t: sample_means((p - t) ** 2),
    "multiply": lambda _, x, y: x * y,
    "pad": pad,
    "relu": lambda _, x: F.relu(x),
    "relu6": lambda _, x: F.relu6(x),
    "reshape": lambda a, x: x.reshape(x.shape[0], *a["shape"]),
    "sigmoid": lambda _, x: torch.sigmoid(x),
    "sigmoid_cross_entropy": sigmoid_cross_entropy,
    "slice": cut,
    "softmax": lambda _, x: F.softmax(x, dim=-1),
    "softmax_cross_entropy": softmax_cross_entropy,
    "softplus": lambda _, x: torch.logaddexp(x, torch.zeros_like(x)),  # F.softplus is inexact
    "split": split,
    "swish": lambda _, x: F.silu(x),
    "tanh": lambda _, x: torch.tanh(x),
    "top_k": top_k,
}
INFERENCE = {**OPERATIONS, "batch_norm": batch_norm_inference}


def attributes_of(node):
    """By name, with what their oneof says."""
    values = {}
    for attribute in node["attributes"]:
        (value,) = (value for key, value in attribute.items() if key != "name")
        values[attribute["name"]] = value["values"] if isinstance(value, dict) else value
    return values


def run(graph, feeds, operations=OPERATIONS):
    """All values by name. `feeds` are columns, parameters and statistics, likewise."""
    values = dict(feeds)
    for node in graph["nodes"]:
        if node["op"] not in operations or node["version"] != 1:
            raise UnknownOp(f"{node['name']}: no function for op {node['op']} version {node['version']}")
        made = operations[node["op"]](attributes_of(node), *(values[name] for name in node["inputs"]))
        for suffix, value in (made if isinstance(made, dict) else {"": made}).items():
            values[node["name"] + suffix] = value
    return values


def minimized(graph, values):
    """The sum of the losses, weighted; over samples, not their mean."""
    return sum(output["loss"]["weight"] * values[output["value"]]
               for output in graph["outputs"] if "loss" in output)


def momenta(graph):
    """Of each batch normalization, by its node's name."""
    return {node["name"]: attributes_of(node)["momentum"]
            for node in graph["nodes"] if node["op"] == "batch_norm"}
