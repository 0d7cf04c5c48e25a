/* SPDX-License-Identifier: Apache-2.0 */
#include "lane.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "device_data.h"

enum { WRONG_SHOWN_MAX = 3 };

/* ---------------------------------------------------------------- work */

void bench_work_bytes(const bench_work_t *work, int32_t ranks, uint64_t *in_p, uint64_t *out_p) {
    uint64_t bytes = tpc_coll_moves_data(work->coll) ? work->count * tpcomm_dtype_size(work->dtype) : 0;
    *in_p = bytes * (work->coll == TPCOMM_REDUCE_SCATTER ? (uint64_t)ranks : 1);
    *out_p = bytes * (work->coll == TPCOMM_ALL_GATHER ? (uint64_t)ranks : 1);
}

uint64_t bench_work_message(const bench_work_t *work, int32_t ranks) {
    uint64_t in, out;
    bench_work_bytes(work, ranks, &in, &out);
    return in > out ? in : out;
}

static uint64_t round_up(uint64_t bytes) {
    return (bytes + BENCH_ALIGNMENT - 1) / BENCH_ALIGNMENT * BENCH_ALIGNMENT;
}

/** Calls of a batch that each have buffers of their own, as far as there are that many. */
static uint64_t cold_calls(const bench_lane_t *lane) {
    enum { CPU_CALLS = 128 };
    return lane->device->gpu ? (uint64_t)lane->spec.calls + 1 : CPU_CALLS;
}

bench_layout_t bench_lane_layout(const bench_lane_t *lane, const bench_work_t *work) {
    bench_layout_t layout;
    bench_work_bytes(work, lane->ranks, &layout.in_bytes, &layout.out_bytes);
    layout.stride = round_up(layout.in_bytes > layout.out_bytes ? layout.in_bytes : layout.out_bytes);
    uint64_t mean = layout.in_bytes / 2 + layout.out_bytes / 2;
    layout.pairs = lane->spec.cold ? bench_rotation_cold_pairs(mean, cold_calls(lane), lane->flush_bytes)
                                   : bench_rotation_pairs(mean);
    while (layout.pairs > 2 && layout.pairs * layout.stride > lane->region_bytes) layout.pairs--;
    return layout;
}

/* ---------------------------------------------------------------- the lane */

static void set_comm(bench_lane_t *lane, tpcomm_t *comm) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    lane->comm = comm;
    if (tpcomm_comm_info(comm, &info) != TPCOMM_OK) return;
    lane->rank = info.rank;
    lane->ranks = info.size;
    tpcomm_rank_info_t first = {.struct_size = sizeof first};
    lane->same_host = tpcomm_rank_info(comm, 0, &first) == TPCOMM_OK;
    for (int32_t r = 1; r < info.size && lane->same_host; r++) {
        tpcomm_rank_info_t other = {.struct_size = sizeof other};
        lane->same_host = tpcomm_rank_info(comm, r, &other) == TPCOMM_OK && strcmp(first.host, other.host) == 0;
    }
    lane->stats_count = 0;
    for (tpcomm_stats_t stats = {.struct_size = sizeof stats}; lane->stats_count < TPC_PATH_END; lane->stats_count++)
        if (tpcomm_stats(comm, lane->stats_count, &stats) != TPCOMM_OK) break; /* past the last */
}

static tpcomm_status_t allocate(bench_lane_t *lane, uint64_t bytes, unsigned char **region_p) {
    void *region = NULL;
    tpcomm_status_t status = bench_device_alloc(lane->device, bytes, &region);
    if (status == TPCOMM_OK) *region_p = region;
    return status;
}

/** How great the regions are: the same on all ranks, since calls must meet in the same pair everywhere. */
static tpcomm_status_t size_regions(bench_lane_t *lane) {
    const uint64_t least = UINT64_C(64) << 20, most = UINT64_C(256) << 20;
    uint64_t one = round_up(lane->spec.message_bytes ? lane->spec.message_bytes : 1), turned = one * BENCH_ROTATION_MAX;
    double flush = 2.0 * (double)bench_device_cache_bytes(lane->device);
    tpcomm_status_t status = bench_gather_max(lane->comm, &flush, 1);
    if (turned > BENCH_HOT_BYTES) turned = BENCH_HOT_BYTES;
    if (lane->spec.cold) {
        lane->flush_bytes = flush < (double)least ? least : flush > (double)most ? most : round_up((uint64_t)flush);
        turned = one * cold_calls(lane);
        if (turned > lane->flush_bytes / 2 + one) turned = lane->flush_bytes / 2 + one;
    }
    lane->region_bytes = round_up(2 * one > turned ? 2 * one : turned);
    return status;
}

