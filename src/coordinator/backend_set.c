/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/backend_set.h"

#include <stdio.h>

#include "base/error.h"
#include "base/hook.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"

#define PAGE_BYTES 4096u

/* ------------------------------------------------------------------ choosing */

/* NULL if some path carries some call in such a group, else why the first path carries no all_reduce. */
static const char *no_use(const tpc_backend_t *backend, const tpc_agreed_t *agreed) {
    for (const tpcomm_path_t *path = backend->paths; *path != 0; path++)
        for (tpcomm_coll_t coll = TPCOMM_ALL_REDUCE; coll < TPC_COLL_END; coll++) {
            if (tpcomm_coll_name(coll)[0] == '?') continue;
            tpc_call_key_t key = {
                .coll = coll, .dtype = TPCOMM_F32, .op = TPCOMM_SUM, .hidden = tpc_coll_has_rows(coll) ? 8 : 0};
            if (backend->why_not(agreed, *path, &key) == NULL) return NULL;
        }
    tpc_call_key_t key = {.coll = TPCOMM_ALL_REDUCE, .dtype = TPCOMM_F32, .op = TPCOMM_SUM};
    return backend->why_not(agreed, backend->paths[0], &key);
}

void tpc_backend_set_choose(tpc_backend_set_t *set, const tpc_agreed_t *agreed) {
    for (const tpc_backend_t *const *backend = tpc_backends; *backend != NULL; backend++) {
        if (!tpc_backend_serves(*backend, agreed->device_kind) || set->count == TPC_BACKENDS_MAX) continue;
        set->list[set->count] = *backend;
        set->why_not[set->count] = no_use(*backend, agreed);
        set->count++;
    }
}

const tpc_backend_t *tpc_backend_set_of_path(const tpc_backend_set_t *set, tpcomm_path_t path, int32_t *index_p) {
    for (int32_t i = 0; i < set->count; i++)
        for (const tpcomm_path_t *own = set->list[i]->paths; *own != 0; own++) {
            if (*own != path) continue;
            *index_p = i;
            return set->list[i];
        }
    return NULL;
}

const char *tpc_backend_set_why_not(const tpc_backend_set_t *set, const tpc_agreed_t *agreed, tpcomm_path_t path,
                                    const tpc_call_key_t *key) {
    int32_t i = 0;
    const tpc_backend_t *backend = tpc_backend_set_of_path(set, path, &i);
    if (backend == NULL) return "this library or group has no such path";
    return set->why_not[i] != NULL ? set->why_not[i] : backend->why_not(agreed, path, key);
}

/* ------------------------------------------------------------------ making */

tpcomm_status_t tpc_backend_set_plan(tpc_backend_set_t *set, const tpc_agreed_t *agreed, size_t *bytes_p) {
    size_t total = 0;
    for (int32_t i = 0; i < set->count; i++) {
        if (set->why_not[i] != NULL) continue;
        size_t bytes = 0;
        tpcomm_status_t status = set->list[i]->workspace_bytes(agreed, &bytes);
        if (status != TPCOMM_OK) return status;
        set->bytes[i] = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
        total += set->bytes[i];
    }
    *bytes_p = total;
    return TPCOMM_OK;
}

/* Whether a failed create says that this backend cannot, rather than that something else went wrong. */
static bool about_the_backend(tpcomm_status_t status) {
    return status == TPCOMM_ERR_UNSUPPORTED || status == TPCOMM_ERR_BACKEND || status == TPCOMM_ERR_NO_TRANSPORT ||
           status == TPCOMM_ERR_CONFIG_MISMATCH;
}

static void leave_out(tpc_backend_set_t *set, int32_t i, tpcomm_status_t status, const tpc_backend_group_t *group,
                      const char *name) {
    int length = snprintf(set->text[i], sizeof set->text[i], "%s", tpcomm_last_error());
    if (length > 0) tpc_text_cut(set->text[i], sizeof set->text[i], (size_t)length);
    set->why_not[i] = set->text[i];
    if (group->rank != 0) return;
    /* What was never there is no news; what should have worked is. */
    if (status == TPCOMM_ERR_UNSUPPORTED)
        TPC_INFO("init", "group '%s' goes without %s: %s", name, set->list[i]->name, tpcomm_last_error());
    else
        TPC_WARN("init", "group '%s' goes without %s: %s: %s", name, set->list[i]->name, tpcomm_status_name(status),
                 tpcomm_last_error());
}

static tpcomm_status_t nobody_left(const tpc_backend_set_t *set, tpcomm_status_t first) {
    char text[TPC_ERROR_BYTES] = "";
    size_t used = 0;
    for (int32_t i = 0; i < set->count; i++)
        used = tpc_text_append(text, sizeof text, used, "%s%s: %s", i > 0 ? "; " : "", set->list[i]->name,
                               set->why_not[i]);
    return tpc_error(first != TPCOMM_OK ? first : TPCOMM_ERR_NO_TRANSPORT, "nothing can carry this group's calls: %s",
                     text);
}

static void *state_of(const void *made, const tpc_backend_t *backend) {
    const tpc_backend_set_t *set = made;
    for (int32_t i = 0; i < set->count; i++)
        if (set->list[i] == backend) return set->state[i];
    return NULL;
}

