"""The Debian package as a set of files: what is in it, its units, and its maintainer scripts."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import debian_package
from debian_package import BUILD, DAEMONS, run

EXPECTED = (
    "etc/ringmaster/ringmaster.env", "etc/ringmaster/ringworker.env",
    "usr/bin/ringmaster", "usr/bin/ringworker", "usr/bin/ringctl",
    "usr/lib/ringmaster/python/ringmaster/core.py", "usr/lib/ringmaster/python/ringmaster/torch/job.py",
    "usr/lib/systemd/system/ringmaster.service", "usr/lib/systemd/system/ringworker.service",
    "usr/lib/sysusers.d/ringmaster.conf",
    "usr/share/bash-completion/completions/ringctl",
    "usr/share/doc/ringmaster/README.md", "usr/share/doc/ringmaster/docs/operations.md",
    "usr/share/doc/ringmaster/copyright", "usr/share/doc/ringmaster/changelog.gz",
    "usr/share/ringmaster/examples/alexnet-cifar10.yaml",
    "usr/share/ringmaster/examples/python/submit_and_plot.py",
    "usr/share/ringmaster/examples/python/convert_weights.py",
    "usr/share/ringmaster/examples/python/gpt.py",
    "usr/share/ringmaster/proto/ringmaster/v1/jobs.proto",
    "usr/share/ringmaster/proto/google/rpc/status.proto",
)
SCRIPTS = ("postinst", "prerm", "postrm")
WORST_EXPOSURE = 30  # of systemd-analyze security, times ten: 0 is safest, 100 is unsafe


def assignments(text, prefix=""):
    """NAME -> value of lines `<prefix>NAME=value`."""
    return dict(re.findall(rf"^{re.escape(prefix)}([A-Z_]+)=(.*)$", text, re.MULTILINE))


class UnbuiltTest(unittest.TestCase):
    def test_a_tree_that_is_not_built_says_what_to_build(self):
        with tempfile.TemporaryDirectory(prefix="ringmaster-unbuilt-") as folder:
            build = pathlib.Path(folder) / "build"
            run("cmake", "-G", "Ninja", "-S", debian_package.SOURCE, "-B", build, "-DRINGMASTER_TESTS=OFF",
                "-DRINGMASTER_CUDA=OFF")
            programs = ("ringmaster", "ringworker", "ringctl")
            (build / "bin").mkdir(exist_ok=True)
            for program in programs[:2]:
                (build / "bin" / program).touch()
            done = subprocess.run(["cpack", "-G", "DEB"], cwd=build, capture_output=True, text=True,
                                  timeout=120, check=False)
            self.assertNotEqual(done.returncode, 0)
            said = " ".join((done.stdout + done.stderr).split())
            self.assertIn("Not built yet: completion changelog ringctl ringmaster_pjrt_host. Build that", said)
            self.assertIn(f"cmake --build {build} --target completion changelog ringctl ringmaster_pjrt_host", said)
            self.assertNotIn("file INSTALL cannot find", said)


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="ringmaster-package-"))
        cls.addClassCleanup(lambda: shutil.rmtree(cls.folder, ignore_errors=True))
        # Modes in the package must not depend on those of whoever packs it.
        before = os.umask(0o077)
        try:
            cls.package = debian_package.make_package(cls.folder / "cpack")
        finally:
            os.umask(before)
        cls.root = cls.folder / "root"
        cls.control = cls.folder / "control"
        run("dpkg-deb", "--extract", cls.package, cls.root)
        run("dpkg-deb", "--control", cls.package, cls.control)

    def files(self):
        return {str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_file()}

    def unit(self, daemon):
        return (self.root / f"usr/lib/systemd/system/{daemon}.service").read_text()

    def staged_unit(self, daemon, text):
        """The unit as a file whose programs are the staged ones, for systemd-analyze."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        path = folder / f"{daemon}.service"
        path.write_text(text.replace("=/usr/bin/", f"={self.root}/usr/bin/"))
        return path

    # ---- files ----------------------------------------------------------------------------------

    def test_every_part_is_there(self):
        self.assertEqual(set(EXPECTED) - self.files(), set())

    def test_nothing_generated_is_packed(self):
        strange = [name for name in self.files() if "__pycache__" in name or "CMakeLists" in name]
        self.assertEqual(strange, [])

    def test_links_between_pages_lead_somewhere(self):
        pages = list((self.root / "usr/share").rglob("*.md"))
        self.assertGreater(len(pages), 20)
        for page in pages:
            for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
                if not re.match(r"[a-z]+:", link):
                    self.assertTrue((page.parent / link).exists(), f"{page}: {link}")

    def test_modes_and_owners(self):
        for line in run("dpkg-deb", "--contents", self.package).stdout.splitlines():
            if line.startswith("l"):
                self.assertRegex(line, r" root/root .* \./usr/share/(doc/ringmaster/examples|ringmaster/docs) -> \.\./")
                continue
            mode, owner, *_, name = line.split()
            folder = name.endswith("/")
            program = not folder and (name.startswith("./usr/bin/") or name == "./usr/lib/ringmaster/ringmaster_pjrt_host")
            secret = name == "./etc/ringmaster/ringworker.env"  # a token may stand in it
            self.assertEqual(mode, "drwxr-xr-x" if folder else
                             "-rwxr-xr-x" if program else "-rw-------" if secret else "-rw-r--r--", name)
            self.assertEqual(owner, "root/root", name)

    def test_programs_are_stripped_and_keep_their_build_id(self):
        for name in (*DAEMONS, "ringctl"):
            packed = run("readelf", "-WSn", self.root / "usr/bin" / name).stdout
            built = run("readelf", "-n", BUILD / "bin" / name).stdout
            self.assertNotIn(".symtab", packed)
            build_id = re.search(r"Build ID: ([0-9a-f]{40})", built).group(1)
            self.assertIn(build_id, packed)

    def test_programs_are_hardened(self):
        for name in (*DAEMONS, "ringctl"):
            program = self.root / "usr/bin" / name
            header, dynamic, segments = (run("readelf", "-W", *flags, program).stdout
                                         for flags in (["-h"], ["-d"], ["-l"]))
            symbols = run("readelf", "-W", "--dyn-syms", program).stdout
            self.assertRegex(header, r"Type:\s+DYN")  # anywhere in memory
            self.assertIn("GNU_RELRO", segments)
            self.assertRegex(dynamic, r"FLAGS_1\).*NOW")
            self.assertRegex(segments, r"GNU_STACK\s.*\sRW\s")
            self.assertRegex(symbols, r"__stack_chk_fail")
            self.assertRegex(symbols, r"__(memcpy|snprintf|vsnprintf|read|recv|memmove|memset)_chk")
            self.assertNotRegex(dynamic, r"\((RPATH|RUNPATH)\)")
            content = program.read_bytes()
            for folder in (debian_package.SOURCE, BUILD):  # where it was built
                self.assertNotIn(bytes(folder) + b"/", content)

    def test_the_same_build_makes_the_same_package(self):
        again = debian_package.make_package(self.folder / "again")
        self.assertEqual(again.read_bytes(), self.package.read_bytes())
        first, second = (json.loads(made.with_suffix(".spdx.json").read_text()) for made in (self.package, again))
        self.assertEqual(first, second)

    def test_its_parts_are_listed(self):
        listed = json.loads(self.package.with_suffix(".spdx.json").read_text())
        self.assertEqual(listed["spdxVersion"], "SPDX-2.3")
        parts = {part["SPDXID"]: part for part in listed["packages"]}
        links = {(each["relationshipType"], parts[each["relatedSpdxElement"]]["name"])
                 for each in listed["relationships"]}
        for link in (("DESCRIBES", "ringmaster"), ("DYNAMIC_LINK", "libgrpc++1.51"), ("DYNAMIC_LINK", "libssl3"),
                     ("DEPENDS_ON", "libc-ares2"), ("STATIC_LINK", "libpng-dev")):
            self.assertIn(link, links)
        itself = next(part for part in listed["packages"] if part["name"] == "ringmaster")
        self.assertEqual(itself["checksums"][0]["checksumValue"], hashlib.sha256(self.package.read_bytes()).hexdigest())
        for part in listed["packages"]:
            if part is not itself:
                self.assertRegex(part["externalRefs"][0]["referenceLocator"], r"^pkg:deb/debian/\S+@\S+\?arch=")

    def test_every_file_below_etc_is_a_conffile(self):
        conffiles = (self.control / "conffiles").read_text().split()
        self.assertEqual(sorted(conffiles),
                         sorted(f"/{name}" for name in self.files() if name.startswith("etc/")))

    @unittest.skipIf(shutil.which("bash") is None, "there is no bash")
    def test_bash_completes_commands(self):
        script = self.root / "usr/share/bash-completion/completions/ringctl"
        done = run("bash", "-ec", 'source "$1"; complete -p ringctl; COMP_WORDS=("$2" sub); COMP_CWORD=1; '
                   '_ringctl; echo "${COMPREPLY[@]}"', "bash", script, self.root / "usr/bin/ringctl")
        self.assertIn("submit", done.stdout.splitlines()[-1].split())

    def test_version_and_dependencies(self):
        self.assertEqual(debian_package.field(self.package, "Package"), "ringmaster")
        self.assertEqual(debian_package.field(self.package, "Version"),
                         os.environ["RINGMASTER_VERSION"])
        depends = debian_package.field(self.package, "Depends")
        for library in ("libc6", "libgrpc++", "libprotobuf", "libdnnl", "libsqlite3", "libssl", "libcurl4"):
            self.assertIn(library, depends)
        self.assertNotIn("-dev", depends)

    @unittest.skipIf(shutil.which("apt-get") is None, "there is no apt-get")
    def test_apt_takes_it(self):
        plan = run("apt-get", "install", "--simulate", "-q", self.package).stdout
        self.assertRegex(plan, r"(?m)^Inst ringmaster ")

    def test_a_plain_installation_has_the_same_files(self):
        prefix = self.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", prefix)
        installed = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()}
        self.assertEqual(installed, {re.sub("^usr/", "", name) for name in self.files()})

    # ---- units ----------------------------------------------------------------------------------

    def test_systemd_accepts_the_units(self):
        for daemon in DAEMONS:
            done = run("systemd-analyze", "verify", "--man=no",
                       self.staged_unit(daemon, self.unit(daemon)))
            self.assertEqual(done.stdout + done.stderr, "")

    def test_the_units_are_hardened(self):
        for daemon in DAEMONS:
            arguments = ["systemd-analyze", "security", "--offline=true", "--no-pager",
                         f"--threshold={WORST_EXPOSURE}"]
            run(*arguments, self.staged_unit(daemon, self.unit(daemon)))
            # The command can fail: the same unit without its walls does not pass.
            open_unit = re.sub(r"(?m)^(Protect|Private|Restrict|SystemCall|Capab).*\n", "",
                               self.unit(daemon))
            done = subprocess.run([*arguments, self.staged_unit(daemon, open_unit)],
                                  capture_output=True, check=False, timeout=60)
            self.assertNotEqual(done.returncode, 0)

    def test_the_defaults_that_conffiles_show_are_those_of_the_units(self):
        for daemon in DAEMONS:
            shown = assignments((self.root / f"etc/ringmaster/{daemon}.env").read_text(), "#")
            shown = {name: value for name, value in shown.items()
                     if not name.endswith(("_OPTIONS", "_LOG"))}
            self.assertEqual(shown, assignments(self.unit(daemon), "Environment="), daemon)
            used = set(re.findall(r"\$\{?([A-Z_]+)", self.unit(daemon)))
            self.assertEqual(used, {*shown, f"{daemon.upper()}_OPTIONS"}, daemon)

    # ---- maintainer scripts ---------------------------------------------------------------------

    def test_maintainer_scripts_are_valid(self):
        for name in SCRIPTS:
            script = self.control / name
            self.assertEqual(script.stat().st_mode & 0o777, 0o755, name)
            run("sh", "-n", script)
            self.assertIn("\nset -e\n", script.read_text(), name)
            if shutil.which("shellcheck"):
                run("shellcheck", script)

    @unittest.skipIf(shutil.which("lintian") is None, "there is no lintian")
    def test_lintian_finds_no_error(self):
        # Whose address stands in it is up to whoever packs (RINGMASTER_MAINTAINER).
        run("lintian", "--allow-root", "--fail-on", "error", "--suppress-tags",
            "bogus-mail-host,bogus-mail-host-in-debian-changelog", self.package)


if __name__ == "__main__":
    debian_package.main()
