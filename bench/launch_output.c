/* SPDX-License-Identifier: Apache-2.0 */
#include "launch_output.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LINE_BYTES = 64 << 10, /* a longer line is broken into lines of this length */
    PREFIX_BYTES = 8,      /* "[255] " */
    QUEUE_BYTES = 1 << 20,
    MESSAGE_ROOM = 16 << 10,
    /* What one read can become (nothing but empty lines), and room for the launcher's own messages after it. */
    QUEUE_ROOM = LINE_BYTES * (PREFIX_BYTES + 1) + PREFIX_BYTES + 1 + MESSAGE_ROOM,
};

typedef struct {
    int fd; /* -1: closed */
    int32_t rank;
    int to;
    size_t used;
    char line[LINE_BYTES]; /* the line that has begun */
} stream_t;

typedef struct {
    int fd;
    bool gone; /* the reader closed it: everything for it is dropped */
    size_t start, end;
    char bytes[QUEUE_BYTES];
} queue_t;

struct bench_output {
    queue_t queue[2]; /* stdout, stderr */
    size_t count, capacity;
    stream_t **stream;
    uint64_t moved;
};

bench_output_t *bench_output_new(int32_t ranks) {
    bench_output_t *output = calloc(1, sizeof *output);
    if (!output) return NULL;
    output->capacity = 2 * (size_t)ranks;
    output->stream = calloc(output->capacity, sizeof *output->stream);
    if (!output->stream) {
        free(output);
        return NULL;
    }
    output->queue[0].fd = STDOUT_FILENO;
    output->queue[1].fd = STDERR_FILENO;
    return output;
}

void bench_output_free(bench_output_t *output) {
    if (!output) return;
    for (size_t i = 0; i < output->count; i++) {
        if (output->stream[i]->fd >= 0) close(output->stream[i]->fd);
        free(output->stream[i]);
    }
    free(output->stream);
    free(output);
}

bool bench_output_add(bench_output_t *output, int32_t rank, int to, int fd) {
    stream_t *stream = output->count < output->capacity ? malloc(sizeof *stream) : NULL;
    if (!stream) {
        close(fd);
        return false;
    }
    stream->fd = fd;
    stream->rank = rank;
    stream->to = to;
    stream->used = 0;
    output->stream[output->count++] = stream;
    return true;
}

static size_t queue_room(const queue_t *queue) {
    return QUEUE_BYTES - (queue->end - queue->start);
}

static void queue_put(queue_t *queue, const char *bytes, size_t count) {
    if (queue->gone || count > queue_room(queue)) return;
    if (QUEUE_BYTES - queue->end < count) {
        memmove(queue->bytes, queue->bytes + queue->start, queue->end - queue->start);
        queue->end -= queue->start;
        queue->start = 0;
    }
    memcpy(queue->bytes + queue->end, bytes, count);
    queue->end += count;
}

static void put_line(bench_output_t *output, int32_t rank, int to, const char *line, size_t count) {
    queue_t *queue = &output->queue[to - 1];
    char prefix[PREFIX_BYTES + 8];
    int prefix_bytes = snprintf(prefix, sizeof prefix, "[%d] ", rank);
    queue_put(queue, prefix, (size_t)prefix_bytes);
    queue_put(queue, line, count);
    queue_put(queue, "\n", 1);
}

void bench_output_say(bench_output_t *output, const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (bytes < 0) return;
    size_t count = (size_t)bytes < sizeof line - 1 ? (size_t)bytes : sizeof line - 2;
    line[count++] = '\n';
    queue_put(&output->queue[1], line, count);
}

static void stream_close(bench_output_t *output, stream_t *stream) {
    if (stream->fd < 0) return;
    close(stream->fd);
    stream->fd = -1;
    if (stream->used > 0) put_line(output, stream->rank, stream->to, stream->line, stream->used);
    stream->used = 0;
}

