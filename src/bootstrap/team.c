/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Votes over a star: each member sends the leader one VOTE, the leader sends each member one VERDICT, and what the
 * verdict says is the result on all. So nobody can wait in a circle, and nobody leaves with an opinion of his own.
 *
 * A vote has a number, and its verdict names it: what comes too late, for a vote that its sender has given up, is known
 * by that and dropped, and a vote that was withdrawn is none. So a channel stays usable after a timeout. The leader
 * tells a failure also to members that have not voted yet (number 0). In a team that comes again (tpc_team_t) such a
 * member cannot know whether its call is the one that failed or the one after: it votes and says what it holds, and the
 * leader, if it is at that step again, says so (PRESENT).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hook.h"
#include "bootstrap/step.h"

/* A member that has told the leader that it waits no more waits this long for the answer. */
#define LAST_WORD_MS 500
/* A member that holds the verdict of a step it missed waits this long for the leader to come to that step again. */
#define DOUBT_MS 1000

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

int32_t tpc_step_rank(const tpc_step_t *step, int32_t index) {
    return step->team->ranks[index];
}

tpcomm_status_t tpc_status_for_all(tpcomm_status_t status) {
    bool same_cause_anywhere = status == TPCOMM_ERR_INVALID_ARG || status == TPCOMM_ERR_UNSUPPORTED ||
                               status == TPCOMM_ERR_VERSION || status == TPCOMM_ERR_CONFIG ||
                               status == TPCOMM_ERR_PARSE;
    bool of_the_group = status <= TPCOMM_ERR_ABORTED && status > TPCOMM_ERR_DEVICE;
    return same_cause_anywhere || of_the_group ? status : TPCOMM_ERR_PEER_FAILED;
}

tpcomm_status_t tpc_step_gone(const tpc_step_t *step, int32_t index) {
    int err;
    char who[64];
    tpc_link_state_t state = tpc_link_state(&step->bootstrap->links, tpc_step_rank(step, index), &err);
    (void)tpc_team_who(step->bootstrap, step->team, index, who);
    if (state == TPC_LINK_LEFT && err != 0)
        return tpc_error_errno(TPCOMM_ERR_PEER_FAILED, err, "in '%s': %s cannot go on with its connection to here",
                               step->step, who);
    if (state == TPC_LINK_BROKEN && err == ENOMEM) {
        char me[64];
        return tpc_error(TPCOMM_ERR_PEER_FAILED, "in '%s': %s has no memory for its connection to %s", step->step,
                         tpc_team_who(step->bootstrap, step->team, step->team->me, me), who);
    }
    if (state == TPC_LINK_LEFT)
        return tpc_error(TPCOMM_ERR_ABORTED, "in '%s': %s has left: its communicator was destroyed or its init failed",
                         step->step, who);
    if (state == TPC_LINK_ENDED) return tpc_error(TPCOMM_ERR_PEER_DIED, "in '%s': %s ended", step->step, who);
    if (err == EBADMSG)
        return tpc_error(
            TPCOMM_ERR_AUTH,
            "in '%s': what comes from %s is not its own: a message was changed, repeated, left out or moved "
            "on the way",
            step->step, who);
    if (err == EKEYREJECTED)
        return tpc_error(
            TPCOMM_ERR_AUTH,
            "in '%s': %s says that what comes to it from here is not ours: a message was changed, repeated, "
            "left out or moved on the way",
            step->step, who);
    if (err == ETIMEDOUT || err == EHOSTUNREACH)
        return tpc_error_errno(TPCOMM_ERR_PEER_DIED, err, "in '%s': %s cannot be reached any more", step->step, who);
    return tpc_error_errno(TPCOMM_ERR_PEER_FAILED, err, "in '%s': the connection to %s failed", step->step, who);
}

void tpc_mail_drop(tpc_mail_t *mail) {
    if (mail->frame && mail->fd >= 0) close(mail->fd);
    tpc_frame_release(mail->frame);
    mail->frame = NULL;
}

