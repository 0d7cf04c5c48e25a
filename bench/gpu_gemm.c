/* SPDX-License-Identifier: Apache-2.0 */
/** A matrix product on a GPU's second stream: cuBLAS's where it is found at run time, else the bench's own kernel. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "gpu_driver.h"
#include "random.h"
#include "ranks.h"

#if BENCH_CUDA
#include "kernels.h"
#else
#define BENCH_GEMM_TILE 64
#endif

typedef bench_handle_t handle_t;

/* cublas_api.h's values */
enum { CUBLAS_NO_TRANSPOSE = 0, CUDA_R_BF16 = 14, CUBLAS_COMPUTE_F32 = 68, CUBLAS_DEFAULT_ALGORITHM = -1 };
/* Sides: a tuned product of 8192 takes about 1.5 ms on an H200, the plain kernel's of 4096 about as long. */
enum { CUBLAS_SIDE = 8192, OWN_SIDE = 4096 };

#define CUBLAS_LIST(X)                                                                                                 \
    X(create, "cublasCreate_v2", (handle_t * handle))                                                                  \
    X(destroy, "cublasDestroy_v2", (handle_t handle))                                                                  \
    X(set_stream, "cublasSetStream_v2", (handle_t handle, handle_t stream))                                            \
    X(gemm, "cublasGemmEx",                                                                                            \
      (handle_t handle, int trans_a, int trans_b, int m, int n, int k, const void *alpha, const void *a, int a_type,   \
       int lda, const void *b, int b_type, int ldb, const void *beta, void *c, int c_type, int ldc, int compute,       \
       int algorithm))

#define POINTER(name, symbol, parameters) int(*name) parameters;
#define SYMBOL(name, symbol, parameters)  symbol,

static struct { CUBLAS_LIST(POINTER) } cublas;
static const char *const symbols[] = {CUBLAS_LIST(SYMBOL)};
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_cublas;

struct bench_gemm {
    bench_gpu_t *gpu;
    handle_t cublas; /* NULL: by the bench's own kernel */
    void *a, *b, *c;
    int32_t side;
};

static void load(void) {
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "/usr/local/cuda/lib64/libcublas.so.13",
                                        "/usr/local/cuda/lib64/libcublas.so.12"};
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !has_cublas; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        has_cublas = library && bench_load_symbols(library, symbols, sizeof symbols / sizeof symbols[0], &cublas);
    }
}

/** Values around 0, different everywhere: a product of zeros runs faster than one of data. */
static tpcomm_status_t fill(bench_gpu_t *gpu, void *matrix, uint64_t bytes, uint64_t seed) {
    enum { PIECE = 1 << 20 };
    void *piece = NULL;
    tpcomm_status_t status = bench_gpu_alloc_host(gpu, PIECE, &piece);
    if (status != TPCOMM_OK) return status;
    uint16_t *values = piece;
    for (size_t i = 0; i < PIECE / sizeof *values; i++) {
        uint64_t bits = bench_random_next(&seed);
        values[i] = (uint16_t)(0x3C00 | (bits & 0x81FF)); /* +-0.0078 to 0.12 */
    }
    for (uint64_t done = 0; done < bytes && status == TPCOMM_OK; done += PIECE) {
        uint64_t run = bytes - done < PIECE ? bytes - done : PIECE;
        status = bench_gpu_put(gpu, (char *)matrix + done, piece, run);
    }
    tpcomm_status_t synced = bench_gpu_sync(gpu);
    bench_gpu_free_host(gpu, piece);
    return status == TPCOMM_OK ? synced : status;
}

tpcomm_status_t bench_gemm_new(bench_gpu_t *gpu, int32_t side, bench_gemm_t **gemm_p, const char **text_p) {
    bench_gemm_t *gemm = calloc(1, sizeof *gemm);
    if (!gemm) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory");
    gemm->gpu = gpu;
    pthread_once(&once, load);
    bool by_cublas = has_cublas && cublas.create(&gemm->cublas) == 0 &&
                     cublas.set_stream(gemm->cublas, bench_gpu_handle(gpu, 1)) == 0;
    if (!by_cublas && gemm->cublas) {
        cublas.destroy(gemm->cublas);
        gemm->cublas = NULL;
    }
    if (side == 0) side = by_cublas ? CUBLAS_SIDE : OWN_SIDE;
    gemm->side = (side + BENCH_GEMM_TILE - 1) / BENCH_GEMM_TILE * BENCH_GEMM_TILE;
    uint64_t bytes = 2 * (uint64_t)gemm->side * (uint64_t)gemm->side;
    tpcomm_status_t status = bench_gpu_alloc(gpu, bytes, &gemm->a);
    if (status == TPCOMM_OK) status = bench_gpu_alloc(gpu, bytes, &gemm->b);
    if (status == TPCOMM_OK) status = bench_gpu_alloc(gpu, bytes, &gemm->c);
    if (status == TPCOMM_OK) status = fill(gpu, gemm->a, bytes, 11);
    if (status == TPCOMM_OK) status = fill(gpu, gemm->b, bytes, 12);
    if (status == TPCOMM_OK) status = bench_gemm_run(gemm, 2); /* loads what it needs */
    if (status == TPCOMM_OK) status = bench_gpu_sync_side(gpu);
    if (status != TPCOMM_OK) {
        bench_gemm_free(gemm);
        return status;
    }
    *gemm_p = gemm;
    *text_p = by_cublas ? "cuBLAS" : "the bench's own kernel";
    return TPCOMM_OK;
}

void bench_gemm_free(bench_gemm_t *gemm) {
    if (!gemm) return;
    if (gemm->cublas) cublas.destroy(gemm->cublas);
    bench_gpu_free(gemm->gpu, gemm->a);
    bench_gpu_free(gemm->gpu, gemm->b);
    bench_gpu_free(gemm->gpu, gemm->c);
    free(gemm);
}

static tpcomm_status_t run_own(bench_gemm_t *gemm) {
#if BENCH_CUDA
    return bench_driver_check(bench_kernel_gemm(gemm->a, gemm->b, gemm->c, gemm->side, bench_gpu_handle(gemm->gpu, 1)),
                              "a matrix product");
#else
    (void)gemm;
    return tpc_error(TPCOMM_ERR_UNSUPPORTED, "this build has no kernels of its own");
#endif
}

static tpcomm_status_t run_cublas(bench_gemm_t *gemm) {
    const float one = 1, zero = 0;
    int side = gemm->side;
    int error = cublas.gemm(gemm->cublas, CUBLAS_NO_TRANSPOSE, CUBLAS_NO_TRANSPOSE, side, side, side, &one, gemm->a,
                            CUDA_R_BF16, side, gemm->b, CUDA_R_BF16, side, &zero, gemm->c, CUDA_R_BF16, side,
                            CUBLAS_COMPUTE_F32, CUBLAS_DEFAULT_ALGORITHM);
    return error == 0 ? TPCOMM_OK : tpc_error(TPCOMM_ERR_DEVICE, "cuBLAS: a matrix product: error %d", error);
}

tpcomm_status_t bench_gemm_run(bench_gemm_t *gemm, uint32_t times) {
    tpcomm_status_t status = TPCOMM_OK;
    for (uint32_t i = 0; i < times && status == TPCOMM_OK; i++)
        status = gemm->cublas ? run_cublas(gemm) : run_own(gemm);
    return status;
}
