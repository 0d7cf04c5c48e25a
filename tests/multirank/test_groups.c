/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check groups: subsets in any order with their own ranks, the same members again and again, overlapping ones, groups
 * of groups, of one, a hundred at once; that only the listed ranks take part (H3), that a world may be destroyed before
 * its groups, that members who disagree are told so and nobody hangs (H21); split; batches over groups in opposite
 * orders.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "coordinator/comm.h"
#include "multirank/ranks.h"

static int32_t sum(tpcomm_t *group, int32_t value) {
    int32_t out = -1;
    CHECK_OK(tpcomm_all_reduce(group, &value, &out, 1, TPCOMM_I32, TPCOMM_SUM, NULL));
    return out;
}

static tpcomm_t *make(tpcomm_t *parent, const int32_t *ranks, int32_t n, const char *name) {
    tpcomm_t *group = (void *)1;
    CHECK_OK(tpcomm_group_create(parent, ranks, n, name, &group));
    return group;
}

static void end(tpcomm_t *group) {
    if (group == NULL) return;
    CHECK_OK(tpcomm_finalize(group));
    CHECK_OK(tpcomm_destroy(group));
}

static void check_is(const tpcomm_t *group, const char *name, const int32_t *ranks, int32_t n, int32_t me) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    int32_t got[TPCOMM_MAX_RANKS];
    CHECK_OK(tpcomm_comm_info(group, &info));
    CHECK_EQ(info.size, n);
    CHECK_EQ(info.rank, me);
    CHECK(strcmp(info.name, name) == 0);
    CHECK_OK(tpcomm_group_ranks(group, got, TPCOMM_MAX_RANKS));
    CHECK(memcmp(got, ranks, (size_t)n * sizeof *ranks) == 0);
    if (n > 1) CHECK_STATUS(tpcomm_group_ranks(group, got, n - 1), TPCOMM_ERR_TOO_SMALL);
}

/* W10: TP = {0,1} {2,3}, EP = {0,2} {1,3}, x = 2^rank. */
static void tp_and_ep(rank_t *rank) {
    static const int32_t tp_ranks[2][2] = {{0, 1}, {2, 3}}, ep_ranks[2][2] = {{0, 2}, {1, 3}};
    int32_t t = rank->rank / 2, e = rank->rank % 2;
    tpcomm_t *tp = make(rank->comm, tp_ranks[t], 2, "tp"), *ep = make(rank->comm, ep_ranks[e], 2, "ep");
    check_is(tp, "tp", tp_ranks[t], 2, e);
    check_is(ep, "ep", ep_ranks[e], 2, t);
    int32_t x = 1 << rank->rank;
    CHECK_EQ(sum(tp, x), t == 0 ? 3 : 12);
    CHECK_EQ(sum(ep, x), e == 0 ? 5 : 10);
    CHECK_EQ(sum(ep, sum(tp, x)), 15);
    CHECK_EQ(sum(rank->comm, x), 15);
    end(tp);
    end(ep);
}

static void orders_and_instances(rank_t *rank) {
    static const int32_t backwards[] = {3, 1, 0};
    tpcomm_t *first = make(rank->comm, backwards, 3, "backwards"),
             *second = make(rank->comm, backwards, 3, "backwards");
    CHECK_EQ(first == NULL, rank->rank == 2); /* not listed: OK and NULL at once */
    if (first != NULL) {
        int32_t me = rank->rank == 3 ? 0 : rank->rank == 1 ? 1 : 2;
        check_is(first, "backwards", backwards, 3, me);
        for (int i = 0; i < 100; i++) { /* two groups of the same members, each with its own order */
            CHECK_EQ(sum(first, rank->rank + i), 4 + 3 * i);
            if (i % 3 == 0) CHECK_EQ(sum(second, i), 3 * i);
        }
        int32_t from = rank->rank * 100; /* roots are ranks of the group: 0 is world rank 3 */
        CHECK_OK(tpcomm_broadcast(first, &from, &from, 1, TPCOMM_I32, 0, NULL));
        CHECK_EQ(from, 300);
        static const int32_t inner[] = {2, 0}; /* ranks of the parent group: world ranks 0 and 3 */
        static const int32_t inner_world[] = {0, 3};
        tpcomm_t *nested = make(first, inner, 2, NULL);
        CHECK_EQ(nested == NULL, rank->rank == 1);
        if (nested != NULL) {
            check_is(nested, "group", inner_world, 2, rank->rank == 0 ? 0 : 1);
            CHECK_EQ(sum(nested, rank->rank), 3);
        }
        end(nested);
    }
    end(second);
    end(first);
    tpcomm_t *alone = make(rank->comm, &rank->rank, 1, "alone");
    CHECK_EQ(sum(alone, 7), 7);
    end(alone);
}

