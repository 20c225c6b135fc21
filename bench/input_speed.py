#!/usr/bin/python3
"""Training images a second of one core, by where the images come from.

    bench/input_speed.py [--rounds N] [--steps N] [--images N] [--input-threads N] [--paths A,...]

resnet18 on images of 64 x 64, batch 32, of the same drawn pictures: a folder of JPEG of 375 x 490 that are decoded,
cut and resized, the same packed as TFRecord of short side 72, and packed as pixels of 72 x 72, which
nothing decodes. Jobs take turns on one worker of one core; rates are medians over rounds, of steps
behind the first few, and ratios medians of those to the last of the paths in the same round. An input thread makes samples beside
the step. RINGMASTER_BIN: the folder of the programs. What is wanted: 0.97 or more.
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

BATCH = 32
CUT = [{"random_resized_crop": {"size": 64}}, {"random_flip": {}}, {"normalize": "torch"}]


def draw(folder, images):
    """Ten classes of one picture, moved."""
    picture = decode_speed.picture()
    for number in range(images):
        path = folder / f"class{number % 10}" / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.crop((number % 10, 0, 490 + number % 10, picture.height)).save(path, quality=90)


def rate(running, path, steps):
    """(images a second, milliseconds a step that the core waited for input, that the input's threads worked) of the last 32 steps."""
    status = running.wait(running.submit(cluster.job_spec(
        name="input", model={"name": "resnet18"}, data={"path": path}, augment=CUT, batch=BATCH, shards=1, epochs=None, steps=steps,
        optimizer={"sgd": {"learning_rate": 0.01}}, evaluate={"every_steps": steps}, workers={"min": 1, "max": 1})), timeout=3600)
    if status["state"] != "SUCCEEDED":
        sys.exit(f"training from {path}: {status['state']}: {status['reason']}")
    times = status["workers"][0]["step_times"]
    return status["samples_per_second"], times["input_ms"], times["input_work_ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--input-threads", type=int, default=1)
    parser.add_argument("--paths", type=lambda text: text.split(","), default=["jpeg", "packed", "pixels"])
    options = parser.parse_args()
    running = cluster.Cluster()
    try:
        root = running.data_root
        draw(root / "jpeg", options.images)
        running.ringctl("dataset", "pack", root / "jpeg", root / "packed", "--short", 72, timeout=600)
        running.ringctl("dataset", "pack", root / "jpeg", root / "pixels", "--short", 72, "--raw", timeout=600)
        running.start_coordinator()
        running.start_worker("a", extra=("--input-threads", options.input_threads))
        rows = {path: [] for path in options.paths}
        for _ in range(options.rounds):
            for path, row in rows.items():
                row.append(rate(running, path, options.steps))
    finally:
        running.destroy(False)
    medians = {path: [statistics.median(each) for each in zip(*row)] for path, row in rows.items()}
    print(f"load {os.getloadavg()[0]:.1f}, {options.rounds} rounds of {options.steps} steps, {options.input_threads} input thread(s)")
    print(f"| images | images/s | waiting for input, ms a step | an input thread makes, images/s | to {options.paths[-1]} |")
    print("|---|---|---|---|---|")
    for path, row in rows.items():
        images, waits, works = medians[path]
        rates = [each[0] for each in row]
        ratio = statistics.median(one[0] / base[0] for one, base in zip(row, rows[options.paths[-1]]))
        print(f"| {path} | {images:.1f} ({min(rates):.1f} to {max(rates):.1f}) | {waits:.2f} "
              f"| {BATCH * 1000 / works:.0f} | {ratio:.3f} |")


if __name__ == "__main__":
    main()
