"""What --version says: the compute id of this build's sources, which a comment does not change and a kernel does."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "cmake"))
import source_digest  # noqa: E402


class VersionTest(cluster.ClusterTest):
    def setUp(self):
        super().setUp()
        header = (cluster.BIN.parent / "generated/common/compute_id.h").read_text()
        self.id = re.search(r'kComputeId\[\] = "([0-9a-f]{64})"', header)[1]
        self.made_of = json.loads(re.search(r"^// ({.*})$", header, re.MULTILINE)[1])
        self.texts = self.read(ROOT)

    def read(self, root):
        return source_digest.read(root, self.made_of["sources"], self.made_of["without"])

    def digest_with(self, path, change):
        """The compute id of a copy of the sources in which one file is another."""
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder)
            for each in self.texts:
                (copy / each).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / each, copy / each)
            text = (copy / path).read_text()
            changed = change(text)
            self.assertNotEqual(text, changed, path)
            (copy / path).write_text(changed)
            return source_digest.digest(self.read(copy), self.made_of["tools"])

    def test_every_program_prints_its_build_and_what_computes(self):
        builds = set()
        for name in ("ringctl", "ringmaster", "ringworker"):
            said = subprocess.run([cluster.BIN / name, "--version"], capture_output=True, text=True, check=True).stdout
            match = re.fullmatch(rf"{name} \d+\.\d+\.\d+ \(build ([0-9a-f]{{12}}), compute ([0-9a-f]{{12}})\)\n", said)
            self.assertIsNotNone(match, said)
            builds.add(match[1])
            self.assertEqual(match[2], self.id[:12], name)
        self.assertEqual(len(builds), 3)

    def test_the_worker_attaches_with_it(self):
        with self.running() as running:
            (worker,) = running.json("workers")["workers"]
            self.assertEqual(worker["compute_id"], self.id)

    def test_the_program_is_made_of_these_sources(self):
        self.assertEqual(source_digest.digest(self.texts, self.made_of["tools"]), self.id)

    def test_a_comment_changes_nothing_and_a_kernel_does(self):
        kernel = "worker/backend/cpu/softmax.cc"
        self.assertEqual(self.digest_with(kernel, lambda text: f"// Said anew.\n\n{text}/* and\nmore */\n"), self.id)
        self.assertEqual(self.digest_with(kernel, lambda text: text.replace(";\n", ";  // so\n")), self.id)
        self.assertNotEqual(self.digest_with(kernel, lambda text: text.replace("+", "-", 1)), self.id)
        flags = "worker/backend/cpu/CMakeLists.txt"
        self.assertEqual(self.digest_with(flags, lambda text: f"# Said anew.\n{text}"), self.id)
        self.assertNotEqual(self.digest_with(flags, lambda text: text.replace("-O3", "-Ofast")), self.id)
        included = "common/numeric/host_device.h"
        self.assertNotEqual(self.digest_with(included, lambda text: f"{text}\n#define RING_FASTER 1\n"), self.id)

    def test_what_looks_like_a_comment_within_a_literal_counts(self):
        for source in ('auto a = "b // c";', 'auto a = R"x(b // c)x";', "int a = 1'0; char b = '\"'; f(\"// c\");"):
            self.assertEqual(source_digest.without_comments(source + "  // d\n", "a.cc"), source)
        self.assertEqual(source_digest.without_comments('set(a "b # c")  # d\n', "CMakeLists.txt"), 'set(a "b # c")')

    def test_messages_and_programs_around_it_do_not_count(self):
        outside = ("proto/", "cli/", "coordinator/", "worker/ring/", "worker/transfer/", "common/zoo/")
        sources = [path for path in self.texts if path.startswith(outside) and path.endswith((".cc", ".proto"))]
        self.assertEqual(sources, [])
        self.assertIn("worker/backend/cpu/conv2d.cc", self.texts)
        self.assertIn("common/exact/kernels_avx512.cc", self.texts)


if __name__ == "__main__":
    cluster.main()
