/* SPDX-License-Identifier: Apache-2.0 */
/* Check that histograms come back as they were written, and that a file that contradicts itself or the format is
 * refused. */
#include <math.h>
#include <stdbool.h>
#include <unistd.h>

#include "check.h"
#include "histogram.h"

static char path[64];

static void write_file(const char *text) {
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(text, 1, strlen(text), file) == strlen(text) && fclose(file) == 0);
}

static bench_histogram_t good(const char *text) {
    bench_histogram_t histogram;
    write_file(text);
    if (bench_histogram_read(path, &histogram) != TPCOMM_OK) FAIL("refused: %s\n%s", tpcomm_last_error(), text);
    return histogram;
}

static void bad(const char *text, const char *piece) {
    bench_histogram_t histogram;
    write_file(text);
    tpcomm_status_t status = bench_histogram_read(path, &histogram);
    if (status != TPCOMM_ERR_PARSE) FAIL("status %s for:\n%s", tpcomm_status_name(status), text);
    CHECK_ERROR_HAS(path);
    CHECK_ERROR_HAS(piece);
}

#define HEAD "{\"schema\": \"tpcomm-histogram/1\", "

static void check_same_bins(const bench_bins_t *a, const bench_bins_t *b) {
    CHECK_EQ(a->size, b->size);
    CHECK_EQ(a->total, b->total);
    for (size_t i = 0; i < a->size; i++) {
        CHECK_EQ(a->bins[i].tokens, b->bins[i].tokens);
        CHECK_EQ(a->bins[i].count, b->bins[i].count);
    }
}

