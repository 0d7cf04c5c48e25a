/* SPDX-License-Identifier: Apache-2.0 */
/**
 * What goes over a socket. Two things only: a greeting, which each side sends first, and frames, which follow it.
 *
 * The first 64 bytes of a greeting (tpc_hello_t) never change, in no version, so that two builds that cannot talk can
 * still tell each other so. Everything is little-endian and has no padding.
 */
#ifndef TPC_BOOTSTRAP_WIRE_H
#define TPC_BOOTSTRAP_WIRE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the wire format is the memory format of little-endian machines");

#define TPC_WIRE_MAGIC   "TPCOMM01"
#define TPC_WIRE_VERSION 3

/** Why somebody connects, or what is answered. */
enum {
    TPC_HELLO_JOIN = 1,      /**< a rank asks rank 0 to let it into the job */
    TPC_HELLO_ANSWER = 2,    /**< rank 0's answer; job holds the nonce if it is ACCEPT */
    TPC_HELLO_LINK = 3,      /**< a rank of the met job opens its link to a lower rank */
    TPC_HELLO_LINK_OK = 4,   /**< the lower rank's answer */
    TPC_HELLO_CHALLENGE = 5, /**< whoever has a secret to whoever says that he has one (proof.h) */
    TPC_HELLO_PROVE = 6,     /**< the answer to that */
};

/** Never changes. */
typedef struct {
    char magic[8];
    uint16_t wire_version; /**< of everything behind these 64 bytes */
    uint16_t kind;
    uint32_t tpcomm_version; /**< one job is one library version */
    int32_t rank, size;      /**< as the sender was started, in range or not */
    uint64_t job;            /**< JOIN: hash of the job's text, or an id's nonce. LINK: the nonce that rank 0 drew */
    uint8_t hmac[32];        /**< zero without a secret; else a nonce or a keyed hash (proof.h) */
} tpc_hello_t;
static_assert(sizeof(tpc_hello_t) == 64, "the first 64 bytes never change");

typedef enum {
    TPC_VERDICT_ACCEPT = 1,
    TPC_VERDICT_RETRY = 2,     /**< right job, wrong moment: come again shortly */
    TPC_VERDICT_REFUSE = 3,    /**< with status and text */
    TPC_VERDICT_OTHER_JOB = 4, /**< another job listens here: try the next place; with text */
} tpc_verdict_t;

#define TPC_HOST_ID_BYTES 64

#define TPC_HELLO_HAS_SECRET 1u

typedef struct {
    tpc_hello_t hello;
    uint64_t
        process; /**< random, one for each process: tells whether two ranks share one, whatever pid namespaces say */
    int32_t pid; /**< in the sender's namespace: for texts */
    int32_t to_rank;         /**< LINK, LINK_OK: whom this is meant for */
    int32_t verdict, status; /**< ANSWER */
    uint32_t text_bytes;     /**< ANSWER: length of the text that follows, less than TPC_ERROR_BYTES */
    uint32_t flags;          /**< TPC_HELLO_HAS_SECRET */
    char host_id[TPC_HOST_ID_BYTES];
} tpc_greeting_t;
static_assert(sizeof(tpc_greeting_t) == 160, "no padding");

/** What a rank tells all others once it is let in. */
typedef struct {
    uint64_t process;
    int32_t pid;
    int32_t reserved;
    char host_id[TPC_HOST_ID_BYTES];
    char unix_name[64]; /**< where it accepts links from ranks of its host; abstract */
} tpc_record_t;
static_assert(sizeof(tpc_record_t) == 144, "no padding");

#define TPC_WIRE_ADDRESSES 5

/** Internet addresses in IPv6 form (IPv4 mapped), all with one port. */
typedef struct {
    uint16_t port, count;
    uint32_t reserved;
    uint8_t ip[TPC_WIRE_ADDRESSES][16];
} tpc_wire_addresses_t;
static_assert(sizeof(tpc_wire_addresses_t) == 88, "no padding");

/** What is inside a tpcomm_unique_id_t. */
typedef struct {
    char magic[8];
    uint32_t version;
    uint32_t uid; /**< part of the unix socket's name */
    uint64_t nonce;
    uint64_t host; /**< hash of the host's identity: who has the same one uses the unix socket */
    tpc_wire_addresses_t addresses;
    uint64_t check; /**< hash of all bytes before */
} tpc_wire_id_t;
static_assert(sizeof(tpc_wire_id_t) == 128, "fills tpcomm_unique_id_t");

#define TPC_ID_MAGIC   "TPCOMMID"
#define TPC_ID_VERSION 1

/* ------------------------------------------------------------------ frames */

#define TPC_FRAME_MAGIC     0x46435054u        /* "TPCF" */
#define TPC_FRAME_MAX_BYTES ((size_t)16 << 20) /**< of data in one frame */
#define TPC_STEP_BYTES      96
#define TPC_NOTE_BYTES      640 /**< of data in a note */

enum {
    TPC_FRAME_VOTE = 1,    /**< a member's say to the leader: status with text, or OK with its blob */
    TPC_FRAME_VERDICT = 2, /**< the leader's to a member: status with text, or OK with everybody's blobs */
    TPC_FRAME_WITHDRAW =
        3, /**< a member has stopped waiting for the verdict of the vote it sent; status and text say why */
    /** The sender lets go of the job in good order, and its links close next; or, with a status, cannot go on with this
     * one. */
    TPC_FRAME_BYE = 4,
    TPC_FRAME_DESCRIPTOR = 5, /**< nothing but the descriptor that travels with it */
    /**
     * The leader's to a member whose vote says TPC_FLAG_PAST: OK, it is at that step (again), and the vote counts; or
     * not, and what the member holds of that step is the end of it.
     */
    TPC_FRAME_PRESENT = 6,
    TPC_FRAME_NOTE = 7,    /**< a word to a member that nobody waits for; channel says what it is about */
    TPC_FRAME_REFUSED = 8, /**< the last one: what came from the receiver had a wrong seal (seal.h) */
};

enum {
    TPC_FLAG_FD =
        1, /**< a descriptor travels with the first byte (it is lost where the receiver has no room for one) */
    TPC_FLAG_PAST = 2, /**< VOTE: the leader has ended a step of this name without the sender, who has its verdict */
};

typedef struct {
    uint32_t magic;
    uint16_t kind;
    uint16_t flags;
    uint64_t channel;
    /**
     * VOTE, WITHDRAW: the sender's number of this vote, never 0 and never again the same. VERDICT, PRESENT: the vote
     * that is answered; 0: none, the step has ended without one of the receiver's.
     */
    uint64_t token;
    int32_t status;
    uint32_t text_bytes; /**< less than TPC_ERROR_BYTES; text comes before data */
    uint64_t data_bytes; /**< at most TPC_FRAME_MAX_BYTES */
    uint32_t told; /**< VOTE: how many verdicts without a vote of its own the sender has taken from this channel */
    uint32_t reserved;
    char step[TPC_STEP_BYTES]; /**< terminated */
} tpc_frame_head_t;
static_assert(sizeof(tpc_frame_head_t) == 144, "no padding");

/** Of text and data. */
static inline size_t tpc_frame_body_bytes(const tpc_frame_head_t *head) {
    return head->text_bytes + (size_t)head->data_bytes;
}

#endif
