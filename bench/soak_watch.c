/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "bench.h"
#include "soak.h"

static tpcomm_status_t count_entries(const char *path, uint64_t *count_p) {
    DIR *folder = opendir(path);
    uint64_t count = 0;
    if (!folder) return tpc_error_errno(TPCOMM_ERR_IO, errno, "cannot read %s", path);
    while (readdir(folder)) count++;
    closedir(folder);
    *count_p = count;
    return TPCOMM_OK;
}

static tpcomm_status_t read_resident(uint64_t *kib_p) {
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long size = 0, resident = 0;
    bool read = file && fscanf(file, "%llu %llu", &size, &resident) == 2;
    if (file) fclose(file);
    if (!read) return tpc_error(TPCOMM_ERR_IO, "cannot read /proc/self/statm");
    *kib_p = resident * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
    return TPCOMM_OK;
}

tpcomm_status_t bench_soak_sample(const bench_soak_run_t *run, bench_soak_sample_t *sample_p) {
    bench_soak_sample_t sample = {.at_s = (double)(tpc_clock_ns() - run->start_ns) / 1e9};
    for (int coll = 0; coll < TPC_COLL_END; coll++) sample.calls += run->counts.calls[coll];
    tpcomm_status_t status = count_entries("/proc/self/fd", &sample.descriptors);
    if (status == TPCOMM_OK) status = count_entries("/proc/self/task", &sample.threads);
    if (status == TPCOMM_OK) status = read_resident(&sample.resident_kib);
    if (status == TPCOMM_OK && run->device->gpu)
        status = bench_gpu_free_bytes(run->device->gpu, &sample.device_free_bytes);
    if (status == TPCOMM_OK) *sample_p = sample;
    return status;
}

bool bench_soak_is_flat(const bench_soak_sample_t *before, const bench_soak_sample_t *after) {
    return after->descriptors == before->descriptors && after->threads == before->threads &&
           after->resident_kib <= before->resident_kib + BENCH_SOAK_RESIDENT_SLACK_KIB &&
           after->device_free_bytes + BENCH_SOAK_DEVICE_SLACK_BYTES >= before->device_free_bytes;
}
