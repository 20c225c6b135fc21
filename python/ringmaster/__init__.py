"""Ringmaster's Python side: programs of the user's that compute gradients for ringworker.

`ringmaster.torch` is what a PyTorch script imports. `ringmaster.core` is the protocol under it, of the standard
library alone; `ringmaster.zygote` is the process that a worker forks its children of; `ringmaster.solo` starts a
worker of one's own where there is none.
"""
