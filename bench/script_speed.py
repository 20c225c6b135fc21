#!/usr/bin/python3
"""A script of the user's in two processes, beside its own model in DistributedDataParallel over gloo.

usage: bench/script_speed.py [--script gpt|resnet] [--rounds N] [--steps N] [--shards V] [--exact-sum] [--device cuda]
                             the programs: RINGMASTER_BIN, or build/release/bin

Both train what examples/python/SCRIPT.py makes of its arguments, with batch and optimizer as they stand there; what is
in front of its attach is run for DDP as it is. Rounds of N steps, in turn: DDP's two processes, a job on one worker of
two cores, as a host has it, and a job on two workers of one core, which have a ring between them; whoever's turn it is
not stands still. The first quarter of each round does not count. Printed: the median step of each in ms over all
rounds, and the ratios; one shard for each process unless --shards says otherwise, as DDP has one piece of the batch
for each. --exact-sum: DDP with ringmaster.torch.ddp_hook, too. --device cuda: DDP alone, over NCCL on two GPUs, with
the hook and without it; the interpreter that runs this has a PyTorch for them.
"""
import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import types

ROOT = pathlib.Path(__file__).resolve().parents[1]
ARGUMENTS = {  # 10.7 million parameters; 1.2 million
    "gpt": ["--layers=6", "--heads=6", "--width=384", "--context=128", "--batch=8"],
    "resnet": ["--width=64", "--batch=32", "--pictures=640"],
}
ATTACH = "\njob = ringmaster.torch.attach("


# ---- one process of DistributedDataParallel -------------------------------------------------------


def front_of(script, arguments):
    """What a script has made when it comes to its attach."""
    text = (ROOT / "examples/python" / f"{script}.py").read_text()
    sys.argv = [script, *arguments]
    sys.modules["ringmaster"] = types.ModuleType("ringmaster")
    sys.modules["ringmaster.torch"] = types.ModuleType("ringmaster.torch")
    names = {"__name__": "__main__"}
    exec(compile(text[:text.index(ATTACH)], script, "exec"), names)
    return names


def batches_of(names, rank):
    """x, y for ever: this process' half of each batch."""
    import torch
    half = names["options"].batch // 2
    torch.manual_seed(rank)
    while "get_batch" in names:
        yield names["get_batch"](half)
    while True:
        yield from torch.utils.data.DataLoader(names["train"], batch_size=half, shuffle=True, drop_last=True)


