#!/usr/bin/python3
"""Training speed against PyTorch's: the same net, batch and cores, side by side in one run.

    bench/vs_pytorch.py --model alexnet --set batch_norm=true --batch 64
    bench/vs_pytorch.py --device cuda --batch 4096 --steps 100

Each contender trains some steps in turn, round after round, so that whatever else the machine does
meets all of them; a figure is the median of its rounds. On a CPU PyTorch runs in NCHW and
channels_last, in float32 and under torch.cpu.amp in bfloat16; on a GPU with channels_last, eager and
compiled (max-autotune where it works), with AMP for the mixed policies. Everything runs on the CPUs
of --cpus (taskset), PyTorch with a thread on each, ours with a core on each unless --cores says
otherwise. Ours goes through the real trainer, which reads its samples from files, converts them and
sums exactly; PyTorch's batches lie in memory, on a GPU in the GPU's.

Needs PyTorch for the interpreter that runs this: Debian's python3-torch for CPUs, any of version 2 or
newer built for CUDA for GPUs.
"""
import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PRECISION_OF = {"float32": "float32", "mixed_bfloat16": "bfloat16", "mixed_float16": "float16"}
LAYOUTS = {"alexnet": ("nchw", "channels_last"), "vgg": ("nchw", "channels_last"), "mlp": ("nchw",)}


class Failure(Exception):
    """Something that the user can do something about."""


def programs():
    """A bundle has them in bin, a tree in its release build."""
    bundled = ROOT / "bin"
    return bundled if bundled.is_dir() else ROOT / "build/release/bin"


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(LAYOUTS), default="alexnet")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="option of the model: batch_norm=true")
    parser.add_argument("--batch", type=positive, default=64)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--policies", nargs="+", choices=sorted(PRECISION_OF), default=["float32", "mixed_bfloat16"])
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--steps", type=positive, default=10, help="of a round")
    parser.add_argument("--warm-up", type=positive, default=2, help="steps before them, in each round")
    parser.add_argument("--cpus", default="", metavar="LIST", help="e.g. 0,2-3 (default: all that this process may use)")
    parser.add_argument("--cores", type=positive, help="ours: shards side by side (default: one a CPU, on a GPU 1)")
    parser.add_argument("--threads", type=positive, default=1, help="ours: of each core")
    parser.add_argument("--shards", type=positive, help="ours: of a batch (default: one a core)")
    parser.add_argument("--cpu-time", action="store_true",
                        help="images per second of CPU time, for a busy machine; with one CPU: threads that wait may spin")
    parser.add_argument("--tf32", action="store_true", help="cuda: PyTorch's float32 may use TF32")
    parser.add_argument("--bin", type=pathlib.Path, default=programs(), help="programs (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one object instead of the table")
    options = parser.parse_args(words)
    try:
        options.cpus = parse_cpus(options.cpus) if options.cpus else sorted(os.sched_getaffinity(0))
        options.model_options = model_options(options.set)
    except ValueError as error:
        parser.error(str(error))
    if options.device == "cpu" and "mixed_float16" in options.policies:
        parser.error("mixed_float16: PyTorch has no float16 training on a CPU to compare with")
    if options.cpu_time and (options.device != "cpu" or len(options.cpus) > 1):
        parser.error("--cpu-time: only on one CPU (--cpus 0), where no thread spins to wait for another")
    if options.cores is None:
        options.cores = len(options.cpus) if options.device == "cpu" else 1
    if options.shards is None:
        options.shards = options.cores
    return options


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def parse_cpus(text):
    """0,2-3 -> [0, 2, 3]"""
    cpus = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"--cpus {text}: '{part}' is not a CPU or a range; expected e.g. 0,2-3")
        cpus.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(cpus)


def model_options(sets):
    """['batch_norm=true', 'hidden=[512]'] -> {'batch_norm': True, 'hidden': [512]}"""
    options = {}
    for text in sets:
        key, equals, value = text.partition("=")
        try:
            options[key] = json.loads(value)
        except ValueError:
            equals = ""
        if not equals or not re.fullmatch(r"[a-z_]+", key):
            raise ValueError(f"--set {text}: expected an option of the model, e.g. batch_norm=true")
    return options


