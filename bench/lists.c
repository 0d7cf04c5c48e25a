/* SPDX-License-Identifier: Apache-2.0 */
#include "lists.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "bench.h"
#include "measure.h"
#include "number.h"

#define DTYPE_NAME(id, name, bytes, is_float) " " name
#define NAME(id, name)                        " " name
const char bench_dtype_names[] = "one of" TPC_DTYPE_LIST(DTYPE_NAME);
const char bench_op_names[] = "one of" TPC_OP_LIST(NAME);
const char bench_path_names[] = "one of" TPC_PATH_LIST(NAME) " nccl_direct nccl_window";

bool bench_parse_bytes(const char *text, uint64_t *bytes_p) {
    static const char suffixes[] = "KMGkmg"; /* nccl-tests takes both */
    size_t length = strlen(text);
    const char *suffix = length > 0 ? strchr(suffixes, text[length - 1]) : NULL;
    unsigned shift = 0;
    uint64_t value;
    if (suffix && *suffix) {
        shift = 10 * (unsigned)((suffix - suffixes) % 3 + 1);
        length--;
    }
    if (!bench_number_u64(text, length, &value) || value > UINT64_MAX >> shift) return false;
    *bytes_p = value << shift;
    return true;
}

tpcomm_status_t bench_parse_size(const char *option, const char *text, uint64_t *bytes_p) {
    if (bench_parse_bytes(text, bytes_p) && *bytes_p <= UINT64_C(1) << 40) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_INVALID_ARG, "--%s %s: allowed are whole numbers, also with K, M or G, up to 1024G",
                     option, text);
}

tpcomm_status_t bench_parse_list(const char *option, const char *list,
                                 bool (*parse)(const char *name, int32_t *value_p), const char *allowed,
                                 int32_t *values, size_t most, size_t *count_p) {
    size_t count = 0;
    for (const char *at = list;; at++) {
        char name[32];
        size_t length = strcspn(at, ",");
        int32_t value;
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), at);
        if (!parse(name, &value))
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "--%s %s: there is no %s; allowed is %s", option, list,
                             name[0] ? name : "empty name", allowed);
        for (size_t i = 0; i < count; i++)
            if (values[i] == value)
                return tpc_error(TPCOMM_ERR_INVALID_ARG, "--%s %s: %s stands twice", option, list, name);
        if (count == most) return tpc_error(TPCOMM_ERR_INVALID_ARG, "--%s %s: at most %zu", option, list, most);
        values[count++] = value;
        at += length;
        if (*at == '\0') break;
    }
    *count_p = count;
    return TPCOMM_OK;
}

uint64_t bench_hash_more(uint64_t hash, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/** A rank's options, for the other's text. */
typedef struct {
    uint64_t hash;
    char line[TPC_ERROR_BYTES / 4];
} told_t;

tpcomm_status_t bench_agree_on_options(tpcomm_t *comm, uint64_t hash, int argc, char **argv) {
    tpcomm_info_t info = {.struct_size = sizeof info};
    told_t mine = {.hash = hash}, all[TPCOMM_MAX_RANKS];
    tpcomm_status_t status = tpcomm_comm_info(comm, &info);
    if (status != TPCOMM_OK) return status;
    size_t used = 0;
    for (int i = 0; i < argc && used < sizeof mine.line - 1; i++) {
        snprintf(mine.line + used, sizeof mine.line - used, "%s%s", i > 0 ? " " : "", argv[i]);
        used = strlen(mine.line);
    }
    status = tpcomm_host_all_gather(comm, &mine, all, sizeof mine, 0);
    for (int32_t r = 1; r < info.size && status == TPCOMM_OK; r++)
        if (all[r].hash != all[0].hash && strcmp(all[r].line, all[0].line) == 0)
            status =
                tpc_error(TPCOMM_ERR_CONFIG_MISMATCH,
                          "ranks 0 and %d were both started with \"%s\", but the files or variables that they read "
                          "are different",
                          r, all[r].line);
        else if (all[r].hash != all[0].hash)
            status = tpc_error(TPCOMM_ERR_CONFIG_MISMATCH,
                               "the ranks were started with different options: rank 0 with \"%s\", rank %d with \"%s\"",
                               all[0].line, r, all[r].line);
    return status;
}
