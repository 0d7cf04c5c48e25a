/* SPDX-License-Identifier: Apache-2.0 */
/** Values of options that are lists or sizes, and what ranks compare of their settings. */
#ifndef BENCH_LISTS_H
#define BENCH_LISTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tpcomm.h"

/** "8K", "1m", "2G", "1000" as bytes; false if it is no such thing. */
bool bench_parse_bytes(const char *text, uint64_t *bytes_p);
/** The same of --option, up to 2^40. Fails: INVALID_ARG. */
tpcomm_status_t bench_parse_size(const char *option, const char *text, uint64_t *bytes_p);

/** What a list may name. */
extern const char bench_dtype_names[], bench_op_names[], bench_path_names[];

/** The names of "a,b,c" by parse, each at most once; allowed tells which there are. Fails: INVALID_ARG. */
tpcomm_status_t bench_parse_list(const char *option, const char *list,
                                 bool (*parse)(const char *name, int32_t *value_p), const char *allowed,
                                 int32_t *values, size_t most, size_t *count_p);

#define BENCH_HASH_START UINT64_C(0xcbf29ce484222325)
uint64_t bench_hash_more(uint64_t hash, const void *data, size_t bytes);
/** Ranks of a launcher may have been started with different options: compare a hash of them. Collective. Fails:
 * CONFIG_MISMATCH, with the command lines of both. */
tpcomm_status_t bench_agree_on_options(tpcomm_t *comm, uint64_t hash, int argc, char **argv);

#endif
