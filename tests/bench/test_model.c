/* SPDX-License-Identifier: Apache-2.0 */
/* Check that models are found by name or read from a file, and that a file with a typing error is refused, not guessed
 * at. */
#include <unistd.h>

#include "check.h"
#include "model.h"

static char path[64];

static void write_file(const char *text) {
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(text, 1, strlen(text), file) == strlen(text) && fclose(file) == 0);
}

static void check_model(const char *name, uint64_t hidden, uint64_t layers, uint64_t calls, uint64_t extra) {
    bench_model_t model;
    CHECK_OK(bench_model_find(name, &model));
    CHECK_EQ(model.hidden, hidden);
    CHECK_EQ(model.layers, layers);
    CHECK_EQ(model.calls_per_layer, calls);
    CHECK_EQ(model.extra_calls, extra);
}

static void bad(const char *text, const char *piece) {
    bench_model_t model;
    write_file(text);
    CHECK_STATUS(bench_model_find(path, &model), TPCOMM_ERR_PARSE);
    CHECK_ERROR_HAS(path);
    CHECK_ERROR_HAS(piece);
}

#define HEAD "{\"schema\": \"tpcomm-model/1\", "

int main(void) {
    bench_model_t model;
    snprintf(path, sizeof path, "./model.%ld.tmp", (long)getpid());

    check_model("llama-3.1-8b", 4096, 32, 2, 1);
    check_model("llama-3.1-70b", 8192, 80, 2, 1);
    check_model("qwen3-32b", 5120, 64, 2, 1);
    CHECK(strcmp(bench_model_names(), "llama-3.1-8b, llama-3.1-70b, qwen3-32b") == 0);
    CHECK_STATUS(bench_model_find("llama-3.1-7b", &model), TPCOMM_ERR_INVALID_ARG);
    CHECK_ERROR_HAS("no model \"llama-3.1-7b\", the nearest is llama-3.1-");
    CHECK_ERROR_HAS("known are llama-3.1-8b, llama-3.1-70b, qwen3-32b");
    CHECK_STATUS(bench_model_find("Qwen3-32B", &model), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(bench_model_find("", &model), TPCOMM_ERR_INVALID_ARG);
    CHECK_STATUS(bench_model_find("no-such-file.json", &model), TPCOMM_ERR_IO);
    CHECK_ERROR_HAS("no-such-file.json");

    write_file(HEAD "\"name\": \"mine\", \"hidden\": 7168, \"layers\": 61}");
    check_model(path, 7168, 61, 2, 1);
    write_file(
        HEAD "\"name\": \"mine\", \"layers\": 65536, \"hidden\": 1048576, \"calls_per_layer\": 1, \"extra_calls\": 0}");
    check_model(path, 1048576, 65536, 1, 0);
    CHECK_OK(bench_model_find(path, &model));
    CHECK(strcmp(model.name, "mine") == 0);

    bad("{\"name\": \"m\", \"hidden\": 1, \"layers\": 1}", "schema");
    bad("{\"schema\": \"tpcomm-model/2\", \"name\": \"m\", \"hidden\": 1, \"layers\": 1}", "tpcomm-model/2");
    bad(HEAD "\"name\": \"m\", \"hidden\": 1, \"layers\": 1, \"layer\": 2}", "layer");
    bad(HEAD "\"name\": \"m\", \"hidden\": 1}", "layers");
    bad(HEAD "\"hidden\": 1, \"layers\": 1}", "name");
    bad(HEAD "\"name\": \"\", \"hidden\": 1, \"layers\": 1}", "name");
    bad(HEAD "\"name\": \"a\\u0007b\", \"hidden\": 1, \"layers\": 1}", "control characters");
    bad(HEAD
        "\"name\": \"0123456789012345678901234567890123456789012345678901234567890123\", \"hidden\": 1, \"layers\": 1}",
        "name");
    static const char *const numbers[] = {"0", "-1", "1.5", "1048577", "4294967296", "\"4096\"", "true", "null"};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, HEAD "\"name\": \"m\", \"hidden\": %s, \"layers\": 1}", numbers[i]);
        bad(text, "hidden");
    }
    bad(HEAD "\"name\": \"m\", \"hidden\": 1, \"layers\": 65537}", "layers");
    bad(HEAD "\"name\": \"m\", \"hidden\": 1, \"layers\": 1, \"calls_per_layer\": 65}", "calls_per_layer");
    bad(HEAD "\"name\": \"m\", \"hidden\": 1, \"layers\": 1, \"extra_calls\": null}", "extra_calls");
    bad(HEAD "\"name\": \"m\", \"hidden\": 1, \"layers\": 1, \"calls_per_layer\": 0, \"extra_calls\": 0}",
        "never communicate");
    unlink(path);
    return 0;
}
