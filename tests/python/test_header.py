# SPDX-License-Identifier: Apache-2.0
"""Check that the module's picture of tpcomm.h is the header: every constant, every function's types, every struct's fields with the place
and size that the C compiler gives them."""
import ctypes
import os
import re
import subprocess

import pytest

from tpcomm import _abi, _buffers, _library, _values

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
with open(os.path.join(ROOT, "include", "tpcomm.h"), encoding="utf-8") as file:
    # Without comments, and without lines of the preprocessor but for the numbers that it defines.
    TEXT = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.DOTALL)
DEFINED = {name: int(value) for name, value in re.findall(r"^#define TPCOMM_([A-Z_]+) +([0-9]+)$", TEXT, re.MULTILINE)}
CODE = re.sub(r"^#(?:.*\\\n)*.*$", "", TEXT, flags=re.MULTILINE)

POINTED = {"tpcomm_t": _abi.comm_p, "tpcomm_mesh_t": _abi.mesh_p, "void": ctypes.c_void_p, "char": ctypes.c_char_p}
SCALARS = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
           "uint8_t": ctypes.c_uint8, "size_t": ctypes.c_size_t, "char": ctypes.c_char, "float": ctypes.c_float, "void": None}
OPAQUE = {"tpcomm_t": "tpcomm", "tpcomm_mesh_t": "tpcomm_mesh"}


def typedefs():
    """Types that the header gives a scalar's name to."""
    found = dict(SCALARS)
    for of, name in re.findall(r"typedef (\w+) (tpcomm_\w+);", CODE):
        found[name] = found[of]
    for name in re.findall(r"typedef struct CUstream_st \*(tpcomm_\w+);", CODE):
        found[name] = ctypes.c_void_p
    return found


def structs():
    """{name: [(field, type as written, length of an array or "")]} of every struct with fields."""
    found = {}
    for body, name in re.findall(r"typedef struct \{(.*?)\} (tpcomm_\w+);", CODE, re.DOTALL):
        fields = []
        for declaration in (" ".join(each.split()).replace("( ", "(") for each in body.split(";")[:-1]):
            function = re.fullmatch(r"(\w+ \(\*)(\w+)(\)\(.*\))", declaration)
            plain = re.fullmatch(r"(.*?[ *])(\w+)(?:\[(\d+)\])?", declaration)
            fields.append((function.group(2), function.group(1) + function.group(3), "") if function else
                          (plain.group(2), plain.group(1).strip(), plain.group(3) or ""))
        found[name] = fields
    return found


def functions():
    """{name: (result, [type of each argument])}, and the same of the types of functions; names without tpcomm_."""
    found = {}
    for result, name, arguments in re.findall(r"TPCOMM_API\s+([\w ]+\**)\s*\btpcomm_(\w+)\((.*?)\);", CODE, re.DOTALL):
        found[name] = (result, arguments)
    for result, name, arguments in re.findall(r"typedef (\w+) \(\*tpcomm_(\w+_fn)\)\((.*?)\);", CODE, re.DOTALL):
        found[name] = (result, arguments)
    split = {}
    for name, (result, arguments) in found.items():
        types = [] if arguments.strip() == "void" else [re.match(r"(.*?[ *])\w+$", " ".join(each.split())).group(1).strip()
                                                        for each in arguments.split(",")]
        split[name] = (result.strip(), types)
    return split


TYPES = typedefs()
STRUCTS = structs()
FUNCTIONS = functions()


def as_ctypes(written, place):
    """The ctypes type of a type as the header writes it. place: "argument" or "result" or "field"."""
    if "(*" in written:
        return _abi.interrupted_fn
    base, stars = re.fullmatch(r"([\w ]+?) *(\**)", written.replace("const ", "")).groups()
    if base.endswith("_fn") and not stars:
        return getattr(_abi, base[len("tpcomm_"):])
    if not stars:
        return TYPES[base]
    if stars == "**":
        return ctypes.POINTER(POINTED[base])
    if base == "char" and "const" not in written:  # room for a text, which a c_char_p is not
        return ctypes.POINTER(ctypes.c_char)
    if base in POINTED:
        return POINTED[base]
    of = getattr(_abi, base[len("tpcomm_"):], None) if base in STRUCTS else TYPES[base]
    assert (place == "argument" or base == "float") and of is not None, written
    return ctypes.POINTER(of)


def public(module):
    return {name: value for name, value in vars(module).items() if not name.startswith("_")}


def test_parser_sees_all():
    """What the parser leaves out, nothing below would miss."""
    assert len(FUNCTIONS) == TEXT.count("TPCOMM_API") - TEXT.count("#define TPCOMM_API") + len(re.findall(r"_fn\)\(", CODE))
    assert len(STRUCTS) + len(OPAQUE) == CODE.count("typedef struct") - CODE.count("typedef struct CUstream_st")
    for name, tag in OPAQUE.items():
        assert f"typedef struct {tag} {name};" in CODE
    assert len(FUNCTIONS) > 40 and len(STRUCTS) > 8


