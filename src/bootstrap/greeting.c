/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/greeting.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hook.h"
#include "bootstrap/host.h"
#include "bootstrap/net.h"

uint32_t tpc_library_version(void) {
    return (uint32_t)tpc_hook_value("library_version", TPCOMM_VERSION_NUMBER);
}

const char *tpc_version_text(uint32_t version, char text[32]) {
    snprintf(text, 32, "%u.%u.%u", version / 10000, version / 100 % 100, version % 100);
    return text;
}

tpcomm_status_t tpc_self_fill(int32_t rank, int32_t size, const char *host_id, tpc_self_t *self_p) {
    tpc_self_t self = {.rank = rank, .size = size};
    tpcomm_status_t status = tpc_process_token(&self.process);
    if (status != TPCOMM_OK) return status;
    snprintf(self.host_id, sizeof self.host_id, "%s", host_id);
    *self_p = self;
    return TPCOMM_OK;
}

void tpc_greeting_fill(const tpc_self_t *self, uint16_t kind, uint64_t job, tpc_greeting_t *greeting_p) {
    memset(greeting_p, 0, sizeof *greeting_p);
    memcpy(greeting_p->hello.magic, TPC_WIRE_MAGIC, sizeof greeting_p->hello.magic);
    greeting_p->hello.wire_version = TPC_WIRE_VERSION;
    greeting_p->hello.kind = kind;
    greeting_p->hello.tpcomm_version = tpc_library_version();
    greeting_p->hello.rank = self->rank;
    greeting_p->hello.size = self->size;
    greeting_p->hello.job = job;
    greeting_p->process = self->process;
    greeting_p->pid = (int32_t)getpid();
    memcpy(greeting_p->host_id, self->host_id, sizeof greeting_p->host_id);
}

int tpc_greeting_send(int fd, const tpc_greeting_t *greeting, const char *text, int passed_fd) {
    tpc_greeting_t whole = *greeting;
    size_t text_bytes = strnlen(text, TPC_ERROR_BYTES - 1);
    whole.text_bytes = (uint32_t)text_bytes;
    struct iovec pieces[2] = {{.iov_base = &whole, .iov_len = sizeof whole},
                              {.iov_base = (void *)(uintptr_t)text, .iov_len = text_bytes}};
    ssize_t sent = tpc_net_send(fd, pieces, 2, passed_fd);
    if (sent < 0) return errno;
    return (size_t)sent == sizeof whole + text_bytes ? 0 : EMSGSIZE;
}

void tpc_greeting_reader_start(tpc_greeting_reader_t *reader) {
    memset(reader, 0, sizeof *reader);
    reader->passed_fd = -1;
}

void tpc_greeting_reader_end(tpc_greeting_reader_t *reader) {
    if (reader->passed_fd >= 0) close(reader->passed_fd);
    tpc_greeting_reader_start(reader);
}

tpc_read_t tpc_greeting_read(tpc_greeting_reader_t *reader, int fd) {
    tpc_greeting_t *greeting = &reader->greeting;
    while (reader->have < sizeof *greeting) {
        /* The hello is read alone first: what follows it may have another length in another version. */
        size_t want = reader->have < sizeof greeting->hello ? sizeof greeting->hello : sizeof *greeting;
        ssize_t got = tpc_net_recv(fd, (char *)greeting + reader->have, want - reader->have, &reader->passed_fd);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return TPC_READ_MORE;
        if (got <= 0) return TPC_READ_CLOSED;
        reader->have += (size_t)got;

        size_t magic = sizeof greeting->hello.magic;
        if (memcmp(greeting->hello.magic, TPC_WIRE_MAGIC, reader->have < magic ? reader->have : magic) != 0)
            return TPC_READ_STRANGER;
        if (reader->have == sizeof greeting->hello && (greeting->hello.wire_version != TPC_WIRE_VERSION ||
                                                       greeting->hello.tpcomm_version != tpc_library_version()))
            return TPC_READ_VERSION;
    }
    bool sane = memchr(greeting->host_id, '\0', sizeof greeting->host_id) && greeting->text_bytes < TPC_ERROR_BYTES;
    return sane ? TPC_READ_DONE : TPC_READ_STRANGER;
}
