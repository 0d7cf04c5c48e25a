/* SPDX-License-Identifier: Apache-2.0 */
/* Check that an installed tpcomm serves a C11 program: the version of the header is the library's, two ranks reduce
 * exactly. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <tpcomm.h>

enum { RANKS = 2, COUNT = 1021 };

typedef struct {
    tpcomm_t *comm;
    int32_t rank;
    int failed;
} rank_t;

static void *rank_main(void *arg) {
    rank_t *self = arg;
    static float in[RANKS][COUNT], out[RANKS][COUNT];
    for (int i = 0; i < COUNT; i++) in[self->rank][i] = (float)((7 * i + 3 * self->rank) % 13);
    if (tpcomm_all_reduce(self->comm, in[self->rank], out[self->rank], COUNT, TPCOMM_F32, TPCOMM_SUM, NULL) !=
        TPCOMM_OK) {
        fprintf(stderr, "rank %d: %s\n", (int)self->rank, tpcomm_last_error());
        self->failed = 1;
        return NULL;
    }
    for (int i = 0; i < COUNT; i++)
        if (out[self->rank][i] != (float)((7 * i) % 13 + (7 * i + 3) % 13)) self->failed = 1;
    return NULL;
}

int main(void) {
    if (tpcomm_version() != TPCOMM_VERSION_NUMBER) {
        fprintf(stderr, "library %d, header %d\n", (int)tpcomm_version(), TPCOMM_VERSION_NUMBER);
        return 1;
    }
    tpcomm_t *comms[RANKS];
    if (tpcomm_init_local(RANKS, NULL, NULL, comms) != TPCOMM_OK) {
        fprintf(stderr, "init_local: %s\n", tpcomm_last_error());
        return 1;
    }
    rank_t ranks[RANKS];
    pthread_t threads[RANKS];
    int failed = 0;
    for (int32_t r = 0; r < RANKS; r++) {
        ranks[r] = (rank_t){.comm = comms[r], .rank = r};
        if (pthread_create(&threads[r], NULL, rank_main, &ranks[r]) != 0) return 1;
    }
    for (int32_t r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        failed |= ranks[r].failed;
    }
    for (int32_t r = 0; r < RANKS; r++) failed |= tpcomm_destroy(comms[r]) != TPCOMM_OK;
    puts(failed ? "c: wrong" : "c: exact");
    return failed;
}
