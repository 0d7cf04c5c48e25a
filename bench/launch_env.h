/* SPDX-License-Identifier: Apache-2.0 */
/** What a launcher says in the environment: read it, or say it to a rank. */
#ifndef BENCH_LAUNCH_ENV_H
#define BENCH_LAUNCH_ENV_H

#include <stddef.h>
#include <stdint.h>

#define BENCH_JOB_ID_BYTES 33

/** A random name for one job: 32 hex digits. Returns 0, or errno. */
int bench_job_id_make(char job_id_p[BENCH_JOB_ID_BYTES]);

/**
 * A copy of our environment for one rank: every launcher's variables taken out, TPCOMM_RANK, SIZE, LOCAL_RANK,
 * LOCAL_SIZE and JOB_ID put in. NULL: no memory. Freed by bench_rank_env_free.
 */
char **bench_rank_env_new(int32_t rank, int32_t ranks, const char *job_id);
void bench_rank_env_free(char **env);

/**
 * The greatest number of ranks that a launcher's variable names, and that variable; 0 where none says a number. Only
 * tells one rank of many from a program that was started by hand; what the variables mean is the library's to say.
 */
int64_t bench_launcher_size(const char **variable_p);

#endif
