/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that every wrong argument of a norm is refused with a text that names it before anything is sent; that what the
 * ranks must agree on is compared, both calls named (F1); that explain, stats and forced paths know the calls; that a
 * call without tokens is a call.
 */
#include <math.h>

#include "multirank/ranks.h"

#define HIDDEN 64
#define TOKENS 4

static struct {
    uint16_t in[TOKENS * HIDDEN], weight[HIDDEN], residual[TOKENS * HIDDEN], sum[TOKENS * HIDDEN], out[TOKENS * HIDDEN];
    float weight_f32[HIDDEN], scale[TOKENS];
    uint8_t quantized[TOKENS * HIDDEN];
} mine[2];

static tpcomm_rms_norm_t good(int32_t rank) {
    return (tpcomm_rms_norm_t){.struct_size = sizeof(tpcomm_rms_norm_t),
                               .dtype = TPCOMM_BF16,
                               .hidden = HIDDEN,
                               .tokens = TOKENS,
                               .eps = 1e-6f,
                               .in = mine[rank].in,
                               .weight = mine[rank].weight,
                               .residual = mine[rank].residual,
                               .out = mine[rank].out};
}

static tpcomm_rms_norm_t good_f8(int32_t rank) {
    tpcomm_rms_norm_t norm = good(rank);
    norm.quant = TPCOMM_QUANT_F8_TOKEN;
    norm.quantized = mine[rank].quantized;
    norm.scale = mine[rank].scale;
    return norm;
}

static void refuse(tpcomm_t *comm, tpcomm_rms_norm_t norm, tpcomm_status_t want, const char *piece) {
    CHECK_STATUS(tpcomm_all_reduce_rms_norm(comm, &norm, NULL), want);
    CHECK_ERROR_HAS(piece);
    CHECK_STATUS(tpcomm_reduce_scatter_rms_norm(comm, &norm, NULL), want);
    CHECK_ERROR_HAS(piece);
    if (norm.path == 0 && norm.sum == NULL) {
        CHECK_STATUS(tpcomm_rms_norm(TPCOMM_DEVICE_CPU, &norm, NULL), want);
        CHECK_ERROR_HAS(piece);
    }
    CHECK_OK(tpcomm_async_status(comm, NULL));
}

