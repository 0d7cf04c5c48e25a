/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that a rank's status socket says what its groups do and who waits for whom; that clients who are silent, slow
 * or speak nonsense neither stop others from being answered nor the death of a peer from being seen; that another user
 * gets nothing; that files go and stale ones are replaced; and that forked children change nothing.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "multirank/ranks.h"
#include "multirank/stalls.h"
#include "multirank/status_client.h"

static char folder[] = "/tmp/tpcomm-status-test-XXXXXX";

static void check_answer(const char *address, const char *request, const char *piece) {
    char *text = status_ask(address, request);
    if (strstr(text, piece) == NULL) FAIL("%s to '%s' has no '%s':\n%s", address, request, piece, text);
    free(text);
}

static void keep(const char *name, char *text) {
    char path[256];
    const char *to = getenv("TPCOMM_TEST_KEEP"); /* for flight_command */
    if (to != NULL) {
        snprintf(path, sizeof path, "%s/%s", to, name);
        FILE *file = fopen(path, "w");
        CHECK(file != NULL);
        fputs(text, file);
        CHECK_EQ(fclose(file), 0);
    }
    free(text);
}

/* ------------------------------------------------------------------ what it says */

static char address_format[112]; /* the rank comes behind it */

static const char *address_of(int32_t rank, char text[128]) {
    snprintf(text, 128, "%s%d", address_format, rank);
    return text;
}

static void says(rank_t *rank) {
    char address[128];
    float x[8] = {1};
    for (int i = 0; i < 20; i++) CHECK_OK(tpcomm_all_reduce(rank->comm, x, x, 8, TPCOMM_F32, TPCOMM_SUM, NULL));
    CHECK_OK(tpcomm_host_barrier(rank->comm, 0));
    if (rank->rank == 1) {
        /* Rank 0 is in call 21 and waits for me; its socket says so. */
        char *text = NULL;
        for (int ms = 0;; ms++) {
            text = status_ask(address_of(0, address), "text\n");
            if (strstr(text, "waits for rank 1 (last seq 20)") != NULL) break;
            free(text);
            if (ms == 5000) FAIL("never told");
            usleep(1000);
        }
        CHECK(strstr(text, "group 'world': rank 0 of 2, cpu, healthy") != NULL);
        CHECK(strstr(text, "in barrier seq 21 for ") != NULL);
        CHECK(strstr(text, "all_reduce seq 20 count 8 f32 sum") != NULL);
        CHECK(strstr(text, "all_reduce seq 12 ") == NULL); /* only the last ones */
        free(text);
        check_answer(address_of(0, address), "", "rank 0 of 2");
        check_answer(address_of(1, address), "\n", "rank 1 of 2");
        check_answer(address_of(0, address), "json\n", "\"waits_for\":[1]");
        check_answer(address_of(0, address), "json", "{\"schema\":\"tpcomm-status/1\",");
        check_answer(address_of(0, address), "flight\n", "{\"seq\":1,\"coll\":\"all_reduce\"");
        check_answer(address_of(0, address), "secrets\n", "unknown request");
        keep("status.json", status_ask(address_of(0, address), "json\n"));
        keep("tpcomm-flight-0.json", status_ask(address_of(0, address), "flight\n"));
    }
    CHECK_OK(tpcomm_barrier(rank->comm, NULL));
}

static void check_says(int kind, const char *pattern, const char *format) {
    tpcomm_config_t config = ranks_config();
    CHECK_EQ(setenv("TPCOMM_STATUS_SOCKET", pattern, 1), 0);
    snprintf(address_format, sizeof address_format, "%s", format);
    ranks_run(kind, 2, &config, says, NULL);
    char address[128];
    if (kind == RANKS_THREADS) CHECK_EQ(status_knock(address_of(0, address)), -1);
    CHECK_EQ(unsetenv("TPCOMM_STATUS_SOCKET"), 0);
}

