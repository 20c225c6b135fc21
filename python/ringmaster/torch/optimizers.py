"""torch's optimizers as rules that ringworker applies, and the rates that go with each shard."""
import warnings

import torch

from ringmaster import core


def _sgd(group):
    return "torch_sgd", {"momentum": group["momentum"], "dampening": group["dampening"], "nesterov": group["nesterov"]}


def _adam(group, decoupled=False):
    if group["amsgrad"]:
        raise core.Refused("amsgrad=True is not supported: leave it out")
    return "torch_adam", {"beta_1": float(group["betas"][0]), "beta_2": float(group["betas"][1]), "epsilon": group["eps"],
                          "decoupled": bool(group.get("decoupled_weight_decay", decoupled))}


def _adamw(group):
    return _adam(group, decoupled=True)


def _rmsprop(group):
    return "torch_rmsprop", {"alpha": group["alpha"], "epsilon": group["eps"], "momentum": group["momentum"],
                             "centered": group["centered"]}


_RULES = {torch.optim.SGD: _sgd, torch.optim.Adam: _adam, torch.optim.AdamW: _adamw, torch.optim.RMSprop: _rmsprop}


def _refuse_step(*_, **__):
    raise core.Refused("optimizer.step() in the loop: ringworker updates the weights when all shards of a step are there; "
                       "remove the call")


def _refuse_schedule(*_, **__):
    raise core.Refused("scheduler.step() in the loop: attach has the scheduler, which makes a step an update; remove the "
                       "call")


class Rule:
    """An optimizer and its scheduler, either of which may be None; the job file then says what they would have."""

    def __init__(self, optimizer, scheduler):
        if optimizer is None and scheduler is not None:
            raise core.Refused("attach has a scheduler and no optimizer: give it the scheduler's")
        self._optimizer = optimizer
        self._scheduler = None
        self._kind, self._options = None, None
        self.groups = [{"weight_decay": 0.0}]
        if optimizer is None:
            return
        self._kind, self._options = _rule(optimizer)
        self.groups = [{"weight_decay": float(group["weight_decay"])} for group in optimizer.param_groups]
        _refuse_stranger(optimizer, scheduler)
        optimizer.step = _refuse_step
        if scheduler is not None:
            self._scheduler = Schedule(scheduler)

    def facts(self):
        """The fields of ScriptFacts.optimizer that it decides."""
        if self._kind is None:
            return {}
        options = dict(self._options)
        kind = "DECAY_KIND_DECOUPLED" if options.pop("decoupled", False) else "DECAY_KIND_L2"
        return {self._kind: options, "weight_decay": {"kind": kind}}

    def group_of(self):
        """The id of each parameter -> its group; None without an optimizer: whatever needs a gradient is in group 0."""
        if self._optimizer is None:
            return None
        return {id(parameter): number for number, group in enumerate(self._optimizer.param_groups)
                for parameter in group["params"]}

    def advance(self, update):
        """The scheduler to where it is when `update` updates were made."""
        if self._scheduler is not None:
            self._scheduler.advance(update)

    def rates(self):
        """The learning rate of each group as it is now. Refuses what else changed in a group since attach."""
        if self._optimizer is None:
            return []
        if len(self._optimizer.param_groups) != len(self.groups):
            raise core.Refused("optimizer.add_param_group() after attach: make all groups before it")
        for number, group in enumerate(self._optimizer.param_groups):
            now = {"weight_decay": float(group["weight_decay"])}
            if _RULES[type(self._optimizer)](group)[1] != self._options or now != self.groups[number]:
                raise core.Refused(f"group {number} of the optimizer has other options than at attach; learning rates alone "
                                   "may change (OneCycleLR and CyclicLR: cycle_momentum=False)")
        return [float(group["lr"]) for group in self._optimizer.param_groups]


def _rule(optimizer):
    """(kind, options) that all groups of an optimizer have."""
    make = _RULES.get(type(optimizer))
    if make is None:
        raise core.Refused(f"{type(optimizer).__module__}.{type(optimizer).__name__} is not supported, because ringworker "
                           "makes the update: use SGD, Adam, AdamW or RMSprop of torch.optim")
    for number, group in enumerate(optimizer.param_groups):
        for option in ("maximize", "differentiable"):
            if group.get(option):
                raise core.Refused(f"{option}=True of {type(optimizer).__name__} is not supported: leave it out"
                                   + (", and negate the loss" if option == "maximize" else ""))
        if make(group) != make(optimizer.param_groups[0]):
            raise core.Refused(f"group {number} of {type(optimizer).__name__} differs from group 0 in more than its learning "
                               "rate and weight decay: give all groups the same")
    if optimizer.state:
        raise core.Refused("the optimizer has made steps, or has loaded a state: attach a fresh one; a job goes on from a "
                           "checkpoint by ringctl submit --resume")
    return make(optimizer.param_groups[0])


def _refuse_stranger(optimizer, scheduler):
    """A scheduler that attach was not given would be where its process happened to begin."""
    wrapped = hasattr(optimizer.step, "_with_counter") or hasattr(optimizer.step, "_wrapped_by_lr_sched")
    if scheduler is None and wrapped:
        raise core.Refused("the optimizer has a scheduler: give it to attach (scheduler=...), and remove scheduler.step() "
                           "from the loop")
    if scheduler is None:
        return
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise core.Refused("ReduceLROnPlateau is not supported, because a shard does not know the loss of the batch: use a "
                           "scheduler of the step alone")
    if scheduler.optimizer is not optimizer:
        raise core.Refused("the scheduler is of another optimizer than attach has: give both of one")


def _copied(state):
    """Of lists and dicts, as steps of a scheduler change them; what else is in a state it keeps or replaces."""
    if type(state) is dict:
        return {key: _copied(value) for key, value in state.items()}
    return [_copied(value) for value in state] if type(state) is list else state


class Schedule:
    """A scheduler of torch that is wherever a number of updates puts it, also where that number goes back."""

    def __init__(self, scheduler):
        self._scheduler = scheduler
        self._made = 0
        self._step = scheduler.step
        self._first = _copied(scheduler.state_dict())
        self._groups = [{key: value for key, value in group.items() if key != "params"}
                        for group in scheduler.optimizer.param_groups]
        scheduler.step = _refuse_schedule

    def advance(self, update):
        if update < self._made:
            self._scheduler.load_state_dict(_copied(self._first))
            for group, first in zip(self._scheduler.optimizer.param_groups, self._groups):
                group.update(first)
            self._made = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of steps of the optimizer, which are made elsewhere
            while self._made < update:
                self._step()
                self._made += 1
