/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that what graphs keep is freed once, at once where none is left, else by the first sweep after the last graph
 * has gone, also where that happens on another thread during sweeps; and that a forked child leaves it to its parent
 * (M1).
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "graph_capture/kept.h"

static _Atomic int freed;

static void count_and_free(void *arg) {
    freed++;
    free(arg);
}

static tpc_kept_t *one(int graphs) {
    tpc_kept_t *kept = calloc(1, sizeof *kept);
    CHECK(kept != NULL);
    for (int g = 0; g < graphs; g++) tpc_kept_take(kept);
    return kept;
}

static void in_turn(void) {
    freed = 0;
    tpc_kept_t *kept = one(0);
    tpc_kept_free(kept, count_and_free, kept);
    CHECK_EQ(freed, 1);
    kept = one(1);
    tpc_kept_drop(kept); /* the graph is gone first */
    tpc_kept_free(kept, count_and_free, kept);
    CHECK_EQ(freed, 2);

    tpc_kept_t *three[3] = {one(1), one(2), one(1)};
    for (int i = 0; i < 3; i++) tpc_kept_free(three[i], count_and_free, three[i]);
    CHECK_EQ(freed, 2);
    CHECK_EQ(tpc_kept_sweep(), 3);
    tpc_kept_drop(three[1]);
    CHECK_EQ(tpc_kept_sweep(), 3);
    tpc_kept_drop(three[1]);
    CHECK_EQ(freed, 2); /* not by whoever lets go */
    CHECK_EQ(tpc_kept_sweep(), 2);
    CHECK_EQ(freed, 3);
    tpc_kept_drop(three[2]);
    tpc_kept_drop(three[0]);
    CHECK_EQ(tpc_kept_sweep(), 0);
    CHECK_EQ(freed, 5);
    CHECK_EQ(tpc_kept_sweep(), 0);
    CHECK_EQ(freed, 5);
}

enum { CYCLES = 2000, THREADS = 3 };

/* Graphs that end on threads of the driver. */
static void *drop_all(void *arg) {
    tpc_kept_t *const *kept = arg;
    for (int i = 0; i < CYCLES; i++) tpc_kept_drop(kept[i]);
    return NULL;
}

static void at_once(void) {
    static tpc_kept_t *kept[CYCLES];
    pthread_t threads[THREADS];
    freed = 0;
    for (int i = 0; i < CYCLES; i++) kept[i] = one(THREADS + 1);
    for (int t = 0; t < THREADS; t++) CHECK_EQ(pthread_create(&threads[t], NULL, drop_all, kept), 0);
    for (int i = 0; i < CYCLES; i++) {
        tpc_kept_t *mine = kept[i];
        tpc_kept_free(mine, count_and_free, mine);
        tpc_kept_drop(mine);
        if (i % 8 == 0) tpc_kept_sweep();
    }
    for (int t = 0; t < THREADS; t++) CHECK_EQ(pthread_join(threads[t], NULL), 0);
    CHECK_EQ(tpc_kept_sweep(), 0);
    CHECK_EQ(freed, CYCLES);
}

static void forked(void) {
    freed = 0;
    tpc_kept_t *kept = one(1);
    tpc_kept_free(kept, count_and_free, kept);
    tpc_kept_drop(kept);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        bool good = tpc_kept_sweep() == 0 && freed == 0;
        _Exit(good ? 0 : 1);
    }
    int how = 0;
    CHECK_EQ(waitpid(child, &how, 0), child);
    CHECK(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    CHECK_EQ(tpc_kept_sweep(), 0);
    CHECK_EQ(freed, 1);
}

int main(void) {
    in_turn();
    at_once();
    forked();
    return 0;
}
