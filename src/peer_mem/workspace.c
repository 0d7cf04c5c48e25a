/* SPDX-License-Identifier: Apache-2.0 */
#include "peer_mem/workspace.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hook.h"

_Static_assert(sizeof(tpc_workspace_header_t) == 256, "the header's size is part of the layout");

static const char magic[8] = {'T', 'P', 'C', 'O', 'M', 'M', 'W', 'S'};

/* Bytes of the pattern each rank proves the memory with. */
#define PROBE_BYTES 4096u

/* Not constant, and different for every rank and job, so that stale or foreign memory cannot pass for the right one. */
static unsigned char pattern(uint64_t nonce, int32_t rank, size_t i) {
    uint64_t x = nonce ^ ((uint64_t)(uint32_t)rank << 32) ^ i;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u; /* splitmix64's finaliser */
    return (unsigned char)((x ^ (x >> 27)) >> 13);
}

/* ------------------------------------------------------------------ mappings that threads of a process share */

/*
 * One for all ranks of a group; the last one to let go unmaps. A rank uses it from when it takes it, not from when the
 * leader offers it: between the two anything may fail, on either side.
 */
typedef struct mapping {
    tpc_workspace_header_t *header;
    int32_t users;
    struct mapping *next;
} mapping_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static mapping_t *mappings;

static void before_fork(void) {
    pthread_mutex_lock(&lock);
}
static void after_fork(void) {
    pthread_mutex_unlock(&lock);
}
static void register_fork(void) {
    pthread_atfork(before_fork, after_fork, after_fork);
}

tpcomm_status_t tpc_workspace_offer(tpc_workspace_header_t *header) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_fork);
    mapping_t *mapping = malloc(sizeof *mapping);
    if (mapping == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&lock);
    *mapping = (mapping_t){.header = header, .users = 1, .next = mappings};
    mappings = mapping;
    pthread_mutex_unlock(&lock);
    return TPCOMM_OK;
}

static mapping_t **mapping_find(const tpc_workspace_header_t *header) {
    mapping_t **link = &mappings;
    while (*link != NULL && (*link)->header != header) link = &(*link)->next;
    return link;
}

bool tpc_workspace_take(tpc_workspace_header_t *header, uint64_t nonce, uint64_t group_id) {
    pthread_mutex_lock(&lock);
    mapping_t *mapping = *mapping_find(header);
    bool taken = mapping != NULL && header->nonce == nonce && header->group_id == group_id;
    if (taken) mapping->users++;
    pthread_mutex_unlock(&lock);
    return taken;
}

/* True: nobody uses it any more. */
static bool mapping_let_go(const tpc_workspace_header_t *header) {
    pthread_mutex_lock(&lock);
    mapping_t **link = mapping_find(header), *mapping = *link;
    bool last = mapping != NULL && --mapping->users == 0;
    if (last) *link = mapping->next;
    pthread_mutex_unlock(&lock);
    if (last) free(mapping);
    return last;
}

/* ------------------------------------------------------------------ making */

/* Make and map it, complete before anybody else can see it. */
static tpcomm_status_t create(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const tpc_device_t *device,
                              uint64_t group_id, size_t bytes, bool one_mapping, int *fd_p, void **base_p) {
    int fd = -1;
    tpcomm_status_t status = tpc_hook("workspace_create", team->me);
    if (status == TPCOMM_OK) status = device->share_create(bytes, &fd);
    if (status != TPCOMM_OK) return status;
    void *base = NULL;
    status = device->share_map(fd, bytes, &base);
    if (status == TPCOMM_OK && one_mapping) {
        status = tpc_workspace_offer(base);
        if (status != TPCOMM_OK) device->share_unmap(base, bytes);
    }
    if (status != TPCOMM_OK) {
        close(fd);
        return status;
    }
    tpc_workspace_header_t *header = base;
    memcpy(header->magic, magic, sizeof magic);
    header->layout = TPC_WORKSPACE_LAYOUT;
    header->leader = team->ranks[0];
    header->nonce = tpc_bootstrap_nonce(bootstrap);
    header->group_id = group_id;
    header->bytes = bytes;
    header->size = team->n;
    *fd_p = fd;
    *base_p = base;
    return TPCOMM_OK;
}

static tpcomm_status_t map(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const tpc_device_t *device,
                           uint64_t group_id, int fd, size_t bytes, void **base_p) {
    void *base = NULL;
    tpcomm_status_t status = tpc_hook("workspace_map", team->me);
    if (status == TPCOMM_OK) status = device->share_map(fd, bytes, &base);
    if (status != TPCOMM_OK) return status;
    const tpc_workspace_header_t *header = base;
    if (memcmp(header->magic, magic, sizeof magic) != 0 || header->layout != TPC_WORKSPACE_LAYOUT ||
        header->nonce != tpc_bootstrap_nonce(bootstrap) || header->group_id != group_id || header->size != team->n) {
        status =
            tpc_error(TPCOMM_ERR_PEER_FAILED,
                      "the workspace is not this group's: layout %u group %llx nonce %llx size %d, expected layout %u "
                      "group %llx nonce %llx size %d",
                      header->layout, (unsigned long long)header->group_id, (unsigned long long)header->nonce,
                      header->size, TPC_WORKSPACE_LAYOUT, (unsigned long long)group_id,
                      (unsigned long long)tpc_bootstrap_nonce(bootstrap), team->n);
        device->share_unmap(base, bytes);
        return status;
    }
    *base_p = base;
    return TPCOMM_OK;
}

