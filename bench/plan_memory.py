#!/usr/bin/python3
"""What `ringctl plan` says that a job takes of memory, beside what a worker takes.

usage: bench/plan_memory.py [--only MODEL] [--parts | --rematerialize]     the programs: RINGMASTER_BIN, or build/release/bin

For each of six models a worker of its own with one core trains three steps, evaluates once and writes one
checkpoint, on generated data. Real is the most that was resident while the job ran (VmHWM, reset before it)
less what was resident before; predicted is `worker_bytes` of the plan. Then alexnet on a core of 512 MiB: the
largest batch that the plan names must train within them, and a batch of one more sample a shard be refused.
Exit code 1 when one takes more than the plan says, or less than three quarters of it (the plan has room for
sums that are wide and for a ring's totals, which such a job does not touch), or the limit does not hold.
--parts prints where the plan sees them, and what was resident at the largest of some samples.

--rematerialize: for the same models what a core is planned to take with `memory: {rematerialize: true}` and
without it, and seconds a step of both, run in turn; the quickest of four runs counts. Exit code 1 when their
checkpoints differ.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
os.environ.setdefault("RINGMASTER_BIN", str(ROOT / "build/release/bin"))
sys.path.append(str(ROOT / "tests/integration"))

import cluster  # noqa: E402

# Model, batch, shards, edge of the images.
CASES = (("alexnet", 256, 4, 32), ("vgg", 64, 4, 32), ("resnet50", 32, 4, 64), ("mobilenetv2", 32, 4, 96),
         ("efficientnetb0", 32, 4, 96), ("nasnetmobile", 32, 4, 96))
LEAST, MOST = 0.75, 1.0  # of what is predicted
MEMORY = "8GiB"  # of the core: nothing is refused
STEPS = 3
MIB = 1 << 20


def kilobytes(path):
    """The lines `Key:   123 kB` of a file of /proc, in bytes."""
    pairs = re.findall(r"^(\w+):\s+(\d+) kB", pathlib.Path(path).read_text(), re.MULTILINE)
    return {key: int(value) << 10 for key, value in pairs}


def mappings(pid):
    """Resident bytes by the mapping's name."""
    found = {}
    name = ""
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        begin = re.match(r"[0-9a-f]+-[0-9a-f]+ (\S+) \S+ \S+ \S+\s*(.*)", line)
        if begin:
            name = os.path.basename(begin[2]) or f"no file, {begin[1]}"
        resident = re.match(r"Rss:\s+(\d+) kB", line)
        if resident:
            found[name] = found.get(name, 0) + (int(resident[1]) << 10)
    return found


class Sampler:
    """Looks at a process a hundred times a second, and keeps what was mapped when most was resident."""

    def __init__(self, pid):
        self.pid = pid
        self.most = 0
        self.mapped = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._stop.wait(0.01):
            resident = kilobytes(f"/proc/{self.pid}/status").get("VmRSS", 0)
            if resident > 1.01 * self.most:
                self.most = resident
                self.mapped = mappings(self.pid)

    def stop(self):
        self._stop.set()
        self._thread.join()


def job_of(model, batch, shards, edge):
    data = {"format": "cifar10", "path": "cifar10", "take": STEPS * batch, "take_test": batch}
    if edge != 32:
        data["resize"] = edge
    return cluster.job_spec(model={"name": model}, batch=batch, shards=shards, epochs=1, data=data)