def contenders(options):
    """The specs of PyTorch's training loops: what differs between them, and a name."""
    found = []
    for policy in options.policies:
        precision = PRECISION_OF[policy]
        if options.device == "cuda":
            layout = LAYOUTS[options.model][-1]
            ways = [("eager", layout, False), ("compile", layout, True)]
        else:
            ways = [(layout, layout, False) for layout in LAYOUTS[options.model]]
        for name, layout, compiled in ways:
            found.append({"name": name, "policy": policy, "model": options.model, "options": options.model_options,
                          "batch": options.batch, "device": options.device, "precision": precision, "layout": layout,
                          "compile": compiled, "tf32": options.tf32, "threads": len(options.cpus)})
    return found


def pinned(options, command):
    return ["taskset", "-c", ",".join(map(str, options.cpus)), *map(str, command)]


class Ours:
    """The trainer of this repository: a process for each round."""

    name = "ours"

    def __init__(self, options, policy, data):
        self.policy, self.cpu_time = policy, options.cpu_time
        self.steps = ("--steps", options.steps, "--warm-up", options.warm_up)
        self.command = pinned(options, [
            options.bin / "train_speed", "--json", "--model", options.model, "--device", options.device,
            "--batch", options.batch, "--shards", options.shards, "--cores", options.cores, "--threads", options.threads,
            "--policy", policy, "--data", data, *self.steps])
        for key, value in options.model_options.items():
            self.command += ["--set", f"model.{key}={json.dumps(value)}"]
        self.rounds = []

    def start(self):
        return {"parameters": self.run()["parameters"], "notes": []}

    def run(self):
        done = subprocess.run(self.command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(last_line(done.stderr) or f"train_speed ended with {done.returncode}")
        return json.loads(done.stdout)

    def round(self):
        found = self.run()
        cpu = found["batch"] / found["step_cpu_seconds"]
        self.rounds.append(cpu if self.cpu_time else found["images_per_second"]["mean"])

    def stop(self):
        pass


class Theirs:
    """A training loop of PyTorch: a process that lives as long as the comparison."""

    def __init__(self, options, spec):
        self.name, self.policy, self.cpu_time = spec["name"], spec["policy"], options.cpu_time
        self.order = json.dumps({"warm_up": options.warm_up, "steps": options.steps})
        self.command = pinned(options, [sys.executable, ROOT / "bench/pytorch_training.py", json.dumps(spec)])
        self.environment = dict(os.environ, OMP_NUM_THREADS=str(len(options.cpus)), PYTHONDONTWRITEBYTECODE="1")
        self.process = None
        self.rounds = []

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=self.environment)
        return self.reply()

    def reply(self):
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"its process ended with {self.process.wait()}")
        value = json.loads(line)
        if "error" in value:
            raise Failure(value["error"])
        return value

    def round(self):
        print(self.order, file=self.process.stdin, flush=True)
        self.rounds.append(self.reply()["images_per_cpu_second" if self.cpu_time else "images_per_second"])

    def stop(self):
        if self.process is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(60)


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def check_same_model(facts):
    """`facts` by contender: all train a model of as many parameters."""
    counts = {name: fact["parameters"] for name, fact in facts.items()}
    if len(set(counts.values())) > 1:
        raise Failure(f"the models differ in their parameters: {counts}")


class Comparison:
    """All contenders, and what became of them. One of PyTorch's that fails is left out, and named."""

    def __init__(self, options, data):
        self.options = options
        self.teams = [Ours(options, policy, data) for policy in options.policies]
        self.teams += [Theirs(options, spec) for spec in contenders(options)]
        self.facts, self.failed = {}, {}

    def attempt(self, team, work):
        try:
            return work()
        except Failure as failure:
            label = f"{team.name} {team.policy}"
            if team.name == "ours":
                raise Failure(f"{label}: {failure}") from None
            self.failed[label] = str(failure)
            self.teams.remove(team)
            team.stop()
        if not any(isinstance(team, Theirs) for team in self.teams):
            reasons = [f"PyTorch {label}: {reason}" for label, reason in self.failed.items()]
            raise Failure("; ".join(reasons))
        return None

    def start(self):
        for team in list(self.teams):
            facts = self.attempt(team, team.start)
            if facts is not None:
                self.facts[f"{team.name} {team.policy}"] = facts
        check_same_model(self.facts)

    def run(self, say):
        for number in range(self.options.rounds):
            shift = number % len(self.teams)  # nobody is always first
            for team in self.teams[shift:] + self.teams[:shift]:
                self.attempt(team, team.round)
            newest = [f"{team.name} {team.policy} {team.rounds[-1]:.1f}" for team in self.teams]
            say(f"round {number + 1} of {self.options.rounds}: {', '.join(newest)}")

    def stop(self):
        for team in self.teams:
            team.stop()

    def speeds(self):
        """Each round's images/s by (policy, name)."""
        return {(team.policy, team.name): team.rounds for team in self.teams}

    def notes(self):
        found = [f"{label}: {note}" for label, facts in self.facts.items() for note in facts["notes"]]
        return found + [f"{label} failed: {reason}" for label, reason in self.failed.items()]

    def torch_version(self):
        return next(facts["torch"] for facts in self.facts.values() if "torch" in facts)