static void arguments(rank_t *rank) {
    tpcomm_t *comm = rank->comm;
    CHECK_OK(tpcomm_barrier(comm, NULL));
    if (rank->rank == 0) {
        tpcomm_rms_norm_t norm;
#define WITH(field, value)    (norm = good(0), norm.field = (value), norm)
#define WITH_F8(field, value) (norm = good_f8(0), norm.field = (value), norm)
#define REFUSE(norm, piece)   refuse(comm, norm, TPCOMM_ERR_INVALID_ARG, piece)
#define TOO_MUCH(norm, piece) refuse(comm, norm, TPCOMM_ERR_UNSUPPORTED, piece)
        REFUSE(WITH(struct_size, 0), "struct_size is 0");
        REFUSE(WITH(dtype, 0), "dtype is 0");
        REFUSE(WITH(dtype, 77), "dtype is 77");
        TOO_MUCH(WITH(dtype, TPCOMM_F64), "f64");
        TOO_MUCH(WITH(dtype, TPCOMM_F8_E4M3), "f8_e4m3");
        REFUSE(WITH(weight_dtype, 99), "weight_dtype is 99");
        TOO_MUCH(WITH(weight_dtype, TPCOMM_F16), "dtype is bf16 and weight_dtype f16; the weight must be bf16 or f32");
        norm = WITH(dtype, TPCOMM_F32);
        norm.weight_dtype = TPCOMM_BF16;
        TOO_MUCH(norm, "dtype is f32 and weight_dtype bf16; the weight must be f32");
        REFUSE(WITH(hidden, 0), "hidden is 0");
        REFUSE(WITH(hidden, -8), "hidden is -8");
        TOO_MUCH(WITH(hidden, 60), "hidden is 60");
        TOO_MUCH(WITH(hidden, 16392), "hidden is 16392; a norm takes multiples of 8 up to 16384");
        TOO_MUCH(WITH(hidden, INT32_MAX), "hidden is 2147483647");
        REFUSE(WITH(eps, 0), "eps is 0");
        REFUSE(WITH(eps, -1e-6f), "eps is -");
        REFUSE(WITH(eps, NAN), "eps is ");
        REFUSE(WITH(eps, INFINITY), "eps is inf");
        REFUSE(WITH(weight_bias, NAN), "weight_bias is ");
        REFUSE(WITH(quant, 3), "quant is 3");
        REFUSE(WITH(quant, -1), "quant is -1");
        REFUSE(WITH(in, NULL), "in is NULL");
        REFUSE(WITH(weight, NULL), "weight is NULL");
        REFUSE(WITH(out, NULL), "out is NULL");
        REFUSE(WITH(quant, TPCOMM_QUANT_F8_TENSOR), "quantized is NULL");
        REFUSE(WITH(quantized, mine[0].quantized), "quantized is given");
        REFUSE(WITH(scale, mine[0].scale), "scale is given");
        REFUSE(WITH_F8(scale, NULL), "scale is NULL");
        REFUSE(WITH_F8(scale, (float *)(void *)((char *)mine[0].scale + 2)), "aligned");
        REFUSE(WITH(in_stride, HIDDEN - 1), "in_stride is 63");
        REFUSE(WITH(residual_stride, 8), "residual_stride is 8");
        REFUSE(WITH(out_stride, 1), "out_stride is 1");
        REFUSE(WITH_F8(quantized_stride, 1), "quantized_stride is 1");
        REFUSE(WITH(in_stride, UINT64_MAX / 2), "more than memory can hold");
        REFUSE(WITH(in_stride, (uint64_t)1 << 61), "more than memory can hold");
        REFUSE(WITH(tokens, (uint64_t)1 << 62), "more than memory can hold");
        REFUSE(WITH(tokens, UINT64_MAX), "more than memory can hold");
        REFUSE(WITH(out, mine[0].in + 8), "in [");
        REFUSE(WITH(out, mine[0].residual), "residual [");
        REFUSE(WITH(residual, mine[0].in), "residual [");
        REFUSE(WITH(out, mine[0].weight), "weight [");
        REFUSE(WITH(sum, mine[0].in), "overlap");
        REFUSE(WITH(sum, mine[0].out), "overlap");
        REFUSE(WITH_F8(quantized, (uint8_t *)mine[0].in), "overlap");
        norm = WITH(out, mine[0].in); /* in place with another stride */
        norm.in_stride = HIDDEN + 8;
        norm.tokens = 2;
        CHECK_STATUS(tpcomm_all_reduce_rms_norm(comm, &norm, NULL), TPCOMM_ERR_INVALID_ARG);
        CHECK_ERROR_HAS("with the same stride");
        CHECK_STATUS(tpcomm_all_reduce_rms_norm(comm, NULL, NULL), TPCOMM_ERR_INVALID_ARG);
        CHECK_STATUS(tpcomm_all_reduce_rms_norm(NULL, &norm, NULL), TPCOMM_ERR_INVALID_ARG);
        norm = good(0);
        CHECK_STATUS(tpcomm_all_reduce_rms_norm(comm, &norm, (tpcomm_stream_t)(uintptr_t)16), TPCOMM_ERR_INVALID_ARG);
        CHECK_ERROR_HAS("stream");
        norm.path = 77;
        CHECK_STATUS(tpcomm_all_reduce_rms_norm(comm, &norm, NULL), TPCOMM_ERR_INVALID_ARG);
        CHECK_ERROR_HAS("path 77");
        norm.path = TPCOMM_PATH_CPU_TWOSHOT;
        CHECK_STATUS(tpcomm_all_reduce_rms_norm(comm, &norm, NULL), TPCOMM_ERR_UNSUPPORTED);
        CHECK_ERROR_HAS("cpu_twoshot was asked for");
        norm.path = TPCOMM_PATH_LOCAL;
        CHECK_STATUS(tpcomm_all_reduce_rms_norm(comm, &norm, NULL), TPCOMM_ERR_UNSUPPORTED);
        norm.path = TPCOMM_PATH_UNFUSED;
        norm.in_stride = HIDDEN + 8;
        norm.tokens = 2;
        CHECK_STATUS(tpcomm_all_reduce_rms_norm(comm, &norm, NULL), TPCOMM_ERR_UNSUPPORTED);
        CHECK_ERROR_HAS("not packed");
        norm = good_f8(0);
        norm.path = TPCOMM_PATH_UNFUSED;
        norm.out = NULL;
        CHECK_STATUS(tpcomm_all_reduce_rms_norm(comm, &norm, NULL), TPCOMM_ERR_UNSUPPORTED);
        CHECK_ERROR_HAS("neither out nor sum");
        norm = good(0);
        norm.path = TPCOMM_PATH_UNFUSED;
        norm.tokens = 3;
        CHECK_STATUS(tpcomm_reduce_scatter_rms_norm(comm, &norm, NULL), TPCOMM_ERR_UNSUPPORTED);
        CHECK_ERROR_HAS("do not divide");
        norm = good(0);
        norm.out = mine[0].in; /* each rank has other rows of out than of in */
        CHECK_STATUS(tpcomm_reduce_scatter_rms_norm(comm, &norm, NULL), TPCOMM_ERR_INVALID_ARG);
        CHECK_ERROR_HAS("must be apart");
        /* The norm alone. */
        norm = good(0);
        CHECK_OK(tpcomm_rms_norm(TPCOMM_DEVICE_CPU, &norm, NULL));
        CHECK_STATUS(tpcomm_rms_norm(TPCOMM_DEVICE_AUTO, &norm, NULL), TPCOMM_ERR_INVALID_ARG);
        CHECK_STATUS(tpcomm_rms_norm(TPCOMM_DEVICE_CPU, &norm, (tpcomm_stream_t)(uintptr_t)16), TPCOMM_ERR_INVALID_ARG);
        norm.sum = mine[0].sum;
        CHECK_STATUS(tpcomm_rms_norm(TPCOMM_DEVICE_CPU, &norm, NULL), TPCOMM_ERR_INVALID_ARG);
        CHECK_ERROR_HAS("sum is given");
        norm.sum = NULL;
        norm.path = TPCOMM_PATH_UNFUSED;
        CHECK_STATUS(tpcomm_rms_norm(TPCOMM_DEVICE_CPU, &norm, NULL), TPCOMM_ERR_INVALID_ARG);
        CHECK_ERROR_HAS("path is 7");
        /* By the descriptor. */
        tpcomm_call_t call = {.struct_size = sizeof call,
                              .coll = TPCOMM_ALL_REDUCE_RMS_NORM,
                              .dtype = TPCOMM_BF16,
                              .hidden = HIDDEN,
                              .in = mine[0].in,
                              .out = mine[0].out,
                              .count = HIDDEN};
        CHECK_STATUS(tpcomm_call(comm, &call, NULL), TPCOMM_ERR_INVALID_ARG);
        CHECK_ERROR_HAS("call tpcomm_all_reduce_rms_norm");
        call.coll = TPCOMM_ALL_REDUCE;
        call.op = TPCOMM_SUM;
        CHECK_STATUS(tpcomm_call(comm, &call, NULL), TPCOMM_ERR_INVALID_ARG);
        CHECK_ERROR_HAS("hidden");
        call.coll = TPCOMM_ALL_GATHER_ROWS;
        call.count = HIDDEN + 1;
        CHECK_STATUS(tpcomm_call(comm, &call, NULL), TPCOMM_ERR_INVALID_ARG);
        CHECK_ERROR_HAS("no number of rows");
        CHECK_STATUS(tpcomm_all_gather_rows(comm, mine[0].in, mine[0].out, 2, 0, TPCOMM_BF16, NULL),
                     TPCOMM_ERR_INVALID_ARG);
        CHECK_STATUS(tpcomm_all_gather_rows(comm, mine[0].in, mine[0].out, UINT64_MAX, 8, TPCOMM_BF16, NULL),
                     TPCOMM_ERR_INVALID_ARG);
        CHECK_STATUS(tpcomm_all_gather_rows(comm, NULL, mine[0].out, 2, 8, TPCOMM_BF16, NULL), TPCOMM_ERR_INVALID_ARG);
        CHECK_STATUS(tpcomm_all_gather_rows(comm, mine[0].out + 8, mine[0].out, 2, 8, TPCOMM_BF16, NULL),
                     TPCOMM_ERR_INVALID_ARG);
        CHECK_ERROR_HAS("overlap");
    }
    CHECK_OK(tpcomm_barrier(comm, NULL)); /* the peer never noticed */
    /* Rows side by side in wider ones: no overlap. */
    static uint16_t wide[2][TOKENS * 3 * HIDDEN];
    tpcomm_rms_norm_t norm = good(rank->rank);
    norm.in = wide[rank->rank];
    norm.residual = wide[rank->rank] + HIDDEN;
    norm.out = wide[rank->rank] + 2 * HIDDEN;
    norm.in_stride = norm.residual_stride = norm.out_stride = 3 * HIDDEN;
    CHECK_OK(tpcomm_all_reduce_rms_norm(comm, &norm, NULL));
}

