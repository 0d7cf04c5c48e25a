/* SPDX-License-Identifier: Apache-2.0 */
#include "lists.h"

#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "measure.h"
#include "number.h"

bool bench_parse_bytes(const char *text, uint64_t *bytes_p) {
    static const char suffixes[] = "KMG";
    size_t length = strlen(text);
    const char *suffix = length > 0 ? strchr(suffixes, text[length - 1]) : NULL;
    unsigned shift = 0;
    uint64_t value;
    if (suffix && *suffix) {
        shift = 10 * (unsigned)(suffix - suffixes + 1);
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
                                 bool (*parse)(const char *name, int32_t *value_p), int32_t *values, size_t most,
                                 size_t *count_p) {
    size_t count = 0;
    for (const char *at = list;; at++) {
        char name[32];
        size_t length = strcspn(at, ",");
        int32_t value;
        snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), at);
        if (!parse(name, &value))
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "--%s %s: there is no %s", option, list, name);
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

tpcomm_status_t bench_agree_on_hash(tpcomm_t *comm, uint64_t hash) {
    double mine = (double)(hash >> 12), both[2] = {mine, -mine};
    tpcomm_status_t status = bench_gather_max(comm, both, 2);
    if (status != TPCOMM_OK || both[0] == -both[1]) return status;
    return tpc_error(TPCOMM_ERR_CONFIG_MISMATCH, "the ranks were started with different options");
}
