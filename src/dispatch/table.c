/* SPDX-License-Identifier: Apache-2.0 */
/* The rows that decide: built in, and read from a tuning file. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "dispatch/dispatch.h"

/* Several GPUs of one host: NCCL from nccl_min bytes up, where the group has it; kernels of ours below, and above where
 * it has not. Estimated, until measured: over NVLink our kernels get what one launch of theirs holds, over PCIe less.
 */
#define GPU_ROW(X, coll, topology, ranks, from, to, path)                                                              \
    X(TPCOMM_##coll, topology, ranks, from, to, TPCOMM_PATH_##path, TPCOMM_SOURCE_ESTIMATED, -1, 0)
#define GPUS_REDUCE_LIST(X, topology, ranks, oneshot_max, nccl_min)                                                    \
    GPU_ROW(X, ALL_REDUCE, topology, ranks, nccl_min, UINT64_MAX, NCCL)                                                \
    GPU_ROW(X, ALL_REDUCE, topology, ranks, 0, oneshot_max, ONESHOT)                                                   \
    GPU_ROW(X, ALL_REDUCE, topology, ranks, (oneshot_max) + 1, UINT64_MAX, TWOSHOT)
#define GPUS_OTHER_LIST(X, topology, coll, nccl_min)                                                                   \
    GPU_ROW(X, coll, topology, 2, nccl_min, UINT64_MAX, NCCL)                                                          \
    GPU_ROW(X, coll, topology, 2, 0, UINT64_MAX, ONESHOT)
#define GPUS_LIST(X, topology, nccl_min)                                                                               \
    GPU_ROW(X, ALL_REDUCE, topology, 1, 0, UINT64_MAX, LOCAL)                                                          \
    GPU_ROW(X, BROADCAST, topology, 1, 0, UINT64_MAX, LOCAL)                                                           \
    GPU_ROW(X, ALL_GATHER, topology, 1, 0, UINT64_MAX, LOCAL)                                                          \
    GPU_ROW(X, BARRIER, topology, 1, 0, UINT64_MAX, LOCAL)                                                             \
    GPU_ROW(X, REDUCE_SCATTER, topology, 1, 0, UINT64_MAX, LOCAL)                                                      \
    GPU_ROW(X, ALL_REDUCE, topology, 2, nccl_min, UINT64_MAX, NCCL)                                                    \
    GPU_ROW(X, ALL_REDUCE, topology, 2, 0, UINT64_MAX, ONESHOT)                                                        \
    GPUS_REDUCE_LIST(X, topology, 3, 524288, nccl_min)                                                                 \
    GPUS_REDUCE_LIST(X, topology, 4, 262144, nccl_min)                                                                 \
    GPUS_REDUCE_LIST(X, topology, 8, 65536, nccl_min)                                                                  \
    GPUS_OTHER_LIST(X, topology, BROADCAST, nccl_min)                                                                  \
    GPUS_OTHER_LIST(X, topology, ALL_GATHER, nccl_min)                                                                 \
    GPUS_OTHER_LIST(X, topology, REDUCE_SCATTER, nccl_min)                                                             \
    GPU_ROW(X, BARRIER, topology, 2, 0, UINT64_MAX, ONESHOT)

/* X(collective, topology, ranks, bytes_min, bytes_max, path, source, base_ns, per_mib_ns), cpu device, any dtype.
 * Measured: bf16, 2 processes on 2 processors of an Intel Xeon (AVX-512) server,
 * bench/results/2026-12-01-cpu-paths.json. */
#define BUILTIN_LIST(X)                                                                                                \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_CPU, 1, 0, UINT64_MAX, TPCOMM_PATH_LOCAL, TPCOMM_SOURCE_ESTIMATED, 0, 100000)    \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_CPU, 2, 0, 32768, TPCOMM_PATH_CPU_ONESHOT, TPCOMM_SOURCE_MEASURED, 1100, 380000) \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_CPU, 2, 32769, UINT64_MAX, TPCOMM_PATH_CPU_TWOSHOT, TPCOMM_SOURCE_MEASURED,      \
      1100, 270000)                                                                                                    \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_CPU, 4, 0, 16384, TPCOMM_PATH_CPU_ONESHOT, TPCOMM_SOURCE_ESTIMATED, 1000,        \
      400000)                                                                                                          \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_CPU, 4, 16385, UINT64_MAX, TPCOMM_PATH_CPU_TWOSHOT, TPCOMM_SOURCE_ESTIMATED,     \
      2000, 300000)                                                                                                    \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_CPU, 8, 0, 8192, TPCOMM_PATH_CPU_ONESHOT, TPCOMM_SOURCE_ESTIMATED, 2000, 800000) \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_CPU, 8, 8193, UINT64_MAX, TPCOMM_PATH_CPU_TWOSHOT, TPCOMM_SOURCE_ESTIMATED,      \
      4000, 400000)                                                                                                    \
    X(TPCOMM_BROADCAST, TPC_TOPOLOGY_CPU, 1, 0, UINT64_MAX, TPCOMM_PATH_LOCAL, TPCOMM_SOURCE_ESTIMATED, 0, 100000)     \
    X(TPCOMM_BROADCAST, TPC_TOPOLOGY_CPU, 2, 0, UINT64_MAX, TPCOMM_PATH_CPU_ONESHOT, TPCOMM_SOURCE_ESTIMATED, 500,     \
      200000)                                                                                                          \
    X(TPCOMM_ALL_GATHER, TPC_TOPOLOGY_CPU, 1, 0, UINT64_MAX, TPCOMM_PATH_LOCAL, TPCOMM_SOURCE_ESTIMATED, 0, 100000)    \
    X(TPCOMM_ALL_GATHER, TPC_TOPOLOGY_CPU, 2, 0, UINT64_MAX, TPCOMM_PATH_CPU_ONESHOT, TPCOMM_SOURCE_ESTIMATED, 500,    \
      200000)                                                                                                          \
    X(TPCOMM_REDUCE_SCATTER, TPC_TOPOLOGY_CPU, 1, 0, UINT64_MAX, TPCOMM_PATH_LOCAL, TPCOMM_SOURCE_ESTIMATED, 0,        \
      100000)                                                                                                          \
    X(TPCOMM_REDUCE_SCATTER, TPC_TOPOLOGY_CPU, 2, 0, UINT64_MAX, TPCOMM_PATH_CPU_ONESHOT, TPCOMM_SOURCE_ESTIMATED,     \
      500, 200000)                                                                                                     \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_CPU, 1, 0, UINT64_MAX, TPCOMM_PATH_LOCAL, TPCOMM_SOURCE_ESTIMATED, -1,  \
      0)                                                                                                               \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_CPU, 2, 0, 65536, TPCOMM_PATH_FUSED_ONESHOT, TPCOMM_SOURCE_ESTIMATED,   \
      -1, 0)                                                                                                           \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_CPU, 2, 65537, UINT64_MAX, TPCOMM_PATH_UNFUSED,                         \
      TPCOMM_SOURCE_ESTIMATED, -1, 0)                                                                                  \
    X(TPCOMM_REDUCE_SCATTER_RMS_NORM, TPC_TOPOLOGY_CPU, 1, 0, UINT64_MAX, TPCOMM_PATH_LOCAL, TPCOMM_SOURCE_ESTIMATED,  \
      -1, 0)                                                                                                           \
    X(TPCOMM_REDUCE_SCATTER_RMS_NORM, TPC_TOPOLOGY_CPU, 2, 0, UINT64_MAX, TPCOMM_PATH_FUSED_ONESHOT,                   \
      TPCOMM_SOURCE_ESTIMATED, -1, 0)                                                                                  \
    X(TPCOMM_ALL_GATHER_ROWS, TPC_TOPOLOGY_CPU, 1, 0, UINT64_MAX, TPCOMM_PATH_LOCAL, TPCOMM_SOURCE_ESTIMATED, -1, 0)   \
    X(TPCOMM_ALL_GATHER_ROWS, TPC_TOPOLOGY_CPU, 2, 0, UINT64_MAX, TPCOMM_PATH_CPU_ONESHOT, TPCOMM_SOURCE_ESTIMATED,    \
      -1, 0)                                                                                                           \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_SAME_GPU, 2, 0, 524288, TPCOMM_PATH_FUSED_ONESHOT,                      \
      TPCOMM_SOURCE_ESTIMATED, -1, 0)                                                                                  \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_SAME_GPU, 2, 524289, UINT64_MAX, TPCOMM_PATH_UNFUSED,                   \
      TPCOMM_SOURCE_ESTIMATED, -1, 0)                                                                                  \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_SAME_GPU, 3, 0, UINT64_MAX, TPCOMM_PATH_UNFUSED,                        \
      TPCOMM_SOURCE_ESTIMATED, -1, 0)                                                                                  \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_NVLINK, 2, 0, 524288, TPCOMM_PATH_FUSED_ONESHOT,                        \
      TPCOMM_SOURCE_ESTIMATED, -1, 0)                                                                                  \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_NVLINK, 2, 524289, UINT64_MAX, TPCOMM_PATH_UNFUSED,                     \
      TPCOMM_SOURCE_ESTIMATED, -1, 0)                                                                                  \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_NVLINK, 3, 0, UINT64_MAX, TPCOMM_PATH_UNFUSED, TPCOMM_SOURCE_ESTIMATED, \
      -1, 0)                                                                                                           \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_PCIE_P2P, 2, 0, 524288, TPCOMM_PATH_FUSED_ONESHOT,                      \
      TPCOMM_SOURCE_ESTIMATED, -1, 0)                                                                                  \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_PCIE_P2P, 2, 524289, UINT64_MAX, TPCOMM_PATH_UNFUSED,                   \
      TPCOMM_SOURCE_ESTIMATED, -1, 0)                                                                                  \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_PCIE_P2P, 3, 0, UINT64_MAX, TPCOMM_PATH_UNFUSED,                        \
      TPCOMM_SOURCE_ESTIMATED, -1, 0)                                                                                  \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_MIXED, 2, 0, 524288, TPCOMM_PATH_FUSED_ONESHOT,                         \
      TPCOMM_SOURCE_ESTIMATED, -1, 0)                                                                                  \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_MIXED, 2, 524289, UINT64_MAX, TPCOMM_PATH_UNFUSED,                      \
      TPCOMM_SOURCE_ESTIMATED, -1, 0)                                                                                  \
    X(TPCOMM_ALL_REDUCE_RMS_NORM, TPC_TOPOLOGY_MIXED, 3, 0, UINT64_MAX, TPCOMM_PATH_UNFUSED, TPCOMM_SOURCE_ESTIMATED,  \
      -1, 0)                                                                                                           \
    X(TPCOMM_BARRIER, TPC_TOPOLOGY_CPU, 1, 0, UINT64_MAX, TPCOMM_PATH_LOCAL, TPCOMM_SOURCE_ESTIMATED, 0, 0)            \
    X(TPCOMM_BARRIER, TPC_TOPOLOGY_CPU, 2, 0, UINT64_MAX, TPCOMM_PATH_CPU_ONESHOT, TPCOMM_SOURCE_ESTIMATED, 500, 0)    \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_SAME_GPU, 1, 0, UINT64_MAX, TPCOMM_PATH_LOCAL, TPCOMM_SOURCE_ESTIMATED, -1, 0)   \
    X(TPCOMM_BROADCAST, TPC_TOPOLOGY_SAME_GPU, 1, 0, UINT64_MAX, TPCOMM_PATH_LOCAL, TPCOMM_SOURCE_ESTIMATED, -1, 0)    \
    X(TPCOMM_ALL_GATHER, TPC_TOPOLOGY_SAME_GPU, 1, 0, UINT64_MAX, TPCOMM_PATH_LOCAL, TPCOMM_SOURCE_ESTIMATED, -1, 0)   \
    X(TPCOMM_BARRIER, TPC_TOPOLOGY_SAME_GPU, 1, 0, UINT64_MAX, TPCOMM_PATH_LOCAL, TPCOMM_SOURCE_ESTIMATED, -1, 0)      \
    X(TPCOMM_REDUCE_SCATTER, TPC_TOPOLOGY_SAME_GPU, 1, 0, UINT64_MAX, TPCOMM_PATH_LOCAL, TPCOMM_SOURCE_ESTIMATED, -1,  \
      0)                                                                                                               \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_SAME_GPU, 2, 0, UINT64_MAX, TPCOMM_PATH_ONESHOT, TPCOMM_SOURCE_ESTIMATED, -1, 0) \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_SAME_GPU, 3, 0, 524288, TPCOMM_PATH_ONESHOT, TPCOMM_SOURCE_ESTIMATED, -1, 0)     \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_SAME_GPU, 3, 524289, UINT64_MAX, TPCOMM_PATH_TWOSHOT, TPCOMM_SOURCE_ESTIMATED,   \
      -1, 0)                                                                                                           \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_SAME_GPU, 4, 0, 262144, TPCOMM_PATH_ONESHOT, TPCOMM_SOURCE_ESTIMATED, -1, 0)     \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_SAME_GPU, 4, 262145, UINT64_MAX, TPCOMM_PATH_TWOSHOT, TPCOMM_SOURCE_ESTIMATED,   \
      -1, 0)                                                                                                           \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_SAME_GPU, 8, 0, 65536, TPCOMM_PATH_ONESHOT, TPCOMM_SOURCE_ESTIMATED, -1, 0)      \
    X(TPCOMM_ALL_REDUCE, TPC_TOPOLOGY_SAME_GPU, 8, 65537, UINT64_MAX, TPCOMM_PATH_TWOSHOT, TPCOMM_SOURCE_ESTIMATED,    \
      -1, 0)                                                                                                           \
    X(TPCOMM_REDUCE_SCATTER, TPC_TOPOLOGY_SAME_GPU, 2, 0, UINT64_MAX, TPCOMM_PATH_ONESHOT, TPCOMM_SOURCE_ESTIMATED,    \
      -1, 0)                                                                                                           \
    X(TPCOMM_BROADCAST, TPC_TOPOLOGY_SAME_GPU, 2, 0, UINT64_MAX, TPCOMM_PATH_ONESHOT, TPCOMM_SOURCE_ESTIMATED, -1, 0)  \
    X(TPCOMM_ALL_GATHER, TPC_TOPOLOGY_SAME_GPU, 2, 0, UINT64_MAX, TPCOMM_PATH_ONESHOT, TPCOMM_SOURCE_ESTIMATED, -1, 0) \
    X(TPCOMM_BARRIER, TPC_TOPOLOGY_SAME_GPU, 2, 0, UINT64_MAX, TPCOMM_PATH_ONESHOT, TPCOMM_SOURCE_ESTIMATED, -1, 0)    \
    GPUS_LIST(X, TPC_TOPOLOGY_NVLINK, 4194305)                                                                         \
    GPUS_LIST(X, TPC_TOPOLOGY_PCIE_P2P, 1048577)                                                                       \
    GPUS_LIST(X, TPC_TOPOLOGY_MIXED, 1048577)

