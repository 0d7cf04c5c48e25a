/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host side of the custom kernels: the group's memory, the shape of a launch, and what a kernel that gave up has left
 * behind.
 */
#include "custom_ar/custom_ar.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/hook.h"
#include "custom_ar/launch.h"
#include "peer_mem/device_memory.h"

/* In host memory that all ranks of a group share. */
typedef struct {
    tpc_ar_report_t reports[TPCOMM_MAX_RANKS];
    _Atomic int32_t users[TPCOMM_MAX_RANKS]; /* peer_mem/device_memory.h */
} control_t;

#define LARGEST_SLOT  (4u << 20)
#define SMALLEST_SLOT (16u << 10)

/* Groups that may run at the same time on one GPU: a grid is this much smaller than what fits, so that kernels which
 * wait for each other are resident together. */
#define CONCURRENT_GROUPS 2

#define DESTROY_WAIT_MS 1000u

typedef struct {
    tpc_backend_group_t group;
    size_t slot_bytes;
    tpc_device_memory_t memory;
    control_t *control;     /* in host memory that all ranks share */
    void *pinned;           /* the workspace's header as pinned; NULL: not */
    tpc_ar_params_t params; /* what does not change from call to call */
    int32_t blocks_max[3];  /* by threads 64, 128, 256 */
    bool shares_device;
} state_t;

/* ------------------------------------------------------------------ sizes */

/* Largest slot, a power of two, with which a rank's device workspace stays in the limit. */
static size_t slot_bytes_for(const tpc_agreed_t *agreed) {
    size_t slot = LARGEST_SLOT;
    while (slot > SMALLEST_SLOT && tpc_ar_workspace_bytes(agreed->size, slot) > agreed->workspace_bytes) slot /= 2;
    return tpc_ar_workspace_bytes(agreed->size, slot) <= agreed->workspace_bytes ? slot : 0;
}

static tpcomm_status_t workspace_bytes(const tpc_agreed_t *agreed, size_t *bytes_p) {
    if (agreed->size > 1 && slot_bytes_for(agreed) == 0)
        return tpc_error(TPCOMM_ERR_TOO_SMALL,
                         "TPCOMM_WORKSPACE_BYTES is %llu, but a group of %d ranks needs %zu bytes per rank",
                         (unsigned long long)agreed->workspace_bytes, agreed->size,
                         tpc_ar_workspace_bytes(agreed->size, SMALLEST_SLOT));
    *bytes_p = sizeof(control_t);
    return TPCOMM_OK;
}

