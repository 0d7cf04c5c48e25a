/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Links: how one rank's frames (wire.h) reach another rank. A rank keeps one box for each other rank: frames that came,
 * frames still to be sent, and how the other side is. What fills the boxes is a socket (link_socket.c) or another
 * thread (threads.c); who reads them does not see which.
 *
 * Several threads of a rank may use its links at once, each for a channel of its own: whoever looks at the links reads
 * and writes for all of them, so that none can block another.
 */
#ifndef TPC_BOOTSTRAP_LINK_H
#define TPC_BOOTSTRAP_LINK_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "bootstrap/seal.h"
#include "bootstrap/wire.h"

/** Sent or received; never changed after it was made, and shared by all who hold a reference. */
typedef struct {
    _Atomic int32_t references;
    tpc_frame_head_t head;
    unsigned char body[]; /**< text, then data */
} tpc_frame_t;

/** NULL if there is no memory. text may be NULL. The body is filled by the caller where data is NULL and bytes is not
 * 0. */
tpc_frame_t *tpc_frame_new(uint16_t kind, uint64_t channel, const char *step, tpcomm_status_t status, const char *text,
                           const void *data, size_t bytes);
void tpc_frame_release(tpc_frame_t *frame); /**< NULL is allowed */
/** Copy the text, terminated. */
void tpc_frame_text(const tpc_frame_t *frame, char text_p[TPC_ERROR_BYTES]);
unsigned char *tpc_frame_data(tpc_frame_t *frame);

/** One frame waiting in a box. */
typedef struct tpc_mail {
    struct tpc_mail *next;
    tpc_frame_t *frame;
    uint64_t token; /**< in place of the frame's own, which goes to several ranks */
    int fd;         /**< travels with it; -1: none */
} tpc_mail_t;

typedef enum {
    TPC_LINK_NONE, /**< no link to this rank */
    TPC_LINK_OPEN,
    TPC_LINK_LEFT,   /**< said goodbye; err not 0: could not go on with this link, and why */
    TPC_LINK_ENDED,  /**< closed without a word: the process died */
    TPC_LINK_BROKEN, /**< the connection failed; err says how */
} tpc_link_state_t;

/** Verdicts that answered no vote: to that rank, and from it. By their number a vote that crossed one is known. */
typedef struct tpc_told {
    struct tpc_told *next;
    uint64_t channel;
    uint32_t sent, seen;
} tpc_told_t;

/** What comes next of a frame that is being received. */
typedef enum { TPC_PART_HEAD, TPC_PART_HEAD_SEAL, TPC_PART_BODY, TPC_PART_BODY_SEAL } tpc_part_t;

/** All about one other rank. */
typedef struct {
    tpc_link_state_t state;
    int err;   /**< errno of BROKEN, LEFT. ENOMEM of BROKEN: here. EBADMSG: a wrong seal; EKEYREJECTED: the other side
                  says so of ours */
    int fd;    /**< socket; -1 between threads */
    int pidfd; /**< the member's; not owned; -1: none */
    tpc_mail_t *in_first, *in_last;
    tpc_mail_t *note_first, *note_last; /**< apart from all others: nobody asks for them by channel */
    size_t in_bytes;
    tpc_mail_t *out_first, *out_last;
    size_t out_offset;           /**< of out_first with its seals, what has been sent */
    tpc_frame_seals_t out_seals; /**< of out_first */
    tpc_seal_t seal;
    /* The frame that is being received. */
    tpc_part_t part;
    size_t part_have;
    tpc_frame_head_t head;
    tpc_frame_seals_t in_seals;
    tpc_frame_t *frame;
    int frame_fd;
    tpc_told_t *told;
} tpc_box_t;

/** The boxes of one rank. */
typedef struct {
    pthread_mutex_t mutex;  /**< held for moments only, never while waiting */
    pthread_cond_t changed; /**< between threads: something came, or somebody left */
    uint64_t events, seen;  /**< how often that happened, and up to where it has been looked at */
    int32_t waiting;        /**< threads that wait for something to happen, and will look then */
    int attention_fd;       /**< an eventfd, told of notes and of links that end; -1: nobody wants to know */
    tpc_box_t box[TPCOMM_MAX_RANKS];
} tpc_boxes_t;

tpcomm_status_t tpc_boxes_init(tpc_boxes_t *boxes);
void tpc_boxes_destroy(tpc_boxes_t *boxes);
/** Put what came into a box. Under the mutex. Takes mail. */
void tpc_box_deliver(tpc_boxes_t *boxes, tpc_box_t *box, tpc_mail_t *mail);
/** The other side is not what it was. Under the mutex. */
void tpc_box_end(tpc_boxes_t *boxes, tpc_box_t *box, tpc_link_state_t state, int err);
void tpc_mail_free(tpc_mail_t *mail);
void tpc_mail_list_free(tpc_mail_t **first, tpc_mail_t **last);
void tpc_mail_append(tpc_mail_t **first, tpc_mail_t **last, tpc_mail_t *mail);

typedef struct tpc_links tpc_links_t;

