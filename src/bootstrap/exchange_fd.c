/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Every member's descriptor to every other process of the team. A vote before (who has none to give ends it for all),
 * then each sends its descriptor straight to each, then a vote on what came. The descriptors travel on a channel of
 * their own, so that a vote's frames and theirs cannot be taken for each other.
 */
#include <unistd.h>

#include "bootstrap/step.h"

#define DESCRIPTOR_CHANNEL (UINT64_C(1) << 63)

static bool goes_to(const tpc_bootstrap_t *bootstrap, const tpc_team_t *team, int32_t i) {
    return i != team->me && !bootstrap->member[team->ranks[i]].same_process;
}

static tpcomm_status_t send_all(const tpc_step_t *step) {
    const tpc_team_t *team = step->team;
    tpc_frame_t *frame =
        tpc_frame_new(TPC_FRAME_DESCRIPTOR, team->channel ^ DESCRIPTOR_CHANNEL, step->step, TPCOMM_OK, NULL, NULL, 0);
    if (frame == NULL) return tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory");
    int failed = 0;
    for (int32_t i = 0; i < team->n; i++) {
        if (!goes_to(step->bootstrap, team, i)) continue;
        int err = tpc_link_send(&step->bootstrap->links, team->ranks[i], frame, 0, step->fd);
        if (err == 0) continue;
        failed = err;
        if (tpc_link_send(&step->bootstrap->links, team->ranks[i], frame, 0, -1) != 0) /* nobody is to wait for it */
            tpc_link_fail(&step->bootstrap->links, team->ranks[i]);
    }
    tpc_frame_release(frame);
    return failed == 0 ? TPCOMM_OK
                       : tpc_error_errno(TPCOMM_ERR_NO_MEMORY, failed, "cannot send a descriptor to the peers");
}

/* One member's descriptor; TIMEOUT has a text here. */
static tpcomm_status_t receive(const tpc_step_t *step, int32_t i, int *fd_p) {
    tpc_links_t *links = &step->bootstrap->links;
    int32_t rank = tpc_step_rank(step, i);
    tpc_mail_t mail;
    tpc_turns_begin();
    for (;;) {
        int err;
        tpc_link_pump(links);
        bool open = tpc_link_state(links, rank, &err) == TPC_LINK_OPEN;
        if (tpc_link_take(links, rank, step->team->channel ^ DESCRIPTOR_CHANNEL, &mail)) break;
        if (!open) return tpc_step_gone(step, i);
        tpcomm_status_t status = tpc_link_wait(links, step->deadline);
        if (status == TPCOMM_ERR_TIMEOUT)
            return tpc_error(status, "'%s' ended after %llu ms: the descriptor of rank %d has not come", step->step,
                             (unsigned long long)tpc_deadline_elapsed_ms(step->deadline), i);
        if (status != TPCOMM_OK) return status;
    }
    int fd = mail.fd;
    mail.fd = -1;
    tpc_mail_drop(&mail);
    if (fd < 0)
        return tpc_error(TPCOMM_ERR_NO_MEMORY,
                         "the descriptor of rank %d did not arrive: this process has no room for it", i);
    *fd_p = fd;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_team_exchange_fd(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, const char *name,
                                     tpcomm_status_t mine_status, int mine_fd, int *fds_p,
                                     const tpc_deadline_t *deadline) {
    tpc_step_t step = {.bootstrap = bootstrap,
                       .team = team,
                       .step = name,
                       .deadline = deadline,
                       .gathers = true,
                       .root = -1,
                       .fd = mine_fd};
    int fds[TPCOMM_MAX_RANKS];
    for (int32_t i = 0; i < team->n; i++) fds[i] = -1;
    for (int32_t i = 0; i < team->n && mine_status == TPCOMM_OK; i++)
        if (!bootstrap->member[team->ranks[i]].same_host)
            mine_status =
                tpc_error(TPCOMM_ERR_NO_TRANSPORT, "rank %d is on another host (%s): descriptors cannot go there", i,
                          bootstrap->member[team->ranks[i]].host_id);
    tpcomm_status_t status = tpc_team_gather(bootstrap, team, name, mine_status, NULL, 0, NULL, deadline);
    if (status != TPCOMM_OK) return status;
    status = send_all(&step);
    for (int32_t i = 0; i < team->n; i++) { /* all, whatever failed: a descriptor that is not taken stays open */
        if (!goes_to(bootstrap, team, i)) continue;
        tpcomm_status_t received = receive(&step, i, &fds[i]);
        if (status == TPCOMM_OK) status = received;
    }
    status = tpc_team_gather(bootstrap, team, name, status, NULL, 0, NULL, deadline);
    for (int32_t i = 0; i < team->n; i++) {
        if (status == TPCOMM_OK)
            fds_p[i] = fds[i];
        else if (fds[i] >= 0)
            close(fds[i]);
    }
    return status;
}
