/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an eager all_reduce costs the thread that calls it: the library's own code between the call and the launch, and
 * this folder's runtime, whose launches do nothing here. For a profiler, which tells the two apart by their names; the
 * figure that is printed holds both, and is none of a GPU's. One thread plays both ranks of a group.
 * usage: cuda_on_host_time [CALLS [COUNT [each]]]   (each: on two streams by turns, so that each call waits for an
 * event)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "tpcomm.h"

enum { RANKS = 2 };

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void check(int good, const char *what) {
    if (good) return;
    fprintf(stderr, "%s: %s\n", what, tpcomm_last_error());
    exit(1);
}

int main(int argc, char **argv) {
    long calls = argc > 1 ? atol(argv[1]) : 1000000;
    size_t count = argc > 2 ? (size_t)atol(argv[2]) : 4096;
    int streams = argc > 3 && strcmp(argv[3], "each") == 0 ? 2 : 1;
    static const int32_t devices[RANKS] = {0};
    tpcomm_config_t config = {
        .struct_size = sizeof config, .device_kind = TPCOMM_DEVICE_CUDA, .share_device = TPCOMM_ON};
    tpcomm_t *comms[RANKS];
    cudaStream_t stream[RANKS][2];
    void *in[RANKS], *out[RANKS];
    check(setenv("CUDA_ON_HOST_KERNELS", "none", 1) == 0, "setenv");
    check(tpcomm_init_local(RANKS, devices, &config, comms) == TPCOMM_OK, "init");
    for (int r = 0; r < RANKS; r++) {
        for (int s = 0; s < streams; s++)
            check(cudaStreamCreateWithFlags(&stream[r][s], cudaStreamNonBlocking) == cudaSuccess, "stream");
        check(cudaMalloc(&in[r], count * 2) == cudaSuccess && cudaMalloc(&out[r], count * 2) == cudaSuccess, "memory");
    }
    double start = now_ns();
    for (long i = 0; i < calls; i++)
        for (int r = 0; r < RANKS; r++)
            check(tpcomm_all_reduce(comms[r], in[r], out[r], count, TPCOMM_BF16, TPCOMM_SUM,
                                    (tpcomm_stream_t)stream[r][i % streams]) == TPCOMM_OK,
                  "all_reduce");
    printf("%.1f ns a call, %ld calls of %zu bf16, %d stream(s); launches do nothing\n",
           (now_ns() - start) / (double)(calls * RANKS), calls * RANKS, count, streams);
    for (int r = 0; r < RANKS; r++) check(tpcomm_destroy(comms[r]) == TPCOMM_OK, "destroy");
    return 0;
}