/* Write my pattern, read everybody's, clear mine. The votes between are the barriers. */
static tpcomm_status_t probe(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, unsigned char *data, size_t data_bytes,
                             const tpc_deadline_t *deadline) {
    size_t share = data_bytes / (size_t)team->n;
    size_t length = share < PROBE_BYTES ? share : PROBE_BYTES;
    uint64_t nonce = tpc_bootstrap_nonce(bootstrap);
    tpcomm_status_t status = tpc_hook("workspace_probe", team->me);
    for (size_t i = 0; i < length; i++) data[(size_t)team->me * share + i] = pattern(nonce, team->me, i);
    status = tpc_team_gather(bootstrap, team, "write to workspace", status, NULL, 0, NULL, deadline);
    if (status != TPCOMM_OK) return status;
    for (int32_t r = 0; r < team->n && status == TPCOMM_OK; r++) {
        const volatile unsigned char *theirs = data + (size_t)r * share;
        for (size_t i = 0; i < length && status == TPCOMM_OK; i++)
            if (theirs[i] != pattern(nonce, r, i))
                status = tpc_error(TPCOMM_ERR_NO_TRANSPORT, "byte %zu written by rank %d reads 0x%02x, expected 0x%02x",
                                   i, r, theirs[i], pattern(nonce, r, i));
    }
    status = tpc_team_gather(bootstrap, team, "read from workspace", status, NULL, 0, NULL, deadline);
    if (status != TPCOMM_OK) return status;
    memset(data + (size_t)team->me * share, 0, length);
    return tpc_team_gather(bootstrap, team, "clear workspace", TPCOMM_OK, NULL, 0, NULL, deadline);
}

static bool all_in_this_process(tpc_bootstrap_t *bootstrap, const tpc_team_t *team) {
    for (int32_t i = 0; i < team->n; i++)
        if (!tpc_bootstrap_member(bootstrap, team->ranks[i])->same_process) return false;
    return true;
}

/* Processes: the leader's descriptor goes round and every member maps it. */
static tpcomm_status_t share_by_fd(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const tpc_device_t *device,
                                   uint64_t group_id, size_t bytes, tpcomm_status_t status, int made, void **base_p,
                                   const tpc_deadline_t *deadline) {
    int fd = -1;
    status = tpc_team_broadcast_fd(bootstrap, team, "create workspace", status, made, &fd, deadline);
    if (status != TPCOMM_OK) return status;
    if (team->me != 0) {
        status = map(bootstrap, team, device, group_id, fd, bytes, base_p);
        close(fd);
    } else {
        status = tpc_hook("workspace_map", team->me);
    }
    return tpc_team_gather(bootstrap, team, "map workspace", status, NULL, 0, NULL, deadline);
}

/* Threads of one process: the leader's address goes round. */
static tpcomm_status_t share_by_address(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, uint64_t group_id,
                                        tpcomm_status_t status, void **base_p, const tpc_deadline_t *deadline) {
    void *data = base_p;
    size_t length = sizeof *base_p;
    status = tpc_team_broadcast(bootstrap, team, "create workspace", status, &data, &length, deadline);
    if (status != TPCOMM_OK) return status;
    status = tpc_hook("workspace_map", team->me);
    if (team->me != 0) {
        void *base;
        memcpy(&base, data, sizeof base);
        free(data);
        if (tpc_workspace_take(base, tpc_bootstrap_nonce(bootstrap), group_id))
            *base_p = base;
        else
            status = tpc_error(TPCOMM_ERR_PEER_FAILED, "rank 0 has given the workspace up");
    }
    return tpc_team_gather(bootstrap, team, "map workspace", status, NULL, 0, NULL, deadline);
}

tpcomm_status_t tpc_workspace_open(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const tpc_device_t *device,
                                   uint64_t group_id, size_t data_bytes, const tpc_deadline_t *deadline,
                                   tpc_workspace_t *workspace_p) {
    size_t bytes = sizeof(tpc_workspace_header_t) + data_bytes;
    int fd = -1;
    void *base = NULL;
    tpcomm_status_t status = TPCOMM_OK;
    bool one_mapping = all_in_this_process(bootstrap, team);

    if (team->me == 0) status = create(bootstrap, team, device, group_id, bytes, one_mapping, &fd, &base);
    if (team->n > 1) {
        if (one_mapping)
            status = share_by_address(bootstrap, team, group_id, status, &base, deadline);
        else
            status = share_by_fd(bootstrap, team, device, group_id, bytes, status, fd, &base, deadline);
    }
    if (fd >= 0) close(fd);
    tpc_workspace_t workspace = {.device = device, .header = base, .bytes = bytes, .one_mapping = one_mapping};
    if (base != NULL) workspace.data = (unsigned char *)base + sizeof(tpc_workspace_header_t);
    if (status == TPCOMM_OK) status = probe(bootstrap, team, workspace.data, data_bytes, deadline);
    if (status != TPCOMM_OK) {
        tpc_workspace_close(&workspace);
        return status;
    }
    *workspace_p = workspace;
    return TPCOMM_OK;
}

void tpc_workspace_close(tpc_workspace_t *workspace) {
    bool stays = workspace->stays != NULL && *workspace->stays; /* then this rank remains one of its users, too */
    if (workspace->header != NULL && !stays && (!workspace->one_mapping || mapping_let_go(workspace->header)))
        workspace->device->share_unmap(workspace->header, workspace->bytes);
    workspace->header = NULL;
    workspace->data = NULL;
}
