/* SPDX-License-Identifier: Apache-2.0 */
/* One call's way: check, flight record, choice, backend, statistics. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hook.h"
#include "base/status.h"
#include "base/text.h"
#include "coordinator/abi.h"
#include "coordinator/check.h"
#include "coordinator/comm.h"
#include "coordinator/rows.h"

/* ------------------------------------------------------------------ checks */

static tpcomm_status_t check_names(const tpcomm_t *comm, const tpcomm_call_t *call) {
    if (call->coll <= 0 || tpcomm_coll_name(call->coll)[0] == '?')
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "call.coll is %d, which is no collective", call->coll);
    if ((call->flags & ~(uint32_t)TPCOMM_CALL_CAPTURED) != 0)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "call.flags is %#x, with bits that no flag has", call->flags);
    if (call->hidden != 0 && !tpc_coll_has_rows(call->coll))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "call.hidden is %d, but %s has no rows; it must be 0", call->hidden,
                         tpcomm_coll_name(call->coll));
    if (!tpc_coll_moves_data(call->coll)) return TPCOMM_OK;
    size_t element = tpcomm_dtype_size(call->dtype);
    if (element == 0) return tpc_error(TPCOMM_ERR_INVALID_ARG, "dtype is %d, which is none", call->dtype);
    if (tpc_coll_has_rows(call->coll)) {
        tpcomm_status_t status = tpc_rows_check(call);
        if (status != TPCOMM_OK) return status;
    } else if (tpc_coll_reduces(call->coll) && tpcomm_op_name(call->op)[0] == '?')
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "op is %d, which is none", call->op);
    if (call->count > (uint64_t)PTRDIFF_MAX / element / (uint64_t)comm->size)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "count %llu of %s is more than memory can hold",
                         (unsigned long long)call->count, tpcomm_dtype_name(call->dtype));
    if (call->coll == TPCOMM_BROADCAST && (call->root < 0 || call->root >= comm->size))
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "root is %d; this group has ranks 0 to %d", call->root,
                         comm->size - 1);
    return TPCOMM_OK;
}

/* A call's two buffers: their bytes, and how far inside the larger one the smaller one begins when the call is in
 * place. */
typedef struct {
    uint64_t in, out, offset;
} extent_t;

static extent_t extent_of(const tpcomm_t *comm, const tpcomm_call_t *call) {
    uint64_t bytes = tpc_coll_moves_data(call->coll) ? call->count * tpcomm_dtype_size(call->dtype) : 0;
    uint64_t all = bytes * (uint64_t)comm->size, mine = bytes * (uint64_t)comm->rank;
    if (call->coll == TPCOMM_ALL_GATHER) return (extent_t){bytes, all, mine};
    if (call->coll == TPCOMM_REDUCE_SCATTER) return (extent_t){all, bytes, mine};
    if (call->coll == TPCOMM_ALL_GATHER_ROWS && call->count > 0) {
        uint64_t row = (uint64_t)call->hidden * tpcomm_dtype_size(call->dtype);
        tpc_row_range_t range = tpc_row_range(call->count / (uint64_t)call->hidden, comm->size, comm->rank);
        return (extent_t){range.count * row, bytes, range.first * row};
    }
    return (extent_t){bytes, bytes, 0};
}

