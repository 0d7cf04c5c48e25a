/* SPDX-License-Identifier: Apache-2.0 */
/* Check that the three trace formats are read exactly, with every trap they are known for, and bad lines are named. */
#include <stdbool.h>
#include <unistd.h>

#include "check.h"
#include "trace_read.h"

#define AZURE "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
#define BURST "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"

static char path[64];

static void write_file(const char *text, size_t bytes) {
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(text, 1, bytes, file) == bytes && fclose(file) == 0);
}

static bench_trace_t good(const char *text, bench_trace_format_t format) {
    bench_trace_t trace;
    write_file(text, strlen(text));
    if (bench_trace_read(path, format, &trace) != TPCOMM_OK) FAIL("refused: %s\n%s", tpcomm_last_error(), text);
    return trace;
}

static void bad_bytes(const char *text, size_t bytes, bench_trace_format_t format, const char *piece) {
    bench_trace_t trace;
    write_file(text, bytes);
    tpcomm_status_t status = bench_trace_read(path, format, &trace);
    if (status != TPCOMM_ERR_PARSE) FAIL("status %s for:\n%s", tpcomm_status_name(status), text);
    CHECK_ERROR_HAS(path);
    CHECK_ERROR_HAS(piece);
}

static void bad(const char *text, const char *piece) {
    bad_bytes(text, strlen(text), BENCH_TRACE_AUTO, piece);
}

/** One row of azure with this time is refused; the row stands on line 3. */
static void bad_time(const char *time) {
    char text[256];
    snprintf(text, sizeof text, AZURE "2023-11-16 18:00:00,1,1\n%s,5,6\n", time);
    bad(text, ":3: TIMESTAMP");
}

static void check_request(const bench_trace_t *trace, size_t i, double arrival_s, uint32_t prompt, uint32_t output) {
    CHECK(i < trace->count);
    const bench_request_t *request = &trace->requests[i];
    if (request->arrival_s != arrival_s || request->prompt_tokens != prompt || request->output_tokens != output)
        FAIL("request %zu: %.17g %u %u, want %.17g %u %u", i, request->arrival_s, request->prompt_tokens,
             request->output_tokens, arrival_s, prompt, output);
}

static void check_azure(void) {
    /* As published: CRLF, seven decimals, no line end after the last row. Unix time of the day from date(1). */
    bench_trace_t trace =
        good(AZURE "2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8", BENCH_TRACE_AUTO);
    CHECK(trace.format == BENCH_TRACE_AZURE && trace.rows == 2 && trace.count == 2 && trace.dropped == 0 &&
          !trace.reordered);
    check_request(&trace, 0, 1700158623.97996, 4808, 10);
    check_request(&trace, 1, 1700158624.03196, 3180, 8);
    CHECK_EQ(trace.bytes, 41 + 37 + 34);
    CHECK(strlen(trace.sha256) == 64);
    bench_trace_free(&trace);

    /* 2024: six decimals and an offset, which a whole second is written without. */
    trace = good("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 "
                 "02:00:01+02:00,1,2\n"
                 "2024-05-09T23:30:02.5-00:30,3,4\n2024-05-10 00:00:03Z,7,8\n",
                 BENCH_TRACE_AUTO);
    check_request(&trace, 0, 1715299200.00993, 2162, 5);
    check_request(&trace, 1, 1715299201, 1, 2);
    check_request(&trace, 2, 1715299202.5, 3, 4);
    check_request(&trace, 3, 1715299203, 7, 8);
    bench_trace_free(&trace);

    /* Columns by name; quotes, blanks, blank lines, a byte-order mark. */
    trace = good("\xef\xbb\xbf\n  \n\"GeneratedTokens\",note, TIMESTAMP ,\"ContextTokens\"\n"
                 "\"10\",\"a \"\"b\"\", c\",2023-11-16 18:17:03, 20 \n\n30,,\"2023-11-16 18:17:04\",\"40\"\n \t\n\n",
                 BENCH_TRACE_AUTO);
    CHECK_EQ(trace.rows, 2);
    check_request(&trace, 0, 1700158623, 20, 10);
    check_request(&trace, 1, 1700158624, 40, 30);
    bench_trace_free(&trace);

    /* Leap days and the ends of a year. */
    trace = good(AZURE
                 "1970-01-01 00:00:00,1,1\n2000-02-29 23:59:59,1,2\n2023-12-31 23:59:59,1,3\n2024-02-29 00:00:00,1,4\n"
                 "2100-03-01 00:00:00,1,5\n",
                 BENCH_TRACE_AZURE);
    check_request(&trace, 0, 0, 1, 1);
    check_request(&trace, 1, 951868799, 1, 2);
    check_request(&trace, 2, 1704067199, 1, 3);
    check_request(&trace, 3, 1709164800, 1, 4);
    check_request(&trace, 4, 4107542400, 1, 5);
    bench_trace_free(&trace);
}

