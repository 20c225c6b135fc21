#!/usr/bin/python3
"""Images a second of one core, beside Pillow: decoding, cutting and resizing as presets do.

    bench/decode_speed.py [--rounds N] [PROGRAM]

PROGRAM is image_bytes, by default that in RINGMASTER_BIN. Both do the same to drawn pictures of 375 x 500,
and to one as `ringctl dataset pack --short 256` leaves it, which lie in memory, on one core; medians of
rounds that take turns, with their least and most. Pillow's time includes the array that numpy makes of its image, as a training loop needs it.

Seconds are those of CPU: a process that shares its core with others waits for it, which is no part of
what decoding takes, and which a figure of wall time has in it. What others leave of caches and of the
other half of a core is; the load is printed for that.
"""

import argparse
import io
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import numpy as np
from PIL import Image
from torchvision import transforms

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = pathlib.Path(os.environ.get("RINGMASTER_BIN", ROOT / "build/release/bin")) / "image_bytes"
HEIGHT, WIDTH = 375, 500
FILES = [
    ("JPEG q90 4:2:0", "jpg", (WIDTH, HEIGHT), dict(quality=90)),
    ("JPEG q96 4:4:4", "jpg", (WIDTH, HEIGHT), dict(quality=96, subsampling=0)),
    ("JPEG q90 progressive", "jpg", (WIDTH, HEIGHT), dict(quality=90, progressive=True)),
    ("packed, short 256, q90", "jpg", (341, 256), dict(quality=90)),
    ("PNG", "png", (WIDTH, HEIGHT), {}),
]
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
    began = time.thread_time()
    for _ in range(samples):
        np.asarray(made(Image.open(io.BytesIO(data)).convert("RGB")))
    return (time.thread_time() - began) / samples * 1000


class Ours:
    """image_bytes, which makes what it is told to."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def time(self, path, augment, samples):
        self.process.stdin.write(f"time {path} 3 1 {samples} {augment}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def rate(milliseconds):
    return f"{1000 / statistics.median(milliseconds):.0f} ({1000 / max(milliseconds):.0f} to {1000 / min(milliseconds):.0f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("program", nargs="?", default=PROGRAM)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    program, image = Ours(options.program), picture()
    print(f"images per CPU second of one core: median (least to most) of {options.rounds} rounds; load {os.getloadavg()[0]:.1f}")
    print(f"{'file':32} {'preset':15} {'ours':>22} {'Pillow':>22} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for name, ending, extent, how in FILES:
            path = pathlib.Path(folder) / f"image.{ending}"
            image.resize(extent, Image.Resampling.BILINEAR).save(path, **how)
            data, size = path.read_bytes(), f"{name}, {path.stat().st_size // 1000} KB"
            samples = 60 if ending == "png" else 200
            for preset, augment, made in CASES:
                rounds = [(program.time(path, augment, samples), pillow(data, made, samples)) for _ in range(options.rounds)]
                ours, theirs = zip(*rounds)
                ratio = statistics.median(theirs) / statistics.median(ours)
                print(f"{size:32} {preset:15} {rate(ours):>22} {rate(theirs):>22} {ratio:6.2f}", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