static tpcomm_status_t allocate_all(bench_lane_t *lane) {
    const bench_lane_spec_t *spec = &lane->spec;
    uint64_t bytes = lane->region_bytes;
    tpcomm_status_t status = allocate(lane, bytes, &lane->own.in);
    if (status == TPCOMM_OK) status = allocate(lane, bytes, &lane->own.out);
    if (status == TPCOMM_OK && spec->hidden) status = allocate(lane, bytes, &lane->residual);
    if (status == TPCOMM_OK && spec->hidden) status = allocate(lane, bytes, &lane->residual_from);
    if (status == TPCOMM_OK && spec->hidden) status = allocate(lane, spec->hidden * sizeof(float), &lane->weight);
    if (status == TPCOMM_OK && spec->chain) status = allocate(lane, bytes, &lane->made);
    if (status == TPCOMM_OK && spec->chain) status = allocate(lane, bytes, &lane->seen);
    if (status == TPCOMM_OK && spec->cold) status = allocate(lane, lane->flush_bytes, &lane->flush);
    if (status == TPCOMM_OK && spec->chain && lane->device->gpu) status = bench_gpu_load_kernels(lane->device->gpu);
    return status;
}

/** NCCL is a guest: where it does not come, its variants are not measured, and say why. */
static tpcomm_status_t invite_nccl(bench_lane_t *lane) {
    if (!lane->spec.nccl && !lane->spec.window) return TPCOMM_OK;
    tpcomm_status_t status =
        bench_nccl_open(lane->comm, lane->device, lane->nccl_missing, sizeof lane->nccl_missing, &lane->nccl);
    if (status != TPCOMM_OK || !lane->spec.window) return status;
    if (!lane->nccl) {
        memcpy(lane->window_missing, lane->nccl_missing, sizeof lane->window_missing);
        return TPCOMM_OK;
    }
    void *in = NULL, *out = NULL;
    status = bench_nccl_window(lane->nccl, lane->region_bytes, lane->window_missing, sizeof lane->window_missing, &in);
    if (status == TPCOMM_OK && in)
        status =
            bench_nccl_window(lane->nccl, lane->region_bytes, lane->window_missing, sizeof lane->window_missing, &out);
    lane->window.in = in;
    lane->window.out = out;
    return status;
}

