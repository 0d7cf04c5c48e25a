/* SPDX-License-Identifier: Apache-2.0 */
/** The calls of a replay, on the cpu device or a GPU, and the check of what they wrote. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "device_data.h"
#include "measure.h"
#include "replay_run.h"

enum { WRONG_SHOWN_MAX = 3, EXACT_RANKS = 256 / 12 };

/* ---------------------------------------------------------------- all ranks */

tpcomm_status_t bench_run_reduce(bench_run_t *run, uint64_t *values, size_t count, tpcomm_op_t op) {
    size_t ranks = (size_t)run->ranks;
    uint64_t *all = malloc(count * ranks * sizeof *all);
    if (!all) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory to gather times");
    tpcomm_status_t status = tpcomm_host_all_gather(run->comm, values, all, count * sizeof *all, 0);
    for (size_t i = 0; i < count && status == TPCOMM_OK; i++) {
        uint64_t value = all[i];
        for (size_t r = 1; r < ranks; r++) {
            uint64_t next = all[r * count + i];
            if (op == TPCOMM_SUM)
                value += next;
            else if ((op == TPCOMM_MAX) == (next > value))
                value = next;
        }
        values[i] = value;
    }
    free(all);
    return status;
}

tpcomm_status_t bench_run_sync(bench_run_t *run) {
    tpcomm_error_t error = {.struct_size = sizeof error};
    tpcomm_status_t status = bench_device_sync(run->device);
    if (status == TPCOMM_OK) status = tpcomm_async_status(run->comm, NULL);
    if (status == TPCOMM_OK || tpcomm_async_status(run->comm, &error) == TPCOMM_OK) return status;
    return tpc_error(error.status, "%s", error.text);
}

tpcomm_status_t bench_run_settle(bench_run_t *run) {
    tpcomm_status_t status = bench_run_sync(run);
    return status == TPCOMM_OK ? tpcomm_host_barrier(run->comm, 0) : status;
}

/* ---------------------------------------------------------------- calls */

tpcomm_call_t bench_run_describe(const bench_replay_t *replay, uint64_t elements, tpcomm_path_t path) {
    return (tpcomm_call_t){.struct_size = sizeof(tpcomm_call_t),
                           .coll = replay->fused ? TPCOMM_ALL_REDUCE_RMS_NORM : TPCOMM_ALL_REDUCE,
                           .hidden = replay->fused ? (int32_t)replay->model.hidden : 0,
                           .dtype = replay->dtype,
                           .op = TPCOMM_SUM,
                           .path = path,
                           .count = elements};
}

static tpcomm_status_t call_norm(bench_run_t *run, const tpcomm_call_t *call, void *residual) {
    tpcomm_rms_norm_t norm = {.struct_size = sizeof norm,
                              .dtype = call->dtype,
                              .path = call->path,
                              .hidden = call->hidden,
                              .tokens = call->count / (uint64_t)call->hidden,
                              .eps = BENCH_NORM_EPS,
                              .in = call->in,
                              .weight = run->buffers.weight,
                              .residual = residual,
                              .out = call->out,
                              .tag = call->tag};
    return tpcomm_all_reduce_rms_norm(run->comm, &norm, bench_device_stream(run->device));
}

tpcomm_status_t bench_run_call(bench_run_t *run, const void *in, void *out, void *residual, uint64_t elements,
                               uint64_t tag, tpcomm_path_t path) {
    const bench_fault_t *fault = &run->replay->fault;
    tpcomm_call_t call = bench_run_describe(run->replay, elements, path);
    call.in = in;
    call.out = out;
    call.tag = tag;
    if (fault->slow && run->calls_begun == fault->slow_call && run->rank == run->ranks - 1)
        bench_fault_sleep(fault->slow_ms);
    run->calls_begun++;
    if (residual) return call_norm(run, &call, residual);
    return tpcomm_call(run->comm, &call, bench_device_stream(run->device));
}

bool bench_run_is_exact(const bench_run_t *run, uint32_t tokens, tpcomm_path_t path) {
    tpcomm_call_t call = bench_run_describe(run->replay, bench_replay_elements(run->replay, tokens), path);
    return bench_call_is_exact(run->comm, &call);
}

tpcomm_status_t bench_run_call_number(bench_run_t *run, uint32_t tokens, uint64_t i, uint64_t tag, tpcomm_path_t path) {
    uint32_t pairs = bench_rotation_pairs(bench_replay_bytes(run->replay, tokens));
    uint32_t in = bench_rotation_in(pairs, i), out = bench_rotation_out(pairs, i);
    return bench_run_call(run, run->buffers.in[in], run->buffers.out[out], run->buffers.residual[in],
                          bench_replay_elements(run->replay, tokens), tag, path);
}

