/* SPDX-License-Identifier: Apache-2.0 */
/* Groups made from a group. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/hook.h"
#include "base/text.h"
#include "coordinator/comm.h"

static tpcomm_status_t check_ranks(const tpcomm_t *parent, const int32_t *ranks, int32_t n) {
    if (ranks == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "ranks is NULL");
    if (n < 1 || n > parent->size)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "n is %d; parent '%s' has %d ranks", n, parent->name, parent->size);
    for (int32_t i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= parent->size)
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "ranks[%d] is %d; parent '%s' has ranks 0 to %d", i, ranks[i],
                             parent->name, parent->size - 1);
        for (int32_t j = 0; j < i; j++)
            if (ranks[j] == ranks[i])
                return tpc_error(TPCOMM_ERR_INVALID_ARG, "ranks[%d] and ranks[%d] are both %d", j, i, ranks[i]);
    }
    return TPCOMM_OK;
}

static tpcomm_status_t check_name(const char *name) {
    if (strlen(name) < 64) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_INVALID_ARG, "name is longer than 63 bytes: '%.70s...'", name);
}

static int ascending(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* What every member says the group is; compared before anybody relies on it. */
typedef struct {
    char name[64];
    int32_t n;
    int32_t ranks[TPCOMM_MAX_RANKS]; /* world ranks in group order */
} said_t;

typedef struct {
    said_t said;
    uint64_t parent; /* its id */
    uint64_t
        number; /* of the attempt, as each member counts; not compared: an attempt may have failed on one rank alone */
} offer_t;

/* Making a group: what the waits of a member look at beside the other members. */
typedef struct {
    tpcomm_t *parent;
    const offer_t *mine;
    uint64_t channel;
    char step[96];
    uint64_t conflict_ns; /* since when a member is seen to make another group of this name; 0: it is not */
} making_t;

/* Two ranks that wait for each other in two groups of one name, for so long, mean one and the same. Before that, one
 * of them may be about to come. */
#define CONFLICT_MS 1000

static void describe(const said_t *said, char *text, size_t bytes) {
    size_t used = tpc_text_append(text, bytes, 0, "'%s' of world ranks [", said->name);
    for (int32_t i = 0; i < said->n; i++)
        used = tpc_text_append(text, bytes, used, "%s%d", i > 0 ? ", " : "", said->ranks[i]);
    tpc_text_append(text, bytes, used, "]");
}

static bool lists(const said_t *said, int32_t world_rank) {
    for (int32_t i = 0; i < said->n && i < TPCOMM_MAX_RANKS; i++)
        if (said->ranks[i] == world_rank) return true;
    return false;
}

/* A member that waits for me in a group of this name which has other members. */
static bool find_conflict(making_t *making, int32_t *other_p, offer_t *theirs_p, uint64_t *channel_p) {
    const said_t *mine = &making->mine->said;
    int32_t me = making->parent->ranks[making->parent->rank];
    for (int32_t i = 0; i < mine->n; i++) {
        offer_t theirs;
        if (mine->ranks[i] == me ||
            !tpc_team_elsewhere(making->parent->world->bootstrap, mine->ranks[i], making->channel, making->step,
                                &theirs, sizeof theirs, channel_p))
            continue;
        if (theirs.parent != making->mine->parent || !lists(&theirs.said, me)) continue;
        *other_p = mine->ranks[i];
        *theirs_p = theirs;
        return true;
    }
    return false;
}

