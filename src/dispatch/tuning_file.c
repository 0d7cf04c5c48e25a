/* SPDX-License-Identifier: Apache-2.0 */
/* Tuning files: rows that people and tools write. Anything that is not as it should be is refused, whole. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "dispatch/dispatch.h"

/* A member that must be one of a set of names; parse says which. */
#define READ_NAME(row, key, parse, value_p, allowed)                                                                   \
    do {                                                                                                               \
        const char *name = NULL;                                                                                       \
        tpcomm_status_t name_status = tpc_json_string(row, key, &name);                                                \
        if (name_status != TPCOMM_OK) return name_status;                                                              \
        if (!parse(name, value_p)) return tpc_json_fail(tpc_json_get(row, key), "unknown; allowed is %s", allowed);    \
    } while (0)

/* The names there are, from the lists that they stand in. */
#define NAME(id, name)  " " name
#define COLLS_TEXT      "one of" TPC_COLL_LIST(NAME)
#define PATHS_TEXT      "one of" TPC_PATH_LIST(NAME)
#define TOPOLOGIES_TEXT "one of" TPC_TOPOLOGY_LIST(NAME)

static bool parse_source(const char *name, int32_t *source_p) {
    *source_p = strcmp(name, "measured") == 0 ? TPCOMM_SOURCE_MEASURED : TPCOMM_SOURCE_ESTIMATED;
    return *source_p == TPCOMM_SOURCE_MEASURED || strcmp(name, "estimated") == 0;
}

static bool parse_dtype_or_any(const char *name, tpcomm_dtype_t *dtype_p) {
    *dtype_p = 0;
    return strcmp(name, "any") == 0 || tpc_dtype_parse(name, dtype_p);
}

static bool present(tpc_json_value_t row, const char *key) {
    tpc_json_value_t value = tpc_json_get(row, key);
    return value.node != NULL && !tpc_json_is_null(value);
}

static tpcomm_status_t read_expectation(tpc_json_value_t row, tpc_row_t *row_p) {
    double base_us = 0, per_mib_us = 0;
    row_p->base_ns = -1;
    if (!present(row, "base_us") && present(row, "per_mib_us"))
        return tpc_json_fail(tpc_json_get(row, "per_mib_us"), "says nothing without base_us");
    if (!present(row, "base_us")) return TPCOMM_OK;
    tpcomm_status_t status = tpc_json_double(row, "base_us", 0, 1e9, &base_us);
    if (status == TPCOMM_OK && present(row, "per_mib_us"))
        status = tpc_json_double(row, "per_mib_us", 0, 1e9, &per_mib_us);
    if (status != TPCOMM_OK) return status;
    row_p->base_ns = (int64_t)(base_us * 1000.0);
    row_p->per_mib_ns = (int64_t)(per_mib_us * 1000.0);
    return TPCOMM_OK;
}

/* The lengths of rows that a row of the table is for. */
static tpcomm_status_t read_hidden(tpc_json_value_t row, tpc_row_t *row_p) {
    static const char *const keys[] = {"hidden_min", "hidden_max"};
    int32_t *const values[] = {&row_p->hidden_min, &row_p->hidden_max};
    for (int i = 0; i < 2; i++) {
        uint64_t value = 0;
        if (!present(row, keys[i])) continue;
        if (!tpc_coll_has_rows(row_p->coll))
            return tpc_json_fail(tpc_json_get(row, keys[i]), "%s has no rows of that many elements",
                                 tpcomm_coll_name(row_p->coll));
        tpcomm_status_t status = tpc_json_u64(row, keys[i], 1, INT32_MAX, &value);
        if (status != TPCOMM_OK) return status;
        *values[i] = (int32_t)value;
    }
    if (row_p->hidden_max < row_p->hidden_min)
        return tpc_json_fail(tpc_json_get(row, "hidden_max"), "below hidden_min, which is %d", row_p->hidden_min);
    return TPCOMM_OK;
}

