# SPDX-License-Identifier: Apache-2.0
"""Check that `tpcomm-bench top` shows the calls of every rank of a running job, and who waits for whom; and what it says where
nobody answers, or somebody else does.

usage: top_command.py TPCOMM_BENCH FAULT_STATUS
"""
import os
import re
import socket
import subprocess
import sys
import threading
import time
import unittest

BENCH, PROGRAM = (os.path.abspath(path) for path in sys.argv[1:3])
LIMIT = 60


def top(*arguments):
    done = subprocess.run([BENCH, "top", *arguments], capture_output=True, text=True, timeout=LIMIT, check=False)
    return done.returncode, done.stdout + done.stderr


class Top(unittest.TestCase):
    def test_running_job(self):
        address = f"@tpcomm-top-{os.getpid()}-%r"
        job = subprocess.Popen([BENCH, "run", "-n", "3", "--", PROGRAM, "serve"], stdin=subprocess.PIPE,
                               env={**os.environ, "TPCOMM_STATUS_SOCKET": address, "TPCOMM_DEVICE": "cpu"})
        try:
            deadline, output = time.monotonic() + LIMIT, ""
            quiet = [r"(?m)^ +0 +\d+ +1000 +0 +0.000 .*  all_reduce 1024 bf16$",
                     *(rf"(?m)^ +{rank} +\d+ +1001 +0 +0.000 .*  in barrier for [0-9.]+ ms, waits for 0$" for rank in (1, 2))]
            while not all(re.search(row, output) for row in quiet):
                status, output = top("--address", address, "--turns", "2", "--interval-ms", "200")
                self.assertLess(time.monotonic(), deadline, output)
            self.assertEqual(status, 0, output)
            self.assertIn("3 of 3 ranks answer", output)
            self.assertIn("group 'world' (3 ranks), device calls", output)
            self.assertEqual(len(re.findall(r"(?m)^ +\d+ +\d+ +100[01] ", output)), 6)
        finally:
            job.stdin.close()  # rank 0 goes on
            self.assertEqual(job.wait(LIMIT), 0)
        status, output = top("--address", address, "-n", "2")
        self.assertEqual(status, 2, output)
        self.assertIn("nobody answers at", output)

    def test_something_else(self):
        """Nonsense, silence and a sudden end are no rank."""
        for answer in (b"{", b'{"schema":"tpcomm-status/2","worlds":[]}', b"", b"\xff" * 1000000):
            with socket.socket(socket.AF_UNIX) as listener:
                address = f"tpcomm-top-other-{os.getpid()}"
                listener.bind("\0" + address)
                listener.listen()

                def serve(listener=listener, answer=answer):
                    connection, _ = listener.accept()
                    with connection:
                        try:
                            connection.sendall(answer)
                        except OSError:
                            pass

                thread = threading.Thread(target=serve)
                thread.start()
                status, output = top("--address", "@" + address, "--turns", "1")
                thread.join()
                self.assertEqual(status, 2, output)
                self.assertIn("nobody answers at", output)

    def test_usage(self):
        status, output = top("--help")
        self.assertEqual(status, 0, output)
        self.assertIn("--address", output)
        self.assertEqual(top()[0], 2)
        self.assertEqual(top("--address", "tcp:99999", "--turns", "1")[0], 2)


unittest.main(argv=sys.argv[:1])
