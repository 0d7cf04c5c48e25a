/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that the norm gives the cpu device's bytes whatever its shape: blocks of 64 to 1024 threads, 1, 2 and 4 vectors
 * a thread, rows shared out over 1, 2, 4 and as many blocks as there are rows; rows of 8 to 16384 elements, every dtype
 * and quantisation, aligned and not. The kernels are launched directly.
 */
#include "cpu_backend/norm.h"
#include "fused/instances.h"
#include "gpu/gpu_ranks.h"

enum { ROWS = 5, WIDEST = 16384, MATRIX = ROWS * WIDEST * 4 + 64 };

static struct {
    unsigned char *in, *residual, *weight, *out, *quantized;
    float *scale;
    cudaStream_t stream;
} gpu, host; /* host: what is expected afterwards; in and weight as they are */

static unsigned char *got;

static void fill(unsigned char *to, size_t bytes, tpcomm_dtype_t dtype, uint64_t *state) {
    for (size_t at = 0; at < bytes; at += tpcomm_dtype_size(dtype)) {
        uint32_t word = (uint32_t)random_next(state);
        if (random_next(state) % 512 != 0) { /* of magnitude about 1; now and then any bits */
            if (dtype == TPCOMM_F32) word = (word & 0x807FFFFFu) | (126 + (word >> 24 & 1)) << 23;
            if (dtype == TPCOMM_F16) word = (word & 0x83FFu) | (14 + (word >> 24 & 1)) << 10;
            if (dtype == TPCOMM_BF16) word = (word & 0x807Fu) | (126 + (word >> 24 & 1)) << 7;
        }
        memcpy(to + at, &word, tpcomm_dtype_size(dtype));
    }
}

static void check(const unsigned char *device, const void *want, size_t bytes, const char *what, const char *text) {
    CUDA_OK(cudaMemcpy(got, device, bytes, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != ((const unsigned char *)want)[i])
            FAIL("%s: byte %zu of %s is %02x, want %02x", text, i, what, got[i], ((const unsigned char *)want)[i]);
}

/* One norm by one shape. shift: of everything, in bytes. */
static void one(const tpc_norm_params_t *params, tpcomm_dtype_t weight_dtype, tpc_norm_shape_t shape, int32_t blocks,
                size_t shift) {
    tpc_norm_params_t n = *params;
    size_t element = tpcomm_dtype_size(n.dtype), row = (size_t)n.hidden * element, rows = ROWS * row;
    CUDA_OK(cudaMemcpy(gpu.residual + shift, host.in + MATRIX, rows, cudaMemcpyHostToDevice));
    CUDA_OK(cudaMemcpy(gpu.in + shift, host.in, rows, cudaMemcpyHostToDevice));
    CUDA_OK(cudaMemcpy(gpu.weight + shift, host.weight, (size_t)n.hidden * tpcomm_dtype_size(weight_dtype),
                       cudaMemcpyHostToDevice));
    n.in = gpu.in + shift;
    n.weight = gpu.weight + shift;
    n.residual = gpu.residual + shift;
    n.out = gpu.out + shift;
    n.quantized = n.quant != TPCOMM_QUANT_NONE ? gpu.quantized + shift : NULL;
    n.scale = n.quant != TPCOMM_QUANT_NONE ? gpu.scale : NULL;
    CUDA_OK((cudaError_t)tpc_norm_launch(&n, shape, blocks, (tpcomm_stream_t)gpu.stream));
    CUDA_OK(cudaStreamSynchronize(gpu.stream));
    char text[160];
    snprintf(text, sizeof text, "%s, hidden %d, quant %d, %d warps of %d vectors, %d blocks, shifted by %zu",
             tpcomm_dtype_name(n.dtype), n.hidden, n.quant, shape.warps, shape.vectors, blocks, shift);
    check(gpu.out + shift, host.out, rows, "out", text);
    check(gpu.residual + shift, host.residual, rows, "residual", text);
    if (n.quant != TPCOMM_QUANT_NONE) check(n.quantized, host.quantized, (size_t)n.hidden * ROWS, "quantized", text);
    if (n.quant == TPCOMM_QUANT_F8_TOKEN)
        check((const unsigned char *)gpu.scale, host.scale, ROWS * sizeof(float), "scale", text);
}

/* All shapes of rows of this width; how many. */
static int all(tpcomm_dtype_t dtype, tpcomm_quant_t quant, int32_t hidden, uint64_t seed) {
    static const int32_t warps[] = {2, 3, 4, 6, 8, 12, 16, 24, 32}, blocks[] = {1, 2, 4, ROWS};
    tpcomm_dtype_t weight_dtype = seed % 2 == 0 ? TPCOMM_F32 : dtype;
    size_t row = (size_t)hidden * tpcomm_dtype_size(dtype);
    int made = 0;
    fill(host.in, ROWS * row, dtype, &seed);
    fill(host.in + MATRIX, ROWS * row, dtype, &seed);
    fill(host.weight, (size_t)hidden * tpcomm_dtype_size(weight_dtype), weight_dtype, &seed);
    memcpy(host.residual, host.in + MATRIX, ROWS * row);
    if (quant == TPCOMM_QUANT_F8_TENSOR) {
        host.scale[0] = 0.01f;
        CUDA_OK(cudaMemcpy(gpu.scale, host.scale, sizeof(float), cudaMemcpyHostToDevice));
    }
    tpc_norm_fn_t kernel = tpc_norm_find(dtype, weight_dtype);
    for (size_t t = 0; t < ROWS; t++) {
        tpc_norm_row_t expected = {.sum = host.in + t * row,
                                   .weight = host.weight,
                                   .residual = host.residual + t * row,
                                   .out = host.out + t * row,
                                   .hidden = (size_t)hidden,
                                   .quant = quant,
                                   .eps = 1e-5f,
                                   .weight_bias = 1};
        if (quant != TPCOMM_QUANT_NONE) {
            expected.quantized = host.quantized + t * (size_t)hidden;
            expected.scale = host.scale + (quant == TPCOMM_QUANT_F8_TOKEN ? t : 0);
        }
        kernel(&expected);
    }
    tpc_norm_params_t params = {.in_stride = row,
                                .residual_stride = row,
                                .out_stride = row,
                                .quantized_stride = (uint64_t)hidden,
                                .tokens = ROWS,
                                .rows = ROWS,
                                .hidden = hidden,
                                .dtype = dtype,
                                .weight_is_f32 = weight_dtype == TPCOMM_F32,
                                .quant = quant,
                                .eps = 1e-5f,
                                .weight_bias = 1};
    for (size_t w = 0; w < sizeof warps / sizeof *warps; w++)
        for (int32_t vectors = 1; vectors <= 4; vectors *= 2) {
            tpc_norm_shape_t shape = {warps[w], vectors};
            if (warps[w] * vectors < (hidden + 255) / 256) continue;
            for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++, made++)
                one(&params, weight_dtype, shape, blocks[b], made % 3 == 0 ? (size_t)(made % 9 + 1) * 4 : 0);
        }
    return made;
}