static void check_order(void) {
    /* Out of order, with ties: arrival first, then the file's order. Rows without tokens are dropped and counted. */
    bench_trace_t trace = good(
        AZURE "2023-11-16 18:17:05,1,1\n2023-11-16 18:17:03,2,2\n2023-11-16 18:17:04,0,9\n2023-11-16 18:17:05,3,3\n"
              "2023-11-16 18:17:03,4,4\n2023-11-16 18:17:04,5,0\n2023-11-16 18:17:02,6,6\n",
        BENCH_TRACE_AUTO);
    CHECK(trace.rows == 7 && trace.count == 5 && trace.dropped == 2 && trace.reordered);
    static const uint32_t prompts[] = {6, 2, 4, 1, 3};
    for (size_t i = 0; i < 5; i++) CHECK_EQ(trace.requests[i].prompt_tokens, prompts[i]);
    bench_trace_free(&trace);

    /* Many, in a scrambled order: i * 7919 mod 4099 seconds; equal seconds keep the file's order. */
    static char text[400000];
    size_t at = (size_t)snprintf(text, sizeof text, BURST);
    for (unsigned i = 0; i < 8198; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%u,x,%u,1,1,y\n", i * 7919u % 4099u, i + 1);
    trace = good(text, BENCH_TRACE_AUTO);
    CHECK_EQ(trace.count, 8198);
    for (size_t i = 0; i < trace.count; i++) {
        CHECK_EQ(trace.requests[i].arrival_s, (double)(i / 2));
        if (i % 2) CHECK_EQ(trace.requests[i].prompt_tokens, trace.requests[i - 1].prompt_tokens + 4099);
    }
    bench_trace_free(&trace);
}

static void check_burstgpt(void) {
    bench_trace_t trace = good(BURST "5,ChatGPT,472,18,490,Conversation log\n1106,ChatGPT,0,0,0,Conversation log\n"
                                     "10760,ChatGPT,25,326,351,Conversation log\n10760.5,GPT-4,26,1,27,API log\n",
                               BENCH_TRACE_AUTO);
    CHECK(trace.format == BENCH_TRACE_BURSTGPT && trace.rows == 4 && trace.count == 3 && trace.dropped == 1);
    check_request(&trace, 0, 5, 472, 18);
    check_request(&trace, 2, 10760.5, 26, 1);
    bench_trace_free(&trace);

    trace = good("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                 "19440110.0,S1,3.5,ChatGPT,100,200,300,Conversation log\n19454781.0,,21,GPT-4,12,34,46,API log\n",
                 BENCH_TRACE_AUTO);
    check_request(&trace, 0, 19440110, 100, 200);
    check_request(&trace, 1, 19454781, 12, 34);
    bench_trace_free(&trace);
}

static void check_mooncake(void) {
    bench_trace_t trace = good("{\"timestamp\": 9000, \"input_length\": 8772, \"output_length\": 1}\n"
                               "{\"output_length\":52,\"hash_ids\":[46,47,[],{},{\"timestamp\":1,\"x\":[1,{\"y\":null}]"
                               "},-1.5e-3,\"a\\\"]\\u00e9\"],"
                               "\"input_length\":123192,\"timestamp\":9000.5,\"other\":true}\r\n\n"
                               "  {\"timestamp\":0,\"input_length\":7,\"output_length\":0}",
                               BENCH_TRACE_AUTO);
    CHECK(trace.format == BENCH_TRACE_MOONCAKE && trace.rows == 3 && trace.count == 2 && trace.dropped == 1);
    check_request(&trace, 0, 9.0, 8772, 1);
    check_request(&trace, 1, 9.0005, 123192, 52);
    bench_trace_free(&trace);
}

static void check_bad_files(void) {
    bench_trace_t trace;
    bad("", "the file is empty");
    bad("\n \r\n\t\n", "the file is empty");
    bad("\xef\xbb\xbf", "the file is empty");
    bad(AZURE, "a header and no rows");
    bad(AZURE "2023-11-16 18:17:03,0,5\n2023-11-16 18:17:04,5,0\n", "none of the 2 rows");
    bad("a,b,c\n1,2,3\n", ":1: no known format");
    bad("timestamp,ContextTokens,GeneratedTokens\n", ":1: no known format");
    bad("TIMESTAMP,ContextTokens\n", "no known format");
    bad("TIMESTAMP,ContextTokens,GeneratedTokens,TIMESTAMP\n", "two columns are named TIMESTAMP");
    bad("TIMESTAMP,ContextTokens,GeneratedTokens,Timestamp,Request tokens,Response tokens\n",
        "say which with --format");
    bad_bytes(AZURE, strlen(AZURE), BENCH_TRACE_BURSTGPT,
              ":1: the header has no column \"Timestamp\", which format burstgpt needs");
    bad_bytes(BURST, strlen(BURST), BENCH_TRACE_AZURE, ":1: the header has no column \"TIMESTAMP\"");
    bad_bytes(AZURE, strlen(AZURE), BENCH_TRACE_MOONCAKE, ":1: column 1: mooncake has one JSON object a line");
    bad("[{\"timestamp\": 0}]\n", ":1: column 1: mooncake has one JSON object a line");
    bad_bytes("\xff\xfeT\0I\0M\0\n\0", 10, BENCH_TRACE_AUTO, ":1: a NUL byte");
    bad_bytes(AZURE "2023-11-16 18:17:03,1\0,2\n", strlen(AZURE) + 26, BENCH_TRACE_AUTO, ":2: a NUL byte");

    CHECK_STATUS(bench_trace_read("/no/such/file", BENCH_TRACE_AUTO, &trace), TPCOMM_ERR_IO);
    CHECK_ERROR_HAS("/no/such/file: No such file or directory");
    CHECK_STATUS(bench_trace_read("/", BENCH_TRACE_AUTO, &trace), TPCOMM_ERR_IO);
    CHECK_ERROR_HAS("Is a directory");
}

static void check_bad_csv(void) {
    bad(AZURE "2023-11-16 18:17:03,1\n", ":2: 2 fields, but the header has 3");
    bad(AZURE "2023-11-16 18:17:03,1,2,\n", ":2: 4 fields, but the header has 3");
    bad(AZURE "2023-11-16 18:17:03,1,2\n\n\n2023-11-16 18:17:04,,2\n", ":5: ContextTokens is \"\"");
    bad(AZURE "2023-11-16 18:17:03,-1,2\n",
        ":2: ContextTokens is \"-1\"; allowed are whole numbers from 0 to 16777216");
    bad(AZURE "2023-11-16 18:17:03,1,NaN\n", ":2: GeneratedTokens is \"NaN\"");
    bad(AZURE "2023-11-16 18:17:03,1,2.0\n", ":2: GeneratedTokens is \"2.0\"");
    bad(AZURE "2023-11-16 18:17:03,1,1e3\n", ":2: GeneratedTokens is \"1e3\"");
    bad(AZURE "2023-11-16 18:17:03,16777217,1\n", ":2: ContextTokens is \"16777217\"");
    bad(AZURE "2023-11-16 18:17:03,99999999999999999999999,1\n", ":2: ContextTokens is \"99999999999999999999999\"");
    bad(AZURE "2023-11-16 18:17:03,\"1,2\n", ":2: a quoted field does not end");
    bad(AZURE "2023-11-16 18:17:03,\"1\"x,2\n", ":2: a quoted field is followed");
    bad(AZURE "2023-11-16 18:17:03,1\"\",2\n", ":2: a quote inside an unquoted field");
    bad(AZURE "2023-11-16 18:17:03,1,2\r\r\n", ":2: GeneratedTokens");
    bad(AZURE "2023-11-16 18:17:03,1,2\n2023-11-16 18:17:03+00:00,1,2\n",
        ":3: TIMESTAMP is \"2023-11-16 18:17:03+00:00\", with an offset");
    bad(AZURE "2023-11-16 18:17:03Z,1,2\n2023-11-16 18:17:03,1,2\n",
        ":3: TIMESTAMP is \"2023-11-16 18:17:03\", without an offset");
    static const char *const times[] = {"",
                                        "2023-11-16",
                                        "2023-11-16 18:17",
                                        "2023-11-16 24:00:00",
                                        "2023-11-16 18:60:00",
                                        "2023-11-16 18:17:60",
                                        "2023-02-29 00:00:00",
                                        "2100-02-29 00:00:00",
                                        "2023-13-01 00:00:00",
                                        "2023-00-01 00:00:00",
                                        "2023-04-31 00:00:00",
                                        "2023-04-00 00:00:00",
                                        "1969-12-31 23:59:59",
                                        "2023-11-16 18:17:03.",
                                        "2023-11-16 18:17:03.1234567890",
                                        "2023-11-16 18:17:03+0000",
                                        "2023-11-16 18:17:03+00:60",
                                        "2023-11-16 18:17:03+24:00",
                                        "2023-11-16x18:17:03",
                                        "23-11-16 18:17:03",
                                        "2023-11-16 18:17:-3",
                                        "2023-11-16 18:17:03.12Zx",
                                        "1700158623",
                                        "NaN"};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        bad_time(times[i]);
    }
    bad(BURST "-1,x,1,1,2,y\n", ":2: Timestamp is \"-1\"");
    bad(BURST "nan,x,1,1,2,y\n", ":2: Timestamp is \"nan\"");
    bad(BURST "1e400,x,1,1,2,y\n", ":2: Timestamp is \"1e400\"");
    bad(BURST "1e13,x,1,1,2,y\n", ":2: Timestamp is \"1e13\"; allowed are seconds from 0 to 1e+12");
}

