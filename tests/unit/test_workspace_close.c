/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that the last of the ranks that share one mapping unmaps it, that nobody gets it any more then, and that pages
 * which a rank's device still knows stay where they are, whoever closes after it: their address must not become
 * somebody else's.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "peer_mem/workspace.h"

enum { BYTES = 8192, RANKS = 3 };

static bool is_mapped(void *base) {
    unsigned char pages[BYTES / 4096];
    return mincore(base, BYTES, pages) == 0;
}

/* Which rank's device knows the pages; -1: none. Whether the mapping is left at the end. */
static bool close_all(int32_t who) {
    bool stays[RANKS] = {false};
    int fd = -1;
    void *base = NULL;
    CHECK_EQ(tpc_cpu_device.share_create(BYTES, &fd), TPCOMM_OK);
    CHECK_EQ(tpc_cpu_device.share_map(fd, BYTES, &base), TPCOMM_OK);
    CHECK_EQ(close(fd), 0);
    tpc_workspace_header_t *header = base;
    header->nonce = 7;
    header->group_id = 8;
    CHECK_OK(tpc_workspace_offer(header));
    for (int32_t r = 1; r < RANKS; r++) CHECK(tpc_workspace_take(header, 7, 8));
    CHECK(!tpc_workspace_take(header, 7, 9) && !tpc_workspace_take(header, 8, 8));
    if (who >= 0) stays[who] = true;
    for (int32_t r = 0; r < RANKS; r++) {
        CHECK(is_mapped(base));
        tpc_workspace_t workspace = {
            .device = &tpc_cpu_device, .header = base, .bytes = BYTES, .one_mapping = true, .stays = &stays[r]};
        tpc_workspace_close(&workspace);
        CHECK(workspace.header == NULL);
    }
    bool left = is_mapped(base);
    if (!left) CHECK(!tpc_workspace_take(header, 7, 8));
    if (left) CHECK_EQ(munmap(base, BYTES), 0);
    return left;
}

int main(void) {
    CHECK(!close_all(-1));
    for (int32_t r = 0; r < RANKS; r++) CHECK(close_all(r));
    return 0;
}
