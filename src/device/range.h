/* SPDX-License-Identifier: Apache-2.0 */
/** Whether memory and a stream that a caller names are what a call needs: asked before each call by TPCOMM_CHECK=sync.
 */
#ifndef TPC_DEVICE_RANGE_H
#define TPC_DEVICE_RANGE_H

#include "device/cuda.h"

/** Bytes that a call reads or writes. */
typedef struct {
    const char *name; /**< of the argument, for texts */
    const void *base;
    uint64_t bytes; /**< from the first to the last one */
    bool written;
    bool packed; /**< every byte between is the call's */
} tpc_range_t;

#define TPC_RANGES_MAX 7

/** This process may read, and write where it must, every page. Fails: INVALID_ARG, naming the first that it may not. */
tpcomm_status_t tpc_cpu_check_range(const tpc_range_t *range);

/** The rank's device can reach all of it, in one allocation. Fails: INVALID_ARG; DEVICE. */
tpcomm_status_t tpc_cuda_check_range(const tpc_cuda_facts_t *facts, const tpc_range_t *range);

/** The stream belongs to the rank's context. Fails: INVALID_ARG; DEVICE. */
tpcomm_status_t tpc_cuda_check_stream(const tpc_cuda_facts_t *facts, tpcomm_stream_t stream);

/* ------------------------------------------------------------------ the rule itself, apart from CUDA */

typedef enum { TPC_MEMORY_UNKNOWN, TPC_MEMORY_HOST, TPC_MEMORY_DEVICE, TPC_MEMORY_MANAGED } tpc_memory_kind_t;

/** What is known of an address. */
typedef struct {
    tpc_memory_kind_t kind;
    int32_t ordinal;       /**< of device memory: whose */
    bool reachable;        /**< host memory, and another device's: the rank's device may use it all the same */
    bool whole;            /**< the allocation is one: what lies behind it is another's */
    uint64_t start, bytes; /**< of the allocation, or of a piece of it */
} tpc_memory_t;

/** look: tells of an address. ordinal, bus_id: of the rank's device. Fails: INVALID_ARG; as look. */
tpcomm_status_t tpc_range_judge(const tpc_range_t *range, int32_t ordinal, const char *bus_id,
                                tpcomm_status_t (*look)(void *arg, uint64_t address, tpc_memory_t *memory_p),
                                void *arg);

#endif
