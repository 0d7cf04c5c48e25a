/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check the kernels' protocol on a GPU, launched directly (letters: docs/gpu.md). 100000 random calls (b) of 3, 4 and 8
 * ranks and some of 2, 5, 6, 7: collectives, forms (the ring too), dtypes, sizes, alignments, grids, one rank late now
 * and then; the epoch begins shortly before its wrap (d); payloads that look like EMPTY, like epochs, NaNs, -0 (c);
 * half of the launches dependent ones, some behind a kernel that releases them before it writes their input (f). Every
 * result is exact, no rank is more than one call ahead of another (b), and a kernel finds every slot EMPTY and all
 * epoch words equal afterwards (a). Then 100 broadcasts and an all_reduce with one slow rank (e); 2000 queued calls and
 * an abort (h); a rank that comes after its peers have given up (k). usage: gpu_protocol [CALLS (default 100000)]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "cpu_backend/reduce.h"
#include "custom_ar/launch.h"
#include "gpu/gpu_kernels.h"
#include "gpu/gpu_ranks.h"

enum { BATCH = 64, SLOT = 4096, ROOM = BATCH * (8 * SLOT + 64) };

/* Pieces so small that most messages take many chunks a block. */
static const tpc_ar_ring_t ring = {.blocks = GPU_RING_BLOCKS, .piece_bytes = 272};

typedef struct {
    int32_t size;
    unsigned char *workspace[TPCOMM_MAX_RANKS];
    cudaStream_t stream[TPCOMM_MAX_RANKS];
    tpc_ar_report_t *report;               /* pinned, one a rank */
    uint64_t *host_fail;                   /* pinned */
    unsigned char *late[TPCOMM_MAX_RANKS]; /* inputs of calls that a late kernel makes */
    unsigned char *in[TPCOMM_MAX_RANKS], *out[TPCOMM_MAX_RANKS], *host_in[TPCOMM_MAX_RANKS],
        *host_out[TPCOMM_MAX_RANKS];
    unsigned *bad;                     /* device memory: words that are not what they should be */
    uint32_t epoch;                    /* of the next call */
    uint32_t counted[GPU_RING_BLOCKS]; /* chunks of each block before it, on all ranks */
} net_t;

typedef struct {
    tpc_ar_form_t form;
    tpcomm_dtype_t dtype;
    tpcomm_op_t op;
    int32_t root;
    size_t count, at_in, at_out; /* byte offsets, aligned by 64; then shifts */
    size_t shift_in[TPCOMM_MAX_RANKS], shift_out[TPCOMM_MAX_RANKS];
    bool in_place, produced; /* produced: by a kernel that has released the call before */
    uint32_t ring_grid;      /* blocks of a ring's launch, the same on all ranks */
} plan_t;

static uint64_t state = 88172645463325252u;
static uint32_t below(uint32_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)((state >> 32) * n >> 32);
}

/* ------------------------------------------------------------------ ranks */

static void net_open(net_t *net, int32_t size, uint32_t epoch, uint32_t timeout_ms) {
    size_t bytes = tpc_ar_workspace_bytes(size, SLOT) + tpc_ar_ring_bytes(size, ring);
    unsigned char *first = calloc(1, TPC_AR_CALL_OFFSET);
    CHECK(first != NULL);
    *net = (net_t){.size = size, .epoch = epoch};
    for (uint32_t b = 0; b < ring.blocks; b++) net->counted[b] = UINT32_MAX; /* as memory that is EMPTY says */
    ((tpc_ar_header_t *)(void *)first)->timeout_ms = timeout_ms;
    for (size_t b = 0; b < TPC_AR_MAX_BLOCKS; b++) memcpy(first + TPC_AR_EPOCH_OFFSET + 4 * b, &epoch, 4);
    CUDA_OK(cudaHostAlloc((void **)&net->report, sizeof *net->report * (size_t)size, cudaHostAllocMapped));
    CUDA_OK(cudaHostAlloc((void **)&net->host_fail, sizeof *net->host_fail, cudaHostAllocMapped));
    memset(net->report, 0, sizeof *net->report * (size_t)size);
    *net->host_fail = 0;
    CUDA_OK(cudaMalloc((void **)&net->bad, 256));
    CUDA_OK(cudaMemset(net->bad, 0, 256));
    for (int32_t r = 0; r < size; r++) {
        CUDA_OK(cudaMalloc((void **)&net->workspace[r], bytes));
        CUDA_OK(cudaMemset(net->workspace[r], 0xFF, bytes));
        CUDA_OK(cudaMemcpy(net->workspace[r], first, TPC_AR_CALL_OFFSET, cudaMemcpyHostToDevice));
        gpu_stream_new(&net->stream[r]);
        CUDA_OK(cudaMalloc((void **)&net->in[r], ROOM));
        CUDA_OK(cudaMalloc((void **)&net->out[r], ROOM));
        CUDA_OK(cudaMalloc((void **)&net->late[r], ROOM));
        CUDA_OK(cudaHostAlloc((void **)&net->host_in[r], ROOM, 0));
        CUDA_OK(cudaHostAlloc((void **)&net->host_out[r], ROOM, 0));
    }
    CUDA_OK(cudaDeviceSynchronize());
    free(first);
}

