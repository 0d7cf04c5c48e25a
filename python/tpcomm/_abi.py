# SPDX-License-Identifier: Apache-2.0
"""tpcomm.h for ctypes: every constant, struct and function of it, under its C name without the prefix. A test compares this file with
the header, so neither changes alone."""
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint8, c_uint32, c_uint64,
                    c_void_p)

VERSION_MAJOR = 0
VERSION_MINOR = 1
VERSION_PATCH = 0
MAX_RANKS = 32

# ---- status

OK = 0
ERR_INVALID_ARG = -1
ERR_INVALID_STATE = -2
ERR_UNSUPPORTED = -3
ERR_NO_MEMORY = -4
ERR_TOO_SMALL = -5
ERR_BUSY = -6
ERR_VERSION = -7
ERR_CONFIG = -8
ERR_PARSE = -9
ERR_INTERRUPTED = -10
ERR_IO = -11
ERR_ABORTED = -40
ERR_PEER_DIED = -41
ERR_MISMATCH = -42
ERR_TIMEOUT = -43
ERR_BACKEND = -44
ERR_PEER_FAILED = -45
ERR_CONFIG_MISMATCH = -46
ERR_DUPLICATE_DEVICE = -47
ERR_NO_TRANSPORT = -48
ERR_ADDR_IN_USE = -49
ERR_AUTH = -50
ERR_OVERLAP = -51
ERR_DEVICE = -80

# ---- types

F32 = 1
F16 = 2
BF16 = 3
I8 = 4
U8 = 5
I32 = 6
I64 = 7
U32 = 8
U64 = 9
F64 = 10
F8_E4M3 = 11
F8_E5M2 = 12

SUM = 1
AVG = 2
MAX = 3
MIN = 4
PROD = 5

ALL_REDUCE = 1
BARRIER = 2
BROADCAST = 3
ALL_GATHER = 4
REDUCE_SCATTER = 5
ALL_REDUCE_RMS_NORM = 16
REDUCE_SCATTER_RMS_NORM = 17
ALL_GATHER_ROWS = 18

PATH_AUTO = 0
PATH_ONESHOT = 1
PATH_TWOSHOT = 2
PATH_NCCL = 3
PATH_FUSED_ONESHOT = 5
PATH_FUSED_TWOSHOT = 6
PATH_UNFUSED = 7
PATH_CPU_ONESHOT = 8
PATH_CPU_TWOSHOT = 9
PATH_LOCAL = 10
PATH_RING = 11

DEVICE_AUTO = 0
DEVICE_CUDA = 1
DEVICE_CPU = 2

QUANT_NONE = 0
QUANT_F8_TENSOR = 1
QUANT_F8_TOKEN = 2

CHECK_DEFAULT = 0
CHECK_OFF = 1
CHECK_ASYNC = 2
CHECK_SYNC = 3

DEFAULT = 0
ON = 1
OFF = 2
CALL_CAPTURED = 1

SOURCE_NONE = 0
SOURCE_MEASURED = 1
SOURCE_ESTIMATED = 2

LOG_NONE = 0
LOG_ERROR = 1
LOG_WARN = 2
LOG_INFO = 3
LOG_DEBUG = 4

status_t = c_int32
dtype_t = c_int32
op_t = c_int32
coll_t = c_int32
path_t = c_int32
device_kind_t = c_int32
check_t = c_int32
quant_t = c_int32
comm_p = c_void_p  # tpcomm_t *
mesh_p = c_void_p  # tpcomm_mesh_t *
stream_t = c_void_p

interrupted_fn = CFUNCTYPE(c_int32, c_void_p)
exchange_fn = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_size_t, c_uint32)
log_fn = CFUNCTYPE(None, c_void_p, c_int32, c_char_p, c_char_p)

# ---- structs


class config_t(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("device_kind", device_kind_t),
        ("deterministic", c_int32),
        ("path", path_t),
        ("init_timeout_ms", c_uint32),
        ("op_timeout_ms", c_uint32),
        ("workspace_bytes", c_uint64),
        ("tuning_file", c_char_p),
        ("interrupted", interrupted_fn),
        ("interrupted_arg", c_void_p),
        ("device", c_int32),
        ("share_device", c_int32),
        ("check", check_t),
        ("reserved", c_int32),
    ]


