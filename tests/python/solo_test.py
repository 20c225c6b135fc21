#!/usr/bin/python3
"""Scripts that are started by themselves: their own worker, its end, theirs, and Ctrl-C. The worker is a fake one."""
import atexit
import json
import os
import pathlib
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

import fake_worker
import torch
import ringmaster.torch

HERE = pathlib.Path(__file__).resolve().parent

SCRIPT = """
import sys
import torch
from torch import nn
import ringmaster.torch
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 8), nn.Linear(8, 1))
model[4].weight = nn.Parameter(model[4].weight.detach())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
job = ringmaster.torch.attach(model, optimizer, batch=16, steps=6, seed=int((*sys.argv, 1)[1]))
for shard in job.shards():
    x = torch.randn(shard.rows, 4)
    %s
    shard.backward((model(x) - x.sum(1, keepdim=True)).square().mean())
print("behind the loop", job.lead, model[4].weight.sum().item())
torch.save(model.state_dict(), "behind.pt")
"""


class Solo(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="ringmaster-python-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.script = self.folder / "train.py"

    def environment(self, **more):
        trouble = json.dumps(more.pop("trouble", {}))
        return {**fake_worker.environment(), "RINGMASTER_WORKER": str(HERE / "fake_ringworker.py"), "FAKE_RINGWORKER": trouble,
                "PATH": "/usr/bin:/bin", **more}

    def start(self, text, *arguments, **more):
        """A fork of this process, which has torch, that does what python3 does with a script."""
        self.script.write_text(text)
        environment = self.environment(**more)
        output = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        pid = os.fork()
        if pid == 0:
            self.be_script(environment, output, arguments)
        os.close(output)
        return pid

    def be_script(self, environment, output, arguments):
        status = 1
        try:
            atexit._clear()  # the test's own folder stays
            os.environ.clear()
            os.environ.update(environment)
            os.chdir(self.folder)
            os.dup2(output, 1)
            os.dup2(output, 2)
            sys.stdout, sys.argv = sys.__stdout__, [str(self.script), *arguments]
            sys.stdout.reconfigure(line_buffering=True)
            runpy.run_path(str(self.script), run_name="__main__")
            status = 0
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            atexit._run_exitfuncs()
            os._exit(status)

    def run_script(self, text, *arguments, expect=0, **more):
        """What it and its worker printed."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.start(text, *arguments, **more), 0)[1])
        said = self.said()
        self.assertEqual(status, expect, said)
        return said

    def said(self):
        return (self.folder / "output").read_text()

    def wait_for(self, word, size=0):
        """Until it has printed the word, and so many characters."""
        end = time.monotonic() + fake_worker.PATIENCE
        while word not in self.said() or len(self.said()) < size:
            self.assertLess(time.monotonic(), end, self.said()[-1000:])
            os.sched_yield()

    def checkpoint(self):
        return (self.folder / "train.checkpoint/model.safetensors").read_bytes()

    def test_a_process_of_its_own(self):
        self.script.write_text(SCRIPT % "pass")
        done = subprocess.run(["/usr/bin/python3", "train.py", "1"], cwd=self.folder, env=self.environment(), capture_output=True,
                              text=True, timeout=fake_worker.PATIENCE, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^behind the loop True -?\d\.\d+\n$")
        alone = self.checkpoint()
        self.run_script(SCRIPT % "pass", "1", RINGMASTER_CORES="2")
        self.assertEqual(self.checkpoint(), alone)
        self.run_script(SCRIPT % "pass", "2")
        self.assertNotEqual(self.checkpoint(), alone)

    def test_the_checkpoint_is_the_module_s(self):
        said = self.run_script(SCRIPT % "pass", RINGMASTER_CHECKPOINT="elsewhere")
        loaded = ringmaster.torch.load(self.folder / "elsewhere")
        nn = torch.nn
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 8), nn.Linear(8, 1))
        model.load_state_dict(loaded, strict=True)
        self.assertEqual(model[1].num_batches_tracked.item(), 6)
        self.assertIn(str(model[4].weight.sum().item()), said)
        behind = torch.load(self.folder / "behind.pt")
        self.assertEqual({name: value.tolist() for name, value in behind.items()},
                         {name: value.tolist() for name, value in model.state_dict().items()})

    def test_no_worker(self):
        said = self.run_script(SCRIPT % "pass", expect=1, RINGMASTER_WORKER="")
        self.assertIn("Refused: this script was started by itself, and there is no ringworker to train with: install", said)
        said = self.run_script(SCRIPT % "pass", expect=1, RINGMASTER_WORKER="/no/ringworker")
        self.assertIn("there is no /no/ringworker to train with", said)

    def test_how_long_is_not_said(self):
        said = self.run_script((SCRIPT % "pass").replace("steps=6", "shards=6"), expect=1)
        self.assertIn("Refused: a script that is started by itself says how long it trains", said)

    def test_the_worker_s_death_is_an_error(self):
        said = self.run_script(SCRIPT % "pass", expect=1, trouble={"exit": 3})
        self.assertIn("RuntimeError: ringworker solo ended with status 3", said)
        self.assertNotIn("behind the loop", said)

    def test_a_worker_that_does_not_end_is_ended(self):
        limits = "import ringmaster.solo\nringmaster.solo._SAY_AFTER, ringmaster.solo._TERM_AFTER, ringmaster.solo._KILL_AFTER = "
        said = self.run_script(f"{limits}0.1, 0.3, 60\n{SCRIPT % 'pass'}", expect=1, trouble={"stay": True})
        self.assertRegex(said, r"ringworker solo, process \d+, has not ended after 0.1 s; it is ended when it has not by 0.3 s\n")
        self.assertIn("after 0.3 s; it gets SIGTERM\n", said)
        self.assertIn("RuntimeError: ringworker solo ended by signal 15", said)
        said = self.run_script(f"{limits}0.1, 0.2, 0.3\n{SCRIPT % 'pass'}", expect=1, trouble={"stay": "deaf"})
        self.assertIn("after 0.3 s; it gets SIGKILL\n", said)
        self.assertIn("RuntimeError: ringworker solo ended by signal 9", said)

    def test_an_exception_is_told_to_the_worker(self):
        said = self.run_script(SCRIPT % "if shard.step == 1: raise ValueError('seven')", expect=1)
        told = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
        self.assertEqual((told["type"], told["message"]), ("ValueError", "seven"))
        self.assertIn("\nValueError: seven\n", said)

    def test_leaving_early_is_told_to_the_worker(self):
        said = self.run_script(SCRIPT % "if shard.step == 1: break")
        self.assertIn('"type": "ScriptEnded"', said)

    def test_an_interrupt_is_the_worker_s_first(self):
        pid = self.start(SCRIPT % "pass", trouble={"wait": True})
        self.wait_for("waits")
        os.kill(pid, signal.SIGINT)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, self.said())
        self.assertIn("behind the loop", self.said())
        self.assertTrue((self.folder / "train.checkpoint/model.safetensors").exists())

    def test_a_second_interrupt_ends_at_once(self):
        pid = self.start(SCRIPT % "if shard.step == 1:\n        while True: print('runs')")
        self.wait_for("runs")
        os.kill(pid, signal.SIGINT)
        size = len(self.said())
        self.wait_for("runs", size + 10000)  # it goes on
        os.kill(pid, signal.SIGINT)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 1)
        self.assertIn("\nKeyboardInterrupt", self.said())
        self.assertIn('"type": "KeyboardInterrupt"', self.said())


if __name__ == "__main__":
    unittest.main()