static void net_close(net_t *net) {
    CUDA_OK(cudaDeviceSynchronize());
    for (int32_t r = 0; r < net->size; r++) {
        CUDA_OK(cudaFree(net->workspace[r]));
        CUDA_OK(cudaFree(net->in[r]));
        CUDA_OK(cudaFree(net->out[r]));
        CUDA_OK(cudaFree(net->late[r]));
        CUDA_OK(cudaFreeHost(net->host_in[r]));
        CUDA_OK(cudaFreeHost(net->host_out[r]));
        CUDA_OK(cudaStreamDestroy(net->stream[r]));
    }
    CUDA_OK(cudaFree(net->bad));
    CUDA_OK(cudaFreeHost(net->report));
    CUDA_OK(cudaFreeHost(net->host_fail));
}

static uint32_t epoch_after(uint32_t epoch) {
    return epoch == 0xFFFFFFFDu ? 0 : epoch + 1;
}

static void check_none_bad(const net_t *net, const char *what) {
    unsigned bad = 0;
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemcpy(&bad, net->bad, sizeof bad, cudaMemcpyDefault));
    if (bad != 0) FAIL("%d ranks: %s: %u words are wrong", net->size, what, bad);
}

/* Look at a rank's flags, from its own or another's stream: counted is the least that they may be, and so much more. */
static void watch_ring(const net_t *net, int32_t whose, const uint32_t counted[], const uint32_t span[],
                       cudaStream_t stream) {
    gpu_ring_flags_t flags = {.rank = whose, .size = net->size, .blocks = ring.blocks};
    flags.lines = (const unsigned *)(void *)(net->workspace[whose] + tpc_ar_workspace_bytes(net->size, SLOT));
    memcpy(flags.least, counted, sizeof flags.least);
    memcpy(flags.span, span, sizeof flags.span);
    CUDA_OK((cudaError_t)gpu_kernel_ring_flags(flags, net->bad, stream));
}

/* (a) Every slot EMPTY, every epoch word the next call's, as many chunks counted as were sent, no failure, no call left
 * behind. */
static void net_check(const net_t *net) {
    const unsigned empty[3] = {UINT32_MAX, UINT32_MAX, UINT32_MAX}, next[3] = {net->epoch, net->epoch, net->epoch};
    size_t slots = (tpc_ar_workspace_bytes(net->size, SLOT) - TPC_AR_SLOT_OFFSET) / 4;
    for (int32_t r = 0; r < net->size; r++) {
        tpc_ar_header_t header;
        unsigned char *workspace = net->workspace[r];
        CUDA_OK((cudaError_t)gpu_kernel_none_of(workspace + TPC_AR_EPOCH_OFFSET, TPC_AR_MAX_BLOCKS, next, net->bad,
                                                net->stream[r]));
        check_none_bad(net, "epochs");
        CUDA_OK(
            (cudaError_t)gpu_kernel_none_of(workspace + TPC_AR_SLOT_OFFSET, slots, empty, net->bad, net->stream[r]));
        check_none_bad(net, "slots that should be EMPTY");
        watch_ring(net, r, net->counted, (const uint32_t[GPU_RING_BLOCKS]){0}, net->stream[r]);
        check_none_bad(net, "flags of the ring");
        CUDA_OK(cudaMemcpy(&header, workspace, sizeof header, cudaMemcpyDefault));
        CHECK_EQ(header.fail, 0);
        CHECK_EQ(header.running, 0);
    }
}

static size_t message_bytes(const plan_t *plan) {
    return plan->count * tpcomm_dtype_size(plan->dtype);
}

