/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check that log lines go where they were asked to go and nowhere else: levels, subsystems, files, the user's function;
 * that a replaced function never runs again; that the log neither blocks, nor recurses, nor changes errno or the last
 * error.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "child.h"

static char output[CHILD_OUTPUT_BYTES];

static void check_output(const char *want) {
    if (strcmp(output, want) != 0) FAIL("stderr has \"%s\", want \"%s\"", output, want);
}

static void log_each_level(void) {
    TPC_LOG(TPCOMM_LOG_ERROR, "a", "error %d", 1);
    TPC_WARN("a", "warn");
    TPC_INFO("b", "info");
    TPC_DEBUG("c", "debug");
}

/* ---------------------------------------------------------------- stderr */

static void debug_wanted(void) {
    CHECK_OK(tpcomm_log_set(NULL, NULL, TPCOMM_LOG_DEBUG));
    log_each_level();
}

static void environment_wins(void) {
    setenv("TPCOMM_LOG", "Info", 1);
    CHECK_OK(tpcomm_log_set(NULL, NULL, TPCOMM_LOG_NONE));
    log_each_level();
    CHECK_OK(tpcomm_log_set(NULL, NULL, TPCOMM_LOG_DEBUG));
    log_each_level();
}

static void environment_silences(void) {
    setenv("TPCOMM_LOG", "none", 1);
    log_each_level();
    CHECK_OK(tpcomm_log_set(NULL, NULL, TPCOMM_LOG_DEBUG));
    log_each_level();
}

static void subsystems_chosen(void) {
    setenv("TPCOMM_LOG", "debug", 1);
    setenv("TPCOMM_LOG_SUBSYS", " c,, b ", 1);
    CHECK_OK(tpc_log_setup(0));
    log_each_level();
    TPC_WARN("bb", "not wanted");
    TPC_WARN("", "not wanted");
}