/* No tokens, no buffers: a call like any other. */
static void no_tokens(rank_t *rank) {
    tpcomm_rms_norm_t norm = {.struct_size = sizeof norm, .dtype = TPCOMM_F16, .hidden = 8, .eps = 1e-6f};
    if (rank->rank == 0) norm.residual = mine[0].residual; /* without tokens it says nothing */
    tpcomm_rank_info_t info = {.struct_size = sizeof info};
    CHECK_OK(tpcomm_all_reduce_rms_norm(rank->comm, &norm, NULL));
    CHECK_OK(tpcomm_reduce_scatter_rms_norm(rank->comm, &norm, NULL));
    CHECK_OK(tpcomm_all_gather_rows(rank->comm, NULL, NULL, 0, 8, TPCOMM_F16, NULL));
    CHECK_OK(tpcomm_rank_info(rank->comm, rank->rank, &info));
    CHECK_EQ(info.seq, 3);
    CHECK_OK(tpcomm_rms_norm(TPCOMM_DEVICE_CPU, &norm, NULL));
}

static uint64_t calls_of(const tpcomm_t *comm, tpcomm_path_t path) {
    tpcomm_stats_t stats = {.struct_size = sizeof stats};
    for (int32_t i = 0; tpcomm_stats(comm, i, &stats) == TPCOMM_OK; i++)
        if (stats.path == path) return stats.calls;
    return 0;
}

