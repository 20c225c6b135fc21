"""The cluster that the chaos tests disturb, the job that it trains, and what must be true afterwards."""
import functools
import hashlib
import json
import os
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "integration"))

import cluster  # noqa: E402
import mixed_classes_test  # noqa: E402
import observer  # noqa: E402
import proxy  # noqa: E402
import scripts  # noqa: E402
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
    (running.folder / "train.py").write_text(scripts.script())


def scripted(steps):
    """A PyTorch script with batch normalization, dropout, clipping and a schedule; eight shards."""
    return {"name": "chaos", "script": "train.py", "steps": steps, "workers": {"min": 1, "max": 8},
            "checkpoint": {"every_steps": 10, "keep": 3}}


# Where a job mixes classes: its workers, those of them that are of the other class, and how either class is started.
MIXED = ("a", "b", "c")
OTHERS = ("c", NEWCOMER)
CLASSES = ({}, mixed_classes_test.WITHOUT if mixed_classes_test.has_avx512() else mixed_classes_test.TWO)


@functools.cache
def class_names():
    """Of CLASSES, as the job file has them."""
    running = cluster.Cluster()
    try:
        running.start_coordinator()
        for number, how in enumerate(CLASSES):
            running.start_worker(str(number), data_root=running.folder, **how)
        names = {name: worker["class"] for name, worker in running.attached().items()}
        running.stop()
    finally:
        running.destroy(False)
    return tuple(names[str(number)] for number in range(len(CLASSES)))


def mixed(steps, mix, shares=(5, 3)):
    """A job of two classes that has everything; its loss scale grows soon, so that steps are skipped all along."""
    workers = {"min": 1, "max": 8, "mix": mix, "classes": dict(zip(class_names(), shares))}
    spec = mixed_classes_test.job(workers, epochs=None, steps=steps, batch=32, augment=alexnet(1)["augment"],
                                  checkpoint={"every_steps": 10, "keep": 3})
    spec["precision"]["growth_steps"] = 8
    return spec


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
                    running.start_worker("beside", **CLASSES[1])
                    alone["workers"] = spec["workers"]
                self._known[key] = running.run_job(alone, timeout=900)["checkpoint"]["sha256"]
                running.stop()
                failed = False
            finally:
                running.destroy(failed)
        return self._known[key]


class Slot:
    """A worker's place: its name, its addresses, and the process that has them now."""

    def __init__(self, name, how):
        self.name = name
        self.how = how        # it is started: one of CLASSES
        self.process = None
        self.ring = None      # the proxy in front of its ring port, or None
        self.session = None   # the proxy between it and the coordinator, or None
        self.port = 0
        self.paused = False
        self.drained = False
        self.returns = False  # whoever ended its process starts it again

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
    cluster.Cluster. `others`: workers of the other one of CLASSES. `pace_ms`: what each step takes at least, until
    hurry().
    """

    def __init__(self, workers=WORKERS, proxied=(), prepare=make_data, environment=None, switch=None,
                 silence_ms=None, others=(), pace_ms=0):
        self.cluster = cluster.Cluster(silence_ms, host=switch and switch.ADDRESS)
        if environment is not None:
            self.cluster.environment = environment(self.cluster.folder)
        self._gates = self.cluster.gates("", milliseconds=pace_ms) if pace_ms else []
        self._others = others
        self.slots = {}
        self.observer = None
        self.job = None
        self._proxied = proxied
        self._switch = switch
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
        slot = self.slots.setdefault(name, Slot(name, CLASSES[name in self._others]))
        slot.port = slot.port or cluster.free_port()
        host, how = self.cluster.host or "127.0.0.1", dict(slot.how)
        if self._switch and name in self._switch.hosts:
            host = self._switch.hosts[name]
            how["prefix"] = (*self._switch.prefix(name), *how.get("prefix", ()))
        advertise, coordinator = host, self.cluster.network
        if name in self._proxied:
            if slot.ring is None:
                self._host += 1
                beside = self._switch.alias(self._host) if self._switch else f"127.0.0.{self._host}"
                slot.ring = proxy.Proxy((beside, slot.port), (host, slot.port))
                slot.session = proxy.Proxy((host, 0), (host, int(coordinator.rsplit(":", 1)[1])))
            advertise = slot.ring.address[0]
            how["extra"] = (*how.get("extra", ()), "--no-shared-memory")  # all goes through the proxy
            coordinator = f"{host}:{slot.session.address[1]}"
        slot.process = self.cluster.start_worker(
            name, wait=False, listen=f"{host}:{slot.port}", advertise=advertise, coordinator=coordinator, **how)
        slot.paused = slot.drained = slot.returns = False

    def restart_coordinator(self):
        self.cluster.start_coordinator(wait=False)

    def hurry(self):
        for gate in self._gates:
            gate.open()

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
        """Waits for the end of the job and checks it; returns its status, as ringctl shows it. `expected`: the SHA-256
        of its checkpoint, or None where nobody knows it yet."""
        status = self._wait_final(timeout)
        if status["state"] != "SUCCEEDED":
            raise AssertionError(f"the job ended {status['state']}: {status['reason']}")
        if status["checkpoint"]["step"] != status["total_steps"]:
            raise AssertionError(f"the newest checkpoint is not of the last step: {status['checkpoint']}")
        if expected and status["checkpoint"]["sha256"] != expected:
            raise Mismatch(f"SHA-256 {status['checkpoint']['sha256']}, of an undisturbed run {expected}")
        manifest = self.check_checkpoints()
        if [one["step"] for one in manifest["class_maps"]] != [one["step"] for one in status["class_maps"]]:
            raise Mismatch(f"class maps {status['class_maps']}, in the manifest {manifest['class_maps']}")
        return status

    def check_repeated(self, status):
        """What took the job where it ended, its class maps, takes one like it to the same bytes, undisturbed."""
        self.wait_free()
        again = self.cluster.wait(self.cluster.json("submit", "--like", self.job)["job_id"], timeout=600)
        for part in ("state", "class_maps", "skipped_steps"):
            if again[part] != status[part]:
                raise Mismatch(f"{part} {status[part]}, of a job like it {again[part]}: {again['reason']}")
        expected, sha256 = (one["checkpoint"]["sha256"] for one in (status, again))
        if sha256 != expected:
            raise Mismatch(f"SHA-256 {expected}, of a job like it {sha256}")

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
        """Every listed checkpoint is whole in the coordinator's folder, and the newest one can be fetched: returns its
        manifest."""
        checked = self.cluster.ringctl("checkpoint", "verify", self.job, expect=None)
        if checked.returncode != cluster.OK:
            raise Mismatch(f"checkpoints do not verify:\n{checked.stdout}{checked.stderr}")
        listed = self.cluster.json("checkpoint", "ls", self.job)["checkpoints"][-1]
        folder = self.cluster.new_path("fetched")
        self.cluster.ringctl("checkpoint", "get", self.job, folder, "--step", listed["step"])
        manifest = (folder / "manifest.json").read_bytes()
        sha256 = hashlib.sha256(manifest).hexdigest()
        if sha256 != listed["sha256"]:
            raise Mismatch(f"checkpoint of step {listed['step']}: SHA-256 {sha256}, listed {listed['sha256']}")
        return json.loads(manifest)

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
