# SPDX-License-Identifier: Apache-2.0
"""Check that `tpcomm-bench replay` runs what it drew, checks every element, finds a planted wrong one, and answers wrong use by name.

usage: replay_command.py TPCOMM_BENCH ROOT
"""
import json
import os
import pty
import subprocess
import sys
import tempfile
import threading
import unittest

BENCH, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.join(ROOT, "tools"))
import json_schema  # noqa: E402

LIMIT = 100  # seconds that nothing here comes near
HIDDEN, LAYERS, CALLS = 96, 3, 7
SMALL = {"schema": "tpcomm-histogram/1", "decode_only": {"1": 30, "5": 40, "9": 30}, "mixed": {"40": 20}}
HOT_BYTES = 25 << 20


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.json = os.path.join(self.folder, "out.json")

    def write(self, value, name="hist.json"):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(value if isinstance(value, str) else json.dumps(value))
        return path

    def bench(self, *arguments, env=None, **keywords):
        done = subprocess.run([BENCH, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT,
                              env={**os.environ, **(env or {})}, **keywords)
        return done.returncode, done.stdout, done.stderr

    def options(self, *more, histogram=None):
        return ["replay", "--histogram", self.write(histogram or SMALL), "--hidden", str(HIDDEN), "--layers", str(LAYERS), *more]

    def read(self):
        self.assertEqual(list(json_schema.check(os.path.join(ROOT, "docs/schema/replay.json"), [self.json])), [])
        with open(self.json, encoding="utf-8") as file:
            return json.load(file)

    def replay(self, *more, code=0, env=None, histogram=None):
        got, out, err = self.bench(*self.options("--json", self.json, *more, histogram=histogram), env=env)
        self.assertEqual(got, code, err)
        return self.read(), out, err

    def refused(self, piece, *arguments, code=2, env=None):
        got, out, err = self.bench(*arguments, env=env)
        self.assertEqual((got, out), (code, ""), err)
        self.assertIn(piece, err)
        return err

    # ------------------------------------------------------------ what is run

    def test_end_to_end(self):
        for ranks in (1, 2, 3):
            for threads in (False, True):
                with self.subTest(ranks=ranks, threads=threads):
                    data, out, err = self.replay("--ranks", str(ranks), "--iterations", "12", *(["--threads"] if threads else []))
                    self.assertEqual(err, "")
                    self.check_numbers(data, ranks, 12, 2)
                    self.check_table(data, out, ranks)
                    self.assertEqual(data["manifest"]["settings"]["threads"], threads)
                    pids = {rank["pid"] for rank in data["manifest"]["ranks"]}
                    self.assertEqual(len(pids), 1 if threads or ranks == 1 else ranks)

    def check_numbers(self, data, ranks, iterations, element_bytes):
        """Counts that follow from the draws."""
        self.assertEqual([size["tokens"] for size in data["sizes"]], [1, 5, 9, 40])
        self.assertEqual([size["iterations"] for size in data["sizes"]], [3, 4, 3, 2])
        self.assertEqual(len(data["iterations"]), iterations)
        self.assertEqual(sum(iteration["mixed"] for iteration in data["iterations"]), 2)
        for size in data["sizes"]:
            elements = size["tokens"] * HIDDEN
            self.assertEqual(size["bytes"], elements * element_bytes)
            self.assertEqual(size["calls"], CALLS * size["iterations"])
            # Seven calls through eight pairs of buffers leave seven outputs to check.
            self.assertEqual(size["checked"], CALLS * elements * size["iterations"] * ranks)
            self.assertEqual((size["wrong"], size["as_expected"]), (0, True), size)
            self.assertEqual(size["path_calls"], {size["path"]: size["calls"] * ranks})
            self.assertEqual(size["call_us"]["n"], size["calls"])
            for name in ("p50_us", "p95_us", "p99_us", "cv_percent"):
                self.assertIsNone(size["call_us"][name])
            self.assertIsNone(size["busbw_gbs"])
            self.assertEqual(size["path"] == "local", ranks == 1)
            self.assertEqual(size["wire_bytes_per_rank"] > 0, ranks > 1)
        for name in ("calls", "bytes"):
            self.assertAlmostEqual(sum(size[name + "_share"] for size in data["sizes"]), 1)
        split = data["split"]
        self.assertEqual([split[phase]["overall"]["iterations"] for phase in ("all", "decode", "mixed")], [12, 10, 2])
        for phase in split.values():
            self.assertEqual(phase["custom"], phase["overall"])
            self.assertEqual((phase["fallback"]["calls"], phase["fallback"]["comm_us"]["mean_us"]), (0, None))
        self.assertEqual(split["all"]["overall"]["calls"], sum(size["calls"] for size in data["sizes"]))
        self.assertEqual(split["all"]["overall"]["bytes"], sum(size["calls"] * size["bytes"] for size in data["sizes"]))
        comm = [iteration["comm_us"] for iteration in data["iterations"]]
        self.assertAlmostEqual(data["iteration_us"]["all"]["mean_us"], sum(comm) / len(comm))
        self.assertEqual(data["iteration_us"]["all"]["max_us"], max(comm))
        warmup = sum(min(w["calls"], 8) * w["tokens"] * HIDDEN * ranks for w in data["manifest"]["warmup"])
        self.assertEqual(data["checked"], {"elements": sum(size["checked"] for size in data["sizes"]) + warmup, "wrong": 0})

    def check_table(self, data, out, ranks):
        rows = [line.split() for line in out.splitlines()]
        for size in data["sizes"]:
            row = next(row for row in rows if row[:1] == [str(size["tokens"])] and len(row) == 15)
            self.assertEqual((int(row[1]), int(row[2]), row[5], row[14]), (size["bytes"], size["calls"], size["path"], "0"))
            self.assertEqual(row[12], "n/a" if ranks == 1 else "-")
        self.assertEqual("a world of one measures nothing" in out, ranks == 1)
        for piece in ("histogram", "warm-up", "why", "checked", "0 wrong", "cpu device"):
            self.assertIn(piece, out)

    def test_dtypes(self):
        for dtype, element_bytes in (("f32", 4), ("f16", 2), ("bf16", 2)):
            with self.subTest(dtype):
                data, _, _ = self.replay("--ranks", "2", "--iterations", "12", "--dtype", dtype)
                self.check_numbers(data, 2, 12, element_bytes)

    def test_forced_path(self):
        for path in ("cpu_oneshot", "cpu_twoshot"):
            data, out, _ = self.replay("--iterations", "4", "--path", path)
            self.assertEqual({size["path"] for size in data["sizes"]}, {path})
            self.assertIn("asked for by the call", out)
        self.refused("local", *self.options("--path", "local", "--iterations", "1", "--threads"))

    def test_great_messages_take_turns_in_two_buffers(self):
        code, _, err = self.bench("replay", "--histogram", self.write({**SMALL, "decode_only": {"1024": 1}, "mixed": {}}), "--hidden", "8192",
                                  "--layers", "2", "--iterations", "1", "--warmup", "3", "--threads", "--json", self.json)
        self.assertEqual(code, 0, err)
        data = self.read()
        bytes_ = 1024 * 8192 * 2
        self.assertLess(HOT_BYTES // (2 * bytes_), 2)
        self.assertEqual(data["sizes"][0]["checked"], 2 * 1024 * 8192 * 2)  # two outputs on two ranks

    def test_padding(self):
        data, out, _ = self.replay("--threads", "--iterations", "12", "--pad", "vllm")
        self.assertEqual([size["tokens"] for size in data["sizes"]], [1, 8, 16, 40])
        self.assertEqual({(i["drawn"], i["tokens"]) for i in data["iterations"]}, {(1, 1), (5, 8), (9, 16), (40, 40)})
        self.assertIn("padding", out)
        data, _, _ = self.replay("--threads", "--iterations", "12", "--pad", "8,32")
        self.assertEqual([size["tokens"] for size in data["sizes"]], [8, 32, 40])

    def test_phases(self):
        data, _, _ = self.replay("--threads", "--iterations", "10", "--phase", "decode")
        self.assertEqual({i["drawn"] for i in data["iterations"]}, {1, 5, 9})
        self.assertEqual(data["iteration_us"]["mixed"]["n"], 0)
        data, _, _ = self.replay("--threads", "--iterations", "10", "--phase", "mixed")
        self.assertEqual({(i["drawn"], i["mixed"]) for i in data["iterations"]}, {(40, True)})

    def test_seed(self):
        drawn = [[i["drawn"] for i in self.replay("--threads", "--iterations", "60", "--seed", seed)[0]["iterations"]] for seed in "778"]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        self.assertEqual(sorted(drawn[0]), sorted(drawn[2]))

    def test_calls(self):
        data, _, _ = self.replay("--threads", "--iterations", "5", "--calls-per-layer", "1", "--extra-calls", "0")
        self.assertEqual(data["manifest"]["settings"]["calls_per_iteration"], LAYERS)
        model = self.write({"schema": "tpcomm-model/1", "name": "tiny", "hidden": 64, "layers": 2, "calls_per_layer": 4}, "model.json")
        base = ["replay", "--histogram", self.write(SMALL), "--model", model, "--threads", "--iterations", "2", "--json", self.json]
        self.assertEqual(self.bench(*base)[0], 0)
        self.assertEqual(self.read()["manifest"]["settings"]["calls_per_iteration"], 9)
        self.assertEqual(self.bench(*base, "--calls-per-layer=2")[0], 0)
        self.assertEqual(self.read()["manifest"]["settings"]["calls_per_iteration"], 5)

    def test_enough_samples(self):
        """Percentiles where there are enough samples, null elsewhere."""
        data, out, _ = self.replay("--ranks", "2", "--iterations", "240")
        for size in data["sizes"]:
            n = size["call_us"]["n"]
            self.assertEqual(size["call_us"]["p50_us"] is not None, n >= 100)
            self.assertEqual(size["call_us"]["p99_us"] is not None, n >= 1000)
            if n >= 100:
                self.assertAlmostEqual(size["busbw_gbs"], size["algbw_gbs"])  # 2 (N - 1) / N is 1 for two
        self.assertIsNotNone(data["iteration_us"]["all"]["p50_us"])
        self.assertIsNone(data["iteration_us"]["mixed"]["p50_us"])

    def test_many_sizes(self):
        """A range of T in a row of the table, every size in JSON."""
        histogram = {**SMALL, "decode_only": {str(t): 1 for t in range(1, 61)}, "mixed": {}}
        data, out, _ = self.replay("--threads", "--iterations", "60", histogram=histogram)
        self.assertEqual([size["tokens"] for size in data["sizes"]], list(range(1, 61)))
        rows = [line.split() for line in out.splitlines() if len(line.split()) == 15 and line.split()[0][0].isdigit()]
        self.assertIn("17-24", [row[0] for row in rows])
        self.assertLessEqual(len(rows), 24)
        self.assertEqual(sum(int(row[2]) for row in rows), 60 * CALLS)

    def test_budget(self):
        data, out, _ = self.replay("--ranks", "2", "--budget-s", "0.3")
        settings = data["manifest"]["settings"]
        self.assertTrue(settings["iterations_by_budget"])
        self.assertGreaterEqual(settings["iterations"], 1)
        self.assertLessEqual(settings["iterations"], settings["iterations_planned"])
        self.assertEqual(len(data["iterations"]), min(settings["iterations"], 10000))
        self.assertIn("as many as fit the budget", out)

    def test_over_budget(self):
        """A run that turns out slower than the warm-up promised ends early, says so, and forgets what it never came to."""
        for _ in range(8):  # as long as the machine makes the warm-up promise next to nothing
            data, out, _ = self.replay("--ranks", "2", "--budget-s", "0.3", env={"TPCOMM_BENCH_FAULT": "late@1:200"})
            if data["manifest"]["settings"]["iterations_planned"] > 10:
                break
        done = data["manifest"]["settings"]["iterations"]
        self.assertGreaterEqual(done, 1)
        self.assertLess(done, data["manifest"]["settings"]["iterations_planned"])
        self.assertEqual(len(data["iterations"]), done)
        self.assertEqual(sum(size["iterations"] for size in data["sizes"]), done)
        self.assertTrue(all(size["calls"] for size in data["sizes"]))
        self.assertEqual(sum(rank["last_starts"] for rank in data["manifest"]["ranks"]), done)
        self.assertIn("half over the budget of 0.3 s", out)

    def test_lump(self):
        data, out, _ = self.replay("--ranks", "2", "--iterations", "12", "--lump")
        self.assertEqual(data["lump_us"]["n"], 12)
        lumps = sum(2 * CALLS * i["tokens"] * HIDDEN for i in data["iterations"])
        warmup = sum(min(w["calls"], 8) * w["tokens"] * HIDDEN * 2 for w in data["manifest"]["warmup"])
        self.assertEqual(data["checked"]["elements"], lumps + warmup + sum(size["checked"] for size in data["sizes"]))
        self.assertIn("in one message", out)

    def test_fused(self):
        """Every call with residual and norm; outputs and residuals are checked, those of the unfused form beside it too."""
        data, out, _ = self.replay("--ranks", "2", "--iterations", "12", "--fused", "--beside", "unfused")
        self.assertTrue(data["manifest"]["settings"]["fused"])
        self.assertIn("AllReduce + residual + RMSNorm per iteration", out)
        for size in data["sizes"]:
            # Seven calls leave seven outputs and seven residuals.
            self.assertEqual(size["checked"], 2 * CALLS * size["tokens"] * HIDDEN * size["iterations"] * 2)
            self.assertEqual((size["wrong"], size["path"], size["path_calls"]), (0, "fused_oneshot", {"fused_oneshot": size["calls"] * 2}))
        self.assertEqual(data["beside_us"]["n"], 12)
        warmup = sum(2 * 8 * w["tokens"] * HIDDEN * 2 for w in data["manifest"]["warmup"] if w["calls"] >= 8)
        self.assertEqual(data["checked"], {"elements": 2 * sum(size["checked"] for size in data["sizes"]) + warmup, "wrong": 0})
        data, _, _ = self.replay("--threads", "--iterations", "3", "--fused", code=1, env={"TPCOMM_BENCH_FAULT": "wrong@2:6:5"})
        self.assertEqual(data["checked"]["wrong"], 1)
        self.refused("--fused and --lump contradict", *self.options("--fused", "--lump"))
        self.refused("a norm wants a multiple of 8", "replay", "--histogram", self.write(SMALL), "--hidden", "100", "--layers", "1", "--fused")

    def test_beside(self):
        """Every iteration by another path too, in figures and a check of its own."""
        for ranks in (2, 3):
            data, out, _ = self.replay("--ranks", str(ranks), "--threads", "--iterations", "12", "--beside", "cpu_twoshot")
            self.assertEqual(data["manifest"]["settings"]["beside"], "cpu_twoshot")
            self.assertEqual((data["beside_us"]["n"], len(data["iterations"])), (12, 12))
            self.assertTrue(all(i["beside_us"] > 0 for i in data["iterations"]))
            self.assertIn("the same iterations by cpu_twoshot", out)
            # The other path's calls are in no row, and their outputs are checked too.
            sizes = sum(size["checked"] for size in data["sizes"])
            warmup = sum(min(w["calls"], 8) * w["tokens"] * HIDDEN * ranks for w in data["manifest"]["warmup"])
            self.assertEqual(data["checked"], {"elements": 2 * sizes + warmup, "wrong": 0})
            self.assertEqual({size["path"] for size in data["sizes"]}, {"cpu_oneshot"})
            for size in data["sizes"]:
                self.assertEqual(size["path_calls"], {"cpu_oneshot": size["calls"] * ranks})
        data, _, _ = self.replay("--threads", "--iterations", "2")
        self.assertIsNone(data["beside_us"])
        self.refused("--beside tcp: allowed are auto, none and", *self.options("--beside", "tcp"))
        self.refused("only a group of one rank", *self.options("--beside", "local", "--iterations", "1", "--threads"))

    # ------------------------------------------------------------ faults

    def test_wrong_element(self):
        for mode in ([], ["--threads"]):
            data, out, err = self.replay("--ranks", "2", "--iterations", "6", *mode, code=1, env={"TPCOMM_BENCH_FAULT": "wrong@2:6:5"})
            self.assertRegex(err, r"rank 1: iteration 2, T \d+, call 6: 1 wrong elements, the first is element 5: 0x")
            self.assertIn("1 of ", err)
            self.assertEqual(data["checked"]["wrong"], 1)
            self.assertEqual(sum(size["wrong"] for size in data["sizes"]), 1)
            self.assertIn("1 wrong", out)
            self.assertIn("faults are planted", out)

    def test_slow_first_call_and_late_rank(self):
        """A first call 200 ms slower and a rank 50 ms late each round show apart from the times of the calls."""
        for _ in range(8):  # as long as the machine makes rank 0 as late as that, in one round of 16
            data, out, _ = self.replay("--ranks", "2", "--iterations", "16", "--phase", "decode",
                                       env={"TPCOMM_BENCH_FAULT": "slow@0:200;late@1:50"})
            if data["skew"]["start_us"]["min_us"] >= 25000 and data["manifest"]["ranks"][0]["last_starts"] == 0:
                break
        self.assertGreaterEqual(data["manifest"]["warmup"][0]["first_us"], 200000)
        self.assertLess(data["manifest"]["warmup"][0]["median_us"], 50000)
        self.assertGreaterEqual(data["skew"]["start_us"]["min_us"], 25000)
        self.assertEqual([rank["last_starts"] for rank in data["manifest"]["ranks"]], [0, 16])
        calls = [iteration["comm_us"] / CALLS for iteration in data["iterations"]]
        self.assertLess(sorted(calls)[8], 25000)
        self.assertRegex(out, r"start skew .*rank 1 100%")
        self.assertIn("not counted", out)

    def test_rank_dies(self):
        code, out, err = self.bench(*self.options("--ranks", "3", "--iterations", "6"), env={"TPCOMM_BENCH_FAULT": "die@1:3"})
        self.assertIn(code, (3, 9))
        self.assertEqual(out, "")
        self.assertIn("rank 1", err)

    def test_bad_fault(self):
        self.refused("TPCOMM_BENCH_FAULT=wrong@1", *self.options(), env={"TPCOMM_BENCH_FAULT": "wrong@1"})

    # ------------------------------------------------------------ wrong use

    def test_empty_phase(self):
        path = self.write({**SMALL, "mixed": {}})
        self.refused("mixed holds no iterations", "replay", "--histogram", path, "--hidden", "8", "--layers", "1", "--phase", "mixed")
        path = self.write({**SMALL, "decode_only": {}})
        self.refused("decode_only holds no iterations", "replay", "--histogram", path, "--hidden", "8", "--layers", "1", "--phase", "decode")
        path = self.write({**SMALL, "decode_only": {}, "mixed": {}})
        self.refused("no iteration here nor under mixed", "replay", "--histogram", path, "--hidden", "8", "--layers", "1")

    def test_refused(self):
        histogram = self.write(SMALL)
        for piece, arguments in (
                ("--histogram", ["replay"]),
                ("nowhere.json", ["replay", "--histogram", "nowhere.json", "--hidden", "8", "--layers", "1"]),
                ("both --hidden H and --layers L", ["replay", "--histogram", histogram]),
                ("both --hidden H and --layers L", ["replay", "--histogram", histogram, "--hidden", "8"]),
                ("contradict", self.options("--model", "llama-3.1-8b")),
                ("llama-3.1-8b", ["replay", "--histogram", histogram, "--model", "llama-3.1-8"]),
                ("--ranks 33", self.options("--ranks", "33")),
                ("--dtype i8", self.options("--dtype", "i8")),
                ("--pad 8,x", self.options("--pad", "8,x")),
                ("must ascend", self.options("--pad", "8,4")),
                ("--seed -1", self.options("--seed=-1")),
                ("--iterations 0", self.options("--iterations", "0")),
                ("no CUDA device", self.options("--device", "cuda")),
                ("CUDA graph", self.options("--mode", "graph")),
                ("no call", self.options("--calls-per-layer", "0", "--extra-calls", "0")),
                ("cannot write there", self.options("--json", os.path.join(self.folder, "no", "out.json"))),
                ("over the limit", ["replay", "--histogram", histogram, "--hidden", "1", "--layers", "65536", "--iterations", "100000"]),
                ("--frob", self.options("--frob"))):
            with self.subTest(arguments):
                self.assertEqual(self.refused(piece, *arguments).count("\n"), 1)

    def test_help(self):
        code, out, _ = self.bench("replay", "--help")
        self.assertEqual(code, 0)
        self.assertIn("--calls-per-layer", out)

    # ------------------------------------------------------------ launchers

    def test_under_a_launcher(self):
        code, out, err = self.bench("run", "-n", "3", "--", BENCH, *self.options("--iterations", "12", "--json", self.json))
        self.assertEqual((code, err), (0, ""))
        self.assertEqual({line[:4] for line in out.splitlines()}, {"[0] "})
        self.check_numbers(self.read(), 3, 12, 2)
        code, _, err = self.bench("run", "-n", "3", "--", BENCH, *self.options("--ranks", "2"))
        self.assertEqual(code, 2)
        self.assertIn("--ranks 2 contradicts the launcher: TPCOMM_SIZE=3", err)
        code, _, err = self.bench("run", "-n", "2", "--", BENCH, *self.options("--threads"))
        self.assertEqual(code, 2)
        self.assertIn("--threads", err)
        code, out, err = self.bench("run", "-n", "1", "--", BENCH, *self.options("--iterations", "1"))
        self.assertEqual((code, err), (0, ""))
        self.assertIn("1 rank ", out)

    def test_launcher_without_a_way_to_meet(self):
        """Never a world of one with nonsense figures."""
        self.refused("TPCOMM_SIZE", *self.options(), env={"TPCOMM_RANK": "0"})
        self.refused("RANK", *self.options(), env={"WORLD_SIZE": "2"})
        for rank in "01":
            code, out, err = self.bench(*self.options(), env={"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2",
                                                              "TPCOMM_INIT_TIMEOUT_MS": "500",
                                                              "TPCOMM_JOB_ID": f"nobody-{os.getpid()}-{rank}"})  # else another run of this test
            self.assertIn(code, (2, 3))
            self.assertEqual(out, "")
            self.assertIn("tpcomm-bench replay: ", err)

    def test_ranks_of_different_mind(self):
        code = ("import os, sys; arguments = sys.argv[1:] + ['--seed', os.environ['TPCOMM_RANK']]; os.execv(arguments[0], arguments)")
        got, out, err = self.bench("run", "-n", "2", "--", sys.executable, "-c", code, BENCH, *self.options())
        self.assertEqual(got, 3)
        self.assertEqual(out, "")
        self.assertIn("different options", err)

    def test_progress_on_a_terminal_only(self):
        master, slave = pty.openpty()
        seen = []

        def read():
            while True:
                try:
                    piece = os.read(master, 4096)
                except OSError:
                    return
                if not piece:
                    return
                seen.append(piece)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            done = subprocess.run([BENCH, *self.options("--ranks", "2", "--iterations", "6")], stdout=subprocess.PIPE, stderr=slave,
                                  text=True, timeout=LIMIT, env={**os.environ, "TPCOMM_BENCH_FAULT": "late@1:100"})
        finally:
            os.close(slave)
        reader.join(LIMIT)
        os.close(master)
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"replay: iteration ", b"".join(seen))
        self.assertNotIn("replay: iteration ", done.stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
