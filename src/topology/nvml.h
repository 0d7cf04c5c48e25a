/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What the NVIDIA management library knows of a rank's GPU towards the others': NVLinks, PCIe, permission to reach. It
 * is loaded for the question and let go again. GPUs are found by UUID or bus id, never by an index: NVML's order is not
 * CUDA's.
 */
#ifndef TPC_TOPOLOGY_NVML_H
#define TPC_TOPOLOGY_NVML_H

#include <stdbool.h>
#include <stdint.h>

#include "device/cuda.h"

/** One rank's view of another's GPU. */
typedef struct {
    int8_t access;   /**< the GPUs may reach each other: 1, 0; -1: not known */
    uint8_t direct;  /**< active NVLinks straight to it */
    uint8_t level;   /**< NVML's nearest common ancestor on PCIe in tens: 0 same board ... 5 across sockets */
    uint8_t atomics; /**< 1: the driver has native atomics between the two; from CUDA, where NVML is not there */
} tpc_gpu_sight_t;

/** One rank's view of all GPUs of its team; plain bytes, exchanged between ranks. */
typedef struct {
    uint8_t by_nvml;  /**< 0: source says why not */
    uint8_t switched; /**< active NVLinks that end in a switch */
    uint8_t reserved[6];
    char source[184]; /**< "NVML 13.580.65 (/usr/lib/...)" */
    tpc_gpu_sight_t to[TPCOMM_MAX_RANKS];
} tpc_gpu_row_t;

/**
 * Fill in a row. Never fails: by_nvml is 0 where NVML cannot say, and then links and levels are 0.
 * @param path  TPCOMM_NVML_PATH: "" searches.
 * @param facts  of each member's device.
 */
void tpc_nvml_look(const char *path, const tpc_cuda_facts_t *facts, int32_t me, int32_t n, tpc_gpu_row_t *row_p);

/** Domain, bus and device of "0000:0f:00.0" or "00000000:0F:00.0"; false where the text is neither. */
bool tpc_bus_id_parse(const char *text, uint32_t place_p[3]);

#endif
