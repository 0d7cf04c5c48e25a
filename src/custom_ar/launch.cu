/* SPDX-License-Identifier: Apache-2.0 */
/* Which family of kernels carries a form, and how much one launch of it carries. */
#include "launch.cuh"

static bool uses_sentinels(tpc_ar_form_t form, tpcomm_dtype_t dtype) {
    bool reduces = form.coll == TPCOMM_ALL_REDUCE || form.coll == TPCOMM_REDUCE_SCATTER;
    return reduces && (dtype == TPCOMM_F32 || dtype == TPCOMM_F16 || dtype == TPCOMM_BF16);
}

static uint32_t element_bytes(tpcomm_dtype_t dtype) {
    return (uint32_t)tpcomm_dtype_size(dtype); /* a barrier's is 0, as its count */
}

extern "C" size_t tpc_ar_packet_payload(tpc_ar_form_t form, tpcomm_dtype_t dtype) {
    return uses_sentinels(form, dtype) ? 16 : 8;
}

extern "C" size_t tpc_ar_capacity(tpc_ar_form_t form, tpcomm_dtype_t dtype, int32_t size, size_t slot_bytes) {
    if (form.ring) return SIZE_MAX;
    size_t slot = form.twoshot ? slot_bytes / 2 : slot_bytes; /* two phases have slots of their own */
    return slot / 16 * tpc_ar_packet_payload(form, dtype) * (form.twoshot ? (size_t)size : 1);
}

/* Part r of the message is rank r's. */
static void divide(tpc_ar_params_t &p, tpc_ar_form_t form, uint64_t bytes) {
    uint64_t unit = tpc_ar_packet_payload(form, p.dtype), ranks = (uint64_t)p.size, from;
    p.parts_bytes = bytes;
    p.own_bytes = p.longest_bytes = (uint32_t)bytes;
    if (!form.twoshot) return;
    p.in_stride = ((bytes + unit - 1) / unit + ranks - 1) / ranks * unit; /* whole packets, as equal as they come */
    from = (uint64_t)p.rank * p.in_stride;
    p.longest_bytes = (uint32_t)(bytes < p.in_stride ? bytes : p.in_stride);
    p.own_bytes = (uint32_t)(from >= bytes ? 0 : bytes - from < p.in_stride ? bytes - from : p.in_stride);
}

/* Parts as two-shot's, of any length; two ranks' is the message. Each block has as many chunks on all ranks. */
static void divide_ring(tpc_ar_params_t &p, uint64_t bytes, uint64_t blocks) {
    uint64_t ranks = (uint64_t)p.size, chunk = blocks * p.ring_piece;
    p.parts_bytes = bytes;
    p.in_stride = p.size == 2 ? bytes : ((bytes + 15) / 16 + ranks - 1) / ranks * 16;
    p.ring_chunks = (uint32_t)((p.in_stride + chunk - 1) / chunk);
}

/* Of a message that has been divided: what lies behind its last whole vector. Only the last part ends there. */
static void cut_tail(tpc_ar_params_t &p, tpc_ar_form_t form) {
    p.tail_bytes = (uint16_t)(p.parts_bytes % 16);
    p.parts_bytes -= p.tail_bytes;
    p.own_bytes -= p.own_bytes % 16;
    p.longest_bytes -= p.longest_bytes % 16;
    p.tail_owner = (int16_t)(form.twoshot || (form.ring && p.size > 2) ? p.parts_bytes / p.in_stride : 0);
}

static bool has_parts(tpc_ar_form_t form) {
    return form.twoshot || form.coll == TPCOMM_REDUCE_SCATTER;
}

