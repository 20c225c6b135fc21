"""What becomes of a script's job when the script fails: why and logs say what happened where, and the worker lives on."""
import contextlib
import os
import signal

import cluster
import scripts

AT_7 = "if shard.step == 7:\n    "
LIMIT = ("--run-limit", "5s")  # after which a child that computes a shard is ended


class ScriptTroubleTest(scripts.ScriptCase):
    @contextlib.contextmanager
    def one_worker(self, **options):
        """The worker `north`, which is the same process at the end, and takes a job that succeeds then."""
        with self.started("north", **options) as running:
            worker = running.workers["north"]
            yield running
            self.assertTrue(worker.running(), worker.log())
            running.wait_free("north")
            self.assertEqual(self.check_succeeded(self.submit(scripts.script()))["checkpoint"]["sha256"], self.expected())

    def fails(self, text, *texts, step=None, words=("SCRIPT",), **options):
        """Runs a script whose job fails, with these texts in its reason, at this step. The job's id."""
        job = self.submit(text, **options)
        status = self.cluster.wait(job)
        self.assertEqual(status["state"], "FAILED", status["reason"])
        why = self.cluster.json("why", job)
        for said in texts:
            self.assertIn(said, why["reason"])
        failure = why["failure"]
        self.assertIn(failure["word"], words, why)
        self.assertEqual(failure["worker"], "north")
        self.assertEqual(failure["step"], step or 0)
        self.assertTrue(failure["advice"])
        self.cluster.wait_free("north")
        self.assertEqual(self.children("north"), [])
        return job

    def check_logged(self, job, *texts):
        for text in texts:
            self.wait_printed(job, text)

    # ---- what ends with words of its own -----------------------------------------------------------

    def test_an_exception(self):
        with self.one_worker():
            text = scripts.script(trouble=AT_7 + 'raise ValueError("seven")')
            line = scripts.line_of(text, 'raise ValueError("seven")')
            job = self.fails(text, "core0 (process ", "the script raised ValueError: seven", f'train.py", line {line}', step=7)
            self.check_logged(job, "core0: ValueError: seven", f'train.py", line {line}, in <module>')
            # In front of attach there is no step, and no class of it.
            text = scripts.script(before='raise KeyError("early")')
            self.fails(text, "the script raised KeyError: 'early'", f"line {scripts.line_of(text, 'KeyError')}")

    def test_what_attach_refuses(self):
        with self.one_worker():
            self.fails(scripts.script(behind="ringmaster.torch.attach(model)"), "the script raised Refused: attach was called twice")
            self.fails(scripts.script(trouble="optimizer.step()"), "the script raised Refused: optimizer.step() in the loop", "remove the call")
            self.fails(scripts.script().replace("AdamW(", "Adagrad("), "torch.optim.adagrad.Adagrad is not supported",
                       "use SGD, Adam, AdamW or RMSprop of torch.optim")

    def test_a_script_that_ends_by_itself(self):
        with self.one_worker():
            ended = "before the job had ended: it leaves the loop over job.shards() only when that ends"
            self.fails(scripts.script(trouble=AT_7 + "sys.exit(3)"), "the script raised ScriptEnded: the script called sys.exit(3)", ended,
                       step=7)
            self.fails(scripts.script(trouble=AT_7 + "break"), "the script ran to its end", ended, step=7)
            self.fails("print('no attach')\n", "the script ran to its end without a call of ringmaster.torch.attach")

    def test_what_cannot_be_imported(self):
        with self.one_worker():
            text = scripts.script(before="import no_such_module")
            job = self.fails(text, "the script raised ModuleNotFoundError: No module named 'no_such_module'",
                             f'train.py", line {scripts.line_of(text, "no_such_module")}')
            self.check_logged(job, "core0: ModuleNotFoundError: No module named 'no_such_module'")
            self.fails("def f(:\n", "the script raised SyntaxError")

    # ---- what ends without words -------------------------------------------------------------------

    def test_a_segmentation_fault(self):
        with self.one_worker():
            text = scripts.script(trouble=AT_7 + "import ctypes; ctypes.string_at(0)")
            job = self.fails(text, "children died of one shard", "core0 (process ", "was killed by signal 11 (Segmentation fault)", step=7,
                             words=("SCRIPT", "WORKER_FAILED"))
            self.check_logged(job, "core0: Fatal Python error: Segmentation fault",
                              f'train.py", line {scripts.line_of(text, "ctypes.string_at")} in <module>')

    def test_a_write_to_a_parameter(self):
        """The state is mapped so that no script can write to it."""
        with self.one_worker():
            text = scripts.script(trouble=AT_7 + "model[0].weight.data.zero_()")
            job = self.fails(text, "signal 11 (Segmentation fault)", step=7, words=("SCRIPT", "WORKER_FAILED"))
            self.check_logged(job, f'train.py", line {scripts.line_of(text, "data.zero_()")} in <module>')

    def test_a_script_that_hangs(self):
        with self.one_worker(extra=LIMIT):
            text = scripts.script(trouble=AT_7 + "time.sleep(1000)")
            job = self.fails(text, "core0 (process ", "did not compute shard 0 of step 7 within 5s (--run-limit) and was ended",
                             "where it was stands in the log", step=7, words=("SCRIPT", "WORKER_FAILED"))
            self.check_logged(job, "(most recent call first):", f'train.py", line {scripts.line_of(text, "time.sleep(1000)")} in <module>')

    def test_a_script_that_hangs_once_is_computed_again(self):
        """Its stack stands in the log, and the job has the result that it always has."""
        with self.one_worker(extra=LIMIT) as running:
            folder = running.new_path("once")
            text = scripts.script(trouble=AT_7 + "if not os.path.exists(sys.argv[1]):\n"
                                  "        open(sys.argv[1], 'x').close()\n        time.sleep(1000)")
            job = self.submit(text, script_keys={"args": [str(folder)]})
            status = self.check_succeeded(job)
            self.assertEqual(status["regroups"], [])
            self.check_logged(job, "step 7, shard 0 is computed again", f'line {scripts.line_of(text, "time.sleep(1000)")} in <module>')

    def test_memory_that_is_not_there(self):
        words = ("MEMORY", "SCRIPT", "WORKER_FAILED")
        with self.one_worker():
            limited = AT_7 + "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 34, 1 << 34))\n"
            text = scripts.script(trouble=limited + "    torch.empty(1 << 38)")
            self.fails(text, "the script raised RuntimeError: ", "can't allocate memory",
                       f'train.py", line {scripts.line_of(text, "torch.empty")}', step=7, words=words)
            text = scripts.script(trouble=limited + "    bytearray(1 << 40)")
            self.fails(text, "the script raised MemoryError", f'train.py", line {scripts.line_of(text, "bytearray(")}', step=7, words=words)
            # As the kernel does where all memory is taken.
            job = self.fails(scripts.script(trouble=AT_7 + "os.kill(os.getpid(), signal.SIGKILL)"), "children died of one shard",
                             "was killed by signal 9 (Killed): by somebody, or because memory ran out", step=7, words=words)
            self.check_logged(job, "step 7, shard 0 is computed again")

    # ---- what does not end -------------------------------------------------------------------------

    def test_a_flood_of_lines_costs_lines_alone(self):
        with self.one_worker() as running:
            job = self.submit(scripts.script(trouble='if shard.step == 3 and shard.shard == 2:\n'
                                             '    for _ in range(10 ** 6): print("x" * 99)\n    print("after it")'))
            self.check_succeeded(job)
            self.check_logged(job, "more lines, of which there were too many at once")
            lines = self.printed(job).splitlines()
            self.assertLess(len(lines), 50_000)
            self.assertGreater(sum("x" * 99 in line for line in lines), 100)
            self.assertLess(sum(path.stat().st_size for path in (running.folder / "state-north").rglob("*") if path.is_file()), 128 << 20)

    def test_forks(self):
        """One that ends by itself, one that goes through the script's own end, and one that stays: it ends with its child."""
        with self.one_worker() as running:
            folder = running.new_path("forks")
            folder.mkdir()
            fork = '''
if shard.step == 3 and shard.shard == 0:
    for kind in ("ends", "exits", "stays"):
        pid = os.fork()
        if pid == 0 and kind == "ends": os._exit(0)
        if pid == 0 and kind == "exits": sys.exit(0)
        if pid == 0: time.sleep(1000)
        if kind != "stays": os.waitpid(pid, 0)
        open(os.path.join(sys.argv[1], f"{kind}-{pid}"), "x").close()
'''
            job = self.submit(scripts.script(trouble=fork), script_keys={"args": [str(folder)]})
            status = self.check_succeeded(job)
            self.assertEqual(status["regroups"], [])
            forks = dict(path.name.split("-") for path in folder.iterdir())
            self.assertEqual(set(forks), {"ends", "exits", "stays"})
            running.wait_free("north")
            self.check_gone([int(forks["stays"])])

    def test_signals_that_are_ignored(self):
        """A child that ignores every signal it may, and whatever the worker says, ends with its job, and with its worker."""
        ignore = "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)"
        text = scripts.script(behind=ignore, trouble=AT_7 + 'print("it stays")\n    while True: pass')
        with self.one_worker() as running:
            job = self.submit(text)
            self.wait_printed(job, "it stays")
            [child] = self.wait_children("north")
            os.kill(child, signal.SIGTERM)
            running.ringctl("cancel", job)
            self.assertEqual(running.wait(job)["state"], "CANCELLED")
            running.wait_free("north")
            self.check_gone([child])

            worker = running.start_worker("south")
            job = self.submit(text, workers={"min": 2})
            self.wait_printed(job, "it stays")
            [child] = self.wait_children("south")
            worker.signal(signal.SIGTERM)
            worker.signal(signal.SIGINT)
            self.assertEqual(worker.wait(60), cluster.OK)
            self.check_gone([child])
            running.ringctl("cancel", job)
            self.assertEqual(running.wait(job)["state"], "CANCELLED")

    # ---- interpreters ------------------------------------------------------------------------------

    def test_an_interpreter_without_torch(self):
        """-S: without what is installed."""
        bare = self.cluster.folder / "bare"
        bare.write_text(f'#!/bin/sh\nexec {scripts.PYTHON} -S "$@"\n')
        bare.chmod(0o755)
        with self.one_worker(extra=("--python", f"bare={bare}", "--python", f"default={scripts.PYTHON}")):
            self.fails(scripts.script(), "cannot import torch (ModuleNotFoundError: No module named 'torch'", "apt install python3-torch",
                       script_keys={"python": "bare"}, words=("SCRIPT", "WORKER_FAILED"))

    def test_a_job_waits_for_a_worker_with_its_interpreter(self):
        with self.one_worker() as running:
            job = self.submit(scripts.script(), script_keys={"python": "venv"})
            cluster.wait_until(lambda: "venv" in running.json("why", job)["reason"], "why names the interpreter")
            self.assertEqual(running.status(job)["state"], "QUEUED")
            running.start_worker("south", extra=("--python", f"venv={scripts.PYTHON}"))
            status = self.check_succeeded(job)
            self.assertEqual([worker["name"] for worker in status["workers"]], ["south"])


if __name__ == "__main__":
    cluster.main(at_once=2)