/* Two ports, TENS * 10 and the next one, which nobody has; below those that the kernel gives away by itself. */
static int free_ports(void) {
    for (int turn = 0; turn < 200; turn++) {
        int tens = 1800 + (getpid() + turn) % 200, found = 0;
        for (int i = 0; i < 2; i++) {
            struct sockaddr_in address = {.sin_family = AF_INET,
                                          .sin_port = htons((uint16_t)(10 * tens + i)),
                                          .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
            int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            found += fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
            close(fd);
        }
        if (found == 2) return tens;
    }
    FAIL("no free ports");
}

/* ------------------------------------------------------------------ who may ask, and how */

static void disturb(const char *address, int *fds, int count) {
    static char noise[65536];
    for (int i = 0; i < count; i++) {
        fds[i] = status_knock(address);
        if (fds[i] < 0) continue;
        switch (i % 4) {
        case 0: /* silence */
            break;
        case 1: /* asks and never reads */
            (void)!send(fds[i], "flight\n", 7, MSG_NOSIGNAL);
            break;
        case 2: /* noise without an end */
            (void)!send(fds[i], noise, sizeof noise, MSG_NOSIGNAL | MSG_DONTWAIT);
            break;
        default:
            (void)!send(fds[i], "j", 1, MSG_NOSIGNAL);
        }
    }
}

static pid_t *victim; /* shared */

static void hostile(int32_t rank, int32_t size, void *arg) {
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL;
    float x[8] = {1};
    char address[128];
    int fds[200];
    CHECK_EQ(setenv("TPCOMM_STATUS_SOCKET", arg, 1), 0);
    CHECK_OK(tpcomm_init_env(&config, &comm));
    for (int i = 0; i < 3000; i++) CHECK_OK(tpcomm_all_reduce(comm, x, x, 8, TPCOMM_F32, TPCOMM_SUM, NULL));
    if (rank == 1) {
        *victim = getpid();
        CHECK_OK(tpcomm_barrier(comm, NULL));
        pause();
    }
    CHECK_OK(tpcomm_barrier(comm, NULL));
    for (int turn = 0; turn < 3; turn++) {
        disturb(address_of(rank, address), fds, 200);
        check_answer(address_of(rank, address), "text\n", "group 'world'");
        if (turn < 2)
            for (int i = 0; i < 200; i++) close(fds[i]);
    }
    /* With all of them still connected: */
    moment_t start = moment_now();
    if (rank == 0) kill(*victim, SIGKILL);
    CHECK_STATUS(tpcomm_barrier(comm, NULL), TPCOMM_ERR_PEER_DIED);
    if (rank == 0) CHECK_WITHIN(start, 4000);
    check_answer(address_of(rank, address), "text\n", "TPCOMM_ERR_PEER_DIED: rank 1 (pid ");
    CHECK_OK(tpcomm_destroy(comm));
    (void)size;
}

static void check_hostile(void) {
    char job[64], pattern[128];
    pid_t children[3];
    snprintf(address_format, sizeof address_format, "@tpcomm-status-test-hostile-%d-", getpid());
    snprintf(pattern, sizeof pattern, "%s%%r", address_format);
    snprintf(job, sizeof job, "status-%d", getpid());
    victim = mmap(NULL, sizeof *victim, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(victim != MAP_FAILED);
    fflush(NULL);
    for (int32_t rank = 0; rank < 3; rank++) {
        children[rank] = fork();
        CHECK(children[rank] >= 0);
        if (children[rank] != 0) continue;
        ranks_set_env(rank, 3, job);
        hostile(rank, 3, pattern);
        _Exit(0);
    }
    for (int32_t rank = 0; rank < 3; rank++) {
        int how = 0;
        CHECK_EQ(waitpid(children[rank], &how, 0), children[rank]);
        if (rank == 1 ? !WIFSIGNALED(how) : how != 0) FAIL("rank %d ended with %#x", rank, (unsigned)how);
    }
    munmap(victim, sizeof *victim);
}

static void check_other_user(void) {
    tpcomm_config_t config = ranks_config();
    tpcomm_t *comm = NULL;
    if (geteuid() != 0) {
        printf("another user: not tried, this one cannot become one\n");
        return;
    }
    char address[64];
    snprintf(address, sizeof address, "@tpcomm-status-test-user-%d", getpid());
    CHECK_EQ(setenv("TPCOMM_STATUS_SOCKET", address, 1), 0);
    CHECK_OK(tpcomm_init_local(1, NULL, &config, &comm));
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_EQ(setgid(12345), 0);
        CHECK_EQ(setuid(12345), 0);
        int fd = status_knock(address);
        CHECK(fd >= 0);
        (void)!send(fd, "text\n", 5, MSG_NOSIGNAL); /* it may be closed already */
        char *text = status_read(fd);
        if (text[0] != '\0') FAIL("another user was told: %s", text);
        _Exit(0);
    }
    int how = 0;
    CHECK_EQ(waitpid(child, &how, 0), child);
    CHECK_EQ(how, 0);
    CHECK_OK(tpcomm_destroy(comm));
}

/* ------------------------------------------------------------------ addresses and files */

static void check_files(void) {
    tpcomm_config_t config = ranks_config();
    char path[64], other[64];
    struct stat facts;
    tpcomm_t *comms[2] = {NULL, NULL}, *second = NULL;
    snprintf(path, sizeof path, "%s/socket", folder);
    snprintf(other, sizeof other, "%s/file", folder);
    CHECK_EQ(setenv("TPCOMM_STATUS_SOCKET", path, 1), 0);
    resources_t before = resources_now();

    /* A killed process has left its file. */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);

    /* Two ranks and another world share one address. */
    CHECK_OK(tpcomm_init_local(2, NULL, &config, comms));
    CHECK_EQ(stat(path, &facts), 0);
    CHECK_EQ(facts.st_mode & 0777, 0600);
    CHECK_OK(tpcomm_init_local(1, NULL, &config, &second));
    check_answer(path, "text\n", "rank 0 of 2");
    check_answer(path, "text\n", "rank 1 of 2");
    check_answer(path, "text\n", "rank 0 of 1");

    /* A forked child that ends, with and without destroying what it inherited, takes nothing along. */
    fflush(NULL);
    const int turns = TEST_TSAN ? 1 : 2; /* it takes a thread of a forked child for one of its parent's */
    for (int turn = 0; turn < turns; turn++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            if (turn == 0) CHECK_OK(tpcomm_destroy(second));
            if (turn == 1) { /* one of its own, elsewhere */
                tpcomm_t *own = NULL;
                char child_address[64];
                snprintf(child_address, sizeof child_address, "@tpcomm-status-test-child-%d", getpid());
                CHECK_EQ(setenv("TPCOMM_STATUS_SOCKET", child_address, 1), 0);
                CHECK_OK(tpcomm_init_local(1, NULL, &config, &own));
                check_answer(child_address, "text\n", "rank 0 of 1");
                CHECK_OK(tpcomm_destroy(own));
            }
            _Exit(0);
        }
        int how = 0;
        CHECK_EQ(waitpid(child, &how, 0), child);
        CHECK_EQ(how, 0);
        check_answer(path, "text\n", "rank 0 of 1");
    }
    CHECK_OK(tpcomm_destroy(second));
    for (int r = 0; r < 2; r++) CHECK_OK(tpcomm_destroy(comms[r]));
    CHECK_EQ(stat(path, &facts), -1);

    /* Where somebody else's file or socket is, nothing is taken away, and the job works. */
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    CHECK_EQ(listen(fd, 8), 0);
    CHECK_OK(tpcomm_init_local(1, NULL, &config, &second));
    CHECK_OK(tpcomm_destroy(second));
    CHECK_EQ(stat(path, &facts), 0);
    CHECK_EQ(unlink(path), 0);
    close(fd);
    FILE *file = fopen(other, "w");
    CHECK(file != NULL);
    fclose(file);
    CHECK_EQ(setenv("TPCOMM_STATUS_SOCKET", other, 1), 0);
    CHECK_OK(tpcomm_init_local(1, NULL, &config, &second));
    CHECK_OK(tpcomm_destroy(second));
    CHECK_EQ(unlink(other), 0);

    char long_path[128] = "";
    memset(long_path, 'x', sizeof long_path - 1);
    const char *const wrong[] = {"@", "tcp:", "tcp:0", "tcp:70000", "tcp:80+", "tcp:x", "tcp:80+x", "a%zb", long_path};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        CHECK_EQ(setenv("TPCOMM_STATUS_SOCKET", wrong[i], 1), 0);
        CHECK_STATUS(tpcomm_init_local(2, NULL, &config, comms), TPCOMM_ERR_CONFIG);
        CHECK_ERROR_HAS("TPCOMM_STATUS_SOCKET");
    }
    CHECK_EQ(unsetenv("TPCOMM_STATUS_SOCKET"), 0);
    resources_check_equal(before, "after all addresses");
}

