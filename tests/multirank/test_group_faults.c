/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that groups can be made again and again whatever went wrong before: a seeded sequence of steps in which a
 * member never comes, comes late, gives another name, order or list, or something that is refused. Each step ends on
 * every member as it alone says, and what is left of one never reaches the next.
 */
#include <unistd.h>

#include "coordinator/comm.h"
#include "multirank/ranks.h"

#define SIZE 5
/* Where a member doubts whether the others are at this step or beyond it, the leader comes before that, however late.
 */
#define DOUBT_MS 5000

typedef enum { GOOD, ABSENT, LATE, OTHER_NAME, OTHER_ORDER, OTHER_LIST, REFUSED } fault_t;
static const char *const fault_names[] = {"good",        "absent",     "late",   "other name",
                                          "other order", "other list", "refused"};

/* One step, the same on all ranks. */
typedef struct {
    fault_t fault;
    int32_t ranks[SIZE], n;
    int32_t victim;       /* a member */
    int32_t theirs[SIZE]; /* OTHER_LIST: the victim's */
    const char *name;
    bool slow; /* the victim comes after others may have stopped doubting: the first time that this can be */
} step_t;

static bool lists(const int32_t *ranks, int32_t n, int32_t rank) {
    for (int32_t i = 0; i < n; i++)
        if (ranks[i] == rank) return true;
    return false;
}

static int32_t lowest(const int32_t *ranks, int32_t n) {
    int32_t low = ranks[0];
    for (int32_t i = 1; i < n; i++)
        if (ranks[i] < low) low = ranks[i];
    return low;
}

static uint32_t mask_of(const int32_t *ranks, int32_t n) {
    uint32_t mask = 0;
    for (int32_t i = 0; i < n; i++) mask |= 1u << ranks[i];
    return mask;
}

/* missed: by set of ranks, whether a member may hold the failure of a step that it missed. Then a leader that is at a
 * step of another name is taken to be beyond that one, which is another story. */
static step_t draw(uint64_t *seed, bool missed[1 << SIZE], bool *slowed) {
    static const fault_t kinds[] = {GOOD, GOOD, GOOD,   GOOD, GOOD,       GOOD,    GOOD,       GOOD,       GOOD,
                                    GOOD, GOOD, ABSENT, LATE, OTHER_NAME, REFUSED, OTHER_LIST, OTHER_ORDER};
    static const char *const names[] = {"a", "b"};
    step_t step = {.fault = kinds[random_next(seed) % (sizeof kinds / sizeof *kinds)],
                   .n = (int32_t)(2 + random_next(seed) % (SIZE - 1)),
                   .name = names[random_next(seed) % 2]};
    int32_t all[SIZE];
    for (int32_t i = 0; i < SIZE; i++) all[i] = i;
    for (int32_t i = 0; i < SIZE - 1; i++) {
        int32_t j = i + (int32_t)(random_next(seed) % (uint64_t)(SIZE - i)), kept = all[i];
        all[i] = all[j];
        all[j] = kept;
    }
    memcpy(step.ranks, all, sizeof all);
    memcpy(step.theirs, all, sizeof all);
    step.victim = step.ranks[random_next(seed) % (uint64_t)step.n];
    if (step.fault == OTHER_LIST && step.n == SIZE) step.fault = GOOD; /* there is nobody else to name */
    if (step.fault == OTHER_LIST) step.theirs[step.ranks[0] == step.victim ? 1 : 0] = all[step.n];
    bool leads = lowest(step.ranks, step.n) == step.victim;
    uint32_t mask = mask_of(step.ranks, step.n);
    if (leads && missed[mask] && (step.fault == OTHER_NAME || step.fault == REFUSED)) step.fault = GOOD;
    step.slow = !leads && missed[mask] && step.fault == GOOD && !*slowed;
    *slowed |= step.slow;
    missed[mask] = step.fault != GOOD;
    missed[mask_of(step.theirs, step.n)] |= step.fault == OTHER_LIST;
    return step;
}

