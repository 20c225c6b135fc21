#!/usr/bin/python3
"""Images a second of one core, beside Pillow: decoding, cutting and resizing as presets do.

    bench/decode_speed.py [PROGRAM]

PROGRAM is image_bytes (build/release/bin). Both do the same to drawn pictures of 375 x 500, which lie
in memory, on one core; medians of seven rounds that take turns. Pillow's time includes the array that
numpy makes of its image, as a training loop needs it.
"""

import io
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from PIL import Image
from torchvision import transforms

ROUNDS, HEIGHT, WIDTH = 7, 375, 500
CASES = [
    ("whole", "[]", lambda image: image),
    ("imagenet_train", "[{random_resized_crop: {size: 224}}]", transforms.RandomResizedCrop(224)),
    ("imagenet_eval", "[{resize: {short: 256}}, {center_crop: {size: 224}}]",
     transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224)])),
]


def picture():
    rng = np.random.RandomState(2)
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    waves = [128 + 60 * np.sin(x / 17 + c) + 40 * np.cos(y / (13 + c)) + 20 * np.sin(x * y / 900 + c) for c in range(3)]
    noise = rng.normal(0, 9, (HEIGHT, WIDTH, 1))
    return Image.fromarray(np.clip(np.stack(waves, -1) + noise, 0, 255).astype(np.uint8))


def pillow(data, made, samples):
    began = time.perf_counter()
    for _ in range(samples):
        np.asarray(made(Image.open(io.BytesIO(data)).convert("RGB")))
    return (time.perf_counter() - began) / samples * 1000


def main():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    program = sys.argv[1] if len(sys.argv) > 1 else "build/release/bin/image_bytes"
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    image = picture()
    print(f"{'file':28} {'preset':15} {'ours/s':>7} {'Pillow/s':>9} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for name, options in (("JPEG q90 4:2:0", dict(quality=90)), ("JPEG q96 4:4:4", dict(quality=96, subsampling=0)),
                              ("JPEG q90 progressive", dict(quality=90, progressive=True)), ("PNG", None)):
            path = pathlib.Path(folder) / ("image.png" if options is None else "image.jpg")
            image.save(path, **(options or {}))
            samples = 60 if options is None else 200
            for preset, augment, made in CASES:
                rounds = []
                for _ in range(ROUNDS):
                    process.stdin.write(f"time {path} 3 1 {samples} {augment}\n")
                    process.stdin.flush()
                    rounds.append((float(process.stdout.readline()), pillow(path.read_bytes(), made, samples)))
                ours, theirs = (statistics.median(column) for column in zip(*rounds))
                size = f"{name}, {path.stat().st_size // 1000} KB"
                print(f"{size:28} {preset:15} {1000 / ours:7.0f} {1000 / theirs:9.0f} {theirs / ours:6.2f}")


if __name__ == "__main__":
    main()
