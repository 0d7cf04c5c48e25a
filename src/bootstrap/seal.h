/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Seals on the frames of a connection between hosts, where the job has a secret. The proof (proof.h) shows who is at
 * the other end as a connection begins; a seal shows that each frame is that one's, whole, and in its place:
 * HMAC-SHA256 under a key that both sides make of the secret, the caller's whole greeting and both nonces, one for each
 * direction.
 *
 *   head, seal of head                  covers the frame's number and the head: lengths are believed only then
 *   body, seal of body (if any body)    covers the head's seal and the body
 *
 * The number counts the frames of this direction and does not travel, so that a frame which is repeated, left out or
 * moved has a wrong seal. Frames are not hidden. Between processes of one host and user the kernel carries them, and
 * vouches for the user; whoever could change them there could change the processes, too. So these have no seals.
 */
#ifndef TPC_BOOTSTRAP_SEAL_H
#define TPC_BOOTSTRAP_SEAL_H

#include "bootstrap/proof.h"

#define TPC_SEAL_BYTES 32

/** Of one connection. */
typedef struct {
    bool set;
    uint8_t send_key[TPC_SEAL_BYTES], receive_key[TPC_SEAL_BYTES];
    uint64_t sent, received; /**< whole frames */
} tpc_seal_t;

/** Of one frame: its head's, and its body's if it has one. */
typedef struct {
    uint8_t head[TPC_SEAL_BYTES], body[TPC_SEAL_BYTES];
} tpc_frame_seals_t;

/** The keys, once both proofs were right. caller: this side sent hello, and was given challenge. */
void tpc_seal_begin(const tpc_secret_t *secret, const tpc_greeting_t *hello, const tpc_greeting_t *challenge,
                    bool caller, tpc_seal_t *seal_p);

/** All zero, which no right one is, where it cannot be computed. */
void tpc_seal_head(const uint8_t key[TPC_SEAL_BYTES], uint64_t number, const tpc_frame_head_t *head,
                   uint8_t seal_p[TPC_SEAL_BYTES]);
void tpc_seal_body(const uint8_t key[TPC_SEAL_BYTES], const uint8_t head_seal[TPC_SEAL_BYTES], const void *body,
                   size_t bytes, uint8_t seal_p[TPC_SEAL_BYTES]);

/** Those of the next frame to be sent. */
void tpc_seal_frame(const tpc_seal_t *seal, const tpc_frame_head_t *head, const void *body, tpc_frame_seals_t *seals_p);
/** Whether what came as the seal of the next frame's head, or then of its body, is right. */
bool tpc_seal_head_is_right(const tpc_seal_t *seal, const tpc_frame_head_t *head, const tpc_frame_seals_t *came);
bool tpc_seal_body_is_right(const tpc_seal_t *seal, const tpc_frame_head_t *head, const void *body,
                            const tpc_frame_seals_t *came);

#endif
