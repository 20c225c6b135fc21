"""Storms of random faults over a training cluster: scripts/chaos.

The seed decides kinds, victims and pauses; what meets what inside the daemons is up to the machine.
"""
import argparse
import pathlib
import random
import sys
import tempfile
import time
import traceback

import training  # noqa: I001  first: it finds tests/integration
import cluster
import faults
import grpc
import ledger
import observer
import private

STEPS = 150          # about a minute undisturbed, on two CPUs
END_LIMIT = 300.0    # seconds from the last fault to the end of the job
PERIOD = 1.0         # seconds from one fault to the next
CLIENT_PERIOD = 5.0  # seconds from one submission beside the job to the next

# Of a job that mixes classes, which is small:
MIXED_FAULTS = 40
MIXED_LIMIT = 900.0  # seconds for them
MIXED_STEPS = 300
MIXED_PACE_MS = 400  # that a step takes until they are over

# Of a job of a script, whose steps are short:
SCRIPT_STEPS = 500
SCRIPT_PACE_MS = 150


class Clerk:
    """Submits jobs that no cluster here is large enough for, and cancels them; remembers what was acknowledged. Asks
    until it is told: free workers join no job while another one waits for them."""

    def __init__(self, storm):
        self._storm = storm
        self._keys = {}        # idempotency key -> job id
        self._cancelled = set()

    def _call(self, method, request, reply):
        """The reply, or None when nobody answered, so that what became of it is open."""
        try:
            return self._storm.client.call(method, request, reply)
        except grpc.RpcError as error:
            if error.code() in training.UNREACHABLE:
                return None
            raise

    def _submit(self, key):
        request = observer.jobs_pb2.SubmitRequest(spec=self._storm.training.observer.status.spec, idempotency_key=key)
        request.spec.name = "queued"
        request.spec.workers.min = request.spec.workers.max = 8
        return self._call("Submit", request, observer.jobs_pb2.SubmitResponse)

    def submit(self):
        key = f"storm-{len(self._keys)}-{self._storm.random.random()}"

        def acknowledged():
            reply = self._submit(key)
            if reply is None:
                return False
            self._keys[key] = reply.job_id
            self._storm.when(lambda: self._cancel(reply.job_id), f"{reply.job_id} is cancelled", limit=60.0)
            return True
        if not acknowledged():
            self._storm.when(acknowledged, f"{key} is acknowledged", limit=60.0)

    def _cancel(self, job):
        """Returns whether it is known to be."""
        try:
            done = self._call("Cancel", observer.jobs_pb2.CancelRequest(job_id=job), observer.jobs_pb2.CancelResponse)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.FAILED_PRECONDITION:  # it has ended: the reply was lost
                raise
            done = True
        if done is not None:
            self._cancelled.add(job)
        return done is not None

    def check(self):
        """Everything acknowledged is there, once."""
        for key, job in self._keys.items():
            again = self._submit(key)
            if again is None or not again.existed or again.job_id != job:
                raise AssertionError(f"submission {key} was acknowledged as {job}, and is now {again}")
            state = observer.STATES[self._storm.client.get(job).state]
            if job in self._cancelled and state != "CANCELLED":
                raise AssertionError(f"{job}: its cancellation was acknowledged, and it is {state}")
        return len(self._keys)


