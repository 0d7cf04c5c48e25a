/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that fused calls under dependent launch touch nothing before their predecessors have ended (f of docs/gpu.md's
 * list), on one GPU: the kernels are launched directly, by 2 and 4 ranks with small grids.
 *
 *   late     a kernel that releases its successor at once writes in, residual, weight and scale 50 us later; behind it
 *            three calls, each on the output of the one before, by both forms: every byte as the cpu device has it
 *   failed   calls of a broken group leave at once, but not before the kernel in front of them has ended: what it
 *            writes late is there for a kernel behind them that waits for its predecessor alone
 *   filled   dependents that would fill every SM come only when a call has all that it waits for, so that the peer's
 *            kernel, which comes late, finds room
 */
#include "cpu_backend/norm.h"
#include "cpu_backend/reduce.h"
#include "fused/instances.h"
#include "gpu/gpu_kernels.h"
#include "gpu/gpu_ranks.h"

enum { RANKS = 4, CALLS = 3, ROWS = 6, HIDDEN = 2048, SLOT = 4 * ROWS * HIDDEN, MATRIX = 2 * ROWS * HIDDEN };

/* What is late lies in one piece: in, residual, weight, scale. */
enum { RESIDUAL = MATRIX, WEIGHT = 2 * MATRIX, SCALE = WEIGHT + 4 * HIDDEN, LATE = SCALE + 256 };

typedef struct {
    tpcomm_dtype_t dtype;
    tpc_fused_form_t forms[CALLS];
    tpcomm_quant_t quant;
} chain_t;

static struct {
    int32_t size;
    uint32_t epoch;
    cudaStream_t stream[RANKS];
    unsigned char *workspace[RANKS], *late[RANKS], *source[RANKS], *out[RANKS][CALLS], *quantized[RANKS][CALLS];
    float *scale[RANKS][CALLS];
    unsigned *differ; /* on the device */
    tpc_ar_report_t *report;
    uint64_t *host_fail;
} gpu;

static unsigned char args[RANKS][LATE], got[LATE];

static void open_ranks(int32_t size, uint32_t epoch) {
    size_t bytes = tpc_ar_workspace_bytes(size, SLOT);
    unsigned char *first = calloc(1, TPC_AR_CALL_OFFSET);
    CHECK(first != NULL);
    ((tpc_ar_header_t *)(void *)first)->timeout_ms = 3000;
    for (size_t b = 0; b < TPC_AR_MAX_BLOCKS; b++) memcpy(first + TPC_AR_EPOCH_OFFSET + 4 * b, &epoch, 4);
    gpu.size = size;
    gpu.epoch = epoch;
    CUDA_OK(cudaHostAlloc((void **)&gpu.report, sizeof *gpu.report * RANKS, cudaHostAllocMapped));
    CUDA_OK(cudaHostAlloc((void **)&gpu.host_fail, sizeof *gpu.host_fail, cudaHostAllocMapped));
    memset(gpu.report, 0, sizeof *gpu.report * RANKS);
    *gpu.host_fail = 0;
    CUDA_OK(cudaMalloc((void **)&gpu.differ, sizeof *gpu.differ));
    for (int32_t r = 0; r < size; r++) {
        gpu_stream_new(&gpu.stream[r]);
        CUDA_OK(cudaMalloc((void **)&gpu.workspace[r], bytes));
        CUDA_OK(cudaMemset(gpu.workspace[r], 0xFF, bytes));
        CUDA_OK(cudaMemcpy(gpu.workspace[r], first, TPC_AR_CALL_OFFSET, cudaMemcpyHostToDevice));
        CUDA_OK(cudaMalloc((void **)&gpu.late[r], LATE));
        CUDA_OK(cudaMalloc((void **)&gpu.source[r], LATE));
        for (int c = 0; c < CALLS; c++) {
            CUDA_OK(cudaMalloc((void **)&gpu.out[r][c], MATRIX));
            CUDA_OK(cudaMalloc((void **)&gpu.quantized[r][c], ROWS * HIDDEN));
            CUDA_OK(cudaMalloc((void **)&gpu.scale[r][c], ROWS * sizeof(float)));
        }
    }
    CUDA_OK(cudaDeviceSynchronize());
    free(first);
}