/* ------------------------------------------------------------------ members */

static tpcomm_status_t leader_late(const tpc_step_t *step, tpcomm_status_t waited) {
    if (waited != TPCOMM_ERR_TIMEOUT) return waited;
    char who[64];
    return tpc_error(TPCOMM_ERR_TIMEOUT,
                     "'%s' ended after %llu ms: %s, which leads, has not answered (missing ranks: 0)", step->step,
                     (unsigned long long)tpc_deadline_elapsed_ms(step->deadline),
                     tpc_team_who(step->bootstrap, step->team, 0, who));
}

tpcomm_status_t tpc_step_wait(const tpc_step_t *step, const tpc_deadline_t *deadline) {
    const tpc_team_t *team = step->team;
    tpcomm_status_t status = team->check ? team->check(team->check_arg) : TPCOMM_OK;
    return status != TPCOMM_OK ? status : tpc_link_wait(&step->bootstrap->links, deadline);
}

static int send_to_leader(const tpc_step_t *step, uint16_t kind, uint16_t flags, uint64_t token, tpcomm_status_t status,
                          const char *text, const void *data, size_t bytes) {
    tpc_frame_t *frame = tpc_frame_new(kind, step->team->channel, step->step, status, text, data, bytes);
    tpc_told_t told;
    (void)tpc_link_told(&step->bootstrap->links, tpc_step_rank(step, 0), step->team->channel, 0, 0, &told);
    if (frame) {
        frame->head.flags = flags;
        frame->head.told = told.seen;
    }
    int err = frame ? tpc_link_send(&step->bootstrap->links, tpc_step_rank(step, 0), frame, token, -1) : ENOMEM;
    tpc_frame_release(frame);
    return err;
}

/** A member's vote, and what it knows of the leader's answer. */
typedef struct {
    uint64_t token;  /**< of the vote that counts; 0: none */
    tpc_mail_t past; /**< a verdict of this step that answers no vote; frame NULL: none */
    tpc_deadline_t doubt;
    bool doubtful; /**< past may be this step's or an earlier one's */
} vote_t;

static tpcomm_status_t vote_send(const tpc_step_t *step, vote_t *vote) {
    size_t bytes = step->mine == TPCOMM_OK ? tpc_step_brings(step, step->team->me) : 0;
    vote->token = atomic_fetch_add(&step->bootstrap->votes, 1) + 1;
    int err = send_to_leader(step, TPC_FRAME_VOTE, vote->doubtful ? TPC_FLAG_PAST : 0, vote->token, step->mine,
                             step->mine == TPCOMM_OK ? NULL : step->text, bytes > 0 ? step->data : NULL, bytes);
    if (err == 0) return TPCOMM_OK;
    tpc_link_fail(&step->bootstrap->links, tpc_step_rank(step, 0));
    return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, err, "cannot send to rank 0 in '%s'", step->step);
}

/** status: why, for the leader; OK: the vote is settled, and is to be forgotten. */
static void vote_withdraw(const tpc_step_t *step, vote_t *vote, tpcomm_status_t status) {
    if (vote->token == 0) return;
    (void)send_to_leader(step, TPC_FRAME_WITHDRAW, 0, vote->token, status,
                         status == TPCOMM_OK ? NULL : tpcomm_last_error(), NULL, 0);
    vote->token = 0;
}

/** A verdict that answers no vote: the leader has ended a step without me. True: it is mine, too. */
static bool is_told(const tpc_step_t *step, vote_t *vote, tpc_mail_t *mail) {
    tpc_told_t told;
    (void)tpc_link_told(&step->bootstrap->links, tpc_step_rank(step, 0), step->team->channel, 0, 1, &told);
    if (!step->team->again) return true;
    if (strncmp(mail->frame->head.step, step->step, sizeof mail->frame->head.step - 1) != 0) {
        tpc_mail_drop(mail);
        return false;
    }
    tpc_mail_drop(&vote->past);
    vote->past = *mail;
    vote->doubtful = true;
    vote->doubt = tpc_deadline_in(tpc_hook_value("doubt_ms", DOUBT_MS), NULL, NULL);
    if (vote->token == 0) return false; /* it is still to be sent */
    vote_withdraw(step, vote, TPCOMM_OK);
    (void)vote_send(step, vote);
    return false;
}

