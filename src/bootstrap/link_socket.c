/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hook.h"
#include "bootstrap/net.h"

/* No more than this is read from one rank before somebody takes some of it. */
#define IN_BYTES_MAX (64u << 20)

void tpc_socket_goodbye(int fd, const tpc_seal_t *seal, tpcomm_status_t status) {
    tpc_frame_head_t head = {.magic = TPC_FRAME_MAGIC, .kind = TPC_FRAME_BYE, .status = status};
    tpc_frame_seals_t seals;
    if (seal->set) tpc_seal_frame(seal, &head, NULL, &seals);
    struct iovec pieces[2] = {{&head, sizeof head}, {seals.head, TPC_SEAL_BYTES}};
    (void)tpc_net_send(fd, pieces, seal->set ? 2 : 1, -1);
}

/** Where half a frame has been sent, the end of the connection has to tell. */
static void box_goodbye(const tpc_box_t *box, tpcomm_status_t status) {
    if (box->out_offset == 0) tpc_socket_goodbye(box->fd, &box->seal, status);
}

/** This side cannot go on. The other must not wait for it. */
static void box_break(tpc_boxes_t *boxes, tpc_box_t *box, int err) {
    tpc_box_end(boxes, box, TPC_LINK_BROKEN, err);
    box_goodbye(box, err == ENOMEM || err == ENOBUFS ? TPCOMM_ERR_NO_MEMORY : TPCOMM_ERR_IO);
    (void)shutdown(box->fd, SHUT_WR);
}

/** Whether a head that came makes sense: everything in it is the other side's word. */
static bool head_is_sane(const tpc_frame_head_t *head) {
    return head->magic == TPC_FRAME_MAGIC && head->kind >= TPC_FRAME_VOTE && head->kind <= TPC_FRAME_REFUSED &&
           (head->kind != TPC_FRAME_NOTE || head->data_bytes <= TPC_NOTE_BYTES) && head->text_bytes < TPC_ERROR_BYTES &&
           head->data_bytes <= TPC_FRAME_MAX_BYTES && memchr(head->step, '\0', sizeof head->step) != NULL;
}

static void box_write(tpc_boxes_t *boxes, tpc_box_t *box);

/** A frame that is not the other side's, or not whole, or not in its place: nothing that comes is believed any more.
 * The other side is told, if it can be. */
static void box_refuse(tpc_boxes_t *boxes, tpc_box_t *box) {
    tpc_mail_t *mail = malloc(sizeof *mail);
    if (mail)
        *mail = (tpc_mail_t){.fd = -1, .frame = tpc_frame_new(TPC_FRAME_REFUSED, 0, "", TPCOMM_OK, NULL, NULL, 0)};
    if (mail && mail->frame) {
        tpc_mail_append(&box->out_first, &box->out_last, mail);
        box_write(boxes, box);
    } else {
        free(mail);
    }
    if (box->state == TPC_LINK_OPEN) tpc_box_end(boxes, box, TPC_LINK_BROKEN, EBADMSG);
    (void)shutdown(box->fd, SHUT_WR);
}

/** The head is complete, and its seal right: make room for the frame. */
static bool frame_begin(tpc_boxes_t *boxes, tpc_box_t *box) {
    if (!head_is_sane(&box->head)) {
        box_break(boxes, box, EPROTO);
        return false;
    }
    bool fails = tpc_hook("link_receive", 0) != TPCOMM_OK;
    box->frame = fails ? NULL : malloc(sizeof *box->frame + tpc_frame_body_bytes(&box->head));
    if (!box->frame) {
        box_break(boxes, box, ENOMEM);
        return false;
    }
    atomic_init(&box->frame->references, 1);
    box->frame->head = box->head;
    return true;
}

static void frame_end(tpc_boxes_t *boxes, tpc_box_t *box) {
    tpc_mail_t *mail = malloc(sizeof *mail);
    if (!mail) {
        box_break(boxes, box, ENOMEM);
        return;
    }
    *mail = (tpc_mail_t){.frame = box->frame, .token = box->head.token, .fd = box->frame_fd};
    box->frame = NULL;
    box->frame_fd = -1;
    box->part = TPC_PART_HEAD;
    box->seal.received++;
    tpc_box_deliver(boxes, box, mail);
}

/** Where the part that is being received goes, and how long it is. */
static char *part_place(tpc_box_t *box, size_t *bytes_p) {
    *bytes_p = TPC_SEAL_BYTES;
    if (box->part == TPC_PART_HEAD_SEAL) return (char *)box->in_seals.head;
    if (box->part == TPC_PART_BODY_SEAL) return (char *)box->in_seals.body;
    *bytes_p = box->part == TPC_PART_HEAD ? sizeof box->head : tpc_frame_body_bytes(&box->head);
    return box->part == TPC_PART_HEAD ? (char *)&box->head : (char *)box->frame->body;
}