static void wrong_settings(void) {
    setenv("TPCOMM_LOG", "loud", 1);
    tpc_error(TPCOMM_ERR_IO, "kept");
    errno = EDOM;
    TPC_WARN("a", "as by default");
    CHECK_EQ(errno, EDOM);
    CHECK_ERROR_HAS("kept");
    CHECK_STATUS(tpc_log_setup(0), TPCOMM_ERR_CONFIG);
    CHECK_ERROR_HAS("TPCOMM_LOG='loud' is not valid: allowed are none, error, warn, info, debug");
    CHECK_STATUS(tpcomm_log_set(NULL, NULL, -1), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(tpcomm_log_set(NULL, NULL, 5), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS("level is 5");
}

static void odd_lines(void) {
    static char text[10000];
    memset(text, 'x', sizeof text - 1);
    TPC_WARN("a", "two\nlines \x1b[31m \xff");
    TPC_WARN("a", "%s", text);
    TPC_WARN("a", "%s", "");
}

static void closed_stderr(void) {
    int ends[2];
    /* A pipe whose reader is gone raises no signal, pending or not; a closed descriptor is an error ignored. */
    CHECK_EQ(pipe(ends), 0);
    close(ends[0]);
    int kept = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    TPC_WARN("a", "nobody reads");
    sigset_t pending;
    CHECK_EQ(sigpending(&pending), 0);
    CHECK(!sigismember(&pending, SIGPIPE));
    close(STDERR_FILENO);
    TPC_WARN("a", "nobody reads");
    dup2(kept, STDERR_FILENO);
    TPC_WARN("a", "read again");
}

static void full_stderr(void) {
    int ends[2];
    char block[4096] = {0};
    CHECK_EQ(pipe2(ends, O_NONBLOCK), 0);
    while (write(ends[1], block, sizeof block) > 0) continue;
    fcntl(ends[1], F_SETFL, 0);
    int kept = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    TPC_WARN("a", "dropped: nobody empties the pipe");
    dup2(kept, STDERR_FILENO);
    TPC_WARN("a", "back");
}

static void check_stderr(void) {
    child_run(log_each_level, output);
    check_output("tpcomm ERROR a: error 1\ntpcomm WARN a: warn\n");
    child_run(debug_wanted, output);
    check_output("tpcomm ERROR a: error 1\ntpcomm WARN a: warn\ntpcomm INFO b: info\ntpcomm DEBUG c: debug\n");
    child_run(environment_wins, output);
    check_output("tpcomm ERROR a: error 1\ntpcomm WARN a: warn\ntpcomm INFO b: info\n"
                 "tpcomm ERROR a: error 1\ntpcomm WARN a: warn\ntpcomm INFO b: info\n");
    child_run(environment_silences, output);
    check_output("");
    child_run(subsystems_chosen, output);
    check_output("tpcomm INFO b: info\ntpcomm DEBUG c: debug\n");
    child_run(wrong_settings, output);
    check_output("tpcomm WARN a: as by default\n");
    child_run(odd_lines, output);
    CHECK(strstr(output, "tpcomm WARN a: two?lines ?[31m ?\n") == output);
    CHECK(strstr(output, "xxx...\ntpcomm WARN a: \n"));
    CHECK(strlen(output) < 3000);
    child_run(closed_stderr, output);
    check_output("tpcomm WARN a: read again\n");
    child_run(full_stderr, output);
    check_output("tpcomm WARN a: back\n");
}

/* ---------------------------------------------------------------- file */

static char folder[] = "/tmp/tpcomm-test-log-XXXXXX";

static void read_log(const char *path, char *text, size_t bytes) {
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    fclose(file);
}

static void to_file(void) {
    char host[256] = "", pattern[512], path[1024], text[4096];
    CHECK_EQ(gethostname(host, sizeof host - 1), 0);
    snprintf(pattern, sizeof pattern, "%s/%%h-%%p-%%r-%%%%.log", folder);
    snprintf(path, sizeof path, "%s/%s-%d-7-%%.log", folder, host, (int)getpid());
    setenv("TPCOMM_LOG_FILE", pattern, 1);
    TPC_WARN("a", "before");
    CHECK_OK(tpc_log_setup(7));
    TPC_WARN("a", "first");
    CHECK_OK(tpc_log_setup(8)); /* once per process */
    TPC_WARN("a", "second");
    read_log(path, text, sizeof text);
    CHECK(strcmp(text, "tpcomm WARN a: first\ntpcomm WARN a: second\n") == 0);
    CHECK_EQ(unlink(path), 0);
}

static void to_wrong_files(void) {
    static const char *const wrong[] = {"/", "/nonexistent/x", "%q", "x%"};
    char fifo[600];
    for (size_t i = 0; i < 4; i++) {
        setenv("TPCOMM_LOG_FILE", wrong[i], 1);
        CHECK_STATUS(tpc_log_setup(0), TPCOMM_ERR_CONFIG);
        CHECK_ERROR_HAS("TPCOMM_LOG_FILE='");
        CHECK_ERROR_HAS(wrong[i]);
    }
    /* A FIFO without a reader must not be waited for. */
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    CHECK_EQ(mkfifo(fifo, 0600), 0);
    setenv("TPCOMM_LOG_FILE", fifo, 1);
    CHECK_STATUS(tpc_log_setup(0), TPCOMM_ERR_CONFIG);
    CHECK_EQ(unlink(fifo), 0);
    /* A refused setting can be put right. */
    unsetenv("TPCOMM_LOG_FILE");
    CHECK_OK(tpc_log_setup(0));
}

static void check_file(void) {
    CHECK(mkdtemp(folder) != NULL);
    child_run(to_file, output);
    check_output("tpcomm WARN a: before\n");
    child_run(to_wrong_files, output);
    check_output("");
    CHECK_EQ(rmdir(folder), 0);
}

/* ---------------------------------------------------------------- the user's function */

typedef struct {
    _Atomic int calls;
    _Atomic int open; /**< 1 while it may be called */
    int32_t level;
    char subsystem[32], line[256];
} sink_t;

static void take(void *arg, int32_t level, const char *subsystem, const char *line) {
    sink_t *sink = arg;
    if (!atomic_load(&sink->open)) FAIL("called after tpcomm_log_set had replaced it");
    atomic_fetch_add(&sink->calls, 1);
    sink->level = level;
    snprintf(sink->subsystem, sizeof sink->subsystem, "%s", subsystem);
    snprintf(sink->line, sizeof sink->line, "%s", line);
}

static void to_function(void) {
    sink_t sink = {.open = 1};
    CHECK_OK(tpcomm_log_set(take, &sink, TPCOMM_LOG_INFO));
    TPC_INFO("b", "%s", "line");
    CHECK_EQ(sink.calls, 1);
    CHECK_EQ(sink.level, TPCOMM_LOG_INFO);
    CHECK(strcmp(sink.subsystem, "b") == 0 && strcmp(sink.line, "line") == 0);
    TPC_DEBUG("b", "too detailed");
    CHECK_EQ(sink.calls, 1);
    CHECK_OK(tpcomm_log_set(NULL, NULL, TPCOMM_LOG_WARN));
    atomic_store(&sink.open, 0);
    TPC_WARN("b", "to stderr");
}

static void log_again(void *arg, int32_t level, const char *subsystem, const char *line) {
    sink_t *sink = arg;
    (void)level, (void)subsystem;
    atomic_fetch_add(&sink->calls, 1);
    if (strcmp(line, "outer") == 0) {
        TPC_WARN("inside", "inner");
        CHECK_STATUS(tpcomm_log_set(NULL, NULL, TPCOMM_LOG_NONE), TPCOMM_ERR_INVALID_STATE);
        CHECK_ERROR_HAS("inside");
        errno = ERANGE;
    }
}

static void from_inside(void) {
    sink_t sink = {.open = 1};
    CHECK_OK(tpcomm_log_set(log_again, &sink, TPCOMM_LOG_WARN));
    errno = 0;
    TPC_WARN("a", "outer");
    CHECK_EQ(errno, 0);
    CHECK_EQ(sink.calls, 1);
    TPC_WARN("a", "other");
    CHECK_EQ(sink.calls, 2);
}

static void fork_inside(void *arg, int32_t level, const char *subsystem, const char *line) {
    (void)level, (void)subsystem, (void)line;
    *(pid_t *)arg = fork();
}

/** A child forked from within the function, or at any other moment, has a log that works. */
static void forked(void) {
    pid_t pid = 1;
    sink_t sink = {.open = 1};
    CHECK_OK(tpcomm_log_set(fork_inside, &pid, TPCOMM_LOG_WARN));
    TPC_WARN("a", "fork");
    int status = 0;
    if (pid > 0) CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    CHECK_OK(tpcomm_log_set(take, &sink, TPCOMM_LOG_WARN));
    TPC_WARN("a", "here");
    CHECK_EQ(sink.calls, 1);
    if (pid == 0) _exit(0);
}

static void check_function(void) {
    child_run(to_function, output);
    check_output("tpcomm WARN b: to stderr\n");
    child_run(from_inside, output);
    check_output("tpcomm WARN inside: inner\n");
    child_run(forked, output);
    check_output("");
}

/* ---------------------------------------------------------------- threads */

enum { WRITERS = 3, SETTERS = 2, ROUNDS = 300 };
static _Atomic int stop;
static sink_t sinks[SETTERS][ROUNDS];

static void *write_lines(void *arg) {
    while (!atomic_load(&stop)) TPC_WARN("thread", "%d", *(int *)arg);
    return NULL;
}

static void count_call(void *arg, int32_t level, const char *subsystem, const char *line) {
    sink_t *sink = arg;
    (void)level, (void)subsystem, (void)line;
    if (!atomic_load(&sink->open)) FAIL("called after tpcomm_log_set had replaced it");
    for (int i = 0; i < 50; i++) atomic_fetch_add(&sink->calls, 1);
    if (!atomic_load(&sink->open)) FAIL("still running when tpcomm_log_set had returned");
}

/**
 * Setters race. Whatever sink of this thread was in force, after the set that comes behind it nobody may be in it any
 * more, whichever setter replaced it.
 */
static void *set_sinks(void *arg) {
    sink_t *own = arg;
    for (int i = 0; i < ROUNDS; i++) {
        atomic_store(&own[i].open, 1);
        CHECK_OK(tpcomm_log_set(count_call, &own[i], TPCOMM_LOG_WARN));
        if (i > 0) atomic_store(&own[i - 1].open, 0);
    }
    return NULL;
}

static void race(void) {
    pthread_t writers[WRITERS], setters[SETTERS];
    int numbers[WRITERS];
    sink_t before = {.open = 1};
    CHECK_OK(tpcomm_log_set(count_call, &before, TPCOMM_LOG_WARN));
    for (int i = 0; i < WRITERS; i++) {
        numbers[i] = i;
        CHECK_EQ(pthread_create(&writers[i], NULL, write_lines, &numbers[i]), 0);
    }
    for (int i = 0; i < SETTERS; i++) CHECK_EQ(pthread_create(&setters[i], NULL, set_sinks, sinks[i]), 0);
    for (int i = 0; i < SETTERS; i++) CHECK_EQ(pthread_join(setters[i], NULL), 0);
    CHECK_OK(tpcomm_log_set(NULL, NULL, TPCOMM_LOG_NONE));
    for (int i = 0; i < SETTERS; i++) atomic_store(&sinks[i][ROUNDS - 1].open, 0);
    atomic_store(&before.open, 0);
    atomic_store(&stop, 1);
    for (int i = 0; i < WRITERS; i++) CHECK_EQ(pthread_join(writers[i], NULL), 0);
}

int main(void) {
    unsetenv("TPCOMM_LOG");
    unsetenv("TPCOMM_LOG_SUBSYS");
    unsetenv("TPCOMM_LOG_FILE");
    check_stderr();
    check_file();
    check_function();
    child_run(race, output);
    check_output("");
    return 0;
}
