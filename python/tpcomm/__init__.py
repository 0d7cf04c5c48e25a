# SPDX-License-Identifier: Apache-2.0
"""tpcomm: the tensor-parallel communication runtime, from Python. Pure ctypes; numpy and torch arrays are taken, neither is needed.

    import array, tpcomm
    with tpcomm.init_env() as comm:           # started by: tpcomm-bench run -n 2 -- python3 this.py
        x = array.array("f", [1, 2, 3])
        comm.all_reduce(x)                    # in place; numpy arrays and torch tensors likewise

Calls release the GIL. docs/python.md tells the rest.
"""
from . import _abi
from ._buffers import DTYPES as _DTYPES
from ._comm import Comm, Mesh
from ._errors import (Aborted, Busy, ConfigError, ConfigMismatch, Error, GroupError, Interrupted, InvalidArgument, InvalidState, Mismatch,
                      NoTransport, OutOfMemory, PeerDied, PeerFailed, Timeout, Unsupported)
from ._facts import Decision, Failure, Info, RankInfo, Stats
from ._handle import batch
from ._init import init_env, init_exchange, init_from_store, init_local, init_rank, unique_id
from ._library import library_path
from ._log import set_log
from ._rows import rms_norm, row_range

__version__ = f"{_abi.VERSION_MAJOR}.{_abi.VERSION_MINOR}.{_abi.VERSION_PATCH}"

#: The greatest number of ranks in one group.
MAX_RANKS = _abi.MAX_RANKS
#: Names of the element types.
DTYPES = tuple(_DTYPES)

__all__ = [
    "Aborted", "Busy", "Comm", "ConfigError", "ConfigMismatch", "DTYPES", "Decision", "Error", "Failure", "GroupError", "Info",
    "Interrupted", "InvalidArgument", "InvalidState", "MAX_RANKS", "Mesh", "Mismatch", "NoTransport", "OutOfMemory", "PeerDied",
    "PeerFailed", "RankInfo", "Stats", "Timeout", "Unsupported", "batch", "init_env", "init_exchange", "init_from_store", "init_local", "init_rank",
    "library_path", "rms_norm", "row_range", "set_log", "unique_id",
]

for _name in __all__:  # shown as tpcomm.Timeout, not as tpcomm._errors.Timeout
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
