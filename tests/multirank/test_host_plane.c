/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check host messages: any size, every root, in place and not, their own order beside the group's collectives on
 * another thread, and that a late or different rank is named.
 */
#include <pthread.h>
#include <unistd.h>

#include "multirank/ranks.h"

static void messages(rank_t *rank) {
    static const size_t sizes[] = {0, 1, 3, 4096, 5000, 100003, 2000000};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t bytes = sizes[s];
        unsigned char *data = malloc(bytes + 1), *all = malloc(bytes * (size_t)rank->size + 1);
        CHECK(data != NULL && all != NULL);
        for (int32_t root = 0; root < rank->size; root++) {
            for (size_t i = 0; i < bytes; i++) data[i] = (unsigned char)(i * 7 + (size_t)rank->rank);
            CHECK_OK(tpcomm_host_broadcast(rank->comm, data, bytes, root, 0));
            for (size_t i = 0; i < bytes; i++) CHECK(data[i] == (unsigned char)(i * 7 + (size_t)root));
        }
        for (int in_place = 0; in_place < 2; in_place++) {
            unsigned char *mine = in_place ? all + bytes * (size_t)rank->rank : data;
            for (size_t i = 0; i < bytes; i++) mine[i] = (unsigned char)(i * 3 + (size_t)rank->rank);
            CHECK_OK(tpcomm_host_all_gather(rank->comm, mine, all, bytes, 30000));
            for (int32_t r = 0; r < rank->size; r++)
                for (size_t i = 0; i < bytes; i++)
                    CHECK(all[(size_t)r * bytes + i] == (unsigned char)(i * 3 + (size_t)r));
        }
        CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
        free(data);
        free(all);
    }
    char x[8];
    CHECK_STATUS(tpcomm_host_broadcast(rank->comm, NULL, 4, 0, 0), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_host_broadcast(rank->comm, x, 4, rank->size, 0), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_host_all_gather(rank->comm, x, NULL, 4, 0), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_host_all_gather(rank->comm, x, x, SIZE_MAX / 2 + 1, 0), TPCOMM_ERR_INVALID_ARG);
}

static void *metadata(void *arg) {
    rank_t *rank = arg;
    for (uint32_t step = 0; step < 500; step++) {
        uint32_t batch[16] = {rank->rank == 0 ? step : 0};
        CHECK_OK(tpcomm_host_broadcast(rank->comm, batch, sizeof batch, 0, 0));
        CHECK_EQ(batch[0], step);
    }
    return NULL;
}

/* An engine's scheduler thread sends metadata while its worker reduces; neither waits for the other. */
static void beside_collectives(rank_t *rank) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, metadata, rank), 0);
    for (int i = 0; i < 500; i++) {
        float x[100];
        for (int k = 0; k < 100; k++) x[k] = (float)(i + rank->rank);
        CHECK_OK(tpcomm_all_reduce(rank->comm, x, x, 100, TPCOMM_F32, TPCOMM_SUM, NULL));
        CHECK(x[99] == (float)(rank->size * i + rank->size * (rank->size - 1) / 2));
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void late(rank_t *rank) {
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    /* Rank 1 comes when rank 0's patience has ended; rank 2 has more, so that it is never missed by itself alone. */
    while (rank->rank == 1 && tpcomm_async_status(rank->comm, NULL) == TPCOMM_OK) usleep(1000);
    CHECK_STATUS(tpcomm_host_barrier(rank->comm, rank->rank == 2 ? 0 : 300), TPCOMM_ERR_TIMEOUT);
    CHECK_ERROR_HAS("host barrier seq 2");
    CHECK_ERROR_HAS("waiting for rank 1 (last seq 1)");
    CHECK_STATUS(tpcomm_barrier(rank->comm, NULL), TPCOMM_ERR_TIMEOUT);
}

static void different(rank_t *rank) {
    char x[16] = {0};
    CHECK_STATUS(tpcomm_host_broadcast(rank->comm, x, rank->rank == 0 ? 8 : 16, 0, 0), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("host broadcast seq 1 count 8 u8 root 0");
    CHECK_ERROR_HAS("host broadcast seq 1 count 16 u8 root 0");
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    for (int kind = 0; kind < RANKS_KINDS; kind++) {
        for (int32_t size = 1; size <= 8; size = size * 2 + size / 4) ranks_run(kind, size, &config, messages, NULL);
        ranks_run(kind, 2, &config, beside_collectives, NULL);
        ranks_run(kind, 4, &config, beside_collectives, NULL);
        ranks_run(kind, 3, &config, late, NULL);
        ranks_run(kind, 2, &config, different, NULL);
    }
    return 0;
}
