/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The one table of TPCOMM_ variables, and the only file that calls getenv or reads environ.
 *
 * A row: X(ID, "NAME" without TPCOMM_, kind, scope, default, minimum, maximum, unit, allowed words, help)
 *   kind   BOOL  1/0, true/false, on/off, yes/no, any case, blanks around it ignored
 *          U64   decimal digits only, blanks around them ignored; minimum and maximum inclusive
 *          WORD  one of the allowed words ("a|b|c"), any case, blanks around it ignored
 *          TEXT  anything
 *   scope  SHARED  must agree on all ranks: unset on a rank, it takes rank 0's value; anything else is CONFIG_MISMATCH
 *          LOCAL   each rank's own (log, dump, library paths)
 *          RANK    says who this rank is and how ranks meet; read by bootstrap/rank_env.c
 * An empty value counts as unset. docs/environment.md is made from this table by tools/gen_environment_doc.py.
 */
#ifndef TPC_BASE_ENV_H
#define TPC_BASE_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include "tpcomm.h"

/* clang-format off */
#define TPC_ENV_LIST(X)                                                                                                                                     \
    X(RANK,            "RANK",            U64,  RANK,   "",       0, 65535,       "",      "", "this process's rank, 0 to SIZE - 1")                          \
    X(SIZE,            "SIZE",            U64,  RANK,   "",       1, 65536,       "",      "", "number of ranks")                                             \
    X(LOCAL_RANK,      "LOCAL_RANK",      U64,  RANK,   "",       0, 65535,       "",      "", "rank within this host")                                       \
    X(LOCAL_SIZE,      "LOCAL_SIZE",      U64,  RANK,   "",       1, 65536,       "",      "", "number of ranks on this host; default: SIZE")                 \
    X(ROOT,            "ROOT",            TEXT, RANK,   "",       0, 0,           "",      "", "host:port where rank 0 listens; needed across hosts")         \
    X(JOB_ID,          "JOB_ID",          TEXT, RANK,   "",       0, 0,           "",      "", "tells jobs of one user on one host apart")                    \
    X(BIND,            "BIND",            TEXT, RANK,   "",       0, 0,           "",      "", "address rank 0 listens on; default: all")                     \
    X(SECRET,          "SECRET",          TEXT, RANK,   "",       0, 0,           "",      "", "the job's secret, 16 bytes or more: only who knows it can join")  \
    X(SECRET_FILE,     "SECRET_FILE",     TEXT, RANK,   "",       0, 0,           "",      "", "a file that holds the job's secret")                          \
    X(HOST_ID,         "HOST_ID",         TEXT, RANK,   "",       0, 0,           "",      "", "host identity; default: boot id and network namespace")       \
    X(DEVICE,          "DEVICE",          WORD, SHARED, "auto",   0, 0,           "",      "auto|cuda|cpu", "kind of device")                                \
    X(SHARE_DEVICE,    "SHARE_DEVICE",    BOOL, SHARED, "0",      0, 1,           "",      "", "several ranks may use one GPU")                              \
    X(WORKSPACE_BYTES, "WORKSPACE_BYTES", U64,  SHARED, "33554432", 65536, 1099511627776, "bytes", "", "limit of memory per rank that peers write")           \
    X(PEER_MEM,        "PEER_MEM",        WORD, SHARED, "auto",   0, 0,           "",      "auto|cumem|cudaipc", "how ranks share device memory (plain pointers between threads are cudaipc)")  \
    X(PATH,            "PATH",            WORD, SHARED, "auto",   0, 0,           "",      "auto|oneshot|twoshot|ring|nccl|fused_oneshot|fused_twoshot|unfused|cpu_oneshot|cpu_twoshot|local", "forced path of all_reduce; a fused or unfused one, of all_reduce_rms_norm") \
    X(DETERMINISTIC,   "DETERMINISTIC",   BOOL, SHARED, "0",      0, 1,           "",      "", "only paths of the one numerical result")                      \
    X(NCCL,            "NCCL",            BOOL, SHARED, "1",      0, 1,           "",      "", "use NCCL where it is found")                                  \
    X(CHECK,           "CHECK",           WORD, SHARED, "async",  0, 0,           "",      "off|async|sync", "how ranks' calls are compared on the host (docs/health.md)")    \
    X(TUNING_FILE,     "TUNING_FILE",     TEXT, SHARED, "",       0, 0,           "",      "", "tuning JSON, read by rank 0 alone")                           \
    X(INIT_TIMEOUT_MS, "INIT_TIMEOUT_MS", U64,  SHARED, "120000", 1, 86400000,    "ms",    "", "limit of init")                                               \
    X(OP_TIMEOUT_MS,   "OP_TIMEOUT_MS",   U64,  SHARED, "300000", 1, 86400000,    "ms",    "", "limit of each wait in a collective")                          \
    X(NCCL_PATH,       "NCCL_PATH",       TEXT, LOCAL,  "",       0, 0,           "",      "", "the NCCL library to load")                                    \
    X(NVML_PATH,       "NVML_PATH",       TEXT, LOCAL,  "",       0, 0,           "",      "", "the NVIDIA management library to load")                       \
    X(CJSON_PATH,      "CJSON_PATH",      TEXT, LOCAL,  "",       0, 0,           "",      "", "the cJSON library to load")                                   \
    X(CRYPTO_PATH,     "CRYPTO_PATH",     TEXT, LOCAL,  "",       0, 0,           "",      "", "the libcrypto to load, for a job's secret")                   \
    X(LIBRARY,         "LIBRARY",         TEXT, LOCAL,  "",       0, 0,           "",      "", "the libtpcomm that the Python module loads")                  \
    X(LOG,             "LOG",             WORD, LOCAL,  "warn",   0, 0,           "",      "none|error|warn|info|debug", "log level")                         \
    X(LOG_SUBSYS,      "LOG_SUBSYS",      TEXT, LOCAL,  "",       0, 0,           "",      "", "only these subsystems, comma-separated")                      \
    X(LOG_FILE,        "LOG_FILE",        TEXT, LOCAL,  "",       0, 0,           "",      "", "log file instead of stderr; %h host, %p pid, %r rank") \
    X(NOTE_WAITS,      "NOTE_WAITS",      BOOL, LOCAL,  "0",      0, 1,           "",      "", "kernels on a GPU note how long each call waits, and for whom (docs/health.md)") \
    X(FLIGHT_RECORDS,  "FLIGHT_RECORDS",  U64,  LOCAL,  "1024",   16, 1048576,    "calls", "", "last calls kept for each group (docs/health.md)")              \
    X(FLIGHT_DIR,      "FLIGHT_DIR",      TEXT, LOCAL,  "",       0, 0,           "",      "", "folder for the flight dumps of ranks whose group fails")       \
    X(STATUS_SOCKET,   "STATUS_SOCKET",   TEXT, LOCAL,  "",       0, 0,           "",      "", "where a rank tells its state: path, @name, tcp:PORT[+N]; %h host, %p pid, %r rank")
