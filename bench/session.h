/* SPDX-License-Identifier: Apache-2.0 */
/** One rank's run of a measuring subcommand: the same frame around what each of them measures. */
#ifndef BENCH_SESSION_H
#define BENCH_SESSION_H

#include "manifest.h"

typedef struct {
    const char *command; /**< "sweep" */
    int argc;            /**< of the subcommand */
    char **argv;
    size_t result_bytes; /**< of the result, which begins with a bench_manifest_t */
    uint64_t hash;       /**< of the settings, which ranks of a launcher might have been given differently */
    void *job;           /**< handed to all three: */
    /** Measure. Collective: whatever it returns, no rank of a healthy group is left waiting. */
    tpcomm_status_t (*run)(void *job, tpcomm_t *comm, bench_device_t *device, void *result);
    int (*judge)(void *job, const void *result); /**< on rank 0, once all is well: tell, write, an exit code */
    void (*drop)(void *result);                  /**< free what the result holds; NULL: nothing */
} bench_session_t;

/** Returns an exit code; comm is finalized, or broken for all. */
int bench_session(const bench_session_t *session, tpcomm_t *comm, bench_device_t *device);

#endif
