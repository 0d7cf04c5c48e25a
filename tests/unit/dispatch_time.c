/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times the choice of a path alone, for groups of every size on every device of this build: messages of random sizes
 * and dtypes, nanoseconds a choice, median of 100 trains of 1000. Figures, not a test.
 */
#include "base/clock.h"
#include "check.h"
#include "coordinator/backends.h"
#include "dispatch/dispatch.h"

enum { KEYS = 1000, TRAINS = 100 };

static tpc_table_t table;

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void time_group(tpcomm_device_kind_t device, int32_t topology, int32_t size, const char *name) {
    static tpc_call_key_t keys[KEYS];
    const tpc_backend_t *list[8] = {NULL};
    size_t count = 0;
    uint64_t state = 1;
    double ns[TRAINS];
    int64_t sum = 0;
    tpc_dispatch_t *dispatch = NULL;
    tpc_agreed_t agreed = {.size = size, .device_kind = device, .topology = topology, .workspace_bytes = 1u << 25};
    for (const tpc_backend_t *const *backend = tpc_backends; *backend != NULL; backend++)
        if (tpc_backend_serves(*backend, device) && count < 7) list[count++] = *backend;
    if (count == 0) return; /* not of this build */
    CHECK_OK(tpc_dispatch_new(&agreed, &table, list, NULL, &dispatch));
    if (device == TPCOMM_DEVICE_CUDA && tpc_dispatch_why_not(dispatch, TPCOMM_PATH_ONESHOT) != NULL) {
        tpc_dispatch_free(dispatch); /* a build without kernels */
        return;
    }
    for (int i = 0; i < KEYS; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        keys[i] = (tpc_call_key_t){.coll = TPCOMM_ALL_REDUCE,
                                   .dtype = (state >> 60) % 2 ? TPCOMM_BF16 : TPCOMM_F16,
                                   .op = TPCOMM_SUM,
                                   .bytes = (UINT64_C(1024) << (state >> 40) % 14) + (state >> 33) % 1024 * 2};
    }
    for (int train = 0; train < TRAINS; train++) {
        uint64_t start = tpc_clock_ns();
        for (int i = 0; i < KEYS; i++) {
            tpc_choice_t choice;
            CHECK_OK(tpc_dispatch_choose(dispatch, &keys[i], 0, &choice));
            sum += choice.path;
        }
        ns[train] = (double)(tpc_clock_ns() - start) / KEYS;
    }
    tpc_dispatch_free(dispatch);
    qsort(ns, TRAINS, sizeof *ns, by_value);
    printf("%-10s %2d ranks: p50 %6.1f ns, p95 %6.1f ns (mean path %.3f)\n", name, size, ns[TRAINS / 2],
           ns[TRAINS * 95 / 100], (double)sum / TRAINS / KEYS);
}

int main(void) {
    tpc_table_builtin(&table);
    for (int32_t size = 2; size <= 8; size *= 2) {
        time_group(TPCOMM_DEVICE_CPU, TPC_TOPOLOGY_CPU, size, "cpu");
        time_group(TPCOMM_DEVICE_CUDA, TPC_TOPOLOGY_SAME_GPU, size, "same_gpu");
        time_group(TPCOMM_DEVICE_CUDA, TPC_TOPOLOGY_NVLINK, size, "nvlink");
    }
    return 0;
}
