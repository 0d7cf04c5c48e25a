/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of ranks in the harness. */
#include "group.h"

#include <stdio.h>
#include <string.h>

extern "C" {
#include "cpu_backend/reduce.h"
}

using hostrun::random_t;

static const tpcomm_dtype_t dtypes[] = {TPCOMM_F32, TPCOMM_F16, TPCOMM_BF16,    TPCOMM_I8,
                                        TPCOMM_U8,  TPCOMM_I32, TPCOMM_I64,     TPCOMM_U32,
                                        TPCOMM_U64, TPCOMM_F64, TPCOMM_F8_E4M3, TPCOMM_F8_E5M2};
static const tpcomm_op_t ops[] = {TPCOMM_SUM, TPCOMM_AVG, TPCOMM_MAX, TPCOMM_MIN, TPCOMM_PROD};

static size_t element_bytes(tpcomm_dtype_t dtype) {
    return tpcomm_dtype_size(dtype);
}

static bool reduces(const call_t &call) {
    return call.coll == TPCOMM_ALL_REDUCE || call.coll == TPCOMM_REDUCE_SCATTER;
}

static tpc_ar_form_t form_of(const call_t &call) {
    tpc_ar_form_t form = {call.coll, call.twoshot, call.ring};
    return form;
}

static tpc_reduce_fn_t reference(const call_t &call) {
    return tpc_reduce_find_isa(TPC_REDUCE_GENERIC, call.dtype, call.op);
}

std::string describe(const call_t &call) {
    return (call.ring      ? "ring "
            : call.twoshot ? "two-shot "
                           : "") +
           std::string(tpcomm_coll_name(call.coll)) + " of " + std::to_string(call.count) + " " +
           tpcomm_dtype_name(call.dtype) + (reduces(call) ? std::string(", ") + tpcomm_op_name(call.op) : "") +
           (call.coll == TPCOMM_BROADCAST ? ", root " + std::to_string(call.root) : "");
}

static std::string where(size_t call, int rank, const call_t &what) {
    return "call " + std::to_string(call) + " (" + describe(what) + ") on rank " + std::to_string(rank);
}

/* ------------------------------------------------------------------ workspaces */

group_t::group_t(int size, size_t slot_bytes, uint32_t first_epoch, random_t &random, tpc_ar_ring_t ring)
    : size(size), early(random.chance(.4)), slot_bytes(slot_bytes), ring(ring), first_epoch(first_epoch),
      random(random) {
    for (int r = 0; r < size; r++) {
        size_t bytes = tpc_ar_workspace_bytes(size, slot_bytes) + tpc_ar_ring_bytes(size, ring);
        unsigned char *memory = hostrun::allocate(r, bytes, "workspace");
        memset(memory, 0xFF, bytes);
        memset(memory, 0, sizeof(tpc_ar_header_t));
        memset(memory + TPC_AR_WAITS_OFFSET, 0, sizeof(tpc_ar_waits_t));
        ((tpc_ar_header_t *)memory)->timeout_ms = 1000;
        for (size_t b = 0; b < TPC_AR_MAX_BLOCKS; b++) ((uint32_t *)(memory + TPC_AR_EPOCH_OFFSET))[b] = first_epoch;
        workspace.push_back(memory);
        report.push_back((tpc_ar_report_t *)hostrun::allocate(r, sizeof(tpc_ar_report_t), "report"));
        host_fail.push_back((uint64_t *)hostrun::allocate(r, 8, "abort word"));
        host_pulse.push_back((uint64_t *)hostrun::allocate(r, 8, "pulse"));
        memset(report.back(), 0, sizeof(tpc_ar_report_t));
        *host_fail.back() = *host_pulse.back() = 0;
    }
}

/* From 0xFFFFFFFD to 0; written here once more, so that the kernels' own rule has something to be compared with. */
uint32_t group_t::epoch_of(size_t call) const {
    uint32_t epoch = first_epoch;
    for (size_t i = 0; i < call; i++) epoch = epoch == 0xFFFFFFFDu ? 0 : epoch + 1;
    return epoch;
}

/* ------------------------------------------------------------------ calls */

