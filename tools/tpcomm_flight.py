#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Put the flight dumps of a job's ranks side by side and name the first call in which they differ.

usage: tpcomm_flight.py [--torch PREFIX] [--calls N] [--json] FILE_OR_FOLDER ...

Dumps are tpcomm-flight/1 (docs/health.md): files that a failure wrote into TPCOMM_FLIGHT_DIR, that tpcomm_flight_dump wrote, or
answers of a status socket to "flight". A folder means its tpcomm-flight-*.json.

  --torch PREFIX  also write PREFIX0, PREFIX1, ... for torch's flight recorder analyser (torchfrtrace FOLDER -p PREFIX)
  --calls N       calls before the divergence to show (default 3)
  --json          print the findings as JSON

exit 0 the ranks agree as far as their records go, 1 they differ, 2 a file is no flight dump
"""
import argparse
import collections
import json
import os
import pickle
import sys
import time

SCHEMA = "tpcomm-flight/1"
# What all ranks must say alike of one call.
COMPARED = ("coll", "dtype", "op", "count", "root", "path", "rows")
TORCH_NAMES = {"all_reduce": "all_reduce", "barrier": "barrier", "broadcast": "broadcast", "all_gather": "_all_gather_base",
               "reduce_scatter": "_reduce_scatter_base", "all_reduce_rms_norm": "all_reduce",
               "reduce_scatter_rms_norm": "_reduce_scatter_base", "all_gather_rows": "_all_gather_base"}
TORCH_DTYPES = {"f32": "Float", "f16": "Half", "bf16": "BFloat16", "i8": "Char", "u8": "Byte", "i32": "Int", "i64": "Long",
                "u32": "UInt32", "u64": "UInt64", "f64": "Double", "f8_e4m3": "Float8_e4m3fn", "f8_e5m2": "Float8_e5m2"}


class BadDump(Exception):
    pass


def need(condition, name, what):
    if not condition:
        raise BadDump(f"{name}: {what}")


def is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def check_dump(name, dump):
    """Refuse what the rest of this program could not read."""
    need(isinstance(dump, dict) and dump.get("schema") == SCHEMA, name, f"no {SCHEMA} document")
    for key in ("rank", "size", "pid", "written_us"):
        need(is_count(dump.get(key)), name, f"\"{key}\" is no whole number")
    need(isinstance(dump.get("job"), str), name, "\"job\" is no text")
    need(isinstance(dump.get("groups"), list), name, "\"groups\" is no list")
    for group in dump["groups"]:
        need(isinstance(group, dict) and isinstance(group.get("name"), str) and isinstance(group.get("id"), str), name,
             "a group without name or id")
        ranks = group.get("ranks")
        need(isinstance(ranks, list) and all(is_count(r) for r in ranks), name, f"group '{group['name']}': ranks are no list")
        need(group.get("size") == len(ranks) and is_count(group.get("rank")) and group["rank"] < len(ranks), name,
             f"group '{group['name']}': rank, size and ranks do not fit")
        need(isinstance(group.get("planes"), list), name, f"group '{group['name']}' has no planes")
        for plane in group["planes"]:
            need(isinstance(plane, dict) and isinstance(plane.get("plane"), str) and is_count(plane.get("last_begun")) and
                 isinstance(plane.get("records"), list), name, f"group '{group['name']}': a plane that is none")
            for record in plane["records"]:
                need(isinstance(record, dict) and is_count(record.get("seq")) and record["seq"] > 0 and
                     all(key in record for key in COMPARED + ("created_us", "state")), name,
                     f"group '{group['name']}': a record that is none")


def read_dumps(paths):
    """All dumps of the files, newest first for each job and rank."""
    files = []
    for path in paths:
        if os.path.isdir(path):
            found = sorted(n for n in os.listdir(path) if n.startswith("tpcomm-flight-") and n.endswith(".json"))
            if not found:
                raise BadDump(f"{path}: no tpcomm-flight-*.json in this folder")
            files += [os.path.join(path, n) for n in found]
        else:
            files.append(path)
    dumps = []
    for name in files:
        try:
            with open(name, encoding="utf-8") as file:
                text = file.read()
            decoder, at = json.JSONDecoder(), 0
            while at < len(text.rstrip()):
                dump, end = decoder.raw_decode(text, at)
                check_dump(name, dump)
                dumps.append(dump)
                at = end + len(text[end:]) - len(text[end:].lstrip())
        except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise BadDump(f"{name}: {error}") from error
    dumps.sort(key=lambda d: -d["written_us"])
    return dumps


class Plane:
    """One order of calls of one group, as each of its ranks has recorded it."""

    def __init__(self, group, plane):
        self.name, self.id, self.ranks, self.plane = group["name"], group["id"], group["ranks"], plane["plane"]
        self.timeout_ms = group.get("op_timeout_ms", 0)
        self.views = {}

    def add(self, rank, plane):
        self.views[rank] = plane
        plane["by_seq"] = {record["seq"]: record for record in plane["records"]}

    def title(self):
        return f"group '{self.name}' ({len(self.ranks)} ranks), {self.plane} calls"

    def torch_name(self):
        return f"{self.id}-{self.plane}"

    def torch_desc(self):
        return f"{self.name} {self.plane}"

    def who(self, rank):
        world = self.ranks[rank]
        return f"rank {rank}" if world == rank else f"rank {rank} (world rank {world})"

    def first_known(self):
        """From here on every rank's records are whole."""
        return max((min(v["by_seq"], default=v["last_begun"] + 1) for v in self.views.values()), default=1)

    def last_seen(self, rank):
        """Last call of a rank that left no dump, as the others saw it."""
        return max((v["rank_seq"][rank] for v in self.views.values() if rank < len(v.get("rank_seq") or [])), default=None)


