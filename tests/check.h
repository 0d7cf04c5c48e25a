/* SPDX-License-Identifier: Apache-2.0 */
/** What every test program shares: CHECK prints file, line and both values and exits 1; SKIP exits 77 with its reason.
 */
#ifndef TPC_TESTS_CHECK_H
#define TPC_TESTS_CHECK_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tpcomm.h"

/* Whether a sanitizer is in this program; gcc and clang say it in different ways. */
#if !defined(__has_feature)
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define TEST_TSAN 1
#else
#define TEST_TSAN 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer) || TEST_TSAN
#define TEST_SANITIZED 1
#else
#define TEST_SANITIZED 0
#endif

#define FAIL(...)                                                                                                      \
    do {                                                                                                               \
        fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                                \
        fprintf(stderr, __VA_ARGS__);                                                                                  \
        fputc('\n', stderr);                                                                                           \
        fflush(NULL);                                                                                                  \
        _Exit(1);                                                                                                      \
    } while (0)

#define SKIP(...)                                                                                                      \
    do {                                                                                                               \
        printf("SKIP: " __VA_ARGS__);                                                                                  \
        fputc('\n', stdout);                                                                                           \
        fflush(NULL);                                                                                                  \
        _Exit(77);                                                                                                     \
    } while (0)

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) FAIL("not true: %s (last error: %s)", #condition, tpcomm_last_error());                      \
    } while (0)

#define CHECK_EQ(a, b)                                                                                                 \
    do {                                                                                                               \
        long long check_a = (long long)(a), check_b = (long long)(b);                                                  \
        if (check_a != check_b)                                                                                        \
            FAIL("%s is %lld, want %s = %lld (last error: %s)", #a, check_a, #b, check_b, tpcomm_last_error());        \
    } while (0)

#define CHECK_STATUS(call, want)                                                                                       \
    do {                                                                                                               \
        tpcomm_status_t check_status = (call);                                                                         \
        if (check_status != (want))                                                                                    \
            FAIL("%s returned %s, want %s (last error: %s)", #call, tpcomm_status_name(check_status),                  \
                 tpcomm_status_name(want), tpcomm_last_error());                                                       \
    } while (0)

#define CHECK_OK(call) CHECK_STATUS(call, TPCOMM_OK)

/** The text of the last error holds this piece. */
#define CHECK_ERROR_HAS(piece)                                                                                         \
    do {                                                                                                               \
        if (!strstr(tpcomm_last_error(), (piece)))                                                                     \
            FAIL("last error does not have \"%s\": %s", (piece), tpcomm_last_error());                                 \
    } while (0)

#endif
