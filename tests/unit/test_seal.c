/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check the seals on a link's frames: untouched they arrive; any byte that is changed, a frame that is left out, moved,
 * repeated, sent back or taken from another connection is not delivered, nor is anything behind it, the link is broken,
 * and the sender is told.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bootstrap/link.h"
#include "check.h"

enum { FRAMES = 3, ROOM = 4096 };

typedef struct {
    tpc_links_t links;
    int wire; /* what it sends comes out here, and what is put in here comes to it */
} side_t;

static tpc_secret_t secret;
static tpc_greeting_t hello, challenge;

static void draw_nonces(void) {
    memset(&hello, 0, sizeof hello);
    hello.hello.rank = 1;
    hello.hello.size = 2;
    CHECK_OK(tpc_proof_begin(&secret, &hello));
    CHECK(tpc_proof_challenge(&secret, &hello, &challenge));
}

static side_t side_new(bool caller) {
    side_t side;
    tpc_seal_t seal;
    int fds[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    CHECK_OK(tpc_links_init(&side.links, caller ? 1 : 0, 2));
    tpc_seal_begin(&secret, &hello, &challenge, caller, &seal);
    tpc_link_attach(&side.links, caller ? 0 : 1, fds[0], -1, &seal);
    side.wire = fds[1];
    return side;
}

static void side_end(side_t *side) {
    tpc_links_destroy(&side->links);
    close(side->wire);
}

/* Three frames by the caller, as they go over the wire: with a text, with data, with neither. Where each begins. */
static size_t record(side_t *caller, unsigned char wire[ROOM], size_t at[FRAMES + 1]) {
    static const char *const texts[FRAMES] = {"a text", NULL, NULL};
    size_t have = 0;
    for (int i = 0; i < FRAMES; i++) {
        at[i] = have;
        tpc_frame_t *frame =
            tpc_frame_new(TPC_FRAME_VOTE, 7, "a step", TPCOMM_OK, texts[i], "0123456789", i == 1 ? 10 : 0);
        CHECK(frame != NULL);
        CHECK_EQ(tpc_link_send(&caller->links, 0, frame, (uint64_t)i + 1, -1), 0);
        tpc_frame_release(frame);
        ssize_t got = read(caller->wire, wire + have, ROOM - have);
        CHECK(got > 0);
        have += (size_t)got;
    }
    at[FRAMES] = have;
    return have;
}

/* How many frames come through, in their order; then the link is open, or broken by a wrong seal. */
static int deliver(side_t *host, const unsigned char *wire, size_t bytes, bool broken) {
    tpc_mail_t mail;
    int count = 0, err = 0;
    CHECK_EQ(write(host->wire, wire, bytes), (ssize_t)bytes);
    tpc_link_pump(&host->links);
    while (tpc_link_take(&host->links, 1, 7, &mail)) {
        CHECK_EQ(mail.token, (uint64_t)++count);
        tpc_frame_release(mail.frame);
    }
    tpc_link_state_t state = tpc_link_state(&host->links, 1, &err);
    if (broken) {
        CHECK_EQ(state, TPC_LINK_BROKEN);
        CHECK_EQ(err, EBADMSG);
    } else {
        CHECK_EQ(state, TPC_LINK_OPEN);
    }
    return count;
}

static int deliver_once(const unsigned char *wire, size_t bytes, bool broken) {
    side_t host = side_new(false);
    int count = deliver(&host, wire, bytes, broken);
    side_end(&host);
    return count;
}

/* What the host says when it refuses reaches the caller. */
static void check_told(side_t *caller, const unsigned char *wire, size_t bytes) {
    unsigned char answer[ROOM];
    int err = 0;
    side_t host = side_new(false);
    CHECK_EQ(deliver(&host, wire, bytes, true), 0);
    ssize_t got = read(host.wire, answer, sizeof answer);
    CHECK(got > 0);
    CHECK_EQ(write(caller->wire, answer, (size_t)got), got);
    tpc_link_pump(&caller->links);
    CHECK_EQ(tpc_link_state(&caller->links, 0, &err), TPC_LINK_BROKEN);
    CHECK_EQ(err, EKEYREJECTED);
    side_end(&host);
}

int main(void) {
    unsigned char wire[ROOM], changed[ROOM];
    size_t at[FRAMES + 1];
    CHECK_EQ(setenv("TPCOMM_SECRET", "correct horse battery", 1), 0);
    CHECK_OK(tpc_secret_read(&secret));
    draw_nonces();
    side_t caller = side_new(true);
    size_t bytes = record(&caller, wire, at);
    CHECK_EQ(deliver_once(wire, bytes, false), FRAMES);
    int frame = 0;
    for (size_t i = 0; i < bytes; i++) {
        memcpy(changed, wire, bytes);
        changed[i] = (unsigned char)(changed[i] ^ 1u << i % 8);
        if (i == at[frame + 1]) frame++;
        CHECK_EQ(deliver_once(changed, bytes, true), frame);
    }
    /* Left out; moved; repeated. */
    CHECK_EQ(deliver_once(wire + at[1], bytes - at[1], true), 0);
    memcpy(changed, wire + at[1], at[2] - at[1]);
    memcpy(changed + at[2] - at[1], wire, at[1]);
    CHECK_EQ(deliver_once(changed, at[2], true), 0);
    memcpy(changed, wire, at[1]);
    memcpy(changed + at[1], wire, at[1]);
    CHECK_EQ(deliver_once(changed, 2 * at[1], true), 1);
    /* In pieces it is the same. */
    side_t host = side_new(false);
    for (size_t i = 0; i + 1 < bytes; i++) {
        CHECK_EQ(write(host.wire, wire + i, 1), 1);
        tpc_link_pump(&host.links);
    }
    CHECK(tpc_link_peek(&host.links, 1, 7) != NULL);
    side_end(&host);
    check_told(&caller, changed + 1, at[1]);
    side_end(&caller);
    /* Back to whom it came from; and on another connection of the same two. */
    caller = side_new(true);
    (void)record(&caller, wire, at);
    CHECK_EQ(write(caller.wire, wire, at[1]), (ssize_t)at[1]);
    tpc_link_pump(&caller.links);
    int err = 0;
    CHECK_EQ(tpc_link_state(&caller.links, 0, &err), TPC_LINK_BROKEN);
    CHECK_EQ(err, EBADMSG);
    side_end(&caller);
    draw_nonces();
    CHECK_EQ(deliver_once(wire, bytes, true), 0);
    return 0;
}