static void close_ranks(void) {
    CUDA_OK(cudaDeviceSynchronize());
    for (int32_t r = 0; r < gpu.size; r++) {
        CUDA_OK(cudaFree(gpu.workspace[r]));
        CUDA_OK(cudaFree(gpu.late[r]));
        CUDA_OK(cudaFree(gpu.source[r]));
        for (int c = 0; c < CALLS; c++) {
            CUDA_OK(cudaFree(gpu.out[r][c]));
            CUDA_OK(cudaFree(gpu.quantized[r][c]));
            CUDA_OK(cudaFree(gpu.scale[r][c]));
        }
        CUDA_OK(cudaStreamDestroy(gpu.stream[r]));
    }
    CUDA_OK(cudaFree(gpu.differ));
    CUDA_OK(cudaFreeHost(gpu.report));
    CUDA_OK(cudaFreeHost(gpu.host_fail));
}

/* Numbers of magnitude about 1. */
static uint32_t number(uint64_t *state, tpcomm_dtype_t dtype) {
    uint32_t word = (uint32_t)random_next(state);
    if (dtype == TPCOMM_F32) return (word & 0x807FFFFFu) | (126 + (word >> 24 & 1)) << 23;
    if (dtype == TPCOMM_F16) return (word & 0x83FFu) | (14 + (word >> 24 & 1)) << 10;
    return (word & 0x807Fu) | (126 + (word >> 24 & 1)) << 7;
}

static void make_args(const chain_t *chain, uint64_t seed) {
    const float scale = 0.01f;
    for (int32_t r = 0; r < gpu.size; r++) {
        uint64_t state = seed * 1000 + (uint64_t)r, same = seed;
        for (size_t at = 0; at < WEIGHT; at += 2) {
            uint32_t word = number(at < RESIDUAL ? &state : &same, chain->dtype);
            memcpy(args[r] + at, &word, 2);
        }
        for (size_t at = WEIGHT; at < SCALE; at += 4) {
            uint32_t word = number(&same, TPCOMM_F32);
            memcpy(args[r] + at, &word, 4);
        }
        memcpy(args[r] + SCALE, &scale, sizeof scale);
        CUDA_OK(cudaMemcpy(gpu.source[r], args[r], LATE, cudaMemcpyHostToDevice));
        CUDA_OK(cudaMemset(gpu.late[r], 0x5A, LATE));
    }
    CUDA_OK(cudaDeviceSynchronize());
}

static void launch(const chain_t *chain, int c, int32_t r) {
    tpc_ar_params_t p = {.half_bytes = tpc_ar_half_bytes(gpu.size, SLOT),
                         .slot_bytes = SLOT,
                         .rank = r,
                         .size = gpu.size,
                         .dtype = chain->dtype,
                         .op = TPCOMM_SUM,
                         .host_fail = gpu.host_fail,
                         .report = &gpu.report[r],
                         .what = 7,
                         .hash = (uint32_t)c,
                         .early = 1};
    for (int32_t k = 0; k < gpu.size; k++) p.workspace[k] = gpu.workspace[(r + k) % gpu.size];
    tpc_norm_params_t n = {.in = c == 0 ? gpu.late[r] : gpu.out[r][c - 1],
                           .weight = gpu.late[r] + WEIGHT,
                           .residual = gpu.late[r] + RESIDUAL,
                           .out = gpu.out[r][c],
                           .in_stride = MATRIX / ROWS,
                           .residual_stride = MATRIX / ROWS,
                           .out_stride = MATRIX / ROWS,
                           .quantized_stride = HIDDEN,
                           .tokens = ROWS,
                           .rows = ROWS,
                           .hidden = HIDDEN,
                           .dtype = chain->dtype,
                           .weight_is_f32 = 1,
                           .quant = chain->quant,
                           .eps = 1e-5f};
    if (chain->quant != TPCOMM_QUANT_NONE) {
        n.quantized = gpu.quantized[r][c];
        n.scale = chain->quant == TPCOMM_QUANT_F8_TOKEN ? gpu.scale[r][c] : (float *)(void *)(gpu.late[r] + SCALE);
    }
    tpc_norm_shape_t shape = tpc_norm_shape(HIDDEN, 1 + (c + r) % 2); /* shapes need not agree */
    CHECK(tpc_fused_kind(&p, &n, shape.vectors) == TPC_FUSED_EARLY);
    CUDA_OK((cudaError_t)tpc_fused_instances(chain->forms[c], chain->dtype)
                ->launch(&p, &n, shape, 1 + (c + r) % ROWS, (tpcomm_stream_t)gpu.stream[r]));
}