tpcomm_status_t tpc_backend_set_make(tpc_backend_set_t *set, const tpc_backend_group_t *group, const char *name) {
    tpcomm_path_t forced = group->agreed.size > 1 ? group->agreed.forced_path : 0;
    unsigned char *next = group->workspace->data;
    tpcomm_status_t first = TPCOMM_OK;
    for (int32_t i = 0; i < set->count; i++) {
        if (set->why_not[i] != NULL) continue;
        set->area[i] = *group->workspace;
        set->area[i].data = next;
        next += set->bytes[i];
        tpc_backend_group_t own = *group;
        own.workspace = &set->area[i];
        own.state_of = state_of;
        own.made = set;
        void *state = NULL;
        tpcomm_status_t status = tpc_hook("backend", group->rank);
        if (status == TPCOMM_OK) status = set->list[i]->create(&own, &state);
        if (status == TPCOMM_OK) {
            set->state[i] = state;
            continue;
        }
        int32_t wanted = -1;
        if (!about_the_backend(status)) return status;
        if (forced != 0 && tpc_backend_set_of_path(set, forced, &wanted) != NULL && wanted == i)
            return tpc_error_prefix(status, "TPCOMM_PATH or config.path asks for %s, which cannot be had",
                                    tpcomm_path_name(forced));
        if (first == TPCOMM_OK) first = status;
        leave_out(set, i, status, group, name);
    }
    /* A group that spans hosts is of use without: it has host messages, and subgroups. */
    if (group->agreed.topology == TPC_TOPOLOGY_MULTI_HOST) return TPCOMM_OK;
    return tpc_backend_set_made(set) != 0 ? TPCOMM_OK : nobody_left(set, first);
}

void tpc_backend_set_destroy(tpc_backend_set_t *set) {
    for (int32_t i = set->count - 1; i >= 0; i--)
        if (set->state[i] != NULL) set->list[i]->destroy(set->state[i]);
}

const char *tpc_backend_set_describe(const tpc_backend_set_t *set, int32_t index) {
    if (index < 0 || index >= set->count) return "";
    return set->state[index] != NULL ? set->list[index]->describe(set->state[index]) : set->why_not[index];
}

bool tpc_backend_set_notes(const tpc_backend_set_t *set) {
    for (int32_t i = 0; i < set->count; i++)
        if (set->list[i]->notes_calls && set->why_not[i] == NULL) return true;
    return false;
}

const char *tpc_backend_set_version(const tpc_backend_set_t *set, tpcomm_path_t path) {
    int32_t index = -1;
    const tpc_backend_t *backend = tpc_backend_set_of_path(set, path, &index);
    return backend != NULL && set->state[index] != NULL ? backend->version(set->state[index]) : "";
}

uint64_t tpc_backend_set_made(const tpc_backend_set_t *set) {
    uint64_t made = 0;
    for (int32_t i = 0; i < set->count; i++)
        if (set->state[i] != NULL) made |= UINT64_C(1) << i;
    return made;
}

/* ------------------------------------------------------------------ all of them */

void tpc_backend_set_wake(tpc_backend_set_t *set) {
    for (int32_t i = 0; i < set->count; i++)
        if (set->state[i] != NULL) set->list[i]->wake(set->state[i]);
}

void tpc_backend_set_outlived(tpc_backend_set_t *set) {
    for (int32_t i = 0; i < set->count; i++)
        if (set->state[i] != NULL) set->list[i]->outlived(set->state[i]);
}

void tpc_backend_set_poll(const tpc_backend_set_t *set) {
    for (int32_t i = 0; i < set->count; i++)
        if (set->state[i] != NULL) set->list[i]->poll(set->state[i]);
}

tpcomm_status_t tpc_backend_set_timeout(tpc_backend_set_t *set, uint32_t timeout_ms) {
    tpcomm_status_t first = TPCOMM_OK;
    for (int32_t i = 0; i < set->count; i++) {
        if (set->state[i] == NULL) continue;
        tpcomm_status_t status = set->list[i]->set_timeout(set->state[i], timeout_ms);
        if (first == TPCOMM_OK) first = status;
    }
    return first;
}

tpcomm_status_t tpc_backend_set_note_waits(tpc_backend_set_t *set, bool on) {
    tpcomm_status_t first = TPCOMM_OK;
    for (int32_t i = 0; i < set->count; i++) {
        if (set->state[i] == NULL) continue;
        tpcomm_status_t status = set->list[i]->note_waits(set->state[i], on);
        if (first == TPCOMM_OK) first = status;
    }
    return first;
}

tpc_waits_t tpc_backend_set_waits(const tpc_backend_set_t *set, tpcomm_path_t path) {
    tpc_waits_t sum = {0, 0};
    for (int32_t i = 0; i < set->count; i++) {
        const void *state = set->state[i];
        if (state == NULL) continue;
        tpc_waits_t waits = set->list[i]->waits(state, path);
        sum.calls += waits.calls;
        sum.wait_ns += waits.wait_ns;
    }
    return sum;
}

uint64_t tpc_backend_set_times_last(const tpc_backend_set_t *set, int32_t rank) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < set->count; i++) {
        const void *state = set->state[i];
        if (state != NULL) sum += set->list[i]->times_last(state, rank);
    }
    return sum;
}

const char *tpc_backend_set_check_stream(const tpc_backend_set_t *set, tpcomm_stream_t stream) {
    const char *why_not = NULL;
    for (int32_t i = 0; i < set->count && why_not == NULL; i++)
        if (set->state[i] != NULL) why_not = set->list[i]->check_stream(set->state[i], stream);
    return why_not;
}

uint64_t tpc_backend_set_rank_seq(const tpc_backend_set_t *set, int32_t rank) {
    uint64_t last = 0;
    for (int32_t i = 0; i < set->count; i++) {
        if (set->state[i] == NULL) continue;
        uint64_t seq = set->list[i]->rank_seq(set->state[i], rank);
        if (seq > last) last = seq;
    }
    return last;
}

uint64_t tpc_backend_set_device_bytes(const tpc_backend_set_t *set) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < set->count; i++)
        if (set->state[i] != NULL) bytes += set->list[i]->device_bytes(set->state[i]);
    return bytes;
}
