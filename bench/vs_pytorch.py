#!/usr/bin/python3
"""Training speed against PyTorch's: the same net, batch and cores, side by side in one run.

    bench/vs_pytorch.py --model alexnet --set batch_norm=true --batch 64
    bench/vs_pytorch.py --suite one-core --only resnet50
    bench/vs_pytorch.py --workers 2 --model mlp --batch 512
    bench/vs_pytorch.py --device cuda --batch 4096 --steps 100

It knows every model of the zoo: PyTorch's are in torch_models.py. Each contender (contenders.py) trains
some steps in turn, round after round, so that whatever else the machine does meets all of them; a figure
is the median of its rounds. On a CPU PyTorch runs in NCHW and channels_last, in float32 and under
torch.cpu.amp in bfloat16, with the quickest of OpenBLAS' kernels; on a GPU with channels_last, eager and
compiled (max-autotune where it works), with AMP for the mixed policies. Everything runs on the CPUs of
--cpus (taskset), PyTorch with a thread on each, ours with a core on each unless --cores says otherwise.
Ours goes through the real trainer, which reads its samples from files, converts them and sums exactly;
PyTorch's batches lie in memory, on a GPU in the GPU's.
On a CPU `oneDNN layers` is a bound: the net's convolutions and products alone (training/layer_bound.cc).

--workers N: a cluster of N workers of one core against DistributedDataParallel of N ranks over gloo,
both on loopback, a CPU each; --batch is that of all together. What communication costs to see is a
step's time less that of one worker, or rank, alone with its part of the batch and of the shards.

--suite: the nets of a list one after the other, each with its table as soon as it is measured, and a
table of all at the end. Other options change all of them; --only takes some.

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
import sys
import tempfile

from contenders import BOUND, IMAGE, OURS, ROOT, Bound, Failure, Ours, OursOnWorkers, Theirs, Workers, cpu_flags, quickest_blas

PRECISION_OF = {"float32": "float32", "mixed_bfloat16": "bfloat16", "mixed_float16": "float16"}
# The zoo's.
MODELS = ("alexnet", "efficientnetb0", "efficientnetb1", "efficientnetb2", "efficientnetb3", "efficientnetb4",
          "efficientnetb5", "inceptionv3", "linear", "mlp", "mobilenet", "mobilenetv2", "nasnetlarge", "nasnetmobile",
          "resnet18", "resnet20", "resnet50", "resnet50gn", "resnet50v1.5", "vgg", "vgg16", "vgg19")
FLAT = ("linear", "mlp")  # images have no layout there
# For nets that want more than IMAGE.
LARGER_IMAGES = {"inceptionv3": (75, 75), "nasnetlarge": (96, 96), "nasnetmobile": (96, 96)}
# The nets of a suite as options, with steps that keep each under three minutes.
ONE_CORE = ("--model alexnet --batch 128 --steps 2 --warm-up 1",
            "--model vgg16 --batch 64 --steps 2 --warm-up 1",
            "--model resnet50 --image 64x64 --batch 16 --steps 4",
            "--model mobilenet --image 96x96 --batch 32 --steps 4",
            "--model efficientnetb0 --image 96x96 --batch 16 --steps 4",
            "--model mlp --batch 256 --steps 15",
            "--model resnet20 --batch 128 --steps 4")
TWO_WORKERS = ("--model alexnet --batch 256 --steps 2 --warm-up 1",
               "--model vgg16 --batch 128 --steps 2 --warm-up 1",
               "--model resnet50 --image 64x64 --batch 32 --steps 4",
               "--model mobilenet --image 96x96 --batch 64 --steps 4",
               "--model efficientnetb0 --image 96x96 --batch 32 --steps 4",
               "--model mlp --batch 512 --steps 10",
               "--model resnet20 --batch 256 --steps 4")
SUITES = {"one-core": ("--rounds 3", ONE_CORE),
          "two-workers": ("--rounds 3 --workers 2 --policies float32", TWO_WORKERS)}


def programs():
    """A bundle has them in bin, a tree in its release build."""
    bundled = ROOT / "bin"
    return bundled if bundled.is_dir() else ROOT / "build/release/bin"


def make_parser():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="alexnet")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                        help="option of the model: batch_norm=true")
    parser.add_argument("--image", type=image_size, metavar="HxW",
                        help="size of the images (default: 32x32; 75x75 for inceptionv3, 96x96 for NASNets)")
    parser.add_argument("--batch", type=positive, default=64)
    parser.add_argument("--suite", choices=sorted(SUITES))
    parser.add_argument("--only", nargs="+", default=[], metavar="MODEL", help="of the suite")
    parser.add_argument("--workers", type=positive, default=1)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--policies", nargs="+", choices=sorted(PRECISION_OF),
                        help="default: float32, and mixed_bfloat16 where a CPU computes in it")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--steps", type=positive, default=10, help="of a round")
    parser.add_argument("--warm-up", type=positive, default=2, help="steps before them, in each round")
    parser.add_argument("--cpus", default="", metavar="LIST",
                        help="e.g. 0,2-3 (default: all that this process may use; with --workers one each)")
    parser.add_argument("--cores", type=positive, help="ours: shards side by side (default: one a CPU, on a GPU 1)")
    parser.add_argument("--threads", type=positive, default=1, help="ours: of each core")
    parser.add_argument("--shards", type=positive, nargs="+",
                        help="ours: of a batch; several numbers with --workers (default: one a core; 1 and 4 a worker)")
    parser.add_argument("--cpu-time", action="store_true",
                        help="images per second of CPU time, for a busy machine; only on one CPU")
    parser.add_argument("--tf32", action="store_true", help="cuda: PyTorch's float32 may use TF32")
    parser.add_argument("--quick-compile", action="store_true",
                        help="cuda: torch.compile by default, not max-autotune, which tries kernels for minutes")
    parser.add_argument("--bin", type=pathlib.Path, default=programs(), help="programs (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one object a net instead of its table")
    return parser


def arguments(words=None):
    parser = make_parser()
    options = parser.parse_args(words)
    every_cpu = sorted(os.sched_getaffinity(0))
    try:
        options.cpus = parse_cpus(options.cpus) if options.cpus else None
        options.model_options = model_options(options.set)
    except ValueError as error:
        parser.error(str(error))
    options.image = options.image or LARGER_IMAGES.get(options.model, IMAGE)
    if options.policies is None:
        options.policies = ["float32"]
        if options.device == "cuda" or {"avx512_bf16", "amx_bf16"} & set(cpu_flags()):
            options.policies.append("mixed_bfloat16")
    if options.workers > 1:
        options.cpus = options.cpus or every_cpu[:options.workers]
        if options.device != "cpu" or len(options.cpus) != options.workers or options.batch % options.workers:
            parser.error(f"--workers {options.workers}: on a CPU, with as many CPUs, and a batch that they divide")
    if options.suite == "one-core":
        options.cpus = options.cpus or every_cpu[:1]
    options.cpus = options.cpus or every_cpu
    if options.device == "cpu" and "mixed_float16" in options.policies:
        parser.error("mixed_float16: PyTorch has no float16 training on a CPU to compare with")
    if options.cpu_time and (options.device != "cpu" or len(options.cpus) > 1):
        parser.error("--cpu-time: only on one CPU (--cpus 0), where no thread spins to wait for another")
    if options.cores is None:
        options.cores = len(options.cpus) if options.device == "cpu" else 1
    if options.shards is None:
        options.shards = [options.workers, 4 * options.workers] if options.workers > 1 else [options.cores]
    if options.workers == 1 and len(options.shards) > 1:
        parser.error("--shards: several numbers only with --workers")
    if any(shards % options.workers for shards in options.shards):
        parser.error(f"--shards: {options.workers} workers must divide them")
    return options


def nets_of(words):
    """The options of each net that the command line `words` asks for."""
    options = arguments(words)
    if options.suite is None:
        return [options]
    every, nets = SUITES[options.suite]
    found = [arguments([*every.split(), *net.split(), *words]) for net in nets]
    found = [net for net in found if not options.only or net.model in options.only]
    if not found:
        raise Failure(f"--only {' '.join(options.only)}: suite {options.suite} has none of them")
    return found


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def image_size(text):
    """64x96 -> (64, 96), 64 -> (64, 64)"""
    match = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size: expected e.g. 64x64")
    return int(match[1]), int(match[2] or match[1])


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


def layouts_of(model):
    return ("nchw",) if model in FLAT else ("nchw", "channels_last")


def specs_of(options, policy):
    """The specs of PyTorch's training loops by name: what differs between them."""
    if options.device == "cuda":
        layout = layouts_of(options.model)[-1]
        ways = [("eager", layout, False), ("compile", layout, True)]
    else:
        ways = [(layout, layout, False) for layout in layouts_of(options.model)]
    return {name: {"policy": policy, "model": options.model, "options": options.model_options,
                   "image": [*options.image, 3], "batch": options.batch, "device": options.device,
                   "precision": PRECISION_OF[policy], "layout": layout, "compile": compiled, "tf32": options.tf32,
                   "modes": (None,) if options.quick_compile else ("max-autotune", None)}
            for name, layout, compiled in ways}


