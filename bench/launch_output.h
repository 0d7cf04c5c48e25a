/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Output of many ranks onto one stdout and one stderr, line by line. Nothing here blocks: what the reader does not take
 * waits in a bounded queue, and when that is full the ranks are no longer read, so they wait as they would for a pipe
 * of their own.
 */
#ifndef BENCH_LAUNCH_OUTPUT_H
#define BENCH_LAUNCH_OUTPUT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_output bench_output_t;

/** Output of `ranks` ranks; NULL: no memory. SIGPIPE must be ignored. */
bench_output_t *bench_output_new(int32_t ranks);
void bench_output_free(bench_output_t *output);

/** Read a rank's stdout (to == 1) or stderr (to == 2) from fd, which is ours from now on. false: no memory, fd is
 * closed. */
bool bench_output_add(bench_output_t *output, int32_t rank, int to, int fd);

/** A message of the launcher itself: one whole line on stderr. */
void bench_output_say(bench_output_t *output, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** Descriptors to poll, at most 2 * ranks + 2; returns how many. */
size_t bench_output_poll_set(bench_output_t *output, struct pollfd *fds_p);
/** Read and write what poll says is ready; takes the same array. */
void bench_output_serve(bench_output_t *output, const struct pollfd *fds, size_t count);

/** Whether a rank's pipe is still open. */
bool bench_output_is_reading(const bench_output_t *output);
/** Bytes that have come from the ranks. */
uint64_t bench_output_moved(const bench_output_t *output);
/** Whether a rank's pipe waits for the reader of what came before. */
bool bench_output_is_full(const bench_output_t *output);
/** Stop reading: what came in so far, also half lines, goes to the queue as far as that has room. */
void bench_output_close(bench_output_t *output);
/** Whether everything queued has been written. */
bool bench_output_is_empty(const bench_output_t *output);

#endif
