/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host side of the custom kernels: the group's memory, the shape of a launch, and what a kernel that gave up has left
 * behind.
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
#include "custom_ar/launch.h"
#include "custom_ar/said.h"
#include "custom_ar/share.h"
#include "health/pulse.h"
#include "health/watchdog.h"
#include "peer_mem/device_memory.h"

/* In host memory that all ranks of a group share. */
typedef struct {
    tpc_ar_report_t reports[TPCOMM_MAX_RANKS];
    _Atomic int32_t users[TPCOMM_MAX_RANKS]; /* peer_mem/device_memory.h */
    tpc_pulse_t pulse;
} control_t;
/* Behind it, where no kernel looks: a table of what each rank says it calls. */

/*
 * Groups that may run at the same time on one GPU. Kernels that wait for each other must be resident together, whatever
 * their kinds: all of them have no more blocks than the GPU has SMs, so that a block always finds an SM of its own. (As
 * many as occupancy allows of each kind do not fit when kinds are mixed: on an H200, one-shot, two-shot and the ring of
 * two groups of 4 ranks kept each other out in 2 of 5 runs of gpu_order.) A dependent launch does not count twice: its
 * predecessor's blocks have all had their last wait when it begins (end_call), so that they end by themselves.
 */
#define CONCURRENT_GROUPS 2

/* Turns of a large message that are pushed before the first is reduced: a turn is about 1 MiB, a link's latency about
 * 0.7 MiB long. One device's memory has no such latency: there all is pushed first (docs/performance.md). */
#define LEAD_TURNS 1u

#define DESTROY_WAIT_MS 1000u

/* Working threads of a block. */
enum { THREADS_COUNT = 4 };
static const int32_t threads_of[THREADS_COUNT] = {64, 128, 256, 512};

typedef struct {
    tpc_backend_group_t group;
    size_t slot_bytes;
    tpc_device_memory_t memory;
    control_t *control;     /* in host memory that all ranks share */
    void *pinned;           /* the workspace's header as pinned; NULL: not */
    tpc_ar_params_t params; /* what does not change from call to call */
    int32_t blocks_max[TPC_AR_KINDS][THREADS_COUNT];
    int32_t ring_blocks; /* that a ring's launch may have on every rank; 0: no ring */
    int32_t parts;       /* kernels that may be resident on this device at once */
    bool shares_device;
    bool early;   /* launches may be dependent ones (wait.cuh, begin_call and end_call) */
    int timer_fd; /* beats the pulse; -1: none */
    tpc_watch_t *watch;
} state_t;

/* ------------------------------------------------------------------ shapes */

static tpc_ar_said_t *said_by(const state_t *state, int32_t rank) {
    return (tpc_ar_said_t *)(void *)(state->control + 1) + (size_t)rank * TPC_AR_SAID_SLOTS;
}

static tpcomm_status_t workspace_bytes(const tpc_agreed_t *agreed, size_t *bytes_p) {
    if (agreed->size > 1 && tpc_ar_slot_bytes(agreed) == 0)
        return tpc_error(TPCOMM_ERR_TOO_SMALL,
                         "TPCOMM_WORKSPACE_BYTES is %llu, but a group of %d ranks needs %zu bytes per rank",
                         (unsigned long long)agreed->workspace_bytes, agreed->size, tpc_ar_least_bytes(agreed->size));
    *bytes_p = sizeof(control_t) + (size_t)agreed->size * TPC_AR_SAID_SLOTS * sizeof(tpc_ar_said_t);
    return TPCOMM_OK;
}

/* Small blocks for small messages, and a vector a thread: what measured fastest on an H200 (docs/performance.md). Where
 * that does not fit the grid, the largest blocks, and as many turns as it must, all of the same length. */