tpcomm_status_t bench_lane_new(const char *name, tpcomm_t *comm, bench_device_t *device, const bench_lane_spec_t *spec,
                               const bench_fault_t *fault, bench_lane_t **lane_p) {
    bench_lane_t *lane = calloc(1, sizeof *lane);
    tpcomm_status_t status = bench_agree(comm, lane ? TPCOMM_OK : tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory"));
    if (status != TPCOMM_OK) {
        free(lane);
        return status;
    }
    *lane = (bench_lane_t){.name = name, .world = comm, .device = device, .fault = fault, .spec = *spec};
    set_comm(lane, comm);
    status = size_regions(lane);
    if (status == TPCOMM_OK) status = bench_agree(comm, allocate_all(lane));
    if (status == TPCOMM_OK) status = bench_agree(comm, invite_nccl(lane));
    if (status != TPCOMM_OK) {
        bench_lane_free(lane);
        return status;
    }
    *lane_p = lane;
    return TPCOMM_OK;
}

void bench_lane_free(bench_lane_t *lane) {
    if (!lane) return;
    /* No free while a peer's kernel waits. */
    if (bench_device_sync(lane->device) == TPCOMM_OK) (void)tpcomm_host_barrier(lane->world, 0);
    bench_nccl_close(lane->nccl);
    for (size_t i = 0; i < 2; i++) bench_data_free(lane->data[i]);
    unsigned char *regions[] = {lane->own.in, lane->own.out, lane->residual, lane->residual_from,
                                lane->weight, lane->made,    lane->seen,     lane->flush};
    for (size_t i = 0; i < sizeof regions / sizeof regions[0]; i++) bench_device_free(lane->device, regions[i]);
    free(lane);
}

tpcomm_status_t bench_lane_status(const bench_lane_t *lane) {
    tpcomm_error_t error = {.struct_size = sizeof error};
    tpcomm_status_t status = tpcomm_async_status(lane->comm, NULL);
    if (status == TPCOMM_OK) return TPCOMM_OK;
    if (tpcomm_async_status(lane->comm, &error) == TPCOMM_OK) return TPCOMM_OK;
    return tpc_error(status, "%s", error.text);
}

tpcomm_status_t bench_lane_settle(bench_lane_t *lane) {
    tpcomm_status_t status = bench_device_sync(lane->device);
    if (status == TPCOMM_OK) status = bench_lane_status(lane);
    return status == TPCOMM_OK ? tpcomm_host_barrier(lane->comm, 0) : status;
}

tpcomm_status_t bench_lane_cool(bench_lane_t *lane) {
    return bench_device_fill(lane->device, lane->flush, (uint8_t)++lane->flushes, lane->flush_bytes);
}

void bench_lane_use(bench_lane_t *lane, tpcomm_t *comm) {
    set_comm(lane, comm ? comm : lane->world);
}

tpcomm_status_t bench_lane_data(bench_lane_t *lane, const bench_work_t *work, uint64_t seed, bool exact,
                                bench_data_t **data_p) {
    bench_data_spec_t spec = {.dtype = work->dtype,
                              .op = tpc_coll_reduces(work->coll) ? work->op : 0,
                              .rank = lane->rank,
                              .ranks = lane->ranks,
                              .seed = seed,
                              .exact = exact,
                              .hidden = work->hidden};
    const bench_data_spec_t *now = &lane->data_of;
    if (lane->data_coll != work->coll || now->dtype != spec.dtype || now->op != spec.op || now->rank != spec.rank ||
        now->ranks != spec.ranks || now->seed != seed || now->hidden != spec.hidden) {
        for (size_t i = 0; i < 2; i++) bench_data_free(lane->data[i]);
        memset(lane->data, 0, sizeof lane->data);
        lane->own.filled = lane->window.filled = NULL;
        lane->data_of = spec;
        lane->data_coll = work->coll;
    }
    if (!lane->data[exact]) {
        tpcomm_status_t status = bench_data_new(&spec, &lane->data[exact]);
        if (status != TPCOMM_OK) return status;
    }
    *data_p = lane->data[exact];
    return TPCOMM_OK;
}

/* ---------------------------------------------------------------- buffers */

static unsigned char *pair_of(unsigned char *region, const bench_layout_t *layout, uint32_t pair) {
    return region + pair * layout->stride;
}

/** Where in an in-place buffer this rank's smaller part is. */
static uint64_t own_offset(const bench_act_t *act) {
    const bench_layout_t *layout = &act->layout;
    uint64_t less = layout->in_bytes < layout->out_bytes ? layout->in_bytes : layout->out_bytes;
    return layout->in_bytes == layout->out_bytes ? 0 : (uint64_t)act->lane->rank * less;
}

static bench_regions_t *regions_of(const bench_act_t *act) {
    return act->variant.doer == BENCH_NCCL_WINDOW ? &act->lane->window : &act->lane->own;
}

tpcomm_status_t bench_act_fill(bench_act_t *act) {
    bench_lane_t *lane = act->lane;
    bench_regions_t *regions = regions_of(act);
    size_t size = tpcomm_dtype_size(act->work->dtype);
    if (!tpc_coll_moves_data(act->work->coll)) return TPCOMM_OK;
    if (regions->filled == act->data && regions->filled_count == act->work->count) return TPCOMM_OK;
    uint64_t count = act->layout.in_bytes / size;
    tpcomm_status_t status = TPCOMM_OK;
    for (uint32_t pair = 0; pair < act->layout.pairs && status == TPCOMM_OK; pair++) {
        status = bench_device_put_data(lane->device, act->data, BENCH_INPUT, pair,
                                       pair_of(regions->in, &act->layout, pair), count);
        if (status == TPCOMM_OK && act->work->hidden)
            status = bench_device_put_data(lane->device, act->data, BENCH_RESIDUAL, pair,
                                           pair_of(lane->residual_from, &act->layout, pair), count);
    }
    if (status == TPCOMM_OK && act->work->hidden)
        status = bench_device_put_data(lane->device, act->data, BENCH_WEIGHT, 0, lane->weight, act->work->hidden);
    if (status != TPCOMM_OK) return status;
    regions->filled = act->data;
    regions->filled_count = act->work->count;
    return TPCOMM_OK;
}

tpcomm_status_t bench_act_reset(bench_act_t *act) {
    bench_lane_t *lane = act->lane;
    bench_device_t *device = lane->device;
    const bench_regions_t *regions = regions_of(act);
    const bench_layout_t *layout = &act->layout;
    bool has_input = act->work->coll != TPCOMM_BROADCAST || act->work->root == lane->rank;
    tpcomm_status_t status = TPCOMM_OK;
    for (uint32_t pair = 0; pair < layout->pairs && status == TPCOMM_OK; pair++) {
        unsigned char *out = pair_of(regions->out, layout, pair);
        status =
            bench_device_fill(device, out, BENCH_POISON, act->variant.in_place ? layout->stride : layout->out_bytes);
        if (status == TPCOMM_OK && act->work->hidden)
            status = bench_device_copy(device, pair_of(lane->residual, layout, pair),
                                       pair_of(lane->residual_from, layout, pair), layout->in_bytes);
        if (status == TPCOMM_OK && act->variant.setting != BENCH_BARE)
            status = bench_device_fill(device, pair_of(lane->made, layout, pair), BENCH_POISON, layout->in_bytes);
        if (status == TPCOMM_OK && act->variant.setting != BENCH_BARE)
            status = bench_device_fill(device, pair_of(lane->seen, layout, pair), BENCH_POISON, layout->out_bytes);
        if (status != TPCOMM_OK || !act->variant.in_place || !has_input) continue;
        uint64_t offset = act->work->coll == TPCOMM_ALL_GATHER ? own_offset(act) : 0;
        status = bench_device_copy(device, out + offset, pair_of(regions->in, layout, pair), layout->in_bytes);
    }
    return status;
}

bool bench_act_accumulates(const bench_act_t *act) {
    return tpc_coll_moves_data(act->work->coll) && (act->variant.in_place || act->work->hidden);
}

static tpcomm_status_t call_norm(bench_act_t *act, const tpcomm_call_t *call, uint32_t pair) {
    const bench_lane_t *lane = act->lane;
    const bench_work_t *work = act->work;
    tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                              .dtype = work->dtype,
                              .path = call->path,
                              .hidden = (int32_t)work->hidden,
                              .tokens = work->count / work->hidden,
                              .eps = BENCH_NORM_EPS,
                              .in = call->in,
                              .weight = lane->weight,
                              .residual = pair_of(lane->residual, &act->layout, pair),
                              .out = call->out,
                              .tag = call->tag};
    return tpcomm_all_reduce_rms_norm(lane->comm, &norm, bench_device_stream(lane->device));
}

