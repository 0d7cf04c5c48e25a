# SPDX-License-Identifier: Apache-2.0
"""Check that tools/tpcomm_flight.py names the first call in which the ranks differ: from dumps of ranks that failed, and from dumps
written here; that dumps fit their schema; and that what it writes for torch is what torch's analyser takes (python_torch_flight runs that).

usage: flight_command.py FAULT_FLIGHT FAULT_STATUS
"""
import copy
import json
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import json_schema  # noqa: E402

TOOL = os.path.join(ROOT, "tools", "tpcomm_flight.py")
PROGRAM = sys.argv.pop(1)
STATUS_PROGRAM = sys.argv.pop(1)


def record(seq, **changes):
    made = {"seq": seq, "coll": "all_reduce", "dtype": "bf16", "op": "sum", "count": 4096, "bytes": 8192, "path": "cpu_oneshot", "root": None,
            "rows": None, "tag": "0", "stream": "0", "capturing": False, "created_us": 1000000 + seq, "begun_us": 1000000 + seq, "ended_us": 1000001 + seq,
            "wait_us": 1.5, "skew_us": 1.25, "last_rank": seq % 2, "status": "TPCOMM_OK", "state": "completed", "retired": True}
    made.update(changes)
    return made


def dump(rank, records, size=2, last=None, rank_seq=None, group="world"):
    begun = last if last is not None else (records[-1]["seq"] if records else 0)
    plane = {"plane": "device", "last_begun": begun, "last_ended": begun, "rank_seq": rank_seq or [begun] * size, "in_flight": False,
             "waits_for": [], "records": records, "dropped": 0, "skipped": 0}
    return {"schema": "tpcomm-flight/1", "version": "0.1.0", "written_us": 2000000, "pid": 100 + rank, "host": "h", "job": "00ff", "rank": rank,
            "size": size, "cause": None,
            "groups": [{"name": group, "id": "1", "rank": rank, "size": size, "ranks": list(range(size)), "device": "cpu", "topology": "cpu",
                        "op_timeout_ms": 1000, "status": "TPCOMM_OK", "peers": [], "paths": [], "planes": [plane]}]}