static void hundred_at_once(rank_t *rank) {
    enum { COUNT = 100 };
    tpcomm_t *groups[COUNT];
    static const int32_t members[3][4] = {{0, 1, 2, 3}, {1, 3, 0, 0}, {2, 0, 1, 0}};
    static const int32_t sizes[3] = {4, 2, 3};
    for (int i = 0; i < COUNT; i++) groups[i] = make(rank->comm, members[i % 3], sizes[i % 3], "many");
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < COUNT; i++) {
            static const int32_t sums[3] = {6, 4, 3};
            if (groups[i] != NULL) CHECK_EQ(sum(groups[i], rank->rank + i), sums[i % 3] + i * sizes[i % 3]);
        }
    for (int i = COUNT - 1; i >= 0; i--) end(groups[i]);
}

/* H3: ranks that are not in a group need not do anything for it: they do nothing until its members have left it. */
static void only_the_listed(rank_t *rank) {
    static const int32_t pair[] = {0, 1};
    _Atomic int32_t *done = rank->arg;
    if (rank->rank < 2) {
        tpcomm_t *group = make(rank->comm, pair, 2, "pair");
        CHECK_EQ(sum(group, 1), 2);
        end(group);
        atomic_fetch_add(done, 1);
    }
    for (int ms = 0; ms < 100000 && atomic_load(done) < 2; ms++) usleep(1000);
    CHECK_EQ(atomic_load(done), 2);
}

