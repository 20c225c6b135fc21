#!/usr/bin/python3
"""One PyTorch training loop, driven by vs_pytorch.py: an order a line on stdin, a reply a line.

    pytorch_training.py '{"model": "alexnet", "options": {}, "batch": 64, "device": "cpu", ...}'

Says what it is once its first step is done; an order {"warm_up": 2, "steps": 10} is answered with
the images/s of these steps, and the images per second of CPU time of this process. Batches lie in memory in the
layout of the contender, on a GPU in the GPU's own: nothing is read, converted or copied while it is timed.
With {"ring": {"rank": 0, "size": 2, "file": ...}} it is one rank of DistributedDataParallel over gloo, and
batch and images/s are its own.
"""

import datetime
import json
import os
import sys
import time

BATCHES = 4  # kept in memory, taken in turn


class Training:
    """Model, data and optimizer of one contender."""

    def __init__(self, spec):
        import torch
        import torch_models

        self.torch = torch
        self.spec = spec
        self.device = spec["device"]
        self.notes = []
        self.check()
        torch.manual_seed(1)
        if spec.get("threads"):
            torch.set_num_threads(spec["threads"])
        if self.device == "cuda":
            torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = bool(spec.get("tf32"))
        self.format = {"nchw": torch.contiguous_format, "channels_last": torch.channels_last}[spec["layout"]]
        image = tuple(spec.get("image", (32, 32, 3)))
        model = torch_models.build(spec["model"], image=image, **spec["options"])
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.model = model.to(self.device).to(memory_format=self.format).train()
        if "ring" in spec:
            self.model = self.distribute(spec["ring"])
        self.images = [self.make_images(image) for _ in range(BATCHES)]
        self.labels = [torch.randint(0, 10, (spec["batch"],), device=self.device) for _ in range(BATCHES)]
        self.optimizer = self.make_optimizer()
        self.scaler = self.make_scaler()
        self.next = 0
        self.first_step()

    def check(self):
        torch, version = self.torch, self.torch.__version__
        if self.device != "cuda":
            return
        if not torch.cuda.is_available():
            raise RuntimeError(f"PyTorch {version} sees no GPU: install one that is built for CUDA (pip install torch)")
        if int(version.split(".")[0]) < 2:
            raise RuntimeError(f"PyTorch {version} has no torch.compile: 2 or newer is needed (pip install torch)")

    def distribute(self, ring):
        """The model as DistributedDataParallel with its usual buckets; gradients stay in them."""
        torch = self.torch
        torch.distributed.init_process_group("gloo", init_method=f"file://{ring['file']}", rank=ring["rank"],
                                             world_size=ring["size"], timeout=datetime.timedelta(minutes=2))
        return torch.nn.parallel.DistributedDataParallel(self.model, gradient_as_bucket_view=True)

    def make_images(self, image):
        height, width, channels = image
        images = self.torch.rand(self.spec["batch"], channels, height, width, device=self.device)
        return images.contiguous(memory_format=self.format)

    def make_optimizer(self):
        sgd = self.torch.optim.SGD
        options = {"lr": 0.01, "momentum": 0.9}
        if self.device == "cuda":
            try:
                return sgd(self.model.parameters(), fused=True, **options)
            except (TypeError, RuntimeError):
                self.notes.append("SGD is not fused in this version: foreach")
                return sgd(self.model.parameters(), foreach=True, **options)
        return self.quicker([sgd(self.model.parameters(), foreach=foreach, **options) for foreach in (False, True)])

    def quicker(self, optimizers):
        """Of these two, by the best of some updates with gradients of zero."""
        for parameter in self.model.parameters():
            parameter.grad = self.torch.zeros_like(parameter)
        best = [min(seconds_of(optimizer.step) for _ in range(5)) for optimizer in optimizers]
        chosen = best.index(min(best))
        for optimizer in optimizers:
            optimizer.state.clear()
        optimizers[0].zero_grad(set_to_none=True)
        self.notes.append(f"SGD with foreach={bool(chosen)}: an update of {1e3 * best[chosen]:.2f} ms, else "
                          f"{1e3 * best[1 - chosen]:.2f}")
        return optimizers[chosen]

    def make_scaler(self):
        if self.spec["precision"] != "float16":
            return None
        return self.torch.cuda.amp.GradScaler()

    def make_loss(self):
        torch, model, device = self.torch, self.model, self.device
        dtype = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}[self.spec["precision"]]

        def loss(images, labels):
            with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
                logits = model(images)
            return torch.nn.functional.cross_entropy(logits.float(), labels)

        return loss

    def first_step(self):
        """Also compiles; what works best comes first."""
        plain = self.make_loss()
        self.loss_of = plain
        if not self.spec.get("compile"):
            self.step()
            return
        for mode in self.spec.get("modes", ("max-autotune", None)):
            try:
                self.loss_of = self.torch.compile(plain, mode=mode)
                self.step()
                self.step()
                self.notes.append(f"torch.compile mode: {mode or 'default'}")
                return
            except Exception as error:  # whatever its compiler throws
                self.notes.append(f"torch.compile mode {mode or 'default'} failed: {first_line(error)}")
        raise RuntimeError("; ".join(self.notes))

    def step(self):
        self.next = (self.next + 1) % BATCHES
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss_of(self.images[self.next], self.labels[self.next])
        if self.scaler is None:
            loss.backward()
            self.optimizer.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()

    def synchronize(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def round(self, warm_up, steps):
        for _ in range(warm_up):
            self.step()
        self.synchronize()
        begin, cpu_begin = time.perf_counter(), time.process_time()
        for _ in range(steps):
            self.step()
        self.synchronize()
        seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
        if self.device == "cuda":
            self.torch.cuda.empty_cache()  # the others need room
        images = steps * self.spec["batch"]
        return {"images_per_second": images / seconds, "images_per_cpu_second": images / cpu_seconds}

    def facts(self):
        return {"torch": self.torch.__version__, "parameters": self.parameters, "notes": self.notes}


def seconds_of(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def first_line(error):
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def main():
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints

    def reply(value):
        print(json.dumps(value), file=replies, flush=True)

    try:
        training = Training(json.loads(sys.argv[1]))
        reply(training.facts())
        for line in sys.stdin:
            order = json.loads(line)
            reply(training.round(order["warm_up"], order["steps"]))
    except Exception as error:  # the reader of the replies says it, beside the contender's name
        reply({"error": first_line(error)})


if __name__ == "__main__":
    main()