static bool seal_is_right(const tpc_box_t *box) {
    if (box->part == TPC_PART_HEAD_SEAL) return tpc_seal_head_is_right(&box->seal, &box->head, &box->in_seals);
    return tpc_seal_body_is_right(&box->seal, &box->head, box->frame->body, &box->in_seals);
}

/** A part is complete: what comes next. */
static void part_end(tpc_boxes_t *boxes, tpc_box_t *box) {
    tpc_part_t part = box->part;
    bool is_seal = part == TPC_PART_HEAD_SEAL || part == TPC_PART_BODY_SEAL;
    box->part_have = 0;
    if (is_seal && !seal_is_right(box)) {
        box_refuse(boxes, box);
        return;
    }
    if (!is_seal && box->seal.set) {
        box->part = part == TPC_PART_HEAD ? TPC_PART_HEAD_SEAL : TPC_PART_BODY_SEAL;
        return;
    }
    bool head = part == TPC_PART_HEAD || part == TPC_PART_HEAD_SEAL;
    if (head && !frame_begin(boxes, box)) return;
    if (head && tpc_frame_body_bytes(&box->head) > 0)
        box->part = TPC_PART_BODY;
    else
        frame_end(boxes, box);
}

/** One read. True: there may be more. */
static bool box_read(tpc_boxes_t *boxes, tpc_box_t *box) {
    size_t want;
    char *into = part_place(box, &want);
    ssize_t got = tpc_net_recv(box->fd, into + box->part_have, want - box->part_have, &box->frame_fd);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got == 0 || (got < 0 && (errno == ECONNRESET || errno == EPIPE))) {
        tpc_box_end(boxes, box, TPC_LINK_ENDED, 0);
        return false;
    }
    if (got < 0) {
        box_break(boxes, box, errno);
        return false;
    }
    box->part_have += (size_t)got;
    if (box->part_have == want) part_end(boxes, box);
    return box->state == TPC_LINK_OPEN && box->in_bytes < IN_BYTES_MAX;
}

/** The pieces of a mail behind what has been sent of it; returns how many, left_p their bytes. */
static size_t out_pieces(const tpc_box_t *box, tpc_frame_head_t *head, const tpc_frame_t *frame, struct iovec pieces[4],
                         size_t *left_p) {
    size_t seal = box->seal.set ? TPC_SEAL_BYTES : 0, body = tpc_frame_body_bytes(head), count = 0,
           skip = box->out_offset;
    const struct iovec all[4] = {{head, sizeof *head},
                                 {(void *)(uintptr_t)box->out_seals.head, seal},
                                 {(void *)(uintptr_t)frame->body, body},
                                 {(void *)(uintptr_t)box->out_seals.body, body > 0 ? seal : 0}};
    *left_p = 0;
    for (size_t i = 0; i < 4; i++) {
        size_t passed = skip < all[i].iov_len ? skip : all[i].iov_len;
        skip -= passed;
        if (all[i].iov_len == passed) continue;
        pieces[count++] = (struct iovec){(char *)all[i].iov_base + passed, all[i].iov_len - passed};
        *left_p += all[i].iov_len - passed;
    }
    return count;
}

/** Send what goes. A socket that takes nothing any more is left to box_read, which learns why. */
static void box_write(tpc_boxes_t *boxes, tpc_box_t *box) {
    while (box->out_first) {
        tpc_mail_t *mail = box->out_first;
        tpc_frame_head_t first = mail->frame->head;
        first.token = mail->token;
        if (box->seal.set && box->out_offset == 0)
            tpc_seal_frame(&box->seal, &first, mail->frame->body, &box->out_seals);
        struct iovec pieces[4];
        size_t left, count = out_pieces(box, &first, mail->frame, pieces, &left);
        ssize_t sent = tpc_net_send(box->fd, pieces, count, box->out_offset == 0 ? mail->fd : -1);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (sent < 0) {
            if (errno != EPIPE && errno != ECONNRESET) box_break(boxes, box, errno);
            tpc_mail_list_free(&box->out_first, &box->out_last);
            box->out_offset = 0;
            return;
        }
        box->out_offset += (size_t)sent;
        if ((size_t)sent < left) continue;
        box->out_offset = 0;
        box->seal.sent++;
        box->out_first = mail->next;
        if (!box->out_first) box->out_last = NULL;
        tpc_mail_free(mail);
    }
}

