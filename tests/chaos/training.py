"""The cluster that the chaos tests disturb, the job that it trains, and what must be true afterwards."""
import hashlib
import os
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

import cluster  # noqa: E402
import observer  # noqa: E402
import proxy  # noqa: E402
from observer import UNREACHABLE  # noqa: E402, F401

WORKERS = ("a", "b", "c", "d")
NEWCOMER = "e"


def alexnet(steps, **changes):
    """Batch normalization, dropout, augmentation, evaluations and checkpoints; eight shards."""
    return cluster.job_spec(
        name="chaos", model={"name": "alexnet", "batch_norm": True, "dropout": 0.2},
        augment=[{"random_crop": {"padding": 4}}, {"random_flip": {}},
                 {"per_image_standardization": {}}],
        batch=16, shards=8, epochs=None, steps=steps, checkpoint={"every_steps": 10, "keep": 3},
        workers={"min": 1, "max": 8}, **changes)


def make_data(running):
    running.make_data(train=320, test=64)


TWO_THREADS = ("c", "d")  # who has so many for a core where classes are mixed


def mixed(spec):
    """The job, for workers of one and of two threads a core: they are of two numerics classes."""
    running = cluster.Cluster()
    try:
        running.start_coordinator()
        for name, threads in (("one", 1), ("two", 2)):
            running.start_worker(name, threads=threads, data_root=running.folder)
        classes = {worker["name"]: worker["class"] for worker in running.json("workers")["workers"]}
        running.stop()
    finally:
        running.destroy(False)
    return {**spec, "workers": {"min": 2, "max": 8, "mix": "fixed", "classes": {classes["one"]: 5, classes["two"]: 3}}}


class References:
    """SHA-256 of the checkpoint of an undisturbed run on one worker, of each class where the job mixes them,
    computed once for each job."""

    def __init__(self):
        self._known = {}

    def sha256(self, spec, prepare=make_data):
        key = repr(sorted(spec.items()))
        if key not in self._known:
            running = cluster.Cluster()
            failed = True
            try:
                prepare(running)
                running.start_coordinator()
                running.start_worker("alone", cores=2)
                alone = {**spec, "workers": {"min": 1}}
                if "mix" in spec["workers"]:
                    running.start_worker("beside", threads=2)
                    alone["workers"] = spec["workers"]
                self._known[key] = running.run_job(alone, timeout=900)["checkpoint"]["sha256"]
                running.stop()
                failed = False
            finally:
                running.destroy(failed)
        return self._known[key]


class Slot:
    """A worker's place: its name, its addresses, and the process that has them now."""

    def __init__(self, name):
        self.name = name
        self.process = None
        self.ring = None      # the proxy in front of its ring port, or None
        self.session = None   # the proxy between it and the coordinator, or None
        self.port = 0
        self.paused = False
        self.drained = False

    def alive(self):
        return self.process is not None and self.process.running()

    def whole(self):
        """Nothing is being done to it."""
        return self.alive() and not self.paused and not self.drained


