/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/proof.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/shlib.h"
#include "bootstrap/host.h"

#define SECRET_LEAST 16
#define SECRET_MOST  4096

typedef struct {
    const void *(*sha256)(void);
    unsigned char *(*hmac)(const void *digest, const void *key, int key_bytes, const unsigned char *data, size_t bytes,
                           unsigned char *mac_p, unsigned *mac_bytes_p);
} crypto_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool loaded;
static crypto_t crypto;

/* Once a process; it stays. Under lock. */
static tpcomm_status_t load(void) {
    static const char *const names[] = {"libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so", NULL};
    static const tpc_shlib_symbol_t symbols[] = {{"EVP_sha256", offsetof(crypto_t, sha256), true},
                                                 {"HMAC", offsetof(crypto_t, hmac), true}};
    const tpc_shlib_desc_t desc = {.what = "libcrypto, which the job's secret needs,",
                                   .names = names,
                                   .deepbind = true, /* the server may have its own, of another make */
                                   .symbols = symbols,
                                   .symbol_count = sizeof symbols / sizeof symbols[0]};
    tpc_shlib_t library;
    tpc_env_value_t path;
    if (loaded) return TPCOMM_OK;
    tpcomm_status_t status = tpc_env_get(TPC_ENV_CRYPTO_PATH, &path);
    if (status == TPCOMM_OK) status = tpc_shlib_open(&desc, path.text, &crypto, &library);
    loaded = status == TPCOMM_OK;
    if (status == TPCOMM_ERR_UNSUPPORTED)
        return tpc_error(TPCOMM_ERR_CONFIG, "%s. Install OpenSSL's library, or give its file in TPCOMM_CRYPTO_PATH",
                         tpcomm_last_error());
    return status;
}

static bool mac_of(const void *key, size_t key_bytes, const void *data, size_t bytes, uint8_t mac_p[TPC_MAC_BYTES]) {
    unsigned length = 0;
    return crypto.hmac != NULL &&
           crypto.hmac(crypto.sha256(), key, (int)key_bytes, data, bytes, mac_p, &length) != NULL &&
           length == TPC_MAC_BYTES;
}

static void wipe(void *bytes, size_t count) {
    explicit_bzero(bytes, count);
}

/* ------------------------------------------------------------------ the secret */

/* The file without line ends at its end. */
static tpcomm_status_t read_file(const char *path, unsigned char text[SECRET_MOST + 1], size_t *bytes_p) {
    size_t have = 0;
    ssize_t got = 1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return tpc_error_errno(TPCOMM_ERR_CONFIG, errno, "TPCOMM_SECRET_FILE='%s' cannot be read", path);
    while (have <= SECRET_MOST && got > 0) {
        got = read(fd, text + have, SECRET_MOST + 1 - have);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            have += (size_t)got;
    }
    int err = errno;
    close(fd);
    if (got < 0) return tpc_error_errno(TPCOMM_ERR_CONFIG, err, "TPCOMM_SECRET_FILE='%s' cannot be read", path);
    while (have > 0 && (text[have - 1] == '\n' || text[have - 1] == '\r')) have--;
    *bytes_p = have;
    return TPCOMM_OK;
}

