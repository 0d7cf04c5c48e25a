/* SPDX-License-Identifier: Apache-2.0 */
/* One rank alone, whose inbox holds all that its peers send. */
#include <vector>

#include "cases.h"
#include "hostrun.h"
#include "inbox.h"

extern "C" {
#include "cpu_backend/reduce.h"
}

using namespace hostrun;

enum { SLOT = 512 };

/* A message through the ring whose chunks, with those that the inbox holds already, find slots of their own. */
static void draw_ring_call(random_t &random, inbox_call_t &call, uint32_t chunks_left) {
    call.form.ring = true;
    call.form.twoshot = false;
    call.ring_grid = (uint32_t)random.between(1, (int)call.ring.blocks);
    uint32_t piece = (uint32_t)(call.size == 2 ? 1 : call.size) * call.ring_grid * call.ring.piece_bytes;
    call.count = random.below(piece * chunks_left / (uint32_t)tpcomm_dtype_size(call.dtype) + 1);
}

static inbox_call_t draw(random_t &random, int size, uint32_t epoch, tpc_ar_ring_t ring, uint32_t chunks_left) {
    static const tpcomm_coll_t colls[] = {TPCOMM_ALL_REDUCE, TPCOMM_ALL_REDUCE, TPCOMM_REDUCE_SCATTER,
                                          TPCOMM_BROADCAST,  TPCOMM_ALL_GATHER, TPCOMM_BARRIER};
    inbox_call_t call = {};
    call.form.coll = random.pick(colls);
    call.form.twoshot = call.form.coll == TPCOMM_ALL_REDUCE && random.chance(.5);
    do {
        call.dtype = (tpcomm_dtype_t)random.between(TPCOMM_F32, random.chance(.5) ? TPCOMM_BF16 : TPCOMM_F64);
        call.op = random.chance(.5) ? TPCOMM_SUM : (tpcomm_op_t)random.between(TPCOMM_SUM, TPCOMM_PROD);
    } while (inbox_reduces(&call) && tpc_reduce_find_isa(TPC_REDUCE_GENERIC, call.dtype, call.op) == nullptr);
    call.root = random.between(0, size - 1);
    call.size = size;
    call.slot_bytes = SLOT;
    call.ring = ring;
    call.epoch = epoch;
    call.what = (uint32_t)random.bits();
    call.hash = (uint32_t)random.bits();
    size_t element = tpcomm_dtype_size(call.dtype);
    call.count = random.below((uint32_t)(tpc_ar_capacity(call.form, call.dtype, size, SLOT) / element) + 1);
    if (call.form.coll == TPCOMM_ALL_REDUCE && inbox_sentinels(&call) && random.chance(.4))
        draw_ring_call(random, call, chunks_left);
    if (random.chance(.5)) call.count -= call.count % (16 / element);
    if (call.form.coll == TPCOMM_BARRIER) call.count = 0;
    return call;
}

/* A call of rank's with all its buffers. */
struct solo_t {
    inbox_call_t call;
    std::vector<std::vector<unsigned char>> in;
    std::vector<unsigned char> want; /* of out */
    unsigned char *device_in, *device_out;
    tpc_ar_params_t params;
};

static void fill(solo_t &solo, random_t &random, int rank) {
    inbox_call_t &call = solo.call;
    size_t bytes = inbox_bytes(&call), ranks = (size_t)call.size;
    bool scatters = call.form.coll == TPCOMM_REDUCE_SCATTER, gathers = call.form.coll == TPCOMM_ALL_GATHER;
    solo.in.assign(ranks, std::vector<unsigned char>(bytes * (scatters ? ranks : 1) + 1));
    for (size_t r = 0; r < ranks; r++) {
        for (unsigned char &byte : solo.in[r]) byte = random.chance(.1) ? 0xFF : (unsigned char)random.bits();
        call.in[r] = solo.in[r].data();
    }
    solo.want.assign(bytes * (gathers ? ranks : 1) + 1, 0);
    if (inbox_reduces(&call)) {
        const void *from[TPC_AR_MAX_RANKS];
        for (size_t r = 0; r < ranks; r++) from[r] = call.in[r] + (scatters ? (size_t)rank * bytes : 0);
        tpc_reduce_find_isa(TPC_REDUCE_GENERIC, call.dtype, call.op)(solo.want.data(), from, call.size, call.count);
    } else {
        for (size_t r = 0; r < (gathers ? ranks : 1); r++)
            memcpy(solo.want.data() + r * bytes, call.in[gathers ? r : (size_t)call.root], bytes);
    }
    call.result = solo.want.data();
    solo.device_in = allocate(rank, solo.in[0].size(), "in");
    solo.device_out = allocate(rank, solo.want.size(), "out");
    memcpy(solo.device_in, call.in[rank], solo.in[0].size());
}

static tpc_ar_params_t params_of(const solo_t &solo, int rank, const std::vector<unsigned char *> &workspace) {
    const inbox_call_t &call = solo.call;
    tpc_ar_params_t params = {};
    params.in = solo.device_in;
    params.out = solo.device_out;
    params.count = call.count;
    params.half_bytes = tpc_ar_half_bytes(call.size, SLOT);
    params.slot_bytes = SLOT;
    params.rank = rank;
    params.size = call.size;
    params.dtype = call.dtype;
    params.op = call.op;
    params.root = call.root;
    params.in_stride = params.out_stride = inbox_bytes(&call);
    params.ring_offset = (uint32_t)tpc_ar_workspace_bytes(call.size, SLOT);
    params.ring_blocks = call.ring.blocks;
    params.ring_piece = call.ring.piece_bytes;
    params.what = call.what;
    params.hash = call.hash;
    for (int k = 0; k < call.size; k++) params.workspace[k] = workspace[(size_t)(rank + k) % (size_t)call.size];
    return params;
}

