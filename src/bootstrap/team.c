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
#include "bootstrap/step.h"

/* A member that has told the leader that it waits no more waits this long for the answer. */
#define LAST_WORD_MS 500

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
    if (state == TPC_LINK_LEFT)
        return tpc_error(TPCOMM_ERR_ABORTED, "in '%s': %s has left: its communicator was destroyed or its init failed",
                         step->step, who);
    if (state == TPC_LINK_ENDED) return tpc_error(TPCOMM_ERR_PEER_DIED, "in '%s': %s ended", step->step, who);
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

/** Wait for the verdict. OK: *mail_p is it, whatever it says; TIMEOUT without a text. */
static tpcomm_status_t await_verdict(const tpc_step_t *step, const tpc_deadline_t *deadline, tpc_mail_t *mail_p) {
    tpc_links_t *links = &step->bootstrap->links;
    int32_t leader = tpc_step_rank(step, 0);
    for (;;) {
        /* The state first: a verdict that came before the end counts. */
        int err;
        tpc_link_pump(links);
        bool open = tpc_link_state(links, leader, &err) == TPC_LINK_OPEN;
        while (tpc_link_take(links, leader, step->team->channel, mail_p)) {
            if (mail_p->frame->head.kind == TPC_FRAME_VERDICT) return TPCOMM_OK;
            tpc_mail_drop(mail_p);
        }
        if (!open) return tpc_step_gone(step, 0);
        tpcomm_status_t status = tpc_link_wait(links, deadline);
        if (status != TPCOMM_OK) return status;
    }
}

static int send_to_leader(const tpc_step_t *step, uint16_t kind, tpcomm_status_t status, const char *text,
                          const void *data, size_t bytes) {
    tpc_frame_t *frame = tpc_frame_new(kind, step->team->channel, step->step, status, text, data, bytes);
    int err = frame ? tpc_link_send(&step->bootstrap->links, tpc_step_rank(step, 0), frame, -1) : ENOMEM;
    tpc_frame_release(frame);
    return err;
}

/** Vote and wait for the verdict. OK: *mail_p is it, whatever it says. */
static tpcomm_status_t ask_leader(const tpc_step_t *step, tpc_mail_t *mail_p) {
    bool brings = step->mine == TPCOMM_OK && step->gathers;
    int err = send_to_leader(step, TPC_FRAME_VOTE, step->mine, step->mine == TPCOMM_OK ? NULL : step->text,
                             brings ? step->data : NULL, brings ? step->bytes : 0);
    if (err != 0) return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, err, "cannot send to rank 0 in '%s'", step->step);

    tpc_deadline_t deadline = *step->deadline;
    if (deadline.at_ns < UINT64_MAX - TPC_GRACE_NS) deadline.at_ns += TPC_GRACE_NS;
    tpcomm_status_t status = await_verdict(step, &deadline, mail_p);
    if (status != TPCOMM_ERR_TIMEOUT && status != TPCOMM_ERR_INTERRUPTED) return status;

    status = leader_late(step, status);
    (void)send_to_leader(step, TPC_FRAME_WITHDRAW, status, tpcomm_last_error(), NULL, 0);
    /* A leader that waits for others still (its deadline began later) now ends the step, and knows who is missing. */
    tpc_deadline_t last_word = tpc_deadline_in(LAST_WORD_MS, NULL, NULL);
    if (status == TPCOMM_ERR_TIMEOUT && await_verdict(step, &last_word, mail_p) == TPCOMM_OK) return TPCOMM_OK;
    tpc_link_owe(&step->bootstrap->links, tpc_step_rank(step, 0), step->team->channel);
    return status == TPCOMM_ERR_TIMEOUT ? leader_late(step, status) : status;
}

/** OK: *mail_p is the verdict, which the caller drops. */
static tpcomm_status_t follow(const tpc_step_t *step, tpc_mail_t *mail_p) {
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
static void step_refuse(tpc_step_t *step, tpcomm_status_t status) {
    if (step->mine != TPCOMM_OK) return;
    step->mine = status;
    snprintf(step->text, sizeof step->text, "%s", tpcomm_last_error());
}

static tpcomm_status_t gather(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *name,
                              tpcomm_status_t mine_status, const void *mine, size_t bytes, void *all,
                              const tpc_deadline_t *deadline, bool urgent) {
    tpc_step_t step;
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
    if (team->me == 0) return tpc_step_lead(&step, all);
    tpc_mail_t mail;
    tpcomm_status_t status = follow(&step, &mail);
    if (status != TPCOMM_OK) return status;
    if (bytes > 0) memcpy(all, tpc_frame_data(mail.frame), (size_t)mail.frame->head.data_bytes);
    tpc_mail_drop(&mail);
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
