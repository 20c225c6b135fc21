"""Who trains in a comparison of vs_pytorch.py, and what that cannot be quicker than.

A contender has a name, a policy and the images/s of its rounds; start() says what it is, round() trains
some steps. Ours on one worker is train_speed, a process for each round; ours on several is a job of a
cluster of real daemons on loopback, which stays; PyTorch's is pytorch_training.py, a process for each
rank that lives as long as the comparison.
"""
import contextlib
import datetime
import functools
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS, BOUND = "ours", "oneDNN layers"
IMAGE = (32, 32)  # of the files that ours reads
APPLIED = re.compile(r"^(\S+) ringworker debug step applied: job=(\S+) \S+ applied=(\d+)$", re.MULTILINE)
# Seconds of the quickest of some passes.
PRODUCTS = """
import time, torch
x, w, dy = torch.rand(256, 2048), torch.rand(2048, 2048), torch.rand(256, 2048)
def products():
    begin = time.perf_counter()
    torch.mm(x, w.t()), torch.mm(dy, w), torch.mm(dy.t(), x)
    return time.perf_counter() - begin
print(min(products() for _ in range(15)))
"""


def applied(log):
    """(unix seconds, job, step) of each step that a worker applied, as its log of RINGMASTER_LOG=debug has it."""
    return [(datetime.datetime.fromisoformat(moment).timestamp(), job, int(step))
            for moment, job, step in APPLIED.findall(log)]


class Failure(Exception):
    """Something that the user can do something about."""


def cpu_flags():
    with contextlib.suppress(OSError):
        found = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        return found[1].split() if found else []
    return []


def pinned(cpus, command):
    return ["taskset", "-c", ",".join(map(str, cpus)), *map(str, command)]


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def report_of(process, program):
    """What a program that was started with --json says at its end."""
    out, errors = process.communicate()
    if process.returncode != 0:
        raise Failure(last_line(errors) or f"{program} ended with {process.returncode}")
    return json.loads(out)


@functools.cache
def quickest_blas(cpu):
    """An OPENBLAS_CORETYPE: that of the environment, or of those that this CPU may run the quickest for a dense
    layer's three products. OpenBLAS takes newer CPUs for older ones, and wider vectors are not always quicker."""
    if "OPENBLAS_CORETYPE" in os.environ:
        return os.environ["OPENBLAS_CORETYPE"]
    cores = [core for core, flag in (("Haswell", "avx2"), ("SkylakeX", "avx512bw")) if flag in cpu_flags()]
    best = {}
    for core in cores:
        environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_CORETYPE=core)
        done = subprocess.run(pinned([cpu], [sys.executable, "-c", PRODUCTS]), env=environment, capture_output=True,
                              text=True)
        if done.returncode == 0:
            best[core] = float(done.stdout)
    return min(best, key=best.get, default="")


class Program:
    """A program of this repository in a process for each round."""

    def __init__(self, name, options, policy, program, words):
        self.name, self.policy, self.program = name, policy, program
        self.command = [options.bin / program, "--json", "--model", options.model, "--policy", policy, "--steps",
                        options.steps, "--warm-up", options.warm_up, *words]
        for key, value in options.model_options.items():
            self.command += ["--set", f"model.{key}={json.dumps(value)}"]
        if options.image != IMAGE:
            self.command += ["--set", f"data.resize={json.dumps(options.image)}"]
        self.rounds = []

    def run(self, cpus):
        """One report for each list of CPUs, side by side."""
        processes = [subprocess.Popen(pinned(these, self.command), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True) for these in cpus]
        return [report_of(process, self.program) for process in processes]

    def stop(self):
        pass


class Ours(Program):
    """The trainer of this repository: a worker without a cluster."""

    def __init__(self, options, policy, data):
        super().__init__(OURS, options, policy, "train_speed", [
            "--device", options.device, "--batch", options.batch, "--shards", options.shards[0], "--cores",
            options.cores, "--threads", options.threads, "--data", data])
        self.cpus, self.cpu_time = options.cpus, options.cpu_time

    def start(self):
        return {"parameters": self.run([self.cpus])[0]["parameters"], "notes": []}

    def round(self):
        found = self.run([self.cpus])[0]
        cpu = found["batch"] / found["step_cpu_seconds"]
        self.rounds.append(cpu if self.cpu_time else found["images_per_second"]["mean"])


