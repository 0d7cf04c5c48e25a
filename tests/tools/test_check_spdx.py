# SPDX-License-Identifier: Apache-2.0
"""Check that tools/check_spdx.py finds files that do not begin with their licence."""
import unittest

from planted import Planted, ROOT

LINE = "SPDX-License-Identifier: Apache-2.0"


class Spdx(Planted):
    def test_the_tree_is_clean(self):
        status, output = self.tool("check_spdx.py", "--root", ROOT)
        self.assertEqual(status, 0, output)

    def test_places(self):
        self.plant("a.c", f"/* {LINE} */\n")
        self.plant("b.sh", f"#!/bin/sh\n# {LINE}\n")
        self.plant("c.json", "{}")
        self.plant("build/generated.c", "\n")
        self.assertEqual(self.tool("check_spdx.py", "--root", self.root)[0], 0)
        self.plant("late.c", f"\n/* {LINE} */\n")
        self.plant("other/none.md", "text\n")
        self.plant("empty.h", "")
        self.assert_faults(self.tool("check_spdx.py", "--root", self.root), "late.c:1:", "other/none.md:1:", "empty.h:1:")


if __name__ == "__main__":
    unittest.main()
