/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check one rank alone on a GPU, whose inbox holds all that its peers send (n of docs/gpu.md, and f: half of the
 * launches are dependent ones, behind a kernel that releases them before it writes their input): every kind of kernel,
 * at ranks of groups of 2, 3, 4, 6 and 8: results, what it sends each peer, byte for byte, its slots EMPTY again, its
 * epochs, the ring's counts. Nobody waits for anybody, so that this runs under any checker. usage: gpu_alone [ROUNDS
 * (default 400)]
 */
#include "cpu_backend/reduce.h"
#include "gpu/gpu_kernels.h"
#include "gpu/gpu_ranks.h"
#include "kernels_on_host/inbox.h"

enum { SLOT = 4096, CALLS = 2, BUFFER = 8 * SLOT + 64, SIZE_MOST = 8 };

/* What peers send through the ring finds slots of its own, for both calls: few chunks, so that no block waits for an
 * answer to its own. */
static const tpc_ar_ring_t ring = {.blocks = INBOX_RING_BLOCKS, .piece_bytes = 272};

typedef struct {
    inbox_call_t call;
    unsigned char in[SIZE_MOST][BUFFER], want[BUFFER];
    size_t in_bytes, out_bytes, shift_in, shift_out;
} solo_t;

static uint64_t state = 0x9E3779B97F4A7C15u;
static uint32_t below(uint32_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)((state >> 32) * n >> 32);
}

static struct {
    cudaStream_t stream;
    unsigned char *workspace[SIZE_MOST], *in[CALLS], *source[CALLS], *out[CALLS];
    tpc_ar_report_t *report;
} gpu;

static solo_t solos[CALLS];
enum {
    RING_MOST = INBOX_RING_BLOCKS * (TPC_AR_RING_LINE + 2 * (SIZE_MOST - 1) * (int)TPC_AR_RING_DEPTH * 272),
    IMAGE_MOST = TPC_AR_SLOT_OFFSET + 2 * (SIZE_MOST - 1) * SLOT + RING_MOST
};
static unsigned char images[SIZE_MOST][IMAGE_MOST];
static unsigned char copy[sizeof images[0]];
static int kinds_seen[TPC_AR_KINDS];

/* A message of so many chunks a block at most. */
static void draw_ring(inbox_call_t *call, uint32_t chunks_left) {
    uint32_t parts = call->size == 2 ? 1 : (uint32_t)call->size;
    call->form.ring = true;
    call->form.twoshot = false;
    call->ring_grid = 1 + below(ring.blocks);
    uint32_t most = parts * call->ring_grid * ring.piece_bytes * chunks_left;
    if (most > 8 * SLOT) most = 8 * SLOT;
    call->count = below(most / (uint32_t)tpcomm_dtype_size(call->dtype) + 1);
}

static void draw(solo_t *solo, int32_t size, int32_t rank, uint32_t epoch, uint32_t chunks_left) {
    static const tpcomm_coll_t colls[] = {TPCOMM_ALL_REDUCE, TPCOMM_ALL_REDUCE, TPCOMM_REDUCE_SCATTER,
                                          TPCOMM_BROADCAST,  TPCOMM_ALL_GATHER, TPCOMM_BARRIER};
    inbox_call_t *call = &solo->call;
    *call = (inbox_call_t){.form = {.coll = colls[below(6)]},
                           .root = (int32_t)below((uint32_t)size),
                           .size = size,
                           .slot_bytes = SLOT,
                           .ring = ring,
                           .epoch = epoch,
                           .what = below(UINT32_MAX),
                           .hash = below(UINT32_MAX)};
    call->form.twoshot = call->form.coll == TPCOMM_ALL_REDUCE && below(2) == 0;
    do {
        call->dtype = TPCOMM_F32 + (tpcomm_dtype_t)below(below(3) != 0 ? 3 : 10);
        call->op = below(3) != 0 ? TPCOMM_SUM : TPCOMM_SUM + (tpcomm_op_t)below(5);
    } while (inbox_reduces(call) && tpc_reduce_find_isa(TPC_REDUCE_GENERIC, call->dtype, call->op) == NULL);
    size_t element = tpcomm_dtype_size(call->dtype);
    bool aligned = below(2) == 0;
    uint32_t most = (uint32_t)(tpc_ar_capacity(call->form, call->dtype, size, SLOT) / element);
    if (most > SLOT / element) most = (uint32_t)(SLOT / element);
    call->count = call->form.coll == TPCOMM_BARRIER ? 0 : below(most + 1);
    if (call->form.coll == TPCOMM_ALL_REDUCE && inbox_sentinels(call) && below(3) == 0) draw_ring(call, chunks_left);
    if (aligned) call->count -= call->count % (16 / element);
    bool scatters = call->form.coll == TPCOMM_REDUCE_SCATTER, gathers = call->form.coll == TPCOMM_ALL_GATHER;
    size_t bytes = inbox_bytes(call), ranks = (size_t)size;
    solo->shift_in = aligned ? 0 : below(16 / (uint32_t)element) * element;
    solo->shift_out = aligned ? 0 : below(16 / (uint32_t)element) * element;
    solo->in_bytes = bytes * (scatters ? ranks : 1);
    solo->out_bytes = bytes * (gathers ? ranks : 1);
    for (int32_t r = 0; r < size; r++) {
        for (size_t i = 0; i + 4 <= BUFFER; i += 4) {
            uint32_t word = below(8) == 0 ? UINT32_MAX : below(16) == 0 ? epoch : below(UINT32_MAX);
            memcpy(solo->in[r] + i, &word, 4);
        }
        call->in[r] = solo->in[r];
    }
    if (inbox_reduces(call)) {
        const void *from[SIZE_MOST];
        for (int32_t r = 0; r < size; r++) from[r] = solo->in[r] + (scatters ? (size_t)rank * bytes : 0);
        tpc_reduce_find_isa(TPC_REDUCE_GENERIC, call->dtype, call->op)(solo->want, from, size, call->count);
    } else {
        for (size_t r = 0; r < (gathers ? ranks : 1); r++)
            memcpy(solo->want + r * bytes, solo->in[gathers ? r : (size_t)call->root], bytes);
    }
    call->result = solo->want;
}