static tpcomm_status_t check_buffers(const tpcomm_t *comm, const tpcomm_call_t *call, tpcomm_stream_t stream) {
    const char *why_not = tpc_backend_set_check_stream(&comm->backends, stream);
    if (why_not != NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "stream is %p: %s", (void *)stream, why_not);
    extent_t extent = extent_of(comm, call);
    if (extent.in == 0 && extent.out == 0) return TPCOMM_OK;
    bool reads = extent.in > 0 && (call->coll != TPCOMM_BROADCAST || call->root == comm->rank);
    if ((reads && call->in == NULL) || call->out == NULL)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "%s is NULL, but count is %llu", call->out == NULL ? "out" : "in",
                         (unsigned long long)call->count);
    uintptr_t in = (uintptr_t)call->in, out = (uintptr_t)call->out;
    if (extent.in > UINTPTR_MAX - in || extent.out > UINTPTR_MAX - out)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "count %llu goes past the end of memory",
                         (unsigned long long)call->count);
    bool gathers = call->coll == TPCOMM_ALL_GATHER || call->coll == TPCOMM_ALL_GATHER_ROWS;
    bool in_place = gathers ? in == out + extent.offset : in + extent.offset == out;
    if (reads && !in_place && in < out + extent.out && out < in + extent.in)
        return tpc_error(
            TPCOMM_ERR_INVALID_ARG, "in [%p, +%llu) and out [%p, +%llu) overlap; they must be apart, or in place%s",
            call->in, (unsigned long long)extent.in, call->out, (unsigned long long)extent.out,
            extent.in == extent.out ? " (out == in)" : " (the smaller at rank * count elements of the larger)");
    return TPCOMM_OK;
}

static tpc_call_key_t key_of(const tpcomm_t *comm, const tpcomm_call_t *call, const tpc_rows_t *rows) {
    extent_t extent = extent_of(comm, call);
    tpcomm_op_t op = tpc_coll_norms(call->coll) ? TPCOMM_SUM : call->op;
    return (tpc_call_key_t){.coll = call->coll,
                            .dtype = tpc_coll_moves_data(call->coll) ? call->dtype : 0,
                            .op = tpc_coll_reduces(call->coll) ? op : 0,
                            .bytes = extent.in > extent.out ? extent.in : extent.out,
                            .hidden = call->hidden,
                            .obstacles = rows->form & (TPC_ROWS_STRIDED | TPC_ROWS_NO_ROOM | TPC_ROWS_UNEQUAL)};
}

/* The ranks' parts of a reduce_scatter on rows are not all equally long. */
static bool is_unequal(const tpcomm_t *comm, const tpcomm_call_t *call) {
    return call->coll == TPCOMM_REDUCE_SCATTER_RMS_NORM &&
           call->count / (uint64_t)call->hidden % (uint64_t)comm->size != 0;
}

/* ------------------------------------------------------------------ running */

/* One thread writes at a time, so no locked instruction is needed. */
static void add(_Atomic uint64_t *counter, uint64_t amount) {
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount, memory_order_relaxed);
}

static void count_call(tpcomm_t *comm, const tpc_request_t *request, uint64_t bytes, const tpc_outcome_t *outcome) {
    tpc_counters_t *counters = &comm->counters[request->path];
    add(&counters->calls, 1);
    add(&counters->bytes, bytes);
    add(&counters->wire_bytes, outcome->wire_bytes);
    add(&counters->wait_ns, outcome->wait_ns);
    add(&counters->skew_ns, outcome->skew_ns);
    if (outcome->last_rank < 0) return;
    add(&counters->waits, 1);
    add(&comm->times_last[outcome->last_rank], 1);
}

tpcomm_status_t tpc_comm_break(tpcomm_t *comm, const char *plane, const tpc_flight_record_t *record,
                               tpcomm_status_t status) {
    if (tpc_failure_status(&comm->failure) == TPCOMM_OK) {
        char call[128], text[480];
        snprintf(text, sizeof text, "rank %d failed in %s%s: %s: %.256s", comm->rank, plane,
                 tpc_flight_text(record, call, sizeof call), tpcomm_status_name(status), tpcomm_last_error());
        tpc_failure_place_t place = {.rank = comm->rank, .coll = record->coll, .seq = record->seq};
        tpc_failure_raise(&comm->failure, TPCOMM_ERR_PEER_FAILED, place, text);
    }
    return tpc_comm_failed(comm);
}

void tpc_comm_note(tpc_flight_record_t *record, const tpc_outcome_t *outcome) {
    record->begun_ns = outcome->begun_ns;
    record->wait_ns = outcome->wait_ns;
    record->skew_ns = outcome->skew_ns;
    record->last_rank = outcome->last_rank;
}

