/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that all_reduce_rms_norm and reduce_scatter_rms_norm give the bits of the numbers contract on every rank, by
 * every path, and that the sequence-parallel rows, gathered, are the replicated ones: 1 to 8 ranks, threads and
 * processes, every dtype, weight, bias, residual and quantisation, rows of 8 to 16384, none to 17 tokens, strides,
 * misalignment, in place; a workspace of one row a round; in a batch. W4: one documented value whichever path; W6.
 */
#include "multirank/pattern.h"
#include "multirank/ranks.h"
#include "unit/norm_reference.h"

static const tpcomm_dtype_t dtypes[] = {TPCOMM_F32, TPCOMM_F16, TPCOMM_BF16};

/* Everything of one call but its buffers; the same on all ranks. */
typedef struct {
    tpcomm_dtype_t dtype, weight_dtype;
    tpcomm_quant_t quant;
    tpcomm_path_t path;
    int32_t hidden;
    size_t tokens, gap;
    float eps, bias;
    bool residual, out, sum, in_place;
    int kind;
    uint64_t seed;
} plan_t;

typedef struct {
    guarded_t in, residual, weight, sum, out, quantized, scale;
    tpcomm_rms_norm_t norm;
    size_t rows, first; /* of the outputs: first in the tokens */
} call_t;

static void describe(const plan_t *plan, const rank_t *rank, char *text, size_t bytes) {
    snprintf(text, bytes,
             "rank %d of %d, %s, %s weight %s, hidden %d, %zu tokens, quant %d, bias %g,%s%s%s%s gap %zu, values %d, "
             "seed %llu",
             rank->rank, rank->size, tpcomm_path_name(plan->path), tpcomm_dtype_name(plan->dtype),
             tpcomm_dtype_name(plan->weight_dtype), plan->hidden, plan->tokens, plan->quant, (double)plan->bias,
             plan->residual ? " residual," : "", plan->out ? " out," : "", plan->sum ? " sum," : "",
             plan->in_place ? " in place," : "", plan->gap, plan->kind, (unsigned long long)plan->seed);
}

/* Row t of rank r's input, of the residual, and the weight. */
static void fill_row(const plan_t *plan, int32_t rank, size_t t, void *to) {
    norm_fill(plan->kind, plan->dtype, plan->seed * 7919 + t * 31 + (uint64_t)rank, (size_t)plan->hidden, to);
}

static guarded_t make(size_t rows, size_t stride, size_t hidden, size_t element, size_t misalign) {
    guarded_t made = guarded_new(rows > 0 ? ((rows - 1) * stride + hidden) * element : 0, misalign);
    memset(made.data, 0xEE, made.bytes);
    return made;
}

static call_t make_call(const plan_t *plan, const rank_t *rank, bool scatters) {
    call_t call = {.rows = plan->tokens};
    if (scatters) {
        uint64_t first = 0, count = 0;
        CHECK_OK(tpcomm_row_range(plan->tokens, rank->size, rank->rank, &first, &count));
        call.first = (size_t)first;
        call.rows = (size_t)count;
    }
    size_t hidden = (size_t)plan->hidden, element = tpcomm_dtype_size(plan->dtype), stride = hidden + plan->gap;
    /* A local fact: it differs between ranks and must not matter. */
    size_t misalign = plan->seed % 3 == 0 ? (plan->seed + (uint64_t)rank->rank) % 4 : 0;
    call.in = make(plan->tokens, stride, hidden, element, misalign);
    call.residual = make(call.rows, stride, hidden, element, misalign);
    call.weight = make(1, hidden, hidden, tpcomm_dtype_size(plan->weight_dtype), misalign);
    call.sum = make(call.rows, stride, hidden, element, misalign);
    call.out = make(call.rows, stride, hidden, element, misalign);
    call.quantized = make(call.rows, stride, hidden, 1, misalign);
    call.scale = make(call.rows > 0 ? call.rows : 1, 1, 1, sizeof(float), 0);
    for (size_t t = 0; t < plan->tokens; t++) fill_row(plan, rank->rank, t, call.in.data + t * stride * element);
    for (size_t t = 0; t < call.rows; t++)
        fill_row(plan, 100, call.first + t, call.residual.data + t * stride * element);
    norm_fill(plan->kind, plan->weight_dtype, plan->seed, hidden, call.weight.data);
    float scale = 0.01f;
    if (plan->quant == TPCOMM_QUANT_F8_TENSOR) memcpy(call.scale.data, &scale, sizeof scale);
    bool in_place = plan->in_place && !scatters;
    call.norm = (tpcomm_rms_norm_t){.struct_size = sizeof call.norm,
                                    .dtype = plan->dtype,
                                    .weight_dtype = plan->weight_dtype,
                                    .quant = plan->quant,
                                    .path = plan->path,
                                    .hidden = plan->hidden,
                                    .tokens = plan->tokens,
                                    .eps = plan->eps,
                                    .weight_bias = plan->bias,
                                    .in = call.in.data,
                                    .weight = call.weight.data,
                                    .residual = plan->residual ? call.residual.data : NULL,
                                    .sum = plan->sum ? call.sum.data : NULL,
                                    .out = !plan->out ? NULL
                                           : in_place ? call.in.data
                                                      : call.out.data,
                                    .in_stride = stride,
                                    .residual_stride = stride,
                                    .sum_stride = stride,
                                    .out_stride = stride,
                                    .quantized_stride = stride,
                                    .tag = plan->seed};
    if (plan->quant != TPCOMM_QUANT_NONE) {
        call.norm.quantized = call.quantized.data;
        call.norm.scale = (void *)call.scale.data;
    }
    return call;
}

