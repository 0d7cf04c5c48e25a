/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check calls with a norm on a GPU against the cpu device's kernels, every byte: rows of 8 to 16384, none to 2048
 * tokens, every dtype, weight, bias, residual and quantisation, strides, misaligned, in place, several launches; fused,
 * unfused and as chosen; the sequence-parallel form, gathered; the norm alone; in graphs, also where the first such
 * call of a group is captured (G9); ranks that give different arguments. An argument N runs only that many ranks;
 * "time [N]" prints times in place of checking, "shapes [N]" those of shapes that are forced.
 */

#include "cpu_backend/norm.h"
#include "gpu/gpu_ranks.h"

enum { ROOM = 160 << 20 };

/* Magnitude about 1, now and then any bits; magnitudes far apart, down to subnormal codes; zeros, subnormals and the
 * smallest normal numbers; any bits. And what goes with them: eps, and the scale of F8_TENSOR. */
enum { PLAIN, WIDE, TINY, ANY, VALUES };
static const float epsilons[VALUES] = {1e-5f, 1e-6f, 0x1p-149f, 0x1p-126f};
static const float scales[VALUES] = {0.01f, 1, 0x1p-130f, 3e38f};

typedef struct {
    tpcomm_dtype_t dtype, weight_dtype;
    tpcomm_quant_t quant;
    tpcomm_path_t path;
    int values;
    int32_t hidden;
    size_t tokens, gap, misalign; /* in elements */
    float bias;
    bool scatters, residual, out, sum, in_place;
    uint64_t seed;
} plan_t;

static const char *describe(const plan_t *plan, const gpu_rank_t *rank, char *text, size_t bytes) {
    snprintf(text, bytes,
             "rank %d of %d: %s by %s, %zu x %d %s, weight %s, values %d, quant %d,%s%s%s%s%s gap %zu, seed %llu",
             rank->rank, rank->size, plan->scatters ? "reduce_scatter" : "all_reduce", tpcomm_path_name(plan->path),
             plan->tokens, plan->hidden, tpcomm_dtype_name(plan->dtype), tpcomm_dtype_name(plan->weight_dtype),
             plan->values, plan->quant, plan->residual ? " residual," : "", plan->out ? "" : " no out,",
             plan->sum ? " sum," : "", plan->in_place ? " in place," : "", plan->misalign ? " misaligned," : "",
             plan->gap, (unsigned long long)plan->seed);
    return text;
}

/* An exponent for a kind of values, of dtypes whose 1 has this one; from 5 bits. */
static uint32_t exponent_of(int values, uint32_t of_one, uint32_t bits) {
    if (values == WIDE) return of_one - 12 + bits % 24;
    return values == TINY ? bits % 2 : of_one - 1 + bits % 2;
}

static void fill(int values, tpcomm_dtype_t dtype, uint64_t seed, size_t count, void *to) {
    uint64_t state = seed * 1000003u + 5;
    unsigned char *at = to;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = random_next(&state);
        uint32_t word = (uint32_t)bits, of_one = dtype == TPCOMM_F16 ? 15 : 127;
        uint32_t exponent = exponent_of(values, of_one, (uint32_t)(bits >> 40) & 31);
        bool any = values == ANY || (values == PLAIN && bits >> 50 == 0);
        if (values == TINY && (bits >> 45 & 3) == 0) word &= 0x80008000u;
        if (!any) {
            if (dtype == TPCOMM_F32) word = (word & 0x807FFFFFu) | exponent << 23;
            if (dtype == TPCOMM_F16) word = (word & 0x83FFu) | exponent << 10;
            if (dtype == TPCOMM_BF16) word = (word & 0x807Fu) | exponent << 7;
        }
        memcpy(at + i * tpcomm_dtype_size(dtype), &word, tpcomm_dtype_size(dtype));
    }
}

static void fill_row(const plan_t *plan, int32_t rank, size_t t, void *to) {
    fill(plan->values, plan->dtype, plan->seed * 7919 + t * 31 + (uint64_t)rank, (size_t)plan->hidden, to);
}

/* Where everything lies: offsets into in's and out's memory, and host copies of both. */
typedef struct {
    size_t rows, first, stride, element, row_bytes; /* rows: of the outputs; stride in elements */
    size_t in, residual, weight, in_bytes;          /* of the rank's in */
    size_t out, sum, quantized, scale, out_bytes;   /* of the rank's out */
    tpcomm_rms_norm_t norm;
} place_t;