def rows_of(speeds, policies):
    """A row a policy: ours, theirs by name, and ours over the fastest of theirs; then the best of each."""
    medians = {key: statistics.median(rounds) for key, rounds in speeds.items()}
    rows = []
    for policy in policies:
        theirs = {name: value for (of, name), value in medians.items() if of == policy and name != "ours"}
        rows.append({"policy": policy, "ours": medians[policy, "ours"], "theirs": theirs})
    best = {}
    for row in rows:
        for name, value in row["theirs"].items():
            best[name] = max(value, best.get(name, 0))
    if len(rows) > 1:
        rows.append({"policy": "best", "ours": max(row["ours"] for row in rows), "theirs": best})
    for row in rows:
        row["ratio"] = row["ours"] / max(row["theirs"].values()) if row["theirs"] else None
    return rows


def table(rows, speeds, unit="images/s"):
    """Markdown; `unit` with the lowest and highest round in brackets."""
    names = list(dict.fromkeys(name for row in rows for name in row["theirs"]))

    def cell(policy, name, value):
        rounds = speeds.get((policy, name))
        return f"{value:.1f}" + (f" ({min(rounds):.1f} to {max(rounds):.1f})" if rounds else "")

    lines = [f"| {unit} | ours | " + " | ".join(f"PyTorch {name}" for name in names) + " | ours / the faster of theirs |",
             "|---|" + "---|" * (len(names) + 2)]
    for row in rows:
        cells = [cell(row["policy"], "ours", row["ours"])]
        cells += [cell(row["policy"], name, row["theirs"][name]) if name in row["theirs"] else "" for name in names]
        cells.append("" if row["ratio"] is None else f"{row['ratio']:.2f}")
        lines.append(f"| {row['policy']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def machine(options):
    """What the figures were seen on, in words."""
    words = [f"{options.device}, CPUs {','.join(map(str, options.cpus))} of {os.cpu_count()}"]
    with contextlib.suppress(OSError):
        names = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
        words.append(names[0] if names else platform.machine())
    blas = pathlib.Path("/usr/lib", f"{platform.machine()}-linux-gnu", "libblas.so.3")
    if options.device == "cpu" and blas.exists():
        words.append(f"libblas.so.3 is {blas.resolve()}")
    return "; ".join(words)


def check_programs(options):
    if importlib.util.find_spec("torch") is None:
        raise Failure(f"{sys.executable} has no PyTorch: install Debian's python3-torch (a CPU), or torch 2 or newer "
                      "built for CUDA (pip install torch), or run this with an interpreter that has it")
    if not (options.bin / "train_speed").exists():
        raise Failure(f"{options.bin / 'train_speed'} is not built: cmake --preset release && "
                      "cmake --build --preset release --target bench")


def print_report(options, comparison, load):
    speeds = comparison.speeds()
    rows = rows_of(speeds, options.policies)
    if options.json:
        rounds = {f"{policy} {name}": found for (policy, name), found in speeds.items()}
        print(json.dumps({"model": options.model, "options": options.model_options, "batch": options.batch,
                          "machine": machine(options), "torch": comparison.torch_version(), "load_before": load,
                          "cpu_time": options.cpu_time,
                          "rows": rows, "rounds": rounds, "notes": comparison.notes()}))
        return
    name = " ".join([options.model, *options.set])
    print(f"{name}, batch {options.batch}, ours in {options.shards} shards on {options.cores} x {options.threads} threads; "
          f"PyTorch {comparison.torch_version()}; medians of {options.rounds} rounds of {options.steps} steps")
    print(f"{machine(options)}; load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
    print(table(rows, speeds, "images per CPU second" if options.cpu_time else "images/s"))
    for note in comparison.notes():
        print(note)


def main():
    options = arguments()
    check_programs(options)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="ringmaster-bench-") as folder:
        comparison = Comparison(options, pathlib.Path(folder, "cifar10"))
        try:
            comparison.start()
            comparison.run(lambda text: print(text, file=sys.stderr, flush=True))
        finally:
            comparison.stop()
    print_report(options, comparison, load)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"vs_pytorch: {failure}")
