#!/usr/bin/python3
"""Holds one graph that has every op against PyTorch, as model_parity.py does with models.

    every_op_parity.py GRAPH_STEP

Windows, strides, pads, dilations, groups and axes are such that none can be taken for another.
"""

import json
import subprocess
import sys

import model_parity
import torch_graph


class Writer:
    """Nodes in their order, named by `NAME`, `NAME2`, ... Methods return the names of values."""

    def __init__(self):
        self.graph = {"columns": [], "nodes": [], "outputs": [], "parameters": [], "statistics": [],
                      "version": 1}

    def column(self, name, shape, kind="float32", limit=0):
        self.graph["columns"].append(
            {"least": 0, "limit": limit, "name": name, "shape": shape, "type": kind})
        return name

    def parameter(self, name, shape, scale=None):
        """Uniform, or all of them `scale`."""
        distribution = {"distribution": "uniform", "scale": 0.5}
        if scale is not None:
            distribution = {"distribution": "constant", "scale": scale}
        self.graph["parameters"].append({"initializer": distribution, "name": name, "shape": shape, "trainable": True})
        return name

    def affine(self, name, channels):
        return [self.parameter(f"{name}/{role}", [channels], scale)
                for role, scale in (("gamma", 1), ("beta", 0))]

    def statistic(self, name, channels, initial):
        self.graph["statistics"].append({"initial": initial, "name": name, "shape": [channels]})
        return name

    def node(self, op, *inputs, name=None, **attributes):
        """A bool, str, list, float or int is an attribute of that type."""
        oneof = {bool: "b", str: "s", float: "f", int: "i"}
        listed = [{"name": key, **({"ints": {"values": value}} if isinstance(value, list)
                                   else {oneof[type(value)]: value})}
                  for key, value in sorted(attributes.items())]
        name = name or op
        self.graph["nodes"].append(
            {"attributes": listed, "float32": False, "inputs": list(inputs), "name": name, "op": op, "version": 1})
        return name

    def output(self, name, value, **role):
        self.graph["outputs"].append({"name": name, "value": value, **role})

    def text(self):
        return json.dumps(self.graph, sort_keys=True, separators=(",", ":"))


def every_op():
    w = Writer()
    image, label = w.column("image", [10, 9, 6]), w.column("label", [], "int32", 5)
    target = w.column("target", [2, 3])
    x = w.node("conv2d", image, w.parameter("conv2d/kernel", [8, 3, 2, 3]),
               w.parameter("conv2d/bias", [8]), strides=[1, 2], pads=[2, 0, 1, 1], dilations=[2, 1], groups=2)
    x = w.node("batch_norm", x, *w.affine("batch_norm", 8), w.statistic("batch_norm/moving_mean", 8, 0),
               w.statistic("batch_norm/moving_variance", 8, 1), epsilon=0.002, momentum=0.9, scale=True,
               center=True, inference=False)  # 9x5
    w.node("split", x, axis=3, sizes=[3, 5])
    x = w.node("concat", w.node("elu", "split/0", alpha=0.7), w.node("gelu", "split/1", approximate="tanh"),
               axis=3)
    x = w.node("group_norm", x, *w.affine("group_norm", 8), epsilon=0.01, groups=4, scale=True, center=True)
    x = w.node("leaky_relu", x, slope=0.2)
    x = w.node("max_pool", x, window=[3, 2], strides=[2, 1], pads=[1, 0, 0, 1])  # 4x5
    x = w.node("conv2d", x, w.parameter("depthwise/kernel", [16, 2, 3, 1]), name="depthwise",
               strides=[1, 1], pads=[0, 2, 1, 2], dilations=[1, 2], groups=8)
    x = w.node("batch_norm", x, w.parameter("bare/beta", [16], 0), w.statistic("bare/moving_mean", 16, 0),
               w.statistic("bare/moving_variance", 16, 1), name="bare", epsilon=0.01, momentum=0.5, scale=False,
               center=True, inference=False)
    x = w.node("average_pool", x, window=[2, 3], strides=[1, 1], pads=[1, 1, 0, 1])
    x = w.node("pad", x, pads=[1, 0, 2, 0, 1, 1])  # 5x6x19
    x = w.node("slice", x, begin=[1, 1, 1], end=[5, 6, 18])  # 4x5x17
    x = w.node("layer_norm", x, w.parameter("layer_norm/beta", [17], 0), epsilon=0.003, scale=False,
               center=True)
    mean = w.node("hard_sigmoid", w.node("global_average_pool", x, keep_dims=True))
    most = w.node("tanh", w.node("global_max_pool", x, keep_dims=False))
    x = w.node("multiply", w.node("hard_swish", w.node("swish", x)), mean)
    x = w.node("add", x, w.parameter("offset", [5, 17]))
    x = w.node("gelu", w.node("relu6", w.node("softplus", x)), name="gelu2", approximate="none")
    x = w.node("dropout", w.node("reshape", x, shape=[340]), rate=0.5, per_sample=False)
    x = w.node("relu", w.node("dense", x, w.parameter("dense/kernel", [340, 17]), w.parameter("dense/bias", [17])))
    x = w.node("softmax", w.node("multiply", x, w.node("sigmoid", most), name="multiply2"))
    logits = w.node("dense", x, w.parameter("fc/kernel", [17, 5]), name="fc")
    w.node("softmax_cross_entropy", logits, label, label_smoothing=0.25)
    w.node("softmax_cross_entropy", w.node("dense", most, w.parameter("side/kernel", [17, 5]), name="side"), label,
           name="side_loss", label_smoothing=0.0625)
    said = w.node("reshape", w.node("dense", most, w.parameter("said/kernel", [17, 6]), name="features"), name="said",
                  shape=[2, 3])
    w.node("sigmoid_cross_entropy", said, target, label_smoothing=0.125)
    w.node("mean_squared_error", said, target)
    w.node("mean_absolute_error", said, target)
    w.node("huber", said, target, delta=0.25)
    w.node("top_k", logits, label, k=2)
    w.node("binary_accuracy", said, target, threshold=0.125)
    w.output("own", "softmax_cross_entropy", loss={"weight": 1})
    w.output("side", "side_loss", loss={"weight": 0.25})
    for weight, loss in ((0.5, "sigmoid_cross_entropy"), (0.75, "mean_squared_error"),
                         (1.25, "mean_absolute_error"), (1.5, "huber")):
        w.output(loss, loss, loss={"weight": weight})
    for measure in ("top_k", "binary_accuracy"):
        w.output(measure, measure, measure={"lower_is_better": False, "view": "mean"})
    return w


def main():
    (program,) = sys.argv[1:]
    known = subprocess.run([program, "ops"], check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    ops, graph = set(known.stdout.split()), every_op()
    here = {node["op"] for node in graph.graph["nodes"]}
    for name, other in (("torch_graph.py", set(torch_graph.OPERATIONS)), ("every_op_parity.py", here)):
        if other != ops:
            sys.exit(f"{name} lacks {sorted(ops - other)} and has {sorted(other - ops)}, which is no op")
    model_parity.check(graph.text(), program, "4")


if __name__ == "__main__":
    main()
