/* SPDX-License-Identifier: Apache-2.0 */
#include "peer_mem/device_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hook.h"
#include "base/log.h"
#include "bootstrap/host.h"

/* Of each pair and direction; less where the memory is small. */
#define PROBE_BYTES 65536u
/* The proof of all pairs, which takes milliseconds where it works. */
#define PROBE_LIMIT_MS 10000u

/* How long close waits for peers that are also about to unmap. */
#define CLOSE_WAIT_MS 200u

/* Seeded by the pair, so that one pair's bytes never pass for another's. */
static void pattern(uint64_t nonce, int32_t from, int32_t to, unsigned char *bytes, size_t length) {
    uint64_t seed = nonce ^ (uint64_t)(from * 256 + to + 1) * 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < length; i++) {
        uint64_t x = seed + i / 8 * 0x9e3779b97f4a7c15u; /* splitmix64, 8 bytes a turn */
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        bytes[i] = (unsigned char)((x ^ (x >> 31)) >> i % 8 * 8);
    }
}

/* What the proof of one group needs. */
typedef struct {
    tpc_device_memory_t *memory;
    size_t offset, share; /* rank r's bytes lie at offset + r * share in everybody's memory */
    uint64_t nonce;
    tpc_deadline_t limit;
    unsigned char *want, *got;
} probe_t;

/* A proof that does not end is a pair that cannot be used, not a late rank. */
static tpcomm_status_t as_verdict(tpcomm_status_t status) {
    char text[TPC_ERROR_BYTES];
    if (status != TPCOMM_ERR_TIMEOUT) return status;
    snprintf(text, sizeof text, "%s", tpcomm_last_error());
    return tpc_error(TPCOMM_ERR_NO_TRANSPORT, "%s", text);
}

static tpcomm_status_t hang_if_asked(const probe_t *probe) {
    if (tpc_hook_value("probe_hang", UINT64_MAX) != (uint64_t)probe->memory->rank) return TPCOMM_OK;
    while (tpc_deadline_left_ms(&probe->limit) > 0) (void)tpc_deadline_sleep(&probe->limit, 10);
    return tpc_error(TPCOMM_ERR_TIMEOUT, "the proof of peer access did not end within %llu ms",
                     (unsigned long long)tpc_deadline_elapsed_ms(&probe->limit));
}

static tpcomm_status_t write_to_all(probe_t *probe) {
    tpc_device_memory_t *memory = probe->memory;
    tpcomm_status_t status = tpc_hook("device_probe", memory->rank);
    if (status == TPCOMM_OK) status = hang_if_asked(probe);
    for (int32_t r = 0; r < memory->size && status == TPCOMM_OK; r++) {
        char what[96];
        snprintf(what, sizeof what, "rank %d cannot write to rank %d's device memory", memory->rank, r);
        pattern(probe->nonce, memory->rank, r, probe->want, probe->share);
        if (tpc_hook_value("break_pair", UINT64_MAX) == (uint64_t)(memory->rank * TPCOMM_MAX_RANKS + r))
            memset(probe->want + probe->share / 2, 0, 8);
        status = memory->method->copy_in(&memory->share.copier,
                                         memory->mapped[r] + probe->offset + (size_t)memory->rank * probe->share,
                                         probe->want, probe->share, what, &probe->limit);
    }
    return as_verdict(status);
}

/* What r wrote to me, read here; then what I wrote to r, read there. */
static tpcomm_status_t read_from_all(probe_t *probe) {
    tpc_device_memory_t *memory = probe->memory;
    const int32_t me = memory->rank;
    tpcomm_status_t status = TPCOMM_OK;
    for (int32_t r = 0; r < memory->size && status == TPCOMM_OK; r++) {
        pattern(probe->nonce, r, me, probe->want, probe->share);
        status = memory->method->copy_out(&memory->share.copier, probe->got,
                                          memory->own + probe->offset + (size_t)r * probe->share, probe->share,
                                          "cannot read the own device memory", &probe->limit);
        if (status == TPCOMM_OK && memcmp(probe->got, probe->want, probe->share) != 0)
            status = tpc_error(TPCOMM_ERR_NO_TRANSPORT,
                               "pair %d -> %d: what the first wrote into the other's device memory did not arrive, "
                               "though the driver allows peer access (an IOMMU or ACS on the way?)",
                               r, me);
    }
    for (int32_t r = 0; r < memory->size && status == TPCOMM_OK; r++) {
        char what[96];
        snprintf(what, sizeof what, "rank %d cannot read rank %d's device memory", me, r);
        pattern(probe->nonce, me, r, probe->want, probe->share);
        status = memory->method->copy_out(&memory->share.copier, probe->got,
                                          memory->mapped[r] + probe->offset + (size_t)me * probe->share, probe->share,
                                          what, &probe->limit);
        if (status == TPCOMM_OK && memcmp(probe->got, probe->want, probe->share) != 0)
            status = tpc_error(TPCOMM_ERR_NO_TRANSPORT,
                               "pair %d -> %d: the first reads other bytes from the other's device memory than it "
                               "wrote there, though the driver allows peer access (an IOMMU or ACS on the way?)",
                               me, r);
    }
    return as_verdict(status);
}