static void explained(rank_t *rank) {
    static const tpcomm_path_t want[] = {TPCOMM_PATH_FUSED_ONESHOT, TPCOMM_PATH_UNFUSED};
    for (int large = 0; large < 2; large++) {
        tpcomm_call_t call = {.struct_size = sizeof call,
                              .coll = TPCOMM_ALL_REDUCE_RMS_NORM,
                              .dtype = TPCOMM_BF16,
                              .hidden = HIDDEN,
                              .count = (large ? 100000 : 1) * HIDDEN};
        tpcomm_decision_t decision = {.struct_size = sizeof decision};
        CHECK_OK(tpcomm_explain(rank->comm, &call, &decision));
        CHECK_EQ(decision.path, want[large]);
        CHECK(call.count * 2 >= decision.bytes_min && call.count * 2 <= decision.bytes_max);
        CHECK_EQ(decision.rejected_count, 2); /* the other, and local */
        char text[2048];
        CHECK_OK(tpcomm_explain_text(rank->comm, &call, text, sizeof text));
        CHECK(strstr(text, "all_reduce_rms_norm of") != NULL && strstr(text, "rows of 64") != NULL);
        CHECK((strstr(text, "  its all_reduce: cpu_twoshot, because: built-in row") != NULL) == (large == 1));
        call.hidden = 12;
        CHECK_STATUS(tpcomm_explain(rank->comm, &call, &decision), TPCOMM_ERR_UNSUPPORTED);
        call.hidden = 0;
        CHECK_STATUS(tpcomm_explain(rank->comm, &call, &decision), TPCOMM_ERR_INVALID_ARG);
    }
    tpcomm_rms_norm_t norm = good(rank->rank);
    uint64_t before = calls_of(rank->comm, TPCOMM_PATH_FUSED_ONESHOT);
    CHECK_OK(tpcomm_all_reduce_rms_norm(rank->comm, &norm, NULL));
    CHECK_EQ(calls_of(rank->comm, TPCOMM_PATH_FUSED_ONESHOT), before + 1);
    norm.path = TPCOMM_PATH_UNFUSED;
    CHECK_OK(tpcomm_all_reduce_rms_norm(rank->comm, &norm, NULL));
    CHECK_EQ(calls_of(rank->comm, TPCOMM_PATH_UNFUSED), 1);
    CHECK_EQ(calls_of(rank->comm, TPCOMM_PATH_CPU_ONESHOT), 0); /* a step of it is no call */
}

/* TPCOMM_PATH or config.path that names a fused path speaks of these calls; another one, of all_reduce. */
static void forced(rank_t *rank) {
    tpcomm_rms_norm_t norm = good(rank->rank);
    CHECK_OK(tpcomm_all_reduce_rms_norm(rank->comm, &norm, NULL));
    CHECK_EQ(calls_of(rank->comm, TPCOMM_PATH_UNFUSED), 1);
    CHECK_OK(tpcomm_all_reduce(rank->comm, mine[rank->rank].in, mine[rank->rank].in, 8, TPCOMM_BF16, TPCOMM_SUM, NULL));
    CHECK_EQ(calls_of(rank->comm, TPCOMM_PATH_CPU_ONESHOT), 1);
}

typedef struct {
    const char *what, *text[2];
} mistake_t;

