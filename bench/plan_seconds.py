#!/usr/bin/python3
"""What a profile says that a step takes, beside what it takes.

usage: bench/plan_seconds.py [--only MODEL] [--rounds N]     the programs: RINGMASTER_BIN, or build/release/bin

For each of the six models of bench/plan_memory.py `ringctl plan --measure` times shards of a small size on one
core, and `ringctl plan --profile` predicts the step of a job with twice as many samples a shard and four times
as many shards. Then a worker of one core trains that job. Of several rounds the quickest counts, on both sides.
Exit code 1 when one is off by more than 25 %.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import plan_memory
from plan_memory import cluster

# Model, samples of a measured shard, edge of the images.
CASES = (("alexnet", 32, 32), ("vgg", 8, 32), ("resnet50", 4, 64), ("mobilenetv2", 8, 96), ("efficientnetb0", 4, 96),
         ("nasnetmobile", 4, 96))
ALLOWED = 0.25
SHARDS = 4
STEPS = 6


def job_of(model, samples, shards, edge):
    spec = plan_memory.job_of(model, samples * shards, shards, edge)
    spec["data"]["take"] = STEPS * samples * shards
    return spec


def plan(spec, folder, *options):
    path = pathlib.Path(folder) / "job.yaml"
    path.write_text(json.dumps(spec))
    done = subprocess.run([cluster.BIN / "ringctl", "plan", path, "--profile", f"{folder}/host.json", "-o", "json",
                           *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    return json.loads(done.stdout)


def train(spec):
    """Seconds of a step, as the worker tells them: the mean of its last ones."""
    batch = spec["batch"]
    running = cluster.Cluster()
    failed = True
    try:
        running.make_data(train=STEPS * batch, test=batch)
        running.start_coordinator()
        running.start_worker("a", memory=plan_memory.MEMORY)
        status = running.run_job(spec, timeout=300)
        running.stop()
        failed = False
        return status["workers"][0]["step_times"]["total_ms"] / 1000
    finally:
        running.destroy(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="MODEL")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    print("| model | measured shard | job | predicted s | real s | real / predicted |")
    print("|---|---|---|---|---|---|")
    worst = 0.0
    for model, samples, edge in CASES:
        if options.only and model != options.only:
            continue
        predicted, real = [], []
        job = job_of(model, 2 * samples, SHARDS, edge)
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory(prefix="ringmaster-") as folder:
                plan(job_of(model, samples, 1, edge), folder, "--measure", "--cores", "1", "--memory-per-core",
                     plan_memory.MEMORY)
                predicted.append(plan(job, folder)["seconds_per_step"])
            real.append(train(job))
        ratio = min(real) / min(predicted)
        worst = max(worst, abs(ratio - 1))
        print(f"| {model} | {samples} of {edge}x{edge} | {SHARDS} of {2 * samples} | {min(predicted):.3f} | "
              f"{min(real):.3f} | {ratio:.2f} |", flush=True)
    print(f"largest difference: {100 * worst:.0f} %")
    return 0 if worst <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
