/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host side of the fused kernels: which calls they carry, and the shape of a launch. Memory, epochs, deadlines and
 * reports of failures are custom_ar's: this backend launches other kernels into them.
 */
#include "fused/fused.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/hook.h"
#include "custom_ar/custom_ar.h"
#include "custom_ar/share.h"
#include "fused/instances.h"
#include "fused/params.h"

enum { DTYPES = 3, VECTORS = 3, WARPS = 4 };
static const tpcomm_dtype_t dtypes[DTYPES] = {TPCOMM_F32, TPCOMM_F16, TPCOMM_BF16};

typedef struct {
    tpc_backend_group_t group;
    const void *shared;                                                           /* custom_ar's state */
    int32_t blocks_max[TPC_FUSED_FORMS][TPC_FUSED_KINDS][DTYPES][VECTORS][WARPS]; /* by 1, 2, 4 vectors, and up to 2,
                                                                                      4, 8, 16 warps */
} state_t;

static tpc_fused_form_t form_of(tpcomm_path_t path) {
    return path == TPCOMM_PATH_FUSED_TWOSHOT ? TPC_FUSED_TWOSHOT : TPC_FUSED_ONESHOT;
}

static int index_of_dtype(tpcomm_dtype_t dtype) {
    return dtype == TPCOMM_F32 ? 0 : dtype == TPCOMM_F16 ? 1 : 2;
}

static int index_of_warps(int32_t warps) {
    return warps <= 2 ? 0 : warps <= 4 ? 1 : warps <= 8 ? 2 : 3;
}

/* ------------------------------------------------------------------ what it carries */

static uint64_t rows_per_launch(const tpc_agreed_t *agreed, tpc_fused_form_t form, tpcomm_dtype_t dtype,
                                int32_t hidden) {
    return tpc_fused_rows(form, agreed->size, tpc_ar_slot_bytes(agreed), (uint64_t)hidden * tpcomm_dtype_size(dtype));
}

static const char *why_not(const tpc_agreed_t *agreed, tpcomm_path_t path, const tpc_call_key_t *key) {
    if (agreed->device_kind != TPCOMM_DEVICE_CUDA) return "the group's device is not a GPU";
    if (agreed->size == 1) return "a group of one rank has nobody to talk to";
    if (!tpc_coll_norms(key->coll)) return "only calls with a norm are fused";
    if (agreed->topology == TPC_TOPOLOGY_MULTI_HOST) return "the ranks are on several hosts and share no device memory";
    if (agreed->size > TPC_AR_MAX_RANKS) return "the kernels serve groups of at most 16 ranks";
    if (path == TPCOMM_PATH_FUSED_TWOSHOT && key->coll != TPCOMM_ALL_REDUCE_RMS_NORM)
        return "two-shot is a form of all_reduce_rms_norm; reduce_scatter_rms_norm has one phase (fused_oneshot)";
    if (rows_per_launch(agreed, form_of(path), key->dtype, key->hidden) == 0)
        return "a row is larger than a slot of so small a workspace";
    return NULL;
}

/* ------------------------------------------------------------------ making */

static tpcomm_status_t workspace_bytes(const tpc_agreed_t *agreed, size_t *bytes_p) {
    (void)agreed;
    *bytes_p = 0;
    return TPCOMM_OK;
}

/* One kernel, for the shapes that it may have. */
static tpcomm_status_t load_kernel(state_t *state, const void *kernel, int32_t blocks_max[WARPS]) {
    for (int w = 0; w < WARPS && kernel != NULL; w++) {
        tpcomm_status_t status = tpc_ar_grid_limit(state->shared, kernel, 64 << w, &blocks_max[w]);
        if (status != TPCOMM_OK) return status;
    }
    return TPCOMM_OK;
}

