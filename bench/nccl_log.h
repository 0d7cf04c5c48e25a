/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What NCCL itself says that it has chosen: its log of the subsystems INIT and TUNING, kept in a file of this process
 * and read back. NCCL writes a line for each call that is enqueued, so eager times with a log are not to be compared.
 */
#ifndef BENCH_NCCL_LOG_H
#define BENCH_NCCL_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tpcomm.h"

/** One choice. */
typedef struct {
    bool known;
    char algorithm[24], protocol[40]; /**< "Ring", "LL"; of a kernel for symmetric memory: "symmetric", its name */
    int32_t channels;                 /**< 0: this version does not say */
} bench_nccl_choice_t;

/** From now on, in this process, which must not have loaded NCCL yet; once. Sets NCCL_DEBUG*. Fails: IO. */
tpcomm_status_t bench_nccl_log_begin(void);
/** Remove the file. */
void bench_nccl_log_end(void);
bool bench_nccl_log_is_on(void);

/** Bytes of it so far; 0 where there is none. */
uint64_t bench_nccl_log_size(void);
/** The last choice behind so many bytes; known is false where there is none. (Rank 0 of a communicator writes them.) */
void bench_nccl_log_read(uint64_t from, bench_nccl_choice_t *choice_p);
/** "P2P/CUMEM 48, SHM/direct 2": how many channels use which way; "": the log does not say. */
void bench_nccl_log_transports(char *text, size_t bytes);

/** A line of the log; false: it tells of no choice. */
bool bench_nccl_log_parse(const char *line, bench_nccl_choice_t *choice_p);

#endif