static const mistake_t mistakes[] = {
    {"tokens", {"count 256", "count 192"}},
    {"hidden", {"hidden 64", "hidden 32"}},
    {"eps", {"eps 9.99999997e-07", "eps 0.5"}},
    {"bias", {"bias 0", "bias 1"}},
    {"weight", {"weight bf16", "weight f32"}},
    {"dtype", {"bf16 hidden", "f16 hidden"}},
    {"residual", {"bias 0 residual", "bias 0 by"}},
    {"scattered residual", {"bias 0 residual", "bias 0 by"}},
    {"quant", {"residual by", "residual f8_token by"}},
    {"room", {"residual by", "without out and sum"}},
    {"strided", {"residual by", "strided by"}},
    {"form", {"all_reduce_rms_norm seq 2", "reduce_scatter_rms_norm seq 2"}},
    {"path", {"by fused_oneshot", "by unfused"}},
    {"plain", {"all_reduce_rms_norm seq 2", "all_reduce seq 2"}},
    {"composition", {"all_reduce_rms_norm seq 2", "all_reduce seq 2"}},
    {"composed eps", {"eps 9.99999997e-07", "eps 0.5"}},
};

static void mistaken(rank_t *rank) {
    const mistake_t *mistake = rank->arg;
    const char *what = mistake->what;
    tpcomm_rms_norm_t norm = good(rank->rank);
    bool composed = strstr(what, "compos") != NULL;
    CHECK_OK(tpcomm_all_reduce_rms_norm(rank->comm, &norm, NULL));
    if (composed || strcmp(what, "path") == 0) norm.path = TPCOMM_PATH_UNFUSED;
    bool scatters = strstr(what, "scattered") != NULL, plain = false;
    if (rank->rank == 1) {
        if (strcmp(what, "path") == 0) norm.path = TPCOMM_PATH_FUSED_ONESHOT;
        if (strcmp(what, "tokens") == 0) norm.tokens = 3;
        if (strcmp(what, "hidden") == 0) norm.hidden = HIDDEN / 2, norm.tokens = 2 * TOKENS;
        if (strstr(what, "eps") != NULL) norm.eps = 0.5f;
        if (strcmp(what, "bias") == 0) norm.weight_bias = 1;
        if (strcmp(what, "weight") == 0) norm.weight = mine[1].weight_f32, norm.weight_dtype = TPCOMM_F32;
        if (strcmp(what, "dtype") == 0) norm.dtype = TPCOMM_F16;
        if (strstr(what, "residual") != NULL) norm.residual = NULL;
        if (strcmp(what, "quant") == 0 || strcmp(what, "room") == 0) norm = good_f8(1);
        if (strcmp(what, "room") == 0) norm.out = NULL;
        if (strcmp(what, "strided") == 0) norm.out_stride = HIDDEN + 8, norm.tokens = TOKENS;
        scatters = scatters || strcmp(what, "form") == 0;
        plain = strcmp(what, "plain") == 0 || strcmp(what, "composition") == 0;
    } else if (strcmp(what, "room") == 0) {
        norm = good_f8(0);
        norm.path = 0;
    }
    static uint16_t wide[TOKENS * (HIDDEN + 8)];
    if (norm.out_stride != 0) norm.out = wide;
    tpcomm_status_t status;
    if (plain)
        status = tpcomm_all_reduce(rank->comm, norm.in, norm.out, TOKENS * HIDDEN, TPCOMM_BF16, TPCOMM_SUM, NULL);
    else if (scatters)
        status = tpcomm_reduce_scatter_rms_norm(rank->comm, &norm, NULL);
    else
        status = tpcomm_all_reduce_rms_norm(rank->comm, &norm, NULL);
    CHECK_STATUS(status, TPCOMM_ERR_MISMATCH);
    if (strcmp(what, "room") != 0) CHECK_ERROR_HAS(mistake->text[0]);
    CHECK_ERROR_HAS(mistake->text[1]);
    norm = good(rank->rank);
    CHECK_STATUS(tpcomm_all_reduce_rms_norm(rank->comm, &norm, NULL), TPCOMM_ERR_MISMATCH); /* for good */
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    ranks_run(RANKS_THREADS, 2, &config, arguments, NULL);
    ranks_run(RANKS_THREADS, 2, &config, no_tokens, NULL);
    ranks_run(RANKS_PROCESSES, 2, &config, explained, NULL);
    for (size_t m = 0; m < sizeof mistakes / sizeof *mistakes; m++) {
        printf("%s\n", mistakes[m].what);
        ranks_run(RANKS_THREADS, 2, &config, mistaken, (void *)&mistakes[m]);
    }
    config.path = TPCOMM_PATH_UNFUSED;
    ranks_run(RANKS_THREADS, 2, &config, forced, NULL);
    return 0;
}
