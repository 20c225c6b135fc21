#!/usr/bin/python3
"""What TLS costs a cluster: real daemons on this machine, with certificates beside the same ones without.

    bench/tls_cost.py regroup [--rounds N] [--workers N] [--mib M] [--unprepared]
    bench/tls_cost.py training [--rounds N] [--model NAME] [--batch N] [--steps N]

Both clusters are there at once, and in turn one works while the other one rests; a ratio, or a difference, is the
median of those of each round. `regroup`: a worker is killed with SIGKILL at a random moment of a step; printed is the
time until the others compute again, of which the signal, the fence and the forming of the new ring are parts. The
killed one then joins, and the next one is killed when all have connections ready to whom they may need next, or with
--unprepared at once (also for programs that have none). `training`: a job on two workers of one core, CPUs of their own.

Needs root: it runs in a network namespace of its own, where the workers with certificates have an address that is not
loopback. The programs are those of RINGMASTER_BIN, or build/release/bin.
"""
import argparse
import os
import pathlib
import random
import signal
import statistics
import sys

import recovery  # noqa: I001  before the modules of tests: it says where they are
from step_times import quantile

import cluster
import contenders
import private
import training

PLAIN, TLS = "without", "with TLS"
READY = "next successors are connected already"


# ---- regroup ------------------------------------------------------------------------------------


class Job(recovery.Training):
    """One that stands still at a step boundary while its gate is closed."""

    def __init__(self, workers, switch):
        self.names = workers
        self.gate = None
        super().__init__(workers=workers, environment=self._environment, switch=switch)

    def _environment(self, folder):
        self.gate = cluster.Gate(pathlib.Path(folder, "gate"), milliseconds=500_000)
        return {"RINGMASTER_LOG": "debug", "RINGMASTER_FAILPOINTS": self.gate.failpoint}

    def ready(self):
        """How often workers said that they are connected to whom they may need next."""
        return {name: self.slots[name].process.log().count(READY) for name in self.names}

    def begin(self, spec):
        self.gate.open()
        self.submit(spec)
        self.wait_ring(self.names, 120)
        self.wait_steps(3)

    def round(self, victim, prepared):
        """Milliseconds from the kill until all compute again, (noticing, fence, forming)."""
        self.gate.open()
        self.wait_steps(3)
        if prepared:
            cluster.wait_until(lambda: all(self.ready().values()), "all are connected to whom they may need next", 60)
        before = self.ready()
        usual = statistics.median(recovery.gaps(self.steps()[-3:]))
        regroup, began = recovery.lose(self, victim, usual)
        parts = (regroup.noticed_unix_ms - 1000 * began, regroup.fence_ms, regroup.form_ms)
        self.start_worker(victim)
        self.wait_ring(self.names, 120)
        if prepared:
            cluster.wait_until(lambda: all(count > before[name] for name, count in self.ready().items() if name != victim),
                               "the others are connected again", 60)
        self.wait_steps(2)
        self.gate.path.touch()
        return sum(parts), parts


def regroup(options):
    names = training.WORKERS[:options.workers]
    spec = recovery.wide(options.mib)
    clusters, failed = {}, True
    times = {PLAIN: [], TLS: []}
    try:
        for kind, switch in ((PLAIN, None), (TLS, options.switch)):
            clusters[kind] = Job(names, switch)
            clusters[kind].begin(spec)
            clusters[kind].gate.path.touch()
        for number in range(options.rounds):
            victim = names[1 + number % (len(names) - 1)]
            for kind in random.sample([PLAIN, TLS], 2):
                times[kind].append(clusters[kind].round(victim, not options.unprepared))
            print(f"round {number}, {victim}: " + ", ".join(
                f"{kind} {times[kind][-1][0]:.0f} ms (noticed after {times[kind][-1][1][0]:.0f}, fence {times[kind][-1][1][1]:.0f}, "
                f"forming {times[kind][-1][1][2]:.0f})" for kind in (PLAIN, TLS)), flush=True)
        failed = False
    finally:
        for each in clusters.values():
            each.gate.open()
            each.destroy(failed)
    print(f"\nms from SIGKILL until all of {options.workers - 1} compute again, {options.rounds} rounds\n")
    print("| | median | p90 | fence, median | forming, median | forming, p90 |\n|---|---|---|---|---|---|")
    for kind, found in times.items():
        whole = [one for one, _ in found]
        form = [parts[2] for _, parts in found]
        print(f"| {kind} | {statistics.median(whole):.0f} | {quantile(whole, .9):.0f} | "
              f"{statistics.median(parts[1] for _, parts in found):.0f} | {statistics.median(form):.0f} | {quantile(form, .9):.0f} |")
    differences = [tls[0] - plain[0] for plain, tls in zip(times[PLAIN], times[TLS])]
    print(f"\nlonger with TLS: median of the differences {statistics.median(differences):.1f} ms, difference of the medians "
          f"{statistics.median(one for one, _ in times[TLS]) - statistics.median(one for one, _ in times[PLAIN]):.1f} ms")


# ---- training -----------------------------------------------------------------------------------


def train(options):
    options.bin = cluster.BIN
    options.image, options.model_options = contenders.IMAGE, {}
    options.cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(options.cpus) < 2:
        raise contenders.Failure("two workers need two CPUs")
    clusters, teams = [], []
    try:
        for kind, host in ((PLAIN, None), (TLS, options.switch.ADDRESS)):
            clusters.append(contenders.Workers(options, host))
            teams.append(contenders.OursOnWorkers(kind, options, "float32", clusters[-1], 2, options.batch, options.shards))
        for number in range(options.rounds):
            for team in random.sample(teams, 2):
                team.round()
            print(f"round {number}: " + ", ".join(f"{team.name} {team.rounds[-1]:.1f} images/s" for team in teams), flush=True)
    finally:
        for each in clusters:
            each.stop()
    plain, tls = (team.rounds for team in teams)
    print(f"\n{options.model}, batch {options.batch}, {options.shards} shards, two workers; {options.rounds} rounds of {options.steps} steps\n")
    print("| | images/s, median | lowest | highest |\n|---|---|---|---|")
    for team in teams:
        print(f"| {team.name} | {statistics.median(team.rounds):.1f} | {min(team.rounds):.1f} | {max(team.rounds):.1f} |")
    print(f"\ntraining time with TLS over that without, median of the rounds': "
          f"{statistics.median(one / other for one, other in zip(plain, tls)):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("regroup")
    part.set_defaults(run=regroup)
    part.add_argument("--rounds", type=int, default=30)
    part.add_argument("--workers", type=int, choices=(3, 4), default=4)
    part.add_argument("--mib", type=int, default=64, help="parameters and slots of the job")
    part.add_argument("--unprepared", action="store_true")
    part = parts.add_parser("training")
    part.set_defaults(run=train)
    part.add_argument("--rounds", type=int, default=7)
    part.add_argument("--model", default="alexnet")
    part.add_argument("--batch", type=int, default=256)
    part.add_argument("--shards", type=int, default=2)
    part.add_argument("--steps", type=int, default=4)
    part.add_argument("--warm-up", type=int, default=1)
    for each in parts.choices.values():
        each.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    private.enter()
    options.switch = private.Switch()
    random.seed(options.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # no worker is left behind
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, programs of {os.environ['RINGMASTER_BIN']}", flush=True)
    options.run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
