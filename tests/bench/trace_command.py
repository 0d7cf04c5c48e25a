# SPDX-License-Identifier: Apache-2.0
"""Check that `tpcomm-bench trace` writes valid histograms and answers every wrong use with its exit code and a text that names it.

usage: trace_command.py TPCOMM_BENCH ROOT
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

KEYS = ["schema", "source", "params", "scale", "reached", "iterations", "mean_decode_batch", "decode_only", "mixed", "decode_part"]
# At most 2 sequences, 4 tokens, 1 s an iteration: worked out by hand in test_batching.c.
ROWS = ["2023-11-16 18:00:00.0,6,3", "2023-11-16 18:00:00.0,1,1", "2023-11-16 18:00:00.5,1,2", "2023-11-16 18:00:10,1,1"]
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n" + "\r\n".join(ROWS)
SMALL = ["--max-num-seqs", "2", "--token-budget=4", "--iteration-ms", "1000", "--token-ms", "0"]


class TraceCommand(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.trace = self.write("trace.csv", AZURE)
        self.output = os.path.join(self.folder, "out.json")

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", newline="", encoding="utf-8") as file:
            file.write(text)
        return path

    def bench(self, *arguments):
        done = subprocess.run([BENCH, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def histogram(self, *arguments):
        code, out, err = self.bench("trace", "--input", self.trace, "--output", self.output, *arguments)
        self.assertEqual(code, 0, err)
        self.assertEqual(list(json_schema.check(os.path.join(ROOT, "docs/schema/histogram.json"), [self.output])), [])
        with open(self.output, encoding="utf-8") as file:
            histogram = json.load(file)
        self.assertEqual(list(histogram), KEYS)
        self.assertEqual(sum(histogram["decode_only"].values()) + sum(histogram["mixed"].values()), histogram["iterations"])
        return histogram, out, err

    def refused(self, piece, *arguments):
        code, out, err = self.bench(*arguments)
        self.assertEqual((code, out), (2, ""), err)
        self.assertIn(piece, err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertFalse(os.path.exists(self.output))

    def test_by_hand(self):
        histogram, out, err = self.histogram(*SMALL)
        self.assertEqual(err, "")
        self.assertEqual(histogram["decode_only"], {"2": 1})
        self.assertEqual(histogram["mixed"], {"1": 1, "2": 1, "3": 1, "4": 1})
        self.assertEqual(histogram["decode_part"], {"1": 1, "2": 1})
        self.assertEqual((histogram["iterations"], histogram["mean_decode_batch"], histogram["scale"]), (5, 1.5, 1))
        self.assertIsNone(histogram["reached"])
        self.assertEqual(histogram["params"], {"max_num_seqs": 2, "token_budget": 4, "iteration_ms": 1000, "token_ms": 0,
                                               "prefill_elsewhere": False, "target_batch": None})
        source = histogram["source"]
        self.assertEqual((source["trace"], source["format"], source["credit"]), ("trace.csv", "azure", None))
        self.assertEqual((source["rows"], source["requests"], source["dropped_rows"]), (4, 4, 0))
        self.assertEqual(source["bytes"], len(AZURE))
        for piece in ("azure, 4 rows, 4 requests in 10.0 s", "decode only             1      20.0%", self.output):
            self.assertIn(piece, out)
        histogram = self.histogram(*SMALL, "--prefill-elsewhere", "--credit", "somebody")[0]
        self.assertEqual((histogram["decode_only"], histogram["mixed"]), ({"1": 1, "2": 1}, {}))
        self.assertEqual(histogram["source"]["credit"], "somebody")

    def test_the_other_formats_give_the_same(self):
        want = self.histogram(*SMALL)[0]
        self.trace = self.write("b.csv", "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                                "7.0,,1,m,6,3,9,l\n7,,1,m,1,1,2,l\n7.1,,1,m,0,0,0,l\n17,,1,m,1,1,2,l\n7.5,,1,m,1,2,3,l\n")
        burstgpt, out, _ = self.histogram(*SMALL)
        self.assertEqual(burstgpt["source"]["dropped_rows"], 1)
        self.assertIn("dropped    1 rows without prompt or output tokens; the rest put in order", out)
        self.trace = self.write("m.jsonl", "".join(
            '{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [1, 2]}\n' % row
            for row in ((3000, 6, 3), (3000, 1, 1), (3500, 1, 2), (13000, 1, 1))))
        mooncake = self.histogram(*SMALL, "--format", "mooncake")[0]
        for other, name in ((burstgpt, "burstgpt"), (mooncake, "mooncake")):
            self.assertEqual(other["source"]["format"], name)
            for key in ("iterations", "mean_decode_batch", "decode_only", "mixed", "decode_part"):
                self.assertEqual(other[key], want[key])

    def test_a_target(self):
        self.trace = self.write("long.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
            "2023-11-16 18:%02d:%02d.%d,10,%d\n" % (i // 600, i // 10 % 60, i % 10, 2 + i * 7 % 50) for i in range(3000)))
        histogram, _, err = self.histogram("--target-batch", "12")
        self.assertEqual((err, histogram["reached"], histogram["params"]["target_batch"]), ("", True, 12))
        self.assertLessEqual(abs(histogram["mean_decode_batch"] - 12), 0.12)
        again = self.histogram("--time-scale", repr(histogram["scale"]))[0]
        for key in ("scale", "iterations", "mean_decode_batch", "decode_only", "mixed", "decode_part"):
            self.assertEqual(again[key], histogram[key])
        histogram, out, err = self.histogram("--target-batch", "100", "--max-num-seqs", "20")
        self.assertEqual((histogram["reached"], histogram["scale"]), (False, 0.0001))
        self.assertIn("a mean decode batch of 100 was not reached", err)
        self.assertLessEqual(histogram["mean_decode_batch"], 20)

    def test_refusals(self):
        both = ("--input", self.trace, "--output", self.output)
        self.refused("--input FILE is needed", "trace", "--output", self.output)
        self.refused("--output FILE is needed", "trace", "--input", self.trace)
        self.refused("unknown option --token-budgte; the nearest is --token-budget", "trace", *both, "--token-budgte", "3")
        self.refused("--token-budget 0: allowed are whole numbers from 1 to 262144", "trace", *both, "--token-budget", "0")
        self.refused("--time-scale inf", "trace", *both, "--time-scale", "inf")
        self.refused("--target-batch 0.5: allowed are numbers from 1", "trace", *both, "--target-batch", "0.5")
        self.refused("--time-scale and --target-batch", "trace", *both, "--time-scale", "1", "--target-batch", "3")
        self.refused("--iteration-ms 0 and --token-ms 0", "trace", *both, "--iteration-ms", "0", "--token-ms", "0")
        self.refused("--format csv: allowed are auto|azure|burstgpt|mooncake", "trace", *both, "--format", "csv")
        self.refused("\"x\": not an option", "trace", *both, "x")
        self.refused("cannot open /no/such/file: No such file", "trace", "--input", "/no/such/file", "--output", self.output)
        self.refused("Is a directory", "trace", "--input", self.folder, "--output", self.output)
        self.refused("/no/such/x.json", "trace", "--input", self.trace, "--output", "/no/such/x.json")
        self.refused("is the trace itself", "trace", "--input", self.trace, "--output", self.trace)
        self.refused("--credit", "trace", *both, "--credit", "x" * 512)
        self.refused("unknown command \"trcae\", the nearest is trace", "trcae")
        with open(self.trace, encoding="utf-8", newline="") as file:
            self.assertEqual(file.read(), AZURE)

    def test_bad_lines(self):
        for text, piece in ((AZURE + "\r\n2023-11-16 18:00:11,x,1\r\n", ":6: ContextTokens is \"x\""),
                            (AZURE.replace("18:00:00.5", "18:00:60"), ":4: TIMESTAMP is"),
                            ("", "the file is empty"), (AZURE.split("\n", 1)[0], "a header and no rows"),
                            ("{\"timestamp\": 1}", ":1: the key input_length is missing")):
            trace = self.write("bad.csv", text)
            self.refused(trace, "trace", "--input", trace, "--output", self.output)
            self.refused(piece, "trace", "--input", trace, "--output", self.output)
        trace = self.write("ones.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,5,1\n")
        self.refused("no iteration", "trace", "--input", trace, "--output", self.output, "--prefill-elsewhere")

    def test_help(self):
        code, out, err = self.bench("--help")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("  trace ", out)
        code, out, err = self.bench("trace", "--token-budget", "0", "--help")
        self.assertEqual((code, err), (0, ""))
        for option in ("--input FILE", "--max-num-seqs N", "(1 to 262144; default 256)", "(default auto)"):
            self.assertIn(option, out)
        self.assertEqual(self.bench()[0], 2)
        self.assertRegex(self.bench("--version")[1], r"^tpcomm-bench \d+\.\d+\.\d+\n$")
        if os.path.exists("/dev/full"):
            with open("/dev/full", "w") as full:
                done = subprocess.run([BENCH, "trace", "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn("cannot write to standard output", done.stderr)

    def test_a_broken_write_leaves_the_old_file(self):
        self.histogram(*SMALL)
        before = sorted(os.listdir(self.folder))
        with open(self.output, "rb") as file:
            old = file.read()
        code, _, _ = self.bench("trace", "--input", self.write("bad.csv", "x"), "--output", self.output)
        self.assertEqual(code, 2)
        with open(self.output, "rb") as file:
            self.assertEqual(file.read(), old)
        os.remove(os.path.join(self.folder, "bad.csv"))
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_shipped_histograms(self):
        folder = os.path.join(ROOT, "bench/histograms")
        files = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
        self.assertEqual(len(files), 15)
        self.assertEqual(os.readlink(os.path.join(folder, "default.json")), "azure_llm_2023_conv_head.batch32.json")
        paths = [os.path.join(folder, name) for name in files]
        self.assertEqual(list(json_schema.check(os.path.join(ROOT, "docs/schema/histogram.json"), paths)), [])
        for path in paths:
            with open(path, encoding="utf-8") as file:
                histogram = json.load(file)
            self.assertEqual(list(histogram), KEYS)
            self.assertIn("CC BY 4.0", histogram["source"]["credit"])
            self.assertEqual(sum(histogram["decode_only"].values()) + sum(histogram["mixed"].values()), histogram["iterations"])
            counts = {int(key): count for key, count in histogram["decode_part"].items()}
            self.assertEqual(sum(key * count for key, count in counts.items()) / sum(counts.values()), histogram["mean_decode_batch"])
            self.assertIsNot(histogram["reached"], False)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