static size_t align(size_t bytes) {
    return (bytes + 511) / 256 * 256;
}

static place_t place_of(const plan_t *plan, const gpu_rank_t *rank) {
    place_t p = {.rows = plan->tokens, .element = tpcomm_dtype_size(plan->dtype)};
    if (plan->scatters) {
        uint64_t first = 0, count = 0;
        CHECK_OK(tpcomm_row_range(plan->tokens, rank->size, rank->rank, &first, &count));
        p.first = (size_t)first;
        p.rows = (size_t)count;
    }
    p.stride = (size_t)plan->hidden + plan->gap;
    p.row_bytes = (size_t)plan->hidden * p.element;
    size_t shift = plan->misalign * p.element, matrix = align(plan->tokens * p.stride * p.element + shift);
    p.in = shift;
    p.residual = matrix + shift;
    p.weight = 2 * matrix + plan->misalign * tpcomm_dtype_size(plan->weight_dtype);
    p.in_bytes = 2 * matrix + align(p.weight - 2 * matrix + (size_t)plan->hidden * 4);
    p.out = shift;
    p.sum = matrix + shift;
    p.quantized = 2 * matrix + plan->misalign;
    p.scale = 2 * matrix + align(plan->tokens * p.stride + shift);
    p.out_bytes = p.scale + align(plan->tokens * sizeof(float) + sizeof(float));
    CHECK(p.in_bytes <= rank->room && p.out_bytes <= rank->room);
    bool in_place = plan->in_place && !plan->scatters;
    p.norm = (tpcomm_rms_norm_t){.struct_size = sizeof p.norm,
                                 .dtype = plan->dtype,
                                 .weight_dtype = plan->weight_dtype,
                                 .quant = plan->quant,
                                 .path = rank->size > 1 ? plan->path : TPCOMM_PATH_AUTO,
                                 .hidden = plan->hidden,
                                 .tokens = plan->tokens,
                                 .eps = epsilons[plan->values],
                                 .weight_bias = plan->bias,
                                 .in = rank->in + p.in,
                                 .weight = p.rows > 0 ? rank->in + p.weight : NULL,
                                 .residual = plan->residual ? rank->in + p.residual : NULL,
                                 .sum = plan->sum ? rank->out + p.sum : NULL,
                                 .out = !plan->out ? NULL
                                        : in_place ? rank->in + p.in
                                                   : rank->out + p.out,
                                 .in_stride = p.stride,
                                 .residual_stride = p.stride,
                                 .sum_stride = p.stride,
                                 .out_stride = p.stride,
                                 .quantized_stride = p.stride};
    if (plan->quant != TPCOMM_QUANT_NONE) {
        p.norm.quantized = rank->out + p.quantized;
        p.norm.scale = (float *)(void *)(rank->out + p.scale);
    }
    return p;
}

/* The inputs of a call in host copies of both memories. */
static void make_inputs(const plan_t *plan, const gpu_rank_t *rank, const place_t *p, unsigned char *in,
                        unsigned char *out) {
    memset(in, 0xDD, p->in_bytes);
    memset(out, 0xEE, p->out_bytes);
    for (size_t t = 0; t < plan->tokens; t++) fill_row(plan, rank->rank, t, in + p->in + t * p->stride * p->element);
    for (size_t t = 0; t < p->rows; t++)
        fill_row(plan, 100, p->first + t, in + p->residual + t * p->stride * p->element);
    fill(plan->values == TINY ? PLAIN : plan->values, plan->weight_dtype, plan->seed, (size_t)plan->hidden,
         in + p->weight);
    if (plan->quant == TPCOMM_QUANT_F8_TENSOR) memcpy(out + p->scale, &scales[plan->values], sizeof(float));
}