static tpcomm_status_t make_call(bench_act_t *act, const tpcomm_call_t *call, uint32_t pair) {
    bench_lane_t *lane = act->lane;
    if (lane->fault->slow && lane->calls_begun == lane->fault->slow_call && lane->rank == lane->ranks - 1)
        bench_fault_sleep(lane->fault->slow_ms);
    lane->calls_begun++;
    act->calls++;
    if (act->variant.doer != BENCH_TPCOMM) return bench_nccl_call(lane->nccl, call, bench_device_stream(lane->device));
    if (act->work->hidden) return call_norm(act, call, pair);
    return tpcomm_call(lane->comm, call, bench_device_stream(lane->device));
}

/** The input is written right before the call, and is spoilt right behind it; what is read there goes to `seen`. */
static tpcomm_status_t call_chained(bench_act_t *act, tpcomm_call_t *call, uint32_t in, uint32_t out) {
    bench_lane_t *lane = act->lane;
    const bench_layout_t *layout = &act->layout;
    unsigned char *made = pair_of(lane->made, layout, in);
    tpcomm_status_t status = bench_device_pass(lane->device, made, call->in, layout->in_bytes, NULL, 0);
    call->in = made;
    if (status == TPCOMM_OK && act->variant.setting == BENCH_CHAINED) status = make_call(act, call, in);
    if (status != TPCOMM_OK) return status;
    return bench_device_pass(lane->device, pair_of(lane->seen, layout, out), call->out, layout->out_bytes, made,
                             layout->in_bytes);
}