def test_constants():
    enumerators = {}
    for body in re.findall(r"enum \{(.*?)\}", CODE, re.DOTALL):
        for name, value in re.findall(r"TPCOMM_(\w+) = (-?\d+)", body):
            enumerators[name] = int(value)
        assert len(re.findall(r"TPCOMM_\w+", body)) == body.count("="), f"an enumerator without a value in {body}"
    wanted = {**enumerators, **DEFINED}
    assert {name: value for name, value in public(_abi).items() if isinstance(value, int)} == wanted


def test_functions():
    assert set(_abi.PROTOTYPES) == {name for name in FUNCTIONS if not name.endswith("_fn")}
    for name, (result, arguments) in _abi.PROTOTYPES.items():
        written_result, written_arguments = FUNCTIONS[name]
        assert result == as_ctypes(written_result, "result"), f"result of tpcomm_{name}"
        assert arguments == [as_ctypes(each, "argument") for each in written_arguments], f"arguments of tpcomm_{name}"


def test_function_types():
    for name in ("exchange_fn", "log_fn"):
        result, arguments = FUNCTIONS[name]
        mirrored = getattr(_abi, name)
        assert mirrored._restype_ == as_ctypes(result, "result"), name
        assert list(mirrored._argtypes_) == [as_ctypes(each, "argument") for each in arguments], name
    written = dict((name, written) for name, written, _ in STRUCTS["tpcomm_config_t"])["interrupted"]
    assert written == "int32_t (*)(void *arg)"
    assert (_abi.interrupted_fn._restype_, _abi.interrupted_fn._argtypes_) == (ctypes.c_int32, (ctypes.c_void_p,))


def test_functions_are_bound():
    for name, (result, arguments) in _abi.PROTOTYPES.items():
        function = getattr(_library.lib, name)
        assert (function.restype, function.argtypes) == (result, arguments), name


def test_struct_fields():
    mirrored = {f"tpcomm_{name}": value for name, value in public(_abi).items()
                if isinstance(value, type) and issubclass(value, ctypes.Structure) and value is not ctypes.Structure}
    assert set(mirrored) == set(STRUCTS)
    for name, fields in STRUCTS.items():
        wanted = []
        for field, written, length in fields:
            kind = mirrored[written] if written in mirrored else as_ctypes(written, "field")
            wanted.append((field, kind * int(length) if length else kind))
        assert list(mirrored[name]._fields_) == wanted, name


def test_struct_layout(tmp_path):
    """Places and sizes as this machine's C compiler lays them out."""
    lines = ["#include <stddef.h>", "#include <stdio.h>", "#include <tpcomm.h>", "int main(void) {"]
    wanted = []
    for name, fields in STRUCTS.items():
        mirrored = getattr(_abi, name[len("tpcomm_"):])
        lines.append(f'    printf("{name} %zu\\n", sizeof({name}));')
        wanted.append(f"{name} {ctypes.sizeof(mirrored)}")
        for field, _, _ in fields:
            lines.append(f'    printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), sizeof((({name} *)0)->{field}));')
            wanted.append(f"{name}.{field} {getattr(mirrored, field).offset} {getattr(mirrored, field).size}")
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text("\n".join([*lines, "    return 0;", "}", ""]))
    subprocess.run([os.environ["TPCOMM_TEST_CC"], "-std=c11", "-I", os.path.join(ROOT, "include"), source, "-o", program], check=True)
    assert subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout.split("\n")[:-1] == wanted


@pytest.mark.parametrize("table, function", [(_values.OPS, "op_name"), (_values.COLLS, "coll_name"), (_values.PATHS, "path_name")])
def test_names_are_the_librarys(table, function):
    prefix = {"op_name": r"(SUM|AVG|MAX|MIN|PROD)", "coll_name": r"(ALL_REDUCE|BARRIER|BROADCAST|ALL_GATHER|REDUCE_SCATTER)(_RMS_NORM|_ROWS)?",
              "path_name": r"PATH_\w+"}[function]
    numbers = {value for name, value in public(_abi).items() if re.fullmatch(prefix, name)}
    assert set(table.values()) == numbers
    assert {getattr(_library.lib, function)(number).decode(): number for number in numbers} == table


def test_dtypes_are_the_librarys():
    """Every element type has its name in Python, and that has the size."""
    numbers = {getattr(_abi, name) for name in ("F32", "F16", "BF16", "I8", "U8", "I32", "I64", "U32", "U64", "F64", "F8_E4M3", "F8_E5M2")}
    assert set(_buffers.DTYPES.values()) == numbers
    for name, number in _buffers.DTYPES.items():
        bits = int(re.search(r"\d+", name).group())
        assert _library.lib.dtype_size(number) * 8 == bits, name
    assert _library.lib.dtype_size(max(numbers) + 1) == 0


def test_every_name_of_a_number():
    """Devices, log levels and sources, which the library has no names for."""
    for table, prefix in ((_values.DEVICES, "DEVICE_"), (_values.LEVELS, "LOG_"), ({v: k for k, v in _values.SOURCES.items()}, "SOURCE_")):
        assert {prefix + name.upper(): number for name, number in table.items()} == \
            {name: value for name, value in public(_abi).items() if name.startswith(prefix)}