/* What both memories must be afterwards, by the cpu device's kernels. */
static void expect(const plan_t *plan, const gpu_rank_t *rank, const place_t *p, unsigned char *in,
                   unsigned char *out) {
    tpc_reduce_fn_t reduce = tpc_reduce_find(plan->dtype, TPCOMM_SUM);
    tpc_norm_fn_t kernel = tpc_norm_find(plan->dtype, plan->weight_dtype);
    unsigned char *rows = malloc((size_t)(rank->size + 1) * p->row_bytes + 64);
    CHECK(rows != NULL);
    unsigned char *sum = rows + (size_t)rank->size * p->row_bytes;
    bool in_place = plan->in_place && !plan->scatters;
    for (size_t t = 0; t < p->rows; t++) {
        const void *sources[TPCOMM_MAX_RANKS];
        size_t at = t * p->stride * p->element;
        for (int32_t r = 0; r < rank->size; r++) {
            fill_row(plan, r, p->first + t, rows + (size_t)r * p->row_bytes);
            sources[r] = rows + (size_t)r * p->row_bytes;
        }
        if (rank->size == 1)
            memcpy(sum, sources[0], p->row_bytes);
        else
            reduce(sum, sources, rank->size, (size_t)plan->hidden);
        if (plan->sum) memcpy(out + p->sum + at, sum, p->row_bytes);
        tpc_norm_row_t row = {.sum = sum,
                              .weight = in + p->weight,
                              .residual = plan->residual ? in + p->residual + at : NULL,
                              .out = !plan->out ? NULL
                                     : in_place ? in + p->in + at
                                                : out + p->out + at,
                              .hidden = (size_t)plan->hidden,
                              .quant = plan->quant,
                              .eps = epsilons[plan->values],
                              .weight_bias = plan->bias};
        if (plan->quant != TPCOMM_QUANT_NONE) row.quantized = out + p->quantized + t * p->stride;
        if (plan->quant != TPCOMM_QUANT_NONE)
            row.scale = (float *)(void *)(out + p->scale + (plan->quant == TPCOMM_QUANT_F8_TOKEN ? 4 * t : 0));
        kernel(&row);
    }
    free(rows);
}

static void compare(const plan_t *plan, const gpu_rank_t *rank, const unsigned char *got, const unsigned char *want,
                    size_t bytes, const char *what) {
    if (memcmp(got, want, bytes) == 0) return;
    char text[320];
    size_t i = 0;
    while (got[i] == want[i]) i++;
    place_t p = place_of(plan, rank);
    FAIL("%s: byte %zu of the memory of %s is %02x, want %02x (out at %zu, sum %zu, quantized %zu, scale %zu; in at "
         "%zu, "
         "residual %zu)",
         describe(plan, rank, text, sizeof text), i, what, got[i], want[i], p.out, p.sum, p.quantized, p.scale, p.in,
         p.residual);
}

typedef struct {
    unsigned char *in, *out, *got;
} host_t;

static host_t host_of(const place_t *p) {
    size_t most = p->in_bytes > p->out_bytes ? p->in_bytes : p->out_bytes;
    host_t host = {malloc(p->in_bytes), malloc(p->out_bytes), malloc(most)};
    CHECK(host.in != NULL && host.out != NULL && host.got != NULL);
    return host;
}

static void host_free(host_t host) {
    free(host.in);
    free(host.out);
    free(host.got);
}

static void send_inputs(const plan_t *plan, const gpu_rank_t *rank, const place_t *p, host_t host) {
    make_inputs(plan, rank, p, host.in, host.out);
    gpu_send(rank, rank->in, host.in, p->in_bytes);
    gpu_send(rank, rank->out, host.out, p->out_bytes);
}

static void check_results(const plan_t *plan, const gpu_rank_t *rank, const place_t *p, host_t host) {
    expect(plan, rank, p, host.in, host.out);
    gpu_fetch(rank, host.got, rank->out, p->out_bytes);
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    compare(plan, rank, host.got, host.out, p->out_bytes, "out, sum, quantized, scale");
    gpu_fetch(rank, host.got, rank->in, p->in_bytes);
    compare(plan, rank, host.got, host.in, p->in_bytes, "in, residual, weight");
}

static void call(const plan_t *plan, const gpu_rank_t *rank, const place_t *p) {
    if (plan->scatters)
        CHECK_OK(tpcomm_reduce_scatter_rms_norm(rank->comm, &p->norm, rank->stream));
    else
        CHECK_OK(tpcomm_all_reduce_rms_norm(rank->comm, &p->norm, rank->stream));
}

static void one(gpu_rank_t *rank, const plan_t *plan) {
    place_t p = place_of(plan, rank);
    host_t host = host_of(&p);
    send_inputs(plan, rank, &p, host);
    call(plan, rank, &p);
    check_results(plan, rank, &p, host);
    host_free(host);
}

