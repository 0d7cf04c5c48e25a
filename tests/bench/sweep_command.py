# SPDX-License-Identifier: Apache-2.0
"""Check that `tpcomm-bench sweep` measures every size, dtype, reduction, path and place it was asked for, checks every element, finds a
planted wrong one, keeps a slow first call and a late rank out of its figures, and answers wrong use by name.

usage: sweep_command.py TPCOMM_BENCH ROOT
"""
import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BENCH, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.join(ROOT, "tools"))
import json_schema  # noqa: E402

LIMIT = 100  # seconds that nothing here comes near
QUICK = ["--device", "cpu", "-w", "2"]
PLACES = ("out_of_place", "in_place")


class Sweep(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.json = os.path.join(self.folder, "out.json")

    def bench(self, *arguments, env=None):
        done = subprocess.run([BENCH, "sweep", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT,
                              env={**os.environ, **(env or {})})
        return done.returncode, done.stdout, done.stderr

    def read(self, path=None, schema="sweep"):
        path = path or self.json
        self.assertEqual(list(json_schema.check(os.path.join(ROOT, f"docs/schema/{schema}.json"), [path])), [])
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    def sweep(self, *more, code=0, env=None, samples=20):
        got, out, err = self.bench(*QUICK, "-n", str(samples), "--json", self.json, *more, env=env)
        self.assertEqual(got, code, err)
        return self.read(), out, err

    def refused(self, piece, *arguments, code=2, env=None):
        got, out, err = self.bench(*arguments, env=env)
        self.assertEqual((got, out), (code, ""), err)
        self.assertIn(piece, err)

    # ------------------------------------------------------------ what is run

    def check_rows(self, data, ranks, pairs=8):
        elements = 0
        for row in data["rows"]:
            for place in PLACES:
                measured = row[place]
                if measured is None:
                    continue
                self.assertEqual((measured["wrong"], measured["as_expected"]), (0, True), row)
                self.assertEqual(measured["us"]["n"], 20)
                self.assertIsNone(measured["us"]["p50_us"])  # 20 samples are too few
                self.assertGreater(measured["us"]["mean_us"], 0)
                self.assertIsNone(measured["host_us"])  # on the cpu device it is the call's time
                self.assertEqual(measured["path_calls"], {row["path"]: measured["calls"]})
                elements += measured["checked"]
        self.assertEqual(data["checked"], {"elements": elements, "wrong": 0})
        self.assertGreater(elements, 0)

    def test_all_reduce(self):
        for ranks, how in ((1, []), (2, ["--processes"]), (3, ["--threads"])):
            with self.subTest(ranks=ranks, how=how):
                data, out, err = self.sweep("--ranks", str(ranks), "-b", "1K", "-e", "16K", "-f", "4", "-d", "bf16,f32", *how)
                self.assertEqual(err, "")
                self.assertEqual([(row["dtype"], row["bytes"]) for row in data["rows"]],
                                 [(d, b) for d in ("bf16", "f32") for b in (1024, 4096, 16384)])
                self.check_rows(data, ranks)
                for row in data["rows"]:
                    self.assertEqual(row["count"] * (2 if row["dtype"] == "bf16" else 4), row["bytes"])
                    self.assertEqual(row["path"] == "local", ranks == 1)
                    # Every round two calls are timed and leave two outputs; in place sixteen calls leave eight.
                    self.assertEqual(row["out_of_place"]["checked"], 10 * 2 * row["count"] * ranks)
                    self.assertEqual(row["in_place"]["checked"], 10 * 8 * row["count"] * ranks)
                    for place in PLACES:
                        us, bandwidth = row[place]["us"]["mean_us"], row[place]["algbw_gbs"]
                        self.assertAlmostEqual(bandwidth, row["bytes"] / us / 1000)
                        if ranks == 1:
                            self.assertIsNone(row[place]["busbw_gbs"])
                        else:
                            self.assertAlmostEqual(row[place]["busbw_gbs"], bandwidth * 2 * (ranks - 1) / ranks)
                self.check_table(data, out, ranks)
                self.assertEqual(len({rank["pid"] for rank in data["manifest"]["ranks"]}), ranks if how == ["--processes"] else 1)

    def check_table(self, data, out, ranks):
        rows = [line.split() for line in out.splitlines()]
        for row in data["rows"]:
            line = next(line for line in rows if line[:3] == [str(row["bytes"]), str(row["count"]), row["dtype"]])
            self.assertEqual(line[3:6], ["sum", "-", row["path"]])
            self.assertEqual((line[9], line[13]), ("0", "0"))
            self.assertEqual(line[8] == "n/a", ranks == 1)
        for piece in ("out-of-place", "in-place", "algbw", "busbw", "#wrong", "p50", "checked", "0 wrong", "cpu device"):
            self.assertIn(piece, out)

    def test_other_collectives(self):
        for op, factor in (("broadcast", 1), ("all_gather", 2 / 3), ("reduce_scatter", 2 / 3)):
            with self.subTest(op):
                data, _, _ = self.sweep("--op", op, "--ranks", "3", "--threads", "-b", "999", "-e", "3K", "-i", "2K", "-d", "f16", "--root", "2")
                self.check_rows(data, 3)
                parts = 1 if op == "broadcast" else 3
                self.assertEqual([row["count"] for row in data["rows"]], [999 // 2 // parts, (999 + 2048) // 2 // parts])
                for row in data["rows"]:
                    self.assertEqual(row["bytes"], row["count"] * 2 * parts)
                    self.assertEqual((row["root"], row["redop"]), (2 if op == "broadcast" else None, "sum" if op == "reduce_scatter" else None))
                    self.assertAlmostEqual(row["out_of_place"]["busbw_gbs"], row["out_of_place"]["algbw_gbs"] * factor)
        data, out, _ = self.sweep("--op", "barrier", "--ranks", "3", "--threads")
        self.assertEqual([(row["bytes"], row["dtype"], row["in_place"]) for row in data["rows"]], [(0, None, None)])
        self.assertEqual(data["checked"], {"elements": 10 * 3, "wrong": 0})

    def test_every_reduction(self):
        """Each reduction of each dtype that is defined, also repeated in place, against the bench's own arithmetic."""
        floats = ("f32", "f16", "bf16", "f64")
        dtypes = floats + ("i8", "u8", "i32", "i64", "u32", "u64")
        for op in ("all_reduce", "reduce_scatter"):
            data, _, _ = self.sweep("--op", op, "--ranks", "3", "--threads", "-b", "6000", "-e", "6000", "-d", ",".join(dtypes), "-o",
                                    "sum,avg,max,min,prod")
            self.check_rows(data, 3)
            self.assertEqual({(row["dtype"], row["redop"]) for row in data["rows"]},
                             {(d, o) for d in dtypes for o in ("sum", "avg", "max", "min", "prod") if o != "avg" or d in floats})

    def test_norm(self):
        """AllReduce + residual + RMSNorm by both paths: whole rows, and every output and residual as the bench works it out."""
        data, out, _ = self.sweep("--op", "all_reduce_rms_norm", "--hidden", "264", "--ranks", "3", "--threads", "-b", "1000", "-e", "4000", "-f",
                                  "4", "-d", "bf16,f16,f32", "--path", "auto,fused_oneshot,unfused")
        self.check_rows(data, 3)
        self.assertEqual({(row["dtype"], row["count"]) for row in data["rows"]},
                         {("bf16", 264), ("bf16", 7 * 264), ("f16", 264), ("f16", 7 * 264), ("f32", 3 * 264)})
        for row in data["rows"]:
            self.assertEqual((row["hidden"], row["in_place"]), (264, None))
            # Sixteen calls leave eight outputs and eight residuals.
            self.assertEqual(row["out_of_place"]["checked"], 10 * 16 * row["count"] * 3)
        self.assertEqual([row["path"] for row in data["rows"][:3]], ["fused_oneshot", "fused_oneshot", "unfused"])
        self.assertIn("rows of 264, with a residual", out)
        data, _, _ = self.sweep("--op", "all_reduce_rms_norm", "--hidden", "64", "--threads", "-b", "128", "-e", "256", code=1,
                                env={"TPCOMM_BENCH_FAULT": "wrong@1:0:5"})
        self.assertEqual((data["checked"]["wrong"], data["rows"][1]["out_of_place"]["wrong"]), (1, 1))
        self.refused("a row is a multiple of 8", "--op", "all_reduce_rms_norm", "--hidden", "12")
        self.refused("--redop max: all_reduce_rms_norm is a sum", "--op", "all_reduce_rms_norm", "-o", "max")
        self.refused("--place in: all_reduce_rms_norm is measured out of place", "--op", "all_reduce_rms_norm", "--place", "in")
        self.refused("holds a row of --hidden", "--device", "cpu", "--threads", "--op", "all_reduce_rms_norm", "--hidden", "4096", "-e", "8191")
        self.refused("nothing to run", "--device", "cpu", "--threads", "--op", "all_reduce_rms_norm", "-d", "i32")

    def test_great_messages_take_turns_in_two_buffers(self):
        data, _, _ = self.sweep("--threads", "-b", "16M", "-e", "16M")
        row = data["rows"][0]
        self.assertEqual(row["buffers"], "cold")
        self.assertEqual(row["out_of_place"]["checked"], 10 * 2 * row["count"] * 2)

    def test_paths_by_turns(self):
        data, out, _ = self.sweep("--threads", "-b", "4K", "-e", "4K", "--path", "auto,cpu_oneshot,cpu_twoshot,local", samples=1000)
        self.assertEqual([row["path_asked"] for row in data["rows"]], ["auto", "cpu_oneshot", "cpu_twoshot", "local"])
        self.assertEqual([row["path"] for row in data["rows"]], ["cpu_oneshot", "cpu_oneshot", "cpu_twoshot", None])
        self.assertIn("only a group of one rank", data["rows"][3]["refused"])
        self.assertIn("n/a", out)
        first = data["rows"][0]
        for row in data["rows"][:3]:
            for place in PLACES:
                us, unstable = row[place]["us"], row[place]["unstable"] or first[place]["unstable"]
                self.assertEqual((us["n"], us["p99_us"] is not None), (1000, True))
                self.assertEqual(row[place]["unstable"], us["cv_percent"] > 5)
                self.assertEqual(row[place]["ratio_to_first"], None if unstable else us["p50_us"] / first[place]["us"]["p50_us"])
        # An unstable figure has no ratio.
        told = [line.split()[-1] for line in out.splitlines() if line.split()[:1] == ["4096"] and "n/a" not in line]
        self.assertEqual(["unstable" == ratio for ratio in told],
                         [row["out_of_place"]["unstable"] or first["out_of_place"]["unstable"] for row in data["rows"][:3]])

    def test_places(self):
        for place, kept in (("out", "out_of_place"), ("in", "in_place")):
            data, out, _ = self.sweep("--threads", "-b", "1K", "-e", "1K", "--place", place)
            self.assertEqual([name for name in PLACES if data["rows"][0][name]], [kept])
            self.assertIn(kept.replace("_", "-"), out)
            self.check_rows(data, 2)

    def test_samples_fit_the_time(self):
        _, _, err = self.bench("--device", "cpu", "--threads", "-b", "1K", "-e", "1K", "--row-ms", "1", "--json", self.json)
        self.assertEqual(err, "")
        for place in PLACES:
            self.assertTrue(20 <= self.read()["rows"][0][place]["us"]["n"] <= 1000)

    def test_verify_path(self):
        self.sweep("--threads", "-b", "1K", "-e", "64K", "--verify-path")

    def test_cold(self):
        """Cold buffers: every call of a batch has a pair of its own; the results are the same."""
        data, out, _ = self.sweep("--threads", "-b", "1K", "-e", "4K", "-f", "4", "--cold")
        self.check_rows(data, 2)
        self.assertTrue(data["manifest"]["settings"]["cold"])
        self.assertIn("cold buffers", out)
        for row in data["rows"]:
            self.assertEqual(row["buffers"], "cold")
            # Two calls a round leave two outputs; in place 2 x 128 leave 128.
            self.assertEqual(row["out_of_place"]["checked"], 10 * 2 * row["count"] * 2)
            self.assertEqual(row["in_place"]["checked"], 10 * 128 * row["count"] * 2)

    def test_chain(self):
        """What is written right before a call and read right behind it is right; its time is told with and without the call."""
        data, out, _ = self.sweep("--threads", "-b", "1K", "-e", "4K", "-f", "4", "--chain", "--path", "auto,cpu_twoshot", samples=100)
        for row in data["rows"]:
            chain = row["chain"]
            self.assertEqual((chain["checked"], chain["wrong"]), (10 * 8 * row["count"] * 2, 0))
            self.assertEqual(chain["us"]["n"], 100)
            self.assertAlmostEqual(chain["extra_us"], chain["us"]["p50_us"] - chain["without_call_us"]["p50_us"])
        self.assertIn("in a chain", out)
        data, _, err = self.sweep("--threads", "-b", "1K", "-e", "1K", "--chain", code=1, env={"TPCOMM_BENCH_FAULT": "wrong@0:2:5"})
        self.assertEqual((data["checked"]["wrong"], data["rows"][0]["chain"]["wrong"]), (1, 1))
        self.assertIn("in a chain", err)
        for op in ("all_gather", "reduce_scatter", "broadcast"):
            data, _, _ = self.sweep("--op", op, "--ranks", "3", "--threads", "-b", "3000", "-e", "3000", "--chain")
            self.assertEqual(data["rows"][0]["chain"]["wrong"], 0)
            self.assertGreater(data["rows"][0]["chain"]["checked"], 0)
        data, _, _ = self.sweep("--op", "all_reduce_rms_norm", "--hidden", "64", "--threads", "-b", "128", "-e", "256", "--chain", "--cold")
        self.assertEqual([row["chain"]["wrong"] for row in data["rows"]], [0, 0])
        self.refused("--chain: a call with data", "--chain", "--op", "barrier")
        self.refused("--chain: a call with data, out of place", "--chain", "--place", "in")

    def test_arrivals_and_footprint(self):
        """The cpu device tells of waits by the library's counters, and has no kernels."""
        data, out, _ = self.sweep("--threads", "-b", "1K", "-e", "1K", "--arrivals", "--footprint", env={"TPCOMM_BENCH_FAULT": "late@1:20"})
        row = data["rows"][0]
        self.assertEqual((row["footprint"], row["gemm_beside"], row["arrivals"], row["chain"], row["nccl"]), (None,) * 5)
        for place in PLACES:
            self.assertGreater(row[place]["wait_us"], 0)
            self.assertGreaterEqual(row[place]["skew_us"], 0)
        for piece in ("arrivals at a call by the library's counters", "the cpu device has no kernels"):
            self.assertIn(piece, out)

    def test_nccl_where_there_is_none(self):
        data, out, _ = self.sweep("--threads", "-b", "1K", "-e", "1K", "--path", "auto,nccl_direct,nccl_window", "--nccl-evidence")
        self.assertEqual([row["path_asked"] for row in data["rows"]], ["auto", "nccl_direct", "nccl_window"])
        for row in data["rows"][1:]:
            self.assertEqual((row["refused"], row["path"], row["out_of_place"]), ("NCCL works on GPUs", None, None))
        self.assertEqual((data["manifest"]["settings"]["nccl_direct"], data["manifest"]["settings"]["nccl_transports"]), ("NCCL works on GPUs", None))
        self.assertIn("the log names none", out)

    def test_cycles(self):
        code, out, err = self.bench(*QUICK, "-n", "20", "--threads", "-b", "1K", "-e", "2K", "--cycles", "3", "--json", self.json)
        self.assertEqual((code, err), (0, ""))
        data = self.read(schema="sweep-cycles")
        self.assertEqual((data["cycles"], len(data["rows"])), (3, 4))
        pids = set()
        for cycle in (1, 2, 3):
            one = self.read(os.path.join(self.folder, f"out.cycle{cycle}.json"))
            pids.add(one["manifest"]["ranks"][0]["pid"])
            for row in data["rows"]:
                source = next(r for r in one["rows"] if r["bytes"] == row["bytes"])
                self.assertEqual(row["cycle_us"][cycle - 1], source[row["place"]]["us"]["mean_us"])
        self.assertEqual(len(pids), 3)
        self.assertEqual([row["median_us"] for row in data["rows"]], [sorted(row["cycle_us"])[1] for row in data["rows"]])
        self.assertIn("3 cycles", out)

    def test_cycles_under_a_launcher(self):
        for launcher in ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}, {"PMI_RANK": "0", "PMI_SIZE": "3"},
                         {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, {"TPCOMM_RANK": "0", "TPCOMM_SIZE": "1"}):
            self.refused("--cycles starts its ranks itself: not under a launcher", "--device", "cpu", "--cycles", "2", env=launcher)

    def test_cycles_end_with_their_starter(self):
        """A signal to the process that the user knows ends the cycle in work, whose ranks are processes, and nothing stays in /tmp."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            mark = f"--seed={number.value}{os.getpid()}"
            starter = subprocess.Popen([BENCH, "sweep", "--device", "cpu", "-n", "1000000", mark, "--cycles", "2"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            self.wait_until(lambda: len(self.commands(mark)) >= 4)  # starter, cycle, supervisor, a rank
            folders = {os.path.dirname(word) for command in self.commands(mark) for word in command if word.startswith("/tmp/tpcomm-sweep-")}
            self.assertEqual([os.path.isdir(folder) for folder in folders], [True])
            starter.send_signal(number)
            self.assertEqual(starter.wait(LIMIT), 143 if number == signal.SIGTERM else -number)
            self.wait_until(lambda: not self.commands(mark))
            left = [folder for folder in folders if os.path.isdir(folder)]
            for folder in left:
                os.rmdir(folder)
            self.assertEqual(bool(left), number == signal.SIGKILL)  # which nobody can clean up after

    @staticmethod
    def commands(mark):
        """Command lines that hold a word, as lists."""
        found = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            with contextlib.suppress(OSError), open(path, "rb") as file:
                found.append(file.read().decode(errors="replace").split("\0"))
        return [command for command in found if mark in command]

    def wait_until(self, done):
        end = time.monotonic() + LIMIT
        while not done():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    # ------------------------------------------------------------ faults

    def sweep_undisturbed(self, is_disturbed, *more, env):
        """One of some sweeps in which the machine keeps no rank from its processor for as long as the planted delay."""
        for _ in range(8):
            measured = self.sweep(*more, env=env)[0]
            if not is_disturbed(measured["rows"][0]["out_of_place"]["us"]):
                break
        return measured

    def test_wrong_element(self):
        """One planted wrong element, out of place or in place, is found, named, counted and fatal."""
        for variant, place in enumerate(PLACES):
            data, _, err = self.sweep("--threads", "-b", "1K", "-e", "2K", code=1, env={"TPCOMM_BENCH_FAULT": f"wrong@1:{variant}:5"})
            self.assertEqual((data["checked"]["wrong"], data["rows"][1][place]["wrong"]), (1, 1))
            self.assertRegex(err, r"rank 1: all_reduce of 1024 bf16.*: 1 wrong elements, the first is element 5: 0x5555, want 0x")
            self.assertIn("1 of ", err)

    def test_slow_first_call(self):
        data = self.sweep_undisturbed(lambda us: us["max_us"] >= 200000, "--threads", "-b", "1K", "-e", "1K", "--place", "out",
                                      env={"TPCOMM_BENCH_FAULT": "slow@0:200"})
        measured = data["rows"][0]["out_of_place"]
        self.assertGreaterEqual(measured["first_us"], 200000)
        self.assertLess(measured["us"]["max_us"], 200000)
        self.assertTrue(any("faults are planted" in caveat for caveat in data["caveats"]))

    def test_late_rank(self):
        data = self.sweep_undisturbed(lambda us: us["mean_us"] >= 50000, "--threads", "-b", "1K", "-e", "1K", "--place", "out",
                                      env={"TPCOMM_BENCH_FAULT": "late@1:50"})
        self.assertLess(data["rows"][0]["out_of_place"]["us"]["mean_us"], 50000)

    def test_dead_rank(self):
        code, _, err = self.bench(*QUICK, "-n", "20", "-b", "1K", "-e", "2K", env={"TPCOMM_BENCH_FAULT": "die@1:1"})
        self.assertNotEqual(code, 0)
        self.assertIn("rank 1", err)

    # ------------------------------------------------------------ wrong use

    def test_wrong_use(self):
        self.refused("--dtype bf17: there is no bf17; allowed is one of f32 f16 bf16", "-d", "bf17")
        self.refused("--path foo: there is no foo; allowed is one of auto oneshot", "--path", "foo")
        self.refused("--dtype bf16,: there is no empty name", "-d", "bf16,")
        self.refused("--path auto,auto: auto stands twice", "--path", "auto,auto")
        self.refused("--redop summ: there is no summ", "-o", "summ")
        self.refused("--minbytes 1X: allowed are whole numbers, also with K, M or G", "-b", "1X")
        self.refused("--maxbytes 1K is below --minbytes 2K", "-b", "2K", "-e", "1K")
        self.refused("says nothing", "-b", "0")
        self.refused("nothing to run", "--device", "cpu", "--threads", "-b", "1", "-e", "1")
        self.refused("nothing to run", "--device", "cpu", "--threads", "-d", "i32", "-o", "avg")
        self.refused("over 4096 rows", "--device", "cpu", "--threads", "-b", "2", "-e", "1M", "-i", "2")
        self.refused("--root 2: the ranks are 0 to 1", "--device", "cpu", "--threads", "--op", "broadcast", "--root", "2")
        self.refused("--threads and --processes contradict", "--threads", "--processes")
        self.refused("--json /nowhere/x.json: cannot write there", "--json", "/nowhere/x.json")
        self.refused("a CUDA graph needs a CUDA device", "--device", "cpu", "--mode", "graph")
        self.refused("--devices 0,x", "--devices", "0,x")
        self.refused("--devices 0,0: ", "--device", "cpu", "--devices", "0,0")
        self.refused(f"--json {self.folder}: cannot write there: Is a directory", "--json", self.folder)
        self.refused(f"--json {__file__}/x.json: cannot write there: Not a directory", "--json", f"{__file__}/x.json")
        self.refused("unknown option -g: nccl-tests' GPUs of a thread; here --ranks N", "-b", "8", "-e", "128M", "-f", "2", "-g", "2")
        self.refused("unknown option -c: nccl-tests' check", "-c", "1")
        self.refused("contradicts the launcher: TPCOMM_SIZE=2", "--device", "cpu", "--ranks", "3", env={"TPCOMM_RANK": "0", "TPCOMM_SIZE": "2"})

    def test_different_options(self):
        """Ranks of a launcher that were started with different options say so."""
        script = f'exec "{BENCH}" sweep --device cpu -n 20 -b 1K -e "$((TPCOMM_RANK + 1))K"'
        done = subprocess.run([BENCH, "run", "-n", "2", "--", "sh", "-c", script], capture_output=True, text=True, timeout=LIMIT)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("different options: rank 0 with \"sweep --device cpu -n 20 -b 1K -e 1K\", rank 1 with \"sweep --device cpu -n 20 -b 1K -e 2K\"",
                      done.stderr)
        for rank in (0, 1):  # each by its own number, also before there is a manifest
            self.assertIn(f"tpcomm-bench sweep: rank {rank}: TPCOMM_ERR_CONFIG_MISMATCH", done.stderr)

    def test_options_of_no_effect(self):
        """What was asked for and changes nothing is told."""
        _, out, _ = self.sweep("--threads", "-b", "1k", "-e", "1k", "--op", "all_gather", "-o", "max", "-r", "1", "--row-ms", "7")
        self.assertIn("of no effect here: --row-ms, --redop, --root\n", out)
        _, out, _ = self.sweep("--threads", "--op", "barrier", "--place", "in", "-d", "f32")
        self.assertIn("of no effect here: --dtype, --place\n", out)
        _, out, _ = self.sweep("--threads", "-b", "1K", "-e", "1K", "-o", "max", "-f", "4")
        self.assertNotIn("of no effect", out)

    def test_nothing_checked(self):
        code, _, err = self.bench(*QUICK, "--threads", "-b", "1K", "-e", "1K", "-n", "20", "--path", "local")
        self.assertEqual((code, err), (1, "tpcomm-bench sweep: nothing was checked: no measurement could be made\n"))

    def test_help(self):
        code, out, _ = self.bench("--help")
        self.assertEqual(code, 0)
        for piece in ("-b, --minbytes", "-f, --stepfactor", "--verify-path", "--cycles", "--cold", "--chain", "--footprint", "--arrivals", "--nccl-evidence"):
            self.assertIn(piece, out)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
