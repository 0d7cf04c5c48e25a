/* SPDX-License-Identifier: Apache-2.0 */
/** The leader's part of a team's step: collect the votes, judge, tell all. team.c says how the parts fit. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bootstrap/step.h"

typedef struct {
    tpc_mail_t vote[TPCOMM_MAX_RANKS];     /**< frame NULL: not here */
    tpc_mail_t withdraw[TPCOMM_MAX_RANKS]; /**< who has stopped waiting since */
    bool seen[TPCOMM_MAX_RANKS];           /**< the vote was here at the end of an earlier turn */
    bool told[TPCOMM_MAX_RANKS];           /**< a member that was in doubt knows that this step is on */
    /* Teams that come again: a vote for a step of this name that was withdrawn before it was seen here. */
    tpc_mail_t old_vote[TPCOMM_MAX_RANKS], old_withdraw[TPCOMM_MAX_RANKS];
} votes_t;

static bool is_of_this_step(const tpc_step_t *step, const tpc_frame_t *vote) {
    return strncmp(vote->head.step, step->step, sizeof vote->head.step - 1) == 0;
}

/** A vote and its withdrawal are both here: it counts if it was here while I was, else it is of a step that I missed.
 */
static void withdrawn(const tpc_step_t *step, votes_t *votes, int32_t i, tpc_mail_t *mail) {
    bool mine = is_of_this_step(step, votes->vote[i].frame);
    if (mail->frame->head.status != TPCOMM_OK && (votes->seen[i] || (!step->team->again && mine))) {
        votes->withdraw[i] = *mail;
        return;
    }
    if (mine && step->team->again && mail->frame->head.status != TPCOMM_OK) {
        tpc_mail_drop(&votes->old_vote[i]);
        tpc_mail_drop(&votes->old_withdraw[i]);
        votes->old_vote[i] = votes->vote[i];
        votes->old_withdraw[i] = *mail;
    } else {
        tpc_mail_drop(&votes->vote[i]);
        tpc_mail_drop(mail);
    }
    votes->vote[i].frame = NULL;
}

static void answer(const tpc_step_t *step, uint64_t token, int32_t index, tpcomm_status_t status) {
    tpc_frame_t *frame = tpc_frame_new(TPC_FRAME_PRESENT, step->team->channel, step->step, status, NULL, NULL, 0);
    if (!frame) return; /* its sender takes the step for over */
    (void)tpc_link_send(&step->bootstrap->links, tpc_step_rank(step, index), frame, token, -1);
    tpc_frame_release(frame);
}

/** A member that holds the verdict of a step of its vote's name wonders whether there is another one. */
static void answer_doubt(const tpc_step_t *step, votes_t *votes, int32_t i) {
    tpc_frame_t *vote = votes->vote[i].frame;
    if (!vote || !(vote->head.flags & TPC_FLAG_PAST) || votes->told[i]) return;
    bool mine = is_of_this_step(step, vote);
    answer(step, votes->vote[i].token, i, mine ? TPCOMM_OK : TPCOMM_ERR_TIMEOUT);
    votes->told[i] = mine;
    if (!mine) tpc_mail_drop(&votes->vote[i]);
}

static void take_of(const tpc_step_t *step, votes_t *votes, int32_t i) {
    tpc_mail_t mail;
    tpc_told_t told;
    (void)tpc_link_told(&step->bootstrap->links, tpc_step_rank(step, i), step->team->channel, 0, 0, &told);
    while (!votes->withdraw[i].frame &&
           tpc_link_take(&step->bootstrap->links, tpc_step_rank(step, i), step->team->channel, &mail)) {
        tpc_frame_t *vote = votes->vote[i].frame;
        if (mail.frame->head.kind == TPC_FRAME_VOTE && mail.frame->head.told == told.sent) {
            tpc_mail_drop(&votes->vote[i]); /* nobody has two: the one before is not waited for any more */
            votes->vote[i] = mail;
            votes->seen[i] = votes->told[i] = false;
        } else if (mail.frame->head.kind == TPC_FRAME_WITHDRAW && vote && votes->vote[i].token == mail.token) {
            withdrawn(step, votes, i, &mail);
        } else {
            tpc_mail_drop(&mail); /* of a step that is over, or about to learn that it is */
        }
    }
    answer_doubt(step, votes, i);
}

/**
 * Take what has come for this step. Returns how many votes are here. *late_p: members have given up this step, and gone
 * on to another.
 */