tpcomm_status_t bench_act_call(bench_act_t *act, uint64_t number) {
    bench_lane_t *lane = act->lane;
    const bench_work_t *work = act->work;
    const bench_regions_t *regions = regions_of(act);
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = work->coll,
                          .dtype = work->dtype,
                          .op = work->op,
                          .path = act->variant.path,
                          .root = work->root,
                          .count = work->count,
                          .tag = lane->measurements};
    uint32_t pairs = act->layout.pairs, in = bench_rotation_in(pairs, number), out = bench_rotation_out(pairs, number);
    if (!tpc_coll_moves_data(work->coll)) {
        call.count = 0;
    } else if (act->variant.in_place) {
        unsigned char *buffer = pair_of(regions->out, &act->layout, in);
        call.in = buffer + (work->coll == TPCOMM_ALL_GATHER ? own_offset(act) : 0);
        call.out = buffer + (work->coll == TPCOMM_REDUCE_SCATTER ? own_offset(act) : 0);
    } else {
        call.in = pair_of(regions->in, &act->layout, in);
        call.out = pair_of(regions->out, &act->layout, out);
    }
    if (act->variant.setting != BENCH_BARE) return call_chained(act, &call, in, out);
    return make_call(act, &call, in);
}

/* ---------------------------------------------------------------- checks */

/** How often a batch of calls in place meets a buffer. */
static uint64_t repeats_of(const bench_act_t *act, uint64_t calls, uint32_t pair) {
    return calls / act->layout.pairs + (pair < calls % act->layout.pairs);
}

tpcomm_status_t bench_act_prepare_check(bench_act_t *act, uint64_t calls) {
    tpcomm_status_t status = TPCOMM_OK;
    if (!bench_act_accumulates(act) || !tpc_coll_reduces(act->work->coll)) return TPCOMM_OK;
    for (uint32_t pair = 0; pair < act->layout.pairs && status == TPCOMM_OK; pair++) {
        status = bench_data_repeat(act->data, repeats_of(act, calls, pair), act->work->coll == TPCOMM_REDUCE_SCATTER);
        uint64_t last = bench_rotation_last(act->layout.pairs, calls, pair);
        if (status == TPCOMM_OK && act->work->hidden && last != UINT64_MAX)
            status = bench_data_repeat(act->data, last / act->layout.pairs + 1, false);
    }
    return status;
}

/** Where results are looked for: in a chain, what was read behind the calls. */
static unsigned char *result_region(const bench_act_t *act) {
    return act->variant.setting == BENCH_BARE ? regions_of(act)->out : act->lane->seen;
}

static const char *doer_text(const bench_act_t *act) {
    static const char *const texts[] = {"", ", called directly", ", called directly, in windows"};
    return texts[act->variant.doer];
}

static void show_wrong(bench_act_t *act, uint32_t buffer, const bench_findings_t *findings) {
    bench_lane_t *lane = act->lane;
    int digits = (int)(2 * tpcomm_dtype_size(act->work->dtype));
    if (lane->wrong_shown++ >= WRONG_SHOWN_MAX) return;
    fprintf(stderr,
            "tpcomm-bench %s: rank %d: %s of %" PRIu64 " %s%s, path %s%s%s, buffer %u: %" PRIu64
            " wrong elements, the first is element %" PRIu64 ": 0x%0*" PRIx64 ", want 0x%0*" PRIx64 "\n",
            lane->name, lane->rank, tpcomm_coll_name(act->work->coll), act->work->count,
            tpcomm_dtype_name(act->work->dtype), act->variant.in_place ? ", in place" : "",
            tpcomm_path_name(act->variant.path), doer_text(act),
            act->variant.setting == BENCH_CHAINED ? ", in a chain" : "", buffer, findings->wrong, findings->first,
            digits, findings->got, digits, findings->want);
}

/** Compare count elements at out, of which the first is element `offset` of the whole output. */
static tpcomm_status_t check_part(bench_act_t *act, const bench_expect_t *expect, const unsigned char *out,
                                  uint64_t count, uint64_t offset, uint64_t *checked_p, uint64_t *wrong_p) {
    bench_findings_t findings;
    tpcomm_status_t status = bench_device_check_data(act->lane->device, act->data, expect, out, count, &findings);
    if (status != TPCOMM_OK) return status;
    findings.first += offset;
    if (findings.wrong) show_wrong(act, expect->buffer, &findings);
    *checked_p += count;
    *wrong_p += findings.wrong;
    return TPCOMM_OK;
}

