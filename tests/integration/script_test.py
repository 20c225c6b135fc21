"""A script's job has one result: by itself, on every cluster, whoever of it is killed, and when it goes on later."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess

import cluster
import exactness
import scripts

CLUSTERS = {"1x2": [("a", 2)], "2x1": [("a", 1), ("b", 1)], "4x1": [(name, 1) for name in "abcd"]}
LONG = 400
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples/python"

# Ends its own process once at each of three places of a step; the argument is a folder where it remembers that.
KILLED = {
    "before": '''
def once(place):
    try:
        os.close(os.open(os.path.join(sys.argv[1], place), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True

def end(place):
    if once(place):
        os.kill(os.getpid(), signal.SIGKILL)
''',
    "behind": '''
def hook(gradient):
    if job.step == 7:
        end("in backward")
model[4].weight.register_hook(hook)
''',
    "early": 'if shard.step == 5:\n    end("before the first tensor")',
    "late": 'if shard.step == 9:\n    end("behind the last bucket")',
}

# A dataset whose samples are drawn, read ahead by as many processes as the first argument says. With a second one the
# metric says where, which no metric may.
DATASET = scripts.MODEL + '''
import ringmaster.torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 120
    def __getitem__(self, number):
        x = torch.randn(16)
        x[4] = number / 120
        return x, int(x[:4].argmax()), os.getpid() != main

main = os.getpid()
model = make_model()
job = ringmaster.torch.attach(model, torch.optim.Adam(model.parameters(), lr=0.01), batch=24, shards=8, epochs=5,
                              dataset=DataLoader(Rows(), batch_size=24, shuffle=True, num_workers=int(sys.argv[1])),
                              metrics=["correct"])
rows, told = [], set()
for shard in job.shards():
    x, y, ahead = shard.batch
    out = model(x)
    rows += ahead.tolist()
    if shard.step == 20 and not told:
        told.add(print("ahead", sum(rows), "of", len(rows)))
    shard.backward(nn.functional.cross_entropy(out, y), correct=ahead if sys.argv[2:] else out.argmax(1) == y)
'''

LOAD = scripts.MODEL + '''
import ringmaster.torch
model = make_model()
before = {name: value.clone() for name, value in model.state_dict().items()}
loaded = ringmaster.torch.load(sys.argv[1])
print(model.load_state_dict(loaded, strict=True))
print("tracked", model[1].num_batches_tracked.item())
print("same", sum(bool((before[name] == value).all()) for name, value in model.state_dict().items()))
model.eval()
x = torch.randn(2000, 16, generator=torch.Generator().manual_seed(5))
print("accuracy", (model(x).argmax(1) == x[:, :4].argmax(1)).double().mean().item())
'''


def of_file(path):
    return exactness.sha256(path / "model.safetensors")


class SameBytesTest(scripts.ScriptCase):
    def test_alone_and_on_every_cluster(self):
        """Solo on one core and on two, and clusters of three shapes: the model's bytes; of clusters the manifest's, too."""
        alone = {cores: of_file(self.run_alone(scripts.script(), cores)[0]) for cores in (1, 2)}
        manifests = {}
        for name, workers in CLUSTERS.items():
            running, failed = cluster.Cluster(), True
            try:
                running.start_coordinator()
                for worker, cores in workers:
                    running.start_worker(worker, cores)
                status = self.check_succeeded(self.submit(scripts.script(), running, workers={"min": len(workers)}), running)
                self.check_work(status, workers)
                self.assertEqual(status["files"]["model.safetensors"], alone[1], name)
                manifests[name] = status["checkpoint"]["sha256"]
                running.stop()
                failed = False
            finally:
                running.destroy(failed)
        self.assertEqual(alone[1], alone[2])
        self.assertEqual(len(set(manifests.values())), 1, manifests)

    def test_samples_that_are_read_ahead_are_the_same(self):
        results = {}
        for loaders, workers in ((0, "a"), (2, "a"), (2, "ab"), (3, "abcd")):
            running, failed = cluster.Cluster(), True
            try:
                running.start_coordinator()
                for name in workers:
                    running.start_worker(name, 2 if workers == "a" else 1)
                job = self.submit(DATASET, running, script_keys={"args": [str(loaders)]}, workers={"min": len(workers)})
                status = self.check_succeeded(job, running)
                results[loaders, workers] = status["files"]["model.safetensors"]
                children = max(2, len(workers))

                def counted():
                    found = re.findall(r"ahead (\d+) of (\d+)", running.ringctl("logs", job).stdout)
                    return len(found) == children and found
                for ahead, rows in cluster.wait_until(counted, f"{children} children have said how much they read ahead"):
                    self.assertGreater(int(rows), 0)
                    self.assertGreaterEqual(2 * int(ahead), int(rows)) if loaders else self.assertEqual(int(ahead), 0)
                running.stop()
                failed = False
            finally:
                running.destroy(failed)
        self.assertEqual(len(set(results.values())), 1, results)

    def test_samples_that_are_others_when_they_are_read_ahead_are_refused(self):
        with self.started("a") as running:
            status = running.wait(self.submit(DATASET, script_keys={"args": ["2", "where"]}))
            self.assertEqual(status["state"], "FAILED")
            self.assertIn("the script is not pure: shard 7 gave other gradients after another shard", status["reason"])

    def test_another_seed_is_another_result(self):
        seeds = {of_file(self.run_alone(scripts.script(seed=seed))[0]) for seed in (0, 2)}
        self.assertEqual(len(seeds), 2)
        with self.started("a") as running:
            of_script = self.check_succeeded(self.submit(scripts.script(seed=2)))
            of_job = self.check_succeeded(self.submit(scripts.script(), seed=2))
            # The job file comes before what attach says.
            both = self.check_succeeded(self.submit(scripts.script(seed=2), seed=0))
            self.assertEqual(of_job["files"]["model.safetensors"], of_script["files"]["model.safetensors"])
            self.assertEqual({status["files"]["model.safetensors"] for status in (of_job, both)}, seeds)
            self.assertEqual(running.status(of_job["job_id"])["spec"]["script"]["file"], "train.py")

    def test_run_needs_no_job_file(self):
        with self.started("a", cores=2) as running:
            path = self.job_file(scripts.script()).with_name("train.py")
            running.ringctl("run", path)
            job = running.json("ps")["jobs"][0]["job_id"]
            self.assertEqual(self.check_succeeded(job)["files"]["model.safetensors"],
                             of_file(self.run_alone(scripts.script())[0]))

    def test_files_arguments_and_environment_come_with_it(self):
        text = scripts.script(
            before='''
import helper
text = (pathlib.Path(__file__).parent / "configs/small.txt").read_text()
print("told:", sys.argv[1:], os.environ["GREETING"], helper.WORD, text)
''')
        with self.started("a", "b"):
            job = self.submit(text, files={"helper.py": "WORD = 'helped'\n", "configs/small.txt": "configured"},
                              script_keys={"include": ["helper.py", "configs"], "args": ["--layers=2", "two words"],
                                           "env": {"GREETING": "hello"}},
                              workers={"min": 2})
            self.check_succeeded(job)
            self.wait_printed(job, "core0: told: ['--layers=2', 'two words'] hello helped configured")


    def test_of_a_class_map_the_first_class_draws_what_it_begins_with(self):
        """Whatever the other class draws is replaced before the first step; what the first one draws is the result."""
        drawn = """