static tpcomm_status_t read_row(tpc_json_value_t row, tpc_row_t *row_p) {
    static const char *const keys[] = {"coll",       "dtype",      "topology",   "ranks",     "capturing",
                                       "hidden_min", "hidden_max", "bytes_min",  "bytes_max", "path",
                                       "source",     "base_us",    "per_mib_us", NULL};
    const uint64_t exact = (UINT64_C(1) << 53) - 1;
    tpcomm_status_t status = tpc_json_check_keys(row, keys);
    if (status != TPCOMM_OK) return status;
    tpc_row_t read = {.hidden_max = INT32_MAX, .bytes_max = UINT64_MAX, .source = TPCOMM_SOURCE_ESTIMATED};
    tpc_topology_t topology = TPC_TOPOLOGY_CPU;
    READ_NAME(row, "coll", tpc_coll_parse, &read.coll, COLLS_TEXT);
    READ_NAME(row, "topology", tpc_topology_parse, &topology, TOPOLOGIES_TEXT);
    READ_NAME(row, "path", tpc_path_parse, &read.path, PATHS_TEXT);
    if (read.path == TPCOMM_PATH_AUTO) return tpc_json_fail(tpc_json_get(row, "path"), "a row must name a path");
    if (present(row, "dtype")) READ_NAME(row, "dtype", parse_dtype_or_any, &read.dtype, "any, or a dtype's name");
    if (present(row, "source")) READ_NAME(row, "source", parse_source, &read.source, "measured or estimated");
    read.topology = (int32_t)topology;

    uint64_t ranks = 0;
    status = tpc_json_u64(row, "ranks", 1, TPCOMM_MAX_RANKS, &ranks);
    if (status == TPCOMM_OK && present(row, "bytes_min"))
        status = tpc_json_u64(row, "bytes_min", 0, exact, &read.bytes_min);
    if (status == TPCOMM_OK && present(row, "bytes_max"))
        status = tpc_json_u64(row, "bytes_max", 0, exact, &read.bytes_max);
    if (status != TPCOMM_OK) return status;
    read.size = (int32_t)ranks;
    if (read.bytes_max < read.bytes_min)
        return tpc_json_fail(tpc_json_get(row, "bytes_max"), "below bytes_min, which is %llu",
                             (unsigned long long)read.bytes_min);
    if (present(row, "capturing")) {
        bool capturing = false;
        status = tpc_json_bool(row, "capturing", &capturing);
        if (status != TPCOMM_OK) return status;
        read.capturing = capturing ? TPCOMM_ON : TPCOMM_OFF;
    }
    status = read_hidden(row, &read);
    if (status == TPCOMM_OK) status = read_expectation(row, &read);
    if (status == TPCOMM_OK) *row_p = read;
    return status;
}

/* Two rows of one file that claim the same call: which one wins would depend on their order, so neither does. */
static bool rows_clash(const tpc_row_t *a, const tpc_row_t *b) {
    return a->coll == b->coll && a->topology == b->topology && a->size == b->size &&
           (a->dtype == 0 || b->dtype == 0 || a->dtype == b->dtype) &&
           (a->capturing == 0 || b->capturing == 0 || a->capturing == b->capturing) && a->hidden_min <= b->hidden_max &&
           b->hidden_min <= a->hidden_max && a->bytes_min <= b->bytes_max && b->bytes_min <= a->bytes_max;
}

static tpcomm_status_t read_rows(tpc_json_value_t rows, tpc_table_t *table) {
    size_t count = 0;
    for (tpc_json_value_t row = tpc_json_first(rows); row.node != NULL; row = tpc_json_next(row)) {
        if (count == TPC_DISPATCH_MAX_ROWS - TPC_DISPATCH_BUILTIN_MAX)
            return tpc_json_fail(row, "a table has at most %d rows", TPC_DISPATCH_MAX_ROWS - TPC_DISPATCH_BUILTIN_MAX);
        tpcomm_status_t status = read_row(row, &table->rows[count]);
        if (status != TPCOMM_OK) return status;
        for (size_t i = 0; i < count; i++)
            if (rows_clash(&table->rows[i], &table->rows[count]))
                return tpc_json_fail(row, "claims the same calls as row %zu", i);
        count++;
    }
    table->count = count;
    tpc_table_add_builtin(table);
    return TPCOMM_OK;
}

/* A member that may be absent. NULL: it is. */
static tpcomm_status_t read_optional(tpc_json_value_t root, const char *key, const char **text_p) {
    *text_p = NULL;
    return present(root, key) ? tpc_json_string(root, key, text_p) : TPCOMM_OK;
}

