/* SPDX-License-Identifier: Apache-2.0 */
/** What launchers tell a process of its rank, as a table; docs/launch.md says it to people. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/net.h"

#define NUMBER_MAX 65536
#define JOB_NAMES  4

/** One launcher's variables. Rank and size make a set complete. */
typedef struct {
    const char *name;
    const char *rank, *size, *other_size; /**< other_size: looked at where size is not set */
    const char *local_rank, *local_size;
    const char *job[JOB_NAMES]; /**< tell its jobs apart; the same on all ranks */
} launcher_t;

enum { TORCHRUN, OPEN_MPI, PMI, SLURM, LAUNCHERS };

/** The order is from the innermost launcher outwards: each may run under those behind it and sees their variables too.
 */
static const launcher_t launchers[LAUNCHERS] = {
    [TORCHRUN] = {"torchrun", "RANK", "WORLD_SIZE", NULL, "LOCAL_RANK", "LOCAL_WORLD_SIZE", {"TORCHELASTIC_RUN_ID"}},
    [OPEN_MPI] = {"Open MPI",
                  "OMPI_COMM_WORLD_RANK",
                  "OMPI_COMM_WORLD_SIZE",
                  NULL,
                  "OMPI_COMM_WORLD_LOCAL_RANK",
                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                  {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
    [PMI] = {"PMI", "PMI_RANK", "PMI_SIZE", NULL, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {"PMI_JOBID"}},
    [SLURM] = {"Slurm",
               "SLURM_PROCID",
               "SLURM_NTASKS",
               "SLURM_STEP_NUM_TASKS",
               "SLURM_LOCALID",
               NULL,
               {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"}},
};

/** A set as found. */
typedef struct {
    const launcher_t *launcher;
    const char *size_name;
    const char *rank_text, *size_text; /**< NULL: not set */
    int32_t rank, size;
} set_t;

typedef struct {
    char *text;
    size_t bytes, used;
} writer_t;

static void put(writer_t *writer, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(writer_t *writer, const char *format, ...) {
    if (writer->used >= writer->bytes) return;
    va_list args;
    va_start(args, format);
    int wrote = vsnprintf(writer->text + writer->used, writer->bytes - writer->used, format, args);
    va_end(args);
    if (wrote > 0) writer->used += (size_t)wrote;
}

/** " NAME=value" where it is set. */
static void put_variable(writer_t *writer, const char *name) {
    char quoted[TPC_TEXT_QUOTE_BYTES];
    const char *value = name ? tpc_env_foreign(name) : NULL;
    if (value) put(writer, " %s=%s", name, tpc_text_quote(quoted, value, strlen(value)));
}

static tpcomm_status_t parse_number(const char *name, const char *text, int32_t *number_p) {
    char quoted[TPC_TEXT_QUOTE_BYTES];
    int32_t number = 0;
    const char *c = text;
    while (*c >= '0' && *c <= '9' && number <= NUMBER_MAX) number = number * 10 + (*c++ - '0');
    if (c == text || *c != '\0' || number > NUMBER_MAX)
        return tpc_error(TPCOMM_ERR_CONFIG, "%s='%s': wanted is a whole number from 0 to %d", name,
                         tpc_text_quote(quoted, text, strlen(text)), NUMBER_MAX);
    *number_p = number;
    return TPCOMM_OK;
}

/** A launcher's number that may be absent; then *number_p stays. */
static tpcomm_status_t read_number(const char *name, int32_t *number_p) {
    const char *text = name ? tpc_env_foreign(name) : NULL;
    return text ? parse_number(name, text, number_p) : TPCOMM_OK;
}

/* ------------------------------------------------------------------ Slurm */

/** The batch script's own shell and an interactive one have a rank and the job's size, and are no task of it. */
static bool is_slurm_task(void) {
    const char *step = tpc_env_foreign("SLURM_STEP_ID");
    uint64_t number = 0;
    if (!step) return false;
    for (const char *c = step; *c; c++) {
        if (*c < '0' || *c > '9' || number > UINT32_MAX) return false;
        number = number * 10 + (uint64_t)(*c - '0');
    }
    return number < 0xfffffff0u; /* slurm.h: from here on step ids mean batch, interactive, extern */
}

/** Tasks on one node from a text as "2(x3),1": nodes 0 to 2 have 2 tasks, node 3 has 1; 0 if it cannot be told. */
static int32_t tasks_on_node(const char *text, int32_t node) {
    int64_t first = 0;
    for (const char *c = text; *c;) {
        int64_t tasks = 0, nodes = 1;
        while (*c >= '0' && *c <= '9' && tasks <= NUMBER_MAX) tasks = tasks * 10 + (*c++ - '0');
        if (c[0] == '(' && c[1] == 'x') {
            nodes = 0;
            for (c += 2; *c >= '0' && *c <= '9' && nodes <= NUMBER_MAX; c++) nodes = nodes * 10 + (*c - '0');
            if (*c++ != ')') return 0;
        }
        if (tasks == 0 || tasks > NUMBER_MAX || (*c != ',' && *c != '\0')) return 0;
        if (node < first + nodes) return (int32_t)tasks;
        first += nodes;
        if (*c == ',') c++;
    }
    return 0;
}

static tpcomm_status_t slurm_local_size(int32_t size, int32_t *local_size_p) {
    int32_t node = -1, nodes = 0, tasks_per_node = 0;
    tpcomm_status_t status = read_number("SLURM_NODEID", &node);
    if (status == TPCOMM_OK) status = read_number("SLURM_NNODES", &nodes);
    if (status == TPCOMM_OK) status = read_number("SLURM_STEP_NUM_NODES", &nodes);
    if (status == TPCOMM_OK) status = read_number("SLURM_NTASKS_PER_NODE", &tasks_per_node);
    if (status != TPCOMM_OK) return status;
    const char *per_node = tpc_env_foreign("SLURM_STEP_TASKS_PER_NODE");
    int32_t found = per_node && node >= 0 ? tasks_on_node(per_node, node) : 0;
    if (found == 0) found = nodes == 1 ? size : tasks_per_node;
    *local_size_p = found;
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ choosing a set */

static set_t find_set(const launcher_t *launcher) {
    set_t set = {.launcher = launcher, .size_name = launcher->size, .rank = -1};
    set.rank_text = tpc_env_foreign(launcher->rank);
    set.size_text = tpc_env_foreign(launcher->size);
    if (!set.size_text && launcher->other_size) {
        set.size_text = tpc_env_foreign(launcher->other_size);
        if (set.size_text) set.size_name = launcher->other_size;
    }
    return set;
}

static bool is_complete(const set_t *set) {
    return set->rank_text && set->size_text && (set->launcher != &launchers[SLURM] || is_slurm_task());
}

static tpcomm_status_t parse_set(set_t *set) {
    tpcomm_status_t status = parse_number(set->launcher->rank, set->rank_text, &set->rank);
    return status == TPCOMM_OK ? parse_number(set->size_name, set->size_text, &set->size) : status;
}

/** Nothing is complete: say what is there and what is missing. */
static tpcomm_status_t incomplete_error(const tpc_env_t *env, const set_t sets[LAUNCHERS]) {
    char found[TPC_ERROR_BYTES / 2] = "";
    writer_t writer = {found, sizeof found, 0};
    if (env->value[TPC_ENV_RANK].set != env->value[TPC_ENV_SIZE].set)
        put(&writer, "TPCOMM_%s is set and TPCOMM_%s is not", env->value[TPC_ENV_RANK].set ? "RANK" : "SIZE",
            env->value[TPC_ENV_RANK].set ? "SIZE" : "RANK");
    for (int i = 0; i < LAUNCHERS; i++) {
        const char *separator = writer.used > 0 ? "; " : "";
        if (sets[i].rank_text && sets[i].size_text)
            put(&writer,
                "%sSLURM_PROCID is set and SLURM_STEP_ID names no step: this is the batch script itself, start the "
                "ranks with srun",
                separator);
        else if (sets[i].rank_text)
            put(&writer, "%s%s is set and %s is not (%s)", separator, launchers[i].rank, launchers[i].size,
                launchers[i].name);
        else if (sets[i].size_text && i != SLURM) /* a Slurm allocation has a size everywhere */
            put(&writer, "%s%s is set and %s is not (%s)", separator, launchers[i].size, launchers[i].rank,
                launchers[i].name);
    }
    return tpc_error(TPCOMM_ERR_CONFIG,
                     "this process was not told its rank: %s. Start it with `tpcomm-bench run -n 2 -- ./program`, "
                     "torchrun, mpirun or "
                     "srun, or set TPCOMM_RANK and TPCOMM_SIZE",
                     writer.used > 0 ? found : "no launcher's variables are set");
}

/**
 * Two complete sets that differ. Slurm's reach everything below srun, and torchrun's own mark shows that it is the
 * inner one; bare RANK and WORLD_SIZE may be anybody's, and a wrong guess would make worlds of the wrong size.
 */
static tpcomm_status_t check_agreement(const set_t *chosen, const set_t sets[LAUNCHERS]) {
    if (chosen->launcher == &launchers[TORCHRUN] && tpc_env_foreign("TORCHELASTIC_RUN_ID")) return TPCOMM_OK;
    for (const set_t *other = sets; other < sets + SLURM; other++) {
        if (other->launcher <= chosen->launcher || !is_complete(other)) continue;
        set_t parsed = *other;
        tpcomm_status_t status = parse_set(&parsed);
        if (status != TPCOMM_OK) return status;
        if (parsed.rank != chosen->rank || parsed.size != chosen->size)
            return tpc_error(
                TPCOMM_ERR_CONFIG,
                "two launchers disagree: %s=%d %s=%d (%s) and %s=%d %s=%d (%s). Unset those that do not count, or set "
                "TPCOMM_RANK and TPCOMM_SIZE",
                chosen->launcher->rank, chosen->rank, chosen->size_name, chosen->size, chosen->launcher->name,
                parsed.launcher->rank, parsed.rank, parsed.size_name, parsed.size, parsed.launcher->name);
    }
    return TPCOMM_OK;
}

/* ------------------------------------------------------------------ the rest of the facts */

static tpcomm_status_t from_launcher(const set_t *set, tpc_rank_env_t *out) {
    const launcher_t *launcher = set->launcher;
    out->rank = set->rank;
    out->size = set->size;
    tpcomm_status_t status = read_number(launcher->local_rank, &out->local_rank);
    if (status != TPCOMM_OK) return status;
    if (launcher == &launchers[SLURM]) return slurm_local_size(set->size, &out->local_size);
    return read_number(launcher->local_size, &out->local_size);
}

/** MASTER_ADDR and MASTER_PORT, which torchrun sets and people set under every launcher. */
static tpcomm_status_t read_master(tpc_rank_env_t *out) {
    const char *host = tpc_env_foreign("MASTER_ADDR"), *port_text = tpc_env_foreign("MASTER_PORT");
    int32_t port = 0;
    if (!host || !port_text) return TPCOMM_OK;
    tpcomm_status_t status = parse_number("MASTER_PORT", port_text, &port);
    if (status != TPCOMM_OK) return status;
    if (port < 1 || port > 65535) return tpc_error(TPCOMM_ERR_CONFIG, "MASTER_PORT=%d: wanted is 1 to 65535", port);
    if (strlen(host) >= sizeof out->root_host)
        return tpc_error(TPCOMM_ERR_CONFIG, "MASTER_ADDR is longer than any host name");
    snprintf(out->root_host, sizeof out->root_host, "%s", host);
    out->root_base_port = (uint16_t)port;
    return TPCOMM_OK;
}

/**
 * MPICH's launcher gives its jobs no name. But all ranks of a host have a socket to its proxy, and the socket knows the
 * proxy's process id. 0 if there is none.
 */
static int32_t pmi_proxy_pid(void) {
    int32_t fd = -1, pid = 0;
    uint32_t uid;
    if (read_number("PMI_FD", &fd) != TPCOMM_OK || fd < 0 || tpc_unix_peer(fd, &pid, &uid) != 0) return 0;
    return pid;
}

static void describe_job(const tpc_env_t *env, const launcher_t *launcher, tpc_rank_env_t *out) {
    char text[2048] = "";
    writer_t writer = {text, sizeof text, 0};
    bool one_host = out->local_size == out->size;
    put(&writer, "%s", launcher ? launcher->name : "tpcomm");
    if (env->value[TPC_ENV_JOB_ID].set) put(&writer, " TPCOMM_JOB_ID=%s", env->value[TPC_ENV_JOB_ID].text);
    if (out->root[0] != '\0') put(&writer, " TPCOMM_ROOT=%s", out->root);
    if (out->root_host[0] != '\0') put(&writer, " MASTER=%s:%u", out->root_host, out->root_base_port);
    for (int i = 0; launcher && i < JOB_NAMES; i++) {
        const char *value = launcher->job[i] ? tpc_env_foreign(launcher->job[i]) : NULL;
        if (value) put(&writer, " %s=%.256s", launcher->job[i], value);
    }
    /* Each host's agent counts for itself, so across hosts the counts may differ. */
    const char *restarts = tpc_env_foreign("TORCHELASTIC_RESTART_COUNT");
    if (launcher == &launchers[TORCHRUN] && one_host && restarts) put(&writer, " restart %.32s", restarts);
    if (launcher == &launchers[PMI] && one_host) put(&writer, " proxy %d", pmi_proxy_pid());
    if (strlen(text) < sizeof out->job)
        snprintf(out->job, sizeof out->job, "%.255s", text);
    else
        snprintf(out->job, sizeof out->job, "%.200s~%016llx", text,
                 (unsigned long long)tpc_hash(TPC_HASH_START, text, strlen(text)));
}

static void describe_used(const set_t *set, tpc_rank_env_t *out) {
    static const tpc_env_id_t own[] = {TPC_ENV_RANK, TPC_ENV_SIZE,   TPC_ENV_LOCAL_RANK, TPC_ENV_LOCAL_SIZE,
                                       TPC_ENV_ROOT, TPC_ENV_JOB_ID, TPC_ENV_BIND,       TPC_ENV_HOST_ID};
    writer_t writer = {out->used, sizeof out->used, 0};
    put(&writer, "%s:", set ? set->launcher->name : "TPCOMM");
    if (set) {
        put_variable(&writer, set->launcher->rank);
        put_variable(&writer, set->size_name);
        put_variable(&writer, set->launcher->local_rank);
        put_variable(&writer, set->launcher->local_size);
    }
    for (size_t i = set ? 2 : 0; i < sizeof own / sizeof own[0]; i++) put_variable(&writer, tpc_env_table[own[i]].name);
    put_variable(&writer, "MASTER_ADDR");
    put_variable(&writer, "MASTER_PORT");
    tpc_text_cut(out->used, sizeof out->used, writer.used);
}

static tpcomm_status_t check(const tpc_rank_env_t *out) {
    if (out->size < 1 || out->size > TPCOMM_MAX_RANKS)
        return tpc_error(TPCOMM_ERR_CONFIG, "a world has 1 to %d ranks, not %d (%s)", TPCOMM_MAX_RANKS, out->size,
                         out->used);
    if (out->local_size > out->size)
        return tpc_error(TPCOMM_ERR_CONFIG, "%d ranks on this host are more than the world's %d (%s)", out->local_size,
                         out->size, out->used);
    if (out->local_size > 0 && out->local_rank >= out->local_size)
        return tpc_error(TPCOMM_ERR_CONFIG, "local rank %d is outside the %d ranks of this host (%s)", out->local_rank,
                         out->local_size, out->used);
    return TPCOMM_OK;
}

tpcomm_status_t tpc_rank_env_read(const tpc_env_t *env, tpc_rank_env_t *rank_env_p) {
    tpc_rank_env_t out = {.local_rank = -1};
    const tpc_env_value_t *value = env->value;
    bool explicit_set = value[TPC_ENV_RANK].set && value[TPC_ENV_SIZE].set;
    set_t sets[LAUNCHERS], *chosen = NULL;
    tpcomm_status_t status = TPCOMM_OK;
    for (int i = LAUNCHERS - 1; i >= 0; i--) {
        sets[i] = find_set(&launchers[i]);
        if (!explicit_set && is_complete(&sets[i])) chosen = &sets[i];
    }
    if (explicit_set) {
        out.rank = (int32_t)value[TPC_ENV_RANK].u64;
        out.size = (int32_t)value[TPC_ENV_SIZE].u64;
    } else if (chosen) {
        status = parse_set(chosen);
        if (status == TPCOMM_OK) status = check_agreement(chosen, sets);
        if (status == TPCOMM_OK) status = from_launcher(chosen, &out);
    } else {
        status = incomplete_error(env, sets);
    }
    if (status == TPCOMM_OK) status = read_master(&out);
    if (status != TPCOMM_OK) return status;

    if (value[TPC_ENV_LOCAL_RANK].set) out.local_rank = (int32_t)value[TPC_ENV_LOCAL_RANK].u64;
    if (value[TPC_ENV_LOCAL_SIZE].set) out.local_size = (int32_t)value[TPC_ENV_LOCAL_SIZE].u64;
    if (value[TPC_ENV_ROOT].set) {
        if (strlen(value[TPC_ENV_ROOT].text) >= sizeof out.root)
            return tpc_error(TPCOMM_ERR_CONFIG, "TPCOMM_ROOT is longer than any host name");
        snprintf(out.root, sizeof out.root, "%.255s", value[TPC_ENV_ROOT].text);
    }
    if (value[TPC_ENV_BIND].set) snprintf(out.bind, sizeof out.bind, "%.255s", value[TPC_ENV_BIND].text);
    tpc_host_identity(env, out.host_id);
    describe_job(env, chosen ? chosen->launcher : NULL, &out);
    describe_used(chosen, &out);
    status = check(&out);
    if (status != TPCOMM_OK) return status;
    *rank_env_p = out;
    return TPCOMM_OK;
}
