/* SPDX-License-Identifier: Apache-2.0 */
/* Variables: one value for each kind of ours, and what launchers set, of which a rank is made. Lines "NAME=value". */
#include <string.h>

#include "base/env.h"
#include "base/pattern.h"
#include "bootstrap/bootstrap.h"
#include "fuzz.h"

static const char *const names[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "TORCHELASTIC_RUN_ID",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_STEP_ID",
                                    "SLURM_NODEID",
                                    "SLURM_STEP_TASKS_PER_NODE",
                                    "TPCOMM_RANK",
                                    "TPCOMM_SIZE",
                                    "TPCOMM_ROOT",
                                    "TPCOMM_JOB_ID",
                                    "TPCOMM_HOST_ID"};
#define NAMES (sizeof names / sizeof names[0])

static void set_all(char *text) {
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char *equals = strchr(line, '=');
        if (equals == NULL) continue;
        *equals = '\0';
        for (size_t i = 0; i < NAMES; i++)
            if (strcmp(line, names[i]) == 0) setenv(line, equals + 1, 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tpc_env_t env;
    tpc_rank_env_t rank_env;
    char path[256];
    char *text = malloc(size + 1);
    if (text == NULL) abort();
    memcpy(text, data, size);
    text[size] = '\0';
    for (int id = 0; id < TPC_ENV_COUNT; id++) {
        tpc_env_value_t value;
        (void)tpc_env_parse((tpc_env_id_t)id, text, &value);
    }
    (void)tpc_pattern_expand("TPCOMM_LOG_FILE", text, 3, path, sizeof path);
    for (size_t i = 0; i < NAMES; i++) unsetenv(names[i]);
    set_all(text);
    if (tpc_env_read(&env) == TPCOMM_OK && tpc_rank_env_read(&env, &rank_env) == TPCOMM_OK &&
        (rank_env.size < 1 || rank_env.size > TPCOMM_MAX_RANKS))
        abort();
    free(text);
    return 0;
}