/** Give whole lines to the queue; keep what has no line end yet. */
static void stream_split(bench_output_t *output, stream_t *stream) {
    size_t start = 0;
    while (start < stream->used) {
        const char *end = memchr(stream->line + start, '\n', stream->used - start);
        if (!end) break;
        size_t count = (size_t)(end - stream->line) - start;
        put_line(output, stream->rank, stream->to, stream->line + start, count);
        start += count + 1;
    }
    if (start == 0 && stream->used == LINE_BYTES) {
        put_line(output, stream->rank, stream->to, stream->line, LINE_BYTES);
        start = LINE_BYTES;
    }
    memmove(stream->line, stream->line + start, stream->used - start);
    stream->used -= start;
}

static void stream_read(bench_output_t *output, stream_t *stream) {
    ssize_t got = read(stream->fd, stream->line + stream->used, LINE_BYTES - stream->used);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) {
        stream_close(output, stream);
        return;
    }
    output->moved += (uint64_t)got;
    stream->used += (size_t)got;
    stream_split(output, stream);
}

/** Write one piece: poll promises room for PIPE_BUF bytes and no more. */
static void queue_write(bench_output_t *output, queue_t *queue) {
    size_t count = queue->end - queue->start < PIPE_BUF ? queue->end - queue->start : PIPE_BUF;
    ssize_t written = write(queue->fd, queue->bytes + queue->start, count);
    if (written >= 0) {
        queue->start += (size_t)written;
        if (queue->start == queue->end) queue->start = queue->end = 0;
        return;
    }
    if (errno == EINTR || errno == EAGAIN) return;
    /* The reader is gone. The ranks learn it as they would without us: by SIGPIPE, from pipes that nobody reads. */
    queue->gone = true;
    queue->start = queue->end = 0;
    for (size_t i = 0; i < output->count; i++)
        if (output->stream[i]->to - 1 == (int)(queue - output->queue)) stream_close(output, output->stream[i]);
}

size_t bench_output_poll_set(bench_output_t *output, struct pollfd *fds_p) {
    size_t count = 0;
    for (size_t i = 0; i < output->count; i++) {
        const stream_t *stream = output->stream[i];
        bool wanted = stream->fd >= 0 && queue_room(&output->queue[stream->to - 1]) >= QUEUE_ROOM;
        fds_p[count++] = (struct pollfd){.fd = wanted ? stream->fd : -1, .events = POLLIN};
    }
    for (size_t i = 0; i < 2; i++) {
        const queue_t *queue = &output->queue[i];
        fds_p[count++] = (struct pollfd){.fd = queue->end > queue->start ? queue->fd : -1, .events = POLLOUT};
    }
    return count;
}

void bench_output_serve(bench_output_t *output, const struct pollfd *fds, size_t count) {
    for (size_t i = 0; i < output->count && i < count; i++) {
        stream_t *stream = output->stream[i];
        /* Served only as long as there is room: streams share a queue. */
        if (fds[i].revents && stream->fd >= 0 && queue_room(&output->queue[stream->to - 1]) >= QUEUE_ROOM)
            stream_read(output, stream);
    }
    for (size_t i = 0; i < 2 && output->count + i < count; i++)
        if (fds[output->count + i].revents) queue_write(output, &output->queue[i]);
}

uint64_t bench_output_moved(const bench_output_t *output) {
    return output->moved;
}

bool bench_output_is_full(const bench_output_t *output) {
    for (size_t i = 0; i < output->count; i++) {
        const stream_t *stream = output->stream[i];
        if (stream->fd >= 0 && queue_room(&output->queue[stream->to - 1]) < QUEUE_ROOM) return true;
    }
    return false;
}

bool bench_output_is_reading(const bench_output_t *output) {
    for (size_t i = 0; i < output->count; i++)
        if (output->stream[i]->fd >= 0) return true;
    return false;
}

void bench_output_close(bench_output_t *output) {
    for (size_t i = 0; i < output->count; i++) stream_close(output, output->stream[i]);
}

bool bench_output_is_empty(const bench_output_t *output) {
    return output->queue[0].start == output->queue[0].end && output->queue[1].start == output->queue[1].end;
}
