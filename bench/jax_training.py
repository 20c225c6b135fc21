#!/usr/bin/python3
"""images/s of ResNet50 as JAX itself trains it on this host's first device: what pjrt-check puts beside ours.

    bench/jax_training.py [--batch 128] [--image 224] [--steps 40] [--warm-up 5]

The zoo's resnet50: Keras' v1, biases, strides in a block's first convolution, ten classes. bfloat16 where
mixed_bfloat16 has it, float32 weights, statistics and loss, momentum. One compiled step; the batch lies in the
device's memory, so that it reads nothing, where ours reads, resizes, sums exactly and updates on the host. PYTHON
must have JAX (pip install jax, and its plugin). Not part of any test: no machine of ours has JAX.
"""
import argparse
import time

STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))  # blocks, filters
CLASSES, RATE, MOMENTUM, EPSILON, KEPT = 10, 0.01, 0.9, 1.001e-5, 0.99


def convolutions():
    """(name, window, stride, inputs, filters), in their order."""
    yield "conv1", 7, 2, 3, 64
    inputs = 64
    for stage, (blocks, filters) in enumerate(STAGES):
        for block in range(blocks):
            name, stride = f"conv{stage + 2}_block{block + 1}", 2 if stage > 0 and block == 0 else 1
            if block == 0:
                yield f"{name}_0", 1, stride, inputs, 4 * filters
            yield f"{name}_1", 1, stride, inputs, filters
            yield f"{name}_2", 3, 1, filters, filters
            yield f"{name}_3", 1, 1, filters, 4 * filters
            inputs = 4 * filters


def initial(np):
    """Parameters and moving statistics, by name."""
    draw, parameters, statistics = np.random.default_rng(1), {}, {}
    for name, window, _, inputs, filters in convolutions():
        deviation = (2 / (window * window * inputs)) ** 0.5
        kernel = draw.standard_normal((window, window, inputs, filters), np.float32) * np.float32(deviation)
        parameters[name] = {"kernel": kernel, "bias": np.zeros(filters, np.float32),
                            "scale": np.ones(filters, np.float32), "shift": np.zeros(filters, np.float32)}
        statistics[name] = {"mean": np.zeros(filters, np.float32), "variance": np.ones(filters, np.float32)}
    head = draw.standard_normal((2048, CLASSES), np.float32) * np.float32(0.02)
    parameters["predictions"] = {"kernel": head, "bias": np.zeros(CLASSES, np.float32)}
    return parameters, statistics


def make_step(jax):
    jnp, lax = jax.numpy, jax.lax
    layers = {name: (window, stride) for name, window, stride, _, _ in convolutions()}

    def normalized(parameters, name, x, moments):
        """A convolution and its batch norm."""
        own, (window, stride) = parameters[name], layers[name]
        around = [(window // 2, window // 2)] * 2
        y = lax.conv_general_dilated(x, own["kernel"].astype(x.dtype), (stride, stride), around,
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"))
        wide = y.astype(jnp.float32) + own["bias"]
        mean = jnp.mean(wide, (0, 1, 2))
        variance = jnp.mean(jnp.square(wide - mean), (0, 1, 2))
        moments[name] = {"mean": mean, "variance": variance}
        return ((wide - mean) * (own["scale"] * lax.rsqrt(variance + EPSILON)) + own["shift"]).astype(x.dtype)

    def loss_of(parameters, images, labels):
        moments = {}
        x = jax.nn.relu(normalized(parameters, "conv1", images.astype(jnp.bfloat16), moments))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
        for stage, (blocks, _) in enumerate(STAGES):
            for block in range(blocks):
                name = f"conv{stage + 2}_block{block + 1}"
                shortcut = normalized(parameters, f"{name}_0", x, moments) if block == 0 else x
                y = jax.nn.relu(normalized(parameters, f"{name}_1", x, moments))
                y = jax.nn.relu(normalized(parameters, f"{name}_2", y, moments))
                x = jax.nn.relu(shortcut + normalized(parameters, f"{name}_3", y, moments))
        pooled = jnp.mean(x.astype(jnp.float32), (1, 2)).astype(jnp.bfloat16)
        head = parameters["predictions"]
        logits = jnp.dot(pooled, head["kernel"].astype(jnp.bfloat16)).astype(jnp.float32) + head["bias"]
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return -jnp.mean(chosen), moments

    def step(state, images, labels):
        parameters, velocity, statistics = state
        (loss, moments), gradient = jax.value_and_grad(loss_of, has_aux=True)(parameters, images, labels)
        over = jax.tree_util.tree_map
        velocity = over(lambda v, g: MOMENTUM * v + g, velocity, gradient)
        parameters = over(lambda p, v: p - RATE * v, parameters, velocity)
        statistics = over(lambda old, new: KEPT * old + (1 - KEPT) * new, statistics, moments)
        return (parameters, velocity, statistics), loss

    return jax.jit(step, donate_argnums=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warm-up", type=int, default=5)
    options = parser.parse_args()
    import jax
    import numpy as np
    parameters, statistics = initial(np)
    velocity = jax.tree_util.tree_map(np.zeros_like, parameters)
    state = jax.device_put((parameters, velocity, statistics))
    draw = np.random.default_rng(2)
    images = jax.device_put(draw.random((options.batch, options.image, options.image, 3), np.float32))
    labels = jax.device_put(draw.integers(0, CLASSES, options.batch).astype(np.int32))
    step = make_step(jax)
    for _ in range(max(options.warm_up, 1)):
        state, loss = step(state, images, labels)
    loss.block_until_ready()
    begin = time.perf_counter()
    for _ in range(options.steps):
        state, loss = step(state, images, labels)
    loss.block_until_ready()
    seconds = time.perf_counter() - begin
    print(f"  images/s  mean {options.batch * options.steps / seconds:.1f}; JAX {jax.__version__} on "
          f"{jax.devices()[0].device_kind}, loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