/* Lists that name different ranks: the members do not meet, but a leader sees who waits for it elsewhere. */
static tpcomm_status_t check_lists(void *arg) {
    making_t *making = arg;
    int32_t other;
    offer_t theirs;
    uint64_t channel;
    if (!find_conflict(making, &other, &theirs, &channel)) {
        making->conflict_ns = 0;
        return TPCOMM_OK;
    }
    if (making->conflict_ns == 0) making->conflict_ns = tpc_clock_awake_ns();
    if (tpc_clock_awake_since(making->conflict_ns) < tpc_hook_value("conflict_ms", CONFLICT_MS) * 1000000u)
        return TPCOMM_OK;
    char mine_text[256], their_text[256];
    theirs.said.name[sizeof theirs.said.name - 1] = '\0';
    if (theirs.said.n > TPCOMM_MAX_RANKS) theirs.said.n = TPCOMM_MAX_RANKS;
    describe(&making->mine->said, mine_text, sizeof mine_text);
    describe(&theirs.said, their_text, sizeof their_text);
    tpcomm_status_t status = tpc_error(
        TPCOMM_ERR_MISMATCH, "world rank %d makes group %s, world rank %d makes group %s; their members differ",
        making->parent->ranks[making->parent->rank], mine_text, other, their_text);
    tpc_team_refuse(making->parent->world->bootstrap, channel, status);
    return status;
}

/* The members meet in an order that does not depend on what each believes the group's order to be. The group's id is
 * made from the leader's count, so that no two groups share one. */
static tpcomm_status_t agree_on_group(making_t *making, const tpc_team_t *sorted, tpcomm_status_t mine_status,
                                      const tpc_deadline_t *deadline, uint64_t *id_p) {
    offer_t all[TPCOMM_MAX_RANKS];
    snprintf(making->step, sizeof making->step, "make group '%.63s'", making->mine->said.name);
    tpcomm_status_t status = tpc_team_gather(making->parent->world->bootstrap, sorted, making->step, mine_status,
                                             making->mine, sizeof *making->mine, all, deadline);
    if (status != TPCOMM_OK) return status;
    for (int32_t i = 1; i < sorted->n; i++) {
        if (memcmp(&all[0].said, &all[i].said, sizeof all[0].said) == 0) continue;
        char first[256], other[256];
        describe(&all[0].said, first, sizeof first);
        describe(&all[i].said, other, sizeof other);
        return tpc_error(TPCOMM_ERR_MISMATCH, "world rank %d makes group %s, world rank %d makes group %s",
                         sorted->ranks[0], first, sorted->ranks[i], other);
    }
    *id_p = tpc_hash(sorted->channel, &all[0].number, sizeof all[0].number) | 1u;
    return TPCOMM_OK;
}

/* A wait for the members of a group, or for all of parent. */
typedef struct {
    const tpcomm_t *parent;
    tpc_patience_t patience; /* with a member that has destroyed parent */
} meeting_t;

#define LEFT_GRACE_MS 2000

/* Making a group ends with its parent, and when the caller wants it to. But a member that has what was to be made may
 * destroy the parent while the others are still on their way to theirs. */
static int32_t parent_ended(void *arg) {
    meeting_t *meeting = arg;
    const tpcomm_config_t *config = &meeting->parent->world->settings->config;
    const tpc_failure_t *failure = &meeting->parent->failure;
    if (tpc_failure_status(failure) != TPCOMM_OK &&
        (!tpc_failure_is_leaving(failure) || tpc_patience_is_over(&meeting->patience, LEFT_GRACE_MS)))
        return 1;
    return config->interrupted != NULL ? config->interrupted(config->interrupted_arg) : 0;
}

/* A wait that the parent's end has interrupted, here or on another rank, fails as the parent did. */
static tpcomm_status_t parents_reason(tpcomm_t *parent, tpcomm_status_t status) {
    bool by_others = status == TPCOMM_ERR_INTERRUPTED || status == TPCOMM_ERR_PEER_FAILED ||
                     status == TPCOMM_ERR_ABORTED || status == TPCOMM_ERR_PEER_DIED;
    if (!by_others || tpc_failure_status(&parent->failure) == TPCOMM_OK) return status;
    return tpc_comm_failed(parent);
}