static void wrong_lists(rank_t *rank) {
    tpcomm_t *group = NULL;
    static const int32_t twice[] = {0, 0}, beyond[] = {0, 4}, negative[] = {-1, 0}, all[] = {0, 1, 2, 3};
    CHECK_STATUS(tpcomm_group_create(rank->comm, twice, 2, "x", &group), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS("ranks[0] and ranks[1]");
    CHECK_STATUS(tpcomm_group_create(rank->comm, beyond, 2, "x", &group), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS("ranks[1] is 4");
    CHECK_STATUS(tpcomm_group_create(rank->comm, negative, 2, "x", &group), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_group_create(rank->comm, all, 0, "x", &group), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_group_create(rank->comm, all, 5, "x", &group), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_group_create(rank->comm, NULL, 2, "x", &group), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_group_create(rank->comm, all, 4,
                                     "a name that has more than the sixty-three bytes which there is room for", &group),
                 TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_group_create(NULL, all, 4, "x", &group), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_group_create(rank->comm, all, 4, "x", NULL), TPCOMM_ERR_INVALID_ARG);
}

/* H21: {0,3} and {1,2} in "the same" call are two groups; [0,1] against [1,0] is an error on both, and so is another
 * name. */
static void cross_wired(rank_t *rank) {
    static const int32_t outer[] = {0, 3}, inner[] = {1, 2}, forth[] = {0, 1}, back[] = {1, 0};
    bool is_outer = rank->rank == 0 || rank->rank == 3;
    tpcomm_t *group = make(rank->comm, is_outer ? outer : inner, 2, "pairs");
    CHECK_EQ(sum(group, rank->rank), 3);
    end(group);
    group = NULL;
    if (rank->rank < 2) {
        CHECK_STATUS(tpcomm_group_create(rank->comm, rank->rank == 0 ? forth : back, 2, "order", &group),
                     TPCOMM_ERR_MISMATCH);
        CHECK_ERROR_HAS("[0, 1]");
        CHECK_ERROR_HAS("[1, 0]");
        CHECK(group == NULL);
        CHECK_STATUS(tpcomm_group_create(rank->comm, forth, 2, rank->rank == 0 ? "left" : "right", &group),
                     TPCOMM_ERR_MISMATCH);
        CHECK_ERROR_HAS("left");
        CHECK_ERROR_HAS("right");
        group = make(rank->comm, forth, 2, "agreed"); /* the parent is none the worse */
        CHECK_EQ(sum(group, 1), 2);
        end(group);
    }
    CHECK_EQ(sum(rank->comm, 1), 4);
}

static void *sends_metadata(void *arg) {
    rank_t *rank = arg;
    for (int step = 0; step < 300; step++) {
        int32_t x = rank->rank == 0 ? step : -1;
        CHECK_OK(tpcomm_host_broadcast(rank->comm, &x, sizeof x, 0, 0));
        CHECK_EQ(x, step);
    }
    return NULL;
}

/* Splitting and making meshes has nothing to do with host messages, which may go on meanwhile. */
static void split_beside_messages(rank_t *rank) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, sends_metadata, rank), 0);
    for (int i = 0; i < 10; i++) {
        tpcomm_t *group = NULL;
        CHECK_OK(tpcomm_group_split(rank->comm, rank->rank % 2, 0, "half", &group));
        CHECK_EQ(sum(group, 1), 2);
        end(group);
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

static void split(rank_t *rank) {
    tpcomm_t *group = NULL;
    CHECK_OK(tpcomm_group_split(rank->comm, rank->rank % 2, -rank->rank, "half", &group));
    static const int32_t even[] = {2, 0}, odd[] = {3, 1};
    check_is(group, "half", rank->rank % 2 ? odd : even, 2, rank->rank < 2 ? 1 : 0);
    CHECK_EQ(sum(group, rank->rank), rank->rank % 2 ? 4 : 2);
    end(group);
    CHECK_OK(tpcomm_group_split(rank->comm, rank->rank == 1 ? -1 : 0, 0, NULL, &group));
    CHECK_EQ(group == NULL, rank->rank == 1);
    if (group != NULL) CHECK_EQ(sum(group, 1), 3);
    end(group);
}

/* Two groups, called in opposite orders by their members: a deadlock outside a batch, none inside. */
static void opposite_orders(rank_t *rank) {
    static const int32_t all[] = {0, 1, 2, 3};
    tpcomm_t *a = make(rank->comm, all, 4, "a"), *b = make(rank->comm, all, 4, "b");
    for (int round = 0; round < 50; round++) {
        int32_t in[3] = {rank->rank, 10 * rank->rank, round}, out[3] = {-1, -1, -1};
        tpcomm_t *first = rank->rank % 2 ? a : b, *second = rank->rank % 2 ? b : a;
        CHECK_OK(tpcomm_batch_begin());
        CHECK_OK(tpcomm_batch_begin()); /* batches nest */
        CHECK_OK(tpcomm_all_reduce(first, &in[rank->rank % 2 ? 0 : 1], &out[rank->rank % 2 ? 0 : 1], 1, TPCOMM_I32,
                                   TPCOMM_SUM, NULL));
        CHECK_OK(tpcomm_batch_end());
        CHECK_EQ(out[0] + out[1], -2); /* nothing has run yet */
        CHECK_OK(tpcomm_all_reduce(second, &in[rank->rank % 2 ? 1 : 0], &out[rank->rank % 2 ? 1 : 0], 1, TPCOMM_I32,
                                   TPCOMM_SUM, NULL));
        CHECK_OK(tpcomm_all_reduce(a, &in[2], &out[2], 1, TPCOMM_I32, TPCOMM_MAX, NULL));
        CHECK_STATUS(tpcomm_all_reduce(a, NULL, &out[2], 1, TPCOMM_I32, TPCOMM_MAX, NULL), TPCOMM_ERR_INVALID_ARG);
        CHECK_OK(tpcomm_batch_end());
        CHECK_EQ(out[0], 6);
        CHECK_EQ(out[1], 60);
        CHECK_EQ(out[2], round);
    }
    CHECK_STATUS(tpcomm_batch_end(), TPCOMM_ERR_INVALID_STATE);
    CHECK_OK(tpcomm_batch_begin());
    CHECK_OK(tpcomm_barrier(a, NULL));
    CHECK_STATUS(tpcomm_destroy(a), TPCOMM_ERR_INVALID_STATE); /* its call is still to come */
    CHECK_STATUS(tpcomm_finalize(a), TPCOMM_ERR_INVALID_STATE);
    CHECK_ERROR_HAS("group 'a': an open batch has 1 calls of it; end the batch first");
    CHECK_OK(tpcomm_batch_end());
    end(a);
    end(b);
}

/* The world goes first; its groups live on, and die together with a member that dies. */
static void orphans(int32_t rank, int32_t size, void *arg) {
    (void)rank, (void)arg;
    resources_t before = resources_now();
    tpcomm_config_t config = ranks_config();
    tpcomm_t *world = NULL;
    CHECK_OK(tpcomm_init_env(&config, &world));
    static const int32_t all[] = {0, 1, 2};
    tpcomm_t *group = make(world, all, size, "orphan"), *other = make(world, all, size, "other");
    end(world);
    CHECK_EQ(sum(group, 1), size);
    static const int32_t pair[] = {0, 2};
    tpcomm_t *nested = make(group, pair, 2, "nested"); /* the links are still there */
    if (nested != NULL) CHECK_EQ(sum(nested, 1), 2);
    end(nested);
    CHECK_OK(tpcomm_destroy(other)); /* one group's end is not another's */
    CHECK_EQ(sum(group, 1), size);
    end(group);
    resources_check_equal(before, "after the last group");
}

/* A rank that has its group destroys the world at once, without finalizing and before the others have theirs. */
static void orphans_at_once(int32_t rank, int32_t size, void *arg) {
    (void)size;
    tpcomm_config_t config = ranks_config();
    for (int round = 0; round < *(int *)arg; round++) {
        tpcomm_t *world = NULL, *group = NULL;
        CHECK_OK(tpcomm_init_env(&config, &world));
        CHECK_OK(tpcomm_group_split(world, rank / 2, 0, "tp", &group));
        CHECK_OK(tpcomm_destroy(world));
        CHECK_EQ(sum(group, 1), 2);
        end(group);
    }
}

/* An abort that meets the others in a split is the same for all of them, with its reason. */
static void aborted_in_a_split(int32_t rank, int32_t size, void *arg) {
    (void)arg;
    tpcomm_config_t config = ranks_config();
    tpcomm_t *world = NULL, *group = NULL;
    CHECK_OK(tpcomm_init_env(&config, &world));
    if (rank == size - 1) {
        usleep(300000);
        CHECK_OK(tpcomm_abort(world, "enough of this"));
    }
    CHECK_STATUS(tpcomm_group_split(world, 0, 0, "never", &group), TPCOMM_ERR_ABORTED);
    CHECK(strstr(tpcomm_last_error(), "enough of this") != NULL);
    CHECK_OK(tpcomm_destroy(world));
}

static void death_breaks_groups(int32_t rank, int32_t size, void *arg) {
    (void)arg, (void)size;
    tpcomm_config_t config = ranks_config();
    tpcomm_t *world = NULL;
    CHECK_OK(tpcomm_init_env(&config, &world));
    static const int32_t with[] = {0, 1}, without[] = {0, 2};
    tpcomm_t *a = make(world, with, 2, "with"), *b = make(world, without, 2, "without");
    CHECK_OK(tpcomm_barrier(world, NULL));
    if (rank == 1) _Exit(0);
    if (rank == 0) {
        CHECK_STATUS(tpcomm_barrier(a, NULL), TPCOMM_ERR_PEER_DIED);
        CHECK_ERROR_HAS("with");
    }
    CHECK_STATUS(tpcomm_barrier(world, NULL), TPCOMM_ERR_PEER_DIED);
    CHECK_EQ(sum(b, 1), 2); /* has no member that died */
    end(b);
    CHECK_OK(tpcomm_destroy(a));
    CHECK_OK(tpcomm_destroy(world));
}

/* A rank that gives something wrong tells the others so, and nobody is out of step afterwards. */
static void refused_on_one_rank(int32_t rank, int32_t size, void *arg) {
    (void)size, (void)arg;
    tpcomm_config_t config = ranks_config();
    tpcomm_t *world = NULL, *group = NULL;
    CHECK_OK(tpcomm_init_env(&config, &world));
    static const int32_t both[] = {0, 1};
    static const char too_long[] = "a name that has more than the sixty-three bytes which there is room for";
    for (int attempt = 0; attempt < 4; attempt++) {
        CHECK_OK(tpcomm_barrier(world, NULL));
        const char *name = rank == 1 && attempt == 0 ? too_long : "both";
        CHECK_STATUS(tpcomm_group_create(world, both, 2, name, &group),
                     attempt > 0 ? TPCOMM_OK : TPCOMM_ERR_INVALID_ARG);
        if (attempt == 0) CHECK_ERROR_HAS("name is longer");
        if (group != NULL) CHECK_EQ(sum(group, 1), 2);
        end(group);
    }
    end(world);
}

static void *makes_a_group(void *parent) {
    static const int32_t both[] = {0, 1};
    tpcomm_t *group = NULL;
    CHECK_STATUS(tpcomm_group_create(parent, both, 2, "never", &group), TPCOMM_ERR_ABORTED);
    CHECK_ERROR_HAS("enough of this");
    CHECK(group == NULL);
    return NULL;
}

/* A rank that waits for the others in group_create is set free by its parent's abort, and destroy waits for it. */
static void aborted_while_making(void) {
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comms[2];
    pthread_t thread;
    CHECK_OK(tpcomm_init_local(2, NULL, &config, comms));
    CHECK_EQ(pthread_create(&thread, NULL, makes_a_group, comms[0]), 0);
    while (atomic_load(&comms[0]->making) == 0) usleep(1000); /* until it is inside */
    uint64_t start = tpc_clock_ns();
    CHECK_OK(tpcomm_abort(comms[1], "enough of this"));
    CHECK_OK(tpcomm_destroy(comms[0]));
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(tpc_clock_ns() - start < 20000000000u); /* not the init timeout, which is 60 s */
    CHECK_OK(tpcomm_destroy(comms[1]));
}

typedef struct {
    tpcomm_t *a, *b;
    int32_t rank;
} two_worlds_t;

static void *batches(void *arg) {
    two_worlds_t *worlds = arg;
    for (int round = 0; round < 20; round++) {
        int32_t x[2] = {1, 10}, out[2] = {0, 0};
        int first = worlds->rank;
        CHECK_OK(tpcomm_batch_begin());
        for (int k = 0; k < 2; k++) {
            int which = (first + k) % 2;
            CHECK_OK(tpcomm_all_reduce(which ? worlds->b : worlds->a, &x[which], &out[which], 1, TPCOMM_I32, TPCOMM_SUM,
                                       NULL));
        }
        CHECK_OK(tpcomm_batch_end());
        CHECK_EQ(out[0], 2);
        CHECK_EQ(out[1], 20);
    }
    return NULL;
}

/* Opposite orders again, of two worlds: their groups' ids are the same. */
static void two_worlds(void) {
    tpcomm_config_t config = ranks_config();
    tpcomm_t *a[2], *b[2];
    two_worlds_t worlds[2];
    pthread_t threads[2];
    CHECK_OK(tpcomm_init_local(2, NULL, &config, a));
    CHECK_OK(tpcomm_init_local(2, NULL, &config, b));
    for (int32_t r = 0; r < 2; r++) {
        worlds[r] = (two_worlds_t){a[r], b[r], r};
        CHECK_EQ(pthread_create(&threads[r], NULL, batches, &worlds[r]), 0);
    }
    for (int r = 0; r < 2; r++) CHECK_EQ(pthread_join(threads[r], NULL), 0);
    for (int r = 0; r < 2; r++) {
        CHECK_OK(tpcomm_destroy(a[r]));
        CHECK_OK(tpcomm_destroy(b[r]));
    }
}

int main(void) {
    tpcomm_config_t config = ranks_config();
    aborted_while_making();
    two_worlds();
    ranks_fork(2, refused_on_one_rank, NULL);
    static const rank_fn bodies[] = {tp_and_ep,       split_beside_messages, orders_and_instances,
                                     only_the_listed, wrong_lists,           cross_wired,
                                     split,           opposite_orders,       hundred_at_once};
    _Atomic int32_t *done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(done != MAP_FAILED);
    for (int kind = 0; kind < RANKS_KINDS; kind++)
        for (size_t b = 0; b < sizeof bodies / sizeof *bodies; b++) {
            atomic_store(done, 0);
            ranks_run(kind, 4, &config, bodies[b], done);
        }
    ranks_fork(3, orphans, NULL);
    int rounds = 12;
    ranks_fork(4, orphans_at_once, &rounds);
    ranks_set_hooks("delay@group/make:3:300"); /* it knows its half of the world, which the others have left */
    rounds = 1;
    ranks_fork(4, orphans_at_once, &rounds);
    ranks_set_hooks("");
    ranks_fork(4, aborted_in_a_split, NULL);
    ranks_fork(3, death_breaks_groups, NULL);
    return 0;
}
