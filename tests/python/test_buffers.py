# SPDX-License-Identifier: Apache-2.0
"""Check that every array is taken as what it is or refused before anything is sent: not contiguous, read-only, of another type, on another
device; and that after a refusal the group goes on."""
import array
import ctypes
import gc
import mmap
import sys

import numpy as np
import pytest

import tpcomm
from tpcomm._buffers import DTYPES, buffer_of, elements_of


def taken(thing, writable=True):
    return elements_of(thing, "x", writable=writable, device="cpu")


# ---- what is taken


@pytest.mark.parametrize("name", [name for name in DTYPES if not name.startswith(("bfloat", "float8"))])
def test_numpy(name):
    x = np.zeros((3, 4), name)
    found = taken(x)
    assert (found.address, found.length, found.itemsize, found.dtype) == (x.ctypes.data, 12, x.itemsize, DTYPES[name])


@pytest.mark.parametrize("scalar", [np.float32(3), np.int64(5), np.arange(4.0).sum()])
@pytest.mark.parametrize("writable", [False, True])
def test_numpy_scalars(scalar, writable):
    """Whose interface describes memory that is gone by the time it is used."""
    with pytest.raises(TypeError, match="thing is a numpy scalar"):
        buffer_of(scalar, "thing", writable=writable)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (5,), (2, 3, 4), (1, 1, 7)])
def test_numpy_shapes(shape):
    assert taken(np.zeros(shape, np.float32)).length == int(np.prod(shape))


def test_numpy_parts_that_lie_in_one_piece():
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    for part in (x[1:3], x[2], x[1:1], x[:1, :], x[3:4, 1:2], x.ravel(), x[:, :]):
        found = taken(part)
        assert (found.address, found.length) == (part.ctypes.data, part.size)


def test_alignment_does_not_matter():
    raw = np.zeros(33, np.uint8)
    x = raw[1:].view(np.float32)
    assert not x.flags.aligned or x.ctypes.data % 4 == 0
    assert taken(x).address == raw.ctypes.data + 1


@pytest.mark.parametrize("code, name", [("f", "float32"), ("d", "float64"), ("b", "int8"), ("B", "uint8"), ("i", "int32"), ("I", "uint32"),
                                        ("q", "int64"), ("Q", "uint64"), ("l", "int64"), ("L", "uint64")])
def test_array_array(code, name):
    x = array.array(code, [1, 2, 3])
    found = taken(x)
    assert (found.address, found.length, found.dtype) == (x.buffer_info()[0], 3, DTYPES[name])


@pytest.mark.parametrize("kind, name", [(ctypes.c_float, "float32"), (ctypes.c_double, "float64"), (ctypes.c_int8, "int8"),
                                        (ctypes.c_ubyte, "uint8"), (ctypes.c_int32, "int32"), (ctypes.c_uint32, "uint32"),
                                        (ctypes.c_long, "int64"), (ctypes.c_uint64, "uint64"), (ctypes.c_char, "uint8")])
def test_ctypes(kind, name):
    x = (kind * 3)()
    found = taken(x)
    assert (found.address, found.length, found.dtype) == (ctypes.addressof(x), 3, DTYPES[name])


def test_bytes_and_memory():
    data = b"some bytes"
    found = taken(data, writable=False)
    assert ctypes.string_at(found.address, found.length) == data
    assert taken(bytearray(5)).length == 5 and taken(bytearray()).length == 0
    assert taken(memoryview(bytearray(8)).cast("f")).dtype == DTYPES["float32"]
    with mmap.mmap(-1, 4096) as area:
        assert taken(area).length == 4096
        gc.collect()


def test_half_precision_by_the_struct_letter():
    assert taken(memoryview(np.zeros(4, np.float16))).dtype == DTYPES["float16"]


def test_memory_stays_while_it_is_used():
    data = bytearray(8)
    found = taken(data)
    with pytest.raises(BufferError):
        data.extend(b"more")
    del found
    data.extend(b"more")


class Interface:
    """What __array_interface__ alone says."""

    def __init__(self, backing, **changes):
        self.backing = backing
        self.__array_interface__ = {**backing.__array_interface__, **changes}


def test_array_interface_without_numpy():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = taken(Interface(x))
    assert (found.address, found.length, found.dtype) == (x.ctypes.data, 6, DTYPES["float32"])
    assert taken(Interface(x, strides=(12, 4))).length == 6
    for strides in ((4, 8), (24, 4), (0, 4), (-12, 4)):
        with pytest.raises(ValueError, match="not contiguous"):
            taken(Interface(x, strides=strides))
    with pytest.raises(TypeError, match="known are"):
        taken(Interface(x, typestr=">f4"))


