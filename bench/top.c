/* SPDX-License-Identifier: Apache-2.0 */
/** tpcomm-bench top: a live view of a job, by the status sockets of its ranks. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/json.h"
#include "bench.h"
#include "options.h"

#define ADDRESS_BYTES 256
#define ANSWER_BYTES  ((size_t)16 << 20)
#define ASK_MS        3000
#define ROWS_MOST     256

typedef struct {
    const char *address;
    uint64_t ranks, interval_ms, turns;
} settings_t;

static const bench_option_t options[] = {
    BENCH_TEXT("address", true, settings_t, address, "ADDRESS",
               "the ranks' TPCOMM_STATUS_SOCKET: a path, @name or tcp:PORT[+N]; %r: each rank in turn"),
    BENCH_U64("ranks", 'n', settings_t, ranks, "N", 0, TPCOMM_MAX_RANKS,
              "ask ranks 0 to N - 1; 0: as many as the first one that answers says"),
    BENCH_U64("interval-ms", 0, settings_t, interval_ms, "MS", 50, 3600000, "between two looks"),
    BENCH_U64("turns", 0, settings_t, turns, "N", 0, 1000000000,
              "end after N looks; 0: go on until all ranks are gone"),
};

static const settings_t defaults = {.interval_ms = 1000};

static const bench_options_t table = {
    .command = "top",
    .about =
        "Watch a running job: for each group and rank the calls, their rate, the share of time spent waiting, who is\n"
        "last, and who waits for whom. Start the ranks with TPCOMM_STATUS_SOCKET=@some-name-%r.\n"
        "Exit code: 0 the ranks were healthy, 3 a group had failed, 2 usage, or nobody answered.",
    .options = options,
    .count = sizeof options / sizeof options[0],
    .defaults = &defaults,
    .settings_bytes = sizeof defaults,
};

/* One rank's row of a group and plane. */
typedef struct {
    char group[64], id[32], plane[16], status[64], call[96];
    uint64_t rank, size, pid, begun, wall_us, in_flight_us;
    double wait_us, bytes, calls;
    uint64_t last[TPCOMM_MAX_RANKS];
    uint32_t waits_for; /* a bit a group rank */
} row_t;

typedef struct {
    row_t rows[ROWS_MOST];
    size_t count;
    uint64_t world_size;
    int32_t answered;
    bool failed;
} look_t;

/* ------------------------------------------------------------------ asking */

static void put_rank(const char *pattern, uint64_t rank, char address[ADDRESS_BYTES]) {
    size_t used = 0;
    for (const char *c = pattern; *c != '\0' && used + 16 < ADDRESS_BYTES; c++) {
        if (c[0] == '%' && c[1] == 'r') {
            used += (size_t)snprintf(address + used, ADDRESS_BYTES - used, "%llu", (unsigned long long)rank);
            c++;
        } else {
            address[used++] = *c;
        }
    }
    address[used] = '\0';
}

static int knock(const char *address) {
    if (strncmp(address, "tcp:", 4) == 0) {
        char *end = NULL;
        unsigned long port = strtoul(address + 4, &end, 10);
        if (*end == '+') port += strtoul(end + 1, &end, 10);
        struct sockaddr_in remote = {
            .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && *end == '\0' && port <= 65535 &&
            connect(fd, (struct sockaddr *)(void *)&remote, sizeof remote) == 0)
            return fd;
        if (fd >= 0) close(fd);
        return -1;
    }
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    size_t length = strlen(address);
    if (length >= sizeof local.sun_path) return -1;
    memcpy(local.sun_path, address, length);
    if (address[0] == '@') local.sun_path[0] = '\0';
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (address[0] != '@'));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)(void *)&local, bytes) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* The whole answer, or NULL; the caller frees. */
static char *ask(const char *address, size_t *bytes_p) {
    int fd = knock(address);
    if (fd < 0) return NULL;
    size_t have = 0, room = 65536;
    char *text = malloc(room);
    bool whole = false;
    if (text != NULL && send(fd, "json\n", 5, MSG_NOSIGNAL) == 5) {
        for (;;) {
            struct pollfd waited = {.fd = fd, .events = POLLIN};
            if (poll(&waited, 1, ASK_MS) != 1) break;
            ssize_t got = recv(fd, text + have, room - have, 0);
            if (got < 0) break;
            whole = got == 0;
            if (whole) break;
            have += (size_t)got;
            if (have < room) continue;
            char *more = room < ANSWER_BYTES ? realloc(text, 2 * room) : NULL;
            if (more == NULL) break;
            text = more;
            room *= 2;
        }
    }
    close(fd);
    if (!whole) {
        free(text);
        return NULL;
    }
    *bytes_p = have;
    return text;
}

/* ------------------------------------------------------------------ reading */

static void copy_text(tpc_json_value_t object, const char *key, char *text, size_t bytes) {
    const char *value = "?";
    (void)tpc_json_string(object, key, &value);
    snprintf(text, bytes, "%s", value);
}

