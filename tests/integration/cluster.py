"""A cluster of real processes for one test: programs from RINGMASTER_BIN, free ports, a folder of its own.

Every wait has a deadline, every process dies with the test, and a test that fails prints the logs.
"""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ.get("RINGMASTER_BIN", "build/release/bin")).resolve()
SLOW = float(os.environ.get("RINGMASTER_SLOW", "1"))  # sanitizers: longer deadlines

# Children exec at once: gRPC need not come to rest before each of them is forked, for which it waits forever
# when a channel is just being closed. It reads this when it is imported: import cluster first.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

# Results do not depend on the device's speed, tests' deadlines do.
os.environ.setdefault("RINGMASTER_DEVICE", "cpu")

OK, OTHER, USAGE, JOB_FAILED, JOB_CANCELLED, UNREACHABLE, TIMED_OUT = 0, 1, 2, 3, 4, 5, 124
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")

# In front of a program: it ends when this process does. No preexec_fn, which would need a fork() of this
# process: gRPC 1.51 stops its threads around each, and aborts when one of its own is ending just then.
WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")


def wait_until(condition, what, timeout=20.0):
    """Polls `condition` until it is true, and returns what it returned; fails the test at the deadline."""
    end = time.monotonic() + timeout * SLOW
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() >= end:
            raise AssertionError(f"{what}: not within {timeout * SLOW:.0f} s")
        time.sleep(0.05)


_reserved = []  # held until this process ends