static void launch(const solo_t *solo, int index, int32_t rank, bool early) {
    const inbox_call_t *call = &solo->call;
    static const int32_t threads[] = {32, 64, 128, 512};
    tpc_ar_params_t p = {.in = gpu.in[index] + solo->shift_in,
                         .out = gpu.out[index] + solo->shift_out,
                         .count = call->count,
                         .half_bytes = tpc_ar_half_bytes(call->size, SLOT),
                         .slot_bytes = SLOT,
                         .rank = rank,
                         .size = call->size,
                         .dtype = call->form.coll == TPCOMM_BARRIER ? 0 : call->dtype,
                         .op = call->op,
                         .root = call->root,
                         .in_stride = inbox_bytes(call),
                         .out_stride = inbox_bytes(call),
                         .report = gpu.report,
                         .ring_offset = (uint32_t)tpc_ar_workspace_bytes(call->size, SLOT),
                         .ring_blocks = ring.blocks,
                         .ring_piece = ring.piece_bytes,
                         .what = call->what,
                         .hash = call->hash,
                         .lead = 1 + below(3),
                         .early = early};
    for (int32_t k = 0; k < call->size; k++) p.workspace[k] = gpu.workspace[(rank + k) % call->size];
    tpc_ar_shape_t shape = {
        .blocks = 1 + (int32_t)below(4), .threads = threads[below(4)], .vectors = 1 + (int32_t)below(2)};
    if (call->form.ring) shape.blocks = (int32_t)call->ring_grid;
    kinds_seen[tpc_ar_kind(call->form, &p, shape.vectors)]++;
    CUDA_OK((cudaError_t)tpc_ar_launch(call->form, &p, shape, (tpcomm_stream_t)gpu.stream));
}

static void check_equal(const unsigned char *got, const unsigned char *want, size_t bytes, const solo_t *solo,
                        int32_t rank, const char *what) {
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != want[i])
            FAIL("%s%s %s %s count %zu, rank %d of %d: %s: byte %zu is %02x, want %02x",
                 solo->call.form.ring      ? "ring "
                 : solo->call.form.twoshot ? "two-shot "
                                           : "",
                 tpcomm_coll_name(solo->call.form.coll), tpcomm_dtype_name(solo->call.dtype),
                 tpcomm_op_name(solo->call.op), solo->call.count, rank, solo->call.size, what, i, got[i], want[i]);
}

