/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host side of the custom kernels: the group's memory, its calls, and its end.
 */
#include "custom_ar/custom_ar.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/hook.h"
#include "custom_ar/share.h"
#include "custom_ar/state.h"

/* Turns of a large message that are pushed before the first is reduced: a turn is about 1 MiB, a link's latency about
 * 0.7 MiB long. One device's memory has no such latency: there all is pushed first (docs/performance.md). */
#define LEAD_TURNS 1u

#define DESTROY_WAIT_MS 1000u

static tpcomm_status_t workspace_bytes(const tpc_agreed_t *agreed, size_t *bytes_p) {
    if (agreed->size > 1 && tpc_ar_slot_bytes(agreed) == 0)
        return tpc_error(TPCOMM_ERR_TOO_SMALL,
                         "TPCOMM_WORKSPACE_BYTES is %llu, but a group of %d ranks needs %zu bytes per rank",
                         (unsigned long long)agreed->workspace_bytes, agreed->size, tpc_ar_least_bytes(agreed->size));
    *bytes_p = sizeof(tpc_ar_control_t) + (size_t)agreed->size * TPC_AR_SAID_SLOTS * sizeof(tpc_ar_said_t);
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ making */

const tpc_ar_params_t *tpc_ar_shared_params(const void *opaque) {
    const tpc_ar_state_t *state = opaque;
    return &state->params;
}

void tpc_ar_say_call(const void *opaque, const tpc_ar_params_t *params, const tpc_flight_record_t *record) {
    const tpc_ar_state_t *state = opaque;
    tpc_ar_say(tpc_ar_said_by(state, params->rank), params->what, params->hash, record);
}

/* The vote on the kernels, in which a ring's blocks become the fewest of any rank. */
static tpcomm_status_t agree_on_kernels(tpc_ar_state_t *state, tpcomm_status_t status) {
    int32_t blocks[TPC_AR_MAX_RANKS];
    status = tpc_team_gather(state->group.bootstrap, state->group.team, "prepare kernels", status, &state->ring_blocks,
                             sizeof state->ring_blocks, blocks, state->group.deadline);
    for (int32_t r = 0; r < state->group.agreed.size && status == TPCOMM_OK; r++)
        if (blocks[r] < state->ring_blocks) state->ring_blocks = blocks[r];
    return status;
}

/* Into the own workspace. Asynchronous to everything: the copy has a stream of its own. */
static tpcomm_status_t write_own(tpc_ar_state_t *state, size_t offset, const void *from, size_t bytes,
                                 const char *what) {
    cudaStream_t stream = NULL;
    tpcomm_status_t status =
        tpc_cuda_error(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot make a stream");
    if (status != TPCOMM_OK) return status;
    status =
        tpc_cuda_error(cudaMemcpyAsync(state->memory.own + offset, from, bytes, cudaMemcpyHostToDevice, stream), what);
    cudaError_t waited = cudaStreamSynchronize(stream); /* in any case: no copy may outlive the memory */
    if (status == TPCOMM_OK) status = tpc_cuda_error(waited, what);
    (void)cudaStreamDestroy(stream);
    return status;
}

/* A workspace's beginning: header, epochs, waits. Everything else stays EMPTY, the call headers too. */
typedef struct {
    tpc_ar_header_t header;
    uint32_t epochs[TPC_AR_MAX_BLOCKS];
    unsigned char call_headers[TPC_AR_WAITS_OFFSET - TPC_AR_CALL_OFFSET];
    tpc_ar_waits_t waits;
} first_t;
_Static_assert(offsetof(first_t, waits) == TPC_AR_WAITS_OFFSET && sizeof(first_t) <= TPC_AR_SLOT_OFFSET, "layout");

static tpcomm_status_t write_header(tpc_ar_state_t *state) {
    first_t first;
    memset(&first, 0, sizeof first);
    memset(first.call_headers, 0xFF, sizeof first.call_headers);
    memcpy(first.header.magic, "TPCOMMAR", 8);
    first.header.layout = TPC_AR_LAYOUT;
    first.header.rank = state->group.rank;
    first.header.nonce = tpc_bootstrap_nonce(state->group.bootstrap);
    first.header.group_id = state->group.workspace->header->group_id;
    first.header.timeout_ms = atomic_load(state->group.wait->timeout_ms);
    for (int b = 0; b < TPC_AR_MAX_BLOCKS; b++) first.epochs[b] = (uint32_t)tpc_hook_value("epoch", 0);
    return write_own(state, 0, &first, sizeof first, "cannot write the header");
}

/* On the watchdog's thread. */
static void beat(void *arg) {
    tpc_ar_state_t *state = arg;
    uint64_t times;
    (void)!read(state->timer_fd, &times, sizeof times);
    tpc_pulse_beat(&state->control->pulse, tpc_clock_ns());
    tpc_ar_poll(state); /* no rank's host may be in a call */
}

/* While the group goes: kernels that have waited for their limit still want a beat, and see the failure behind it. */
static void beat_alone(void *arg) {
    const tpc_ar_state_t *state = arg;
    uint64_t times;
    (void)!read(state->timer_fd, &times, sizeof times);
    tpc_pulse_beat(&state->control->pulse, tpc_clock_ns());
}

static tpcomm_status_t start_pulse(tpc_ar_state_t *state) {
    const long each_ns = (long)tpc_hook_value("pulse_ms", TPC_PULSE_MS) * 1000000L;
    const struct itimerspec every = {.it_interval = {.tv_nsec = each_ns}, .it_value = {.tv_nsec = 1}};
    state->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (state->timer_fd < 0 || timerfd_settime(state->timer_fd, 0, &every, NULL) != 0)
        return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, errno, "cannot make a timer");
    return tpc_watchdog_add(state->timer_fd, TPC_WATCH_LEVEL, beat, state, &state->watch);
}

static tpcomm_status_t make_parts(tpc_ar_state_t *state, const tpc_cuda_facts_t *facts) {
    tpcomm_status_t status = tpc_ar_size_grids(state, facts);
    if (status != TPCOMM_OK) return status;
    /* The group's failure word and the reports, where kernels and hosts of all ranks see them. */
    tpc_workspace_t *workspace = state->group.workspace;
    unsigned char *host = (unsigned char *)workspace->header;
    void *device_header = NULL;
    status = tpc_cuda_pin(host, (size_t)((unsigned char *)(state->control + 1) - host), &device_header);
    if (status != TPCOMM_OK) return status;
    state->pinned = workspace->header;
    *workspace->stays = true;
    unsigned char *base = device_header;
    state->params.host_fail = (const uint64_t *)(void *)(base + offsetof(tpc_workspace_header_t, fail));
    state->params.report =
        (tpc_ar_report_t *)(void *)(base + ((unsigned char *)&state->control->reports[state->group.rank] - host));
    state->params.host_pulse = (const uint64_t *)(void *)(base + ((unsigned char *)&state->control->pulse - host));
    return start_pulse(state);
}

static void destroy(void *opaque);

static tpcomm_status_t create(const tpc_backend_group_t *group, void **state_p) {
    tpc_ar_state_t *state = calloc(1, sizeof *state);
    if (state == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    state->group = *group;
    state->timer_fd = -1;
    state->control = (void *)group->workspace->data;
    state->params.rank = group->rank;
    state->params.size = group->agreed.size;
    tpc_cuda_scope_t scope;
    tpcomm_status_t status = tpc_cuda_enter_relaxed(&group->devices[group->rank], &scope);
    if (status == TPCOMM_OK && group->agreed.size > 1) {
        tpc_ar_ring_t ring = tpc_ar_ring(&group->agreed);
        state->slot_bytes = tpc_ar_slot_bytes(&group->agreed);
        state->params.slot_bytes = (uint32_t)state->slot_bytes;
        state->params.half_bytes = tpc_ar_half_bytes(group->agreed.size, state->slot_bytes);
        state->params.ring_offset = (uint32_t)tpc_ar_workspace_bytes(group->agreed.size, state->slot_bytes);
        state->params.ring_blocks = ring.blocks;
        state->params.ring_piece = ring.piece_bytes;
        status = agree_on_kernels(state, make_parts(state, group->devices));
        if (status == TPCOMM_OK) {
            tpc_device_memory_plan_t plan = {.methods = tpc_share_methods,
                                             .only = group->agreed.peer_mem,
                                             .bytes = tpc_ar_device_bytes(&group->agreed),
                                             .probe_offset = TPC_AR_SLOT_OFFSET,
                                             .users = state->control->users};
            status = tpc_device_memory_open(group->bootstrap, group->team, group->devices, &plan, group->deadline,
                                            &state->memory);
        }
        if (status == TPCOMM_OK) {
            for (int32_t k = 0; k < group->agreed.size; k++)
                state->params.workspace[k] = state->memory.mapped[(group->rank + k) % group->agreed.size];
            status = write_header(state);
            status =
                tpc_team_gather(group->bootstrap, group->team, "write headers", status, NULL, 0, NULL, group->deadline);
        }
    }
    tpc_cuda_leave(scope);
    if (status != TPCOMM_OK) {
        destroy(state);
        return status;
    }
    *state_p = state;
    return TPCOMM_OK;
}

static void destroy(void *opaque) {
    tpc_ar_state_t *state = opaque;
    tpc_cuda_scope_t scope;
    tpc_watchdog_remove(state->watch);
    state->watch = NULL;
    if (tpc_cuda_enter_relaxed(&state->group.devices[state->group.rank], &scope) != TPCOMM_OK) {
        if (state->timer_fd >= 0) close(state->timer_fd);
        free(state); /* in a forked child CUDA is the parent's; elsewhere nothing can be let go of, and all stays */
        return;
    }
    /* Own kernels end soon: finalized, or by the failure word that destroy has set. No free and no synchronize before.
     */
    if (state->timer_fd >= 0)
        (void)tpc_watchdog_add(state->timer_fd, TPC_WATCH_LEVEL, beat_alone, state, &state->watch);
    bool idle = state->group.agreed.size == 1 || tpc_cuda_order_drain(state->group.order, DESTROY_WAIT_MS);
    tpc_watchdog_remove(state->watch);
    if (state->timer_fd >= 0) close(state->timer_fd);
    if (idle) {
        if (state->memory.own != NULL) tpc_device_memory_close(&state->memory);
        if (state->pinned != NULL) {
            tpc_cuda_unpin(state->pinned);
            *state->group.workspace->stays = false;
        }
    }
    tpc_cuda_leave(scope);
    free(state);
}

/* ------------------------------------------------------------------ calls */

static const char *why_no_ring(const tpc_agreed_t *agreed, const tpc_call_key_t *key) {
    if (key->coll != TPCOMM_ALL_REDUCE) return "the ring is a form of all_reduce";
    if (key->dtype != TPCOMM_F32 && key->dtype != TPCOMM_F16 && key->dtype != TPCOMM_BF16)
        return "the ring carries f32, f16 and bf16";
    return tpc_ar_ring(agreed).blocks > 0 ? NULL : "TPCOMM_WORKSPACE_BYTES leaves no room for the ring";
}

static const char *why_not(const tpc_agreed_t *agreed, tpcomm_path_t path, const tpc_call_key_t *key) {
    if (path == TPCOMM_PATH_LOCAL && agreed->size > 1) return "only a group of one rank needs no communication";
    if (agreed->device_kind != TPCOMM_DEVICE_CUDA) return "the group's device is not a GPU";
    if (tpc_coll_reduces(key->coll) && !tpc_reduction_defined(key->dtype, key->op))
        return "this reduction of this dtype is not defined";
    if (path == TPCOMM_PATH_LOCAL) return NULL;
    if (agreed->size == 1) return "a group of one rank has nobody to talk to";
    if (agreed->topology == TPC_TOPOLOGY_MULTI_HOST) return "the ranks are on several hosts and share no device memory";
    if (agreed->size > TPC_AR_MAX_RANKS) return "the kernels serve groups of at most 16 ranks";
    if (tpc_coll_norms(key->coll)) return "it has no norm";
    if (path == TPCOMM_PATH_TWOSHOT && key->coll != TPCOMM_ALL_REDUCE)
        return "two-shot is a form of all_reduce; other collectives have one phase (oneshot)";
    return path == TPCOMM_PATH_RING ? why_no_ring(agreed, key) : NULL;
}

static tpcomm_status_t launch_all(tpc_ar_state_t *state, const tpc_request_t *request) {
    const tpcomm_call_t *call = request->call;
    bool gathers_rows = call->coll == TPCOMM_ALL_GATHER_ROWS;
    tpc_ar_form_t form = {.coll = gathers_rows ? TPCOMM_ALL_GATHER : call->coll,
                          .twoshot = request->path == TPCOMM_PATH_TWOSHOT,
                          .ring = request->path == TPCOMM_PATH_RING};
    tpc_ar_params_t params = state->params;
    bool moves = tpc_coll_moves_data(call->coll);
    size_t element = moves ? tpcomm_dtype_size(call->dtype) : 1;
    uint64_t left = moves ? call->count : 0;
    if (gathers_rows && left > 0) /* as many of each rank; the last ranks have fewer, or none */
        left = tpc_rows_per_rank(left / (uint64_t)call->hidden, params.size) * (uint64_t)call->hidden;
    uint64_t per_launch = tpc_ar_capacity(form, call->dtype, params.size, state->slot_bytes) / element;
    const tpc_flight_record_t *record = request->record; /* the call as its caller made it */
    uint64_t facts[7] = {moves ? record->count : 0,
                         call->coll == TPCOMM_BROADCAST ? (uint64_t)call->root : 0,
                         0,
                         (uint64_t)(uint32_t)record->rows.hidden << 32 | record->rows.form,
                         (uint64_t)record->rows.eps << 32 | record->rows.bias,
                         request->ordinal,
                         0};
    params.in = call->in;
    params.out = call->out;
    params.dtype = moves ? call->dtype : 0;
    params.op = tpc_coll_reduces(call->coll) ? call->op : 0;
    params.root = call->root;
    params.early = (int32_t)tpc_hook_value("ar_early", state->early);
    params.lead = (uint32_t)tpc_hook_value("ar_lead", state->shares_device ? UINT32_MAX : LEAD_TURNS);
    params.in_stride = params.out_stride = left * element;
    if (gathers_rows) params.parts_bytes = call->count * element;
    params.what = (uint32_t)record->coll | (uint32_t)record->path << 8 | (uint32_t)params.op << 16 |
                  (uint32_t)params.dtype << 20 | (uint32_t)request->capturing << 28;
    do {
        params.count = left < per_launch ? left : per_launch;
        uint64_t bytes = params.count * element;
        tpc_ar_shape_t shape = tpc_ar_shape(state, form, &params, bytes);
        facts[2] = left;
        facts[6] = form.ring ? (uint64_t)shape.blocks : 0; /* other grids are each rank's own affair */
        uint64_t hash = tpc_hash_words(TPC_HASH_START, facts, 7);
        params.hash = (uint32_t)hash;
        tpc_ar_say(tpc_ar_said_by(state, params.rank), params.what, params.hash, record);
        tpcomm_status_t status = tpc_cuda_error(tpc_ar_launch(form, &params, shape, request->stream), "launch");
        if (status != TPCOMM_OK) return status;
        left -= params.count;
        params.in = (const unsigned char *)params.in + params.count * element;
        params.out = (unsigned char *)params.out + params.count * element;
        if (gathers_rows) params.parts_bytes -= params.count * element;
    } while (left > 0);
    return TPCOMM_OK;
}

/* Message bytes that a rank writes for its peers. */
static uint64_t wire_bytes(const tpc_request_t *request, int32_t rank, uint64_t size) {
    bool scatters = request->path == TPCOMM_PATH_TWOSHOT || (request->path == TPCOMM_PATH_RING && size > 2);
    if (scatters) return 2 * request->bytes / size * (size - 1);
    if (request->call->coll == TPCOMM_BROADCAST && request->call->root != rank) return 0;
    return request->bytes * (size - 1);
}

static tpcomm_status_t run(void *opaque, const tpc_request_t *request, tpc_outcome_t *outcome_p) {
    tpc_ar_state_t *state = opaque;
    *outcome_p = (tpc_outcome_t){.last_rank = -1};
    if (request->path != TPCOMM_PATH_LOCAL) {
        outcome_p->wire_bytes = wire_bytes(request, state->group.rank, (uint64_t)state->group.agreed.size);
        return launch_all(state, request);
    }
    if (request->bytes == 0 || request->call->in == request->call->out) return TPCOMM_OK;
    return tpc_cuda_error(cudaMemcpyAsync(request->call->out, request->call->in, (size_t)request->bytes,
                                          cudaMemcpyDeviceToDevice, (cudaStream_t)request->stream),
                          "copy");
}

/* ------------------------------------------------------------------ beside calls */

static void poll(void *opaque) {
    tpc_ar_poll(opaque);
}

static tpc_waits_t waits(const void *opaque, tpcomm_path_t path) {
    return tpc_ar_waits(opaque, path);
}

static uint64_t times_last(const void *opaque, int32_t rank) {
    return tpc_ar_times_last(opaque, rank);
}

static void wake(void *opaque) {
    (void)opaque; /* kernels watch the failure word themselves; nobody sleeps on the host */
}

static uint64_t device_bytes(const void *opaque) {
    const tpc_ar_state_t *state = opaque;
    return state->memory.own != NULL ? state->memory.share.bytes : 0;
}

static uint64_t rank_seq(void *opaque, int32_t rank) {
    (void)opaque, (void)rank;
    return 0;
}

/* Words of the own header, which kernels read. */
static tpcomm_status_t write_word(tpc_ar_state_t *state, size_t offset, const void *word, size_t bytes,
                                  const char *what) {
    tpc_cuda_scope_t scope;
    tpcomm_status_t status = tpc_cuda_enter_relaxed(&state->group.devices[state->group.rank], &scope);
    if (status != TPCOMM_OK) return status;
    status = write_own(state, offset, word, bytes, what);
    tpc_cuda_leave(scope);
    return status;
}

static tpcomm_status_t set_timeout(void *opaque, uint32_t timeout_ms) {
    tpc_ar_state_t *state = opaque;
    if (state->memory.own == NULL) return TPCOMM_OK;
    return write_word(state, offsetof(tpc_ar_header_t, timeout_ms), &timeout_ms, sizeof timeout_ms,
                      "cannot write the limit");
}

static tpcomm_status_t note_waits(void *opaque, bool on) {
    tpc_ar_state_t *state = opaque;
    uint32_t word = on;
    if (state->memory.own == NULL) return TPCOMM_OK;
    return write_word(state, offsetof(tpc_ar_header_t, notes_waits), &word, sizeof word,
                      "cannot have kernels note waits");
}

/* A kernel looks at the host's word in a wait that lasts, and at this one as it begins. */
static void outlived(void *opaque) {
    tpc_ar_state_t *state = opaque;
    uint64_t word = atomic_load(state->group.failure->word);
    if (state->memory.own == NULL) return;
    (void)write_word(state, offsetof(tpc_ar_header_t, fail), &word, sizeof word, "cannot write the failure");
}

static const char *check_stream(void *opaque, tpcomm_stream_t stream) {
    const tpc_ar_state_t *state = opaque;
    if (stream == NULL && state->shares_device)
        return "it must not be NULL (the legacy stream) in a group whose ranks share a device: they would wait for "
               "each other";
    return NULL;
}

static const char *describe(const void *state) {
    (void)state;
    return TPC_CUDA_ARCHITECTURES; /* of this build */
}

static const tpcomm_path_t paths[] = {TPCOMM_PATH_ONESHOT, TPCOMM_PATH_TWOSHOT, TPCOMM_PATH_RING, TPCOMM_PATH_LOCAL, 0};

const tpc_backend_t tpc_custom_ar_backend = {
    .name = "custom_ar",
    .device_kind = TPCOMM_DEVICE_CUDA,
    .paths = paths,
    .describe = describe,
    .version = tpc_backend_own_version,
    .why_not = why_not,
    .workspace_bytes = workspace_bytes,
    .create = create,
    .destroy = destroy,
    .wake = wake,
    .outlived = outlived,
    .poll = poll,
    .rank_seq = rank_seq,
    .device_bytes = device_bytes,
    .set_timeout = set_timeout,
    .note_waits = note_waits,
    .waits = waits,
    .times_last = times_last,
    .check_stream = check_stream,
    .run = run,
};