/** One output, which call after call has made of a buffer. */
static tpcomm_status_t check_output(bench_act_t *act, uint32_t buffer, uint64_t repeats, const unsigned char *out,
                                    uint64_t *checked_p, uint64_t *wrong_p) {
    const bench_work_t *work = act->work;
    bench_expect_t expect = {.buffer = buffer, .of_rank = -1, .repeats = repeats};
    tpcomm_status_t status = TPCOMM_OK;
    switch (work->coll) {
    case TPCOMM_BROADCAST:
        expect.of_rank = work->root;
        break;
    case TPCOMM_REDUCE_SCATTER:
        expect.from = (uint64_t)act->lane->rank * work->count;
        if (act->variant.in_place) out += own_offset(act);
        break;
    case TPCOMM_ALL_GATHER:
        for (int32_t r = 0; r < act->lane->ranks && status == TPCOMM_OK; r++) {
            expect.of_rank = r;
            status = check_part(act, &expect, out + (uint64_t)r * act->layout.in_bytes, work->count,
                                (uint64_t)r * work->count, checked_p, wrong_p);
        }
        return status;
    default:
        break;
    }
    return check_part(act, &expect, out, work->count, 0, checked_p, wrong_p);
}

/** A barrier: nobody leaves before all have come, by the clock that the ranks of a host share; on several hosts nothing
 * tells. */
static tpcomm_status_t check_barrier(bench_act_t *act, uint64_t *checked_p, uint64_t *wrong_p) {
    tpcomm_status_t status = tpcomm_host_barrier(act->lane->comm, 0);
    double times[2] = {(double)tpc_clock_ns(), 0};
    if (status == TPCOMM_OK) status = bench_act_call(act, 0);
    if (status == TPCOMM_OK) status = bench_device_sync(act->lane->device);
    times[1] = -(double)tpc_clock_ns();
    double left = -times[1];
    if (status == TPCOMM_OK) status = bench_gather_max(act->lane->comm, times, 2);
    if (status != TPCOMM_OK || !act->lane->same_host) return status;
    *checked_p += 1;
    *wrong_p += times[0] > left;
    return TPCOMM_OK;
}

tpcomm_status_t bench_act_check(bench_act_t *act, uint64_t calls, uint64_t *checked_p, uint64_t *wrong_p) {
    tpcomm_status_t status = TPCOMM_OK;
    if (!tpc_coll_moves_data(act->work->coll)) return check_barrier(act, checked_p, wrong_p);
    if (act->variant.setting == BENCH_CHAIN_ALONE) return TPCOMM_OK; /* no call, no result */
    unsigned char *outs = result_region(act);
    for (uint32_t pair = 0; pair < act->layout.pairs && status == TPCOMM_OK; pair++) {
        const unsigned char *out = pair_of(outs, &act->layout, pair);
        if (act->variant.in_place) {
            uint64_t repeats = repeats_of(act, calls, pair);
            if (repeats > 0) status = check_output(act, pair, repeats, out, checked_p, wrong_p);
            continue;
        }
        uint64_t last = bench_rotation_last(act->layout.pairs, calls, pair);
        if (last == UINT64_MAX) continue;
        uint64_t repeats = act->work->hidden ? last / act->layout.pairs + 1 : 1;
        status = check_output(act, bench_rotation_in(act->layout.pairs, last), repeats, out, checked_p, wrong_p);
        if (status != TPCOMM_OK || !act->work->hidden || repeats_of(act, calls, pair) == 0) continue;
        bench_expect_t expect = {.buffer = pair, .of_rank = -2, .repeats = repeats_of(act, calls, pair)};
        status = check_part(act, &expect, pair_of(act->lane->residual, &act->layout, pair), act->work->count, 0,
                            checked_p, wrong_p);
    }
    return status;
}

tpcomm_status_t bench_act_spoil(bench_act_t *act, uint64_t calls, uint64_t element) {
    uint32_t pairs = act->layout.pairs;
    uint32_t pair = act->variant.in_place ? (uint32_t)((calls - 1) % pairs) : bench_rotation_out(pairs, calls - 1);
    size_t size = tpcomm_dtype_size(act->work->dtype);
    if (element >= act->work->count) return TPCOMM_OK;
    unsigned char *out = pair_of(result_region(act), &act->layout, pair);
    if (act->variant.in_place && act->work->coll == TPCOMM_REDUCE_SCATTER) out += own_offset(act);
    return bench_device_fill(act->lane->device, out + element * size, 0x55, size);
}
