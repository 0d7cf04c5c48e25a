/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a team's steps bring every member the same result: data, failures of a member or the leader, members that
 * are late, missing, gone or somewhere else, on links between processes of one host, of two hosts, and between threads.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "unit/bootstrap_job.h"

#define SIZE    4
#define LONG_MS 60000 /* nothing takes so long, not on a loaded machine either */

typedef void (*scenario_t)(tpc_bootstrap_t *bootstrap);
static scenario_t scenario;

static const int32_t everybody[SIZE] = {0, 1, 2, 3};

static tpc_deadline_t in_ms(uint64_t ms) {
    return tpc_deadline_in(ms, NULL, NULL);
}

static tpc_team_t world_of(tpc_bootstrap_t *bootstrap) {
    return (tpc_team_t){.channel = 0, .ranks = everybody, .n = SIZE, .me = tpc_bootstrap_rank(bootstrap)};
}

static tpcomm_status_t vote(tpc_bootstrap_t *bootstrap, const char *step, tpcomm_status_t mine, uint64_t ms) {
    tpc_team_t team = world_of(bootstrap);
    tpc_deadline_t deadline = in_ms(ms);
    return tpc_team_gather(bootstrap, &team, step, mine, NULL, 0, NULL, &deadline);
}

static unsigned char pattern(uint64_t seed, size_t i) {
    return (unsigned char)((seed * 31 + i * 7 + (i >> 9)) & 0xff);
}

static void gather_and_check(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, size_t bytes, uint64_t seed) {
    unsigned char *mine = malloc(bytes + 1), *all = malloc(bytes * (size_t)team->n + 1);
    tpc_deadline_t deadline = in_ms(LONG_MS);
    for (size_t i = 0; i < bytes; i++) mine[i] = pattern(seed + (uint64_t)team->me, i);
    CHECK_OK(tpc_team_gather(bootstrap, team, "gather", TPCOMM_OK, mine, bytes, all, &deadline));
    for (int32_t r = 0; r < team->n; r++)
        for (size_t i = 0; i < bytes; i++)
            if (all[(size_t)r * bytes + i] != pattern(seed + (uint64_t)r, i))
                FAIL("gather of %zu: rank %d at %zu", bytes, r, i);
    free(mine);
    free(all);
}

static void broadcast_and_check(tpc_bootstrap_t *bootstrap, const tpc_team_t *team, size_t bytes, uint64_t seed) {
    unsigned char *data = NULL;
    size_t got = bytes;
    tpc_deadline_t deadline = in_ms(LONG_MS);
    if (team->me == 0) {
        data = malloc(bytes + 1);
        for (size_t i = 0; i < bytes; i++) data[i] = pattern(seed, i);
    }
    CHECK_OK(tpc_team_broadcast(bootstrap, team, "broadcast", TPCOMM_OK, (void **)&data, &got, &deadline));
    CHECK_EQ(got, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != pattern(seed, i)) FAIL("broadcast of %zu at %zu", bytes, i);
    free(data);
}

/** Teams of a subset, in an order of their own. */
static const int32_t back_ranks[3] = {3, 2, 0};

static tpc_team_t back_team(tpc_bootstrap_t *bootstrap) {
    tpc_team_t team = {.channel = 77, .ranks = back_ranks, .n = 3, .me = -1};
    for (int32_t i = 0; i < team.n; i++)
        if (team.ranks[i] == tpc_bootstrap_rank(bootstrap)) team.me = i;
    return team;
}

