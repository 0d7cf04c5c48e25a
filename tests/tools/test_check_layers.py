# SPDX-License-Identifier: Apache-2.0
"""Check that tools/check_layers.py names file, line and reason of every include that goes up, and lets the others be."""
import unittest

from planted import Planted, ROOT


class Layers(Planted):
    def setUp(self):
        super().setUp()
        self.plant("include/tpcomm.h", "#include <stdint.h>\n")
        for header in ("base/error.h", "base/json.h", "device/device.h", "topology/topology.h", "backend/backend.h",
                       "cpu_backend/cpu_backend.h", "custom_ar/signal.cuh", "custom_ar/custom_ar.h", "dispatch/dispatch.h"):
            self.plant("src/" + header, "\n")

    def check(self):
        return self.tool("check_layers.py", "--root", self.root)

    def test_the_tree_is_clean(self):
        status, output = self.tool("check_layers.py", "--root", ROOT)
        self.assertEqual(status, 0, output)

    def test_down_is_fine(self):
        self.plant("src/coordinator/backends.c", '#include "cpu_backend/cpu_backend.h"\n#include "dispatch/dispatch.h"\n')
        self.plant("src/fused/fused.cu", '#include "custom_ar/signal.cuh"\n#include "backend/backend.h"\n')
        self.plant("src/base/error.c", '#include "base/error.h"\n#include <error.h>\n#include <string.h>\n#include "tpcomm.h"\n')
        self.plant("bench/replay.c", '#include "bench.h"\n#include "base/json.h"\n#include <tpcomm.h>\n')
        self.plant("bench/bench.h", "\n")
        self.plant("tests/unit/test_dispatch.c", '#include "dispatch/dispatch.h"\n')
        self.assertEqual(self.check()[0], 0, self.check()[1])

    def test_up_and_across_are_named(self):
        self.plant("src/base/error.c", '\n#include "device/device.h"\n')
        self.plant("src/topology/topology.c", '#  include "../dispatch/dispatch.h"\n')
        self.plant("src/cpu_backend/cpu_backend.c", '/* text\n*/ #include "custom_ar/custom_ar.h"\n')
        self.plant("src/custom_ar/launch.h", "\n")
        self.plant("src/fused/fused.c", '#include "custom_ar/launch.h"\n')
        self.assert_faults(self.check(), ("src/base/error.c:2:", "up to device"), ("src/topology/topology.c:1:", "up to dispatch"),
                           ("src/cpu_backend/cpu_backend.c:2:", "across to custom_ar"),
                           ("src/fused/fused.c:1:", "across to custom_ar"))

    def test_backends_are_named_in_one_file(self):
        self.plant("src/dispatch/dispatch.c", '#include "cpu_backend/cpu_backend.h"\n')
        self.plant("src/coordinator/init.c", '#include "cpu_backend/cpu_backend.h"\n')
        self.assert_faults(self.check(), ("src/dispatch/dispatch.c:1:", "never includes a backend's folder"),
                           ("src/coordinator/init.c:1:", "the only file that names backends"))

    def test_outside_src(self):
        self.plant("bench/replay.c", '#include "dispatch/dispatch.h"\n')
        self.plant("examples/one.c", '#include "base/json.h"\n')
        self.plant("tests/package/consumer/c.c", "#include <base/error.h>\n")
        self.plant("src/base/error.c", '#include "../../bench/bench.h"\n')
        self.plant("bench/bench.h", "\n")
        self.plant("include/tpcomm.h", "#include <stdio.h>\n")
        self.assert_faults(self.check(), ("bench/replay.c:1:", "not src/dispatch/dispatch.h"), "examples/one.c:1:",
                           "tests/package/consumer/c.c:1:", ("src/base/error.c:1:", "nothing of bench/"),
                           ("include/tpcomm.h:1:", "stdio.h"))

    def test_one_file_rules(self):
        self.plant("src/base/log.c", '#include <cjson/cJSON.h>\n// getenv("A")\nconst char *s = "getenv(";\nint f(void) { return !getenv("A"); }\n'
                                     'void *g(void) { return dlopen("x", 1); }\n')
        self.assert_faults(self.check(), ("src/base/log.c:1:", "json"), ("src/base/log.c:4:", "env.c"), ("src/base/log.c:5:", "shlib.c"))

    def test_what_cannot_be_checked_is_an_error(self):
        self.plant("src/newcomer/newcomer.c", '#include "base/error.h"\n')
        self.plant("src/base/log.c", '#include HEADER\n#include "nowhere.h"\n')
        self.assert_faults(self.check(), ("src/newcomer/newcomer.c:1:", "not in the table"), ("src/base/log.c:1:", "macro"),
                           ("src/base/log.c:2:", "nowhere"))


if __name__ == "__main__":
    unittest.main()
