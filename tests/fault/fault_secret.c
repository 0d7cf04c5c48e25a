/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a job with a secret meets only among those who know it, by unix socket and TCP: another secret, or none on
 * one side, is AUTH on both; who lacks it at the door neither joins nor spoils anything, and learns nothing of the job;
 * and no text, log line, dump or status answer has a byte of the secret.
 */
#include "unit/bootstrap_job.h"

#define SECRET "a secret that nobody sees"
#define OTHER  "another one, just as long"

static bool tcp;
static uint16_t port;
static const char *secrets[3]; /* of each rank; NULL: none */
static uint64_t limit_ms = 20000;

static void rank(int32_t index, outcome_t *outcome) {
    tpc_bootstrap_t *bootstrap;
    job_set("TPCOMM_RANK", "%d", index);
    job_set("TPCOMM_SIZE", "%d", 3);
    if (tcp) job_set("TPCOMM_HOST_ID", "host-%d", index);
    if (secrets[index] != NULL) job_set("TPCOMM_SECRET", "%s", secrets[index]);
    int32_t fds = job_count_fds();
    uint64_t start_ns = tpc_clock_ns();
    job_keep(outcome, job_meet_env(limit_ms, &bootstrap), start_ns);
    if (strstr(outcome->text, "secret that nobody") != NULL || strstr(outcome->text, "another one, just") != NULL)
        FAIL("the secret is in the text: %s", outcome->text);
    if (outcome->status == TPCOMM_OK) {
        job_check_met(bootstrap);
        tpc_bootstrap_free(bootstrap);
    }
    CHECK_EQ(job_count_fds(), fds);
}

static void meet(const char *first, const char *second, const char *third) {
    static int number;
    secrets[0] = first;
    secrets[1] = second;
    secrets[2] = third;
    job_set_unique_id("secret");
    if (tcp) job_set("TPCOMM_ROOT", "127.0.0.1:%u", port + number++ % 8);
    job_prepare();
    for (int32_t i = 0; i < 3; i++) job_start(i, rank);
    for (int32_t i = 0; i < 3; i++) job_wait(i);
}

static void run(void) {
    meet(SECRET, SECRET, SECRET);
    for (int32_t i = 0; i < 3; i++) CHECK_OUTCOME(i, TPCOMM_OK, "");
    limit_ms = tcp ? 4000 : 20000; /* over TCP rank 0 waits for the right one */
    meet(SECRET, OTHER, SECRET);
    CHECK_OUTCOME(0, TPCOMM_ERR_AUTH, "its secret is not rank 0's");
    CHECK_OUTCOME(1, TPCOMM_ERR_AUTH, "its secret is another");
    meet(SECRET, SECRET, NULL);
    CHECK_OUTCOME(0, TPCOMM_ERR_AUTH, "it was given no secret, and rank 0 was");
    CHECK_OUTCOME(2, TPCOMM_ERR_AUTH, "it was given no secret, and rank 0 was");
    meet(NULL, SECRET, NULL);
    CHECK_OUTCOME(0, TPCOMM_ERR_AUTH, "it was given a secret, and rank 0 was not");
    CHECK_OUTCOME(1, TPCOMM_ERR_AUTH, "it was given no secret");
    limit_ms = 20000;
    printf("%s\n", tcp ? "tcp" : "unix");
}

/* ------------------------------------------------------------------ what a whole job lets out */

static char folder[] = "/tmp/tpcomm-secret-test-XXXXXX";

static void check_file(const char *name, const char *must_have) {
    char path[128];
    static char text[1 << 20];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL);
    size_t have = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    CHECK_EQ(unlink(path), 0);
    text[have] = '\0';
    if (strstr(text, must_have) == NULL) FAIL("%s has no %s", name, must_have);
    if (strstr(text, "secret that nobody") != NULL) FAIL("the secret is in %s:\n%s", name, text);
}

static void talk(int32_t index, outcome_t *outcome) {
    char path[128];
    tpcomm_t *comm = NULL;
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_config_t config = {.struct_size = sizeof config, .device_kind = TPCOMM_DEVICE_CPU, .init_timeout_ms = 20000};
    job_set("TPCOMM_RANK", "%d", index);
    job_set("TPCOMM_SIZE", "%d", 2);
    job_set("TPCOMM_SECRET", "%s", SECRET);
    job_set("TPCOMM_LOG", "debug");
    job_set("TPCOMM_LOG_FILE", "%s/log-%d", folder, index);
    CHECK_OK(tpcomm_init_env(&config, &comm));
    CHECK_OK(tpcomm_comm_info(comm, &info));
    if (strstr(info.launcher, "SECRET") != NULL) FAIL("%s", info.launcher);
    CHECK_OK(tpcomm_barrier(comm, NULL));
    snprintf(path, sizeof path, "%s/dump-%d", folder, index);
    CHECK_OK(tpcomm_flight_dump(comm, path));
    CHECK_OK(tpcomm_finalize(comm));
    CHECK_OK(tpcomm_destroy(comm));
    outcome->status = TPCOMM_OK;
}

static void check_output(void) {
    CHECK(mkdtemp(folder) != NULL);
    job_set_unique_id("secret");
    job_prepare();
    for (int32_t i = 0; i < 2; i++) job_start(i, talk);
    for (int32_t i = 0; i < 2; i++) job_wait(i);
    check_file("log-0", "is up after");
    check_file("log-1", "is up after");
    check_file("dump-0", "tpcomm-flight/1");
    check_file("dump-1", "tpcomm-flight/1");
    CHECK_EQ(rmdir(folder), 0);
}

int main(void) {
    job_clean_environment();
    run();
    check_output();
    tcp = true;
    port = job_find_ports(4, 8);
    run();
    return 0;
}