tpcomm_status_t tpc_comm_exchange(tpcomm_t *comm, const char *step, tpcomm_status_t mine_status, const void *mine,
                                  size_t bytes, void *all) {
    tpc_world_t *world = comm->world;
    meeting_t meeting = {.parent = comm};
    tpc_deadline_t deadline = tpc_deadline_in(world->settings->init_timeout_ms, parent_ended, &meeting);
    uint64_t channel = 0, number = 0;
    int32_t sorted[TPCOMM_MAX_RANKS];
    memcpy(sorted, comm->ranks, (size_t)comm->size * sizeof *sorted);
    qsort(sorted, (size_t)comm->size, sizeof *sorted, ascending);
    atomic_fetch_add(&comm->making, 1);
    tpcomm_status_t status = tpc_world_begin_step(world, comm->id, sorted, comm->size, &deadline, &channel, &number);
    if (status == TPCOMM_OK) {
        tpc_team_t team = {.channel = channel, .ranks = comm->ranks, .n = comm->size, .me = comm->rank, .again = true};
        status = tpc_team_gather(world->bootstrap, &team, step, mine_status, mine, bytes, all, &deadline);
        tpc_world_end_step(world, channel);
    }
    status = parents_reason(comm, status);
    atomic_fetch_sub(&comm->making, 1);
    return status;
}

/* mine_status: of checking what this rank gave. A rank that gave something wrong still comes and says so: the others
 * need not wait for it, and all stay in step. */
static tpcomm_status_t create(tpcomm_t *parent, tpcomm_status_t mine_status, const said_t *said,
                              tpc_deadline_t deadline, tpcomm_t **group_p) {
    tpc_world_t *world = parent->world;
    uint64_t start_ns = tpc_clock_ns(), channel = 0, id = 0;
    int32_t sorted[TPCOMM_MAX_RANKS];
    offer_t offer;
    memset(&offer, 0, sizeof offer);
    offer.said = *said;
    offer.parent = parent->id;
    memcpy(sorted, said->ranks, (size_t)said->n * sizeof *sorted);
    qsort(sorted, (size_t)said->n, sizeof *sorted, ascending);
    int32_t my_world_rank = parent->ranks[parent->rank], me_sorted = 0, me = 0;
    for (int32_t i = 0; i < said->n; i++) {
        if (sorted[i] == my_world_rank) me_sorted = i;
        if (said->ranks[i] == my_world_rank) me = i;
    }
    tpcomm_status_t status =
        tpc_world_begin_step(world, parent->id, sorted, said->n, &deadline, &channel, &offer.number);
    if (status != TPCOMM_OK) return status;
    making_t making = {.parent = parent, .mine = &offer, .channel = channel};
    tpc_team_t team = {.channel = channel,
                       .ranks = sorted,
                       .n = said->n,
                       .me = me_sorted,
                       .again = true,
                       .check = check_lists,
                       .check_arg = &making};
    status = agree_on_group(&making, &team, mine_status, &deadline, &id);
    if (status == TPCOMM_OK) {
        tpc_group_plan_t plan = {.name = said->name, .id = id, .ranks = said->ranks, .n = said->n, .me = me};
        status = tpc_comm_create(world, &plan, &deadline, group_p);
    }
    tpc_world_end_step(world, channel);
    if (status == TPCOMM_OK) (*group_p)->init_us = (uint32_t)((tpc_clock_ns() - start_ns) / 1000u);
    return status;
}

tpcomm_status_t tpc_group_make(tpcomm_t *parent, const int32_t *ranks, int32_t n, const char *name,
                               tpcomm_t **group_p) {
    tpcomm_status_t named = check_name(name), status = tpc_hook("group/make", parent->rank);
    if (status != TPCOMM_OK) return status;
    said_t said;
    memset(&said, 0, sizeof said); /* compared as bytes */
    bool listed = false;
    said.n = n;
    memcpy(said.name, name, strnlen(name, sizeof said.name - 1));
    for (int32_t i = 0; i < n; i++) {
        said.ranks[i] = parent->ranks[ranks[i]];
        listed = listed || ranks[i] == parent->rank;
    }
    if (!listed) return named;
    atomic_fetch_add(&parent->making, 1); /* destroy waits for it */
    meeting_t meeting = {.parent = parent};
    status = create(parent, named, &said,
                    tpc_deadline_in(parent->world->settings->init_timeout_ms, parent_ended, &meeting), group_p);
    status = parents_reason(parent, status);
    atomic_fetch_sub(&parent->making, 1);
    return status == TPCOMM_OK ? TPCOMM_OK : tpc_error_prefix(status, "group '%s'", name);
}

