/* SPDX-License-Identifier: Apache-2.0 */
/* One call's way: check, flight record, choice, backend, statistics. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hook.h"
#include "coordinator/abi.h"
#include "coordinator/comm.h"

/* ------------------------------------------------------------------ checks */

static tpcomm_status_t check_names(const tpcomm_call_t *call) {
    if (call->coll != TPCOMM_ALL_REDUCE && call->coll != TPCOMM_BARRIER)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "call.coll is %d, which is no collective", call->coll);
    if (call->flags != 0)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "call.flags is %#x; no flag is defined", call->flags);
    if (call->coll == TPCOMM_BARRIER) return TPCOMM_OK;
    if (tpcomm_dtype_size(call->dtype) == 0)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "dtype is %d, which is none", call->dtype);
    if (tpcomm_op_name(call->op)[0] == '?')
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "op is %d, which is none", call->op);
    if (call->count > (uint64_t)PTRDIFF_MAX / tpcomm_dtype_size(call->dtype))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "count %llu of %s is more than memory can hold",
                         (unsigned long long)call->count, tpcomm_dtype_name(call->dtype));
    return TPCOMM_OK;
}

static uint64_t bytes_of(const tpcomm_call_t *call) {
    return call->coll == TPCOMM_BARRIER ? 0 : call->count * tpcomm_dtype_size(call->dtype);
}

static tpcomm_status_t check_buffers(const tpcomm_call_t *call, tpcomm_stream_t stream) {
    if (stream != NULL)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "stream is %p; on the cpu device it must be NULL", (void *)stream);
    uint64_t bytes = bytes_of(call);
    if (bytes == 0) return TPCOMM_OK;
    if (call->in == NULL || call->out == NULL)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s is NULL, but count is %llu", call->in == NULL ? "in" : "out",
                         (unsigned long long)call->count);
    uintptr_t in = (uintptr_t)call->in, out = (uintptr_t)call->out;
    if (bytes > UINTPTR_MAX - in || bytes > UINTPTR_MAX - out)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "count %llu goes past the end of memory",
                         (unsigned long long)call->count);
    if (in != out && in < out + bytes && out < in + bytes)
        return tpc_error(TPCOMM_ERR_INVALID_ARG,
                         "in [%p, +%llu) and out [%p, +%llu) overlap; they must be the same or apart", call->in,
                         (unsigned long long)bytes, call->out, (unsigned long long)bytes);
    return TPCOMM_OK;
}

static tpc_call_key_t key_of(const tpcomm_call_t *call) {
    return (tpc_call_key_t){.coll = call->coll, .dtype = call->dtype, .op = call->op, .bytes = bytes_of(call)};
}

/* ------------------------------------------------------------------ running */

/* One thread writes at a time, so no locked instruction is needed. */
static void add(_Atomic uint64_t *counter, uint64_t amount) {
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount, memory_order_relaxed);
}

static void count_call(tpcomm_t *comm, const tpc_request_t *request, const tpc_outcome_t *outcome) {
    tpc_counters_t *counters = &comm->counters[request->path];
    add(&counters->calls, 1);
    add(&counters->bytes, request->bytes);
    add(&counters->wire_bytes, outcome->wire_bytes);
    add(&counters->wait_ns, outcome->wait_ns);
    add(&counters->skew_ns, outcome->skew_ns);
    if (outcome->last_rank >= 0) add(&comm->times_last[outcome->last_rank], 1);
}

/* A call that has begun did not end well: the group is broken, on every rank. */
static tpcomm_status_t break_group(tpcomm_t *comm, const tpc_flight_record_t *record, tpcomm_status_t status) {
    if (tpc_failure_status(&comm->failure) == TPCOMM_OK) {
        char call[128], text[480];
        snprintf(text, sizeof text, "rank %d failed in %s: %s: %.256s", comm->rank,
                 tpc_flight_text(record, call, sizeof call), tpcomm_status_name(status), tpcomm_last_error());
        tpc_failure_place_t place = {.rank = comm->rank, .coll = record->coll, .seq = record->seq};
        tpc_failure_raise(&comm->failure, TPCOMM_ERR_PEER_FAILED, place, text);
    }
    return tpc_comm_failed(comm);
}

tpcomm_status_t tpc_comm_run(tpcomm_t *comm, const tpcomm_call_t *call, tpcomm_stream_t stream) {
    tpc_choice_t choice;
    tpc_call_key_t key = key_of(call);
    tpcomm_status_t status = tpc_dispatch_choose(comm->dispatch, &key, call->path, &choice);
    if (status != TPCOMM_OK) return status;
    status = tpc_hook("call", comm->rank); /* a delay only: nothing has begun */
    if (status != TPCOMM_OK) return status;

    tpc_outcome_t outcome;
    tpc_flight_record_t *record = tpc_flight_begin(&comm->flight, call, choice.path, tpc_clock_ns());
    tpc_request_t request = {.call = call, .path = choice.path, .bytes = key.bytes, .record = record, .stream = stream};
    status = choice.backend->run(comm->backend_state, &request, &outcome);
    if (status != TPCOMM_OK) status = break_group(comm, record, status);
    record->end_ns = tpc_clock_ns();
    record->status = status;
    if (status == TPCOMM_OK) count_call(comm, &request, &outcome);
    return status;
}