def same(a, b):
    return all(a[key] == b[key] for key in COMPARED)


def differing(records):
    return [key for key in COMPARED if len({json.dumps(r[key]) for r in records}) > 1]


def is_other_order(plane, seq, window=64):
    """Whether two ranks made the calls of one another, each in an order of its own."""
    ranks = sorted(r for r in plane.views if seq in plane.views[r]["by_seq"])
    for a in ranks:
        for b in ranks:
            mine, theirs = plane.views[a]["by_seq"], plane.views[b]["by_seq"]
            if a == b or same(mine[seq], theirs[seq]):
                continue
            later = range(seq + 1, seq + window)
            if any(s in theirs and same(mine[seq], theirs[s]) for s in later) or \
                    any(s in mine and same(theirs[seq], mine[s]) for s in later):
                return True
    return False


def find_divergence(plane):
    """The first call of a plane that not all of its ranks made alike: a finding, or None."""
    last = max(v["last_begun"] for v in plane.views.values())
    for rank in range(len(plane.ranks)):
        if rank not in plane.views:
            last = max(last, plane.last_seen(rank) or 0)
    for seq in range(max(plane.first_known(), 1), last + 1):
        made = {r: v["by_seq"][seq] for r, v in plane.views.items() if seq in v["by_seq"]}
        missing = [r for r, v in plane.views.items() if v["last_begun"] < seq]
        unseen = [r for r in range(len(plane.ranks)) if r not in plane.views and (plane.last_seen(r) or 0) < seq]
        if not made:
            continue
        keys = differing(list(made.values()))
        if keys:
            order = is_other_order(plane, seq)
            verdict = "the ranks made their calls in different orders" if order else \
                f"the ranks made different calls: {', '.join(keys)} differ{'s' if len(keys) == 1 else ''}"
            kind = "order" if order else "mismatch"
        elif missing or unseen:
            names = ", ".join(plane.who(r) for r in sorted(missing + unseen))
            verdict, kind = f"not called by {names}", "missing"
        else:
            continue
        return {"kind": kind, "group": plane.name, "group_id": plane.id, "plane": plane.plane, "seq": seq, "differ": keys,
                "missing": sorted(missing + unseen), "without_dump": [r for r in range(len(plane.ranks)) if r not in plane.views],
                "verdict": verdict, "since_us": min(r["created_us"] or 0 for r in made.values()), "made": made}
    return None


def describe(record):
    text = record["coll"]
    if record["dtype"] is not None:
        text += f" count {record['count']} {record['dtype']}"
    if record["op"] is not None:
        text += f" {record['op']}"
    if record["root"] is not None:
        text += f" root {record['root']}"
    if record["rows"] is not None:
        text += " " + record["rows"]
    return text + f" by {record['path']}"