tpcomm_status_t tpcomm_group_create(tpcomm_t *parent, const int32_t *ranks, int32_t n, const char *name,
                                    tpcomm_t **group) {
    if (group == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "group is NULL");
    *group = NULL;
    tpcomm_status_t status = tpc_comm_check(parent);
    if (status == TPCOMM_OK) status = check_ranks(parent, ranks, n);
    return status == TPCOMM_OK ? tpc_group_make(parent, ranks, n, name != NULL ? name : "group", group) : status;
}

/* ------------------------------------------------------------------ without those that are lost */

/* How often ranks that leave out those who are gone may find that others saw another loss. */
#define SHRINK_MISMATCHES 3
/* What one rank has seen of a loss the others see within this time: a process that ends closes its links one by one,
 * and a goodbye is a message. */
#define SHRINK_SEEN_MS 1000

/* Which members are to be left out, a bit a group rank. */
typedef struct {
    tpcomm_t *parent;
    uint32_t lost;
    bool told; /* by the caller; else those that are gone */
    bool grew; /* a turn ended since there were more */
} losses_t;

static uint32_t gone_now(tpcomm_t *parent) {
    uint32_t gone = 0;
    for (int32_t r = 0; r < parent->size; r++)
        if (tpc_bootstrap_gone(parent->world->bootstrap, parent->ranks[r])) gone |= 1u << r;
    return gone;
}

/* A member that ends while the rest meet changes whom each must meet: those that saw it sooner wait elsewhere already.
 */
static int32_t losses_grew(void *arg) {
    losses_t *losses = arg;
    const tpcomm_config_t *config = &losses->parent->world->settings->config;
    losses->grew = !losses->told && gone_now(losses->parent) != losses->lost;
    if (losses->grew) return 1;
    return config->interrupted != NULL ? config->interrupted(config->interrupted_arg) : 0;
}

static tpcomm_status_t read_losses(const tpcomm_t *parent, const int32_t *lost, int32_t n, losses_t *losses) {
    if (lost == NULL && n == 0) return TPCOMM_OK;
    if (lost == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "lost is NULL, but n is %d", n);
    if (n < 1 || n >= parent->size)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "n is %d; of %d ranks, 1 to %d can be lost", n, parent->size,
                         parent->size - 1);
    losses->told = true;
    for (int32_t i = 0; i < n; i++) {
        if (lost[i] < 0 || lost[i] >= parent->size)
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "lost[%d] is %d; group '%s' has ranks 0 to %d", i, lost[i],
                             parent->name, parent->size - 1);
        if (lost[i] == parent->rank)
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "lost[%d] is %d, this rank itself", i, lost[i]);
        losses->lost |= 1u << lost[i];
    }
    return TPCOMM_OK;
}

/* Whether a turn that failed so may have ended because of a loss that this rank does not know of yet. */
static bool may_be_loss(tpcomm_status_t status) {
    return status == TPCOMM_ERR_PEER_DIED || status == TPCOMM_ERR_PEER_FAILED || status == TPCOMM_ERR_ABORTED;
}

/* Whether others are lost than this turn was made for; a turn's end by a loss that others saw is waited for. */
static bool losses_differ(const losses_t *losses, tpcomm_status_t status, const tpc_deadline_t *deadline) {
    char text[TPC_ERROR_BYTES];
    snprintf(text, sizeof text, "%s", tpcomm_last_error());
    tpc_deadline_t soon = tpc_deadline_in(may_be_loss(status) ? SHRINK_SEEN_MS : 0, NULL, NULL);
    if (soon.at_ns > deadline->at_ns) soon.at_ns = deadline->at_ns;
    bool differ;
    while (!(differ = gone_now(losses->parent) != losses->lost) && tpc_deadline_left_ms(&soon) > 0)
        tpc_deadline_sleep(&soon, 1);
    (void)tpc_error(status, "%s", text);
    return differ;
}