/* All rows to all ranks again: those of the replicated form. */
static void gather(gpu_rank_t *rank, const plan_t *plan) {
    plan_t own = *plan, whole = *plan;
    own.scatters = true;
    if (own.path == TPCOMM_PATH_FUSED_TWOSHOT) own.path = TPCOMM_PATH_FUSED_ONESHOT;
    if (plan->tokens % (size_t)rank->size != 0) own.path = TPCOMM_PATH_AUTO; /* nothing composes that */
    own.in_place = whole.in_place = whole.scatters = false;
    own.gap = own.misalign = whole.gap = whole.misalign = 0;
    own.out = whole.out = true;
    place_t p = place_of(&own, rank), all = place_of(&whole, rank);
    host_t host = host_of(&p), want = host_of(&all);
    send_inputs(&own, rank, &p, host);
    call(&own, rank, &p);
    size_t bytes = plan->tokens * p.row_bytes;
    CHECK(p.in_bytes + bytes <= rank->room);
    unsigned char *rows = rank->in + align(p.in_bytes);
    CHECK_OK(
        tpcomm_all_gather_rows(rank->comm, p.norm.out, rows, plan->tokens, plan->hidden, plan->dtype, rank->stream));
    make_inputs(&whole, rank, &all, want.in, want.out);
    expect(&whole, rank, &all, want.in, want.out);
    unsigned char *got = malloc(bytes + 1);
    CHECK(got != NULL);
    gpu_fetch(rank, got, rows, bytes);
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    CHECK(memcmp(got, want.out + all.out, bytes) == 0);
    free(got);
    host_free(host);
    host_free(want);
}

static plan_t draw(uint64_t seed, int32_t size) {
    static const tpcomm_dtype_t dtypes[] = {TPCOMM_BF16, TPCOMM_F16, TPCOMM_F32};
    static const tpcomm_path_t paths[] = {TPCOMM_PATH_FUSED_ONESHOT, TPCOMM_PATH_FUSED_TWOSHOT, TPCOMM_PATH_AUTO,
                                          TPCOMM_PATH_UNFUSED};
    static const int32_t hiddens[] = {8, 256, 264, 1024, 2568, 4096, 7168, 8192, 16376, 16384};
    static const size_t tokens[] = {1, 2, 3, 17, 64, 0, 5};
    uint64_t state = seed * 77 + 1;
    plan_t plan = {.dtype = dtypes[seed % 3],
                   .quant = (tpcomm_quant_t)(seed / 3 % 3),
                   .path = paths[seed % 7 % 4],
                   .hidden = hiddens[random_next(&state) % 10],
                   .tokens = tokens[random_next(&state) % 7],
                   .gap = random_next(&state) % 4 == 0 ? 8 : 0,
                   .misalign = random_next(&state) % 5 == 0 ? 1 : 0,
                   .bias = random_next(&state) % 2 == 0 ? 0 : 1,
                   .scatters = random_next(&state) % 3 == 0,
                   .residual = random_next(&state) % 3 != 0,
                   .out = true,
                   .sum = random_next(&state) % 3 == 0,
                   .in_place = random_next(&state) % 2 == 0,
                   .seed = seed};
    plan.weight_dtype = random_next(&state) % 2 == 0 ? TPCOMM_F32 : plan.dtype;
    if (plan.quant != TPCOMM_QUANT_NONE && random_next(&state) % 3 == 0) plan.out = false;
    if (plan.path == TPCOMM_PATH_UNFUSED) { /* what it needs */
        plan.gap = 0;
        plan.sum = plan.sum || !plan.out;
        if (plan.scatters) plan.tokens = plan.tokens / (size_t)size * (size_t)size;
    }
    if (plan.path == TPCOMM_PATH_FUSED_TWOSHOT) {
        plan.scatters = false;
        if (plan.tokens > 3) plan.tokens += random_next(&state) % (uint64_t)size; /* also what does not divide */
    }
    if (size == 1) plan.path = TPCOMM_PATH_AUTO;
    if (random_next(&state) % 2 == 0) plan.values = (int)(random_next(&state) % VALUES);
    return plan;
}

