/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Votes over a star: each member sends the leader one VOTE, the leader sends each member one VERDICT, and what the
 * verdict says is the result on all. So nobody can wait in a circle, and nobody leaves with an opinion of his own.
 *
 * One vote and one verdict for each member and step, always: who stops waiting sooner leaves a debt at its link
 * (link.h), by which the frame that comes too late is dropped. So a channel stays usable after a timeout.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hook.h"
#include "bootstrap/internal.h"

/* Members wait this much longer than the leader, so that they learn its verdict. */
#define GRACE_NS (UINT64_C(1) * 1000000000)

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
    int fd; /**< broadcast_fd: the leader's; -1: none */
} step_t;

static int32_t rank_of(const step_t *step, int32_t index) {
    return step->team->ranks[index];
}

const char *tpc_team_who(const tpc_bootstrap_t *bootstrap, const tpc_team_t *team, int32_t index, char text[64]) {
    int32_t rank = team->ranks[index];
    int used = snprintf(text, 64, "rank %d", index);
    if (rank != index) used += snprintf(text + used, 64 - (size_t)used, " (world rank %d", rank);
    if (bootstrap->said_pid[rank] != 0)
        used += snprintf(text + used, 64 - (size_t)used, "%spid %d", rank != index ? ", " : " (",
                         bootstrap->said_pid[rank]);
    if (rank != index || bootstrap->said_pid[rank] != 0) snprintf(text + used, 64 - (size_t)used, ")");
    return text;
}

/** The status that a failure of one member has on all of them. */
static tpcomm_status_t status_for_all(tpcomm_status_t status) {
    bool same_cause_anywhere = status == TPCOMM_ERR_INVALID_ARG || status == TPCOMM_ERR_UNSUPPORTED ||
                               status == TPCOMM_ERR_VERSION || status == TPCOMM_ERR_CONFIG ||
                               status == TPCOMM_ERR_PARSE;
    bool of_the_group = status <= TPCOMM_ERR_ABORTED && status > TPCOMM_ERR_DEVICE;
    return same_cause_anywhere || of_the_group ? status : TPCOMM_ERR_PEER_FAILED;
}

/* ------------------------------------------------------------------ the leader */

typedef struct {
    tpc_mail_t vote[TPCOMM_MAX_RANKS];     /**< frame NULL: not here */
    tpc_mail_t withdraw[TPCOMM_MAX_RANKS]; /**< who has stopped waiting since */
} votes_t;

static void mail_drop(tpc_mail_t *mail) {
    if (mail->frame && mail->fd >= 0) close(mail->fd);
    tpc_frame_release(mail->frame);
    mail->frame = NULL;
}

/** Take what has come for this step. Returns how many votes are here. */
static int32_t votes_take(const step_t *step, votes_t *votes) {
    tpc_links_t *links = &step->bootstrap->links;
    int32_t here = 0;
    tpc_link_pump(links);
    for (int32_t i = 1; i < step->team->n; i++) {
        tpc_mail_t mail;
        while (!votes->withdraw[i].frame) {
            /* A vote behind the one that is here belongs to the next step. */
            const tpc_frame_t *next = tpc_link_peek(links, rank_of(step, i), step->team->channel);
            if (!next || (votes->vote[i].frame && next->head.kind != TPC_FRAME_WITHDRAW)) break;
            if (!tpc_link_take(links, rank_of(step, i), step->team->channel, &mail)) break;
            if (!votes->vote[i].frame && mail.frame->head.kind == TPC_FRAME_VOTE)
                votes->vote[i] = mail;
            else if (votes->vote[i].frame)
                votes->withdraw[i] = mail;
            else
                mail_drop(&mail); /* of a step that is over */
        }
        here += votes->vote[i].frame != NULL;
    }
    return here;
}

/** Whether somebody is gone, be it in good order if left_too; *index_p is the first one. */
static bool somebody_gone(const step_t *step, bool left_too, int32_t *index_p) {
    for (int32_t i = 1; i < step->team->n; i++) {
        int err;
        tpc_link_state_t state = tpc_link_state(&step->bootstrap->links, rank_of(step, i), &err);
        if (state == TPC_LINK_OPEN || state == TPC_LINK_NONE || (state == TPC_LINK_LEFT && !left_too)) continue;
        *index_p = i;
        return true;
    }
    return false;
}