class Storm:
    """One job under faults. Faults use the part between the lines."""

    def __init__(self, train, rng, lone=False):
        """`lone`: a ring of one may be hit, too, once there is a checkpoint to which the job goes back."""
        self.training = train
        self._lone = lone
        self.random = rng
        self.client = observer.Client(train.cluster.address)
        self.coordinator_disturbed = False
        self.records = []
        self.complaints = []
        self._planned = []   # (monotonic time, action)
        self._awaited = []   # (condition, what, monotonic deadline)
        self._calm_since = time.monotonic()
        self.clerk = Clerk(self)

    # ---- for faults -----------------------------------------------------------------------------

    def slots(self):
        return list(self.training.slots.values())

    def victim(self, spare=1, but=None, proxied=False):
        """A whole member of the ring, if `spare` others stay that hold the state, as far as is known."""
        ring = set(self.training.observer.ring())
        whole = [slot for slot in self.slots() if slot.whole() and slot.name in ring and slot is not but]
        able = [slot for slot in whole if slot.ring is not None] if proxied else whole
        if not able:
            return None
        slot = self.random.choice(sorted(able, key=lambda one: one.name))
        lone = self._lone and ring == {slot.name} and self.training.observer.status.HasField("checkpoint")
        others = sum(other is not slot and other in whole for other in self.settled())
        return slot if lone or others >= spare else None

    def settled(self):
        """Members that hold the state, as far as is known, to whom nothing is being done."""
        return [slot for slot in self.slots() if slot.whole() and self.training.observer.holds(slot.name)]

    def later(self, seconds, action):
        self._planned.append((time.monotonic() + seconds, action))

    def start_again(self, seconds, slot):
        """So many seconds from now, and nobody else does."""
        slot.returns = True
        self.later(seconds, lambda: self.training.start_worker(slot.name))

    def when(self, condition, what, limit):
        """`condition` is asked until it is true, and has side effects then."""
        self._awaited.append((condition, what, time.monotonic() + limit * cluster.SLOW))

    def complain(self, text):
        self.complaints.append(text)

    def coordinator_answers(self):
        try:
            self.client.get(self.training.job)
        except grpc.RpcError as error:
            if error.code() not in training.UNREACHABLE:
                raise
            return False
        self.coordinator_disturbed = False
        return True

    def calm(self):
        """Seconds since the last fault's end."""
        return time.monotonic() - self._calm_since if not self._planned and not self._awaited else 0.0

    # ---- the storm ------------------------------------------------------------------------------

    def inject(self, fault):
        """Returns whether it could be done now."""
        began, down = int(time.time() * 1000), self.coordinator_disturbed
        worker = fault.inject(self)
        if worker is not None:
            self.records.append({"time": began, "fault": fault.kind, "worker": worker, "coordinator_down": down})
        return worker is not None

    def tick(self):
        now = time.monotonic()
        due = [action for at, action in self._planned if at <= now]
        self._planned = [(at, action) for at, action in self._planned if at > now]
        for action in due:
            action()
        waiting, self._awaited = self._awaited, []
        for condition, what, deadline in waiting:
            if condition():
                continue
            if now > deadline:
                raise training.Hang(f"{what}: not in time")
            self._awaited.append((condition, what, deadline))
        if self._planned or self._awaited:
            self._calm_since = now
        time.sleep(0.02)

    def ended(self):
        return self.training.observer.state in cluster.FINAL

    def blow(self, seconds, kinds, most=None):
        """One fault a second, until the job has ended or the time is over. With `most`, until there were so many, and
        none in a second whose fault cannot be done: while a class is away only the coordinator can be hit."""
        end = time.monotonic() + seconds
        following = client = time.monotonic()
        weights = [kind.weight for kind in kinds]
        while time.monotonic() < end and not self.ended() and len(self.records) != most:
            if time.monotonic() >= following:
                following += PERIOD
                for _ in range(1 if most else 20):  # some cannot be done now
                    kind = self.random.choices(kinds, weights)[0]
                    if self.calm() >= kind.calm and self.inject(kind()):
                        break
            if time.monotonic() >= client:
                client += CLIENT_PERIOD
                self.clerk.submit()
            self.tick()

    def blow_all(self, count, kinds):
        """So many faults."""
        self.blow(MIXED_LIMIT * cluster.SLOW, kinds, count)
        if len(self.records) < count:
            raise AssertionError(f"{'the job was over' if self.ended() else 'too slow'} after {len(self.records)} faults")

    def lose_class(self, limit=120.0):
        """Until others took over the shards of a class, by the newest of the job's class maps."""
        end = time.monotonic() + limit * cluster.SLOW
        while len(self.training.observer.status.class_maps) < 2:
            if self.ended() or time.monotonic() > end:
                raise training.Hang("no class was lost")
            if self.calm() > 0:
                self.inject(faults.KillClass())
            self.tick()

    def heal(self, limit=60.0):
        """Waits until every fault has its end."""
        end = time.monotonic() + limit * cluster.SLOW
        while self._planned or self._awaited:
            if time.monotonic() > end:
                raise training.Hang("a fault has no end")
            self.tick()

    def close(self):
        self.client.close()


