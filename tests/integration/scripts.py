"""Jobs of scripts: a small network in PyTorch, with what goes wrong in it, on clusters and by itself.

Every script has a folder of its own, since what lies beside it goes with its job.
"""
import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import unittest

import cluster
import exactness

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
PYTHON = "/usr/bin/python3"
STEPS = 24

MODEL = """
import os, pathlib, signal, sys, time
import torch
from torch import nn

def make_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 64), nn.Tanh(),
                         nn.Linear(64, 4))
"""
# 5,636 parameters; its rows are drawn, in shards of three. `%(...)s`: what a test puts there.
SCRIPT = MODEL + """
import ringmaster.torch

%(before)s
model = make_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
job = ringmaster.torch.attach(model, optimizer, batch=24, shards=8, steps=%(steps)s, clip_norm=1.0, scheduler=scheduler,
                              metrics=["correct"], seed=%(seed)s)
%(behind)s
for shard in job.shards():
    x = torch.randn(shard.rows, 16)
    y = x[:, :4].argmax(1)
    %(early)s
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    %(trouble)s
    shard.backward(loss, correct=out.argmax(1) == y)
    %(late)s
"""


def script(**parts):
    """The text of the script. Several lines of a part in the loop are separated by newlines alone."""
    filled = {"before": "", "behind": "", "seed": 0, "steps": STEPS, "early": "pass", "trouble": "pass", "late": "pass", **parts}
    for part in ("early", "trouble", "late"):
        filled[part] = filled[part].strip().replace("\n", "\n    ")
    return SCRIPT % filled


def line_of(text, what):
    """The number of the line of a script that has this in it."""
    number, = (number for number, line in enumerate(text.splitlines(), 1) if what in line)
    return number


def zygotes_of(worker):
    """Pids of what the children of a worker, a pid, are forks of."""
    return [pid for pid in cluster.children_of(worker) if "ringmaster.zygote" in cluster.arguments_of(pid)]


def computing_for(worker):
    """Pids of the children that compute for a worker, a pid."""
    found = []
    for zygote in zygotes_of(worker):
        with contextlib.suppress(FileNotFoundError):
            found += [pid for pid in cluster.children_of(zygote) if cluster.arguments_of(pid)]
    return found


class ScriptCase(exactness.ExactnessCase):
    _expected = {}  # steps -> SHA-256 of the checkpoint's manifest

    def setUp(self):
        if importlib.util.find_spec("torch") is None:
            raise unittest.SkipTest("SKIP: scripts need python3-torch")
        super().setUp()

    # ---- jobs -----------------------------------------------------------------------------------

    def job_file(self, text, running=None, files=None, script_keys=None, **changes):
        """The path of a job file beside train.py and `files`, name -> text. `changes` of the job; None removes a key."""
        folder = (running or self.cluster).new_path("script")
        for name, content in {"train.py": text, **(files or {})}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        spec = {"name": "test", "script": {"file": "train.py", **(script_keys or {})},
                "workers": {"min": 1, "max": 8}, "checkpoint": {"every_steps": 10, "keep": 3}, **changes}
        path = folder / "job.yaml"
        path.write_text(json.dumps({key: value for key, value in spec.items() if value is not None}, indent=1) + "\n")
        return path

    def submit(self, text, running=None, **options):
        return (running or self.cluster).json("submit", self.job_file(text, running, **options))["job_id"]

    def check_succeeded(self, job, running=None):
        """Its status, with the SHA-256 of every file of its last checkpoint."""
        running = running or self.cluster
        status = running.wait(job)
        self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
        self.assertEqual((status["step"], status["checkpoint"]["step"]), (status["total_steps"],) * 2)
        self.assertIn("correct", status["metrics"]["train"])
        status["files"] = self.verify_checkpoint(running, status, running.new_path("fetched"))
        return status

    def expected(self, steps=STEPS):
        """The manifest's SHA-256 of the script's job, undisturbed on one worker of a cluster of its own."""
        if steps not in self._expected:
            alone, failed = cluster.Cluster(), True
            try:
                alone.start_coordinator()
                alone.start_worker("alone")
                status = self.check_succeeded(self.submit(script(), alone, steps=steps), alone)
                self._expected[steps] = status["checkpoint"]["sha256"]
                alone.stop()
                failed = False
            finally:
                alone.destroy(failed)
        return self._expected[steps]

    @contextlib.contextmanager
    def started(self, *workers, cores=1, extra=(), **options):
        """A coordinator and these workers; they end cleanly when the block does."""
        self.cluster.start_coordinator()
        for name in workers:
            self.cluster.start_worker(name, cores, extra=extra, **options)
        yield self.cluster
        self.cluster.stop()

    def printed(self, job):
        """What its workers logged, and its children printed, as `ringctl logs` has it."""
        return self.cluster.ringctl("logs", job).stdout

    def wait_printed(self, job, text):
        """Lines come behind what they tell of."""
        cluster.wait_until(lambda: text in self.printed(job), f"a line has '{text}'")

    # ---- processes ------------------------------------------------------------------------------

    def zygotes(self, worker):
        return zygotes_of(self.cluster.workers[worker].popen.pid)

    def children(self, worker):
        return computing_for(self.cluster.workers[worker].popen.pid)

    def wait_children(self, worker, number=1):
        return cluster.wait_until(lambda: len(self.children(worker)) == number and self.children(worker),
                                  f"{worker} has {number} children")

    def check_gone(self, pids):
        for pid in pids:
            cluster.wait_until(lambda pid=pid: not cluster.arguments_of(pid), f"process {pid} is gone")

    @contextlib.contextmanager
    def alone(self, folder, **environment):
        """`python3 train.py` in this folder, as a process with its output in a pipe; its checkpoint goes to `checkpoint`."""
        with subprocess.Popen(
                [*cluster.WITH_PARENT, PYTHON, "train.py"], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True,
                env={**os.environ, "PYTHONPATH": str(PACKAGE), "RINGMASTER_WORKER": str(cluster.BIN / "ringworker"),
                     "RINGMASTER_CHECKPOINT": str(folder / "checkpoint"), **environment}) as process:
            try:
                yield process
            finally:
                process.kill()

    def run_alone(self, text, cores=1, folder=None, **environment):
        """The script by itself: the folder of its checkpoint, and what it printed."""
        if folder is None:
            folder = self.cluster.new_path("alone")
            folder.mkdir()
        (folder / "train.py").write_text(text)
        with self.alone(folder, RINGMASTER_CORES=str(cores), **environment) as process:
            said, _ = process.communicate(timeout=120 * cluster.SLOW)
        self.assertEqual(process.returncode, 0, said)
        return folder / "checkpoint", said