/* Every kernel that a call of this group may launch, the norm alone too. */
static tpcomm_status_t load_kernels(state_t *state) {
    tpcomm_status_t status = TPCOMM_OK;
    for (int d = 0; d < DTYPES; d++)
        for (int v = 0; v < VECTORS; v++) {
            for (int f = 0; f < TPC_FUSED_FORMS; f++)
                for (int kind = 0; kind < TPC_FUSED_KINDS && status == TPCOMM_OK; kind++) {
                    const void *kernel = tpc_fused_instances((tpc_fused_form_t)f, dtypes[d])
                                             ->kernel((tpc_fused_kind_t)kind, state->group.agreed.size, 1 << v);
                    status = load_kernel(state, kernel, state->blocks_max[f][kind][d][v]);
                }
            for (int aligned = 0; aligned < 2 && status == TPCOMM_OK; aligned++) {
                struct cudaFuncAttributes attributes;
                status =
                    tpc_cuda_error(cudaFuncGetAttributes(&attributes, tpc_norm_kernel(dtypes[d], aligned != 0, 1 << v)),
                                   "cannot load the norm's kernels");
            }
            if (status != TPCOMM_OK) return status;
        }
    return TPCOMM_OK;
}

static tpcomm_status_t create(const tpc_backend_group_t *group, void **state_p) {
    state_t *state = calloc(1, sizeof *state);
    tpcomm_status_t status = state != NULL ? TPCOMM_OK : tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    const void *shared = group->state_of(group->made, &tpc_custom_ar_backend);
    if (shared == NULL) { /* so on all ranks */
        free(state);
        return tpc_error(TPCOMM_ERR_UNSUPPORTED, "it shares the memory of %s, which this group goes without",
                         tpc_custom_ar_backend.name);
    }
    if (status == TPCOMM_OK) status = tpc_hook("fused", group->rank);
    if (status == TPCOMM_OK) {
        state->group = *group;
        state->shared = shared;
        tpc_cuda_scope_t scope;
        status = tpc_cuda_enter(&group->devices[group->rank], &scope);
        if (status == TPCOMM_OK) {
            status = load_kernels(state);
            tpc_cuda_leave(scope);
        }
    }
    status =
        tpc_team_gather(group->bootstrap, group->team, "load fused kernels", status, NULL, 0, NULL, group->deadline);
    if (status != TPCOMM_OK) {
        free(state);
        /* A member's verdict, the same for all: the group can do without. */
        return status == TPCOMM_ERR_PEER_FAILED ? tpc_error_prefix(TPCOMM_ERR_BACKEND, "fused") : status;
    }
    *state_p = state;
    return TPCOMM_OK;
}

static void destroy(void *state) {
    free(state);
}

/* ------------------------------------------------------------------ calls */

/* One vector a thread is fastest as long as all rows have a block at once; with more rows, threads that hold two leave
 * room for more blocks. Four are for rows that need them: they measured slower up to 256 rows, and no faster beyond. */
static tpc_norm_shape_t shape_for(const state_t *state, tpc_fused_form_t form, const tpc_ar_params_t *params,
                                  const tpc_norm_params_t *norm, int32_t *blocks_p) {
    uint64_t rows = norm->rows, most;
    int32_t vectors = (int32_t)tpc_hook_value("fused_vectors", 1);
    tpc_norm_shape_t shape;
    if (vectors < 2 && tpc_fused_kind(params, norm, vectors) == TPC_FUSED_GENERAL) vectors = 2;
    for (;; vectors *= 2) {
        shape = tpc_norm_shape(norm->hidden, vectors);
        int v = shape.vectors == 1 ? 0 : shape.vectors == 2 ? 1 : 2;
        tpc_fused_kind_t kind = tpc_fused_kind(params, norm, shape.vectors);
        most = (uint64_t)state->blocks_max[form][kind][index_of_dtype(norm->dtype)][v][index_of_warps(shape.warps)];
        if (rows <= most || shape.vectors >= 2 || tpc_hook_value("fused_vectors", 0) != 0) break;
    }
    if (tpc_hook_value("fused_blocks", most) < most) most = tpc_hook_value("fused_blocks", most);
    if (rows > most) { /* as many turns as it must, all blocks alike */
        uint64_t turns = (rows + most - 1) / most;
        rows = (rows + turns - 1) / turns;
    }
    *blocks_p = rows > 0 ? (int32_t)rows : 1;
    return shape;
}

