/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check tuning files: a good one is read to the letter; every other is refused with the file, the place and the value,
 * and never half used (J3, F12): another schema, device, topology, world size, version of the library or of NCCL;
 * unknown, missing, duplicate and mistyped keys; rows that contradict each other; every prefix of a good file.
 */
#include <unistd.h>

#include "check.h"
#include "dispatch/dispatch.h"

static char path[64];
static tpc_table_t table;
static tpc_table_world_t world = {.size = 2, .device = {"cpu", "cpu"}, .topology = "cpu"};

static void write_file(const char *text, size_t bytes) {
    FILE *file = fopen(path, "wbe");
    CHECK(file != NULL);
    CHECK_EQ(fwrite(text, 1, bytes, file), bytes);
    CHECK_EQ(fclose(file), 0);
}

static tpcomm_status_t read_text(const char *text) {
    write_file(text, strlen(text));
    tpc_table_builtin(&table);
    return tpc_table_read(path, &world, &table);
}

#define HEAD "{\"schema\": \"tpcomm-tuning/1\", \"device\": \"cpu\", "
#define ROW  "\"coll\": \"all_reduce\", \"topology\": \"cpu\", \"ranks\": 2, \"path\": \"cpu_twoshot\""

static const char good[] =
    HEAD "\"library_version\": \"0.1.0\", \"manifest\": {\"any\": [1, 2]}, \"rows\": [\n"
         "{" ROW ", \"dtype\": \"bf16\", \"capturing\": false, \"bytes_min\": 1024, \"bytes_max\": 4294967296, "
         "\"source\": \"measured\", \"base_us\": 1.5, \"per_mib_us\": 100.25},\n"
         "{" ROW ", \"bytes_min\": 4294967297}]}";

static void reads_all(void) {
    tpc_table_t builtin;
    tpc_table_builtin(&builtin);
    CHECK_OK(read_text(good));
    CHECK_EQ(table.count, builtin.count + 2);
    CHECK(memcmp(&table.rows[2], builtin.rows, builtin.count * sizeof *builtin.rows) == 0);
    CHECK(strcmp(table.origin, path) == 0);
    const tpc_row_t *row = &table.rows[0];
    CHECK_EQ(row->coll, TPCOMM_ALL_REDUCE);
    CHECK_EQ(row->dtype, TPCOMM_BF16);
    CHECK_EQ(row->size, 2);
    CHECK_EQ(row->capturing, TPCOMM_OFF);
    CHECK_EQ(row->path, TPCOMM_PATH_CPU_TWOSHOT);
    CHECK_EQ(row->source, TPCOMM_SOURCE_MEASURED);
    CHECK_EQ(row->built_in, 0);
    CHECK_EQ(row->bytes_min, 1024);
    CHECK_EQ(row->bytes_max, 4294967296);
    CHECK_EQ(row->base_ns, 1500);
    CHECK_EQ(row->per_mib_ns, 100250);
    CHECK(table.rows[1].bytes_max == UINT64_MAX && table.rows[1].base_ns == -1 && table.rows[1].dtype == 0);
    CHECK(tpc_table_hash(&table) != tpc_table_hash(&builtin));
}

static void refuse(const char *text, tpcomm_status_t want, const char *piece, const char *piece2) {
    tpcomm_status_t status = read_text(text);
    if (status != want || !strstr(tpcomm_last_error(), piece) || !strstr(tpcomm_last_error(), piece2))
        FAIL("%s gave %s: %s; want %s with \"%s\" and \"%s\"", text, tpcomm_status_name(status), tpcomm_last_error(),
             tpcomm_status_name(want), piece, piece2);
    CHECK_ERROR_HAS(path);
}