static void free_call(call_t *call) {
    guarded_t *all[] = {&call->in,  &call->residual,  &call->weight, &call->sum,
                        &call->out, &call->quantized, &call->scale};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        guarded_check(all[i]);
        guarded_free(all[i]);
    }
}

static void check_call(const plan_t *plan, const rank_t *rank, const call_t *call) {
    norm_expected_t *expected = malloc(sizeof *expected);
    unsigned char *rows = malloc((size_t)(rank->size + 1) * (size_t)plan->hidden * 4); /* of each rank; the residual */
    CHECK(expected != NULL && rows != NULL);
    size_t hidden = (size_t)plan->hidden, element = tpcomm_dtype_size(plan->dtype), stride = hidden + plan->gap;
    const void *in[TPCOMM_MAX_RANKS];
    for (size_t t = 0; t < call->rows; t++) {
        for (int32_t r = 0; r < rank->size; r++) {
            in[r] = rows + (size_t)r * hidden * element;
            fill_row(plan, r, call->first + t, rows + (size_t)r * hidden * element);
        }
        unsigned char *residual = rows + (size_t)rank->size * hidden * element;
        fill_row(plan, 100, call->first + t, residual);
        norm_case_t c = {.dtype = plan->dtype,
                         .weight_dtype = plan->weight_dtype,
                         .hidden = plan->hidden,
                         .eps = (double)plan->eps,
                         .bias = (double)plan->bias,
                         .quant = plan->quant,
                         .scale = 0.01f,
                         .residual = plan->residual ? residual : NULL,
                         .weight = call->weight.data};
        norm_reference(&c, in, rank->size, expected);
        size_t from = t * stride * element, at = 0;
        const char *wrong = NULL;
        const unsigned char *out = call->norm.out;
        if (plan->sum && !norm_same(plan->dtype, call->sum.data + from, expected->sum, hidden, &at)) wrong = "sum";
        if (plan->residual && !norm_same(plan->dtype, call->residual.data + from, expected->x, hidden, &at))
            wrong = "residual";
        if (plan->out && !norm_same(plan->dtype, out + from, expected->y, hidden, &at)) wrong = "out";
        if (plan->quant != TPCOMM_QUANT_NONE &&
            memcmp(call->quantized.data + t * stride, expected->quantized, hidden) != 0)
            wrong = "quantized";
        if (plan->quant == TPCOMM_QUANT_F8_TOKEN &&
            memcmp(call->scale.data + t * sizeof(float), &expected->scale, sizeof(float)) != 0)
            wrong = "scale";
        if (wrong == NULL) continue;
        char text[320];
        describe(plan, rank, text, sizeof text);
        FAIL("%s: %s of token %zu differs, element %zu", text, wrong, call->first + t, at);
    }
    free(expected);
    free(rows);
}

