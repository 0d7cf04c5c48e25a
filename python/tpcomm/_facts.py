# SPDX-License-Identifier: Apache-2.0
"""What a communicator tells about itself."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Optional


@dataclass(frozen=True)
class Info:
    """Facts about a communicator."""
    rank: int
    size: int
    device: str  #: "cpu" or "cuda"
    workspace_bytes: int  #: memory of the group that peers write, this rank's part
    op_timeout_ms: int  #: in force now
    init_us: int  #: how long init took
    deterministic: bool
    topology: str
    name: str  #: of the group: "world"
    launcher: str  #: how the ranks met
    paths: str  #: that can be taken, and those that cannot with their reasons
    tuning: str  #: where the tuning table comes from
    cpu_kernels: str  #: instruction set of the reduction kernels
    nccl: str  #: NCCL in use, version and file; or why it is not used; "" on the cpu device
    check: str = ""  #: how ranks' calls are compared on the host: "off", "async", "sync"


@dataclass(frozen=True)
class RankInfo:
    """Facts about one rank of a group."""
    rank: int
    pid: int
    same_process: bool  #: a thread of this process
    seq: int  #: its last call begun
    times_last: int  #: calls in which it was the last to arrive, as seen by this rank
    host: str  #: host identity
    device: str = ""  #: name of its GPU; "" on the cpu device, as the two below
    bus_id: str = ""  #: of its GPU
    link: str = ""  #: from this rank's GPU to it: "nvlink x18 (switch)", "pcie (host bridge)", "same gpu", ...


@dataclass(frozen=True)
class Stats:
    """What one path carried so far."""
    calls: int  #: completed
    bytes: int  #: message bytes of those calls
    wire_bytes: int  #: bytes this rank wrote for its peers
    wait_ns: int  #: time spent waiting for peers
    skew_ns: int  #: sum over calls of last arrival minus first arrival; on a GPU minus this rank's own
    waits: int = 0  #: calls that these two are of; on a GPU kernels that noted it, each replay counted


@dataclass(frozen=True)
class Decision:
    """The path that a call takes, and why; the same on every rank. str() is the explanation as a text."""
    path: str
    reason: str
    bytes_min: int  #: holds for messages from bytes_min ...
    bytes_max: int  #: ... to bytes_max, both included
    expected_ns: Optional[int]  #: None: not known
    source: str  #: of the row that decided: "none", "measured", "estimated"
    rejected: Dict[str, str]  #: each other path: why not
    text: str = field(repr=False)
    capturing: bool = False  #: the choice for a call that is captured in a graph; else for an eager one
    other_path: Optional[str] = None  #: the choice for the same call the other way; None: no path carries that

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Failure:
    """What broke a communicator."""
    status: int
    name: str  #: of the status: "TPCOMM_ERR_TIMEOUT"
    rank: Optional[int]  #: group rank that saw or caused it first
    coll: Optional[str]  #: the call that it was in
    seq: int  #: that call's number on that rank
    text: str
