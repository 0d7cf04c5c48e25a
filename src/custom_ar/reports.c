/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels have told their host: of failures, and of waits. */
#include <stdio.h>

#include "base/error.h"
#include "custom_ar/state.h"

tpc_ar_said_t *tpc_ar_said_by(const tpc_ar_state_t *state, int32_t rank) {
    return (tpc_ar_said_t *)(void *)(state->control + 1) + (size_t)rank * TPC_AR_SAID_SLOTS;
}

/* Both calls of a MISMATCH, as their ranks made them. */
static void mismatch_text(const tpc_ar_state_t *state, int32_t rank, const volatile tpc_ar_report_t *report,
                          char *text_p, size_t bytes) {
    char mine[240], theirs[240];
    snprintf(text_p, bytes, "kernel call %u: rank %d called %s; rank %d called %s", report->epoch, rank,
             tpc_ar_said_text(tpc_ar_said_by(state, rank), (uint32_t)(report->mine[0] >> 32),
                              (uint32_t)(report->mine[1] >> 32), mine, sizeof mine),
             report->peer,
             tpc_ar_said_text(tpc_ar_said_by(state, report->peer), (uint32_t)(report->theirs[0] >> 32),
                              (uint32_t)(report->theirs[1] >> 32), theirs, sizeof theirs));
}

static void timeout_text(const tpc_ar_state_t *state, int32_t rank, const volatile tpc_ar_report_t *report,
                         char *text_p, size_t bytes) {
    int used = snprintf(text_p, bytes, "kernel call %u of rank %d: after %u ms still waiting for rank %d",
                        report->epoch, rank, atomic_load(state->group.wait->timeout_ms), report->peer);
    if (report->peer >= 0)
        used += snprintf(text_p + used, bytes - (size_t)used, " (last seq %llu)",
                         (unsigned long long)atomic_load(&state->group.failure->slots[report->peer].begun));
    if (state->group.agreed.shares_device)
        snprintf(text_p + used, bytes - (size_t)used, "; ranks share a GPU: docs/gpu.md says what can keep one out");
}

void tpc_ar_poll(tpc_ar_state_t *state) {
    if (state->group.agreed.size == 1) return;
    for (int32_t r = 0; r < state->group.agreed.size; r++) {
        const volatile tpc_ar_report_t *report = &state->control->reports[r];
        uint64_t word = report->word;
        if (word == 0) continue;
        atomic_thread_fence(memory_order_acquire);
        tpcomm_status_t status = -(tpcomm_status_t)(uint32_t)word;
        char text[TPC_ERROR_BYTES];
        tpc_failure_place_t place = {.rank = report->peer};
        if (status == TPCOMM_ERR_MISMATCH && report->peer >= 0 && report->peer < state->group.agreed.size)
            mismatch_text(state, r, report, text, sizeof text);
        else if (status == TPCOMM_ERR_OVERLAP)
            snprintf(text, sizeof text,
                     "kernel call %u of rank %d began while another of its calls was running: the caller's streams and "
                     "graphs must put the calls of one group in an order (docs/graphs.md)",
                     report->epoch, r);
        else
            timeout_text(state, r, report, text, sizeof text);
        tpc_failure_raise(state->group.failure, status, place, text);
        return;
    }
}

tpc_waits_t tpc_ar_waits(const tpc_ar_state_t *state, tpcomm_path_t path) {
    if (path >= TPC_AR_WAITS_PATHS) return (tpc_waits_t){0, 0};
    const volatile tpc_ar_waits_t *noted = &state->control->reports[state->group.rank].waits;
    return (tpc_waits_t){.calls = noted->path[path].calls, .wait_ns = noted->path[path].wait_ns};
}

uint64_t tpc_ar_times_last(const tpc_ar_state_t *state, int32_t rank) {
    const volatile tpc_ar_waits_t *noted = &state->control->reports[state->group.rank].waits;
    return rank < TPC_AR_MAX_RANKS ? noted->last[rank] : 0;
}
