#!/usr/bin/python3
"""Test accuracy of the three policies on the demo's data: the mean over some seeds, side by side.

    bench/precision_accuracy.py [--seeds N] [--cores N] [--set KEY=VALUE]      the programs: RINGMASTER_BIN, or build/release/bin

Trains the demo's job (examples/alexnet-cifar10.yaml, batch 64) once for each policy and seed, on a
cluster of its own on loopback, and prints a table. Exit code 1 when a mixed policy's mean is more than
one percentage point under float32's.
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

POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
ALLOWED = 1.0  # percentage points


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="seeds 1 to N (default 3)")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="of the one worker")
    parser.add_argument("--train", type=int, default=6000, help="training images (default: the demo's)")
    parser.add_argument("--test", type=int, default=1000, help="test images (default: the demo's)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of ringctl submit")
    return parser.parse_args()


def train(running, *sets):
    """The final status of the demo's job with these changes."""
    job = running.submit((ROOT / "examples/alexnet-cifar10.yaml").read_text(),
                         *(word for pair in sets for word in ("--set", pair)))
    status = running.wait(job, timeout=3600)
    if status["state"] != "SUCCEEDED":
        sys.exit(f"job {job} ended {status['state']}: {status['reason']}")
    return status


def main():
    options = arguments()
    runs = {}
    running = cluster.Cluster()
    failed = True
    try:
        running.make_data(train=options.train, test=options.test)
        running.start_coordinator()
        running.start_worker("a", cores=options.cores)
        for seed in range(1, options.seeds + 1):
            for policy in POLICIES:
                status = train(running, "batch=64", f"seed={seed}", f"precision.policy={policy}", *options.set)
                runs[policy, seed] = status
                took = (status["finished_unix_ms"] - status["started_unix_ms"]) / 1000
                print(f"{policy} seed {seed}: {100 * status['metrics']['test']['accuracy']:.1f}% in {took:.0f} s",
                      file=sys.stderr, flush=True)
        failed = False
    finally:
        running.destroy(failed)
    seeds = range(1, options.seeds + 1)
    print("| policy | " + " | ".join(f"seed {seed}" for seed in seeds) + " | mean | against float32 | skipped steps |")
    print("|---|" + "---|" * (options.seeds + 3))
    means = {}
    for policy in POLICIES:
        accuracies = [100 * runs[policy, seed]["metrics"]["test"]["accuracy"] for seed in seeds]
        means[policy] = statistics.mean(accuracies)
        skipped = sum(runs[policy, seed]["skipped_steps"] for seed in seeds)
        print(f"| `{policy}` | " + " | ".join(f"{accuracy:.1f}%" for accuracy in accuracies) +
              f" | {means[policy]:.2f}% | {means[policy] - means['float32']:+.2f} | {skipped} |")
    low = [policy for policy in POLICIES if means[policy] < means["float32"] - ALLOWED]
    if low:
        sys.exit(f"more than {ALLOWED} percentage point under float32: {', '.join(low)}")


if __name__ == "__main__":
    main()
