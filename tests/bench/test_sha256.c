/* SPDX-License-Identifier: Apache-2.0 */
/* Check that SHA-256 gives the digests of FIPS 180-4's examples, however the bytes are cut. */
#include "check.h"
#include "sha256.h"

static void check_digest(const char *bytes, size_t count, size_t piece, const char *want) {
    bench_sha256_t sha;
    char hex[65];
    bench_sha256_start(&sha);
    for (size_t at = 0; at < count; at += piece)
        bench_sha256_add(&sha, bytes + at, count - at < piece ? count - at : piece);
    bench_sha256_end(&sha, hex);
    if (strcmp(hex, want) != 0) FAIL("%zu bytes by %zu: %s, want %s", count, piece, hex, want);
}

int main(void) {
    static char a[1000000];
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    memset(a, 'a', sizeof a);
    check_digest("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_digest("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t piece = 1; piece <= 56; piece++)
        check_digest(two_blocks, 56, piece, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    static const size_t pieces[] = {1, 63, 64, 65, 4096, 1000000};
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++)
        check_digest(a, sizeof a, pieces[i], "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    return 0;
}