static void refuses(void) {
#define ONE_ROW(row) HEAD "\"rows\": [{" row "}]}"
    refuse("", TPCOMM_ERR_PARSE, "", "");
    refuse("{", TPCOMM_ERR_PARSE, "", "");
    refuse("[]", TPCOMM_ERR_PARSE, "", "");
    refuse("{\"schema\": \"tpcomm-tuning/2\"}", TPCOMM_ERR_PARSE, "tpcomm-tuning/2", "tpcomm-tuning/1");
    refuse("{\"schema\": \"tpcomm-replay/1\"}", TPCOMM_ERR_PARSE, "tpcomm-replay/1", "");
    refuse("{\"device\": \"cpu\", \"schema\": \"tpcomm-tuning/1\", \"rows\": []}", TPCOMM_ERR_PARSE, "schema", "");
    refuse("{\"schema\": \"tpcomm-tuning/1\", \"device\": \"NVIDIA H200\", \"rows\": []}", TPCOMM_ERR_CONFIG,
           "NVIDIA H200", "cpu");
    refuse(HEAD "\"library_version\": \"0.9\", \"rows\": []}", TPCOMM_ERR_CONFIG, "0.9", "0.1");
    refuse(HEAD "\"library_version\": \"0.11\", \"rows\": []}", TPCOMM_ERR_CONFIG, "0.11", "0.1");
    refuse(HEAD "\"rows\": {}}", TPCOMM_ERR_PARSE, "rows", "");
    refuse(HEAD "\"Rows\": []}", TPCOMM_ERR_PARSE, "Rows", "rows");
    refuse("{\"schema\": \"tpcomm-tuning/1\", \"device\": \"cpu\"}", TPCOMM_ERR_PARSE, "rows", "");
    refuse(ONE_ROW(ROW ", \"byte_max\": 5"), TPCOMM_ERR_PARSE, "byte_max", "bytes_max");
    refuse(ONE_ROW(ROW ", \"path\": \"local\""), TPCOMM_ERR_PARSE, "path", "");
    refuse(ONE_ROW("\"coll\": \"all_reduce\", \"topology\": \"cpu\", \"ranks\": 2, \"path\": \"threeshot\""),
           TPCOMM_ERR_PARSE, "rows[0].path", "threeshot");
    refuse(ONE_ROW("\"coll\": \"all_reduce\", \"topology\": \"cpu\", \"ranks\": 2, \"path\": \"auto\""),
           TPCOMM_ERR_PARSE, "rows[0].path", "auto");
    refuse(ONE_ROW("\"coll\": \"all_reduce\", \"topology\": \"cpu\", \"path\": \"local\""), TPCOMM_ERR_PARSE, "ranks",
           "");
    refuse(ONE_ROW("\"coll\": \"gather\", \"topology\": \"cpu\", \"ranks\": 2, \"path\": \"local\""), TPCOMM_ERR_PARSE,
           "rows[0].coll", "gather");
    refuse(ONE_ROW("\"coll\": \"all_reduce\", \"topology\": \"moon\", \"ranks\": 2, \"path\": \"local\""),
           TPCOMM_ERR_PARSE, "rows[0].topology", "moon");
    refuse(ONE_ROW("\"coll\": \"all_reduce\", \"topology\": \"cpu\", \"ranks\": 33, \"path\": \"local\""),
           TPCOMM_ERR_PARSE, "rows[0].ranks", "33");
    refuse(ONE_ROW("\"coll\": \"all_reduce\", \"topology\": \"cpu\", \"ranks\": \"2\", \"path\": \"local\""),
           TPCOMM_ERR_PARSE, "rows[0].ranks", "2");
    refuse(ONE_ROW(ROW ", \"bytes_max\": 1.5"), TPCOMM_ERR_PARSE, "rows[0].bytes_max", "1.5");
    refuse(ONE_ROW(ROW ", \"bytes_max\": -1"), TPCOMM_ERR_PARSE, "rows[0].bytes_max", "-1");
    refuse(ONE_ROW(ROW ", \"bytes_max\": 9007199254740993"), TPCOMM_ERR_PARSE, "rows[0].bytes_max", "");
    refuse(ONE_ROW(ROW ", \"bytes_max\": 1e400"), TPCOMM_ERR_PARSE, "", "");
    refuse(ONE_ROW(ROW ", \"bytes_min\": 10, \"bytes_max\": 9"), TPCOMM_ERR_PARSE, "rows[0].bytes_max", "10");
#define NORM "\"coll\": \"all_reduce_rms_norm\", \"topology\": \"cpu\", \"ranks\": 2, \"path\": \"unfused\""
    refuse(ONE_ROW(ROW ", \"hidden_min\": 8"), TPCOMM_ERR_PARSE, "rows[0].hidden_min", "all_reduce has no rows");
    refuse(ONE_ROW(NORM ", \"hidden_min\": 0"), TPCOMM_ERR_PARSE, "rows[0].hidden_min", "0");
    refuse(ONE_ROW(NORM ", \"hidden_max\": 2147483648"), TPCOMM_ERR_PARSE, "rows[0].hidden_max", "2147483648");
    refuse(ONE_ROW(NORM ", \"hidden_max\": \"8\""), TPCOMM_ERR_PARSE, "rows[0].hidden_max", "8");
    refuse(ONE_ROW(NORM ", \"hidden_min\": 10, \"hidden_max\": 9"), TPCOMM_ERR_PARSE, "rows[0].hidden_max", "10");
    refuse(HEAD "\"rows\": [{" NORM ", \"hidden_max\": 100}, {" NORM ", \"hidden_min\": 100}]}", TPCOMM_ERR_PARSE,
           "rows[1]", "row 0");
    refuse(HEAD "\"rows\": [{" NORM "}, {" NORM ", \"hidden_min\": 100}]}", TPCOMM_ERR_PARSE, "rows[1]", "row 0");
    CHECK_OK(read_text(HEAD "\"rows\": [{" NORM ", \"hidden_max\": 100}, {" NORM ", \"hidden_min\": 101}]}"));
    CHECK(table.rows[0].hidden_min == 0 && table.rows[0].hidden_max == 100);
    CHECK(table.rows[1].hidden_min == 101 && table.rows[1].hidden_max == INT32_MAX);
    refuse(ONE_ROW(ROW ", \"capturing\": \"no\""), TPCOMM_ERR_PARSE, "rows[0].capturing", "");
    refuse(ONE_ROW(ROW ", \"source\": \"guessed\""), TPCOMM_ERR_PARSE, "rows[0].source", "guessed");
    refuse(ONE_ROW(ROW ", \"dtype\": \"bfloat16\""), TPCOMM_ERR_PARSE, "rows[0].dtype", "bfloat16");
    refuse(ONE_ROW(ROW ", \"base_us\": -2"), TPCOMM_ERR_PARSE, "rows[0].base_us", "-2");
    refuse(ONE_ROW(ROW ", \"per_mib_us\": 2"), TPCOMM_ERR_PARSE, "rows[0].per_mib_us", "without base_us");
    refuse(HEAD "\"rows\": [7]}", TPCOMM_ERR_PARSE, "rows[0]", "");
    refuse(HEAD "\"world_size\": 4, \"rows\": []}", TPCOMM_ERR_CONFIG, "a world of 4 ranks", "this one has 2");
    /* The greatest world, and one rank of another model in it. */
    world = (tpc_table_world_t){.size = 2, .device = {"cpu", "NVIDIA H100"}, .topology = "cpu"};
    refuse(HEAD "\"rows\": []}", TPCOMM_ERR_CONFIG, "device 'cpu'", "rank 1 runs on 'NVIDIA H100'");
    world = (tpc_table_world_t){.size = 2, .device = {"cpu", "cpu"}, .topology = "cpu"};
    refuse(HEAD "\"topology\": \"nvlink\", \"rows\": []}", TPCOMM_ERR_CONFIG, "topology 'nvlink'",
           "this world is 'cpu'");
    refuse(HEAD "\"topology\": \"moon\", \"rows\": []}", TPCOMM_ERR_PARSE, "topology", "moon");
    refuse(HEAD "\"topology\": 7, \"rows\": []}", TPCOMM_ERR_PARSE, "topology", "7");
    CHECK_OK(read_text(HEAD "\"topology\": \"cpu\", \"rows\": []}"));
    refuse(HEAD "\"nccl_version\": 2, \"rows\": []}", TPCOMM_ERR_PARSE, "nccl_version", "2");
    refuse(HEAD "\"nccl_version\": \"0123456789012345678901234567890123456789\", \"rows\": []}", TPCOMM_ERR_PARSE,
           "nccl_version", "0123456789");
    refuse(HEAD "\"world_size\": 0, \"rows\": []}", TPCOMM_ERR_PARSE, "world_size", "0");
    refuse(HEAD "\"world_size\": \"2\", \"rows\": []}", TPCOMM_ERR_PARSE, "world_size", "2");
    CHECK_OK(read_text(HEAD "\"world_size\": 2, \"rows\": []}"));
    refuse(HEAD "\"rows\": [{" ROW ", \"bytes_max\": 100}, {" ROW ", \"bytes_min\": 100}]}", TPCOMM_ERR_PARSE,
           "rows[1]", "row 0");
    refuse(HEAD "\"rows\": [{" ROW "}, {" ROW ", \"dtype\": \"f32\"}]}", TPCOMM_ERR_PARSE, "rows[1]", "row 0");
}

