# SPDX-License-Identifier: Apache-2.0
"""Check that docs/environment.md is what the table of variables says, and that the tool finds the two apart."""
import shutil
import unittest

from planted import Planted, ROOT


class EnvironmentDoc(Planted):
    def setUp(self):
        super().setUp()
        with open(ROOT + "/src/base/env.h", encoding="utf-8") as file:
            self.table = file.read()
        with open(ROOT + "/docs/environment.md", encoding="utf-8") as file:
            self.page = file.read()

    def check(self, *arguments):
        return self.tool("gen_environment_doc.py", "--root", self.root, *arguments)

    def plant_both(self, table, page):
        self.plant("src/base/env.h", table)
        self.plant("docs/environment.md", page)

    def test_the_tree_is_clean(self):
        status, output = self.tool("gen_environment_doc.py", "--check")
        self.assertEqual(status, 0, output)

    def test_every_variable_is_on_the_page(self):
        count = self.table.count("\n    X(")
        self.assertGreater(count, 15)
        self.assertEqual(self.page.count("\n| `TPCOMM_"), count)

    def test_what_it_writes_is_equal(self):
        self.plant_both(self.table, "")
        self.assertEqual(self.check()[0], 0)
        with open(self.root + "/docs/environment.md", encoding="utf-8") as file:
            self.assertEqual(file.read(), self.page)
        self.assertEqual(self.check("--check")[0], 0)

    def test_each_cell_counts(self):
        for was, now in (("86400000,    \"ms\"", "86400001,    \"ms\""), ("\"300000\"", "\"300001\""), ("limit of init\"", "limit of it\""),
                         ("auto|cuda|cpu", "auto|cpu"), ("\"LOG_FILE\"", "\"LOG_PATH\""), ("TEXT, LOCAL,", "TEXT, SHARED,"),
                         ("BOOL, SHARED", "TEXT, SHARED")):
            self.assertIn(was, self.table)
            self.plant_both(self.table.replace(was, now), self.page)
            status, output = self.check("--check")
            self.assertEqual(status, 1, was)
            self.assertIn("run tools/gen_environment_doc.py", output)

    def test_a_missing_page_or_table_is_told(self):
        self.plant("src/base/env.h", self.table)
        self.assertEqual(self.check("--check")[0], 1)
        for table in ("", self.table.replace("TPC_ENV_LIST(X)", "TPC_OTHER(X)"), self.table.replace("WORD, LOCAL", "WORD"),
                      self.table.replace("U64,  RANK", "U46,  RANK")):
            self.plant_both(table, self.page)
            self.assertEqual(self.check("--check")[0], 2)
        shutil.rmtree(self.root + "/src")
        self.assertEqual(self.check("--check")[0], 2)


if __name__ == "__main__":
    unittest.main()