/* Small messages in many small blocks, a vector a thread: what measured fastest on an H200 (docs/performance.md). */
static tpc_ar_shape_t shape_for(const state_t *state, uint64_t vectors) {
    int which = vectors <= 4096 ? 0 : vectors <= 32768 ? 1 : 2;
    tpc_ar_shape_t shape = {.threads = 64 << which};
    uint64_t blocks = (vectors + (uint64_t)shape.threads - 1) / (uint64_t)shape.threads;
    if (blocks > (uint64_t)state->blocks_max[which]) blocks = (uint64_t)state->blocks_max[which];
    shape.blocks = blocks > 0 ? (int32_t)blocks : 1;
    return shape;
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

static tpcomm_status_t size_grids(state_t *state, const tpc_cuda_facts_t *facts) {
    int32_t sharing = 0;
    for (int32_t r = 0; r < state->group.agreed.size; r++)
        sharing += memcmp(facts[r].uuid, facts[state->group.rank].uuid, sizeof facts[r].uuid) == 0;
    state->shares_device = sharing > 1;
    for (int which = 0; which < 3; which++) {
        int32_t per_sm = 0;
        int error = tpc_ar_blocks_per_sm(64 << which, &per_sm);
        if (tpc_hook_value("no_kernel_image", UINT64_MAX) == (uint64_t)state->group.rank)
            error = cudaErrorNoKernelImageForDevice;
        if (error != cudaSuccess) return no_image(&facts[state->group.rank], error);
        int32_t blocks = per_sm * facts[state->group.rank].sms / (sharing * CONCURRENT_GROUPS);
        if (blocks > TPC_AR_MAX_BLOCKS) blocks = TPC_AR_MAX_BLOCKS;
        if (blocks < 1)
            return tpc_error(TPCOMM_ERR_DEVICE, "%d ranks on one device leave no room for their kernels", sharing);
        state->blocks_max[which] = blocks;
    }
    return TPCOMM_OK;
}

/* Header and epochs of the own workspace; everything else stays EMPTY. */
static tpcomm_status_t write_header(state_t *state) {
    struct {
        tpc_ar_header_t header;
        uint32_t epochs[TPC_AR_MAX_BLOCKS];
    } first;
    memset(&first, 0, sizeof first);
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

static tpcomm_status_t make_parts(state_t *state, const tpc_cuda_facts_t *facts) {
    tpcomm_status_t status = size_grids(state, facts);
    if (status == TPCOMM_OK) status = tpc_cuda_error(tpc_ar_load_kernels(), "cannot load the kernels");
    if (status != TPCOMM_OK) return status;
    /* The group's failure word and the reports, where kernels and hosts of all ranks see them. */
    tpc_workspace_t *workspace = state->group.workspace;
    unsigned char *host = (unsigned char *)workspace->header;
    void *device_header = NULL;
    status = tpc_cuda_pin(host, (size_t)((unsigned char *)(state->control + 1) - host), &device_header);
    if (status != TPCOMM_OK) return status;
    state->pinned = workspace->header;
    unsigned char *base = device_header;
    state->params.host_fail = (const uint64_t *)(void *)(base + offsetof(tpc_workspace_header_t, fail));
    state->params.report =
        (tpc_ar_report_t *)(void *)(base + ((unsigned char *)&state->control->reports[state->group.rank] - host));
    return TPCOMM_OK;
}

static void destroy(void *opaque);

static tpcomm_status_t create(const tpc_backend_group_t *group, void **state_p) {
    state_t *state = calloc(1, sizeof *state);
    if (state == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    state->group = *group;
    state->control = (void *)group->workspace->data;
    state->params.rank = group->rank;
    state->params.size = group->agreed.size;
    tpc_cuda_scope_t scope;
    tpcomm_status_t status = tpc_cuda_enter(&group->devices[group->rank], &scope);
    if (status == TPCOMM_OK && group->agreed.size > 1) {
        status = make_parts(state, group->devices);
        status =
            tpc_team_gather(group->bootstrap, group->team, "prepare kernels", status, NULL, 0, NULL, group->deadline);
        if (status == TPCOMM_OK) {
            state->slot_bytes = state->params.slot_bytes = slot_bytes_for(&group->agreed);
            tpc_device_memory_plan_t plan = {.methods = tpc_share_methods,
                                             .only = group->agreed.peer_mem,
                                             .bytes = tpc_ar_workspace_bytes(group->agreed.size, state->slot_bytes),
                                             .probe_offset = TPC_AR_SLOT_OFFSET,
                                             .users = state->control->users};
            status = tpc_device_memory_open(group->bootstrap, group->team, group->devices, &plan, group->deadline,
                                            &state->memory);
        }
        if (status == TPCOMM_OK) {
            memcpy(state->params.workspace, state->memory.mapped, sizeof state->params.workspace);
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
    if (tpc_cuda_enter(&state->group.devices[state->group.rank], &scope) != TPCOMM_OK) {
        free(state); /* in a forked child CUDA is the parent's */
        return;
    }
    /* Own kernels end soon: finalized, or by the failure word that destroy has set. No free and no synchronize before.
     */
    bool idle = state->group.agreed.size == 1 || tpc_cuda_order_drain(state->group.order, DESTROY_WAIT_MS);
    if (idle) {
        if (state->memory.own != NULL) tpc_device_memory_close(&state->memory);
        if (state->pinned != NULL) tpc_cuda_unpin(state->pinned);
    }
    tpc_cuda_leave(scope);
    free(state);
}

/* ------------------------------------------------------------------ calls */

static const char *why_not(const tpc_agreed_t *agreed, tpcomm_path_t path, const tpc_call_key_t *key) {
    if (agreed->device_kind != TPCOMM_DEVICE_CUDA) return "the group's device is not a GPU";
    if (tpc_coll_reduces(key->coll) && !tpc_reduction_defined(key->dtype, key->op))
        return "this reduction of this dtype is not defined";
    if (path == TPCOMM_PATH_LOCAL) return agreed->size == 1 ? NULL : "only a group of one rank needs no communication";
    if (agreed->size == 1) return "a group of one rank has nobody to talk to";
    if (agreed->topology == TPC_TOPOLOGY_MULTI_HOST) return "the ranks are on several hosts and share no device memory";
    if (key->coll == TPCOMM_REDUCE_SCATTER) return "there is no one-shot reduce_scatter on a GPU yet";
    return NULL;
}

static tpcomm_status_t launch_all(state_t *state, const tpc_request_t *request) {
    const tpcomm_call_t *call = request->call;
    tpc_ar_params_t params = state->params;
    bool moves = tpc_coll_moves_data(call->coll);
    size_t element = moves ? tpcomm_dtype_size(call->dtype) : 1;
    uint64_t left = moves ? call->count : 0;
    uint64_t per_launch = tpc_ar_slot_payload(call->coll, call->dtype, state->slot_bytes) / element;
    uint64_t packet = tpc_ar_slot_payload(call->coll, call->dtype, 16);
    uint64_t facts[3] = {left, call->coll == TPCOMM_BROADCAST ? (uint64_t)call->root : 0, 0};
    params.in = call->in;
    params.out = call->out;
    params.dtype = moves ? call->dtype : 0;
    params.op = tpc_coll_reduces(call->coll) ? call->op : 0;
    params.root = call->root;
    params.out_stride = left * element;
    params.what = (uint32_t)call->coll | (uint32_t)request->path << 8 | (uint32_t)params.op << 16 |
                  (uint32_t)params.dtype << 20 | (uint32_t)request->capturing << 28;
    do {
        params.count = left < per_launch ? left : per_launch;
        facts[2] = left;
        uint64_t hash = tpc_hash(TPC_HASH_START, facts, sizeof facts);
        params.hash = (uint32_t)(hash ^ hash >> 32);
        tpc_ar_shape_t shape = shape_for(state, (params.count * element + packet - 1) / packet);
        tpcomm_status_t status =
            tpc_cuda_error(tpc_ar_launch_oneshot(call->coll, &params, shape, request->stream), "launch");
        if (status != TPCOMM_OK) return status;
        left -= params.count;
        params.in = (const unsigned char *)params.in + params.count * element;
        params.out = (unsigned char *)params.out + params.count * element;
    } while (left > 0);
    return TPCOMM_OK;
}

static tpcomm_status_t run(void *opaque, const tpc_request_t *request, tpc_outcome_t *outcome_p) {
    state_t *state = opaque;
    *outcome_p = (tpc_outcome_t){.last_rank = -1};
    if (request->path != TPCOMM_PATH_LOCAL) {
        outcome_p->wire_bytes = request->bytes * (uint64_t)(state->group.agreed.size - 1);
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
        char text[320];
        tpc_failure_place_t place = {.rank = report->peer};
        if (status == TPCOMM_ERR_MISMATCH) {
            uint32_t mine = (uint32_t)(report->mine[0] >> 32), theirs = (uint32_t)(report->theirs[0] >> 32);
            snprintf(text, sizeof text,
                     "kernel call %u: rank %d launched %s %s %s (what %08x, hash %08x), rank %d launched %s %s %s "
                     "(what %08x, hash "
                     "%08x); equal names differ in count, root or capture",
                     report->epoch, r, tpcomm_coll_name(mine & 0xFF), tpcomm_dtype_name(mine >> 20 & 0xFF),
                     tpcomm_op_name(mine >> 16 & 0xF), mine, (uint32_t)(report->mine[1] >> 32), report->peer,
                     tpcomm_coll_name(theirs & 0xFF), tpcomm_dtype_name(theirs >> 20 & 0xFF),
                     tpcomm_op_name(theirs >> 16 & 0xF), theirs, (uint32_t)(report->theirs[1] >> 32));
        } else {
            snprintf(text, sizeof text, "a kernel of rank %d (call %u) waited %u ms for rank %d", r, report->epoch,
                     atomic_load(state->group.wait->timeout_ms), report->peer);
        }
        tpc_failure_raise(state->group.failure, status, place, text);
        return;
    }
}

static void wake(void *opaque) {
    (void)opaque; /* kernels watch the failure word themselves; nobody sleeps on the host */
}

static uint64_t rank_seq(void *opaque, int32_t rank) {
    (void)opaque, (void)rank;
    return 0;
}

/* The limit that kernels read. Asynchronous to everything: the copy has a stream of its own. */
static tpcomm_status_t set_timeout(void *opaque, uint32_t timeout_ms) {
    state_t *state = opaque;
    if (state->memory.own == NULL) return TPCOMM_OK;
    tpc_cuda_scope_t scope;
    tpcomm_status_t status = tpc_cuda_enter(&state->group.devices[state->group.rank], &scope);
    if (status != TPCOMM_OK) return status;
    cudaStream_t stream = NULL;
    status = tpc_cuda_error(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot make a stream");
    if (status == TPCOMM_OK) {
        status = tpc_cuda_error(cudaMemcpyAsync(state->memory.own + offsetof(tpc_ar_header_t, timeout_ms), &timeout_ms,
                                                sizeof timeout_ms, cudaMemcpyHostToDevice, stream),
                                "cannot write the limit");
        if (status == TPCOMM_OK) status = tpc_cuda_error(cudaStreamSynchronize(stream), "cannot write the limit");
        (void)cudaStreamDestroy(stream);
    }
    tpc_cuda_leave(scope);
    return status;
}

static const char *check_stream(void *opaque, tpcomm_stream_t stream) {
    const state_t *state = opaque;
    if (stream == NULL && state->shares_device)
        return "it must not be NULL (the legacy stream) in a group whose ranks share a device: they would wait for "
               "each other";
    return NULL;
}

static const char *kernels(void) {
    return TPC_CUDA_ARCHITECTURES; /* of this build */
}

static const tpcomm_path_t paths[] = {TPCOMM_PATH_ONESHOT, TPCOMM_PATH_LOCAL, 0};

const tpc_backend_t tpc_custom_ar_backend = {
    .name = "custom_ar",
    .device_kind = TPCOMM_DEVICE_CUDA,
    .paths = paths,
    .kernels = kernels,
    .why_not = why_not,
    .workspace_bytes = workspace_bytes,
    .create = create,
    .destroy = destroy,
    .wake = wake,
    .poll = poll,
    .rank_seq = rank_seq,
    .set_timeout = set_timeout,
    .check_stream = check_stream,
    .run = run,
};
