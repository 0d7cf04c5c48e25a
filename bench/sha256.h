/* SPDX-License-Identifier: Apache-2.0 */
/** SHA-256 (FIPS 180-4), so that a histogram can name the very trace it was made from. */
#ifndef BENCH_SHA256_H
#define BENCH_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint32_t state[8];
    uint64_t bytes; /**< taken in so far */
    unsigned char block[64];
} bench_sha256_t;

void bench_sha256_start(bench_sha256_t *sha);
void bench_sha256_add(bench_sha256_t *sha, const void *bytes, size_t count);
/** The digest in hexadecimal; sha must be started again before it is used again. */
void bench_sha256_end(bench_sha256_t *sha, char hex_p[65]);

#endif