static void data_moves(tpc_bootstrap_t *bootstrap) {
    static const size_t sizes[] = {0, 1, 7, 4096, 100000, 1 << 20};
    tpc_team_t world = world_of(bootstrap), back = back_team(bootstrap);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        gather_and_check(bootstrap, &world, sizes[i], i);
        broadcast_and_check(bootstrap, &world, sizes[i], i);
        if (back.me >= 0) gather_and_check(bootstrap, &back, sizes[i], i + 100);
        if (back.me >= 0) broadcast_and_check(bootstrap, &back, sizes[i], i + 100);
    }
    broadcast_and_check(bootstrap, &world, 16 << 20, 5);

    /* More than a frame may hold: refused on all, and the channel goes on. */
    tpc_deadline_t deadline = in_ms(LONG_MS);
    unsigned char *data = malloc((16 << 20) + 1);
    void *given = data;
    size_t bytes = (16 << 20) + 1;
    CHECK_STATUS(tpc_team_broadcast(bootstrap, &world, "too much", TPCOMM_OK, &given, &bytes, &deadline),
                 TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS("rank 0 failed in 'too much'");
    CHECK_STATUS(tpc_team_gather(bootstrap, &world, "too much", TPCOMM_OK, data, (4 << 20) + 1, data, &deadline),
                 TPCOMM_ERR_INVALID_ARG);
    free(data);
    gather_and_check(bootstrap, &world, 10, 0);
}

static void descriptors_move(tpc_bootstrap_t *bootstrap) {
    tpc_team_t world = world_of(bootstrap), back = back_team(bootstrap);
    const tpc_team_t *teams[2] = {&world, &back};
    for (int i = 0; i < 2; i++) {
        const tpc_team_t *team = teams[i];
        tpc_deadline_t deadline = in_ms(LONG_MS);
        if (team->me < 0) continue;
        int fd = -1, got = -1;
        if (team->me == 0) {
            fd = memfd_create("test", MFD_CLOEXEC);
            CHECK_EQ(pwrite(fd, "hello", 5, 0), 5);
        }
        CHECK_OK(tpc_team_broadcast_fd(bootstrap, team, "share", TPCOMM_OK, fd, &got, &deadline));
        char text[6] = "";
        if (team->me != 0) {
            CHECK(got >= 0 && (fcntl(got, F_GETFD) & FD_CLOEXEC));
            CHECK_EQ(pread(got, text, 5, 0), 5);
            CHECK(strcmp(text, "hello") == 0);
            close(got);
        } else {
            CHECK_EQ(got, -1);
            close(fd);
        }
        /* A failure leaves none behind. */
        fd = team->me == 0 ? memfd_create("test", MFD_CLOEXEC) : -1;
        tpcomm_status_t mine = team->me == 1 ? tpc_error(TPCOMM_ERR_NO_MEMORY, "no room") : TPCOMM_OK;
        CHECK_STATUS(tpc_team_broadcast_fd(bootstrap, team, "share", mine, fd, &got, &deadline),
                     TPCOMM_ERR_PEER_FAILED);
        CHECK_ERROR_HAS("failed in 'share': no room");
        if (fd >= 0) close(fd);
    }
}