static void drawn(gpu_rank_t *rank) {
    for (uint64_t seed = 1; seed <= (uint64_t)gpu_rounds(90); seed++) {
        plan_t plan = draw(seed, rank->size);
        one(rank, &plan);
        if (seed % 4 == 0) gather(rank, &plan);
    }
    static const size_t tokens[] = {128, GPU_FILLING(600),
                                    GPU_FILLING(2048)}; /* more rows than blocks, and several launches */
    for (int t = 0; t < 3; t++) {
        plan_t plan = {.dtype = TPCOMM_BF16,
                       .weight_dtype = TPCOMM_BF16,
                       .path = TPCOMM_PATH_FUSED_ONESHOT,
                       .hidden = 4096,
                       .tokens = tokens[t],
                       .residual = true,
                       .out = true,
                       .quant = t == 1 ? TPCOMM_QUANT_F8_TOKEN : TPCOMM_QUANT_NONE,
                       .seed = 500 + (uint64_t)t};
        one(rank, &plan);
        plan.path = TPCOMM_PATH_UNFUSED;
        one(rank, &plan);
        plan.path = TPCOMM_PATH_FUSED_TWOSHOT;
        plan.tokens += (size_t)t;
        one(rank, &plan);
        plan.path = TPCOMM_PATH_FUSED_ONESHOT;
        plan.scatters = true;
        plan.tokens += 1;
        one(rank, &plan);
    }
}

/* The norm alone, on this rank's device. */
static void alone(gpu_rank_t *rank) {
    gpu_rank_t self = *rank;
    self.size = 1;
    for (uint64_t seed = 1; seed <= (uint64_t)gpu_rounds(60); seed++) {
        plan_t plan = draw(seed, 1);
        plan.scatters = plan.sum = false;
        place_t p = place_of(&plan, &self);
        self.rank = 0; /* whose rows they are */
        host_t host = host_of(&p);
        send_inputs(&plan, &self, &p, host);
        CHECK_OK(tpcomm_rms_norm(TPCOMM_DEVICE_CUDA, &p.norm, rank->stream));
        check_results(&plan, &self, &p, host);
        host_free(host);
    }
}

/* Calls of different kinds in a graph, which is the first that this group does; replayed with fresh data. */
static void graph(gpu_rank_t *rank, tpcomm_path_t path) {
    cudaGraph_t captured;
    cudaGraphExec_t exec;
    plan_t plan = {.dtype = TPCOMM_BF16,
                   .weight_dtype = TPCOMM_F32,
                   .path = path,
                   .hidden = 4096,
                   .tokens = 5,
                   .residual = true,
                   .out = true,
                   .quant = TPCOMM_QUANT_F8_TOKEN,
                   .seed = 1};
    place_t p = place_of(&plan, rank);
    unsigned char *spare = rank->out + align(p.out_bytes);
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    call(&plan, rank, &p);
    CHECK_OK(tpcomm_all_reduce(rank->comm, rank->in + p.weight, spare, 1000, TPCOMM_F32, TPCOMM_SUM, rank->stream));
    CUDA_OK(cudaStreamEndCapture(rank->stream, &captured));
    CUDA_OK(cudaGraphInstantiate(&exec, captured, 0));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0)); /* instantiated everywhere before a kernel waits */
    host_t host = host_of(&p);
    for (uint64_t replay = 0; replay < (uint64_t)gpu_rounds(30); replay++) {
        plan.seed = 10 + replay;
        send_inputs(&plan, rank, &p, host);
        CUDA_OK(cudaGraphLaunch(exec, rank->stream));
        check_results(&plan, rank, &p, host);
    }
    host_free(host);
    gpu_together(rank);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(captured));
    gpu_together(rank);
}

static void all(gpu_rank_t *rank) {
    graph(rank, TPCOMM_PATH_FUSED_ONESHOT); /* first: G9 */
    graph(rank, TPCOMM_PATH_FUSED_TWOSHOT);
    drawn(rank);
    alone(rank);
}