/* Chunks of each block of its launch that a call sends: of the longest part, two ranks' being the message. */
static uint32_t chunks_of(const net_t *net, const plan_t *plan) {
    size_t ranks = (size_t)net->size, chunk = (size_t)plan->ring_grid * ring.piece_bytes, bytes = message_bytes(plan);
    size_t part = net->size == 2 ? bytes : ((bytes + 15) / 16 + ranks - 1) / ranks * 16;
    return plan->form.ring ? (uint32_t)((part + chunk - 1) / chunk) : 0;
}

static void count_chunks(const net_t *net, const plan_t *plan, uint32_t counted[GPU_RING_BLOCKS]) {
    for (uint32_t b = 0; b < plan->ring_grid; b++) counted[b] += chunks_of(net, plan);
}

/* (b) Behind call e of one rank every other has begun it, and none is further than in the next one: all words are e,
 * the one after, or the one after that; and no flag of the ring counts less chunks than before e, or more than behind
 * the next one. */
static void watch_others(const net_t *net, int32_t r, const plan_t *plan, const plan_t *next) {
    uint32_t span[GPU_RING_BLOCKS] = {0};
    count_chunks(net, plan, span);
    if (next != NULL) count_chunks(net, next, span);
    for (int32_t k = 1; k < net->size; k++) watch_ring(net, (r + k) % net->size, net->counted, span, net->stream[r]);
    const unsigned may_be[3] = {net->epoch, epoch_after(net->epoch), epoch_after(epoch_after(net->epoch))};
    for (int32_t k = 1; k < net->size; k++)
        CUDA_OK((cudaError_t)gpu_kernel_none_of(net->workspace[(r + k) % net->size] + TPC_AR_EPOCH_OFFSET,
                                                TPC_AR_MAX_BLOCKS, may_be, net->bad, net->stream[r]));
}

/* ------------------------------------------------------------------ calls */

static size_t whole_bytes(const net_t *net, const plan_t *plan, bool out) {
    bool all = plan->form.coll == (out ? TPCOMM_ALL_GATHER : TPCOMM_REDUCE_SCATTER);
    return message_bytes(plan) * (all ? (size_t)net->size : 1);
}

/* Of a call's input and its shift. */
static size_t in_room(const net_t *net, const plan_t *plan) {
    return (whole_bytes(net, plan, false) + 127) / 64 * 64;
}

static bool reduces(const plan_t *plan) {
    return plan->form.coll == TPCOMM_ALL_REDUCE || plan->form.coll == TPCOMM_REDUCE_SCATTER;
}

static plan_t draw(const net_t *net) {
    static const tpcomm_coll_t colls[] = {TPCOMM_ALL_REDUCE, TPCOMM_ALL_REDUCE, TPCOMM_ALL_REDUCE,
                                          TPCOMM_ALL_REDUCE, TPCOMM_BROADCAST,  TPCOMM_REDUCE_SCATTER,
                                          TPCOMM_ALL_GATHER, TPCOMM_BARRIER};
    plan_t plan = {.form = {.coll = colls[below(8)]}, .root = (int32_t)below((uint32_t)net->size)};
    plan.form.twoshot = plan.form.coll == TPCOMM_ALL_REDUCE && below(2) == 0;
    do {
        plan.dtype =
            below(2) ? (tpcomm_dtype_t)(TPCOMM_F32 + (int)below(3)) : (tpcomm_dtype_t)(TPCOMM_F32 + (int)below(10));
        plan.op = below(2) ? TPCOMM_SUM : (tpcomm_op_t)(TPCOMM_SUM + (int)below(5));
    } while (reduces(&plan) && !tpc_reduction_defined(plan.dtype, plan.op));
    size_t element = tpcomm_dtype_size(plan.dtype);
    uint32_t most = (uint32_t)(tpc_ar_capacity(plan.form, plan.dtype, net->size, SLOT) / element);
    if (most > SLOT / element) most = (uint32_t)(SLOT / element);
    if (plan.form.coll == TPCOMM_ALL_REDUCE && plan.dtype <= TPCOMM_BF16 && below(4) == 0) {
        plan.form = (tpc_ar_form_t){.coll = TPCOMM_ALL_REDUCE, .ring = true};
        plan.ring_grid = 1 + below(ring.blocks);
        most = (uint32_t)(8 * SLOT / element);
    }
    plan.count = below((below(4) ? most / 8 : most) + 1);
    if (below(2)) plan.count -= plan.count % (16 / element);
    if (plan.form.coll == TPCOMM_BARRIER) plan.count = 0;
    plan.produced = below(16) == 0;
    plan.in_place = plan.form.coll == TPCOMM_ALL_REDUCE && below(3) == 0;
    for (int32_t r = 0; r < net->size; r++) {
        plan.shift_in[r] = below(4) ? 0 : below(16 / (uint32_t)element) * element;
        plan.shift_out[r] = plan.in_place ? plan.shift_in[r] : below(4) ? 0 : below(16 / (uint32_t)element) * element;
    }
    return plan;
}

