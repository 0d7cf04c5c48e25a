/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hook.h"

#ifdef TPC_HOOKS

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/env.h"

#define HOOK_MAX   32
#define FIELD_MAX  4
#define NAME_BYTES 64
#define RANK_ANY   INT32_MIN
#define COUNTERS   (TPCOMM_MAX_RANKS + 1)

typedef enum { FAIL, DELAY, SET } action_t;

typedef struct {
    action_t action;
    char name[NAME_BYTES];
    int32_t rank;
    uint64_t number;           /**< FAIL: the first passing that fails; DELAY: ms; SET: the value */
    uint64_t passed[COUNTERS]; /**< by rank; the last one for all that are no rank */
} hook_t;

/* The table is read and changed under lock; state is what a point without hooks looks at. */
enum { UNREAD, EMPTY, SOME, BAD };
static _Atomic int state = UNREAD;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static hook_t hooks[HOOK_MAX];
static size_t hook_count;

static bool parse_number(const char *text, uint64_t *number_p) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    *number_p = strtoull(text, &end, 10);
    return *end == '\0';
}

/** One hook, "action@name:field:field"; text is cut to pieces. */
static bool parse_hook(char *text, hook_t *hook) {
    char *fields[FIELD_MAX] = {NULL};
    size_t count = 0;
    char *at = strchr(text, '@');
    if (!at) return false;
    *at = '\0';
    for (char *field = at + 1; field; count++) {
        if (count == FIELD_MAX) return false;
        fields[count] = field;
        field = strchr(field, ':');
        if (field) *field++ = '\0';
    }
    *hook = (hook_t){.rank = RANK_ANY, .number = 1};
    if (fields[0][0] == '\0' || strlen(fields[0]) >= sizeof hook->name) return false;
    strcpy(hook->name, fields[0]);
    if (strcmp(text, "set") == 0) {
        hook->action = SET;
        return count == 2 && parse_number(fields[1], &hook->number);
    }
    if (count < 2) return false;
    if (strcmp(fields[1], "*") != 0) {
        uint64_t rank;
        if (!parse_number(fields[1], &rank) || rank > INT32_MAX) return false;
        hook->rank = (int32_t)rank;
    }
    if (strcmp(text, "delay") == 0) {
        hook->action = DELAY;
        return count == 3 && parse_number(fields[2], &hook->number);
    }
    hook->action = FAIL;
    if (strcmp(text, "fail") != 0) return false;
    return count == 2 || (count == 3 && parse_number(fields[2], &hook->number));
}

/** Under lock. */
static void read_hooks(void) {
    const char *given = tpc_env_foreign("TPCOMM_TEST_HOOKS");
    char text[1024];
    hook_count = 0;
    int now = EMPTY;
    if (given) {
        now = strlen(given) < sizeof text ? SOME : BAD;
        if (now == SOME) strcpy(text, given);
        char *rest = NULL;
        for (char *one = now == SOME ? strtok_r(text, ";", &rest) : NULL; one; one = strtok_r(NULL, ";", &rest)) {
            if (hook_count == HOOK_MAX || !parse_hook(one, &hooks[hook_count])) {
                now = BAD;
                break;
            }
            hook_count++;
        }
        if (now == BAD) fprintf(stderr, "TPCOMM_TEST_HOOKS='%s' is not valid\n", given);
    }
    atomic_store(&state, now);
}

static int current_state(void) {
    int now = atomic_load(&state);
    if (now != UNREAD) return now;
    pthread_mutex_lock(&lock);
    if (atomic_load(&state) == UNREAD) read_hooks();
    now = atomic_load(&state);
    pthread_mutex_unlock(&lock);
    return now;
}

void tpc_hook_reload(void) {
    pthread_mutex_lock(&lock);
    read_hooks();
    pthread_mutex_unlock(&lock);
}

void (*tpc_hook_observer)(const char *point, int32_t rank);

tpcomm_status_t tpc_hook(const char *point, int32_t rank) {
    int now = current_state();
    if (tpc_hook_observer) tpc_hook_observer(point, rank);
    if (now == EMPTY) return TPCOMM_OK;
    if (now == BAD) return tpc_error(TPCOMM_ERR_INVALID_ARG, "hook: TPCOMM_TEST_HOOKS is not valid");

    bool fails = false;
    uint64_t delay_ms = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < hook_count; i++) {
        hook_t *hook = &hooks[i];
        if (hook->action == SET || strcmp(hook->name, point) != 0) continue;
        if (hook->rank != RANK_ANY && hook->rank != rank) continue;
        if (hook->action == DELAY) delay_ms += hook->number;
        size_t counter = rank >= 0 && rank < TPCOMM_MAX_RANKS ? (size_t)rank : COUNTERS - 1;
        if (hook->action == FAIL && ++hook->passed[counter] >= hook->number) fails = true;
    }
    pthread_mutex_unlock(&lock);

    struct timespec left = {.tv_sec = (time_t)(delay_ms / 1000), .tv_nsec = (long)(delay_ms % 1000) * 1000000};
    while (delay_ms > 0 && nanosleep(&left, &left) != 0) continue;
    if (fails) return tpc_error(TPCOMM_ERR_NO_MEMORY, "hook: %s fails on rank %d", point, rank);
    return TPCOMM_OK;
}

uint64_t tpc_hook_value(const char *name, uint64_t otherwise) {
    if (current_state() != SOME) return otherwise;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < hook_count; i++)
        if (hooks[i].action == SET && strcmp(hooks[i].name, name) == 0) otherwise = hooks[i].number;
    pthread_mutex_unlock(&lock);
    return otherwise;
}

#endif