def train_by_orders(script, rank, store, exact_sum, on_gpu):
    """Trains so many steps as each line of stdin says, and prints the seconds of each step as JSON."""
    import torch
    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl" if on_gpu else "gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    if exact_sum:
        sys.path.insert(0, str(ROOT / "python"))
        from ringmaster.torch import ddp
    names = front_of(script, ARGUMENTS[script])
    distributed = torch.nn.parallel.DistributedDataParallel
    masks = [name for name, buffer in names["model"].named_buffers() if buffer.dtype == torch.bool]
    distributed._set_params_and_buffers_to_ignore_for_model(names["model"], masks)  # gloo has no bool
    model = distributed(names["model"].to(device), gradient_as_bucket_view=True)
    if exact_sum:
        model.register_comm_hook(ddp.ExactSum(model), ddp.ddp_hook)
    optimizer, batches = names["optimizer"], batches_of(names, rank)
    print("ready", flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            begin = time.monotonic()
            x, y = (each.to(device) for each in next(batches))
            with device if on_gpu else contextlib.nullcontext():  # of tensors that the script makes in its forward
                loss = model(x, y) if script == "gpt" else torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if script == "gpt":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if on_gpu:
                torch.cuda.synchronize()
            seconds.append(time.monotonic() - begin)
        print(json.dumps(seconds), flush=True)


class Ddp:
    """Its two processes."""

    def __init__(self, options, folder, exact_sum=False):
        self.name = "DDP + exact sum" if exact_sum else "DDP + nccl" if options.device == "cuda" else "DDP + gloo"
        command = [sys.executable, __file__, "--script", options.script, "--device", options.device,
                   "--store", str(folder / self.name), *["--exact-sum"] * exact_sum]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.processes = [subprocess.Popen([*command, "--rank", str(rank)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                           text=True, env=environment) for rank in range(2)]
        for process in self.processes:
            if process.stdout.readline() != "ready\n":
                raise SystemExit("bench/script_speed.py: DistributedDataParallel did not start")

    def round(self, steps):
        for process in self.processes:
            process.stdin.write(f"{steps}\n")
            process.stdin.flush()
        return [json.loads(process.stdout.readline()) for process in self.processes][0]

    def end(self, failed):
        for process in self.processes:
            if failed:
                process.kill()
            process.stdin.close()
        for process in self.processes:
            process.wait(30)


# ---- a cluster --------------------------------------------------------------------------------------


class Ours:
    """Two processes of the script: of one worker, or of two."""

    def __init__(self, options, workers, folder):
        import step_times  # noqa: I001  it says where the modules of tests are
        import cluster
        self.steps_of = step_times.steps_of
        self.cluster = cluster.Cluster()
        self.options, self.workers, self.folder = options, workers, folder
        self.name = f"{workers} worker" + "s" * (workers > 1)
        self.cluster.start_coordinator()
        started = [self.cluster.start_worker(name, cores=2 // workers) for name in "ab"[:workers]]
        self.witness = started[0]
        script = f"{options.script}.py"
        (folder / script).write_text((ROOT / "examples/python" / script).read_text())

    def round(self, steps):
        script = self.options.script
        spec = {"name": f"speed-{script}", "shards": self.options.shards, "steps": steps,
                "workers": {"min": self.workers, "max": self.workers}, "checkpoint": {"every_steps": 10 ** 6, "keep": 1},
                "script": {"file": f"{script}.py", "args": ARGUMENTS[script]}}
        path = self.folder / "job.yaml"
        path.write_text(json.dumps(spec))
        before = len(self.steps_of(self.witness))
        status = self.cluster.wait(self.cluster.json("submit", path)["job_id"], 1200)
        if status["state"] != "SUCCEEDED":
            raise SystemExit(f"bench/script_speed.py: the job is {status['state']}: {status['reason']}")
        moments = [moment for moment, _ in self.steps_of(self.witness)[before:]]
        return [behind - at for at, behind in zip(moments, moments[1:])]

    def end(self, failed):
        try:
            if not failed:
                self.cluster.stop()
        finally:
            self.cluster.destroy(failed)


def compare(options):
    with tempfile.TemporaryDirectory(prefix="ringmaster-bench-") as name, contextlib.ExitStack() as ends:
        folder, failed = pathlib.Path(name), True
        makers = [lambda: Ddp(options, folder)]
        if options.device == "cpu":
            makers += [lambda: Ours(options, 1, folder), lambda: Ours(options, 2, folder)]
        if options.exact_sum or options.device == "cuda":
            makers.append(lambda: Ddp(options, folder, True))
        contenders = []
        for make in makers:
            contenders.append(make())
            ends.callback(lambda contender=contenders[-1]: contender.end(failed))
        seconds = {contender.name: [] for contender in contenders}
        for number in range(options.rounds):
            for contender in contenders:
                counted = contender.round(options.steps)[options.steps // 4:]
                seconds[contender.name] += counted
                print(f"round {number}: {contender.name} {1000 * statistics.median(counted):.0f} ms", flush=True)
        failed = False
    (name, theirs), *others = ((name, statistics.median(each)) for name, each in seconds.items())
    print(f"{options.script}, {options.shards} shards: {name} {1000 * theirs:.1f} ms a step; " +
          ", ".join(f"{name} {1000 * own:.1f} ms: {own / theirs:.2f}" for name, own in others))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--script", choices=sorted(ARGUMENTS), default="gpt")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--exact-sum", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is not None:
        train_by_orders(options.script, options.rank, options.store, options.exact_sum, options.device == "cuda")
    else:
        compare(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
