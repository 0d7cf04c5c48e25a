/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a long run of random collectives, dtypes, sizes, groups and host messages is exact to the last bit, and
 * that descriptors, threads, mappings and memory stay as they were after the first calls (M4).
 *
 * usage: fault_soak [SECONDS]   each of two runs (processes, threads) lasts that long; default 3
 */
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "multirank/pattern.h"
#include "multirank/ranks.h"

#define SIZE       4
#define COUNT_MOST 70000u /* several rounds of the workspace below */
#define WARM_UP    300    /* calls */

static double seconds = 3;

static long resident_kib(void) {
    FILE *file = fopen("/proc/self/statm", "re");
    long size = 0, resident = 0;
    CHECK(file != NULL);
    CHECK_EQ(fscanf(file, "%ld %ld", &size, &resident), 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* A group this rank is in, and which of its ranks it is. */
typedef struct {
    tpcomm_t *comm;
    int32_t rank, size;
} member_t;

static size_t some_count(uint64_t *random) {
    size_t count = (size_t)(random_next(random) % COUNT_MOST);
    return random_next(random) % 3 == 0 ? count : count % 600; /* most are small, some are empty */
}

/* One call, the same on all members: what comes out is compared with what each rank can compute by itself. */
static void call(const member_t *member, uint64_t seed, unsigned char *in, unsigned char *out, unsigned char *want) {
    static const tpcomm_dtype_t dtypes[] = {TPCOMM_F32, TPCOMM_F16, TPCOMM_BF16, TPCOMM_I32, TPCOMM_U8, TPCOMM_F64};
    uint64_t random = seed;
    tpcomm_coll_t coll = (tpcomm_coll_t)(random_next(&random) % 5 + 1);
    tpcomm_dtype_t dtype = dtypes[random_next(&random) % 6];
    tpcomm_op_t op = (tpcomm_op_t)(random_next(&random) % 5 + 1);
    int kind = random_next(&random) % 2 == 0 ? PATTERN_EXACT : PATTERN_BITS;
    size_t count = some_count(&random), element = tpcomm_dtype_size(dtype), bytes = count * element;
    size_t all = (size_t)member->size;
    int32_t root = (int32_t)(random_next(&random) % all);
    if (!tpc_reduction_defined(dtype, op)) op = TPCOMM_MAX;
    switch (coll) {
    case TPCOMM_ALL_REDUCE:
        pattern_fill(kind, dtype, seed, member->rank, count, in);
        pattern_result(kind, dtype, op, seed, member->size, count, want);
        CHECK_OK(tpcomm_all_reduce(member->comm, in, out, count, dtype, op, NULL));
        break;
    case TPCOMM_REDUCE_SCATTER:
        count /= all;
        bytes = count * element;
        pattern_fill(kind, dtype, seed, member->rank, count * all, in);
        pattern_result(kind, dtype, op, seed, member->size, count * all, want);
        memmove(want, want + bytes * (size_t)member->rank, bytes);
        CHECK_OK(tpcomm_reduce_scatter(member->comm, in, out, count, dtype, op, NULL));
        break;
    case TPCOMM_ALL_GATHER:
        count /= all;
        bytes = count * element;
        for (int32_t r = 0; r < member->size; r++)
            pattern_fill(PATTERN_BITS, dtype, seed, r, count, want + bytes * (size_t)r);
        memcpy(in, want + bytes * (size_t)member->rank, bytes);
        bytes *= all;
        CHECK_OK(tpcomm_all_gather(member->comm, in, out, count, dtype, NULL));
        break;
    case TPCOMM_BROADCAST:
        pattern_fill(PATTERN_BITS, dtype, seed, root, count, want);
        pattern_fill(PATTERN_BITS, dtype, seed, member->rank, count, in);
        CHECK_OK(tpcomm_broadcast(member->comm, in, out, count, dtype, root, NULL));
        break;
    default:
        bytes = 0;
        CHECK_OK(tpcomm_barrier(member->comm, NULL));
    }
    if (bytes > 0 && memcmp(out, want, bytes) != 0)
        FAIL("%s of %zu %s, seed %llu: wrong", tpcomm_coll_name(coll), count, tpcomm_dtype_name(dtype),
             (unsigned long long)seed);
}

static void host_message(const member_t *member, uint64_t seed, unsigned char *buffer, unsigned char *want) {
    uint64_t random = seed;
    size_t bytes = (size_t)(random_next(&random) % 5000);
    int32_t root = (int32_t)(random_next(&random) % (uint64_t)member->size);
    pattern_fill(PATTERN_BITS, TPCOMM_U8, seed, root, bytes, want);
    memset(buffer, 0, bytes);
    if (member->rank == root) memcpy(buffer, want, bytes);
    CHECK_OK(tpcomm_host_broadcast(member->comm, buffer, bytes, root, 0));
    CHECK_EQ(memcmp(buffer, want, bytes), 0);
}

/* A group of some ranks, made and left again. */
static void passing_group(tpcomm_t *world, int32_t rank, uint64_t seed, unsigned char *buffers[3]) {
    uint64_t random = seed;
    int32_t ranks[SIZE], n = 0, me = -1;
    uint64_t members = random_next(&random) % ((1u << SIZE) - 1) + 1;
    for (int32_t r = 0; r < SIZE; r++) {
        if ((members >> r & 1u) == 0) continue;
        if (r == rank) me = n;
        ranks[n++] = r;
    }
    if (me < 0) return;
    member_t member = {.rank = me, .size = n};
    CHECK_OK(tpcomm_group_create(world, ranks, n, "passing", &member.comm));
    for (int i = 0; i < 3; i++) call(&member, random_next(&random), buffers[0], buffers[1], buffers[2]);
    CHECK_OK(tpcomm_finalize(member.comm));
    CHECK_OK(tpcomm_destroy(member.comm));
}

static void soak(rank_t *rank) {
    const size_t room = (size_t)COUNT_MOST * 8 + 64;
    unsigned char *buffers[3];
    for (int i = 0; i < 3; i++) CHECK((buffers[i] = calloc(1, room)) != NULL);
    member_t world = {rank->comm, rank->rank, SIZE}, half = {.rank = rank->rank / 2, .size = SIZE / 2};
    CHECK_OK(tpcomm_group_split(rank->comm, rank->rank % 2, 0, "half", &half.comm));
    uint64_t random = 20260101, start = tpc_clock_ns(), calls = 0;
    resources_t before = {0};
    long resident = 0;
    bool flat = *(const int *)rank->arg == RANKS_PROCESSES;
    /* Rank 0's clock says when it is over; all hear it at the same call. */
    for (int32_t go_on = 1; go_on != 0; calls++) {
        uint64_t seed = random_next(&random), what = random_next(&random) % 100;
        if (what < 60)
            call(&world, seed, buffers[0], buffers[1], buffers[2]);
        else if (what < 85)
            call(&half, seed, buffers[0], buffers[1], buffers[2]);
        else if (what < 98)
            host_message(&world, seed, buffers[0], buffers[2]);
        else
            passing_group(rank->comm, rank->rank, seed, buffers);
        if (calls % 64 == 63) {
            go_on = (double)(tpc_clock_ns() - start) < seconds * 1e9;
            CHECK_OK(tpcomm_host_broadcast(rank->comm, &go_on, sizeof go_on, 0, 0));
        }
        if (calls == WARM_UP && flat) {
            before = resources_now();
            resident = resident_kib();
        }
    }
    if (flat && calls > WARM_UP) {
        resources_check_equal(before, "soak");
        long grown = resident_kib() - resident;
        if (rank->rank == 0) printf("%llu calls exact, %ld KiB more resident\n", (unsigned long long)calls, grown);
        /* Sanitizers keep what was freed. */
        if (!TEST_SANITIZED && grown > 4096)
            FAIL("%ld KiB more resident after %llu calls", grown, (unsigned long long)calls);
    } else if (rank->rank == 0) {
        printf("%llu calls exact\n", (unsigned long long)calls);
    }
    fflush(stdout);
    CHECK_OK(tpcomm_finalize(half.comm));
    CHECK_OK(tpcomm_destroy(half.comm));
    for (int i = 0; i < 3; i++) free(buffers[i]);
}

int main(int argc, char **argv) {
    if (argc > 1) seconds = atof(argv[1]);
    tpcomm_config_t config = ranks_config();
    config.workspace_bytes = 1 << 20;
    for (int kind = 0; kind < RANKS_KINDS; kind++) ranks_run(kind, SIZE, &config, soak, &kind);
    return 0;
}