/** What makes a link a socket or a thread. */
typedef struct {
    /** Send mail to rank, or drop it where its link is not open; takes it. */
    void (*send)(tpc_links_t *links, int32_t rank, tpc_mail_t *mail);
    /** Read and write what can be without waiting. */
    void (*pump)(tpc_links_t *links);
    /** Wait up to ms for something to happen; may return sooner for no reason. */
    void (*wait)(tpc_links_t *links, int ms);
    /** This side cannot go on with its link to rank: both sides know from now on. Needs no memory. */
    void (*fail)(tpc_links_t *links, int32_t rank);
    /** Say goodbye to all and close; not in a forked child. */
    void (*leave)(tpc_links_t *links);
} tpc_link_ops_t;

struct tpc_links {
    const tpc_link_ops_t *ops;
    tpc_boxes_t *boxes;
    int32_t rank, size;
    void *world; /**< of threads.c */
};

extern const tpc_link_ops_t tpc_socket_links;
/** What to poll for links that are sockets; returns how many. A link that is not open, or full, is not polled: its
 * state would wake us again and again. Under the mutex. */
size_t tpc_socket_polls(const tpc_boxes_t *boxes, struct pollfd polls_p[2 * TPCOMM_MAX_RANKS]);
/** The last frame on a connection, which needs no memory. */
void tpc_socket_goodbye(int fd, const tpc_seal_t *seal, tpcomm_status_t status);
/** Read and write what can be without waiting. Under the mutex. */
void tpc_socket_pump(tpc_boxes_t *boxes);

/** Links over sockets, none attached yet. Fails: NO_MEMORY. */
tpcomm_status_t tpc_links_init(tpc_links_t *links, int32_t rank, int32_t size);
/** Close all without a goodbye and free the boxes of socket links. */
void tpc_links_destroy(tpc_links_t *links);

/** From now on fd is the link to rank; takes it. A link that was there is closed, its mail dropped. seal: of its
 * frames; NULL, or one that is not set: they have none. */
void tpc_link_attach(tpc_links_t *links, int32_t rank, int fd, int pidfd, const tpc_seal_t *seal);
void tpc_link_detach(tpc_links_t *links, int32_t rank);

tpc_link_state_t tpc_link_state(tpc_links_t *links, int32_t rank, int *err_p);

/** Queue a frame and send what goes at once. fd -1: none; it is duplicated. Returns 0 or an errno value. */
int tpc_link_send(tpc_links_t *links, int32_t rank, tpc_frame_t *frame, uint64_t token, int fd);
/**
 * What is to be sent to rank, or kept of what came from it, has no memory. The other side must not wait for it until
 * its deadline: the link is over, for both, and both can say why.
 */
void tpc_link_fail(tpc_links_t *links, int32_t rank);
/** Whether all that was queued for rank has been sent, or never will be. */
bool tpc_link_sent(tpc_links_t *links, int32_t rank);

/** Take the first frame of a channel that came from rank. The caller releases mail_p->frame and closes mail_p->fd. */
bool tpc_link_take(tpc_links_t *links, int32_t rank, uint64_t channel, tpc_mail_t *mail_p);
/** The first frame of a channel from rank, left where it is; NULL if none. Valid while nobody takes it. */
const tpc_frame_t *tpc_link_peek(tpc_links_t *links, int32_t rank, uint64_t channel);
/** Put back what was taken, before all others. Takes it. */
void tpc_link_return(tpc_links_t *links, int32_t rank, tpc_mail_t *mail);
/** Take the first note that came from rank, as tpc_link_take. */
bool tpc_link_note(tpc_links_t *links, int32_t rank, tpc_mail_t *mail_p);
/** Counts of a channel's verdicts without a vote; more is added to each. False, nothing changed: no memory. */
bool tpc_link_told(tpc_links_t *links, int32_t rank, uint64_t channel, uint32_t more_sent, uint32_t more_seen,
                   tpc_told_t *told_p);
bool tpc_link_noted(tpc_links_t *links, int32_t rank); /**< there is a note from rank */
/** Whether rank has stopped waiting for the verdict of a vote that lies here. */
bool tpc_link_withdrawn(tpc_links_t *links, int32_t rank, uint64_t channel);
/** The first vote for a step that lies here from rank on another channel than one; the caller releases it; NULL: none.
 */
tpc_frame_t *tpc_link_elsewhere(tpc_links_t *links, int32_t rank, uint64_t but_channel, const char *step);
/** For the thread that looks after links while nobody waits: read and write, unless somebody waits who will. */
void tpc_link_attend(tpc_links_t *links);
/** From now on an eventfd is told of notes and of links that end; -1: no more. What is there already counts, too. */
void tpc_link_want_attention(tpc_links_t *links, int fd);

/** A wait begins on this thread, of turns with next to nothing between them: a gap there is a stop of the process. */
void tpc_turns_begin(void);
/** One turn of a wait for frames. OK: look again; TIMEOUT (no text), INTERRUPTED. */
tpcomm_status_t tpc_link_wait(tpc_links_t *links, const tpc_deadline_t *deadline);

/** For waits that watch other descriptors too: what to poll for these links; returns how many. */
size_t tpc_link_polls(tpc_links_t *links, struct pollfd polls_p[2 * TPCOMM_MAX_RANKS]);
void tpc_link_pump(tpc_links_t *links);

/** Wait without ever spinning: a poll that fails at once still takes its time. */
void tpc_poll_wait(struct pollfd *polls, size_t count, int ms);
/** One turn of such a wait. OK: look again; TIMEOUT (no text), INTERRUPTED. */
tpcomm_status_t tpc_poll_turn(const tpc_deadline_t *deadline, struct pollfd *polls, size_t count, int most_ms);

#endif
