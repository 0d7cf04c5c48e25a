/* SPDX-License-Identifier: Apache-2.0 */
/** Log lines. Where to: tpcomm_log_set, TPCOMM_LOG, _LOG_SUBSYS, _LOG_FILE. Default: warnings to stderr. */
#ifndef TPC_BASE_LOG_H
#define TPC_BASE_LOG_H

#include <stdatomic.h>

#include "tpcomm.h"

/** Most detailed level that anybody listens to; read without a lock so that a silent log costs one load. */
extern _Atomic int32_t tpc_log_level_now;

/** Write one line; use the macros. No lock is held while the user's function runs. */
void tpc_log_write(int32_t level, const char *subsystem, const char *format, ...) __attribute__((format(printf, 3, 4)));

/** Take TPCOMM_LOG* from the environment, once per process; called by each way in. Fails: CONFIG. */
tpcomm_status_t tpc_log_setup(int32_t rank);

#define TPC_LOG(level, subsystem, ...)                                                                                 \
    do {                                                                                                               \
        if (atomic_load_explicit(&tpc_log_level_now, memory_order_relaxed) >= (level))                                 \
            tpc_log_write((level), (subsystem), __VA_ARGS__);                                                          \
    } while (0)
#define TPC_WARN(subsystem, ...)  TPC_LOG(TPCOMM_LOG_WARN, subsystem, __VA_ARGS__)
#define TPC_INFO(subsystem, ...)  TPC_LOG(TPCOMM_LOG_INFO, subsystem, __VA_ARGS__)
#define TPC_DEBUG(subsystem, ...) TPC_LOG(TPCOMM_LOG_DEBUG, subsystem, __VA_ARGS__)

#endif