tpcomm_status_t tpcomm_group_shrink(tpcomm_t *comm, const int32_t *lost, int32_t n, tpcomm_t **group) {
    if (group == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "group is NULL");
    *group = NULL;
    losses_t losses = {.parent = comm};
    tpcomm_status_t status = tpc_comm_check_owner(comm);
    if (status == TPCOMM_OK) status = read_losses(comm, lost, n, &losses);
    if (status != TPCOMM_OK) return status;
    uint64_t limit_ms = comm->world->settings->init_timeout_ms;
    tpc_deadline_t deadline = tpc_deadline_in(limit_ms, losses_grew, &losses);
    bool again;
    int mismatches = 0;
    atomic_fetch_add(&comm->making, 1);
    do {
        said_t said;
        memset(&said, 0, sizeof said);
        memcpy(said.name, comm->name, sizeof said.name);
        if (!losses.told) losses.lost = gone_now(comm);
        for (int32_t r = 0; r < comm->size; r++)
            if ((losses.lost >> r & 1u) == 0) said.ranks[said.n++] = comm->ranks[r];
        status = create(comm, TPCOMM_OK, &said, deadline, group);
        /* Each turn has fewer members, or somebody saw a loss later than others, so there is an end. */
        if (status == TPCOMM_ERR_MISMATCH) mismatches++;
        again = status != TPCOMM_OK && !losses.told &&
                (losses_differ(&losses, status, &deadline) ||
                 (status == TPCOMM_ERR_MISMATCH && mismatches < SHRINK_MISMATCHES));
    } while (again && tpc_deadline_left_ms(&deadline) > 0);
    atomic_fetch_sub(&comm->making, 1);
    if (status == TPCOMM_ERR_INTERRUPTED && losses.grew)
        status = tpc_error(TPCOMM_ERR_TIMEOUT, "ranks went on being lost while the others met, for %llu ms",
                           (unsigned long long)limit_ms);
    return status == TPCOMM_OK ? TPCOMM_OK : tpc_error_prefix(status, "group '%s' without its lost ranks", comm->name);
}

typedef struct {
    int32_t color, key, rank;
} split_t;

static int by_key_then_rank(const void *a, const void *b) {
    const split_t *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

tpcomm_status_t tpcomm_group_split(tpcomm_t *parent, int32_t color, int32_t key, const char *name, tpcomm_t **group) {
    if (group == NULL) return tpc_error(TPCOMM_ERR_INVALID_ARG, "group is NULL");
    *group = NULL;
    tpcomm_status_t status = tpc_comm_check(parent);
    if (status != TPCOMM_OK) return status;
    tpcomm_status_t named = name != NULL ? check_name(name) : TPCOMM_OK;
    split_t mine = {.color = color, .key = key, .rank = parent->rank}, all[TPCOMM_MAX_RANKS];
    status = tpc_comm_exchange(parent, "split", named, &mine, sizeof mine, all);
    if (status != TPCOMM_OK) return status;
    if (color < 0) return TPCOMM_OK;
    int32_t n = 0, ranks[TPCOMM_MAX_RANKS];
    qsort(all, (size_t)parent->size, sizeof *all, by_key_then_rank);
    for (int32_t i = 0; i < parent->size; i++)
        if (all[i].color == color) ranks[n++] = all[i].rank;
    return tpc_group_make(parent, ranks, n, name != NULL ? name : "group", group);
}

tpcomm_status_t tpcomm_group_ranks(const tpcomm_t *comm, int32_t *ranks, int32_t n) {
    if (comm == NULL || ranks == NULL || n < 0)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "comm or ranks is NULL, or n is negative (%d)", n);
    for (int32_t i = 0; i < n && i < comm->size; i++) ranks[i] = comm->ranks[i];
    if (n >= comm->size) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_TOO_SMALL, "group '%s' has %d ranks, the buffer takes %d", comm->name, comm->size, n);
}