/* Everybody writes to everybody, then everybody reads what the others wrote to him and what he wrote to them. */
static tpcomm_status_t probe_pairs(tpc_device_memory_t *memory, tpc_bootstrap_t *bootstrap, const tpc_team_t *team,
                                   size_t offset, const tpc_deadline_t *deadline) {
    size_t room = (memory->bytes - offset) / (size_t)team->n / 64 * 64;
    uint64_t limit_ms = tpc_hook_value("probe_limit_ms", PROBE_LIMIT_MS), left_ms = tpc_deadline_left_ms(deadline);
    probe_t probe = {.memory = memory,
                     .offset = offset,
                     .share = room < PROBE_BYTES ? room : PROBE_BYTES,
                     .nonce = tpc_bootstrap_nonce(bootstrap),
                     .limit = tpc_deadline_in(limit_ms < left_ms ? limit_ms : left_ms, deadline->interrupted,
                                              deadline->interrupted_arg)};
    tpcomm_status_t status = TPCOMM_OK;
    probe.want = malloc(PROBE_BYTES);
    probe.got = malloc(PROBE_BYTES);
    if (probe.want == NULL || probe.got == NULL) status = tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    if (status == TPCOMM_OK) status = write_to_all(&probe);
    status = tpc_team_gather(bootstrap, team, "write to device memory", status, NULL, 0, NULL, deadline);
    if (status == TPCOMM_OK) {
        status = read_from_all(&probe);
        status = tpc_team_gather(bootstrap, team, "read device memory", status, NULL, 0, NULL, deadline);
    }
    if (status == TPCOMM_OK) {
        status = memory->method->fill(&memory->share.copier, memory->own + offset, 0xFF, (size_t)team->n * probe.share,
                                      "cannot clear the device memory", deadline);
        status = tpc_team_gather(bootstrap, team, "clear device memory", status, NULL, 0, NULL, deadline);
    }
    free(probe.want);
    free(probe.got);
    return status;
}

/* ------------------------------------------------------------------ one way of sharing */

/* In words of users. LEFT: the owner has gone, and the last peer frees; ranks of one process can do so for each other.
 */
#define LEFT (UINT64_C(1) << 63)
_Static_assert(TPCOMM_MAX_RANKS < 63, "a bit for each rank");

static uint64_t bit_of(int32_t rank) {
    return UINT64_C(1) << rank;
}

static tpcomm_status_t create(tpc_device_memory_t *memory, tpc_share_offer_t *offer, int *fd_p,
                              const tpc_deadline_t *deadline) {
    const tpc_share_method_t *method = memory->method;
    char point[48];
    tpcomm_status_t status = tpc_hook("device_memory", memory->rank);
    snprintf(point, sizeof point, "device_memory/%s", method->name);
    if (status == TPCOMM_OK) status = tpc_hook(point, memory->rank);
    if (status == TPCOMM_OK) status = method->copier_open(PROBE_BYTES, &memory->share.copier);
    if (status == TPCOMM_OK) status = method->create(&memory->share, offer, fd_p);
    if (status != TPCOMM_OK) return status;
    memory->own = memory->share.own;
    memory->mapped[memory->rank] = memory->own;
    /* EMPTY before anybody can see it. */
    return method->fill(&memory->share.copier, memory->own, 0xFF, memory->bytes, "cannot fill the device memory",
                        deadline);
}