static void check_bytes(const chain_t *chain, const void *device, const void *want, size_t bytes, int32_t r, int c,
                        const char *what) {
    CUDA_OK(cudaMemcpy(got, device, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != ((const unsigned char *)want)[i])
            FAIL("%s, quant %d, forms %d %d %d, rank %d of %d, call %d: byte %zu of %s is %02x, want %02x",
                 tpcomm_dtype_name(chain->dtype), chain->quant, chain->forms[0], chain->forms[1], chain->forms[2], r,
                 gpu.size, c, i, what, got[i], ((const unsigned char *)want)[i]);
}

/* What the chain must give, by the cpu device's kernels. */
static void check_chain(const chain_t *chain) {
    static unsigned char in[RANKS][MATRIX], out[MATRIX], quantized[ROWS * HIDDEN], sum[2 * HIDDEN];
    float scales[ROWS];
    tpc_reduce_fn_t reduce = tpc_reduce_find(chain->dtype, TPCOMM_SUM);
    tpc_norm_fn_t kernel = tpc_norm_find(chain->dtype, TPCOMM_F32);
    for (int32_t r = 0; r < gpu.size; r++) memcpy(in[r], args[r], MATRIX);
    for (int c = 0; c < CALLS; c++) {
        for (size_t t = 0; t < ROWS; t++) {
            const void *sources[RANKS];
            for (int32_t r = 0; r < gpu.size; r++) sources[r] = in[r] + t * (MATRIX / ROWS);
            reduce(sum, sources, gpu.size, HIDDEN);
            tpc_norm_row_t row = {.sum = sum,
                                  .weight = args[0] + WEIGHT,
                                  .residual = args[0] + RESIDUAL + t * (MATRIX / ROWS),
                                  .out = out + t * (MATRIX / ROWS),
                                  .hidden = HIDDEN,
                                  .quant = chain->quant,
                                  .eps = 1e-5f};
            if (chain->quant != TPCOMM_QUANT_NONE) {
                row.quantized = quantized + t * HIDDEN;
                row.scale = chain->quant == TPCOMM_QUANT_F8_TOKEN ? &scales[t] : (float *)(void *)(args[0] + SCALE);
            }
            kernel(&row);
        }
        for (int32_t r = 0; r < gpu.size; r++) {
            check_bytes(chain, gpu.out[r][c], out, MATRIX, r, c, "out");
            if (chain->quant != TPCOMM_QUANT_NONE)
                check_bytes(chain, gpu.quantized[r][c], quantized, ROWS * HIDDEN, r, c, "quantized");
            if (chain->quant == TPCOMM_QUANT_F8_TOKEN)
                check_bytes(chain, gpu.scale[r][c], scales, sizeof scales, r, c, "scale");
            memcpy(in[r], out, MATRIX);
        }
    }
    for (int32_t r = 0; r < gpu.size; r++)
        check_bytes(chain, gpu.late[r] + RESIDUAL, args[0] + RESIDUAL, MATRIX, r, CALLS, "residual");
}

static void check_healthy(void) {
    for (int32_t r = 0; r < gpu.size; r++) {
        tpc_ar_header_t header;
        CUDA_OK(cudaMemcpy(&header, gpu.workspace[r], sizeof header, cudaMemcpyDeviceToHost));
        CHECK_EQ(header.fail, 0);
        CHECK_EQ(header.running, 0);
    }
}

static void late(int32_t size) {
    static const tpcomm_dtype_t dtypes[] = {TPCOMM_BF16, TPCOMM_F16};
    open_ranks(size, 0xFFFFFFFBu);
    for (int i = 0; i < 24; i++) {
        chain_t chain = {.dtype = dtypes[i % 2], .quant = (tpcomm_quant_t)(i / 2 % 3)};
        for (int c = 0; c < CALLS; c++) chain.forms[c] = (i + c) % 3 != 0 ? TPC_FUSED_TWOSHOT : TPC_FUSED_ONESHOT;
        make_args(&chain, 100 + (uint64_t)i);
        for (int32_t r = 0; r < size; r++) {
            CUDA_OK((cudaError_t)gpu_kernel_late_copy(gpu.late[r], gpu.source[r], LATE, 50, gpu.stream[r]));
            for (int c = 0; c < CALLS; c++) launch(&chain, c, r);
        }
        CUDA_OK(cudaDeviceSynchronize());
        check_healthy();
        check_chain(&chain);
    }
    close_ranks();
}

static void failed(void) {
    const chain_t chain = {.dtype = TPCOMM_BF16, .forms = {TPC_FUSED_ONESHOT, TPC_FUSED_TWOSHOT, TPC_FUSED_ONESHOT}};
    uint64_t word = (uint64_t)(uint32_t)-TPCOMM_ERR_ABORTED | UINT64_C(1) << 32;
    open_ranks(2, 5);
    make_args(&chain, 1);
    CUDA_OK(cudaMemset(gpu.differ, 0, sizeof *gpu.differ));
    for (int32_t r = 0; r < 2; r++)
        CUDA_OK(cudaMemcpy(gpu.workspace[r] + offsetof(tpc_ar_header_t, fail), &word, sizeof word, cudaMemcpyDefault));
    CUDA_OK(cudaDeviceSynchronize());
    for (int i = 0; i < 20; i++) { /* rank 1 makes no call at all: rank 0's must not wait for it */
        CUDA_OK(cudaMemsetAsync(gpu.late[0], 0x5A, LATE, gpu.stream[0]));
        CUDA_OK((cudaError_t)gpu_kernel_late_copy(gpu.late[0], gpu.source[0], LATE, 200, gpu.stream[0]));
        for (int c = 0; c < i % 4; c++) launch(&chain, c, 0);
        CUDA_OK(
            (cudaError_t)gpu_kernel_differ_dependent(gpu.late[0], gpu.source[0], RESIDUAL, gpu.differ, gpu.stream[0]));
    }
    unsigned differ = 1;
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemcpy(&differ, gpu.differ, sizeof differ, cudaMemcpyDeviceToHost));
    CHECK_EQ(differ, 0);
    close_ranks();
}