/* Check a rank alone: two calls, one of each parity, whose packets and chunks lie in its workspace already: its
 * results, what it sends each peer, byte for byte, and that it leaves its own slots EMPTY and the ring's counts where
 * they are. */
std::string alone(config_t &config) {
    static const int sizes[] = {2, 3, 4, 5, 8};
    random_t random(config.seed * 0x9FB21C651E98DF25u + 3);
    int size = random.pick(sizes), rank = random.between(0, size - 1);
    begin(size, config);
    static const uint32_t pieces[] = {16, 64, 80};
    tpc_ar_ring_t ring = {(uint32_t)random.between(1, 3), random.pick(pieces)};
    size_t bytes = tpc_ar_workspace_bytes(size, SLOT) + tpc_ar_ring_bytes(size, ring);
    uint32_t position = random.chance(.5) ? 0u - random.below(6) : (uint32_t)random.bits(); /* in every block */
    uint32_t epoch = random.chance(.3) ? 0xFFFFFFFDu : (uint32_t)(random.bits() >> 33);
    std::vector<unsigned char> empty(bytes, 0xFF);
    memset(empty.data(), 0, sizeof(tpc_ar_header_t));
    ((tpc_ar_header_t *)(void *)empty.data())->timeout_ms = 1000;
    for (size_t b = 0; b < TPC_AR_MAX_BLOCKS; b++) memcpy(empty.data() + TPC_AR_EPOCH_OFFSET + 4 * b, &epoch, 4);
    for (uint32_t b = 0; b < ring.blocks; b++)
        for (size_t w = 0; w < TPC_AR_RING_LINE / 4; w++)
            memcpy(empty.data() + tpc_ar_workspace_bytes(size, SLOT) + b * TPC_AR_RING_LINE + 4 * w, &position, 4);
    std::vector<std::vector<unsigned char>> image((size_t)size, empty);
    std::vector<unsigned char *> workspace;
    for (int r = 0; r < size; r++) workspace.push_back(allocate(r, bytes, "workspace"));
    std::vector<solo_t> calls(2);
    uint32_t counted[INBOX_RING_BLOCKS] = {position, position, position, position};
    for (size_t i = 0; i < 2; i++) {
        inbox_call_t &call = calls[i].call;
        call = draw(random, size,
                    i == 0                 ? epoch
                    : epoch == 0xFFFFFFFDu ? 0
                                           : epoch + 1,
                    ring, TPC_AR_RING_DEPTH - (counted[0] - position));
        memcpy(call.ring_first, counted, sizeof counted);
        for (uint32_t b = 0; call.form.ring && b < call.ring_grid; b++) counted[b] += inbox_ring_chunks(&call);
        fill(calls[i], random, rank);
        for (int r = 0; r < size; r++) {
            if (r == rank) continue;
            inbox_put(&calls[i].call, r, rank, image[(size_t)rank].data());
        }
    }
    for (int r = 0; r < size; r++) memcpy(workspace[(size_t)r], image[(size_t)r].data(), bytes);
    bool early = random.chance(.5);
    for (solo_t &solo : calls) {
        tpc_ar_params_t params = params_of(solo, rank, workspace);
        params.early = early;
        params.lead = random.below(4);
        tpc_ar_shape_t shape = {random.between(1, 4), random.between(1, 40), random.between(1, 2)};
        if (solo.call.form.ring) shape = {(int32_t)solo.call.ring_grid, random.chance(.8) ? 32 : 64, 1};
        tpc_ar_launch(solo.call.form, &params, shape, (tpcomm_stream_t)(intptr_t)(rank + 1));
    }
    result_t result = run();
    if (result.outcome != FINISHED) return result.message;
    for (size_t i = 0; i < 2; i++)
        if (memcmp(calls[i].device_out, calls[i].want.data(), calls[i].want.size() - 1) != 0)
            return "call " + std::to_string(i) + " of rank " + std::to_string(rank) + " of " + std::to_string(size) +
                   " gave another result";
    for (int r = 0; r < size; r++) {
        if (r == rank) continue;
        for (const solo_t &solo : calls) inbox_put(&solo.call, rank, r, image[(size_t)r].data());
        if (memcmp(workspace[(size_t)r], image[(size_t)r].data(), bytes) != 0)
            return "rank " + std::to_string(rank) + " sends rank " + std::to_string(r) + " something else";
    }
    if (memcmp(workspace[(size_t)rank] + TPC_AR_SLOT_OFFSET, empty.data() + TPC_AR_SLOT_OFFSET,
               tpc_ar_workspace_bytes(size, SLOT) - TPC_AR_SLOT_OFFSET) != 0)
        return "slots are not EMPTY";
    for (uint32_t b = 0; b < ring.blocks; b++) /* all else in the ring's memory is its peers' */
        memcpy(inbox_ring_line(&calls[0].call, b, image[(size_t)rank].data()) + 4 * rank, &counted[b], 4);
    if (memcmp(workspace[(size_t)rank] + tpc_ar_workspace_bytes(size, SLOT),
               image[(size_t)rank].data() + tpc_ar_workspace_bytes(size, SLOT), tpc_ar_ring_bytes(size, ring)) != 0)
        return "the ring's memory is not what its peers sent, with the own count of chunks";
    return ((tpc_ar_header_t *)(void *)workspace[(size_t)rank])->fail != 0 ? "the rank failed" : "";
}
