/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that every backend of this build has every slot of its table filled, since nobody tests for NULL, and serves
 * paths that the library has names for.
 */
#include "check.h"
#include "coordinator/backends.h"

/* All that stands in the table behind device_kind is pointers. */
static void check_slots(const tpc_backend_t *backend) {
    const unsigned char *table = (const unsigned char *)backend;
    for (size_t at = offsetof(tpc_backend_t, paths); at < sizeof *backend; at += sizeof(void *)) {
        void *slot;
        memcpy(&slot, table + at, sizeof slot);
        if (slot == NULL) FAIL("%s: the slot at byte %zu of its table is empty", backend->name, at);
    }
}

int main(void) {
    int count = 0;
    for (const tpc_backend_t *const *backend = tpc_backends; *backend != NULL; backend++, count++) {
        CHECK((*backend)->name != NULL);
        check_slots(*backend);
        CHECK((*backend)->paths[0] != 0);
        for (const tpcomm_path_t *path = (*backend)->paths; *path != 0; path++)
            if (tpcomm_path_name(*path)[0] == '?') FAIL("%s: path %d has no name", (*backend)->name, *path);
    }
    check_slots(tpc_host_backend);
    printf("%d backends\n", count);
    CHECK(count > 0);
    return 0;
}