/* clang-format on */

typedef enum {
#define TPC_ENV_ID(id, ...) TPC_ENV_##id,
    TPC_ENV_LIST(TPC_ENV_ID)
#undef TPC_ENV_ID
        TPC_ENV_COUNT
} tpc_env_id_t;

typedef enum { TPC_ENV_KIND_BOOL, TPC_ENV_KIND_U64, TPC_ENV_KIND_WORD, TPC_ENV_KIND_TEXT } tpc_env_kind_t;
typedef enum { TPC_ENV_SCOPE_SHARED, TPC_ENV_SCOPE_LOCAL, TPC_ENV_SCOPE_RANK } tpc_env_scope_t;

typedef struct {
    const char *name; /**< with TPCOMM_ */
    tpc_env_kind_t kind;
    tpc_env_scope_t scope;
    const char *default_text;
    uint64_t minimum, maximum;
    const char *unit, *allowed, *help;
} tpc_env_row_t;

extern const tpc_env_row_t tpc_env_table[TPC_ENV_COUNT];

#define TPC_ENV_TEXT_BYTES 512

/** One variable's value, checked against its row. */
typedef struct {
    bool set;                      /**< false: unset or empty; then the default stands in u64 and text */
    uint64_t u64;                  /**< BOOL (0 or 1), U64; WORD: index into the allowed words */
    char text[TPC_ENV_TEXT_BYTES]; /**< in its one spelling: words in lower case, numbers without blanks */
} tpc_env_value_t;

/** All variables at one moment. */
typedef struct {
    tpc_env_value_t value[TPC_ENV_COUNT];
} tpc_env_t;

/**
 * Read and check every variable. Fails: CONFIG, naming the variable, its value and what is allowed. Unknown TPCOMM_
 * names are logged as a warning with the nearest known name, once per name and process. (TPCOMM_BENCH_* and
 * TPCOMM_TEST_* are not ours.)
 */
tpcomm_status_t tpc_env_read(tpc_env_t *env_p);

/** Read and check one variable. Fails: CONFIG. */
tpcomm_status_t tpc_env_get(tpc_env_id_t id, tpc_env_value_t *value_p);

/** Check one text against a row, as if it were the variable's value. Fails: CONFIG. */
tpcomm_status_t tpc_env_parse(tpc_env_id_t id, const char *text, tpc_env_value_t *value_p);

/** A variable of somebody else (a launcher's); NULL if unset or empty. */
const char *tpc_env_foreign(const char *name);

#endif