tpcomm_status_t tpc_comm_refused(const tpcomm_t *comm, tpcomm_status_t status) {
    char where[512];
    if (!tpc_comm_spans(comm) || tpc_backend_set_made(&comm->backends) != 0) return status;
    return tpc_error_prefix(TPCOMM_ERR_NO_TRANSPORT, "group '%s' spans hosts (%s)", comm->name,
                            tpc_comm_where(comm, false, where, sizeof where));
}

static tpc_call_ranges_t ranges_of(const tpcomm_t *comm, const tpcomm_call_t *call, const tpcomm_rms_norm_t *norm) {
    tpc_call_ranges_t ranges = {.count = 0};
    if (norm != NULL) {
        tpc_rows_ranges(comm, call->coll, norm, &ranges);
        return ranges;
    }
    extent_t extent = extent_of(comm, call);
    bool reads = call->coll != TPCOMM_BROADCAST || call->root == comm->rank;
    if (reads) tpc_call_ranges_add(&ranges, (tpc_range_t){"in", call->in, extent.in, false, true});
    tpc_call_ranges_add(&ranges, (tpc_range_t){"out", call->out, extent.out, true, true});
    return ranges;
}

static tpcomm_status_t check_alone(const tpcomm_t *comm, const tpcomm_call_t *call, const tpcomm_rms_norm_t *norm) {
    tpc_call_ranges_t ranges = ranges_of(comm, call, norm);
    return tpc_check_ranges(comm, &ranges);
}

static tpcomm_status_t check_together(tpcomm_t *comm, const tpcomm_call_t *call, const tpcomm_rms_norm_t *norm,
                                      const tpc_flight_record_t *record, bool *refused_p, tpc_outcome_t *arrivals_p) {
    tpc_call_ranges_t ranges = ranges_of(comm, call, norm);
    return tpc_check_together(comm, record, &ranges, refused_p, arrivals_p);
}

/* Of a path that does not know who came when. */
static void take_arrivals(const tpc_outcome_t *arrivals, tpc_outcome_t *outcome) {
    if (outcome->last_rank >= 0 || arrivals->last_rank < 0) return;
    outcome->last_rank = arrivals->last_rank;
    outcome->begun_ns = arrivals->begun_ns;
    outcome->skew_ns = arrivals->skew_ns;
    outcome->wait_ns += arrivals->wait_ns;
}

/* The device has failed under this rank, before its call began: the others must not wait for it. */
static tpcomm_status_t break_if_device(tpcomm_t *comm, const tpcomm_call_t *call, tpcomm_status_t status) {
    if (status != TPCOMM_ERR_DEVICE) return status;
    tpc_flight_record_t what;
    tpc_flight_fill(&what, call, 0, 0);
    return tpc_comm_break(comm, "", &what, status);
}