static uint64_t number(tpc_json_value_t object, const char *key) {
    uint64_t value = 0;
    (void)tpc_json_u64(object, key, 0, UINT64_MAX, &value);
    return value;
}

static double fraction(tpc_json_value_t object, const char *key) {
    double value = 0;
    (void)tpc_json_double(object, key, 0, 1e300, &value);
    return value;
}

static void read_plane(tpc_json_value_t plane, row_t *row) {
    copy_text(plane, "plane", row->plane, sizeof row->plane);
    row->begun = number(plane, "last_begun");
    tpc_json_value_t waits = tpc_json_get(plane, "waits_for"), record = {0};
    for (tpc_json_value_t one = tpc_json_first(waits); one.node != NULL; one = tpc_json_next(one)) {
        uint64_t rank = 0;
        if (tpc_json_as_u64(one, 0, TPCOMM_MAX_RANKS - 1, &rank) == TPCOMM_OK) row->waits_for |= 1u << rank;
    }
    tpc_json_value_t records = tpc_json_get(plane, "records");
    for (tpc_json_value_t one = tpc_json_first(records); one.node != NULL; one = tpc_json_next(one)) record = one;
    bool inside = false;
    (void)tpc_json_bool(plane, "in_flight", &inside);
    row->call[0] = '\0';
    if (record.node == NULL) return;
    char coll[32], dtype[16] = "";
    copy_text(record, "coll", coll, sizeof coll);
    if (!tpc_json_is_null(tpc_json_get(record, "dtype"))) copy_text(record, "dtype", dtype, sizeof dtype);
    if (dtype[0] != '\0')
        snprintf(row->call, sizeof row->call, "%s %llu %s", coll, (unsigned long long)number(record, "count"), dtype);
    else
        snprintf(row->call, sizeof row->call, "%s", coll);
    uint64_t since = number(record, "created_us");
    if (inside && row->wall_us > since) row->in_flight_us = row->wall_us - since;
}

static void read_group(tpc_json_value_t world, tpc_json_value_t group, look_t *look) {
    row_t common = {.rank = number(group, "rank"), .size = number(group, "size"), .pid = number(world, "pid")};
    common.wall_us = number(world, "written_us");
    copy_text(group, "name", common.group, sizeof common.group);
    copy_text(group, "id", common.id, sizeof common.id);
    copy_text(group, "status", common.status, sizeof common.status);
    if (strcmp(common.status, "TPCOMM_OK") != 0) look->failed = true;
    row_t device = common;
    tpc_json_value_t paths = tpc_json_get(group, "paths"), peers = tpc_json_get(group, "peers");
    for (tpc_json_value_t one = tpc_json_first(paths); one.node != NULL; one = tpc_json_next(one)) {
        device.calls += fraction(one, "calls");
        device.bytes += fraction(one, "bytes");
        device.wait_us += fraction(one, "wait_us");
    }
    for (tpc_json_value_t one = tpc_json_first(peers); one.node != NULL; one = tpc_json_next(one)) {
        uint64_t rank = number(one, "rank");
        if (rank < TPCOMM_MAX_RANKS) device.last[rank] = number(one, "times_last");
    }
    tpc_json_value_t planes = tpc_json_get(group, "planes");
    for (tpc_json_value_t one = tpc_json_first(planes); one.node != NULL; one = tpc_json_next(one)) {
        char plane[16];
        copy_text(one, "plane", plane, sizeof plane);
        row_t row = strcmp(plane, "device") == 0 ? device : common;
        read_plane(one, &row);
        if (look->count < ROWS_MOST && (row.begun > 0 || strcmp(plane, "device") == 0)) look->rows[look->count++] = row;
    }
}

/* False if nobody answers there, or something else does. */
static bool look_at(const char *address, look_t *look) {
    size_t bytes = 0;
    char *text = ask(address, &bytes);
    tpc_json_t *doc = NULL;
    bool found = text != NULL && tpc_json_parse(address, text, bytes, &doc) == TPCOMM_OK &&
                 tpc_json_check_schema(doc, "tpcomm-status/1") == TPCOMM_OK;
    free(text);
    if (found) {
        look->answered++;
        tpc_json_value_t worlds = tpc_json_get(tpc_json_root(doc), "worlds");
        for (tpc_json_value_t world = tpc_json_first(worlds); world.node != NULL; world = tpc_json_next(world)) {
            uint64_t size = number(world, "size");
            if (size > look->world_size) look->world_size = size;
            tpc_json_value_t groups = tpc_json_get(world, "groups");
            for (tpc_json_value_t one = tpc_json_first(groups); one.node != NULL; one = tpc_json_next(one))
                read_group(world, one, look);
        }
    }
    tpc_json_free(doc);
    return found;
}

