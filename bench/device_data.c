/* SPDX-License-Identifier: Apache-2.0 */
#include "device_data.h"

#include <string.h>

tpcomm_status_t bench_device_put_data(bench_device_t *device, const bench_data_t *data, bench_part_t part,
                                      uint32_t buffer, void *memory, uint64_t count) {
    size_t size = bench_data_element_bytes(data);
    for (uint64_t done = 0; done < count;) {
        unsigned char *to = (unsigned char *)memory + done * size;
        uint64_t run = bench_device_piece(device, (count - done) * size) / size;
        bench_data_fill(data, part, buffer, done, bench_device_window(device, to), run);
        tpcomm_status_t status = bench_device_put(device, to, run * size);
        if (status != TPCOMM_OK) return status;
        done += run;
    }
    return TPCOMM_OK;
}

tpcomm_status_t bench_device_check_data(bench_device_t *device, const bench_data_t *data, const bench_expect_t *expect,
                                        const void *out, uint64_t count, bench_findings_t *findings_p) {
    size_t size = bench_data_element_bytes(data);
    bench_expect_t part_of = *expect;
    bench_findings_t findings = {0, 0, 0, 0};
    for (uint64_t done = 0; done < count;) {
        uint64_t part = bench_device_piece(device, (count - done) * size) / size, first = 0;
        const void *here;
        tpcomm_status_t status = bench_device_get(device, (const unsigned char *)out + done * size, part * size, &here);
        if (status != TPCOMM_OK) return status;
        uint64_t wrong = bench_data_check(data, &part_of, here, part, &first);
        if (wrong > 0 && findings.wrong == 0) {
            findings.first = done + first;
            findings.want = bench_data_expected(data, &part_of, first);
            memcpy(&findings.got, (const unsigned char *)here + first * size, size);
        }
        findings.wrong += wrong;
        part_of.from += part;
        done += part;
    }
    *findings_p = findings;
    return TPCOMM_OK;
}