/* One rank gives another eps: a MISMATCH on all, by the call headers, whichever path it takes. */
static void mismatch(gpu_rank_t *rank) {
    plan_t plan = {.dtype = TPCOMM_BF16,
                   .weight_dtype = TPCOMM_BF16,
                   .path = *(tpcomm_path_t *)rank->arg,
                   .hidden = 1024,
                   .tokens = 2,
                   .out = true,
                   .seed = 3};
    one(rank, &plan);
    place_t p = place_of(&plan, rank);
    if (rank->rank == 1) p.norm.eps = 0.5f;
    CHECK_OK(tpcomm_all_reduce_rms_norm(rank->comm, &p.norm, rank->stream));
    CUDA_OK(cudaStreamSynchronize(rank->stream));
    CHECK_STATUS(tpcomm_async_status(rank->comm, NULL), TPCOMM_ERR_MISMATCH);
    CHECK_STATUS(tpcomm_all_reduce_rms_norm(rank->comm, &p.norm, rank->stream), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("all_reduce_rms_norm");
}

/* ------------------------------------------------------------------ times */

/* Microseconds per call: the median of 20 replays of a graph of 50 dependent calls. */
static double time_of(gpu_rank_t *rank, const plan_t *plan) {
    enum { CALLS = 50, REPLAYS = 20 };
    place_t p = place_of(plan, rank);
    cudaGraph_t captured;
    cudaGraphExec_t exec;
    double times[REPLAYS];
    CUDA_OK(cudaStreamBeginCapture(rank->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CALLS; i++) call(plan, rank, &p);
    CUDA_OK(cudaStreamEndCapture(rank->stream, &captured));
    CUDA_OK(cudaGraphInstantiate(&exec, captured, 0));
    for (int i = -2; i < REPLAYS; i++) {
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        double start = gpu_now_s();
        CUDA_OK(cudaGraphLaunch(exec, rank->stream));
        CUDA_OK(cudaStreamSynchronize(rank->stream));
        if (i >= 0) times[i] = (gpu_now_s() - start) * 1e6 / CALLS;
    }
    for (int i = 1; i < REPLAYS; i++)
        for (int j = i; j > 0 && times[j] < times[j - 1]; j--) {
            double swap = times[j];
            times[j] = times[j - 1];
            times[j - 1] = swap;
        }
    CHECK_OK(tpcomm_async_status(rank->comm, NULL));
    gpu_together(rank);
    CUDA_OK(cudaGraphExecDestroy(exec));
    CUDA_OK(cudaGraphDestroy(captured));
    gpu_together(rank);
    return times[REPLAYS / 2];
}

static const size_t timed_tokens[] = {1, 4, 16, 32, 64, 128, 256, 512, 1024};
static const int32_t timed_hiddens[] = {4096, 8192};
enum { TIMED_TOKENS = sizeof timed_tokens / sizeof *timed_tokens };

static plan_t timed_plan(tpcomm_path_t path, int h, int t) {
    plan_t plan = {.dtype = TPCOMM_BF16,
                   .weight_dtype = TPCOMM_BF16,
                   .path = path,
                   .hidden = timed_hiddens[h],
                   .tokens = timed_tokens[t],
                   .residual = true,
                   .out = true,
                   .seed = 1};
    return plan;
}

/* The paths by turns in one group, and what the fused forms take of the unfused one's time. */
static void compare_paths(gpu_rank_t *rank) {
    static const tpcomm_path_t paths[] = {TPCOMM_PATH_UNFUSED, TPCOMM_PATH_FUSED_ONESHOT, TPCOMM_PATH_FUSED_TWOSHOT};
    CUDA_OK(cudaMemsetAsync(rank->in, 0, rank->room, rank->stream));
    if (rank->rank == 0)
        printf("%d ranks, bf16, residual; us per call, graph of 50\n  hidden tokens  unfused  oneshot  twoshot\n",
               rank->size);
    for (int h = 0; h < 2; h++)
        for (int t = 0; t < TIMED_TOKENS; t++) {
            double us[3];
            for (int i = 0; i < 3; i++) {
                plan_t plan = timed_plan(paths[i], h, t);
                us[i] = time_of(rank, &plan);
            }
            if (rank->rank == 0)
                printf("  %6d %6zu %8.2f %8.2f %8.2f   ratios %.2f %.2f\n", timed_hiddens[h], timed_tokens[t], us[0],
                       us[1], us[2], us[1] / us[0], us[2] / us[0]);
            fflush(stdout);
        }
}

/* One form with the shapes that hooks force. */
static void time_shape(gpu_rank_t *rank) {
    CUDA_OK(cudaMemsetAsync(rank->in, 0, rank->room, rank->stream));
    for (int form = 0; form < 2; form++)
        for (int h = 0; h < 2; h++) {
            if (rank->rank == 0)
                printf("  %-20s %s H %d:", (const char *)rank->arg, form ? "twoshot" : "oneshot", timed_hiddens[h]);
            for (int t = 0; t < TIMED_TOKENS; t++) {
                plan_t plan = timed_plan(form ? TPCOMM_PATH_FUSED_TWOSHOT : TPCOMM_PATH_FUSED_ONESHOT, h, t);
                double us = time_of(rank, &plan);
                if (rank->rank == 0) printf(" %7.2f", us);
            }
            if (rank->rank == 0) printf("\n");
            fflush(stdout);
        }
}

static void all_shapes(int kind, int32_t size, bool one_each) {
    static const char *const hooks[] = {"", "set@fused_vectors:1", "set@fused_vectors:2", "set@fused_vectors:4"};
    tpcomm_config_t config = gpu_config();
    printf("%d ranks, bf16, residual: us per call (graph of 50) by tokens 1 4 16 32 64 128 256 512 1024\n", size);
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++) {
        ranks_set_hooks(hooks[i]);
        gpu_run(kind, size, one_each, &config, 64 << 20, time_shape, (void *)(uintptr_t)hooks[i]);
    }
    ranks_set_hooks("");
}

static void all_timings(int kind, int32_t size, bool one_each) {
    tpcomm_config_t config = gpu_config();
    gpu_run(kind, size, one_each, &config, 64 << 20, compare_paths, NULL);
}

/* Where the fused kernels cannot be had on one rank, no rank takes them, comm_info says why, and calls are right (I11).
 */
static void without_fused(gpu_rank_t *rank) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    CHECK_OK(tpcomm_comm_info(rank->comm, &info));
    CHECK(strstr(info.paths, "unfused") != NULL && strstr(info.paths, "fused_oneshot (") != NULL);
    plan_t plan = {
        .dtype = TPCOMM_BF16, .weight_dtype = TPCOMM_BF16, .hidden = 1024, .tokens = 2, .out = true, .seed = 3};
    one(rank, &plan);
    place_t p = place_of(&plan, rank);
    p.norm.path = TPCOMM_PATH_FUSED_ONESHOT;
    CHECK_STATUS(tpcomm_all_reduce_rms_norm(rank->comm, &p.norm, rank->stream), TPCOMM_ERR_UNSUPPORTED);
    CHECK_ERROR_HAS("fused");
}