static tpc_ar_shape_t shape_for(const state_t *state, tpc_ar_form_t form, const tpc_ar_params_t *params,
                                uint64_t bytes) {
    int32_t vectors = (int32_t)tpc_hook_value("ar_vectors", 1);
    tpc_ar_kind_t kind = tpc_ar_kind(form, params, vectors);
    uint64_t packet = tpc_ar_packet_payload(form, params->dtype), owners = form.twoshot ? (uint64_t)params->size : 1;
    if (tpc_ar_is_fast(kind) && owners == 1) bytes -= bytes % packet; /* the tail has a thread of its own */
    uint64_t packets = ((bytes + packet - 1) / packet + owners - 1) / owners;
    int which = (int)tpc_hook_value("ar_threads", packets <= 256 ? 0 : packets <= 4096 ? 1 : 2);
    uint64_t of_thread = kind == TPC_AR_ONESHOT_2 ? 2 : 1, each = (uint64_t)threads_of[which] * of_thread;
    uint64_t blocks = (packets + each - 1) / each, most = (uint64_t)state->blocks_max[kind][which];
    if (blocks > most) {
        which = (int)tpc_hook_value("ar_threads", THREADS_COUNT - 1);
        each = (uint64_t)threads_of[which] * of_thread;
        blocks = (packets + each - 1) / each;
        most = (uint64_t)state->blocks_max[kind][which];
    }
    if (tpc_hook_value("ar_blocks", most) < most) most = tpc_hook_value("ar_blocks", most);
    if (blocks > most) {
        uint64_t turns = (blocks + most - 1) / most;
        blocks = (blocks + turns - 1) / turns;
    }
    return (tpc_ar_shape_t){
        .blocks = blocks > 0 ? (int32_t)blocks : 1, .threads = threads_of[which], .vectors = vectors};
}

/* Equal on all ranks. */
static tpc_ar_shape_t ring_shape(const state_t *state, uint64_t bytes) {
    uint64_t part =
        state->params.size == 2 ? bytes : (bytes + (uint64_t)state->params.size - 1) / (uint64_t)state->params.size;
    uint64_t blocks = (part + state->params.ring_piece - 1) / state->params.ring_piece;
    uint64_t most = tpc_hook_value("ar_blocks", (uint64_t)state->ring_blocks);
    if (most > (uint64_t)state->ring_blocks) most = (uint64_t)state->ring_blocks;
    if (blocks > most) blocks = most;
    return (tpc_ar_shape_t){.blocks = blocks > 0 ? (int32_t)blocks : 1, .threads = TPC_AR_RING_MOVERS, .vectors = 1};
}

/* ------------------------------------------------------------------ making */

/* The first that a kernel is asked for: a build for other GPUs shows here, and not at the first call. */
static tpcomm_status_t no_image(const tpc_cuda_facts_t *mine, int error) {
    char text[TPC_ERROR_BYTES];
    (void)tpc_cuda_error(error, "the kernels cannot be loaded");
    snprintf(text, sizeof text, "%s", tpcomm_last_error());
    return tpc_error(TPCOMM_ERR_NO_TRANSPORT, "%s (%s) is sm_%d, the kernels of this library are built for %s: %.400s",
                     mine->name, mine->bus_id, mine->arch, TPC_CUDA_ARCHITECTURES, text);
}

tpcomm_status_t tpc_ar_grid_limit(const void *opaque, const void *kernel, int32_t threads, int32_t *blocks_p) {
    const state_t *state = opaque;
    const tpc_cuda_facts_t *mine = &state->group.devices[state->group.rank];
    struct cudaFuncAttributes attributes;
    int blocks = 0;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error == cudaSuccess)
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads + TPC_AR_HEADER_THREADS, 0);
    if (tpc_hook_value("no_kernel_image", UINT64_MAX) == (uint64_t)state->group.rank)
        error = cudaErrorNoKernelImageForDevice;
    if (error != cudaSuccess) return no_image(mine, (int)error);
    int most = mine->sms / state->parts;
    if (blocks < 1 || most < 1)
        return tpc_error(TPCOMM_ERR_DEVICE, "%d kernels at once leave no room for each other on one device",
                         state->parts);
    *blocks_p = most < TPC_AR_MAX_BLOCKS ? most : TPC_AR_MAX_BLOCKS;
    return TPCOMM_OK;
}