call_t group_t::draw_call() {
    static const tpcomm_coll_t colls[] = {TPCOMM_ALL_REDUCE, TPCOMM_ALL_REDUCE,     TPCOMM_ALL_REDUCE,
                                          TPCOMM_ALL_REDUCE, TPCOMM_REDUCE_SCATTER, TPCOMM_BROADCAST,
                                          TPCOMM_ALL_GATHER, TPCOMM_BARRIER};
    call_t call = {random.pick(colls), random.pick(dtypes), random.pick(ops), random.between(0, size - 1), 0, false};
    call.twoshot = call.coll == TPCOMM_ALL_REDUCE && random.chance(.5);
    if (random.chance(.5)) { /* what the fast kernels are for */
        call.dtype = dtypes[random.below(3)];
        call.op = TPCOMM_SUM;
    }
    while (reduces(call) && reference(call) == nullptr) {
        call.dtype = random.pick(dtypes);
        call.op = random.pick(ops);
    }
    if (call.coll == TPCOMM_BARRIER) call.dtype = TPCOMM_U8;
    size_t most = tpc_ar_capacity(form_of(call), call.dtype, size, slot_bytes) / element_bytes(call.dtype);
    if (call.coll == TPCOMM_BARRIER) return call;
    call.count = random.below((uint32_t)most + 1);
    if (random.chance(.5)) call.count = random.below((uint32_t)(most < 40 ? most : 40) + 1);
    if (random.chance(.1)) call.count = most;
    if (random.chance(.4)) call.count -= call.count % (16 / element_bytes(call.dtype)); /* whole vectors */
    return call;
}

call_t group_t::draw_ring_call() {
    call_t call = {TPCOMM_ALL_REDUCE, dtypes[random.below(3)], TPCOMM_SUM, 0, 0, false, true};
    if (random.chance(.5)) call.op = random.pick(ops);
    size_t chunk = (size_t)(size == 2 ? 1 : size) * ring.piece_bytes / element_bytes(call.dtype);
    call.count = random.below((uint32_t)(chunk * (random.chance(.5) ? 3 : 14)) + 1);
    if (random.chance(.6)) call.count -= call.count % (16 / element_bytes(call.dtype)); /* whole vectors */
    return call;
}

/* Whole warps. */
tpc_ar_shape_t group_t::draw_ring_shape() {
    return {random.between(1, (int)ring.blocks), random.chance(.8) ? 32 : 64, 1};
}

tpc_ar_shape_t group_t::draw_shape() {
    static const int threads[] = {1, 2, 7, 8, 16, 32, 48};
    tpc_ar_shape_t shape = {random.between(1, 4), random.pick(threads), random.between(1, 2)};
    if (whole_warps) shape.threads = shape.threads > 32 ? 64 : 32;
    return shape;
}

void group_t::fill(unsigned char *at, size_t bytes, payload_t payload) {
    uint32_t epoch = epoch_of(made.size());
    const uint32_t words[] = {0xFFFFFFFFu, epoch,       epoch + 1,   epoch - 1,   0xFFFFu,     0xFFFF0000u,
                              0x7FFF7FFFu, 0x7FFFFFFFu, 0x80000000u, 0x80008000u, 0,           1,
                              0x00010001u, 0x007FFFFFu, 0xFFFEFFFEu, 0x7F800001u, 0xFF800000u, 0x7C01FC01u,
                              0xFFFFFFFEu, 0x7F7FFFFFu, 0x3F803F80u};
    uint32_t one = random.pick(words);
    bool alike = random.chance(.3);
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t word = (uint32_t)random.bits();
        if (payload == HOSTILE) word = alike ? one : random.pick(words);
        memcpy(at + i, &word, bytes - i < 4 ? bytes - i : 4);
    }
}

part_t group_t::make_part(int rank, const call_t &call, payload_t payload, bool aligned) {
    static const size_t shifts[] = {0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 6, 8, 12, 13};
    part_t part = {};
    size_t bytes = call.count * element_bytes(call.dtype), ranks = (size_t)size;
    bool gather = call.coll == TPCOMM_ALL_GATHER, scatter = call.coll == TPCOMM_REDUCE_SCATTER;
    bool in_place = random.chance(.3);
    size_t in_shift = aligned ? 0 : random.pick(shifts);
    part.made = true;
    part.part_bytes = bytes;
    part.in_stride = bytes;
    part.in_bytes = scatter ? ranks * bytes : bytes;
    part.out_parts = gather ? ranks : 1;
    part.out_stride = bytes + (gather && random.chance(.3) ? random.below(40) : 0);
    part.out_shift = aligned ? 0 : random.pick(shifts);
    /* The end of a buffer is the end of its allocation: what goes further shows at once. */
    size_t out_bytes = part.out_shift + part.out_stride * (part.out_parts - 1) + bytes;
    if (scatter && in_place) { /* out is this rank's part of in; the others stay as they are */
        part.out_shift += (size_t)rank * bytes;
        out_bytes = part.out_shift + (ranks - (size_t)rank) * bytes;
    }
    part.out = hostrun::allocate(rank, out_bytes + (out_bytes == 0), "out") + part.out_shift;
    if (in_place)
        part.in = gather    ? part.out + (size_t)rank * part.out_stride
                  : scatter ? part.out - (size_t)rank * bytes
                            : part.out;
    else
        part.in = hostrun::allocate(rank, in_shift + part.in_bytes + (in_shift + part.in_bytes == 0), "in") + in_shift;
    fill(part.in, part.in_bytes, payload);
    part.in_before.assign(part.in, part.in + part.in_bytes);
    if (in_place) part.in_before.clear();
    part.out_before.assign(part.out - part.out_shift, part.out - part.out_shift + out_bytes);
    return part;
}

