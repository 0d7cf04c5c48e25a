/* SPDX-License-Identifier: Apache-2.0 */
/* Serving traces: CSV and JSON lines. The first byte says which format is asked for. */
#include "fuzz.h"
#include "trace_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bench_trace_t trace = {0};
    if (size == 0) return 0;
    bench_trace_format_t format = (bench_trace_format_t)(data[0] % 4);
    if (bench_trace_read(fuzz_file(data + 1, size - 1), format, &trace) == TPCOMM_OK) bench_trace_free(&trace);
    return 0;
}