static tpcomm_status_t open_all(tpc_device_memory_t *memory, const tpc_cuda_facts_t *facts,
                                const tpc_share_offer_t *offers, const int *fds) {
    tpcomm_status_t status = tpc_hook("device_map", memory->rank);
    for (int32_t r = 0; r < memory->size && status == TPCOMM_OK; r++) {
        void *pointer = NULL;
        if (r == memory->rank) continue;
        if (offers[r].bytes != memory->share.bytes)
            return tpc_error(TPCOMM_ERR_NO_TRANSPORT, "rank %d has %llu bytes of device memory, rank %d has %zu", r,
                             (unsigned long long)offers[r].bytes, memory->rank, memory->share.bytes);
        status = memory->method->open(&memory->share, &facts[r], memory->same_process[r], &offers[r], fds[r], &pointer);
        if (status != TPCOMM_OK) return status;
        memory->mapped[r] = pointer;
        atomic_fetch_or(&memory->users[r], bit_of(memory->rank));
    }
    return status;
}

static tpcomm_status_t try_method(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const tpc_cuda_facts_t *facts,
                                  const tpc_device_memory_plan_t *plan, const tpc_deadline_t *deadline,
                                  tpc_device_memory_t *memory) {
    tpc_share_offer_t offer, offers[TPCOMM_MAX_RANKS];
    int fd = -1, fds[TPCOMM_MAX_RANKS];
    memset(&offer, 0, sizeof offer);
    for (int32_t r = 0; r < team->n; r++) fds[r] = -1;
    tpcomm_status_t status = create(memory, &offer, &fd, deadline);
    status = tpc_team_gather(bootstrap, team, "share device memory", status, &offer, sizeof offer, offers, deadline);
    if (status == TPCOMM_OK && memory->method->passes_fd && memory->share.several_processes)
        status = tpc_team_exchange_fd(bootstrap, team, "exchange device memory", TPCOMM_OK, fd, fds, deadline);
    if (fd >= 0) close(fd);
    if (status != TPCOMM_OK) return status;
    status = open_all(memory, facts, offers, fds);
    for (int32_t r = 0; r < team->n; r++)
        if (fds[r] >= 0) close(fds[r]);
    status = tpc_team_gather(bootstrap, team, "map device memory", status, NULL, 0, NULL, deadline);
    if (status != TPCOMM_OK) return status;
    memory->method->settle(&memory->share);
    status = probe_pairs(memory, bootstrap, team, plan->probe_offset, deadline);
    memory->method->copier_close(&memory->share.copier);
    return status;
}

/* ------------------------------------------------------------------ the group's choice */

static bool applies(const tpc_share_method_t *method, const char *only, bool several_processes) {
    if (strcmp(only, "auto") != 0 && strcmp(only, method->asked_by) != 0) return false;
    return method->scope == TPC_SHARE_ANYWHERE || (method->scope == TPC_SHARE_BETWEEN_PROCESSES) == several_processes;
}

static const tpc_share_method_t *next_method(const tpc_share_method_t *const **place, const char *only,
                                             bool several_processes) {
    while (**place != NULL && !applies(**place, only, several_processes)) (*place)++;
    return **place == NULL ? NULL : *(*place)++;
}

/* A failure of the way, not of the meeting: the vote has brought all members here alike. */
static bool is_verdict(tpcomm_status_t status) {
    return status == TPCOMM_ERR_NO_TRANSPORT || status == TPCOMM_ERR_PEER_FAILED || status == TPCOMM_ERR_UNSUPPORTED;
}

