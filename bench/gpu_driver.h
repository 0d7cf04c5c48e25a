/* SPDX-License-Identifier: Apache-2.0 */
/** What the files that know CUDA share: the driver's types as far as needed, and its errors as ours. */
#ifndef BENCH_GPU_DRIVER_H
#define BENCH_GPU_DRIVER_H

#include "gpu.h"

/* The few declarations needed of cuda.h, whose binary interface does not change: handles are pointers, a device address
 * is 64 bits. */
typedef void *bench_handle_t;
typedef uint64_t bench_address_t;

/** What the driver is: its library, loaded before; and a status for one of its errors, with what was being done. */
void *bench_driver_library(void);
tpcomm_status_t bench_driver_check(int error, const char *what);

/** Fill a struct of function pointers from a library; false where one is missing. */
bool bench_load_symbols(void *library, const char *const *symbols, size_t count, void *pointers);

/** The streams, for other files' libraries: 0 the first, 1 the second. */
bench_handle_t bench_gpu_handle(const bench_gpu_t *gpu, int side);
bench_handle_t bench_graph_handle(const bench_graph_t *graph);

#endif