/** Everybody's descriptor to everybody, twice, in teams of their own order; a failure leaves none open. */
static void descriptors_are_exchanged(tpc_bootstrap_t *bootstrap) {
    tpc_team_t teams[] = {world_of(bootstrap), back_team(bootstrap)};
    for (size_t t = 0; t < 4; t++) {
        const tpc_team_t *team = &teams[t % 2];
        if (team->me < 0) continue;
        int before = job_count_fds(), fd = memfd_create("test", MFD_CLOEXEC), fds[SIZE];
        tpc_deadline_t deadline = in_ms(LONG_MS);
        CHECK_EQ(ftruncate(fd, 100 + team->me + 10 * (int)t), 0);
        CHECK_OK(tpc_team_exchange_fd(bootstrap, team, "exchange", TPCOMM_OK, fd, fds, &deadline));
        for (int32_t i = 0; i < team->n; i++) {
            struct stat info;
            if (tpc_bootstrap_member(bootstrap, team->ranks[i])->same_process) {
                CHECK_EQ(fds[i], -1);
                continue;
            }
            CHECK_EQ(fstat(fds[i], &info), 0);
            CHECK_EQ(info.st_size, 100 + i + 10 * (int)t);
            CHECK(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
            close(fds[i]);
        }
        tpcomm_status_t mine = team->me == 1 ? tpc_error(TPCOMM_ERR_NO_MEMORY, "no room") : TPCOMM_OK;
        CHECK_STATUS(tpc_team_exchange_fd(bootstrap, team, "exchange", mine, fd, fds, &deadline),
                     TPCOMM_ERR_PEER_FAILED);
        CHECK_ERROR_HAS("failed in 'exchange': no room");
        close(fd);
        if (!tpc_bootstrap_member(bootstrap, (tpc_bootstrap_rank(bootstrap) + 1) % SIZE)->same_process)
            CHECK_EQ(job_count_fds(), before);
    }
}

/** A member without room for a descriptor: a failure of all, not a lost link. */
static void descriptors_run_out(tpc_bootstrap_t *bootstrap) {
    tpc_team_t world = world_of(bootstrap);
    struct rlimit limit, few;
    int fd = world.me == 0 ? memfd_create("test", MFD_CLOEXEC) : -1, got = -1, spare[64], spares = 0;
    tpc_deadline_t deadline = in_ms(LONG_MS);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = limit;
    few.rlim_cur = 64;
    if (world.me == 2) {
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
        while ((spare[spares] = dup(STDERR_FILENO)) >= 0) spares++;
    }
    CHECK_STATUS(tpc_team_broadcast_fd(bootstrap, &world, "share", TPCOMM_OK, fd, &got, &deadline),
                 TPCOMM_ERR_PEER_FAILED);
    CHECK_ERROR_HAS("rank 2 failed in 'share': the descriptor of rank 0 did not arrive");
    CHECK_EQ(got, -1);
    while (spares > 0) close(spare[--spares]);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    CHECK_OK(vote(bootstrap, "go on", TPCOMM_OK, LONG_MS));
    if (fd >= 0) close(fd);
}

static void failures_are_shared(tpc_bootstrap_t *bootstrap) {
    static const struct {
        tpcomm_status_t mine, want;
    } rows[] = {
        {TPCOMM_ERR_INVALID_ARG, TPCOMM_ERR_INVALID_ARG},
        {TPCOMM_ERR_UNSUPPORTED, TPCOMM_ERR_UNSUPPORTED},
        {TPCOMM_ERR_VERSION, TPCOMM_ERR_VERSION},
        {TPCOMM_ERR_CONFIG, TPCOMM_ERR_CONFIG},
        {TPCOMM_ERR_PARSE, TPCOMM_ERR_PARSE},
        {TPCOMM_ERR_ABORTED, TPCOMM_ERR_ABORTED},
        {TPCOMM_ERR_OVERLAP, TPCOMM_ERR_OVERLAP},
        {TPCOMM_ERR_NO_TRANSPORT, TPCOMM_ERR_NO_TRANSPORT},
        {TPCOMM_ERR_NO_MEMORY, TPCOMM_ERR_PEER_FAILED},
        {TPCOMM_ERR_IO, TPCOMM_ERR_PEER_FAILED},
        {TPCOMM_ERR_INVALID_STATE, TPCOMM_ERR_PEER_FAILED},
        {TPCOMM_ERR_DEVICE, TPCOMM_ERR_PEER_FAILED},
        {TPCOMM_ERR_BUSY, TPCOMM_ERR_PEER_FAILED},
        {TPCOMM_ERR_TOO_SMALL, TPCOMM_ERR_PEER_FAILED},
    };
    int32_t me = tpc_bootstrap_rank(bootstrap);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int32_t failing = 0; failing < SIZE; failing++) {
            char want[128];
            tpcomm_status_t mine =
                me == failing ? tpc_error(rows[i].mine, "reason %d of rank %d", (int)i, me) : TPCOMM_OK;
            CHECK_STATUS(vote(bootstrap, "try", mine, LONG_MS), rows[i].want);
            snprintf(want, sizeof want, "rank %d failed in 'try': reason %d of rank %d", failing, (int)i, failing);
            CHECK_ERROR_HAS(want);
        }
    }
    /* The lowest of several; long texts come whole, but for the end. */
    char text[TPC_ERROR_BYTES];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    tpcomm_status_t mine = me == 1 || me == 3 ? tpc_error(TPCOMM_ERR_IO, "%s", text) : TPCOMM_OK;
    CHECK_STATUS(vote(bootstrap, "try", mine, LONG_MS), TPCOMM_ERR_PEER_FAILED);
    CHECK_ERROR_HAS("rank 1 failed in 'try': xxxxxxxx");
    CHECK(strlen(tpcomm_last_error()) > TPC_ERROR_BYTES - 8);
    /* Where ranks of the team are not ranks of the world, both are named. */
    tpc_team_t back = back_team(bootstrap);
    tpc_deadline_t deadline = in_ms(LONG_MS);
    if (back.me >= 0) {
        mine = back.me == 2 ? tpc_error(TPCOMM_ERR_IO, "reason") : TPCOMM_OK;
        CHECK_STATUS(tpc_team_gather(bootstrap, &back, "try", mine, NULL, 0, NULL, &deadline), TPCOMM_ERR_PEER_FAILED);
        CHECK_ERROR_HAS("rank 2 (world rank 0) failed in 'try': reason");
    }
    CHECK_OK(vote(bootstrap, "go on", TPCOMM_OK, LONG_MS));
    /* The caller of one rank has had enough: he gets that, the others a failure. */
    mine = me == 2 ? tpc_error(TPCOMM_ERR_INTERRUPTED, "enough") : TPCOMM_OK;
    CHECK_STATUS(vote(bootstrap, "try", mine, LONG_MS), me == 2 ? TPCOMM_ERR_INTERRUPTED : TPCOMM_ERR_PEER_FAILED);
    CHECK_ERROR_HAS("enough");
    CHECK_OK(vote(bootstrap, "go on", TPCOMM_OK, LONG_MS));
}

