/* SPDX-License-Identifier: Apache-2.0 */
/** One step of a team: what its leader (lead.c) and its other members (team.c) share. */
#ifndef TPC_BOOTSTRAP_STEP_H
#define TPC_BOOTSTRAP_STEP_H

#include "bootstrap/internal.h"

/* Members wait this much longer than the leader, so that they learn its verdict. */
#define TPC_GRACE_NS (UINT64_C(1) * 1000000000)

/** One step, as its member sees it. */
typedef struct {
    tpc_bootstrap_t *bootstrap;
    const tpc_team_t *team;
    const char *step;
    const tpc_deadline_t *deadline;
    bool urgent;          /**< the first failure ends it */
    tpcomm_status_t mine; /**< how this member fared */
    char text[TPC_ERROR_BYTES];
    const void *data; /**< gather: this member's blob; broadcast: the leader's */
    size_t bytes;
    bool gathers;
    int32_t root; /**< gather: the one member whose blob goes to all; -1: all do */
    int fd;       /**< broadcast_fd: the leader's; -1: none */
} tpc_step_t;

/** Bytes of a member's vote, and of the verdict, in a step that gathers. */
static inline size_t tpc_step_brings(const tpc_step_t *step, int32_t index) {
    return step->gathers && (step->root < 0 || step->root == index) ? step->bytes : 0;
}
static inline size_t tpc_step_gets(const tpc_step_t *step) {
    return step->root < 0 ? step->bytes * (size_t)step->team->n : step->bytes;
}

/** One turn of a wait, as tpc_link_wait; also fails where the team's own check does. */
tpcomm_status_t tpc_step_wait(const tpc_step_t *step, const tpc_deadline_t *deadline);

/** World rank of a member. */
int32_t tpc_step_rank(const tpc_step_t *step, int32_t index);

/** The status that a failure of one member has on all of them. */
tpcomm_status_t tpc_status_for_all(tpcomm_status_t status);

/** Record what to say of a member whose link is not open; returns the status. */
tpcomm_status_t tpc_step_gone(const tpc_step_t *step, int32_t index);

/** Let go of what was taken from a box; harmless where nothing was. */
void tpc_mail_drop(tpc_mail_t *mail);

/** The leader's part: collect the votes, judge, tell all. all is written where OK is returned and the step gathers. */
tpcomm_status_t tpc_step_lead(const tpc_step_t *step, void *all);

#endif
