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


class Clerk:
    """Submits jobs that no cluster here is large enough for, and cancels them; remembers what was acknowledged."""

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
        reply = self._submit(key)
        if reply is None:
            return  # it may be there or not
        self._keys[key] = reply.job_id

        def cancelled():
            try:
                done = self._call("Cancel", observer.jobs_pb2.CancelRequest(job_id=reply.job_id),
                                  observer.jobs_pb2.CancelResponse)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.FAILED_PRECONDITION:  # it has ended: the reply was lost
                    raise
                done = True
            if done is not None:
                self._cancelled.add(reply.job_id)
            return done is not None
        self._storm.when(cancelled, f"{reply.job_id} is cancelled", limit=60.0)

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

    def __init__(self, train, rng):
        self.training = train
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
        settled = [slot for slot in whole if self.training.observer.holds(slot.name)]
        if not able:
            return None
        slot = self.random.choice(sorted(able, key=lambda one: one.name))
        return slot if sum(other is not slot for other in settled) >= spare else None

    def later(self, seconds, action):
        self._planned.append((time.monotonic() + seconds, action))

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

    def blow(self, seconds, kinds):
        """One fault a second, until the job has ended or the time is over."""
        end = time.monotonic() + seconds
        following = client = time.monotonic()
        weights = [kind.weight for kind in kinds]
        while time.monotonic() < end and not self.ended():
            if time.monotonic() >= following:
                following += PERIOD
                for _ in range(20):  # some cannot be done now
                    kind = self.random.choices(kinds, weights)[0]
                    if self.calm() >= kind.calm and self.inject(kind()):
                        break
            if time.monotonic() >= client:
                client += CLIENT_PERIOD
                self.clerk.submit()
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
        self._mixed = None  # the workers of a job that mixes classes

    def run(self, number, seconds=60.0, kinds=faults.ALL, steps=STEPS, mixed=False):
        """One storm; returns its line of the ledger. `mixed`: of workers of two numerics classes."""
        rng = random.Random(f"{self._seed}/{number}")
        spec = training.alexnet(steps)
        if mixed:
            self._mixed = self._mixed or training.mixed(spec)["workers"]
            spec = {**spec, "workers": self._mixed}
        expected = self._references.sha256(spec)
        proxied = [name for name in training.WORKERS if rng.random() < 0.5]
        line = {"seed": self._seed, "storm": number, "result": "failed", "sha256": None}
        began = time.monotonic()
        train = storm = None
        try:
            train = training.Training(proxied=proxied, switch=self._switch,
                                      two_threads=training.TWO_THREADS if mixed else ())
            train.submit(spec)
            train.wait_step(3)
            storm = Storm(train, rng)
            storm.blow(seconds, kinds)
            storm.heal()
            line["sha256"] = train.finish(expected, END_LIMIT)["checkpoint"]["sha256"]
            line["submissions"] = storm.clerk.check()
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
        ledger.attribute(records, regroups, {kind.kind for kind in faults.ALL if kind.loses},
                         {kind.kind for kind in faults.ALL if kind.breaks})
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
    parser.add_argument("--steps", type=int, default=STEPS, help="of the job, default %(default)s: fewer where "
                        "several storms share a machine, so that a job lasts about a minute")
    parser.add_argument("--only", help="kinds of faults, separated by commas: "
                        + ", ".join(kind.kind for kind in faults.ALL))
    parser.add_argument("--tls", action="store_true", help="between daemons with certificates, off loopback")
    parser.add_argument("--mixed", action="store_true", help="a job of two numerics classes")
    parser.add_argument("--ledger", type=pathlib.Path, help="append every fault and storm to this file")
    parser.add_argument("--keep", type=pathlib.Path, help="folder for the logs of storms that fail; default: a new one")
    parser.add_argument("--summary", type=pathlib.Path, metavar="FILE", help="only print what a ledger says")
    options = parser.parse_args()
    if options.summary:
        print(ledger.summary(ledger.read(options.summary)))
        return 0
    if options.tls:
        private.enter()
    kinds = faults.ALL
    if options.only:
        wanted = options.only.split(",")
        kinds = [kind for kind in faults.ALL if kind.kind in wanted]
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
        line = runner.run(number, kinds=kinds, steps=options.steps, mixed=options.mixed)
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
