/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Proof that the other side of a connection knows the job's secret, in the room that greetings have for it.
 *
 *   caller  JOIN or LINK   flags say "has a secret", hmac holds the caller's nonce
 *   host    CHALLENGE      host_id holds the host's nonce, hmac proves the secret for both nonces and the caller's
 * greeting caller  PROVE          hmac proves the same with another label, so neither can be the other one's echo host
 * the answer     hmac covers it and its text
 *
 * Every hmac is HMAC-SHA256 over a label, the caller's whole greeting (rank, size, job, its nonce), the host's nonce
 * and the message itself, so what was seen once is of no use again. It tells who may join; it encrypts nothing.
 */
#ifndef TPC_BOOTSTRAP_PROOF_H
#define TPC_BOOTSTRAP_PROOF_H

#include <stdbool.h>

#include "base/env.h"
#include "bootstrap/wire.h"

#define TPC_MAC_BYTES   32
#define TPC_NONCE_BYTES 32
static_assert(TPC_NONCE_BYTES < TPC_HOST_ID_BYTES, "a nonce travels in host_id, with a NUL behind it");

/** A key made of the secret; never printed. */
typedef struct {
    bool set;
    uint8_t key[32];
} tpc_secret_t;

/**
 * The secret that TPCOMM_SECRET or TPCOMM_SECRET_FILE gives; none: OK with set false. Fails: CONFIG (both are set; the
 * file cannot be read; shorter than 16 bytes; libcrypto cannot be loaded). No text holds any of its bytes.
 */
tpcomm_status_t tpc_secret_read(tpc_secret_t *secret_p);
void tpc_secret_wipe(tpc_secret_t *secret);

/** The caller's greeting: say that there is a secret, and a fresh nonce. Fails: IO. */
tpcomm_status_t tpc_proof_begin(const tpc_secret_t *secret, tpc_greeting_t *hello);

/** The host's challenge to a greeting. False if there is no randomness. */
bool tpc_proof_challenge(const tpc_secret_t *secret, const tpc_greeting_t *hello, tpc_greeting_t *challenge_p);
bool tpc_proof_challenge_right(const tpc_secret_t *secret, const tpc_greeting_t *hello,
                               const tpc_greeting_t *challenge);

/** The caller's proof. */
void tpc_proof_prove(const tpc_secret_t *secret, const tpc_greeting_t *hello, const tpc_greeting_t *challenge,
                     tpc_greeting_t *prove_p);
bool tpc_proof_right(const tpc_secret_t *secret, const tpc_greeting_t *hello, const tpc_greeting_t *challenge,
                     const tpc_greeting_t *prove);

/** The host's answer, with the text that follows it. */
void tpc_proof_seal(const tpc_secret_t *secret, const tpc_greeting_t *hello, const tpc_greeting_t *challenge,
                    const char *text, tpc_greeting_t *answer);
bool tpc_proof_sealed(const tpc_secret_t *secret, const tpc_greeting_t *hello, const tpc_greeting_t *challenge,
                      const char *text, const tpc_greeting_t *answer);

/** A key that belongs to this greeting and challenge alone; label: for what. */
void tpc_proof_key(const tpc_secret_t *secret, const char label[8], const tpc_greeting_t *hello,
                   const tpc_greeting_t *challenge, uint8_t key_p[TPC_MAC_BYTES]);
/** HMAC-SHA256, once a secret has been read; all zero where it cannot be computed. */
void tpc_proof_mac(const uint8_t key[TPC_MAC_BYTES], const void *data, size_t bytes, uint8_t mac_p[TPC_MAC_BYTES]);
/** In a time that does not tell where they differ; what is all zero is equal to nothing. */
bool tpc_proof_equal(const uint8_t a[TPC_MAC_BYTES], const uint8_t b[TPC_MAC_BYTES]);

#endif
