/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a rank which fails at any step of init is named, with the step, to every rank alike, well before the
 * timeout, and that nothing is left behind (H7, F10). The steps are hooks in the code; each is made to fail on each
 * rank in turn.
 */
#include "base/clock.h"
#include "multirank/ranks.h"

static const char *const steps[] = {
    "settings", "workspace_create",       "workspace_map",      "workspace_probe", "backend",
    "watch",    "team/agree on settings", "team/map workspace", "team/ready"};

typedef struct {
    const char *step;
    int32_t victim;
} fault_t;

static void join(int32_t rank, int32_t size, void *arg) {
    const fault_t *fault = arg;
    char hooks[128], name[32];
    (void)rank, (void)size;
    snprintf(hooks, sizeof hooks, "fail@%s:%d", fault->step, fault->victim);
    snprintf(name, sizeof name, "rank %d", fault->victim);
    ranks_set_hooks(hooks);
    resources_t before = resources_now();
    tpcomm_config_t config = {.struct_size = sizeof config, .init_timeout_ms = 20000};
    tpcomm_t *comm = (void *)1;
    uint64_t start = tpc_clock_ns();
    CHECK_STATUS(tpcomm_init_env(&config, &comm), TPCOMM_ERR_PEER_FAILED);
    CHECK(tpc_clock_ns() - start < 15000000000u); /* told, not timed out */
    CHECK(comm == NULL);
    CHECK_ERROR_HAS(name);
    resources_check_equal(before, fault->step);

    /* The same processes, without the fault: nothing of the failed attempt stands in the way. */
    ranks_set_hooks("");
    CHECK_OK(tpcomm_init_env(&config, &comm));
    CHECK_OK(tpcomm_barrier(comm, NULL));
    CHECK_OK(tpcomm_finalize(comm));
    CHECK_OK(tpcomm_destroy(comm));
    resources_check_equal(before, "second attempt");
}

static void threads(const fault_t *fault) {
    char hooks[128];
    tpcomm_t *comms[3];
    snprintf(hooks, sizeof hooks, "fail@%s:%d", fault->step, fault->victim);
    ranks_set_hooks(hooks);
    resources_t before = resources_now();
    tpcomm_config_t config = {.struct_size = sizeof config, .init_timeout_ms = 20000};
    CHECK_STATUS(tpcomm_init_local(3, NULL, &config, comms), TPCOMM_ERR_PEER_FAILED);
    for (int r = 0; r < 3; r++) CHECK(comms[r] == NULL);
    resources_check_equal(before, fault->step);
    ranks_set_hooks("");
}

int main(void) {
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
        for (int32_t victim = 0; victim < 3; victim++) {
            fault_t fault = {steps[s], victim};
            if (strcmp(steps[s], "workspace_create") == 0 && victim != 0) continue; /* rank 0's step */
            printf("%s on rank %d\n", fault.step, victim);
            threads(&fault);
            ranks_fork(3, join, &fault);
        }
    return 0;
}
