# SPDX-License-Identifier: Apache-2.0
"""Check that the built-in rows in C are what the JSON beside them says, that the tool finds the two apart, that measured rows take the
place of their like and of nothing else, and that what is not measured or not kept in bench/results/ is refused."""
import json
import unittest

from planted import Planted, ROOT

FROM = "bench/results/tune.json"
OLD = [{"coll": "all_reduce", "topology": "same_gpu", "ranks": 2, "path": "oneshot", "source": "estimated", "from": "a guess"},
       {"coll": "all_reduce", "topology": "same_gpu", "ranks": 4, "path": "oneshot", "source": "estimated", "from": "a guess"},
       {"coll": "broadcast", "topology": "same_gpu", "ranks": 2, "path": "oneshot", "source": "estimated", "from": "the only path"}]


def measured(**more):
    return {"coll": "all_reduce", "topology": "same_gpu", "ranks": 2, "dtype": "bf16", "path": "twoshot", "source": "measured", "base_us": 1.5,
            "per_mib_us": 2.25, **more}


class BuiltinRows(Planted):
    def setUp(self):
        super().setUp()
        self.plant("src/dispatch/builtin_rows.h", "")
        self.plant_rows(OLD)

    def plant_rows(self, rows):
        self.plant("src/dispatch/builtin_rows.json", json.dumps({"schema": "tpcomm-builtin/1", "rows": rows}))

    def plant_tuning(self, *rows):
        self.plant(FROM, json.dumps({"schema": "tpcomm-tuning/1", "device": "cpu", "rows": rows}))

    def run_tool(self, *arguments):
        return self.tool("builtin_rows.py", "--root", self.root, *arguments)

    def read(self, suffix):
        with open(f"{self.root}/src/dispatch/builtin_rows.{suffix}", encoding="utf-8") as file:
            return file.read()

    def test_the_tree_is_clean(self):
        status, output = self.tool("builtin_rows.py", "--check")
        self.assertEqual(status, 0, output)

    def test_the_tree_has_each_class(self):
        with open(ROOT + "/src/dispatch/builtin_rows.json", encoding="utf-8") as file:
            rows = json.load(file)["rows"]
        for topology in ("cpu", "same_gpu", "nvlink", "pcie_p2p", "mixed"):
            self.assertGreater(sum(row["topology"] == topology and row["coll"] == "all_reduce" for row in rows), 2, topology)

    def test_finds_a_difference(self):
        self.assertEqual(self.run_tool()[0], 0)
        self.assertEqual(self.run_tool("--check"), (0, ""))
        self.plant_rows([{**OLD[0], "bytes_max": 77}])
        status, output = self.run_tool("--check")
        self.assertEqual(status, 1)
        self.assertIn(", 77, ", output)

    def test_takes_measured_rows(self):
        self.plant_tuning(measured(capturing=True, bytes_max=999), measured(capturing=True, bytes_min=1000, path="oneshot"),
                          measured(capturing=False), measured(dtype="f32", path="oneshot", capturing=False))
        status, output = self.run_tool("--take", FROM)
        self.assertEqual((status, output), (0, ""))
        rows = json.loads(self.read("json"))["rows"]
        self.assertEqual([(row["ranks"], row.get("dtype"), row.get("capturing"), row["path"], row["from"]) for row in rows],
                         [(2, "f32", False, "oneshot", FROM), (2, None, True, "twoshot", FROM), (2, None, True, "oneshot", FROM),
                          (2, None, False, "twoshot", FROM), (4, None, None, "oneshot", "a guess"), (2, None, None, "oneshot", "the only path")])
        self.assertIn("X(TPCOMM_ALL_REDUCE, 0, TPC_TOPOLOGY_SAME_GPU, 2, TPCOMM_ON, 0, INT32_MAX, 0, 999, TPCOMM_PATH_TWOSHOT, TPCOMM_SOURCE_MEASURED, ", self.read("h"))
        self.assertIn(", 1500, 2250)", self.read("h"))
        self.assertEqual(self.run_tool("--check")[0], 0)
        before = self.read("json")
        self.assertEqual(self.run_tool("--take", FROM)[0], 0)  # the same again
        self.assertEqual(self.read("json"), before)

    def test_lengths_of_rows(self):
        lengths = [{"coll": "all_reduce_rms_norm", "path": "unfused", "hidden_max": 5792}, {"coll": "all_reduce_rms_norm", "path": "unfused", "hidden_min": 5793}]
        self.plant_tuning(*(measured(**length) for length in lengths))
        self.assertEqual(self.run_tool("--take", FROM), (0, ""))
        self.assertIn("TPCOMM_ALL_REDUCE_RMS_NORM, 0, TPC_TOPOLOGY_SAME_GPU, 2, 0, 0, 5792, 0, UINT64_MAX", self.read("h"))
        self.assertIn("TPCOMM_ALL_REDUCE_RMS_NORM, 0, TPC_TOPOLOGY_SAME_GPU, 2, 0, 5793, INT32_MAX, 0, UINT64_MAX", self.read("h"))

    def test_one_mode_leaves_the_other(self):
        self.plant_tuning(measured(capturing=True))
        for _ in range(2):
            self.assertEqual(self.run_tool("--take", FROM)[0], 0)
            rows = json.loads(self.read("json"))["rows"]
            self.assertEqual([(row["ranks"], row.get("capturing"), row["path"]) for row in rows],
                             [(2, True, "twoshot"), (2, None, "oneshot"), (4, None, "oneshot"), (2, None, "oneshot")])

    def test_refusals(self):
        for rows, want in (([{**OLD[0], "source": "measured"}], "names the file in bench/results/"), ([{**OLD[0], "byte_max": 1}], "unknown key byte_max"),
                           ([{**OLD[0], "source": "guessed"}], "guessed"), ([{"coll": "all_reduce"}], "no topology"), ([{**OLD[0], "from": ""}], "from")):
            self.plant_rows(rows)
            status, output = self.run_tool()
            self.assertEqual(status, 2)
            self.assertIn(want, output)
        self.plant_rows(OLD)
        self.plant("elsewhere.json", "{}")
        for name, text, want in (("elsewhere.json", None, "must lie in bench/results/"), (FROM, "{}", "its schema is None"), (FROM, "{", FROM),
                                 (FROM, json.dumps({"schema": "tpcomm-tuning/1", "rows": []}), "no rows"),
                                 (FROM, json.dumps({"schema": "tpcomm-tuning/1", "rows": [measured(source="estimated")]}), "is not measured")):
            if text is not None:
                self.plant(name, text)
            status, output = self.run_tool("--take", name)
            self.assertEqual(status, 2, output)
            self.assertIn(want, output)


if __name__ == "__main__":
    unittest.main(verbosity=2)