/* Two calls in a row, one of each parity. */
static void one_round(int32_t size, int32_t rank, uint32_t epoch) {
    size_t slots = tpc_ar_workspace_bytes(size, SLOT), bytes = slots + tpc_ar_ring_bytes(size, ring);
    uint32_t position = below(2) ? 0u - below(6) : below(UINT32_MAX); /* chunks that each block has counted */
    uint32_t counted[INBOX_RING_BLOCKS] = {position, position, position, position};
    CHECK(bytes <= IMAGE_MOST);
    bool early = below(2) == 0, late_input = below(4) == 0;
    for (int32_t r = 0; r < size; r++) {
        memset(images[r], 0xFF, bytes);
        memset(images[r], 0, sizeof(tpc_ar_header_t));
        ((tpc_ar_header_t *)(void *)images[r])->timeout_ms = 20000;
        for (size_t b = 0; b < TPC_AR_MAX_BLOCKS; b++) memcpy(images[r] + TPC_AR_EPOCH_OFFSET + 4 * b, &epoch, 4);
        for (size_t w = 0; w < ring.blocks * TPC_AR_RING_LINE; w += 4) memcpy(images[r] + slots + w, &position, 4);
    }
    for (int i = 0; i < CALLS; i++, epoch = epoch == 0xFFFFFFFDu ? 0 : epoch + 1) {
        inbox_call_t *call = &solos[i].call;
        draw(&solos[i], size, rank, epoch, TPC_AR_RING_DEPTH - (counted[0] - position));
        memcpy(call->ring_first, counted, sizeof counted);
        for (uint32_t b = 0; call->form.ring && b < call->ring_grid; b++) counted[b] += inbox_ring_chunks(call);
        for (int32_t r = 0; r < size; r++)
            if (r != rank) inbox_put(call, r, rank, images[rank]);
        CUDA_OK(cudaMemset(gpu.source[i], 0, BUFFER));
        CUDA_OK(cudaMemcpy(gpu.source[i] + solos[i].shift_in, solos[i].in[rank], solos[i].in_bytes, cudaMemcpyDefault));
        CUDA_OK(cudaMemset(gpu.in[i], 0x5A, BUFFER));
        if (!late_input) CUDA_OK(cudaMemcpy(gpu.in[i], gpu.source[i], BUFFER, cudaMemcpyDefault));
        CUDA_OK(cudaMemset(gpu.out[i], 0xEE, BUFFER));
    }
    for (int32_t r = 0; r < size; r++) CUDA_OK(cudaMemcpy(gpu.workspace[r], images[r], bytes, cudaMemcpyDefault));
    CUDA_OK(cudaDeviceSynchronize());
    for (int i = 0; i < CALLS; i++) {
        if (late_input) CUDA_OK((cudaError_t)gpu_kernel_late_copy(gpu.in[i], gpu.source[i], BUFFER, 50, gpu.stream));
        launch(&solos[i], i, rank, early);
    }
    CUDA_OK(cudaDeviceSynchronize());
    CHECK_EQ(gpu.report->word, 0);
    for (int i = 0; i < CALLS; i++) {
        unsigned char got[BUFFER], want[BUFFER];
        memset(want, 0xEE, BUFFER);
        memcpy(want + solos[i].shift_out, solos[i].want, solos[i].out_bytes);
        CUDA_OK(cudaMemcpy(got, gpu.out[i], BUFFER, cudaMemcpyDefault));
        check_equal(got, want, BUFFER, &solos[i], rank, "out, and what is beside it");
    }
    for (int32_t r = 0; r < size; r++) {
        for (int i = 0; i < CALLS && r != rank; i++) inbox_put(&solos[i].call, rank, r, images[r]);
        CUDA_OK(cudaMemcpy(copy, gpu.workspace[r], bytes, cudaMemcpyDefault));
        if (r != rank) {
            check_equal(copy, images[r], bytes, &solos[1], rank, "what a peer gets");
            continue;
        }
        CHECK_EQ(((tpc_ar_header_t *)(void *)copy)->fail, 0);
        CHECK_EQ(((tpc_ar_header_t *)(void *)copy)->running, 0);
        for (size_t b = 0; b < TPC_AR_MAX_BLOCKS; b++)
            CHECK(memcmp(copy + TPC_AR_EPOCH_OFFSET + 4 * b, &epoch, 4) == 0);
        for (size_t i = TPC_AR_SLOT_OFFSET; i < slots; i++) CHECK(copy[i] == 0xFF);
        for (uint32_t b = 0; b < ring.blocks; b++) /* all else in the ring's memory stays as the peers sent it */
            memcpy(inbox_ring_line(&solos[0].call, b, images[r]) + 4 * rank, &counted[b], 4);
        check_equal(copy + slots, images[r] + slots, bytes - slots, &solos[1], rank, "the own ring");
    }
}

int main(int argc, char **argv) {
    static const int32_t sizes[] = {2, 3, 4, 6, 8};
    gpu_need();
    int rounds = argc > 1 ? atoi(argv[1]) : 400;
    CUDA_OK((cudaError_t)gpu_kernels_load());
    gpu_stream_new(&gpu.stream);
    CUDA_OK(cudaHostAlloc((void **)&gpu.report, sizeof *gpu.report, cudaHostAllocMapped));
    memset(gpu.report, 0, sizeof *gpu.report);
    for (int r = 0; r < SIZE_MOST; r++) CUDA_OK(cudaMalloc((void **)&gpu.workspace[r], sizeof images[0]));
    for (int i = 0; i < CALLS; i++) {
        CUDA_OK(cudaMalloc((void **)&gpu.in[i], BUFFER));
        CUDA_OK(cudaMalloc((void **)&gpu.source[i], BUFFER));
        CUDA_OK(cudaMalloc((void **)&gpu.out[i], BUFFER));
    }
    for (int i = 0; i < rounds; i++) {
        int32_t size = sizes[i % 5];
        uint32_t epoch = below(4) == 0 ? 0xFFFFFFFDu : below(UINT32_MAX - 4); /* now and then at the wrap */
        one_round(size, (int32_t)below((uint32_t)size), epoch);
    }
    for (int kind = 0; kind < TPC_AR_KINDS; kind++) {
        printf("kind %d: %d launches\n", kind, kinds_seen[kind]);
        CHECK(rounds < 400 || kinds_seen[kind] > 0);
    }
    printf("ok\n");
    return 0;
}