/** Look at what has come from the leader. True: *mail_p is the verdict. */
static bool take_verdict(const tpc_step_t *step, vote_t *vote, tpc_mail_t *mail_p) {
    tpc_mail_t mail;
    while (tpc_link_take(&step->bootstrap->links, tpc_step_rank(step, 0), step->team->channel, &mail)) {
        uint16_t kind = mail.frame->head.kind;
        bool mine = mail.token == vote->token && mail.token != 0;
        if (kind == TPC_FRAME_VERDICT && (mine || (mail.token == 0 && is_told(step, vote, &mail)))) {
            if (!mine) vote_withdraw(step, vote, TPCOMM_OK);
            *mail_p = mail;
            return true;
        }
        if (kind == TPC_FRAME_VERDICT && mail.token == 0) continue; /* is_told has it */
        if (kind == TPC_FRAME_PRESENT && mine) {
            vote->doubtful = false;
            if (mail.frame->head.status != TPCOMM_OK && vote->past.frame) { /* the leader is beyond this step */
                tpc_mail_drop(&mail);
                *mail_p = vote->past;
                vote->past.frame = NULL;
                return true;
            }
        }
        tpc_mail_drop(&mail);
    }
    return false;
}

/** Wait for the verdict. OK: *mail_p is it, whatever it says; TIMEOUT without a text. */
static tpcomm_status_t await_verdict(const tpc_step_t *step, vote_t *vote, const tpc_deadline_t *deadline,
                                     tpc_mail_t *mail_p) {
    tpc_links_t *links = &step->bootstrap->links;
    for (;;) {
        /* The state first: a verdict that came before the end counts. */
        int err;
        tpc_link_pump(links);
        bool open = tpc_link_state(links, tpc_step_rank(step, 0), &err) == TPC_LINK_OPEN;
        if (take_verdict(step, vote, mail_p)) return TPCOMM_OK;
        if (!open) return tpc_step_gone(step, 0);
        if (vote->doubtful && tpc_deadline_left_ms(&vote->doubt) == 0) {
            vote_withdraw(step, vote, TPCOMM_OK);
            *mail_p = vote->past;
            vote->past.frame = NULL;
            return TPCOMM_OK;
        }
        tpcomm_status_t status = tpc_step_wait(step, deadline);
        if (status == TPCOMM_OK) continue;
        /* What has come has come, whatever ended the wait after it. */
        tpc_link_pump(links);
        return take_verdict(step, vote, mail_p) ? TPCOMM_OK : status;
    }
}

/** Vote and wait for the verdict. OK: *mail_p is it, whatever it says. */
static tpcomm_status_t ask_leader(const tpc_step_t *step, vote_t *vote, tpc_mail_t *mail_p) {
    tpc_link_pump(&step->bootstrap->links);
    if (take_verdict(step, vote, mail_p)) return TPCOMM_OK; /* it has ended without me */
    tpcomm_status_t status = vote_send(step, vote);
    if (status != TPCOMM_OK) return status;

    tpc_deadline_t deadline = *step->deadline;
    if (deadline.at_ns < UINT64_MAX - TPC_GRACE_NS) deadline.at_ns += TPC_GRACE_NS;
    status = await_verdict(step, vote, &deadline, mail_p);
    if (status == TPCOMM_OK) return TPCOMM_OK;

    status = leader_late(step, status);
    uint64_t token = vote->token;
    vote_withdraw(step, vote, status);
    if (status != TPCOMM_ERR_TIMEOUT) return status;
    /* A leader that waits for others still (its deadline began later) now ends the step, and knows who is missing. */
    tpc_deadline_t last_word = tpc_deadline_in(tpc_hook_value("last_word_ms", LAST_WORD_MS), NULL, NULL);
    vote->token = token;
    vote->doubtful = false;
    tpc_step_t last = *step;
    tpc_team_t unchecked = *step->team;
    unchecked.check = NULL;
    unchecked.again = false; /* whatever is said of this step now is the end of it */
    last.team = &unchecked;
    if (await_verdict(&last, vote, &last_word, mail_p) == TPCOMM_OK) return TPCOMM_OK;
    return leader_late(step, status);
}