static tpcomm_status_t run_on(tpcomm_t *comm, const tpcomm_call_t *call, const tpcomm_rms_norm_t *norm,
                              const tpc_cuda_call_t *where) {
    tpc_choice_t choice;
    tpc_rows_t rows = {.hidden = call->hidden, .form = (call->flags & TPC_CALL_ENDS) != 0 ? TPC_ROWS_ENDS : 0};
    if (norm != NULL) rows = tpc_rows_of(norm, is_unequal(comm, call));
    tpc_call_key_t key = key_of(comm, call, &rows);
    key.capturing = where->capturing;
    tpcomm_status_t status = tpc_dispatch_choose(comm->dispatch, &key, call->path, &choice);
    if (status != TPCOMM_OK) return tpc_comm_refused(comm, status);
    bool sync = comm->check == TPCOMM_CHECK_SYNC, refused = false;
    if (sync) status = check_alone(comm, call, norm);
    if (status != TPCOMM_OK) return status;
    status = tpc_hook("call", comm->rank); /* a delay only: nothing has begun */
    uint64_t ordinal = 0;
    bool pretended = where->capturing && comm->order == NULL; /* in tests alone: captured, and not run */
    if (status == TPCOMM_OK && where->capturing) status = tpc_comm_captures(comm, where, &ordinal);
    if (status == TPCOMM_OK && comm->order != NULL) status = tpc_cuda_order_follow(comm->order, where);
    if (status != TPCOMM_OK) return break_if_device(comm, call, status);

    tpc_outcome_t outcome = {.last_rank = -1}, arrivals = {.last_rank = -1};
    tpc_flight_record_t *record = tpc_flight_next(&comm->device.flight, call, choice.path, key.bytes);
    record->rows = rows;
    record->stream = (uint64_t)(uintptr_t)where->stream;
    record->capturing = where->capturing;
    tpc_flight_begin(&comm->device.flight, tpc_clock_ns());
    if (comm->order != NULL)
        atomic_store_explicit(&comm->failure.slots[comm->rank].begun, record->seq, memory_order_relaxed);
    extent_t extent = extent_of(comm, call);
    tpc_request_t request = {.call = call,
                             .norm = norm,
                             .path = choice.path,
                             .bytes = extent.in < extent.out ? extent.in : extent.out,
                             .record = record,
                             .stream = where->stream,
                             .capturing = where->capturing,
                             .ordinal = ordinal};
    if (sync && comm->size > 1 && !where->capturing)
        status = check_together(comm, call, norm, record, &refused, &arrivals);
    /* What kernels capture they compare themselves, by the call's place in its graph. */
    if (status == TPCOMM_OK && comm->calls.ranks != NULL &&
        (!where->capturing || (choice.backend != NULL && choice.backend->notes_calls)))
        tpc_calls_note(&comm->calls, record);
    if (status != TPCOMM_OK || pretended) {
        /* not run */
    } else if (norm != NULL && (choice.path == TPCOMM_PATH_UNFUSED || choice.path == TPCOMM_PATH_LOCAL)) {
        status = tpc_comm_run_composed(comm, &request, &outcome);
    } else {
        status = choice.backend->run(comm->backends.state[choice.backend_index], &request, &outcome);
    }
    if (comm->order != NULL) {
        tpcomm_status_t called = tpc_cuda_order_called(comm->order, where);
        if (status == TPCOMM_OK) status = called;
    }
    if (status != TPCOMM_OK && !refused) status = tpc_comm_break(comm, "", record, status);
    take_arrivals(&arrivals, &outcome);
    tpc_comm_note(record, &outcome);
    tpc_flight_end(&comm->device.flight, status, tpc_clock_ns());
    if (status == TPCOMM_OK) count_call(comm, &request, key.bytes, &outcome);
    if (!refused && (where->capturing || comm->order == NULL)) tpc_capture_note(&comm->capture, record, ordinal);
    return status;
}

tpcomm_status_t tpc_comm_run(tpcomm_t *comm, const tpcomm_call_t *call, const tpcomm_rms_norm_t *norm,
                             tpcomm_stream_t stream) {
    tpc_cuda_call_t where = {.stream = stream};
    if (comm->order == NULL) {
        where.capture_id = tpc_hook_value("capture", 0);
        where.capturing = where.capture_id != 0;
        return run_on(comm, call, norm, &where);
    }
    tpcomm_status_t status = TPCOMM_OK;
    if (comm->check == TPCOMM_CHECK_SYNC) status = tpc_check_stream(comm, stream);
    if (status == TPCOMM_OK) status = tpc_cuda_order_enter(comm->order, stream, &where);
    if (status != TPCOMM_OK) return break_if_device(comm, call, status);
    status = run_on(comm, call, norm, &where);
    tpc_cuda_order_leave(&where);
    return status;
}

tpcomm_status_t tpc_comm_run_now(tpcomm_t *comm, const tpcomm_call_t *call, const tpcomm_rms_norm_t *norm,
                                 tpcomm_stream_t stream) {
    tpcomm_status_t status = tpc_comm_enter(comm, &comm->device);
    if (status != TPCOMM_OK) return status;
    status = tpc_comm_run(comm, call, norm, stream);
    tpc_comm_leave(&comm->device);
    return status;
}

tpcomm_status_t tpc_comm_submit(tpcomm_t *comm, const tpcomm_call_t *call, const tpcomm_rms_norm_t *norm,
                                tpcomm_stream_t stream) {
    bool taken = false;
    tpcomm_status_t status = tpc_batch_take(comm, call, norm, stream, &taken);
    if (status != TPCOMM_OK || taken) return status;
    return tpc_comm_run_now(comm, call, norm, stream);
}