static int32_t votes_take(const tpc_step_t *step, votes_t *votes, bool *late_p) {
    int32_t here = 0;
    tpc_link_pump(&step->bootstrap->links);
    for (int32_t i = 1; i < step->team->n; i++) {
        take_of(step, votes, i);
        const tpc_frame_t *vote = votes->vote[i].frame;
        if (vote && !votes->withdraw[i].frame && votes->old_vote[i].frame && !is_of_this_step(step, vote))
            *late_p = true;
        votes->seen[i] = vote != NULL;
        here += vote != NULL;
    }
    return here;
}

/** I am late: what the others are at now is for my next step, and this one ended as they say. */
static void votes_of_old(const tpc_step_t *step, votes_t *votes) {
    for (int32_t i = 1; i < step->team->n; i++) {
        if (!votes->old_vote[i].frame) continue;
        if (votes->vote[i].frame && !votes->withdraw[i].frame) {
            tpc_link_return(&step->bootstrap->links, tpc_step_rank(step, i), &votes->vote[i]);
        } else {
            tpc_mail_drop(&votes->vote[i]);
            tpc_mail_drop(&votes->withdraw[i]);
        }
        votes->vote[i] = votes->old_vote[i];
        votes->withdraw[i] = votes->old_withdraw[i];
        votes->old_vote[i].frame = votes->old_withdraw[i].frame = NULL;
    }
}

/** Whether somebody is gone, be it in good order if left_too; *index_p is the first one. */
static bool somebody_gone(const tpc_step_t *step, bool left_too, int32_t *index_p) {
    for (int32_t i = 1; i < step->team->n; i++) {
        int err;
        tpc_link_state_t state = tpc_link_state(&step->bootstrap->links, tpc_step_rank(step, i), &err);
        if (state == TPC_LINK_OPEN || state == TPC_LINK_NONE || (state == TPC_LINK_LEFT && !left_too)) continue;
        *index_p = i;
        return true;
    }
    return false;
}

static bool vote_failed(const votes_t *votes, int32_t index) {
    return votes->withdraw[index].frame ||
           (votes->vote[index].frame && votes->vote[index].frame->head.status != TPCOMM_OK);
}

/** Whether something has come that ends the step before all are here: who has withdrawn will not be there for its end.
 */
static bool is_over(const tpc_step_t *step, const votes_t *votes) {
    for (int32_t i = 1; i < step->team->n; i++)
        if (votes->withdraw[i].frame || (step->urgent && vote_failed(votes, i))) return true;
    return false;
}

/** The text of those who have not come: "1, 3 (world rank 6)". */
static void list_missing(const tpc_step_t *step, const votes_t *votes, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (int32_t i = 1; i < step->team->n && used < bytes; i++) {
        if (votes->vote[i].frame) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", used > 0 ? ", " : "", i);
        if (tpc_step_rank(step, i) != i && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, " (world rank %d)", tpc_step_rank(step, i));
    }
}

/** A member that failed; its own text says the rest. Returns who. */
static const char *name_failed(const tpc_step_t *step, int32_t index, char who[64]) {
    if (tpc_step_rank(step, index) == index)
        snprintf(who, 64, "rank %d", index);
    else
        snprintf(who, 64, "rank %d (world rank %d)", index, tpc_step_rank(step, index));
    return who;
}

static tpcomm_status_t failed_error(const tpc_step_t *step, const votes_t *votes, int32_t index, const char *missing) {
    const tpc_frame_t *frame = votes->withdraw[index].frame ? votes->withdraw[index].frame : votes->vote[index].frame;
    char text[TPC_ERROR_BYTES], who[64];
    tpc_frame_text(frame, text);
    return tpc_error(tpc_status_for_all(frame->head.status), "%s failed in '%s': %s%s%s", name_failed(step, index, who),
                     frame->head.step, text, missing[0] != '\0' ? "; missing ranks: " : "", missing);
}

/** Whether all votes are about this step and of its length. */
static tpcomm_status_t check_alike(const tpc_step_t *step, const votes_t *votes) {
    char who[64];
    for (int32_t i = 1; i < step->team->n; i++) {
        const tpc_frame_head_t *head = &votes->vote[i].frame->head;
        (void)tpc_team_who(step->bootstrap, step->team, i, who);
        if (!is_of_this_step(step, votes->vote[i].frame))
            return tpc_error(TPCOMM_ERR_MISMATCH, "rank 0 is in '%s', %s is in '%s'", step->step, who, head->step);
        size_t wanted = tpc_step_brings(step, i);
        if (head->data_bytes != wanted)
            return tpc_error(TPCOMM_ERR_MISMATCH, "in '%s': rank 0 brings %zu bytes, %s %llu bytes", step->step, wanted,
                             who, (unsigned long long)head->data_bytes);
    }
    return TPCOMM_OK;
}

