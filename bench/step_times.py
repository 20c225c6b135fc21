#!/usr/bin/python3
"""How a change of the cluster shows in the step times of those who go on: four workers of one thread each.

usage: bench/step_times.py [--windows N] [--seconds S]      the programs: RINGMASTER_BIN, or build/release/bin

Windows of S seconds of one job, in turn: nothing happens; the coordinator is killed with SIGKILL and started
again; nothing; a fifth worker joins (and is killed in a pause that no window counts). A worker that stays says
when it applied each step (RINGMASTER_LOG=debug). Printed: step times in ms over all windows of a kind, and
for a join how much longer than the usual median the longest step was.
"""
import argparse
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
os.environ.setdefault("RINGMASTER_BIN", str(ROOT / "build/release/bin"))
os.environ["RINGMASTER_LOG"] = "debug"
sys.path.append(str(ROOT / "tests/chaos"))

import contenders  # noqa: E402
import training  # noqa: E402
import cluster  # noqa: E402

QUIET, COORDINATOR, JOIN = "nothing happens", "coordinator killed, restarted", "a worker joins"
WITNESS = training.WORKERS[0]


def steps_of(process):
    """(unix seconds, step) of every step that this worker applied."""
    return [(moment, step) for moment, _, step in contenders.applied(process.log())]


def sleep_until(moment):
    time.sleep(max(0.0, moment - time.time()))


def disturb(kind, train):
    if kind == COORDINATOR:
        train.cluster.coordinator.kill()
        train.restart_coordinator()
    elif kind == JOIN:
        train.start_worker(training.NEWCOMER)


def run(options):
    """The windows, as (kind, begin, end), and the steps of the worker that was there all the time."""
    train = training.Training()
    failed = True
    windows = []
    try:
        train.submit(training.alexnet(10 ** 6))
        train.wait_ring(training.WORKERS)
        train.wait_step(10)
        for number in range(options.windows):
            kind = (QUIET, COORDINATOR, QUIET, JOIN)[number % 4]
            begin = time.time()
            disturb(kind, train)
            sleep_until(begin + options.seconds)
            windows.append((kind, begin, time.time()))
            if kind == JOIN:
                if training.NEWCOMER not in train.observer.ring():
                    raise AssertionError("the worker did not join within its window")
                train.slots[training.NEWCOMER].process.kill()
                train.wait_ring(training.WORKERS)
                time.sleep(2.0)
            print(".", end="", flush=True)
        steps = steps_of(train.slots[WITNESS].process)
        failed = False
    finally:
        train.destroy(failed)
    print()
    return windows, steps


def durations(windows, steps, kind):
    """One list a window of this kind: milliseconds of each step that ended in it."""
    result = []
    for its, begin, end in windows:
        if its == kind:
            result.append([(b[0] - a[0]) * 1000 for a, b in zip(steps, steps[1:])
                           if begin <= a[0] and b[0] <= end and b[1] == a[1] + 1])
    return result


def quantile(values, at):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(at * len(ordered)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    windows, steps = run(options)
    print(f"{'':32} {'steps':>6} {'median':>8} {'p90':>8} {'p99':>8} {'longest':>8}  ms")
    usual = [value for window in durations(windows, steps, QUIET) for value in window]
    for kind in (QUIET, COORDINATOR, JOIN):
        values = [value for window in durations(windows, steps, kind) for value in window]
        print(f"{kind:32} {len(values):6} {statistics.median(values):8.1f} {quantile(values, .9):8.1f} "
              f"{quantile(values, .99):8.1f} {max(values):8.1f}")
    restarts = [value for window in durations(windows, steps, COORDINATOR) for value in window]
    print(f"p99 across a coordinator's restart / usual p99: {quantile(restarts, .99) / quantile(usual, .99):.2f}")
    longest = [max(window) for window in durations(windows, steps, QUIET)]
    grown = [max(window) - statistics.median(longest) for window in durations(windows, steps, JOIN)]
    print(f"longest step of a window, growth when a worker joins, in usual steps: median "
          f"{statistics.median(grown) / statistics.median(usual):.2f}, most {max(grown) / statistics.median(usual):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