static unsigned char *out_of(const net_t *net, const plan_t *plan, int32_t r) {
    return plan->in_place ? net->in[r] + plan->at_in + plan->shift_in[r]
                          : net->out[r] + plan->at_out + plan->shift_out[r];
}

static void launch(net_t *net, const plan_t *plan, int32_t r, uint32_t ordinal) {
    tpc_ar_params_t p = {.count = plan->count,
                         .half_bytes = tpc_ar_half_bytes(net->size, SLOT),
                         .slot_bytes = SLOT,
                         .rank = r,
                         .size = net->size,
                         .dtype = plan->form.coll == TPCOMM_BARRIER ? 0 : plan->dtype,
                         .op = plan->op,
                         .root = plan->root,
                         .in_stride = plan->count * tpcomm_dtype_size(plan->dtype),
                         .out_stride = plan->count * tpcomm_dtype_size(plan->dtype),
                         .host_fail = net->host_fail,
                         .report = &net->report[r],
                         .what = (uint32_t)plan->form.coll,
                         .hash = ordinal,
                         .lead = 1 + below(3),
                         .early = (int32_t)below(2),
                         .ring_offset = (uint32_t)tpc_ar_workspace_bytes(net->size, SLOT),
                         .ring_blocks = ring.blocks,
                         .ring_piece = ring.piece_bytes};
    p.in = net->in[r] + plan->at_in + plan->shift_in[r];
    p.out = out_of(net, plan, r);
    for (int32_t k = 0; k < net->size; k++) p.workspace[k] = net->workspace[(r + k) % net->size];
    static const int32_t threads[] = {32, 64, 128, 512};
    tpc_ar_shape_t shape = {
        .blocks = 1 + (int32_t)below(4), .threads = threads[below(4)], .vectors = 1 + (int32_t)below(2)};
    if (plan->form.ring) shape.blocks = (int32_t)plan->ring_grid;
    CUDA_OK((cudaError_t)tpc_ar_launch(plan->form, &p, shape, (tpcomm_stream_t)net->stream[r]));
}

static void fill(unsigned char *at, size_t bytes, uint32_t epoch) {
    const uint32_t words[] = {0xFFFFFFFFu, epoch,       epoch + 1, 0xFFFFu,     0xFFFF0000u, 0x7FFF7FFFu,
                              0x80008000u, 0x80000000u, 0,         0x00010001u, 0x7F800001u, 0x7C01FC01u};
    bool hostile = below(3) == 0, alike = below(2) == 0;
    uint32_t one = words[below(12)];
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t word = !hostile ? below(UINT32_MAX) : alike ? one : words[below(12)];
        memcpy(at + i, &word, 4);
    }
}

static void check(const net_t *net, const plan_t *plan, int index) {
    const void *in[TPCOMM_MAX_RANKS];
    unsigned char want[8 * SLOT + 64];
    size_t bytes = plan->count * tpcomm_dtype_size(plan->dtype), out_bytes = whole_bytes(net, plan, true);
    if (plan->count == 0) return;
    for (int32_t r = 0; r < net->size; r++) {
        size_t part = plan->form.coll == TPCOMM_REDUCE_SCATTER ? (size_t)r * bytes : 0;
        for (int32_t s = 0; s < net->size; s++) in[s] = net->host_in[s] + plan->at_in + plan->shift_in[s] + part;
        if (reduces(plan) && (r == 0 || part > 0))
            tpc_reduce_find_isa(TPC_REDUCE_GENERIC, plan->dtype, plan->op)(want, in, net->size, plan->count);
        else if (plan->form.coll == TPCOMM_BROADCAST)
            memcpy(want, in[plan->root], bytes);
        else if (plan->form.coll == TPCOMM_ALL_GATHER)
            for (int32_t s = 0; s < net->size; s++) memcpy(want + (size_t)s * bytes, in[s], bytes);
        const unsigned char *got =
            net->host_out[r] + (plan->in_place ? plan->at_in + plan->shift_in[r] : plan->at_out + plan->shift_out[r]);
        if (memcmp(got, want, out_bytes) != 0)
            FAIL("call %d of a batch, rank %d of %d: %s%s %s %s count %zu%s differs", index, r, net->size,
                 plan->form.ring      ? "ring "
                 : plan->form.twoshot ? "two-shot "
                                      : "",
                 tpcomm_coll_name(plan->form.coll), tpcomm_dtype_name(plan->dtype), tpcomm_op_name(plan->op),
                 plan->count, plan->in_place ? " in place" : "");
    }
}

