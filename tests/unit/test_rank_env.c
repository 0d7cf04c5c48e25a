/* SPDX-License-Identifier: Apache-2.0 */
/* Check that the variables of each launcher, complete, partial and contradicting, give the right rank or an error that
 * names them. */
#include <sys/socket.h>

#include "base/text.h"
#include "unit/bootstrap_job.h"

static tpc_rank_env_t found;

/** Set exactly these variables ("NAME=value NAME=value") and read. */
static tpcomm_status_t read_with(const char *variables) {
    static tpc_env_t env;
    char text[1024], *rest = NULL;
    job_clean_environment();
    snprintf(text, sizeof text, "%s", variables);
    for (char *one = strtok_r(text, " ", &rest); one; one = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(one, '=');
        *value++ = '\0';
        setenv(one, value, 1);
    }
    memset(&found, 0x55, sizeof found);
    tpcomm_status_t status = tpc_env_read(&env);
    return status == TPCOMM_OK ? tpc_rank_env_read(&env, &found) : status;
}

static void check_complete(void) {
    static const struct {
        const char *variables;
        int32_t rank, size, local_rank, local_size;
        const char *used;
    } rows[] = {
        {"TPCOMM_RANK=1 TPCOMM_SIZE=3", 1, 3, -1, 0, "TPCOMM: TPCOMM_RANK=1 TPCOMM_SIZE=3"},
        {"TPCOMM_RANK=5 TPCOMM_SIZE=8 TPCOMM_LOCAL_RANK=1 TPCOMM_LOCAL_SIZE=4", 5, 8, 1, 4, "TPCOMM_LOCAL_SIZE=4"},
        {"RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2", 3, 4, 1, 2,
         "torchrun: RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2"},
        {"RANK=1 WORLD_SIZE=2", 1, 2, -1, 0, "torchrun: RANK=1 WORLD_SIZE=2"},
        {"OMPI_COMM_WORLD_RANK=7 OMPI_COMM_WORLD_SIZE=8 OMPI_COMM_WORLD_LOCAL_RANK=3 OMPI_COMM_WORLD_LOCAL_SIZE=4", 7,
         8, 3, 4, "Open MPI: OMPI_COMM_WORLD_RANK=7"},
        {"PMI_RANK=2 PMI_SIZE=4 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2", 2, 4, 0, 2, "PMI: PMI_RANK=2 PMI_SIZE=4"},
        {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_LOCALID=1 SLURM_STEP_ID=0 SLURM_NNODES=1", 1, 2, 1, 2,
         "Slurm: SLURM_PROCID=1"},
        {"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_ID=3", 1, 2, -1, 0, "SLURM_STEP_NUM_TASKS=2"},
        {"SLURM_PROCID=5 SLURM_NTASKS=7 SLURM_STEP_ID=0 SLURM_LOCALID=1 SLURM_NODEID=2 "
         "SLURM_STEP_TASKS_PER_NODE=2(x3),1",
         5, 7, 1, 2, "Slurm"},
        {"SLURM_PROCID=6 SLURM_NTASKS=7 SLURM_STEP_ID=0 SLURM_LOCALID=0 SLURM_NODEID=3 "
         "SLURM_STEP_TASKS_PER_NODE=2(x3),1",
         6, 7, 0, 1, "Slurm"},
        {"SLURM_PROCID=6 SLURM_NTASKS=8 SLURM_STEP_ID=0 SLURM_NTASKS_PER_NODE=4", 6, 8, -1, 4, "Slurm"},
        /* An explicit set goes before all others, and its parts go with any set. */
        {"TPCOMM_RANK=0 TPCOMM_SIZE=2 RANK=1 WORLD_SIZE=4 PMI_RANK=7 PMI_SIZE=9", 0, 2, -1, 0, "TPCOMM:"},
        {"RANK=1 WORLD_SIZE=4 TPCOMM_LOCAL_SIZE=2 TPCOMM_LOCAL_RANK=1", 1, 4, 1, 2, "torchrun: RANK=1"},
        /* mpirun in an sbatch script, and on a node where srun started its daemon. */
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 SLURM_PROCID=0 SLURM_NTASKS=8", 1, 4, -1, 0, "Open MPI"},
        {"PMI_RANK=1 PMI_SIZE=4 SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0", 1, 4, -1, 0, "PMI"},
        /* torchrun under srun or mpirun: its own mark shows that it is the inner one. */
        {"RANK=9 WORLD_SIZE=16 LOCAL_RANK=1 LOCAL_WORLD_SIZE=8 TORCHELASTIC_RUN_ID=x SLURM_PROCID=1 SLURM_NTASKS=2 "
         "SLURM_STEP_ID=0",
         9, 16, 1, 8, "torchrun"},
        {"RANK=9 WORLD_SIZE=16 TORCHELASTIC_RUN_ID=x OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", 9, 16, -1, 0,
         "torchrun"},
        /* Two names for one thing. */
        {"RANK=1 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", 1, 2, -1, 0, "torchrun"},
        /* A set that is begun does not stop a complete one; an empty value is unset. */
        {"RANK=1 PMI_RANK=2 PMI_SIZE=3", 2, 3, -1, 0, "PMI"},
        {"TPCOMM_RANK=1 RANK=0 WORLD_SIZE=2", 0, 2, -1, 0, "torchrun"},
        {"RANK= WORLD_SIZE= PMI_RANK=0 PMI_SIZE=1", 0, 1, -1, 0, "PMI"},
        /* Not in the world: left to the meeting, which tells the others. */
        {"RANK=5 WORLD_SIZE=3", 5, 3, -1, 0, "torchrun"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tpcomm_status_t status = read_with(rows[i].variables);
        if (status != TPCOMM_OK) FAIL("%s: %s: %s", rows[i].variables, tpcomm_status_name(status), tpcomm_last_error());
        if (found.rank != rows[i].rank || found.size != rows[i].size || found.local_rank != rows[i].local_rank ||
            found.local_size != rows[i].local_size)
            FAIL("%s: got %d of %d, local %d of %d", rows[i].variables, found.rank, found.size, found.local_rank,
                 found.local_size);
        if (!strstr(found.used, rows[i].used))
            FAIL("%s: \"%s\" is not in \"%s\"", rows[i].variables, rows[i].used, found.used);
        CHECK(found.host_id[0] != '\0');
    }
}

static void check_refused(void) {
    static const struct {
        const char *variables, *piece, *other_piece;
    } rows[] = {
        {"", "tpcomm-bench run -n 2 -- ./program", "no launcher"},
        {"RANK=0", "WORLD_SIZE is not", "torchrun"},
        {"WORLD_SIZE=2", "RANK is not", "torchrun"},
        {"TPCOMM_RANK=0", "TPCOMM_SIZE is not", "tpcomm-bench run"},
        {"TPCOMM_SIZE=2", "TPCOMM_RANK is not", "tpcomm-bench run"},
        {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK is not", "Open MPI"},
        {"PMI_RANK=1", "PMI_SIZE is not", "PMI"},
        {"RANK=0 PMI_RANK=1", "WORLD_SIZE is not", "PMI_SIZE is not"},
        /* The batch script's own shell, an interactive one: not a task, not a world of one. */
        {"SLURM_PROCID=0 SLURM_NTASKS=8", "srun", "SLURM_STEP_ID"},
        {"SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_ID=4294967291", "srun", "SLURM_STEP_ID"},
        {"SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_ID=batch", "srun", "SLURM_STEP_ID"},
        {"SLURM_NTASKS=8", "no launcher", "srun"},
        /* Bare RANK and WORLD_SIZE against a launcher's. */
        {"RANK=0 WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", "RANK=0 WORLD_SIZE=1",
         "OMPI_COMM_WORLD_RANK=1"},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 PMI_RANK=0 PMI_SIZE=2", "OMPI_COMM_WORLD_RANK=1", "PMI_RANK=0"},
        /* Numbers. */
        {"RANK=x WORLD_SIZE=2", "RANK='x'", "whole number"},
        {"RANK=-1 WORLD_SIZE=2", "RANK='-1'", "whole number"},
        {"RANK=0 WORLD_SIZE=2x", "WORLD_SIZE='2x'", "whole number"},
        {"RANK=0 WORLD_SIZE=99999999999999999999", "WORLD_SIZE", "whole number"},
        {"RANK=0 WORLD_SIZE=+2", "WORLD_SIZE='+2'", "whole number"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=zero", "LOCAL_RANK='zero'", "whole number"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=http", "MASTER_PORT='http'", "whole number"},
        {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=65536", "MASTER_PORT=65536", "65535"},
        {"TPCOMM_RANK=-1 TPCOMM_SIZE=2", "TPCOMM_RANK", "-1"},
        {"RANK=0 WORLD_SIZE=0", "not 0", "1 to 32"},
        {"RANK=0 WORLD_SIZE=33", "not 33", "WORLD_SIZE=33"},
        {"TPCOMM_RANK=0 TPCOMM_SIZE=33", "not 33", "TPCOMM_SIZE=33"},
        /* One set against itself. */
        {"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3", "3 ranks on this host", "LOCAL_WORLD_SIZE=3"},
        {"RANK=0 WORLD_SIZE=4 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2", "local rank 2", "LOCAL_RANK=2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tpcomm_status_t status = read_with(rows[i].variables);
        if (status != TPCOMM_ERR_CONFIG) FAIL("%s: %s", rows[i].variables, tpcomm_status_name(status));
        if (!strstr(tpcomm_last_error(), rows[i].piece) || !strstr(tpcomm_last_error(), rows[i].other_piece))
            FAIL("%s: want \"%s\" and \"%s\" in: %s", rows[i].variables, rows[i].piece, rows[i].other_piece,
                 tpcomm_last_error());
        CHECK_EQ(found.rank, 0x55555555); /* written only on success */
    }
}

/** The text of the job is the same for two ranks of a job, and another one for another job. */
static void check_job(const char *one, const char *other, bool same) {
    char job[sizeof found.job];
    CHECK_OK(read_with(one));
    memcpy(job, found.job, sizeof job);
    CHECK_OK(read_with(other));
    if ((strcmp(job, found.job) == 0) != same) FAIL("\"%s\" and \"%s\" for %s and %s", job, found.job, one, other);
}

static void check_jobs(void) {
    check_job("TPCOMM_RANK=0 TPCOMM_SIZE=2", "TPCOMM_RANK=1 TPCOMM_SIZE=2", true);
    check_job("TPCOMM_RANK=0 TPCOMM_SIZE=2", "TPCOMM_RANK=1 TPCOMM_SIZE=3", true); /* they must meet to be told */
    check_job("TPCOMM_RANK=0 TPCOMM_SIZE=2 TPCOMM_JOB_ID=a", "TPCOMM_RANK=0 TPCOMM_SIZE=2 TPCOMM_JOB_ID=b", false);
    check_job("TPCOMM_RANK=0 TPCOMM_SIZE=2 TPCOMM_ROOT=h:1", "TPCOMM_RANK=0 TPCOMM_SIZE=2 TPCOMM_ROOT=h:2", false);
    check_job("RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", "RANK=1 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1",
              true);
    check_job("RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=2",
              false);
    check_job("RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=a", "RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=b", false);
    check_job("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RESTART_COUNT=0",
              "RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RESTART_COUNT=1", false);
    /* Across hosts each agent counts for itself. */
    check_job("RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 TORCHELASTIC_RESTART_COUNT=0",
              "RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 TORCHELASTIC_RESTART_COUNT=1", true);
    check_job("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=1.1",
              "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_NAMESPACE=2.1", false);
    check_job("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_JOB_ID=7",
              "SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=1 SLURM_JOB_ID=7", false);

    char one[600], other[600], id[400];
    memset(id, 'x', sizeof id - 1);
    id[sizeof id - 1] = '\0';
    snprintf(one, sizeof one, "RANK=0 WORLD_SIZE=2 TPCOMM_JOB_ID=%s1", id);
    snprintf(other, sizeof other, "RANK=0 WORLD_SIZE=2 TPCOMM_JOB_ID=%s2", id);
    check_job(one, other, false);
}

/** MPICH's launcher names no job; the socket that each rank has from it tells whose rank it is. */
static void check_proxy(void) {
    int ends[2];
    char variables[128], want[32];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    snprintf(variables, sizeof variables, "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=2 PMI_FD=%d", ends[0]);
    CHECK_OK(read_with(variables));
    snprintf(want, sizeof want, "proxy %d", (int)getpid());
    CHECK(strstr(found.job, want));
    close(ends[0]);
    close(ends[1]);
    CHECK_OK(read_with(variables)); /* gone, or no socket: no name, no error */
    CHECK(!strstr(found.job, want));
    CHECK_OK(read_with("PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=2 PMI_FD=x"));
}

static void check_addresses(void) {
    CHECK_OK(read_with(
        "RANK=0 WORLD_SIZE=2 MASTER_ADDR=node1 MASTER_PORT=29500 TPCOMM_ROOT=[fd00::1]:7 TPCOMM_BIND=10.0.0.1"));
    CHECK(strcmp(found.root, "[fd00::1]:7") == 0);
    CHECK(strcmp(found.root_host, "node1") == 0);
    CHECK_EQ(found.root_base_port, 29500);
    CHECK(strcmp(found.bind, "10.0.0.1") == 0);
    CHECK_OK(read_with("RANK=0 WORLD_SIZE=2 MASTER_ADDR=node1"));
    CHECK(found.root_host[0] == '\0' && found.root_base_port == 0 && found.root[0] == '\0');
    CHECK_OK(read_with("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_STEP_ID=0 MASTER_ADDR=n MASTER_PORT=1"));
    CHECK(strcmp(found.root_host, "n") == 0);
}

static void check_host_identity(void) {
    tpc_env_t env;
    char mine[64], again[64], given[64];
    job_clean_environment();
    CHECK_OK(tpc_env_read(&env));
    tpc_host_identity(&env, mine);
    tpc_host_identity(&env, again);
    CHECK(strlen(mine) > 8 && strcmp(mine, again) == 0);
    setenv("TPCOMM_HOST_ID", "A", 1);
    CHECK_OK(tpc_env_read(&env));
    tpc_host_identity(&env, given);
    CHECK(strcmp(given, "A") == 0);

    char text[200];
    memset(text, 'h', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    setenv("TPCOMM_HOST_ID", text, 1);
    CHECK_OK(tpc_env_read(&env));
    tpc_host_identity(&env, mine);
    text[sizeof text - 2] = 'i';
    setenv("TPCOMM_HOST_ID", text, 1);
    CHECK_OK(tpc_env_read(&env));
    tpc_host_identity(&env, again);
    CHECK(strlen(mine) == 63 && strlen(again) == 63 && strcmp(mine, again) != 0);

    /* It stands in texts, so nothing of it may be more than text; and two that then read alike stay two. */
    setenv("TPCOMM_HOST_ID", "one\ntwo\x1b[31m", 1);
    CHECK_OK(tpc_env_read(&env));
    tpc_host_identity(&env, mine);
    setenv("TPCOMM_HOST_ID", "one\ttwo\x1b[31m", 1);
    CHECK_OK(tpc_env_read(&env));
    tpc_host_identity(&env, again);
    CHECK(strncmp(mine, "one?two?[31m~", 13) == 0 && strncmp(again, mine, 13) == 0 && strcmp(mine, again) != 0);
    memset(text, 'h', sizeof text - 1);
    for (int i = 1; i + 1 < 100; i += 2) memcpy(text + i, "\xc3\xa4", 2); /* a cut falls into a character */
    setenv("TPCOMM_HOST_ID", text, 1);
    CHECK_OK(tpc_env_read(&env));
    tpc_host_identity(&env, mine);
    for (size_t i = 0; mine[i] != '\0';) {
        size_t bytes = tpc_text_utf8(mine + i, strlen(mine + i));
        CHECK(bytes > 0);
        i += bytes;
    }
}

/** Ranks on several hosts without a place to meet: an error that says what to set, before anything is waited for. */
static void check_no_address(void) {
    tpc_bootstrap_t *bootstrap;
    tpc_deadline_t deadline = tpc_deadline_in(60000, NULL, NULL);
    uint64_t start_ns = tpc_clock_ns();
    CHECK_OK(read_with("RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1"));
    CHECK_STATUS(tpc_bootstrap_meet_env(&found, &deadline, &bootstrap), TPCOMM_ERR_CONFIG);
    CHECK_ERROR_HAS("TPCOMM_ROOT");
    CHECK_ERROR_HAS("LOCAL_WORLD_SIZE=1");
    static const char *const wrong[] = {"host",    "host:",     ":1",        "host:0", "host:65536",
                                        "host:1x", "fd00::1:1", "[fd00::1]", "[]:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char variables[128];
        snprintf(variables, sizeof variables, "RANK=0 WORLD_SIZE=2 TPCOMM_ROOT=%s", wrong[i]);
        CHECK_OK(read_with(variables));
        CHECK_STATUS(tpc_bootstrap_meet_env(&found, &deadline, &bootstrap), TPCOMM_ERR_CONFIG);
        CHECK_ERROR_HAS(wrong[i]);
    }
    CHECK(tpc_clock_ns() - start_ns < UINT64_C(20000000000));
}

int main(void) {
    check_complete();
    check_refused();
    check_jobs();
    check_proxy();
    check_addresses();
    check_host_identity();
    check_no_address();
    return 0;
}