static tpcomm_status_t run_checked(tpcomm_t *comm, const tpcomm_call_t *call, tpcomm_stream_t stream) {
    tpcomm_status_t status = tpc_comm_check(comm);
    if (status == TPCOMM_OK) status = check_names(comm, call);
    if (status == TPCOMM_OK && call->flags != 0)
        status = tpc_error(TPCOMM_ERR_INVALID_ARG,
                           "call.flags is %#x: that is for tpcomm_explain; of a call its stream says it", call->flags);
    if (status == TPCOMM_OK && tpc_coll_norms(call->coll))
        status = tpc_error(TPCOMM_ERR_INVALID_ARG, "call.coll is %s, which takes more: call tpcomm_%s",
                           tpcomm_coll_name(call->coll), tpcomm_coll_name(call->coll));
    if (status == TPCOMM_OK) status = check_buffers(comm, call, stream);
    return status != TPCOMM_OK ? status : tpc_comm_submit(comm, call, NULL, stream);
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

tpcomm_status_t tpcomm_broadcast(tpcomm_t *comm, const void *in, void *out, size_t count, tpcomm_dtype_t dtype,
                                 int32_t root, tpcomm_stream_t stream) {
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_BROADCAST,
                          .dtype = dtype,
                          .root = root,
                          .in = in,
                          .out = out,
                          .count = count};
    return run_checked(comm, &call, stream);
}

tpcomm_status_t tpcomm_all_gather(tpcomm_t *comm, const void *in, void *out, size_t count, tpcomm_dtype_t dtype,
                                  tpcomm_stream_t stream) {
    tpcomm_call_t call = {
        .struct_size = sizeof call, .coll = TPCOMM_ALL_GATHER, .dtype = dtype, .in = in, .out = out, .count = count};
    return run_checked(comm, &call, stream);
}

