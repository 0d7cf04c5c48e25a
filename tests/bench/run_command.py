# SPDX-License-Identifier: Apache-2.0
"""Check that `tpcomm-bench run` starts ranks, keeps their lines whole, gives their exit code, and leaves no process behind whoever is killed.

usage: run_command.py TPCOMM_BENCH
"""
import collections
import contextlib
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BENCH = os.path.abspath(sys.argv[1])
LIMIT = 100  # seconds that nothing here comes near
RANK = "import os, sys, time, signal; rank = os.environ['TPCOMM_RANK']; "


def alive(marker):
    """Processes whose command line holds marker."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            pass
    return [pid for pid in found if pid != os.getpid()]


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.marker = f"tpcomm-marker-{os.getpid()}-{time.monotonic_ns()}"
        self.addCleanup(self.kill_all)

    def kill_all(self):
        for pid in alive(self.marker):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start(self, *arguments, **keywords):
        keywords = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **keywords}
        process = subprocess.Popen([BENCH, "run", *arguments], **keywords)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()
        process.wait()

    def run_ranks(self, *arguments, text=True, **keywords):
        done = subprocess.run([BENCH, "run", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=text, timeout=LIMIT,
                              **keywords)
        return done.returncode, done.stdout, done.stderr

    def python(self, n, code, *options, **keywords):
        return self.run_ranks("-n", str(n), *options, "--", sys.executable, "-c", RANK + code, **keywords)

    def wait_until(self, condition, what):
        limit = time.monotonic() + LIMIT
        while not condition():
            self.assertLess(time.monotonic(), limit, what)
            time.sleep(0.02)

    def wait_for(self, *names):
        self.wait_until(lambda: all(os.path.exists(os.path.join(self.folder, name)) for name in names), f"no {names}")

    def remove(self, *names):
        for name in names:
            pathlib.Path(self.folder, name).unlink(missing_ok=True)

    def touch(self, name):
        """Code of a rank that tells us how far it is."""
        return f"open(os.path.join({self.folder!r}, {name}), 'w').close(); "

    # ------------------------------------------------------------ environment

    def test_environment(self):
        env = {**os.environ, "RANK": "5", "WORLD_SIZE": "9", "MASTER_PORT": "1", "OMPI_COMM_WORLD_RANK": "3", "PMI_SIZE": "3",
               "PMIX_RANK": "1", "SLURM_PROCID": "1", "SLURM_NTASKS": "4", "TPCOMM_ROOT": "far:1", "TPCOMM_RANK": "8",
               "TPCOMM_LOG": "info", "RANKED": "kept"}
        code, out, err = self.python(3, "print(*sorted(f'{k}={v}' for k, v in os.environ.items()), sep='\\n')", env=env)
        self.assertEqual((code, err), (0, ""))
        seen = collections.defaultdict(dict)
        for line in out.splitlines():
            match = re.fullmatch(r"\[(\d)\] (\w+)=(.*)", line)
            if match:
                seen[int(match[1])][match[2]] = match[3]
        self.assertEqual(sorted(seen), [0, 1, 2])
        for rank, variables in seen.items():
            ours = {name: value for name, value in variables.items() if name.startswith("TPCOMM_")}
            self.assertRegex(ours.pop("TPCOMM_JOB_ID"), "^[0-9a-f]{32}$")
            self.assertEqual(ours, {"TPCOMM_RANK": str(rank), "TPCOMM_SIZE": "3", "TPCOMM_LOCAL_RANK": str(rank),
                                    "TPCOMM_LOCAL_SIZE": "3", "TPCOMM_LOG": "info"})
            for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID",
                         "SLURM_NTASKS"):
                self.assertNotIn(name, variables)
            self.assertEqual(variables["RANKED"], "kept")
        self.assertEqual(len({variables["TPCOMM_JOB_ID"] for variables in seen.values()}), 1)
        _, again, _ = self.python(1, "print(os.environ['TPCOMM_JOB_ID'])")
        self.assertNotIn(again.strip()[4:], out)

    def test_no_descriptor_of_ours(self):
        """Ranks get their three streams and nothing of the launcher's."""
        code, out, _ = self.python(2, "fds = [int(f) for f in os.listdir('/proc/self/fd')]; "
                                      "print(*[f for f in fds if f > 2 and os.path.exists(f'/proc/self/fd/{f}')])", close_fds=True)
        self.assertEqual(code, 0)
        # The list's own descriptor is closed by the time it is looked at.
        self.assertEqual(sorted(out.splitlines()), ["[0] ", "[1] "])

    def test_stdin(self):
        code, out, _ = self.python(3, "print(repr(sys.stdin.read()))", input="to rank 0\n")
        self.assertEqual(code, 0)
        self.assertEqual(sorted(out.splitlines()), [r"[0] 'to rank 0\n'", "[1] ''", "[2] ''"])

    def test_stdin_from_terminal(self):
        """Ranks are in groups of their own, where reading the terminal would stop them."""
        pid, fd = pty.fork()
        if pid == 0:
            try:
                os.execv(BENCH, [BENCH, "run", "-n", "2", "--", sys.executable, "-c", RANK + "print('got', rank, sys.stdin.readline())"])
            finally:
                os._exit(127)
        os.write(fd, b"typed\n")
        seen = b""
        while True:
            try:
                piece = os.read(fd, 4096)
            except OSError:
                piece = b""
            if not piece:
                break
            seen += piece
        os.close(fd)
        self.assertEqual(os.waitpid(pid, 0)[1], 0, seen)
        self.assertIn(b"[0] got 0 typed", seen)

    # ------------------------------------------------------------ output

    def test_lines(self):
        """Whole lines, all of them, in each rank's order, on the right stream."""
        code, out, err = self.python(4, "[print(f'{rank} line {i}', 'x' * (i % 300), file=sys.stdout if i % 2 else sys.stderr) "
                                        "for i in range(4000)]")
        self.assertEqual(code, 0)
        for text, odd in ((out, 1), (err, 0)):
            expected = {str(rank): iter(range(odd, 4000, 2)) for rank in range(4)}
            for line in text.splitlines():
                match = re.fullmatch(r"\[(\d)\] (\d) line (\d+) (x*)", line)
                self.assertTrue(match, line)
                i = next(expected[match[1]])
                self.assertEqual((match[1], int(match[3]), len(match[4])), (match[2], i, i % 300))
            for left in expected.values():
                self.assertEqual(list(left), [])

    def test_last_line_and_bytes(self):
        code, out, err = self.python(2, "sys.stdout.buffer.write(b'a\\0b\\xff\\n\\nend ' + rank.encode())", text=False)
        self.assertEqual((code, err), (0, b""))
        self.assertEqual(sorted(out.splitlines()), sorted([b"[0] a\0b\xff", b"[0] ", b"[0] end 0", b"[1] a\0b\xff", b"[1] ", b"[1] end 1"]))

    def test_huge_line(self):
        code, out, _ = self.python(2, "sys.stdout.write('y' * 1000000); print('!')")
        self.assertEqual(code, 0)
        for rank in "01":
            pieces = [line[4:] for line in out.splitlines() if line.startswith(f"[{rank}] ")]
            self.assertEqual("".join(pieces), "y" * 1000000 + "!")
            self.assertGreater(len(pieces), 10)

    def test_slow_reader(self):
        """A reader that stops reading stops the ranks; memory stays bounded and nothing is lost."""
        process = self.start("-n", "2", "--", sys.executable, "-c", RANK + "[print(i, 'z' * 1000) for i in range(8000)]")
        time.sleep(0.3)
        self.assertIsNone(process.poll())
        total = 2 * sum(len(f"[0] {i} \n") + 1000 for i in range(8000))
        out = process.stdout.read(total - 560000)
        time.sleep(1.5)  # the ranks have ended by now, and their last lines lie in their pipes, since the launcher is full
        out += process.stdout.read()  # communicate() would pass over what the stream has read ahead
        self.assertEqual((process.stderr.read(), process.wait(timeout=LIMIT)), (b"", 0))
        self.assertEqual((out.count(b"\n"), len(out)), (16000, total))

    def test_reader_gone(self):
        process = self.start("-n", "2", "--", sys.executable, "-c", RANK + f"marker = {self.marker!r}\nwhile True: print('z' * 1000)")
        process.stdout.readline()
        process.stdout.close()
        process.stdout = None
        process.wait(timeout=LIMIT)
        self.assertNotEqual(process.returncode, 0)
        self.assertEqual(alive(self.marker), [])

    def test_no_prefix(self):
        code, out, err = self.python(2, "os.write(1, b'plain\\n')", "--no-prefix")
        self.assertEqual((code, out, err), (0, "plain\nplain\n", ""))

    # ------------------------------------------------------------ endings

    def test_exit_code(self):
        for status in (1, 7, 255):
            code, _, err = self.python(3, f"sys.exit({status} if rank == '1' else 0)")
            self.assertEqual(code, status)
            self.assertRegex(err, rf"tpcomm-bench run: rank 1 \(pid \d+\) ended with exit code {status}")

    def test_first_failure_ends_the_rest(self):
        begin = time.monotonic()
        code, _, err = self.python(3, f"marker = {self.marker!r}; time.sleep(0 if rank == '2' else 120); sys.exit(5)")
        self.assertEqual(code, 5)
        self.assertIn("rank 2", err)
        self.assertIn("stopping the other 2", err)
        self.assertLess(time.monotonic() - begin, LIMIT)
        self.assertEqual(alive(self.marker), [])

    def test_signal(self):
        code, _, err = self.python(2, "os.kill(os.getpid(), signal.SIGSEGV) if rank == '1' else time.sleep(120)")
        self.assertEqual(code, 128 + signal.SIGSEGV)
        self.assertRegex(err, r"rank 1 \(pid \d+\) was killed by signal 11 \(Segmentation fault\)")

    def test_term_first_then_kill(self):
        """A rank that wants to end well can; one that will not is killed."""
        both = self.touch("'ready' + rank") + "time.sleep(120)"
        polite = "signal.signal(signal.SIGTERM, lambda *a: (print('goodbye'), sys.exit(0))); "
        deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        for _ in range(5):  # as long as the polite one is kept from its processor for all of 2 s
            code, out, err = self.python(3, f"marker = {self.marker!r}\nif rank == '0': {polite}{both}\nif rank == '1': {deaf}{both}\n"
                                            f"while not all(os.path.exists({self.folder!r} + '/ready' + r) for r in '01'): time.sleep(0.01)\n"
                                            "sys.exit(3)")
            self.assertEqual(code, 3)
            self.assertEqual(alive(self.marker), [])
            self.assertRegex(err, "did not end within 2000 ms: rank (0, )?1; killed")
            if "rank 0, 1; killed" not in err:
                break
            self.assertIn(out, ("", "[0] goodbye\n"))
            self.remove("ready0", "ready1")
        self.assertEqual(out, "[0] goodbye\n")
        self.assertIn("did not end within 2000 ms: rank 1; killed", err)

    def test_program_not_found(self):
        code, _, err = self.run_ranks("-n", "2", "--", "./no-such-program")
        self.assertEqual((code, err), (127, "tpcomm-bench run: ./no-such-program: No such file or directory\n"))
        code, _, err = self.run_ranks("-n", "2", "--", "no-such-program-in-path")
        self.assertEqual(code, 127)
        code, _, err = self.run_ranks("-n", "2", "--", self.folder)
        self.assertEqual(code, 126)
        self.assertIn("Permission denied", err)

    def test_usage(self):
        for arguments, piece in ((["-n", "0", "--", "x"], "--ranks 0"), (["-n", "257", "--", "x"], "257"), (["-n", "2"], "no program"),
                                 (["-n", "2", "--"], "no program"), (["-n", "two", "--", "x"], "two"), (["--frob", "--", "x"], "--frob")):
            code, out, err = self.run_ranks(*arguments)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertIn(piece, err)
        code, out, _ = self.run_ranks("--help")
        self.assertEqual(code, 0)
        self.assertIn("--timeout-s", out)

    def test_timeout(self):
        for seconds in (1, 4, 16):  # in which rank 0 comes to its end, unless it is kept from its processor
            code, _, err = self.python(2, f"marker = {self.marker!r}; time.sleep(120 if rank == '1' else 0)", "--timeout-s", str(seconds))
            self.assertEqual(code, 124)
            self.assertRegex(err, f"still running after {seconds} s: rank (0, )?1; stopping")
            self.assertEqual(alive(self.marker), [])
            if "rank 1; stopping" in err:
                break
        self.assertIn(f"still running after {seconds} s: rank 1; stopping", err)

    # ------------------------------------------------------------ signals and orphans

    def test_signals_are_passed_on(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            caught = f"signal.signal({int(number)}, lambda *a: (print('caught'), sys.exit(0))); "
            for _ in range(5):  # as long as a rank is kept from its processor for all of the 2 s that it has
                self.remove("ready0", "ready1")
                process = self.start("-n", "2", "--", sys.executable, "-c", RANK + caught + self.touch("'ready' + rank") + "time.sleep(120)")
                self.wait_for("ready0", "ready1")
                process.send_signal(number)
                out, err = process.communicate(timeout=LIMIT)
                if b"did not end within 2000 ms" not in err:
                    break
            self.assertEqual((process.returncode, sorted(out.splitlines())), (0, [b"[0] caught", b"[1] caught"]))

    def test_signal_nobody_catches(self):
        process = self.start("-n", "2", "--", "sleep", "120")
        self.wait_until(lambda: len(self.children_of(process.pid, "sleep")) == 2, "ranks did not start")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 130)

    @staticmethod
    def children_of(pid, name):
        """Processes of this name in the tree below pid."""
        below, found = {pid}, []
        for _ in range(3):
            for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
                try:
                    text = path.read_text()
                except OSError:
                    continue
                if int(text.rpartition(")")[2].split()[1]) in below:
                    below.add(int(path.parent.name))
        for child in below:
            try:
                if pathlib.Path(f"/proc/{child}/comm").read_text().strip() == name:
                    found.append(child)
            except OSError:
                pass
        return found

    def tree(self):
        """A rank with a child in its group, one in a session of its own, and one whose parent is gone; all carry the marker."""
        sleeper = f"[{sys.executable!r}, '-c', 'import time; time.sleep(120)', {self.marker!r}]"
        return (RANK + "import subprocess; "
                f"subprocess.Popen({sleeper}); subprocess.Popen({sleeper}, start_new_session=True); "
                f"subprocess.run(['sh', '-c', 'setsid ' + {sys.executable!r} + ' -c \"import time; time.sleep(120)\" ' + {self.marker!r} + ' &']); ")

    def test_what_ranks_leave_is_ended(self):
        code, _, err = self.run_ranks("-n", "2", "--", sys.executable, "-c", self.tree() + "print('done')")
        self.assertEqual(code, 0)
        self.assertIn("ending 6 processes that the ranks left behind", err)
        self.assertEqual(alive(self.marker), [])

    def test_failure_ends_the_whole_tree(self):
        code, _, _ = self.run_ranks("-n", "2", "--", sys.executable, "-c", self.tree() + "sys.exit(4)")
        self.assertEqual(code, 4)
        self.assertEqual(alive(self.marker), [])

    def test_launcher_killed(self):
        """SIGKILL of either of the launcher's processes leaves no rank."""
        process = self.start("-n", "2", "--", sys.executable, "-c", self.tree() + self.touch("'ready' + rank") + "time.sleep(120)")
        self.wait_for("ready0", "ready1")
        self.wait_until(lambda: len(alive(self.marker)) >= 8, "tree did not start")
        process.kill()
        self.wait_until(lambda: not alive(self.marker), "processes survived the launcher")

    def test_supervisor_killed(self):
        process = self.start("-n", "2", "--", "sleep", "120")
        self.wait_until(lambda: len(self.children_of(process.pid, "sleep")) == 2, "ranks did not start")
        ranks = self.children_of(process.pid, "sleep")
        supervisor = [pid for pid in self.children_of(process.pid, "tpcomm-bench") if pid != process.pid]
        self.assertEqual(len(supervisor), 1)
        os.kill(supervisor[0], signal.SIGKILL)
        process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, 137)
        self.wait_until(lambda: not any(os.path.exists(f"/proc/{pid}/exe") for pid in ranks), "ranks survived the supervisor")

    def test_nested(self):
        """Each inner job has a world of its own; a failure deep inside comes out."""
        code, out, _ = self.run_ranks("-n", "2", "--", BENCH, "run", "-n", "2", "--", sys.executable, "-c",
                                      RANK + "print(rank, os.environ['TPCOMM_SIZE'], os.environ['TPCOMM_JOB_ID'])")
        self.assertEqual(code, 0)
        jobs = collections.defaultdict(list)
        for line in out.splitlines():
            outer, inner, rank, size, job = line.split()
            self.assertEqual((inner, size), (f"[{rank}]", "2"))
            jobs[outer, job].append(rank)
        self.assertEqual(sorted(sorted(ranks) for ranks in jobs.values()), [["0", "1"], ["0", "1"]])
        self.assertEqual(len(jobs), 2)
        code, _, _ = self.run_ranks("-n", "2", "--", BENCH, "run", "-n", "2", "--", sys.executable, "-c",
                                    RANK + f"marker = {self.marker!r}; sys.exit(6) if rank == '1' else time.sleep(120)")
        self.assertEqual(code, 6)
        self.assertEqual(alive(self.marker), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
