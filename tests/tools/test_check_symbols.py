# SPDX-License-Identifier: Apache-2.0
"""Check that tools/check_symbols.py finds foreign exports and imports, and what is wrong with the file itself."""
import os
import subprocess
import unittest

from planted import Planted

HEADER = """#define TPCOMM_VERSION_MAJOR 0
#define TPCOMM_VERSION_MINOR 1
TPCOMM_API int tpcomm_one(void);
/* TPCOMM_API int tpcomm_comment(void); */
"""
GOOD = "int tpcomm_one(void); int tpcomm_one(void) { return 1; }\n"
MAP = "TPCOMM_0.1 { global: tpcomm_*; local: *; };\n"


class Symbols(Planted):
    def check(self, code, symbol_map=MAP, flags=("-Wl,-z,nodelete", "-Wl,-soname,libtpcomm.so.0.1"), libraries=(), more=()):
        source, script = self.plant("a.c", code), self.plant("a.map", symbol_map)
        shared, static, one = (os.path.join(self.root, name) for name in ("libtpcomm.so", "libtpcomm.a", "a.o"))
        if os.path.exists(static):
            os.remove(static)
        compiler = [os.environ.get("CC", "cc"), "-w", "-fPIC"]
        subprocess.run([*compiler, "-shared", "-o", shared, source, f"-Wl,--version-script={script}", "-Wl,--no-as-needed", *libraries,
                        *flags], check=True)
        subprocess.run([*compiler, "-c", "-o", one, source], check=True)
        subprocess.run(["ar", "rc", static, one], check=True)
        return self.tool("check_symbols.py", "--shared", shared, "--static", static, "--header", self.plant("tpcomm.h", HEADER), *more)

    def test_clean(self):
        status, output = self.check(GOOD)
        self.assertEqual(status, 0, output)

    def test_exports(self):
        self.assert_faults(self.check(GOOD + "int tpc_two(void) { return 2; }\n"), ("libtpcomm.a", "exports tpc_two"))
        self.assert_faults(self.check(GOOD + "int tpcomm_two(void) { return 2; }\n"), ("libtpcomm.a", "exports tpcomm_two"),
                           ("libtpcomm.so", "exports tpcomm_two"))
        self.assert_faults(self.check("int tpcomm_two(void) { return 2; }\n"), ("libtpcomm.a", "does not export tpcomm_one"),
                           ("libtpcomm.so", "does not export tpcomm_one"), ("libtpcomm.a", "exports tpcomm_two"),
                           ("libtpcomm.so", "exports tpcomm_two"))
        self.assert_faults(self.check(GOOD, "TPCOMM_0.9 { global: tpcomm_*; local: *; };\n"), "exports TPCOMM_0.9",
                           ("TPCOMM_0.9 has version", "want TPCOMM_0.1"), ("tpcomm_one has version", "want TPCOMM_0.1"))

    def test_imports(self):
        for name in ("exit", "abort", "_exit"):
            code = f"void {name}(int); " + GOOD.replace("return 1", f"{name}(1); return 1")
            self.assert_faults(self.check(code), ("libtpcomm.so", f"imports {name}", "ends the process"),
                               ("libtpcomm.a", f"imports {name}", "ends the process"))

    def test_foreign(self):
        """What a linked archive imports is excused where our own objects do not import it; ending the process never is."""
        mine = self.plant("own/mine.c", GOOD)
        foreign = self.plant("foreign.c", "int shm_unlink(const char *); int foreign(void) { return shm_unlink(\"x\"); }\n")
        archive, own = os.path.join(self.root, "libforeign.a"), os.path.join(self.root, "own")
        objects = {}
        for source in (mine, foreign):
            objects[source] = source[:-1] + "o"
            subprocess.run([os.environ.get("CC", "cc"), "-w", "-fPIC", "-c", "-o", objects[source], source], check=True)
        subprocess.run(["ar", "rc", archive, objects[foreign]], check=True)
        whole = GOOD + "int shm_unlink(const char *); int foreign(void) { return shm_unlink(\"x\"); }\n"
        whole = whole.replace("int foreign(void)", "static __attribute__((used)) int foreign(void)")
        self.assert_faults(self.check(whole), "imports shm_unlink", "imports shm_unlink")
        more = ("--foreign", archive, "--own", own)
        self.assertEqual(self.check(whole, more=more)[0], 0)
        self.assert_faults(self.check(whole.replace("return shm", "extern void abort(void); abort(); return shm"), more=more),
                           ("libtpcomm.so", "abort"), ("libtpcomm.a", "abort"))
        self.plant("own/mine.c", whole)
        subprocess.run([os.environ.get("CC", "cc"), "-w", "-fPIC", "-c", "-o", objects[mine], mine], check=True)
        self.assert_faults(self.check(whole, more=more), ("mine.o", "imports shm_unlink"))

    def test_file(self):
        self.assert_faults(self.check(GOOD, flags=("-Wl,-soname,libtpcomm.so.0.1",)), "nodelete")
        self.assert_faults(self.check(GOOD, flags=("-Wl,-z,nodelete",)), "soname")
        self.assert_faults(self.check(GOOD, libraries=("-l:libgcc_s.so.1",)), ("needs libgcc_s.so.1", "not glibc's"))


if __name__ == "__main__":
    unittest.main()