int main(void) {
    static const tpcomm_dtype_t dtypes[] = {TPCOMM_F32, TPCOMM_F16, TPCOMM_BF16};
    static const int32_t hiddens[] = {8, 256, 520, 2048, 4096, 7168, 8192, 12288, 16384};
    gpu_need();
    gpu_stream_new(&gpu.stream);
    CUDA_OK(cudaMalloc((void **)&gpu.in, MATRIX));
    CUDA_OK(cudaMalloc((void **)&gpu.residual, MATRIX));
    CUDA_OK(cudaMalloc((void **)&gpu.out, MATRIX));
    CUDA_OK(cudaMalloc((void **)&gpu.weight, WIDEST * 4 + 64));
    CUDA_OK(cudaMalloc((void **)&gpu.quantized, ROWS * WIDEST + 64));
    CUDA_OK(cudaMalloc((void **)&gpu.scale, ROWS * sizeof(float)));
    host.in = malloc(2 * (size_t)MATRIX);
    host.residual = malloc(MATRIX);
    host.out = malloc(MATRIX);
    host.weight = malloc(WIDEST * 4);
    host.quantized = malloc(ROWS * WIDEST);
    host.scale = malloc(ROWS * sizeof(float));
    got = malloc(MATRIX);
    CHECK(host.in && host.residual && host.out && host.weight && host.quantized && host.scale && got);
    int made = 0;
    uint64_t seed = 1;
    for (size_t h = 0; h < sizeof hiddens / sizeof *hiddens; h++)
        for (int d = 0; d < 3; d++, seed++) made += all(dtypes[d], (tpcomm_quant_t)((seed + h) % 3), hiddens[h], seed);
    printf("%d norms\nok\n", made);
    return 0;
}