const tpc_ar_params_t *tpc_ar_shared_params(const void *opaque) {
    const state_t *state = opaque;
    return &state->params;
}

void tpc_ar_say_call(const void *opaque, const tpc_ar_params_t *params, const tpc_flight_record_t *record) {
    const state_t *state = opaque;
    tpc_ar_say(said_by(state, params->rank), params->what, params->hash, record);
}

/* Of a kind, the fewest that any of its kernels may have. */
static tpcomm_status_t size_grid(const state_t *state, tpc_ar_kind_t kind, int32_t threads, int32_t *blocks_p) {
    const void *kernels[TPC_AR_KERNELS_MAX];
    size_t n = tpc_ar_kernels(kind, state->group.agreed.size, kernels);
    int32_t fewest = TPC_AR_MAX_BLOCKS;
    for (size_t i = 0; i < n; i++) {
        int32_t blocks = 0;
        tpcomm_status_t status = tpc_ar_grid_limit(state, kernels[i], threads, &blocks);
        if (status != TPCOMM_OK) return status;
        if (blocks < fewest) fewest = blocks;
    }
    *blocks_p = fewest;
    return TPCOMM_OK;
}

static tpcomm_status_t size_grids(state_t *state, const tpc_cuda_facts_t *facts) {
    int32_t sharing = 0;
    for (int32_t r = 0; r < state->group.agreed.size; r++)
        sharing += memcmp(facts[r].uuid, facts[state->group.rank].uuid, sizeof facts[r].uuid) == 0;
    state->shares_device = sharing > 1;
    state->early = sharing == 1 && facts[state->group.rank].arch >= 90;
    state->params.early = state->early;
    state->parts = sharing * CONCURRENT_GROUPS;
    for (int kind = 0; kind < TPC_AR_RING_FAST; kind++)
        for (int which = 0; which < THREADS_COUNT; which++) {
            tpcomm_status_t status =
                size_grid(state, (tpc_ar_kind_t)kind, threads_of[which], &state->blocks_max[kind][which]);
            if (status != TPCOMM_OK) return status;
        }
    state->ring_blocks = (int32_t)state->params.ring_blocks;
    for (int kind = TPC_AR_RING_FAST; kind < TPC_AR_KINDS && state->ring_blocks > 0; kind++) {
        int32_t blocks = 0;
        tpcomm_status_t status =
            size_grid(state, (tpc_ar_kind_t)kind, TPC_AR_RING_MOVERS + TPC_AR_RING_SIGNALLERS, &blocks);
        if (status != TPCOMM_OK) return status;
        if (blocks < state->ring_blocks) state->ring_blocks = blocks;
    }
    return TPCOMM_OK;
}

/* The vote on the kernels, in which a ring's blocks become the fewest of any rank. */
static tpcomm_status_t agree_on_kernels(state_t *state, tpcomm_status_t status) {
    int32_t blocks[TPC_AR_MAX_RANKS];
    status = tpc_team_gather(state->group.bootstrap, state->group.team, "prepare kernels", status, &state->ring_blocks,
                             sizeof state->ring_blocks, blocks, state->group.deadline);
    for (int32_t r = 0; r < state->group.agreed.size && status == TPCOMM_OK; r++)
        if (blocks[r] < state->ring_blocks) state->ring_blocks = blocks[r];
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

static tpcomm_status_t write_header(state_t *state) {
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
    tpcomm_status_t status = tpc_cuda_error(cudaMemcpy(state->memory.own, &first, sizeof first, cudaMemcpyDefault),
                                            "cannot write the header");
    if (status == TPCOMM_OK) status = tpc_cuda_error(cudaDeviceSynchronize(), "cannot write the header");
    return status;
}

static void poll(void *opaque);

/* On the watchdog's thread. */
static void beat(void *arg) {
    state_t *state = arg;
    uint64_t times;
    (void)!read(state->timer_fd, &times, sizeof times);
    tpc_pulse_beat(&state->control->pulse, tpc_clock_ns());
    poll(state); /* no rank's host may be in a call */
}

/* While the group goes: kernels that have waited for their limit still want a beat, and see the failure behind it. */
static void beat_alone(void *arg) {
    const state_t *state = arg;
    uint64_t times;
    (void)!read(state->timer_fd, &times, sizeof times);
    tpc_pulse_beat(&state->control->pulse, tpc_clock_ns());
}

static tpcomm_status_t start_pulse(state_t *state) {
    const long each_ns = (long)tpc_hook_value("pulse_ms", TPC_PULSE_MS) * 1000000L;
    const struct itimerspec every = {.it_interval = {.tv_nsec = each_ns}, .it_value = {.tv_nsec = 1}};
    state->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (state->timer_fd < 0 || timerfd_settime(state->timer_fd, 0, &every, NULL) != 0)
        return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, errno, "cannot make a timer");
    return tpc_watchdog_add(state->timer_fd, TPC_WATCH_LEVEL, beat, state, &state->watch);
}

