# SPDX-License-Identifier: Apache-2.0
"""Check that `tpcomm-bench tune` writes a tuning file that the library reads and obeys, `tpcomm-bench pairs` measures every pair, and
both answer wrong use by name; and that a table measured elsewhere is refused with the reason.

usage: tune_command.py TPCOMM_BENCH ROOT
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

BENCH, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.join(ROOT, "tools"))
import json_schema  # noqa: E402

LIMIT = 100  # seconds that nothing here comes near
QUICK = ["--device", "cpu", "--threads", "-w", "2"]


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = os.path.join(folder.name, "out.json")

    def bench(self, *arguments, env=None):
        done = subprocess.run([BENCH, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT,
                              env={**os.environ, **(env or {})})
        return done.returncode, done.stdout, done.stderr

    def read(self, schema):
        self.assertEqual(list(json_schema.check(os.path.join(ROOT, f"docs/schema/{schema}.json"), [self.file])), [])
        with open(self.file, encoding="utf-8") as file:
            return json.load(file)

    def refused(self, piece, *arguments, code=2, env=None):
        got, out, err = self.bench(*arguments, env=env)
        self.assertEqual((got, out), (code, ""), err)
        self.assertIn(piece, err)

    # ------------------------------------------------------------ tune

    def tune(self, *more, code=0, env=None, sizes=("1K", "64K", "8")):
        got, out, err = self.bench("tune", *QUICK, "--output", self.file, "-b", sizes[0], "-e", sizes[1], "-f", sizes[2], "-n", "100", *more, env=env)
        self.assertEqual(got, code, err)
        return out, err

    def sweep(self, size, ranks=2, dtype="bf16"):
        """The library's choice for one message under the file, as it explains it."""
        path = self.file + ".sweep"
        code, _, err = self.bench("sweep", *QUICK, "--ranks", str(ranks), "-d", dtype, "-b", str(size), "-e", str(size), "-n", "20", "--place",
                                  "out", "--verify-path", "--json", path, env={"TPCOMM_TUNING_FILE": self.file})
        self.assertEqual(code, 0, err)
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        return data["rows"][0], data["manifest"]["library"]["tuning"]

    def check_file(self, data, groups, dtypes, ranks):
        self.assertEqual((data["device"], data["world_size"], data["topology"]), ("cpu", ranks, "cpu"))
        self.assertNotIn("nccl_version", data)
        curves = data["manifest"]["curves"]
        self.assertEqual([(c["ranks"], c["dtype"], c["mode"]) for c in curves], [(g, d, "eager") for g in groups for d in dtypes])
        for curve in curves:
            self.assertEqual([point["bytes"] for point in curve["points"]], [1024, 8192, 65536])
            for point in curve["points"]:
                self.assertEqual((set(point["p50_us"]), set(point["cv_percent"]), point["samples"]),
                                 ({"cpu_oneshot", "cpu_twoshot"}, {"cpu_oneshot", "cpu_twoshot"}, 100))
            rows = [row for row in data["rows"] if (row["ranks"], row["dtype"]) == (curve["ranks"], curve["dtype"])]
            self.assertEqual(len(rows), 1 + len(curve["switches"]))
            end = -1
            for row in rows:  # the ranges cover every size once
                self.assertEqual((row["bytes_min"], row["source"], row["topology"]), (end + 1, "measured", "cpu"))
                self.assertNotIn("capturing", row)
                end = row.get("bytes_max", -2)
            self.assertEqual(end, -2)
            for switch, row in zip(curve["switches"], rows[1:]):
                self.assertEqual((switch["to"], switch["bytes"]), (row["path"], row["bytes_min"]))
                self.assertGreater(switch["gain_percent"], 3)

    def test_tune_and_use(self):
        out, _ = self.tune("--ranks", "3", "--groups", "2,3", "-d", "bf16,f32")
        data = self.read("tuning")
        self.check_file(data, (2, 3), ("bf16", "f32"), 3)
        for piece in ("2 ranks, cpu, bf16", "3 ranks, cpu, f32", "* is chosen", "0 wrong", "TPCOMM_TUNING_FILE"):
            self.assertIn(piece, out)
        # The library reads it and does what it says.
        rows = [row for row in data["rows"] if (row["ranks"], row["dtype"]) == (3, "f32")]
        for size in (1024, 65536):
            row, tuning = self.sweep(size, 3, "f32")
            want = next(r for r in rows if r["bytes_min"] <= size <= r.get("bytes_max", size))
            self.assertEqual((row["path"], row["source"], tuning), (want["path"], "measured", self.file))
            self.assertIn("tuning file's row", row["reason"])
            self.assertAlmostEqual(row["expected_us"], want["base_us"] + size / 2**20 * want["per_mib_us"], places=2)

    def test_ops(self):
        """Other collectives, fused against unfused among them: curves of their own paths, rows that the library obeys."""
        out, _ = self.tune("--op", "all_reduce_rms_norm,reduce_scatter,broadcast", "--hidden", "512", "-d", "bf16,f32", sizes=("1K", "16K", "4"))
        data = self.read("tuning")
        curves = data["manifest"]["curves"]
        self.assertEqual([(c["coll"], c["dtype"], c.get("hidden")) for c in curves],
                         [("all_reduce_rms_norm", "bf16", 512), ("all_reduce_rms_norm", "f32", 512), ("reduce_scatter", "bf16", None),
                          ("reduce_scatter", "f32", None), ("broadcast", "bf16", None), ("broadcast", "f32", None)])
        for curve in curves:
            norm = curve["coll"] == "all_reduce_rms_norm"
            # Whole rows alone: one of f32 takes 2 KiB.
            self.assertEqual([p["bytes"] for p in curve["points"]], [4096, 16384] if norm and curve["dtype"] == "f32" else [1024, 4096, 16384])
            want = {"fused_oneshot", "unfused"} if norm else {"cpu_oneshot", "cpu_twoshot"} if curve["coll"] == "all_reduce" else {"cpu_oneshot"}
            for point in curve["points"]:
                self.assertEqual(set(point["p50_us"]), want)
            rows = [row for row in data["rows"] if (row["coll"], row["dtype"]) == (curve["coll"], curve["dtype"])]
            self.assertEqual((rows[0]["bytes_min"], "bytes_max" in rows[-1]), (0, False))
        self.assertIn("all_reduce_rms_norm, rows of 512, 2 ranks, cpu, f32", out)
        for row in data["rows"]:
            row["path"] = {"all_reduce_rms_norm": "unfused"}.get(row["coll"], row["path"])
        with open(self.file, "w", encoding="utf-8") as file:
            json.dump(data, file)
        code, _, err = self.bench("sweep", *QUICK, "--op", "all_reduce_rms_norm", "--hidden", "512", "-b", "1K", "-e", "1K", "-n", "20", "--verify-path",
                                  "--json", self.file + ".s", env={"TPCOMM_TUNING_FILE": self.file})
        self.assertEqual(code, 0, err)
        with open(self.file + ".s", encoding="utf-8") as file:
            row = json.load(file)["rows"][0]
        self.assertEqual((row["path"], row["source"]), ("unfused", "measured"))

    def test_lengths_of_rows(self):
        """Rows of several lengths get rows of the file each, which meet between them, and the library goes by a call's own."""
        self.tune("--op", "all_reduce_rms_norm,all_reduce", "--hidden", "2048,256", sizes=("4K", "4K", "2"))
        data = self.read("tuning")
        self.assertEqual([(c["coll"], c.get("hidden")) for c in data["manifest"]["curves"]],
                         [("all_reduce_rms_norm", 256), ("all_reduce_rms_norm", 2048), ("all_reduce", None)])
        norms = [row for row in data["rows"] if row["coll"] == "all_reduce_rms_norm"]
        self.assertEqual([(row.get("hidden_min"), row.get("hidden_max")) for row in data["rows"]], [(None, 724), (725, None), (None, None)])
        for path in (("fused_oneshot", "unfused"), ("unfused", "fused_oneshot")):
            for row, want in zip(norms, path):
                row["path"] = want
            with open(self.file, "w", encoding="utf-8") as file:
                json.dump(data, file)
            for hidden, want, reason in ((256, path[0], "rows of 0 to 724"), (512, path[0], "rows of 0 to 724"), (1024, path[1], "rows of 725 and more")):
                code, _, err = self.bench("sweep", *QUICK, "--op", "all_reduce_rms_norm", "--hidden", str(hidden), "-b", "4K", "-e", "4K", "-n", "20",
                                          "--verify-path", "--json", self.file + ".s", env={"TPCOMM_TUNING_FILE": self.file})
                self.assertEqual(code, 0, err)
                with open(self.file + ".s", encoding="utf-8") as file:
                    row = json.load(file)["rows"][0]
                self.assertEqual(row["path"], want)
                self.assertIn(reason, row["reason"])

    def test_budget(self):
        """A budget that is too small for all sizes: what was left out is told, and the rest is a whole tuning file."""
        code, out, err = self.bench("tune", *QUICK, "--output", self.file, "-b", "1K", "-e", "32M", "-f", "2", "--budget-s", "0.1")
        self.assertEqual(code, 0, err)
        data = self.read("tuning")
        curve = data["manifest"]["curves"][0]
        measured = [point["bytes"] for point in curve["points"]]
        self.assertEqual(sorted(measured + curve["left_out"]), [1024 << i for i in range(16)])
        self.assertTrue(measured and curve["left_out"])
        self.assertEqual((data["manifest"]["budget_s"], data["rows"][0]["bytes_min"], "bytes_max" in data["rows"][-1]), (0.1, 0, False))
        self.assertIn(f"of a budget of 0.1 s: {len(measured)} sizes measured, {len(curve['left_out'])} left out", out)
        self.assertIn("left out, since the budget is spent: " + " ".join(map(str, curve["left_out"])), out)
        # What a size takes is judged by the last measured one and how much greater it is.
        out, _ = self.tune("--budget-s", "0.1", sizes=("64K", "64M", "1024"))
        self.assertIn(f"left out, since the budget is spent: {64 << 20}\n", out)

    def test_choice_is_obeyed(self):
        """A file that says otherwise than the built-in rows wins: nothing of the answer above is the default's."""
        self.tune()
        with open(self.file, encoding="utf-8") as file:
            data = json.load(file)
        for row in data["rows"]:
            row["path"] = "cpu_twoshot"
        with open(self.file, "w", encoding="utf-8") as file:
            json.dump(data, file)
        self.assertEqual(self.sweep(1024)[0]["path"], "cpu_twoshot")

    def test_elsewhere(self):
        """Measured with another number of ranks, on another device or by another library: refused with both values."""
        self.tune()
        with open(self.file, encoding="utf-8") as file:
            good = json.load(file)
        for change, piece in (({"topology": "nvlink"}, "measured on topology 'nvlink', but this world is 'cpu'"), ({"world_size": 4}, "measured in a world of 4 ranks, but this one has 2"),
                              ({"device": "NVIDIA H200"}, "measured on device 'NVIDIA H200', but rank 0 runs on 'cpu'"),
                              ({"library_version": "9.9.0"}, "measured with library version '9.9.0', but this is")):
            with open(self.file, "w", encoding="utf-8") as file:
                json.dump({**good, **change}, file)
            self.refused(piece, "sweep", *QUICK, "-b", "1K", "-e", "1K", env={"TPCOMM_TUNING_FILE": self.file})

    def test_wrong_element_writes_nothing(self):
        out, err = self.tune(code=1, env={"TPCOMM_BENCH_FAULT": "wrong@1:0:5"})
        self.assertIn("nothing is written", err)
        self.assertFalse(os.path.exists(self.file))

    def test_tune_wrong_use(self):
        self.refused("--output FILE is needed", "tune")
        self.refused("--groups 1: there is no 1; allowed is 2 to 32", "tune", "--output", self.file, "--groups", "1")
        self.refused("a group of 3: there are 2 ranks", "tune", *QUICK, "--output", self.file, "--groups", "3")
        self.refused("--op barrier: there is no barrier", "tune", "--output", self.file, "--op", "barrier")
        self.refused("there is no all_gather_rows", "tune", "--output", self.file, "--op", "all_reduce,all_gather_rows")
        self.refused("takes f32, f16 and bf16, not i32", "tune", "--output", self.file, "--op", "all_reduce_rms_norm", "-d", "i32")
        self.refused("a multiple of 8", "tune", "--output", self.file, "--hidden", "4096,100")
        self.refused("there is no 7", "tune", "--output", self.file, "--hidden", "7")
        self.refused("4096 stands twice", "tune", "--output", self.file, "--hidden", "4096,4096")
        self.refused("--budget-s 0", "tune", "--output", self.file, "--budget-s", "0")
        self.refused("less than one row of --hidden 16384 bf16, 32768 bytes", "tune", "--output", self.file, "-e", "32767",
                     "--op", "all_reduce_rms_norm,all_reduce", "--hidden", "16384,8")
        self.refused("f8_e4m3 has no sum", "tune", "--output", self.file, "-d", "f8_e4m3")
        self.refused("a CUDA graph needs a CUDA device", "tune", "--device", "cpu", "--mode", "graph", "--output", self.file)
        self.refused("cannot write there", "tune", "--output", "/nowhere/t.json")
        self.refused("cannot write there: Is a directory", "tune", "--output", os.path.dirname(self.file))

    # ------------------------------------------------------------ pairs

    def test_pairs(self):
        for how in (["--threads"], []):
            code, out, err = self.bench("pairs", "--device", "cpu", "-w", "2", "--ranks", "3", "--small", "1K", "--large", "64K", "-n", "100", "--json",
                                        self.file, *how)
            self.assertEqual((code, err), (0, ""))
            data = self.read("pairs")
            self.assertEqual([pair["ranks"] for pair in data["pairs"]], [[0, 1], [0, 2], [1, 2]])
            for pair in data["pairs"]:
                self.assertEqual((pair["latency"]["bytes"], pair["bandwidth"]["bytes"], pair["topology"]), (1024, 65536, "cpu"))
                for kind in ("latency", "bandwidth"):
                    us = pair[kind]["us"]
                    self.assertEqual(us["n"], 100)
                    self.assertAlmostEqual(pair[kind]["gbs"], pair[kind]["bytes"] / us["p50_us"] / 1000)
            # Ten calls a round leave eight outputs, of 512 and 32768 elements, on two ranks.
            self.assertEqual(data["checked"], {"elements": 3 * 10 * 8 * 2 * (512 + 32768), "wrong": 0})
            self.assertIn("latency of 1024 bytes", out)

    def test_pairs_wrong_use(self):
        code, _, err = self.bench("pairs", "--device", "cpu", "--threads", "-n", "20", "-w", "2", "--large", "1K", env={"TPCOMM_BENCH_FAULT": "wrong@0:0:3"})
        self.assertEqual(code, 1, err)
        self.refused("allowed are whole numbers from 2", "pairs", "--ranks", "1")
        self.refused("both need an element", "pairs", "--small", "1")
        self.refused("--small 2M is greater than --large 1M", "pairs", "--small", "2M", "--large", "1M")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