def resident_after(pid, before):
    """Once the worker has dropped the job, or after some seconds."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        now = kilobytes(f"/proc/{pid}/status")["VmRSS"]
        if now < before + 64 * MIB:
            break
        time.sleep(0.1)
    return kilobytes(f"/proc/{pid}/status")["VmRSS"]


@contextlib.contextmanager
def started(samples, memory):
    """A cluster of one worker with one core, and its process id."""
    running = cluster.Cluster()
    failed = True
    try:
        running.make_data(train=STEPS * samples, test=samples)
        running.start_coordinator()
        pid = running.start_worker("a", memory=memory).popen.pid
        yield running, next((child for child in cluster.children_of(pid)), pid)
        running.stop()
        failed = False
    finally:
        running.destroy(failed)


def plan_of(spec, memory):
    job = tempfile.NamedTemporaryFile("w", suffix=".yaml")
    with job:
        json.dump(spec, job)
        job.flush()
        done = subprocess.run(
            [cluster.BIN / "ringctl", "plan", job.name, "--cores", "1", "--workers", "1", "--memory-per-core", memory,
             "-o", "json"], stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout)


def hold_limit(case, limit="512MiB"):
    """Whether the largest batch trains within the limit and one more sample a shard is refused."""
    model, batch, shards, edge = case
    largest = batch
    for _ in range(3):  # the job has three batches of data, whatever the batch
        largest = plan_of(job_of(model, largest, shards, edge), limit)["largest_batch"]
    job = job_of(model, largest, shards, edge)
    most = largest + shards
    with started(most, limit) as (running, pid):
        before = kilobytes(f"/proc/{pid}/status")["VmRSS"]
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
        running.run_job(job, timeout=300)
        real = kilobytes(f"/proc/{pid}/status")["VmHWM"] - before
        refused = running.wait(running.submit({**job, "batch": most}))
    word = (refused["failure"] or {}).get("word", refused["state"])
    print(f"{model} with --memory-per-core {limit}: batch {largest} takes {real / MIB:.1f} MiB, batch {most}: {word}")
    return real <= 512 * MIB and word == "MEMORY"


def measure(case, parts):
    """(predicted, real, still resident after the job), in bytes."""
    spec = job_of(*case)
    plan = plan_of(spec, MEMORY)
    with started(case[1], MEMORY) as (running, pid):
        before = kilobytes(f"/proc/{pid}/status")["VmRSS"]
        mapped = mappings(pid)
        pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
        sampler = Sampler(pid) if parts else None
        running.run_job(spec, timeout=300)
        if sampler:
            sampler.stop()
        real = kilobytes(f"/proc/{pid}/status")["VmHWM"] - before
        left = resident_after(pid, before) - before
        if parts:
            for part in [{"what": "core", "bytes": plan["bytes_per_core"]["cpu"]}, *plan["host"]]:
                print(f"    {part['bytes'] / MIB:9.1f}  {part['what']}")
            grown = {name: size - mapped.get(name, 0) for name, size in sampler.mapped.items()}
            for name, size in sorted(grown.items(), key=lambda pair: -pair[1]):
                if size > MIB // 4:
                    print(f"    {size / MIB:9.1f}  real: {name}")
        return plan["worker_bytes"], real, left


def rematerialize(case, rounds=4):
    """(plans, least seconds a step, SHA-256 of all checkpoints), of the job without it, then with it."""
    kept = job_of(*case)
    jobs = [kept, {**kept, "memory": {"rematerialize": True}}]
    plans = [plan_of(job, MEMORY) for job in jobs]
    seconds = [[] for _ in jobs]
    checkpoints = set()
    with started(case[1], MEMORY) as (running, _):
        for _ in range(rounds):
            for job, times in zip(jobs, seconds):
                status = running.run_job(job, timeout=300)
                times.append(status["workers"][0]["step_times"]["total_ms"] / 1000)
                checkpoints.add(status["checkpoint"]["sha256"])
    return plans, [min(times) for times in seconds], checkpoints


def compare(only):
    print("| model | batch, shards, images | a core's programs MiB: without, with | | operations | "
          "seconds a step: without, with | |")
    print("|---|---|---|---|---|---|---|")
    same = True
    for case in CASES:
        if only and case[0] != only:
            continue
        plans, seconds, checkpoints = rematerialize(case)
        same = same and len(checkpoints) == 1
        before, after = (plan["bytes_per_core"]["cpu"] / MIB for plan in plans)
        print(f"| {case[0]} | {case[1]}, {case[2]}, {case[3]}x{case[3]} | {before:.1f}, {after:.1f} | "
              f"{after / before:.2f} | {plans[1]['rematerialize']['operations']:.2f} | {seconds[0]:.2f}, "
              f"{seconds[1]:.2f} | {seconds[1] / seconds[0]:.2f} |", flush=True)
    print(f"load: {os.getloadavg()[0]:.1f}; checkpoints {'are the same' if same else 'DIFFER'}")
    return 0 if same else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="MODEL")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--rematerialize", action="store_true")
    options = parser.parse_args()
    if options.rematerialize:
        return compare(options.only)
    print("| model | batch, shards, images | predicted MiB | real MiB | real / predicted | left after it MiB |")
    print("|---|---|---|---|---|---|")
    within = True
    for case in CASES:
        if options.only and case[0] != options.only:
            continue
        predicted, real, left = measure(case, options.parts)
        within = within and LEAST <= real / predicted <= MOST
        print(f"| {case[0]} | {case[1]}, {case[2]}, {case[3]}x{case[3]} | {predicted / MIB:.1f} | {real / MIB:.1f} | "
              f"{real / predicted:.3f} | {left / MIB:.1f} |", flush=True)
    held = options.only not in (None, CASES[0][0]) or hold_limit(CASES[0])
    return 0 if within and held else 1


if __name__ == "__main__":
    sys.exit(main())