static void check_round_trip(void) {
    bench_histogram_t out, in;
    uint64_t decode_only[10] = {0}, mixed[3000] = {0}, decode_part[10] = {0};
    memset(&out, 0, sizeof out);
    decode_only[1] = UINT64_C(1) << 40;
    decode_only[9] = 3;
    mixed[7] = 2;
    mixed[2048] = 5;
    decode_part[1] = UINT64_C(1) << 40;
    decode_part[9] = 5;
    CHECK_OK(bench_bins_from_counts(decode_only, 10, &out.decode_only));
    CHECK_OK(bench_bins_from_counts(mixed, 3000, &out.mixed));
    CHECK_OK(bench_bins_from_counts(decode_part, 10, &out.decode_part));
    CHECK_EQ(out.decode_only.size, 2);
    CHECK_EQ(out.mixed.total, 7);
    out.has_params = true;
    out.params = (bench_params_t){256, 2048, 12, 0.02, true};
    out.scale = 0.028387359647587547;
    out.target_batch = 32;
    out.reached = false;
    out.iterations = out.decode_only.total + out.mixed.total;
    out.mean_decode_batch = bench_bins_tokens(&out.decode_part) / (double)out.decode_part.total;
    strcpy(out.source.trace, "a \"b\" \xc3\xa9.csv");
    strcpy(out.source.sha256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    strcpy(out.source.format, "azure");
    out.source.bytes = UINT64_C(1) << 40;
    out.source.rows = 10;
    out.source.requests = 8;
    out.source.dropped_rows = 2;
    bench_histogram_rehash(&out);

    CHECK_OK(bench_histogram_write(&out, path));
    CHECK_OK(bench_histogram_read(path, &in));
    check_same_bins(&in.decode_only, &out.decode_only);
    check_same_bins(&in.mixed, &out.mixed);
    check_same_bins(&in.decode_part, &out.decode_part);
    CHECK(memcmp(&in.source, &out.source, sizeof in.source) == 0);
    CHECK(in.has_params && in.params.max_num_seqs == 256 && in.params.token_budget == 2048 &&
          in.params.iteration_ms == 12 && in.params.token_ms == 0.02 && in.params.prefill_elsewhere);
    CHECK(in.scale == out.scale && in.target_batch == 32 && !in.reached && in.iterations == out.iterations);
    CHECK(in.mean_decode_batch == out.mean_decode_batch && in.hash == out.hash);
    bench_histogram_free(&in);

    /* No target, no decoding: both are null in the file. */
    out.target_batch = NAN;
    out.mean_decode_batch = NAN;
    free(out.decode_part.bins);
    out.decode_part = (bench_bins_t){NULL, 0, 0};
    CHECK_OK(bench_histogram_write(&out, path));
    CHECK_OK(bench_histogram_read(path, &in));
    CHECK(isnan(in.target_batch) && in.reached && isnan(in.mean_decode_batch));
    bench_histogram_free(&in);
    bench_histogram_free(&out);
    CHECK_STATUS(bench_histogram_write(&in, "/no/such/folder/x.json"), TPCOMM_ERR_IO);
    CHECK_ERROR_HAS("/no/such/folder/x.json");
    CHECK_STATUS(bench_histogram_read("/no/such/file", &in), TPCOMM_ERR_IO);
}

static void check_by_hand(void) {
    /* As little as somebody else's file may hold; keys in any order; unknown keys are of no concern. */
    bench_histogram_t a =
        good(HEAD "\"decode_only\": {\"100\": 3, \"20\": 7, \"3\": 0}, \"mixed\": {}, \"more\": [1]}");
    CHECK(!a.has_params && a.reached && isnan(a.target_batch) && isnan(a.mean_decode_batch) &&
          a.source.trace[0] == '\0');
    CHECK_EQ(a.iterations, 10);
    CHECK_EQ(a.decode_only.size, 2);
    CHECK_EQ(a.decode_only.bins[0].tokens, 20);
    CHECK(bench_bins_tokens(&a.decode_only) == 440);
    /* Smallest T at or below which lie so many iterations: the 1st, 7th, 8th and 10th of 10. */
    CHECK_EQ(bench_bins_quantile(&a.decode_only, 0), 20);
    CHECK_EQ(bench_bins_quantile(&a.decode_only, 700), 20);
    CHECK_EQ(bench_bins_quantile(&a.decode_only, 701), 100);
    CHECK_EQ(bench_bins_quantile(&a.decode_only, 1000), 100);
    CHECK_EQ(bench_bins_quantile(&a.mixed, 500), 0);

    /* The hash tells the same bins from others, and a decode-only one from a mixed one. */
    bench_histogram_t b = good(HEAD "\"mixed\": {}, \"decode_only\": {\"20\": 7, \"100\": 3}, \"scale\": 2}");
    bench_histogram_t c = good(HEAD "\"mixed\": {\"20\": 7, \"100\": 3}, \"decode_only\": {}}");
    bench_histogram_t d = good(HEAD "\"mixed\": {}, \"decode_only\": {\"20\": 7, \"100\": 4}}");
    CHECK(a.hash == b.hash && a.hash != c.hash && a.hash != d.hash);
    bench_histogram_free(&a);
    bench_histogram_free(&b);
    bench_histogram_free(&c);
    bench_histogram_free(&d);
    bench_histogram_t last = good(HEAD "\"mixed\": {}, \"decode_only\": {\"2147483647\": 9007199254740991}}");
    CHECK(last.iterations == UINT64_C(9007199254740991) && last.decode_only.bins[0].tokens == 2147483647u);
    CHECK_EQ(bench_bins_quantile(&last.decode_only, 999), 2147483647u);
    bench_histogram_free(&last);
}

static void check_bad(void) {
    bad("", "");
    bad("{", "");
    bad("[]", "");
    bad("{\"decode_only\": {\"1\": 1}, \"mixed\": {}}", "schema");
    bad("{\"schema\": \"tpcomm-histogram/2\", \"decode_only\": {\"1\": 1}, \"mixed\": {}}", "tpcomm-histogram/2");
    bad("{\"schema\": \"tpcomm-tuning/1\", \"decode_only\": {\"1\": 1}, \"mixed\": {}}", "tpcomm-tuning/1");
    bad(HEAD "\"mixed\": {}}", "decode_only");
    bad(HEAD "\"decode_only\": {\"1\": 1}}", "mixed");
    bad(HEAD "\"decode_only\": [1], \"mixed\": {}}", "decode_only");
    bad(HEAD "\"decode_only\": {}, \"mixed\": {}}", "no iteration");
    bad(HEAD "\"decode_only\": {\"1\": 0}, \"mixed\": {}}", "no iteration");
    static const char *const keys[] = {"0", "01", "-1", "1.0",        "1e3",
                                       "",  " 1", "x",  "2147483648", "99999999999999999999"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, HEAD "\"decode_only\": {\"5\": 1, \"%s\": 1}, \"mixed\": {}}", keys[i]);
        bad(text, "the key must be a whole number from 1 to 2147483647");
        CHECK_ERROR_HAS("decode_only");
    }
    static const char *const counts[] = {"-1", "1.5", "9007199254740993", "1e400", "\"4096\"", "true", "null",
                                         "{}", "[]"};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, HEAD "\"decode_only\": {\"5\": 1, \"77\": %s}, \"mixed\": {}}", counts[i]);
        bad(text, strcmp(counts[i], "1e400") == 0 ? "" : "77");
    }
    bad(HEAD "\"decode_only\": {\"5\": 1, \"5\": 2}, \"mixed\": {}}", "");
    bad(HEAD "\"decode_only\": {\"5\": 9007199254740991, \"6\": 1}, \"mixed\": {}}", "sum up to more than");
    bad(HEAD "\"decode_only\": {\"5\": 9007199254740991}, \"mixed\": {\"6\": 1}}", "sum up to more than");
    bad(HEAD "\"iterations\": 3, \"decode_only\": {\"5\": 1}, \"mixed\": {\"6\": 1}}", "sum up to 2");
    bad(HEAD "\"decode_only\": {\"5\": 1}, \"mixed\": {}, \"decode_part\": {\"5\": 2}}", "more than the 1 iterations");
    bad(HEAD "\"mean_decode_batch\": 5.5, \"decode_only\": {\"5\": 1}, \"mixed\": {}, \"decode_part\": {\"5\": 1}}",
        "the mean of decode_part is 5");
    bad(HEAD "\"source\": 7, \"decode_only\": {\"5\": 1}, \"mixed\": {}}", "source");
    bad(HEAD "\"source\": {\"trace\": 7}, \"decode_only\": {\"5\": 1}, \"mixed\": {}}", "trace");
    bad(HEAD "\"source\": {\"sha256\": \"0123456789012345678901234567890123456789012345678901234567890123456789\"}, "
             "\"decode_only\": {\"5\": 1}, \"mixed\": {}}",
        "longer than the 64 bytes");
    bad(HEAD "\"params\": {\"max_num_seqs\": 0}, \"decode_only\": {\"5\": 1}, \"mixed\": {}}", "max_num_seqs");
    bad(HEAD "\"params\": {}, \"decode_only\": {\"5\": 1}, \"mixed\": {}}", "max_num_seqs");

    /* Cut anywhere, a file is refused. */
    static const char whole[] = HEAD "\"decode_only\": {\"5\": 1}, \"mixed\": {\"6\": 1}}";
    for (size_t n = 0; n < strlen(whole); n++) {
        char text[sizeof whole];
        memcpy(text, whole, n);
        text[n] = '\0';
        bad(text, "");
    }
}

int main(void) {
    snprintf(path, sizeof path, "histogram.%ld.tmp", (long)getpid());
    check_round_trip();
    check_by_hand();
    check_bad();
    unlink(path);
    return 0;
}
