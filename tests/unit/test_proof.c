/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Check the proof of a job's secret: who knows it is believed; another secret, an earlier proof, the other side's own
 * words, or any changed byte of what was said is not; and what is said of a secret that cannot be used has none of it.
 */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bootstrap/proof.h"
#include "check.h"

static tpc_secret_t secret_of(const char *text) {
    tpc_secret_t secret;
    CHECK_EQ(setenv("TPCOMM_SECRET", text, 1), 0);
    CHECK_OK(tpc_secret_read(&secret));
    CHECK(secret.set);
    CHECK_EQ(unsetenv("TPCOMM_SECRET"), 0);
    return secret;
}

static tpc_greeting_t hello_of(const tpc_secret_t *secret) {
    tpc_greeting_t hello;
    memset(&hello, 0, sizeof hello);
    memcpy(hello.hello.magic, TPC_WIRE_MAGIC, sizeof hello.hello.magic);
    hello.hello.wire_version = TPC_WIRE_VERSION;
    hello.hello.kind = TPC_HELLO_JOIN;
    hello.hello.rank = 2;
    hello.hello.size = 4;
    hello.hello.job = 77;
    CHECK_OK(tpc_proof_begin(secret, &hello));
    CHECK_EQ(hello.flags, TPC_HELLO_HAS_SECRET);
    return hello;
}

static void check_messages(void) {
    tpc_secret_t right = secret_of("correct horse battery"), wrong = secret_of("correct horse batterz");
    tpc_greeting_t hello = hello_of(&right), challenge, other, proof, forged, answer;
    CHECK(tpc_proof_challenge(&right, &hello, &challenge));
    CHECK(tpc_proof_challenge_right(&right, &hello, &challenge));
    CHECK(!tpc_proof_challenge_right(&wrong, &hello, &challenge));
    tpc_proof_prove(&right, &hello, &challenge, &proof);
    CHECK(tpc_proof_right(&right, &hello, &challenge, &proof));
    CHECK(!tpc_proof_right(&wrong, &hello, &challenge, &proof));

    /* Replayed to another challenge, from another greeting, or the challenge sent back. */
    CHECK(tpc_proof_challenge(&right, &hello, &other));
    CHECK(memcmp(other.host_id, challenge.host_id, TPC_NONCE_BYTES) != 0);
    CHECK(!tpc_proof_right(&right, &hello, &other, &proof));
    tpc_greeting_t again = hello_of(&right);
    CHECK(memcmp(again.hello.hmac, hello.hello.hmac, sizeof hello.hello.hmac) != 0);
    CHECK(!tpc_proof_right(&right, &again, &challenge, &proof));
    CHECK(!tpc_proof_challenge_right(&right, &again, &challenge));
    forged = challenge;
    forged.hello.kind = TPC_HELLO_PROVE;
    CHECK(!tpc_proof_right(&right, &hello, &challenge, &forged));
    memset(forged.hello.hmac, 0, sizeof forged.hello.hmac);
    CHECK(!tpc_proof_right(&right, &hello, &challenge, &forged));

    /* Every byte of the greeting, the challenge's nonce, the proof and the answer counts. */
    for (size_t i = 0; i < sizeof hello; i++) {
        tpc_greeting_t changed = hello;
        ((unsigned char *)&changed)[i] ^= 1;
        CHECK(!tpc_proof_right(&right, &changed, &challenge, &proof));
        CHECK(!tpc_proof_challenge_right(&right, &changed, &challenge));
        changed = proof;
        ((unsigned char *)&changed)[i] ^= 1;
        CHECK(!tpc_proof_right(&right, &hello, &challenge, &changed));
        changed = challenge;
        ((unsigned char *)&changed)[i] ^= 1;
        CHECK(!tpc_proof_challenge_right(&right, &hello, &changed));
    }
    answer = hello;
    answer.hello.kind = TPC_HELLO_ANSWER;
    tpc_proof_seal(&right, &hello, &challenge, "because", &answer);
    answer.text_bytes = 7; /* as it is sent */
    CHECK(tpc_proof_sealed(&right, &hello, &challenge, "because", &answer));
    CHECK(!tpc_proof_sealed(&right, &hello, &challenge, "becausf", &answer));
    CHECK(!tpc_proof_sealed(&right, &hello, &challenge, "", &answer));
    CHECK(!tpc_proof_sealed(&wrong, &hello, &challenge, "because", &answer));
    answer.verdict = TPC_VERDICT_ACCEPT;
    CHECK(!tpc_proof_sealed(&right, &hello, &challenge, "because", &answer));
}

