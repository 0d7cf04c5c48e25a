/* SPDX-License-Identifier: Apache-2.0 */
/** Notes: words to a member that nobody waits for, and how the member's end of a link is seen without a wait. */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "bootstrap/step.h"

tpcomm_status_t tpc_bootstrap_attention(tpc_bootstrap_t *bootstrap, int *fd_p) {
    if (bootstrap->attention_fd < 0) {
        bootstrap->attention_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (bootstrap->attention_fd < 0) return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, errno, "eventfd");
        tpc_link_want_attention(&bootstrap->links, bootstrap->attention_fd);
    }
    *fd_p = bootstrap->attention_fd;
    return TPCOMM_OK;
}

int tpc_bootstrap_socket(const tpc_bootstrap_t *bootstrap, int32_t rank) {
    return bootstrap->links.boxes->box[rank].fd;
}

void tpc_bootstrap_attend(tpc_bootstrap_t *bootstrap) {
    uint64_t count;
    if (bootstrap->attention_fd >= 0) {
        ssize_t got = read(bootstrap->attention_fd, &count, sizeof count); /* what it was told is looked at after */
        (void)got;
    }
    tpc_link_attend(&bootstrap->links);
}

bool tpc_bootstrap_next_note(tpc_bootstrap_t *bootstrap, int32_t rank, uint64_t *channel_p, void *note_p,
                             size_t bytes) {
    tpc_mail_t mail;
    while (tpc_link_note(&bootstrap->links, rank, &mail)) {
        bool fits = mail.frame->head.data_bytes == bytes;
        if (fits) {
            *channel_p = mail.frame->head.channel;
            memcpy(note_p, tpc_frame_data(mail.frame), bytes);
        }
        tpc_mail_drop(&mail);
        if (fits) return true;
    }
    return false;
}

void tpc_bootstrap_note(tpc_bootstrap_t *bootstrap, int32_t rank, uint64_t channel, const void *note, size_t bytes) {
    if (bootstrap->owner_pid != getpid()) return;
    tpc_frame_t *frame = tpc_frame_new(TPC_FRAME_NOTE, channel, "", TPCOMM_OK, NULL, note, bytes);
    /* One that is lost would be missed: that a rank has finalized, that a group is broken. */
    if (!frame || tpc_link_send(&bootstrap->links, rank, frame, 0, -1) != 0) tpc_link_fail(&bootstrap->links, rank);
    tpc_frame_release(frame);
}

tpc_peer_end_t tpc_bootstrap_peer(tpc_bootstrap_t *bootstrap, int32_t rank) {
    int err;
    tpc_link_state_t state = tpc_link_state(&bootstrap->links, rank, &err);
    bool noted = tpc_link_noted(&bootstrap->links, rank);
    if (rank == bootstrap->self.rank || state == TPC_LINK_OPEN || state == TPC_LINK_NONE || noted) return TPC_PEER_HERE;
    if (state == TPC_LINK_BROKEN && (err == EBADMSG || err == EKEYREJECTED)) return TPC_PEER_FORGED;
    if (state == TPC_LINK_BROKEN && err == ENOMEM) return TPC_PEER_NO_ROOM;
    if (state == TPC_LINK_LEFT) return err == 0 ? TPC_PEER_LEFT : TPC_PEER_FAILED;
    return TPC_PEER_ENDED;
}
