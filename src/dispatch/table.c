/* SPDX-License-Identifier: Apache-2.0 */
/* The rows that this library ships. */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "dispatch/builtin_rows.h"
#include "dispatch/dispatch.h"

static const tpc_row_t builtin[] = {
#define ROW(COLL, DTYPE, TOPOLOGY, RANKS, CAPTURING, HIDDEN_MIN, HIDDEN_MAX, MIN, MAX, PATH, SOURCE, FROM, BASE,       \
            PER_MIB)                                                                                                   \
    {.coll = COLL,                                                                                                     \
     .dtype = DTYPE,                                                                                                   \
     .topology = TOPOLOGY,                                                                                             \
     .size = RANKS,                                                                                                    \
     .capturing = CAPTURING,                                                                                           \
     .path = PATH,                                                                                                     \
     .source = SOURCE,                                                                                                 \
     .built_in = 1,                                                                                                    \
     .from = FROM,                                                                                                     \
     .hidden_min = HIDDEN_MIN,                                                                                         \
     .hidden_max = HIDDEN_MAX,                                                                                         \
     .bytes_min = MIN,                                                                                                 \
     .bytes_max = MAX,                                                                                                 \
     .base_ns = BASE,                                                                                                  \
     .per_mib_ns = PER_MIB},
    TPC_BUILTIN_ROW_LIST(ROW)
#undef ROW
};

static const char *const sources[] = {
#define TEXT(text) text,
    TPC_BUILTIN_FROM_LIST(TEXT)
#undef TEXT
};

_Static_assert(sizeof builtin / sizeof *builtin <= TPC_DISPATCH_BUILTIN_MAX, "leave room for tuning files");

void tpc_table_add_builtin(tpc_table_t *table) {
    memcpy(&table->rows[table->count], builtin, sizeof builtin);
    table->count += sizeof builtin / sizeof *builtin;
}

void tpc_table_builtin(tpc_table_t *table_p) {
    memset(table_p, 0, sizeof *table_p);
    snprintf(table_p->origin, sizeof table_p->origin, "built-in");
    tpc_table_add_builtin(table_p);
}

const char *tpc_row_from(const tpc_row_t *row) {
    size_t count = sizeof sources / sizeof *sources;
    return row->from >= 1 && (size_t)row->from <= count ? sources[row->from - 1] : "";
}

uint64_t tpc_table_hash(const tpc_table_t *table) {
    uint64_t hash = tpc_hash(TPC_HASH_START, table->nccl, sizeof table->nccl);
    return tpc_hash(hash, table->rows, table->count * sizeof *table->rows);
}
