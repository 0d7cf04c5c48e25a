/* SPDX-License-Identifier: Apache-2.0 */
/**
 * Meeting by the caller's own all-gather. It is called exactly twice on every rank: once to compare who is there, so
 * that all ranks see the same failures, once to spread the unique id that rank 0 makes; then the ranks meet by that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hook.h"
#include "bootstrap/internal.h"

/** First call: how each rank was started. */
typedef struct {
    char magic[8];
    uint32_t tpcomm_version;
    int32_t rank, size;
    tpcomm_status_t status; /**< whether it can go on */
    char host_id[TPC_HOST_ID_BYTES];
    char text[256];
} card_t;

/** Second call: only rank 0's counts. */
typedef struct {
    tpcomm_status_t status;
    tpcomm_unique_id_t id;
    char text[256];
} offer_t;

#define CARD_MAGIC "TPCOMMEX"

/** One call of the caller's function. */
static tpcomm_status_t call(tpcomm_exchange_fn exchange, void *arg, const void *mine, void *all, size_t bytes,
                            int which, const tpc_deadline_t *deadline) {
    uint64_t left_ms = tpc_deadline_left_ms(deadline);
    uint32_t timeout_ms = left_ms == 0 ? 1 : left_ms < UINT32_MAX ? (uint32_t)left_ms : UINT32_MAX;
    int32_t done = exchange(arg, mine, all, bytes, timeout_ms);
    if (done == 1) return TPCOMM_OK;
    return tpc_error(TPCOMM_ERR_BACKEND,
                     "the caller's exchange returned %d, not 1, in call %d of 2 (%zu bytes, limit %u ms)", done, which,
                     bytes, timeout_ms);
}

static void card_fill(int32_t rank, int32_t size, const tpc_env_t *env, card_t *card) {
    memset(card, 0, sizeof *card);
    memcpy(card->magic, CARD_MAGIC, sizeof card->magic);
    card->tpcomm_version = tpc_library_version();
    card->rank = rank;
    card->size = size;
    tpc_host_identity(env, card->host_id);
    card->status = tpc_hook("connect", rank);
    if (card->status != TPCOMM_OK) snprintf(card->text, sizeof card->text, "%.255s", tpcomm_last_error());
}

/** The same cards lie before every rank, and so every rank comes to the same end. */
static tpcomm_status_t cards_check(const card_t *cards, int32_t size, bool *several_hosts_p) {
    char theirs[32], mine[32];
    bool several_hosts = false;
    for (int32_t i = 0; i < size; i++) {
        const card_t *card = &cards[i];
        if (memcmp(card->magic, CARD_MAGIC, sizeof card->magic) != 0)
            return tpc_error(TPCOMM_ERR_BACKEND, "the caller's exchange did not bring what rank %d gave to it", i);
        if (card->tpcomm_version != cards[0].tpcomm_version)
            return tpc_error(
                TPCOMM_ERR_CONFIG_MISMATCH, "rank %d runs tpcomm %s, rank 0 runs %s: one job needs one version", i,
                tpc_version_text(card->tpcomm_version, theirs), tpc_version_text(cards[0].tpcomm_version, mine));
        if (card->size != cards[0].size)
            return tpc_error(TPCOMM_ERR_INVALID_ARG, "rank %d was started with size %d, rank 0 with size %d", i,
                             card->size, cards[0].size);
        if (card->rank != i)
            return tpc_error(TPCOMM_ERR_INVALID_ARG,
                             "the rank at place %d of the exchange says that it is rank %d of %d", i, card->rank,
                             card->size);
        several_hosts |= strncmp(card->host_id, cards[0].host_id, sizeof card->host_id) != 0;
    }
    for (int32_t i = 0; i < size; i++)
        if (cards[i].status != TPCOMM_OK)
            return tpc_error(TPCOMM_ERR_PEER_FAILED, "rank %d failed in 'connect': %.255s", i, cards[i].text);
    *several_hosts_p = several_hosts;
    return TPCOMM_OK;
}

tpcomm_status_t tpc_bootstrap_meet_exchange(int32_t rank, int32_t size, tpcomm_exchange_fn exchange, void *arg,
                                            const tpc_env_t *env, const tpc_deadline_t *deadline,
                                            tpc_bootstrap_t **bootstrap_p) {
    if (!exchange) return tpc_error(TPCOMM_ERR_INVALID_ARG, "exchange is NULL");
    if (size < 1 || size > TPCOMM_MAX_RANKS)
        return tpc_error(TPCOMM_ERR_INVALID_ARG, "size %d: a world has 1 to %d ranks", size, TPCOMM_MAX_RANKS);
    card_t mine, *cards = calloc((size_t)size, sizeof *cards);
    offer_t offer = {.status = TPCOMM_OK}, *offers = calloc((size_t)size, sizeof *offers);
    tpcomm_status_t status = TPCOMM_OK;
    bool several_hosts = false;
    if (!cards || !offers) {
        status = tpc_error(TPCOMM_ERR_NO_MEMORY, "no memory for the exchange of %d ranks", size);
        goto out;
    }

    card_fill(rank, size, env, &mine);
    status = call(exchange, arg, &mine, cards, sizeof mine, 1, deadline);
    if (status != TPCOMM_OK) goto out;
    status = cards_check(cards, size, &several_hosts);
    if (status != TPCOMM_OK) goto out;

    if (rank == 0) {
        offer.status = tpc_id_make(env, several_hosts, &offer.id);
        if (offer.status != TPCOMM_OK) snprintf(offer.text, sizeof offer.text, "%.255s", tpcomm_last_error());
    }
    status = call(exchange, arg, &offer, offers, sizeof offer, 2, deadline);
    if (status != TPCOMM_OK) {
        if (rank == 0 && offer.status == TPCOMM_OK) tpc_id_forget(&offer.id);
        goto out;
    }
    if (offers[0].status != TPCOMM_OK) {
        status = tpc_error(TPCOMM_ERR_PEER_FAILED, "rank 0 failed in 'connect': %.255s", offers[0].text);
        goto out;
    }
    status = tpc_bootstrap_meet_id(&offers[0].id, rank, size, env, deadline, bootstrap_p);

out:
    free(offers);
    free(cards);
    return status;
}
