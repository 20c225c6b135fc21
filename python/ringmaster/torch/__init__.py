"""A PyTorch script that computes gradients for ringworker:

    import ringmaster.torch
    job = ringmaster.torch.attach(model, optimizer, batch=64, steps=5000)
    for shard in job.shards():       # in place of the loops over steps, micro-steps and batches
        x, y = shard.batch           # or draw rows of one's own, inside the loop
        shard.backward(loss(model(x), y))  # in place of backward, clipping, step and zero_grad

The update, the state, checkpoints and which shard is computed where are ringworker's: docs/core_protocol.md.
"""
from ringmaster.torch.ddp import ExactSum, ddp_hook
from ringmaster.torch.job import Job, attach
from ringmaster.torch.shard import Shard
from ringmaster.torch.weights import load

__all__ = ["ExactSum", "Job", "Shard", "attach", "ddp_hook", "load"]
