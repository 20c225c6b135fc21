"""What needs no plugin of scripts/pjrt-check: what it says, and how it ends, where something is missing."""
import os
import pathlib
import stat
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/pjrt-check"
EMITS = "#!/bin/sh\nfor form in a b; do echo text > $1/$form.mlir; echo $1/$form.mlir; done\n"


class PjrtCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="pjrt-check-test-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.add("bin/.keep", "")
        self.add("tools/python3", "#!/bin/sh\nexit 1\n")  # one without JAX

    def add(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def check(self, *arguments):
        ran = subprocess.run(["/usr/bin/python3", SCRIPT, *arguments], capture_output=True, text=True, check=False,
                             env={**os.environ, "RINGMASTER_BIN": str(self.folder / "bin"),
                                  "PATH": str(self.folder / "tools"), "PYTHONDONTWRITEBYTECODE": "1",
                                  "PYTHON": str(self.folder / "tools/python3")})
        return ran.returncode, ran.stdout

    def test_a_host_without_the_programs_has_checked_nothing(self):
        self.add("tools/mlir-opt-19", "#!/bin/sh\nexit 0\n")
        code, said = self.check("--only", "parse")
        self.assertEqual(code, 3)
        self.assertEqual(said, "skipped  parse      needs emit_zoo beside the programs (a build with tests)\n")

    def test_a_host_without_a_parser_has_checked_nothing(self):
        self.add("bin/emit_zoo", EMITS)
        code, said = self.check("--only", "parse")
        self.assertEqual(code, 3)
        self.assertEqual(said, "skipped  parse      needs mlir-opt: apt-get install mlir-19-tools\n")

    def test_every_text_is_parsed(self):
        self.add("bin/emit_zoo", EMITS)
        self.add("tools/mlir-opt-19", "#!/bin/sh\nexit 0\n")
        code, said = self.check("--only", "parse")
        self.assertEqual(code, 0, said)
        self.assertEqual([line.split()[:3] for line in said.splitlines()],
                         [["passed", "parse", "a"], ["passed", "parse", "b"]])

    def test_a_text_that_does_not_parse_fails(self):
        self.add("bin/emit_zoo", EMITS)
        self.add("tools/mlir-opt-19", "#!/bin/sh\necho no such op >&2\nexit 1\n")
        code, said = self.check("--only", "parse b")
        self.assertEqual(code, 1)
        self.assertIn("no such op", said)
        self.assertNotIn("parse a", said)

    def test_an_emitter_that_fails_is_said(self):
        self.add("bin/emit_zoo", "#!/bin/sh\necho broken >&2\nexit 1\n")
        self.add("tools/mlir-opt-19", "#!/bin/sh\nexit 0\n")
        code, said = self.check("--only", "parse")
        self.assertEqual(code, 1)
        self.assertIn("broken", said)

    def test_without_a_plugin_each_check_says_what_it_needs(self):
        code, said = self.check("--only", "speed")
        self.assertEqual(code, 3)
        self.assertEqual([line[:19].split() for line in said.splitlines()],
                         [["skipped", "speed"], ["skipped", "speed", "cuda"], ["skipped", "speed", "jax"]])
        self.assertEqual(said.count("a plugin: --plugin FILE"), 3)


if __name__ == "__main__":
    unittest.main()