/** Wait for the votes. OK: all here, or it is over anyway; else why the wait ended. */
static tpcomm_status_t votes_wait(const tpc_step_t *step, votes_t *votes) {
    tpcomm_status_t ended = TPCOMM_OK;
    for (;;) {
        bool late = false;
        int32_t gone, here = votes_take(step, votes, &late);
        if (late) {
            votes_of_old(step, votes);
            return TPCOMM_OK;
        }
        /* What has come has come, whatever ended the wait after it. */
        if (here == step->team->n - 1) return TPCOMM_OK;
        if (ended != TPCOMM_OK) return ended;
        if (somebody_gone(step, true, &gone)) return TPCOMM_OK;
        /* Members that come again would not know of which of their calls they are told, so they are waited for. */
        bool waits = step->mine == TPCOMM_OK || (step->team->again && step->mine != TPCOMM_ERR_INTERRUPTED);
        if (!waits || is_over(step, votes)) return TPCOMM_OK;
        ended = tpc_step_wait(step, step->deadline);
    }
}

/** The verdict from what is known after the wait ended with waited; its text is recorded. */
static tpcomm_status_t judge(const tpc_step_t *step, const votes_t *votes, tpcomm_status_t waited) {
    char missing[256], leader[64];
    int32_t index;
    (void)name_failed(step, 0, leader);
    if (step->mine != TPCOMM_OK)
        return tpc_error(tpc_status_for_all(step->mine), "%s failed in '%s': %s", leader, step->step, step->text);
    if (waited != TPCOMM_OK && waited != TPCOMM_ERR_TIMEOUT) {
        char text[TPC_ERROR_BYTES];
        snprintf(text, sizeof text, "%s", tpcomm_last_error());
        return tpc_error(tpc_status_for_all(waited), "%s failed in '%s': %s", leader, step->step, text);
    }
    /* A death is the cause of what others then report; who left in good order may have said why. */
    if (somebody_gone(step, false, &index)) return tpc_step_gone(step, index);
    list_missing(step, votes, missing, sizeof missing);
    for (index = 1; index < step->team->n; index++) {
        /* Whose patience ended first does not matter where somebody was missing. */
        bool late = votes->withdraw[index].frame && votes->withdraw[index].frame->head.status == TPCOMM_ERR_TIMEOUT;
        if (late && missing[0] != '\0') waited = TPCOMM_ERR_TIMEOUT;
        if (vote_failed(votes, index) && !(late && missing[0] != '\0'))
            return failed_error(step, votes, index, waited == TPCOMM_OK ? "" : missing);
    }
    if (waited != TPCOMM_OK)
        return tpc_error(TPCOMM_ERR_TIMEOUT, "'%s' ended after %llu ms: missing ranks: %s", step->step,
                         (unsigned long long)tpc_deadline_elapsed_ms(step->deadline), missing);
    if (somebody_gone(step, true, &index)) return tpc_step_gone(step, index);
    return check_alike(step, votes);
}

/** The frame that goes to all members. A failure's text is this thread's last one. */
static tpc_frame_t *verdict_frame(const tpc_step_t *step, const votes_t *votes, tpcomm_status_t status) {
    uint64_t channel = step->team->channel;
    if (status != TPCOMM_OK)
        return tpc_frame_new(TPC_FRAME_VERDICT, channel, step->step, status, tpcomm_last_error(), NULL, 0);
    if (!step->gathers)
        return tpc_frame_new(TPC_FRAME_VERDICT, channel, step->step, status, NULL, step->data, step->bytes);
    if (step->root >= 0) {
        const void *data = step->root == 0 ? step->data : tpc_frame_data(votes->vote[step->root].frame);
        return tpc_frame_new(TPC_FRAME_VERDICT, channel, step->step, status, NULL, data, step->bytes);
    }
    tpc_frame_t *frame = tpc_frame_new(TPC_FRAME_VERDICT, channel, step->step, status, NULL, NULL, tpc_step_gets(step));
    if (!frame || step->bytes == 0) return frame;
    memcpy(tpc_frame_data(frame), step->data, step->bytes);
    for (int32_t i = 1; i < step->team->n; i++)
        memcpy(tpc_frame_data(frame) + step->bytes * (size_t)i, tpc_frame_data(votes->vote[i].frame), step->bytes);
    return frame;
}