/* ---------------------------------------------------------------- checks */

tpcomm_status_t bench_run_poison(bench_run_t *run, uint32_t tokens, uint64_t calls) {
    uint64_t bytes = bench_replay_bytes(run->replay, tokens);
    uint32_t pairs = bench_rotation_pairs(bytes);
    tpcomm_status_t status = TPCOMM_OK;
    for (uint32_t pair = 0; pair < pairs && status == TPCOMM_OK; pair++)
        if (bench_rotation_last(pairs, calls, pair) != UINT64_MAX)
            status = bench_device_fill(run->device, run->buffers.out[pair], BENCH_POISON, bytes);
    for (uint32_t pair = 0; pair < pairs && status == TPCOMM_OK && run->replay->fused; pair++)
        status = bench_device_copy(run->device, run->buffers.residual[pair], run->buffers.residual_from[pair], bytes);
    return status;
}

/** One output, or residual, against what must be there. */
static tpcomm_status_t check_one(bench_run_t *run, const void *out, bench_expect_t expect, uint64_t elements,
                                 const char *where, uint64_t *wrong_p) {
    bench_findings_t findings;
    int digits = (int)(2 * tpcomm_dtype_size(run->replay->dtype));
    tpcomm_status_t status = bench_data_repeat(run->data, expect.repeats, false);
    if (status == TPCOMM_OK)
        status = bench_device_check_data(run->device, run->data, &expect, out, elements, &findings);
    if (status != TPCOMM_OK) return status;
    if (findings.wrong && run->wrong_shown++ < WRONG_SHOWN_MAX)
        fprintf(stderr,
                "tpcomm-bench replay: rank %d: %s: %" PRIu64 " wrong elements, the first is element %" PRIu64
                ": 0x%0*" PRIx64 ", want 0x%0*" PRIx64 "\n",
                run->rank, where, findings.wrong, findings.first, digits, findings.got, digits, findings.want);
    run->checked += elements;
    run->wrong += findings.wrong;
    *wrong_p += findings.wrong;
    return TPCOMM_OK;
}

tpcomm_status_t bench_run_check_one(bench_run_t *run, const void *out, uint32_t buffer, uint64_t elements,
                                    const char *where, uint64_t *wrong_p) {
    return check_one(run, out, (bench_expect_t){.buffer = buffer, .of_rank = -1}, elements, where, wrong_p);
}

/** The residual of a pair's input after so many calls of which every pairs-th used it. */
static tpcomm_status_t check_residual(bench_run_t *run, uint32_t pair, uint32_t pairs, uint64_t calls,
                                      uint64_t elements, const char *where, uint64_t *wrong_p) {
    uint64_t repeats = calls / pairs + (pair < calls % pairs);
    char place[96];
    if (repeats == 0) return TPCOMM_OK;
    snprintf(place, sizeof place, "%s, residual %u", where, pair);
    return check_one(run, run->buffers.residual[pair],
                     (bench_expect_t){.buffer = pair, .of_rank = -2, .repeats = repeats}, elements, place, wrong_p);
}

tpcomm_status_t bench_run_check(bench_run_t *run, uint32_t tokens, uint64_t calls, bool exact, const char *where,
                                uint64_t *wrong_p) {
    uint32_t pairs = bench_rotation_pairs(bench_replay_bytes(run->replay, tokens));
    uint64_t elements = bench_replay_elements(run->replay, tokens);
    for (uint32_t pair = 0; pair < pairs; pair++) {
        uint64_t call = bench_rotation_last(pairs, calls, pair);
        char place[96];
        if (run->replay->fused && (exact || (pair % 2 == 0 && run->ranks <= EXACT_RANKS))) {
            tpcomm_status_t status = check_residual(run, pair, pairs, calls, elements, where, wrong_p);
            if (status != TPCOMM_OK) return status;
        }
        if (call == UINT64_MAX) continue;
        uint32_t buffer = bench_rotation_in(pairs, call);
        /* Random values: their sum depends on the order of additions. So do sums of up to 12 a rank beyond what bf16
         * holds. */
        if (!exact && (buffer % 2 != 0 || run->ranks > EXACT_RANKS)) continue;
        snprintf(place, sizeof place, "%s, T %u, call %" PRIu64, where, tokens, call);
        bench_expect_t expect = {.buffer = buffer, .of_rank = -1, .repeats = run->replay->fused ? call / pairs + 1 : 1};
        tpcomm_status_t status = check_one(run, run->buffers.out[pair], expect, elements, place, wrong_p);
        if (status != TPCOMM_OK) return status;
    }
    return TPCOMM_OK;
}
