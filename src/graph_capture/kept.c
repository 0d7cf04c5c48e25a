/* SPDX-License-Identifier: Apache-2.0 */
#include "graph_capture/kept.h"

#include <pthread.h>
#include <stddef.h>

#include "health/watchdog.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tpc_kept_t *waiting; /* destroyed, but in use */

void tpc_kept_take(tpc_kept_t *kept) {
    atomic_fetch_add_explicit(&kept->graphs, 1, memory_order_relaxed);
}

void tpc_kept_drop(void *opaque) {
    tpc_kept_t *kept = opaque;
    atomic_fetch_sub_explicit(&kept->graphs, 1, memory_order_release);
}

void tpc_kept_free(tpc_kept_t *kept, void (*free_it)(void *arg), void *arg) {
    if (!tpc_kept_in_use(kept)) {
        free_it(arg);
        return;
    }
    kept->free = free_it;
    kept->arg = arg;
    kept->fork_generation = tpc_fork_generation();
    pthread_mutex_lock(&lock);
    kept->next = waiting;
    waiting = kept;
    pthread_mutex_unlock(&lock);
}

int32_t tpc_kept_sweep(void) {
    tpc_kept_t *idle = NULL;
    int32_t left = 0;
    uint32_t generation = tpc_fork_generation();
    pthread_mutex_lock(&lock);
    for (tpc_kept_t **link = &waiting; *link != NULL;) {
        tpc_kept_t *kept = *link;
        /* A forked child has its parent's list, and none of its graphs. */
        if (tpc_kept_in_use(kept) || kept->fork_generation != generation) {
            left += kept->fork_generation == generation;
            link = &kept->next;
            continue;
        }
        *link = kept->next;
        kept->next = idle;
        idle = kept;
    }
    pthread_mutex_unlock(&lock);
    while (idle != NULL) { /* not under the lock: freeing may wait */
        tpc_kept_t *next = idle->next;
        idle->free(idle->arg);
        idle = next;
    }
    return left;
}