/* BATCH random calls, one rank late. */
static void batch(net_t *net, uint32_t ordinal) {
    plan_t plans[BATCH];
    size_t at_in = 0, at_out = 0;
    int32_t late = (int32_t)below((uint32_t)net->size), when = below(4) ? -1 : (int32_t)below(BATCH);
    for (int i = 0; i < BATCH; i++) {
        plans[i] = draw(net);
        plans[i].at_in = at_in;
        plans[i].at_out = at_out;
        at_in += in_room(net, &plans[i]);
        at_out += (whole_bytes(net, &plans[i], true) + 127) / 64 * 64;
    }
    CHECK(at_in <= ROOM && at_out <= ROOM);
    for (int32_t r = 0; r < net->size; r++) {
        uint32_t epoch = net->epoch;
        for (int i = 0; i < BATCH; i++, epoch = epoch_after(epoch)) /* (c): payloads that are this call's epoch */
            fill(net->host_in[r] + plans[i].at_in, in_room(net, &plans[i]), epoch);
        CUDA_OK(cudaMemcpyAsync(net->in[r], net->host_in[r], at_in, cudaMemcpyHostToDevice, net->stream[r]));
        CUDA_OK(cudaMemcpyAsync(net->late[r], net->in[r], at_in, cudaMemcpyDeviceToDevice, net->stream[r]));
        for (int i = 0; i < BATCH; i++)
            if (plans[i].produced)
                CUDA_OK(cudaMemsetAsync(net->in[r] + plans[i].at_in, 0x5A, in_room(net, &plans[i]), net->stream[r]));
    }
    for (int i = 0; i < BATCH; i++) {
        for (int32_t k = 0; k < net->size; k++) {
            int32_t r = (k + late) % net->size;
            if (i == when && r == late) CUDA_OK((cudaError_t)gpu_kernel_delay(1 + below(2), net->stream[r]));
            if (plans[i].produced)
                CUDA_OK((cudaError_t)gpu_kernel_late_copy(net->in[r] + plans[i].at_in, net->late[r] + plans[i].at_in,
                                                          in_room(net, &plans[i]), 40, net->stream[r]));
            launch(net, &plans[i], r, ordinal + (uint32_t)i);
            if (k == 0 && below(8) == 0) watch_others(net, r, &plans[i], i + 1 < BATCH ? &plans[i + 1] : NULL);
        }
        net->epoch = epoch_after(net->epoch);
        count_chunks(net, &plans[i], net->counted);
    }
    CUDA_OK(cudaDeviceSynchronize());
    for (int place = 0; place < 2; place++) { /* outputs apart, then those in place */
        for (int32_t r = 0; r < net->size; r++)
            CUDA_OK(cudaMemcpy(net->host_out[r], place ? net->in[r] : net->out[r], place ? at_in : at_out,
                               cudaMemcpyDeviceToHost));
        for (int i = 0; i < BATCH; i++)
            if (plans[i].in_place == (place == 1)) check(net, &plans[i], i);
    }
}

/* ------------------------------------------------------------------ scenarios */

static void random_calls(int32_t size, uint32_t least) {
    net_t net;
    net_open(&net, size, 0xFFFFFFF8u, 10000);
    uint32_t calls = 0;
    double start = gpu_now_s();
    for (; calls < least; calls += BATCH) batch(&net, calls);
    check_none_bad(&net, "a rank is more than a call, or a chunk too many, ahead of another");
    net_check(&net);
    net_close(&net);
    printf("%d ranks: %u calls in %.1f s\n", size, calls, gpu_now_s() - start);
    fflush(stdout);
}