class unique_id_t(Structure):
    _fields_ = [("bytes", c_uint8 * 128)]


class error_t(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("status", status_t),
        ("rank", c_int32),
        ("coll", coll_t),
        ("seq", c_uint64),
        ("text", c_char * 512),
    ]


class call_t(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("coll", coll_t),
        ("dtype", dtype_t),
        ("op", op_t),
        ("path", path_t),
        ("flags", c_uint32),
        ("root", c_int32),
        ("hidden", c_int32),
        ("in", c_void_p),
        ("out", c_void_p),
        ("count", c_uint64),
        ("tag", c_uint64),
    ]


class rms_norm_t(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("dtype", dtype_t),
        ("weight_dtype", dtype_t),
        ("quant", quant_t),
        ("path", path_t),
        ("hidden", c_int32),
        ("tokens", c_uint64),
        ("eps", c_float),
        ("weight_bias", c_float),
        ("in", c_void_p),
        ("weight", c_void_p),
        ("residual", c_void_p),
        ("sum", c_void_p),
        ("out", c_void_p),
        ("quantized", c_void_p),
        ("scale", POINTER(c_float)),
        ("in_stride", c_uint64),
        ("residual_stride", c_uint64),
        ("sum_stride", c_uint64),
        ("out_stride", c_uint64),
        ("quantized_stride", c_uint64),
        ("tag", c_uint64),
    ]


class mesh_config_t(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("dp", c_int32),
        ("pp", c_int32),
        ("cp", c_int32),
        ("tp", c_int32),
        ("ep", c_int32),
    ]


class rejected_t(Structure):
    _fields_ = [("path", path_t), ("why_not", c_char * 156)]


class decision_t(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("path", path_t),
        ("bytes_min", c_uint64),
        ("bytes_max", c_uint64),
        ("expected_ns", c_int64),
        ("source", c_int32),
        ("rejected_count", c_int32),
        ("reason", c_char * 256),
        ("rejected", rejected_t * 8),
        ("capturing", c_int32),
        ("other_path", path_t),
    ]


class info_t(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("rank", c_int32),
        ("size", c_int32),
        ("device_kind", device_kind_t),
        ("workspace_bytes", c_uint64),
        ("op_timeout_ms", c_uint32),
        ("init_us", c_uint32),
        ("deterministic", c_int32),
        ("check", check_t),
        ("topology", c_char * 32),
        ("name", c_char * 64),
        ("launcher", c_char * 192),
        ("paths", c_char * 256),
        ("tuning", c_char * 256),
        ("cpu_kernels", c_char * 64),
        ("nccl", c_char * 256),
    ]


class rank_info_t(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("rank", c_int32),
        ("pid", c_int32),
        ("same_process", c_int32),
        ("seq", c_uint64),
        ("times_last", c_uint64),
        ("host", c_char * 64),
        ("device", c_char * 64),
        ("bus_id", c_char * 16),
        ("link", c_char * 48),
    ]


class stats_t(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("path", path_t),
        ("calls", c_uint64),
        ("bytes", c_uint64),
        ("wire_bytes", c_uint64),
        ("wait_ns", c_uint64),
        ("skew_ns", c_uint64),
        ("waits", c_uint64),
    ]


# ---- functions: name without tpcomm_: (result, arguments)