class Bound(Program):
    """oneDNN's convolutions and products of a shard alone, on each CPU at the same time."""

    def __init__(self, options, policy):
        super().__init__(BOUND, options, policy, "layer_bound", ["--batch", -(-options.batch // options.shards[0])])
        self.cpus = [[cpu] for cpu in options.cpus]
        self.speed = "images_per_cpu_second" if options.cpu_time else "images_per_second"

    def start(self):
        self.round()
        self.rounds.clear()
        return {"notes": []}

    def round(self):
        self.rounds.append(sum(report[self.speed] for report in self.run(self.cpus)))


class Theirs:
    """A training loop of PyTorch on some CPUs, or one for each of several ranks on a CPU of its own."""

    def __init__(self, name, options, spec, cpus):
        """`cpus`: a list a rank."""
        self.name, self.policy, self.cpu_time = name, spec["policy"], options.cpu_time
        self.order = json.dumps({"warm_up": options.warm_up, "steps": options.steps})
        self.spec, self.cpus = spec, cpus
        self.processes = []
        self.rendezvous = None
        self.rounds = []

    def environment(self, cpus):
        found = dict(os.environ, OMP_NUM_THREADS=str(len(cpus)), PYTHONDONTWRITEBYTECODE="1", GLOO_SOCKET_IFNAME="lo")
        if self.spec["device"] == "cpu" and quickest_blas(cpus[0]):
            found["OPENBLAS_CORETYPE"] = quickest_blas(cpus[0])
        return found

    def start(self):
        if len(self.cpus) > 1:
            self.rendezvous = tempfile.TemporaryDirectory(prefix="ringmaster-bench-")
        for rank, cpus in enumerate(self.cpus):
            spec = dict(self.spec, threads=len(cpus))
            if self.rendezvous:
                spec["ring"] = {"rank": rank, "size": len(self.cpus), "file": f"{self.rendezvous.name}/ranks"}
            command = pinned(cpus, [sys.executable, ROOT / "bench/pytorch_training.py", json.dumps(spec)])
            self.processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                                   env=self.environment(cpus)))
        return self.replies()[0]

    def replies(self):
        found = []
        for process in self.processes:
            line = process.stdout.readline()
            if not line:
                raise Failure(f"its process ended with {process.wait()}")
            found.append(json.loads(line))
            if "error" in found[-1]:
                raise Failure(found[-1]["error"])
        return found

    def round(self):
        for process in self.processes:
            print(self.order, file=process.stdin, flush=True)
        speed = "images_per_cpu_second" if self.cpu_time else "images_per_second"
        self.rounds.append(sum(reply[speed] for reply in self.replies()))

    def stop(self):
        for process in self.processes:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self.processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:  # it waits for a rank that failed
                process.kill()
                process.wait()
        self.processes.clear()
        if self.rendezvous:
            self.rendezvous.cleanup()


class Workers:
    """A coordinator and a worker of one core on each CPU: real daemons, as tests start them. `host`: tests' cluster.Cluster's."""

    def __init__(self, options, host=None):
        os.environ["RINGMASTER_BIN"] = str(options.bin)
        sys.path.append(str(ROOT / "tests/integration"))
        try:
            import cluster
        except ModuleNotFoundError:
            raise Failure("--workers needs the source tree, whose tests start the daemons") from None
        self.cluster = cluster.Cluster(host=host)
        self.cluster.environment["RINGMASTER_LOG"] = "debug"  # says when a step was applied
        self.workers = []
        try:
            self.cluster.make_data(train=max(options.batch * (options.warm_up + options.steps), 64), test=1)
            self.cluster.start_coordinator()
            for number, cpu in enumerate(options.cpus):
                self.workers.append(self.cluster.start_worker(f"w{number}", prefix=pinned([cpu], []), memory="8GiB"))
        except AssertionError as error:
            self.stop()
            raise Failure(str(error)) from None

    def train(self, spec):
        """Unix seconds at which each step of a job was applied, on a worker that had part in it."""
        try:
            job = self.cluster.submit(spec)
            status = self.cluster.wait(job, timeout=300)
        except AssertionError as error:
            raise Failure(str(error)) from None
        if status["state"] != "SUCCEEDED":
            raise Failure(f"the job ended {status['state']}: {status['reason']}")
        for worker in self.workers:
            found = {step: moment for moment, of, step in applied(worker.log()) if of == job}
            if found:
                return [found[step] for step in sorted(found)]
        raise Failure(f"no worker's log says when job {job} applied its steps")

    def stop(self):
        self.cluster.destroy(failed=False)


class OursOnWorkers:
    """Ours as a job of a cluster's first so many workers."""

    def __init__(self, name, options, policy, workers, count, batch, shards):
        self.name, self.policy = name, policy
        self.workers, self.batch = workers, batch
        self.warm_up, self.steps = options.warm_up, options.steps
        data = {"format": "cifar10", "path": "cifar10", "take_test": 1}
        if options.image != IMAGE:
            data["resize"] = list(options.image)
        self.spec = {
            "name": "vs-pytorch", "model": {"name": options.model, **options.model_options}, "data": data,
            "batch": batch, "shards": shards, "steps": self.warm_up + self.steps, "seed": 1,
            "precision": {"policy": policy}, "optimizer": {"sgd": {"learning_rate": 0.01, "momentum": 0.9}},
            "workers": {"min": count, "max": count}}
        self.show = [options.bin / "ringctl", "model", "show", options.model, "-o", "json", "--classes", "10",
                     "--input", "x".join(map(str, (*options.image, 3)))]
        for key, value in options.model_options.items():
            self.show += ["--option", f"{key}={json.dumps(value)}"]
        self.rounds = []

    def start(self):
        shown = subprocess.Popen(self.show, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        parameters = report_of(shown, "ringctl model show")["parameters"]
        return {"parameters": sum(math.prod(parameter["shape"]) for parameter in parameters), "notes": []}

    def round(self):
        moments = self.workers.train(self.spec)[self.warm_up - 1:]
        self.rounds.append(self.batch * (len(moments) - 1) / (moments[-1] - moments[0]))

    def stop(self):
        pass