static void check_bad_json(void) {
    static const char *const lines[][2] = {
        {"{\"timestamp\": 1, \"input_length\": 2}", "the key output_length is missing"},
        {"{}", "the key timestamp is missing"},
        {"{\"timestamp\": 1, \"timestamp\": 1, \"input_length\": 2, \"output_length\": 3}",
         "the key timestamp stands twice"},
        {"{\"timestamp\": -1, \"input_length\": 2, \"output_length\": 3}", "timestamp is -1"},
        {"{\"timestamp\": 1e16, \"input_length\": 2, \"output_length\": 3}", "timestamp is 1e16"},
        {"{\"timestamp\": \"1\", \"input_length\": 2, \"output_length\": 3}", "timestamp, column 15: not a number"},
        {"{\"timestamp\": NaN, \"input_length\": 2, \"output_length\": 3}", "timestamp, column"},
        {"{\"timestamp\": 1, \"input_length\": -2, \"output_length\": 3}", "input_length is \"-2\""},
        {"{\"timestamp\": 1, \"input_length\": 2.5, \"output_length\": 3}", "input_length is \"2.5\""},
        {"{\"timestamp\": 1, \"input_length\": 2, \"output_length\": 99999999999999999999}",
         "output_length is \"99999999999999999999\""},
        {"{\"timestamp\": 1, \"input_length\": null, \"output_length\": 3}", "input_length, column"},
        {"{\"timestamp\": 01, \"input_length\": 2, \"output_length\": 3}", "column"},
        {"{\"timestamp\": 1, \"input_length\": 2, \"output_length\": 3} x", "something follows"},
        {"{\"timestamp\": 1, \"input_length\": 2, \"output_length\": 3,}", "a string should begin"},
        {"{\"timestamp\": 1 \"input_length\": 2, \"output_length\": 3}", "a comma or } should stand here"},
        {"{\"timestamp\": 1, \"input_length\": 2, \"output_length\": 3", "a comma or } should stand here"},
        {"{\"x\": [1, 2, \"timestamp\": 1", "a comma or a closing bracket"},
        {"{\"x\": [1,]}", "a value should stand here"},
        {"{\"x\": [1}", "a comma or a closing bracket"},
        {"{\"x\": {\"a\" 1}}", "a colon should follow"},
        {"{\"x\": {,}}", "a string should begin"},
        {"{\"x\": tru}", "a value should stand here"},
        {"{\"x\": \"a", "the string has no end"},
        {"{\"x\": \"\\q\"}", "an unknown escape"},
        {"{\"x\": \"\\u00g0\"}", "four hexadecimal digits"},
        {"{\"x\": \"a\tb\"}", "a control character"},
        {"{\"x\": 1.}", "a digit should follow the point"},
        {"{\"x\": 1e}", "a digit should follow the e"},
        {"{\"x\": -}", "a number should stand here"},
        {"{\"x\"}", "a colon should follow"},
        {"[]", "one JSON object a line"},
        {"x", "one JSON object a line"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}\n\n%s\n",
                 lines[i][0]);
        bad(text, lines[i][1]);
        CHECK_ERROR_HAS(":3: ");
    }
    /* Every prefix of a good line is refused, and a nest deeper than the limit. */
    static const char line[] =
        "{\"timestamp\":12.5,\"a\":[{\"b\":\"\\u0041\\n\"},true],\"input_length\":3,\"output_length\":4}";
    for (size_t n = 1; n < strlen(line); n++) bad_bytes(line, n, BENCH_TRACE_AUTO, ":1: ");
    static char deep[200000] = "{\"x\":";
    memset(deep + 5, '[', 100000);
    bad(deep, ":1: column 70: nested more than 64 levels");
}