# ---- bfloat16 and torch, by stand-ins: what is installed must not matter


class Dtype:
    def __init__(self, name):
        self.name = name

    def __str__(self):
        return self.name


class Tensor:
    """The methods of a torch.Tensor that are asked."""

    def __init__(self, count=4, dtype="torch.bfloat16", itemsize=2, device="cpu", contiguous=True, layout="torch.strided", neg=False, conj=False):
        self.memory = bytearray(count * itemsize)
        self.count, self.item = count, itemsize
        self.dtype, self.layout = Dtype(dtype), Dtype(layout)
        self.device = Dtype(device)
        self.device.type = device.split(":")[0]
        self.shape, self.contiguous, self.neg, self.conj = (count,), contiguous, neg, conj

    def data_ptr(self):
        assert self.device.type == "cpu" and self.contiguous and str(self.layout) == "torch.strided"
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def is_contiguous(self):
        return self.contiguous

    def stride(self):
        return (2,)

    def numel(self):
        return self.count

    def element_size(self):
        return self.item

    def is_neg(self):
        return self.neg

    def is_conj(self):
        return self.conj


@pytest.mark.parametrize("name, itemsize", [("bfloat16", 2), ("float16", 2), ("float32", 4), ("int64", 8), ("float8_e4m3fn", 1), ("float8_e5m2", 1)])
def test_tensor(name, itemsize):
    x = Tensor(6, "torch." + name, itemsize)
    found = taken(x)
    assert (found.address, found.length, found.itemsize, found.dtype) == (x.data_ptr(), 6, itemsize, DTYPES[name])


@pytest.mark.parametrize("changes, why", [
    ({"contiguous": False}, "x is not contiguous"),
    ({"layout": "torch.sparse_coo"}, "x is not contiguous: its layout is torch.sparse_coo"),
    ({"device": "cuda:0"}, "x lies on cuda:0, and this group computes on the cpu device"),
    ({"device": "meta"}, "x lies on meta"),
    ({"neg": True}, "resolve_neg"),
    ({"conj": True}, "resolve_conj"),
])
def test_refused_tensors(changes, why):
    with pytest.raises(ValueError, match=why):
        taken(Tensor(**changes))


@pytest.mark.parametrize("name", ["torch.complex64", "torch.bool", "torch.int16", "torch.float8_e4m3fnuz"])
def test_refused_tensor_types(name):
    with pytest.raises(TypeError, match=name.split(".")[1]):
        taken(Tensor(dtype=name))


def test_numpy_with_a_foreign_dtype():
    """ml_dtypes' bfloat16 has a buffer format that memoryview refuses; its name tells."""
    class Array(Interface):
        dtype = Dtype("bfloat16")
    assert taken(Array(np.zeros(4, np.uint16), typestr="<V2")).dtype == DTYPES["bfloat16"]


def test_cuda_arrays():
    class Cuda:
        __cuda_array_interface__ = {"data": (16, False), "shape": (4,), "typestr": "<f4", "version": 3}
    with pytest.raises(ValueError, match="cuda"):
        taken(Cuda())
    found = elements_of(Cuda(), "x", writable=True, device="cuda")
    assert (found.address, found.length, found.dtype) == (16, 4, DTYPES["float32"])
    Cuda.__cuda_array_interface__ = {**Cuda.__cuda_array_interface__, "strides": (8,)}
    with pytest.raises(ValueError, match="x is not contiguous"):
        elements_of(Cuda(), "x", writable=True, device="cuda")


def test_arrays_that_could_lie_on_a_gpu_and_do_not():
    class Array(Interface):
        @property
        def __cuda_array_interface__(self):
            raise AttributeError("in host memory")
    x = np.zeros(4, np.float32)
    for _ in range(2):
        assert taken(Array(x)).address == x.ctypes.data


def test_host_memory_on_a_cuda_group():
    for thing in (np.zeros(4, np.float32), bytearray(4), Tensor()):
        with pytest.raises(ValueError, match="this group computes on the cuda device"):
            elements_of(thing, "x", writable=True, device="cuda")


# ---- what is refused


@pytest.mark.parametrize("make", [
    lambda: np.arange(16).reshape(4, 4)[:, ::2],
    lambda: np.arange(16)[::-1],
    lambda: np.arange(16)[::2],
    lambda: np.arange(16).reshape(4, 4).T,
    lambda: np.broadcast_to(np.arange(4), (4, 4)),
    lambda: np.asfortranarray(np.zeros((3, 4))),
    lambda: memoryview(array.array("i", range(8)))[::2],
    lambda: np.zeros((2, 2), [("a", "<f4"), ("b", "<f4")])["a"],
])
def test_not_contiguous(make):
    with pytest.raises(ValueError, match="x is not contiguous"):
        taken(make(), writable=False)