/* (e) The root of a broadcast waits for no data: it must not run away from a rank that is late. */
static void broadcasts(void) {
    net_t net;
    net_open(&net, 3, 5, 10000);
    for (int32_t r = 0; r < 3; r++) CUDA_OK(cudaMemset(net.in[r], 0x11 * (r + 1), SLOT));
    plan_t plan = {.form = {.coll = TPCOMM_BROADCAST}, .dtype = TPCOMM_U8, .op = TPCOMM_SUM, .count = 512};
    plan_t last = {.form = {.coll = TPCOMM_ALL_REDUCE}, .dtype = TPCOMM_U8, .op = TPCOMM_SUM, .count = 512};
    last.at_in = last.at_out = 1024;
    CUDA_OK((cudaError_t)gpu_kernel_delay(50, net.stream[2]));
    for (uint32_t i = 0; i < 101; i++) {
        for (int32_t r = 0; r < 3; r++) launch(&net, i < 100 ? &plan : &last, r, i);
        net.epoch = epoch_after(net.epoch);
    }
    CUDA_OK(cudaDeviceSynchronize());
    unsigned char got[1536];
    for (int32_t r = 0; r < 3; r++) {
        CUDA_OK(cudaMemcpy(got, net.out[r], sizeof got, cudaMemcpyDeviceToHost));
        for (int i = 0; i < 512; i++) CHECK(got[i] == 0x11 && got[1024 + i] == 0x66);
    }
    net_check(&net);
    net_close(&net);
}

static void *abort_later(void *arg) {
    const struct timespec wait = {.tv_nsec = 300000000};
    nanosleep(&wait, NULL);
    __atomic_store_n((uint64_t *)arg, (uint64_t)-TPCOMM_ERR_ABORTED | 1ull << 32, __ATOMIC_SEQ_CST);
    return NULL;
}

/* (h) More calls than a stream queues, so that the launching thread hangs in the driver; the word gets them all
 * through. */
static void queued_and_aborted(void) {
    net_t net;
    net_open(&net, 2, 7, 60000);
    plan_t plan = {.form = {.coll = TPCOMM_ALL_REDUCE}, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .count = 1000};
    pthread_t aborter;
    double start = gpu_now_s();
    CHECK_EQ(pthread_create(&aborter, NULL, abort_later, net.host_fail), 0);
    for (uint32_t i = 0; i < 2000; i++) launch(&net, &plan, 0, i);
    CUDA_OK(cudaDeviceSynchronize());
    CHECK(gpu_now_s() - start < 10);
    CHECK_EQ(pthread_join(aborter, NULL), 0);
    float got[1000];
    CUDA_OK(cudaMemcpy(got, net.out[0], sizeof got, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 1000; i++) CHECK(got[i] != got[i]);
    CHECK_EQ(net.report[0].word, 0);
    net_close(&net);
}

/* (k) Rank 0 gives up waiting for rank 1 and names it; rank 1, which comes then, leaves at once. */
static void late_rank(void) {
    net_t net;
    net_open(&net, 3, 9, 200);
    plan_t plan = {
        .form = {.coll = TPCOMM_ALL_REDUCE, .twoshot = true}, .dtype = TPCOMM_BF16, .op = TPCOMM_SUM, .count = 2048};
    launch(&net, &plan, 0, 1);
    launch(&net, &plan, 2, 1);
    CUDA_OK(cudaDeviceSynchronize());
    for (int32_t r = 0; r < 3; r += 2) CHECK(net.report[r].word == 0 || net.report[r].peer == 1);
    CHECK((uint32_t)(net.report[0].word | net.report[2].word) == (uint32_t)-TPCOMM_ERR_TIMEOUT);
    double start = gpu_now_s();
    launch(&net, &plan, 1, 1);
    CUDA_OK(cudaDeviceSynchronize());
    CHECK(gpu_now_s() - start < 0.15);
    CHECK_EQ(net.report[1].word, 0);
    net_close(&net);
}

int main(int argc, char **argv) {
    gpu_need();
    uint32_t calls = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 100000;
    static const int32_t sizes[] = {3, 4, 8}, others[] = {2, 5, 6, 7};
    CUDA_OK((cudaError_t)gpu_kernels_load());
    broadcasts();
    queued_and_aborted();
    late_rank();
    for (int s = 0; s < 4; s++) random_calls(others[s], calls / 20);
    for (int s = 0; s < 3; s++) random_calls(sizes[s], calls);
    printf("ok\n");
    return 0;
}
