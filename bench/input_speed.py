#!/usr/bin/python3
"""Training images a second of one core, by where the images come from.

    bench/input_speed.py [--rounds N] [--steps N] [--images N] [--input-threads N]

resnet18 on images of 64 x 64, batch 32, of the same drawn pictures: a folder of JPEG of 375 x 490 that are decoded,
cut and resized, the same packed as TFRecord of short side 72, and packed as pixels of 72 x 72, which
nothing decodes. Jobs take turns on one worker of one core; rates are medians over rounds, of steps
behind the first few, and ratios are to the packed pixels. `input` is how long the core waited for
samples, a step. RINGMASTER_BIN: the folder of the programs. What is wanted: 0.97 or more.
"""

import argparse
import os
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ.setdefault("RINGMASTER_BIN", str(ROOT / "build/release/bin"))
sys.path.append(str(ROOT / "tests/integration"))

import cluster  # noqa: E402
import decode_speed  # noqa: E402

CUT = [{"random_resized_crop": {"size": 64}}, {"random_flip": {}}, {"normalize": "torch"}]


def draw(folder, images):
    """Ten classes of one picture, moved."""
    picture = decode_speed.picture()
    for number in range(images):
        path = folder / f"class{number % 10}" / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.crop((number % 10, 0, 490 + number % 10, picture.height)).save(path, quality=90)


def rate(running, path, steps):
    """(images a second, input seconds a step) of the last 32 steps."""
    status = running.run_job(cluster.job_spec(
        name="input", model={"name": "resnet18"}, data={"path": path}, augment=CUT, batch=32, shards=1, epochs=None, steps=steps,
        optimizer={"sgd": {"learning_rate": 0.01}}, evaluate={"every_steps": steps}, workers={"min": 1, "max": 1}), timeout=3600)
    return status["samples_per_second"], status["workers"][0]["step_times"]["input_ms"] / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--input-threads", type=int, default=1)
    options = parser.parse_args()
    running = cluster.Cluster()
    try:
        root = running.data_root
        draw(root / "jpeg", options.images)
        running.ringctl("dataset", "pack", root / "jpeg", root / "packed", "--short", 72, timeout=600)
        running.ringctl("dataset", "pack", root / "jpeg", root / "pixels", "--short", 72, "--raw", timeout=600)
        running.start_coordinator()
        running.start_worker("a", extra=("--input-threads", options.input_threads))
        rows = {path: [] for path in ("jpeg", "packed", "pixels")}
        for _ in range(options.rounds):
            for path, row in rows.items():
                row.append(rate(running, path, options.steps))
    finally:
        running.destroy(False)
    base = statistics.median(each for each, _ in rows["pixels"])
    print(f"load {os.getloadavg()[0]:.1f}, {options.rounds} rounds of {options.steps} steps, {options.input_threads} input thread(s)")
    print("| images | images/s | input, ms a step | to packed pixels |\n|---|---|---|---|")
    for path, row in rows.items():
        rates = [each for each, _ in row]
        waits = statistics.median(wait for _, wait in row) * 1000
        print(f"| {path} | {statistics.median(rates):.1f} ({min(rates):.1f} to {max(rates):.1f}) | {waits:.2f} "
              f"| {statistics.median(rates) / base:.3f} |")


if __name__ == "__main__":
    main()
