#!/usr/bin/python3
"""What attach says of a script: its optimizer, rates and options; and what it refuses, with what to do instead."""
import sys
import unittest
import warnings

sys.dont_write_bytecode = True

import fake_worker
import torch
from torch.optim import lr_scheduler  # noqa: F401, of what is evaluated

SCRIPT = """
import torch
from torch import nn
from torch.optim import lr_scheduler
import ringmaster.torch
torch.manual_seed(3)
model = {model}
{before}
optimizer = {optimizer}
{behind}
job = ringmaster.torch.attach(model, optimizer, {options})
for shard in job.shards():
    {loop}
    shard.backward(model(torch.ones(shard.rows, 2)).mean())
"""


def script(model="nn.Linear(2, 2)", before="", optimizer="torch.optim.SGD(model.parameters(), lr=0.5)", behind="", options="batch=8",
           loop="pass"):
    return SCRIPT.format(**locals())


# A host whose OpenBLAS takes these kernels, on a CPU with these flags.
ON_A_HOST = """
from ringmaster.torch import determinism
determinism._loaded = lambda: {{"blas": "", "blas_core": {!r}}}
determinism._cpu_flags = lambda: {!r}.split()
import os
del os.environ["OPENBLAS_CORETYPE"]
os.environ.update({!r})
"""


class Kernels(fake_worker.ScriptTest):
    def said(self, core_type, flags, environment=(), core_number=0):
        child = self.fork(script(before=ON_A_HOST.format(core_type, flags, dict(environment))), core_number)
        child.start()
        return child.said()

    def test_what_openblas_takes_for_a_cpu_that_it_does_not_know(self):
        for flags, better in (("sse2 avx2 avx512vl avx512_bf16", "Cooperlake"), ("sse2 avx2 avx512vl", "SkylakeX"), ("avx2", "Haswell")):
            self.assertRegex(self.said("Prescott", flags), f"^ringmaster: .* for Prescott, without AVX: .*script: "
                                                           rf"{{env: {{OPENBLAS_CORETYPE: {better}}}}}\n$")

    def test_nothing_is_said_of_what_fits_or_was_asked_for(self):
        self.assertEqual(self.said("SkylakeX", "avx2 avx512vl"), "")
        self.assertEqual(self.said("Prescott", "sse2"), "")
        self.assertEqual(self.said("Prescott", "avx2", {"OPENBLAS_CORETYPE": "Prescott"}), "")
        self.assertEqual(self.said("Prescott", "avx2", core_number=1), "")


class Facts(fake_worker.ScriptTest):
    def facts(self, **parts):
        child = self.fork(script(**parts))
        child.hello()
        return child.facts()[0]

    def optimizer(self, text, decay="L2", **parts):
        optimizer = self.facts(optimizer=f"torch.optim.{text}", **parts)["optimizer"]
        self.assertEqual(optimizer.pop("weight_decay"), {"kind": f"DECAY_KIND_{decay}"})
        return optimizer

    def test_optimizers(self):
        parameters = "model.parameters()"
        self.assertEqual(self.optimizer(f"SGD({parameters}, lr=1, momentum=0.9, dampening=0.1)"),
                         {"torch_sgd": {"momentum": 0.9, "dampening": 0.1, "nesterov": False}})
        self.assertEqual(self.optimizer(f"SGD({parameters}, lr=1, momentum=0.9, nesterov=True)")["torch_sgd"]["nesterov"], True)
        adam = {"beta_1": 0.8, "beta_2": 0.99, "epsilon": 1e-6}
        for name, decay in (("Adam", "L2"), ("AdamW", "DECOUPLED")):
            self.assertEqual(self.optimizer(f"{name}({parameters}, betas=(0.8, 0.99), eps=1e-6)", decay),
                             {"torch_adam": adam})
        self.assertEqual(self.optimizer(f"RMSprop({parameters}, alpha=0.9, eps=1e-5, momentum=0.1, centered=True)"),
                         {"torch_rmsprop": {"alpha": 0.9, "epsilon": 1e-5, "momentum": 0.1, "centered": True}})

    def test_groups(self):
        facts = self.facts(optimizer="torch.optim.AdamW([{'params': [model.bias], 'weight_decay': 0.0}, "
                                     "{'params': [model.weight], 'lr': 3}], weight_decay=0.2)")
        self.assertEqual(facts["groups"], [{"weight_decay": 0.0}, {"weight_decay": 0.2}])
        self.assertEqual([(tensor["name"], tensor["group"], tensor["shape"]) for tensor in facts["tensors"]],
                         [("bias", 0, [2]), ("weight", 1, [2, 2])])

    def test_a_parameter_that_the_optimizer_lacks_is_not_trained(self):
        names = [tensor["name"] for tensor in self.facts(optimizer="torch.optim.SGD([model.weight], lr=1)")["tensors"]]
        self.assertEqual(names, ["weight"])

    def test_options(self):
        facts = self.facts(options="batch=8, shards=4, steps=100, clip_norm=1, ema=0.99, metrics=('a', 'b'), seed=5")
        self.assertEqual({key: facts[key] for key in ("batch", "shards", "steps", "epochs", "seed", "samples", "metrics")},
                         {"batch": 8, "shards": 4, "steps": 100, "epochs": 0, "seed": 5, "samples": 0, "metrics": ["a", "b"]})
        self.assertEqual((facts["optimizer"]["clip"], facts["optimizer"]["ema"]), ({"global_norm": 1.0}, {"decay": 0.99}))
        facts = self.facts(options="clip_value=0.5, epochs=3, dataset=[torch.ones(2)] * 5")
        self.assertEqual((facts["optimizer"]["clip"], facts["epochs"], facts["samples"]), ({"value": 0.5}, 3, 5))

    def test_no_optimizer(self):
        child, facts, _ = self.start(script(optimizer="None"))
        self.assertEqual((facts["optimizer"], facts["groups"]), ({}, [{"weight_decay": 0.0}]))
        self.assertEqual(child.shard(0, 0).rates, ())

    def test_names_are_the_module_s_under_a_compiled_one(self):
        names = [tensor["name"] for tensor in self.facts(
            before="class OptimizedModule(nn.Module):\n    def __init__(self, module):\n        super().__init__()\n"
                   "        self._orig_mod = module\nmodel = OptimizedModule(model)")["tensors"]]
        self.assertEqual(names, ["bias", "weight"])