PROTOTYPES = {
    "status_name": (c_char_p, [status_t]),
    "status_text": (c_char_p, [status_t]),
    "last_error": (c_char_p, []),
    "version": (c_int32, []),
    "dtype_size": (c_size_t, [dtype_t]),
    "dtype_name": (c_char_p, [dtype_t]),
    "op_name": (c_char_p, [op_t]),
    "coll_name": (c_char_p, [coll_t]),
    "path_name": (c_char_p, [path_t]),
    "init_env": (status_t, [POINTER(config_t), POINTER(comm_p)]),
    "unique_id_create": (status_t, [POINTER(unique_id_t)]),
    "init_rank": (status_t, [POINTER(unique_id_t), c_int32, c_int32, POINTER(config_t), POINTER(comm_p)]),
    "init_exchange": (status_t, [c_int32, c_int32, exchange_fn, c_void_p, POINTER(config_t), POINTER(comm_p)]),
    "init_local": (status_t, [c_int32, POINTER(c_int32), POINTER(config_t), POINTER(comm_p)]),
    "finalize": (status_t, [comm_p]),
    "destroy": (status_t, [comm_p]),
    "abort": (status_t, [comm_p, c_char_p]),
    "async_status": (status_t, [comm_p, POINTER(error_t)]),
    "call": (status_t, [comm_p, POINTER(call_t), stream_t]),
    "all_reduce": (status_t, [comm_p, c_void_p, c_void_p, c_size_t, dtype_t, op_t, stream_t]),
    "broadcast": (status_t, [comm_p, c_void_p, c_void_p, c_size_t, dtype_t, c_int32, stream_t]),
    "all_gather": (status_t, [comm_p, c_void_p, c_void_p, c_size_t, dtype_t, stream_t]),
    "reduce_scatter": (status_t, [comm_p, c_void_p, c_void_p, c_size_t, dtype_t, op_t, stream_t]),
    "all_reduce_rms_norm": (status_t, [comm_p, POINTER(rms_norm_t), stream_t]),
    "reduce_scatter_rms_norm": (status_t, [comm_p, POINTER(rms_norm_t), stream_t]),
    "all_gather_rows": (status_t, [comm_p, c_void_p, c_void_p, c_uint64, c_int32, dtype_t, stream_t]),
    "row_range": (status_t, [c_uint64, c_int32, c_int32, POINTER(c_uint64), POINTER(c_uint64)]),
    "rms_norm": (status_t, [device_kind_t, POINTER(rms_norm_t), stream_t]),
    "batch_begin": (status_t, []),
    "batch_end": (status_t, []),
    "barrier": (status_t, [comm_p, stream_t]),
    "graph_capture_begin": (status_t, [comm_p]),
    "graph_capture_end": (status_t, [comm_p]),
    "set_op_timeout": (status_t, [comm_p, c_uint32]),
    "note_waits": (status_t, [comm_p, c_int32]),
    "group_create": (status_t, [comm_p, POINTER(c_int32), c_int32, c_char_p, POINTER(comm_p)]),
    "group_split": (status_t, [comm_p, c_int32, c_int32, c_char_p, POINTER(comm_p)]),
    "group_shrink": (status_t, [comm_p, POINTER(c_int32), c_int32, POINTER(comm_p)]),
    "group_ranks": (status_t, [comm_p, POINTER(c_int32), c_int32]),
    "mesh_create": (status_t, [comm_p, POINTER(mesh_config_t), POINTER(mesh_p)]),
    "mesh_group": (status_t, [mesh_p, c_char_p, POINTER(comm_p)]),
    "mesh_text": (status_t, [mesh_p, POINTER(c_char), c_size_t]),
    "mesh_finalize": (status_t, [mesh_p]),
    "mesh_destroy": (status_t, [mesh_p]),
    "host_broadcast": (status_t, [comm_p, c_void_p, c_size_t, c_int32, c_uint32]),
    "host_all_gather": (status_t, [comm_p, c_void_p, c_void_p, c_size_t, c_uint32]),
    "host_barrier": (status_t, [comm_p, c_uint32]),
    "explain": (status_t, [comm_p, POINTER(call_t), POINTER(decision_t)]),
    "explain_text": (status_t, [comm_p, POINTER(call_t), POINTER(c_char), c_size_t]),
    "comm_info": (status_t, [comm_p, POINTER(info_t)]),
    "rank_info": (status_t, [comm_p, c_int32, POINTER(rank_info_t)]),
    "stats": (status_t, [comm_p, c_int32, POINTER(stats_t)]),
    "flight_dump": (status_t, [comm_p, c_char_p]),
    "log_set": (status_t, [log_fn, c_void_p, c_int32]),
}
