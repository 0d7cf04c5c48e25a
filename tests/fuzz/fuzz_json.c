/* SPDX-License-Identifier: Apache-2.0 */
/* Files of JSON: any document; tuning tables, histograms and models. The first byte says which reader gets the rest. */
#include "base/json.h"
#include "dispatch/dispatch.h"
#include "fuzz.h"
#include "histogram.h"
#include "model.h"

static size_t walk(tpc_json_value_t value) {
    size_t seen = 1;
    for (tpc_json_value_t one = tpc_json_first(value); one.node != NULL; one = tpc_json_next(one)) seen += walk(one);
    return seen;
}

static void parse(const uint8_t *data, size_t size) {
    tpc_json_t *doc = NULL;
    if (tpc_json_parse("<fuzz>", (const char *)data, size, &doc) != TPCOMM_OK) return;
    uint64_t number;
    const char *text;
    (void)walk(tpc_json_root(doc));
    (void)tpc_json_check_schema(doc, "tpcomm-tuning/1");
    (void)tpc_json_u64(tpc_json_root(doc), "count", 0, UINT64_MAX, &number);
    (void)tpc_json_string(tpc_json_root(doc), "name", &text);
    tpc_json_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tpc_table_t table;
    static const tpc_table_world_t world = {.size = 4, .device = {"cpu", "cpu", "cpu", "cpu"}, .topology = "cpu"};
    bench_histogram_t histogram = {0};
    bench_model_t model;
    if (size == 0) return 0;
    const char *path = fuzz_file(data + 1, size - 1);
    switch (data[0] % 4) {
    case 0:
        parse(data + 1, size - 1);
        break;
    case 1:
        (void)tpc_table_read(path, &world, &table);
        break;
    case 2:
        if (bench_histogram_read(path, &histogram) == TPCOMM_OK) bench_histogram_free(&histogram);
        break;
    default:
        (void)bench_model_find(path, &model);
    }
    return 0;
}
