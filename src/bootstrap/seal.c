/* SPDX-License-Identifier: Apache-2.0 */
#include "bootstrap/seal.h"

#include <string.h>

typedef struct {
    char label[16];
    uint64_t number;
    tpc_frame_head_t head;
} head_cover_t;

typedef struct {
    char label[16];
    uint8_t head_seal[TPC_SEAL_BYTES];
} body_cover_t;

void tpc_seal_begin(const tpc_secret_t *secret, const tpc_greeting_t *hello, const tpc_greeting_t *challenge,
                    bool caller, tpc_seal_t *seal_p) {
    static const char by_caller[8] = "calls", by_host[8] = "answers";
    *seal_p = (tpc_seal_t){.set = true};
    tpc_proof_key(secret, caller ? by_caller : by_host, hello, challenge, seal_p->send_key);
    tpc_proof_key(secret, caller ? by_host : by_caller, hello, challenge, seal_p->receive_key);
}

void tpc_seal_head(const uint8_t key[TPC_SEAL_BYTES], uint64_t number, const tpc_frame_head_t *head,
                   uint8_t seal_p[TPC_SEAL_BYTES]) {
    head_cover_t cover;
    memset(&cover, 0, sizeof cover);
    memcpy(cover.label, "frame head", sizeof "frame head");
    cover.number = number;
    cover.head = *head;
    tpc_proof_mac(key, &cover, sizeof cover, seal_p);
}

/* In two steps, so that a large body need not be copied next to what goes before it. */
void tpc_seal_body(const uint8_t key[TPC_SEAL_BYTES], const uint8_t head_seal[TPC_SEAL_BYTES], const void *body,
                   size_t bytes, uint8_t seal_p[TPC_SEAL_BYTES]) {
    body_cover_t cover;
    uint8_t body_key[TPC_SEAL_BYTES];
    memset(&cover, 0, sizeof cover);
    memcpy(cover.label, "frame body", sizeof "frame body");
    memcpy(cover.head_seal, head_seal, sizeof cover.head_seal);
    tpc_proof_mac(key, &cover, sizeof cover, body_key);
    tpc_proof_mac(body_key, body, bytes, seal_p);
    explicit_bzero(body_key, sizeof body_key);
}

void tpc_seal_frame(const tpc_seal_t *seal, const tpc_frame_head_t *head, const void *body,
                    tpc_frame_seals_t *seals_p) {
    tpc_seal_head(seal->send_key, seal->sent, head, seals_p->head);
    tpc_seal_body(seal->send_key, seals_p->head, body, tpc_frame_body_bytes(head), seals_p->body);
}

bool tpc_seal_head_is_right(const tpc_seal_t *seal, const tpc_frame_head_t *head, const tpc_frame_seals_t *came) {
    uint8_t right[TPC_SEAL_BYTES];
    tpc_seal_head(seal->receive_key, seal->received, head, right);
    return tpc_proof_equal(right, came->head);
}

bool tpc_seal_body_is_right(const tpc_seal_t *seal, const tpc_frame_head_t *head, const void *body,
                            const tpc_frame_seals_t *came) {
    uint8_t right[TPC_SEAL_BYTES];
    tpc_seal_body(seal->receive_key, came->head, body, tpc_frame_body_bytes(head), right);
    return tpc_proof_equal(right, came->body);
}
