/* SPDX-License-Identifier: Apache-2.0 */
/** Test data on its way to a device, and results on their way back, piece by piece. */
#ifndef BENCH_DEVICE_DATA_H
#define BENCH_DEVICE_DATA_H

#include "data.h"
#include "device.h"

/** Write a part of this rank's buffer into memory of the device. */
tpcomm_status_t bench_device_put_data(bench_device_t *device, const bench_data_t *data, bench_part_t part,
                                      uint32_t buffer, void *memory, uint64_t count);

/** What a comparison found. */
typedef struct {
    uint64_t wrong, first; /**< how many elements, the first of them */
    uint64_t got, want;    /**< the first one's bits */
} bench_findings_t;

/** Compare every element of an output on the device with what must be there. */
tpcomm_status_t bench_device_check_data(bench_device_t *device, const bench_data_t *data, const bench_expect_t *expect,
                                        const void *out, uint64_t count, bench_findings_t *findings_p);

#endif
