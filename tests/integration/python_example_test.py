"""The client in examples/python against a cluster."""
import importlib.util
import pathlib
import re
import shutil
import subprocess
import unittest

import cluster

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/python/submit_and_plot.py"
MODULES = ("grpc", "google.protobuf", "yaml")
PROGRAMS = ("protoc", "grpc_python_plugin")
HAS_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def missing():
    modules = [name for name in MODULES if importlib.util.find_spec(name) is None]
    return modules + [name for name in PROGRAMS if shutil.which(name) is None]


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
