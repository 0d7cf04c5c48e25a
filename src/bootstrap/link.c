/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bootstrap/host.h"
#include "bootstrap/net.h"

/* A wait looks again after this long: another thread may have read the frame that this one polls for. */
#define TURN_MS 20
/* No more than this is read from one rank before somebody takes some of it. */
#define IN_BYTES_MAX (64u << 20)

/** Wait without ever spinning: a poll that fails at once still takes its time. */
static void wait_for(struct pollfd *polls, size_t count, int ms) {
    if (poll(polls, count, ms) >= 0 || errno == EINTR) return;
    for (size_t i = 0; i < count; i++) polls[i].revents = polls[i].events;
    (void)poll(NULL, 0, ms);
}

/* ------------------------------------------------------------------ frames and mail */

tpc_frame_t *tpc_frame_new(uint16_t kind, uint64_t channel, const char *step, tpcomm_status_t status, const char *text,
                           const void *data, size_t bytes) {
    size_t text_bytes = text ? strnlen(text, TPC_ERROR_BYTES - 1) : 0;
    tpc_frame_t *frame = malloc(sizeof *frame + text_bytes + bytes);
    if (!frame) return NULL;
    atomic_init(&frame->references, 1);
    frame->head = (tpc_frame_head_t){
        .magic = TPC_FRAME_MAGIC,
        .kind = kind,
        .channel = channel,
        .status = status,
        .text_bytes = (uint32_t)text_bytes,
        .data_bytes = bytes,
    };
    memcpy(frame->head.step, step, strnlen(step, sizeof frame->head.step - 1));
    if (text_bytes > 0) memcpy(frame->body, text, text_bytes);
    if (data && bytes > 0) memcpy(frame->body + text_bytes, data, bytes);
    return frame;
}

void tpc_frame_release(tpc_frame_t *frame) {
    if (frame && atomic_fetch_sub(&frame->references, 1) == 1) free(frame);
}

void tpc_frame_text(const tpc_frame_t *frame, char text_p[TPC_ERROR_BYTES]) {
    memcpy(text_p, frame->body, frame->head.text_bytes);
    text_p[frame->head.text_bytes] = '\0';
}

unsigned char *tpc_frame_data(tpc_frame_t *frame) {
    return frame->body + frame->head.text_bytes;
}

static size_t frame_bytes(const tpc_frame_t *frame) {
    return sizeof frame->head + frame->head.text_bytes + frame->head.data_bytes;
}

void tpc_mail_free(tpc_mail_t *mail) {
    if (mail->fd >= 0) close(mail->fd);
    tpc_frame_release(mail->frame);
    free(mail);
}

static void mail_list_free(tpc_mail_t **first, tpc_mail_t **last) {
    for (tpc_mail_t *mail = *first; mail;) {
        tpc_mail_t *next = mail->next;
        tpc_mail_free(mail);
        mail = next;
    }
    *first = *last = NULL;
}

static void mail_append(tpc_mail_t **first, tpc_mail_t **last, tpc_mail_t *mail) {
    mail->next = NULL;
    if (*last)
        (*last)->next = mail;
    else
        *first = mail;
    *last = mail;
}

/* ------------------------------------------------------------------ boxes */

tpcomm_status_t tpc_boxes_init(tpc_boxes_t *boxes) {
    memset(boxes, 0, sizeof *boxes);
    for (int32_t i = 0; i < TPCOMM_MAX_RANKS; i++) boxes->box[i].fd = boxes->box[i].pidfd = boxes->box[i].frame_fd = -1;
    boxes->attention_fd = -1;
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0) return tpc_error(TPCOMM_ERR_NO_MEMORY, "pthread_condattr_init");
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int err = pthread_cond_init(&boxes->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (err != 0) return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, err, "pthread_cond_init");
    err = pthread_mutex_init(&boxes->mutex, NULL);
    if (err != 0) {
        pthread_cond_destroy(&boxes->changed);
        return tpc_error_errno(TPCOMM_ERR_NO_MEMORY, err, "pthread_mutex_init");
    }
    return TPCOMM_OK;
}

