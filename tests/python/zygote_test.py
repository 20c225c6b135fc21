#!/usr/bin/python3
"""The zygote and what scripts do that is not training: end, raise, hang, fork, flood, die. Most scripts here have no torch."""
import os
import pathlib
import re
import select
import signal
import struct
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True

import fake_worker
from ringmaster import core

RUNS = """
import torch, ringmaster.torch
model = torch.nn.Linear(2, 1)
job = ringmaster.torch.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
for shard in job.shards():
    %s
    shard.backward(model(torch.ones(shard.rows, 2)).mean())
"""


def wait_for_line(child, pattern):
    """The match of a line in what a child printed."""
    end = time.monotonic() + fake_worker.PATIENCE
    while time.monotonic() < end:
        found = re.search(pattern, child.said(), re.MULTILINE)
        if found:
            return found
        os.sched_yield()
    raise AssertionError(f"{pattern} is not in {child.said()}")


def lives(pid):
    """Not ended, and no zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_end(pid):
    """Of a process that is no child of this one."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([descriptor], [], [], fake_worker.PATIENCE)[0], pid
    os.close(descriptor)


class Packets(unittest.TestCase):
    def test_what_is_sent_by_one_who_leaves_something_unread_arrives(self):
        ours, theirs = fake_worker.pair()
        core.send(ours, core.Kind.END)
        core.send(theirs, core.Kind.BUCKET, b"\1\0\0\0")
        theirs.close()
        self.assertEqual(core.receive(ours).body, b"\1\0\0\0")
        self.assertIsNone(core.receive(ours))
        ours.close()


class Interpreter(unittest.TestCase):
    def start(self, text="", **more):
        folder = tempfile.TemporaryDirectory(prefix="ringmaster-python-test-")
        self.addCleanup(folder.cleanup)
        (pathlib.Path(folder.name) / "broken/torch").mkdir(parents=True)
        (pathlib.Path(folder.name) / "broken/torch/__init__.py").write_text(text)
        if text:
            more["PYTHONPATH"] = f"{folder.name}/broken:{fake_worker.PYTHON}"
        zygote = fake_worker.Zygote(folder.name, arguments=("--rate", "0.1"), **more)
        self.addCleanup(zygote.close)
        return zygote

    def test_without_torch_it_says_what_to_do(self):
        zygote = self.start("raise ImportError('no such thing')")
        self.assertRegex(zygote.up["error"], r"/usr/bin/python3 cannot import torch \(ImportError: no such thing\): apt install")
        self.assertEqual(list(zygote.up["libraries"]), ["python"])
        # It runs what needs none.
        child = zygote.fork("import sys; print(__name__, sys.argv, sys.path[0])")
        self.assertEqual(child.wait_raised()["type"], "ScriptEnded")
        child.close()
        self.assertEqual(child.said(), f"__main__ ['{zygote.script}', '--rate', '0.1'] {zygote.folder}\n")

    def test_its_end_however_it_comes_ends_its_children_and_theirs(self):
        zygote = self.start("raise ImportError")
        child = zygote.fork("import os, signal\nfor number in (signal.SIGTERM, signal.SIGIO): signal.signal(number, signal.SIG_IGN)\n"
                            "print(os.fork(), flush=True)\nwhile True: pass")
        grandchild = int(wait_for_line(child, r"^([1-9]\d*)$")[1])
        twin = zygote.fork("print(1)\nwhile True: pass", core_number=1)
        wait_for_line(twin, "1")
        self.assertTrue(lives(child.pid) and lives(twin.pid) and lives(grandchild))
        os.kill(zygote.pid, signal.SIGKILL)
        for pid in (child.pid, twin.pid, grandchild):
            wait_for_end(pid)
        child.close()
        twin.close()

    def test_a_core_type_is_another_library(self):
        one = self.start(OPENBLAS_CORETYPE="Nehalem").up["libraries"]
        if "blas_core" not in one:
            self.skipTest(f"SKIP: BLAS is {one['blas']}")
        self.assertEqual(one["blas_core"], "Nehalem")
        self.assertEqual(set(one), {"python", "torch", "numpy", "blas", "blas_core", "aten", "onednn"})
        self.assertEqual(one["python"], ".".join(map(str, sys.version_info[:3])))


