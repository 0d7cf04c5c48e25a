/* SPDX-License-Identifier: Apache-2.0 */
/** What of a model decides its AllReduces: by name for a few, from a small JSON file (tpcomm-model/1) for all others.
 */
#ifndef BENCH_MODEL_H
#define BENCH_MODEL_H

#include <stdint.h>

#include "tpcomm.h"

#define BENCH_MODEL_SCHEMA "tpcomm-model/1"

/** Bounds of what may be asked for; far above any model known. */
#define BENCH_MODEL_HIDDEN_MAX 1048576u
#define BENCH_MODEL_LAYERS_MAX 65536u
#define BENCH_MODEL_CALLS_MAX  64u

/** AllReduces per iteration = layers x calls_per_layer + extra_calls, each of T x hidden elements. */
typedef struct {
    char name[64];
    uint64_t hidden, layers;
    uint64_t calls_per_layer; /**< 2: after attention and after the MLP */
    uint64_t extra_calls;     /**< 1: the vocab-parallel embedding */
} bench_model_t;

/**
 * A model by name ("llama-3.1-8b"), or from a file where the text holds a '/' or ends in ".json".
 * Fails: INVALID_ARG (no such name: with the nearest and all known ones), IO, PARSE.
 */
tpcomm_status_t bench_model_find(const char *name_or_path, bench_model_t *model_p);

/** The known names, "a, b, c", for helps. */
const char *bench_model_names(void);

#endif