static void box_clear(tpc_box_t *box) {
    if (box->fd >= 0) close(box->fd);
    if (box->frame_fd >= 0) close(box->frame_fd);
    mail_list_free(&box->in_first, &box->in_last);
    mail_list_free(&box->note_first, &box->note_last);
    mail_list_free(&box->out_first, &box->out_last);
    tpc_frame_release(box->frame);
    while (box->told) {
        tpc_told_t *next = box->told->next;
        free(box->told);
        box->told = next;
    }
    explicit_bzero(&box->seal, sizeof box->seal);
    *box = (tpc_box_t){.state = TPC_LINK_NONE, .fd = -1, .pidfd = -1, .frame_fd = -1};
}

void tpc_boxes_destroy(tpc_boxes_t *boxes) {
    for (int32_t i = 0; i < TPCOMM_MAX_RANKS; i++) box_clear(&boxes->box[i]);
    pthread_cond_destroy(&boxes->changed);
    pthread_mutex_destroy(&boxes->mutex);
}

static void call_attention(const tpc_boxes_t *boxes) {
    uint64_t one = 1;
    if (boxes->attention_fd < 0) return;
    ssize_t wrote = write(boxes->attention_fd, &one, sizeof one); /* one that is full is told already */
    (void)wrote;
}

void tpc_box_end(tpc_boxes_t *boxes, tpc_box_t *box, tpc_link_state_t state, int err) {
    box->state = state;
    box->err = err;
    call_attention(boxes);
}

static void box_break(tpc_boxes_t *boxes, tpc_box_t *box, int err) {
    tpc_box_end(boxes, box, TPC_LINK_BROKEN, err);
}

static void box_append(tpc_box_t *box, tpc_mail_t *mail) {
    mail_append(&box->in_first, &box->in_last, mail);
    box->in_bytes += frame_bytes(mail->frame);
}

/** Unlink the mail behind before (NULL: the first). */
static tpc_mail_t *box_unlink(tpc_box_t *box, tpc_mail_t *before) {
    tpc_mail_t *mail = before ? before->next : box->in_first;
    if (before)
        before->next = mail->next;
    else
        box->in_first = mail->next;
    if (box->in_last == mail) box->in_last = before;
    box->in_bytes -= frame_bytes(mail->frame);
    return mail;
}

/** The mail before the first of a channel (NULL: there is none before it); false if there is no mail of that channel.
 */
static bool box_find(const tpc_box_t *box, uint64_t channel, tpc_mail_t **before_p) {
    tpc_mail_t *before = NULL;
    for (tpc_mail_t *mail = box->in_first; mail; before = mail, mail = mail->next) {
        if (mail->frame->head.channel != channel) continue;
        *before_p = before;
        return true;
    }
    return false;
}

void tpc_box_deliver(tpc_boxes_t *boxes, tpc_box_t *box, tpc_mail_t *mail) {
    if (mail->frame->head.kind == TPC_FRAME_BYE) {
        tpc_box_end(boxes, box, TPC_LINK_LEFT, 0);
        tpc_mail_free(mail);
    } else if (mail->frame->head.kind == TPC_FRAME_REFUSED) {
        box_break(boxes, box, EKEYREJECTED);
        tpc_mail_free(mail);
    } else if (mail->frame->head.kind == TPC_FRAME_NOTE) {
        mail_append(&box->note_first, &box->note_last, mail);
        box->in_bytes += frame_bytes(mail->frame);
        call_attention(boxes);
    } else {
        box_append(box, mail);
    }
}

/* ------------------------------------------------------------------ sockets */

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
        mail_append(&box->out_first, &box->out_last, mail);
        box_write(boxes, box);
    } else {
        free(mail);
    }
    if (box->state == TPC_LINK_OPEN) box_break(boxes, box, EBADMSG);
    (void)shutdown(box->fd, SHUT_WR);
}