static void mismatches_are_named(tpc_bootstrap_t *bootstrap) {
    tpc_team_t world = world_of(bootstrap);
    tpc_deadline_t deadline = in_ms(LONG_MS);
    char bytes[64] = "", all[SIZE * 64];
    CHECK_STATUS(vote(bootstrap, world.me == 2 ? "step a" : "step b", TPCOMM_OK, LONG_MS), TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("rank 0 is in 'step b', rank 2");
    CHECK_ERROR_HAS("is in 'step a'");
    CHECK_STATUS(tpc_team_gather(bootstrap, &world, "bytes", TPCOMM_OK, bytes, world.me == 3 ? 64 : 60, all, &deadline),
                 TPCOMM_ERR_MISMATCH);
    CHECK_ERROR_HAS("rank 0 brings 60 bytes, rank 3");
    CHECK_ERROR_HAS("64 bytes");
    CHECK_OK(vote(bootstrap, "go on", TPCOMM_OK, LONG_MS));
}

/*
 * What one member waits for before it comes is told by the others in memory that all share, so that no clock decides
 * who is late: each says that it waits for the verdict (a wait asks), and that its call has ended.
 */
typedef struct {
    tpc_deadline_t deadline;
    int32_t me, late, asked;
    int stage;
} turn_t;

/* A member has voted before its wait asks. */
static int32_t member_waits(void *arg) {
    turn_t *turn = arg;
    atomic_store(&job_outcomes[turn->me].stage, turn->stage);
    return 0;
}

/* The leader's time ends 200 ms after all who come have voted, and not before it has looked for their votes. */
static int32_t leader_waits(void *arg) {
    turn_t *turn = arg;
    for (int32_t r = 1; r < SIZE; r++)
        if (r != turn->late && atomic_load(&job_outcomes[r].stage) < turn->stage) return 0;
    if (turn->asked++ == 0) turn->deadline.at_ns = tpc_clock_awake_ns() + 200000000;
    return 0;
}

/** Everybody votes, but the late one when the leader's call has ended. Stages: who voted 2n - 1, whose call ended 2n.
 */
static tpcomm_status_t vote_without(tpc_bootstrap_t *bootstrap, int32_t late, tpcomm_status_t mine, int n) {
    tpc_team_t team = world_of(bootstrap);
    turn_t turn = {.me = team.me, .late = late, .stage = 2 * n - 1};
    if (team.me == late) job_await(0, 2 * n);
    turn.deadline = tpc_deadline_in(LONG_MS, team.me == 0 ? leader_waits : member_waits, &turn);
    tpcomm_status_t status = tpc_team_gather(bootstrap, &team, "late", mine, NULL, 0, NULL, &turn.deadline);
    atomic_store(&job_outcomes[team.me].stage, 2 * n);
    return status;
}

/** Somebody is late: all end alike, he too when he comes, and the channel goes on with nothing left over. */
static void late_members(tpc_bootstrap_t *bootstrap) {
    int32_t me = tpc_bootstrap_rank(bootstrap);
    for (int round = 0; round < 3; round++) {
        CHECK_STATUS(vote_without(bootstrap, 2, TPCOMM_OK, round + 1), TPCOMM_ERR_TIMEOUT);
        CHECK_ERROR_HAS("missing ranks: 2");
        gather_and_check(bootstrap, &(tpc_team_t){.channel = 0, .ranks = everybody, .n = SIZE, .me = me}, 1000,
                         (uint64_t)round);
    }
    /* Two late, of whom one has failed: the failure counts more, both are named. */
    tpcomm_status_t mine = me == 1 ? tpc_error(TPCOMM_ERR_IO, "reason") : TPCOMM_OK;
    CHECK_STATUS(vote_without(bootstrap, 3, mine, 4), TPCOMM_ERR_PEER_FAILED);
    CHECK_ERROR_HAS("rank 1 failed in 'late': reason; missing ranks: 3");
    CHECK_OK(vote(bootstrap, "go on", TPCOMM_OK, LONG_MS));
}

/** The leader is late: the others end by themselves, he learns of that. */
static void late_leader(tpc_bootstrap_t *bootstrap) {
    int32_t me = tpc_bootstrap_rank(bootstrap);
    for (int32_t r = 1; r < SIZE && me == 0; r++) job_await(r, 1);
    CHECK_STATUS(vote(bootstrap, "late", TPCOMM_OK, 200), TPCOMM_ERR_TIMEOUT);
    if (me != 0) CHECK_ERROR_HAS("missing ranks: 0");
    if (me == 0) CHECK_ERROR_HAS("rank 1 failed in 'late'");
    atomic_store(&job_outcomes[me].stage, 1);
    for (int round = 0; round < 3; round++) CHECK_OK(vote(bootstrap, "go on", TPCOMM_OK, LONG_MS));
}

static int32_t ask_to_stop(void *arg) {
    int32_t *asked = arg;
    return ++*asked == 3;
}

static void interrupted(tpc_bootstrap_t *bootstrap) {
    tpc_team_t world = world_of(bootstrap);
    for (int32_t stopping = 0; stopping < 2; stopping++) { /* the leader, a member */
        int32_t asked = 0, late = 3;
        if (world.me == late) job_await(stopping, stopping + 1);
        tpc_deadline_t deadline = in_ms(LONG_MS);
        if (world.me == stopping) deadline = tpc_deadline_in(LONG_MS, ask_to_stop, &asked);
        CHECK_STATUS(tpc_team_gather(bootstrap, &world, "stop", TPCOMM_OK, NULL, 0, NULL, &deadline),
                     world.me == stopping ? TPCOMM_ERR_INTERRUPTED : TPCOMM_ERR_PEER_FAILED);
        CHECK_ERROR_HAS("interrupted");
        atomic_store(&job_outcomes[world.me].stage, stopping + 1);
        CHECK_OK(vote(bootstrap, "go on", TPCOMM_OK, LONG_MS));
    }
}

/** One member lets go of the job: the others are told so at once, whoever he was. */
/** What a rank that has been held up finds: the group has failed since, and before that came all it waits for. */
static struct { _Atomic int32_t voted, led; } * progress; /* in shared memory */

static void await(_Atomic int32_t *word, int32_t value) {
    for (int i = 0; atomic_load(word) < value; i++) {
        if (i == LONG_MS) FAIL("the others did not get there");
        poll(NULL, 0, 1);
    }
}

static tpcomm_status_t held_up(void *arg) {
    const int32_t *me = arg;
    if (*me != 0) atomic_fetch_add(&progress->voted, 1);
    if (*me != 0)
        await(&progress->led, 1);
    else
        await(&progress->voted, SIZE - 1);
    return tpc_error(TPCOMM_ERR_ABORTED, "it failed meanwhile");
}

static void what_has_come_counts(tpc_bootstrap_t *bootstrap) {
    tpc_team_t team = world_of(bootstrap);
    tpc_deadline_t deadline = in_ms(LONG_MS);
    team.check = held_up;
    team.check_arg = &team.me;
    CHECK_OK(tpc_team_gather(bootstrap, &team, "held up", TPCOMM_OK, NULL, 0, NULL, &deadline));
    if (team.me == 0) atomic_store(&progress->led, 1);
}

/** Stopped not while it waits, but between two turns of the wait: that counts for nothing, either. */
static tpcomm_status_t stopped_between_turns(void *arg) {
    int32_t *turns = arg;
    if (++*turns != 2) return TPCOMM_OK;
    usleep(2600000); /* to the rank it is the same */
    atomic_store(&progress->led, 1);
    return TPCOMM_OK;
}

static void stopped_leader(tpc_bootstrap_t *bootstrap) {
    int32_t turns = 0;
    tpc_team_t team = world_of(bootstrap);
    if (team.me == 0) {
        team.check = stopped_between_turns;
        team.check_arg = &turns;
    } else {
        await(&progress->led, 1);
    }
    tpc_deadline_t deadline = in_ms(team.me == 0 ? 2500 : LONG_MS);
    CHECK_OK(tpc_team_gather(bootstrap, &team, "stopped", TPCOMM_OK, NULL, 0, NULL, &deadline));
}

static int32_t leaver;

static void somebody_leaves(tpc_bootstrap_t *bootstrap) {
    uint64_t start_ns = tpc_clock_ns();
    if (tpc_bootstrap_rank(bootstrap) == leaver) return;
    CHECK_STATUS(vote(bootstrap, "left", TPCOMM_OK, 60000), TPCOMM_ERR_ABORTED);
    char want[64];
    snprintf(want, sizeof want, "in 'left': rank %d (pid", leaver);
    CHECK_ERROR_HAS(want);
    CHECK_ERROR_HAS("has left");
    CHECK(tpc_clock_ns() - start_ns < UINT64_C(30000000000));
}

/* ------------------------------------------------------------------ several channels at once */

typedef struct {
    tpc_bootstrap_t *bootstrap;
    int32_t number;
} channel_arg_t;

/** Each channel has another leader and another order of members. */
static void *use_channel(void *arg) {
    const channel_arg_t *channel = arg;
    int32_t ranks[SIZE], me = tpc_bootstrap_rank(channel->bootstrap);
    tpc_team_t team = {.channel = 1000 + (uint64_t)channel->number, .ranks = ranks, .n = SIZE};
    for (int32_t i = 0; i < SIZE; i++) {
        ranks[i] = (i + channel->number) % SIZE;
        if (ranks[i] == me) team.me = i;
    }
    for (uint64_t round = 0; round < 12; round++) {
        gather_and_check(channel->bootstrap, &team, round % 4 == 0 ? 300000 : round, round);
        broadcast_and_check(channel->bootstrap, &team, round % 3 == 0 ? 2 << 20 : round, round);
    }
    return NULL;
}

static void channels_at_once(tpc_bootstrap_t *bootstrap) {
    pthread_t threads[SIZE];
    channel_arg_t args[SIZE];
    for (int32_t i = 0; i < SIZE; i++) {
        args[i] = (channel_arg_t){bootstrap, i};
        CHECK_EQ(pthread_create(&threads[i], NULL, use_channel, &args[i]), 0);
    }
    for (int32_t i = 0; i < SIZE; i++) pthread_join(threads[i], NULL);
}

/* ------------------------------------------------------------------ running */

static void rank_process(int32_t index, outcome_t *outcome) {
    tpc_bootstrap_t *bootstrap;
    int32_t fds = job_count_fds();
    (void)outcome;
    job_set("TPCOMM_RANK", "%d", index);
    job_set("TPCOMM_SIZE", "%d", SIZE);
    CHECK_OK(job_meet_env(LONG_MS, &bootstrap));
    scenario(bootstrap);
    tpc_bootstrap_free(bootstrap);
    CHECK_EQ(job_count_fds(), fds);
}

static void rank_process_two_hosts(int32_t index, outcome_t *outcome) {
    job_set("TPCOMM_HOST_ID", "host%d", index / 2);
    rank_process(index, outcome);
}

static tpc_thread_world_t *thread_world;

static void *rank_thread(void *arg) {
    static tpc_env_t env;
    tpc_bootstrap_t *bootstrap;
    tpc_deadline_t deadline = in_ms(LONG_MS);
    CHECK_OK(tpc_bootstrap_meet_threads(thread_world, *(int32_t *)arg, &env, &deadline, &bootstrap));
    scenario(bootstrap);
    tpc_bootstrap_free(bootstrap);
    return NULL;
}

static void run_threads(void) {
    pthread_t threads[SIZE];
    int32_t ranks[SIZE], fds = job_count_fds();
    job_prepare();
    CHECK_OK(tpc_thread_world_new(SIZE, &thread_world));
    for (int32_t i = 0; i < SIZE; i++) {
        ranks[i] = i;
        CHECK_EQ(pthread_create(&threads[i], NULL, rank_thread, &ranks[i]), 0);
    }
    for (int32_t i = 0; i < SIZE; i++) pthread_join(threads[i], NULL);
    CHECK_EQ(job_count_fds(), fds);
}

/** Between which ranks a scenario is tried; between processes of one host all are. */
enum { HERE = 0, ACROSS_HOSTS = 1, THREADS = 2 };

static void run(const char *name, scenario_t chosen, int also) {
    uint64_t start_ns = tpc_clock_ns();
    scenario = chosen;
    job_run(SIZE, rank_process);
    if (also & ACROSS_HOSTS) job_run(SIZE, rank_process_two_hosts);
    if (also & THREADS) run_threads();
    printf("%s: %llu ms\n", name, (unsigned long long)((tpc_clock_ns() - start_ns) / 1000000));
}

int main(void) {
    job_clean_environment();
    job_set_unique_id("team");
    progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(progress != MAP_FAILED);
    run("data moves", data_moves, ACROSS_HOSTS | THREADS);
    run("descriptors move", descriptors_move, THREADS);
    run("descriptors are exchanged", descriptors_are_exchanged, THREADS);
    run("descriptors run out", descriptors_run_out, HERE);
    run("failures are shared", failures_are_shared, ACROSS_HOSTS | THREADS);
    run("mismatches are named", mismatches_are_named, ACROSS_HOSTS | THREADS);
    run("late members", late_members, ACROSS_HOSTS | THREADS);
    run("late leader", late_leader, ACROSS_HOSTS | THREADS);
    run("what has come counts", what_has_come_counts, HERE);
    memset(progress, 0, sizeof *progress);
    scenario = what_has_come_counts;
    run_threads();
    memset(progress, 0, sizeof *progress);
    run("stopped leader", stopped_leader, HERE);
    run("interrupted", interrupted, ACROSS_HOSTS | THREADS);
    for (leaver = 0; leaver < SIZE; leaver += 2) run("somebody leaves", somebody_leaves, ACROSS_HOSTS | THREADS);
    run("channels at once", channels_at_once, ACROSS_HOSTS | THREADS);
    return 0;
}