static void look_around(const settings_t *settings, look_t *look) {
    char address[ADDRESS_BYTES];
    memset(look, 0, sizeof *look);
    bool each = strstr(settings->address, "%r") != NULL;
    uint64_t ranks = !each ? 1 : settings->ranks != 0 ? settings->ranks : TPCOMM_MAX_RANKS;
    for (uint64_t rank = 0; rank < ranks; rank++) {
        put_rank(settings->address, rank, address);
        (void)look_at(address, look);
        if (settings->ranks == 0 && each && look->world_size != 0) ranks = look->world_size;
    }
}

/* ------------------------------------------------------------------ showing */

static int by_group(const void *a, const void *b) {
    const row_t *x = a, *y = b;
    int order = strcmp(x->id, y->id);
    if (order == 0) order = strcmp(x->plane, y->plane);
    return order != 0 ? order : x->rank < y->rank ? -1 : x->rank > y->rank;
}

static const row_t *find(const look_t *look, const row_t *like) {
    for (size_t i = 0; i < look->count; i++) {
        const row_t *row = &look->rows[i];
        if (row->pid == like->pid && row->rank == like->rank && strcmp(row->id, like->id) == 0 &&
            strcmp(row->plane, like->plane) == 0)
            return row;
    }
    return NULL;
}

static void show_row(const row_t *row, const row_t *before) {
    double seconds =
        before != NULL && row->wall_us > before->wall_us ? (double)(row->wall_us - before->wall_us) / 1e6 : 0;
    uint64_t total = 0;
    for (int r = 0; r < TPCOMM_MAX_RANKS; r++) total += row->last[r];
    printf("  %4llu %8llu %12llu", (unsigned long long)row->rank, (unsigned long long)row->pid,
           (unsigned long long)row->begun);
    if (seconds > 0 && row->begun >= before->begun)
        printf(" %9.0f", (double)(row->begun - before->begun) / seconds);
    else
        printf(" %9s", "-");
    if (seconds > 0 && strcmp(row->plane, "device") == 0)
        printf(" %9.3f %6.1f", (row->bytes - before->bytes) / seconds / 1e9,
               (row->wait_us - before->wait_us) / seconds / 1e4);
    else
        printf(" %9s %6s", "-", "-");
    if (total > 0)
        printf(" %6.1f", 100.0 * (double)row->last[row->rank] / (double)total);
    else
        printf(" %6s", "-");
    printf("  %s", row->in_flight_us > 0 ? "in " : "");
    printf("%s", row->call);
    if (row->in_flight_us > 0) printf(" for %.1f ms", (double)row->in_flight_us / 1e3);
    if (row->waits_for != 0) {
        printf(", waits for");
        for (int r = 0; r < TPCOMM_MAX_RANKS; r++)
            if ((row->waits_for >> r & 1u) != 0) printf(" %d", r);
    }
    if (strcmp(row->status, "TPCOMM_OK") != 0) printf("  %s", row->status);
    printf("\n");
}

static void show(look_t *look, const look_t *before) {
    qsort(look->rows, look->count, sizeof *look->rows, by_group);
    if (isatty(STDOUT_FILENO)) printf("\033[H\033[2J");
    printf("%d of %llu ranks answer\n", look->answered, (unsigned long long)look->world_size);
    for (size_t i = 0; i < look->count; i++) {
        const row_t *row = &look->rows[i];
        if (i == 0 || strcmp(row->id, row[-1].id) != 0 || strcmp(row->plane, row[-1].plane) != 0) {
            printf("group '%s' (%llu ranks), %s calls\n", row->group, (unsigned long long)row->size, row->plane);
            printf("  %4s %8s %12s %9s %9s %6s %6s  %s\n", "rank", "pid", "calls", "calls/s", "GB/s", "wait%", "last%",
                   "last call");
        }
        show_row(row, find(before, row));
    }
    printf("\n");
    fflush(stdout);
}

int bench_top_main(int argc, char **argv) {
    settings_t settings;
    bench_options_rest_t rest;
    int code;
    if (!bench_options_read(&table, argc, argv, &settings, &rest, &code)) return code;
    tpcomm_status_t status = tpc_json_load_library(NULL);
    if (status != TPCOMM_OK) return bench_report("top", status);
    look_t *looks = calloc(2, sizeof *looks);
    if (looks == NULL) return bench_report("top", tpc_error(TPCOMM_ERR_NO_MEMORY, "out of memory"));
    bool failed = false, answered = false;
    for (uint64_t turn = 0; settings.turns == 0 || turn < settings.turns; turn++) {
        if (turn > 0) (void)poll(NULL, 0, (int)settings.interval_ms);
        look_t *look = &looks[turn % 2];
        look_around(&settings, look);
        if (look->answered == 0) break;
        answered = true;
        failed = failed || look->failed;
        show(look, &looks[(turn + 1) % 2]);
    }
    free(looks);
    if (!answered)
        return bench_report("top",
                            tpc_error(TPCOMM_ERR_IO,
                                      "nobody answers at '%s': start the ranks with TPCOMM_STATUS_SOCKET set to it",
                                      settings.address));
    return failed ? BENCH_EXIT_COMM : BENCH_EXIT_OK;
}
