"""The client in examples/python against a cluster."""
import importlib.util
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples/python/submit_and_plot.py"
MODULES = ("grpc", "google.protobuf", "yaml")
PROGRAMS = ("protoc", "grpc_python_plugin")
HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def missing():
    modules = [name for name in MODULES if importlib.util.find_spec(name) is None]
    return modules + [name for name in PROGRAMS if shutil.which(name) is None]


# Reads files as jobs, in the folder of the example; prints the last.
READ = """
import sys
sys.path.insert(0, sys.argv[1])
import job_file, stubs
job_pb2 = stubs.load()[0]
for path in sys.argv[2:]:
    try:
        print(job_file.read(path, job_pb2.JobSpec()))
    except job_file.ERRORS as error:
        sys.exit(f"{path}: {error}")
"""


class JobFileTest(unittest.TestCase):
    def setUp(self):
        if missing():
            self.skipTest(f"SKIP: the example needs {', '.join(missing())}")
        folder = tempfile.TemporaryDirectory(prefix="ringmaster-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def read(self, *texts, expect=0):
        paths = [self.folder / f"{number}.yaml" for number in range(len(texts))]
        for path, text in zip(paths, texts):
            path.write_text(text, encoding="utf-8")
        done = subprocess.run(["/usr/bin/python3", "-c", READ, str(EXAMPLE.parent), *map(str, paths)],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60 * cluster.SLOW,
                              check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_it_reads_what_the_documents_show(self):
        texts = [(ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
                 for name in ("evaluation", "fine_tuning", "script")]
        blocks = [block for text in texts for block in re.findall(r"(?ms)^```yaml\n(.*?)^```", text)]
        self.assertGreater(len(blocks), 6)
        self.read(*blocks)

    def test_what_may_stand_alone_or_by_name(self):
        said = self.read("continue: j0001\nscript: train.py\n"
                         "augment: [{preset: cifar_tutorial}, {normalize: torch}, {resize: {size: 24}}]\n",
                         "script: {file: train.py, env: {A: b}}\nworkers: {min: 2}\n")
        for part in ('job: "j0001"', 'file: "train.py"', 'name: "cifar_tutorial"', "kind: NORMALIZE_KIND_TORCH",
                     'name: "A"', 'value: "b"'):
            self.assertIn(part, said)
        for wrong in ("continue: [j0001]", "freeze: conv", "script: {file: a.py, env: [A]}", "augment:"):
            self.assertIn("expected a", self.read(wrong, expect=1))
        self.assertIn("unknown key", self.read("script: {file: a.py, files: []}", expect=1))


class PythonExampleTest(cluster.ClusterTest):
    def setUp(self):
        if missing():
            raise unittest.SkipTest(f"SKIP: the example needs {', '.join(missing())}")
        super().setUp()

    def run_example(self, *arguments, expect=0):
        done = subprocess.run(
            ["/usr/bin/python3", str(EXAMPLE), *map(str, arguments), "--coordinator",
             self.cluster.address], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120 * cluster.SLOW, check=False, cwd=self.cluster.folder)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def assert_job_of(self, output, name):
        """The program said what ringctl says about its job; the job's status."""
        status = self.cluster.status(re.search(r"(?m)^job (\S+)$", output)[1])
        self.assertEqual((status["state"], status["name"]), ("SUCCEEDED", name))
        self.assertIn(f"test accuracy {status['metrics']['test']['accuracy']:.4f}", output)
        return status

    def test_a_job_file_and_a_job_made_in_code(self):
        job = cluster.job_spec(name="from-file", precision={"policy": "mixed_bfloat16"},
                               augment=[{"random_crop": {"padding": 2}}, {"random_flip": {}}])
        with self.running() as running:
            done = self.run_example(running.write_job(job), "--text")
            status = self.assert_job_of(done.stdout, "from-file")
            self.assertEqual(status["total_steps"], 6)
            self.assertIn(f"step {status['step']}/6", done.stderr)
            chart = [line for line in done.stdout.splitlines() if re.search(r"\|.*\*", line)]
            self.assertGreater(len(chart), 0)
            self.assertRegex(done.stdout, r"0 +step 6\n")
            # The same file through ringctl is the same job: the same bytes come out.
            self.assertEqual(running.run_job(job)["checkpoint"]["sha256"],
                             status["checkpoint"]["sha256"])

            self.assert_job_of(self.run_example("--text").stdout, "python-example")

    def test_what_is_wrong_is_said(self):
        with self.running() as running:
            typo = self.run_example(running.write_job(cluster.job_spec(bacth=3)), expect=2)
            self.assertIn("unknown key 'bacth'", typo.stderr)
            refused = self.run_example(running.write_job(cluster.job_spec(shards=25)), expect=2)
            self.assertIn("INVALID_ARGUMENT", refused.stderr)
            self.assertIn("shards", refused.stderr)
            lost = self.run_example(
                running.write_job(cluster.job_spec(data={"format": "cifar10", "path": "none"})), expect=1)
            self.assertRegex(lost.stdout, r"(?m)^FAILED .*none")
            self.assertIn("nothing to plot", lost.stderr)

    @unittest.skipIf(not HAS_MATPLOTLIB, "SKIP: matplotlib is not installed")
    def test_matplotlib_draws_a_picture(self):
        with self.running() as running:
            done = self.run_example(running.write_job(cluster.job_spec()))
            self.assertIn("the loss is in loss.png", done.stdout)
            self.assertGreater((running.folder / "loss.png").stat().st_size, 1000)


if __name__ == "__main__":
    cluster.main()