int main(int argc, char **argv) {
    gpu_need();
    tpcomm_config_t config = gpu_config();
    static const int32_t sizes[] = {2, 3, 4, 8, 1};
    bool each = gpu_count() >= 2;
    bool shapes = argc > 1 && strcmp(argv[1], "shapes") == 0;
    if (shapes || (argc > 1 && strcmp(argv[1], "time") == 0)) {
        void (*print)(int kind, int32_t size, bool one_each) = shapes ? all_shapes : all_timings;
        int only = argc > 2 ? atoi(argv[2]) : 0;
        if (each) {
            printf("a GPU each, processes\n");
            fflush(stdout);
            for (int s = 0; s < 4; s++)
                if (sizes[s] != 3 && sizes[s] <= gpu_count() && (only == 0 || only == sizes[s]))
                    print(RANKS_PROCESSES, sizes[s], true);
            printf("ranks share a GPU, threads\n");
            fflush(stdout);
        }
        for (int s = 0; s < 4; s++)
            if (sizes[s] != 3 && (only == 0 || only == sizes[s])) print(RANKS_THREADS, sizes[s], false);
        return 0;
    }
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        if (argc > 1 && atoi(argv[1]) != sizes[s]) continue;
        printf("%d ranks share a GPU, threads\n", sizes[s]);
        fflush(stdout);
        gpu_run(RANKS_THREADS, sizes[s], false, &config, ROOM, all, NULL);
    }
    if (argc < 2) {
        printf("without the fused kernels\n");
        fflush(stdout);
        ranks_set_hooks("fail@fused:1");
        gpu_run(RANKS_THREADS, 2, false, &config, 1 << 20, without_fused, NULL);
        ranks_set_hooks("");
    }
    static tpcomm_path_t paths[] = {TPCOMM_PATH_FUSED_ONESHOT, TPCOMM_PATH_FUSED_TWOSHOT, TPCOMM_PATH_UNFUSED};
    for (int p = 0; p < 3 && argc < 2; p++) {
        printf("mismatch by %s\n", tpcomm_path_name(paths[p]));
        fflush(stdout);
        gpu_run(RANKS_THREADS, 2, false, &config, 1 << 20, mismatch, &paths[p]);
    }
    if (each && argc < 2) {
        printf("2 ranks, a GPU each\n");
        fflush(stdout);
        for (int kind = 0; kind < RANKS_KINDS; kind++) gpu_run(kind, 2, true, &config, ROOM, all, NULL);
    }
    printf("ok\n");
    return 0;
}