/* Message bytes that a rank writes for its peers. */
static uint64_t wire_bytes(tpc_fused_form_t form, const tpc_norm_params_t *norm, uint64_t size) {
    uint64_t bytes = norm->tokens * (uint64_t)norm->hidden * tpcomm_dtype_size(norm->dtype);
    if (form == TPC_FUSED_TWOSHOT) return 2 * (bytes / size) * (size - 1);
    return (norm->per_rank > 0 ? bytes / size : bytes) * (size - 1);
}

static tpcomm_status_t run(void *opaque, const tpc_request_t *request, tpc_outcome_t *outcome_p) {
    const state_t *state = opaque;
    const tpcomm_rms_norm_t *norm = request->norm;
    const tpc_flight_record_t *record = request->record;
    int32_t size = state->group.agreed.size;
    tpc_ar_params_t params = *tpc_ar_shared_params(state->shared);
    tpc_norm_params_t rows = tpc_norm_params(norm);
    if (record->coll == TPCOMM_REDUCE_SCATTER_RMS_NORM) rows.per_rank = tpc_rows_per_rank(norm->tokens, size);
    uint64_t left = rows.per_rank > 0 ? rows.per_rank : norm->tokens;
    tpc_fused_form_t form = form_of(request->path);
    uint64_t capacity = rows_per_launch(&state->group.agreed, form, norm->dtype, norm->hidden);
    params.op = TPCOMM_SUM;
    params.early = (int32_t)tpc_hook_value("ar_early", (uint64_t)params.early);
    params.dtype = norm->dtype;
    params.what = (uint32_t)record->coll | (uint32_t)record->path << 8 | (uint32_t)TPCOMM_SUM << 16 |
                  (uint32_t)norm->dtype << 20 | (uint32_t)request->capturing << 28;
    do {
        rows.rows = left < capacity ? left : capacity;
        uint64_t facts[5] = {norm->tokens, left, (uint64_t)(uint32_t)record->rows.hidden << 32 | record->rows.form,
                             (uint64_t)record->rows.eps << 32 | record->rows.bias, request->ordinal};
        uint64_t hash = tpc_hash_words(TPC_HASH_START, facts, 5);
        params.hash = (uint32_t)hash;
        tpc_ar_say_call(state->shared, &params, record);
        int32_t blocks = 1;
        tpc_norm_shape_t shape = shape_for(state, form, &params, &rows, &blocks);
        tpcomm_status_t status = tpc_cuda_error(
            tpc_fused_instances(form, norm->dtype)->launch(&params, &rows, shape, blocks, request->stream), "launch");
        if (status != TPCOMM_OK) return status;
        rows.first += rows.rows;
        left -= rows.rows;
    } while (left > 0);
    *outcome_p = (tpc_outcome_t){.last_rank = -1, .wire_bytes = wire_bytes(form, &rows, (uint64_t)size)};
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ what custom_ar does for both */

static void wake(void *state) {
    (void)state;
}

static void outlived(void *state) {
    (void)state; /* their kernels look at the word of custom_ar, which is told */
}

static void poll(void *state) {
    (void)state;
}

static tpcomm_status_t set_timeout(void *state, uint32_t timeout_ms) {
    (void)state, (void)timeout_ms;
    return TPCOMM_OK;
}

static const char *check_stream(void *state, tpcomm_stream_t stream) {
    (void)state, (void)stream;
    return NULL;
}

static uint64_t rank_seq(void *state, int32_t rank) {
    (void)state, (void)rank;
    return 0;
}

/* It works in custom_ar's memory. */
static uint64_t device_bytes(const void *state) {
    (void)state;
    return 0;
}

static const char *describe(const void *state) {
    (void)state;
    return TPC_CUDA_ARCHITECTURES; /* of this build */
}

static const tpcomm_path_t paths[] = {TPCOMM_PATH_FUSED_ONESHOT, TPCOMM_PATH_FUSED_TWOSHOT, 0};

const tpc_backend_t tpc_fused_backend = {
    .name = "fused",
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
    .set_timeout = set_timeout,
    .note_waits = tpc_backend_notes_no_waits,
    .waits = tpc_backend_no_waits,
    .times_last = tpc_backend_nobody_last,
    .check_stream = check_stream,
    .rank_seq = rank_seq,
    .device_bytes = device_bytes,
    .run = run,
};
