# SPDX-License-Identifier: Apache-2.0
"""Check that a skipped test passes only with a label that allows it and a reason."""
import json
import unittest

from planted import Planted


def junit(**tests):
    cases = "".join(f'<testcase name="{name}" status="{"run" if output is None else "notrun"}">'
                    f'{"" if output is None else "<skipped message=""/>"}<system-out>{output or ""}</system-out></testcase>'
                    for name, output in tests.items())
    return f'<?xml version="1.0"?><testsuite name="x">{cases}</testsuite>'


class Skips(Planted):
    def check(self, labels, **tests):
        shown = {"tests": [{"name": name, "properties": [{"name": "LABELS", "value": labels}]} for name in tests]}
        return self.tool("check_skips.py", "--junit", self.plant("junit.xml", junit(**tests).replace('message=/', 'message=""/')),
                         "--tests", self.plant("tests.json", json.dumps(shown)))

    def test_none(self):
        self.assertEqual(self.check(["unit"], ran=None), (0, ""))

    def test_allowed(self):
        for label in ("gpu", "ib", "torch"):
            status, output = self.check(["unit", label], away="text\nSKIP: no such device\n")
            self.assertEqual(status, 0, output)
            self.assertIn("no such device", output)

    def test_not_allowed(self):
        self.assert_faults(self.check(["unit"], away="SKIP: tired\n"), ("away", "tired", "NOT ALLOWED"))
        self.assert_faults(self.check([], away="SKIP: tired\n"), ("away", "no label", "NOT ALLOWED"))

    def test_no_reason(self):
        self.assert_faults(self.check(["gpu"], away="nothing said\n"), ("away", "NOT ALLOWED", "no line"))


if __name__ == "__main__":
    unittest.main()
