# SPDX-License-Identifier: Apache-2.0
"""What the tests of tools share: a throwaway tree with planted files, and a tool run on it."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Planted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tpcomm tools ")
        self.addCleanup(folder.cleanup)
        self.root = folder.name

    def plant(self, path, text):
        """Write a file of the tree; returns its place."""
        place = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "w", encoding="utf-8") as file:
            file.write(text)
        return place

    def tool(self, name, *arguments):
        """(exit status, output) of tools/name."""
        done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", name), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout

    def assert_faults(self, result, *wanted):
        """The tool failed with exactly these lines; each is given by pieces that it must hold."""
        status, output = result
        lines = output.strip().split("\n")
        self.assertEqual(status, 1, output)
        self.assertEqual(len(lines), len(wanted), output)
        for pieces in wanted:
            pieces = (pieces,) if isinstance(pieces, str) else pieces
            self.assertTrue(any(all(piece in line for piece in pieces) for line in lines), f"{pieces} not in:\n{output}")
