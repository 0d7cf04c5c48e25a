/* SPDX-License-Identifier: Apache-2.0 */
/* Check that an error text is whole, clean, cut at a character, and each thread's own until its next failure. */
#include <errno.h>
#include <pthread.h>

#include "base/error.h"
#include "base/text.h"
#include "check.h"

static void check_text(const char *want) {
    if (strcmp(tpcomm_last_error(), want) != 0) FAIL("last error is \"%s\", want \"%s\"", tpcomm_last_error(), want);
}

static void *in_thread(void *arg) {
    (void)arg;
    check_text("");
    tpc_error(TPCOMM_ERR_IO, "the thread's");
    check_text("the thread's");
    return NULL;
}

static void check_threads(void) {
    pthread_t threads[8];
    tpc_error(TPCOMM_ERR_IO, "main's");
    const char *kept = tpcomm_last_error();
    for (int i = 0; i < 8; i++) CHECK_EQ(pthread_create(&threads[i], NULL, in_thread, NULL), 0);
    for (int i = 0; i < 8; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK(strcmp(kept, "main's") == 0);
}

static void check_forms(void) {
    CHECK_EQ(tpc_error(TPCOMM_ERR_PARSE, "%s %d", "plain", 7), TPCOMM_ERR_PARSE);
    check_text("plain 7");
    CHECK_EQ(tpc_error_errno(TPCOMM_ERR_IO, ENOENT, "file %s", "x"), TPCOMM_ERR_IO);
    check_text("file x: No such file or directory");
    CHECK_EQ(tpc_error_prefix(TPCOMM_ERR_IO, "rank %d", 3), TPCOMM_ERR_IO);
    check_text("rank 3: file x: No such file or directory");
    /* The former text as an argument of the new one. */
    tpc_error(TPCOMM_ERR_IO, "<%s>", tpcomm_last_error());
    check_text("<rank 3: file x: No such file or directory>");
    tpc_error_prefix(TPCOMM_ERR_IO, "%s", tpcomm_last_error());
    check_text("<rank 3: file x: No such file or directory>: <rank 3: file x: No such file or directory>");
    /* Success leaves the text: it is kept until the next failure. */
    tpc_error(TPCOMM_ERR_IO, "kept");
    CHECK_EQ(tpcomm_dtype_size(TPCOMM_F32), 4);
    check_text("kept");
    tpc_error_errno(TPCOMM_ERR_IO, 123456, "odd");
    CHECK_ERROR_HAS("123456");
    tpc_error(TPCOMM_ERR_IO, "%s", "\x1b[31mred\nline \xff");
    check_text("?[31mred?line ?");
}

/** Any length, of characters of any size, by each of the three functions. */
static void check_lengths(void) {
    static const char *const characters[] = {"x", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    static char whole[TPC_ERROR_BYTES * 2];
    for (size_t size = 1; size <= 4; size++) {
        for (size_t bytes = size * (900 / size); bytes <= 1200; bytes += size) {
            for (size_t i = 0; i < bytes; i += size) memcpy(whole + i, characters[size - 1], size);
            whole[bytes] = '\0';
            for (int form = 0; form < 3; form++) {
                size_t extra = form == 0 ? 0 : form == 1 ? strlen(": Bad file descriptor") : 3;
                if (form == 0) tpc_error(TPCOMM_ERR_IO, "%s", whole);
                if (form == 1) tpc_error_errno(TPCOMM_ERR_IO, EBADF, "%s", whole);
                if (form == 2) {
                    tpc_error(TPCOMM_ERR_IO, "e");
                    tpc_error_prefix(TPCOMM_ERR_IO, "%s", whole);
                }
                const char *text = tpcomm_last_error();
                size_t length = strlen(text);
                if (bytes + extra < TPC_ERROR_BYTES) {
                    CHECK_EQ(length, bytes + extra);
                    continue;
                }
                CHECK(length < TPC_ERROR_BYTES && length > TPC_ERROR_BYTES - 9);
                CHECK(strcmp(text + length - 3, "...") == 0);
                for (size_t i = 0; i < length;) {
                    size_t step = tpc_text_utf8(text + i, length - i);
                    CHECK(step > 0);
                    i += step;
                }
            }
        }
    }
}

int main(void) {
    check_text("");
    check_forms();
    check_lengths();
    check_threads();
    return 0;
}
