/* SPDX-License-Identifier: Apache-2.0 */
/** The first thing each side of a connection sends: who it is and what it wants (wire.h). */
#ifndef TPC_BOOTSTRAP_GREETING_H
#define TPC_BOOTSTRAP_GREETING_H

#include "bootstrap/proof.h"
#include "bootstrap/wire.h"

/** Who sends greetings: the same in all of one rank's. */
typedef struct {
    int32_t rank, size;
    uint64_t process; /**< tpc_process_token */
    char host_id[TPC_HOST_ID_BYTES];
    tpc_secret_t secret;
} tpc_self_t;

/** This rank. Fails: IO. */
tpcomm_status_t tpc_self_fill(int32_t rank, int32_t size, const char *host_id, tpc_self_t *self_p);

/** This library's version; a test's hook can make it another. */
uint32_t tpc_library_version(void);

void tpc_greeting_fill(const tpc_self_t *self, uint16_t kind, uint64_t job, tpc_greeting_t *greeting_p);

/** Send a greeting and a text (may be ""), all or nothing: sockets are fresh, so there is room. Returns 0 or an errno
 * value. */
int tpc_greeting_send(int fd, const tpc_greeting_t *greeting, const char *text, int passed_fd);

/** Reads one greeting, in as many pieces as it comes. */
typedef struct {
    size_t have;
    int passed_fd; /**< came along; -1 if none. Whoever takes the greeting closes it. */
    tpc_greeting_t greeting;
} tpc_greeting_reader_t;

typedef enum {
    TPC_READ_MORE, /**< not complete yet */
    TPC_READ_DONE,
    TPC_READ_VERSION,  /**< from another version of the library; only greeting.hello is filled */
    TPC_READ_CLOSED,   /**< the other side closed or reset the connection before its greeting was complete */
    TPC_READ_STRANGER, /**< it does not speak this protocol */
} tpc_read_t;

void tpc_greeting_reader_start(tpc_greeting_reader_t *reader);
tpc_read_t tpc_greeting_read(tpc_greeting_reader_t *reader, int fd);
/** Close what came along; the reader may be started again. */
void tpc_greeting_reader_end(tpc_greeting_reader_t *reader);

/** "0.1.0" from a version number. Returns text. */
const char *tpc_version_text(uint32_t version, char text[32]);

#endif
