"""ringmaster's Python modules as a Debian package, as the worker's own copy, and as a wheel: the same files."""
import importlib.util
import os
import pathlib
import re
import shutil
import tempfile
import unittest
import zipfile

import debian_package
from debian_package import SOURCE, run

MODULES = "usr/lib/python3/dist-packages/ringmaster"
OWN_COPY = "usr/lib/ringmaster/python/ringmaster"  # ringworker's


def contents(folder):
    """Name -> bytes of every file below `folder`."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def modules_of_the_source():
    return {name: content for name, content in contents(SOURCE / "python/ringmaster").items() if name.endswith(".py")}


class PythonPackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-package-"))
        cls.addClassCleanup(lambda: shutil.rmtree(cls.folder, ignore_errors=True))
        before = os.umask(0o077)
        try:
            cls.main, cls.package = debian_package.make_packages(cls.folder / "cpack")
        finally:
            os.umask(before)
        cls.root, cls.control, cls.main_root = (cls.folder / name for name in ("root", "control", "main-root"))
        run("dpkg-deb", "--extract", cls.package, cls.root)
        run("dpkg-deb", "--control", cls.package, cls.control)
        run("dpkg-deb", "--extract", cls.main, cls.main_root)

    def test_both_packages_have_the_modules_of_the_source(self):
        expected = modules_of_the_source()
        self.assertIn("torch/job.py", expected)
        self.assertEqual(contents(self.root / MODULES), expected)
        self.assertEqual(contents(self.main_root / OWN_COPY), expected)

    def test_nothing_else_is_packed(self):
        others = sorted(name for name in contents(self.root) if not name.startswith(MODULES))
        self.assertEqual(others, [f"usr/share/doc/python3-ringmaster/{name}" for name in ("changelog.gz", "copyright")])

    def test_modes_and_owners(self):
        for line in run("dpkg-deb", "--contents", self.package).stdout.splitlines():
            mode, owner, *_, name = line.split()
            self.assertEqual((mode, owner), ("drwxr-xr-x" if name.endswith("/") else "-rw-r--r--", "root/root"), name)

    def test_its_fields(self):
        for name, value in {"Package": "python3-ringmaster", "Source": "ringmaster", "Architecture": "all",
                            "Version": os.environ["RINGMASTER_VERSION"], "Depends": "python3 (>= 3.9)",
                            "Recommends": "python3-torch", "Suggests": "ringmaster", "Section": "python"}.items():
            self.assertEqual(debian_package.field(self.package, name), value, name)

    def test_the_same_build_makes_the_same_package(self):
        _, again = debian_package.make_packages(self.folder / "again")
        self.assertEqual(again.read_bytes(), self.package.read_bytes())
        listed = self.package.with_suffix(".spdx.json").read_text()
        self.assertEqual(listed, again.with_suffix(".spdx.json").read_text())
        self.assertNotIn("_LINK", listed)

    def test_maintainer_scripts_are_valid(self):
        scripts = {path.name for path in self.control.iterdir()} - {"control", "md5sums"}
        self.assertEqual(scripts, {"postinst", "prerm"})
        for name in scripts:
            script = self.control / name
            self.assertEqual(script.stat().st_mode & 0o777, 0o755, name)
            run("sh", "-n", script)
            self.assertIn("\nset -e\n", script.read_text(), name)
            if shutil.which("shellcheck"):
                run("shellcheck", script)

    def test_it_is_imported_and_needs_no_torch_for_the_protocol(self):
        """-S: without what this host has in dist-packages."""
        code = "import ringmaster.core, ringmaster.solo, ringmaster.zygote; print(ringmaster.core.VERSION)"
        done = run("/usr/bin/python3", "-S", "-c", code, env={"PYTHONPATH": (self.root / MODULES).parent, "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual(done.stdout, "1\n")

    @unittest.skipIf(importlib.util.find_spec("torch") is None, "there is no torch")
    def test_every_module_is_imported(self):
        names = ["ringmaster." + re.sub(r"(/__init__)?\.py$", "", name).replace("/", ".")
                 for name in modules_of_the_source() if name != "__init__.py"]
        self.assertIn("ringmaster.torch.job", names)
        run("/usr/bin/python3", "-c", f"import {', '.join(names)}",
            env={"PYTHONPATH": (self.root / MODULES).parent, "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]})

    @unittest.skipIf(shutil.which("apt-get") is None, "there is no apt-get")
    def test_apt_takes_both(self):
        plan = run("apt-get", "install", "--simulate", "-q", "--no-install-recommends", self.main, self.package).stdout
        for name in ("ringmaster", "python3-ringmaster"):
            self.assertRegex(plan, rf"(?m)^Inst {name} ")


class WheelTest(unittest.TestCase):
    def test_a_wheel_has_the_same_modules(self):
        if any(importlib.util.find_spec(name) is None for name in ("pip", "setuptools", "wheel")):
            self.skipTest("pip, setuptools and wheel are not installed")
        with tempfile.TemporaryDirectory(prefix="ringmaster-wheel-") as folder:
            source, made = pathlib.Path(folder) / "python", pathlib.Path(folder) / "made"
            shutil.copytree(SOURCE / "python", source, ignore=shutil.ignore_patterns("__pycache__"))  # setuptools writes there
            run("/usr/bin/python3", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index",
                "--no-cache-dir", "-w", made, source, env={**os.environ, "SOURCE_DATE_EPOCH": "1000000000"})
            wheel, = made.iterdir()
            self.assertEqual(wheel.name, f"ringmaster-{os.environ['RINGMASTER_VERSION']}-py3-none-any.whl")
            with zipfile.ZipFile(wheel) as archive:
                modules = {name.removeprefix("ringmaster/"): archive.read(name) for name in archive.namelist()
                           if name.startswith("ringmaster/")}
                metadata, = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
            self.assertEqual(modules, modules_of_the_source())
            self.assertIn("Requires-Python: >=3.9\n", metadata)


if __name__ == "__main__":
    debian_package.main()