static const tpc_row_t builtin[] = {
#define ROW(COLL, TOPOLOGY, RANKS, MIN, MAX, PATH, SOURCE, BASE, PER_MIB)                                              \
    {.coll = COLL,                                                                                                     \
     .topology = TOPOLOGY,                                                                                             \
     .size = RANKS,                                                                                                    \
     .path = PATH,                                                                                                     \
     .source = SOURCE,                                                                                                 \
     .built_in = 1,                                                                                                    \
     .bytes_min = MIN,                                                                                                 \
     .bytes_max = MAX,                                                                                                 \
     .base_ns = BASE,                                                                                                  \
     .per_mib_ns = PER_MIB},
    BUILTIN_LIST(ROW)
#undef ROW
};

#define BUILTIN_COUNT (sizeof builtin / sizeof *builtin)

void tpc_table_builtin(tpc_table_t *table_p) {
    memset(table_p, 0, sizeof *table_p);
    snprintf(table_p->origin, sizeof table_p->origin, "built-in");
    memcpy(table_p->rows, builtin, sizeof builtin);
    table_p->count = BUILTIN_COUNT;
}

uint64_t tpc_table_hash(const tpc_table_t *table) {
    return tpc_hash(TPC_HASH_START, table->rows, table->count * sizeof *table->rows);
}

