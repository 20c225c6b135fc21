#!/usr/bin/python3
"""Test accuracy of the three policies on the demo's data: the mean over some seeds, side by side.

Trains the demo's job (examples/alexnet-cifar10.yaml, batch 64) once for each policy and seed, on a
cluster of its own on loopback, and prints a table. Exit code 1 when a mixed policy's mean is more than
one percentage point under float32's.
"""
import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
ALLOWED = 1.0  # percentage points


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="programs")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 1 to N (default 3)")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="of the one worker")
    parser.add_argument("--train", type=int, default=6000, help="training images (default: the demo's)")
    parser.add_argument("--test", type=int, default=1000, help="test images (default: the demo's)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as of ringctl submit")
    return parser.parse_args()


class Cluster:
    """One coordinator and one worker, as long as the block lasts."""

    def __init__(self, options, folder):
        self.ringctl = options.bin / "ringctl"
        self.run("dataset", "make", "cifar10", folder / "data/cifar10", "--train", options.train, "--test", options.test)
        self.log = open(folder / "cluster.log", "wb")
        self.up = subprocess.Popen(
            [self.ringctl, "up", "--workers", "1", "--cores", str(options.cores), "--listen", "127.0.0.1:0",
             "--data-root", folder / "data", "--data-dir", folder / "state", "-o", "json"],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.address = json.loads(self.up.stdout.readline())["coordinator"]

    def run(self, *words, check=True):
        return subprocess.run([self.ringctl, *map(str, words)], check=check, text=True, stdout=subprocess.PIPE).stdout

    def train(self, *sets):
        """The final status of the demo's job with these changes."""
        at = ("--coordinator", self.address, "-o", "json")
        words = [word for pair in sets for word in ("--set", pair)]
        job = json.loads(self.run("submit", ROOT / "examples/alexnet-cifar10.yaml", *words, *at))["job_id"]
        status = json.loads(self.run("wait", job, *at, check=False))
        if status["state"] != "SUCCEEDED":
            sys.exit(f"job {job} ended {status['state']}: {status['reason']}")
        return status

    def stop(self):
        self.up.send_signal(signal.SIGTERM)
        self.up.wait(30)
        self.log.close()


@contextlib.contextmanager
def cluster(options):
    with tempfile.TemporaryDirectory(prefix="ringmaster-accuracy-") as folder:
        running = Cluster(options, pathlib.Path(folder))
        try:
            yield running
        finally:
            running.stop()


def main():
    options = arguments()
    runs = {}
    with cluster(options) as running:
        for seed in range(1, options.seeds + 1):
            for policy in POLICIES:
                status = running.train("batch=64", f"seed={seed}", f"precision.policy={policy}", *options.set)
                runs[policy, seed] = status
                took = (status["finished_unix_ms"] - status["started_unix_ms"]) / 1000
                print(f"{policy} seed {seed}: {100 * status['metrics']['test']['accuracy']:.1f}% in {took:.0f} s",
                      file=sys.stderr, flush=True)
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
