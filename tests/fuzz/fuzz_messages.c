/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What other processes send to a rank that meets or votes: greetings, as a lobby takes them (with and without a
 * secret), and frames on a link. The first byte says which, the second in pieces of how many bytes they come.
 */
#include <string.h>
#include <sys/socket.h>

#include "bootstrap/internal.h"
#include "fuzz.h"

/* A few bytes at a time, as a network may bring them. */
static void send_piece(int fd, const uint8_t **data, size_t *size, size_t piece) {
    size_t now = piece < *size ? piece : *size;
    if (now > 0 && send(fd, *data, now, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)now) now = *size;
    *data += now;
    *size -= now;
}

static void greet(const uint8_t *data, size_t size, size_t piece, bool with_secret) {
    static int number;
    char name[TPC_UNIX_NAME_BYTES];
    tpc_lobby_t lobby;
    int listener, fd;
    snprintf(name, sizeof name, "tpcomm-fuzz-%d-%d", (int)getpid(), number++);
    if (tpc_lobby_open(&lobby, TPC_HELLO_JOIN) != TPCOMM_OK) abort();
    if (with_secret) {
        if (setenv("TPCOMM_SECRET", "sixteen bytes at least", 1) != 0) abort();
        if (tpc_secret_read(&lobby.secret) != TPCOMM_OK) abort();
        unsetenv("TPCOMM_SECRET");
    }
    if (tpc_unix_listen(name, &listener) != 0) abort();
    if (tpc_lobby_listen(&lobby, listener, true) != TPCOMM_OK) abort();
    if (tpc_unix_connect(name, &fd) != 0) abort();
    do {
        tpc_guest_t guest;
        send_piece(fd, &data, &size, piece);
        while (tpc_lobby_next(&lobby, &guest)) {
            if (with_secret && guest.proof == TPC_PROOF_RIGHT) abort(); /* nobody here knows it */
            tpc_guest_end(&guest);
        }
    } while (size > 0);
    close(fd);
    tpc_lobby_close(&lobby);
}

/* sealed: nobody here has the keys, so nothing may come through. */
static void frames(const uint8_t *data, size_t size, size_t piece, bool sealed) {
    tpc_links_t links;
    const tpc_seal_t seal = {.set = sealed, .send_key = {1}, .receive_key = {2}};
    int fds[2];
    if (tpc_links_init(&links, 0, 2) != TPCOMM_OK) abort();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) abort();
    tpc_link_attach(&links, 1, fds[0], -1, &seal);
    do {
        send_piece(fds[1], &data, &size, piece);
        tpc_link_pump(&links);
        for (uint64_t channel = 0; channel < 3; channel++) {
            tpc_mail_t mail;
            char text[TPC_ERROR_BYTES];
            while (tpc_link_take(&links, 1, channel, &mail)) {
                if (sealed) abort();
                tpc_frame_text(mail.frame, text);
                if (mail.fd >= 0) close(mail.fd);
                tpc_frame_release(mail.frame);
            }
        }
    } while (size > 0);
    close(fds[1]);
    tpc_link_pump(&links);
    tpc_links_destroy(&links);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    size_t piece = data[1] == 0 ? 4096 : data[1];
    if (size / piece > 64) piece = size / 64 + 1;
    if (data[0] % 3 == 2)
        frames(data + 2, size - 2, piece, data[0] >= 128);
    else
        greet(data + 2, size - 2, piece, data[0] % 3 == 1);
    return 0;
}