torch.manual_seed({"one": %d, "two": %d}[os.environ.get("OMP_MAX_TASK_PRIORITY") and "two" or "one"])
for each in model.parameters():
    nn.init.normal_(each)
"""
        with self.started("a") as running:
            running.start_worker("b", threads=2, prefix=("env", "OMP_MAX_TASK_PRIORITY=3"))
            classes = {worker["name"]: worker["class"] for worker in running.json("workers")["workers"]}
            kinds = sorted(("one", "two"), key=lambda kind: classes[{"one": "a", "two": "b"}[kind]])
            made = {}
            for seeds in ((1, 1), (1, 2), (2, 1)):
                of = dict(zip(kinds, seeds))
                text = scripts.script(before="").replace(
                    "model = make_model()", "model = make_model()" + drawn % (of["one"], of["two"]))
                status = self.check_succeeded(self.submit(text, steps=6, workers={
                    "min": 2, "mix": "fixed", "classes": {classes["a"]: 5, classes["b"]: 3}}))
                made[seeds] = status["files"]["model.safetensors"]
            self.assertEqual(made[1, 1], made[1, 2])
            self.assertNotEqual(made[1, 1], made[2, 1])


class ExamplesTest(scripts.ScriptCase):
    """Those of examples/python, with few steps: batch norm and flips, dropout and tied weights, frozen layers."""
    ARGUMENTS = {"gpt": ["--steps=12", "--layers=2", "--width=64"],
                 "resnet": ["--pictures=192", "--width=8", "--epochs=2", "--batch=32"], "finetune": ["--steps=30"]}
    CLUSTERS = {"1x4": [("a", 4)], "2x2": [("a", 2), ("b", 2)], "4x1": [(name, 1) for name in "abcd"]}

    def one_result(self, name):
        text = (EXAMPLES / f"{name}.py").read_text()
        text = f"import sys\nsys.argv[1:] = {self.ARGUMENTS[name]}\n" + text
        found = {"alone": of_file(self.run_alone(text)[0])}
        for shape, workers in self.CLUSTERS.items():
            running, failed = cluster.Cluster(), True
            try:
                running.start_coordinator()
                for worker, cores in workers:
                    running.start_worker(worker, cores)
                status = running.wait(self.submit(text, running, workers={"min": len(workers)}))
                self.assertEqual(status["state"], "SUCCEEDED", status["reason"])
                found[shape] = self.verify_checkpoint(running, status, running.new_path("fetched"))["model.safetensors"]
                running.stop()
                failed = False
            finally:
                running.destroy(failed)
        self.assertEqual(len(set(found.values())), 1, found)

    def test_gpt(self):
        self.one_result("gpt")

    def test_resnet(self):
        self.one_result("resnet")

    def test_finetune(self):
        self.one_result("finetune")


class ScriptElasticityTest(scripts.ScriptCase):
    @contextlib.contextmanager
    def slow(self, *names, **options):
        """Workers that run the job slowly until the gate is opened, and do not end it before; the job's id once it is
        some steps on."""
        self.expected(LONG)  # a cluster of its own
        [self.gate] = self.cluster.gates("", milliseconds=80, hold=f"{LONG - 100}-{LONG - 1}")
        with self.started(*names, **options):
            job = self.submit(scripts.script(), steps=LONG)
            self.cluster.watch_until(job, lambda status: status["step"] > 3 and len(status["workers"]) == len(names),
                                     "the job runs")
            yield job

    def check_end(self, job):
        """Lets the job go. It succeeds with the checkpoint of one undisturbed worker; its status."""
        self.gate.open()
        status = self.check_succeeded(job)
        self.assertEqual(status["checkpoint"]["sha256"], self.expected(LONG))
        return status

    def test_a_killed_child_costs_its_shard_alone(self):
        with self.slow("a", "b") as job:
            [killed] = self.wait_children("b")
            os.kill(killed, signal.SIGKILL)
            cluster.wait_until(lambda: self.children("b") not in ([], [killed]), "another child")
            self.assertEqual(cluster.regroups_of_members(self.check_end(job)), [])
            self.wait_printed(job, "was killed by signal 9 (Killed)")
            self.check_gone([killed])

    def test_children_that_are_killed_in_the_middle_of_a_shard(self):
        plain = self.expected()
        alone = of_file(self.run_alone(scripts.script())[0])
        with self.started("a", "b") as running:
            for workers in (1, 2):
                folder = running.new_path("killed")
                folder.mkdir()
                job = self.submit(scripts.script(**KILLED), script_keys={"args": [str(folder)]},
                                  workers={"min": workers, "max": workers})
                status = self.check_succeeded(job)
                self.assertEqual(len(list(folder.iterdir())), 3)
                self.assertEqual(cluster.regroups_of_members(status), [])
                # Another script, and another argument: another manifest of the same model.
                self.assertNotEqual(status["checkpoint"]["sha256"], plain)
                self.assertEqual(status["files"]["model.safetensors"], alone)

    def test_a_killed_zygote_is_started_again(self):
        with self.slow("a", "b", cores=2) as job:
            [zygote] = self.zygotes("b")
            children = self.wait_children("b", 2)
            os.kill(zygote, signal.SIGKILL)
            self.check_gone([zygote, *children])
            self.wait_children("b", 2)
            self.assertNotEqual(self.zygotes("b"), [zygote])
            self.assertEqual(cluster.regroups_of_members(self.check_end(job)), [])

    def test_a_killed_worker_leaves_no_process_and_comes_back(self):
        with self.slow("a", "b", "c") as job:
            left = [*self.zygotes("b"), *self.wait_children("b")]
            self.cluster.workers["b"].kill()
            self.check_gone(left)
            self.cluster.wait_ring(job, "a", "c")
            self.cluster.start_worker("b", wait=False)
            self.cluster.wait_ring(job, "a", "b", "c", timeout=60)
            first, second = cluster.regroups_of_members(self.check_end(job))
            self.assertEqual((first["lost"], second["joined"]), (["b"], ["b"]))
            self.assertFalse(first["rewound"] or second["rewound"])

    def test_all_workers_are_killed_and_the_newest_checkpoint_is_where_it_goes_on(self):
        with self.slow("a", "b") as job:
            self.cluster.watch_until(job, lambda status: status["step"] >= 15 and status["checkpoint"], "a checkpoint")
            for name in "ab":
                self.cluster.workers[name].kill()
            for name in "ab":
                self.cluster.start_worker(name, wait=False)
            self.cluster.watch_until(job, lambda status: status["resumed_from"], "it goes on", timeout=120)
            self.check_end(job)

    def test_a_killed_coordinator_adopts_the_ring_that_went_on(self):
        with self.slow("a", "b") as job:
            before = self.cluster.status(job)
            children = {name: self.wait_children(name) for name in "ab"}
            self.cluster.coordinator.kill()
            self.cluster.start_coordinator()
            self.cluster.watch_until(job, lambda status: status["step"] > before["step"] + 3, "the ring goes on")
            self.assertEqual({name: self.children(name) for name in "ab"}, children)
            status = self.check_end(job)
            self.assertEqual((status["generation"], status["regroups"]), (before["generation"], []))

    def test_a_queued_job_outlives_its_coordinator(self):
        """Its files are stored with it."""
        with self.started() as running:
            job = self.submit(scripts.script())
            running.coordinator.kill()
            running.start_coordinator()
            running.start_worker("a")
            self.assertEqual(self.check_succeeded(job)["checkpoint"]["sha256"], self.expected())

    def test_a_joiner_takes_part(self):
        with self.slow("a") as job:
            self.cluster.start_worker("b", wait=False)
            self.cluster.wait_ring(job, "a", "b", timeout=60)
            [joined] = cluster.regroups_of_members(self.check_end(job))
            self.assertEqual((joined["lost"], joined["joined"]), ([], ["b"]))

    def test_a_drained_worker_leaves_without_a_shard_lost(self):
        with self.slow("a", "b") as job:
            left = [*self.zygotes("b"), *self.wait_children("b")]
            self.cluster.ringctl("drain", "b")
            self.cluster.wait_ring(job, "a")
            self.check_gone(left)
            [gone] = cluster.regroups_of_members(self.check_end(job))
            self.assertEqual((gone["lost"], gone["shards_recomputed"]), (["b"], 0))


class ResumeTest(scripts.ScriptCase):
    def loaded(self, folder):
        """What a process of its own says of a checkpoint that it loads with strict=True."""
        done = subprocess.run([scripts.PYTHON, "-c", LOAD, folder], capture_output=True, text=True, timeout=120, check=False,
                              env={**os.environ, "PYTHONPATH": str(scripts.PACKAGE)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("<All keys matched successfully>", done.stdout)
        return dict(line.split() for line in done.stdout.splitlines()[1:])

    def names_in(self, path):
        """Of the tensors of a safetensors file, as its header says, without any code of ours."""
        content = path.read_bytes()
        header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
        return {name for name in header if name != "__metadata__"}

    def test_a_job_that_was_cancelled_goes_on_and_its_checkpoint_is_the_module_s(self):
        expected = self.expected(LONG)
        [gate] = self.cluster.gates("", milliseconds=80, hold=f"{LONG - 100}-{LONG - 1}")
        with self.started("a", "b") as running:
            job = self.submit(scripts.script(), steps=LONG)
            running.watch_until(job, lambda status: status["checkpoint"] and status["checkpoint"]["step"] >= 10,
                                "a checkpoint")
            running.ringctl("cancel", job)
            running.ringctl("wait", job, expect=cluster.JOB_CANCELLED)
            newest = running.json("checkpoint", "ls", job)["checkpoints"][-1]["step"]
            gate.open()
            resumed = running.json("submit", "--resume", job)["job_id"]
            status = self.check_succeeded(resumed)
            self.assertEqual((status["resumes_job"], status["resumed_from"]["step"]), (job, newest))
            self.assertEqual(status["checkpoint"]["sha256"], expected)
            like = self.check_succeeded(running.json("submit", "--like", resumed)["job_id"])
            self.assertEqual(like["files"], status["files"])

            folder = running.folder / "checkpoint"
            running.ringctl("checkpoint", "get", resumed, folder)
            said = self.loaded(folder)
            self.assertEqual(said["tracked"], str(LONG))
            self.assertEqual(said["same"], "0")
            self.assertGreater(float(said["accuracy"]), 0.6)
            self.assertEqual(self.names_in(folder / "model.safetensors"),
                             {*(f"{layer}.{role}" for layer in (0, 1, 4, 6) for role in ("weight", "bias")),
                              *(f"1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked"))})

    def test_it_begins_with_the_weights_of_another_job(self):
        """Whatever its own script draws first: the tensors of the source, the buffers among them, are what it begins with."""
        other = scripts.script().replace("model = make_model()", "model = make_model(); torch.manual_seed(9)\n"
                                                  "for each in model.parameters(): nn.init.normal_(each)")
        with self.started("a", "b") as running:
            source = self.check_succeeded(self.submit(scripts.script()))["job_id"]
            manifests = {}
            for name, text in {"same": scripts.script(), "drawn": other}.items():
                for init in (None, {"job": source}):
                    status = self.check_succeeded(self.submit(text, init=init, steps=4, workers={"min": 2}))
                    manifests[name, init is None] = status["files"]["model.safetensors"]
            self.assertEqual(manifests["same", False], manifests["drawn", False])
            self.assertEqual(len(set(manifests.values())), 3)
            refused = self.submit(scripts.script().replace("nn.Linear(64, 4)", "nn.Linear(64, 5)"), init={"job": source})
            status = running.wait(refused)
            self.assertEqual(status["state"], "FAILED")
            self.assertIn("6.weight", status["reason"])

    def test_by_itself_an_interrupt_keeps_the_step_and_it_goes_on(self):
        text = scripts.script(steps=60, late="time.sleep(0.01)\nif shard.step == 10 and shard.shard == 0: print('at', 10, flush=True)")
        undisturbed, _ = self.run_alone(text)
        folder = self.cluster.new_path("interrupted")
        folder.mkdir()
        (folder / "train.py").write_text(text)
        with self.alone(folder) as process:
            self.assertIn("at 10\n", iter(process.stdout.readline, ""))
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=60 * cluster.SLOW)
        self.assertEqual(process.returncode, 0, said)
        self.assertRegex(said, r"ringmaster: stopped at step [1-5]\d of 60, checkpoint in \S+; RINGMASTER_RESUME=1 goes on from there")
        self.assertNotEqual(of_file(folder / "checkpoint"), of_file(undisturbed))
        self.run_alone(text, folder=folder, RINGMASTER_RESUME="1")
        self.assertEqual(of_file(folder / "checkpoint"), of_file(undisturbed))

    def test_of_a_script_by_itself_it_is_the_same_file(self):
        folder, said = self.run_alone(scripts.script(late='if job.lead and shard.step == 23: print("last loss", loss.item())'))
        self.assertIn("last loss", said)
        self.assertEqual(self.loaded(folder)["tracked"], str(scripts.STEPS))


if __name__ == "__main__":
    cluster.main(at_once=2)
