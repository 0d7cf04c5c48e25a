# SPDX-License-Identifier: Apache-2.0
"""Each rank of a launcher gives its rank + 1, and all get the sum: tpcomm-bench run -n 2 -- python3 hello.py"""
import array

import tpcomm

with tpcomm.init_env() as comm:
    x = array.array("f", [comm.rank + 1])  # or a numpy array, or a torch tensor
    comm.all_reduce(x)
    print(f"rank {comm.rank} of {comm.size}: the sum is {x[0]:g}")