static tpcomm_status_t make_parts(state_t *state, const tpc_cuda_facts_t *facts) {
    tpcomm_status_t status = size_grids(state, facts);
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
    state_t *state = calloc(1, sizeof *state);
    if (state == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    state->group = *group;
    state->timer_fd = -1;
    state->control = (void *)group->workspace->data;
    state->params.rank = group->rank;
    state->params.size = group->agreed.size;
    tpc_cuda_scope_t scope;
    tpcomm_status_t status = tpc_cuda_enter(&group->devices[group->rank], &scope);
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
    state_t *state = opaque;
    tpc_cuda_scope_t scope;
    tpc_watchdog_remove(state->watch);
    state->watch = NULL;
    if (tpc_cuda_enter(&state->group.devices[state->group.rank], &scope) != TPCOMM_OK) {
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

static tpcomm_status_t launch_all(state_t *state, const tpc_request_t *request) {
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
        tpc_ar_shape_t shape = form.ring ? ring_shape(state, bytes) : shape_for(state, form, &params, bytes);
        facts[2] = left;
        facts[6] = form.ring ? (uint64_t)shape.blocks : 0; /* other grids are each rank's own affair */
        uint64_t hash = tpc_hash_words(TPC_HASH_START, facts, 7);
        params.hash = (uint32_t)hash;
        tpc_ar_say(said_by(state, params.rank), params.what, params.hash, record);
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
    state_t *state = opaque;
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

/* ------------------------------------------------------------------ failures */

/* A kernel of any rank that gave up has written its report: make it the group's failure, with a text. */
static void poll(void *opaque) {
    state_t *state = opaque;
    if (state->group.agreed.size == 1) return;
    for (int32_t r = 0; r < state->group.agreed.size; r++) {
        const volatile tpc_ar_report_t *report = &state->control->reports[r];
        uint64_t word = report->word;
        if (word == 0) continue;
        atomic_thread_fence(memory_order_acquire);
        tpcomm_status_t status = -(tpcomm_status_t)(uint32_t)word;
        char text[TPC_ERROR_BYTES], mine[240], theirs[240];
        tpc_failure_place_t place = {.rank = report->peer};
        if (status == TPCOMM_ERR_MISMATCH && report->peer >= 0 && report->peer < state->group.agreed.size) {
            snprintf(text, sizeof text, "kernel call %u: rank %d called %s; rank %d called %s", report->epoch, r,
                     tpc_ar_said_text(said_by(state, r), (uint32_t)(report->mine[0] >> 32),
                                      (uint32_t)(report->mine[1] >> 32), mine, sizeof mine),
                     report->peer,
                     tpc_ar_said_text(said_by(state, report->peer), (uint32_t)(report->theirs[0] >> 32),
                                      (uint32_t)(report->theirs[1] >> 32), theirs, sizeof theirs));
        } else if (status == TPCOMM_ERR_OVERLAP) {
            snprintf(text, sizeof text,
                     "kernel call %u of rank %d began while another of its calls was running: the caller's streams and "
                     "graphs must put the calls of one group in an order (docs/graphs.md)",
                     report->epoch, r);
        } else {
            int used = snprintf(text, sizeof text, "kernel call %u of rank %d: after %u ms still waiting for rank %d",
                                report->epoch, r, atomic_load(state->group.wait->timeout_ms), report->peer);
            if (report->peer >= 0)
                used += snprintf(text + used, sizeof text - (size_t)used, " (last seq %llu)",
                                 (unsigned long long)atomic_load(&state->group.failure->slots[report->peer].begun));
            if (state->group.agreed.shares_device)
                snprintf(text + used, sizeof text - (size_t)used,
                         "; ranks share a GPU: docs/gpu.md says what can keep one out");
        }
        tpc_failure_raise(state->group.failure, status, place, text);
        return;
    }
}

static void wake(void *opaque) {
    (void)opaque; /* kernels watch the failure word themselves; nobody sleeps on the host */
}

static uint64_t device_bytes(const void *opaque) {
    const state_t *state = opaque;
    return state->memory.own != NULL ? state->memory.share.bytes : 0;
}

static uint64_t rank_seq(void *opaque, int32_t rank) {
    (void)opaque, (void)rank;
    return 0;
}

/* A word of the own header, which kernels read. Asynchronous to everything: the copy has a stream of its own. */
static tpcomm_status_t write_word(state_t *state, size_t offset, const void *word, size_t bytes, const char *what) {
    tpc_cuda_scope_t scope;
    tpcomm_status_t status = tpc_cuda_enter(&state->group.devices[state->group.rank], &scope);
    if (status != TPCOMM_OK) return status;
    cudaStream_t stream = NULL;
    status = tpc_cuda_error(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot make a stream");
    if (status == TPCOMM_OK) {
        status = tpc_cuda_error(
            cudaMemcpyAsync(state->memory.own + offset, word, bytes, cudaMemcpyHostToDevice, stream), what);
        if (status == TPCOMM_OK) status = tpc_cuda_error(cudaStreamSynchronize(stream), what);
        (void)cudaStreamDestroy(stream);
    }
    tpc_cuda_leave(scope);
    return status;
}

static tpcomm_status_t set_timeout(void *opaque, uint32_t timeout_ms) {
    state_t *state = opaque;
    if (state->memory.own == NULL) return TPCOMM_OK;
    return write_word(state, offsetof(tpc_ar_header_t, timeout_ms), &timeout_ms, sizeof timeout_ms,
                      "cannot write the limit");
}

static tpcomm_status_t note_waits(void *opaque, bool on) {
    state_t *state = opaque;
    uint32_t word = on;
    if (state->memory.own == NULL) return TPCOMM_OK;
    return write_word(state, offsetof(tpc_ar_header_t, notes_waits), &word, sizeof word,
                      "cannot have kernels note waits");
}

/* What this rank's kernels have written, as it is at this moment. */
static tpc_waits_t waits(const void *opaque, tpcomm_path_t path) {
    const state_t *state = opaque;
    if (path >= TPC_AR_WAITS_PATHS) return (tpc_waits_t){0, 0};
    const volatile tpc_ar_waits_t *noted = &state->control->reports[state->group.rank].waits;
    return (tpc_waits_t){.calls = noted->path[path].calls, .wait_ns = noted->path[path].wait_ns};
}

static uint64_t times_last(const void *opaque, int32_t rank) {
    const state_t *state = opaque;
    const volatile tpc_ar_waits_t *noted = &state->control->reports[state->group.rank].waits;
    return rank < TPC_AR_MAX_RANKS ? noted->last[rank] : 0;
}

/* A kernel looks at the host's word in a wait that lasts, and at this one as it begins. */
static void outlived(void *opaque) {
    state_t *state = opaque;
    uint64_t word = atomic_load(state->group.failure->word);
    if (state->memory.own == NULL) return;
    (void)write_word(state, offsetof(tpc_ar_header_t, fail), &word, sizeof word, "cannot write the failure");
}

static const char *check_stream(void *opaque, tpcomm_stream_t stream) {
    const state_t *state = opaque;
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