class Rates(fake_worker.ScriptTest):
    def rates(self, updates, **parts):
        child, _, _ = self.start(script(**parts))
        return [child.shard(step, 0, update=update).rates for step, update in enumerate(updates)]

    def test_a_schedule_of_the_script_s_own(self):
        rates = self.rates(range(3), loop="optimizer.param_groups[0]['lr'] = 0.5 / (1 + shard.step)")
        self.assertEqual(rates, [(0.5,), (0.25,), (0.5 / 3,)])

    def test_a_scheduler_is_where_the_updates_are(self):
        for scheduler in ("StepLR(optimizer, 2, gamma=0.5)", "CosineAnnealingLR(optimizer, 20)", "OneCycleLR(optimizer, 1.0, "
                          "total_steps=30, cycle_momentum=False)", "MultiStepLR(optimizer, [3, 5])",
                          "SequentialLR(optimizer, [lr_scheduler.LinearLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)], [4])"):
            parts = {"behind": f"scheduler = lr_scheduler.{scheduler}", "options": "scheduler=scheduler"}
            expected = self.plain(scheduler, 12)
            self.assertEqual(self.rates(range(12), **parts), expected, scheduler)
            # A child that begins late, one whose step was skipped, and one that goes back.
            self.assertEqual(self.rates([7, 7, 8, 2, 11], **parts), [expected[update] for update in (7, 7, 8, 2, 11)], scheduler)

    def plain(self, scheduler, updates):
        """What a plain loop has."""
        optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.5)
        made = eval(f"lr_scheduler.{scheduler}")
        rates = []
        for _ in range(updates):
            rates.append((optimizer.param_groups[0]["lr"],))
            optimizer.step()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of what SequentialLR calls itself
                made.step()
        return rates

    def test_calls_that_have_no_place_in_the_loop(self):
        parts = {"behind": "scheduler = lr_scheduler.StepLR(optimizer, 2)", "options": "scheduler=scheduler"}
        for loop, said in (("scheduler.step()", "a step an update; remove the call"), ("optimizer.step()", "all shards of a step are there"),
                           ("optimizer.add_param_group({'params': [torch.ones(1)]})", "make all groups before it"),
                           ("optimizer.param_groups[0]['momentum'] = 0.5", "learning rates alone may change")):
            child, _, _ = self.start(script(loop=loop, **parts))
            with self.assertRaisesRegex(fake_worker.Raised, f"Refused: .*{said}"):
                child.shard(0, 0)
        child, _, _ = self.start(script(loop="optimizer.zero_grad()"))
        child.shard(0, 0)

    def test_a_scheduler_that_changes_momentum(self):
        child, _, _ = self.start(script(optimizer="torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)",
                                        behind="scheduler = lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=30)",
                                        options="scheduler=scheduler"))
        child.shard(0, 0)
        with self.assertRaisesRegex(fake_worker.Raised, "cycle_momentum=False"):
            child.shard(1, 0, update=1)


WRAPPED = """
class {0}(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module
model = {0}(model)
"""