def at(us):
    return "?" if not us else time.strftime("%H:%M:%S", time.localtime(us // 1000000)) + f".{us % 1000000:06d}"


def tag_text(record):
    tag = int(record.get("tag") or "0", 16)
    return f", tag {tag}" if tag else ""


def print_finding(plane, finding, calls):
    seq = finding["seq"]
    print(f"{plane.title()}: call {seq}: {finding['verdict']}")
    for before in range(max(seq - calls, 1), seq):
        known = {r: v["by_seq"][before] for r, v in plane.views.items() if before in v["by_seq"]}
        if known:
            print(f"  seq {before}: {describe(next(iter(known.values())))}: made by all")
    for rank in range(len(plane.ranks)):
        view = plane.views.get(rank)
        if rank in finding["made"]:
            record = finding["made"][rank]
            ended = f", ended {at(record['ended_us'])}" if record.get("ended_us") else ""
            print(f"  seq {seq}: {plane.who(rank)}: {describe(record)}, {record['state']}, called {at(record['created_us'])}"
                  f"{ended}{tag_text(record)}")
        elif view is not None:
            last = view["by_seq"].get(view["last_begun"])
            print(f"  seq {seq}: {plane.who(rank)}: not called; its last is seq {view['last_begun']}"
                  + (f", {describe(last)}, {last['state']}{tag_text(last)}" if last else ""))
        else:
            print(f"  seq {seq}: {plane.who(rank)}: left no dump; last seen by the others at seq {plane.last_seen(rank)}")


def print_stragglers(planes):
    """Who came last how often, over the records there are."""
    for plane in planes:
        view = next(iter(plane.views.values()))
        last = collections.Counter(r["last_rank"] for r in view["records"] if r.get("last_rank") is not None)
        total = sum(last.values())
        if total < 10:
            continue
        waits = {r: sum(rec.get("wait_us") or 0 for rec in v["records"]) / max(len(v["records"]), 1) for r, v in plane.views.items()}
        print(f"{plane.title()}: last to arrive, of {total} calls: " +
              ", ".join(f"rank {r} {last[r] * 100 // total}%" for r in range(len(plane.ranks))) + "; mean wait in us: " +
              ", ".join(f"rank {r} {waits[r]:.1f}" for r in sorted(waits)))


def collect(dumps):
    """Planes by (group id, plane), and the dump of each rank; of several dumps of a rank the newest counts."""
    planes, of_rank = {}, {}
    for dump in dumps:
        if dump["rank"] in of_rank:
            continue
        of_rank[dump["rank"]] = dump
        for group in dump["groups"]:
            for view in group["planes"]:
                key = (group["id"], view["plane"])
                plane = planes.setdefault(key, Plane(group, view))
                if plane.ranks != group["ranks"]:
                    raise BadDump(f"rank {dump['rank']}: group '{group['name']}' has other members than on another rank")
                plane.add(group["rank"], view)
    return planes, of_rank


# ---------------------------------------------------------------- torch

def torch_sizes(record, size):
    """Sizes of input and output as torch's analyser wants them: of what gathers or scatters one is the other times the ranks. Rows need
    not divide by the ranks: each rank's part is the longest one."""
    if record["dtype"] is None:
        return [[]], [[]]
    count, part = record["count"], -(-record["count"] // size)
    return {"all_gather": ([[count]], [[count * size]]), "reduce_scatter": ([[count * size]], [[count]]),
            "all_gather_rows": ([[part]], [[part * size]]),
            "reduce_scatter_rms_norm": ([[part * size]], [[part]])}.get(record["coll"], ([[count]], [[count]]))


def torch_entry(record, plane, pg_id, timeout_ms):
    moves = record["dtype"] is not None
    ns = lambda key: record[key] * 1000 if record.get(key) else None
    done = record["state"] == "completed"
    sizes = torch_sizes(record, len(plane.ranks))
    dtypes = [TORCH_DTYPES.get(record["dtype"], "Byte")] if moves else []
    return {
        # What has no field of its own is told where torch has the caller's stack: it prints that, and compares nothing.
        "frames": [{"name": describe(record), "filename": "tag", "line": int(record.get("tag") or "0", 16)}],
        "record_id": 0, "pg_id": pg_id, "process_group": (plane.torch_name(), plane.torch_desc()),
        "thread_name": "", "thread_id": "", "collective_seq_id": record["seq"], "p2p_seq_id": 0, "op_id": record["seq"],
        "profiling_name": "nccl:" + TORCH_NAMES.get(record["coll"], record["coll"]),
        "time_created_ns": record["created_us"] * 1000 if record["created_us"] else 0,
        "duration_ms": (record["ended_us"] - record["created_us"]) / 1000.0 if done and record.get("ended_us") else None,
        "input_sizes": sizes[0], "input_dtypes": dtypes, "output_sizes": sizes[1], "output_dtypes": dtypes,
        "state": {"completed": "completed", "enqueued": "scheduled"}.get(record["state"], "started"),
        "time_discovered_started_ns": ns("begun_us"), "time_discovered_completed_ns": ns("ended_us") if done else None, "retired": done,
        "timeout_ms": timeout_ms, "is_p2p": False,
        "tpcomm": {key: record.get(key) for key in ("path", "op", "root", "tag", "stream", "status", "wait_us", "skew_us", "last_rank")},
    }


def as_seen(plane, rank):
    """Of a rank that left no dump: what it is known to have called, in the words of one that did. None: nothing is known."""
    last = plane.last_seen(rank)
    if last is None:
        return None
    view = max(plane.views.values(), key=lambda v: v["last_begun"])
    return {"records": [r for r in view["records"] if r["seq"] <= last], "last_begun": last, "last_ended": min(last, view.get("last_ended", 0))}


def torch_dump(world_rank, planes, version):
    """One rank's calls as torch's analyser reads them: plain dicts, lists, tuples, texts and numbers. It wants a file of every rank, and the
    same first calls in all of them."""
    pg_config, pg_status, entries = {}, {}, []
    for pg_id, plane in enumerate(planes):
        if world_rank not in plane.ranks:
            continue
        rank = plane.ranks.index(world_rank)
        view = plane.views.get(rank) or as_seen(plane, rank)
        if view is None:
            continue
        pg_config[plane.torch_name()] = {"name": plane.torch_name(), "desc": plane.torch_desc(), "ranks": str(plane.ranks)}
        pg_status[str(pg_id)] = {"last_enqueued_collective": view["last_begun"], "last_started_collective": view["last_begun"],
                                 "last_completed_collective": view.get("last_ended", 0)}
        entries += [torch_entry(r, plane, pg_id, plane.timeout_ms) for r in view["records"] if r["seq"] >= plane.first_known()]
    entries.sort(key=lambda e: e["time_created_ns"])
    for number, entry in enumerate(entries):
        entry["record_id"] = number
    return {"version": "2.10", "pg_config": pg_config, "pg_status": pg_status, "comm_lib_version": "tpcomm " + version, "entries": entries}


def write_torch(prefix, planes, of_rank):
    version = next(iter(of_rank.values()))["version"]
    for rank in range(max(d["size"] for d in of_rank.values())):
        with open(f"{prefix}{rank}", "wb") as file:
            pickle.dump(torch_dump(rank, planes, version), file, protocol=2)


def main():
    parser = argparse.ArgumentParser(usage="%(prog)s [--torch PREFIX] [--calls N] [--json] FILE_OR_FOLDER ...",
                                     description="Compare the flight dumps of a job's ranks; name the first call in which they differ.")
    parser.add_argument("--torch", metavar="PREFIX")
    parser.add_argument("--calls", type=int, default=3, metavar="N")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("paths", nargs="+", metavar="FILE_OR_FOLDER")
    args = parser.parse_args()
    try:
        dumps = read_dumps(args.paths)
        jobs = collections.OrderedDict((d["job"], None) for d in dumps)
        results = []
        for job in jobs:
            planes, of_rank = collect([d for d in dumps if d["job"] == job])
            findings = sorted(((f, p) for p in planes.values() for f in [find_divergence(p)] if f), key=lambda x: x[0]["since_us"])
            results.append((job, planes, of_rank, findings))
        if args.torch and len(results) > 1:
            raise BadDump(f"--torch takes the dumps of one job, these are of {len(results)}")
    except BadDump as error:
        print(f"tpcomm_flight.py: {error}", file=sys.stderr)
        return 2
    for job, planes, of_rank, findings in results:
        if args.torch:
            write_torch(args.torch, list(planes.values()), of_rank)
        if args.json:
            continue
        size = max(d["size"] for d in of_rank.values())
        absent = [r for r in range(size) if r not in of_rank]
        print(f"job {job}: {size} ranks; dumps of {len(of_rank)}" +
              (f", none of rank {', '.join(map(str, absent))}" if absent else ""))
        for rank in sorted(of_rank):
            for group in of_rank[rank]["groups"]:
                if group.get("status") not in (None, "TPCOMM_OK"):
                    print(f"rank {rank}: group '{group['name']}': {group['status']}: {group.get('text', '')}")
        for number, (finding, plane) in enumerate(findings):
            print("first divergence: " if number == 0 else "also: ", end="")
            print_finding(plane, finding, max(args.calls, 0))
        if not findings:
            print("the ranks agree as far as their records go")
        print_stragglers(planes.values())
    if args.json:
        for _, _, _, findings in results:
            for finding, _ in findings:
                finding["made"] = {str(r): describe(record) for r, record in finding["made"].items()}
        print(json.dumps([{"job": job, "ranks": sorted(of_rank), "findings": [f for f, _ in findings]}
                          for job, _, of_rank, findings in results], indent=1))
    return 1 if any(findings for _, _, _, findings in results) else 0


if __name__ == "__main__":
    sys.exit(main())