/** What to say of a member that is gone. */
static tpcomm_status_t gone_error(const step_t *step, int32_t index) {
    int err;
    char who[64];
    tpc_link_state_t state = tpc_link_state(&step->bootstrap->links, rank_of(step, index), &err);
    (void)tpc_team_who(step->bootstrap, step->team, index, who);
    if (state == TPC_LINK_LEFT)
        return tpc_error(TPCOMM_ERR_ABORTED, "in '%s': %s has left: its communicator was destroyed or its init failed",
                         step->step, who);
    if (state == TPC_LINK_ENDED) return tpc_error(TPCOMM_ERR_PEER_DIED, "in '%s': %s ended", step->step, who);
    if (err == ETIMEDOUT || err == EHOSTUNREACH)
        return tpc_error_errno(TPCOMM_ERR_PEER_DIED, err, "in '%s': %s cannot be reached any more", step->step, who);
    return tpc_error_errno(TPCOMM_ERR_PEER_FAILED, err, "in '%s': the connection to %s failed", step->step, who);
}

static bool vote_failed(const votes_t *votes, int32_t index) {
    return votes->withdraw[index].frame ||
           (votes->vote[index].frame && votes->vote[index].frame->head.status != TPCOMM_OK);
}

static bool any_failed(const step_t *step, const votes_t *votes) {
    for (int32_t i = 1; i < step->team->n; i++)
        if (vote_failed(votes, i)) return true;
    return false;
}

/** The text of those who have not come: "1, 3 (world rank 6)". */
static void list_missing(const step_t *step, const votes_t *votes, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (int32_t i = 1; i < step->team->n && used < bytes; i++) {
        if (votes->vote[i].frame) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", used > 0 ? ", " : "", i);
        if (rank_of(step, i) != i && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, " (world rank %d)", rank_of(step, i));
    }
}

/** A member that failed; its own text says the rest. Returns who. */
static const char *name_failed(const step_t *step, int32_t index, char who[64]) {
    if (rank_of(step, index) == index)
        snprintf(who, 64, "rank %d", index);
    else
        snprintf(who, 64, "rank %d (world rank %d)", index, rank_of(step, index));
    return who;
}

static tpcomm_status_t failed_error(const step_t *step, const votes_t *votes, int32_t index, const char *missing) {
    const tpc_frame_t *frame = votes->withdraw[index].frame ? votes->withdraw[index].frame : votes->vote[index].frame;
    char text[TPC_ERROR_BYTES], who[64];
    tpc_frame_text(frame, text);
    return tpc_error(status_for_all(frame->head.status), "%s failed in '%s': %s%s%s", name_failed(step, index, who),
                     frame->head.step, text, missing[0] != '\0' ? "; missing ranks: " : "", missing);
}

/** Whether all votes are about this step and of its length. */
static tpcomm_status_t check_alike(const step_t *step, const votes_t *votes) {
    char who[64];
    for (int32_t i = 1; i < step->team->n; i++) {
        const tpc_frame_head_t *head = &votes->vote[i].frame->head;
        (void)tpc_team_who(step->bootstrap, step->team, i, who);
        if (strncmp(head->step, step->step, sizeof head->step - 1) != 0)
            return tpc_error(TPCOMM_ERR_MISMATCH, "rank 0 is in '%s', %s is in '%s'", step->step, who, head->step);
        size_t wanted = step->gathers ? step->bytes : 0;
        if (head->data_bytes != wanted)
            return tpc_error(TPCOMM_ERR_MISMATCH, "in '%s': rank 0 brings %zu bytes, %s %llu bytes", step->step, wanted,
                             who, (unsigned long long)head->data_bytes);
    }
    return TPCOMM_OK;
}