class Refusals(fake_worker.ScriptTest):
    def assert_refused(self, said, **parts):
        self.assertRegex(self.refused(script(**parts)), said)

    def test_optimizers(self):
        for text, said in (
                ("torch.optim.Adagrad(model.parameters())", "torch.optim.adagrad.Adagrad is not supported, .*use SGD, Adam"),
                ("type('Mine', (torch.optim.SGD,), {})(model.parameters(), lr=1)", "__main__.Mine is not supported"),
                ("torch.optim.SGD(model.parameters(), lr=1, maximize=True)", "maximize=True of SGD .* negate the loss"),
                ("torch.optim.Adam(model.parameters(), amsgrad=True)", "amsgrad=True is not supported"),
                ("torch.optim.SGD([{'params': [model.weight]}, {'params': [model.bias], 'momentum': 0.5}], lr=1)",
                 "group 1 of SGD differs from group 0"),
                ("torch.optim.SGD([*model.parameters(), nn.Parameter(torch.ones(1))], lr=1)", "group 0 .* that the model does not"),
                ("torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1)", "no parameter that needs a gradient")):
            self.assert_refused(said, optimizer=text)
        self.assert_refused("has made steps", behind="model.weight.grad = torch.ones(2, 2)\noptimizer = torch.optim.Adam([model.weight])\n"
                                                     "optimizer.step()")

    def test_schedulers(self):
        self.assert_refused(r"give it to attach \(scheduler=...\)", behind="lr_scheduler.StepLR(optimizer, 2)")
        self.assert_refused("ReduceLROnPlateau", behind="s = lr_scheduler.ReduceLROnPlateau(optimizer)", options="scheduler=s")
        self.assert_refused("of another optimizer", behind="s = lr_scheduler.StepLR(optimizer, 2)\n"
                                                           "optimizer = torch.optim.SGD(model.parameters(), lr=1)", options="scheduler=s")
        self.assert_refused("a scheduler and no optimizer", behind="s = lr_scheduler.StepLR(optimizer, 2)\noptimizer = None",
                            options="scheduler=s")

    def test_models(self):
        for model, said in (
                ("nn.Sequential(nn.Linear(2, 2), nn.SyncBatchNorm(2))", "1 is a SyncBatchNorm, .*: use BatchNorm"),
                ("nn.Embedding(2, 2, sparse=True)", "the model is a Embedding with sparse gradients"),
                ("nn.DataParallel(nn.Linear(2, 2))", "the model is a DataParallel: give attach the module inside"),
                ("nn.Linear(2, 2).double()", r"bias is torch.float64, .*\(model.float\(\)\)"),
                ("nn.Linear(2, 2).bfloat16()", "bias is torch.bfloat16"),
                ("nn.Linear(2, 2, device='meta')", "bias is on meta: .* leave .to"),
                ("nn.LazyLinear(2)", "bias has no shape yet"),
                ("nn.Linear(0, 2)", "weight has no elements")):
            self.assert_refused(said, model=model)
        for wrapper in ("DistributedDataParallel", "FullyShardedDataParallel"):
            self.assert_refused(f"the model is a {wrapper}", behind=WRAPPED.format(wrapper))
        self.assert_refused("share memory", model="nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])",
                            before="model[1].weight.data = model[0].weight.data")

    def test_gradients_that_are_sparse(self):
        child, _, _ = self.start(script(loop="shard.backward(nn.functional.embedding(torch.tensor([1]), model.weight, sparse=True).sum())"))
        with self.assertRaisesRegex(fake_worker.Raised, "Refused: the gradient of weight is sparse"):
            child.shard(0, 0)

    def test_a_scaler_in_the_caller_s_frame(self):
        scaler = "scaler = torch.cuda.amp.GradScaler(enabled=False); scaler._enabled = {}"
        self.assert_refused("scaler is a GradScaler, .*precision: {policy: mixed_float16}", behind=scaler.format(True))
        child = self.fork(script(behind=scaler.format(False)))
        child.start()

    def test_datasets(self):
        iterable = "class Stream(torch.utils.data.IterableDataset):\n    def __iter__(self):\n        yield 1\n"
        self.assert_refused("the dataset is a Stream, .*map-style", before=iterable, options="dataset=Stream()")
        self.assert_refused("the dataset is a Stream", before=iterable, options="dataset=torch.utils.data.DataLoader(Stream())")
        self.assert_refused("a WeightedRandomSampler, .*give the dataset alone", options="dataset=torch.utils.data.DataLoader([1, 2], "
                            "sampler=torch.utils.data.WeightedRandomSampler([1, 1], 2))")
        loader = "dataset=torch.utils.data.DataLoader([1, 2], {})"
        self.assert_refused("a Buckets, .*give the dataset alone", before="class Buckets(torch.utils.data.BatchSampler):\n    pass\n",
                            options=loader.format("batch_sampler=Buckets([0, 1], 2, False)"))
        self.assert_refused("no batch_size", options=loader.format("batch_size=None"))
        self.assert_refused("is empty", options="dataset=[]")

    def test_options(self):
        for options, said in (("steps=1, epochs=1", "steps and epochs"), ("epochs=1", "no dataset"),
                              ("clip_norm=1, clip_value=1", "clip_norm and clip_value"), ("weight='max'", "weight='max'"),
                              ("metrics='loss'", "a tuple of names"), ("metrics=('a', 'a')", "each once")):
            self.assert_refused(said, options=options)

    def test_twice(self):
        child = self.fork(script(behind="ringmaster.torch.attach(model, optimizer)"))
        child.start()
        self.assertRegex(child.wait_raised()["message"], "attach was called twice")


if __name__ == "__main__":
    unittest.main()