/* Whether somebody can see that the victim's list is another one: who leads it and has the victim's vote while waiting
 * for the victim elsewhere; or the victim itself, which has the others' votes if it leads what they mean. */
static bool is_seen(const step_t *step) {
    int32_t lead = lowest(step->ranks, step->n), other = lowest(step->theirs, step->n);
    return (other != step->victim && lists(step->ranks, step->n, other)) || (lead == step->victim && step->n > 2);
}

static tpcomm_status_t expected(const step_t *step) {
    switch (step->fault) {
    case GOOD:
        return TPCOMM_OK;
    case ABSENT:
    case LATE:
        return TPCOMM_ERR_TIMEOUT;
    case OTHER_LIST:
        return is_seen(step) ? TPCOMM_ERR_MISMATCH : TPCOMM_ERR_TIMEOUT;
    case REFUSED:
        return TPCOMM_ERR_INVALID_ARG;
    default:
        return TPCOMM_ERR_MISMATCH;
    }
}

static void call(rank_t *rank, const step_t *step, int number) {
    bool victim = rank->rank == step->victim;
    int32_t ranks[SIZE];
    const char *name = step->name;
    tpcomm_t *group = NULL;
    memcpy(ranks, step->ranks, sizeof ranks);
    if (victim && step->fault == OTHER_NAME) name = "c";
    if (victim && step->fault == REFUSED)
        name = "a name that has more than the sixty-three bytes which there is room for";
    if (victim && step->fault == OTHER_LIST) memcpy(ranks, step->theirs, sizeof ranks);
    if (victim && step->fault == OTHER_ORDER) {
        ranks[0] = step->ranks[1];
        ranks[1] = step->ranks[0];
    }
    tpcomm_status_t want = expected(step), status = tpcomm_group_create(rank->comm, ranks, step->n, name, &group);
    if (status != want)
        FAIL("step %d (%s of %d, victim %d): rank %d got %s, want %s (%s)", number, fault_names[step->fault], step->n,
             step->victim, rank->rank, tpcomm_status_name(status), tpcomm_status_name(want), tpcomm_last_error());
    if (status != TPCOMM_OK) return;
    int32_t mine = 1 << rank->rank, sum = 0, all = 0;
    for (int32_t i = 0; i < step->n; i++) all |= 1 << step->ranks[i];
    CHECK_OK(tpcomm_all_reduce(group, &mine, &sum, 1, TPCOMM_I32, TPCOMM_SUM, NULL));
    CHECK_EQ(sum, all);
    CHECK_OK(tpcomm_finalize(group));
    CHECK_OK(tpcomm_destroy(group));
}

static void sequence(rank_t *rank) {
    uint64_t seed = 4;
    int counts[REFUSED + 1] = {0};
    bool missed[1 << SIZE] = {false}, slowed = false;
    for (int number = 0; number < *(int *)rank->arg; number++) {
        step_t step = draw(&seed, missed, &slowed);
        counts[step.fault]++;
        /* As long as it takes where the ranks meet; short where the time is what ends it. */
        rank->comm->world->settings->init_timeout_ms = expected(&step) == TPCOMM_ERR_TIMEOUT ? 200 : 30000;
        bool member = lists(step.ranks, step.n, rank->rank), victim = rank->rank == step.victim;
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        if (victim && step.slow) usleep(1000 * (DOUBT_MS + 500));
        if (member && !(victim && (step.fault == ABSENT || step.fault == LATE))) call(rank, &step, number);
        if (step.fault != LATE) continue;
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        if (victim) call(rank, &step, number);
    }
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    for (fault_t fault = GOOD; fault <= REFUSED && *(int *)rank->arg >= 200; fault++) CHECK(counts[fault] > 3);
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    int threads = 200, processes = 25;
    char hooks[64];
    snprintf(hooks, sizeof hooks, "set@doubt_ms:%d;set@conflict_ms:200", DOUBT_MS);
    ranks_set_hooks(hooks);
    ranks_run(RANKS_THREADS, SIZE, &config, sequence, &threads);
    ranks_run(RANKS_PROCESSES, SIZE, &config, sequence, &processes);
    return 0;
}