ALONE = ", alone"  # one worker or rank with its part


def on_one_host(options, folder):
    found = []
    for policy in options.policies:
        found.append(Ours(options, policy, pathlib.Path(folder, "cifar10")))
        if options.device == "cpu":
            found.append(Bound(options, policy))
        found += [Theirs(name, options, spec, [options.cpus]) for name, spec in specs_of(options, policy).items()]
    return found


def on_workers(options, workers):
    found = []
    part = options.batch // options.workers
    for policy in options.policies:
        for shards in options.shards:
            name = f"{OURS}, {shards} shards"
            found.append(OursOnWorkers(name, options, policy, workers, options.workers, options.batch, shards))
            found.append(OursOnWorkers(name + ALONE, options, policy, workers, 1, part, shards // options.workers))
        for layout, spec in specs_of(options, policy).items():
            spec = {**spec, "batch": part}
            found.append(Theirs(f"DDP {layout}", options, spec, [[cpu] for cpu in options.cpus]))
            found.append(Theirs(f"DDP {layout}{ALONE}", options, spec, [options.cpus[:1]]))
    return found


def check_same_model(facts):
    """`facts` by contender: all train a model of as many parameters."""
    counts = {name: fact["parameters"] for name, fact in facts.items() if "parameters" in fact}
    if len(set(counts.values())) > 1:
        raise Failure(f"the models differ in their parameters: {counts}")


class Comparison:
    """All contenders, and what became of them. One of PyTorch's that fails, or the bound, is left out and named."""

    def __init__(self, options, teams):
        self.options, self.teams = options, teams
        self.facts, self.failed = {}, {}

    def attempt(self, team, work):
        try:
            return work()
        except Failure as failure:
            label = f"{team.name} {team.policy}"
            if team.name.startswith(OURS):
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


def medians_of(speeds):
    return {key: statistics.median(rounds) for key, rounds in speeds.items()}


def rows_of(speeds, policies):
    """A row a policy: ours, the bound, theirs by name, ours over the fastest of theirs and over the bound; then
    the best of each."""
    medians = medians_of(speeds)
    rows = []
    for policy in policies:
        theirs = {name: value for (of, name), value in medians.items() if of == policy and name not in (OURS, BOUND)}
        rows.append({"policy": policy, "ours": medians[policy, OURS], "bound": medians.get((policy, BOUND)),
                     "theirs": theirs})
    best = {}
    for row in rows:
        for name, value in row["theirs"].items():
            best[name] = max(value, best.get(name, 0))
    if len(rows) > 1:
        bounds = [row["bound"] for row in rows if row["bound"]]
        rows.append({"policy": "best", "ours": max(row["ours"] for row in rows), "bound": max(bounds, default=None),
                     "theirs": best})
    for row in rows:
        row["ratio"] = row["ours"] / max(row["theirs"].values()) if row["theirs"] else None
        row["of_bound"] = row["ours"] / row["bound"] if row["bound"] else None
    return rows


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def ratio_cell(value):
    return "" if value is None else f"{value:.2f}"


def speed_cell(value, rounds):
    """With the lowest and highest round in brackets."""
    if value is None:
        return ""
    return f"{value:.1f}" + (f" ({min(rounds):.1f} to {max(rounds):.1f})" if rounds else "")


def table(rows, speeds, unit="images/s"):
    """Markdown: each policy's speeds and ratios."""
    names = list(dict.fromkeys(name for row in rows for name in row["theirs"]))
    bound = any(row["bound"] for row in rows)
    head = [unit, OURS, *[f"PyTorch {name}" for name in names], *([BOUND] if bound else []),
            "ours / the faster of theirs", *(["ours / bound"] if bound else [])]
    lines = []
    for row in rows:
        def cell(name, value):
            return speed_cell(value, speeds.get((row["policy"], name)))
        cells = [row["policy"], cell(OURS, row["ours"]), *[cell(name, row["theirs"].get(name)) for name in names]]
        lines.append(cells + ([cell(BOUND, row["bound"])] if bound else []) + [ratio_cell(row["ratio"])] +
                     ([ratio_cell(row["of_bound"])] if bound else []))
    return markdown(head, lines)


def worker_rows(speeds, policies, batch, workers):
    """A row for each contender on several workers: its speed, seconds of a step together and alone, what of it
    is communication, and ours over the fastest of theirs."""
    medians = medians_of(speeds)
    rows = []
    for policy in policies:
        together = {name: value for (of, name), value in medians.items() if of == policy and not name.endswith(ALONE)}
        theirs = [value for name, value in together.items() if not name.startswith(OURS)]
        for name, value in together.items():
            alone = medians.get((policy, name + ALONE))
            row = {"policy": policy, "name": name, "speed": value, "step": batch / value,
                   "alone": batch / workers / alone if alone else None,
                   "ratio": value / max(theirs) if theirs and name.startswith(OURS) else None}
            row["visible"] = row["step"] - row["alone"] if alone else None
            rows.append(row)
    return rows


def milliseconds_cell(seconds):
    return "" if seconds is None else f"{1e3 * seconds:.1f}"


def worker_table(rows, speeds):
    return markdown(
        ["policy", "who", "images/s", "ms a step", "alone with its part", "visible communication",
         "ours / the faster DDP"],
        [[row["policy"], row["name"], speed_cell(row["speed"], speeds.get((row["policy"], row["name"]))),
          milliseconds_cell(row["step"]), milliseconds_cell(row["alone"]), milliseconds_cell(row["visible"]),
          ratio_cell(row["ratio"])]
         for row in rows])


def machine(options):
    """What the figures were seen on, in words."""
    words = [f"{options.device}, CPUs {','.join(map(str, options.cpus))} of {os.cpu_count()}"]
    with contextlib.suppress(OSError):
        names = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
        words.append(names[0] if names else platform.machine())
    blas = pathlib.Path("/usr/lib", f"{platform.machine()}-linux-gnu", "libblas.so.3")
    if options.device == "cpu" and blas.exists():
        kernels = quickest_blas(options.cpus[0]) or "its own choice"
        words.append(f"libblas.so.3 is {blas.resolve()}, OPENBLAS_CORETYPE {kernels}")
    return "; ".join(words)


def check_programs(options):
    if importlib.util.find_spec("torch") is None:
        raise Failure(f"{sys.executable} has no PyTorch: install Debian's python3-torch (a CPU), or torch 2 or newer "
                      "built for CUDA (pip install torch), or run this with an interpreter that has it")
    needed = {"train_speed": "bench"}
    if options.workers > 1:
        needed = dict.fromkeys(("ringmaster", "ringworker", "ringctl"), "programs")
    elif options.device == "cpu":
        needed["layer_bound"] = "bench"
    for program, target in needed.items():
        if not (options.bin / program).exists():
            raise Failure(f"{options.bin / program} is not built: cmake --preset release && "
                          f"cmake --build --preset release --target {target}")


def label_of(options):
    size = "" if options.image == IMAGE else f" {options.image[0]}x{options.image[1]}"
    return f"{' '.join([options.model, *options.set])}{size}, batch {options.batch}"


def print_report(options, comparison, rows, load):
    speeds = comparison.speeds()
    if options.json:
        rounds = {f"{policy} {name}": found for (policy, name), found in speeds.items()}
        print(json.dumps({"model": options.model, "options": options.model_options, "image": options.image,
                          "batch": options.batch, "workers": options.workers, "machine": machine(options),
                          "torch": comparison.torch_version(), "load_before": load, "cpu_time": options.cpu_time,
                          "rows": rows, "rounds": rounds, "notes": comparison.notes()}), flush=True)
        return
    ours = (f"{options.workers} workers of one core" if options.workers > 1 else
            f"ours in {options.shards[0]} shards on {options.cores} x {options.threads} threads")
    print(f"{label_of(options)}, {ours}; PyTorch {comparison.torch_version()}; medians of {options.rounds} rounds of "
          f"{options.steps} steps")
    print(f"{machine(options)}; load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
    if options.workers > 1:
        print(worker_table(rows, speeds))
    else:
        print(table(rows, speeds, "images per CPU second" if options.cpu_time else "images/s"))
    for note in comparison.notes():
        print(note)
    sys.stdout.flush()


def compare(options):
    """Measures one net and prints it; its rows."""
    check_programs(options)
    load = os.getloadavg()[0]
    with contextlib.ExitStack() as stack:
        if options.workers > 1:
            workers = Workers(options)
            stack.callback(workers.stop)
            teams = on_workers(options, workers)
        else:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ringmaster-bench-"))
            teams = on_one_host(options, folder)
        comparison = Comparison(options, teams)
        stack.callback(comparison.stop)
        comparison.start()
        comparison.run(lambda text: print(text, file=sys.stderr, flush=True))
    speeds = comparison.speeds()
    rows = (worker_rows(speeds, options.policies, options.batch, options.workers) if options.workers > 1 else
            rows_of(speeds, options.policies))
    print_report(options, comparison, rows, load)
    return rows


def suite_table(measured):
    """All nets in one table; `measured`: (options, rows) of each."""
    if measured[0][0].workers > 1:
        return markdown(["net", "policy, who", "images/s", "ours / the faster DDP", "visible communication ms"],
                        [[label_of(options), f"{row['policy']} {row['name']}", f"{row['speed']:.1f}",
                          ratio_cell(row["ratio"]), milliseconds_cell(row["visible"])]
                         for options, rows in measured for row in rows])
    return markdown(["net", "policy", OURS, "the faster of PyTorch's", BOUND, "ours / PyTorch", "ours / bound"],
                    [[label_of(options), row["policy"], f"{row['ours']:.1f}", f"{max(row['theirs'].values()):.1f}",
                      speed_cell(row["bound"], None), ratio_cell(row["ratio"]), ratio_cell(row["of_bound"])]
                     for options, rows in measured for row in rows if row["policy"] != "best" and row["theirs"]])


def main():
    nets = nets_of(sys.argv[1:])
    measured = []
    for options in nets:
        measured.append((options, compare(options)))
    if nets[0].suite and not nets[0].json:
        print(suite_table(measured))


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"vs_pytorch: {failure}")
