"""What storms did and what came of it: JSON lines, one a fault and one a storm; and their summary.

A fault:  seed, storm, time (unix ms), fault, worker, detect_ms, regroup_ms, resume_ms,
          shards_recomputed, generation. null: no regroup was seen that it caused.
A storm:  seed, storm, result (ok, mismatch, hang, failed), sha256, seconds, faults, regroups, rewinds,
          and `error` when it is not ok.
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


def attribute(records, regroups, losing):
    """Gives every fault of a kind in `losing` the first regroup after it that lost its worker."""
    free = list(regroups)
    for record in records:
        record.update(detect_ms=None, regroup_ms=None, resume_ms=None, shards_recomputed=None, generation=None)
        if record["fault"] not in losing:
            continue
        for regroup in free:
            late = regroup.noticed_unix_ms - record["time"]
            if record["worker"] in regroup.lost and -5 <= late <= 10_000:
                free.remove(regroup)
                record["detect_ms"] = max(0, late)
                record["generation"] = f"{regroup.generation.term}.{regroup.generation.counter}"
                record["shards_recomputed"] = regroup.shards_recomputed
                if regroup.form_ms > 0:  # else it was fenced again before it computed
                    record["regroup_ms"] = round(regroup.fence_ms + regroup.form_ms, 1)
                    record["resume_ms"] = round(max(0, late) + regroup.fence_ms + regroup.form_ms, 1)
                break


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
        seen = [line for line in mine if line["detect_ms"] is not None]
        columns = "     ".join(_quantiles([line[key] for line in seen if line[key] is not None])
                               for key in ("detect_ms", "regroup_ms", "resume_ms"))
        rows.append(f"{kind:20} {len(mine):6} {len(seen):5}      {columns}")
    count = {result: sum(line["result"] == result for line in storms)
             for result in ("ok", "mismatch", "hang", "failed")}
    rows.append(f"{len(storms)} storms, {len(faults)} faults, {sum(line['regroups'] for line in storms)} regroups, "
                f"{sum(line['rewinds'] for line in storms)} of them back to a checkpoint: {count['ok']} ok, "
                f"{count['mismatch']} mismatches, {count['hang']} hangs, {count['failed']} failed otherwise")
    return "\n".join(rows)