tpc_ar_params_t group_t::base_params(int rank) const {
    tpc_ar_params_t params = {};
    for (int k = 0; k < size; k++) params.workspace[k] = workspace[(size_t)((rank + k) % size)];
    params.slot_bytes = (uint32_t)slot_bytes;
    params.half_bytes = tpc_ar_half_bytes(size, slot_bytes);
    params.ring_offset = (uint32_t)tpc_ar_workspace_bytes(size, slot_bytes);
    params.ring_blocks = ring.blocks;
    params.ring_piece = ring.piece_bytes;
    params.host_fail = host_fail[(size_t)rank];
    params.host_pulse = host_pulse[(size_t)rank];
    params.report = report[(size_t)rank];
    params.rank = rank;
    params.size = size;
    return params;
}

void group_t::note_call() {
    made.push_back({TPCOMM_BARRIER, TPCOMM_U8, TPCOMM_SUM, 0, 0, false});
    parts.emplace_back((size_t)size, part_t());
}

void group_t::launch(int rank, const call_t &call, part_t &part, tpc_ar_shape_t shape) {
    tpc_ar_params_t params = base_params(rank);
    params.in = part.in;
    params.out = part.out;
    params.count = call.count;
    params.in_stride = part.in_stride;
    params.out_stride = part.out_stride;
    params.what = (uint32_t)call.coll | (uint32_t)call.dtype << 8 | (uint32_t)call.op << 16 |
                  (uint32_t)call.twoshot << 24 | (uint32_t)call.ring << 25;
    params.hash = (uint32_t)call.count * 2654435761u ^ (uint32_t)call.root;
    params.dtype = call.dtype;
    params.op = call.op;
    params.root = call.root;
    params.early = early && random.chance(.7);
    params.lead = random.below(5);
    tpc_ar_launch(form_of(call), &params, shape, (tpcomm_stream_t)(intptr_t)(rank + 1));
}

void group_t::expect(const call_t &call, std::vector<part_t> &all) {
    size_t bytes = call.count * element_bytes(call.dtype);
    std::vector<unsigned char> result(bytes);
    for (size_t r = 0; r < all.size(); r++) {
        size_t from = call.coll == TPCOMM_REDUCE_SCATTER ? r * bytes : 0; /* in in, what rank r gets */
        std::vector<const void *> in;
        for (const part_t &part : all) in.push_back(part.in + from);
        if (reduces(call) && call.count > 0) {
            if (r == 0 || from > 0) reference(call)(result.data(), in.data(), size, call.count);
        } else if (call.coll == TPCOMM_BROADCAST) {
            result.assign(all[(size_t)call.root].in, all[(size_t)call.root].in + bytes);
        } else if (call.coll == TPCOMM_ALL_GATHER) {
            result.clear();
            for (const part_t &part : all) result.insert(result.end(), part.in, part.in + bytes);
        }
        all[r].expected = result;
    }
}

void group_t::make(const call_t &call, payload_t payload) {
    make_each(std::vector<call_t>((size_t)size, call), payload);
}

void group_t::make_each(const std::vector<call_t> &calls, payload_t payload) {
    std::vector<part_t> all;
    bool rings = false;
    for (const call_t &call : calls) rings = rings || call.ring;
    tpc_ar_shape_t shape = rings ? draw_ring_shape() : draw_shape();
    bool aligned = random.chance(.3);        /* on all ranks, which then take the same kernel, whatever the length */
    bool alike = rings || random.chance(.7); /* no rank depends on another's grid, but in a ring */
    for (int r = 0; r < size; r++)
        all.push_back(calls[(size_t)r].count == SIZE_MAX ? part_t() : make_part(r, calls[(size_t)r], payload, aligned));
    bool equal = true;
    for (const call_t &call : calls) equal = equal && describe(call) == describe(calls[0]);
    if (equal) expect(calls[0], all); /* else there is no right result */
    for (int r = 0; r < size; r++)
        if (all[(size_t)r].made) launch(r, calls[(size_t)r], all[(size_t)r], alike ? shape : draw_shape());
    size_t first = 0;
    while (calls[first].count == SIZE_MAX) first++;
    made.push_back(calls[first]);
    parts.push_back(std::move(all));
}

/* ------------------------------------------------------------------ checks */