/** Wait for the votes. OK: all here, or a failure is known; else why the wait ended. */
static tpcomm_status_t votes_wait(const step_t *step, votes_t *votes) {
    for (;;) {
        int32_t gone, here = votes_take(step, votes);
        if (here == step->team->n - 1 || somebody_gone(step, true, &gone)) return TPCOMM_OK;
        if (step->mine != TPCOMM_OK || (step->urgent && any_failed(step, votes))) return TPCOMM_OK;
        tpcomm_status_t status = tpc_link_wait(&step->bootstrap->links, step->deadline);
        if (status != TPCOMM_OK) return status;
    }
}

/** The verdict from what is known after the wait ended with waited; its text is recorded. */
static tpcomm_status_t judge(const step_t *step, const votes_t *votes, tpcomm_status_t waited) {
    char missing[256], leader[64];
    int32_t index;
    (void)name_failed(step, 0, leader);
    if (step->mine != TPCOMM_OK)
        return tpc_error(status_for_all(step->mine), "%s failed in '%s': %s", leader, step->step, step->text);
    if (waited != TPCOMM_OK && waited != TPCOMM_ERR_TIMEOUT) {
        char text[TPC_ERROR_BYTES];
        snprintf(text, sizeof text, "%s", tpcomm_last_error());
        return tpc_error(status_for_all(waited), "%s failed in '%s': %s", leader, step->step, text);
    }
    /* A death is the cause of what others then report; who left in good order may have said why. */
    if (somebody_gone(step, false, &index)) return gone_error(step, index);
    list_missing(step, votes, missing, sizeof missing);
    for (index = 1; index < step->team->n; index++)
        if (vote_failed(votes, index)) return failed_error(step, votes, index, waited == TPCOMM_OK ? "" : missing);
    if (somebody_gone(step, true, &index)) return gone_error(step, index);
    if (waited != TPCOMM_OK)
        return tpc_error(TPCOMM_ERR_TIMEOUT, "'%s' ended after %llu ms: missing ranks: %s", step->step,
                         (unsigned long long)tpc_deadline_elapsed_ms(step->deadline), missing);
    return check_alike(step, votes);
}

/** The frame that goes to all members. A failure's text is this thread's last one. */
static tpc_frame_t *verdict_frame(const step_t *step, const votes_t *votes, tpcomm_status_t status) {
    uint64_t channel = step->team->channel;
    if (status != TPCOMM_OK)
        return tpc_frame_new(TPC_FRAME_VERDICT, channel, step->step, status, tpcomm_last_error(), NULL, 0);
    if (!step->gathers)
        return tpc_frame_new(TPC_FRAME_VERDICT, channel, step->step, status, NULL, step->data, step->bytes);
    tpc_frame_t *frame =
        tpc_frame_new(TPC_FRAME_VERDICT, channel, step->step, status, NULL, NULL, step->bytes * (size_t)step->team->n);
    if (!frame || step->bytes == 0) return frame;
    memcpy(tpc_frame_data(frame), step->data, step->bytes);
    for (int32_t i = 1; i < step->team->n; i++)
        memcpy(tpc_frame_data(frame) + step->bytes * (size_t)i, tpc_frame_data(votes->vote[i].frame), step->bytes);
    return frame;
}