static tpcomm_status_t check_device(const char *path, const char *device, const tpc_table_world_t *world) {
    for (int32_t r = 0; r < world->size; r++) {
        if (strcmp(device, world->device[r]) == 0) continue;
        return tpc_error(TPCOMM_ERR_CONFIG, "%s: measured on device '%s', but rank %d runs on '%s'", path, device, r,
                         world->device[r]);
    }
    return TPCOMM_OK;
}

static tpcomm_status_t check_version(const char *path, const char *version) {
    char mine[32];
    snprintf(mine, sizeof mine, "%d.%d", TPCOMM_VERSION_MAJOR, TPCOMM_VERSION_MINOR);
    size_t length = strlen(mine);
    if (strncmp(version, mine, length) == 0 && (version[length] == '\0' || version[length] == '.')) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_CONFIG, "%s: measured with library version '%s', but this is %s", path, version, mine);
}

static tpcomm_status_t check_provenance(tpc_json_value_t root, const char *path, const tpc_table_world_t *world,
                                        tpc_table_t *table) {
    static const char *const keys[] = {
        "schema", "device", "library_version", "world_size", "topology", "nccl_version", "manifest", "rows", NULL};
    const char *device = NULL, *version = NULL, *topology = NULL, *nccl = NULL;
    uint64_t ranks = (uint64_t)world->size;
    tpcomm_status_t status = tpc_json_check_keys(root, keys);
    if (status == TPCOMM_OK) status = tpc_json_string(root, "device", &device);
    if (status == TPCOMM_OK) status = read_optional(root, "library_version", &version);
    if (status == TPCOMM_OK) status = read_optional(root, "topology", &topology);
    if (status == TPCOMM_OK) status = read_optional(root, "nccl_version", &nccl);
    if (status == TPCOMM_OK && present(root, "world_size"))
        status = tpc_json_u64(root, "world_size", 1, TPCOMM_MAX_RANKS, &ranks);
    if (status == TPCOMM_OK) status = check_device(path, device, world);
    if (status != TPCOMM_OK) return status;
    if (ranks != (uint64_t)world->size)
        return tpc_error(TPCOMM_ERR_CONFIG, "%s: measured in a world of %llu ranks, but this one has %d", path,
                         (unsigned long long)ranks, world->size);
    if (version != NULL && (status = check_version(path, version)) != TPCOMM_OK) return status;
    tpc_topology_t known;
    if (topology != NULL && !tpc_topology_parse(topology, &known))
        return tpc_json_fail(tpc_json_get(root, "topology"), "unknown; allowed is %s", TOPOLOGIES_TEXT);
    if (topology != NULL && strcmp(topology, world->topology) != 0)
        return tpc_error(TPCOMM_ERR_CONFIG, "%s: measured on topology '%s', but this world is '%s'", path, topology,
                         world->topology);
    if (nccl == NULL) return TPCOMM_OK;
    if (strlen(nccl) >= sizeof table->nccl)
        return tpc_json_fail(tpc_json_get(root, "nccl_version"), "longer than any version of NCCL");
    snprintf(table->nccl, sizeof table->nccl, "%s", nccl);
    return TPCOMM_OK;
}

tpcomm_status_t tpc_table_check_nccl(const tpc_table_t *table, const char *version) {
    if (table->nccl[0] == '\0' || version[0] == '\0' || strcmp(table->nccl, version) == 0) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_CONFIG, "%s: measured with NCCL %s, but this group uses NCCL %s", table->origin,
                     table->nccl, version);
}

tpcomm_status_t tpc_table_read(const char *path, const tpc_table_world_t *world, tpc_table_t *table) {
    tpc_json_t *doc = NULL;
    tpcomm_status_t status = tpc_json_read_file(path, &doc);
    if (status != TPCOMM_OK) return status;
    memset(table, 0, sizeof *table); /* no stale padding: the rows are hashed */
    tpc_json_value_t rows;
    status = tpc_json_check_schema(doc, "tpcomm-tuning/1");
    if (status == TPCOMM_OK) status = check_provenance(tpc_json_root(doc), path, world, table);
    if (status == TPCOMM_OK) status = tpc_json_array(tpc_json_root(doc), "rows", &rows);
    if (status == TPCOMM_OK) status = read_rows(rows, table);
    if (status == TPCOMM_OK) snprintf(table->origin, sizeof table->origin, "%s", path);
    tpc_json_free(doc);
    return status;
}
