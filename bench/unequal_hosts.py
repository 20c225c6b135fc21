#!/usr/bin/python3
"""What unequal hosts of one class do together, beside the sum of what each does by itself. Needs root (cgroups).

usage: bench/unequal_hosts.py [--quotas 100 50 25] [--slow 5] [--shards 28] [--seconds S]

The programs: RINGMASTER_BIN, or build/release/bin. Workers of one core, each in a cgroup that has a part of a core
(percent; 1 ms at a time, as short as the kernel allows). First each trains a job of its own, all at the same time,
because CPUs of one processor take from each other whatever their quotas; then all of them train one job: soon after its
begin, and 30 s later. Then one that has --slow percent joins. Printed are images/s, and together over the sum; a worker
that only delays the others is left out, and the last figure says what its coming cost in the end.
"""
import argparse
import concurrent.futures
import os
import pathlib
import signal
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
os.environ.setdefault("RINGMASTER_BIN", str(ROOT / "build/release/bin"))
sys.path.append(str(ROOT / "tests/integration"))

import cluster  # noqa: E402

QUOTA = 1_000  # microseconds
OLD, NEW = pathlib.Path("/sys/fs/cgroup/cpu"), pathlib.Path("/sys/fs/cgroup")


class Quota:
    """A cgroup whose processes have so many percent of a core; by cgroup v2, or v1's cpu controller."""

    def __init__(self, percent):
        self.period = QUOTA * 100 // percent
        self.old = (OLD / "cpu.cfs_quota_us").exists()
        self.folder = (OLD if self.old else NEW) / f"ringmaster-{os.getpid()}-{percent}"

    def make(self):
        self.folder.mkdir()
        if self.old:
            (self.folder / "cpu.cfs_period_us").write_text(str(self.period))
            (self.folder / "cpu.cfs_quota_us").write_text(str(QUOTA))
        else:
            (self.folder / "cpu.max").write_text(f"{QUOTA} {self.period}")

    def prefix(self):
        return ("sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$0" "$@"')

    def remove(self):
        for _ in range(50):  # its processes are on their way out
            try:
                return self.folder.rmdir()
            except FileNotFoundError:  # it was never made
                return None
            except OSError:
                time.sleep(0.1)
        return None


def job(shards, least, most):
    return cluster.job_spec(
        name="unequal", model={"name": "resnet20"}, batch=16 * shards, shards=shards, epochs=10 ** 6,
        workers={"min": least, "max": most}, checkpoint={"every_steps": 10 ** 6, "keep": 1})


class Bench:
    def __init__(self, options):
        self.options = options
        self.quotas = {}
        self.cluster = cluster.Cluster()

    def start(self, percent):
        self.quotas[percent] = Quota(percent)
        self.quotas[percent].make()
        return self.cluster.start_worker(f"w{percent}", prefix=self.quotas[percent].prefix())

    def rate(self, identifier, seconds):
        """Images/s from step to step over a while."""
        def point():
            status = self.cluster.status(identifier)
            return time.monotonic(), status["step"]
        begin = point()
        while (end := point())[1] == begin[1]:
            time.sleep(0.02)
        begin = end
        while True:
            time.sleep(0.02)
            now = point()
            if now[1] > end[1]:
                end = now
            if now[0] - begin[0] > seconds and end[1] > begin[1]:
                return (end[1] - begin[1]) * 16 * self.options.shards / (end[0] - begin[0])

    def submit(self, least, most=8):
        return self.cluster.submit(job(self.options.shards, least, most))

    def end(self, identifier):
        self.cluster.ringctl("cancel", identifier)
        self.cluster.wait(identifier)

    def running(self, identifier, steps):
        cluster.wait_until(lambda: self.cluster.status(identifier)["step"] >= steps, f"{steps} steps", timeout=300)

    def shards(self, identifier):
        return {worker["name"]: len(worker["shards"]) for worker in self.cluster.status(identifier)["workers"]}

    def run(self):
        self.cluster.make_data(train=self.options.shards * 64, test=self.options.shards)
        self.cluster.start_coordinator()
        for percent in self.options.quotas:
            self.start(percent)
        self.cluster.wait_free(*(f"w{percent}" for percent in self.options.quotas))
        # A job each at the same time: CPUs of one processor take from each other, whatever their quotas.
        own = [self.submit(1, most=1) for _ in self.options.quotas]
        for identifier in own:
            self.running(identifier, 2)
        with concurrent.futures.ThreadPoolExecutor() as pool:
            rates = list(pool.map(lambda identifier: self.rate(identifier, self.options.seconds), own))
        total = sum(rates)
        for identifier, rate in zip(own, rates):
            [worker] = self.cluster.status(identifier)["workers"]
            print(f"{worker['name']}, a job of its own: {rate:8.1f} images/s", flush=True)
        for identifier in own:
            self.end(identifier)
        together = self.submit(len(self.options.quotas))
        self.running(together, 1)
        before, dealt = self.rate(together, self.options.seconds), self.shards(together)
        time.sleep(30)
        after = self.rate(together, self.options.seconds)
        print(f"together at first:   {before:8.1f} images/s, {before / total:.2f} of the sum; shards {dealt}")
        for worker in self.cluster.status(together)["workers"]:
            print("   ", worker["name"], worker["step_times"])
        print(f"together, by speed:  {after:8.1f} images/s, {after / total:.2f} of the sum; shards {self.shards(together)}", flush=True)
        self.start(self.options.slow)
        time.sleep(60)
        slow = self.rate(together, self.options.seconds)
        print(f"a minute after one of {self.options.slow}% came: {slow:8.1f} images/s, {slow / after:.2f} of before; shards {self.shards(together)}")
        for event in self.cluster.json("events", together)["events"]:
            if event["type"] in ("Regrouped", "WorkerLeft", "WorkerJoined"):
                print("   ", event["message"])
        self.end(together)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quotas", type=int, nargs="+", default=[100, 50, 25])
    parser.add_argument("--slow", type=int, default=5)
    parser.add_argument("--shards", type=int, default=28)
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # no cgroup is left behind
    bench = Bench(options)
    failed = True
    try:
        bench.run()
        failed = False
    finally:
        bench.cluster.destroy(failed)
        for quota in bench.quotas.values():
            quota.remove()


if __name__ == "__main__":
    main()