/* ------------------------------------------------------------------ tuning files */

/* A member that must be one of a set of names; parse says which. */
#define READ_NAME(row, key, parse, value_p, allowed)                                                                   \
    do {                                                                                                               \
        const char *name = NULL;                                                                                       \
        tpcomm_status_t name_status = tpc_json_string(row, key, &name);                                                \
        if (name_status != TPCOMM_OK) return name_status;                                                              \
        if (!parse(name, value_p)) return tpc_json_fail(tpc_json_get(row, key), "unknown; allowed are %s", allowed);   \
    } while (0)

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
    if (!present(row, "base_us")) return TPCOMM_OK;
    tpcomm_status_t status = tpc_json_double(row, "base_us", 0, 1e9, &base_us);
    if (status == TPCOMM_OK && present(row, "per_mib_us"))
        status = tpc_json_double(row, "per_mib_us", 0, 1e9, &per_mib_us);
    if (status != TPCOMM_OK) return status;
    row_p->base_ns = (int64_t)(base_us * 1000.0);
    row_p->per_mib_ns = (int64_t)(per_mib_us * 1000.0);
    return TPCOMM_OK;
}

static tpcomm_status_t read_row(tpc_json_value_t row, tpc_row_t *row_p) {
    static const char *const keys[] = {"coll",      "dtype", "topology", "ranks",   "capturing",  "bytes_min",
                                       "bytes_max", "path",  "source",   "base_us", "per_mib_us", NULL};
    const uint64_t exact = (UINT64_C(1) << 53) - 1;
    tpcomm_status_t status = tpc_json_check_keys(row, keys);
    if (status != TPCOMM_OK) return status;
    tpc_row_t read = {.bytes_max = UINT64_MAX, .source = TPCOMM_SOURCE_ESTIMATED};
    tpc_topology_t topology = TPC_TOPOLOGY_CPU;
    READ_NAME(
        row, "coll", tpc_coll_parse, &read.coll,
        "all_reduce, broadcast, all_gather, reduce_scatter, barrier, all_reduce_rms_norm, reduce_scatter_rms_norm, "
        "all_gather_rows");
    READ_NAME(row, "topology", tpc_topology_parse, &topology, "cpu, same_gpu, nvlink, pcie_p2p, mixed, multi_host");
    READ_NAME(row, "path", tpc_path_parse, &read.path,
              "oneshot, twoshot, nccl, fused_oneshot, fused_twoshot, unfused, cpu_oneshot, cpu_twoshot, local");
    if (read.path == TPCOMM_PATH_AUTO) return tpc_json_fail(tpc_json_get(row, "path"), "a row must name a path");
    if (present(row, "dtype")) READ_NAME(row, "dtype", parse_dtype_or_any, &read.dtype, "any and the dtypes' names");
    if (present(row, "source")) READ_NAME(row, "source", parse_source, &read.source, "measured, estimated");
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
    status = read_expectation(row, &read);
    if (status == TPCOMM_OK) *row_p = read;
    return status;
}

