/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that ranks which say that they are on different hosts never share memory (H5): each host's members map a file
 * of their own, and the cpu device, which has no other way to carry data, says NO_TRANSPORT with who is where, at once,
 * on every rank alike; and that the same ranks on one host work.
 */
#include <unistd.h>

#include "base/clock.h"
#include "multirank/ranks.h"

static const char *root;

/* Inode of the one memory file of ours that this process maps. */
static uint64_t memory_inode(void) {
    FILE *file = fopen("/proc/self/maps", "re");
    char line[1024];
    unsigned long long inode = 0;
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long long found;
        if (strstr(line, "memfd:tpcomm") == NULL) continue;
        CHECK_EQ(sscanf(line, "%*s %*s %*s %*s %llu", &found), 1);
        if (inode != 0) CHECK_EQ(found, inode);
        inode = found;
    }
    fclose(file);
    CHECK(inode != 0);
    return inode;
}

static void join(int32_t rank, int32_t size, void *arg) {
    const char *const *hosts = arg;
    CHECK_EQ(setenv("TPCOMM_HOST_ID", hosts[rank], 1), 0);
    CHECK_EQ(setenv("TPCOMM_ROOT", root, 1), 0);
    unsetenv("TPCOMM_LOCAL_RANK"); /* a launcher on several hosts would say other numbers, or none */
    unsetenv("TPCOMM_LOCAL_SIZE");
    tpcomm_config_t config = ranks_config();
    config.init_timeout_ms = 20000;
    tpcomm_t *comm = NULL;
    uint64_t start_ns = tpc_clock_ns();
    tpcomm_status_t status = tpcomm_init_env(&config, &comm);
    CHECK_OK(status);
    uint64_t mine = memory_inode(), all[TPCOMM_MAX_RANKS];
    CHECK_OK(tpcomm_host_all_gather(comm, &mine, all, sizeof mine, 0));
    for (int32_t r = 0; r < size; r++) CHECK_EQ(all[r] == mine, strcmp(hosts[r], hosts[rank]) == 0);
    bool same = true;
    for (int32_t r = 1; r < size; r++) same = same && strcmp(hosts[r], hosts[0]) == 0;
    if (same) {
        float in = (float)(rank + 1), out = 0;
        CHECK_OK(tpcomm_all_reduce(comm, &in, &out, 1, TPCOMM_F32, TPCOMM_SUM, NULL));
        CHECK(out == (float)(size * (size + 1)) / 2);
        CHECK_OK(tpcomm_finalize(comm));
        CHECK_OK(tpcomm_destroy(comm));
        return;
    }
    float x = 1;
    CHECK_STATUS(tpcomm_all_reduce(comm, &x, &x, 1, TPCOMM_F32, TPCOMM_SUM, NULL), TPCOMM_ERR_NO_TRANSPORT);
    CHECK_ERROR_HAS("on host 'A'");
    CHECK_ERROR_HAS("on host 'B'");
    CHECK_OK(tpcomm_finalize(comm));
    CHECK_OK(tpcomm_destroy(comm));
    /* Not by the timeout. */
    CHECK(tpc_clock_ns() - start_ns < UINT64_C(15000000000));
}

int main(void) {
    const char *const two[] = {"A", "B"}, *const last[] = {"A", "A", "B"}, *const one[] = {"A", "A", "A"};
    root = ranks_hold_root();
    ranks_fork(2, join, (void *)two);
    root = ranks_hold_root();
    ranks_fork(3, join, (void *)last);
    root = ranks_hold_root();
    ranks_fork(3, join, (void *)one);
    return 0;
}