extern "C" tpc_ar_kind_t tpc_ar_kind(tpc_ar_form_t form, const tpc_ar_params_t *params, int32_t vectors) {
    const tpc_ar_params_t &p = *params;
    if (!uses_sentinels(form, p.dtype)) return TPC_AR_RAW;
    /* Fast are sums of aligned messages, of as many ranks as there are kernels for. */
    uint64_t bytes = p.count * element_bytes(p.dtype), places = (uint64_t)(uintptr_t)p.in | (uint64_t)(uintptr_t)p.out;
    if (form.coll == TPCOMM_REDUCE_SCATTER) places |= p.in_stride | bytes; /* each rank's part would have a tail */
    bool fast = bytes > 0 && places % 16 == 0 && p.op == TPCOMM_SUM && p.size <= 8;
    if (form.ring) return fast ? TPC_AR_RING_FAST : TPC_AR_RING_GENERAL;
    if (has_parts(form)) return !fast ? TPC_AR_TWOSHOT_GENERAL : p.early ? TPC_AR_TWOSHOT_EARLY : TPC_AR_TWOSHOT_FAST;
    if (!fast) return TPC_AR_ONESHOT_GENERAL;
    if (p.early) return TPC_AR_ONESHOT_EARLY;
    return p.size > 2 || vectors < 2 ? TPC_AR_ONESHOT_1 : TPC_AR_ONESHOT_2;
}

extern "C" bool tpc_ar_is_fast(tpc_ar_kind_t kind) {
    return kind != TPC_AR_ONESHOT_GENERAL && kind != TPC_AR_TWOSHOT_GENERAL && kind != TPC_AR_RING_GENERAL &&
           kind != TPC_AR_RAW;
}

extern "C" size_t tpc_ar_kernels(tpc_ar_kind_t kind, int32_t size, const void *kernels[TPC_AR_KERNELS_MAX]) {
    if (kind == TPC_AR_RAW) return tpc_ar_raw_kernels(kernels);
    if (kind == TPC_AR_RING_FAST || kind == TPC_AR_RING_GENERAL) return tpc_ar_ring_kernels(kind, size, kernels);
    if (kind == TPC_AR_TWOSHOT_FAST || kind == TPC_AR_TWOSHOT_EARLY || kind == TPC_AR_TWOSHOT_GENERAL)
        return tpc_ar_twoshot_kernels(kind, size, kernels);
    return tpc_ar_oneshot_kernels(kind, size, kernels);
}

extern "C" int tpc_ar_launch(tpc_ar_form_t form, tpc_ar_params_t *params, tpc_ar_shape_t shape,
                             tpcomm_stream_t stream) {
    tpc_ar_kind_t kind = tpc_ar_kind(form, params, shape.vectors);
    tpc_ar_params_t &p = *params; /* hundreds of bytes: each copy of them is time of the calling thread */
    uint32_t element = element_bytes(p.dtype);
    p.work_threads = shape.threads;
    p.tail_bytes = 0;
    if (form.ring) {
        divide_ring(p, p.count * element, (uint64_t)shape.blocks);
        if (tpc_ar_is_fast(kind)) cut_tail(p, form);
        shape.threads = p.work_threads += TPC_AR_RING_SIGNALLERS;
        return tpc_ar_launch_ring(&p, kind, shape, stream);
    }
    if (uses_sentinels(form, p.dtype) || has_parts(form)) divide(p, form, p.count * element);
    if (tpc_ar_is_fast(kind)) cut_tail(p, form);
    uint64_t longest = has_parts(form) ? p.longest_bytes : p.count * element;
    uint64_t turn = 16ull * (uint64_t)shape.blocks * (uint64_t)shape.threads * (kind == TPC_AR_ONESHOT_2 ? 2 : 1);
    uint64_t turns = (longest + turn - 1) / turn;
    if (p.lead > turns) p.lead = (uint32_t)turns;
    if (p.lead == 0) p.lead = 1;
    switch (kind) {
    case TPC_AR_RAW:
        return tpc_ar_launch_raw(form, &p, shape, element, stream);
    case TPC_AR_TWOSHOT_FAST:
    case TPC_AR_TWOSHOT_EARLY:
    case TPC_AR_TWOSHOT_GENERAL:
        return tpc_ar_launch_twoshot(&p, kind, shape, form.twoshot, stream);
    default:
        return tpc_ar_launch_oneshot(&p, kind, shape, stream);
    }
}