class Scripts(fake_worker.ScriptTest):
    def raised(self, text):
        child = self.fork(text)
        told = child.wait_raised()
        self.assertEqual(self.zygote.exited(child.pid), 1)
        return child, told

    def test_an_exception_is_raised_and_printed_from_the_script_on(self):
        child, told = self.raised("def f():\n    raise ValueError('seven')\nf()\n")
        self.assertEqual((told["type"], told["message"], told["of_host"]), ("ValueError", "seven", False))
        self.assertEqual(told["traceback"], child.said())
        self.assertTrue(told["traceback"].startswith(f'Traceback (most recent call last):\n  File "{self.zygote.script}", line 3'))
        self.assertNotIn("zygote.py", told["traceback"])

    def test_one_of_the_host_says_so(self):
        for text, name in (("raise MemoryError('x')", "MemoryError"), ("open('/no/such/file')", "FileNotFoundError"),
                           ("import torch; torch.empty(1 << 50)", "RuntimeError"),
                           ("class OutOfMemoryError(RuntimeError): pass\nraise OutOfMemoryError('CUDA')", "OutOfMemoryError")):
            told = self.raised(text)[1]
            self.assertEqual((told["type"], told["of_host"]), (name, True), told)
        self.assertFalse(self.raised("import torch; torch.ones(2) @ torch.ones(3)")[1]["of_host"])

    def test_what_cannot_be_compiled_or_imported(self):
        told = self.raised("for\n")[1]
        self.assertEqual(told["type"], "SyntaxError")
        self.assertIn("line 1", told["traceback"])
        self.assertEqual(self.raised("import no_such_module")[1]["type"], "ModuleNotFoundError")

    def test_an_end_before_the_job_s(self):
        for text, how in (("print(1)", "ran to its end"), ("import sys; sys.exit(3)", r"called sys.exit\(3\)"),
                          ("raise SystemExit", r"called sys.exit\(\)")):
            told = self.raised(text)[1]
            self.assertEqual(told["type"], "ScriptEnded")
            self.assertRegex(told["message"], f"the script {how} without a call of ringmaster.torch.attach")

    def test_leaving_the_loop(self):
        child, _, _ = self.start(RUNS % "if shard.step == 1: break")
        child.shard(0, 0)
        child.ask(1, 0)
        told = child.wait_raised()
        self.assertEqual(told["type"], "ScriptEnded")
        self.assertIn("the script ran to its end before the job had ended: it leaves the loop", told["message"])

    def test_end_ends_it_wherever_it_waits(self):
        child = self.fork(RUNS % "pass" + "print('behind')\n")
        child.hello()
        child.facts()
        child.end()
        self.assertEqual(self.zygote.exited(child.pid), 0)
        child, _, _ = self.start("import atexit; atexit.register(print, 'at exit')\ntry:\n    " +
                                 (RUNS % "pass").replace("\n", "\n    ") + "\nexcept Exception:\n    print('caught')\n")
        child.shard(0, 0)
        child.end()
        self.assertEqual(self.zygote.exited(child.pid), 0)
        self.assertEqual(child.said(), "at exit\n")

    def test_the_end_of_the_socket_ends_it_too(self):
        child, _, _ = self.start(RUNS % "pass")
        child.close()
        self.assertEqual(self.zygote.exited(child.pid), 0)
        child, _, _ = self.start(RUNS % "pass")
        child.ask(0, 0)
        child.close()  # somewhere in a shard
        self.assertEqual(self.zygote.exited(child.pid), 0)
        self.assertEqual(child.said(), "")

    def test_a_child_that_hangs_shows_all_its_threads(self):
        child, _, _ = self.start("import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n" +
                                 RUNS % "print('hangs', flush=True)\n    while True: pass")
        child.ask(0, 0)
        wait_for_line(child, "hangs")
        os.kill(child.pid, signal.SIGUSR1)
        wait_for_line(child, " in main$")
        self.assertRegex(child.said(), rf'(?s)Thread 0x.*threading.py.*Current thread 0x.*"{self.zygote.script}", line \d+ in <module>')
        self.assertTrue(lives(child.pid))

    def test_a_fork_of_the_script_is_not_the_child(self):
        text = """
import os
def fork(function):
    pid = os.fork()
    if pid == 0:
        function()
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
""" + RUNS % """
    if shard.shard == 0:
        fork(lambda: os._exit(7))
    if shard.shard == 1:
        fork(lambda: shard.backward(model(torch.ones(shard.rows, 2)).mean()))
    if shard.shard == 2:
        fork(lambda: sys.exit(9))
"""
        child, _, _ = self.start("import sys\n" + text)
        for shard in (0, 1, 2):
            child.shard(0, shard)
        self.assertRegex(child.said(), r"(?s)^7\n.*Refused: this process is a fork of the one that has the job.*\n1\n9\n$")

    def test_a_fork_that_stays_does_not_hold_the_lane(self):
        fork = "pid = os.fork()\n    if pid == 0:\n        os.setsid()\n        signal.pause()\n    print(pid)"
        child, _, _ = self.start("import os, signal\n" + RUNS % fork)
        child.shard(0, 0)
        self.addCleanup(os.kill, int(child.said()), signal.SIGKILL)
        os.kill(child.pid, signal.SIGKILL)
        with self.assertRaises(fake_worker.Gone):
            child.shard(0, 1)

    def test_a_program_that_the_script_starts_cannot_attach(self):
        text = """
import subprocess, sys
print(subprocess.run([sys.executable, "-c", "from ringmaster import core; core.current()"], stderr=subprocess.PIPE, text=True).stderr)
"""
        child = self.fork(text)
        child.wait_raised()
        self.assertIn("Refused: RINGMASTER_CORE is 3, which is no lane of a ringworker", child.said())

    def test_a_flood_of_lines(self):
        child, _, _ = self.start(RUNS % "for line in range(200000): print('line', line)")
        child.shard(0, 0)
        self.assertTrue(child.said().endswith("line 199998\nline 199999\n"))

    def test_another_version_is_named(self):
        child = self.fork(RUNS % "pass")
        child._lane.send(struct.pack("<HHI", core.Kind.HELLO, 2, 0))
        told = child.wait_raised()
        self.assertRegex(told["message"], r"ringworker speaks version 2 of the core protocol, .* version 1: install")

    def test_generators_begin_the_same_in_every_process(self):
        text = "import random, numpy, torch\nprint(random.random(), numpy.random.rand(), torch.rand(1).item())"
        said = []
        for _ in range(2):
            child = self.fork(text)
            child.wait_raised()
            said.append(child.said())
        self.assertEqual(said[0], said[1])
        self.assertEqual(len(said[0].split()), 3)

    def test_the_script_s_folder_is_first_and_no_stdin(self):
        (self.zygote.folder / "beside.py").write_text("value = 5\n")
        child = self.fork("import beside, sys, os\nprint(beside.value, repr(sys.stdin.read()), os.getsid(0) == os.getpid())")
        child.wait_raised()
        self.assertEqual(child.said(), "5 '' True\n")


if __name__ == "__main__":
    unittest.main()