static tpcomm_status_t make_key(const char *variable, const unsigned char *text, size_t bytes, tpc_secret_t *secret_p) {
    static const char label[] = "tpcomm: key of a job, 1";
    if (bytes < SECRET_LEAST || bytes > SECRET_MOST)
        return tpc_error(TPCOMM_ERR_CONFIG, "%s has %s%d bytes; a secret has %d to %d", variable,
                         bytes > SECRET_MOST ? "more than " : "", (int)(bytes > SECRET_MOST ? SECRET_MOST : bytes),
                         SECRET_LEAST, SECRET_MOST);
    pthread_mutex_lock(&lock);
    tpcomm_status_t status = load();
    pthread_mutex_unlock(&lock);
    if (status != TPCOMM_OK) return status;
    if (!mac_of(text, bytes, label, sizeof label, secret_p->key))
        return tpc_error(TPCOMM_ERR_CONFIG, "libcrypto cannot compute HMAC-SHA256 (%s)", variable);
    secret_p->set = true;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_secret_read(tpc_secret_t *secret_p) {
    tpc_env_value_t text, file;
    unsigned char bytes[SECRET_MOST + 1];
    size_t count = 0;
    *secret_p = (tpc_secret_t){.set = false};
    tpcomm_status_t status = tpc_env_get(TPC_ENV_SECRET_FILE, &file);
    if (status == TPCOMM_OK) status = tpc_env_get(TPC_ENV_SECRET, &text);
    if (status != TPCOMM_OK) return status;
    if (text.set && file.set)
        status = tpc_error(TPCOMM_ERR_CONFIG, "TPCOMM_SECRET and TPCOMM_SECRET_FILE are both set; one is enough");
    else if (text.set)
        status = make_key("TPCOMM_SECRET", (const unsigned char *)text.text, strlen(text.text), secret_p);
    else if (file.set)
        status = read_file(file.text, bytes, &count);
    if (status == TPCOMM_OK && file.set) status = make_key("TPCOMM_SECRET_FILE", bytes, count, secret_p);
    wipe(bytes, sizeof bytes);
    wipe(text.text, sizeof text.text);
    return status;
}

void tpc_secret_wipe(tpc_secret_t *secret) {
    wipe(secret, sizeof *secret);
}

/* ------------------------------------------------------------------ messages */

static const char by_host[8] = "host", by_caller[8] = "caller", by_answer[8] = "answer";

/* What an hmac covers. */
typedef struct {
    char label[8];
    tpc_greeting_t hello;
    uint8_t nonce[TPC_NONCE_BYTES];
    tpc_greeting_t message; /* with no hmac yet */
    char text[TPC_ERROR_BYTES];
} covered_t;

/* All zero where it cannot be computed, which no right one is. */
static void compute(const tpc_secret_t *secret, const char label[8], const tpc_greeting_t *hello, const char *nonce,
                    const tpc_greeting_t *message, const char *text, uint8_t mac_p[TPC_MAC_BYTES]) {
    covered_t covered;
    memset(&covered, 0, sizeof covered);
    memcpy(covered.label, label, sizeof covered.label);
    covered.hello = *hello;
    memcpy(covered.nonce, nonce, sizeof covered.nonce);
    covered.message = *message;
    memset(covered.message.hello.hmac, 0, sizeof covered.message.hello.hmac);
    size_t text_bytes = strnlen(text, sizeof covered.text - 1);
    memcpy(covered.text, text, text_bytes);
    covered.message.text_bytes = (uint32_t)text_bytes;
    if (!mac_of(secret->key, sizeof secret->key, &covered, sizeof covered, mac_p)) memset(mac_p, 0, TPC_MAC_BYTES);
}

bool tpc_proof_equal(const uint8_t a[TPC_MAC_BYTES], const uint8_t b[TPC_MAC_BYTES]) {
    volatile uint8_t differ = 0, any = 0;
    for (size_t i = 0; i < TPC_MAC_BYTES; i++) {
        differ = (uint8_t)(differ | (a[i] ^ b[i]));
        any = (uint8_t)(any | a[i]);
    }
    return differ == 0 && any != 0;
}

static bool is_right(const tpc_secret_t *secret, const char label[8], const tpc_greeting_t *hello, const char *nonce,
                     const tpc_greeting_t *message, const char *text) {
    uint8_t mac[TPC_MAC_BYTES];
    compute(secret, label, hello, nonce, message, text, mac);
    return tpc_proof_equal(mac, message->hello.hmac);
}

static void reply(const tpc_greeting_t *hello, uint16_t kind, tpc_greeting_t *message_p) {
    memset(message_p, 0, sizeof *message_p);
    memcpy(message_p->hello.magic, TPC_WIRE_MAGIC, sizeof message_p->hello.magic);
    message_p->hello.wire_version = TPC_WIRE_VERSION;
    message_p->hello.kind = kind;
    message_p->hello.tpcomm_version = hello->hello.tpcomm_version;
    message_p->hello.rank = hello->hello.rank;
    message_p->hello.size = hello->hello.size;
    message_p->hello.job = hello->hello.job;
}

tpcomm_status_t tpc_proof_begin(const tpc_secret_t *secret, tpc_greeting_t *hello) {
    if (!secret->set) return TPCOMM_OK;
    hello->flags |= TPC_HELLO_HAS_SECRET;
    return tpc_random(hello->hello.hmac, sizeof hello->hello.hmac);
}

bool tpc_proof_challenge(const tpc_secret_t *secret, const tpc_greeting_t *hello, tpc_greeting_t *challenge_p) {
    reply(hello, TPC_HELLO_CHALLENGE, challenge_p);
    if (tpc_random(challenge_p->host_id, TPC_NONCE_BYTES) != TPCOMM_OK) return false;
    compute(secret, by_host, hello, challenge_p->host_id, challenge_p, "", challenge_p->hello.hmac);
    return true;
}

bool tpc_proof_challenge_right(const tpc_secret_t *secret, const tpc_greeting_t *hello,
                               const tpc_greeting_t *challenge) {
    return challenge->text_bytes == 0 && is_right(secret, by_host, hello, challenge->host_id, challenge, "");
}

void tpc_proof_prove(const tpc_secret_t *secret, const tpc_greeting_t *hello, const tpc_greeting_t *challenge,
                     tpc_greeting_t *prove_p) {
    reply(hello, TPC_HELLO_PROVE, prove_p);
    compute(secret, by_caller, hello, challenge->host_id, prove_p, "", prove_p->hello.hmac);
}

bool tpc_proof_right(const tpc_secret_t *secret, const tpc_greeting_t *hello, const tpc_greeting_t *challenge,
                     const tpc_greeting_t *prove) {
    return prove->text_bytes == 0 && is_right(secret, by_caller, hello, challenge->host_id, prove, "");
}

void tpc_proof_seal(const tpc_secret_t *secret, const tpc_greeting_t *hello, const tpc_greeting_t *challenge,
                    const char *text, tpc_greeting_t *answer) {
    compute(secret, by_answer, hello, challenge->host_id, answer, text, answer->hello.hmac);
}

bool tpc_proof_sealed(const tpc_secret_t *secret, const tpc_greeting_t *hello, const tpc_greeting_t *challenge,
                      const char *text, const tpc_greeting_t *answer) {
    return is_right(secret, by_answer, hello, challenge->host_id, answer, text);
}

/* ------------------------------------------------------------------ for what follows */

void tpc_proof_mac(const uint8_t key[TPC_MAC_BYTES], const void *data, size_t bytes, uint8_t mac_p[TPC_MAC_BYTES]) {
    if (!mac_of(key, TPC_MAC_BYTES, data, bytes, mac_p)) memset(mac_p, 0, TPC_MAC_BYTES);
}

void tpc_proof_key(const tpc_secret_t *secret, const char label[8], const tpc_greeting_t *hello,
                   const tpc_greeting_t *challenge, uint8_t key_p[TPC_MAC_BYTES]) {
    compute(secret, label, hello, challenge->host_id, challenge, "", key_p);
}
