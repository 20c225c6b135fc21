"""What storms did and what came of it: JSON lines, one a fault, a regroup and a storm; and their summary.

A fault:   seed, storm, time (unix ms), fault, worker, coordinator_down, detect_ms, regroup_ms, resume_ms,
           shards_recomputed, generation. null: no regroup was seen that it caused. coordinator_down: there
           was none at that time, or it had just come back and waited for its workers.
A regroup: seed, storm, generation, time, reason, lost, joined, start_step, shards_kept, shards_recomputed,
           fence_ms, form_ms, rewound.
A storm:   seed, storm, result (ok, mismatch, hang, failed), sha256, seconds, faults, regroups, rewinds,
           submissions (acknowledged and found again), maps (of classes), skipped_steps, and `error` when it is not ok.
"""
import json
import statistics


class Ledger:
    def __init__(self, path=None):
        self._path = path
        self.lines = []

    def add(self, line):
        self.lines.append(line)
        if self._path is not None:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


SOON_MS = 3000   # a regroup later than this has another cause
CLOCKS_MS = 5    # two clocks of one machine, read one after the other


def attribute(records, regroups, losing, breaking=()):
    """Gives every regroup to the fault that caused it, if one did: the last one before it, of a kind in
    `losing` that hit a worker which it lost, else of a kind in `breaking` whose worker its reason names.
    A fault that hit nobody in the ring has none, also when its worker joins and is hit again later."""
    for record in records:
        record.update(detect_ms=None, regroup_ms=None, resume_ms=None, shards_recomputed=None, generation=None)
    joined = {}  # by worker, when it last came into the ring
    for regroup in regroups:
        before = [record for record in records
                  if record["generation"] is None and record["time"] > joined.get(record["worker"], 0)
                  and -CLOCKS_MS <= regroup.noticed_unix_ms - record["time"] <= SOON_MS]
        joined.update((worker, regroup.noticed_unix_ms) for worker in regroup.joined)
        lost = {}  # by worker, the last one
        for record in before:
            if record["fault"] in losing and record["worker"] in regroup.lost:
                lost[record["worker"]] = record
        causes = list(lost.values()) or [record for record in before if record["fault"] in breaking
                                         and _blames(regroup.reason, record["worker"])][-1:]
        for record in causes:
            _give(record, regroup)


def _blames(reason, worker):
    """`worker A on host H suspects worker B ...`, or `... suspects a neighbour ...`."""
    if " suspects " not in reason:
        return False
    return f"worker {worker} on host " in reason or " suspects a neighbour " in reason


def _give(record, regroup):
    late = max(0, regroup.noticed_unix_ms - record["time"])
    record["detect_ms"] = late
    record["generation"] = f"{regroup.generation.term}.{regroup.generation.counter}"
    record["shards_recomputed"] = regroup.shards_recomputed
    if "the coordinator restarted" in regroup.reason:
        record["coordinator_down"] = True
    if regroup.form_ms > 0:  # else it was fenced again before it computed
        record["regroup_ms"] = round(regroup.fence_ms + regroup.form_ms, 1)
        record["resume_ms"] = round(late + regroup.fence_ms + regroup.form_ms, 1)


def line_of(regroup):
    return {"generation": f"{regroup.generation.term}.{regroup.generation.counter}", "time": regroup.noticed_unix_ms,
            "reason": regroup.reason, "lost": list(regroup.lost), "joined": list(regroup.joined),
            "start_step": regroup.start_step, "shards_kept": regroup.shards_kept,
            "shards_recomputed": regroup.shards_recomputed, "fence_ms": round(regroup.fence_ms, 1),
            "form_ms": round(regroup.form_ms, 1), "rewound": regroup.rewound}


def _quantiles(values):
    if not values:
        return "       -        -"
    ordered = sorted(values)
    return f"{statistics.median(ordered):8.0f} {ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]:8.0f}"


def summary(lines):
    faults = [line for line in lines if "fault" in line]
    storms = [line for line in lines if "result" in line]
    rows = [f"{'fault':20} {'times':>6} {'seen':>5}  detect ms: median p99   regroup: median p99    resume: median p99"]
    for kind in sorted({line["fault"] for line in faults}):
        mine = [line for line in faults if line["fault"] == kind]
        # Without a coordinator nobody notices anything until it is back.
        seen = [line for line in mine if line["detect_ms"] is not None and not line["coordinator_down"]]
        columns = "     ".join(_quantiles([line[key] for line in seen if line[key] is not None])
                               for key in ("detect_ms", "regroup_ms", "resume_ms"))
        rows.append(f"{kind:20} {len(mine):6} {len(seen):5}      {columns}")
    count = {result: sum(line["result"] == result for line in storms)
             for result in ("ok", "mismatch", "hang", "failed")}
    rows.append(f"{len(storms)} storms, {len(faults)} faults, {sum(line['regroups'] for line in storms)} regroups, "
                f"{sum(line['rewinds'] for line in storms)} of them back to a checkpoint: {count['ok']} ok, "
                f"{count['mismatch']} mismatches, {count['hang']} hangs, {count['failed']} failed otherwise")
    return "\n".join(rows)
