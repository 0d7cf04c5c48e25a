/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Runs one function on N ranks, as threads of this process or as processes of their own, and fails the test if a rank
 * fails. A hang is ended by the test's own time limit (ctest) and by the op timeout that the config here sets.
 */
#ifndef TPC_TESTS_RANKS_H
#define TPC_TESTS_RANKS_H

#include <stdbool.h>

#include "check.h"

typedef struct {
    tpcomm_t *comm; /**< joined already; the runner destroys it */
    int32_t rank, size;
    bool finalized; /**< set by a test that finalizes itself */
    void *arg;
} rank_t;

typedef void (*rank_fn)(rank_t *rank);

/** Kinds of ranks, for loops over both. */
enum { RANKS_THREADS = 0, RANKS_PROCESSES = 1, RANKS_KINDS = 2 };
const char *ranks_kind_name(int kind);

/** A config with a short op timeout, so that a protocol error is a failure and not a hang. */
tpcomm_config_t ranks_config(void);

/** Join size ranks with config, run fn on each, finalize where the group is healthy, destroy. */
void ranks_run(int kind, int32_t size, const tpcomm_config_t *config, rank_fn fn, void *arg);

/**
 * Fork size processes with the launcher variables of one new job (TPCOMM_RANK, SIZE, LOCAL_SIZE, JOB_ID), run fn in
 * each, and fail the test if one does not exit 0.
 */
void ranks_fork(int32_t size, void (*fn)(int32_t rank, int32_t size, void *arg), void *arg);

/** Set the launcher variables of one rank of a job here. */
void ranks_set_env(int32_t rank, int32_t size, const char *job);

/**
 * A new TPCOMM_ROOT for ranks that say they are on several hosts: a port of the loopback, held by a socket that does
 * not listen, so that nobody else is given it, until the next is asked for. Static.
 */
const char *ranks_hold_root(void);

/** Set TPCOMM_TEST_HOOKS (base/hook.h) for this process and the ones it will fork; "": none. */
void ranks_set_hooks(const char *hooks);

/** Wait until a rank has begun its device call of this number; until the group has failed. A minute is for ever. */
void ranks_await_call(tpcomm_t *comm, int32_t rank, uint64_t seq);
void ranks_await_failure(tpcomm_t *comm);

/** Open descriptors, mappings and threads of this process, to compare before and after. */
typedef struct {
    int fds, maps, threads;
} resources_t;
resources_t resources_now(void);
void resources_check_equal(resources_t before, const char *what);

/** Seeded random numbers (splitmix64). */
uint64_t random_next(uint64_t *state);

#endif