size_t tpc_socket_polls(const tpc_boxes_t *boxes, struct pollfd polls_p[2 * TPCOMM_MAX_RANKS]) {
    size_t count = 0;
    for (int32_t i = 0; i < TPCOMM_MAX_RANKS; i++) {
        const tpc_box_t *box = &boxes->box[i];
        if (box->state != TPC_LINK_OPEN || box->in_bytes >= IN_BYTES_MAX) continue;
        polls_p[count++] =
            (struct pollfd){.fd = box->fd, .events = (short)(box->out_first ? POLLIN | POLLOUT : POLLIN)};
        if (box->pidfd >= 0) polls_p[count++] = (struct pollfd){.fd = box->pidfd, .events = POLLIN};
    }
    return count;
}

void tpc_socket_pump(tpc_boxes_t *boxes) {
    struct pollfd polls[2 * TPCOMM_MAX_RANKS];
    size_t count = tpc_socket_polls(boxes, polls);
    int ready = poll(polls, count, 0);
    size_t next = 0;
    for (int32_t i = 0; ready != 0 && i < TPCOMM_MAX_RANKS; i++) {
        tpc_box_t *box = &boxes->box[i];
        if (next == count || box->fd != polls[next].fd) continue;
        /* Where poll fails (memory, a tiny limit of descriptors) each socket is simply tried. */
        short events = ready > 0 ? polls[next].revents : (short)(POLLIN | POLLOUT);
        next++;
        /* A forked child that holds the socket hides the end of a process: its pidfd does not. */
        bool ended = box->pidfd >= 0 && polls[next++].revents != 0;
        if (events & (POLLOUT | POLLERR)) box_write(boxes, box);
        while ((events != 0 || ended) && box->state == TPC_LINK_OPEN && box_read(boxes, box)) continue;
        if (ended && box->state == TPC_LINK_OPEN && box->in_bytes < IN_BYTES_MAX)
            tpc_box_end(boxes, box, TPC_LINK_ENDED, 0);
    }
}

static void socket_pump(tpc_links_t *links) {
    pthread_mutex_lock(&links->boxes->mutex);
    tpc_socket_pump(links->boxes);
    pthread_mutex_unlock(&links->boxes->mutex);
}

static void socket_send(tpc_links_t *links, int32_t rank, tpc_mail_t *mail) {
    tpc_box_t *box = &links->boxes->box[rank];
    pthread_mutex_lock(&links->boxes->mutex);
    if (box->state == TPC_LINK_OPEN) {
        tpc_mail_append(&box->out_first, &box->out_last, mail);
        if (box->out_first == mail) box_write(links->boxes, box);
        mail = NULL;
    }
    pthread_mutex_unlock(&links->boxes->mutex);
    if (mail) tpc_mail_free(mail);
}

static void socket_wait(tpc_links_t *links, int ms) {
    struct pollfd polls[2 * TPCOMM_MAX_RANKS];
    pthread_mutex_lock(&links->boxes->mutex);
    size_t count = tpc_socket_polls(links->boxes, polls);
    links->boxes->waiting++;
    pthread_mutex_unlock(&links->boxes->mutex);
    tpc_poll_wait(polls, count, ms);
    pthread_mutex_lock(&links->boxes->mutex);
    /* What tpc_link_attend has left to me: nobody else may look again. */
    links->boxes->waiting--;
    tpc_socket_pump(links->boxes);
    pthread_mutex_unlock(&links->boxes->mutex);
}

static void socket_fail(tpc_links_t *links, int32_t rank) {
    tpc_box_t *box = &links->boxes->box[rank];
    pthread_mutex_lock(&links->boxes->mutex);
    if (box->state == TPC_LINK_OPEN) box_break(links->boxes, box, ENOMEM);
    pthread_mutex_unlock(&links->boxes->mutex);
}

static void socket_leave(tpc_links_t *links) {
    pthread_mutex_lock(&links->boxes->mutex);
    for (int32_t i = 0; i < links->size; i++) {
        tpc_box_t *box = &links->boxes->box[i];
        if (box->state == TPC_LINK_OPEN) box_write(links->boxes, box);
        if (box->state == TPC_LINK_OPEN && !box->out_first) box_goodbye(box, TPCOMM_OK);
    }
    pthread_mutex_unlock(&links->boxes->mutex);
    /* What has come is read, since closing with unread bytes resets a connection and a reset overtakes the goodbye. */
    socket_pump(links);
    for (int32_t i = 0; i < links->size; i++)
        if (links->boxes->box[i].fd >= 0) (void)shutdown(links->boxes->box[i].fd, SHUT_RDWR);
}

const tpc_link_ops_t tpc_socket_links = {
    .send = socket_send,
    .pump = socket_pump,
    .wait = socket_wait,
    .fail = socket_fail,
    .leave = socket_leave,
};
