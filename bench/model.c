/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "bench.h"
#include "number.h"

/* Hidden size and layers as their config.json on Hugging Face gives them (hidden_size, num_hidden_layers). X(name,
 * hidden, layers) */
#define MODEL_LIST(X)                                                                                                  \
    X("llama-3.1-8b", 4096, 32)                                                                                        \
    X("llama-3.1-70b", 8192, 80)                                                                                       \
    X("qwen3-32b", 5120, 64)

#define MODEL_ROW(name, hidden, layers) {name, hidden, layers, 2, 1},
static const bench_model_t models[] = {MODEL_LIST(MODEL_ROW)};
#undef MODEL_ROW

#define MODEL_COUNT (sizeof models / sizeof models[0])

#define MODEL_NAME(name, hidden, layers) ", " name
static const char names[] = MODEL_LIST(MODEL_NAME);
#undef MODEL_NAME

const char *bench_model_names(void) {
    return names + 2;
}

static const char *model_name(const void *arg, size_t i) {
    (void)arg;
    return i < MODEL_COUNT ? models[i].name : NULL;
}

/** A member that may be missing. */
static tpcomm_status_t read_optional(tpc_json_value_t root, const char *key, uint64_t maximum, uint64_t *value_p) {
    if (!tpc_json_get(root, key).node) return TPCOMM_OK;
    return tpc_json_u64(root, key, 0, maximum, value_p);
}

static tpcomm_status_t read_values(const tpc_json_t *doc, bench_model_t *model_p) {
    static const char *const keys[] = {"schema", "name", "hidden", "layers", "calls_per_layer", "extra_calls", NULL};
    bench_model_t model = {"", 0, 0, 2, 1};
    tpc_json_value_t root = tpc_json_root(doc);
    const char *name;
    tpcomm_status_t status;

    if ((status = tpc_json_check_schema(doc, BENCH_MODEL_SCHEMA)) != TPCOMM_OK) return status;
    if ((status = tpc_json_check_keys(root, keys)) != TPCOMM_OK) return status;
    if ((status = tpc_json_string(root, "name", &name)) != TPCOMM_OK) return status;
    if (name[0] == '\0' || strlen(name) >= sizeof model.name)
        return tpc_json_fail(tpc_json_get(root, "name"), "allowed are 1 to %zu bytes", sizeof model.name - 1);
    for (const char *at = name; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 127)
            return tpc_json_fail(tpc_json_get(root, "name"), "control characters are not allowed");
    }
    memcpy(model.name, name, strlen(name) + 1);
    if ((status = tpc_json_u64(root, "hidden", 1, BENCH_MODEL_HIDDEN_MAX, &model.hidden)) != TPCOMM_OK) return status;
    if ((status = tpc_json_u64(root, "layers", 1, BENCH_MODEL_LAYERS_MAX, &model.layers)) != TPCOMM_OK) return status;
    status = read_optional(root, "calls_per_layer", BENCH_MODEL_CALLS_MAX, &model.calls_per_layer);
    if (status != TPCOMM_OK) return status;
    status = read_optional(root, "extra_calls", BENCH_MODEL_CALLS_MAX, &model.extra_calls);
    if (status != TPCOMM_OK) return status;
    if (model.calls_per_layer + model.extra_calls == 0)
        return tpc_json_fail(tpc_json_get(root, "extra_calls"),
                             "calls_per_layer is 0 too: the model would never communicate");
    *model_p = model;
    return TPCOMM_OK;
}

static bool is_path(const char *text) {
    size_t length = strlen(text);
    return strchr(text, '/') != NULL || (length > 5 && strcmp(text + length - 5, ".json") == 0);
}

tpcomm_status_t bench_model_find(const char *name_or_path, bench_model_t *model_p) {
    if (is_path(name_or_path)) {
        tpc_json_t *doc;
        tpcomm_status_t status = tpc_json_load_library(NULL);
        if (status != TPCOMM_OK) return status;
        if ((status = tpc_json_read_file(name_or_path, &doc)) != TPCOMM_OK) return status;
        status = read_values(doc, model_p);
        tpc_json_free(doc);
        return status;
    }
    for (size_t i = 0; i < MODEL_COUNT; i++) {
        if (strcmp(models[i].name, name_or_path) != 0) continue;
        *model_p = models[i];
        return TPCOMM_OK;
    }
    const char *nearest = bench_nearest(name_or_path, model_name, NULL);
    return tpc_error(TPCOMM_ERR_INVALID_ARG, "no model \"%s\"%s%s; known are %s, others come from a .json file (%s)",
                     name_or_path, nearest ? ", the nearest is " : "", nearest ? nearest : "", bench_model_names(),
                     BENCH_MODEL_SCHEMA);
}
