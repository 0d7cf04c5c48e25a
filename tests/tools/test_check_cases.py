# SPDX-License-Identifier: Apache-2.0
"""Check that tools/check_cases.py finds a missing, double, unknown or wrongly mapped case."""
import os
import unittest

from planted import Planted, ROOT


class Cases(Planted):
    def setUp(self):
        super().setUp()
        with open(os.path.join(ROOT, "tests", "cases.txt"), encoding="utf-8") as file:
            rows = [line.split("|") for line in file.read().split("\n") if "|" in line and not line.startswith("#")]
        self.lines = [f"{row[0]}|{row[1]}| owed: groups | words" for row in rows]
        self.names = self.plant("names", "test_one test_two\n")

    def check(self, *arguments):
        path = self.plant("cases.txt", "\n".join(self.lines))
        return self.tool("check_cases.py", "--cases", path, "--ctest-names", self.names, *arguments)

    def set(self, case, where):
        row = next(i for i, line in enumerate(self.lines) if line.startswith(case + " "))
        self.lines[row] = f"{case} | F1 | {where} | words"

    def test_clean(self):
        self.set("W8", "test: test_one, test_two")
        self.set("W13", "test: test_one; owed: gpu, groups")
        status, output = self.check("--strict")
        self.assertEqual(status, 0, output)
        self.assertIn("shown by tests 2,", output)

    def test_missing_and_double(self):
        self.lines = [line for line in self.lines if not line.startswith("S1 ")]
        self.lines.append(self.lines[0])
        self.assert_faults(self.check(), "S1 is missing", "stands in line 1 already")

    def test_unknown(self):
        self.set("W8", "test: test_three")
        self.set("H9", "owed: somebody")
        self.set("C1", "test: test_one, test_four; owed: gpu")
        self.lines += ["Z9 | F1 | owed: gpu | words", "W9 no form", "W9 | F1 | test: | words", "W9 | F1 | gpu | words"]
        self.assert_faults(self.check(), ("W8", "no test test_three"), ("H9", "somebody"), ("C1", "no test test_four"), "Z9 is no case",
                           *["not of the form"] * 3)

    def test_this_release(self):
        self.set("W8", "owed: this release")
        self.assertEqual(self.check()[0], 0)
        self.assert_faults(self.check("--strict"), "W8 is owed by this release")


if __name__ == "__main__":
    unittest.main()