/** A line longer than the first buffer is read; one longer than the limit is refused, also where it never ends. */
static void check_long_lines(void) {
    size_t bytes = BENCH_TRACE_LINE_MAX + 1000;
    char *text = malloc(bytes);
    CHECK(text);
    memset(text, '1', bytes);
    memcpy(text, "{\"x\":\"", 6);
    static const char tail[] = "\",\"timestamp\":1,\"input_length\":2,\"output_length\":3}\n";
    memcpy(text + 1000000, tail, strlen(tail));
    write_file(text, 1000000 + strlen(tail));
    bench_trace_t trace;
    CHECK_OK(bench_trace_read(path, BENCH_TRACE_AUTO, &trace));
    CHECK_EQ(trace.count, 1);
    bench_trace_free(&trace);
    memset(text + 1000000, '1', strlen(tail));
    bad_bytes(text, bytes, BENCH_TRACE_AUTO, ":1: the line is longer than 4194304 bytes");
    free(text);
}

int main(void) {
    snprintf(path, sizeof path, "trace_read.%ld.tmp", (long)getpid());
    check_azure();
    check_order();
    check_burstgpt();
    check_mooncake();
    check_bad_files();
    check_bad_csv();
    check_bad_json();
    check_long_lines();
    unlink(path);
    return 0;
}