/** OK: *mail_p is the verdict, which the caller drops. */
static tpcomm_status_t follow(const tpc_step_t *step, tpc_mail_t *mail_p) {
    tpc_mail_t mail;
    vote_t vote = {.token = 0};
    tpcomm_status_t status = ask_leader(step, &vote, &mail);
    tpc_mail_drop(&vote.past);
    if (status != TPCOMM_OK) return status;
    const tpc_frame_head_t *head = &mail.frame->head;
    if (head->status != TPCOMM_OK) {
        char text[TPC_ERROR_BYTES];
        tpc_frame_text(mail.frame, text);
        status = tpc_error(head->status < 0 ? head->status : TPCOMM_ERR_PEER_FAILED, "%s", text);
    } else if (step->gathers && head->data_bytes != tpc_step_gets(step)) {
        status = tpc_error(TPCOMM_ERR_MISMATCH, "in '%s': rank 0 sent %llu bytes, wanted are %zu", step->step,
                           (unsigned long long)head->data_bytes, tpc_step_gets(step));
    }
    if (status != TPCOMM_OK) {
        tpc_mail_drop(&mail);
        if (step->mine == TPCOMM_ERR_INTERRUPTED) return tpc_error(step->mine, "%s", step->text);
        return status;
    }
    *mail_p = mail;
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ the three forms */

static void step_init(tpc_step_t *step, tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *name,
                      tpcomm_status_t mine_status, const tpc_deadline_t *deadline) {
    char point[16 + TPC_STEP_BYTES];
    tpc_turns_begin();
    memset(step, 0, sizeof *step);
    step->bootstrap = bootstrap;
    step->team = team;
    step->step = name;
    step->deadline = deadline;
    step->root = -1;
    step->fd = -1;
    snprintf(point, sizeof point, "team/%s", name);
    step->mine = mine_status != TPCOMM_OK ? mine_status : tpc_hook(point, bootstrap->self.rank);
    if (step->mine != TPCOMM_OK) snprintf(step->text, sizeof step->text, "%s", tpcomm_last_error());
}

/** A failure that this function itself finds on this member. */
static void step_refuse(tpc_step_t *step, tpcomm_status_t status) {
    if (step->mine != TPCOMM_OK) return;
    step->mine = status;
    snprintf(step->text, sizeof step->text, "%s", tpcomm_last_error());
}

/** A step that gathers, all set but for its length. */
static tpcomm_status_t gather(tpc_step_t *step, const void *mine, size_t bytes, void *all) {
    const tpc_team_t *team = step->team;
    step->gathers = true;
    step->data = mine;
    step->bytes = bytes;
    if (tpc_step_gets(step) > TPC_FRAME_MAX_BYTES || bytes > TPC_FRAME_MAX_BYTES)
        step_refuse(step, tpc_error(TPCOMM_ERR_INVALID_ARG, "%zu bytes of each of %d ranks are more than %zu", bytes,
                                    team->n, TPC_FRAME_MAX_BYTES));
    if (team->n == 1) {
        if (step->mine == TPCOMM_OK && bytes > 0) memcpy(all, mine, bytes);
        return step->mine;
    }
    if (team->me == 0) return tpc_step_lead(step, all);
    tpc_mail_t mail;
    tpcomm_status_t status = follow(step, &mail);
    if (status != TPCOMM_OK) return status;
    if (bytes > 0) memcpy(all, tpc_frame_data(mail.frame), (size_t)mail.frame->head.data_bytes);
    tpc_mail_drop(&mail);
    return TPCOMM_OK;
}

tpcomm_status_t tpc_team_gather(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *step,
                                tpcomm_status_t mine_status, const void *mine, size_t bytes, void *all,
                                const tpc_deadline_t *deadline) {
    tpc_step_t whole;
    step_init(&whole, bootstrap, team, step, mine_status, deadline);
    return gather(&whole, mine, bytes, all);
}

tpcomm_status_t tpc_team_pass(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *step, int32_t root,
                              const void *mine, size_t bytes, void *all, const tpc_deadline_t *deadline) {
    tpc_step_t whole;
    step_init(&whole, bootstrap, team, step, TPCOMM_OK, deadline);
    whole.root = root;
    return gather(&whole, mine, bytes, all);
}

tpcomm_status_t tpc_team_gather_urgent(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *step,
                                       tpcomm_status_t mine_status, const void *mine, size_t bytes, void *all,
                                       const tpc_deadline_t *deadline) {
    tpc_step_t whole;
    step_init(&whole, bootstrap, team, step, mine_status, deadline);
    whole.urgent = true;
    return gather(&whole, mine, bytes, all);
}

tpcomm_status_t tpc_team_broadcast(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *name,
                                   tpcomm_status_t mine_status, void **data_p, size_t *bytes_p,
                                   const tpc_deadline_t *deadline) {
    tpc_step_t step;
    step_init(&step, bootstrap, team, name, mine_status, deadline);
    if (team->me == 0 && *bytes_p > TPC_FRAME_MAX_BYTES)
        step_refuse(&step,
                    tpc_error(TPCOMM_ERR_INVALID_ARG, "%zu bytes are more than %zu", *bytes_p, TPC_FRAME_MAX_BYTES));
    if (team->n == 1) return step.mine;
    if (team->me == 0) {
        step.data = *data_p;
        step.bytes = *bytes_p;
        tpcomm_status_t status = tpc_step_lead(&step, NULL);
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
    tpc_mail_drop(&mail);
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
    tpc_step_t step;
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
        tpcomm_status_t status = tpc_step_lead(&step, NULL);
        return status == TPCOMM_OK ? tpc_team_gather(bootstrap, team, name, TPCOMM_OK, NULL, 0, NULL, deadline)
                                   : status;
    }
    tpc_mail_t mail;
    tpcomm_status_t status = follow(&step, &mail);
    if (status != TPCOMM_OK) return status;
    int fd = mail.fd;
    mail.fd = -1;
    tpc_mail_drop(&mail);
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

/* ------------------------------------------------------------------ votes for a leader who is elsewhere */

bool tpc_team_elsewhere(tpc_bootstrap_t *bootstrap, int32_t rank, uint64_t but_channel, const char *step, void *blob_p,
                        size_t bytes, uint64_t *channel_p) {
    tpc_frame_t *vote = tpc_link_elsewhere(&bootstrap->links, rank, but_channel, step);
    bool fits = vote && vote->head.data_bytes == bytes;
    if (fits) {
        memcpy(blob_p, tpc_frame_data(vote), bytes);
        *channel_p = vote->head.channel;
    }
    tpc_frame_release(vote);
    return fits;
}

void tpc_team_refuse(tpc_bootstrap_t *bootstrap, uint64_t channel, tpcomm_status_t status) {
    tpc_mail_t mail;
    for (int32_t rank = 0; rank < bootstrap->self.size; rank++) {
        while (tpc_link_take(&bootstrap->links, rank, channel, &mail)) {
            tpc_frame_t *verdict = mail.frame->head.kind == TPC_FRAME_VOTE
                                       ? tpc_frame_new(TPC_FRAME_VERDICT, channel, mail.frame->head.step, status,
                                                       tpcomm_last_error(), NULL, 0)
                                       : NULL;
            if (verdict) (void)tpc_link_send(&bootstrap->links, rank, verdict, mail.token, -1);
            tpc_frame_release(verdict);
            tpc_mail_drop(&mail);
        }
    }
}
