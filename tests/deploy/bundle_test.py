"""The relocatable bundle: what is in it, and that it needs nothing of a host but the C library."""
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

import debian_package
from debian_package import BUILD, run

MOST_BYTES = 60 << 20
EXPECTED = ("bin/ringmaster", "bin/ringworker", "bin/ringctl", "scripts/gpu-check", "scripts/same-bits", "bench/vs_pytorch.py", "bench/train",
            "lib/ringmaster/python/ringmaster/torch/job.py",
            "examples/alexnet-cifar10.yaml", "docs/gpu.md", "README.md", "LICENSE")
C_LIBRARY = ("libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libresolv.so.2")
LOADER = pathlib.Path("/lib64/ld-linux-x86-64.so.2")
# Where CUDA is, and where the driver or Python have it: not in the bundle.
NVIDIA = re.compile(r"lib(cuda|cublas|cublasLt|cudnn)\.so")


class BundleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-bundle-"))
        cls.addClassCleanup(lambda: shutil.rmtree(cls.folder, ignore_errors=True))
        run("cpack", "-G", "TGZ", "-B", cls.folder / "cpack", cwd=BUILD, timeout=300)
        cls.archive = cls.folder / "cpack" / f"ringmaster-{os.environ['RINGMASTER_VERSION']}-linux-x86_64.tar.gz"
        with tarfile.open(cls.archive) as archive:
            archive.extractall(cls.folder / "moved")
        cls.root, = (cls.folder / "moved").iterdir()

    def elves(self):
        return [path for path in self.root.rglob("*")
                if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]

    def test_every_part_is_there(self):
        files = {str(path.relative_to(self.root)) for path in self.root.rglob("*")}
        self.assertEqual(set(EXPECTED) - files, set())
        if (BUILD / "bin/libringmaster_cuda.so").exists():
            self.assertIn("lib/ringmaster/libringmaster_cuda.so", files)
        self.assertEqual([name for name in files if "__pycache__" in name or NVIDIA.search(name)], [])

    def test_every_benchmark_that_is_packed_starts(self):
        packed = sorted((self.root / "bench").iterdir())
        programs = [path for path in packed if os.access(path, os.X_OK)]
        self.assertEqual([path.name for path in programs], ["jax_training.py", "train", "vs_pytorch.py"])
        for path in programs:
            if path.name == "train" and not (self.root / "bin/train_speed").exists():
                continue  # it was not built
            run(path, "--help", env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual({path.name for path in packed} - {path.name for path in programs},
                         {"contenders.py", "pytorch_training.py", "torch_layers.py", "torch_models.py"})
        done = subprocess.run(["python3", "-B", "-c", "import contenders, types; "
                               "contenders.Workers(types.SimpleNamespace(bin='bin'))"],
                              cwd=self.root / "bench", capture_output=True, text=True, check=False, timeout=60)
        self.assertIn("Failure: --workers needs the source tree", done.stderr)

    def test_its_size(self):
        self.assertLess(self.archive.stat().st_size, MOST_BYTES)

    def test_every_library_is_in_it_but_those_of_the_system(self):
        inside = {path.name for path in self.root.rglob("*.so*")}
        for path in self.elves():
            needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", path).stdout)
            strange = [name for name in needed if name not in inside and name not in C_LIBRARY
                       and name != LOADER.name and not NVIDIA.match(name)]
            self.assertEqual(strange, [], path)

    def test_programs_keep_their_build_id(self):
        for name in ("ringmaster", "ringworker"):
            def build_id(path):
                return re.search("Build ID: ([0-9a-f]{40})", run("readelf", "-n", path).stdout).group(1)
            self.assertEqual(build_id(self.root / "bin" / name), build_id(BUILD / "bin" / name))

    @unittest.skipIf(subprocess.run(["unshare", "-r", "true"], capture_output=True, check=False).returncode != 0,
                     "the kernel allows no user namespaces")
    def test_it_runs_where_nothing_but_the_c_library_is(self):
        host = self.folder / "host"
        (host / "lib64").mkdir(parents=True)
        shutil.copy(LOADER, host / "lib64")
        for name in C_LIBRARY:
            shutil.copy(f"/lib/x86_64-linux-gnu/{name}", host / "lib64")
        shutil.copytree(self.root, host / "opt")
        for name in ("ringmaster", "ringworker", "ringctl"):
            said = run("unshare", "-r", "/usr/sbin/chroot", host, f"/opt/bin/{name}", "--help",
                       env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": "/lib64", "LD_ORIGIN_PATH": "/opt/bin"})
            self.assertIn(name, said.stdout)

    def test_ringctl_finds_its_ringworker(self):
        done = subprocess.run([self.root / "bin/ringctl", "tune", self.root / "examples/alexnet-cifar10.yaml", "--device", "cpu",
                               "--table", self.folder / "kernel_table.txt"],
                              capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "ringworker tune: the cpu backend has no kernel table: nothing to tune\n"))

    def same_bits(self, *options):
        return subprocess.run([self.root / "scripts/same-bits", "--device", "cpu", "--epochs", "4",
                               "--set", "model={name: mlp, hidden: [32]}", "--set", "batch=64", *options],
                              capture_output=True, text=True, check=False, timeout=240)

    def test_every_cluster_ends_with_the_same_bytes(self):
        done = self.same_bits()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, "\n3 workers, one killed +([0-9a-f]{64})\nequal: \\1\n$")

    def test_it_is_said_when_they_do_not(self):
        done = self.same_bits("--set", "reduction=float32")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, "\nDIFFERENT: [234] results\n$")

    def test_two_classes_in_one_job_end_with_the_same_bytes(self):
        done = self.same_bits("--beside", "cpu,2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, "\n1 worker and 1 of another class +([0-9a-f]{64})\n2 and 2, one of each killed +\\1\n"
                                      "1 and 1, which is killed and comes back +\\1\nequal: \\1\n$")
        done = self.same_bits("--beside", "cpu")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the workers are of one class", done.stderr)

    def test_gpu_check_without_a_gpu_says_so(self):
        if pathlib.Path("/proc/driver/nvidia/version").exists():
            self.skipTest("there is an NVIDIA driver")
        done = subprocess.run([self.root / "scripts/gpu-check"], capture_output=True, text=True, check=False, timeout=60)
        self.assertEqual(done.returncode, 3)
        self.assertIn("no GPU", done.stderr)


if __name__ == "__main__":
    debian_package.main()