/* Two rows of one file that claim the same call: which one wins would depend on their order, so neither does. */
static bool rows_clash(const tpc_row_t *a, const tpc_row_t *b) {
    return a->coll == b->coll && a->topology == b->topology && a->size == b->size &&
           (a->dtype == 0 || b->dtype == 0 || a->dtype == b->dtype) &&
           (a->capturing == 0 || b->capturing == 0 || a->capturing == b->capturing) && a->bytes_min <= b->bytes_max &&
           b->bytes_min <= a->bytes_max;
}

static tpcomm_status_t read_rows(tpc_json_value_t rows, tpc_table_t *table) {
    size_t count = 0;
    for (tpc_json_value_t row = tpc_json_first(rows); row.node != NULL; row = tpc_json_next(row)) {
        if (count + BUILTIN_COUNT == TPC_DISPATCH_MAX_ROWS)
            return tpc_json_fail(row, "a table has at most %zu rows", TPC_DISPATCH_MAX_ROWS - BUILTIN_COUNT);
        tpcomm_status_t status = read_row(row, &table->rows[count]);
        if (status != TPCOMM_OK) return status;
        for (size_t i = 0; i < count; i++)
            if (rows_clash(&table->rows[i], &table->rows[count]))
                return tpc_json_fail(row, "claims the same calls as row %zu", i);
        count++;
    }
    memcpy(&table->rows[count], builtin, sizeof builtin);
    table->count = count + BUILTIN_COUNT;
    return TPCOMM_OK;
}