def free_port():
    """A port for a server that must come back at the same address. The system gives it to nobody who asks for
    any port, as every outgoing connection does: it lies below that range. No other test has it: a test owns a
    port while it holds the abstract Unix socket of its number."""
    low = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for port in random.sample(range(low // 2, low), 1000):
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0ringmaster-test-port-{port}")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        _reserved.append(reservation)
        return port
    raise AssertionError(f"none of 1000 ports below {low} is free")


def children_of(parent):
    """The pids of a process' children."""
    return [int(pid) for task in pathlib.Path(f"/proc/{parent}/task").iterdir()
            for pid in (task / "children").read_text().split()]


def arguments_of(pid):
    """The command line of a process; empty once it ended, even if nobody asked for its exit code."""
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
    except FileNotFoundError:
        return []


class Process:
    """A daemon with its output in files."""

    def __init__(self, name, folder, arguments, prefix=(), environment=None):
        self.name = name
        self.out = folder / f"{name}.out"
        self.err = folder / f"{name}.err"
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.popen = subprocess.Popen(
                [*WITH_PARENT, *prefix, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env={**os.environ, **(environment or {})})

    def line(self, start, timeout=20.0):
        """The rest of the first stdout line that begins with `start`."""
        def find():
            for line in self.out.read_text().splitlines():
                if line.startswith(start):
                    return line[len(start):].strip()
            if not self.running():
                raise AssertionError(f"{self.name} ended with {self.popen.returncode}: {self.log()}")
            return None
        return wait_until(find, f"{self.name} prints '{start}'", timeout)

    def log(self):
        return self.out.read_text(errors="replace") + self.err.read_text(errors="replace")

    def running(self):
        return self.popen.poll() is None

    def kill(self):
        self.popen.kill()
        self.popen.wait(20)

    def signal(self, number):
        self.popen.send_signal(number)

    def wait(self, timeout=20.0):
        """The exit code."""
        return self.popen.wait(timeout * SLOW)

    def stop(self, timeout=20.0):
        """SIGTERM, then the exit code; a daemon that hangs is killed and fails the test."""
        if self.running():
            self.popen.terminate()
        try:
            return self.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop on SIGTERM: {self.log()}") from None


class Gate:
    """Closed, it keeps a job of the daemons that are started behind it from its end (CONTRIBUTING.md, failpoints):
    at every boundary of the steps `at`, as a failpoint names them, each worker waits until it is opened, `milliseconds`
    long at most. At those of the steps `hold` it does not go on at all, but for a ring that is formed anew: however
    slowly a test comes to what it does to the job, that has not ended. Every member that joins, leaves or moves shards
    takes at most one of these steps."""

    def __init__(self, path, at="", milliseconds=60_000, hold=None):
        self.path = path
        self.failpoint = f"boundary{'' if at == '' else '@'}{at}=delay:{milliseconds}?{path}"
        if hold is not None:
            self.failpoint += f";boundary@{hold}=hold:3600000?{path}"
        self.close()

    def close(self):
        self.path.touch()

    def open(self):
        self.path.unlink(missing_ok=True)


class Cluster:
    """One coordinator, workers, and ringctl, in a temporary folder.

    host: an address that is not loopback, where coordinator and workers listen: they have certificates then, and speak
    TLS. A worker joins with a token; ringctl, over the coordinator's own socket, is an administrator. None: loopback.
    silence_ms: the coordinator's --silence; None: its default. The default here is longer than a shared
    machine's processors stand still: a worker is lost only where a test takes it away."""

    def __init__(self, silence_ms=2500, host=None):
        self.silence_ms = silence_ms
        self.host = host
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-"))
        self.data_root = self.folder / "data"
        self.data_root.mkdir()
        self.processes = []
        self.workers = {}
        self.coordinator = None
        self.network = None  # HOST:PORT, where workers reach the coordinator
        self.address = None  # where ringctl does
        self._token = None
        self.environment = {}  # of the daemons, besides this process' own
        self._number = 0

    # ---- processes ------------------------------------------------------------------------------

    def spawn(self, name, arguments, prefix=()):
        self._number += 1
        process = Process(f"{self._number:02}-{name}", self.folder, arguments, prefix, self.environment)
        self.processes.append(process)
        return process

    def start_coordinator(self, listen=None, wait=True, prefix=(), extra=()):
        """A second start uses the same address and the same --data-dir."""
        listen = listen or self.network or f"{self.host or '127.0.0.1'}:{free_port()}"
        self.coordinator = self.spawn("ringmaster", [
            BIN / "ringmaster", "--listen", listen, "--data-dir", self.folder / "coordinator",
            *([] if self.silence_ms is None else ["--silence", f"{self.silence_ms}ms"]), *extra], prefix)
        if wait:
            self.network = self.address = self.coordinator.line("ringmaster listening on ")
            if self.host:
                self.address = f"unix:{self.folder}/coordinator/ringmaster.sock"
        return self.coordinator

    def start_worker(self, name, cores=1, threads=1, data_root=None, coordinator=None, wait=True,
                     listen=None, advertise=None, state=None, memory="4GiB", prefix=(), extra=()):
        """`wait`: until it is attached."""
        host = self.host or "127.0.0.1"
        if self.host:
            self._token = self._token or self.token("--uses", 1000)  # each uses it once
            extra = ["--join", self._token, *extra]
        worker = self.spawn(name, [
            BIN / "ringworker", "--coordinator", coordinator or self.network, "--listen", listen or f"{host}:0",
            "--advertise", advertise or host, "--cores", cores, "--threads-per-core", threads,
            "--memory-per-core", memory, "--data-root", data_root or self.data_root,
            "--state-dir", self.folder / f"state-{state or name}", "--name", name, *extra], prefix)
        self.workers[name] = worker
        if wait:
            wait_until(lambda: name in self.attached(), f"worker {name} attaches")
        return worker

    def stop(self):
        """Workers first; every daemon must end with 0 on SIGTERM."""
        order = [*self.workers.values(), self.coordinator]
        for process in order:
            if process is not None and process.running():
                code = process.stop()
                if code != 0:
                    raise AssertionError(f"{process.name} ended with {code}: {process.log()}")

    def destroy(self, failed):
        for process in self.processes:
            if process.running():
                process.kill()
        if failed:
            for process in self.processes:
                sys.stderr.write(f"---- {process.name}\n{process.log()[-6000:]}\n")
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- ringctl --------------------------------------------------------------------------------

    def ringctl(self, *arguments, expect=OK, timeout=60.0):
        """Runs ringctl to its end; `expect` is the exit code that it must have, None for any."""
        done = subprocess.run(
            [*WITH_PARENT, str(BIN / "ringctl"), *map(str, arguments), "--coordinator",
             self.address or "127.0.0.1:1"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout * SLOW,
            check=False)
        if expect is not None and done.returncode != expect:
            raise AssertionError(f"ringctl {' '.join(map(str, arguments))} ended with {done.returncode}, "
                                 f"expected {expect}\n{done.stdout}{done.stderr}")
        return done

    def json(self, *arguments, **options):
        return json.loads(self.ringctl(*arguments, "-o", "json", **options).stdout)

    def token(self, *arguments, role="worker"):
        """A line to join with."""
        return self.ringctl("token", "create", "--role", role, *arguments).stdout.strip()

    def check_tls(self):
        """Of a cluster with `host`: every worker has a certificate, and is reached where there is only TLS."""
        workers = self.attached()
        joined = {identity["name"] for identity in self.json("identity", "ls")["identities"]}
        on_loopback = [name for name, worker in workers.items() if worker["ring_address"].startswith("127.")]
        if not workers or not set(workers) <= joined or on_loopback:
            raise AssertionError(f"workers {workers}, {joined} have joined")

    def attached(self):
        """Worker name -> its entry of `ringctl workers`."""
        return {worker["name"]: worker for worker in self.json("workers")["workers"]}

    def wait_free(self, *names, timeout=30.0):
        def free():
            workers = self.attached()
            return all(workers.get(name, {}).get("state") == "FREE" for name in names)
        wait_until(free, f"workers {names} are free", timeout)

    def new_path(self, stem):
        """A name in the cluster's folder that nothing has yet."""
        self._number += 1
        return self.folder / f"{stem}-{self._number:02}"

    def gates(self, *steps, **options):
        """A Gate for each of `steps`, with which daemons that start from now on have to do."""
        gates = [Gate(self.new_path("gate"), at, **options) for at in steps]
        self.environment = {"RINGMASTER_FAILPOINTS": ";".join(gate.failpoint for gate in gates)}
        return gates

    def write_job(self, spec):
        """A job file; JSON is YAML."""
        path = self.new_path("job").with_suffix(".yaml")
        path.write_text(spec if isinstance(spec, str) else json.dumps(spec, indent=1) + "\n")
        return path

    def submit(self, spec, *arguments):
        return self.json("submit", self.write_job(spec), *arguments)["job_id"]

    def status(self, job):
        return self.json("status", job)

    def wait(self, job, timeout=120.0):
        """The final status."""
        done = self.ringctl("wait", job, "--timeout", f"{timeout * SLOW:.0f}s", "-o", "json", expect=None,
                            timeout=timeout + 30)
        if done.returncode == TIMED_OUT:
            raise AssertionError(f"job {job} did not end within {timeout} s:\n{done.stdout}"
                                 f"{self.ringctl('why', job).stdout}")
        return json.loads(done.stdout)

    def run_job(self, spec, timeout=120.0):
        """Submits and waits; the job must succeed."""
        status = self.wait(self.submit(spec), timeout)
        if status["state"] != "SUCCEEDED":
            raise AssertionError(f"job ended {status['state']}: {status['reason']}")
        evaluated = (isinstance(spec, dict) and "script" in spec) or "test" in status["metrics"]
        complete = (status["step"] == status["total_steps"] and status["epoch"] > 0 and evaluated and status["checkpoint"]["step"] == status["step"])
        if not complete:
            raise AssertionError(f"a succeeded job has an incomplete status: {status}")
        return status

    def watch_until(self, job, condition, what, timeout=60.0):
        """The first status of `ringctl watch` for which `condition` holds."""
        watch = subprocess.Popen(
            [*WITH_PARENT, str(BIN / "ringctl"), "watch", job, "-o", "json", "--coordinator", self.address],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        last = None
        try:
            for line in lines_of(watch.stdout, timeout * SLOW):
                last = json.loads(line)
                if condition(last):
                    return last
                if last["state"] in FINAL:
                    break
        finally:
            watch.kill()
            watch.wait()
            watch.stdout.close()
        raise AssertionError(f"{what}: not within {timeout} s; last status {last}")

    def wait_ring(self, job, *names, timeout=20.0):
        """The first status in which exactly these workers compute the job's shards, and a step was applied."""
        def formed(status):
            # One that is on its way in is listed, without shards; and in STARTING there is no ring yet.
            return status["state"] == "RUNNING" and status["step"] > 0 and sorted(worker["name"] for worker in status["workers"] if worker["shards"]) == sorted(names)
        return self.watch_until(job, formed, f"the ring is {names}", timeout)

    def make_data(self, path="cifar10", train=56, test=20, seed=0, root=None):
        target = pathlib.Path(root or self.data_root) / path
        self.ringctl("dataset", "make", "cifar10", target, "--train", train, "--test", test,
                     "--seed", seed)
        return target


def lines_of(stream, timeout):
    """Lines of a pipe until it ends or the deadline passes."""
    end = time.monotonic() + timeout
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while selector.select(max(0.0, end - time.monotonic())):
            chunk = os.read(stream.fileno(), 65536)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines


def job_spec(**changes):
    """A small job: mlp on 56 images, two epochs of batches of 24, 24 and 8. None removes a key."""
    spec = {
        "name": "test",
        "model": {"name": "mlp", "hidden": [32]},
        "data": {"format": "cifar10", "path": "cifar10"},
        "batch": 24,
        "shards": 8,
        "epochs": 2,
        "seed": 1,
        "optimizer": {"adam": {"learning_rate": 0.001}},
        "workers": {"min": 1, "max": 8},
    }
    spec.update(changes)
    return {key: value for key, value in spec.items() if value is not None}


class ClusterTest(unittest.TestCase):
    """Gives every test a cluster without daemons, and prints their logs when it fails."""

    def setUp(self):
        self.cluster = Cluster()
        self.addCleanup(lambda: self.cluster.destroy(self._failed()))

    def _failed(self):
        # unittest has no public way to ask in a cleanup, and _outcome.success begins anew there.
        result = self._outcome.result
        return any(test is self for test, _ in [*result.failures, *result.errors])

    @contextlib.contextmanager
    def running(self, workers=(("a", 1),), **data):
        """A cluster with sample data and these (name, cores); ends it cleanly when the block does."""
        self.cluster.make_data(**data)
        self.cluster.start_coordinator()
        for name, cores in workers:
            self.cluster.start_worker(name, cores)
        yield self.cluster
        self.cluster.stop()

    def check_undisturbed(self, job, expected):
        """It succeeds with the checkpoint of one undisturbed worker; its status."""
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
        self.assertEqual(status["checkpoint"]["sha256"], expected)
        self.cluster.ringctl("checkpoint", "verify", job)
        return status


def checkpoint_alone(spec, **worker):
    """SHA-256 of the last checkpoint of a job on one undisturbed worker, in a cluster of its own."""
    alone, found = Cluster(), None
    try:
        alone.make_data()
        alone.start_coordinator()
        alone.start_worker("alone", **worker)
        found = alone.run_job(spec)["checkpoint"]["sha256"]
        alone.stop()
    finally:
        alone.destroy(found is None)
    return found


def regroups_of_members(status):
    """Those of workers who went or came: all but those by which shards move between workers of unequal loads."""
    return [each for each in status["regroups"] if not each["reason"].startswith("shards follow speed: ")]


def main(at_once=1):
    """Runs the tests that the command line names, or all of the file. `at_once`: so many side by side, each in a
    process of its own, for a file whose tests wait more than they compute."""
    # On a CPU that OpenBLAS does not know it takes kernels without AVX, and a script says so.
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")
    if at_once == 1 or len(sys.argv) == 2 and sys.argv[1].count(".") == 1:
        unittest.main(verbosity=2)
    loader = unittest.defaultTestLoader
    module = sys.modules["__main__"]
    suite = loader.loadTestsFromNames(sys.argv[1:], module) if sys.argv[1:] else loader.loadTestsFromModule(module)

    def run(name):
        done = subprocess.run([sys.executable, sys.argv[0], name], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace")
        print(done.stdout, flush=True)
        return done.returncode
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        sys.exit(max(pool.map(run, _names_of(suite))))


def _names_of(suite):
    """Class.test of each."""
    for test in suite:
        yield from _names_of(test) if isinstance(test, unittest.TestSuite) else [test.id().split(".", 1)[1]]
