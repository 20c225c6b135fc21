#!/usr/bin/python3
"""scripts/gpu-check without a GPU: its stages, and what it does with a GPU and programs that are made up."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench"))

import vs_pytorch  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LONGEST_STAGE = 480
LIBRARIES = ("libcublasLt.so.13", "libcudnn.so.9", "libnvrtc.so.13")
# Each call is a line of `calls`; a file that is named like the program, with .fails, has the check fail.
FAKE = """#!/usr/bin/env bash
echo "$(basename "$0") $*" >>"$CALLS"
[ ! -e "$0.fails" ] || { echo "it went wrong"; exit 3; }
[ ! -e "$0.stands" ] || { echo begun; mkfifo "$0.fifo"; touch "$0.waits"; cat "$0.fifo"; }
echo "1,000 images/s	all well"
"""
# As `ringctl tune` says it: new rows when it is asked first.
FAKE_RINGCTL = """#!/usr/bin/env bash
echo "$(basename "$0") $*" >>"$CALLS"
table=${*: -1}
[ -e "$table" ] && grep -q "$2" "$table" && { echo "$table: 0 new rows"; exit; }
echo "row of $2" >>"$table"
echo "$table: 1 new rows"
"""
PROGRAMS = ("bin/ringworker", "bin/cuda_runtime_test", "bin/cuda_backend_test", "bin/train_speed", "scripts/same-bits",
            "bench/train", "tools/compute-sanitizer")


class Host:
    """A tree with fakes of everything that gpu-check runs, and a GPU."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.calls_file = self.folder / "calls"
        for name in ("scripts", "bin", "bench", "tools", "lib", "examples"):
            (self.folder / name).mkdir()
        shutil.copy(ROOT / "scripts/gpu-check", self.folder / "scripts")
        for name in PROGRAMS:
            self.program(name, FAKE)
        self.program("bin/ringctl", FAKE_RINGCTL)
        self.program("tools/nvidia-smi", "#!/usr/bin/env bash\nprintf '%s\\n' 'a GPU, 1.0, 80 MiB'{,,,}\n")
        self.program("tools/ldconfig", "#!/usr/bin/env bash\n")  # the loader knows no library
        self.program("tools/python", "#!/usr/bin/env bash\nexit 1\n")  # it has no PyTorch
        for name in LIBRARIES:
            (self.folder / "lib" / name).touch()
        self.environment = {
            "PATH": f"{self.folder}/tools:/usr/bin:/bin", "LD_LIBRARY_PATH": f"{self.folder}/lib", "HOME": str(self.folder),
            "PYTHON": f"{self.folder}/tools/python", "GPU_CHECK_LOGS": f"{self.folder}/logs", "CALLS": str(self.calls_file)}

    def program(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def start(self, *options):
        return subprocess.Popen([self.folder / "scripts/gpu-check", *options], env=self.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *options):
        with self.start(*options) as process:
            said, errors = process.communicate(timeout=120)
        return process.returncode, said, errors

    def calls(self):
        """Those since the last time, without the programs' options."""
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        self.calls_file.unlink(missing_ok=True)
        return lines

    def results(self):
        """(name, result, last line) of each line of results.txt."""
        lines = (self.folder / "logs/results.txt").read_text().splitlines()
        return [(line.split("\t")[2], line.split("\t")[3], line.split("\t")[6]) for line in lines]


def stages():
    """What --stages says: for each stage its seconds, and its checks' with their names."""
    said = subprocess.run([ROOT / "scripts/gpu-check", "--stages"], capture_output=True, text=True, check=True, timeout=60).stdout
    found = {}
    for line in said.splitlines():
        if stage := re.fullmatch(r"(\S+): at most (\d+) s", line):
            checks = []
            found[stage[1]] = (int(stage[2]), checks)
        else:
            seconds, name = re.fullmatch(r" +(\d+) s  (.+)", line).groups()
            checks.append((int(seconds), name))
    return found


class Stages(unittest.TestCase):
    def test_each_ends_in_under_eight_minutes(self):
        self.assertGreater(len(stages()), 5)
        for stage, (seconds, checks) in stages().items():
            self.assertLess(seconds, LONGEST_STAGE, stage)
            self.assertEqual(seconds, sum(limit for limit, _ in checks), stage)

    def test_no_two_checks_have_one_name(self):
        names = [name for _, checks in stages().values() for _, name in checks]
        self.assertEqual(sorted(set(names)), sorted(names))

    def test_every_case_of_the_gpu_tests_is_in_one(self):
        patterns = [pattern.removesuffix("*~[nightly]").removesuffix("*")
                    for _, checks in stages().values() for _, name in checks
                    if name.startswith(("cuda_runtime_test ", "cuda_backend_test "))
                    for pattern in name.split(" ", 1)[1].split(",")]
        text = (ROOT / "tests/worker/backend/cuda/CMakeLists.txt").read_text()
        folder = ROOT / "tests/worker/backend/cuda"
        cases = []
        for program in ("ring_testing_cuda_state OBJECT", "cuda_runtime_test", "cuda_backend_test"):
            call = re.search(rf"(?:ring_test|add_library)\({program}\s+([^)]*)\)", text)[1].split("DEPS")[0]
            for source in re.findall(r"\S+\.cc", call):
                cases += re.findall(r'TEST_CASE\(\s*"([^"]+)', (folder / source).read_text())
        self.assertGreater(len(cases), 40)
        self.assertEqual([case for case in cases if not case.startswith(tuple(patterns))], [])

    def test_what_cannot_be_is_refused(self):
        for words in (["--stage"], ["--stage", "none"], ["--only"], ["--nonsense"], ["tests"]):
            done = subprocess.run([ROOT / "scripts/gpu-check", *words], capture_output=True, text=True, check=False, timeout=60)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn("gpu-check", done.stderr)


class OnAHost(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="gpu-check-test-")
        self.addCleanup(folder.cleanup)
        self.host = Host(folder.name)

    def test_a_stage_has_its_checks_and_each_is_a_result(self):
        status, said, errors = self.host.run("--stage", "tests", "--stage", "jobs")
        self.assertEqual((status, errors), (0, ""), said)
        names = [name for stage in ("tests", "jobs") for _, name in stages()[stage][1]]
        self.assertEqual(self.host.results(), [(name, "passed", "1,000 images/s all well") for name in names])
        calls = self.host.calls()
        self.assertEqual(len(calls), len(names))
        self.assertIn("cuda_backend_test -w NoTests Ops: float32*", calls)
        self.assertIn("same-bits --device cuda --epochs 60", calls)

    def test_everything(self):
        status, said, errors = self.host.run()
        self.assertEqual((status, errors), (0, ""), said)
        results = dict((name, result) for name, result, _ in self.host.results())
        every = {name for _, checks in stages().values() for _, name in checks}
        # Without PyTorch there is nothing to compare with, which the table says.
        self.assertEqual(every - set(results), {name for name in every if "vs_pytorch" in name})
        self.assertEqual(set(results.values()), {"passed"})
        self.assertRegex(said, r"\nbench/vs_pytorch.py alexnet 256 +not run +-  .*tools/python has no PyTorch that sees the GPU\n")
        calls = self.host.calls()
        self.assertIn("compute-sanitizer --tool memcheck --error-exitcode 9 "
                      f"{self.host.folder}/bin/cuda_backend_test -w NoTests Ops: float32*", calls)
        self.assertEqual(len([call for call in calls if call.startswith("ringctl tune")]), 8)

    def test_what_passed_is_not_run_again_and_what_failed_is(self):
        broken = self.host.folder / "scripts/same-bits.fails"
        broken.touch()
        status, said, _ = self.host.run("--stage", "jobs", "--stage", "tests")
        self.assertEqual(status, 1)
        self.assertRegex(said, r"\nsame bits +FAILED +\d+  it went wrong\n")
        self.host.calls()
        broken.unlink()
        status, said, _ = self.host.run("--stage", "jobs", "--stage", "tests")
        self.assertEqual(status, 0)
        self.assertEqual({call.split()[0] for call in self.host.calls()}, {"same-bits"})
        self.assertRegex(said, r"\ncuda_backend_test Ops: float32\* +before +\d+  1,000 images/s all well\n")
        status, _, _ = self.host.run("--stage", "jobs")
        self.assertEqual((status, self.host.calls()), (0, []))
        self.host.run("--stage", "jobs", "--again")
        self.assertEqual(len(self.host.calls()), 2)

    def test_what_passed_with_other_programs_is_run_again(self):
        self.host.run("--only", "same bits")
        self.assertEqual(len(self.host.calls()), 1)
        with (self.host.folder / "bin/ringworker").open("a") as program:
            program.write("# another\n")
        self.host.run("--only", "same bits")
        self.assertEqual(len(self.host.calls()), 1)

    def test_what_failed_after_it_had_passed_is_run_again(self):
        broken = self.host.folder / "scripts/same-bits.fails"
        self.host.run("--only", "same bits")
        broken.touch()
        self.host.run("--only", "same bits", "--again")
        broken.unlink()
        self.host.calls()
        self.host.run("--only", "same bits")
        self.assertEqual(len(self.host.calls()), 1)

    def test_a_stop_in_the_middle_loses_nothing(self):
        stands = self.host.folder / "bin/cuda_backend_test.stands"
        stands.touch()
        with self.host.start("--stage", "tests") as process:
            while not (self.host.folder / "bin/cuda_backend_test.waits").exists():
                self.assertIsNone(process.poll())
                os.sched_yield()
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertEqual([result for _, result, _ in self.host.results()], ["passed"] * 3 + ["stopped"])
        self.assertEqual(self.host.results()[-1], ("cuda_backend_test Ops: float32*", "stopped", "begun"))
        self.assertRegex(said, r"\ncuda_backend_test Ops: float32\* +stopped ")
        stands.unlink()
        self.host.calls()
        status, _, _ = self.host.run("--stage", "tests")
        self.assertEqual(status, 0)
        self.assertEqual({call.split()[0] for call in self.host.calls()}, {"cuda_backend_test"})

    def test_only_what_is_named(self):
        status, said, _ = self.host.run("--only", "memcheck *", "--stage", "sanitizer-16")
        self.assertEqual(status, 0, said)
        self.assertEqual({name for name, _, _ in self.host.results()},
                         {"memcheck cuda_backend_test Ops: bfloat16*", "memcheck cuda_backend_test Ops: float16*"})

    def test_benchmarks_use_the_table_that_was_tuned(self):
        self.host.program("bench/train", FAKE.replace("$*", "$* ${RINGMASTER_KERNEL_TABLE:-none}"))
        self.host.run("--stage", "zoo", "--only", "*resnet20 256")
        self.assertTrue(self.host.calls()[0].endswith(" none"))
        self.host.run("--stage", "tune", "--stage", "zoo", "--only", "*resnet20*")
        self.assertTrue(self.host.calls()[-1].endswith(f" {self.host.folder}/logs/kernel_table.txt"))

    def test_a_benchmark_s_line_has_its_figures(self):
        self.host.program("bench/train", "#!/usr/bin/env bash\necho 'a case'; echo '  images/s  median 1,000'; echo '  start 1 s'\n")
        self.host.program("tools/python", "#!/usr/bin/env bash\n[ \"$1\" != -c ] || exec echo True\n"
                          "echo '| images/s | ours |'; echo '|---|---|'; echo '| float32 | 1 |'; echo '| mixed_bfloat16 | 2 |'; echo a note\n")
        self.host.run("--only", "bench/*", "--stage", "zoo", "--stage", "compare")
        self.assertEqual({line for _, _, line in self.host.results()},
                         {"images/s median 1,000", "| float32 | 1 |;| mixed_bfloat16 | 2 |"})

    def test_several_gpus_are_measured_where_there_are_four(self):
        self.host.program("bench/train", FAKE.replace("$*", "$* ${LD_LIBRARY_PATH%%:*}"))
        status, said, errors = self.host.run("--stage", "gpus")
        self.assertEqual((status, errors), (0, ""), said)
        *others, without = [call for call in self.host.calls() if call.startswith("train ")]
        self.assertTrue(without.endswith(f" --shards 2 --cores 2 {self.host.folder}/logs/no-nccl"), without)
        self.assertTrue((self.host.folder / "logs/no-nccl/libnccl.so.2").exists())
        self.assertEqual({call.split()[-1] for call in others}, {f"{self.host.folder}/lib"})
        self.host.program("tools/nvidia-smi", "#!/usr/bin/env bash\necho 'a GPU, 1.0, 80 MiB'\n")
        status, said, _ = self.host.run("--stage", "gpus")
        self.assertEqual((status, self.host.calls()), (0, []))
        self.assertRegex(said, r"\nbench/train vgg 1024 on 4 GPUs +not run +-  there are fewer than four GPUs\n")

    def test_a_step_has_one_number_of_shards(self):
        self.host.run("--stage", "forms", "--stage", "zoo")
        calls = self.host.calls()
        self.assertEqual({call.count(" --shards ") for call in calls}, {1})
        self.assertEqual(len([call for call in calls if " --shards 8 " in call]), 4)

    def test_what_is_kept_makes_the_second_start_warm(self):
        self.host.program("bench/train", "#!/usr/bin/env bash\nkept=${*: -1}\n"
                          "[ -e \"$kept\" ] && echo '  start  1 s' || echo '  start  9 s'\nmkdir -p \"$kept\"\n")
        self.host.run("--only", "cold and warm *")
        self.assertEqual({line for _, _, line in self.host.results()}, {"cold: 9 s; warm: 1 s"})

    def test_pytorch_is_compared_with_options_that_there_are(self):
        self.host.program("tools/python", FAKE.replace("\n", '\n[ "$1" != -c ] || exec echo True\n', 1))
        stages_of_it = [word for name in stages() if name.startswith("compare") for word in ("--stage", name)]
        status, said, _ = self.host.run(*stages_of_it)
        self.assertEqual(status, 0, said)
        prefix = f"python {self.host.folder}/bench/vs_pytorch.py "
        calls = [call.removeprefix(prefix) for call in self.host.calls() if call.startswith(prefix)]
        self.assertEqual(len(calls), sum(len(stages()[name][1]) for name in stages_of_it[1::2]))
        for call in calls:
            options = vs_pytorch.arguments(call.split())
            self.assertEqual((options.device, options.shards, options.suite), ("cuda", [1], None), call)

    def test_what_is_missing_is_said(self):
        for name in ("cuda_runtime_test", "cuda_backend_test"):
            (self.host.folder / "bin" / name).unlink()
        status, _, errors = self.host.run()
        self.assertEqual(status, 3)
        self.assertIn("no GPU tests", errors)
        self.host.program("tools/nvidia-smi", "#!/usr/bin/env bash\nexit 9\n")
        if not pathlib.Path("/proc/driver/nvidia/version").exists():
            status, _, errors = self.host.run()
            self.assertEqual(status, 3)
            self.assertIn("no GPU", errors)

    def test_libraries(self):
        self.assertEqual(self.host.run("--libraries"), (0, f"{self.host.folder}/lib\n", ""))
        (self.host.folder / "lib/libnvrtc.so.13").unlink()
        for options in (("--libraries",), ("--only", "same bits")):
            status, said, errors = self.host.run(*options)
            self.assertEqual(status, 0, said)
            self.assertIn("no libnvrtc.so.13", errors)


if __name__ == "__main__":
    unittest.main()
