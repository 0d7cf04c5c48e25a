/* SPDX-License-Identifier: Apache-2.0 */
#include "launch_env.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/** Variables by which launchers tell a process who it is; a trailing '*' stands for any ending. Inherited, they would
 * contradict ours. */
static const char *const launcher_variables[] = {
    "TPCOMM_RANK", "TPCOMM_SIZE", "TPCOMM_LOCAL_RANK", "TPCOMM_LOCAL_SIZE", "TPCOMM_ROOT", "TPCOMM_BIND",
    "TPCOMM_JOB_ID",
    /* torchrun */
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_*",
    /* Open MPI, PRRTE */
    "OMPI_COMM_WORLD_*", "OMPI_UNIVERSE_SIZE", "OMPI_FIRST_RANKS", "OMPI_APP_CTX_NUM_PROCS", "PMIX_*",
    /* MPICH, Intel MPI, MVAPICH */
    "PMI_*", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "MPIR_*", "MV2_COMM_WORLD_*", "HYDI_CONTROL_FD",
    /* Slurm */
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE",
    "SLURM_STEP_*", "SLURM_NTASKS_PER_NODE"};

static const char *const size_variables[] = {"TPCOMM_SIZE", "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};

int bench_job_id_make(char job_id_p[BENCH_JOB_ID_BYTES]) {
    unsigned char bytes[(BENCH_JOB_ID_BYTES - 1) / 2];
    size_t have = 0;
    while (have < sizeof bytes) {
        ssize_t got = getrandom(bytes + have, sizeof bytes - have, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        have += (size_t)got;
    }
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(job_id_p + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

static bool is_launcher_variable(const char *entry) {
    size_t name_bytes = strcspn(entry, "=");
    for (size_t i = 0; i < sizeof launcher_variables / sizeof launcher_variables[0]; i++) {
        const char *pattern = launcher_variables[i];
        size_t bytes = strlen(pattern);
        if (pattern[bytes - 1] == '*') {
            if (name_bytes >= bytes - 1 && memcmp(entry, pattern, bytes - 1) == 0) return true;
        } else if (name_bytes == bytes && memcmp(entry, pattern, bytes) == 0) {
            return true;
        }
    }
    return false;
}

void bench_rank_env_free(char **env) {
    if (!env) return;
    for (char **entry = env; *entry; entry++) free(*entry);
    free(env);
}

char **bench_rank_env_new(int32_t rank, int32_t ranks, const char *job_id) {
    enum { OURS = 5 };
    size_t inherited = 0, used = 0;
    while (environ[inherited]) inherited++;
    char **env = calloc(inherited + OURS + 1, sizeof *env);
    if (!env) return NULL;
    for (size_t i = 0; i < inherited; i++) {
        if (is_launcher_variable(environ[i])) continue;
        env[used] = strdup(environ[i]);
        if (!env[used++]) goto fail;
    }
    const struct {
        const char *name;
        int32_t value;
    } numbers[] = {
        {"TPCOMM_RANK", rank}, {"TPCOMM_SIZE", ranks}, {"TPCOMM_LOCAL_RANK", rank}, {"TPCOMM_LOCAL_SIZE", ranks}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++, used++) {
        if (asprintf(&env[used], "%s=%d", numbers[i].name, numbers[i].value) < 0) {
            env[used] = NULL;
            goto fail;
        }
    }
    if (asprintf(&env[used], "TPCOMM_JOB_ID=%s", job_id) < 0) {
        env[used] = NULL;
        goto fail;
    }
    return env;
fail:
    bench_rank_env_free(env);
    return NULL;
}

/** A number of ranks as launchers write it; 0 for anything else. */
static int64_t parse_size(const char *text) {
    int64_t value = 0;
    if (!*text) return 0;
    for (; *text; text++) {
        if (!isdigit((unsigned char)*text) || value > INT32_MAX) return 0;
        value = value * 10 + (*text - '0');
    }
    return value;
}

int64_t bench_launcher_size(const char **variable_p) {
    int64_t greatest = 0;
    for (size_t i = 0; i < sizeof size_variables / sizeof size_variables[0]; i++) {
        const char *text = getenv(size_variables[i]);
        int64_t size = text ? parse_size(text) : 0;
        if (size <= greatest) continue;
        greatest = size;
        *variable_p = size_variables[i];
    }
    /* A Slurm allocation sets SLURM_NTASKS for the batch script too; only srun's tasks are ranks, and only they have a
     * step. */
    const char *tasks = getenv("SLURM_STEP_NUM_TASKS");
    int64_t size = tasks && getenv("SLURM_PROCID") ? parse_size(tasks) : 0;
    if (size > greatest) {
        greatest = size;
        *variable_p = "SLURM_STEP_NUM_TASKS";
    }
    return greatest;
}