static tpcomm_status_t check_provenance(tpc_json_value_t root, const char *path, const char *device,
                                        int32_t world_size) {
    static const char *const keys[] = {"schema", "device", "library_version", "world_size", "manifest", "rows", NULL};
    const char *text = NULL;
    uint64_t ranks = (uint64_t)world_size;
    tpcomm_status_t status = tpc_json_check_keys(root, keys);
    if (status == TPCOMM_OK) status = tpc_json_string(root, "device", &text);
    if (status != TPCOMM_OK) return status;
    if (strcmp(text, device) != 0)
        return tpc_error(TPCOMM_ERR_CONFIG, "%s: measured on device '%s', but this group runs on '%s'", path, text,
                         device);
    if (present(root, "world_size")) status = tpc_json_u64(root, "world_size", 1, TPCOMM_MAX_RANKS, &ranks);
    if (status != TPCOMM_OK) return status;
    if (ranks != (uint64_t)world_size)
        return tpc_error(TPCOMM_ERR_CONFIG, "%s: measured in a world of %llu ranks, but this one has %d", path,
                         (unsigned long long)ranks, world_size);
    if (!present(root, "library_version")) return TPCOMM_OK;
    status = tpc_json_string(root, "library_version", &text);
    if (status != TPCOMM_OK) return status;
    char mine[32];
    snprintf(mine, sizeof mine, "%d.%d", TPCOMM_VERSION_MAJOR, TPCOMM_VERSION_MINOR);
    size_t length = strlen(mine);
    if (strncmp(text, mine, length) == 0 && (text[length] == '\0' || text[length] == '.')) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_CONFIG, "%s: measured with library version '%s', but this is %s", path, text, mine);
}

tpcomm_status_t tpc_table_read(const char *path, const char *device, int32_t world_size, tpc_table_t *table) {
    tpc_json_t *doc = NULL;
    tpcomm_status_t status = tpc_json_read_file(path, &doc);
    if (status != TPCOMM_OK) return status;
    tpc_json_value_t rows;
    status = tpc_json_check_schema(doc, "tpcomm-tuning/1");
    if (status == TPCOMM_OK) status = check_provenance(tpc_json_root(doc), path, device, world_size);
    if (status == TPCOMM_OK) status = tpc_json_array(tpc_json_root(doc), "rows", &rows);
    if (status == TPCOMM_OK) {
        memset(table, 0, sizeof *table); /* no stale padding: the rows are hashed */
        status = read_rows(rows, table);
    }
    if (status == TPCOMM_OK) snprintf(table->origin, sizeof table->origin, "%s", path);
    tpc_json_free(doc);
    return status;
}