/** Until all verdicts have left this process: what follows may be its end. */
static tpcomm_status_t flush(const tpc_step_t *step) {
    tpc_deadline_t deadline = *step->deadline;
    uint64_t least_ns = tpc_clock_awake_ns() + TPC_GRACE_NS;
    if (deadline.at_ns < least_ns) deadline.at_ns = least_ns;
    for (int32_t i = 1; i < step->team->n; i++) {
        while (!tpc_link_sent(&step->bootstrap->links, tpc_step_rank(step, i))) {
            char who[64];
            tpcomm_status_t status = tpc_link_wait(&step->bootstrap->links, &deadline);
            if (status == TPCOMM_ERR_TIMEOUT)
                return tpc_error(status, "'%s' ended after %llu ms: %s does not take its part", step->step,
                                 (unsigned long long)tpc_deadline_elapsed_ms(step->deadline),
                                 tpc_team_who(step->bootstrap, step->team, i, who));
            if (status != TPCOMM_OK) return status;
            tpc_link_pump(&step->bootstrap->links);
        }
    }
    return TPCOMM_OK;
}

/** Send the verdict to all; votes NULL: none of them has been taken. */
static void tell(const tpc_step_t *step, const votes_t *votes, tpc_frame_t *verdict, int fd) {
    tpc_links_t *links = &step->bootstrap->links;
    for (int32_t i = 1; i < step->team->n; i++) {
        int32_t rank = tpc_step_rank(step, i);
        int err;
        if (tpc_link_state(links, rank, &err) == TPC_LINK_NONE) continue;
        uint64_t token = votes && votes->vote[i].frame ? votes->vote[i].token : 0;
        tpc_told_t told;
        bool told_it = (token != 0 || tpc_link_told(links, rank, step->team->channel, 1, 0, &told)) &&
                       (tpc_link_send(links, rank, verdict, token, fd) == 0 ||
                        (fd >= 0 && tpc_link_send(links, rank, verdict, token, -1) == 0));
        if (!told_it) tpc_link_fail(links, rank);
    }
}

tpcomm_status_t tpc_step_lead(const tpc_step_t *step, void *all) {
    votes_t votes;
    memset(&votes, 0, sizeof votes);
    tpcomm_status_t waited = votes_wait(step, &votes);
    tpcomm_status_t status = judge(step, &votes, waited);
    tpc_frame_t *verdict = verdict_frame(step, &votes, status);
    if (!verdict) {
        status = tpc_error(TPCOMM_ERR_PEER_FAILED, "rank 0 failed in '%s': no memory", step->step);
        verdict = verdict_frame(step, &votes, status);
    }
    char text[TPC_ERROR_BYTES];
    snprintf(text, sizeof text, "%s", tpcomm_last_error());
    if (verdict) {
        if (status == TPCOMM_OK && step->fd >= 0) verdict->head.flags |= TPC_FLAG_FD;
        tell(step, &votes, verdict, status == TPCOMM_OK ? step->fd : -1);
    }
    tpcomm_status_t flushed = flush(step);
    if (status != TPCOMM_OK)
        (void)tpc_error(status, "%s", text);
    else
        status = flushed;
    if (status == TPCOMM_OK && step->gathers && step->bytes > 0)
        memcpy(all, tpc_frame_data(verdict), (size_t)verdict->head.data_bytes);
    tpc_frame_release(verdict);
    for (int32_t i = 1; i < step->team->n; i++) {
        tpc_mail_drop(&votes.vote[i]);
        tpc_mail_drop(&votes.withdraw[i]);
        tpc_mail_drop(&votes.old_vote[i]);
        tpc_mail_drop(&votes.old_withdraw[i]);
    }
    /* Whoever asked for the interruption gets that as his status, whatever the others get. */
    if (waited == TPCOMM_ERR_INTERRUPTED || step->mine == TPCOMM_ERR_INTERRUPTED) return TPCOMM_ERR_INTERRUPTED;
    return status;
}

tpcomm_status_t tpc_team_fail(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *name,
                              tpcomm_status_t status) {
    char text[TPC_ERROR_BYTES];
    tpc_deadline_t now = tpc_deadline_in(0, NULL, NULL);
    tpc_step_t step = {
        .bootstrap = bootstrap, .team = team, .step = name, .deadline = &now, .mine = status, .root = -1, .fd = -1};
    if (tpc_status_for_all(status) != status) (void)tpc_error_prefix(status, "rank 0 failed in '%s'", name);
    snprintf(text, sizeof text, "%s", tpcomm_last_error());
    tpc_frame_t *verdict = verdict_frame(&step, NULL, tpc_status_for_all(status));
    if (verdict) tell(&step, NULL, verdict, -1);
    tpc_frame_release(verdict);
    (void)flush(&step);
    return tpc_error(status == TPCOMM_ERR_INTERRUPTED ? status : tpc_status_for_all(status), "%s", text);
}