/* For bench_top_command: calls, then all but rank 0 wait until its standard input ends. */
static int serve(void) {
    tpcomm_config_t config = ranks_config();
    tpcomm_info_t info = {.struct_size = sizeof info};
    tpcomm_t *comm = NULL;
    static uint16_t x[1024];
    CHECK_OK(tpcomm_init_env(&config, &comm));
    CHECK_OK(tpcomm_comm_info(comm, &info));
    for (int i = 0; i < 1000; i++) CHECK_OK(tpcomm_all_reduce(comm, x, x, 1024, TPCOMM_BF16, TPCOMM_SUM, NULL));
    while (info.rank == 0 && getchar() != EOF) continue;
    CHECK_OK(tpcomm_barrier(comm, NULL));
    CHECK_OK(tpcomm_finalize(comm));
    CHECK_OK(tpcomm_destroy(comm));
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "serve") == 0) return serve();
    char pattern[256], format[112];
    stalls_watch();
    CHECK(mkdtemp(folder) != NULL);
    snprintf(pattern, sizeof pattern, "@tpcomm-status-test-%%p-%%r");
    snprintf(format, sizeof format, "@tpcomm-status-test-%d-", getpid());
    check_says(RANKS_THREADS, pattern, format);
    if (argc > 1) return rmdir(folder); /* for flight_command */
    snprintf(pattern, sizeof pattern, "%s/status-%%r", folder);
    snprintf(format, sizeof format, "%s/status-", folder);
    for (int kind = 0; kind < RANKS_KINDS; kind++) check_says(kind, pattern, format);
    int tens = free_ports();
    snprintf(format, sizeof format, "tcp:%d", tens);
    snprintf(pattern, sizeof pattern, "tcp:%d%%r", tens);
    check_says(RANKS_PROCESSES, pattern, format);
    snprintf(pattern, sizeof pattern, "tcp:%d0+%%r", tens);
    check_says(RANKS_THREADS, pattern, format);
    check_hostile();
    check_other_user();
    check_files();
    CHECK_EQ(rmdir(folder), 0);
    return 0;
}