/** want: the parts, one after the other; what lies between and before them must be as it was. */
std::string group_t::check_part(size_t call, int rank, const std::vector<unsigned char> &want) const {
    const part_t &part = parts[call][(size_t)rank];
    std::vector<unsigned char> all = part.out_before;
    for (size_t p = 0; p < part.out_parts && !want.empty(); p++)
        memcpy(all.data() + part.out_shift + p * part.out_stride, want.data() + p * part.part_bytes, part.part_bytes);
    const unsigned char *out = part.out - part.out_shift;
    for (size_t i = 0; i < all.size(); i++) {
        if (out[i] == all[i]) continue;
        char text[160];
        snprintf(text, sizeof(text), ": byte %td of out (%zu-byte parts) is %02x, want %02x",
                 (ptrdiff_t)i - (ptrdiff_t)part.out_shift, part.part_bytes, out[i], all[i]);
        return where(call, rank, made[call]) + text;
    }
    if (!part.in_before.empty() && memcmp(part.in, part.in_before.data(), part.in_before.size()) != 0)
        return where(call, rank, made[call]) + ": the input was changed";
    return "";
}

std::string group_t::check_results(size_t first, size_t end) const {
    std::string wrong;
    for (size_t call = first; call < end && wrong.empty(); call++)
        for (int r = 0; r < size && wrong.empty(); r++)
            if (parts[call][(size_t)r].made) wrong = check_part(call, r, parts[call][(size_t)r].expected);
    return wrong;
}

std::string group_t::check_given_up(int rank, size_t first, size_t end) const {
    std::string wrong;
    for (size_t call = first; call < end && wrong.empty(); call++) {
        const part_t &part = parts[call][(size_t)rank];
        std::vector<unsigned char> want; /* nothing is written */
        if (!part.made || made[call].coll == TPCOMM_BARRIER) continue;
        if (reduces(made[call])) {
            want.assign(part.part_bytes, 0);
            size_t width = element_bytes(made[call].dtype);
            bool is_float = made[call].dtype == TPCOMM_F64 || made[call].dtype <= TPCOMM_BF16;
            if (is_float)
                for (size_t i = 0; i < want.size(); i++) want[i] = i % width == width - 1 ? 0x7F : 0xFF;
        }
        wrong = check_part(call, rank, want);
    }
    return wrong;
}

std::string group_t::check_epochs(int rank, size_t calls_made) const {
    const uint32_t *epochs = (const uint32_t *)(workspace[(size_t)rank] + TPC_AR_EPOCH_OFFSET);
    for (size_t b = 0; b < TPC_AR_MAX_BLOCKS; b++) {
        if (epochs[b] == epoch_of(calls_made)) continue;
        char text[120];
        snprintf(text, sizeof(text), "rank %d's epoch word %zu is %#x after %zu calls, want %#x", rank, b, epochs[b],
                 calls_made, epoch_of(calls_made));
        return text;
    }
    return "";
}

/* All flags of all ranks count as many chunks as their owner's own count of its block. */
std::string group_t::check_ring() const {
    for (int r = 0; r < size; r++)
        for (uint32_t b = 0; b < ring.blocks; b++) {
            const unsigned char *line = workspace[(size_t)r] + tpc_ar_workspace_bytes(size, slot_bytes);
            const uint32_t *flags = (const uint32_t *)(line + b * TPC_AR_RING_LINE);
            for (int kind = 0; kind < (size > 2 ? 2 : 1); kind++)
                for (int source = 0; source < size; source++)
                    if (source != r && flags[kind * TPC_AR_MAX_RANKS + source] != flags[r])
                        return "rank " + std::to_string(r) + " block " + std::to_string(b) + " counts " +
                               std::to_string(flags[r]) + " chunks, kind " + std::to_string(kind) + " of rank " +
                               std::to_string(source) + " is " +
                               std::to_string(flags[kind * TPC_AR_MAX_RANKS + source]);
        }
    return "";
}

std::string group_t::check_rest() const {
    for (int r = 0; r < size; r++) {
        std::string wrong = check_epochs(r, made.size());
        if (!wrong.empty()) return wrong;
        if (header(r)->fail != 0 || report[(size_t)r]->word != 0)
            return "rank " + std::to_string(r) + " failed: " + std::to_string(failure(r));
        if (header(r)->running != 0)
            return "rank " + std::to_string(r) + " has " + std::to_string(header(r)->running) +
                   " left of running calls";
        size_t end = tpc_ar_workspace_bytes(size, slot_bytes);
        for (size_t i = TPC_AR_SLOT_OFFSET; i < end; i++) {
            if (workspace[(size_t)r][i] == 0xFF) continue;
            char text[120];
            snprintf(text, sizeof(text), "rank %d's slots are not EMPTY: byte %zu is %02x", r, i - TPC_AR_SLOT_OFFSET,
                     workspace[(size_t)r][i]);
            return text;
        }
    }
    return check_ring();
}