/* The rows of the sequence-parallel form, gathered, are those of the replicated form. */
static void gather_and_compare(const plan_t *plan, const rank_t *rank, const call_t *replicated, const call_t *own) {
    if (!plan->out || plan->gap != 0) return;
    size_t hidden = (size_t)plan->hidden, row = hidden * tpcomm_dtype_size(plan->dtype);
    guarded_t all = make(plan->tokens, hidden, hidden, tpcomm_dtype_size(plan->dtype), plan->seed % 3);
    const void *mine = own->norm.out;
    if (plan->in_place) { /* in its place already */
        memcpy(all.data + own->first * row, mine, own->rows * row);
        mine = all.data + own->first * row;
    }
    CHECK_OK(tpcomm_all_gather_rows(rank->comm, mine, all.data, plan->tokens, plan->hidden, plan->dtype, NULL));
    CHECK(memcmp(all.data, replicated->norm.out, plan->tokens * row) == 0);
    guarded_check(&all);
    guarded_free(&all);
    if (plan->quant != TPCOMM_QUANT_F8_TOKEN) return;
    guarded_t scales = make(plan->tokens, 1, 1, sizeof(float), 0);
    CHECK_OK(tpcomm_all_gather_rows(rank->comm, own->scale.data, scales.data, plan->tokens, 1, TPCOMM_F32, NULL));
    CHECK(memcmp(scales.data, replicated->scale.data, plan->tokens * sizeof(float)) == 0);
    guarded_check(&scales);
    guarded_free(&scales);
}

static void one(const rank_t *rank, const plan_t *plan) {
    call_t replicated = make_call(plan, rank, false);
    CHECK_OK(tpcomm_all_reduce_rms_norm(rank->comm, &replicated.norm, NULL));
    check_call(plan, rank, &replicated);
    plan_t scattered = *plan;
    if (plan->path == TPCOMM_PATH_UNFUSED && plan->tokens % (size_t)rank->size != 0) scattered.path = 0;
    call_t own = make_call(&scattered, rank, true);
    CHECK_OK(tpcomm_reduce_scatter_rms_norm(rank->comm, &own.norm, NULL));
    check_call(&scattered, rank, &own);
    gather_and_compare(plan, rank, &replicated, &own);
    free_call(&replicated);
    free_call(&own);
}

static plan_t draw(uint64_t seed, int32_t size, const int32_t *hiddens, size_t hidden_count) {
    static const tpcomm_path_t paths[] = {TPCOMM_PATH_AUTO, TPCOMM_PATH_FUSED_ONESHOT, TPCOMM_PATH_UNFUSED};
    static const size_t tokens[] = {1, 3, 17, 2, 0, 5};
    uint64_t state = seed;
    plan_t plan = {.dtype = dtypes[seed % 3],
                   .quant = (tpcomm_quant_t)(seed / 3 % 3),
                   .path = size > 1 ? paths[seed % 7 % 3] : TPCOMM_PATH_AUTO,
                   .hidden = hiddens[random_next(&state) % hidden_count],
                   .tokens = tokens[random_next(&state) % 6],
                   .gap = random_next(&state) % 3 == 0 ? 8 : 0,
                   .eps = random_next(&state) % 2 == 0 ? 1e-5f : 1e-6f,
                   .bias = random_next(&state) % 2 == 0 ? 0 : 1,
                   .residual = random_next(&state) % 2 == 0,
                   .out = true,
                   .sum = random_next(&state) % 3 == 0,
                   .in_place = random_next(&state) % 2 == 0,
                   .kind = (int)(random_next(&state) % NORM_KINDS),
                   .seed = seed};
    plan.weight_dtype = random_next(&state) % 2 == 0 ? TPCOMM_F32 : plan.dtype;
    if (plan.quant != TPCOMM_QUANT_NONE && random_next(&state) % 3 == 0) plan.out = false;
    if (plan.hidden > 2048 && plan.tokens > 3) plan.tokens = 3;
    if (plan.path == TPCOMM_PATH_UNFUSED) { /* what it needs */
        plan.gap = 0;
        plan.sum = plan.sum || !plan.out;
    }
    return plan;
}

typedef struct {
    uint64_t first, count;
    bool small_workspace;
} range_t;

static void drawn(rank_t *rank) {
    static const int32_t hiddens[] = {8, 256, 264, 2048, 2568, 4096, 8192, 16384};
    static const int32_t small[] = {8, 256, 1024};
    const range_t *range = rank->arg;
    for (uint64_t seed = range->first; seed < range->first + range->count; seed++) {
        plan_t plan = range->small_workspace ? draw(seed, rank->size, small, 3) : draw(seed, rank->size, hiddens, 8);
        one(rank, &plan);
    }
}

