/* SPDX-License-Identifier: Apache-2.0 */
/**
 * The choice of a path: a pure function of the call and of what all ranks hold equal. Made once per group as size
 * ranges, looked up per call, and able to say why.
 *
 * Order: the call's own path; else the forced path of the settings; else the rows of the tuning file; else the built-in
 * rows. A path that cannot carry the call (a hard limit) is never chosen, but a forced one is refused.
 */
#ifndef TPC_DISPATCH_H
#define TPC_DISPATCH_H

#include "backend/backend.h"

#define TPC_DISPATCH_MAX_ROWS 1024
/** Of them at most so many are built in; a tuning file has the rest. */
#define TPC_DISPATCH_BUILTIN_MAX 512

/** One row: for such messages, this path. */
typedef struct {
    tpcomm_coll_t coll;
    tpcomm_dtype_t dtype; /**< 0: any */
    int32_t topology;     /**< tpc_topology_t */
    int32_t size;         /**< ranks in the group */
    int32_t capturing;    /**< switch; 0: any */
    tpcomm_path_t path;
    int32_t source;                 /**< TPCOMM_SOURCE_* */
    int32_t built_in;               /**< 1: of this library; 0: of a tuning file */
    int32_t from;                   /**< of a built-in row, for tpc_row_from; 0: none */
    int32_t hidden_min, hidden_max; /**< of collectives on rows: elements of one, both included; else 0, INT32_MAX */
    int32_t reserved;               /**< 0: rows are hashed, so they have no holes */
    uint64_t bytes_min, bytes_max;  /**< both included */
    int64_t base_ns;                /**< expected time: base_ns + bytes * per_mib_ns / 2^20; base_ns -1: not known */
    int64_t per_mib_ns;
} tpc_row_t;

/** Rows in order of precedence, equal on all ranks. */
typedef struct {
    size_t count;
    char origin[256]; /**< where the first rows come from: "built-in", or the file */
    char nccl[32];    /**< version of NCCL that the file was measured with; "": it does not say */
    tpc_row_t rows[TPC_DISPATCH_MAX_ROWS];
} tpc_table_t;

/** The rows this library ships. */
void tpc_table_builtin(tpc_table_t *table_p);
/** The same behind those of a table that has at most TPC_DISPATCH_MAX_ROWS - TPC_DISPATCH_BUILTIN_MAX. */
void tpc_table_add_builtin(tpc_table_t *table);

/** The world that a tuning file is read for: what it was measured on must be the same. */
typedef struct {
    int32_t size;
    const char *device[TPCOMM_MAX_RANKS]; /**< of each rank: "cpu", or the GPU's model */
    const char *topology;                 /**< class of all ranks together */
} tpc_table_world_t;

/**
 * Put a tuning file's rows in front. schema tpcomm-tuning/1 (docs/tuning.md, docs/schema/tuning.json). Fails: IO, PARSE
 * (file, place, both values); CONFIG (a table of another device, topology, world size or library version).
 */
tpcomm_status_t tpc_table_read(const char *path, const tpc_table_world_t *world, tpc_table_t *table);

/**
 * Whether a group with this version of NCCL ("": without NCCL) may use the table. Fails: CONFIG (the file was measured
 * with another).
 */
tpcomm_status_t tpc_table_check_nccl(const tpc_table_t *table, const char *version);

/** Where a built-in row is from: a file of bench/results/, or what an estimate rests on; "" for a tuning file's. */
const char *tpc_row_from(const tpc_row_t *row);

/** Hash of what a choice depends on, to compare between ranks. */
uint64_t tpc_table_hash(const tpc_table_t *table);

typedef struct tpc_dispatch tpc_dispatch_t;

/** What was chosen. */
typedef struct {
    tpcomm_path_t path;
    const tpc_backend_t *backend; /**< NULL for unfused, which is composed by the coordinator */
    int32_t backend_index;
} tpc_choice_t;

/**
 * Ranges for one group.
 * @param table  kept, as it is now.
 * @param backends  those for its device, NULL at the end; kept.
 * @param unmade    of each backend why it was left out of this group, NULL where it was not; kept. NULL: all are there.
 */
tpcomm_status_t tpc_dispatch_new(const tpc_agreed_t *agreed, const tpc_table_t *table,
                                 const tpc_backend_t *const *backends, const char *const *unmade,
                                 tpc_dispatch_t **dispatch_p);
void tpc_dispatch_free(tpc_dispatch_t *dispatch);

/**
 * Choose. forced: the call's own path, 0 for none. Fails: UNSUPPORTED, naming the reason (of the forced path, or of
 * every path); INVALID_ARG for a forced path that does not exist.
 */
tpcomm_status_t tpc_dispatch_choose(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key, tpcomm_path_t forced,
                                    tpc_choice_t *choice_p);

/** NULL if an all_reduce, alone or with a norm, can take this path in this group; else why not (static text), "" where
 * there is no such path at all. */
const char *tpc_dispatch_why_not(const tpc_dispatch_t *dispatch, tpcomm_path_t path);

/** The reduction that an unfused call with a norm begins with. */
tpc_call_key_t tpc_dispatch_reduction_of(const tpc_call_key_t *key);

/** The same choice, with its reason, the rejected paths and the range for which it holds. */
tpcomm_status_t tpc_dispatch_explain(const tpc_dispatch_t *dispatch, const tpc_call_key_t *key, tpcomm_path_t forced,
                                     tpcomm_decision_t *decision_p);

#endif