/* Measured beside another NCCL: refused where there is one, and only there. */
static void of_another_nccl(void) {
    CHECK_OK(read_text(HEAD "\"nccl_version\": \"2.28.9\", \"rows\": [{" ROW "}]}"));
    uint64_t hash = tpc_table_hash(&table);
    CHECK_OK(tpc_table_check_nccl(&table, "2.28.9"));
    CHECK_OK(tpc_table_check_nccl(&table, ""));
    CHECK_STATUS(tpc_table_check_nccl(&table, "2.28.90"), TPCOMM_ERR_CONFIG);
    CHECK_ERROR_HAS(path);
    CHECK_ERROR_HAS("measured with NCCL 2.28.9, but this group uses NCCL 2.28.90");
    CHECK_OK(read_text(HEAD "\"rows\": [{" ROW "}]}"));
    CHECK_OK(tpc_table_check_nccl(&table, "2.30.1"));
    CHECK(tpc_table_hash(&table) != hash);
}

/* What explain says of a row's origin: never nothing for one that is built in. */
static void built_in_rows_say_where_from(void) {
    tpc_table_builtin(&table);
    CHECK(table.count > 0 && table.count <= TPC_DISPATCH_BUILTIN_MAX);
    for (size_t i = 0; i < table.count; i++) {
        const tpc_row_t *row = &table.rows[i];
        bool measured = strncmp(tpc_row_from(row), "bench/results/", 14) == 0;
        CHECK(row->built_in == 1 && tpc_row_from(row)[0] != '\0' && row->path != TPCOMM_PATH_AUTO);
        CHECK_EQ(measured, row->source == TPCOMM_SOURCE_MEASURED);
        for (size_t k = 0; k < i; k++) { /* a row that another hides would be of no use */
            const tpc_row_t *front = &table.rows[k];
            CHECK(!(front->coll == row->coll && front->topology == row->topology && front->size == row->size &&
                    front->path == row->path && (front->dtype == 0 || front->dtype == row->dtype) &&
                    (front->capturing == 0 || front->capturing == row->capturing) &&
                    front->hidden_min <= row->hidden_min && front->hidden_max >= row->hidden_max &&
                    front->bytes_min <= row->bytes_min && front->bytes_max >= row->bytes_max));
        }
    }
    CHECK_OK(read_text(HEAD "\"rows\": [{" ROW "}]}"));
    CHECK_EQ(strlen(tpc_row_from(&table.rows[0])), 0);
    tpc_row_t wild = {.from = 1000000};
    CHECK_EQ(strlen(tpc_row_from(&wild)), 0);
}