static void filled(void) {
    open_ranks(2, 1);
    for (int i = 0; i < 4; i++) {
        tpc_fused_form_t form = i % 2 == 0 ? TPC_FUSED_ONESHOT : TPC_FUSED_TWOSHOT;
        const chain_t chain = {.dtype = TPCOMM_BF16, .forms = {form, form, form}};
        make_args(&chain, 7 + (uint64_t)i);
        for (int32_t r = 0; r < 2; r++)
            CUDA_OK(cudaMemcpyAsync(gpu.late[r], gpu.source[r], LATE, cudaMemcpyDeviceToDevice, gpu.stream[r]));
        CUDA_OK(cudaDeviceSynchronize());
        for (int c = 0; c < CALLS; c++) {
            launch(&chain, c, 0);
            CUDA_OK((cudaError_t)gpu_kernel_occupy_dependent(1, gpu.stream[0]));
            CUDA_OK((cudaError_t)gpu_kernel_delay(3, gpu.stream[1]));
            launch(&chain, c, 1);
        }
        CUDA_OK(cudaDeviceSynchronize());
        check_healthy();
        check_chain(&chain);
    }
    close_ranks();
}

int main(void) {
    gpu_need();
    CUDA_OK((cudaError_t)gpu_kernels_load());
    for (int32_t size = 2; size <= RANKS; size += 2) late(size);
    printf("late producers: ok\n");
    fflush(stdout);
    failed();
    printf("failed calls: ok\n");
    fflush(stdout);
    filled();
    printf("ok\n");
    return 0;
}