class Training:
    """A coordinator at a port of its own, workers with one core each, and one job at a time.

    With `proxied`, these workers are reached, and reach the coordinator, through proxies.
    `environment(folder of the cluster)`: of the daemons. `switch`: with TLS, and every worker runs on its
    host of this private.Switch; who has none there is beside the coordinator. `silence_ms`: as of
    cluster.Cluster. `two_threads`: workers that have so many for a core.
    """

    def __init__(self, workers=WORKERS, proxied=(), prepare=make_data, environment=None, switch=None,
                 silence_ms=None, two_threads=()):
        self.cluster = cluster.Cluster(silence_ms, host=switch and switch.ADDRESS)
        if environment is not None:
            self.cluster.environment = environment(self.cluster.folder)
        self.slots = {name: Slot(name) for name in workers}
        self.observer = None
        self.job = None
        self._proxied = proxied
        self._switch = switch
        self._two_threads = two_threads
        self._host = 1  # 127.0.0.2 and up, or other addresses of the switch's: where the proxies of rings listen
        try:
            self._start(prepare, workers)
        except BaseException:
            self.destroy(True)
            raise

    def _start(self, prepare, workers):
        prepare(self.cluster)
        self.cluster.start_coordinator()
        for name in workers:
            self.start_worker(name)
        cluster.wait_until(lambda: set(self.cluster.attached()) == set(workers), "the workers attach")
        if self._switch:
            self.cluster.check_tls()

    # ---- processes ------------------------------------------------------------------------------

    def start_worker(self, name):
        """Starts the slot's process, again at the same address."""
        slot = self.slots.setdefault(name, Slot(name))
        slot.port = slot.port or cluster.free_port()
        host, prefix = self.cluster.host or "127.0.0.1", ()
        if self._switch and name in self._switch.hosts:
            host, prefix = self._switch.hosts[name], self._switch.prefix(name)
        advertise, coordinator = host, self.cluster.network
        if name in self._proxied:
            if slot.ring is None:
                self._host += 1
                beside = self._switch.alias(self._host) if self._switch else f"127.0.0.{self._host}"
                slot.ring = proxy.Proxy((beside, slot.port), (host, slot.port))
                slot.session = proxy.Proxy((host, 0), (host, int(coordinator.rsplit(":", 1)[1])))
            advertise = slot.ring.address[0]
            coordinator = f"{host}:{slot.session.address[1]}"
        slot.process = self.cluster.start_worker(
            name, wait=False, listen=f"{host}:{slot.port}", advertise=advertise, coordinator=coordinator,
            prefix=prefix, threads=2 if name in self._two_threads else 1)
        slot.paused = slot.drained = False

    def restart_coordinator(self):
        self.cluster.start_coordinator(wait=False)

    def submit(self, spec):
        self.job = self.cluster.submit(spec)
        self.observer = observer.Observer(self.cluster.address, self.job)
        return self.job

    def wait_free(self):
        """Until every worker of the first ones is attached and free."""
        for slot in self.slots.values():
            if not slot.alive() and slot.name != NEWCOMER:
                raise AssertionError(f"worker {slot.name} does not run")
        self.cluster.wait_free(*(name for name in self.slots if name != NEWCOMER), timeout=60)

    def wait_step(self, step, timeout=60.0):
        def reached():
            if self.observer.state in cluster.FINAL:
                raise AssertionError(f"the job ended {self.observer.state} before step {step}: "
                                     f"{self.observer.status.reason}")
            return self.observer.step >= step
        cluster.wait_until(reached, f"step {step}", timeout)

    def wait_ring(self, names, timeout=60.0):
        """Until exactly these are the members and a step was applied in that ring."""
        cluster.wait_until(lambda: self.observer.state in cluster.FINAL or
                           sorted(self.observer.ring()) == sorted(names), f"the ring is {names}", timeout)

    # ---- what must be true at the end -----------------------------------------------------------

    def finish(self, expected, timeout):
        """Waits for the end of the job and checks it; returns its status, as ringctl shows it."""
        status = self._wait_final(timeout)
        if status["state"] != "SUCCEEDED":
            raise AssertionError(f"the job ended {status['state']}: {status['reason']}")
        if status["checkpoint"]["step"] != status["total_steps"]:
            raise AssertionError(f"the newest checkpoint is not of the last step: {status['checkpoint']}")
        if status["checkpoint"]["sha256"] != expected:
            raise Mismatch(f"SHA-256 {status['checkpoint']['sha256']}, of an undisturbed run {expected}")
        self.check_checkpoints()
        return status

    def _wait_final(self, timeout):
        end = time.monotonic() + timeout * cluster.SLOW
        while self.observer.state not in cluster.FINAL:
            if time.monotonic() > end:
                why = self.cluster.ringctl("why", self.job, expect=None).stdout
                raise Hang(f"the job did not end within {timeout * cluster.SLOW:.0f} s; its last step "
                           f"was {self.observer.standing_still():.0f} s ago\n{why}")
            time.sleep(0.1)
        return self.cluster.status(self.job)

    def check_checkpoints(self):
        """Every listed checkpoint is whole in the coordinator's folder, and the newest one can be fetched."""
        checked = self.cluster.ringctl("checkpoint", "verify", self.job, expect=None)
        if checked.returncode != cluster.OK:
            raise Mismatch(f"checkpoints do not verify:\n{checked.stdout}{checked.stderr}")
        listed = self.cluster.json("checkpoint", "ls", self.job)["checkpoints"][-1]
        folder = self.cluster.new_path("fetched")
        self.cluster.ringctl("checkpoint", "get", self.job, folder, "--step", listed["step"])
        sha256 = hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()
        if sha256 != listed["sha256"]:
            raise Mismatch(f"checkpoint of step {listed['step']}: SHA-256 {sha256}, listed {listed['sha256']}")

    def stop(self):
        """Every daemon ends with 0 on SIGTERM, and no process of this cluster is left."""
        self._stop_threads()
        self.cluster.workers = {name: slot.process for name, slot in self.slots.items() if slot.alive()}
        self.cluster.stop()
        left = orphans(self.cluster.folder)
        if left:
            raise AssertionError(f"processes are left: {left}")

    def _stop_threads(self):
        if self.observer is not None:
            self.observer.stop()
        for slot in self.slots.values():
            for one in (slot.ring, slot.session):
                if one is not None:
                    one.stop()

    def next_job(self):
        """Forgets the job, for another one on the same processes."""
        self.observer.stop()
        self.observer = None

    def destroy(self, failed, keep=None):
        """`keep`: a folder for the logs of a run that failed."""
        self._stop_threads()
        if failed and keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            for process in self.cluster.processes:
                (keep / f"{process.name}.log").write_text(process.log())
        self.cluster.destroy(failed and keep is None)


class Mismatch(AssertionError):
    pass


class Hang(AssertionError):
    pass


def orphans(folder):
    """Command lines of running processes that name this folder."""
    left = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        arguments = cluster.arguments_of(int(pid))
        if any(str(folder) in argument for argument in arguments):
            left.append(" ".join(arguments))
    return left