def read_only():
    x = np.zeros(4, np.float32)
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("make", [read_only, lambda: b"1234", lambda: memoryview(b"1234"), lambda: np.frombuffer(b"1234", np.uint8)])
def test_read_only(make):
    assert taken(make(), writable=False).length == 4
    with pytest.raises(ValueError, match="x is read-only"):
        taken(make())


@pytest.mark.parametrize("dtype", ["complex64", "bool", "int16", "uint16", ">f4", "longdouble", "datetime64[s]", "S4", "U4", object, [("a", "f4")]])
def test_element_types(dtype):
    with pytest.raises(TypeError, match="x has elements .*; known are float32"):
        taken(np.zeros(4, dtype))


@pytest.mark.parametrize("thing", [[1, 2, 3], 5, 1.5, None, "text", {}, np.float32, object(), Tensor])
def test_no_buffers(thing):
    with pytest.raises(TypeError, match="give a numpy array"):
        taken(thing)


def test_any_type_as_bytes():
    """Host messages move bytes and do not look at elements."""
    found = buffer_of(np.zeros((2, 3), np.complex128), "x", writable=True)
    assert (found.dtype, found.nbytes) == (None, 96)


def test_streams():
    """On the cpu device there is none."""
    class Stream:
        cuda_stream = 4096
    with tpcomm.init_local(1)[0] as comm:
        for stream in (4096, Stream()):
            with pytest.raises(tpcomm.InvalidArgument, match="stream is 0x1000"):
                comm.all_reduce(np.zeros(4), stream=stream)
        x = np.zeros(8, np.float32)
        for wrong in ("x", b"x", 1.5, object()):  # the first two are pointers to ctypes
            for use in (lambda: comm.all_reduce(x, stream=wrong), lambda: comm.barrier(stream=wrong), lambda: comm.all_reduce_rms_norm(x, x, eps=1, stream=wrong),
                        lambda: comm.all_gather_rows(x, x, 8, stream=wrong), lambda: tpcomm.rms_norm(x, x, eps=1, stream=wrong)):
                with pytest.raises(TypeError, match="stream is .*, which is no integer"):
                    use()


def test_nothing_is_kept():
    x = np.zeros(4, np.float32)
    before = sys.getrefcount(x)
    with tpcomm.init_local(1)[0] as comm:
        for _ in range(3):
            comm.all_reduce(x)
            comm.all_reduce(x, np.zeros(4, np.float32))
    assert sys.getrefcount(x) == before


# ---- before anything is sent


def strided_then_right(comm):
    """Rank 0 gives what cannot be taken; its group is as before, the peers wait for the call that it then makes."""
    a = np.arange(16).reshape(4, 4)
    if comm.rank == 0:
        with pytest.raises(ValueError, match="not contiguous"):
            comm.all_reduce(a[:, ::2])
        with pytest.raises(ValueError, match="out is not contiguous"):
            comm.all_reduce(np.zeros(8, a.dtype), a[:, ::2])
        with pytest.raises(ValueError, match="read-only"):
            comm.all_reduce(np.zeros(4, np.float32), read_only())
        with pytest.raises(TypeError, match="x is of float32, out of float64"):
            comm.all_reduce(np.zeros(4, np.float32), np.zeros(4))
        with pytest.raises(ValueError, match="x has 4 elements and out has 5"):
            comm.all_reduce(np.zeros(4), np.zeros(5))
        with pytest.raises(ValueError, match="op is 'mean'; allowed are sum, avg, max, min, prod"):
            comm.all_reduce(np.zeros(4), op="mean")
        with pytest.raises(ValueError, match="path is 'fast'"):
            comm.all_reduce(np.zeros(4), path="fast")
        for tag in (-1, 2**64):
            with pytest.raises(ValueError, match="tag is"):
                comm.all_reduce(np.zeros(4), tag=tag)
        x = np.zeros(8)
        with pytest.raises(tpcomm.InvalidArgument, match="overlap"):
            comm.all_reduce(x[0:4], x[2:6])
        assert comm.async_error() is None
    part = np.ascontiguousarray(a[:, ::2])
    comm.all_reduce(part)
    assert np.array_equal(part, a[:, ::2] * comm.size)
    assert comm.rank_info(comm.rank).seq == 1, "a refused call was begun"


def test_refused_before_anything_is_sent(on_ranks):
    on_ranks(strided_then_right)
