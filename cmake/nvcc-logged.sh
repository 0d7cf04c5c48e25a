# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# nvcc-logged.sh LOG NVCC ARGUMENT ...: keeps what nvcc prints in LOG, and prints of it what is not ptxas -v's.
log=$1
shift
"$@" >"$log" 2>&1
status=$?
grep -v '^ptxas info\|^ *[0-9]* bytes stack frame' "$log" >&2
exit "$status"