class Runner:
    """Runs storms one after the other and keeps the ledger."""

    def __init__(self, book, seed, keep, switch=None):
        """`switch`: as of training.Training."""
        self._book = book
        self._switch = switch
        self._seed = seed
        self._keep = keep
        self._references = training.References()

    def run(self, number, seconds=60.0, kinds=None, steps=None, mix=None, script=False):
        """One storm; returns its line of the ledger. `script`: of a job of a PyTorch script. `mix`: over workers of two numerics classes, of a job with this
        workers.mix; 40 faults, however long they take. What a class that is lost makes of a job with fallback is
        only known afterwards, by one like it."""
        rng = random.Random(f"{self._seed}/{number}")
        spec, how = training.alexnet(steps or STEPS), {}
        if mix:
            spec, how = training.mixed(steps or MIXED_STEPS, mix), {"others": training.OTHERS, "pace_ms": MIXED_PACE_MS}
        if script:
            spec, how = training.scripted(steps or SCRIPT_STEPS), {"pace_ms": SCRIPT_PACE_MS}
        expected = self._references.sha256(spec) if mix != "fallback" else None
        workers = training.MIXED if mix else training.WORKERS
        proxied = [name for name in workers if rng.random() < 0.5]
        line = {"seed": self._seed, "storm": number, "result": "failed", "sha256": None}
        began = time.monotonic()
        train = storm = None
        try:
            train = training.Training(workers, proxied=proxied, switch=self._switch, **how)
            train.submit(spec)
            train.wait_step(3)
            storm = Storm(train, rng, lone=mix == "fallback")
            if mix:
                storm.blow_all(MIXED_FAULTS, kinds or faults.MIXED)
            else:
                storm.blow(seconds, kinds or (faults.SCRIPT if script else faults.ALL))
            if mix == "fallback":
                storm.lose_class()
            train.hurry()
            storm.heal()
            status = train.finish(expected, END_LIMIT)
            line["sha256"] = status["checkpoint"]["sha256"]
            line["submissions"] = storm.clerk.check()
            line["maps"], line["skipped_steps"] = len(status["class_maps"]), status["skipped_steps"]
            if mix == "fallback":
                train.check_repeated(status)
            train.stop()
            if storm.complaints:
                raise AssertionError("; ".join(storm.complaints))
            line["result"] = "ok"
        except Exception as error:  # pylint: disable=broad-except
            line["result"] = {training.Mismatch: "mismatch", training.Hang: "hang"}.get(type(error), "failed")
            line["error"] = "".join(traceback.format_exception(error))[-4000:]
        finally:
            self._close(line, train, storm, time.monotonic() - began)
        return line

    def _close(self, line, train, storm, seconds):
        regroups = train.observer.regroups() if train and train.observer else []
        records = storm.records if storm else []
        ledger.attribute(records, regroups, {kind.kind for kind in faults.MIXED if kind.loses},
                         {kind.kind for kind in faults.MIXED if kind.breaks})
        for entry in [*records, *map(ledger.line_of, regroups)]:
            self._book.add({"seed": self._seed, "storm": line["storm"], **entry})
        line.update(seconds=round(seconds, 1), faults=len(records), regroups=len(regroups),
                    rewinds=sum(regroup.rewound for regroup in regroups))
        self._book.add(line)
        if storm:
            storm.close()
        if train:
            failed = line["result"] != "ok"
            train.destroy(failed, keep=self._keep / f"storm-{self._seed}-{line['storm']}" if failed else None)


def main():
    parser = argparse.ArgumentParser(
        prog="scripts/chaos", description="Trains on four workers under one random fault a second, a minute "
        "each storm, and compares the checkpoint with that of an undisturbed run.")
    parser.add_argument("--storms", type=int, help="how many; default 3, or as many as fit into --minutes")
    parser.add_argument("--minutes", type=float, help="begin no storm after this time")
    parser.add_argument("--seed", type=int, help="default: from the clock, and printed")
    parser.add_argument("--steps", type=int, help=f"of the job, default {STEPS}, with --mix {MIXED_STEPS}: fewer where "
                        "several storms share a machine, so that a job lasts about a minute")
    parser.add_argument("--only", help="kinds of faults, separated by commas: "
                        + ", ".join(kind.kind for kind in dict.fromkeys((*faults.MIXED, *faults.SCRIPT))))
    parser.add_argument("--tls", action="store_true", help="between daemons with certificates, off loopback")
    parser.add_argument("--mix", choices=("fixed", "fallback"), help="three workers of two numerics classes and a job "
                        f"that has everything, under {MIXED_FAULTS} faults; fallback: one like it is compared")
    parser.add_argument("--script", action="store_true", help="a job of a PyTorch script; its children are killed, too")
    parser.add_argument("--ledger", type=pathlib.Path, help="append every fault and storm to this file")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the logs of storms that fail; default: a new one")
    parser.add_argument("--summary", type=pathlib.Path, metavar="FILE", help="only print what a ledger says")
    options = parser.parse_args()
    if options.summary:
        print(ledger.summary(ledger.read(options.summary)))
        return 0
    if options.tls:
        private.enter()
    kinds = None
    if options.only:
        wanted = options.only.split(",")
        known = faults.MIXED if options.mix else faults.SCRIPT if options.script else faults.ALL
        kinds = [kind for kind in known if kind.kind in wanted]
        unknown = set(wanted) - {kind.kind for kind in kinds}
        if unknown:
            parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    seed = options.seed if options.seed is not None else int(time.time())
    book = ledger.Ledger(options.ledger)
    keep = options.keep or pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-chaos-"))
    runner = Runner(book, seed, keep, private.Switch() if options.tls else None)
    storms = options.storms or (sys.maxsize if options.minutes else 3)
    end = time.monotonic() + (options.minutes * 60 if options.minutes else float("inf"))
    print(f"chaos: seed {seed}; the reference run comes first", flush=True)
    bad = 0
    for number in range(storms):
        if time.monotonic() >= end:
            break
        line = runner.run(number, kinds=kinds, steps=options.steps, mix=options.mix, script=options.script)
        print(f"storm {number}: {line['result']}, {line['faults']} faults, {line['regroups']} regroups, "
              f"{line['rewinds']} rewinds, {line['seconds']:.0f} s", flush=True)
        if line["result"] != "ok":
            bad += 1
            print(line["error"], f"logs: {keep}", sep="\n", flush=True)
    print(ledger.summary(book.lines))
    if not bad and options.keep is None:
        keep.rmdir()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