/** Until all verdicts have left this process: what follows may be its end. */
static tpcomm_status_t flush(const step_t *step) {
    tpc_deadline_t deadline = *step->deadline;
    uint64_t least_ns = tpc_clock_ns() + GRACE_NS;
    if (deadline.at_ns < least_ns) deadline.at_ns = least_ns;
    for (int32_t i = 1; i < step->team->n; i++) {
        while (!tpc_link_sent(&step->bootstrap->links, rank_of(step, i))) {
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
static void tell(const step_t *step, const votes_t *votes, tpc_frame_t *verdict, int fd) {
    tpc_links_t *links = &step->bootstrap->links;
    for (int32_t i = 1; i < step->team->n; i++) {
        int32_t rank = rank_of(step, i);
        int err;
        if (tpc_link_state(links, rank, &err) == TPC_LINK_NONE) continue;
        if (tpc_link_send(links, rank, verdict, fd) != 0 && fd >= 0) (void)tpc_link_send(links, rank, verdict, -1);
        if (!votes || !votes->vote[i].frame) tpc_link_owe(links, rank, step->team->channel);
    }
}

static tpcomm_status_t lead(const step_t *step, void *all) {
    votes_t votes;
    memset(&votes, 0, sizeof votes);
    tpcomm_status_t waited = votes_wait(step, &votes);
    tpcomm_status_t status = judge(step, &votes, waited);
    tpc_frame_t *verdict = verdict_frame(step, &votes, status);
    if (!verdict) {
        status = tpc_error(TPCOMM_ERR_PEER_FAILED, "rank 0 failed in '%s': no memory", step->step);
        verdict = verdict_frame(step, &votes, status);
    }
    if (verdict) {
        verdict->head.has_fd = status == TPCOMM_OK && step->fd >= 0;
        tell(step, &votes, verdict, status == TPCOMM_OK ? step->fd : -1);
    }
    char text[TPC_ERROR_BYTES];
    snprintf(text, sizeof text, "%s", tpcomm_last_error());
    tpcomm_status_t flushed = flush(step);
    if (status != TPCOMM_OK)
        (void)tpc_error(status, "%s", text);
    else
        status = flushed;
    if (status == TPCOMM_OK && step->gathers && step->bytes > 0)
        memcpy(all, tpc_frame_data(verdict), (size_t)verdict->head.data_bytes);
    tpc_frame_release(verdict);
    for (int32_t i = 1; i < step->team->n; i++) {
        mail_drop(&votes.vote[i]);
        mail_drop(&votes.withdraw[i]);
    }
    /* Whoever asked for the interruption gets that as his status, whatever the others get. */
    if (waited == TPCOMM_ERR_INTERRUPTED || step->mine == TPCOMM_ERR_INTERRUPTED) return TPCOMM_ERR_INTERRUPTED;
    return status;
}

tpcomm_status_t tpc_team_fail(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *name,
                              tpcomm_status_t status) {
    char text[TPC_ERROR_BYTES];
    snprintf(text, sizeof text, "%s", tpcomm_last_error());
    tpc_deadline_t now = tpc_deadline_in(0, NULL, NULL);
    step_t step = {.bootstrap = bootstrap, .team = team, .step = name, .deadline = &now, .mine = status, .fd = -1};
    tpc_frame_t *verdict = verdict_frame(&step, NULL, status_for_all(status));
    if (verdict) tell(&step, NULL, verdict, -1);
    tpc_frame_release(verdict);
    (void)flush(&step);
    return tpc_error(status == TPCOMM_ERR_INTERRUPTED ? status : status_for_all(status), "%s", text);
}

/* ------------------------------------------------------------------ members */

static tpcomm_status_t leader_late(const step_t *step, tpcomm_status_t waited) {
    if (waited != TPCOMM_ERR_TIMEOUT) return waited;
    char who[64];
    return tpc_error(TPCOMM_ERR_TIMEOUT,
                     "'%s' ended after %llu ms: %s, which leads, has not answered (missing ranks: 0)", step->step,
                     (unsigned long long)tpc_deadline_elapsed_ms(step->deadline),
                     tpc_team_who(step->bootstrap, step->team, 0, who));
}

/** Vote and wait for the verdict; OK: *mail_p is it, whatever it says. */
static tpcomm_status_t ask_leader(const step_t *step, tpc_mail_t *mail_p) {
    tpc_links_t *links = &step->bootstrap->links;
    uint64_t channel = step->team->channel;
    int32_t leader = rank_of(step, 0);
    bool brings = step->mine == TPCOMM_OK && step->gathers;
    tpc_frame_t *vote =
        tpc_frame_new(TPC_FRAME_VOTE, channel, step->step, step->mine, step->mine == TPCOMM_OK ? NULL : step->text,
                      brings ? step->data : NULL, brings ? step->bytes : 0);
    int err = vote ? tpc_link_send(links, leader, vote, -1) : ENOMEM;
    tpc_frame_release(vote);
    if (err != 0) return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, err, "cannot send to rank 0 in '%s'", step->step);

    tpc_deadline_t deadline = *step->deadline;
    if (deadline.at_ns < UINT64_MAX - GRACE_NS) deadline.at_ns += GRACE_NS;
    for (;;) {
        /* The state first: a verdict that came before the end counts. */
        tpc_link_pump(links);
        bool open = tpc_link_state(links, leader, &err) == TPC_LINK_OPEN;
        while (tpc_link_take(links, leader, channel, mail_p)) {
            if (mail_p->frame->head.kind == TPC_FRAME_VERDICT) return TPCOMM_OK;
            mail_drop(mail_p);
        }
        if (!open) return gone_error(step, 0);
        tpcomm_status_t status = tpc_link_wait(links, &deadline);
        if (status == TPCOMM_OK) continue;
        status = leader_late(step, status);
        tpc_frame_t *withdraw =
            tpc_frame_new(TPC_FRAME_WITHDRAW, channel, step->step, status, tpcomm_last_error(), NULL, 0);
        if (withdraw) (void)tpc_link_send(links, leader, withdraw, -1);
        tpc_frame_release(withdraw);
        tpc_link_owe(links, leader, channel);
        return status;
    }
}

/** OK: *mail_p is the verdict, which the caller drops. */
static tpcomm_status_t follow(const step_t *step, tpc_mail_t *mail_p) {
    tpc_mail_t mail;
    tpcomm_status_t status = ask_leader(step, &mail);
    if (status != TPCOMM_OK) return status;
    const tpc_frame_head_t *head = &mail.frame->head;
    if (head->status != TPCOMM_OK) {
        char text[TPC_ERROR_BYTES];
        tpc_frame_text(mail.frame, text);
        status = tpc_error(head->status < 0 ? head->status : TPCOMM_ERR_PEER_FAILED, "%s", text);
    } else if (step->gathers && head->data_bytes != (uint64_t)step->bytes * (uint64_t)step->team->n) {
        status = tpc_error(TPCOMM_ERR_MISMATCH, "in '%s': rank 0 sent %llu bytes, wanted are %zu for each of %d ranks",
                           step->step, (unsigned long long)head->data_bytes, step->bytes, step->team->n);
    }
    if (status != TPCOMM_OK) {
        mail_drop(&mail);
        if (step->mine == TPCOMM_ERR_INTERRUPTED) return tpc_error(step->mine, "%s", step->text);
        return status;
    }
    *mail_p = mail;
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ the three forms */

static void step_init(step_t *step, tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *name,
                      tpcomm_status_t mine_status, const tpc_deadline_t *deadline) {
    char point[16 + TPC_STEP_BYTES];
    memset(step, 0, sizeof *step);
    step->bootstrap = bootstrap;
    step->team = team;
    step->step = name;
    step->deadline = deadline;
    step->fd = -1;
    snprintf(point, sizeof point, "team/%s", name);
    step->mine = mine_status != TPCOMM_OK ? mine_status : tpc_hook(point, bootstrap->self.rank);
    if (step->mine != TPCOMM_OK) snprintf(step->text, sizeof step->text, "%s", tpcomm_last_error());
}

/** A failure that this function itself finds on this member. */
static void step_refuse(step_t *step, tpcomm_status_t status) {
    if (step->mine != TPCOMM_OK) return;
    step->mine = status;
    snprintf(step->text, sizeof step->text, "%s", tpcomm_last_error());
}

static tpcomm_status_t gather(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *name,
                              tpcomm_status_t mine_status, const void *mine, size_t bytes, void *all,
                              const tpc_deadline_t *deadline, bool urgent) {
    step_t step;
    step_init(&step, bootstrap, team, name, mine_status, deadline);
    step.gathers = true;
    step.urgent = urgent;
    step.data = mine;
    step.bytes = bytes;
    if (bytes > TPC_FRAME_MAX_BYTES / (size_t)team->n)
        step_refuse(&step, tpc_error(TPCOMM_ERR_INVALID_ARG, "%zu bytes of each of %d ranks are more than %zu", bytes,
                                     team->n, TPC_FRAME_MAX_BYTES));
    if (team->n == 1) {
        if (step.mine == TPCOMM_OK && bytes > 0) memcpy(all, mine, bytes);
        return step.mine;
    }
    if (team->me == 0) return lead(&step, all);
    tpc_mail_t mail;
    tpcomm_status_t status = follow(&step, &mail);
    if (status != TPCOMM_OK) return status;
    if (bytes > 0) memcpy(all, tpc_frame_data(mail.frame), (size_t)mail.frame->head.data_bytes);
    mail_drop(&mail);
    return TPCOMM_OK;
}

tpcomm_status_t tpc_team_gather(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *step,
                                tpcomm_status_t mine_status, const void *mine, size_t bytes, void *all,
                                const tpc_deadline_t *deadline) {
    return gather(bootstrap, team, step, mine_status, mine, bytes, all, deadline, false);
}

tpcomm_status_t tpc_team_gather_urgent(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *step,
                                       tpcomm_status_t mine_status, const void *mine, size_t bytes, void *all,
                                       const tpc_deadline_t *deadline) {
    return gather(bootstrap, team, step, mine_status, mine, bytes, all, deadline, true);
}

tpcomm_status_t tpc_team_broadcast(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *name,
                                   tpcomm_status_t mine_status, void **data_p, size_t *bytes_p,
                                   const tpc_deadline_t *deadline) {
    step_t step;
    step_init(&step, bootstrap, team, name, mine_status, deadline);
    if (team->me == 0 && *bytes_p > TPC_FRAME_MAX_BYTES)
        step_refuse(&step,
                    tpc_error(TPCOMM_ERR_INVALID_ARG, "%zu bytes are more than %zu", *bytes_p, TPC_FRAME_MAX_BYTES));
    if (team->n == 1) return step.mine;
    if (team->me == 0) {
        step.data = *data_p;
        step.bytes = *bytes_p;
        tpcomm_status_t status = lead(&step, NULL);
        /* Whether all could keep it. */
        return status == TPCOMM_OK ? tpc_team_gather(bootstrap, team, name, TPCOMM_OK, NULL, 0, NULL, deadline)
                                   : status;
    }
    tpc_mail_t mail;
    tpcomm_status_t status = follow(&step, &mail);
    if (status != TPCOMM_OK) return status;
    size_t bytes = (size_t)mail.frame->head.data_bytes;
    void *data = malloc(bytes > 0 ? bytes : 1);
    if (!data)
        status = tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
    else
        memcpy(data, tpc_frame_data(mail.frame), bytes);
    mail_drop(&mail);
    status = tpc_team_gather(bootstrap, team, name, status, NULL, 0, NULL, deadline);
    if (status != TPCOMM_OK) {
        free(data);
        return status;
    }
    *data_p = data;
    *bytes_p = bytes;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_team_broadcast_fd(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *name,
                                      tpcomm_status_t mine_status, int leader_fd, int *fd_p,
                                      const tpc_deadline_t *deadline) {
    step_t step;
    step_init(&step, bootstrap, team, name, mine_status, deadline);
    if (team->me == 0) {
        for (int32_t i = 1; i < team->n; i++) {
            const tpc_member_t *member = &bootstrap->member[team->ranks[i]];
            if (!member->same_host)
                step_refuse(&step, tpc_error(TPCOMM_ERR_NO_TRANSPORT,
                                             "rank %d is on another host (%s): descriptors cannot go there", i,
                                             member->host_id));
        }
        if (team->n == 1) return step.mine;
        step.fd = leader_fd;
        tpcomm_status_t status = lead(&step, NULL);
        return status == TPCOMM_OK ? tpc_team_gather(bootstrap, team, name, TPCOMM_OK, NULL, 0, NULL, deadline)
                                   : status;
    }
    tpc_mail_t mail;
    tpcomm_status_t status = follow(&step, &mail);
    if (status != TPCOMM_OK) return status;
    int fd = mail.fd;
    mail.fd = -1;
    mail_drop(&mail);
    if (fd < 0)
        status =
            tpc_error(TPCOMM_ERR_NO_MEMORY, "the descriptor of rank 0 did not arrive: this process has no room for it");
    status = tpc_team_gather(bootstrap, team, name, status, NULL, 0, NULL, deadline);
    if (status != TPCOMM_OK) {
        if (fd >= 0) close(fd);
        return status;
    }
    *fd_p = fd;
    return TPCOMM_OK;
}
