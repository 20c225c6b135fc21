#!/usr/bin/python3
"""What a lost worker, and one that joins, cost the others when the state is large: four workers of one thread each.

usage: bench/recovery.py [--mib M] [--rounds N]      the programs: RINGMASTER_BIN, or build/release/bin

One job, an mlp whose parameters and slots (Adam) take M MiB on each worker, two samples a shard. N rounds: one worker
is killed with SIGKILL at a random moment of a step, and when the other three went on for two steps it is started again
and joins. Printed is a table for docs/performance.md, p50, p99 (of a hundred rounds and fewer the largest) and the
largest: of a kill (or, where a step was being applied just then, of the end of that), until all compute again, as the
status has it, and how much longer than a usual step of three it took to the next applied step; of a join, how long
it took from the fence until the joiner had shards, and how much longer than as many usual steps of four those of a
worker that stays took meanwhile: the longest one, and all of them.
The memory of all workers together is about ten times M.
"""
import argparse
import functools
import math
import random
import signal
import statistics
import sys
import time

import step_times  # noqa: I001  before the modules of tests: it says where they are
import cluster
import training

WITNESS, *VICTIMS = training.WORKERS
COLUMNS = 32 * 32 * 3
BYTES_PER_PARAMETER = 12  # Adam has two slots


def wide(mib):
    """Two hidden layers of the same width."""
    parameters = mib * 2 ** 20 / BYTES_PER_PARAMETER
    width = int((math.sqrt(COLUMNS ** 2 + 4 * parameters) - COLUMNS) / 2)
    return cluster.job_spec(name="recovery", model={"name": "mlp", "hidden": [width, width]}, batch=8, shards=4,
                            epochs=None, steps=10 ** 6, checkpoint=None, workers={"min": 1, "max": 4})


class Training(training.Training):
    """Whose workers may have as much memory as a plan of the worst case says."""

    def _start(self, prepare, workers):
        self.cluster.start_worker = functools.partial(self.cluster.start_worker, memory="64GiB")
        super()._start(prepare, workers)

    def steps(self):
        return step_times.steps_of(self.slots[WITNESS].process)

    def wait_steps(self, count):
        """Until the witness applied so many more."""
        aim = len(self.steps()) + count
        cluster.wait_until(lambda: len(self.steps()) >= aim or self.observer.state in cluster.FINAL,
                           f"{count} steps", 120)
        if self.observer.state in cluster.FINAL:
            raise AssertionError(f"the job ended: {self.observer.status.reason}")

    def regroup_of(self, since, lost=(), joined=()):
        """One with these names that began after `since`, once all members compute in it."""
        def find():
            return next((one for one in reversed(self.observer.regroups())
                         if one.noticed_unix_ms >= int(1000 * since) and set(lost) <= set(one.lost) and set(joined) <= set(one.joined) and one.form_ms > 0), None)
        cluster.wait_until(find, "the regroup", 120)
        return find()


def gaps(steps):
    return [b[0] - a[0] for a, b in zip(steps, steps[1:])]


def lose(train, victim, usual):
    """Kills one: the regroup, and when it began (unix seconds): at the kill, or at the end of the step that was being
    applied then."""
    time.sleep(random.random() * usual)
    killed = time.time()
    train.slots[victim].process.kill()
    train.wait_ring([name for name in train.slots if name != victim], 120)
    train.wait_steps(2)
    regroup = train.regroup_of(killed, lost=[victim])
    return regroup, max([killed] + [moment for moment, step in train.steps() if step == regroup.start_step])


def kill(train, victim, usual):
    """(ms until all compute again, seconds to the next applied step)."""
    regroup, begin = lose(train, victim, usual)
    steps = train.steps()
    compute = regroup.noticed_unix_ms - 1000 * begin + regroup.fence_ms + regroup.form_ms
    return compute, next(moment for moment, step in steps if moment > begin and step > regroup.start_step) - begin


def join(train, victim):
    """(seconds from the fence until it had shards, those that the witness took for each step of that time)."""
    began = time.time()
    train.start_worker(victim)
    train.wait_ring(training.WORKERS, 120)
    regroup = train.regroup_of(began, joined=[victim])
    cluster.wait_until(lambda: any(worker.name == victim and worker.shards for worker in train.observer.status.workers),
                       "the joiner has shards", 120)
    inside = time.time()
    train.wait_steps(2)
    steps = train.steps()
    fence = regroup.noticed_unix_ms / 1000
    return inside - fence, [b[0] - a[0] for a, b in zip(steps, steps[1:]) if b[0] > fence and a[0] < inside]


def run(options):
    train = Training()
    failed = True
    kills, joins = [], []
    try:
        train.submit(wide(options.mib))
        train.wait_ring(training.WORKERS, 300)
        train.wait_steps(3)
        four = statistics.median(gaps(train.steps())[-2:])
        for number in range(options.rounds):
            victim = VICTIMS[number % len(VICTIMS)]
            compute, applied = kill(train, victim, four)
            three = statistics.median(gaps(train.steps())[-1:])
            kills.append((compute, 1000 * (applied - three)))
            inside, steps = join(train, victim)
            train.wait_steps(3)
            four = statistics.median(gaps(train.steps())[-3:])
            joins.append((1000 * inside, 1000 * (max(steps) - four), 1000 * (sum(steps) - len(steps) * four)))
            print(f"round {number}: kill: computing again after {compute:.0f} ms, applied after {1000 * applied:.0f} "
                  f"(usual step of three {1000 * three:.0f}); join: has shards after {1000 * inside:.0f}, steps of "
                  f"{', '.join(f'{1000 * step:.0f}' for step in steps)} (usual of four {1000 * four:.0f})", flush=True)
        failed = False
    finally:
        train.destroy(failed)
    return kills, joins


def table(mib, kills, joins):
    """Lines of Markdown, ms."""
    rows = [("killed: until all compute again", [one for one, _ in kills]),
            ("killed: next step applied, beyond a usual one", [one for _, one in kills]),
            ("joins: from the fence until it has shards", [one for one, _, _ in joins]),
            ("joins: longest step, beyond a usual one", [one for _, one, _ in joins]),
            ("joins: all steps of that time, beyond as many usual ones", [one for _, _, one in joins])]
    lines = [f"| {mib} MiB of state, {len(kills)} rounds, ms | p50 | p99 | largest |", "|---|---|---|---|"]
    for what, values in rows:
        p50, p99 = statistics.median(values), step_times.quantile(values, .99)
        lines.append(f"| {what} | {p50:.0f} | {p99:.0f} | {max(values):.0f} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random.seed(options.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # no worker is left behind
    kills, joins = run(options)
    print("\n".join(table(options.mib, kills, joins)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
