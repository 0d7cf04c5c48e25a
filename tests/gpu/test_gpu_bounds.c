/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that nothing waits for ever and nobody is surprised: a kernel whose peer never comes ends by itself and the
 * device is none the worse; calls whose grids find all SMs taken complete afterwards; two ranks on one GPU without
 * sharing are refused on both, naming the GPU and the way out.
 */
#include <unistd.h>

#include "device/cuda.h"
#include "gpu/gpu_ranks.h"

/* H22 */
static void peer_never_comes(gpu_rank_t *rank) {
    CHECK_OK(tpcomm_set_op_timeout(rank->comm, 2000));
    gpu_together(rank);
    if (rank->rank == 0) {
        unsigned bad = 1, *count = (unsigned *)(void *)(rank->out + (rank->room / 2));
        float *numbers = (float *)(void *)rank->out;
        CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in, rank->out, 1000, TPCOMM_F32, TPCOMM_SUM, rank->stream));
        CUDA_OK(cudaStreamSynchronize(rank->stream));
        CHECK_STATUS(tpcomm_async_status(rank->comm, NULL), TPCOMM_ERR_TIMEOUT);
        CUDA_OK(cudaMemsetAsync(count, 0, sizeof *count, rank->stream));
        CUDA_OK((cudaError_t)gpu_kernel_set(numbers, 10000, 2.5f, rank->stream));
        CUDA_OK((cudaError_t)gpu_kernel_expect(numbers, 10000, 2.5f, count, rank->stream));
        gpu_fetch(rank, &bad, count, sizeof bad);
        CHECK_EQ(bad, 0);
    }
    while (tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) usleep(1000);
    CHECK_STATUS(tpcomm_barrier(rank->comm, rank->stream), TPCOMM_ERR_TIMEOUT);
}

/* H23: rank 0 takes the whole device for a while; both ranks' largest grids come to stand behind it. */
static void no_room(gpu_rank_t *rank) {
    const size_t count = 1500000; /* several MiB, in the largest blocks there are */
    cudaStream_t side;
    gpu_stream_new(&side);
    gpu_pattern_in(rank, rank->in, TPCOMM_F32, 5, count);
    gpu_together(rank);
    for (int coll = 0; coll < 3; coll++) {
        if (rank->rank == 0) CUDA_OK((cudaError_t)gpu_kernel_occupy(coll == 0 ? 1000 : 300, side));
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        if (coll == 0)
            CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in, rank->out, count, TPCOMM_F32, TPCOMM_SUM, rank->stream));
        if (coll == 1) CHECK_OK(tpcomm_broadcast(rank->comm, rank->in, rank->out, count, TPCOMM_F32, 1, rank->stream));
        if (coll == 2)
            CHECK_OK(tpcomm_all_gather(rank->comm, rank->in, rank->out, count / 2, TPCOMM_F32, rank->stream));
        CUDA_OK(cudaStreamSynchronize(rank->stream));
        CHECK_OK(tpcomm_async_status(rank->comm, NULL));
        if (coll == 0) gpu_pattern_check(rank, rank->out, TPCOMM_F32, 5, count, "behind a full device");
        CUDA_OK(cudaStreamSynchronize(side));
        gpu_together(rank);
    }
    CUDA_OK(cudaStreamDestroy(side));
    gpu_together(rank);
}

/* I1 */
static void duplicates(int32_t r, int32_t size, void *arg) {
    tpcomm_config_t config = gpu_config();
    tpcomm_t *comm = NULL;
    tpc_cuda_facts_t facts;
    (void)r, (void)size, (void)arg;
    config.share_device = TPCOMM_OFF;
    config.device = 1;
    CHECK_STATUS(tpcomm_init_env(&config, &comm), TPCOMM_ERR_DUPLICATE_DEVICE);
    tpc_cuda_probe(0, &facts);
    CHECK(facts.usable == 1);
    CHECK_ERROR_HAS("ranks 0 and 1");
    CHECK_ERROR_HAS(facts.bus_id);
    CHECK_ERROR_HAS("TPCOMM_SHARE_DEVICE=1");
}

int main(void) {
    gpu_need();
    tpcomm_config_t config = gpu_config();
    gpu_run(RANKS_THREADS, 2, false, &config, 1 << 20, peer_never_comes, NULL);
    gpu_run(RANKS_PROCESSES, 2, false, &config, 1 << 20, peer_never_comes, NULL);
    gpu_run(RANKS_THREADS, 2, false, &config, 8 << 20, no_room, NULL);
    ranks_fork(2, duplicates, NULL);
    printf("ok\n");
    return 0;
}