static void too_many_rows(void) {
    size_t room = 400000, used = 0;
    char *text = malloc(room);
    CHECK(text != NULL);
    used += (size_t)snprintf(text, room, "%s", HEAD "\"rows\": [");
    for (int i = 0; i < 1100; i++)
        used += (size_t)snprintf(text + used, room - used, "%s{" ROW ", \"bytes_min\": %d, \"bytes_max\": %d}",
                                 i ? "," : "", 2 * i, 2 * i);
    snprintf(text + used, room - used, "]}");
    refuse(text, TPCOMM_ERR_PARSE, "at most", "rows");
    free(text);
}

static void every_prefix(void) {
    for (size_t bytes = 0; bytes + 1 < sizeof good; bytes++) {
        write_file(good, bytes);
        tpc_table_builtin(&table);
        CHECK_STATUS(tpc_table_read(path, &world, &table), TPCOMM_ERR_PARSE);
        CHECK_ERROR_HAS(path);
    }
    CHECK_EQ(unlink(path), 0);
    CHECK_STATUS(tpc_table_read(path, &world, &table), TPCOMM_ERR_IO);
    CHECK_STATUS(tpc_table_read("/tmp", &world, &table), TPCOMM_ERR_IO);
    CHECK_ERROR_HAS("/tmp");
}

int main(void) {
    snprintf(path, sizeof path, "/tmp/tpcomm-test-table-%d.json", (int)getpid());
    reads_all();
    refuses();
    of_another_nccl();
    built_in_rows_say_where_from();
    too_many_rows();
    every_prefix();
    return 0;
}