static tpcomm_status_t run_checked(tpcomm_t *comm, const tpcomm_call_t *call, tpcomm_stream_t stream) {
    tpcomm_status_t status = tpc_comm_check(comm);
    if (status == TPCOMM_OK) status = check_names(call);
    if (status == TPCOMM_OK) status = check_buffers(call, stream);
    if (status == TPCOMM_OK) status = tpc_comm_enter(comm);
    if (status != TPCOMM_OK) return status;
    status = tpc_comm_run(comm, call, stream);
    tpc_comm_leave(comm);
    return status;
}

tpcomm_status_t tpcomm_call(tpcomm_t *comm, const tpcomm_call_t *call, tpcomm_stream_t stream) {
    tpcomm_call_t known = {0};
    tpcomm_status_t status = tpc_struct_in("tpcomm_call", call, &known, sizeof known);
    return status != TPCOMM_OK ? status : run_checked(comm, &known, stream);
}

tpcomm_status_t tpcomm_all_reduce(tpcomm_t *comm, const void *in, void *out, size_t count, tpcomm_dtype_t dtype,
                                  tpcomm_op_t op, tpcomm_stream_t stream) {
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_ALL_REDUCE,
                          .dtype = dtype,
                          .op = op,
                          .in = in,
                          .out = out,
                          .count = count};
    return run_checked(comm, &call, stream);
}

tpcomm_status_t tpcomm_barrier(tpcomm_t *comm, tpcomm_stream_t stream) {
    tpcomm_call_t call = {.struct_size = sizeof call, .coll = TPCOMM_BARRIER};
    return run_checked(comm, &call, stream);
}

/* ------------------------------------------------------------------ explaining */

static tpcomm_status_t explain(const tpcomm_t *comm, const tpcomm_call_t *call, tpcomm_call_t *known_p,
                               tpcomm_decision_t *decision_p) {
    tpcomm_call_t known = {0};
    if (comm == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "comm is NULL");
    tpcomm_status_t status = tpc_struct_in("tpcomm_call", call, &known, sizeof known);
    if (status == TPCOMM_OK) status = check_names(&known);
    if (status != TPCOMM_OK) return status;
    *known_p = known;
    tpc_call_key_t key = key_of(&known);
    return tpc_dispatch_explain(comm->dispatch, &key, known.path, decision_p);
}

tpcomm_status_t tpcomm_explain(const tpcomm_t *comm, const tpcomm_call_t *call, tpcomm_decision_t *decision) {
    tpcomm_call_t known = {0};
    tpcomm_decision_t made = {0};
    tpcomm_status_t status = explain(comm, call, &known, &made);
    return status != TPCOMM_OK ? status : tpc_struct_out("tpcomm_decision", &made, sizeof made, decision);
}

/* Append to text; returns what is used, which may be more than bytes. */
static size_t append(char *text, size_t bytes, size_t used, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static size_t append(char *text, size_t bytes, size_t used, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(used < bytes ? text + used : NULL, used < bytes ? bytes - used : 0, format, arguments);
    va_end(arguments);
    return used + (wrote > 0 ? (size_t)wrote : 0);
}

tpcomm_status_t tpcomm_explain_text(const tpcomm_t *comm, const tpcomm_call_t *call, char *text, size_t bytes) {
    tpcomm_call_t known = {0};
    tpcomm_decision_t decision = {0};
    if (text == NULL || bytes == 0) return tpc_error(TPCOMM_ERR_INVALID_ARG, "text is NULL or has no room");
    text[0] = '\0';
    tpcomm_status_t status = explain(comm, call, &known, &decision);
    if (status != TPCOMM_OK) return status;
    size_t used = 0;
    if (known.coll == TPCOMM_BARRIER)
        used = append(text, bytes, used, "barrier");
    else
        used = append(text, bytes, used, "%s of %llu %s (%llu bytes), %s", tpcomm_coll_name(known.coll),
                      (unsigned long long)known.count, tpcomm_dtype_name(known.dtype),
                      (unsigned long long)bytes_of(&known), tpcomm_op_name(known.op));
    used = append(text, bytes, used, ", %d ranks: %s\n  because: %s\n", comm->size, tpcomm_path_name(decision.path),
                  decision.reason);
    if (decision.bytes_max == UINT64_MAX)
        used = append(text, bytes, used, "  holds from %llu bytes up\n", (unsigned long long)decision.bytes_min);
    else
        used = append(text, bytes, used, "  holds from %llu to %llu bytes\n", (unsigned long long)decision.bytes_min,
                      (unsigned long long)decision.bytes_max);
    if (decision.expected_ns >= 0)
        used = append(text, bytes, used, "  expected: %.1f us\n", (double)decision.expected_ns / 1000.0);
    for (int32_t i = 0; i < decision.rejected_count; i++)
        used = append(text, bytes, used, "  not %s: %s\n", tpcomm_path_name(decision.rejected[i].path),
                      decision.rejected[i].why_not);
    if (used < bytes) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_TOO_SMALL, "the text needs %zu bytes, the buffer has %zu", used + 1, bytes);
}