/** The head is complete, and its seal right: make room for the frame. */
static bool frame_begin(tpc_boxes_t *boxes, tpc_box_t *box) {
    if (!head_is_sane(&box->head)) {
        box_break(boxes, box, EPROTO);
        return false;
    }
    size_t body = box->head.text_bytes + (size_t)box->head.data_bytes;
    box->frame = malloc(sizeof *box->frame + body);
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

static size_t body_bytes(const tpc_frame_head_t *head) {
    return head->text_bytes + (size_t)head->data_bytes;
}

/** Where the part that is being received goes, and how long it is. */
static char *part_place(tpc_box_t *box, size_t *bytes_p) {
    *bytes_p = TPC_SEAL_BYTES;
    if (box->part == TPC_PART_HEAD_SEAL) return (char *)box->in_head_seal;
    if (box->part == TPC_PART_BODY_SEAL) return (char *)box->in_body_seal;
    *bytes_p = box->part == TPC_PART_HEAD ? sizeof box->head : body_bytes(&box->head);
    return box->part == TPC_PART_HEAD ? (char *)&box->head : (char *)box->frame->body;
}

static bool seal_is_right(const tpc_box_t *box) {
    uint8_t seal[TPC_SEAL_BYTES];
    const uint8_t *key = box->seal.receive_key;
    if (box->part == TPC_PART_HEAD_SEAL) {
        tpc_seal_head(key, box->seal.received, &box->head, seal);
        return tpc_proof_equal(seal, box->in_head_seal);
    }
    tpc_seal_body(key, box->in_head_seal, box->frame->body, body_bytes(&box->head), seal);
    return tpc_proof_equal(seal, box->in_body_seal);
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
    if (head && body_bytes(&box->head) > 0)
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
    size_t seal = box->seal.set ? TPC_SEAL_BYTES : 0, body = body_bytes(head), count = 0, skip = box->out_offset;
    const struct iovec all[4] = {{head, sizeof *head},
                                 {(void *)(uintptr_t)box->out_head_seal, seal},
                                 {(void *)(uintptr_t)frame->body, body},
                                 {(void *)(uintptr_t)box->out_body_seal, body > 0 ? seal : 0}};
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
        if (box->seal.set && box->out_offset == 0) {
            tpc_seal_head(box->seal.send_key, box->seal.sent, &first, box->out_head_seal);
            tpc_seal_body(box->seal.send_key, box->out_head_seal, mail->frame->body, body_bytes(&first),
                          box->out_body_seal);
        }
        struct iovec pieces[4];
        size_t left, count = out_pieces(box, &first, mail->frame, pieces, &left);
        ssize_t sent = tpc_net_send(box->fd, pieces, count, box->out_offset == 0 ? mail->fd : -1);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (sent < 0) {
            if (errno != EPIPE && errno != ECONNRESET) box_break(boxes, box, errno);
            mail_list_free(&box->out_first, &box->out_last);
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

/** What to poll; a link that is not open, or full, is not polled: its state would wake us again and again. */
static size_t socket_polls(const tpc_boxes_t *boxes, struct pollfd polls_p[2 * TPCOMM_MAX_RANKS]) {
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

/** Under the mutex. */
static void pump_boxes(tpc_boxes_t *boxes) {
    struct pollfd polls[2 * TPCOMM_MAX_RANKS];
    size_t count = socket_polls(boxes, polls);
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
    pump_boxes(links->boxes);
    pthread_mutex_unlock(&links->boxes->mutex);
}

static void socket_send(tpc_links_t *links, int32_t rank, tpc_mail_t *mail) {
    tpc_box_t *box = &links->boxes->box[rank];
    pthread_mutex_lock(&links->boxes->mutex);
    if (box->state == TPC_LINK_OPEN) {
        mail_append(&box->out_first, &box->out_last, mail);
        if (box->out_first == mail) box_write(links->boxes, box);
        mail = NULL;
    }
    pthread_mutex_unlock(&links->boxes->mutex);
    if (mail) tpc_mail_free(mail);
}

static void socket_wait(tpc_links_t *links, int ms) {
    struct pollfd polls[2 * TPCOMM_MAX_RANKS];
    pthread_mutex_lock(&links->boxes->mutex);
    size_t count = socket_polls(links->boxes, polls);
    links->boxes->waiting++;
    pthread_mutex_unlock(&links->boxes->mutex);
    wait_for(polls, count, ms);
    pthread_mutex_lock(&links->boxes->mutex);
    /* What tpc_link_attend has left to me: nobody else may look again. */
    links->boxes->waiting--;
    pump_boxes(links->boxes);
    pthread_mutex_unlock(&links->boxes->mutex);
}

static void socket_leave(tpc_links_t *links) {
    for (int32_t i = 0; i < links->size; i++) {
        tpc_frame_t *bye = tpc_frame_new(TPC_FRAME_BYE, 0, "", TPCOMM_OK, NULL, NULL, 0);
        if (bye) (void)tpc_link_send(links, i, bye, 0, -1);
        tpc_frame_release(bye);
    }
    /* What has come is read, since closing with unread bytes resets a connection and a reset overtakes the goodbye. */
    socket_pump(links);
    for (int32_t i = 0; i < links->size; i++)
        if (links->boxes->box[i].fd >= 0) (void)shutdown(links->boxes->box[i].fd, SHUT_RDWR);
}

const tpc_link_ops_t tpc_socket_links = {
    .send = socket_send,
    .pump = socket_pump,
    .wait = socket_wait,
    .leave = socket_leave,
};

/* ------------------------------------------------------------------ links */

tpcomm_status_t tpc_links_init(tpc_links_t *links, int32_t rank, int32_t size) {
    tpc_boxes_t *boxes = malloc(sizeof *boxes);
    if (!boxes) return tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the links to %d ranks", size);
    tpcomm_status_t status = tpc_boxes_init(boxes);
    if (status != TPCOMM_OK) {
        free(boxes);
        return status;
    }
    *links = (tpc_links_t){.ops = &tpc_socket_links, .boxes = boxes, .rank = rank, .size = size};
    return TPCOMM_OK;
}

void tpc_links_destroy(tpc_links_t *links) {
    if (links->ops != &tpc_socket_links) return;
    tpc_boxes_destroy(links->boxes);
    free(links->boxes);
}

void tpc_link_attach(tpc_links_t *links, int32_t rank, int fd, int pidfd, const tpc_seal_t *seal) {
    tpc_box_t *box = &links->boxes->box[rank];
    pthread_mutex_lock(&links->boxes->mutex);
    box_clear(box);
    box->state = TPC_LINK_OPEN;
    box->fd = fd;
    box->pidfd = pidfd;
    if (seal && seal->set) box->seal = *seal;
    pthread_mutex_unlock(&links->boxes->mutex);
}

void tpc_link_detach(tpc_links_t *links, int32_t rank) {
    pthread_mutex_lock(&links->boxes->mutex);
    box_clear(&links->boxes->box[rank]);
    pthread_mutex_unlock(&links->boxes->mutex);
}

tpc_link_state_t tpc_link_state(tpc_links_t *links, int32_t rank, int *err_p) {
    pthread_mutex_lock(&links->boxes->mutex);
    tpc_link_state_t state = links->boxes->box[rank].state;
    *err_p = links->boxes->box[rank].err;
    pthread_mutex_unlock(&links->boxes->mutex);
    return state;
}

int tpc_link_send(tpc_links_t *links, int32_t rank, tpc_frame_t *frame, uint64_t token, int fd) {
    tpc_mail_t *mail = malloc(sizeof *mail);
    if (!mail) return ENOMEM;
    *mail = (tpc_mail_t){.frame = frame, .token = token, .fd = -1};
    if (fd >= 0) {
        mail->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (mail->fd < 0) {
            int err = errno;
            free(mail);
            return err;
        }
    }
    atomic_fetch_add(&frame->references, 1);
    links->ops->send(links, rank, mail);
    return 0;
}

bool tpc_link_sent(tpc_links_t *links, int32_t rank) {
    tpc_box_t *box = &links->boxes->box[rank];
    pthread_mutex_lock(&links->boxes->mutex);
    bool sent = box->state != TPC_LINK_OPEN || !box->out_first;
    pthread_mutex_unlock(&links->boxes->mutex);
    return sent;
}

bool tpc_link_take(tpc_links_t *links, int32_t rank, uint64_t channel, tpc_mail_t *mail_p) {
    tpc_box_t *box = &links->boxes->box[rank];
    tpc_mail_t *before, *mail = NULL;
    pthread_mutex_lock(&links->boxes->mutex);
    if (box_find(box, channel, &before)) mail = box_unlink(box, before);
    pthread_mutex_unlock(&links->boxes->mutex);
    if (!mail) return false;
    *mail_p = *mail;
    free(mail);
    return true;
}

const tpc_frame_t *tpc_link_peek(tpc_links_t *links, int32_t rank, uint64_t channel) {
    tpc_box_t *box = &links->boxes->box[rank];
    tpc_mail_t *before;
    const tpc_frame_t *frame = NULL;
    pthread_mutex_lock(&links->boxes->mutex);
    if (box_find(box, channel, &before)) frame = (before ? before->next : box->in_first)->frame;
    pthread_mutex_unlock(&links->boxes->mutex);
    return frame;
}

bool tpc_link_withdrawn(tpc_links_t *links, int32_t rank, uint64_t channel) {
    bool found = false;
    pthread_mutex_lock(&links->boxes->mutex);
    for (tpc_mail_t *mail = links->boxes->box[rank].in_first; mail; mail = mail->next)
        found |= mail->frame->head.kind == TPC_FRAME_WITHDRAW && mail->frame->head.channel == channel;
    pthread_mutex_unlock(&links->boxes->mutex);
    return found;
}

void tpc_link_return(tpc_links_t *links, int32_t rank, tpc_mail_t *mail) {
    tpc_box_t *box = &links->boxes->box[rank];
    tpc_mail_t *kept = malloc(sizeof *kept);
    if (!kept) { /* lost, as if it had not come: its sender ends by its deadline */
        if (mail->fd >= 0) close(mail->fd);
        tpc_frame_release(mail->frame);
        return;
    }
    *kept = *mail;
    pthread_mutex_lock(&links->boxes->mutex);
    kept->next = box->in_first;
    box->in_first = kept;
    if (!box->in_last) box->in_last = kept;
    box->in_bytes += frame_bytes(kept->frame);
    pthread_mutex_unlock(&links->boxes->mutex);
}

bool tpc_link_note(tpc_links_t *links, int32_t rank, tpc_mail_t *mail_p) {
    tpc_box_t *box = &links->boxes->box[rank];
    pthread_mutex_lock(&links->boxes->mutex);
    tpc_mail_t *mail = box->note_first;
    if (mail) box->note_first = mail->next;
    if (!box->note_first) box->note_last = NULL;
    if (mail) box->in_bytes -= frame_bytes(mail->frame);
    pthread_mutex_unlock(&links->boxes->mutex);
    if (!mail) return false;
    *mail_p = *mail;
    free(mail);
    return true;
}

bool tpc_link_noted(tpc_links_t *links, int32_t rank) {
    pthread_mutex_lock(&links->boxes->mutex);
    bool noted = links->boxes->box[rank].note_first != NULL;
    pthread_mutex_unlock(&links->boxes->mutex);
    return noted;
}

bool tpc_link_told(tpc_links_t *links, int32_t rank, uint64_t channel, uint32_t more_sent, uint32_t more_seen,
                   tpc_told_t *told_p) {
    tpc_box_t *box = &links->boxes->box[rank];
    pthread_mutex_lock(&links->boxes->mutex);
    tpc_told_t *told = box->told;
    while (told && told->channel != channel) told = told->next;
    if (!told && more_sent + more_seen > 0 && (told = calloc(1, sizeof *told)) != NULL) {
        told->channel = channel;
        told->next = box->told;
        box->told = told;
    }
    if (told) {
        told->sent += more_sent;
        told->seen += more_seen;
        *told_p = *told;
    } else {
        *told_p = (tpc_told_t){.channel = channel};
    }
    pthread_mutex_unlock(&links->boxes->mutex);
    return told || more_sent + more_seen == 0;
}

static bool is_withdrawn(const tpc_mail_t *vote) {
    for (const tpc_mail_t *mail = vote->next; mail; mail = mail->next)
        if (mail->frame->head.kind == TPC_FRAME_WITHDRAW && mail->token == vote->token) return true;
    return false;
}

tpc_frame_t *tpc_link_elsewhere(tpc_links_t *links, int32_t rank, uint64_t but_channel, const char *step) {
    tpc_frame_t *found = NULL;
    pthread_mutex_lock(&links->boxes->mutex);
    for (tpc_mail_t *mail = links->boxes->box[rank].in_first; mail && !found; mail = mail->next) {
        const tpc_frame_head_t *head = &mail->frame->head;
        if (head->kind == TPC_FRAME_VOTE && head->channel != but_channel && head->status == TPCOMM_OK &&
            strncmp(head->step, step, sizeof head->step - 1) == 0 && !is_withdrawn(mail))
            found = mail->frame;
    }
    if (found) atomic_fetch_add(&found->references, 1);
    pthread_mutex_unlock(&links->boxes->mutex);
    return found;
}

void tpc_link_attend(tpc_links_t *links) {
    if (links->ops != &tpc_socket_links) return; /* between threads everything is where it belongs at once */
    pthread_mutex_lock(&links->boxes->mutex);
    if (links->boxes->waiting == 0) pump_boxes(links->boxes);
    pthread_mutex_unlock(&links->boxes->mutex);
}

void tpc_link_want_attention(tpc_links_t *links, int fd) {
    pthread_mutex_lock(&links->boxes->mutex);
    links->boxes->attention_fd = fd;
    call_attention(links->boxes);
    pthread_mutex_unlock(&links->boxes->mutex);
}

/* ------------------------------------------------------------------ waiting */

static tpcomm_status_t turn_ms(const tpc_deadline_t *deadline, int most_ms, int *ms_p) {
    tpcomm_status_t status = tpc_deadline_sleep(deadline, 0); /* asks the caller, looks at the clock */
    if (status != TPCOMM_OK) return status;
    uint64_t left_ms = tpc_deadline_left_ms(deadline);
    *ms_p = left_ms < (uint64_t)most_ms ? (int)left_ms : most_ms;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_link_wait(tpc_links_t *links, const tpc_deadline_t *deadline) {
    int ms;
    tpcomm_status_t status = turn_ms(deadline, TURN_MS, &ms);
    if (status == TPCOMM_OK) links->ops->wait(links, ms);
    return status;
}

size_t tpc_link_polls(tpc_links_t *links, struct pollfd polls_p[2 * TPCOMM_MAX_RANKS]) {
    pthread_mutex_lock(&links->boxes->mutex);
    size_t count = socket_polls(links->boxes, polls_p);
    pthread_mutex_unlock(&links->boxes->mutex);
    return count;
}

void tpc_link_pump(tpc_links_t *links) {
    links->ops->pump(links);
}

tpcomm_status_t tpc_poll_turn(const tpc_deadline_t *deadline, struct pollfd *polls, size_t count, int most_ms) {
    int ms;
    tpcomm_status_t status = turn_ms(deadline, most_ms, &ms);
    if (status == TPCOMM_OK) wait_for(polls, count, ms);
    return status;
}