tpcomm_status_t tpc_device_memory_open(tpc_bootstrap_t *bootstrap, const tpc_team_t *team,
                                       const tpc_cuda_facts_t *facts, const tpc_device_memory_plan_t *plan,
                                       const tpc_deadline_t *deadline, tpc_device_memory_t *memory_p) {
    tpc_device_memory_t empty = {.rank = team->me, .size = team->n, .bytes = plan->bytes, .users = plan->users};
    char reasons[TPC_ERROR_BYTES] = "";
    empty.share = (tpc_share_t){.facts = &facts[team->me], .rank = team->me, .bytes = plan->bytes};
    for (int32_t r = 0; r < team->n; r++) {
        const tpc_member_t *member = tpc_bootstrap_member(bootstrap, team->ranks[r]);
        empty.same_process[r] = member->same_process;
        empty.pidfds[r] = member->pidfd;
        empty.share.several_processes = empty.share.several_processes || !empty.same_process[r];
    }
    const tpc_share_method_t *const *place = plan->methods;
    const tpc_share_method_t *method = next_method(&place, plan->only, empty.share.several_processes);
    while (method != NULL) {
        tpc_device_memory_t memory = empty;
        memory.method = method;
        tpcomm_status_t status = try_method(bootstrap, team, facts, plan, deadline, &memory);
        if (status == TPCOMM_OK) {
            if (team->me == 0) TPC_INFO("peer_mem", "%d ranks share device memory by %s", team->n, method->name);
            *memory_p = memory;
            return TPCOMM_OK;
        }
        size_t used = strlen(reasons);
        snprintf(reasons + used, sizeof reasons - used, "%s%s: %.400s", used > 0 ? "; " : "", method->name,
                 tpcomm_last_error());
        tpc_device_memory_close(&memory);
        if (!is_verdict(status)) return tpc_error(status, "%s", reasons);
        const char *failed = method->name;
        method = next_method(&place, plan->only, empty.share.several_processes);
        if (method != NULL && team->me == 0)
            TPC_WARN("peer_mem", "device memory by %s in place of %s, which failed (%s)", method->name, failed,
                     reasons + used + (used > 0 ? 2 : 0));
    }
    return tpc_error(TPCOMM_ERR_NO_TRANSPORT, "the ranks cannot share device memory: %s",
                     reasons[0] ? reasons : "no way of sharing is left to try");
}

static void let_go(tpc_device_memory_t *memory, int32_t r) {
    const tpc_share_method_t *method = memory->method;
    method->close(&memory->share, memory->mapped[r], memory->same_process[r]);
    if (atomic_fetch_and(&memory->users[r], ~bit_of(memory->rank)) == (LEFT | bit_of(memory->rank))) {
        tpc_share_t theirs = {
            .facts = memory->share.facts, .rank = r, .bytes = memory->share.bytes, .own = memory->mapped[r]};
        method->destroy(&theirs);
        atomic_store(&memory->users[r], 0);
    }
    memory->mapped[r] = NULL;
}

static bool leave_to_peers(tpc_device_memory_t *memory) {
    _Atomic uint64_t *users = &memory->users[memory->rank];
    if (memory->method->scope != TPC_SHARE_WITHIN_PROCESS) return false;
    if (atomic_fetch_or(users, LEFT) != 0) return true;
    atomic_store(users, 0);
    return false;
}

/* Peers that have it mapped; what a process had mapped is gone when that has ended. */
static uint64_t users_left(const tpc_device_memory_t *memory) {
    uint64_t users = atomic_load(&memory->users[memory->rank]);
    for (int32_t r = 0; r < memory->size; r++)
        if ((users & bit_of(r)) != 0 && tpc_pidfd_ended(memory->pidfds[r], 0)) users &= ~bit_of(r);
    return users;
}

static bool wait_for_peers(const tpc_device_memory_t *memory) {
    tpc_deadline_t deadline = tpc_deadline_in(tpc_hook_value("close_wait_ms", CLOSE_WAIT_MS), NULL, NULL);
    while (users_left(memory) != 0 && tpc_deadline_left_ms(&deadline) > 0) tpc_deadline_sleep(&deadline, 1);
    return users_left(memory) == 0;
}

void tpc_device_memory_close(tpc_device_memory_t *memory) {
    const tpc_share_method_t *method = memory->method;
    if (method == NULL) return;
    for (int32_t r = 0; r < memory->size; r++)
        if (r != memory->rank && memory->mapped[r] != NULL) let_go(memory, r);
    method->copier_close(&memory->share.copier);
    bool others = !method->outlives_own && memory->share.own != NULL;
    if (!others)
        method->destroy(&memory->share);
    else if (!leave_to_peers(memory)) {
        if (wait_for_peers(memory))
            method->destroy(&memory->share);
        else
            TPC_WARN("peer_mem", "rank %d: %zu bytes of device memory are still mapped by a peer and stay allocated",
                     memory->rank, memory->bytes);
    }
    *memory = (tpc_device_memory_t){.own = NULL};
}