tpcomm_status_t tpcomm_reduce_scatter(tpcomm_t *comm, const void *in, void *out, size_t count, tpcomm_dtype_t dtype,
                                      tpcomm_op_t op, tpcomm_stream_t stream) {
    tpcomm_call_t call = {.struct_size = sizeof call,
                          .coll = TPCOMM_REDUCE_SCATTER,
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
    if (status == TPCOMM_OK) status = check_names(comm, &known);
    if (status != TPCOMM_OK) return status;
    *known_p = known;
    tpc_rows_t rows = {.form = is_unequal(comm, &known) ? TPC_ROWS_UNEQUAL : 0};
    tpc_call_key_t key = key_of(comm, &known, &rows);
    key.capturing = (known.flags & TPCOMM_CALL_CAPTURED) != 0;
    status = tpc_dispatch_explain(comm->dispatch, &key, known.path, decision_p);
    return status == TPCOMM_OK ? TPCOMM_OK : tpc_comm_refused(comm, status);
}

tpcomm_status_t tpcomm_explain(const tpcomm_t *comm, const tpcomm_call_t *call, tpcomm_decision_t *decision) {
    tpcomm_call_t known = {0};
    tpcomm_decision_t made = {0};
    tpcomm_status_t status = explain(comm, call, &known, &made);
    return status != TPCOMM_OK ? status : tpc_struct_out("tpcomm_decision", &made, sizeof made, decision);
}

/* What the same call takes in a graph, or outside of one. */
static size_t other_text(const tpcomm_t *comm, const tpcomm_call_t *call, const tpcomm_decision_t *decision, char *text,
                         size_t bytes, size_t used) {
    const char *where = decision->capturing == TPCOMM_ON ? "outside a graph" : "captured in a graph";
    if (decision->other_path == decision->path)
        return tpc_text_append(text, bytes, used, "  %s: the same path\n", where);
    if (decision->other_path == 0) return tpc_text_append(text, bytes, used, "  %s: no path\n", where);
    tpcomm_call_t other = *call, known = {0};
    tpcomm_decision_t made = {0};
    other.flags ^= TPCOMM_CALL_CAPTURED;
    if (explain(comm, &other, &known, &made) != TPCOMM_OK) return used;
    return tpc_text_append(text, bytes, used, "  %s: %s, because: %s\n", where, tpcomm_path_name(made.path),
                           made.reason);
}

/* What the first step of an unfused call takes. */
static size_t reduction_text(const tpcomm_t *comm, const tpcomm_call_t *call, const tpcomm_decision_t *decision,
                             char *text, size_t bytes, size_t used) {
    tpcomm_decision_t made = {0};
    if (decision->path != TPCOMM_PATH_UNFUSED) return used;
    tpc_rows_t rows = {0};
    tpc_call_key_t key = key_of(comm, call, &rows);
    key.capturing = decision->capturing == TPCOMM_ON;
    key = tpc_dispatch_reduction_of(&key);
    if (tpc_dispatch_explain(comm->dispatch, &key, 0, &made) != TPCOMM_OK) return used;
    return tpc_text_append(text, bytes, used, "  its %s: %s, because: %s\n", tpcomm_coll_name(key.coll),
                           tpcomm_path_name(made.path), made.reason);
}

tpcomm_status_t tpcomm_explain_text(const tpcomm_t *comm, const tpcomm_call_t *call, char *text, size_t bytes) {
    tpcomm_call_t known = {0};
    tpcomm_decision_t decision = {0};
    if (text == NULL || bytes == 0) return tpc_error(TPCOMM_ERR_INVALID_ARG, "text is NULL or has no room");
    text[0] = '\0';
    tpcomm_status_t status = explain(comm, call, &known, &decision);
    if (status != TPCOMM_OK) return status;
    size_t used = 0;
    used = tpc_text_append(text, bytes, used, "%s", tpcomm_coll_name(known.coll));
    if (tpc_coll_moves_data(known.coll)) {
        tpc_rows_t rows = {0};
        tpc_call_key_t key = key_of(comm, &known, &rows);
        used = tpc_text_append(text, bytes, used, " of %llu %s (%llu bytes)", (unsigned long long)known.count,
                               tpcomm_dtype_name(known.dtype), (unsigned long long)key.bytes);
    }
    if (known.hidden != 0) used = tpc_text_append(text, bytes, used, ", rows of %d", known.hidden);
    if (tpc_coll_reduces(known.coll) && !tpc_coll_norms(known.coll))
        used = tpc_text_append(text, bytes, used, ", %s", tpcomm_op_name(known.op));
    used = tpc_text_append(text, bytes, used, ", %d ranks%s: %s\n  because: %s\n", comm->size,
                           known.flags & TPCOMM_CALL_CAPTURED ? ", captured in a graph" : "",
                           tpcomm_path_name(decision.path), decision.reason);
    used = reduction_text(comm, &known, &decision, text, bytes, used);
    if (decision.bytes_max == UINT64_MAX)
        used =
            tpc_text_append(text, bytes, used, "  holds from %llu bytes up\n", (unsigned long long)decision.bytes_min);
    else
        used = tpc_text_append(text, bytes, used, "  holds from %llu to %llu bytes\n",
                               (unsigned long long)decision.bytes_min, (unsigned long long)decision.bytes_max);
    if (comm->agreed.device_kind == TPCOMM_DEVICE_CUDA || decision.other_path != decision.path)
        used = other_text(comm, &known, &decision, text, bytes, used);
    if (decision.expected_ns >= 0)
        used = tpc_text_append(text, bytes, used, "  expected: %.1f us\n", (double)decision.expected_ns / 1000.0);
    for (int32_t i = 0; i < decision.rejected_count; i++)
        used = tpc_text_append(text, bytes, used, "  not %s: %s\n", tpcomm_path_name(decision.rejected[i].path),
                               decision.rejected[i].why_not);
    used = tpc_text_append(text, bytes, used, "  check %s\n", tpc_check_text(comm, decision.path));
    if (used < bytes) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_TOO_SMALL, "the text needs %zu bytes, the buffer has %zu", used + 1, bytes);
}
