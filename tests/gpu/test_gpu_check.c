/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check TPCOMM_CHECK=sync on a GPU: calls are right, eager and in graphs; a differing call is named on both sides
 * before a kernel runs; memory that goes past its allocation, host memory that the device cannot reach, and streams of
 * another context are refused with both values, and the group goes on; in a capture of the strictest mode nothing of
 * the check ends the capture, and ranks may capture one after the other.
 */
#include "device/cuda.h"
#include "device/cuda_driver.h"
#include "gpu/gpu_ranks.h"

enum { COUNT = 20000, BLOCK = 1 << 20 };

static const tpc_cuda_driver_t *driver;

/* A context of one's own on device 0, current afterwards. */
static CUcontext new_context(void) {
    CUresult (*create)(CUcontext *, unsigned, CUdevice) = NULL;
    enum cudaDriverEntryPointQueryResult found;
    CUcontext context = NULL;
    void *function = NULL;
    CUDA_OK(cudaGetDriverEntryPointByVersion("cuCtxCreate", &function, 11020, cudaEnableDefault, &found));
    CHECK(function != NULL);
    memcpy(&create, &function, sizeof create);
    CHECK_EQ(create(&context, 0, 0), CUDA_SUCCESS);
    return context;
}

static bool reads_host_pages(void) {
    int yes = 0;
    CUDA_OK(cudaDeviceGetAttribute(&yes, cudaDevAttrPageableMemoryAccess, 0));
    return yes != 0;
}

static void refuse(gpu_rank_t *rank, const void *in, void *out, size_t count, cudaStream_t stream, const char *a,
                   const char *b) {
    CHECK_STATUS(tpcomm_all_reduce(rank->comm, in, out, count, TPCOMM_F32, TPCOMM_SUM, stream), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS(a);
    CHECK_ERROR_HAS(b);
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
}

static void refused(gpu_rank_t *rank) {
    char *block = NULL, *host = malloc(BLOCK);
    cudaStream_t foreign = NULL;
    CUcontext own = NULL, popped = NULL;
    char text[96];
    CHECK_OK(tpc_cuda_driver(&driver));
    gpu_together(rank); /* contexts and memory are made while no kernel waits */
    CUDA_OK(cudaMalloc((void **)&block, BLOCK));
    own = new_context();
    CUDA_OK(cudaStreamCreateWithFlags(&foreign, cudaStreamNonBlocking));
    CHECK_EQ(driver->CtxPopCurrent(&popped), CUDA_SUCCESS);
    CHECK(popped == own);
    gpu_together(rank);
    if (rank->rank == 0) {
        snprintf(text, sizeof text, "out [%p, +%d) goes past the end of its memory [%p, +", (void *)(block + 256),
                 2 * BLOCK, (void *)block);
        refuse(rank, rank->in, block + 256, 2 * BLOCK / 4, rank->stream, text, "goes past");
        if (!reads_host_pages()) refuse(rank, host, rank->out, 100, rank->stream, "in [", "CUDA knows of no memory at");
        snprintf(text, sizeof text, "stream is %p, of CUDA context %p", (void *)foreign, (void *)own);
        refuse(rank, rank->in, rank->out, 100, foreign, text, "this rank is bound to context");
    }
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_BF16, 1, COUNT, "after refusals");
    gpu_together(rank);
    CUDA_OK(cudaFree(block));
    free(host);
}

/* One after the other, in the mode that forbids most. */
static void captured(gpu_rank_t *rank) {
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    for (int32_t turn = 0; turn < rank->size; turn++) {
        if (turn == rank->rank) {
            CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeGlobal));
            for (int i = 0; i < 3; i++)
                CHECK_OK(
                    tpcomm_all_reduce(rank->comm, rank->in, rank->out, COUNT, TPCOMM_BF16, TPCOMM_SUM, rank->stream));
            CHECK_STATUS(tpcomm_all_reduce(rank->comm, rank->in, rank->out, (size_t)1 << 34, TPCOMM_BF16, TPCOMM_SUM,
                                           rank->stream),
                         TPCOMM_ERR_INVALID_ARG);
            CUDA_OK(cudaStreamEndCapture(rank->stream, &graph));
        }
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    }
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    gpu_pattern_in(rank, rank->in, TPCOMM_BF16, 5, COUNT);
    gpu_together(rank);
    CUDA_OK(cudaGraphLaunch(exec, rank->stream));
    gpu_pattern_check(rank, rank->out, TPCOMM_BF16, 5, COUNT, "replay");
    gpu_together(rank);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(graph));
    gpu_together(rank);
}

static void works(gpu_rank_t *rank) {
    for (size_t count = 1; count < 300000; count = count * 7 + 1)
        gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F16, count, count, "sync");
    refused(rank);
    captured(rank);
}

static void differs(gpu_rank_t *rank) {
    size_t count = rank->rank == rank->size - 1 ? 100 : 200;
    gpu_all_reduce(rank, rank->in, rank->out, TPCOMM_F16, 1, COUNT, "sync");
    CHECK_STATUS(tpcomm_all_reduce(rank->comm, rank->in, rank->out, count, TPCOMM_F32, TPCOMM_SUM, rank->stream),
                 TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("rank 0 called all_reduce seq 2 count 200 f32 sum by oneshot");
    CHECK_ERROR_HAS("called all_reduce seq 2 count 100 f32 sum by oneshot");
}

int main(void) {
    gpu_need();
    tpcomm_config_t config = gpu_config();
    config.check = TPCOMM_CHECK_SYNC;
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        printf("2 %s\n", ranks_kind_name(kind));
        fflush(stdout);
        gpu_run(kind, 2, false, &config, 4 << 20, works, NULL);
        gpu_run(kind, 2, false, &config, 1 << 20, differs, NULL);
    }
    printf("ok\n");
    return 0;
}