static void write_file(const char *path, const char *text, size_t bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, text, bytes), (ssize_t)bytes);
    close(fd);
}

static void refused(const char *piece) {
    tpc_secret_t secret;
    CHECK_STATUS(tpc_secret_read(&secret), TPCOMM_ERR_CONFIG);
    CHECK(!secret.set);
    CHECK_ERROR_HAS(piece);
    CHECK(strstr(tpcomm_last_error(), "hushhush") == NULL);
}

static void check_reading(void) {
    char path[] = "/tmp/tpcomm-secret-test-XXXXXX", long_text[5000];
    tpc_secret_t secret, same = secret_of("hushhush hushhush");
    memset(long_text, 'x', sizeof long_text);
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);

    CHECK_OK(tpc_secret_read(&secret));
    CHECK(!secret.set);
    CHECK_EQ(setenv("TPCOMM_SECRET", "hushhush", 1), 0);
    refused("TPCOMM_SECRET has 8 bytes");
    memcpy(long_text, "hushhush", 8);
    long_text[sizeof long_text - 1] = '\0';
    CHECK_EQ(setenv("TPCOMM_SECRET", long_text, 1), 0);
    refused("TPCOMM_SECRET");
    CHECK_EQ(setenv("TPCOMM_SECRET", "hushhush hushhush", 1), 0);
    CHECK_EQ(setenv("TPCOMM_SECRET_FILE", path, 1), 0);
    refused("both set");
    CHECK_EQ(unsetenv("TPCOMM_SECRET"), 0);

    write_file(path, "hushhush hushhush\r\n", 19);
    CHECK_OK(tpc_secret_read(&secret));
    CHECK(memcmp(&secret, &same, sizeof secret) == 0);
    write_file(path, "hushhush\n", 9);
    refused("TPCOMM_SECRET_FILE has 8 bytes");
    write_file(path, "", 0);
    refused("TPCOMM_SECRET_FILE has 0 bytes");
    write_file(path, long_text, sizeof long_text);
    refused("TPCOMM_SECRET_FILE has more than 4096 bytes");
    write_file(path, "with\0a NUL and \xff 1\n", 19);
    CHECK_OK(tpc_secret_read(&secret));
    CHECK_EQ(unlink(path), 0);
    refused("No such file");
    CHECK_EQ(setenv("TPCOMM_SECRET_FILE", "/", 1), 0);
    refused("'/' cannot be read");
    CHECK_EQ(unsetenv("TPCOMM_SECRET_FILE"), 0);
    tpc_secret_wipe(&same);
    for (size_t i = 0; i < sizeof same; i++) CHECK_EQ(((unsigned char *)&same)[i], 0);
}

/* In a process that has loaded none yet. */
static void check_no_library(void) {
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_EQ(setenv("TPCOMM_CRYPTO_PATH", "/nonexistent/libcrypto.so", 1), 0);
        CHECK_EQ(setenv("TPCOMM_SECRET", "hushhush hushhush", 1), 0);
        refused("/nonexistent/libcrypto.so");
        CHECK_ERROR_HAS("TPCOMM_CRYPTO_PATH");
        CHECK_EQ(unsetenv("TPCOMM_CRYPTO_PATH"), 0);
        tpc_secret_t secret;
        CHECK_OK(tpc_secret_read(&secret)); /* and one that is found later is taken */
        _Exit(0);
    }
    int how = 0;
    CHECK_EQ(waitpid(child, &how, 0), child);
    CHECK_EQ(how, 0);
}

int main(void) {
    check_no_library();
    check_messages();
    check_reading();
    return 0;
}
