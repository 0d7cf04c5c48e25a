# SPDX-License-Identifier: Apache-2.0
"""Check that bench/matrix.py makes one run a point, goes on where it stopped and says what a histogram covers; that bench/plot.py makes
tables and plots of its files, and docs/performance.md has those of bench/results/; and that the GPU peers say what they lack.

usage: figures_command.py TPCOMM_BENCH ROOT
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

BENCH, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
sys.path.insert(0, os.path.join(ROOT, "bench"))
import plot  # noqa: E402


def run(script, *arguments, **keywords):
    done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", script), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=100, **keywords)
    return done.returncode, done.stdout, done.stderr


class Figures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def matrix(self, *more):
        histogram = os.path.join(self.folder, "h.json")
        with open(histogram, "w", encoding="utf-8") as file:
            json.dump({"schema": "tpcomm-histogram/1", "decode_only": {"1": 3, "4": 1}, "mixed": {"16": 1}}, file)
        return run("matrix.py", BENCH, os.path.join(self.folder, "m"), "--ranks", "2,3", "--dtype", "bf16,f32", "--path", "auto", "--min", "1K",
                   "--max", "4K", "--histogram", histogram, os.path.join(ROOT, "bench", "histograms", "default.json"), "--hidden", "512", *more, "--",
                   "--threads", "-n", "20", "-w", "2")

    def test_matrix_and_plot(self):
        code, out, err = self.matrix()
        self.assertEqual((code, err), (0, ""), out)
        names = sorted(os.path.basename(path) for path in glob.glob(os.path.join(self.folder, "m", "cpu-*.json")))
        self.assertEqual(names, ["cpu-all_reduce-2r-bf16-eager-auto-both.json", "cpu-all_reduce-2r-f32-eager-auto-both.json",
                                 "cpu-all_reduce-3r-bf16-eager-auto-both.json"])
        # Messages of 1, 4 and 16 KiB: four of five calls, 7 of 23 KiB are in 1 to 4 KiB.
        with open(os.path.join(self.folder, "m", "coverage.json"), encoding="utf-8") as file:
            told = json.load(file)
        shares = told["histograms"][0]
        self.assertEqual((told["base"], told["bytes_min"], told["bytes_max"]), (names[0][:-len(".json")], 1024, 4096))
        self.assertEqual((shares["calls"], shares["bytes"]), (4 / 5, 7 / 23))
        self.assertIn("80.0 % of the calls, 30.4 % of the bytes", out)
        with open(os.path.join(self.folder, "m", names[0]), encoding="utf-8") as file:
            p = {row["bytes"]: row["out_of_place"]["us"]["mean_us"] for row in json.load(file)["rows"]}
        inside, beyond = 3 * p[1024] + p[4096], 4 * p[4096]  # 16 KiB by proportion: four times the greatest measured
        self.assertAlmostEqual(shares["time"], inside / (inside + beyond))
        self.assertGreater(told["histograms"][1]["calls"], 0)

        # One file gone, one cut short: these two are made again, the third is not.
        paths = [os.path.join(self.folder, "m", name) for name in names]
        kept = os.stat(paths[2]).st_mtime_ns
        os.unlink(paths[0])
        with open(paths[1], "r+", encoding="utf-8") as file:
            file.truncate(100)
        code, out, _ = self.matrix()
        self.assertEqual((code, out.count(".json is there"), out.count(": ok")), (0, 1, 2), out)
        self.assertIn("3 of 3 runs are there", out)
        self.assertEqual(os.stat(paths[2]).st_mtime_ns, kept)

        # Files that are JSON and not a whole run of this library are made again; where the folder is does not matter.
        with open(paths[2], encoding="utf-8") as file:
            good = json.load(file)
        older = {**good, "manifest": {**good["manifest"], "library": {**good["manifest"]["library"], "version": "0.0.9"}}}
        for bad in ([], None, {"schema": "tpcomm-sweep/1", "manifest": None}, {key: good[key] for key in good if key != "manifest"}, {**good, "rows": []},
                    {**good, "rows": [{}]}, older):
            with open(paths[2], "w", encoding="utf-8") as file:
                json.dump(bad, file)
            code, out, err = self.matrix()
            self.assertEqual((code, err, out.count(".json is there"), out.count(": ok")), (0, "", 2, 1), bad)
        os.rename(os.path.join(self.folder, "m"), os.path.join(self.folder, "n"))
        os.symlink("n", os.path.join(self.folder, "m"))
        code, out, _ = self.matrix("--ranks", "2,3,3,2")  # a value that stands twice is one run
        self.assertEqual((code, out.count(".json is there"), out.count(": ok")), (0, 3, 0), out)

        code, out, err = run("plot.py", *paths, os.path.join(self.folder, "m", "coverage.json"))  # as out/*.json gives them
        self.assertEqual((code, err), (0, ""))
        with open(paths[0], encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        self.assertEqual(out.count("| bytes | auto | auto, in place | path |"), 3)
        for size in ("1 Ki", "2 Ki", "4 Ki"):
            self.assertEqual(out.count(f"\n| {size} |"), 3)
        self.assertIn(f"| {rows[0]['path']} |", out)
        page = os.path.join(self.folder, "page.md")
        with open(page, "w", encoding="utf-8") as file:
            file.write("before\n<!-- plot.py: begin -->\nold\n<!-- plot.py: end -->\nafter\n")
        for _ in range(2):  # the same the second time
            self.assertEqual(run("plot.py", "--write", page, *paths)[0], 0)
            with open(page, encoding="utf-8") as file:
                self.assertEqual(file.read(), "before\n<!-- plot.py: begin -->\n\n" + out.rstrip() + "\n\n<!-- plot.py: end -->\nafter\n")

    def test_plot_extras(self):
        """What a sweep tells beside the times has tables of its own."""
        path = os.path.join(self.folder, "x.json")
        done = subprocess.run([BENCH, "sweep", "--device", "cpu", "--threads", "-n", "20", "-w", "2", "-b", "1K", "-e", "1K", "--chain", "--cold", "--json",
                               path], stdout=subprocess.PIPE, timeout=100)
        self.assertEqual(done.returncode, 0)
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        row = data["rows"][0]
        row["footprint"] = {"kernels": 1, "copies": 0, "blocks": 65, "threads": 96, "registers": 64, "shared_bytes": 0, "blocks_per_sm": 8,
                            "kernel": None}
        row["gemm_beside"] = {"alone_us": 100.0, "beside_us": 103.0, "call_us": 7.5, "covered": True}
        row["arrivals"] = {"skew_us": 0.25, "skew_p95_us": 0.5, "from_last_us": 2.5, "clock_error_us": 0.0, "wait_us": [0.1, 0.2],
                           "last_percent": [75.0, 25.0]}
        row["nccl"] = {"algorithm": "RING", "protocol": "LL", "channels": None}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(data, file)
        code, out, err = run("plot.py", path)
        self.assertEqual((code, err), (0, ""))
        for piece in ("cold buffers", "| chain | without the call | extra | call alone |", "| 1 Ki | auto | 65 | 96 | 64 | 9 | 3.0 % | 7.50 |",
                      "| 1 Ki | auto | 0.25 | 0.50 | 2.50 | 0.20 |", "| 1 Ki | auto | RING | LL | - |"):
            self.assertIn(piece, out)

    def test_coverage(self):
        """An element's bytes are those of the base's dtype; without messages there is nothing to cover; a wrong histogram is told before any run."""
        histogram = os.path.join(self.folder, "h.json")
        with open(histogram, "w", encoding="utf-8") as file:
            json.dump({"schema": "tpcomm-histogram/1", "decode_only": {"1": 1, "2": 1}, "mixed": {}}, file)
        for dtype, hidden, share in (("f64", "128", 50.0), ("i8", "512", 100.0)):  # 1 and 2 KiB; 512 bytes and 1 KiB
            code, out, err = run("matrix.py", BENCH, os.path.join(self.folder, dtype), "--ranks", "2", "--dtype", dtype, "--path", "auto", "--min", "512", "--max", "1K",
                                 "--hidden", hidden, "--histogram", histogram, "--", "--threads", "-n", "20", "-w", "2")
            self.assertEqual((code, err), (0, ""), out)
            self.assertIn(f"{share} % of the calls", out)
        code, out, err = run("matrix.py", BENCH, self.folder, "--ranks", "2", "--dtype", "f32", "--op", "barrier", "--path", "auto", "--histogram", histogram, "--",
                             "--threads", "-n", "20", "-w", "2")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("coverage: the base has no times of messages", out)
        for bad in ("{", "[]", '{"schema": "x"}', '{"schema": "tpcomm-histogram/1", "decode_only": {"a": 1}, "mixed": {}}',
                    '{"schema": "tpcomm-histogram/1", "decode_only": {"1": -1}, "mixed": {}}'):
            with open(histogram, "w", encoding="utf-8") as file:
                file.write(bad)
            code, out, err = run("matrix.py", BENCH, os.path.join(self.folder, "none"), "--histogram", histogram)
            self.assertEqual((code, out), (1, ""))
            self.assertRegex(err, rf"^matrix.py: {histogram} is no histogram of tpcomm-histogram/1: .+\n$")

    def test_chosen_by_length_of_rows(self):
        """A tuning file with several lengths of rows: each table tells what is chosen for its own."""
        path = os.path.join(ROOT, "bench", "results", "2026-12-01-tune-h200-shared-8.json")
        code, out, _ = run("plot.py", path)
        self.assertEqual(code, 0)
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        tables = out.split("`2026-12-01-tune-h200-shared-8.json`: ")[1:]
        curves = data["manifest"]["curves"]
        self.assertEqual(len(tables), len(curves))
        for table, curve in zip(tables, curves):
            rows = [row for row in data["rows"] if (row["coll"], row.get("capturing")) == (curve["coll"], curve["mode"] == "graph") and
                    row.get("hidden_min", 0) <= curve.get("hidden", 1) <= row.get("hidden_max", 1 << 30)]
            lines = [line.split(" | ") for line in table.split("\n") if line.startswith("| ") and line[2].isdigit()]
            for line, point in zip(lines, curve["points"]):
                want = next(row["path"] for row in rows if row.get("bytes_min", 0) <= point["bytes"] <= row.get("bytes_max", 1 << 60))
                self.assertEqual(line[-1], want + " |", (curve["coll"], curve.get("hidden"), curve["mode"], point["bytes"]))

    def test_plot_refuses(self):
        for name, text, piece in (("l", "[]", "its schema is None"), ("t", "{", "no JSON"), ("s", '{"schema": "tpcomm-sweep/1", "rows": []}', "KeyError 'manifest'")):
            path = os.path.join(self.folder, name + ".json")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            code, out, err = run("plot.py", path)
            self.assertEqual((code, out, err.count("\n")), (1, "", 1), err)
            self.assertIn(piece, err)
        self.assertEqual(run("plot.py", "/nowhere.json")[2], "/nowhere.json: No such file or directory\n")
        path = os.path.join(self.folder, "x.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"schema": "tpcomm-replay/1"}, file)
        code, _, err = run("plot.py", path)
        self.assertEqual(code, 1)
        self.assertIn("its schema is tpcomm-replay/1", err)
        with open(path, "w", encoding="utf-8") as file:
            file.write("no marks\n")
        code, _, err = run("plot.py", "--write", path)
        self.assertEqual(code, 1)
        self.assertIn("has no lines <!-- plot.py: begin -->", err)

    def test_the_page_is_what_the_results_say(self):
        code, out, err = run("plot.py", "--check", os.path.join(ROOT, "docs", "performance.md"), "--plots", os.path.join(ROOT, "docs", "plots"))
        self.assertEqual((code, err), (0, ""), out)

    def test_check_finds_each_difference(self):
        results = sorted(glob.glob(os.path.join(ROOT, "bench", "results", "*.json")))
        page, plots = os.path.join(self.folder, "page.md"), os.path.join(self.folder, "plots")
        with open(page, "w", encoding="utf-8") as file:
            file.write("<!-- plot.py: begin 2026-12-01-cpu-paths -->\n<!-- plot.py: end -->\n<!-- plot.py: begin -->\n<!-- plot.py: end -->\n")
        self.assertEqual(run("plot.py", "--write", page, "--plots", plots)[0], 0)
        self.assertEqual(run("plot.py", "--check", page, "--plots", plots)[0], 0)
        with open(page, encoding="utf-8") as file:
            text = file.read()
        sweeps = [path for path in results if "sweep" in os.path.basename(path)]
        for path in sweeps:
            self.assertIn(f"`{os.path.basename(path)}`: ", text)
        self.assertIn("](plots/2026-12-01-cpu-paths.svg)", text)
        drawing = os.path.join(plots, "2026-12-01-cpu-paths.svg")
        for path, old, new in ((page, "| 1 Ki | 1.61 |", "| 1 Ki | 1.60 |"), (drawing, "<circle", "<square")):
            with open(path, encoding="utf-8") as file:
                good = file.read()
            self.assertIn(old, good)
            with open(path, "w", encoding="utf-8") as file:
                file.write(good.replace(old, new, 1))
            code, out, _ = run("plot.py", "--check", page, "--plots", plots)
            self.assertEqual(code, 1)
            self.assertIn(f"{path} is not what bench/results/ says", out)
            with open(path, "w", encoding="utf-8") as file:
                file.write(good)
        with open(os.path.join(plots, "old.svg"), "w", encoding="utf-8") as file:
            file.write("left over")
        self.assertIn("old.svg is not what", run("plot.py", "--check", page, "--plots", plots)[1])

    def test_figures_of_each_kind(self):
        """Cells of every kind of file are the file's figures; the floor stands beside those that have a link."""
        def lines_of(name):
            code, out, err = run("plot.py", os.path.join(ROOT, "bench", "results", f"2026-12-01-{name}.json"))
            self.assertEqual((code, err), (0, ""))
            return out.split("\n")
        for name, wanted in (("cpu-peers", "| 16 Ki | 5.56 | 13.0 | 7.56 | 0.43 | 0.73 |"), ("cpu-paths", "| 64 Ki | 13.8 | 13.0 |"),
                             ("gpu-oneshot-h200", "| 1 Mi | 7.46 | 4.57 | 2.89 |"), ("gpu-time-h200-shared", "| 64 Ki | 2.30 | 6.03 | 7.23 |"),
                             ("fused-h200-shared", "| 1 | 4.62 | 5.27 | 4.00 | 5.06 |"), ("sweep-h200-shared-8-graph", "| 128 Ki | 8.82 | twoshot |")):
            self.assertIn(wanted, lines_of(name), name)

    def test_a_tuning_file(self):
        tuning = os.path.join(self.folder, "tune.json")
        done = subprocess.run([BENCH, "tune", "--device", "cpu", "--threads", "--output", tuning, "-b", "1K", "-e", "4K", "-n", "100", "-w", "2"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(tuning, encoding="utf-8") as file:
            point = json.load(file)["manifest"]["curves"][0]["points"][0]
        code, out, err = run("plot.py", tuning, "--plots", self.folder)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("| bytes | cpu_oneshot | cpu_twoshot | chosen |", out)
        self.assertIn(f"| 1 Ki | {plot.number(point['p50_us']['cpu_oneshot'])}", out)
        with open(os.path.join(self.folder, "tune.svg"), encoding="utf-8") as file:
            drawing = file.read()
        self.assertEqual((drawing.count("<polyline"), drawing.count("<circle")), (2, 6))

    def test_matrix_varies_one_thing_at_a_time(self):
        """Every variable once, from one base; the paths as the library lists them for the base's group; other wishes are other runs."""
        code, out, err = run("matrix.py", BENCH, self.folder, "--ranks", "2,3", "--dtype", "f32", "--place", "out,in,both", "--op",
                             "all_reduce,broadcast,all_reduce_rms_norm", "--hidden", "64", "--min", "1K", "--max", "1K", "--", "--threads", "-n", "20", "-w", "2")
        self.assertEqual((code, err), (0, ""), out)
        base = ["cpu", "all_reduce", "2r", "f32", "eager", "auto", "out"]
        wanted = {"-".join(base)} | {"-".join([*base[:at], value, *base[at + 1:]]) for at, value in (
            (1, "broadcast"), (1, "all_reduce_rms_norm"), (2, "3r"), (5, "cpu_oneshot"), (5, "cpu_twoshot"), (6, "in"), (6, "both"))}
        files = sorted(glob.glob(os.path.join(self.folder, "*.json")))
        self.assertEqual({os.path.basename(path)[:-len(".json")] for path in files}, wanted)
        self.assertIn("8 of 8 runs are there", out)
        for path in files:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
            name = os.path.basename(path).split("-")
            self.assertEqual(([row["path_asked"] for row in data["rows"]], len(data["manifest"]["ranks"]), data["manifest"]["settings"]["coll"]),
                             ([name[5]], int(name[2][:-1]), name[1]))
            self.assertEqual([data["rows"][0][place] is not None for place in ("out_of_place", "in_place")], [name[6][:-5] != "in", name[6][:-5] != "out"])
        code, out, _ = run("matrix.py", BENCH, self.folder, "--ranks", "2", "--dtype", "f32", "--path", "auto", "--place", "out", "--min", "1K", "--max", "2K", "--",
                           "--threads", "-n", "20", "-w", "2")
        self.assertEqual((code, out.count(" is there"), out.count(": ok")), (0, 0, 1), out)  # the base's file is of other sizes

    def test_matrix_ends_a_run_that_lasts(self):
        slow = os.path.join(self.folder, "slow")
        with open(slow, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexec sleep 60\n")
        os.chmod(slow, 0o755)
        code, out, _ = run("matrix.py", slow, self.folder, "--limit-s", "0.2", "--path", "auto")
        self.assertEqual(code, 1)
        self.assertIn("ended after 0.2 s", out)

    def test_matrix_failure(self):
        code, out, _ = run("matrix.py", BENCH, self.folder, "--path", "nosuch", "--ranks", "2", "--dtype", "bf16")
        self.assertEqual(code, 1)
        self.assertIn("exit code 2", out)

    def test_peers_say_what_they_lack(self):
        hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        hidden.pop("RANK", None)
        for script in ("nccl_allreduce.py", "torch_symm_mem.py"):
            code, out, err = run(os.path.join("peers", script), env=hidden)
            self.assertEqual((code, out), (77, ""), err)
            self.assertRegex(err, rf"^{script}: .+\n$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