class Flight(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(subprocess.run, ["rm", "-rf", self.folder], check=False)

    def tool(self, *arguments):
        done = subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    def write(self, *dumps):
        for number, one in enumerate(dumps):
            with open(os.path.join(self.folder, f"tpcomm-flight-{number}.json"), "w", encoding="utf-8") as file:
                json.dump(one, file)
        return self.tool(self.folder)

    def scene(self, name):
        subprocess.run([PROGRAM, self.folder, name], check=True, timeout=60)
        files = [os.path.join(self.folder, n) for n in sorted(os.listdir(self.folder))]
        self.assertEqual(list(json_schema.check(os.path.join(ROOT, "docs/schema/flight.json"), files)), [])
        return self.tool(self.folder)

    # ------------------------------------------------------------ of ranks that failed

    def test_missing(self):
        status, output = self.scene("missing")
        self.assertEqual(status, 1, output)
        self.assertIn("first divergence: group 'world' (3 ranks), device calls: call 7: not called by rank 2\n", output)
        self.assertIn("rank 2: not called; its last is seq 6, all_reduce count 8 f32 sum by cpu_oneshot, completed, tag 48", output)
        self.assertIn("TPCOMM_ERR_TIMEOUT", output)

    def test_mismatch(self):
        status, output = self.scene("mismatch")
        self.assertEqual(status, 1, output)
        self.assertIn("device calls: call 5: the ranks made different calls: count differs\n", output)
        self.assertIn("seq 5: rank 1: all_reduce count 16 f32 sum", output)
        self.assertIn("seq 4: all_reduce count 8 f32 sum by cpu_oneshot: made by all", output)

    def test_killed(self):
        status, output = self.scene("killed")
        self.assertEqual(status, 1, output)
        self.assertIn("3 ranks; dumps of 2, none of rank 1", output)
        self.assertIn("call 4: not called by rank 1\n", output)
        self.assertIn("rank 1: left no dump; last seen by the others at seq 3", output)

    def test_subgroup(self):
        status, output = self.scene("subgroup")
        self.assertEqual(status, 1, output)
        self.assertIn("first divergence: group 'pair' (2 ranks), device calls: call 2: the ranks made different calls", output)
        self.assertIn("rank 0 (world rank 1): barrier by", output)
        self.assertIn("rank 1 (world rank 2): broadcast count 1 i32 root 0", output)

    def test_torch(self):
        self.scene("missing")
        prefix = os.path.join(self.folder, "torch_")
        self.assertEqual(self.tool("--torch", prefix, self.folder)[0], 1)
        with open(prefix + "0", "rb") as file:
            data = file.read()
        self.assertEqual(data[:2], b"\x80\x02")
        dump_0 = pickle.loads(data)
        with open(prefix + "2", "rb") as file:
            dump_2 = pickle.load(file)
        self.assertEqual(dump_0["pg_config"], dump_2["pg_config"])
        name = dump_0["entries"][0]["process_group"]
        self.assertEqual(dump_0["pg_config"][name[0]], {"name": name[0], "desc": "world device", "ranks": "[0, 1, 2]"})
        calls = [e for e in dump_0["entries"] if e["process_group"] == name]
        self.assertEqual([e["collective_seq_id"] for e in calls], [1, 2, 3, 4, 5, 6, 7])
        self.assertEqual([e["state"] for e in calls], ["completed"] * 6 + ["started"])
        for entry in calls:
            self.assertEqual(entry["profiling_name"], "nccl:all_reduce")
            self.assertEqual((entry["input_sizes"], entry["output_sizes"]), ([[8]], [[8]]))
            self.assertEqual((entry["input_dtypes"], entry["p2p_seq_id"], entry["is_p2p"]), (["Float"], 0, False))
        self.assertEqual(len([e for e in dump_2["entries"] if e["process_group"] == name]), 6)

    def torch(self, *dumps):
        """What torch is given of these, by rank."""
        prefix = os.path.join(self.folder, "torch_")
        self.write(*dumps)
        self.tool("--torch", prefix, self.folder)
        loaded = {}
        for rank in range(dumps[0]["size"]):
            with open(f"{prefix}{rank}", "rb") as file:
                loaded[rank] = pickle.load(file)
        return loaded

    def test_torch_fields(self):
        """What the analyser indexes without a default, as it wants it."""
        calls = [record(1), record(2, coll="barrier", dtype=None, op=None, count=0), record(3, coll="all_gather", op=None),
                 record(4, coll="reduce_scatter", state="started", ended_us=0),
                 record(5, coll="all_gather_rows", op=None, count=7 * 64, rows="hidden 64", state="enqueued")]
        dumps = self.torch(dump(0, calls), dump(1, copy.deepcopy(calls)))
        for one in dumps.values():
            self.assertRegex(one["version"], r"^2\.[0-9]+$")
            self.assertEqual(one["pg_config"], {"1-device": {"name": "1-device", "desc": "world device", "ranks": "[0, 1]"}})
            self.assertEqual([e["record_id"] for e in one["entries"]], [0, 1, 2, 3, 4])
            self.assertEqual([e["collective_seq_id"] for e in one["entries"]], [1, 2, 3, 4, 5])
            self.assertEqual([e["state"] for e in one["entries"]], ["completed"] * 3 + ["started", "scheduled"])
            self.assertEqual([e["profiling_name"] for e in one["entries"]],
                             ["nccl:all_reduce", "nccl:barrier", "nccl:_all_gather_base", "nccl:_reduce_scatter_base", "nccl:_all_gather_base"])
            self.assertEqual([(e["input_sizes"], e["output_sizes"]) for e in one["entries"]],
                             [([[4096]], [[4096]]), ([[]], [[]]), ([[4096]], [[8192]]), ([[8192]], [[4096]]), ([[224]], [[448]])])
            for entry in one["entries"]:
                self.assertEqual((entry["process_group"], entry["p2p_seq_id"], entry["is_p2p"]), (("1-device", "world device"), 0, False))
                self.assertEqual(entry["input_dtypes"], [] if entry["profiling_name"] == "nccl:barrier" else ["BFloat16"])
                self.assertEqual(entry["output_dtypes"], entry["input_dtypes"])
                self.assertIs(type(entry["time_created_ns"]), int)
                self.assertEqual(set(entry["frames"][0]), {"name", "filename", "line"})

    def test_torch_begins_alike(self):
        """A rank that has lost its first calls lets all files begin later; the analyser would take them for missing."""
        dumps = self.torch(dump(0, [record(seq) for seq in range(20, 30)]), dump(1, [record(seq) for seq in range(1, 30)]))
        for one in dumps.values():
            self.assertEqual([(e["record_id"], e["collective_seq_id"]) for e in one["entries"]], [(n, 20 + n) for n in range(10)])

    def test_torch_without_dump(self):
        """Of a rank that left no dump there is a file as well, of what the others have seen."""
        dumps = self.torch(dump(0, [record(1), record(2), record(3)], rank_seq=[3, 2]))
        self.assertEqual(dumps[1]["pg_config"], dumps[0]["pg_config"])
        self.assertEqual([e["collective_seq_id"] for e in dumps[1]["entries"]], [1, 2])

    def test_status_socket(self):
        subprocess.run([STATUS_PROGRAM, "keep"], check=True, timeout=60, env={**os.environ, "TPCOMM_TEST_KEEP": self.folder})
        path = os.path.join(self.folder, "status.json")
        self.assertEqual(list(json_schema.check(os.path.join(ROOT, "docs/schema/status.json"), [path])), [])
        with open(path, encoding="utf-8") as file:
            worlds = json.load(file)["worlds"]
        for number, world in enumerate(worlds):
            path = os.path.join(self.folder, f"world-{number}.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"schema": "tpcomm-flight/1", **world}, file)
            self.assertEqual(list(json_schema.check(os.path.join(ROOT, "docs/schema/flight.json"), [path])), [])
        status, output = self.tool(os.path.join(self.folder, "tpcomm-flight-0.json"))
        self.assertEqual(status, 1, output)
        self.assertIn("call 21: not called by rank 1\n", output)

    # ------------------------------------------------------------ written here

    def test_agree(self):
        calls = [record(seq) for seq in range(1, 30)]
        status, output = self.write(dump(0, calls), dump(1, copy.deepcopy(calls)))
        self.assertEqual(status, 0, output)
        self.assertIn("the ranks agree as far as their records go", output)
        self.assertIn("last to arrive, of 29 calls: rank 0 48%, rank 1 51%", output)

    def test_different_order(self):
        status, output = self.write(dump(0, [record(1), record(2, coll="barrier", dtype=None, op=None, count=0), record(3, count=8)]),
                                    dump(1, [record(1), record(2, count=8), record(3, coll="barrier", dtype=None, op=None, count=0)]))
        self.assertEqual(status, 1, output)
        self.assertIn("call 2: the ranks made their calls in different orders\n", output)

    def test_records_that_are_gone(self):
        """Rank 0 has lost its first calls; that is no difference."""
        status, output = self.write(dump(0, [record(seq) for seq in range(20, 30)]), dump(1, [record(seq) for seq in range(1, 28)], last=27))
        self.assertEqual(status, 1, output)
        self.assertIn("call 28: not called by rank 1\n", output)

    def test_dump_missing(self):
        """Rank 1 left none, but rank 0 saw it at its own call: nothing says that they differ."""
        status, output = self.write(dump(0, [record(1), record(2)], rank_seq=[2, 2]))
        self.assertEqual(status, 0, output)
        self.assertIn("dumps of 1, none of rank 1", output)

    def test_first_by_time(self):
        early, late = dump(0, [record(1, count=1)]), dump(1, [record(1, count=2)])
        for one in (early, late):
            other = copy.deepcopy(one["groups"][0])
            other.update(name="later", id="2")
            other["planes"][0]["records"][0].update(created_us=1500000, path="cpu_twoshot" if one is late else "cpu_oneshot")
            one["groups"].insert(0, other)
        status, output = self.write(early, late)
        self.assertEqual(status, 1, output)
        self.assertLess(output.index("first divergence: group 'world'"), output.index("also: group 'later'"))
        self.assertIn("the ranks made different calls: count, path differ", output)

    def test_newest_counts(self):
        old = dump(1, [record(1, count=7)])
        old["written_us"] = 1
        status, output = self.write(dump(0, [record(1)]), old, dump(1, [record(1)]))
        self.assertEqual(status, 0, output)

    def test_json(self):
        self.write(dump(0, [record(1)]), dump(1, [record(1, op="max")]))
        status, output = self.tool("--json", self.folder)
        self.assertEqual(status, 1)
        finding = json.loads(output)[0]["findings"][0]
        self.assertEqual((finding["kind"], finding["seq"], finding["differ"]), ("mismatch", 1, ["op"]))

    def test_bad_input(self):
        good = dump(0, [record(1)])
        for change in ({"schema": "tpcomm-flight/2"}, {"rank": -1}, {"groups": 3}, {"groups": [{}]}, {"job": None}):
            bad = {**good, **change}
            self.assertEqual(self.write(bad)[0], 2, change)
        self.assertEqual(self.tool(os.path.join(self.folder, "none.json"))[0], 2)
        self.assertEqual(self.tool("/dev/null")[0], 0)
        for text in ("{", "[" * 100000, '{"schema":"tpcomm-flight/1"', "\x00"):
            with open(os.path.join(self.folder, "tpcomm-flight-0.json"), "w", encoding="utf-8") as file:
                file.write(text)
            status, output = self.tool(self.folder)
            self.assertEqual(status, 2, output)
            self.assertNotIn("Traceback", output)


unittest.main()