/* Rows that no round of a small workspace can carry: the unfused form takes them, or the call says why not. */
static void too_wide(rank_t *rank) {
    plan_t plan = {.dtype = TPCOMM_F32,
                   .weight_dtype = TPCOMM_F32,
                   .hidden = 16384,
                   .tokens = (size_t)rank->size,
                   .eps = 1e-5f,
                   .residual = true,
                   .out = true,
                   .seed = 4};
    one(rank, &plan);
    tpcomm_stats_t stats = {.struct_size = sizeof stats};
    uint64_t calls = 0;
    for (int32_t i = 0; tpcomm_stats(rank->comm, i, &stats) == TPCOMM_OK; i++)
        if (stats.path == TPCOMM_PATH_UNFUSED) calls = stats.calls;
    CHECK_EQ(calls, 2);
    call_t call = make_call(&plan, rank, false);
    call.norm.path = TPCOMM_PATH_FUSED_ONESHOT;
    CHECK_STATUS(tpcomm_all_reduce_rms_norm(rank->comm, &call.norm, NULL), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("a row is larger");
    free_call(&call);
    plan.out = false;
    plan.quant = TPCOMM_QUANT_F8_TOKEN;
    call = make_call(&plan, rank, false);
    CHECK_STATUS(tpcomm_all_reduce_rms_norm(rank->comm, &call.norm, NULL), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("a row is larger");
    CHECK_ERROR_HAS("neither out nor sum");
    free_call(&call);
}

/* W4 and, in passing, W6: the sum is rounded before the residual is added. */
static void one_documented_value(rank_t *rank) {
    static const tpcomm_path_t paths[] = {TPCOMM_PATH_AUTO, TPCOMM_PATH_FUSED_ONESHOT, TPCOMM_PATH_UNFUSED};
    static const tpcomm_dtype_t weights[] = {TPCOMM_BF16, TPCOMM_F32};
    for (int p = 0; p < 3; p++)
        for (int w = 0; w < 2; w++) {
            uint16_t in[8], residual[8], out[8], weight_bf16[8], sum[8];
            float weight_f32[8];
            for (int i = 0; i < 8; i++) {
                in[i] = rank->rank == 0 ? 0x4380 : 0x3F80; /* 256, 1 */
                residual[i] = 0x3F80;
                weight_bf16[i] = 0x3F80;
                weight_f32[i] = 1;
            }
            tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                                      .dtype = TPCOMM_BF16,
                                      .weight_dtype = weights[w],
                                      .path = paths[p],
                                      .hidden = 8,
                                      .tokens = 1,
                                      .eps = 1e-6f,
                                      .in = in,
                                      .weight = w == 0 ? (void *)weight_bf16 : (void *)weight_f32,
                                      .residual = residual,
                                      .sum = sum,
                                      .out = out};
            CHECK_OK(tpcomm_all_reduce_rms_norm(rank->comm, &norm, NULL));
            for (int i = 0; i < 8; i++) {
                CHECK_EQ(sum[i], 0x4380);
                CHECK_EQ(residual[i], 0x4380); /* 256, not 258 */
                CHECK_EQ(out[i], 0x3F80);
            }
        }
}

/* Calls of a batch are kept with all their arguments. */
static void batched(rank_t *rank) {
    plan_t plans[4];
    call_t calls[4];
    static const int32_t hiddens[] = {256, 2568};
    CHECK_OK(tpcomm_batch_begin());
    for (int i = 0; i < 4; i++) {
        plans[i] = draw(900 + (uint64_t)i, rank->size, hiddens, 2);
        calls[i] = make_call(&plans[i], rank, false);
        tpcomm_rms_norm_t norm = calls[i].norm;
        CHECK_OK(tpcomm_all_reduce_rms_norm(rank->comm, &norm, NULL));
        memset(&norm, 0xFF, sizeof norm); /* it was not kept */
    }
    CHECK_OK(tpcomm_batch_end());
    for (int i = 0; i < 4; i++) {
        check_call(&plans[i], rank, &calls[i]);
        free_call(&calls[i]);
    }
}

int main(void) {
    static const int32_t sizes[] = {1, 2, 3, 4, 8};
    tpcomm_config_t config = ranks_config();
    for (int kind = 0; kind < RANKS_KINDS; kind++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            range_t range = {.first = 1 + 100 * s + 1000 * (uint64_t)kind, .count = sizes[s] == 8 ? 12 : 36};
            printf("%d %s\n", sizes[s], ranks_kind_name(kind));
            ranks_run(kind, sizes[s], &config, drawn, &range);
        }
    ranks_run(RANKS_THREADS, 2, &config, one_documented_value, NULL);
    ranks_run(RANKS_THREADS, 3, &config, batched, NULL);
    config.workspace_bytes = 65536;
    range_t range = {.first = 5000, .count = 30, .small_workspace = true};
    ranks_run(RANKS_THREADS, 3, &config, drawn, &range);
    ranks_run(RANKS_THREADS, 2, &config, too_wide, NULL);
    return 0;
}
