/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/link.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/hook.h"

/* A wait looks again after this long: another thread may have read the frame that this one polls for. */
#define TURN_MS 20

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
    return sizeof frame->head + tpc_frame_body_bytes(&frame->head);
}

void tpc_mail_free(tpc_mail_t *mail) {
    if (mail->fd >= 0) close(mail->fd);
    tpc_frame_release(mail->frame);
    free(mail);
}

void tpc_mail_list_free(tpc_mail_t **first, tpc_mail_t **last) {
    for (tpc_mail_t *mail = *first; mail;) {
        tpc_mail_t *next = mail->next;
        tpc_mail_free(mail);
        mail = next;
    }
    *first = *last = NULL;
}

void tpc_mail_append(tpc_mail_t **first, tpc_mail_t **last, tpc_mail_t *mail) {
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
    tpc_mail_list_free(&box->in_first, &box->in_last);
    tpc_mail_list_free(&box->note_first, &box->note_last);
    tpc_mail_list_free(&box->out_first, &box->out_last);
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

static void box_append(tpc_box_t *box, tpc_mail_t *mail) {
    tpc_mail_append(&box->in_first, &box->in_last, mail);
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
        tpcomm_status_t why = mail->frame->head.status;
        tpc_box_end(boxes, box, TPC_LINK_LEFT, why == TPCOMM_OK ? 0 : why == TPCOMM_ERR_NO_MEMORY ? ENOMEM : EIO);
        tpc_mail_free(mail);
    } else if (mail->frame->head.kind == TPC_FRAME_REFUSED) {
        tpc_box_end(boxes, box, TPC_LINK_BROKEN, EKEYREJECTED);
        tpc_mail_free(mail);
    } else if (mail->frame->head.kind == TPC_FRAME_NOTE) {
        tpc_mail_append(&box->note_first, &box->note_last, mail);
        box->in_bytes += frame_bytes(mail->frame);
        call_attention(boxes);
    } else {
        box_append(box, mail);
    }
}

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

void tpc_link_fail(tpc_links_t *links, int32_t rank) {
    links->ops->fail(links, rank);
}

int tpc_link_send(tpc_links_t *links, int32_t rank, tpc_frame_t *frame, uint64_t token, int fd) {
    if (tpc_hook("link_send", links->rank) != TPCOMM_OK) return ENOMEM;
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
    if (!kept) {
        tpc_link_fail(links, rank);
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
    if (links->boxes->waiting == 0) tpc_socket_pump(links->boxes);
    pthread_mutex_unlock(&links->boxes->mutex);
}

void tpc_link_want_attention(tpc_links_t *links, int fd) {
    pthread_mutex_lock(&links->boxes->mutex);
    links->boxes->attention_fd = fd;
    call_attention(links->boxes);
    pthread_mutex_unlock(&links->boxes->mutex);
}

/* ------------------------------------------------------------------ waiting */

void tpc_poll_wait(struct pollfd *polls, size_t count, int ms) {
    uint64_t begun_ns = tpc_clock_ns();
    bool polled = poll(polls, count, ms) >= 0 || errno == EINTR;
    tpc_clock_waited(begun_ns, (uint64_t)ms);
    if (polled) return;
    for (size_t i = 0; i < count; i++) polls[i].revents = polls[i].events;
    (void)poll(NULL, 0, ms);
}

/* When this thread last looked at the clock for the wait that it is in; 0: not yet. Nothing between two looks takes
 * longer than a turn: where it did, the process was stopped, be it in the poll or beside it. */
static _Thread_local uint64_t looked_ns;

void tpc_turns_begin(void) {
    looked_ns = 0;
}

static void look(uint64_t now_ns, int most_ms) {
    if (looked_ns != 0) tpc_clock_waited_until(looked_ns, (uint64_t)most_ms, now_ns);
    looked_ns = now_ns;
}

static tpcomm_status_t turn_ms(const tpc_deadline_t *deadline, int most_ms, int *ms_p) {
    tpc_deadline_t endless = *deadline;
    uint64_t now_ns = tpc_clock_ns();
    look(now_ns, 0);
    endless.at_ns = UINT64_MAX;
    tpcomm_status_t status = tpc_deadline_sleep(&endless, 0); /* asks the caller */
    if (status != TPCOMM_OK) return status;
    if (deadline->interrupted != NULL) looked_ns = tpc_clock_ns(); /* what it took to answer is no stop */
    uint64_t awake_ns = tpc_clock_awake_at(now_ns);
    if (awake_ns >= deadline->at_ns) return TPCOMM_ERR_TIMEOUT;
    uint64_t left_ns = deadline->at_ns - awake_ns, left_ms = left_ns / 1000000u + (left_ns % 1000000u != 0);
    *ms_p = left_ms < (uint64_t)most_ms ? (int)left_ms : most_ms;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_link_wait(tpc_links_t *links, const tpc_deadline_t *deadline) {
    int ms;
    tpcomm_status_t status = turn_ms(deadline, TURN_MS, &ms);
    if (status != TPCOMM_OK) return status;
    links->ops->wait(links, ms);
    look(tpc_clock_ns(), ms);
    return TPCOMM_OK;
}

size_t tpc_link_polls(tpc_links_t *links, struct pollfd polls_p[2 * TPCOMM_MAX_RANKS]) {
    pthread_mutex_lock(&links->boxes->mutex);
    size_t count = tpc_socket_polls(links->boxes, polls_p);
    pthread_mutex_unlock(&links->boxes->mutex);
    return count;
}

void tpc_link_pump(tpc_links_t *links) {
    links->ops->pump(links);
}

tpcomm_status_t tpc_poll_turn(const tpc_deadline_t *deadline, struct pollfd *polls, size_t count, int most_ms) {
    int ms;
    tpcomm_status_t status = turn_ms(deadline, most_ms, &ms);
    if (status != TPCOMM_OK) return status;
    tpc_poll_wait(polls, count, ms);
    look(tpc_clock_ns(), ms);
    return TPCOMM_OK;
}
